/* chart.js -- the timeline's canvases, and what mouse and keys do on them. */

const LEFT = 66, RIGHT = 12, TOP = 22, AXIS = 22, LANE = 13, LANES_MAX = 3;

/* A canvas as large as its box, in CSS pixels. */
function canvasFit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return context;
}

/* The view: [from, to] on the axis, in entries or in microseconds. */
class View {
  constructor(timeline) {
    this.timeline = timeline;
    this.axis = "entries";
    this.all();
  }

  get full() { return this.axis === "time" ? Math.max(1, this.timeline.timeOf(this.timeline.entries + 1)) : this.timeline.entries + 1; }
  get smallest() { return this.axis === "time" ? Math.min(10, this.full) : Math.min(8, this.full); }
  get first() { return this.moment(this.from); }
  get last() { return this.moment(this.to); }
  get isAll() { return this.from <= 0 && this.to >= this.full; }

  all() { this.set(0, this.full); }
  place(moment) { return this.axis === "time" ? this.timeline.timeOf(moment) : moment; }
  moment(place) { return this.axis === "time" ? this.timeline.momentOf(place) : clamp(place, 0, this.timeline.entries + 1); }

  set(from, to) {
    const width = clamp(to - from, this.smallest, this.full);
    this.from = clamp(from, 0, this.full - width);
    this.to = this.from + width;
  }

  zoom(factor, around) {
    const width = clamp((this.to - this.from) * factor, this.smallest, this.full);
    const share = (around - this.from) / (this.to - this.from);
    this.set(around - share * width, around + (1 - share) * width);
  }

  pan(by) { this.set(this.from + by, this.to + by); }

  /* Moves so far that the moment is well inside. */
  show(moment) {
    const at = this.place(moment), width = this.to - this.from;
    if (at < this.from + width * 0.02 || at > this.to - width * 0.02) this.set(at - width / 2, at + width / 2);
  }

  axisSet(axis) {
    const first = this.first, last = this.last, isAll = this.isAll;
    this.axis = axis;
    if (isAll) this.all();
    else this.set(this.place(first), this.place(last));
  }
}

/* ---- drawing --------------------------------------------------------------------------------------------------------------- */

class Chart {
  constructor(app) {
    this.app = app;
    this.canvas = byId("areas");
    this.overlay = byId("overlay");
    this.box = byId("chart");
    this.handle = byId("timeline");
    this.hover = null; /* x of the pointer */
    this.drag = null;
    this.listen();
  }

  measure() {
    this.width = Math.max(200, this.box.clientWidth);
    this.lanes = Math.min(LANES_MAX, 1 + this.app.lanes.reduce((deepest, stretch) => Math.max(deepest, stretch[3]), -1));
    this.height = this.box.clientHeight;
    this.plot = { x: LEFT, y: TOP, w: this.width - LEFT - RIGHT, h: this.height - TOP - AXIS - this.lanes * LANE };
  }

  x(place) { return this.plot.x + ((place - this.app.view.from) / (this.app.view.to - this.app.view.from)) * this.plot.w; }
  y(bytes) { return this.plot.y + this.plot.h * (1 - (bytes - this.bottom) / (this.top - this.bottom)); }
  placeAt(x) { return this.app.view.from + ((x - this.plot.x) / this.plot.w) * (this.app.view.to - this.app.view.from); }

  /* The column under a place; -1: none. */
  columnAt(place) {
    const moment = this.app.view.moment(place);
    return clamp(upperBound(this.columns.edges, moment) - 1, 0, this.columns.count - 1);
  }

  draw() {
    const { app } = this, { view } = app;
    this.measure();
    const context = canvasFit(this.canvas, this.width, this.height);
    this.columns = app.timeline.columns(view.first, view.last, this.plot.w, app.layers, app.history);
    this.heightSet();
    this.xs = new Float64Array(this.columns.count + 1);
    for (let i = 0; i <= this.columns.count; i++) this.xs[i] = this.x(view.place(this.columns.edges[i]));
    this.gridDraw(context);
    context.save();
    context.beginPath();
    context.rect(this.plot.x, this.plot.y - 1, this.plot.w, this.plot.h + 2);
    context.clip();
    this.areasDraw(context);
    this.aboveLowDraw(context);
    this.pendingDraw(context);
    this.reservedDraw(context);
    this.totalDraw(context);
    this.markedDraw(context);
    context.restore();
    this.momentsDraw(context);
    this.lanesDraw(context);
    this.overlayDraw();
  }

  /* From 0 to the highest of all times; or from what every column of the view has, layer by layer: then each area is what its layer
   * has above its own lowest. */
  heightSet() {
    const { highest } = this.app.timeline, { total } = this.app.device, { layers } = this.columns;
    if (this.app.height !== "fit") {
      this.floors = layers.map(() => 0);
      [this.bottom, this.top] = [0, Math.max(highest, total < highest * 1.3 ? total : 0) * 1.04]; /* far above, the limit says little */
      return;
    }
    this.floors = layers.map((layer) => layer.reduce((least, bytes) => Math.min(least, bytes), Infinity));
    this.bottom = this.floors.reduce((all, bytes) => all + bytes, 0);
    const high = this.columns.total.reduce((most, bytes) => Math.max(most, bytes), 0);
    this.top = high + Math.max((high - this.bottom) * 0.06, 4096);
  }

  gridDraw(context) {
    const { plot } = this, { view } = this.app;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const step = roundStep(this.top - this.bottom, plot.h / 44, true);
    for (let bytes = Math.ceil(this.bottom / step) * step; bytes <= this.top; bytes += step) {
      const y = Math.round(this.y(bytes)) + 0.5;
      context.fillStyle = colours.grid;
      context.fillRect(plot.x, y - 0.5, plot.w, 1);
      context.fillStyle = colours.quiet;
      context.fillText(bytes === 0 ? "0" : sizeText(bytes).replace(/\.00 /, " "), plot.x - 6, y);
    }
    const range = view.to - view.from, xStep = Math.max(1, roundStep(range, plot.w / 110));
    context.textAlign = "center";
    context.textBaseline = "top";
    for (let place = Math.ceil(view.from / xStep) * xStep; place <= view.to; place += xStep) {
      const x = Math.round(this.x(place));
      context.fillStyle = colours.line;
      context.fillRect(x, plot.y + plot.h, 1, 4);
      context.fillStyle = colours.quiet;
      const text = view.axis === "time" ? timeText(place, xStep) : countText(place);
      const half = context.measureText(text).width / 2;
      context.fillText(text, clamp(x, plot.x - 20 + half, this.width - half), plot.y + plot.h + 6);
    }
  }

  /* From the top layer down, each over the one above it, so that one outline each is enough. */
  areasDraw(context) {
    const { count, layers } = this.columns, heights = Float64Array.from(this.columns.total);
    const names = this.app.layers, base = this.y(this.bottom) + 2;
    for (let k = layers.length - 1; k >= 0; k--) {
      context.beginPath();
      this.outline(context, heights);
      context.lineTo(this.xs[count], base);
      context.lineTo(this.xs[0], base);
      context.globalAlpha = 1;
      context.fillStyle = colours.surface;
      context.fill();
      context.globalAlpha = this.app.emphasis === null || this.app.emphasis === k ? 0.92 : 0.3;
      context.fillStyle = names.colours[k];
      context.fill();
      for (let i = 0; i < count; i++) heights[i] -= layers[k][i] - this.floors[k];
    }
    context.globalAlpha = 1;
  }

  /* Steps along the tops of the columns. */
  outline(context, values) {
    let before = NaN;
    for (let i = 0; i < this.columns.count; i++) {
      const y = this.y(values[i]);
      if (y !== before) context.lineTo(this.xs[i], y);
      context.lineTo(this.xs[i + 1], y);
      before = y;
    }
  }

  /* Paler what was reached, but not held throughout a column. */
  aboveLowDraw(context) {
    const { columns } = this;
    context.fillStyle = colours.surface;
    context.globalAlpha = 0.38;
    for (let i = 0; i < columns.count; i++) {
      const y = this.y(columns.total[i]), height = this.y(columns.low[i]) - y;
      if (height > 0.5) context.fillRect(this.xs[i], y, this.xs[i + 1] - this.xs[i], height);
    }
    context.globalAlpha = 1;
  }

  /* Freed and not yet reusable, on top of the allocated bytes. */
  pendingDraw(context) {
    const { columns } = this;
    context.fillStyle = colours.waste;
    for (let i = 0; i < columns.count; i++) {
      if (!(columns.pending[i] > 0)) continue;
      const y = this.y(columns.total[i] + columns.pending[i]);
      context.fillRect(this.xs[i], y - 1, Math.max(this.xs[i + 1] - this.xs[i], 1), 2);
    }
  }

  reservedDraw(context) {
    context.beginPath();
    this.outline(context, this.columns.reserved);
    context.strokeStyle = colours.text;
    context.lineWidth = 1.5;
    context.stroke();
  }

  /* What the card has, or the process may use. */
  totalDraw(context) {
    const { total } = this.app.device, y = Math.round(this.y(total)) + 0.5;
    if (!total || total > this.top) return;
    context.setLineDash([6, 4]);
    context.strokeStyle = colours.fault;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(this.plot.x, y);
    context.lineTo(this.plot.x + this.plot.w, y);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = colours.fault;
    context.textAlign = "left";
    context.textBaseline = "top";
    context.fillText(`${sizeText(total)} in all`, this.plot.x + 6, y + 3);
  }

  /* What the stacks that were searched for, or chosen, hold. */
  markedDraw(context) {
    const { marked, view } = this.app;
    if (!marked) return;
    const level = marked.level(Math.max(this.columns.moments, (view.last - view.first) / this.plot.w));
    const from = clamp(Math.floor(view.first / level.moments), 0, level.values.length - 1);
    const to = clamp(Math.ceil(view.last / level.moments), from + 1, level.values.length);
    context.beginPath();
    for (let i = from; i < to; i++) {
      const y = this.y(level.values[i]);
      context.lineTo(this.x(view.place(i * level.moments)), y);
      context.lineTo(this.x(view.place(Math.min((i + 1) * level.moments, this.app.device.entries + 1))), y);
    }
    for (const [colour, width] of [[colours.surface, 4], [colours.mark, 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.stroke();
    }
  }

  flag(context, moment, text, colour) {
    const x = Math.round(this.x(this.app.view.place(moment)));
    if (x < this.plot.x - 1 || x > this.plot.x + this.plot.w + 1) return;
    context.fillStyle = colour;
    context.fillRect(x - 0.75, this.plot.y - 4, 1.5, this.plot.h + 4);
    const width = context.measureText(text).width + 8, left = clamp(x - width / 2, this.plot.x, this.plot.x + this.plot.w - width);
    if (this.flags.some(([from, to]) => left < to + 2 && left + width > from - 2)) return;
    this.flags.push([left, left + width]);
    context.beginPath();
    context.roundRect(left, 2, width, 16, 4);
    context.fill();
    context.fillStyle = colours.surface;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, left + width / 2, 10.5);
  }

  momentsDraw(context) {
    const { device } = this.app;
    this.flags = [];
    context.font = "600 11px system-ui, sans-serif";
    const ooms = device.ooms, clusters = new Map();
    for (const oom of ooms) clusters.set(Math.round(this.x(this.app.view.place(oom.moment)) / 3), oom);
    for (const oom of clusters.values()) this.flag(context, oom.moment, "OOM", colours.fault);
    this.flag(context, device.levels.peak.moment, "peak", colours.text);
    device.findings.forEach((finding, i) => {
      if (finding.moment !== null) this.flag(context, finding.moment, String(i + 1), colours[finding.severity]);
    });
    context.font = "12px system-ui, sans-serif";
  }

  /* Named stretches below the axis, a lane for each depth. */
  lanesDraw(context) {
    const { device, view } = this.app;
    context.font = "10.5px system-ui, sans-serif";
    context.textAlign = "left";
    context.textBaseline = "middle";
    const ends = new Float64Array(this.lanes).fill(-1);
    for (const [begin, end, name, depth] of this.app.lanes) {
      if (depth >= this.lanes) continue;
      const left = Math.max(this.x(view.place(begin)), this.plot.x);
      const right = Math.min(this.x(view.place(end === null ? device.entries : end)), this.plot.x + this.plot.w);
      if (right < this.plot.x || left > this.plot.x + this.plot.w || right <= ends[depth]) continue; /* within a pixel of the last */
      const width = Math.max(right - left - 1, 1), y = TOP + this.plot.h + AXIS + depth * LANE;
      ends[depth] = left + Math.max(width, 1);
      context.fillStyle = colours.sunken;
      context.fillRect(left, y, width, LANE - 2);
      if (width > 4) {
        context.fillStyle = colours.line;
        context.fillRect(left, y, 1, LANE - 2);
      }
      if (width < 24) continue;
      context.save();
      context.beginPath();
      context.rect(left, y, width, LANE - 2);
      context.clip();
      context.fillStyle = colours.text;
      context.fillText(name, left + 3, y + LANE / 2 - 0.5);
      context.restore();
    }
    context.font = "12px system-ui, sans-serif";
  }

  /* The chosen moment, the pointer, and the range being dragged. */
  overlayDraw() {
    const context = canvasFit(this.overlay, this.width, this.height), { plot } = this;
    const at = this.x(this.app.view.place(this.app.moment));
    if (at >= plot.x - 1 && at <= plot.x + plot.w + 1) {
      const x = Math.round(at);
      context.fillStyle = colours.accent;
      context.fillRect(x - 1, plot.y, 2, plot.h);
      context.beginPath();
      context.moveTo(x - 6, plot.y + plot.h + 8);
      context.lineTo(x + 6, plot.y + plot.h + 8);
      context.lineTo(x, plot.y + plot.h);
      context.fill();
    }
    if (this.drag && this.drag.isRange) {
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.15;
      context.fillRect(Math.min(this.drag.x, this.drag.now), plot.y, Math.abs(this.drag.now - this.drag.x), plot.h);
      context.globalAlpha = 1;
    } else if (this.hover !== null) {
      context.fillStyle = colours.quiet;
      context.fillRect(Math.round(this.hover), plot.y, 1, plot.h);
    }
    this.tipShow();
  }

  tipShow() {
    const tip = byId("tip");
    const shown = this.hover !== null && !(this.drag && this.drag.isMoving);
    tip.hidden = !shown;
    if (!shown) return;
    const i = this.columnAt(this.placeAt(this.hover)), { columns } = this, { layers } = this.app;
    const rows = columns.layers.map((layer, k) => [layer[i], k]).filter(([bytes]) => bytes > 0).sort((a, b) => b[0] - a[0]).slice(0, 6);
    tip.replaceChildren(
      h("p", { class: "tip-title" }, this.app.momentText(columns.highest[i])),
      h("table", {}, h("tbody", {},
        h("tr", {}, h("td"), h("th", {}, "reserved"), h("td", {}, sizeText(columns.reserved[i]))),
        h("tr", {}, h("td"), h("th", {}, "allocated"), h("td", {}, sizeText(columns.total[i]))),
        rows.map(([bytes, k]) => h("tr", {}, h("td", {}, h("span", { class: "chip", colour: layers.colours[k] })), h("th", {}, layers.names[k]), h("td", {}, sizeText(bytes)))))),
      columns.moments > 1 ? h("p", { class: "quiet" }, `highest of ${countText(columns.edges[i + 1] - columns.edges[i])} entries`) : "");
    const right = this.hover > this.width / 2;
    tip.style.left = right ? "auto" : this.hover + 14 + "px";
    tip.style.right = right ? this.width - this.hover + 14 + "px" : "auto";
  }

  /* ---- mouse and touch ---- */

  listen() {
    const { handle } = this;
    handle.addEventListener("pointerdown", (event) => this.dragBegin(event));
    handle.addEventListener("pointermove", (event) => this.dragMove(event));
    handle.addEventListener("pointerup", (event) => this.dragEnd(event));
    handle.addEventListener("pointercancel", () => this.dragStop());
    handle.addEventListener("pointerleave", () => {
      this.hover = null;
      this.app.dirty("overlay");
    });
    handle.addEventListener("dblclick", () => this.app.zoom(0.25, this.hover === null ? undefined : this.placeAt(this.hover)));
    handle.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    handle.addEventListener("keydown", (event) => this.key(event));
  }

  xOf(event) { return clamp(event.clientX - this.box.getBoundingClientRect().left, this.plot.x, this.plot.x + this.plot.w); }

  dragBegin(event) {
    if (event.button !== 0) return;
    this.handle.setPointerCapture(event.pointerId);
    const x = this.xOf(event);
    this.drag = { x, now: x, from: this.app.view.from, isPan: event.shiftKey || event.pointerType === "touch", isMoving: false, isRange: false };
  }

  dragMove(event) {
    const x = this.xOf(event);
    this.hover = x;
    if (this.drag) {
      this.drag.now = x;
      if (Math.abs(x - this.drag.x) > 4) this.drag.isMoving = true;
      this.drag.isRange = this.drag.isMoving && !this.drag.isPan;
      if (this.drag.isMoving && this.drag.isPan) {
        const { view } = this.app, width = view.to - view.from, from = this.drag.from - ((x - this.drag.x) / this.plot.w) * width;
        view.set(from, from + width);
        this.app.dirty("chart");
      }
    }
    this.app.dirty("overlay");
  }

  dragEnd(event) {
    const { drag } = this;
    this.dragStop();
    if (!drag) return;
    const x = this.xOf(event);
    if (drag.isRange) {
      this.app.view.set(this.placeAt(Math.min(x, drag.x)), this.placeAt(Math.max(x, drag.x)));
      this.app.dirty("chart");
    } else if (!drag.isMoving) this.app.momentSet(this.columns.highest[this.columnAt(this.placeAt(x))]);
  }

  dragStop() {
    this.drag = null;
    this.app.dirty("overlay");
  }

  /* The page scrolls over a chart that has not been chosen. */
  wheel(event) {
    if (document.activeElement !== this.handle && !event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const { view } = this.app, lines = event.deltaMode === 1 ? 20 : 1;
    const dx = (event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX) * lines, dy = event.shiftKey ? 0 : event.deltaY * lines;
    if (Math.abs(dx) > Math.abs(dy)) view.pan((dx / this.plot.w) * (view.to - view.from));
    else view.zoom(Math.exp(clamp(dy, -200, 200) * 0.003), this.placeAt(this.xOf(event)));
    this.app.dirty("chart");
  }

  /* ---- keys ---- */

  key(event) {
    const { app } = this, { view, device } = app, width = view.to - view.from;
    const actions = {
      ArrowLeft: () => this.keyMove(-1, event), ArrowRight: () => this.keyMove(1, event),
      ArrowDown: () => this.keyMove(-1, event), ArrowUp: () => this.keyMove(1, event),
      Home: () => app.momentSet(0, true), End: () => app.momentSet(device.entries, true),
      PageUp: () => app.pan(-width * 0.8), PageDown: () => app.pan(width * 0.8),
      "+": () => app.zoom(0.5), "=": () => app.zoom(0.5), "-": () => app.zoom(2), "_": () => app.zoom(2), "0": () => app.zoomAll(),
      p: () => app.momentSet(device.levels.peak.moment, true),
      Escape: () => app.zoomAll(),
    };
    if (event.ctrlKey || event.metaKey || !actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  keyMove(direction, event) {
    const { app } = this, { view, moment } = app;
    let next;
    if (event.altKey) next = moment + direction;
    else if (event.shiftKey) next = view.moment(view.place(moment) + (direction * (view.to - view.from)) / 10);
    else {
      const at = view.place(moment);
      if (at < view.from || at > view.to) view.show(moment);
      this.draw();
      const i = clamp(this.columnAt(view.place(moment)) + direction, 0, this.columns.count - 1);
      next = this.columns.highest[i];
      if (direction > 0 ? next <= moment : next >= moment) next = moment + direction * Math.max(1, this.columns.moments);
    }
    app.momentSet(Math.round(clamp(next, 0, app.device.entries)), true);
  }
}

/* ---- the overview: everything, with the range shown ------------------------------------------------------------------------ */

class Overview {
  constructor(app) {
    this.app = app;
    this.box = byId("overview");
    this.handle = byId("range");
    this.drag = null;
    this.handle.addEventListener("pointerdown", (event) => this.dragBegin(event));
    this.handle.addEventListener("pointermove", (event) => this.dragMove(event));
    this.handle.addEventListener("pointerup", () => (this.drag = null));
    this.handle.addEventListener("pointercancel", () => (this.drag = null));
    this.handle.addEventListener("keydown", (event) => this.key(event));
  }

  x(place) { return LEFT + (place / this.app.view.full) * this.w; }
  placeAt(x) { return ((x - LEFT) / this.w) * this.app.view.full; }

  draw() {
    const { app } = this, { view, timeline } = app, width = Math.max(200, this.box.clientWidth), height = this.box.clientHeight;
    this.w = width - LEFT - RIGHT;
    const context = canvasFit(byId("overview-canvas"), width, height), base = height - 2, scale = (base - 3) / timeline.highest;
    const columns = timeline.columns(0, timeline.entries + 1, this.w, app.layers, null);
    for (const [values, colour] of [[columns.reserved, colours.line], [columns.total, colours.quiet]]) {
      context.beginPath();
      context.moveTo(LEFT, base);
      for (let i = 0; i < columns.count; i++) {
        context.lineTo(this.x(view.place(columns.edges[i])), base - values[i] * scale);
        context.lineTo(this.x(view.place(columns.edges[i + 1])), base - values[i] * scale);
      }
      context.lineTo(LEFT + this.w, base);
      context.fillStyle = colour;
      context.fill();
    }
    for (const oom of app.device.ooms.slice(0, 200)) {
      context.fillStyle = colours.fault;
      context.fillRect(this.x(view.place(oom.moment)) - 1, 2, 2, base - 2);
    }
    const from = this.x(view.from), to = Math.max(this.x(view.to), from + 3);
    context.fillStyle = colours.sunken;
    context.globalAlpha = 0.72;
    context.fillRect(LEFT, 0, from - LEFT, height);
    context.fillRect(to, 0, LEFT + this.w - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(from, 1, to - from, height - 2);
    this.handle.setAttribute("aria-valuemin", "0");
    this.handle.setAttribute("aria-valuemax", String(Math.round(view.full)));
    this.handle.setAttribute("aria-valuenow", String(Math.round((view.from + view.to) / 2)));
    this.handle.setAttribute("aria-valuetext", app.rangeText());
  }

  xOf(event) { return event.clientX - this.box.getBoundingClientRect().left; }

  dragBegin(event) {
    if (event.button !== 0) return;
    this.handle.setPointerCapture(event.pointerId);
    const { view } = this.app, x = this.xOf(event), from = this.x(view.from), to = this.x(view.to);
    const what = Math.abs(x - from) < 6 ? "from" : Math.abs(x - to) < 6 ? "to" : "both";
    if (what === "both" && (x < from || x > to)) {
      const at = this.placeAt(x), half = (view.to - view.from) / 2;
      view.set(at - half, at + half);
    }
    this.drag = { what, x, from: view.from, to: view.to };
    this.app.dirty("chart");
  }

  dragMove(event) {
    if (!this.drag) return;
    const { view } = this.app, by = ((this.xOf(event) - this.drag.x) / this.w) * view.full;
    if (this.drag.what === "both") view.set(this.drag.from + by, this.drag.to + by);
    else if (this.drag.what === "from") view.set(Math.min(this.drag.from + by, this.drag.to - view.smallest), this.drag.to);
    else view.set(this.drag.from, Math.max(this.drag.to + by, this.drag.from + view.smallest));
    this.app.dirty("chart");
  }

  key(event) {
    const { app } = this, width = app.view.to - app.view.from;
    const actions = { ArrowLeft: () => app.pan(-width / 10), ArrowRight: () => app.pan(width / 10), PageUp: () => app.pan(-width), PageDown: () => app.pan(width),
                      Home: () => app.pan(-Infinity), End: () => app.pan(Infinity), "+": () => app.zoom(0.5), "=": () => app.zoom(0.5),
                      "-": () => app.zoom(2), ArrowUp: () => app.zoom(0.5), ArrowDown: () => app.zoom(2), "0": () => app.zoomAll(), Escape: () => app.zoomAll() };
    if (event.ctrlKey || event.metaKey || !actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}

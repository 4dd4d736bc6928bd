/* main.js -- the page's state, what changes it, and when what is drawn anew. */

class App {
  constructor(report) {
    this.report = report;
    this.dirtyParts = new Set();
    this.views = new Map(); /* by device: what was made of it */
    this.emphasis = null; /* layer that stands out */
    this.chosen = null; /* stack */
    this.query = "";
    this.matches = null; /* 1 by stack that the query finds */
    this.marked = null;
    this.height = "zero";
    this.chart = new Chart(this);
    this.overview = new Overview(this);
    this.map = new SegmentMap(this);
    this.momentSoon = new Soon(() => this.momentShow(), 30);
    this.tableSoon = new Soon(() => this.tableShow(), 200);
    this.headShow();
    this.listen();
    this.deviceSet(this.deviceFirst());
  }

  /* The device with the highest peak: an idle one has little to say. */
  deviceFirst() {
    const peaks = this.report.devices.map((device) => device.levels.peak_reserved.reserved);
    return peaks.indexOf(Math.max(...peaks));
  }

  /* ---- what is shown ---- */

  deviceSet(index) {
    this.device = this.report.devices[index];
    this.lanes = lanesOf(this.device);
    if (!this.views.has(index)) {
      const timeline = new Timeline(this.device);
      this.views.set(index, { timeline, view: new View(timeline), history: null, moment: this.device.levels.peak.moment, by: null });
    }
    this.kept = this.views.get(index);
    this.timeline = this.kept.timeline;
    this.view = this.kept.view;
    this.history = this.kept.history;
    this.moment = this.kept.moment;
    this.map.unload();
    this.chosen = null;
    byId("device").value = String(index);
    this.layersSet(this.kept.by || this.layersDefault());
    choiceShow("axis", this.timeline.hasTime ? [["entries", "entries"], ["time", "time"]] : [["entries", "entries"]], this.view.axis, (axis) => this.axisSet(axis));
    choiceShow("height", [["zero", "from 0"], ["fit", "fit"]], this.height, (height) => {
      this.height = height;
      this.dirty("chart");
    });
    this.jumpsShow();
    verdictShow(this);
    findingsShow(this);
    accountsShow(this);
    this.dirty("chart");
    setTimeout(() => this.historyRead(), 0); /* the areas are painted first */
  }

  /* By stack where categories say nothing. */
  layersDefault() {
    const { categories, stacks } = this.device.timeline;
    return stacks.length && categories.every((category) => this.report.categories[category] === "unknown") ? "stack" : "category";
  }

  layersSet(by) {
    this.kept.by = by;
    this.layers = by === "stack" ? layersByStack(this.report, this.device, this.timeline.stackMeans()) : layersByCategory(this.report, this.device);
    this.emphasis = null;
    const choices = this.device.timeline.stacks.length ? [["category", "category"], ["stack", "stack"]] : [["category", "category"]];
    choiceShow("by", choices, by, (next) => this.layersSet(next));
    choiceShow("map-colour", [["", by], ["state", "state"]], this.map.colour || "", (next) => {
      this.map.colour = next || null;
      this.dirty("map");
    });
    this.dirty("chart", "moment");
  }

  /* Once for each device, when it is first shown. */
  historyRead() {
    if (!this.kept.history) {
      this.kept.history = new History(this.device);
      this.kept.cursor = new Cursor(this.kept.history);
    }
    this.history = this.kept.history;
    this.cursor = this.kept.cursor;
    notesShow(this);
    this.markedSet();
    this.momentShow();
    this.dirty("chart");
    performance.mark("history read");
    document.documentElement.dataset.ready = "1";
  }

  momentSet(moment, isShown) {
    this.moment = this.kept.moment = clamp(Math.round(moment), 0, this.device.entries);
    if (isShown) {
      const { from } = this.view;
      this.view.show(this.moment);
      if (from !== this.view.from) this.dirty("chart");
    }
    this.sliderShow();
    this.dirty("overlay");
    this.momentSoon.ask();
  }

  /* Everything that speaks of the moment. */
  momentShow() {
    if (!this.history) return;
    this.sums = this.cursor.seek(this.moment).sums(this.report);
    if (this.device.segments_cut) this.sums.reserved = this.timeline.base.reserved[Math.floor(this.moment / this.timeline.base.moments)];
    this.map.load(this.cursor);
    legendShow(this);
    compositionShow(this);
    this.blockShow();
    this.sliderShow();
    const free = this.map.segments.reduce((all, segment) => all + segment.bytes - segment.held, 0);
    byId("map-status").textContent = `${manyText(this.map.segments.length, "segment")}; ${sizeText(free)} free in them.${this.sums.active > this.sums.allocated ? " Hatched: freed, still pending." : ""}`;
    this.detailsShow();
    this.dirty("map");
  }

  /* The tables that are open. */
  detailsShow() {
    if (!this.history || !this.map.segments) return;
    if (byId("segment-details").open) fill("segment-table", segmentTable(this));
    if (byId("around-details").open) fill("around", aroundTable(this));
  }

  blockShow() { fill("block", blockWords(this)); }
  tableShow() { if (byId("table-details").open) fill("table", viewTable(this)); }

  cellShow(cell) {
    this.map.select(cell);
    this.map.reveal();
  }

  /* ---- stacks that stand out ---- */

  markedSet() {
    let stacks = this.matches;
    if (this.chosen !== null) {
      stacks = new Uint8Array(this.report.stacks.count);
      stacks[this.chosen] = 1;
    }
    this.marked = stacks && this.history ? new Marked(this.history, this.timeline, stacks) : null;
    this.dirty("chart", "map");
  }

  stackChoose(stack) {
    this.chosen = this.chosen === stack ? null : stack;
    this.markedSet();
    compositionShow(this);
    const again = document.querySelector(`[data-stack="${Number(stack)}"]`); /* the table is new, the focus stays */
    if (again) again.focus();
  }

  search(query) {
    this.query = query.trim();
    this.chosen = null;
    this.matches = this.query ? this.report.stacks.matching(this.query) : null;
    this.markedSet();
    if (this.history) compositionShow(this);
  }

  stackColour(stack) {
    if (this.layers.by !== "stack") return colours.quiet;
    const layer = this.layers.stacks.indexOf(stack);
    return layer < 0 ? OTHER_COLOUR : this.layers.colours[layer];
  }

  emphasisSet(layer) {
    this.emphasis = this.emphasis === layer ? null : layer;
    for (const button of document.querySelectorAll(".legend-row")) button.setAttribute("aria-pressed", "false");
    const rows = [...document.querySelectorAll(".legend-row")].reverse();
    if (this.emphasis !== null && rows[layer]) rows[layer].setAttribute("aria-pressed", "true");
    this.dirty("chart");
  }

  findingShow(finding) {
    if (finding.stack !== null) {
      this.chosen = finding.stack;
      this.markedSet();
    }
    if (finding.moment !== null) this.momentSet(finding.moment, true);
    this.momentShow();
    const address = finding.addr === null ? null : parseInt(finding.addr, 16);
    if (address !== null) {
      this.map.selected = address;
      this.map.reveal();
      this.blockShow();
      this.dirty("map");
    }
    const target = finding.moment !== null ? byId("timeline") : address !== null ? byId("map-handle") : byId("search");
    target.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    target.focus({ preventScroll: true });
  }

  /* ---- the range ---- */

  zoom(factor, around) {
    const at = this.view.place(this.moment), isSeen = at >= this.view.from && at <= this.view.to;
    this.view.zoom(factor, around !== undefined ? around : isSeen ? at : (this.view.from + this.view.to) / 2);
    this.dirty("chart");
  }

  zoomAll() {
    this.view.all();
    this.dirty("chart");
  }

  pan(by) {
    this.view.pan(clamp(by, -this.view.full, this.view.full));
    this.dirty("chart");
  }

  axisSet(axis) {
    this.view.axisSet(axis);
    this.dirty("chart");
  }

  /* ---- words ---- */

  momentText(moment) {
    const time = this.timeline.hasTime ? `, ${timeText(this.timeline.timeOf(moment), this.timeline.base.moments > 1 ? 100 : 1)}` : "";
    return `entry ${countText(moment)}${time}`;
  }

  rangeText() {
    const first = Math.floor(this.view.first), last = Math.min(Math.ceil(this.view.last), this.device.entries);
    return `Entries ${countText(first)} to ${countText(last)} of ${countText(this.device.entries)}`;
  }

  sliderShow() {
    const handle = byId("timeline"), { sums } = this;
    handle.setAttribute("aria-valuemin", "0");
    handle.setAttribute("aria-valuemax", String(this.device.entries));
    handle.setAttribute("aria-valuenow", String(this.moment));
    const i = this.chart.columns ? this.chart.columnAt(this.view.place(this.moment)) : -1;
    const bytes = sums && this.history && this.cursor.moment === this.moment ? sums.allocated : i >= 0 ? this.chart.columns.total[i] : this.device.levels.peak.allocated;
    handle.setAttribute("aria-valuetext", `${this.momentText(this.moment)}: ${sizeText(bytes)} allocated${i >= 0 ? `, ${sizeText(this.chart.columns.reserved[i])} reserved` : ""}`);
  }

  headShow() {
    const { report } = this;
    byId("name").textContent = report.name;
    if (report.name) document.title = `${report.name} – Tonnage`;
    fill("facts", report.facts.map(([name, value]) => h("span", {}, name, " ", h("bdi", {}, value))));
    byId("device-label").hidden = report.devices.length < 2;
    fill("device", report.devices.map((device, i) => h("option", { value: i }, `${device.host ? "pinned host memory" : `GPU ${device.index}`}, peak ${sizeText(device.levels.peak.allocated)}`)));
  }

  jumpsShow() {
    const { device } = this, jumps = [["Peak", device.levels.peak.moment]];
    if (device.levels.peak_reserved.moment !== device.levels.peak.moment) jumps.push(["Reserved peak", device.levels.peak_reserved.moment]);
    if (device.ooms.length) jumps.push([device.ooms.length > 1 ? "Last OOM" : "OOM", device.ooms[device.ooms.length - 1].moment]);
    jumps.push(["End", device.entries]);
    fill("jumps", jumps.map(([name, moment]) => h("button", { type: "button", onclick: () => this.momentSet(moment, true) }, name)));
  }

  /* ---- drawing ---- */

  dirty(...parts) {
    for (const part of parts) this.dirtyParts.add(part);
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    const parts = this.dirtyParts;
    this.dirtyParts = new Set();
    if (parts.has("chart")) {
      this.chart.draw();
      this.overview.draw();
      this.statusShow();
      this.sliderShow();
      this.tableSoon.ask();
      if (!document.documentElement.dataset.drawn) performance.mark("areas drawn");
      document.documentElement.dataset.drawn = "1";
    } else if (parts.has("overlay")) this.chart.overlayDraw();
    if (parts.has("moment")) this.momentSoon.ask();
    if (parts.has("map") && this.map.segments) this.map.draw();
  }

  statusShow() {
    const { columns } = this.chart;
    const how = columns.exact && columns.moments === 1 ? "every entry" : `each column is the highest moment of ${countText(columns.moments)} entries`;
    const fit = this.height === "fit" ? " The axis begins at what all columns have: an area is what lies above its own lowest here." : "";
    byId("timeline-status").textContent = `${this.rangeText()}; ${how}.${fit}`;
  }

  listen() {
    byId("device").addEventListener("change", (event) => this.deviceSet(Number(event.target.value)));
    byId("zoom-in").addEventListener("click", () => this.zoom(0.5));
    byId("zoom-out").addEventListener("click", () => this.zoom(2));
    byId("zoom-all").addEventListener("click", () => this.zoomAll());
    byId("map-in").addEventListener("click", () => this.mapZoom(1.6));
    byId("map-out").addEventListener("click", () => this.mapZoom(1 / 1.6));
    byId("table-details").addEventListener("toggle", () => this.tableShow());
    for (const id of ["segment-details", "around-details"]) byId(id).addEventListener("toggle", () => this.detailsShow());
    const searchSoon = new Soon(() => this.search(byId("search").value), 120);
    byId("search").addEventListener("input", () => searchSoon.ask());
    byId("search").addEventListener("keydown", (event) => {
      if (event.key === "Escape") event.target.value = "";
      if (event.key === "Escape" || event.key === "Enter") this.search(event.target.value);
    });
    new ResizeObserver(() => this.dirty("chart", "map")).observe(byId("main"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.themeShow());
    byId("theme").addEventListener("change", (event) => {
      document.documentElement.dataset.theme = event.target.value;
      this.themeShow();
    });
  }

  mapZoom(factor) {
    this.map.zoom = clamp(this.map.zoom * factor, 0.3, 60);
    if (this.map.segments) this.map.place();
    this.dirty("map");
  }

  themeShow() {
    coloursRead();
    this.dirty("chart", "map", "moment");
  }
}

/* Runs once, a little after the last time it was asked for. */
class Soon {
  constructor(run, delay) {
    this.run = run;
    this.delay = delay;
  }

  ask() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), this.delay);
  }
}

/* Stretches [begin, end, name, lane]: annotations, below the steps where these were found otherwise. */
function lanesOf(device) {
  const below = device.steps.length && !device.steps_annotated ? 1 : 0;
  const steps = below ? device.steps.map(([begin, end], i) => [begin, end, `step ${i + 1}`, 0]) : [];
  return [...steps, ...device.annotations.map(([begin, end, name, depth]) => [begin, end, name, depth + below])];
}

/* Radio buttons in a fieldset. */
function choiceShow(id, choices, chosen, onchange) {
  const box = byId(id), legend = box.querySelector("legend");
  box.replaceChildren(legend, ...choices.map(([value, text]) => {
    const input = h("input", { type: "radio", name: id, value, onchange: () => onchange(value) });
    input.checked = value === chosen;
    return h("label", {}, input, h("span", {}, text));
  }));
  box.hidden = choices.length < 2;
}

function start() {
  try {
    coloursRead();
    const report = reportFrom(byId("data").textContent);
    byId("main").hidden = false;
    window.tonnage = new App(report);
  } catch (error) {
    byId("failure").hidden = false;
    byId("failure").textContent = `This report cannot be shown: ${error.message}`;
    throw error;
  }
}

start();

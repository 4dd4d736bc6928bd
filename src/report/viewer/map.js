/* map.js -- the segments at one moment: bars of the allocator's memory with their blocks and holes.
 *
 * A cell is a block or a hole; cells tile their segment. Segments flow over rows like words, small ones at a
 * scale of their own, since a large segment is thousands of times a small one. */

const ROW = 15, GAP = 4, HEAD = 22, SMALL_SEGMENT = 2 * 1024 * 1024;
const HOLE = -1;

/* ---- segments and their cells ---------------------------------------------------------------------------------------------- */

/* {segments: [{address, bytes, stream, pool, first, last}], cells: {piece, address, bytes, segment}} of a cursor's state; blocks that
 * lie in no segment have one made for them. Both by address. */
function segmentsAt(cursor) {
  const { pieces } = cursor.history, { state } = cursor;
  const ranges = [], blocks = [];
  for (const piece of pieces.order) {
    if (state[piece] === AWAY) continue;
    if (pieces.kind[piece] === PIECE_BLOCK) blocks.push(piece);
    else rangeAdd(ranges, pieces, piece);
  }
  const builder = new CellBuilder();
  let at = 0;
  for (const range of ranges) {
    for (; at < blocks.length && pieces.address[blocks[at]] < range.address; at++) builder.stray(pieces, blocks[at]);
    builder.open(range);
    for (; at < blocks.length && pieces.address[blocks[at]] < range.address + range.bytes; at++) builder.block(pieces, blocks[at]);
    builder.close();
  }
  for (; at < blocks.length; at++) builder.stray(pieces, blocks[at]);
  return builder.finish();
}

function rangeAdd(ranges, pieces, piece) {
  const last = ranges[ranges.length - 1], address = pieces.address[piece], isMapped = pieces.kind[piece] === PIECE_MAPPED;
  if (isMapped && last && last.isMapped && last.address + last.bytes === address && last.stream === pieces.stream[piece] && last.pool === pieces.pool[piece]) {
    last.bytes += pieces.bytes[piece];
    return;
  }
  ranges.push({ address, bytes: pieces.bytes[piece], stream: pieces.stream[piece], pool: pieces.pool[piece], isMapped });
}

class CellBuilder {
  constructor() {
    this.segments = [];
    this.cells = { piece: [], address: [], bytes: [], segment: [] };
  }

  cell(piece, address, bytes) {
    this.cells.piece.push(piece);
    this.cells.address.push(address);
    this.cells.bytes.push(bytes);
    this.cells.segment.push(this.segments.length);
  }

  open(range) {
    this.segment = { ...range, first: this.cells.piece.length, held: 0, hole: 0 };
    this.now = range.address;
  }

  block(pieces, piece) {
    const address = pieces.address[piece], end = this.segment.address + this.segment.bytes;
    if (address > this.now) this.hole(address);
    const bytes = Math.min(address + pieces.bytes[piece], end) - Math.max(address, this.now);
    if (bytes <= 0) return; /* lies below another one: the file contradicts itself */
    this.cell(piece, this.now, bytes);
    this.segment.held += bytes;
    this.now += bytes;
  }

  hole(end) {
    this.cell(HOLE, this.now, end - this.now);
    this.segment.hole = Math.max(this.segment.hole, end - this.now);
    this.now = end;
  }

  close() {
    const end = this.segment.address + this.segment.bytes;
    if (this.now < end) this.hole(end);
    this.segment.last = this.cells.piece.length;
    this.segments.push(this.segment);
  }

  stray(pieces, piece) {
    this.open({ address: pieces.address[piece], bytes: pieces.bytes[piece], stream: pieces.stream[piece], pool: pieces.pool[piece], isStray: true });
    this.block(pieces, piece);
    this.close();
  }

  finish() { return { segments: this.segments, cells: this.cells }; }
}

/* ---- where they go --------------------------------------------------------------------------------------------------------- */

function groupsOf(segments) {
  const groups = new Map();
  segments.forEach((segment, i) => {
    const isSmall = !segment.isMapped && segment.bytes <= SMALL_SEGMENT;
    const key = [segment.isStray ? 1 : 0, segment.pool, segment.stream, isSmall ? 1 : 0].join(" ");
    if (!groups.has(key)) groups.set(key, { pool: segment.pool, stream: segment.stream, isSmall, isStray: segment.isStray, list: [], bytes: 0, held: 0 });
    const group = groups.get(key);
    group.list.push(i);
    group.bytes += segment.bytes;
    group.held += segment.held;
  });
  return [...groups.values()].sort((a, b) => (a.isStray ? 1 : 0) - (b.isStray ? 1 : 0) || b.bytes - a.bytes);
}

/* {heads: [{y, group}], runs: [{x, y, w, segment, from, to}], height}: a run is a stretch [from, to) of a segment's bytes on one row. */
function mapLayout(groups, segments, width, zoom) {
  const out = { heads: [], runs: [], height: 0 };
  const sum = (isSmall) => groups.reduce((all, group) => all + (group.isSmall === isSmall ? group.bytes : 0), 0);
  const scales = { large: (zoom * width * 16) / sum(false), small: zoom * Math.min((width * 4) / sum(true), 48 / SMALL_SEGMENT) }; /* so many rows */
  for (const group of groups) {
    out.heads.push({ y: out.height, group });
    let x = 0, y = out.height + HEAD;
    const scale = group.isSmall ? scales.small : scales.large;
    for (const i of group.list) {
      const segment = segments[i];
      let from = 0, left = Math.max(5, segment.bytes * scale);
      const perPixel = segment.bytes / left;
      if (x > 0 && x + Math.min(left, width) > width) [x, y] = [0, y + ROW + GAP];
      while (left > 0) {
        const w = Math.min(left, width - x), to = left - w < 0.01 ? segment.bytes : from + w * perPixel;
        out.runs.push({ x, y, w, segment: i, from, to });
        left -= w;
        from = to;
        x += w + 3;
        if (left > 0.01 || x >= width - 4) [x, y] = [0, y + ROW + GAP];
        else left = 0;
      }
    }
    out.height = y + (x > 0 ? ROW + GAP : 0) + 6;
  }
  return out;
}

/* ---- the map --------------------------------------------------------------------------------------------------------------- */

class SegmentMap {
  constructor(app) {
    this.app = app;
    this.canvas = byId("map-canvas");
    this.scroll = byId("map-scroll");
    this.handle = byId("map-handle");
    this.zoom = 1;
    this.colour = null; /* null: as the areas */
    this.selected = null; /* address: the moment changes, the place stays */
    this.hover = -1;
    this.scroll.addEventListener("scroll", () => app.dirty("map"));
    const shown = (act) => (event) => this.segments && act(event);
    this.handle.addEventListener("pointermove", shown((event) => this.point(event)));
    this.handle.addEventListener("pointerleave", shown(() => this.hoverSet(-1)));
    this.handle.addEventListener("click", shown((event) => this.select(this.cellAt(event))));
    this.handle.addEventListener("keydown", shown((event) => this.key(event)));
  }

  /* Until the next load() there is nothing to draw or to point at: another device's history is still to be read. */
  unload() {
    this.segments = this.selected = null;
    this.hover = -1;
  }

  /* For a new moment. */
  load(cursor) {
    this.state = cursor.state;
    Object.assign(this, segmentsAt(cursor));
    this.groups = groupsOf(this.segments);
    this.groups.forEach((group) => group.list.sort((a, b) => this.segments[b].bytes - this.segments[a].bytes || this.segments[a].address - this.segments[b].address));
    this.ranked = this.groups.flatMap((group) => group.list); /* segments in the order shown */
    this.hover = -1;
    this.place();
  }

  place() {
    this.width = Math.max(160, this.scroll.clientWidth - 4);
    this.layout = mapLayout(this.groups, this.segments, this.width, this.zoom);
    byId("map").style.height = this.layout.height + "px";
  }

  get selectedCell() { return this.selected === null ? -1 : this.cellOf(this.selected); }

  /* The cell at an address; -1: none. */
  cellOf(address) {
    const { cells } = this, at = upperBound(cells.address, address) - 1;
    return at >= 0 && address < cells.address[at] + cells.bytes[at] ? at : -1;
  }

  /* ---- drawing ---- */

  draw() {
    const height = this.scroll.clientHeight, top = this.scroll.scrollTop;
    if (Math.abs(this.scroll.clientWidth - 4 - this.width) > 1) this.place();
    const context = canvasFit(this.canvas, this.width + 4, Math.min(height, Math.max(this.layout.height, 40)));
    context.translate(2, -top);
    this.prepare(context);
    for (const head of this.layout.heads) if (head.y + HEAD > top && head.y < top + height) this.headDraw(context, head);
    for (const run of this.layout.runs) if (run.y + ROW > top && run.y < top + height) this.runDraw(context, run);
    for (const [cell, colour] of [[this.hover, colours.quiet], [this.selectedCell, colours.accent]]) if (cell >= 0) this.outlineDraw(context, cell, colour);
  }

  prepare(context) {
    const { app } = this, { layers, history } = app;
    this.layersOf = layersOfPieces(history, layers);
    this.hatch = this.hatch || hatchMake(context);
    this.marks = app.marked ? app.marked.pieces : null;
    this.pieces = history.pieces;
  }

  headDraw(context, { y, group }) {
    const { report } = this.app;
    const free = group.bytes - group.held, pool = report.pools[group.pool], stream = report.streams[group.stream];
    const names = [group.isStray ? "in no known segment" : group.isSmall ? "small segments" : "segments"];
    if (pool && pool !== "(0, 0)") names.unshift(`pool ${pool}`);
    names.unshift(stream === undefined || stream === "0" ? "default stream" : `stream 0x${stream}`);
    context.fillStyle = colours.quiet;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.font = "12px system-ui, sans-serif";
    context.fillText(`${names.join(", ")}: ${sizeText(group.bytes)} in ${countText(group.list.length)}, ${sizeText(free)} free`, 0, y + HEAD / 2 + 1, this.width);
  }

  colourOf(piece) {
    if (this.colour === "state") return STATE_COLOURS[this.state[piece] === PENDING ? 1 : 0];
    return this.app.layers.colours[this.layersOf[piece]];
  }

  runDraw(context, run) {
    const segment = this.segments[run.segment], { cells } = this, scale = run.w / (run.to - run.from), start = segment.address + run.from;
    context.fillStyle = colours.free;
    context.fillRect(run.x, run.y, run.w, ROW);
    let at = segment.first;
    if (run.from > 0) at = Math.max(segment.first, upperBound(cells.address, start, segment.first, segment.last) - 1);
    let painted = -1;
    for (; at < segment.last && cells.address[at] < segment.address + run.to; at++) {
      const piece = cells.piece[at];
      const left = Math.max(run.x, run.x + (cells.address[at] - start) * scale), right = Math.min(run.x + run.w, run.x + (cells.address[at] + cells.bytes[at] - start) * scale);
      if (piece === HOLE || right <= painted) continue; /* within a pixel that is painted */
      const width = Math.max(right - left - (right - left > 3 ? 0.75 : 0), 0.75);
      painted = left + width;
      context.globalAlpha = this.marks && !this.marks[piece] ? 0.22 : 1;
      context.fillStyle = this.colourOf(piece);
      context.fillRect(left, run.y, width, ROW);
      if (this.state[piece] === PENDING) {
        context.fillStyle = this.hatch;
        context.fillRect(left, run.y, width, ROW);
      }
    }
    context.globalAlpha = 1;
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.strokeRect(run.x + 0.5, run.y + 0.5, Math.max(run.w - 1, 1), ROW - 1);
  }

  /* Where a cell is drawn; a cell may go over several rows. */
  boxesOf(cell) {
    const segment = this.cells.segment[cell], begin = this.cells.address[cell] - this.segments[segment].address, end = begin + this.cells.bytes[cell];
    const out = [];
    for (const run of this.layout.runs) {
      if (run.segment !== segment || run.to <= begin || run.from >= end) continue;
      const scale = run.w / (run.to - run.from), left = run.x + Math.max(0, begin - run.from) * scale;
      out.push([left, run.y, Math.max((Math.min(end, run.to) - Math.max(begin, run.from)) * scale, 1)]);
    }
    return out;
  }

  outlineDraw(context, cell, colour) {
    for (const [x, y, w] of this.boxesOf(cell)) {
      context.strokeStyle = colours.surface;
      context.lineWidth = 4;
      context.strokeRect(x - 1.5, y - 1.5, Math.max(w, 2) + 3, ROW + 3);
      context.strokeStyle = colour;
      context.lineWidth = 2;
      context.strokeRect(x - 1.5, y - 1.5, Math.max(w, 2) + 3, ROW + 3);
    }
  }

  /* ---- mouse and keys ---- */

  cellAt(event) {
    const box = this.handle.getBoundingClientRect(), x = event.clientX - box.left - 2, y = event.clientY - box.top;
    const run = this.layout.runs.find((one) => y >= one.y - 1 && y < one.y + ROW + 1 && x >= one.x - 1 && x < one.x + one.w + 1);
    if (!run) return -1;
    const segment = this.segments[run.segment], offset = run.from + (clamp(x - run.x, 0, run.w - 0.001) / run.w) * (run.to - run.from);
    return this.cellOf(segment.address + Math.min(offset, segment.bytes - 1));
  }

  point(event) { this.hoverSet(this.cellAt(event)); }

  hoverSet(cell) {
    if (cell === this.hover) return;
    this.hover = cell;
    this.handle.title = cell < 0 ? "" : this.cellText(cell);
    this.app.dirty("map");
  }

  select(cell) {
    this.selected = cell < 0 ? null : this.cells.address[cell];
    this.app.blockShow();
    this.app.dirty("map");
  }

  reveal() {
    const cell = this.selectedCell, box = cell < 0 ? null : this.boxesOf(cell)[0];
    if (!box) return;
    const y = box[1], { scrollTop, clientHeight } = this.scroll;
    if (y < scrollTop + HEAD || y + ROW > scrollTop + clientHeight) this.scroll.scrollTop = y - clientHeight / 2;
  }

  key(event) {
    const cell = this.selectedCell, rank = cell < 0 ? 0 : this.ranked.indexOf(this.cells.segment[cell]);
    const first = (at) => this.segments[this.ranked[clamp(at, 0, this.ranked.length - 1)]].first;
    const actions = {
      ArrowRight: () => (cell < 0 ? first(0) : cell + 1 < this.segments[this.ranked[rank]].last ? cell + 1 : first(rank + 1)),
      ArrowLeft: () => (cell < 0 ? first(0) : cell > this.segments[this.ranked[rank]].first ? cell - 1 : this.segments[this.ranked[Math.max(0, rank - 1)]].last - 1),
      ArrowDown: () => first(cell < 0 ? 0 : rank + 1), ArrowUp: () => first(rank - 1),
      Home: () => first(0), End: () => first(this.ranked.length - 1),
    };
    if (!this.ranked.length || event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    event.preventDefault();
    this.select(actions[event.key]());
    this.reveal();
  }

  /* ---- words ---- */

  cellText(cell) {
    const { cells, pieces } = this, piece = cells.piece[cell], segment = this.segments[cells.segment[cell]];
    const where = `in a segment of ${sizeText(segment.bytes)} at ${addressText(segment.address)}`;
    if (piece === HOLE) return `free, ${sizeText(cells.bytes[cell])} at ${addressText(cells.address[cell])}, ${where}`;
    const state = this.state[piece] === PENDING ? "asked to be freed, pending" : this.app.report.categories[pieces.category[piece]];
    return `block of ${sizeText(pieces.bytes[piece])} at ${addressText(pieces.address[piece])}, ${state}, ${this.app.report.stacks.label(pieces.stack[piece])}, ${where}`;
  }
}

function hatchMake(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.strokeStyle = "rgba(0, 0, 0, 0.55)";
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(-1, 7);
  pen.lineTo(7, -1);
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

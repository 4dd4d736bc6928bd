/* timeline.js -- a device's memory over time at every zoom.
 *
 * The page has buckets (html_timeline.c): each shows its highest moment, whole. Neighbours are joined in pairs by the same rule, so
 * there is a level for every width of the view; below the buckets, columns come from the history itself where it is exact. */

/* A level: count buckets of so many moments each, as columns. */
function levelJoin(level) {
  const count = Math.ceil(level.count / 2);
  const out = { moments: level.moments * 2, count };
  for (const name of ["highest", "low", "reserved", "pending", "total"]) out[name] = new Float64Array(count);
  out.categories = level.categories.map(() => new Float64Array(count));
  out.stacks = level.stacks.map(() => new Float64Array(count));
  for (let i = 0; i < count; i++) {
    const a = 2 * i, b = Math.min(a + 1, level.count - 1), high = level.total[b] > level.total[a] ? b : a;
    out.highest[i] = level.highest[high];
    out.total[i] = level.total[high];
    out.pending[i] = level.pending[high];
    out.low[i] = Math.min(level.low[a], level.low[b]);
    out.reserved[i] = Math.max(level.reserved[a], level.reserved[b]);
    for (let k = 0; k < out.categories.length; k++) out.categories[k][i] = level.categories[k][high];
    for (let k = 0; k < out.stacks.length; k++) out.stacks[k][i] = level.stacks[k][high];
  }
  return out;
}

class Timeline {
  constructor(device) {
    this.entries = device.entries;
    const packed = device.timeline, reader = new Reader(packed.data), count = packed.count;
    const level = { moments: packed.moments, count, total: new Float64Array(count) };
    this.times = reader.column(count);
    level.highest = reader.column(count).map((offset, i) => i * packed.moments + offset);
    for (const name of ["low", "reserved", "pending"]) level[name] = reader.column(count, device.unit);
    level.categories = packed.categories.map(() => reader.column(count, device.unit));
    level.stacks = packed.stacks.map(() => reader.column(count, device.unit));
    for (const column of level.categories) for (let i = 0; i < count; i++) level.total[i] += column[i];
    this.levels = [level];
    this.start = this.times[0];
    this.end = Math.max(device.time_end, this.times[count - 1]);
    this.hasTime = this.end > this.start;
    this.highest = level.reserved.reduce((most, bytes) => Math.max(most, bytes), level.total.reduce((a, b) => Math.max(a, b), 1));
    this.hasPending = level.pending.some((bytes) => bytes > this.highest / 500);
  }

  get base() { return this.levels[0]; }

  /* Averages of the stack columns over time. */
  stackMeans() { return this.base.stacks.map((column) => column.reduce((sum, bytes) => sum + bytes, 0) / column.length); }

  level(at) {
    while (this.levels.length <= at) this.levels.push(levelJoin(this.levels[this.levels.length - 1]));
    return this.levels[at];
  }

  /* ---- the axis: entries or microseconds since the first one ---- */

  timeOf(moment) {
    const at = clamp(moment / this.base.moments, 0, this.base.count), i = Math.min(Math.floor(at), this.base.count - 1);
    const from = this.times[i], to = i + 1 < this.base.count ? this.times[i + 1] : this.end;
    const width = i + 1 < this.base.count ? 1 : Math.max((this.entries - i * this.base.moments) / this.base.moments, 1e-9);
    return from - this.start + (to - from) * clamp((at - i) / width, 0, 1);
  }

  momentOf(time) {
    const i = clamp(upperBound(this.times, time + this.start) - 1, 0, this.base.count - 1);
    const from = this.times[i], to = i + 1 < this.base.count ? this.times[i + 1] : this.end;
    const moments = i + 1 < this.base.count ? this.base.moments : this.entries - i * this.base.moments;
    return i * this.base.moments + (to > from ? clamp((time + this.start - from) / (to - from), 0, 1) * moments : 0);
  }

  /* ---- columns of a view ---- */

  /* Between the moments first and last, at most about width of them: {count, moments, edges, highest, total, low, reserved, pending,
   * layers, exact}. */
  columns(first, last, width, layers, history) {
    const wanted = (last - first) / Math.max(1, width);
    if (wanted < this.base.moments && history && history.isExact(first, last)) return exactColumns(history, first, last, width, layers);
    let at = 0;
    while (this.base.moments * 2 ** at < wanted && this.level(at).count > 1) at++;
    return this.levelColumns(this.level(at), first, last, layers);
  }

  levelColumns(level, first, last, layers) {
    const from = clamp(Math.floor(first / level.moments), 0, level.count - 1);
    const to = clamp(Math.ceil(last / level.moments), from + 1, level.count), count = to - from;
    const edges = new Float64Array(count + 1);
    for (let i = 0; i <= count; i++) edges[i] = Math.min((from + i) * level.moments, this.entries + 1);
    const cut = (column) => column.subarray(from, to);
    const source = layers.by === "category" ? level.categories : level.stacks;
    const out = { count, moments: level.moments, edges, exact: level.moments === 1, total: cut(level.total), highest: cut(level.highest),
                  low: cut(level.low), reserved: cut(level.reserved), pending: cut(level.pending),
                  layers: layers.columns.map((column) => cut(source[column])) };
    if (layers.by === "stack") out.layers.push(restOf(out.total, out.layers));
    return out;
  }
}

function restOf(total, parts) {
  const rest = Float64Array.from(total);
  for (const part of parts) for (let i = 0; i < rest.length; i++) rest[i] -= part[i];
  return rest;
}

/* Columns made of the history's changes, each one moment or, when there are more of them than pixels, a few. */
function exactColumns(history, first, last, width, layers) {
  const from = clamp(Math.floor(first), 0, history.entries), to = clamp(Math.ceil(last), from + 1, history.entries + 1);
  const moments = Math.max(1, Math.ceil((to - from) / Math.max(1, width))), count = Math.ceil((to - from) / moments);
  const out = { count, moments, exact: true, edges: new Float64Array(count + 1), layers: layers.names.map(() => new Float64Array(count)) };
  for (const name of ["highest", "total", "low", "reserved", "pending"]) out[name] = new Float64Array(count);
  for (let i = 0; i <= count; i++) out.edges[i] = Math.min(from + i * moments, to);
  const run = new Running(history, layers, from);
  for (let i = 0; i < count; i++) {
    if (run.moment <= out.edges[i]) run.advance();
    columnPut(out, i, run, out.edges[i], true);
    while (run.moment < out.edges[i + 1]) {
      const moment = run.moment;
      run.advance();
      columnPut(out, i, run, moment, false);
    }
  }
  return out;
}

function columnPut(out, i, run, moment, isFirst) {
  out.low[i] = isFirst ? run.total : Math.min(out.low[i], run.total);
  out.reserved[i] = isFirst ? run.reserved : Math.max(out.reserved[i], run.reserved);
  if (!isFirst && run.total <= out.total[i]) return;
  out.total[i] = run.total;
  out.highest[i] = moment;
  out.pending[i] = run.pending;
  for (let k = 0; k < out.layers.length; k++) out.layers[k][i] = run.layers[k];
}

/* Sums by layer that follow the history forwards. */
class Running {
  constructor(history, layers, from) {
    this.cursor = runningCursor(history).seek(from);
    this.history = history;
    this.of = layersOfPieces(history, layers);
    this.layers = new Float64Array(layers.names.length);
    this.total = this.pending = this.reserved = 0;
    const state = this.cursor.state;
    for (let i = 0; i < state.length; i++) if (state[i]) this.add(i, state[i], 1);
  }

  add(piece, state, sign) {
    const pieces = this.history.pieces, bytes = sign * pieces.bytes[piece];
    if (pieces.kind[piece] !== PIECE_BLOCK) this.reserved += bytes;
    else if (state === PENDING) this.pending += bytes;
    else {
      this.total += bytes;
      this.layers[this.of[piece]] += bytes;
    }
  }

  /* When the next change is; infinite at the end. */
  get moment() { return this.cursor.at < this.history.count ? this.history.moment[this.cursor.at] : Infinity; }

  /* Takes all changes of the next moment. */
  advance() {
    const moment = this.moment, cursor = this.cursor;
    for (; this.moment === moment; cursor.at++) {
      const piece = this.history.piece[cursor.at], before = cursor.state[piece];
      this.history.step(cursor.state, cursor.at);
      if (before) this.add(piece, before, -1);
      if (cursor.state[piece]) this.add(piece, cursor.state[piece], 1);
    }
  }
}

/* One cursor for all columns: views follow one another, so it is seldom far. */
function runningCursor(history) {
  history.running = history.running || new Cursor(history);
  return history.running;
}

function layersOfPieces(history, layers) {
  history.layersOf = history.layersOf || {};
  if (!history.layersOf[layers.by]) {
    const of = new Uint8Array(history.pieces.count);
    for (let i = 0; i < of.length; i++) of[i] = layers.of(history.pieces, i);
    history.layersOf[layers.by] = of;
  }
  return history.layersOf[layers.by];
}

/* ---- the bytes of some stacks over time ------------------------------------------------------------------------------------ */

/* The most that pieces of marked stacks hold, by bucket of the base level; then joined level by level like the timeline. */
class Marked {
  constructor(history, timeline, stacks) {
    const pieces = history.pieces, base = timeline.base, most = new Float64Array(base.count);
    const state = new Uint8Array(pieces.count);
    let bytes = 0, bucket = 0;
    for (let at = 0; at < history.count; at++) {
      const piece = history.piece[at];
      if (pieces.kind[piece] !== PIECE_BLOCK || pieces.stack[piece] < 0 || !stacks[pieces.stack[piece]]) continue;
      const next = Math.floor(history.moment[at] / base.moments);
      for (; bucket < next; ) most[++bucket] = bytes;
      const before = state[piece] === THERE;
      history.step(state, at);
      bytes += ((state[piece] === THERE) - before) * pieces.bytes[piece];
      if (bytes > most[bucket]) most[bucket] = bytes;
    }
    for (; bucket < base.count - 1; ) most[++bucket] = bytes;
    this.moments = base.moments;
    this.levels = [most];
    this.pieces = new Uint8Array(pieces.count);
    for (let i = 0; i < pieces.count; i++) this.pieces[i] = pieces.stack[i] >= 0 && stacks[pieces.stack[i]] ? 1 : 0;
  }

  /* {moments, values} of a level whose buckets are no wider than asked. */
  level(moments) {
    let at = 0;
    while (this.moments * 2 ** (at + 1) <= moments && (this.levels[at + 1] || this.levels[at].length > 1)) {
      if (!this.levels[at + 1]) {
        const from = this.levels[at], to = new Float64Array(Math.ceil(from.length / 2));
        for (let i = 0; i < to.length; i++) to[i] = Math.max(from[2 * i], from[2 * i + 1] || 0);
        this.levels.push(to);
      }
      at++;
    }
    return { moments: this.moments * 2 ** at, values: this.levels[at] };
  }
}

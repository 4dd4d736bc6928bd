/* history.js -- who holds what at any moment. The other side of html_changes.c.
 *
 * A piece is a place in memory and what is there; changes make pieces come and go. A moment m lies after m entries. */

const PIECE_BLOCK = 0, PIECE_SEGMENT = 1, PIECE_MAPPED = 2;
const STACK_BEFORE = -1; /* -2: none recorded */
const AWAY = 0, THERE = 1, PENDING = 2;
const NO_SYMBOL = 0xffffffff;

function piecesFrom(packed, unit) {
  const count = packed.count;
  const pieces = {
    count,
    kind: new Uint8Array(count), category: new Uint8Array(count), address: new Float64Array(count), bytes: new Float64Array(count),
    requested: new Float64Array(count), stack: new Int32Array(count), stream: new Uint32Array(count), pool: new Uint32Array(count),
  };
  const reader = new Reader(packed.data);
  let address = 0;
  for (let i = 0; i < count; i++) {
    const first = reader.varint();
    pieces.kind[i] = first % 4;
    pieces.category[i] = first >> 2;
    address += reader.signed();
    pieces.address[i] = address * unit;
    pieces.bytes[i] = reader.varint() * unit;
    pieces.requested[i] = pieces.bytes[i] - reader.signed();
    pieces.stack[i] = reader.varint() - 2;
    pieces.stream[i] = reader.varint();
    pieces.pool[i] = reader.varint();
  }
  pieces.order = new Uint32Array(count).map((_, i) => i).sort((a, b) => pieces.address[a] - pieces.address[b]);
  return pieces;
}

/* Symbol after symbol; see html_changes.h for the form. */
class Symbols {
  constructor(base64) {
    this.reader = new Reader(base64);
    this.predicted = new Uint32Array(1 << 18).fill(NO_SYMBOL);
    this.before = NO_SYMBOL; /* the last symbol, and the one before it */
    this.earlier = NO_SYMBOL;
    this.number = 0;
    this.hits = 0;
  }

  slot() {
    let hash = Math.imul(this.earlier, 0x9e3779b1) ^ Math.imul(this.before, 0x85ebca77);
    hash ^= hash >>> 15;
    return Math.imul(hash, 0x2c1b3c6d) >>> 14;
  }

  next() {
    const slot = this.slot();
    let symbol;
    let said = this.hits > 0 ? 0 : this.reader.varint();
    if (this.hits === 0 && said === 0) this.hits = this.reader.varint();
    if (this.hits > 0) {
      this.hits--;
      symbol = this.predicted[slot];
    } else {
      said -= 1;
      const kind = said % 4;
      const rest = (said - kind) / 4;
      symbol = (kind === 3 ? rest : this.number + (rest % 2 ? -(rest + 1) / 2 : rest / 2)) * 4 + kind;
      this.predicted[slot] = symbol;
    }
    if (symbol % 4 !== 3) this.number = symbol >>> 2;
    this.earlier = this.before;
    this.before = symbol;
    return symbol;
  }
}

class History {
  constructor(device) {
    this.entries = device.entries;
    this.chunk = device.changes.chunk;
    this.grids = device.changes.grids;
    this.pieces = piecesFrom(device.pieces, device.unit);
    this.changesRead(device.changes);
    this.keyframesMake();
  }

  changesRead(packed) {
    const symbols = new Symbols(packed.data);
    this.piece = new Uint32Array(packed.count);
    this.asks = new Uint8Array(packed.count); /* 1: the piece is asked to be given back, and pending from then on */
    this.moment = new Uint32Array(packed.count); /* from which the change holds, ascending */
    this.count = 0;
    for (let i = 0; i < packed.initial; i++) this.changeAdd(symbols.next(), 0);
    let now = 0, end = 0, grid = 0, chunk = 0, isFree = false;
    for (let i = packed.initial; i < packed.count; i++) {
      if (now >= end) {
        grid = this.grids[chunk];
        end = Math.min(++chunk * this.chunk, this.entries);
      }
      const symbol = symbols.next();
      const kind = symbol % 4;
      if (kind === 3) {
        isFree = symbol === 3;
        now += symbol >>> 2;
      } else if (grid > 0) {
        this.changeAdd(symbol, Math.min(now + (1 << grid), end));
      } else {
        this.changeAdd(symbol, now + 1);
        now += isFree ? 0 : kind === 2 ? 2 : 1;
        isFree = false;
      }
    }
  }

  changeAdd(symbol, moment) {
    this.piece[this.count] = symbol >>> 2;
    this.asks[this.count] = symbol % 4 === 1 ? 1 : 0;
    this.moment[this.count++] = moment;
  }

  /* What is there after every so many changes, so that no moment is far from a known one. */
  keyframesMake() {
    this.distance = Math.max(16384, this.pieces.count >> 2);
    this.keyframes = [];
    const state = new Uint8Array(this.pieces.count);
    for (let at = 0; at < this.count; at++) {
      if (at % this.distance === 0) this.keyframes.push(this.keyframeOf(state));
      this.step(state, at);
    }
    if (this.keyframes.length === 0) this.keyframes.push(new Uint32Array(0));
  }

  keyframeOf(state) {
    let count = 0;
    for (let i = 0; i < state.length; i++) if (state[i]) count++;
    const out = new Uint32Array(count);
    count = 0;
    for (let i = 0; i < state.length; i++) if (state[i]) out[count++] = i * 2 + (state[i] === PENDING ? 1 : 0);
    return out;
  }

  step(state, at) {
    const piece = this.piece[at];
    state[piece] = this.asks[at] ? PENDING : state[piece] ? AWAY : THERE;
  }

  /* Is every entry of these moments kept? */
  isExact(first, last) {
    const from = Math.max(0, Math.floor((first - 1) / this.chunk)), to = Math.floor(Math.max(0, last - 1) / this.chunk);
    for (let chunk = from; chunk <= to && chunk < this.grids.length; chunk++) if (this.grids[chunk]) return false;
    return true;
  }

  /* The kept moment at or before this one. */
  keptMoment(moment) {
    if (moment === 0) return 0;
    const chunk = Math.floor((moment - 1) / this.chunk), grid = this.grids[chunk] || 0;
    if (grid === 0) return moment;
    const end = Math.min((chunk + 1) * this.chunk, this.entries);
    if (moment === end) return moment;
    return Math.max(chunk * this.chunk, Math.floor(moment / (1 << grid)) * (1 << grid));
  }
}

/* The state of all pieces at a moment that can be moved. */
class Cursor {
  constructor(history) {
    this.history = history;
    this.state = new Uint8Array(history.pieces.count);
    this.at = 0; /* changes taken */
  }

  seek(moment) {
    const history = this.history;
    const target = upperBound(history.moment, moment, 0, history.count);
    if (target < this.at || target - this.at > history.distance) {
      const frame = Math.min(Math.floor(target / history.distance), history.keyframes.length - 1);
      this.state.fill(AWAY);
      for (const live of history.keyframes[frame]) this.state[live >>> 1] = live & 1 ? PENDING : THERE;
      this.at = frame * history.distance;
    }
    for (; this.at < target; this.at++) history.step(this.state, this.at);
    return this;
  }

  /* What the pieces that are there add up to. */
  sums(report) {
    const pieces = this.history.pieces, state = this.state;
    const out = { byCategory: new Float64Array(report.categories.length), byStack: new Map(), blocks: 0, segments: 0,
                  requested: 0, allocated: 0, active: 0, reserved: 0 };
    for (let i = 0; i < state.length; i++) {
      if (state[i] === AWAY) continue;
      const bytes = pieces.bytes[i];
      if (pieces.kind[i] !== PIECE_BLOCK) {
        out.reserved += bytes;
        out.segments++;
        continue;
      }
      out.active += bytes;
      if (state[i] === PENDING) continue;
      out.allocated += bytes;
      out.requested += pieces.requested[i];
      out.blocks++;
      out.byCategory[pieces.category[i]] += bytes;
      const row = out.byStack.get(pieces.stack[i]);
      if (row) {
        row.bytes += bytes;
        row.blocks++;
      } else out.byStack.set(pieces.stack[i], { stack: pieces.stack[i], bytes, blocks: 1 });
    }
    return out;
  }
}

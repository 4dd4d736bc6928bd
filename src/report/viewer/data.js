/* data.js -- from the page's data to stacks, columns and devices. The other side of html_pack.c, html_stacks.c and html_device.c. */

function bytesFrom(base64) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

class Reader {
  constructor(base64) {
    this.bytes = bytesFrom(base64);
    this.at = 0;
  }

  varint() {
    const bytes = this.bytes;
    let byte = bytes[this.at++];
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    let scale = 0x80; /* beyond 32 bits shifting would lose some */
    do {
      byte = bytes[this.at++];
      value += (byte & 0x7f) * scale;
      scale *= 0x80;
    } while (byte >= 0x80);
    return value;
  }

  signed() {
    const value = this.varint();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }

  column(count, unit = 1) {
    const out = new Float64Array(count);
    let value = 0;
    for (let i = 0; i < count; i++) {
      const difference = this.signed();
      value += difference;
      out[i] = value * unit;
      if (difference !== 0) continue;
      const end = i + this.varint();
      for (; i < end; ) out[++i] = value * unit;
    }
    return out;
  }
}

/* ---- stacks --------------------------------------------------------------------------------------------------------------- */

/* Strings, frames and nodes are numbered from 1; 0 is none. A stack is a node: its frame, and the frames of those above it. */
class Stacks {
  constructor(data) {
    this.strings = ["", ...data.strings];
    const frames = new Reader(data.frames.data);
    [this.functions, this.files, this.lines] = [1, 2, 3].map(() => frames.column(data.frames.count));
    const nodes = new Reader(data.nodes.data);
    [this.parents, this.frames] = [1, 2].map(() => nodes.column(data.nodes.count));
    const stacks = new Reader(data.stacks.data);
    [this.nodes, this.places, this.ops] = [1, 2, 3].map(() => stacks.column(data.stacks.count));
    this.opNames = data.ops;
    this.count = data.stacks.count;
    this.labels = new Array(this.count);
  }

  frame(node) {
    const at = this.frames[node - 1] - 1;
    return { name: this.strings[this.functions[at]], file: this.strings[this.files[at]], line: this.lines[at] };
  }

  /* Innermost first. */
  linesOf(stack) {
    const out = [];
    for (let node = stack < 0 ? 0 : this.nodes[stack]; node > 0; node = this.parents[node - 1]) out.push(this.frame(node));
    return out;
  }

  /* One line for a stack: the place that the analysis chose and the op through which it allocates. Below 0: there is none. */
  label(stack) {
    if (stack < 0) return stack === STACK_BEFORE ? "before the history" : "no stack recorded";
    if (this.labels[stack] === undefined) this.labels[stack] = this.labelMake(this.linesOf(stack), this.places[stack], this.opNames[this.ops[stack]]);
    return this.labels[stack];
  }

  labelMake(lines, place, op) {
    if (!lines.length) return place ? "stack left out to keep the page small" : "stack without frames";
    const { file, line, name } = lines[Math.max(0, place - 1)];
    if (!place) return op || `${fileName(file)}:${line} ${name}`;
    return `${fileName(file)}:${line} ${name}${op && op !== name ? ` › ${op}` : ""}`;
  }

  /* 1 for each stack with the text in a function's or a file's name, whatever its case. */
  matching(text) {
    const wanted = text.toLowerCase();
    const strings = this.strings.map((string) => string.toLowerCase().includes(wanted));
    const out = new Uint8Array(this.count);
    const nodes = new Uint8Array(this.parents.length + 1);
    for (let node = 1; node <= this.parents.length; node++) { /* parents come before their children */
      const at = this.frames[node - 1] - 1;
      nodes[node] = nodes[this.parents[node - 1]] || strings[this.functions[at]] || strings[this.files[at]] ? 1 : 0;
    }
    for (let stack = 0; stack < this.count; stack++) {
      out[stack] = nodes[this.nodes[stack]] || this.label(stack).toLowerCase().includes(wanted) ? 1 : 0;
    }
    return out;
  }
}

/* ---- layers: what the areas are, and the colours of blocks ----------------------------------------------------------------- */

/* {names, colours, of(piece): index} for "category" or "stack". Layers lie from the bottom to the top of the chart. */
function layersByCategory(report, device) {
  const used = device.timeline.categories;
  const order = [...used].sort((a, b) => CATEGORY_ORDER.indexOf(report.categories[a]) - CATEGORY_ORDER.indexOf(report.categories[b]));
  const place = new Map(order.map((category, at) => [category, at]));
  return {
    by: "category",
    names: order.map((category) => report.categories[category]),
    colours: order.map((category) => CATEGORY_COLOURS[report.categories[category]] || OTHER_COLOUR),
    columns: order.map((category) => used.indexOf(category)),
    of: (pieces, piece) => place.get(pieces.category[piece]) ?? 0,
  };
}

/* The stacks that hold most on average lie lowest; the last layer is all others. */
function layersByStack(report, device, means) {
  const used = device.timeline.stacks;
  const order = used.map((stack, at) => at).sort((a, b) => means[b] - means[a]);
  const place = new Map(order.map((at, layer) => [used[at], layer]));
  return {
    by: "stack",
    stacks: [...order.map((at) => used[at]), null],
    names: [...order.map((at) => report.stacks.label(used[at])), "all other stacks"],
    colours: [...order.map((at, layer) => STACK_COLOURS[layer % STACK_COLOURS.length]), OTHER_COLOUR],
    columns: order,
    of: (pieces, piece) => place.get(pieces.stack[piece]) ?? order.length,
  };
}

function reportFrom(text) {
  const report = JSON.parse(text);
  report.stacks = new Stacks(report);
  return report;
}

/* panels.js -- what the page says in words and tables. */

const ROWS_MAX = 40;

const chip = (colour) => h("span", { class: "chip", colour, "aria-hidden": "true" });
const bar = (share, colour) => h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "fill", colour, width: `${clamp(100 * share, 0, 100)}%` }));

/* ---- in short -------------------------------------------------------------------------------------------------------------- */

function verdictShow(app) {
  const { device } = app, { peak, peak_reserved: reserved, end } = device.levels;
  fill("verdict", device.verdict.filter((line) => line).map((line) => h("p", {}, line)));
  const figures = [
    ["Peak allocated", sizeText(peak.allocated), `requested ${sizeText(peak.requested)}`],
    ["Peak reserved", sizeText(reserved.reserved), device.total ? `${shareText(reserved.reserved, device.total)} of ${sizeText(device.total)}` : `${sizeText(reserved.reserved - reserved.allocated)} not allocated then`],
    ["At the end", sizeText(end.allocated), `of ${sizeText(end.reserved)} reserved`],
    ["History", manyText(device.entries, "entry", "entries"), app.timeline.hasTime ? timeText(app.timeline.end - app.timeline.start, app.timeline.end - app.timeline.start < 1e6 ? 1e3 : 1e5) : "times not recorded"],
  ];
  if (device.ooms.length) figures.push(["Out of memory", manyText(device.ooms.length, "time"), `asked for ${sizeText(device.ooms[device.ooms.length - 1].bytes)} at last`]);
  fill("figures", figures.map(([name, value, note]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value), h("span", { class: "quiet" }, note)))));
}

/* ---- findings -------------------------------------------------------------------------------------------------------------- */

function findingsShow(app) {
  const { findings, unchecked } = app.device;
  byId("findings-panel").hidden = findings.length === 0 && unchecked.length === 0;
  fill("findings",
    h("ol", { class: "findings" }, findings.map((finding, i) => findingItem(app, finding, i))),
    unchecked.length ? h("details", {}, h("summary", {}, manyText(unchecked.length, "thing") + " could not be checked"),
      h("ul", {}, unchecked.map(({ what, why }) => h("li", {}, what, ": ", why)))) : null);
}

function findingItem(app, finding, i) {
  const isSomewhere = finding.moment !== null || finding.addr !== null || finding.stack !== null;
  return h("li", { class: "finding " + finding.severity },
    h("div", { class: "finding-head" },
      h("span", { class: "badge " + finding.severity }, `${i + 1} ${finding.severity}`),
      h("code", { class: "code" }, finding.code),
      h("p", { class: "finding-what" }, finding.what),
      isSomewhere ? h("button", { type: "button", onclick: () => app.findingShow(finding), "aria-label": `Show finding ${i + 1}: ${finding.what}` }, "Show") : null),
    finding.fix ? h("p", { class: "fix" }, finding.fix) : null,
    h("details", {}, h("summary", {}, "Evidence", finding.inferred ? " (rests on inferred categories)" : ""),
      h("p", { class: "evidence" }, finding.evidence),
      finding.stack !== null ? stackLines(app, finding.stack) : null));
}

/* ---- stacks ---------------------------------------------------------------------------------------------------------------- */

function stackLines(app, stack) {
  const lines = app.report.stacks.linesOf(stack), place = stack < 0 ? -1 : app.report.stacks.places[stack] - 1;
  if (!lines.length) return h("p", { class: "quiet" }, app.report.stacks.label(stack));
  const list = h("ol", { class: "stack", tabindex: 0, "aria-label": "Stack, innermost frame first" },
    lines.map(({ name, file, line }, i) => h("li", { class: i === place ? "place" : null }, h("bdi", {}, name), " ", h("bdi", { class: "quiet" }, /^\??\??$/.test(file) ? "" : `${file}:${line}`))));
  const chosen = list.querySelector(".place");
  if (chosen) requestAnimationFrame(() => (list.scrollTop = chosen.offsetTop - list.clientHeight / 2)); /* C++ frames come first, a screenful of them */
  return list;
}

/* ---- legend ---------------------------------------------------------------------------------------------------------------- */

function legendShow(app) {
  const { layers, sums } = app, bytes = layerBytes(app);
  const rows = layers.names.map((name, k) => h("li", {},
    h("button", { type: "button", class: bytes[k] > 0 ? "legend-row" : "legend-row quiet", "aria-pressed": String(app.emphasis === k), onclick: () => app.emphasisSet(k), title: name },
      chip(layers.colours[k]), h("bdi", { class: "legend-name" }, name), h("span", { class: "number" }, sizeText(bytes[k])))));
  fill("legend",
    h("p", { class: "moment-short" }, app.momentText(app.moment)),
    h("ul", { class: "legend-list" },
      h("li", { class: "legend-line" }, h("span", { class: "stroke reserved" }), "reserved", h("span", { class: "number" }, sizeText(sums.reserved))),
      app.timeline.hasPending ? h("li", { class: "legend-line" }, h("span", { class: "stroke active" }), "active (with pending frees)", h("span", { class: "number" }, sizeText(sums.active))) : null,
      h("li", { class: "legend-line total" }, h("span", { class: "stroke low" }), "allocated", h("span", { class: "number" }, sizeText(sums.allocated)))),
    h("ul", { class: "legend-list" }, rows.reverse()));
}

/* Bytes of each layer at the moment. */
function layerBytes(app) {
  const { layers, sums, report } = app;
  if (layers.by === "category") return layers.names.map((name) => sums.byCategory[report.categories.indexOf(name)]);
  const named = layers.stacks.map((stack) => (stack === null ? 0 : sums.byStack.get(stack)?.bytes || 0));
  named[named.length - 1] = sums.allocated - named.reduce((all, bytes) => all + bytes, 0);
  return named;
}

/* ---- composition ----------------------------------------------------------------------------------------------------------- */

function compositionShow(app) {
  const { sums } = app;
  fill("moment-line", momentWords(app));
  fill("by-category", categoryTable(app));
  const rows = [...sums.byStack.values()].filter((row) => !app.matches || (row.stack >= 0 && app.matches[row.stack])).sort((a, b) => b.bytes - a.bytes);
  const shown = rows.reduce((all, row) => all + row.bytes, 0);
  fill("by-stack-title", app.matches ? `By stack, with “${app.query}”` : "By stack");
  fill("by-stack", stackTable(app, rows), rows.length > ROWS_MAX ? h("p", { class: "quiet" }, `${countText(rows.length - ROWS_MAX)} further stacks hold ${sizeText(rows.slice(ROWS_MAX).reduce((all, row) => all + row.bytes, 0))}.`) : null);
  byId("search-status").textContent = app.matches ? `${countText(app.matches.reduce((a, b) => a + b, 0))} of ${countText(app.report.stacks.count)} stacks; ${sizeText(shown)} at this moment` : "";
}

function momentWords(app) {
  const { sums, device, history } = app, kept = history.keptMoment(app.moment);
  const words = [`${app.momentText(app.moment)}: ${sizeText(sums.allocated)} allocated in ${manyText(sums.blocks, "block")} (${sizeText(sums.requested)} requested)`];
  if (sums.active > sums.allocated) words.push(`${sizeText(sums.active - sums.allocated)} freed but still pending`);
  if (!device.segments_cut) words.push(`${sizeText(sums.reserved)} reserved`);
  const oom = device.ooms.find((one) => one.moment === app.moment);
  const text = words.join(", ") + "." + (oom ? ` Out of memory here: ${sizeText(oom.bytes)} were asked for, the device had ${sizeText(oom.free)} free.` : "");
  return kept === app.moment ? text : [text, " ", h("em", {}, `This part of the history is thinned out: shown is the nearest moment kept, after entry ${countText(kept)}.`)];
}

/* first(row): what stands in its first cell; more(row): what stands below the row, or null. */
function shareTable(caption, rows, whole, first, more = () => null) {
  return h("table", { class: "shares" }, h("caption", { class: "hidden" }, caption),
    h("thead", { class: "hidden" }, h("tr", {}, ["name", "bytes", "share", "blocks"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((row) => [h("tr", {}, h("th", { scope: "row" }, first(row)), h("td", { class: "number" }, sizeText(row.bytes)),
      h("td", { class: "share" }, bar(row.bytes / whole, row.colour), h("span", { class: "number quiet" }, shareText(row.bytes, whole))),
      row.blocks === undefined ? null : h("td", { class: "number quiet" }, `${countText(row.blocks)} ×`)), moreRow(more(row))])));
}

const moreRow = (content) => content && h("tr", { class: "more" }, h("td", { colspan: 4 }, content));

function categoryTable(app) {
  const { sums, report } = app;
  const rows = report.categories.map((name, i) => ({ name, bytes: sums.byCategory[i], colour: CATEGORY_COLOURS[name] })).filter((row) => row.bytes > 0).sort((a, b) => b.bytes - a.bytes);
  return shareTable("Allocated bytes by category", rows, sums.allocated, (row) => [chip(row.colour), row.name]);
}

function stackTable(app, rows) {
  const list = rows.slice(0, ROWS_MAX).map((row) => ({ ...row, colour: app.stackColour(row.stack) }));
  const isChosen = (row) => app.chosen === row.stack && row.stack >= 0;
  return shareTable("Allocated bytes by stack", list, app.sums.allocated, (row) =>
    h("button", { type: "button", class: "stack-button", "aria-pressed": String(isChosen(row)), "aria-expanded": String(isChosen(row)), disabled: row.stack < 0,
                  "data-stack": row.stack, onclick: () => app.stackChoose(row.stack) }, chip(row.colour), h("bdi", {}, app.report.stacks.label(row.stack))),
    (row) => (isChosen(row) ? stackLines(app, row.stack) : null));
}

/* ---- the block that is selected in the map ---------------------------------------------------------------------------------- */

function blockWords(app) {
  const { map } = app, cell = map.selectedCell;
  if (cell < 0) return [h("p", { class: "quiet" }, "Choose a block or a hole to see what it is.")];
  const { cells, pieces, segments } = map, piece = cells.piece[cell], segment = segments[cells.segment[cell]];
  const facts = [["Address", addressText(cells.address[cell])], ["Segment", `${sizeText(segment.bytes)} at ${addressText(segment.address)}, ${sizeText(segment.bytes - segment.held)} of it free, largest hole ${sizeText(segment.hole)}`]];
  if (piece === HOLE) {
    const beside = [cell - 1, cell + 1].filter((at) => at >= segment.first && at < segment.last).map((at) => app.report.stacks.label(pieces.stack[cells.piece[at]]));
    facts.unshift(["Free", sizeText(cells.bytes[cell])]);
    if (beside.length) facts.push(["Beside it", [...new Set(beside)].join("; ")]);
    return [factList(facts)];
  }
  const state = map.state[piece] === PENDING ? "asked to be freed, pending" : "allocated";
  facts.unshift(["Block", `${sizeText(pieces.bytes[piece])}, ${state}, ${sizeText(pieces.requested[piece])} requested`], ["Category", app.report.categories[pieces.category[piece]]]);
  return [factList(facts), stackLines(app, pieces.stack[piece])];
}

const factList = (facts) => h("dl", { class: "facts-list" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

/* ---- tables in place of pictures ------------------------------------------------------------------------------------------- */

function viewTable(app) {
  const { view, timeline, layers } = app, columns = timeline.columns(view.first, view.last, 48, layers, app.history);
  const head = ["Highest moment", "Allocated", "Lowest", "Reserved", ...layers.names];
  return h("table", { class: "grid" }, h("caption", {}, `${app.rangeText()} in ${manyText(columns.count, "row")}; each row is the highest moment of its stretch.`),
    h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, Array.from({ length: columns.count }, (_, i) => h("tr", {},
      h("th", { scope: "row" }, h("button", { type: "button", onclick: () => app.momentSet(columns.highest[i], true) }, app.momentText(columns.highest[i]))),
      [columns.total[i], columns.low[i], columns.reserved[i], ...columns.layers.map((layer) => layer[i])].map((bytes) => h("td", { class: "number" }, sizeText(bytes)))))));
}

function segmentTable(app) {
  const { map, report } = app, list = [...map.ranked].slice(0, 200);
  return h("table", { class: "grid" }, h("caption", {}, list.length < map.segments.length ? `The first ${list.length} of ${countText(map.segments.length)} segments, as in the map` : manyText(list.length, "segment")),
    h("thead", {}, h("tr", {}, ["Address", "Bytes", "Held by blocks", "Free", "Largest hole", "Blocks and holes", "Stream", "Pool"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, list.map((at) => {
      const segment = map.segments[at];
      return h("tr", {}, h("th", { scope: "row" }, h("button", { type: "button", onclick: () => app.cellShow(segment.first) }, addressText(segment.address))),
        [sizeText(segment.bytes), sizeText(segment.held), sizeText(segment.bytes - segment.held), sizeText(segment.hole), countText(segment.last - segment.first),
         report.streams[segment.stream] ?? "", report.pools[segment.pool] ?? ""].map((text) => h("td", { class: "number" }, text)));
    })));
}

/* The changes before and after the moment, as far as they are kept. */
function aroundTable(app) {
  const { history, report, moment } = app, { pieces } = history, now = upperBound(history.moment, moment, 0, history.count);
  const first = Math.max(0, now - 15), last = Math.min(history.count, now + 10);
  const state = new Cursor(history).seek(first > 0 ? history.moment[first - 1] : 0).state, rows = [];
  const begin = upperBound(history.moment, first > 0 ? history.moment[first - 1] : 0, 0, history.count);
  for (let at = begin; at < last; at++) {
    const piece = history.piece[at], isBlock = pieces.kind[piece] === PIECE_BLOCK, was = state[piece];
    history.step(state, at);
    const what = state[piece] === PENDING ? "free requested" : state[piece] === AWAY ? (isBlock ? "free" : "segment given back") : isBlock ? "alloc" : "segment taken";
    rows.push(h("tr", { class: at === now - 1 ? "now" : null, "aria-current": at === now - 1 ? "true" : null },
      h("th", { scope: "row" }, h("button", { type: "button", onclick: () => app.momentSet(history.moment[at], true) }, countText(history.moment[at]))),
      h("td", {}, what), h("td", { class: "number" }, (was === AWAY ? "+" : "−") + sizeText(pieces.bytes[piece])), h("td", { class: "number" }, addressText(pieces.address[piece])),
      h("td", {}, isBlock ? report.stacks.label(pieces.stack[piece]) : "")));
  }
  return h("table", { class: "grid" }, h("caption", {}, "The moment is the marked row; a row's button goes to it."),
    h("thead", {}, h("tr", {}, ["Entry", "What", "Bytes", "Address", "Stack"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows));
}

/* ---- where reserved memory is, and what is exact ---------------------------------------------------------------------------- */

const PART_COLOURS = ["#4269d0", "#97bbf5", "#efb118", "#9498a0", "#ff725c", "#ff8ab7", "#a463f2", "#9c6b4e"];

function accountsShow(app) {
  const { device, report } = app;
  const isOne = device.accounts[0].moment === device.accounts[1].moment;
  fill("accounts", device.accounts.slice(isOne ? 1 : 0).map((account, i) => {
    const title = isOne ? "At the snapshot, which is the peak of reserved memory" : i ? "At the snapshot" : "At the peak of reserved memory";
    const rows = report.parts.map((name, part) => ({ name, note: report.part_notes[part], bytes: account.parts[part], colour: PART_COLOURS[part] })).filter((row) => row.bytes > 0);
    return h("div", {}, h("h3", {}, title, ` (${sizeText(account.reserved)})`),
      h("div", { class: "stacked", "aria-hidden": "true" }, rows.map((row) => h("span", { colour: row.colour, width: `${(100 * row.bytes) / account.reserved}%` }))),
      shareTable(title, rows, account.reserved, (row) => [chip(row.colour), row.name.replaceAll("_", " "), h("span", { class: "aside quiet" }, row.note)]),
      h("p", { class: "quiet" }, `${manyText(account.segments, "segment")}, ${countText(account.idle_segments)} of them wholly free; the largest free piece that the default pool can give out is ${sizeText(account.largest_hole)}.`),
      h("button", { type: "button", onclick: () => app.momentSet(account.moment, true) }, "Show this moment"));
  }));
}

function notesShow(app) {
  const { device, timeline, report, history } = app, { moments, count } = timeline.base, grid = device.changes.grid;
  const notes = [];
  if (device.entries === 0) notes.push("The file has no history: what is shown is the state at its end.");
  else notes.push(moments === 1 ? `Every one of the ${manyText(device.entries, "entry", "entries")} is in this file.`
    : `The areas are drawn from ${countText(count)} buckets of ${moments} entries. A bucket shows its highest moment whole, so its parts add up and no peak is lost; what was not held throughout it is paler. Wider views join neighbouring buckets by the same rule${timeline.hasTime ? "; times inside a bucket are interpolated" : ""}.`);
  const exact = history.grids.filter((one) => one === 0).length;
  if (moments > 1) notes.push(grid === 0 ? "Closer than a bucket, the areas and the segment map are exact, entry by entry."
    : `The history behind the segment map and the composition is exact in ${countText(exact)} of ${countText(history.grids.length)} stretches of ${countText(history.chunk)} entries: around the peak, failures, findings and the end. Elsewhere it holds the net change of every ${countText(2 ** grid)} entries. The areas and their peaks are exact everywhere.`);
  if (!timeline.hasTime) notes.push("The file has no times; the axis counts entries.");
  if (device.odd) notes.push(`${manyText(device.odd, "contradiction")} between entries, or between them and the final segments.`);
  if (device.segments_cut) notes.push("The expandable segments changed too often to be followed; the map shows their blocks without them.");
  if (report.stacks_left_out) notes.push(`The frames of ${countText(report.stacks_left_out)} stacks were left out to keep the page small.`);
  notes.push("allocated: live blocks, rounded as the allocator does. active: allocated, and freed but still used by a stream. reserved: segments that the caching allocator holds. The CUDA context and other processes come on top of it.");
  notes.push("An entry is what the allocator noted: an allocation, a request to free, a free, a segment taken or given back. A moment lies after its entry.");
  notes.push(`Written by tonnage ${report.version}. The page loads nothing from anywhere.`);
  fill("notes", notes.map((note) => h("li", {}, note)));
}

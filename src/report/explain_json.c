/* explain_json.c -- a snapshot explained to scripts: exact byte counts under stable keys.  See docs/formats.md. */
#include "explain/stacks.h"
#include "report/explain.h"
#include "report/json.h"

typedef struct writer {
  const tn_explain *explain;
  const tn__analysis *a;
  tn_text *out;
} writer;

static void comma(tn_text *out) { tn__text_add(out, ", "); }

/* null where there is none. */
static void index_add(tn_text *out, const char *key, uint32_t value) {
  if (value == TN_NONE || value == TN__GROUP_BEFORE)
    tn__text_printf(out, "\"%s\": null", key);
  else
    tn__json_number(out, key, value);
}

static void level_add(tn_text *out, const tn__level *level) {
  tn__json_number(out, "requested_bytes", level->requested_bytes);
  comma(out);
  tn__json_number(out, "allocated_bytes", level->allocated_bytes);
  comma(out);
  tn__json_number(out, "active_bytes", level->active_bytes);
  comma(out);
  tn__json_number(out, "reserved_bytes", level->reserved_bytes);
}

/* ---- stacks -------------------------------------------------------------------------------------------------------------- */

static void frames_add(const writer *w, uint32_t stack) {
  const tn_trace *trace = w->a->history.trace;
  size_t count = 0;
  const tn_stack *stacks = tn_trace_table(trace, TN_TABLE_STACK, &count);
  const uint32_t *refs = tn_trace_table(trace, TN_TABLE_STACK_FRAME, NULL);
  const tn_frame *frames = tn_trace_table(trace, TN_TABLE_FRAME, NULL);
  tn__text_add(w->out, ", \"frames\": [");
  for (uint32_t k = 0; stack < count && k < stacks[stack].frames_count && k < w->explain->options.stack_depth; k++) {
    const tn_frame *frame = &frames[refs[stacks[stack].frames_at + k]];
    tn__text_add(w->out, k ? ", {" : "{");
    tn__json_string(w->out, "file", tn_trace_string(trace, frame->file));
    comma(w->out);
    tn__json_number(w->out, "line", frame->line);
    comma(w->out);
    tn__json_string(w->out, "function", tn_trace_string(trace, frame->function));
    tn__text_add(w->out, "}");
  }
  tn__text_add(w->out, "]");
}

static void place_add(const writer *w, uint32_t stack) {
  tn_text place;
  tn__text_init(&place);
  tn__explain_place(w->a, stack, &place);
  if (place.failed) w->out->failed = place.failed;
  index_add(w->out, "stack", stack);
  comma(w->out);
  tn__json_string(w->out, "place", tn__text_view(&place));
  if (w->explain->options.stack_depth) frames_add(w, stack);
  tn__text_deinit(&place);
}

/* ---- parts --------------------------------------------------------------------------------------------------------------- */

static void accounting_add(const writer *w, const char *key, const tn__accounting *account) {
  tn__text_printf(w->out, ",\n  \"%s\": {", key);
  tn__json_number(w->out, "moment", account->moment);
  comma(w->out);
  level_add(w->out, &account->level);
  tn__text_add(w->out, ",\n   \"parts\": {");
  for (int part = 0; part < TN__PART_COUNT; part++) {
    if (part) comma(w->out);
    tn__json_number(w->out, tn__part_name(part), account->part[part]);
  }
  tn__text_add(w->out, "},\n   ");
  tn__json_number(w->out, "segments", account->segments);
  comma(w->out);
  tn__json_number(w->out, "idle_segments", account->idle_segments);
  comma(w->out);
  tn__json_number(w->out, "largest_hole_bytes", account->largest_hole_bytes);
  comma(w->out);
  tn__json_number(w->out, "largest_hole_small_bytes", account->largest_hole_small_bytes);
  tn__text_add(w->out, "}");
}

static void composition_add(const writer *w, const char *key, const tn__composition *at) {
  const tn__stack_row *rows = at->rows.data;
  tn__text_printf(w->out, ",\n  \"%s\": {", key);
  tn__json_number(w->out, "moment", at->moment);
  comma(w->out);
  level_add(w->out, &at->level);
  comma(w->out);
  tn__json_number(w->out, "blocks", at->blocks);
  tn__text_add(w->out, ",\n   \"by_category\": {");
  for (int i = 0; i < TN_CATEGORY_COUNT; i++) {
    if (i) comma(w->out);
    tn__json_number(w->out, tn_category_name(i), at->by_category[i]);
  }
  tn__text_add(w->out, "},\n   \"by_stack\": [");
  for (size_t i = 0; i < at->rows.count; i++) {
    tn__text_add(w->out, i ? ",\n    {" : "\n    {");
    tn__json_number(w->out, "bytes", rows[i].bytes);
    comma(w->out);
    tn__json_number(w->out, "blocks", rows[i].blocks);
    comma(w->out);
    tn__json_string(w->out, "category", tn_category_name(rows[i].category));
    comma(w->out);
    place_add(w, rows[i].stack);
    tn__text_add(w->out, "}");
  }
  tn__text_add(w->out, "]}");
}

static void steps_add(const writer *w) {
  const tn__steps *steps = &w->a->steps;
  const tn__step *list = steps->list.data;
  tn__text_add(w->out, ",\n  \"steps\": {");
  tn__json_string(w->out, "found_by", tn__explain_steps_from(w->a));
  comma(w->out);
  tn__json_string(w->out, "marker", tn_trace_string(w->a->history.trace, steps->marker));
  comma(w->out);
  tn__json_number(w->out, "warmup", steps->warmup);
  tn__text_add(w->out, ", \"list\": [");
  for (size_t i = 0; i < steps->list.count; i++) {
    tn__text_add(w->out, i ? ",\n    {" : "\n    {");
    tn__json_number(w->out, "begin", list[i].begin);
    comma(w->out);
    tn__json_number(w->out, "end", list[i].end);
    comma(w->out);
    tn__json_number(w->out, "allocations", list[i].allocs);
    comma(w->out);
    tn__json_number(w->out, "floor_bytes", list[i].floor_bytes);
    comma(w->out);
    tn__json_number(w->out, "peak_bytes", list[i].peak_bytes);
    comma(w->out);
    tn__json_number(w->out, "peak_moment", list[i].peak_moment);
    comma(w->out);
    tn__json_number(w->out, "end_bytes", list[i].end_bytes);
    tn__text_add(w->out, "}");
  }
  tn__text_add(w->out, "]}");
}

static void finding_add(const writer *w, const tn__finding *finding) {
  static const char *const severities[] = {"fault", "waste", "note"};
  tn_text *out = w->out;
  tn__json_string(out, "code", tn__finding_name(finding->code));
  comma(out);
  tn__json_string(out, "severity", severities[finding->severity]);
  comma(out);
  tn__json_number(out, "bytes", finding->bytes);
  comma(out);
  tn__json_number(out, "frees_bytes", finding->frees_bytes);
  comma(out);
  tn__json_string(out, "results", tn__exactness_name(finding->exactness));
  tn__text_printf(out, ", \"inferred\": %s", finding->inferred ? "true" : "false");
  if (finding->missing_bytes) tn__text_printf(out, ", \"missing_bytes\": %llu", (unsigned long long)finding->missing_bytes);
  if (finding->slope_bytes > 0) tn__text_printf(out, ", \"bytes_per_step\": %.0f", finding->slope_bytes);
  tn__text_add(out, ",\n     ");
  tn__json_string(out, "what", tn__explain_string(w->a, finding->what));
  tn__text_add(out, ",\n     ");
  tn__json_string(out, "evidence", tn__explain_string(w->a, finding->evidence));
  tn__text_add(out, ",\n     ");
  tn__json_string(out, "fix", tn__explain_string(w->a, finding->fix));
  tn__text_add(out, ",\n     ");
  index_add(out, "entry", finding->entry);
  comma(out);
  place_add(w, finding->stack);
}

static void findings_add(const writer *w) {
  tn__text_add(w->out, ",\n  \"findings\": [");
  for (size_t i = 0; i < w->a->findings.count; i++) {
    tn__text_add(w->out, i ? ",\n    {" : "\n    {");
    finding_add(w, tn__vec_at(&w->a->findings, i));
    tn__text_add(w->out, "}");
  }
  tn__text_add(w->out, "]");
}

static void pins_add(const writer *w) {
  const tn__pin *pins = w->a->pins.data;
  tn__text_add(w->out, ",\n  \"pins\": [");
  for (size_t i = 0; i < w->a->pins.count; i++) {
    tn__text_add(w->out, i ? ",\n    {" : "\n    {");
    tn__json_number(w->out, "free_bytes", pins[i].free_bytes);
    comma(w->out);
    tn__json_number(w->out, "blocks", pins[i].blocks);
    comma(w->out);
    tn__json_number(w->out, "block_bytes", pins[i].block_bytes);
    comma(w->out);
    place_add(w, pins[i].stack);
    tn__text_add(w->out, "}");
  }
  tn__text_add(w->out, "]");
}

static void unchecked_add(const writer *w) {
  tn__text_add(w->out, ",\n  \"not_checked\": [");
  for (size_t i = 0; i < w->a->unchecked.count; i++) {
    const tn__unchecked *row = tn__vec_at(&w->a->unchecked, i);
    tn__text_add(w->out, i ? ",\n    {" : "\n    {");
    tn__json_string(w->out, "what", tn__explain_string(w->a, row->what));
    comma(w->out);
    tn__json_string(w->out, "why", tn__explain_string(w->a, row->why));
    tn__text_add(w->out, "}");
  }
  tn__text_add(w->out, "]");
}

static void verdict_add(const writer *w) {
  static const char *const keys[] = {"held", "why", "do"};
  tn__text_add(w->out, ",\n  \"verdict\": {");
  for (int line = 0; line < 3; line++) {
    if (line) tn__text_add(w->out, ",\n   ");
    tn__json_string(w->out, keys[line], tn__explain_string(w->a, w->a->verdict[line]));
  }
  tn__text_add(w->out, "}");
}

static void device_add(const writer *w) {
  const tn__analysis *a = w->a;
  tn__json_number(w->out, "device", a->history.device->index);
  tn__text_printf(w->out, ", \"host\": %s, ", a->history.device->flags & TN_DEVICE_HOST ? "true" : "false");
  tn__json_number(w->out, "entries", a->history.entry_count);
  comma(w->out);
  tn__json_number(w->out, "blocks", a->history.spans.count);
  comma(w->out);
  tn__json_number(w->out, "blocks_from_before", a->history.before_count);
  comma(w->out);
  tn__json_number(w->out, "contradictions", a->history.odd_count);
  comma(w->out);
  tn__json_number(w->out, "total_bytes", a->total_bytes);
  comma(w->out);
  tn__json_number(w->out, "waste_bytes", a->waste_bytes);
  verdict_add(w);
  accounting_add(w, "reserved_peak", &a->account_peak);
  accounting_add(w, "snapshot", &a->account_end);
  composition_add(w, "allocated_peak", &a->peak);
  composition_add(w, "allocated_end", &a->end);
  steps_add(w);
  findings_add(w);
  pins_add(w);
  unchecked_add(w);
}

void tn__explain_json(const tn_explain *explain, const char *title, tn_text *out) {
  writer w = {.explain = explain, .out = out};
  const char *schema = tn_trace_meta(explain->trace, "schema");
  tn__text_add(out, "{\"tonnage_explain\": 1, ");
  tn__json_string(out, "file", title);
  comma(out);
  tn__json_string(out, "schema", schema ? schema : "");
  tn__text_add(out, ", \"devices\": [");
  for (size_t i = 0; i < explain->count; i++) {
    w.a = &explain->devices[i];
    tn__text_add(out, i ? ",\n {" : "\n {");
    device_add(&w);
    tn__text_add(out, "}");
  }
  tn__text_add(out, "]}\n");
}

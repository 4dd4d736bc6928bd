/* diff_json.c -- two peaks compared, for scripts.  See docs/formats.md. */
#include "report/diff.h"
#include "report/json.h"

static void pair_add(tn_text *out, uint64_t a, uint64_t b) {
  tn__json_number(out, "a_bytes", a);
  tn__text_add(out, ", ");
  tn__json_number(out, "b_bytes", b);
  tn__text_printf(out, ", \"change_bytes\": %lld", (long long)(b - a));
}

static void side_add(const tn__diff_report *report, int side, tn_text *out) {
  const tn__level *level = &report->diff.level[side];
  tn__text_printf(out, "\n \"%c\": {\"file\": ", 'a' + side);
  tn__text_json(out, report->side[side].title);
  tn__text_printf(out, ", \"kind\": \"%s\", ", report->is_capture[side] ? "capture" : "snapshot");
  if (report->device[side] == TN_NONE)
    tn__text_add(out, "\"device\": null");
  else
    tn__json_number(out, "device", report->device[side]);
  tn__text_add(out, ", ");
  tn__json_number(out, "peak_allocated_bytes", level->allocated_bytes);
  tn__text_add(out, ", ");
  tn__json_number(out, "peak_reserved_bytes", level->reserved_bytes);
  tn__text_add(out, "},");
}

static void categories_add(const tn__diff_report *report, tn_text *out) {
  tn__text_add(out, "\n \"by_category\": {");
  for (int i = 0; i < TN_CATEGORY_COUNT; i++) {
    tn__text_printf(out, "%s\n  \"%s\": {", i ? "," : "", tn_category_name(i));
    pair_add(out, report->diff.by_category[0][i], report->diff.by_category[1][i]);
    tn__text_add(out, "}");
  }
  tn__text_add(out, "}");
}

static void rows_add(const tn__diff_report *report, tn_text *out) {
  tn__text_add(out, ",\n \"by_place\": [");
  for (size_t i = 0; i < report->diff.rows.count; i++) {
    const tn__diff_row *row = tn__vec_at(&report->diff.rows, i);
    tn__text_add(out, i ? ",\n  {" : "\n  {");
    pair_add(out, row->bytes[0], row->bytes[1]);
    tn__text_printf(out, ", \"a_blocks\": %u, \"b_blocks\": %u, \"category\": \"%s\", \"place\": ", row->blocks[0], row->blocks[1],
                    tn_category_name((int)row->category));
    tn__text_json(out, tn__strings_get(&report->diff.texts, row->label));
    tn__text_add(out, "}");
  }
  tn__text_add(out, "]");
}

void tn__diff_json(const tn__diff_report *report, tn_text *out) {
  tn__text_add(out, "{\"tonnage_diff\": 1,");
  for (int side = 0; side < TN__DIFF_SIDES; side++) side_add(report, side, out);
  categories_add(report, out);
  if (report->has_rows) rows_add(report, out);
  tn__text_add(out, "}\n");
}

/* estimate_json.c -- the estimate report for scripts: exact byte counts under stable keys. */
#include "report/estimate.h"
#include "report/json.h"

static void categories_add(tn_text *out, const char *key, const uint64_t *bytes) {
  tn__text_printf(out, "\"%s\": {", key);
  for (int i = 0; i < TN_CATEGORY_COUNT; i++) {
    if (i) tn__text_add(out, ", ");
    tn__json_number(out, tn_category_name(i), bytes[i]);
  }
  tn__text_add(out, "}");
}

static void peak_add(tn_text *out, const tn_peak *peak) {
  tn__json_number(out, "step", peak->step);
  tn__text_add(out, ", ");
  tn__json_number(out, "allocated_bytes", peak->allocated_bytes);
  tn__text_add(out, ", ");
  tn__json_number(out, "requested_bytes", peak->requested_bytes);
  tn__text_add(out, ", ");
  tn__json_number(out, "reserved_bytes", peak->reserved_bytes);
  tn__text_add(out, ", ");
  tn__json_number(out, "device_used_bytes", peak->device_used_bytes);
  tn__text_add(out, ",\n  ");
  categories_add(out, "by_category", peak->by_category);
}

static void verdict_add(const tn__report *report, tn_text *out) {
  static const char *const words[] = {"fits", "fits tightly", "does not fit"};
  tn__text_add(out, " \"verdict\": {");
  tn__json_string(out, "verdict", words[report->verdict]);
  tn__text_add(out, ", ");
  tn__json_string(out, "limit", report->has_budget ? "budget" : "card");
  tn__text_add(out, ", ");
  tn__json_number(out, "limit_bytes", report->limit_bytes);
  tn__text_add(out, ", ");
  tn__json_number(out, "need_bytes", report->need_bytes);
  tn__text_add(out, ", ");
  tn__text_printf(out, "\"spare_bytes\": %lld, ", (long long)(report->limit_bytes - report->need_bytes));
  tn__json_number(out, "retries", report->retries);
  tn__text_add(out, "},\n");
}

static void modules_add(const tn__report *report, tn_text *out) {
  const tn__module_row *rows = TN_VEC(&report->modules, tn__module_row);
  tn__text_add(out, " \"modules\": [");
  for (size_t i = 0; i < report->modules.count; i++) {
    tn__text_add(out, i ? ",\n  {" : "\n  {");
    tn__json_string(out, "module", tn__strings_get(&report->names, rows[i].path));
    tn__text_add(out, ", ");
    tn__json_string(out, "class", tn__strings_get(&report->names, rows[i].class_name));
    tn__text_add(out, ", ");
    tn__json_number(out, "count", rows[i].count);
    tn__text_add(out, ", ");
    tn__json_number(out, "bytes", rows[i].bytes);
    tn__text_add(out, ", ");
    tn__json_number(out, "state_bytes", rows[i].state_bytes);
    tn__text_add(out, ", ");
    tn__json_number(out, "saved_bytes", rows[i].saved_bytes);
    tn__text_add(out, "}");
  }
  tn__text_add(out, "],\n");
}

static void saved_add(const tn__report *report, tn_text *out) {
  const tn__saved_row *rows = TN_VEC(&report->saved, tn__saved_row);
  tn__text_add(out, " \"saved\": [");
  for (size_t i = 0; i < report->saved.count; i++) {
    tn__text_add(out, i ? ",\n  {" : "\n  {");
    tn__json_string(out, "op", tn__strings_get(&report->names, rows[i].op));
    tn__text_add(out, ", ");
    tn__json_string(out, "module", tn__strings_get(&report->names, rows[i].path));
    tn__text_add(out, ", ");
    tn__json_number(out, "count", rows[i].count);
    tn__text_add(out, ", ");
    tn__json_number(out, "bytes", rows[i].bytes);
    tn__text_add(out, "}");
  }
  tn__text_add(out, "]\n");
}

static void meta_add(const tn__report *report, tn_text *out) {
  static const char *const keys[] = {"recipe", "batch_size", "precision", "torch"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    tn__json_string(out, keys[i], tn__report_meta(report, keys[i]));
    tn__text_add(out, ", ");
  }
  tn__json_string(out, "device", report->profile->name);
  tn__text_add(out, ",\n");
}

void tn__report_json(const tn__report *report, tn_text *out) {
  uint32_t op = report->peak.op;
  tn__text_add(out, "{\"tonnage_estimate\": 1, ");
  meta_add(report, out);
  verdict_add(report, out);
  tn__text_add(out, " \"peak\": {");
  peak_add(out, &report->peak);
  tn__text_add(out, ",\n  ");
  categories_add(out, "requested_by_category", report->requested_by_category);
  tn__text_add(out, ",\n  ");
  tn__json_string(out, "phase", tn__report_phase(report, op));
  tn__text_add(out, ", ");
  tn__json_string(out, "op", tn__report_op(report, op));
  tn__text_add(out, ", ");
  tn__json_string(out, "module", tn__report_module(report, op));
  tn__text_add(out, ", ");
  tn__json_number(out, "event", report->peak.event);
  tn__text_add(out, "},\n");
  if (report->step_count > 1) {
    tn__text_add(out, " \"first_step\": {");
    peak_add(out, &report->first);
    tn__text_add(out, "},\n");
  }
  tn__text_add(out, " ");
  tn__json_number(out, "context_bytes", report->profile->context_bytes);
  tn__text_add(out, ", ");
  tn__json_number(out, "persistent_bytes", report->peak.persistent_bytes);
  tn__text_add(out, ",\n");
  modules_add(report, out);
  saved_add(report, out);
  tn__text_add(out, "}\n");
}

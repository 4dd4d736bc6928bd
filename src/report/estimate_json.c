/* estimate_json.c -- the estimate report for scripts: exact byte counts under stable keys. */
#include "report/estimate.h"

static void number_add(tn_text *out, const char *key, uint64_t value) {
  tn__text_printf(out, "\"%s\": %llu", key, (unsigned long long)value);
}

static void string_add(tn_text *out, const char *key, const char *value) {
  tn__text_printf(out, "\"%s\": ", key);
  tn__text_json(out, value);
}

static void categories_add(tn_text *out, const char *key, const uint64_t *bytes) {
  tn__text_printf(out, "\"%s\": {", key);
  for (int i = 0; i < TN_CATEGORY_COUNT; i++) {
    if (i) tn__text_add(out, ", ");
    number_add(out, tn_category_name(i), bytes[i]);
  }
  tn__text_add(out, "}");
}

static void peak_add(tn_text *out, const tn_peak *peak) {
  number_add(out, "step", peak->step);
  tn__text_add(out, ", ");
  number_add(out, "allocated_bytes", peak->allocated_bytes);
  tn__text_add(out, ", ");
  number_add(out, "requested_bytes", peak->requested_bytes);
  tn__text_add(out, ", ");
  number_add(out, "reserved_bytes", peak->reserved_bytes);
  tn__text_add(out, ", ");
  number_add(out, "device_used_bytes", peak->device_used_bytes);
  tn__text_add(out, ",\n  ");
  categories_add(out, "by_category", peak->by_category);
}

static void verdict_add(const tn__report *report, tn_text *out) {
  static const char *const words[] = {"fits", "fits tightly", "does not fit"};
  tn__text_add(out, " \"verdict\": {");
  string_add(out, "verdict", words[report->verdict]);
  tn__text_add(out, ", ");
  string_add(out, "limit", report->has_budget ? "budget" : "card");
  tn__text_add(out, ", ");
  number_add(out, "limit_bytes", report->limit_bytes);
  tn__text_add(out, ", ");
  number_add(out, "need_bytes", report->need_bytes);
  tn__text_add(out, ", ");
  tn__text_printf(out, "\"spare_bytes\": %lld, ", (long long)(report->limit_bytes - report->need_bytes));
  number_add(out, "retries", report->retries);
  tn__text_add(out, "},\n");
}

static void modules_add(const tn__report *report, tn_text *out) {
  const tn__module_row *rows = TN_VEC(&report->modules, tn__module_row);
  tn__text_add(out, " \"modules\": [");
  for (size_t i = 0; i < report->modules.count; i++) {
    tn__text_add(out, i ? ",\n  {" : "\n  {");
    string_add(out, "module", tn__strings_get(&report->names, rows[i].path));
    tn__text_add(out, ", ");
    string_add(out, "class", tn__strings_get(&report->names, rows[i].class_name));
    tn__text_add(out, ", ");
    number_add(out, "count", rows[i].count);
    tn__text_add(out, ", ");
    number_add(out, "bytes", rows[i].bytes);
    tn__text_add(out, ", ");
    number_add(out, "state_bytes", rows[i].state_bytes);
    tn__text_add(out, ", ");
    number_add(out, "saved_bytes", rows[i].saved_bytes);
    tn__text_add(out, "}");
  }
  tn__text_add(out, "],\n");
}

static void saved_add(const tn__report *report, tn_text *out) {
  const tn__saved_row *rows = TN_VEC(&report->saved, tn__saved_row);
  tn__text_add(out, " \"saved\": [");
  for (size_t i = 0; i < report->saved.count; i++) {
    tn__text_add(out, i ? ",\n  {" : "\n  {");
    string_add(out, "op", tn__strings_get(&report->names, rows[i].op));
    tn__text_add(out, ", ");
    string_add(out, "module", tn__strings_get(&report->names, rows[i].path));
    tn__text_add(out, ", ");
    number_add(out, "count", rows[i].count);
    tn__text_add(out, ", ");
    number_add(out, "bytes", rows[i].bytes);
    tn__text_add(out, "}");
  }
  tn__text_add(out, "]\n");
}

static void meta_add(const tn__report *report, tn_text *out) {
  static const char *const keys[] = {"recipe", "batch_size", "precision", "torch"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    string_add(out, keys[i], tn__report_meta(report, keys[i]));
    tn__text_add(out, ", ");
  }
  string_add(out, "device", report->profile->name);
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
  string_add(out, "phase", tn__report_phase(report, op));
  tn__text_add(out, ", ");
  string_add(out, "op", tn__report_op(report, op));
  tn__text_add(out, ", ");
  string_add(out, "module", tn__report_module(report, op));
  tn__text_add(out, ", ");
  number_add(out, "event", report->peak.event);
  tn__text_add(out, "},\n");
  if (report->step_count > 1) {
    tn__text_add(out, " \"first_step\": {");
    peak_add(out, &report->first);
    tn__text_add(out, "},\n");
  }
  tn__text_add(out, " ");
  number_add(out, "context_bytes", report->profile->context_bytes);
  tn__text_add(out, ", ");
  number_add(out, "persistent_bytes", report->peak.persistent_bytes);
  tn__text_add(out, ",\n");
  modules_add(report, out);
  saved_add(report, out);
  tn__text_add(out, "}\n");
}

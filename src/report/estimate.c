/* estimate.c -- gathers what the estimate report says; tn_report_estimate(). */
#include "report/estimate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "plan/estimate.h"
#include "plan/profile.h"

/* ---- small questions to the trace ---------------------------------------------------------------------------------------- */

static const tn_op *op_at(const tn__report *report, uint32_t op) {
  size_t count = 0;
  const tn_op *ops = tn_trace_table(report->trace, TN_TABLE_OP, &count);
  return op < count ? &ops[op] : NULL;
}

static const tn_module *module_at(const tn__report *report, uint32_t module) {
  size_t count = 0;
  const tn_module *modules = tn_trace_table(report->trace, TN_TABLE_MODULE, &count);
  return module < count ? &modules[module] : NULL;
}

static const char *module_path(const tn__report *report, uint32_t module) {
  const tn_module *found = module_at(report, module);
  return found ? tn_trace_string(report->trace, found->name) : "";
}

const char *tn__report_meta(const tn__report *report, const char *key) {
  const char *value = tn_trace_meta(report->trace, key);
  return value ? value : "";
}

const char *tn__report_op(const tn__report *report, uint32_t op) {
  const tn_op *found = op_at(report, op);
  return found ? tn_trace_string(report->trace, found->name) : "";
}

const char *tn__report_module(const tn__report *report, uint32_t op) {
  const tn_op *found = op_at(report, op);
  return found ? module_path(report, found->module) : "";
}

const char *tn__report_class(const tn__report *report, uint32_t op) {
  const tn_op *found = op_at(report, op);
  const tn_module *module = found ? module_at(report, found->module) : NULL;
  return module ? tn_trace_string(report->trace, module->class_name) : "";
}

const char *tn__report_phase(const tn__report *report, uint32_t op) {
  const tn_op *found = op_at(report, op);
  return found ? tn_phase_name(found->phase) : "";
}

/* ---- modules that are copies of one another ------------------------------------------------------------------------------ */

static int is_number(const char *text) {
  if (!*text) return 0;
  for (; *text; text++) {
    if (!isdigit((unsigned char)*text)) return 0;
  }
  return 1;
}

static const char *last_part(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

/* What modules are summed as: where, of which class, how many.  Keys are interned in report->names. */
typedef struct group {
  uint32_t path, class_name, count;
} group;

/* Key of "children of this parent with this class", to count siblings. */
static uint64_t sibling_key(const tn_module *module) { return (uint64_t)module->parent << 32 | module->class_name; }

static int siblings_count(const tn__report *report, tn_map *out) {
  size_t count = 0;
  const tn_module *modules = tn_trace_table(report->trace, TN_TABLE_MODULE, &count);
  for (size_t i = 0; i < count; i++) {
    if (!is_number(last_part(tn_trace_string(report->trace, modules[i].name)))) continue;
    uint32_t before = tn__map_get(out, sibling_key(&modules[i]));
    TN_TRY(tn__map_set(out, sibling_key(&modules[i]), before == TN_NONE ? 1 : before + 1));
  }
  return TN_OK;
}

/* The outermost ancestor (or the module itself) that is one of several like it: "layers.3" of "layers.3.attention.query". */
static uint32_t repeated_ancestor(const tn__report *report, const tn_map *siblings, uint32_t module) {
  uint32_t outermost = TN_NONE;
  for (const tn_module *at; (at = module_at(report, module)); module = at->parent) {
    uint32_t count = tn__map_get(siblings, sibling_key(at));
    if (count != TN_NONE && count > 1 && is_number(last_part(tn_trace_string(report->trace, at->name)))) outermost = module;
  }
  return outermost;
}

/* A module that is not repeated stands for itself, one of "stem.0", "stem.1", unlike each other, for "stem". */
static size_t plain_length(const char *path) {
  size_t parts = 0;
  for (const char *at = path; *at; at++) {
    if (*at != '.') continue;
    if (++parts == 2 || isdigit((unsigned char)at[1])) return (size_t)(at - path);
  }
  return strlen(path);
}

static int group_repeated(tn__report *report, const tn_map *siblings, uint32_t ancestor, group *out) {
  const tn_module *module = module_at(report, ancestor);
  const char *path = tn_trace_string(report->trace, module->name);
  tn_text pattern;
  tn__text_init(&pattern);
  tn__text_add_n(&pattern, path, (size_t)(last_part(path) - path));
  tn__text_add(&pattern, "*");
  const char *class_name = tn_trace_string(report->trace, module->class_name);
  int rc = pattern.failed ? TN_ENOMEM : tn__strings_intern(&report->names, pattern.data, pattern.len, &out->path);
  if (rc == TN_OK) rc = tn__strings_intern(&report->names, class_name, strlen(class_name), &out->class_name);
  out->count = tn__map_get(siblings, sibling_key(module));
  tn__text_deinit(&pattern);
  return rc;
}

static int group_plain(tn__report *report, uint32_t module, group *out) {
  const char *path = module_path(report, module), *class_name = "";
  size_t length = plain_length(path);
  for (const tn_module *at; (at = module_at(report, module)); module = at->parent) {
    if (strlen(tn_trace_string(report->trace, at->name)) > length) continue;
    class_name = tn_trace_string(report->trace, at->class_name);
    break;
  }
  out->count = 1;
  TN_TRY(tn__strings_intern(&report->names, path, length, &out->path));
  return tn__strings_intern(&report->names, class_name, strlen(class_name), &out->class_name);
}

static int group_of(tn__report *report, const tn_map *siblings, uint32_t module, group *out) {
  uint32_t ancestor = repeated_ancestor(report, siblings, module);
  return ancestor == TN_NONE ? group_plain(report, module, out) : group_repeated(report, siblings, ancestor, out);
}

/* "layers.3.attention.query" as "layers.*.attention.query". */
static int path_pattern(tn__report *report, const char *path, uint32_t *out) {
  tn_text pattern;
  tn__text_init(&pattern);
  while (*path) {
    size_t length = strcspn(path, ".");
    int number = length > 0 && strspn(path, "0123456789") == length;
    tn__text_add_n(&pattern, number ? "*" : path, number ? 1 : length);
    path += length;
    if (*path == '.') tn__text_add_n(&pattern, path++, 1);
  }
  int rc = pattern.failed ? TN_ENOMEM : tn__strings_intern(&report->names, tn__text_view(&pattern), pattern.len, out);
  tn__text_deinit(&pattern);
  return rc;
}

/* ---- the tables ---------------------------------------------------------------------------------------------------------- */

/* The row of the table with this key, added when it is not there yet. */
static int row_find(tn_vec *rows, tn_map *index, uint64_t key, void **out) {
  uint32_t at = tn__map_get(index, key);
  if (at == TN_NONE) {
    at = (uint32_t)rows->count;
    TN_TRY(tn__map_set(index, key, at));
    if (!tn__vec_add(rows)) return TN_ENOMEM;
  }
  *out = tn__vec_at(rows, at);
  return TN_OK;
}

static int module_row_add(tn__report *report, tn_map *index, const tn_map *siblings, const tn_block *block, uint64_t bytes) {
  group found = {0};
  TN_TRY(group_of(report, siblings, block->module, &found));
  tn__module_row *row = NULL;
  TN_TRY(row_find(&report->modules, index, (uint64_t)found.path << 32 | found.class_name, (void **)&row));
  row->path = found.path;
  row->class_name = found.class_name;
  row->count = found.count;
  row->bytes += bytes;
  switch (block->category) {
    case TN_CATEGORY_PARAMETER:
    case TN_CATEGORY_GRADIENT:
    case TN_CATEGORY_OPTIMIZER: row->state_bytes += bytes; break;
    case TN_CATEGORY_ACTIVATION: row->saved_bytes += bytes; break;
    default: break;
  }
  return TN_OK;
}

static int saved_row_add(tn__report *report, tn_map *index, const tn_block *block, uint64_t bytes) {
  const char *op = tn__report_op(report, block->op);
  uint32_t op_name, path;
  TN_TRY(tn__strings_intern(&report->names, op, strlen(op), &op_name));
  TN_TRY(path_pattern(report, module_path(report, block->module), &path));
  tn__saved_row *row = NULL;
  TN_TRY(row_find(&report->saved, index, (uint64_t)op_name << 32 | path, (void **)&row));
  row->op = op_name;
  row->path = path;
  row->count++;
  row->bytes += bytes;
  return TN_OK;
}

static int compare(uint64_t a, uint64_t b) { return a < b ? 1 : a > b ? -1 : 0; } /* largest first */

static int module_row_compare(const void *a, const void *b) {
  const tn__module_row *left = a, *right = b;
  int order = compare(left->bytes, right->bytes);
  return order ? order : compare(right->path, left->path); /* interning order: the same input gives the same report */
}

static int saved_row_compare(const void *a, const void *b) {
  const tn__saved_row *left = a, *right = b;
  int order = compare(left->bytes, right->bytes);
  if (!order) order = compare(right->op, left->op);
  return order ? order : compare(right->path, left->path);
}

static int rows_add(tn__report *report, const uint64_t *live, tn_map *module_index, tn_map *saved_index, tn_map *siblings) {
  size_t count = 0;
  const tn_block *blocks = tn_trace_table(report->trace, TN_TABLE_BLOCK, &count);
  TN_TRY(siblings_count(report, siblings));
  for (size_t i = 0; i < count; i++) {
    if (!live[i]) continue;
    report->requested_by_category[blocks[i].category] += blocks[i].bytes;
    TN_TRY(module_row_add(report, module_index, siblings, &blocks[i], live[i]));
    if (blocks[i].category == TN_CATEGORY_ACTIVATION) TN_TRY(saved_row_add(report, saved_index, &blocks[i], live[i]));
  }
  return TN_OK;
}

static int rows_gather(tn__report *report, const uint64_t *live) {
  tn_map module_index, saved_index, siblings;
  tn__map_init(&module_index);
  tn__map_init(&saved_index);
  tn__map_init(&siblings);
  int rc = rows_add(report, live, &module_index, &saved_index, &siblings);
  tn__map_deinit(&module_index);
  tn__map_deinit(&saved_index);
  tn__map_deinit(&siblings);
  TN_TRY(rc);
  if (report->modules.count) qsort(report->modules.data, report->modules.count, sizeof(tn__module_row), module_row_compare);
  if (report->saved.count) qsort(report->saved.data, report->saved.count, sizeof(tn__saved_row), saved_row_compare);
  return TN_OK;
}

static int live_gather(tn__report *report) {
  size_t count = 0;
  tn_trace_table(report->trace, TN_TABLE_BLOCK, &count);
  uint64_t *live = tn__mem_zalloc(count + 1, sizeof *live);
  if (!live) return TN_ENOMEM;
  tn_estimate_options options = {.step = TN_NONE};
  int rc = tn__estimate_live(report->trace, report->profile, &options, report->peak.event, live);
  if (rc == TN_OK) rc = rows_gather(report, live);
  tn__mem_free(live);
  return rc;
}

/* ---- peaks and verdict --------------------------------------------------------------------------------------------------- */

static int peaks_gather(tn__report *report) {
  tn_estimate_options options = {.step = TN_NONE};
  tn_peak all;
  TN_TRY(tn_estimate(report->trace, report->profile, &options, &all));
  report->need_bytes = all.device_used_bytes;
  report->peak = all;
  if (report->step_count == 0) return TN_OK;
  options.step = report->step_count - 1;
  TN_TRY(tn_estimate(report->trace, report->profile, &options, &report->peak));
  options.step = 0;
  TN_TRY(tn_estimate(report->trace, report->profile, &options, &report->first));
  if (report->first.allocated_bytes > report->peak.allocated_bytes) {
    uint64_t persistent = report->peak.persistent_bytes;
    report->peak = report->first;
    report->peak.persistent_bytes = persistent;
  }
  return TN_OK;
}

/* Reserved memory may exceed the limit only on paper: the allocator gives its cache back before it gives up. */
static int verdict_gather(tn__report *report) {
  report->verdict = report->need_bytes <= report->limit_bytes ? TN__FITS : TN__FITS_NOT;
  if (report->verdict == TN__FITS || report->is_host || report->limit_bytes <= report->profile->context_bytes) return TN_OK;
  tn_estimate_options options = {.step = TN_NONE, .limit_bytes = report->limit_bytes - report->profile->context_bytes};
  tn__estimate under_limit;
  TN_TRY(tn__estimate_run(report->trace, report->profile, &options, &under_limit));
  if (under_limit.peak.oom) return TN_OK;
  report->verdict = TN__FITS_TIGHTLY;
  report->retries = under_limit.retries;
  return TN_OK;
}

int tn__report_gather(tn__report *report, const tn_trace *trace, const tn_profile *profile, uint64_t budget_bytes) {
  *report = (tn__report){.trace = trace, .profile = profile, .is_host = tn__profile_is_host(profile)};
  tn__vec_init(&report->modules, sizeof(tn__module_row));
  tn__vec_init(&report->saved, sizeof(tn__saved_row));
  TN_TRY(tn__strings_init(&report->names));
  report->has_budget = budget_bytes != 0;
  report->limit_bytes = budget_bytes ? budget_bytes : profile->total_bytes;
  report->step_count = tn__estimate_step_count(trace);
  TN_TRY(peaks_gather(report));
  TN_TRY(live_gather(report));
  return verdict_gather(report);
}

void tn__report_deinit(tn__report *report) {
  tn__strings_deinit(&report->names);
  tn__vec_deinit(&report->modules);
  tn__vec_deinit(&report->saved);
}

int tn_report_estimate(const tn_trace *trace, const tn_profile *profile, uint64_t budget_bytes, int json, char **out) {
  if (!trace || !profile || !out) return TN_EINVAL;
  tn_text text;
  tn__report report;
  tn__text_init(&text);
  int rc = tn__report_gather(&report, trace, profile, budget_bytes);
  if (rc == TN_OK) {
    (json ? tn__report_json : tn__report_text)(&report, &text);
    rc = tn__text_take(&text, out);
  }
  tn__report_deinit(&report);
  tn__text_deinit(&text);
  return rc;
}

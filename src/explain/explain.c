/* explain.c -- the public side of an analysis: tn_explain_...(). */
#include "explain/explain.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/* ---- which devices ------------------------------------------------------------------------------------------------------- */

static int is_wanted(const tn_device *device, const tn_explain_options *options) {
  if (options->device == TN_NONE) return device->segments_count || device->entries_count;
  return device->index == options->device && !(device->flags & TN_DEVICE_HOST);
}

static int devices_analyse(tn_explain *explain, const tn_device *devices, size_t count) {
  tn__analysis_options options = {.total_bytes = explain->options.total_bytes};
  for (size_t i = 0; i < count; i++) {
    if (!is_wanted(&devices[i], &explain->options)) continue;
    TN_TRY(tn__analysis_init(&explain->devices[explain->count++], explain->trace, i, &options));
  }
  return TN_OK;
}

static int none_found(const tn_explain *explain, const tn_device *devices, size_t count, tn_error *err) {
  if (explain->count || explain->options.device == TN_NONE) return TN_OK;
  char list[160] = "";
  size_t used = 0;
  for (size_t i = 0; i < count && used < sizeof list - 16; i++)
    if (!(devices[i].flags & TN_DEVICE_HOST)) used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", used ? ", " : "", devices[i].index);
  return tn__error_set(err, TN_ENOENT, "the snapshot has no device %u; it has: %s", explain->options.device, used ? list : "none");
}

int tn_explain_new(const tn_trace *trace, const tn_explain_options *options, tn_explain **out, tn_error *err) {
  if (!trace || !out) return tn__error_set(err, TN_EINVAL, NULL);
  size_t count = 0;
  const tn_device *devices = tn_trace_table(trace, TN_TABLE_DEVICE, &count);
  tn_explain *explain = tn__mem_zalloc(1, sizeof *explain);
  if (!explain) return tn__error_set(err, TN_ENOMEM, NULL);
  *explain = (tn_explain){.trace = trace, .options = {.device = TN_NONE}};
  if (options) explain->options = *options;
  explain->devices = tn__mem_zalloc(count + 1, sizeof *explain->devices);
  int rc = explain->devices ? devices_analyse(explain, devices, count) : TN_ENOMEM;
  rc = rc ? tn__error_set(err, rc, NULL) : none_found(explain, devices, count, err);
  if (rc)
    tn_explain_free(explain);
  else
    *out = explain;
  return rc;
}

void tn_explain_free(tn_explain *explain) {
  if (!explain) return;
  for (size_t i = 0; i < explain->count; i++) tn__analysis_deinit(&explain->devices[i]);
  tn__mem_free(explain->devices);
  tn__mem_free(explain);
}

size_t tn_explain_count(const tn_explain *explain) { return explain->count; }

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

static double slope_of(const tn__analysis *a) {
  const tn__finding *findings = a->findings.data;
  double slope = 0;
  for (size_t i = 0; i < a->findings.count; i++) slope += findings[i].slope_bytes;
  return slope;
}

/* Enough steps to see growth: find_growth.c says so when there are not. */
static int growth_is_known(const tn__analysis *a) { return a->steps.list.count >= a->steps.warmup + 4u; }

int tn_explain_get_result(const tn_explain *explain, size_t at, tn_explain_result *out) {
  if (at >= explain->count) return TN_ENOENT;
  const tn__analysis *a = &explain->devices[at];
  tn_explain_result result = {.device = a->history.device->index,
                              .steps = (uint32_t)a->steps.list.count,
                              .entries = a->history.entry_count,
                              .findings = (uint32_t)a->findings.count,
                              .allocated_bytes = a->end.level.allocated_bytes,
                              .reserved_bytes = a->account_end.level.reserved_bytes,
                              .peak_allocated_bytes = a->peak.level.allocated_bytes,
                              .peak_reserved_bytes = a->account_peak.level.reserved_bytes,
                              .waste_bytes = a->waste_bytes,
                              .leak_bytes_per_step = slope_of(a),
                              .growth_is_known = (uint32_t)growth_is_known(a),
                              .is_host = (a->history.device->flags & TN_DEVICE_HOST) != 0};
  memcpy(result.by_category, a->peak.by_category, sizeof result.by_category);
  *out = result;
  return TN_OK;
}

/* ---- gates --------------------------------------------------------------------------------------------------------------- */

static int exceeded(tn_error *err, uint32_t device, const char *what, const char *got, const char *limit, const char *over) {
  return tn__error_set(err, TN_ELIMIT, "device %u: %s %s exceeds %s by %s", device, what, got, limit, over);
}

static int gate_bytes(const tn_explain_result *r, const char *what, uint64_t bytes, uint64_t limit, tn_error *err) {
  char got[32], most[32], over[32];
  if (!limit || bytes <= limit) return TN_OK;
  return exceeded(err, r->device, what, tn_size_format(bytes, got, sizeof got), tn_size_format(limit, most, sizeof most),
                  tn_size_format(bytes - limit, over, sizeof over));
}

static int gate_leak(const tn_explain_result *r, const tn_explain_limits *limits, tn_error *err) {
  if (!limits->leak_is_given) return TN_OK;
  if (!r->growth_is_known)
    return tn__error_set(err, TN_EPARTIAL, "device %u: growth cannot be checked: the history shows %u steps, it takes five", r->device, r->steps);
  uint64_t slope = (uint64_t)(r->leak_bytes_per_step + 0.5);
  if (slope <= limits->leak_bytes_per_step) return TN_OK;
  char got[48], most[48], over[48];
  (void)tn_size_format(slope, got, 32);
  (void)tn_size_format(limits->leak_bytes_per_step, most, 32);
  (void)tn_size_format(slope - limits->leak_bytes_per_step, over, 32);
  strcat(got, "/step");
  strcat(most, "/step");
  strcat(over, "/step");
  return exceeded(err, r->device, "leak of", got, most, over);
}

static int gate_waste(const tn_explain_result *r, const tn_explain_limits *limits, tn_error *err) {
  if (!limits->waste_is_given || !r->peak_reserved_bytes) return TN_OK;
  double percent = 100.0 * (double)r->waste_bytes / (double)r->peak_reserved_bytes;
  if (percent <= limits->waste_percent) return TN_OK;
  char got[32], most[32], over[32];
  (void)snprintf(got, sizeof got, "%.1f %%", percent);
  (void)snprintf(most, sizeof most, "%g %%", limits->waste_percent);
  (void)snprintf(over, sizeof over, "%.1f points", percent - limits->waste_percent);
  return exceeded(err, r->device, "waste of", got, most, over);
}

/* What is exceeded comes before what cannot be checked. */
int tn_explain_check(const tn_explain *explain, const tn_explain_limits *limits, tn_error *err) {
  tn_error unknown = {0};
  for (size_t i = 0; i < explain->count; i++) {
    tn_explain_result r;
    tn_error why = {0};
    TN_TRY(tn_explain_get_result(explain, i, &r));
    TN_TRY(gate_bytes(&r, "reserved memory of", r.peak_reserved_bytes, limits->reserved_bytes, err));
    TN_TRY(gate_waste(&r, limits, err));
    int rc = gate_leak(&r, limits, &why);
    if (rc == TN_EPARTIAL)
      unknown = why;
    else if (rc)
      return tn__error_set(err, rc, "%s", why.msg);
  }
  return unknown.code ? tn__error_set(err, unknown.code, "%s", unknown.msg) : TN_OK;
}

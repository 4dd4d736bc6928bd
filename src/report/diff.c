/* diff.c -- tn_report_diff(): which peaks are compared. */
#include "report/diff.h"

#include "base/error.h"
#include "explain/explain.h"

/* A capture has ops, a snapshot devices; a trace with both counts as the snapshot that was recorded. */
static int is_capture(const tn_trace *trace) {
  size_t devices = 0, ops = 0;
  (void)tn_trace_table(trace, TN_TABLE_DEVICE, &devices);
  (void)tn_trace_table(trace, TN_TABLE_OP, &ops);
  return ops > 0 && devices == 0;
}

static const tn__analysis *highest(const tn_explain *explain) {
  const tn__analysis *found = NULL;
  for (size_t i = 0; i < explain->count; i++) {
    const tn__analysis *a = &explain->devices[i];
    if (!found || a->peak.level.allocated_bytes > found->peak.level.allocated_bytes) found = a;
  }
  return found;
}

static int snapshot_add(tn__diff_report *report, int side, uint32_t device, tn_error *err) {
  tn_explain_options options = {.device = device};
  tn_explain *explain = NULL;
  TN_TRY(tn_explain_new(report->side[side].trace, &options, &explain, err));
  const tn__analysis *a = highest(explain);
  int rc = a ? tn__diff_add_analysis(&report->diff, side, a) : TN_ENOENT;
  if (a) report->device[side] = a->history.device->index;
  if (rc) (void)tn__error_set(err, rc, rc == TN_ENOENT ? "nothing was allocated on any device" : NULL);
  tn_explain_free(explain);
  return rc;
}

static int side_add(tn__diff_report *report, int side, uint32_t device, tn_error *err) {
  const tn_diff_side *from = &report->side[side];
  report->device[side] = TN_NONE;
  report->is_capture[side] = (uint32_t)is_capture(from->trace);
  if (!report->is_capture[side]) return snapshot_add(report, side, device, err);
  if (!from->profile) return tn__error_set(err, TN_EINVAL, "a captured trace needs the profile of its card");
  int rc = tn__diff_add_capture(&report->diff, side, from->trace, from->profile);
  return rc ? tn__error_set(err, rc, NULL) : TN_OK;
}

static int report_fill(tn__diff_report *report, uint32_t device, tn_error *err) {
  for (int side = 0; side < TN__DIFF_SIDES; side++) {
    int rc = side_add(report, side, device, err);
    if (!rc) continue;
    tn_error why = err ? *err : (tn_error){0};
    return tn__error_set(err, rc, "%.110s: %.120s", report->side[side].title, why.msg);
  }
  report->has_rows = report->is_capture[0] == report->is_capture[1];
  int rc = tn__diff_finish(&report->diff);
  return rc ? tn__error_set(err, rc, NULL) : TN_OK;
}

int tn_report_diff(const tn_diff_side *a, const tn_diff_side *b, const tn_diff_options *options, int json, char **out, tn_error *err) {
  if (!a || !b || !a->trace || !b->trace || !a->title || !b->title || !out) return tn__error_set(err, TN_EINVAL, NULL);
  tn__diff_report report = {.side = {*a, *b}, .width = options && options->width ? options->width : 100};
  tn_text text;
  tn__text_init(&text);
  int rc = tn__diff_init(&report.diff);
  rc = rc ? tn__error_set(err, rc, NULL) : report_fill(&report, options ? options->device : TN_NONE, err);
  if (!rc) {
    (json ? tn__diff_json : tn__diff_text)(&report, &text);
    rc = tn__text_take(&text, out);
    if (rc) (void)tn__error_set(err, rc, NULL);
  }
  tn__diff_deinit(&report.diff);
  tn__text_deinit(&text);
  return rc;
}

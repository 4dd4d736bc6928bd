/* cmd_report.c -- tonnage report TRACE: the estimate of a trace that was captured before */
#include "cmd.h"

/* A trace of a device's allocator instead of a step's ops. */
static int is_snapshot(const tn_trace *trace) {
  size_t events = 0, devices = 0;
  (void)tn_trace_table(trace, TN_TABLE_EVENT, &events);
  (void)tn_trace_table(trace, TN_TABLE_DEVICE, &devices);
  return events == 0 && devices > 0;
}

static int load(const char *path, tn_trace **out, tn_error *err) {
  int snapshot = tn_snapshot_is_one(path);
  if (!snapshot) {
    TN_TRY(tn_trace_load(path, out, err));
    snapshot = is_snapshot(*out);
  }
  if (!snapshot) return TN_OK;
  return tn__error_set(err, TN_EINVAL, "%.100s is a memory snapshot, not a captured step; see it with: tonnage explain FILE", path);
}

static int report(const tn_cmd *cmd, const tn_trace *trace, tn_error *err, char **out) {
  const char *device = cmd->options.value[TN_OPTION_DEVICE];
  if (!device) device = tn_trace_meta(trace, "device");
  if (!device || !*device)
    return tn__error_set(err, TN_EINVAL, "%.100s does not say for which device it was captured; add --device NAME",
                         cmd->options.args[0]);
  tn_profile profile;
  TN_TRY(cmd_profile_load(device, &profile, err));
  int rc = tn_report_estimate(trace, &profile, tn__options_size(&cmd->options, TN_OPTION_BUDGET),
                              cmd->options.given[TN_OPTION_JSON], out);
  return rc ? tn__error_set(err, rc, NULL) : TN_OK;
}

int cmd_report(const tn_cmd *cmd) {
  tn_error err = {0};
  tn_trace *trace = NULL;
  char *out = NULL;
  int rc = load(cmd->options.args[0], &trace, &err);
  if (!rc) rc = report(cmd, trace, &err, &out);
  int status = 0;
  if (rc) {
    status = cmd_fail(rc, "%s", err.msg);
  } else {
    tn_text text;
    tn__text_init(&text);
    tn__text_add(&text, out);
    status = cmd_print(&text);
  }
  tn_text_free(out);
  tn_trace_free(trace);
  return status;
}

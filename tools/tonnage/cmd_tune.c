/* cmd_tune.c -- tonnage tune FILE: which allocator settings would serve a recorded run best. */
#include <stdio.h>
#include <unistd.h>

#include "cmd.h"

static void progress(void *user, size_t done, size_t total) {
  (void)user;
  fprintf(stderr, "\r%zu of %zu settings", done, total);
}

static void progress_end(void) { fputs("\r\033[K", stderr); }

static int tune(const tn_cmd *cmd, const tn_trace *trace, tn_tune **out, tn_error *err) {
  tn_tune_options options = {.limit_bytes = tn__options_size(&cmd->options, TN_OPTION_LIMIT)};
  tn_error why = {0};
  TN_TRY(cmd_ordinal(cmd, &options.device, err));
  if (isatty(STDERR_FILENO)) options.progress = progress;
  int rc = tn_tune_new(trace, &options, out, &why);
  if (options.progress) progress_end();
  return rc ? tn__error_set(err, rc, "%.100s: %s", cmd->options.args[0], why.msg) : TN_OK;
}

static int show(const tn_cmd *cmd, const tn_tune *tuned) {
  char *out = NULL;
  tn_text text;
  int rc = tn_report_tune(tuned, cmd->options.given[TN_OPTION_JSON], &out);
  if (rc) return cmd_fail(rc, NULL);
  tn__text_init(&text);
  tn__text_add(&text, out);
  tn_text_free(out);
  int status = cmd_print(&text);
  if (status) return status;
  return tn_tune_rows(tuned, NULL)[0].result.oom_entry != TN_NONE; /* nothing lets the run go through */
}

int cmd_tune(const tn_cmd *cmd) {
  tn_error err = {0};
  tn_trace *trace = NULL;
  tn_tune *tuned = NULL;
  int rc = tn_snapshot_load(cmd->options.args[0], &trace, &err);
  if (!rc) rc = tune(cmd, trace, &tuned, &err);
  int status = rc ? cmd_fail(rc, "%s", err.msg) : show(cmd, tuned);
  tn_tune_free(tuned);
  tn_trace_free(trace);
  return status;
}

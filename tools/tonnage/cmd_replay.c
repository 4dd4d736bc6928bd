/* cmd_replay.c -- tonnage replay FILE: a recorded run through the caching model. */
#include "cmd.h"

/* What is wrong with a file's contents is said of the file. */
static int replay(const tn_cmd *cmd, const tn_trace *trace, tn_replay_result *out, tn_error *err) {
  const char *text = cmd->options.value[TN_OPTION_CONF];
  tn_replay_options options = {.limit_bytes = tn__options_size(&cmd->options, TN_OPTION_LIMIT)};
  tn_conf conf;
  TN_TRY(cmd_ordinal(cmd, &options.device, err));
  if (text) {
    tn_error why = {0};
    if (tn_conf_parse(text, trace, &conf, &why)) return tn__error_set(err, TN_EINVAL, "--conf: %s", why.msg);
    options.conf = &conf;
  }
  tn_error why = {0};
  int rc = tn_replay(trace, &options, out, &why);
  return rc ? tn__error_set(err, rc, "%.100s: %s", cmd->options.args[0], why.msg) : TN_OK;
}

/* A check that failed: the model differs, or memory runs out. */
static int status_of(const tn_replay_result *result) {
  return result->exactness == TN_EXACT_NO || result->oom_entry != TN_NONE;
}

static int show(const tn_cmd *cmd, const tn_replay_result *result) {
  char *out = NULL;
  tn_text text;
  int rc = tn_report_replay(result, cmd->options.given[TN_OPTION_JSON], &out);
  if (rc) return cmd_fail(rc, NULL);
  tn__text_init(&text);
  tn__text_add(&text, out);
  tn_text_free(out);
  int status = cmd_print(&text);
  return status ? status : status_of(result);
}

int cmd_replay(const tn_cmd *cmd) {
  tn_error err = {0};
  tn_trace *trace = NULL;
  tn_replay_result result;
  int rc = tn_snapshot_load(cmd->options.args[0], &trace, &err);
  if (!rc) rc = replay(cmd, trace, &result, &err);
  tn_trace_free(trace);
  return rc ? cmd_fail(rc, "%s", err.msg) : show(cmd, &result);
}

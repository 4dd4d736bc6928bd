/* cmd_explain.c -- tonnage explain FILE, tonnage explain --message TEXT: why memory ran out.
 *
 * What a FILE is follows from its first bytes: the pickle of a memory snapshot, else text with messages in it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"

static FILE *file_open(const char *path, tn_error *err) {
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
  if (!file) {
    int code = errno == EACCES ? TN_EPERM : errno == ENOENT ? TN_ENOENT : TN_EIO;
    (void)tn__error_set(err, code, "%.150s: %s", path, strerror(errno));
  }
  return file;
}

static void file_close(FILE *file) {
  if (file && file != stdin) fclose(file);
}

/* A pickle of protocol 2 or later, gzip, or SQLite. */
static int is_snapshot(FILE *file) {
  int first = getc(file);
  if (first != EOF) ungetc(first, file);
  return first == 0x80 || first == 0x1f;
}

static int explain_snapshot(const tn_cmd *cmd, const char *path) {
  if (!cmd->options.given[TN_OPTION_HTML]) return cmd_fail(TN_EFORMAT, "%.150s: a memory snapshot, which explain does not read", path);
  tn_error err = {0};
  tn_trace *trace = NULL;
  int rc = tn_snapshot_load(path, &trace, &err);
  int status = rc ? cmd_fail(rc, "%s", err.msg) : cmd_explain_html(cmd, trace);
  tn_trace_free(trace);
  return status;
}

/* The log's text, from file. */
static int explain_log(const tn_cmd *cmd, FILE *file, const char *path) {
  (void)cmd, (void)file;
  return cmd_fail(TN_EFORMAT, "%.150s: no out-of-memory message in it", path);
}

static int explain_message(const tn_cmd *cmd, const char *message) {
  (void)cmd, (void)message;
  return cmd_fail(TN_EFORMAT, "--message: no out-of-memory message in it");
}

static int explain_file(const tn_cmd *cmd, const char *path) {
  tn_error err = {0};
  FILE *file = file_open(path, &err);
  if (!file) return cmd_fail(err.code, "%s", err.msg);
  int snapshot = is_snapshot(file), status = 0;
  if (!snapshot && cmd->options.given[TN_OPTION_HTML])
    status = cmd_fail(TN_EINVAL, "%.150s: --html needs a memory snapshot", path);
  else if (!snapshot)
    status = explain_log(cmd, file, path);
  file_close(file);
  return snapshot ? explain_snapshot(cmd, path) : status;
}

int cmd_explain(const tn_cmd *cmd) {
  const char *message = cmd->options.value[TN_OPTION_MESSAGE];
  if (message && cmd->options.args_count) return cmd_fail(TN_EINVAL, "explain takes a FILE or --message, not both");
  if (message) return explain_message(cmd, message);
  if (!cmd->options.args_count) return cmd_fail(TN_EINVAL, "explain needs a FILE, or --message TEXT");
  return explain_file(cmd, cmd->options.args[0]);
}

/* cmd_explain.c -- tonnage explain FILE, tonnage explain --message TEXT: why memory ran out.
 *
 * What a FILE is follows from its first bytes: a memory snapshot (explain_snapshot.c), else text with messages in it. */
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

/* The messages that were read, explained; from names the input. */
static int log_show(const tn_cmd *cmd, tn_oom_log *log, const char *from) {
  size_t count = 0, chosen = 0;
  const tn_oom *messages = tn_oom_log_messages(log, &count, &chosen);
  if (!messages) return cmd_fail(TN_ENOENT, "%.150s: no out-of-memory message in it", from);
  tn_text text;
  char *out = NULL;
  int rc = tn_report_oom(messages, count, chosen, cmd->options.given[TN_OPTION_JSON], &out);
  if (rc) return cmd_fail(rc, NULL);
  tn__text_init(&text);
  tn__text_add(&text, out);
  tn_text_free(out);
  return cmd_print(&text);
}

/* Piece by piece: a log may be larger than memory, or still be written.  The head has been read already. */
static int log_read(FILE *file, const char *path, const cmd_head *head, tn_oom_log *log, tn_error *err) {
  char piece[1 << 16];
  size_t got;
  if (tn_oom_log_add(log, head->bytes, head->size)) return tn__error_set(err, TN_ENOMEM, NULL);
  while ((got = fread(piece, 1, sizeof piece, file)) > 0)
    if (tn_oom_log_add(log, piece, got)) return tn__error_set(err, TN_ENOMEM, NULL);
  if (ferror(file)) return tn__error_set(err, TN_EIO, "%.150s: %s", path, strerror(errno));
  int rc = tn_oom_log_end(log);
  return rc ? tn__error_set(err, rc, NULL) : TN_OK;
}

static int explain_log(const tn_cmd *cmd, FILE *file, const char *path, const cmd_head *head) {
  tn_oom_log *log = NULL;
  tn_error err = {0};
  int rc = tn_oom_log_new(&log);
  if (rc) return cmd_fail(rc, NULL);
  rc = log_read(file, path, head, log, &err);
  int status = rc ? cmd_fail(rc, "%s", err.msg) : log_show(cmd, log, strcmp(path, "-") == 0 ? "standard input" : path);
  tn_oom_log_free(log);
  return status;
}

static int explain_message(const tn_cmd *cmd, const char *message) {
  tn_oom_log *log = NULL;
  int rc = tn_oom_log_new(&log);
  if (!rc) rc = tn_oom_log_add(log, message, strlen(message));
  if (!rc) rc = tn_oom_log_end(log);
  int status = rc ? cmd_fail(rc, NULL) : log_show(cmd, log, "--message");
  tn_oom_log_free(log);
  return status;
}

static int explain_file(const tn_cmd *cmd, const char *path) {
  tn_error err = {0};
  cmd_head head;
  FILE *file = file_open(path, &err);
  if (!file) return cmd_fail(err.code, "%s", err.msg);
  int rc = cmd_head_read(&head, file, path, &err), status;
  if (rc)
    status = cmd_fail(rc, "%s", err.msg);
  else if (cmd_head_is_snapshot(&head))
    status = cmd_explain_snapshot(cmd, file, path, &head);
  else if (cmd->options.given[TN_OPTION_HTML])
    status = cmd_fail(TN_EINVAL, "%.150s: not a memory snapshot; --html needs one", path);
  else
    status = explain_log(cmd, file, path, &head);
  file_close(file);
  return status;
}

int cmd_explain(const tn_cmd *cmd) {
  const char *message = cmd->options.value[TN_OPTION_MESSAGE];
  if (message && cmd->options.args_count) return cmd_fail(TN_EINVAL, "explain takes a FILE or --message, not both");
  if (message && cmd->options.given[TN_OPTION_HTML]) return cmd_fail(TN_EINVAL, "--html needs a memory snapshot");
  if (message) return explain_message(cmd, message);
  if (!cmd->options.args_count) return cmd_fail(TN_EINVAL, "explain needs a FILE, or --message TEXT");
  return explain_file(cmd, cmd->options.args[0]);
}

/* cmd_diff.c -- tonnage diff A B: what changed between two snapshots, or between two captured traces. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"

typedef struct side {
  tn_trace *trace;
  tn_profile profile;
  int has_profile;
} side;

static int trace_open(const char *path, tn_trace **out, tn_error *err) {
  cmd_head head;
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
  if (!file)
    return tn__error_set(err, errno == EACCES ? TN_EPERM : errno == ENOENT ? TN_ENOENT : TN_EIO, "%.150s: %s", path, strerror(errno));
  int rc = cmd_head_read(&head, file, path, err);
  if (!rc && !cmd_head_is_snapshot(&head))
    rc = tn__error_set(err, TN_EFORMAT, "%.150s: neither a memory snapshot nor a captured trace", path);
  if (!rc) rc = cmd_trace_load(file, path, &head, out, err);
  if (file != stdin) fclose(file);
  return rc;
}

/* A capture is replayed on the card that it was made for. */
static int profile_open(side *s, const char *path, tn_error *err) {
  size_t ops = 0, devices = 0;
  (void)tn_trace_table(s->trace, TN_TABLE_OP, &ops);
  (void)tn_trace_table(s->trace, TN_TABLE_DEVICE, &devices);
  if (!ops || devices) return TN_OK;
  const char *device = tn_trace_meta(s->trace, "device");
  if (!device || !*device) return tn__error_set(err, TN_EINVAL, "%.150s does not say for which device it was captured", path);
  s->has_profile = 1;
  return cmd_profile_load(device, &s->profile, err);
}

static int diff_make(const tn_cmd *cmd, side *sides, char **out, tn_error *err) {
  const char *const *paths = cmd->options.args;
  tn_diff_options options = {.width = cmd_columns()};
  TN_TRY(cmd_ordinal(cmd, &options.device, err));
  tn_diff_side given[2];
  for (int i = 0; i < 2; i++) {
    TN_TRY(trace_open(paths[i], &sides[i].trace, err));
    TN_TRY(profile_open(&sides[i], paths[i], err));
    given[i] = (tn_diff_side){sides[i].trace, paths[i], sides[i].has_profile ? &sides[i].profile : NULL};
  }
  return tn_report_diff(&given[0], &given[1], &options, cmd->options.given[TN_OPTION_JSON], out, err);
}

int cmd_diff(const tn_cmd *cmd) {
  side sides[2] = {{0}, {0}};
  char *out = NULL;
  tn_error err = {0};
  int rc = diff_make(cmd, sides, &out, &err), status;
  if (rc) {
    status = cmd_fail(rc, "%s", err.msg);
  } else {
    tn_text text;
    tn__text_init(&text);
    tn__text_add(&text, out);
    status = cmd_print(&text);
  }
  tn_text_free(out);
  for (int i = 0; i < 2; i++) tn_trace_free(sides[i].trace);
  return status;
}

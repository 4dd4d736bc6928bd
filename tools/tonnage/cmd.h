/* cmd.h -- what the verbs of the command share.  One file per verb: cmd_VERB.c; those in Python share cmd_python.c. */
#ifndef TN_TOOLS_CMD_H
#define TN_TOOLS_CMD_H

#include <stdio.h>

#include "base/options.h"

typedef struct tn_cmd {
  enum tn_verb verb;
  tn_options options;
  int argc; /* the words after the verb, as they came */
  const char *const *argv;
} tn_cmd;

/* Each returns the exit status. */
int cmd_python(const tn_cmd *cmd);
int cmd_explain(const tn_cmd *cmd);
int cmd_tune(const tn_cmd *cmd);
int cmd_replay(const tn_cmd *cmd);
int cmd_diff(const tn_cmd *cmd);
int cmd_report(const tn_cmd *cmd);
int cmd_help(const tn_cmd *cmd);
int cmd_version(const tn_cmd *cmd);

int cmd_explain_html(const tn_cmd *cmd, const tn_trace *trace, uint64_t total_bytes); /* does nothing without --html */
/* explain, of a snapshot: file is open at path and head has been read from it. */
struct cmd_head;
int cmd_explain_snapshot(const tn_cmd *cmd, FILE *file, const char *path, const struct cmd_head *head);

/* One line on stderr, "tonnage: ..."; returns the exit status that belongs to the code. */
int cmd_fail(int code, const char *format, ...) TN_PRINTF(2, 3);
/* Prints what was written and frees it; returns the exit status.  A full disk or a lost addition is an error, not a short text. */
int cmd_print(tn_text *text);
int cmd_color(const tn_cmd *cmd); /* 1: colour on stdout, by --color, NO_COLOR and the terminal */
/* --device of verbs that mean CUDA's number; TN_NONE when not given. */
int cmd_ordinal(const tn_cmd *cmd, uint32_t *out, tn_error *err);
/* The folder of this program, without a slash at its end; "." when the system does not say. */
void cmd_own_dir(char *buf, size_t buf_size);
/* The profile of that name, or in that file when the name has a slash or ends in .json. */
int cmd_profile_load(const char *name, tn_profile *out, tn_error *err);
/* The first bytes of a file, which tell what it is: snapshots come from files and through pipes, and so do logs. */
typedef struct cmd_head {
  char bytes[4096];
  size_t size;
} cmd_head;
int cmd_head_read(cmd_head *head, FILE *file, const char *path, tn_error *err);
int cmd_head_is_snapshot(const cmd_head *head); /* a pickle, gzip, JSON of a snapshot, or a trace */
/* A snapshot or a captured trace of either kind.  path "-": the head and the rest of file. */
int cmd_trace_load(FILE *file, const char *path, const cmd_head *head, tn_trace **out, tn_error *err);
/* Columns of the terminal, or COLUMNS; 0 when neither says. */
uint32_t cmd_columns(void);

#endif

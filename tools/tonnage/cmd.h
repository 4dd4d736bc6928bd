/* cmd.h -- what the verbs of the command share.  One file per verb: cmd_VERB.c; those in Python share cmd_python.c. */
#ifndef TN_TOOLS_CMD_H
#define TN_TOOLS_CMD_H

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
int cmd_explain_html(const tn_cmd *cmd, const tn_trace *trace); /* explain --html */
int cmd_report(const tn_cmd *cmd);
int cmd_help(const tn_cmd *cmd);
int cmd_version(const tn_cmd *cmd);

/* One line on stderr, "tonnage: ..."; returns the exit status that belongs to the code. */
int cmd_fail(int code, const char *format, ...) TN_PRINTF(2, 3);
/* Prints what was written and frees it; returns the exit status.  A full disk or a lost addition is an error, not a short text. */
int cmd_print(tn_text *text);
int cmd_color(const tn_cmd *cmd); /* 1: colour on stdout, by --color, NO_COLOR and the terminal */
/* The folder of this program, without a slash at its end; "." when the system does not say. */
void cmd_own_dir(char *buf, size_t buf_size);
/* The profile of that name, or in that file when the name has a slash or ends in .json. */
int cmd_profile_load(const char *name, tn_profile *out, tn_error *err);

#endif

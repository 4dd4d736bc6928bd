/* explain_html.c -- tonnage explain FILE --html PAGE: the report of a snapshot as a page */
#include <string.h>

#include "cmd.h"

static const char *name_of(const char *path) {
  if (strcmp(path, "-") == 0) return "standard input";
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

int cmd_explain_html(const tn_cmd *cmd, const tn_trace *trace, uint64_t total_bytes) {
  const char *path = cmd->options.args[0], *page = cmd->options.value[TN_OPTION_HTML];
  if (!page) return 0;
  tn_html_options options = {.name = name_of(path), .total_bytes = total_bytes};
  tn_error err = {0};
  int rc = tn_report_html_save(trace, &options, page, &err);
  if (rc == TN_EINVAL) return cmd_fail(rc, "%.150s: %s", path, err.msg); /* of the snapshot, where the others are of the page */
  return rc ? cmd_fail(rc, "%s", err.msg) : 0;
}

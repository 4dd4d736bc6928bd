/* explain_snapshot.c -- tonnage explain FILE, where FILE is a memory snapshot; and its gates for CI. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cmd.h"

static int is_number(const char *text) { return *text && text[strspn(text, "0123456789")] == '\0'; }

/* --device 1 is one of the snapshot's devices; --device h200 is the card that it was, for its size. */
static int options_read(const tn_cmd *cmd, tn_explain_options *out, tn_error *err) {
  const tn_options *options = &cmd->options;
  const char *device = options->value[TN_OPTION_DEVICE];
  *out = (tn_explain_options){.device = TN_NONE,
                              .stack_depth = (uint32_t)tn__options_size(options, TN_OPTION_STACK_DEPTH),
                              .width = cmd_columns(),
                              .total_bytes = tn__options_size(options, TN_OPTION_BUDGET)};
  if (!device) return TN_OK;
  if (is_number(device)) {
    unsigned long number = strtoul(device, NULL, 10);
    if (number >= TN_NONE) return tn__error_set(err, TN_EINVAL, "--device %.20s: too large", device);
    out->device = (uint32_t)number;
    return TN_OK;
  }
  tn_profile profile;
  TN_TRY(cmd_profile_load(device, &profile, err));
  if (!out->total_bytes) out->total_bytes = profile.total_bytes;
  return TN_OK;
}

/* "4MiB/step", or "4MiB". */
static int leak_read(const char *text, uint64_t *out, tn_error *err) {
  static const char tail[] = "/step";
  size_t length = strlen(text), tail_length = sizeof tail - 1;
  if (length > tail_length && strcmp(text + length - tail_length, tail) == 0) length -= tail_length;
  char *size = tn__mem_strndup(text, length);
  if (!size) return tn__error_set(err, TN_ENOMEM, NULL);
  tn_error why = {0};
  int rc = strcmp(size, "0") == 0 ? (*out = 0, TN_OK) : tn_size_parse(size, out, &why);
  tn__mem_free(size);
  return rc ? tn__error_set(err, TN_EINVAL, "--fail-leak %.40s: %.150s", text, why.msg) : TN_OK;
}

/* "12.5" or "12.5%". */
static int percent_read(const char *text, double *out, tn_error *err) {
  char *end = NULL;
  double value = isdigit((unsigned char)*text) || *text == '.' ? strtod(text, &end) : -1;
  if (end && strcmp(end, "%") == 0) end++;
  if (!end || end == text || *end || !(value >= 0 && value <= 100))
    return tn__error_set(err, TN_EINVAL, "--fail-waste %.40s: not a percentage from 0 to 100", text);
  *out = value;
  return TN_OK;
}

static int limits_read(const tn_cmd *cmd, tn_explain_limits *out, tn_error *err) {
  const tn_options *options = &cmd->options;
  const char *leak = options->value[TN_OPTION_FAIL_LEAK], *waste = options->value[TN_OPTION_FAIL_WASTE];
  *out = (tn_explain_limits){.reserved_bytes = tn__options_size(options, TN_OPTION_FAIL_ABOVE),
                             .leak_is_given = leak != NULL,
                             .waste_is_given = waste != NULL};
  if (leak) TN_TRY(leak_read(leak, &out->leak_bytes_per_step, err));
  return waste ? percent_read(waste, &out->waste_percent, err) : TN_OK;
}

static int report_print(const tn_cmd *cmd, const tn_explain *explain, const char *title) {
  tn_text text;
  char *out = NULL;
  int rc = tn_report_explain(explain, title, cmd->options.given[TN_OPTION_JSON], &out);
  if (rc) return cmd_fail(rc, NULL);
  tn__text_init(&text);
  tn__text_add(&text, out);
  tn_text_free(out);
  return cmd_print(&text);
}

/* The reports first: whoever's gate fails wants to see why. */
static int explain_print(const tn_cmd *cmd, const tn_trace *trace, const tn_explain_options *options, const tn_explain_limits *limits,
                         const char *title) {
  tn_explain *explain = NULL;
  tn_error err = {0};
  int rc = tn_explain_new(trace, options, &explain, &err);
  if (rc) return cmd_fail(rc, "%.150s: %s", title, err.msg);
  int status = cmd_explain_html(cmd, trace, options->total_bytes);
  if (!status) status = report_print(cmd, explain, title);
  if (!status && (rc = tn_explain_check(explain, limits, &err))) status = cmd_fail(rc, "%s", err.msg);
  tn_explain_free(explain);
  return status;
}

int cmd_explain_snapshot(const tn_cmd *cmd, FILE *file, const char *path, const cmd_head *head) {
  tn_explain_options options;
  tn_explain_limits limits;
  tn_trace *trace = NULL;
  tn_error err = {0};
  size_t devices = 0, ops = 0;
  int rc = options_read(cmd, &options, &err);
  if (!rc) rc = limits_read(cmd, &limits, &err);
  if (!rc) rc = cmd_trace_load(file, path, head, &trace, &err);
  if (rc) return cmd_fail(rc, "%s", err.msg);
  (void)tn_trace_table(trace, TN_TABLE_DEVICE, &devices);
  (void)tn_trace_table(trace, TN_TABLE_OP, &ops);
  int status = ops && !devices ? cmd_fail(TN_EINVAL, "%.150s: a captured trace and no snapshot; see tonnage report", path)
                               : explain_print(cmd, trace, &options, &limits, strcmp(path, "-") == 0 ? "standard input" : path);
  tn_trace_free(trace);
  return status;
}

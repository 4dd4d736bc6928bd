/* cmd.c -- what the verbs share.  See cmd.h. */
#include "cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cmd_fail(int code, const char *format, ...) {
  tn_error err;
  va_list args;
  va_start(args, format);
  tn__error_set_v(&err, code, format, args);
  va_end(args);
  fprintf(stderr, "tonnage: %s\n", err.msg);
  return tn_error_status(code);
}

int cmd_print(tn_text *text) {
  char *out = NULL;
  int rc = tn__text_take(text, &out);
  tn__text_deinit(text);
  if (rc) return cmd_fail(rc, NULL);
  int bad = fputs(out, stdout) < 0 || fflush(stdout) != 0;
  tn_text_free(out);
  return bad ? cmd_fail(TN_EIO, "cannot write the output: %m") : 0;
}

int cmd_color(const tn_cmd *cmd) {
  const char *when = cmd->options.value[TN_OPTION_COLOR], *no = getenv("NO_COLOR"), *term = getenv("TERM");
  if (when && strcmp(when, "always") == 0) return 1;
  if (when && strcmp(when, "never") == 0) return 0;
  return isatty(STDOUT_FILENO) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

int cmd_ordinal(const tn_cmd *cmd, uint32_t *out, tn_error *err) {
  const char *text = cmd->options.value[TN_OPTION_ORDINAL];
  size_t digits = text ? strspn(text, "0123456789") : 0;
  if (text && (digits == 0 || digits > 6 || text[digits]))
    return tn__error_set(err, TN_EINVAL, "--device: \"%.40s\" is no device's number", text);
  *out = text ? (uint32_t)strtoul(text, NULL, 10) : TN_NONE;
  return TN_OK;
}

void cmd_own_dir(char *buf, size_t buf_size) {
  ssize_t len = readlink("/proc/self/exe", buf, buf_size - 1);
  buf[len > 0 ? len : 0] = '\0';
  char *slash = strrchr(buf, '/');
  if (slash)
    *slash = '\0';
  else
    (void)snprintf(buf, buf_size, ".");
}

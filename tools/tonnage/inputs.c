/* inputs.c -- what a file is, and reading what is a snapshot or a trace.  See cmd.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/vec.h"
#include "cmd.h"

int cmd_head_read(cmd_head *head, FILE *file, const char *path, tn_error *err) {
  head->size = fread(head->bytes, 1, sizeof head->bytes, file);
  if (!ferror(file)) return TN_OK;
  return tn__error_set(err, errno == EACCES ? TN_EPERM : TN_EIO, "%.150s: %s", path, strerror(errno));
}

static int head_begins(const cmd_head *head, const char *with, size_t length) {
  return head->size >= length && memcmp(head->bytes, with, length) == 0;
}

static int head_has(const cmd_head *head, const char *word) {
  return memmem(head->bytes, head->size, word, strlen(word)) != NULL;
}

static int is_trace(const cmd_head *head) { return head_begins(head, "SQLite format 3", 16); }

/* Log lines may begin with { or [ as well; the keys of a segment or a trace entry tell. */
static int is_json(const cmd_head *head) {
  static const char *const keys[] = {"\"segments\"", "\"device_traces\"", "\"total_size\"", "\"action\""};
  size_t at = 0;
  while (at < head->size && strchr(" \t\r\n", head->bytes[at])) at++;
  if (at == head->size || (head->bytes[at] != '{' && head->bytes[at] != '[')) return 0;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (head_has(head, keys[i])) return 1;
  return 0;
}

/* Protocol 2 or later says so; earlier ones begin with the dict or list that a snapshot is, empty or with a mark before it. */
static int is_pickle(const cmd_head *head) {
  if (head_begins(head, "\x80", 1)) return 1;
  if (head->size < 3 || memchr(head->bytes, 'a', head->size) == NULL) return 0;
  int old = head_begins(head, "(dp", 3) || head_begins(head, "(lp", 3) || head_begins(head, "}q", 2) || head_begins(head, "]q", 2);
  return old && (head_has(head, "segments") || head_has(head, "total_size") || head_has(head, "device_traces"));
}

int cmd_head_is_snapshot(const cmd_head *head) {
  return is_pickle(head) || head_begins(head, "\x1f\x8b", 2) || is_trace(head) || is_json(head);
}

/* The rest of a pipe, after its head. */
static int pipe_load(FILE *file, const cmd_head *head, tn_trace **out, tn_error *err) {
  tn_vec all;
  tn__vec_init(&all, 1);
  int rc = tn__vec_append(&all, head->bytes, head->size);
  char piece[1 << 16];
  size_t got;
  while (!rc && (got = fread(piece, 1, sizeof piece, file)) > 0) rc = tn__vec_append(&all, piece, got);
  if (rc)
    (void)tn__error_set(err, rc, NULL);
  else
    rc = tn_snapshot_parse(all.data, all.count, out, err);
  tn__vec_deinit(&all);
  return rc;
}

int cmd_trace_load(FILE *file, const char *path, const cmd_head *head, tn_trace **out, tn_error *err) {
  int rc, is_pipe = strcmp(path, "-") == 0;
  if (is_trace(head))
    rc = is_pipe ? tn__error_set(err, TN_EINVAL, "a trace cannot be read from a pipe") : tn_trace_load(path, out, err);
  else
    rc = is_pipe ? pipe_load(file, head, out, err) : tn_snapshot_load(path, out, err);
  if (rc && err && strncmp(err->msg, path, strlen(path)) != 0) {
    tn_error why = *err;
    (void)tn__error_set(err, rc, "%.120s: %.110s", is_pipe ? "standard input" : path, why.msg);
  }
  return rc;
}

uint32_t cmd_columns(void) {
  struct winsize size;
  const char *columns = getenv("COLUMNS");
  unsigned long asked = columns ? strtoul(columns, NULL, 10) : 0;
  if (asked) return asked < 1000 ? (uint32_t)asked : 1000;
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) return size.ws_col;
  return 0;
}

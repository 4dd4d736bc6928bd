/* oom_squeeze.c -- text without what logs put into it.  See oom_squeeze.h. */
#include "explain/oom_squeeze.h"

#include <string.h>

#include "base/mem.h"

/* ctype without the locale */
static int is_digit(char c) { return c >= '0' && c <= '9'; }
static int is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static int is_letter(char c) { return is_upper(c) || (c >= 'a' && c <= 'z'); }
static int is_word(char c) { return is_letter(c) || is_digit(c) || c == '_'; }
static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' || c == '\0'; }

/* ---- escape sequences ---------------------------------------------------------------------------------------------------- */

/* The length of a terminal's escape sequence, ESC included: "\033[31m", "\033]8;;...\a" */
static size_t escape_len(const char *text, size_t len) {
  enum { LONGEST = 256 };
  if (len < 2) return 1;
  size_t end = 2;
  if (text[1] == '[') {
    while (end < len && end < LONGEST && ((unsigned char)text[end] < 0x40 || (unsigned char)text[end] > 0x7e)) end++;
    return end < len ? end + 1 : len;
  }
  if (text[1] == ']') {
    while (end < len && end < LONGEST && text[end] != '\a' && text[end] != '\033') end++;
    return end < len && text[end] == '\a' ? end + 1 : end;
  }
  return 2;
}

/* ---- tags at the beginning of a line ------------------------------------------------------------------------------------- */

enum { TAGS_MAX = 12, BRACKET_MAX = 80 };

/* Each of these gives the length of such a tag at the beginning of line, or 0. */

/* "[rank0]:" "[2024-06-17 13:18:29,371]" "[1,3]<stderr>:" */
static size_t bracket_len(const char *line, size_t len) {
  if (!len || line[0] != '[') return 0;
  size_t end = 1;
  while (end < len && end < BRACKET_MAX && line[end] != ']' && line[end] != '\n') end++;
  return end < len && line[end] == ']' ? end + 1 : 0;
}

static int holds(const char *text, size_t len, const char *word) {
  size_t word_len = strlen(word);
  for (size_t i = 0; i + word_len <= len; i++)
    if (memcmp(text + i, word, word_len) == 0) return 1;
  return 0;
}

/* "(RayWorker pid=123, ip=10.0.0.1)"; not "(GPU 0; 8.00 GiB ...)" */
static size_t actor_len(const char *line, size_t len) {
  if (!len || line[0] != '(') return 0;
  size_t end = 1;
  while (end < len && end < BRACKET_MAX && line[end] != ')' && line[end] != '\n') end++;
  if (end >= len || line[end] != ')') return 0;
  return holds(line, end, "pid=") || holds(line, end, "rank=") ? end + 1 : 0;
}

/* "2024-06-17T13:18:29.371622Z" "10:48:30" "16:02:11,123": digits and what joins them, two joints at least */
static size_t time_len(const char *line, size_t len) {
  size_t end = 0, joints = 0;
  if (!len || !is_digit(line[0])) return 0;
  for (; end < len; end++) {
    int joint = line[end] == '-' || line[end] == ':' || line[end] == '/';
    int follows = end + 1 < len && is_digit(line[end + 1]);
    if (joint && follows)
      joints++;
    else if (!is_digit(line[end]) && !((line[end] == '.' || line[end] == ',' || line[end] == 'T' || line[end] == '+') && follows))
      break;
  }
  if (end < len && line[end] == 'Z') end++;
  return joints >= 2 ? end : 0;
}

/* "3: " of srun --label, "1129:" of grep -n */
static size_t number_len(const char *line, size_t len) {
  size_t end = 0;
  while (end < len && end < 9 && is_digit(line[end])) end++;
  return end && end < len && line[end] == ':' ? end + 1 : 0;
}

/* "ERROR" "WARNING:" */
static size_t level_len(const char *line, size_t len) {
  static const char *const levels[] = {"INFO",  "WARNING", "WARN",   "ERROR",    "DEBUG",   "CRITICAL",
                                       "FATAL", "stderr",  "stdout", "<stderr>", "<stdout>"};
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    size_t end = strlen(levels[i]);
    if (end < len && memcmp(line, levels[i], end) == 0 && !is_word(line[end])) return line[end] == ':' ? end + 1 : end;
  }
  return 0;
}

/* "E0813 12:33:44.123456 12345 file.py:12] " */
static size_t klog_len(const char *line, size_t len) {
  if (len < 6 || !strchr("IWEF", line[0])) return 0;
  for (size_t i = 1; i < 5; i++)
    if (!is_digit(line[i])) return 0;
  if (line[5] != ' ') return 0;
  size_t end = 6;
  while (end < len && end < BRACKET_MAX && line[end] != ']' && line[end] != '\n') end++;
  return end < len && line[end] == ']' ? end + 1 : 0;
}

/* "worker-1  | " of docker compose */
static size_t service_len(const char *line, size_t len) {
  size_t end = 0;
  while (end < len && end < 64 && (is_word(line[end]) || line[end] == '-' || line[end] == '.')) end++;
  if (!end) return 0;
  while (end < len && line[end] == ' ') end++;
  return end < len && line[end] == '|' ? end + 1 : 0;
}

/* Quotation marks, table borders, comment signs */
static size_t mark_len(const char *line, size_t len) {
  if (len >= 2 && line[0] == '/' && line[1] == '/') return 2;
  return len && (line[0] == '|' || line[0] == '>' || line[0] == '#' || line[0] == ':') ? 1 : 0;
}

static size_t tag_len(const char *line, size_t len) {
  static size_t (*const kinds[])(const char *, size_t) = {bracket_len, actor_len, time_len,    klog_len,
                                                          number_len,  level_len, service_len, mark_len};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    size_t found = kinds[i](line, len);
    if (found) return found;
  }
  return 0;
}

static size_t tags_len(const char *line, size_t len) {
  size_t at = 0;
  for (int i = 0; i < TAGS_MAX; i++) {
    while (at < len && (is_blank(line[at]) || line[at] == '\033')) at += line[at] == '\033' ? escape_len(line + at, len - at) : 1;
    size_t tag = tag_len(line + at, len - at);
    if (!tag) break;
    at += tag;
  }
  return at;
}

/* ---- squeezing ----------------------------------------------------------------------------------------------------------- */

/* "\n" as two characters, in logs that are JSON */
static size_t backslash_len(const char *text, size_t len) {
  return len >= 2 && (text[1] == 'n' || text[1] == 't' || text[1] == 'r') ? 2 : 1;
}

static int is_kept(char c) {
  return (unsigned char)c > ' ' && (unsigned char)c < 0x7f && c != '"' && c != '\'' && c != '`' && c != '*';
}

static void keep(tn__squeezed *out, size_t at) {
  char c = out->from[at];
  out->text[out->len] = is_upper(c) ? (char)(c - 'A' + 'a') : c;
  out->at[out->len++] = (uint32_t)at;
}

static void squeeze_into(tn__squeezed *out) {
  const char *from = out->from;
  size_t len = out->from_len, at = tags_len(from, len);
  while (at < len) {
    if (from[at] == '\033') {
      at += escape_len(from + at, len - at);
    } else if (from[at] == '\\') {
      at += backslash_len(from + at, len - at);
    } else if (from[at] == '\n') {
      at++;
      at += tags_len(from + at, len - at);
    } else {
      if (is_kept(from[at])) keep(out, at);
      at++;
    }
  }
  out->text[out->len] = '\0';
}

int tn__squeeze(const char *from, size_t from_len, tn__squeezed *out) {
  *out = (tn__squeezed){.from = from, .from_len = from_len};
  if (from_len > UINT32_MAX) return TN_EINVAL;
  out->text = tn__mem_alloc(from_len + 1);
  out->at = tn__mem_realloc_array(NULL, from_len + 1, sizeof *out->at);
  if (!out->text || !out->at) return TN_ENOMEM;
  squeeze_into(out);
  return TN_OK;
}

void tn__squeezed_deinit(tn__squeezed *squeezed) {
  tn__mem_free(squeezed->text);
  tn__mem_free(squeezed->at);
  *squeezed = (tn__squeezed){0};
}

int tn__squeezed_breaks(const tn__squeezed *squeezed, size_t i, size_t j) {
  int breaks = 0, blank = 0;
  if (j >= squeezed->len) return 0;
  for (size_t at = squeezed->at[i]; at < squeezed->at[j]; at++) {
    char c = squeezed->from[at];
    if (c == '\n' && blank) return 2;
    if (c == '\n') {
      breaks = 1;
      at += tags_len(squeezed->from + at + 1, squeezed->from_len - at - 1);
      blank = 1;
    } else if (!is_blank(c)) {
      blank = 0;
    }
  }
  return breaks;
}

int tn__squeezed_is_edge(const tn__squeezed *squeezed, size_t i) {
  if (i == 0 || i >= squeezed->len) return 1;
  size_t at = squeezed->at[i];
  return !is_word(squeezed->from[at]) || !is_word(squeezed->from[at - 1]);
}

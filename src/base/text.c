/* text.c -- a growable string.  See text.h. */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void tn__text_init(tn_text *text) { *text = (tn_text){0}; }

void tn__text_deinit(tn_text *text) {
  tn__mem_free(text->data);
  *text = (tn_text){0};
}

/* Room for extra bytes and the NUL. */
static int text_reserve(tn_text *text, size_t extra) {
  if (text->failed) return text->failed;
  if (extra < text->capacity - text->len) return TN_OK; /* len < capacity, or both are 0 */
  size_t capacity = text->capacity ? text->capacity : 128;
  while (capacity <= SIZE_MAX / 2 && capacity - text->len <= extra) capacity *= 2;
  char *data = capacity - text->len > extra ? tn__mem_realloc(text->data, capacity) : NULL;
  if (!data) return text->failed = TN_ENOMEM;
  if (!text->data) data[0] = '\0';
  text->data = data;
  text->capacity = capacity;
  return TN_OK;
}

void tn__text_add_n(tn_text *text, const char *add, size_t len) {
  if (len == 0 || text_reserve(text, len)) return;
  memcpy(text->data + text->len, add, len);
  text->len += len;
  text->data[text->len] = '\0';
}

void tn__text_add(tn_text *text, const char *add) { tn__text_add_n(text, add, strlen(add)); }

void tn__text_fill(tn_text *text, char with, size_t count) {
  if (count == 0 || text_reserve(text, count)) return;
  memset(text->data + text->len, with, count);
  text->len += count;
  text->data[text->len] = '\0';
}

void tn__text_printf(tn_text *text, const char *format, ...) {
  char small[256];
  va_list args;
  va_start(args, format);
  int len = vsnprintf(small, sizeof small, format, args);
  va_end(args);
  if (len < 0) {
    text->failed = TN_ENOMEM;
    return;
  }
  if ((size_t)len < sizeof small) {
    tn__text_add_n(text, small, (size_t)len);
    return;
  }
  if (text_reserve(text, (size_t)len)) return;
  va_start(args, format);
  (void)vsnprintf(text->data + text->len, (size_t)len + 1, format, args);
  va_end(args);
  text->len += (size_t)len;
}

void tn__text_size(tn_text *text, uint64_t bytes) {
  char buf[32];
  tn__text_add(text, tn_size_format(bytes, buf, sizeof buf));
}

static size_t line_len(const tn_text *text) {
  size_t at = text->len;
  while (at > 0 && text->data[at - 1] != '\n') at--;
  return text->len - at;
}

void tn__text_tab(tn_text *text, size_t column) {
  size_t len = line_len(text);
  if (len < column)
    tn__text_fill(text, ' ', column - len);
  else if (len > 0)
    tn__text_fill(text, ' ', 1);
}

/* Up to where a line may break: a number and its unit stay together ("1.17 GiB", "12 %"). */
static size_t word_len(const char *word) {
  static const char *const units[] = {"%", "B", "KiB", "MiB", "GiB", "TiB", "ms", "s"};
  size_t len = strcspn(word, " \n");
  if (!len || word[len] != ' ' || word[len - 1] < '0' || word[len - 1] > '9') return len;
  const char *next = word + len + 1;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    size_t unit = strlen(units[i]);
    if (strncmp(next, units[i], unit) == 0 && (!next[unit] || strchr(" \n,.;:)/", next[unit]))) return len + 1 + strcspn(next, " \n");
  }
  return len;
}

void tn__text_wrap(tn_text *text, const char *add, size_t indent, size_t width) {
  int first = 1; /* no space before the first word of a line */
  for (const char *word = add + strspn(add, " \n"); *word;) {
    size_t len = word_len(word);
    if (!first && line_len(text) + 1 + len > width) {
      tn__text_fill(text, '\n', 1);
      tn__text_fill(text, ' ', indent);
      first = 1;
    }
    if (!first) tn__text_fill(text, ' ', 1);
    tn__text_add_n(text, word, len);
    first = 0;
    word += len;
    word += strspn(word, " \n");
  }
}

void tn__text_json(tn_text *text, const char *add) {
  tn__text_fill(text, '"', 1);
  for (const unsigned char *c = (const unsigned char *)add; *c; c++) {
    if (*c == '"' || *c == '\\')
      tn__text_printf(text, "\\%c", *c);
    else if (*c == '\n')
      tn__text_add(text, "\\n");
    else if (*c < 0x20)
      tn__text_printf(text, "\\u%04x", *c);
    else
      tn__text_add_n(text, (const char *)c, 1);
  }
  tn__text_fill(text, '"', 1);
}

int tn__text_take(tn_text *text, char **out) {
  if (text_reserve(text, 0)) return text->failed;
  *out = text->data;
  *text = (tn_text){0};
  return TN_OK;
}

const char *tn__text_view(const tn_text *text) { return text->data ? text->data : ""; }

void tn_text_free(char *text) { tn__mem_free(text); }

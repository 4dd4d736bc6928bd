/* json.c -- reads a JSON text into a build, token by token.  See json.h.
 *
 * Objects and lists drive the build as the opcodes of a pickle would: '{' is EMPTY_DICT and MARK, '}' is SETITEMS. */
#include "snapshot/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "snapshot/utf8.h"

enum { TEXT_BYTES_MAX = 16 << 20, NUMBER_BYTES_MAX = 64, FLUSH_ITEMS = 1000 };

typedef struct json {
  tn__build *build;
  tn__input *input;
  tn_vec kinds;   /* char: '{' or '[', of the containers that are open */
  tn_vec decoded; /* char: the text at work when it has escapes */
} json;

/* ---- bytes --------------------------------------------------------------------------------------------------------------- */

static int fill(json *j, size_t need) {
  TN_TRY(tn__input_fill(j->input, need, &j->build->error));
  j->build->bytes_read = tn__input_offset(j->input) + tn__input_left(j->input);
  return tn__build_check_memory(j->build, 0);
}

/* The next byte in *out without taking it, -1 at the end. */
static inline int peek(json *j, int *out) {
  if (tn__input_left(j->input) == 0) TN_TRY(fill(j, 1));
  *out = tn__input_left(j->input) == 0 ? -1 : *j->input->at;
  return TN_OK;
}

static int unexpected(json *j, int c, const char *expected) {
  j->build->offset = tn__input_offset(j->input);
  if (c < 0) return tn__build_fault(j->build, NULL, "the file ends, expected %s: it is cut short", expected);
  if (c > 0x20 && c < 0x7f) return tn__build_fault(j->build, NULL, "found '%c', expected %s", c, expected);
  return tn__build_fault(j->build, NULL, "found byte 0x%02x, expected %s", (unsigned)c, expected);
}

static int skip_space(json *j, int *out_next) {
  for (;; j->input->at++) {
    TN_TRY(peek(j, out_next));
    if (*out_next != ' ' && *out_next != '\n' && *out_next != '\t' && *out_next != '\r') return TN_OK;
  }
}

/* ---- texts --------------------------------------------------------------------------------------------------------------- */

static int hex_digit(int c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four digits at at, *out the code unit; -1 when they are none. */
static int hex_unit(const uint8_t *at, uint32_t *out) {
  uint32_t unit = 0;
  for (int i = 0; i < 4; i++) {
    int digit = hex_digit(at[i]);
    if (digit < 0) return -1;
    unit = unit << 4 | (uint32_t)digit;
  }
  *out = unit;
  return 0;
}

/* The code point of \uXXXX at at, left bytes from its backslash on; how many bytes it takes, 0 when it is none. */
static size_t unescape_unicode(const uint8_t *at, size_t left, uint32_t *out) {
  uint32_t low = 0;
  if (left < 6 || hex_unit(at + 2, out)) return 0;
  if (*out < 0xd800 || *out > 0xdbff || left < 12 || at[6] != '\\' || at[7] != 'u') return 6;
  if (hex_unit(at + 8, &low) || low < 0xdc00 || low > 0xdfff) return 6;
  *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
  return 12;
}

/* The escape at at; how many bytes it takes, 0 when it is none. */
static size_t unescape(const uint8_t *at, size_t left, uint32_t *out) {
  static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
  if (left < 2) return 0;
  if (at[1] == 'u') return unescape_unicode(at, left, out);
  const char *name = at[1] ? strchr(names, at[1]) : NULL;
  *out = name ? (uint32_t)codes[name - names] : 0;
  return name ? 2 : 0;
}

static int push_decoded(json *j, const uint8_t *text, size_t len) {
  j->decoded.count = 0;
  for (size_t at = 0; at < len;) {
    char bytes[4] = {(char)text[at]};
    size_t put = 1, step = 1;
    if (text[at] == '\\') {
      uint32_t code = 0;
      step = unescape(text + at, len - at, &code);
      if (step == 0)
        return tn__build_fault(j->build, NULL, "a text has a backslash with nothing known after it, %zu bytes into it", at);
      put = tn__utf8_put(code, bytes);
    }
    if (tn__vec_append(&j->decoded, bytes, put)) return tn__build_no_memory(j->build);
    at += step;
  }
  return tn__build_text(j->build, j->decoded.count ? j->decoded.data : "", j->decoded.count);
}

/* How long the text is that begins at the input's place, its quotes not counted, all of it at hand; and whether it has escapes. */
static int find_quote(json *j, size_t *out_len, int *out_escapes) {
  size_t len = 0;
  *out_escapes = 0;
  for (;;) {
    size_t left = tn__input_left(j->input);
    const uint8_t *text = j->input->at;
    for (; len < left; len++) {
      if (text[len] == '"') {
        *out_len = len;
        return TN_OK;
      }
      if (text[len] < 0x20) return tn__build_fault(j->build, NULL, "a text has a control character, %zu bytes into it", len);
      if (text[len] != '\\') continue;
      *out_escapes = 1;
      len++;
    }
    if (len > TEXT_BYTES_MAX) return tn__build_fault(j->build, NULL, "a text of more than 16 MiB");
    TN_TRY(fill(j, 2 * left + 1 > len + 1 ? 2 * left + 1 : len + 1));
    if (tn__input_left(j->input) == left) return tn__build_fault(j->build, NULL, "the file ends inside a text: it is cut short");
  }
}

static int read_text(json *j) {
  size_t len = 0;
  int escapes = 0;
  j->input->at++;
  TN_TRY(find_quote(j, &len, &escapes));
  const uint8_t *text = j->input->at;
  j->input->at += len + 1;
  return escapes ? push_decoded(j, text, len) : tn__build_text(j->build, (const char *)text, len);
}

/* ---- numbers and words --------------------------------------------------------------------------------------------------- */

static int is_word_byte(int c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' || c == '.';
}

/* What looks like a number or a word, NUL-terminated in out. */
static int read_word(json *j, char out[NUMBER_BYTES_MAX + 1]) {
  size_t len = 0;
  int c = 0;
  for (;; j->input->at++) {
    TN_TRY(peek(j, &c));
    if (!is_word_byte(c)) break;
    if (len == NUMBER_BYTES_MAX) return tn__build_fault(j->build, NULL, "expected a value, found something longer than any number");
    out[len++] = (char)c;
  }
  out[len] = '\0';
  return len ? TN_OK : unexpected(j, c, "a value");
}

/* Digits alone, perhaps after a sign. */
static int is_integer(const char *word) {
  word += *word == '-';
  return *word && word[strspn(word, "0123456789")] == '\0';
}

static int push_integer(tn__build *build, const char *word) {
  int negative = *word == '-';
  uint64_t value = 0, limit = negative ? (uint64_t)INT64_MAX + 1 : UINT64_MAX;
  for (word += negative; *word; word++) {
    uint64_t digit = (uint64_t)(*word - '0');
    if (value > (limit - digit) / 10) return tn__build_push(build, TN__ITEM_OTHER, 0);
    value = value * 10 + digit;
  }
  if (negative) return tn__build_push(build, TN__ITEM_INT, 0 - value);
  return tn__build_push(build, value > INT64_MAX ? TN__ITEM_BIG : TN__ITEM_INT, value);
}

static int push_real(tn__build *build, const char *word) {
  char *end = NULL;
  double real = strtod(word, &end);
  uint64_t bits;
  if (end == word || *end) return tn__build_fault(build, NULL, "expected a value, found \"%s\"", word);
  memcpy(&bits, &real, sizeof bits);
  return tn__build_push(build, TN__ITEM_REAL, bits);
}

static int push_word(json *j) {
  char word[NUMBER_BYTES_MAX + 1];
  TN_TRY(read_word(j, word));
  tn__build *build = j->build;
  if (is_integer(word)) return push_integer(build, word);
  if (strcmp(word, "true") == 0) return tn__build_push(build, TN__ITEM_BOOL, 1);
  if (strcmp(word, "false") == 0) return tn__build_push(build, TN__ITEM_BOOL, 0);
  if (strcmp(word, "null") == 0) return tn__build_push(build, TN__ITEM_NULL, 0);
  return push_real(build, word);
}

/* ---- containers ---------------------------------------------------------------------------------------------------------- */

static char open_kind(const json *j) { return j->kinds.count ? TN_VEC(&j->kinds, char)[j->kinds.count - 1] : '\0'; }

static int open_container(json *j, char kind) {
  TN_TRY(tn__build_object(j->build, kind == '{' ? TN__OBJECT_DICT : TN__OBJECT_LIST));
  TN_TRY(tn__build_mark(j->build));
  j->input->at++;
  return tn__vec_push(&j->kinds, &kind) ? tn__build_no_memory(j->build) : TN_OK;
}

/* Hands over what has come so far. */
static int flush(json *j, size_t at) {
  return open_kind(j) == '{' ? tn__build_set_items(j->build, at) : tn__build_append(j->build, at);
}

static int close_container(json *j) {
  size_t at = 0;
  TN_TRY(tn__build_unmark(j->build, &at));
  TN_TRY(flush(j, at));
  j->kinds.count--;
  j->input->at++;
  return TN_OK;
}

/* Between two items: long lists are handed over in parts. */
static int next_item(json *j) {
  size_t at = TN_VEC(&j->build->marks, uint32_t)[j->build->marks.count - 1];
  j->input->at++;
  return j->build->stack.count - at >= FLUSH_ITEMS ? flush(j, at) : TN_OK;
}

/* A key and its colon. */
static int read_key(json *j) {
  int c = 0;
  TN_TRY(skip_space(j, &c));
  if (c != '"') return unexpected(j, c, "a key in quotes");
  j->build->offset = tn__input_offset(j->input);
  TN_TRY(read_text(j));
  TN_TRY(skip_space(j, &c));
  if (c != ':') return unexpected(j, c, "':' after a key");
  j->input->at++;
  return TN_OK;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

/* One value, or the beginning of one: then *out_opened is 1. */
static int read_value(json *j, int *out_opened) {
  int c = 0;
  *out_opened = 0;
  TN_TRY(skip_space(j, &c));
  j->build->offset = tn__input_offset(j->input);
  if (c == '"') return read_text(j);
  if (c != '{' && c != '[') return push_word(j);
  *out_opened = 1;
  return open_container(j, (char)c);
}

/* After a value: what may follow it, up to where the next one begins.  *out_done: nothing may. */
static int read_between(json *j, int just_opened, int *out_done) {
  int c = 0;
  for (;; just_opened = 0) {
    char kind = open_kind(j);
    *out_done = kind == '\0';
    if (*out_done) return TN_OK;
    TN_TRY(skip_space(j, &c));
    j->build->offset = tn__input_offset(j->input);
    if (c == (kind == '{' ? '}' : ']')) {
      TN_TRY(close_container(j));
      continue;
    }
    if (!just_opened) {
      if (c != ',') return unexpected(j, c, kind == '{' ? "',' or '}'" : "',' or ']'");
      TN_TRY(next_item(j));
    }
    return kind == '{' ? read_key(j) : TN_OK;
  }
}

static int read_all(json *j) {
  int done = 0, opened = 0, c = 0;
  if (tn__input_left(j->input) >= 3 && memcmp(j->input->at, "\xef\xbb\xbf", 3) == 0) j->input->at += 3;
  while (!done) {
    TN_TRY(read_value(j, &opened));
    TN_TRY(read_between(j, opened, &done));
  }
  TN_TRY(skip_space(j, &c));
  return c < 0 ? TN_OK : unexpected(j, c, "the end");
}

int tn__json_read(tn__build *build, tn__input *input) {
  json j = {.build = build, .input = input};
  tn__vec_init(&j.kinds, 1);
  tn__vec_init(&j.decoded, 1);
  build->bytes_read = tn__input_offset(input) + tn__input_left(input);
  int rc = read_all(&j);
  tn__vec_deinit(&j.decoded);
  tn__vec_deinit(&j.kinds);
  return rc;
}

/* pickle_lines.c -- the opcodes of protocol 0 whose operand is a line of text.  See pickle_lines.h. */
#include "snapshot/pickle_lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "snapshot/opcodes.h"
#include "snapshot/utf8.h"

enum { LINE_BYTES_MAX = 16 << 20, NUMBER_BYTES_MAX = 64 };

/* The line without its end, all of it at hand and taken from the input. */
static int read_line(tn__pickle *pickle, const char **out, size_t *out_len) {
  tn__input *input = pickle->input;
  for (size_t seen = 0;;) {
    size_t left = tn__input_left(input);
    const uint8_t *end = left > seen ? memchr(input->at + seen, '\n', left - seen) : NULL;
    if (end) {
      *out = (const char *)input->at;
      *out_len = (size_t)(end - input->at);
      input->at = end + 1;
      return TN_OK;
    }
    seen = left;
    if (seen > LINE_BYTES_MAX) return tn__build_fault(pickle->build, NULL, "a line of more than 16 MiB");
    TN_TRY(tn__pickle_fill(pickle, 2 * left + 1));
    if (tn__input_left(input) == left) return tn__pickle_cut_short(pickle);
  }
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

static int not_a_number(tn__pickle *pickle) {
  return tn__build_fault(pickle->build, NULL, "expected a number on a line of its own");
}

static int push_integer(tn__pickle *pickle, const char *digits, size_t len) {
  int negative = len > 0 && *digits == '-';
  uint64_t value = 0, limit = negative ? (uint64_t)INT64_MAX + 1 : UINT64_MAX;
  size_t at = (size_t)negative;
  if (at == len) return not_a_number(pickle);
  for (int too_long = 0; at < len; at++) {
    if (digits[at] < '0' || digits[at] > '9') return not_a_number(pickle);
    uint64_t digit = (uint64_t)(digits[at] - '0');
    too_long = too_long || value > (limit - digit) / 10;
    if (too_long && at + 1 == len) return tn__build_push(pickle->build, TN__ITEM_OTHER, 0);
    if (!too_long) value = value * 10 + digit;
  }
  if (negative) return tn__build_push(pickle->build, TN__ITEM_INT, 0 - value);
  return tn__build_push(pickle->build, value > INT64_MAX ? TN__ITEM_BIG : TN__ITEM_INT, value);
}

/* 00 and 01 are how protocol 0 writes False and True. */
static int push_int_line(tn__pickle *pickle, const char *line, size_t len) {
  if (len == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
    return tn__build_push(pickle->build, TN__ITEM_BOOL, (uint64_t)(line[1] - '0'));
  return push_integer(pickle, line, len);
}

static int push_real(tn__pickle *pickle, const char *line, size_t len) {
  char copy[NUMBER_BYTES_MAX + 1] = {0}, *end = NULL;
  if (len == 0 || len > NUMBER_BYTES_MAX) return not_a_number(pickle);
  memcpy(copy, line, len);
  double real = strtod(copy, &end);
  uint64_t bits;
  if (end != copy + len) return not_a_number(pickle);
  memcpy(&bits, &real, sizeof bits);
  return tn__build_push(pickle->build, TN__ITEM_REAL, bits);
}

static int memo_index(tn__pickle *pickle, const char *line, size_t len, uint64_t *out) {
  uint64_t index = 0;
  if (len == 0 || len > 18) return not_a_number(pickle);
  for (size_t i = 0; i < len; i++) {
    if (line[i] < '0' || line[i] > '9') return not_a_number(pickle);
    index = index * 10 + (uint64_t)(line[i] - '0');
  }
  *out = index;
  return TN_OK;
}

/* ---- texts --------------------------------------------------------------------------------------------------------------- */

/* digits of hexadecimal at at, -1 when they are none. */
static int64_t hex(const char *at, size_t left, size_t digits) {
  int64_t value = 0;
  if (left < digits) return -1;
  for (size_t i = 0; i < digits; i++) {
    int c = at[i] | 0x20;
    int digit = at[i] >= '0' && at[i] <= '9' ? at[i] - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return -1;
    value = value << 4 | digit;
  }
  return value;
}

/* raw-unicode-escape: Latin-1, with \uXXXX and \UXXXXXXXX.  The code point at at and how many bytes it takes, 0 when it is none. */
static size_t raw_unicode(const char *at, size_t left, uint32_t *out) {
  size_t digits = left > 1 && at[1] == 'u' ? 4 : left > 1 && at[1] == 'U' ? 8 : 0;
  *out = (unsigned char)*at;
  if (*at != '\\' || digits == 0) return 1;
  int64_t code = hex(at + 2, left - 2, digits);
  if (code < 0 || code > 0x10ffff) return 0;
  *out = (uint32_t)code;
  return 2 + digits;
}

/* repr() of a string of bytes.  The byte at at and how many it takes, 0 when it is none. */
static size_t quoted_byte(const char *at, size_t left, uint32_t *out) {
  static const char names[] = "\\'\"nrtabfv", codes[] = "\\'\"\n\r\t\a\b\f\v";
  *out = (unsigned char)*at;
  if (*at != '\\') return 1;
  if (left < 2) return 0;
  if (at[1] == 'x') {
    int64_t code = hex(at + 2, left - 2, 2);
    *out = (uint32_t)code;
    return code < 0 ? 0 : 4;
  }
  const char *name = at[1] ? strchr(names, at[1]) : NULL;
  if (name) *out = (unsigned char)codes[name - names];
  return name ? 2 : 0;
}

static int decode(tn__pickle *pickle, const char *line, size_t len, int is_unicode, tn_vec *out) {
  for (size_t at = 0; at < len;) {
    uint32_t code = 0;
    size_t step = is_unicode ? raw_unicode(line + at, len - at, &code) : quoted_byte(line + at, len - at, &code);
    if (step == 0) return tn__build_fault(pickle->build, NULL, "a text has an escape that is none, %zu bytes into it", at);
    char bytes[4] = {(char)code};
    size_t put = is_unicode ? tn__utf8_put(code, bytes) : 1;
    if (tn__vec_append(out, bytes, put)) return tn__build_no_memory(pickle->build);
    at += step;
  }
  return TN_OK;
}

static int push_text(tn__pickle *pickle, const char *line, size_t len, int is_unicode) {
  tn_vec text;
  tn__vec_init(&text, 1);
  int rc = decode(pickle, line, len, is_unicode, &text);
  if (!rc) rc = tn__build_text(pickle->build, text.count ? text.data : "", text.count);
  tn__vec_deinit(&text);
  return rc;
}

static int push_quoted(tn__pickle *pickle, const char *line, size_t len) {
  if (len < 2 || (line[0] != '\'' && line[0] != '"') || line[len - 1] != line[0])
    return tn__build_fault(pickle->build, NULL, "expected a text in quotes");
  return push_text(pickle, line + 1, len - 2, 0);
}

int tn__pickle_line(tn__pickle *pickle) {
  const char *line = NULL;
  size_t len = 0;
  uint64_t index = 0;
  TN_TRY(read_line(pickle, &line, &len));
  switch (pickle->opcode) {
    case TN__OP_INT: return push_int_line(pickle, line, len);
    case TN__OP_LONG: return push_integer(pickle, line, len && line[len - 1] == 'L' ? len - 1 : len);
    case TN__OP_FLOAT: return push_real(pickle, line, len);
    case TN__OP_STRING: return push_quoted(pickle, line, len);
    case TN__OP_UNICODE: return push_text(pickle, line, len, 1);
    case TN__OP_GET: TN_TRY(memo_index(pickle, line, len, &index)); return tn__memo_get(pickle, index);
    default: TN_TRY(memo_index(pickle, line, len, &index)); return tn__memo_put(pickle, index);
  }
}

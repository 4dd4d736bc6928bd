/* html_pack.c -- numbers and text in the form in which a page carries them.  See html_pack.h. */
#include "report/html_pack.h"

#include <string.h>

void tn__pack_varint(tn_text *out, uint64_t value) {
  char bytes[10];
  size_t len = 0;
  for (; value >= 0x80; value >>= 7) bytes[len++] = (char)((value & 0x7f) | 0x80);
  bytes[len++] = (char)value;
  tn__text_add_n(out, bytes, len);
}

void tn__pack_column(tn_text *out, const uint64_t *values, size_t count, uint64_t unit) {
  uint64_t before = 0;
  for (size_t i = 0; i < count;) {
    uint64_t value = values[i] / unit;
    tn__pack_varint(out, tn__pack_zigzag(value - before));
    size_t same = i + 1;
    if (value == before) {
      while (same < count && values[same] / unit == value) same++;
      tn__pack_varint(out, same - i - 1);
    }
    before = value;
    i = same;
  }
}

/* ---- base64 -------------------------------------------------------------------------------------------------------------- */

static void base64_group(const unsigned char *in, size_t count, char out[4]) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t bits = (uint32_t)in[0] << 16 | (count > 1 ? (uint32_t)in[1] << 8 : 0) | (count > 2 ? in[2] : 0);
  for (size_t i = 0; i < 4; i++) out[i] = i <= count ? digits[bits >> (18 - 6 * i) & 63] : '=';
}

void tn__pack_base64(tn_text *out, const void *data, size_t bytes) {
  const unsigned char *in = data;
  char line[1024];
  size_t len = 0;
  for (size_t at = 0; at < bytes; at += 3) {
    base64_group(in + at, bytes - at < 3 ? bytes - at : 3, line + len);
    len += 4;
    if (len < sizeof line) continue;
    tn__text_add_n(out, line, len);
    len = 0;
  }
  tn__text_add_n(out, line, len);
}

/* ---- strings ------------------------------------------------------------------------------------------------------------- */

/* Length of the well-formed UTF-8 sequence at text, 0 when there is none: overlong forms, surrogates and what lies beyond
 * U+10FFFF are not (Unicode 15, table 3-7). */
static size_t utf8_len(const unsigned char *text) {
  unsigned char first = text[0], low = 0x80, high = 0xbf;
  size_t len = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  for (size_t i = 1; i < len; i++, low = 0x80, high = 0xbf)
    if (text[i] < low || text[i] > high) return 0; /* a NUL too */
  return len;
}

static int must_escape(unsigned char c) { return c < 0x20 || c == 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&'; }

void tn__pack_string(tn_text *out, const char *add) {
  const unsigned char *at = (const unsigned char *)add;
  tn__text_add_n(out, "\"", 1);
  while (*at) {
    const unsigned char *run = at;
    size_t len = 0;
    while (*at && !must_escape(*at) && (len = utf8_len(at)) > 0) at += len;
    tn__text_add_n(out, (const char *)run, (size_t)(at - run));
    if (!*at) break;
    if (must_escape(*at))
      tn__text_printf(out, "\\u%04x", *at);
    else
      tn__text_add(out, "\\ufffd");
    at++;
  }
  tn__text_add_n(out, "\"", 1);
}

/* utf8.c -- whether bytes are UTF-8.  See utf8.h. */
#include "snapshot/utf8.h"

#include <string.h>

/* Eight bytes without a high bit, and none of them NUL: nearly every stretch of nearly every text. */
static int is_plain(const char *text) {
  const uint64_t high = 0x8080808080808080u, ones = 0x0101010101010101u;
  uint64_t word;
  memcpy(&word, text, sizeof word);
  return ((word | (word - ones)) & high) == 0;
}

static int is_tail(unsigned char c) { return (c & 0xc0) == 0x80; }

/* Length of the sequence that begins here, 0 when there is none; surrogates count. */
static size_t sequence(const unsigned char *c, size_t left) {
  if (c[0] < 0x80) return 1;
  if (c[0] < 0xc2 || c[0] > 0xf4) return 0;
  size_t len = c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
  if (left < len) return 0;
  for (size_t i = 1; i < len; i++)
    if (!is_tail(c[i])) return 0;
  if (c[0] == 0xe0 && c[1] < 0xa0) return 0; /* shorter forms exist */
  if (c[0] == 0xf0 && c[1] < 0x90) return 0;
  if (c[0] == 0xf4 && c[1] > 0x8f) return 0; /* beyond U+10FFFF */
  return len;
}

static int is_surrogate(const unsigned char *c, size_t len) { return len == 3 && c[0] == 0xed && c[1] >= 0xa0; }

enum tn__utf8 tn__utf8_check(const char *text, size_t len, size_t *out_bad) {
  enum tn__utf8 found = TN__UTF8_GOOD;
  for (size_t at = 0; at < len;) {
    if (len - at >= 8 && is_plain(text + at)) {
      at += 8;
      continue;
    }
    const unsigned char *c = (const unsigned char *)text + at;
    size_t step = sequence(c, len - at);
    if (step == 0) {
      *out_bad = at;
      return TN__UTF8_BAD;
    }
    if (*c == 0 || is_surrogate(c, step)) found = TN__UTF8_MENDABLE;
    at += step;
  }
  return found;
}

void tn__utf8_mend(char *text, size_t len) {
  for (size_t at = 0; at < len;) {
    unsigned char *c = (unsigned char *)text + at;
    size_t step = sequence(c, len - at);
    if (*c == 0) *c = '?';
    if (is_surrogate(c, step)) memcpy(c, "\xef\xbf\xbd", 3);
    at += step;
  }
}

size_t tn__utf8_put(uint32_t code, char out[4]) {
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  size_t len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned char heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = len; i-- > 1; code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
  out[0] = (char)(heads[len] | code);
  return len;
}

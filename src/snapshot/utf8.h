/* utf8.h -- whether bytes are UTF-8, and mending what Python allows beyond it.
 *
 * Callers: build.c, json.c.  Thread-safe: no state. */
#ifndef TN_SNAPSHOT_UTF8_H
#define TN_SNAPSHOT_UTF8_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tn__utf8 {
  TN__UTF8_GOOD,
  TN__UTF8_MENDABLE, /* holds a NUL or a lone surrogate */
  TN__UTF8_BAD
};

/* *out_bad: where it goes wrong. */
enum tn__utf8 tn__utf8_check(const char *text, size_t len, size_t *out_bad);
/* NUL becomes '?', a lone surrogate U+FFFD; the length stays. */
void tn__utf8_mend(char *text, size_t len);
/* Writes the code point (below 0x110000, surrogates too) and returns its length, 1 to 4. */
size_t tn__utf8_put(uint32_t code, char out[4]);

#ifdef __cplusplus
}
#endif
#endif

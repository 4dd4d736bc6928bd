/* html_pack.h -- numbers and text in the form in which a page carries them.
 *
 * Why: a million events must fit into a file of a few MB, and no text of a snapshot may be taken for markup.
 * Callers: src/report/html_*.c; viewer/data.js reads what they write.  A tn_text holds bytes here, NUL among them.  Thread-safe. */
#ifndef TN_REPORT_HTML_PACK_H
#define TN_REPORT_HTML_PACK_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seven bits a byte, lowest first; the high bit says that more follow. */
void tn__pack_varint(tn_text *out, uint64_t value);
/* Small for small differences of either sign: 0, -1, 1, -2, 2 ... */
static inline uint64_t tn__pack_zigzag(uint64_t difference) {
  return difference << 1 ^ (difference >> 63 ? UINT64_MAX : 0);
}
/* A column: each value's difference from the one before in units, the first one's from 0; a 0 is followed by the number of
 * further zeros.  Every value must be a multiple of unit. */
void tn__pack_column(tn_text *out, const uint64_t *values, size_t count, uint64_t unit);
/* Base64 without quotes. */
void tn__pack_base64(tn_text *out, const void *data, size_t bytes);
/* A JSON string, quotes included, that cannot end the script element it stands in: < > & are escaped, and what is no UTF-8
 * becomes U+FFFD. */
void tn__pack_string(tn_text *out, const char *add);

#ifdef __cplusplus
}
#endif
#endif

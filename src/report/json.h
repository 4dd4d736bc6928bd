/* json.h -- one member of a JSON object, without what separates it from the next.
 *
 * Callers: src/report.  A failed addition is kept in the text, see base/text.h. */
#ifndef TN_REPORT_JSON_H
#define TN_REPORT_JSON_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline void tn__json_number(tn_text *out, const char *key, uint64_t value) {
  tn__text_printf(out, "\"%s\": %llu", key, (unsigned long long)value);
}

static inline void tn__json_string(tn_text *out, const char *key, const char *value) {
  tn__text_printf(out, "\"%s\": ", key);
  tn__text_json(out, value);
}

#ifdef __cplusplus
}
#endif
#endif

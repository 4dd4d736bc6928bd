/* columns.h -- sizes and names in columns, for reports as text.
 *
 * Callers: explain_text.c, diff_text.c.  Thread-safe: no state. */
#ifndef TN_REPORT_COLUMNS_H
#define TN_REPORT_COLUMNS_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

void tn__column_size(tn_text *out, uint64_t bytes, int width); /* right-aligned */
/* The end of a long name says more than its beginning. */
void tn__column_name(tn_text *out, const char *name, size_t width);
/* "model.py:16 forward (linear)": the op goes first when there is not enough room. */
void tn__column_place(tn_text *out, const char *place, size_t width);
double tn__column_share(uint64_t part, uint64_t whole); /* percent */

#ifdef __cplusplus
}
#endif
#endif

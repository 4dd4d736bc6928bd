/* text.h -- a growable string for reports.
 *
 * Callers: report, plan, the command's help.  A failed allocation is remembered, so a report is written straight down and
 * asked once, at tn__text_take().  Not locked: one thread at a time per text. */
#ifndef TN_BASE_TEXT_H
#define TN_BASE_TEXT_H

#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* data[len] is NUL; data is NULL while nothing has been added. */
typedef struct tn_text {
  char *data;
  size_t len, capacity;
  int failed; /* TN_ENOMEM once an addition was lost; later ones are lost too */
} tn_text;

void tn__text_init(tn_text *text);
void tn__text_deinit(tn_text *text);
void tn__text_printf(tn_text *text, const char *format, ...) TN_PRINTF(2, 3);
void tn__text_add(tn_text *text, const char *add);
void tn__text_add_n(tn_text *text, const char *add, size_t len);
void tn__text_fill(tn_text *text, char with, size_t count);
void tn__text_size(tn_text *text, uint64_t bytes); /* as tn_size_format() */
/* Spaces up to the column (0 = first) of the current line, at least one when the line is longer already and not empty. */
void tn__text_tab(tn_text *text, size_t column);
/* The text in words, wrapped: first line goes on where the line stands, later ones start at indent; no line over width, unless a word
 * is.  A number stays with its unit. */
void tn__text_wrap(tn_text *text, const char *add, size_t indent, size_t width);
void tn__text_json(tn_text *text, const char *add); /* as a JSON string with its quotes; invalid UTF-8 is passed on */
/* The finished string in *out, to be given back by tn_text_free(); "" when nothing was added.  The text is empty and usable
 * after it.  TN_ENOMEM when an addition was lost: *out untouched. */
int tn__text_take(tn_text *text, char **out);
const char *tn__text_view(const tn_text *text); /* until the next addition; "" when empty */

#ifdef __cplusplus
}
#endif
#endif

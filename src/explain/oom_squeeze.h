/* oom_squeeze.h -- text without what logs put into it.  Why: a message comes coloured, tagged with ranks and times, quoted, and
 * broken at any column, in the middle of words too; letters alone survive all of that.
 *
 * Callers: oom_text.c, oom_log.c.  Pure. */
#ifndef TN_EXPLAIN_OOM_SQUEEZE_H
#define TN_EXPLAIN_OOM_SQUEEZE_H

#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lower case, no white space, no quotes or emphasis, no escape sequences, no tags at the beginning of a line, only ASCII.
 * text[len] is NUL; text[i] was from[at[i]]. */
typedef struct tn__squeezed {
  const char *from;
  size_t from_len;
  char *text;
  uint32_t *at;
  size_t len;
} tn__squeezed;

/* from must outlive *out; at most UINT32_MAX bytes of it.  Deinit in any case. */
int tn__squeeze(const char *from, size_t from_len, tn__squeezed *out);
void tn__squeezed_deinit(tn__squeezed *squeezed);

/* How many line breaks lie between the characters i and j, i <= j; 2 stands for a blank line. */
int tn__squeezed_breaks(const tn__squeezed *squeezed, size_t i, size_t j);
/* Does a word begin at i, or end before it? */
int tn__squeezed_is_edge(const tn__squeezed *squeezed, size_t i);

#ifdef __cplusplus
}
#endif
#endif

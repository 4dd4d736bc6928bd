/* oom_heads.h -- the words by which a message is known.
 *
 * Callers: oom_text.c, oom_log.c.  Pure. */
#ifndef TN_EXPLAIN_OOM_HEADS_H
#define TN_EXPLAIN_OOM_HEADS_H

#include "explain/oom_squeeze.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__oom_head {
  const char *words;   /* squeezed */
  uint8_t form;        /* tn_oom_form */
  uint8_t is_soft;     /* lack of memory is one cause among others */
  uint8_t is_word;     /* only as a whole word: letters that others have within */
  const char *backend; /* NULL: the word before says, or nothing does */
  const char *name;    /* as people write it; NULL: the text itself */
} tn__oom_head;

/* The first head at or after from and before end: its place in *out_at.  NULL: none. */
const tn__oom_head *tn__oom_head_next(const tn__squeezed *text, size_t from, size_t end, size_t *out_at);
/* The head that tells most of those in [from, end). */
const tn__oom_head *tn__oom_head_best(const tn__squeezed *text, size_t from, size_t end, size_t *out_at);
/* The device's word before "out of memory" at place at, "cuda"; out of out_size, "" when there is none. */
void tn__oom_head_backend(const tn__squeezed *text, size_t at, char *out, size_t out_size);

#ifdef __cplusplus
}
#endif
#endif

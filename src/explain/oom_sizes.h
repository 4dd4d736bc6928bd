/* oom_sizes.h -- sizes as messages print them, and what the words around one make of it.
 *
 * Callers: oom_text.c.  Pure. */
#ifndef TN_EXPLAIN_OOM_SIZES_H
#define TN_EXPLAIN_OOM_SIZES_H

#include "explain/oom_squeeze.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__oom_token { /* "19.62 MiB" */
  size_t at, end;              /* in the squeezed text */
  tn_oom_size size;
  int is_untold; /* 2^60 bytes or more: a missing value read as a number */
} tn__oom_token;

enum {
  TN__OOM_READ_PROCESS = TN_OOM_READING_COUNT, /* of a process of the list, whose number is in *out_pid */
  TN__OOM_READ_IGNORED,                        /* known, and of no use here */
  TN__OOM_READ_NOTHING
};

/* The first size at or after from and before end.  0: none. */
int tn__oom_token_next(const tn__squeezed *text, size_t from, size_t end, tn__oom_token *out);
/* What it is the size of: tn_oom_reading, or TN__OOM_READ_...; *out_end is where the words that tell it end.  Loose words ("free")
 * count only when is_near: next to what else was read. */
int tn__oom_token_reading(const tn__squeezed *text, const tn__oom_token *token, int is_near, uint64_t *out_pid, size_t *out_end);

#ifdef __cplusplus
}
#endif
#endif

/* oom_text.h -- one out-of-memory message, read.
 *
 * A message is known by its words (oom_heads.h); each size in it by the words around it (oom_sizes.h), whatever the order and the
 * generation.  So a wording that PyTorch has not had yet is read as far as its phrases are known, and what was not is counted.
 *
 * Callers: oom_log.c.  Pure. */
#ifndef TN_EXPLAIN_OOM_TEXT_H
#define TN_EXPLAIN_OOM_TEXT_H

#include "explain/oom_squeeze.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first message that begins in [from, end), with nothing taken from before from; what follows it is looked at beyond end.
 * *out_end is where it ends.  0: none. */
int tn__oom_read(const tn__squeezed *text, size_t from, size_t end, tn_oom *out, size_t *out_end);

/* The rank that a line's tags tell ("[rank3]:", "(Worker rank=3 pid=7)", "3: "); -1: none. */
int32_t tn__oom_rank(const char *line, size_t len);

/* What follows from the readings: reserved, unallocated, which of the processes is this one. */
void tn__oom_settle(tn_oom *oom);

static inline int tn__oom_knows(const tn_oom *oom, enum tn_oom_reading reading) { return (int)(oom->known >> reading & 1); }

#ifdef __cplusplus
}
#endif
#endif

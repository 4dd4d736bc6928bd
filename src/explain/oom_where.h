/* oom_where.h -- what the program was doing when memory ran out, by the traceback before the message.
 *
 * Callers: oom_log.c.  Pure. */
#ifndef TN_EXPLAIN_OOM_WHERE_H
#define TN_EXPLAIN_OOM_WHERE_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills oom->moments, oom->place and TN_OOM_EXPANDABLE from text[0 ... end), where the message ends at end and begins at begin. */
void tn__oom_where(const char *text, size_t begin, size_t end, tn_oom *oom);

#ifdef __cplusplus
}
#endif
#endif

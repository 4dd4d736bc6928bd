/* accounting.h -- where reserved memory is at a moment, by cause, and who keeps segments from being given back.
 *
 * Callers: analysis.c; tests.  Thread-safe: no state. */
#ifndef TN_EXPLAIN_ACCOUNTING_H
#define TN_EXPLAIN_ACCOUNTING_H

#include "explain/analysis.h"
#include "explain/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* level: the walk's at the layout's moment.  stream: the one that asks for memory; free memory of others is of no use to it. */
void tn__account(tn__accounting *accounting, const tn__layout *layout, tn__level level, uint32_t stream);
/* The cause why a hole is not used, as tn__account() counts it: a tn__part.  *out_idle: the part of it (expandable segments) that
 * counts as IDLE, because whole pages can be given back. */
enum tn__part tn__hole_part(const tn__layout *layout, const tn__hole *hole, uint32_t stream, uint64_t *out_idle);
/* tn__pin rows into an initialised vector, most free bytes first.  Only holes that count as HOLES or OTHER_STREAMS. */
int tn__pins_gather(tn_vec *pins, const tn__layout *layout, const tn__stacks *stacks, uint32_t stream);

#ifdef __cplusplus
}
#endif
#endif

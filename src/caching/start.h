/* start.h -- a model in the state that a history starts from.
 *
 * Callers: exact.c.  Not locked: one thread at a time per model. */
#ifndef TN_CACHING_START_H
#define TN_CACHING_START_H

#include "caching/caching.h"
#include "caching/history.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Size of the device that gives expandable segments as much address space as they can have without meeting what lies above them. */
uint64_t tn__start_total_bytes(const tn__history *history);
/* Puts segments and blocks of the start into an empty model; addrs[life] is where each lies.  Statistics begin there.  bytes[life] is
 * the size of a block that the history does not know, 0 = by the rules.  TN_EFORMAT, TN_EINVAL: they do not fit together. */
int tn__start_place(const tn__history *history, tn_caching *caching, const uint64_t *bytes, tn_addr *addrs);

#ifdef __cplusplus
}
#endif
#endif

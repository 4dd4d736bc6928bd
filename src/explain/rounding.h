/* rounding.h -- how many bytes the caching allocator takes for a request, under the settings that a snapshot names.
 *
 * Why: entries say what was requested; only the final blocks say what was taken.
 * Callers: src/explain.  Thread-safe: no state. */
#ifndef TN_EXPLAIN_ROUNDING_H
#define TN_EXPLAIN_ROUNDING_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TN__ROUNDING_INTERVALS = 16 }; /* of roundup_power2_divisions: 1 MiB ... 64 GiB */

typedef struct tn__rounding {
  uint32_t divisions[TN__ROUNDING_INTERVALS]; /* 0 or 1: steps of 512 bytes */
  uint64_t max_split_bytes;                   /* blocks from here on are not split; UINT64_MAX: no limit */
  uint32_t expandable;                        /* expandable_segments is on */
  uint32_t known;                             /* 0: the snapshot names no settings, and these are the defaults */
} tn__rounding;

tn__rounding tn__rounding_of(const tn_trace *trace);
uint64_t tn__rounded(const tn__rounding *rounding, uint64_t requested_bytes); /* UINT64_MAX when it would overflow */
/* 1: a block of the large pool that has rest_bytes to spare keeps them, because they are too few to be split off. */
int tn__rounding_keeps_rest(const tn__rounding *rounding, uint64_t rounded_bytes, uint64_t rest_bytes);

#ifdef __cplusplus
}
#endif
#endif

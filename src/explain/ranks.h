/* ranks.h -- a set of small numbers with "the next one from here" in both directions: a tree of 64-bit words.
 *
 * Why: the addresses of a history are known beforehand, so a sorted table turns them into numbers, and neighbours in memory are
 * then a few word operations away, where a search tree would miss the cache at each of its levels.
 * Callers: src/explain.  Not locked: one thread at a time per set. */
#ifndef TN_EXPLAIN_RANKS_H
#define TN_EXPLAIN_RANKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TN__RANKS_LEVELS = 6 }; /* 64^6 numbers are more than 2^32 */

/* Level 0 has a bit for each number; above it, a bit says that a word below is not zero. */
typedef struct tn__ranks {
  uint64_t *words; /* all levels, one after the other */
  size_t level_at[TN__RANKS_LEVELS];
  int levels;
  uint32_t limit;
} tn__ranks;

int tn__ranks_init(tn__ranks *ranks, uint32_t limit); /* numbers below limit; TN_ENOMEM: nothing to deinit */
void tn__ranks_deinit(tn__ranks *ranks);
void tn__ranks_add(tn__ranks *ranks, uint32_t number);
void tn__ranks_remove(tn__ranks *ranks, uint32_t number);
int tn__ranks_has(const tn__ranks *ranks, uint32_t number);
uint32_t tn__ranks_from(const tn__ranks *ranks, uint32_t number);  /* the first at or above it; TN_NONE */
uint32_t tn__ranks_up_to(const tn__ranks *ranks, uint32_t number); /* the last at or below it; TN_NONE */

#ifdef __cplusplus
}
#endif
#endif

/* block.h -- a piece of a segment, and where blocks come from.
 *
 * Callers: src/caching only.  Blocks never move, so pointers to them last until they are given back; a replay makes and drops
 * thousands, so they come from chunks, not from malloc.  Not locked. */
#ifndef TN_CACHING_BLOCK_H
#define TN_CACHING_BLOCK_H

#include "base/vec.h"
#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tn__block_state {
  TN__BLOCK_FREE = 1, /* in its pool's free order */
  TN__BLOCK_LIVE,     /* given out: in the model's map of held addresses */
  TN__BLOCK_PENDING,  /* freed while another stream may use it: in that map, and in the model's list */
  TN__BLOCK_UNMAPPED  /* address space without memory, expandable segments only: in its pool's unmapped order */
};

/* Blocks tile their segment: b->addr + b->bytes == b->next->addr.  Neighbours are never both free, nor both unmapped.
 * See tn__caching_check(). */
typedef struct tn__block {
  tn_addr addr;
  uint64_t bytes;
  uint64_t requested;             /* live and pending blocks only */
  struct tn__block *prev, *next;  /* neighbours in the segment, NULL at its ends */
  struct tn__block *left, *right; /* children in an order, see order.h; right: the next pending one */
  uint64_t since;   /* free: its pool's searches when it became so; pending: the model's allocs */
  uint32_t rank;    /* place among parents and children in an order */
  uint32_t stream;
  uint32_t id;      /* place in the store, for the map of held addresses */
  uint32_t pool;    /* place in the model's table */
  uint8_t state;    /* tn__block_state */
  uint8_t is_expandable; /* its segment is */
  uint8_t is_shared; /* live: another stream uses it too */
} tn__block;

static inline int tn__block_is_split(const tn__block *block) { return block->prev != NULL || block->next != NULL; }

typedef struct tn__block_store {
  tn_vec chunks;     /* tn__block *, each to an array of one size */
  tn__block *spare;  /* given back, linked by next */
  size_t spare_count;
} tn__block_store;

void tn__block_store_init(tn__block_store *store);
void tn__block_store_deinit(tn__block_store *store);
/* Makes sure that the next count calls of tn__block_take() succeed: an operation asks once, before it changes anything. */
int tn__block_store_reserve(tn__block_store *store, size_t count);
tn__block *tn__block_take(tn__block_store *store); /* zeroed but for its id; the store must have been asked */
void tn__block_give(tn__block_store *store, tn__block *block);
tn__block *tn__block_by_id(const tn__block_store *store, uint32_t id);

#ifdef __cplusplus
}
#endif
#endif

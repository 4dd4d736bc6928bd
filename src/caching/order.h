/* order.h -- blocks in order of (stream, bytes, address): what best fit searches.
 *
 * A treap: a search tree by key that is a heap by random rank, so it stays balanced without bookkeeping.  The links lie in the
 * blocks; nothing is allocated.  Callers: src/caching only.  Not locked. */
#ifndef TN_CACHING_ORDER_H
#define TN_CACHING_ORDER_H

#include "caching/block.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__order_key {
  uint32_t stream;
  uint64_t bytes; /* 0 in an order that is not by size */
  tn_addr addr;
} tn__order_key;

/* A block's stream, bytes and addr do not change while it is in an order.  A parent's rank is not below its children's. */
typedef struct tn__order {
  tn__block *root;
  size_t count;
  uint32_t random; /* state of the ranks' generator: the same operations give the same tree */
  int by_bytes;    /* 0: by (stream, address) */
} tn__order;

void tn__order_init(tn__order *order, int by_bytes);
void tn__order_insert(tn__order *order, tn__block *block);
void tn__order_remove(tn__order *order, tn__block *block); /* which must be in it */
/* The first block that is not before the key, or NULL. */
tn__block *tn__order_from(const tn__order *order, tn__order_key key);
/* The last block that is before the key, or NULL. */
tn__block *tn__order_before(const tn__order *order, tn__order_key key);
tn__block *tn__order_first(const tn__order *order);
/* The block after this one, or NULL. */
tn__block *tn__order_after(const tn__order *order, const tn__block *block);
int tn__order_has(const tn__order *order, const tn__block *block);

#ifdef __cplusplus
}
#endif
#endif

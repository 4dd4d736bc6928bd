/* builder.h -- a chronicle in the making: what chronicle.c matches forward and sizes.c measures backward.
 *
 * Callers: those two.  Not locked: one thread at a time. */
#ifndef TN_EXPLAIN_BUILDER_H
#define TN_EXPLAIN_BUILDER_H

#include "base/map.h"
#include "caching/caching.h"
#include "explain/chronicle.h"
#include "explain/ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An entry that matters for sizes: of a large block, or of a segment (place TN_NONE). */
typedef struct tn__large {
  uint32_t entry, place;
} tn__large;

/* Places are the addresses of blocks, numbered as they appear.  Ranks are those of large blocks and of segments, by address. */
typedef struct tn__builder {
  tn__chronicle *history;
  const tn_segment *segments; /* of the device, at the end */
  const tn_segment_block *blocks;
  tn_map places;      /* address -> place */
  tn_vec addrs;       /* tn_addr by place */
  tn_vec live;        /* uint32_t by place: the span there; TN_NONE */
  tn_vec before;      /* tn__span, from before the history */
  tn_vec large;       /* tn__large, in the order of entries */
  /* While going back: */
  tn_vec rank_addrs;  /* tn_addr by rank */
  uint32_t *rank_of;  /* by place; TN_NONE: of no large block */
  uint32_t *held;     /* by rank: the large span there; TN_NONE */
  tn__ranks held_set, segment_set;
  uint64_t *segment_bytes; /* by rank, of those in segment_set */
  uint8_t *is_exact;       /* by rank: blocks there keep no remainder (small pool) */
} tn__builder;

/* 1: of the large pool, whose blocks may keep a remainder. */
static inline int tn__builder_is_large(const tn__builder *b, const tn__span *span) {
  return tn__round(&b->history->conf, span->requested_bytes) > TN__SMALL_BYTES_MAX;
}

static inline uint32_t *tn__builder_live(tn__builder *b, uint32_t place) { return &TN_VEC(&b->live, uint32_t)[place]; }

/* sizes.c: the bytes of every span, once they are matched and joined. */
int tn__builder_sizes(tn__builder *b);
void tn__builder_sizes_deinit(tn__builder *b);

#ifdef __cplusplus
}
#endif
#endif

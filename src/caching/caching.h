/* caching.h -- PyTorch's CUDA caching allocator as a pure model: its inside.
 *
 * Callers: src/caching; src/explain for tn__round() and the constants; the others use tonnage.h.  Not locked: one thread at a time per model.
 *
 *   segment   what the driver was asked for: a cudaMalloc, or the address space of an expandable segment
 *   block     a piece of a segment: live, pending, free, or (expandable) unmapped
 *   pool      the blocks of segments for requests up to 1 MiB (small) or above it (large), PyTorch's own or of one CUDA graph or
 *             MemPool; streams never share blocks
 *
 * Accounting, at any time:
 *   reserved_bytes  = all live, pending and free blocks          (unmapped ones have no memory)
 *   allocated_bytes = all live blocks
 *   active_bytes    = allocated_bytes + all pending blocks       (freed, but another stream may still use them)
 *   requested_bytes = what the callers of the active blocks asked for
 *   inactive_split  = free blocks with a neighbour, not counted in expandable segments
 * tn__caching_check() verifies them, and the invariants of block.h, order.h and below. */
#ifndef TN_CACHING_CACHING_H
#define TN_CACHING_CACHING_H

#include "base/map.h"
#include "caching/block.h"
#include "caching/order.h"
#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TN__KIB ((uint64_t)1 << 10)
#define TN__MIB ((uint64_t)1 << 20)

/* c10/core/AllocatorConfig.h */
#define TN__BLOCK_BYTES_MIN ((uint64_t)512)
#define TN__SMALL_BYTES_MAX (1 * TN__MIB)      /* requests above it are large */
#define TN__SMALL_SEGMENT_BYTES (2 * TN__MIB)  /* also the page of small expandable segments */
#define TN__LARGE_SEGMENT_BYTES (20 * TN__MIB) /* also the page of large expandable segments; large_segment_size_mb changes it */
#define TN__LARGE_EXACT_MIN (10 * TN__MIB)     /* requests from here on get a segment of their own size, in steps of ... */
#define TN__LARGE_EXACT_STEP (2 * TN__MIB)

/* More than any device: keeps sums of sizes far from overflow. */
#define TN__BYTES_MAX ((uint64_t)1 << 56)
#define TN__POOLS_MAX 65536u /* of graphs and MemPools */

/* Lies at 2 * id + is_small in the model's table. */
typedef struct tn__pool {
  tn__order free;     /* by stream, size, address */
  tn__order unmapped; /* by stream, address */
  uint64_t page_bytes;
  uint64_t searches;  /* under garbage collection: the clock by which free blocks age */
  uint32_t id;        /* 0 = PyTorch's own */
  uint8_t is_small;
  uint8_t is_freeable; /* its id is among the model's freeable ones */
} tn__pool;

/* first is the block at addr; it stays the same object as long as the segment lives, because splits and merges keep the left. */
typedef struct tn__segment {
  tn_addr addr;
  uint64_t bytes;
  uint32_t stream;
  uint32_t reserved;
  tn__block *first;
} tn__segment;

struct tn_caching {
  tn_caching_config config;
  uint64_t limit_bytes;       /* of reserved memory */
  uint64_t max_split_bytes;   /* UINT64_MAX = none */
  uint64_t max_rounding_bytes, large_segment_bytes;
  tn_vec pools;      /* tn__pool, in pairs */
  tn_vec freeable;   /* uint32_t: ids of pools whose graph or MemPool is gone, in the order in which they give memory back */
  tn_vec segments;   /* tn__segment, by address, disjoint */
  tn_map held;       /* address -> block id, of live and pending blocks */
  tn__block *pending, **pending_end; /* in the order they were freed, linked by right */
  tn__block_store store;
  uint64_t allocs;    /* calls so far: the clock of event_delay */
  tn_addr addr_last; /* when config has no segment_addr: of the last segment; the next goes below it */
  tn_caching_stats stats;
  uint64_t limit_needed; /* see tn_caching_limit_needed() */
};

static inline tn__pool *tn__pool_of(const tn_caching *caching, const tn__block *block) {
  return &TN_VEC(&caching->pools, tn__pool)[block->pool];
}

/* Its place in the table, which is what its blocks call it. */
static inline uint32_t tn__pool_index(const tn__pool *pool) { return 2 * pool->id + pool->is_small; }

static inline uint64_t tn__round_up(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

/* ---- stats.c ------------------------------------------------------------------------------------------------------------- */

void tn__stat_add(tn_stat *stat, uint64_t amount);
void tn__stat_sub(tn_stat *stat, uint64_t amount);
void tn__stat_change(tn_stat *stat, int64_t amount); /* adds, or takes away; 0 leaves no trace */
void tn__count_alloc(tn_caching *caching, const tn__block *block);
void tn__count_free(tn_caching *caching, const tn__block *block);     /* it was asked for: no longer allocated */
void tn__count_complete(tn_caching *caching, const tn__block *block); /* no longer active either */

/* ---- rounding.c ---------------------------------------------------------------------------------------------------------- */

/* What a request takes under these settings; bytes > 0. */
uint64_t tn__round(const tn_conf *conf, uint64_t bytes);
/* What the driver is asked for to serve a rounded size. */
uint64_t tn__segment_bytes(const tn_caching *caching, uint64_t rounded);

void tn__reserved_add(tn_caching *caching, uint64_t bytes);

/* ---- block and its neighbours: caching.c --------------------------------------------------------------------------------- */

/* Both pools of an id, made when they are new.  *out is the one for requests of that kind; growing the table moves them all. */
int tn__pool_get(tn_caching *caching, uint32_t id, int is_small, tn__pool **out);
/* Puts a free block into its order; it is as old as this moment. */
void tn__pool_put(tn__pool *pool, tn__block *block);
/* Cuts block after bytes; returns the rest, a new block of the same state that is in no order yet. */
tn__block *tn__block_split(tn_caching *caching, tn__block *block, uint64_t bytes);
/* Joins block with neighbours of its own state, taking them out of order; block itself must be in none.  Returns the joined
 * block; *out_merged (may be NULL) counts the neighbours. */
tn__block *tn__block_merge(tn_caching *caching, tn__order *order, tn__block *block, int *out_merged);
/* Whether a request would be served without new memory. */
int tn__caching_fits(const tn_caching *caching, uint32_t pool, uint64_t bytes, uint32_t stream);
/* A live block, no longer counted as allocated, waits for its streams. */
void tn__pending_add(tn_caching *caching, tn__block *block);
/* Every pending block becomes free: the streams have been waited for. */
void tn__caching_synchronize(tn_caching *caching);

/* ---- segment.c ----------------------------------------------------------------------------------------------------------- */

/* Takes address space for a segment of one block, which is in the given state and in no order.  TN_ELIMIT: the driver has none. */
int tn__segment_new(tn_caching *caching, tn__pool *pool, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream,
                    tn__block **out);
/* The same at a given place.  TN_EINVAL: it is taken. */
int tn__segment_place(tn_caching *caching, const tn__pool *pool, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes,
                      uint32_t stream, tn__block **out);
/* Gives the segment of block, its only one, back, and the block; it is in no order. */
void tn__segment_drop(tn_caching *caching, tn__block *block);
const tn__segment *tn__segment_at(const tn_caching *caching, tn_addr addr); /* the one that holds addr; NULL */
void tn__segment_tell(tn_caching *caching, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream);
/* A free block of at least rounded bytes in new memory, in no order.  TN_ELIMIT: over the limit, or the driver has none. */
int tn__segment_get(tn_caching *caching, tn__pool *pool, uint64_t rounded, uint32_t stream, tn__block **out);
/* cudaFree of a free block that is a whole segment. */
void tn__segment_free(tn_caching *caching, tn__pool *pool, tn__block *block);

/* ---- release.c ----------------------------------------------------------------------------------------------------------- */

/* garbage_collection_threshold: gives back the older half of the unused segments, and again, until enough is free. */
void tn__release_aged(tn_caching *caching);
/* max_split_size_mb: gives back unsplit blocks of the request's pool that make up its size.  0: there were too few. */
int tn__release_available(tn_caching *caching, tn__pool *pool, uint64_t rounded, uint32_t stream);
/* Waits for the streams, then gives all memory back that no live block needs.  TN_ENOMEM: some of it. */
int tn__release_cached(tn_caching *caching);

/* ---- expandable.c -------------------------------------------------------------------------------------------------------- */

uint64_t tn__expandable_bytes(const tn_caching *caching, const tn__pool *pool); /* of one reservation */
int tn__expandable_get(tn_caching *caching, tn__pool *pool, uint64_t rounded, uint32_t stream, tn__block **out);
/* Unmaps the whole pages of a free block, and drops the segment when nothing of it is left. */
int tn__expandable_unmap(tn_caching *caching, tn__pool *pool, tn__block *block);

/* ---- walk.c -------------------------------------------------------------------------------------------------------------- */

/* 1 when every invariant holds; otherwise 0, with the first broken one in *out_broken (may be NULL). */
int tn__caching_check(const tn_caching *caching, const char **out_broken);

#ifdef __cplusplus
}
#endif
#endif

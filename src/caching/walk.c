/* walk.c -- going over the whole model: for callers who want its map, and for its own checker. */
#include "caching/caching.h"

/* ---- the map ------------------------------------------------------------------------------------------------------------- */

static int public_state(const tn__block *block) {
  if (block->state == TN__BLOCK_FREE) return TN_BLOCK_INACTIVE;
  return block->state == TN__BLOCK_LIVE ? TN_BLOCK_ALLOCATED : TN_BLOCK_PENDING_FREE;
}

void tn_caching_walk(const tn_caching *caching, void (*visit)(void *user, tn_addr segment, tn_addr addr, uint64_t bytes,
                                                             uint64_t requested, int state),
                     void *user) {
  for (size_t i = 0; i < caching->segments.count; i++) {
    const tn__segment *segment = tn__vec_at(&caching->segments, i);
    tn_addr start = segment->addr;
    for (const tn__block *block = segment->first; block; block = block->next) {
      if (block->state == TN__BLOCK_UNMAPPED) {
        start = block->addr + block->bytes; /* what follows shows as a segment of its own, as in PyTorch's snapshots */
        continue;
      }
      visit(user, start, block->addr, block->bytes, block->requested, public_state(block));
    }
  }
}

/* ---- the checker --------------------------------------------------------------------------------------------------------- */

/* What the walk adds up, to be compared with the stats and the orders. */
typedef struct sums {
  uint64_t live, live_bytes, oversize;
  uint64_t pending, pending_bytes, requested_bytes;
  uint64_t free, free_bytes, unmapped, split, split_bytes;
  uint64_t fixed, oversize_segments; /* segments of cudaMalloc */
} sums;

static int is_held(const tn_caching *caching, const tn__block *block) {
  return tn__map_get(&caching->held, block->addr) == block->id;
}

static const char *block_fault(const tn_caching *caching, const tn__block *block) {
  const tn__pool *pool = tn__pool_of(caching, block);
  int joins = block->next && block->next->state == block->state;
  switch (block->state) {
    case TN__BLOCK_FREE:
      if (!tn__order_has(&pool->free, block)) return "a free block is not in its order";
      return joins ? "free neighbours are not joined" : NULL;
    case TN__BLOCK_UNMAPPED:
      if (!block->is_expandable) return "an unmapped block in a segment that is not expandable";
      if (!tn__order_has(&pool->unmapped, block)) return "an unmapped block is not in its order";
      return joins ? "unmapped neighbours are not joined" : NULL;
    case TN__BLOCK_LIVE:
    case TN__BLOCK_PENDING:
      if (!is_held(caching, block)) return "a live or pending block is not in the map";
      return block->requested > block->bytes ? "a block is smaller than its request" : NULL;
    default: return "a block without a state";
  }
}

static void block_sum(const tn_caching *caching, sums *all, const tn__block *block) {
  all->requested_bytes += block->requested;
  switch (block->state) {
    case TN__BLOCK_LIVE:
      all->live++;
      all->live_bytes += block->bytes;
      all->oversize += block->bytes >= caching->max_split_bytes;
      break;
    case TN__BLOCK_PENDING:
      all->pending++;
      all->pending_bytes += block->bytes;
      break;
    case TN__BLOCK_FREE:
      all->free++;
      all->free_bytes += block->bytes;
      if (!tn__block_is_split(block) || block->is_expandable) break;
      all->split++;
      all->split_bytes += block->bytes;
      break;
    default: all->unmapped++; break;
  }
}

static const char *segment_fault(const tn_caching *caching, const tn__segment *segment, sums *all) {
  const tn__block *prev = NULL, *first = segment->first;
  tn_addr addr = segment->addr;
  for (const tn__block *block = first; block; prev = block, block = block->next) {
    if (block->addr != addr || block->prev != prev || block->bytes == 0) return "blocks do not tile their segment";
    if (block->stream != segment->stream || block->pool != first->pool || block->is_expandable != first->is_expandable)
      return "a block of another pool or stream";
    const char *fault = block_fault(caching, block);
    if (fault) return fault;
    block_sum(caching, all, block);
    addr += block->bytes;
  }
  all->fixed += !first->is_expandable;
  all->oversize_segments += !first->is_expandable && segment->bytes >= caching->max_split_bytes;
  return addr == segment->addr + segment->bytes ? NULL : "blocks do not fill their segment";
}

static const char *orders_fault(const tn_caching *caching, const sums *all) {
  uint64_t free = 0, unmapped = 0, pending = 0;
  for (size_t i = 0; i < caching->pools.count; i++) {
    const tn__pool *pool = tn__vec_at(&caching->pools, i);
    free += pool->free.count;
    unmapped += pool->unmapped.count;
  }
  for (const tn__block *block = caching->pending; block; block = block->right)
    if (block->state != TN__BLOCK_PENDING || ++pending > all->pending) return "the list of pending blocks";
  if (free != all->free || unmapped != all->unmapped) return "free or unmapped blocks in no segment";
  if (pending != all->pending || caching->held.count != all->live + all->pending) return "live or pending blocks in no segment";
  return NULL;
}

static const char *stats_fault(const tn_caching_stats *stats, const sums *all) {
  if (stats->allocation.current != all->live) return "allocation";
  if (stats->active.current != all->live + all->pending) return "active";
  if (stats->allocated_bytes.current != all->live_bytes) return "allocated_bytes";
  if (stats->active_bytes.current != all->live_bytes + all->pending_bytes) return "active_bytes";
  if (stats->requested_bytes.current != all->requested_bytes) return "requested_bytes";
  if (stats->reserved_bytes.current != stats->active_bytes.current + all->free_bytes) return "reserved_bytes";
  if (stats->segment.current != all->fixed) return "segment";
  if (stats->inactive_split.current != all->split) return "inactive_split";
  if (stats->inactive_split_bytes.current != all->split_bytes) return "inactive_split_bytes";
  if (stats->oversize_allocations.current != all->oversize) return "oversize_allocations";
  if (stats->oversize_segments.current != all->oversize_segments) return "oversize_segments";
  return NULL;
}

static const char *caching_fault(const tn_caching *caching) {
  sums all = {0};
  tn_addr end = 0;
  for (size_t i = 0; i < caching->segments.count; i++) {
    const tn__segment *segment = tn__vec_at(&caching->segments, i);
    if (segment->addr < end) return "segments are out of order or overlap";
    const char *fault = segment_fault(caching, segment, &all);
    if (fault) return fault;
    end = segment->addr + segment->bytes;
  }
  const char *fault = orders_fault(caching, &all);
  return fault ? fault : stats_fault(&caching->stats, &all);
}

int tn__caching_check(const tn_caching *caching, const char **out_broken) {
  const char *fault = caching_fault(caching);
  if (fault && out_broken) *out_broken = fault;
  return fault == NULL;
}

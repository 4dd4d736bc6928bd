/* walk.c -- going over the whole model: for callers who want its map, and for its own checker. */
#include "caching/caching.h"

/* ---- the map ------------------------------------------------------------------------------------------------------------- */

void tn_caching_walk(const tn_caching *caching, void (*visit)(void *user, tn_addr segment, tn_addr addr, uint64_t bytes,
                                                             uint64_t requested, int live),
                     void *user) {
  for (size_t i = 0; i < caching->segments.count; i++) {
    const tn__segment *segment = tn__vec_at(&caching->segments, i);
    tn_addr start = segment->addr;
    for (const tn__block *block = segment->first; block; block = block->next) {
      if (block->state == TN__BLOCK_UNMAPPED) {
        start = block->addr + block->bytes; /* what follows shows as a segment of its own, as in PyTorch's snapshots */
        continue;
      }
      visit(user, start, block->addr, block->bytes, block->requested, block->state == TN__BLOCK_LIVE);
    }
  }
}

/* ---- the checker --------------------------------------------------------------------------------------------------------- */

/* What the walk adds up, to be compared with the stats and the orders. */
typedef struct sums {
  uint64_t live, live_bytes, requested_bytes;
  uint64_t free_bytes, split, split_bytes;
  size_t free[2], unmapped[2]; /* by is_small */
} sums;

static const char *block_fault(const tn_caching *caching, const tn__block *block) {
  const tn__pool *pool = block->is_small ? &caching->small : &caching->large;
  int joins = block->next && block->next->state == block->state;
  switch (block->state) {
    case TN__BLOCK_FREE:
      if (!tn__order_has(&pool->free, block)) return "a free block is not in its order";
      return joins ? "free neighbours are not joined" : NULL;
    case TN__BLOCK_UNMAPPED:
      if (!caching->config.expandable_segments) return "an unmapped block in a segment that is not expandable";
      if (!tn__order_has(&pool->unmapped, block)) return "an unmapped block is not in its order";
      return joins ? "unmapped neighbours are not joined" : NULL;
    case TN__BLOCK_LIVE:
      if (tn__map_get(&caching->live, block->addr) != block->id) return "a live block is not in the map";
      return block->requested > block->bytes ? "a live block is smaller than its request" : NULL;
    default: return "a block without a state";
  }
}

static void block_sum(sums *all, const tn__block *block) {
  switch (block->state) {
    case TN__BLOCK_LIVE:
      all->live++;
      all->live_bytes += block->bytes;
      all->requested_bytes += block->requested;
      break;
    case TN__BLOCK_FREE:
      all->free[block->is_small]++;
      all->free_bytes += block->bytes;
      all->split += tn__block_is_split(block) ? 1u : 0;
      all->split_bytes += tn__block_is_split(block) ? block->bytes : 0;
      break;
    default: all->unmapped[block->is_small]++; break;
  }
}

static const char *segment_fault(const tn_caching *caching, const tn__segment *segment, sums *all) {
  const tn__block *prev = NULL;
  tn_addr addr = segment->addr;
  for (const tn__block *block = segment->first; block; prev = block, block = block->next) {
    if (block->addr != addr || block->prev != prev || block->bytes == 0) return "blocks do not tile their segment";
    if (block->stream != segment->stream || block->is_small != segment->first->is_small)
      return "a block of another pool or stream";
    const char *fault = block_fault(caching, block);
    if (fault) return fault;
    block_sum(all, block);
    addr += block->bytes;
  }
  return addr == segment->addr + segment->bytes ? NULL : "blocks do not fill their segment";
}

static const char *sums_fault(const tn_caching *caching, const sums *all) {
  const tn_caching_stats *stats = &caching->stats;
  int expandable = caching->config.expandable_segments != 0;
  if (caching->small.free.count != all->free[1] || caching->large.free.count != all->free[0]) return "free blocks in no segment";
  if (caching->small.unmapped.count != all->unmapped[1] || caching->large.unmapped.count != all->unmapped[0])
    return "unmapped blocks in no segment";
  if (caching->live.count != all->live) return "live blocks in no segment";
  if (stats->allocation.current != all->live || stats->active.current != all->live) return "allocation";
  if (stats->allocated_bytes.current != all->live_bytes || stats->active_bytes.current != all->live_bytes)
    return "allocated_bytes";
  if (stats->requested_bytes.current != all->requested_bytes) return "requested_bytes";
  if (stats->reserved_bytes.current != all->live_bytes + all->free_bytes) return "reserved_bytes";
  if (stats->segment.current != (expandable ? 0 : caching->segments.count)) return "segment";
  if (stats->inactive_split.current != (expandable ? 0 : all->split)) return "inactive_split";
  if (stats->inactive_split_bytes.current != (expandable ? 0 : all->split_bytes)) return "inactive_split_bytes";
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
  return sums_fault(caching, &all);
}

int tn__caching_check(const tn_caching *caching, const char **out_broken) {
  const char *fault = caching_fault(caching);
  if (fault && out_broken) *out_broken = fault;
  return fault == NULL;
}

/* segment.c -- memory from the driver and back to it. */
#include <string.h>

#include "base/error.h"
#include "caching/caching.h"

/* ---- the table of segments ----------------------------------------------------------------------------------------------- */

/* How many segments start at or below addr; they are the first ones. */
static size_t segments_up_to(const tn_caching *caching, tn_addr addr) {
  const tn__segment *segments = TN_VEC(&caching->segments, tn__segment);
  size_t low = 0, high = caching->segments.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (segments[middle].addr <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const tn__segment *tn__segment_at(const tn_caching *caching, tn_addr addr) {
  size_t at = segments_up_to(caching, addr);
  if (at == 0) return NULL;
  const tn__segment *segment = tn__vec_at(&caching->segments, at - 1);
  return addr - segment->addr < segment->bytes ? segment : NULL;
}

/* Whether [addr, addr + bytes) is a range, and clear of the segments around its place in the table. */
static int range_is_clear(const tn_caching *caching, tn_addr addr, uint64_t bytes, size_t at) {
  const tn__segment *segments = TN_VEC(&caching->segments, tn__segment);
  if (addr > UINT64_MAX - bytes) return 0;
  if (at > 0 && addr - segments[at - 1].addr < segments[at - 1].bytes) return 0;
  return at == caching->segments.count || segments[at].addr - addr >= bytes;
}

void tn__segment_tell(tn_caching *caching, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream) {
  if (caching->config.segment_event) caching->config.segment_event(caching->config.user, kind, addr, bytes, stream);
}

static tn_addr segment_addr(tn_caching *caching, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream) {
  if (caching->config.segment_addr) return caching->config.segment_addr(caching->config.user, kind, bytes, stream);
  uint64_t step = tn__round_up(bytes, 2 * TN__MIB) + 2 * TN__MIB;
  if (caching->addr_last <= step) return 0;
  return caching->addr_last -= step;
}

int tn__segment_place(tn_caching *caching, const tn__pool *pool, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes,
                      uint32_t stream, tn__block **out) {
  TN_TRY(tn__vec_reserve(&caching->segments, 1));
  size_t at = segments_up_to(caching, addr);
  if (addr == 0 || !range_is_clear(caching, addr, bytes, at)) return TN_EINVAL;
  tn__block *block = tn__block_take(&caching->store);
  block->addr = addr;
  block->bytes = bytes;
  block->stream = stream;
  block->pool = tn__pool_index(pool);
  block->is_expandable = kind == TN_SEGMENT_MAP;
  block->state = kind == TN_SEGMENT_MAP ? TN__BLOCK_UNMAPPED : TN__BLOCK_FREE;
  (void)tn__vec_add(&caching->segments);
  tn__segment *place = tn__vec_at(&caching->segments, at);
  memmove(place + 1, place, (caching->segments.count - 1 - at) * sizeof *place);
  *place = (tn__segment){.addr = addr, .bytes = bytes, .stream = stream, .first = block};
  *out = block;
  return TN_OK;
}

int tn__segment_new(tn_caching *caching, tn__pool *pool, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream,
                    tn__block **out) {
  TN_TRY(tn__vec_reserve(&caching->segments, 1));
  tn_addr addr = segment_addr(caching, kind, bytes, stream);
  return addr ? tn__segment_place(caching, pool, kind, addr, bytes, stream, out) : TN_ELIMIT;
}

void tn__segment_drop(tn_caching *caching, tn__block *block) {
  tn_assert(!tn__block_is_split(block));
  size_t at = segments_up_to(caching, block->addr) - 1;
  tn__segment *place = tn__vec_at(&caching->segments, at);
  tn_assert(place->first == block && place->bytes == block->bytes);
  memmove(place, place + 1, (caching->segments.count - 1 - at) * sizeof *place);
  tn__vec_pop(&caching->segments, NULL);
  tn__block_give(&caching->store, block);
}

/* ---- cudaMalloc and cudaFree --------------------------------------------------------------------------------------------- */

static int segment_malloc(tn_caching *caching, tn__pool *pool, uint64_t bytes, uint32_t stream, tn__block **out) {
  TN_TRY(tn__segment_new(caching, pool, TN_SEGMENT_ALLOC, bytes, stream, out));
  tn_caching_stats *stats = &caching->stats;
  tn__stat_add(&stats->segment, 1);
  tn__reserved_add(caching, bytes);
  if (bytes >= caching->max_split_bytes) tn__stat_add(&stats->oversize_segments, 1);
  stats->num_device_alloc++;
  tn__segment_tell(caching, TN_SEGMENT_ALLOC, (*out)->addr, bytes, stream);
  return TN_OK;
}

void tn__segment_free(tn_caching *caching, tn__pool *pool, tn__block *block) {
  tn_caching_stats *stats = &caching->stats;
  tn__segment_tell(caching, TN_SEGMENT_FREE, block->addr, block->bytes, block->stream);
  tn__stat_sub(&stats->segment, 1);
  tn__stat_sub(&stats->reserved_bytes, block->bytes);
  if (block->bytes >= caching->max_split_bytes) tn__stat_sub(&stats->oversize_segments, 1);
  stats->num_device_free++;
  tn__order_remove(&pool->free, block);
  tn__segment_drop(caching, block);
}

int tn__segment_get(tn_caching *caching, tn__pool *pool, uint64_t rounded, uint32_t stream, tn__block **out) {
  const tn_conf *conf = &caching->config.conf;
  uint64_t bytes = tn__segment_bytes(caching, rounded);
  /* A segment, what mapping leaves of it (twice at most), and for the caller the rest of a split. */
  TN_TRY(tn__block_store_reserve(&caching->store, 4));
  /* The limit is tested with the segment's size even where an expandable segment would grow by less. */
  uint64_t needed = caching->stats.reserved_bytes.current + bytes;
  if (needed > caching->limit_needed) caching->limit_needed = needed;
  if (needed > caching->limit_bytes) return TN_ELIMIT;
  if (conf->expandable_segments && (pool->id == 0 || conf->private_expandable))
    return tn__expandable_get(caching, pool, rounded, stream, out);
  return segment_malloc(caching, pool, bytes, stream, out);
}

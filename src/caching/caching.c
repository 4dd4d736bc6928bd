/* caching.c -- the caching model: alloc, free, best fit, split and merge, as PyTorch's CUDACachingAllocator does them under
 * default settings and with expandable_segments. */
#include "caching/caching.h"

#include "base/error.h"
#include "base/mem.h"

/* ---- life ---------------------------------------------------------------------------------------------------------------- */

static void pool_init(tn__pool *pool, int is_small) {
  tn__order_init(&pool->free, 1);
  tn__order_init(&pool->unmapped, 0);
  pool->is_small = is_small != 0;
  pool->page_bytes = is_small ? TN__SMALL_SEGMENT_BYTES : TN__LARGE_SEGMENT_BYTES;
}

int tn_caching_new(const tn_caching_config *config, tn_caching **out) {
  static const tn_caching_config defaults = {0};
  if (!config) config = &defaults;
  if (config->total_bytes > TN__BYTES_MAX) return TN_EINVAL;
  tn_caching *caching = tn__mem_zalloc(1, sizeof *caching);
  if (!caching) return TN_ENOMEM;
  caching->config = *config;
  if (config->total_bytes == 0) caching->config.total_bytes = (uint64_t)1 << 40;
  caching->limit_bytes = config->limit_bytes == 0 || config->limit_bytes > TN__BYTES_MAX ? TN__BYTES_MAX : config->limit_bytes;
  caching->addr_next = 2 * TN__MIB;
  pool_init(&caching->small, 1);
  pool_init(&caching->large, 0);
  tn__block_store_init(&caching->store);
  tn__vec_init(&caching->segments, sizeof(tn__segment));
  tn__map_init(&caching->live);
  *out = caching;
  return TN_OK;
}

void tn_caching_free(tn_caching *caching) {
  if (!caching) return;
  tn__map_deinit(&caching->live);
  tn__vec_deinit(&caching->segments);
  tn__block_store_deinit(&caching->store);
  tn__mem_free(caching);
}

/* ---- blocks and their neighbours ----------------------------------------------------------------------------------------- */

tn__block *tn__block_split(tn_caching *caching, tn__block *block, uint64_t bytes) {
  tn_assert(bytes > 0 && bytes < block->bytes);
  tn__block *rest = tn__block_take(&caching->store);
  rest->addr = block->addr + bytes;
  rest->bytes = block->bytes - bytes;
  rest->stream = block->stream;
  rest->state = block->state;
  rest->is_small = block->is_small;
  rest->prev = block;
  rest->next = block->next;
  if (rest->next) rest->next->prev = rest;
  block->next = rest;
  block->bytes = bytes;
  return rest;
}

/* block takes over its right neighbour. */
static void block_absorb(tn_caching *caching, tn__block *block) {
  tn__block *right = block->next;
  block->bytes += right->bytes;
  block->next = right->next;
  if (block->next) block->next->prev = block;
  tn__block_give(&caching->store, right);
}

tn__block *tn__block_merge(tn_caching *caching, tn__order *order, tn__block *block, int *out_merged) {
  int merged = 0;
  if (block->prev && block->prev->state == block->state) {
    block = block->prev;
    tn__order_remove(order, block);
    block_absorb(caching, block);
    merged++;
  }
  if (block->next && block->next->state == block->state) {
    tn__order_remove(order, block->next);
    block_absorb(caching, block);
    merged++;
  }
  if (out_merged) *out_merged = merged;
  return block;
}

/* ---- alloc --------------------------------------------------------------------------------------------------------------- */

/* A request of 0 bytes never reaches PyTorch's allocator: it gets no memory. */
uint64_t tn_caching_round(uint64_t bytes) {
  if (bytes > UINT64_MAX - TN__BLOCK_BYTES_MIN) return UINT64_MAX / TN__BLOCK_BYTES_MIN * TN__BLOCK_BYTES_MIN;
  return tn__round_up(bytes, TN__BLOCK_BYTES_MIN);
}

/* How large a free block could become by mapping what follows it. */
static uint64_t expandable_bytes(const tn__block *block) {
  const tn__block *next = block->next;
  return block->bytes + (next && next->state == TN__BLOCK_UNMAPPED ? next->bytes : 0);
}

/* The smallest free block that fits, lowest address first; out of the order.  NULL: none.
 * A block that could grow counts with the size it could grow to: it is the last to be taken. */
static tn__block *best_fit(const tn_caching *caching, tn__pool *pool, uint64_t rounded, uint32_t stream) {
  tn__block *block = tn__order_from(&pool->free, (tn__order_key){stream, rounded, 0});
  if (!block || block->stream != stream) return NULL;
  if (caching->config.expandable_segments) {
    tn__block *next = tn__order_after(&pool->free, block);
    while (next && next->stream == stream && expandable_bytes(next) < expandable_bytes(block)) {
      block = next;
      next = tn__order_after(&pool->free, block);
    }
  }
  tn__order_remove(&pool->free, block);
  return block;
}

/* New memory; if there is none, everything cached is given back and the driver asked once more.  The free blocks are not searched
 * again: PyTorch does not either, although blocks that waited for a stream may have become free meanwhile. */
static int grow(tn_caching *caching, tn__pool *pool, uint64_t rounded, uint32_t stream, tn__block **out) {
  int rc = tn__segment_get(caching, pool, rounded, stream, out);
  if (rc != TN_ELIMIT) return rc;
  TN_TRY(tn__segment_release_cached(caching));
  caching->stats.num_alloc_retries++;
  TN_TRY(tn__block_store_reserve(&caching->store, 4));
  rc = tn__segment_get(caching, pool, rounded, stream, out);
  if (rc == TN_ELIMIT) caching->stats.num_ooms++;
  return rc;
}

static int should_split(const tn_caching *caching, const tn__block *block, uint64_t rounded) {
  uint64_t rest = block->bytes - rounded;
  if (block->is_small || caching->config.expandable_segments) return rest >= TN__BLOCK_BYTES_MIN;
  return rest > TN__SMALL_BYTES_MAX;
}

/* Cuts a free block that is in no order down to rounded bytes, when that pays. */
static void trim(tn_caching *caching, tn__pool *pool, tn__block *block, uint64_t rounded) {
  tn_caching_stats *stats = &caching->stats;
  int counts = !caching->config.expandable_segments, was_split = tn__block_is_split(block);
  if (should_split(caching, block, rounded)) {
    tn__block *rest = tn__block_split(caching, block, rounded);
    tn__order_insert(&pool->free, rest);
    if (counts && was_split) {
      tn__stat_sub(&stats->inactive_split_bytes, rounded);
    } else if (counts) {
      tn__stat_add(&stats->inactive_split_bytes, rest->bytes);
      tn__stat_add(&stats->inactive_split, 1);
    }
  } else if (counts && was_split) {
    tn__stat_sub(&stats->inactive_split_bytes, block->bytes);
    tn__stat_sub(&stats->inactive_split, 1);
  }
}

static void count_alloc(tn_caching_stats *stats, const tn__block *block) {
  tn__stat_add(&stats->allocation, 1);
  tn__stat_add(&stats->allocated_bytes, block->bytes);
  tn__stat_add(&stats->active, 1);
  tn__stat_add(&stats->active_bytes, block->bytes);
  tn__stat_add(&stats->requested_bytes, block->requested);
}

static void count_free(tn_caching_stats *stats, const tn__block *block) {
  tn__stat_sub(&stats->allocation, 1);
  tn__stat_sub(&stats->allocated_bytes, block->bytes);
  tn__stat_sub(&stats->active, 1);
  tn__stat_sub(&stats->active_bytes, block->bytes);
  tn__stat_sub(&stats->requested_bytes, block->requested);
}

/* A live block becomes free, joined with free neighbours. */
static void put_back(tn_caching *caching, tn__block *block) {
  tn_caching_stats *stats = &caching->stats;
  tn__pool *pool = tn__caching_pool(caching, block->is_small);
  uint64_t bytes = block->bytes;
  int merged;
  count_free(stats, block);
  block->state = TN__BLOCK_FREE;
  block->requested = 0;
  block = tn__block_merge(caching, &pool->free, block, &merged);
  tn__order_insert(&pool->free, block);
  if (caching->config.expandable_segments) return;
  /* The neighbours' bytes counted as split already; a segment that is whole again does not count at all. */
  int is_split = tn__block_is_split(block);
  tn__stat_change(&stats->inactive_split, is_split - merged);
  tn__stat_change(&stats->inactive_split_bytes, (int64_t)bytes - (is_split ? 0 : (int64_t)block->bytes));
}

/* Takes at most 4 new blocks: a segment, what mapping leaves of it (twice at most), and the rest of a split. */
int tn_caching_alloc(tn_caching *caching, uint64_t bytes, uint32_t stream, tn_addr *out) {
  if (bytes == 0) {
    *out = 0;
    return TN_OK;
  }
  TN_TRY(tn__block_store_reserve(&caching->store, 4));
  uint64_t rounded = tn_caching_round(bytes <= TN__BYTES_MAX ? bytes : 2 * TN__BYTES_MAX); /* the latter is over any limit */
  tn__pool *pool = tn__caching_pool(caching, rounded <= TN__SMALL_BYTES_MAX);
  tn__block *block = best_fit(caching, pool, rounded, stream);
  if (!block) TN_TRY(grow(caching, pool, rounded, stream, &block));
  trim(caching, pool, block, rounded);
  block->state = TN__BLOCK_LIVE;
  block->requested = bytes;
  count_alloc(&caching->stats, block);
  int rc = tn__map_set(&caching->live, block->addr, block->id);
  if (rc)
    put_back(caching, block);
  else
    *out = block->addr;
  tn_assert_walk(tn__caching_check(caching, NULL));
  return rc;
}

/* ---- free ---------------------------------------------------------------------------------------------------------------- */

int tn_caching_dealloc(tn_caching *caching, tn_addr addr) {
  if (addr == 0) return TN_OK; /* of 0 bytes */
  uint32_t id = tn__map_remove(&caching->live, addr);
  if (id == TN_NONE) return TN_ENOENT;
  put_back(caching, tn__block_by_id(&caching->store, id));
  tn_assert_walk(tn__caching_check(caching, NULL));
  return TN_OK;
}

int tn_caching_empty_cache(tn_caching *caching) {
  int rc = tn__segment_release_cached(caching);
  tn_assert_walk(tn__caching_check(caching, NULL));
  return rc;
}

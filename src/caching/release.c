/* release.c -- giving cached memory back: because it aged, because one request needs it, or all of it. */
#include "base/error.h"
#include "caching/caching.h"

/* ---- by age: garbage_collection_threshold -------------------------------------------------------------------------------- */

static int can_be_freed(const tn__block *block) { return !tn__block_is_split(block) && !block->is_expandable; }

static uint64_t age_of(const tn__pool *pool, const tn__block *block) { return pool->searches - block->since; }

typedef struct aged {
  double ages; /* of all that can be freed, added up */
  uint64_t count;
} aged;

static aged aged_sum(const tn__pool *pool) {
  aged sum = {0};
  for (tn__block *block = tn__order_first(&pool->free); block; block = tn__order_after(&pool->free, block)) {
    if (!can_be_freed(block)) continue;
    sum.ages += (double)age_of(pool, block);
    sum.count++;
  }
  return sum;
}

/* Frees what is at least as old as the average; returns its bytes.  It goes on past the target: the next round comes later then. */
static uint64_t aged_free(tn_caching *caching, tn__pool *pool, aged *sum) {
  double average = sum->ages / (double)sum->count;
  uint64_t freed = 0;
  for (tn__block *block = tn__order_first(&pool->free), *next; block; block = next) {
    next = tn__order_after(&pool->free, block);
    if (!can_be_freed(block) || (double)age_of(pool, block) < average) continue;
    freed += block->bytes;
    sum->ages -= (double)age_of(pool, block);
    sum->count--;
    tn__segment_free(caching, pool, block);
  }
  return freed;
}

void tn__release_aged(tn_caching *caching) {
  tn__pool *pool = TN_VEC(&caching->pools, tn__pool); /* PyTorch's own, large: the only one that is collected */
  uint64_t allowed = (uint64_t)(caching->config.conf.garbage_collection_threshold * (double)caching->limit_bytes);
  uint64_t reserved = caching->stats.reserved_bytes.current;
  if (reserved <= allowed) return;
  aged sum = aged_sum(pool);
  uint64_t target = reserved - allowed, freed = 0, last = 1;
  while (freed < target && last > 0 && sum.count > 0) freed += last = aged_free(caching, pool, &sum);
}

/* ---- for one request: max_split_size_mb ---------------------------------------------------------------------------------- */

int tn__release_available(tn_caching *caching, tn__pool *pool, uint64_t rounded, uint32_t stream) {
  if (caching->max_split_bytes == UINT64_MAX) return 0;
  uint64_t wanted = rounded < caching->max_split_bytes ? caching->max_split_bytes : rounded;
  tn__block *block = tn__order_from(&pool->free, (tn__order_key){stream, wanted, 0});
  if (block && block->stream == stream && can_be_freed(block)) {
    tn__segment_free(caching, pool, block);
    return 1;
  }
  /* None alone is large enough: the largest ones together. */
  uint64_t freed = 0;
  block = tn__order_before(&pool->free, (tn__order_key){stream, wanted, 0});
  while (block && freed < wanted && block->bytes >= caching->max_split_bytes && block->stream == stream) {
    tn__block *next = tn__order_before(&pool->free, (tn__order_key){block->stream, block->bytes, block->addr});
    if (can_be_freed(block)) {
      freed += block->bytes;
      tn__segment_free(caching, pool, block);
    }
    block = next;
  }
  return freed >= wanted;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

/* Whole cudaMalloc'ed segments first, then pages of expandable ones, each in the order of the search. */
static int release_pool(tn_caching *caching, tn__pool *pool) {
  for (tn__block *block = tn__order_first(&pool->free), *next; block; block = next) {
    next = tn__order_after(&pool->free, block);
    if (can_be_freed(block)) tn__segment_free(caching, pool, block);
  }
  for (tn__block *block = tn__order_first(&pool->free), *next; block; block = next) {
    /* Unmapping a block may put its edges into the order, which have no whole page, but takes out none but itself. */
    next = tn__order_after(&pool->free, block);
    if (block->is_expandable) TN_TRY(tn__expandable_unmap(caching, pool, block));
  }
  return TN_OK;
}

int tn__release_cached(tn_caching *caching) {
  tn__caching_synchronize(caching);
  caching->stats.num_sync_all_streams++;
  tn__pool *pools = TN_VEC(&caching->pools, tn__pool);
  TN_TRY(release_pool(caching, &pools[0]));
  TN_TRY(release_pool(caching, &pools[1]));
  for (size_t i = 0; i < caching->freeable.count; i++) {
    size_t id = TN_VEC(&caching->freeable, uint32_t)[i];
    TN_TRY(release_pool(caching, &pools[2 * id + 1])); /* small first, other than above: that is PyTorch's order */
    TN_TRY(release_pool(caching, &pools[2 * id]));
  }
  return TN_OK;
}

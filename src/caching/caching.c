/* caching.c -- the caching model: alloc, free, best fit, split and merge, as PyTorch's CUDACachingAllocator does them. */
#include "caching/caching.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/* ---- life ---------------------------------------------------------------------------------------------------------------- */

static uint64_t or_default(uint64_t value, uint64_t standard) { return value ? value : standard; }

static void settings_init(tn_caching *caching, const tn_caching_config *config) {
  const tn_conf *conf = &config->conf;
  caching->config = *config;
  caching->config.total_bytes = or_default(config->total_bytes, (uint64_t)1 << 40);
  caching->limit_bytes = config->limit_bytes == 0 || config->limit_bytes > TN__BYTES_MAX ? TN__BYTES_MAX : config->limit_bytes;
  caching->max_split_bytes = or_default(conf->max_split_bytes, UINT64_MAX);
  caching->large_segment_bytes = or_default(conf->large_segment_bytes, TN__LARGE_SEGMENT_BYTES);
  caching->max_rounding_bytes = or_default(conf->max_non_split_rounding_bytes, caching->large_segment_bytes);
}

/* What the model's arithmetic relies on; torch refuses the rest too. */
static int config_is_valid(const tn_caching_config *config) {
  const tn_conf *conf = &config->conf;
  uint64_t large = or_default(conf->large_segment_bytes, TN__LARGE_SEGMENT_BYTES);
  for (size_t i = 0; i < TN_CONF_INTERVALS; i++)
    if (conf->roundup_divisions[i] & (conf->roundup_divisions[i] - 1)) return 0;
  return config->total_bytes <= TN__BYTES_MAX && large % TN__BLOCK_BYTES_MIN == 0 && large >= TN__LARGE_EXACT_MIN &&
         large <= TN__BYTES_MAX && conf->garbage_collection_threshold >= 0 && conf->garbage_collection_threshold < 1;
}

int tn_caching_new(const tn_caching_config *config, tn_caching **out) {
  static const tn_caching_config defaults = {0};
  if (!config) config = &defaults;
  if (!config_is_valid(config)) return TN_EINVAL;
  tn_caching *caching = tn__mem_zalloc(1, sizeof *caching);
  if (!caching) return TN_ENOMEM;
  settings_init(caching, config);
  caching->addr_last = (tn_addr)1 << 63;
  caching->pending_end = &caching->pending;
  tn__block_store_init(&caching->store);
  tn__vec_init(&caching->pools, sizeof(tn__pool));
  tn__vec_init(&caching->freeable, sizeof(uint32_t));
  tn__vec_init(&caching->segments, sizeof(tn__segment));
  tn__map_init(&caching->held);
  tn__pool *pool;
  int rc = tn__pool_get(caching, 0, 0, &pool);
  if (rc)
    tn_caching_free(caching);
  else
    *out = caching;
  return rc;
}

void tn_caching_free(tn_caching *caching) {
  if (!caching) return;
  tn__map_deinit(&caching->held);
  tn__vec_deinit(&caching->segments);
  tn__vec_deinit(&caching->freeable);
  tn__vec_deinit(&caching->pools);
  tn__block_store_deinit(&caching->store);
  tn__mem_free(caching);
}

/* ---- pools --------------------------------------------------------------------------------------------------------------- */

static void pool_init(tn__pool *pool, uint32_t id, int is_small, uint64_t page_bytes) {
  *pool = (tn__pool){.id = id, .is_small = is_small != 0, .page_bytes = page_bytes};
  tn__order_init(&pool->free, 1);
  tn__order_init(&pool->unmapped, 0);
}

int tn__pool_get(tn_caching *caching, uint32_t id, int is_small, tn__pool **out) {
  if (id >= TN__POOLS_MAX) return TN_EINVAL;
  size_t count = caching->pools.count / 2;
  if (id >= count) TN_TRY(tn__vec_resize(&caching->pools, 2 * ((size_t)id + 1)));
  tn__pool *pools = TN_VEC(&caching->pools, tn__pool);
  for (; count <= id; count++) {
    pool_init(&pools[2 * count], (uint32_t)count, 0, caching->large_segment_bytes);
    pool_init(&pools[2 * count + 1], (uint32_t)count, 1, TN__SMALL_SEGMENT_BYTES);
  }
  *out = &pools[2 * id + (is_small != 0)];
  return TN_OK;
}

void tn__pool_put(tn__pool *pool, tn__block *block) {
  block->since = pool->searches;
  tn__order_insert(&pool->free, block);
}

static void pool_set_freeable(tn_caching *caching, uint32_t id, int is_freeable) {
  tn__pool *pools = TN_VEC(&caching->pools, tn__pool);
  pools[2 * id].is_freeable = pools[2 * id + 1].is_freeable = is_freeable != 0;
}

/* In use again, if it was not. */
static void pool_use(tn_caching *caching, uint32_t id) {
  uint32_t *ids = TN_VEC(&caching->freeable, uint32_t);
  size_t at = 0;
  if (!TN_VEC(&caching->pools, tn__pool)[2 * id].is_freeable) return;
  while (ids[at] != id) at++;
  memmove(&ids[at], &ids[at + 1], (caching->freeable.count - at - 1) * sizeof *ids);
  tn__vec_pop(&caching->freeable, NULL);
  pool_set_freeable(caching, id, 0);
}

int tn_caching_release_pool(tn_caching *caching, uint32_t pool) {
  if (pool == 0 || pool >= caching->pools.count / 2) return TN_ENOENT;
  TN_TRY(tn__vec_reserve(&caching->freeable, 1));
  pool_use(caching, pool);
  (void)tn__vec_push(&caching->freeable, &pool);
  pool_set_freeable(caching, pool, 1);
  return TN_OK;
}

/* ---- blocks and their neighbours ----------------------------------------------------------------------------------------- */

tn__block *tn__block_split(tn_caching *caching, tn__block *block, uint64_t bytes) {
  tn_assert(bytes > 0 && bytes < block->bytes);
  tn__block *rest = tn__block_take(&caching->store);
  rest->addr = block->addr + bytes;
  rest->bytes = block->bytes - bytes;
  rest->stream = block->stream;
  rest->state = block->state;
  rest->pool = block->pool;
  rest->is_expandable = block->is_expandable;
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

/* ---- best fit ------------------------------------------------------------------------------------------------------------ */

/* How large a free block could become by mapping what follows it. */
static uint64_t expandable_bytes(const tn__block *block) {
  const tn__block *next = block->next;
  return block->bytes + (next && next->state == TN__BLOCK_UNMAPPED ? next->bytes : 0);
}

/* A block that could grow counts with the size it could grow to: it is the last to be taken. */
static tn__block *fit_expandable(const tn__pool *pool, tn__block *block) {
  tn__block *next = tn__order_after(&pool->free, block);
  while (block->is_expandable && next && next->stream == block->stream && expandable_bytes(next) < expandable_bytes(block)) {
    block = next;
    next = tn__order_after(&pool->free, block);
  }
  return block;
}

/* With the setting off, blocks of expandable segments that are still there are not given out. */
static tn__block *fit_fixed(const tn__pool *pool, tn__block *block, uint32_t stream) {
  while (block && block->stream == stream && block->is_expandable) block = tn__order_after(&pool->free, block);
  return block && block->stream == stream ? block : NULL;
}

/* The smallest free block that fits, lowest address first; it stays in the order.  NULL: none. */
static tn__block *best_fit(const tn_caching *caching, const tn__pool *pool, uint64_t rounded, uint32_t stream) {
  tn__block *block = tn__order_from(&pool->free, (tn__order_key){stream, rounded, 0});
  if (!block || block->stream != stream) return NULL;
  if (block->is_expandable)
    block = caching->config.conf.expandable_segments ? fit_expandable(pool, block) : fit_fixed(pool, block, stream);
  if (!block) return NULL;
  /* Blocks that are never split are kept for requests of about their size. */
  if (rounded < caching->max_split_bytes) return block->bytes < caching->max_split_bytes ? block : NULL;
  return block->bytes - rounded < caching->max_rounding_bytes ? block : NULL;
}

int tn__caching_fits(const tn_caching *caching, uint32_t pool, uint64_t bytes, uint32_t stream) {
  uint64_t rounded = tn__round(&caching->config.conf, bytes);
  if (pool >= caching->pools.count / 2) return 0;
  return best_fit(caching, tn__vec_at(&caching->pools, 2 * pool + (rounded <= TN__SMALL_BYTES_MAX)), rounded, stream) != NULL;
}

/* ---- free ---------------------------------------------------------------------------------------------------------------- */

/* A block that is no longer active becomes free, joined with free neighbours. */
static void put_back(tn_caching *caching, tn__block *block) {
  tn_caching_stats *stats = &caching->stats;
  tn__pool *pool = tn__pool_of(caching, block);
  uint64_t bytes = block->bytes;
  int merged;
  tn__count_complete(caching, block);
  block->state = TN__BLOCK_FREE;
  block->requested = 0;
  block = tn__block_merge(caching, &pool->free, block, &merged);
  tn__pool_put(pool, block);
  if (block->is_expandable) return;
  /* The neighbours' bytes counted as split already; a segment that is whole again does not count at all. */
  int is_split = tn__block_is_split(block);
  tn__stat_change(&stats->inactive_split, is_split - merged);
  tn__stat_change(&stats->inactive_split_bytes, (int64_t)bytes - (is_split ? 0 : (int64_t)block->bytes));
}

/* ---- blocks that another stream uses ------------------------------------------------------------------------------------- */

void tn__pending_add(tn_caching *caching, tn__block *block) {
  block->state = TN__BLOCK_PENDING;
  block->since = caching->allocs;
  block->right = NULL;
  *caching->pending_end = block;
  caching->pending_end = &block->right;
}

/* link is the place that points to the block. */
static void pending_complete(tn_caching *caching, tn__block **link) {
  tn__block *block = *link;
  *link = block->right;
  if (!block->right) caching->pending_end = link;
  block->right = NULL;
  (void)tn__map_remove(&caching->held, block->addr);
  put_back(caching, block);
}

void tn__caching_synchronize(tn_caching *caching) {
  while (caching->pending) pending_complete(caching, &caching->pending);
}

/* Each allocation asks which streams have come far enough, but not while a graph is captured. */
static void process_events(tn_caching *caching) {
  uint32_t delay = caching->config.event_delay;
  if (delay == UINT32_MAX) return;
  while (caching->pending && caching->allocs - caching->pending->since > delay) pending_complete(caching, &caching->pending);
}

static tn__block *held_at(const tn_caching *caching, tn_addr addr, enum tn__block_state state) {
  uint32_t id = tn__map_get(&caching->held, addr);
  tn__block *block = id == TN_NONE ? NULL : tn__block_by_id(&caching->store, id);
  return block && block->state == state ? block : NULL;
}

int tn_caching_record_stream(tn_caching *caching, tn_addr addr, uint32_t stream) {
  tn__block *block = held_at(caching, addr, TN__BLOCK_LIVE);
  if (!block) return TN_ENOENT;
  if (stream != block->stream) block->is_shared = 1; /* its own needs no waiting */
  return TN_OK;
}

int tn_caching_complete(tn_caching *caching, tn_addr addr) {
  tn__block *block = held_at(caching, addr, TN__BLOCK_PENDING);
  if (!block) return TN_ENOENT;
  tn__block **link = &caching->pending;
  while (*link != block) link = &(*link)->right;
  pending_complete(caching, link);
  tn_assert_walk(tn__caching_check(caching, NULL));
  return TN_OK;
}

/* ---- alloc --------------------------------------------------------------------------------------------------------------- */

/* New memory; if there is none, what is cached is given back and the driver asked again.  The free blocks are not searched again:
 * PyTorch does not either, although blocks that waited for a stream may have become free meanwhile. */
static int grow(tn_caching *caching, tn__pool *pool, uint64_t rounded, uint32_t stream, tn__block **out) {
  int is_limited = caching->config.limit_bytes != 0, is_captured = pool->id != 0;
  if (is_limited && caching->config.conf.garbage_collection_threshold > 0) tn__release_aged(caching);
  int rc = tn__segment_get(caching, pool, rounded, stream, out);
  if (rc == TN_ELIMIT && is_limited && caching->config.conf.throw_on_cudamalloc_oom) return rc;
  if (rc == TN_ELIMIT && tn__release_available(caching, pool, rounded, stream))
    rc = tn__segment_get(caching, pool, rounded, stream, out);
  if (rc != TN_ELIMIT || is_captured) return rc;
  TN_TRY(tn__release_cached(caching));
  caching->stats.num_alloc_retries++;
  return tn__segment_get(caching, pool, rounded, stream, out);
}

static int should_split(const tn_caching *caching, const tn__pool *pool, const tn__block *block, uint64_t rounded) {
  uint64_t rest = block->bytes - rounded;
  if (pool->is_small || caching->config.conf.expandable_segments) return rest >= TN__BLOCK_BYTES_MIN;
  return rounded < caching->max_split_bytes && rest > TN__SMALL_BYTES_MAX;
}

/* Cuts a free block that is in no order down to rounded bytes, when that pays. */
static void trim(tn_caching *caching, tn__pool *pool, tn__block *block, uint64_t rounded) {
  tn_caching_stats *stats = &caching->stats;
  int counts = !block->is_expandable, was_split = tn__block_is_split(block);
  if (should_split(caching, pool, block, rounded)) {
    tn__block *rest = tn__block_split(caching, block, rounded);
    tn__pool_put(pool, rest);
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

/* A free block of at least rounded bytes, in no order. */
static int find(tn_caching *caching, tn__pool *pool, uint64_t rounded, uint32_t stream, tn__block **out) {
  pool->searches++; /* ages are differences, so it does no harm to count without garbage collection */
  tn__block *block = best_fit(caching, pool, rounded, stream);
  if (block) {
    tn__order_remove(&pool->free, block);
    *out = block;
    return TN_OK;
  }
  int rc = grow(caching, pool, rounded, stream, out);
  if (rc == TN_ELIMIT) caching->stats.num_ooms++;
  return rc;
}

/* Gives a free block that is in no order to the caller. */
static int hand_out(tn_caching *caching, tn__block *block, uint64_t bytes, tn_addr *out) {
  block->state = TN__BLOCK_LIVE;
  block->requested = bytes;
  block->is_shared = 0;
  tn__count_alloc(caching, block);
  int rc = tn__map_set(&caching->held, block->addr, block->id);
  if (rc) {
    tn__count_free(caching, block);
    put_back(caching, block);
    return rc;
  }
  *out = block->addr;
  return TN_OK;
}

int tn_caching_alloc_from(tn_caching *caching, uint32_t pool_id, uint64_t bytes, uint32_t stream, tn_addr *out) {
  if (bytes == 0) {
    *out = 0;
    return TN_OK;
  }
  uint64_t rounded = tn__round(&caching->config.conf, bytes);
  tn__pool *pool;
  tn__block *block;
  TN_TRY(tn__block_store_reserve(&caching->store, 1)); /* for the rest of a split */
  TN_TRY(tn__pool_get(caching, pool_id, rounded <= TN__SMALL_BYTES_MAX, &pool));
  caching->allocs++;
  if (pool_id)
    pool_use(caching, pool_id);
  else
    process_events(caching);
  int rc = find(caching, pool, rounded, stream, &block);
  if (rc == TN_OK) {
    trim(caching, pool, block, rounded);
    rc = hand_out(caching, block, bytes, out);
  }
  tn_assert_walk(tn__caching_check(caching, NULL));
  return rc;
}

int tn_caching_alloc(tn_caching *caching, uint64_t bytes, uint32_t stream, tn_addr *out) {
  return tn_caching_alloc_from(caching, 0, bytes, stream, out);
}

/* ---- the rest of the interface ------------------------------------------------------------------------------------------- */

int tn_caching_dealloc(tn_caching *caching, tn_addr addr) {
  if (addr == 0) return TN_OK; /* of 0 bytes */
  tn__block *block = held_at(caching, addr, TN__BLOCK_LIVE);
  if (!block) return TN_ENOENT;
  tn__count_free(caching, block);
  if (block->is_shared) {
    tn__pending_add(caching, block);
  } else {
    (void)tn__map_remove(&caching->held, addr);
    put_back(caching, block);
  }
  tn_assert_walk(tn__caching_check(caching, NULL));
  return TN_OK;
}

int tn_caching_empty_cache(tn_caching *caching) {
  int rc = tn__release_cached(caching);
  tn_assert_walk(tn__caching_check(caching, NULL));
  return rc;
}

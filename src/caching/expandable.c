/* expandable.c -- expandable segments: one long range of addresses per pool and stream, given memory page by page.
 *
 * Where a cudaMalloc'ed segment ends, blocks cannot merge; here they can, so a request that fits nowhere grows the free block
 * at the end of what is mapped. */
#include "base/error.h"
#include "caching/caching.h"

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t tn__expandable_bytes(const tn_caching *caching, const tn__pool *pool) {
  uint64_t total = caching->config.total_bytes;
  return tn__round_up(total + total / 8, pool->page_bytes);
}

static int is_open(const tn__block *block) { return block->state == TN__BLOCK_FREE || block->state == TN__BLOCK_UNMAPPED; }

/* Whether the blocks from this one on, up to one that is in use, are bytes long. */
static int has_room(const tn__block *block, uint64_t bytes) {
  uint64_t room = 0;
  for (; block && is_open(block) && room < bytes; block = block->next) room += block->bytes;
  return room >= bytes;
}

/* The lowest place of the stream where free and unmapped blocks in a row make up bytes, with an unmapped one first or second. */
static tn__block *find_room(const tn__pool *pool, uint64_t bytes, uint32_t stream) {
  tn__block *unmapped = tn__order_from(&pool->unmapped, (tn__order_key){.stream = stream});
  for (; unmapped && unmapped->stream == stream; unmapped = tn__order_after(&pool->unmapped, unmapped)) {
    tn__block *prev = unmapped->prev;
    tn__block *start = prev && prev->state == TN__BLOCK_FREE ? prev : unmapped;
    if (has_room(start, bytes)) return start;
  }
  return NULL;
}

static int driver_maps(tn_caching *caching, const tn__block *block, uint64_t bytes) {
  const tn_caching_config *config = &caching->config;
  return !config->segment_map || config->segment_map(config->user, block->addr, bytes, block->stream);
}

/* Maps pages at the start of an unmapped block, bytes or a little more; *out is the free block that they became part of. */
static int map_pages(tn_caching *caching, tn__pool *pool, tn__block *block, uint64_t bytes, tn__block **out) {
  uint64_t mapped = tn__round_up(bytes, pool->page_bytes);
  if (!driver_maps(caching, block, mapped)) return TN_ELIMIT;
  tn__order_remove(&pool->unmapped, block);
  if (mapped < block->bytes) tn__order_insert(&pool->unmapped, tn__block_split(caching, block, mapped));
  block->state = TN__BLOCK_FREE;
  tn__reserved_add(caching, mapped);
  caching->stats.num_device_alloc++;
  tn__segment_tell(caching, TN_SEGMENT_MAP, block->addr, mapped, block->stream);
  block = tn__block_merge(caching, &pool->free, block, NULL);
  tn__pool_put(pool, block);
  *out = block;
  return TN_OK;
}

/* When the driver runs out half way, what was mapped stays, as free blocks. */
int tn__expandable_get(tn_caching *caching, tn__pool *pool, uint64_t rounded, uint32_t stream, tn__block **out) {
  if (rounded > tn__expandable_bytes(caching, pool)) return TN_ELIMIT;
  tn__block *block = find_room(pool, rounded, stream);
  if (!block) {
    TN_TRY(tn__segment_new(caching, pool, TN_SEGMENT_MAP, tn__expandable_bytes(caching, pool), stream, &block));
    tn__order_insert(&pool->unmapped, block);
  }
  if (block->state == TN__BLOCK_UNMAPPED) TN_TRY(map_pages(caching, pool, block, min_u64(block->bytes, rounded), &block));
  while (block->bytes < rounded) /* free, then unmapped */
    TN_TRY(map_pages(caching, pool, block->next, min_u64(block->next->bytes, rounded - block->bytes), &block));
  tn__order_remove(&pool->free, block);
  *out = block;
  return TN_OK;
}

int tn__expandable_unmap(tn_caching *caching, tn__pool *pool, tn__block *block) {
  TN_TRY(tn__block_store_reserve(&caching->store, 2));
  tn_addr base = tn__segment_at(caching, block->addr)->addr;
  uint64_t begin = tn__round_up(block->addr - base, pool->page_bytes);
  uint64_t end = (block->addr + block->bytes - base) / pool->page_bytes * pool->page_bytes;
  if (begin >= end) return TN_OK; /* no whole page */
  tn__order_remove(&pool->free, block);
  if (base + begin > block->addr) {
    tn__block *edge = block;
    block = tn__block_split(caching, edge, base + begin - edge->addr);
    tn__pool_put(pool, edge);
  }
  if (end - begin < block->bytes) tn__pool_put(pool, tn__block_split(caching, block, end - begin));
  tn__stat_sub(&caching->stats.reserved_bytes, end - begin);
  caching->stats.num_device_free++;
  tn__segment_tell(caching, TN_SEGMENT_UNMAP, block->addr, block->bytes, block->stream);
  block->state = TN__BLOCK_UNMAPPED;
  block = tn__block_merge(caching, &pool->unmapped, block, NULL);
  if (tn__block_is_split(block))
    tn__order_insert(&pool->unmapped, block);
  else
    tn__segment_drop(caching, block);
  return TN_OK;
}

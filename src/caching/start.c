/* start.c -- putting the start of a history into a model.  See start.h. */
#include "caching/start.h"

#include "base/error.h"

/* ---- how far a reservation may reach ------------------------------------------------------------------------------------- */

static void reach_cut(const tn__reservation *r, tn_addr other, uint64_t *reach) {
  if (other >= r->end && other - r->addr < *reach) *reach = other - r->addr;
}

/* To whatever else the history shows above it. */
static uint64_t reach_of(const tn__history *history, const tn__reservation *r) {
  const tn_segment *segments = tn_trace_table(history->trace, TN_TABLE_SEGMENT, NULL);
  uint64_t reach = (uint64_t)1 << 40;
  for (size_t i = 0; i < history->reservations.count; i++)
    reach_cut(r, TN_VEC(&history->reservations, tn__reservation)[i].addr, &reach);
  for (uint32_t i = 0; i < history->device->segments_count; i++)
    reach_cut(r, segments[history->device->segments_at + i].addr, &reach);
  for (size_t i = 0; i < history->segments.count; i++) reach_cut(r, TN_VEC(&history->segments, tn__start_segment)[i].addr, &reach);
  for (uint32_t i = 0; i < history->entries_count; i++)
    if (history->entries[i].action == TN_ACTION_SEGMENT_ALLOC) reach_cut(r, history->entries[i].addr, &reach);
  return reach;
}

/* PyTorch reserves 9/8 of the device. */
uint64_t tn__start_total_bytes(const tn__history *history) {
  uint64_t reach = 0, page = history->conf.large_segment_bytes ? history->conf.large_segment_bytes : TN__LARGE_SEGMENT_BYTES;
  for (size_t i = 0; i < history->reservations.count; i++) {
    uint64_t one = reach_of(history, tn__vec_at(&history->reservations, i));
    if (reach == 0 || one < reach) reach = one;
  }
  return reach > 2 * page ? (reach - page) / 9 * 8 : 0;
}

/* ---- blocks into a segment ----------------------------------------------------------------------------------------------- */

/* Where blocks are cut off from: what is left of a segment, at its right end, in no order.  NULL: nothing is. */
typedef struct carver {
  tn_caching *caching;
  tn__pool *pool;
  tn__block *rest;
  const uint64_t *bytes; /* by life: see start.h */
  tn_addr *addrs;
} carver;

static void settle(const carver *c, tn__block *block) {
  if (block->state == TN__BLOCK_FREE)
    tn__pool_put(c->pool, block);
  else if (block->state == TN__BLOCK_UNMAPPED)
    tn__order_insert(&c->pool->unmapped, block);
}

static int lies_in(const tn__block *rest, tn_addr addr, uint64_t bytes) {
  return rest && bytes > 0 && addr >= rest->addr && addr - rest->addr < rest->bytes && bytes <= rest->bytes - (addr - rest->addr);
}

/* Cuts [addr, addr + bytes) out; what lies before it stays as it is.  TN_EFORMAT: it is not there. */
static int carve(carver *c, tn_addr addr, uint64_t bytes, tn__block **out) {
  if (!lies_in(c->rest, addr, bytes)) return TN_EFORMAT;
  TN_TRY(tn__block_store_reserve(&c->caching->store, 2));
  tn__block *block = c->rest;
  if (addr > block->addr) {
    tn__block *left = block;
    block = tn__block_split(c->caching, left, addr - left->addr);
    settle(c, left);
  }
  c->rest = bytes < block->bytes ? tn__block_split(c->caching, block, bytes) : NULL;
  *out = block;
  return TN_OK;
}

static void carve_end(carver *c) {
  if (c->rest) settle(c, c->rest);
  c->rest = NULL;
}

/* What a block of unknown size takes, with room bytes up to the next one.  Remainders of 1 MiB and less are not split off in large
 * segments, so they belong to the block before them; of larger ones only a later allocation behind the block tells. */
static uint64_t block_bytes(const carver *c, const tn__start_block *b, uint64_t room) {
  const tn_caching *caching = c->caching;
  if (b->bytes) return b->bytes;
  if (c->bytes[b->life]) return c->bytes[b->life];
  uint64_t rounded = tn__round(&caching->config.conf, b->requested ? b->requested : 1);
  if (rounded >= room) return room;
  if (c->pool->is_small || caching->config.conf.expandable_segments) return rounded;
  if (rounded >= caching->max_split_bytes || room - rounded <= TN__SMALL_BYTES_MAX) return room;
  return b->room > rounded && b->room - rounded <= TN__SMALL_BYTES_MAX ? b->room : rounded;
}

static int hold(carver *c, const tn__start_block *b, tn__block *block) {
  tn_caching *caching = c->caching;
  block->state = TN__BLOCK_LIVE;
  block->requested = b->requested < block->bytes ? b->requested : block->bytes;
  TN_TRY(tn__map_set(&caching->held, block->addr, block->id));
  tn__count_alloc(caching, block);
  if (!b->is_pending) return TN_OK;
  tn__count_free(caching, block);
  tn__pending_add(caching, block);
  return TN_OK;
}

static int place_blocks(carver *c, const tn__history *history, const tn__start_segment *s) {
  const tn__start_block *blocks = TN_VEC(&history->blocks, tn__start_block);
  for (uint32_t i = 0; i < s->blocks_count; i++) {
    const tn__start_block *b = &blocks[s->blocks_at + i];
    tn_addr end = i + 1 < s->blocks_count ? b[1].addr : s->addr + s->bytes;
    tn__block *block;
    TN_TRY(carve(c, b->addr, block_bytes(c, b, end - b->addr), &block));
    c->addrs[b->life] = b->addr;
    TN_TRY(hold(c, b, block));
  }
  return TN_OK;
}

/* ---- segments ------------------------------------------------------------------------------------------------------------ */

static int place_fixed(carver c, const tn__history *history, const tn__start_segment *s) {
  tn_caching *caching = c.caching;
  TN_TRY(tn__block_store_reserve(&caching->store, 1));
  TN_TRY(tn__pool_get(caching, s->pool, s->flags & TN_SEGMENT_SMALL, &c.pool));
  TN_TRY(tn__segment_place(caching, c.pool, TN_SEGMENT_ALLOC, s->addr, s->bytes, s->stream, &c.rest));
  tn_caching_stats *stats = &caching->stats;
  tn__stat_add(&stats->segment, 1);
  tn__reserved_add(caching, s->bytes);
  if (s->bytes >= caching->max_split_bytes) tn__stat_add(&stats->oversize_segments, 1);
  int rc = place_blocks(&c, history, s);
  carve_end(&c);
  return rc;
}

static int lies_within(const tn__start_segment *s, const tn__reservation *r) {
  return s->flags & TN_SEGMENT_EXPANDABLE && s->addr >= r->addr && s->addr < r->end;
}

/* Memory comes in whole pages. */
static int is_of(const tn__start_segment *s, const tn__reservation *r, uint64_t page_bytes) {
  return s->stream == r->stream && s->pool == r->pool && ((s->flags & TN_SEGMENT_SMALL) != 0) == (r->is_small != 0) &&
         (s->addr - r->addr) % page_bytes == 0 && s->bytes % page_bytes == 0;
}

/* One reservation: the ranges of it that have memory, and their blocks. */
static int place_expandable(carver space, const tn__history *history, const tn__reservation *r) {
  tn_caching *caching = space.caching;
  tn_addr end = 0; /* of the range before: one that joins it would be one with it */
  int rc = TN_OK;
  TN_TRY(tn__block_store_reserve(&caching->store, 1));
  TN_TRY(tn__pool_get(caching, r->pool, (int)r->is_small, &space.pool));
  uint64_t bytes = tn__expandable_bytes(caching, space.pool);
  TN_TRY(tn__segment_place(caching, space.pool, TN_SEGMENT_MAP, r->addr, bytes, r->stream, &space.rest));
  for (size_t i = 0; i < history->segments.count && !rc; i++) {
    const tn__start_segment *s = tn__vec_at(&history->segments, i);
    carver c = space;
    if (!lies_within(s, r)) continue;
    rc = s->addr != end && is_of(s, r, space.pool->page_bytes) ? carve(&space, s->addr, s->bytes, &c.rest) : TN_EFORMAT;
    if (rc) break;
    end = s->addr + s->bytes;
    c.rest->state = TN__BLOCK_FREE;
    tn__reserved_add(caching, s->bytes);
    rc = place_blocks(&c, history, s);
    carve_end(&c);
  }
  carve_end(&space);
  return rc;
}

static int has_memory(const tn__history *history, const tn__reservation *r) {
  for (size_t i = 0; i < history->segments.count; i++) {
    if (lies_within(tn__vec_at(&history->segments, i), r)) return 1;
  }
  return 0;
}

/* Free blocks beside others count as split. */
static void count_split(tn_caching *caching) {
  for (size_t i = 0; i < caching->segments.count; i++) {
    for (const tn__block *b = TN_VEC(&caching->segments, tn__segment)[i].first; b; b = b->next) {
      if (b->state != TN__BLOCK_FREE || b->is_expandable || !tn__block_is_split(b)) continue;
      tn__stat_add(&caching->stats.inactive_split, 1);
      tn__stat_add(&caching->stats.inactive_split_bytes, b->bytes);
    }
  }
}

int tn__start_place(const tn__history *history, tn_caching *caching, const uint64_t *bytes, tn_addr *addrs) {
  carver c = {.caching = caching, .bytes = bytes, .addrs = addrs};
  for (size_t i = 0; i < history->segments.count; i++) {
    const tn__start_segment *s = tn__vec_at(&history->segments, i);
    if (!(s->flags & TN_SEGMENT_EXPANDABLE)) TN_TRY(place_fixed(c, history, s));
  }
  for (size_t i = 0; i < history->reservations.count; i++) {
    const tn__reservation *r = tn__vec_at(&history->reservations, i);
    if (has_memory(history, r)) TN_TRY(place_expandable(c, history, r));
  }
  count_split(caching);
  tn_caching_reset_peaks(caching);
  tn_assert_walk(tn__caching_check(caching, NULL));
  return TN_OK;
}

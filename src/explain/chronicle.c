/* chronicle.c -- from entries and final segments to spans.  See chronicle.h.
 *
 * Forward, entries are matched: an allocation, the request to free it, the moment when its memory may be used again.  What is freed
 * without having been allocated, and what is held at the end without having been allocated, was there before.
 *
 * Backward, sizes are found.  An entry says what was requested; the allocator rounds that up, and in the large pool it also keeps a
 * remainder of up to 1 MiB, because it splits off only more than that.  No free piece of the large pool is that small, therefore:
 * where less than that lies between a block and the next one, or the segment's end, it belongs to the block.  One case leaves no sign: a
 * block from before the history whose right neighbour was freed before it began, too; its remainder counts as free. */
#include "explain/chronicle.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "base/mem.h"
#include "caching/caching.h"
#include "explain/ranks.h"

#define BEFORE (1u << 31) /* in span_of while matching: a number among those from before the history */
#define BYTES_SUM_MAX ((uint64_t)1 << 60) /* tn_trace_check() keeps what segments hold below 2^62 */

/* An entry that matters for sizes: of a large block, or of a segment (place TN_NONE). */
typedef struct large {
  uint32_t entry, place;
} large;

/* Places are the addresses of blocks, numbered as they appear.  Ranks are those of large blocks and of segments, by address. */
typedef struct builder {
  tn__chronicle *history;
  const tn_segment *segments; /* of the device, at the end */
  const tn_segment_block *blocks;
  tn_map places;      /* address -> place */
  tn_vec addrs;       /* tn_addr by place */
  tn_vec live;        /* uint32_t by place: the span there; TN_NONE */
  tn_vec before;      /* tn__span, from before the history */
  tn_vec large;       /* large, in the order of entries */
  /* While going back: */
  tn_vec rank_addrs;  /* tn_addr by rank */
  uint32_t *rank_of;  /* by place; TN_NONE: of no large block */
  uint32_t *held;     /* by rank: the large span there; TN_NONE */
  tn__ranks held_set, segment_set;
  uint64_t *segment_bytes; /* by rank, of those in segment_set */
  uint8_t *is_exact;       /* by rank: blocks there keep no remainder (small pool) */
} builder;

static int names_block(const tn_entry *entry) {
  return entry->action == TN_ACTION_ALLOC || entry->action == TN_ACTION_FREE_REQUESTED || entry->action == TN_ACTION_FREE_COMPLETED;
}

static int names_segment(const tn_entry *entry) {
  return entry->action == TN_ACTION_SEGMENT_ALLOC || entry->action == TN_ACTION_SEGMENT_FREE;
}

static int is_active(const tn_segment_block *block) { return block->state != TN_BLOCK_INACTIVE; }

static int place_of(builder *b, tn_addr addr, uint32_t *out) {
  static const uint32_t none = TN_NONE;
  uint32_t place = tn__map_get(&b->places, addr);
  if (place == TN_NONE) {
    place = (uint32_t)b->addrs.count;
    TN_TRY(tn__map_set(&b->places, addr, place));
    TN_TRY(tn__vec_push(&b->addrs, &addr));
    TN_TRY(tn__vec_push(&b->live, &none));
  }
  *out = place;
  return TN_OK;
}

static uint32_t *live_at(builder *b, uint32_t place) { return &TN_VEC(&b->live, uint32_t)[place]; }

static int large_add(builder *b, uint32_t at, uint32_t place) {
  large added = {at, place};
  return tn__vec_push(&b->large, &added);
}

/* ---- forward: matching --------------------------------------------------------------------------------------------------- */

static tn__span *span_at(builder *b, uint32_t span) {
  return span & BEFORE ? tn__vec_at(&b->before, span & ~BEFORE) : tn__vec_at(&b->history->spans, span);
}

static int is_large(const builder *b, const tn__span *span) { return tn__round(&b->history->conf, span->requested_bytes) > TN__SMALL_BYTES_MAX; }

static tn__span span_new(const tn_entry *entry, uint32_t alloc) {
  return (tn__span){.addr = entry->addr,
                    .requested_bytes = entry->bytes,
                    .alloc = alloc,
                    .asked = TN_NONE,
                    .done = TN_NONE,
                    .stack = alloc == TN_NONE ? TN_NONE : entry->stack,
                    .stream = entry->stream,
                    .pool = entry->pool,
                    .step = TN_NONE,
                    .category = alloc == TN_NONE ? TN_CATEGORY_UNKNOWN : entry->category,
                    .phase = TN_PHASE_OTHER,
                    .flags = alloc != TN_NONE && entry->category != TN_CATEGORY_UNKNOWN ? TN__SPAN_LABELLED : 0};
}

/* Its end is not recorded; it is taken to be here, and since no entry says so, the block counts nothing. */
static void span_void(builder *b, uint32_t number, uint32_t at) {
  tn__span *span = span_at(b, number);
  if (span->asked == TN_NONE) span->asked = at;
  span->done = at;
  span->bytes = span->requested_bytes = 0;
  span->flags |= TN__SPAN_ODD;
  b->history->odd_count++;
}

static int match_alloc(builder *b, uint32_t at, uint32_t place) {
  uint32_t *live = live_at(b, place), span = (uint32_t)b->history->spans.count;
  if (*live != TN_NONE) span_void(b, *live, at);
  tn__span added = span_new(&b->history->entries[at], at);
  TN_TRY(tn__vec_push(&b->history->spans, &added));
  b->history->span_of[at] = *live = span;
  return is_large(b, &added) ? large_add(b, at, place) : TN_OK;
}

/* The span that an entry frees, one from before the history when none is live there. */
static int match_live(builder *b, uint32_t at, uint32_t place, tn__span **out) {
  uint32_t *live = live_at(b, place);
  if (*live == TN_NONE) {
    tn__span added = span_new(&b->history->entries[at], TN_NONE);
    *live = (uint32_t)b->before.count | BEFORE;
    TN_TRY(tn__vec_push(&b->before, &added));
  }
  b->history->span_of[at] = *live;
  *out = span_at(b, *live);
  return TN_OK;
}

static int match_asked(builder *b, uint32_t at, uint32_t place) {
  tn__span *span;
  TN_TRY(match_live(b, at, place, &span));
  if (span->asked == TN_NONE)
    span->asked = at;
  else
    b->history->odd_count++;
  return TN_OK;
}

/* Formats before 2.0 have one action "free"; else a block that completes without having been asked for was asked for before. */
static int match_done(builder *b, uint32_t at, uint32_t place) {
  int was_live = *live_at(b, place) != TN_NONE;
  tn__span *span;
  TN_TRY(match_live(b, at, place, &span));
  if (span->asked == TN_NONE && was_live) span->asked = at;
  if (!was_live) span->was_pending = 1;
  span->done = at;
  *live_at(b, place) = TN_NONE;
  return is_large(b, span) ? large_add(b, at, place) : TN_OK;
}

static int match_other(builder *b, uint32_t at) {
  const tn_entry *entry = &b->history->entries[at];
  TN_TRY(tn__vec_push(&b->history->others, &at));
  return names_segment(entry) && !tn__chronicle_ignores(b->history, entry) ? large_add(b, at, TN_NONE) : TN_OK;
}

static int match_entry(builder *b, uint32_t at, uint32_t place) {
  switch (b->history->entries[at].action) {
    case TN_ACTION_ALLOC: return match_alloc(b, at, place);
    case TN_ACTION_FREE_REQUESTED: return match_asked(b, at, place);
    default: return match_done(b, at, place);
  }
}

static int match_entries(builder *b) {
  uint32_t place = TN_NONE; /* of the entry before: a free completes where it was asked for */
  for (uint32_t i = 0; i < b->history->entry_count; i++) {
    const tn_entry *entry = &b->history->entries[i];
    b->history->span_of[i] = TN_NONE;
    int is_same = place != TN_NONE && entry->addr == entry[-1].addr;
    if (!names_block(entry)) {
      TN_TRY(match_other(b, i));
      place = TN_NONE;
    } else if (tn__chronicle_ignores(b->history, entry)) {
      b->history->odd_count++;
      place = TN_NONE;
    } else {
      if (!is_same) TN_TRY(place_of(b, entry->addr, &place));
      TN_TRY(match_entry(b, i, place));
    }
  }
  return TN_OK;
}

/* ---- the end: what the segments hold ------------------------------------------------------------------------------------- */

static int end_block(builder *b, const tn_segment *segment, const tn_segment_block *block) {
  uint32_t place;
  TN_TRY(place_of(b, block->addr, &place));
  uint32_t span = *live_at(b, place);
  if (span == TN_NONE) {
    tn__span added = {.addr = block->addr, .requested_bytes = block->requested_bytes, .alloc = TN_NONE, .asked = TN_NONE, .done = TN_NONE,
                      .stack = TN_NONE, .step = TN_NONE, .category = TN_CATEGORY_UNKNOWN, .phase = TN_PHASE_OTHER,
                      .was_pending = block->state == TN_BLOCK_PENDING_FREE};
    span = *live_at(b, place) = (uint32_t)b->before.count | BEFORE;
    TN_TRY(tn__vec_push(&b->before, &added));
  }
  tn__span *found = span_at(b, span);
  int is_pending = block->state == TN_BLOCK_PENDING_FREE, seems_pending = found->was_pending || found->asked != TN_NONE;
  found->bytes = block->bytes;
  if (block->requested_bytes) found->requested_bytes = block->requested_bytes;
  if (found->stack == TN_NONE) found->stack = block->stack;
  if (block->category != TN_CATEGORY_UNKNOWN) {
    found->category = block->category;
    found->flags |= TN__SPAN_LABELLED;
  }
  found->stream = segment->stream;
  found->pool = segment->pool;
  found->flags |= TN__SPAN_HAS_END;
  if (is_pending == seems_pending) return TN_OK;
  found->asked = TN_NONE;
  found->flags |= TN__SPAN_ODD;
  b->history->odd_count++;
  return TN_OK;
}

/* Live by its entries, but not held at the end: one of the two is wrong, and the end is what can be seen. */
static void end_missing(builder *b) {
  for (uint32_t place = 0; place < b->addrs.count; place++) {
    uint32_t *live = live_at(b, place);
    if (*live == TN_NONE || span_at(b, *live)->flags & TN__SPAN_HAS_END) continue;
    span_void(b, *live, b->history->entry_count - 1);
    *live = TN_NONE;
  }
}

static int match_end(builder *b) {
  for (uint32_t i = 0; i < b->history->device->segments_count; i++) {
    const tn_segment *segment = &b->segments[i];
    for (uint32_t k = 0; k < segment->blocks_count; k++) {
      const tn_segment_block *block = &b->blocks[segment->blocks_at + k];
      if (is_active(block)) TN_TRY(end_block(b, segment, block));
    }
  }
  if (b->history->device->segments_count) end_missing(b); /* without segments, the entries are all there is */
  return TN_OK;
}

/* Those from before the history come first. */
static int spans_join(builder *b) {
  tn__chronicle *history = b->history;
  uint32_t shift = (uint32_t)b->before.count;
  history->before_count = shift;
  for (uint32_t i = 0; i < history->entry_count; i++) {
    uint32_t *span = &history->span_of[i];
    if (*span != TN_NONE) *span = *span & BEFORE ? *span & ~BEFORE : *span + shift;
  }
  for (uint32_t place = 0; place < b->addrs.count; place++) {
    uint32_t *span = live_at(b, place);
    if (*span != TN_NONE) *span = *span & BEFORE ? *span & ~BEFORE : *span + shift;
  }
  size_t during = history->spans.count;
  TN_TRY(tn__vec_resize(&history->spans, during + shift));
  tn__span *spans = TN__SPANS(history);
  if (shift && during) memmove(spans + shift, spans, during * sizeof *spans);
  if (shift) memcpy(spans, b->before.data, shift * sizeof *spans);
  return TN_OK;
}

/* ---- backward: sizes ----------------------------------------------------------------------------------------------------- */

static int addr_compare(const void *a, const void *b) {
  tn_addr left = *(const tn_addr *)a, right = *(const tn_addr *)b;
  return left < right ? -1 : left > right;
}

/* What a span takes when it keeps no remainder.  Those that contradict others count nothing and stay so. */
static void sizes_round(builder *b) {
  for (size_t i = 0; i < b->history->spans.count; i++) {
    tn__span *span = &TN__SPANS(b->history)[i];
    if (!(span->flags & TN__SPAN_HAS_END) && span->requested_bytes) span->bytes = tn__round(&b->history->conf, span->requested_bytes);
  }
}

static int is_ranked(const builder *b, const tn__span *span) { return span->bytes > TN__SMALL_BYTES_MAX || is_large(b, span); }

/* Each place once: rank_of marks those that are there. */
static int rank_place(builder *b, uint32_t place) {
  if (b->rank_of[place] != TN_NONE) return TN_OK;
  b->rank_of[place] = 0;
  return tn__vec_push(&b->rank_addrs, tn__vec_at(&b->addrs, place));
}

static int rank_addrs_gather(builder *b) {
  for (size_t i = 0; i < b->large.count; i++) {
    const large *at = tn__vec_at(&b->large, i);
    if (at->place != TN_NONE)
      TN_TRY(rank_place(b, at->place));
    else
      TN_TRY(tn__vec_push(&b->rank_addrs, &b->history->entries[at->entry].addr));
  }
  for (uint32_t i = 0; i < b->history->device->segments_count; i++)
    if (!(b->segments[i].flags & TN_SEGMENT_EXPANDABLE)) TN_TRY(tn__vec_push(&b->rank_addrs, &b->segments[i].addr));
  for (uint32_t place = 0; place < b->addrs.count; place++)
    if (*live_at(b, place) != TN_NONE && is_ranked(b, &TN__SPANS(b->history)[*live_at(b, place)])) TN_TRY(rank_place(b, place));
  return TN_OK;
}

static void rank_addrs_sort(builder *b) {
  tn_addr *addrs = b->rank_addrs.data;
  size_t count = 0;
  if (!b->rank_addrs.count) return;
  qsort(addrs, b->rank_addrs.count, sizeof *addrs, addr_compare);
  for (size_t i = 0; i < b->rank_addrs.count; i++)
    if (!count || addrs[count - 1] != addrs[i]) addrs[count++] = addrs[i];
  b->rank_addrs.count = count;
}

/* Only of an address that has one. */
static uint32_t rank_at(const builder *b, tn_addr addr) {
  const tn_addr *addrs = b->rank_addrs.data;
  size_t low = 0, high = b->rank_addrs.count;
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    if (addrs[middle] <= addr)
      low = middle;
    else
      high = middle;
  }
  return (uint32_t)low;
}

static int ranks_open(builder *b) {
  size_t places = b->addrs.count;
  b->rank_of = tn__mem_alloc((places + 1) * sizeof *b->rank_of);
  if (!b->rank_of) return TN_ENOMEM;
  for (size_t i = 0; i < places; i++) b->rank_of[i] = TN_NONE;
  TN_TRY(rank_addrs_gather(b));
  rank_addrs_sort(b);
  size_t count = b->rank_addrs.count;
  b->held = tn__mem_alloc((count + 1) * sizeof *b->held);
  b->segment_bytes = tn__mem_zalloc(count + 1, sizeof *b->segment_bytes);
  b->is_exact = tn__mem_zalloc(count + 1, 1);
  if (!b->held || !b->segment_bytes || !b->is_exact) return TN_ENOMEM;
  for (size_t i = 0; i < count; i++) {
    uint32_t place = tn__map_get(&b->places, TN_VEC(&b->rank_addrs, tn_addr)[i]);
    if (place != TN_NONE) b->rank_of[place] = (uint32_t)i;
    b->held[i] = TN_NONE;
  }
  TN_TRY(tn__ranks_init(&b->held_set, (uint32_t)count));
  return tn__ranks_init(&b->segment_set, (uint32_t)count);
}

static tn_addr addr_of(const builder *b, uint32_t rank) { return TN_VEC(&b->rank_addrs, tn_addr)[rank]; }

static void segment_put(builder *b, uint32_t rank, uint64_t bytes, int is_exact) {
  tn__ranks_add(&b->segment_set, rank);
  b->segment_bytes[rank] = bytes;
  b->is_exact[rank] = (uint8_t)is_exact;
}

/* The rank of the segment that an address lies in; TN_NONE: in none that is known, as in expandable segments. */
static uint32_t segment_of(const builder *b, uint32_t rank) {
  uint32_t segment = tn__ranks_up_to(&b->segment_set, rank);
  if (segment == TN_NONE || addr_of(b, rank) - addr_of(b, segment) >= b->segment_bytes[segment]) return TN_NONE;
  return segment;
}

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* From a rank to the next block that is held or the end of its segment. */
static uint64_t room_at(const builder *b, uint32_t rank, uint32_t segment) {
  uint64_t room = b->segment_bytes[segment] - (addr_of(b, rank) - addr_of(b, segment));
  uint32_t next = rank + 1 < b->rank_addrs.count ? tn__ranks_from(&b->held_set, rank + 1) : TN_NONE;
  return next == TN_NONE ? room : min_u64(room, addr_of(b, next) - addr_of(b, rank));
}

/* What is too little to be split off; blocks above max_split_size are never split. */
static int keeps_rest(const builder *b, uint64_t bytes, uint64_t rest_bytes) {
  uint64_t max_split_bytes = b->history->conf.max_split_bytes;
  return rest_bytes <= TN__SMALL_BYTES_MAX || (max_split_bytes && bytes >= max_split_bytes);
}

static void size_find(builder *b, uint32_t rank) {
  tn__span *span = &TN__SPANS(b->history)[b->held[rank]];
  uint32_t segment = segment_of(b, rank);
  if (segment == TN_NONE) return;
  uint64_t room = room_at(b, rank, segment);
  if (span->bytes > room) {
    span->bytes = room;
    span->flags |= TN__SPAN_ODD;
    b->history->odd_count++;
  } else if (!b->is_exact[segment] && keeps_rest(b, span->bytes, room - span->bytes)) {
    span->bytes = room;
  }
}

/* A block appears at rank: what lies between it and the block to its left is now known to be too small to be free. */
static void neighbour_fix(builder *b, uint32_t rank) {
  uint32_t left = rank ? tn__ranks_up_to(&b->held_set, rank - 1) : TN_NONE, segment = segment_of(b, rank);
  if (left == TN_NONE || segment == TN_NONE || left < segment || b->is_exact[segment]) return;
  tn__span *span = &TN__SPANS(b->history)[b->held[left]];
  uint64_t room = addr_of(b, rank) - addr_of(b, left);
  if (span->flags & TN__SPAN_HAS_END || span->bytes >= room) return;
  if (keeps_rest(b, span->bytes, room - span->bytes)) span->bytes = room;
}

static void undo_done(builder *b, const large *at) {
  uint32_t rank = b->rank_of[at->place];
  b->held[rank] = b->history->span_of[at->entry];
  tn__ranks_add(&b->held_set, rank);
  size_find(b, rank);
  neighbour_fix(b, rank);
}

static void undo_alloc(builder *b, const large *at) {
  uint32_t rank = b->rank_of[at->place];
  if (b->held[rank] != b->history->span_of[at->entry]) return; /* it counts nothing */
  b->held[rank] = TN_NONE;
  tn__ranks_remove(&b->held_set, rank);
}

static void undo(builder *b, const large *at) {
  const tn_entry *entry = &b->history->entries[at->entry];
  switch (entry->action) {
    case TN_ACTION_FREE_COMPLETED: undo_done(b, at); break;
    case TN_ACTION_ALLOC: undo_alloc(b, at); break;
    case TN_ACTION_SEGMENT_FREE: segment_put(b, rank_at(b, entry->addr), entry->bytes, entry->bytes <= 2 * TN__SMALL_BYTES_MAX); break;
    default: tn__ranks_remove(&b->segment_set, rank_at(b, entry->addr)); break;
  }
}

/* Segments and large blocks at the end. */
static void ends_put(builder *b) {
  for (uint32_t i = 0; i < b->history->device->segments_count; i++) {
    const tn_segment *segment = &b->segments[i];
    if (segment->flags & TN_SEGMENT_EXPANDABLE) continue; /* its blocks keep no remainder, and its borders move */
    segment_put(b, rank_at(b, segment->addr), segment->bytes, (segment->flags & TN_SEGMENT_SMALL) != 0);
  }
  for (uint32_t place = 0; place < b->addrs.count; place++) {
    if (*live_at(b, place) == TN_NONE || b->rank_of[place] == TN_NONE) continue;
    b->held[b->rank_of[place]] = *live_at(b, place);
    tn__ranks_add(&b->held_set, b->rank_of[place]);
  }
}

static int sizes_find(builder *b) {
  sizes_round(b);
  TN_TRY(ranks_open(b));
  ends_put(b);
  for (size_t i = b->large.count; i-- > 0;) undo(b, tn__vec_at(&b->large, i));
  for (size_t i = 0; i < b->history->spans.count; i++) {
    tn__span *span = &TN__SPANS(b->history)[i];
    if (span->requested_bytes > span->bytes) span->requested_bytes = span->bytes;
  }
  return TN_OK;
}

/* ---- levels -------------------------------------------------------------------------------------------------------------- */

static int64_t reserved_change(const tn__chronicle *history, const tn_entry *entry) {
  if (tn__chronicle_ignores(history, entry)) return 0;
  switch (entry->action) {
    case TN_ACTION_SEGMENT_ALLOC:
    case TN_ACTION_SEGMENT_MAP: return (int64_t)entry->bytes;
    case TN_ACTION_SEGMENT_FREE:
    case TN_ACTION_SEGMENT_UNMAP: return -(int64_t)entry->bytes;
    default: return 0;
  }
}

static void level_add(tn__level *level, const tn__span *span, int is_allocated) {
  level->active_bytes += span->bytes;
  if (!is_allocated) return;
  level->allocated_bytes += span->bytes;
  level->requested_bytes += span->requested_bytes;
}

/* What the segments hold at the end, and going back from there, what they held at first. */
static void reserved_find(builder *b) {
  tn__chronicle *history = b->history;
  int64_t change = 0, lowest = 0; /* of the running sum backwards */
  uint64_t reserved = 0;
  for (uint32_t i = 0; i < history->device->segments_count; i++) reserved += b->segments[i].bytes;
  for (size_t i = history->others.count; i-- > 0;) {
    change -= reserved_change(history, &history->entries[TN_VEC(&history->others, uint32_t)[i]]);
    if (change < lowest) lowest = change;
  }
  if ((int64_t)reserved + lowest < 0) { /* more was given back than was ever there */
    history->odd_count++;
    reserved = (uint64_t)-lowest;
  }
  history->first.reserved_bytes = (uint64_t)((int64_t)reserved + change);
  history->last.reserved_bytes = reserved;
}

static void levels_find(builder *b) {
  tn__chronicle *history = b->history;
  reserved_find(b);
  for (size_t i = 0; i < history->spans.count; i++) {
    const tn__span *span = &TN__SPANS(history)[i];
    if (i < history->before_count) level_add(&history->first, span, !span->was_pending);
    if (span->done == TN_NONE) level_add(&history->last, span, span->asked == TN_NONE && !span->was_pending);
  }
}

/* ---- the history --------------------------------------------------------------------------------------------------------- */

static int builder_open(builder *b, tn__chronicle *history) {
  size_t count = history->entry_count;
  *b = (builder){.history = history};
  const tn_segment *segments = tn_trace_table(history->trace, TN_TABLE_SEGMENT, NULL);
  b->segments = segments ? segments + history->device->segments_at : NULL;
  b->blocks = tn_trace_table(history->trace, TN_TABLE_SEGMENT_BLOCK, NULL);
  tn__vec_init(&b->addrs, sizeof(tn_addr));
  tn__vec_init(&b->before, sizeof(tn__span));
  tn__vec_init(&b->live, sizeof(uint32_t));
  tn__vec_init(&b->large, sizeof(large));
  tn__vec_init(&b->rank_addrs, sizeof(tn_addr));
  tn__map_init(&b->places);
  history->span_of = tn__mem_alloc((count + 1) * sizeof *history->span_of);
  return history->span_of ? TN_OK : TN_ENOMEM;
}

static void builder_close(builder *b) {
  tn__mem_free(b->is_exact);
  tn__mem_free(b->segment_bytes);
  tn__ranks_deinit(&b->segment_set);
  tn__ranks_deinit(&b->held_set);
  tn__mem_free(b->held);
  tn__mem_free(b->rank_of);
  tn__vec_deinit(&b->rank_addrs);
  tn__vec_deinit(&b->live);
  tn__map_deinit(&b->places);
  tn__vec_deinit(&b->large);
  tn__vec_deinit(&b->before);
  tn__vec_deinit(&b->addrs);
}

static int build(builder *b) {
  /* An allocation has two entries more, mostly. */
  TN_TRY(tn__vec_reserve(&b->history->spans, b->history->entry_count / 3 + b->history->entry_count / 64));
  TN_TRY(match_entries(b));
  TN_TRY(match_end(b));
  TN_TRY(spans_join(b));
  TN_TRY(sizes_find(b));
  levels_find(b);
  return TN_OK;
}

int tn__chronicle_init(tn__chronicle *history, const tn_trace *trace, size_t device_record) {
  size_t devices = 0;
  const tn_device *device = tn_trace_table(trace, TN_TABLE_DEVICE, &devices);
  const tn_entry *entries = tn_trace_table(trace, TN_TABLE_ENTRY, NULL);
  *history = (tn__chronicle){.trace = trace};
  tn__vec_init(&history->spans, sizeof(tn__span));
  tn__vec_init(&history->others, sizeof(uint32_t));
  if (device_record >= devices) return TN_EINVAL;
  history->device = &device[device_record];
  history->entries = entries ? entries + history->device->entries_at : NULL;
  history->entry_count = history->device->entries_count;
  (void)tn_conf_recorded(trace, &history->conf, NULL); /* a setting that nobody knows: PyTorch's own */
  history->bytes_max = BYTES_SUM_MAX / ((uint64_t)history->entry_count + 1);
  builder b;
  int rc = builder_open(&b, history);
  if (!rc) rc = build(&b);
  builder_close(&b);
  return rc;
}

void tn__chronicle_deinit(tn__chronicle *history) {
  tn__vec_deinit(&history->others);
  tn__vec_deinit(&history->spans);
  tn__mem_free(history->span_of);
  history->span_of = NULL;
}

/* ---- walking ------------------------------------------------------------------------------------------------------------- */

tn__walk tn__walk_begin(const tn__chronicle *history) { return (tn__walk){.history = history, .level = history->first}; }

void tn__walk_reserved(tn__walk *walk, uint32_t at) {
  int64_t change = reserved_change(walk->history, &walk->history->entries[at]);
  walk->level.reserved_bytes = (uint64_t)((int64_t)walk->level.reserved_bytes + change);
}

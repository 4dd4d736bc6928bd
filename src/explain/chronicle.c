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
#include "explain/ranks.h"
#include "explain/rounding.h"

#define BEFORE (1u << 31) /* in span_of while matching: a number among those from before the history */

#define BYTES_SUM_MAX ((uint64_t)1 << 60) /* tn_trace_check() keeps what segments hold below 2^62 */

/* Places are the addresses that a block or a segment begins at, numbered by address. */
typedef struct builder {
  tn__chronicle *history;
  const tn_segment *segments; /* of the device, at the end */
  const tn_segment_block *blocks;
  tn__rounding rounding;
  tn_vec addrs;       /* tn_addr by place */
  tn_map places;      /* address -> place */
  uint32_t *place_of; /* by entry; TN_NONE: it names no address */
  uint32_t *live;     /* by place: the span there; TN_NONE */
  tn_vec before;      /* tn__span, from before the history */
  tn__ranks live_set, segment_set;
  uint64_t *segment_bytes; /* by place, of those in segment_set */
  uint8_t *is_exact;       /* by place: blocks there keep no remainder (small pool) */
} builder;

/* ---- places -------------------------------------------------------------------------------------------------------------- */

static int names_block(const tn_entry *entry) {
  return entry->action == TN_ACTION_ALLOC || entry->action == TN_ACTION_FREE_REQUESTED || entry->action == TN_ACTION_FREE_COMPLETED;
}

static int names_segment(const tn_entry *entry) {
  return entry->action == TN_ACTION_SEGMENT_ALLOC || entry->action == TN_ACTION_SEGMENT_FREE;
}

static int is_active(const tn_segment_block *block) { return block->state != TN_BLOCK_INACTIVE; }

/* The number in order of appearance, for now. */
static int place_add(builder *b, tn_addr addr, uint32_t *out) {
  uint32_t place = tn__map_get(&b->places, addr);
  if (place == TN_NONE) {
    place = (uint32_t)b->addrs.count;
    TN_TRY(tn__map_set(&b->places, addr, place));
    TN_TRY(tn__vec_push(&b->addrs, &addr));
  }
  if (out) *out = place;
  return TN_OK;
}

static int addr_compare(const void *a, const void *b) {
  tn_addr left = *(const tn_addr *)a, right = *(const tn_addr *)b;
  return left < right ? -1 : left > right;
}

/* By address from now on. */
static int places_sort(builder *b) {
  size_t count = b->addrs.count;
  uint32_t *renamed = tn__mem_alloc((count + 1) * sizeof *renamed);
  tn_addr *sorted = tn__mem_alloc((count + 1) * sizeof *sorted);
  int rc = renamed && sorted ? TN_OK : TN_ENOMEM;
  if (!rc && count) {
    memcpy(sorted, b->addrs.data, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, addr_compare);
    for (size_t i = 0; i < count; i++) {
      renamed[tn__map_get(&b->places, sorted[i])] = (uint32_t)i;
      (void)tn__map_set(&b->places, sorted[i], (uint32_t)i); /* replaces: needs no memory */
    }
    memcpy(b->addrs.data, sorted, count * sizeof *sorted);
    for (uint32_t i = 0; i < b->history->entry_count; i++)
      if (b->place_of[i] != TN_NONE) b->place_of[i] = renamed[b->place_of[i]];
  }
  tn__mem_free(sorted);
  tn__mem_free(renamed);
  return rc;
}

static int places_gather(builder *b) {
  const tn__chronicle *history = b->history;
  for (uint32_t i = 0; i < history->entry_count; i++) {
    const tn_entry *entry = &history->entries[i];
    b->place_of[i] = TN_NONE;
    if (!names_block(entry) && !names_segment(entry)) continue;
    if (tn__chronicle_ignores(history, entry)) {
      b->history->odd_count++;
      continue;
    }
    if (i && b->place_of[i - 1] != TN_NONE && entry[-1].addr == entry->addr)
      b->place_of[i] = b->place_of[i - 1]; /* a free completes where it was asked for */
    else
      TN_TRY(place_add(b, entry->addr, &b->place_of[i]));
  }
  for (uint32_t i = 0; i < history->device->segments_count; i++) {
    const tn_segment *segment = &b->segments[i];
    TN_TRY(place_add(b, segment->addr, NULL));
    for (uint32_t k = 0; k < segment->blocks_count; k++)
      if (is_active(&b->blocks[segment->blocks_at + k])) TN_TRY(place_add(b, b->blocks[segment->blocks_at + k].addr, NULL));
  }
  return places_sort(b);
}

static int places_open(builder *b) {
  size_t count = b->addrs.count;
  b->live = tn__mem_alloc((count + 1) * sizeof *b->live);
  b->segment_bytes = tn__mem_zalloc(count + 1, sizeof *b->segment_bytes);
  b->is_exact = tn__mem_zalloc(count + 1, 1);
  if (!b->live || !b->segment_bytes || !b->is_exact) return TN_ENOMEM;
  for (size_t i = 0; i < count; i++) b->live[i] = TN_NONE;
  TN_TRY(tn__ranks_init(&b->live_set, (uint32_t)count));
  return tn__ranks_init(&b->segment_set, (uint32_t)count);
}

/* ---- forward: matching --------------------------------------------------------------------------------------------------- */

static tn__span *span_at(builder *b, uint32_t span) {
  return span & BEFORE ? tn__vec_at(&b->before, span & ~BEFORE) : tn__vec_at(&b->history->spans, span);
}

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

static int match_alloc(builder *b, uint32_t at) {
  uint32_t place = b->place_of[at], span = (uint32_t)b->history->spans.count;
  if (b->live[place] != TN_NONE) span_void(b, b->live[place], at);
  tn__span added = span_new(&b->history->entries[at], at);
  TN_TRY(tn__vec_push(&b->history->spans, &added));
  b->live[place] = span;
  b->history->span_of[at] = span;
  return TN_OK;
}

/* The span that an entry frees, one from before the history when none is live there. */
static int match_live(builder *b, uint32_t at, uint32_t *out) {
  uint32_t place = b->place_of[at];
  if (b->live[place] == TN_NONE) {
    tn__span added = span_new(&b->history->entries[at], TN_NONE);
    b->live[place] = (uint32_t)b->before.count | BEFORE;
    TN_TRY(tn__vec_push(&b->before, &added));
  }
  *out = b->history->span_of[at] = b->live[place];
  return TN_OK;
}

static int match_asked(builder *b, uint32_t at) {
  uint32_t span;
  TN_TRY(match_live(b, at, &span));
  if (span_at(b, span)->asked == TN_NONE)
    span_at(b, span)->asked = at;
  else
    b->history->odd_count++;
  return TN_OK;
}

/* Formats before 2.0 have one action "free"; else a block that completes without having been asked for was asked for before. */
static int match_done(builder *b, uint32_t at) {
  int was_live = b->live[b->place_of[at]] != TN_NONE;
  uint32_t span;
  TN_TRY(match_live(b, at, &span));
  tn__span *found = span_at(b, span);
  if (found->asked == TN_NONE && was_live) found->asked = at;
  if (!was_live) found->was_pending = 1;
  found->done = at;
  b->live[b->place_of[at]] = TN_NONE;
  return TN_OK;
}

static int match_entries(builder *b) {
  for (uint32_t i = 0; i < b->history->entry_count; i++) {
    b->history->span_of[i] = TN_NONE;
    if (b->place_of[i] == TN_NONE) continue;
    switch (b->history->entries[i].action) {
      case TN_ACTION_ALLOC: TN_TRY(match_alloc(b, i)); break;
      case TN_ACTION_FREE_REQUESTED: TN_TRY(match_asked(b, i)); break;
      case TN_ACTION_FREE_COMPLETED: TN_TRY(match_done(b, i)); break;
      default: break;
    }
  }
  return TN_OK;
}

/* ---- the end: what the segments hold ------------------------------------------------------------------------------------- */

static int end_block(builder *b, const tn_segment *segment, const tn_segment_block *block) {
  uint32_t place = tn__map_get(&b->places, block->addr), span = b->live[place];
  if (span == TN_NONE) {
    tn__span added = {.addr = block->addr, .requested_bytes = block->requested_bytes, .alloc = TN_NONE, .asked = TN_NONE, .done = TN_NONE,
                      .stack = TN_NONE, .step = TN_NONE, .category = TN_CATEGORY_UNKNOWN, .phase = TN_PHASE_OTHER,
                      .was_pending = block->state == TN_BLOCK_PENDING_FREE};
    span = b->live[place] = (uint32_t)b->before.count | BEFORE;
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
  for (size_t place = 0; place < b->addrs.count; place++) {
    if (b->live[place] == TN_NONE) continue;
    if (span_at(b, b->live[place])->flags & TN__SPAN_HAS_END) continue;
    span_void(b, b->live[place], b->history->entry_count - 1);
    b->live[place] = TN_NONE;
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
  for (size_t place = 0; place < b->addrs.count; place++) {
    uint32_t *span = &b->live[place];
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

static tn_addr addr_of(const builder *b, uint32_t place) { return TN_VEC(&b->addrs, tn_addr)[place]; }

static void segment_put(builder *b, uint32_t place, uint64_t bytes, int is_exact) {
  tn__ranks_add(&b->segment_set, place);
  b->segment_bytes[place] = bytes;
  b->is_exact[place] = (uint8_t)is_exact;
}

/* The place of the segment that an address lies in; TN_NONE: in none that is known, as in expandable segments. */
static uint32_t segment_of(const builder *b, uint32_t place) {
  uint32_t segment = tn__ranks_up_to(&b->segment_set, place);
  if (segment == TN_NONE || addr_of(b, place) - addr_of(b, segment) >= b->segment_bytes[segment]) return TN_NONE;
  return segment;
}

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* From a place to the next live block or the end of its segment. */
static uint64_t room_at(const builder *b, uint32_t place, uint32_t segment) {
  uint64_t room = b->segment_bytes[segment] - (addr_of(b, place) - addr_of(b, segment));
  uint32_t next = place + 1 < b->addrs.count ? tn__ranks_from(&b->live_set, place + 1) : TN_NONE;
  return next == TN_NONE ? room : min_u64(room, addr_of(b, next) - addr_of(b, place));
}

static void size_find(builder *b, uint32_t place) {
  tn__span *span = tn__vec_at(&b->history->spans, b->live[place]);
  uint32_t segment = segment_of(b, place);
  span->bytes = tn__rounded(&b->rounding, span->requested_bytes);
  if (segment == TN_NONE) return;
  uint64_t room = room_at(b, place, segment);
  if (span->bytes > room) {
    span->bytes = room;
    span->flags |= TN__SPAN_ODD;
    b->history->odd_count++;
  } else if (!b->is_exact[segment] && tn__rounding_keeps_rest(&b->rounding, span->bytes, room - span->bytes)) {
    span->bytes = room;
  }
}

/* A block appears at place: what lies between it and the block to its left is now known to be too small to be free. */
static void neighbour_fix(builder *b, uint32_t place) {
  uint32_t left = place ? tn__ranks_up_to(&b->live_set, place - 1) : TN_NONE, segment = segment_of(b, place);
  if (left == TN_NONE || segment == TN_NONE || left < segment || b->is_exact[segment]) return;
  tn__span *span = tn__vec_at(&b->history->spans, b->live[left]);
  uint64_t room = addr_of(b, place) - addr_of(b, left);
  if (span->flags & TN__SPAN_HAS_END || span->bytes >= room) return;
  if (tn__rounding_keeps_rest(&b->rounding, span->bytes, room - span->bytes)) span->bytes = room;
}

static void undo_done(builder *b, uint32_t at) {
  uint32_t place = b->place_of[at];
  b->live[place] = b->history->span_of[at];
  tn__ranks_add(&b->live_set, place);
  size_find(b, place);
  neighbour_fix(b, place);
}

static void undo_alloc(builder *b, uint32_t at) {
  uint32_t place = b->place_of[at];
  if (b->live[place] != b->history->span_of[at]) return; /* it counts nothing */
  b->live[place] = TN_NONE;
  tn__ranks_remove(&b->live_set, place);
}

static void undo(builder *b, uint32_t at) {
  const tn_entry *entry = &b->history->entries[at];
  if (b->place_of[at] == TN_NONE) return;
  switch (entry->action) {
    case TN_ACTION_FREE_COMPLETED: undo_done(b, at); break;
    case TN_ACTION_ALLOC: undo_alloc(b, at); break;
    case TN_ACTION_SEGMENT_FREE: segment_put(b, b->place_of[at], entry->bytes, entry->bytes <= (uint64_t)2 << 20); break;
    case TN_ACTION_SEGMENT_ALLOC: tn__ranks_remove(&b->segment_set, b->place_of[at]); break;
    default: break;
  }
}

static void sizes_find(builder *b) {
  for (uint32_t i = 0; i < b->history->device->segments_count; i++) {
    const tn_segment *segment = &b->segments[i];
    if (segment->flags & TN_SEGMENT_EXPANDABLE) continue; /* its blocks keep no remainder, and its borders move */
    segment_put(b, tn__map_get(&b->places, segment->addr), segment->bytes, (segment->flags & TN_SEGMENT_SMALL) != 0);
  }
  for (uint32_t place = 0; place < b->addrs.count; place++)
    if (b->live[place] != TN_NONE) tn__ranks_add(&b->live_set, place);
  for (uint32_t i = b->history->entry_count; i-- > 0;) undo(b, i);
  /* Without final segments, what is live at the end has not been seen. */
  for (size_t i = 0; i < b->history->spans.count; i++) {
    tn__span *span = tn__vec_at(&b->history->spans, i);
    if (!span->bytes && span->requested_bytes) span->bytes = tn__rounded(&b->rounding, span->requested_bytes);
    if (span->requested_bytes > span->bytes) span->requested_bytes = span->bytes;
  }
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
static void levels_find(builder *b) {
  tn__chronicle *history = b->history;
  int64_t change = 0, lowest = 0; /* of the running sum backwards */
  uint64_t reserved = 0;
  for (uint32_t i = 0; i < history->device->segments_count; i++) reserved += b->segments[i].bytes;
  for (uint32_t i = history->entry_count; i-- > 0;) {
    change -= reserved_change(history, &history->entries[i]);
    if (change < lowest) lowest = change;
  }
  if ((int64_t)reserved + lowest < 0) { /* more was given back than was ever there */
    history->odd_count++;
    reserved = (uint64_t)-lowest;
  }
  history->first.reserved_bytes = (uint64_t)((int64_t)reserved + change);
  for (size_t i = 0; i < history->before_count; i++)
    level_add(&history->first, &TN__SPANS(history)[i], !TN__SPANS(history)[i].was_pending);
  tn__walk walk = tn__walk_begin(history);
  while (tn__walk_next(&walk)) {}
  history->last = walk.level;
}

/* ---- the history --------------------------------------------------------------------------------------------------------- */

static int builder_open(builder *b, tn__chronicle *history) {
  size_t count = history->entry_count;
  *b = (builder){.history = history, .rounding = tn__rounding_of(history->trace)};
  const tn_segment *segments = tn_trace_table(history->trace, TN_TABLE_SEGMENT, NULL);
  b->segments = segments ? segments + history->device->segments_at : NULL;
  b->blocks = tn_trace_table(history->trace, TN_TABLE_SEGMENT_BLOCK, NULL);
  tn__vec_init(&b->addrs, sizeof(tn_addr));
  tn__vec_init(&b->before, sizeof(tn__span));
  tn__map_init(&b->places);
  b->place_of = tn__mem_alloc((count + 1) * sizeof *b->place_of);
  history->span_of = tn__mem_alloc((count + 1) * sizeof *history->span_of);
  return b->place_of && history->span_of ? TN_OK : TN_ENOMEM;
}

static void builder_close(builder *b) {
  tn__mem_free(b->is_exact);
  tn__mem_free(b->segment_bytes);
  tn__ranks_deinit(&b->segment_set);
  tn__ranks_deinit(&b->live_set);
  tn__mem_free(b->live);
  tn__mem_free(b->place_of);
  tn__map_deinit(&b->places);
  tn__vec_deinit(&b->before);
  tn__vec_deinit(&b->addrs);
}

static uint32_t allocs_count(const tn__chronicle *history) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < history->entry_count; i++) count += history->entries[i].action == TN_ACTION_ALLOC;
  return count;
}

static int build(builder *b) {
  TN_TRY(places_gather(b));
  TN_TRY(places_open(b));
  TN_TRY(tn__vec_reserve(&b->history->spans, allocs_count(b->history)));
  TN_TRY(match_entries(b));
  TN_TRY(match_end(b));
  TN_TRY(spans_join(b));
  sizes_find(b);
  levels_find(b);
  return TN_OK;
}

int tn__chronicle_init(tn__chronicle *history, const tn_trace *trace, size_t device_record) {
  size_t devices = 0;
  const tn_device *device = tn_trace_table(trace, TN_TABLE_DEVICE, &devices);
  const tn_entry *entries = tn_trace_table(trace, TN_TABLE_ENTRY, NULL);
  *history = (tn__chronicle){.trace = trace};
  tn__vec_init(&history->spans, sizeof(tn__span));
  if (device_record >= devices) return TN_EINVAL;
  history->device = &device[device_record];
  history->entries = entries ? entries + history->device->entries_at : NULL;
  history->entry_count = history->device->entries_count;
  history->bytes_max = BYTES_SUM_MAX / ((uint64_t)history->entry_count + 1);
  builder b;
  int rc = builder_open(&b, history);
  if (!rc) rc = build(&b);
  builder_close(&b);
  return rc;
}

void tn__chronicle_deinit(tn__chronicle *history) {
  tn__vec_deinit(&history->spans);
  tn__mem_free(history->span_of);
  history->span_of = NULL;
}

/* ---- walking ------------------------------------------------------------------------------------------------------------- */

tn__walk tn__walk_begin(const tn__chronicle *history) { return (tn__walk){.history = history, .level = history->first}; }

int tn__walk_next(tn__walk *walk) {
  const tn__chronicle *history = walk->history;
  if (walk->moment >= history->entry_count) return 0;
  uint32_t at = walk->moment++, number = history->span_of[at];
  tn__level *level = &walk->level;
  const tn__span *span = number == TN_NONE ? NULL : &TN__SPANS(history)[number];
  if (!span) {
    level->reserved_bytes = (uint64_t)((int64_t)level->reserved_bytes + reserved_change(history, &history->entries[at]));
    return 1;
  }
  if (span->alloc == at) level_add(level, span, 1);
  if (span->asked == at) {
    level->allocated_bytes -= span->bytes;
    level->requested_bytes -= span->requested_bytes;
  }
  if (span->done == at) level->active_bytes -= span->bytes;
  return 1;
}

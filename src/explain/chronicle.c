/* chronicle.c -- from entries and final segments to spans.  See chronicle.h.
 *
 * Forward, entries are matched: an allocation, the request to free it, the moment when its memory may be used again.  What is freed
 * without having been allocated, and what is held at the end without having been allocated, was there before.
 *
 * Sizes are found backward, by sizes.c. */
#include "explain/chronicle.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "explain/builder.h"

#define BEFORE (1u << 31) /* in span_of while matching: a number among those from before the history */
#define BYTES_SUM_MAX ((uint64_t)1 << 60) /* tn_trace_check() keeps what segments hold below 2^62 */

static int names_block(const tn_entry *entry) {
  return entry->action == TN_ACTION_ALLOC || entry->action == TN_ACTION_FREE_REQUESTED || entry->action == TN_ACTION_FREE_COMPLETED;
}

static int names_segment(const tn_entry *entry) {
  return entry->action == TN_ACTION_SEGMENT_ALLOC || entry->action == TN_ACTION_SEGMENT_FREE;
}

enum { PREFETCH = 12 }; /* entries between asking for a place in the map and looking there */

static int is_active(const tn_segment_block *block) { return block->state != TN_BLOCK_INACTIVE; }

static int place_of(tn__builder *b, tn_addr addr, uint32_t *out) {
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

static int large_add(tn__builder *b, uint32_t at, uint32_t place) {
  tn__large added = {at, place};
  return tn__vec_push(&b->large, &added);
}

/* ---- forward: matching --------------------------------------------------------------------------------------------------- */

static tn__span *span_at(tn__builder *b, uint32_t span) {
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
static void span_void(tn__builder *b, uint32_t number, uint32_t at) {
  tn__span *span = span_at(b, number);
  if (span->asked == TN_NONE) span->asked = at;
  span->done = at;
  span->bytes = span->requested_bytes = 0;
  span->flags |= TN__SPAN_ODD;
  b->history->odd_count++;
}

static int match_alloc(tn__builder *b, uint32_t at, uint32_t place) {
  uint32_t *live = tn__builder_live(b, place), span = (uint32_t)b->history->spans.count;
  if (*live != TN_NONE) span_void(b, *live, at);
  tn__span added = span_new(&b->history->entries[at], at);
  TN_TRY(tn__vec_push(&b->history->spans, &added));
  b->history->span_of[at] = *live = span;
  return tn__builder_is_large(b, &added) ? large_add(b, at, place) : TN_OK;
}

/* The span that an entry frees, one from before the history when none is live there. */
static int match_live(tn__builder *b, uint32_t at, uint32_t place, tn__span **out) {
  uint32_t *live = tn__builder_live(b, place);
  if (*live == TN_NONE) {
    tn__span added = span_new(&b->history->entries[at], TN_NONE);
    *live = (uint32_t)b->before.count | BEFORE;
    TN_TRY(tn__vec_push(&b->before, &added));
  }
  b->history->span_of[at] = *live;
  *out = span_at(b, *live);
  return TN_OK;
}

static int match_asked(tn__builder *b, uint32_t at, uint32_t place) {
  tn__span *span;
  TN_TRY(match_live(b, at, place, &span));
  if (span->asked == TN_NONE)
    span->asked = at;
  else
    b->history->odd_count++;
  return TN_OK;
}

/* Formats before 2.0 have one action "free"; else a block that completes without having been asked for was asked for before. */
static int match_done(tn__builder *b, uint32_t at, uint32_t place) {
  int was_live = *tn__builder_live(b, place) != TN_NONE;
  tn__span *span;
  TN_TRY(match_live(b, at, place, &span));
  if (span->asked == TN_NONE && was_live) span->asked = at;
  if (!was_live) span->was_pending = 1;
  span->done = at;
  *tn__builder_live(b, place) = TN_NONE;
  return tn__builder_is_large(b, span) ? large_add(b, at, place) : TN_OK;
}

static int match_other(tn__builder *b, uint32_t at) {
  const tn_entry *entry = &b->history->entries[at];
  TN_TRY(tn__vec_push(&b->history->others, &at));
  return names_segment(entry) && !tn__chronicle_ignores(b->history, entry) ? large_add(b, at, TN_NONE) : TN_OK;
}

static int match_entry(tn__builder *b, uint32_t at, uint32_t place) {
  switch (b->history->entries[at].action) {
    case TN_ACTION_ALLOC: return match_alloc(b, at, place);
    case TN_ACTION_FREE_REQUESTED: return match_asked(b, at, place);
    default: return match_done(b, at, place);
  }
}

static int match_entries(tn__builder *b) {
  uint32_t place = TN_NONE; /* of the entry before: a free completes where it was asked for */
  for (uint32_t i = 0; i < b->history->entry_count; i++) {
    const tn_entry *entry = &b->history->entries[i];
    b->history->span_of[i] = TN_NONE;
    if (i + PREFETCH < b->history->entry_count) tn__map_prefetch(&b->places, entry[PREFETCH].addr);
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

static int end_block(tn__builder *b, const tn_segment *segment, const tn_segment_block *block) {
  uint32_t place;
  TN_TRY(place_of(b, block->addr, &place));
  uint32_t span = *tn__builder_live(b, place);
  if (span == TN_NONE) {
    tn__span added = {.addr = block->addr, .requested_bytes = block->requested_bytes, .alloc = TN_NONE, .asked = TN_NONE, .done = TN_NONE,
                      .stack = TN_NONE, .step = TN_NONE, .category = TN_CATEGORY_UNKNOWN, .phase = TN_PHASE_OTHER,
                      .was_pending = block->state == TN_BLOCK_PENDING_FREE};
    span = *tn__builder_live(b, place) = (uint32_t)b->before.count | BEFORE;
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
static void end_missing(tn__builder *b) {
  for (uint32_t place = 0; place < b->addrs.count; place++) {
    uint32_t *live = tn__builder_live(b, place);
    if (*live == TN_NONE || span_at(b, *live)->flags & TN__SPAN_HAS_END) continue;
    span_void(b, *live, b->history->entry_count - 1);
    *live = TN_NONE;
  }
}

static int match_end(tn__builder *b) {
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
static int spans_join(tn__builder *b) {
  tn__chronicle *history = b->history;
  uint32_t shift = (uint32_t)b->before.count;
  history->before_count = shift;
  for (uint32_t i = 0; i < history->entry_count; i++) {
    uint32_t *span = &history->span_of[i];
    if (*span != TN_NONE) *span = *span & BEFORE ? *span & ~BEFORE : *span + shift;
  }
  for (uint32_t place = 0; place < b->addrs.count; place++) {
    uint32_t *span = tn__builder_live(b, place);
    if (*span != TN_NONE) *span = *span & BEFORE ? *span & ~BEFORE : *span + shift;
  }
  size_t during = history->spans.count;
  TN_TRY(tn__vec_resize(&history->spans, during + shift));
  tn__span *spans = TN__SPANS(history);
  if (shift && during) memmove(spans + shift, spans, during * sizeof *spans);
  if (shift) memcpy(spans, b->before.data, shift * sizeof *spans);
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
static void reserved_find(tn__builder *b) {
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

static void levels_find(tn__builder *b) {
  tn__chronicle *history = b->history;
  reserved_find(b);
  for (size_t i = 0; i < history->spans.count; i++) {
    const tn__span *span = &TN__SPANS(history)[i];
    if (i < history->before_count) level_add(&history->first, span, !span->was_pending);
    if (span->done == TN_NONE) level_add(&history->last, span, span->asked == TN_NONE && !span->was_pending);
  }
}

/* ---- the history --------------------------------------------------------------------------------------------------------- */

static int builder_open(tn__builder *b, tn__chronicle *history) {
  size_t count = history->entry_count;
  *b = (tn__builder){.history = history};
  const tn_segment *segments = tn_trace_table(history->trace, TN_TABLE_SEGMENT, NULL);
  b->segments = segments ? segments + history->device->segments_at : NULL;
  b->blocks = tn_trace_table(history->trace, TN_TABLE_SEGMENT_BLOCK, NULL);
  tn__vec_init(&b->addrs, sizeof(tn_addr));
  tn__vec_init(&b->before, sizeof(tn__span));
  tn__vec_init(&b->live, sizeof(uint32_t));
  tn__vec_init(&b->large, sizeof(tn__large));
  tn__map_init(&b->places);
  history->span_of = tn__mem_alloc((count + 1) * sizeof *history->span_of);
  return history->span_of ? TN_OK : TN_ENOMEM;
}

static void builder_close(tn__builder *b) {
  tn__builder_sizes_deinit(b);
  tn__vec_deinit(&b->live);
  tn__map_deinit(&b->places);
  tn__vec_deinit(&b->large);
  tn__vec_deinit(&b->before);
  tn__vec_deinit(&b->addrs);
}

static int build(tn__builder *b) {
  /* An allocation has two entries more, mostly. */
  TN_TRY(tn__vec_reserve(&b->history->spans, b->history->entry_count / 3 + b->history->entry_count / 64));
  TN_TRY(match_entries(b));
  TN_TRY(match_end(b));
  TN_TRY(spans_join(b));
  TN_TRY(tn__builder_sizes(b));
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
  tn__builder b;
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

uint64_t tn__chronicle_large_page(const tn__chronicle *history) {
  return history->conf.large_segment_bytes ? history->conf.large_segment_bytes : TN__LARGE_SEGMENT_BYTES;
}

/* ---- walking ------------------------------------------------------------------------------------------------------------- */

tn__walk tn__walk_begin(const tn__chronicle *history) { return (tn__walk){.history = history, .level = history->first}; }

void tn__walk_reserved(tn__walk *walk, uint32_t at) {
  int64_t change = reserved_change(walk->history, &walk->history->entries[at]);
  walk->level.reserved_bytes = (uint64_t)((int64_t)walk->level.reserved_bytes + change);
}

/* layout.c -- the final segments, and going back from there, what was reserved at an earlier moment.  See layout.h. */
#include "explain/layout.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/map.h"

#define LARGE_PAGE ((uint64_t)20 << 20) /* of expandable segments of the large pool; small ones have pages of 2 MiB */

/* ---- segments from cudaMalloc: whole, by address ------------------------------------------------------------------------- */

static const tn_segment *final_segments(const tn__chronicle *history) {
  const tn_segment *segments = tn_trace_table(history->trace, TN_TABLE_SEGMENT, NULL);
  return segments ? segments + history->device->segments_at : NULL;
}

static tn__layout_segment segment_of_record(const tn_segment *segment, uint32_t record) {
  return (tn__layout_segment){.addr = segment->addr, .bytes = segment->bytes, .stream = segment->stream, .pool = segment->pool,
                              .flags = segment->flags, .record = record};
}

static tn__layout_segment segment_of_entry(const tn_entry *entry) {
  uint32_t small = entry->bytes <= (uint64_t)2 << 20 ? TN_SEGMENT_SMALL : 0;
  return (tn__layout_segment){.addr = entry->addr, .bytes = entry->bytes, .stream = entry->stream, .pool = entry->pool,
                              .flags = small, .record = TN_NONE};
}

static int segment_put(tn__layout *layout, tn_map *at, const tn__layout_segment *segment) {
  TN_TRY(tn__map_set(at, segment->addr, (uint32_t)layout->segments.count));
  return tn__vec_push(&layout->segments, segment);
}

static void segment_drop(tn__layout *layout, tn_map *at, tn_addr addr) {
  uint32_t place = tn__map_remove(at, addr);
  if (place != TN_NONE) ((tn__layout_segment *)tn__vec_at(&layout->segments, place))->bytes = 0;
}

static int fixed_segments(tn__layout *layout, tn_map *at) {
  const tn__chronicle *history = layout->history;
  const tn_segment *segments = final_segments(history);
  for (uint32_t i = 0; i < history->device->segments_count; i++) {
    if (segments[i].flags & TN_SEGMENT_EXPANDABLE) continue;
    tn__layout_segment segment = segment_of_record(&segments[i], i);
    TN_TRY(segment_put(layout, at, &segment));
  }
  for (uint32_t i = history->entry_count; i-- > layout->moment;) {
    const tn_entry *entry = &history->entries[i];
    if (tn__chronicle_ignores(history, entry)) continue;
    if (entry->action == TN_ACTION_SEGMENT_ALLOC) segment_drop(layout, at, entry->addr);
    if (entry->action != TN_ACTION_SEGMENT_FREE) continue;
    tn__layout_segment segment = segment_of_entry(entry);
    TN_TRY(segment_put(layout, at, &segment));
  }
  return TN_OK;
}

/* ---- expandable segments: mapped ranges that grow and shrink ------------------------------------------------------------- */

typedef struct border { /* from here on, `change` more ranges cover the addresses */
  tn_addr addr;
  int32_t change;
  uint32_t record;
  tn__layout_segment like;
} border;

static int border_compare(const void *a, const void *b) {
  const border *left = a, *right = b;
  if (left->addr != right->addr) return left->addr < right->addr ? -1 : 1;
  return left->change - right->change; /* ends first */
}

static int borders_add(tn_vec *borders, const tn__layout_segment *range, int32_t change) {
  border begin = {.addr = range->addr, .change = change, .like = *range};
  border end = {.addr = range->addr + range->bytes, .change = -change, .like = *range};
  TN_TRY(tn__vec_push(borders, &begin));
  return tn__vec_push(borders, &end);
}

static int borders_gather(tn__layout *layout, tn_vec *borders) {
  const tn__chronicle *history = layout->history;
  const tn_segment *segments = final_segments(history);
  for (uint32_t i = 0; i < history->device->segments_count; i++) {
    if (!(segments[i].flags & TN_SEGMENT_EXPANDABLE)) continue;
    tn__layout_segment segment = segment_of_record(&segments[i], i);
    TN_TRY(borders_add(borders, &segment, 1));
  }
  for (uint32_t i = history->entry_count; i-- > layout->moment;) {
    const tn_entry *entry = &history->entries[i];
    if (entry->action != TN_ACTION_SEGMENT_MAP && entry->action != TN_ACTION_SEGMENT_UNMAP) continue;
    if (tn__chronicle_ignores(history, entry)) continue;
    tn__layout_segment range = segment_of_entry(entry);
    range.flags = TN_SEGMENT_EXPANDABLE | (entry->bytes % LARGE_PAGE ? TN_SEGMENT_SMALL : 0);
    TN_TRY(borders_add(borders, &range, entry->action == TN_ACTION_SEGMENT_UNMAP ? 1 : -1));
  }
  if (borders->count) qsort(borders->data, borders->count, sizeof(border), border_compare);
  return TN_OK;
}

/* Two ranges that touch are of one reservation: those lie far apart, and only what the file says outright tells them apart.  Entries of
 * older versions do not say the pool. */
static int alike(const tn__layout_segment *a, const tn__layout_segment *b) {
  if (a->stream != b->stream) return 0;
  if (a->record == TN_NONE || b->record == TN_NONE) return 1;
  return a->pool == b->pool && (a->flags & TN_SEGMENT_SMALL) == (b->flags & TN_SEGMENT_SMALL);
}

/* What a range that begins here is like: where a later mapping ends inside a final segment, that segment tells more than the entry. */
static const tn__layout_segment *begins_like(const border *at, const tn__layout_segment *outer) {
  int is_inside = outer && at->addr >= outer->addr && at->addr - outer->addr < outer->bytes;
  return at->like.record == TN_NONE && is_inside ? outer : &at->like;
}

/* Ranges that touch and are alike are one segment, as in a snapshot. */
static void range_begin(tn__layout *layout, tn__layout_segment *open, tn_addr addr, const tn__layout_segment *like) {
  size_t count = layout->segments.count;
  tn__layout_segment *last = count ? tn__vec_at(&layout->segments, count - 1) : NULL;
  *open = *like;
  open->addr = addr;
  if (!last || !(last->flags & TN_SEGMENT_EXPANDABLE) || last->addr + last->bytes != addr || !alike(last, like)) return;
  tn_addr begin = last->addr;
  if (last->record != TN_NONE) *open = *last; /* it tells more than an entry */
  open->addr = begin;
  tn__vec_pop(&layout->segments, NULL);
}

static int expandable_segments(tn__layout *layout) {
  tn_vec borders;
  tn__vec_init(&borders, sizeof(border));
  int rc = borders_gather(layout, &borders);
  int64_t depth = 0;
  const tn__layout_segment *outer = NULL;
  tn__layout_segment open = {0};
  for (size_t i = 0; i < borders.count && !rc; i++) {
    const border *at = tn__vec_at(&borders, i);
    if (at->change > 0 && at->like.record != TN_NONE) outer = &at->like;
    int64_t before = depth;
    depth += at->change;
    if (before <= 0 && depth > 0) range_begin(layout, &open, at->addr, begins_like(at, outer));
    if (before <= 0 || depth > 0) continue;
    open.bytes = at->addr - open.addr;
    rc = tn__vec_push(&layout->segments, &open);
  }
  tn__vec_deinit(&borders);
  return rc;
}

/* ---- blocks and holes ---------------------------------------------------------------------------------------------------- */

static int segment_compare(const void *a, const void *b) {
  const tn__layout_segment *left = a, *right = b;
  if (left->addr != right->addr) return left->addr < right->addr ? -1 : 1;
  return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

/* In order, without those that were dropped, and without overlaps, which only a file that contradicts itself has. */
static void segments_sort(tn__layout *layout) {
  tn_vec *segments = &layout->segments;
  if (segments->count) qsort(segments->data, segments->count, sizeof(tn__layout_segment), segment_compare);
  size_t kept = 0;
  tn_addr end = 0;
  for (size_t i = 0; i < segments->count; i++) {
    tn__layout_segment *segment = tn__vec_at(segments, i);
    if (!segment->bytes || segment->addr < end || segment->addr + segment->bytes < segment->addr) continue;
    end = segment->addr + segment->bytes;
    TN_VEC(segments, tn__layout_segment)[kept++] = *segment;
  }
  segments->count = kept;
}

typedef struct placed { /* to sort by */
  tn_addr addr;
  uint32_t span;
} placed;

static int placed_compare(const void *a, const void *b) {
  const placed *left = a, *right = b;
  if (left->addr != right->addr) return left->addr < right->addr ? -1 : 1;
  return left->span < right->span ? -1 : left->span > right->span;
}

static int hole_add(tn__layout *layout, uint32_t segment, tn_addr addr, tn_addr end, uint32_t left, uint32_t right) {
  if (addr >= end) return TN_OK;
  tn__hole hole = {.addr = addr, .bytes = end - addr, .segment = segment, .left = left, .right = right};
  return tn__vec_push(&layout->holes, &hole);
}

/* Blocks from *next on that lie in the segment, and the holes between them. */
static int segment_fill(tn__layout *layout, uint32_t number, const tn_vec *order, size_t *next) {
  tn__layout_segment *segment = tn__vec_at(&layout->segments, number);
  tn_addr at = segment->addr, end = segment->addr + segment->bytes;
  uint32_t left = TN_NONE;
  for (; *next < order->count; (*next)++) {
    const placed *block = tn__vec_at(order, *next);
    const tn__span *span = tn__vec_at(&layout->history->spans, block->span);
    if (span->addr >= end) break;
    if (span->addr < at || span->bytes > end - span->addr) {
      layout->stray_blocks++;
      continue;
    }
    TN_TRY(hole_add(layout, number, at, span->addr, left, block->span));
    TN_TRY(tn__vec_push(&layout->blocks, &block->span));
    segment->live_bytes += span->bytes;
    at = span->addr + span->bytes;
    left = block->span;
  }
  return hole_add(layout, number, at, end, left, TN_NONE);
}

static int blocks_gather(tn__layout *layout, tn_vec *order) {
  const tn__chronicle *history = layout->history;
  for (size_t i = 0; i < history->spans.count; i++) {
    const tn__span *span = tn__vec_at(&history->spans, i);
    if (span->alloc != TN_NONE && span->alloc >= layout->moment) break; /* in the order of allocation */
    if (!span->bytes || !tn__span_is_active(span, layout->moment)) continue;
    placed block = {span->addr, (uint32_t)i};
    TN_TRY(tn__vec_push(order, &block));
  }
  if (order->count) qsort(order->data, order->count, sizeof(placed), placed_compare);
  return TN_OK;
}

static int blocks_place(tn__layout *layout) {
  tn_vec order;
  tn__vec_init(&order, sizeof(placed));
  int rc = blocks_gather(layout, &order);
  size_t next = 0;
  for (uint32_t i = 0; i < layout->segments.count && !rc; i++) rc = segment_fill(layout, i, &order, &next);
  layout->stray_blocks += (uint32_t)(order.count - next);
  tn__vec_deinit(&order);
  return rc;
}

int tn__layout_init(tn__layout *layout, const tn__chronicle *history, uint32_t moment) {
  *layout = (tn__layout){.history = history, .moment = moment};
  tn__vec_init(&layout->segments, sizeof(tn__layout_segment));
  tn__vec_init(&layout->blocks, sizeof(uint32_t));
  tn__vec_init(&layout->holes, sizeof(tn__hole));
  tn_map at;
  tn__map_init(&at);
  int rc = fixed_segments(layout, &at);
  tn__map_deinit(&at);
  if (!rc) rc = expandable_segments(layout);
  if (rc) return rc;
  segments_sort(layout);
  return blocks_place(layout);
}

void tn__layout_deinit(tn__layout *layout) {
  tn__vec_deinit(&layout->holes);
  tn__vec_deinit(&layout->blocks);
  tn__vec_deinit(&layout->segments);
}

/* html_timeline.c -- a device's memory over time, in buckets.  See html_timeline.h. */
#include "report/html_timeline.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"

/* Stacks shown for what they hold at the peak; the rest of the places go to those that held most at a time of their own. */
enum { STACKS_BY_PEAK = 10, NO_PLACE = 0xff };

/* ---- who allocates and gives back ---------------------------------------------------------------------------------------- */

/* The span whose bytes the entry adds to the allocated ones (*sign 1) or takes from them (-1); NULL: neither. */
static const tn__span *span_moved(const tn__chronicle *history, uint32_t entry, int *sign) {
  if (history->span_of[entry] == TN_NONE) return NULL;
  const tn__span *span = &TN__SPANS(history)[history->span_of[entry]];
  if (span->alloc == entry) {
    *sign = 1;
    return span;
  }
  *sign = -1;
  int gives_back = span->asked == entry || (span->asked == TN_NONE && span->done == entry);
  return gives_back && !span->was_pending ? span : NULL;
}

/* ---- the largest stacks -------------------------------------------------------------------------------------------------- */

typedef struct held {
  uint64_t now, most;
  uint32_t group, reserved;
} held;

static int held_compare(const void *a, const void *b) {
  const held *x = a, *y = b;
  if (x->most != y->most) return x->most > y->most ? -1 : 1;
  return (x->group > y->group) - (x->group < y->group);
}

/* TN_NONE: it has no stack. */
static uint32_t group_of(const tn__analysis *analysis, const tn__span *span) {
  uint32_t group = tn__span_group(&analysis->stacks, span);
  return group < analysis->stacks.count ? group : TN_NONE;
}

static void held_add(held *list, uint32_t group, uint64_t bytes) {
  if (group == TN_NONE) return;
  list[group].now += bytes;
  if (list[group].now > list[group].most) list[group].most = list[group].now;
}

static void held_walk(held *list, const tn__analysis *analysis) {
  const tn__chronicle *history = &analysis->history;
  const tn__span *spans = TN__SPANS(history);
  for (uint32_t i = 0; i < history->before_count; i++)
    if (!spans[i].was_pending) held_add(list, group_of(analysis, &spans[i]), spans[i].bytes);
  for (uint32_t e = 0; e < history->entry_count; e++) {
    int sign;
    const tn__span *span = span_moved(history, e, &sign);
    if (span) held_add(list, group_of(analysis, span), sign > 0 ? span->bytes : 0 - span->bytes);
  }
}

static void stack_place(tn__timeline *timeline, uint8_t *place, uint32_t group) {
  if (place[group] != NO_PLACE || timeline->stack_count == TN__TIMELINE_STACKS) return;
  place[group] = (uint8_t)timeline->stack_count;
  timeline->stacks[timeline->stack_count++] = group;
}

/* Fills timeline->stacks, and place by group. */
static int stacks_choose(tn__timeline *timeline, const tn__analysis *analysis, uint8_t *place) {
  size_t count = analysis->stacks.count;
  held *list = tn__mem_zalloc(count, sizeof *list);
  if (!list) return TN_ENOMEM;
  held_walk(list, analysis);
  for (size_t i = 0; i < count; i++) {
    list[i].group = (uint32_t)i;
    place[i] = NO_PLACE;
  }
  const tn__stack_row *rows = TN_VEC(&analysis->peak.rows, tn__stack_row);
  for (size_t i = 0; i < analysis->peak.rows.count && timeline->stack_count < STACKS_BY_PEAK; i++)
    if (rows[i].stack < count) stack_place(timeline, place, rows[i].stack);
  qsort(list, count, sizeof *list, held_compare);
  for (size_t i = 0; i < count && list[i].most > 0 && timeline->stack_count < TN__TIMELINE_STACKS; i++)
    stack_place(timeline, place, list[i].group);
  tn__mem_free(list);
  return TN_OK;
}

/* ---- the buckets --------------------------------------------------------------------------------------------------------- */

typedef struct now {
  uint64_t category[TN_CATEGORY_COUNT], stack[TN__TIMELINE_STACKS];
} now;

static void now_add(now *at, const tn__analysis *analysis, const uint8_t *place, const tn__span *span, int sign) {
  uint64_t bytes = sign > 0 ? span->bytes : 0 - span->bytes;
  uint32_t group = group_of(analysis, span);
  at->category[span->category] += bytes;
  if (group != TN_NONE && place[group] != NO_PLACE) at->stack[place[group]] += bytes;
}

static void bucket_copy(tn__timeline *timeline, uint32_t bucket, const now *at) {
  for (int i = 0; i < TN_CATEGORY_COUNT; i++) tn__timeline_column(timeline, TN__COLUMN_CATEGORY + i)[bucket] = at->category[i];
  for (uint32_t i = 0; i < timeline->stack_count; i++)
    tn__timeline_column(timeline, TN__COLUMN_STACK + (int)i)[bucket] = at->stack[i];
}

/* Bytes that the next entry gives back, after the request of the one before: every free passes through that moment. */
static uint64_t passing_bytes(const tn__chronicle *history, uint32_t moment) {
  uint32_t span = moment == 0 || moment == history->entry_count ? TN_NONE : history->span_of[moment];
  const tn__span *next = span == TN_NONE ? NULL : &TN__SPANS(history)[span];
  return next && next->done == moment && next->asked == moment - 1 ? next->bytes : 0;
}

static void bucket_add(tn__timeline *timeline, const tn__walk *walk, const now *at, uint64_t *highest_bytes) {
  uint32_t bucket = walk->moment / timeline->moments, offset = walk->moment % timeline->moments;
  uint64_t allocated = walk->level.allocated_bytes;
  uint64_t *low = &tn__timeline_column(timeline, TN__COLUMN_LOW)[bucket];
  uint64_t *reserved = &tn__timeline_column(timeline, TN__COLUMN_RESERVED)[bucket];
  if (offset == 0 || allocated < *low) *low = allocated;
  if (walk->level.reserved_bytes > *reserved) *reserved = walk->level.reserved_bytes;
  if (offset > 0 && allocated <= *highest_bytes) return;
  *highest_bytes = allocated;
  tn__timeline_column(timeline, TN__COLUMN_HIGHEST)[bucket] = offset;
  tn__timeline_column(timeline, TN__COLUMN_PENDING)[bucket] =
      walk->level.active_bytes - allocated - passing_bytes(walk->history, walk->moment);
  bucket_copy(timeline, bucket, at);
}

static void buckets_fill(tn__timeline *timeline, const tn__analysis *analysis, const uint8_t *place) {
  const tn__chronicle *history = &analysis->history;
  const tn__span *spans = TN__SPANS(history);
  now at = {0};
  for (uint32_t i = 0; i < history->before_count; i++)
    if (!spans[i].was_pending) now_add(&at, analysis, place, &spans[i], 1);
  uint64_t highest_bytes = 0;
  tn__walk walk = tn__walk_begin(history);
  bucket_add(timeline, &walk, &at, &highest_bytes);
  for (uint32_t e = 0; tn__walk_next(&walk); e++) {
    int sign;
    const tn__span *span = span_moved(history, e, &sign);
    if (span) now_add(&at, analysis, place, span, sign);
    bucket_add(timeline, &walk, &at, &highest_bytes);
  }
}

/* Threads may note their entries slightly out of order. */
static void times_fill(tn__timeline *timeline, const tn__chronicle *history) {
  uint64_t *times = tn__timeline_column(timeline, TN__COLUMN_TIME), latest = 0;
  for (uint32_t e = 0; e < history->entry_count; e++) {
    if (history->entries[e].time_us > latest) latest = history->entries[e].time_us;
    if (e % timeline->moments == 0) times[e / timeline->moments] = latest;
  }
  if (history->entry_count % timeline->moments == 0) times[timeline->count - 1] = latest;
  timeline->time_end = latest;
}

int tn__timeline_init(tn__timeline *timeline, const tn__analysis *analysis, uint32_t buckets_max) {
  *timeline = (tn__timeline){.moments = 1};
  uint64_t moments = (uint64_t)analysis->history.entry_count + 1;
  while ((moments - 1) / timeline->moments + 1 > buckets_max) timeline->moments *= 2;
  timeline->count = (uint32_t)((moments - 1) / timeline->moments + 1);
  timeline->columns = tn__mem_zalloc((size_t)TN__COLUMN_COUNT * timeline->count, sizeof *timeline->columns);
  uint8_t *place = tn__mem_alloc(analysis->stacks.count);
  int rc = timeline->columns && place ? stacks_choose(timeline, analysis, place) : TN_ENOMEM;
  if (!rc) {
    buckets_fill(timeline, analysis, place);
    times_fill(timeline, &analysis->history);
  }
  tn__mem_free(place);
  return rc;
}

void tn__timeline_deinit(tn__timeline *timeline) { tn__mem_free(timeline->columns); }

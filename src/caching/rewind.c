/* rewind.c -- from the segments at the end back to what there was before the first recorded entry.
 *
 *   held    address -> block that is live or pending, at the point that the walk has reached
 *   ranges  memory that the device had given, by address
 * Going backwards an alloc takes its block out of held and a free puts one in; segments likewise.  What is left at the first entry
 * lived before it.  Entries that contradict the end are passed over: a replay finds out. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "caching/caching.h"
#include "caching/history.h"

typedef struct range {
  tn_addr addr, end;
  uint32_t stream, pool, flags; /* flags of tn_segment */
  uint32_t reserved;
} range;

typedef struct rewind_state {
  tn__history *history;
  tn_vec ranges; /* range */
  tn_vec blocks; /* tn__start_block, also those that are out of held again */
  tn_map held;   /* address -> place in blocks */
  int names_pools; /* entries say whose memory it is */
} rewind_state;

/* ---- reservations -------------------------------------------------------------------------------------------------------- */

enum { SIZE_UNKNOWN = 2 }; /* of is_small: nothing was asked there */
#define SPAN_MAX ((uint64_t)1 << 39)

static int by_addr(const void *a, const void *b) {
  const tn__reservation *x = a, *y = b;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int sees(tn__history *history, tn_addr addr, uint64_t bytes, uint32_t stream, uint32_t pool, uint32_t is_small) {
  tn__reservation seen = {.addr = addr, .end = addr + bytes, .stream = stream, .pool = pool, .is_small = is_small};
  return tn__vec_push(&history->reservations, &seen);
}

/* Pages are mapped for the allocation that is recorded next. */
static uint32_t asks_small(const tn__history *history, uint32_t entry) {
  for (; entry < history->entries_count; entry++) {
    const tn_entry *e = &history->entries[entry];
    if (e->action == TN_ACTION_ALLOC || e->action == TN_ACTION_OOM)
      return e->bytes && tn__round(&history->conf, e->bytes) <= TN__SMALL_BYTES_MAX;
  }
  return SIZE_UNKNOWN;
}

static int reservations_see(tn__history *history, const tn_segment *segments) {
  for (uint32_t i = 0; i < history->device->segments_count; i++) {
    const tn_segment *s = &segments[i];
    if (s->flags & TN_SEGMENT_EXPANDABLE)
      TN_TRY(sees(history, s->addr, s->bytes, history->streams[s->stream], s->pool, s->flags & TN_SEGMENT_SMALL));
  }
  for (uint32_t i = 0; i < history->entries_count; i++) {
    const tn_entry *e = &history->entries[i];
    if (e->action != TN_ACTION_SEGMENT_MAP && e->action != TN_ACTION_SEGMENT_UNMAP) continue;
    uint32_t is_small = e->action == TN_ACTION_SEGMENT_MAP ? asks_small(history, i) : SIZE_UNKNOWN;
    TN_TRY(sees(history, e->addr, e->bytes, history->streams[e->stream], e->pool, is_small));
  }
  return TN_OK;
}

/* Of two places, a the lower one. */
static int is_one(const tn__reservation *a, const tn__reservation *b) {
  if (b->addr > a->end && b->addr - a->end >= SPAN_MAX) return 0;
  return a->stream == b->stream && (a->is_small == b->is_small || a->is_small == SIZE_UNKNOWN || b->is_small == SIZE_UNKNOWN);
}

/* Address spaces do not mix, so neighbours of one stream and kind are in the same one, unless they are further apart than a device
 * is large. */
static int reservations_find(tn__history *history, const tn_segment *segments) {
  TN_TRY(reservations_see(history, segments));
  tn_vec *found = &history->reservations;
  if (found->count == 0) return TN_OK;
  tn__reservation *r = TN_VEC(found, tn__reservation);
  qsort(r, found->count, sizeof *r, by_addr);
  size_t kept = 0;
  for (size_t i = 1; i < found->count; i++) {
    if (!is_one(&r[kept], &r[i])) {
      r[++kept] = r[i];
      continue;
    }
    if (r[i].end > r[kept].end) r[kept].end = r[i].end;
    if (r[i].pool) r[kept].pool = r[i].pool;
    if (r[kept].is_small == SIZE_UNKNOWN) r[kept].is_small = r[i].is_small;
  }
  found->count = kept + 1;
  for (size_t i = 0; i < found->count; i++)
    if (r[i].is_small == SIZE_UNKNOWN) r[i].is_small = (r[i].end - r[i].addr) % TN__LARGE_SEGMENT_BYTES != 0;
  return TN_OK;
}

/* ---- ranges -------------------------------------------------------------------------------------------------------------- */

/* How many ranges start at or below addr. */
static size_t ranges_up_to(const rewind_state *state, tn_addr addr) {
  const range *ranges = TN_VEC(&state->ranges, range);
  size_t low = 0, high = state->ranges.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ranges[middle].addr <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static range *range_at(const rewind_state *state, tn_addr addr) {
  size_t at = ranges_up_to(state, addr);
  range *found = at ? tn__vec_at(&state->ranges, at - 1) : NULL;
  return found && addr < found->end ? found : NULL;
}

static void range_remove(rewind_state *state, size_t at) {
  range *ranges = TN_VEC(&state->ranges, range);
  memmove(&ranges[at], &ranges[at + 1], (state->ranges.count - at - 1) * sizeof *ranges);
  state->ranges.count--;
}

static int range_joins(const range *a, const range *b) {
  return a->flags & TN_SEGMENT_EXPANDABLE && a->flags == b->flags && a->end == b->addr && a->stream == b->stream;
}

static int range_add(rewind_state *state, range add) {
  TN_TRY(tn__vec_reserve(&state->ranges, 1));
  size_t at = ranges_up_to(state, add.addr);
  range *ranges = TN_VEC(&state->ranges, range);
  int meets_next = at < state->ranges.count && ranges[at].addr < add.end;
  if (add.addr >= add.end || meets_next || (at > 0 && ranges[at - 1].end > add.addr)) return TN_OK; /* contradicts the end */
  memmove(&ranges[at + 1], &ranges[at], (state->ranges.count - at) * sizeof *ranges);
  ranges[at] = add;
  state->ranges.count++;
  if (at + 1 < state->ranges.count && range_joins(&ranges[at], &ranges[at + 1])) {
    ranges[at].end = ranges[at + 1].end;
    range_remove(state, at + 1);
  }
  if (at > 0 && range_joins(&ranges[at - 1], &ranges[at])) {
    ranges[at - 1].end = ranges[at].end;
    range_remove(state, at);
  }
  return TN_OK;
}

/* Takes [addr, end) out of the range that holds it. */
static int range_cut(rewind_state *state, tn_addr addr, tn_addr end) {
  range *found = range_at(state, addr);
  if (!found || end > found->end) return TN_OK;
  range rest = *found;
  rest.addr = end;
  if (addr == found->addr)
    range_remove(state, (size_t)(found - TN_VEC(&state->ranges, range)));
  else
    found->end = addr;
  return rest.addr < rest.end ? range_add(state, rest) : TN_OK;
}

/* The address space that an expandable range is in, or the nearest. */
static const tn__reservation *reservation_of(const tn__history *history, tn_addr addr) {
  const tn__reservation *found = NULL;
  for (size_t i = 0; i < history->reservations.count; i++) {
    const tn__reservation *r = tn__vec_at(&history->reservations, i);
    if (!found || r->addr <= addr) found = r;
  }
  return found;
}

/* ---- one entry backwards ------------------------------------------------------------------------------------------------- */

static range range_of_entry(const rewind_state *state, const tn_entry *e) {
  range out = {.addr = e->addr, .end = e->addr + e->bytes, .stream = state->history->streams[e->stream], .pool = e->pool};
  if (e->action == TN_ACTION_SEGMENT_UNMAP) {
    const tn__reservation *r = reservation_of(state->history, e->addr);
    out.flags = TN_SEGMENT_EXPANDABLE | (r->is_small ? TN_SEGMENT_SMALL : 0);
    if (!state->names_pools) out.pool = r->pool;
  } else if (e->bytes == TN__SMALL_SEGMENT_BYTES) {
    out.flags = TN_SEGMENT_SMALL; /* segments of the large pool are larger */
  }
  return out;
}

static int held_add(rewind_state *state, const tn_entry *e, uint32_t is_pending) {
  uint32_t at = tn__map_get(&state->held, e->addr);
  if (at != TN_NONE) {
    TN_VEC(&state->blocks, tn__start_block)[at].is_pending = is_pending;
    return TN_OK;
  }
  tn__start_block block = {.addr = e->addr, .requested = e->bytes, .is_pending = is_pending};
  TN_TRY(tn__vec_push(&state->blocks, &block));
  return tn__map_set(&state->held, e->addr, (uint32_t)(state->blocks.count - 1));
}

static uint32_t pool_of(const rewind_state *state, const tn_entry *e) {
  const range *found = state->names_pools || e->action == TN_ACTION_OOM ? NULL : range_at(state, e->addr);
  return found ? found->pool : e->pool;
}

static int entry_undo(rewind_state *state, const tn_entry *e, uint32_t *out_pool) {
  switch (e->action) {
    case TN_ACTION_ALLOC: (void)tn__map_remove(&state->held, e->addr); /* fall through */
    case TN_ACTION_OOM: *out_pool = pool_of(state, e); return TN_OK;
    case TN_ACTION_FREE_COMPLETED: return held_add(state, e, 1);
    case TN_ACTION_FREE_REQUESTED: return held_add(state, e, 0);
    case TN_ACTION_SEGMENT_ALLOC:
    case TN_ACTION_SEGMENT_MAP: return range_cut(state, e->addr, e->addr + e->bytes);
    case TN_ACTION_SEGMENT_FREE:
    case TN_ACTION_SEGMENT_UNMAP: return range_add(state, range_of_entry(state, e));
    default: return TN_OK;
  }
}

/* ---- the end and the start ----------------------------------------------------------------------------------------------- */

static int end_block(rewind_state *state, const tn_segment_block *b) {
  if (b->state == TN_BLOCK_INACTIVE) return TN_OK;
  tn__start_block block = {.addr = b->addr, .bytes = b->bytes, .requested = b->requested_bytes,
                           .is_pending = b->state == TN_BLOCK_PENDING_FREE};
  TN_TRY(tn__vec_push(&state->blocks, &block));
  return tn__map_set(&state->held, b->addr, (uint32_t)(state->blocks.count - 1));
}

static int end_place(rewind_state *state, const tn_segment *segments) {
  const tn_trace *trace = state->history->trace;
  const tn_segment_block *blocks = tn_trace_table(trace, TN_TABLE_SEGMENT_BLOCK, NULL);
  for (uint32_t i = 0; i < state->history->device->segments_count; i++) {
    const tn_segment *s = &segments[i];
    range add = {.addr = s->addr, .end = s->addr + s->bytes, .stream = state->history->streams[s->stream], .pool = s->pool,
                 .flags = s->flags & (TN_SEGMENT_SMALL | TN_SEGMENT_EXPANDABLE)};
    TN_TRY(range_add(state, add));
    for (uint32_t k = 0; k < s->blocks_count; k++) TN_TRY(end_block(state, &blocks[s->blocks_at + k]));
  }
  return TN_OK;
}

static int blocks_by_addr(const void *a, const void *b) {
  const tn__start_block *x = a, *y = b;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* What is held, by address. */
static int start_blocks(rewind_state *state, tn_vec *out) {
  size_t pos = 0;
  uint64_t addr;
  uint32_t at;
  while (tn__map_next(&state->held, &pos, &addr, &at)) TN_TRY(tn__vec_push(out, tn__vec_at(&state->blocks, at)));
  if (out->count > 1) qsort(out->data, out->count, sizeof(tn__start_block), blocks_by_addr);
  return TN_OK;
}

static int start_place(rewind_state *state) {
  tn__history *history = state->history;
  tn_vec *blocks = &history->blocks;
  TN_TRY(start_blocks(state, blocks));
  uint32_t at = 0;
  for (size_t i = 0; i < state->ranges.count; i++) {
    const range *r = tn__vec_at(&state->ranges, i);
    tn__start_segment add = {.addr = r->addr, .bytes = r->end - r->addr, .stream = r->stream, .pool = r->pool, .flags = r->flags};
    while (at < blocks->count && TN_VEC(blocks, tn__start_block)[at].addr < r->addr) at++; /* in no memory: passed over */
    add.blocks_at = at;
    while (at < blocks->count && TN_VEC(blocks, tn__start_block)[at].addr < r->end) at++;
    add.blocks_count = at - add.blocks_at;
    history->start_bytes += add.bytes;
    TN_TRY(tn__vec_push(&history->segments, &add));
  }
  for (uint32_t i = 0; i < blocks->count; i++) TN_VEC(blocks, tn__start_block)[i].life = i;
  return TN_OK;
}

static int names_pools(const tn__history *history) {
  for (uint32_t i = 0; i < history->entries_count; i++)
    if (history->entries[i].pool) return 1;
  return 0;
}

static int rewind_run(rewind_state *state, uint32_t *pools) {
  tn__history *history = state->history;
  tn__vec_clear(&history->segments);
  tn__vec_clear(&history->blocks);
  tn__vec_clear(&history->reservations);
  history->start_bytes = 0;
  const tn_segment *segments = tn_trace_table(history->trace, TN_TABLE_SEGMENT, NULL);
  if (history->device->segments_count) segments += history->device->segments_at;
  state->names_pools = names_pools(history);
  TN_TRY(reservations_find(history, segments));
  TN_TRY(end_place(state, segments));
  for (uint32_t i = history->entries_count; i-- > history->first;) TN_TRY(entry_undo(state, &history->entries[i], &pools[i]));
  return start_place(state);
}

int tn__history_rewind(tn__history *history, uint32_t *pools) {
  rewind_state state = {.history = history};
  tn__vec_init(&state.ranges, sizeof(range));
  tn__vec_init(&state.blocks, sizeof(tn__start_block));
  tn__map_init(&state.held);
  int rc = rewind_run(&state, pools);
  tn__map_deinit(&state.held);
  tn__vec_deinit(&state.blocks);
  tn__vec_deinit(&state.ranges);
  return rc;
}

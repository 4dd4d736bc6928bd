/* sizes.c -- how many bytes each block took.  See builder.h.
 *
 * An entry says what was requested; the allocator rounds that up, and in the large pool it also keeps a remainder of up to 1 MiB, because
 * it splits off only more than that.  No free piece of the large pool is that small, therefore, going back from the final map: where less
 * than that lies between a block and the next one, or the segment's end, it belongs to the block.  One case leaves no sign: a block from
 * before the history whose right neighbour was freed before it began, too; its remainder counts as free. */
#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "explain/builder.h"

static int addr_compare(const void *a, const void *b) {
  tn_addr left = *(const tn_addr *)a, right = *(const tn_addr *)b;
  return left < right ? -1 : left > right;
}

/* What a span takes when it keeps no remainder.  Those that contradict others count nothing and stay so. */
static void sizes_round(tn__builder *b) {
  for (size_t i = 0; i < b->history->spans.count; i++) {
    tn__span *span = &TN__SPANS(b->history)[i];
    if (!(span->flags & TN__SPAN_HAS_END) && span->requested_bytes) span->bytes = tn__round(&b->history->conf, span->requested_bytes);
  }
}

static int is_ranked(const tn__builder *b, const tn__span *span) { return span->bytes > TN__SMALL_BYTES_MAX || tn__builder_is_large(b, span); }

/* Each place once: rank_of marks those that are there. */
static int rank_place(tn__builder *b, uint32_t place) {
  if (b->rank_of[place] != TN_NONE) return TN_OK;
  b->rank_of[place] = 0;
  return tn__vec_push(&b->rank_addrs, tn__vec_at(&b->addrs, place));
}

static int rank_addrs_gather(tn__builder *b) {
  for (size_t i = 0; i < b->large.count; i++) {
    const tn__large *at = tn__vec_at(&b->large, i);
    if (at->place != TN_NONE)
      TN_TRY(rank_place(b, at->place));
    else
      TN_TRY(tn__vec_push(&b->rank_addrs, &b->history->entries[at->entry].addr));
  }
  for (uint32_t i = 0; i < b->history->device->segments_count; i++)
    if (!(b->segments[i].flags & TN_SEGMENT_EXPANDABLE)) TN_TRY(tn__vec_push(&b->rank_addrs, &b->segments[i].addr));
  for (uint32_t place = 0; place < b->addrs.count; place++)
    if (*tn__builder_live(b, place) != TN_NONE && is_ranked(b, &TN__SPANS(b->history)[*tn__builder_live(b, place)])) TN_TRY(rank_place(b, place));
  return TN_OK;
}

static void rank_addrs_sort(tn__builder *b) {
  tn_addr *addrs = b->rank_addrs.data;
  size_t count = 0;
  if (!b->rank_addrs.count) return;
  qsort(addrs, b->rank_addrs.count, sizeof *addrs, addr_compare);
  for (size_t i = 0; i < b->rank_addrs.count; i++)
    if (!count || addrs[count - 1] != addrs[i]) addrs[count++] = addrs[i];
  b->rank_addrs.count = count;
}

/* Only of an address that has one. */
static uint32_t rank_at(const tn__builder *b, tn_addr addr) {
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

static int ranks_open(tn__builder *b) {
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

static tn_addr addr_of(const tn__builder *b, uint32_t rank) { return TN_VEC(&b->rank_addrs, tn_addr)[rank]; }

static void segment_put(tn__builder *b, uint32_t rank, uint64_t bytes, int is_exact) {
  tn__ranks_add(&b->segment_set, rank);
  b->segment_bytes[rank] = bytes;
  b->is_exact[rank] = (uint8_t)is_exact;
}

/* The rank of the segment that an address lies in; TN_NONE: in none that is known, as in expandable segments. */
static uint32_t segment_of(const tn__builder *b, uint32_t rank) {
  uint32_t segment = tn__ranks_up_to(&b->segment_set, rank);
  if (segment == TN_NONE || addr_of(b, rank) - addr_of(b, segment) >= b->segment_bytes[segment]) return TN_NONE;
  return segment;
}

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* From a rank to the next block that is held or the end of its segment. */
static uint64_t room_at(const tn__builder *b, uint32_t rank, uint32_t segment) {
  uint64_t room = b->segment_bytes[segment] - (addr_of(b, rank) - addr_of(b, segment));
  uint32_t next = rank + 1 < b->rank_addrs.count ? tn__ranks_from(&b->held_set, rank + 1) : TN_NONE;
  return next == TN_NONE ? room : min_u64(room, addr_of(b, next) - addr_of(b, rank));
}

/* What is too little to be split off; blocks above max_split_size are never split. */
static int keeps_rest(const tn__builder *b, uint64_t bytes, uint64_t rest_bytes) {
  uint64_t max_split_bytes = b->history->conf.max_split_bytes;
  return rest_bytes <= TN__SMALL_BYTES_MAX || (max_split_bytes && bytes >= max_split_bytes);
}

static void size_find(tn__builder *b, uint32_t rank) {
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
static void neighbour_fix(tn__builder *b, uint32_t rank) {
  uint32_t left = rank ? tn__ranks_up_to(&b->held_set, rank - 1) : TN_NONE, segment = segment_of(b, rank);
  if (left == TN_NONE || segment == TN_NONE || left < segment || b->is_exact[segment]) return;
  tn__span *span = &TN__SPANS(b->history)[b->held[left]];
  uint64_t room = addr_of(b, rank) - addr_of(b, left);
  if (span->flags & TN__SPAN_HAS_END || span->bytes >= room) return;
  if (keeps_rest(b, span->bytes, room - span->bytes)) span->bytes = room;
}

static void undo_done(tn__builder *b, const tn__large *at) {
  uint32_t rank = b->rank_of[at->place];
  b->held[rank] = b->history->span_of[at->entry];
  tn__ranks_add(&b->held_set, rank);
  size_find(b, rank);
  neighbour_fix(b, rank);
}

static void undo_alloc(tn__builder *b, const tn__large *at) {
  uint32_t rank = b->rank_of[at->place];
  if (b->held[rank] != b->history->span_of[at->entry]) return; /* it counts nothing */
  b->held[rank] = TN_NONE;
  tn__ranks_remove(&b->held_set, rank);
}

static void undo(tn__builder *b, const tn__large *at) {
  const tn_entry *entry = &b->history->entries[at->entry];
  switch (entry->action) {
    case TN_ACTION_FREE_COMPLETED: undo_done(b, at); break;
    case TN_ACTION_ALLOC: undo_alloc(b, at); break;
    case TN_ACTION_SEGMENT_FREE: segment_put(b, rank_at(b, entry->addr), entry->bytes, entry->bytes <= 2 * TN__SMALL_BYTES_MAX); break;
    default: tn__ranks_remove(&b->segment_set, rank_at(b, entry->addr)); break;
  }
}

/* Segments and large blocks at the end. */
static void ends_put(tn__builder *b) {
  for (uint32_t i = 0; i < b->history->device->segments_count; i++) {
    const tn_segment *segment = &b->segments[i];
    if (segment->flags & TN_SEGMENT_EXPANDABLE) continue; /* its blocks keep no remainder, and its borders move */
    segment_put(b, rank_at(b, segment->addr), segment->bytes, (segment->flags & TN_SEGMENT_SMALL) != 0);
  }
  for (uint32_t place = 0; place < b->addrs.count; place++) {
    if (*tn__builder_live(b, place) == TN_NONE || b->rank_of[place] == TN_NONE) continue;
    b->held[b->rank_of[place]] = *tn__builder_live(b, place);
    tn__ranks_add(&b->held_set, b->rank_of[place]);
  }
}

int tn__builder_sizes(tn__builder *b) {
  tn__vec_init(&b->rank_addrs, sizeof(tn_addr));
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

void tn__builder_sizes_deinit(tn__builder *b) {
  tn__mem_free(b->is_exact);
  tn__mem_free(b->segment_bytes);
  tn__ranks_deinit(&b->segment_set);
  tn__ranks_deinit(&b->held_set);
  tn__mem_free(b->held);
  tn__mem_free(b->rank_of);
  tn__vec_deinit(&b->rank_addrs);
}

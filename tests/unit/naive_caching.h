/* naive_caching.h -- a naive model of PyTorch's allocator, for the tests that compare with it.
 *
 * It keeps all blocks in one array sorted by address, searches it from end to end, and joins neighbours by going over the whole
 * array after each change. */
#ifndef TN_TESTS_NAIVE_CACHING_H
#define TN_TESTS_NAIVE_CACHING_H

#include "caching/caching.h"
#include "helper.h"

#define MIB ((uint64_t)1 << 20)

enum { FREE = TN__BLOCK_FREE, LIVE = TN__BLOCK_LIVE, PENDING = TN__BLOCK_PENDING, UNMAPPED = TN__BLOCK_UNMAPPED };
enum { PIECES_MAX = 4096, LOG_MAX = 4096, POOLS = 3 };

typedef struct piece {
  tn_addr addr, segment; /* the segment's first address */
  uint64_t bytes, segment_bytes, requested;
  uint64_t since; /* free: searches of its pool; pending: allocations */
  uint64_t order; /* pending: when it was freed */
  uint32_t stream, pool;
  uint64_t turn; /* of its pool, to give memory back */
  int small, state, expandable, shared;
} piece;

typedef struct happening {
  int kind;
  tn_addr addr;
  uint64_t bytes;
} happening;

typedef struct naive {
  piece pieces[PIECES_MAX];
  size_t count;
  tn_conf conf;
  uint64_t total_bytes, limit_bytes, device_bytes; /* UINT64_MAX: none */
  uint32_t event_delay;
  uint64_t searches[POOLS][2];
  uint64_t freeable[POOLS]; /* when it was released; 0 = it is in use */
  uint64_t releases;
  uint64_t reserved, allocated, active, requested, retries, ooms, allocs, frees;
  uint64_t oversize, oversize_segments;
  uint32_t segments_made;
  happening log[LOG_MAX];
  size_t log_count;
} naive;

/* Far apart and in no order, so that address and age differ. */
static inline tn_addr place(uint32_t serial) { return (tn_addr)(serial * 40503u % 65536u + 1) << 40; }

static inline uint64_t or_none(uint64_t value) { return value ? value : UINT64_MAX; }
static inline uint64_t large_segment(const naive *n) {
  return n->conf.large_segment_bytes ? n->conf.large_segment_bytes : 20 * MIB;
}

static inline void naive_log(naive *n, int kind, tn_addr addr, uint64_t bytes) {
  assert_true(n->log_count < LOG_MAX);
  n->log[n->log_count++] = (happening){kind, addr, bytes};
}

/* ---- the array ----------------------------------------------------------------------------------------------------------- */

static inline void naive_insert(naive *n, size_t at, piece p) {
  assert_true(n->count < PIECES_MAX);
  memmove(&n->pieces[at + 1], &n->pieces[at], (n->count - at) * sizeof p);
  n->pieces[at] = p;
  n->count++;
}

static inline void naive_remove(naive *n, size_t at) {
  n->count--;
  memmove(&n->pieces[at], &n->pieces[at + 1], (n->count - at) * sizeof(piece));
}

static inline size_t naive_find(const naive *n, tn_addr addr) {
  size_t at = 0;
  while (at < n->count && n->pieces[at].addr < addr) at++;
  return at;
}

static inline piece *naive_at(naive *n, tn_addr addr) { return &n->pieces[naive_find(n, addr)]; }

static inline uint64_t now_of(const naive *n, const piece *p) { return n->searches[p->pool][p->small]; }

/* What joins becomes as young as it can be. */
static inline void naive_join(naive *n) {
  for (size_t i = 0; i + 1 < n->count;) {
    piece *a = &n->pieces[i], *b = &n->pieces[i + 1];
    if (a->segment == b->segment && a->state == b->state && (a->state == FREE || a->state == UNMAPPED)) {
      a->bytes += b->bytes;
      a->since = now_of(n, a);
      naive_remove(n, i + 1);
    } else {
      i++;
    }
  }
}

/* Makes an edge at addr, inside some piece or at its start. */
static inline void naive_cut(naive *n, tn_addr addr) {
  size_t at = naive_find(n, addr);
  if (at < n->count && n->pieces[at].addr == addr) return;
  piece *left = &n->pieces[at - 1], right = *left;
  if (addr >= left->addr + left->bytes) return;
  right.addr = addr;
  right.bytes = left->addr + left->bytes - addr;
  left->bytes = addr - left->addr;
  left->since = right.since = now_of(n, left);
  naive_insert(n, at, right);
}

static inline void naive_set(naive *n, tn_addr addr, uint64_t bytes, int state) {
  naive_cut(n, addr);
  naive_cut(n, addr + bytes);
  piece *p = naive_at(n, addr);
  p->state = state;
  p->since = now_of(n, p);
}

static inline uint64_t page_of(const naive *n, int small) { return small ? 2 * MIB : large_segment(n); }

static inline piece *next_of(naive *n, const piece *p) {
  size_t at = (size_t)(p - n->pieces) + 1;
  return at < n->count && n->pieces[at].segment == p->segment ? &n->pieces[at] : NULL;
}

static inline piece *prev_of(naive *n, const piece *p) {
  size_t at = (size_t)(p - n->pieces);
  return at > 0 && n->pieces[at - 1].segment == p->segment ? &n->pieces[at - 1] : NULL;
}

/* Where a request looks. */
typedef struct where {
  uint32_t pool, stream;
  int small;
} where;

static inline int serves(const piece *p, where w) { return p->pool == w.pool && p->small == w.small && p->stream == w.stream; }

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

/* By counting the marks of the octave one after the other. */
static inline uint64_t naive_round(const naive *n, uint64_t bytes) {
  uint64_t octave = 1;
  int log = 0;
  while (octave * 2 <= bytes) octave *= 2, log++;
  int interval = log < 20 ? 0 : log - 20 > 15 ? 15 : log - 20;
  uint64_t divisions = n->conf.roundup_divisions[interval], mark = octave;
  if (divisions <= 1 || bytes <= 512 * divisions) return (bytes + 511) / 512 * 512;
  while (mark < bytes) mark += octave / divisions;
  return mark;
}

static inline uint64_t naive_segment_bytes(const naive *n, uint64_t rounded) {
  if (rounded <= MIB) return 2 * MIB;
  return rounded < 10 * MIB ? large_segment(n) : (rounded + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

/* ---- best fit ------------------------------------------------------------------------------------------------------------ */

/* The free piece that follows (bytes, addr) in order of size and address. */
static inline piece *next_fit(naive *n, where w, uint64_t bytes, tn_addr addr) {
  piece *best = NULL;
  for (size_t i = 0; i < n->count; i++) {
    piece *p = &n->pieces[i];
    if (p->state != FREE || !serves(p, w)) continue;
    if (p->bytes < bytes || (p->bytes == bytes && p->addr < addr)) continue;
    if (!best || p->bytes < best->bytes) best = p;
  }
  return best;
}

static inline uint64_t could_be(naive *n, const piece *p) {
  const piece *next = next_of(n, p);
  return p->bytes + (next && next->state == UNMAPPED ? next->bytes : 0);
}

static inline piece *naive_fit(naive *n, where w, uint64_t rounded) {
  piece *p = next_fit(n, w, rounded, 0);
  while (p && p->expandable) {
    piece *next = next_fit(n, w, p->bytes, p->addr + 1);
    if (!next || could_be(n, next) >= could_be(n, p)) break;
    p = next;
  }
  uint64_t split = or_none(n->conf.max_split_bytes);
  uint64_t rounding = n->conf.max_non_split_rounding_bytes ? n->conf.max_non_split_rounding_bytes : large_segment(n);
  if (p && rounded < split && p->bytes >= split) return NULL;
  if (p && rounded >= split && p->bytes >= rounded + rounding) return NULL;
  return p;
}

/* ---- memory from the driver ---------------------------------------------------------------------------------------------- */

static inline piece *naive_segment(naive *n, where w, uint64_t bytes, int state) {
  tn_addr addr = place(n->segments_made++);
  piece p = {.addr = addr, .segment = addr, .bytes = bytes, .segment_bytes = bytes, .stream = w.stream, .pool = w.pool,
             .small = w.small, .state = state, .expandable = state == UNMAPPED};
  naive_insert(n, naive_find(n, addr), p);
  return naive_at(n, addr);
}

/* Where to map from: the first unmapped piece of the stream with enough room at or just before it. */
static inline tn_addr naive_room(naive *n, where w, uint64_t rounded) {
  for (size_t i = 0; i < n->count; i++) {
    piece *p = &n->pieces[i];
    if (p->state != UNMAPPED || !serves(p, w)) continue;
    if (prev_of(n, p) && prev_of(n, p)->state == FREE) p--;
    uint64_t room = 0;
    for (piece *q = p; q && (q->state == FREE || q->state == UNMAPPED); q = next_of(n, q)) room += q->bytes;
    if (room >= rounded) return p->addr;
  }
  return 0;
}

static inline piece *naive_expand(naive *n, where w, uint64_t rounded) {
  uint64_t page = page_of(n, w.small), reservation = tn__round_up(n->total_bytes + n->total_bytes / 8, page), have = 0;
  if (rounded > reservation) return NULL;
  tn_addr start = naive_room(n, w, rounded);
  if (!start) start = naive_segment(n, w, reservation, UNMAPPED)->addr;
  while (have < rounded) {
    piece *p = naive_at(n, start + have);
    if (p->state == UNMAPPED) {
      uint64_t want = rounded - have < p->bytes ? rounded - have : p->bytes, mapped = tn__round_up(want, page);
      if (n->reserved + mapped > n->device_bytes) {
        naive_join(n);
        return NULL;
      }
      naive_log(n, TN_SEGMENT_MAP, p->addr, mapped);
      n->reserved += mapped;
      have += mapped;
      naive_set(n, p->addr, mapped, FREE);
    } else {
      have += p->bytes;
    }
  }
  naive_join(n);
  return naive_at(n, start);
}

static inline piece *naive_get(naive *n, where w, uint64_t rounded) {
  uint64_t bytes = naive_segment_bytes(n, rounded);
  if (n->reserved + bytes > n->limit_bytes) return NULL;
  if (n->conf.expandable_segments && (w.pool == 0 || n->conf.private_expandable)) return naive_expand(n, w, rounded);
  if (n->reserved + bytes > n->device_bytes) return NULL;
  piece *p = naive_segment(n, w, bytes, FREE);
  naive_log(n, TN_SEGMENT_ALLOC, p->addr, bytes);
  n->reserved += bytes;
  n->oversize_segments += bytes >= or_none(n->conf.max_split_bytes);
  return p;
}

/* ---- and back to it ------------------------------------------------------------------------------------------------------ */

static inline int is_whole(const piece *p) { return !p->expandable && p->bytes == p->segment_bytes; }

static inline void naive_free_segment(naive *n, tn_addr addr) {
  piece *p = naive_at(n, addr);
  naive_log(n, TN_SEGMENT_FREE, p->addr, p->bytes);
  n->reserved -= p->bytes;
  n->oversize_segments -= p->bytes >= or_none(n->conf.max_split_bytes);
  naive_remove(n, naive_find(n, addr));
}

static inline void naive_unmap(naive *n, piece p) {
  uint64_t page = page_of(n, p.small);
  tn_addr begin = p.segment + tn__round_up(p.addr - p.segment, page);
  tn_addr end = p.segment + (p.addr + p.bytes - p.segment) / page * page;
  if (begin >= end) return;
  naive_log(n, TN_SEGMENT_UNMAP, begin, end - begin);
  n->reserved -= end - begin;
  naive_set(n, begin, end - begin, UNMAPPED);
  naive_join(n);
  size_t at = naive_find(n, p.segment);
  if (n->pieces[at].state == UNMAPPED && n->pieces[at].bytes == p.segment_bytes) naive_remove(n, at);
}

/* Own pool first and large first; of others as they were released and small first; whole segments before pages; then as the search
 * goes. */
static inline int by_turn(const void *a, const void *b) {
  const piece *x = a, *y = b;
  if (x->pool != y->pool) return x->turn < y->turn ? -1 : 1;
  if (x->small != y->small) return x->pool ? y->small - x->small : x->small - y->small;
  if (x->expandable != y->expandable) return x->expandable - y->expandable;
  if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return x->addr < y->addr ? -1 : 1;
}

static inline void naive_complete(naive *n, tn_addr addr) {
  piece *p = naive_at(n, addr);
  n->active -= p->bytes;
  n->requested -= p->requested;
  p->state = FREE;
  p->requested = 0;
  p->since = now_of(n, p);
  naive_join(n);
}

static inline piece *oldest_pending(naive *n) {
  piece *oldest = NULL;
  for (size_t i = 0; i < n->count; i++)
    if (n->pieces[i].state == PENDING && (!oldest || n->pieces[i].order < oldest->order)) oldest = &n->pieces[i];
  return oldest;
}

static inline void naive_release(naive *n) {
  piece *list = malloc(sizeof n->pieces), *p;
  size_t count = 0;
  assert_non_null(list);
  while ((p = oldest_pending(n))) naive_complete(n, p->addr);
  for (size_t i = 0; i < n->count; i++) {
    n->pieces[i].turn = n->freeable[n->pieces[i].pool];
    if (n->pieces[i].state == FREE && (n->pieces[i].pool == 0 || n->pieces[i].turn)) list[count++] = n->pieces[i];
  }
  qsort(list, count, sizeof *list, by_turn);
  for (size_t i = 0; i < count; i++) {
    if (is_whole(&list[i])) naive_free_segment(n, list[i].addr);
    if (list[i].expandable) naive_unmap(n, list[i]);
  }
  free(list);
}

/* In order of stream, size, address; by_turn() does that within one pool. */
static inline size_t whole_large(naive *n, piece *list) {
  size_t count = 0;
  for (size_t i = 0; i < n->count; i++) {
    const piece *p = &n->pieces[i];
    if (p->state == FREE && p->pool == 0 && !p->small && is_whole(p)) list[count++] = *p;
  }
  qsort(list, count, sizeof *list, by_turn);
  return count;
}

static inline void naive_collect(naive *n) {
  uint64_t allowed = (uint64_t)(n->conf.garbage_collection_threshold * (double)n->limit_bytes), got = 0, last = 1;
  if (n->reserved <= allowed) return;
  uint64_t target = n->reserved - allowed;
  piece *list = malloc(sizeof n->pieces);
  assert_non_null(list);
  while (got < target && last) {
    double ages = 0;
    size_t count = whole_large(n, list);
    last = 0;
    for (size_t i = 0; i < count; i++) ages += (double)(n->searches[0][0] - list[i].since);
    for (size_t i = 0; i < count; i++) {
      if ((double)(n->searches[0][0] - list[i].since) < ages / (double)count) continue;
      last += list[i].bytes;
      naive_free_segment(n, list[i].addr);
    }
    got += last;
  }
  free(list);
}

static inline int naive_release_some(naive *n, where w, uint64_t rounded) {
  uint64_t split = n->conf.max_split_bytes, wanted = rounded < split ? split : rounded, got = 0;
  if (!split) return 0;
  piece *one = next_fit(n, w, wanted, 0);
  if (one && is_whole(one)) {
    naive_free_segment(n, one->addr);
    return 1;
  }
  while (got < wanted) { /* the largest below, again and again; of equals the highest address */
    piece *best = NULL;
    for (size_t i = 0; i < n->count; i++) {
      piece *p = &n->pieces[i];
      if (p->state != FREE || !serves(p, w) || !is_whole(p) || p->bytes < split || p->bytes >= wanted) continue;
      if (!best || p->bytes >= best->bytes) best = p;
    }
    if (!best) return 0;
    got += best->bytes;
    naive_free_segment(n, best->addr);
  }
  return 1;
}

/* ---- the operations ------------------------------------------------------------------------------------------------------ */

static inline piece *naive_grow(naive *n, where w, uint64_t rounded) {
  int limited = n->limit_bytes != UINT64_MAX;
  if (limited && n->conf.garbage_collection_threshold > 0) naive_collect(n);
  piece *p = naive_get(n, w, rounded);
  if (!p && limited && n->conf.throw_on_cudamalloc_oom) return NULL;
  if (!p && naive_release_some(n, w, rounded)) p = naive_get(n, w, rounded);
  if (p || w.pool) return p;
  naive_release(n);
  n->retries++;
  return naive_get(n, w, rounded);
}

static inline void naive_events(naive *n) {
  piece *p;
  while (n->event_delay != UINT32_MAX && (p = oldest_pending(n)) && n->allocs - p->since > n->event_delay)
    naive_complete(n, p->addr);
}

static inline tn_addr naive_alloc(naive *n, uint32_t pool, uint64_t bytes, uint32_t stream) {
  uint64_t rounded = naive_round(n, bytes);
  where w = {.pool = pool, .stream = stream, .small = rounded <= MIB};
  n->allocs++;
  if (pool)
    n->freeable[pool] = 0;
  else
    naive_events(n);
  n->searches[pool][w.small]++;
  piece *p = naive_fit(n, w, rounded);
  if (!p) p = naive_grow(n, w, rounded);
  if (!p) {
    n->ooms++;
    return 0;
  }
  tn_addr addr = p->addr;
  uint64_t rest = p->bytes - rounded, split = or_none(n->conf.max_split_bytes);
  if (w.small || n->conf.expandable_segments ? rest >= 512 : rounded < split && rest > MIB) naive_cut(n, addr + rounded);
  p = naive_at(n, addr);
  p->state = LIVE;
  p->requested = bytes;
  p->shared = 0;
  n->allocated += p->bytes;
  n->active += p->bytes;
  n->requested += bytes;
  n->oversize += p->bytes >= split;
  return addr;
}

static inline void naive_dealloc(naive *n, tn_addr addr) {
  piece *p = naive_at(n, addr);
  n->allocated -= p->bytes;
  n->oversize -= p->bytes >= or_none(n->conf.max_split_bytes);
  if (!p->shared) {
    naive_complete(n, addr);
    return;
  }
  p->state = PENDING;
  p->since = n->allocs;
  p->order = n->frees++;
}

#endif

/* test_caching_random.c -- random operations against a naive model, and the out-of-memory sweep.
 *
 * The naive model keeps all blocks in one array sorted by address, searches it from end to end, and joins neighbours by going over
 * the whole array after each change. */
#include "caching/caching.h"
#include "helper.h"

#define MIB ((uint64_t)1 << 20)

enum { FREE = TN__BLOCK_FREE, LIVE = TN__BLOCK_LIVE, UNMAPPED = TN__BLOCK_UNMAPPED };
enum { BLOCKS_MAX = 4096, LOG_MAX = 4096 };

typedef struct piece {
  tn_addr addr, segment; /* the segment's first address */
  uint64_t bytes, segment_bytes, requested;
  uint32_t stream;
  int small, state;
} piece;

typedef struct happening {
  int kind;
  tn_addr addr;
  uint64_t bytes;
} happening;

typedef struct naive {
  piece pieces[BLOCKS_MAX];
  size_t count;
  int expandable;
  uint64_t total_bytes, limit_bytes;
  uint64_t reserved, allocated, retries, ooms;
  uint32_t segments_made;
  happening log[LOG_MAX];
  size_t log_count;
} naive;

/* Far apart and in no order, so that address and age differ. */
static tn_addr place(uint32_t serial) { return (tn_addr)(serial * 40503u % 65536u + 1) << 40; }

static void naive_log(naive *n, int kind, tn_addr addr, uint64_t bytes) {
  assert_true(n->log_count < LOG_MAX);
  n->log[n->log_count++] = (happening){kind, addr, bytes};
}

static void naive_insert(naive *n, size_t at, piece p) {
  assert_true(n->count < BLOCKS_MAX);
  memmove(&n->pieces[at + 1], &n->pieces[at], (n->count - at) * sizeof p);
  n->pieces[at] = p;
  n->count++;
}

static void naive_remove(naive *n, size_t at) {
  n->count--;
  memmove(&n->pieces[at], &n->pieces[at + 1], (n->count - at) * sizeof(piece));
}

static size_t naive_find(const naive *n, tn_addr addr) {
  size_t at = 0;
  while (at < n->count && n->pieces[at].addr < addr) at++;
  return at;
}

static void naive_join(naive *n) {
  for (size_t i = 0; i + 1 < n->count;) {
    piece *a = &n->pieces[i], *b = &n->pieces[i + 1];
    if (a->segment == b->segment && a->state == b->state && a->state != LIVE) {
      a->bytes += b->bytes;
      naive_remove(n, i + 1);
    } else {
      i++;
    }
  }
}

/* Makes an edge at addr, inside some piece or at its start. */
static void naive_cut(naive *n, tn_addr addr) {
  size_t at = naive_find(n, addr);
  if (at < n->count && n->pieces[at].addr == addr) return;
  piece *left = &n->pieces[at - 1], right = *left;
  if (addr >= left->addr + left->bytes) return;
  right.addr = addr;
  right.bytes = left->addr + left->bytes - addr;
  left->bytes = addr - left->addr;
  naive_insert(n, at, right);
}

static void naive_set(naive *n, tn_addr addr, uint64_t bytes, int state) {
  naive_cut(n, addr);
  naive_cut(n, addr + bytes);
  n->pieces[naive_find(n, addr)].state = state;
}

static uint64_t page_of(int small) { return small ? 2 * MIB : 20 * MIB; }

static piece *next_of(naive *n, const piece *p) {
  size_t at = (size_t)(p - n->pieces) + 1;
  return at < n->count && n->pieces[at].segment == p->segment ? &n->pieces[at] : NULL;
}

static piece *prev_of(naive *n, const piece *p) {
  size_t at = (size_t)(p - n->pieces);
  return at > 0 && n->pieces[at - 1].segment == p->segment ? &n->pieces[at - 1] : NULL;
}

static int serves(const piece *p, int small, uint32_t stream) { return p->small == small && p->stream == stream; }

/* The free piece that follows (bytes, addr) in order of size and address. */
static piece *next_fit(naive *n, int small, uint32_t stream, uint64_t bytes, tn_addr addr) {
  piece *best = NULL;
  for (size_t i = 0; i < n->count; i++) {
    piece *p = &n->pieces[i];
    if (p->state != FREE || !serves(p, small, stream)) continue;
    if (p->bytes < bytes || (p->bytes == bytes && p->addr < addr)) continue;
    if (!best || p->bytes < best->bytes) best = p;
  }
  return best;
}

static uint64_t could_be(naive *n, const piece *p) {
  const piece *next = next_of(n, p);
  return p->bytes + (next && next->state == UNMAPPED ? next->bytes : 0);
}

static piece *naive_fit(naive *n, int small, uint32_t stream, uint64_t rounded) {
  piece *p = next_fit(n, small, stream, rounded, 0);
  while (p && n->expandable) {
    piece *next = next_fit(n, small, stream, p->bytes, p->addr + 1);
    if (!next || could_be(n, next) >= could_be(n, p)) break;
    p = next;
  }
  return p;
}

static piece *naive_segment(naive *n, int small, uint32_t stream, uint64_t bytes, int state) {
  tn_addr addr = place(n->segments_made++);
  size_t at = naive_find(n, addr);
  naive_insert(n, at, (piece){addr, addr, bytes, bytes, 0, stream, small, state});
  return &n->pieces[at];
}

/* Maps from the first unmapped piece of the stream with enough room at or just before it. */
static piece *naive_expand(naive *n, int small, uint32_t stream, uint64_t rounded) {
  uint64_t page = page_of(small), reservation = tn__round_up(n->total_bytes + n->total_bytes / 8, page);
  tn_addr start = 0;
  if (rounded > reservation) return NULL;
  for (size_t i = 0; i < n->count && !start; i++) {
    piece *p = &n->pieces[i];
    if (p->state != UNMAPPED || !serves(p, small, stream)) continue;
    if (prev_of(n, p) && prev_of(n, p)->state == FREE) p--;
    uint64_t room = 0;
    for (piece *q = p; q && q->state != LIVE; q = next_of(n, q)) room += q->bytes;
    if (room >= rounded) start = p->addr;
  }
  if (!start) start = naive_segment(n, small, stream, reservation, UNMAPPED)->addr;
  uint64_t have = 0;
  while (have < rounded) {
    piece *p = &n->pieces[naive_find(n, start + have)];
    if (p->state == UNMAPPED) {
      uint64_t want = rounded - have < p->bytes ? rounded - have : p->bytes, mapped = tn__round_up(want, page);
      naive_log(n, TN_SEGMENT_MAP, p->addr, mapped);
      n->reserved += mapped;
      have += mapped;
      naive_set(n, p->addr, mapped, FREE);
    } else {
      have += p->bytes;
    }
  }
  naive_join(n);
  return &n->pieces[naive_find(n, start)];
}

static piece *naive_grow(naive *n, int small, uint32_t stream, uint64_t rounded) {
  uint64_t bytes = tn__segment_bytes(rounded);
  if (n->reserved + bytes > n->limit_bytes) return NULL;
  if (n->expandable) return naive_expand(n, small, stream, rounded);
  piece *p = naive_segment(n, small, stream, bytes, FREE);
  naive_log(n, TN_SEGMENT_ALLOC, p->addr, bytes);
  n->reserved += bytes;
  return p;
}

static void naive_release_one(naive *n, piece p) {
  if (!n->expandable) {
    if (p.bytes != p.segment_bytes) return;
    naive_log(n, TN_SEGMENT_FREE, p.addr, p.bytes);
    n->reserved -= p.bytes;
    naive_remove(n, naive_find(n, p.addr));
    return;
  }
  uint64_t page = page_of(p.small);
  tn_addr begin = p.segment + tn__round_up(p.addr - p.segment, page);
  tn_addr end = p.segment + (p.addr + p.bytes - p.segment) / page * page;
  if (begin >= end) return;
  naive_log(n, TN_SEGMENT_UNMAP, begin, end - begin);
  n->reserved -= end - begin;
  naive_set(n, begin, end - begin, UNMAPPED);
  naive_join(n);
  size_t at = naive_find(n, p.segment);
  if (n->pieces[at].bytes == p.segment_bytes) naive_remove(n, at);
}

static int by_place_in_order(const void *a, const void *b) {
  const piece *x = a, *y = b;
  if (x->small != y->small) return x->small - y->small; /* large first */
  if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return x->addr < y->addr ? -1 : 1;
}

static void naive_release(naive *n) {
  piece *list = malloc(sizeof n->pieces);
  size_t count = 0;
  assert_non_null(list);
  for (size_t i = 0; i < n->count; i++)
    if (n->pieces[i].state == FREE) list[count++] = n->pieces[i];
  qsort(list, count, sizeof *list, by_place_in_order);
  for (size_t i = 0; i < count; i++) naive_release_one(n, list[i]);
  free(list);
}

static tn_addr naive_alloc(naive *n, uint64_t bytes, uint32_t stream) {
  uint64_t rounded = tn_caching_round(bytes);
  int small = rounded <= MIB;
  piece *p = naive_fit(n, small, stream, rounded);
  if (!p) p = naive_grow(n, small, stream, rounded);
  if (!p) {
    naive_release(n);
    n->retries++;
    p = naive_grow(n, small, stream, rounded);
  }
  if (!p) {
    n->ooms++;
    return 0;
  }
  tn_addr addr = p->addr;
  uint64_t rest = p->bytes - rounded;
  if (small || n->expandable ? rest >= 512 : rest > MIB) naive_cut(n, addr + rounded);
  p = &n->pieces[naive_find(n, addr)];
  p->state = LIVE;
  p->requested = bytes;
  n->allocated += p->bytes;
  return addr;
}

static void naive_dealloc(naive *n, tn_addr addr) {
  piece *p = &n->pieces[naive_find(n, addr)];
  n->allocated -= p->bytes;
  p->state = FREE;
  p->requested = 0;
  naive_join(n);
}

/* ---- the two side by side ------------------------------------------------------------------------------------------------ */

typedef struct pair {
  naive *naive;
  tn_caching *caching;
  uint32_t segments_made;
  size_t heard; /* of the naive model's log */
  size_t walked;
  int differ;
} pair;

static tn_addr model_addr(void *user, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream) {
  (void)kind, (void)bytes, (void)stream;
  return place(((pair *)user)->segments_made++);
}

/* The naive model has gone first. */
static void model_event(void *user, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream) {
  pair *p = user;
  (void)stream;
  const happening *h = p->heard < p->naive->log_count ? &p->naive->log[p->heard] : NULL;
  p->differ |= !h || h->kind != (int)kind || h->addr != addr || h->bytes != bytes;
  p->heard++;
}

static void model_visit(void *user, tn_addr segment, tn_addr addr, uint64_t bytes, uint64_t requested, int live) {
  pair *p = user;
  (void)segment;
  while (p->walked < p->naive->count && p->naive->pieces[p->walked].state == UNMAPPED) p->walked++;
  const piece *want = p->walked < p->naive->count ? &p->naive->pieces[p->walked] : NULL;
  p->differ |= !want || want->addr != addr || want->bytes != bytes;
  p->differ |= want && (want->requested != requested || (want->state == LIVE) != live);
  p->walked++;
}

static void expect_same(pair *p, int step) {
  tn_caching_stats stats;
  p->walked = 0;
  tn_caching_walk(p->caching, model_visit, p);
  while (p->walked < p->naive->count && p->naive->pieces[p->walked].state == UNMAPPED) p->walked++;
  tn_caching_get_stats(p->caching, &stats);
  if (p->differ || p->walked != p->naive->count || p->heard != p->naive->log_count)
    fail_msg("the map or the events differ at step %d", step);
  if (stats.reserved_bytes.current != p->naive->reserved || stats.allocated_bytes.current != p->naive->allocated)
    fail_msg("reserved or allocated differ at step %d", step);
  if (stats.num_alloc_retries != p->naive->retries || stats.num_ooms != p->naive->ooms)
    fail_msg("counters differ at step %d", step);
  p->naive->log_count = p->heard = 0;
}

static uint64_t random_bytes(uint64_t *random) {
  switch (tn_test_random(random) % 6) {
    case 0: return tn_test_random(random) % 2048 + 1;
    case 1: return tn_test_random(random) % MIB + 1;
    case 2: return MIB + tn_test_random(random) % (9 * MIB);
    case 3: return 10 * MIB + tn_test_random(random) % (30 * MIB);
    case 4: return (tn_test_random(random) % 24 + 1) * MIB; /* equal sizes: the address decides */
    default: return (tn_test_random(random) % 8 + 1) * 512;
  }
}

static void run_random(uint64_t seed, int expandable, uint64_t limit_bytes, int steps) {
  naive *n = calloc(1, sizeof *n);
  pair p = {.naive = n};
  tn_addr live[256];
  size_t live_count = 0;
  uint64_t random = seed;
  assert_non_null(n);
  n->expandable = expandable;
  n->total_bytes = 400 * MIB;
  n->limit_bytes = limit_bytes ? limit_bytes : UINT64_MAX;
  tn_caching_config config = {.total_bytes = n->total_bytes,
                              .limit_bytes = limit_bytes,
                              .expandable_segments = (uint32_t)expandable,
                              .segment_addr = model_addr,
                              .segment_event = model_event,
                              .user = &p};
  assert_int_equal(tn_caching_new(&config, &p.caching), TN_OK);
  for (int step = 0; step < steps; step++) {
    uint64_t dice = tn_test_random(&random) % 100;
    if (dice == 0) {
      naive_release(n);
      assert_int_equal(tn_caching_empty_cache(p.caching), TN_OK);
    } else if (live_count < 256 && (live_count == 0 || dice < 52)) {
      uint64_t bytes = random_bytes(&random);
      uint32_t stream = tn_test_random(&random) % 4 == 0;
      tn_addr got = 0, want = naive_alloc(n, bytes, stream);
      int rc = tn_caching_alloc(p.caching, bytes, stream, &got);
      if (rc != (want ? TN_OK : TN_ELIMIT) || got != want) fail_msg("step %d: alloc of %d bytes differs", step, (int)bytes);
      if (want) live[live_count++] = want;
    } else {
      size_t at = tn_test_random(&random) % live_count;
      naive_dealloc(n, live[at]);
      assert_int_equal(tn_caching_dealloc(p.caching, live[at]), TN_OK);
      live[at] = live[--live_count];
    }
    expect_same(&p, step);
  }
  tn_caching_free(p.caching);
  free(n);
}

static void test_default(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (uint64_t i = 0; i < 10; i++) run_random(seed + i, 0, 0, 600);
}

static void test_default_limited(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (uint64_t i = 0; i < 10; i++) run_random(seed + i, 0, (300 + 40 * i) * MIB, 600);
}

static void test_expandable(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (uint64_t i = 0; i < 10; i++) run_random(seed + i, 1, 0, 600);
}

static void test_expandable_limited(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (uint64_t i = 0; i < 10; i++) run_random(seed + i, 1, (300 + 40 * i) * MIB, 600);
}

/* ---- out of host memory -------------------------------------------------------------------------------------------------- */

/* Enough blocks for several chunks and a few growths of the map; what fails once is tried no further. */
static int scenario(void *user) {
  tn_caching_config config = {.expandable_segments = *(uint32_t *)user, .limit_bytes = 2048 * MIB};
  tn_caching *caching;
  tn_addr addrs[600] = {0};
  int rc = tn_caching_new(&config, &caching);
  if (rc) return rc;
  for (size_t i = 0; i < 600 && !rc; i++) rc = tn_caching_alloc(caching, i % 50 ? 512 * (1 + i % 7) : 15 * MIB, i & 1, &addrs[i]);
  for (size_t i = 0; i < 600 && !rc; i += 2) rc = tn_caching_dealloc(caching, addrs[i]);
  if (!rc) rc = tn_caching_empty_cache(caching);
  if (!tn__caching_check(caching, NULL)) rc = TN_EINVAL; /* whole whatever failed */
  tn_caching_free(caching);
  return rc;
}

static void test_out_of_memory(void **state) {
  (void)state;
  for (uint32_t expandable = 0; expandable < 2; expandable++) assert_true(tn_test_sweep(scenario, &expandable) > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_default),    cmocka_unit_test(test_default_limited),    cmocka_unit_test(test_expandable),
      cmocka_unit_test(test_expandable_limited), cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_caching_random.c -- random operations against a naive model (naive_caching.h), and the out-of-memory sweep. */
#include "naive_caching.h"

/* ---- the two side by side ------------------------------------------------------------------------------------------------ */

typedef struct pair {
  naive *naive;
  tn_caching *caching;
  uint32_t segments_made;
  size_t heard; /* of the naive model's log */
  size_t walked;
  int differ;
} pair;

/* The naive model has gone first. */
static void model_event(void *user, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream) {
  pair *p = user;
  (void)stream;
  const happening *h = p->heard < p->naive->log_count ? &p->naive->log[p->heard] : NULL;
  p->differ |= !h || h->kind != (int)kind || h->addr != addr || h->bytes != bytes;
  p->heard++;
}

static int public_state(int state) {
  return state == FREE ? TN_BLOCK_INACTIVE : state == LIVE ? TN_BLOCK_ALLOCATED : TN_BLOCK_PENDING_FREE;
}

static void model_visit(void *user, tn_addr segment, tn_addr addr, uint64_t bytes, uint64_t requested, int state) {
  pair *p = user;
  (void)segment;
  while (p->walked < p->naive->count && p->naive->pieces[p->walked].state == UNMAPPED) p->walked++;
  const piece *want = p->walked < p->naive->count ? &p->naive->pieces[p->walked] : NULL;
  p->differ |= !want || want->addr != addr || want->bytes != bytes;
  p->differ |= want && (want->requested != requested || public_state(want->state) != state);
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
  const naive *n = p->naive;
  if (stats.reserved_bytes.current != n->reserved || stats.allocated_bytes.current != n->allocated ||
      stats.active_bytes.current != n->active || stats.requested_bytes.current != n->requested)
    fail_msg("reserved, allocated, active or requested bytes differ at step %d", step);
  if (stats.num_alloc_retries != n->retries || stats.num_ooms != n->ooms ||
      stats.oversize_allocations.current != n->oversize || stats.oversize_segments.current != n->oversize_segments)
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

/* The driver of the model under test: it has as much memory as the naive model's. */
static tn_addr model_addr(void *user, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream) {
  pair *p = user;
  tn_caching_stats stats;
  (void)stream;
  tn_caching_get_stats(p->caching, &stats);
  if (kind == TN_SEGMENT_ALLOC && stats.reserved_bytes.current + bytes > p->naive->device_bytes) return 0;
  return place(p->segments_made++);
}

static int model_map(void *user, tn_addr addr, uint64_t bytes, uint32_t stream) {
  pair *p = user;
  tn_caching_stats stats;
  (void)addr, (void)stream;
  tn_caching_get_stats(p->caching, &stats);
  return stats.reserved_bytes.current + bytes <= p->naive->device_bytes;
}

/* What a run is made of besides allocating and freeing. */
typedef struct world {
  tn_conf conf;
  uint64_t limit_bytes, device_bytes; /* 0 = none */
  uint32_t event_delay;
  int shares, pools; /* record_stream() is called; graphs and MemPools are used */
} world;

typedef struct live {
  tn_addr addrs[256];
  size_t count;
} live;

static void step_alloc(pair *p, const world *w, live *l, uint64_t *random, int step) {
  uint64_t bytes = random_bytes(random);
  uint32_t stream = tn_test_random(random) % 4 == 0, pool = w->pools ? (uint32_t)(tn_test_random(random) % 8) : 0;
  if (pool >= POOLS) pool = 0;
  tn_addr got = 0, want = naive_alloc(p->naive, pool, bytes, stream);
  int rc = tn_caching_alloc_from(p->caching, pool, bytes, stream, &got);
  if (rc != (want ? TN_OK : TN_ELIMIT) || got != want) fail_msg("step %d: alloc of %d bytes differs", step, (int)bytes);
  if (want) l->addrs[l->count++] = want;
  if (!want || !w->shares || tn_test_random(random) % 3) return;
  uint32_t other = (uint32_t)(tn_test_random(random) % 3);
  naive_at(p->naive, want)->shared |= other != stream;
  assert_int_equal(tn_caching_record_stream(p->caching, want, other), TN_OK);
}

static void step_dealloc(pair *p, live *l, uint64_t *random) {
  size_t at = tn_test_random(random) % l->count;
  naive_dealloc(p->naive, l->addrs[at]);
  assert_int_equal(tn_caching_dealloc(p->caching, l->addrs[at]), TN_OK);
  l->addrs[at] = l->addrs[--l->count];
}

static void step_empty_cache(pair *p, const world *w, uint64_t *random) {
  uint32_t pool = 1 + (uint32_t)(tn_test_random(random) % (POOLS - 1));
  if (w->pools && tn_caching_release_pool(p->caching, pool) == TN_OK) p->naive->freeable[pool] = ++p->naive->releases;
  naive_release(p->naive);
  assert_int_equal(tn_caching_empty_cache(p->caching), TN_OK);
}

static void step_complete(pair *p) {
  piece *pending = oldest_pending(p->naive);
  if (!pending) return;
  tn_addr addr = pending->addr;
  naive_complete(p->naive, addr);
  assert_int_equal(tn_caching_complete(p->caching, addr), TN_OK);
}

static void run_random(uint64_t seed, world w, int steps) {
  naive *n = calloc(1, sizeof *n);
  pair p = {.naive = n};
  live l = {.count = 0};
  uint64_t random = seed;
  assert_non_null(n);
  n->conf = w.conf;
  n->total_bytes = 400 * MIB;
  n->limit_bytes = or_none(w.limit_bytes);
  n->device_bytes = or_none(w.device_bytes);
  n->event_delay = w.event_delay;
  tn_caching_config config = {.total_bytes = n->total_bytes, .limit_bytes = w.limit_bytes, .conf = w.conf,
                              .event_delay = w.event_delay,  .segment_addr = model_addr,   .segment_map = model_map,
                              .segment_event = model_event,  .user = &p};
  assert_int_equal(tn_caching_new(&config, &p.caching), TN_OK);
  for (int step = 0; step < steps; step++) {
    uint64_t dice = tn_test_random(&random) % 100;
    if (dice == 0)
      step_empty_cache(&p, &w, &random);
    else if (dice == 1 && w.shares)
      step_complete(&p);
    else if (l.count < 256 && (l.count == 0 || dice < 52))
      step_alloc(&p, &w, &l, &random, step);
    else
      step_dealloc(&p, &l, &random);
    expect_same(&p, step);
  }
  tn_caching_free(p.caching);
  free(n);
}

static void run_seeds(world w, uint64_t limit_step) {
  uint64_t seed = tn_test_seed();
  for (uint64_t i = 0; i < 10; i++) {
    world one = w;
    if (w.limit_bytes) one.limit_bytes += i * limit_step;
    if (w.device_bytes) one.device_bytes += i * limit_step;
    run_random(seed + i, one, 600);
  }
}

static void test_default(void **state) {
  (void)state;
  run_seeds((world){0}, 0);
}

static void test_default_limited(void **state) {
  (void)state;
  run_seeds((world){.limit_bytes = 300 * MIB}, 40 * MIB);
}

static void test_expandable(void **state) {
  (void)state;
  run_seeds((world){.conf.expandable_segments = 1}, 0);
}

static void test_expandable_limited(void **state) {
  (void)state;
  run_seeds((world){.conf.expandable_segments = 1, .limit_bytes = 300 * MIB}, 40 * MIB);
}

/* The card is full before the limit is reached: mapping stops half way. */
static void test_device_full(void **state) {
  (void)state;
  run_seeds((world){.device_bytes = 300 * MIB}, 40 * MIB);
  run_seeds((world){.conf.expandable_segments = 1, .device_bytes = 300 * MIB}, 34 * MIB);
}

static void test_max_split(void **state) {
  (void)state;
  run_seeds((world){.conf.max_split_bytes = 24 * MIB, .limit_bytes = 400 * MIB}, 40 * MIB);
  run_seeds((world){.conf = {.max_split_bytes = 21 * MIB, .max_non_split_rounding_bytes = 4 * MIB}}, 0);
  run_seeds((world){.conf = {.max_split_bytes = 24 * MIB, .expandable_segments = 1}, .limit_bytes = 400 * MIB}, 40 * MIB);
}

static void test_roundup(void **state) {
  (void)state;
  world w = {.conf.roundup_divisions = {8, 4, 2, 1, 0, 16, 4}};
  run_seeds(w, 0);
  w.conf.expandable_segments = 1;
  w.limit_bytes = 400 * MIB;
  run_seeds(w, 40 * MIB);
}

static void test_garbage_collection(void **state) {
  (void)state;
  run_seeds((world){.conf.garbage_collection_threshold = 0.5, .limit_bytes = 400 * MIB}, 60 * MIB);
  run_seeds((world){.conf = {.garbage_collection_threshold = 0.7, .max_split_bytes = 30 * MIB}, .limit_bytes = 500 * MIB}, 60 * MIB);
}

static void test_large_segment(void **state) {
  (void)state;
  run_seeds((world){.conf.large_segment_bytes = 32 * MIB, .limit_bytes = 400 * MIB}, 40 * MIB);
  run_seeds((world){.conf = {.large_segment_bytes = 12 * MIB, .expandable_segments = 1}}, 0);
}

static void test_throws_at_once(void **state) {
  (void)state;
  run_seeds((world){.conf.throw_on_cudamalloc_oom = 1, .limit_bytes = 300 * MIB}, 40 * MIB);
}

static void test_record_stream(void **state) {
  (void)state;
  run_seeds((world){.shares = 1, .limit_bytes = 400 * MIB}, 60 * MIB);
  run_seeds((world){.shares = 1, .event_delay = 7, .conf.expandable_segments = 1, .limit_bytes = 400 * MIB}, 60 * MIB);
  run_seeds((world){.shares = 1, .event_delay = UINT32_MAX}, 0);
}

static void test_pools(void **state) {
  (void)state;
  run_seeds((world){.pools = 1, .limit_bytes = 500 * MIB}, 60 * MIB);
  run_seeds((world){.pools = 1, .conf.expandable_segments = 1, .limit_bytes = 500 * MIB}, 60 * MIB);
  run_seeds((world){.pools = 1, .shares = 1, .conf = {.expandable_segments = 1, .private_expandable = 1}}, 0);
}

/* ---- out of host memory -------------------------------------------------------------------------------------------------- */

/* Enough blocks for several chunks and a few growths of the map; what fails once is tried no further. */
static int scenario(void *user) {
  tn_caching_config config = {.conf.expandable_segments = *(uint8_t *)user, .limit_bytes = 2048 * MIB};
  tn_caching *caching;
  tn_addr addrs[600] = {0};
  int rc = tn_caching_new(&config, &caching);
  if (rc) return rc;
  for (size_t i = 0; i < 600 && !rc; i++)
    rc = tn_caching_alloc_from(caching, i % 64 == 0, i % 50 ? 512 * (1 + i % 7) : 15 * MIB, i & 1, &addrs[i]);
  for (size_t i = 0; i < 600 && !rc; i += 5) rc = tn_caching_record_stream(caching, addrs[i], 2);
  for (size_t i = 0; i < 600 && !rc; i += 2) rc = tn_caching_dealloc(caching, addrs[i]);
  if (!rc) rc = tn_caching_release_pool(caching, 1);
  if (!rc) rc = tn_caching_empty_cache(caching);
  if (!tn__caching_check(caching, NULL)) rc = TN_EINVAL; /* whole whatever failed */
  tn_caching_free(caching);
  return rc;
}

static void test_out_of_memory(void **state) {
  (void)state;
  for (uint8_t expandable = 0; expandable < 2; expandable++) assert_true(tn_test_sweep(scenario, &expandable) > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_default),       cmocka_unit_test(test_default_limited),    cmocka_unit_test(test_expandable),
      cmocka_unit_test(test_expandable_limited), cmocka_unit_test(test_device_full),   cmocka_unit_test(test_max_split),
      cmocka_unit_test(test_roundup),       cmocka_unit_test(test_garbage_collection), cmocka_unit_test(test_large_segment),
      cmocka_unit_test(test_throws_at_once), cmocka_unit_test(test_record_stream),     cmocka_unit_test(test_pools),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

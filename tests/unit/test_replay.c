/* test_replay.c -- histories that the model itself recorded must replay exactly, whatever was lost of them; and what a difference,
 * a limit and other settings come to. */
#include "recording.h"

static tn_replay_result replayed(const tn_trace *trace, const char *conf_text, uint64_t limit_bytes) {
  tn_conf conf;
  tn_error err = {0};
  tn_replay_result result;
  tn_replay_options options = {.device = TN_NONE, .limit_bytes = limit_bytes};
  if (conf_text) {
    assert_int_equal(tn_conf_parse(conf_text, trace, &conf, NULL), TN_OK);
    options.conf = &conf;
  }
  if (tn_replay(trace, &options, &result, &err)) fail_msg("%s", err.msg);
  return result;
}

/* ---- random programs ----------------------------------------------------------------------------------------------------- */

typedef struct world {
  tn_conf conf;
  uint64_t limit_bytes, device_bytes;
  int shares, pools, names_pools, without_stacks;
} world;

static uint64_t random_bytes(uint64_t *random) {
  switch (tn_test_random(random) % 5) {
    case 0: return tn_test_random(random) % 2048 + 1;
    case 1: return tn_test_random(random) % MIB + 1;
    case 2: return MIB + tn_test_random(random) % (9 * MIB);
    case 3: return 10 * MIB + tn_test_random(random) % (30 * MIB);
    default: return (tn_test_random(random) % 24 + 1) * MIB;
  }
}

typedef struct live {
  tn_addr addrs[100];
  size_t count;
} live;

static void program_step(recording *r, const world *w, live *l, uint64_t *random) {
  uint64_t dice = tn_test_random(random) % 100;
  if (dice == 0) {
    if (w->names_pools) (void)tn_caching_release_pool(r->caching, 1 + (uint32_t)(tn_test_random(random) % 3));
    rec_empty_cache(r);
  } else if (dice == 1) {
    rec_complete(r);
  } else if (l->count < 100 && (l->count == 0 || dice < 54)) {
    uint32_t pool = w->pools ? (uint32_t)(tn_test_random(random) % 12) : 0, line = 10 + (uint32_t)(tn_test_random(random) % 80);
    uint32_t stream = tn_test_random(random) % 4 ? 0 : (uint32_t)(tn_test_random(random) % REC_STREAMS);
    tn_addr addr = rec_alloc_from(r, pool < 4 ? pool : 0, random_bytes(random), stream, line);
    if (addr) l->addrs[l->count++] = addr;
  } else {
    size_t at = tn_test_random(random) % l->count;
    rec_dealloc(r, l->addrs[at], w->shares && tn_test_random(random) % 4 == 0);
    l->addrs[at] = l->addrs[--l->count];
  }
}

static recording *program(uint64_t seed, const world *w, int steps) {
  recording *r = rec_new(w->conf, w->limit_bytes, w->device_bytes);
  r->has_stacks = !w->without_stacks;
  r->names_pools = w->names_pools;
  live l = {.count = 0};
  uint64_t random = seed;
  for (int i = 0; i < steps; i++) program_step(r, w, &l, &random);
  return r;
}

/* Emptying an empty cache leaves no entry.  Without stacks an empty_cache() may look like an allocation's retry, and a retry that gave
 * no page back, but waited for streams and then needed fewer pages, looks like none. */
static void same_stats(const recording *r, const tn_caching_stats *got, uint64_t seed) {
  uint64_t have[sizeof *got / sizeof(uint64_t)], want[sizeof *got / sizeof(uint64_t)];
  tn_caching_stats g = *got, w = r->caching->stats;
  g.num_sync_all_streams = w.num_sync_all_streams = 0;
  if (!r->has_stacks || (r->device_bytes && r->config.conf.expandable_segments)) g.num_alloc_retries = w.num_alloc_retries = 0;
  memcpy(have, &g, sizeof g);
  memcpy(want, &w, sizeof w);
  for (size_t i = 0; i < sizeof g / sizeof(uint64_t); i++)
    if (have[i] != want[i]) fail_msg("seed %d: number %d of the statistics is %d, not %d", (int)seed, (int)i, (int)have[i], (int)want[i]);
}

static void exact(recording *r, uint32_t skip, uint64_t limit_bytes, uint64_t seed) {
  tn_trace *trace = rec_trace(r, skip);
  tn_replay_result result = replayed(trace, NULL, limit_bytes);
  if (result.exactness != TN_EXACT_YES)
    fail_msg("seed %d, without %d of %d entries: entry %d: %s", (int)seed, (int)skip, (int)r->entries_count,
             (int)result.difference_entry, result.difference);
  if (skip == 0) same_stats(r, &result.stats, seed);
  assert_int_equal(result.is_complete, skip == 0);
  tn_trace_free(trace);
}

/* Garbage collection goes by ages, which a history that starts late does not have. */
static void run_seeds(world w) {
  uint64_t seed = tn_test_seed();
  for (uint64_t i = 0; i < 10; i++) {
    recording *r = program(seed + i, &w, 500);
    exact(r, 0, w.limit_bytes, seed + i);
    exact(r, 0, w.conf.garbage_collection_threshold > 0 ? w.limit_bytes : 0, seed + i); /* refused where it was */
    if (!(w.conf.garbage_collection_threshold > 0))
      for (uint32_t part = 1; part < 8; part++) exact(r, r->entries_count / 8 * part + (uint32_t)i, 0, seed + i);
    rec_free(r);
  }
}

static void test_default(void **state) {
  (void)state;
  run_seeds((world){.conf.private_expandable = 1});
  run_seeds((world){.limit_bytes = 400 * MIB});
  run_seeds((world){.device_bytes = 400 * MIB});
}

static void test_expandable(void **state) {
  (void)state;
  run_seeds((world){.conf.expandable_segments = 1});
  run_seeds((world){.conf.expandable_segments = 1, .limit_bytes = 400 * MIB});
  run_seeds((world){.conf.expandable_segments = 1, .device_bytes = 400 * MIB});
}

static void test_settings(void **state) {
  (void)state;
  run_seeds((world){.conf.max_split_bytes = 24 * MIB, .limit_bytes = 500 * MIB});
  run_seeds((world){.conf.roundup_divisions = {4, 8, 2, 0, 16}, .device_bytes = 500 * MIB});
  run_seeds((world){.conf.garbage_collection_threshold = 0.6, .limit_bytes = 500 * MIB});
}

static void test_shared_blocks(void **state) {
  (void)state;
  run_seeds((world){.shares = 1});
  run_seeds((world){.shares = 1, .limit_bytes = 400 * MIB});
  run_seeds((world){.shares = 1, .conf.expandable_segments = 1, .device_bytes = 400 * MIB});
}

/* Pools that the entries name may be given back; otherwise the segments at the end say whose they are. */
static void test_pools(void **state) {
  (void)state;
  run_seeds((world){.pools = 1, .names_pools = 1});
  run_seeds((world){.pools = 1, .names_pools = 1, .limit_bytes = 700 * MIB});
  run_seeds((world){.pools = 1}); /* of an allocation that failed nothing would say whose it was */
  run_seeds((world){.pools = 1, .names_pools = 1, .conf = {.expandable_segments = 1, .private_expandable = 1}});
}

/* Who gave memory back is a guess then, and a good one. */
static void test_without_stacks(void **state) {
  (void)state;
  run_seeds((world){.without_stacks = 1});
  run_seeds((world){.without_stacks = 1, .limit_bytes = 400 * MIB});
}

/* ---- what is said -------------------------------------------------------------------------------------------------------- */

/* 40 MiB, freed, then as large a block as each time before and 2 MiB more: default settings need a new segment each time. */
static recording *growing(int rounds) {
  recording *r = rec_new((tn_conf){.private_expandable = 1}, 0, 0);
  for (int i = 0; i < rounds; i++) rec_dealloc(r, rec_alloc(r, (uint64_t)(40 + 2 * i) * MIB), 0);
  return r;
}

static void test_first_difference(void **state) {
  (void)state;
  recording *r = growing(4);
  r->entries[5].addr += 512; /* the second allocation */
  tn_trace *trace = rec_trace(r, 0);
  tn_replay_result result = replayed(trace, NULL, 0);
  assert_int_equal(result.exactness, TN_EXACT_NO);
  assert_int_equal(result.difference_entry, 5);
  assert_non_null(strstr(result.difference, "recorded: 42.00 MiB at 0x"));
  assert_int_equal(result.stats.reserved_bytes.peak, (40 + 42 + 44 + 46) * MIB); /* predicted all the same */
  tn_trace_free(trace);
  rec_free(r);
}

static void test_difference_at_the_end(void **state) {
  (void)state;
  recording *r = growing(2);
  tn_trace *trace = rec_trace(r, 0);
  tn_addr more = rec_alloc(r, 40 * MIB); /* in the snapshot's map, but not in its entries */
  assert_true(more != 0);
  r->entries_count--;
  tn_trace *late = rec_trace(r, 0);
  tn_replay_result result = replayed(late, NULL, 0);
  assert_int_equal(result.exactness, TN_EXACT_NO);
  assert_non_null(strstr(result.difference, "at the end the snapshot has 40.00 MiB active_allocated"));
  tn_trace_free(late);
  tn_trace_free(trace);
  rec_free(r);
}

static void test_other_settings(void **state) {
  (void)state;
  recording *r = growing(4);
  tn_trace *trace = rec_trace(r, 0);
  tn_replay_result result = replayed(trace, "expandable_segments:True", 0);
  assert_int_equal(result.exactness, TN_EXACT_NOT_COMPARED);
  assert_int_equal(result.recorded_bytes, (40 + 42 + 44 + 46) * MIB);
  assert_int_equal(result.stats.reserved_bytes.peak, 60 * MIB);
  assert_int_equal(result.ideal_bytes, 46 * MIB);
  assert_int_equal(result.oom_entry, TN_NONE);
  assert_int_equal(replayed(trace, "expandable_segments:False", 0).exactness, TN_EXACT_YES); /* the recorded ones, in other words */
  tn_trace_free(trace);
  rec_free(r);
}

/* The free was not complete at once, though nothing came between: it was the failing allocation that waited for it. */
static void test_completed_by_the_next_call(void **state) {
  (void)state;
  recording *r = rec_new((tn_conf){.private_expandable = 1}, 60 * MIB, 0);
  rec_alloc(r, 40 * MIB);
  tn_addr front = rec_alloc(r, 8 * MIB);
  rec_alloc(r, 9 * MIB);
  rec_dealloc(r, front, 1);
  assert_int_equal(rec_alloc(r, 8 * MIB), 0);
  tn_trace *trace = rec_trace(r, 0);
  tn_replay_result result = replayed(trace, NULL, 60 * MIB);
  assert_int_equal(result.exactness, TN_EXACT_YES);
  assert_int_equal(result.stats.num_ooms, 1);
  tn_trace_free(trace);
  rec_free(r);
}

/* Under the limit the block at an address is complete early, and another has its place when the first one's time comes. */
static void test_address_has_a_new_tenant(void **state) {
  (void)state;
  recording *r = rec_new((tn_conf){.private_expandable = 1}, 0, 0);
  rec_dealloc(r, rec_alloc(r, 22 * MIB), 0);
  rec_alloc(r, 19 * MIB); /* of the 22, so that the next ones have 20 for themselves */
  rec_alloc(r, 5 * MIB);
  tn_addr first = rec_alloc(r, 8 * MIB);
  rec_dealloc(r, rec_alloc(r, 30 * MIB), 0);
  rec_dealloc(r, first, 1);
  rec_alloc(r, 40 * MIB);                    /* has to wait under the limit, and to give the 30 back */
  rec_dealloc(r, rec_alloc(r, 8 * MIB), 1); /* in first's place then */
  rec_complete(r);                           /* first */
  uint32_t last = r->entries_count;
  rec_alloc(r, 8 * MIB); /* its own segment: what was in first's place is not complete */
  tn_trace *trace = rec_trace(r, 0);
  tn_replay_result result = replayed(trace, NULL, 85 * MIB);
  assert_int_equal(result.exactness, TN_EXACT_NOT_COMPARED);
  assert_true(result.oom_entry != TN_NONE && result.oom_entry >= last);
  tn_trace_free(trace);
  rec_free(r);
}

/* The limit was not there when it was recorded: that is no fault of the model. */
static void test_other_limit(void **state) {
  (void)state;
  recording *r = growing(4);
  tn_trace *trace = rec_trace(r, 0);
  tn_replay_result result = replayed(trace, NULL, 90 * MIB);
  assert_int_equal(result.exactness, TN_EXACT_NOT_COMPARED);
  assert_int_equal(result.stats.num_alloc_retries, 1); /* 40 + 42 fit, 44 takes their place, 46 fits beside it */
  assert_int_equal(result.stalls, 1);
  result = replayed(trace, NULL, 45 * MIB);
  assert_int_equal(result.oom_entry, 13); /* of 46 MiB */
  assert_int_equal(result.oom_bytes, 46 * MIB);
  tn_trace_free(trace);
  rec_free(r);
}

/* What was refused tells how much there was: 100 MiB, less than 86 + 44. */
static void test_limit_is_inferred(void **state) {
  (void)state;
  recording *r = rec_new((tn_conf){.private_expandable = 1}, 100 * MIB, 0);
  tn_addr a = rec_alloc(r, 40 * MIB), b = rec_alloc(r, 46 * MIB);
  assert_int_equal(rec_alloc(r, 44 * MIB), 0);
  r->entries[r->entries_count - 1].addr = 500 * MIB; /* the device has more free than that: a limit refused */
  rec_dealloc(r, a, 0);
  rec_dealloc(r, b, 0);
  tn_trace *trace = rec_trace(r, 0);
  tn_replay_result result = replayed(trace, NULL, 0);
  assert_int_equal(result.exactness, TN_EXACT_YES);
  assert_int_equal(result.ooms_recorded, 1);
  result = replayed(trace, "expandable_segments:True", 0);
  assert_int_equal(result.limit_inferred, 1);
  assert_int_equal(result.limit_bytes, 130 * MIB - 1);
  assert_int_equal(result.ooms_served, 0);
  assert_int_equal(replayed(trace, "expandable_segments:True", 200 * MIB).ooms_served, 1);
  tn_trace_free(trace);
  rec_free(r);
}

static void test_refused(void **state) {
  (void)state;
  tn_error err = {0};
  tn_replay_result result;
  tn_conf conf = {.malloc_async = 1};
  recording *r = growing(1);
  tn_trace *trace = rec_trace(r, 0), *empty = rec_trace(r, r->entries_count);
  assert_int_equal(tn_replay(empty, NULL, &result, &err), TN_EPARTIAL);
  assert_int_equal(tn_replay(trace, &(tn_replay_options){.device = 3}, &result, &err), TN_ENOENT);
  assert_string_equal(err.msg, "there is nothing of device 3 in it");
  assert_int_equal(tn_replay(trace, &(tn_replay_options){.device = TN_NONE, .conf = &conf}, &result, &err), TN_EINVAL);
  conf = (tn_conf){.memory_fraction = 0.5};
  assert_int_equal(tn_replay(trace, &(tn_replay_options){.device = TN_NONE, .conf = &conf}, &result, &err), TN_EINVAL);
  assert_int_equal(tn_replay(NULL, NULL, &result, &err), TN_EINVAL);
  tn_trace_free(empty);
  tn_trace_free(trace);
  rec_free(r);
}

/* ---- out of host memory -------------------------------------------------------------------------------------------------- */

static int scenario(void *user) {
  tn_conf conf;
  tn_replay_result result;
  tn_replay_options options = {.device = TN_NONE};
  int rc = tn_replay(user, &options, &result, NULL);
  if (!rc) rc = tn_conf_parse("expandable_segments:True", user, &conf, NULL);
  options.conf = &conf;
  return rc ? rc : tn_replay(user, &options, &result, NULL);
}

static void test_out_of_memory(void **state) {
  (void)state;
  world w = {.shares = 1, .pools = 1, .names_pools = 1, .limit_bytes = 500 * MIB};
  recording *r = program(3, &w, 200);
  for (uint32_t skip = 0; skip < 2; skip++) {
    tn_trace *trace = rec_trace(r, skip * r->entries_count / 2);
    assert_true(tn_test_sweep(scenario, trace) > 10);
    tn_trace_free(trace);
  }
  rec_free(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_default), cmocka_unit_test(test_expandable), cmocka_unit_test(test_settings),
      cmocka_unit_test(test_shared_blocks), cmocka_unit_test(test_pools), cmocka_unit_test(test_without_stacks),
      cmocka_unit_test(test_first_difference), cmocka_unit_test(test_difference_at_the_end), cmocka_unit_test(test_other_settings),
      cmocka_unit_test(test_completed_by_the_next_call),
      cmocka_unit_test(test_address_has_a_new_tenant), cmocka_unit_test(test_other_limit), cmocka_unit_test(test_limit_is_inferred), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* chronicle: spans and levels of random histories are those of the caching model that made them, from the start or from any later
 * moment; contradictions count and do no harm. */
#include "explain/chronicle.h"

#include "memory.h"

/* ---- random histories ---------------------------------------------------------------------------------------------------- */

static uint64_t random_bytes(uint64_t *seed) {
  uint64_t dice = tn_test_random(seed), size = tn_test_random(seed);
  switch (dice % 4) {
    case 0: return 1 + size % 4096;
    case 1: return 1 + size % MIB;
    case 2: return MIB + size % (9 * MIB);
    default: return 10 * MIB + size % (30 * MIB);
  }
}

static void random_step(memory *m, uint64_t *seed) {
  uint32_t block = m->blocks.count ? (uint32_t)(tn_test_random(seed) % m->blocks.count) : 0;
  int live = m->blocks.count ? memory_at(m, block)->live : 0;
  uint64_t dice = tn_test_random(seed) % 100;
  if (dice < 45 || !m->blocks.count)
    memory_alloc_on(m, random_bytes(seed), TN_NONE, (uint32_t)(tn_test_random(seed) % 8 == 0), 0);
  else if (dice == 99)
    memory_empty_cache(m, TN_NONE);
  else if (live == 1)
    memory_free_on(m, block, TN_NONE, dice > 95);
  else if (live == 2)
    memory_complete(m, block);
  memory_level(m);
}

static void random_history(memory *m, const char *conf, int steps, uint64_t *seed) {
  memory_open(m, conf);
  for (int i = 0; i < steps; i++) random_step(m, seed);
}

/* Entries of a call come one after the other: the model's numbers hold where the next entry begins another call. */
static int is_settled(const memory *m, size_t entry) {
  const tn_entry *entries = m->entries.data;
  if (entry + 1 >= m->entries.count) return 1;
  int action = entries[entry].action, next = entries[entry + 1].action;
  int is_segment = action >= TN_ACTION_SEGMENT_ALLOC && action <= TN_ACTION_SEGMENT_UNMAP;
  return !is_segment && !(action == TN_ACTION_FREE_REQUESTED && next == TN_ACTION_FREE_COMPLETED);
}

/* A block from before the history, whose right neighbour was freed before it too, leaves no sign of the remainder that it kept. */
static uint64_t unseen_bytes(const tn__walk *walk) {
  uint64_t most = 0;
  for (size_t i = 0; i < walk->history->before_count; i++) {
    const tn__span *at = tn__vec_at(&walk->history->spans, i);
    if (tn__span_is_active(at, walk->moment) && !(at->flags & TN__SPAN_HAS_END) && at->bytes > MIB) most += MIB;
  }
  return most;
}

static void assert_level(const tn__walk *walk, const tn_caching_stats *stats) {
  uint64_t active = stats->active_bytes.current, allocated = stats->allocated_bytes.current, unseen = unseen_bytes(walk);
  assert_int_equal(walk->level.reserved_bytes, stats->reserved_bytes.current);
  if (walk->level.active_bytes > active || active - walk->level.active_bytes > unseen)
    fail_msg("moment %u: active %llu, not %llu", walk->moment, (unsigned long long)walk->level.active_bytes, (unsigned long long)active);
  if (walk->level.allocated_bytes > allocated || allocated - walk->level.allocated_bytes > unseen)
    fail_msg("moment %u: allocated %llu, not %llu", walk->moment, (unsigned long long)walk->level.allocated_bytes, (unsigned long long)allocated);
}

static void compare(memory *m, const tn__chronicle *c) {
  tn__walk walk = tn__walk_begin(c);
  do {
    size_t entry = m->skip + walk.moment;
    if (entry && is_settled(m, entry - 1)) assert_level(&walk, &TN_VEC(&m->levels, tn_caching_stats)[entry - 1]);
  } while (tn__walk_next(&walk));
  assert_int_equal(walk.level.allocated_bytes, c->last.allocated_bytes);
  assert_int_equal(c->odd_count, 0);
}

static void levels_match_the_model(const char *conf, int skips) {
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 12; round++) {
    memory m;
    tn__chronicle c;
    random_history(&m, conf, 400, &seed);
    m.skip = skips ? (uint32_t)(tn_test_random(&seed) % m.entries.count) : 0;
    memory_close(&m);
    memory_must(tn__chronicle_init(&c, m.trace, 0), "chronicle");
    compare(&m, &c);
    tn__chronicle_deinit(&c);
    memory_end(&m);
  }
}

static void whole_histories(void **state) {
  (void)state;
  levels_match_the_model(NULL, 0);
}

/* What was there before is found from what is freed and from what is held at the end, with remainders that no entry names. */
static void histories_that_begin_late(void **state) {
  (void)state;
  levels_match_the_model(NULL, 1);
}

static void under_expandable_segments(void **state) {
  (void)state;
  levels_match_the_model("expandable_segments:True", 1);
}

static void under_a_split_limit(void **state) {
  (void)state;
  levels_match_the_model("max_split_size_mb:20", 1);
}

/* ---- one by one ---------------------------------------------------------------------------------------------------------- */

static const tn__span *span(const tn__chronicle *c, size_t at) { return tn__vec_at(&c->spans, at); }

/* 10.5 MiB in a segment of 12 MiB: 1.5 MiB are split off; 11.5 MiB keep the half that is left. */
static void remainders_belong_to_blocks(void **state) {
  (void)state;
  memory m;
  tn__chronicle c;
  memory_open(&m, NULL);
  uint32_t first = memory_alloc(&m, 10 * MIB + MIB / 2, TN_NONE), second = memory_alloc(&m, 11 * MIB + MIB / 2, TN_NONE);
  memory_free(&m, first, TN_NONE);
  memory_free(&m, second, TN_NONE);
  memory_close(&m);
  memory_must(tn__chronicle_init(&c, m.trace, 0), "chronicle");
  assert_int_equal(span(&c, 0)->bytes, 10 * MIB + MIB / 2);
  assert_int_equal(span(&c, 1)->bytes, 12 * MIB);
  assert_int_equal(span(&c, 1)->requested_bytes, 11 * MIB + MIB / 2);
  tn__chronicle_deinit(&c);
  memory_end(&m);
}

static void a_free_that_waits_is_active_and_not_allocated(void **state) {
  (void)state;
  memory m;
  tn__chronicle c;
  memory_open(&m, NULL);
  uint32_t block = memory_alloc(&m, 4 * MIB, TN_NONE);
  memory_free_on(&m, block, TN_NONE, 1);
  memory_alloc(&m, 512, TN_NONE);
  memory_close(&m);
  memory_must(tn__chronicle_init(&c, m.trace, 0), "chronicle");
  assert_int_equal(c.last.allocated_bytes, 512);
  assert_int_equal(c.last.active_bytes, 4 * MIB + 512);
  assert_true(tn__span_is_active(span(&c, 0), c.entry_count));
  assert_false(tn__span_is_allocated(span(&c, 0), c.entry_count));
  tn__chronicle_deinit(&c);
  memory_end(&m);
}

/* Asked for before the first entry, completed within: it is pending from the start. */
static void a_free_asked_for_before_the_history(void **state) {
  (void)state;
  memory m;
  tn__chronicle c;
  memory_open(&m, NULL);
  uint32_t block = memory_alloc(&m, 4 * MIB, TN_NONE);
  memory_free_on(&m, block, TN_NONE, 1);
  m.skip = (uint32_t)m.entries.count;
  memory_complete(&m, block);
  memory_close(&m);
  memory_must(tn__chronicle_init(&c, m.trace, 0), "chronicle");
  assert_int_equal(c.before_count, 1);
  assert_true(span(&c, 0)->was_pending);
  assert_int_equal(c.first.active_bytes, 4 * MIB);
  assert_int_equal(c.first.allocated_bytes, 0);
  assert_int_equal(c.last.active_bytes, 0);
  tn__chronicle_deinit(&c);
  memory_end(&m);
}

/* ---- contradictions ------------------------------------------------------------------------------------------------------ */

static tn_trace *raw(const tn_entry *entries, size_t count, const tn_segment *segments, size_t segment_count, const tn_segment_block *blocks,
                     size_t block_count) {
  tn_trace *trace = NULL;
  tn_stream stream = {0};
  tn_pool pool = {0, 0};
  tn_device device = {.segments_count = (uint32_t)segment_count, .entries_count = (uint32_t)count};
  memory_must(tn_trace_new(&trace), "trace");
  memory_must(tn_trace_add(trace, TN_TABLE_STREAM, &stream, 1), "stream");
  memory_must(tn_trace_add(trace, TN_TABLE_POOL, &pool, 1), "pool");
  memory_must(tn_trace_add(trace, TN_TABLE_ENTRY, entries, count), "entries");
  memory_must(tn_trace_add(trace, TN_TABLE_SEGMENT, segments, segment_count), "segments");
  memory_must(tn_trace_add(trace, TN_TABLE_SEGMENT_BLOCK, blocks, block_count), "blocks");
  memory_must(tn_trace_add(trace, TN_TABLE_DEVICE, &device, 1), "device");
  memory_must(tn_trace_check(trace, NULL), "check");
  return trace;
}

#define ENTRY(what, at, size) {.addr = (at), .bytes = (size), .stack = TN_NONE, .forward = TN_NONE, .action = TN_ACTION_##what, .category = TN_CATEGORY_UNKNOWN}

/* The second allocation at an address whose block was never freed: the first counts nothing, and levels stay whole. */
static void allocated_twice(void **state) {
  (void)state;
  tn_entry entries[] = {ENTRY(ALLOC, 4096, 1000), ENTRY(ALLOC, 4096, 2000)};
  tn_segment_block block = {4096, 2048, 2000, TN_NONE, TN_BLOCK_ALLOCATED, TN_CATEGORY_UNKNOWN, 0};
  tn_segment segment = {.addr = 4096, .bytes = 2048, .blocks_count = 1, .stack = TN_NONE, .flags = TN_SEGMENT_SMALL};
  tn_trace *trace = raw(entries, 2, &segment, 1, &block, 1);
  tn__chronicle c;
  memory_must(tn__chronicle_init(&c, trace, 0), "chronicle");
  assert_int_equal(c.odd_count, 1);
  assert_int_equal(c.last.allocated_bytes, 2048);
  assert_int_equal(span(&c, 0)->bytes, 0);
  assert_true(span(&c, 0)->flags & TN__SPAN_ODD);
  tn__chronicle_deinit(&c);
  tn_trace_free(trace);
}

/* The end is what can be seen: a block that only its entry knows counts nothing. */
static void allocated_and_gone(void **state) {
  (void)state;
  tn_entry entries[] = {ENTRY(ALLOC, 4096, 1000), ENTRY(ALLOC, 8192, 512)};
  tn_segment_block block = {8192, 512, 512, TN_NONE, TN_BLOCK_ALLOCATED, TN_CATEGORY_UNKNOWN, 0};
  tn_segment segment = {.addr = 8192, .bytes = 512, .blocks_count = 1, .stack = TN_NONE};
  tn_trace *trace = raw(entries, 2, &segment, 1, &block, 1);
  tn__chronicle c;
  memory_must(tn__chronicle_init(&c, trace, 0), "chronicle");
  assert_int_equal(c.odd_count, 1);
  assert_int_equal(c.last.allocated_bytes, 512);
  tn__chronicle_deinit(&c);
  tn_trace_free(trace);
}

/* Entries alone, as a viewer might have kept them: what is live is what they say. */
static void no_segments_at_all(void **state) {
  (void)state;
  tn_entry entries[] = {ENTRY(ALLOC, 4096, 1000), ENTRY(ALLOC, 8192, 512), ENTRY(FREE_REQUESTED, 8192, 512), ENTRY(FREE_COMPLETED, 8192, 512)};
  tn_trace *trace = raw(entries, 4, NULL, 0, NULL, 0);
  tn__chronicle c;
  memory_must(tn__chronicle_init(&c, trace, 0), "chronicle");
  assert_int_equal(c.last.allocated_bytes, 1024);
  assert_int_equal(c.odd_count, 0);
  tn__chronicle_deinit(&c);
  tn_trace_free(trace);
}

/* More was given back than was ever there. */
static void segments_freed_from_nowhere(void **state) {
  (void)state;
  tn_entry entries[] = {ENTRY(SEGMENT_ALLOC, 4096, 2 * MIB), ENTRY(SEGMENT_FREE, 4096, 20 * MIB)};
  tn_trace *trace = raw(entries, 2, NULL, 0, NULL, 0);
  tn__chronicle c;
  memory_must(tn__chronicle_init(&c, trace, 0), "chronicle");
  tn__walk walk = tn__walk_begin(&c);
  do assert_true(walk.level.reserved_bytes <= 20 * MIB + 2 * MIB);
  while (tn__walk_next(&walk));
  tn__chronicle_deinit(&c);
  tn_trace_free(trace);
}

static void no_such_device(void **state) {
  (void)state;
  memory m;
  tn__chronicle c;
  memory_open(&m, NULL);
  memory_close(&m);
  assert_int_equal(tn__chronicle_init(&c, m.trace, 1), TN_EINVAL);
  tn__chronicle_deinit(&c);
  memory_must(tn__chronicle_init(&c, m.trace, 0), "an empty one");
  assert_int_equal(c.last.reserved_bytes, 0);
  tn__chronicle_deinit(&c);
  memory_end(&m);
}

static int scenario(void *user) {
  tn__chronicle c;
  int rc = tn__chronicle_init(&c, user, 0);
  tn__chronicle_deinit(&c);
  return rc;
}

static void survives_running_out_of_memory(void **state) {
  (void)state;
  uint64_t seed = 7;
  memory m;
  random_history(&m, NULL, 60, &seed);
  m.skip = 20;
  memory_close(&m);
  assert_true(tn_test_sweep(scenario, m.trace) > 8);
  memory_end(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_histories),
      cmocka_unit_test(histories_that_begin_late),
      cmocka_unit_test(under_expandable_segments),
      cmocka_unit_test(under_a_split_limit),
      cmocka_unit_test(remainders_belong_to_blocks),
      cmocka_unit_test(a_free_that_waits_is_active_and_not_allocated),
      cmocka_unit_test(a_free_asked_for_before_the_history),
      cmocka_unit_test(allocated_twice),
      cmocka_unit_test(allocated_and_gone),
      cmocka_unit_test(no_segments_at_all),
      cmocka_unit_test(segments_freed_from_nowhere),
      cmocka_unit_test(no_such_device),
      cmocka_unit_test(survives_running_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

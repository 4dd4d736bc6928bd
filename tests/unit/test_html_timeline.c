/* html_timeline: every bucket shows its highest moment whole, against a count of each moment by itself. */
#include "report/html_timeline.h"

#include "memory_run.h"

enum { STEPS = 3000, FROM = 300 };

typedef struct truth {
  uint64_t allocated, active, reserved, stack[RUN_STACKS];
} truth;

static truth truth_at(const memory_run *run, size_t moment) {
  const run_state *state = &TN_VEC(&run->states, run_state)[moment];
  truth t = {0};
  for (size_t s = 0; s < RUN_SEGMENTS; s++) t.reserved += state->is_held[s] ? RUN_SEGMENT_BYTES : 0;
  for (size_t p = 0; p < sizeof state->block; p++) {
    if (state->block[p] == RUN_FREE) continue;
    t.active += state->bytes[p];
    if (state->block[p] != RUN_ALLOCATED) continue;
    t.allocated += state->bytes[p];
    t.stack[state->stack[p]] += state->bytes[p];
  }
  return t;
}

/* What the entry after the moment gives back, when the one before it was the request. */
static uint64_t passing(const memory_run *run, size_t moment) {
  const tn_entry *entries = TN_VEC(&run->entries, tn_entry);
  if (moment == 0 || moment == run->entries.count || entries[moment].action != TN_ACTION_FREE_COMPLETED) return 0;
  int is_next = entries[moment - 1].action == TN_ACTION_FREE_REQUESTED && entries[moment - 1].addr == entries[moment].addr;
  return is_next ? entries[moment].bytes : 0;
}

static uint64_t at(const tn__timeline *timeline, int column, uint32_t bucket) { return tn__timeline_column(timeline, column)[bucket]; }

static void expect_bucket(const tn__timeline *timeline, const memory_run *run, size_t from, uint32_t entries, uint32_t bucket) {
  uint32_t first = bucket * timeline->moments, last = first + timeline->moments - 1 < entries ? first + timeline->moments - 1 : entries;
  uint64_t low = UINT64_MAX, high = 0, reserved = 0;
  for (uint32_t m = first; m <= last; m++) {
    truth t = truth_at(run, from + m);
    if (t.allocated < low) low = t.allocated;
    if (t.allocated > high) high = t.allocated;
    if (t.reserved > reserved) reserved = t.reserved;
  }
  uint32_t highest = first + (uint32_t)at(timeline, TN__COLUMN_HIGHEST, bucket);
  assert_in_range(highest, first, last);
  truth t = truth_at(run, from + highest);
  uint64_t categories = 0;
  for (int i = 0; i < TN_CATEGORY_COUNT; i++) categories += at(timeline, TN__COLUMN_CATEGORY + i, bucket);
  assert_int_equal(t.allocated, high);
  assert_int_equal(categories, high);
  assert_int_equal(at(timeline, TN__COLUMN_LOW, bucket), low);
  assert_int_equal(at(timeline, TN__COLUMN_RESERVED, bucket), reserved);
  assert_int_equal(at(timeline, TN__COLUMN_PENDING, bucket), t.active - t.allocated - (highest ? passing(run, from + highest) : 0));
  for (uint32_t i = 0; i < timeline->stack_count; i++) {
    uint64_t want = t.stack[timeline->stacks[i]], got = at(timeline, TN__COLUMN_STACK + (int)i, bucket);
    assert_true(from ? got <= want : got == want); /* who allocated before the first entry is not always known */
  }
  uint64_t time_us = TN_VEC(&run->entries, tn_entry)[from + (first < entries ? first : entries - 1)].time_us;
  assert_int_equal(at(timeline, TN__COLUMN_TIME, bucket), time_us);
}

static void buckets_of_every_size(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (uint32_t round = 0; round < 8; round++) {
    size_t from = round % 3 ? FROM : 0;
    memory_run run = run_make(seed + round, STEPS, (int)(round % 2));
    tn_trace *trace;
    tn__analysis analysis;
    tn__analysis_options options = {0};
    tn__timeline timeline;
    assert_int_equal(run_trace(&run, from, &trace), TN_OK);
    assert_int_equal(tn__analysis_init(&analysis, trace, 0, &options), TN_OK);
    uint32_t buckets_max = 1u << (2 * round % 14), entries = analysis.history.entry_count;
    assert_int_equal(tn__timeline_init(&timeline, &analysis, buckets_max), TN_OK);
    assert_true(timeline.count <= buckets_max && (uint64_t)timeline.count * timeline.moments > entries);
    assert_int_equal(timeline.stack_count, RUN_STACKS);
    assert_int_equal(timeline.time_end, TN_VEC(&run.entries, tn_entry)[run.entries.count - 1].time_us);
    for (uint32_t bucket = 0; bucket < timeline.count; bucket++) expect_bucket(&timeline, &run, from, entries, bucket);
    tn__timeline_deinit(&timeline);
    tn__analysis_deinit(&analysis);
    tn_trace_free(trace);
    run_deinit(&run);
  }
}

static int sweep(void *user) {
  tn__timeline timeline;
  int rc = tn__timeline_init(&timeline, user, 64);
  tn__timeline_deinit(&timeline);
  return rc;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  memory_run run = run_make(5, 300, 0);
  tn_trace *trace;
  tn__analysis analysis;
  tn__analysis_options options = {0};
  assert_int_equal(run_trace(&run, 20, &trace), TN_OK);
  assert_int_equal(tn__analysis_init(&analysis, trace, 0, &options), TN_OK);
  assert_true(tn_test_sweep(sweep, &analysis) >= 3);
  tn__analysis_deinit(&analysis);
  tn_trace_free(trace);
  run_deinit(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(buckets_of_every_size), cmocka_unit_test(every_allocation_may_fail)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

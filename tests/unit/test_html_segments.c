/* html_segments: which ranges were held at every moment, against what was true; and files that are built to hurt. */
#include "report/html_segments.h"

#include "memory_run.h"

enum { FROM = 150, STEPS = 1500 };

static void held_by_segment(const memory_run *run, const tn__piece *piece, int is_held, uint8_t *held) {
  for (size_t s = 0; s < RUN_SEGMENTS; s++) {
    tn_addr begin = run_segment_addr(run, s);
    if (begin >= piece->addr + piece->bytes || begin + RUN_SEGMENT_BYTES <= piece->addr) continue;
    assert_true(piece->addr <= begin && begin + RUN_SEGMENT_BYTES <= piece->addr + piece->bytes);
    assert_int_not_equal(held[s], is_held); /* never twice */
    held[s] = (uint8_t)is_held;
  }
}

static void expect_held(const uint8_t *held, const memory_run *run, size_t moment) {
  assert_memory_equal(held, TN_VEC(&run->states, run_state)[moment].is_held, RUN_SEGMENTS);
}

static void follow(const memory_run *run, size_t from) {
  tn_trace *trace;
  tn__chronicle history;
  tn__segments segments;
  assert_int_equal(run_trace(run, from, &trace), TN_OK);
  assert_int_equal(tn_trace_check(trace, NULL), TN_OK);
  assert_int_equal(tn__chronicle_init(&history, trace, 0), TN_OK);
  assert_int_equal(tn__segments_init(&segments, &history), TN_OK);
  const tn__piece *pieces = TN_VEC(&segments.pieces, tn__piece);
  const tn__segment_change *changes = TN_VEC(&segments.changes, tn__segment_change);
  uint8_t held[RUN_SEGMENTS] = {0};
  for (size_t i = 0; i < segments.before.count; i++) held_by_segment(run, &pieces[TN_VEC(&segments.before, uint32_t)[i]], 1, held);
  expect_held(held, run, from);
  size_t at = 0;
  for (uint32_t e = 0; e < history.entry_count; e++) {
    for (; at < segments.changes.count && changes[at].entry == e; at++)
      held_by_segment(run, &pieces[changes[at].piece], (int)changes[at].is_held, held);
    expect_held(held, run, from + e + 1);
  }
  assert_int_equal(at, segments.changes.count);
  assert_false(segments.is_cut);
  tn__segments_deinit(&segments);
  tn__chronicle_deinit(&history);
  tn_trace_free(trace);
}

static void segments_at_every_moment(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 12; round++) {
    memory_run run = run_make(seed + (uint64_t)round, STEPS, round % 2);
    follow(&run, round % 3 ? FROM : 0);
    run_deinit(&run);
  }
}

/* A trace of entries alone. */
static void entries_trace(const tn_entry *entries, size_t count, tn_trace **out_trace, tn__chronicle *out_history) {
  static const tn_stream stream = {0};
  static const tn_pool pool = {0, 0};
  tn_device device = {.entries_count = (uint32_t)count};
  assert_int_equal(tn_trace_new(out_trace), TN_OK);
  assert_int_equal(tn_trace_add(*out_trace, TN_TABLE_STREAM, &stream, 1), TN_OK);
  assert_int_equal(tn_trace_add(*out_trace, TN_TABLE_POOL, &pool, 1), TN_OK);
  assert_int_equal(tn_trace_add(*out_trace, TN_TABLE_ENTRY, entries, count), TN_OK);
  assert_int_equal(tn_trace_add(*out_trace, TN_TABLE_DEVICE, &device, 1), TN_OK);
  assert_int_equal(tn_trace_check(*out_trace, NULL), TN_OK);
  assert_int_equal(tn__chronicle_init(out_history, *out_trace, 0), TN_OK);
}

static tn_entry segment_entry(int action, tn_addr addr, uint64_t bytes) {
  return (tn_entry){.addr = addr, .bytes = bytes, .stack = TN_NONE, .forward = TN_NONE, .action = (uint8_t)action, .category = TN_CATEGORY_UNKNOWN};
}

/* Pages are unmapped in other cuts than they were mapped in. */
static void a_part_of_a_mapped_range_is_unmapped(void **state) {
  (void)state;
  const tn_entry entries[] = {segment_entry(TN_ACTION_SEGMENT_MAP, 1000, 300), segment_entry(TN_ACTION_SEGMENT_UNMAP, 1100, 100),
                              segment_entry(TN_ACTION_SEGMENT_MAP, 1100, 100), segment_entry(TN_ACTION_SEGMENT_UNMAP, 1000, 300)};
  tn_trace *trace;
  tn__chronicle history;
  tn__segments segments;
  entries_trace(entries, 4, &trace, &history);
  assert_int_equal(tn__segments_init(&segments, &history), TN_OK);
  assert_int_equal(segments.before.count, 0);
  assert_int_equal(segments.pieces.count, 3);
  const uint32_t want[] = {3, 1, 1, 3};
  uint32_t got[4] = {0};
  for (size_t i = 0; i < segments.changes.count; i++) got[TN_VEC(&segments.changes, tn__segment_change)[i].entry]++;
  assert_memory_equal(got, want, sizeof want);
  tn__segments_deinit(&segments);
  tn__chronicle_deinit(&history);
  tn_trace_free(trace);
}

/* Ranges nested in one another: each entry speaks of every cell of those inside it, 20000 times 20000 of them. */
static void nested_ranges_end_soon(void **state) {
  (void)state;
  enum { DEPTH = 20000 };
  tn_entry *entries = malloc(DEPTH * sizeof *entries);
  for (uint64_t i = 0; i < DEPTH; i++)
    entries[i] = segment_entry(i % 2 ? TN_ACTION_SEGMENT_UNMAP : TN_ACTION_SEGMENT_MAP, 1000 + i, 1000000 - 2 * i);
  tn_trace *trace;
  tn__chronicle history;
  tn__segments segments;
  entries_trace(entries, DEPTH, &trace, &history);
  assert_int_equal(tn__segments_init(&segments, &history), TN_OK);
  assert_true(segments.is_cut);
  assert_int_equal(segments.changes.count, 0);
  tn__segments_deinit(&segments);
  tn__chronicle_deinit(&history);
  tn_trace_free(trace);
  free(entries);
}

/* A segment twice at one address, one that ends beyond the address space, one freed that never was. */
static void contradictions_do_no_harm(void **state) {
  (void)state;
  const tn_entry entries[] = {segment_entry(TN_ACTION_SEGMENT_ALLOC, 4096, 512),          segment_entry(TN_ACTION_SEGMENT_ALLOC, 4096, 1024),
                              segment_entry(TN_ACTION_SEGMENT_FREE, 9999, 1),             segment_entry(TN_ACTION_SEGMENT_MAP, UINT64_MAX - 10, 4096),
                              segment_entry(TN_ACTION_SEGMENT_UNMAP, UINT64_MAX - 5, 99), segment_entry(TN_ACTION_SEGMENT_MAP, 7, 0)};
  tn_trace *trace;
  tn__chronicle history;
  tn__segments segments;
  entries_trace(entries, 6, &trace, &history);
  assert_int_equal(tn__segments_init(&segments, &history), TN_OK);
  int64_t held[16] = {0};
  for (size_t i = 0; i < segments.before.count; i++) held[TN_VEC(&segments.before, uint32_t)[i]]++;
  for (size_t i = 0; i < segments.changes.count; i++) {
    const tn__segment_change *change = &TN_VEC(&segments.changes, tn__segment_change)[i];
    held[change->piece] += change->is_held ? 1 : -1;
    assert_in_range(held[change->piece], 0, 1);
  }
  tn__segments_deinit(&segments);
  tn__chronicle_deinit(&history);
  tn_trace_free(trace);
}

static int sweep(void *user) {
  tn__segments segments;
  int rc = tn__segments_init(&segments, user);
  tn__segments_deinit(&segments);
  return rc;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  for (int expandable = 0; expandable < 2; expandable++) {
    memory_run run = run_make(3, 300, expandable);
    tn_trace *trace;
    tn__chronicle history;
    assert_int_equal(run_trace(&run, 40, &trace), TN_OK);
    assert_int_equal(tn__chronicle_init(&history, trace, 0), TN_OK);
    assert_true(tn_test_sweep(sweep, &history) > 3);
    tn__chronicle_deinit(&history);
    tn_trace_free(trace);
    run_deinit(&run);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(segments_at_every_moment),  cmocka_unit_test(a_part_of_a_mapped_range_is_unmapped),
      cmocka_unit_test(nested_ranges_end_soon),    cmocka_unit_test(contradictions_do_no_harm),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

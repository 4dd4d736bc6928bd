/* test_estimate.c -- peaks of small traces whose bytes can be counted by hand. */
#include "story.h"

#include "plan/estimate.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static const tn_profile cpu = {.name = "cpu", .total_bytes = UINT64_C(1) << 34};
static const tn_profile card = {.name = "card", .total_bytes = UINT64_C(1) << 33, .context_bytes = 500 * MIB};

static tn_peak peak_of(const tn_trace *trace, const tn_profile *profile, uint32_t step, uint64_t limit_bytes) {
  tn_estimate_options options = {.step = step, .limit_bytes = limit_bytes};
  tn_peak peak;
  int rc = tn_estimate(trace, profile, &options, &peak);
  if (rc) fail_msg("tn_estimate: %s", tn_error_name(rc));
  return peak;
}

static uint64_t total(const tn_peak *peak) {
  uint64_t sum = 0;
  for (int i = 0; i < TN_CATEGORY_COUNT; i++) sum += peak->by_category[i];
  return sum;
}

/* A parameter of 1000 bytes, an activation of 3 MiB that only its slot holds, a temporary of 5000 bytes in backward; in the
 * first step optimizer state of 2000 bytes is born.  Two steps. */
static story two_steps(void) {
  story s = story_begin();
  story_alloc(&s, 1000, TN_CATEGORY_PARAMETER, TN_NONE);
  for (int step = 0; step < 2; step++) {
    story_mark(&s, step ? "step:1" : "step:0");
    uint32_t activation = story_alloc(&s, 3 * MIB, TN_CATEGORY_ACTIVATION, TN_NONE);
    story_op(&s, "forward", TN_NONE, TN_PHASE_FORWARD, step);
    uint32_t slot = story_pack(&s, activation, step);
    story_drop(&s, activation);
    story_event(&s, TN_EVENT_UNPACK, slot);
    uint32_t temporary = story_alloc(&s, 5000, TN_CATEGORY_TEMPORARY, TN_NONE);
    story_op(&s, "backward", TN_NONE, TN_PHASE_BACKWARD, step);
    story_drop(&s, temporary);
    story_event(&s, TN_EVENT_RELEASE, slot);
    story_drop(&s, activation);
    if (step == 0) story_alloc(&s, 2000, TN_CATEGORY_OPTIMIZER, TN_NONE);
    story_op(&s, "optimizer", TN_NONE, TN_PHASE_OPTIMIZER, step);
  }
  story_mark(&s, "end");
  return s;
}

static void host_counts_sizes_as_they_are(void **state) {
  (void)state;
  story s = two_steps();
  tn_peak first = peak_of(s.trace, &cpu, 0, 0), steady = peak_of(s.trace, &cpu, 1, 0);
  assert_int_equal(first.allocated_bytes, 1000 + 3 * MIB + 5000);
  assert_int_equal(steady.allocated_bytes, 1000 + 2000 + 3 * MIB + 5000);
  assert_int_equal(steady.reserved_bytes, steady.allocated_bytes);
  assert_int_equal(steady.requested_bytes, steady.allocated_bytes);
  assert_int_equal(steady.device_used_bytes, steady.allocated_bytes);
  assert_int_equal(steady.persistent_bytes, 3000);
  assert_int_equal(first.persistent_bytes, 0); /* the last step was not reached */
  assert_int_equal(steady.by_category[TN_CATEGORY_ACTIVATION], 3 * MIB);
  assert_int_equal(steady.by_category[TN_CATEGORY_OPTIMIZER], 2000);
  assert_int_equal(total(&steady), steady.allocated_bytes);
  story_end(&s);
}

static void peak_is_placed(void **state) {
  (void)state;
  story s = two_steps();
  const tn_op *ops = tn_trace_table(s.trace, TN_TABLE_OP, NULL);
  const tn_event *events = tn_trace_table(s.trace, TN_TABLE_EVENT, NULL);
  tn_peak all = peak_of(s.trace, &cpu, TN_NONE, 0);
  assert_int_equal(all.step, 1);
  assert_string_equal(tn_trace_string(s.trace, ops[all.op].name), "backward");
  assert_int_equal(ops[all.op].step, 1);
  assert_int_equal(events[all.event].kind, TN_EVENT_ALLOC);
  assert_int_equal(peak_of(s.trace, &cpu, 0, 0).step, 0);
  story_end(&s);
}

/* 512-byte rounding; small blocks in a 2 MiB segment, 3 MiB out of a 20 MiB one. */
static void card_rounds_and_reserves(void **state) {
  (void)state;
  story s = two_steps();
  tn_peak steady = peak_of(s.trace, &card, 1, 0);
  assert_int_equal(steady.allocated_bytes, 1024 + 2048 + 3 * MIB + 5120);
  assert_int_equal(steady.requested_bytes, 1000 + 2000 + 3 * MIB + 5000);
  assert_int_equal(steady.reserved_bytes, 22 * MIB);
  assert_int_equal(steady.device_used_bytes, 522 * MIB);
  assert_int_equal(steady.persistent_bytes, 1024 + 2048);
  assert_int_equal(steady.oom, 0);
  assert_int_equal(total(&steady), steady.allocated_bytes);
  story_end(&s);
}

/* 19.5 MiB get a segment of 20 MiB whose last half MiB is not split off: the allocator counts 20 MiB as allocated. */
static void an_unsplit_remainder_is_allocated(void **state) {
  (void)state;
  story s = story_begin();
  story_mark(&s, "step:0");
  story_alloc(&s, 39 * (MIB / 2), TN_CATEGORY_ACTIVATION, TN_NONE);
  story_op(&s, "forward", TN_NONE, TN_PHASE_FORWARD, 0);
  story_mark(&s, "end");
  tn_peak peak = peak_of(s.trace, &card, 0, 0);
  assert_int_equal(peak.allocated_bytes, 20 * MIB);
  assert_int_equal(peak.by_category[TN_CATEGORY_ACTIVATION], 20 * MIB);
  assert_int_equal(peak.requested_bytes, 39 * (MIB / 2));
  story_end(&s);
}

static void a_limit_is_exceeded(void **state) {
  (void)state;
  story s = two_steps();
  assert_int_equal(peak_of(s.trace, &card, TN_NONE, 22 * MIB).oom, 0);
  tn_peak peak = peak_of(s.trace, &card, TN_NONE, 10 * MIB);
  assert_int_equal(peak.oom, 1);
  const tn_op *ops = tn_trace_table(s.trace, TN_TABLE_OP, NULL);
  assert_string_equal(tn_trace_string(s.trace, ops[peak.op].name), "forward"); /* where it would have failed */
  assert_int_equal(peak_of(s.trace, &cpu, TN_NONE, 3 * MIB).oom, 1);
  assert_int_equal(peak_of(s.trace, &cpu, TN_NONE, 4 * MIB).oom, 0);
  story_end(&s);
}

/* Two sizes that never live together: reserved for both, unless a limit makes the allocator give the first back. */
static void under_a_limit_the_cache_is_given_back(void **state) {
  (void)state;
  story s = story_begin();
  story_mark(&s, "step:0");
  for (int i = 0; i < 2; i++) {
    uint32_t block = story_alloc(&s, (uint64_t)(40 + 20 * i) * MIB, TN_CATEGORY_TEMPORARY, TN_NONE);
    story_op(&s, "forward", TN_NONE, TN_PHASE_FORWARD, 0);
    story_drop(&s, block);
  }
  story_mark(&s, "end");
  assert_int_equal(peak_of(s.trace, &card, TN_NONE, 0).reserved_bytes, 100 * MIB);
  tn_estimate_options options = {.step = TN_NONE, .limit_bytes = 64 * MIB};
  tn__estimate result;
  assert_int_equal(tn__estimate_run(s.trace, &card, &options, &result), TN_OK);
  assert_int_equal(result.peak.oom, 0);
  assert_int_equal(result.peak.reserved_bytes, 60 * MIB);
  assert_int_equal(result.retries, 1);
  story_end(&s);
}

/* Host blocks of a trace for a card (seeds of attention, say) take no device memory; empty tensors take none anywhere. */
static void host_and_empty_blocks_do_not_count(void **state) {
  (void)state;
  story s = story_begin();
  story_mark(&s, "step:0");
  tn_block host = {4096, TN_NONE, 0, TN_NONE, TN_CATEGORY_TEMPORARY, TN_BLOCK_HOST, 0};
  story_must(tn_trace_add(s.trace, TN_TABLE_BLOCK, &host, 1));
  story_event(&s, TN_EVENT_ALLOC, s.blocks++);
  story_alloc(&s, 0, TN_CATEGORY_TEMPORARY, TN_NONE);
  story_alloc(&s, 512, TN_CATEGORY_TEMPORARY, TN_NONE);
  story_op(&s, "forward", TN_NONE, TN_PHASE_FORWARD, 0);
  story_mark(&s, "end");
  assert_int_equal(peak_of(s.trace, &card, 0, 0).allocated_bytes, 512);
  story_end(&s);
}

/* A step in which nothing is allocated still has what was live before it. */
static void a_quiet_step_has_its_persistent_bytes(void **state) {
  (void)state;
  story s = story_begin();
  story_alloc(&s, 1024, TN_CATEGORY_PARAMETER, TN_NONE);
  story_mark(&s, "step:0");
  story_op(&s, "forward", TN_NONE, TN_PHASE_FORWARD, 0);
  story_mark(&s, "end");
  tn_peak peak = peak_of(s.trace, &card, 0, 0);
  assert_int_equal(peak.allocated_bytes, 1024);
  assert_int_equal(peak.reserved_bytes, 2 * MIB);
  assert_int_equal(peak.requested_bytes, 1024);
  assert_int_equal(peak.persistent_bytes, 1024);
  assert_int_equal(total(&peak), 1024);
  story_end(&s);
}

/* A gradient that outlives the step lies where the next one's activation would fit: only the second step needs another segment. */
static void the_last_step_is_repeated(void **state) {
  (void)state;
  story s = story_begin();
  for (int step = 0; step < 2; step++) {
    story_mark(&s, step ? "step:1" : "step:0");
    uint32_t activation = story_alloc(&s, (uint64_t)(step ? 40 : 20) * MIB, TN_CATEGORY_ACTIVATION, TN_NONE);
    story_op(&s, "forward", TN_NONE, TN_PHASE_FORWARD, step);
    story_drop(&s, activation);
    if (step) story_alloc(&s, 24 * MIB, TN_CATEGORY_GRADIENT, TN_NONE);
    story_op(&s, "backward", TN_NONE, TN_PHASE_BACKWARD, step);
  }
  story_mark(&s, "end");
  assert_int_equal(peak_of(s.trace, &card, 0, 0).reserved_bytes, 20 * MIB); /* not the step that is repeated */
  tn_peak steady = peak_of(s.trace, &card, 1, 0);
  assert_int_equal(steady.reserved_bytes, 100 * MIB); /* 60, and 40 more beside the gradient of the step before */
  assert_int_equal(steady.allocated_bytes, 40 * MIB);
  assert_int_equal(peak_of(s.trace, &card, TN_NONE, 0).reserved_bytes, 100 * MIB);
  assert_int_equal(peak_of(s.trace, &cpu, 1, 0).reserved_bytes, 40 * MIB); /* nothing is reserved on the host */
  story_end(&s);
}

static void wrong_questions_are_refused(void **state) {
  (void)state;
  story s = two_steps();
  tn_estimate_options options = {.step = 2};
  tn_peak peak = {.event = 77};
  assert_int_equal(tn_estimate(s.trace, &card, &options, &peak), TN_ENOENT);
  assert_int_equal(peak.event, 77);
  assert_int_equal(tn_estimate(NULL, &card, &options, &peak), TN_EINVAL);
  assert_int_equal(tn_estimate(s.trace, NULL, &options, &peak), TN_EINVAL);
  assert_int_equal(tn_estimate(s.trace, &card, &options, NULL), TN_EINVAL);
  assert_int_equal(tn_estimate(s.trace, &card, NULL, &peak), TN_OK); /* no options: all steps */
  assert_int_equal(tn__estimate_step_count(s.trace), 2);
  story_end(&s);
}

/* An activation of 80 MiB, then a gradient of 20; the optimizer makes 40 MiB of state while the gradient lives.  In the free 80 the
 * state lies behind the gradient, so that the next step's activation fits on neither side of it. */
static void placed_state_is_not_in_the_way(void **state) {
  (void)state;
  story s = story_begin();
  for (int step = 0; step < 2; step++) {
    story_mark(&s, step ? "step:1" : "step:0");
    uint32_t activation = story_alloc(&s, 80 * MIB, TN_CATEGORY_ACTIVATION, TN_NONE);
    story_op(&s, "forward", TN_NONE, TN_PHASE_FORWARD, step);
    story_drop(&s, activation);
    uint32_t gradient = story_alloc(&s, 20 * MIB, TN_CATEGORY_GRADIENT, TN_NONE);
    story_op(&s, "backward", TN_NONE, TN_PHASE_BACKWARD, step);
    for (int i = 0; i < 2 && step == 0; i++) story_alloc(&s, 20 * MIB, TN_CATEGORY_OPTIMIZER, TN_NONE);
    story_op(&s, "optimizer", TN_NONE, TN_PHASE_OPTIMIZER, step);
    story_drop(&s, gradient);
  }
  story_mark(&s, "end");
  for (uint32_t placed = 0; placed < 2; placed++) {
    tn_estimate_options options = {.step = TN_NONE, .expandable_segments = 1, .state_placed = placed};
    tn_peak peak;
    assert_int_equal(tn_estimate(s.trace, &card, &options, &peak), TN_OK);
    assert_int_equal(peak.allocated_bytes, 120 * MIB);
    assert_int_equal(peak.reserved_bytes, (placed ? 120 : 140) * MIB);
  }
  story_end(&s);
}

static void what_is_live_adds_up(void **state) {
  (void)state;
  story s = two_steps();
  for (uint32_t step = 0; step < 2; step++) {
    tn_peak peak = peak_of(s.trace, &card, step, 0);
    tn_estimate_options options = {.step = TN_NONE};
    uint64_t live[16] = {0}, sum = 0;
    assert_int_equal(tn__estimate_live(s.trace, &card, &options, peak.event, live), TN_OK);
    for (uint32_t i = 0; i < s.blocks; i++) sum += live[i];
    assert_int_equal(sum, peak.allocated_bytes);
    assert_int_equal(live[0], 1024);
  }
  story_end(&s);
}

/* ---- against a naive model ----------------------------------------------------------------------------------------------- */

enum { BLOCKS = 400 };

/* Random lives on the host; the naive peak is the largest sum seen after any allocation. */
static void random_lives_match_a_sum(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 50; round++) {
    story s = story_begin();
    uint64_t live[BLOCKS] = {0}, sum = 0, naive = 0;
    story_mark(&s, "step:0");
    while (s.blocks < BLOCKS) {
      uint64_t draw = tn_test_random(&seed);
      if (draw % 3 && s.blocks) {
        uint32_t block = (uint32_t)(draw >> 8) % s.blocks;
        if (!live[block]) continue;
        story_drop(&s, block);
        sum -= live[block];
        live[block] = 0;
        continue;
      }
      uint64_t bytes = 1 + (draw >> 8) % (4 * MIB);
      uint32_t block = story_alloc(&s, bytes, (int)(draw >> 40) % TN_CATEGORY_COUNT, TN_NONE);
      sum += live[block] = bytes;
      if (sum > naive) naive = sum;
    }
    story_op(&s, "last", TN_NONE, TN_PHASE_FORWARD, 0);
    story_mark(&s, "end");
    tn_peak host = peak_of(s.trace, &cpu, 0, 0), rounded = peak_of(s.trace, &card, 0, 0);
    assert_int_equal(host.allocated_bytes, naive);
    assert_int_equal(rounded.requested_bytes, naive);
    assert_true(rounded.allocated_bytes >= naive && rounded.reserved_bytes >= rounded.allocated_bytes);
    assert_int_equal(total(&rounded), rounded.allocated_bytes);
    story_end(&s);
  }
}

static int estimate_once(void *user) {
  tn_estimate_options options = {.step = 1};
  tn_peak peak;
  return tn_estimate(user, &card, &options, &peak);
}

static void survives_running_out_of_memory(void **state) {
  (void)state;
  story s = two_steps();
  assert_true(tn_test_sweep(estimate_once, s.trace) > 0);
  story_end(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(host_counts_sizes_as_they_are),
      cmocka_unit_test(peak_is_placed),
      cmocka_unit_test(card_rounds_and_reserves),
      cmocka_unit_test(an_unsplit_remainder_is_allocated),
      cmocka_unit_test(a_limit_is_exceeded),
      cmocka_unit_test(under_a_limit_the_cache_is_given_back),
      cmocka_unit_test(host_and_empty_blocks_do_not_count),
      cmocka_unit_test(a_quiet_step_has_its_persistent_bytes),
      cmocka_unit_test(the_last_step_is_repeated),
      cmocka_unit_test(wrong_questions_are_refused),
      cmocka_unit_test(placed_state_is_not_in_the_way), cmocka_unit_test(what_is_live_adds_up),
      cmocka_unit_test(random_lives_match_a_sum),
      cmocka_unit_test(survives_running_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

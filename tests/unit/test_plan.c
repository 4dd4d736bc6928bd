/* test_plan.c -- the planner on made-up networks: schedules are valid, limits hold, and the choice is close to the best of all. */
#include "plan/choose.h"
#include "rig.h"

/* layers of (wide, cheap): matmul 4 MB expensive, activation 4 MB cheap, both saved by their readers */
static net layered(int layers) {
  net n = {.count = 2 * layers};
  for (int i = 0; i < layers; i++) {
    n.ops[2 * i] = net_layer(4 * MB, 1e-3, 2 * i - 1);
    n.ops[2 * i + 1] = net_layer(4 * MB, 1e-5, 2 * i);
  }
  return n;
}

static tn_plan_result plan_for(const net *n, uint64_t limit, char **pass) {
  tn_profile profile = net_profile();
  tn_trace *trace = net_trace(n);
  tn_plan *plan = NULL;
  tn_plan_result r;
  tn_error err = {0};
  tn_plan_options options = {.limit_bytes = limit, .expandable_segments = 1};
  int rc = tn_plan_new(trace, &profile, &options, &plan, &err);
  if (rc) fail_msg("%s: %s", tn_error_name(rc), err.msg);
  tn_plan_get_result(plan, &r);
  if (pass) assert_int_equal(tn_plan_pass_json(plan, pass), TN_OK);
  tn_plan_free(plan);
  tn_trace_free(trace);
  return r;
}

static void roomy_limit_keeps_everything(void **state) {
  (void)state;
  net n = layered(6);
  tn_plan_result r = plan_for(&n, UINT64_MAX, NULL);
  assert_true(r.fits);
  assert_int_equal(r.slots_rebuilt, 0);
  assert_int_equal(r.slots, 12);
  assert_true(r.extra_s == 0);
  assert_int_equal(r.allocated_bytes, r.kept_bytes);
}

static void cheap_ops_go_first(void **state) {
  (void)state;
  net n = layered(6);
  tn_plan_result all = plan_for(&n, UINT64_MAX, NULL);
  /* Two activations less: two cheap ops of 10 us, no matmul of 1 ms.  Segments are whole 20 MiB, so only allocated is asked for. */
  tn_profile profile = net_profile();
  tn_trace *trace = net_trace(&n);
  tn__graph g;
  tn__schedule s;
  tn__simulate sim;
  tn__choice c;
  assert_int_equal(tn__graph_init(&g, trace, &profile, 0, NULL), TN_OK);
  assert_int_equal(tn__schedule_init(&s, &g), TN_OK);
  assert_int_equal(tn__simulate_init(&sim, &g), TN_OK);
  assert_int_equal(tn__choose(&s, &sim, all.kept_bytes - 8 * MB, NULL, &c), TN_OK);
  assert_true(c.fits);
  print_message("%g s, bound %g s, peak %llu of %llu\n", c.seconds, c.lower_bound_s, (unsigned long long)c.peak_bytes, (unsigned long long)all.kept_bytes);
  assert_true(c.seconds < 3.5e-5);
  assert_true(c.lower_bound_s <= c.seconds);
  tn__simulate_deinit(&sim);
  tn__schedule_deinit(&s);
  tn__graph_deinit(&g);
  tn_trace_free(trace);
}

static void impossible_limit_says_the_smallest(void **state) {
  (void)state;
  net n = layered(6);
  tn_plan_result r = plan_for(&n, MB, NULL);
  assert_false(r.fits);
  assert_true(r.smallest_bytes > MB && r.smallest_bytes < r.kept_bytes);
}

static void second_pass_follows_the_first(void **state) {
  (void)state;
  net n = layered(4);
  n.passes = 2;
  char *pass = NULL;
  tn_plan_result r = plan_for(&n, 64 * MB, &pass);
  assert_int_equal(r.passes, 2);
  assert_int_equal(r.slots, 8);
  tn_text_free(pass);
}

/* ---- against the best of all subsets ------------------------------------------------------------------------------------- */

typedef struct brute { double seconds; uint64_t smallest; int fits; } brute;

static brute best_of_all(tn__schedule *s, tn__simulate *sim, const uint32_t *items, size_t count, uint64_t limit) {
  brute best = {.seconds = 1e9, .smallest = UINT64_MAX};
  for (uint32_t set = 0; set < 1u << count; set++) {
    for (size_t i = 0; i < count; i++) s->dropped[items[i]] = set >> i & 1;
    tn__schedule_build(s);
    tn__simulate_run(sim, s, NULL);
    if (sim->peak_bytes < best.smallest) best.smallest = sim->peak_bytes;
    if (sim->peak_bytes > limit) continue;
    best.fits = 1;
    if (s->seconds < best.seconds) best.seconds = s->seconds;
  }
  for (size_t i = 0; i < count; i++) s->dropped[items[i]] = 0;
  return best;
}

static void close_to_the_best_of_all(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  int cases = 0, missed = 0, exact = 0;
  double ours = 0, theirs = 0;
  for (int round = 0; round < 200; round++) {
    net n = net_random(&seed, 6, round % 2);
    tn_profile profile = net_profile();
    tn_trace *trace = net_trace(&n);
    tn__graph g;
    tn__schedule s;
    tn__simulate sim;
    tn__choice c;
    uint32_t items[32];
    size_t count = 0;
    assert_int_equal(tn__graph_init(&g, trace, &profile, 0, NULL), TN_OK);
    assert_int_equal(tn__schedule_init(&s, &g), TN_OK);
    assert_int_equal(tn__simulate_init(&sim, &g), TN_OK);
    for (uint32_t b = 0; b < g.block_count; b++)
      if (g.block[b].is_item) items[count++] = b;
    tn__schedule_build(&s);
    tn__simulate_run(&sim, &s, NULL);
    uint64_t kept = sim.peak_bytes, smallest = best_of_all(&s, &sim, items, count, 0).smallest;
    uint64_t limit = smallest + (kept - smallest) * (tn_test_random(&seed) % 100) / 100;
    brute best = best_of_all(&s, &sim, items, count, limit);
    assert_true(best.fits);
    assert_int_equal(tn__choose(&s, &sim, limit, NULL, &c), TN_OK);
    if (kept > smallest) {
      cases++;
      missed += !c.fits;
      exact += c.fits && c.seconds <= best.seconds * 1.000001;
      if (c.fits) {
        ours += c.seconds;
        theirs += best.seconds;
        assert_true(c.peak_bytes <= limit);
        assert_true(c.lower_bound_s <= best.seconds + 1e-12); /* a bound above the true best would be a lie */
        assert_true(c.seconds >= best.seconds - 1e-12);
      }
    }
    tn__simulate_deinit(&sim);
    tn__schedule_deinit(&s);
    tn__graph_deinit(&g);
    tn_trace_free(trace);
  }
  print_message("%d cases: %d exact, %d missed, %.1f %% over the best\n", cases, exact, missed, 100 * (ours / theirs - 1));
  assert_true(missed * 20 <= cases);
  assert_true(ours <= 1.1 * theirs);
}

/* A limit just above the smallest peak was missed: prices started too low to find it. */
static void the_smallest_can_be_planned(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 100; round++) {
    net n = net_random(&seed, 12, 1);
    rig r;
    tn__choice smallest, again;
    rig_open(&r, &n);
    net_must(tn__choose(&r.schedule, &r.simulate, 0, NULL, &smallest));
    assert_false(smallest.fits);
    net_must(tn__choose(&r.schedule, &r.simulate, smallest.smallest_bytes, NULL, &again));
    assert_true(again.fits);
    assert_true(again.lower_bound_s <= again.seconds + 1e-12);
    rig_close(&r);
  }
}

/* What was found near a choice under the same limit is that choice. */
static void near_choice_is_the_choice(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  int fits = 0;
  for (int round = 0; round < 100; round++) {
    net n = net_random(&seed, 8, 1);
    rig r;
    tn__choice smallest, choice, near;
    rig_open(&r, &n);
    uint64_t kept = rig_run(&r);
    net_must(tn__choose(&r.schedule, &r.simulate, 0, NULL, &smallest));
    uint64_t limit = smallest.smallest_bytes + (kept - smallest.smallest_bytes) / 2;
    net_must(tn__choose(&r.schedule, &r.simulate, limit, NULL, &choice));
    net_must(tn__choose(&r.schedule, &r.simulate, limit, &choice, &near));
    fits += choice.fits;
    assert_int_equal(near.fits, choice.fits);
    assert_true(near.seconds == choice.seconds);
    rig_close(&r);
  }
  assert_true(fits > 80);
}

/* Reserved within the limit, whichever way room was made for what the allocator wastes, and allocated as it is, without that room. */
static void plans_stay_within_the_limit(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  int fits = 0, wasted = 0;
  for (int round = 0; round < 200; round++) {
    net n = net_random(&seed, 12, 1);
    for (int i = 0; i < n.count; i++) n.ops[i].bytes *= 1 + tn_test_random(&seed) % 16;
    tn_plan_result kept = plan_for(&n, UINT64_MAX, NULL);
    uint64_t smallest = plan_for(&n, 1, NULL).smallest_bytes;
    uint64_t limit = smallest + (kept.reserved_bytes - smallest) * (tn_test_random(&seed) % 100) / 100;
    tn_plan_result r = plan_for(&n, limit, NULL);
    assert_true(r.allocated_bytes <= kept.kept_bytes);
    if (!r.fits) continue;
    fits++;
    wasted += r.allocated_bytes + (limit >> 4) < limit;
    assert_true(r.allocated_bytes <= r.reserved_bytes);
    assert_true(r.limit_needed_bytes <= limit);
    assert_true(r.reserved_bytes <= limit + 20 * MB); /* the limit is tested before a segment grows to whole pages */
    assert_true(r.lower_bound_s <= r.extra_s + 1e-9);
  }
  print_message("%d of 200 fit, %d of them a sixteenth below the limit\n", fits, wasted);
  assert_true(fits > 50 && wasted > 10);
}

static int make_plan(void *user) {
  tn_profile profile = net_profile();
  tn_plan *plan = NULL;
  char *text = NULL;
  tn_trace *trace = user;
  tn_plan_options options = {.limit_bytes = 60 * MB, .expandable_segments = 1};
  int rc = tn_plan_new(trace, &profile, &options, &plan, NULL);
  if (rc == TN_OK) rc = tn_plan_pass_json(plan, &text);
  tn_text_free(text);
  tn_plan_free(plan);
  return rc;
}

static void out_of_memory(void **state) {
  (void)state;
  net n = layered(3);
  tn_trace *trace = net_trace(&n);
  assert_true(tn_test_sweep(make_plan, trace) > 20);
  tn_trace_free(trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(roomy_limit_keeps_everything),   cmocka_unit_test(cheap_ops_go_first),
      cmocka_unit_test(impossible_limit_says_the_smallest), cmocka_unit_test(second_pass_follows_the_first),
      cmocka_unit_test(close_to_the_best_of_all),       cmocka_unit_test(the_smallest_can_be_planned),
      cmocka_unit_test(near_choice_is_the_choice),      cmocka_unit_test(plans_stay_within_the_limit),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}

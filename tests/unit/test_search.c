/* test_search.c -- the sequence of captures that the outer loop asks for, and which plan it takes. */
#include "rig.h"

/* A network whose blocks and times are a share of the batch, with a fixed time for each op; two passes when the batch is cut. */
static net network(uint32_t micro_batch, uint32_t batch, int bf16) {
  double share = (double)micro_batch / batch / (bf16 ? 2 : 1);
  net n = {.count = 8, .passes = micro_batch < batch ? 2 : 1};
  for (int i = 0; i < n.count; i++) n.ops[i] = net_layer((uint64_t)(32.0 * share * MB), 1e-3 * share + 5e-5, i ? i - 1 : NET_BATCH);
  return n;
}

typedef struct asked { char text[256]; tn_search_best best; int rc; } asked;

/* Runs a search to its end; the micro-batches asked for as text: "8 8b 4b" (b: bf16). */
static asked ask(uint32_t batch, uint64_t budget, uint32_t levers, const char *device) {
  tn_profile profile = net_profile();
  tn_search_options options = {.budget_bytes = budget, .batch = batch, .levers = levers};
  tn_search *search = NULL;
  tn_candidate c;
  asked a = {.text = ""};
  strcpy(profile.name, device);
  net_must(tn_search_new(&profile, &options, &search));
  while (tn_search_next(search, &c)) {
    assert_int_equal(c.micro_batch * c.count + c.rest, batch);
    assert_true(c.rest < c.micro_batch);
    sprintf(a.text + strlen(a.text), "%s%u%s", *a.text ? " " : "", c.micro_batch, c.bf16 ? "b" : "");
    net n = network(c.micro_batch, batch, (int)c.bf16);
    tn_trace *trace = net_trace(&n);
    net_must(tn_search_offer(search, trace, NULL));
    tn_trace_free(trace);
  }
  assert_int_equal(tn_search_next(search, &c), 0); /* over is over */
  a.rc = tn_search_get_best(search, &a.best);
  tn_search_free(search);
  return a;
}

enum { REBUILD = TN_LEVER_REBUILD, CUT = TN_LEVER_MICRO_BATCH, PRECISION = TN_LEVER_PRECISION, ALLOCATOR = TN_LEVER_ALLOCATOR };
#define ROOMY ((uint64_t)1 << 36)

static void what_fits_is_left_alone(void **state) {
  (void)state;
  asked a = ask(16, ROOMY, REBUILD | CUT | ALLOCATOR, "h200");
  assert_string_equal(a.text, "16");
  assert_true(a.best.fits);
  assert_int_equal(a.best.result.slots_rebuilt, 0);
  assert_true(a.best.step_s == a.best.unconstrained_step_s);
  assert_int_equal(a.best.unconstrained_allocated_bytes, a.best.result.kept_bytes);
  assert_int_equal(a.best.expandable_segments, 1);
}

static void the_allocator_setting_is_a_lever_of_cards(void **state) {
  (void)state;
  assert_int_equal(ask(16, ROOMY, REBUILD | CUT, "h200").best.expandable_segments, 0);
  assert_int_equal(ask(16, ROOMY, REBUILD | CUT | ALLOCATOR, "cpu").best.expandable_segments, 0);
}

/* Nothing but the lever that is allowed. */
static void without_cutting_one_capture_is_all(void **state) {
  (void)state;
  asked a = ask(16, 200 * MB, REBUILD, "cpu");
  assert_string_equal(a.text, "16");
  assert_true(a.best.fits && a.best.result.slots_rebuilt > 0);
  assert_true(a.best.step_s > a.best.unconstrained_step_s);
  assert_int_equal(a.best.candidate.count, 1);
}

static void without_rebuilding_it_cuts_until_it_fits(void **state) {
  (void)state;
  asked a = ask(16, 150 * MB, CUT, "cpu");
  assert_true(a.best.fits);
  assert_int_equal(a.best.result.slots_rebuilt, 0);
  assert_true(a.best.candidate.count > 1);
  assert_true(a.best.result.allocated_bytes <= 150 * MB);
}

/* Both levers: it cuts further while that pays; a candidate that fits with nothing rebuilt is the last, since smaller ones only cost. */
static void cutting_stops_when_it_does_not_pay(void **state) {
  (void)state;
  asked a = ask(64, 250 * MB, REBUILD | CUT, "cpu");
  assert_string_equal(a.text, "64 32");
  assert_int_equal(a.best.candidate.micro_batch, 64); /* rebuilding a little costs less than eight more launches */
  a = ask(64, 60 * MB, REBUILD | CUT, "cpu");
  assert_string_equal(a.text, "64 32 22 16 11");
  assert_int_equal(a.best.candidate.micro_batch, 16);
  assert_true(a.best.fits);
}

/* The smallest plan of the whole batch is many times over the budget: captures in between would tell nothing. */
static void far_over_the_budget_it_jumps(void **state) {
  (void)state;
  asked a = ask(256, 8 * MB, REBUILD | CUT, "cpu");
  int first = 0, second = 0;
  assert_int_equal(sscanf(a.text, "%d %d", &first, &second), 2);
  assert_int_equal(first, 256);
  assert_true(second <= 256 / 8);
  assert_true(a.best.fits);
}

/* Down to single samples, then no further. */
static void what_never_fits_ends_at_one_sample(void **state) {
  (void)state;
  asked a = ask(6, MB, REBUILD | CUT, "cpu");
  assert_int_equal(a.text[strlen(a.text) - 1], '1');
  assert_false(a.best.fits);
  assert_int_equal(a.best.candidate.micro_batch, 1); /* the smallest found */
  assert_true(a.best.result.smallest_bytes > MB);
  assert_string_equal(ask(1, MB, REBUILD | CUT, "cpu").text, "1");
}

static void a_budget_below_the_context_is_no_more_than_infeasible(void **state) {
  (void)state;
  tn_profile profile = net_profile();
  profile.context_bytes = 500 * MB;
  tn_search_options options = {.budget_bytes = 400 * MB, .batch = 4, .levers = REBUILD};
  tn_search *search = NULL;
  tn_search_best best;
  tn_candidate c;
  net n = network(4, 4, 0);
  tn_trace *trace = net_trace(&n);
  net_must(tn_search_new(&profile, &options, &search));
  assert_int_equal(tn_search_next(search, &c), 1);
  net_must(tn_search_offer(search, trace, NULL));
  net_must(tn_search_get_best(search, &best));
  assert_false(best.fits);
  assert_int_equal(best.limit_bytes, 0);
  tn_search_free(search);
  tn_trace_free(trace);
}

/* The whole batch as it is, then in bf16, then cut in bf16 only. */
static void precision_comes_before_cutting(void **state) {
  (void)state;
  asked a = ask(16, 60 * MB, REBUILD | CUT | PRECISION, "cpu");
  assert_int_equal(strncmp(a.text, "16 16b 8b", 9), 0);
  assert_true(a.best.fits && a.best.candidate.bf16);
  assert_string_equal(ask(16, 60 * MB, REBUILD | PRECISION, "cpu").text, "16 16b");
}

static void a_batch_that_is_no_multiple_leaves_a_rest(void **state) {
  (void)state;
  asked a = ask(7, 60 * MB, CUT, "cpu"); /* ask() checks that all samples are there */
  assert_true(a.best.fits);
  assert_int_equal(a.best.candidate.micro_batch * a.best.candidate.count + a.best.candidate.rest, 7);
  tn_profile profile = net_profile();
  tn_search_options options = {.budget_bytes = MB, .batch = 7, .levers = CUT};
  tn_search *search = NULL;
  tn_candidate c;
  net n = network(7, 7, 0);
  tn_trace *trace = net_trace(&n);
  net_must(tn_search_new(&profile, &options, &search));
  assert_int_equal(tn_search_next(search, &c), 1);
  net_must(tn_search_offer(search, trace, NULL));
  assert_int_equal(tn_search_next(search, &c), 1);
  assert_true(c.micro_batch < 7);
  assert_int_equal(c.count, 7 / c.micro_batch);
  assert_int_equal(c.rest, 7 % c.micro_batch);
  tn_search_free(search);
  tn_trace_free(trace);
}

/* A step takes the longer of the card's and the host's time; ops run again add to both, in every pass. */
static void host_time_counts_when_it_is_the_longer(void **state) {
  (void)state;
  tn_profile profile = net_profile();
  strcpy(profile.name, "cpu");
  profile.host_op_s = 1e-2;
  profile.host_rebuild_s = 1;
  tn_search_options options = {.budget_bytes = 200 * MB, .batch = 4, .levers = REBUILD};
  tn_search *search = NULL;
  tn_search_best best;
  tn_candidate c;
  net n = network(4, 4, 0);
  tn_trace *trace = net_trace(&n);
  net_must(tn_search_new(&profile, &options, &search));
  assert_int_equal(tn_search_next(search, &c), 1);
  net_must(tn_search_offer(search, trace, NULL));
  net_must(tn_search_get_best(search, &best));
  assert_true(best.fits && best.result.ops_run > 0);
  double kept = 8 * 1e-2 + 8 * 0.6e-2; /* backward is dispatched from C++ */
  assert_double_near(best.result.kept_last_pass.host_s, kept, 1e-9);
  assert_true(best.unconstrained_step_s >= kept && best.unconstrained_step_s < kept + 1e-2); /* the last op's device work follows */
  double hooks = 2 * best.result.slots * 0.15e-2;
  assert_double_near(best.result.last_pass.host_s, kept + hooks + best.result.ops_run, 1e-9);
  assert_true(best.step_s >= best.result.last_pass.host_s && best.step_s < best.result.last_pass.host_s + 1e-2);
  tn_search_free(search);
  tn_trace_free(trace);
}

static void wrong_turns_are_refused(void **state) {
  (void)state;
  tn_profile profile = net_profile();
  tn_search_options options = {.budget_bytes = ROOMY, .batch = 0};
  tn_search *search = NULL;
  tn_search_best best;
  tn_error err = {0};
  char *pass = NULL, *rebuilt = NULL;
  assert_int_equal(tn_search_new(&profile, &options, &search), TN_EINVAL);
  options.batch = 2;
  net_must(tn_search_new(&profile, &options, &search));
  assert_int_equal(tn_search_offer(search, NULL, &err), TN_EINVAL);
  assert_string_equal(err.msg, "no candidate is awaited");
  assert_int_equal(tn_search_get_best(search, &best), TN_ENOENT);
  assert_int_equal(tn_search_best_json(search, &pass, &rebuilt), TN_ENOENT);
  tn_search_free(search);
  tn_search_free(NULL);
}

static int search_once(void *trace) {
  tn_profile profile = net_profile();
  tn_search_options options = {.budget_bytes = 200 * MB, .batch = 4, .levers = REBUILD};
  tn_search *search = NULL;
  char *pass = NULL, *rebuilt = NULL;
  tn_candidate c;
  int rc = tn_search_new(&profile, &options, &search);
  if (rc == TN_OK) rc = tn_search_next(search, &c) ? TN_OK : TN_EINVAL;
  if (rc == TN_OK) rc = tn_search_offer(search, trace, NULL);
  if (rc == TN_OK) rc = tn_search_best_json(search, &pass, &rebuilt);
  tn_text_free(pass);
  tn_text_free(rebuilt);
  tn_search_free(search);
  return rc;
}

static void out_of_memory(void **state) {
  (void)state;
  net n = network(4, 4, 0);
  tn_trace *trace = net_trace(&n);
  assert_true(tn_test_sweep(search_once, trace) > 40);
  tn_trace_free(trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_fits_is_left_alone),
      cmocka_unit_test(the_allocator_setting_is_a_lever_of_cards),
      cmocka_unit_test(without_cutting_one_capture_is_all),
      cmocka_unit_test(without_rebuilding_it_cuts_until_it_fits),
      cmocka_unit_test(cutting_stops_when_it_does_not_pay),
      cmocka_unit_test(far_over_the_budget_it_jumps),
      cmocka_unit_test(what_never_fits_ends_at_one_sample),
      cmocka_unit_test(a_budget_below_the_context_is_no_more_than_infeasible),
      cmocka_unit_test(precision_comes_before_cutting),
      cmocka_unit_test(a_batch_that_is_no_multiple_leaves_a_rest),
      cmocka_unit_test(host_time_counts_when_it_is_the_longer),
      cmocka_unit_test(wrong_turns_are_refused),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}

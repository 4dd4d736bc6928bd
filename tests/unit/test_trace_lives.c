/* test_trace_lives.c -- events into lives. */
#include "trace/lives.h"
#include "trace_example.h"

typedef struct recorder {
  char text[256]; /* "+2@4 " = block 2 taken at event 4, "-" = given back */
  int stop_after;
} recorder;

static int record(void *user, tn__life_event life) {
  recorder *r = user;
  size_t len = strlen(r->text);
  (void)snprintf(r->text + len, sizeof r->text - len, "%c%u@%u ", life.is_alloc ? '+' : '-', life.block, life.event);
  return --r->stop_after == 0 ? 42 : 0;
}

static int drops_2(void *user, uint32_t block) {
  (void)user;
  return block == 2;
}

static int drops_all(void *user, uint32_t block) {
  (void)user;
  (void)block;
  return 1;
}

static void expect_lives(tn__is_dropped *is_dropped, const char *text) {
  tn_trace *trace;
  example e = example_make();
  recorder r = {.text = ""};
  assert_int_equal(example_new(&e, &trace), TN_OK);
  assert_int_equal(tn__lives(trace, is_dropped, record, &r), TN_OK);
  assert_string_equal(r.text, text);
  tn_trace_free(trace);
}

/* Block 1 (the batch) is dropped at event 6 but slot 0 holds it to event 22; block 2 lives until its second DROP at 17. */
static void test_slots_hold(void **state) {
  (void)state;
  expect_lives(NULL, "+0@0 +1@1 +2@4 +3@8 -3@12 +4@14 -2@17 -1@22 ");
}

static void test_dropped_block_has_two_lives(void **state) {
  (void)state;
  expect_lives(drops_2, "+0@0 +1@1 +2@4 +3@8 -2@10 -3@12 +2@13 +4@14 -2@17 -1@22 ");
}

/* Asked for twice (retain_graph): block 1 is revived by each UNPACK. */
static void test_all_dropped(void **state) {
  (void)state;
  expect_lives(drops_all, "+0@0 +1@1 +2@4 -1@6 +3@8 -2@10 -3@12 +2@13 +4@14 -2@17 +1@18 -1@19 +1@20 -1@21 ");
}

static void test_visitor_stops(void **state) {
  (void)state;
  tn_trace *trace;
  example e = example_make();
  recorder r = {.text = "", .stop_after = 2};
  assert_int_equal(example_new(&e, &trace), TN_OK);
  assert_int_equal(tn__lives(trace, NULL, record, &r), 42);
  assert_string_equal(r.text, "+0@0 +1@1 ");
  tn_trace_free(trace);
}

static int walk(void *user) {
  recorder r = {.text = ""};
  return tn__lives(user, NULL, record, &r);
}

static void test_out_of_memory(void **state) {
  (void)state;
  tn_trace *trace;
  example e = example_make();
  assert_int_equal(example_new(&e, &trace), TN_OK);
  assert_int_equal(tn_test_sweep(walk, trace), 1);
  tn_trace_free(trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_slots_hold),    cmocka_unit_test(test_dropped_block_has_two_lives),
      cmocka_unit_test(test_all_dropped),   cmocka_unit_test(test_visitor_stops),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

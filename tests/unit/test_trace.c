/* test_trace.c -- the tables, and what tn_trace_check() refuses. */
#include <math.h>

#include "trace_example.h"

static void test_strings(void **state) {
  (void)state;
  tn_trace *trace;
  uint32_t a, b, again;
  assert_int_equal(tn_trace_new(&trace), TN_OK);
  assert_int_equal(tn_trace_string_count(trace), 1);
  assert_string_equal(tn_trace_string(trace, 0), "");
  assert_int_equal(tn_trace_add_string(trace, "a", &a), TN_OK);
  assert_int_equal(tn_trace_add_string(trace, "b", &b), TN_OK);
  assert_int_equal(tn_trace_add_string(trace, "a", &again), TN_OK);
  assert_int_equal(a, 1);
  assert_int_equal(b, 2);
  assert_int_equal(again, a);
  /* Bulk ids are dense, duplicates included. */
  assert_int_equal(tn_trace_add_strings(trace, "a\0\0c", 5, 3), TN_OK);
  assert_int_equal(tn_trace_string_count(trace), 6);
  assert_string_equal(tn_trace_string(trace, 3), "a");
  assert_string_equal(tn_trace_string(trace, 4), "");
  assert_string_equal(tn_trace_string(trace, 5), "c");
  assert_string_equal(tn_trace_string(trace, TN_NONE), "");
  tn_trace_free(trace);
  tn_trace_free(NULL);
}

/* Texts that do not match their count or their end are the caller's mistake, not a read past the end. */
static void test_strings_of_wrong_length(void **state) {
  (void)state;
  tn_trace *trace;
  assert_int_equal(tn_trace_new(&trace), TN_OK);
  assert_int_equal(tn_trace_add_strings(trace, "ab", 2, 1), TN_EINVAL);
  assert_int_equal(tn_trace_add_strings(trace, "ab\0", 3, 2), TN_EINVAL);
  assert_int_equal(tn_trace_add_strings(trace, "ab\0c", 5, 1), TN_EINVAL);
  assert_int_equal(tn_trace_add_strings(trace, "", 0, 0), TN_OK);
  tn_trace_free(trace);
}

static void test_tables(void **state) {
  (void)state;
  tn_trace *trace;
  size_t count = 7;
  tn_block two[2] = {{.bytes = 1}, {.bytes = 2}};
  assert_int_equal(tn_trace_new(&trace), TN_OK);
  (void)tn_trace_table(trace, TN_TABLE_BLOCK, &count);
  assert_int_equal(count, 0);
  assert_int_equal(tn_trace_add(trace, TN_TABLE_BLOCK, two, 2), TN_OK);
  assert_int_equal(tn_trace_add(trace, TN_TABLE_BLOCK, two, 1), TN_OK);
  const tn_block *blocks = tn_trace_table(trace, TN_TABLE_BLOCK, &count);
  assert_int_equal(count, 3);
  assert_int_equal(blocks[1].bytes, 2);
  assert_int_equal(blocks[2].bytes, 1);
  assert_int_equal(tn_trace_add(trace, TN_TABLE_COUNT, two, 1), TN_EINVAL);
  assert_int_equal(tn_trace_add(trace, TN_TABLE_BLOCK, two, TN_NONE), TN_EINVAL);
  assert_null(tn_trace_table(trace, TN_TABLE_COUNT, NULL));
  tn_trace_free(trace);
}

static void test_meta(void **state) {
  (void)state;
  tn_trace *trace;
  assert_int_equal(tn_trace_new(&trace), TN_OK);
  assert_null(tn_trace_meta(trace, "device"));
  assert_int_equal(tn_trace_set_meta(trace, "device", "h100"), TN_OK);
  assert_int_equal(tn_trace_set_meta(trace, "device", "h200"), TN_OK);
  assert_string_equal(tn_trace_meta(trace, "device"), "h200");
  tn_trace_free(trace);
}

static void test_names(void **state) {
  (void)state;
  assert_string_equal(tn_category_name(TN_CATEGORY_ACTIVATION), "activation");
  assert_string_equal(tn_category_name(TN_CATEGORY_COUNT), "?");
  assert_string_equal(tn_category_name(-1), "?");
  assert_string_equal(tn_phase_name(TN_PHASE_BACKWARD), "backward");
  assert_string_equal(tn_phase_name(99), "?");
}

static void test_check_accepts(void **state) {
  (void)state;
  tn_trace *trace;
  tn_error err = {0};
  assert_int_equal(tn_trace_new(&trace), TN_OK);
  assert_int_equal(tn_trace_check(trace, &err), TN_OK); /* empty */
  example e = example_make();
  assert_int_equal(example_add(trace, &e), TN_OK);
  if (tn_trace_check(trace, &err)) fail_msg("%s", err.msg);
  tn_trace_free(trace);
}

static void expect_refused(const example *e, const char *message) {
  tn_trace *trace;
  tn_error err = {0};
  assert_int_equal(example_new(e, &trace), TN_OK);
  int rc = tn_trace_check(trace, &err);
  tn_trace_free(trace);
  assert_int_equal(rc, TN_EFORMAT);
  assert_int_equal(err.code, TN_EFORMAT);
  assert_string_equal(err.msg, message);
}

/* The example with one thing bent. */
#define REFUSED(message, ...)     \
  do {                            \
    example e = example_make();   \
    __VA_ARGS__;                  \
    expect_refused(&e, message);  \
  } while (0)

static void test_check_fields(void **state) {
  (void)state;
  REFUSED("module 1: name is out of range", e.modules[1].name = S_COUNT);
  REFUSED("module 1: name is out of range", e.modules[1].name = TN_NONE);
  REFUSED("module 1: parent is out of range", e.modules[1].parent = EXAMPLE_MODULES);
  REFUSED("op 2: module is out of range", e.ops[2].module = EXAMPLE_MODULES);
  REFUSED("op 0: phase is out of range", e.ops[0].phase = TN_PHASE_COUNT);
  REFUSED("op 0: rate is out of range", e.ops[0].rate = TN_RATE_COUNT);
  REFUSED("op 3: flops is out of range", e.ops[3].flops = (double)NAN);
  REFUSED("op 3: seconds is out of range", e.ops[3].seconds = -(double)INFINITY);
  REFUSED("ref 4: value is out of range", e.refs[4] = EXAMPLE_VALUES);
  REFUSED("block 2: category is out of range", e.blocks[2].category = TN_CATEGORY_COUNT);
  REFUSED("block 2: op is out of range", e.blocks[2].op = EXAMPLE_OPS);
  REFUSED("value 5: block is out of range", e.values[5].block = EXAMPLE_BLOCKS);
  REFUSED("value 5: block is out of range", e.values[5].block = TN_NONE);
  REFUSED("value 5: op is out of range", e.values[5].op = EXAMPLE_OPS);
  REFUSED("slot 0: value is out of range", e.slots[0].value = EXAMPLE_VALUES);
  REFUSED("slot 0: signature is out of range", e.slots[0].signature = S_COUNT);
}

static void test_check_records(void **state) {
  (void)state;
  REFUSED("module 0: is its own ancestor", e.modules[0].parent = 1);
  REFUSED("module 1: is its own ancestor", e.modules[1].parent = 1);
  REFUSED("op 1: inputs are out of range", e.ops[1].inputs_count = EXAMPLE_REFS);
  /* 32-bit sums would wrap to something small here. */
  REFUSED("op 1: inputs are out of range", e.ops[1].inputs_at = UINT32_MAX, e.ops[1].inputs_count = 2);
  REFUSED("op 3: outputs are out of range", e.ops[3].outputs_at = 9);
  REFUSED("op 3: shares its inputs or outputs with another op", e.ops[0].inputs_count = 3);
  REFUSED("op 0: an input is no value", e.refs[1] = TN_NONE);
  REFUSED("op 0: work is negative", e.ops[0].flops = -1);
  REFUSED("block 1: sizes add up to more than any memory", e.blocks[1].bytes = UINT64_MAX);
  REFUSED("block 1: sizes add up to more than any memory", e.blocks[0].bytes = e.blocks[1].bytes = (uint64_t)3 << 60);
  REFUSED("value 5: is not that output of its op", e.values[5].output = 1);
  REFUSED("value 5: is not that output of its op", e.values[5].output = 2);
  REFUSED("slot 1: lies in another block than its value", e.slots[1].block = 3);
  REFUSED("slot 1: index does not follow that of the slot before it", e.slots[1].index = 0);
  REFUSED("slot 1: index does not follow that of the slot before it", e.slots[1].pass = 1);
}

static void test_check_events(void **state) {
  (void)state;
  REFUSED("event 0: unknown kind", e.events[0].kind = 0);
  REFUSED("event 0: unknown kind", e.events[0].kind = TN_EVENT_KIND_END);
  REFUSED("event 0: id is out of range", e.events[0].id = EXAMPLE_BLOCKS);
  REFUSED("event 3: id is out of range", e.events[3].id = EXAMPLE_SLOTS);
  REFUSED("event 2: id is out of range", e.events[2].id = S_COUNT);
  REFUSED("event 5: id is out of range", e.events[5].id = EXAMPLE_OPS);
  REFUSED("event 1: second ALLOC of a block", e.events[1].id = 0);
  REFUSED("event 14: second ALLOC of a block", e.events[14].id = 3);
  REFUSED("event 4: DROP of a block without a reference", e.events[4].kind = TN_EVENT_DROP);
  REFUSED("event 12: DROP of a block without a reference", e.events[12].id = 2);
  REFUSED("event 7: second PACK of a slot", e.events[7].id = 0);
  REFUSED("event 1: PACK of a slot whose block is not live", e.events[1] = (tn_event){TN_EVENT_PACK, 1});
  REFUSED("event 3: UNPACK of a slot that is not held", e.events[3].kind = TN_EVENT_UNPACK);
  REFUSED("event 3: RELEASE of a slot that is not held", e.events[3].kind = TN_EVENT_RELEASE);
  REFUSED("event 22: RELEASE of a slot that is not held", e.events[22].id = 1);
  REFUSED("event 18: UNPACK of a slot that is not held", e.events[18].id = 1);
  REFUSED("event 9: second run of an op", e.events[9].id = 0);
}

static int build_and_check(void *user) {
  (void)user;
  tn_trace *trace;
  example e = example_make();
  int rc = example_new(&e, &trace);
  if (rc) return rc;
  rc = tn_trace_set_meta(trace, "device", "h100");
  if (!rc) rc = tn_trace_check(trace, NULL);
  tn_trace_free(trace);
  return rc;
}

static void test_out_of_memory(void **state) {
  (void)state;
  assert_true(tn_test_sweep(build_and_check, NULL) > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_strings),       cmocka_unit_test(test_strings_of_wrong_length),
      cmocka_unit_test(test_tables),        cmocka_unit_test(test_meta),
      cmocka_unit_test(test_names),         cmocka_unit_test(test_check_accepts),
      cmocka_unit_test(test_check_fields),  cmocka_unit_test(test_check_records),
      cmocka_unit_test(test_check_events),  cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

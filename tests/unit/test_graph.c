/* test_graph.c -- which blocks may be dropped, and what it takes to make them again. */
#include "rig.h"

static uint32_t task_of(const rig *r, uint32_t op) { return r->graph.op_task[op]; }

static void saved_blocks_of_the_pass_are_items(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  rig r;
  rig_open(&r, &n);
  assert_true(rig_is_item(&r, 0) && rig_is_item(&r, 1));
  assert_false(rig_is_item(&r, 2)); /* nobody saves it */
  assert_false(r.graph.block[0].is_item); /* the batch is from outside */
  assert_int_equal(r.graph.task_count, 3);
  assert_int_equal(r.graph.pass, 0);
  rig_close(&r);
}

/* batch_norm, add_ and relu_ are one task: the block they write is made by all three or not at all. */
static void a_chain_in_place_is_one_task(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  n.count = 5;
  n.ops[2] = (net_op){.seconds = 1e-5, .inputs = {1, 0}, .flags = TN_OP_REBUILDABLE, .writes_input = 1};
  n.ops[1].saves_input = 0;
  n.ops[3] = (net_op){.seconds = 2e-5, .inputs = {2, NET_NO_INPUT}, .saves_output = 1, .flags = TN_OP_REBUILDABLE, .writes_input = 1};
  n.ops[4] = net_layer(MB, 1e-4, 3);
  rig r;
  rig_open(&r, &n);
  assert_int_equal(task_of(&r, 1), task_of(&r, 2));
  assert_int_equal(task_of(&r, 1), task_of(&r, 3));
  const tn__graph_task *task = &r.graph.tasks[task_of(&r, 1)];
  assert_int_equal(task->ops_count, 3);
  assert_true(task->ok);
  assert_int_equal(task->inputs_count, 1); /* op 0's block, read twice */
  assert_int_equal(r.graph.task_inputs[task->inputs_at], rig_block(&r, 0, 0));
  assert_true(task->seconds > 1.29e-4 && task->seconds < 1.31e-4);
  assert_int_equal(rig_graph_block(&r, 3)->version, 2);
  assert_true(rig_is_item(&r, 3));
  rig_close(&r);
}

/* Op 1 reads what op 0 made before op 2 wrote over it: in backward that version is nowhere to be had. */
static void an_overwritten_version_cannot_be_read(void **state) {
  (void)state;
  net n = {.count = 4};
  n.ops[0] = net_layer(MB, 1e-4, NET_BATCH);
  n.ops[1] = (net_op){.bytes = MB, .seconds = 1e-4, .inputs = {0, NET_NO_INPUT}, .saves_output = 1, .flags = TN_OP_REBUILDABLE};
  n.ops[2] = (net_op){.seconds = 1e-5, .inputs = {0, NET_NO_INPUT}, .saves_output = 1, .flags = TN_OP_REBUILDABLE, .writes_input = 1};
  n.ops[3] = net_layer(MB, 1e-4, 1);
  rig r;
  rig_open(&r, &n);
  assert_false(r.graph.tasks[task_of(&r, 1)].ok);
  assert_false(rig_is_item(&r, 1));
  assert_true(rig_is_item(&r, 2)); /* what it is in the end can be made again */
  rig_close(&r);
}

/* A buffer, say, that the pass writes: readers would find the new contents. */
static void an_overwritten_block_from_outside_cannot_be_read(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  n.ops[0].inputs[0] = NET_PARAMETER;
  rig r;
  rig_open(&r, &n);
  assert_true(rig_is_item(&r, 0));
  rig_close(&r);
  n.ops[n.count++] = (net_op){.seconds = 1e-5, .inputs = {NET_PARAMETER, NET_NO_INPUT}, .flags = TN_OP_REBUILDABLE, .writes_input = 1};
  rig_open(&r, &n);
  assert_false(rig_is_item(&r, 0));
  assert_true(rig_is_item(&r, 1)); /* from op 0's kept slot */
  assert_false(r.graph.tasks[task_of(&r, 3)].ok); /* and the op that writes it must not run twice */
  rig_close(&r);
}

static void what_may_not_run_again_is_kept(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  n.ops[1].flags = 0;
  rig r;
  rig_open(&r, &n);
  assert_true(rig_is_item(&r, 0));
  assert_false(rig_is_item(&r, 1));
  rig_close(&r);
}

/* Op 1 has no slot, so op 2 stands or falls with it. */
static void what_cannot_be_repeated_spreads_over_unsaved_blocks(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  n.count = 5;
  n.ops[2].saves_input = 0;
  n.ops[3] = net_layer(MB, 1e-4, 2);
  n.ops[4] = net_layer(MB, 1e-4, 3);
  rig r;
  rig_open(&r, &n);
  assert_true(rig_is_item(&r, 2));
  rig_close(&r);
  n.ops[1].flags = 0;
  rig_open(&r, &n);
  assert_false(rig_is_item(&r, 2));
  assert_true(rig_is_item(&r, 3)); /* from op 2's slot */
  rig_close(&r);
}

/* A slot that autograd never asks for cannot be held for a recipe, so it is no source. */
static void a_slot_never_asked_for_is_no_source(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  rig r;
  rig_open(&r, &n);
  assert_int_equal(rig_graph_block(&r, 0)->source_slot, 0);
  rig_close(&r);
  n.ops[1].is_forgetful = 1;
  rig_open(&r, &n);
  assert_int_equal(rig_graph_block(&r, 0)->source_slot, TN_NONE);
  assert_false(rig_is_item(&r, 0)); /* nor is there anything to drop it for */
  assert_true(rig_is_item(&r, 1));  /* op 0 is made again on the way */
  rig_close(&r);
}

static void two_slots_are_read_from_the_one_released_last(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  n.count = 4;
  n.ops[3] = net_layer(MB, 1e-4, 1);
  rig r;
  rig_open(&r, &n);
  const tn__graph_block *block = rig_graph_block(&r, 1);
  assert_int_equal(block->slot, 1);
  assert_int_equal(r.graph.slot_next[1], 2);
  assert_int_equal(block->source_slot, 1); /* op 2's, whose backward comes after op 3's */
  assert_int_equal(r.graph.slot_released[1], block->released_at);
  rig_close(&r);
}

/* ---- random ops ---------------------------------------------------------------------------------------------------------- */

/* The generator's place is read where a slot is packed: between two random ops there must be one. */
static void random_ops_need_a_slot_before_them(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  n.count = 4;
  n.ops[0].flags |= TN_OP_RANDOM;
  n.ops[1] = (net_op){.bytes = MB, .inputs = {0, NET_NO_INPUT}, .saves_output = 1, .flags = TN_OP_REBUILDABLE | TN_OP_RANDOM};
  n.ops[2] = net_layer(MB, 1e-4, 0);
  n.ops[3] = net_layer(MB, 1e-4, 2);
  n.ops[3].flags |= TN_OP_RANDOM;
  n.ops[3].saves_output = 1;
  rig r;
  rig_open(&r, &n);
  assert_int_equal(r.graph.random_count, 3);
  assert_int_equal(r.graph.random_probe[0], TN_NONE);
  assert_true(rig_is_item(&r, 0)); /* the first finds the generator as the pass began */
  assert_int_equal(r.graph.random_probe[1], TN_NONE);
  assert_false(rig_is_item(&r, 1)); /* nothing was packed between op 0 and op 1 */
  assert_int_equal(r.graph.op_random[3], 2);
  assert_int_equal(r.graph.random_probe[2], 2); /* op 1's output, op 2's input, op 3's input: the last */
  assert_true(rig_is_item(&r, 3));
  rig_close(&r);
}

/* ---- windows ------------------------------------------------------------------------------------------------------------- */

static net viewing(const char *meta) {
  net n = net_chain(3, MB);
  n.count = 4;
  n.ops[1] = (net_op){.inputs = {0, NET_NO_INPUT}, .flags = TN_OP_REBUILDABLE, .is_view = 1, .meta = meta};
  n.ops[2] = net_layer(MB, 1e-4, 1);
  n.ops[3] = net_layer(MB, 1e-4, 2);
  return n;
}

static void a_slot_may_be_a_window(void **state) {
  (void)state;
  net n = viewing("float32[8,4]/1,8+16");
  rig r;
  rig_open(&r, &n);
  assert_int_equal(r.graph.op_task[1], TN_NONE); /* a view writes nothing */
  assert_true(rig_is_item(&r, 0));
  assert_true(rig_is_item(&r, 2));
  rig_close(&r);
}

/* as_strided cannot change the element type. */
static void a_view_of_another_type_is_refused(void **state) {
  (void)state;
  net n = viewing("int32[4,8]");
  rig r;
  rig_open(&r, &n);
  assert_false(rig_is_item(&r, 0)); /* its slot is an int32 window */
  assert_int_equal(rig_graph_block(&r, 0)->source_slot, TN_NONE);
  assert_false(rig_is_item(&r, 2)); /* reads it so */
  rig_close(&r);
}

/* view_as_real(x).mul_(2): the chain itself would have to read complex numbers as real ones. */
static void a_chain_of_two_types_is_refused(void **state) {
  (void)state;
  net n = viewing("float64[4,4]");
  n.ops[2] = (net_op){.seconds = 1e-5, .inputs = {1, NET_NO_INPUT}, .flags = TN_OP_REBUILDABLE, .writes_input = 1, .saves_output = 1,
                      .meta = "float64[4,4]"};
  rig r;
  rig_open(&r, &n);
  assert_int_equal(task_of(&r, 0), task_of(&r, 2));
  assert_false(r.graph.tasks[task_of(&r, 0)].ok);
  rig_close(&r);
}

/* ---- two passes ---------------------------------------------------------------------------------------------------------- */

static void blocks_of_the_first_pass_are_twins(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  n.passes = 2;
  rig r;
  rig_open(&r, &n);
  assert_int_equal(r.graph.pass, 1);
  uint32_t second = 6; /* three forward and three backward ops come before */
  assert_true(rig_is_item(&r, second) && rig_is_item(&r, second + 1));
  assert_int_equal(rig_graph_block(&r, second)->twin, rig_block(&r, 0, 0));
  assert_false(rig_is_item(&r, 0));
  assert_int_equal(rig_graph_block(&r, 0)->twin, TN_NONE);
  assert_int_equal(rig_graph_block(&r, 0)->source_slot, 0); /* a slot of its own pass */
  rig_close(&r);
}

static void a_random_op_of_the_first_pass_follows_its_twin(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  n.passes = 2;
  n.ops[1].flags |= TN_OP_RANDOM;
  rig r;
  rig_open(&r, &n);
  assert_int_equal(r.graph.op_random[1], -1);
  assert_int_equal(r.graph.op_random[7], 0);
  assert_true(rig_is_item(&r, 7));
  rig_close(&r);
}

/* ---- refusals ------------------------------------------------------------------------------------------------------------ */

static void a_trace_without_slots_is_refused(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  n.ops[1].saves_input = n.ops[2].saves_input = 0;
  tn_trace *trace = net_trace(&n), *empty = NULL;
  tn_profile profile = net_profile();
  tn__graph g;
  tn_error err = {0};
  assert_int_equal(tn__graph_init(&g, trace, &profile, 0, &err), TN_EFORMAT);
  assert_string_equal(err.msg, "the trace has no saved tensors: nothing to plan");
  net_must(tn_trace_new(&empty));
  assert_int_equal(tn__graph_init(&g, empty, &profile, 0, &err), TN_EFORMAT);
  assert_string_equal(err.msg, "the trace has no step: nothing to plan");
  tn_trace_free(empty);
  tn_trace_free(trace);
}

static int init_graph(void *trace) {
  tn_profile profile = net_profile();
  tn__graph g;
  int rc = tn__graph_init(&g, trace, &profile, 0, NULL);
  if (rc == TN_OK) tn__graph_deinit(&g);
  return rc;
}

static void out_of_memory(void **state) {
  (void)state;
  net n = net_chain(3, MB);
  tn_trace *trace = net_trace(&n);
  assert_true(tn_test_sweep(init_graph, trace) >= 10);
  tn_trace_free(trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(saved_blocks_of_the_pass_are_items),
      cmocka_unit_test(a_chain_in_place_is_one_task),
      cmocka_unit_test(an_overwritten_version_cannot_be_read),
      cmocka_unit_test(an_overwritten_block_from_outside_cannot_be_read),
      cmocka_unit_test(what_may_not_run_again_is_kept),
      cmocka_unit_test(what_cannot_be_repeated_spreads_over_unsaved_blocks),
      cmocka_unit_test(a_slot_never_asked_for_is_no_source),
      cmocka_unit_test(two_slots_are_read_from_the_one_released_last),
      cmocka_unit_test(random_ops_need_a_slot_before_them),
      cmocka_unit_test(a_slot_may_be_a_window),
      cmocka_unit_test(a_view_of_another_type_is_refused),
      cmocka_unit_test(a_chain_of_two_types_is_refused),
      cmocka_unit_test(blocks_of_the_first_pass_are_twins),
      cmocka_unit_test(a_random_op_of_the_first_pass_follows_its_twin),
      cmocka_unit_test(a_trace_without_slots_is_refused),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}

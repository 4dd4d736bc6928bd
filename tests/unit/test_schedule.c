/* test_schedule.c -- when dropped blocks are made again, by which ops, and when they and what is held are let go. */
#include "rig.h"

static void nothing_dropped_nothing_run(void **state) {
  (void)state;
  net n = net_chain(5, MB);
  rig r;
  rig_open(&r, &n);
  rig_run(&r);
  assert_int_equal(r.schedule.program_count + r.schedule.run_count + r.schedule.hold_count, 0);
  assert_true(r.schedule.seconds == 0);
  rig_close(&r);
}

static void one_block_is_made_from_its_kept_input(void **state) {
  (void)state;
  net n = net_chain(5, MB);
  char runs[64];
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 2);
  assert_int_equal(r.schedule.program_count, 1);
  assert_string_equal(rig_runs(&r, 0, runs), "2");
  assert_int_equal(r.schedule.programs[0].slot, 2); /* op 3 saved it, third in order */
  assert_int_equal(r.schedule.programs[0].forget_count, 1); /* after it has been given back */
  assert_int_equal(r.schedule.hold_count, 0); /* op 1's slot is asked for later */
  assert_true(r.schedule.seconds == 1e-4);
  rig_close(&r);
}

/* The first slot asked for needs the whole run; the others find theirs made and only forget it. */
static void a_stretch_is_made_once(void **state) {
  (void)state;
  net n = net_chain(5, MB);
  char runs[64];
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 1);
  rig_drop(&r, 2);
  rig_drop(&r, 3);
  assert_int_equal(r.schedule.program_count, 3);
  assert_string_equal(rig_runs(&r, 0, runs), "1 2 3");
  assert_string_equal(rig_runs(&r, 1, runs), "");
  assert_string_equal(rig_runs(&r, 2, runs), "");
  for (int p = 0; p < 3; p++) assert_int_equal(r.schedule.programs[p].forget_count, 1);
  rig_close(&r);
}

/* Op 2 saves nothing of op 1, which is made on the way and let go at once. */
static void an_unsaved_intermediate_is_forgotten_by_its_reader(void **state) {
  (void)state;
  net n = net_chain(5, MB);
  n.ops[2].saves_input = 0;
  char runs[64];
  rig r;
  rig_open(&r, &n);
  assert_false(rig_is_item(&r, 1));
  rig_drop(&r, 2);
  assert_string_equal(rig_runs(&r, 0, runs), "1 2");
  const tn__run *last = &r.schedule.runs[1];
  assert_int_equal(last->forget_count, 1);
  assert_int_equal(r.schedule.forgets[last->forget_at], rig_block(&r, 1, 0));
  rig_close(&r);
}

/* Op 0's block is asked for by op 4's backward, which comes first, and let go; op 1 is made from it later: it is held till then. */
static net late_reader(void) {
  net n = net_chain(5, MB);
  n.ops[1].saves_input = 0;
  n.ops[4].inputs[1] = 3;
  n.ops[4].inputs[0] = 0;
  return n;
}

static void a_kept_block_is_held_for_a_late_reader(void **state) {
  (void)state;
  net n = late_reader();
  char runs[64];
  rig r;
  rig_open(&r, &n);
  uint64_t kept = rig_run(&r);
  rig_drop(&r, 1);
  assert_string_equal(rig_runs(&r, 0, runs), "1");
  assert_int_equal(r.schedule.hold_count, 1);
  assert_int_equal(r.schedule.holds[0].block, rig_block(&r, 0, 0));
  assert_int_equal(r.schedule.holds[0].program, 0);
  assert_true(r.simulate.peak_bytes <= kept);
  assert_true(r.simulate.live_bytes == r.simulate.start_bytes); /* and the hold ends */
  rig_close(&r);
}

/* Two readers: held until the later of them. */
static void a_hold_lasts_to_the_last_reader(void **state) {
  (void)state;
  net n = late_reader();
  n.ops[2].inputs[1] = 0;
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 2);
  rig_drop(&r, 1);
  assert_int_equal(r.schedule.program_count, 2);
  assert_int_equal(r.schedule.hold_count, 1);
  assert_int_equal(r.schedule.holds[0].program, 0); /* both are made when op 3 asks for op 2's */
  r.schedule.dropped[rig_block(&r, 2, 0)] = 0;
  rig_run(&r);
  assert_int_equal(r.schedule.program_count, 1);
  assert_int_equal(r.schedule.holds[0].program, 0);
  rig_close(&r);
}

/* An op with two saved outputs, of which one is kept: that one is made again too, and dies at once.  Op 1 reads both. */
static net two_outputs(void) {
  net n = {.count = 4};
  n.ops[0] = (net_op){.bytes = MB, .seconds = 1e-4, .inputs = {NET_BATCH, NET_NO_INPUT}, .flags = TN_OP_REBUILDABLE, .saves_output = 1,
                      .second_bytes = 2 * MB, .saves_second = 1};
  n.ops[1] = (net_op){.bytes = MB, .seconds = 1e-4, .inputs = {0, NET_SECOND + 0}, .flags = TN_OP_REBUILDABLE, .saves_output = 1};
  n.ops[2] = net_layer(MB, 1e-4, 1);
  n.ops[3] = net_layer(MB, 1e-4, 2);
  return n;
}

static void a_kept_block_may_be_made_again_beside_another(void **state) {
  (void)state;
  net n = two_outputs();
  char runs[64];
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 0);
  rig_drop(&r, 1);
  assert_string_equal(rig_runs(&r, 0, runs), "0 1");
  const tn__run *first = &r.schedule.runs[0];
  assert_int_equal(first->forget_count, 1);
  assert_int_equal(r.schedule.forgets[first->forget_at], rig_block(&r, 0, 1));
  uint32_t second = r.graph.refs[r.graph.ops[1].inputs_at + 1];
  assert_false(tn__schedule_reads_made(&r.schedule, 1, second)); /* op 1 reads the kept one */
  assert_true(tn__schedule_reads_made(&r.schedule, 1, r.graph.refs[r.graph.ops[1].inputs_at]));
  assert_true(r.simulate.live_bytes == r.simulate.start_bytes);
  rig_close(&r);
}

/* A chain reads its own earlier versions, which no slot has, though the block is kept. */
static void a_chain_reads_its_earlier_versions_as_made(void **state) {
  (void)state;
  net n = two_outputs();
  n.ops[1] = (net_op){.seconds = 1e-4, .inputs = {NET_SECOND + 0, 0}, .flags = TN_OP_REBUILDABLE, .saves_output = 1, .writes_input = 1};
  n.ops[0].saves_second = 0;
  rig r;
  rig_open(&r, &n);
  assert_int_equal(r.graph.op_task[0], r.graph.op_task[1]);
  r.schedule.dropped[rig_block(&r, 0, 0)] = 1;
  rig_run(&r);
  assert_true(tn__schedule_reads_made(&r.schedule, 1, r.graph.refs[r.graph.ops[1].inputs_at]));
  assert_int_equal(r.schedule.run_count, 2);
  assert_true(r.simulate.live_bytes == r.simulate.start_bytes);
  rig_close(&r);
}

static void both_passes_run_but_one_is_counted(void **state) {
  (void)state;
  net n = net_chain(5, MB);
  n.passes = 2;
  rig r;
  rig_open(&r, &n);
  uint32_t block = rig_block(&r, 12, 0);
  assert_true(r.graph.block[block].is_item);
  r.schedule.dropped[block] = r.schedule.dropped[r.graph.block[block].twin] = 1;
  rig_run(&r);
  assert_int_equal(r.schedule.program_count, 2);
  assert_int_equal(r.schedule.run_count, 2);
  assert_true(r.schedule.seconds == 1e-4);
  rig_close(&r);
}

/* Whatever is dropped: inputs before their readers, nothing let go twice or read afterwards, and nothing left over. */
static void any_choice_makes_a_lawful_schedule(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 500; round++) {
    net n = net_random(&seed, 6, 1);
    rig r;
    rig_open(&r, &n);
    rig_drop_some(&r, &seed);
    const tn__schedule *s = &r.schedule;
    uint8_t *there = calloc(r.graph.block_count, 1);
    assert_non_null(there);
    for (size_t p = 0; p < s->program_count; p++) {
      for (uint32_t i = s->programs[p].run_at; i < s->programs[p].run_at + s->programs[p].run_count; i++) {
        const tn_op *op = &r.graph.ops[s->runs[i].op];
        for (uint32_t k = 0; k < op->inputs_count; k++) {
          uint32_t v = r.graph.refs[op->inputs_at + k], b = r.graph.values[v].block;
          if (r.graph.block[b].in_pass && tn__schedule_reads_made(s, s->runs[i].op, v)) assert_true(there[b]);
        }
        for (uint32_t k = 0; k < op->outputs_count; k++) there[r.graph.values[r.graph.refs[op->outputs_at + k]].block] = 1;
        for (uint32_t f = s->runs[i].forget_at; f < s->runs[i].forget_at + s->runs[i].forget_count; f++) {
          assert_true(there[s->forgets[f]]);
          there[s->forgets[f]] = 0;
        }
      }
      assert_true(there[r.graph.slots[s->programs[p].slot].block]);
      for (uint32_t f = s->programs[p].forget_at; f < s->programs[p].forget_at + s->programs[p].forget_count; f++) {
        assert_true(there[s->forgets[f]]);
        there[s->forgets[f]] = 0;
      }
    }
    for (size_t b = 0; b < r.graph.block_count; b++) assert_false(there[b]);
    free(there);
    rig_close(&r);
  }
}

static int init_schedule(void *graph) {
  tn__schedule s;
  int rc = tn__schedule_init(&s, graph);
  if (rc == TN_OK) tn__schedule_deinit(&s);
  return rc;
}

static void out_of_memory(void **state) {
  (void)state;
  net n = net_chain(5, MB);
  rig r;
  rig_open(&r, &n);
  assert_true(tn_test_sweep(init_schedule, &r.graph) >= 10);
  rig_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_dropped_nothing_run),
      cmocka_unit_test(one_block_is_made_from_its_kept_input),
      cmocka_unit_test(a_stretch_is_made_once),
      cmocka_unit_test(an_unsaved_intermediate_is_forgotten_by_its_reader),
      cmocka_unit_test(a_kept_block_is_held_for_a_late_reader),
      cmocka_unit_test(a_hold_lasts_to_the_last_reader),
      cmocka_unit_test(a_kept_block_may_be_made_again_beside_another),
      cmocka_unit_test(a_chain_reads_its_earlier_versions_as_made),
      cmocka_unit_test(both_passes_run_but_one_is_counted),
      cmocka_unit_test(any_choice_makes_a_lawful_schedule),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}

/* steps and phases: found by annotations, by phases, by repetition; layers are no steps. */
#include "explain/steps.h"

#include "explain/stacks.h"
#include "training.h"

typedef struct stepped {
  training t;
  tn__chronicle c;
  tn__stacks stacks;
  tn__phases phases;
  tn__steps steps;
} stepped;

static void stepped_look(stepped *s) {
  memory_must(tn__chronicle_init(&s->c, s->t.m.trace, 0), "chronicle");
  memory_must(tn__stacks_init(&s->stacks, s->t.m.trace), "stacks");
  memory_must(tn__phases_init(&s->phases, &s->c, &s->stacks), "phases");
  memory_must(tn__steps_init(&s->steps, &s->c, &s->phases, &s->stacks), "steps");
}

static void stepped_end(stepped *s) {
  tn__steps_deinit(&s->steps);
  tn__phases_deinit(&s->phases);
  tn__stacks_deinit(&s->stacks);
  tn__chronicle_deinit(&s->c);
  training_end(&s->t);
}

static const tn__step *step_at(const stepped *s, size_t at) { return tn__vec_at(&s->steps.list, at); }

static void by_annotations(void **state) {
  (void)state;
  stepped s;
  training_run(&s.t, (training_faults){.leak_bytes = MIB}, 5);
  stepped_look(&s);
  assert_int_equal(s.steps.from, TN__STEPS_ANNOTATED);
  assert_string_equal(tn_trace_string(s.t.m.trace, s.steps.marker), "Optimizer.step#Adam.step");
  assert_int_equal(s.steps.list.count, 5);
  assert_int_equal(s.steps.warmup, 1);
  for (size_t i = 1; i < 5; i++) {
    assert_int_equal(step_at(&s, i)->begin, step_at(&s, i - 1)->end);
    if (i > 1) assert_int_equal(step_at(&s, i)->end_bytes - step_at(&s, i - 1)->end_bytes, MIB);
    assert_true(step_at(&s, i)->peak_bytes > step_at(&s, i)->end_bytes && step_at(&s, i)->floor_bytes <= step_at(&s, i)->end_bytes);
    assert_int_equal(step_at(&s, i)->allocs, step_at(&s, 1)->allocs);
  }
  stepped_end(&s);
}

static void by_the_profiler(void **state) {
  (void)state;
  stepped s;
  training_open(&s.t, (training_faults){0});
  for (int i = 0; i < 3; i++) {
    char name[32];
    snprintf(name, sizeof name, "ProfilerStep#%d", i);
    memory_annotate(&s.t.m, name, 0);
    training_step(&s.t);
    memory_annotate(&s.t.m, name, 1);
  }
  memory_close(&s.t.m);
  stepped_look(&s);
  assert_int_equal(s.steps.list.count, 3);
  assert_string_equal(tn_trace_string(s.t.m.trace, s.steps.marker), "ProfilerStep#0");
  stepped_end(&s);
}

static void by_phases(void **state) {
  (void)state;
  stepped s;
  training_run(&s.t, (training_faults){.no_annotations = 1}, 5);
  stepped_look(&s);
  assert_int_equal(s.steps.from, TN__STEPS_PHASES);
  assert_int_equal(s.steps.list.count, 5);
  stepped_end(&s);
}

static enum tn_phase phase_of_first(const stepped *s, uint32_t stack) {
  for (size_t i = 0; i < s->c.spans.count; i++)
    if (TN__SPANS(&s->c)[i].stack == stack) return (enum tn_phase)TN__SPANS(&s->c)[i].phase;
  return TN_PHASE_COUNT;
}

static void phases_of_a_step(void **state) {
  (void)state;
  stepped s;
  training_run(&s.t, (training_faults){0}, 2);
  stepped_look(&s);
  assert_int_equal(phase_of_first(&s, s.t.model), TN_PHASE_SETUP);
  assert_int_equal(phase_of_first(&s, s.t.linear[0]), TN_PHASE_FORWARD);
  assert_int_equal(phase_of_first(&s, s.t.loss), TN_PHASE_LOSS);
  assert_int_equal(phase_of_first(&s, s.t.bare), TN_PHASE_BACKWARD);
  assert_int_equal(phase_of_first(&s, s.t.state), TN_PHASE_OPTIMIZER);
  stepped_end(&s);
}

/* ---- without stacks ------------------------------------------------------------------------------------------------------ */

/* Sizes alone: an allocation that comes again and again. */
static void bare_step(memory *m, uint64_t kept_bytes) {
  uint32_t made[12];
  made[0] = memory_alloc(m, 7 * MIB, TN_NONE);
  for (int i = 1; i < 12; i++) made[i] = memory_alloc(m, 2 * MIB, TN_NONE);
  for (int i = 0; i < 12; i++) memory_free(m, made[i], TN_NONE);
  if (kept_bytes) memory_alloc(m, kept_bytes, TN_NONE);
}

static void by_repetition(void **state) {
  (void)state;
  stepped s = {0};
  memory_open(&s.t.m, NULL);
  for (int i = 0; i < 6; i++) bare_step(&s.t.m, MIB);
  memory_close(&s.t.m);
  stepped_look(&s);
  assert_int_equal(s.steps.from, TN__STEPS_PERIODIC);
  assert_int_equal(s.steps.list.count, 5);
  assert_int_equal(step_at(&s, 1)->allocs, 13);
  stepped_end(&s);
}

/* A forward pass of 24 equal layers, all of whose results stay for backward. */
static void layers_are_no_steps(void **state) {
  (void)state;
  stepped s = {0};
  memory_open(&s.t.m, NULL);
  for (int i = 0; i < 24; i++) {
    memory_alloc(&s.t.m, 3 * MIB, TN_NONE);
    memory_alloc(&s.t.m, 2 * MIB, TN_NONE);
    memory_free(&s.t.m, memory_alloc(&s.t.m, MIB, TN_NONE), TN_NONE);
  }
  memory_close(&s.t.m);
  stepped_look(&s);
  assert_int_equal(s.steps.from, TN__STEPS_NONE);
  assert_int_equal(s.steps.list.count, 0);
  stepped_end(&s);
}

/* Where there are stacks, a module that repeats within a step is told apart from the step. */
static void modules_are_no_steps(void **state) {
  (void)state;
  stepped s = {0};
  training_open(&s.t, (training_faults){0});
  uint32_t last = TN_NONE;
  for (int i = 0; i < 24; i++) {
    uint32_t made = memory_alloc(&s.t.m, 2 * MIB, s.t.linear[0]);
    if (last != TN_NONE) memory_free(&s.t.m, last, s.t.linear[0]);
    last = made;
  }
  memory_close(&s.t.m);
  stepped_look(&s);
  assert_int_equal(s.steps.list.count, 0);
  stepped_end(&s);
}

static int scenario(void *user) {
  stepped s = {.t.m.trace = user};
  int rc = tn__chronicle_init(&s.c, user, 0);
  if (!rc) rc = tn__stacks_init(&s.stacks, user);
  if (!rc) rc = tn__phases_init(&s.phases, &s.c, &s.stacks);
  if (!rc) rc = tn__steps_init(&s.steps, &s.c, &s.phases, &s.stacks);
  tn__steps_deinit(&s.steps);
  tn__phases_deinit(&s.phases);
  tn__stacks_deinit(&s.stacks);
  tn__chronicle_deinit(&s.c);
  return rc;
}

static void survives_running_out_of_memory(void **state) {
  (void)state;
  memory m;
  memory_open(&m, NULL);
  for (int i = 0; i < 6; i++) bare_step(&m, MIB);
  memory_close(&m);
  assert_true(tn_test_sweep(scenario, m.trace) > 10);
  memory_end(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_annotations),
      cmocka_unit_test(by_the_profiler),
      cmocka_unit_test(by_phases),
      cmocka_unit_test(phases_of_a_step),
      cmocka_unit_test(by_repetition),
      cmocka_unit_test(layers_are_no_steps),
      cmocka_unit_test(modules_are_no_steps),
      cmocka_unit_test(survives_running_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

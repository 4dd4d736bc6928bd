/* findings: each fault is found where it is, with its bytes, and not where it is not. */
#include "explain/analysis.h"

#include "training.h"

typedef struct looked {
  training t;
  tn__analysis a;
} looked;

static void look_at(looked *l, uint64_t total_bytes) {
  tn__analysis_options options = {.total_bytes = total_bytes};
  memory_must(tn__analysis_init(&l->a, l->t.m.trace, 0, &options), "analysis");
}

static void look(looked *l, training_faults faults, int steps) {
  training_run(&l->t, faults, steps);
  look_at(l, 0);
}

static void look_end(looked *l) {
  tn__analysis_deinit(&l->a);
  training_end(&l->t);
}

static const char *text(const looked *l, uint32_t id) { return tn__strings_get(&l->a.texts, id); }

static const tn__finding *find(const looked *l, enum tn__finding_code code) {
  for (size_t i = 0; i < l->a.findings.count; i++) {
    const tn__finding *finding = tn__vec_at(&l->a.findings, i);
    if (finding->code == code) return finding;
  }
  return NULL;
}

static const tn__finding *must_find(const looked *l, enum tn__finding_code code) {
  const tn__finding *finding = find(l, code);
  if (!finding) fail_msg("%s was not found", tn__finding_name(code));
  return finding;
}

static void must_not_find(const looked *l, enum tn__finding_code code) {
  const tn__finding *finding = find(l, code);
  if (finding) fail_msg("%s: %s / %s", tn__finding_name(code), text(l, finding->what), text(l, finding->evidence));
}

static void says(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* ---- a run without faults ------------------------------------------------------------------------------------------------ */

static void a_healthy_run_has_no_fault_and_no_waste(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){0}, 6);
  for (size_t i = 0; i < l.a.findings.count; i++) {
    const tn__finding *finding = tn__vec_at(&l.a.findings, i);
    if (finding->severity == TN__SEVERITY_NOTE || finding->code == TN__FINDING_FRAGMENTATION) continue;
    fail_msg("%s: %s", tn__finding_name(finding->code), text(&l, finding->what));
  }
  look_end(&l);
}

/* ---- growth -------------------------------------------------------------------------------------------------------------- */

static void a_leak_with_its_slope_and_place(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.leak_bytes = 2 * MIB}, 7);
  const tn__finding *leak = must_find(&l, TN__FINDING_LEAK);
  assert_true(leak->slope_bytes > (double)(2 * MIB) - 1 && leak->slope_bytes < (double)(2 * MIB) + 1);
  assert_int_equal(leak->severity, TN__SEVERITY_FAULT);
  says(text(&l, leak->what), "grows by 2.00 MiB every step");
  says(text(&l, leak->what), "train.py:40 step");
  says(text(&l, l.a.verdict[1]), "grows by 2.00 MiB");
  must_not_find(&l, TN__FINDING_GRAPH_KEPT);
  look_end(&l);
}

static void a_leak_says_when_memory_will_be_full(void **state) {
  (void)state;
  looked l;
  training_run(&l.t, (training_faults){.leak_bytes = 2 * MIB}, 7);
  look_at(&l, GIB);
  says(text(&l, must_find(&l, TN__FINDING_LEAK)->fix), "memory is full after");
  look_end(&l);
}

static void a_graph_that_is_kept(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.keep_graph = 1}, 7);
  const tn__finding *graph = must_find(&l, TN__FINDING_GRAPH_KEPT);
  assert_true(graph->slope_bytes > (double)(8 * MIB) - 1 && graph->slope_bytes < (double)(8 * MIB) + 1);
  says(text(&l, graph->fix), "loss.item()");
  must_not_find(&l, TN__FINDING_LEAK);
  look_end(&l);
}

/* Four steps show nothing: the first is unlike the others, and two pairs are no trend. */
static void few_steps_are_said_not_to_show_growth(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.leak_bytes = 2 * MIB}, 4);
  must_not_find(&l, TN__FINDING_LEAK);
  int said = 0;
  for (size_t i = 0; i < l.a.unchecked.count; i++)
    said |= strstr(text(&l, TN_VEC(&l.a.unchecked, tn__unchecked)[i].what), "growth") != NULL;
  assert_true(said);
  look_end(&l);
}

/* The same without annotations: steps are runs of the optimizer. */
static void a_leak_without_annotations(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.leak_bytes = 2 * MIB, .no_annotations = 1}, 7);
  assert_int_equal(l.a.steps.from, TN__STEPS_PHASES);
  must_find(&l, TN__FINDING_LEAK);
  look_end(&l);
}

static void evaluation_with_autograd_on(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.eval_with_grad = 1}, 3);
  const tn__finding *graph = must_find(&l, TN__FINDING_EVAL_GRAPH);
  assert_true(graph->bytes >= 48 * MIB && graph->bytes < 56 * MIB); /* some took holes of 3 MiB */
  says(text(&l, graph->what), "in evaluation");
  says(text(&l, graph->fix), "no_grad");
  look_end(&l);
}

static void evaluation_with_autograd_off(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.eval_without_grad = 1}, 3);
  must_not_find(&l, TN__FINDING_EVAL_GRAPH);
  look_end(&l);
}

static void one_step_much_larger(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.activation_bytes = {0, 0, 0, 0, 30 * MIB}}, 7);
  const tn__finding *variable = must_find(&l, TN__FINDING_VARIABLE);
  says(text(&l, variable->what), "Step 5 needs");
  assert_int_equal(variable->frees_bytes, 4 * (30 - 2) * MIB);
  look_end(&l);
}

/* ---- held longer than needed --------------------------------------------------------------------------------------------- */

static void gradients_kept_through_forward(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.keep_gradients = 1, .activation_bytes = {0, 20 * MIB, 20 * MIB}}, 3);
  const tn__finding *kept = must_find(&l, TN__FINDING_GRADS_KEPT);
  assert_int_equal(kept->bytes, 12 * MIB);
  says(text(&l, kept->fix), "set_to_none=True");
  look_end(&l);
}

static void outputs_held_over(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.hold_outputs = 1, .logits_bytes = 64 * MIB}, 4);
  const tn__finding *held = must_find(&l, TN__FINDING_HELD_OVER);
  assert_int_equal(held->frees_bytes, 64 * MIB);
  look_end(&l);
}

static void temporaries_of_the_optimizer(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.temp_bytes = 12 * MIB}, 4);
  const tn__finding *temp = must_find(&l, TN__FINDING_OPT_TEMP);
  assert_int_equal(temp->bytes, 48 * MIB);
  assert_int_equal(temp->severity, TN__SEVERITY_WASTE);
  assert_true(temp->frees_bytes > 0 && temp->frees_bytes <= 48 * MIB);
  says(text(&l, temp->fix), "fused=True");
  look_end(&l);
}

/* ---- the peak ------------------------------------------------------------------------------------------------------------ */

static void logits_make_the_peak(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.logits_bytes = 40 * MIB}, 4);
  const tn__finding *logits = must_find(&l, TN__FINDING_LOGITS_PEAK);
  assert_int_equal(logits->bytes, 3 * 40 * MIB); /* logits, their log-softmax, and the gradient */
  assert_int_equal(logits->frees_bytes, 105 * MIB);
  look_end(&l);
}

static void attention_scores(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.score_bytes = 32 * MIB}, 4);
  must_not_find(&l, TN__FINDING_ATTENTION); /* nothing smaller beside it: its size says nothing */
  look_end(&l);
}

static void attention_scores_beside_queries(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.score_bytes = 32 * MIB, .query_bytes = 2 * MIB}, 4);
  const tn__finding *scores = must_find(&l, TN__FINDING_ATTENTION);
  assert_int_equal(scores->bytes, 128 * MIB);
  says(text(&l, scores->fix), "scaled_dot_product_attention");
  look_end(&l);
}

/* One pass to a step, and at the end of backward gradients are what there is most of. */
static void all_gradients_at_once(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.activation_bytes = {64 * 1024, 64 * 1024, 64 * 1024, 64 * 1024}, .logits_bytes = 64 * 1024, .temp_bytes = 1024}, 4);
  const tn__finding *gradients = must_find(&l, TN__FINDING_GRADS_PEAK);
  assert_int_equal(gradients->bytes, 12 * MIB);
  look_end(&l);
}

static void copies_of_parameters(void **state) {
  (void)state;
  looked l;
  training_open(&l.t, (training_faults){0});
  memory *m = &l.t.m;
  uint32_t copy = memory_stack(m, TORCH "_tensor.py:178 __deepcopy__", "/usr/lib/python3.12/copy.py:153 deepcopy", "ema.py:12 update", NULL);
  for (int i = 0; i < TRAINING_LAYERS; i++) memory_alloc(m, 3 * MIB, copy);
  training_step(&l.t);
  memory_close(m);
  look_at(&l, 0);
  const tn__finding *copies = must_find(&l, TN__FINDING_COPIES);
  assert_int_equal(copies->bytes, 12 * MIB);
  says(text(&l, copies->evidence), "ema.py:12 update");
  look_end(&l);
}

static void categories_at_the_peak(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){.activation_bytes = {0, 0, 0, 64 * MIB}}, 4);
  const uint64_t *bytes = l.a.peak.by_category;
  assert_int_equal(bytes[TN_CATEGORY_PARAMETER], 12 * MIB);
  assert_int_equal(bytes[TN_CATEGORY_OPTIMIZER], 24 * MIB);
  assert_int_equal(bytes[TN_CATEGORY_ACTIVATION], 4 * 64 * MIB + 8 * MIB);
  assert_int_equal(bytes[TN_CATEGORY_TEMPORARY], 4 * MIB + 512); /* the gradient of the logits, and of the loss */
  assert_true(bytes[TN_CATEGORY_INPUT] >= MIB + 512);
  must_find(&l, TN__FINDING_ACTIVATIONS);
  must_not_find(&l, TN__FINDING_PARAMETERS);
  look_end(&l);
}

/* ---- limits -------------------------------------------------------------------------------------------------------------- */

static void near_the_limit(void **state) {
  (void)state;
  looked l;
  look(&l, (training_faults){0}, 3);
  uint64_t most = l.a.account_peak.level.reserved_bytes;
  look_end(&l);
  training_run(&l.t, (training_faults){0}, 3);
  look_at(&l, most + most / 20);
  must_find(&l, TN__FINDING_NEAR_OOM);
  look_end(&l);
  training_run(&l.t, (training_faults){0}, 3);
  look_at(&l, GIB);
  must_not_find(&l, TN__FINDING_NEAR_OOM);
  look_end(&l);
}

/* Three segments of 40 MiB, each with 2 MiB live: 38 MiB are free in each, and 50 MiB are asked for under a limit of 140 MiB. */
static void out_of_memory_in_pieces(void **state) {
  (void)state;
  looked l = {0};
  memory *m = &l.t.m;
  memory_open_limited(m, NULL, 140 * MIB);
  uint32_t line = memory_stack(m, "a.py:7 work", NULL), fill[3];
  for (int i = 0; i < 3; i++) {
    memory_free(m, memory_alloc(m, 40 * MIB, line), line);
    memory_alloc(m, 2 * MIB, line);
    fill[i] = memory_alloc(m, 38 * MIB, line);
  }
  for (int i = 0; i < 3; i++) memory_free(m, fill[i], line);
  assert_int_equal(memory_alloc(m, 50 * MIB, line), TN_NONE);
  memory_close(m);
  look_at(&l, 0);
  const tn__finding *oom = must_find(&l, TN__FINDING_OOM);
  assert_int_equal(oom->bytes, 50 * MIB);
  says(text(&l, oom->what), "50.00 MiB were asked for at a.py:7 work");
  must_not_find(&l, TN__FINDING_CAP); /* the card had 3 MiB */
  const tn__finding *pieces = must_find(&l, TN__FINDING_FRAGMENTATION);
  assert_int_equal(pieces->bytes, 114 * MIB);
  says(text(&l, l.a.verdict[1]), "Fragmentation");
  says(text(&l, pieces->fix), "memory does not run out");
  look_end(&l);
}

static void out_of_memory_by_a_limit_of_ones_own(void **state) {
  (void)state;
  looked l = {0};
  memory *m = &l.t.m;
  memory_open_limited(m, NULL, 24 * MIB);
  uint32_t line = memory_stack(m, "a.py:7 work", NULL);
  memory_alloc(m, 20 * MIB, line);
  assert_int_equal(memory_alloc(m, 300 * 1024, line), 1);
  assert_int_equal(memory_alloc(m, 2 * MIB, line), TN_NONE);
  /* 2 MiB need a segment of 20; 3 MiB were free: the card itself was full.  Of 1 MiB, 2 are needed. */
  memory_close(m);
  look_at(&l, 0);
  must_find(&l, TN__FINDING_OOM);
  must_not_find(&l, TN__FINDING_CAP);
  look_end(&l);
  memory_open_limited(m, NULL, 21 * MIB);
  line = memory_stack(m, "a.py:7 work", NULL);
  memory_alloc(m, 20 * MIB, line);
  assert_int_equal(memory_alloc(m, MIB, line), TN_NONE);
  memory_close(m);
  look_at(&l, 0);
  says(text(&l, must_find(&l, TN__FINDING_CAP)->evidence), "between 20.00 MiB and 22.00 MiB");
  look_end(&l);
}

static void retries_under_a_limit(void **state) {
  (void)state;
  looked l = {0};
  memory *m = &l.t.m;
  memory_open_limited(m, NULL, 100 * MIB);
  uint32_t line = memory_stack(m, "a.py:7 work", NULL);
  for (int i = 0; i < 6; i++) memory_free(m, memory_alloc(m, (uint64_t)(60 + 4 * i) * MIB, line), line);
  memory_close(m);
  look_at(&l, 0);
  const tn__finding *retries = must_find(&l, TN__FINDING_RETRIES);
  says(text(&l, retries->what), "5 times");
  assert_int_equal(retries->bytes, (60 + 64 + 68 + 72 + 76) * MIB);
  look_end(&l);
}

/* empty_cache() gives segments back as well, but nobody waited for memory. */
static void emptying_the_cache_is_no_retry(void **state) {
  (void)state;
  looked l = {0};
  memory *m = &l.t.m;
  memory_open(m, NULL);
  uint32_t line = memory_stack(m, "a.py:7 work", NULL), empty = memory_stack(m, TORCH "cuda/memory.py:170 empty_cache", "a.py:9 work", NULL);
  for (int i = 0; i < 6; i++) {
    memory_free(m, memory_alloc(m, 60 * MIB, line), line);
    memory_empty_cache(m, empty);
  }
  memory_close(m);
  look_at(&l, 0);
  must_not_find(&l, TN__FINDING_RETRIES);
  look_end(&l);
}

/* ---- waste --------------------------------------------------------------------------------------------------------------- */

/* Blocks grow, so each needs a new segment; with expandable segments the pages of the old ones serve. */
static void fragmentation_and_the_setting_that_removes_it(void **state) {
  (void)state;
  looked l = {0};
  memory *m = &l.t.m;
  memory_open(m, NULL);
  uint32_t line = memory_stack(m, "a.py:7 work", NULL);
  for (int i = 0; i < 6; i++) memory_free(m, memory_alloc(m, (uint64_t)(40 + 10 * i) * MIB, line), line);
  memory_close(m);
  look_at(&l, 0);
  const tn__finding *pieces = must_find(&l, TN__FINDING_FRAGMENTATION);
  assert_int_equal(pieces->bytes, (40 + 50 + 60 + 70 + 80) * MIB);
  says(text(&l, pieces->evidence), "replayed with expandable_segments:True: 100.00 MiB reserved at most instead of 390.00 MiB");
  assert_int_equal(pieces->frees_bytes, 290 * MIB);
  look_end(&l);
}

static void memory_cached_for_another_stream(void **state) {
  (void)state;
  looked l = {0};
  memory *m = &l.t.m;
  memory_open(m, NULL);
  uint32_t line = memory_stack(m, "a.py:7 work", NULL);
  memory_alloc(m, 64 * MIB, line);
  uint32_t side = memory_alloc_on(m, 30 * MIB, line, 1, 0);
  memory_free(m, side, line);
  memory_alloc_on(m, 2 * MIB, line, 1, 0);
  memory_close(m);
  look_at(&l, 0);
  const tn__finding *cache = must_find(&l, TN__FINDING_STREAM_CACHE);
  assert_int_equal(cache->bytes, 28 * MIB);
  says(text(&l, cache->evidence), "stream 0x100: 28.00 MiB free of 30.00 MiB");
  look_end(&l);
}

static void frees_that_wait_for_a_stream(void **state) {
  (void)state;
  looked l = {0};
  memory *m = &l.t.m;
  memory_open(m, NULL);
  uint32_t line = memory_stack(m, "a.py:7 work", NULL), block = memory_alloc(m, 64 * MIB, line);
  memory_free_on(m, block, line, 1);
  for (int i = 0; i < 100; i++) memory_alloc(m, 512, line);
  memory_complete(m, block);
  memory_close(m);
  look_at(&l, 0);
  const tn__finding *delay = must_find(&l, TN__FINDING_STREAM_DELAY);
  assert_int_equal(delay->bytes, 64 * MIB);
  says(text(&l, delay->evidence), "1 frees came back later; the longest took 1.0 ms");
  look_end(&l);
}

static void pools_of_graphs(void **state) {
  (void)state;
  looked l = {0};
  memory *m = &l.t.m;
  memory_open(m, NULL);
  uint32_t line = memory_stack(m, "a.py:7 capture", NULL);
  memory_alloc(m, 10 * MIB, line);
  memory_free(m, memory_alloc_on(m, 50 * MIB, line, 0, 1), line);
  memory_alloc_on(m, 20 * MIB, line, 0, 1);
  memory_close(m);
  look_at(&l, 0);
  const tn__finding *pool = must_find(&l, TN__FINDING_GRAPH_POOL);
  assert_int_equal(pool->bytes, 50 * MIB);
  assert_int_equal(pool->severity, TN__SEVERITY_NOTE); /* it needs them when it is replayed */
  says(text(&l, pool->evidence), "CUDA graph (1, 0): 50.00 MiB reserved, 20.00 MiB live");
  look_end(&l);
}

static void an_idle_cache(void **state) {
  (void)state;
  looked l = {0};
  memory *m = &l.t.m;
  memory_open(m, NULL);
  uint32_t line = memory_stack(m, "a.py:7 work", NULL);
  memory_free(m, memory_alloc(m, 50 * MIB, line), line);
  memory_close(m);
  look_at(&l, 0);
  const tn__finding *idle = must_find(&l, TN__FINDING_CACHE_IDLE);
  assert_int_equal(idle->bytes, 50 * MIB);
  assert_int_equal(idle->frees_bytes, 0); /* the next peak needs it again */
  says(text(&l, idle->evidence), "left of the peak");
  look_end(&l);
}

static void rounding_by_a_setting(void **state) {
  (void)state;
  looked l = {0};
  memory *m = &l.t.m;
  memory_open(m, "roundup_power2_divisions:2");
  memory_must(tn_trace_set_meta(m->trace, "allocator.roundup_power2_divisions", "{\"1\": 2, \"2\": 2, \"4\": 2, \"8\": 2, \"16\": 2, \"32\": 2, \"64\": 2}"),
              "meta");
  uint32_t line = memory_stack(m, "a.py:7 work", NULL);
  for (int i = 0; i < 8; i++) memory_alloc(m, 17 * MIB, line); /* 24 MiB each */
  memory_close(m);
  look_at(&l, 0);
  const tn__finding *rounding = must_find(&l, TN__FINDING_ROUNDING);
  assert_int_equal(rounding->bytes, 56 * MIB);
  assert_int_equal(rounding->frees_bytes, 56 * MIB);
  look_end(&l);
}

/* ---- files that say little ----------------------------------------------------------------------------------------------- */

static void no_history_is_said_and_the_end_explained(void **state) {
  (void)state;
  looked l;
  training_open(&l.t, (training_faults){0});
  training_step(&l.t);
  l.t.m.skip = UINT32_MAX;
  memory_close(&l.t.m);
  look_at(&l, 0);
  assert_int_equal(l.a.history.entry_count, 0);
  says(text(&l, TN_VEC(&l.a.unchecked, tn__unchecked)[0].why), "no history");
  says(text(&l, l.a.verdict[0]), "are allocated");
  assert_int_equal(l.a.end.by_category[TN_CATEGORY_PARAMETER], 12 * MIB);
  assert_int_equal(l.a.end.by_category[TN_CATEGORY_OPTIMIZER], 24 * MIB);
  look_end(&l);
}

static void an_empty_device(void **state) {
  (void)state;
  looked l = {0};
  memory_open(&l.t.m, NULL);
  memory_close(&l.t.m);
  look_at(&l, 0);
  assert_int_equal(l.a.findings.count, 0);
  says(text(&l, l.a.verdict[1]), "Nothing is reserved");
  look_end(&l);
}

/* What lived before the history and has no stack is told apart by the sizes of gradients. */
static void a_history_that_begins_late(void **state) {
  (void)state;
  looked l;
  training_open(&l.t, (training_faults){0});
  for (int i = 0; i < 2; i++) training_step(&l.t);
  l.t.m.skip = (uint32_t)l.t.m.entries.count;
  for (int i = 0; i < TRAINING_LAYERS; i++) memory_at(&l.t.m, l.t.parameter[i])->stack = TN_NONE;
  for (int i = 0; i < 2 * TRAINING_LAYERS; i++) memory_at(&l.t.m, l.t.states[i])->stack = TN_NONE;
  for (int i = 0; i < 2; i++) training_step(&l.t);
  memory_close(&l.t.m);
  look_at(&l, 0);
  assert_int_equal(l.a.peak.by_category[TN_CATEGORY_PARAMETER], 12 * MIB);
  assert_int_equal(l.a.peak.by_category[TN_CATEGORY_OPTIMIZER], 24 * MIB);
  look_end(&l);
}

/* ---- every allocation may fail ------------------------------------------------------------------------------------------- */

static int scenario(void *user) {
  tn__analysis a;
  tn__analysis_options options = {.total_bytes = 90 * MIB};
  int rc = tn__analysis_init(&a, user, 0, &options);
  tn__analysis_deinit(&a);
  return rc;
}

static void survives_running_out_of_memory(void **state) {
  (void)state;
  training t;
  training_run(&t, (training_faults){.leak_bytes = 2 * MIB, .eval_with_grad = 1, .hold_outputs = 1, .temp_bytes = 12 * MIB}, 5);
  assert_true(tn_test_sweep(scenario, t.m.trace) > 100);
  training_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_healthy_run_has_no_fault_and_no_waste),
      cmocka_unit_test(a_leak_with_its_slope_and_place),
      cmocka_unit_test(a_leak_says_when_memory_will_be_full),
      cmocka_unit_test(a_graph_that_is_kept),
      cmocka_unit_test(few_steps_are_said_not_to_show_growth),
      cmocka_unit_test(a_leak_without_annotations),
      cmocka_unit_test(evaluation_with_autograd_on),
      cmocka_unit_test(evaluation_with_autograd_off),
      cmocka_unit_test(one_step_much_larger),
      cmocka_unit_test(gradients_kept_through_forward),
      cmocka_unit_test(outputs_held_over),
      cmocka_unit_test(temporaries_of_the_optimizer),
      cmocka_unit_test(logits_make_the_peak),
      cmocka_unit_test(attention_scores),
      cmocka_unit_test(attention_scores_beside_queries),
      cmocka_unit_test(all_gradients_at_once),
      cmocka_unit_test(copies_of_parameters),
      cmocka_unit_test(categories_at_the_peak),
      cmocka_unit_test(near_the_limit),
      cmocka_unit_test(out_of_memory_in_pieces),
      cmocka_unit_test(out_of_memory_by_a_limit_of_ones_own),
      cmocka_unit_test(retries_under_a_limit),
      cmocka_unit_test(emptying_the_cache_is_no_retry),
      cmocka_unit_test(fragmentation_and_the_setting_that_removes_it),
      cmocka_unit_test(memory_cached_for_another_stream),
      cmocka_unit_test(frees_that_wait_for_a_stream),
      cmocka_unit_test(pools_of_graphs),
      cmocka_unit_test(an_idle_cache),
      cmocka_unit_test(rounding_by_a_setting),
      cmocka_unit_test(no_history_is_said_and_the_end_explained),
      cmocka_unit_test(an_empty_device),
      cmocka_unit_test(a_history_that_begins_late),
      cmocka_unit_test(survives_running_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_simulate.c -- the memory of a step under a schedule.  (That it equals what a run of the plan needs: test_pass_json.c.) */
#include "rig.h"
#include "trace/lives.h"

/* Blocks of 1, 2, 3 and 4 MB. */
static net growing(void) {
  net n = net_chain(4, MB);
  for (int i = 0; i < 4; i++) n.ops[i].bytes *= (uint64_t)i + 1;
  return n;
}

static void with_everything_kept(void **state) {
  (void)state;
  net n = growing();
  rig r;
  rig_open(&r, &n);
  uint64_t outside = r.simulate.start_bytes;
  assert_int_equal(outside, 1024 + 2048);
  assert_int_equal(rig_run(&r), outside + 10 * MB); /* 1 + 2 + 3 saved and 4 the last output, later its gradient */
  assert_int_equal(r.simulate.live_bytes, outside);
  rig_close(&r);
}

static void a_dropped_block_lives_twice(void **state) {
  (void)state;
  net n = growing();
  rig r;
  rig_open(&r, &n);
  uint64_t kept = rig_run(&r), outside = r.simulate.start_bytes;
  uint32_t event = r.simulate.peak_event;
  assert_int_equal(rig_drop(&r, 0), kept - MB);
  assert_int_equal(r.simulate.live_bytes, outside);
  const tn__graph_block *b = rig_graph_block(&r, 0);
  assert_true(b->dropped_at < event && event < b->unpacked_at && b->unpacked_at < b->gone_at && b->gone_at < b->released_at);
  rig_close(&r);
}

static void the_profile_holds_each_event_s_most(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 100; round++) {
    net n = net_random(&seed, 6, 1);
    rig r;
    rig_open(&r, &n);
    rig_drop_some(&r, &seed);
    uint64_t most = 0;
    for (uint32_t e = r.graph.event_first; e < r.graph.event_end; e++)
      if (r.simulate.profile[e] > most) most = r.simulate.profile[e];
    assert_int_equal(most, r.simulate.peak_bytes);
    assert_int_equal(r.simulate.profile[r.simulate.peak_event], most);
    rig_close(&r);
  }
}

/* ---- naive: with everything kept, the sum of what tn__lives() says ------------------------------------------------------------ */

typedef struct naive { const tn__graph *graph; uint64_t live, peak; } naive;

static int naive_visit(void *user, tn__life_event life) {
  naive *n = user;
  n->live += life.is_alloc ? n->graph->block[life.block].bytes : 0;
  n->live -= life.is_alloc ? 0 : n->graph->block[life.block].bytes;
  if (life.event >= n->graph->event_first && n->live > n->peak) n->peak = n->live;
  return 0;
}

static void a_margin_is_room_at_its_event(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  net n = net_random(&seed, 8, 1);
  rig r;
  rig_open(&r, &n);
  uint64_t peak = rig_run(&r);
  uint32_t at = r.simulate.peak_event;
  r.simulate.margin[at] = 3 * MB;
  assert_int_equal(rig_run(&r), peak + 3 * MB);
  assert_int_equal(r.simulate.peak_event, at);
  assert_int_equal(r.simulate.profile[at], peak + 3 * MB);
  for (uint32_t e = r.graph.event_first; e < r.graph.event_end; e++) assert_true(e == at || r.simulate.profile[e] <= peak);
  r.simulate.margin[at] = 0;
  assert_int_equal(rig_run(&r), peak);
  rig_close(&r);
}

static void kept_it_is_the_sum_of_lives(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 300; round++) {
    net n = net_random(&seed, 6, 1);
    n.passes = 1 + (int)(tn_test_random(&seed) % 2);
    rig r;
    rig_open(&r, &n);
    naive sum = {.graph = &r.graph};
    assert_int_equal(tn__lives(r.trace, NULL, naive_visit, &sum), 0);
    assert_int_equal(rig_run(&r), sum.peak);
    assert_int_equal(r.simulate.live_bytes, r.simulate.start_bytes);
    rig_close(&r);
  }
}

/* ---- the sink ------------------------------------------------------------------------------------------------------------ */

typedef struct ledger {
  const tn__graph *graph;
  uint8_t live[1024];
  uint64_t bytes, peak;
  int calls, stop_at;
} ledger;

static int ledger_alloc(void *user, uint32_t key, uint64_t requested) {
  ledger *l = user;
  assert_false(l->live[key]);
  assert_int_equal(requested, l->graph->blocks[key / 2].bytes);
  l->live[key] = 1;
  l->bytes += l->graph->block[key / 2].bytes;
  if (l->bytes > l->peak) l->peak = l->bytes;
  return ++l->calls == l->stop_at ? TN_ELIMIT : 0;
}

static int ledger_free(void *user, uint32_t key) {
  ledger *l = user;
  assert_true(l->live[key]);
  l->live[key] = 0;
  l->bytes -= l->graph->block[key / 2].bytes;
  return 0;
}

static void the_sink_sees_every_allocation_and_free(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 200; round++) {
    net n = net_random(&seed, 6, 1);
    rig r;
    rig_open(&r, &n);
    rig_drop_some(&r, &seed);
    ledger l = {.graph = &r.graph, .bytes = r.simulate.start_bytes};
    for (uint32_t b = 0; b < r.graph.block_count; b++) l.live[2 * b] = (uint8_t)tn__simulate_starts_with(&r.simulate, b);
    tn__simulate_sink sink = {.user = &l, .alloc = ledger_alloc, .free = ledger_free};
    assert_int_equal(tn__simulate_run(&r.simulate, &r.schedule, &sink), 0);
    assert_int_equal(l.peak, r.simulate.peak_bytes);
    for (uint32_t b = 0; b < r.graph.block_count; b++) {
      assert_int_equal(l.live[2 * b], tn__simulate_starts_with(&r.simulate, b));
      assert_false(l.live[2 * b + 1]);
    }
    rig_close(&r);
  }
}

static void the_sink_can_stop_it(void **state) {
  (void)state;
  net n = growing();
  rig r;
  rig_open(&r, &n);
  rig_run(&r);
  ledger l = {.graph = &r.graph, .stop_at = 2};
  tn__simulate_sink sink = {.user = &l, .alloc = ledger_alloc, .free = ledger_free};
  assert_int_equal(tn__simulate_run(&r.simulate, &r.schedule, &sink), TN_ELIMIT);
  assert_int_equal(l.calls, 2);
  rig_close(&r);
}

/* ---- odd steps ----------------------------------------------------------------------------------------------------------- */

/* The user keeps the loss of each step: the graph of step 0, and with it its slot, lives on into step 1. */
static void a_slot_of_the_step_before_is_counted(void **state) {
  (void)state;
  net_writer w = {0};
  tn_profile profile = net_profile();
  tn__graph g;
  tn__schedule schedule;
  tn__simulate sim;
  net_must(tn_trace_new(&w.trace));
  for (int step = 0; step < 2; step++) {
    net_mark(&w, step ? "step:1" : "step:0");
    net_tensor t = {.block = net_block(&w, MB, TN_NONE)};
    t.value = net_value(&w, (tn_value){.block = t.block, .op = TN_NONE}, NULL, NULL);
    tn_slot slot = {.value = t.value, .block = t.block, .module = TN_NONE, .step = (uint8_t)step};
    net_must(tn_trace_add(w.trace, TN_TABLE_SLOT, &slot, 1));
    net_event(&w, TN_EVENT_PACK, w.slots++);
    net_event(&w, TN_EVENT_DROP, t.block);
    if (step) net_event(&w, TN_EVENT_RELEASE, 0);
  }
  net_must(tn_trace_check(w.trace, NULL));
  net_must(tn__graph_init(&g, w.trace, &profile, 0, NULL));
  net_must(tn__schedule_init(&schedule, &g));
  net_must(tn__simulate_init(&sim, &g));
  assert_int_equal(sim.start_bytes, MB);
  tn__schedule_build(&schedule);
  assert_int_equal(tn__simulate_run(&sim, &schedule, NULL), 0);
  assert_int_equal(sim.peak_bytes, 2 * MB);
  assert_int_equal(sim.live_bytes, MB); /* the second step's is still held */
  tn__simulate_deinit(&sim);
  tn__schedule_deinit(&schedule);
  tn__graph_deinit(&g);
  tn_trace_free(w.trace);
}

static int init_simulate(void *graph) {
  tn__simulate s;
  int rc = tn__simulate_init(&s, graph);
  if (rc == TN_OK) tn__simulate_deinit(&s);
  return rc;
}

static void out_of_memory(void **state) {
  (void)state;
  net n = growing();
  rig r;
  rig_open(&r, &n);
  assert_true(tn_test_sweep(init_simulate, &r.graph) >= 8);
  rig_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(with_everything_kept),
      cmocka_unit_test(a_dropped_block_lives_twice),
      cmocka_unit_test(the_profile_holds_each_event_s_most),
      cmocka_unit_test(a_margin_is_room_at_its_event),
      cmocka_unit_test(kept_it_is_the_sum_of_lives),
      cmocka_unit_test(the_sink_sees_every_allocation_and_free),
      cmocka_unit_test(the_sink_can_stop_it),
      cmocka_unit_test(a_slot_of_the_step_before_is_counted),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests_name("simulate", tests, NULL, NULL);
}

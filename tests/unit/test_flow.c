/* test_flow.c -- maximum flow against the cut it must equal, over all cuts of small random graphs. */
#include "plan/flow.h"

#include "helper.h"

enum { NODES = 8, EDGES = 20 };

typedef struct edge { uint32_t from, to; int64_t capacity; } edge;

/* The cheapest way to separate node 0 from node 1, by trying every side. */
static int64_t cheapest_cut(const edge *edges) {
  int64_t best = INT64_MAX;
  for (uint32_t side = 0; side < 1u << NODES; side++) {
    int64_t cut = 0;
    if (!(side & 1) || side & 2) continue;
    for (int i = 0; i < EDGES; i++)
      if (side >> edges[i].from & 1 && !(side >> edges[i].to & 1)) cut += edges[i].capacity;
    if (cut < best) best = cut;
  }
  return best;
}

static int64_t reached_cut(const tn__flow *flow, const edge *edges) {
  int64_t cut = 0;
  for (int i = 0; i < EDGES; i++)
    if (tn__flow_reaches(flow, edges[i].from) && !tn__flow_reaches(flow, edges[i].to)) cut += edges[i].capacity;
  return cut;
}

static void flow_equals_cheapest_cut(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 300; round++) {
    edge edges[EDGES];
    tn__flow flow;
    assert_int_equal(tn__flow_init(&flow, NODES, EDGES), TN_OK);
    for (int i = 0; i < EDGES; i++) {
      edges[i].from = (uint32_t)(tn_test_random(&seed) % NODES);
      edges[i].to = (uint32_t)(tn_test_random(&seed) % NODES);
      edges[i].capacity = (int64_t)(tn_test_random(&seed) % 50);
      tn__flow_add(&flow, edges[i].from, edges[i].to, edges[i].capacity);
    }
    int64_t expected = cheapest_cut(edges);
    assert_int_equal(tn__flow_run(&flow, 0, 1), expected);
    assert_int_equal(reached_cut(&flow, edges), expected);
    assert_int_equal(tn__flow_run(&flow, 0, 1), expected); /* from scratch, not on top of the last run */
    tn__flow_deinit(&flow);
  }
}

static void changed_capacity_counts(void **state) {
  (void)state;
  tn__flow flow;
  assert_int_equal(tn__flow_init(&flow, 3, 2), TN_OK);
  uint32_t first = tn__flow_add(&flow, 0, 2, 5);
  tn__flow_add(&flow, 2, 1, 9);
  assert_int_equal(tn__flow_run(&flow, 0, 1), 5);
  assert_true(!tn__flow_reaches(&flow, 2));
  tn__flow_set(&flow, first, 20);
  assert_int_equal(tn__flow_run(&flow, 0, 1), 9);
  assert_true(tn__flow_reaches(&flow, 2));
  tn__flow_deinit(&flow);
}

static int make_and_free(void *user) {
  (void)user;
  tn__flow flow;
  int rc = tn__flow_init(&flow, 10, 10);
  if (rc == TN_OK) tn__flow_deinit(&flow);
  return rc;
}

static void out_of_memory(void **state) {
  (void)state;
  assert_true(tn_test_sweep(make_and_free, NULL) >= 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(flow_equals_cheapest_cut), cmocka_unit_test(changed_capacity_counts),
                                     cmocka_unit_test(out_of_memory)};
  return cmocka_run_group_tests_name("flow", tests, NULL, NULL);
}

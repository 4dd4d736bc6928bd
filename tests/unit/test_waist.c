/* test_waist.c -- the narrow places of a forward pass. */
#include "plan/waist.h"
#include "rig.h"

/* Layers of three ops: wide, wide, narrow; each reads the one before, and the last of a layer also the first's input (a residual). */
static net layers(int count) {
  net n = {.count = 3 * count};
  for (int i = 0; i < n.count; i++) {
    n.ops[i] = net_layer((i % 3 == 2 ? 1 : 8) * MB, 1e-4, i ? i - 1 : NET_BATCH);
    if (i % 3 == 2 && i > 2) n.ops[i].inputs[1] = i - 3;
  }
  n.ops[0].saves_input = 0;
  return n;
}

static uint32_t find(rig *r, uint32_t **waist) {
  uint32_t count = 0;
  *waist = calloc(r->graph.block_count + 1, sizeof **waist);
  assert_non_null(*waist);
  net_must(tn__waists_find(&r->graph, *waist, &count));
  return count;
}

static void the_ends_of_layers_are_waists(void **state) {
  (void)state;
  net n = layers(4);
  uint32_t *waist;
  rig r;
  rig_open(&r, &n);
  assert_int_equal(find(&r, &waist), 3); /* after layers 0, 1 and 2; nothing crosses after the last */
  for (uint32_t i = 0; i < 3; i++) {
    assert_int_equal(waist[rig_block(&r, 3 * i + 2, 0)], i);
    assert_int_equal(waist[rig_block(&r, 3 * i, 0)], TN_NONE);
    assert_int_equal(waist[rig_block(&r, 3 * i + 1, 0)], TN_NONE);
  }
  assert_int_equal(waist[rig_block(&r, 11, 0)], TN_NONE);
  assert_int_equal(waist[0], TN_NONE); /* the batch */
  free(waist);
  rig_close(&r);
}

/* What has no slot cannot be kept, so there is no waist where it crosses, unless it is small: then it is made again on the way. */
static void what_cannot_be_kept_spoils_it(void **state) {
  (void)state;
  net n = layers(4);
  uint32_t *waist;
  rig r;
  n.ops[6].saves_input = 0;
  rig_open(&r, &n);
  find(&r, &waist);
  assert_int_equal(waist[rig_block(&r, 5, 0)], TN_NONE);
  assert_int_not_equal(waist[rig_block(&r, 4, 0)], TN_NONE); /* the next best place */
  free(waist);
  rig_close(&r);
  n.ops[5].bytes = 64;
  rig_open(&r, &n);
  find(&r, &waist);
  assert_int_not_equal(waist[rig_block(&r, 5, 0)], TN_NONE);
  free(waist);
  rig_close(&r);
}

static void only_the_last_pass_has_them(void **state) {
  (void)state;
  net n = layers(3);
  n.passes = 2;
  uint32_t *waist;
  rig r;
  rig_open(&r, &n);
  assert_int_equal(find(&r, &waist), 2);
  assert_int_equal(waist[rig_block(&r, 2, 0)], TN_NONE);
  assert_int_equal(waist[rig_block(&r, 18 + 2, 0)], 0);
  free(waist);
  rig_close(&r);
}

static int find_once(void *graph) {
  const tn__graph *g = graph;
  uint32_t count, *waist = calloc(g->block_count + 1, sizeof *waist);
  int rc = tn__waists_find(g, waist, &count);
  free(waist);
  return rc;
}

static void out_of_memory(void **state) {
  (void)state;
  net n = layers(2);
  rig r;
  rig_open(&r, &n);
  assert_int_equal(tn_test_sweep(find_once, &r.graph), 3);
  rig_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_ends_of_layers_are_waists),
      cmocka_unit_test(what_cannot_be_kept_spoils_it),
      cmocka_unit_test(only_the_last_pass_has_them),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests_name("waist", tests, NULL, NULL);
}

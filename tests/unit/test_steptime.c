/* test_steptime.c -- the parts of a step: every op is in one of them, and rebuilding adds to its own pass. */
#include "helper.h"
#include "plan/steptime.h"
#include "rig.h"

static net layered(int layers) {
  net n = {.count = 2 * layers};
  for (int i = 0; i < layers; i++) {
    n.ops[2 * i] = net_layer(4 * MB, 1e-3, 2 * i - 1);
    n.ops[2 * i + 1] = net_layer(4 * MB, 1e-5, 2 * i);
  }
  return n;
}

static double device_seconds(const rig *r, uint32_t pass) {
  double sum = 0;
  for (size_t i = 0; i < r->graph.op_count; i++)
    if (r->graph.ops[i].step == r->graph.step && r->graph.ops[i].pass == pass) sum += tn_profile_op_seconds(&r->profile, &r->graph.ops[i]);
  return sum;
}

static void test_parts(void **state) {
  (void)state;
  rig r;
  net n = layered(4);
  rig_open(&r, &n);
  tn__steptime kept = tn__steptime_of(&r.graph, NULL);
  assert_double_near(kept.first_pass.device_s + kept.optimizer.device_s, device_seconds(&r, 0), 1e-7);
  assert_memory_equal(&kept.first_pass, &kept.last_pass, sizeof kept.first_pass);
  rig_close(&r);
}

/* Ops run again count once each, when backward asks for them. */
static void test_rebuilding(void **state) {
  (void)state;
  rig r;
  net n = layered(6);
  uint64_t seed = 3;
  rig_open(&r, &n);
  r.profile.host_op_s = 0;
  r.profile.host_rebuild_s = 1;
  for (int round = 0; round < 20; round++) {
    rig_drop_some(&r, &seed);
    tn__steptime kept = tn__steptime_of(&r.graph, NULL), planned = tn__steptime_of(&r.graph, &r.schedule);
    assert_double_near(planned.last_pass.device_s - kept.last_pass.device_s, r.schedule.seconds, 1e-7);
    assert_double_near(planned.last_pass.host_s, (double)r.schedule.run_count, 1e-7);
    assert_true(planned.last_pass.length_s >= planned.last_pass.device_s);
  }
  rig_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_rebuilding)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

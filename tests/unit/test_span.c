/* test_span.c -- rows of ops against two clocks that are followed op by op. */
#include "helper.h"
#include "plan/span.h"

typedef struct clocks {
  double host, device;
} clocks;

static void op(clocks *c, double host_s, double device_s) {
  c->host += host_s;
  c->device = (c->device > c->host ? c->device : c->host) + device_s;
}

static double some(uint64_t *seed) { return (double)(tn_test_random(seed) % 100); }

/* However a row is cut, its spans put together give what the clocks show. */
static void test_then_and_repeat(void **state) {
  (void)state;
  uint64_t seed = 7;
  for (int round = 0; round < 200; round++) {
    double host[12], device[12];
    clocks c = {0};
    tn_span halves[2] = {{0}};
    uint32_t count = (uint32_t)(tn_test_random(&seed) % 4);
    for (int i = 0; i < 12; i++) {
      host[i] = some(&seed);
      device[i] = some(&seed);
      tn__span_add(&halves[i >= 5], host[i], device[i]);
    }
    for (int i = 0; i < 5; i++) op(&c, host[i], device[i]);
    for (uint32_t k = 0; k < count; k++)
      for (int i = 5; i < 12; i++) op(&c, host[i], device[i]);
    tn_span all = tn__span_then(halves[0], tn__span_repeat(halves[1], count));
    assert_double_near(all.length_s, c.device, 1e-9);
    assert_double_near(all.host_s, c.host, 1e-9);
  }
}

/* A lead is kept: three slow ops of the device hide three slow ops of the host that follow. */
static void test_lead(void **state) {
  (void)state;
  tn_span slow_device = {0}, slow_host = {0};
  for (int i = 0; i < 3; i++) {
    tn__span_add(&slow_device, 1, 10);
    tn__span_add(&slow_host, 10, 1);
  }
  assert_double_near(slow_device.length_s, 31, 1e-9);
  assert_double_near(slow_host.length_s, 31, 1e-9);
  assert_double_near(tn__span_then(slow_device, slow_host).length_s, 34, 1e-9);
  assert_double_near(tn__span_then(slow_host, slow_device).length_s, 61, 1e-9);
}

static void test_scaled(void **state) {
  (void)state;
  tn_span span = {.host_s = 4, .device_s = 10, .length_s = 11};
  assert_double_near(tn__span_scaled(span, 0.5).length_s, 5.5, 1e-9);
  assert_double_near(tn__span_scaled(span, 0.1).length_s, 4, 1e-9);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_then_and_repeat), cmocka_unit_test(test_lead), cmocka_unit_test(test_scaled)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

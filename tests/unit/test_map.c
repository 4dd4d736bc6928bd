/* map: random operations against a naive model, and running out of memory. */
#include "base/map.h"

#include "helper.h"

enum { KEYS = 600 };

static void check_against(const tn_map *map, const uint64_t *keys, const uint32_t *model) {
  size_t count = 0, pos = 0, seen = 0;
  for (int i = 0; i < KEYS; i++) {
    assert_int_equal(tn__map_get(map, keys[i]), model[i]);
    count += model[i] != TN_NONE;
  }
  assert_int_equal(map->count, count);
  uint64_t key = 0;
  uint32_t value = 0;
  while (tn__map_next(map, &pos, &key, &value)) {
    assert_int_equal(tn__map_get(map, key), value);
    seen++;
  }
  assert_int_equal(seen, count);
}

static void random_operations_match_a_plain_array(void **state) {
  (void)state;
  uint64_t random = tn_test_seed(), keys[KEYS];
  uint32_t model[KEYS];
  /* Addresses 512 apart, small ids, and the extremes: what the callers use. */
  for (int i = 0; i < KEYS; i++) {
    keys[i] = i < 200 ? 0x7f0000000000u + (uint64_t)i * 512 : i < 400 ? (uint64_t)i : UINT64_MAX - (uint64_t)i;
    model[i] = TN_NONE;
  }
  keys[200] = 0;
  keys[400] = UINT64_MAX;
  tn_map map;
  tn__map_init(&map);
  check_against(&map, keys, model);
  for (int i = 0; i < 60000; i++) {
    uint64_t dice = tn_test_random(&random);
    size_t at = (size_t)(dice >> 32) % KEYS;
    /* Long stretches of mostly filling and mostly emptying. */
    if (dice % 100 < ((i / 5000) % 2 ? 30u : 70u)) {
      uint32_t value = (uint32_t)(tn_test_random(&random) % TN_NONE);
      assert_int_equal(tn__map_set(&map, keys[at], value), TN_OK);
      model[at] = value;
    } else {
      assert_int_equal(tn__map_remove(&map, keys[at]), model[at]);
      model[at] = TN_NONE;
    }
    if (i % 500 == 0) check_against(&map, keys, model);
  }
  tn__map_clear(&map);
  for (int i = 0; i < KEYS; i++) model[i] = TN_NONE;
  check_against(&map, keys, model);
  tn__map_deinit(&map);
}

static void absent_cannot_be_stored(void **state) {
  (void)state;
  tn_map map;
  tn__map_init(&map);
  assert_int_equal(tn__map_set(&map, 1, TN_NONE), TN_EINVAL);
  assert_int_equal(tn__map_get(&map, 1), TN_NONE);
  assert_int_equal(tn__map_remove(&map, 1), TN_NONE);
  tn__map_deinit(&map);
}

static int fill(void *user) {
  (void)user;
  tn_map map;
  tn__map_init(&map);
  int rc = TN_OK;
  uint32_t count = 0;
  while (count < 500 && !(rc = tn__map_set(&map, count * 4096ull, count))) count++;
  assert_int_equal(map.count, count);
  for (uint32_t i = 0; i < count; i++) assert_int_equal(tn__map_get(&map, i * 4096ull), i);
  tn__map_deinit(&map);
  return rc;
}

static void out_of_memory_leaves_it_as_it_was(void **state) {
  (void)state;
  assert_true(tn_test_sweep(fill, NULL) > 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_operations_match_a_plain_array),
      cmocka_unit_test(absent_cannot_be_stored),
      cmocka_unit_test(out_of_memory_leaves_it_as_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

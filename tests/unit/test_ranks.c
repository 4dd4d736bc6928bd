/* ranks: random operations against a plain array, at sizes around the words' borders. */
#include "explain/ranks.h"

#include "helper.h"

static uint32_t from(const uint8_t *model, uint32_t limit, uint32_t number) {
  for (; number < limit; number++)
    if (model[number]) return number;
  return TN_NONE;
}

static uint32_t up_to(const uint8_t *model, uint32_t limit, uint32_t number) {
  for (uint32_t at = number < limit ? number + 1 : limit; at-- > 0;)
    if (model[at]) return at;
  return TN_NONE;
}

static void run(uint32_t limit, uint64_t *seed) {
  tn__ranks ranks;
  assert_int_equal(tn__ranks_init(&ranks, limit), TN_OK);
  uint8_t *model = calloc(limit + 1, 1);
  for (int i = 0; i < 3000; i++) {
    uint32_t number = limit ? (uint32_t)(tn_test_random(seed) % limit) : 0;
    int sparse = i / 500 % 2; /* dense for a while, then nearly empty */
    if (limit && tn_test_random(seed) % 4 < (sparse ? 1 : 3)) {
      tn__ranks_add(&ranks, number);
      model[number] = 1;
    } else if (limit) {
      tn__ranks_remove(&ranks, number);
      model[number] = 0;
    }
    uint32_t asked = (uint32_t)(tn_test_random(seed) % (limit + 3));
    assert_int_equal(tn__ranks_from(&ranks, asked), from(model, limit, asked));
    assert_int_equal(tn__ranks_up_to(&ranks, asked), up_to(model, limit, asked));
    assert_int_equal(tn__ranks_has(&ranks, asked), asked < limit && model[asked]);
  }
  free(model);
  tn__ranks_deinit(&ranks);
}

static void random_operations_match_a_plain_array(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  static const uint32_t limits[] = {0, 1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 5000};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) run(limits[i], &seed);
}

/* 64^3 and a bit: four levels, most words empty. */
static void far_apart(void **state) {
  (void)state;
  enum { LIMIT = 262144 + 70 };
  tn__ranks ranks;
  assert_int_equal(tn__ranks_init(&ranks, LIMIT), TN_OK);
  tn__ranks_add(&ranks, 3);
  tn__ranks_add(&ranks, LIMIT - 1);
  assert_int_equal(tn__ranks_from(&ranks, 4), LIMIT - 1);
  assert_int_equal(tn__ranks_up_to(&ranks, LIMIT - 2), 3);
  tn__ranks_remove(&ranks, LIMIT - 1);
  assert_int_equal(tn__ranks_from(&ranks, 4), TN_NONE);
  assert_int_equal(tn__ranks_up_to(&ranks, UINT32_MAX), 3);
  tn__ranks_deinit(&ranks);
}

static int scenario(void *user) {
  (void)user;
  tn__ranks ranks;
  int rc = tn__ranks_init(&ranks, 100);
  if (!rc) tn__ranks_deinit(&ranks);
  return rc;
}

static void survives_running_out_of_memory(void **state) {
  (void)state;
  assert_int_equal(tn_test_sweep(scenario, NULL), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_operations_match_a_plain_array),
      cmocka_unit_test(far_apart),
      cmocka_unit_test(survives_running_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

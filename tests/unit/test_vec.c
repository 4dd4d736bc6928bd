/* vec: growth, overflow, and running out of memory. */
#include "base/vec.h"

#include "helper.h"

static void pushes_keep_order_and_values(void **state) {
  (void)state;
  tn_vec vec;
  tn__vec_init(&vec, sizeof(uint32_t));
  for (uint32_t i = 0; i < 10000; i++) assert_int_equal(tn__vec_push(&vec, &i), TN_OK);
  assert_int_equal(vec.count, 10000);
  for (uint32_t i = 0; i < 10000; i++) assert_int_equal(TN_VEC(&vec, uint32_t)[i], i);
  uint32_t last = 0;
  tn__vec_pop(&vec, &last);
  assert_int_equal(last, 9999);
  tn__vec_pop(&vec, NULL);
  assert_int_equal(vec.count, 9998);
  assert_int_equal(*(uint32_t *)tn__vec_at(&vec, 9997), 9997);
  tn__vec_clear(&vec);
  assert_int_equal(vec.count, 0);
  assert_true(vec.capacity >= 10000);
  tn__vec_deinit(&vec);
  assert_null(vec.data);
  assert_int_equal(tn__vec_push(&vec, &last), TN_OK); /* usable again */
  tn__vec_deinit(&vec);
}

static void new_items_are_zero_even_in_reused_memory(void **state) {
  (void)state;
  tn_vec vec;
  tn__vec_init(&vec, sizeof(uint64_t));
  uint64_t ones = UINT64_MAX;
  for (int i = 0; i < 20; i++) assert_int_equal(tn__vec_push(&vec, &ones), TN_OK);
  tn__vec_clear(&vec);
  assert_int_equal(tn__vec_resize(&vec, 10), TN_OK);
  for (size_t i = 0; i < 10; i++) assert_int_equal(TN_VEC(&vec, uint64_t)[i], 0);
  uint64_t *added = tn__vec_add(&vec);
  assert_non_null(added);
  assert_int_equal(*added, 0);
  assert_int_equal(tn__vec_resize(&vec, 3), TN_OK);
  assert_int_equal(vec.count, 3);
  tn__vec_deinit(&vec);
}

static void sizes_that_overflow_are_refused(void **state) {
  (void)state;
  tn_vec vec;
  tn__vec_init(&vec, 64);
  assert_int_equal(tn__vec_reserve(&vec, SIZE_MAX), TN_ENOMEM);
  assert_int_equal(tn__vec_reserve(&vec, SIZE_MAX / 64 + 1), TN_ENOMEM);
  assert_non_null(tn__vec_add(&vec));
  assert_int_equal(tn__vec_reserve(&vec, SIZE_MAX), TN_ENOMEM);
  assert_int_equal(vec.count, 1);
  tn__vec_deinit(&vec);
}

static void appending_nothing_from_nowhere_is_legal(void **state) {
  (void)state;
  tn_vec vec;
  tn__vec_init(&vec, 4);
  assert_int_equal(tn__vec_append(&vec, NULL, 0), TN_OK);
  assert_null(vec.data);
  tn__vec_deinit(&vec);
}

static int grow(void *user) {
  (void)user;
  tn_vec vec;
  tn__vec_init(&vec, sizeof(uint32_t));
  int rc = TN_OK;
  for (uint32_t i = 0; i < 1000 && !rc; i++) {
    size_t before = vec.count;
    rc = tn__vec_push(&vec, &i);
    assert_int_equal(vec.count, rc ? before : before + 1);
  }
  for (size_t i = 0; i < vec.count; i++) assert_int_equal(TN_VEC(&vec, uint32_t)[i], i);
  tn__vec_deinit(&vec);
  return rc;
}

static void out_of_memory_leaves_it_as_it_was(void **state) {
  (void)state;
  assert_true(tn_test_sweep(grow, NULL) > 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pushes_keep_order_and_values),
      cmocka_unit_test(new_items_are_zero_even_in_reused_memory),
      cmocka_unit_test(sizes_that_overflow_are_refused),
      cmocka_unit_test(appending_nothing_from_nowhere_is_legal),
      cmocka_unit_test(out_of_memory_leaves_it_as_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* mem: the injected failure hits the n-th allocation and no other. */
#include "base/mem.h"

#include "helper.h"

static void the_nth_allocation_fails_once(void **state) {
  (void)state;
  tn__mem_fail_at(2);
  void *first = tn__mem_alloc(8);
  assert_non_null(first);
  assert_null(tn__mem_realloc(first, 16)); /* first stays valid */
  assert_true(tn__mem_fail_fired());
  void *third = tn__mem_zalloc(4, 4);
  assert_non_null(third);
  tn__mem_fail_at(0);
  assert_false(tn__mem_fail_fired());
  tn__mem_free(first);
  tn__mem_free(third);
}

static void live_counts_what_was_not_given_back(void **state) {
  (void)state;
  int64_t before = tn__mem_live();
  char *copy = tn__mem_strdup("copy");
  assert_string_equal(copy, "copy");
  copy = tn__mem_realloc(copy, 100);
  assert_int_equal(tn__mem_live(), before + 1);
  tn__mem_free(copy);
  tn__mem_free(NULL);
  assert_int_equal(tn__mem_live(), before);
}

static void sizes_of_zero_and_beyond(void **state) {
  (void)state;
  void *empty = tn__mem_alloc(0), *none = tn__mem_zalloc(0, 8);
  assert_non_null(empty);
  assert_non_null(none);
  tn__mem_free(empty);
  tn__mem_free(none);
  assert_null(tn__mem_realloc_array(NULL, SIZE_MAX / 2, 4));
  char *cut = tn__mem_strndup("abc", 2);
  assert_string_equal(cut, "ab");
  tn__mem_free(cut);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_nth_allocation_fails_once),
      cmocka_unit_test(live_counts_what_was_not_given_back),
      cmocka_unit_test(sizes_of_zero_and_beyond),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

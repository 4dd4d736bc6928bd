/* strings: ids are dense and stable, duplicates, long texts, running out of memory. */
#include "base/strings.h"

#include "helper.h"

static uint32_t intern(tn_strings *strings, const char *text) {
  uint32_t id = TN_NONE;
  assert_int_equal(tn__strings_intern(strings, text, strlen(text), &id), TN_OK);
  return id;
}

static void ids_are_dense_and_id_0_is_empty(void **state) {
  (void)state;
  tn_strings strings;
  assert_int_equal(tn__strings_init(&strings), TN_OK);
  assert_int_equal(tn__strings_count(&strings), 1);
  assert_int_equal(intern(&strings, ""), 0);
  assert_int_equal(intern(&strings, "a"), 1);
  assert_int_equal(intern(&strings, "b"), 2);
  assert_int_equal(intern(&strings, "a"), 1);
  assert_string_equal(tn__strings_get(&strings, 2), "b");
  assert_string_equal(tn__strings_get(&strings, 99), "");
  assert_int_equal(tn__strings_find(&strings, "c", 1), TN_NONE);
  assert_int_equal(tn__strings_find(&strings, "ab", 1), 1); /* len counts, not the NUL */
  tn__strings_deinit(&strings);
}

static void appended_duplicates_get_new_ids_and_are_found_under_the_first(void **state) {
  (void)state;
  tn_strings strings;
  assert_int_equal(tn__strings_init(&strings), TN_OK);
  uint32_t id = 0;
  for (uint32_t i = 1; i <= 3; i++) {
    assert_int_equal(tn__strings_append(&strings, "same", 4, &id), TN_OK);
    assert_int_equal(id, i);
  }
  assert_int_equal(intern(&strings, "same"), 1);
  assert_string_equal(tn__strings_get(&strings, 3), "same");
  tn__strings_deinit(&strings);
}

static void addresses_stay_while_the_table_grows(void **state) {
  (void)state;
  tn_strings strings;
  assert_int_equal(tn__strings_init(&strings), TN_OK);
  const char *first = tn__strings_get(&strings, intern(&strings, "first"));
  char *big = malloc(300001); /* more than a chunk */
  memset(big, 'x', 300000);
  big[300000] = '\0';
  uint32_t big_id = intern(&strings, big);
  char text[32];
  for (int i = 0; i < 50000; i++) {
    snprintf(text, sizeof text, "encoder.layer.%d", i);
    assert_int_equal(intern(&strings, text), 3 + i);
  }
  for (int i = 0; i < 50000; i += 7) {
    snprintf(text, sizeof text, "encoder.layer.%d", i);
    assert_int_equal(tn__strings_find(&strings, text, strlen(text)), 3 + i);
  }
  assert_ptr_equal(tn__strings_get(&strings, 1), first);
  assert_string_equal(first, "first");
  assert_string_equal(tn__strings_get(&strings, big_id), big);
  free(big);
  tn__strings_deinit(&strings);
}

static int fill(void *user) {
  (void)user;
  tn_strings strings;
  int rc = tn__strings_init(&strings);
  if (rc) return rc;
  char text[4000];
  memset(text, 'y', sizeof text);
  for (uint32_t i = 0; i < 100 && !rc; i++) {
    memcpy(text, &(uint32_t){i + 0x01010101}, 4);
    uint32_t id = TN_NONE;
    rc = tn__strings_intern(&strings, text, sizeof text, &id);
    assert_int_equal(id, rc ? TN_NONE : i + 1);
    assert_int_equal(tn__strings_count(&strings), rc ? i + 1 : i + 2);
  }
  tn__strings_deinit(&strings);
  return rc;
}

static void out_of_memory_leaves_it_as_it_was(void **state) {
  (void)state;
  assert_true(tn_test_sweep(fill, NULL) > 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ids_are_dense_and_id_0_is_empty),
      cmocka_unit_test(appended_duplicates_get_new_ids_and_are_found_under_the_first),
      cmocka_unit_test(addresses_stay_while_the_table_grows),
      cmocka_unit_test(out_of_memory_leaves_it_as_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

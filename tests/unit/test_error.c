/* error: the list, and one-line messages. */
#include "base/error.h"

#include "helper.h"

static void names_texts_and_statuses_come_from_the_list(void **state) {
  (void)state;
  assert_string_equal(tn_error_name(TN_EINVAL), "TN_EINVAL");
  assert_string_equal(tn_error_name(TN_OK), "TN_OK");
  assert_string_equal(tn_error_name(-999), "?");
  assert_string_equal(tn_error_text(TN_EINFEASIBLE), "no plan fits the budget");
  assert_int_equal(tn_error_status(TN_OK), 0);
  assert_int_equal(tn_error_status(TN_EINFEASIBLE), 1);
  assert_int_equal(tn_error_status(TN_EFORMAT), 2);
  assert_int_equal(tn_error_status(TN_EDEVICE), 3);
  assert_int_equal(tn_error_status(TN_EPERM), 4);
  assert_int_equal(tn_error_status(TN_EPARTIAL), 5);
}

static void codes_are_distinct_and_negative(void **state) {
  (void)state;
  static const int codes[] = {
#define CODE(name, value, status, text) name,
      TN_ERRORS(CODE)
#undef CODE
  };
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    assert_true(codes[i] < 0);
    assert_in_range(tn_error_status(codes[i]), 1, 5);
    for (size_t k = 0; k < i; k++) assert_int_not_equal(codes[i], codes[k]);
  }
}

static void set_returns_its_code_and_fills(void **state) {
  (void)state;
  tn_error err;
  memset(&err, 0xff, sizeof err);
  assert_int_equal(tn__error_set(&err, TN_EIO, "cannot open %s", "x"), TN_EIO);
  assert_int_equal(err.code, TN_EIO);
  assert_string_equal(err.msg, "cannot open x");
  assert_int_equal(err.offset, 0);
  assert_int_equal(err.record, 0);
  assert_int_equal(tn__error_set_at(&err, TN_EFORMAT, 17, 3, "bad"), TN_EFORMAT);
  assert_int_equal(err.offset, 17);
  assert_int_equal(err.record, 3);
  assert_int_equal(tn__error_set(NULL, TN_EIO, "ignored"), TN_EIO);
  assert_int_equal(tn__error_set_at(NULL, TN_EIO, 1, 2, "ignored"), TN_EIO);
  tn__error_set(&err, TN_ENOMEM, NULL);
  assert_string_equal(err.msg, "out of host memory");
}

static void messages_stay_one_line_whatever_they_quote(void **state) {
  (void)state;
  tn_error err;
  tn__error_set(&err, TN_EINVAL, "%s", "a\nb\x1b[31mc\x7f");
  assert_string_equal(err.msg, "a?b?[31mc?");
  char big[1000];
  memset(big, 'x', sizeof big - 1);
  big[sizeof big - 1] = '\0';
  tn__error_set(&err, TN_EINVAL, "%s", big);
  assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
}

static int try_twice(int first, int second) {
  TN_TRY(first);
  TN_TRY(second);
  return 7;
}

static void try_returns_the_first_failure(void **state) {
  (void)state;
  assert_int_equal(try_twice(TN_OK, TN_OK), 7);
  assert_int_equal(try_twice(TN_EIO, TN_EPERM), TN_EIO);
  assert_int_equal(try_twice(TN_OK, TN_EPERM), TN_EPERM);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_texts_and_statuses_come_from_the_list),
      cmocka_unit_test(codes_are_distinct_and_negative),
      cmocka_unit_test(set_returns_its_code_and_fills),
      cmocka_unit_test(messages_stay_one_line_whatever_they_quote),
      cmocka_unit_test(try_returns_the_first_failure),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

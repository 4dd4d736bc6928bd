/* text: building, tabs, wrapping, JSON strings, and lost additions. */
#include "base/text.h"

#include "helper.h"

static void expect(tn_text *text, const char *want) {
  char *got = NULL;
  assert_int_equal(tn__text_take(text, &got), TN_OK);
  assert_string_equal(got, want);
  tn_text_free(got);
}

static void additions_of_every_kind(void **state) {
  (void)state;
  tn_text text;
  tn__text_init(&text);
  assert_string_equal(tn__text_view(&text), "");
  expect(&text, "");
  tn__text_add(&text, "a");
  tn__text_add_n(&text, "bcd", 2);
  tn__text_fill(&text, '-', 3);
  tn__text_fill(&text, '-', 0);
  tn__text_printf(&text, "%d%s", 42, "!");
  tn__text_size(&text, 1536);
  assert_string_equal(tn__text_view(&text), "abc---42!1.50 KiB");
  expect(&text, "abc---42!1.50 KiB");
  tn__text_printf(&text, "%0*d", 1000, 7); /* longer than printf's first buffer */
  assert_int_equal(strlen(tn__text_view(&text)), 1000);
  assert_int_equal(tn__text_view(&text)[999], '7');
  tn__text_deinit(&text);
}

static void every_length_around_a_growth_keeps_its_nul(void **state) {
  (void)state;
  for (size_t len = 0; len < 600; len++) {
    tn_text text;
    tn__text_init(&text);
    for (size_t i = 0; i < len; i++) tn__text_add(&text, "x");
    assert_int_equal(strlen(tn__text_view(&text)), len);
    tn__text_deinit(&text);
    tn__text_fill(&text, 'y', len);
    tn__text_printf(&text, "%*s", (int)len, "");
    assert_int_equal(strlen(tn__text_view(&text)), 2 * len);
    tn__text_deinit(&text);
  }
}

static void tabs_count_from_the_line_start(void **state) {
  (void)state;
  tn_text text;
  tn__text_init(&text);
  tn__text_add(&text, "first line\nab");
  tn__text_tab(&text, 4);
  tn__text_add(&text, "c\n");
  tn__text_tab(&text, 2);
  tn__text_add(&text, "longer");
  tn__text_tab(&text, 4);
  tn__text_add(&text, "d\n");
  tn__text_tab(&text, 0);
  expect(&text, "first line\nab  c\n  longer d\n");
}

static void words_wrap_at_the_width(void **state) {
  (void)state;
  tn_text text;
  tn__text_init(&text);
  tn__text_add(&text, "  key  ");
  tn__text_wrap(&text, "one two three  four\nfive", 7, 16);
  expect(&text, "  key  one two\n       three\n       four five");
  tn__text_wrap(&text, "averyverylongword next", 2, 8);
  expect(&text, "averyverylongword\n  next");
  tn__text_wrap(&text, "", 2, 8);
  expect(&text, "");
}

static void json_strings_are_escaped(void **state) {
  (void)state;
  tn_text text;
  tn__text_init(&text);
  tn__text_json(&text, "a\"b\\c\nd\te\x01 \xc3\xa9");
  expect(&text, "\"a\\\"b\\\\c\\nd\\u0009e\\u0001 \xc3\xa9\"");
}

static int build(void *user) {
  (void)user;
  tn_text text;
  tn__text_init(&text);
  for (int i = 0; i < 50; i++) tn__text_printf(&text, "line %d %0*d\n", i, i * 10, 1);
  char *out = NULL;
  int rc = tn__text_take(&text, &out);
  if (rc) assert_null(out);
  tn_text_free(out);
  tn__text_deinit(&text);
  return rc;
}

/* A report that lost one line and went on would be wrong without a sign. */
static void a_lost_addition_is_remembered(void **state) {
  (void)state;
  assert_true(tn_test_sweep(build, NULL) > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(additions_of_every_kind),
      cmocka_unit_test(every_length_around_a_growth_keeps_its_nul),
      cmocka_unit_test(tabs_count_from_the_line_start),
      cmocka_unit_test(words_wrap_at_the_width),
      cmocka_unit_test(json_strings_are_escaped),
      cmocka_unit_test(a_lost_addition_is_remembered),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

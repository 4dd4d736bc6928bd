/* test_utf8.c -- what is UTF-8, and what Python writes beyond it. */
#include "helper.h"

#include "snapshot/utf8.h"

static void expect(const char *text, size_t len, enum tn__utf8 wanted, size_t bad) {
  size_t found_bad = 99;
  enum tn__utf8 found = tn__utf8_check(text, len, &found_bad);
  if (found != wanted) fail_msg("\"%s\": %d, expected %d", text, found, wanted);
  if (wanted == TN__UTF8_BAD) assert_int_equal(found_bad, bad);
}

static void good_texts(void **state) {
  (void)state;
  expect("", 0, TN__UTF8_GOOD, 0);
  expect("plain text of some length", 25, TN__UTF8_GOOD, 0);
  expect("\xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\xa2", 9, TN__UTF8_GOOD, 0);
  expect("\xf4\x8f\xbf\xbf", 4, TN__UTF8_GOOD, 0); /* the last code point */
  expect("1234567\x01\x7f", 9, TN__UTF8_GOOD, 0);
}

static void texts_to_mend(void **state) {
  (void)state;
  char nul[] = "a\0b1234567\0";
  expect(nul, sizeof nul, TN__UTF8_MENDABLE, 0);
  tn__utf8_mend(nul, sizeof nul);
  assert_memory_equal(nul, "a?b1234567??", sizeof nul);
  char lone[] = "x\xed\xb2\x80y"; /* how Python has byte 0x80 of a file name */
  expect(lone, 5, TN__UTF8_MENDABLE, 0);
  tn__utf8_mend(lone, 5);
  assert_string_equal(lone, "x\xef\xbf\xbdy");
}

static void bad_texts(void **state) {
  (void)state;
  static const char *const bad[] = {"\x80", "\xc3",     "\xc0\x80", "\xe0\x9f\x80",    "\xf0\x8f\x80\x80", "\xf4\x90\x80\x80",
                                    "\xff", "\xe2\x82", "\xc3(",    "\xf5\x80\x80\x80"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char text[32];
    int len = snprintf(text, sizeof text, "12345678-%s", bad[i]);
    expect(bad[i], strlen(bad[i]), TN__UTF8_BAD, 0);
    expect(text, (size_t)len, TN__UTF8_BAD, 9);
  }
}

/* Every code point comes back, and no other four bytes are taken for text. */
static void put_and_check_agree(void **state) {
  (void)state;
  for (uint32_t code = 1; code < 0x110000; code++) {
    char bytes[4];
    size_t bad, len = tn__utf8_put(code, bytes);
    enum tn__utf8 wanted = code >= 0xd800 && code <= 0xdfff ? TN__UTF8_MENDABLE : TN__UTF8_GOOD;
    if (tn__utf8_check(bytes, len, &bad) != wanted) fail_msg("U+%04X", code);
    if (len > 1 && tn__utf8_check(bytes, len - 1, &bad) != TN__UTF8_BAD) fail_msg("U+%04X cut short", code);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(good_texts),
      cmocka_unit_test(texts_to_mend),
      cmocka_unit_test(bad_texts),
      cmocka_unit_test(put_and_check_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

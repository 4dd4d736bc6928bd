/* test_snapshot_json.c -- snapshots as JSON. */
#include "snapshot_text.h"

static void expect_label(const char *json_text, const char *expected) {
  char entry[512];
  (void)snprintf(entry, sizeof entry, "{\"action\": \"alloc\", \"user_metadata\": %s}", json_text);
  tn_trace *trace = snapshot_entries(entry);
  const tn_entry *entries = snapshot_table(trace, TN_TABLE_ENTRY, 1);
  assert_string_equal(tn_trace_string(trace, entries->label), expected);
  tn_trace_free(trace);
}

static void texts(void **state) {
  (void)state;
  expect_label("\"\"", "");
  expect_label("\"plain\"", "plain");
  expect_label("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t");
  expect_label("\"\\u00e4\\u20AC\\ud83d\\udea2\"", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\xa2");
  expect_label("\"\xc3\xa4\"", "\xc3\xa4");
  expect_label("\"\\ud83d lone\"", "\xef\xbf\xbd lone");
  expect_label("\"\\udc80\"", "\xef\xbf\xbd");
  expect_label("\"\\u0000\"", "?");
  expect_label("null", "");
  expect_label("{\"a\": [], \"b\": 1.5}", "{\"a\": null, \"b\": 1.5}"); /* plain values only */
}

static void expect_addr(const char *number, uint64_t expected) {
  char entry[256];
  (void)snprintf(entry, sizeof entry, "{\"action\": \"alloc\", \"addr\": %s}", number);
  tn_trace *trace = snapshot_entries(entry);
  const tn_entry *entries = snapshot_table(trace, TN_TABLE_ENTRY, 1);
  assert_int_equal(entries->addr, expected);
  tn_trace_free(trace);
}

static void numbers(void **state) {
  (void)state;
  expect_addr("0", 0);
  expect_addr("140000000000000", 140000000000000);
  expect_addr("18446744073709551615", UINT64_MAX);
  expect_addr("-1", UINT64_MAX);
  expect_addr("-9223372036854775808", (uint64_t)1 << 63);
  expect_addr("true", 1);
  expect_addr("null", 0);
}

static void setting(const char *number, const char *expected) {
  char text[256];
  (void)snprintf(text, sizeof text, "{\"segments\": [], \"allocator_settings\": {\"x\": %s}}", number);
  tn_trace *trace = snapshot_text(text);
  assert_string_equal(tn_trace_meta(trace, "allocator.x"), expected);
  tn_trace_free(trace);
}

static void settings(void **state) {
  (void)state;
  setting("-1", "-1");
  setting("0.25", "0.25");
  setting("1e3", "1000");
  setting("18446744073709551616", "null"); /* more than 64 bits */
  setting("true", "true");
  setting("null", "null");
  setting("\"a \\\"b\\\"\"", "a \"b\"");
}

static void spaces_anywhere(void **state) {
  (void)state;
  tn_trace_free(
      snapshot_text("\xef\xbb\xbf \n{ \"segments\"\t:\r\n[ ] , \"device_traces\" : [ [ ] , [ { \"action\" : \"oom\" } ] ] } \n"));
}

static void mistakes(void **state) {
  (void)state;
  snapshot_text_refused("{\"segments\": [],}", "byte 16: found '}', expected a key in quotes");
  snapshot_text_refused("{\"segments\": [,]}", "byte 14: found ',', expected a value");
  snapshot_text_refused("{\"segments\" []}", "byte 12: found '[', expected ':' after a key");
  snapshot_text_refused("{\"segments\": [1 2]}", "byte 16: found '2', expected ',' or ']'");
  snapshot_text_refused("{\"segments\": []]", "byte 15: found ']', expected ',' or '}'");
  snapshot_text_refused("{\"segments\": []} x", "byte 17: found 'x', expected the end");
  snapshot_text_refused("{segments: []}", "byte 1: found 's', expected a key in quotes");
  snapshot_text_refused("{\"segments\": [None]}", "byte 14: expected a value, found \"None\"");
  snapshot_text_refused("{\"segments\": [1.2.3]}", "expected a value, found \"1.2.3\"");
  snapshot_text_refused("{\"segments\": [--1]}", "expected a value, found \"--1\"");
  snapshot_text_refused("{\"a\": \"\\x\"}", "a text has a backslash with nothing known after it, 0 bytes into it");
  snapshot_text_refused("{\"a\": \"ab\\u12g4\"}", "a text has a backslash with nothing known after it, 2 bytes into it");
  snapshot_text_refused("{\"a\": \"\n\"}", "a text has a control character");
  snapshot_text_refused("{\"a\": \"\xff\"}", "text is not UTF-8");
  snapshot_text_refused("[1234567890123456789012345678901234567890123456789012345678901234567890]",
                        "something longer than any number");
  snapshot_text_refused("{\"a\": \x01}", "found byte 0x01, expected a value");
}

static void cut_short_anywhere(void **state) {
  (void)state;
  static const char text[] =
      "{\"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", \"addr\": 12, \"frames\": [\"\\u00e4\"]}], []]}";
  tn_trace_free(snapshot_text(text));
  for (size_t cut = 1; cut + 1 < sizeof text; cut++) (void)snapshot_refused(text, cut, "it is cut short");
}

/* A text, a number and a literal across each boundary of the input's blocks. */
static void longer_than_a_block(void **state) {
  (void)state;
  enum { SPACES = 256 * 1024 };
  static const char tail[] =
      "\"a\\u00e4\\\\\", \"device_traces\": [[{\"action\": \"alloc\", \"addr\": 123456789, \"user_metadata\": null}]]}";
  char name[] = "snapshot_json_XXXXXX";
  int fd = mkstemp(name);
  assert_true(fd >= 0);
  for (size_t shift = 0; shift < sizeof tail; shift++) {
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    (void)fprintf(file, "{\"x\":%*s%s", (int)(SPACES - 5 - shift), "", tail);
    (void)fclose(file);
    tn_trace *trace = NULL;
    tn_error err = {0};
    if (tn_snapshot_load(name, &trace, &err)) fail_msg("%zu: %s", shift, err.msg);
    assert_int_equal(((const tn_entry *)snapshot_table(trace, TN_TABLE_ENTRY, 1))->addr, 123456789);
    tn_trace_free(trace);
  }
  (void)remove(name);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts),
      cmocka_unit_test(numbers),
      cmocka_unit_test(settings),
      cmocka_unit_test(spaces_anywhere),
      cmocka_unit_test(mistakes),
      cmocka_unit_test(cut_short_anywhere),
      cmocka_unit_test(longer_than_a_block),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

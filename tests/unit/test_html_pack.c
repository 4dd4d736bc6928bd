/* html_pack: numbers and text survive the way into a page, and text cannot leave its string. */
#include "report/html_pack.h"

#include "helper.h"

static uint64_t varint_take(const unsigned char **at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    unsigned char byte = *(*at)++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

static uint64_t unzigzag(uint64_t value) { return value & 1 ? ~(value >> 1) : value >> 1; }

static void varints_of_every_length(void **state) {
  (void)state;
  tn_text text;
  tn__text_init(&text);
  for (int bit = 0; bit < 64; bit++) {
    tn__pack_varint(&text, UINT64_C(1) << bit);
    tn__pack_varint(&text, (UINT64_C(1) << bit) - 1);
  }
  tn__pack_varint(&text, UINT64_MAX);
  const unsigned char *at = (const unsigned char *)text.data;
  for (int bit = 0; bit < 64; bit++) {
    assert_true(varint_take(&at) == UINT64_C(1) << bit);
    assert_true(varint_take(&at) == (UINT64_C(1) << bit) - 1);
  }
  assert_true(varint_take(&at) == UINT64_MAX);
  assert_ptr_equal(at, text.data + text.len);
  tn__text_deinit(&text);
}

static void zigzag_puts_small_differences_first(void **state) {
  (void)state;
  const int64_t values[] = {0, -1, 1, -2, 2, INT64_MAX, INT64_MIN};
  for (uint64_t i = 0; i < 5; i++) assert_true(tn__pack_zigzag((uint64_t)values[i]) == i);
  for (size_t i = 0; i < 7; i++) assert_true(unzigzag(tn__pack_zigzag((uint64_t)values[i])) == (uint64_t)values[i]);
}

static void column_take(const unsigned char **at, uint64_t *out, size_t count, uint64_t unit) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t difference = unzigzag(varint_take(at));
    value += difference;
    out[i] = value * unit;
    if (difference) continue;
    for (uint64_t same = varint_take(at); same > 0; same--) out[++i] = value * unit;
  }
}

static void columns_of_runs_and_jumps(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed(), values[300], got[300];
  for (int round = 0; round < 200; round++) {
    size_t count = tn_test_random(&seed) % 300;
    uint64_t unit = round % 2 ? 512 : 1;
    for (size_t i = 0; i < count; i++)
      values[i] = i && tn_test_random(&seed) % 3 ? values[i - 1] : tn_test_random(&seed) % (round % 5 ? 9 : UINT64_MAX / 512) * unit;
    tn_text text;
    tn__text_init(&text);
    tn__pack_column(&text, values, count, unit);
    const unsigned char *at = (const unsigned char *)text.data;
    column_take(&at, got, count, unit);
    for (size_t i = 0; i < count; i++) assert_true(got[i] == values[i]);
    assert_int_equal(at - (const unsigned char *)text.data, text.len);
    tn__text_deinit(&text);
  }
}

static void expect_text(tn_text *text, const char *want) {
  assert_string_equal(tn__text_view(text), want);
  tn__text_deinit(text);
}

/* The vectors of RFC 4648. */
static void base64_of_every_rest(void **state) {
  (void)state;
  const char *pairs[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (size_t i = 0; i < 7; i++) {
    tn_text text;
    tn__text_init(&text);
    tn__pack_base64(&text, pairs[i][0], strlen(pairs[i][0]));
    expect_text(&text, pairs[i][1]);
  }
  unsigned char bytes[3000];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7);
  tn_text text;
  tn__text_init(&text);
  tn__pack_base64(&text, bytes, sizeof bytes);
  assert_int_equal(text.len, 4000); /* longer than a line of its buffer, and nothing between */
  assert_null(strchr(text.data, '='));
  tn__text_deinit(&text);
}

static void text_cannot_leave_its_string(void **state) {
  (void)state;
  const char *pairs[][2] = {
      {"plain", "\"plain\""},
      {"</script><script>alert(1)//", "\"\\u003c/script\\u003e\\u003cscript\\u003ealert(1)//\""},
      {"<!--&amp;\"\\\n\x01\x7f", "\"\\u003c!--\\u0026amp;\\u0022\\u005c\\u000a\\u0001\\u007f\""},
      {"gr\xc3\xb6\xc3\x9f" "e \xe5\xa4\xa7 \xf0\x9f\x9a\xa2", "\"gr\xc3\xb6\xc3\x9f" "e \xe5\xa4\xa7 \xf0\x9f\x9a\xa2\""},
      {"\xff<", "\"\\ufffd\\u003c\""},
      {"\xc3", "\"\\ufffd\""},                                      /* cut short */
      {"\xc0\xbc", "\"\\ufffd\\ufffd\""},                           /* "<", overlong */
      {"\xe0\x80\xbcx", "\"\\ufffd\\ufffd\\ufffdx\""},              /* likewise */
      {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},                /* a surrogate */
      {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},     /* beyond U+10FFFF */
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    tn_text text;
    tn__text_init(&text);
    tn__pack_string(&text, pairs[i][0]);
    expect_text(&text, pairs[i][1]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(varints_of_every_length),      cmocka_unit_test(zigzag_puts_small_differences_first),
      cmocka_unit_test(columns_of_runs_and_jumps),    cmocka_unit_test(base64_of_every_rest),
      cmocka_unit_test(text_cannot_leave_its_string),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

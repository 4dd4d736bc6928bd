/* size: what people write, what is refused and why, and what is printed. */
#include "base/size.h"

#include "helper.h"

static void accepted_sizes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t bytes;
  } cases[] = {
      {"4096", 4096},
      {"0", 0},
      {"12GiB", 12884901888u},
      {"12 GB", 12000000000u},
      {"0.5g", 536870912u},
      {".5g", 536870912u},
      {"2.g", 2147483648u},
      {"1.5e9", 1500000000u},
      {"1.5E+9", 1500000000u},
      {"15e-1k", 1536},
      {"12gib", 12884901888u},
      {"12G", 12884901888u},
      {"  8 m  ", 8388608u},
      {"7KB", 7000},
      {"7kib", 7168},
      {"512 B", 512},
      {"+3k", 3072},
      {"1t", 1099511627776u},
      {"1TB", 1000000000000u},
      {"0.1", 0},
      {"0.5", 1},
      {"1e-400", 0},
      {"0e999999", 0},
      {"0.0000000000000000000000000000000001t", 0},
      {"1.99999999999999999999999999999999g", 2147483648u},
      {"18446744073709551615", UINT64_MAX},
      {"16777215.9999t", 18446744073599600453u},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t bytes = 1234567;
    tn_error err = {0};
    int rc = tn_size_parse(cases[i].text, &bytes, &err);
    if (rc || bytes != cases[i].bytes)
      fail_msg("\"%s\": rc %d, %llu bytes, %s", cases[i].text, rc, (unsigned long long)bytes, err.msg);
  }
}

static void refused_sizes_say_why(void **state) {
  (void)state;
  static const struct {
    const char *text, *reason;
  } cases[] = {
      {"", "missing"},
      {"   ", "missing"},
      {"GiB", "write 12GiB"},
      {"twelve", "write 12GiB"},
      {".", "write 12GiB"},
      {"nan", "write 12GiB"},
      {"inf", "write 12GiB"},
      {"0x10", "unknown unit \"x10\""},
      {"-1", "negative"},
      {"12 apples", "unknown unit \"apples\""},
      {"12Gb/s", "unknown unit \"Gb/s\""},
      {"12G iB", "unknown unit \"G iB\""},
      {"1e", "unknown unit \"e\""},
      {"1.2.3", "unknown unit \".3\""},
      {"12,5GiB", "not a comma"},
      {"18446744073709551616", "64 bits"},
      {"16777216t", "64 bits"},
      {"99999999999999999999999", "64 bits"},
      {"1e20", "64 bits"},
      {"1e2147483648", "64 bits"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t bytes = 1234567;
    tn_error err = {0};
    assert_int_equal(tn_size_parse(cases[i].text, &bytes, &err), TN_EINVAL);
    assert_int_equal(bytes, 1234567); /* untouched */
    assert_int_equal(err.code, TN_EINVAL);
    if (!strstr(err.msg, cases[i].reason)) fail_msg("\"%s\": %s", cases[i].text, err.msg);
  }
  uint64_t bytes = 0;
  assert_int_equal(tn_size_parse(NULL, &bytes, NULL), TN_EINVAL);
  assert_int_equal(tn_size_parse("1", NULL, NULL), TN_EINVAL);
  assert_int_equal(tn_size_parse("x", &bytes, NULL), TN_EINVAL);
}

static void printed_sizes(void **state) {
  (void)state;
  static const struct {
    uint64_t bytes;
    const char *text;
  } cases[] = {
      {0, "0 B"},
      {512, "512 B"},
      {1023, "1023 B"},
      {1024, "1.00 KiB"},
      {1536, "1.50 KiB"},
      {1048575, "1.00 MiB"}, /* not 1024.00 KiB */
      {1048576, "1.00 MiB"},
      {67158016, "64.05 MiB"},
      {12863427052u, "11.98 GiB"},
      {1099511627776u, "1.00 TiB"},
      {UINT64_MAX, "16777216.00 TiB"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char buf[32];
    assert_ptr_equal(tn_size_format(cases[i].bytes, buf, sizeof buf), buf);
    assert_string_equal(buf, cases[i].text);
  }
}

static void short_buffers_are_cut_not_overrun(void **state) {
  (void)state;
  for (size_t size = 0; size < 12; size++) {
    char buf[16];
    memset(buf, '#', sizeof buf);
    tn_size_format(12863427052u, buf, size);
    for (size_t i = size; i < sizeof buf; i++) assert_int_equal(buf[i], '#');
    if (size) assert_int_equal(strncmp(buf, "11.98 GiB", size - 1), 0);
  }
}

static void what_is_printed_parses_back_within_half_a_percent(void **state) {
  (void)state;
  uint64_t random = tn_test_seed();
  for (int i = 0; i < 100000; i++) {
    uint64_t bytes = tn_test_random(&random) >> (tn_test_random(&random) % 64), back = 0;
    char buf[32];
    tn_error err = {0};
    if (bytes > UINT64_MAX - (1ull << 40)) continue; /* rounds up to 2^64 */
    if (tn_size_parse(tn_size_format(bytes, buf, sizeof buf), &back, &err)) fail_msg("%s: %s", buf, err.msg);
    uint64_t apart = back > bytes ? back - bytes : bytes - back;
    if (apart > bytes / 199) fail_msg("%llu printed as %s, read as %llu", (unsigned long long)bytes, buf, (unsigned long long)back);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(accepted_sizes),
      cmocka_unit_test(refused_sizes_say_why),
      cmocka_unit_test(printed_sizes),
      cmocka_unit_test(short_buffers_are_cut_not_overrun),
      cmocka_unit_test(what_is_printed_parses_back_within_half_a_percent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

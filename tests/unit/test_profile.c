/* test_profile.c -- device profiles. */
#include "helper.h"

#include "plan/profile.h"

static const char good[] =
    "{\"name\": \"card\", \"total_bytes\": 8589934592, \"context_bytes\": 536870912, \"note\": [1, {\"a\": null}],\n"
    " \"flops_per_s\": {\"fp32\": 1e13, \"tf32\": 2e13, \"bf16\": 1e14, \"fp16\": 1e14, \"fp64\": 1e12},\n"
    " \"bytes_per_s\": 1e12, \"host_copy_bytes_per_s\": 1e10, \"launch_s\": 4e-6, \"host_op_s\": 1e-5,\n"
    " \"host_rebuild_s\": 2e-5}";

static tn_profile parsed(void) {
  tn_profile profile;
  tn_error err = {0};
  if (tn_profile_parse(good, &profile, &err)) fail_msg("%s", err.msg);
  return profile;
}

static void reads_every_field(void **state) {
  (void)state;
  tn_profile profile = parsed();
  assert_string_equal(profile.name, "card");
  assert_int_equal(profile.total_bytes, 8589934592);
  assert_int_equal(profile.context_bytes, 536870912);
  assert_true(profile.flops_per_s[TN_RATE_FP32] == 1e13);
  assert_true(profile.flops_per_s[TN_RATE_TF32] == 2e13);
  assert_true(profile.flops_per_s[TN_RATE_BF16] == 1e14);
  assert_true(profile.flops_per_s[TN_RATE_FP64] == 1e12);
  assert_true(profile.bytes_per_s == 1e12 && profile.host_copy_bytes_per_s == 1e10);
  assert_true(profile.launch_s == 4e-6 && profile.host_op_s == 1e-5 && profile.host_rebuild_s == 2e-5);
}

/* The good profile with `from` replaced by `to`. */
static char *edited(const char *from, const char *to) {
  const char *at = strstr(good, from);
  assert_non_null(at);
  char *out = malloc(sizeof good + strlen(to));
  assert_non_null(out);
  sprintf(out, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
  return out;
}

static void refused(const char *from, const char *to, const char *expected) {
  char *text = edited(from, to);
  tn_profile profile, untouched;
  memset(&profile, 0x5a, sizeof profile);
  untouched = profile;
  tn_error err = {0};
  int rc = tn_profile_parse(text, &profile, &err);
  if (rc != TN_EFORMAT) fail_msg("%s -> %s: returned %d", from, to, rc);
  if (!strstr(err.msg, expected)) fail_msg("%s -> %s: says \"%s\", expected \"%s\"", from, to, err.msg, expected);
  assert_int_equal(err.code, TN_EFORMAT);
  assert_memory_equal(&profile, &untouched, sizeof profile);
  assert_int_equal(tn_profile_parse(text, &profile, NULL), TN_EFORMAT); /* err may be NULL */
  free(text);
}

static void names_a_missing_key(void **state) {
  (void)state;
  static const char *const keys[] = {"name", "total_bytes", "context_bytes", "flops_per_s", "fp32", "tf32", "bf16", "fp16", "fp64",
                                     "bytes_per_s", "host_copy_bytes_per_s", "launch_s", "host_op_s", "host_rebuild_s"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    char quoted[64], expected[80];
    snprintf(quoted, sizeof quoted, "\"%s\"", keys[i]);
    snprintf(expected, sizeof expected, "key %s is missing", quoted);
    refused(quoted, "\"renamed\"", expected);
  }
}

static void refuses_wrong_values(void **state) {
  (void)state;
  refused("8589934592", "\"8 GiB\"", "\"total_bytes\" is not a number");
  refused("8589934592", "0", "\"total_bytes\" is 0");
  refused("8589934592", "-1", "\"total_bytes\" is -1");
  refused("8589934592", "1e300", "too many bytes");
  refused("536870912", "8589934592", "\"context_bytes\" is not below");
  refused("\"fp32\": 1e13", "\"fp32\": 0", "expected a rate above 0");
  refused("\"fp32\": 1e13", "\"fp32\": -1e13", "\"fp32\" is -1e+13");
  refused("4e-6", "-4e-6", "\"launch_s\" is -4e-06");
  refused("\"card\"", "\"\"", "\"name\"");
  refused("\"card\"", "7", "\"name\"");
  refused("\"card\"", "\"0123456789012345678901234567890123456789012345678901234567890123\"", "1 to 63 bytes");
  refused("{\"fp32\"", "[{\"fp32\"", "expected near");
  refused("\"launch_s\": 4e-6", "\"launch_s\": 4e-6, \"launch_s\": 4e-6", "duplicate");
  refused("1e12, \"host_copy", "1e999, \"host_copy", "line 3");
}

static void tells_where_the_text_is_broken(void **state) {
  (void)state;
  tn_profile profile;
  tn_error err = {0};
  assert_int_equal(tn_profile_parse("{\"name\": \"x\",\n oops}", &profile, &err), TN_EFORMAT);
  assert_int_equal(err.record, 2);
  assert_true(err.offset > 13 && err.offset <= 19);
  assert_int_equal(tn_profile_parse("", &profile, &err), TN_EFORMAT);
  assert_int_equal(tn_profile_parse("[]", &profile, &err), TN_EFORMAT);
  assert_int_equal(tn_profile_parse(NULL, &profile, &err), TN_EINVAL);
  assert_int_equal(tn_profile_parse(good, NULL, &err), TN_EINVAL);
}

/* 8.0e10 is how people write a size by hand. */
static void reads_sizes_with_an_exponent(void **state) {
  (void)state;
  char *text = edited("8589934592", "8.0e10");
  tn_profile profile;
  assert_int_equal(tn_profile_parse(text, &profile, NULL), TN_OK);
  assert_int_equal(profile.total_bytes, 80000000000);
  free(text);
}

/* A deep document must not run the stack out. */
static void refuses_deep_nesting(void **state) {
  (void)state;
  enum { DEPTH = 1000000 };
  char *text = malloc(DEPTH + 1);
  assert_non_null(text);
  memset(text, '[', DEPTH);
  text[DEPTH] = 0;
  tn_profile profile;
  assert_int_equal(tn_profile_parse(text, &profile, NULL), TN_EFORMAT);
  free(text);
}

static void seconds_are_the_larger_of_arithmetic_and_memory(void **state) {
  (void)state;
  tn_profile profile = parsed();
  tn_op op = {.rate = TN_RATE_FP32, .flops = 1e13, .bytes_moved = 1e6, .seconds = -1};
  assert_true(tn_profile_op_seconds(&profile, &op) == 1.0 + 4e-6);
  op.bytes_moved = 2e12;
  assert_true(tn_profile_op_seconds(&profile, &op) == 2.0 + 4e-6);
  op.rate = TN_RATE_NONE;
  op.flops = 1e20;
  assert_true(tn_profile_op_seconds(&profile, &op) == 2.0 + 4e-6);
  op.seconds = 0.25;
  assert_true(tn_profile_op_seconds(&profile, &op) == 0.25);
  op.flags = TN_OP_VIEW;
  assert_true(tn_profile_op_seconds(&profile, &op) == 0);
}

static void only_cpu_is_the_host(void **state) {
  (void)state;
  tn_profile profile = parsed();
  assert_false(tn__profile_is_host(&profile));
  strcpy(profile.name, "cpu");
  assert_true(tn__profile_is_host(&profile));
}

static char *file_read(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("cannot open %s", path);
  char *text = calloc(1, 65536);
  assert_non_null(text);
  assert_true(fread(text, 1, 65535, file) > 0);
  fclose(file);
  return text;
}

static void shipped_profiles_are_valid(void **state) {
  (void)state;
  static const char *const names[] = {"h200", "h100", "a100-80", "a100-40", "v100", "l40s", "l4", "t4", "rtx5090", "rtx4090", "rtx3090", "cpu"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/../../python/tonnage/profiles/%s.json", TN_TEST_DATA, names[i]);
    char *text = file_read(path);
    tn_profile profile;
    tn_error err = {0};
    if (tn_profile_parse(text, &profile, &err)) fail_msg("%s: %s", names[i], err.msg);
    assert_string_equal(profile.name, names[i]); /* the file's name is how a user asks for it */
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_every_field),
      cmocka_unit_test(names_a_missing_key),
      cmocka_unit_test(refuses_wrong_values),
      cmocka_unit_test(tells_where_the_text_is_broken),
      cmocka_unit_test(reads_sizes_with_an_exponent),
      cmocka_unit_test(refuses_deep_nesting),
      cmocka_unit_test(seconds_are_the_larger_of_arithmetic_and_memory),
      cmocka_unit_test(only_cpu_is_the_host),
      cmocka_unit_test(shipped_profiles_are_valid),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* explain and diff as a caller sees them: numbers, gates, text and JSON.  TONNAGE_GOLDEN=1 records the texts again. */
#include <jansson.h>

#include "training.h"

static const training_faults leaking = {.leak_bytes = 2 * MIB, .temp_bytes = 1024};

static tn_explain *explain_of(const tn_trace *trace, const tn_explain_options *options) {
  tn_explain *explain = NULL;
  tn_error err = {0};
  if (tn_explain_new(trace, options, &explain, &err)) fail_msg("tn_explain_new: %s", err.msg);
  return explain;
}

static char *report_of(const tn_trace *trace, const tn_explain_options *options, int json) {
  tn_explain *explain = explain_of(trace, options);
  char *text = NULL;
  memory_must(tn_report_explain(explain, "run.pickle", json, &text), "report");
  tn_explain_free(explain);
  return text;
}

static char *diff_of(const tn_trace *a, const tn_trace *b, int json) {
  tn_diff_side sides[2] = {{a, "before.pickle", NULL}, {b, "after.pickle", NULL}};
  tn_diff_options options = {.device = TN_NONE};
  char *text = NULL;
  tn_error err = {0};
  if (tn_report_diff(&sides[0], &sides[1], &options, json, &text, &err)) fail_msg("tn_report_diff: %s", err.msg);
  return text;
}

/* ---- recorded texts ------------------------------------------------------------------------------------------------------ */

static void golden_write(const char *path, const char *text) {
  FILE *file = fopen(path, "wb");
  if (!file) fail_msg("cannot write %s", path);
  fputs(text, file);
  fclose(file);
}

static void golden_compare(const char *name, char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/report/%s", TN_TEST_DATA, name);
  if (getenv("TONNAGE_GOLDEN")) golden_write(path, text);
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("no recorded text %s; TONNAGE_GOLDEN=1 records it", path);
  char *expected = calloc(1, 1 << 17);
  assert_non_null(expected);
  (void)fread(expected, 1, (1 << 17) - 1, file);
  fclose(file);
  assert_string_equal(text, expected);
  free(expected);
  tn_text_free(text);
}

static void text_of_a_leaking_run(void **state) {
  (void)state;
  training t;
  training_run(&t, leaking, 6);
  golden_compare("explain_leak.txt", report_of(t.m.trace, NULL, 0));
  tn_explain_options options = {.device = TN_NONE, .stack_depth = 2, .width = 80, .total_bytes = GIB};
  golden_compare("explain_narrow.txt", report_of(t.m.trace, &options, 0));
  golden_compare("explain_leak.json", report_of(t.m.trace, NULL, 1));
  training_end(&t);
}

static void text_without_a_history(void **state) {
  (void)state;
  training t;
  training_open(&t, (training_faults){0});
  training_step(&t);
  t.m.skip = UINT32_MAX;
  memory_close(&t.m);
  golden_compare("explain_end.txt", report_of(t.m.trace, NULL, 0));
  training_end(&t);
}

static void text_of_a_difference(void **state) {
  (void)state;
  training t[2];
  training_run(&t[0], (training_faults){0}, 4);
  training_run(&t[1], (training_faults){.logits_bytes = 44 * MIB}, 4);
  golden_compare("diff.txt", diff_of(t[0].m.trace, t[1].m.trace, 0));
  golden_compare("diff.json", diff_of(t[0].m.trace, t[1].m.trace, 1));
  for (int i = 0; i < 2; i++) training_end(&t[i]);
}

/* ---- numbers and gates --------------------------------------------------------------------------------------------------- */

static void numbers(void **state) {
  (void)state;
  training t;
  training_run(&t, leaking, 6);
  tn_explain *explain = explain_of(t.m.trace, NULL);
  tn_explain_result r;
  tn_caching_stats stats;
  tn_caching_get_stats(t.m.caching, &stats);
  assert_int_equal(tn_explain_count(explain), 1);
  memory_must(tn_explain_get_result(explain, 0, &r), "result");
  assert_int_equal(r.allocated_bytes, stats.allocated_bytes.current);
  assert_int_equal(r.reserved_bytes, stats.reserved_bytes.current);
  assert_int_equal(r.peak_allocated_bytes, stats.allocated_bytes.peak);
  assert_int_equal(r.peak_reserved_bytes, stats.reserved_bytes.peak);
  assert_int_equal(r.waste_bytes, stats.reserved_bytes.peak - stats.allocated_bytes.peak);
  assert_int_equal(r.steps, 6);
  assert_true(r.growth_is_known);
  assert_true(r.leak_bytes_per_step > (double)(2 * MIB) - 1 && r.leak_bytes_per_step < (double)(2 * MIB) + 1);
  assert_int_equal(tn_explain_get_result(explain, 1, &r), TN_ENOENT);
  tn_explain_free(explain);
  training_end(&t);
}

static void gate(const tn_explain *explain, tn_explain_limits limits, int code, const char *says) {
  tn_error err = {0};
  int rc = tn_explain_check(explain, &limits, &err);
  if (rc != code) fail_msg("%s, not %s: %s", tn_error_name(rc), tn_error_name(code), err.msg);
  if (says && !strstr(err.msg, says)) fail_msg("\"%s\" is not in \"%s\"", says, err.msg);
}

static void gates(void **state) {
  (void)state;
  training t;
  training_run(&t, leaking, 6);
  tn_explain *explain = explain_of(t.m.trace, NULL);
  gate(explain, (tn_explain_limits){0}, TN_OK, NULL);
  gate(explain, (tn_explain_limits){.reserved_bytes = GIB}, TN_OK, NULL);
  gate(explain, (tn_explain_limits){.reserved_bytes = 10 * MIB}, TN_ELIMIT, "device 0: reserved memory of");
  gate(explain, (tn_explain_limits){.leak_is_given = 1, .leak_bytes_per_step = 2 * MIB}, TN_OK, NULL);
  gate(explain, (tn_explain_limits){.leak_is_given = 1, .leak_bytes_per_step = MIB}, TN_ELIMIT,
       "leak of 2.00 MiB/step exceeds 1.00 MiB/step by 1.00 MiB/step");
  gate(explain, (tn_explain_limits){.leak_is_given = 1}, TN_ELIMIT, "exceeds 0 B/step");
  gate(explain, (tn_explain_limits){.waste_is_given = 1, .waste_percent = 99}, TN_OK, NULL);
  gate(explain, (tn_explain_limits){.waste_is_given = 1}, TN_ELIMIT, "waste of");
  tn_explain_free(explain);
  training_end(&t);
}

/* A gate that cannot be checked is not passed; one that is exceeded is said first. */
static void a_gate_that_cannot_be_checked(void **state) {
  (void)state;
  training t;
  training_run(&t, leaking, 2);
  tn_explain *explain = explain_of(t.m.trace, NULL);
  gate(explain, (tn_explain_limits){.leak_is_given = 1}, TN_EPARTIAL, "growth cannot be checked");
  gate(explain, (tn_explain_limits){.leak_is_given = 1, .reserved_bytes = MIB}, TN_ELIMIT, "reserved");
  tn_explain_free(explain);
  training_end(&t);
}

static void devices(void **state) {
  (void)state;
  training t;
  training_run(&t, (training_faults){0}, 2);
  tn_explain *explain = (tn_explain *)&t;
  tn_error err = {0};
  tn_explain_options options = {.device = 3};
  assert_int_equal(tn_explain_new(t.m.trace, &options, &explain, &err), TN_ENOENT);
  assert_string_equal(err.msg, "the snapshot has no device 3; it has: 0");
  assert_ptr_equal(explain, &t);
  assert_int_equal(tn_explain_new(NULL, NULL, &explain, &err), TN_EINVAL);
  assert_int_equal(tn_explain_new(t.m.trace, NULL, NULL, &err), TN_EINVAL);
  tn_explain_free(NULL);
  training_end(&t);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

static json_int_t number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_integer(value)) fail_msg("%s is no integer", key);
  return json_integer_value(value);
}

static json_int_t sum_of(const json_t *object) {
  json_int_t sum = 0;
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) sum += json_integer_value(value);
  return sum;
}

static json_int_t sum_in(const json_t *rows, const char *key) {
  json_int_t sum = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) sum += number(json_array_get(rows, i), key);
  return sum;
}

static void json_adds_up(void **state) {
  (void)state;
  training t;
  training_run(&t, leaking, 6);
  tn_explain_options options = {.device = 0, .stack_depth = 3};
  char *text = report_of(t.m.trace, &options, 1);
  json_error_t reason;
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &reason);
  if (!root) fail_msg("not JSON: %s", reason.text);
  const json_t *device = json_array_get(json_object_get(root, "devices"), 0);
  static const char *const accounts[] = {"reserved_peak", "snapshot"}, *const compositions[] = {"allocated_peak", "allocated_end"};
  for (int i = 0; i < 2; i++) {
    const json_t *account = json_object_get(device, accounts[i]), *at = json_object_get(device, compositions[i]);
    assert_int_equal(sum_of(json_object_get(account, "parts")), number(account, "reserved_bytes"));
    assert_int_equal(sum_of(json_object_get(at, "by_category")), number(at, "allocated_bytes"));
    assert_int_equal(sum_in(json_object_get(at, "by_stack"), "bytes"), number(at, "allocated_bytes"));
    assert_int_equal(sum_in(json_object_get(at, "by_stack"), "blocks"), number(at, "blocks"));
  }
  const json_t *row = json_array_get(json_object_get(json_object_get(device, "allocated_peak"), "by_stack"), 0);
  assert_int_equal(json_array_size(json_object_get(row, "frames")), 3);
  json_decref(root);
  tn_text_free(text);
  training_end(&t);
}

/* ---- hostile names, narrow pages ----------------------------------------------------------------------------------------- */

static void no_line_is_wider_than_the_page(void **state) {
  (void)state;
  training t;
  training_open(&t, leaking);
  uint32_t deep = memory_stack(&t.m, "a/very/long/path/to/a/module/of/the/users/own/program/with_a_long_name.py:123456 a_function_with_a_name_that_goes_on_and_on", NULL);
  memory_alloc(&t.m, 100 * MIB, deep);
  for (int i = 0; i < 6; i++) training_step(&t);
  memory_close(&t.m);
  for (uint32_t width = 80; width <= 120; width += 20) {
    tn_explain_options options = {.device = TN_NONE, .width = width, .stack_depth = 4};
    char *text = report_of(t.m.trace, &options, 0);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
      if (strcspn(line, "\n") > width) fail_msg("%d columns, not %u: %.*s", (int)strcspn(line, "\n"), width, (int)strcspn(line, "\n"), line);
    tn_text_free(text);
  }
  training_end(&t);
}

static void hostile_names_stay_inside(void **state) {
  (void)state;
  training t;
  training_open(&t, (training_faults){0});
  memory_alloc(&t.m, 100 * MIB, memory_stack(&t.m, "\"},\\\x01\t.py:1 \"<script>", NULL));
  training_step(&t);
  memory_close(&t.m);
  char *text = report_of(t.m.trace, NULL, 1);
  json_t *root = json_loads(text, 0, NULL);
  assert_non_null(root);
  json_decref(root);
  tn_text_free(text);
  training_end(&t);
}

static void an_empty_snapshot(void **state) {
  (void)state;
  memory m;
  memory_open(&m, NULL);
  memory_close(&m);
  char *text = report_of(m.trace, NULL, 0);
  assert_string_equal(text, "run.pickle: nothing was allocated on any device.\n");
  tn_text_free(text);
  text = report_of(m.trace, NULL, 1);
  json_t *root = json_loads(text, 0, NULL);
  assert_non_null(root);
  json_decref(root);
  tn_text_free(text);
  memory_end(&m);
}

/* ---- every allocation may fail ------------------------------------------------------------------------------------------- */

static int explain_once(void *user) {
  tn_explain *explain = NULL;
  char *text = NULL;
  int rc = tn_explain_new(user, NULL, &explain, NULL);
  if (!rc) rc = tn_report_explain(explain, "run.pickle", 0, &text);
  tn_text_free(text);
  text = NULL;
  if (!rc) rc = tn_report_explain(explain, "run.pickle", 1, &text);
  tn_text_free(text);
  tn_explain_free(explain);
  return rc;
}

static int diff_once(void *user) {
  tn_diff_side side = {user, "run.pickle", NULL};
  tn_diff_options options = {.device = TN_NONE};
  char *text = NULL;
  int rc = tn_report_diff(&side, &side, &options, 0, &text, NULL);
  tn_text_free(text);
  return rc;
}

static void survives_running_out_of_memory(void **state) {
  (void)state;
  training t;
  training_run(&t, leaking, 5);
  assert_true(tn_test_sweep(explain_once, t.m.trace) > 100);
  assert_true(tn_test_sweep(diff_once, t.m.trace) > 100);
  training_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_of_a_leaking_run),
      cmocka_unit_test(text_without_a_history),
      cmocka_unit_test(text_of_a_difference),
      cmocka_unit_test(numbers),
      cmocka_unit_test(gates),
      cmocka_unit_test(a_gate_that_cannot_be_checked),
      cmocka_unit_test(devices),
      cmocka_unit_test(json_adds_up),
      cmocka_unit_test(no_line_is_wider_than_the_page),
      cmocka_unit_test(hostile_names_stay_inside),
      cmocka_unit_test(an_empty_snapshot),
      cmocka_unit_test(survives_running_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

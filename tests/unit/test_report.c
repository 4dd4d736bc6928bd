/* test_report.c -- the estimate report against recorded texts.
 *
 * TONNAGE_GOLDEN=1 records them again; review the difference. */
#include "story.h"

#include <jansson.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };
#define GIB (UINT64_C(1) << 30)

static const tn_profile cpu = {.name = "cpu", .total_bytes = 16 * GIB};
static const tn_profile card = {.name = "card", .total_bytes = 8 * GIB, .context_bytes = 512 * MIB};

/* A small encoder: words, 6 layers of two modules, a decoder; two steps. */
typedef struct encoder {
  uint32_t root, words, layers, layer[6], attention[6], up[6], decoder;
} encoder;

static void state_add(story *s, uint64_t bytes, uint32_t module) { story_alloc(s, bytes, TN_CATEGORY_PARAMETER, module); }

static encoder encoder_add(story *s) {
  encoder e = {.root = story_module(s, "", "Bert", TN_NONE)};
  e.words = story_module(s, "words", "Embedding", e.root);
  e.layers = story_module(s, "layers", "ModuleList", e.root);
  state_add(s, 40 * MIB, e.words);
  for (int i = 0; i < 6; i++) {
    char path[64];
    snprintf(path, sizeof path, "layers.%d", i);
    e.layer[i] = story_module(s, path, "Layer", e.layers);
    snprintf(path, sizeof path, "layers.%d.attention", i);
    e.attention[i] = story_module(s, path, "Attention", e.layer[i]);
    snprintf(path, sizeof path, "layers.%d.up", i);
    e.up[i] = story_module(s, path, "Linear", e.layer[i]);
    state_add(s, 16 * MIB, e.attention[i]);
    state_add(s, 24 * MIB + 100, e.up[i]);
  }
  e.decoder = story_module(s, "decoder", "Linear", e.root);
  state_add(s, 20 * MIB, e.decoder);
  story_alloc(s, 128 * KIB, TN_CATEGORY_INPUT, TN_NONE);
  return e;
}

static uint32_t saved_add(story *s, uint64_t bytes, const char *op, uint32_t module, int step) {
  uint32_t block = story_alloc(s, bytes, TN_CATEGORY_ACTIVATION, module);
  story_op(s, op, module, TN_PHASE_FORWARD, step);
  uint32_t slot = story_pack(s, block, step);
  story_drop(s, block);
  return slot;
}

static void step_add(story *s, const encoder *e, int step) {
  uint32_t slots[32], count = 0;
  story_mark(s, step ? "step:1" : "step:0");
  slots[count++] = saved_add(s, 64 * MIB, "aten.embedding.default", e->words, step);
  for (int i = 0; i < 6; i++) {
    slots[count++] = saved_add(s, 96 * MIB, "aten._scaled_dot_product_efficient_attention.default", e->attention[i], step);
    slots[count++] = saved_add(s, 128 * MIB, "aten.gelu.default", e->layer[i], step);
  }
  slots[count++] = saved_add(s, 512 * MIB, "aten._log_softmax.default", TN_NONE, step);
  while (count--) {
    uint32_t temporary = story_alloc(s, 256 * MIB, TN_CATEGORY_TEMPORARY, e->decoder);
    story_op(s, "aten.mm.default", e->decoder, TN_PHASE_BACKWARD, step);
    story_drop(s, temporary);
    story_event(s, TN_EVENT_RELEASE, slots[count]);
  }
  if (step == 0) {
    for (int i = 0; i < 6; i++) story_alloc(s, 80 * MIB, TN_CATEGORY_OPTIMIZER, e->layer[i]);
    story_op(s, "aten._fused_adamw_.default", TN_NONE, TN_PHASE_OPTIMIZER, step);
  }
}

static story encoder_story(void) {
  story s = story_begin();
  encoder e = encoder_add(&s);
  for (int step = 0; step < 2; step++) step_add(&s, &e, step);
  story_mark(&s, "end");
  story_must(tn_trace_set_meta(s.trace, "recipe", "examples/bert.py size=small"));
  story_must(tn_trace_set_meta(s.trace, "batch_size", "32"));
  story_must(tn_trace_set_meta(s.trace, "precision", "as is"));
  story_must(tn_trace_set_meta(s.trace, "torch", "2.13.0"));
  tn_error err = {0};
  if (tn_trace_check(s.trace, &err)) fail_msg("the test's own trace is wrong: %s", err.msg);
  return s;
}

static char *report_of(const tn_trace *trace, const tn_profile *profile, uint64_t budget_bytes, int json) {
  char *text = NULL;
  int rc = tn_report_estimate(trace, profile, budget_bytes, json, &text);
  if (rc) fail_msg("tn_report_estimate: %s", tn_error_name(rc));
  return text;
}

/* ---- recorded texts ------------------------------------------------------------------------------------------------------ */

static void golden_write(const char *path, const char *text) {
  FILE *file = fopen(path, "wb");
  if (!file) fail_msg("cannot write %s", path);
  fputs(text, file);
  fclose(file);
}

static void golden_compare(const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/report/%s", TN_TEST_DATA, name);
  if (getenv("TONNAGE_GOLDEN")) golden_write(path, text);
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("no recorded text %s; TONNAGE_GOLDEN=1 records it", path);
  char *expected = calloc(1, 65536);
  assert_non_null(expected);
  (void)fread(expected, 1, 65535, file);
  fclose(file);
  assert_string_equal(text, expected);
  free(expected);
}

static void golden(const char *name, const tn_profile *profile, uint64_t budget_bytes, int json) {
  story s = encoder_story();
  char *text = report_of(s.trace, profile, budget_bytes, json);
  golden_compare(name, text);
  tn_text_free(text);
  story_end(&s);
}

static void text_fits(void **state) {
  (void)state;
  golden("fits.txt", &card, 0, 0);
}

static void text_does_not_fit(void **state) {
  (void)state;
  golden("does_not_fit.txt", &card, 2 * GIB, 0);
}

static void text_host(void **state) {
  (void)state;
  golden("host.txt", &cpu, 0, 0);
}

static void json_card(void **state) {
  (void)state;
  golden("card.json", &card, 3 * GIB, 1);
}

/* ---- properties ---------------------------------------------------------------------------------------------------------- */

static void no_line_is_over_100_columns(void **state) {
  (void)state;
  story s = story_begin();
  char path[300] = "model";
  uint32_t module = story_module(&s, "", "Root", TN_NONE);
  for (int i = 0; i < 20; i++) {
    strcat(path, ".a_long_name");
    module = story_module(&s, path, "AClassWithAVeryLongNameIndeed", module);
  }
  story_mark(&s, "step:0");
  saved_add(&s, GIB, "a_library_with_a_long_name.an_operation_with_a_name_that_goes_on_and_on.overload", module, 0);
  story_mark(&s, "end");
  story_must(tn_trace_set_meta(s.trace, "recipe", "a/very/long/path/to/the/recipe/file.py with=many overrides=that go=on and=on until=the line=is longer=than it=may be=printed"));
  char *text = report_of(s.trace, &card, 0, 0);
  for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
    if (strcspn(line, "\n") > 100) fail_msg("%d columns: %.*s", (int)strcspn(line, "\n"), (int)strcspn(line, "\n"), line);
  tn_text_free(text);
  story_end(&s);
}

static json_int_t number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_integer(value)) fail_msg("%s is no integer", key);
  return json_integer_value(value);
}

static json_int_t sum(const json_t *rows, const char *key) {
  json_int_t out = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) out += number(json_array_get(rows, i), key);
  return out;
}

/* A table that does not add up hides something. */
static void json_tables_add_up(void **state) {
  (void)state;
  story s = encoder_story();
  char *text = report_of(s.trace, &card, 0, 1);
  json_error_t reason;
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &reason);
  if (!root) fail_msg("not JSON: %s", reason.text);
  const json_t *peak = json_object_get(root, "peak"), *categories = json_object_get(peak, "by_category");
  json_int_t by_category = 0;
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)categories, key, value) by_category += json_integer_value(value);
  json_int_t allocated = number(peak, "allocated_bytes");
  assert_int_equal(by_category, allocated);
  assert_int_equal(sum(json_object_get(root, "modules"), "bytes"), allocated);
  assert_int_equal(sum(json_object_get(root, "saved"), "bytes"), number(categories, "activation"));
  assert_int_equal(number(json_object_get(peak, "requested_by_category"), "parameter"), 300 * MIB + 6 * 100);
  assert_int_equal(number(json_object_get(root, "verdict"), "spare_bytes"),
                   (json_int_t)card.total_bytes - number(peak, "device_used_bytes"));
  json_decref(root);
  tn_text_free(text);
  story_end(&s);
}

/* Cached memory of the first half of the step is in the way of the second: fits only when it is given back. */
static void tight_fit_is_said(void **state) {
  (void)state;
  story s = story_begin();
  story_mark(&s, "step:0");
  for (int i = 0; i < 2; i++) {
    uint32_t block = story_alloc(&s, (uint64_t)(400 + 200 * i) * MIB, TN_CATEGORY_TEMPORARY, TN_NONE);
    story_op(&s, "aten.mm.default", TN_NONE, TN_PHASE_FORWARD, 0);
    story_drop(&s, block);
  }
  story_mark(&s, "end");
  char *text = report_of(s.trace, &card, 1200 * MIB, 0);
  if (!strstr(text, "FITS TIGHTLY the budget of 1.17 GiB")) fail_msg("%s", text);
  tn_text_free(text);
  story_end(&s);
}

/* Names from a file go into JSON and text as they are: quotes must not break out. */
static void hostile_names_stay_inside(void **state) {
  (void)state;
  story s = story_begin();
  uint32_t root = story_module(&s, "", "", TN_NONE);
  uint32_t module = story_module(&s, "\"},\\\n\t", "\x01", root);
  story_mark(&s, "step:0");
  saved_add(&s, MIB, "\"", module, 0);
  story_mark(&s, "end");
  char *text = report_of(s.trace, &card, 0, 1);
  json_t *parsed = json_loads(text, 0, NULL);
  assert_non_null(parsed);
  json_decref(parsed);
  tn_text_free(text);
  story_end(&s);
}

static void an_empty_trace_has_a_report(void **state) {
  (void)state;
  story s = story_begin();
  char *text = report_of(s.trace, &card, 0, 0);
  assert_non_null(strstr(text, "FITS the card"));
  tn_text_free(text);
  text = report_of(s.trace, &card, 0, 1);
  json_t *parsed = json_loads(text, 0, NULL);
  assert_non_null(parsed);
  json_decref(parsed);
  tn_text_free(text);
  story_end(&s);
}

static void wrong_calls_are_refused(void **state) {
  (void)state;
  story s = story_begin();
  char *text = (char *)&s;
  assert_int_equal(tn_report_estimate(NULL, &card, 0, 0, &text), TN_EINVAL);
  assert_int_equal(tn_report_estimate(s.trace, NULL, 0, 0, &text), TN_EINVAL);
  assert_int_equal(tn_report_estimate(s.trace, &card, 0, 0, NULL), TN_EINVAL);
  assert_ptr_equal(text, &s);
  tn_text_free(NULL);
  story_end(&s);
}

static int report_once(void *user) {
  char *text = NULL;
  int rc = tn_report_estimate(user, &card, 0, 0, &text);
  tn_text_free(text);
  return rc;
}

static void survives_running_out_of_memory(void **state) {
  (void)state;
  story s = encoder_story();
  assert_true(tn_test_sweep(report_once, s.trace) > 10);
  story_end(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_fits),
      cmocka_unit_test(text_does_not_fit),
      cmocka_unit_test(text_host),
      cmocka_unit_test(json_card),
      cmocka_unit_test(no_line_is_over_100_columns),
      cmocka_unit_test(json_tables_add_up),
      cmocka_unit_test(tight_fit_is_said),
      cmocka_unit_test(hostile_names_stay_inside),
      cmocka_unit_test(an_empty_trace_has_a_report),
      cmocka_unit_test(wrong_calls_are_refused),
      cmocka_unit_test(survives_running_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* html: the whole page; what a hostile file puts into it stays text; nothing is half-written. */
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "memory_run.h"

static char *page_of(const tn_trace *trace, const tn_html_options *options) {
  char *page = NULL;
  assert_int_equal(tn_report_html(trace, options, &page, NULL), TN_OK);
  return page;
}

/* The page's data as JSON. */
static json_t *data_of(const char *page) {
  const char *begin = strstr(page, "<script type=\"application/json\" id=\"data\">");
  assert_non_null(begin);
  begin = strchr(begin, '>') + 1;
  const char *end = strstr(begin, "</script>");
  json_t *data = json_loadb(begin, (size_t)(end - begin), 0, NULL);
  assert_non_null(data);
  return data;
}

static tn_trace *run_of(uint64_t seed, size_t steps) {
  memory_run run = run_make(seed, steps, 0);
  tn_trace *trace;
  assert_int_equal(run_trace(&run, steps / 10, &trace), TN_OK);
  assert_int_equal(tn_trace_check(trace, NULL), TN_OK);
  run_deinit(&run);
  return trace;
}

static void a_page_with_its_data(void **state) {
  (void)state;
  tn_trace *trace = run_of(1, 3000);
  char *page = page_of(trace, &(tn_html_options){.name = "run.pickle", .total_bytes = 1 << 30});
  assert_null(strstr(page, "{{")); /* every slot of the template is filled */
  assert_non_null(strstr(page, "script-src 'sha256-"));
  json_t *data = data_of(page);
  json_t *device = json_array_get(json_object_get(data, "devices"), 0);
  assert_string_equal(json_string_value(json_object_get(data, "name")), "run.pickle");
  assert_true(json_integer_value(json_object_get(device, "entries")) > 2500);
  assert_int_equal(json_integer_value(json_object_get(device, "total")), 1 << 30);
  assert_int_equal(json_array_size(json_object_get(data, "strings")), RUN_STACKS + 2); /* and "outer", "train.py" */
  json_decref(data);
  tn_text_free(page);
  tn_trace_free(trace);
}

static size_t times(const char *text, const char *what) {
  size_t count = 0;
  for (const char *at = text; (at = strstr(at, what)); at++) count++;
  return count;
}

/* Every text of the file and its name tries to end the script element; the page has as much markup as without them. */
static void no_text_becomes_markup(void **state) {
  (void)state;
  static const char evil[] = "</script><script>alert(1)</script><!--<script>";
  tn_trace *trace = run_of(2, 200), *other = run_of(2, 200);
  uint32_t id;
  assert_int_equal(tn_trace_add_string(trace, evil, &id), TN_OK);
  tn_frame frame = {.function = id, .file = id, .line = 1};
  tn_stack stack;
  size_t frames, places;
  (void)tn_trace_table(trace, TN_TABLE_FRAME, &frames);
  (void)tn_trace_table(trace, TN_TABLE_STACK_FRAME, &places);
  stack = (tn_stack){(uint32_t)places, 1};
  uint32_t at = (uint32_t)frames;
  assert_int_equal(tn_trace_add(trace, TN_TABLE_FRAME, &frame, 1), TN_OK);
  assert_int_equal(tn_trace_add(trace, TN_TABLE_STACK_FRAME, &at, 1), TN_OK);
  assert_int_equal(tn_trace_add(trace, TN_TABLE_STACK, &stack, 1), TN_OK);
  tn_entry *entries = (tn_entry *)(uintptr_t)tn_trace_table(trace, TN_TABLE_ENTRY, NULL);
  for (int i = 0; i < 100; i++) entries[i].stack = RUN_STACKS;
  tn_annotation annotation = {.time_us = 2000, .name = id};
  assert_int_equal(tn_trace_add(trace, TN_TABLE_ANNOTATION, &annotation, 1), TN_OK);
  assert_int_equal(tn_trace_set_meta(trace, "schema", evil), TN_OK);
  assert_int_equal(tn_trace_check(trace, NULL), TN_OK);
  char *page = page_of(trace, &(tn_html_options){.name = evil}), *plain = page_of(other, NULL);
  assert_int_equal(times(page, "<script"), times(plain, "<script"));
  assert_int_equal(times(page, "</script"), times(plain, "</script"));
  assert_int_equal(times(page, "<!--"), times(plain, "<!--"));
  assert_int_equal(times(page, "alert(1)"), times(page, "\\u003escript\\u003ealert(1)") + times(page, "script\\u003ealert(1)"));
  json_t *data = data_of(page);
  assert_string_equal(json_string_value(json_object_get(data, "name")), evil);
  json_decref(data);
  tn_text_free(plain);
  tn_text_free(page);
  tn_trace_free(other);
  tn_trace_free(trace);
}

static void a_trace_without_a_history_is_refused(void **state) {
  (void)state;
  tn_trace *trace;
  tn_error err = {0};
  char *page = NULL;
  assert_int_equal(tn_trace_new(&trace), TN_OK);
  assert_int_equal(tn_report_html(trace, NULL, &page, &err), TN_EINVAL);
  assert_null(page);
  assert_string_equal(err.msg, "has no allocator history of any device");
  tn_trace_free(trace);
}

static void a_file_is_replaced_whole_or_not_at_all(void **state) {
  (void)state;
  tn_trace *trace = run_of(3, 100);
  tn_error err = {0};
  struct stat st;
  assert_int_equal(tn_report_html_save(trace, NULL, "page.html", &err), TN_OK);
  assert_int_equal(stat("page.html", &st), 0);
  char *page = page_of(trace, NULL);
  assert_int_equal(st.st_size, strlen(page));
  assert_int_equal(tn_report_html_save(trace, NULL, "no/such/folder/page.html", &err), TN_EIO);
  assert_int_equal(tn_report_html_save(trace, NULL, ".", &err), TN_EIO);
  tn_text_free(page);
  unlink("page.html");
  tn_trace_free(trace);
}

static void a_smaller_bound_gives_a_smaller_page(void **state) {
  (void)state;
  tn_trace *trace = run_of(4, 40000);
  char *large = page_of(trace, NULL), *small = page_of(trace, &(tn_html_options){.history_bytes_max = 20000});
  assert_true(strlen(small) + 50000 < strlen(large));
  tn_text_free(small);
  tn_text_free(large);
  tn_trace_free(trace);
}

static int sweep(void *user) {
  char *page = NULL;
  int rc = tn_report_html(user, NULL, &page, NULL);
  tn_text_free(page);
  return rc;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  tn_trace *trace = run_of(5, 60);
  assert_true(tn_test_sweep(sweep, trace) > 50);
  tn_trace_free(trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_page_with_its_data),
      cmocka_unit_test(no_text_becomes_markup),
      cmocka_unit_test(a_trace_without_a_history_is_refused),
      cmocka_unit_test(a_file_is_replaced_whole_or_not_at_all),
      cmocka_unit_test(a_smaller_bound_gives_a_smaller_page),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

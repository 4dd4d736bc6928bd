/* test_tune.c -- which settings are tried, how they are ranked, and that threads do not change the answer. */
#include "caching/conf.h"
#include "caching/settings.h"
#include "recording.h"

static tn_tune *tuned(const tn_trace *trace, uint64_t limit_bytes, uint32_t threads) {
  tn_tune *tune = NULL;
  tn_error err = {0};
  tn_tune_options options = {.limit_bytes = limit_bytes, .device = TN_NONE, .threads = threads};
  if (tn_tune_new(trace, &options, &tune, &err)) fail_msg("%s", err.msg);
  return tune;
}

static recording *growing(int rounds, uint64_t limit_bytes) {
  recording *r = rec_new((tn_conf){.private_expandable = 1}, limit_bytes, 0);
  for (int i = 0; i < rounds; i++) {
    tn_addr addr = rec_alloc(r, (uint64_t)(40 + 2 * i) * MIB);
    if (addr) rec_dealloc(r, addr, 0);
  }
  return r;
}

/* ---- the list ------------------------------------------------------------------------------------------------------------ */

static void list_of(uint32_t version, int is_limited, tn_vec *out) {
  tn_conf recorded = {0};
  tn__vec_init(out, sizeof(tn_conf));
  assert_int_equal(tn__settings_list(&recorded, version, is_limited, out), TN_OK);
}

static void test_list(void **state) {
  (void)state;
  for (uint32_t version = 0; version <= TN__VERSION_NEWEST; version++) {
    tn_vec list;
    list_of(version, 0, &list);
    assert_true(list.count >= (version ? 60 : 56)); /* 2.0 has no expandable segments */
    int expandable = 0, large = 0, rounding = 0;
    for (size_t i = 0; i < list.count; i++) {
      const tn_conf *conf = tn__vec_at(&list, i);
      expandable |= conf->expandable_segments;
      large |= conf->large_segment_bytes != 0;
      rounding |= conf->max_non_split_rounding_bytes != 0;
      assert_false(conf->garbage_collection_threshold > 0); /* works against a limit */
      tn_caching *caching;
      assert_int_equal(tn_caching_new(&(tn_caching_config){.conf = *conf}, &caching), TN_OK);
      tn_caching_free(caching);
    }
    assert_int_equal(expandable, version >= TN__SINCE_EXPANDABLE);
    assert_int_equal(large, version >= TN__SINCE_LARGE_SEGMENT);
    assert_int_equal(rounding, version >= TN__SINCE_MAX_ROUNDING);
    tn__vec_deinit(&list);
  }
}

/* Whatever is offered, torch must take: our parser stands for it. */
static void test_list_can_be_written(void **state) {
  (void)state;
  tn_vec list;
  list_of(TN__VERSION_NEWEST, 1, &list);
  for (size_t i = 0; i < list.count; i++) {
    char *text = NULL;
    tn_conf again;
    assert_int_equal(tn_conf_format(tn__vec_at(&list, i), &text), TN_OK);
    assert_int_equal(tn__conf_parse(text, 0, &again, NULL), TN_OK);
    assert_true(tn__conf_equal(&again, tn__vec_at(&list, i)));
    for (size_t k = 0; k < i; k++) assert_false(tn__conf_equal(tn__vec_at(&list, i), tn__vec_at(&list, k)));
    tn_text_free(text);
  }
  tn__vec_deinit(&list);
}

/* ---- the answer ---------------------------------------------------------------------------------------------------------- */

static void test_least_reserved(void **state) {
  (void)state;
  recording *r = growing(8, 0);
  tn_trace *trace = rec_trace(r, 0);
  tn_tune *tune = tuned(trace, 0, 2);
  size_t count = 0;
  const tn_tune_row *rows = tn_tune_rows(tune, &count), *recorded = tn_tune_recorded(tune);
  assert_true(count > 60);
  assert_string_equal(rows[0].setting, "expandable_segments:True");
  assert_int_equal(rows[0].changes, 1);
  assert_int_equal(rows[0].result.stats.reserved_bytes.peak, 60 * MIB); /* 54 in pages of 20 */
  assert_string_equal(recorded->setting, "");
  assert_int_equal(recorded->result.stats.reserved_bytes.peak, tn_tune_exact(tune)->stats.reserved_bytes.peak);
  assert_int_equal(tn_tune_exact(tune)->exactness, TN_EXACT_YES);
  tn_tune_free(tune);
  tn_trace_free(trace);
  rec_free(r);
}

/* Nothing to gain: the recorded settings come first, though others do as well. */
static void test_keep(void **state) {
  (void)state;
  recording *r = growing(1, 0);
  tn_trace *trace = rec_trace(r, 0);
  tn_tune *tune = tuned(trace, 0, 1);
  assert_int_equal(tn_tune_rows(tune, NULL)[0].is_recorded, 1);
  tn_tune_free(tune);
  tn_trace_free(trace);
  rec_free(r);
}

/* Of settings that go through, the one that never has to give memory back; and what failed must be served first of all. */
static void test_under_a_limit(void **state) {
  (void)state;
  recording *r = rec_new((tn_conf){.private_expandable = 1}, 150 * MIB, 0);
  tn_addr wall = rec_alloc(r, 50 * MIB), a = rec_alloc(r, 60 * MIB), b = rec_alloc(r, 10 * MIB);
  rec_dealloc(r, a, 0);
  tn_addr half = rec_alloc(r, 30 * MIB); /* of the 60 */
  assert_int_equal(rec_alloc(r, 50 * MIB), 0);
  r->entries[r->entries_count - 1].addr = 500 * MIB;
  (void)wall, (void)b, (void)half;
  tn_trace *trace = rec_trace(r, 0);
  tn_tune *tune = tuned(trace, 150 * MIB, 1);
  const tn_tune_row *best = tn_tune_rows(tune, NULL), *recorded = tn_tune_recorded(tune);
  assert_int_equal(recorded->result.ooms_served, 0);
  assert_int_equal(best->result.ooms_served, 1);
  assert_int_equal(best->result.stalls, 0); /* unsplit, the 60 MiB serve 50 */
  assert_true(best->result.conf.max_split_bytes > 0 && best->result.conf.max_split_bytes <= 32 * MIB);
  tn_tune_free(tune);
  tn_trace_free(trace);
  rec_free(r);
}

static void test_threads_agree(void **state) {
  (void)state;
  recording *r = growing(20, 300 * MIB);
  tn_trace *trace = rec_trace(r, 0);
  tn_tune *one = tuned(trace, 0, 1), *many = tuned(trace, 0, 7);
  size_t count = 0, other = 0;
  const tn_tune_row *a = tn_tune_rows(one, &count), *b = tn_tune_rows(many, &other);
  assert_int_equal(count, other);
  for (size_t i = 0; i < count; i++) {
    assert_string_equal(a[i].setting, b[i].setting);
    assert_memory_equal(&a[i].result.stats, &b[i].result.stats, sizeof a[i].result.stats);
  }
  tn_tune_free(many);
  tn_tune_free(one);
  tn_trace_free(trace);
  rec_free(r);
}

/* What else the run had set stays in the line. */
static void test_other_keys_are_kept(void **state) {
  (void)state;
  recording *r = growing(8, 0);
  tn_trace *trace = rec_trace(r, 0);
  tn_trace_set_meta(trace, "allocator.PYTORCH_CUDA_ALLOC_CONF", "pinned_use_cuda_host_register:True, max_split_size_mb:64 ,pinned_num_register_threads:8");
  tn_trace_set_meta(trace, "allocator.max_split_size", "67108864");
  tn_tune *tune = tuned(trace, 0, 1);
  assert_string_equal(tn_tune_rows(tune, NULL)[0].setting,
                      "expandable_segments:True,pinned_use_cuda_host_register:True,pinned_num_register_threads:8");
  assert_string_equal(tn_tune_recorded(tune)->setting,
                      "max_split_size_mb:64,pinned_use_cuda_host_register:True,pinned_num_register_threads:8");
  tn_tune_free(tune);
  tn_trace_free(trace);
  rec_free(r);
}

/* ---- reports ------------------------------------------------------------------------------------------------------------- */

static void test_reports(void **state) {
  (void)state;
  recording *r = growing(8, 0);
  tn_trace *trace = rec_trace(r, 0);
  tn_tune *tune = tuned(trace, 0, 1);
  char *text = NULL;
  assert_int_equal(tn_report_tune(tune, 0, &text), TN_OK);
  assert_non_null(strstr(text, "USE expandable_segments:True: it reserves 316.00 MiB (84.0 %) less"));
  assert_non_null(strstr(text, "\n  export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"));
  tn_text_free(text);
  assert_int_equal(tn_report_tune(tune, 1, &text), TN_OK);
  assert_non_null(strstr(text, "\"PYTORCH_CUDA_ALLOC_CONF\": \"expandable_segments:True\""));
  tn_text_free(text);
  tn_tune_free(tune);
  tn_trace_free(trace);
  rec_free(r);
}

static int scenario(void *user) {
  tn_tune *tune = NULL;
  char *text = NULL;
  int rc = tn_tune_new(user, &(tn_tune_options){.device = TN_NONE, .threads = 1}, &tune, NULL);
  if (!rc) rc = tn_report_tune(tune, 0, &text);
  tn_text_free(text);
  tn_tune_free(tune);
  return rc;
}

static void test_out_of_memory(void **state) {
  (void)state;
  recording *r = growing(2, 0);
  tn_trace *trace = rec_trace(r, 0);
  assert_true(tn_test_sweep(scenario, trace) > 500);
  tn_trace_free(trace);
  rec_free(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_list),        cmocka_unit_test(test_list_can_be_written), cmocka_unit_test(test_least_reserved),
      cmocka_unit_test(test_keep),        cmocka_unit_test(test_under_a_limit),       cmocka_unit_test(test_threads_agree),
      cmocka_unit_test(test_other_keys_are_kept), cmocka_unit_test(test_reports),     cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

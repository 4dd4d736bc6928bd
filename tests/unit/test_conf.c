/* test_conf.c -- allocator settings as text: what torch takes and refuses, and back to text. */
#include "caching/conf.h"
#include "helper.h"

#define MIB ((uint64_t)1 << 20)

static tn_conf parsed(const char *text) {
  tn_conf conf = {0};
  tn_error err = {0};
  if (tn_conf_parse(text, NULL, &conf, &err)) fail_msg("\"%s\": %s", text, err.msg);
  return conf;
}

static void refused(const char *text, const char *msg) {
  tn_conf conf = {.max_split_bytes = 7};
  tn_error err = {0};
  assert_int_equal(tn_conf_parse(text, NULL, &conf, &err), TN_EINVAL);
  assert_string_equal(err.msg, msg);
  assert_int_equal(conf.max_split_bytes, 7); /* untouched */
}

static void test_plain(void **state) {
  (void)state;
  tn_conf none = {.private_expandable = 1}, conf = parsed("");
  assert_true(tn__conf_equal(&conf, &none));
  conf = parsed(" expandable_segments : True , max_split_size_mb:64,garbage_collection_threshold:0.6, ");
  assert_int_equal(conf.expandable_segments, 1);
  assert_int_equal(conf.max_split_bytes, 64 * MIB);
  assert_true(conf.garbage_collection_threshold > 0.59 && conf.garbage_collection_threshold < 0.61);
  conf = parsed("large_segment_size_mb:48,max_non_split_rounding_mb:64,per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True");
  assert_int_equal(conf.large_segment_bytes, 48 * MIB);
  assert_int_equal(conf.max_non_split_rounding_bytes, 64 * MIB);
  assert_int_equal(conf.throw_on_cudamalloc_oom, 1);
  assert_int_equal(parsed("backend:cudaMallocAsync").malloc_async, 1);
  assert_int_equal(parsed("backend:native,expandable_segments:True,expandable_segments:False").expandable_segments, 0);
  assert_int_equal(parsed("max_split_size_mb:-1").max_split_bytes, 0); /* a number so large that it is no bound */
  assert_int_equal(parsed("max_split_size_mb:128MB").max_split_bytes, 128 * MIB); /* std::stoull() stops at the letters */
}

static void test_settings_without_effect(void **state) {
  (void)state;
  tn_conf none = {.private_expandable = 1}, conf = parsed(
      "release_lock_on_cudamalloc:True,pinned_use_cuda_host_register:True,pinned_num_register_threads:8,"
      "pinned_use_background_threads:True,pinned_reserve_segment_size_mb:256,graph_capture_record_stream_reuse:True,"
      "expandable_segments_reserve:0.5,expandable_segments_reserve_by_class:[a:1,b:40G],pinned_max_cached_size_mb:0");
  assert_true(tn__conf_equal(&conf, &none));
}

/* The bound of max_split_size_mb is the large segment, wherever that is set. */
static void test_large_segment_is_read_first(void **state) {
  (void)state;
  assert_int_equal(parsed("max_split_size_mb:16,roundup_power2_divisions:[1:2],large_segment_size_mb:12").max_split_bytes, 16 * MIB);
  refused("max_split_size_mb:32,large_segment_size_mb:64", "allocator setting max_split_size_mb: 32 is too small, it must be at least 64");
}

static void divisions_are(const tn_conf *conf, const uint32_t *want) {
  for (size_t i = 0; i < TN_CONF_INTERVALS; i++) assert_int_equal(conf->roundup_divisions[i], want[i]);
}

/* As an H200 with PyTorch 2.11 recorded it, and as versions up to about 2.8 read it. */
static void test_roundup_list(void **state) {
  (void)state;
  static const uint32_t newer[] = {8, 8, 8, 8, 8, 8, 8, 0, 4, 2, 2, 2, 2, 2, 2, 2};
  static const uint32_t older[] = {8, 8, 8, 8, 8, 8, 8, 0, 2, 2, 2, 2, 2, 2, 2, 2};
  const char *text = "roundup_power2_divisions:[64:8,256:4,>:2]";
  tn_conf conf = parsed(text);
  divisions_are(&conf, newer);
  assert_int_equal(tn__conf_parse(text, TN__SINCE_LIST_AFTER_LAST - 1, &conf, NULL), TN_OK);
  divisions_are(&conf, older);
  static const uint32_t all[] = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4};
  conf = parsed("roundup_power2_divisions:4");
  divisions_are(&conf, all);
  static const uint32_t but_first[] = {0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4};
  conf = parsed("roundup_power2_divisions:[>:4,]"); /* as if after the first */
  divisions_are(&conf, but_first);
  static const uint32_t both[] = {8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4};
  conf = parsed("roundup_power2_divisions:[>:4,8:8]");
  divisions_are(&conf, both);
  conf = parsed("roundup_power2_divisions:[]");
  assert_int_equal(conf.roundup_divisions[0], 0);
  conf = parsed("roundup_power2_divisions:[1048576:4]"); /* above the last interval: the last */
  divisions_are(&conf, all);
}

static void test_refused(void **state) {
  (void)state;
  refused("expandable_segment:True", "unknown allocator setting \"expandable_segment\"; did you mean expandable_segments?");
  refused("foo:1", "unknown allocator setting \"foo\"");
  refused("max_split_size_mb=64", "allocator setting \"max_split_size_mb=64\": key and value are joined by \":\"");
  refused("max_split_size_mb:64 expandable_segments:True", "allocator setting max_split_size_mb: expected \",\", not \":\"");
  refused("max_split_size_mb:big", "allocator setting max_split_size_mb: \"big\" is not a whole number");
  refused("max_split_size_mb:-", "allocator setting max_split_size_mb: \"-\" is not a whole number");
  refused("pinned_num_register_threads:3", "allocator setting pinned_num_register_threads: 3 is not a power of 2");
  refused("max_split_size_mb:", "allocator setting max_split_size_mb has no value");
  refused("max_split_size_mb", "allocator setting max_split_size_mb ends where \":\" should come");
  refused("max_split_size_mb:19", "allocator setting max_split_size_mb: 19 is too small, it must be at least 20");
  refused("max_split_size_mb:99999999999999999999", "allocator setting max_split_size_mb: 99999999999999999999 is too large");
  refused("garbage_collection_threshold:1.0", "allocator setting garbage_collection_threshold: 1.0 is not between 0 and 1");
  refused("garbage_collection_threshold:nan", "allocator setting garbage_collection_threshold: nan is not between 0 and 1");
  refused("garbage_collection_threshold:much", "allocator setting garbage_collection_threshold: \"much\" is not a number");
  refused("expandable_segments:true", "allocator setting expandable_segments: expected True or False, not \"true\"");
  refused("backend:best", "allocator setting backend: expected native or cudaMallocAsync, not \"best\"");
  refused("roundup_power2_divisions:3", "allocator setting roundup_power2_divisions: 3 is not a power of 2");
  refused("roundup_power2_divisions:[3:4]", "allocator setting roundup_power2_divisions: interval 3 is not a power of 2");
  refused("roundup_power2_divisions:[4:4", "allocator setting roundup_power2_divisions ends where \"]\" should come");
  refused(",", "unknown allocator setting \",\"");
}

static void test_too_long(void **state) {
  (void)state;
  char text[200];
  memset(text, 'a', sizeof text);
  text[sizeof text - 1] = '\0';
  refused(text, "allocator setting \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\" is too long");
}

static void written_as(const char *text, const char *want) {
  tn_conf conf = parsed(text), again;
  char *got = NULL;
  assert_int_equal(tn_conf_format(&conf, &got), TN_OK);
  assert_string_equal(got, want);
  again = parsed(got);
  assert_true(tn__conf_equal(&conf, &again));
  assert_int_equal(tn__conf_parse(got, TN__SINCE_LIST_AFTER_LAST - 1, &again, NULL), TN_OK);
  assert_true(tn__conf_equal(&conf, &again)); /* whatever the version */
  tn_text_free(got);
}

static void test_write(void **state) {
  (void)state;
  written_as("", "");
  written_as("garbage_collection_threshold:0.8,max_split_size_mb:64,expandable_segments:True",
             "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.8");
  written_as("roundup_power2_divisions:8", "roundup_power2_divisions:8");
  written_as("roundup_power2_divisions:[64:8,256:4,>:2]", "roundup_power2_divisions:[64:8,128:0,256:4,512:2,>:2]");
  written_as("roundup_power2_divisions:[16384:8,>:2]", "roundup_power2_divisions:[16384:8,32768:2,>:2]");
  written_as("backend:cudaMallocAsync", "backend:cudaMallocAsync");
  written_as("large_segment_size_mb:64,throw_on_cudamalloc_oom:True", "large_segment_size_mb:64,throw_on_cudamalloc_oom:True");
}

static void test_recorded(void **state) {
  (void)state;
  tn_trace *trace;
  tn_conf conf;
  assert_int_equal(tn_trace_new(&trace), TN_OK);
  assert_int_equal(tn_conf_recorded(trace, &conf, NULL), TN_OK); /* says nothing: PyTorch's own */
  assert_int_equal(conf.expandable_segments, 0);
  tn_trace_set_meta(trace, "allocator.PYTORCH_CUDA_ALLOC_CONF", "large_segment_size_mb:48");
  tn_trace_set_meta(trace, "schema", "2.9+");
  tn_trace_set_meta(trace, "allocator.max_split_size", "67108864");
  tn_trace_set_meta(trace, "allocator.expandable_segments", "True");
  tn_trace_set_meta(trace, "allocator.garbage_collection_threshold", "0.6");
  tn_trace_set_meta(trace, "allocator.roundup_power2_divisions", "{\"1\": 8, \"2\": 0, \"32768\": 2}");
  assert_int_equal(tn_conf_recorded(trace, &conf, NULL), TN_OK);
  assert_int_equal(conf.large_segment_bytes, 48 * MIB);
  assert_int_equal(conf.max_split_bytes, 64 * MIB);
  assert_int_equal(conf.expandable_segments, 1);
  assert_int_equal(conf.private_expandable, 1);
  assert_int_equal(conf.roundup_divisions[0], 8);
  assert_int_equal(conf.roundup_divisions[15], 2);
  tn_trace_set_meta(trace, "allocator.max_split_size", "-1");
  assert_int_equal(tn_conf_recorded(trace, &conf, NULL), TN_OK);
  assert_int_equal(conf.max_split_bytes, 0);
  tn_trace_free(trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain),   cmocka_unit_test(test_settings_without_effect), cmocka_unit_test(test_large_segment_is_read_first),
      cmocka_unit_test(test_roundup_list), cmocka_unit_test(test_refused),            cmocka_unit_test(test_too_long),
      cmocka_unit_test(test_write),   cmocka_unit_test(test_recorded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

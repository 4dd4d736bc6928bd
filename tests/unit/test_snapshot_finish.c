/* test_snapshot_finish.c -- devices, segments, streams and what is said about the file. */
#include "snapshot_text.h"

static void devices_are_kept_apart(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "{\"device_traces\": [[], [{\"action\": \"alloc\", \"addr\": 1}, {\"action\": \"alloc\", \"addr\": 2}], [], [{\"action\": "
      "\"oom\"}]],"
      " \"segments\": [{\"device\": 2, \"address\": 9, \"total_size\": 1, \"blocks\": []}, {\"device\": 1, \"address\": 8, "
      "\"total_size\": 1, \"blocks\": []},"
      " {\"device\": 1, \"address\": 7, \"total_size\": 1, \"blocks\": []}, {\"device\": 70000, \"address\": 6, \"total_size\": 1, "
      "\"blocks\": []}]}");
  const tn_device *device = snapshot_table(trace, TN_TABLE_DEVICE, 4);
  const tn_segment *segment = snapshot_table(trace, TN_TABLE_SEGMENT, 4);
  assert_true(device[0].index == 1 && device[1].index == 2 && device[2].index == 3 && device[3].index == 70000);
  assert_true(device[0].segments_count == 2 && device[0].entries_count == 2);
  assert_true(device[1].segments_count == 1 && device[1].entries_count == 0);
  assert_true(device[2].segments_count == 0 && device[2].entries_count == 1);
  assert_true(device[3].segments_count == 1 && device[3].entries_count == 0);
  assert_true(segment[0].addr == 7 && segment[1].addr == 8 && segment[2].addr == 9 && segment[3].addr == 6);
  tn_trace_free(trace);
}

static void host_memory_comes_last(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "{\"host_traces\": [[{\"action\": \"alloc\", \"addr\": 1}]], \"device_traces\": [[{\"action\": \"alloc\", \"addr\": 2}]],"
      " \"host_segments\": [{\"address\": 3, \"total_size\": 4, \"blocks\": []}], \"segments\": [{\"address\": 5, \"total_size\": "
      "6, \"blocks\": []}]}");
  const tn_device *device = snapshot_table(trace, TN_TABLE_DEVICE, 2);
  const tn_entry *entry = snapshot_table(trace, TN_TABLE_ENTRY, 2);
  const tn_segment *segment = snapshot_table(trace, TN_TABLE_SEGMENT, 2);
  assert_true(device[0].flags == 0 && device[1].flags == TN_DEVICE_HOST);
  assert_true(entry[device[0].entries_at].addr == 2 && entry[device[1].entries_at].addr == 1);
  assert_true(segment[device[0].segments_at].addr == 5 && segment[device[1].segments_at].addr == 3);
  tn_trace_free(trace);
}

/* As one list, and segments as blocks: what they are like in a file is not known for sure. */
static void other_forms_of_host_memory(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "{\"segments\": [], \"host_traces\": [{\"action\": \"alloc\", \"addr\": 1}],"
      " \"host_segments\": [{\"address\": 512, \"size\": 64, \"state\": \"active_allocated\"}, {\"address\": 3, \"size\": 4, "
      "\"state\": \"inactive\"}]}");
  const tn_segment *segment = snapshot_table(trace, TN_TABLE_SEGMENT, 2);
  const tn_device *device = snapshot_table(trace, TN_TABLE_DEVICE, 1);
  assert_true(device->flags == TN_DEVICE_HOST && device->entries_count == 1 && device->segments_count == 2);
  assert_true(segment[0].addr == 3 && segment[0].bytes == 4 && segment[0].allocated_bytes == 0);
  assert_true(segment[1].addr == 512 && segment[1].bytes == 64 && segment[1].allocated_bytes == 64 && segment[1].blocks_count == 1);
  tn_trace_free(trace);
  tn_trace_free(snapshot_text("{\"segments\": [], \"host_segments\": [{\"bytes\": 5}], \"host_traces\": []}"));
}

static void addresses_are_unsigned(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "[{\"address\": -4096, \"total_size\": 512, \"blocks\": []}, {\"address\": 4096, \"total_size\": 512, \"blocks\": []}]");
  const tn_segment *segment = snapshot_table(trace, TN_TABLE_SEGMENT, 2);
  assert_true(segment[0].addr == 4096 && segment[1].addr == (uint64_t)-4096);
  tn_trace_free(trace);
}

/* Ids by handle, so that comparing ids compares handles, as the allocator's order of blocks needs. */
static void streams_by_handle(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "{\"device_traces\": [[{\"action\": \"alloc\", \"stream\": 9}, {\"action\": \"alloc\", \"stream\": -1}, {\"action\": "
      "\"alloc\"},"
      " {\"action\": \"alloc\", \"stream\": 5}]], \"segments\": [{\"address\": 1, \"total_size\": 1, \"stream\": 7, \"blocks\": "
      "[]}]}");
  const tn_stream *stream = snapshot_table(trace, TN_TABLE_STREAM, 5);
  const tn_entry *entry = snapshot_table(trace, TN_TABLE_ENTRY, 4);
  const tn_segment *segment = snapshot_table(trace, TN_TABLE_SEGMENT, 1);
  assert_true(stream[0].handle == 0 && stream[1].handle == 5 && stream[2].handle == 7 && stream[3].handle == 9 &&
              stream[4].handle == UINT64_MAX);
  assert_true(entry[0].stream == 3 && entry[1].stream == 4 && entry[2].stream == 0 && entry[3].stream == 1 && segment->stream == 2);
  tn_trace_free(trace);
}

static void unknown_actions_are_left_out(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "{\"device_traces\": [[{\"action\": \"teleport\", \"addr\": 1}], [{\"action\": \"alloc\", \"addr\": 2}, {\"action\": "
      "\"teleport\"}]]}");
  const tn_device *device = snapshot_table(trace, TN_TABLE_DEVICE, 1);
  assert_true(device->index == 1 && device->entries_count == 1);
  assert_string_equal(tn_trace_meta(trace, "entries_skipped"), "2");
  tn_trace_free(trace);
  trace = snapshot_entries("{\"action\": \"alloc\"}");
  assert_null(tn_trace_meta(trace, "entries_skipped"));
  tn_trace_free(trace);
}

/* Gaps, overlaps, and sizes that do not add up: the segment stays, its blocks do not. */
static void blocks_that_do_not_tile(void **state) {
  (void)state;
  static const char *const blocks[] = {
      "{\"size\": 8, \"state\": \"inactive\"}",
      "{\"size\": 32, \"state\": \"inactive\"}",
      "{\"size\": 8, \"state\": \"inactive\"}, {\"size\": 16, \"state\": \"inactive\"}",
      "{\"size\": 16, \"address\": 4097, \"state\": \"inactive\"}",
      "{\"size\": 8, \"address\": 4096, \"state\": \"inactive\"}, {\"size\": 8, \"address\": 4096, \"state\": \"inactive\"}",
      "{\"size\": 4611686018427387903, \"state\": \"inactive\"}, {\"size\": 4611686018427387903, \"state\": \"inactive\"}",
  };
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    char text[512];
    (void)snprintf(text, sizeof text, "[{\"address\": 4096, \"total_size\": 16, \"allocated_size\": 3, \"blocks\": [%s]}]",
                   blocks[i]);
    tn_trace *trace = snapshot_text(text);
    const tn_segment *segment = snapshot_table(trace, TN_TABLE_SEGMENT, 1);
    (void)snapshot_table(trace, TN_TABLE_SEGMENT_BLOCK, 0);
    assert_true(segment->bytes == 16 && segment->allocated_bytes == 3 && segment->flags == TN_SEGMENT_UNTILED);
    tn_trace_free(trace);
  }
}

static void sizes_beyond_any_memory(void **state) {
  (void)state;
  snapshot_text_refused("[{\"address\": 18446744073709551615, \"total_size\": 2, \"blocks\": []}]",
                        "byte 2: a segment of 2 bytes ends beyond the address space");
  snapshot_text_refused(
      "[{\"address\": 0, \"total_size\": 4611686018427387903, \"blocks\": []}, {\"address\": 0, \"total_size\": 2, \"blocks\": "
      "[]}]",
      "byte 67: the sizes of segments add up to more than any memory");
}

/* A list or an entry that the memo puts into two places is there twice. */
static void what_is_shared(void **state) {
  (void)state;
  static const char data[] =
      "\x80\x04}\x8c\x0d"
      "device_traces](](}\x94(\x8c\x06"
      "action\x8c\x05"
      "alloc\x8c\x04"
      "addrK\x05uh\x00}\x8c\x06"
      "action\x8c\x03ooms"
      "e\x94]h\x01"
      "es.";
  tn_trace *trace = snapshot_read(data, sizeof data - 1);
  const tn_device *device = snapshot_table(trace, TN_TABLE_DEVICE, 2);
  const tn_entry *entry = snapshot_table(trace, TN_TABLE_ENTRY, 6);
  assert_true(device[0].entries_count == 3 && device[1].entries_count == 3 && device[1].index == 2);
  for (int i = 0; i < 6; i++) assert_int_equal(entry[i].action, i % 3 == 2 ? TN_ACTION_OOM : TN_ACTION_ALLOC);
  tn_trace_free(trace);
}

/* A few thousand bytes that stand for a hundred million records. */
static void lists_shared_too_often(void **state) {
  (void)state;
  enum { MANY = 10000 };
  char *data = malloc(16 * MANY + 256), *at = data;
  assert_non_null(data);
  at += sprintf(at, "%s",
                "\x80\x04}\x8c\x0d"
                "device_traces](]\x94(}\x94\x8c\x06"
                "action\x8c\x05"
                "allocs");
  for (int i = 1; i < MANY; i++) at = (char *)memcpy(at, "h\1", 2) + 2;
  *at++ = 'e';
  for (int i = 1; i < MANY; i++) at = (char *)memcpy(at, "h\0", 2) + 2;
  at = (char *)memcpy(at, "es.", 3) + 3;
  (void)snapshot_refused(data, (size_t)(at - data), "takes more than 128 MiB and 8 times its size of memory");
  at = data;
  at += sprintf(at, "%s",
                "\x80\x04](}\x8c\x06"
                "blocks](}\x94\x8c\x05"
                "state\x8c\x08"
                "inactives");
  for (int i = 1; i < MANY; i++) at = (char *)memcpy(at, "h\0", 2) + 2;
  at = (char *)memcpy(at, "e\x94s", 3) + 3;
  for (int i = 1; i < MANY; i++)
    at = (char *)memcpy(at,
                        "}\x8c\x06"
                        "blocksh\1s",
                        12) +
         12;
  at = (char *)memcpy(at, "e.", 2) + 2;
  (void)snapshot_refused(data, (size_t)(at - data), "takes more than 128 MiB and 8 times its size of memory");
  free(data);
}

static void nothing_at_all(void **state) {
  (void)state;
  static const char *const empty[] = {"[]", "{\"segments\": []}", "{\"device_traces\": []}",
                                      "{\"segments\": [], \"device_traces\": [[], []]}",
                                      "{\"segments\": null, \"device_traces\": null}"};
  for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
    tn_trace *trace = snapshot_text(empty[i]);
    (void)snapshot_table(trace, TN_TABLE_DEVICE, 0);
    (void)snapshot_table(trace, TN_TABLE_POOL, 1);
    assert_string_equal(tn_trace_meta(trace, "source"), "torch memory snapshot");
    tn_trace_free(trace);
  }
}

static void schema_by_the_newest_key(void **state) {
  (void)state;
  static const struct {
    const char *text, *schema;
  } cases[] = {
      {"[]", "2.1+"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"time_us\": 1}]]}", "2.3+"},
      {"{\"segments\": [], \"allocator_settings\": {}}", "2.3+"},
      {"{\"segments\": [], \"external_annotations\": []}", "2.6+"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"compile_context\": \"N/A\"}]]}", "2.8+"},
      {"{\"segments\": [], \"allocator_settings\": {\"graph_capture_record_stream_reuse\": false}}", "2.9+"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"user_metadata\": \"\"}]]}", "2.10+"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"pool_id\": [0, 0]}]]}", "2.12+"},
      {"{\"segments\": [], \"host_traces\": []}", "2.12+"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tn_trace *trace = snapshot_text(cases[i].text);
    assert_string_equal(tn_trace_meta(trace, "schema"), cases[i].schema);
    tn_trace_free(trace);
  }
}

static void too_many_settings(void **state) {
  (void)state;
  char *text = malloc(40000);
  assert_non_null(text);
  size_t used = (size_t)sprintf(text, "{\"segments\": [], \"allocator_settings\": {\"a\": 1");
  for (int i = 0; i < 600; i++) used += (size_t)sprintf(text + used, ", \"setting%d\": %d", i, i);
  (void)sprintf(text + used, "}}");
  snapshot_text_refused(text, "has more than 500 allocator settings");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_are_kept_apart),
      cmocka_unit_test(host_memory_comes_last),
      cmocka_unit_test(other_forms_of_host_memory),
      cmocka_unit_test(addresses_are_unsigned),
      cmocka_unit_test(streams_by_handle),
      cmocka_unit_test(unknown_actions_are_left_out),
      cmocka_unit_test(blocks_that_do_not_tile),
      cmocka_unit_test(sizes_beyond_any_memory),
      cmocka_unit_test(what_is_shared),
      cmocka_unit_test(lists_shared_too_often),
      cmocka_unit_test(nothing_at_all),
      cmocka_unit_test(schema_by_the_newest_key),
      cmocka_unit_test(too_many_settings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

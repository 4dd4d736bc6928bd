/* test_snapshot_schema.c -- what each key of each dictionary becomes. */
#include "snapshot_text.h"

static void an_entry(void **state) {
  (void)state;
  tn_trace *trace = snapshot_entries(
      "{\"action\": \"free_completed\", \"addr\": 4096, \"size\": 100, \"stream\": 7, \"time_us\": 99, \"pool_id\": [0, 3],"
      " \"frames\": [{\"filename\": \"a.py\", \"line\": 5, \"name\": \"f\"}], \"forward_frames\": [\"  File \\\"b.py\\\", line 6, "
      "in g\\n\"],"
      " \"user_metadata\": \"step\", \"compile_context\": \"0/1\", \"category\": \"gradient\", \"tomorrow\": {\"size\": -1}}");
  const tn_entry *entry = snapshot_table(trace, TN_TABLE_ENTRY, 1);
  const tn_pool *pools = snapshot_table(trace, TN_TABLE_POOL, 2);
  const tn_stream *streams = snapshot_table(trace, TN_TABLE_STREAM, 1);
  const tn_frame *frames = snapshot_table(trace, TN_TABLE_FRAME, 2);
  const tn_stack *stacks = snapshot_table(trace, TN_TABLE_STACK, 2);
  const uint32_t *stack_frames = snapshot_table(trace, TN_TABLE_STACK_FRAME, 2);
  assert_int_equal(entry->action, TN_ACTION_FREE_COMPLETED);
  assert_int_equal(entry->addr, 4096);
  assert_int_equal(entry->bytes, 100);
  assert_int_equal(entry->time_us, 99);
  assert_int_equal(entry->category, TN_CATEGORY_GRADIENT);
  assert_int_equal(streams[entry->stream].handle, 7);
  assert_true(pools[0].first == 0 && pools[0].second == 0);
  assert_true(pools[entry->pool].first == 0 && pools[entry->pool].second == 3);
  assert_string_equal(tn_trace_string(trace, entry->label), "step");
  assert_string_equal(tn_trace_string(trace, entry->compile_context), "0/1");
  assert_int_equal(stacks[entry->stack].frames_count, 1);
  const tn_frame *frame = &frames[stack_frames[stacks[entry->stack].frames_at]];
  assert_string_equal(tn_trace_string(trace, frame->file), "a.py");
  assert_string_equal(tn_trace_string(trace, frame->function), "f");
  assert_int_equal(frame->line, 5);
  frame = &frames[stack_frames[stacks[entry->forward].frames_at]];
  assert_string_equal(tn_trace_string(trace, frame->file), "b.py");
  assert_string_equal(tn_trace_string(trace, frame->function), "g");
  assert_int_equal(frame->line, 6);
  tn_trace_free(trace);
}

static void what_an_entry_lacks(void **state) {
  (void)state;
  tn_trace *trace =
      snapshot_entries("{\"action\": \"alloc\"}, {\"action\": \"alloc\", \"frames\": [], \"compile_context\": \"N/A\"}");
  const tn_entry *entry = snapshot_table(trace, TN_TABLE_ENTRY, 2);
  const tn_stack *stack = snapshot_table(trace, TN_TABLE_STACK, 1);
  assert_true(entry[0].stack == TN_NONE && entry[0].forward == TN_NONE);
  assert_int_equal(entry[0].category, TN_CATEGORY_UNKNOWN);
  assert_int_equal(((const tn_stream *)snapshot_table(trace, TN_TABLE_STREAM, 1))->handle, 0);
  assert_int_equal(entry[1].stack, 0); /* recorded, with nothing in it */
  assert_int_equal(stack->frames_count, 0);
  assert_int_equal(entry[1].compile_context, 0);
  tn_trace_free(trace);
}

static void actions(void **state) {
  (void)state;
  for (int action = 0; action < TN_ACTION_COUNT; action++) {
    char text[64];
    (void)snprintf(text, sizeof text, "{\"action\": \"%s\", \"addr\": 1, \"size\": 2}", tn_action_name(action));
    tn_trace *trace = snapshot_entries(text);
    assert_int_equal(((const tn_entry *)snapshot_table(trace, TN_TABLE_ENTRY, 1))->action, action);
    tn_trace_free(trace);
  }
}

/* torch 2.0 has one action where later versions have two. */
static void free_is_two_actions(void **state) {
  (void)state;
  tn_trace *trace = snapshot_entries(
      "{\"action\": \"alloc\", \"addr\": 5}, {\"action\": \"free\", \"addr\": 5, \"size\": 8}, {\"action\": \"alloc\"}");
  const tn_entry *entry = snapshot_table(trace, TN_TABLE_ENTRY, 4);
  assert_int_equal(entry[1].action, TN_ACTION_FREE_REQUESTED);
  assert_int_equal(entry[2].action, TN_ACTION_FREE_COMPLETED);
  assert_true(entry[1].addr == 5 && entry[2].addr == 5 && entry[2].bytes == 8);
  tn_trace_free(trace);
}

static void truth_values_are_numbers(void **state) {
  (void)state;
  tn_trace *trace = snapshot_entries("{\"action\": \"alloc\", \"size\": true, \"time_us\": false}");
  const tn_entry *entry = snapshot_table(trace, TN_TABLE_ENTRY, 1);
  assert_true(entry->bytes == 1 && entry->time_us == 0);
  tn_trace_free(trace);
}

static void an_out_of_memory(void **state) {
  (void)state;
  tn_trace *trace = snapshot_entries("{\"device_free\": 77, \"size\": 2048, \"action\": \"oom\"}");
  assert_int_equal(((const tn_entry *)snapshot_table(trace, TN_TABLE_ENTRY, 1))->addr, 77);
  tn_trace_free(trace);
}

static void keys_that_come_twice(void **state) {
  (void)state;
  tn_trace *trace = snapshot_entries("{\"size\": \"odd\", \"action\": \"oom\", \"size\": 1, \"action\": \"alloc\", \"size\": 2}");
  const tn_entry *entry = snapshot_table(trace, TN_TABLE_ENTRY, 1);
  assert_true(entry->action == TN_ACTION_ALLOC && entry->bytes == 2);
  tn_trace_free(trace);
}

static void a_segment(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "{\"segments\": [{\"device\": 0, \"address\": 4096, \"total_size\": 1536, \"allocated_size\": 1, \"active_size\": 2, "
      "\"requested_size\": 3,"
      " \"stream\": 9, \"segment_type\": \"small\", \"segment_pool_id\": [1, 2], \"is_expandable\": true, \"frames\": [],"
      " \"blocks\": [{\"address\": 4096, \"size\": 512, \"requested_size\": 500, \"state\": \"active_allocated\", \"frames\": [], "
      "\"category\": \"input\"},"
      " {\"size\": 512, \"requested_size\": 400, \"state\": \"active_pending_free\"}, {\"size\": 512, \"requested_size\": 300, "
      "\"state\": \"inactive\"}]}]}");
  const tn_segment *segment = snapshot_table(trace, TN_TABLE_SEGMENT, 1);
  const tn_segment_block *block = snapshot_table(trace, TN_TABLE_SEGMENT_BLOCK, 3);
  assert_true(segment->addr == 4096 && segment->bytes == 1536);
  assert_true(segment->allocated_bytes == 1 && segment->active_bytes == 2 && segment->requested_bytes == 3);
  assert_int_equal(segment->flags, TN_SEGMENT_SMALL | TN_SEGMENT_EXPANDABLE);
  assert_int_equal(segment->pool, 1);
  assert_int_equal(segment->blocks_count, 3);
  assert_true(block[0].addr == 4096 && block[1].addr == 4608 && block[2].addr == 5120);
  assert_true(block[0].requested_bytes == 500 && block[1].requested_bytes == 400 && block[2].requested_bytes == 0);
  assert_true(block[0].state == TN_BLOCK_ALLOCATED && block[1].state == TN_BLOCK_PENDING_FREE &&
              block[2].state == TN_BLOCK_INACTIVE);
  assert_true(block[0].stack == 0 && block[1].stack == TN_NONE);
  assert_true(block[0].category == TN_CATEGORY_INPUT && block[1].category == TN_CATEGORY_UNKNOWN);
  for (int i = 0; i < 3; i++) assert_int_equal(block[i].reserved, 0);
  tn_trace_free(trace);
}

/* The profiler's export says nothing of them. */
static void sums_that_the_file_lacks(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "[{\"address\": 0, \"blocks\": [{\"size\": 512, \"state\": \"active_allocated\"}, {\"size\": 1024, \"requested_size\": 1000, "
      "\"state\":"
      " \"active_awaiting_free\"}, {\"size\": 2048, \"state\": \"inactive\"}]}]");
  const tn_segment *segment = snapshot_table(trace, TN_TABLE_SEGMENT, 1);
  assert_true(segment->bytes == 3584 && segment->allocated_bytes == 512 && segment->active_bytes == 1536);
  assert_int_equal(segment->requested_bytes, 1512);
  tn_trace_free(trace);
}

/* torch 2.0: the last allocation's size and stack come first in the history. */
static void a_history(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "[{\"address\": 0, \"total_size\": 1024, \"blocks\": [{\"size\": 512, \"state\": \"active_allocated\", \"history\": "
      "[{\"addr\": 0, \"real_size\": 300,"
      " \"frames\": [{\"filename\": \"a\", \"line\": 1, \"name\": \"f\"}]}, {\"addr\": 256, \"real_size\": 1}]},"
      " {\"size\": 512, \"state\": \"active_allocated\", \"history\": []}]}]");
  const tn_segment_block *block = snapshot_table(trace, TN_TABLE_SEGMENT_BLOCK, 2);
  assert_true(block[0].requested_bytes == 300 && block[0].stack == 0);
  assert_true(block[1].requested_bytes == 0 && block[1].stack == TN_NONE);
  assert_string_equal(tn_trace_meta(trace, "schema"), "2.0");
  tn_trace_free(trace);
}

static void frames_without_a_line(void **state) {
  (void)state;
  tn_trace *trace = snapshot_entries(
      "{\"action\": \"alloc\", \"frames\": [{\"filename\": \"a\", \"line\": -1, \"name\": \"f\"}, {\"filename\": \"a\", \"name\": "
      "\"f\", \"line\": null},"
      " {\"line\": 0, \"filename\": \"a\", \"name\": \"f\"}]}");
  (void)snapshot_table(trace, TN_TABLE_FRAME, 1);
  (void)snapshot_table(trace, TN_TABLE_STACK_FRAME, 3);
  tn_trace_free(trace);
}

static void text_frames(void **state) {
  (void)state;
  static const struct {
    const char *text, *file, *function;
    uint32_t line;
  } cases[] = {
      {"  File \\\"a b.py\\\", line 12, in <module>\\n    code = 1\\n", "a b.py", "<module>", 12},
      {"File \\\"a.py\\\", line 99999999999, in f", "a.py", "f", 0},
      {"File \\\"a.py\\\", line 7", "a.py", "", 7},
      {"File \\\"a.py\\\", line", "", "File \"a.py\", line", 0},
      {" at::native::add \\n", "", "at::native::add", 0},
      {"", "", "", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char entry[256];
    (void)snprintf(entry, sizeof entry, "{\"action\": \"alloc\", \"forward_frames\": [\"%s\"]}", cases[i].text);
    tn_trace *trace = snapshot_entries(entry);
    const tn_frame *frame = snapshot_table(trace, TN_TABLE_FRAME, 1);
    assert_string_equal(tn_trace_string(trace, frame->file), cases[i].file);
    assert_string_equal(tn_trace_string(trace, frame->function), cases[i].function);
    assert_int_equal(frame->line, cases[i].line);
    tn_trace_free(trace);
  }
}

/* format_stack() ends with the innermost frame; a trace begins with it. */
static void text_frames_are_turned_round(void **state) {
  (void)state;
  tn_trace *trace = snapshot_entries("{\"action\": \"alloc\", \"forward_frames\": [\"outer\", \"inner\"]}");
  const tn_frame *frames = snapshot_table(trace, TN_TABLE_FRAME, 2);
  const uint32_t *stack = snapshot_table(trace, TN_TABLE_STACK_FRAME, 2);
  assert_string_equal(tn_trace_string(trace, frames[stack[0]].function), "inner");
  assert_string_equal(tn_trace_string(trace, frames[stack[1]].function), "outer");
  tn_trace_free(trace);
}

static void annotations(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "{\"segments\": [], \"external_annotations\": [{\"name\": \"step\", \"stage\": \"START\", \"device\": 1, \"time_us\": 5, "
      "\"mine\": []},"
      " {\"stage\": \"END\", \"name\": \"step\", \"time_us\": 6}]}");
  const tn_annotation *annotation = snapshot_table(trace, TN_TABLE_ANNOTATION, 2);
  assert_true(annotation[0].time_us == 5 && annotation[0].device == 1 && annotation[0].flags == 0);
  assert_true(annotation[1].time_us == 6 && annotation[1].device == 0 && annotation[1].flags == TN_ANNOTATION_END);
  assert_int_equal(annotation[0].name, annotation[1].name);
  tn_trace_free(trace);
}

static void settings_become_meta(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "{\"segments\": [], \"allocator_settings\": {\"PYTORCH_CUDA_ALLOC_CONF\": \"a:b\", \"max_split_size\": -1, "
      "\"expandable_segments\": false,"
      " \"garbage_collection_threshold\": 0.6, \"roundup_power2_divisions\": {\"1\": 0, \"32768\": 4}, \"trace_alloc_overflowed\": "
      "[true]}}");
  assert_string_equal(tn_trace_meta(trace, "allocator.PYTORCH_CUDA_ALLOC_CONF"), "a:b");
  assert_string_equal(tn_trace_meta(trace, "allocator.max_split_size"), "-1");
  assert_string_equal(tn_trace_meta(trace, "allocator.expandable_segments"), "false");
  assert_true(strtod(tn_trace_meta(trace, "allocator.garbage_collection_threshold"), NULL) == 0.6);
  assert_string_equal(tn_trace_meta(trace, "allocator.roundup_power2_divisions"), "{\"1\": 0, \"32768\": 4}");
  assert_string_equal(tn_trace_meta(trace, "allocator.trace_alloc_overflowed"), "[true]");
  tn_trace_free(trace);
}

/* Each is shown where it stands; x marks the value's place. */
static void wrong_values(void **state) {
  (void)state;
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"{\"device_traces\": [[{\"action\": 5}]]}", "byte 31: \"action\" is a number, expected a text"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": \"5\"}]]}",
       "byte 48: \"addr\" is a text, expected a number of 64 bits"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"size\": 4611686018427387904}]]}",
       "\"size\" is 4611686018427387904, expected less than"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"time_us\": -1}]]}", "\"time_us\" is -1, expected 0 or more"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"frames\": 1}]]}", "\"frames\" is a number, expected a list of frames"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"frames\": [1]}]]}",
       "\"frames\" is a list or dictionary, expected a list of frames"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"frames\": [{\"filename\": 1}]}]]}",
       "byte 64: \"filename\" is a number, expected a text"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"pool_id\": [1]}]]}",
       "\"pool_id\" is a list or dictionary, expected two numbers"},
      {"{\"device_traces\": [[{\"action\": \"alloc\", \"pool_id\": [1, \"a\"]}]]}",
       "\"pool_id\" is a list or dictionary, expected two numbers"},
      {"{\"device_traces\": [{\"action\": \"alloc\"}, 1]}", "expected a list of lists of trace entries"},
      {"{\"device_traces\": [[{\"action\": \"alloc\"}, {\"action\": \"alloc\", \"size\": -1}]]}", "byte 69: \"size\" is -1"},
      {"{\"device_traces\": 1}", "byte 18: \"device_traces\" is a number, expected a list of lists of trace entries"},
      {"{\"segments\": [{\"state\": \"inactive\"}]}", "\"segments\" is a list or dictionary, expected a list of segments"},
      {"{\"segments\": [{\"blocks\": 7}]}", "\"blocks\" is a number, expected a list of blocks"},
      {"{\"segments\": [{\"blocks\": [{\"state\": \"asleep\"}]}]}",
       "byte 36: \"state\" of a block is asleep, expected active_allocated"},
      {"{\"segments\": [{\"blocks\": [{\"state\": 3}]}]}", "\"state\" of a block is a number"},
      {"{\"segments\": [{\"total_size\": 1, \"device\": 4294967295}]}", "\"device\" is 4294967295, expected less than 4294967295"},
      {"{\"segments\": [], \"external_annotations\": [{\"stage\": 1, \"time_us\": []}]}",
       "\"time_us\" is a list or dictionary, expected a number of 64 bits"},
      {"{\"weights\": [1, 2]}", "is no memory snapshot: expected a dictionary with \"segments\""},
      {"{}", "is no memory snapshot"},
      {"[1]", "is no memory snapshot"},
      {"[[]]", "is no memory snapshot"},
      {"5", "byte 0: expected a pickle, JSON or a trace, found 0x35"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) snapshot_text_refused(cases[i].text, cases[i].expected);
}

/* What looks like ours but lies where nothing is expected is skipped, whatever is wrong with it. */
static void unknown_keys_are_never_fatal(void **state) {
  (void)state;
  tn_trace *trace = snapshot_text(
      "{\"x\": [{\"action\": 1}, {\"state\": 2}, {\"filename\": {}}, {\"stage\": [], \"time_us\": \"a\"}, {\"total_size\": \"a\"}, "
      "{\"real_size\": -1},"
      " {\"segments\": 5}, {\"action\": \"alloc\", \"size\": -7}], \"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", "
      "\"y\": [{\"line\": 1}]}]]}");
  (void)snapshot_table(trace, TN_TABLE_ENTRY, 1);
  tn_trace_free(trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_entry),
      cmocka_unit_test(what_an_entry_lacks),
      cmocka_unit_test(actions),
      cmocka_unit_test(free_is_two_actions),
      cmocka_unit_test(truth_values_are_numbers),
      cmocka_unit_test(an_out_of_memory),
      cmocka_unit_test(keys_that_come_twice),
      cmocka_unit_test(a_segment),
      cmocka_unit_test(sums_that_the_file_lacks),
      cmocka_unit_test(a_history),
      cmocka_unit_test(frames_without_a_line),
      cmocka_unit_test(text_frames),
      cmocka_unit_test(text_frames_are_turned_round),
      cmocka_unit_test(annotations),
      cmocka_unit_test(settings_become_meta),
      cmocka_unit_test(wrong_values),
      cmocka_unit_test(unknown_keys_are_never_fatal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_pass_json.c -- the plan as written: what a run of it would find, step by step. */
#include "pass_model.h"
#include "plan/pass_json.h"
#include "rig.h"

/* The pass as text; the caller frees it. */
static char *pass_of(const rig *r) {
  tn_text text;
  char *out = NULL;
  tn__text_init(&text);
  tn__text_add(&text, "{");
  net_must(tn__pass_json(&r->schedule, &text));
  tn__text_add(&text, "}");
  net_must(tn__text_take(&text, &out));
  return out;
}

static json_t *json_of(const rig *r) {
  char *text = pass_of(r);
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  if (!root) fail_msg("not JSON: %s", text);
  tn_text_free(text);
  return root;
}

static void assert_member(const json_t *root, const char *name, const char *want) {
  char *text = json_dumps(json_object_get(root, name), JSON_COMPACT | JSON_SORT_KEYS);
  assert_string_equal(text, want);
  free(text);
}

static void nothing_rebuilt(void **state) {
  (void)state;
  net n = net_chain(4, MB);
  rig r;
  rig_open(&r, &n);
  rig_run(&r);
  json_t *root = json_of(&r);
  assert_member(root, "slots", "[[\"float32[4,8] MulBackward0\",1],[\"float32[4,8] MulBackward0\",1],[\"float32[4,8] MulBackward0\",1]]");
  assert_member(root, "ops", "{}");
  assert_member(root, "sources", "{}");
  assert_member(root, "rebuild", "{}");
  assert_member(root, "hold", "{}");
  assert_member(root, "random", "[]");
  json_decref(root);
  rig_close(&r);
}

/* Values: 0 the batch, 1 the parameter, 2 + i op i's. */
static void one_slot_from_another(void **state) {
  (void)state;
  net n = net_chain(4, MB);
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 1);
  json_t *root = json_of(&r);
  assert_member(root, "ops", "{\"1\":{\"call\":{\"args\":[{\"v\":2}],\"kwargs\":{}},\"op\":\"aten.mul.Tensor\",\"out\":[3]}}");
  assert_member(root, "sources", "{\"2\":\"slot:0\"}");
  assert_member(root, "rebuild", "{\"1\":{\"forget\":[3],\"run\":[[1,[]]],\"value\":3}}");
  json_decref(root);
  rig_close(&r);
}

static void sources_from_outside(void **state) {
  (void)state;
  net n = net_chain(4, MB);
  n.ops[0].inputs[1] = NET_PARAMETER;
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 0);
  json_t *root = json_of(&r);
  assert_member(root, "sources", "{\"0\":\"input:0\",\"1\":\"parameter:w\"}");
  json_decref(root);
  rig_close(&r);
}

/* Views are not repeated but cut out of their base; strides and offset as they were, also when the slot itself is one. */
static void windows(void **state) {
  (void)state;
  net n = net_chain(4, MB);
  n.ops[1] = (net_op){.inputs = {0, NET_NO_INPUT}, .flags = TN_OP_REBUILDABLE, .is_view = 1, .meta = "float32[8,4]/1,8+16"};
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 0);
  rig_drop(&r, 2);
  json_t *root = json_of(&r);
  char key[16];
  snprintf(key, sizeof key, "%zu", r.graph.op_count + 3); /* value 3's window */
  char *text = json_dumps(json_object_get(json_object_get(root, "ops"), key), JSON_COMPACT | JSON_SORT_KEYS);
  assert_string_equal(text, "{\"call\":{\"args\":[{\"v\":2},[8,4],[1,8],16],\"kwargs\":{}},\"op\":\"aten.as_strided.default\",\"out\":[3]}");
  free(text);
  char want[160];
  snprintf(want, sizeof want, "{\"0\":{\"forget\":[3,2],\"run\":[[%s,[]]],\"value\":3},\"1\":{\"forget\":[4],\"run\":[[0,[]],[%s,[]],[2,[3]]],\"value\":4}}", key, key);
  assert_member(root, "rebuild", want);
  json_decref(root);
  rig_close(&r);
}

static void random_ops(void **state) {
  (void)state;
  net n = net_chain(4, MB);
  n.ops[0].flags |= TN_OP_RANDOM;
  n.ops[2].flags |= TN_OP_RANDOM;
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 0);
  rig_drop(&r, 2);
  json_t *root = json_of(&r);
  assert_member(root, "random", "[[1,1],[-1,0]]"); /* slot 1 is op 2's input */
  assert_int_equal(json_integer_value(json_object_get(json_object_get(json_object_get(root, "ops"), "2"), "rng")), 1);
  json_decref(root);
  rig_close(&r);
}

static void holds(void **state) {
  (void)state;
  net n = net_chain(4, MB);
  n.ops[1].saves_input = 0;
  n.ops[3].inputs[0] = 0;
  n.ops[3].inputs[1] = 2;
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 1); /* from op 0's, which op 3's backward asks for first */
  json_t *root = json_of(&r);
  assert_member(root, "hold", "{\"1\":[[2,0]]}"); /* slot 0 is op 2's input, slot 1 op 3's */
  assert_member(root, "sources", "{\"2\":\"slot:1\"}");
  json_decref(root);
  rig_close(&r);
}

/* Only the last pass is written, under its own slots' numbers. */
static void the_last_of_two_passes(void **state) {
  (void)state;
  net n = net_chain(4, MB);
  n.passes = 2;
  rig r;
  rig_open(&r, &n);
  uint32_t block = rig_block(&r, 9, 0);
  r.schedule.dropped[block] = r.schedule.dropped[r.graph.block[block].twin] = 1;
  rig_run(&r);
  json_t *root = json_of(&r);
  assert_int_equal(json_array_size(json_object_get(root, "slots")), 3);
  assert_int_equal(json_object_size(json_object_get(root, "rebuild")), 1);
  assert_non_null(json_object_get(json_object_get(root, "rebuild"), "1"));
  assert_int_equal(json_object_size(json_object_get(root, "ops")), 1);
  assert_non_null(json_object_get(json_object_get(root, "ops"), "9"));
  json_decref(root);
  rig_close(&r);
}

/* A kept block made again beside a dropped one must not take the place of what its slot gives: op 1 reads it from there. */
static void a_kept_output_made_again_is_not_forgotten(void **state) {
  (void)state;
  net n = net_chain(4, MB);
  n.ops[0].second_bytes = MB;
  n.ops[0].saves_second = 1;
  n.ops[1].inputs[1] = NET_SECOND + 0;
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 0);
  uint64_t peak = rig_drop(&r, 1);
  json_t *root = json_of(&r);
  assert_member(root, "sources", "{\"0\":\"input:0\",\"3\":\"slot:0\"}");
  assert_member(root, "rebuild", "{\"1\":{\"forget\":[2],\"run\":[],\"value\":2},\"2\":{\"forget\":[4],\"run\":[[0,[]],[1,[]]],\"value\":4}}");
  json_decref(root);
  char *text = pass_of(&r);
  assert_int_equal(pass_model_peak(r.trace, text), peak);
  tn_text_free(text);
  rig_close(&r);
}

/* ---- model: any choice on any network, carried out by the format's text ---------------------------------------------------- */

static void carried_out_it_peaks_as_simulated(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  size_t programs = 0, held = 0;
  for (int round = 0; round < 1000; round++) {
    net n = net_random(&seed, 6, 1);
    rig r;
    rig_open(&r, &n);
    rig_drop_some(&r, &seed);
    char *text = pass_of(&r);
    uint64_t peak = pass_model_peak(r.trace, text);
    if (peak != r.simulate.peak_bytes) fail_msg("round %d: %zu, simulated %zu: %s", round, (size_t)peak, (size_t)r.simulate.peak_bytes, text);
    programs += r.schedule.program_count;
    held += r.schedule.hold_count;
    tn_text_free(text);
    rig_close(&r);
  }
  print_message("%zu programs, %zu holds\n", programs, held);
  assert_true(programs > 1000 && held > 10);
}

/* ---- the summary --------------------------------------------------------------------------------------------------------- */

static void rebuilt_adds_up(void **state) {
  (void)state;
  net n = net_chain(4, MB);
  rig r;
  tn_text text;
  char *out = NULL;
  rig_open(&r, &n);
  rig_drop(&r, 1);
  rig_drop(&r, 2);
  tn__text_init(&text);
  net_must(tn__rebuilt_json(&r.schedule, &text));
  net_must(tn__text_take(&text, &out));
  json_t *root = json_loads(out, 0, NULL), *row = json_array_get(root, 0);
  assert_int_equal(json_array_size(root), 1);
  assert_string_equal(json_string_value(json_object_get(row, "op")), "aten.mul.Tensor");
  assert_int_equal(json_integer_value(json_object_get(row, "count")), 2);
  assert_int_equal(json_integer_value(json_object_get(row, "bytes")), 2 * MB);
  assert_true(json_real_value(json_object_get(row, "extra_ms")) == 0.2);
  json_decref(root);
  tn_text_free(out);
  rig_close(&r);
}

static int write_both(void *user) {
  rig *r = user;
  tn_text text;
  tn__text_init(&text);
  int rc = tn__pass_json(&r->schedule, &text);
  if (rc == TN_OK) rc = tn__rebuilt_json(&r->schedule, &text);
  tn__text_deinit(&text);
  return rc;
}

static void out_of_memory(void **state) {
  (void)state;
  net n = net_chain(4, MB);
  rig r;
  rig_open(&r, &n);
  rig_drop(&r, 1);
  assert_true(tn_test_sweep(write_both, &r) >= 10);
  rig_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_rebuilt),
      cmocka_unit_test(one_slot_from_another),
      cmocka_unit_test(sources_from_outside),
      cmocka_unit_test(windows),
      cmocka_unit_test(random_ops),
      cmocka_unit_test(holds),
      cmocka_unit_test(the_last_of_two_passes),
      cmocka_unit_test(a_kept_output_made_again_is_not_forgotten),
      cmocka_unit_test(carried_out_it_peaks_as_simulated),
      cmocka_unit_test(rebuilt_adds_up),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests_name("pass_json", tests, NULL, NULL);
}

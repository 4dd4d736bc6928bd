/* test_snapshot.c -- the samples: whole, cut short anywhere, under failing memory; and what a file is taken for. */
#include "snapshot_text.h"

#include <dirent.h>
#include <unistd.h>

static const char folder[] = TN_TEST_DATA "/snapshots";

typedef struct sample {
  char name[256], path[512];
  uint8_t *data;
  size_t size;
} sample;

static sample read_sample(const char *name) {
  sample s = {0};
  (void)snprintf(s.name, sizeof s.name, "%s", name);
  (void)snprintf(s.path, sizeof s.path, "%s/%s", folder, name);
  FILE *file = fopen(s.path, "rb");
  assert_non_null(file);
  s.data = malloc(1 << 16);
  assert_non_null(s.data);
  s.size = fread(s.data, 1, 1 << 16, file);
  (void)fclose(file);
  return s;
}

/* Calls it with each sample whose name begins with one of the letters. */
static int each_sample(const char *letters, void (*call)(const sample *s)) {
  int count = 0;
  DIR *dir = opendir(folder);
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (entry->d_name[0] == '.' || !strchr(letters, entry->d_name[0])) continue;
    sample s = read_sample(entry->d_name);
    call(&s);
    free(s.data);
    count++;
  }
  (void)closedir(dir);
  return count;
}

/* From the file and from memory it must be the same. */
static int load_both_ways(const sample *s, tn_error *err) {
  tn_trace *file = NULL, *memory = NULL;
  tn_error memory_err = {0};
  int rc = tn_snapshot_load(s->path, &file, err);
  if (tn_snapshot_parse(s->data, s->size, &memory, &memory_err) != rc) fail_msg("%s: another answer from memory", s->name);
  if (rc && !strstr(err->msg, memory_err.msg)) fail_msg("%s: \"%s\" and \"%s\"", s->name, err->msg, memory_err.msg);
  if (!rc && tn_trace_string_count(file) != tn_trace_string_count(memory)) fail_msg("%s: another trace from memory", s->name);
  tn_trace_free(memory);
  tn_trace_free(file);
  return rc;
}

static void is_read(const sample *s) {
  tn_error err = {0};
  if (load_both_ways(s, &err)) fail_msg("%s", err.msg);
  /* nothing tells an empty list from anything else */
  if (s->size > 8 && !tn_snapshot_is_one(s->path)) fail_msg("%s is not taken for a snapshot", s->name);
}

static void is_refused(const sample *s) {
  tn_error err = {0};
  if (load_both_ways(s, &err) != TN_EFORMAT) fail_msg("%s: was read", s->name);
  if (!strstr(err.msg, s->name)) fail_msg("%s: the message does not name the file: %s", s->name, err.msg);
}

static void is_either(const sample *s) {
  tn_error err = {0};
  (void)load_both_ways(s, &err);
}

static void samples(void **state) {
  (void)state;
  assert_true(each_sample("y", is_read) >= 15);
  assert_true(each_sample("n", is_refused) >= 30);
  assert_true(each_sample("i", is_either) >= 3);
}

static void cut_anywhere(const sample *s) {
  size_t size = s->data[s->size - 1] == '\n' ? s->size - 1 : s->size; /* JSON is whole without it */
  for (size_t cut = 0; cut < size; cut++) {
    tn_trace *trace = NULL;
    tn_error err = {0};
    int rc = tn_snapshot_parse(s->data, cut, &trace, &err);
    if (rc != TN_EFORMAT) fail_msg("%s cut at %zu: %d %s", s->name, cut, rc, err.msg);
    if (err.offset > s->size * 10) fail_msg("%s cut at %zu: fails at %llu", s->name, cut, (unsigned long long)err.offset);
    tn_trace_free(trace);
  }
}

static void cut_short_anywhere(void **state) {
  (void)state;
  assert_true(each_sample("y", cut_anywhere) >= 15);
}

/* Of plain files the message says where they end. */
static void where_it_was_cut(void **state) {
  (void)state;
  static const char *const names[] = {"y_torch_2.10.pickle", "y_torch_2.12.pickle", "y_torch_2.3.pickle", "y_cpp_writer.pickle"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    sample s = read_sample(names[i]);
    for (size_t cut = 2; cut < s.size; cut++) {
      tn_error err = snapshot_refused(s.data, cut, "the file ends");
      assert_int_equal(err.offset, cut);
    }
    free(s.data);
  }
}

static int scenario(void *user) {
  const sample *s = user;
  tn_trace *trace = NULL;
  int rc = tn_snapshot_load(s->path, &trace, NULL);
  tn_trace_free(trace);
  return rc;
}

static void memory_fails(const sample *s) { (void)tn_test_sweep(scenario, (void *)(uintptr_t)s); }

static void every_allocation_may_fail(void **state) {
  (void)state;
  assert_true(each_sample("y", memory_fails) >= 15);
}

static void a_flipped_bit_anywhere(const sample *s) {
  for (size_t at = 0; at < s->size; at++) {
    tn_trace *trace = NULL;
    tn_error err = {0};
    s->data[at] ^= (uint8_t)(1 << at % 8);
    int rc = tn_snapshot_parse(s->data, s->size, &trace, &err);
    s->data[at] ^= (uint8_t)(1 << at % 8);
    if (rc && (rc != err.code || !err.msg[0])) fail_msg("%s, byte %zu: %d without a message", s->name, at, rc);
    if (!rc) assert_int_equal(tn_trace_check(trace, NULL), TN_OK);
    tn_trace_free(trace);
  }
}

static void flipped_bits(void **state) {
  (void)state;
  assert_true(each_sample("yni", a_flipped_bit_anywhere) >= 50);
}

static void a_trace_file(void **state) {
  (void)state;
  tn_trace *trace = snapshot_entries("{\"action\": \"alloc\", \"addr\": 7}"), *again = NULL;
  char name[] = "snapshot_XXXXXX";
  assert_true(close(mkstemp(name)) == 0);
  assert_int_equal(tn_trace_save(trace, name, NULL), TN_OK);
  tn_trace_free(trace);
  assert_int_equal(tn_snapshot_load(name, &again, NULL), TN_OK);
  assert_int_equal(((const tn_entry *)snapshot_table(again, TN_TABLE_ENTRY, 1))->addr, 7);
  assert_int_equal(tn_snapshot_is_one(name), 0);
  tn_trace_free(again);
  assert_int_equal(tn_trace_new(&trace), TN_OK); /* and one without a snapshot in it */
  assert_int_equal(tn_trace_save(trace, name, NULL), TN_OK);
  tn_trace_free(trace);
  tn_error err = {0};
  assert_int_equal(tn_snapshot_load(name, &again, &err), TN_EFORMAT);
  assert_non_null(strstr(err.msg, "is a trace of a captured step, expected a memory snapshot"));
  (void)unlink(name);
}

static void what_is_none(void **state) {
  (void)state;
  tn_trace *trace = NULL;
  tn_error err = {0};
  assert_int_equal(tn_snapshot_load("no/such/file", &trace, &err), TN_ENOENT);
  assert_string_equal(err.msg, "no/such/file: No such file or directory");
  assert_int_equal(tn_snapshot_load(folder, &trace, &err), TN_EIO);
  assert_int_equal(tn_snapshot_is_one("no/such/file"), 0);
  assert_int_equal(tn_snapshot_is_one(folder), 0);
  assert_int_equal(tn_snapshot_is_one(TN_TEST_DATA "/report/card.json"), 0);
  assert_int_equal(tn_snapshot_is_one(TN_TEST_DATA "/snapshots/n_not_a_snapshot.pickle"), 0);
  assert_int_equal(tn_snapshot_load(NULL, &trace, &err), TN_EINVAL);
  assert_int_equal(tn_snapshot_parse("[]", 2, NULL, &err), TN_EINVAL);
  assert_int_equal(tn_snapshot_parse(NULL, 2, &trace, &err), TN_EINVAL);
  (void)snapshot_refused(NULL, 0, "is empty, expected a memory snapshot");
  (void)snapshot_refused("PK\3\4", 4, "is a zip archive");
  (void)snapshot_refused("<!doctype html>", 15, "is an HTML page");
  (void)snapshot_refused("hello", 5, "byte 0: expected a pickle, JSON or a trace, found 0x68");
  (void)snapshot_refused("SQLite format 3", 15, "is not a SQLite database");
  assert_null(trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(samples),          cmocka_unit_test(cut_short_anywhere),
      cmocka_unit_test(where_it_was_cut), cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(flipped_bits),     cmocka_unit_test(a_trace_file),
      cmocka_unit_test(what_is_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

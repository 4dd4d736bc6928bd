/* test_trace_store.c -- traces to files and back, and files that are no traces. */
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/file.h"
#include "trace/store.h"
#include "trace_example.h"

static char directory[] = "trace_store_XXXXXX";
static char path[64];

static int make_directory(void **state) {
  (void)state;
  if (!mkdtemp(directory)) return -1;
  (void)snprintf(path, sizeof path, "%s/a.trace", directory);
  return 0;
}

static int remove_directory(void **state) {
  (void)state;
  (void)unlink(path);
  return rmdir(directory); /* fails when a temporary file was left behind */
}

static tn_trace *example_trace(void) {
  example e = example_make();
  tn_trace *trace;
  assert_int_equal(example_new(&e, &trace), TN_OK);
  return trace;
}

static void expect_equal(const tn_trace *a, const tn_trace *b) {
  static const size_t bytes[] = {
#define RECORD_BYTES(name, type) sizeof(type),
      TN_TABLES(RECORD_BYTES)
#undef RECORD_BYTES
  };
  for (int table = 0; table < TN_TABLE_COUNT; table++) {
    size_t count_a, count_b;
    const void *records_a = tn_trace_table(a, (enum tn_table)table, &count_a);
    const void *records_b = tn_trace_table(b, (enum tn_table)table, &count_b);
    assert_int_equal(count_a, count_b);
    if (count_a) assert_memory_equal(records_a, records_b, count_a * bytes[table]);
  }
  assert_int_equal(tn_trace_string_count(a), tn_trace_string_count(b));
  for (uint32_t i = 0; i < tn_trace_string_count(a); i++) assert_string_equal(tn_trace_string(a, i), tn_trace_string(b, i));
}

static void test_round_trip(void **state) {
  (void)state;
  tn_trace *trace = example_trace(), *again;
  tn_error err = {0};
  if (tn_trace_save(trace, path, &err)) fail_msg("%s", err.msg);
  if (tn_trace_load(path, &again, &err)) fail_msg("%s", err.msg);
  expect_equal(trace, again);
  assert_string_equal(tn_trace_meta(again, "device"), "h200");
  assert_string_equal(tn_trace_meta(again, "batch_size"), "4");
  tn_trace_free(again);
  /* Over an existing file. */
  assert_int_equal(tn_trace_save(trace, path, &err), TN_OK);
  assert_int_equal(tn_trace_load(path, &again, &err), TN_OK);
  tn_trace_free(again);
  tn_trace_free(trace);
}

static void test_empty_trace(void **state) {
  (void)state;
  tn_trace *trace, *again;
  assert_int_equal(tn_trace_new(&trace), TN_OK);
  assert_int_equal(tn_trace_save(trace, path, NULL), TN_OK);
  assert_int_equal(tn_trace_load(path, &again, NULL), TN_OK);
  expect_equal(trace, again);
  tn_trace_free(again);
  tn_trace_free(trace);
}

static void test_bad_trace_is_not_saved(void **state) {
  (void)state;
  example e = example_make();
  tn_trace *trace;
  tn_error err;
  e.events[0].kind = 99;
  assert_int_equal(example_new(&e, &trace), TN_OK);
  (void)unlink(path);
  assert_int_equal(tn_trace_save(trace, path, &err), TN_EFORMAT);
  assert_non_null(strstr(err.msg, "a.trace: event 0: unknown kind"));
  assert_int_equal(access(path, F_OK), -1);
  tn_trace_free(trace);
}

/* Queries in docs and by users: the columns are the fields' names, none is NULL. */
static void test_columns(void **state) {
  (void)state;
  tn_trace *trace = example_trace();
  sqlite3 *db;
  sqlite3_stmt *stmt;
  assert_int_equal(tn_trace_save(trace, path, NULL), TN_OK);
  tn_trace_free(trace);
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  const char *sql =
      "SELECT sum(block.bytes), count(*), group_concat(string.text) FROM block JOIN module ON block.module=module.id "
      "JOIN string ON module.name=string.id WHERE block.op IS NOT NULL";
  assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
  assert_int_equal(sqlite3_column_int64(stmt, 0), 5128);
  assert_string_equal((const char *)sqlite3_column_text(stmt, 2), "layer,layer,layer");
  sqlite3_finalize(stmt);
  sqlite3_close(db);
}

/* ---- what is refused ----------------------------------------------------------------------------------------------------- */

static int load_message(tn_error *err) {
  tn_trace *trace = NULL;
  int rc = tn_trace_load(path, &trace, err);
  assert_null(trace);
  return rc;
}

static void save_changed(const char *sql) {
  tn_trace *trace = example_trace();
  sqlite3 *db;
  char *message = NULL;
  assert_int_equal(tn_trace_save(trace, path, NULL), TN_OK);
  tn_trace_free(trace);
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  if (sqlite3_exec(db, sql, NULL, NULL, &message)) fail_msg("%s: %s", sql, message);
  sqlite3_close(db);
}

static void expect_change_refused(const char *sql, int code, const char *message) {
  tn_error err;
  save_changed(sql);
  assert_int_equal(load_message(&err), code);
  const char *reason = strstr(err.msg, "a.trace: ");
  assert_non_null(reason);
  assert_string_equal(reason + strlen("a.trace: "), message);
}

static void test_versions(void **state) {
  (void)state;
  expect_change_refused("PRAGMA user_version=7", TN_EVERSION,
                        "written by a newer version of tonnage (schema 7; this one reads up to 2)");
  expect_change_refused("PRAGMA user_version=0", TN_EFORMAT, "has no schema version");
  expect_change_refused("PRAGMA application_id=0", TN_EFORMAT, "is a SQLite database, but not a trace");
}

static void test_rows(void **state) {
  (void)state;
  expect_change_refused("DELETE FROM op WHERE id=1", TN_EFORMAT, "table op: row 1 is missing");
  expect_change_refused("UPDATE block SET bytes=-1 WHERE id=2", TN_EFORMAT, "block 2: bytes is no number, or too large");
  expect_change_refused("UPDATE block SET bytes='many' WHERE id=2", TN_EFORMAT, "block 2: bytes is no number, or too large");
  expect_change_refused("UPDATE op SET phase=256", TN_EFORMAT, "op 0: phase is no number, or too large");
  expect_change_refused("UPDATE event SET at=at+4294967296 WHERE at=23", TN_EFORMAT, "table event: row 23 is missing");
  expect_change_refused("UPDATE value SET block=NULL WHERE id=2", TN_EFORMAT, "value 2: block is no number, or too large");
  expect_change_refused("UPDATE op SET flops=NULL WHERE id=2", TN_EFORMAT, "op 2: flops is no number, or too large");
  expect_change_refused("UPDATE op SET flops=9e999 WHERE id=2", TN_EFORMAT, "op 2: flops is out of range");
  expect_change_refused("UPDATE string SET text=x'00' WHERE id=2", TN_EFORMAT, "string 2: is not a text");
  expect_change_refused("UPDATE string SET text='a'||char(0)||'b' WHERE id=2", TN_EFORMAT, "string 2: is not a text");
  expect_change_refused("UPDATE string SET text='root' WHERE id=0", TN_EFORMAT, "string 0: is not a text");
  expect_change_refused("DELETE FROM string WHERE id>2", TN_EFORMAT, "op 0: name is out of range");
}

/* A table that is something else would run the file's own program: endless here. */
static void test_tables_that_compute(void **state) {
  (void)state;
  const char *shape = "table event is missing or of another shape";
  expect_change_refused("DROP TABLE event", TN_EFORMAT, shape);
  expect_change_refused("ALTER TABLE event RENAME TO other; CREATE VIEW event AS WITH RECURSIVE n(i) AS "
                        "(SELECT 0 UNION ALL SELECT i+1 FROM n) SELECT i AS at, 1 AS kind, 0 AS id FROM n",
                        TN_EFORMAT, shape);
  expect_change_refused("DROP TABLE event; "
                        "CREATE TABLE event(at INTEGER PRIMARY KEY, kind, id AS (length(zeroblob(1000000))))",
                        TN_EFORMAT, shape);
  expect_change_refused("ALTER TABLE event ADD COLUMN more", TN_EFORMAT, shape);
}

static void test_extra_tables_are_ignored(void **state) {
  (void)state;
  tn_trace *trace;
  tn_error err;
  save_changed("CREATE TABLE notes(text); CREATE INDEX by_kind ON event(kind); INSERT INTO meta VALUES('note', 'mine'); VACUUM");
  if (tn_trace_load(path, &trace, &err)) fail_msg("%s", err.msg);
  assert_string_equal(tn_trace_meta(trace, "note"), "mine");
  tn_trace_free(trace);
}

static void test_not_a_database(void **state) {
  (void)state;
  tn_error err;
  assert_int_equal(tn__file_write(path, "hello", 5, &err), TN_OK);
  assert_int_equal(load_message(&err), TN_EFORMAT);
  assert_non_null(strstr(err.msg, "a.trace: is not a SQLite database"));
  assert_int_equal(unlink(path), 0);
  assert_int_equal(load_message(&err), TN_ENOENT);
  assert_non_null(strstr(err.msg, "No such file"));
}

/* Every length that a copy may break off at, every page that may be lost, and bytes that flip: refused or read, never worse. */
static void test_damage(void **state) {
  (void)state;
  tn_trace *trace = example_trace(), *again;
  unsigned char *data;
  size_t size;
  tn_error err;
  uint64_t random = tn_test_seed();
  assert_int_equal(tn__store_write(trace, &data, &size, NULL), TN_OK);
  for (size_t cut = 0; cut < size; cut += 97) {
    assert_int_equal(tn__store_read(data, cut, &again, &err), TN_EFORMAT);
    assert_true(strlen(err.msg) > 0);
  }
  for (int i = 0; i < 3000; i++) {
    size_t at = tn_test_random(&random) % size;
    unsigned char old = data[at];
    data[at] = (unsigned char)tn_test_random(&random);
    int rc = tn__store_read(data, size, &again, &err);
    if (rc == TN_OK)
      tn_trace_free(again);
    else if (rc != TN_EFORMAT && rc != TN_EVERSION)
      fail_msg("byte %zu: %d %s", at, rc, err.msg);
    data[at] = old;
  }
  tn__store_free(data);
  tn_trace_free(trace);
}

static void test_same_bytes(void **state) {
  (void)state;
  tn_trace *trace = example_trace();
  unsigned char *a, *b;
  size_t a_size, b_size;
  assert_int_equal(tn__store_write(trace, &a, &a_size, NULL), TN_OK);
  assert_int_equal(tn__store_write(trace, &b, &b_size, NULL), TN_OK);
  assert_int_equal(a_size, b_size);
  assert_memory_equal(a, b, a_size);
  tn__store_free(a);
  tn__store_free(b);
  tn_trace_free(trace);
}

static void test_cannot_write(void **state) {
  (void)state;
  tn_trace *trace = example_trace();
  tn_error err;
  assert_int_equal(tn_trace_save(trace, "no/such/directory/a.trace", &err), TN_EIO);
  assert_non_null(strstr(err.msg, "No such file or directory"));
  assert_int_equal(tn_trace_save(trace, "/dev/null", &err), TN_EIO);
  assert_string_equal(err.msg, "/dev/null: is not a regular file");
  tn_trace_free(trace);
}

/* A long name must not push the reason out of the message. */
static void test_long_path(void **state) {
  (void)state;
  char name[300];
  tn_error err;
  tn_trace *trace;
  (void)snprintf(name, sizeof name, "%s/", directory);
  size_t len = strlen(name);
  memset(name + len, 'x', 200);
  name[len + 200] = '\0';
  assert_int_equal(tn__file_write(name, "hello", 5, &err), TN_OK);
  assert_int_equal(tn_trace_load(name, &trace, &err), TN_EFORMAT);
  assert_non_null(strstr(err.msg, "xxx: is not a SQLite database"));
  assert_int_equal(unlink(name), 0);
}

static int save_and_load(void *user) {
  (void)user;
  tn_trace *trace = NULL, *again = NULL;
  example e = example_make();
  int rc = example_new(&e, &trace);
  if (!rc) rc = tn_trace_save(trace, path, NULL);
  if (!rc) rc = tn_trace_load(path, &again, NULL);
  tn_trace_free(again);
  tn_trace_free(trace);
  return rc;
}

static void test_out_of_memory(void **state) {
  (void)state;
  assert_true(tn_test_sweep(save_and_load, NULL) > 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_empty_trace),
      cmocka_unit_test(test_bad_trace_is_not_saved),
      cmocka_unit_test(test_columns),
      cmocka_unit_test(test_versions),
      cmocka_unit_test(test_rows),
      cmocka_unit_test(test_tables_that_compute),
      cmocka_unit_test(test_extra_tables_are_ignored),
      cmocka_unit_test(test_not_a_database),
      cmocka_unit_test(test_damage),
      cmocka_unit_test(test_same_bytes),
      cmocka_unit_test(test_cannot_write),
      cmocka_unit_test(test_long_path),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

/* store.c -- the trace as a SQLite database.  See store.h. */
#include "trace/store.h"

#include <limits.h>
#include <sqlite3.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"
#include "trace/fields.h"
#include "trace/file.h"
#include "trace/trace.h"

/* Hostile databases can say much in few bytes.  A text or a row cannot be longer than the file it is in, nor all texts together. */
#define FILE_BYTES_MAX ((size_t)4 << 30)
enum { META_MAX = 1000, SQL_BYTES_MAX = 4096, EXPR_DEPTH_MAX = 20 };

#define STRING_SQL "CREATE TABLE \"string\"(id INTEGER PRIMARY KEY,\"text\" TEXT)"
#define META_SQL "CREATE TABLE \"meta\"(\"key\" TEXT PRIMARY KEY,\"value\" TEXT)"
/* People add keys with other tools, so their rows are numbered here. */
#define META_SELECT_SQL "SELECT row_number() OVER (ORDER BY rowid) - 1,\"key\",\"value\" FROM \"meta\" ORDER BY rowid"

static int store_error(sqlite3 *db, tn_error *err) {
  if (!db || sqlite3_errcode(db) == SQLITE_NOMEM) return tn__error_set(err, TN_ENOMEM, NULL);
  return tn__error_set(err, TN_EFORMAT, "not a whole SQLite database: %s", sqlite3_errmsg(db));
}

static int store_exec(sqlite3 *db, const char *sql, tn_error *err) {
  return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? TN_OK : store_error(db, err);
}

static int store_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out, tn_error *err) {
  return sqlite3_prepare_v2(db, sql, -1, out, NULL) == SQLITE_OK ? TN_OK : store_error(db, err);
}

/* ---- the statements of a record type ------------------------------------------------------------------------------------- */

/* Part of the format: the reader insists on this very text, so that a table is a table and nothing cleverer. */
static void create_sql(tn_text *sql, const tn__record *record) {
  tn__text_printf(sql, "CREATE TABLE \"%s\"(%s INTEGER PRIMARY KEY", record->name, record->key);
  for (size_t i = 0; i < record->field_count; i++)
    tn__text_printf(sql, ",\"%s\" %s", record->fields[i].name, record->fields[i].role == TN__REAL ? "REAL" : "INTEGER");
  tn__text_add(sql, ")");
}

static void insert_sql(tn_text *sql, const tn__record *record) {
  tn__text_printf(sql, "INSERT INTO \"%s\" VALUES(?", record->name);
  for (size_t i = 0; i < record->field_count; i++) tn__text_add(sql, ",?");
  tn__text_add(sql, ")");
}

static void select_sql(tn_text *sql, const tn__record *record) {
  tn__text_printf(sql, "SELECT %s", record->key);
  for (size_t i = 0; i < record->field_count; i++) tn__text_printf(sql, ",\"%s\"", record->fields[i].name);
  tn__text_printf(sql, " FROM \"%s\" ORDER BY %s", record->name, record->key);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

static int insert_step(sqlite3 *db, sqlite3_stmt *stmt, tn_error *err) {
  if (sqlite3_step(stmt) != SQLITE_DONE || sqlite3_reset(stmt) != SQLITE_OK) return store_error(db, err);
  return TN_OK;
}

static int bind_field(sqlite3_stmt *stmt, int column, const tn__field *field, const void *record) {
  if (field->role == TN__REAL) return sqlite3_bind_double(stmt, column, tn__field_real(field, record));
  uint64_t value = tn__field_get(field, record);
  if (value == TN_NONE && tn__field_is_optional(field)) return sqlite3_bind_null(stmt, column);
  return sqlite3_bind_int64(stmt, column, (sqlite3_int64)value);
}

static int insert_record(sqlite3 *db, sqlite3_stmt *stmt, const tn__record *type, size_t id, const void *record, tn_error *err) {
  int rc = sqlite3_bind_int64(stmt, 1, (sqlite3_int64)id);
  for (size_t i = 0; i < type->field_count && rc == SQLITE_OK; i++) rc = bind_field(stmt, (int)i + 2, &type->fields[i], record);
  return rc == SQLITE_OK ? insert_step(db, stmt, err) : store_error(db, err);
}

static int write_records(sqlite3 *db, const tn__record *type, const tn_vec *records, tn_error *err) {
  tn_text sql;
  tn__text_init(&sql);
  insert_sql(&sql, type);
  sqlite3_stmt *stmt = NULL;
  int rc = sql.failed ? tn__error_set(err, TN_ENOMEM, NULL) : store_prepare(db, tn__text_view(&sql), &stmt, err);
  for (size_t i = 0; i < records->count && !rc; i++) rc = insert_record(db, stmt, type, i, tn__vec_at(records, i), err);
  sqlite3_finalize(stmt);
  tn__text_deinit(&sql);
  return rc;
}

static int write_table(sqlite3 *db, const tn__record *type, const tn_vec *records, tn_error *err) {
  tn_text sql;
  tn__text_init(&sql);
  create_sql(&sql, type);
  int rc = sql.failed ? tn__error_set(err, TN_ENOMEM, NULL) : store_exec(db, tn__text_view(&sql), err);
  tn__text_deinit(&sql);
  return rc ? rc : write_records(db, type, records, err);
}

static int insert_texts(sqlite3 *db, sqlite3_stmt *stmt, size_t id, const char *text, const char *second, tn_error *err) {
  int rc = sqlite3_bind_int64(stmt, 1, (sqlite3_int64)id);
  if (rc == SQLITE_OK) rc = sqlite3_bind_text(stmt, 2, text, -1, SQLITE_STATIC);
  if (rc == SQLITE_OK && second) rc = sqlite3_bind_text(stmt, 3, second, -1, SQLITE_STATIC);
  return rc == SQLITE_OK ? insert_step(db, stmt, err) : store_error(db, err);
}

static int write_strings(sqlite3 *db, const tn_trace *trace, tn_error *err) {
  TN_TRY(store_exec(db, STRING_SQL, err));
  sqlite3_stmt *stmt = NULL;
  TN_TRY(store_prepare(db, "INSERT INTO \"string\" VALUES(?,?)", &stmt, err));
  int rc = TN_OK;
  for (uint32_t i = 0; i < tn_trace_string_count(trace) && !rc; i++)
    rc = insert_texts(db, stmt, i, tn_trace_string(trace, i), NULL, err);
  sqlite3_finalize(stmt);
  return rc;
}

static int write_meta(sqlite3 *db, const tn_trace *trace, tn_error *err) {
  TN_TRY(store_exec(db, META_SQL, err));
  sqlite3_stmt *stmt = NULL;
  TN_TRY(store_prepare(db, "INSERT INTO \"meta\"(rowid,\"key\",\"value\") VALUES(?,?,?)", &stmt, err));
  int rc = TN_OK;
  for (size_t i = 0; i < trace->meta.count && !rc; i++) {
    const tn__meta *meta = tn__vec_at(&trace->meta, i);
    rc = insert_texts(db, stmt, i, meta->key, meta->value, err);
  }
  sqlite3_finalize(stmt);
  return rc;
}

static int write_all(sqlite3 *db, const tn_trace *trace, tn_error *err) {
  TN_TRY(store_exec(db, "PRAGMA application_id=0x746f6e6e; PRAGMA user_version=2; BEGIN", err));
  TN_TRY(write_meta(db, trace, err));
  TN_TRY(write_strings(db, trace, err));
  for (int i = 0; i < TN_TABLE_COUNT; i++) TN_TRY(write_table(db, &tn__records[i], &trace->tables[i], err));
  return store_exec(db, "COMMIT", err);
}

int tn__store_write(const tn_trace *trace, unsigned char **out_data, size_t *out_size, tn_error *err) {
  if (trace->meta.count > META_MAX) return tn__error_set(err, TN_EINVAL, "more than %d meta keys", META_MAX);
  sqlite3 *db = NULL;
  sqlite3_int64 size = 0;
  unsigned char *data = NULL;
  int rc = sqlite3_open(":memory:", &db) == SQLITE_OK ? write_all(db, trace, err) : store_error(db, err);
  if (rc) goto out;
  data = sqlite3_serialize(db, "main", &size, 0);
  if (!data) {
    rc = tn__error_set(err, TN_ENOMEM, NULL);
    goto out;
  }
  *out_data = data;
  *out_size = (size_t)size;
out:
  (void)sqlite3_close(db);
  return rc;
}

void tn__store_free(unsigned char *data) { sqlite3_free(data); }

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

static uint32_t big_endian(const unsigned char *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* SQLite's header, https://sqlite.org/fileformat.html#the_database_header: whose file it is can be read without SQLite. */
static int check_header(const unsigned char *data, size_t size, uint32_t *out_schema, tn_error *err) {
  if (size < 100 || memcmp(data, "SQLite format 3", 16) != 0) return tn__error_set(err, TN_EFORMAT, "is not a SQLite database");
  uint32_t page_bytes = (uint32_t)data[16] << 8 | data[17], page_count = big_endian(data + 28);
  uint32_t schema = big_endian(data + 60), application = big_endian(data + 68);
  if (application != TN__STORE_APPLICATION) return tn__error_set(err, TN_EFORMAT, "is a SQLite database, but not a trace");
  if (schema > TN__STORE_SCHEMA)
    return tn__error_set(err, TN_EVERSION, "written by a newer version of tonnage (schema %u; this one reads up to %d)", schema,
                         TN__STORE_SCHEMA);
  if (schema == 0) return tn__error_set(err, TN_EFORMAT, "has no schema version");
  if (page_bytes == 1) page_bytes = 65536;
  if (size < (uint64_t)page_bytes * page_count)
    return tn__error_set_at(err, TN_EFORMAT, size, 0, "is cut short: %zu of %llu bytes", size,
                            (unsigned long long)page_bytes * page_count);
  *out_schema = schema;
  return TN_OK;
}

static int open_bytes(const void *data, size_t size, sqlite3 **out, tn_error *err) {
  sqlite3 *db = NULL;
  int sized = size < INT_MAX ? (int)size : INT_MAX, rc;
  if (sqlite3_open(":memory:", &db) != SQLITE_OK) goto failed;
  (void)sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  (void)sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  (void)sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
  (void)sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
  (void)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, sized);
  (void)sqlite3_limit(db, SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES_MAX);
  (void)sqlite3_limit(db, SQLITE_LIMIT_EXPR_DEPTH, EXPR_DEPTH_MAX);
  /* READONLY: the buffer is not written, so taking its const away is safe. */
  if (sqlite3_deserialize(db, "main", (unsigned char *)(uintptr_t)data, (sqlite3_int64)size, (sqlite3_int64)size,
                          SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
    goto failed;
  *out = db;
  return TN_OK;
failed:
  rc = store_error(db, err);
  (void)sqlite3_close(db);
  return rc;
}

/* A view, a virtual table or a generated column under the table's name would run the file's own program. */
static int check_table(sqlite3 *db, const char *name, const char *create, tn_error *err) {
  sqlite3_stmt *stmt = NULL;
  TN_TRY(store_prepare(db, "SELECT sql FROM sqlite_master WHERE type='table' AND name=?", &stmt, err));
  int rc = TN_OK;
  if (sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC) != SQLITE_OK) {
    rc = store_error(db, err);
    goto out;
  }
  int step = sqlite3_step(stmt);
  const char *sql = step == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
  if (step != SQLITE_ROW && step != SQLITE_DONE)
    rc = store_error(db, err);
  else if (!sql || strcmp(sql, create) != 0)
    rc = tn__error_set(err, TN_EFORMAT, "table %s is missing or of another shape", name);
out:
  sqlite3_finalize(stmt);
  return rc;
}

/* What one row becomes. */
typedef int row_reader(void *user, sqlite3_stmt *stmt, uint32_t id, tn_error *err);

/* Ids must count 0, 1, 2 ...: they are the records' indices, and a damaged tree that repeats a page ends here. */
static int read_rows(sqlite3 *db, const char *name, const char *select, row_reader *read_row, void *user, tn_error *err) {
  sqlite3_stmt *stmt = NULL;
  TN_TRY(store_prepare(db, select, &stmt, err));
  int rc = TN_OK, step = sqlite3_step(stmt);
  for (uint32_t id = 0; step == SQLITE_ROW && !rc; id++) {
    if (id == TN_NONE - 1 || sqlite3_column_int64(stmt, 0) != id)
      rc = tn__error_set_at(err, TN_EFORMAT, 0, id, "table %s: row %u is missing", name, id);
    else
      rc = read_row(user, stmt, id, err);
    if (!rc) step = sqlite3_step(stmt);
  }
  if (!rc && step != SQLITE_DONE) rc = store_error(db, err);
  sqlite3_finalize(stmt);
  return rc;
}

typedef struct record_reader {
  const tn__record *type;
  tn_vec *records;
} record_reader;

static int column_is_legal(sqlite3_stmt *stmt, int column, const tn__field *field, void *record) {
  int type = sqlite3_column_type(stmt, column);
  if (field->role == TN__REAL) {
    double real = sqlite3_column_double(stmt, column);
    memcpy((char *)record + field->at, &real, sizeof real);
    return type == SQLITE_FLOAT || type == SQLITE_INTEGER;
  }
  if (type == SQLITE_NULL && tn__field_is_optional(field)) return tn__field_set(field, record, TN_NONE);
  sqlite3_int64 value = sqlite3_column_int64(stmt, column);
  return type == SQLITE_INTEGER && (value >= 0 || field->role == TN__BITS) && tn__field_set(field, record, (uint64_t)value);
}

static int read_record(void *user, sqlite3_stmt *stmt, uint32_t id, tn_error *err) {
  record_reader *reader = user;
  void *record = tn__vec_add(reader->records);
  if (!record) return tn__error_set(err, TN_ENOMEM, NULL);
  for (size_t i = 0; i < reader->type->field_count; i++) {
    const tn__field *field = &reader->type->fields[i];
    if (column_is_legal(stmt, (int)i + 1, field, record)) continue;
    return tn__error_set_at(err, TN_EFORMAT, 0, id, "%s %u: %s is no number, or too large", reader->type->name, id, field->name);
  }
  return TN_OK;
}

static int read_table(sqlite3 *db, const tn__record *type, tn_vec *records, tn_error *err) {
  record_reader reader = {type, records};
  tn_text create, select;
  tn__text_init(&create);
  tn__text_init(&select);
  create_sql(&create, type);
  select_sql(&select, type);
  int rc = create.failed || select.failed ? tn__error_set(err, TN_ENOMEM, NULL) : TN_OK;
  if (!rc) rc = check_table(db, type->name, tn__text_view(&create), err);
  if (!rc) rc = read_rows(db, type->name, tn__text_view(&select), read_record, &reader, err);
  tn__text_deinit(&select);
  tn__text_deinit(&create);
  return rc;
}

typedef struct text_reader {
  tn_trace *trace;
  size_t bytes_left; /* all texts lie in the file */
} text_reader;

/* The column's text, NULL when it is none; *out_len without a NUL inside. */
static const char *column_text(text_reader *reader, sqlite3_stmt *stmt, int column, size_t *out_len) {
  if (sqlite3_column_type(stmt, column) != SQLITE_TEXT) return NULL;
  const char *text = (const char *)sqlite3_column_text(stmt, column);
  size_t len = (size_t)sqlite3_column_bytes(stmt, column);
  if (!text || len > reader->bytes_left || memchr(text, '\0', len)) return NULL;
  reader->bytes_left -= len;
  *out_len = len;
  return text;
}

static int read_string(void *user, sqlite3_stmt *stmt, uint32_t id, tn_error *err) {
  text_reader *reader = user;
  size_t len = 0;
  uint32_t new_id;
  const char *text = column_text(reader, stmt, 1, &len);
  if (!text || (id == 0 && len > 0)) return tn__error_set_at(err, TN_EFORMAT, 0, id, "string %u: is not a text", id);
  if (id == 0) return TN_OK; /* every trace has it */
  if (tn__strings_append(&reader->trace->strings, text, len, &new_id)) return tn__error_set(err, TN_ENOMEM, NULL);
  return TN_OK;
}

static int read_meta(void *user, sqlite3_stmt *stmt, uint32_t id, tn_error *err) {
  text_reader *reader = user;
  size_t len;
  const char *key = column_text(reader, stmt, 1, &len), *value = column_text(reader, stmt, 2, &len);
  if (!key || !value || id >= META_MAX) return tn__error_set_at(err, TN_EFORMAT, 0, id, "meta %u: is not a text", id);
  if (tn_trace_set_meta(reader->trace, key, value)) return tn__error_set(err, TN_ENOMEM, NULL);
  return TN_OK;
}

static int read_all(sqlite3 *db, size_t size, uint32_t schema, tn_trace *trace, tn_error *err) {
  text_reader texts = {trace, size};
  TN_TRY(check_table(db, "meta", META_SQL, err));
  TN_TRY(read_rows(db, "meta", META_SELECT_SQL, read_meta, &texts, err));
  TN_TRY(check_table(db, "string", STRING_SQL, err));
  TN_TRY(read_rows(db, "string", "SELECT id,\"text\" FROM \"string\" ORDER BY id", read_string, &texts, err));
  int table_count = schema == 1 ? TN_TABLE_EVENT + 1 : TN_TABLE_COUNT;
  for (int i = 0; i < table_count; i++) TN_TRY(read_table(db, &tn__records[i], &trace->tables[i], err));
  return tn_trace_check(trace, err);
}

int tn__store_read(const void *data, size_t size, tn_trace **out, tn_error *err) {
  uint32_t schema = 0;
  TN_TRY(check_header(data, size, &schema, err));
  sqlite3 *db = NULL;
  tn_trace *trace = NULL;
  int rc = open_bytes(data, size, &db, err);
  if (rc) return rc;
  if (tn_trace_new(&trace)) {
    rc = tn__error_set(err, TN_ENOMEM, NULL);
    goto out;
  }
  rc = read_all(db, size, schema, trace, err);
  if (rc) goto out;
  *out = trace;
  trace = NULL;
out:
  tn_trace_free(trace);
  (void)sqlite3_close(db);
  return rc;
}

/* ---- files --------------------------------------------------------------------------------------------------------------- */

int tn_trace_save(const tn_trace *trace, const char *path, tn_error *err) {
  unsigned char *data = NULL;
  size_t size = 0;
  int rc = tn_trace_check(trace, err); /* what could not be loaded is not written */
  if (!rc) rc = tn__store_write(trace, &data, &size, err);
  if (rc) return tn__file_error(err, path, rc);
  rc = tn__file_write(path, data, size, err);
  tn__store_free(data);
  return rc;
}

int tn_trace_load(const char *path, tn_trace **out, tn_error *err) {
  void *data = NULL;
  size_t size = 0;
  TN_TRY(tn__file_read(path, FILE_BYTES_MAX, &data, &size, err));
  int rc = tn__store_read(data, size, out, err);
  tn__mem_free(data);
  return rc ? tn__file_error(err, path, rc) : TN_OK;
}

/* snapshot_text.h -- snapshots written as JSON in a test, and what the reader makes of them. */
#ifndef TN_TESTS_SNAPSHOT_TEXT_H
#define TN_TESTS_SNAPSHOT_TEXT_H

#include "helper.h"

/* The trace of a snapshot that must be read. */
static inline tn_trace *snapshot_read(const void *data, size_t size) {
  tn_trace *trace = NULL;
  tn_error err = {0};
  if (tn_snapshot_parse(data, size, &trace, &err)) fail_msg("refused: %s", err.msg);
  if (tn_trace_check(trace, &err)) fail_msg("does not hold together: %s", err.msg);
  return trace;
}

static inline tn_trace *snapshot_text(const char *json) { return snapshot_read(json, strlen(json)); }

/* The data must be refused, and the message must hold the text. */
static inline tn_error snapshot_refused(const void *data, size_t size, const char *expected) {
  tn_trace *trace = NULL;
  tn_error err = {0};
  int rc = tn_snapshot_parse(data, size, &trace, &err);
  if (rc == TN_OK) fail_msg("was read, expected \"%s\"", expected);
  if (!strstr(err.msg, expected)) fail_msg("says \"%s\", expected \"%s\"", err.msg, expected);
  assert_int_equal(rc, TN_EFORMAT);
  assert_int_equal(err.code, rc);
  assert_null(trace);
  assert_int_equal(tn_snapshot_parse(data, size, &trace, NULL), rc); /* err may be NULL */
  return err;
}

static inline void snapshot_text_refused(const char *json, const char *expected) {
  (void)snapshot_refused(json, strlen(json), expected);
}

static inline const void *snapshot_table(const tn_trace *trace, enum tn_table table, size_t expected_count) {
  size_t count = 0;
  const void *records = tn_trace_table(trace, table, &count);
  assert_int_equal(count, expected_count);
  return records;
}

/* One device with these entries: "{...},{...}" */
static inline tn_trace *snapshot_entries(const char *entries) {
  char text[4096];
  assert_true((size_t)snprintf(text, sizeof text, "{\"device_traces\": [[%s]]}", entries) < sizeof text);
  return snapshot_text(text);
}

#endif

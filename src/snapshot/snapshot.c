/* snapshot.c -- a memory snapshot of PyTorch, of any version and in any of its forms, as a trace. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "snapshot/build.h"
#include "snapshot/input.h"
#include "snapshot/json.h"
#include "snapshot/pickle.h"
#include "trace/file.h"
#include "trace/store.h"
#include "trace/trace.h"

/* A trace file is read whole; a larger one is not read by tn_trace_load() either. */
#define TRACE_BYTES_MAX ((size_t)4 << 30)

/* ---- which form ---------------------------------------------------------------------------------------------------------- */

enum form { FORM_NONE, FORM_PICKLE, FORM_JSON, FORM_TRACE };

static int is_json(const tn__input *input) {
  const uint8_t *at = input->at, *end = input->end;
  if (end - at >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) at += 3;
  while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
  return at < end && (*at == '{' || *at == '[');
}

static enum form find_form(const tn__input *input) {
  size_t left = tn__input_left(input);
  if (left >= 15 && memcmp(input->at, "SQLite format 3", 15) == 0) return FORM_TRACE;
  if (is_json(input)) return FORM_JSON;
  /* PROTO, or what an older protocol begins a list or a dictionary with */
  return left > 0 && memchr("\x80(]}", *input->at, 4) ? FORM_PICKLE : FORM_NONE;
}

/* What else people hand over. */
static int unknown_form(const tn__input *input, tn_error *err) {
  size_t left = tn__input_left(input);
  if (left == 0) return tn__error_set(err, TN_EFORMAT, "is empty, expected a memory snapshot");
  if (left >= 2 && memcmp(input->at, "PK", 2) == 0)
    return tn__error_set(err, TN_EFORMAT, "is a zip archive, as torch.save() writes, expected a memory snapshot");
  if (*input->at == '<')
    return tn__error_set(err, TN_EFORMAT, "is an HTML page or the like, expected the memory snapshot that it was made from");
  return tn__error_set(err, TN_EFORMAT, "byte 0: expected a pickle, JSON or a trace, found 0x%02x", *input->at);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

static int read_build(tn__input *input, enum form form, tn_trace **out, tn_error *err) {
  tn__build build;
  int rc = tn__build_init(&build);
  if (rc) return tn__error_set(err, rc, NULL);
  rc = form == FORM_JSON ? tn__json_read(&build, input) : tn__pickle_read(&build, input);
  if (!rc) rc = tn__build_finish(&build);
  if (rc && err) *err = build.error;
  if (!rc) {
    *out = build.trace;
    build.trace = NULL;
  }
  tn__build_deinit(&build);
  return rc;
}

static int check_trace(const tn_trace *trace, tn_error *err) {
  if (tn__trace_count(trace, TN_TABLE_DEVICE) > 0) return TN_OK;
  return tn__error_set(err, TN_EFORMAT, "is a trace of a captured step, expected a memory snapshot");
}

static int read_trace(tn__input *input, tn_trace **out, tn_error *err) {
  tn_trace *trace = NULL;
  TN_TRY(tn__input_fill(input, TRACE_BYTES_MAX, err));
  TN_TRY(tn__store_read(input->at, tn__input_left(input), &trace, err));
  int rc = check_trace(trace, err);
  if (rc)
    tn_trace_free(trace);
  else
    *out = trace;
  return rc;
}

static int read_any(tn__input *input, tn_trace **out, tn_error *err) {
  enum form form = find_form(input);
  if (form == FORM_NONE) return unknown_form(input, err);
  return form == FORM_TRACE ? read_trace(input, out, err) : read_build(input, form, out, err);
}

/* ---- public -------------------------------------------------------------------------------------------------------------- */

int tn_snapshot_parse(const void *data, size_t size, tn_trace **out, tn_error *err) {
  tn__input input;
  if ((!data && size) || !out) return tn__error_set(err, TN_EINVAL, "no data or no place for the result");
  TN_TRY(tn__input_memory(&input, data ? data : "", size, err));
  int rc = read_any(&input, out, err);
  tn__input_close(&input);
  return rc;
}

int tn_snapshot_load(const char *path, tn_trace **out, tn_error *err) {
  tn__input input;
  if (!path || !out) return tn__error_set(err, TN_EINVAL, "no path or no place for the result");
  int rc = tn__input_open(&input, path, err);
  if (!rc) {
    rc = read_any(&input, out, err);
    tn__input_close(&input);
  }
  return rc ? tn__file_error(err, strcmp(path, "-") == 0 ? "standard input" : path, rc) : TN_OK;
}

/* Whether one of the words that every snapshot has comes soon. */
static int speaks_of_segments(const tn__input *input) {
  static const char *const words[] = {"segments", "device_traces", "total_size"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (memmem(input->at, tn__input_left(input), words[i], strlen(words[i]))) return 1;
  return 0;
}

int tn_snapshot_is_one(const char *path) {
  enum { LOOK_BYTES = 64 * 1024 };
  tn__input input;
  if (!path || tn__input_open(&input, path, NULL)) return 0;
  enum form form = find_form(&input);
  int found = (form == FORM_PICKLE || form == FORM_JSON) && !tn__input_fill(&input, LOOK_BYTES, NULL) && speaks_of_segments(&input);
  tn__input_close(&input);
  return found;
}

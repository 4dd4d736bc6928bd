/* snapshot.c -- a memory snapshot of torch.cuda, of any version and in any of its forms, as a trace. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "snapshot/build.h"
#include "snapshot/input.h"
#include "snapshot/pickle.h"
#include "trace/trace.h"

static int read_into(tn__build *build, tn__input *input) {
  if (tn__input_left(input) == 0) return tn__error_set(build->err, TN_EFORMAT, "is empty");
  TN_TRY(tn__pickle_read(build, input));
  return tn__build_finish(build);
}

static int read_input(tn__input *input, tn_trace **out, tn_error *err) {
  tn__build build;
  TN_TRY(tn__build_init(&build, err));
  int rc = read_into(&build, input);
  if (!rc) {
    *out = build.trace;
    build.trace = NULL;
  }
  tn__build_deinit(&build);
  return rc;
}

int tn_snapshot_parse(const void *data, size_t size, tn_trace **out, tn_error *err) {
  tn__input input;
  TN_TRY(tn__input_memory(&input, data, size, err));
  int rc = read_input(&input, out, err);
  tn__input_close(&input);
  return rc;
}

int tn_snapshot_load(const char *path, tn_trace **out, tn_error *err) {
  tn__input input;
  TN_TRY(tn__input_open(&input, path, err));
  int rc = read_input(&input, out, err);
  tn__input_close(&input);
  return rc;
}

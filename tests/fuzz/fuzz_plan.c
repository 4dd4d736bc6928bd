/* Any trace that passes tn_trace_check() can be planned for any limit, and what is written is JSON.
 *
 * The records, as in records.h; the bytes after them, eight at a time, are limits. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMITS_MAX = 3 };

static const char strings[] =
    "step:0\0pass:0\0pass:1\0end\0{\"args\": [], \"kwargs\": {}}\0float32[4,8]\0float32[4]/2+1\0int64[8]\0parameter:w\0input:0\0"
    "aten.mul.Tensor\0step:1";

static tn_profile device(const char *name) {
  tn_profile p = {.total_bytes = (uint64_t)1 << 37, .bytes_per_s = 1e12, .launch_s = 1e-6};
  strcpy(p.name, name);
  for (int i = 0; i < TN_RATE_COUNT; i++) p.flops_per_s[i] = 1e12;
  return p;
}

static void must_be_json(int rc, char *text) {
  if (rc) abort();
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  if (!root) abort();
  json_decref(root);
  tn_text_free(text);
}

static void plan(const tn_trace *trace, const char *name, uint64_t limit) {
  tn_plan_options options = {.limit_bytes = limit, .expandable_segments = limit & 1};
  tn_profile profile = device(name);
  tn_plan_result result;
  tn_plan *made = NULL;
  char *text = NULL;
  tn_error err = {0};
  int rc = tn_plan_new(trace, &profile, &options, &made, &err);
  if (rc != err.code || (rc && !err.msg[0])) abort();
  if (rc) return;
  tn_plan_get_result(made, &result);
  if (result.fits && (result.allocated_bytes > limit || result.reserved_bytes > limit)) abort();
  rc = tn_plan_pass_json(made, &text);
  must_be_json(rc, text);
  rc = tn_plan_rebuilt_json(made, &text);
  must_be_json(rc, text);
  tn_plan_free(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tn_trace *trace = NULL;
  size_t used = TN_TABLE_COUNT;
  if (tn_trace_new(&trace)) return 0;
  if (tn_trace_add_strings(trace, strings, sizeof strings, 12)) abort();
  if (records_fill(trace, data, size) == TN_OK && tn_trace_check(trace, NULL) == TN_OK) {
    for (int i = 0; i < TN_TABLE_COUNT; i++) used += data[i] * record_bytes[i];
    for (int i = 0; i < LIMITS_MAX && used + 8 <= size; i++, used += 8) {
      uint64_t limit;
      memcpy(&limit, data + used, 8);
      plan(trace, i % 2 ? "cpu" : "h200", limit);
    }
  }
  tn_trace_free(trace);
  return 0;
}

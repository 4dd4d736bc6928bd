/* Any snapshot that passes tn_trace_check() is explained: what it says adds up, whatever contradicts itself in it. */
#include <stdlib.h>
#include <string.h>

#include "explain/explain.h"
#include "records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds) {
  if (!holds) abort();
}

static void account_check(const tn__accounting *account) {
  uint64_t sum = 0;
  for (int part = 0; part < TN__PART_COUNT; part++) sum += account->part[part];
  must(sum == account->level.reserved_bytes);
}

static void composition_check(const tn__composition *at) {
  uint64_t rows = 0, categories = 0;
  for (size_t i = 0; i < at->rows.count; i++) rows += TN_VEC(&at->rows, tn__stack_row)[i].bytes;
  for (int i = 0; i < TN_CATEGORY_COUNT; i++) categories += at->by_category[i];
  must(rows == at->level.allocated_bytes && categories == at->level.allocated_bytes);
}

static void analysis_check(const tn__analysis *a) {
  account_check(&a->account_end);
  account_check(&a->account_peak);
  composition_check(&a->peak);
  composition_check(&a->end);
  tn__walk walk = tn__walk_begin(&a->history);
  do {
    must(walk.level.requested_bytes <= walk.level.allocated_bytes);
    must(walk.level.allocated_bytes <= walk.level.active_bytes);
    must(walk.level.active_bytes < (uint64_t)1 << 63 && walk.level.reserved_bytes < (uint64_t)1 << 63);
  } while (tn__walk_next(&walk));
}

static void report_make(const tn_explain *explain, int json) {
  char *text = NULL;
  must(tn_report_explain(explain, "fuzz", json, &text) == TN_OK);
  must(text[0] != '\0');
  tn_text_free(text);
}

static void explain(const tn_trace *trace) {
  tn_explain *explained = NULL;
  tn_explain_options options = {.device = TN_NONE, .stack_depth = 2};
  tn_error err = {0};
  must(tn_explain_new(trace, &options, &explained, &err) == TN_OK);
  for (size_t i = 0; i < explained->count; i++) analysis_check(&explained->devices[i]);
  report_make(explained, 0);
  report_make(explained, 1);
  tn_explain_free(explained);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tn_trace *trace = NULL;
  if (tn_trace_new(&trace)) return 0;
  if (tn_trace_add_strings(trace, "a.py\0f\0backward\0torch/optim/adam.py\0step\0torch/nn/modules/module.py\0_call_impl\0Optimizer.step#A\0ProfilerStep#1", 111, 9))
    abort();
  if (records_fill(trace, data, size) == TN_OK && tn_trace_check(trace, NULL) == TN_OK) explain(trace);
  tn_trace_free(trace);
  return 0;
}

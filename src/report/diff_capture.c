/* diff_capture.c -- the peak of a captured trace, for comparing: which module and op made what. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "plan/estimate.h"
#include "report/diff.h"

/* "layers.3.attention" as "layers.*.attention": copies of a module are one. */
static void pattern_add(tn_text *out, const char *path) {
  while (*path) {
    size_t length = strcspn(path, ".");
    int number = length > 0 && strspn(path, "0123456789") == length;
    tn__text_add_n(out, number ? "*" : path, number ? 1 : length);
    path += length;
    if (*path == '.') tn__text_add_n(out, path++, 1);
  }
}

typedef struct capture {
  const tn_trace *trace;
  const tn_module *modules;
  const tn_op *ops;
} capture;

/* "aten.addmm.default of layers.*.up"; "layers.*.up" for a parameter, which no op of the trace made. */
static void label_add(const capture *c, const tn_block *block, tn_text *out) {
  const char *path = block->module == TN_NONE ? "" : tn_trace_string(c->trace, c->modules[block->module].name);
  if (block->op != TN_NONE) tn__text_add(out, tn_trace_string(c->trace, c->ops[block->op].name));
  if (block->op != TN_NONE && *path) tn__text_add(out, " of ");
  if (*path)
    pattern_add(out, path);
  else if (block->op == TN_NONE)
    tn__text_add(out, "outside any module");
}

static int rows_add(tn__diff *diff, int side, const capture *c, const uint64_t *live) {
  size_t count = 0;
  const tn_block *blocks = tn_trace_table(c->trace, TN_TABLE_BLOCK, &count);
  int rc = TN_OK;
  for (size_t i = 0; i < count && !rc; i++) {
    if (!live[i]) continue;
    tn_text label;
    tn__text_init(&label);
    label_add(c, &blocks[i], &label);
    const char *text = tn__text_view(&label);
    rc = label.failed ? TN_ENOMEM : tn__diff_add(diff, side, text, text, blocks[i].category, live[i], 1);
    tn__text_deinit(&label);
  }
  return rc;
}

int tn__diff_add_capture(tn__diff *diff, int side, const tn_trace *trace, const tn_profile *profile) {
  tn_estimate_options options = {.step = TN_NONE};
  tn_peak peak;
  size_t count = 0;
  (void)tn_trace_table(trace, TN_TABLE_BLOCK, &count);
  TN_TRY(tn_estimate(trace, profile, &options, &peak));
  uint64_t *live = tn__mem_zalloc(count + 1, sizeof *live);
  if (!live) return TN_ENOMEM;
  capture c = {.trace = trace, .modules = tn_trace_table(trace, TN_TABLE_MODULE, NULL), .ops = tn_trace_table(trace, TN_TABLE_OP, NULL)};
  int rc = tn__estimate_live(trace, profile, &options, peak.event, live);
  if (!rc) rc = rows_add(diff, side, &c, live);
  tn__mem_free(live);
  diff->level[side] = (tn__level){.requested_bytes = peak.requested_bytes,
                                  .allocated_bytes = peak.allocated_bytes,
                                  .active_bytes = peak.allocated_bytes,
                                  .reserved_bytes = peak.reserved_bytes};
  return rc;
}

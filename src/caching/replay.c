/* replay.c -- tn_replay(). */
#include "caching/replay.h"

#include "base/error.h"
#include "caching/conf.h"

void tn__replay_describe(const tn__history *history, tn_replay_result *out) {
  *out = (tn_replay_result){.device = history->device->index,
                            .is_complete = history->segments.count == 0,
                            .entries = history->entries_count,
                            .allocs = history->asks,
                            .oom_entry = TN_NONE,
                            .difference_entry = TN_NONE,
                            .recorded_bytes = history->peak_bytes,
                            .ideal_bytes = history->ideal_bytes};
  for (size_t i = 0; i < history->steps.count; i++)
    out->ooms_recorded += TN_VEC(&history->steps, tn__step)[i].kind == TN__STEP_OOM;
}

/* A limit that is not the recorded one makes another run of it: that is no fault of the model, as the run without it shows. */
int tn__replay_own(const tn__history *history, uint64_t limit_bytes, tn_replay_result *out) {
  tn_replay_result limited = *out;
  TN_TRY(tn__replay_exact(history, limit_bytes, &limited));
  if (limit_bytes && limited.exactness != TN_EXACT_YES) {
    TN_TRY(tn__replay_exact(history, 0, out));
    if (out->exactness == TN_EXACT_YES) {
      out->exactness = TN_EXACT_NOT_COMPARED;
      return TN_OK;
    }
  }
  *out = limited;
  return TN_OK;
}

static int replay(const tn__history *history, const tn_replay_options *options, tn_replay_result *out) {
  const tn_conf *conf = options->conf ? options->conf : &history->conf;
  tn__replay_describe(history, out);
  out->conf = *conf;
  out->exactness = TN_EXACT_NOT_COMPARED;
  out->limit_bytes = options->limit_bytes;
  if (tn__conf_equal(conf, &history->conf)) TN_TRY(tn__replay_own(history, options->limit_bytes, out));
  if (out->exactness == TN_EXACT_YES) return TN_OK;
  if (!out->limit_bytes && history->capacity_bytes) {
    out->limit_bytes = history->capacity_bytes;
    out->limit_inferred = 1;
  }
  return tn__replay_predict(history, conf, out->limit_bytes, out);
}

int tn_replay(const tn_trace *trace, const tn_replay_options *options, tn_replay_result *out, tn_error *err) {
  static const tn_replay_options defaults = {.device = TN_NONE};
  tn__history history;
  if (!trace || !out) return tn__error_set(err, TN_EINVAL, NULL);
  if (!options) options = &defaults;
  if (options->conf && options->conf->malloc_async)
    return tn__error_set(err, TN_EINVAL, "backend:cudaMallocAsync is the driver's allocator, which is not modelled");
  if (options->conf && options->conf->memory_fraction > 0 && !options->limit_bytes)
    return tn__error_set(err, TN_EINVAL, "per_process_memory_fraction is of a card that the file does not name: give the limit itself");
  TN_TRY(tn__history_init(&history, trace, options->device, err));
  tn_replay_result result;
  int rc = replay(&history, options, &result);
  tn__history_deinit(&history);
  if (rc) return tn__error_set(err, rc, NULL);
  *out = result;
  return TN_OK;
}

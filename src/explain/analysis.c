/* analysis.c -- everything about one device, in order.  See analysis.h. */
#include "explain/analysis.h"

#include "base/error.h"
#include "base/map.h"
#include "explain/accounting.h"
#include "explain/findings.h"
#include "explain/phases.h"
#include "explain/stacks.h"
#include "explain/steps.h"

const char *tn__finding_name(int code) {
#define FINDING_NAME(name, text, words) text,
  static const char *const names[TN__FINDING_COUNT] = {TN__FINDINGS(FINDING_NAME)};
#undef FINDING_NAME
  return code >= 0 && code < TN__FINDING_COUNT ? names[code] : "?";
}

const char *tn__finding_words(int code) {
#define FINDING_WORDS(name, text, words) words,
  static const char *const names[TN__FINDING_COUNT] = {TN__FINDINGS(FINDING_WORDS)};
#undef FINDING_WORDS
  return code >= 0 && code < TN__FINDING_COUNT ? names[code] : "?";
}

const char *tn__exactness_name(int exactness) {
#define EXACTNESS_NAME(name, text) text,
  static const char *const names[TN__EXACTNESS_COUNT] = {TN__EXACTNESS(EXACTNESS_NAME)};
#undef EXACTNESS_NAME
  return exactness >= 0 && exactness < TN__EXACTNESS_COUNT ? names[exactness] : "?";
}

const char *tn__part_name(int part) {
#define PART_NAME(name, text, note) text,
  static const char *const names[TN__PART_COUNT] = {TN__PARTS(PART_NAME)};
#undef PART_NAME
  return part >= 0 && part < TN__PART_COUNT ? names[part] : "?";
}

const char *tn__part_note(int part) {
#define PART_NOTE(name, text, note) note,
  static const char *const notes[TN__PART_COUNT] = {TN__PARTS(PART_NOTE)};
#undef PART_NOTE
  return part >= 0 && part < TN__PART_COUNT ? notes[part] : "?";
}

/* ---- peaks --------------------------------------------------------------------------------------------------------------- */

/* A segment is reserved by the entry before the allocation that needs it. */
static uint32_t after_allocation(const tn__chronicle *history, uint32_t moment) {
  uint32_t at = moment;
  while (at < history->entry_count && at < moment + 2 && history->entries[at].action != TN_ACTION_ALLOC) at++;
  return at < history->entry_count && history->entries[at].action == TN_ACTION_ALLOC ? at + 1 : moment;
}

/* The moment that tells most about reserved memory: when it came to be as high as it gets; if it was from the start, when most of it
 * was in use. */
static int is_reserved_peak(const tn__analysis *a, const tn__walk *walk, const tn__level *best) {
  if (walk->level.reserved_bytes != best->reserved_bytes) return walk->level.reserved_bytes > best->reserved_bytes;
  int from_start = best->reserved_bytes == a->history.first.reserved_bytes;
  return walk->moment == 0 || (from_start && walk->level.allocated_bytes > best->allocated_bytes);
}

/* Levels at two moments, from one walk. */
static void peaks_find(tn__analysis *a, tn__level *out_reserved_level) {
  uint64_t most_allocated = 0;
  tn__level best = {0};
  tn__walk walk = tn__walk_begin(&a->history);
  do {
    if (walk.level.allocated_bytes > most_allocated || walk.moment == 0) {
      most_allocated = walk.level.allocated_bytes;
      a->peak_allocated_moment = walk.moment;
    }
    if (is_reserved_peak(a, &walk, &best)) {
      int grew = walk.moment && walk.level.reserved_bytes > best.reserved_bytes;
      best = walk.level;
      a->peak_reserved_moment = grew ? after_allocation(&a->history, walk.moment) : walk.moment;
    }
    if (walk.moment == a->peak_reserved_moment) *out_reserved_level = walk.level;
  } while (tn__walk_next(&walk));
  a->waste_bytes = best.reserved_bytes > most_allocated ? best.reserved_bytes - most_allocated : 0;
}

/* ---- the stream that asks ------------------------------------------------------------------------------------------------ */

static int stream_busiest(const tn__analysis *a, uint32_t *out) {
  size_t count = 0;
  (void)tn_trace_table(a->history.trace, TN_TABLE_STREAM, &count);
  tn_vec bytes;
  tn__vec_init(&bytes, sizeof(uint64_t));
  int rc = tn__vec_resize(&bytes, count + 1);
  for (size_t i = 0; i < a->history.spans.count && !rc; i++) {
    const tn__span *span = &TN__SPANS(&a->history)[i];
    if (!tn__span_is_active(span, a->peak_allocated_moment)) continue;
    TN_VEC(&bytes, uint64_t)[span->stream] += span->bytes;
    if (TN_VEC(&bytes, uint64_t)[span->stream] > TN_VEC(&bytes, uint64_t)[*out]) *out = span->stream;
  }
  tn__vec_deinit(&bytes);
  return rc;
}

static int stream_find(tn__analysis *a) {
  for (uint32_t i = a->history.entry_count; i-- > 0;) {
    if (a->history.entries[i].action != TN_ACTION_OOM) continue;
    a->stream = a->history.entries[i].stream;
    return TN_OK;
  }
  a->stream = 0;
  return stream_busiest(a, &a->stream);
}

/* ---- accounts ------------------------------------------------------------------------------------------------------------ */

static int account_at(tn__analysis *a, uint32_t moment, tn__level level, tn__accounting *out, tn_vec *pins) {
  tn__layout layout;
  int rc = tn__layout_init(&layout, &a->history, moment);
  if (!rc) tn__account(out, &layout, level, a->stream);
  if (!rc && pins) rc = tn__pins_gather(pins, &layout, &a->stacks, a->stream);
  tn__layout_deinit(&layout);
  return rc;
}

static int accounts_make(tn__analysis *a, tn__level at_peak) {
  TN_TRY(account_at(a, a->history.entry_count, a->history.last, &a->account_end, &a->pins));
  TN_TRY(account_at(a, a->peak_reserved_moment, at_peak, &a->account_peak, NULL));
  a->peak.level.reserved_bytes = a->account_peak.level.reserved_bytes;
  a->end.level.reserved_bytes = a->account_end.level.reserved_bytes;
  return TN_OK;
}

int tn__analysis_init(tn__analysis *a, const tn_trace *trace, size_t device_record, const tn__analysis_options *options) {
  *a = (tn__analysis){.total_bytes = options ? options->total_bytes : 0};
  tn__vec_init(&a->pins, sizeof(tn__pin));
  tn__vec_init(&a->findings, sizeof(tn__finding));
  tn__vec_init(&a->unchecked, sizeof(tn__unchecked));
  TN_TRY(tn__strings_init(&a->texts));
  TN_TRY(tn__chronicle_init(&a->history, trace, device_record));
  TN_TRY(tn__stacks_init(&a->stacks, trace));
  TN_TRY(tn__phases_init(&a->phases, &a->history, &a->stacks));
  TN_TRY(tn__steps_init(&a->steps, &a->history, &a->phases, &a->stacks));
  tn__level at_reserved_peak = {0};
  peaks_find(a, &at_reserved_peak);
  TN_TRY(stream_find(a));
  TN_TRY(tn__composition_init(&a->peak, &a->history, &a->stacks, a->peak_allocated_moment));
  TN_TRY(tn__composition_init(&a->end, &a->history, &a->stacks, a->history.entry_count));
  TN_TRY(accounts_make(a, at_reserved_peak));
  return tn__findings_gather(a);
}

void tn__analysis_deinit(tn__analysis *a) {
  tn__composition_deinit(&a->end);
  tn__composition_deinit(&a->peak);
  tn__steps_deinit(&a->steps);
  tn__phases_deinit(&a->phases);
  tn__stacks_deinit(&a->stacks);
  tn__chronicle_deinit(&a->history);
  tn__strings_deinit(&a->texts);
  tn__vec_deinit(&a->unchecked);
  tn__vec_deinit(&a->findings);
  tn__vec_deinit(&a->pins);
}

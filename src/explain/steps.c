/* steps.c -- see steps.h. */
#include "explain/steps.h"

#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "explain/stacks.h"

enum { STEPS_MIN = 2 };

static int step_add(tn__steps *steps, uint32_t begin, uint32_t end) {
  if (begin >= end) return TN_OK;
  tn__step step = {.begin = begin, .end = end};
  return tn__vec_push(&steps->list, &step);
}

/* ---- from annotations ---------------------------------------------------------------------------------------------------- */

static const tn_annotation *annotations_of(const tn__chronicle *history, size_t *out_count) {
  return tn_trace_table(history->trace, TN_TABLE_ANNOTATION, out_count);
}

static int begins_with(const char *text, const char *front) { return strncmp(text, front, strlen(front)) == 0; }

static int is_of_device(const tn__chronicle *history, const tn_annotation *annotation) {
  return annotation->device == history->device->index;
}

/* The first name that begins so; 0: none. */
static uint32_t marker_find(const tn__chronicle *history, const char *front) {
  size_t count = 0;
  const tn_annotation *annotations = annotations_of(history, &count);
  for (size_t i = 0; i < count; i++)
    if (is_of_device(history, &annotations[i]) && begins_with(tn_trace_string(history->trace, annotations[i].name), front))
      return annotations[i].name;
  return 0;
}

/* The first moment at or after *from that is not before the time.  Times ascend, as far as they are recorded. */
static uint32_t moment_of(const tn__chronicle *history, uint32_t from, uint64_t time_us) {
  while (from < history->entry_count && history->entries[from].time_us <= time_us) from++;
  return from;
}

/* ProfilerStep#3 from its start to its end. */
static int steps_from_profiler(tn__steps *steps, const tn__chronicle *history) {
  size_t count = 0;
  const tn_annotation *annotations = annotations_of(history, &count);
  uint32_t at = 0, begin = TN_NONE;
  for (size_t i = 0; i < count; i++) {
    if (!is_of_device(history, &annotations[i]) || !begins_with(tn_trace_string(history->trace, annotations[i].name), "ProfilerStep#"))
      continue;
    at = moment_of(history, at, annotations[i].time_us);
    if (annotations[i].flags & TN_ANNOTATION_END && begin != TN_NONE) TN_TRY(step_add(steps, begin, at));
    begin = annotations[i].flags & TN_ANNOTATION_END ? TN_NONE : at;
  }
  return TN_OK;
}

/* From one end of Optimizer.step to the next; what follows the last is no whole step. */
static int steps_from_optimizer(tn__steps *steps, const tn__chronicle *history, uint32_t marker, uint32_t begin) {
  size_t count = 0;
  const tn_annotation *annotations = annotations_of(history, &count);
  uint32_t at = 0;
  for (size_t i = 0; i < count; i++) {
    if (!is_of_device(history, &annotations[i]) || annotations[i].name != marker || !(annotations[i].flags & TN_ANNOTATION_END)) continue;
    at = moment_of(history, at, annotations[i].time_us);
    TN_TRY(step_add(steps, begin, at));
    begin = at;
  }
  return TN_OK;
}

/* ---- from phases --------------------------------------------------------------------------------------------------------- */

/* The first entry that is no set-up. */
static uint32_t setup_end(const tn__phases *phases) {
  const tn__run *runs = phases->runs.data;
  return phases->runs.count > 1 && runs[0].phase == TN_PHASE_SETUP ? runs[1].begin : 0;
}

/* From one end of a phase to the next.  A phase that is interrupted by the program's own lines has not ended. */
static int steps_from_phase(tn__steps *steps, const tn__chronicle *history, const tn__phases *phases, enum tn_phase phase) {
  const tn__run *runs = phases->runs.data;
  uint32_t begin = setup_end(phases);
  int seen = 0;
  for (size_t i = 0; i < phases->runs.count; i++) {
    int is_other = runs[i].phase == TN_PHASE_OTHER || runs[i].phase == TN_PHASE_SETUP;
    if (seen && !is_other && runs[i].phase != phase) {
      TN_TRY(step_add(steps, begin, runs[i].begin));
      begin = runs[i].begin;
      seen = 0;
    }
    seen |= runs[i].phase == phase;
  }
  return seen ? step_add(steps, begin, history->entry_count) : TN_OK;
}

/* ---- from repetition ----------------------------------------------------------------------------------------------------- */

/* An allocation is one like another when its stack is, or its size where there are no stacks. */
typedef struct kind {
  uint32_t count, last;      /* occurrences; number of the last one among all allocations */
  uint32_t gap_min, gap_max; /* allocations from one to the next */
  uint32_t first, reserved;
} kind;

static uint64_t kind_key(const tn__span *span, const tn__stacks *stacks, int has_stacks) {
  uint32_t group = tn__stacks_group(stacks, span->stack);
  return has_stacks && group != TN_NONE ? group : (uint64_t)1 << 63 | span->requested_bytes;
}

static int kind_see(tn_vec *kinds, tn_map *by_key, uint64_t key, uint32_t number) {
  uint32_t at = tn__map_get(by_key, key);
  if (at == TN_NONE) {
    kind added = {.count = 1, .last = number, .first = number, .gap_min = UINT32_MAX};
    TN_TRY(tn__map_set(by_key, key, (uint32_t)kinds->count));
    return tn__vec_push(kinds, &added);
  }
  kind *seen = tn__vec_at(kinds, at);
  uint32_t gap = number - seen->last;
  if (gap < seen->gap_min) seen->gap_min = gap;
  if (gap > seen->gap_max) seen->gap_max = gap;
  seen->last = number;
  seen->count++;
  return TN_OK;
}

/* What a model, autograd or an optimizer allocates repeats within a step, once a layer or once a parameter. */
static int may_be_anchor(const tn__span *span, const tn__stacks *stacks) {
  return !(tn__stacks_cues(stacks, span->stack) & (TN__CUE_MODULE | TN__CUE_BACKWARD | TN__CUE_OPTIMIZER));
}

/* Regular, seen often enough, and over most of the history. */
static int kind_is_regular(const kind *k, uint32_t allocs) {
  return k->count >= 4 && k->gap_max - k->gap_min <= k->gap_max / 8 && (uint64_t)(k->last - k->first) * 2 >= allocs;
}

/* Layers repeat within a step; what repeats once a step has the widest gaps. */
static uint64_t anchor_find(const tn_vec *kinds, const tn_map *by_key, uint32_t allocs) {
  uint64_t key = 0, best_key = UINT64_MAX;
  uint32_t value = 0, best = 0, best_first = 0;
  size_t pos = 0;
  while (tn__map_next(by_key, &pos, &key, &value)) {
    const kind *k = tn__vec_at(kinds, value);
    if (!kind_is_regular(k, allocs) || k->gap_max < best || (k->gap_max == best && k->first >= best_first)) continue;
    best = k->gap_max;
    best_first = k->first;
    best_key = key;
  }
  return best > 1 ? best_key : UINT64_MAX;
}

static int steps_from_anchor(tn__steps *steps, const tn__chronicle *history, const tn__stacks *stacks, int has_stacks, uint64_t anchor) {
  uint32_t begin = TN_NONE;
  for (size_t i = history->before_count; i < history->spans.count; i++) {
    const tn__span *span = &TN__SPANS(history)[i];
    if (kind_key(span, stacks, has_stacks) != anchor) continue;
    if (begin != TN_NONE) TN_TRY(step_add(steps, begin, span->alloc));
    begin = span->alloc;
  }
  return TN_OK;
}

/* Layers of a forward pass look like steps too, but what they allocate stays until backward.  Most of what a step allocates is gone
 * a step later. */
static int steps_are_plausible(const tn__steps *steps, const tn__chronicle *history) {
  const tn__step *list = steps->list.data;
  size_t at = 0, kept = 0, all = 0;
  for (size_t i = history->before_count; i < history->spans.count; i++) {
    const tn__span *span = &TN__SPANS(history)[i];
    while (at < steps->list.count && list[at].end <= span->alloc) at++;
    if (at + 2 >= steps->list.count) break;
    if (span->alloc < list[at].begin) continue;
    all++;
    kept += tn__span_is_allocated(span, list[at + 1].end) ? 1 : 0;
  }
  return kept * 10 <= all;
}

static int steps_from_repetition(tn__steps *steps, const tn__chronicle *history, const tn__stacks *stacks, int has_stacks) {
  tn_vec kinds;
  tn_map by_key;
  tn__vec_init(&kinds, sizeof(kind));
  tn__map_init(&by_key);
  int rc = TN_OK;
  for (size_t i = history->before_count; i < history->spans.count && !rc; i++) {
    const tn__span *span = &TN__SPANS(history)[i];
    if (may_be_anchor(span, stacks))
      rc = kind_see(&kinds, &by_key, kind_key(span, stacks, has_stacks), (uint32_t)(i - history->before_count));
  }
  uint64_t anchor = rc ? UINT64_MAX : anchor_find(&kinds, &by_key, (uint32_t)(history->spans.count - history->before_count));
  if (anchor != UINT64_MAX) rc = steps_from_anchor(steps, history, stacks, has_stacks, anchor);
  if (!rc && !steps_are_plausible(steps, history)) tn__vec_clear(&steps->list);
  tn__map_deinit(&by_key);
  tn__vec_deinit(&kinds);
  return rc;
}

/* ---- levels of each step ------------------------------------------------------------------------------------------------- */

static void step_see(tn__step *step, const tn__walk *walk) {
  uint64_t bytes = walk->level.allocated_bytes;
  if (walk->moment == step->begin || bytes < step->floor_bytes) step->floor_bytes = bytes;
  if (bytes > step->peak_bytes || walk->moment == step->begin) step->peak_bytes = bytes, step->peak_moment = walk->moment;
  if (walk->moment == step->end) step->end_bytes = bytes;
}

static void steps_measure(tn__steps *steps, const tn__chronicle *history) {
  tn__walk walk = tn__walk_begin(history);
  size_t at = 0;
  do {
    while (at < steps->list.count && TN_VEC(&steps->list, tn__step)[at].end < walk.moment) at++;
    for (size_t i = at; i < steps->list.count && TN_VEC(&steps->list, tn__step)[i].begin <= walk.moment; i++)
      step_see(tn__vec_at(&steps->list, i), &walk);
  } while (tn__walk_next(&walk));
}

static void spans_number(tn__steps *steps, tn__chronicle *history) {
  size_t at = 0;
  for (size_t i = history->before_count; i < history->spans.count; i++) {
    tn__span *span = &TN__SPANS(history)[i];
    while (at < steps->list.count && TN_VEC(&steps->list, tn__step)[at].end <= span->alloc) at++;
    if (at >= steps->list.count) break;
    tn__step *step = tn__vec_at(&steps->list, at);
    if (span->alloc < step->begin) continue;
    span->step = (uint32_t)at;
    step->allocs++;
  }
}

/* The first step is unlike the others: optimizer state and workspaces are made in it. */
static uint32_t warmup_of(const tn__steps *steps) { return steps->list.count > STEPS_MIN ? 1 : 0; }

static int enough(const tn__steps *steps) { return steps->list.count >= STEPS_MIN; }

/* The next way to find steps, when the last one has not found enough. */
static int steps_try(tn__steps *steps, const tn__chronicle *history, const tn__phases *phases, const tn__stacks *stacks, int way) {
  tn__vec_clear(&steps->list);
  steps->marker = 0;
  switch (way) {
    case 0:
      steps->from = TN__STEPS_ANNOTATED;
      steps->marker = marker_find(history, "ProfilerStep#");
      return steps->marker ? steps_from_profiler(steps, history) : TN_OK;
    case 1:
      steps->marker = marker_find(history, "Optimizer.step#");
      return steps->marker ? steps_from_optimizer(steps, history, steps->marker, setup_end(phases)) : TN_OK;
    case 2: steps->from = TN__STEPS_PHASES; return steps_from_phase(steps, history, phases, TN_PHASE_OPTIMIZER);
    case 3: return steps_from_phase(steps, history, phases, TN_PHASE_BACKWARD);
    default: steps->from = TN__STEPS_PERIODIC; return steps_from_repetition(steps, history, stacks, (int)phases->has_stacks);
  }
}

int tn__steps_init(tn__steps *steps, tn__chronicle *history, const tn__phases *phases, const tn__stacks *stacks) {
  enum { WAYS = 5 };
  *steps = (tn__steps){0};
  tn__vec_init(&steps->list, sizeof(tn__step));
  for (int way = 0; way < WAYS && !enough(steps); way++) TN_TRY(steps_try(steps, history, phases, stacks, way));
  if (!enough(steps)) {
    steps->from = TN__STEPS_NONE;
    steps->marker = 0;
    tn__vec_clear(&steps->list);
  }
  steps->warmup = warmup_of(steps);
  steps_measure(steps, history);
  spans_number(steps, history);
  return TN_OK;
}

void tn__steps_deinit(tn__steps *steps) { tn__vec_deinit(&steps->list); }

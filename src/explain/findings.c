/* findings.c -- runs the checks, sorts the findings.  See findings.h. */
#include "explain/findings.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "explain/phases.h"
#include "explain/stacks.h"
#include "explain/verdict.h"

/* ---- notes --------------------------------------------------------------------------------------------------------------- */

tn__note tn__note_open(enum tn__finding_code code, enum tn__severity severity, uint64_t bytes) {
  tn__note note = {.finding = {.code = (uint8_t)code, .severity = (uint8_t)severity, .bytes = bytes, .entry = TN_NONE, .stack = TN_NONE,
                               .segment = TN_NONE, .span = TN_NONE}};
  tn__text_init(&note.what);
  tn__text_init(&note.evidence);
  tn__text_init(&note.fix);
  return note;
}

void tn__note_drop(tn__note *note) {
  tn__text_deinit(&note->fix);
  tn__text_deinit(&note->evidence);
  tn__text_deinit(&note->what);
}

static int keep(tn_strings *texts, const tn_text *text, uint32_t *out) {
  if (text->failed) return TN_ENOMEM;
  return tn__strings_intern(texts, tn__text_view(text), text->len, out);
}

int tn__note_close(tn__note *note, tn__analysis *a) {
  int rc = keep(&a->texts, &note->what, &note->finding.what);
  if (!rc) rc = keep(&a->texts, &note->evidence, &note->finding.evidence);
  if (!rc) rc = keep(&a->texts, &note->fix, &note->finding.fix);
  if (!rc) rc = tn__vec_push(&a->findings, &note->finding);
  tn__note_drop(note);
  return rc;
}

int tn__unchecked_add(tn__analysis *a, const char *what, const char *why) {
  tn__unchecked added = {0};
  TN_TRY(tn__strings_intern(&a->texts, what, strlen(what), &added.what));
  TN_TRY(tn__strings_intern(&a->texts, why, strlen(why), &added.why));
  return tn__vec_push(&a->unchecked, &added);
}

/* ---- words --------------------------------------------------------------------------------------------------------------- */

void tn__say_share(tn_text *text, uint64_t part, uint64_t whole) {
  double percent = whole ? 100.0 * (double)part / (double)whole : 0;
  tn__text_printf(text, percent < 9.95 && percent > 0 ? "%.1f %%" : "%.0f %%", percent);
}

/* What stands for a place where there is none. */
static const char *no_place(const tn__analysis *a, uint32_t stack) {
  if (stack == TN__GROUP_BEFORE) return a->history.entry_count ? "before the history" : "an unrecorded place";
  return a->phases.bare_is_backward ? "autograd's thread" : "an unrecorded place";
}

void tn__say_place(tn_text *text, const tn__analysis *a, uint32_t stack) {
  if (!tn__stack_place(a->history.trace, &a->stacks, stack, text)) tn__text_add(text, no_place(a, stack));
}

void tn__say_place_op(tn_text *text, const tn__analysis *a, uint32_t stack) {
  tn_text op;
  tn__text_init(&op);
  tn__stack_op(a->history.trace, &a->stacks, stack, &op);
  if (op.failed) text->failed = op.failed;
  if (tn__stack_place(a->history.trace, &a->stacks, stack, text)) {
    if (op.len) tn__text_printf(text, " (%s)", tn__text_view(&op));
  } else {
    tn__text_add(text, op.len ? tn__text_view(&op) : no_place(a, stack));
  }
  tn__text_deinit(&op);
}

/* ---- questions ----------------------------------------------------------------------------------------------------------- */

int tn__is_much(uint64_t bytes, uint64_t whole, unsigned percent) {
  enum { MUCH_BYTES = 8 << 20 };
  return bytes > 0 && (bytes >= MUCH_BYTES || bytes >= whole / 4) && bytes / 64 * 100 >= whole / 64 * percent;
}

enum tn_phase tn__analysis_phase(const tn__analysis *a, uint32_t moment) {
  return tn__phases_at(&a->phases, moment ? moment - 1 : 0);
}

uint64_t tn__peak_saving(const tn__analysis *a, tn__saved *saved, void *user) {
  uint64_t now = 0, most = 0, peak = a->peak.level.allocated_bytes;
  for (uint32_t i = 0; i < a->history.before_count; i++)
    if (!tn__analysis_span(a, i)->was_pending) now += saved(user, a, i);
  tn__walk walk = tn__walk_begin(&a->history);
  do {
    uint32_t at = walk.moment ? walk.moment - 1 : 0, number = walk.moment ? a->history.span_of[at] : TN_NONE;
    if (number != TN_NONE) {
      const tn__span *span = tn__analysis_span(a, number);
      if (span->alloc == at) now += saved(user, a, number);
      if (span->asked == at) now -= saved(user, a, number);
    }
    if (walk.level.allocated_bytes - now > most) most = walk.level.allocated_bytes - now;
  } while (tn__walk_next(&walk));
  return peak > most ? peak - most : 0;
}

/* ---- what a file cannot show --------------------------------------------------------------------------------------------- */

static int unchecked_gather(tn__analysis *a) {
  const tn__chronicle *history = &a->history;
  if (!history->entry_count) {
    TN_TRY(tn__unchecked_add(a, "peak, leaks, steps, delays",
                             "the file has no history; record it with torch.cuda.memory._record_memory_history()"));
  } else if (!a->phases.has_stacks) {
    TN_TRY(tn__unchecked_add(a, "what the memory is for",
                             "the history has no stacks; record it with torch.cuda.memory._record_memory_history(stacks=\"python\")"));
  }
  if (history->before_count && history->entry_count)
    TN_TRY(tn__unchecked_add(a, "what happened before the first entry",
                             "the history begins late or its oldest entries were overwritten (max_entries)"));
  if (history->entry_count && a->steps.from == TN__STEPS_NONE)
    TN_TRY(tn__unchecked_add(a, "growth from step to step", "fewer than two training steps were recognised"));
  if (history->odd_count) TN_TRY(tn__unchecked_add(a, "some blocks", "the file contradicts itself about them; they count 0 bytes"));
  return tn__unchecked_add(a, "CUDA context, NCCL, other processes", "a snapshot has only PyTorch's allocator; nvidia-smi shows the rest");
}

/* ---- order --------------------------------------------------------------------------------------------------------------- */

static int compare_u64(uint64_t a, uint64_t b) { return a < b ? 1 : a > b ? -1 : 0; }

/* Bytes that count in the order: what the fix gives back, twice that when it costs nothing, half when results are no longer the same. */
static uint64_t weight_of(const tn__finding *finding) {
  uint64_t bytes = finding->frees_bytes;
  if (finding->severity == TN__SEVERITY_WASTE) return bytes * 2;
  return finding->exactness == TN__EXACT_NUMERICS ? bytes / 2 : bytes;
}

/* Faults in the order of the list; then what the fix gives back; then the order of advice. */
static int finding_compare(const void *a, const void *b) {
  const tn__finding *left = a, *right = b;
  int left_fault = left->severity == TN__SEVERITY_FAULT, right_fault = right->severity == TN__SEVERITY_FAULT;
  if (left_fault != right_fault) return right_fault - left_fault;
  int order = left_fault ? 0 : compare_u64(weight_of(left), weight_of(right));
  if (!order) order = (int)left->code - (int)right->code;
  return order ? order : compare_u64(left->bytes, right->bytes);
}

int tn__findings_gather(tn__analysis *a) {
  TN_TRY(tn__find_limits(a));
  TN_TRY(tn__find_growth(a));
  TN_TRY(tn__find_pieces(a));
  TN_TRY(tn__find_waste(a));
  TN_TRY(tn__find_held(a));
  TN_TRY(tn__find_peak(a));
  TN_TRY(unchecked_gather(a));
  if (a->findings.count) qsort(a->findings.data, a->findings.count, sizeof(tn__finding), finding_compare);
  return tn__verdict_write(a);
}

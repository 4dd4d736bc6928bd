/* find_held.c -- what is held longer than needed, and what comes on top of it.  See findings.h. */
#include "base/error.h"
#include "explain/findings.h"
#include "explain/stacks.h"

static void size_add(tn_text *text, const char *before, uint64_t bytes, const char *after) {
  tn__text_add(text, before);
  tn__text_size(text, bytes);
  tn__text_add(text, after);
}

/* ---- one walk over everything -------------------------------------------------------------------------------------------- */

typedef struct held {
  uint64_t temp_bytes, temp_most;       /* temporaries of the optimizer, now and at most */
  uint64_t temp_level;                  /* allocated in all when they were most */
  uint32_t temp_moment, temp_span;      /* when, and the largest of them by then */
  uint64_t rest_most;                   /* most allocated at any moment outside the optimizer */
  uint64_t gradient_bytes, gradient_most;
  uint32_t optimizer_at;                /* entry where the last run of the optimizer before the peak began; TN_NONE */
  uint32_t backwards, backwards_before; /* runs of backward in all since the last optimizer; most of them between two */
} held;

static void held_span(held *h, const tn__analysis *a, uint32_t number, uint32_t at) {
  const tn__span *span = tn__analysis_span(a, number);
  int is_temp = span->phase == TN_PHASE_OPTIMIZER && span->category == TN_CATEGORY_TEMPORARY;
  int is_gradient = span->category == TN_CATEGORY_GRADIENT;
  if (span->alloc == at) {
    h->temp_bytes += is_temp ? span->bytes : 0;
    h->gradient_bytes += is_gradient ? span->bytes : 0;
    if (is_temp && (h->temp_span == TN_NONE || span->bytes > tn__analysis_span(a, h->temp_span)->bytes)) h->temp_span = number;
  }
  if (span->asked == at) {
    h->temp_bytes -= is_temp ? span->bytes : 0;
    h->gradient_bytes -= is_gradient ? span->bytes : 0;
  }
  if (h->gradient_bytes > h->gradient_most) h->gradient_most = h->gradient_bytes;
}

static void held_run(held *h, const tn__analysis *a, const tn__run *run) {
  if (run->phase == TN_PHASE_OPTIMIZER) {
    if (run->begin < a->peak_allocated_moment) h->optimizer_at = run->begin;
    if (h->backwards > h->backwards_before) h->backwards_before = h->backwards;
    h->backwards = 0;
  }
  h->backwards += run->phase == TN_PHASE_BACKWARD;
}

static held held_look(const tn__analysis *a) {
  held h = {.temp_span = TN_NONE, .optimizer_at = TN_NONE};
  const tn__run *runs = a->phases.runs.data;
  size_t run = 0;
  for (size_t i = 0; i < a->history.before_count; i++) {
    const tn__span *span = tn__analysis_span(a, i);
    if (span->category == TN_CATEGORY_GRADIENT && !span->was_pending) h.gradient_bytes += span->bytes;
  }
  h.gradient_most = h.gradient_bytes;
  tn__walk walk = tn__walk_begin(&a->history);
  do {
    uint32_t at = walk.moment ? walk.moment - 1 : 0;
    while (run < a->phases.runs.count && runs[run].begin <= at) held_run(&h, a, &runs[run++]);
    uint32_t number = walk.moment ? a->history.span_of[at] : TN_NONE;
    if (number != TN_NONE) held_span(&h, a, number, at);
    int in_optimizer = run && runs[run - 1].phase == TN_PHASE_OPTIMIZER;
    if (!in_optimizer && walk.level.allocated_bytes > h.rest_most) h.rest_most = walk.level.allocated_bytes;
    if (h.temp_bytes <= h.temp_most) continue;
    h.temp_most = h.temp_bytes;
    h.temp_moment = walk.moment;
    h.temp_level = walk.level.allocated_bytes;
  } while (tn__walk_next(&walk));
  return h;
}

/* ---- the optimizer's temporaries ----------------------------------------------------------------------------------------- */

static int opt_temp_find(tn__analysis *a, const held *h) {
  uint64_t peak = a->peak.level.allocated_bytes;
  if (!tn__is_much(h->temp_most, peak, 5) || h->temp_level < peak / 20 * 19) return TN_OK;
  int at_peak = tn__analysis_phase(a, a->peak_allocated_moment) == TN_PHASE_OPTIMIZER;
  tn__note note = tn__note_open(TN__FINDING_OPT_TEMP, at_peak ? TN__SEVERITY_WASTE : TN__SEVERITY_NOTE, h->temp_most);
  note.finding.inferred = 1;
  note.finding.exactness = TN__EXACT_SAME_MATHS;
  note.finding.span = h->temp_span;
  note.finding.stack = h->temp_span == TN_NONE ? TN_NONE : tn__stacks_group(&a->stacks, tn__analysis_span(a, h->temp_span)->stack);
  note.finding.entry = h->temp_moment ? h->temp_moment - 1 : TN_NONE;
  size_add(&note.what, "The optimizer's step needs ", h->temp_most, " of temporaries");
  tn__text_add(&note.what, at_peak ? ", and that is where the peak is." : ", nearly as high as the peak.");
  uint64_t spare = peak > h->rest_most ? peak - h->rest_most : 0;
  if (at_peak) note.finding.frees_bytes = spare < h->temp_most ? spare : h->temp_most;
  size_add(&note.evidence, "allocated then ", h->temp_level, ", at most ");
  size_add(&note.evidence, "", h->rest_most, " outside of the optimizer; largest from ");
  tn__say_place_op(&note.evidence, a, note.finding.stack);
  tn__text_add(&note.fix, "fused=True (no temporaries) or foreach=False (one parameter at a time) in the optimizer.");
  return tn__note_close(&note, a);
}

/* ---- gradients ----------------------------------------------------------------------------------------------------------- */

/* Allocated at the peak, of a category, made before an entry. */
static uint64_t bytes_at_peak(const tn__analysis *a, enum tn_category category, uint32_t before, uint32_t *out_span) {
  uint64_t bytes = 0, largest = 0;
  for (size_t i = 0; i < a->history.spans.count; i++) {
    const tn__span *span = tn__analysis_span(a, i);
    if (span->category != category || !tn__span_is_allocated(span, a->peak_allocated_moment)) continue;
    if (span->alloc != TN_NONE && span->alloc >= before) continue;
    bytes += span->bytes;
    if (span->bytes > largest) largest = span->bytes, *out_span = (uint32_t)i;
  }
  return bytes;
}

static int grads_kept_find(tn__analysis *a, const held *h) {
  enum tn_phase phase = tn__analysis_phase(a, a->peak_allocated_moment);
  if (h->optimizer_at == TN_NONE || phase == TN_PHASE_OPTIMIZER) return TN_OK;
  uint32_t span = TN_NONE;
  uint64_t bytes = bytes_at_peak(a, TN_CATEGORY_GRADIENT, h->optimizer_at, &span);
  if (!tn__is_much(bytes, a->peak.level.allocated_bytes, 5)) return TN_OK;
  tn__note note = tn__note_open(TN__FINDING_GRADS_KEPT, TN__SEVERITY_WASTE, bytes);
  note.finding.inferred = 1;
  note.finding.exactness = TN__EXACT_IDENTICAL;
  note.finding.span = span;
  note.finding.entry = h->optimizer_at;
  if (phase != TN_PHASE_BACKWARD) note.finding.frees_bytes = bytes;
  size_add(&note.what, "", bytes, " of gradients that the optimizer has used already are held at the peak.");
  tn__text_printf(&note.evidence, "the optimizer ran at entry %u, the peak is at moment %u, in %s", h->optimizer_at, a->peak_allocated_moment,
                  tn_phase_name((int)phase));
  tn__text_add(&note.fix, "optimizer.zero_grad(set_to_none=True) right after optimizer.step().");
  return tn__note_close(&note, a);
}

static uint64_t gradient_saved(void *user, const tn__analysis *a, uint32_t number) {
  const tn__span *span = tn__analysis_span(a, number);
  (void)user;
  return span->category == TN_CATEGORY_GRADIENT ? span->bytes : 0;
}

/* Without gradients the peak would fall by so much; one of them is always there. */
static uint64_t gradients_saving(const tn__analysis *a) {
  uint64_t largest = 0, saving = tn__peak_saving(a, gradient_saved, NULL);
  for (size_t i = 0; i < a->history.spans.count; i++) {
    const tn__span *span = tn__analysis_span(a, i);
    if (span->category == TN_CATEGORY_GRADIENT && span->bytes > largest) largest = span->bytes;
  }
  return saving > largest ? saving - largest : 0;
}

static int grads_peak_find(tn__analysis *a, const held *h) {
  uint64_t bytes = a->peak.by_category[TN_CATEGORY_GRADIENT];
  enum tn_phase phase = tn__analysis_phase(a, a->peak_allocated_moment);
  int whole = bytes >= h->gradient_most / 10 * 9 && (phase == TN_PHASE_BACKWARD || phase == TN_PHASE_OPTIMIZER);
  if (!whole || h->backwards_before > 1 || !tn__is_much(bytes, a->peak.level.allocated_bytes, 15)) return TN_OK;
  tn__note note = tn__note_open(TN__FINDING_GRADS_PEAK, TN__SEVERITY_NOTE, bytes);
  note.finding.inferred = 1;
  note.finding.exactness = TN__EXACT_SAME_MATHS;
  note.finding.frees_bytes = gradients_saving(a);
  size_add(&note.what, "All gradients (", bytes, ") are there at once at the peak.");
  tn__text_printf(&note.evidence, "the peak is in %s, with one backward pass to a step", tn_phase_name((int)phase));
  tn__text_add(&note.fix, "Step inside backward: a hook per parameter (register_post_accumulate_grad_hook) that steps and drops its gradient. Not with "
                          "accumulation or clipping by the global norm.");
  return tn__note_close(&note, a);
}

/* ---- what the step before has left --------------------------------------------------------------------------------------- */

static uint32_t step_at(const tn__analysis *a, uint32_t moment) {
  const tn__step *steps = a->steps.list.data;
  for (size_t i = 0; i < a->steps.list.count; i++)
    if (moment > steps[i].begin && moment <= steps[i].end) return (uint32_t)i;
  return a->steps.list.count && moment > steps[a->steps.list.count - 1].end ? (uint32_t)a->steps.list.count : TN_NONE;
}

/* Made by the forward pass of the step before the peak's, and let go of within the peak's own. */
static int held_over_find(tn__analysis *a) {
  uint32_t step = step_at(a, a->peak_allocated_moment), largest = TN_NONE, blocks = 0;
  if (step == TN_NONE || step == 0) return TN_OK;
  uint64_t bytes = 0;
  for (size_t i = a->history.before_count; i < a->history.spans.count; i++) {
    const tn__span *span = tn__analysis_span(a, i);
    if (span->step != step - 1 || span->asked == TN_NONE || !tn__span_is_allocated(span, a->peak_allocated_moment)) continue;
    if (span->phase != TN_PHASE_FORWARD && span->phase != TN_PHASE_LOSS) continue;
    if (step < a->steps.list.count && span->asked >= TN_VEC(&a->steps.list, tn__step)[step].end) continue;
    bytes += span->bytes;
    blocks++;
    if (largest == TN_NONE || span->bytes > tn__analysis_span(a, largest)->bytes) largest = (uint32_t)i;
  }
  if (!tn__is_much(bytes, a->peak.level.allocated_bytes, 2)) return TN_OK;
  tn__note note = tn__note_open(TN__FINDING_HELD_OVER, TN__SEVERITY_WASTE, bytes);
  note.finding.inferred = 1;
  note.finding.exactness = TN__EXACT_IDENTICAL;
  note.finding.frees_bytes = bytes;
  note.finding.span = largest;
  note.finding.entry = tn__analysis_span(a, largest)->alloc;
  note.finding.stack = tn__stacks_group(&a->stacks, tn__analysis_span(a, largest)->stack);
  size_add(&note.what, "", bytes, " from the step before are still held at the peak: a variable keeps its output until it gets the next one.");
  tn__text_printf(&note.evidence, "%u blocks, the largest from ", blocks);
  tn__say_place_op(&note.evidence, a, note.finding.stack);
  tn__text_add(&note.fix, "del the outputs and the loss at the end of the step.");
  return tn__note_close(&note, a);
}

/* ---- copies -------------------------------------------------------------------------------------------------------------- */

static int copies_find(tn__analysis *a) {
  uint64_t bytes = 0;
  uint32_t blocks = 0, largest = TN_NONE;
  for (size_t i = 0; i < a->history.spans.count; i++) {
    const tn__span *span = tn__analysis_span(a, i);
    if (!(tn__stacks_cues(&a->stacks, span->stack) & TN__CUE_COPY) || !tn__span_is_allocated(span, a->peak_allocated_moment)) continue;
    bytes += span->bytes;
    blocks++;
    if (largest == TN_NONE || span->bytes > tn__analysis_span(a, largest)->bytes) largest = (uint32_t)i;
  }
  if (!tn__is_much(bytes, a->peak.level.allocated_bytes, 5)) return TN_OK;
  tn__note note = tn__note_open(TN__FINDING_COPIES, TN__SEVERITY_NOTE, bytes);
  note.finding.frees_bytes = bytes;
  note.finding.exactness = TN__EXACT_IDENTICAL;
  note.finding.span = largest;
  note.finding.stack = tn__stacks_group(&a->stacks, tn__analysis_span(a, largest)->stack);
  size_add(&note.what, "", bytes, " are copies of parameters on the card (deepcopy).");
  tn__text_printf(&note.evidence, "%u blocks, from ", blocks);
  tn__say_place_op(&note.evidence, a, note.finding.stack);
  tn__text_add(&note.fix, "Keep the copy in host memory: {k: v.cpu() for k, v in model.state_dict().items()}.");
  return tn__note_close(&note, a);
}

int tn__find_held(tn__analysis *a) {
  held h = held_look(a);
  TN_TRY(held_over_find(a));
  TN_TRY(copies_find(a));
  if (!a->phases.has_stacks) return TN_OK;
  TN_TRY(grads_kept_find(a, &h));
  TN_TRY(opt_temp_find(a, &h));
  return grads_peak_find(a, &h);
}

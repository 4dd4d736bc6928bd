/* find_growth.c -- what grows from step to step, graphs that are kept, steps that are much larger.  See findings.h. */
#include <stdlib.h>

#include "base/error.h"
#include "base/map.h"
#include "base/mem.h"
#include "explain/findings.h"
#include "explain/stacks.h"

enum { GROWTH_STEPS_MIN = 3, GRAPH_PLACES_MIN = 4, ROWS_SHOWN = 3 };

static void size_add(tn_text *text, const char *before, uint64_t bytes, const char *after) {
  tn__text_add(text, before);
  tn__text_size(text, bytes);
  tn__text_add(text, after);
}

/* ---- leaks: who leaves blocks behind in every step ----------------------------------------------------------------------- */

typedef struct grower { /* blocks of one stack, or of one size where there is no stack, that outlive the steps */
  uint32_t stack;       /* of one of them */
  uint32_t blocks;
  uint32_t steps;       /* in how many steps some were made */
  uint32_t last_step;
  uint64_t bytes;
  uint64_t peak_bytes;  /* live at the allocated peak */
  uint32_t span;        /* the first */
  uint8_t phase, reserved[3];
} grower;

typedef struct growth {
  const tn__analysis *a;
  tn_vec rows; /* grower */
  tn_map by_key;
  uint32_t first, last;  /* steps that may count: first ... last - 1, and the end of `last` is the time to look */
  uint32_t moment;       /* that end */
} growth;

static int is_state(const tn__span *span) {
  return span->category == TN_CATEGORY_PARAMETER || span->category == TN_CATEGORY_OPTIMIZER || span->category == TN_CATEGORY_WORKSPACE;
}

static uint64_t grower_key(const growth *g, const tn__span *span) {
  uint32_t group = tn__stacks_group(&g->a->stacks, span->stack);
  return tn__stacks_cues(&g->a->stacks, span->stack) ? group : (uint64_t)1 << 63 | span->requested_bytes;
}

static int growth_see(growth *g, uint32_t number) {
  const tn__span *span = tn__analysis_span(g->a, number);
  uint64_t key = grower_key(g, span);
  uint32_t at = tn__map_get(&g->by_key, key);
  if (at == TN_NONE) {
    at = (uint32_t)g->rows.count;
    grower added = {.stack = span->stack, .last_step = TN_NONE, .span = number, .phase = span->phase};
    TN_TRY(tn__map_set(&g->by_key, key, at));
    TN_TRY(tn__vec_push(&g->rows, &added));
  }
  grower *row = tn__vec_at(&g->rows, at);
  row->blocks++;
  row->bytes += span->bytes;
  if (tn__span_is_allocated(span, g->a->peak_allocated_moment)) row->peak_bytes += span->bytes;
  row->steps += row->last_step != span->step;
  row->last_step = span->step;
  return TN_OK;
}

static int growers_gather(growth *g) {
  for (size_t i = g->a->history.before_count; i < g->a->history.spans.count; i++) {
    const tn__span *span = tn__analysis_span(g->a, i);
    if (span->step == TN_NONE || span->step < g->first || span->step >= g->last || is_state(span)) continue;
    if (tn__span_is_allocated(span, g->moment)) TN_TRY(growth_see(g, (uint32_t)i));
  }
  return TN_OK;
}

static int grower_compare(const void *a, const void *b) {
  const grower *left = a, *right = b;
  if (left->bytes != right->bytes) return left->bytes < right->bytes ? 1 : -1;
  return left->span < right->span ? -1 : left->span > right->span;
}

/* Only those that grow in four of five steps. */
static void growers_select(growth *g) {
  grower *rows = g->rows.data;
  uint32_t steps = g->last - g->first;
  size_t kept = 0;
  for (size_t i = 0; i < g->rows.count; i++)
    if (rows[i].steps * 5 >= steps * 4) rows[kept++] = rows[i];
  g->rows.count = kept;
  if (kept) qsort(rows, kept, sizeof *rows, grower_compare);
}

typedef struct grown {
  uint64_t bytes, peak_bytes;
  uint32_t places;         /* in forward and loss */
  uint32_t is_mostly_forward;
  double slope;
} grown;

static grown growth_sum(const growth *g) {
  grown sum = {0};
  uint64_t forward = 0;
  for (size_t i = 0; i < g->rows.count; i++) {
    const grower *row = tn__vec_at(&g->rows, i);
    int is_forward = row->phase == TN_PHASE_FORWARD || row->phase == TN_PHASE_LOSS;
    sum.bytes += row->bytes;
    sum.peak_bytes += row->peak_bytes;
    sum.places += (uint32_t)is_forward;
    forward += is_forward ? row->bytes : 0;
  }
  sum.is_mostly_forward = forward > sum.bytes / 2 ? 1 : 0;
  sum.slope = (double)sum.bytes / (g->last - g->first);
  return sum;
}

/* What the levels say: from the end of the step before the first to the end of the last but one. */
static double level_slope(const growth *g) {
  const tn__step *steps = g->a->steps.list.data;
  double from = (double)steps[g->first].end_bytes, to = (double)steps[g->last].end_bytes;
  return (to - from) / (g->last - g->first);
}

static void growers_say(const growth *g, tn_text *text) {
  for (size_t i = 0; i < g->rows.count && i < ROWS_SHOWN; i++) {
    const grower *row = tn__vec_at(&g->rows, i);
    size_add(text, "\n", row->bytes / row->steps, "/step from ");
    tn__say_place_op(text, g->a, row->stack);
  }
  if (g->rows.count > ROWS_SHOWN) tn__text_printf(text, "\nand %zu other places", g->rows.count - ROWS_SHOWN);
}

static void ends_say(const growth *g, tn_text *text) {
  const tn__step *steps = g->a->steps.list.data;
  tn__text_add(text, "allocated at the end of the steps: ");
  enum { ENDS_SHOWN = 6 };
  uint32_t from = g->last + 1 > ENDS_SHOWN ? g->last + 1 - ENDS_SHOWN : 0;
  if (from < g->first) from = g->first;
  for (uint32_t i = from; i <= g->last; i++) size_add(text, i > from ? ", " : "", steps[i].end_bytes, "");
}

static void leak_advise(const growth *g, const grown *sum, tn__note *note) {
  const tn__analysis *a = g->a;
  if (note->finding.code == TN__FINDING_GRAPH_KEPT)
    tn__text_add(&note->fix, "Something made in forward is stored each step with all that backward would need. Store loss.item() or tensor.detach(), "
                             "not the tensor.");
  else
    tn__text_add(&note->fix, "Store numbers or CPU copies (x.item(), x.detach().cpu()) instead of tensors; look there for lists, attributes and "
                             "closures that keep them.");
  if (!a->total_bytes || sum->slope < 1 || a->total_bytes <= a->account_peak.level.reserved_bytes) return;
  double steps = (double)(a->total_bytes - a->account_peak.level.reserved_bytes) / sum->slope;
  tn__text_printf(&note->fix, " At this pace memory is full after %.0f more steps.", steps);
}

static int leak_note(growth *g, tn__analysis *a) {
  grown sum = growth_sum(g);
  if (!g->rows.count || level_slope(g) < sum.slope / 2 || sum.slope < 1) return TN_OK;
  int is_graph = sum.places >= GRAPH_PLACES_MIN && sum.is_mostly_forward;
  const grower *top = tn__vec_at(&g->rows, 0);
  tn__note note = tn__note_open(is_graph ? TN__FINDING_GRAPH_KEPT : TN__FINDING_LEAK, TN__SEVERITY_FAULT, sum.bytes);
  note.finding.slope_bytes = sum.slope;
  note.finding.frees_bytes = sum.peak_bytes;
  note.finding.span = top->span;
  note.finding.entry = tn__analysis_span(a, top->span)->alloc;
  note.finding.stack = tn__stacks_group(&a->stacks, top->stack);
  size_add(&note.what, "Memory grows by ", (uint64_t)(sum.slope + 0.5), " every step: ");
  tn__text_add(&note.what, is_graph ? "what forward saved for backward is kept, first of " : "blocks stay from ");
  tn__say_place(&note.what, a, top->stack);
  tn__text_add(&note.what, ".");
  ends_say(g, &note.evidence);
  growers_say(g, &note.evidence);
  note.finding.exactness = TN__EXACT_IDENTICAL;
  leak_advise(g, &sum, &note);
  return tn__note_close(&note, a);
}

static int leaks_find(tn__analysis *a) {
  size_t count = a->steps.list.count;
  if (count < a->steps.warmup + GROWTH_STEPS_MIN + 1) {
    if (count) return tn__unchecked_add(a, "growth from step to step", "it takes at least five steps, the first being unlike the others");
    return TN_OK;
  }
  growth g = {.a = a, .first = a->steps.warmup, .last = (uint32_t)count - 1};
  g.moment = TN_VEC(&a->steps.list, tn__step)[g.last].end;
  tn__vec_init(&g.rows, sizeof(grower));
  tn__map_init(&g.by_key);
  int rc = growers_gather(&g);
  if (!rc) {
    growers_select(&g);
    rc = leak_note(&g, a);
  }
  tn__map_deinit(&g.by_key);
  tn__vec_deinit(&g.rows);
  return rc;
}

/* ---- evaluation with autograd on ----------------------------------------------------------------------------------------- */

/* Frees in a row, no allocation between: most of what a forward pass holds dies at once, and no backward has come since it was made.
 * Without autograd each layer's results die soon after the next layer has read them.  (Autocast drops its copies of weights together
 * too, but then what was saved for backward stays.) */
typedef struct burst {
  uint32_t blocks, first_alloc; /* entry */
  uint64_t bytes;
  uint32_t largest;             /* span */
  uint32_t end;                 /* entry of the last free */
  uint32_t eval;                /* blocks whose stack speaks of evaluation */
  uint64_t left_bytes;          /* of the same pass, still live when the burst ended */
} burst;

enum { BURST_BLOCKS_MIN = 16 };

static void burst_see(burst *b, const tn__analysis *a, uint32_t number, uint32_t at) {
  const tn__span *span = tn__analysis_span(a, number);
  if (b->largest == TN_NONE || span->bytes > tn__analysis_span(a, b->largest)->bytes) b->largest = number;
  if (!b->blocks || span->alloc < b->first_alloc) b->first_alloc = span->alloc;
  b->blocks++;
  b->bytes += span->bytes;
  b->eval += (tn__stacks_cues(&a->stacks, span->stack) & TN__CUE_EVAL) != 0;
  b->end = at;
}

typedef struct bursts {
  burst best, now;
  uint32_t last_backward; /* entry + 1 */
  uint64_t live_bytes;    /* made in forward since then */
} bursts;

static void burst_end(bursts *b) {
  int is_most = b->now.bytes / 4 >= b->now.left_bytes;
  if (b->now.blocks >= BURST_BLOCKS_MIN && is_most && b->now.bytes > b->best.bytes) b->best = b->now;
  b->now = (burst){.largest = TN_NONE};
}

static void bursts_see(bursts *b, const tn__analysis *a, uint32_t number, uint32_t at) {
  const tn__span *span = tn__analysis_span(a, number);
  int is_forward = span->phase == TN_PHASE_FORWARD || span->phase == TN_PHASE_LOSS;
  if (span->alloc == at) burst_end(b);
  if (!is_forward || span->alloc == TN_NONE || span->alloc < b->last_backward) return;
  if (span->alloc == at) b->live_bytes += span->bytes;
  if (span->asked != at) return;
  b->live_bytes -= span->bytes;
  burst_see(&b->now, a, number, at);
  b->now.left_bytes = b->live_bytes;
}

static void backward_see(bursts *b, uint32_t at) {
  if (b->last_backward < at) burst_end(b);
  b->last_backward = at + 1;
  b->live_bytes = 0;
}

static burst burst_find(const tn__analysis *a) {
  bursts b = {.best = {.largest = TN_NONE}, .now = {.largest = TN_NONE}};
  const tn__run *runs = a->phases.runs.data;
  size_t run = 0;
  for (uint32_t i = 0; i < a->history.entry_count; i++) {
    if (run + 1 < a->phases.runs.count && runs[run + 1].begin == i) run++;
    if (runs[run].phase == TN_PHASE_BACKWARD) backward_see(&b, i);
    if (a->history.span_of[i] != TN_NONE) bursts_see(&b, a, a->history.span_of[i], i);
  }
  burst_end(&b);
  return b.best;
}

static int eval_find(tn__analysis *a) {
  if (!a->phases.has_stacks || !a->phases.has_backward) return TN_OK; /* inference only: nothing to compare with */
  burst b = burst_find(a);
  if (!b.blocks || !tn__is_much(b.bytes, a->peak.level.allocated_bytes, 5)) return TN_OK;
  const tn__span *largest = tn__analysis_span(a, b.largest);
  tn__note note = tn__note_open(TN__FINDING_EVAL_GRAPH, TN__SEVERITY_WASTE, b.bytes);
  note.finding.span = b.largest;
  note.finding.entry = b.first_alloc;
  note.finding.stack = tn__stacks_group(&a->stacks, largest->stack);
  int at_peak = a->peak_allocated_moment > b.first_alloc && a->peak_allocated_moment <= b.end;
  if (at_peak) note.finding.frees_bytes = b.bytes;
  tn__text_printf(&note.what, "A forward pass without backward kept %u blocks (", b.blocks);
  size_add(&note.what, "", b.bytes, ") to its end, as if for backward");
  tn__text_add(&note.what, b.eval ? ", in evaluation." : ".");
  tn__text_printf(&note.evidence, "entries %u to %u: made one after the other, freed together; ", b.first_alloc, b.end);
  size_add(&note.evidence, "", b.left_bytes, " of the pass stayed");
  size_add(&note.evidence, "\nlargest ", largest->bytes, " from ");
  tn__say_place_op(&note.evidence, a, largest->stack);
  note.finding.inferred = 1;
  note.finding.exactness = TN__EXACT_IDENTICAL;
  tn__text_add(&note.fix, "Run it under torch.no_grad() or torch.inference_mode().");
  return tn__note_close(&note, a);
}

/* ---- steps that are much larger ------------------------------------------------------------------------------------------ */

static int step_peak_compare(const void *a, const void *b) {
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return left < right ? -1 : left > right;
}

static int variable_note(tn__analysis *a, uint64_t *peaks, size_t count) {
  const tn__step *steps = TN_VEC(&a->steps.list, tn__step) + a->steps.warmup;
  uint32_t largest = 0;
  for (size_t i = 0; i < count; i++) {
    peaks[i] = steps[i].peak_bytes;
    if (peaks[i] > steps[largest].peak_bytes) largest = (uint32_t)i;
  }
  qsort(peaks, count, sizeof *peaks, step_peak_compare);
  uint64_t median = peaks[count / 2], most = peaks[count - 1];
  if (!tn__is_much(most - median, most, 20)) return TN_OK;
  tn__note note = tn__note_open(TN__FINDING_VARIABLE, TN__SEVERITY_NOTE, most - median);
  note.finding.entry = steps[largest].peak_moment ? steps[largest].peak_moment - 1 : TN_NONE;
  tn__text_printf(&note.what, "Step %u needs ", largest + a->steps.warmup + 1);
  size_add(&note.what, "", most, ", the usual one ");
  size_add(&note.what, "", median, ": the inputs differ in size.");
  size_add(&note.evidence, "peaks of steps from ", peaks[0], " to ");
  size_add(&note.evidence, "", most, "");
  tn__text_add(&note.fix, "Sort or bucket by length, pad to few lengths, cap the length, or run the largest batch first so that it fails early.");
  note.finding.frees_bytes = most - median;
  return tn__note_close(&note, a);
}

static int variable_find(tn__analysis *a) {
  size_t count = a->steps.list.count - a->steps.warmup;
  if (a->steps.list.count < 5) return TN_OK;
  uint64_t *peaks = tn__mem_zalloc(count, sizeof *peaks);
  if (!peaks) return TN_ENOMEM;
  int rc = variable_note(a, peaks, count);
  tn__mem_free(peaks);
  return rc;
}

int tn__find_growth(tn__analysis *a) {
  TN_TRY(leaks_find(a));
  TN_TRY(eval_find(a));
  return variable_find(a);
}

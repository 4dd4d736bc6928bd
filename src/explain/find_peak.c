/* find_peak.c -- what the peak is made of, and what could make it smaller.  See findings.h. */
#include "base/error.h"
#include "explain/findings.h"
#include "explain/phases.h"
#include "explain/stacks.h"

static void size_add(tn_text *text, const char *before, uint64_t bytes, const char *after) {
  tn__text_add(text, before);
  tn__text_size(text, bytes);
  tn__text_add(text, after);
}

static int is_at_peak(const tn__analysis *a, const tn__span *span) { return tn__span_is_allocated(span, a->peak_allocated_moment); }

/* The stacks that hold most of a category at the peak. */
static void rows_say(const tn__analysis *a, int category, tn_text *text) {
  enum { SHOWN = 3 };
  const tn__stack_row *rows = a->peak.rows.data;
  int shown = 0;
  for (size_t i = 0; i < a->peak.rows.count && shown < SHOWN; i++) {
    if (rows[i].category != category) continue;
    size_add(text, text->len ? "\n" : "", rows[i].bytes, "");
    tn__text_printf(text, " in %u block%s from ", rows[i].blocks, rows[i].blocks == 1 ? "" : "s");
    tn__say_place_op(text, a, rows[i].stack);
    shown++;
  }
}

/* ---- the loss ------------------------------------------------------------------------------------------------------------ */

/* The largest block that the loss allocated, live at the peak or in the last loss before it. */
static uint32_t loss_largest(const tn__analysis *a) {
  uint32_t largest = TN_NONE;
  for (size_t i = a->history.before_count; i < a->history.spans.count; i++) {
    const tn__span *span = tn__analysis_span(a, i);
    if (span->alloc >= a->peak_allocated_moment) break;
    if (span->phase != TN_PHASE_LOSS || !is_at_peak(a, span)) continue;
    if (largest == TN_NONE || span->requested_bytes > tn__analysis_span(a, largest)->requested_bytes) largest = (uint32_t)i;
  }
  return largest;
}

/* Logits, their softmax and their gradients have the same number of elements, in 2 or 4 bytes. */
static int is_like_logits(uint64_t bytes, uint64_t logits) {
  return (bytes > logits / 64 * 63 && bytes <= logits) || (bytes > logits / 128 * 63 && bytes <= logits / 2 + 512);
}

/* What the loss allocates, autograd from then on, and the output layer just before. */
static int is_of_loss(const tn__span *span, uint32_t loss_begin) {
  enum { ENTRIES_BEFORE = 24 };
  switch (span->phase) {
    case TN_PHASE_LOSS: return 1;
    case TN_PHASE_BACKWARD: return span->alloc >= loss_begin && span->category != TN_CATEGORY_GRADIENT;
    case TN_PHASE_FORWARD: return span->alloc < loss_begin && span->alloc + ENTRIES_BEFORE >= loss_begin;
    default: return 0;
  }
}

enum { CHUNKS = 8 };

typedef struct logits {
  uint64_t bytes; /* requested */
  uint32_t stack; /* group of the output layer; TN_NONE */
} logits;

/* In every step: what is as large as the logits and of a loss.  All but one piece of it would not be there at once. */
static uint64_t logits_saved(void *user, const tn__analysis *a, uint32_t number) {
  const tn__span *span = tn__analysis_span(a, number);
  const logits *l = user;
  int is_loss = span->phase == TN_PHASE_LOSS || (span->phase == TN_PHASE_BACKWARD && span->category == TN_CATEGORY_TEMPORARY) ||
                (span->phase == TN_PHASE_FORWARD && tn__stacks_group(&a->stacks, span->stack) == l->stack);
  return is_loss && is_like_logits(span->requested_bytes, l->bytes) ? span->bytes - span->bytes / CHUNKS : 0;
}

static int logits_find(tn__analysis *a) {
  uint32_t loss = loss_largest(a), blocks = 0;
  if (loss == TN_NONE) return TN_OK;
  const tn__span *largest = tn__analysis_span(a, loss);
  uint32_t begin = TN_VEC(&a->phases.runs, tn__run)[tn__phases_run(&a->phases, largest->alloc)].begin;
  uint64_t bytes = 0, peak = a->peak.level.allocated_bytes;
  logits like = {.bytes = largest->requested_bytes, .stack = TN_NONE};
  for (size_t i = a->history.before_count; i < a->history.spans.count; i++) {
    const tn__span *span = tn__analysis_span(a, i);
    if (!is_at_peak(a, span) || !is_of_loss(span, begin) || !is_like_logits(span->requested_bytes, like.bytes)) continue;
    if (span->phase == TN_PHASE_FORWARD) like.stack = tn__stacks_group(&a->stacks, span->stack);
    bytes += span->bytes;
    blocks++;
  }
  if (blocks < 2 || !tn__is_much(bytes, peak, 15)) return TN_OK;
  tn__note note = tn__note_open(TN__FINDING_LOGITS_PEAK, TN__SEVERITY_NOTE, bytes);
  note.finding.inferred = 1;
  note.finding.exactness = TN__EXACT_SAME_MATHS;
  note.finding.frees_bytes = tn__peak_saving(a, logits_saved, &like);
  note.finding.span = loss;
  note.finding.entry = largest->alloc;
  note.finding.stack = tn__stacks_group(&a->stacks, largest->stack);
  size_add(&note.what, "The peak is at the loss: ", bytes, " (");
  tn__say_share(&note.what, bytes, peak);
  tn__text_printf(&note.what, ") are %u copies of the logits and their gradients.", blocks);
  size_add(&note.evidence, "", largest->bytes, " from ");
  tn__say_place_op(&note.evidence, a, largest->stack);
  tn__text_printf(&note.evidence, "; the peak is in %s", tn_phase_name((int)tn__analysis_phase(a, a->peak_allocated_moment)));
  tn__text_printf(&note.fix, "Compute output layer and loss together in %d pieces (a fused or chunked linear cross entropy).", CHUNKS);
  return tn__note_close(&note, a);
}

/* ---- attention ----------------------------------------------------------------------------------------------------------- */

/* Scores are sequence by sequence, much larger than queries and keys: of what attention functions allocated, the large ones. */
static uint64_t attention_smallest(const tn__analysis *a) {
  const tn__stack_row *rows = a->peak.rows.data;
  uint64_t smallest = UINT64_MAX;
  for (size_t i = 0; i < a->peak.rows.count; i++) {
    uint64_t each = rows[i].bytes / rows[i].blocks;
    if (tn__stacks_cues(&a->stacks, rows[i].stack) & TN__CUE_ATTENTION && each >= ((uint64_t)1 << 16) && each < smallest) smallest = each;
  }
  return smallest;
}

static uint64_t attention_saved(void *user, const tn__analysis *a, uint32_t number) {
  const tn__span *span = tn__analysis_span(a, number);
  const uint64_t *smallest = user;
  if (!(tn__stacks_cues(&a->stacks, span->stack) & TN__CUE_ATTENTION) || span->category == TN_CATEGORY_PARAMETER) return 0;
  return span->bytes >= 2 * *smallest ? span->bytes : 0;
}

static int attention_find(tn__analysis *a) {
  const tn__stack_row *rows = a->peak.rows.data;
  uint64_t smallest = attention_smallest(a), bytes = 0;
  tn__note note = tn__note_open(TN__FINDING_ATTENTION, TN__SEVERITY_NOTE, 0);
  for (size_t i = 0; i < a->peak.rows.count; i++) {
    if (!(tn__stacks_cues(&a->stacks, rows[i].stack) & TN__CUE_ATTENTION) || rows[i].category == TN_CATEGORY_PARAMETER) continue;
    if (rows[i].bytes / rows[i].blocks < 2 * smallest) continue;
    if (!bytes) note.finding.stack = rows[i].stack;
    bytes += rows[i].bytes;
    size_add(&note.evidence, note.evidence.len ? "\n" : "", rows[i].bytes, "");
    tn__text_printf(&note.evidence, " in %u blocks from ", rows[i].blocks);
    tn__say_place_op(&note.evidence, a, rows[i].stack);
  }
  if (!tn__is_much(bytes, a->peak.level.allocated_bytes, 15)) {
    tn__note_drop(&note);
    return TN_OK;
  }
  note.finding.inferred = 1;
  note.finding.exactness = TN__EXACT_SAME_MATHS;
  note.finding.bytes = bytes;
  note.finding.frees_bytes = tn__peak_saving(a, attention_saved, &smallest);
  size_add(&note.what, "", bytes, " (");
  tn__say_share(&note.what, bytes, a->peak.level.allocated_bytes);
  tn__text_add(&note.what, " of the peak) look like attention scores, which grow with the square of the sequence.");
  tn__text_add(&note.fix, "torch.nn.functional.scaled_dot_product_attention() does not store them.");
  return tn__note_close(&note, a);
}

/* ---- categories ---------------------------------------------------------------------------------------------------------- */

/* A part of all blocks of a category, in quarters. */
typedef struct portion {
  int category;
  unsigned quarters;
} portion;

static uint64_t portion_saved(void *user, const tn__analysis *a, uint32_t number) {
  const portion *of = user;
  const tn__span *span = tn__analysis_span(a, number);
  return span->category == of->category ? span->bytes / 4 * of->quarters : 0;
}

static int category_note(tn__analysis *a, enum tn__finding_code code, portion of, unsigned percent, enum tn__exactness exactness, const char *fix) {
  uint64_t bytes = a->peak.by_category[of.category], peak = a->peak.level.allocated_bytes;
  if (!tn__is_much(bytes, peak, percent)) return TN_OK;
  tn__note note = tn__note_open(code, TN__SEVERITY_NOTE, bytes);
  note.finding.inferred = 1;
  note.finding.exactness = (uint8_t)exactness;
  note.finding.frees_bytes = tn__peak_saving(a, portion_saved, &of);
  size_add(&note.what, "", bytes, " (");
  tn__say_share(&note.what, bytes, peak);
  tn__text_printf(&note.what, " of the peak) are %s.", tn__finding_words(code));
  rows_say(a, of.category, &note.evidence);
  tn__text_add(&note.fix, fix);
  return tn__note_close(&note, a);
}

static int categories_find(tn__analysis *a) {
  TN_TRY(category_note(a, TN__FINDING_ACTIVATIONS, (portion){TN_CATEGORY_ACTIVATION, 2}, 30, TN__EXACT_SAME_MATHS,
                       "Half the micro-batch with twice the accumulation halves them (not with BatchNorm). Recomputing them "
                       "(torch.utils.checkpoint, or tonnage fit, which picks the cheapest) gives identical results."));
  TN_TRY(category_note(a, TN__FINDING_OPTIMIZER_STATE, (portion){TN_CATEGORY_OPTIMIZER, 3}, 25, TN__EXACT_NUMERICS,
                       "An 8-bit Adam needs a quarter of it. Sharding it over data-parallel ranks (ZeRO, FSDP2) divides it by their number, "
                       "with identical results."));
  return category_note(a, TN__FINDING_PARAMETERS, (portion){TN_CATEGORY_PARAMETER, 2}, 40, TN__EXACT_NUMERICS,
                       "bfloat16 parameters need half. Sharding (FSDP2) divides them by the number of ranks, with identical results.");
}

int tn__find_peak(tn__analysis *a) {
  TN_TRY(logits_find(a));
  TN_TRY(attention_find(a));
  return categories_find(a);
}

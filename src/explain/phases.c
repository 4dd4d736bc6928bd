/* phases.c -- phases of entries, categories of blocks.  See phases.h.
 *
 * Autograd runs backward in a thread of its own.  Where stacks have only Python's frames, what that thread allocates has none at
 * all, and that is how backward is recognised; C++ frames say it outright. */
#include "explain/phases.h"

#include "base/error.h"
#include "base/map.h"
#include "base/mem.h"
#include "explain/stacks.h"

/* ---- phases -------------------------------------------------------------------------------------------------------------- */

enum { PHASE_NONE = TN_PHASE_COUNT }; /* as the entry before it */

static enum tn_phase phase_of_cues(uint32_t cues) {
  if (cues & TN__CUE_ZERO_GRAD) return TN_PHASE_OTHER;
  if (cues & (TN__CUE_OPTIMIZER | TN__CUE_CLIP)) return TN_PHASE_OPTIMIZER;
  if (cues & (TN__CUE_BACKWARD | TN__CUE_RECOMPUTE)) return TN_PHASE_BACKWARD;
  if (cues & TN__CUE_LOSS) return TN_PHASE_LOSS;
  if (cues & TN__CUE_MODULE) return TN_PHASE_FORWARD;
  return TN_PHASE_OTHER;
}

static int has_frames(uint32_t cues) { return (cues & (TN__CUE_PYTHON | TN__CUE_CPP)) != 0; }

/* What of a history's stacks decides how they are read. */
typedef struct reading {
  int has_stacks;
  int bare_is_backward; /* an entry without frames is autograd's */
} reading;

static reading reading_of(const tn__chronicle *history, const tn__stacks *stacks) {
  reading r = {0};
  uint32_t backward = 0, python = 0;
  for (uint32_t i = 0; i < history->entry_count; i++) {
    if (history->entries[i].action != TN_ACTION_ALLOC) continue;
    uint32_t cues = tn__stacks_cues(stacks, history->entries[i].stack);
    r.has_stacks |= has_frames(cues);
    python += (cues & TN__CUE_PYTHON) != 0;
    backward += (cues & TN__CUE_BACKWARD) != 0;
  }
  r.bare_is_backward = python > 0 && backward > 0;
  return r;
}

/* When frees are not recorded with stacks of their own, PyTorch repeats the allocation's, which says nothing about now. */
static int says_when(const tn__chronicle *history, const tn__stacks *stacks, uint32_t at) {
  const tn_entry *entry = &history->entries[at];
  if (entry->action == TN_ACTION_ALLOC) return 1;
  if (entry->action != TN_ACTION_FREE_REQUESTED || history->span_of[at] == TN_NONE) return 0;
  const tn__span *span = &TN__SPANS(history)[history->span_of[at]];
  return tn__stacks_group(stacks, entry->stack) != tn__stacks_group(stacks, span->stack);
}

static int phase_of_entry(const tn__chronicle *history, const tn__stacks *stacks, const reading *r, uint32_t at) {
  if (!r->has_stacks || !says_when(history, stacks, at)) return PHASE_NONE;
  uint32_t cues = tn__stacks_cues(stacks, history->entries[at].stack);
  if (has_frames(cues)) return phase_of_cues(cues);
  return r->bare_is_backward ? TN_PHASE_BACKWARD : PHASE_NONE;
}

static int run_add(tn__phases *phases, uint32_t at, uint32_t phase) {
  size_t count = phases->runs.count;
  if (count && TN_VEC(&phases->runs, tn__run)[count - 1].phase == phase) return TN_OK;
  tn__run run = {at, phase};
  return tn__vec_push(&phases->runs, &run);
}

/* Until the first forward pass, all is set-up; where none ever comes, nothing is. */
static int runs_find(tn__phases *phases, const tn__chronicle *history, const tn__stacks *stacks, const reading *r) {
  uint32_t phase = r->has_stacks && history->before_count == 0 ? TN_PHASE_SETUP : TN_PHASE_OTHER;
  int begun = phase != TN_PHASE_SETUP;
  for (uint32_t i = 0; i < history->entry_count; i++) {
    int found = phase_of_entry(history, stacks, r, i);
    begun |= found != PHASE_NONE && found != TN_PHASE_OTHER;
    if (found != PHASE_NONE && begun) phase = (uint32_t)found;
    TN_TRY(run_add(phases, i, phase));
    phases->has_backward |= phase == TN_PHASE_BACKWARD;
    phases->has_optimizer |= phase == TN_PHASE_OPTIMIZER;
  }
  if (!begun && phases->runs.count) TN_VEC(&phases->runs, tn__run)[0].phase = TN_PHASE_OTHER;
  return TN_OK;
}

uint32_t tn__phases_run(const tn__phases *phases, uint32_t entry) {
  const tn__run *runs = phases->runs.data;
  size_t low = 0, high = phases->runs.count;
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    if (runs[middle].begin <= entry)
      low = middle;
    else
      high = middle;
  }
  return (uint32_t)low;
}

enum tn_phase tn__phases_at(const tn__phases *phases, uint32_t entry) {
  if (!phases->runs.count) return TN_PHASE_OTHER;
  return (enum tn_phase)TN_VEC(&phases->runs, tn__run)[tn__phases_run(phases, entry)].phase;
}

/* ---- categories ---------------------------------------------------------------------------------------------------------- */

/* Walks the entries once more; a block is judged when the program lets go of it, or at the end. */
typedef struct judge {
  tn__chronicle *history;
  const tn__stacks *stacks;
  const tn__phases *phases;
  uint32_t run;                     /* of the current entry */
  uint32_t last_run[TN_PHASE_COUNT]; /* run + 1; 0: none so far */
  uint32_t *born;                   /* by span: the run of its allocation + 1; 0: before the history */
  uint32_t *optimizer_from;         /* by run: the first of the optimizer at or after it; TN_NONE */
  tn_map gradient_bytes;            /* sizes that gradients or parameters had: a size -> 1 */
  int ends_in_oom;                  /* what runs at the end has not come to its own end */
} judge;

static int outlives(const judge *j, uint32_t span) { return j->run + 1 > j->born[span]; }
static int was_since(const judge *j, uint32_t span, enum tn_phase phase) { return j->last_run[phase] > j->born[span]; }

/* Kept through the step after its own: no activation, no input, nothing temporary. */
static int is_kept(const judge *j, uint32_t span) {
  uint32_t born = j->born[span], optimizer = born ? j->optimizer_from[born - 1] : TN_NONE;
  return optimizer != TN_NONE && j->last_run[TN_PHASE_BACKWARD] > optimizer + 1;
}

static enum tn_category of_forward(const judge *j, uint32_t span, int is_end) {
  if (is_kept(j, span)) return TN_CATEGORY_UNKNOWN;
  if (was_since(j, span, TN_PHASE_BACKWARD) || is_end) return TN_CATEGORY_ACTIVATION;
  return TN_CATEGORY_TEMPORARY;
}

static enum tn_category of_backward(const judge *j, uint32_t span, uint32_t cues, int is_end) {
  if (cues & TN__CUE_RECOMPUTE) return TN_CATEGORY_ACTIVATION;
  if (cues & TN__CUE_ACCUMULATE || outlives(j, span)) return TN_CATEGORY_GRADIENT;
  uint64_t bytes = TN__SPANS(j->history)[span].requested_bytes;
  if (is_end && (!j->ends_in_oom || tn__map_get(&j->gradient_bytes, bytes) != TN_NONE)) return TN_CATEGORY_GRADIENT;
  return TN_CATEGORY_TEMPORARY;
}

static enum tn_category of_optimizer(const judge *j, uint32_t span, uint32_t cues, int is_end) {
  if (cues & TN__CUE_STATE || outlives(j, span)) return TN_CATEGORY_OPTIMIZER;
  return is_end && !j->ends_in_oom ? TN_CATEGORY_OPTIMIZER : TN_CATEGORY_TEMPORARY;
}

/* The program's own lines, outside of models: what a forward pass follows is its input, what backward lets go of was saved for it. */
static enum tn_category of_program(const judge *j, uint32_t span, int is_end) {
  uint32_t next = j->born[span]; /* the run after the one it was born in */
  if (!outlives(j, span)) return is_end ? TN_CATEGORY_UNKNOWN : TN_CATEGORY_TEMPORARY;
  if (!is_end && TN_VEC(&j->phases->runs, tn__run)[j->run].phase == TN_PHASE_BACKWARD) return TN_CATEGORY_ACTIVATION;
  if (next >= j->phases->runs.count || is_end) return TN_CATEGORY_UNKNOWN;
  uint32_t phase = TN_VEC(&j->phases->runs, tn__run)[next].phase;
  int is_input = phase == TN_PHASE_FORWARD || phase == TN_PHASE_LOSS;
  return is_input && !is_kept(j, span) ? TN_CATEGORY_INPUT : TN_CATEGORY_UNKNOWN;
}

/* Held before the history began: the stack tells what it is if it is still held; else who lets go of it does. */
static enum tn_category of_before(const judge *j, const tn__span *span, uint32_t cues) {
  if (cues & (TN__CUE_OPTIMIZER | TN__CUE_STATE)) return TN_CATEGORY_OPTIMIZER;
  if (cues & TN__CUE_BACKWARD) return TN_CATEGORY_GRADIENT;
  if (has_frames(cues) || span->asked == TN_NONE) return TN_CATEGORY_UNKNOWN;
  uint32_t freeing = tn__stacks_cues(j->stacks, j->history->entries[span->asked].stack);
  if (freeing & TN__CUE_ZERO_GRAD) return TN_CATEGORY_GRADIENT;
  switch (tn__phases_at(j->phases, span->asked)) {
    case TN_PHASE_BACKWARD: return TN_CATEGORY_ACTIVATION;
    case TN_PHASE_OPTIMIZER: return TN_CATEGORY_OPTIMIZER; /* state that each step makes anew */
    default: return TN_CATEGORY_UNKNOWN;
  }
}

/* cuBLAS takes 8.125 MiB for each handle and stream, from Hopper on 32 MiB, and keeps it. */
enum { WORKSPACE_BYTES = 8519680, WORKSPACE_HOPPER_BYTES = 32 << 20 };

static int is_workspace(const tn__span *span, uint32_t cues) {
  if (cues & TN__CUE_WORKSPACE) return 1;
  if (span->asked != TN_NONE || cues & (TN__CUE_PARAMETER | TN__CUE_OPTIMIZER)) return 0;
  return span->requested_bytes == WORKSPACE_BYTES;
}

static enum tn_category category_of(const judge *j, uint32_t number, int is_end) {
  const tn__span *span = &TN__SPANS(j->history)[number];
  uint32_t cues = tn__stacks_cues(j->stacks, span->stack);
  if (is_workspace(span, cues)) return TN_CATEGORY_WORKSPACE;
  if (cues & TN__CUE_PARAMETER) return TN_CATEGORY_PARAMETER;
  if (cues & TN__CUE_COMMUNICATION) return TN_CATEGORY_COMMUNICATION;
  if (cues & TN__CUE_INPUT) return TN_CATEGORY_INPUT;
  if (cues & TN__CUE_INIT && !(cues & TN__CUE_MODULE)) return is_end ? TN_CATEGORY_PARAMETER : TN_CATEGORY_TEMPORARY;
  if (span->alloc == TN_NONE) return of_before(j, span, cues);
  if (!j->phases->has_stacks) return TN_CATEGORY_UNKNOWN;
  switch (span->phase) {
    case TN_PHASE_FORWARD:
    case TN_PHASE_LOSS: return of_forward(j, number, is_end);
    case TN_PHASE_BACKWARD: return of_backward(j, number, cues, is_end);
    case TN_PHASE_OPTIMIZER: return of_optimizer(j, number, cues, is_end);
    default: return of_program(j, number, is_end);
  }
}

static int judge_span(judge *j, uint32_t number, int is_end) {
  tn__span *span = &TN__SPANS(j->history)[number];
  if (!(span->flags & TN__SPAN_LABELLED)) span->category = (uint8_t)category_of(j, number, is_end);
  if (span->category != TN_CATEGORY_GRADIENT && span->category != TN_CATEGORY_PARAMETER) return TN_OK;
  return tn__map_set(&j->gradient_bytes, span->requested_bytes, 1);
}

static int judge_entry(judge *j, uint32_t at) {
  const tn__run *runs = j->phases->runs.data;
  if (j->run + 1 < j->phases->runs.count && runs[j->run + 1].begin == at) j->run++;
  j->last_run[runs[j->run].phase] = j->run + 1;
  uint32_t number = j->history->span_of[at];
  if (number == TN_NONE) return TN_OK;
  tn__span *span = &TN__SPANS(j->history)[number];
  if (span->alloc == at) {
    span->phase = (uint8_t)runs[j->run].phase;
    j->born[number] = j->run + 1;
    /* What a parameter is does not depend on how long it lives, and its size is needed before its end. */
    if (tn__stacks_cues(j->stacks, span->stack) & TN__CUE_PARAMETER) TN_TRY(tn__map_set(&j->gradient_bytes, span->requested_bytes, 1));
  }
  return span->asked == at ? judge_span(j, number, 0) : TN_OK;
}

/* One of 32 MiB for each stream and thread (Python's, autograd's); several are activations of that size. */
static void workspaces_hopper(judge *j) {
  enum { CLASSES = 2 };
  uint32_t count[CLASSES] = {0}, which[CLASSES] = {0};
  for (size_t i = 0; i < j->history->spans.count; i++) {
    const tn__span *span = &TN__SPANS(j->history)[i];
    uint32_t cues = tn__stacks_cues(j->stacks, span->stack);
    if (span->requested_bytes != WORKSPACE_HOPPER_BYTES || span->asked != TN_NONE || span->flags & TN__SPAN_LABELLED) continue;
    if (cues & (TN__CUE_PARAMETER | TN__CUE_OPTIMIZER | TN__CUE_INIT | TN__CUE_INPUT)) continue;
    if (span->phase != TN_PHASE_FORWARD && span->phase != TN_PHASE_LOSS && span->phase != TN_PHASE_BACKWARD && !(cues & TN__CUE_MODULE))
      continue;
    int class = span->phase == TN_PHASE_BACKWARD;
    count[class]++;
    which[class] = (uint32_t)i;
  }
  for (int class = 0; class < CLASSES; class++)
    if (count[class] == 1) TN__SPANS(j->history)[which[class]].category = TN_CATEGORY_WORKSPACE;
}

/* What was held all the time and has no stack, because recording began later: as many blocks as there are gradients of that size are
 * parameters, and up to twice as many more are what Adam keeps for them. */
static int is_deduced(const judge *j, const tn__span *span) {
  return span->alloc == TN_NONE && span->asked == TN_NONE && span->category == TN_CATEGORY_UNKNOWN &&
         !has_frames(tn__stacks_cues(j->stacks, span->stack));
}

typedef struct tally { /* of one size */
  uint32_t live, most;   /* gradients */
  uint32_t parameters, states;
} tally;

static tally *tally_of(const tn_map *sizes, tn_vec *tallies, uint64_t bytes) {
  uint32_t at = tn__map_get(sizes, bytes);
  return at == TN_NONE ? NULL : tn__vec_at(tallies, at);
}

static int tallies_open(const judge *j, tn_map *sizes, tn_vec *tallies) {
  for (size_t i = 0; i < j->history->before_count; i++) {
    const tn__span *span = &TN__SPANS(j->history)[i];
    if (!is_deduced(j, span) || tally_of(sizes, tallies, span->requested_bytes)) continue;
    TN_TRY(tn__map_set(sizes, span->requested_bytes, (uint32_t)tallies->count));
    if (!tn__vec_add(tallies)) return TN_ENOMEM;
  }
  return TN_OK;
}

static void gradients_count(const judge *j, const tn_map *sizes, tn_vec *tallies) {
  for (uint32_t at = 0; at < j->history->entry_count; at++) {
    uint32_t number = j->history->span_of[at];
    if (number == TN_NONE) continue;
    const tn__span *span = &TN__SPANS(j->history)[number];
    tally *of = span->category == TN_CATEGORY_GRADIENT ? tally_of(sizes, tallies, span->requested_bytes) : NULL;
    if (!of) continue;
    if (span->alloc == at && ++of->live > of->most) of->most = of->live;
    if (span->asked == at && of->live) of->live--;
  }
}

static void states_deduce(judge *j, const tn_map *sizes, tn_vec *tallies) {
  for (size_t i = 0; i < j->history->before_count; i++) {
    tn__span *span = &TN__SPANS(j->history)[i];
    tally *of = is_deduced(j, span) ? tally_of(sizes, tallies, span->requested_bytes) : NULL;
    if (!of) continue;
    if (of->parameters < of->most) {
      of->parameters++;
      span->category = TN_CATEGORY_PARAMETER;
    } else if (of->states < 2 * of->most) {
      of->states++;
      span->category = TN_CATEGORY_OPTIMIZER;
    }
  }
}

static int deduce(judge *j) {
  tn_map sizes;
  tn_vec tallies;
  tn__map_init(&sizes);
  tn__vec_init(&tallies, sizeof(tally));
  int rc = tallies_open(j, &sizes, &tallies);
  if (!rc && tallies.count) {
    gradients_count(j, &sizes, &tallies);
    states_deduce(j, &sizes, &tallies);
  }
  tn__vec_deinit(&tallies);
  tn__map_deinit(&sizes);
  return rc;
}

static void optimizers_find(judge *j) {
  const tn__run *runs = j->phases->runs.data;
  uint32_t next = TN_NONE;
  for (size_t i = j->phases->runs.count; i-- > 0;) {
    if (runs[i].phase == TN_PHASE_OPTIMIZER) next = (uint32_t)i;
    j->optimizer_from[i] = next;
  }
}

static int judge_all(judge *j) {
  optimizers_find(j);
  for (uint32_t i = 0; i < j->history->entry_count; i++) TN_TRY(judge_entry(j, i));
  for (int pass = 0; pass < 2; pass++) { /* the sizes of parameters and gradients first */
    for (size_t i = 0; i < j->history->spans.count; i++) {
      const tn__span *span = &TN__SPANS(j->history)[i];
      int is_backward = span->phase == TN_PHASE_BACKWARD;
      if (span->asked == TN_NONE && is_backward == (pass == 1)) TN_TRY(judge_span(j, (uint32_t)i, 1));
    }
  }
  workspaces_hopper(j);
  return deduce(j);
}

/* The entries after the last OOM are those of the program falling down. */
static int ends_in_oom(const tn__chronicle *history) {
  enum { LAST = 64 };
  uint32_t count = history->entry_count;
  for (uint32_t i = 0; i < LAST && i < count; i++)
    if (history->entries[count - 1 - i].action == TN_ACTION_OOM) return 1;
  return 0;
}

static int categories_find(const tn__phases *phases, tn__chronicle *history, const tn__stacks *stacks) {
  judge j = {.history = history, .stacks = stacks, .phases = phases, .ends_in_oom = ends_in_oom(history)};
  tn__map_init(&j.gradient_bytes);
  j.born = tn__mem_zalloc(history->spans.count + 1, sizeof *j.born);
  j.optimizer_from = tn__mem_zalloc(phases->runs.count + 1, sizeof *j.optimizer_from);
  int rc = j.born && j.optimizer_from ? judge_all(&j) : TN_ENOMEM;
  tn__mem_free(j.optimizer_from);
  tn__mem_free(j.born);
  tn__map_deinit(&j.gradient_bytes);
  return rc;
}

int tn__phases_init(tn__phases *phases, tn__chronicle *history, const tn__stacks *stacks) {
  *phases = (tn__phases){0};
  tn__vec_init(&phases->runs, sizeof(tn__run));
  reading r = reading_of(history, stacks);
  phases->has_stacks = (uint32_t)r.has_stacks;
  phases->bare_is_backward = (uint32_t)r.bare_is_backward;
  TN_TRY(runs_find(phases, history, stacks, &r));
  return categories_find(phases, history, stacks);
}

void tn__phases_deinit(tn__phases *phases) { tn__vec_deinit(&phases->runs); }

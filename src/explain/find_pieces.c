/* find_pieces.c -- fragmentation, and which allocator setting would have done with less, by replaying the history under it.
 * See findings.h. */
#include <string.h>

#include "base/error.h"
#include "explain/findings.h"

enum { PINS_SHOWN = 3 };

static void size_add(tn_text *text, const char *before, uint64_t bytes, const char *after) {
  tn__text_add(text, before);
  tn__text_size(text, bytes);
  tn__text_add(text, after);
}

static const tn__finding *oom_of(const tn__analysis *a) {
  const tn__finding *findings = a->findings.data;
  for (size_t i = 0; i < a->findings.count; i++)
    if (findings[i].code == TN__FINDING_OOM) return &findings[i];
  return NULL;
}

/* ---- other settings ------------------------------------------------------------------------------------------------------ */

typedef struct trial {
  char conf[160];          /* as PYTORCH_CUDA_ALLOC_CONF; "" = none was tried */
  uint64_t reserved_bytes; /* at most */
  uint32_t is_complete;
  uint32_t serves;         /* of the recorded OOMs, how many are none under it */
} trial;

static int trial_run(const tn__analysis *a, const tn_conf *conf, trial *out) {
  tn_replay_options options = {.conf = conf, .device = a->history.device->index};
  tn_replay_result result;
  char *text = NULL;
  int rc = tn_replay(a->history.trace, &options, &result, NULL);
  if (rc == TN_ENOMEM) return rc;
  if (rc || result.stats.num_ooms > result.ooms_recorded - result.ooms_served) return TN_OK; /* it tells nothing, or is no help */
  TN_TRY(tn_conf_format(conf, &text));
  if (strlen(text) < sizeof out->conf) {
    strcpy(out->conf, text);
    out->reserved_bytes = result.stats.reserved_bytes.peak;
    out->is_complete = result.is_complete;
    out->serves = result.ooms_served;
  }
  tn_text_free(text);
  return TN_OK;
}

static int is_better(const trial *one, const trial *than) {
  if (!than->conf[0] || !one->conf[0]) return one->conf[0] != 0;
  if (one->serves != than->serves) return one->serves > than->serves;
  return one->reserved_bytes < than->reserved_bytes;
}

/* A replay takes as long as all the rest.  Of a long history it is left to tune, unless memory ran out. */
enum { TRIAL_ENTRIES_MAX = 400000 };

static int may_try(const tn__analysis *a) {
  if (a->history.device->flags & TN_DEVICE_HOST || !a->history.entry_count) return 0;
  return a->history.entry_count <= TRIAL_ENTRIES_MAX || oom_of(a);
}

/* expandable_segments costs nothing; rounding to fewer sizes only where that gives little. */
static int trials_run(const tn__analysis *a, trial *out) {
  tn_conf conf;
  trial rounded = {{0}, 0, 0, 0};
  if (!may_try(a)) return TN_OK;
  if (tn_conf_recorded(a->history.trace, &conf, NULL) || conf.malloc_async) return TN_OK;
  uint64_t recorded = a->account_peak.level.reserved_bytes;
  int is_expandable = conf.expandable_segments;
  uint64_t max_split_bytes = conf.max_split_bytes;
  conf.expandable_segments = 1;
  conf.max_split_bytes = 0; /* expandable segments have no use for it */
  if (!is_expandable) TN_TRY(trial_run(a, &conf, out));
  if (out->serves || (out->conf[0] && out->reserved_bytes < recorded / 50 * 49)) return TN_OK;
  conf.expandable_segments = (uint8_t)is_expandable;
  conf.max_split_bytes = max_split_bytes;
  for (int i = 0; i < TN_CONF_INTERVALS; i++) conf.roundup_divisions[i] = 8;
  TN_TRY(trial_run(a, &conf, &rounded));
  if (is_better(&rounded, out)) *out = rounded;
  return TN_OK;
}

/* Worth a word: more than 1 %, or it would not have run out of memory. */
static int trial_helps(const tn__analysis *a, const trial *t) {
  uint64_t recorded = a->account_peak.level.reserved_bytes;
  if (!t->conf[0]) return 0;
  return t->serves || (!oom_of(a) && t->reserved_bytes < recorded / 100 * 99);
}

static void trial_say(const tn__analysis *a, const trial *t, tn__note *note) {
  uint64_t recorded = a->account_peak.level.reserved_bytes;
  if (!t->conf[0]) return;
  tn__text_printf(&note->evidence, "\nreplayed with %s: ", t->conf);
  size_add(&note->evidence, "", t->reserved_bytes, " reserved at most instead of ");
  size_add(&note->evidence, "", recorded, t->serves ? ", and memory does not run out" : "");
  if (!t->is_complete) tn__text_add(&note->evidence, ", as far as the history goes back");
}

static void advise(const tn__analysis *a, const trial *t, tn__note *note) {
  uint64_t recorded = a->account_peak.level.reserved_bytes;
  if (trial_helps(a, t)) {
    tn__text_printf(&note->fix, "Run with PYTORCH_CUDA_ALLOC_CONF=%s%s.", t->conf, t->serves ? ": replayed with it, memory does not run out" : "");
    if (t->reserved_bytes < recorded) note->finding.frees_bytes = recorded - t->reserved_bytes;
  } else if (t->conf[0]) {
    tn__text_add(&note->fix, "The setting that was replayed does not help; tonnage tune tries others. Fewer different sizes do: pad lengths to a few "
                             "values, run the largest input first, allocate what lives long before the rest.");
  } else if (a->history.entry_count) {
    tn__text_add(&note->fix, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True fills holes with pages from elsewhere; tonnage tune replays this "
                             "history under it and other settings.");
  } else {
    tn__text_add(&note->fix, "Run with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which fills holes with pages from elsewhere. There is no history "
                             "to replay, so what it gives is not known.");
  }
}

/* ---- the finding --------------------------------------------------------------------------------------------------------- */

static void pins_say(const tn__analysis *a, tn_text *text) {
  const tn__pin *pins = a->pins.data;
  for (size_t i = 0; i < a->pins.count && i < PINS_SHOWN; i++) {
    size_add(text, "\nat the snapshot ", pins[i].free_bytes, " beside ");
    tn__text_printf(text, "%u live block%s of ", pins[i].blocks, pins[i].blocks == 1 ? "" : "s");
    size_add(text, "", pins[i].block_bytes, " from ");
    tn__say_place_op(text, a, pins[i].stack);
  }
}

static void holes_say(const tn__accounting *at, const char *when, tn_text *text) {
  tn__text_printf(text, "%s%u segments", when, at->segments);
  if (at->part[TN__PART_HOLES]) {
    size_add(text, "; ", at->part[TN__PART_HOLES], " free in pieces between live blocks");
    size_add(text, ", the largest of ", at->largest_hole_bytes, "");
  }
  if (at->part[TN__PART_IDLE]) size_add(text, "; ", at->part[TN__PART_IDLE], " in segments that are wholly free");
  if (at->part[TN__PART_OTHER_STREAMS]) size_add(text, "; ", at->part[TN__PART_OTHER_STREAMS], " free for other streams");
  if (at->part[TN__PART_PRIVATE_POOLS]) size_add(text, "; ", at->part[TN__PART_PRIVATE_POOLS], " free in private pools");
}

/* Memory that ran out, or a file without a history: the end is what counts. */
static void end_say(const tn__analysis *a, uint64_t bytes, tn__note *note) {
  size_add(&note->what, "", bytes, " (");
  tn__say_share(&note->what, bytes, a->account_end.level.reserved_bytes);
  tn__text_add(&note->what, " of reserved) are free in pieces between live blocks");
  size_add(&note->what, ", the largest of ", a->account_end.largest_hole_bytes, ".");
  tn__text_printf(&note->evidence, "%u segments", a->account_end.segments);
}

static void peak_say(const tn__analysis *a, uint64_t bytes, tn__note *note) {
  size_add(&note->what, "", a->account_peak.level.reserved_bytes, " were reserved at most, ");
  size_add(&note->what, "", bytes, " (");
  tn__say_share(&note->what, bytes, a->account_peak.level.reserved_bytes);
  tn__text_add(&note->what, ") more than was ever allocated at once.");
  holes_say(&a->account_peak, a->history.first.reserved_bytes < a->account_peak.level.reserved_bytes ? "when that was reached: " : "when most of it was in use: ",
            &note->evidence);
}

int tn__find_pieces(tn__analysis *a) {
  int by_end = oom_of(a) || !a->history.entry_count;
  uint64_t bytes = by_end ? a->account_end.part[TN__PART_HOLES] : a->waste_bytes;
  trial best = {{0}, 0, 0, 0};
  if (!tn__is_much(bytes, a->account_peak.level.reserved_bytes, 5)) return TN_OK;
  TN_TRY(trials_run(a, &best));
  tn__note note = tn__note_open(TN__FINDING_FRAGMENTATION, TN__SEVERITY_WASTE, bytes);
  note.finding.exactness = TN__EXACT_IDENTICAL;
  if (a->pins.count) note.finding.stack = TN_VEC(&a->pins, tn__pin)[0].stack;
  (by_end ? end_say : peak_say)(a, bytes, &note);
  trial_say(a, &best, &note);
  pins_say(a, &note.evidence);
  advise(a, &best, &note);
  return tn__note_close(&note, a);
}

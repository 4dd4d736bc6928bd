/* findings.h -- what is wrong, or large, on one device: computed, with evidence and what to do.
 *
 * Each find_*.c has checks of one kind; findings.c runs them, sorts what they found and writes the verdict.
 * Callers: analysis.c.  Not locked: one thread at a time. */
#ifndef TN_EXPLAIN_FINDINGS_H
#define TN_EXPLAIN_FINDINGS_H

#include "explain/analysis.h"
#include "explain/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

int tn__findings_gather(tn__analysis *analysis);

/* ---- a finding in the making --------------------------------------------------------------------------------------------- */

typedef struct tn__note {
  tn__finding finding;
  tn_text what, evidence, fix;
} tn__note;

tn__note tn__note_open(enum tn__finding_code code, enum tn__severity severity, uint64_t bytes);
/* Adds it to the analysis and frees it, in any case. */
int tn__note_close(tn__note *note, tn__analysis *analysis);
void tn__note_drop(tn__note *note);
/* "12.5 GiB" into a text, "3.1 %" of a whole, the place of a stack or "code without a recorded stack". */
void tn__say_share(tn_text *text, uint64_t part, uint64_t whole);
void tn__say_place(tn_text *text, const tn__analysis *analysis, uint32_t stack);
/* "train.py:16 forward (linear)": the place with the op that it allocates through. */
void tn__say_place_op(tn_text *text, const tn__analysis *analysis, uint32_t stack);
int tn__unchecked_add(tn__analysis *analysis, const char *what, const char *why);

/* ---- what every check may ask -------------------------------------------------------------------------------------------- */

static inline const tn__span *tn__analysis_span(const tn__analysis *a, size_t at) { return &TN__SPANS(&a->history)[at]; }
/* bytes is worth a word: at least this share of the whole in percent, and 8 MiB unless all is small. */
int tn__is_much(uint64_t bytes, uint64_t whole, unsigned percent);
/* The phase at a moment: of the entry before it. */
enum tn_phase tn__analysis_phase(const tn__analysis *analysis, uint32_t moment);

/* Bytes that a span would not hold, had the fix been there; 0 for most. */
typedef uint64_t tn__saved(void *user, const tn__analysis *analysis, uint32_t span);
/* By how much the allocated peak would be lower: another moment may then be the highest. */
uint64_t tn__peak_saving(const tn__analysis *analysis, tn__saved *saved, void *user);

/* ---- the checks, by file ------------------------------------------------------------------------------------------------- */

int tn__find_limits(tn__analysis *analysis);  /* OOM, CAP, RETRIES, NEAR_OOM */
int tn__find_pieces(tn__analysis *analysis);  /* FRAGMENTATION; after tn__find_limits() */
int tn__find_waste(tn__analysis *analysis);   /* STREAM_CACHE, STREAM_DELAY, GRAPH_POOL, CACHE_IDLE, ROUNDING */
int tn__find_growth(tn__analysis *analysis);  /* LEAK, GRAPH_KEPT, EVAL_GRAPH, VARIABLE */
int tn__find_held(tn__analysis *analysis);    /* HELD_OVER, GRADS_KEPT, OPT_TEMP, GRADS_PEAK, COPIES */
int tn__find_peak(tn__analysis *analysis);    /* LOGITS_PEAK, ATTENTION, ACTIVATIONS, OPTIMIZER_STATE, PARAMETERS */

#ifdef __cplusplus
}
#endif
#endif

/* oom.h -- what the report of an out-of-memory message says, for its two writers.
 *
 * Callers: oom.c, oom_text.c, oom_words.c, oom_json.c.  Pure. */
#ifndef TN_REPORT_OOM_H
#define TN_REPORT_OOM_H

#include "base/text.h"
#include "explain/oom_verdict.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TN__OOM_WIDTH = 100 };

/* The messages of a log, and the verdict on the chosen one. */
typedef struct tn__oom_report {
  const tn_oom *messages;
  size_t count, chosen;
  tn__oom_verdict verdict;
} tn__oom_report;

void tn__oom_text(const tn__oom_report *report, tn_text *out);
void tn__oom_json(const tn__oom_report *report, tn_text *out);

/* ---- words; each adds without a line break ------------------------------------------------------------------------------- */

/* "1.34 GiB"; where rounding matters, "24.00 MiB (+-10.24 MiB)".  Below 0 counts as 0. */
void tn__oom_words_span(tn_text *out, tn__oom_span size);
void tn__oom_words_device(tn_text *out, const tn_oom *oom); /* "GPU 0", "the device" */
/* The verdict: what was asked; who holds the memory; what to do. */
void tn__oom_words_asked(tn_text *out, const tn__oom_verdict *verdict);
void tn__oom_words_held(tn_text *out, const tn__oom_verdict *verdict);
void tn__oom_words_do(tn_text *out, const tn__oom_verdict *verdict);
const char *tn__oom_words_part(const tn_oom *oom, int part);      /* "live tensors" */
const char *tn__oom_words_part_note(const tn_oom *oom, int part); /* "allocated, rounded up" */
const char *tn__oom_words_exactness(int id);                      /* "identical" */
/* An action in a few words, what to write for it ("" when there is nothing), and why it would not have helped. */
void tn__oom_words_action(tn_text *out, const tn__oom_verdict *verdict, const tn__oom_action *action);
void tn__oom_words_command(tn_text *out, const tn__oom_verdict *verdict, const tn__oom_action *action);
void tn__oom_words_why_not(tn_text *out, const tn__oom_verdict *verdict, const tn__oom_action *action);
/* What the reader should know of how the numbers came about; remark by remark, 0 when there are no more. */
int tn__oom_words_remark(tn_text *out, const tn__oom_report *report, int number);

void tn__oom_words_fit(tn_text *out, const tn__oom_verdict *verdict); /* "tonnage fit RECIPE --budget 22.4GiB" */
const char *tn__oom_words_module(const tn_oom *oom);                  /* "cuda", of torch.cuda */

/* Device-used that this process could have had; 0: the message does not tell. */
uint64_t tn__oom_budget(const tn__oom_verdict *verdict);

#ifdef __cplusplus
}
#endif
#endif

/* explain.h -- the report on a snapshot: as text, as JSON.
 *
 * Callers: explain.c chooses, explain_text.c and explain_json.c write.  One thread at a time per report. */
#ifndef TN_REPORT_EXPLAIN_H
#define TN_REPORT_EXPLAIN_H

#include "base/text.h"
#include "explain/explain.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each adds to out; a lost addition is remembered there. */
void tn__explain_text(const tn_explain *explain, const char *title, tn_text *out);
void tn__explain_json(const tn_explain *explain, const char *title, tn_text *out);

/* For both writers. */
const char *tn__explain_string(const tn__analysis *analysis, uint32_t id); /* of the analysis' own texts */
/* "train.py:16 forward (linear)"; what stands for it where there is no stack. */
void tn__explain_place(const tn__analysis *analysis, uint32_t stack, tn_text *out);
const char *tn__explain_steps_from(const tn__analysis *analysis); /* "annotations", "phases", "repetition", "" */

#ifdef __cplusplus
}
#endif
#endif

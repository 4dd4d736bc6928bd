/* diff.h -- the report on what changed between two traces.
 *
 * Callers: diff.c fills it, diff_text.c and diff_json.c write it.  One thread at a time per report. */
#ifndef TN_REPORT_DIFF_H
#define TN_REPORT_DIFF_H

#include "base/text.h"
#include "explain/diff.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__diff_report {
  tn_diff_side side[TN__DIFF_SIDES];
  uint32_t width;
  uint32_t device[TN__DIFF_SIDES];     /* TN_NONE: a capture */
  uint32_t is_capture[TN__DIFF_SIDES];
  uint32_t has_rows;                   /* 0: the sides are of different kinds */
  tn__diff diff;
} tn__diff_report;

/* Adds the peak of a captured trace: by module and op. */
int tn__diff_add_capture(tn__diff *diff, int side, const tn_trace *trace, const tn_profile *profile);
void tn__diff_text(const tn__diff_report *report, tn_text *out);
void tn__diff_json(const tn__diff_report *report, tn_text *out);

#ifdef __cplusplus
}
#endif
#endif

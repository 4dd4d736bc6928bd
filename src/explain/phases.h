/* phases.h -- what the program was doing at each entry, and from that, what each block is for.
 *
 * Both are inferred: from the frames of stacks (stacks.h), and from who outlives which phase.  A file that labels its blocks is
 * believed.  Callers: analysis.c.  Not locked: one thread at a time. */
#ifndef TN_EXPLAIN_PHASES_H
#define TN_EXPLAIN_PHASES_H

#include "explain/analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills phases, and phase and category of every span.  Deinit in any case. */
int tn__phases_init(tn__phases *phases, tn__chronicle *history, const tn__stacks *stacks);
void tn__phases_deinit(tn__phases *phases);
/* The run that an entry belongs to; there must be one. */
uint32_t tn__phases_run(const tn__phases *phases, uint32_t entry);
enum tn_phase tn__phases_at(const tn__phases *phases, uint32_t entry); /* OTHER when there are no entries */

#ifdef __cplusplus
}
#endif
#endif

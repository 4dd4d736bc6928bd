/* steps.h -- where the training steps of a history begin and end.
 *
 * From annotations (ProfilerStep#N, Optimizer.step#...), else from runs of the optimizer, else of backward, else from an allocation
 * that comes again after a regular number of others.  Callers: analysis.c.  Not locked: one thread at a time. */
#ifndef TN_EXPLAIN_STEPS_H
#define TN_EXPLAIN_STEPS_H

#include "explain/phases.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Also fills the step of every span.  Deinit in any case. */
int tn__steps_init(tn__steps *steps, tn__chronicle *history, const tn__phases *phases, const tn__stacks *stacks);
void tn__steps_deinit(tn__steps *steps);

#ifdef __cplusplus
}
#endif
#endif

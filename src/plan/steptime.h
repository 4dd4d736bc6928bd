/* steptime.h -- how long the parts of a step take: its passes, as they are or under a schedule, and the optimizer.
 *
 * Callers: plan.c.  Pure. */
#ifndef TN_PLAN_STEPTIME_H
#define TN_PLAN_STEPTIME_H

#include "plan/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__steptime {
  tn_span first_pass, last_pass; /* the first and the last pass; the same when there is one */
  tn_span optimizer;        /* and whatever else is in no pass */
} tn__steptime;

/* The step as the user wrote it; with a schedule that has been built, with its hooks and rebuilds (no hooks where it rebuilds nothing). */
tn__steptime tn__steptime_of(const tn__graph *graph, const tn__schedule *schedule);

#ifdef __cplusplus
}
#endif
#endif

/* choose.h -- which items to drop so that a step stays under a limit, for the least extra time.
 *
 * Callers: plan.  Pure and deterministic.
 *
 * With a price in seconds on each byte at the moments when memory is short, the best set of items is the answer of one
 * minimum cut: an item dropped earns the price of its bytes over the moments between its last use forward and its first use
 * backward; it costs the tasks that make it again, each paid once.  (That is project selection, a maximum-weight closure.)
 * The price is found by bisection against the exact simulation; when memory turns out short at another moment, that moment
 * gets a price too.  A last stage keeps again, one by one, what the limit leaves room for.  The cut's optimum at any price is
 * also a lower bound on the time of every plan within the limit (Lagrangian relaxation), so the gap is known. */
#ifndef TN_PLAN_CHOOSE_H
#define TN_PLAN_CHOOSE_H

#include "plan/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__choice {
  int fits;                /* the schedule stays within the limit */
  uint64_t peak_bytes;     /* of the schedule chosen; when nothing fits, of the smallest found */
  uint64_t smallest_bytes; /* smallest peak seen on the way */
  uint32_t peak_event;     /* where the chosen schedule peaks */
  double seconds, lower_bound_s;
  uint32_t barriers;       /* how blocks were kept from being made again all at once, for a choice near this one */
} tn__choice;

/* Fills schedule->dropped and builds it.  near: a choice for about the same limit or margins, whose barriers alone are tried again (a
 * quarter of the time), without a search for the smallest peak; NULL: everything is tried.  TN_ENOMEM. */
int tn__choose(tn__schedule *schedule, tn__simulate *simulate, uint64_t limit_bytes, const tn__choice *near, tn__choice *out);

#ifdef __cplusplus
}
#endif
#endif

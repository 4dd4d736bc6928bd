/* profile.h -- a device's figures: sizes that a trace cannot show, and the rates that turn ops into seconds.
 *
 * Callers: estimate, the planner, the report.  Pure functions; any thread. */
#ifndef TN_PLAN_PROFILE_H
#define TN_PLAN_PROFILE_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The machine's own memory, where PyTorch's caching allocator does not run: allocated = requested = reserved. */
int tn__profile_is_host(const tn_profile *profile);

#ifdef __cplusplus
}
#endif
#endif

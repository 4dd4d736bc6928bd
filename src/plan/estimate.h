/* estimate.h -- what a trace needs on a device, by replaying its block lives through the caching model.
 *
 * Callers: the planner (through tn_estimate()) and the report, which also wants to know what is live at the peak.
 * Threads: reads the trace and the profile only. */
#ifndef TN_PLAN_ESTIMATE_H
#define TN_PLAN_ESTIMATE_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__estimate {
  tn_peak peak;
  uint64_t retries; /* times the allocator had to give back its cache and ask again: only under a limit */
} tn__estimate;

/* tn_estimate() with its by-products. */
int tn__estimate_run(const tn_trace *trace, const tn_profile *profile, const tn_estimate_options *options, tn__estimate *out);
/* The allocated bytes of each block right after the event, 0 for those that are not live, into block_bytes, which has room for
 * every block of the trace.  With peak.event of tn_estimate() they add up to peak.allocated_bytes. */
int tn__estimate_live(const tn_trace *trace, const tn_profile *profile, const tn_estimate_options *options, uint32_t event,
                      uint64_t *block_bytes);
/* Number of steps that the trace has marks for. */
uint32_t tn__estimate_step_count(const tn_trace *trace);

#ifdef __cplusplus
}
#endif
#endif

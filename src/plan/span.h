/* span.h -- how long a row of ops takes when the host runs ahead of the device.
 *
 * The host starts ops one after the other; the device runs each when it has been started and the one before is over.  So a row
 * takes longer than its device work wherever the host is late, and a lead that the host has won is not lost at the next op.  Two
 * rows put together make one with the same three numbers, (max, +) algebra.  Callers: src/plan.  Pure. */
#ifndef TN_PLAN_SPAN_H
#define TN_PLAN_SPAN_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline double tn__span_larger(double a, double b) { return a > b ? a : b; }

/* One op more. */
static inline void tn__span_add(tn_span *span, double host_s, double device_s) {
  span->host_s += host_s;
  span->device_s += device_s;
  span->length_s = tn__span_larger(span->length_s, span->host_s) + device_s;
}

/* first, then second. */
static inline tn_span tn__span_then(tn_span first, tn_span second) {
  tn_span both = {first.host_s + second.host_s, first.device_s + second.device_s,
                  tn__span_larger(first.length_s + second.device_s, first.host_s + second.length_s)};
  return both;
}

/* The same row count times; count 0 is nothing. */
static inline tn_span tn__span_repeat(tn_span span, uint32_t count) {
  tn_span all = {0, 0, 0};
  if (count == 0) return all;
  all.host_s = count * span.host_s;
  all.device_s = count * span.device_s;
  all.length_s = span.length_s + (count - 1) * tn__span_larger(span.host_s, span.device_s);
  return all;
}

/* The row with a share of its device work: a smaller micro-batch.  Starting its ops takes as long. */
static inline tn_span tn__span_scaled(tn_span span, double share) {
  tn_span scaled = {span.host_s, span.device_s * share, tn__span_larger(span.host_s, span.length_s * share)};
  return scaled;
}

#ifdef __cplusplus
}
#endif
#endif

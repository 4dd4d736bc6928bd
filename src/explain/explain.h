/* explain.h -- tn_explain inside: the analyses of a snapshot's devices.
 *
 * Callers: explain.c, src/report.  Not locked: one thread at a time per object. */
#ifndef TN_EXPLAIN_EXPLAIN_H
#define TN_EXPLAIN_EXPLAIN_H

#include "explain/analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tn_explain {
  const tn_trace *trace;
  tn_explain_options options;
  tn__analysis *devices; /* those with segments or entries, or the one that was asked for */
  size_t count;
};

#ifdef __cplusplus
}
#endif
#endif

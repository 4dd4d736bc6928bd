/* verdict.h -- the analysis in three lines: what is held, why it is high, what to do.
 *
 * Callers: findings.c, when all findings are there and sorted.  Not locked. */
#ifndef TN_EXPLAIN_VERDICT_H
#define TN_EXPLAIN_VERDICT_H

#include "explain/analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

int tn__verdict_write(tn__analysis *analysis);

#ifdef __cplusplus
}
#endif
#endif

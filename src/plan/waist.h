/* waist.h -- narrow places of the forward pass, where it is cheap to keep all that later ops read.
 *
 * Callers: choose.  A waist lies between two ops: what crosses it is small and has slots to keep it; mostly these are the ends
 * of layers.  Keeping the blocks that cross some of the waists is what stops one rebuild from running back to the batch. */
#ifndef TN_PLAN_WAIST_H
#define TN_PLAN_WAIST_H

#include "plan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers the waists of the last pass in forward order, and gives for each block the last waist it crosses, TN_NONE for none, in
 * waist[block_count].  TN_ENOMEM. */
int tn__waists_find(const tn__graph *graph, uint32_t *waist, uint32_t *out_count);

#ifdef __cplusplus
}
#endif
#endif

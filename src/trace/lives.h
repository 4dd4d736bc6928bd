/* lives.h -- when each block of a trace is live.
 *
 * Why: the events say who refers to a block (Python and C++ by ALLOC and DROP, autograd by slots); the caching model, the planner
 * and the placement want to know when its memory is taken and given back.
 * Callers: trace/check.c, src/plan, src/report.  Threads: reads the trace only. */
#ifndef TN_TRACE_LIVES_H
#define TN_TRACE_LIVES_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__life_event {
  uint32_t event; /* index in the event table: the ALLOC, DROP, UNPACK or RELEASE that caused it */
  uint32_t block;
  int is_alloc; /* 1: the block's memory is taken, 0: given back */
} tn__life_event;

/* Whether a block's slots do not hold it, because autograd keeps a recipe or a copy elsewhere instead. */
typedef int tn__is_dropped(void *user, uint32_t block);
/* Returns 0 to go on; anything else ends the walk and becomes its result. */
typedef int tn__life_visit(void *user, tn__life_event life);

/* Visits what is taken and given back, in the order of the events, device and host blocks (TN_BLOCK_HOST) alike.
 *
 * A block is live while it is referenced (from ALLOC or UNPACK to the next DROP) or a slot on it is held (from PACK to RELEASE).
 * The slots of a block that is_dropped do not hold it: it is given back at DROP, and taken again if an UNPACK revives it, so such
 * a block may have several lives.  is_dropped NULL: every slot holds.  Blocks that outlive the trace are not given back.
 * The trace must have passed tn_trace_check().  TN_ENOMEM, or what visit returned. */
int tn__lives(const tn_trace *trace, tn__is_dropped *is_dropped, tn__life_visit *visit, void *user);

/* ---- one block at a time, for those who walk the events themselves --------------------------------------------------------- */

typedef struct tn__life { /* start it zeroed */
  uint32_t held;          /* slots on the block that are packed and not released */
  uint8_t referenced;
  uint8_t dropped; /* its slots do not hold it */
} tn__life;

static inline int tn__life_is_live(const tn__life *life) {
  return life->referenced || (life->held > 0 && !life->dropped);
}

/* The block an event speaks of; TN_NONE for ops and marks. */
uint32_t tn__event_block(const tn_event *event, const tn_slot *slots);

/* What an event of this kind does to its block. */
void tn__life_step(tn__life *life, uint32_t kind);

#ifdef __cplusplus
}
#endif
#endif

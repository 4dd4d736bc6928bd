/* simulate.h -- the memory of a step under a schedule, event by event.
 *
 * Callers: choose (peaks, thousands of times), plan (the caching model behind it).  One thread at a time per object. */
#ifndef TN_PLAN_SIMULATE_H
#define TN_PLAN_SIMULATE_H

#include "plan/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Receives every allocation and free in order.  key names the instance of a block: 2 * block, or 2 * block + 1 for one made
 * again while or after the first one lived.  A negative return stops the simulation. */
typedef struct tn__simulate_sink {
  void *user;
  int (*alloc)(void *user, uint32_t key, uint64_t requested_bytes);
  int (*free)(void *user, uint32_t key);
} tn__simulate_sink;

typedef struct tn__simulate {
  const tn__graph *graph;
  uint8_t *start_referenced; /* per block: state when the step begins */
  uint32_t *start_held;      /* per block: slots of earlier steps that are still held then */
  uint8_t *referenced, *made, *revived; /* per block, scratch */
  uint32_t *held;            /* per block: kept slots and holds */
  uint32_t *hold_ends;       /* per program: first hold that ends there, then by hold_next */
  uint32_t *hold_next;
  uint64_t start_bytes;      /* live when the step begins */
  uint64_t *margin;          /* per event: bytes that the allocator cannot use then; 0 unless the caller sets it */
  uint64_t *profile;         /* per event: the most that lives while it happens, with its margin, of the last run */
  uint32_t event;            /* that is happening; what a sink may ask for */
  /* results of the last run */
  uint64_t peak_bytes;       /* the most of the profile */
  uint32_t peak_event;
  uint64_t live_bytes;
} tn__simulate;

int tn__simulate_init(tn__simulate *simulate, const tn__graph *graph);
void tn__simulate_deinit(tn__simulate *simulate);
/* Is the block live when the step begins? */
int tn__simulate_starts_with(const tn__simulate *simulate, uint32_t block);
/* The whole step; sink may be NULL.  Returns what the sink returned if negative, or 0. */
int tn__simulate_run(tn__simulate *simulate, const tn__schedule *schedule, const tn__simulate_sink *sink);
#ifdef __cplusplus
}
#endif
#endif

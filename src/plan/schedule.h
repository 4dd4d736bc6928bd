/* schedule.h -- when each dropped block is made again, by which ops, and for how long it stays.
 *
 * Callers: simulate, plan (JSON), choose.  A schedule belongs to one graph and is rebuilt for each set of dropped blocks;
 * its memory is reused.  One thread at a time.
 *
 * In backward, slots are asked for in a fixed order.  When a slot of a dropped block is asked for and the block is not there,
 * the ops of its task and of every task that must run before it are run in program order.  A rebuilt block stays until its last use.  A kept
 * block that a task reads after autograd has let go of it is held until then. */
#ifndef TN_PLAN_SCHEDULE_H
#define TN_PLAN_SCHEDULE_H

#include "plan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__run { /* one op run again; then the blocks [forget_at, forget_at + forget_count) are let go */
  uint32_t op;
  uint32_t forget_at, forget_count;
} tn__run;

typedef struct tn__program { /* what happens when a slot is asked for */
  uint32_t slot;
  uint32_t event; /* the slot's UNPACK */
  uint32_t run_at, run_count;
  uint32_t forget_at, forget_count; /* after the slot has been given back */
} tn__program;

typedef struct tn__hold { /* a kept block needed longer than autograd keeps it */
  uint32_t block;
  uint32_t program; /* until this program has run */
} tn__hold;

typedef struct tn__schedule {
  const tn__graph *graph;
  uint8_t *dropped; /* per block: the decision, input to tn__schedule_build() */
  tn__program *programs;
  tn__run *runs;
  uint32_t *forgets; /* blocks */
  tn__hold *holds;
  size_t program_count, run_count, forget_count, hold_count;
  double seconds; /* of the runs of the last pass */
  /* scratch */
  uint8_t *task_done;
  uint32_t *stack, *made_run, *last_run, *last_program, *hold_at;
  uint32_t *program_of_slot; /* per slot, TN_NONE: it is kept */
} tn__schedule;

int tn__schedule_init(tn__schedule *schedule, const tn__graph *graph);
void tn__schedule_deinit(tn__schedule *schedule);
/* Does this run op read the value, on a block of the pass, as made again (1), or from the kept slot (0)?  A kept block may be made again
 * beside another output of its task; only the task itself reads that instance, and only what was there before its final version. */
int tn__schedule_reads_made(const tn__schedule *schedule, uint32_t op, uint32_t value);
/* From schedule->dropped, which may name items only.  Cannot fail: the arrays are large enough for any decision. */
void tn__schedule_build(tn__schedule *schedule);

#ifdef __cplusplus
}
#endif
#endif

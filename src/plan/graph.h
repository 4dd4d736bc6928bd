/* graph.h -- the last step of a captured trace, as the planner sees it: blocks that may be dropped, tasks that make them again.
 *
 * Callers: choose, schedule, simulate, plan.  One thread per graph; everything but the two constructors is read-only.
 *
 *   pass   one micro-batch, forward and backward.  A step has one, or the first and one that stands for all others; the
 *          plan is made for the last, and the blocks of earlier passes follow their twins in it.
 *   item   a block of the last pass, allocated in forward, that only autograd's slots keep alive when backward begins.  The
 *          plan keeps or drops it as a whole, because its bytes come and go as a whole.
 *   task   the ops that write a block: one op, or a chain (batch_norm, then add_ and relu_ in place).  Tasks that share a
 *          block are one task.  Running a task makes all of its blocks again.
 *   ok     a task may run again in backward: its ops are rebuildable, its arguments are known, a random one finds the
 *          generator's place, and each input is outside the pass, kept, or can be made again itself. */
#ifndef TN_PLAN_GRAPH_H
#define TN_PLAN_GRAPH_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__graph_block {
  uint64_t bytes;         /* that it takes from the allocator */
  uint32_t task;          /* that writes it, TN_NONE outside the pass or when an op wrote it that cannot be repeated */
  uint32_t version;       /* final version in the forward pass */
  uint32_t root;          /* value of that version that is no view, TN_NONE */
  uint32_t slot;          /* first slot on it in this pass, TN_NONE; next ones by tn__graph.slot_next */
  uint32_t source_slot;   /* slot that gives it to a run op while it is kept, TN_NONE when none can: see find_sources() */
  uint32_t dropped_at;    /* event of its natural death in the forward pass, TN_NONE */
  uint32_t unpacked_at;   /* event of its slots' first UNPACK, TN_NONE */
  uint32_t gone_at;       /* event of its last DROP after that, TN_NONE */
  uint32_t released_at;   /* event of its slots' last RELEASE, TN_NONE */
  uint32_t twin;          /* of an item: the block of the pass before that holds the same slots, TN_NONE */
  uint8_t in_pass;        /* allocated in the forward half of a pass */
  uint8_t is_item;
} tn__graph_block;

typedef struct tn__graph_task {
  uint32_t ops_at, ops_count;     /* range of tn__graph.task_ops, ascending */
  uint32_t inputs_at, inputs_count; /* range of tn__graph.task_inputs: blocks of the pass it reads, its own excluded */
  double seconds;
  uint8_t ok;
} tn__graph_task;

typedef struct tn__graph {
  const tn_trace *trace;
  const tn_profile *profile;
  /* tables of the trace */
  const tn_op *ops;
  const uint32_t *refs;
  const tn_block *blocks;
  const tn_value *values;
  const tn_slot *slots;
  const tn_event *events;
  size_t op_count, block_count, value_count, slot_count, event_count;

  uint32_t step, pass;  /* the last of each */
  uint32_t event_first; /* the step begins */
  uint32_t pass_at;     /* the last pass begins */
  uint32_t backward_at; /* first UNPACK of the last pass; event_end when there is none */
  uint32_t event_end;   /* the step ends */
  double host_weight;   /* 0: only the device's time counts in a choice; 1: an op's host time as well, where the host is late */
  int rounds;           /* sizes are rounded as the caching allocator does; not on the host */

  tn__graph_block *block; /* block_count */
  uint32_t *slot_next;    /* slot_count: next slot on the same block, TN_NONE */
  uint32_t *slot_unpacked; /* slot_count: event of its first UNPACK, TN_NONE */
  uint32_t *slot_released; /* slot_count: event of its RELEASE, TN_NONE */
  uint32_t *source;       /* block_count: a named value on a block from outside, TN_NONE */
  uint32_t *forward_ops;  /* ops of the forward halves, in order */
  size_t forward_count;
  uint32_t *op_task;      /* op_count: task of a forward op that writes, TN_NONE */
  int32_t *op_random;     /* op_count: ordinal of a random op within the last pass, -1 elsewhere */
  uint32_t *random_probe; /* per ordinal: slot packed just before it, TN_NONE for none; ordinal 0 needs none */
  size_t random_count;
  tn__graph_task *tasks;
  size_t task_count;
  uint32_t *task_ops, *task_inputs;
} tn__graph;

/* Reads the trace's last step.  The trace has passed tn_trace_check() and must outlive the graph.
 * TN_ENOMEM; TN_EFORMAT when the trace has no dataflow (no slots). */
int tn__graph_init(tn__graph *graph, const tn_trace *trace, const tn_profile *profile, double host_weight, tn_error *err);
void tn__graph_deinit(tn__graph *graph);

/* Cost of one op run again: its device seconds and, by host_weight, those of the host.  What a step takes: steptime.h. */
double tn__graph_op_seconds(const tn__graph *graph, uint32_t op);
/* Is output, one of the op's, a tensor that it allocated or wrote?  Not a view, nor TN_NONE. */
int tn__graph_is_written(const tn__graph *graph, uint32_t op, uint32_t output);
/* Is value v, read in the forward pass, what its block holds when backward begins? */
int tn__graph_is_final(const tn__graph *graph, uint32_t value);

#ifdef __cplusplus
}
#endif
#endif

/* rig.h -- a made-up network (net.h) with all that the planner builds on it, for tests of its parts. */
#ifndef TN_TESTS_RIG_H
#define TN_TESTS_RIG_H

#include "net.h"
#include "plan/simulate.h"

#define MB ((uint64_t)1 << 20)

typedef struct rig {
  tn_trace *trace;
  tn_profile profile;
  tn__graph graph;
  tn__schedule schedule;
  tn__simulate simulate;
} rig;

/* Not to be copied: its members point to each other. */
static inline void rig_open(rig *r, const net *n) {
  r->trace = net_trace(n);
  r->profile = net_profile();
  net_must(tn__graph_init(&r->graph, r->trace, &r->profile, 0, NULL));
  net_must(tn__schedule_init(&r->schedule, &r->graph));
  net_must(tn__simulate_init(&r->simulate, &r->graph));
}

static inline void rig_close(rig *r) {
  tn__simulate_deinit(&r->simulate);
  tn__schedule_deinit(&r->schedule);
  tn__graph_deinit(&r->graph);
  tn_trace_free(r->trace);
}

/* The block of an output of a forward op. */
static inline uint32_t rig_block(const rig *r, uint32_t op, uint32_t output) {
  return r->graph.values[r->graph.refs[r->graph.ops[op].outputs_at + output]].block;
}

static inline const tn__graph_block *rig_graph_block(const rig *r, uint32_t op) { return &r->graph.block[rig_block(r, op, 0)]; }

static inline int rig_is_item(const rig *r, uint32_t op) { return rig_graph_block(r, op)->is_item; }

/* Decides, builds and simulates; returns the peak. */
static inline uint64_t rig_run(rig *r) {
  tn__schedule_build(&r->schedule);
  assert_int_equal(tn__simulate_run(&r->simulate, &r->schedule, NULL), 0);
  return r->simulate.peak_bytes;
}

static inline uint64_t rig_drop(rig *r, uint32_t op) {
  assert_true(rig_is_item(r, op));
  r->schedule.dropped[rig_block(r, op, 0)] = 1;
  return rig_run(r);
}

static inline void rig_drop_some(rig *r, uint64_t *seed) {
  for (uint32_t b = 0; b < r->graph.block_count; b++) {
    if (!r->graph.block[b].is_item) continue;
    r->schedule.dropped[b] = tn_test_random(seed) % 3 != 0;
    if (r->graph.block[b].twin != TN_NONE) r->schedule.dropped[r->graph.block[b].twin] = r->schedule.dropped[b];
  }
  rig_run(r);
}

/* The ops that a program runs, as text: "3 4". */
static inline const char *rig_runs(const rig *r, size_t program, char *out) {
  const tn__program *p = &r->schedule.programs[program];
  *out = 0;
  for (uint32_t i = 0; i < p->run_count; i++) sprintf(out + strlen(out), i ? " %u" : "%u", r->schedule.runs[p->run_at + i].op);
  return out;
}

#endif

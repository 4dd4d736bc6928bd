/* simulate.c -- see simulate.h.
 *
 * A block has two instances.  The first is live while it is referenced or held (by a kept slot, or by a hold of the schedule).
 * The second exists only when a run makes the block again: it is live while the schedule has not forgotten it, and for a
 * dropped block also while backward refers to the tensor it was given. */
#include "plan/simulate.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "trace/lives.h"

typedef struct run_state {
  tn__simulate *sim;
  const tn__schedule *schedule;
  const tn__simulate_sink *sink;
  int rc;
} run_state;

static void count_alloc(run_state *run, uint32_t block, int second) {
  tn__simulate *sim = run->sim;
  sim->live_bytes += sim->graph->block[block].bytes;
  uint64_t needed = sim->live_bytes + sim->margin[sim->event];
  if (needed > sim->profile[sim->event]) sim->profile[sim->event] = needed;
  if (needed > sim->peak_bytes) {
    sim->peak_bytes = needed;
    sim->peak_event = sim->event;
  }
  if (run->sink && !run->rc && !(sim->graph->blocks[block].flags & TN_BLOCK_HOST))
    run->rc = run->sink->alloc(run->sink->user, 2 * block + (uint32_t)second, sim->graph->blocks[block].bytes);
}

static void count_free(run_state *run, uint32_t block, int second) {
  run->sim->live_bytes -= run->sim->graph->block[block].bytes;
  if (run->sink && !run->rc && !(run->sim->graph->blocks[block].flags & TN_BLOCK_HOST))
    run->rc = run->sink->free(run->sink->user, 2 * block + (uint32_t)second);
}

static void first_changed(run_state *run, uint32_t block, int was_live) {
  int is_live = run->sim->referenced[block] || run->sim->held[block];
  if (is_live && !was_live) count_alloc(run, block, 0);
  if (!is_live && was_live) count_free(run, block, 0);
}

static void set_referenced(run_state *run, uint32_t block, int on) {
  int was = run->sim->referenced[block] || run->sim->held[block];
  run->sim->referenced[block] = (uint8_t)on;
  first_changed(run, block, was);
}

static void add_hold(run_state *run, uint32_t block, int by) {
  int was = run->sim->referenced[block] || run->sim->held[block];
  run->sim->held[block] += (uint32_t)by;
  first_changed(run, block, was);
}

static void set_second(run_state *run, uint8_t *flag, uint32_t block, int on) {
  tn__simulate *sim = run->sim;
  int was = sim->made[block] || sim->revived[block];
  flag[block] = (uint8_t)on;
  int is = sim->made[block] || sim->revived[block];
  if (is && !was) count_alloc(run, block, 1);
  if (!is && was) count_free(run, block, 1);
}

static void forget(run_state *run, uint32_t at, uint32_t count) {
  for (uint32_t i = at; i < at + count; i++) set_second(run, run->sim->made, run->schedule->forgets[i], 0);
}

static void run_program(run_state *run, uint32_t p) {
  const tn__schedule *s = run->schedule;
  const tn__graph *g = run->sim->graph;
  const tn__program *program = &s->programs[p];
  for (uint32_t r = program->run_at; r < program->run_at + program->run_count; r++) {
    const tn_op *op = &g->ops[s->runs[r].op];
    for (uint32_t i = 0; i < op->outputs_count; i++) {
      uint32_t v = g->refs[op->outputs_at + i];
      if (tn__graph_is_written(g, s->runs[r].op, v)) set_second(run, run->sim->made, g->values[v].block, 1);
    }
    forget(run, s->runs[r].forget_at, s->runs[r].forget_count);
  }
}

static void end_program(run_state *run, uint32_t p) {
  forget(run, run->schedule->programs[p].forget_at, run->schedule->programs[p].forget_count);
  for (uint32_t h = run->sim->hold_ends[p]; h != TN_NONE; h = run->sim->hold_next[h])
    add_hold(run, run->schedule->holds[h].block, -1);
}

static void unpack(run_state *run, uint32_t slot) {
  uint32_t block = run->sim->graph->slots[slot].block, program = run->schedule->program_of_slot[slot];
  if (!run->schedule->dropped[block]) {
    set_referenced(run, block, 1);
    if (run->schedule->hold_at[block] != TN_NONE && run->sim->event == run->sim->graph->block[block].unpacked_at) add_hold(run, block, 1);
    return;
  }
  int is_first = run->sim->event == run->schedule->programs[program].event; /* asked for again, it is as it was left */
  if (is_first) run_program(run, program);
  set_second(run, run->sim->revived, block, 1);
  if (is_first) end_program(run, program);
}

static void step_event(run_state *run, const tn_event *event) {
  const tn__graph *g = run->sim->graph;
  const uint8_t *dropped = run->schedule->dropped;
  switch (event->kind) {
    case TN_EVENT_ALLOC: set_referenced(run, event->id, 1); break;
    case TN_EVENT_DROP:
      if (dropped[event->id] && run->sim->event != g->block[event->id].dropped_at) set_second(run, run->sim->revived, event->id, 0);
      else set_referenced(run, event->id, 0);
      break;
    case TN_EVENT_PACK:
      if (!dropped[g->slots[event->id].block]) add_hold(run, g->slots[event->id].block, 1);
      break;
    case TN_EVENT_UNPACK: unpack(run, event->id); break;
    case TN_EVENT_RELEASE:
      if (!dropped[g->slots[event->id].block]) add_hold(run, g->slots[event->id].block, -1);
      break;
    default: break;
  }
}

/* Lists the holds by the program that ends them. */
static void list_holds(tn__simulate *sim, const tn__schedule *s) {
  memset(sim->hold_ends, 0xff, (s->program_count + 1) * sizeof *sim->hold_ends);
  for (uint32_t h = 0; h < s->hold_count; h++) {
    sim->hold_next[h] = sim->hold_ends[s->holds[h].program];
    sim->hold_ends[s->holds[h].program] = h;
  }
}

int tn__simulate_run(tn__simulate *sim, const tn__schedule *schedule, const tn__simulate_sink *sink) {
  const tn__graph *g = sim->graph;
  run_state run = {.sim = sim, .schedule = schedule, .sink = sink};
  memcpy(sim->referenced, sim->start_referenced, g->block_count);
  memcpy(sim->held, sim->start_held, g->block_count * sizeof *sim->held);
  memset(sim->made, 0, g->block_count);
  memset(sim->revived, 0, g->block_count);
  sim->live_bytes = sim->peak_bytes = sim->start_bytes;
  sim->peak_event = g->event_first;
  list_holds(sim, schedule);
  for (uint32_t e = g->event_first; e < g->event_end && run.rc >= 0; e++) {
    sim->event = e;
    sim->profile[e] = sim->live_bytes;
    step_event(&run, &g->events[e]);
  }
  return run.rc < 0 ? run.rc : 0;
}

int tn__simulate_starts_with(const tn__simulate *sim, uint32_t block) {
  return sim->start_referenced[block] || sim->start_held[block];
}

/* What lives when the step begins. */
static void read_start(tn__simulate *sim) {
  const tn__graph *g = sim->graph;
  for (uint32_t e = 0; e < g->event_first; e++) {
    const tn_event *event = &g->events[e];
    uint32_t block = tn__event_block(event, g->slots);
    switch (event->kind) {
      case TN_EVENT_ALLOC:
      case TN_EVENT_UNPACK: sim->start_referenced[block] = 1; break;
      case TN_EVENT_DROP: sim->start_referenced[block] = 0; break;
      case TN_EVENT_PACK: sim->start_held[block]++; break;
      case TN_EVENT_RELEASE: sim->start_held[block]--; break;
      default: break;
    }
  }
  for (uint32_t b = 0; b < g->block_count; b++)
    if (tn__simulate_starts_with(sim, b)) sim->start_bytes += g->block[b].bytes;
}

int tn__simulate_init(tn__simulate *sim, const tn__graph *graph) {
  size_t blocks = graph->block_count + 1, slots = graph->slot_count + 1;
  *sim = (tn__simulate){.graph = graph};
  sim->start_referenced = tn__mem_zalloc(blocks, 1);
  sim->start_held = tn__mem_zalloc(blocks, sizeof *sim->start_held);
  sim->referenced = tn__mem_zalloc(blocks, 1);
  sim->held = tn__mem_zalloc(blocks, sizeof *sim->held);
  sim->made = tn__mem_zalloc(blocks, 1);
  sim->revived = tn__mem_zalloc(blocks, 1);
  sim->margin = tn__mem_zalloc(graph->event_count + 1, sizeof *sim->margin);
  sim->profile = tn__mem_zalloc(graph->event_count + 1, sizeof *sim->profile);
  sim->hold_ends = tn__mem_zalloc(slots, sizeof *sim->hold_ends);
  sim->hold_next = tn__mem_zalloc(blocks, sizeof *sim->hold_next);
  if (!sim->start_referenced || !sim->start_held || !sim->referenced || !sim->held || !sim->made || !sim->revived || !sim->hold_ends ||
      !sim->hold_next || !sim->margin || !sim->profile) {
    tn__simulate_deinit(sim);
    return TN_ENOMEM;
  }
  read_start(sim);
  return TN_OK;
}

void tn__simulate_deinit(tn__simulate *sim) {
  tn__mem_free(sim->start_referenced);
  tn__mem_free(sim->start_held);
  tn__mem_free(sim->referenced);
  tn__mem_free(sim->held);
  tn__mem_free(sim->made);
  tn__mem_free(sim->revived);
  tn__mem_free(sim->margin);
  tn__mem_free(sim->profile);
  tn__mem_free(sim->hold_ends);
  tn__mem_free(sim->hold_next);
  *sim = (tn__simulate){0};
}

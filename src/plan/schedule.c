/* schedule.c -- see schedule.h.  Two sweeps over backward: the first says what is run when, the second when it is let go. */
#include "plan/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- first sweep: what is run when --------------------------------------------------------------------------------------- */

static int compare_ops(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* Must this block, read by a task, be made again first? */
static int must_make(const tn__schedule *s, uint32_t block) {
  return s->dropped[block] || s->graph->block[block].source_slot == TN_NONE;
}

int tn__schedule_reads_made(const tn__schedule *s, uint32_t op, uint32_t value) {
  uint32_t block = s->graph->values[value].block;
  return must_make(s, block) || (s->graph->block[block].task == s->graph->op_task[op] && !tn__graph_is_final(s->graph, value));
}

/* The ops of task and of all it depends on that have not run yet, appended to runs in program order. */
static void run_task(tn__schedule *s, uint32_t task) {
  const tn__graph *g = s->graph;
  size_t depth = 0, first = s->run_count, count = 0;
  uint32_t *ops = s->stack + g->task_count; /* second half of the scratch */
  if (s->task_done[task]) return;
  s->task_done[task] = 1;
  s->stack[depth++] = task;
  while (depth) {
    const tn__graph_task *t = &g->tasks[s->stack[--depth]];
    for (uint32_t i = 0; i < t->ops_count; i++) ops[count++] = g->task_ops[t->ops_at + i];
    for (uint32_t i = 0; i < t->inputs_count; i++) {
      uint32_t block = g->task_inputs[t->inputs_at + i], maker = g->block[block].task;
      if (!must_make(s, block) || s->task_done[maker]) continue;
      s->task_done[maker] = 1;
      s->stack[depth++] = maker;
    }
  }
  qsort(ops, count, sizeof *ops, compare_ops);
  for (size_t i = 0; i < count; i++) {
    s->runs[first + i] = (tn__run){.op = ops[i]};
    if (g->ops[ops[i]].pass == g->pass) s->seconds += tn__graph_op_seconds(g, ops[i]);
  }
  s->run_count += count;
}

static void list_programs(tn__schedule *s) {
  const tn__graph *g = s->graph;
  for (uint32_t e = g->event_first; e < g->event_end; e++) {
    if (g->events[e].kind != TN_EVENT_UNPACK) continue;
    uint32_t slot = g->events[e].id, block = g->slots[slot].block;
    if (!s->dropped[block] || s->program_of_slot[slot] != TN_NONE) continue;
    tn__program *program = &s->programs[s->program_count];
    *program = (tn__program){.slot = slot, .event = e, .run_at = (uint32_t)s->run_count};
    run_task(s, g->block[block].task);
    program->run_count = (uint32_t)s->run_count - program->run_at;
    s->program_of_slot[slot] = (uint32_t)s->program_count++;
  }
}

/* ---- second sweep: until when -------------------------------------------------------------------------------------------- */

/* A kept block read by a run: held when autograd has let go of it before. */
static void use_kept(tn__schedule *s, uint32_t block, uint32_t program) {
  uint32_t released_at = s->graph->slot_released[s->graph->block[block].source_slot];
  if (released_at == TN_NONE || released_at > s->programs[program].event) return;
  if (s->hold_at[block] == TN_NONE) {
    s->hold_at[block] = (uint32_t)s->hold_count;
    s->holds[s->hold_count++] = (tn__hold){.block = block};
  }
  s->holds[s->hold_at[block]].program = program;
}

/* Notes that the value is read by this run of this program. */
static void use(tn__schedule *s, uint32_t value, uint32_t run, uint32_t program) {
  uint32_t block = s->graph->values[value].block;
  if (!s->graph->block[block].in_pass) return;
  if (tn__schedule_reads_made(s, s->runs[run].op, value)) {
    s->last_run[block] = run;
    s->last_program[block] = program;
  } else {
    use_kept(s, block, program);
  }
}

static void note_uses(tn__schedule *s) {
  const tn__graph *g = s->graph;
  for (uint32_t p = 0; p < s->program_count; p++) {
    const tn__program *program = &s->programs[p];
    for (uint32_t r = program->run_at; r < program->run_at + program->run_count; r++) {
      const tn_op *op = &g->ops[s->runs[r].op];
      for (uint32_t i = 0; i < op->inputs_count; i++) {
        use(s, g->refs[op->inputs_at + i], r, p);
      }
      for (uint32_t i = 0; i < op->outputs_count; i++) {
        uint32_t v = g->refs[op->outputs_at + i];
        if (!tn__graph_is_written(g, s->runs[r].op, v)) continue;
        uint32_t block = g->values[v].block;
        if (s->made_run[block] == TN_NONE) s->made_run[block] = r;
        s->last_run[block] = r;
        s->last_program[block] = p;
      }
    }
    uint32_t block = g->slots[program->slot].block; /* given back after its runs */
    s->last_run[block] = TN_NONE;
    s->last_program[block] = p;
  }
}

/* Block numbers of the forgets, grouped: counts first, then places, then the numbers. */
static void list_forgets(tn__schedule *s) {
  const tn__graph *g = s->graph;
  for (uint32_t b = 0; b < g->block_count; b++) {
    if (s->made_run[b] == TN_NONE) continue;
    if (s->last_run[b] != TN_NONE) s->runs[s->last_run[b]].forget_count++;
    else s->programs[s->last_program[b]].forget_count++;
  }
  for (size_t i = 0; i < s->run_count; i++) {
    s->runs[i].forget_at = (uint32_t)s->forget_count;
    s->forget_count += s->runs[i].forget_count;
    s->runs[i].forget_count = 0;
  }
  for (size_t i = 0; i < s->program_count; i++) {
    s->programs[i].forget_at = (uint32_t)s->forget_count;
    s->forget_count += s->programs[i].forget_count;
    s->programs[i].forget_count = 0;
  }
  for (uint32_t b = 0; b < g->block_count; b++) {
    if (s->made_run[b] == TN_NONE) continue;
    if (s->last_run[b] != TN_NONE) {
      tn__run *run = &s->runs[s->last_run[b]];
      s->forgets[run->forget_at + run->forget_count++] = b;
    } else {
      tn__program *program = &s->programs[s->last_program[b]];
      s->forgets[program->forget_at + program->forget_count++] = b;
    }
  }
}

void tn__schedule_build(tn__schedule *s) {
  const tn__graph *g = s->graph;
  s->program_count = s->run_count = s->forget_count = s->hold_count = 0;
  s->seconds = 0;
  memset(s->task_done, 0, g->task_count);
  memset(s->made_run, 0xff, g->block_count * sizeof *s->made_run);
  memset(s->last_run, 0xff, g->block_count * sizeof *s->last_run);
  memset(s->last_program, 0xff, g->block_count * sizeof *s->last_program);
  memset(s->hold_at, 0xff, g->block_count * sizeof *s->hold_at);
  memset(s->program_of_slot, 0xff, g->slot_count * sizeof *s->program_of_slot);
  list_programs(s);
  note_uses(s);
  list_forgets(s);
}

/* ---- construction -------------------------------------------------------------------------------------------------------- */

int tn__schedule_init(tn__schedule *s, const tn__graph *graph) {
  size_t blocks = graph->block_count + 1, ops = graph->op_count + 1, slots = graph->slot_count + 1;
  *s = (tn__schedule){.graph = graph};
  s->dropped = tn__mem_zalloc(blocks, 1);
  s->programs = tn__mem_zalloc(slots, sizeof *s->programs);
  s->runs = tn__mem_zalloc(ops, sizeof *s->runs);
  s->forgets = tn__mem_zalloc(blocks, sizeof *s->forgets);
  s->holds = tn__mem_zalloc(blocks, sizeof *s->holds);
  s->task_done = tn__mem_zalloc(graph->task_count + 1, 1);
  s->stack = tn__mem_zalloc(graph->task_count + ops, sizeof *s->stack);
  s->made_run = tn__mem_zalloc(blocks, sizeof *s->made_run);
  s->last_run = tn__mem_zalloc(blocks, sizeof *s->last_run);
  s->last_program = tn__mem_zalloc(blocks, sizeof *s->last_program);
  s->hold_at = tn__mem_zalloc(blocks, sizeof *s->hold_at);
  s->program_of_slot = tn__mem_zalloc(slots, sizeof *s->program_of_slot);
  if (s->dropped && s->programs && s->runs && s->forgets && s->holds && s->task_done && s->stack && s->made_run && s->last_run &&
      s->last_program && s->hold_at && s->program_of_slot)
    return TN_OK;
  tn__schedule_deinit(s);
  return TN_ENOMEM;
}

void tn__schedule_deinit(tn__schedule *s) {
  tn__mem_free(s->dropped);
  tn__mem_free(s->programs);
  tn__mem_free(s->runs);
  tn__mem_free(s->forgets);
  tn__mem_free(s->holds);
  tn__mem_free(s->task_done);
  tn__mem_free(s->stack);
  tn__mem_free(s->made_run);
  tn__mem_free(s->last_run);
  tn__mem_free(s->last_program);
  tn__mem_free(s->hold_at);
  tn__mem_free(s->program_of_slot);
  *s = (tn__schedule){0};
}

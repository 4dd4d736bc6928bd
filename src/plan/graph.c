/* graph.c -- from the records of a trace to items and tasks.  Why: the planner's question is about blocks and the ops that
 * write them; the trace speaks of tensors, views and versions. */
#include "plan/graph.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "plan/profile.h"

#define NO_TASK TN_NONE

static uint64_t block_bytes(const tn__graph *graph, uint32_t block) {
  uint64_t bytes = graph->blocks[block].bytes;
  if (graph->blocks[block].flags & TN_BLOCK_HOST) return 0;
  return graph->rounds ? tn_caching_round(bytes) : bytes;
}

double tn__graph_op_seconds(const tn__graph *graph, uint32_t op) {
  return tn_profile_op_seconds(graph->profile, &graph->ops[op]) + graph->host_weight * graph->profile->host_rebuild_s;
}

int tn__graph_is_written(const tn__graph *graph, uint32_t op, uint32_t output) {
  return output != TN_NONE && graph->values[output].op == op && !(graph->values[output].flags & TN_VALUE_VIEW);
}

int tn__graph_is_final(const tn__graph *graph, uint32_t value) {
  const tn_value *v = &graph->values[value];
  return v->version == graph->block[v->block].version;
}

/* ---- which events are the pass ------------------------------------------------------------------------------------------- */

static int mark_is(const tn__graph *graph, const tn_event *event, const char *prefix) {
  return event->kind == TN_EVENT_MARK && !strncmp(tn_trace_string(graph->trace, event->id), prefix, strlen(prefix));
}

/* The last "step:" mark begins the step; the last "pass:" mark in it begins the last pass, if there is one. */
static int find_step(tn__graph *graph, tn_error *err) {
  uint32_t begin = TN_NONE;
  for (uint32_t e = 0; e < graph->event_count; e++)
    if (mark_is(graph, &graph->events[e], "step:")) begin = e;
  if (begin == TN_NONE) return tn__error_set(err, TN_EFORMAT, "the trace has no step: nothing to plan");
  graph->event_first = graph->pass_at = begin;
  graph->event_end = (uint32_t)graph->event_count;
  for (uint32_t e = begin; e < graph->event_count; e++)
    if (mark_is(graph, &graph->events[e], "pass:")) graph->pass_at = e;
  return TN_OK;
}

/* The first slot packed in the last pass says its step and pass; backward begins when a slot is asked for. */
static int find_backward(tn__graph *graph, tn_error *err) {
  uint32_t first = TN_NONE;
  graph->backward_at = graph->event_end;
  for (uint32_t e = graph->pass_at; e < graph->event_end && graph->backward_at == graph->event_end; e++) {
    const tn_event *event = &graph->events[e];
    if (event->kind == TN_EVENT_PACK && first == TN_NONE) first = event->id;
    if (event->kind == TN_EVENT_UNPACK) graph->backward_at = e;
  }
  if (first == TN_NONE) return tn__error_set(err, TN_EFORMAT, "the trace has no saved tensors: nothing to plan");
  graph->step = graph->slots[first].step;
  graph->pass = graph->slots[first].pass;
  return TN_OK;
}

/* Is the event in the forward half of a pass?  To be called for each event of the step in order; *forward is its state. */
static int follow_forward(const tn__graph *graph, const tn_event *event, int *forward) {
  if (mark_is(graph, event, "step:") || mark_is(graph, event, "pass:")) *forward = 1;
  if (event->kind == TN_EVENT_UNPACK) *forward = 0;
  return *forward;
}

/* ---- blocks: lives and slots --------------------------------------------------------------------------------------------- */

static int slot_in_step(const tn__graph *graph, uint32_t slot) { return graph->slots[slot].step == graph->step; }

static void note_unpack(tn__graph *graph, uint32_t slot, uint32_t event) {
  tn__graph_block *block = &graph->block[graph->slots[slot].block];
  if (!slot_in_step(graph, slot)) return;
  if (block->unpacked_at == TN_NONE) block->unpacked_at = event;
  if (graph->slot_unpacked[slot] == TN_NONE) graph->slot_unpacked[slot] = event;
}

/* A block that backward has asked for may die in the forward half of a later pass. */
static void note_drop(tn__graph *graph, uint32_t block, uint32_t event, int forward) {
  if (graph->block[block].unpacked_at != TN_NONE) graph->block[block].gone_at = event;
  else if (forward) graph->block[block].dropped_at = event;
}

static void note_release(tn__graph *graph, uint32_t slot, uint32_t event) {
  if (!slot_in_step(graph, slot)) return;
  graph->block[graph->slots[slot].block].released_at = event;
  graph->slot_released[slot] = event;
}

static void read_lives(tn__graph *graph) {
  int forward = 0;
  for (uint32_t e = graph->event_first; e < graph->event_end; e++) {
    const tn_event *event = &graph->events[e];
    follow_forward(graph, event, &forward);
    switch (event->kind) {
      case TN_EVENT_ALLOC: graph->block[event->id].in_pass = (uint8_t)forward; break;
      case TN_EVENT_DROP: note_drop(graph, event->id, e, forward); break;
      case TN_EVENT_OP:
        if (forward) graph->forward_ops[graph->forward_count++] = event->id;
        break;
      case TN_EVENT_UNPACK: note_unpack(graph, event->id, e); break;
      case TN_EVENT_RELEASE: note_release(graph, event->id, e); break;
      default: break;
    }
  }
}

/* On each block from outside, a value that has a name: a parameter, a buffer, a leaf of the batch. */
static void read_sources(tn__graph *graph) {
  for (uint32_t v = (uint32_t)graph->value_count; v-- > 0;)
    if (graph->values[v].source) graph->source[graph->values[v].block] = v;
}

static void link_slots(tn__graph *graph) {
  for (uint32_t k = (uint32_t)graph->slot_count; k-- > 0;) { /* backwards, so that each list ascends */
    if (!slot_in_step(graph, k)) continue;
    tn__graph_block *block = &graph->block[graph->slots[k].block];
    graph->slot_next[k] = block->slot;
    block->slot = k;
  }
}

/* The final version of each block that forward writes, and its root value. */
static void read_versions(tn__graph *graph) {
  for (size_t n = 0; n < graph->forward_count; n++) {
    const tn_op *op = &graph->ops[graph->forward_ops[n]];
    for (uint32_t i = 0; i < op->outputs_count; i++) {
      uint32_t v = graph->refs[op->outputs_at + i];
      if (!tn__graph_is_written(graph, graph->forward_ops[n], v)) continue;
      tn__graph_block *block = &graph->block[graph->values[v].block];
      if (block->root != TN_NONE && graph->values[v].version < block->version) continue;
      block->root = v;
      block->version = graph->values[v].version;
    }
  }
}

/* The random ops of the last pass, each with a slot packed since the one before it: there the generator's place is read. */
static void read_random(tn__graph *graph) {
  uint32_t packed = TN_NONE;
  for (uint32_t e = graph->pass_at; e < graph->backward_at; e++) {
    const tn_event *event = &graph->events[e];
    if (event->kind == TN_EVENT_PACK) packed = event->id;
    if (event->kind != TN_EVENT_OP || !(graph->ops[event->id].flags & TN_OP_RANDOM)) continue;
    graph->op_random[event->id] = (int32_t)graph->random_count;
    graph->random_probe[graph->random_count++] = packed;
    packed = TN_NONE;
  }
}

/* ---- tasks: ops joined by the blocks they write -------------------------------------------------------------------------- */

/* Union-find over ops; the root of a set is its first op. */
static uint32_t set_root(uint32_t *parent, uint32_t i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

static void set_join(uint32_t *parent, uint32_t a, uint32_t b) {
  a = set_root(parent, a);
  b = set_root(parent, b);
  if (a < b) parent[b] = a;
  else parent[a] = b;
}

static int writes(const tn__graph *graph, uint32_t op) {
  const tn_op *o = &graph->ops[op];
  for (uint32_t i = 0; i < o->outputs_count; i++)
    if (tn__graph_is_written(graph, op, graph->refs[o->outputs_at + i])) return 1;
  return 0;
}

static void join_writers(tn__graph *graph, uint32_t *parent, uint32_t *writer) {
  for (size_t n = 0; n < graph->forward_count; n++) {
    const tn_op *op = &graph->ops[graph->forward_ops[n]];
    for (uint32_t i = 0; i < op->outputs_count; i++) {
      uint32_t v = graph->refs[op->outputs_at + i];
      if (!tn__graph_is_written(graph, graph->forward_ops[n], v) || !graph->block[graph->values[v].block].in_pass) continue;
      uint32_t *first = &writer[graph->values[v].block];
      if (*first == TN_NONE) *first = graph->forward_ops[n];
      else set_join(parent, *first, graph->forward_ops[n]);
    }
  }
}

/* Numbers the sets, fills op_task and counts each task's ops. */
static void number_tasks(tn__graph *graph, uint32_t *parent) {
  for (size_t n = 0; n < graph->forward_count; n++) {
    uint32_t op = graph->forward_ops[n], root = set_root(parent, op);
    if (!writes(graph, op)) continue;
    if (graph->op_task[root] == NO_TASK) graph->op_task[root] = (uint32_t)graph->task_count++;
    graph->op_task[op] = graph->op_task[root];
    graph->tasks[graph->op_task[op]].ops_count++;
  }
}

static void list_ops(tn__graph *graph) {
  uint32_t at = 0;
  for (size_t t = 0; t < graph->task_count; t++) {
    graph->tasks[t].ops_at = at;
    at += graph->tasks[t].ops_count;
    graph->tasks[t].ops_count = 0;
  }
  for (size_t n = 0; n < graph->forward_count; n++) {
    uint32_t op = graph->forward_ops[n];
    if (graph->op_task[op] == NO_TASK) continue;
    tn__graph_task *task = &graph->tasks[graph->op_task[op]];
    graph->task_ops[task->ops_at + task->ops_count++] = op;
    task->seconds += tn__graph_op_seconds(graph, op);
  }
}

/* The pass that a block with a root was made in. */
static uint8_t pass_of(const tn__graph *graph, uint32_t block) {
  return graph->ops[graph->values[graph->block[block].root].op].pass;
}

static int is_own(const tn__graph *graph, uint32_t block, uint32_t task) { return graph->block[block].task == task; }

static int dtype_equal(const tn__graph *graph, uint32_t a, uint32_t b) {
  const char *x = tn_trace_string(graph->trace, graph->values[a].meta);
  const char *y = tn_trace_string(graph->trace, graph->values[b].meta);
  size_t n = strcspn(x, "[");
  return x[n] == '[' && !strncmp(x, y, n + 1);
}

/* An input from outside the pass can be read again if the pass does not overwrite it and something named is on its block; one from the
 * pass if it is what the block holds in the end, or what the op's own chain makes.  All are read as windows, so element types must agree. */
static int input_is_readable(const tn__graph *graph, uint32_t op, uint32_t value) {
  uint32_t block = graph->values[value].block, root = graph->block[block].root;
  if (!graph->block[block].in_pass)
    return root == TN_NONE && graph->source[block] != TN_NONE && dtype_equal(graph, value, graph->source[block]);
  if (graph->block[block].task == NO_TASK || !dtype_equal(graph, value, root)) return 0;
  if (is_own(graph, block, graph->op_task[op])) return 1;
  return tn__graph_is_final(graph, value) && pass_of(graph, block) == graph->ops[op].pass;
}

/* An output on a block of the pass, of the element type that the block ends with. */
static int output_is_repeatable(const tn__graph *graph, uint32_t op, uint32_t value) {
  const tn__graph_block *block = &graph->block[graph->values[value].block];
  return block->in_pass && (!tn__graph_is_written(graph, op, value) || (block->root != TN_NONE && dtype_equal(graph, value, block->root)));
}

static int op_is_repeatable(const tn__graph *graph, uint32_t op) {
  const tn_op *o = &graph->ops[op];
  if (!(o->flags & TN_OP_REBUILDABLE) || tn_trace_string(graph->trace, o->args)[0] != '{') return 0;
  int32_t random = graph->op_random[op];
  if (o->flags & TN_OP_RANDOM && o->pass == graph->pass) { /* the last pass decides for its twins */
    if (random < 0 || (random > 0 && graph->random_probe[random] == TN_NONE)) return 0;
  }
  for (uint32_t i = 0; i < o->outputs_count; i++) {
    uint32_t v = graph->refs[o->outputs_at + i];
    if (v != TN_NONE && !output_is_repeatable(graph, op, v)) return 0;
  }
  for (uint32_t i = 0; i < o->inputs_count; i++)
    if (!input_is_readable(graph, op, graph->refs[o->inputs_at + i])) return 0;
  return 1;
}

static int input_is_listed(const tn__graph *graph, const tn__graph_task *task, uint32_t block) {
  for (uint32_t i = 0; i < task->inputs_count; i++)
    if (graph->task_inputs[task->inputs_at + i] == block) return 1;
  return 0;
}

static void list_inputs(tn__graph *graph) {
  uint32_t at = 0;
  for (uint32_t t = 0; t < graph->task_count; t++) {
    tn__graph_task *task = &graph->tasks[t];
    task->inputs_at = at;
    task->ok = 1;
    for (uint32_t i = 0; i < task->ops_count; i++) {
      uint32_t op = graph->task_ops[task->ops_at + i];
      task->ok &= (uint8_t)op_is_repeatable(graph, op);
      for (uint32_t j = 0; j < graph->ops[op].inputs_count; j++) {
        uint32_t v = graph->refs[graph->ops[op].inputs_at + j];
        if (v == TN_NONE) continue;
        uint32_t block = graph->values[v].block;
        if (!graph->block[block].in_pass || is_own(graph, block, t) || input_is_listed(graph, task, block)) continue;
        graph->task_inputs[at++] = block;
        task->inputs_count++;
      }
    }
  }
}

/* Does the slot hold the block's final contents, with their element type, for backward of the block's own pass? */
static int is_window(const tn__graph *graph, uint32_t slot, uint32_t root) {
  uint32_t v = graph->slots[slot].value;
  return v != TN_NONE && tn__graph_is_final(graph, v) && dtype_equal(graph, v, root) &&
         graph->slots[slot].pass == pass_of(graph, graph->slots[slot].block);
}

/* While a block is kept, a run op reads it from the slot that autograd lets go of last.  It must be one that backward asks for: only then
 * can it be held for longer. */
static void find_sources(tn__graph *graph) {
  for (uint32_t b = 0; b < graph->block_count; b++) {
    tn__graph_block *block = &graph->block[b];
    if (block->task == NO_TASK) continue;
    for (uint32_t k = block->slot; k != TN_NONE; k = graph->slot_next[k]) {
      if (graph->slot_unpacked[k] == TN_NONE || !is_window(graph, k, block->root)) continue;
      if (block->source_slot == TN_NONE || graph->slot_released[k] > graph->slot_released[block->source_slot]) block->source_slot = k;
    }
  }
}

/* A task is not ok when an input has no slot that could give it and cannot be made again.  To a fixed point. */
static void spread_not_ok(tn__graph *graph) {
  for (int changed = 1; changed;) {
    changed = 0;
    for (uint32_t t = 0; t < graph->task_count; t++) {
      tn__graph_task *task = &graph->tasks[t];
      for (uint32_t i = 0; task->ok && i < task->inputs_count; i++) {
        const tn__graph_block *block = &graph->block[graph->task_inputs[task->inputs_at + i]];
        if (block->source_slot != TN_NONE || graph->tasks[block->task].ok) continue;
        task->ok = 0;
        changed = 1;
      }
    }
  }
}

static int slots_are_windows(const tn__graph *graph, const tn__graph_block *block) {
  for (uint32_t k = block->slot; k != TN_NONE; k = graph->slot_next[k])
    if (!is_window(graph, k, block->root)) return 0;
  return 1;
}

static int can_be_dropped(const tn__graph *graph, const tn__graph_block *block) {
  return block->in_pass && block->slot != TN_NONE && block->task != NO_TASK && graph->tasks[block->task].ok &&
         block->dropped_at != TN_NONE && block->unpacked_at != TN_NONE && slots_are_windows(graph, block);
}

/* The block that holds the same slots, by index, in the pass before; TN_NONE when they are on several blocks. */
static uint32_t find_twin(const tn__graph *graph, const tn__graph_block *block, const uint32_t *slot_before) {
  uint32_t twin = TN_NONE;
  for (uint32_t k = block->slot; k != TN_NONE; k = graph->slot_next[k]) {
    uint32_t index = graph->slots[k].index;
    uint32_t other = index < graph->slot_count ? slot_before[index] : TN_NONE;
    if (other == TN_NONE || (twin != TN_NONE && twin != graph->slots[other].block)) return TN_NONE;
    twin = graph->slots[other].block;
  }
  return twin;
}

static int find_items(tn__graph *graph) {
  uint32_t *slot_before = tn__mem_alloc((graph->slot_count + 1) * sizeof *slot_before);
  if (!slot_before) return TN_ENOMEM;
  memset(slot_before, 0xff, (graph->slot_count + 1) * sizeof *slot_before);
  for (uint32_t k = 0; k < graph->slot_count; k++)
    if (slot_in_step(graph, k) && graph->slots[k].pass + 1u == graph->pass && graph->slots[k].index < graph->slot_count)
      slot_before[graph->slots[k].index] = k;
  for (uint32_t b = 0; b < graph->block_count; b++) {
    tn__graph_block *block = &graph->block[b];
    if (!can_be_dropped(graph, block) || graph->slots[block->slot].pass != graph->pass) continue;
    if (graph->pass > 0) block->twin = find_twin(graph, block, slot_before);
    block->is_item = graph->pass == 0 || (block->twin != TN_NONE && can_be_dropped(graph, &graph->block[block->twin]));
  }
  tn__mem_free(slot_before);
  return TN_OK;
}

static void assign_blocks(tn__graph *graph, const uint32_t *writer) {
  for (uint32_t b = 0; b < graph->block_count; b++) {
    if (!graph->block[b].in_pass || writer[b] == TN_NONE || graph->block[b].root == TN_NONE) continue;
    graph->block[b].task = graph->op_task[writer[b]];
  }
}

static int build_tasks(tn__graph *graph) {
  size_t n = graph->op_count ? graph->op_count : 1, m = graph->block_count ? graph->block_count : 1;
  uint32_t *parent = tn__mem_alloc(n * sizeof *parent), *writer = tn__mem_alloc(m * sizeof *writer);
  if (!parent || !writer) {
    tn__mem_free(parent);
    tn__mem_free(writer);
    return TN_ENOMEM;
  }
  for (uint32_t i = 0; i < n; i++) parent[i] = i;
  memset(writer, 0xff, m * sizeof *writer);
  join_writers(graph, parent, writer);
  number_tasks(graph, parent);
  list_ops(graph);
  assign_blocks(graph, writer);
  list_inputs(graph);
  find_sources(graph);
  spread_not_ok(graph);
  tn__mem_free(parent);
  tn__mem_free(writer);
  return find_items(graph);
}

/* ---- construction -------------------------------------------------------------------------------------------------------- */

static void read_tables(tn__graph *graph) {
  graph->ops = tn_trace_table(graph->trace, TN_TABLE_OP, &graph->op_count);
  graph->refs = tn_trace_table(graph->trace, TN_TABLE_REF, NULL);
  graph->blocks = tn_trace_table(graph->trace, TN_TABLE_BLOCK, &graph->block_count);
  graph->values = tn_trace_table(graph->trace, TN_TABLE_VALUE, &graph->value_count);
  graph->slots = tn_trace_table(graph->trace, TN_TABLE_SLOT, &graph->slot_count);
  graph->events = tn_trace_table(graph->trace, TN_TABLE_EVENT, &graph->event_count);
}

static int allocate(tn__graph *graph) {
  size_t refs, n = graph->op_count + 1;
  tn_trace_table(graph->trace, TN_TABLE_REF, &refs);
  graph->block = tn__mem_zalloc(graph->block_count + 1, sizeof *graph->block);
  graph->slot_next = tn__mem_zalloc(graph->slot_count + 1, sizeof *graph->slot_next);
  graph->slot_unpacked = tn__mem_alloc((graph->slot_count + 1) * sizeof *graph->slot_unpacked);
  graph->slot_released = tn__mem_alloc((graph->slot_count + 1) * sizeof *graph->slot_released);
  graph->source = tn__mem_alloc((graph->block_count + 1) * sizeof *graph->source);
  graph->forward_ops = tn__mem_zalloc(n, sizeof *graph->forward_ops);
  graph->op_task = tn__mem_alloc(n * sizeof *graph->op_task);
  graph->op_random = tn__mem_alloc(n * sizeof *graph->op_random);
  graph->random_probe = tn__mem_zalloc(n, sizeof *graph->random_probe);
  graph->tasks = tn__mem_zalloc(n, sizeof *graph->tasks);
  graph->task_ops = tn__mem_zalloc(n, sizeof *graph->task_ops);
  graph->task_inputs = tn__mem_zalloc(refs + 1, sizeof *graph->task_inputs);
  if (!graph->block || !graph->slot_next || !graph->slot_unpacked || !graph->slot_released || !graph->source || !graph->forward_ops ||
      !graph->op_task || !graph->op_random || !graph->random_probe || !graph->tasks || !graph->task_ops || !graph->task_inputs)
    return TN_ENOMEM;
  memset(graph->slot_unpacked, 0xff, (graph->slot_count + 1) * sizeof *graph->slot_unpacked);
  memset(graph->slot_released, 0xff, (graph->slot_count + 1) * sizeof *graph->slot_released);
  memset(graph->source, 0xff, (graph->block_count + 1) * sizeof *graph->source);
  memset(graph->op_task, 0xff, n * sizeof *graph->op_task);
  memset(graph->op_random, 0xff, n * sizeof *graph->op_random);
  for (size_t b = 0; b < graph->block_count; b++)
    graph->block[b] = (tn__graph_block){.bytes = block_bytes(graph, (uint32_t)b), .task = NO_TASK, .root = TN_NONE, .slot = TN_NONE,
                                        .source_slot = TN_NONE, .twin = TN_NONE, .dropped_at = TN_NONE, .unpacked_at = TN_NONE,
                                        .gone_at = TN_NONE, .released_at = TN_NONE};
  return TN_OK;
}

int tn__graph_init(tn__graph *graph, const tn_trace *trace, const tn_profile *profile, double host_weight, tn_error *err) {
  int rc;
  *graph = (tn__graph){.trace = trace, .profile = profile, .host_weight = host_weight, .rounds = !tn__profile_is_host(profile)};
  read_tables(graph);
  if ((rc = find_step(graph, err)) != TN_OK || (rc = find_backward(graph, err)) != TN_OK) return rc;
  if ((rc = allocate(graph)) != TN_OK) goto out;
  read_lives(graph);
  read_sources(graph);
  link_slots(graph);
  read_versions(graph);
  read_random(graph);
  rc = build_tasks(graph);
out:
  if (rc != TN_OK) {
    tn__graph_deinit(graph);
    return tn__error_set(err, rc, "%s", tn_error_text(rc));
  }
  return TN_OK;
}

void tn__graph_deinit(tn__graph *graph) {
  tn__mem_free(graph->block);
  tn__mem_free(graph->slot_next);
  tn__mem_free(graph->slot_unpacked);
  tn__mem_free(graph->slot_released);
  tn__mem_free(graph->source);
  tn__mem_free(graph->forward_ops);
  tn__mem_free(graph->op_task);
  tn__mem_free(graph->op_random);
  tn__mem_free(graph->random_probe);
  tn__mem_free(graph->tasks);
  tn__mem_free(graph->task_ops);
  tn__mem_free(graph->task_inputs);
  *graph = (tn__graph){0};
}

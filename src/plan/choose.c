/* choose.c -- see choose.h. */
#include "plan/choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "plan/flow.h"

enum { MOMENTS_MAX = 8, SCANS = 16, BISECTIONS = 10, KEEP_SWEEPS = 2, TRIES_MAX = 3000 };

/* Every n-th waist is kept, see waists_find(); 0 = none is kept. */
static const uint32_t strides[] = {0, 1, 2, 3, 4, 6, 8, 12};

#define PRICE_LOW 1e-15   /* seconds per byte: 1 us per GB */
#define PRICE_HIGH 1e-7   /* 100 s per GB: any task is worth running */
#define PICOSECONDS 1e12
#define TILT 0.03         /* earlier items earn up to this much more, so that equal layers are dropped one by one, not all at once */

typedef struct moment { /* when memory is short */
  uint32_t event;
  double weight;        /* share of the price */
  uint64_t kept_bytes;  /* live then, when everything is kept */
} moment;

typedef struct chooser {
  tn__schedule *schedule;
  tn__simulate *simulate;
  const tn__graph *graph;
  uint64_t limit_bytes;
  tn__flow flow;
  uint32_t *items; /* blocks */
  size_t item_count;
  uint32_t *item_edge; /* source edge of each item */
  uint32_t *needed_at; /* per item: event before which its bytes are free when it is dropped */
  uint32_t *item_of;   /* per block: its item, TN_NONE */
  uint8_t *best;       /* per block: the best decision so far */
  uint8_t *barrier;    /* per item: must be kept in this round */
  uint32_t *waist;     /* per item: number of the waist it crosses, TN_NONE */
  uint32_t waist_count;
  int has_barriers, is_refined;  /* is_refined: needed_at holds what a schedule showed, which is no bound */
  moment moments[MOMENTS_MAX];
  size_t moment_count;
  tn__choice choice;
} chooser;

/* ---- the cut ------------------------------------------------------------------------------------------------------------- */

/* Nodes: source, sink, then items, then tasks. */
enum { SOURCE = 0, SINK = 1, FIRST_ITEM = 2 };

static uint32_t task_node(const chooser *c, uint32_t task) { return (uint32_t)(FIRST_ITEM + c->item_count + task); }

static int build_flow(chooser *c) {
  const tn__graph *g = c->graph;
  size_t inputs = 0;
  for (size_t t = 0; t < g->task_count; t++) inputs += g->tasks[t].inputs_count;
  TN_TRY(tn__flow_init(&c->flow, FIRST_ITEM + c->item_count + g->task_count, 2 * c->item_count + g->task_count + inputs));
  for (uint32_t i = 0; i < c->item_count; i++) {
    c->item_edge[i] = tn__flow_add(&c->flow, SOURCE, FIRST_ITEM + i, 0);
    tn__flow_add(&c->flow, FIRST_ITEM + i, task_node(c, g->block[c->items[i]].task), TN_FLOW_INFINITE);
  }
  for (uint32_t t = 0; t < g->task_count; t++) {
    const tn__graph_task *task = &g->tasks[t];
    if (!task->ok) continue;
    tn__flow_add(&c->flow, task_node(c, t), SINK, (int64_t)(task->seconds * PICOSECONDS) + 1);
    for (uint32_t i = 0; i < task->inputs_count; i++) {
      const tn__graph_block *input = &g->block[g->task_inputs[task->inputs_at + i]];
      if (input->slot == TN_NONE) tn__flow_add(&c->flow, task_node(c, t), task_node(c, input->task), TN_FLOW_INFINITE);
    }
  }
  return TN_OK;
}

/* What dropping item i earns at this price, in picoseconds. */
static int64_t item_earns(const chooser *c, size_t i, double price) {
  const tn__graph *g = c->graph;
  const tn__graph_block *block = &g->block[c->items[i]];
  if (c->barrier[i]) return 0;
  double weight = 0, span = (double)(g->backward_at - g->pass_at) + 1;
  for (size_t m = 0; m < c->moment_count; m++)
    if (block->dropped_at < c->moments[m].event && c->moments[m].event < c->needed_at[i]) weight += c->moments[m].weight;
  double tilt = 1 + TILT * (double)(g->backward_at - block->dropped_at) / span;
  double earns = price * weight * tilt * (double)tn__graph_bytes(g, c->items[i]) * PICOSECONDS;
  return earns > 1e17 ? (int64_t)1e17 : (int64_t)earns;
}

/* Lagrangian bound: what the priced moments exceed the limit by costs at least the price, less what the best closure wins. */
static void note_bound(chooser *c, double price, int64_t earned, int64_t cut) {
  double bound = -(double)(earned - cut) / PICOSECONDS;
  for (size_t m = 0; m < c->moment_count; m++)
    bound += price * c->moments[m].weight * ((double)c->moments[m].kept_bytes - (double)c->limit_bytes);
  if (bound > c->choice.lower_bound_s) c->choice.lower_bound_s = bound;
}

/* The decision for an item, and for its twin in an earlier pass. */
static void decide(chooser *c, uint32_t block, int dropped) {
  uint32_t twin = c->graph->block[block].twin;
  c->schedule->dropped[block] = (uint8_t)dropped;
  if (twin != TN_NONE) c->schedule->dropped[twin] = (uint8_t)dropped;
}

static void solve_cut(chooser *c, double price) {
  int64_t earned = 0;
  for (size_t i = 0; i < c->item_count; i++) {
    int64_t earns = item_earns(c, i, price);
    tn__flow_set(&c->flow, c->item_edge[i], earns);
    earned += earns;
  }
  int64_t cut = tn__flow_run(&c->flow, SOURCE, SINK);
  for (uint32_t i = 0; i < c->item_count; i++)
    decide(c, c->items[i], tn__flow_reaches(&c->flow, FIRST_ITEM + i));
  if (!c->has_barriers && !c->is_refined) note_bound(c, price, earned, cut);
}

/* ---- decisions, simulated exactly ---------------------------------------------------------------------------------------- */

/* Builds and simulates schedule->dropped; remembers it when it is the best so far.  1 when it stays within the limit. */
static int evaluate(chooser *c) {
  tn__schedule_build(c->schedule);
  tn__simulate_run(c->simulate, c->schedule, NULL);
  uint64_t peak = c->simulate->peak_bytes;
  int fits = peak <= c->limit_bytes;
  int better = fits ? !c->choice.fits || c->schedule->seconds < c->choice.seconds : !c->choice.fits && peak < c->choice.peak_bytes;
  if (peak < c->choice.smallest_bytes) c->choice.smallest_bytes = peak;
  if (better) {
    c->choice.fits = fits;
    c->choice.peak_bytes = peak;
    c->choice.peak_event = c->simulate->peak_event;
    c->choice.seconds = c->schedule->seconds;
    memcpy(c->best, c->schedule->dropped, c->graph->block_count);
  }
  return fits;
}

static int evaluate_price(chooser *c, double price) {
  solve_cut(c, price);
  return evaluate(c);
}

/* Live bytes at an event when everything is kept. */
static uint64_t kept_bytes_at(chooser *c, uint32_t event) {
  memset(c->schedule->dropped, 0, c->graph->block_count);
  tn__schedule_build(c->schedule);
  tn__simulate_until(c->simulate, c->schedule, event + 1, NULL);
  return c->simulate->live_bytes;
}

/* Gives the moment a price, or a higher one.  0 when there is no room for another. */
static int add_moment(chooser *c, uint32_t event) {
  double highest = 1;
  for (size_t m = 0; m < c->moment_count; m++) {
    if (c->moments[m].event == event) {
      c->moments[m].weight *= 1.6;
      return 1;
    }
    if (c->moments[m].weight > highest) highest = c->moments[m].weight;
  }
  if (c->moment_count == MOMENTS_MAX) return 0;
  c->moments[c->moment_count] = (moment){.event = event, .weight = highest, .kept_bytes = kept_bytes_at(c, event)};
  c->moment_count++;
  return 1;
}

/* Dropped bytes come back when a task that reads them runs, which may be before they are asked for themselves. */
static void note_needs(chooser *c) {
  const tn__schedule *s = c->schedule;
  for (size_t i = 0; i < c->item_count; i++) c->needed_at[i] = c->graph->block[c->items[i]].unpacked_at;
  for (size_t p = 0; p < s->program_count; p++)
    for (uint32_t r = s->programs[p].run_at; r < s->programs[p].run_at + s->programs[p].run_count; r++) {
      const tn_op *op = &c->graph->ops[s->runs[r].op];
      for (uint32_t o = 0; o < op->outputs_count; o++) {
        uint32_t v = c->graph->refs[op->outputs_at + o];
        uint32_t i = v == TN_NONE ? TN_NONE : c->item_of[c->graph->values[v].block];
        if (i != TN_NONE && s->programs[p].event < c->needed_at[i]) c->needed_at[i] = s->programs[p].event;
      }
    }
  c->is_refined = 1;
}

/* The lowest price at the present moments that fits: a coarse scan upwards (a high price may fit less than a moderate one, since
 * it drops what keeps the model from being made again all at once), then bisection.  Returns the moment at which the best price
 * just too low is short; without any that fits, the moment at which the smallest plan is. */
static uint32_t search_price(chooser *c) {
  double low = log(PRICE_LOW), high = 0;
  uint32_t peak = 0;
  uint64_t smallest = UINT64_MAX;
  int found = 0;
  for (int i = 0; i <= SCANS && !found; i++) {
    double price = log(PRICE_LOW) + (log(PRICE_HIGH) - log(PRICE_LOW)) * i / SCANS;
    found = evaluate_price(c, exp(price));
    if (found) high = price;
    else low = price;
    if (c->simulate->peak_bytes < smallest || found) {
      smallest = c->simulate->peak_bytes;
      peak = c->simulate->peak_event;
    }
  }
  for (int i = 0; found && i < BISECTIONS; i++) {
    double middle = (low + high) / 2;
    if (evaluate_price(c, exp(middle))) {
      high = middle;
    } else {
      low = middle;
      peak = c->simulate->peak_event;
    }
  }
  return peak;
}

/* ---- barriers ------------------------------------------------------------------------------------------------------------ */

/* A waist is a place between two ops of the forward pass where what later ops still read is small and can be kept: the ends of
 * layers, mostly.  Without barriers a high price drops the inputs of layers as well, and the first slot asked for makes the
 * whole model again at once. */

static int crosses(const tn__graph *g, const uint32_t *made_at, const uint32_t *read_at, uint32_t block, uint32_t n) {
  return g->block[block].in_pass && made_at[block] <= n && read_at[block] > n;
}

/* Positions in forward order at which each block is made and last read. */
static void waists_read(const chooser *c, uint32_t *made_at, uint32_t *read_at) {
  const tn__graph *g = c->graph;
  for (uint32_t n = 0; n < g->forward_count; n++) {
    const tn_op *op = &g->ops[g->forward_ops[n]];
    if (op->pass != g->pass) continue;
    for (uint32_t i = 0; i < op->inputs_count; i++)
      if (g->refs[op->inputs_at + i] != TN_NONE) read_at[g->values[g->refs[op->inputs_at + i]].block] = n;
    for (uint32_t i = 0; i < op->outputs_count; i++) {
      uint32_t v = g->refs[op->outputs_at + i];
      if (v != TN_NONE && made_at[g->values[v].block] == TN_NONE) made_at[g->values[v].block] = n;
    }
  }
}

/* Bytes that cross after each op, in crossing[]; UINT64_MAX where something crosses that has no slot to keep it. */
static void waists_weigh(const chooser *c, const uint32_t *made_at, const uint32_t *read_at, uint64_t *crossing) {
  const tn__graph *g = c->graph;
  for (uint32_t b = 0; b < g->block_count; b++) {
    if (!g->block[b].in_pass || made_at[b] == TN_NONE) continue;
    for (uint32_t n = made_at[b]; n < read_at[b] && n < g->forward_count; n++) {
      if (g->block[b].slot == TN_NONE && tn__graph_bytes(g, b) > 4096) crossing[n] = UINT64_MAX;
      else if (crossing[n] != UINT64_MAX) crossing[n] += tn__graph_bytes(g, b);
    }
  }
}

static void waists_number(chooser *c, const uint32_t *made_at, const uint32_t *read_at, const uint64_t *crossing) {
  const tn__graph *g = c->graph;
  for (uint32_t n = 1; n + 1 < g->forward_count; n++) {
    if (g->ops[g->forward_ops[n]].pass != g->pass || !crossing[n] || crossing[n] == UINT64_MAX) continue;
    if (crossing[n] > crossing[n - 1] || crossing[n] >= crossing[n + 1]) continue;
    for (size_t i = 0; i < c->item_count; i++)
      if (crosses(g, made_at, read_at, c->items[i], n)) c->waist[i] = c->waist_count;
    c->waist_count++;
  }
}

static int waists_find(chooser *c) {
  size_t blocks = c->graph->block_count + 1, ops = c->graph->forward_count + 1;
  uint32_t *made_at = tn__mem_alloc(blocks * sizeof *made_at), *read_at = tn__mem_zalloc(blocks, sizeof *read_at);
  uint64_t *crossing = tn__mem_zalloc(ops, sizeof *crossing);
  int rc = made_at && read_at && crossing ? TN_OK : TN_ENOMEM;
  if (rc == TN_OK) {
    memset(made_at, 0xff, blocks * sizeof *made_at);
    waists_read(c, made_at, read_at);
    waists_weigh(c, made_at, read_at, crossing);
    waists_number(c, made_at, read_at, crossing);
  }
  tn__mem_free(made_at);
  tn__mem_free(read_at);
  tn__mem_free(crossing);
  return rc;
}

static void raise_barriers(chooser *c, uint32_t stride) {
  c->has_barriers = stride != 0;
  for (size_t i = 0; i < c->item_count; i++)
    c->barrier[i] = stride && c->waist[i] != TN_NONE && c->waist[i] % stride == 0;
}

/* ---- the last stage: keep again what there is room for ------------------------------------------------------------------- */

typedef struct candidate { uint32_t block; double rate; } candidate;

static int compare_rates(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->rate != y->rate) return x->rate < y->rate ? 1 : -1;
  return (x->block > y->block) - (x->block < y->block);
}

static int keep_again(chooser *c) {
  candidate *order = tn__mem_zalloc(c->item_count + 1, sizeof *order);
  size_t count = 0;
  if (!order) return TN_ENOMEM;
  for (size_t i = 0; i < c->item_count; i++) {
    uint32_t b = c->items[i];
    if (!c->best[b]) continue;
    order[count++] = (candidate){b, c->graph->tasks[c->graph->block[b].task].seconds / ((double)tn__graph_bytes(c->graph, b) + 1)};
  }
  qsort(order, count, sizeof *order, compare_rates);
  for (int sweep = 0; sweep < KEEP_SWEEPS; sweep++)
    for (size_t i = 0; i < count; i++) {
      if (!c->best[order[i].block]) continue;
      memcpy(c->schedule->dropped, c->best, c->graph->block_count);
      decide(c, order[i].block, 0);
      evaluate(c);
    }
  tn__mem_free(order);
  return TN_OK;
}

/* When nothing fits yet: drops or keeps single items as long as the peak falls. */
static void lower_peak(chooser *c) {
  int gained = 1;
  for (int tries = 0; gained && !c->choice.fits && tries < TRIES_MAX;) {
    gained = 0;
    for (size_t i = 0; i < c->item_count && !c->choice.fits && tries < TRIES_MAX; i++, tries++) {
      uint64_t before = c->choice.peak_bytes;
      memcpy(c->schedule->dropped, c->best, c->graph->block_count);
      decide(c, c->items[i], !c->best[c->items[i]]);
      evaluate(c);
      gained |= c->choice.peak_bytes < before;
    }
  }
}

/* ---- all together -------------------------------------------------------------------------------------------------------- */

static int chooser_init(chooser *c, tn__schedule *schedule, tn__simulate *simulate, uint64_t limit_bytes) {
  const tn__graph *g = schedule->graph;
  *c = (chooser){.schedule = schedule, .simulate = simulate, .graph = g, .limit_bytes = limit_bytes};
  c->choice = (tn__choice){.peak_bytes = UINT64_MAX, .smallest_bytes = UINT64_MAX};
  for (uint32_t b = 0; b < g->block_count; b++) c->item_count += g->block[b].is_item;
  size_t items = c->item_count + 1, blocks = g->block_count + 1;
  c->items = tn__mem_zalloc(items, sizeof *c->items);
  c->item_edge = tn__mem_zalloc(items, sizeof *c->item_edge);
  c->needed_at = tn__mem_zalloc(items, sizeof *c->needed_at);
  c->barrier = tn__mem_zalloc(items, 1);
  c->waist = tn__mem_alloc(items * sizeof *c->waist);
  c->item_of = tn__mem_alloc(blocks * sizeof *c->item_of);
  c->best = tn__mem_zalloc(blocks, 1);
  if (!c->items || !c->item_edge || !c->needed_at || !c->barrier || !c->waist || !c->item_of || !c->best) return TN_ENOMEM;
  memset(c->waist, 0xff, items * sizeof *c->waist);
  memset(c->item_of, 0xff, blocks * sizeof *c->item_of);
  uint32_t n = 0;
  for (uint32_t b = 0; b < g->block_count; b++)
    if (g->block[b].is_item) {
      c->item_of[b] = n;
      c->items[n++] = b;
    }
  TN_TRY(build_flow(c));
  return waists_find(c);
}

static void chooser_deinit(chooser *c) {
  tn__flow_deinit(&c->flow);
  tn__mem_free(c->items);
  tn__mem_free(c->item_edge);
  tn__mem_free(c->needed_at);
  tn__mem_free(c->barrier);
  tn__mem_free(c->waist);
  tn__mem_free(c->item_of);
  tn__mem_free(c->best);
}

/* Rounds of pricing under one set of barriers: each prices the moment that was short last, until a round gains nothing. */
static void search_prices(chooser *c, uint32_t peak) {
  c->moment_count = 0;
  c->is_refined = 0;
  for (size_t i = 0; i < c->item_count; i++) c->needed_at[i] = c->graph->block[c->items[i]].unpacked_at;
  for (int round = 0; round < MOMENTS_MAX; round++) {
    tn__choice before = c->choice;
    if (!add_moment(c, peak)) break;
    peak = search_price(c);
    int gained = c->choice.fits != before.fits || (c->choice.fits && c->choice.seconds < before.seconds * 0.999) ||
                 (!c->choice.fits && c->choice.peak_bytes < before.peak_bytes);
    if (round && !gained) break;
    note_needs(c);
  }
}

int tn__choose(tn__schedule *schedule, tn__simulate *simulate, uint64_t limit_bytes, tn__choice *out) {
  chooser c;
  int rc = chooser_init(&c, schedule, simulate, limit_bytes);
  if (rc == TN_OK && !evaluate(&c)) { /* nothing dropped yet */
    uint32_t peak = simulate->peak_event;
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
      if (strides[i] > 1 && strides[i] >= c.waist_count) break;
      raise_barriers(&c, strides[i]);
      search_prices(&c, peak);
    }
    if (!c.choice.fits) lower_peak(&c);
    if (c.choice.fits) rc = keep_again(&c);
  }
  if (rc == TN_OK) {
    memcpy(schedule->dropped, c.best, c.graph->block_count);
    tn__schedule_build(schedule);
    *out = c.choice;
  }
  chooser_deinit(&c);
  return rc;
}

/* choose.c -- see choose.h. */
#include "plan/choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "plan/flow.h"

enum { MOMENTS_MAX = 24, BISECTIONS = 18, KEEP_SWEEPS = 2 };

#define PRICE_LOW 1e-16   /* seconds per byte: 0.1 us per GB */
#define PRICE_HIGH 1e-6   /* 1000 s per GB: any task is worth running */
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
  uint8_t *best;       /* per block: the best decision so far */
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
  note_bound(c, price, earned, cut);
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

/* The lowest price at the present moments that fits.  Returns the moment at which the best price just too low peaks. */
static uint32_t bisect_price(chooser *c) {
  double low = log(PRICE_LOW), high = log(PRICE_HIGH);
  if (!evaluate_price(c, PRICE_HIGH)) return c->simulate->peak_event;
  uint32_t peak = c->simulate->peak_event;
  for (int i = 0; i < BISECTIONS; i++) {
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

/* ---- all together -------------------------------------------------------------------------------------------------------- */

static int chooser_init(chooser *c, tn__schedule *schedule, tn__simulate *simulate, uint64_t limit_bytes) {
  const tn__graph *g = schedule->graph;
  *c = (chooser){.schedule = schedule, .simulate = simulate, .graph = g, .limit_bytes = limit_bytes};
  c->choice = (tn__choice){.peak_bytes = UINT64_MAX, .smallest_bytes = UINT64_MAX};
  for (uint32_t b = 0; b < g->block_count; b++) c->item_count += g->block[b].is_item;
  c->items = tn__mem_zalloc(c->item_count + 1, sizeof *c->items);
  c->item_edge = tn__mem_zalloc(c->item_count + 1, sizeof *c->item_edge);
  c->needed_at = tn__mem_zalloc(c->item_count + 1, sizeof *c->needed_at);
  c->best = tn__mem_zalloc(g->block_count + 1, 1);
  if (!c->items || !c->item_edge || !c->needed_at || !c->best) return TN_ENOMEM;
  size_t n = 0;
  for (uint32_t b = 0; b < g->block_count; b++)
    if (g->block[b].is_item) {
      c->needed_at[n] = g->block[b].unpacked_at;
      c->items[n++] = b;
    }
  return build_flow(c);
}

static void chooser_deinit(chooser *c) {
  tn__flow_deinit(&c->flow);
  tn__mem_free(c->items);
  tn__mem_free(c->item_edge);
  tn__mem_free(c->needed_at);
  tn__mem_free(c->best);
}

/* Rounds of pricing: each adds the moment that was short last, until a round changes nothing. */
static void search_prices(chooser *c) {
  uint32_t peak = c->simulate->peak_event;
  for (int round = 0; round < MOMENTS_MAX; round++) {
    tn__choice before = c->choice;
    if (!add_moment(c, peak)) break;
    peak = bisect_price(c);
    int gained = c->choice.fits > before.fits || c->choice.seconds < before.seconds * 0.999 || c->choice.peak_bytes < before.peak_bytes;
    if (c->choice.fits && !gained && round > 3) break;
  }
}

int tn__choose(tn__schedule *schedule, tn__simulate *simulate, uint64_t limit_bytes, tn__choice *out) {
  chooser c;
  int rc = chooser_init(&c, schedule, simulate, limit_bytes);
  if (rc == TN_OK && !evaluate(&c)) { /* nothing dropped yet */
    search_prices(&c);
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

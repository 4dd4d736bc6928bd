/* choose.c -- see choose.h. */
#include "plan/choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "plan/flow.h"
#include "plan/waist.h"

enum { WINDOWS = 64, SCANS = 16, BISECTIONS = 10, ASCENTS = 40, KEEP_SWEEPS = 2, TRIES_MAX = 3000 };

/* Blocks across every n-th waist are kept; 0 = none has to be. */
static const uint32_t strides[] = {0, 1, 2, 3, 4, 6, 8, 12};

#define PRICE_LOW 1e-15   /* seconds per byte: 1 us per GB */
#define PRICE_HIGH 1e-7   /* 100 s per GB: any task is worth running */
#define PICOSECONDS 1e12
#define TILT 0.03         /* earlier items earn up to this much more, so that equal layers are dropped one by one, not all at once */

typedef struct window { /* a stretch of the step, priced at the event where it needs most */
  uint32_t first, end, event;
  double price;         /* seconds per byte */
} window;

typedef struct chooser {
  tn__schedule *schedule;
  tn__simulate *simulate;
  const tn__graph *graph;
  uint64_t limit_bytes;
  tn__flow flow;
  uint32_t *items; /* blocks */
  size_t item_count;
  uint32_t *item_edge;     /* source edge of each item */
  uint32_t *item_of;       /* per block: its item, TN_NONE */
  uint32_t *needed_at;     /* per item: event before which its bytes are free when it is dropped */
  uint32_t *waist;         /* per block */
  uint32_t waist_count;
  uint8_t *is_barrier;     /* per item: must be kept in this round */
  uint8_t *best;           /* per block: the best decision so far */
  uint64_t *kept_profile;  /* per event: live bytes when everything is kept */
  window windows[WINDOWS];
  /* Each makes the cut no bound: some items must be kept; needed_at holds what a schedule showed; sums would overflow, or the limit is lower
   * than the one asked for. */
  int has_barriers, is_refined, is_unbound;
  uint32_t barriers; /* index into strides */
  tn__choice choice;
} chooser;

/* ---- the cut ------------------------------------------------------------------------------------------------------------- */

/* Nodes: source, sink, then items, then tasks. */
enum { SOURCE = 0, SINK = 1, FIRST_ITEM = 2 };

/* No more than its share of what edges can carry, so that sums do not overflow. */
static int64_t picoseconds(chooser *c, double seconds) {
  double most = (double)TN_FLOW_INFINITE / (double)(c->item_count + c->graph->task_count + 1);
  if (seconds * PICOSECONDS < most) return (int64_t)(seconds * PICOSECONDS);
  c->is_unbound = 1;
  return (int64_t)most;
}

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
    tn__flow_add(&c->flow, task_node(c, t), SINK, picoseconds(c, task->seconds));
    for (uint32_t i = 0; i < task->inputs_count; i++) {
      const tn__graph_block *input = &g->block[g->task_inputs[task->inputs_at + i]];
      if (input->source_slot == TN_NONE) tn__flow_add(&c->flow, task_node(c, t), task_node(c, input->task), TN_FLOW_INFINITE);
    }
  }
  return TN_OK;
}

/* Does the event need less when item i is dropped?  From its last use forward to its first use backward, and while autograd would still
 * keep what backward has done with. */
static int is_away(const chooser *c, size_t i, uint32_t event) {
  const tn__graph_block *block = &c->graph->block[c->items[i]];
  return (block->dropped_at < event && event < c->needed_at[i]) || (block->gone_at < event && event < block->released_at);
}

/* What dropping item i earns, in picoseconds. */
static int64_t item_earns(chooser *c, size_t i) {
  const tn__graph *g = c->graph;
  const tn__graph_block *block = &g->block[c->items[i]];
  if (c->is_barrier[i]) return 0;
  double price = 0, span = (double)(g->backward_at - g->pass_at) + 1;
  for (const window *w = c->windows; w < c->windows + WINDOWS; w++)
    if (is_away(c, i, w->event)) price += w->price;
  double tilt = 1 + TILT * (double)(g->backward_at - block->dropped_at) / span;
  return picoseconds(c, price * tilt * (double)g->block[c->items[i]].bytes);
}

/* Lagrangian bound: what the priced events need beyond the limit costs its price, less what the best closure wins. */
static void note_bound(chooser *c, int64_t earned, int64_t cut) {
  double bound = -(double)(earned - cut) / PICOSECONDS;
  for (const window *w = c->windows; w < c->windows + WINDOWS; w++)
    if (w->price > 0) bound += w->price * ((double)c->kept_profile[w->event] - (double)c->limit_bytes);
  if (bound > c->choice.lower_bound_s) c->choice.lower_bound_s = bound;
}

/* The decision for an item, and for its twin in an earlier pass. */
static void decide(chooser *c, uint32_t block, int dropped) {
  uint32_t twin = c->graph->block[block].twin;
  c->schedule->dropped[block] = (uint8_t)dropped;
  if (twin != TN_NONE) c->schedule->dropped[twin] = (uint8_t)dropped;
}

static void solve_cut(chooser *c) {
  int64_t earned = 0;
  for (size_t i = 0; i < c->item_count; i++) {
    int64_t earns = item_earns(c, i);
    tn__flow_set(&c->flow, c->item_edge[i], earns);
    earned += earns;
  }
  int64_t cut = tn__flow_run(&c->flow, SOURCE, SINK);
  for (uint32_t i = 0; i < c->item_count; i++) decide(c, c->items[i], tn__flow_reaches(&c->flow, FIRST_ITEM + i));
  if (!c->has_barriers && !c->is_refined && !c->is_unbound) note_bound(c, earned, cut);
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
    c->choice.barriers = c->barriers;
    memcpy(c->best, c->schedule->dropped, c->graph->block_count);
  }
  return fits;
}

static int solve_and_evaluate(chooser *c) {
  solve_cut(c);
  return evaluate(c);
}

/* ---- prices -------------------------------------------------------------------------------------------------------------- */

/* Each window's event is where the last simulation needed most in it. */
static void move_events(chooser *c) {
  for (window *w = c->windows; w < c->windows + WINDOWS; w++)
    for (uint32_t e = w->first; e < w->end; e++)
      if (c->simulate->profile[e] > c->simulate->profile[w->event] || w->event < w->first) w->event = e;
}

static void set_windows(chooser *c) {
  uint32_t first = c->graph->pass_at, span = c->graph->event_end - first;
  for (uint32_t i = 0; i < WINDOWS; i++) {
    c->windows[i].first = first + (uint32_t)((uint64_t)span * i / WINDOWS);
    c->windows[i].end = first + (uint32_t)((uint64_t)span * (i + 1) / WINDOWS);
    c->windows[i].event = c->windows[i].first;
    c->windows[i].price = 0;
  }
}

static window *window_of(chooser *c, uint32_t event) {
  for (window *w = c->windows; w < c->windows + WINDOWS; w++)
    if (w->first <= event && event < w->end) return w;
  return &c->windows[0];
}

/* One price, at the event where memory is shortest: a coarse scan upwards (a high price may fit less than a moderate one, since
 * it drops what keeps the model from being made again all at once), then bisection.  Leaves the lowest price that fits, or the
 * one with the smallest peak. */
static void search_price(chooser *c, window *at) {
  double low = log(PRICE_LOW), high = 0, best = low;
  uint64_t smallest = UINT64_MAX;
  int found = 0;
  for (int i = 0; i <= SCANS && !found; i++) {
    double price = log(PRICE_LOW) + (log(PRICE_HIGH) - log(PRICE_LOW)) * i / SCANS;
    at->price = exp(price);
    found = solve_and_evaluate(c);
    if (found) high = price;
    else low = price;
    if (c->simulate->peak_bytes < smallest) {
      smallest = c->simulate->peak_bytes;
      best = price;
    }
  }
  for (int i = 0; found && i < BISECTIONS; i++) {
    double middle = (low + high) / 2;
    at->price = exp(middle);
    if (solve_and_evaluate(c)) high = middle;
    else low = middle;
  }
  at->price = exp(found ? high : best);
}

/* Dropped bytes come back when a task that reads them runs, which may be before they are asked for themselves. */
static void note_needs(chooser *c) {
  const tn__schedule *s = c->schedule;
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

static void forget_needs(chooser *c) {
  for (size_t i = 0; i < c->item_count; i++) c->needed_at[i] = c->graph->block[c->items[i]].unpacked_at;
  c->is_refined = 0;
}

/* A step of the dual: prices rise where the last plan needed more than the limit and fall where it left room. */
static void adjust_prices(chooser *c, double rate) {
  double sum = 0, largest = 0, limit = (double)c->limit_bytes;
  move_events(c);
  for (const window *w = c->windows; w < c->windows + WINDOWS; w++) {
    double over = (double)c->simulate->profile[w->event] - limit;
    sum += w->price;
    if ((over > 0 || w->price > 0) && fabs(over) > largest) largest = fabs(over);
  }
  if (largest <= 0) return;
  for (window *w = c->windows; w < c->windows + WINDOWS; w++) {
    double over = (double)c->simulate->profile[w->event] - limit;
    if (over > 0 || w->price > 0) w->price += rate * sum * over / largest;
    w->price = w->price < 0 ? 0 : fmin(w->price, PRICE_HIGH);
  }
}

/* Ascends from the one price: every second cut knows when the last schedule needed its blocks back, the others give bounds. */
static void ascend(chooser *c) {
  double rate = 0.3;
  for (int i = 0; i < ASCENTS; i++, rate *= 0.95) {
    adjust_prices(c, rate);
    forget_needs(c);
    if (i % 2) note_needs(c);
    solve_and_evaluate(c);
  }
}

static void search_prices(chooser *c, uint32_t peak) {
  set_windows(c);
  forget_needs(c);
  window *at = window_of(c, peak);
  at->event = peak;
  search_price(c, at);
  solve_and_evaluate(c);
  ascend(c);
}

/* ---- barriers ------------------------------------------------------------------------------------------------------------ */

static void raise_barriers(chooser *c, uint32_t barriers) {
  uint32_t stride = strides[barriers];
  c->barriers = barriers;
  c->has_barriers = stride != 0;
  for (size_t i = 0; i < c->item_count; i++) {
    uint32_t waist = c->waist[c->items[i]];
    c->is_barrier[i] = stride && waist != TN_NONE && waist % stride == 0;
  }
}

/* ---- the last stages ----------------------------------------------------------------------------------------------------- */

typedef struct candidate { uint32_t block; double rate; } candidate;

static int compare_rates(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->rate != y->rate) return x->rate < y->rate ? 1 : -1;
  return (x->block > y->block) - (x->block < y->block);
}

/* Keeps again, one by one, what the limit leaves room for, the dearest bytes first. */
static int keep_again(chooser *c) {
  candidate *order = tn__mem_zalloc(c->item_count + 1, sizeof *order);
  size_t count = 0;
  if (!order) return TN_ENOMEM;
  for (size_t i = 0; i < c->item_count; i++) {
    uint32_t b = c->items[i];
    if (!c->best[b]) continue;
    order[count++] = (candidate){b, c->graph->tasks[c->graph->block[b].task].seconds / ((double)c->graph->block[b].bytes + 1)};
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
  c->is_barrier = tn__mem_zalloc(items, 1);
  c->waist = tn__mem_alloc(blocks * sizeof *c->waist);
  c->item_of = tn__mem_alloc(blocks * sizeof *c->item_of);
  c->best = tn__mem_zalloc(blocks, 1);
  c->kept_profile = tn__mem_zalloc(g->event_count + 1, sizeof *c->kept_profile);
  if (!c->items || !c->item_edge || !c->needed_at || !c->is_barrier || !c->waist || !c->item_of || !c->best || !c->kept_profile)
    return TN_ENOMEM;
  memset(c->item_of, 0xff, blocks * sizeof *c->item_of);
  uint32_t n = 0;
  for (uint32_t b = 0; b < g->block_count; b++)
    if (g->block[b].is_item) {
      c->item_of[b] = n;
      c->items[n++] = b;
    }
  TN_TRY(build_flow(c));
  return tn__waists_find(g, c->waist, &c->waist_count);
}

static void chooser_deinit(chooser *c) {
  tn__flow_deinit(&c->flow);
  tn__mem_free(c->items);
  tn__mem_free(c->item_edge);
  tn__mem_free(c->needed_at);
  tn__mem_free(c->is_barrier);
  tn__mem_free(c->waist);
  tn__mem_free(c->item_of);
  tn__mem_free(c->best);
  tn__mem_free(c->kept_profile);
}

/* With nothing dropped; 1 when that fits already. */
static int evaluate_kept(chooser *c) {
  memset(c->schedule->dropped, 0, c->graph->block_count);
  int fits = evaluate(c);
  memcpy(c->kept_profile, c->simulate->profile, c->graph->event_count * sizeof *c->kept_profile);
  return fits;
}

/* Where the last pass needs most when everything is kept: items have prices there only, their twins follow. */
static uint32_t kept_peak(const chooser *c) {
  uint32_t peak = c->graph->pass_at;
  for (uint32_t e = peak; e < c->graph->event_end; e++)
    if (c->kept_profile[e] > c->kept_profile[peak]) peak = e;
  return peak;
}

static void search_all(chooser *c) {
  uint32_t peak = kept_peak(c);
  for (uint32_t i = 0; i < sizeof strides / sizeof *strides; i++) {
    if (strides[i] > 1 && strides[i] >= c->waist_count) break;
    raise_barriers(c, i);
    search_prices(c, peak);
  }
}

static void search_near(chooser *c, const tn__choice *near) {
  uint32_t peak = kept_peak(c);
  raise_barriers(c, 0);
  search_prices(c, peak);
  if (!near->barriers) return;
  raise_barriers(c, near->barriers);
  search_prices(c, peak);
}

/* Prices are set by how much is over the limit: for one just above the smallest peak they may stay too low to find it.  So when nothing
 * fits, the smallest peak of all is looked for, from the start; perhaps it does.  TN_ENOMEM. */
static int search_smallest(chooser *c) {
  tn__choice before = c->choice;
  uint64_t limit = c->limit_bytes;
  uint8_t *best_before = tn__mem_alloc(c->graph->block_count + 1);
  if (!best_before) return TN_ENOMEM;
  memcpy(best_before, c->best, c->graph->block_count);
  c->choice.peak_bytes = UINT64_MAX;
  c->limit_bytes = 0;
  c->is_unbound = 1;
  search_all(c);
  lower_peak(c);
  c->limit_bytes = limit;
  if (c->choice.peak_bytes > before.peak_bytes) {
    before.smallest_bytes = c->choice.smallest_bytes;
    c->choice = before;
    memcpy(c->best, best_before, c->graph->block_count);
  }
  c->choice.fits = c->choice.peak_bytes <= limit;
  tn__mem_free(best_before);
  return TN_OK;
}

int tn__choose(tn__schedule *schedule, tn__simulate *simulate, uint64_t limit_bytes, const tn__choice *near, tn__choice *out) {
  chooser c;
  int rc = chooser_init(&c, schedule, simulate, limit_bytes);
  if (rc == TN_OK && !evaluate_kept(&c)) {
    if (near) search_near(&c, near);
    else search_all(&c);
    if (!c.choice.fits) lower_peak(&c);
    if (!c.choice.fits && !near) rc = search_smallest(&c);
    if (rc == TN_OK && c.choice.fits) rc = keep_again(&c);
  }
  if (rc == TN_OK) {
    memcpy(schedule->dropped, c.best, c.graph->block_count);
    tn__schedule_build(schedule);
    *out = c.choice;
  }
  chooser_deinit(&c);
  return rc;
}

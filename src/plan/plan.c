/* plan.c -- a plan for one trace: choose, then ask the caching model whether the blocks also fit in segments.
 *
 * Why the loop: the limit is on reserved memory, the choice is about allocated memory, and what lies between them, the
 * allocator's waste, depends on the choice.  Each round makes room for what the last one wasted, at the moments when it did; where that
 * is dear or in vain, each lowers the target of the whole step instead. */
#include "tonnage.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "plan/choose.h"
#include "plan/pass_json.h"
#include "plan/profile.h"
#include "plan/steptime.h"

enum { TIGHTENINGS = 8, MARGIN_RAISES = 10, MARGIN_STEP_BYTES = 20 << 20, REPLAYED_STEPS = 2 };

#define DEAR 1.25 /* times what the choice would cost if nothing were wasted: try the other way to make room, too */

struct tn_plan {
  tn__graph graph;
  tn__schedule schedule;
  tn__simulate simulate;
  tn__choice choice;
  uint64_t *needed; /* per event: the limit that its allocations needed where they grew the segments in the last replay, else 0 */
  tn_plan_result result;
};

/* ---- reserved: the step, replayed through the caching model -------------------------------------------------------------- */

typedef struct replay {
  tn_caching *caching;
  tn_addr *addr; /* per key, 0: not live */
  const tn__simulate *simulate;
  uint64_t *needed;     /* see tn_plan; NULL: not asked for */
  uint64_t step_needed; /* by the step so far */
  uint64_t most_needed; /* by any step so far */
} replay;

static int replay_alloc(void *user, uint32_t key, uint64_t bytes) {
  replay *r = user;
  int rc = tn_caching_alloc(r->caching, bytes, 0, &r->addr[key]);
  uint64_t needed = tn_caching_limit_needed(r->caching);
  if (needed > r->step_needed) r->step_needed = needed;
  if (needed <= r->most_needed) return rc;
  r->most_needed = needed;
  if (r->needed) r->needed[r->simulate->event] = needed;
  return rc;
}

static int replay_free(void *user, uint32_t key) {
  replay *r = user;
  tn_addr addr = r->addr[key];
  r->addr[key] = 0;
  return tn_caching_dealloc(r->caching, addr);
}

/* Makes the live blocks those that live when a step begins, in the order of their making. */
static int replay_start(replay *r, const tn_plan *plan) {
  const tn__graph *g = &plan->graph;
  for (uint32_t b = 0; b < g->block_count; b++) {
    int starts = tn__simulate_starts_with(&plan->simulate, b) && !(g->blocks[b].flags & TN_BLOCK_HOST);
    for (uint32_t key = 2 * b; key <= 2 * b + 1; key++)
      if (r->addr[key] && !(starts && key == 2 * b)) TN_TRY(replay_free(r, key));
  }
  for (uint32_t b = 0; b < g->block_count; b++) {
    int starts = tn__simulate_starts_with(&plan->simulate, b) && !(g->blocks[b].flags & TN_BLOCK_HOST);
    if (starts && !r->addr[2 * b]) TN_TRY(replay_alloc(r, 2 * b, g->blocks[b].bytes));
  }
  return TN_OK;
}

typedef struct replayed {
  uint64_t reserved_bytes, limit_needed_bytes; /* peak of all steps; of the last one */
  uint64_t retries;                            /* of the last step */
  int oom;
} replayed;

static uint64_t retries_of(const tn_caching *caching) {
  tn_caching_stats stats;
  tn_caching_get_stats(caching, &stats);
  return stats.num_alloc_retries;
}

static int replay_steps(replay *r, tn_plan *plan, replayed *out) {
  tn__simulate_sink sink = {.user = r, .alloc = replay_alloc, .free = replay_free};
  tn_caching_stats stats;
  for (int step = 0; step < REPLAYED_STEPS; step++) {
    uint64_t retries = retries_of(r->caching);
    (void)tn_caching_limit_needed(r->caching);
    r->step_needed = 0;
    TN_TRY(replay_start(r, plan));
    TN_TRY(tn__simulate_run(&plan->simulate, &plan->schedule, &sink));
    out->limit_needed_bytes = r->step_needed;
    out->retries = retries_of(r->caching) - retries;
  }
  tn_caching_get_stats(r->caching, &stats);
  out->reserved_bytes = stats.reserved_bytes.peak;
  return TN_OK;
}

/* The step, repeated, under a limit (0 = none). */
static int replay_plan(tn_plan *plan, const tn_plan_options *options, uint64_t limit_bytes, replayed *out) {
  tn_caching_config config = {.total_bytes = plan->graph.profile->total_bytes, .limit_bytes = limit_bytes,
                              .conf.expandable_segments = options->expandable_segments != 0};
  replay r = {.simulate = &plan->simulate, .needed = limit_bytes ? NULL : plan->needed};
  if (r.needed) memset(r.needed, 0, plan->graph.event_count * sizeof *r.needed);
  *out = (replayed){0};
  int rc = tn_caching_new(&config, &r.caching);
  r.addr = tn__mem_zalloc(2 * plan->graph.block_count + 2, sizeof *r.addr);
  if (rc == TN_OK && !r.addr) rc = TN_ENOMEM;
  if (rc == TN_OK) rc = replay_steps(&r, plan, out);
  tn__mem_free(r.addr);
  tn_caching_free(r.caching);
  out->oom = rc == TN_ELIMIT;
  return out->oom ? TN_OK : rc;
}

/* What the last choice reserves, and whether it runs within the limit without retries once the first step is over. */
static int fits_in_segments(tn_plan *plan, const tn_plan_options *options) {
  replayed free, limited;
  tn_plan_result *r = &plan->result;
  r->reserved_bytes = r->limit_needed_bytes = plan->choice.peak_bytes;
  r->fits = plan->choice.peak_bytes <= options->limit_bytes;
  if (!plan->graph.rounds) return TN_OK;
  TN_TRY(replay_plan(plan, options, 0, &free));
  r->reserved_bytes = free.reserved_bytes;
  r->limit_needed_bytes = free.limit_needed_bytes;
  r->fits = r->fits && free.limit_needed_bytes <= options->limit_bytes;
  if (!r->fits || options->limit_bytes >= plan->graph.profile->total_bytes) return TN_OK;
  TN_TRY(replay_plan(plan, options, options->limit_bytes, &limited));
  r->fits = !limited.oom && !limited.retries;
  if (r->fits) r->reserved_bytes = limited.reserved_bytes;
  else r->limit_needed_bytes = options->limit_bytes + (options->limit_bytes >> 8); /* the first step leaves another layout: a little less */
  return TN_OK;
}

/* ---- time ---------------------------------------------------------------------------------------------------------------- */

static void add_times(tn_plan *plan) {
  tn_plan_result *r = &plan->result;
  tn__steptime kept = tn__steptime_of(&plan->graph, NULL), planned = tn__steptime_of(&plan->graph, &plan->schedule);
  r->kept_first_pass = kept.first_pass;
  r->kept_last_pass = kept.last_pass;
  r->first_pass = planned.first_pass;
  r->last_pass = planned.last_pass;
  r->optimizer = kept.optimizer;
  r->extra_s = planned.last_pass.device_s - kept.last_pass.device_s;
}

/* ---- the plan ------------------------------------------------------------------------------------------------------------ */

/* The op whose outputs' allocation is the peak; TN_NONE for a rebuild or a copy outside any op. */
static void add_peak(tn_plan *plan) {
  const tn__graph *g = &plan->graph;
  uint32_t phase = TN_PHASE_FORWARD;
  plan->result.peak_op = TN_NONE;
  for (uint32_t e = plan->choice.peak_event; e < g->event_end; e++) {
    if (g->events[e].kind != TN_EVENT_OP) continue;
    if (g->events[plan->choice.peak_event].kind == TN_EVENT_ALLOC) plan->result.peak_op = g->events[e].id;
    phase = g->ops[g->events[e].id].phase;
    break;
  }
  plan->result.peak_phase = phase;
}

static void count_results(tn_plan *plan) {
  const tn__graph *g = &plan->graph;
  tn_plan_result *r = &plan->result;
  for (uint32_t k = 0; k < g->slot_count; k++) {
    if (g->slots[k].step != g->step || g->slots[k].pass != g->pass) continue;
    r->slots++;
    r->slots_rebuilt += plan->schedule.dropped[g->slots[k].block];
  }
  for (size_t i = 0; i < plan->schedule.run_count; i++) r->ops_run += g->ops[plan->schedule.runs[i].op].pass == g->pass;
}

static int choose_and_replay(tn_plan *plan, const tn_plan_options *options, uint64_t target, const tn__choice *near) {
  TN_TRY(tn__choose(&plan->schedule, &plan->simulate, target, near, &plan->choice));
  return fits_in_segments(plan, options);
}

/* By half of what an event needed too much, since another choice may waste less there, and a step at least.  1: some event needed too much. */
static int raise_margins(tn_plan *plan, uint64_t limit) {
  int raised = 0;
  for (uint32_t e = plan->graph.event_first; e < plan->graph.event_end; e++) {
    if (plan->needed[e] <= limit) continue;
    plan->simulate.margin[e] += (plan->needed[e] - limit) / 2 + MARGIN_STEP_BYTES;
    raised = 1;
  }
  return raised;
}

/* From a plan that wastes too much: room for waste only where and when it occurs, often at a few large blocks, the loss's. */
static int choose_with_margins(tn_plan *plan, const tn_plan_options *options) {
  const tn__choice first = plan->choice;
  for (int raise = 0; raise < MARGIN_RAISES && plan->choice.fits && !plan->result.fits; raise++) {
    if (!raise_margins(plan, options->limit_bytes)) break;
    TN_TRY(choose_and_replay(plan, options, options->limit_bytes, &first));
  }
  plan->result.fits = plan->result.fits && plan->choice.fits;
  memset(plan->simulate.margin, 0, plan->graph.event_count * sizeof *plan->simulate.margin);
  TN_TRY(tn__simulate_run(&plan->simulate, &plan->schedule, NULL)); /* the peak as it is, whatever room was made */
  plan->choice.peak_bytes = plan->simulate.peak_bytes;
  plan->choice.peak_event = plan->simulate.peak_event;
  plan->choice.smallest_bytes = first.smallest_bytes;
  return TN_OK;
}

/* From a plan that wastes over_bytes: room for waste at every moment of the step.  near: see tn__choose. */
static int choose_with_less(tn_plan *plan, const tn_plan_options *options, uint64_t over_bytes, const tn__choice *near) {
  uint64_t target = options->limit_bytes;
  for (int round = 1; round < TIGHTENINGS && over_bytes < target; round++) {
    target -= over_bytes;
    TN_TRY(choose_and_replay(plan, options, target, near));
    if (plan->result.fits || !plan->choice.fits) return TN_OK;
    over_bytes = (plan->result.limit_needed_bytes - options->limit_bytes) + (options->limit_bytes >> 9) * (uint64_t)round;
  }
  return TN_OK;
}

/* Decisions and what they come to, to go back to. */
typedef struct chosen {
  tn__choice choice;
  tn_plan_result result;
  uint8_t *dropped;
} chosen;

static int chosen_save(chosen *saved, const tn_plan *plan) {
  if (!(saved->dropped = tn__mem_alloc(plan->graph.block_count + 1))) return TN_ENOMEM;
  memcpy(saved->dropped, plan->schedule.dropped, plan->graph.block_count);
  saved->choice = plan->choice;
  saved->result = plan->result;
  return TN_OK;
}

static void chosen_restore(const chosen *saved, tn_plan *plan) {
  memcpy(plan->schedule.dropped, saved->dropped, plan->graph.block_count);
  tn__schedule_build(&plan->schedule);
  plan->choice = saved->choice;
  plan->result = saved->result;
}

/* Leaves the cheaper of the two ways to make room for what the allocator wastes. */
static int choose_within(tn_plan *plan, const tn_plan_options *options) {
  chosen saved = {0};
  TN_TRY(choose_and_replay(plan, options, options->limit_bytes, NULL));
  plan->result.lower_bound_s = plan->choice.lower_bound_s;
  if (plan->result.fits || !plan->choice.fits) return TN_OK;
  double unwasted_s = plan->choice.seconds;
  uint64_t over_bytes = plan->result.limit_needed_bytes - options->limit_bytes;
  TN_TRY(choose_with_margins(plan, options));
  if (plan->result.fits && plan->choice.seconds <= DEAR * unwasted_s) return TN_OK;
  TN_TRY(chosen_save(&saved, plan));
  int rc = choose_with_less(plan, options, over_bytes, saved.result.fits ? &saved.choice : NULL);
  if (rc == TN_OK && saved.result.fits && (!plan->result.fits || saved.choice.seconds <= plan->choice.seconds)) chosen_restore(&saved, plan);
  tn__mem_free(saved.dropped);
  return rc;
}

/* Peak with everything kept: the state a schedule is in before any choice. */
static int measure_kept(tn_plan *plan) {
  tn__schedule_build(&plan->schedule);
  TN_TRY(tn__simulate_run(&plan->simulate, &plan->schedule, NULL));
  plan->result.kept_bytes = plan->simulate.peak_bytes;
  return TN_OK;
}

static int plan_make(tn_plan *plan, const tn_plan_options *options) {
  tn_plan_options kept = *options;
  TN_TRY(measure_kept(plan));
  if (options->keep_all) kept.limit_bytes = UINT64_MAX;
  TN_TRY(choose_within(plan, &kept));
  if (options->keep_all) plan->result.fits = plan->result.limit_needed_bytes <= options->limit_bytes;
  plan->result.allocated_bytes = plan->choice.peak_bytes;
  plan->result.smallest_bytes = options->keep_all ? plan->result.kept_bytes : plan->choice.smallest_bytes;
  if (plan->result.lower_bound_s > plan->schedule.seconds) plan->result.lower_bound_s = plan->schedule.seconds;
  plan->result.passes = plan->graph.pass + 1;
  add_times(plan);
  add_peak(plan);
  count_results(plan);
  return TN_OK;
}

/* host_weight: what an op's host time counts for in the choice, see tn__graph.host_weight. */
static int plan_new(const tn_trace *trace, const tn_profile *profile, const tn_plan_options *options, double host_weight,
                    tn_plan **out, tn_error *err) {
  tn_plan *plan = tn__mem_zalloc(1, sizeof *plan);
  if (!plan) return tn__error_set(err, TN_ENOMEM, NULL);
  int rc = tn__graph_init(&plan->graph, trace, profile, host_weight, err);
  if (rc != TN_OK) goto out;
  rc = tn__schedule_init(&plan->schedule, &plan->graph);
  if (rc == TN_OK) rc = tn__simulate_init(&plan->simulate, &plan->graph);
  if (rc == TN_OK && !(plan->needed = tn__mem_zalloc(plan->graph.event_count + 1, sizeof *plan->needed))) rc = TN_ENOMEM;
  if (rc == TN_OK) rc = plan_make(plan, options);
  if (rc != TN_OK) tn__error_set(err, rc, NULL);
out:
  if (rc != TN_OK) {
    tn_plan_free(plan);
    return rc;
  }
  *out = plan;
  return TN_OK;
}

/* Does rebuilding cost more than its device work, because the host is late? */
static int is_host_bound(const tn_plan_result *r) {
  return r->slots_rebuilt && r->last_pass.length_s - r->kept_last_pass.length_s > 1.05 * r->extra_s;
}

/* Chooses by device time, as if the host were ahead; where it is not, once more with fewer and larger ops in mind. */
int tn_plan_new(const tn_trace *trace, const tn_profile *profile, const tn_plan_options *options, tn_plan **out, tn_error *err) {
  tn_plan *plan = NULL, *lean = NULL;
  TN_TRY(plan_new(trace, profile, options, 0, &plan, err));
  if (is_host_bound(&plan->result)) {
    int rc = plan_new(trace, profile, options, 1, &lean, err);
    if (rc != TN_OK) {
      tn_plan_free(plan);
      return rc;
    }
    if (lean->result.fits >= plan->result.fits && lean->result.last_pass.length_s < plan->result.last_pass.length_s) {
      tn_plan *slower = plan;
      lean->result.lower_bound_s = plan->result.lower_bound_s;
      plan = lean;
      lean = slower;
    }
  }
  tn_plan_free(lean);
  *out = plan;
  return TN_OK;
}

void tn_plan_free(tn_plan *plan) {
  if (!plan) return;
  tn__mem_free(plan->needed);
  tn__simulate_deinit(&plan->simulate);
  tn__schedule_deinit(&plan->schedule);
  tn__graph_deinit(&plan->graph);
  tn__mem_free(plan);
}

void tn_plan_get_result(const tn_plan *plan, tn_plan_result *out) { *out = plan->result; }

int tn_plan_pass_json(const tn_plan *plan, char **out) {
  tn_text text;
  tn__text_init(&text);
  tn__text_add(&text, "{");
  int rc = tn__pass_json(&plan->schedule, &text);
  tn__text_add(&text, "}");
  if (rc == TN_OK) rc = tn__text_take(&text, out);
  tn__text_deinit(&text);
  return rc;
}

int tn_plan_rebuilt_json(const tn_plan *plan, char **out) {
  tn_text text;
  tn__text_init(&text);
  int rc = tn__rebuilt_json(&plan->schedule, &text);
  if (rc == TN_OK) rc = tn__text_take(&text, out);
  tn__text_deinit(&text);
  return rc;
}

/* estimate.c -- replay of block lives through the caching model.
 *
 *   events --tn__lives()--> taken / given back --tn_caching--> allocated, reserved --window of the asked step--> tn_peak
 *
 * A run does not end with the trace: its last step is repeated until the allocator asks for no more segments, since what it
 * holds after one step is not always where the next one's blocks fit best.
 *
 * What a block adds to the allocated bytes is asked of the model after each allocation, not computed by rounding: the
 * allocator also hands out blocks whose remainder is too small to split off.  So the categories add up to its own figure. */
#include "plan/estimate.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "plan/profile.h"
#include "trace/lives.h"

enum { STEPS_MAX = 256, REPEATS_MAX = 6, STOP = 1 }; /* tn_op.step has 8 bits; STOP ends a walk early and is no error */

/* begin[i] is the event of the mark "step:i"; begin[count] that of "end", or one past the last event. */
typedef struct steps {
  uint32_t begin[STEPS_MAX + 1];
  uint32_t count;
} steps;

typedef struct replay {
  const tn_block *blocks;
  tn_caching *caching;   /* NULL on the host: every size counts as it is */
  tn_addr *addrs;        /* by block; valid while its bytes are not 0 */
  uint64_t *block_bytes; /* by block: allocated bytes while live */
  uint64_t context_bytes;
  uint64_t by_category[TN_CATEGORY_COUNT]; /* now; adds up to allocated */
  uint64_t allocated, requested;           /* now */
  steps steps;
  uint32_t step_next;  /* steps.begin[step_next] has not been passed */
  uint32_t step_asked; /* TN_NONE: all */
  uint32_t event_last; /* stop after it */
  uint32_t *lives;     /* of the last step: 2 * block + is_alloc */
  size_t lives_count, lives_max;
  tn_addr *places;     /* by block: room held for it, 0 = none; NULL when none is to be */
  uint32_t block_count, places_held;
  tn__estimate result;
} replay;

/* ---- steps --------------------------------------------------------------------------------------------------------------- */

static void steps_find(const tn_trace *trace, steps *out) {
  size_t count = 0;
  const tn_event *events = tn_trace_table(trace, TN_TABLE_EVENT, &count);
  *out = (steps){.count = 0};
  out->begin[0] = (uint32_t)count;
  for (size_t i = 0; i < count; i++) {
    if (events[i].kind != TN_EVENT_MARK) continue;
    const char *mark = tn_trace_string(trace, events[i].id);
    if (strcmp(mark, "end") == 0) {
      out->begin[out->count] = (uint32_t)i;
      return;
    }
    if (strncmp(mark, "step:", 5) != 0 || out->count == STEPS_MAX) continue;
    out->begin[out->count++] = (uint32_t)i;
    out->begin[out->count] = (uint32_t)count;
  }
}

uint32_t tn__estimate_step_count(const tn_trace *trace) {
  steps found;
  steps_find(trace, &found);
  return found.count;
}

/* ---- the window in which peaks count ------------------------------------------------------------------------------------- */

static void peak_note(replay *r, uint32_t event) {
  tn_peak *peak = &r->result.peak;
  peak->allocated_bytes = r->allocated;
  peak->event = event;
  peak->step = r->step_next == 0 ? 0 : r->step_next - 1;
  memcpy(peak->by_category, r->by_category, sizeof peak->by_category);
}

static void window_open(replay *r, uint32_t event) {
  if (r->caching) tn_caching_reset_peaks(r->caching);
  r->result.peak.requested_bytes = r->requested;
  peak_note(r, event);
}

/* Passes the marks up to and including event. */
static int steps_advance(replay *r, uint32_t event) {
  while (r->step_next <= r->steps.count && r->steps.begin[r->step_next] <= event) {
    uint32_t passed = r->step_next++;
    if (passed == r->steps.count) return STOP; /* "end" */
    if (r->step_asked != TN_NONE && passed == r->step_asked + 1) return STOP;
    if (passed == r->step_asked) window_open(r, r->steps.begin[passed]);
    if (passed + 1 == r->steps.count) r->result.peak.persistent_bytes = r->allocated;
  }
  return TN_OK;
}

/* ---- one block ----------------------------------------------------------------------------------------------------------- */

static void block_count(replay *r, uint32_t block, uint64_t bytes) {
  r->block_bytes[block] = bytes;
  r->allocated += bytes;
  r->requested += r->blocks[block].bytes;
  r->by_category[r->blocks[block].category] += bytes;
}

static int block_take(replay *r, uint32_t block) {
  if (!r->caching) {
    block_count(r, block, r->blocks[block].bytes);
    return TN_OK;
  }
  tn_caching_stats stats;
  tn_caching_get_stats(r->caching, &stats);
  uint64_t before = stats.allocated_bytes.current;
  int rc = tn_caching_alloc(r->caching, r->blocks[block].bytes, 0, &r->addrs[block]);
  if (rc == TN_ELIMIT) {
    r->result.peak.oom = 1;
    return STOP;
  }
  TN_TRY(rc);
  tn_caching_get_stats(r->caching, &stats);
  block_count(r, block, stats.allocated_bytes.current - before);
  return TN_OK;
}

static int block_give_back(replay *r, uint32_t block) {
  if (r->caching) TN_TRY(tn_caching_dealloc(r->caching, r->addrs[block]));
  r->allocated -= r->block_bytes[block];
  r->requested -= r->blocks[block].bytes;
  r->by_category[r->blocks[block].category] -= r->block_bytes[block];
  r->block_bytes[block] = 0;
  return TN_OK;
}

/* ---- room for the optimizer's state -------------------------------------------------------------------------------------- */

static int is_state(const tn_block *block) {
  return block->category == TN_CATEGORY_OPTIMIZER && block->bytes && !(block->flags & TN_BLOCK_HOST);
}

/* Of all that is not there when the first step begins. */
static int places_take(replay *r) {
  for (uint32_t b = 0; b < r->block_count; b++)
    if (is_state(&r->blocks[b]) && !r->block_bytes[b]) TN_TRY(tn_caching_alloc(r->caching, r->blocks[b].bytes, 0, &r->places[b]));
  r->places_held = 1;
  return TN_OK;
}

/* Other free memory is given back first: the state then finds this room and nothing better. */
static int places_give_back(replay *r) {
  TN_TRY(tn_caching_empty_cache(r->caching));
  for (uint32_t b = 0; b < r->block_count; b++)
    if (r->places[b]) TN_TRY(tn_caching_dealloc(r->caching, r->places[b]));
  tn__mem_free(r->places);
  r->places = NULL;
  return TN_OK;
}

static int places_advance(replay *r, const tn__life_event *life) {
  if (!r->places || r->step_next == 0) return TN_OK; /* the first step has not begun */
  if (!r->places_held) TN_TRY(places_take(r));
  return life->is_alloc && is_state(&r->blocks[life->block]) ? places_give_back(r) : TN_OK;
}

static int life_visit(void *user, tn__life_event life) {
  replay *r = user;
  if (life.event > r->event_last) return STOP;
  TN_TRY(steps_advance(r, life.event));
  int placed = places_advance(r, &life);
  if (placed == TN_ELIMIT) {
    r->result.peak.oom = 1;
    return STOP;
  }
  TN_TRY(placed);
  const tn_block *block = &r->blocks[life.block];
  if ((block->flags & TN_BLOCK_HOST && r->caching) || block->bytes == 0) return TN_OK;
  if (r->step_next == r->steps.count && r->lives_count < r->lives_max)
    r->lives[r->lives_count++] = 2 * life.block + (life.is_alloc != 0);
  if (!life.is_alloc) return block_give_back(r, life.block);
  int rc = block_take(r, life.block);
  if (rc == TN_OK && r->requested > r->result.peak.requested_bytes) r->result.peak.requested_bytes = r->requested;
  if (r->allocated > r->result.peak.allocated_bytes || r->result.peak.oom) peak_note(r, life.event);
  return rc;
}

/* ---- a whole replay ------------------------------------------------------------------------------------------------------ */

static void replay_deinit(replay *r) {
  tn_caching_free(r->caching);
  tn__mem_free(r->places);
  tn__mem_free(r->addrs);
  tn__mem_free(r->block_bytes);
  tn__mem_free(r->lives);
}

static int replay_init(replay *r, const tn_trace *trace, const tn_profile *profile, const tn_estimate_options *options) {
  size_t count = 0;
  *r = (replay){.blocks = tn_trace_table(trace, TN_TABLE_BLOCK, &count), .context_bytes = profile->context_bytes,
                .step_asked = options->step, .event_last = UINT32_MAX};
  steps_find(trace, &r->steps);
  if (options->step != TN_NONE && options->step >= r->steps.count) return TN_ENOENT;
  r->addrs = tn__mem_zalloc(count + 1, sizeof *r->addrs);
  r->block_bytes = tn__mem_zalloc(count + 1, sizeof *r->block_bytes);
  tn_trace_table(trace, TN_TABLE_EVENT, &r->lives_max);
  r->lives = tn__mem_zalloc(r->lives_max + 1, sizeof *r->lives);
  if (!r->addrs || !r->block_bytes || !r->lives) return TN_ENOMEM;
  if (tn__profile_is_host(profile)) return TN_OK;
  r->block_count = (uint32_t)count;
  r->places = options->state_placed ? tn__mem_zalloc(count + 1, sizeof *r->places) : NULL;
  if (options->state_placed && !r->places) return TN_ENOMEM;
  tn_caching_config config = {.total_bytes = profile->total_bytes, .limit_bytes = options->limit_bytes,
                              .conf.expandable_segments = options->expandable_segments != 0};
  return tn_caching_new(&config, &r->caching);
}

/* The last step once more.  A block that outlived it is replaced, one that had died before is not there to be given back. */
static int step_repeat(replay *r) {
  for (size_t i = 0; i < r->lives_count; i++) {
    uint32_t block = r->lives[i] / 2;
    if (r->block_bytes[block]) TN_TRY(block_give_back(r, block));
    if (r->lives[i] % 2) TN_TRY(block_take(r, block));
  }
  return TN_OK;
}

static uint64_t reserved_peak(const replay *r) {
  tn_caching_stats stats;
  tn_caching_get_stats(r->caching, &stats);
  return stats.reserved_bytes.peak;
}

static uint64_t retries_so_far(const replay *r) {
  tn_caching_stats stats;
  tn_caching_get_stats(r->caching, &stats);
  return stats.num_alloc_retries;
}

static int steps_repeat(replay *r) {
  int asked = r->step_asked == TN_NONE || r->step_asked + 1 == r->steps.count;
  if (!r->caching || !asked || !r->steps.count || r->event_last != UINT32_MAX) return TN_OK;
  uint64_t before = 0;
  for (int i = 0; i < REPEATS_MAX && (reserved_peak(r) != before || r->result.peak.retries) && !r->result.peak.oom; i++) {
    uint64_t retries = retries_so_far(r);
    before = reserved_peak(r);
    (void)tn_caching_limit_needed(r->caching);
    int rc = step_repeat(r);
    if (rc) return rc == STOP ? TN_OK : rc;
    r->result.peak.limit_needed_bytes = tn_caching_limit_needed(r->caching);
    r->result.peak.retries = retries_so_far(r) - retries;
  }
  return TN_OK;
}

static int replay_run(replay *r, const tn_trace *trace) {
  int rc = tn__lives(trace, NULL, life_visit, r);
  if (rc == TN_OK && r->event_last == UINT32_MAX) rc = steps_advance(r, UINT32_MAX); /* marks after the last life */
  if (rc != TN_OK && rc != STOP) return rc;
  return r->result.peak.oom ? TN_OK : steps_repeat(r);
}

/* The op whose memory the event makes: the next one to run, since allocations precede their op. */
static uint32_t op_after(const tn_trace *trace, uint32_t event) {
  size_t count = 0;
  const tn_event *events = tn_trace_table(trace, TN_TABLE_EVENT, &count);
  for (size_t i = event; i < count; i++) {
    if (events[i].kind == TN_EVENT_OP) return events[i].id;
  }
  return TN_NONE;
}

static void peak_finish(replay *r, const tn_trace *trace, uint64_t limit_bytes) {
  tn_peak *peak = &r->result.peak;
  peak->reserved_bytes = peak->allocated_bytes;
  if (r->caching) {
    tn_caching_stats stats;
    tn_caching_get_stats(r->caching, &stats);
    peak->reserved_bytes = stats.reserved_bytes.peak;
    r->result.retries = stats.num_alloc_retries;
  } else if (limit_bytes && peak->allocated_bytes > limit_bytes) {
    peak->oom = 1;
  }
  if (!r->caching) peak->limit_needed_bytes = peak->allocated_bytes;
  peak->device_used_bytes = peak->reserved_bytes + r->context_bytes;
  peak->op = op_after(trace, peak->event);
}

int tn__estimate_run(const tn_trace *trace, const tn_profile *profile, const tn_estimate_options *options, tn__estimate *out) {
  replay r;
  int rc = replay_init(&r, trace, profile, options);
  if (rc == TN_OK) rc = replay_run(&r, trace);
  if (rc == TN_OK) {
    peak_finish(&r, trace, options->limit_bytes);
    *out = r.result;
  }
  replay_deinit(&r);
  return rc;
}

int tn__estimate_live(const tn_trace *trace, const tn_profile *profile, const tn_estimate_options *options, uint32_t event,
                      uint64_t *block_bytes) {
  replay r;
  int rc = replay_init(&r, trace, profile, options);
  r.event_last = event;
  if (rc == TN_OK) rc = replay_run(&r, trace);
  if (rc == TN_OK) {
    size_t count = 0;
    tn_trace_table(trace, TN_TABLE_BLOCK, &count);
    memcpy(block_bytes, r.block_bytes, count * sizeof *block_bytes);
  }
  replay_deinit(&r);
  return rc;
}

int tn_estimate(const tn_trace *trace, const tn_profile *profile, const tn_estimate_options *options, tn_peak *out) {
  if (!trace || !profile || !out) return TN_EINVAL;
  static const tn_estimate_options all_steps = {.step = TN_NONE};
  tn__estimate result;
  TN_TRY(tn__estimate_run(trace, profile, options ? options : &all_steps, &result));
  *out = result.peak;
  return TN_OK;
}

/* exact.c -- a history under its own settings: does the model do, entry for entry, what the allocator did?
 *
 * The model asks for segments; it gets the addresses that were recorded, and is refused where the recording has none.
 * Each segment event must be the next recorded one, each block must lie where it lay, and the map at the end must be the snapshot's. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/mem.h"
#include "caching/play.h"
#include "caching/replay.h"
#include "caching/start.h"

enum { TRIES_MAX = 200 };

typedef struct exact {
  tn__player player;
  const tn__history *history;
  tn_replay_result *result;
  uint32_t at;       /* entries before it have been accounted for */
  uint32_t bound;    /* entries from here on are not this step's */
  uint32_t next_ask; /* first allocation among entries that the walk has not reached */
  int differs, is_repaired;
  uint64_t *start_bytes; /* by life: what a block that lived at the start turned out to take; 0 = nothing was found out */
  uint32_t map_segment, map_block; /* next of the snapshot's, for the comparison at the end */
} exact;

static void differ(exact *x, uint32_t entry, const char *format, ...) TN_PRINTF(3, 4);

/* The first difference is the one that counts. */
static void differ(exact *x, uint32_t entry, const char *format, ...) {
  va_list args;
  if (x->differs) return;
  x->differs = 1;
  x->result->difference_entry = entry;
  va_start(args, format);
  (void)vsnprintf(x->result->difference, sizeof x->result->difference, format, args);
  va_end(args);
}

static const char *size_text(uint64_t bytes, char *buf) { return tn_size_format(bytes, buf, 32); }

/* ---- the recorded segment events ----------------------------------------------------------------------------------------- */

static int is_segment_action(uint32_t action) {
  return action == TN_ACTION_SEGMENT_ALLOC || action == TN_ACTION_SEGMENT_FREE || action == TN_ACTION_SEGMENT_MAP ||
         action == TN_ACTION_SEGMENT_UNMAP;
}

/* The next one of this step; TN_NONE: there is none. */
static uint32_t expected(const exact *x) {
  for (uint32_t i = x->at; i < x->bound; i++)
    if (is_segment_action(x->history->entries[i].action)) return i;
  return TN_NONE;
}

static const tn_entry *expected_entry(const exact *x) {
  uint32_t at = expected(x);
  return at == TN_NONE ? NULL : &x->history->entries[at];
}

static uint32_t action_of(enum tn_segment_kind kind) {
  switch (kind) {
    case TN_SEGMENT_ALLOC: return TN_ACTION_SEGMENT_ALLOC;
    case TN_SEGMENT_FREE: return TN_ACTION_SEGMENT_FREE;
    case TN_SEGMENT_MAP: return TN_ACTION_SEGMENT_MAP;
    default: return TN_ACTION_SEGMENT_UNMAP;
  }
}

/* A reservation begins where the first of its pages is mapped. */
static tn_addr segment_addr(void *user, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream) {
  const exact *x = user;
  (void)bytes;
  for (uint32_t i = x->at; i < x->bound; i++) {
    const tn_entry *e = &x->history->entries[i];
    if (!is_segment_action(e->action)) continue;
    if (e->action == action_of(kind) && x->history->streams[e->stream] == stream) return e->addr;
    if (kind == TN_SEGMENT_ALLOC) return 0; /* something else comes first: the driver refused */
  }
  return 0;
}

static int segment_map(void *user, tn_addr addr, uint64_t bytes, uint32_t stream) {
  const tn_entry *e = expected_entry(user);
  (void)addr, (void)bytes, (void)stream;
  return e && e->action == TN_ACTION_SEGMENT_MAP;
}

static void segment_event(void *user, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream) {
  exact *x = user;
  char want[32], got[32];
  uint32_t at = expected(x);
  if (at == TN_NONE) {
    differ(x, x->bound, "nothing recorded, the model: %s of %s at 0x%" PRIx64, tn_action_name((int)action_of(kind)),
           size_text(bytes, got), addr);
    return;
  }
  const tn_entry *e = &x->history->entries[at];
  if (e->action != action_of(kind) || e->addr != addr || e->bytes != bytes || x->history->streams[e->stream] != stream)
    differ(x, at, "recorded: %s of %s at 0x%" PRIx64 ", the model: %s of %s at 0x%" PRIx64, tn_action_name(e->action),
           size_text(e->bytes, want), e->addr, tn_action_name((int)action_of(kind)), size_text(bytes, got), addr);
  x->at = at + 1;
}

/* ---- blocks of the start whose size nobody recorded ---------------------------------------------------------------------- */

/* The start's block that lies at addr still, if its size is a guess that left nothing over behind it. */
static const tn__start_block *guessed_block(const exact *x, tn_addr addr) {
  const tn_vec *blocks = &x->history->blocks;
  size_t low = 0, high = blocks->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (TN_VEC(blocks, tn__start_block)[middle].addr < addr)
      low = middle + 1;
    else
      high = middle;
  }
  const tn__start_block *found = low < blocks->count ? tn__vec_at(blocks, low) : NULL;
  return found && found->addr == addr && found->bytes == 0 && x->player.addrs[found->life] == addr ? found : NULL;
}

/* The model took the free block behind a guessed one where the allocator did not.  When a larger guess, within what is left over
 * behind a block, makes that free block too small for the request, it is the better guess: the replay is to start again. */
static void repair(exact *x, const tn__step *step) {
  const tn_caching *caching = x->player.caching;
  uint32_t id = tn__map_get(&caching->held, x->player.addrs[step->life]);
  const tn__block *taken = id == TN_NONE ? NULL : tn__block_by_id(&caching->store, id);
  if (!taken || !taken->prev || taken->is_expandable || tn__pool_of(caching, taken)->is_small) return;
  const tn__start_block *guessed = guessed_block(x, taken->prev->addr);
  if (!guessed) return;
  uint64_t rounded = tn__round(&caching->config.conf, step->bytes), was_free = taken->bytes;
  if (taken->next && taken->next->state == TN__BLOCK_FREE) was_free += taken->next->bytes;
  uint64_t bytes = taken->prev->bytes + was_free - rounded + TN__BLOCK_BYTES_MIN;
  if (bytes > tn__round(&caching->config.conf, guessed->requested ? guessed->requested : 1) + TN__SMALL_BYTES_MAX) return;
  x->start_bytes[guessed->life] = bytes;
  x->is_repaired = 1;
}

/* ---- steps --------------------------------------------------------------------------------------------------------------- */

static void compare_alloc(exact *x, const tn__step *step, int rc) {
  char bytes[32];
  const tn_entry *e = &x->history->entries[step->entry];
  uint32_t left = expected(x);
  (void)size_text(step->bytes, bytes);
  if (left != TN_NONE) {
    char want[32];
    const tn_entry *l = &x->history->entries[left];
    differ(x, left, "recorded: %s of %s at 0x%" PRIx64 ", the model did nothing of the kind", tn_action_name(l->action),
           size_text(l->bytes, want), l->addr);
  }
  if (step->kind == TN__STEP_OOM) {
    if (rc != TN_ELIMIT) differ(x, step->entry, "recorded: out of memory for %s, the model had room", bytes);
  } else if (rc == TN_ELIMIT) {
    differ(x, step->entry, "recorded: %s at 0x%" PRIx64 ", the model had no room", bytes, e->addr);
  } else if (x->player.addrs[step->life] != e->addr && step->bytes > 0) {
    differ(x, step->entry, "recorded: %s at 0x%" PRIx64 ", the model put it at 0x%" PRIx64, bytes, e->addr,
           x->player.addrs[step->life]);
  }
}

/* What empty_cache() gives back lies before the next allocation. */
static uint32_t ask_after(exact *x, uint32_t entry) {
  if (x->next_ask <= entry) {
    x->next_ask = entry + 1;
    while (x->next_ask < x->history->entries_count && x->history->entries[x->next_ask].action != TN_ACTION_ALLOC &&
           x->history->entries[x->next_ask].action != TN_ACTION_OOM)
      x->next_ask++;
  }
  return x->next_ask;
}

/* Memory was given back before an allocation that needs none: without stacks the history could not tell for whom. */
static int gives_back_first(exact *x, const tn__step *step) {
  const tn_entry *e = expected_entry(x);
  if (!e || (e->action != TN_ACTION_SEGMENT_FREE && e->action != TN_ACTION_SEGMENT_UNMAP)) return 0;
  return step->bytes > 0 && tn__caching_fits(x->player.caching, step->pool, step->bytes, step->stream);
}

static int step_run(exact *x, const tn__step *step) {
  static const tn__step empty_cache = {.kind = TN__STEP_EMPTY_CACHE};
  int asks = step->kind == TN__STEP_ALLOC || step->kind == TN__STEP_OOM;
  if (asks) x->bound = step->entry;
  if (step->kind == TN__STEP_EMPTY_CACHE) x->bound = ask_after(x, step->entry);
  if (asks && gives_back_first(x, step)) TN_TRY(tn__player_step(&x->player, &empty_cache));
  int rc = tn__player_step(&x->player, step);
  if (rc == TN_ENOMEM) return rc;
  if (rc && rc != TN_ELIMIT) differ(x, step->entry, "recorded: a segment where the model has one already");
  if (!asks) return TN_OK;
  compare_alloc(x, step, rc);
  if (x->differs && rc == TN_OK && step->kind == TN__STEP_ALLOC) repair(x, step);
  x->at = step->entry + 1;
  return TN_OK;
}

/* ---- the end ------------------------------------------------------------------------------------------------------------- */

static const char *state_name(int state) { return tn_block_state_name(state); }

/* Goes on to the next block of the snapshot; NULL after the last. */
static const tn_segment_block *map_next(exact *x, const tn_segment **out_segment) {
  const tn_device *device = x->history->device;
  const tn_segment *segments = tn_trace_table(x->history->trace, TN_TABLE_SEGMENT, NULL);
  const tn_segment_block *blocks = tn_trace_table(x->history->trace, TN_TABLE_SEGMENT_BLOCK, NULL);
  while (x->map_segment < device->segments_count) {
    const tn_segment *s = &segments[device->segments_at + x->map_segment];
    if (x->map_block < s->blocks_count) {
      *out_segment = s;
      return &blocks[s->blocks_at + x->map_block++];
    }
    x->map_segment++;
    x->map_block = 0;
  }
  return NULL;
}

static void map_visit(void *user, tn_addr segment, tn_addr addr, uint64_t bytes, uint64_t requested, int state) {
  exact *x = user;
  char want_size[32], got_size[32];
  const tn_segment *s = NULL;
  const tn_segment_block *want = map_next(x, &s);
  (void)size_text(bytes, got_size);
  if (!want) {
    differ(x, TN_NONE, "at the end the model has %s %s at 0x%" PRIx64 ", the snapshot has nothing more", got_size,
           state_name(state), addr);
    return;
  }
  /* Snapshots of 2.0 have no requested sizes: theirs are the blocks'. */
  int same_request = state == TN_BLOCK_INACTIVE || want->requested_bytes == requested || want->requested_bytes == want->bytes;
  if (s->addr != segment || want->addr != addr || want->bytes != bytes || want->state != state || !same_request)
    differ(x, TN_NONE, "at the end the snapshot has %s %s at 0x%" PRIx64 ", the model %s %s at 0x%" PRIx64,
           size_text(want->bytes, want_size), state_name(want->state), want->addr, got_size, state_name(state), addr);
}

static void compare_end(exact *x) {
  const tn_segment *s = NULL;
  char size[32];
  x->bound = x->history->entries_count;
  uint32_t left = expected(x);
  if (left != TN_NONE)
    differ(x, left, "recorded: %s, the model did nothing of the kind", tn_action_name(x->history->entries[left].action));
  tn_caching_walk(x->player.caching, map_visit, x);
  const tn_segment_block *more = map_next(x, &s);
  if (more)
    differ(x, TN_NONE, "at the end the snapshot has %s %s at 0x%" PRIx64 ", the model nothing more", size_text(more->bytes, size),
           state_name(more->state), more->addr);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static int exact_run(exact *x) {
  const tn_vec *steps = &x->history->steps;
  int rc = tn__start_place(x->history, x->player.caching, x->start_bytes, x->player.addrs);
  if (rc == TN_ENOMEM) return rc;
  if (rc) differ(x, 0, "what lived before the first entry does not fit together");
  for (size_t i = 0; i < steps->count && !x->differs; i++) TN_TRY(step_run(x, tn__vec_at(steps, i)));
  if (!x->differs) compare_end(x);
  x->result->exactness = x->differs ? TN_EXACT_NO : TN_EXACT_YES;
  tn_caching_get_stats(x->player.caching, &x->result->stats);
  x->result->stalls = x->player.stalls;
  return TN_OK;
}

/* One replay from the start as it is known so far.  *out_again: more is known now. */
static int exact_try(const tn__history *history, uint64_t limit_bytes, uint64_t *start_bytes, tn_replay_result *out, int *out_again) {
  exact x = {.history = history, .result = out, .start_bytes = start_bytes, .at = history->first};
  tn_caching_config config = {.conf = history->conf,
                              .limit_bytes = limit_bytes,
                              .total_bytes = tn__start_total_bytes(history),
                              .event_delay = UINT32_MAX,
                              .segment_addr = segment_addr,
                              .segment_map = segment_map,
                              .segment_event = segment_event,
                              .user = &x};
  TN_TRY(tn__player_init(&x.player, history, &config));
  int rc = exact_run(&x);
  tn__player_deinit(&x.player);
  *out_again = x.is_repaired;
  return rc;
}

int tn__replay_exact(const tn__history *history, uint64_t limit_bytes, tn_replay_result *out) {
  uint64_t *start_bytes = tn__mem_zalloc(history->blocks.count + 1, sizeof *start_bytes);
  int rc = start_bytes ? TN_OK : TN_ENOMEM, again = 1;
  tn_replay_result first;
  for (int tries = 0; again && tries < TRIES_MAX && !rc; tries++) {
    tn_replay_result result = *out;
    rc = exact_try(history, limit_bytes, start_bytes, &result, &again);
    if (tries == 0 || result.exactness == TN_EXACT_YES) first = result; /* without a way out the first difference is the plainest */
  }
  tn__mem_free(start_bytes);
  if (!rc) *out = first;
  return rc;
}

/* predict.c -- a history under other settings, or with another limit.
 *
 * What is assumed: the program does the same whatever the settings.  Segments come from the driver each below the one before (the
 * model's own rule, see tonnage.h); of equally good free blocks the allocator takes the lowest, so where segments lie matters a little.
 * A block that another stream used is free again at the entry where it was recorded to be.  What lived before the first entry is
 * allocated anew, in the order of its addresses, and nothing else is reserved then.  A limit is not exceeded by a page either, as
 * PyTorch's own test of it allows when segments are expandable: there may be no more.  The replay ends where the program would: at
 * the first allocation that finds no memory though it was served when recorded. */
#include "base/error.h"
#include "caching/play.h"
#include "caching/replay.h"

/* The pool and stream of a block at the start are its segment's. */
static int start_alloc(tn__player *player, const tn__start_segment *segment) {
  for (uint32_t i = 0; i < segment->blocks_count; i++) {
    const tn__start_block *block = &TN_VEC(&player->history->blocks, tn__start_block)[segment->blocks_at + i];
    tn__step step = {.kind = TN__STEP_ALLOC, .bytes = block->requested, .life = block->life, .stream = segment->stream,
                     .pool = segment->pool};
    TN_TRY(tn__player_step(player, &step));
    step.kind = TN__STEP_FREE_SHARED;
    if (block->is_pending) TN_TRY(tn__player_step(player, &step));
  }
  return TN_OK;
}

static int starts_alloc(tn__player *player) {
  for (size_t i = 0; i < player->history->segments.count; i++)
    TN_TRY(start_alloc(player, tn__vec_at(&player->history->segments, i)));
  tn_caching_reset_peaks(player->caching);
  return TN_OK;
}

static void note_oom(tn_replay_result *out, uint32_t entry, uint64_t bytes) {
  out->oom_entry = entry;
  out->oom_bytes = bytes;
}

static int steps_play(tn__player *player, tn_replay_result *out) {
  for (size_t i = 0; i < player->history->steps.count; i++) {
    const tn__step *step = tn__vec_at(&player->history->steps, i);
    int rc = tn__player_step(player, step);
    if (rc && rc != TN_ELIMIT) return rc;
    if (step->kind == TN__STEP_OOM) {
      out->ooms_served += rc == TN_OK;
    } else if (rc == TN_ELIMIT) {
      note_oom(out, step->entry, step->bytes);
      return TN_OK;
    }
  }
  return TN_OK;
}

static int driver_maps(void *user, tn_addr addr, uint64_t bytes, uint32_t stream) {
  const tn_caching *caching = ((const tn__player *)user)->caching;
  (void)addr, (void)stream;
  return caching->stats.reserved_bytes.current + bytes <= caching->limit_bytes;
}

int tn__replay_predict(const tn__history *history, const tn_conf *conf, uint64_t limit_bytes, tn_replay_result *out) {
  tn__player player;
  tn_caching_config config = {.conf = *conf, .limit_bytes = limit_bytes, .event_delay = UINT32_MAX, .segment_map = driver_maps,
                              .user = &player};
  TN_TRY(tn__player_init(&player, history, &config));
  int rc = starts_alloc(&player);
  if (rc == TN_ELIMIT)
    note_oom(out, 0, 0);
  else if (rc == TN_OK)
    rc = steps_play(&player, out);
  tn_caching_get_stats(player.caching, &out->stats);
  out->stalls = player.stalls;
  tn__player_deinit(&player);
  return rc == TN_ELIMIT ? TN_OK : rc;
}

/* play.c -- the steps of a history, played on a model.  See play.h. */
#include "caching/play.h"

#include "base/error.h"
#include "base/mem.h"

int tn__player_init(tn__player *player, const tn__history *history, const tn_caching_config *config) {
  *player = (tn__player){.history = history};
  tn__vec_init(&player->waiting, sizeof(uint32_t));
  player->addrs = tn__mem_zalloc((size_t)history->lives_count + 1, sizeof *player->addrs);
  int rc = player->addrs ? tn_caching_new(config, &player->caching) : TN_ENOMEM;
  if (rc) tn__player_deinit(player);
  return rc;
}

void tn__player_deinit(tn__player *player) {
  tn_caching_free(player->caching);
  player->caching = NULL;
  tn__vec_deinit(&player->waiting);
  tn__mem_free(player->addrs);
  player->addrs = NULL;
}

static int alloc(tn__player *player, const tn__step *step, tn_addr *out) {
  const tn_caching_stats *stats = &player->caching->stats;
  uint64_t before = stats->num_device_free + stats->num_alloc_retries;
  int rc = tn_caching_alloc_from(player->caching, step->pool, step->bytes, step->stream, out);
  player->stalls += stats->num_device_free + stats->num_alloc_retries != before;
  return rc;
}

/* An allocation that failed when it was recorded and does not now: nobody knows for how long it would have been held. */
static int alloc_failed_once(tn__player *player, const tn__step *step) {
  tn_addr addr = 0;
  TN_TRY(alloc(player, step, &addr));
  return tn_caching_dealloc(player->caching, addr);
}

static int dealloc(tn__player *player, const tn__step *step) {
  tn_addr addr = player->addrs[step->life];
  if (addr == 0) return TN_OK; /* of 0 bytes, or it found no memory */
  player->addrs[step->life] = 0;
  int rc = tn_caching_dealloc(player->caching, addr);
  return rc == TN_ENOENT ? TN_OK : rc;
}

/* Which stream uses it does not matter: the steps say when it no longer does. */
static int dealloc_shared(tn__player *player, const tn__step *step) {
  tn_addr addr = player->addrs[step->life];
  if (addr == 0) return TN_OK;
  TN_TRY(tn__vec_push(&player->waiting, &step->life));
  int rc = tn_caching_record_stream(player->caching, addr, UINT32_MAX);
  if (!rc) rc = tn_caching_dealloc(player->caching, addr);
  return rc == TN_ENOENT ? TN_OK : rc;
}

/* After the model waited for all streams nothing waits any more, and addresses may have new tenants. */
static void look_at_syncs(tn__player *player) {
  if (player->caching->stats.num_sync_all_streams == player->syncs) return;
  player->syncs = player->caching->stats.num_sync_all_streams;
  for (size_t i = 0; i < player->waiting.count; i++) player->addrs[TN_VEC(&player->waiting, uint32_t)[i]] = 0;
  tn__vec_clear(&player->waiting);
}

static int complete(tn__player *player, const tn__step *step) {
  tn_addr addr = player->addrs[step->life];
  uint32_t *waiting = TN_VEC(&player->waiting, uint32_t);
  if (addr == 0) return TN_OK;
  player->addrs[step->life] = 0;
  for (size_t i = 0; i < player->waiting.count; i++) {
    if (waiting[i] != step->life) continue;
    waiting[i] = waiting[player->waiting.count - 1];
    tn__vec_pop(&player->waiting, NULL);
    break;
  }
  int rc = tn_caching_complete(player->caching, addr);
  return rc == TN_ENOENT ? TN_OK : rc;
}

int tn__player_step(tn__player *player, const tn__step *step) {
  int rc = TN_OK;
  switch (step->kind) {
    case TN__STEP_ALLOC: rc = alloc(player, step, &player->addrs[step->life]); break;
    case TN__STEP_OOM: rc = alloc_failed_once(player, step); break;
    case TN__STEP_FREE: return dealloc(player, step);
    case TN__STEP_FREE_SHARED: return dealloc_shared(player, step);
    case TN__STEP_COMPLETE: return complete(player, step);
    case TN__STEP_EMPTY_CACHE: rc = tn_caching_empty_cache(player->caching); break;
    default:
      rc = tn_caching_release_pool(player->caching, step->pool);
      return rc == TN_ENOENT ? TN_OK : rc; /* nothing was allocated from it */
  }
  look_at_syncs(player);
  return rc;
}

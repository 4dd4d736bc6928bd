/* predict.c -- a history under other settings. */
#include "base/error.h"
#include "caching/play.h"
#include "caching/replay.h"

int tn__replay_predict(const tn__history *history, const tn_conf *conf, uint64_t limit_bytes, tn_replay_result *out) {
  tn_caching_config config = {.conf = *conf, .limit_bytes = limit_bytes, .event_delay = UINT32_MAX};
  tn__player player;
  int rc = tn__player_init(&player, history, &config);
  for (size_t i = 0; i < history->steps.count && (!rc || rc == TN_ELIMIT); i++) {
    const tn__step *step = tn__vec_at(&history->steps, i);
    rc = tn__player_step(&player, step);
  }
  tn_caching_get_stats(player.caching, &out->stats);
  tn__player_deinit(&player);
  return rc == TN_ELIMIT ? TN_OK : rc;
}

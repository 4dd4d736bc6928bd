/* play.h -- the steps of a history, played on a model.
 *
 * Callers: exact.c, predict.c.  Not locked: one thread at a time per player; many may share a history. */
#ifndef TN_CACHING_PLAY_H
#define TN_CACHING_PLAY_H

#include "caching/caching.h"
#include "caching/history.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__player {
  const tn__history *history;
  tn_caching *caching; /* owned */
  tn_addr *addrs;      /* by life: where it lies, 0 = nowhere */
  tn_vec waiting;      /* uint32_t: lives that were freed and another stream may still use */
  uint64_t syncs;      /* of the model, when waiting was last looked at */
  uint64_t stalls;     /* allocations that gave memory back first, so far */
} tn__player;

int tn__player_init(tn__player *player, const tn__history *history, const tn_caching_config *config);
void tn__player_deinit(tn__player *player);
/* TN_ELIMIT: an allocation of this step found no memory; the player goes on without it. */
int tn__player_step(tn__player *player, const tn__step *step);

#ifdef __cplusplus
}
#endif
#endif

/* replay.h -- one history, replayed: as it was recorded, or under other settings.
 *
 * Callers: replay.c, tune.c, report.  Thread-safe for one history in many threads. */
#ifndef TN_CACHING_REPLAY_H
#define TN_CACHING_REPLAY_H

#include "caching/history.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Under the recorded settings with segments at the recorded addresses: fills exactness, difference and stats.  limit_bytes 0:
 * memory is refused where it was. */
int tn__replay_exact(const tn__history *history, uint64_t limit_bytes, tn_replay_result *out);
/* The same, with a limit that may or may not have been in force: if the run is as recorded without it and not with it, then exactness
 * says that nothing was compared. */
int tn__replay_own(const tn__history *history, uint64_t limit_bytes, tn_replay_result *out);
/* Under any settings: fills stats, oom_entry and what belongs to it. */
int tn__replay_predict(const tn__history *history, const tn_conf *conf, uint64_t limit_bytes, tn_replay_result *out);
/* What a history tells by itself. */
void tn__replay_describe(const tn__history *history, tn_replay_result *out);

#ifdef __cplusplus
}
#endif
#endif

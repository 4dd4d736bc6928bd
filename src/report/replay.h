/* replay.h -- what the reports on replays share.
 *
 * Callers: report/replay.c, report/tune.c.  Thread-safe: no state. */
#ifndef TN_REPORT_REPLAY_H
#define TN_REPORT_REPLAY_H

#include "base/text.h"
#include "report/json.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TN__REPLAY_WIDTH = 100 };

/* "max_split_size_mb:64", or "PyTorch's own settings" for "". */
void tn__replay_setting(tn_text *out, const char *setting);
/* "412.50 MiB (11.2 %)" of whole. */
void tn__replay_share(tn_text *out, uint64_t bytes, uint64_t whole);
/* A remark of its own lines, wrapped. */
void tn__replay_remark(tn_text *out, const char *text);
/* What a reader has to know before believing the figures, remark by remark. */
void tn__replay_caveats(tn_text *out, const tn_replay_result *result);

void tn__json_bool(tn_text *out, const char *key, int value);
/* null for 0 */
void tn__json_limit(tn_text *out, const char *key, uint64_t value);
/* exact, difference, complete, entries, limit: what describes a replay. */
void tn__json_replay_head(tn_text *out, const tn_replay_result *result);

#ifdef __cplusplus
}
#endif
#endif

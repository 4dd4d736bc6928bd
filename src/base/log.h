/* log.h -- where remarks go.  Why: the library never prints unasked; whoever wants to hear passes a sink.
 *
 * Callers: any module that has something to say beyond its error.  A NULL sink, or one without write, is silent.
 * Thread-safe as far as the sink's write is. */
#ifndef TN_BASE_LOG_H
#define TN_BASE_LOG_H

#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tn_log_level { TN_LOG_WARNING = 1, TN_LOG_INFO, TN_LOG_DEBUG };

typedef struct tn_log {
  void (*write)(void *user, enum tn_log_level level, const char *line); /* line has no newline */
  void *user;
  enum tn_log_level level; /* the most talkative one that is passed on; 0 = none */
} tn_log;

void tn__log(const tn_log *log, enum tn_log_level level, const char *format, ...) TN_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif

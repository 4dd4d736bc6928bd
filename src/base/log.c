/* log.c -- see log.h. */
#include "base/log.h"

#include <stdio.h>

void tn__log(const tn_log *log, enum tn_log_level level, const char *format, ...) {
  if (!log || !log->write || level > log->level) return;
  char line[512];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(line, sizeof line, format, args);
  va_end(args);
  log->write(log->user, level, line);
}

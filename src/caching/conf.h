/* conf.h -- PyTorch's allocator settings as text.
 *
 * Callers: src/caching, report.  What a string may say is torch's own grammar: KEY:VALUE with commas between, spaces ignored, a list
 * in brackets.  Thread-safe: no state. */
#ifndef TN_CACHING_CONF_H
#define TN_CACHING_CONF_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What versions of PyTorch do differently with the same settings. */
enum {
  TN__DIALECT_LIST_FROM_LAST = 1 << 0, /* ">" of a round-up list starts at the last interval named, not after it: before 2.9 or so */
  TN__DIALECT_LARGE_SEGMENT = 1 << 1,  /* has large_segment_size_mb */
  TN__DIALECT_PRIVATE_EXPANDABLE = 1 << 2 /* graphs and MemPools have expandable segments too */
};

int tn__conf_parse(const char *text, uint32_t dialect, tn_conf *out, tn_error *err);
/* The string that gives these settings, "" for PyTorch's own. */
void tn__conf_write(const tn_conf *conf, tn_text *out);
/* Of the version that wrote a snapshot, as far as its settings tell. */
uint32_t tn__conf_dialect(const tn_trace *trace);
int tn__conf_equal(const tn_conf *a, const tn_conf *b);

#ifdef __cplusplus
}
#endif
#endif

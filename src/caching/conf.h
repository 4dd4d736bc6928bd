/* conf.h -- PyTorch's allocator settings as text.
 *
 * Callers: src/caching, report.  What a string may say is torch's own grammar: KEY:VALUE with commas between, spaces ignored, a
 * list in brackets.  Thread-safe: no state. */
#ifndef TN_CACHING_CONF_H
#define TN_CACHING_CONF_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What PyTorch 2.N brought.  Versions are the N, TN__VERSION_NEWEST when nobody says. */
enum {
  TN__SINCE_EXPANDABLE = 1,
  TN__SINCE_LIST_AFTER_LAST = 9, /* ">" of a round-up list starts after the last interval named, before that at it */
  TN__SINCE_PRIVATE_EXPANDABLE = 9, /* graphs and MemPools have expandable segments too */
  TN__SINCE_MAX_ROUNDING = 9,
  TN__SINCE_LARGE_SEGMENT = 10,
  TN__VERSION_NEWEST = 99
};

int tn__conf_parse(const char *text, uint32_t version, tn_conf *out, tn_error *err);
/* The string that gives these settings, "" for PyTorch's own. */
void tn__conf_write(const tn_conf *conf, tn_text *out);
/* Appends what of a valid string has no effect on this allocator (pinned_...), with commas before each when out is not empty. */
void tn__conf_rest(const char *text, tn_text *out);
/* Of the PyTorch that wrote a snapshot, by what the file has. */
uint32_t tn__conf_version(const tn_trace *trace);
int tn__conf_equal(const tn_conf *a, const tn_conf *b);

#ifdef __cplusplus
}
#endif
#endif

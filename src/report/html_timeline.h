/* html_timeline.h -- a device's memory over time, summed into a bounded number of buckets.
 *
 * Why: a browser draws a few thousand columns well and a million events badly.  A bucket shows its highest moment, whole: the
 * parts of a bucket add up, and no peak is lost by summing.  The viewer joins neighbours for coarser levels, by the same rule.
 * Callers: src/report/html.c.  Not locked: one thread at a time. */
#ifndef TN_REPORT_HTML_TIMELINE_H
#define TN_REPORT_HTML_TIMELINE_H

#include "explain/analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TN__TIMELINE_STACKS = 15, TN__TIMELINE_BUCKETS = 16384 };

enum tn__timeline_column {
  TN__COLUMN_TIME,     /* microseconds, of the bucket's first moment; never falling */
  TN__COLUMN_HIGHEST,  /* the moment with the most allocated bytes, from the bucket's first */
  TN__COLUMN_LOW,      /* least allocated bytes */
  TN__COLUMN_RESERVED, /* most reserved bytes */
  TN__COLUMN_PENDING,  /* active - allocated at the highest moment, less what the very next entry gives back */
  TN__COLUMN_CATEGORY, /* allocated bytes at the highest moment, by category ... */
  TN__COLUMN_STACK = TN__COLUMN_CATEGORY + TN_CATEGORY_COUNT, /* ... and by stack; those beyond the largest are not among them */
  TN__COLUMN_COUNT = TN__COLUMN_STACK + TN__TIMELINE_STACKS
};

typedef struct tn__timeline {
  uint32_t moments;     /* in a bucket, a power of two; the last one may have fewer */
  uint32_t count;       /* buckets */
  uint64_t *columns;    /* TN__COLUMN_COUNT times count */
  uint64_t time_end;    /* of the last entry */
  uint32_t stacks[TN__TIMELINE_STACKS]; /* groups, those that held most first */
  uint32_t stack_count;
} tn__timeline;

/* At most buckets_max buckets.  Deinit in any case. */
int tn__timeline_init(tn__timeline *timeline, const tn__analysis *analysis, uint32_t buckets_max);
void tn__timeline_deinit(tn__timeline *timeline);

static inline uint64_t *tn__timeline_column(const tn__timeline *timeline, int column) {
  return timeline->columns + (size_t)column * timeline->count;
}

#ifdef __cplusplus
}
#endif
#endif

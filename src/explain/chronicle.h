/* chronicle.h -- one device of a snapshot as spans: each block from the entry that allocated it to the one that gave it back.
 *
 * Why: entries say what happened, questions are about who held memory when.  A history that starts late, or whose ring buffer
 * has overflowed, is completed backwards: what the final segments hold and no entry allocated was there before.
 * Callers: src/explain, src/report.  The trace must have passed tn_trace_check() and outlive the history.  Not locked.
 *
 * "Entry" numbers here are positions in the device's own range, 0 being its first entry.  A *moment* m lies after m entries:
 * moment 0 is before the first one, moment entry_count is the snapshot itself. */
#ifndef TN_EXPLAIN_CHRONICLE_H
#define TN_EXPLAIN_CHRONICLE_H

#include "base/vec.h"
#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TN__SPAN_HAS_END = 1 << 0,  /* it is among the final blocks: bytes is what the file says */
  TN__SPAN_ODD = 1 << 1,      /* the file contradicts itself about this block; if its end is not recorded, it counts 0 bytes */
  TN__SPAN_LABELLED = 1 << 2  /* the category is the file's, not inferred */
};

/* active from alloc to done, allocated from alloc to asked.  alloc < asked <= done where they are entries. */
typedef struct tn__span {
  tn_addr addr;
  uint64_t bytes;           /* as the allocator holds it: rounded, with a remainder too small to be split off */
  uint64_t requested_bytes;
  uint32_t alloc;           /* entry ALLOC; TN_NONE: before the history */
  uint32_t asked;           /* entry FREE_REQUESTED; TN_NONE: not asked for, or asked for before the history (state PENDING) */
  uint32_t done;            /* entry FREE_COMPLETED; TN_NONE: still there at the end */
  uint32_t stack;           /* of the allocation; TN_NONE = not recorded */
  uint32_t stream, pool;
  uint32_t step;            /* of the allocation, see tn__steps; TN_NONE: outside any */
  uint8_t category;         /* tn_category */
  uint8_t phase;            /* tn_phase */
  uint8_t flags;            /* TN__SPAN_... */
  uint8_t was_pending;      /* 1: asked for before the history began, so it is active and never allocated here */
} tn__span;

/* Bytes at a moment.  requested <= allocated <= active <= reserved. */
typedef struct tn__level {
  uint64_t requested_bytes, allocated_bytes, active_bytes, reserved_bytes;
} tn__level;

typedef struct tn__chronicle {
  const tn_trace *trace;
  const tn_device *device;
  const tn_entry *entries; /* of the device */
  uint32_t entry_count;
  uint64_t bytes_max;      /* entries that speak of more are not believed, so that no sum overflows */
  uint32_t odd_count;      /* contradictions among entries, or between them and the final segments */
  tn_vec spans;            /* tn__span; those from before the history first, then in the order of allocation */
  uint32_t before_count;   /* how many of them were there before the history */
  uint32_t *span_of;       /* by entry: the span that ALLOC, FREE_REQUESTED, FREE_COMPLETED speaks of; TN_NONE */
  tn__level first, last;   /* at moment 0 and at the snapshot */
} tn__chronicle;

/* TN_EINVAL: no such device record.  Deinit in any case. */
int tn__chronicle_init(tn__chronicle *history, const tn_trace *trace, size_t device_record);
void tn__chronicle_deinit(tn__chronicle *history);

/* 1: the entry speaks of more than any memory, and is passed over. */
static inline int tn__chronicle_ignores(const tn__chronicle *history, const tn_entry *entry) { return entry->bytes > history->bytes_max; }

/* ---- walking through time ------------------------------------------------------------------------------------------------ */

/* tn__walk walk = tn__walk_begin(history);  do { use(walk.moment, walk.level); } while (tn__walk_next(&walk)); */
typedef struct tn__walk {
  const tn__chronicle *history;
  uint32_t moment;
  tn__level level;
} tn__walk;

tn__walk tn__walk_begin(const tn__chronicle *history);
int tn__walk_next(tn__walk *walk); /* takes the entry at walk->moment; 0 at the end */

/* Is the span live at a moment?  allocated: not yet asked for; active: its memory is not yet given back. */
static inline int tn__span_is_active(const tn__span *span, uint32_t moment) {
  return (span->alloc == TN_NONE || span->alloc < moment) && (span->done == TN_NONE || span->done >= moment);
}

static inline int tn__span_is_allocated(const tn__span *span, uint32_t moment) {
  return tn__span_is_active(span, moment) && !span->was_pending && (span->asked == TN_NONE || span->asked >= moment);
}

#define TN__SPANS(history) TN_VEC(&(history)->spans, tn__span)

#ifdef __cplusplus
}
#endif
#endif

/* history.h -- what a program asked of the allocator, read from a device's recorded entries: the same whatever the settings.
 *
 * Entries tell what the allocator did, so some of what the program did has to be inferred:
 *   - Memory given back is torch.cuda.empty_cache(), or an allocation that found none and tried again.  It is the allocation's when
 *     nothing comes between them, new memory follows, and both come from the same line of the program; where lines were not
 *     recorded, when the device had never given more than would have been needed.
 *   - A free that does not complete at once waits for another stream, and completes where the entries say so.  What completes
 *     while memory is short completes because the allocation waits for it.
 *   - Where entries name no pool, an allocation is of the pool whose segment it lies in.
 *   - The list may start late (recording was switched on late, or the ring was full): what lived before is found by going
 *     backwards from the segments at the end (rewind.c).
 *
 * Callers: src/caching, report.  Read-only once made: any number of threads may replay one history. */
#ifndef TN_CACHING_HISTORY_H
#define TN_CACHING_HISTORY_H

#include "base/vec.h"
#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tn__step_kind {
  TN__STEP_ALLOC = 1,
  TN__STEP_FREE,
  TN__STEP_FREE_SHARED, /* another stream still uses it */
  TN__STEP_COMPLETE,    /* and no longer does */
  TN__STEP_OOM,         /* an allocation that failed; bytes are rounded */
  TN__STEP_EMPTY_CACHE,
  TN__STEP_RELEASE_POOL /* a graph or MemPool is gone */
};

typedef struct tn__step {
  uint64_t bytes;
  uint32_t kind;  /* tn__step_kind */
  uint32_t life;  /* number of the block's life: of its address from one alloc to its free */
  uint32_t entry; /* of the device, where it shows */
  uint32_t stream, pool;
  uint32_t reserved;
} tn__step;

/* A block at the start. */
typedef struct tn__start_block {
  tn_addr addr;
  uint64_t bytes; /* 0 = not known: the settings, or what lies after it, say */
  uint64_t requested;
  uint64_t room;  /* while it lived another block began this far after it; 0 = none did */
  uint32_t life;
  uint32_t is_pending; /* freed already, for another stream */
} tn__start_block;

/* A stretch of memory at the start; an expandable segment's address space is in the reservation that holds it. */
typedef struct tn__start_segment {
  tn_addr addr;
  uint64_t bytes;
  uint32_t blocks_at, blocks_count; /* of the blocks, by address */
  uint32_t stream, pool;
  uint32_t flags;                   /* TN_SEGMENT_SMALL, TN_SEGMENT_EXPANDABLE */
  uint32_t reserved;
} tn__start_segment;

/* Address space of one pool and stream for expandable segments. */
typedef struct tn__reservation {
  tn_addr addr, end; /* from the first page seen in it to the end of the last */
  uint32_t stream, pool, is_small;
  uint32_t reserved;
} tn__reservation;

typedef struct tn__history {
  const tn_trace *trace; /* not owned */
  const tn_device *device;
  const tn_entry *entries; /* the device's */
  uint32_t entries_count;
  uint32_t first;          /* entries before it are not replayed: a call of the allocator whose beginning is lost */
  tn_conf conf;            /* recorded */
  uint32_t version;        /* tn__conf_version() */
  tn_vec steps;            /* tn__step */
  uint32_t lives_count;    /* those of the start come first */
  tn_vec segments;         /* tn__start_segment, by address; none: the history is complete */
  tn_vec blocks;           /* tn__start_block */
  tn_vec reservations;     /* tn__reservation, by address */
  uint32_t *streams;       /* by stream of the trace: its place in the order of handles */
  uint64_t start_bytes;    /* reserved at the start */
  uint64_t peak_bytes;     /* most that was ever reserved */
  uint64_t ideal_bytes;    /* most that was active, or would have been, in steps of 512 bytes: no setting needs less */
  uint64_t capacity_bytes; /* what the process could have, by what it was refused; 0 = nothing was */
  uint32_t asks;           /* allocations, the failed ones too */
  uint32_t refusals;       /* how often memory was short */
} tn__history;

/* device: CUDA's ordinal, TN_NONE = the one with most entries.  The trace must outlive the history.  TN_EPARTIAL: no entries. */
int tn__history_init(tn__history *history, const tn_trace *trace, uint32_t device, tn_error *err);
void tn__history_deinit(tn__history *history);

/* ---- rewind.c ------------------------------------------------------------------------------------------------------------ */

/* Finds what there was before entry first: segments, blocks, reservations, and for each entry of an allocation its pool in pools[entry]. */
int tn__history_rewind(tn__history *history, uint32_t *pools);

#ifdef __cplusplus
}
#endif
#endif

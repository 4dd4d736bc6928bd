/* oom_verdict.h -- from the readings of a message to who holds the memory, why it ran out, and what would have helped.
 *
 * Callers: src/report/oom*.c, tn_oom_cause().  Pure.  Sizes are spans: what printing rounded off is carried along, and "enough" is
 * said only where it holds for every value that would have been printed the same. */
#ifndef TN_EXPLAIN_OOM_VERDICT_H
#define TN_EXPLAIN_OOM_VERDICT_H

#include "explain/oom_text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__oom_span {
  int64_t mid, slack;
} tn__oom_span; /* mid - slack ... mid + slack */

static inline tn__oom_span tn__oom_span_of(const tn_oom *oom, enum tn_oom_reading reading) {
  tn__oom_span out = {(int64_t)oom->sizes[reading].bytes, (int64_t)oom->sizes[reading].slack};
  return out;
}
static inline tn__oom_span tn__oom_span_add(tn__oom_span a, tn__oom_span b) {
  tn__oom_span out = {a.mid + b.mid, a.slack + b.slack};
  return out;
}
static inline tn__oom_span tn__oom_span_sub(tn__oom_span a, tn__oom_span b) {
  tn__oom_span out = {a.mid - b.mid, a.slack + b.slack};
  return out;
}
static inline tn__oom_span tn__oom_span_min(tn__oom_span a, tn__oom_span b) { return a.mid <= b.mid ? a : b; }
static inline int64_t tn__oom_span_low(tn__oom_span a) { return a.mid - a.slack; }
static inline int64_t tn__oom_span_high(tn__oom_span a) { return a.mid + a.slack; }

/* ---- the account --------------------------------------------------------------------------------------------------------- */

/* Disjoint; they add up to the capacity. */
#define TN__OOM_PARTS(X)                                                                     \
  X(LIVE, "live_tensors")   /* allocated */                                                  \
  X(PIECES, "pieces")       /* reserved but unallocated: between live blocks of a segment */ \
  X(POOLS, "private_pools") /* free blocks of private pools */                               \
  X(OUTSIDE, "outside")     /* of this process, beyond reserved: context, libraries */       \
  X(OTHERS, "other_processes")                                                               \
  X(UNSEEN, "unseen") /* what nothing in the message accounts for */                         \
  X(FREE, "free")
enum tn__oom_part {
#define TN__OOM_PART_ENUM(name, text) TN__OOM_PART_##name,
  TN__OOM_PARTS(TN__OOM_PART_ENUM)
#undef TN__OOM_PART_ENUM
      TN__OOM_PART_COUNT
};

typedef struct tn__oom_account {
  uint32_t known; /* bit 1 << TN__OOM_PART_... */
  tn__oom_span parts[TN__OOM_PART_COUNT];
  int has_capacity, has_asked, has_room, has_short;
  tn__oom_span capacity; /* of the device; on Metal, what PyTorch allows itself */
  tn__oom_span asked;
  tn__oom_span room;     /* what an allocation could still have */
  tn__oom_span short_by; /* asked - room; below 0: it would have fitted */
  int room_is_bound;     /* 1: at most; the message does not say what was free */
  int room_is_limit;     /* 1: a limit is what bounds it */
  int is_over;           /* 1: the parts add up to more than the capacity, beyond rounding, by over */
  tn__oom_span over;
} tn__oom_account;

void tn__oom_account_make(const tn_oom *oom, tn__oom_account *out);
const char *tn__oom_part_name(int part);

static inline int tn__oom_has(const tn__oom_account *account, enum tn__oom_part part) { return (int)(account->known >> part & 1); }
/* mid of a part; 0 when it is not known. */
static inline int64_t tn__oom_held(const tn__oom_account *account, enum tn__oom_part part) {
  return tn__oom_has(account, part) ? account->parts[part].mid : 0;
}

/* ---- actions ------------------------------------------------------------------------------------------------------------- */

/* In the order of trying: what costs nothing first, what changes numerics last.  id, name, exactness */
#define TN__OOM_ACTIONS(X)                          \
  X(LIMIT, "raise_limit", IDENTICAL)                \
  X(STRAYS, "set_device", IDENTICAL)                \
  X(OTHERS, "end_other_processes", IDENTICAL)       \
  X(UNSEEN, "find_unseen", IDENTICAL)               \
  X(EXPANDABLE, "expandable_segments", IDENTICAL)   \
  X(EMPTY_CACHE, "empty_cache", IDENTICAL)          \
  X(POOLS, "release_private_pools", IDENTICAL)      \
  X(OUTSIDE, "shrink_outside", IDENTICAL)           \
  X(HEADROOM, "leave_headroom", IDENTICAL)          \
  X(NO_GRAD, "no_grad", IDENTICAL)                  \
  X(FOREACH, "optimizer_foreach", IDENTICAL)        \
  X(MAP_LOCATION, "load_to_host", IDENTICAL)        \
  X(HOST_STATE, "save_from_host", IDENTICAL)        \
  X(HOST_SHARE, "less_host_memory", IDENTICAL)      \
  X(SHARED, "shared_memory", IDENTICAL)             \
  X(DEFECT, "work_around", IDENTICAL)               \
  X(SPLIT, "split_request", SAME_MATHS)             \
  X(REBUILD, "rebuild_activations", IDENTICAL)      \
  X(MICRO_BATCH, "smaller_micro_batch", SAME_MATHS) \
  X(SHARD, "shard_or_offload", IDENTICAL)           \
  X(PRECISION, "lower_precision", CHANGES)
enum tn__oom_action_id {
#define TN__OOM_ACTION_ENUM(name, text, exactness) TN__OOM_ACTION_##name,
  TN__OOM_ACTIONS(TN__OOM_ACTION_ENUM)
#undef TN__OOM_ACTION_ENUM
      TN__OOM_ACTION_COUNT
};

enum tn__oom_exactness { TN__OOM_EXACT_IDENTICAL, TN__OOM_EXACT_SAME_MATHS, TN__OOM_EXACT_CHANGES };
enum tn__oom_enough { TN__OOM_ENOUGH_NO, TN__OOM_ENOUGH_MAYBE, TN__OOM_ENOUGH_YES, TN__OOM_ENOUGH_UNKNOWN };

typedef struct tn__oom_action {
  uint8_t id;        /* tn__oom_action_id */
  uint8_t enough;    /* tn__oom_enough: alone, for this request */
  uint8_t is_upto;   /* 1: gives is a bound, not an amount; 2: it is what the action can have a part of */
  uint8_t has_gives; /* 0: the message cannot tell */
  tn__oom_span gives;
} tn__oom_action;

const char *tn__oom_action_name(int id);
enum tn__oom_exactness tn__oom_action_exactness(int id);

/* ---- the verdict --------------------------------------------------------------------------------------------------------- */

typedef struct tn__oom_verdict {
  const tn_oom *oom;
  tn__oom_account account;
  enum tn_oom_cause cause;
  int is_inferred;                              /* 1: the message does not name it; it is what fits the numbers */
  int first;                                    /* index of the action to take first, -1: none */
  tn__oom_action actions[TN__OOM_ACTION_COUNT]; /* in order; those with NO are what would not help */
  size_t action_count;
  uint32_t strays;         /* processes on the device that hold little more than a context each */
  tn__oom_span strays_sum; /* and all they hold */
} tn__oom_verdict;

void tn__oom_verdict_make(const tn_oom *oom, tn__oom_verdict *out);

/* For the two files that make it. */
enum tn_oom_cause tn__oom_cause_find(const tn_oom *oom, const tn__oom_account *account, int *out_inferred);
void tn__oom_actions_find(tn__oom_verdict *verdict);
/* Asked and printed by an allocator that caches, in the manner of CUDA's? */
int tn__oom_is_caching(const tn_oom *oom);
/* Printed as torch up to 2.0 did: "(GPU 0; ...)" */
int tn__oom_is_old(const tn_oom *oom);

#ifdef __cplusplus
}
#endif
#endif

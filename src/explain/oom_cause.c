/* oom_cause.c -- why memory ran out, from the account.
 *
 * A holder is the cause when what it holds would have covered the shortage and is not small beside the device: the last 20 MiB of a
 * full card are nobody's fault in particular. */
#include <string.h>

#include "explain/oom_verdict.h"

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)
#define CONTEXT GIB /* what one process may well need for its context and libraries */

static int knows(const tn_oom *oom, enum tn_oom_reading reading) { return tn__oom_knows(oom, reading); }

int tn__oom_is_caching(const tn_oom *oom) { return oom->form == TN_OOM_FORM_CACHING; }

int tn__oom_is_old(const tn_oom *oom) {
  return oom->form == TN_OOM_FORM_CACHING && knows(oom, TN_OOM_RESERVED) &&
         (oom->flags & TN_OOM_CACHED || !(oom->derived >> TN_OOM_RESERVED & 1));
}

static int is_share_of(int64_t bytes, int64_t whole, int percent) { return bytes > 0 && bytes >= whole / 100 * percent; }

/* ---- what the numbers show at once --------------------------------------------------------------------------------------- */

static int is_too_large(const tn__oom_account *a) {
  return a->has_asked && a->has_capacity && tn__oom_span_low(a->asked) > tn__oom_span_high(a->capacity);
}

/* Metal bounds a single buffer. */
static int is_one_buffer(const tn_oom *oom) { return strcmp(oom->name, "Invalid buffer size") == 0; }

/* Windows lends host memory to a full card, so more can be allocated than there is. */
static int is_spilled(const tn_oom *oom, const tn__oom_account *a) {
  if (oom->form == TN_OOM_FORM_MPS || !a->has_capacity) return 0;
  tn__oom_span held = {
      tn__oom_held(a, TN__OOM_PART_LIVE) + tn__oom_held(a, TN__OOM_PART_PIECES) + tn__oom_held(a, TN__OOM_PART_POOLS), 32 * MIB};
  return tn__oom_span_low(held) > tn__oom_span_high(a->capacity);
}

/* The device had enough, by more than what rounding and the driver's own needs explain. */
static int is_plenty_free(const tn__oom_account *a) {
  int64_t floor = a->has_capacity ? a->capacity.mid / 50 : 0;
  return -a->short_by.mid > (floor > 64 * MIB ? floor : 64 * MIB);
}

/* Did this generation have limits, and leave them out of the message?  Those that Windows refuses have another reason. */
static int may_hide_limit(const tn_oom *oom) {
  int is_gpu = strcmp(oom->backend, "cuda") == 0 || strcmp(oom->backend, "hip") == 0;
  if (oom->form != TN_OOM_FORM_CACHING || !is_gpu || tn__oom_is_old(oom) || oom->flags & TN_OOM_UNTOLD || knows(oom, TN_OOM_POOLS))
    return 0;
  return knows(oom, TN_OOM_RESERVED) && oom->sizes[TN_OOM_RESERVED].bytes;
}

/* A limit printed, or one that the message of torch 2.1 to 2.3 left out. */
static int limit_find(const tn_oom *oom, const tn__oom_account *a, int *out_inferred) {
  if (a->room_is_limit && (!a->has_short || tn__oom_span_high(a->short_by) >= 0)) return 1;
  if (!a->has_short || a->room_is_bound || !is_plenty_free(a)) return 0;
  if (oom->form == TN_OOM_FORM_CACHING && knows(oom, TN_OOM_ALLOWED) && !knows(oom, TN_OOM_RESERVED)) return 1;
  return !knows(oom, TN_OOM_ALLOWED) && may_hide_limit(oom) ? *out_inferred = 1 : 0;
}

/* ---- who holds it -------------------------------------------------------------------------------------------------------- */

static int holds_enough(const tn__oom_account *a, int64_t bytes) { return bytes > 0 && bytes >= a->short_by.mid; }

static int is_others(const tn__oom_account *a) {
  int64_t others = tn__oom_held(a, TN__OOM_PART_OTHERS);
  return holds_enough(a, others) && is_share_of(others, a->capacity.mid, 10);
}

/* The pieces would have held the request, or are much more than what was missing; some are always there. */
static int is_fragmented(const tn__oom_account *a) {
  int64_t pieces = tn__oom_held(a, TN__OOM_PART_PIECES),
          reserved = pieces + tn__oom_held(a, TN__OOM_PART_LIVE) + tn__oom_held(a, TN__OOM_PART_POOLS);
  int is_room = pieces >= a->asked.mid || pieces >= 4 * a->short_by.mid;
  return is_room && holds_enough(a, pieces) && is_share_of(pieces, reserved, 5);
}

static int is_pools(const tn__oom_account *a) {
  int64_t pools = tn__oom_held(a, TN__OOM_PART_POOLS);
  return holds_enough(a, pools) && is_share_of(pools, a->capacity.mid, 5);
}

static int is_outside(const tn__oom_account *a) {
  int64_t outside = tn__oom_held(a, TN__OOM_PART_OUTSIDE), unseen = tn__oom_held(a, TN__OOM_PART_UNSEEN);
  int64_t beyond = outside + unseen - CONTEXT;
  return holds_enough(a, beyond) && is_share_of(beyond, a->capacity.mid, 10);
}

static enum tn_oom_cause holder_find(const tn__oom_account *a) {
  if (is_others(a)) return TN_OOM_CAUSE_OTHERS;
  if (is_fragmented(a)) return TN_OOM_CAUSE_FRAGMENTED;
  if (is_pools(a)) return TN_OOM_CAUSE_POOLS;
  if (is_outside(a)) return TN_OOM_CAUSE_OUTSIDE;
  return tn__oom_has(a, TN__OOM_PART_LIVE) ? TN_OOM_CAUSE_TENSORS : TN_OOM_CAUSE_UNKNOWN;
}

static enum tn_oom_cause allocator_cause(const tn_oom *oom, const tn__oom_account *a, int *out_inferred) {
  if (is_too_large(a) || is_one_buffer(oom)) return TN_OOM_CAUSE_TOO_LARGE;
  if (is_spilled(oom, a)) return TN_OOM_CAUSE_SPILLED;
  if (limit_find(oom, a, out_inferred)) return TN_OOM_CAUSE_LIMIT;
  if (!a->has_short) return TN_OOM_CAUSE_UNKNOWN;
  if (a->short_by.mid <= 0) return *out_inferred = a->room_is_bound, TN_OOM_CAUSE_REFUSED;
  /* Nothing but a request and what was free: the request is what there is to say. */
  if (a->known == 1u << TN__OOM_PART_FREE) return TN_OOM_CAUSE_TENSORS;
  enum tn_oom_cause holder = holder_find(a);
  /* Metal's "other allocations" are this process's too: of MPSGraph, or of another library. */
  return oom->form == TN_OOM_FORM_MPS && holder == TN_OOM_CAUSE_OTHERS ? TN_OOM_CAUSE_OUTSIDE : holder;
}

/* "CUDA error: out of memory" from page-locking a batch is host memory; on the first call to the device, nothing of ours is there
 * yet. */
static enum tn_oom_cause driver_cause(const tn_oom *oom) {
  if (oom->moments >> TN_OOM_MOMENT_PINNING & 1) return TN_OOM_CAUSE_HOST;
  return oom->moments >> TN_OOM_MOMENT_START & 1 ? TN_OOM_CAUSE_OTHERS : TN_OOM_CAUSE_UNKNOWN;
}

static int is_nvml_assert(const tn_oom *oom) { return strncmp(oom->name, "NVML", 4) == 0; }

enum tn_oom_cause tn__oom_cause_find(const tn_oom *oom, const tn__oom_account *account, int *out_inferred) {
  switch ((enum tn_oom_form)oom->form) {
    case TN_OOM_FORM_CACHING:
    case TN_OOM_FORM_ASYNC:
    case TN_OOM_FORM_MPS:
      return allocator_cause(oom, account, out_inferred);
    case TN_OOM_FORM_LIBRARY:
    case TN_OOM_FORM_COLLECTIVE:
      return *out_inferred = 1, TN_OOM_CAUSE_NO_ROOM;
    case TN_OOM_FORM_DRIVER:
      return *out_inferred = 1, driver_cause(oom);
    case TN_OOM_FORM_PINNED:
    case TN_OOM_FORM_HOST:
    case TN_OOM_FORM_SHARED:
    case TN_OOM_FORM_KILLED:
      return *out_inferred = (oom->flags & TN_OOM_SOFT) != 0, TN_OOM_CAUSE_HOST;
    case TN_OOM_FORM_ASSERT:
      return is_nvml_assert(oom) ? TN_OOM_CAUSE_UNKNOWN : TN_OOM_CAUSE_DEFECT;
    case TN_OOM_FORM_SIZE:
      return TN_OOM_CAUSE_DEFECT;
    case TN_OOM_FORM_BARE:
    case TN_OOM_FORM_COUNT:
      break;
  }
  return TN_OOM_CAUSE_UNKNOWN;
}

void tn__oom_verdict_make(const tn_oom *oom, tn__oom_verdict *out) {
  *out = (tn__oom_verdict){.oom = oom, .first = -1};
  tn__oom_account_make(oom, &out->account);
  out->cause = tn__oom_cause_find(oom, &out->account, &out->is_inferred);
  tn__oom_actions_find(out);
}

int tn_oom_cause(const tn_oom *oom) {
  tn__oom_verdict verdict;
  tn__oom_verdict_make(oom, &verdict);
  return (int)verdict.cause;
}

const char *tn_oom_cause_name(int cause) {
  static const char *const names[TN_OOM_CAUSE_COUNT] = {
#define CAUSE_NAME(name, text) text,
      TN_OOM_CAUSES(CAUSE_NAME)
#undef CAUSE_NAME
  };
  return cause >= 0 && cause < TN_OOM_CAUSE_COUNT ? names[cause] : "?";
}

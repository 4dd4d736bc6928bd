/* oom_actions.c -- what would have helped, in bytes, and what would not. */
#include <string.h>

#include "explain/oom_verdict.h"

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

static int knows(const tn_oom *oom, enum tn_oom_reading reading) { return tn__oom_knows(oom, reading); }
static int is_moment(const tn__oom_verdict *v, enum tn_oom_moment moment) { return (int)(v->oom->moments >> moment & 1); }
static int is_cause(const tn__oom_verdict *v, enum tn_oom_cause cause) { return v->cause == cause; }

static tn__oom_action *add(tn__oom_verdict *v, enum tn__oom_action_id id, enum tn__oom_enough enough) {
  tn__oom_action *action = &v->actions[v->action_count++];
  *action = (tn__oom_action){.id = (uint8_t)id, .enough = (uint8_t)enough};
  return action;
}

/* Does giving that many bytes cover what was missing? */
static enum tn__oom_enough enough_for(const tn__oom_verdict *v, tn__oom_span gives, int is_upto) {
  const tn__oom_account *a = &v->account;
  if (!a->has_short || a->short_by.mid <= 0) return TN__OOM_ENOUGH_UNKNOWN;
  if (tn__oom_span_high(gives) < tn__oom_span_low(a->short_by)) return TN__OOM_ENOUGH_NO;
  return is_upto || tn__oom_span_low(gives) < tn__oom_span_high(a->short_by) ? TN__OOM_ENOUGH_MAYBE : TN__OOM_ENOUGH_YES;
}

static tn__oom_action *add_gives(tn__oom_verdict *v, enum tn__oom_action_id id, tn__oom_span gives, int is_upto) {
  tn__oom_action *action = add(v, id, enough_for(v, gives, is_upto));
  action->has_gives = 1;
  action->is_upto = (uint8_t)is_upto;
  action->gives = gives;
  return action;
}

/* ---- what costs nothing -------------------------------------------------------------------------------------------------- */

static void limit_add(tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  if (v->oom->form == TN_OOM_FORM_MPS) {
    if (knows(v->oom, TN_OOM_ALLOWED)) add(v, TN__OOM_ACTION_LIMIT, TN__OOM_ENOUGH_MAYBE);
    return;
  }
  if (!is_cause(v, TN_OOM_CAUSE_LIMIT) && !knows(v->oom, TN_OOM_ALLOWED)) return;
  if (!tn__oom_has(a, TN__OOM_PART_FREE)) {
    add(v, TN__OOM_ACTION_LIMIT, TN__OOM_ENOUGH_UNKNOWN);
    return;
  }
  tn__oom_span gives = a->parts[TN__OOM_PART_FREE];
  if (a->room_is_limit)
    gives = tn__oom_span_sub(gives, a->room);
  else if (!is_cause(v, TN_OOM_CAUSE_LIMIT))
    gives = (tn__oom_span){0, 0}; /* it was not what bounded it */
  tn__oom_action *action = add_gives(v, TN__OOM_ACTION_LIMIT, gives, 0);
  if (is_cause(v, TN_OOM_CAUSE_LIMIT) && !a->room_is_limit) action->enough = TN__OOM_ENOUGH_YES;
  if (!is_cause(v, TN_OOM_CAUSE_LIMIT)) action->enough = TN__OOM_ENOUGH_NO;
}

/* Was it the device's memory that was missing, and not a limit or something else? */
static int is_device_short(const tn__oom_verdict *v) {
  return !is_cause(v, TN_OOM_CAUSE_REFUSED) && !is_cause(v, TN_OOM_CAUSE_LIMIT) && !v->account.room_is_limit;
}

/* Processes that hold about as much as a context, and about as much as one another: ranks that touched this device before theirs.
 */
static void strays_find(tn__oom_verdict *v) {
  const tn_oom *oom = v->oom;
  uint32_t count = oom->process_count < TN_OOM_PROCESSES_MAX ? oom->process_count : TN_OOM_PROCESSES_MAX;
  int64_t least = 0;
  for (uint32_t i = 0; i < count; i++) {
    const tn_oom_process *process = &oom->processes[i];
    int64_t used = (int64_t)process->used.bytes;
    if (!process->known || process->is_self || used < 100 * MIB || used > 3 * GIB / 2) continue;
    if (!least || used < least) least = used;
  }
  for (uint32_t i = 0; i < count; i++) {
    const tn_oom_process *process = &oom->processes[i];
    int64_t used = (int64_t)process->used.bytes;
    if (!process->known || process->is_self || used < least || used > least + least / 2 || !least) continue;
    v->strays++;
    v->strays_sum = tn__oom_span_add(v->strays_sum, (tn__oom_span){used, (int64_t)process->used.slack});
  }
  if (v->strays < (oom->rank < 0 ? 3u : 2u)) v->strays = 0; /* two alone may be anybody's */
}

static void others_add(tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  if (v->oom->form == TN_OOM_FORM_MPS) return;
  strays_find(v);
  if (!is_device_short(v)) v->strays = 0;
  if (v->strays) add_gives(v, TN__OOM_ACTION_STRAYS, v->strays_sum, 0);
  if (!tn__oom_has(a, TN__OOM_PART_OTHERS)) {
    if (is_cause(v, TN_OOM_CAUSE_OTHERS)) add(v, TN__OOM_ACTION_OTHERS, TN__OOM_ENOUGH_UNKNOWN);
    return;
  }
  tn__oom_span others = a->parts[TN__OOM_PART_OTHERS];
  if (v->strays && others.mid - v->strays_sum.mid < 64 * MIB) return; /* the same ones */
  tn__oom_action *action = add_gives(v, TN__OOM_ACTION_OTHERS, others, 0);
  if (a->room_is_limit || is_cause(v, TN_OOM_CAUSE_LIMIT) || others.mid <= 0) action->enough = TN__OOM_ENOUGH_NO;
}

/* Memory that nothing in the message accounts for, beyond what a context and the driver need. */
static void unseen_add(tn__oom_verdict *v) {
  int64_t unseen = tn__oom_held(&v->account, TN__OOM_PART_UNSEEN) - GIB;
  if (unseen < GIB / 2 || !is_device_short(v)) return;
  add_gives(v, TN__OOM_ACTION_UNSEEN, (tn__oom_span){unseen, v->account.parts[TN__OOM_PART_UNSEEN].slack}, 1);
}

static int has_expandable(const tn_oom *oom) {
  static const char *const backends[] = {"cuda", "hip", "npu", "mlu", "musa", ""};
  if (oom->form != TN_OOM_FORM_CACHING) return 0;
  for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
    if (strcmp(oom->backend, backends[i]) == 0) return 1;
  return 0;
}

/* The pieces come back as whole pages only, so their sum is a bound; well above the need it is as good as enough. */
static void expandable_add(tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  if (!has_expandable(v->oom) || !tn__oom_has(a, TN__OOM_PART_PIECES)) return;
  tn__oom_span pieces = a->parts[TN__OOM_PART_PIECES];
  tn__oom_action *action = add_gives(v, TN__OOM_ACTION_EXPANDABLE, pieces, 1);
  if (is_cause(v, TN_OOM_CAUSE_FRAGMENTED) && tn__oom_span_low(pieces) >= tn__oom_span_high(a->asked))
    action->enough = TN__OOM_ENOUGH_YES;
  if (v->oom->flags & TN_OOM_EXPANDABLE || is_cause(v, TN_OOM_CAUSE_REFUSED) || is_cause(v, TN_OOM_CAUSE_TOO_LARGE))
    action->enough = TN__OOM_ENOUGH_NO;
}

/* The allocator gives its unused segments back before it fails, except while a graph is captured. */
static void empty_cache_add(tn__oom_verdict *v) {
  int is_capture = is_moment(v, TN_OOM_MOMENT_CAPTURE);
  if (v->oom->form == TN_OOM_FORM_CACHING || v->oom->form == TN_OOM_FORM_MPS)
    add(v, TN__OOM_ACTION_EMPTY_CACHE, is_capture ? TN__OOM_ENOUGH_MAYBE : TN__OOM_ENOUGH_NO);
}

static void pools_add(tn__oom_verdict *v) {
  if (tn__oom_held(&v->account, TN__OOM_PART_POOLS) > 0 && !is_cause(v, TN_OOM_CAUSE_REFUSED))
    add_gives(v, TN__OOM_ACTION_POOLS, v->account.parts[TN__OOM_PART_POOLS], 0);
}

static void outside_add(tn__oom_verdict *v) {
  if (!is_device_short(v)) return;
  if (v->oom->form == TN_OOM_FORM_MPS && tn__oom_held(&v->account, TN__OOM_PART_OTHERS) > 0) {
    add_gives(v, TN__OOM_ACTION_OUTSIDE, v->account.parts[TN__OOM_PART_OTHERS], 1);
    return;
  }
  int64_t beyond = tn__oom_held(&v->account, TN__OOM_PART_OUTSIDE) - GIB / 2;
  if (beyond < GIB / 2) return;
  add_gives(v, TN__OOM_ACTION_OUTSIDE, (tn__oom_span){beyond, v->account.parts[TN__OOM_PART_OUTSIDE].slack}, 1);
}

static void moments_add(tn__oom_verdict *v) {
  if (is_moment(v, TN_OOM_MOMENT_EVALUATION)) add(v, TN__OOM_ACTION_NO_GRAD, TN__OOM_ENOUGH_UNKNOWN);
  if (is_moment(v, TN_OOM_MOMENT_OPTIMIZER)) add(v, TN__OOM_ACTION_FOREACH, TN__OOM_ENOUGH_UNKNOWN);
  if (is_moment(v, TN_OOM_MOMENT_LOADING)) add(v, TN__OOM_ACTION_MAP_LOCATION, TN__OOM_ENOUGH_UNKNOWN);
  if (is_moment(v, TN_OOM_MOMENT_SAVING)) add(v, TN__OOM_ACTION_HOST_STATE, TN__OOM_ENOUGH_UNKNOWN);
}

static void host_add(tn__oom_verdict *v) {
  if (v->oom->form == TN_OOM_FORM_SHARED) add(v, TN__OOM_ACTION_SHARED, TN__OOM_ENOUGH_UNKNOWN);
  add(v, TN__OOM_ACTION_HOST_SHARE, TN__OOM_ENOUGH_UNKNOWN);
}

/* ---- what costs time or changes the run ---------------------------------------------------------------------------------- */

/* A request that is large beside the device or beside what is live is worth a look by itself. */
static int is_large(const tn__oom_account *a) {
  int64_t live = tn__oom_held(a, TN__OOM_PART_LIVE);
  if (!a->has_asked || a->asked.mid < 256 * MIB) return 0;
  return (a->has_capacity && a->asked.mid >= a->capacity.mid / 10) || (live && a->asked.mid >= live / 2);
}

static void split_add(tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  if (is_large(a) || is_cause(v, TN_OOM_CAUSE_TOO_LARGE) || is_moment(v, TN_OOM_MOMENT_LOSS) ||
      is_moment(v, TN_OOM_MOMENT_ATTENTION)) {
    if (a->has_asked)
      add_gives(v, TN__OOM_ACTION_SPLIT, a->asked, 1);
    else
      add(v, TN__OOM_ACTION_SPLIT, TN__OOM_ENOUGH_UNKNOWN);
  }
}

/* Activations are part of what is live; how much of it, only a trace tells. */
static void tensors_add(tn__oom_verdict *v) {
  static const enum tn__oom_action_id ids[] = {TN__OOM_ACTION_REBUILD, TN__OOM_ACTION_MICRO_BATCH, TN__OOM_ACTION_SHARD,
                                               TN__OOM_ACTION_PRECISION};
  const tn__oom_account *a = &v->account;
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
    if (add_gives(v, ids[i], a->parts[TN__OOM_PART_LIVE], 2)->enough == TN__OOM_ENOUGH_NO) break; /* and so it is for the others */
}

/* Shrinking our own tensors is an answer where they are there, and where it is they that stand in the way. */
static int is_about_tensors(const tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  if (!tn__oom_has(a, TN__OOM_PART_LIVE) || a->parts[TN__OOM_PART_LIVE].mid < 64 * MIB) return 0;
  return !is_cause(v, TN_OOM_CAUSE_TOO_LARGE) && !is_cause(v, TN_OOM_CAUSE_REFUSED) &&
         !(is_cause(v, TN_OOM_CAUSE_LIMIT) && v->is_inferred);
}

/* ---- the first one ------------------------------------------------------------------------------------------------------- */

static int find(const tn__oom_verdict *v, enum tn__oom_action_id id) {
  for (size_t i = 0; i < v->action_count; i++)
    if (v->actions[i].id == id) return (int)i;
  return -1;
}

/* What belongs to the moment, where there are no numbers. */
static int of_moment(const tn__oom_verdict *v) {
  for (size_t i = 0; i < v->action_count; i++)
    if (v->actions[i].id >= TN__OOM_ACTION_NO_GRAD && v->actions[i].id <= TN__OOM_ACTION_HOST_STATE) return (int)i;
  return -1;
}

/* What belongs to the cause. */
static int first_find(const tn__oom_verdict *v) {
  static const int8_t of_cause[TN_OOM_CAUSE_COUNT] = {
      [TN_OOM_CAUSE_UNKNOWN] = -1,
      [TN_OOM_CAUSE_LIMIT] = TN__OOM_ACTION_LIMIT,
      [TN_OOM_CAUSE_TOO_LARGE] = TN__OOM_ACTION_SPLIT,
      [TN_OOM_CAUSE_OTHERS] = TN__OOM_ACTION_OTHERS,
      [TN_OOM_CAUSE_FRAGMENTED] = TN__OOM_ACTION_EXPANDABLE,
      [TN_OOM_CAUSE_POOLS] = TN__OOM_ACTION_POOLS,
      [TN_OOM_CAUSE_OUTSIDE] = TN__OOM_ACTION_OUTSIDE,
      [TN_OOM_CAUSE_TENSORS] = TN__OOM_ACTION_REBUILD,
      [TN_OOM_CAUSE_SPILLED] = TN__OOM_ACTION_REBUILD,
      [TN_OOM_CAUSE_REFUSED] = -1,
      [TN_OOM_CAUSE_NO_ROOM] = TN__OOM_ACTION_HEADROOM,
      [TN_OOM_CAUSE_HOST] = TN__OOM_ACTION_HOST_SHARE,
      [TN_OOM_CAUSE_DEFECT] = TN__OOM_ACTION_DEFECT,
  };
  if (is_cause(v, TN_OOM_CAUSE_UNKNOWN)) return of_moment(v);
  if (v->oom->form == TN_OOM_FORM_SHARED) return find(v, TN__OOM_ACTION_SHARED);
  if (is_cause(v, TN_OOM_CAUSE_OTHERS) && v->strays && find(v, TN__OOM_ACTION_OTHERS) < 0) return find(v, TN__OOM_ACTION_STRAYS);
  if (is_cause(v, TN_OOM_CAUSE_OTHERS) && v->strays && v->actions[find(v, TN__OOM_ACTION_STRAYS)].enough == TN__OOM_ENOUGH_YES)
    return find(v, TN__OOM_ACTION_STRAYS);
  if (is_cause(v, TN_OOM_CAUSE_OUTSIDE) && find(v, TN__OOM_ACTION_OUTSIDE) < 0) return find(v, TN__OOM_ACTION_UNSEEN);
  return of_cause[v->cause] < 0 ? -1 : find(v, (enum tn__oom_action_id)of_cause[v->cause]);
}

void tn__oom_actions_find(tn__oom_verdict *v) {
  int is_host = is_cause(v, TN_OOM_CAUSE_HOST), is_defect = is_cause(v, TN_OOM_CAUSE_DEFECT);
  if (is_host) {
    host_add(v);
  } else if (is_defect) {
    add(v, TN__OOM_ACTION_DEFECT, TN__OOM_ENOUGH_UNKNOWN);
  } else {
    limit_add(v);
    others_add(v);
    unseen_add(v);
    expandable_add(v);
    empty_cache_add(v);
    pools_add(v);
    outside_add(v);
    if (is_cause(v, TN_OOM_CAUSE_NO_ROOM) || v->oom->form == TN_OOM_FORM_DRIVER)
      add(v, TN__OOM_ACTION_HEADROOM, TN__OOM_ENOUGH_UNKNOWN);
    moments_add(v);
    split_add(v);
    if (is_about_tensors(v)) tensors_add(v);
  }
  v->first = first_find(v);
}

const char *tn__oom_action_name(int id) {
  static const char *const names[TN__OOM_ACTION_COUNT] = {
#define ACTION_NAME(name, text, exactness) text,
      TN__OOM_ACTIONS(ACTION_NAME)
#undef ACTION_NAME
  };
  return id >= 0 && id < TN__OOM_ACTION_COUNT ? names[id] : "?";
}

enum tn__oom_exactness tn__oom_action_exactness(int id) {
  static const enum tn__oom_exactness exactness[TN__OOM_ACTION_COUNT] = {
#define ACTION_EXACTNESS(name, text, class_name) TN__OOM_EXACT_##class_name,
      TN__OOM_ACTIONS(ACTION_EXACTNESS)
#undef ACTION_EXACTNESS
  };
  return id >= 0 && id < TN__OOM_ACTION_COUNT ? exactness[id] : TN__OOM_EXACT_IDENTICAL;
}

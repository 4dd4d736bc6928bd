/* oom_account.c -- where the device's memory was, as far as a message tells. */
#include <string.h>

#include "explain/oom_verdict.h"

static int knows(const tn_oom *oom, enum tn_oom_reading reading) { return tn__oom_knows(oom, reading); }

static void part_set(tn__oom_account *out, enum tn__oom_part part, tn__oom_span size) {
  out->known |= 1u << part;
  out->parts[part] = size;
}

static void part_from(const tn_oom *oom, enum tn_oom_reading reading, enum tn__oom_part part, tn__oom_account *out) {
  if (knows(oom, reading)) part_set(out, part, tn__oom_span_of(oom, reading));
}

/* What this process holds beyond reserved.  Measured at two moments by two parties, it may come out below 0: then it is not known.
 */
static void outside_set(const tn_oom *oom, tn__oom_account *out) {
  if (!knows(oom, TN_OOM_PROCESS) || !knows(oom, TN_OOM_RESERVED)) return;
  tn__oom_span outside = tn__oom_span_sub(tn__oom_span_of(oom, TN_OOM_PROCESS), tn__oom_span_of(oom, TN_OOM_RESERVED));
  if (tn__oom_span_high(outside) < 0) return;
  if (outside.mid < 0) outside.mid = 0;
  part_set(out, TN__OOM_PART_OUTSIDE, outside);
}

static void capacity_set(const tn_oom *oom, tn__oom_account *out) {
  enum tn_oom_reading reading = oom->form == TN_OOM_FORM_MPS ? TN_OOM_ALLOWED : TN_OOM_TOTAL;
  if (!knows(oom, reading)) return;
  out->has_capacity = 1;
  out->capacity = tn__oom_span_of(oom, reading);
}

static tn__oom_span parts_sum(const tn__oom_account *account) {
  tn__oom_span sum = {0, 0};
  for (int i = 0; i < TN__OOM_PART_COUNT; i++)
    if (account->known >> i & 1) sum = tn__oom_span_add(sum, account->parts[i]);
  return sum;
}

/* The rest of the capacity belongs to something that the message does not name: it is shown, never hidden. */
static void unseen_set(tn__oom_account *out) {
  if (!out->has_capacity || !tn__oom_has(out, TN__OOM_PART_LIVE) || !tn__oom_has(out, TN__OOM_PART_FREE)) return;
  tn__oom_span rest = tn__oom_span_sub(out->capacity, parts_sum(out));
  if (tn__oom_span_high(rest) < 0) {
    out->is_over = 1;
    out->over = (tn__oom_span){-rest.mid, rest.slack};
    return;
  }
  if (rest.mid < 0) rest.mid = 0;
  part_set(out, TN__OOM_PART_UNSEEN, rest);
}

/* Metal's limit is on everything that the process has on the device; what is below it is free. */
static void metal_free_set(tn__oom_account *out) {
  if (!out->has_capacity || !tn__oom_has(out, TN__OOM_PART_LIVE)) return;
  tn__oom_span rest = tn__oom_span_sub(out->capacity, parts_sum(out));
  if (rest.mid < 0) rest.mid = 0;
  part_set(out, TN__OOM_PART_FREE, rest);
}

/* What a limit leaves of it; nothing is said when the message does not tell how much of the limit is taken. */
static void limit_apply(const tn_oom *oom, tn__oom_account *out) {
  enum tn_oom_reading held = knows(oom, TN_OOM_RESERVED) ? TN_OOM_RESERVED : TN_OOM_ALLOCATED;
  if (oom->form == TN_OOM_FORM_MPS || !knows(oom, TN_OOM_ALLOWED) || !knows(oom, held)) return;
  tn__oom_span left = tn__oom_span_sub(tn__oom_span_of(oom, TN_OOM_ALLOWED), tn__oom_span_of(oom, held));
  if (left.mid < 0) left.mid = 0;
  out->room_is_limit = !out->has_room || left.mid < out->room.mid;
  out->room = out->has_room ? tn__oom_span_min(out->room, left) : left;
  out->has_room = 1;
}

/* What could still be had: what is free, or less under a limit. */
static void room_set(const tn_oom *oom, tn__oom_account *out) {
  if (tn__oom_has(out, TN__OOM_PART_FREE)) {
    out->has_room = 1;
    out->room = out->parts[TN__OOM_PART_FREE];
  }
  limit_apply(oom, out);
  if (out->has_room || !out->has_capacity || !tn__oom_has(out, TN__OOM_PART_LIVE)) return;
  out->room = tn__oom_span_sub(out->capacity, parts_sum(out));
  if (out->room.mid < 0) out->room.mid = 0;
  out->has_room = out->room_is_bound = 1;
}

void tn__oom_account_make(const tn_oom *oom, tn__oom_account *out) {
  *out = (tn__oom_account){0};
  if (oom->form != TN_OOM_FORM_CACHING && oom->form != TN_OOM_FORM_ASYNC && oom->form != TN_OOM_FORM_MPS) {
    if (knows(oom, TN_OOM_ASKED)) out->has_asked = 1, out->asked = tn__oom_span_of(oom, TN_OOM_ASKED);
    return;
  }
  capacity_set(oom, out);
  part_from(oom, TN_OOM_ALLOCATED, TN__OOM_PART_LIVE, out);
  part_from(oom, TN_OOM_UNALLOCATED, TN__OOM_PART_PIECES, out);
  part_from(oom, TN_OOM_POOLS, TN__OOM_PART_POOLS, out);
  outside_set(oom, out);
  part_from(oom, TN_OOM_OTHERS, TN__OOM_PART_OTHERS, out);
  part_from(oom, TN_OOM_FREE, TN__OOM_PART_FREE, out);
  if (oom->form == TN_OOM_FORM_MPS) metal_free_set(out);
  unseen_set(out);
  room_set(oom, out);
  out->has_asked = knows(oom, TN_OOM_ASKED);
  out->asked = tn__oom_span_of(oom, TN_OOM_ASKED);
  out->has_short = out->has_asked && out->has_room;
  if (out->has_short) out->short_by = tn__oom_span_sub(out->asked, out->room);
}

const char *tn__oom_part_name(int part) {
  static const char *const names[TN__OOM_PART_COUNT] = {
#define PART_NAME(name, text) text,
      TN__OOM_PARTS(PART_NAME)
#undef PART_NAME
  };
  return part >= 0 && part < TN__OOM_PART_COUNT ? names[part] : "?";
}

/* find_limits.c -- out of memory, limits, retries, nearness to the limit.  See findings.h. */
#include "base/error.h"
#include "explain/accounting.h"
#include "explain/findings.h"
#include "explain/rounding.h"
#include "explain/stacks.h"

#define MIB ((uint64_t)1 << 20)

/* ---- out of memory ------------------------------------------------------------------------------------------------------- */

static uint64_t up_to_multiple(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

/* What cudaMalloc would have been asked for. */
static uint64_t segment_bytes(uint64_t rounded) {
  if (rounded <= MIB) return 2 * MIB;
  return rounded < 10 * MIB ? 20 * MIB : up_to_multiple(rounded, 2 * MIB);
}

/* An OOM and the memory at that moment. */
typedef struct oom {
  uint32_t entry, count;       /* the last one; how many there are */
  uint64_t asked_bytes;        /* rounded */
  uint64_t needed_bytes;       /* of a new segment */
  uint64_t device_free_bytes;  /* as the driver said */
  uint64_t largest_bytes;      /* piece that was free in the right pool */
  uint64_t free_bytes;         /* all such pieces */
  uint32_t pieces;
  uint32_t reserved;
  tn__accounting account;
} oom;

static int is_small(const oom *o) { return o->asked_bytes <= MIB; }

/* Pieces that could have served the request, had they been large enough: of its stream and pool. */
static void pieces_count(oom *o, const tn__layout *layout, uint32_t stream) {
  for (size_t i = 0; i < layout->holes.count; i++) {
    const tn__hole *hole = tn__vec_at(&layout->holes, i);
    const tn__layout_segment *segment = tn__vec_at(&layout->segments, hole->segment);
    int small = (segment->flags & TN_SEGMENT_SMALL) != 0;
    if (segment->pool != 0 || segment->stream != stream || small != is_small(o) || segment->flags & TN_SEGMENT_UNTILED) continue;
    o->pieces++;
    o->free_bytes += hole->bytes;
    if (hole->bytes > o->largest_bytes) o->largest_bytes = hole->bytes;
  }
}

static tn__level level_at(const tn__chronicle *history, uint32_t moment) {
  tn__walk walk = tn__walk_begin(history);
  while (walk.moment < moment && tn__walk_next(&walk)) {}
  return walk.level;
}

static int oom_look(oom *o, const tn__analysis *a) {
  const tn_entry *entry = &a->history.entries[o->entry];
  o->asked_bytes = entry->bytes;
  o->needed_bytes = segment_bytes(entry->bytes);
  o->device_free_bytes = entry->addr;
  tn__layout layout;
  int rc = tn__layout_init(&layout, &a->history, o->entry);
  if (!rc) {
    pieces_count(o, &layout, entry->stream);
    tn__account(&o->account, &layout, level_at(&a->history, o->entry), entry->stream);
  }
  tn__layout_deinit(&layout);
  return rc;
}

static void oom_say_pieces(const oom *o, tn_text *text) {
  tn__text_size(text, o->free_bytes);
  tn__text_printf(text, " were free in %u pieces, the largest of ", o->pieces);
  tn__text_size(text, o->largest_bytes);
}

static void oom_say(const oom *o, const tn__analysis *a, tn__note *note) {
  uint32_t stack = a->history.entries[o->entry].stack;
  tn__text_add(&note->what, "Out of memory: ");
  tn__text_size(&note->what, o->asked_bytes);
  tn__text_add(&note->what, " were asked for at ");
  tn__say_place(&note->what, a, stack);
  tn__text_add(&note->what, "; ");
  if (o->pieces)
    oom_say_pieces(o, &note->what);
  else
    tn__text_add(&note->what, "no piece of its pool was free");
  tn__text_add(&note->what, ".");
  tn__text_add(&note->evidence, "allocated ");
  tn__text_size(&note->evidence, o->account.level.allocated_bytes);
  tn__text_add(&note->evidence, " of ");
  tn__text_size(&note->evidence, o->account.level.reserved_bytes);
  tn__text_add(&note->evidence, " reserved; a new segment of ");
  tn__text_size(&note->evidence, o->needed_bytes);
  tn__text_add(&note->evidence, " was refused; the card had ");
  tn__text_size(&note->evidence, o->device_free_bytes);
  tn__text_add(&note->evidence, " free");
  if (o->count > 1) tn__text_printf(&note->evidence, "\nthe last of %u in this history", o->count);
}

/* What would have been enough: one piece of the right size, or fewer bytes in use. */
static void oom_advise(const oom *o, tn__note *note) {
  note->finding.bytes = o->asked_bytes;
  if (o->free_bytes >= o->asked_bytes) {
    note->finding.missing_bytes = o->asked_bytes - o->largest_bytes;
    tn__text_add(&note->fix, "In one piece, what was free would have been enough: ");
    tn__text_size(&note->fix, note->finding.missing_bytes);
    tn__text_add(&note->fix, " were missing next to the largest piece. See FRAGMENTATION.");
    return;
  }
  note->finding.missing_bytes = o->asked_bytes - o->free_bytes;
  tn__text_size(&note->fix, note->finding.missing_bytes);
  tn__text_add(&note->fix, " less in use would have been enough, had the rest been in one piece; ");
  tn__text_size(&note->fix, o->asked_bytes);
  tn__text_add(&note->fix, " less is enough in any case.");
}

/* 0: the driver itself was out of memory. */
static int cap_find(const oom *o, tn__analysis *a) {
  if (o->device_free_bytes < o->needed_bytes) return TN_OK;
  uint64_t reserved = o->account.level.reserved_bytes;
  tn__note note = tn__note_open(TN__FINDING_CAP, TN__SEVERITY_FAULT, reserved);
  note.finding.entry = o->entry;
  tn__text_add(&note.what, "A limit of this process was met, not the card's end: ");
  tn__text_size(&note.what, o->device_free_bytes);
  tn__text_add(&note.what, " of the card were free.");
  tn__text_add(&note.evidence, "the limit on reserved memory lies between ");
  tn__text_size(&note.evidence, reserved);
  tn__text_add(&note.evidence, " and ");
  tn__text_size(&note.evidence, reserved + o->needed_bytes);
  tn__text_add(&note.fix, "Raise torch.cuda.set_per_process_memory_fraction(), per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF, or "
                          "the quota of MPS or the container.");
  return tn__note_close(&note, a);
}

static int oom_find(tn__analysis *a) {
  oom o = {.entry = TN_NONE};
  for (uint32_t i = 0; i < a->history.entry_count; i++)
    if (a->history.entries[i].action == TN_ACTION_OOM) o.entry = i, o.count++;
  if (o.entry == TN_NONE) return TN_OK;
  TN_TRY(oom_look(&o, a));
  tn__note note = tn__note_open(TN__FINDING_OOM, TN__SEVERITY_FAULT, o.asked_bytes);
  note.finding.entry = o.entry;
  note.finding.stack = tn__stacks_group(&a->stacks, a->history.entries[o.entry].stack);
  oom_say(&o, a, &note);
  oom_advise(&o, &note);
  TN_TRY(tn__note_close(&note, a));
  return cap_find(&o, a);
}

/* ---- retries ------------------------------------------------------------------------------------------------------------- */

/* A row of SEGMENT_FREE that an allocation caused: one follows at once, from the same place, and empty_cache() is not in the stack. */
typedef struct retries {
  uint32_t count, first, stack;
  uint64_t bytes;       /* given back */
  uint32_t row_begin;   /* TN_NONE: no row is open */
  uint64_t row_bytes;
  uint32_t row_segments, segments;
} retries;

static int is_giving_back(const tn_entry *entry) {
  return entry->action == TN_ACTION_SEGMENT_FREE || entry->action == TN_ACTION_SEGMENT_UNMAP;
}

static int is_asking(const tn_entry *entry) {
  return entry->action == TN_ACTION_SEGMENT_ALLOC || entry->action == TN_ACTION_SEGMENT_MAP || entry->action == TN_ACTION_OOM ||
         entry->action == TN_ACTION_ALLOC;
}

static int same_place(const tn__analysis *a, const tn_entry *one, const tn_entry *other) {
  uint32_t group = tn__stacks_group(&a->stacks, one->stack);
  if (tn__stacks_cues(&a->stacks, one->stack) & TN__CUE_EMPTY_CACHE) return 0;
  return group == TN_NONE || group == tn__stacks_group(&a->stacks, other->stack);
}

static void retries_see(retries *r, const tn__analysis *a, uint32_t at) {
  const tn_entry *entry = &a->history.entries[at];
  if (is_giving_back(entry)) {
    if (r->row_begin == TN_NONE) r->row_begin = at, r->row_bytes = 0, r->row_segments = 0;
    r->row_bytes += entry->bytes;
    r->row_segments++;
    return;
  }
  if (entry->action == TN_ACTION_FREE_COMPLETED || r->row_begin == TN_NONE) return; /* events are processed before it asks again */
  if (is_asking(entry) && same_place(a, &a->history.entries[r->row_begin], entry)) {
    if (!r->count++) r->first = at, r->stack = tn__stacks_group(&a->stacks, entry->stack);
    r->bytes += r->row_bytes;
    r->segments += r->row_segments;
  }
  r->row_begin = TN_NONE;
}

static int retries_find(tn__analysis *a) {
  retries r = {.row_begin = TN_NONE};
  for (uint32_t i = 0; i < a->history.entry_count; i++) retries_see(&r, a, i);
  if (!r.count) return TN_OK;
  tn__note note = tn__note_open(TN__FINDING_RETRIES, TN__SEVERITY_WASTE, r.bytes);
  note.finding.entry = r.first;
  note.finding.stack = r.stack;
  tn__text_printf(&note.what, "%u time%s the allocator had to give cached segments back (", r.count, r.count == 1 ? "" : "s");
  tn__text_size(&note.what, r.bytes);
  tn__text_add(&note.what, " in all) before a request could be met.");
  tn__text_printf(&note.evidence, "%u segments; first at entry %u, for ", r.segments, r.first);
  tn__say_place_op(&note.evidence, a, r.stack);
  tn__text_add(&note.evidence, "\nthe limit had been reached: reserved memory could not grow");
  tn__text_add(&note.fix, "Each stops the GPU for a while. Less fragmentation (expandable_segments:True) or a lower peak avoids them.");
  return tn__note_close(&note, a);
}

/* ---- nearness ------------------------------------------------------------------------------------------------------------ */

static int near_find(tn__analysis *a) {
  uint64_t reserved = a->account_peak.level.reserved_bytes;
  if (!a->total_bytes) return TN_OK;
  if (reserved / 100 * 100 < a->total_bytes / 100 * 92) return TN_OK;
  uint64_t spare = a->total_bytes > reserved ? a->total_bytes - reserved : 0;
  tn__note note = tn__note_open(TN__FINDING_NEAR_OOM, TN__SEVERITY_WASTE, reserved);
  tn__text_size(&note.what, reserved);
  tn__text_add(&note.what, " were reserved at the peak, ");
  tn__say_share(&note.what, reserved, a->total_bytes);
  tn__text_add(&note.what, " of ");
  tn__text_size(&note.what, a->total_bytes);
  tn__text_add(&note.what, "; ");
  tn__text_size(&note.what, spare);
  tn__text_add(&note.what, " are left for the CUDA context and everything else.");
  tn__text_printf(&note.evidence, "reserved memory at moment %u of the history", a->peak_reserved_moment);
  tn__text_add(&note.fix, "A longer input or another process ends the run. The notes below say what is cheapest to give up.");
  return tn__note_close(&note, a);
}

int tn__find_limits(tn__analysis *a) {
  TN_TRY(oom_find(a));
  TN_TRY(retries_find(a));
  return near_find(a);
}

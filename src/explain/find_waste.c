/* find_waste.c -- reserved memory that nobody uses, by cause; find_pieces.c has fragmentation.  See findings.h. */
#include <stdlib.h>

#include "base/error.h"
#include "explain/accounting.h"
#include "explain/findings.h"
#include "explain/rounding.h"
#include "explain/stacks.h"

static void size_add(tn_text *text, const char *before, uint64_t bytes, const char *after) {
  tn__text_add(text, before);
  tn__text_size(text, bytes);
  tn__text_add(text, after);
}

/* ---- streams ------------------------------------------------------------------------------------------------------------- */

static uint64_t stream_handle(const tn__analysis *a, uint32_t stream) {
  size_t count = 0;
  const tn_stream *streams = tn_trace_table(a->history.trace, TN_TABLE_STREAM, &count);
  return stream < count ? streams[stream].handle : 0;
}

typedef struct share { /* of a stream or a pool */
  uint32_t id, segments;
  uint64_t reserved_bytes, live_bytes;
} share;

static int share_compare(const void *a, const void *b) {
  uint64_t left = ((const share *)a)->reserved_bytes, right = ((const share *)b)->reserved_bytes;
  if (left != right) return left < right ? 1 : -1;
  return ((const share *)a)->id < ((const share *)b)->id ? -1 : 1;
}

static int share_add(tn_vec *shares, uint32_t id, const tn__layout_segment *segment) {
  share *found = NULL;
  for (size_t i = 0; i < shares->count && !found; i++)
    if (TN_VEC(shares, share)[i].id == id) found = tn__vec_at(shares, i);
  if (!found && !(found = tn__vec_add(shares))) return TN_ENOMEM;
  found->id = id;
  found->segments++;
  found->reserved_bytes += segment->bytes;
  found->live_bytes += segment->live_bytes;
  return TN_OK;
}

/* Of the final segments, by stream (those of the default pool that are not wholly free) or by pool (the private ones). */
static int shares_gather(const tn__analysis *a, int by_pool, tn_vec *out) {
  enum { SHARES_MAX = 256 };
  tn__layout layout;
  int rc = tn__layout_init(&layout, &a->history, a->history.entry_count);
  for (size_t i = 0; i < layout.segments.count && !rc && out->count < SHARES_MAX; i++) {
    const tn__layout_segment *segment = tn__vec_at(&layout.segments, i);
    if (by_pool ? segment->pool == 0 : segment->pool != 0 || segment->live_bytes == 0) continue;
    rc = share_add(out, by_pool ? segment->pool : segment->stream, segment);
  }
  tn__layout_deinit(&layout);
  if (!rc && out->count) qsort(out->data, out->count, sizeof(share), share_compare);
  return rc;
}

static void streams_say(const tn__analysis *a, const tn_vec *shares, tn_text *text) {
  for (size_t i = 0; i < shares->count; i++) {
    const share *of = tn__vec_at(shares, i);
    if (of->id == a->stream) continue;
    tn__text_printf(text, "%sstream %#llx: ", text->len ? "\n" : "", (unsigned long long)stream_handle(a, of->id));
    size_add(text, "", of->reserved_bytes - of->live_bytes, " free of ");
    size_add(text, "", of->reserved_bytes, " in segments with live blocks");
  }
}

static int streams_find(tn__analysis *a) {
  uint64_t bytes = a->account_end.part[TN__PART_OTHER_STREAMS];
  if (!tn__is_much(bytes, a->account_end.level.reserved_bytes, 5)) return TN_OK;
  tn__note note = tn__note_open(TN__FINDING_STREAM_CACHE, TN__SEVERITY_WASTE, bytes);
  note.finding.exactness = TN__EXACT_IDENTICAL;
  size_add(&note.what, "", bytes, " are free but can only be used by other streams than the one that asks for memory.");
  tn_vec shares;
  tn__vec_init(&shares, sizeof(share));
  int rc = shares_gather(a, 0, &shares);
  if (!rc) streams_say(a, &shares, &note.evidence);
  tn__vec_deinit(&shares);
  if (rc) {
    tn__note_drop(&note);
    return rc;
  }
  tn__text_add(&note.fix, "Allocate on one stream and use tensors on others with record_stream() or events, or free what the side streams hold; "
                          "expandable_segments:True lets whole pages be given back.");
  return tn__note_close(&note, a);
}

/* Blocks whose memory other streams still may use when the program has let go of them. */
typedef struct delay {
  uint64_t most_bytes;      /* pending at once */
  uint32_t most_moment;
  uint32_t count;
  uint64_t longest_us;
  uint32_t longest;         /* span */
} delay;

static void delay_look(delay *d, const tn__analysis *a) {
  tn__walk walk = tn__walk_begin(&a->history);
  do {
    uint64_t pending = walk.level.active_bytes - walk.level.allocated_bytes;
    if (pending > d->most_bytes) {
      /* Every free is pending between its two entries; it is a delay when something else comes between. */
      const tn_entry *next = walk.moment < a->history.entry_count ? &a->history.entries[walk.moment] : NULL;
      if (!next || next->action != TN_ACTION_FREE_COMPLETED) d->most_bytes = pending, d->most_moment = walk.moment;
    }
  } while (tn__walk_next(&walk));
  for (size_t i = 0; i < a->history.spans.count; i++) {
    const tn__span *span = tn__analysis_span(a, i);
    if (span->asked == TN_NONE || span->done == TN_NONE || span->done <= span->asked + 1) continue;
    uint64_t from = a->history.entries[span->asked].time_us, to = a->history.entries[span->done].time_us;
    d->count++;
    if (to > from && to - from > d->longest_us) d->longest_us = to - from, d->longest = (uint32_t)i;
  }
}

static int delays_find(tn__analysis *a) {
  delay d = {.longest = TN_NONE};
  delay_look(&d, a);
  if (!tn__is_much(d.most_bytes, a->account_peak.level.reserved_bytes, 2)) return TN_OK;
  tn__note note = tn__note_open(TN__FINDING_STREAM_DELAY, TN__SEVERITY_WASTE, d.most_bytes);
  note.finding.exactness = TN__EXACT_IDENTICAL;
  note.finding.entry = d.most_moment ? d.most_moment - 1 : TN_NONE;
  size_add(&note.what, "Up to ", d.most_bytes, " had been freed by the program but waited for other streams (record_stream).");
  tn__text_printf(&note.evidence, "%u frees came back later", d.count);
  if (d.longest != TN_NONE) {
    tn__text_printf(&note.evidence, "; the longest took %.1f ms: ", (double)d.longest_us / 1000);
    const tn__span *span = tn__analysis_span(a, d.longest);
    note.finding.span = d.longest;
    note.finding.stack = tn__stacks_group(&a->stacks, span->stack);
    size_add(&note.evidence, "", span->bytes, " from ");
    tn__say_place_op(&note.evidence, a, span->stack);
  }
  note.finding.frees_bytes = a->account_peak.part[TN__PART_PENDING];
  tn__text_add(&note.fix, "Let the stream that uses a tensor finish before the tensor is dropped (stream.wait_stream(), events), so that record_stream is not needed.");
  return tn__note_close(&note, a);
}

/* ---- private pools ------------------------------------------------------------------------------------------------------- */

static void pools_say(const tn__analysis *a, const tn_vec *shares, tn_text *text) {
  size_t count = 0;
  const tn_pool *pools = tn_trace_table(a->history.trace, TN_TABLE_POOL, &count);
  for (size_t i = 0; i < shares->count; i++) {
    const share *of = tn__vec_at(shares, i);
    if (of->id >= count) continue;
    tn__text_printf(text, "%s%s (%llu, %llu): ", text->len ? "\n" : "", pools[of->id].first ? "CUDA graph" : "MemPool",
                    (unsigned long long)pools[of->id].first, (unsigned long long)pools[of->id].second);
    size_add(text, "", of->reserved_bytes, " reserved, ");
    size_add(text, "", of->live_bytes, " live");
    tn__text_printf(text, ", %u segments", of->segments);
  }
}

static uint64_t reserved_of(const tn_vec *shares) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < shares->count; i++) bytes += TN_VEC(shares, share)[i].reserved_bytes;
  return bytes;
}

/* A graph needs the free part of its pool whenever it is replayed; of a MemPool nobody knows. */
static int has_graph(const tn__analysis *a, const tn_vec *shares) {
  size_t count = 0;
  const tn_pool *pools = tn_trace_table(a->history.trace, TN_TABLE_POOL, &count);
  for (size_t i = 0; i < shares->count; i++) {
    uint32_t id = TN_VEC(shares, share)[i].id;
    if (id < count && pools[id].first) return 1;
  }
  return 0;
}

static int pools_note(tn__analysis *a, const tn_vec *shares) {
  uint64_t reserved = reserved_of(shares), whole = a->account_end.level.reserved_bytes;
  uint64_t unused = a->account_end.part[TN__PART_PRIVATE_POOLS];
  if (!tn__is_much(reserved, whole, 5)) return TN_OK;
  int graph = has_graph(a, shares), is_waste = !graph && tn__is_much(unused, whole, 5);
  tn__note note = tn__note_open(TN__FINDING_GRAPH_POOL, is_waste ? TN__SEVERITY_WASTE : TN__SEVERITY_NOTE, reserved);
  size_add(&note.what, "", reserved, " are reserved for private pools");
  size_add(&note.what, "; ", unused, " of them are free, and nothing else may use those.");
  pools_say(a, shares, &note.evidence);
  if (graph)
    tn__text_add(&note.fix, "A graph needs its pool whenever it is replayed. Capture graphs into one pool (pool=graph.pool()), the largest shape first, "
                            "and delete graphs that are done with: their memory returns at the next empty_cache().");
  else
    tn__text_add(&note.fix, "Delete MemPools that are done with: their memory returns at the next empty_cache().");
  if (is_waste) note.finding.frees_bytes = unused;
  return tn__note_close(&note, a);
}

static int pools_find(tn__analysis *a) {
  tn_vec shares;
  tn__vec_init(&shares, sizeof(share));
  int rc = shares_gather(a, 1, &shares);
  if (!rc && shares.count) rc = pools_note(a, &shares);
  tn__vec_deinit(&shares);
  return rc;
}

/* ---- idle cache, rounding ------------------------------------------------------------------------------------------------ */

static int idle_find(tn__analysis *a) {
  const tn__accounting *end = &a->account_end;
  uint64_t idle = end->part[TN__PART_IDLE], most = a->peak.level.allocated_bytes;
  if (!tn__is_much(idle, end->level.reserved_bytes, 20)) return TN_OK;
  tn__note note = tn__note_open(TN__FINDING_CACHE_IDLE, TN__SEVERITY_NOTE, idle);
  note.finding.exactness = TN__EXACT_IDENTICAL;
  size_add(&note.what, "At the snapshot ", idle, " of ");
  size_add(&note.what, "", end->level.reserved_bytes, " reserved are cache: wholly free segments that this process keeps for itself.");
  if (a->history.entry_count && most > a->end.level.allocated_bytes) {
    size_add(&note.evidence, "this is what is left of the peak: ", most, " were allocated then, ");
    size_add(&note.evidence, "", a->end.level.allocated_bytes, " are now");
  } else {
    tn__text_printf(&note.evidence, "%llu segments without a live block", (unsigned long long)end->idle_segments);
  }
  if (!a->history.entry_count) note.finding.frees_bytes = idle; /* what the next peak needs is not known */
  tn__text_add(&note.fix, "No leak: this process uses its cache before it asks for more. torch.cuda.empty_cache() gives it to other processes.");
  return tn__note_close(&note, a);
}

static int rounding_find(tn__analysis *a) {
  tn__rounding rounding = tn__rounding_of(a->history.trace);
  uint64_t bytes = a->peak.level.allocated_bytes - a->peak.level.requested_bytes;
  if (!tn__is_much(bytes, a->peak.level.allocated_bytes, 3)) return TN_OK;
  int divisions = 0;
  for (int i = 0; i < TN__ROUNDING_INTERVALS; i++) divisions |= rounding.divisions[i] > 1;
  tn__note note = tn__note_open(TN__FINDING_ROUNDING, TN__SEVERITY_WASTE, bytes);
  note.finding.exactness = TN__EXACT_IDENTICAL;
  size_add(&note.what, "", bytes, " (");
  tn__say_share(&note.what, bytes, a->peak.level.allocated_bytes);
  tn__text_add(&note.what, " of allocated at the peak) are added to requests by rounding up.");
  tn__text_printf(&note.evidence, "%u blocks at the peak", a->peak.blocks);
  tn__text_add(&note.evidence, divisions ? "; roundup_power2_divisions is set" : "; requests go up to 512 bytes, large blocks keep remainders of up to 1 MiB");
  tn__text_add(&note.fix, divisions ? "More divisions, or none, round less; they trade this for fewer different sizes."
                                    : "expandable_segments:True keeps no remainders.");
  if (divisions) note.finding.frees_bytes = bytes;
  return tn__note_close(&note, a);
}

int tn__find_waste(tn__analysis *a) {
  TN_TRY(streams_find(a));
  TN_TRY(delays_find(a));
  TN_TRY(pools_find(a));
  TN_TRY(idle_find(a));
  return rounding_find(a);
}

/* verdict.c -- see verdict.h. */
#include "explain/verdict.h"

#include <string.h>

#include "base/error.h"
#include "explain/findings.h"

static const tn__finding *finding_of(const tn__analysis *a, enum tn__finding_code code) {
  const tn__finding *findings = a->findings.data;
  for (size_t i = 0; i < a->findings.count; i++)
    if (findings[i].code == code) return &findings[i];
  return NULL;
}

static const char *text_of(const tn__analysis *a, uint32_t id) { return tn__strings_get(&a->texts, id); }

/* The categories that matter most, largest first: "58 % activation, 18 % optimizer". */
static void categories_say(tn_text *text, const tn__composition *at) {
  enum { SHOWN = 3 };
  int seen[TN_CATEGORY_COUNT] = {0};
  for (int shown = 0; shown < SHOWN; shown++) {
    int largest = -1;
    for (int i = 0; i < TN_CATEGORY_COUNT; i++)
      if (!seen[i] && at->by_category[i] && (largest < 0 || at->by_category[i] > at->by_category[largest])) largest = i;
    if (largest < 0 || at->by_category[largest] < at->level.allocated_bytes / 50) break;
    seen[largest] = 1;
    tn__text_add(text, shown ? ", " : ": ");
    tn__say_share(text, at->by_category[largest], at->level.allocated_bytes);
    tn__text_printf(text, " %s", largest == TN_CATEGORY_UNKNOWN ? "of unknown use" : tn_category_name(largest));
  }
}

/* What of reserved memory is not in use: " (5.88 GiB idle cache, 1.28 GiB in pieces)". */
static void parts_say(tn_text *text, const tn__accounting *at) {
  static const struct {
    enum tn__part part;
    const char *words;
  } shown[] = {{TN__PART_IDLE, "idle cache"}, {TN__PART_HOLES, "in pieces"}, {TN__PART_OTHER_STREAMS, "for other streams"},
               {TN__PART_PRIVATE_POOLS, "in private pools"}};
  int said = 0;
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
    uint64_t bytes = at->part[shown[i].part];
    if (!bytes || bytes < at->level.reserved_bytes / 50) continue;
    tn__text_add(text, said++ ? ", " : " (");
    tn__text_size(text, bytes);
    tn__text_printf(text, " %s", shown[i].words);
  }
  if (said) tn__text_add(text, ")");
}

static void held_say(const tn__analysis *a, tn_text *text) {
  const tn__finding *oom = finding_of(a, TN__FINDING_OOM);
  if (oom) {
    tn__text_add(text, text_of(a, oom->what));
    return;
  }
  if (a->history.entry_count) {
    tn__text_add(text, "At the peak ");
    tn__text_size(text, a->peak.level.allocated_bytes);
    tn__text_add(text, " were allocated");
    categories_say(text, &a->peak);
    tn__text_add(text, "; reserved at most ");
    tn__text_size(text, a->account_peak.level.reserved_bytes);
    tn__text_add(text, ".");
    return;
  }
  tn__text_size(text, a->end.level.allocated_bytes);
  tn__text_add(text, " are allocated");
  categories_say(text, &a->end);
  tn__text_add(text, "; ");
  tn__text_size(text, a->account_end.level.reserved_bytes);
  tn__text_add(text, " are reserved");
  parts_say(text, &a->account_end);
  tn__text_add(text, ".");
}

/* The first that is more than the fact of having run out. */
static const tn__finding *reason_of(const tn__analysis *a) {
  const tn__finding *findings = a->findings.data;
  for (size_t i = 0; i < a->findings.count; i++) {
    int is_leftover = findings[i].code == TN__FINDING_CACHE_IDLE && !findings[i].frees_bytes; /* of a peak: no reason for it */
    if (findings[i].code != TN__FINDING_OOM && findings[i].code != TN__FINDING_CAP && !is_leftover) return &findings[i];
  }
  return NULL;
}

/* Memory ran out although enough was free, in pieces. */
static int is_fragmented(const tn__analysis *a) {
  const tn__finding *oom = finding_of(a, TN__FINDING_OOM), *pieces = finding_of(a, TN__FINDING_FRAGMENTATION);
  return oom && pieces && pieces->bytes >= oom->bytes;
}

static void why_oom_say(const tn__analysis *a, tn_text *text) {
  const tn__finding *cap = finding_of(a, TN__FINDING_CAP), *grows = reason_of(a);
  if (grows && grows->severity == TN__SEVERITY_FAULT) {
    tn__text_add(text, text_of(a, grows->what));
  } else if (is_fragmented(a)) {
    tn__text_add(text, "Fragmentation: in one piece, what was free would have been enough.");
  } else {
    tn__text_size(text, a->peak.level.allocated_bytes);
    tn__text_add(text, " were allocated");
    categories_say(text, &a->peak);
    tn__text_add(text, ".");
  }
  if (cap) tn__text_printf(text, " %s", text_of(a, cap->what));
}

/* When nothing is wrong: who holds most. */
static void largest_say(const tn__analysis *a, tn_text *text) {
  const tn__stack_row *row = a->peak.rows.count ? tn__vec_at(&a->peak.rows, 0) : NULL;
  tn__text_add(text, "Nothing stands out");
  if (!row) {
    tn__text_add(text, ".");
    return;
  }
  tn__text_add(text, "; most of it, ");
  tn__text_size(text, row->bytes);
  tn__text_printf(text, " in %u block%s, is from ", row->blocks, row->blocks == 1 ? "" : "s");
  tn__say_place_op(text, a, row->stack);
  tn__text_add(text, ".");
}

static void why_say(const tn__analysis *a, tn_text *text) {
  const tn__finding *reason = reason_of(a);
  uint64_t reserved = a->account_peak.level.reserved_bytes;
  if (finding_of(a, TN__FINDING_OOM)) {
    why_oom_say(a, text);
  } else if (reason) {
    tn__text_add(text, text_of(a, reason->what));
  } else if (!reserved) {
    tn__text_add(text, "Nothing is reserved.");
  } else {
    largest_say(a, text);
  }
}

/* What the third line is about: of an OOM, the cheapest thing that is enough, else the first in the order of findings. */
static const tn__finding *advice_of(const tn__analysis *a) {
  const tn__finding *oom = finding_of(a, TN__FINDING_OOM), *reason = reason_of(a), *findings = a->findings.data;
  if (!oom || (reason && reason->severity == TN__SEVERITY_FAULT)) return reason;
  if (is_fragmented(a)) return finding_of(a, TN__FINDING_FRAGMENTATION);
  for (size_t i = 0; i < a->findings.count; i++) {
    if (findings[i].code == TN__FINDING_OOM || findings[i].code == TN__FINDING_CAP) continue;
    if (findings[i].frees_bytes >= oom->missing_bytes) return &findings[i];
  }
  return reason;
}

/* It speaks of what the allocator keeps, not of what the program holds. */
static int is_of_reserved(const tn__finding *finding) {
  switch (finding->code) {
    case TN__FINDING_FRAGMENTATION:
    case TN__FINDING_STREAM_CACHE:
    case TN__FINDING_STREAM_DELAY:
    case TN__FINDING_GRAPH_POOL:
    case TN__FINDING_CACHE_IDLE: return 1;
    default: return 0;
  }
}

static void advice_say(const tn__analysis *a, const tn__finding *advice, tn_text *text) {
  tn__text_add(text, text_of(a, advice->fix));
  if (!advice->frees_bytes) return;
  tn__text_add(text, " That is ");
  tn__text_size(text, advice->frees_bytes);
  tn__text_add(text, is_of_reserved(advice) ? " less reserved." : " less at the peak.");
}

static void do_say(const tn__analysis *a, tn_text *text) {
  const tn__finding *advice = advice_of(a), *cap = finding_of(a, TN__FINDING_CAP), *oom = finding_of(a, TN__FINDING_OOM);
  if (oom && !is_fragmented(a)) {
    tn__text_add(text, "At least ");
    tn__text_size(text, oom->missing_bytes);
    tn__text_add(text, " less must be in use. ");
  }
  if (advice)
    advice_say(a, advice, text);
  else
    tn__text_add(text, cap ? text_of(a, cap->fix) : oom ? "" : "Nothing is wasted that could simply be given back.");
  if (advice && cap) tn__text_add(text, " Or raise the limit.");
}

static int line_keep(tn__analysis *a, int line, tn_text *text) {
  int rc = text->failed ? TN_ENOMEM : tn__strings_intern(&a->texts, tn__text_view(text), text->len, &a->verdict[line]);
  tn__text_deinit(text);
  return rc;
}

int tn__verdict_write(tn__analysis *a) {
  static void (*const lines[])(const tn__analysis *, tn_text *) = {held_say, why_say, do_say};
  for (int line = 0; line < 3; line++) {
    tn_text text;
    tn__text_init(&text);
    lines[line](a, &text);
    TN_TRY(line_keep(a, line, &text));
  }
  return TN_OK;
}

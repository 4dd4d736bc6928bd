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
    tn__text_printf(text, " %s", tn_category_name(largest));
  }
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
  tn__text_add(text, ", in ");
  tn__text_size(text, a->account_end.level.reserved_bytes);
  tn__text_add(text, " reserved.");
}

/* The first finding that tells why, and the first that has something to do. */
static const tn__finding *reason_of(const tn__analysis *a) {
  const tn__finding *findings = a->findings.data;
  for (size_t i = 0; i < a->findings.count; i++)
    if (findings[i].code != TN__FINDING_OOM) return &findings[i];
  return NULL;
}

static void why_say(const tn__analysis *a, tn_text *text) {
  const tn__finding *reason = reason_of(a);
  if (reason) {
    tn__text_add(text, text_of(a, reason->what));
    return;
  }
  uint64_t reserved = a->account_peak.level.reserved_bytes;
  if (!reserved)
    tn__text_add(text, "Nothing is reserved.");
  else {
    tn__text_add(text, "Nothing stands out: ");
    tn__say_share(text, a->waste_bytes, reserved);
    tn__text_add(text, " of reserved memory was never allocated at once.");
  }
}

static void do_say(const tn__analysis *a, tn_text *text) {
  const tn__finding *reason = reason_of(a);
  if (!reason) {
    tn__text_add(text, "Nothing to do.");
    return;
  }
  tn__text_add(text, text_of(a, reason->fix));
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

/* composition.c -- who held allocated memory at a moment.  See analysis.h. */
#include <stdlib.h>

#include "base/error.h"
#include "base/map.h"
#include "explain/stacks.h"

typedef struct sums {
  tn__composition *composition;
  tn_map by_key; /* group and category -> row */
} sums;

static int row_compare(const void *a, const void *b) {
  const tn__stack_row *left = a, *right = b;
  if (left->bytes != right->bytes) return left->bytes < right->bytes ? 1 : -1;
  if (left->stack != right->stack) return left->stack < right->stack ? -1 : 1;
  return (int)left->category - (int)right->category;
}

static int span_add(sums *s, const tn__span *span, uint32_t group) {
  uint64_t key = (uint64_t)group << 8 | span->category;
  uint32_t at = tn__map_get(&s->by_key, key);
  if (at == TN_NONE) {
    at = (uint32_t)s->composition->rows.count;
    tn__stack_row added = {.stack = group, .category = span->category};
    TN_TRY(tn__map_set(&s->by_key, key, at));
    TN_TRY(tn__vec_push(&s->composition->rows, &added));
  }
  tn__stack_row *row = tn__vec_at(&s->composition->rows, at);
  row->blocks++;
  row->bytes += span->bytes;
  s->composition->by_category[span->category] += span->bytes;
  s->composition->blocks++;
  s->composition->level.allocated_bytes += span->bytes;
  s->composition->level.requested_bytes += span->requested_bytes;
  return TN_OK;
}

int tn__composition_init(tn__composition *composition, const tn__chronicle *history, const tn__stacks *stacks, uint32_t moment) {
  *composition = (tn__composition){.moment = moment};
  tn__vec_init(&composition->rows, sizeof(tn__stack_row));
  sums s = {.composition = composition};
  tn__map_init(&s.by_key);
  int rc = TN_OK;
  for (size_t i = 0; i < history->spans.count && !rc; i++) {
    const tn__span *span = &TN__SPANS(history)[i];
    if (span->alloc != TN_NONE && span->alloc >= moment) break; /* in the order of allocation */
    if (!span->bytes || !tn__span_is_active(span, moment)) continue;
    composition->level.active_bytes += span->bytes;
    if (tn__span_is_allocated(span, moment)) rc = span_add(&s, span, tn__span_group(stacks, span));
  }
  tn__map_deinit(&s.by_key);
  if (!rc && composition->rows.count) qsort(composition->rows.data, composition->rows.count, sizeof(tn__stack_row), row_compare);
  return rc;
}

void tn__composition_deinit(tn__composition *composition) { tn__vec_deinit(&composition->rows); }

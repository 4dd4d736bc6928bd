/* diff.c -- see diff.h. */
#include "explain/diff.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "explain/findings.h"

int tn__diff_init(tn__diff *diff) {
  *diff = (tn__diff){0};
  tn__vec_init(&diff->rows, sizeof(tn__diff_row));
  tn__map_init(&diff->index);
  return tn__strings_init(&diff->texts);
}

void tn__diff_deinit(tn__diff *diff) {
  tn__map_deinit(&diff->index);
  tn__vec_deinit(&diff->rows);
  tn__strings_deinit(&diff->texts);
}

int tn__diff_add(tn__diff *diff, int side, const char *label, const char *loose, int category, uint64_t bytes, uint32_t blocks) {
  uint32_t label_id, loose_id;
  TN_TRY(tn__strings_intern(&diff->texts, label, strlen(label), &label_id));
  TN_TRY(tn__strings_intern(&diff->texts, loose, strlen(loose), &loose_id));
  uint64_t key = (uint64_t)label_id << 8 | (uint64_t)category;
  uint32_t at = tn__map_get(&diff->index, key);
  if (at == TN_NONE) {
    at = (uint32_t)diff->rows.count;
    tn__diff_row added = {.label = label_id, .loose = loose_id, .category = (uint32_t)category};
    TN_TRY(tn__map_set(&diff->index, key, at));
    TN_TRY(tn__vec_push(&diff->rows, &added));
  }
  tn__diff_row *row = tn__vec_at(&diff->rows, at);
  row->bytes[side] += bytes;
  row->blocks[side] += blocks;
  diff->by_category[side][category] += bytes;
  return TN_OK;
}

/* "train.py:16 forward (linear)" as "train.py forward (linear)". */
static void loose_write(tn_text *out, const char *label) {
  const char *colon = strchr(label, ':');
  size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
  if (!colon || !digits || colon[1 + digits] != ' ') {
    tn__text_add(out, label);
    return;
  }
  tn__text_add_n(out, label, (size_t)(colon - label));
  tn__text_add(out, colon + 1 + digits);
}

static int add_row(tn__diff *diff, int side, const tn__analysis *a, const tn__stack_row *row) {
  tn_text label, loose;
  tn__text_init(&label);
  tn__text_init(&loose);
  tn__say_place_op(&label, a, row->stack);
  loose_write(&loose, tn__text_view(&label));
  int rc = label.failed || loose.failed ? TN_ENOMEM
                                        : tn__diff_add(diff, side, tn__text_view(&label), tn__text_view(&loose), row->category, row->bytes, row->blocks);
  tn__text_deinit(&loose);
  tn__text_deinit(&label);
  return rc;
}

int tn__diff_add_analysis(tn__diff *diff, int side, const tn__analysis *a) {
  const tn__composition *at = a->history.entry_count ? &a->peak : &a->end;
  for (size_t i = 0; i < at->rows.count; i++) TN_TRY(add_row(diff, side, a, tn__vec_at(&at->rows, i)));
  diff->level[side] = at->level;
  return TN_OK;
}

/* ---- rows that an edit has moved ----------------------------------------------------------------------------------------- */

/* For each loose label and category: the one row that only a side has; TN_NONE - 1 when there are several. */
static int alone_note(tn_map *alone, uint64_t key, uint32_t at) {
  return tn__map_set(alone, key, tn__map_get(alone, key) == TN_NONE ? at : TN_NONE - 1);
}

static int is_alone(const tn__diff_row *row, int side) { return row->bytes[side] > 0 && row->bytes[1 - side] == 0; }

static uint64_t loose_key(const tn__diff_row *row) { return (uint64_t)row->loose << 8 | row->category; }

static void rows_join(tn__diff *diff, const tn_map *before, const tn_map *after) {
  for (size_t i = 0; i < diff->rows.count; i++) {
    tn__diff_row *row = tn__vec_at(&diff->rows, i);
    if (!is_alone(row, 0) || tn__map_get(before, loose_key(row)) != i) continue;
    uint32_t other = tn__map_get(after, loose_key(row));
    if (other >= diff->rows.count) continue;
    tn__diff_row *later = tn__vec_at(&diff->rows, other);
    later->bytes[0] = row->bytes[0];
    later->blocks[0] = row->blocks[0];
    row->bytes[0] = 0;
  }
}

static int moved_join(tn__diff *diff) {
  tn_map alone[TN__DIFF_SIDES];
  int rc = TN_OK;
  for (int side = 0; side < TN__DIFF_SIDES; side++) {
    tn__map_init(&alone[side]);
    for (size_t i = 0; i < diff->rows.count && !rc; i++) {
      const tn__diff_row *row = tn__vec_at(&diff->rows, i);
      if (is_alone(row, side)) rc = alone_note(&alone[side], loose_key(row), (uint32_t)i);
    }
  }
  if (!rc) rows_join(diff, &alone[0], &alone[1]);
  for (int side = 0; side < TN__DIFF_SIDES; side++) tn__map_deinit(&alone[side]);
  return rc;
}

static uint64_t magnitude(int64_t change) { return change < 0 ? (uint64_t)-change : (uint64_t)change; }

static int row_compare(const void *a, const void *b) {
  const tn__diff_row *left = a, *right = b;
  uint64_t by_left = magnitude(tn__diff_change(left)), by_right = magnitude(tn__diff_change(right));
  if (by_left != by_right) return by_left < by_right ? 1 : -1;
  if (left->bytes[1] != right->bytes[1]) return left->bytes[1] < right->bytes[1] ? 1 : -1;
  if (left->label != right->label) return left->label < right->label ? -1 : 1;
  return (int)left->category - (int)right->category;
}

int tn__diff_finish(tn__diff *diff) {
  TN_TRY(moved_join(diff));
  size_t kept = 0;
  tn__diff_row *rows = diff->rows.data;
  for (size_t i = 0; i < diff->rows.count; i++)
    if (rows[i].bytes[0] || rows[i].bytes[1]) rows[kept++] = rows[i];
  diff->rows.count = kept;
  if (kept) qsort(rows, kept, sizeof *rows, row_compare);
  return TN_OK;
}

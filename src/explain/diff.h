/* diff.h -- two peaks side by side: by category, and by who allocated.
 *
 * Callers: src/report fills the sides and writes it out.  Not locked: one thread at a time per diff. */
#ifndef TN_EXPLAIN_DIFF_H
#define TN_EXPLAIN_DIFF_H

#include "base/map.h"
#include "explain/analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TN__DIFF_SIDES = 2 };

typedef struct tn__diff_row {
  uint32_t label;     /* "train.py:16 forward (linear)"; of the later side, when the two differ */
  uint32_t loose;     /* the same without what an edit of the program moves: line numbers */
  uint32_t blocks[TN__DIFF_SIDES];
  uint32_t category;  /* tn_category */
  uint64_t bytes[TN__DIFF_SIDES];
} tn__diff_row;

/* The rows of a side add up to its allocated bytes, and so do its categories. */
typedef struct tn__diff {
  tn_strings texts;
  tn_vec rows; /* tn__diff_row; after finish, the largest difference first */
  tn_map index; /* label and category -> row */
  tn__level level[TN__DIFF_SIDES];
  uint64_t by_category[TN__DIFF_SIDES][TN_CATEGORY_COUNT];
} tn__diff;

int tn__diff_init(tn__diff *diff); /* deinit in any case */
void tn__diff_deinit(tn__diff *diff);
int tn__diff_add(tn__diff *diff, int side, const char *label, const char *loose, int category, uint64_t bytes, uint32_t blocks);
/* The allocated peak of an analysis, of its end when there is no history. */
int tn__diff_add_analysis(tn__diff *diff, int side, const tn__analysis *analysis);
/* Rows of one side only that differ in their line number alone become one; then the order. */
int tn__diff_finish(tn__diff *diff);

static inline int64_t tn__diff_change(const tn__diff_row *row) { return (int64_t)row->bytes[1] - (int64_t)row->bytes[0]; }

#ifdef __cplusplus
}
#endif
#endif

/* pickle_memo.h -- what a pickle may come back to.
 *
 * Callers: pickle.c, pickle_lines.c.  Not locked: see build.h. */
#ifndef TN_SNAPSHOT_PICKLE_MEMO_H
#define TN_SNAPSHOT_PICKLE_MEMO_H

#include "snapshot/build.h"
#include "snapshot/input.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__pickle {
  tn__build *build;
  tn__input *input;
  tn_vec memo;    /* uint64_t: tag + 1 in the highest byte, bits below it; 0 = empty; TN__MEMO_WIDE: an index of wide */
  tn_vec wide;    /* tn__item: those whose bits do not fit */
  uint8_t opcode; /* at work */
} tn__pickle;

void tn__memo_init(tn__pickle *pickle);
void tn__memo_deinit(tn__pickle *pickle);
/* Puts the last item at index, which follows the largest so far or is not far beyond it. */
int tn__memo_put(tn__pickle *pickle, uint64_t index);
int tn__memo_get_wide(tn__pickle *pickle, uint64_t index); /* whatever is there, or is not */

static inline int tn__memo_get(tn__pickle *pickle, uint64_t index) {
  uint64_t word = index < pickle->memo.count ? TN_VEC(&pickle->memo, uint64_t)[index] : 0;
  uint32_t tag = (uint32_t)(word >> 56);
  if (tag == 0 || tag > TN__ITEM_OTHER + 1) return tn__memo_get_wide(pickle, index);
  return tn__build_push(pickle->build, tag - 1, word & (UINT64_MAX >> 8));
}

/* Reads on, and looks after the memory that the build takes. */
int tn__pickle_fill(tn__pickle *pickle, size_t need);

#ifdef __cplusplus
}
#endif
#endif

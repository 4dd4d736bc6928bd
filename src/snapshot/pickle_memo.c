/* pickle_memo.c -- what a pickle may come back to.  See pickle_memo.h. */
#include "snapshot/pickle_memo.h"

#include "base/error.h"

enum { MEMO_WIDE = 255 };
#define BITS_MAX (UINT64_MAX >> 8)

void tn__memo_init(tn__pickle *pickle) {
  tn__vec_init(&pickle->memo, sizeof(uint64_t));
  tn__vec_init(&pickle->wide, sizeof(tn__item));
}

void tn__memo_deinit(tn__pickle *pickle) {
  tn__vec_deinit(&pickle->wide);
  tn__vec_deinit(&pickle->memo);
}

static int word_of(tn__pickle *pickle, const tn__item *item, uint64_t *out) {
  if (item->bits <= BITS_MAX) {
    *out = (uint64_t)(item->tag + 1) << 56 | item->bits;
    return TN_OK;
  }
  *out = (uint64_t)MEMO_WIDE << 56 | pickle->wide.count;
  return tn__vec_push(&pickle->wide, item);
}

/* Writers number what they put from 0; each number takes two bytes at least, so more than there are bytes is made up. */
static int grow_to(tn__pickle *pickle, uint64_t index) {
  if (index < pickle->memo.count) return TN_OK;
  if (index > pickle->build->offset)
    return tn__build_fault(pickle->build, NULL, "memo number %llu is too large for its place", (unsigned long long)index);
  return tn__vec_resize(&pickle->memo, (size_t)index + 1) ? tn__build_no_memory(pickle->build) : TN_OK;
}

int tn__memo_put(tn__pickle *pickle, uint64_t index) {
  tn__build *build = pickle->build;
  uint64_t word = 0;
  if (build->stack.count == 0) return tn__build_fault(build, NULL, "there is nothing on the stack to put into the memo");
  if (word_of(pickle, tn__vec_at(&build->stack, build->stack.count - 1), &word)) return tn__build_no_memory(build);
  TN_TRY(grow_to(pickle, index));
  TN_VEC(&pickle->memo, uint64_t)[index] = word;
  return TN_OK;
}

int tn__memo_get_wide(tn__pickle *pickle, uint64_t index) {
  uint64_t word = index < pickle->memo.count ? TN_VEC(&pickle->memo, uint64_t)[index] : 0;
  if (word == 0) return tn__build_fault(pickle->build, NULL, "memo number %llu was not put before", (unsigned long long)index);
  const tn__item *item = tn__vec_at(&pickle->wide, (size_t)(word & BITS_MAX));
  return tn__build_push(pickle->build, item->tag, item->bits);
}

/* pickle_memo.c -- what a pickle may come back to.  See pickle_memo.h. */
#include "snapshot/pickle_memo.h"

#include "base/error.h"

void tn__memo_init(tn__pickle *pickle) {
  tn__vec_init(&pickle->memo, sizeof(uint32_t));
  tn__vec_init(&pickle->wide, sizeof(tn__item));
}

void tn__memo_deinit(tn__pickle *pickle) {
  tn__vec_deinit(&pickle->wide);
  tn__vec_deinit(&pickle->memo);
}

static int word_of(tn__pickle *pickle, const tn__item *item, uint32_t *out) {
  *out = tn__memo_word(item);
  if (*out != TN__MEMO_NOTHING) return TN_OK;
  if (pickle->wide.count >> (32 - TN__MEMO_BITS)) return tn__build_fault(pickle->build, NULL, "puts too much into the memo");
  *out = (uint32_t)pickle->wide.count << TN__MEMO_BITS | TN__MEMO_WIDE;
  return tn__vec_push(&pickle->wide, item) ? tn__build_no_memory(pickle->build) : TN_OK;
}

/* Writers number what they put from 0, and each takes a byte at least: a larger number is made up to fill memory. */
static int grow_to(tn__pickle *pickle, uint64_t index) {
  if (index < pickle->memo.count) return TN_OK;
  if (index > pickle->build->offset)
    return tn__build_fault(pickle->build, NULL, "memo number %llu is too large for its place", (unsigned long long)index);
  return tn__vec_resize(&pickle->memo, (size_t)index + 1) ? tn__build_no_memory(pickle->build) : TN_OK;
}

int tn__memo_put(tn__pickle *pickle, uint64_t index) {
  tn__build *build = pickle->build;
  uint32_t word = TN__MEMO_NOTHING;
  if (build->stack.count == 0) return tn__build_fault(build, NULL, "there is nothing on the stack to put into the memo");
  TN_TRY(word_of(pickle, tn__vec_at(&build->stack, build->stack.count - 1), &word));
  TN_TRY(grow_to(pickle, index));
  TN_VEC(&pickle->memo, uint32_t)[index] = word;
  return TN_OK;
}

int tn__memo_get(tn__pickle *pickle, uint64_t index) {
  tn__item item;
  uint32_t word = index < pickle->memo.count ? TN_VEC(&pickle->memo, uint32_t)[index] : TN__MEMO_NOTHING;
  if (word == TN__MEMO_NOTHING)
    return tn__build_fault(pickle->build, NULL, "memo number %llu was not put before", (unsigned long long)index);
  if (!tn__memo_peek(pickle, index, &item)) item = TN_VEC(&pickle->wide, tn__item)[word >> TN__MEMO_BITS];
  return tn__build_push(pickle->build, item.tag, item.bits);
}

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

/* Nearly everything that a writer remembers is a text or a container: four bytes each, the kind in the lowest two bits. */
enum { TN__MEMO_NOTHING, TN__MEMO_TEXT, TN__MEMO_OBJECT, TN__MEMO_WIDE /* an index of wide */, TN__MEMO_BITS = 2 };

typedef struct tn__pickle {
  tn__build *build;
  tn__input *input;
  tn_vec memo;    /* uint32_t */
  tn_vec wide;    /* tn__item */
  uint8_t opcode; /* at work */
} tn__pickle;

void tn__memo_init(tn__pickle *pickle);
void tn__memo_deinit(tn__pickle *pickle);
/* Puts the last item at index, which follows the largest so far or is not far beyond it. */
int tn__memo_put(tn__pickle *pickle, uint64_t index);
/* Pushes what is there. */
int tn__memo_get(tn__pickle *pickle, uint64_t index);

/* The item at index when it is a text or a container; 0 when tn__memo_get() must look. */
static inline int tn__memo_peek(const tn__pickle *pickle, uint64_t index, tn__item *out) {
  uint32_t word = index < pickle->memo.count ? TN_VEC(&pickle->memo, uint32_t)[index] : 0u;
  uint32_t kind = word & TN__MEMO_WIDE;
  out->bits = word >> TN__MEMO_BITS;
  out->tag = TN__ITEM_OBJECT;
  if (kind == TN__MEMO_TEXT) out->tag = TN__ITEM_TEXT;
  return kind == TN__MEMO_TEXT || kind == TN__MEMO_OBJECT;
}

/* The word for an item, NOTHING when it needs a place in wide. */
static inline uint32_t tn__memo_word(const tn__item *item) {
  uint32_t kind = TN__MEMO_NOTHING, id = (uint32_t)item->bits << TN__MEMO_BITS;
  if (item->tag == TN__ITEM_TEXT) kind = TN__MEMO_TEXT;
  if (item->tag == TN__ITEM_OBJECT) kind = TN__MEMO_OBJECT;
  if (item->bits >> (32 - TN__MEMO_BITS)) kind = TN__MEMO_NOTHING;
  return kind == TN__MEMO_NOTHING ? 0u : id | kind;
}

/* Fails: the file ends inside the opcode at work, whose operand has not been taken from the input. */
int tn__pickle_cut_short(tn__pickle *pickle);
/* Reads on, and looks after the memory that the build takes. */
int tn__pickle_fill(tn__pickle *pickle, size_t need);

#ifdef __cplusplus
}
#endif
#endif

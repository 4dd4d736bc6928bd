/* vec.h -- a growable array.
 *
 * Callers: every module.  Items are plain bytes of one size, moved by memcpy; pointers into the array last until it grows.
 * Not locked: one thread at a time per vector. */
#ifndef TN_BASE_VEC_H
#define TN_BASE_VEC_H

#include "base/check.h"
#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* count <= capacity; data holds capacity * item_bytes bytes, and is NULL while capacity is 0. */
typedef struct tn_vec {
  void *data;
  size_t count, capacity, item_bytes;
} tn_vec;

void tn__vec_init(tn_vec *vec, size_t item_bytes);
void tn__vec_deinit(tn_vec *vec); /* leaves it empty and usable */
/* Room for extra more items.  TN_ENOMEM, also when the size would overflow; the vector is unchanged then. */
int tn__vec_reserve(tn_vec *vec, size_t extra);
int tn__vec_push(tn_vec *vec, const void *item);
int tn__vec_append(tn_vec *vec, const void *items, size_t count);
/* One more item, zeroed; NULL when memory is out. */
void *tn__vec_add(tn_vec *vec);
/* Exactly count items; new ones are zeroed. */
int tn__vec_resize(tn_vec *vec, size_t count);
void tn__vec_clear(tn_vec *vec); /* keeps the memory */
/* Copies the last item to out (may be NULL) and drops it.  The vector must not be empty. */
void tn__vec_pop(tn_vec *vec, void *out);

static inline void *tn__vec_at(const tn_vec *vec, size_t at) {
  tn_assert(at < vec->count);
  return (char *)vec->data + at * vec->item_bytes;
}

/* The items as an array of their type: TN_VEC(&blocks, tn_block)[3].bytes */
#define TN_VEC(vec, type) ((type *)(vec)->data)

#ifdef __cplusplus
}
#endif
#endif

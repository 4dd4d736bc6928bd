/* vec.c -- a growable array.  See vec.h. */
#include "base/vec.h"

#include <string.h>

#include "base/mem.h"

void tn__vec_init(tn_vec *vec, size_t item_bytes) {
  tn_assert(item_bytes > 0);
  *vec = (tn_vec){.item_bytes = item_bytes};
}

void tn__vec_deinit(tn_vec *vec) {
  tn__mem_free(vec->data);
  *vec = (tn_vec){.item_bytes = vec->item_bytes};
}

int tn__vec_reserve(tn_vec *vec, size_t extra) {
  if (extra <= vec->capacity - vec->count) return TN_OK;
  if (extra > SIZE_MAX - vec->count) return TN_ENOMEM;
  size_t need = vec->count + extra;
  /* Half again, so that pushes cost constant time on average and less than a third lies idle. */
  size_t grown = vec->capacity <= SIZE_MAX / 2 ? vec->capacity + vec->capacity / 2 : need;
  size_t capacity = need > grown ? need : grown;
  if (capacity < 8) capacity = 8;
  void *data = tn__mem_realloc_array(vec->data, capacity, vec->item_bytes);
  if (!data) return TN_ENOMEM;
  vec->data = data;
  vec->capacity = capacity;
  return TN_OK;
}

int tn__vec_append(tn_vec *vec, const void *items, size_t count) {
  if (count == 0) return TN_OK;
  int rc = tn__vec_reserve(vec, count);
  if (rc) return rc;
  memcpy((char *)vec->data + vec->count * vec->item_bytes, items, count * vec->item_bytes);
  vec->count += count;
  return TN_OK;
}

int tn__vec_push(tn_vec *vec, const void *item) { return tn__vec_append(vec, item, 1); }

int tn__vec_resize(tn_vec *vec, size_t count) {
  if (count > vec->count) {
    int rc = tn__vec_reserve(vec, count - vec->count);
    if (rc) return rc;
    memset((char *)vec->data + vec->count * vec->item_bytes, 0, (count - vec->count) * vec->item_bytes);
  }
  vec->count = count;
  return TN_OK;
}

void *tn__vec_add(tn_vec *vec) { return tn__vec_resize(vec, vec->count + 1) ? NULL : tn__vec_at(vec, vec->count - 1); }

void tn__vec_clear(tn_vec *vec) { vec->count = 0; }

void tn__vec_pop(tn_vec *vec, void *out) {
  tn_assert(vec->count > 0);
  if (out) memcpy(out, tn__vec_at(vec, vec->count - 1), vec->item_bytes);
  vec->count--;
}

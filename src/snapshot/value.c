/* value.c -- what an item is worth as a field of a record.  See value.h. */
#include "snapshot/value.h"

#include "base/error.h"

const char *tn__item_name(const tn__item *item) {
  static const char *const names[] = {"None",
                                      "a truth value",
                                      "a number",
                                      "a number",
                                      "a fraction",
                                      "a text",
                                      "a list or dictionary",
                                      "bytes or a number of more than 64 bits"};
  return names[item->tag];
}

int tn__item_wrong(tn__build *build, const tn__item *item, uint32_t key, const char *expected) {
  const tn__object *object = tn__item_object(build, item);
  if (object && object->kind == TN__OBJECT_BAD) return tn__build_bad(build, object);
  return tn__build_fault(build, item, "\"%s\" is %s, expected %s", tn__keys[key], tn__item_name(item), expected);
}

int tn__item_number_checked(tn__build *build, const tn__item *item, uint32_t key, uint64_t below, uint64_t *out) {
  if (item->tag == TN__ITEM_NULL) return TN_OK;
  if (item->tag > TN__ITEM_BIG) return tn__item_wrong(build, item, key, "a number of 64 bits");
  if (item->tag == TN__ITEM_INT && (int64_t)item->bits < 0)
    return tn__build_fault(build, item, "\"%s\" is %lld, expected 0 or more", tn__keys[key], (long long)item->bits);
  if (item->bits >= below)
    return tn__build_fault(build, item, "\"%s\" is %llu, expected less than %llu", tn__keys[key], (unsigned long long)item->bits,
                           (unsigned long long)below);
  *out = item->bits;
  return TN_OK;
}

int tn__item_text(tn__build *build, const tn__item *item, uint32_t key, uint32_t *out) {
  if (item->tag == TN__ITEM_NULL) return TN_OK;
  if (item->tag != TN__ITEM_TEXT) return tn__item_wrong(build, item, key, "a text");
  *out = (uint32_t)item->bits;
  return TN_OK;
}

/* A text that may also be something of no use. */
void tn__item_text_take(const tn__build *build, const tn__item *item, uint32_t *out) {
  const tn__object *object = tn__item_object(build, item);
  if (item->tag == TN__ITEM_TEXT) *out = (uint32_t)item->bits;
  if (object && object->kind == TN__OBJECT_TEXT) *out = object->at;
}

const tn__object *tn__item_object(const tn__build *build, const tn__item *item) {
  return item->tag == TN__ITEM_OBJECT ? tn__build_object_at(build, item->bits) : NULL;
}

int tn__item_stream(tn__build *build, const tn__item *item, uint32_t key, uint32_t *out) {
  uint64_t handle = 0;
  TN_TRY(tn__item_bits(build, item, key, &handle));
  return tn__build_stream(build, handle, out);
}

int tn__item_pool(tn__build *build, const tn__item *item, uint32_t key, uint32_t *out) {
  const tn__object *object = tn__item_object(build, item);
  if (item->tag == TN__ITEM_NULL) return TN_OK;
  if (!object || object->kind != TN__OBJECT_POOL) return tn__item_wrong(build, item, key, "two numbers");
  *out = object->at;
  return TN_OK;
}

int tn__item_stack(tn__build *build, const tn__item *item, uint32_t key, uint32_t *out) {
  const tn__object *object = tn__item_object(build, item);
  if (item->tag == TN__ITEM_NULL) return TN_OK;
  if (object && object->kind == TN__OBJECT_EMPTY) {
    if (build->empty_stack == TN_NONE) TN_TRY(tn__build_stack(build, 0, &build->empty_stack));
    *out = build->empty_stack;
    return TN_OK;
  }
  if (!object || object->kind != TN__OBJECT_STACK) return tn__item_wrong(build, item, key, "a list of frames");
  *out = object->at;
  return TN_OK;
}

/* A list of records of the kind; an empty one will do. */
int tn__item_run(tn__build *build, const tn__item *item, uint32_t key, enum tn__object_kind kind, const char *expected,
                 tn__run *out) {
  const tn__object *object = tn__item_object(build, item);
  if (item->tag == TN__ITEM_NULL) return TN_OK;
  if (!object || (object->kind != kind && object->kind != TN__OBJECT_EMPTY)) return tn__item_wrong(build, item, key, expected);
  *out = object->kind == kind ? (tn__run){object->at, object->count} : (tn__run){0, 0};
  return TN_OK;
}

void tn__item_category(const tn__build *build, const tn__item *item, uint8_t *out) {
  uint8_t found = tn__item_means(build->categories, item);
  *out = found == UINT8_MAX ? TN_CATEGORY_UNKNOWN : found;
}

/* value.h -- what an item is worth as a field of a record.
 *
 * Callers: schema.c, close.c.  Each get leaves *out as it is when the item is None, and fails with TN_EFORMAT and one line when the
 * item is of another type or out of range; key names it in the message.  Not locked: see build.h. */
#ifndef TN_SNAPSHOT_VALUE_H
#define TN_SNAPSHOT_VALUE_H

#include "snapshot/build.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TN__BYTES_MAX ((uint64_t)1 << 62) /* as in trace/check.c */

int tn__item_text(tn__build *build, const tn__item *item, uint32_t key, uint32_t *out);
int tn__item_stream(tn__build *build, const tn__item *item, uint32_t key, uint32_t *out);
int tn__item_pool(tn__build *build, const tn__item *item, uint32_t key, uint32_t *out);
int tn__item_stack(tn__build *build, const tn__item *item, uint32_t key, uint32_t *out);
/* A list of records of the kind, expected in words; an empty one will do. */
int tn__item_run(tn__build *build, const tn__item *item, uint32_t key, enum tn__object_kind kind, const char *expected,
                 tn__run *out);
int tn__item_number_checked(tn__build *build, const tn__item *item, uint32_t key, uint64_t below, uint64_t *out);
/* The text; anything else is of no use and leaves *out. */
void tn__item_text_take(const tn__build *build, const tn__item *item, uint32_t *out);
void tn__item_category(const tn__build *build, const tn__item *item, uint8_t *out); /* UNKNOWN when it is no category */

const tn__object *tn__item_object(const tn__build *build, const tn__item *item);                /* NULL: is none */
const char *tn__item_name(const tn__item *item);                                                /* "a text" */
int tn__item_wrong(tn__build *build, const tn__item *item, uint32_t key, const char *expected); /* fails: of another type */

/* What a text stands for in one of build's tables of words, UINT8_MAX when nothing. */
static inline uint8_t tn__item_means(const uint8_t *table, const tn__item *item) {
  return item->tag == TN__ITEM_TEXT && item->bits < TN__WORDS_MAX ? table[item->bits] : UINT8_MAX;
}

/* All 64 bits: some versions show addresses and handles as negative numbers. */
static inline int tn__item_bits(tn__build *build, const tn__item *item, uint32_t key, uint64_t *out) {
  if (item->tag == TN__ITEM_NULL) return TN_OK;
  if (item->tag > TN__ITEM_BIG) return tn__item_wrong(build, item, key, "a number of 64 bits");
  *out = item->bits;
  return TN_OK;
}

static inline int tn__item_number(tn__build *build, const tn__item *item, uint32_t key, uint64_t below, uint64_t *out) {
  if (item->tag != TN__ITEM_INT || item->bits >= below) return tn__item_number_checked(build, item, key, below, out);
  *out = item->bits;
  return TN_OK;
}

static inline int tn__item_bytes(tn__build *build, const tn__item *item, uint32_t key, uint64_t *out) {
  return tn__item_number(build, item, key, TN__BYTES_MAX, out);
}

#ifdef __cplusplus
}
#endif
#endif

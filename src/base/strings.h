/* strings.h -- a table of strings with dense ids, and interning.
 *
 * Callers: the trace (names, metas, signatures).  Id 0 is always "".  A string's address lasts as long as the table.
 * Not locked: one thread at a time per table. */
#ifndef TN_BASE_STRINGS_H
#define TN_BASE_STRINGS_H

#include "base/vec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_strings {
  tn_vec texts;     /* const char *, by id */
  tn_vec chunks;    /* char *, the memory that the texts lie in */
  size_t chunk_len, chunk_capacity; /* of the last chunk */
  uint32_t *index;  /* open addressing by the text's hash: id, TN_NONE = empty; a text is found under its first id */
  size_t index_count, index_capacity;
} tn_strings;

int tn__strings_init(tn_strings *strings); /* TN_ENOMEM: nothing to deinit */
void tn__strings_deinit(tn_strings *strings);
/* The id of the text, a new one when it is not there yet.  len bytes without a NUL among them. */
int tn__strings_intern(tn_strings *strings, const char *text, size_t len, uint32_t *out_id);
/* Always a new id, for tables read in bulk whose ids are fixed already. */
int tn__strings_append(tn_strings *strings, const char *text, size_t len, uint32_t *out_id);
uint32_t tn__strings_find(const tn_strings *strings, const char *text, size_t len); /* TN_NONE when absent */
const char *tn__strings_get(const tn_strings *strings, uint32_t id);                /* "" for an unknown id */
size_t tn__strings_count(const tn_strings *strings);

#ifdef __cplusplus
}
#endif
#endif

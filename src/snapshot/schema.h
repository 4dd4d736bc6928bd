/* schema.h -- the records of a snapshot, key by key.
 *
 * Callers: close.c, with the keys and values of a complete dictionary.  Not locked: see build.h. */
#ifndef TN_SNAPSHOT_SCHEMA_H
#define TN_SNAPSHOT_SCHEMA_H

#include "snapshot/build.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets what the key means in a record of the named type; nothing for a key that means nothing there. */
typedef int tn__schema_setter(tn__build *build, void *record, uint32_t key, const tn__item *item);

tn__schema_setter tn__schema_entry;      /* tn_entry */
tn__schema_setter tn__schema_block;      /* tn_segment_block */
tn__schema_setter tn__schema_segment;    /* tn__raw_segment */
tn__schema_setter tn__schema_frame;      /* tn_frame */
tn__schema_setter tn__schema_annotation; /* tn_annotation */
tn__schema_setter tn__schema_history;    /* tn__history */
tn__schema_setter tn__schema_top;        /* tn__top */

/* Sets each known key; of one that comes twice, the last. */
int tn__schema_set_all(tn__build *build, const tn__item *pairs, size_t pair_count, tn__schema_setter *set, void *record);
/* The known keys among them, as a set of bits. */
uint64_t tn__schema_keys(const tn__item *pairs, size_t pair_count);

#ifdef __cplusplus
}
#endif
#endif

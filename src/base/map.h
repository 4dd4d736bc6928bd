/* map.h -- a hash map from 64-bit keys to 32-bit ids, open addressing.
 *
 * Callers: whoever names records by address or by a packed pair of ids.  Any key is legal; TN_NONE is the one value that cannot
 * be stored, it means "absent".  Not locked: one thread at a time per map. */
#ifndef TN_BASE_MAP_H
#define TN_BASE_MAP_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_map_slot {
  uint64_t key;
  uint32_t value; /* TN_NONE: the slot is empty */
  uint32_t reserved;
} tn_map_slot;

/* capacity is 0 or a power of two; count <= 3/4 capacity; no empty slot lies between a key's home and its place. */
typedef struct tn_map {
  tn_map_slot *slots;
  size_t count, capacity;
} tn_map;

void tn__map_init(tn_map *map);
void tn__map_deinit(tn_map *map); /* leaves it empty and usable */
/* Sets or replaces.  TN_ENOMEM: unchanged.  TN_EINVAL: value is TN_NONE. */
int tn__map_set(tn_map *map, uint64_t key, uint32_t value);
uint32_t tn__map_get(const tn_map *map, uint64_t key); /* TN_NONE when absent */
/* Asks the cache for the key's place, some lookups ahead of its own: a large map is otherwise one cache miss each. */
void tn__map_prefetch(const tn_map *map, uint64_t key);
/* Takes the key out and returns its value, TN_NONE when it was absent. */
uint32_t tn__map_remove(tn_map *map, uint64_t key);
void tn__map_clear(tn_map *map); /* keeps the memory */
/* Walks in no particular order: start with *pos = 0, go on while it returns 1.  No set or remove in between. */
int tn__map_next(const tn_map *map, size_t *pos, uint64_t *out_key, uint32_t *out_value);

#ifdef __cplusplus
}
#endif
#endif

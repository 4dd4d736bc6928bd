/* map.c -- linear probing; removal shifts later keys back instead of leaving tombstones, so a long-lived map does not rot. */
#include "base/map.h"

#include "base/check.h"
#include "base/mem.h"

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014): addresses differ in few bits, and every bit must reach the low ones. */
static uint64_t hash_u64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static size_t slot_home(const tn_map *map, uint64_t key) { return (size_t)hash_u64(key) & (map->capacity - 1); }

/* The slot that holds key, or the empty one where it would go. */
static size_t slot_find(const tn_map *map, uint64_t key) {
  size_t at = slot_home(map, key);
  while (map->slots[at].value != TN_NONE && map->slots[at].key != key) at = (at + 1) & (map->capacity - 1);
  return at;
}

void tn__map_init(tn_map *map) { *map = (tn_map){0}; }

void tn__map_deinit(tn_map *map) {
  tn__mem_free(map->slots);
  *map = (tn_map){0};
}

void tn__map_clear(tn_map *map) {
  for (size_t i = 0; i < map->capacity; i++) map->slots[i].value = TN_NONE;
  map->count = 0;
}

static int map_grow(tn_map *map) {
  if (map->capacity > SIZE_MAX / 2) return TN_ENOMEM;
  tn_map grown = {.capacity = map->capacity ? map->capacity * 2 : 16};
  grown.slots = tn__mem_realloc_array(NULL, grown.capacity, sizeof *grown.slots);
  if (!grown.slots) return TN_ENOMEM;
  tn__map_clear(&grown);
  for (size_t i = 0; i < map->capacity; i++)
    if (map->slots[i].value != TN_NONE) grown.slots[slot_find(&grown, map->slots[i].key)] = map->slots[i];
  grown.count = map->count;
  tn__mem_free(map->slots);
  *map = grown;
  return TN_OK;
}

int tn__map_set(tn_map *map, uint64_t key, uint32_t value) {
  if (value == TN_NONE) return TN_EINVAL;
  if (map->count >= map->capacity / 4 * 3) {
    int rc = map_grow(map);
    if (rc) return rc;
  }
  tn_map_slot *slot = &map->slots[slot_find(map, key)];
  if (slot->value == TN_NONE) map->count++;
  *slot = (tn_map_slot){.key = key, .value = value};
  return TN_OK;
}

uint32_t tn__map_get(const tn_map *map, uint64_t key) {
  return map->capacity ? map->slots[slot_find(map, key)].value : TN_NONE;
}

void tn__map_prefetch(const tn_map *map, uint64_t key) {
#if defined(__GNUC__)
  if (map->capacity) __builtin_prefetch(&map->slots[slot_home(map, key)]);
#else
  (void)map, (void)key;
#endif
}

uint32_t tn__map_remove(tn_map *map, uint64_t key) {
  if (!map->capacity) return TN_NONE;
  size_t mask = map->capacity - 1, hole = slot_find(map, key);
  uint32_t value = map->slots[hole].value;
  if (value == TN_NONE) return TN_NONE;
  for (size_t at = (hole + 1) & mask; map->slots[at].value != TN_NONE; at = (at + 1) & mask) {
    /* A key may move back only as far as its home: when the hole lies between its home and its place. */
    if (((at - slot_home(map, map->slots[at].key)) & mask) < ((at - hole) & mask)) continue;
    map->slots[hole] = map->slots[at];
    hole = at;
  }
  map->slots[hole].value = TN_NONE;
  map->count--;
  return value;
}

int tn__map_next(const tn_map *map, size_t *pos, uint64_t *out_key, uint32_t *out_value) {
  while (*pos < map->capacity) {
    const tn_map_slot *slot = &map->slots[(*pos)++];
    if (slot->value == TN_NONE) continue;
    *out_key = slot->key;
    *out_value = slot->value;
    return 1;
  }
  return 0;
}

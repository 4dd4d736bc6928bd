/* block.c -- where blocks come from.  See block.h. */
#include "caching/block.h"

#include "base/error.h"
#include "base/mem.h"

enum { CHUNK_BLOCKS = 256 };

void tn__block_store_init(tn__block_store *store) {
  *store = (tn__block_store){0};
  tn__vec_init(&store->chunks, sizeof(tn__block *));
}

void tn__block_store_deinit(tn__block_store *store) {
  for (size_t i = 0; i < store->chunks.count; i++) tn__mem_free(TN_VEC(&store->chunks, tn__block *)[i]);
  tn__vec_deinit(&store->chunks);
  store->spare = NULL;
  store->spare_count = 0;
}

static int chunk_add(tn__block_store *store) {
  size_t first_id = store->chunks.count * CHUNK_BLOCKS;
  if (first_id > TN_NONE - CHUNK_BLOCKS) return TN_ENOMEM;
  TN_TRY(tn__vec_reserve(&store->chunks, 1));
  tn__block *chunk = tn__mem_zalloc(CHUNK_BLOCKS, sizeof *chunk);
  if (!chunk) return TN_ENOMEM;
  (void)tn__vec_push(&store->chunks, &chunk);
  for (size_t i = CHUNK_BLOCKS; i-- > 0;) {
    chunk[i].id = (uint32_t)(first_id + i);
    tn__block_give(store, &chunk[i]);
  }
  return TN_OK;
}

int tn__block_store_reserve(tn__block_store *store, size_t count) {
  while (store->spare_count < count) TN_TRY(chunk_add(store));
  return TN_OK;
}

tn__block *tn__block_take(tn__block_store *store) {
  tn_assert(store->spare_count > 0);
  tn__block *block = store->spare;
  store->spare = block->next;
  store->spare_count--;
  *block = (tn__block){.id = block->id};
  return block;
}

void tn__block_give(tn__block_store *store, tn__block *block) {
  block->next = store->spare;
  store->spare = block;
  store->spare_count++;
}

tn__block *tn__block_by_id(const tn__block_store *store, uint32_t id) {
  return &TN_VEC(&store->chunks, tn__block *)[id / CHUNK_BLOCKS][id % CHUNK_BLOCKS];
}

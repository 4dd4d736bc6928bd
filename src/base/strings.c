/* strings.c -- texts lie end to end in chunks that never move, so addresses are stable and small strings cost no malloc each. */
#include "base/strings.h"

#include <string.h>

#include "base/mem.h"

enum { CHUNK_BYTES = 64 * 1024 };

/* FNV-1a, 64 bits. */
static uint64_t hash_text(const char *text, size_t len) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
  return hash ^ hash >> 32;
}

static int text_equal(const char *stored, const char *text, size_t len) {
  return strncmp(stored, text, len) == 0 && stored[len] == '\0';
}

/* The place in the index that holds the text, or the empty one where it would go. */
static size_t index_find(const tn_strings *strings, const char *text, size_t len) {
  size_t mask = strings->index_capacity - 1, at = (size_t)hash_text(text, len) & mask;
  while (strings->index[at] != TN_NONE && !text_equal(tn__strings_get(strings, strings->index[at]), text, len))
    at = (at + 1) & mask;
  return at;
}

static int index_grow(tn_strings *strings) {
  tn_strings grown = *strings;
  grown.index_capacity = strings->index_capacity ? strings->index_capacity * 2 : 64;
  if (grown.index_capacity < strings->index_capacity) return TN_ENOMEM;
  grown.index = tn__mem_realloc_array(NULL, grown.index_capacity, sizeof *grown.index);
  if (!grown.index) return TN_ENOMEM;
  memset(grown.index, 0xff, grown.index_capacity * sizeof *grown.index);
  for (size_t i = 0; i < strings->index_capacity; i++) {
    if (strings->index[i] == TN_NONE) continue;
    const char *text = tn__strings_get(strings, strings->index[i]);
    grown.index[index_find(&grown, text, strlen(text))] = strings->index[i];
  }
  tn__mem_free(strings->index);
  *strings = grown;
  return TN_OK;
}

static int chunk_add(tn_strings *strings, size_t need) {
  size_t capacity = need > CHUNK_BYTES ? need : CHUNK_BYTES;
  int rc = tn__vec_reserve(&strings->chunks, 1);
  if (rc) return rc;
  char *chunk = tn__mem_alloc(capacity);
  if (!chunk) return TN_ENOMEM;
  (void)tn__vec_push(&strings->chunks, &chunk);
  strings->chunk_len = 0;
  strings->chunk_capacity = capacity;
  return TN_OK;
}

/* A copy of the text in the last chunk, with its NUL. */
static int text_store(tn_strings *strings, const char *text, size_t len, const char **out) {
  if (len == SIZE_MAX) return TN_ENOMEM;
  if (len >= strings->chunk_capacity - strings->chunk_len) {
    int rc = chunk_add(strings, len + 1);
    if (rc) return rc;
  }
  char *copy = TN_VEC(&strings->chunks, char *)[strings->chunks.count - 1] + strings->chunk_len;
  if (len) memcpy(copy, text, len);
  copy[len] = '\0';
  strings->chunk_len += len + 1;
  *out = copy;
  return TN_OK;
}

int tn__strings_append(tn_strings *strings, const char *text, size_t len, uint32_t *out_id) {
  if (strings->texts.count >= TN_NONE) return TN_ENOMEM;
  if (strings->index_count >= strings->index_capacity / 4 * 3) {
    int rc = index_grow(strings);
    if (rc) return rc;
  }
  int rc = tn__vec_reserve(&strings->texts, 1);
  if (rc) return rc;
  const char *copy = NULL;
  rc = text_store(strings, text, len, &copy);
  if (rc) return rc;
  uint32_t id = (uint32_t)strings->texts.count;
  (void)tn__vec_push(&strings->texts, &copy);
  size_t at = index_find(strings, text, len);
  if (strings->index[at] == TN_NONE) {
    strings->index[at] = id;
    strings->index_count++;
  }
  *out_id = id;
  return TN_OK;
}

int tn__strings_intern(tn_strings *strings, const char *text, size_t len, uint32_t *out_id) {
  uint32_t id = tn__strings_find(strings, text, len);
  if (id == TN_NONE) return tn__strings_append(strings, text, len, out_id);
  *out_id = id;
  return TN_OK;
}

uint32_t tn__strings_find(const tn_strings *strings, const char *text, size_t len) {
  return strings->index[index_find(strings, text, len)];
}

const char *tn__strings_get(const tn_strings *strings, uint32_t id) {
  return id < strings->texts.count ? TN_VEC(&strings->texts, const char *)[id] : "";
}

size_t tn__strings_count(const tn_strings *strings) { return strings->texts.count; }

int tn__strings_init(tn_strings *strings) {
  *strings = (tn_strings){0};
  tn__vec_init(&strings->texts, sizeof(char *));
  tn__vec_init(&strings->chunks, sizeof(char *));
  uint32_t id = 0;
  int rc = tn__strings_append(strings, "", 0, &id);
  if (rc) tn__strings_deinit(strings);
  return rc;
}

void tn__strings_deinit(tn_strings *strings) {
  for (size_t i = 0; i < strings->chunks.count; i++) tn__mem_free(TN_VEC(&strings->chunks, char *)[i]);
  tn__vec_deinit(&strings->chunks);
  tn__vec_deinit(&strings->texts);
  tn__mem_free(strings->index);
  *strings = (tn_strings){0};
}

/* build.c -- the machine: stack, arena and objects.  See build.h. */
#include "snapshot/build.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "snapshot/utf8.h"
#include "trace/trace.h"

/* An honest snapshot takes less than twice its size. */
#define MEMORY_FREE ((uint64_t)128 << 20)
enum { MEMORY_RATIO = 8, FAULTS_MAX = 64 };

/* ---- life ---------------------------------------------------------------------------------------------------------------- */

static void vectors_init(tn__build *build) {
  tn__vec_init(&build->stack, sizeof(tn__item));
  tn__vec_init(&build->marks, sizeof(uint32_t));
  tn__vec_init(&build->arena, sizeof(tn__item));
  tn__vec_init(&build->stretches, sizeof(tn__stretch));
  tn__vec_init(&build->objects, sizeof(tn__object));
  tn__vec_init(&build->raw_segments, sizeof(tn__raw_segment));
  tn__vec_init(&build->histories, sizeof(tn__history));
  tn__vec_init(&build->runs, sizeof(tn__run));
  tn__vec_init(&build->settings, sizeof(tn__setting));
  tn__vec_init(&build->tops, sizeof(tn__top));
  tn__vec_init(&build->faults, sizeof(tn_error));
}

int tn__build_init(tn__build *build) {
  *build = (tn__build){.empty_stack = TN_NONE};
  vectors_init(build);
  int rc = tn_trace_new(&build->trace);
  if (!rc) rc = tn__schema_init(build);
  if (!rc) return TN_OK;
  tn__build_deinit(build);
  return tn__error_set(&build->error, rc, NULL);
}

void tn__build_deinit(tn__build *build) {
  tn__map_deinit(&build->pool_index);
  tn__map_deinit(&build->stream_index);
  tn__map_deinit(&build->stack_index);
  tn__map_deinit(&build->frame_index);
  tn__vec_deinit(&build->faults);
  tn__vec_deinit(&build->tops);
  tn__vec_deinit(&build->settings);
  tn__vec_deinit(&build->runs);
  tn__vec_deinit(&build->histories);
  tn__vec_deinit(&build->raw_segments);
  tn__vec_deinit(&build->objects);
  tn__vec_deinit(&build->stretches);
  tn__vec_deinit(&build->arena);
  tn__vec_deinit(&build->marks);
  tn__vec_deinit(&build->stack);
  tn_trace_free(build->trace);
  build->trace = NULL;
}

/* ---- messages and limits ------------------------------------------------------------------------------------------------- */

int tn__build_fault(tn__build *build, const tn__item *item, const char *format, ...) {
  /* The item lies before the opcode at work, by less than 4 GiB: its low bits say how far. */
  uint64_t offset = item ? build->offset - (uint32_t)((uint32_t)build->offset - item->offset) : build->offset;
  char text[200];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return tn__error_set_at(&build->error, TN_EFORMAT, offset, 0, "byte %llu: %s", (unsigned long long)offset, text);
}

int tn__build_no_memory(tn__build *build) { return tn__error_set(&build->error, TN_ENOMEM, NULL); }

int tn__build_set_bad(tn__build *build, tn__object *object, int rc) {
  if (rc != TN_EFORMAT) return rc;
  if (build->faults.count < FAULTS_MAX && tn__vec_push(&build->faults, &build->error)) return tn__build_no_memory(build);
  *object = (tn__object){.kind = TN__OBJECT_BAD, .at = (uint32_t)build->faults.count - 1};
  return TN_OK;
}

int tn__build_bad(tn__build *build, const tn__object *object) {
  build->error = TN_VEC(&build->faults, tn_error)[object->at];
  return TN_EFORMAT;
}

static uint64_t vec_bytes(const tn_vec *vec) { return (uint64_t)vec->capacity * vec->item_bytes; }

int tn__build_check_memory(tn__build *build, uint64_t more_bytes) {
  const tn_vec *vectors[] = {&build->stack,        &build->arena,     &build->stretches, &build->objects,
                             &build->raw_segments, &build->histories, &build->runs,      &build->settings};
  uint64_t bytes = more_bytes;
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) bytes += vec_bytes(vectors[i]);
  for (int i = 0; i < TN_TABLE_COUNT; i++) bytes += vec_bytes(&build->trace->tables[i]);
  bytes += vec_bytes(&build->trace->strings.texts) + build->trace->strings.index_capacity * sizeof(uint32_t);
  bytes += (build->frame_index.capacity + build->stack_index.capacity) * sizeof(tn_map_slot);
  if (bytes <= MEMORY_FREE + MEMORY_RATIO * build->bytes_read) return TN_OK;
  return tn__build_fault(build, NULL, "takes more than 128 MiB and %d times its size of memory, which no snapshot does",
                         MEMORY_RATIO);
}

/* ---- the stack ----------------------------------------------------------------------------------------------------------- */

int tn__build_push_slow(tn__build *build, tn__item item) {
  return tn__vec_push(&build->stack, &item) ? tn__build_no_memory(build) : TN_OK;
}

int tn__build_object(tn__build *build, enum tn__object_kind kind) {
  if (build->objects.count >= TN_NONE) return tn__build_fault(build, NULL, "has more than 4 billion containers");
  tn__object object = {.kind = kind};
  if (tn__vec_push(&build->objects, &object)) return tn__build_no_memory(build);
  return tn__build_push(build, TN__ITEM_OBJECT, build->objects.count - 1);
}

/* A NUL cannot be kept, and a lone surrogate, as Python writes for file names that are no UTF-8, is none either. */
static int text_mend(tn__build *build, const char *text, size_t len, uint32_t *out_id) {
  tn_vec copy;
  tn__vec_init(&copy, 1);
  int rc = tn__vec_append(&copy, text, len);
  if (!rc) {
    tn__utf8_mend(copy.data, len);
    rc = tn__strings_intern(&build->trace->strings, copy.data, len, out_id);
  }
  tn__vec_deinit(&copy);
  return rc;
}

static int text_check(tn__build *build, const char *text, size_t len, uint32_t *out_id) {
  size_t bad = 0;
  int rc;
  switch (tn__utf8_check(text, len, &bad)) {
    case TN__UTF8_GOOD: rc = tn__strings_intern(&build->trace->strings, text, len, out_id); break;
    case TN__UTF8_MENDABLE: rc = text_mend(build, text, len, out_id); break;
    default: return tn__build_fault(build, NULL, "text is not UTF-8, %zu bytes into it", bad);
  }
  return rc ? tn__build_no_memory(build) : TN_OK;
}

int tn__build_text(tn__build *build, const char *text, size_t len) {
  tn__short_text wanted = {.len = (uint32_t)len};
  if (len == 0 || len > sizeof wanted.bytes) {
    TN_TRY(text_check(build, text, len, &wanted.id));
  } else {
    memcpy(&wanted.bytes, text, len);
    tn__short_text *met = &build->short_texts[(wanted.bytes * 0x9e3779b97f4a7c15u >> 32) % TN__SHORT_TEXTS];
    if (met->bytes != wanted.bytes || met->len != wanted.len) {
      TN_TRY(text_check(build, text, len, &wanted.id));
      *met = wanted;
    }
    wanted.id = met->id;
  }
  return tn__build_push(build, TN__ITEM_TEXT, wanted.id);
}

int tn__build_mark(tn__build *build) {
  if (build->marks.count >= TN__MARKS_MAX) return tn__build_fault(build, NULL, "is nested more than %d deep", TN__MARKS_MAX);
  if (build->stack.count >= TN_NONE) return tn__build_fault(build, NULL, "has more than 4 billion values on the stack");
  uint32_t at = (uint32_t)build->stack.count;
  return tn__vec_push(&build->marks, &at) ? tn__build_no_memory(build) : TN_OK;
}

int tn__build_unmark(tn__build *build, size_t *out_at) {
  if (build->marks.count == 0) return tn__build_fault(build, NULL, "there is no MARK before it");
  uint32_t at;
  tn__vec_pop(&build->marks, &at);
  *out_at = at;
  return TN_OK;
}

int tn__build_pop(tn__build *build) {
  uint32_t floor = build->marks.count ? TN_VEC(&build->marks, uint32_t)[build->marks.count - 1] : 0;
  if (build->stack.count <= floor) return tn__build_fault(build, NULL, "there is nothing to take off the stack");
  build->stack.count--;
  return TN_OK;
}

/* ---- closing ------------------------------------------------------------------------------------------------------------- */

static int close_open(tn__build *build, tn__object *object, uint32_t key) {
  return object->kind == TN__OBJECT_LIST ? tn__close_list(build, object, key) : tn__close_dict(build, object, key);
}

static inline int close_item(tn__build *build, const tn__item *item, uint32_t key) {
  if (item->tag != TN__ITEM_OBJECT) return TN_OK;
  tn__object *object = tn__build_object_at(build, item->bits);
  return object->kind > TN__OBJECT_LIST ? TN_OK : close_open(build, object, key);
}

static int close_items(tn__build *build, const tn__item *items, size_t count) {
  for (size_t i = 0; i < count; i++) TN_TRY(close_item(build, &items[i], 0));
  return TN_OK;
}

int tn__build_close_last(tn__build *build) { return close_items(build, tn__vec_at(&build->stack, build->stack.count - 1), 1); }

/* *out_keys: the known ones. */
static int close_pairs(tn__build *build, const tn__item *pairs, size_t pair_count, uint64_t *out_keys) {
  *out_keys = 0;
  for (size_t i = 0; i < pair_count; i++) {
    const tn__item *key = &pairs[2 * i];
    TN_TRY(close_item(build, key, 0));
    uint32_t known = key->tag == TN__ITEM_TEXT && key->bits < TN__KEY_COUNT ? (uint32_t)key->bits : 0;
    *out_keys |= (uint64_t)1 << known;
    TN_TRY(close_item(build, key + 1, known));
  }
  return TN_OK;
}

/* ---- the arena ----------------------------------------------------------------------------------------------------------- */

/* Cuts dead stretches off the end.  One that lies below a live one waits: a container may be closed, by way of the memo, while what
 * was begun after it is still open. */
static void arena_cut(tn__build *build) {
  while (build->stretches.count > 0) {
    const tn__stretch *last = tn__vec_at(&build->stretches, build->stretches.count - 1);
    if (tn__build_object_at(build, last->object)->kind <= TN__OBJECT_LIST)
      return; /* or has moved on: then it has a later stretch */
    build->arena.count = last->at;
    build->stretches.count--;
  }
}

static int stretch_begin(tn__build *build, uint32_t id) {
  tn__stretch stretch = {id, (uint32_t)build->arena.count};
  return tn__vec_push(&build->stretches, &stretch) ? tn__build_no_memory(build) : TN_OK;
}

/* Moves an open container's items to the end; no writer needs it, and it must not become a way to fill memory. */
static int arena_move(tn__build *build, uint32_t id) {
  tn__object *object = tn__build_object_at(build, id);
  TN_TRY(tn__build_check_memory(build, object->count * sizeof(tn__item)));
  TN_TRY(stretch_begin(build, id));
  if (tn__vec_reserve(&build->arena, object->count)) return tn__build_no_memory(build);
  tn__item *items = TN_VEC(&build->arena, tn__item);
  memcpy(items + build->arena.count, items + object->at, object->count * sizeof *items);
  object->at = (uint32_t)build->arena.count;
  build->arena.count += object->count;
  return TN_OK;
}

/* Adds to an open container's items. */
static int arena_add(tn__build *build, uint32_t id, const tn__item *items, size_t count) {
  tn__object *object = tn__build_object_at(build, id);
  if (count == 0) return TN_OK;
  if (build->arena.count + object->count + count > TN_NONE || object->count + count > TN__OBJECT_COUNT_MAX)
    return tn__build_fault(build, NULL, "a list or dictionary has more than %d items", TN__OBJECT_COUNT_MAX);
  if (object->count == 0) {
    TN_TRY(stretch_begin(build, id));
    object->at = (uint32_t)build->arena.count;
  } else if (object->at + object->count != build->arena.count) {
    TN_TRY(arena_move(build, id));
  }
  if (tn__vec_append(&build->arena, items, count)) return tn__build_no_memory(build);
  object->count = (object->count + (uint32_t)count) & TN__OBJECT_COUNT_MAX;
  return TN_OK;
}

/* ---- containers ---------------------------------------------------------------------------------------------------------- */

/* The container below the items, TN_NONE when there is none. */
static uint32_t target(const tn__build *build, size_t at) {
  if (at == 0 || at > build->stack.count) return TN_NONE;
  const tn__item *item = tn__vec_at(&build->stack, at - 1);
  return item->tag == TN__ITEM_OBJECT ? (uint32_t)item->bits : TN_NONE;
}

static int changed_after_use(tn__build *build) {
  return tn__build_fault(build, NULL, "a list or dictionary is changed after it was used; does it contain itself?");
}

int tn__build_set_items(tn__build *build, size_t at) {
  uint32_t id = target(build, at);
  if (id == TN_NONE) return tn__build_fault(build, NULL, "expected a dictionary, keys and values on the stack");
  const tn__item *pairs = TN_VEC(&build->stack, tn__item) + at;
  size_t count = build->stack.count - at;
  if (count % 2) return tn__build_fault(build, NULL, "expected as many values as keys");
  uint64_t keys = 0;
  TN_TRY(close_pairs(build, pairs, count / 2, &keys));
  arena_cut(build);
  tn__object *object = tn__build_object_at(build, id);
  switch (object->kind) {
    case TN__OBJECT_DICT:
      if (object->count == 0 && (keys & TN__KEY_BIT(ACTION)))
        TN_TRY(tn__build_set_bad(build, object, tn__schema_entry_new(build, object, pairs, count / 2)));
      else
        TN_TRY(arena_add(build, id, pairs, count));
      break;
    case TN__OBJECT_ENTRY: TN_TRY(tn__build_set_bad(build, object, tn__schema_entry_set(build, object, pairs, count / 2))); break;
    case TN__OBJECT_BAD:
    case TN__OBJECT_OTHER: break;
    case TN__OBJECT_LIST: return tn__build_fault(build, NULL, "expected a dictionary, found a list");
    default: return changed_after_use(build);
  }
  build->stack.count = at;
  return TN_OK;
}

/* Whose records a list of these objects is a run of, and which list that is; LIST: of none. */
static enum tn__object_kind run_kind(const tn__object *object) {
  switch (object->kind) {
    case TN__OBJECT_ENTRY: return TN__OBJECT_ENTRIES;
    case TN__OBJECT_BLOCK: return TN__OBJECT_BLOCKS;
    case TN__OBJECT_SEGMENT: return TN__OBJECT_SEGMENTS;
    case TN__OBJECT_ANNOTATION: return TN__OBJECT_ANNOTATIONS;
    default: return TN__OBJECT_LIST;
  }
}

static tn_vec *run_table(tn__build *build, enum tn__object_kind kind) {
  switch (kind) {
    case TN__OBJECT_ENTRIES: return &build->trace->tables[TN_TABLE_ENTRY];
    case TN__OBJECT_BLOCKS: return &build->trace->tables[TN_TABLE_SEGMENT_BLOCK];
    case TN__OBJECT_ANNOTATIONS: return &build->trace->tables[TN_TABLE_ANNOTATION];
    default: return &build->raw_segments;
  }
}

/* Copies records to the end of their table: when a list has not got them in a row. */
static int run_copy(tn__build *build, tn_vec *table, size_t at, size_t count) {
  if (count > 1) TN_TRY(tn__build_check_memory(build, count * table->item_bytes));
  if (tn__vec_reserve(table, count)) return tn__build_no_memory(build);
  memcpy((char *)table->data + table->count * table->item_bytes, (char *)table->data + at * table->item_bytes,
         count * table->item_bytes);
  table->count += count;
  return table->count < TN_NONE ? TN_OK : tn__build_fault(build, NULL, "has more than 4 billion records");
}

static int run_add(tn__build *build, tn__object *list, uint32_t record) {
  tn_vec *table = run_table(build, list->kind);
  if (list->count == TN__OBJECT_COUNT_MAX)
    return tn__build_fault(build, NULL, "a list has more than %d items", TN__OBJECT_COUNT_MAX);
  if (list->count == 0) list->at = record;
  if (list->at + list->count != record) {
    size_t from = list->at, moved = list->count;
    if (from + moved != table->count) {
      list->at = (uint32_t)table->count;
      TN_TRY(run_copy(build, table, from, moved));
    }
    TN_TRY(run_copy(build, table, record, 1));
  }
  list->count = (list->count + 1) & TN__OBJECT_COUNT_MAX;
  return TN_OK;
}

static int run_append(tn__build *build, tn__object *list, const tn__item *items, size_t count) {
  for (size_t i = 0; i < count && list->kind > TN__OBJECT_BAD; i++) {
    const tn__object *object = items[i].tag == TN__ITEM_OBJECT ? tn__build_object_at(build, items[i].bits) : NULL;
    if (object && run_kind(object) == list->kind)
      TN_TRY(run_add(build, list, object->at));
    else if (object && object->kind == TN__OBJECT_BAD)
      *list = *object;
    else
      list->kind = TN__OBJECT_OTHER; /* a mixture */
  }
  return TN_OK;
}

static int list_append(tn__build *build, uint32_t id, const tn__item *items, size_t count) {
  TN_TRY(close_items(build, items, count));
  arena_cut(build);
  tn__object *list = tn__build_object_at(build, id);
  if (list->kind == TN__OBJECT_LIST && list->count == 0 && count > 0 && items->tag == TN__ITEM_OBJECT)
    list->kind = run_kind(tn__build_object_at(build, items->bits)) & 31u;
  switch (list->kind) {
    case TN__OBJECT_LIST: return arena_add(build, id, items, count);
    case TN__OBJECT_ENTRIES:
    case TN__OBJECT_BLOCKS:
    case TN__OBJECT_SEGMENTS:
    case TN__OBJECT_ANNOTATIONS: return run_append(build, list, items, count);
    case TN__OBJECT_BAD:
    case TN__OBJECT_OTHER: return TN_OK;
    case TN__OBJECT_DICT: return tn__build_fault(build, NULL, "expected a list, found a dictionary");
    default: return changed_after_use(build);
  }
}

int tn__build_append(tn__build *build, size_t at) {
  uint32_t id = target(build, at);
  if (id == TN_NONE) return tn__build_fault(build, NULL, "expected a list and items on the stack");
  TN_TRY(list_append(build, id, TN_VEC(&build->stack, tn__item) + at, build->stack.count - at));
  build->stack.count = at;
  return TN_OK;
}

/* A new container of the kind below the items from at on. */
static int insert_object(tn__build *build, size_t at, enum tn__object_kind kind) {
  TN_TRY(tn__build_object(build, kind));
  tn__item *items = TN_VEC(&build->stack, tn__item), object = items[build->stack.count - 1];
  memmove(items + at + 1, items + at, (build->stack.count - 1 - at) * sizeof *items);
  items[at] = object;
  return TN_OK;
}

int tn__build_list(tn__build *build, size_t at) {
  TN_TRY(insert_object(build, at, TN__OBJECT_LIST));
  return tn__build_append(build, at + 1);
}

int tn__build_dict(tn__build *build, size_t at) {
  TN_TRY(insert_object(build, at, TN__OBJECT_DICT));
  return tn__build_set_items(build, at + 1);
}

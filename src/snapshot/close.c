/* close.c -- dictionaries and lists that are complete become what they stand for.  See build.h. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "snapshot/schema.h"
#include "snapshot/value.h"
#include "trace/trace.h"

static const tn__item *items_of(const tn__build *build, const tn__object *object) {
  static const tn__item nothing;
  return object->count ? TN_VEC(&build->arena, tn__item) + object->at : &nothing;
}

static int become(tn__object *object, enum tn__object_kind kind, uint32_t at, uint32_t count) {
  object->kind = (unsigned)kind & 31u;
  object->at = at;
  object->count = count & TN__OBJECT_COUNT_MAX;
  return TN_OK;
}

/* ---- dictionaries -------------------------------------------------------------------------------------------------------- */

static int set_all(tn__build *build, const tn__object *object, tn__schema_setter *set, void *record) {
  return tn__schema_set_all(build, items_of(build, object), (uint32_t)object->count / 2, set, record);
}

/* Appends the record to a table and makes the object stand for it. */
static int add_record(tn__build *build, tn__object *object, enum tn__object_kind kind, tn_vec *table, const void *record) {
  if (table->count >= TN_NONE - 1) return tn__build_fault(build, NULL, "has more than 4 billion records of a kind");
  if (tn__vec_push(table, record)) return tn__build_no_memory(build);
  return become(object, kind, (uint32_t)table->count - 1, 0);
}

static int close_block(tn__build *build, tn__object *object) {
  tn_segment_block block = {.stack = TN_NONE, .category = TN_CATEGORY_UNKNOWN};
  TN_TRY(set_all(build, object, tn__schema_block, &block));
  if (block.state == TN_BLOCK_INACTIVE) block.requested_bytes = 0; /* what the file has is of the block's last life */
  return add_record(build, object, TN__OBJECT_BLOCK, &build->trace->tables[TN_TABLE_SEGMENT_BLOCK], &block);
}

static int close_segment(tn__build *build, tn__object *object, uint64_t keys) {
  tn__raw_segment raw = {.segment = {.stream = TN_NONE, .stack = TN_NONE}, .keys = keys, .offset = items_of(build, object)->offset};
  TN_TRY(set_all(build, object, tn__schema_segment, &raw));
  return add_record(build, object, TN__OBJECT_SEGMENT, &build->raw_segments, &raw);
}

static int close_frame(tn__build *build, tn__object *object) {
  tn_frame frame = {0};
  uint32_t id = 0;
  TN_TRY(set_all(build, object, tn__schema_frame, &frame));
  TN_TRY(tn__build_frame(build, &frame, &id));
  return become(object, TN__OBJECT_FRAME, id, 0);
}

static int close_annotation(tn__build *build, tn__object *object) {
  tn_annotation annotation = {0};
  TN_TRY(set_all(build, object, tn__schema_annotation, &annotation));
  return add_record(build, object, TN__OBJECT_ANNOTATION, &build->trace->tables[TN_TABLE_ANNOTATION], &annotation);
}

static int close_history(tn__build *build, tn__object *object) {
  tn__history history = {.stack = TN_NONE};
  TN_TRY(set_all(build, object, tn__schema_history, &history));
  return add_record(build, object, TN__OBJECT_HISTORY, &build->histories, &history);
}

static int close_top(tn__build *build, tn__object *object, uint64_t keys) {
  tn__top top = {.keys = keys};
  TN_TRY(set_all(build, object, tn__schema_top, &top));
  return add_record(build, object, TN__OBJECT_TOP, &build->tops, &top);
}

/* ---- settings ------------------------------------------------------------------------------------------------------------ */

static void item_print(const tn__build *build, const tn__item *item, int quoted, tn_text *text) {
  double real;
  switch (item->tag) {
    case TN__ITEM_BOOL: tn__text_add(text, item->bits ? "true" : "false"); break;
    case TN__ITEM_INT: tn__text_printf(text, "%lld", (long long)item->bits); break;
    case TN__ITEM_BIG: tn__text_printf(text, "%llu", (unsigned long long)item->bits); break;
    case TN__ITEM_REAL:
      memcpy(&real, &item->bits, sizeof real);
      tn__text_printf(text, "%.17g", real);
      break;
    case TN__ITEM_TEXT: (quoted ? tn__text_json : tn__text_add)(text, tn_trace_string(build->trace, (uint32_t)item->bits)); break;
    default: tn__text_add(text, "null"); break;
  }
}

/* The text as a string of the trace; empties it. */
static int text_intern(tn__build *build, tn_text *text, uint32_t *out_id) {
  const char *view = tn__text_view(text);
  int rc = text->failed ? TN_ENOMEM : tn__strings_intern(&build->trace->strings, view, strlen(view), out_id);
  tn__text_deinit(text);
  return rc ? tn__build_no_memory(build) : TN_OK;
}

/* The dictionary or list as JSON; its values are plain. */
static int close_as_text(tn__build *build, tn__object *object) {
  int is_dict = object->kind == TN__OBJECT_DICT;
  const tn__item *items = items_of(build, object);
  tn_text text;
  tn__text_init(&text);
  tn__text_add(&text, is_dict ? "{" : "[");
  for (uint32_t i = 0; i < object->count; i++) {
    int is_value = is_dict && i % 2;
    tn__text_add(&text, i == 0 ? "" : is_value ? ": " : ", ");
    item_print(build, &items[i], 1, &text);
  }
  tn__text_add(&text, is_dict ? "}" : "]");
  uint32_t id = 0;
  TN_TRY(text_intern(build, &text, &id));
  return become(object, TN__OBJECT_TEXT, id, 0);
}

/* What may be a container and is kept as text. */
static int is_text_key(uint32_t key) { return key == TN__KEY_ROUNDUP || key == TN__KEY_OVERFLOWED || key == TN__KEY_USER_METADATA; }

static int setting_value(tn__build *build, const tn__item *item, uint32_t *out_id) {
  const tn__object *object = tn__item_object(build, item);
  if (object && object->kind == TN__OBJECT_TEXT) {
    *out_id = object->at;
    return TN_OK;
  }
  tn_text text;
  tn__text_init(&text);
  item_print(build, item, 0, &text);
  return text_intern(build, &text, out_id);
}

static int close_settings(tn__build *build, tn__object *object) {
  const tn__item *pair = items_of(build, object);
  size_t at = build->settings.count;
  for (uint32_t i = 0; i < object->count; i += 2) {
    tn__setting setting = {(uint32_t)pair[i].bits, 0};
    if (pair[i].tag != TN__ITEM_TEXT) continue;
    TN_TRY(setting_value(build, &pair[i + 1], &setting.value));
    if (tn__vec_push(&build->settings, &setting)) return tn__build_no_memory(build);
  }
  if (build->settings.count >= TN_NONE) return tn__build_fault(build, NULL, "has more than 4 billion settings");
  return become(object, TN__OBJECT_SETTINGS, (uint32_t)at, (uint32_t)(build->settings.count - at));
}

static int close_as_keys_say(tn__build *build, tn__object *object, uint32_t key) {
  uint64_t keys = tn__schema_keys(items_of(build, object), (uint32_t)object->count / 2u);
  build->other_keys |= keys;
  if (key == TN__KEY_ALLOCATOR_SETTINGS) return close_settings(build, object);
  if (is_text_key(key)) return close_as_text(build, object);
  if (keys & TN__KEY_BIT(ACTION)) return tn__schema_entry_new(build, object, items_of(build, object), (uint32_t)object->count / 2u);
  if (keys & (TN__KEY_BIT(BLOCKS) | TN__KEY_BIT(TOTAL_SIZE))) return close_segment(build, object, keys);
  if (keys & TN__KEY_BIT(STATE)) return close_block(build, object);
  if (keys & (TN__KEY_BIT(FILENAME) | TN__KEY_BIT(LINE))) return close_frame(build, object);
  if (keys & TN__KEY_BIT(STAGE)) return close_annotation(build, object);
  if (keys & TN__KEY_BIT(REAL_SIZE)) return close_history(build, object);
  if (keys & (TN__KEY_BIT(SEGMENTS) | TN__KEY_BIT(DEVICE_TRACES))) return close_top(build, object, keys);
  return become(object, TN__OBJECT_OTHER, 0, 0);
}

int tn__close_dict(tn__build *build, tn__object *object, uint32_t key) {
  return tn__build_set_bad(build, object, close_as_keys_say(build, object, key));
}

/* ---- lists --------------------------------------------------------------------------------------------------------------- */

static int is_object(const tn__build *build, const tn__item *item, enum tn__object_kind kind) {
  return item->tag == TN__ITEM_OBJECT && tn__build_object_at(build, item->bits)->kind == (unsigned)kind;
}

/* A list with an item that does not belong: what that one suffers from, if it is known. */
static int become_other(const tn__build *build, tn__object *object, const tn__item *item) {
  if (!is_object(build, item, TN__OBJECT_BAD)) return become(object, TN__OBJECT_OTHER, 0, 0);
  *object = *tn__item_object(build, item);
  return TN_OK;
}

static int close_frames(tn__build *build, tn__object *object) {
  const tn__item *items = items_of(build, object);
  tn_vec *frames = &build->trace->tables[TN_TABLE_STACK_FRAME];
  if (tn__vec_reserve(frames, object->count)) return tn__build_no_memory(build);
  uint32_t *out = TN_VEC(frames, uint32_t) + frames->count, id = 0;
  for (uint32_t i = 0; i < object->count; i++) {
    if (!is_object(build, &items[i], TN__OBJECT_FRAME)) return become_other(build, object, &items[i]);
    out[i] = tn__build_object_at(build, items[i].bits)->at;
  }
  frames->count += object->count;
  TN_TRY(tn__build_stack(build, object->count, &id));
  return become(object, TN__OBJECT_STACK, id, 0);
}

static int close_traces(tn__build *build, tn__object *object) {
  const tn__item *items = items_of(build, object);
  size_t at = build->runs.count;
  for (uint32_t i = 0; i < object->count; i++) {
    const tn__object *list = tn__item_object(build, &items[i]);
    if (!list || (list->kind != TN__OBJECT_ENTRIES && list->kind != TN__OBJECT_EMPTY))
      return become_other(build, object, &items[i]);
    tn__run run = list->kind == TN__OBJECT_EMPTY ? (tn__run){0, 0} : (tn__run){list->at, list->count};
    if (tn__vec_push(&build->runs, &run)) return tn__build_no_memory(build);
  }
  if (build->runs.count >= TN_NONE) return tn__build_fault(build, NULL, "has more than 4 billion lists of trace entries");
  return become(object, TN__OBJECT_TRACES, (uint32_t)at, object->count);
}

static int close_pool(tn__build *build, tn__object *object) {
  const tn__item *items = items_of(build, object);
  uint64_t first = 0, second = 0;
  uint32_t id = 0;
  if (items[0].tag > TN__ITEM_BIG || items[1].tag > TN__ITEM_BIG) return become(object, TN__OBJECT_OTHER, 0, 0);
  TN_TRY(tn__item_bits(build, &items[0], TN__KEY_POOL_ID, &first));
  TN_TRY(tn__item_bits(build, &items[1], TN__KEY_POOL_ID, &second));
  TN_TRY(tn__build_pool(build, first, second, &id));
  return become(object, TN__OBJECT_POOL, id, 0);
}

/* As traceback.format_stack() gives them, so the innermost comes last. */
static int close_texts(tn__build *build, tn__object *object) {
  const tn__item *items = items_of(build, object);
  uint32_t frame_count = 0, id = 0;
  for (uint32_t i = 0; i < object->count; i++)
    if (items[i].tag != TN__ITEM_TEXT) return become_other(build, object, &items[i]);
  for (uint32_t i = object->count; i-- > 0;) {
    tn_frame frame = {0};
    TN_TRY(tn__build_text_frame(build, (uint32_t)items[i].bits, &frame));
    TN_TRY(tn__build_frame(build, &frame, &id));
    if (tn__vec_push(&build->trace->tables[TN_TABLE_STACK_FRAME], &id)) return tn__build_no_memory(build);
    frame_count++;
  }
  TN_TRY(tn__build_stack(build, frame_count, &id));
  return become(object, TN__OBJECT_STACK, id, 0);
}

int tn__close_list(tn__build *build, tn__object *object, uint32_t key) {
  if (is_text_key(key)) return close_as_text(build, object);
  if (object->count == 0) return become(object, TN__OBJECT_EMPTY, 0, 0);
  const tn__item *first = items_of(build, object);
  if (is_object(build, first, TN__OBJECT_FRAME)) return close_frames(build, object);
  if (is_object(build, first, TN__OBJECT_HISTORY))
    return become(object, TN__OBJECT_HISTORY, tn__build_object_at(build, first->bits)->at, 0);
  if (is_object(build, first, TN__OBJECT_ENTRIES) || is_object(build, first, TN__OBJECT_EMPTY)) return close_traces(build, object);
  if ((key == TN__KEY_POOL_ID || key == TN__KEY_SEGMENT_POOL_ID) && object->count == 2) return close_pool(build, object);
  if ((key == TN__KEY_FORWARD_FRAMES || key == TN__KEY_FRAMES) && first->tag == TN__ITEM_TEXT) return close_texts(build, object);
  return become_other(build, object, first);
}

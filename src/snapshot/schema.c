/* schema.c -- what the dictionaries and lists of a snapshot mean, torch 2.0 to now.  See build.h.
 *
 * A dictionary is known by its keys, wherever it lies: "action" makes a trace entry, "state" a block.  Keys may come in any order,
 * twice (the last counts) or not at all; unknown ones are skipped. */
#include "snapshot/schema.h"

#include <string.h>

#include "base/error.h"
#include "snapshot/value.h"
#include "trace/trace.h"

/* ---- words --------------------------------------------------------------------------------------------------------------- */

const char *const tn__keys[TN__KEY_COUNT] = {"",
#define KEY_TEXT(name, text) text,
                                             TN__KEYS(KEY_TEXT)
#undef KEY_TEXT
};

static int word(tn__build *build, const char *text, uint32_t *out_id) { return tn_trace_add_string(build->trace, text, out_id); }

static int word_means(tn__build *build, uint8_t *table, const char *text, int meaning) {
  uint32_t id = 0;
  TN_TRY(word(build, text, &id));
  tn_assert(id < TN__WORDS_MAX);
  table[id] = (uint8_t)meaning;
  return TN_OK;
}

static int words_init(tn__build *build) {
  uint32_t id = 0;
  for (uint32_t i = 1; i < TN__KEY_COUNT; i++) TN_TRY(word(build, tn__keys[i], &id));
  for (int i = 0; i < TN_ACTION_COUNT; i++) TN_TRY(word_means(build, build->actions, tn_action_name(i), i));
  TN_TRY(word_means(build, build->actions, "free", TN__ACTION_FREE));
  for (int i = 0; i < TN_BLOCK_STATE_COUNT; i++) TN_TRY(word_means(build, build->states, tn_block_state_name(i), i));
  TN_TRY(word_means(build, build->states, "active_awaiting_free", TN_BLOCK_PENDING_FREE)); /* what the documentation says */
  for (int i = 0; i < TN_CATEGORY_COUNT; i++) TN_TRY(word_means(build, build->categories, tn_category_name(i), i));
  TN_TRY(word_means(build, build->categories, "optimizer_state", TN_CATEGORY_OPTIMIZER)); /* the profiler's words */
  TN_TRY(word_means(build, build->categories, "autograd_detail", TN_CATEGORY_TEMPORARY));
  TN_TRY(word(build, "small", &build->word_small));
  TN_TRY(word(build, "END", &build->word_end));
  return word(build, "N/A", &build->word_none);
}

int tn__schema_init(tn__build *build) {
  memset(build->actions, UINT8_MAX, sizeof build->actions);
  memset(build->states, UINT8_MAX, sizeof build->states);
  memset(build->categories, UINT8_MAX, sizeof build->categories);
  TN_TRY(words_init(build));
  uint32_t id = 0;
  return tn__build_pool(build, 0, 0, &id);
}

/* ---- trace entries ------------------------------------------------------------------------------------------------------- */

static int action_get(tn__build *build, const tn__item *item, tn_entry *entry) {
  if (item->tag != TN__ITEM_TEXT) return tn__item_wrong(build, item, TN__KEY_ACTION, "a text");
  uint8_t found = tn__item_means(build->actions, item);
  entry->action = found == UINT8_MAX ? TN__ACTION_UNKNOWN : found;
  return TN_OK;
}

int tn__schema_entry(tn__build *build, void *record, uint32_t key, const tn__item *item) {
  tn_entry *entry = record;
  switch (key) {
    case TN__KEY_ACTION: return action_get(build, item, entry);
    case TN__KEY_ADDR:
    case TN__KEY_DEVICE_FREE: return tn__item_bits(build, item, key, &entry->addr);
    case TN__KEY_SIZE: return tn__item_bytes(build, item, key, &entry->bytes);
    case TN__KEY_TIME_US: return tn__item_number(build, item, key, TN__BYTES_MAX, &entry->time_us);
    case TN__KEY_STREAM: return tn__item_stream(build, item, key, &entry->stream);
    case TN__KEY_POOL_ID: return tn__item_pool(build, item, key, &entry->pool);
    case TN__KEY_FRAMES: return tn__item_stack(build, item, key, &entry->stack);
    case TN__KEY_FORWARD_FRAMES: return tn__item_stack(build, item, key, &entry->forward);
    case TN__KEY_NAME:
    case TN__KEY_USER_METADATA: tn__item_text_take(build, item, &entry->label); return TN_OK;
    case TN__KEY_COMPILE_CONTEXT:
      tn__item_text_take(build, item, &entry->compile_context);
      if (entry->compile_context == build->word_none) entry->compile_context = 0;
      return TN_OK;
    case TN__KEY_CATEGORY: tn__item_category(build, item, &entry->category); return TN_OK;
    default: return TN_OK;
  }
}

/* From the end, because of a key that comes twice the last one counts. */
static inline int set_keys(tn__build *build, const tn__item *pairs, size_t pair_count, tn__schema_setter *set, void *record,
                           uint64_t *out_keys) {
  uint64_t seen = 0;
  for (const tn__item *pair = pairs + 2 * pair_count; pair > pairs;) {
    pair -= 2;
    if (pair->tag != TN__ITEM_TEXT || pair->bits >= TN__KEY_COUNT || (seen >> pair->bits & 1)) continue;
    seen |= (uint64_t)1 << pair->bits;
    TN_TRY(set(build, record, (uint32_t)pair->bits, pair + 1));
  }
  *out_keys = seen;
  return TN_OK;
}

int tn__schema_set_all(tn__build *build, const tn__item *pairs, size_t pair_count, tn__schema_setter *set, void *record) {
  uint64_t keys = 0;
  return set_keys(build, pairs, pair_count, set, record, &keys);
}

int tn__schema_entry_set(tn__build *build, tn__object *object, const tn__item *pairs, size_t pair_count) {
  tn_entry entry = TN_VEC(&build->trace->tables[TN_TABLE_ENTRY], tn_entry)[object->at];
  uint64_t keys = 0;
  TN_TRY(set_keys(build, pairs, pair_count, tn__schema_entry, &entry, &keys));
  build->entry_keys |= keys;
  build->odd_actions |= entry.action >= TN_ACTION_COUNT;
  build->streams_missing |= entry.stream == TN_NONE;
  TN_VEC(&build->trace->tables[TN_TABLE_ENTRY], tn_entry)[object->at] = entry;
  return TN_OK;
}

int tn__schema_entry_new(tn__build *build, tn__object *object, const tn__item *pairs, size_t pair_count) {
  tn_vec *entries = &build->trace->tables[TN_TABLE_ENTRY];
  if (entries->count >= TN_NONE - 1) return tn__build_fault(build, pairs, "has more than 4 billion trace entries");
  if (tn__vec_reserve(entries, 1)) return tn__build_no_memory(build);
  tn_entry *entry = TN_VEC(entries, tn_entry) + entries->count;
  *entry = (tn_entry){.stream = TN_NONE, .stack = TN_NONE, .forward = TN_NONE, .category = TN_CATEGORY_UNKNOWN};
  object->kind = TN__OBJECT_ENTRY;
  object->at = (uint32_t)entries->count++;
  object->count = 0;
  return tn__schema_entry_set(build, object, pairs, pair_count);
}

uint64_t tn__schema_keys(const tn__item *pairs, size_t pair_count) {
  uint64_t keys = 0;
  for (size_t i = 0; i < pair_count; i++, pairs += 2)
    if (pairs->tag == TN__ITEM_TEXT && pairs->bits < TN__KEY_COUNT) keys |= (uint64_t)1 << pairs->bits;
  return keys;
}

/* ---- blocks and segments ------------------------------------------------------------------------------------------------- */

static int state_get(tn__build *build, const tn__item *item, uint8_t *out) {
  uint8_t found = tn__item_means(build->states, item);
  if (found == UINT8_MAX)
    return tn__build_fault(build, item, "\"state\" of a block is %.60s, expected active_allocated, active_pending_free or inactive",
                           item->tag == TN__ITEM_TEXT ? tn_trace_string(build->trace, (uint32_t)item->bits) : tn__item_name(item));
  *out = found;
  return TN_OK;
}

static int history_get(tn__build *build, const tn__item *item, tn_segment_block *block) {
  const tn__object *object = tn__item_object(build, item);
  if (object && object->kind == TN__OBJECT_BAD) return tn__build_bad(build, object);
  if (!object || object->kind != TN__OBJECT_HISTORY) return TN_OK; /* an empty one is legal */
  const tn__history *history = tn__vec_at(&build->histories, object->at);
  block->requested_bytes = history->real_size;
  block->stack = history->stack;
  return TN_OK;
}

int tn__schema_block(tn__build *build, void *record, uint32_t key, const tn__item *item) {
  tn_segment_block *block = record;
  switch (key) {
    case TN__KEY_ADDR:
    case TN__KEY_ADDRESS:
      if (item->tag != TN__ITEM_NULL) block->reserved |= TN__BLOCK_HAS_ADDR;
      return tn__item_bits(build, item, key, &block->addr);
    case TN__KEY_SIZE: return tn__item_bytes(build, item, key, &block->bytes);
    case TN__KEY_REQUESTED_SIZE:
      block->reserved |= TN__BLOCK_HAS_REQUESTED;
      return tn__item_bytes(build, item, key, &block->requested_bytes);
    case TN__KEY_STATE: return state_get(build, item, &block->state);
    case TN__KEY_FRAMES: return tn__item_stack(build, item, key, &block->stack);
    case TN__KEY_HISTORY: block->reserved |= TN__BLOCK_HAS_REQUESTED; return history_get(build, item, block);
    case TN__KEY_CATEGORY: tn__item_category(build, item, &block->category); return TN_OK;
    default: return TN_OK;
  }
}

static int segment_type_get(tn__build *build, const tn__item *item, tn_segment *segment) {
  segment->flags &= ~(uint32_t)TN_SEGMENT_SMALL;
  if (item->tag == TN__ITEM_TEXT && item->bits == build->word_small) segment->flags |= TN_SEGMENT_SMALL;
  return TN_OK;
}

int tn__schema_segment(tn__build *build, void *record, uint32_t key, const tn__item *item) {
  tn__raw_segment *raw = record;
  tn_segment *segment = &raw->segment;
  uint64_t number = 0;
  tn__run blocks = {segment->blocks_at, segment->blocks_count};
  switch (key) {
    case TN__KEY_ADDRESS: return tn__item_bits(build, item, key, &segment->addr);
    case TN__KEY_TOTAL_SIZE: return tn__item_bytes(build, item, key, &segment->bytes);
    case TN__KEY_ALLOCATED_SIZE: return tn__item_bytes(build, item, key, &segment->allocated_bytes);
    case TN__KEY_ACTIVE_SIZE: return tn__item_bytes(build, item, key, &segment->active_bytes);
    case TN__KEY_REQUESTED_SIZE: return tn__item_bytes(build, item, key, &segment->requested_bytes);
    case TN__KEY_STREAM: return tn__item_stream(build, item, key, &segment->stream);
    case TN__KEY_SEGMENT_POOL_ID: return tn__item_pool(build, item, key, &segment->pool);
    case TN__KEY_SEGMENT_TYPE: return segment_type_get(build, item, segment);
    case TN__KEY_FRAMES: return tn__item_stack(build, item, key, &segment->stack);
    case TN__KEY_IS_EXPANDABLE:
      TN_TRY(tn__item_bits(build, item, key, &number));
      segment->flags = (segment->flags & ~(uint32_t)TN_SEGMENT_EXPANDABLE) | (number ? TN_SEGMENT_EXPANDABLE : 0);
      return TN_OK;
    case TN__KEY_DEVICE:
      TN_TRY(tn__item_number(build, item, key, TN_NONE, &number));
      raw->device = (uint32_t)number;
      return TN_OK;
    case TN__KEY_BLOCKS:
      TN_TRY(tn__item_run(build, item, key, TN__OBJECT_BLOCKS, "a list of blocks", &blocks));
      segment->blocks_at = blocks.at;
      segment->blocks_count = blocks.count;
      return TN_OK;
    default: return TN_OK;
  }
}

/* ---- the rest ------------------------------------------------------------------------------------------------------------ */

/* A line that no code has is -1 in CPython. */
static void line_get(const tn__item *item, uint32_t *out) {
  *out = item->tag == TN__ITEM_INT && item->bits < TN_NONE ? (uint32_t)item->bits : 0;
}

int tn__schema_frame(tn__build *build, void *record, uint32_t key, const tn__item *item) {
  tn_frame *frame = record;
  switch (key) {
    case TN__KEY_FILENAME: return tn__item_text(build, item, key, &frame->file);
    case TN__KEY_NAME: return tn__item_text(build, item, key, &frame->function);
    case TN__KEY_LINE: line_get(item, &frame->line); return TN_OK;
    default: return TN_OK;
  }
}

int tn__schema_annotation(tn__build *build, void *record, uint32_t key, const tn__item *item) {
  tn_annotation *annotation = record;
  uint64_t number = 0;
  switch (key) {
    case TN__KEY_NAME: tn__item_text_take(build, item, &annotation->name); return TN_OK;
    case TN__KEY_TIME_US: return tn__item_number(build, item, key, TN__BYTES_MAX, &annotation->time_us);
    case TN__KEY_STAGE:
      annotation->flags = item->tag == TN__ITEM_TEXT && item->bits == build->word_end ? TN_ANNOTATION_END : 0;
      return TN_OK;
    case TN__KEY_DEVICE:
      TN_TRY(tn__item_number(build, item, key, TN_NONE, &number));
      annotation->device = (uint32_t)number;
      return TN_OK;
    default: return TN_OK;
  }
}

int tn__schema_history(tn__build *build, void *record, uint32_t key, const tn__item *item) {
  tn__history *history = record;
  if (key == TN__KEY_REAL_SIZE) return tn__item_bytes(build, item, key, &history->real_size);
  return key == TN__KEY_FRAMES ? tn__item_stack(build, item, key, &history->stack) : TN_OK;
}

/* host_traces may be one list, there being one host. */
static int traces_get(tn__build *build, const tn__item *item, uint32_t key, tn__run *out) {
  const tn__object *object = tn__item_object(build, item);
  if (!object || object->kind != TN__OBJECT_ENTRIES)
    return tn__item_run(build, item, key, TN__OBJECT_TRACES, "a list of lists of trace entries", out);
  tn__run entries = {object->at, object->count};
  if (tn__vec_push(&build->runs, &entries)) return tn__build_no_memory(build);
  *out = (tn__run){(uint32_t)build->runs.count - 1, 1};
  return TN_OK;
}

/* The host's segments are single blocks, and a version that shows them as such is not at hand: both forms are taken, another one is
 * left. */
static int host_segments_get(tn__build *build, const tn__item *item, tn__run *out) {
  const tn__object *object = tn__item_object(build, item);
  if (object && object->kind == TN__OBJECT_SEGMENTS) *out = (tn__run){object->at, object->count};
  if (!object || object->kind != TN__OBJECT_BLOCKS) return TN_OK;
  if (build->raw_segments.count + object->count >= TN_NONE) return tn__build_fault(build, item, "has more than 4 billion segments");
  tn__run made = {(uint32_t)build->raw_segments.count, object->count};
  for (uint32_t i = 0; i < object->count; i++) {
    const tn_segment_block *block = tn__vec_at(&build->trace->tables[TN_TABLE_SEGMENT_BLOCK], (size_t)object->at + i);
    tn__raw_segment raw = {
        .segment = {.addr = block->addr, .blocks_at = object->at + i, .blocks_count = 1, .stream = TN_NONE, .stack = block->stack}};
    if (tn__vec_push(&build->raw_segments, &raw)) return tn__build_no_memory(build);
  }
  *out = made;
  return TN_OK;
}

int tn__schema_top(tn__build *build, void *record, uint32_t key, const tn__item *item) {
  tn__top *top = record;
  const tn__object *object = tn__item_object(build, item);
  switch (key) {
    case TN__KEY_SEGMENTS: return tn__item_run(build, item, key, TN__OBJECT_SEGMENTS, "a list of segments", &top->segments);
    case TN__KEY_HOST_SEGMENTS: return host_segments_get(build, item, &top->host_segments);
    case TN__KEY_DEVICE_TRACES: return traces_get(build, item, key, &top->traces);
    case TN__KEY_HOST_TRACES: return traces_get(build, item, key, &top->host_traces);
    case TN__KEY_EXTERNAL_ANNOTATIONS:
      return tn__item_run(build, item, key, TN__OBJECT_ANNOTATIONS, "a list of annotations", &top->annotations);
    case TN__KEY_ALLOCATOR_SETTINGS:
      if (object && object->kind == TN__OBJECT_SETTINGS) top->settings = (tn__run){object->at, object->count};
      return TN_OK;
    default: return TN_OK;
  }
}

/* stacks.c -- frames, stacks, streams and pools, each kept once.  See build.h.
 *
 * A map from 64-bit hashes finds them; what is found is compared, and another hash is tried when two different ones meet. */
#include <string.h>

#include "base/error.h"
#include "snapshot/build.h"
#include "trace/trace.h"

static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

static int record_new(tn__build *build, tn_map *index, uint64_t hash, enum tn_table table, const void *record, uint32_t *out_id) {
  tn_vec *records = &build->trace->tables[table];
  if (records->count >= TN_NONE - 1)
    return tn__build_fault(build, NULL, "has more than 4 billion frames, stacks, streams or pools");
  if (tn__map_set(index, hash, (uint32_t)records->count)) return tn__build_no_memory(build);
  if (tn__vec_push(records, record)) return tn__build_no_memory(build);
  *out_id = (uint32_t)records->count - 1;
  return TN_OK;
}

/* The id of the record, whose bytes tell it from others. */
static int record_intern(tn__build *build, tn_map *index, uint64_t hash, enum tn_table table, const void *record,
                         uint32_t *out_id) {
  const tn_vec *records = &build->trace->tables[table];
  for (;; hash++) {
    uint32_t id = tn__map_get(index, hash);
    if (id == TN_NONE) return record_new(build, index, hash, table, record, out_id);
    if (memcmp(tn__vec_at(records, id), record, records->item_bytes) != 0) continue;
    *out_id = id;
    return TN_OK;
  }
}

int tn__build_frame(tn__build *build, const tn_frame *frame, uint32_t *out_id) {
  uint64_t hash = mix(mix(frame->function, frame->file), frame->line);
  return record_intern(build, &build->frame_index, hash, TN_TABLE_FRAME, frame, out_id);
}

int tn__build_pool(tn__build *build, uint64_t first, uint64_t second, uint32_t *out_id) {
  tn_pool pool = {first, second};
  return record_intern(build, &build->pool_index, mix(first, second), TN_TABLE_POOL, &pool, out_id);
}

int tn__build_stream(tn__build *build, uint64_t handle, uint32_t *out_id) {
  if (handle != build->last_handle || build->stream_index.count == 0) {
    tn_stream stream = {handle};
    TN_TRY(record_intern(build, &build->stream_index, mix(0, handle), TN_TABLE_STREAM, &stream, &build->last_stream));
    build->last_handle = handle;
  }
  *out_id = build->last_stream;
  return TN_OK;
}

static int stack_equal(const tn_trace *trace, uint32_t id, const uint32_t *frames, uint32_t frame_count) {
  const tn_stack *stack = &TN_VEC(&trace->tables[TN_TABLE_STACK], tn_stack)[id];
  return stack->frames_count == frame_count &&
         (frame_count == 0 || memcmp(TN_VEC(&trace->tables[TN_TABLE_STACK_FRAME], uint32_t) + stack->frames_at, frames,
                                     frame_count * sizeof *frames) == 0);
}

int tn__build_stack(tn__build *build, uint32_t frame_count, uint32_t *out_id) {
  tn_vec *all = &build->trace->tables[TN_TABLE_STACK_FRAME];
  if (all->count >= TN_NONE) return tn__build_fault(build, NULL, "has more than 4 billion frames in its stacks");
  const uint32_t *frames = frame_count ? TN_VEC(all, uint32_t) + (all->count - frame_count) : NULL;
  uint64_t hash = frame_count;
  for (uint32_t i = 0; i < frame_count; i++) hash = mix(hash, frames[i]);
  for (;; hash++) {
    uint32_t id = tn__map_get(&build->stack_index, hash);
    if (id == TN_NONE) break;
    if (!stack_equal(build->trace, id, frames, frame_count)) continue;
    all->count -= frame_count;
    *out_id = id;
    return TN_OK;
  }
  tn_stack stack = {(uint32_t)(all->count - frame_count), frame_count};
  return record_new(build, &build->stack_index, hash, TN_TABLE_STACK, &stack, out_id);
}

/* ---- frames that come as text -------------------------------------------------------------------------------------------- */

/* The text as a string of the trace, without the space around it. */
static int trimmed(tn__build *build, const char *text, size_t len, uint32_t *out_id) {
  while (len && strchr(" \t\r\n", *text)) text++, len--;
  while (len && strchr(" \t\r\n", text[len - 1])) len--;
  return tn__strings_intern(&build->trace->strings, text, len, out_id) ? tn__build_no_memory(build) : TN_OK;
}

/* A line like:  File "train.py", line 12, in step */
int tn__build_text_frame(tn__build *build, uint32_t text_id, tn_frame *out) {
  static const char before_file[] = "File \"", before_line[] = "\", line ", before_name[] = ", in ";
  const char *text = tn_trace_string(build->trace, text_id);
  const char *file = strstr(text, before_file), *line = file ? strstr(file, before_line) : NULL;
  if (!line) return trimmed(build, text, strlen(text), &out->function);
  file += sizeof before_file - 1;
  TN_TRY(trimmed(build, file, (size_t)(line - file), &out->file));
  uint64_t number = 0;
  for (line += sizeof before_line - 1; *line >= '0' && *line <= '9'; line++)
    number = number < TN_NONE ? number * 10 + (uint64_t)(*line - '0') : number;
  out->line = number < TN_NONE ? (uint32_t)number : 0;
  if (strncmp(line, before_name, sizeof before_name - 1) != 0) return TN_OK;
  line += sizeof before_name - 1;
  return trimmed(build, line, strcspn(line, "\n"), &out->function);
}

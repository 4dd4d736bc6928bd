/* fields.h -- what each field of each record is.
 *
 * Why: saving, loading and checking must never disagree about a record; all three are driven by this one list.
 * Callers: trace/check.c, trace/store.c.  Constant data. */
#ifndef TN_TRACE_FIELDS_H
#define TN_TRACE_FIELDS_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a field holds, and so what is legal in it.  ..._OR_NONE: or TN_NONE. */
enum tn__role {
  TN__NUMBER,
  TN__BITS, /* all 64 of them: an address or a handle, which a file may show as a negative number */
  TN__REAL, /* double, finite */
  TN__STRING,
  TN__MODULE_OR_NONE,
  TN__OP_OR_NONE,
  TN__BLOCK,
  TN__VALUE_OR_NONE,
  TN__PHASE,
  TN__RATE,
  TN__CATEGORY,
  TN__FRAME,
  TN__STACK_OR_NONE,
  TN__STREAM,
  TN__POOL,
  TN__ACTION,
  TN__BLOCK_STATE
};

#define TN__MODULE_FIELDS(X) X(name, STRING) X(class_name, STRING) X(parent, MODULE_OR_NONE)
#define TN__OP_FIELDS(X)                                                                                               \
  X(name, STRING) X(args, STRING) X(module, MODULE_OR_NONE) X(phase, PHASE) X(step, NUMBER) X(pass, NUMBER)             \
  X(rate, RATE) X(flags, NUMBER) X(inputs_at, NUMBER) X(inputs_count, NUMBER) X(outputs_at, NUMBER)                     \
  X(outputs_count, NUMBER) X(efficiency, NUMBER) X(flops, REAL) X(bytes_moved, REAL) X(seconds, REAL)
#define TN__BLOCK_FIELDS(X) \
  X(bytes, NUMBER) X(op, OP_OR_NONE) X(name, STRING) X(module, MODULE_OR_NONE) X(category, CATEGORY) X(flags, NUMBER)
#define TN__VALUE_FIELDS(X)                                                                               \
  X(block, BLOCK) X(op, OP_OR_NONE) X(output, NUMBER) X(version, NUMBER) X(meta, STRING) X(source, STRING) \
  X(flags, NUMBER)
#define TN__SLOT_FIELDS(X)                                                                                          \
  X(value, VALUE_OR_NONE) X(block, BLOCK) X(signature, STRING) X(module, MODULE_OR_NONE) X(step, NUMBER) X(pass, NUMBER) \
  X(index, NUMBER)
#define TN__EVENT_FIELDS(X) X(kind, NUMBER) X(id, NUMBER)
#define TN__FRAME_FIELDS(X) X(function, STRING) X(file, STRING) X(line, NUMBER)
#define TN__STACK_FIELDS(X) X(frames_at, NUMBER) X(frames_count, NUMBER)
#define TN__STREAM_FIELDS(X) X(handle, BITS)
#define TN__POOL_FIELDS(X) X(first, BITS) X(second, BITS)
#define TN__DEVICE_FIELDS(X)                                                                                              \
  X(index, NUMBER) X(flags, NUMBER) X(segments_at, NUMBER) X(segments_count, NUMBER) X(entries_at, NUMBER)                 \
  X(entries_count, NUMBER)
#define TN__SEGMENT_FIELDS(X)                                                                                             \
  X(addr, BITS) X(bytes, NUMBER) X(allocated_bytes, NUMBER) X(active_bytes, NUMBER) X(requested_bytes, NUMBER)             \
  X(blocks_at, NUMBER) X(blocks_count, NUMBER) X(stream, STREAM) X(pool, POOL) X(stack, STACK_OR_NONE) X(flags, NUMBER)
#define TN__SEGMENT_BLOCK_FIELDS(X)                                                                                   \
  X(addr, BITS) X(bytes, NUMBER) X(requested_bytes, NUMBER) X(stack, STACK_OR_NONE) X(state, BLOCK_STATE) X(category, CATEGORY)
#define TN__ENTRY_FIELDS(X)                                                                                                \
  X(addr, BITS) X(bytes, NUMBER) X(time_us, NUMBER) X(stream, STREAM) X(pool, POOL) X(stack, STACK_OR_NONE)                 \
  X(forward, STACK_OR_NONE) X(label, STRING) X(compile_context, STRING) X(action, ACTION) X(category, CATEGORY)
#define TN__ANNOTATION_FIELDS(X) X(time_us, NUMBER) X(name, STRING) X(device, NUMBER) X(flags, NUMBER)

typedef struct tn__field {
  const char *name; /* also the column's */
  uint16_t at;      /* offset in the record */
  uint8_t bytes;
  uint8_t role; /* tn__role */
} tn__field;

typedef struct tn__record {
  const char *name; /* also the SQL table's */
  const char *key;  /* column of the record's index: "id", but "at" for events, which have an id of their own */
  const tn__field *fields;
  size_t field_count;
} tn__record;

extern const tn__record tn__records[TN_TABLE_COUNT];

/* An integer field, whatever its width. */
static inline uint64_t tn__field_get(const tn__field *field, const void *record) {
  const char *at = (const char *)record + field->at;
  switch (field->bytes) {
    case 1: return *(const uint8_t *)at;
    case 2: return *(const uint16_t *)(const void *)at;
    case 4: return *(const uint32_t *)(const void *)at;
    default: return *(const uint64_t *)(const void *)at;
  }
}
/* 0 when the value does not fit the field. */
int tn__field_set(const tn__field *field, void *record, uint64_t value);
double tn__field_real(const tn__field *field, const void *record);
int tn__field_is_optional(const tn__field *field); /* may be TN_NONE */

#ifdef __cplusplus
}
#endif
#endif

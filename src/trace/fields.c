/* fields.c -- what each field of each record is.  See fields.h. */
#include "trace/fields.h"

#include <string.h>

#define FIELD(type, field, role) {#field, offsetof(type, field), sizeof(((type *)NULL)->field), TN__##role}

static const tn__field module_fields[] = {
#define X(field, role) FIELD(tn_module, field, role),
    TN__MODULE_FIELDS(X)
#undef X
};
static const tn__field op_fields[] = {
#define X(field, role) FIELD(tn_op, field, role),
    TN__OP_FIELDS(X)
#undef X
};
static const tn__field ref_fields[] = {{"value", 0, sizeof(uint32_t), TN__VALUE_OR_NONE}};
static const tn__field block_fields[] = {
#define X(field, role) FIELD(tn_block, field, role),
    TN__BLOCK_FIELDS(X)
#undef X
};
static const tn__field value_fields[] = {
#define X(field, role) FIELD(tn_value, field, role),
    TN__VALUE_FIELDS(X)
#undef X
};
static const tn__field slot_fields[] = {
#define X(field, role) FIELD(tn_slot, field, role),
    TN__SLOT_FIELDS(X)
#undef X
};
static const tn__field event_fields[] = {
#define X(field, role) FIELD(tn_event, field, role),
    TN__EVENT_FIELDS(X)
#undef X
};
static const tn__field frame_fields[] = {
#define X(field, role) FIELD(tn_frame, field, role),
    TN__FRAME_FIELDS(X)
#undef X
};
static const tn__field stack_frame_fields[] = {{"frame", 0, sizeof(uint32_t), TN__FRAME}};
static const tn__field stack_fields[] = {
#define X(field, role) FIELD(tn_stack, field, role),
    TN__STACK_FIELDS(X)
#undef X
};
static const tn__field stream_fields[] = {
#define X(field, role) FIELD(tn_stream, field, role),
    TN__STREAM_FIELDS(X)
#undef X
};
static const tn__field pool_fields[] = {
#define X(field, role) FIELD(tn_pool, field, role),
    TN__POOL_FIELDS(X)
#undef X
};
static const tn__field device_fields[] = {
#define X(field, role) FIELD(tn_device, field, role),
    TN__DEVICE_FIELDS(X)
#undef X
};
static const tn__field segment_fields[] = {
#define X(field, role) FIELD(tn_segment, field, role),
    TN__SEGMENT_FIELDS(X)
#undef X
};
static const tn__field segment_block_fields[] = {
#define X(field, role) FIELD(tn_segment_block, field, role),
    TN__SEGMENT_BLOCK_FIELDS(X)
#undef X
};
static const tn__field entry_fields[] = {
#define X(field, role) FIELD(tn_entry, field, role),
    TN__ENTRY_FIELDS(X)
#undef X
};
static const tn__field annotation_fields[] = {
#define X(field, role) FIELD(tn_annotation, field, role),
    TN__ANNOTATION_FIELDS(X)
#undef X
};

#define RECORD(name, key) {#name, key, name##_fields, sizeof name##_fields / sizeof *name##_fields}

const tn__record tn__records[TN_TABLE_COUNT] = {
    [TN_TABLE_MODULE] = RECORD(module, "id"), [TN_TABLE_OP] = RECORD(op, "id"),
    [TN_TABLE_REF] = RECORD(ref, "id"),       [TN_TABLE_BLOCK] = RECORD(block, "id"),
    [TN_TABLE_VALUE] = RECORD(value, "id"),   [TN_TABLE_SLOT] = RECORD(slot, "id"),
    [TN_TABLE_EVENT] = RECORD(event, "at"),
    [TN_TABLE_FRAME] = RECORD(frame, "id"),   [TN_TABLE_STACK_FRAME] = RECORD(stack_frame, "id"),
    [TN_TABLE_STACK] = RECORD(stack, "id"),   [TN_TABLE_STREAM] = RECORD(stream, "id"),
    [TN_TABLE_POOL] = RECORD(pool, "id"),     [TN_TABLE_DEVICE] = RECORD(device, "id"),
    [TN_TABLE_SEGMENT] = RECORD(segment, "id"), [TN_TABLE_SEGMENT_BLOCK] = RECORD(segment_block, "id"),
    [TN_TABLE_ENTRY] = RECORD(entry, "id"),   [TN_TABLE_ANNOTATION] = RECORD(annotation, "id"),
};

int tn__field_set(const tn__field *field, void *record, uint64_t value) {
  char *at = (char *)record + field->at;
  switch (field->bytes) {
    case 1: *(uint8_t *)at = (uint8_t)value; break;
    case 2: *(uint16_t *)(void *)at = (uint16_t)value; break;
    case 4: *(uint32_t *)(void *)at = (uint32_t)value; break;
    default: *(uint64_t *)(void *)at = value; break;
  }
  return tn__field_get(field, record) == value;
}

double tn__field_real(const tn__field *field, const void *record) {
  double real;
  memcpy(&real, (const char *)record + field->at, sizeof real);
  return real;
}

int tn__field_is_optional(const tn__field *field) {
  return field->role == TN__MODULE_OR_NONE || field->role == TN__OP_OR_NONE || field->role == TN__VALUE_OR_NONE ||
         field->role == TN__STACK_OR_NONE;
}

/* check.c -- whether a trace makes sense: the gate between a file (or a capture) and all code that indexes without asking.
 *
 * First every field alone (fields.h), then what ties records together, then the events in order. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "trace/fields.h"
#include "trace/lives.h"
#include "trace/trace.h"

/* Sums of block sizes, rounded ones too (at most 2 MiB more for each of 2^32 blocks), must not overflow. */
#define BYTES_MAX ((uint64_t)1 << 62)

#define RECORDS(trace, table, type) TN_VEC(&(trace)->tables[TN_TABLE_##table], type)

static int bad(tn_error *err, enum tn_table table, size_t at, const char *what) {
  return tn__error_set_at(err, TN_EFORMAT, 0, (uint32_t)at, "%s %zu: %s", tn__records[table].name, at, what);
}

/* ---- fields -------------------------------------------------------------------------------------------------------------- */

/* How many values of a role there are: legal ones are below. */
static uint64_t role_limit(const tn_trace *trace, int role) {
  switch (role) {
    case TN__STRING: return tn_trace_string_count(trace);
    case TN__MODULE_OR_NONE: return tn__trace_count(trace, TN_TABLE_MODULE);
    case TN__OP_OR_NONE: return tn__trace_count(trace, TN_TABLE_OP);
    case TN__BLOCK: return tn__trace_count(trace, TN_TABLE_BLOCK);
    case TN__VALUE_OR_NONE: return tn__trace_count(trace, TN_TABLE_VALUE);
    case TN__PHASE: return TN_PHASE_COUNT;
    case TN__RATE: return TN_RATE_COUNT;
    case TN__CATEGORY: return TN_CATEGORY_COUNT;
    case TN__FRAME: return tn__trace_count(trace, TN_TABLE_FRAME);
    case TN__STACK_OR_NONE: return tn__trace_count(trace, TN_TABLE_STACK);
    case TN__STREAM: return tn__trace_count(trace, TN_TABLE_STREAM);
    case TN__POOL: return tn__trace_count(trace, TN_TABLE_POOL);
    case TN__ACTION: return TN_ACTION_COUNT;
    case TN__BLOCK_STATE: return TN_BLOCK_STATE_COUNT;
    default: return UINT64_MAX;
  }
}

static int field_is_legal(const tn__field *field, const void *record, uint64_t limit) {
  if (field->role == TN__REAL) return isfinite(tn__field_real(field, record));
  uint64_t value = tn__field_get(field, record);
  return value < limit || (value == TN_NONE && tn__field_is_optional(field));
}

/* Record by record: a table can be larger than the caches.  Fields that may hold anything are left out. */
static int check_fields(const tn_trace *trace, enum tn_table table, tn_error *err) {
  enum { FIELDS_MAX = 16 };
  const tn_vec *records = &trace->tables[table];
  const tn__field *fields[FIELDS_MAX];
  uint64_t limits[FIELDS_MAX];
  size_t field_count = 0;
  tn_assert(tn__records[table].field_count <= FIELDS_MAX);
  for (size_t k = 0; k < tn__records[table].field_count; k++) {
    const tn__field *field = &tn__records[table].fields[k];
    uint64_t limit = role_limit(trace, field->role);
    if (limit == UINT64_MAX && field->role != TN__REAL) continue;
    fields[field_count] = field;
    limits[field_count++] = limit;
  }
  for (size_t i = 0; i < records->count; i++) {
    for (size_t k = 0; k < field_count; k++) {
      if (field_is_legal(fields[k], tn__vec_at(records, i), limits[k])) continue;
      return tn__error_set_at(err, TN_EFORMAT, 0, (uint32_t)i, "%s %zu: %s is out of range", tn__records[table].name, i,
                              fields[k]->name);
    }
  }
  return TN_OK;
}

/* ---- records ------------------------------------------------------------------------------------------------------------- */

/* Parents must lead to a root: mark each walk up with its own number; meeting that number again is a cycle. */
static int check_modules(const tn_trace *trace, tn_error *err) {
  size_t count = tn__trace_count(trace, TN_TABLE_MODULE);
  const tn_module *modules = RECORDS(trace, MODULE, tn_module);
  uint32_t *walks = tn__mem_zalloc(count, sizeof *walks);
  if (!walks) return tn__error_set(err, TN_ENOMEM, NULL);
  int rc = TN_OK;
  for (uint32_t i = 0; i < count && !rc; i++) {
    uint32_t at = i, walk = i + 1;
    for (; at != TN_NONE && walks[at] == 0; at = modules[at].parent) walks[at] = walk;
    if (at != TN_NONE && walks[at] == walk) rc = bad(err, TN_TABLE_MODULE, i, "is its own ancestor");
  }
  tn__mem_free(walks);
  return rc;
}

/* Ranges of the ref table belong to one op each, so that a walk over all ops' values is linear in the file. */
static int check_ops(const tn_trace *trace, tn_error *err) {
  const tn_op *ops = RECORDS(trace, OP, tn_op);
  const uint32_t *refs = RECORDS(trace, REF, uint32_t);
  uint64_t ref_count = tn__trace_count(trace, TN_TABLE_REF), refs_seen = 0;
  for (size_t i = 0; i < tn__trace_count(trace, TN_TABLE_OP); i++) {
    const tn_op *op = &ops[i];
    if ((uint64_t)op->inputs_at + op->inputs_count > ref_count) return bad(err, TN_TABLE_OP, i, "inputs are out of range");
    if ((uint64_t)op->outputs_at + op->outputs_count > ref_count) return bad(err, TN_TABLE_OP, i, "outputs are out of range");
    refs_seen += (uint64_t)op->inputs_count + op->outputs_count;
    if (refs_seen > ref_count) return bad(err, TN_TABLE_OP, i, "shares its inputs or outputs with another op");
    for (uint32_t k = 0; k < op->inputs_count; k++)
      if (refs[op->inputs_at + k] == TN_NONE) return bad(err, TN_TABLE_OP, i, "an input is no value");
    if (op->flops < 0 || op->bytes_moved < 0) return bad(err, TN_TABLE_OP, i, "work is negative");
  }
  return TN_OK;
}

static int check_blocks(const tn_trace *trace, tn_error *err) {
  const tn_block *blocks = RECORDS(trace, BLOCK, tn_block);
  uint64_t bytes_left = BYTES_MAX;
  for (size_t i = 0; i < tn__trace_count(trace, TN_TABLE_BLOCK); i++) {
    if (blocks[i].bytes > bytes_left) return bad(err, TN_TABLE_BLOCK, i, "sizes add up to more than any memory");
    bytes_left -= blocks[i].bytes;
  }
  return TN_OK;
}

static int check_values(const tn_trace *trace, tn_error *err) {
  const tn_value *values = RECORDS(trace, VALUE, tn_value);
  const tn_op *ops = RECORDS(trace, OP, tn_op);
  const uint32_t *refs = RECORDS(trace, REF, uint32_t);
  for (size_t i = 0; i < tn__trace_count(trace, TN_TABLE_VALUE); i++) {
    if (values[i].op == TN_NONE) continue;
    const tn_op *op = &ops[values[i].op];
    if (values[i].output >= op->outputs_count || refs[op->outputs_at + values[i].output] != i)
      return bad(err, TN_TABLE_VALUE, i, "is not that output of its op");
  }
  return TN_OK;
}

static int check_slots(const tn_trace *trace, tn_error *err) {
  const tn_slot *slots = RECORDS(trace, SLOT, tn_slot);
  const tn_value *values = RECORDS(trace, VALUE, tn_value);
  uint32_t *saved = tn__mem_zalloc((size_t)1 << 16, sizeof *saved); /* slots so far, by step and pass */
  if (!saved) return tn__error_set(err, TN_ENOMEM, NULL);
  int rc = TN_OK;
  for (size_t i = 0; i < tn__trace_count(trace, TN_TABLE_SLOT) && !rc; i++) {
    const tn_slot *slot = &slots[i];
    if (slot->value != TN_NONE && values[slot->value].block != slot->block)
      rc = bad(err, TN_TABLE_SLOT, i, "lies in another block than its value");
    else if (slot->index != saved[slot->step << 8 | slot->pass]++)
      rc = bad(err, TN_TABLE_SLOT, i, "index does not follow that of the slot before it");
  }
  tn__mem_free(saved);
  return rc;
}

/* ---- histories ----------------------------------------------------------------------------------------------------------- */

/* Ranges follow one another: each record of the other table belongs to one at most, so that walks are linear in the file. */
static int range_follows(uint64_t at, uint64_t count, uint64_t *next, uint64_t limit) {
  if (count == 0) return 1;
  if (at < *next || at > limit || count > limit - at) return 0;
  *next = at + count;
  return 1;
}

static int check_stacks(const tn_trace *trace, tn_error *err) {
  const tn_stack *stacks = RECORDS(trace, STACK, tn_stack);
  uint64_t next = 0, limit = tn__trace_count(trace, TN_TABLE_STACK_FRAME);
  for (size_t i = 0; i < tn__trace_count(trace, TN_TABLE_STACK); i++)
    if (!range_follows(stacks[i].frames_at, stacks[i].frames_count, &next, limit))
      return bad(err, TN_TABLE_STACK, i, "frames are out of range");
  return TN_OK;
}

static int check_devices(const tn_trace *trace, tn_error *err) {
  const tn_device *devices = RECORDS(trace, DEVICE, tn_device);
  uint64_t segments = 0, entries = 0;
  for (size_t i = 0; i < tn__trace_count(trace, TN_TABLE_DEVICE); i++) {
    if (!range_follows(devices[i].segments_at, devices[i].segments_count, &segments, tn__trace_count(trace, TN_TABLE_SEGMENT)))
      return bad(err, TN_TABLE_DEVICE, i, "segments are out of range");
    if (!range_follows(devices[i].entries_at, devices[i].entries_count, &entries, tn__trace_count(trace, TN_TABLE_ENTRY)))
      return bad(err, TN_TABLE_DEVICE, i, "entries are out of range");
  }
  return TN_OK;
}

static const char *segment_fault(const tn_segment *segment, const tn_segment_block *blocks, uint64_t *bytes_left) {
  if (segment->bytes > *bytes_left) return "sizes add up to more than any memory";
  *bytes_left -= segment->bytes;
  if (segment->addr + segment->bytes < segment->addr) return "ends beyond the address space";
  tn_addr at = segment->addr;
  uint64_t rest = segment->bytes;
  for (uint32_t k = 0; k < segment->blocks_count; k++) {
    const tn_segment_block *block = &blocks[segment->blocks_at + k];
    if (block->addr != at || block->bytes > rest) return "is not tiled by its blocks";
    at += block->bytes;
    rest -= block->bytes;
  }
  return segment->blocks_count > 0 && rest > 0 ? "is not tiled by its blocks" : NULL;
}

static int check_segments(const tn_trace *trace, tn_error *err) {
  const tn_segment *segments = RECORDS(trace, SEGMENT, tn_segment);
  const tn_segment_block *blocks = RECORDS(trace, SEGMENT_BLOCK, tn_segment_block);
  uint64_t next = 0, limit = tn__trace_count(trace, TN_TABLE_SEGMENT_BLOCK), bytes_left = BYTES_MAX;
  for (size_t i = 0; i < tn__trace_count(trace, TN_TABLE_SEGMENT); i++) {
    if (!range_follows(segments[i].blocks_at, segments[i].blocks_count, &next, limit))
      return bad(err, TN_TABLE_SEGMENT, i, "blocks are out of range");
    const char *fault = segment_fault(&segments[i], blocks, &bytes_left);
    if (fault) return bad(err, TN_TABLE_SEGMENT, i, fault);
  }
  return TN_OK;
}

/* ---- events -------------------------------------------------------------------------------------------------------------- */

enum { SLOT_UNSAVED, SLOT_HELD, SLOT_RELEASED };

typedef struct event_state {
  tn__life *lives;    /* by block */
  uint8_t *allocated; /* by block */
  uint8_t *saved;     /* by slot */
  uint8_t *ran;       /* by op */
} event_state;

static const char *block_event_fault(event_state *state, const tn_event *event) {
  if (event->kind == TN_EVENT_DROP) return state->lives[event->id].referenced ? NULL : "DROP of a block without a reference";
  if (state->allocated[event->id]) return "second ALLOC of a block";
  state->allocated[event->id] = 1;
  return NULL;
}

static const char *slot_event_fault(event_state *state, const tn_event *event, uint32_t block) {
  uint8_t *saved = &state->saved[event->id];
  switch (event->kind) {
    case TN_EVENT_PACK:
      if (*saved != SLOT_UNSAVED) return "second PACK of a slot";
      if (!tn__life_is_live(&state->lives[block])) return "PACK of a slot whose block is not live";
      *saved = SLOT_HELD;
      return NULL;
    case TN_EVENT_UNPACK: return *saved == SLOT_HELD ? NULL : "UNPACK of a slot that is not held";
    default:
      if (*saved != SLOT_HELD) return "RELEASE of a slot that is not held";
      *saved = SLOT_RELEASED;
      return NULL;
  }
}

static uint64_t event_id_limit(const tn_trace *trace, uint32_t kind) {
  switch (kind) {
    case TN_EVENT_ALLOC:
    case TN_EVENT_DROP: return tn__trace_count(trace, TN_TABLE_BLOCK);
    case TN_EVENT_PACK:
    case TN_EVENT_UNPACK:
    case TN_EVENT_RELEASE: return tn__trace_count(trace, TN_TABLE_SLOT);
    case TN_EVENT_OP: return tn__trace_count(trace, TN_TABLE_OP);
    case TN_EVENT_MARK: return tn_trace_string_count(trace);
    default: return 0;
  }
}

/* What is wrong with the event in its place, or NULL; takes the step. */
static const char *event_fault(const tn_trace *trace, event_state *state, const tn_event *event) {
  if (event->kind == 0 || event->kind >= TN_EVENT_KIND_END) return "unknown kind";
  if (event->id >= event_id_limit(trace, event->kind)) return "id is out of range";
  if (event->kind == TN_EVENT_MARK) return NULL;
  if (event->kind == TN_EVENT_OP) return state->ran[event->id]++ ? "second run of an op" : NULL;
  uint32_t block = tn__event_block(event, RECORDS(trace, SLOT, tn_slot));
  int speaks_of_block = event->kind == TN_EVENT_ALLOC || event->kind == TN_EVENT_DROP;
  const char *fault = speaks_of_block ? block_event_fault(state, event) : slot_event_fault(state, event, block);
  if (!fault) tn__life_step(&state->lives[block], event->kind);
  return fault;
}

static int check_events(const tn_trace *trace, tn_error *err) {
  size_t block_count = tn__trace_count(trace, TN_TABLE_BLOCK);
  const tn_event *events = RECORDS(trace, EVENT, tn_event);
  event_state state = {
      .lives = tn__mem_zalloc(block_count, sizeof *state.lives),
      .allocated = tn__mem_zalloc(block_count, 1),
      .saved = tn__mem_zalloc(tn__trace_count(trace, TN_TABLE_SLOT), 1),
      .ran = tn__mem_zalloc(tn__trace_count(trace, TN_TABLE_OP), 1),
  };
  int rc = TN_OK;
  if (!state.lives || !state.allocated || !state.saved || !state.ran) rc = tn__error_set(err, TN_ENOMEM, NULL);
  for (size_t i = 0; i < tn__trace_count(trace, TN_TABLE_EVENT) && !rc; i++) {
    const char *fault = event_fault(trace, &state, &events[i]);
    if (fault) rc = bad(err, TN_TABLE_EVENT, i, fault);
  }
  tn__mem_free(state.ran);
  tn__mem_free(state.saved);
  tn__mem_free(state.allocated);
  tn__mem_free(state.lives);
  return rc;
}

int tn_trace_check(const tn_trace *trace, tn_error *err) {
  for (int table = 0; table < TN_TABLE_COUNT; table++) TN_TRY(check_fields(trace, (enum tn_table)table, err));
  TN_TRY(check_modules(trace, err));
  TN_TRY(check_ops(trace, err));
  TN_TRY(check_blocks(trace, err));
  TN_TRY(check_values(trace, err));
  TN_TRY(check_slots(trace, err));
  TN_TRY(check_stacks(trace, err));
  TN_TRY(check_devices(trace, err));
  TN_TRY(check_segments(trace, err));
  return check_events(trace, err);
}

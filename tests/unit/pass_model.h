/* pass_model.h -- carries out a PASS object of docs/formats.md by the format's text, on a made-up step, without a tensor: a second reading
 * of it, which knows nothing of schedules.  Fails the test on whatever the run could not do; gives the most bytes that live at once. */
#ifndef TN_TESTS_PASS_MODEL_H
#define TN_TESTS_PASS_MODEL_H

#include <jansson.h>

#include "net.h"

/* A tensor lies on a block as forward made it (instance 2 * block) or as a run op did (2 * block + 1). */
typedef struct pass_model {
  const tn_trace *trace;
  const tn_event *events;
  const tn_slot *slots;
  const tn_value *values;
  const tn_block *blocks;
  const json_t *ops, *sources, *rebuild, *hold;
  size_t event_count, block_count, value_count, slot_count;
  uint32_t *at;         /* per value: its instance + 1, 0 when there is none */
  uint32_t *names;      /* per instance: values on it */
  uint8_t *referenced;  /* per instance: by the program that trains */
  uint32_t *kept_slots; /* per block */
  uint8_t *slot_held;   /* per slot: kept and not given back */
  uint64_t live, peak;
} pass_model;

static inline uint64_t pass_model_bytes(const pass_model *m, uint32_t instance) {
  return tn_caching_round(m->blocks[instance / 2].bytes);
}

static inline int pass_model_is_live(const pass_model *m, uint32_t instance) {
  return m->referenced[instance] || m->names[instance] || (instance % 2 == 0 && m->kept_slots[instance / 2]);
}

static inline void pass_model_count(pass_model *m, uint32_t instance, int was) {
  int is = pass_model_is_live(m, instance);
  if (is && !was) m->live += pass_model_bytes(m, instance);
  if (!is && was) m->live -= pass_model_bytes(m, instance);
  if (m->live > m->peak) m->peak = m->live;
}

static inline void pass_model_set(pass_model *m, uint32_t value, uint32_t instance) {
  int was = pass_model_is_live(m, instance);
  if (m->at[value]) fail_msg("value %u is made where it is already", value);
  m->at[value] = instance + 1;
  m->names[instance]++;
  pass_model_count(m, instance, was);
}

static inline void pass_model_forget(pass_model *m, uint32_t value) {
  if (!m->at[value]) fail_msg("value %u is forgotten where it is not", value);
  uint32_t instance = m->at[value] - 1;
  m->at[value] = 0;
  m->names[instance]--;
  pass_model_count(m, instance, 1);
}

static inline void pass_model_refer(pass_model *m, uint32_t instance, int on) {
  int was = pass_model_is_live(m, instance);
  m->referenced[instance] = (uint8_t)on;
  pass_model_count(m, instance, was);
}

static inline const char *pass_model_source(const pass_model *m, uint32_t value) {
  char key[16];
  snprintf(key, sizeof key, "%u", value);
  return json_string_value(json_object_get(m->sources, key));
}

/* A value that is read must be there: from outside, in a slot that has not been given back, held, or made. */
static inline void pass_model_read(const pass_model *m, uint32_t value) {
  const char *source = pass_model_source(m, value);
  if (m->at[value]) return;
  if (!source) fail_msg("value %u is read, and comes from nowhere", value);
  if (strncmp(source, "slot:", 5)) return;
  uint32_t slot = (uint32_t)atoi(source + 5);
  if (m->slots[slot].value != value) fail_msg("value %u is not what slot %u holds", value, slot);
  if (!m->slot_held[slot]) fail_msg("value %u is read from slot %u, which has been given back", value, slot);
}

/* Everything with a "v" in an argument list. */
static inline void pass_model_read_all(const pass_model *m, const json_t *args) {
  size_t i;
  json_t *arg;
  json_array_foreach((json_t *)args, i, arg) {
    if (json_is_array(arg)) pass_model_read_all(m, arg);
    if (json_object_get(arg, "v")) pass_model_read(m, (uint32_t)json_integer_value(json_object_get(arg, "v")));
  }
}

static inline void pass_model_forget_all(pass_model *m, const json_t *values) {
  size_t i;
  json_t *value;
  json_array_foreach((json_t *)values, i, value) pass_model_forget(m, (uint32_t)json_integer_value(value));
}

/* A window lies where its base lies; it must say the geometry that the value has. */
static inline uint32_t pass_model_window(const pass_model *m, const json_t *args, uint32_t value) {
  uint32_t base = (uint32_t)json_integer_value(json_object_get(json_array_get(args, 0), "v"));
  char geometry[64] = "", want[64];
  const char *meta = tn_trace_string(m->trace, m->values[value].meta);
  char *shape = json_dumps(json_array_get(args, 1), JSON_COMPACT), *strides = json_dumps(json_array_get(args, 2), JSON_COMPACT);
  assert_int_equal(json_array_size(args), 4);
  assert_true(json_is_integer(json_array_get(args, 3)));
  snprintf(geometry, sizeof geometry, "float32%s/%.*s+%d", shape, (int)strlen(strides) - 2, strides + 1,
           (int)json_integer_value(json_array_get(args, 3)));
  snprintf(want, sizeof want, "%s%s", meta, strchr(meta, '/') ? "" : "/8,1+0"); /* whole ones are [4,8] */
  assert_string_equal(geometry, want);
  assert_int_equal(m->values[base].block, m->values[value].block);
  free(shape);
  free(strides);
  return m->at[base] ? m->at[base] - 1 : 2 * m->values[base].block;
}

static inline void pass_model_run(pass_model *m, const json_t *step) {
  char key[24];
  snprintf(key, sizeof key, "%lld", (long long)json_integer_value(json_array_get(step, 0)));
  const json_t *op = json_object_get(m->ops, key), *args = json_object_get(json_object_get(op, "call"), "args");
  if (!op) fail_msg("op %s is run, and is not there", key);
  int is_window = !strcmp(json_string_value(json_object_get(op, "op")), "aten.as_strided.default");
  const tn_op *record = tn_trace_table(m->trace, TN_TABLE_OP, NULL);
  const uint32_t *outputs = tn_trace_table(m->trace, TN_TABLE_REF, NULL);
  uint32_t nameless[2], count = 0;
  size_t i;
  json_t *out;
  if (!is_window) outputs += record[atoi(key)].outputs_at;
  pass_model_read_all(m, args);
  json_array_foreach(json_object_get(op, "out"), i, out) {
    uint32_t value = json_is_null(out) ? outputs[i] : (uint32_t)json_integer_value(out), block = m->values[value].block;
    uint32_t instance = is_window ? pass_model_window(m, args, value) : 2 * block + 1;
    if (pass_model_source(m, value) && !json_is_null(out)) fail_msg("value %u has a source and is made", value);
    if (!json_is_null(out)) {
      pass_model_set(m, value, instance);
    } else if (!(m->values[value].flags & TN_VALUE_VIEW)) { /* made all the same, and let go when the op is over */
      int was = pass_model_is_live(m, instance);
      nameless[count++] = instance;
      m->names[instance]++;
      pass_model_count(m, instance, was);
    }
  }
  while (count) {
    m->names[nameless[--count]]--;
    pass_model_count(m, nameless[count], 1);
  }
  pass_model_forget_all(m, json_array_get(step, 1));
}

/* "hold": values that take a slot's tensor when it is given back, until another slot has been asked for. */
static inline void pass_model_holds(pass_model *m, uint32_t slot, int ends) {
  const char *key;
  json_t *holds, *hold;
  size_t i;
  json_object_foreach((json_t *)m->hold, key, holds) json_array_foreach(holds, i, hold) {
    uint32_t value = (uint32_t)json_integer_value(json_array_get(hold, 0)), until = (uint32_t)json_integer_value(json_array_get(hold, 1));
    if (!ends && (uint32_t)atoi(key) == slot) pass_model_set(m, value, 2 * m->values[value].block);
    if (ends && until == slot) pass_model_forget(m, value);
  }
}

static inline void pass_model_unpack(pass_model *m, uint32_t slot) {
  char key[16];
  snprintf(key, sizeof key, "%u", slot);
  const json_t *program = json_object_get(m->rebuild, key);
  size_t i;
  json_t *step;
  if (m->slot_held[slot]) {
    if (program) fail_msg("slot %u is kept and rebuilt", slot);
    pass_model_holds(m, slot, 0);
    pass_model_refer(m, 2 * m->slots[slot].block, 1);
  } else {
    if (!program) fail_msg("slot %u is dropped, and nothing rebuilds it", slot);
    json_array_foreach(json_object_get(program, "run"), i, step) pass_model_run(m, step);
    uint32_t value = (uint32_t)json_integer_value(json_object_get(program, "value"));
    assert_int_equal(value, m->slots[slot].value);
    pass_model_read(m, value);
    pass_model_refer(m, m->at[value] - 1, 1);
    pass_model_forget_all(m, json_object_get(program, "forget"));
  }
  pass_model_holds(m, slot, 1);
}

static inline void pass_model_event(pass_model *m, const tn_event *event, const json_t *slots) {
  uint32_t block = event->kind == TN_EVENT_MARK || event->kind == TN_EVENT_OP ? 0
                   : event->kind > TN_EVENT_DROP ? m->slots[event->id].block : event->id;
  int was = pass_model_is_live(m, 2 * block);
  switch (event->kind) {
    case TN_EVENT_ALLOC: pass_model_refer(m, 2 * block, 1); break;
    case TN_EVENT_DROP: pass_model_refer(m, 2 * block + m->referenced[2 * block + 1], 0); break;
    case TN_EVENT_PACK:
      m->slot_held[event->id] = (uint8_t)json_integer_value(json_array_get(json_array_get(slots, event->id), 1));
      m->kept_slots[block] += m->slot_held[event->id];
      break;
    case TN_EVENT_UNPACK: pass_model_unpack(m, event->id); break;
    case TN_EVENT_RELEASE:
      m->kept_slots[block] -= m->slot_held[event->id];
      m->slot_held[event->id] = 0;
      pass_model_count(m, 2 * block, was);
      break;
    default: break;
  }
}

/* The peak of a trace of one step and one pass under the pass as JSON. */
static inline uint64_t pass_model_peak(const tn_trace *trace, const char *pass) {
  json_error_t error;
  json_t *root = json_loads(pass, JSON_REJECT_DUPLICATES, &error);
  if (!root) fail_msg("not JSON: %s: %s", error.text, pass);
  pass_model m = {.trace = trace, .ops = json_object_get(root, "ops"), .sources = json_object_get(root, "sources"),
                  .rebuild = json_object_get(root, "rebuild"), .hold = json_object_get(root, "hold")};
  m.events = tn_trace_table(trace, TN_TABLE_EVENT, &m.event_count);
  m.slots = tn_trace_table(trace, TN_TABLE_SLOT, &m.slot_count);
  m.values = tn_trace_table(trace, TN_TABLE_VALUE, &m.value_count);
  m.blocks = tn_trace_table(trace, TN_TABLE_BLOCK, &m.block_count);
  m.at = calloc(m.value_count + 1, sizeof *m.at);
  m.names = calloc(2 * m.block_count + 2, sizeof *m.names);
  m.referenced = calloc(2 * m.block_count + 2, 1);
  m.kept_slots = calloc(m.block_count + 1, sizeof *m.kept_slots);
  m.slot_held = calloc(m.slot_count + 1, 1);
  assert_int_equal(json_array_size(json_object_get(root, "slots")), m.slot_count);
  for (size_t e = 0; e < m.event_count; e++) pass_model_event(&m, &m.events[e], json_object_get(root, "slots"));
  for (size_t v = 0; v < m.value_count; v++)
    if (m.at[v]) fail_msg("value %zu is left over: %s", v, pass);
  free(m.at);
  free(m.names);
  free(m.referenced);
  free(m.kept_slots);
  free(m.slot_held);
  json_decref(root);
  return m.peak;
}

#endif

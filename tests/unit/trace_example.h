/* trace_example.h -- one small lawful trace, as arrays that a test may bend before they become a tn_trace.
 *
 * Two layers and their step: block 0 is a parameter, 1 the batch, 2 and 3 activations (3 is a view's base as well), 4 a gradient.
 * Slot 0 saves value 1 (the batch), slot 1 saves value 2 (block 2). */
#ifndef TN_TESTS_TRACE_EXAMPLE_H
#define TN_TESTS_TRACE_EXAMPLE_H

#include "helper.h"

enum { EXAMPLE_MODULES = 2, EXAMPLE_OPS = 4, EXAMPLE_REFS = 10, EXAMPLE_BLOCKS = 5, EXAMPLE_VALUES = 6, EXAMPLE_SLOTS = 2 };
enum { EXAMPLE_EVENTS = 24 };

typedef struct example {
  tn_module modules[EXAMPLE_MODULES];
  tn_op ops[EXAMPLE_OPS];
  uint32_t refs[EXAMPLE_REFS];
  tn_block blocks[EXAMPLE_BLOCKS];
  tn_value values[EXAMPLE_VALUES];
  tn_slot slots[EXAMPLE_SLOTS];
  tn_event events[EXAMPLE_EVENTS];
} example;

/* Strings of the example: id 0 is "". */
static const char example_strings[] =
    "layer\0Linear\0aten.addmm.default\0{\"args\": [{\"v\": 1}, {\"v\": 0}], \"kwargs\": {}}\0aten.relu.default\0"
    "float32[4,8]\0parameter:layer.weight\0input:0\0float32[4,8] AddmmBackward0\0step:0\0end";
enum { S_LAYER = 1, S_LINEAR, S_ADDMM, S_ARGS, S_RELU, S_META, S_PARAMETER, S_INPUT, S_SIGNATURE, S_STEP0, S_END, S_COUNT };

static inline example example_make(void) {
  return (example){
      .modules = {{.parent = TN_NONE}, {.name = S_LAYER, .class_name = S_LINEAR, .parent = 0}},
      .ops =
          {
              {S_ADDMM, S_ARGS, 1, TN_PHASE_FORWARD, 0, 0, TN_RATE_FP32, TN_OP_REBUILDABLE, 0, 2, 2, 1, 0, 512, 384, -1},
              {S_RELU, 0, 1, TN_PHASE_FORWARD, 0, 0, TN_RATE_NONE, TN_OP_REBUILDABLE, 3, 1, 4, 1, 0, 0, 256, -1},
              {S_RELU, 0, 1, TN_PHASE_FORWARD, 0, 0, TN_RATE_NONE, TN_OP_VIEW, 5, 1, 6, 1, 0, 0, 0, 0},
              {S_ADDMM, 0, TN_NONE, TN_PHASE_BACKWARD, 0, 0, TN_RATE_FP32, 0, 7, 1, 8, 2, 0, 512, 384, 1e-6},
          },
      .refs = {1, 0, 2, 2, 3, 3, 4, 2, 5, TN_NONE},
      .blocks =
          {
              {128, TN_NONE, S_LAYER, 1, TN_CATEGORY_PARAMETER, 0, 0},
              {1000, TN_NONE, 0, TN_NONE, TN_CATEGORY_INPUT, 0, 0},
              {2000, 0, 0, 1, TN_CATEGORY_ACTIVATION, 0, 0},
              {3000, 1, 0, 1, TN_CATEGORY_TEMPORARY, 0, 0},
              {128, 3, 0, 1, TN_CATEGORY_GRADIENT, TN_BLOCK_HOST, 0},
          },
      .values =
          {
              {0, TN_NONE, 0, 0, S_META, S_PARAMETER, 0, 0},
              {1, TN_NONE, 0, 0, S_META, S_INPUT, 0, 0},
              {2, 0, 0, 0, S_META, 0, 0, 0},
              {3, 1, 0, 0, S_META, 0, 0, 0},
              {3, 2, 0, 0, S_META, 0, TN_VALUE_VIEW, 0},
              {4, 3, 0, 0, S_META, 0, 0, 0},
          },
      .slots = {{1, 1, S_SIGNATURE, 1, 0, 0, 0, 0}, {2, 2, S_SIGNATURE, 1, 0, 0, 0, 1}},
      .events =
          {
              {TN_EVENT_ALLOC, 0},   {TN_EVENT_ALLOC, 1}, {TN_EVENT_MARK, S_STEP0}, {TN_EVENT_PACK, 0},   {TN_EVENT_ALLOC, 2},
              {TN_EVENT_OP, 0},      {TN_EVENT_DROP, 1},  {TN_EVENT_PACK, 1},       {TN_EVENT_ALLOC, 3},  {TN_EVENT_OP, 1},
              {TN_EVENT_DROP, 2},    {TN_EVENT_OP, 2},    {TN_EVENT_DROP, 3},       {TN_EVENT_UNPACK, 1}, {TN_EVENT_ALLOC, 4},
              {TN_EVENT_OP, 3},      {TN_EVENT_RELEASE, 1}, {TN_EVENT_DROP, 2},     {TN_EVENT_UNPACK, 0}, {TN_EVENT_DROP, 1},
              {TN_EVENT_UNPACK, 0},  {TN_EVENT_DROP, 1},  {TN_EVENT_RELEASE, 0},    {TN_EVENT_MARK, S_END},
          },
  };
}

static inline int example_add(tn_trace *trace, const example *e) {
  int rc = tn_trace_add_strings(trace, example_strings, sizeof example_strings, S_COUNT - 1);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_MODULE, e->modules, EXAMPLE_MODULES);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_OP, e->ops, EXAMPLE_OPS);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_REF, e->refs, EXAMPLE_REFS);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_BLOCK, e->blocks, EXAMPLE_BLOCKS);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_VALUE, e->values, EXAMPLE_VALUES);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_SLOT, e->slots, EXAMPLE_SLOTS);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_EVENT, e->events, EXAMPLE_EVENTS);
  if (!rc) rc = tn_trace_set_meta(trace, "device", "h200");
  if (!rc) rc = tn_trace_set_meta(trace, "batch_size", "4");
  return rc;
}

static inline int example_new(const example *e, tn_trace **out) {
  tn_trace *trace;
  int rc = tn_trace_new(&trace);
  if (rc) return rc;
  rc = example_add(trace, e);
  if (rc) {
    tn_trace_free(trace);
    return rc;
  }
  *out = trace;
  return TN_OK;
}

#endif

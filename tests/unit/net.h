/* net.h -- writes the trace of one training step of a small made-up network, forward and backward, as capture would.
 *
 * A network is a list of ops in order; each reads up to two earlier ops (or the batch) and autograd saves what it is told to.
 * Backward visits the ops in reverse, asks for what each saved and gives it back.  Block 0 is the batch, block i + 1 is op i's. */
#ifndef TN_TESTS_NET_H
#define TN_TESTS_NET_H

#include "helper.h"

enum { NET_OPS_MAX = 96, NET_BATCH = -1, NET_NO_INPUT = -2 };

typedef struct net_op {
  uint64_t bytes;
  double seconds;
  int inputs[2];     /* op numbers, NET_BATCH or NET_NO_INPUT */
  int saves_input;   /* inputs[0] */
  int saves_output;
  uint32_t flags;    /* TN_OP_... */
} net_op;

typedef struct net {
  net_op ops[NET_OPS_MAX];
  int count;
  int passes; /* 0 and 1: one; 2: the same twice */
} net;

typedef struct net_writer {
  tn_trace *trace;
  uint32_t ops, refs, blocks, values, slots;
} net_writer;

static inline void net_must(int rc) {
  if (rc) fail_msg("the trace refused: %s", tn_error_name(rc));
}

static inline uint32_t net_string(net_writer *w, const char *text) {
  uint32_t id = 0;
  net_must(tn_trace_add_string(w->trace, text, &id));
  return id;
}

static inline void net_event(net_writer *w, uint32_t kind, uint32_t id) {
  tn_event event = {kind, id};
  net_must(tn_trace_add(w->trace, TN_TABLE_EVENT, &event, 1));
}

static inline void net_mark(net_writer *w, const char *text) { net_event(w, TN_EVENT_MARK, net_string(w, text)); }

static inline uint32_t net_block(net_writer *w, uint64_t bytes, uint32_t op) {
  tn_block block = {bytes, op, 0, TN_NONE, op == TN_NONE ? TN_CATEGORY_INPUT : TN_CATEGORY_TEMPORARY, 0, 0};
  net_must(tn_trace_add(w->trace, TN_TABLE_BLOCK, &block, 1));
  net_event(w, TN_EVENT_ALLOC, w->blocks);
  return w->blocks++;
}

static inline uint32_t net_value(net_writer *w, uint32_t block, uint32_t op, const char *source) {
  tn_value value = {block, op, 0, 0, net_string(w, "float32[4,8]"), source ? net_string(w, source) : 0, 0, 0};
  net_must(tn_trace_add(w->trace, TN_TABLE_VALUE, &value, 1));
  return w->values++;
}

static inline void net_run_op(net_writer *w, const net_op *op, int phase, uint8_t pass, const uint32_t *inputs, uint32_t count,
                              uint32_t output) {
  uint32_t refs[3] = {count > 0 ? inputs[0] : 0, count > 1 ? inputs[1] : 0, 0}, n = count;
  refs[n++] = output;
  net_must(tn_trace_add(w->trace, TN_TABLE_REF, refs, n));
  tn_op record = {net_string(w, "aten.mul.Tensor"), net_string(w, "{\"args\": [], \"kwargs\": {}}"), TN_NONE, (uint8_t)phase, 0, pass,
                  TN_RATE_NONE, op->flags, w->refs, count, w->refs + count, 1, 0, 0, 0, op->seconds};
  w->refs += n;
  net_must(tn_trace_add(w->trace, TN_TABLE_OP, &record, 1));
  net_event(w, TN_EVENT_OP, w->ops++);
}

static inline uint32_t net_slot(net_writer *w, uint32_t value, uint32_t block, uint8_t pass, uint32_t index) {
  tn_slot slot = {value, block, net_string(w, "float32[4,8] MulBackward0"), TN_NONE, 0, pass, 0, index};
  net_must(tn_trace_add(w->trace, TN_TABLE_SLOT, &slot, 1));
  net_event(w, TN_EVENT_PACK, w->slots);
  return w->slots++;
}

typedef struct net_state {
  uint32_t block[NET_OPS_MAX + 1], value[NET_OPS_MAX + 1]; /* 0: the batch, i + 1: op i */
  uint32_t slot_in[NET_OPS_MAX], slot_out[NET_OPS_MAX];
  int last_reader[NET_OPS_MAX + 1];
} net_state;

static inline void net_forward(net_writer *w, const net *n, net_state *s, uint8_t pass) {
  uint32_t index = 0;
  for (int i = 0; i < n->count; i++) {
    const net_op *op = &n->ops[i];
    uint32_t inputs[2], count = 0;
    for (int j = 0; j < 2; j++)
      if (op->inputs[j] != NET_NO_INPUT) inputs[count++] = s->value[op->inputs[j] + 1];
    if (op->saves_input) s->slot_in[i] = net_slot(w, s->value[op->inputs[0] + 1], s->block[op->inputs[0] + 1], pass, index++);
    s->block[i + 1] = net_block(w, op->bytes, w->ops);
    s->value[i + 1] = net_value(w, s->block[i + 1], w->ops, NULL);
    net_run_op(w, op, TN_PHASE_FORWARD, pass, inputs, count, s->value[i + 1]);
    if (op->saves_output) s->slot_out[i] = net_slot(w, s->value[i + 1], s->block[i + 1], pass, index++);
    for (int j = 0; j <= i + 1; j++)
      if (j > 0 && s->last_reader[j] == i) net_event(w, TN_EVENT_DROP, s->block[j]);
  }
}

/* Asks for a slot; the block is referenced until its op's backward is over. */
static inline void net_unpack(net_writer *w, uint32_t slot) { net_event(w, TN_EVENT_UNPACK, slot); }

static inline void net_backward(net_writer *w, const net *n, net_state *s, uint8_t pass) {
  uint32_t before = TN_NONE, before_value = 0;
  for (int i = n->count; i-- > 0;) {
    const net_op *op = &n->ops[i];
    net_op back = {.seconds = 2 * op->seconds};
    if (op->saves_output) net_unpack(w, s->slot_out[i]);
    if (op->saves_input) net_unpack(w, s->slot_in[i]);
    uint32_t gradient = net_block(w, op->bytes, w->ops), value = net_value(w, gradient, w->ops, NULL);
    net_run_op(w, &back, TN_PHASE_BACKWARD, pass, &before_value, before == TN_NONE ? 0 : 1, value);
    if (before != TN_NONE) net_event(w, TN_EVENT_DROP, before);
    if (op->saves_output) {
      net_event(w, TN_EVENT_DROP, s->block[i + 1]);
      net_event(w, TN_EVENT_RELEASE, s->slot_out[i]);
    }
    if (op->saves_input) {
      int input = op->inputs[0] + 1;
      if (input > 0 && !(op->saves_output && input == i + 1)) net_event(w, TN_EVENT_DROP, s->block[input]);
      net_event(w, TN_EVENT_RELEASE, s->slot_in[i]);
    }
    before = gradient;
    before_value = value;
  }
  if (before != TN_NONE) net_event(w, TN_EVENT_DROP, before);
}

/* The trace, checked; the caller frees it. */
static inline tn_trace *net_trace(const net *n) {
  net_writer w = {0};
  net_state s = {0};
  tn_error err = {0};
  char mark[16];
  net_must(tn_trace_new(&w.trace));
  s.block[0] = net_block(&w, 1024, TN_NONE);
  s.value[0] = net_value(&w, s.block[0], TN_NONE, "input:0");
  for (int i = 0; i < n->count; i++) s.last_reader[i + 1] = i == n->count - 1 ? i : i + 1;
  for (int i = 0; i < n->count; i++)
    for (int j = 0; j < 2; j++)
      if (n->ops[i].inputs[j] >= 0 && s.last_reader[n->ops[i].inputs[j] + 1] < i) s.last_reader[n->ops[i].inputs[j] + 1] = i;
  net_mark(&w, "step:0");
  for (int pass = 0; pass < (n->passes ? n->passes : 1); pass++) {
    snprintf(mark, sizeof mark, "pass:%d", pass);
    net_mark(&w, mark);
    net_forward(&w, n, &s, (uint8_t)pass);
    net_backward(&w, n, &s, (uint8_t)pass);
  }
  net_mark(&w, "end");
  if (tn_trace_check(w.trace, &err)) fail_msg("the made-up network is not lawful: %s", err.msg);
  return w.trace;
}

/* A device where an op's own seconds are all that counts. */
static inline tn_profile net_profile(void) {
  tn_profile p = {.name = "h200", .total_bytes = (uint64_t)1 << 37, .bytes_per_s = 1e12};
  for (int i = 0; i < TN_RATE_COUNT; i++) p.flops_per_s[i] = 1e12;
  return p;
}

#endif

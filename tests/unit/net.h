/* net.h -- writes the trace of one training step of a small made-up network, forward and backward, as capture would.
 *
 * A network is a list of ops in order; each reads up to two tensors made before (or the batch, or a parameter), and autograd saves what
 * it is told to.  An op makes a tensor on a new block, or writes its first input in place, or gives a view of it.  Backward visits the
 * ops in reverse, asks for what each saved, makes a gradient, and gives the slots back.  Block 0 is the batch, block 1 the parameter. */
#ifndef TN_TESTS_NET_H
#define TN_TESTS_NET_H

#include "helper.h"

enum { NET_OPS_MAX = 96, NET_BATCH = -1, NET_NO_INPUT = -2, NET_PARAMETER = -3, NET_SECOND = 1000 /* + op: its second output */ };

typedef struct net_op {
  uint64_t bytes;
  double seconds;
  int inputs[2]; /* op numbers or NET_... */
  int saves_input; /* inputs[0] */
  int saves_output;
  uint32_t flags; /* TN_OP_... */
  int writes_input;      /* the output is inputs[0], one version on */
  int is_view;           /* the output is a window on inputs[0] */
  uint64_t second_bytes; /* of a second output, 0 = none */
  int saves_second;
  int is_forgetful;      /* its slots are given back without having been asked for */
  const char *meta;      /* of the output, NULL: float32[4,8] */
} net_op;

typedef struct net {
  net_op ops[NET_OPS_MAX];
  int count;
  int passes; /* 0 and 1: one; 2: the same twice */
} net;

/* What most nets are made of: a rebuildable op with one input, which it saves. */
static inline net_op net_layer(uint64_t bytes, double seconds, int input) {
  return (net_op){.bytes = bytes, .seconds = seconds, .inputs = {input, NET_NO_INPUT}, .saves_input = 1, .flags = TN_OP_REBUILDABLE};
}

/* batch -> 0 -> 1 ..., each saved by the next. */
static inline net net_chain(int count, uint64_t bytes) {
  net n = {.count = count};
  for (int i = 0; i < count; i++) n.ops[i] = net_layer(bytes, 1e-4, i - 1); /* NET_BATCH is before op 0 */
  n.ops[0].saves_input = 0;
  return n;
}

/* ---- records ------------------------------------------------------------------------------------------------------------- */

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
  tn_block block = {.bytes = bytes, .op = op, .module = TN_NONE, .category = op == TN_NONE ? TN_CATEGORY_INPUT : TN_CATEGORY_TEMPORARY};
  net_must(tn_trace_add(w->trace, TN_TABLE_BLOCK, &block, 1));
  net_event(w, TN_EVENT_ALLOC, w->blocks);
  return w->blocks++;
}

static inline uint32_t net_value(net_writer *w, tn_value value, const char *meta, const char *source) {
  value.meta = net_string(w, meta ? meta : "float32[4,8]");
  value.source = source ? net_string(w, source) : 0;
  net_must(tn_trace_add(w->trace, TN_TABLE_VALUE, &value, 1));
  return w->values++;
}

static inline void net_run_op(net_writer *w, const net_op *op, int phase, uint8_t pass, const uint32_t *inputs, uint32_t inputs_count,
                              const uint32_t *outputs, uint32_t outputs_count) {
  char args[96] = "{\"args\": [", *at = args + strlen(args);
  for (uint32_t i = 0; i < inputs_count; i++) at += sprintf(at, "%s{\"v\": %u}", i ? ", " : "", inputs[i]);
  strcpy(at, "], \"kwargs\": {}}");
  net_must(tn_trace_add(w->trace, TN_TABLE_REF, inputs, inputs_count));
  net_must(tn_trace_add(w->trace, TN_TABLE_REF, outputs, outputs_count));
  tn_op record = {.name = net_string(w, op->writes_input ? "aten.mul_.Tensor" : "aten.mul.Tensor"), .args = net_string(w, args),
                  .module = TN_NONE, .phase = (uint8_t)phase, .pass = pass, .flags = op->flags, .inputs_at = w->refs,
                  .inputs_count = inputs_count, .outputs_at = w->refs + inputs_count, .outputs_count = outputs_count,
                  .seconds = op->seconds};
  if (op->is_view) record.flags |= TN_OP_VIEW;
  w->refs += inputs_count + outputs_count;
  net_must(tn_trace_add(w->trace, TN_TABLE_OP, &record, 1));
  net_event(w, TN_EVENT_OP, w->ops++);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------- */

typedef struct net_tensor { uint32_t block, value; } net_tensor;

typedef struct net_state {
  net_tensor batch, parameter, out[NET_OPS_MAX], second[NET_OPS_MAX];
  uint32_t version[2 * NET_OPS_MAX + 2]; /* per place */
  uint32_t slot[NET_OPS_MAX][3];         /* of input, output, second output; TN_NONE */
  uint8_t pass;
  uint32_t slots; /* of this pass */
} net_state;

static inline net_tensor net_tensor_of(const net_state *s, int name) {
  if (name == NET_BATCH) return s->batch;
  if (name == NET_PARAMETER) return s->parameter;
  return name >= NET_SECOND ? s->second[name - NET_SECOND] : s->out[name];
}

/* The place of a tensor's block, before there is one: 0 batch, 1 parameter, 2 + 2 * op, and the next for a second output. */
static inline int net_place(const net *n, int name) {
  if (name < 0) return name == NET_PARAMETER;
  if (name >= NET_SECOND) return 3 + 2 * (name - NET_SECOND);
  const net_op *op = &n->ops[name];
  return op->writes_input || op->is_view ? net_place(n, op->inputs[0]) : 2 + 2 * name;
}

/* The last op that reads, writes or views the block, or the one after its maker; its Python name dies there. */
static inline int net_last_use(const net *n, int place) {
  int maker = place / 2 - 1, last = maker + 1 < n->count ? maker + 1 : maker;
  for (int i = 0; i < n->count; i++)
    for (int j = 0; j < 2; j++)
      if (n->ops[i].inputs[j] != NET_NO_INPUT && net_place(n, n->ops[i].inputs[j]) == place && i > last) last = i;
  return last;
}

static inline void net_make_outputs(net_writer *w, const net *n, net_state *s, int i) {
  const net_op *op = &n->ops[i];
  int place = net_place(n, i), is_new = !op->writes_input && !op->is_view;
  uint32_t block = is_new ? net_block(w, op->bytes, w->ops) : net_tensor_of(s, op->inputs[0]).block;
  if (is_new) s->version[place] = 0;
  if (op->writes_input) s->version[place]++;
  s->out[i].block = block;
  s->out[i].value = net_value(w, (tn_value){.block = block, .op = w->ops, .version = s->version[place],
                                            .flags = op->is_view ? TN_VALUE_VIEW : 0}, op->meta, NULL);
  if (!op->second_bytes) return;
  s->second[i].block = net_block(w, op->second_bytes, w->ops);
  s->second[i].value = net_value(w, (tn_value){.block = s->second[i].block, .op = w->ops, .output = 1}, NULL, NULL);
}

/* ---- the two halves of a pass -------------------------------------------------------------------------------------------- */

static inline uint32_t net_slot(net_writer *w, net_state *s, net_tensor t) {
  tn_slot slot = {.value = t.value, .block = t.block, .signature = net_string(w, "float32[4,8] MulBackward0"), .module = TN_NONE,
                  .pass = s->pass, .index = s->slots++};
  net_must(tn_trace_add(w->trace, TN_TABLE_SLOT, &slot, 1));
  net_event(w, TN_EVENT_PACK, w->slots);
  return w->slots++;
}

static inline void net_forward(net_writer *w, const net *n, net_state *s) {
  s->slots = 0;
  memset(s->slot, 0xff, sizeof s->slot);
  for (int i = 0; i < n->count; i++) {
    const net_op *op = &n->ops[i];
    uint32_t inputs[2], outputs[2], count = 0;
    for (int j = 0; j < 2; j++)
      if (op->inputs[j] != NET_NO_INPUT) inputs[count++] = net_tensor_of(s, op->inputs[j]).value;
    if (op->saves_input) s->slot[i][0] = net_slot(w, s, net_tensor_of(s, op->inputs[0]));
    net_make_outputs(w, n, s, i);
    outputs[0] = s->out[i].value;
    outputs[1] = s->second[i].value;
    net_run_op(w, op, TN_PHASE_FORWARD, s->pass, inputs, count, outputs, op->second_bytes ? 2 : 1);
    if (op->saves_output) s->slot[i][1] = net_slot(w, s, s->out[i]);
    if (op->saves_second) s->slot[i][2] = net_slot(w, s, s->second[i]);
    for (int k = 0; k <= i; k++) {
      if (net_place(n, k) == 2 + 2 * k && net_last_use(n, 2 + 2 * k) == i) net_event(w, TN_EVENT_DROP, s->out[k].block);
      if (n->ops[k].second_bytes && net_last_use(n, 3 + 2 * k) == i) net_event(w, TN_EVENT_DROP, s->second[k].block);
    }
  }
}

/* The blocks that the backward of op i asks for, each once, without the batch and the parameter, which are always referenced. */
static inline size_t net_asked(const net *n, const net_state *s, int i, uint32_t *blocks) {
  const net_op *op = &n->ops[i];
  const net_tensor of[3] = {op->inputs[0] == NET_NO_INPUT ? s->batch : net_tensor_of(s, op->inputs[0]), s->out[i], s->second[i]};
  size_t count = 0;
  for (int k = 2; k >= 0; k--) {
    int is_new = s->slot[i][k] != TN_NONE && of[k].block != s->batch.block && of[k].block != s->parameter.block;
    for (size_t j = 0; j < count; j++) is_new &= blocks[j] != of[k].block;
    if (is_new) blocks[count++] = of[k].block;
  }
  return count;
}

static inline void net_backward(net_writer *w, const net *n, net_state *s) {
  net_tensor before = {TN_NONE, 0};
  for (int i = n->count; i-- > 0;) {
    const net_op *op = &n->ops[i];
    net_op back = {.seconds = 2 * op->seconds};
    uint32_t asked[3];
    size_t count = op->is_forgetful ? 0 : net_asked(n, s, i, asked);
    for (int k = 2; k >= 0 && !op->is_forgetful; k--)
      if (s->slot[i][k] != TN_NONE) net_event(w, TN_EVENT_UNPACK, s->slot[i][k]);
    net_tensor gradient = {.block = net_block(w, op->bytes ? op->bytes : 512, w->ops)};
    gradient.value = net_value(w, (tn_value){.block = gradient.block, .op = w->ops}, NULL, NULL);
    net_run_op(w, &back, TN_PHASE_BACKWARD, s->pass, &before.value, before.block == TN_NONE ? 0 : 1, &gradient.value, 1);
    if (before.block != TN_NONE) net_event(w, TN_EVENT_DROP, before.block);
    for (size_t k = 0; k < count; k++) net_event(w, TN_EVENT_DROP, asked[k]);
    for (int k = 2; k >= 0; k--)
      if (s->slot[i][k] != TN_NONE) net_event(w, TN_EVENT_RELEASE, s->slot[i][k]);
    before = gradient;
  }
  if (before.block != TN_NONE) net_event(w, TN_EVENT_DROP, before.block);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------------- */

/* The trace, checked; the caller frees it. */
static inline tn_trace *net_trace(const net *n) {
  net_writer w = {0};
  net_state s = {0};
  tn_error err = {0};
  char mark[16];
  net_must(tn_trace_new(&w.trace));
  s.batch.block = net_block(&w, 1024, TN_NONE);
  s.batch.value = net_value(&w, (tn_value){.block = s.batch.block, .op = TN_NONE}, NULL, "input:0");
  s.parameter.block = net_block(&w, 2048, TN_NONE);
  s.parameter.value = net_value(&w, (tn_value){.block = s.parameter.block, .op = TN_NONE}, NULL, "parameter:w");
  net_mark(&w, "step:0");
  for (int pass = 0; pass < (n->passes ? n->passes : 1); pass++) {
    snprintf(mark, sizeof mark, "pass:%d", pass);
    net_mark(&w, mark);
    s.pass = (uint8_t)pass;
    net_forward(&w, n, &s);
    net_backward(&w, n, &s);
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

/* ---- random networks ----------------------------------------------------------------------------------------------------- */

static inline int net_random_input(const net *n, uint64_t *seed, int before) {
  if (!before) return NET_BATCH;
  int i = tn_test_random(seed) % 3 ? before - 1 : (int)(tn_test_random(seed) % (uint64_t)before);
  return n->ops[i].second_bytes && tn_test_random(seed) % 2 ? NET_SECOND + i : i;
}

/* Chains and branches of least to least + 5 ops of random sizes and times.  full: also views, writes in place, second outputs, random ops,
 * and reading the parameter.  The last op saves its output, so that there is a slot. */
static inline net net_random(uint64_t *seed, int least, int full) {
  net n = {.count = least + (int)(tn_test_random(seed) % 6)};
  for (int i = 0; i < n.count; i++) {
    net_op *op = &n.ops[i];
    op->bytes = ((uint64_t)1 << 20) * (1 + tn_test_random(seed) % 8);
    op->seconds = 1e-6 * (double)(1 + tn_test_random(seed) % 100);
    op->inputs[0] = net_random_input(&n, seed, i);
    op->inputs[1] = i > 1 && tn_test_random(seed) % 3 == 0 ? net_random_input(&n, seed, i) : NET_NO_INPUT;
    op->saves_input = op->inputs[0] >= 0 && tn_test_random(seed) % 3 != 0;
    op->saves_output = tn_test_random(seed) % 2;
    op->flags = tn_test_random(seed) % 6 ? TN_OP_REBUILDABLE : 0;
    if (!full) continue;
    uint64_t kind = tn_test_random(seed) % 8;
    if (kind == 0 && i) op->is_view = 1;
    if (kind == 1 && i) op->writes_input = 1;
    if (kind == 2) op->second_bytes = ((uint64_t)1 << 20) * (1 + tn_test_random(seed) % 4);
    if (kind == 3) op->flags |= TN_OP_RANDOM;
    if (kind == 4 && op->inputs[1] == NET_NO_INPUT) op->inputs[1] = NET_PARAMETER;
    if (op->writes_input) op->saves_input = 0; /* autograd refuses what was written after it was saved */
    if (op->is_view) op->meta = "float32[4,4]/8,1+4";
    op->saves_second = op->second_bytes && tn_test_random(seed) % 2;
  }
  n.ops[n.count - 1].saves_output = 1;
  return n;
}

#endif

/* training.h -- the snapshot of a small training run: 4 layers, cross entropy, Adam; with faults switched on by name.
 *
 * Stacks are like PyTorch's with stacks="python": what autograd's thread allocates has no frames. */
#ifndef TN_TESTS_TRAINING_H
#define TN_TESTS_TRAINING_H

#include "memory.h"

enum { TRAINING_LAYERS = 4 };

typedef struct training_faults {
  uint64_t leak_bytes;     /* kept by each step, at train.py:40 */
  int keep_graph;          /* a second loss each step, whose graph is kept */
  int keep_gradients;      /* zero_grad(set_to_none=False): gradients stay through the next forward */
  int eval_with_grad;      /* an evaluation after the steps, with autograd on */
  int eval_without_grad;
  uint64_t temp_bytes;     /* temporaries of the optimizer, per parameter */
  uint64_t logits_bytes;   /* default: 4 MiB */
  uint64_t score_bytes;    /* of attention in each layer */
  uint64_t query_bytes;    /* likewise, instead of what the layers save */
  int hold_outputs;        /* the logits of a step are dropped after the next step's backward */
  int no_annotations;
  uint64_t activation_bytes[8]; /* by step; 0: 2 MiB */
} training_faults;

typedef struct training {
  memory m;
  training_faults faults;
  uint32_t model, input, linear[TRAINING_LAYERS], scores, queries, loss, bare, backward, state, temp, zero, leak, eval_linear[TRAINING_LAYERS], eval_loss;
  uint32_t parameter[TRAINING_LAYERS], states[2 * TRAINING_LAYERS], gradient[TRAINING_LAYERS];
  uint32_t held; /* logits of the step before; TN_NONE */
  int steps;
} training;

#define TORCH "/usr/lib/python3.12/site-packages/torch/"
#define CALL TORCH "nn/modules/module.py:1790 _call_impl"
#define TRAIN "train.py:90 <module>"

static inline void training_open(training *t, training_faults faults) {
  *t = (training){.faults = faults, .held = TN_NONE};
  memory *m = &t->m;
  memory_open(m, NULL);
  char layer[64];
  t->model = memory_stack(m, TORCH "nn/modules/module.py:1097 <lambda>", TORCH "nn/modules/module.py:965 _apply", TORCH "nn/modules/module.py:1097 cuda",
                          "train.py:10 build", TRAIN, NULL);
  t->input = memory_stack(m, "train.py:30 step", TRAIN, NULL);
  for (int i = 0; i < TRAINING_LAYERS; i++) {
    snprintf(layer, sizeof layer, "model.py:%d forward", 20 + i);
    t->linear[i] = memory_stack(m, TORCH "nn/modules/linear.py:134 forward", CALL, layer, CALL, "train.py:31 step", TRAIN, NULL);
    t->eval_linear[i] = memory_stack(m, TORCH "nn/modules/linear.py:134 forward", CALL, layer, CALL, "train.py:60 evaluate", TRAIN, NULL);
  }
  t->scores = memory_stack(m, "model.py:50 attention", CALL, "train.py:31 step", TRAIN, NULL);
  t->queries = memory_stack(m, "model.py:45 attention", CALL, "train.py:31 step", TRAIN, NULL);
  t->loss = memory_stack(m, TORCH "nn/functional.py:3504 cross_entropy", "train.py:32 step", TRAIN, NULL);
  t->eval_loss = memory_stack(m, TORCH "nn/functional.py:3504 cross_entropy", "train.py:61 evaluate", TRAIN, NULL);
  t->bare = memory_stack(m, NULL);
  t->backward = memory_stack(m, TORCH "autograd/__init__.py:231 _make_grads", TORCH "autograd/__init__.py:374 backward", TORCH "_tensor.py:631 backward",
                             "train.py:33 step", TRAIN, NULL);
  t->state = memory_stack(m, TORCH "optim/adam.py:178 _init_group", TORCH "optim/adam.py:238 step", TORCH "optim/optimizer.py:533 wrapper",
                          "train.py:34 step", TRAIN, NULL);
  t->temp = memory_stack(m, TORCH "optim/adam.py:791 _multi_tensor_adam", TORCH "optim/optimizer.py:533 wrapper", "train.py:34 step", TRAIN, NULL);
  t->zero = memory_stack(m, TORCH "optim/optimizer.py:1000 zero_grad", "train.py:35 step", TRAIN, NULL);
  t->leak = memory_stack(m, "train.py:40 step", TRAIN, NULL);
  for (int i = 0; i < TRAINING_LAYERS; i++) t->parameter[i] = memory_alloc(m, 3 * MIB, t->model);
}

static inline void training_forward(training *t, const uint32_t *stacks, uint64_t bytes, uint32_t *saved) {
  for (int i = 0; i < TRAINING_LAYERS; i++) saved[i] = memory_alloc(&t->m, bytes, stacks[i]);
}

static inline void training_backward(training *t, uint32_t *saved, uint32_t *logits, uint32_t *scores) {
  memory *m = &t->m;
  uint32_t one = memory_alloc(m, 4, t->backward), grad = memory_alloc(m, memory_at(m, logits[0])->bytes, t->bare);
  memory_free(m, logits[1], t->bare);
  if (!t->faults.hold_outputs) memory_free(m, logits[0], t->bare);
  memory_free(m, grad, t->bare);
  for (int i = TRAINING_LAYERS; i-- > 0;) {
    if (!t->gradient[i] || !memory_at(m, t->gradient[i])->live) t->gradient[i] = memory_alloc(m, 3 * MIB, t->bare);
    if (scores) memory_free(m, scores[i], t->bare);
    memory_free(m, saved[i], t->bare);
  }
  memory_free(m, one, t->backward);
}

static inline void training_optimizer(training *t) {
  memory *m = &t->m;
  uint32_t temp[TRAINING_LAYERS];
  if (!t->faults.no_annotations) memory_annotate(m, "Optimizer.step#Adam.step", 0);
  for (int i = 0; i < 2 * TRAINING_LAYERS && t->steps == 0; i++) t->states[i] = memory_alloc(m, 3 * MIB, t->state);
  for (int i = 0; i < TRAINING_LAYERS && t->faults.temp_bytes; i++) temp[i] = memory_alloc(m, t->faults.temp_bytes, t->temp);
  for (int i = 0; i < TRAINING_LAYERS && t->faults.temp_bytes; i++) memory_free(m, temp[i], t->temp);
  memory_free(m, memory_alloc(m, 512, t->temp), t->temp); /* there is always something small */
  if (!t->faults.no_annotations) memory_annotate(m, "Optimizer.step#Adam.step", 1);
}

static inline void training_step(training *t) {
  memory *m = &t->m;
  uint32_t saved[TRAINING_LAYERS], second[TRAINING_LAYERS], scores[TRAINING_LAYERS], logits[2];
  uint64_t bytes = t->steps < 8 && t->faults.activation_bytes[t->steps] ? t->faults.activation_bytes[t->steps] : 2 * MIB;
  uint64_t logits_bytes = t->faults.logits_bytes ? t->faults.logits_bytes : 4 * MIB;
  uint32_t input = memory_alloc(m, MIB + 512, t->input);
  const uint32_t queries[TRAINING_LAYERS] = {t->queries, t->queries, t->queries, t->queries};
  if (t->faults.query_bytes)
    training_forward(t, queries, t->faults.query_bytes, saved);
  else
    training_forward(t, t->linear, bytes, saved);
  for (int i = 0; i < TRAINING_LAYERS && t->faults.score_bytes; i++) scores[i] = memory_alloc(m, t->faults.score_bytes, t->scores);
  if (t->faults.keep_graph) training_forward(t, t->linear, bytes, second);
  logits[0] = memory_alloc(m, logits_bytes, t->linear[TRAINING_LAYERS - 1]);
  logits[1] = memory_alloc(m, logits_bytes, t->loss);
  training_backward(t, saved, logits, t->faults.score_bytes ? scores : NULL);
  if (t->held != TN_NONE) memory_free(m, t->held, t->input);
  t->held = t->faults.hold_outputs ? logits[0] : TN_NONE;
  if (t->faults.leak_bytes) memory_alloc(m, t->faults.leak_bytes, t->leak);
  training_optimizer(t);
  for (int i = 0; i < TRAINING_LAYERS && !t->faults.keep_gradients; i++) memory_free(m, t->gradient[i], t->zero);
  memory_free(m, input, t->input);
  t->steps++;
}

/* 24 blocks of forward: all held to the end with autograd, two at a time without. */
static inline void training_evaluate(training *t) {
  enum { BLOCKS = 24 };
  memory *m = &t->m;
  uint32_t made[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    made[i] = memory_alloc(m, 2 * MIB, t->eval_linear[i % TRAINING_LAYERS]);
    if (t->faults.eval_without_grad && i) memory_free(m, made[i - 1], t->input);
  }
  for (int i = t->faults.eval_without_grad ? BLOCKS - 1 : 0; i < BLOCKS; i++) memory_free(m, made[i], t->input);
  memory_free(m, memory_alloc(m, 512, t->input), t->input);
}

static inline void training_run(training *t, training_faults faults, int steps) {
  training_open(t, faults);
  for (int i = 0; i < steps; i++) training_step(t);
  if (faults.eval_with_grad || faults.eval_without_grad) training_evaluate(t);
  memory_close(&t->m);
}

static inline void training_end(training *t) { memory_end(&t->m); }

#endif

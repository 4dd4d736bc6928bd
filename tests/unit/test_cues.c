/* cues, groups and places: what frames of PyTorch, of trainers and of programs show. */
#include "explain/stacks.h"

#include "training.h"

static void shows(const char *file, const char *function, uint32_t cues) {
  uint32_t got = tn__frame_cues(file, function) & ~(uint32_t)(TN__CUE_PYTHON | TN__CUE_CPP);
  if (got != cues) fail_msg("%s %s: %#x, not %#x", file, function, got, cues);
}

static void frames_of_python(void **state) {
  (void)state;
  shows(TORCH "nn/modules/module.py", "_call_impl", TN__CUE_MODULE);
  shows(TORCH "nn/modules/module.py", "_apply", TN__CUE_PARAMETER);
  shows(TORCH "optim/adam.py", "_init_group", TN__CUE_OPTIMIZER | TN__CUE_STATE);
  shows(TORCH "optim/optimizer.py", "zero_grad", TN__CUE_OPTIMIZER | TN__CUE_ZERO_GRAD);
  shows(TORCH "nn/functional.py", "cross_entropy", TN__CUE_LOSS);
  shows(TORCH "nn/functional.py", "scaled_dot_product_attention", TN__CUE_ATTENTION);
  shows(TORCH "_tensor.py", "backward", TN__CUE_BACKWARD);
  shows(TORCH "utils/data/dataloader.py", "__next__", TN__CUE_INPUT);
  shows(TORCH "cuda/memory.py", "empty_cache", TN__CUE_EMPTY_CACHE);
  shows("my_optimizer.py", "step", TN__CUE_OPTIMIZER);
  shows("train.py", "evaluate", TN__CUE_EVAL);
  shows("train.py", "step", 0);
  shows("model.py", "forward", 0);
}

/* The same on Windows. */
static void frames_of_python_with_backslashes(void **state) {
  (void)state;
  shows("C:\\x\\.venv\\Lib\\site-packages\\torch\\optim\\adam.py", "_init_group", TN__CUE_OPTIMIZER | TN__CUE_STATE);
  assert_int_equal(tn__frame_kind("C:\\x\\.venv\\Lib\\site-packages\\torch\\optim\\adam.py", "step"), TN__FRAME_PLUMBING);
  assert_int_equal(tn__frame_kind("C:\\x\\train.py", "main"), TN__FRAME_PROGRAM);
}

/* PyTorch has functions that are called eval, valid and loss without being any. */
static void words_inside_pytorch_mean_something_else(void **state) {
  (void)state;
  shows(TORCH "_dynamo/eval_frame.py", "eval_frame", 0);
  shows(TORCH "nn/init.py", "loss", 0);
}

static void frames_of_cpp(void **state) {
  (void)state;
  shows("??", "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)", TN__CUE_BACKWARD);
  shows("", "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)", TN__CUE_BACKWARD | TN__CUE_ACCUMULATE);
  shows("CUDABlas.cpp", "at::cuda::getCurrentCUDABlasHandle()", TN__CUE_WORKSPACE);
  shows("", "c10d::ProcessGroupNCCL::allreduce()", TN__CUE_COMMUNICATION);
  assert_int_equal(tn__frame_kind("/usr/include/python3.12/pycore_ceval.h", "_PyEval_EvalFrame"), TN__FRAME_CPP);
  assert_int_equal(tn__frame_kind("thread48.o", "execute_native_thread_routine"), TN__FRAME_CPP);
  assert_int_equal(tn__frame_kind("train.py", "<module>"), TN__FRAME_PROGRAM);
  assert_int_equal(tn__frame_kind("<frozen runpy>", "_run_code"), TN__FRAME_PLUMBING);
}

/* ---- stacks -------------------------------------------------------------------------------------------------------------- */

typedef struct stacked {
  memory m;
  tn__stacks stacks;
} stacked;

static void stacked_close(stacked *s) {
  memory_close(&s->m);
  memory_must(tn__stacks_init(&s->stacks, s->m.trace), "stacks");
}

static void stacked_end(stacked *s) {
  tn__stacks_deinit(&s->stacks);
  memory_end(&s->m);
}

static void place_is(const stacked *s, uint32_t stack, const char *place, const char *op) {
  tn_text text;
  tn__text_init(&text);
  assert_int_equal(tn__stack_place(s->m.trace, &s->stacks, stack, &text), *place != '\0');
  assert_string_equal(tn__text_view(&text), place);
  tn__text_deinit(&text);
  tn__stack_op(s->m.trace, &s->stacks, stack, &text);
  assert_string_equal(tn__text_view(&text), op);
  tn__text_deinit(&text);
}

static void places(void **state) {
  (void)state;
  stacked s;
  memory_open(&s.m, NULL);
  memory *m = &s.m;
  uint32_t own = memory_stack(m, TORCH "nn/modules/linear.py:134 forward", CALL, "/srv/me/model.py:20 forward", CALL, "/srv/me/train.py:3 <module>", NULL);
  uint32_t library = memory_stack(m, TORCH "nn/functional.py:9 softmax", CALL, "/x/site-packages/transformers/llama.py:210 forward", CALL, "train.py:3 main", NULL);
  uint32_t trainer = memory_stack(m, "/x/site-packages/trainer/loop.py:7 run", "train.py:3 main", NULL);
  uint32_t torch_only = memory_stack(m, TORCH "_tensor.py:631 backward", NULL);
  uint32_t nothing = memory_stack(m, NULL);
  stacked_close(&s);
  place_is(&s, own, "model.py:20 forward", "linear");
  place_is(&s, library, "llama.py:210 forward", "softmax");
  place_is(&s, trainer, "train.py:3 main", "run");
  place_is(&s, torch_only, "_tensor.py:631 backward", "");
  place_is(&s, nothing, "", "");
  place_is(&s, TN_NONE, "", "");
  stacked_end(&s);
}

static void equal_stacks_are_one_group(void **state) {
  (void)state;
  stacked s;
  memory_open(&s.m, NULL);
  uint32_t first = memory_stack(&s.m, "a.py:1 f", "a.py:2 g", NULL), same = memory_stack(&s.m, "a.py:1 f", "a.py:2 g", NULL);
  uint32_t other = memory_stack(&s.m, "a.py:1 f", "a.py:3 g", NULL), shorter = memory_stack(&s.m, "a.py:1 f", NULL);
  stacked_close(&s);
  assert_int_equal(tn__stacks_group(&s.stacks, same), first);
  assert_int_equal(tn__stacks_group(&s.stacks, other), other);
  assert_int_equal(tn__stacks_group(&s.stacks, shorter), shorter);
  assert_int_equal(tn__stacks_group(&s.stacks, TN_NONE), TN_NONE);
  stacked_end(&s);
}

/* step(closure) runs the model inside the optimizer, and a trainer's compute_loss() runs it inside a loss. */
static void the_inner_frame_decides(void **state) {
  (void)state;
  stacked s;
  memory_open(&s.m, NULL);
  memory *m = &s.m;
  uint32_t closure = memory_stack(m, TORCH "nn/modules/linear.py:134 forward", CALL, "train.py:9 closure", TORCH "optim/lbfgs.py:320 step", NULL);
  uint32_t wrapped = memory_stack(m, TORCH "nn/modules/linear.py:134 forward", CALL, "trainer.py:9 compute_loss", NULL);
  uint32_t hooked = memory_stack(m, TORCH "optim/adam.py:1 _single_tensor_adam", "hook.py:3 hook", TORCH "_tensor.py:1 backward", NULL);
  stacked_close(&s);
  assert_int_equal(tn__stacks_cues(&s.stacks, closure) & TN__CUE_OPTIMIZER, 0);
  assert_int_equal(tn__stacks_cues(&s.stacks, wrapped) & TN__CUE_LOSS, 0);
  assert_int_equal(tn__stacks_cues(&s.stacks, hooked) & (TN__CUE_OPTIMIZER | TN__CUE_BACKWARD), TN__CUE_OPTIMIZER);
  stacked_end(&s);
}

static int scenario(void *user) {
  tn__stacks stacks;
  int rc = tn__stacks_init(&stacks, user);
  tn__stacks_deinit(&stacks);
  return rc;
}

static void survives_running_out_of_memory(void **state) {
  (void)state;
  training t;
  training_run(&t, (training_faults){0}, 1);
  assert_true(tn_test_sweep(scenario, t.m.trace) > 3);
  training_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(frames_of_python),
      cmocka_unit_test(frames_of_python_with_backslashes),
      cmocka_unit_test(words_inside_pytorch_mean_something_else),
      cmocka_unit_test(frames_of_cpp),
      cmocka_unit_test(places),
      cmocka_unit_test(equal_stacks_are_one_group),
      cmocka_unit_test(the_inner_frame_decides),
      cmocka_unit_test(survives_running_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

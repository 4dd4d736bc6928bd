/* cues.c -- what a frame of a stack shows about the work that allocated.  See stacks.h.
 *
 * Names of PyTorch's own files and functions, and of the trainers around it; they have been the same for years.  Paths are compared
 * with / also where a file has \ (recorded on Windows). */
#include <string.h>

#include "explain/stacks.h"

enum match { EXACT, PREFIX, SUFFIX, CONTAINS };

typedef struct rule {
  uint32_t cues;
  const char *file;     /* contained in the path; NULL: any */
  enum match match;     /* of the function */
  const char *function; /* NULL: any */
} rule;

static const rule python_rules[] = {
    {TN__CUE_MODULE, "torch/nn/modules/module.py", EXACT, "_call_impl"},
    {TN__CUE_MODULE, "torch/nn/modules/module.py", EXACT, "_slow_forward"},
    {TN__CUE_MODULE, "torch/nn/modules/module.py", EXACT, "__call__"},
    {TN__CUE_PARAMETER, "torch/nn/modules/module.py", EXACT, "_apply"},
    {TN__CUE_PARAMETER, "torch/nn/modules/module.py", EXACT, "to_empty"},
    {TN__CUE_PARAMETER, "torch/nn/modules/", EXACT, "__init__"},
    {TN__CUE_PARAMETER, "torch/nn/modules/", EXACT, "reset_parameters"},
    {TN__CUE_PARAMETER, "torch/nn/parameter.py", EXACT, NULL},
    {TN__CUE_PARAMETER | TN__CUE_COPY, "torch/_tensor.py", EXACT, "__deepcopy__"},
    {TN__CUE_COPY, "torch/nn/parameter.py", EXACT, "__deepcopy__"},
    {TN__CUE_PARAMETER, "torch/serialization.py", EXACT, NULL},
    {TN__CUE_PARAMETER, "safetensors/", EXACT, NULL},
    {TN__CUE_PARAMETER, NULL, EXACT, "load_state_dict"},
    {TN__CUE_PARAMETER, NULL, EXACT, "_load_from_state_dict"},
    {TN__CUE_PARAMETER, NULL, EXACT, "from_pretrained"},
    {TN__CUE_PARAMETER, NULL, EXACT, "weight_loader"},
    {TN__CUE_PARAMETER, NULL, EXACT, "load_weights"},
    {TN__CUE_LOSS, "torch/nn/modules/loss.py", EXACT, NULL},
    {TN__CUE_LOSS, "torch/nn/functional.py", CONTAINS, "loss"},
    {TN__CUE_LOSS, "torch/nn/functional.py", CONTAINS, "cross_entropy"},
    {TN__CUE_LOSS, "torch/nn/functional.py", EXACT, "kl_div"},
    {TN__CUE_LOSS, NULL, CONTAINS, "cross_entropy"},
    {TN__CUE_LOSS, NULL, SUFFIX, "_loss"},
    {TN__CUE_LOSS, NULL, EXACT, "loss"},
    {TN__CUE_LOSS, NULL, SUFFIX, "loss_fn"},
    {TN__CUE_BACKWARD, NULL, EXACT, "backward"},
    {TN__CUE_BACKWARD, "torch/autograd/", EXACT, "_engine_run_backward"},
    {TN__CUE_BACKWARD, "torch/autograd/", EXACT, "_make_grads"},
    {TN__CUE_BACKWARD, "torch/autograd/", EXACT, "grad"},
    {TN__CUE_BACKWARD, NULL, EXACT, "backward_step"},
    {TN__CUE_BACKWARD, NULL, EXACT, "_backward_impl"},
    {TN__CUE_BACKWARD, "torch/distributed/", CONTAINS, "post_backward"},
    {TN__CUE_BACKWARD, "torch/distributed/", CONTAINS, "pre_backward"},
    {TN__CUE_RECOMPUTE, "torch/utils/checkpoint.py", EXACT, "recompute_fn"},
    {TN__CUE_RECOMPUTE, "torch/utils/checkpoint.py", EXACT, "unpack_hook"},
    {TN__CUE_RECOMPUTE, "torch/utils/checkpoint.py", EXACT, "backward"},
    {TN__CUE_OPTIMIZER, "torch/optim/", EXACT, NULL},
    {TN__CUE_OPTIMIZER, "apex/optimizers/", EXACT, NULL},
    {TN__CUE_OPTIMIZER, "bitsandbytes/optim/", EXACT, NULL},
    {TN__CUE_OPTIMIZER, "deepspeed/ops/", CONTAINS, "step"},
    {TN__CUE_OPTIMIZER, "optim", EXACT, "step"},
    {TN__CUE_ZERO_GRAD, "torch/optim/", EXACT, "zero_grad"},
    {TN__CUE_STATE, "optim", CONTAINS, "init_group"},
    {TN__CUE_STATE, "optim", CONTAINS, "init_state"},
    {TN__CUE_CLIP, "torch/nn/utils/clip_grad.py", EXACT, NULL},
    {TN__CUE_INPUT, "torch/utils/data/", EXACT, NULL},
    {TN__CUE_INPUT, NULL, EXACT, "_prepare_inputs"},
    {TN__CUE_INPUT, NULL, EXACT, "send_to_device"},
    {TN__CUE_INPUT, NULL, EXACT, "move_data_to_device"},
    {TN__CUE_INPUT, NULL, EXACT, "batch_to_device"},
    {TN__CUE_COMMUNICATION, "torch/distributed/", EXACT, NULL},
    {TN__CUE_COMMUNICATION, "deepspeed/comm/", EXACT, NULL},
    {TN__CUE_GRAPH, "torch/cuda/graphs.py", EXACT, NULL},
    {TN__CUE_GRAPH, "cudagraph_trees", EXACT, NULL},
    {TN__CUE_INIT, NULL, EXACT, "__init__"},
    {TN__CUE_EMPTY_CACHE, "torch/cuda/", EXACT, "empty_cache"},
    {TN__CUE_ATTENTION, "torch/nn/functional.py", CONTAINS, "attention"},
    {TN__CUE_NO_GRAD, "torch/utils/_contextlib.py", EXACT, "decorate_context"},
    {TN__CUE_NO_GRAD, "torch/autograd/grad_mode.py", EXACT, NULL},
    {TN__CUE_EVAL, NULL, PREFIX, "eval"},
    {TN__CUE_EVAL, NULL, PREFIX, "valid"},
    {TN__CUE_EVAL, NULL, EXACT, "prediction_step"},
    {TN__CUE_EVAL, NULL, EXACT, "predict"},
    {TN__CUE_EVAL, NULL, EXACT, "inference"},
    {TN__CUE_EVAL, NULL, EXACT, "test"},
    {TN__CUE_EVAL, NULL, EXACT, "generate"},
    {TN__CUE_ATTENTION, NULL, CONTAINS, "attention"},
    {TN__CUE_ATTENTION, NULL, CONTAINS, "attn"},
};

static const rule cpp_rules[] = {
    {TN__CUE_BACKWARD, NULL, CONTAINS, "torch::autograd::Engine::"},
    {TN__CUE_BACKWARD, NULL, CONTAINS, "torch::autograd::python::PythonEngine"},
    {TN__CUE_BACKWARD, NULL, CONTAINS, "torch::autograd::generated::"},
    {TN__CUE_BACKWARD, NULL, CONTAINS, "torch::autograd::Node::operator()"},
    {TN__CUE_BACKWARD | TN__CUE_ACCUMULATE, NULL, CONTAINS, "torch::autograd::AccumulateGrad"},
    {TN__CUE_EMPTY_CACHE, NULL, CONTAINS, "emptyCache"},
    {TN__CUE_WORKSPACE, NULL, CONTAINS, "Workspace"},
    {TN__CUE_WORKSPACE, NULL, CONTAINS, "CUDABlasHandle"},
    {TN__CUE_COMMUNICATION, NULL, CONTAINS, "c10d::"},
};

/* Python's own and PyTorch's: frames between the user's program and the allocator. */
static const char *const plumbing[] = {
    "/torch/nn/", "/torch/optim/", "/torch/autograd/", "/torch/utils/", "/torch/cuda/", "/torch/_", "/torch/distributed/", "/torch/func",
    "/torch/storage.py", "/torch/serialization.py", "/torch/overrides.py", "/torch/amp/", "/torch/fx/", "/torch/backends/",
    "/torch/library.py", "/torch/random.py", "/torch/masked/", "/torch/special/", "/torch/linalg/", "torchinductor_", "<frozen", "<eval_with_key>",
};

static const char *const libraries[] = {"/site-packages/", "/dist-packages/", "/lib/python3", "/cpython-"};

/* ---- comparing ----------------------------------------------------------------------------------------------------------- */

static int same_char(char file, char part) { return file == part || (part == '/' && file == '\\'); }

static int path_has(const char *file, const char *part) {
  size_t length = strlen(part);
  for (; *file; file++) {
    size_t k = 0;
    while (k < length && same_char(file[k], part[k])) k++;
    if (k == length) return 1;
  }
  return 0;
}

static int path_has_any(const char *file, const char *const *parts, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (path_has(file, parts[i])) return 1;
  return 0;
}

static int ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

static int function_matches(const rule *r, const char *function) {
  if (!r->function) return 1;
  switch (r->match) {
    case EXACT: return strcmp(function, r->function) == 0;
    case PREFIX: return strncmp(function, r->function, strlen(r->function)) == 0;
    case SUFFIX: return ends_with(function, r->function);
    default: return strstr(function, r->function) != NULL;
  }
}

/* C++ has signatures and scopes, and its files, where they are known, other names than Python's. */
static int is_cpp(const char *file, const char *function) {
  static const char *const ends[] = {".h", ".hpp", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".o", ".so", ".S"};
  if (strpbrk(function, ":(") || !*file || strcmp(file, "??") == 0 || strstr(file, ".so.")) return 1;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (ends_with(file, ends[i])) return 1;
  return 0;
}

/* Rules about any file speak of the program's and the trainers' functions: "valid", "loss" and the like mean something else in PyTorch. */
static int is_torch(const char *file) { return path_has_any(file, plumbing, sizeof plumbing / sizeof *plumbing); }

uint32_t tn__frame_cues(const char *file, const char *function) {
  enum { CPP_CHARS = 200 }; /* what matters stands at the front; template arguments can be kilobytes */
  int cpp = is_cpp(file, function);
  uint32_t cues = cpp ? TN__CUE_CPP : TN__CUE_PYTHON;
  if (cpp) {
    char front[CPP_CHARS + 1];
    size_t length = strnlen(function, CPP_CHARS);
    memcpy(front, function, length);
    front[length] = '\0';
    for (size_t i = 0; i < sizeof cpp_rules / sizeof *cpp_rules; i++)
      if (function_matches(&cpp_rules[i], front)) cues |= cpp_rules[i].cues;
    return cues;
  }
  int torch = is_torch(file);
  for (size_t i = 0; i < sizeof python_rules / sizeof *python_rules; i++) {
    const rule *r = &python_rules[i];
    if (r->file ? !path_has(file, r->file) : torch && !(r->cues & (TN__CUE_BACKWARD | TN__CUE_PARAMETER))) continue;
    if (function_matches(r, function)) cues |= r->cues;
  }
  return cues;
}

enum tn__frame_kind tn__frame_kind(const char *file, const char *function) {
  if (is_cpp(file, function)) return TN__FRAME_CPP;
  if (is_torch(file)) return TN__FRAME_PLUMBING;
  if (path_has(file, "/site-packages/") || path_has(file, "/dist-packages/")) return TN__FRAME_LIBRARY;
  return path_has_any(file, libraries, sizeof libraries / sizeof *libraries) ? TN__FRAME_PLUMBING : TN__FRAME_PROGRAM;
}

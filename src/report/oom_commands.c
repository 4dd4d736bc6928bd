/* oom_commands.c -- what to write or run for each action, in the words of the message's own device. */
#include <string.h>

#include "report/oom.h"

/* ---- names that differ by device ----------------------------------------------------------------------------------------- */

void tn__oom_words_fit(tn_text *out, const tn__oom_verdict *v) {
  uint64_t budget = tn__oom_budget(v), tenths = budget * 10 >> 30;
  tn__text_add(out, "tonnage fit RECIPE");
  if (tenths) tn__text_printf(out, " --budget %llu.%lluGiB", (unsigned long long)(tenths / 10), (unsigned long long)(tenths % 10));
}

/* The variable that configures the backend's allocator. */
static const char *conf_name(const tn_oom *oom) {
  static const struct {
    const char *backend, *name;
  } names[] = {
      {"hip", "PYTORCH_HIP_ALLOC_CONF"},
      {"npu", "PYTORCH_NPU_ALLOC_CONF"},
      {"mlu", "PYTORCH_MLU_ALLOC_CONF"},
      {"musa", "PYTORCH_MUSA_ALLOC_CONF"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(oom->backend, names[i].backend) == 0) return names[i].name;
  return "PYTORCH_CUDA_ALLOC_CONF";
}

/* What lists a device's processes. */
static const char *monitor_name(const tn_oom *oom) {
  static const struct {
    const char *backend, *name;
  } names[] = {
      {"hip", "rocm-smi --showpids"}, {"npu", "npu-smi info"}, {"mlu", "cnmon"}, {"musa", "mthreads-gmi"}, {"xpu", "xpu-smi ps"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(oom->backend, names[i].backend) == 0) return names[i].name;
  return "nvidia-smi, and fuser -v /dev/nvidia* for those it does not list";
}

const char *tn__oom_words_module(const tn_oom *oom) {
  static const char *const own[] = {"xpu", "npu", "mlu", "musa", "mps"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (strcmp(oom->backend, own[i]) == 0) return own[i];
  return "cuda";
}

/* ---- commands ------------------------------------------------------------------------------------------------------------ */

const char *tn__oom_words_exactness(int id) {
  static const char *const words[] = {"identical", "same maths, other order", "numerics change"};
  return words[tn__oom_action_exactness(id)];
}

void tn__oom_words_command(tn_text *out, const tn__oom_verdict *v, const tn__oom_action *action) {
  const tn_oom *oom = v->oom;
  switch ((enum tn__oom_action_id)action->id) {
    case TN__OOM_ACTION_LIMIT:
      tn__text_add(out, oom->form == TN_OOM_FORM_MPS
                            ? "PYTORCH_MPS_HIGH_WATERMARK_RATIO, set before torch is imported; the system needs memory too"
                            : "torch.cuda.set_per_process_memory_fraction(1.0)");
      break;
    case TN__OOM_ACTION_STRAYS:
      tn__text_printf(out, "torch.%s.set_device(local_rank) before anything else touches the device, in every rank",
                      tn__oom_words_module(oom));
      break;
    case TN__OOM_ACTION_OTHERS:
      tn__text_add(out, strcmp(oom->backend, "cuda") == 0 ? "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv"
                                                          : monitor_name(oom));
      break;
    case TN__OOM_ACTION_UNSEEN:
      tn__text_printf(out, "%s: who else is on the device?", monitor_name(oom));
      break;
    case TN__OOM_ACTION_EXPANDABLE:
      tn__text_printf(out, "%s=expandable_segments:True", conf_name(oom));
      if (tn__oom_is_old(oom) && strcmp(oom->backend, "npu") != 0) tn__text_add(out, " (torch >= 2.1)");
      break;
    case TN__OOM_ACTION_EMPTY_CACHE:
      tn__text_printf(out, "torch.%s.empty_cache() before the capture", tn__oom_words_module(oom));
      break;
    case TN__OOM_ACTION_POOLS:
      tn__text_add(out, "release graphs that are no longer replayed (graph.reset()), or capture with one shared pool");
      break;
    case TN__OOM_ACTION_OUTSIDE:
      tn__text_add(out, oom->form == TN_OOM_FORM_MPS
                            ? "close what else draws on the GPU, and free what this program keeps there outside PyTorch"
                            : "fewer communicators, smaller NCCL_BUFFSIZE; no second framework that reserves memory (JAX)");
      break;
    case TN__OOM_ACTION_HEADROOM:
      tn__text_printf(out, "torch.%s.set_per_process_memory_fraction(0.9), or use the library once before the model",
                      tn__oom_words_module(oom));
      break;
    case TN__OOM_ACTION_NO_GRAD:
      tn__text_add(out, "with torch.no_grad(): ...; move predictions to the host batch by batch");
      break;
    case TN__OOM_ACTION_FOREACH:
      tn__text_add(out, "AdamW(..., foreach=False): no temporary copies of all parameters");
      break;
    case TN__OOM_ACTION_MAP_LOCATION:
      tn__text_add(out, "torch.load(..., map_location=\"cpu\"), and the optimizer's state after the first step");
      break;
    case TN__OOM_ACTION_HOST_STATE:
      tn__text_add(out, "gather the state dict on the host (cpu_offload=True), or save it sharded");
      break;
    case TN__OOM_ACTION_HOST_SHARE:
      tn__text_add(out, oom->moments >> TN_OOM_MOMENT_PINNING & 1 || oom->form == TN_OOM_FORM_PINNED
                            ? "DataLoader(pin_memory=False) or fewer workers; under WSL raise memory= in .wslconfig"
                            : "fewer data-loading workers, less prefetch, or a larger memory limit of the job or container");
      break;
    case TN__OOM_ACTION_SHARED:
      tn__text_add(out, "a larger /dev/shm (docker run --shm-size=8g, or --ipc=host), or num_workers=0");
      break;
    case TN__OOM_ACTION_DEFECT:
      tn__text_add(out, oom->form == TN_OOM_FORM_SIZE
                            ? "look at the shape of the tensor that is made there, and for an earlier error of another rank"
                        : strstr(oom->name, "expandable")
                            ? "expandable_segments without max_split_size_mb or garbage_collection_threshold, or newer torch"
                            : "look for the first error before it, and try a newer torch");
      break;
    case TN__OOM_ACTION_SPLIT:
      tn__text_add(out, oom->moments >> TN_OOM_MOMENT_LOSS & 1
                            ? "compute the loss in chunks of the tokens (logits are batch x sequence x vocabulary)"
                        : oom->moments >> TN_OOM_MOMENT_ATTENTION & 1
                            ? "torch.nn.functional.scaled_dot_product_attention, which keeps no sequence x sequence matrix"
                            : "in chunks, if it is logits of a large vocabulary, an attention matrix or a whole data set");
      break;
    case TN__OOM_ACTION_REBUILD:
      tn__oom_words_fit(out, v);
      break;
    default:
      break;
  }
}

/* oom_heads.c -- the words by which a message is known.  See oom_heads.h. */
#include "explain/oom_heads.h"

#include <stdio.h>
#include <string.h>

#define ROW(form, soft, word, words, backend, name) {words, TN_OOM_FORM_##form, soft, word, backend, name}

/* What tells most comes first.  A message has several of these: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate". */
static const tn__oom_head heads[] = {
    ROW(SIZE, 0, 0, "triedtoallocatemorethan1eb", NULL, NULL),
    ROW(ASYNC, 0, 0, "wouldexceedallowedmemory", NULL, NULL),
    ROW(ASYNC, 0, 0, "outofmemoryerror:allocationondevice", NULL, NULL),
    ROW(MPS, 0, 0, "mpsbackendoutofmemory", "mps", NULL),
    ROW(MPS, 0, 0, "invalidbuffersize:", "mps", "Invalid buffer size"),
    ROW(ASSERT, 0, 0, "nvml_success==", "cuda", "NVML_SUCCESS"),
    ROW(ASSERT, 0, 0, "block->expandable_segment_internalassertfailed", NULL, "!block->expandable_segment_"),
    ROW(HOST, 0, 0, "defaultcpuallocator:", "cpu", "DefaultCPUAllocator"),
    ROW(HOST, 0, 0, "notenoughmemory:youtriedtoallocate", "cpu", "not enough memory"),
    ROW(HOST, 0, 0, "unabletommap", "cpu", "unable to mmap"),
    ROW(HOST, 0, 0, "foranarraywithshape", "cpu", "NumPy: Unable to allocate"),
    ROW(HOST, 0, 0, "noderunninglowonmemory", "cpu", "Ray: the node was low on memory"),
    ROW(KILLED, 0, 0, "outofmemory:kill", "cpu", "the kernel's OOM killer"),
    ROW(KILLED, 0, 0, "memorycgroupoutofmemory", "cpu", "the kernel's OOM killer, for a control group"),
    ROW(KILLED, 0, 0, "oom-killevent", "cpu", "the OOM killer, seen by Slurm"),
    ROW(KILLED, 0, 0, "oom_killevent", "cpu", "the OOM killer, seen by Slurm"),
    ROW(KILLED, 0, 0, "invokedoom-killer", "cpu", "the kernel's OOM killer"),
    ROW(KILLED, 0, 0, "oomkilled", "cpu", "OOMKilled"),
    ROW(KILLED, 0, 0, "exceededjobmemorylimit", "cpu", "Slurm: exceeded job memory limit"),
    ROW(SHARED, 0, 0, "outofsharedmemory", "cpu", "out of shared memory"),
    ROW(SHARED, 0, 0, "errorwhilecreatingsharedmemorysegment", "cpu", "creating a shared memory segment"),
    ROW(SHARED, 0, 0, "unabletowritetofile</torch", "cpu", "unable to write to file in /dev/shm"),
    ROW(SHARED, 0, 0, "iskilledbysignal:buserror", "cpu", "DataLoader worker, bus error"),
    ROW(PINNED, 0, 0, "cachinghostallocator", NULL, "CachingHostAllocator"),
    ROW(PINNED, 0, 0, "failedtocudahostalloc", NULL, "NCCL: host allocation"),
    ROW(PINNED, 0, 0, "cudahostalloc", "cuda", "cudaHostAlloc"),
    ROW(COLLECTIVE, 0, 0, "ncclwarncudafailureoutofmemory", NULL, "NCCL"),
    ROW(COLLECTIVE, 0, 0, "cudafailureoutofmemory", NULL, "NCCL"),
    ROW(COLLECTIVE, 0, 0, "cudafailure2outofmemory", NULL, "NCCL"),
    ROW(COLLECTIVE, 0, 0, "hipfailureoutofmemory", "hip", "RCCL"),
    ROW(COLLECTIVE, 0, 0, "failedtocudacalloc", NULL, "NCCL"),
    ROW(COLLECTIVE, 0, 0, "failedtocudamalloc", NULL, "NCCL"),
    ROW(COLLECTIVE, 0, 0, "ncclerroroutofmemory", "cuda", "NCCL"),
    ROW(COLLECTIVE, 0, 0, "ncclerror:outofmemory", "cuda", "NCCL"),
    ROW(COLLECTIVE, 0, 0, "nccloutofmemory", "cuda", "NCCL"),
    ROW(LIBRARY, 0, 0, "cublas_status_alloc_failed", "cuda", "CUBLAS_STATUS_ALLOC_FAILED"),
    ROW(LIBRARY, 0, 0, "cudnn_status_alloc_failed", "cuda", "CUDNN_STATUS_ALLOC_FAILED"),
    ROW(HOST, 0, 0, "cudnn_status_internal_error_host_allocation_failed", "cpu",
        "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
    ROW(LIBRARY, 0, 0, "cudnn_status_internal_error_device_allocation_failed", "cuda",
        "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    ROW(LIBRARY, 0, 0, "cusolver_status_alloc_failed", "cuda", "CUSOLVER_STATUS_ALLOC_FAILED"),
    ROW(LIBRARY, 0, 0, "cusparse_status_alloc_failed", "cuda", "CUSPARSE_STATUS_ALLOC_FAILED"),
    ROW(LIBRARY, 0, 0, "cusparse_status_insufficient_resources", "cuda", "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"),
    ROW(LIBRARY, 0, 0, "cufft_alloc_failed", "cuda", "CUFFT_ALLOC_FAILED"),
    ROW(LIBRARY, 0, 0, "curand_status_allocation_failed", "cuda", "CURAND_STATUS_ALLOCATION_FAILED"),
    ROW(LIBRARY, 0, 0, "cublasruntimeerror:resourceallocationfailed", "cuda", "cuBLAS: resource allocation failed"),
    ROW(LIBRARY, 0, 0, "magma_err_device_alloc", "cuda", "MAGMA_ERR_DEVICE_ALLOC"),
    ROW(LIBRARY, 0, 0, "hipblas_status_alloc_failed", "hip", "HIPBLAS_STATUS_ALLOC_FAILED"),
    ROW(LIBRARY, 0, 0, "rocblas_status_memory_error", "hip", "rocblas_status_memory_error"),
    ROW(LIBRARY, 0, 0, "miopenstatusallocfailed", "hip", "miopenStatusAllocFailed"),
    ROW(CACHING, 0, 0, "outofmemory.triedtoallocate", NULL, NULL),
    ROW(CACHING, 0, 0, "outofmemory.npuworkspaceallocatortriedtoallocate", NULL, NULL),
    ROW(CACHING, 0, 0, "outofmemoryerror:triedtoallocate", NULL, NULL),
    ROW(CACHING, 0, 0, "reservedintotalbypytorch", NULL, NULL),
    ROW(CACHING, 0, 0, "isreservedbypytorchbutunallocated", NULL, NULL),
    ROW(CACHING, 0, 0, "isallocatedbypytorch", NULL, NULL),
    ROW(CACHING, 0, 0, "hasatotalcapac", NULL, NULL),
    ROW(DRIVER, 0, 0, "ur_result_error_out_of_device_memory", "xpu", "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"),
    ROW(HOST, 0, 0, "ur_result_error_out_of_host_memory", "cpu", "UR_RESULT_ERROR_OUT_OF_HOST_MEMORY"),
    ROW(DRIVER, 0, 0, "ur_result_error_out_of_resources", "xpu", "UR_RESULT_ERROR_OUT_OF_RESOURCES"),
    ROW(DRIVER, 0, 0, "pi_error_out_of_resources", "xpu", "PI_ERROR_OUT_OF_RESOURCES"),
    ROW(HOST, 0, 0, "pi_error_out_of_host_memory", "cpu", "PI_ERROR_OUT_OF_HOST_MEMORY"),
    ROW(DRIVER, 0, 0, "pt_devmemallocationfailed", "hpu", "PT_DEVMEM Allocation failed"),
    ROW(DRIVER, 0, 0, "notenoughgpuvideomemory", "directml", "not enough GPU video memory"),
    ROW(DRIVER, 0, 0, "kiogpucommandbuffercallbackerroroutofmemory", "mps", "kIOGPUCommandBufferCallbackErrorOutOfMemory"),
    ROW(DRIVER, 0, 0, "acl_error_rt_memory_allocation", "npu", "ACL_ERROR_RT_MEMORY_ALLOCATION"),
    ROW(DRIVER, 0, 0, "cuda_error_out_of_memory", "cuda", "CUDA_ERROR_OUT_OF_MEMORY"),
    ROW(DRIVER, 0, 0, "cudaerrormemoryallocation", "cuda", "cudaErrorMemoryAllocation"),
    ROW(DRIVER, 0, 0, "hiperroroutofmemory", "hip", "hipErrorOutOfMemory"),
    ROW(DRIVER, 0, 0, "hiperrormemoryallocation", "hip", "hipErrorMemoryAllocation"),
    ROW(DRIVER, 0, 0, "resource_exhausted", "xla", "RESOURCE_EXHAUSTED"),
    ROW(DRIVER, 0, 0, "resourceexhausted:", "xla", "RESOURCE_EXHAUSTED"),
    ROW(DRIVER, 0, 0, "mem_object_allocation_failure", "xpu", "MEM_OBJECT_ALLOCATION_FAILURE"),
    ROW(DRIVER, 0, 0, "hsa_status_error_out_of_resources", "hip", "HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
    ROW(DRIVER, 0, 1, "el0004", "npu", "EL0004: Failed to allocate memory"),
    ROW(DRIVER, 0, 0, "outofmemoryallocating", "cuda", "CuPy: out of memory"),
    ROW(DRIVER, 0, 0, "cudadrivererror:outofmemory", "cuda", "CUDA driver error: out of memory"),
    ROW(DRIVER, 0, 0, "cudaerror:outofmemory", "cuda", "CUDA error: out of memory"),
    ROW(DRIVER, 0, 0, "cudaerror2:outofmemory", "cuda", "CUDA error 2: out of memory"),
    ROW(DRIVER, 0, 0, "hiperror:outofmemory", "hip", "HIP error: out of memory"),
    ROW(DRIVER, 0, 0, "cudaruntimeerror(2):outofmemory", "cuda", "cuda runtime error (2): out of memory"),
    ROW(DRIVER, 0, 0, "error=2:outofmemory", "cuda", "cuda runtime error (2): out of memory"),
    ROW(DRIVER, 0, 0, "tritonerror[cuda]:outofmemory", "cuda", "Triton Error [CUDA]: out of memory"),
    ROW(DRIVER, 0, 0, "error:outofmemory", NULL, NULL),
    ROW(DRIVER, 0, 0, "erroroutofmemoryatline", NULL, NULL),
    ROW(HOST, 0, 0, "cannotallocatememory", "cpu", "Cannot allocate memory"),
    ROW(HOST, 0, 0, "std::bad_alloc", "cpu", "std::bad_alloc"),
    ROW(HOST, 0, 0, "c10outofmemory", "cpu", NULL),
    ROW(HOST, 0, 1, "memoryerror", "cpu", "MemoryError"),
    ROW(CACHING, 0, 0, "outofmemory", NULL, NULL),
    ROW(CACHING, 0, 0, "triedtoallocate", NULL, NULL),
    ROW(KILLED, 1, 0, "iskilledbysignal:killed", "cpu", "DataLoader worker, killed"),
    ROW(KILLED, 1, 0, "signal9(sigkill)", "cpu", "Signal 9 (SIGKILL)"),
    ROW(KILLED, 1, 0, "exitcode:-9", "cpu", "exit code -9"),
    ROW(LIBRARY, 1, 0, "cublas_status_not_initialized", "cuda", "CUBLAS_STATUS_NOT_INITIALIZED"),
    ROW(LIBRARY, 1, 0, "cublas_status_internal_error", "cuda", "CUBLAS_STATUS_INTERNAL_ERROR"),
    ROW(LIBRARY, 1, 0, "cudnn_status_not_initialized", "cuda", "CUDNN_STATUS_NOT_INITIALIZED"),
    ROW(LIBRARY, 1, 0, "cudnn_status_internal_error", "cuda", "CUDNN_STATUS_INTERNAL_ERROR"),
    ROW(LIBRARY, 1, 0, "cudnn_status_not_supported", "cuda", "CUDNN_STATUS_NOT_SUPPORTED"),
    ROW(LIBRARY, 1, 0, "cudnn_status_execution_failed", "cuda", "CUDNN_STATUS_EXECUTION_FAILED"),
    ROW(LIBRARY, 1, 0, "cublasruntimeerror:librarynotinitialized", "cuda", "cuBLAS: library not initialized"),
    ROW(LIBRARY, 1, 0, "novalidconvolutionalgorithmsavailable", "cuda", "no valid convolution algorithms available in cuDNN"),
    ROW(LIBRARY, 1, 0, "miopenstatusinternalerror", "hip", "miopenStatusInternalError"),
    ROW(LIBRARY, 1, 0, "unabletofindavalidcudnnalgorithm", "cuda", "no valid cuDNN algorithm"),
    ROW(LIBRARY, 1, 0, "unabletofindanenginetoexecutethiscomputation", "cuda", "no engine to execute this computation"),
    ROW(LIBRARY, 1, 0, "cusolver_status_internal_error", "cuda", "CUSOLVER_STATUS_INTERNAL_ERROR"),
    ROW(LIBRARY, 1, 0, "cusolver_status_not_initialized", "cuda", "CUSOLVER_STATUS_NOT_INITIALIZED"),
    ROW(LIBRARY, 1, 0, "cufft_internal_error", "cuda", "CUFFT_INTERNAL_ERROR"),
    ROW(LIBRARY, 1, 0, "hipblas_status_not_initialized", "hip", "HIPBLAS_STATUS_NOT_INITIALIZED"),
    ROW(ASSERT, 1, 0, "cachingallocator.cpp:", NULL, "a check in the caching allocator"),
    ROW(BARE, 0, 0, "failedtoallocatememory", NULL, NULL),
    ROW(BARE, 0, 1, "oom", NULL, NULL),
};

#undef ROW

enum { HEAD_COUNT = sizeof heads / sizeof *heads };

static int head_is_at(const tn__squeezed *text, size_t at, const tn__oom_head *head) {
  size_t len = strlen(head->words);
  if (len > text->len - at || memcmp(text->text + at, head->words, len) != 0) return 0;
  return !head->is_word || (tn__squeezed_is_edge(text, at) && tn__squeezed_is_edge(text, at + len));
}

/* Chains of rows that begin with the same two letters, each in order of rank: most places of a log have an empty one. */
typedef struct head_index {
  uint8_t first[256], next[HEAD_COUNT]; /* row + 1; 0 ends a chain */
} head_index;

_Static_assert(HEAD_COUNT < 256, "rows are counted in bytes");

static unsigned bucket(const char *letters) { return ((unsigned char)letters[0] * 31u + (unsigned char)letters[1]) & 255u; }

static void index_make(head_index *index) {
  *index = (head_index){0};
  for (size_t i = HEAD_COUNT; i-- > 0;) {
    uint8_t *first = &index->first[bucket(heads[i].words)];
    index->next[i] = *first;
    *first = (uint8_t)(i + 1);
  }
}

static const tn__oom_head *head_at(const tn__squeezed *text, size_t at, const head_index *index) {
  for (unsigned row = index->first[bucket(text->text + at)]; row; row = index->next[row - 1])
    if (head_is_at(text, at, &heads[row - 1])) return &heads[row - 1];
  return NULL;
}

const tn__oom_head *tn__oom_head_next(const tn__squeezed *text, size_t from, size_t end, size_t *out_at) {
  head_index index;
  index_make(&index);
  for (size_t at = from; at < end && at < text->len; at++) {
    const tn__oom_head *head = head_at(text, at, &index);
    if (!head) continue;
    *out_at = at;
    return head;
  }
  return NULL;
}

const tn__oom_head *tn__oom_head_best(const tn__squeezed *text, size_t from, size_t end, size_t *out_at) {
  const tn__oom_head *best = NULL;
  size_t at = 0;
  for (size_t next = from;; next = at + 1) {
    const tn__oom_head *head = tn__oom_head_next(text, next, end, &at);
    if (!head) return best;
    if (best && head >= best) continue; /* rows lie in order of rank */
    best = head;
    *out_at = at;
  }
}

/* Words that stand before "out of memory", and what they mean. */
static const struct {
  const char *word, *backend;
} backends[] = {
    {"cuda", "cuda"}, {"hip", "hip"}, {"xpu", "xpu"}, {"dpcpp", "xpu"}, {"mpsbackend", "mps"},
};

/* An unknown device's name is in capitals: "NPU out of memory", "MLU out of memory". */
static void capitals_copy(const tn__squeezed *text, size_t at, char *out, size_t out_size) {
  size_t end = text->at[at], begin;
  while (end > 0 && text->from[end - 1] == ' ') end--;
  for (begin = end; begin > 0 && text->from[begin - 1] >= 'A' && text->from[begin - 1] <= 'Z'; begin--) {
  }
  size_t len = end - begin;
  int is_whole = begin == 0 || !((text->from[begin - 1] >= 'a' && text->from[begin - 1] <= 'z') || text->from[begin - 1] == '_');
  if (len < 2 || len >= out_size || !is_whole || (len == 5 && memcmp(text->from + begin, "ERROR", 5) == 0)) return;
  for (size_t i = 0; i < len; i++) out[i] = (char)(text->from[begin + i] - 'A' + 'a');
  out[len] = '\0';
}

void tn__oom_head_backend(const tn__squeezed *text, size_t at, char *out, size_t out_size) {
  out[0] = '\0';
  for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
    size_t len = strlen(backends[i].word);
    if (at < len || memcmp(text->text + at - len, backends[i].word, len) != 0) continue;
    if (!tn__squeezed_is_edge(text, at - len)) continue;
    (void)snprintf(out, out_size, "%s", backends[i].backend);
    return;
  }
  capitals_copy(text, at, out, out_size);
}

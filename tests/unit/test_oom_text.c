/* test_oom_text.c -- out-of-memory messages of every generation, in the wording of the sources, and what logs do to them. */
#include "helper.h"

#define KIB(x) ((uint64_t)((x) * 1024.0 + 0.5))
#define MIB(x) ((uint64_t)((x) * 1048576.0 + 0.5))
#define GIB(x) ((uint64_t)((x) * 1073741824.0 + 0.5))

static tn_oom parsed(const char *text) {
  tn_oom oom;
  tn_error err = {0};
  int rc = tn_oom_parse(text, strlen(text), &oom, &err);
  if (rc) fail_msg("%s: %s", err.msg, text);
  return oom;
}

static int knows(const tn_oom *oom, enum tn_oom_reading reading) { return (int)(oom->known >> reading & 1); }

static void has(const tn_oom *oom, enum tn_oom_reading reading, uint64_t bytes) {
  if (!knows(oom, reading)) fail_msg("reading %d is missing", (int)reading);
  if (oom->sizes[reading].bytes != bytes)
    fail_msg("reading %d is %llu and not %llu", (int)reading, (unsigned long long)oom->sizes[reading].bytes,
             (unsigned long long)bytes);
}

static void has_not(const tn_oom *oom, enum tn_oom_reading reading) {
  if (knows(oom, reading)) fail_msg("reading %d is there", (int)reading);
}

static void is(const tn_oom *oom, enum tn_oom_form form, const char *backend, int device) {
  assert_int_equal(oom->form, form);
  assert_string_equal(oom->backend, backend);
  assert_int_equal(oom->device, device);
  assert_int_equal(oom->unread, 0);
}

/* ---- the caching allocator, by generation -------------------------------------------------------------------------------- */

static void torch_1_0(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "RuntimeError: CUDA out of memory. Tried to allocate 50.00 MiB (GPU 1; 10.91 GiB total capacity; 9.10 GiB already allocated; "
      "17.38 MiB free; 820.44 MiB cached)");
  is(&oom, TN_OOM_FORM_CACHING, "cuda", 1);
  has(&oom, TN_OOM_ASKED, MIB(50));
  has(&oom, TN_OOM_TOTAL, GIB(10.91));
  has(&oom, TN_OOM_ALLOCATED, GIB(9.10));
  has(&oom, TN_OOM_FREE, MIB(17.38));
  has(&oom, TN_OOM_UNALLOCATED, MIB(820.44)); /* "cached" was what is not allocated */
  has(&oom, TN_OOM_RESERVED, GIB(9.10) + MIB(820.44));
  assert_true(oom.derived >> TN_OOM_RESERVED & 1);
}

static void torch_1_4(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "CUDA out of memory. Tried to allocate 1.12 GiB (GPU 0; 15.90 GiB total capacity; 13.20 GiB already allocated; 501.75 MiB "
      "free; "
      "14.53 GiB reserved in total by PyTorch) (malloc at /pytorch/c10/cuda/CUDACachingAllocator.cpp:289)");
  is(&oom, TN_OOM_FORM_CACHING, "cuda", 0);
  has(&oom, TN_OOM_RESERVED, GIB(14.53));
  has(&oom, TN_OOM_UNALLOCATED, GIB(14.53) - GIB(13.20));
  assert_true(oom.derived >> TN_OOM_UNALLOCATED & 1);
  assert_false(oom.flags & (TN_OOM_CUT | TN_OOM_HINT_SPLIT));
}

static void torch_1_10_hint(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "RuntimeError: CUDA out of memory. Tried to allocate 978.00 MiB (GPU 0; 15.78 GiB total capacity; 14.35 GiB already "
      "allocated; "
      "346.75 MiB free; 14.42 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
      "max_split_size_mb "
      "to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF");
  is(&oom, TN_OOM_FORM_CACHING, "cuda", 0);
  assert_true(oom.flags & TN_OOM_HINT_SPLIT);
  has(&oom, TN_OOM_ASKED, MIB(978));
}

static void torch_1_8_limit(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "RuntimeError: CUDA out of memory. Tried to allocate 37.25 GiB (GPU 0; 23.68 GiB total capacity; 192.29 MiB already "
      "allocated; "
      "15.79 GiB free; 2.37 GiB allowed; 5.05 GiB reserved in total by PyTorch)");
  is(&oom, TN_OOM_FORM_CACHING, "cuda", 0);
  has(&oom, TN_OOM_ALLOWED, GIB(2.37));
  has(&oom, TN_OOM_RESERVED, GIB(5.05));
}

static const char newest[] =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 2 has a total capacity of 79.15 GiB of which 1.02 "
    "GiB is free. Process 811 "
    "has 512.00 MiB memory in use. Including non-PyTorch memory, this process has 77.60 GiB memory in use. 78.00 GiB allowed; Of "
    "the allocated memory "
    "74.12 GiB is allocated by PyTorch, with 118.00 MiB allocated in private pools (e.g., CUDA Graphs), and 2.21 GiB is reserved "
    "by PyTorch but unallocated. "
    "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
    "See documentation for "
    "Memory Management  "
    "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";

static void torch_2_10_everything(void **state) {
  (void)state;
  tn_oom oom = parsed(newest);
  is(&oom, TN_OOM_FORM_CACHING, "cuda", 2);
  has(&oom, TN_OOM_ASKED, GIB(4));
  has(&oom, TN_OOM_TOTAL, GIB(79.15));
  has(&oom, TN_OOM_FREE, GIB(1.02));
  has(&oom, TN_OOM_OTHERS, MIB(512));
  has(&oom, TN_OOM_PROCESS, GIB(77.60));
  has(&oom, TN_OOM_ALLOWED, GIB(78));
  has(&oom, TN_OOM_POOLS, MIB(118));
  has(&oom, TN_OOM_UNALLOCATED, GIB(2.21));
  has(&oom, TN_OOM_ALLOCATED, GIB(74.12) - MIB(118)); /* the pools' free blocks are printed as allocated */
  has(&oom, TN_OOM_RESERVED, GIB(74.12) + GIB(2.21));
  assert_int_equal(oom.process_count, 1);
  assert_int_equal(oom.processes[0].pid, 811);
  assert_true(oom.flags & TN_OOM_HINT_EXPANDABLE);
  assert_false(oom.flags & TN_OOM_EXPANDABLE); /* advice is no setting */
}

static void torch_2_1_typo_without_processes(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.00 MiB. GPU 0 has a total capacty of 6.00 GiB of "
      "which 0 bytes is "
      "free. Of the allocated memory 5.21 GiB is allocated by PyTorch, and 96.50 MiB is reserved by PyTorch but unallocated. If "
      "reserved but "
      "unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management "
      "and "
      "PYTORCH_CUDA_ALLOC_CONF");
  is(&oom, TN_OOM_FORM_CACHING, "cuda", 0);
  has(&oom, TN_OOM_FREE, 0);
  assert_int_equal(oom.sizes[TN_OOM_FREE].slack, 0); /* "0 bytes" is exact */
  has_not(&oom, TN_OOM_OTHERS);                      /* nothing said is not 0 */
  has_not(&oom, TN_OOM_PROCESS);
}

static void other_devices(void **state) {
  (void)state;
  tn_oom hip = parsed(
      "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 978.00 MiB. GPU 0 has a total capacity of 15.98 GiB of which "
      "630.00 MiB is "
      "free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.");
  is(&hip, TN_OOM_FORM_CACHING, "hip", 0);
  has(&hip, TN_OOM_RESERVED, 0);
  tn_oom xpu = parsed(
      "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.56 GiB. Of the "
      "allocated memory "
      "13.91 GiB is allocated by PyTorch, and 112.00 MiB is reserved by PyTorch but unallocated. Please use `empty_cache` to "
      "release all "
      "unoccupied cached memory.");
  is(&xpu, TN_OOM_FORM_CACHING, "xpu", 0);
  has_not(&xpu, TN_OOM_FREE);
  tn_oom ipex = parsed(
      "RuntimeError: XPU out of memory. Tried to allocate 1.00 GiB (GPU 0; 7.50 GiB total capacity; 6.10 GiB already allocated; "
      "6.40 GiB reserved "
      "in total by PyTorch)");
  is(&ipex, TN_OOM_FORM_CACHING, "xpu", 0);
  tn_oom npu = parsed(
      "RuntimeError: NPU out of memory. Tried to allocate 260.00 MiB (NPU 3; 28.50 GiB total capacity; 10.24 GiB already "
      "allocated; 10.25 GiB "
      "current active; 149.57 MiB free; 10.28 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
      "setting "
      "max_split_size_mb to avoid fragmentation.");
  is(&npu, TN_OOM_FORM_CACHING, "npu", 3);
  has(&npu, TN_OOM_ACTIVE, GIB(10.25));
  tn_oom workspace = parsed(
      "NPU out of memory. NPUWorkspaceAllocator tried to allocate 64.00 MiB(NPU 0; 29.50 GiB total capacity; 12.00 MiB free)");
  is(&workspace, TN_OOM_FORM_CACHING, "npu", 0);
  has(&workspace, TN_OOM_ASKED, MIB(64));
  has(&workspace, TN_OOM_FREE, MIB(12));
  /* a space is missing in the source */
  tn_oom mlu = parsed(
      "MLU out of memory. Tried to allocate 1.00 GiB. MLU 7 has a total capacity of 23.40 GiB of which 19.62 MiBis free. Of the "
      "allocated memory "
      "22.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.");
  is(&mlu, TN_OOM_FORM_CACHING, "mlu", 7);
  has(&mlu, TN_OOM_FREE, MIB(19.62));
  /* a device that nobody has thought of */
  tn_oom own = parsed(
      "QPU out of memory. Tried to allocate 2.00 MiB. Device 1 has a total capacity of 4.00 GiB of which 1.00 MiB is free. Of the "
      "allocated memory "
      "3.90 GiB is allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated.");
  is(&own, TN_OOM_FORM_CACHING, "qpu", 1);
}

static void metal(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "RuntimeError: MPS backend out of memory (MPS allocated: 3.11 GB, other allocations: 5.42 GB, max allowed: 9.07 GB). Tried "
      "to allocate "
      "720.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may "
      "cause system "
      "failure).");
  is(&oom, TN_OOM_FORM_MPS, "mps", -1);
  has(&oom, TN_OOM_ALLOCATED, GIB(3.11)); /* Metal's GB are powers of 1024 */
  has(&oom, TN_OOM_OTHERS, GIB(5.42));
  has(&oom, TN_OOM_ALLOWED, GIB(9.07));
  has(&oom, TN_OOM_ASKED, MIB(720));
  tn_oom first = parsed(
      "MPS backend out of memory (currently allocated: 17.12 GB, max allowed: 18.13 GB). Tried to allocate 2.25 GB on shared "
      "pool.");
  has(&first, TN_OOM_ALLOCATED, GIB(17.12));
  has(&first, TN_OOM_ASKED, GIB(2.25));
  tn_oom buffer = parsed("RuntimeError: Invalid buffer size: 29.52 GB");
  is(&buffer, TN_OOM_FORM_MPS, "mps", -1);
  has(&buffer, TN_OOM_ASKED, GIB(29.52));
}

static void cuda_malloc_async(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 9.43 "
      "GiB\n"
      "Requested               : 640.00 MiB\nDevice limit            : 11.59 GiB\nFree (according to CUDA): 7.12 MiB\n"
      "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB");
  is(&oom, TN_OOM_FORM_ASYNC, "cuda", 0);
  has(&oom, TN_OOM_ALLOCATED, GIB(9.43));
  has(&oom, TN_OOM_ASKED, MIB(640));
  has(&oom, TN_OOM_TOTAL, GIB(11.59));
  has(&oom, TN_OOM_FREE, MIB(7.12));
  has_not(&oom, TN_OOM_ALLOWED); /* 2^64 bytes: there is none */
  assert_true(oom.flags & TN_OOM_UNTOLD);
  tn_oom cut = parsed("torch.OutOfMemoryError: Allocation on device \n");
  is(&cut, TN_OOM_FORM_ASYNC, "cuda", -1);
  assert_true(cut.flags & TN_OOM_CUT);
}

/* ---- processes ----------------------------------------------------------------------------------------------------------- */

static void windows_does_not_tell_what_processes_hold(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "CUDA out of memory. Tried to allocate 2.13 GiB. GPU 0 has a total capacity of 8.00 GiB of which 6.10 GiB is free. Process "
      "9132 has "
      "17179869184.00 GiB memory in use. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. 2.63 GiB "
      "allowed; Of "
      "the allocated memory 954.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.");
  is(&oom, TN_OOM_FORM_CACHING, "cuda", 0);
  has_not(&oom, TN_OOM_PROCESS);
  has_not(&oom, TN_OOM_OTHERS);
  assert_int_equal(oom.process_count, 1);
  assert_int_equal(oom.processes_untold, 1);
  assert_false(oom.processes[0].known);
  assert_true(oom.flags & TN_OOM_UNTOLD);
  has(&oom, TN_OOM_ALLOWED, GIB(2.63));
}

/* In a container the driver's pids are foreign, and our own memory would be blamed on somebody else. */
static void own_process_under_a_foreign_pid(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU  has a total capacity of 44.34 GiB of "
      "which 160.81 MiB "
      "is free. Process 47694 has 43.90 GiB memory in use. Process 31 has 0 bytes memory in use. Of the allocated memory 43.36 GiB "
      "is allocated "
      "by PyTorch, and 396.27 MiB is reserved by PyTorch but unallocated.");
  has(&oom, TN_OOM_PROCESS, GIB(43.90));
  has(&oom, TN_OOM_OTHERS, 0);
  assert_true(oom.processes[0].is_self);
  assert_false(oom.processes[1].is_self);
}

static void nobody_else_is_known_from_a_whole_list(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 23.52 GiB of which 9.75 MiB is free. "
      "Including non-PyTorch "
      "memory, this process has 23.50 GiB memory in use. Of the allocated memory 22.59 GiB is allocated by PyTorch, and 352.99 MiB "
      "is reserved by "
      "PyTorch but unallocated.");
  has(&oom, TN_OOM_OTHERS, 0);
  assert_true(oom.derived >> TN_OOM_OTHERS & 1);
}

static void hundreds_of_processes(void **state) {
  (void)state;
  char text[16384] =
      "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 0 bytes is free. ",
       part[80];
  for (int i = 0; i < 150; i++) {
    snprintf(part, sizeof part, "Process %d has 500.00 MiB memory in use. ", 1000 + i);
    strcat(text, part);
  }
  strcat(text,
         "Including non-PyTorch memory, this process has 5.00 GiB memory in use. Of the allocated memory 4.00 GiB is allocated by "
         "PyTorch, and 0 bytes is "
         "reserved by PyTorch but unallocated.");
  tn_oom oom = parsed(text);
  assert_int_equal(oom.process_count, 150);
  has(&oom, TN_OOM_OTHERS, 150 * MIB(500));
  assert_int_equal(oom.sizes[TN_OOM_OTHERS].slack, 150 * oom.processes[0].used.slack);
  has(&oom, TN_OOM_ALLOCATED, GIB(4));
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

static void slack_is_half_of_the_last_digit(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 8.00 GiB total capacity; 4.00 KiB already allocated; 512 bytes free; "
      "20.00 MiB "
      "reserved in total by PyTorch)");
  assert_int_equal(oom.sizes[TN_OOM_ASKED].slack, 5368710); /* 0.005 GiB, rounded up */
  assert_int_equal(oom.sizes[TN_OOM_RESERVED].slack, 5243);
  assert_int_equal(oom.sizes[TN_OOM_ALLOCATED].slack, 6);
  assert_int_equal(oom.sizes[TN_OOM_FREE].slack, 0);
  tn_oom whole = parsed("$ Torch: not enough memory: you tried to allocate 17GB. Buy new RAM!");
  assert_int_equal(whole.sizes[TN_OOM_ASKED].slack, GIB(1)); /* cut or rounded: a unit */
}

/* ---- disguises ----------------------------------------------------------------------------------------------------------- */

static void disguised(void **state) {
  (void)state;
  static const struct {
    const char *text;
    enum tn_oom_form form;
    const char *backend;
    int is_soft;
  } cases[] = {
      {"RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
       TN_OOM_FORM_DRIVER, "cuda", 0},
      {"torch.AcceleratorError: CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.nvidia.com",
       TN_OOM_FORM_DRIVER, "cuda", 0},
      {"RuntimeError: CUDA driver error: out of memory", TN_OOM_FORM_DRIVER, "cuda", 0},
      {"RuntimeError: HIP error: out of memory", TN_OOM_FORM_DRIVER, "hip", 0},
      {"RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCTensorRandom.cu:25", TN_OOM_FORM_DRIVER,
       "cuda", 0},
      {"THCudaCheck FAIL file=THCCachingHostAllocator.cpp line=278 error=2 : out of memory", TN_OOM_FORM_PINNED, "cuda", 0},
      {"RuntimeError: Triton Error [CUDA]: out of memory", TN_OOM_FORM_DRIVER, "cuda", 0},
      {"Returning 2 (CUDA_ERROR_OUT_OF_MEMORY) from cuDevicePrimaryCtxRetain", TN_OOM_FORM_DRIVER, "cuda", 0},
      {"Error out of memory at line 380 in file /build/csrc/pythonInterface.c", TN_OOM_FORM_DRIVER, "", 0},
      {"RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", TN_OOM_FORM_DRIVER, "xpu",
       0},
      {"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", TN_OOM_FORM_LIBRARY, "cuda", 0},
      {"RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", TN_OOM_FORM_LIBRARY, "cuda",
       1},
      {"RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", TN_OOM_FORM_LIBRARY, "cuda", 0},
      {"RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", TN_OOM_FORM_LIBRARY, "cuda", 1},
      {"RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
       TN_OOM_FORM_LIBRARY, "cuda", 1},
      {"RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", TN_OOM_FORM_LIBRARY, "cuda", 0},
      {"RuntimeError: FIND was unable to find an engine to execute this computation", TN_OOM_FORM_LIBRARY, "cuda", 1},
      {"RuntimeError: cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`", TN_OOM_FORM_LIBRARY,
       "cuda", 1},
      {"RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED", TN_OOM_FORM_LIBRARY, "cuda", 0},
      {"gpu0:12:34 [0] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'", TN_OOM_FORM_COLLECTIVE, "cuda", 0},
      {"ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'", TN_OOM_FORM_COLLECTIVE,
       "cuda", 0},
      {"RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at \"../c10/cuda/CUDACachingAllocator.cpp\":830", TN_OOM_FORM_ASSERT,
       "cuda", 0},
      {"RuntimeError: !block->expandable_segment_ INTERNAL ASSERT FAILED at \"../c10/cuda/CUDACachingAllocator.cpp\":2814",
       TN_OOM_FORM_ASSERT, "", 0},
      {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.", TN_OOM_FORM_SIZE, "cuda", 0},
      {"RuntimeError: DataLoader worker (pid 229) is killed by signal: Bus error. It is possible that dataloader's workers are out "
       "of shared memory.",
       TN_OOM_FORM_SHARED, "cpu", 0},
      {"RuntimeError: DataLoader worker (pid 4321) is killed by signal: Killed.", TN_OOM_FORM_KILLED, "cpu", 1},
      {"slurmstepd: error: Detected 1 oom_kill event in StepId=647226.7. Some of the step tasks have been OOM Killed.",
       TN_OOM_FORM_KILLED, "cpu", 0},
      {"Memory cgroup out of memory: Killed process 77 (python) total-vm:9000kB, anon-rss:8000kB, file-rss:0kB", TN_OOM_FORM_KILLED,
       "cpu", 0},
      {"OSError: [Errno 12] Cannot allocate memory", TN_OOM_FORM_HOST, "cpu", 0},
      {"MemoryError", TN_OOM_FORM_HOST, "cpu", 0},
      {"RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes.", TN_OOM_FORM_DRIVER, "xla", 0},
      {"Could not allocate tensor with 1048576 bytes. There is not enough GPU video memory available!", TN_OOM_FORM_DRIVER,
       "directml", 0},
      {"NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at \"CUDACachingAllocator.cpp\":963", TN_OOM_FORM_ASSERT,
       "cuda", 0},
      {"RESOURCE_EXHAUSTED: Out of memory allocating 1234 bytes.", TN_OOM_FORM_DRIVER, "xla", 0},
      {"RuntimeError: no valid convolution algorithms available in CuDNN", TN_OOM_FORM_LIBRARY, "cuda", 1},
      {"Native API returns: -4 (PI_ERROR_MEM_OBJECT_ALLOCATION_FAILURE)", TN_OOM_FORM_DRIVER, "xpu", 0},
      {"EL0004: Failed to allocate memory.", TN_OOM_FORM_DRIVER, "npu", 0},
      {"CUDA OOM in trainer.evaluate()", TN_OOM_FORM_BARE, "", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tn_oom oom = parsed(cases[i].text);
    if (oom.form != (uint32_t)cases[i].form || strcmp(oom.backend, cases[i].backend) != 0 ||
        ((oom.flags & TN_OOM_SOFT) != 0) != cases[i].is_soft)
      fail_msg("form %u, backend \"%s\", flags %x: %s", (unsigned)oom.form, oom.backend, (unsigned)oom.flags, cases[i].text);
    if (oom.unread) fail_msg("%u sizes unread: %s", (unsigned)oom.unread, cases[i].text);
  }
}

static void host_memory(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t asked;
  } cases[] = {
      {"RuntimeError: [enforce fail at CPUAllocator.cpp:64] . DefaultCPUAllocator: can't allocate memory: you tried to allocate "
       "1178729664 bytes. Error code 12 "
       "(Cannot allocate memory)",
       1178729664},
      {"RuntimeError: [enforce fail at alloc_cpu.cpp:117] data. DefaultCPUAllocator: not enough memory: you tried to allocate "
       "911360 bytes.",
       911360},
      {"RuntimeError: unable to mmap 1073741824 bytes from file </torch_1_2>: Cannot allocate memory (12)", 1073741824},
      {"numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000, 1000) and data "
       "type float64",
       GIB(7.45)},
      {"RuntimeError: $ Torch: not enough memory: you tried to allocate 0GB. Buy new RAM! at THGeneral.c:270", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tn_oom oom = parsed(cases[i].text);
    is(&oom, TN_OOM_FORM_HOST, "cpu", -1);
    has(&oom, TN_OOM_ASKED, cases[i].asked);
  }
}

static void nccl_prints_a_failure_in_two_lines(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "node1:99:120 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n"
      "node1:99:120 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes\n");
  is(&oom, TN_OOM_FORM_COLLECTIVE, "cuda", -1);
  has(&oom, TN_OOM_ASKED, 6291456);
  assert_int_equal(oom.repeats, 1);
}

/* ---- what logs do -------------------------------------------------------------------------------------------------------- */

static void same_readings(const tn_oom *a, const tn_oom *b, const char *what) {
  if (a->known != b->known || a->device != b->device || strcmp(a->backend, b->backend) != 0 ||
      a->process_count != b->process_count || b->unread)
    fail_msg("%s: known %x and %x, device %d, backend %s, unread %u", what, (unsigned)a->known, (unsigned)b->known, (int)b->device,
             b->backend, (unsigned)b->unread);
  for (int i = 0; i < TN_OOM_READING_COUNT; i++)
    if (a->known >> i & 1 && a->sizes[i].bytes != b->sizes[i].bytes) fail_msg("%s: reading %d", what, i);
}

static size_t count_of(const char *text) {
  tn_oom_log *log = NULL;
  size_t count = 0;
  assert_int_equal(tn_oom_log_new(&log), TN_OK);
  assert_int_equal(tn_oom_log_add(log, text, strlen(text)), TN_OK);
  assert_int_equal(tn_oom_log_end(log), TN_OK);
  (void)tn_oom_log_messages(log, &count, NULL);
  tn_oom_log_free(log);
  return count;
}

/* At any column, in the middle of words and numbers too, with what a log puts before every line. */
static void wrapped_at_any_column(void **state) {
  (void)state;
  static const char *const prefixes[] = {"",
                                         "[rank1]: ",
                                         "> ",
                                         "# ",
                                         "    ",
                                         "2024-06-17T13:18:29.371622Z ERROR ",
                                         "12: ",
                                         "worker-1  | ",
                                         "(EngineCore pid=77) ",
                                         "\033[36m(Worker rank=3 pid=9)\033[0m ",
                                         "1078:[default0]:[rank0]: "};
  tn_oom whole = parsed(newest);
  for (size_t width = 7; width < 140; width += 3) {
    for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
      char text[16384];
      size_t len = 0;
      for (size_t at = 0; at < strlen(newest); at += width) {
        size_t part = strlen(newest + at) < width ? strlen(newest + at) : width;
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%.*s\n", prefixes[p], (int)part, newest + at);
      }
      tn_oom oom = parsed(text);
      char what[80];
      snprintf(what, sizeof what, "width %d, prefix \"%s\"", (int)width, prefixes[p]);
      same_readings(&whole, &oom, what);
      if (count_of(text) != 1) fail_msg("%s: %d messages", what, (int)count_of(text)); /* its end was taken for another */
    }
  }
}

static void colours_markdown_json_and_nuls(void **state) {
  (void)state;
  tn_oom whole = parsed(newest), oom;
  char text[8192] = "", plain[4096];
  size_t len = 0;
  for (const char *at = newest; *at; at++) /* bold before every number */
    len +=
        (size_t)snprintf(text + len, sizeof text - len, "%s%c", *at >= '0' && *at <= '9' && at[-1] == ' ' ? "\033[1;31m" : "", *at);
  oom = parsed(text);
  same_readings(&whole, &oom, "colours");
  snprintf(text, sizeof text, "**OutOfMemoryError**: `%s`", newest);
  oom = parsed(text);
  same_readings(&whole, &oom, "markdown");
  snprintf(text, sizeof text, "{\"level\":\"error\",\"msg\":\"torch.OutOfMemoryError: %s\\n\"}", strstr(newest, "CUDA"));
  for (char *at = text; (at = strstr(at, ". ")); at++) at[1] = '\t'; /* a tab where a "\t" might be */
  oom = parsed(text);
  same_readings(&whole, &oom, "JSON");
  size_t size = 0;
  for (const char *at = newest; *at; at++) {
    plain[size++] = *at;
    if (*at == ' ') plain[size++] = '\0', plain[size++] = (char)0x93;
  }
  assert_int_equal(tn_oom_parse(plain, size, &oom, NULL), TN_OK);
  same_readings(&whole, &oom, "binary");
}

static void cut_anywhere(void **state) {
  (void)state;
  for (size_t len = strlen("torch.OutOfMemoryError: CUDA out of memory"); len < strlen(newest); len++) {
    tn_oom oom;
    assert_int_equal(tn_oom_parse(newest, len, &oom, NULL), TN_OK);
    assert_int_equal(oom.form, TN_OOM_FORM_CACHING);
    int is_whole = len >= (size_t)(strstr(newest, "but unallocated. ") - newest) + 15;
    if (((oom.flags & TN_OOM_CUT) == 0) != is_whole) fail_msg("cut at %d: flags %x", (int)len, (unsigned)oom.flags);
  }
}

static void retold(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "RuntimeError: NPU out of memory. Tried to allocate 1.40 GiB\n  (32.00 GiB total; 28.00 GiB already allocated; 741.02 MiB "
      "free)");
  has(&oom, TN_OOM_FREE, MIB(741.02));
  has(&oom, TN_OOM_ALLOCATED, GIB(28));
  tn_oom line = parsed("torch.OutOfMemoryError: Tried to allocate 12.60 GiB. GPU had 12.44 GiB free of 79.19 GiB");
  has(&line, TN_OOM_FREE, GIB(12.44));
  has(&line, TN_OOM_TOTAL, GIB(79.19));
  assert_true(line.flags & TN_OOM_CUT);
  tn_oom part = parsed("...4.77 GiB allowed; 4.74 GiB reserved in total by PyTorch...");
  has(&part, TN_OOM_ALLOWED, GIB(4.77));
  has(&part, TN_OOM_RESERVED, GIB(4.74));
}

/* What stands near a message is not of it. */
static void numbers_beside_it(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "step 12 | mem 3.00 GiB free | loss 2.1\nCUDA out of memory. Tried to allocate 20.00 MiB\n2024-06-17 13:18:29 INFO cache: "
      "5.00 GiB free, 1.00 "
      "GiB total\n");
  has(&oom, TN_OOM_ASKED, MIB(20));
  has_not(&oom, TN_OOM_FREE);
  has_not(&oom, TN_OOM_TOTAL);
  assert_int_equal(oom.unread, 0);
}

static void not_a_message(void **state) {
  (void)state;
  static const char *const texts[] = {"",
                                      "loss 2.31, 4.2 it/s, GPU memory 12.00 GiB",
                                      "the room is full; zoom out; bloom filter",
                                      "RuntimeError: shape mismatch",
                                      "CUDA OOMs: 0 | cudaMalloc retries: 0",
                                      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    tn_oom oom;
    tn_error err = {0};
    int rc = tn_oom_parse(texts[i], strlen(texts[i]), &oom, &err);
    if (rc != TN_ENOENT || !err.msg[0]) fail_msg("%d for: %s", rc, texts[i]);
  }
}

static void sizes_that_are_none(void **state) {
  (void)state;
  tn_oom oom = parsed(
      "CUDA out of memory. Tried to allocate 99999999999999999999999999999999.00 GiB (GPU 99999999999; 1.2.3 GiB total capacity; "
      ".50 GiB already "
      "allocated; 0x10 GiB free; 18446744073709551615 bytes reserved in total by PyTorch)");
  has_not(&oom, TN_OOM_ASKED);
  has_not(&oom, TN_OOM_RESERVED);
  assert_int_equal(oom.form, TN_OOM_FORM_CACHING);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(torch_1_0),
      cmocka_unit_test(torch_1_4),
      cmocka_unit_test(torch_1_10_hint),
      cmocka_unit_test(torch_1_8_limit),
      cmocka_unit_test(torch_2_10_everything),
      cmocka_unit_test(torch_2_1_typo_without_processes),
      cmocka_unit_test(other_devices),
      cmocka_unit_test(metal),
      cmocka_unit_test(cuda_malloc_async),
      cmocka_unit_test(windows_does_not_tell_what_processes_hold),
      cmocka_unit_test(own_process_under_a_foreign_pid),
      cmocka_unit_test(nobody_else_is_known_from_a_whole_list),
      cmocka_unit_test(hundreds_of_processes),
      cmocka_unit_test(slack_is_half_of_the_last_digit),
      cmocka_unit_test(disguised),
      cmocka_unit_test(host_memory),
      cmocka_unit_test(nccl_prints_a_failure_in_two_lines),
      cmocka_unit_test(wrapped_at_any_column),
      cmocka_unit_test(colours_markdown_json_and_nuls),
      cmocka_unit_test(cut_anywhere),
      cmocka_unit_test(retold),
      cmocka_unit_test(numbers_beside_it),
      cmocka_unit_test(not_a_message),
      cmocka_unit_test(sizes_that_are_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

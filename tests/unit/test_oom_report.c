/* test_oom_report.c -- the report of out-of-memory messages against recorded texts, and what must hold of any of them.
 *
 * TONNAGE_GOLDEN=1 records them again; review the difference. */
#include "helper.h"

#include <jansson.h>

static char *report_of(const char *log_text, int json) {
  tn_oom_log *log = NULL;
  size_t count = 0, chosen = 0;
  char *text = NULL;
  assert_int_equal(tn_oom_log_new(&log), TN_OK);
  assert_int_equal(tn_oom_log_add(log, log_text, strlen(log_text)), TN_OK);
  assert_int_equal(tn_oom_log_end(log), TN_OK);
  const tn_oom *messages = tn_oom_log_messages(log, &count, &chosen);
  assert_non_null(messages);
  assert_int_equal(tn_report_oom(messages, count, chosen, json, &text), TN_OK);
  tn_oom_log_free(log);
  return text;
}

/* ---- recorded texts ------------------------------------------------------------------------------------------------------ */

static void golden(const char *name, const char *log_text, int json) {
  char path[512];
  char *text = report_of(log_text, json);
  snprintf(path, sizeof path, "%s/oom/%s", TN_TEST_DATA, name);
  if (getenv("TONNAGE_GOLDEN")) {
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("cannot write %s", path);
    fputs(text, file);
    fclose(file);
  }
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("no recorded text %s; TONNAGE_GOLDEN=1 records it", path);
  char *expected = calloc(1, 65536);
  assert_non_null(expected);
  (void)fread(expected, 1, 65535, file);
  fclose(file);
  assert_string_equal(text, expected);
  free(expected);
  tn_text_free(text);
}

static const char fragmented[] =
    "Traceback (most recent call last):\n"
    "  File \"/jobs/train.py\", line 41, in training_step\n"
    "    loss.backward()\n"
    "  File \"/usr/lib/python3.12/site-packages/torch/_tensor.py\", line 626, in backward\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.15 GiB. GPU 0 has a total capacity of 39.56 GiB of which 2.80 "
    "GiB is free. Process 4100 has "
    "306.00 MiB memory in use. Including non-PyTorch memory, this process has 36.45 GiB memory in use. Of the allocated memory "
    "31.66 GiB is allocated by PyTorch, and "
    "4.11 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)\n";

static const char tensors[] =
    "RuntimeError: CUDA out of memory. Tried to allocate 978.00 MiB (GPU 0; 15.78 GiB total capacity; 14.35 GiB already allocated; "
    "346.75 MiB free; 14.42 GiB reserved in "
    "total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See "
    "documentation for Memory Management and "
    "PYTORCH_CUDA_ALLOC_CONF\n";

static const char ranks[] =
    "epoch 0\n"
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 15.89 GiB of "
    "which 100.00 MiB is free. Process 11 has "
    "1.10 GiB memory in use. Process 12 has 1.12 GiB memory in use. Process 13 has 1.10 GiB memory in use. Including non-PyTorch "
    "memory, this process has 12.40 GiB memory in "
    "use. Of the allocated memory 11.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n"
    "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 2 has a total capacity of 15.89 GiB of "
    "which 20.00 MiB is free. Including "
    "non-PyTorch memory, this process has 15.80 GiB memory in use. Of the allocated memory 14.90 GiB is allocated by PyTorch, and "
    "60.00 MiB is reserved by PyTorch but "
    "unallocated.\n"
    "node1:99:120 [1] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n"
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 15.89 GiB of "
    "which 100.00 MiB is free. Process 11 has "
    "1.10 GiB memory in use. Process 12 has 1.12 GiB memory in use. Process 13 has 1.10 GiB memory in use. Including non-PyTorch "
    "memory, this process has 12.40 GiB memory in "
    "use. Of the allocated memory 11.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n";

static const char hidden_limit[] =
    "CUDA out of memory. Tried to allocate 200.00 MiB. GPU 1 has a total capacity of 16.00 GiB of which 11.00 GiB is free. Of the "
    "allocated memory 3.10 GiB is allocated by "
    "PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.";

static const char metal[] =
    "RuntimeError: MPS backend out of memory (MPS allocated: 15.72 GiB, other allocations: 2.41 MiB, max allowed: 18.13 GiB). "
    "Tried to allocate 5.81 GiB on private pool. Use "
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).";

static void text_fragmented(void **state) {
  (void)state;
  golden("fragmented.txt", fragmented, 0);
}

static void text_tensors(void **state) {
  (void)state;
  golden("tensors.txt", tensors, 0);
}

static void text_ranks(void **state) {
  (void)state;
  golden("ranks.txt", ranks, 0);
}

static void text_hidden_limit(void **state) {
  (void)state;
  golden("hidden_limit.txt", hidden_limit, 0);
}

static void text_metal(void **state) {
  (void)state;
  golden("metal.txt", metal, 0);
}

static void json_ranks(void **state) {
  (void)state;
  golden("ranks.json", ranks, 1);
}

/* ---- properties ---------------------------------------------------------------------------------------------------------- */

static const char *const all[] = {
    fragmented,
    tensors,
    ranks,
    hidden_limit,
    metal,
    "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated : 9.43 "
    "GiB\nRequested : 640.00 MiB\nDevice limit : 11.59 "
    "GiB\nFree (according to CUDA): 7.12 MiB\nPyTorch limit (set by user-supplied memory fraction)\n : 17179869184.00 GiB",
    "CUDA out of memory. Tried to allocate 55.57 GiB. GPU 0 has a total capacty of 12.00 GiB of which 9.02 GiB is free. Of the "
    "allocated memory 984.52 MiB is allocated by "
    "PyTorch, and 463.48 MiB is reserved by PyTorch but unallocated.",
    "CUDA out of memory. Tried to allocate 3.74 GiB. GPU 0 has a total capacity of 4.00 GiB of which 0 bytes is free. Including "
    "non-PyTorch memory, this process has "
    "17179869184.00 GiB memory in use. Of the allocated memory 16.20 GiB is allocated by PyTorch, and 844.14 MiB is reserved by "
    "PyTorch but unallocated.",
    "CUDA out of memory. Tried to allocate 996.00 MiB. GPU 0 has a total capacity of 44.43 GiB of which 9.06 GiB is free. 17.69 "
    "GiB allowed; Of the allocated memory 17.44 GiB "
    "is allocated by PyTorch, and 59.88 MiB is reserved by PyTorch but unallocated.",
    "XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 13.74 GiB. Of the allocated memory 10.10 GiB is "
    "allocated by PyTorch, and 3.47 GiB is reserved "
    "by PyTorch but unallocated.",
    "XPU out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 16.48 GiB of which 16.07 GiB is free. Of the "
    "allocated memory 0 bytes is allocated by PyTorch, "
    "and 0 bytes is reserved by PyTorch but unallocated.",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "NCCL WARN Cuda failure 'out of memory'\nNCCL WARN Failed to CUDA calloc 6291456 bytes",
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED at \"CUDACachingAllocator.cpp\":1165",
    "!block->expandable_segment_ INTERNAL ASSERT FAILED at \"CUDACachingAllocator.cpp\":2814",
    "CUDA out of memory. Tried to allocate more than 1EB memory.",
    "DefaultCPUAllocator: not enough memory: you tried to allocate 1981808640 bytes.",
    "DataLoader worker (pid 4321) is killed by signal: Killed.",
    "DataLoader worker is killed by signal: Bus error. It is possible that workers are out of shared memory.",
    "cuda runtime error (2) : out of memory at THCStorage.cu:58",
    "CUDA error: out of memory",
    "CUDA OOM in trainer.evaluate()",
    "RuntimeError: Invalid buffer size: 29.52 GB",
};

enum { ALL = sizeof all / sizeof *all };

static void no_line_is_over_100_columns(void **state) {
  (void)state;
  for (size_t i = 0; i < ALL; i++) {
    char *text = report_of(all[i], 0);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
      int len = (int)strcspn(line, "\n");
      if (len > 100) fail_msg("%d columns: %.*s", len, len, line);
      if (len && line[len - 1] == ' ') fail_msg("a space at the end: %.*s", len, line);
    }
    tn_text_free(text);
  }
}

/* Someone reads only three lines, at 3 a.m.: what was asked, who holds the memory, what to do. */
static void the_verdict_is_three_lines(void **state) {
  (void)state;
  for (size_t i = 0; i < ALL; i++) {
    char *text = report_of(all[i], 0), *second = strchr(text, '\n') + 1, *third = strchr(second, '\n') + 1,
         *fourth = strchr(third, '\n') + 1;
    if (strncmp(second, "  ", 2) != 0 || strncmp(third, "  Do: ", 6) != 0 || (*fourth && *fourth != '\n'))
      fail_msg("%.*s", (int)(fourth - text + 60), text);
    tn_text_free(text);
  }
}

static void json_is_json_and_adds_up(void **state) {
  (void)state;
  for (size_t i = 0; i < ALL; i++) {
    char *text = report_of(all[i], 1);
    json_error_t reason;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &reason);
    if (!root) fail_msg("%s: %s", reason.text, text);
    const json_t *account = json_object_get(root, "account"), *capacity = json_object_get(account, "capacity"),
                 *parts = json_object_get(account, "parts");
    if (capacity && json_object_get(parts, "unseen")) {
      json_int_t sum = 0;
      const char *key;
      json_t *part;
      json_object_foreach((json_t *)parts, key, part) sum += json_integer_value(json_object_get(part, "bytes"));
      json_int_t want = json_integer_value(json_object_get(capacity, "bytes"));
      assert_true(sum - want < 64 << 20 && want - sum < 1); /* rounding can make the known parts a little more */
    }
    const json_t *messages = json_object_get(root, "messages");
    assert_true(json_integer_value(json_object_get(root, "chosen")) < (json_int_t)json_array_size(messages));
    json_decref(root);
    tn_text_free(text);
  }
}

static int sweep_report(void *user) {
  tn_oom oom;
  char *text = NULL;
  int rc = tn_oom_parse(user, strlen(user), &oom, NULL);
  for (int json = 0; json < 2 && !rc; json++) {
    rc = tn_report_oom(&oom, 1, 0, json, &text);
    if (!rc) tn_text_free(text);
  }
  return rc;
}

static void out_of_host_memory(void **state) {
  (void)state;
  char text[sizeof fragmented];
  memcpy(text, fragmented, sizeof fragmented);
  assert_true(tn_test_sweep(sweep_report, text) > 10);
}

static void wrong_arguments(void **state) {
  (void)state;
  tn_oom oom = {0};
  char *text = NULL;
  assert_int_equal(tn_report_oom(NULL, 1, 0, 0, &text), TN_EINVAL);
  assert_int_equal(tn_report_oom(&oom, 1, 1, 0, &text), TN_EINVAL);
  assert_int_equal(tn_report_oom(&oom, 1, 0, 0, NULL), TN_EINVAL);
  assert_string_equal(tn_oom_cause_name(-1), "?");
  assert_string_equal(tn_oom_cause_name(TN_OOM_CAUSE_COUNT), "?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_fragmented),
      cmocka_unit_test(text_tensors),
      cmocka_unit_test(text_ranks),
      cmocka_unit_test(text_hidden_limit),
      cmocka_unit_test(text_metal),
      cmocka_unit_test(json_ranks),
      cmocka_unit_test(no_line_is_over_100_columns),
      cmocka_unit_test(the_verdict_is_three_lines),
      cmocka_unit_test(json_is_json_and_adds_up),
      cmocka_unit_test(out_of_host_memory),
      cmocka_unit_test(wrong_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_oom_log.c -- logs: ranks, repetitions, pieces, tracebacks, size. */
#include "helper.h"

#define HEAD "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
#define TAIL                                                                                                                       \
  " GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.00 " \
  "GiB memory in use. Of the "                                                                                                     \
  "allocated memory 70.00 GiB is allocated by PyTorch, and 7.00 GiB is reserved by PyTorch but unallocated."

typedef struct reading {
  tn_oom_log *log;
  const tn_oom *messages;
  size_t count, chosen;
} reading;

static reading read_pieces(const char *text, size_t len, size_t piece) {
  reading r = {0};
  assert_int_equal(tn_oom_log_new(&r.log), TN_OK);
  for (size_t at = 0; at < len; at += piece)
    assert_int_equal(tn_oom_log_add(r.log, text + at, len - at < piece ? len - at : piece), TN_OK);
  assert_int_equal(tn_oom_log_end(r.log), TN_OK);
  r.messages = tn_oom_log_messages(r.log, &r.count, &r.chosen);
  return r;
}

static reading read_text(const char *text) { return read_pieces(text, strlen(text), SIZE_MAX / 2); }

static const tn_oom *chosen(const reading *r) {
  assert_non_null(r->messages);
  return &r->messages[r->chosen];
}

/* ---- ranks --------------------------------------------------------------------------------------------------------------- */

static void one_message_for_each_rank(void **state) {
  (void)state;
  char text[16384] = "";
  for (int rank = 0; rank < 8; rank++) {
    char line[600];
    snprintf(line, sizeof line, "[rank%d]: " HEAD "%d.00" TAIL "\n", rank, 2 + rank % 2);
    strcat(text, line);
    snprintf(line, sizeof line, "[rank%d]:[E ProcessGroup] " HEAD "%d.00" TAIL "\n", rank, 2 + rank % 2);
    strcat(text, line);
  }
  reading r = read_text(text);
  assert_int_equal(r.count, 8);
  for (int rank = 0; rank < 8; rank++) {
    assert_int_equal(r.messages[rank].rank, rank);
    assert_int_equal(r.messages[rank].repeats, 2);
    assert_int_equal(r.messages[rank].line, 1 + 2 * rank);
  }
  assert_int_equal(r.chosen, 0); /* the first of them */
  tn_oom_log_free(r.log);
}

static void rank_of_every_launcher(void **state) {
  (void)state;
  static const struct {
    const char *tags;
    int rank;
  } cases[] = {
      {"[rank3]: ", 3},
      {"[default5]:", 5},
      {"[1,7]<stderr>:", 7},
      {"12: ", 12},
      {"(RayTrainWorker pid=123, ip=10.0.0.1, rank=4) ", 4},
      {"Rank 6 | ", 6},
      {"1078:[default0]:[rank2]: ", 2},
      {"2024-01-01 10:00:00 [rank: 9] ", 9},
      {"", -1},
      {"[2024-01-01 10:00:00] ERROR ", -1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[700];
    snprintf(text, sizeof text, "start\n%s" HEAD "2.00" TAIL "\n", cases[i].tags);
    reading r = read_text(text);
    if (chosen(&r)->rank != cases[i].rank) fail_msg("rank %d: %s", (int)chosen(&r)->rank, cases[i].tags);
    tn_oom_log_free(r.log);
  }
}

/* torchrun prints an error with its rank, and the handler at the end once more without. */
static void repeated_without_its_rank(void **state) {
  (void)state;
  reading r = read_text("[rank1]: " HEAD "2.00" TAIL "\n...\nRoot cause: " HEAD "2.00" TAIL "\n");
  assert_int_equal(r.count, 1);
  assert_int_equal(chosen(&r)->repeats, 2);
  assert_int_equal(chosen(&r)->rank, 1);
  tn_oom_log_free(r.log);
}

/* ---- which one ----------------------------------------------------------------------------------------------------------- */

static void the_last_one_that_has_numbers(void **state) {
  (void)state;
  reading r = read_text("we ran out of memory once, going on\n" HEAD "9.00" TAIL "\nretrying with half the batch\n" HEAD "5.00" TAIL
                        "\nRuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED\nOOM, giving up\n");
  assert_int_equal(r.count, 4); /* the two without numbers are one */
  assert_int_equal(chosen(&r)->sizes[TN_OOM_ASKED].bytes, UINT64_C(5) << 30);
  assert_int_equal(chosen(&r)->line, 4);
  tn_oom_log_free(r.log);
}

static void a_hard_error_before_a_soft_one(void **state) {
  (void)state;
  reading r = read_text("RuntimeError: CUDA error: out of memory\nRuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR\n");
  assert_int_equal(chosen(&r)->form, TN_OOM_FORM_DRIVER);
  tn_oom_log_free(r.log);
}

/* ---- where --------------------------------------------------------------------------------------------------------------- */

static const char traceback[] =
    "[rank0]: Traceback (most recent call last):\n"
    "[rank1]: Traceback (most recent call last):\n"
    "[rank0]:   File \"/jobs/train.py\", line 41, in training_step\n"
    "[rank1]:   File \"/jobs/train.py\", line 99, in evaluate\n"
    "[rank0]:     loss.backward()\n"
    "[rank1]:     out = model.validate(batch)\n"
    "[rank0]:   File \"/usr/lib/python3.12/site-packages/torch/_tensor.py\", line 626, in backward\n"
    "[rank0]:     torch.autograd.backward(\n"
    "[rank0]: " HEAD "2.00" TAIL "\n";

static void traceback_of_its_own_rank(void **state) {
  (void)state;
  reading r = read_text(traceback);
  assert_string_equal(chosen(&r)->place, "train.py:41 in training_step");
  assert_int_equal(chosen(&r)->moments, 1u << TN_OOM_MOMENT_BACKWARD);
  tn_oom_log_free(r.log);
}

static void moments(void **state) {
  (void)state;
  static const struct {
    const char *line;
    enum tn_oom_moment moment;
  } cases[] = {
      {"    loss = F.cross_entropy(logits, labels)\n", TN_OOM_MOMENT_LOSS},
      {"    optimizer.step()\n", TN_OOM_MOMENT_OPTIMIZER},
      {"    out = torch.nn.functional.scaled_dot_product_attention(q, k, v)\n", TN_OOM_MOMENT_ATTENTION},
      {"    metrics = trainer.evaluate()\n", TN_OOM_MOMENT_EVALUATION},
      {"    state = torch.load(path)\n", TN_OOM_MOMENT_LOADING},
      {"    trainer.save_checkpoint(path)\n", TN_OOM_MOMENT_SAVING},
      {"    dist.all_gather(parts, part)\n", TN_OOM_MOMENT_GATHERING},
      {"    with torch.cuda.graph(g):\n", TN_OOM_MOMENT_CAPTURE},
      {"RuntimeError: Caught RuntimeError in pin memory thread for device 0.\n", TN_OOM_MOMENT_PINNING},
      {"    torch._C._cuda_init()\n", TN_OOM_MOMENT_START},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[400];
    snprintf(text, sizeof text,
             "Traceback (most recent call last):\n  File \"a.py\", line 3, in main\n%sRuntimeError: CUDA error: out of memory\n",
             cases[i].line);
    reading r = read_text(text);
    if (chosen(&r)->moments != 1u << cases[i].moment) fail_msg("moments %x: %s", (unsigned)chosen(&r)->moments, cases[i].line);
    assert_string_equal(chosen(&r)->place, "a.py:3 in main");
    tn_oom_log_free(r.log);
  }
}

/* A log may be in any encoding; a report is not. */
static void place_is_utf8(void **state) {
  (void)state;
  static const struct {
    const char *file, *place;
  } cases[] = {
      {"tr\xc3\xa4in.py", "tr\xc3\xa4in.py:3 in main"},
      {"tr\xe4in.py", "tr?in.py:3 in main"},
      {"\xe2\x82\xac.py", "\xe2\x82\xac.py:3 in main"},
      {"\xc0\xaf.py", "??.py:3 in main"},
      {"\xed\xa0\x80.py", "???.py:3 in main"},
      {"\xf4\x90\x80\x80.py", "????.py:3 in main"},
      {"a\tb.py", "a?b.py:3 in main"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[200];
    snprintf(text, sizeof text, "Traceback (most recent call last):\n  File \"%s\", line 3, in main\nCUDA error: out of memory\n",
             cases[i].file);
    reading r = read_text(text);
    assert_string_equal(chosen(&r)->place, cases[i].place);
    tn_oom_log_free(r.log);
  }
}

static void setting_but_not_advice(void **state) {
  (void)state;
  reading on = read_text("+ PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\n" HEAD "2.00" TAIL
                         " If reserved but unallocated memory is large try setting "
                         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n");
  assert_true(chosen(&on)->flags & TN_OOM_EXPANDABLE);
  tn_oom_log_free(on.log);
  reading off = read_text("python train.py\n" HEAD "2.00" TAIL
                          " If reserved but unallocated memory is large try setting "
                          "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n");
  assert_false(chosen(&off)->flags & TN_OOM_EXPANDABLE);
  tn_oom_log_free(off.log);
}

/* ---- size and pieces ----------------------------------------------------------------------------------------------------- */

static char *long_log(size_t *out_len, uint64_t *random, int errors) {
  enum { BYTES = 3 << 20 };
  char *text = malloc(BYTES);
  size_t len = 0, next = 100000;
  int error = 0;
  while (len < BYTES - 2048) {
    if (len >= next && error < errors) {
      len += (size_t)snprintf(text + len, 1024, "[rank%d]: " HEAD "%d.50" TAIL "\n", error % 4, 1 + error);
      next = len + 100000 + tn_test_random(random) % 700000;
      error++;
    } else {
      len += (size_t)snprintf(text + len, 200, "step %llu loss %.3f mem 12.00 GiB in use, 0.10 s/it\n", (unsigned long long)len,
                              (double)(len % 997) / 100);
    }
  }
  *out_len = len;
  return text;
}

/* However the log arrives, the messages are the same. */
static void pieces_of_any_size(void **state) {
  (void)state;
  uint64_t random = tn_test_seed();
  size_t len = 0;
  char *text = long_log(&len, &random, 6);
  reading whole = read_pieces(text, len, len);
  assert_int_equal(whole.count, 6);
  static const size_t pieces[] = {4096, 65536, 100001, 1 << 20, (1 << 20) + 1};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    reading r = read_pieces(text, len, pieces[i]);
    assert_int_equal(r.count, whole.count);
    assert_int_equal(r.chosen, whole.chosen);
    assert_memory_equal(r.messages, whole.messages, whole.count * sizeof *whole.messages);
    tn_oom_log_free(r.log);
  }
  for (size_t i = 0; i < whole.count; i++) {
    uint64_t line = 1;
    for (size_t at = 0; at < whole.messages[i].offset; at++) line += text[at] == '\n';
    assert_int_equal(whole.messages[i].line, line);
    assert_int_equal(memcmp(text + whole.messages[i].offset, "out of memory", 5) == 0 ||
                         memcmp(text + whole.messages[i].offset, "OutOfMemory", 5) == 0,
                     1);
  }
  tn_oom_log_free(whole.log);
  free(text);
}

static void one_line_of_three_megabytes(void **state) {
  (void)state;
  size_t len = 3 << 20;
  char *text = malloc(len);
  memset(text, 'x', len);
  memcpy(text + len / 2, " " HEAD "2.00" TAIL " ", sizeof HEAD + sizeof TAIL + 2);
  reading r = read_pieces(text, len, 65536);
  assert_int_equal(r.count, 1);
  assert_int_equal(chosen(&r)->sizes[TN_OOM_ASKED].bytes, UINT64_C(2) << 30);
  tn_oom_log_free(r.log);
  free(text);
}

static void more_messages_than_are_kept(void **state) {
  (void)state;
  enum { COUNT = 6000 };
  char *text = malloc(COUNT * 64), *at = text;
  for (int i = 0; i < COUNT; i++) at += sprintf(at, "CUDA out of memory. Tried to allocate %d.00 MiB\n", i);
  reading r = read_text(text);
  assert_int_equal(r.count, 4096);
  tn_oom_log_free(r.log);
  free(text);
}

static void empty_and_binary(void **state) {
  (void)state;
  reading r = read_text("");
  assert_null(r.messages);
  assert_int_equal(r.count, 0);
  tn_oom_log_free(r.log);
  uint64_t random = tn_test_seed();
  char *text = malloc(1 << 20);
  for (size_t i = 0; i < 1 << 20; i++) text[i] = (char)tn_test_random(&random);
  memcpy(text + 500000, HEAD "2.00" TAIL, sizeof HEAD + sizeof TAIL);
  r = read_pieces(text, 1 << 20, 70000);
  assert_int_equal(chosen(&r)->sizes[TN_OOM_ASKED].bytes, UINT64_C(2) << 30);
  tn_oom_log_free(r.log);
  free(text);
}

static int sweep_parse(void *user) {
  tn_oom oom;
  return tn_oom_parse(user, strlen(user), &oom, NULL);
}

static int sweep_log(void *user) {
  tn_oom_log *log = NULL;
  int rc = tn_oom_log_new(&log);
  for (int i = 0; i < 3 && !rc; i++) rc = tn_oom_log_add(log, user, strlen(user));
  if (!rc) rc = tn_oom_log_end(log);
  tn_oom_log_free(log);
  return rc;
}

static void out_of_host_memory(void **state) {
  (void)state;
  char text[sizeof traceback];
  memcpy(text, traceback, sizeof traceback);
  assert_true(tn_test_sweep(sweep_parse, text) > 3);
  assert_true(tn_test_sweep(sweep_log, text) > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_message_for_each_rank),
      cmocka_unit_test(rank_of_every_launcher),
      cmocka_unit_test(repeated_without_its_rank),
      cmocka_unit_test(the_last_one_that_has_numbers),
      cmocka_unit_test(a_hard_error_before_a_soft_one),
      cmocka_unit_test(traceback_of_its_own_rank),
      cmocka_unit_test(moments),
      cmocka_unit_test(setting_but_not_advice),
      cmocka_unit_test(place_is_utf8),
      cmocka_unit_test(pieces_of_any_size),
      cmocka_unit_test(one_line_of_three_megabytes),
      cmocka_unit_test(more_messages_than_are_kept),
      cmocka_unit_test(empty_and_binary),
      cmocka_unit_test(out_of_host_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

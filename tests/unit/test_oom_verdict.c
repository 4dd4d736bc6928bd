/* test_oom_verdict.c -- who holds the memory, why it ran out, what would have helped: by numbers chosen for each case. */
#include "helper.h"

#include "explain/oom_verdict.h"

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

/* A message of torch 2.x; sizes as they are printed, NULL leaves the phrase out. */
typedef struct numbers {
  const char *asked, *total, *free, *processes, *self, *allowed, *allocated, *pools, *unallocated, *backend;
} numbers;

static void phrase(char *out, size_t size, const char *before, const char *value, const char *after) {
  size_t len = strlen(out);
  if (value) snprintf(out + len, size - len, "%s%s%s", before, value, after);
}

static tn_oom message(const numbers *n) {
  static char text[4096];
  text[0] = '\0';
  phrase(text, sizeof text, "", n->backend ? n->backend : "CUDA", " out of memory. ");
  phrase(text, sizeof text, "Tried to allocate ", n->asked, ". ");
  phrase(text, sizeof text, "GPU 0 has a total capacity of ", n->total, n->free ? " of which " : ". ");
  phrase(text, sizeof text, "", n->free, " is free. ");
  phrase(text, sizeof text, "", n->processes, "");
  phrase(text, sizeof text, "Including non-PyTorch memory, this process has ", n->self, " memory in use. ");
  phrase(text, sizeof text, "", n->allowed, " allowed; ");
  phrase(text, sizeof text, "Of the allocated memory ", n->allocated, " is allocated by PyTorch, ");
  phrase(text, sizeof text, "with ", n->pools, " allocated in private pools (e.g., CUDA Graphs), ");
  phrase(text, sizeof text, "and ", n->unallocated, " is reserved by PyTorch but unallocated.");
  tn_oom oom;
  tn_error err = {0};
  if (tn_oom_parse(text, strlen(text), &oom, &err)) fail_msg("%s: %s", err.msg, text);
  assert_int_equal(oom.unread, 0);
  return oom;
}

static const tn__oom_action *action_of(const tn__oom_verdict *v, enum tn__oom_action_id id) {
  for (size_t i = 0; i < v->action_count; i++)
    if (v->actions[i].id == id) return &v->actions[i];
  return NULL;
}

static enum tn__oom_enough enough_of(const tn__oom_verdict *v, enum tn__oom_action_id id) {
  const tn__oom_action *action = action_of(v, id);
  if (!action) fail_msg("no action %s", tn__oom_action_name((int)id));
  return (enum tn__oom_enough)action->enough;
}

static void first_is(const tn__oom_verdict *v, enum tn__oom_action_id id) {
  if (v->first < 0 || v->actions[v->first].id != id)
    fail_msg("the first action is %s", v->first < 0 ? "none" : tn__oom_action_name(v->actions[v->first].id));
}

static void cause_is(const tn__oom_verdict *v, enum tn_oom_cause cause) {
  if (v->cause != cause) fail_msg("the cause is %s and not %s", tn_oom_cause_name((int)v->cause), tn_oom_cause_name((int)cause));
}

/* ---- the account --------------------------------------------------------------------------------------------------------- */

/* Whatever the numbers, the parts add up to the capacity, or it is said that they do not. */
static void parts_add_up(void **state) {
  (void)state;
  uint64_t random = tn_test_seed();
  for (int round = 0; round < 2000; round++) {
    char size[8][32];
    for (int i = 0; i < 8; i++)
      snprintf(size[i], sizeof size[i], "%d.%02d GiB", (int)(tn_test_random(&random) % 40), (int)(tn_test_random(&random) % 100));
    numbers n = {.asked = size[0], .total = size[1], .free = size[2], .allocated = size[3], .unallocated = size[4]};
    if (round & 1) n.self = size[5];
    if (round & 2) n.pools = size[6];
    char other[80];
    snprintf(other, sizeof other, "Process 7 has %s memory in use. ", size[7]);
    if (round & 4) n.processes = other;
    tn_oom oom = message(&n);
    tn__oom_account a;
    tn__oom_account_make(&oom, &a);
    int64_t sum = 0, slack = 0;
    for (int i = 0; i < TN__OOM_PART_COUNT; i++) {
      if (!(a.known >> i & 1)) continue;
      assert_true(a.parts[i].mid >= 0);
      sum += a.parts[i].mid;
      slack += a.parts[i].slack;
    }
    if (a.is_over)
      assert_true(sum > a.capacity.mid);
    else
      assert_true(sum >= a.capacity.mid && sum - a.capacity.mid <= slack + a.capacity.slack);
    tn__oom_verdict v;
    tn__oom_verdict_make(&oom, &v); /* and whatever the numbers, there is a verdict */
    assert_true(v.action_count <= TN__OOM_ACTION_COUNT && v.first < (int)v.action_count);
  }
}

static void unseen_is_shown(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){
      .asked = "1.00 GiB", .total = "10.00 GiB", .free = "0.50 GiB", .allocated = "6.00 GiB", .unallocated = "0.25 GiB"});
  tn__oom_account a;
  tn__oom_account_make(&oom, &a);
  assert_int_equal(a.parts[TN__OOM_PART_UNSEEN].mid, 10 * GIB - GIB / 2 - 6 * GIB - GIB / 4);
  assert_int_equal(a.short_by.mid, GIB / 2);
}

/* ---- causes -------------------------------------------------------------------------------------------------------------- */

static void live_tensors(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "2.00 GiB",
                                  .total = "23.65 GiB",
                                  .free = "1.00 GiB",
                                  .self = "22.50 GiB",
                                  .allocated = "21.50 GiB",
                                  .unallocated = "0.20 GiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_TENSORS);
  first_is(&v, TN__OOM_ACTION_REBUILD);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_EXPANDABLE), TN__OOM_ENOUGH_NO); /* 0.20 of the 1.00 GiB that is missing */
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_OTHERS), TN__OOM_ENOUGH_NO);     /* there are none */
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_EMPTY_CACHE), TN__OOM_ENOUGH_NO);
}

static void fragmented(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "2.00 GiB",
                                  .total = "23.65 GiB",
                                  .free = "1.00 GiB",
                                  .self = "22.50 GiB",
                                  .allocated = "17.00 GiB",
                                  .unallocated = "4.60 GiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_FRAGMENTED);
  first_is(&v, TN__OOM_ACTION_EXPANDABLE);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_EXPANDABLE), TN__OOM_ENOUGH_YES);
  assert_int_equal(action_of(&v, TN__OOM_ACTION_EXPANDABLE)->gives.mid, (int64_t)oom.sizes[TN_OOM_UNALLOCATED].bytes);
}

/* The usual slack of a full card is no fragmentation, though it would have held this one request. */
static void small_pieces_are_always_there(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "18.00 MiB",
                                  .total = "23.68 GiB",
                                  .free = "11.06 MiB",
                                  .self = "23.21 GiB",
                                  .allocated = "22.79 GiB",
                                  .unallocated = "173.99 MiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_TENSORS);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_EXPANDABLE), TN__OOM_ENOUGH_MAYBE);
}

static void expandable_segments_already_on(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "2.00 GiB",
                                  .total = "23.65 GiB",
                                  .free = "1.00 GiB",
                                  .self = "22.50 GiB",
                                  .allocated = "17.00 GiB",
                                  .unallocated = "4.60 GiB"});
  oom.flags |= TN_OOM_EXPANDABLE;
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_EXPANDABLE), TN__OOM_ENOUGH_NO);
}

static void other_processes(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "1.16 GiB",
                                  .total = "31.36 GiB",
                                  .free = "471.69 MiB",
                                  .processes = "Process 19239 has 14.26 GiB memory in use. ",
                                  .self = "16.63 GiB",
                                  .allocated = "15.03 GiB",
                                  .unallocated = "1.00 GiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_OTHERS);
  first_is(&v, TN__OOM_ACTION_OTHERS);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_OTHERS), TN__OOM_ENOUGH_YES);
  assert_int_equal(v.strays, 0);
}

/* A desktop's few hundred MiB beside 22 GiB of our own are not the cause, though they would have been enough. */
static void a_small_neighbour_is_not_the_cause(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "18.00 MiB",
                                  .total = "23.68 GiB",
                                  .free = "11.06 MiB",
                                  .processes = "Process 261 has 458.00 MiB memory in use. ",
                                  .self = "23.10 GiB",
                                  .allocated = "22.79 GiB",
                                  .unallocated = "3.99 MiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_TENSORS);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_OTHERS), TN__OOM_ENOUGH_YES);
}

static void contexts_of_other_ranks(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){
      .asked = "512.00 MiB",
      .total = "15.89 GiB",
      .free = "100.00 MiB",
      .self = "12.00 GiB",
      .processes =
          "Process 11 has 1.10 GiB memory in use. Process 12 has 1.12 GiB memory in use. Process 13 has 1.10 GiB memory in use. ",
      .allocated = "11.00 GiB",
      .unallocated = "0.10 GiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_OTHERS);
  first_is(&v, TN__OOM_ACTION_STRAYS);
  assert_int_equal(v.strays, 3);
  assert_null(action_of(&v, TN__OOM_ACTION_OTHERS)); /* they are the same ones */
}

static void printed_limit(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "996.00 MiB",
                                  .total = "44.43 GiB",
                                  .free = "9.06 GiB",
                                  .self = "17.81 GiB",
                                  .allowed = "17.69 GiB",
                                  .processes = "Process 2102129 has 17.54 GiB memory in use. ",
                                  .allocated = "17.44 GiB",
                                  .unallocated = "59.88 MiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_LIMIT);
  first_is(&v, TN__OOM_ACTION_LIMIT);
  assert_false(v.is_inferred);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_LIMIT), TN__OOM_ENOUGH_YES);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_OTHERS), TN__OOM_ENOUGH_NO); /* a limit does not count them */
}

static void a_limit_that_was_not_reached(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "2.00 GiB",
                                  .total = "191.69 GiB",
                                  .free = "0 bytes",
                                  .allowed = "50.00 GiB",
                                  .allocated = "9.58 GiB",
                                  .unallocated = "10.00 MiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_OUTSIDE);
  first_is(&v, TN__OOM_ACTION_UNSEEN);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_LIMIT), TN__OOM_ENOUGH_NO);
}

/* torch 2.1 to 2.3 left the limit out of the message. */
static void limit_that_is_not_printed(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){
      .asked = "200.00 MiB", .total = "16.00 GiB", .free = "11.00 GiB", .allocated = "3.10 GiB", .unallocated = "20.00 MiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_LIMIT);
  assert_true(v.is_inferred);
}

/* Older ones had none, or printed it; and Windows refuses for reasons of its own. */
static void limit_that_cannot_be(void **state) {
  (void)state;
  static const char old[] =
      "CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already allocated; 9.28 GiB "
      "free; 4.68 MiB cached)";
  tn_oom oom;
  assert_int_equal(tn_oom_parse(old, strlen(old), &oom, NULL), TN_OK);
  assert_int_equal(tn_oom_cause(&oom), TN_OOM_CAUSE_REFUSED);
  tn_oom windows = message(&(numbers){.asked = "20.00 MiB",
                                      .total = "23.99 GiB",
                                      .free = "7.72 GiB",
                                      .self = "17179869184.00 GiB",
                                      .allocated = "14.41 GiB",
                                      .unallocated = "257.93 MiB"});
  assert_int_equal(tn_oom_cause(&windows), TN_OOM_CAUSE_REFUSED);
}

/* How much of the limit was taken is not told; that the device had plenty is. */
static void limit_in_a_message_that_is_cut(void **state) {
  (void)state;
  static const char cut[] =
      "CUDA out of memory. Tried to allocate 48.00 MiB.\nGPU 0 has a total capacity of 22.04 GiB of which 11.78 GiB is free.\nThis "
      "process has 10.25 GiB memory in "
      "use. 10.00 GiB allowed; ...";
  tn_oom oom;
  assert_int_equal(tn_oom_parse(cut, strlen(cut), &oom, NULL), TN_OK);
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_LIMIT);
  assert_false(v.is_inferred);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_LIMIT), TN__OOM_ENOUGH_YES);
}

static void refused_with_enough_free(void **state) {
  (void)state;
  tn_oom close = message(&(numbers){
      .asked = "246.00 MiB", .total = "31.75 GiB", .free = "460.38 MiB", .allocated = "26.00 GiB", .unallocated = "1.88 GiB"});
  tn_oom xpu = message(&(numbers){.asked = "16.00 GiB",
                                  .total = "16.48 GiB",
                                  .free = "16.07 GiB",
                                  .allocated = "0 bytes",
                                  .unallocated = "0 bytes",
                                  .backend = "XPU"});
  cause_is(&(tn__oom_verdict){.cause = (enum tn_oom_cause)tn_oom_cause(&close)}, TN_OOM_CAUSE_REFUSED);
  cause_is(&(tn__oom_verdict){.cause = (enum tn_oom_cause)tn_oom_cause(&xpu)}, TN_OOM_CAUSE_REFUSED);
}

static void too_large_for_the_device(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){
      .asked = "55.57 GiB", .total = "12.00 GiB", .free = "9.02 GiB", .allocated = "984.52 MiB", .unallocated = "463.48 MiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_TOO_LARGE);
  first_is(&v, TN__OOM_ACTION_SPLIT);
  assert_null(action_of(&v, TN__OOM_ACTION_REBUILD)); /* nothing that is live stands in the way */
  tn_oom edge = message(&(numbers){
      .asked = "12.00 GiB", .total = "12.00 GiB", .free = "11.50 GiB", .allocated = "0 bytes", .unallocated = "0 bytes"});
  assert_int_not_equal(tn_oom_cause(&edge), TN_OOM_CAUSE_TOO_LARGE); /* within rounding, it may be smaller */
}

static void private_pools(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "200.00 MiB",
                                  .total = "47.53 GiB",
                                  .free = "8.00 MiB",
                                  .self = "47.45 GiB",
                                  .allocated = "47.00 GiB",
                                  .pools = "20.22 GiB",
                                  .unallocated = "49.10 MiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_POOLS);
  first_is(&v, TN__OOM_ACTION_POOLS);
}

static void outside_of_this_process(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "200.00 MiB",
                                  .total = "23.65 GiB",
                                  .free = "20.00 MiB",
                                  .self = "23.55 GiB",
                                  .allocated = "15.00 GiB",
                                  .unallocated = "49.10 MiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_OUTSIDE);
  first_is(&v, TN__OOM_ACTION_OUTSIDE);
  /* a context is no cause */
  tn_oom context = message(&(numbers){.asked = "200.00 MiB",
                                      .total = "5.80 GiB",
                                      .free = "20.00 MiB",
                                      .self = "5.70 GiB",
                                      .allocated = "5.00 GiB",
                                      .unallocated = "49.10 MiB"});
  assert_int_equal(tn_oom_cause(&context), TN_OOM_CAUSE_TENSORS);
}

static void spilled_to_host_memory(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){
      .asked = "3.74 GiB", .total = "4.00 GiB", .free = "0 bytes", .allocated = "16.20 GiB", .unallocated = "844.14 MiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  cause_is(&v, TN_OOM_CAUSE_SPILLED);
  assert_true(v.account.is_over);
}

static void free_is_not_told(void **state) {
  (void)state;
  tn_oom oom = message(
      &(numbers){.asked = "4.00 GiB", .total = "13.74 GiB", .allocated = "10.10 GiB", .unallocated = "3.47 GiB", .backend = "XPU"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  assert_true(v.account.room_is_bound);
  cause_is(&v, TN_OOM_CAUSE_TENSORS);
  assert_null(action_of(&v, TN__OOM_ACTION_EXPANDABLE)); /* XPU has none */
}

static int cause_of(const char *text) {
  tn_oom oom;
  assert_int_equal(tn_oom_parse(text, strlen(text), &oom, NULL), TN_OK);
  return tn_oom_cause(&oom);
}

static void without_an_allocators_numbers(void **state) {
  (void)state;
  assert_int_equal(cause_of("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), TN_OOM_CAUSE_NO_ROOM);
  assert_int_equal(cause_of("NCCL WARN Cuda failure 'out of memory'"), TN_OOM_CAUSE_NO_ROOM);
  assert_int_equal(cause_of("CUDA error: out of memory"), TN_OOM_CAUSE_UNKNOWN);
  assert_int_equal(cause_of("  File \"pin_memory.py\", line 57, in pin_memory\nRuntimeError: CUDA error: out of memory"),
                   TN_OOM_CAUSE_HOST);
  assert_int_equal(cause_of("    torch._C._cuda_init()\nRuntimeError: CUDA error: out of memory"), TN_OOM_CAUSE_OTHERS);
  assert_int_equal(cause_of("DefaultCPUAllocator: not enough memory: you tried to allocate 5 bytes."), TN_OOM_CAUSE_HOST);
  assert_int_equal(cause_of("CUDA out of memory. Tried to allocate more than 1EB memory."), TN_OOM_CAUSE_DEFECT);
  assert_int_equal(cause_of("!block->expandable_segment_ INTERNAL ASSERT FAILED at \"CUDACachingAllocator.cpp\":2814"),
                   TN_OOM_CAUSE_DEFECT);
  assert_int_equal(cause_of("CUDA out of memory."), TN_OOM_CAUSE_UNKNOWN);
  assert_int_equal(cause_of("CUDA OOM in trainer.evaluate()"), TN_OOM_CAUSE_UNKNOWN);
  assert_int_equal(cause_of("RuntimeError: Invalid buffer size: 29.52 GB"), TN_OOM_CAUSE_TOO_LARGE);
}

/* ---- rounding ------------------------------------------------------------------------------------------------------------ */

/* "Enough" holds for every value that prints the same: 1.00 GiB may be 5 MiB less. */
static void enough_means_for_every_value_printed_so(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "4.00 GiB",
                                  .total = "10.00 GiB",
                                  .free = "1.00 GiB",
                                  .processes = "Process 5 has 3.00 GiB memory in use. ",
                                  .self = "6.00 GiB",
                                  .allocated = "5.50 GiB",
                                  .unallocated = "0.10 GiB"});
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_OTHERS), TN__OOM_ENOUGH_MAYBE);
  tn_oom more = message(&(numbers){.asked = "4.00 GiB",
                                   .total = "10.00 GiB",
                                   .free = "1.00 GiB",
                                   .processes = "Process 5 has 3.02 GiB memory in use. ",
                                   .self = "6.00 GiB",
                                   .allocated = "5.50 GiB",
                                   .unallocated = "0.10 GiB"});
  tn__oom_verdict_make(&more, &v);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_OTHERS), TN__OOM_ENOUGH_YES);
  tn_oom less = message(&(numbers){.asked = "4.00 GiB",
                                   .total = "10.00 GiB",
                                   .free = "1.00 GiB",
                                   .processes = "Process 5 has 2.98 GiB memory in use. ",
                                   .self = "6.00 GiB",
                                   .allocated = "5.50 GiB",
                                   .unallocated = "0.10 GiB"});
  tn__oom_verdict_make(&less, &v);
  assert_int_equal(enough_of(&v, TN__OOM_ACTION_OTHERS), TN__OOM_ENOUGH_NO);
}

static void free_actions_come_first(void **state) {
  (void)state;
  tn_oom oom = message(&(numbers){.asked = "2.00 GiB",
                                  .total = "23.65 GiB",
                                  .free = "1.00 GiB",
                                  .self = "18.50 GiB",
                                  .processes = "Process 5 has 4.00 GiB memory in use. ",
                                  .allocated = "13.00 GiB",
                                  .unallocated = "4.60 GiB",
                                  .pools = "1.00 GiB"});
  oom.moments = 1u << TN_OOM_MOMENT_EVALUATION;
  tn__oom_verdict v;
  tn__oom_verdict_make(&oom, &v);
  int last = -1, changes = 0;
  for (size_t i = 0; i < v.action_count; i++) {
    assert_true((int)v.actions[i].id > last); /* the order of the list */
    last = v.actions[i].id;
    if (tn__oom_action_exactness(v.actions[i].id) == TN__OOM_EXACT_CHANGES)
      changes++;
    else
      assert_int_equal(changes, 0); /* what changes numerics is last */
  }
  assert_int_equal(changes, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_add_up),
      cmocka_unit_test(unseen_is_shown),
      cmocka_unit_test(live_tensors),
      cmocka_unit_test(fragmented),
      cmocka_unit_test(small_pieces_are_always_there),
      cmocka_unit_test(expandable_segments_already_on),
      cmocka_unit_test(other_processes),
      cmocka_unit_test(a_small_neighbour_is_not_the_cause),
      cmocka_unit_test(contexts_of_other_ranks),
      cmocka_unit_test(printed_limit),
      cmocka_unit_test(a_limit_that_was_not_reached),
      cmocka_unit_test(limit_that_is_not_printed),
      cmocka_unit_test(limit_that_cannot_be),
      cmocka_unit_test(limit_in_a_message_that_is_cut),
      cmocka_unit_test(refused_with_enough_free),
      cmocka_unit_test(too_large_for_the_device),
      cmocka_unit_test(private_pools),
      cmocka_unit_test(outside_of_this_process),
      cmocka_unit_test(spilled_to_host_memory),
      cmocka_unit_test(free_is_not_told),
      cmocka_unit_test(without_an_allocators_numbers),
      cmocka_unit_test(enough_means_for_every_value_printed_so),
      cmocka_unit_test(free_actions_come_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

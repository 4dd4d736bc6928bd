/* test_snapshot_build.c -- the machine: containers that open and close, stacks that are kept once, and the limits. */
#include "snapshot_text.h"

#include "snapshot/build.h"
#include "trace/trace.h"

static tn__build made(void) {
  tn__build build;
  assert_int_equal(tn__build_init(&build), TN_OK);
  return build;
}

static void push_frame(tn__build *build, int line) {
  assert_int_equal(tn__build_object(build, TN__OBJECT_DICT), TN_OK);
  size_t at = build->stack.count;
  assert_int_equal(tn__build_text(build, "filename", 8), TN_OK);
  assert_int_equal(tn__build_text(build, "a.py", 4), TN_OK);
  assert_int_equal(tn__build_text(build, "line", 4), TN_OK);
  assert_int_equal(tn__build_push(build, TN__ITEM_INT, (uint64_t)line), TN_OK);
  assert_int_equal(tn__build_set_items(build, at), TN_OK);
}

static tn__object *object_of(tn__build *build, size_t at) {
  return tn__build_object_at(build, TN_VEC(&build->stack, tn__item)[at].bits);
}

static void repeat(tn__build *build, size_t at) {
  assert_int_equal(tn__build_push(build, TN__ITEM_OBJECT, TN_VEC(&build->stack, tn__item)[at].bits), TN_OK);
}

/* A list of frames that a segment holds on the stack while its blocks already use it through the memo. */
static void closed_while_others_are_open(void **state) {
  (void)state;
  tn__build build = made();
  assert_int_equal(tn__build_object(&build, TN__OBJECT_LIST), TN_OK); /* 0: the frames */
  push_frame(&build, 1);
  push_frame(&build, 2);
  assert_int_equal(tn__build_append(&build, 1), TN_OK);
  assert_int_equal(tn__build_object(&build, TN__OBJECT_DICT), TN_OK); /* 1: a block */
  size_t arena = build.arena.count;
  assert_int_equal(tn__build_text(&build, "size", 4), TN_OK);
  assert_int_equal(tn__build_push(&build, TN__ITEM_INT, 512), TN_OK);
  assert_int_equal(tn__build_set_items(&build, 2), TN_OK);
  assert_int_equal(tn__build_text(&build, "frames", 6), TN_OK);
  repeat(&build, 0);
  assert_int_equal(tn__build_set_items(&build, 2), TN_OK); /* closes the list below the block */
  assert_int_equal(object_of(&build, 0)->kind, TN__OBJECT_STACK);
  assert_int_equal(object_of(&build, 1)->kind, TN__OBJECT_DICT);
  assert_int_equal(build.arena.count, arena + 4); /* the block's pairs, after what is dead */
  const tn__item *pairs = TN_VEC(&build.arena, tn__item) + object_of(&build, 1)->at;
  assert_int_equal(pairs[1].bits, 512);
  assert_int_equal(tn__build_list(&build, 0), TN_OK);
  assert_int_equal(build.arena.count, 2); /* all of it has been cut off; the new list has two items */
  tn__build_deinit(&build);
}

/* Items added to one container after another was begun, back and forth. */
static void two_that_grow_in_turn(void **state) {
  (void)state;
  tn__build build = made();
  assert_int_equal(tn__build_object(&build, TN__OBJECT_LIST), TN_OK);
  assert_int_equal(tn__build_object(&build, TN__OBJECT_LIST), TN_OK);
  for (uint64_t i = 0; i < 100; i++) {
    repeat(&build, i % 2);
    assert_int_equal(tn__build_push(&build, TN__ITEM_INT, i), TN_OK);
    assert_int_equal(tn__build_append(&build, build.stack.count - 1), TN_OK);
    assert_int_equal(tn__build_pop(&build), TN_OK);
  }
  for (size_t k = 0; k < 2; k++) {
    const tn__object *list = object_of(&build, k);
    const tn__item *items = TN_VEC(&build.arena, tn__item) + list->at;
    assert_int_equal(list->count, 50);
    for (uint64_t i = 0; i < 50; i++) assert_int_equal(items[i].bits, 2 * i + k);
  }
  tn__build_deinit(&build);
}

static void equal_frames_and_stacks_are_one(void **state) {
  (void)state;
  tn__build build = made();
  for (int round = 0; round < 3; round++) {
    assert_int_equal(tn__build_object(&build, TN__OBJECT_LIST), TN_OK);
    size_t at = build.stack.count;
    for (int line = 0; line < 5; line++) push_frame(&build, line / 2);
    assert_int_equal(tn__build_append(&build, at), TN_OK);
    assert_int_equal(tn__build_list(&build, at - 1), TN_OK);
    assert_int_equal(build.trace->tables[TN_TABLE_FRAME].count, 3);
    assert_int_equal(build.trace->tables[TN_TABLE_STACK].count, 1);
    assert_int_equal(build.trace->tables[TN_TABLE_STACK_FRAME].count, 5);
  }
  tn__build_deinit(&build);
}

/* Random stacks against a search through all of them. */
static void stacks_against_a_search(void **state) {
  (void)state;
  enum { STACKS = 3000, DEPTH = 4 };
  static uint32_t seen[STACKS][DEPTH + 1], ids[STACKS];
  uint64_t random = tn_test_seed();
  tn__build build = made();
  for (int i = 0; i < STACKS; i++) {
    uint32_t depth = (uint32_t)(tn_test_random(&random) % (DEPTH + 1)), id = 0;
    seen[i][0] = depth;
    for (uint32_t k = 0; k < depth; k++) {
      tn_frame frame = {.line = (uint32_t)(tn_test_random(&random) % 6)};
      assert_int_equal(tn__build_frame(&build, &frame, &seen[i][k + 1]), TN_OK);
      assert_int_equal(tn__vec_push(&build.trace->tables[TN_TABLE_STACK_FRAME], &seen[i][k + 1]), TN_OK);
    }
    assert_int_equal(tn__build_stack(&build, depth, &ids[i]), TN_OK);
    for (id = 0; memcmp(seen[id], seen[i], (depth + 1) * sizeof **seen) != 0;) id++;
    assert_int_equal(ids[i], ids[id]);
  }
  assert_true(build.trace->tables[TN_TABLE_FRAME].count == 6);
  assert_int_equal(tn_trace_check(build.trace, NULL), TN_OK);
  tn__build_deinit(&build);
}

/* As in stacks.c: two stacks whose hashes are the same must stay two. */
static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

typedef struct half {
  uint64_t hash;
  uint32_t frames[2];
} half;

static int compare_halves(const void *a, const void *b) {
  const half *x = a, *y = b;
  return (x->hash > y->hash) - (x->hash < y->hash);
}

static uint32_t stack_of(tn__build *build, const half *begin, uint32_t last) {
  uint32_t id = TN_NONE;
  assert_int_equal(tn__vec_append(&build->trace->tables[TN_TABLE_STACK_FRAME], begin->frames, 2), TN_OK);
  assert_int_equal(tn__vec_push(&build->trace->tables[TN_TABLE_STACK_FRAME], &last), TN_OK);
  assert_int_equal(tn__build_stack(build, 3, &id), TN_OK);
  return id;
}

static void different_stacks_of_one_hash(void **state) {
  (void)state;
  enum { HALVES = 400000 };
  half *halves = malloc(HALVES * sizeof *halves);
  assert_non_null(halves);
  uint64_t random = 1;
  for (int i = 0; i < HALVES; i++) {
    uint64_t frames = tn_test_random(&random);
    halves[i] = (half){mix(mix(3, (uint32_t)frames), frames >> 32), {(uint32_t)frames, (uint32_t)(frames >> 32)}};
  }
  qsort(halves, HALVES, sizeof *halves, compare_halves);
  tn__build build = made();
  int met = 0;
  for (size_t i = 1; i < HALVES; i++) {
    uint64_t differs = halves[i - 1].hash ^ halves[i].hash;
    if (differs >> 32) continue; /* no frame could make up for it */
    uint32_t first = stack_of(&build, &halves[i - 1], 0), second = stack_of(&build, &halves[i], (uint32_t)differs);
    assert_int_not_equal(first, second);
    assert_int_equal(stack_of(&build, &halves[i], (uint32_t)differs), second);
    met++;
  }
  assert_true(met > 0);
  tn__build_deinit(&build);
  free(halves);
}

static void texts_are_one(void **state) {
  (void)state;
  tn__build build = made();
  static const char *const texts[] = {"N/A", "", "12345678", "123456789", "N/A", "12345678", "", "123456789"};
  for (size_t i = 0; i < 8; i++) assert_int_equal(tn__build_text(&build, texts[i], strlen(texts[i])), TN_OK);
  const tn__item *items = TN_VEC(&build.stack, tn__item);
  for (size_t i = 0; i < 8; i++) assert_string_equal(tn_trace_string(build.trace, (uint32_t)items[i].bits), texts[i]);
  assert_true(items[0].bits == items[4].bits && items[1].bits == items[6].bits && items[2].bits == items[5].bits &&
              items[3].bits == items[7].bits);
  tn__build_deinit(&build);
}

/* Values that nothing takes: sixteen bytes of memory for each byte of the file. */
static void a_file_made_to_fill_memory(void **state) {
  (void)state;
  enum { SIZE = 24 << 20 };
  char *data = malloc(SIZE);
  assert_non_null(data);
  memset(data, 'N', SIZE);
  memcpy(data, "\x80\x04]", 3);
  char name[] = "snapshot_build_XXXXXX";
  int fd = mkstemp(name);
  assert_true(fd >= 0);
  FILE *file = fdopen(fd, "wb");
  assert_int_equal(fwrite(data, 1, SIZE, file), SIZE);
  (void)fclose(file);
  tn_trace *trace = NULL;
  tn_error err = {0};
  assert_int_equal(tn_snapshot_load(name, &trace, &err), TN_EFORMAT);
  assert_non_null(strstr(err.msg, "takes more than 128 MiB and 8 times its size of memory"));
  (void)remove(name);
  (void)snapshot_refused(data, SIZE, "takes more than 128 MiB and 8 times its size of memory");
  free(data);
}

/* Two lists that move in turn, each time a copy: quadratic, if nothing stopped it. */
static void lists_that_move_in_turn(void **state) {
  (void)state;
  enum { ITEMS = 1 << 20, TURNS = 4000 };
  char *data = malloc(2 * ITEMS + 32 * TURNS + 64), *at = data;
  assert_non_null(data);
  at = (char *)memcpy(at, "\x80\x04]\x94(", 5) + 5;
  at = (char *)memset(at, 'N', ITEMS) + ITEMS;
  at = (char *)memcpy(at, "e]\x94(", 4) + 4;
  at = (char *)memset(at, 'N', ITEMS) + ITEMS;
  *at++ = 'e';
  for (int i = 0; i < TURNS; i++) at = (char *)memcpy(at, "h\0Na0h\1Na0", 10) + 10;
  *at++ = '.';
  (void)snapshot_refused(data, (size_t)(at - data), "takes more than 128 MiB and 8 times its size of memory");
  free(data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(closed_while_others_are_open),    cmocka_unit_test(two_that_grow_in_turn),
      cmocka_unit_test(equal_frames_and_stacks_are_one), cmocka_unit_test(stacks_against_a_search),
      cmocka_unit_test(different_stacks_of_one_hash),    cmocka_unit_test(texts_are_one),
      cmocka_unit_test(a_file_made_to_fill_memory),      cmocka_unit_test(lists_that_move_in_turn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

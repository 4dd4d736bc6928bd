/* layout and accounting: at any moment of random histories the segments add up to what is reserved, blocks and holes tile them, and
 * every byte has a cause. */
#include "explain/accounting.h"
#include "explain/stacks.h"

#include "memory.h"

static void random_history(memory *m, const char *conf, uint64_t *seed) {
  memory_open(m, conf);
  for (int i = 0; i < 300; i++) {
    uint32_t block = m->blocks.count ? (uint32_t)(tn_test_random(seed) % m->blocks.count) : 0;
    uint64_t dice = tn_test_random(seed) % 100, size = tn_test_random(seed);
    if (dice < 45 || !m->blocks.count)
      memory_alloc_on(m, 1 + size % (dice < 15 ? 2000 : dice < 30 ? MIB : 24 * MIB), TN_NONE, (uint32_t)(dice % 3 == 0), (uint32_t)(dice % 10 == 0));
    else if (dice > 97)
      memory_empty_cache(m, TN_NONE);
    else if (memory_at(m, block)->live == 1)
      memory_free_on(m, block, TN_NONE, dice % 7 == 0);
    else if (memory_at(m, block)->live == 2)
      memory_complete(m, block);
  }
}

static void assert_tiled(const tn__layout *layout) {
  size_t block = 0, hole = 0;
  tn_addr end = 0;
  for (uint32_t i = 0; i < layout->segments.count; i++) {
    const tn__layout_segment *segment = tn__vec_at(&layout->segments, i);
    assert_true(segment->addr >= end);
    tn_addr at = segment->addr;
    end = segment->addr + segment->bytes;
    while (at < end) {
      const tn__hole *next = hole < layout->holes.count ? tn__vec_at(&layout->holes, hole) : NULL;
      if (next && next->addr == at) {
        assert_int_equal(next->segment, i);
        at += next->bytes;
        hole++;
        continue;
      }
      assert_true(block < layout->blocks.count);
      const tn__span *span = &TN__SPANS(layout->history)[TN_VEC(&layout->blocks, uint32_t)[block++]];
      assert_int_equal(span->addr, at);
      at += span->bytes;
    }
    assert_int_equal(at, end);
  }
  assert_int_equal(block, layout->blocks.count);
  assert_int_equal(hole, layout->holes.count);
  assert_int_equal(layout->stray_blocks, 0);
}

static void assert_accounted(const tn__layout *layout, const tn__level *level, uint32_t stream) {
  tn__accounting a;
  uint64_t sum = 0;
  tn__account(&a, layout, *level, stream);
  for (int part = 0; part < TN__PART_COUNT; part++) sum += a.part[part];
  assert_int_equal(sum, level->reserved_bytes);
  assert_int_equal(a.part[TN__PART_UNKNOWN], 0);
  assert_int_equal(a.part[TN__PART_REQUESTED] + a.part[TN__PART_ROUNDING], level->allocated_bytes);
  assert_int_equal(a.part[TN__PART_PENDING], level->active_bytes - level->allocated_bytes);
}

static void check_moments(const tn__chronicle *c, uint64_t *seed) {
  tn__walk walk = tn__walk_begin(c);
  do {
    /* Between FREE_REQUESTED and FREE_COMPLETED, SEGMENT_ALLOC and ALLOC all holds as well. */
    if (walk.moment != c->entry_count && tn_test_random(seed) % 20) continue;
    tn__layout layout;
    memory_must(tn__layout_init(&layout, c, walk.moment), "layout");
    assert_tiled(&layout);
    assert_accounted(&layout, &walk.level, (uint32_t)(tn_test_random(seed) % 2));
    tn__layout_deinit(&layout);
  } while (tn__walk_next(&walk));
}

static void run(const char *conf) {
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 10; round++) {
    memory m;
    tn__chronicle c;
    random_history(&m, conf, &seed);
    m.skip = round % 2 ? (uint32_t)(tn_test_random(&seed) % m.entries.count) : 0;
    memory_close(&m);
    memory_must(tn__chronicle_init(&c, m.trace, 0), "chronicle");
    assert_int_equal(c.odd_count, 0);
    check_moments(&c, &seed);
    tn__chronicle_deinit(&c);
    memory_end(&m);
  }
}

static void every_moment_adds_up(void **state) {
  (void)state;
  run(NULL);
}

static void every_moment_adds_up_with_expandable_segments(void **state) {
  (void)state;
  run("expandable_segments:True");
}

/* ---- causes -------------------------------------------------------------------------------------------------------------- */

typedef struct account {
  memory m;
  tn__chronicle c;
  tn__stacks stacks;
  tn__layout layout;
  tn__accounting a;
} account;

static void account_close(account *t) {
  memory_close(&t->m);
  memory_must(tn__chronicle_init(&t->c, t->m.trace, 0), "chronicle");
  memory_must(tn__stacks_init(&t->stacks, t->m.trace), "stacks");
  memory_must(tn__layout_init(&t->layout, &t->c, t->c.entry_count), "layout");
  tn__account(&t->a, &t->layout, t->c.last, 0);
}

static void account_end(account *t) {
  tn__layout_deinit(&t->layout);
  tn__stacks_deinit(&t->stacks);
  tn__chronicle_deinit(&t->c);
  memory_end(&t->m);
}

static void each_cause_by_its_name(void **state) {
  (void)state;
  account t;
  memory_open(&t.m, NULL);
  memory_alloc(&t.m, 12 * MIB, TN_NONE);                                   /* a segment of its own */
  memory_free(&t.m, memory_alloc(&t.m, 30 * MIB, TN_NONE), TN_NONE);       /* wholly free: 30 MiB */
  memory_alloc(&t.m, 2 * MIB, TN_NONE);                                    /* from those: 28 MiB are a hole */
  memory_free(&t.m, memory_alloc(&t.m, 40 * MIB, TN_NONE), TN_NONE);       /* wholly free */
  memory_alloc_on(&t.m, 4 * MIB, TN_NONE, 1, 0);                           /* 16 of 20 MiB free for stream 1 only */
  memory_alloc_on(&t.m, 5 * MIB, TN_NONE, 0, 1);                           /* 15 of 20 MiB free in a graph's pool */
  memory_free_on(&t.m, memory_alloc_on(&t.m, 16 * MIB, TN_NONE, 1, 0), TN_NONE, 1); /* takes those 16, waits for a stream */
  memory_alloc_on(&t.m, 6 * MIB + 1, TN_NONE, 1, 0);                       /* a new one of 20 MiB, 511 bytes of rounding */
  account_close(&t);
  assert_int_equal(t.a.part[TN__PART_IDLE], 40 * MIB);
  assert_int_equal(t.a.part[TN__PART_HOLES], 28 * MIB);
  assert_int_equal(t.a.largest_hole_bytes, 40 * MIB);
  assert_int_equal(t.a.part[TN__PART_PRIVATE_POOLS], 15 * MIB);
  assert_int_equal(t.a.part[TN__PART_PENDING], 16 * MIB);
  assert_int_equal(t.a.part[TN__PART_OTHER_STREAMS], 14 * MIB - 512);
  assert_int_equal(t.a.part[TN__PART_ROUNDING], 511);
  assert_int_equal(t.a.idle_segments, 1);
  account_end(&t);
}

/* Whole pages of an expandable segment can be unmapped although blocks lie beside them. */
static void free_pages_of_expandable_segments_are_idle(void **state) {
  (void)state;
  account t;
  memory_open(&t.m, "expandable_segments:True");
  memory_alloc(&t.m, 10 * MIB, TN_NONE);
  uint32_t middle = memory_alloc(&t.m, 60 * MIB, TN_NONE);
  memory_alloc(&t.m, 10 * MIB, TN_NONE);
  memory_free(&t.m, middle, TN_NONE);
  account_close(&t);
  assert_int_equal(t.a.level.reserved_bytes, 80 * MIB);
  assert_int_equal(t.a.part[TN__PART_IDLE], 40 * MIB); /* pages 2 and 3 of four */
  assert_int_equal(t.a.part[TN__PART_HOLES], 20 * MIB);
  account_end(&t);
}

static void pins_are_the_neighbours_of_holes(void **state) {
  (void)state;
  account t;
  tn_vec pins;
  memory_open(&t.m, NULL);
  uint32_t one = memory_stack(&t.m, "a.py:1 one", NULL), other = memory_stack(&t.m, "a.py:2 other", NULL);
  uint32_t segment = memory_alloc(&t.m, 40 * MIB, one);
  memory_free(&t.m, segment, one);
  memory_alloc(&t.m, 2 * MIB, one);
  uint32_t middle = memory_alloc(&t.m, 20 * MIB, one);
  memory_alloc(&t.m, 8 * MIB, other);
  memory_free(&t.m, middle, one);
  account_close(&t); /* 2 one, 20 free, 8 other, 10 free */
  tn__vec_init(&pins, sizeof(tn__pin));
  memory_must(tn__pins_gather(&pins, &t.layout, &t.stacks, 0), "pins");
  assert_int_equal(pins.count, 2);
  const tn__pin *first = tn__vec_at(&pins, 0), *second = tn__vec_at(&pins, 1);
  assert_int_equal(first->stack, other);
  assert_int_equal(first->free_bytes, 20 * MIB);
  assert_int_equal(first->block_bytes, 8 * MIB);
  assert_int_equal(first->blocks, 1);
  assert_int_equal(second->stack, one);
  assert_int_equal(second->free_bytes, 10 * MIB);
  tn__vec_deinit(&pins);
  account_end(&t);
}

static int scenario(void *user) {
  account *t = user;
  tn__layout layout;
  tn_vec pins;
  tn__vec_init(&pins, sizeof(tn__pin));
  int rc = tn__layout_init(&layout, &t->c, t->c.entry_count / 2);
  if (!rc) rc = tn__pins_gather(&pins, &layout, &t->stacks, 0);
  tn__vec_deinit(&pins);
  tn__layout_deinit(&layout);
  return rc;
}

static void survives_running_out_of_memory(void **state) {
  (void)state;
  static const char *const confs[] = {NULL, "expandable_segments:True"};
  for (int i = 0; i < 2; i++) {
    account t;
    uint64_t seed = 3;
    random_history(&t.m, confs[i], &seed);
    account_close(&t);
    assert_true(tn_test_sweep(scenario, &t) > 5);
    account_end(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_moment_adds_up),
      cmocka_unit_test(every_moment_adds_up_with_expandable_segments),
      cmocka_unit_test(each_cause_by_its_name),
      cmocka_unit_test(free_pages_of_expandable_segments_are_idle),
      cmocka_unit_test(pins_are_the_neighbours_of_holes),
      cmocka_unit_test(survives_running_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

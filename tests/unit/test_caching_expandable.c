/* test_caching_expandable.c -- the caching model with expandable_segments. */
#include "caching/caching.h"
#include "helper.h"

#define MIB ((uint64_t)1 << 20)

enum { TOTAL_MIB = 160, RESERVATION_MIB = 180 }; /* nine eighths of it */

typedef struct fixture {
  tn_caching *caching;
  char log[400]; /* "m0+20 " = 20 MiB mapped at the reservation's start, "u" unmapped */
  tn_addr base;  /* of the last reservation */
  uint64_t reservation_bytes;
} fixture;

static tn_addr reserve(void *user, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream) {
  fixture *f = user;
  (void)stream;
  assert_int_equal(kind, TN_SEGMENT_MAP);
  f->base += (uint64_t)1 << 40;
  f->reservation_bytes = bytes;
  return f->base;
}

static void hear(void *user, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream) {
  fixture *f = user;
  size_t len = strlen(f->log);
  (void)stream;
  (void)snprintf(f->log + len, sizeof f->log - len, "%c%d+%d ", "?afmu"[kind], (int)((addr - f->base) / MIB), (int)(bytes / MIB));
}

static void make(fixture *f, uint64_t limit_bytes) {
  *f = (fixture){0};
  tn_caching_config config = {.total_bytes = TOTAL_MIB * MIB,
                              .limit_bytes = limit_bytes,
                              .conf.expandable_segments = 1,
                              .segment_addr = reserve,
                              .segment_event = hear,
                              .user = f};
  assert_int_equal(tn_caching_new(&config, &f->caching), TN_OK);
}

static tn_addr alloc(fixture *f, uint64_t bytes) {
  tn_addr addr = 0;
  assert_int_equal(tn_caching_alloc(f->caching, bytes, 0, &addr), TN_OK);
  return addr;
}

static void dealloc(fixture *f, tn_addr addr) { assert_int_equal(tn_caching_dealloc(f->caching, addr), TN_OK); }

static tn_caching_stats stats_of(const fixture *f) {
  tn_caching_stats stats;
  tn_caching_get_stats(f->caching, &stats);
  return stats;
}

/* Pages are mapped as they are needed, and the free end of the last one counts. */
static void test_grows_by_pages(void **state) {
  (void)state;
  fixture f;
  make(&f, 0);
  tn_addr a = alloc(&f, 15 * MIB), b = alloc(&f, 15 * MIB), c = alloc(&f, 10 * MIB);
  assert_int_equal(f.reservation_bytes, RESERVATION_MIB * MIB);
  assert_int_equal(b, a + 15 * MIB);
  assert_int_equal(c, b + 15 * MIB);
  assert_string_equal(f.log, "m0+20 m20+20 ");
  assert_int_equal(stats_of(&f).reserved_bytes.current, 40 * MIB);
  assert_int_equal(stats_of(&f).segment.current, 0); /* PyTorch counts cudaMalloc'ed ones only */
  assert_int_equal(stats_of(&f).inactive_split.allocated, 0);
  tn_caching_free(f.caching);
}

static void test_small_pool_has_its_own(void **state) {
  (void)state;
  fixture f;
  make(&f, 0);
  alloc(&f, MIB);
  alloc(&f, MIB);
  alloc(&f, 512);
  assert_string_equal(f.log, "m0+2 m2+2 ");
  alloc(&f, 2 * MIB);
  assert_string_equal(f.log, "m0+2 m2+2 m0+20 ");
  tn_caching_free(f.caching);
}

/* A remainder of 512 bytes is cut off, unlike in a cudaMalloc'ed large segment. */
static void test_always_splits(void **state) {
  (void)state;
  fixture f;
  make(&f, 0);
  alloc(&f, 20 * MIB - 512);
  assert_int_equal(stats_of(&f).allocated_bytes.current, 20 * MIB - 512);
  tn_caching_free(f.caching);
}

/* The free block at the end of what is mapped is the last choice, for it could grow. */
static void test_growable_block_is_spared(void **state) {
  (void)state;
  fixture f;
  make(&f, 0);
  tn_addr hole = alloc(&f, 10 * MIB), wall = alloc(&f, 2 * MIB); /* 8 MiB are free behind it */
  (void)wall;
  dealloc(&f, hole);
  assert_int_equal(alloc(&f, 7 * MIB), hole);
  tn_caching_free(f.caching);
}

static void test_unmaps_whole_pages(void **state) {
  (void)state;
  fixture f;
  make(&f, 0);
  tn_addr a = alloc(&f, 10 * MIB), b = alloc(&f, 70 * MIB), c = alloc(&f, 10 * MIB);
  dealloc(&f, b);
  f.log[0] = '\0';
  assert_int_equal(tn_caching_empty_cache(f.caching), TN_OK);
  assert_string_equal(f.log, "u20+60 "); /* not the 10 MiB before, nor the 10 MiB after c */
  assert_int_equal(stats_of(&f).reserved_bytes.current, 40 * MIB);
  f.log[0] = '\0';
  assert_int_equal(alloc(&f, 70 * MIB), a + 10 * MIB); /* the hole is mapped again */
  assert_string_equal(f.log, "m20+60 ");
  dealloc(&f, a);
  dealloc(&f, b);
  dealloc(&f, c);
  f.log[0] = '\0';
  tn_addr base = f.base;
  assert_int_equal(tn_caching_empty_cache(f.caching), TN_OK);
  assert_string_equal(f.log, "u0+100 ");
  assert_int_equal(stats_of(&f).reserved_bytes.current, 0);
  alloc(&f, 2 * MIB); /* the reservation went with its last page */
  assert_true(f.base != base);
  tn_caching_free(f.caching);
}

static void test_second_reservation(void **state) {
  (void)state;
  fixture f;
  make(&f, 0);
  tn_addr a = alloc(&f, 100 * MIB), b = alloc(&f, 100 * MIB);
  assert_true(b - a >= (uint64_t)1 << 39);
  assert_string_equal(f.log, "m0+100 m0+100 ");
  tn_addr out;
  assert_int_equal(tn_caching_alloc(f.caching, 181 * MIB, 0, &out), TN_ELIMIT); /* longer than a reservation */
  tn_caching_free(f.caching);
}

/* The limit is tested with the size a cudaMalloc'ed segment would have: 20 MiB for a request of 2. */
static void test_limit(void **state) {
  (void)state;
  fixture f;
  make(&f, 50 * MIB);
  tn_addr a = alloc(&f, 40 * MIB), out;
  assert_int_equal(tn_caching_alloc(f.caching, 2 * MIB, 0, &out), TN_ELIMIT);
  dealloc(&f, a);
  f.log[0] = '\0';
  alloc(&f, 45 * MIB); /* 40 + 46 is too much: everything is unmapped, a new reservation made; 45 round up to 60 */
  assert_string_equal(f.log, "u0+40 m0+60 ");
  assert_int_equal(stats_of(&f).num_alloc_retries, 2);
  assert_int_equal(stats_of(&f).num_ooms, 1);
  assert_int_equal(stats_of(&f).reserved_bytes.current, 60 * MIB);
  tn_caching_free(f.caching);
}

static void segments(void *user, tn_addr segment, tn_addr addr, uint64_t bytes, uint64_t requested, int live) {
  char *text = user;
  size_t len = strlen(text);
  (void)requested;
  (void)snprintf(text + len, 100 - len, "%d/%d+%d%c ", (int)(segment / MIB % 1048576), (int)(addr / MIB % 1048576),
                 (int)(bytes / MIB), live ? '*' : '.');
}

/* What is mapped in a row shows as one segment. */
static void test_walk(void **state) {
  (void)state;
  fixture f;
  char text[100] = "";
  make(&f, 0);
  alloc(&f, 10 * MIB);
  tn_addr b = alloc(&f, 30 * MIB);
  alloc(&f, 10 * MIB);
  dealloc(&f, b);
  assert_int_equal(tn_caching_empty_cache(f.caching), TN_OK);
  tn_caching_walk(f.caching, segments, text);
  assert_string_equal(text, "0/0+10* 0/10+10. 40/40+10* 40/50+10. ");
  tn_caching_free(f.caching);
}

/* A plan ran within its budget and still retried in every step: a request that only had to grow a free block was tested in full. */
static void test_limit_needed(void **state) {
  (void)state;
  for (uint64_t limit = 119 * MIB; limit <= 120 * MIB; limit += MIB) {
    fixture f;
    make(&f, limit);
    alloc(&f, 10 * MIB);
    dealloc(&f, alloc(&f, 50 * MIB));
    assert_int_equal(tn_caching_limit_needed(f.caching), 70 * MIB); /* 20 + 50, of which 40 were mapped */
    tn_caching_reset_peaks(f.caching);
    assert_int_equal(tn_caching_limit_needed(f.caching), 60 * MIB);
    alloc(&f, 60 * MIB); /* 50 are free at the end and 10 more would do, but 60 + 60 are tested */
    assert_int_equal(tn_caching_limit_needed(f.caching), 120 * MIB);
    assert_int_equal(stats_of(&f).num_alloc_retries, limit < 120 * MIB);
    assert_int_equal(stats_of(&f).reserved_bytes.current, 80 * MIB);
    tn_caching_free(f.caching);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_grows_by_pages),          cmocka_unit_test(test_small_pool_has_its_own),
      cmocka_unit_test(test_always_splits),           cmocka_unit_test(test_growable_block_is_spared),
      cmocka_unit_test(test_unmaps_whole_pages),      cmocka_unit_test(test_second_reservation),
      cmocka_unit_test(test_limit),                   cmocka_unit_test(test_walk),
      cmocka_unit_test(test_limit_needed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

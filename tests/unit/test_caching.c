/* test_caching.c -- the caching model under default settings, rule by rule. */
#include "caching/caching.h"
#include "helper.h"

#define MIB ((uint64_t)1 << 20)

static tn_caching *model(uint64_t limit_bytes) {
  tn_caching_config config = {.limit_bytes = limit_bytes};
  tn_caching *caching;
  assert_int_equal(tn_caching_new(&config, &caching), TN_OK);
  return caching;
}

static tn_addr alloc(tn_caching *caching, uint64_t bytes) {
  tn_addr addr = 0;
  assert_int_equal(tn_caching_alloc(caching, bytes, 0, &addr), TN_OK);
  return addr;
}

static void dealloc(tn_caching *caching, tn_addr addr) { assert_int_equal(tn_caching_dealloc(caching, addr), TN_OK); }

static tn_caching_stats stats_of(const tn_caching *caching) {
  tn_caching_stats stats;
  tn_caching_get_stats(caching, &stats);
  return stats;
}

static void test_round(void **state) {
  (void)state;
  assert_int_equal(tn_caching_round(0), 0);
  assert_int_equal(tn_caching_round(1), 512);
  assert_int_equal(tn_caching_round(512), 512);
  assert_int_equal(tn_caching_round(513), 1024);
  assert_int_equal(tn_caching_round(3 * MIB + 1), 3 * MIB + 512);
  assert_true(tn_caching_round(UINT64_MAX) == UINT64_MAX - 511);
}

static void test_segment_bytes(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  assert_int_equal(tn__segment_bytes(caching, 512), 2 * MIB);
  assert_int_equal(tn__segment_bytes(caching, MIB), 2 * MIB);
  assert_int_equal(tn__segment_bytes(caching, MIB + 512), 20 * MIB);
  assert_int_equal(tn__segment_bytes(caching, 10 * MIB - 512), 20 * MIB);
  assert_int_equal(tn__segment_bytes(caching, 10 * MIB), 10 * MIB);
  assert_int_equal(tn__segment_bytes(caching, 11 * MIB), 12 * MIB);
  tn_caching_free(caching);
}

static void test_nothing_asked(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  tn_addr addr = 7;
  assert_int_equal(tn_caching_alloc(caching, 0, 0, &addr), TN_OK);
  assert_int_equal(addr, 0);
  assert_int_equal(tn_caching_dealloc(caching, 0), TN_OK);
  assert_int_equal(stats_of(caching).allocation.allocated, 0);
  tn_caching_free(caching);
  tn_caching_free(NULL);
}

static void test_split_and_merge(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  tn_addr a = alloc(caching, 1000), b = alloc(caching, 1000), c = alloc(caching, 1000);
  assert_int_equal(b, a + 1024);
  assert_int_equal(c, a + 2048);
  tn_caching_stats stats = stats_of(caching);
  assert_int_equal(stats.reserved_bytes.current, 2 * MIB);
  assert_int_equal(stats.allocated_bytes.current, 3 * 1024);
  assert_int_equal(stats.requested_bytes.current, 3000);
  assert_int_equal(stats.inactive_split.current, 1);
  assert_int_equal(stats.inactive_split_bytes.current, 2 * MIB - 3 * 1024);
  dealloc(caching, a);
  dealloc(caching, c); /* joins the rest */
  assert_int_equal(stats_of(caching).inactive_split.current, 2);
  dealloc(caching, b); /* joins both: whole again, no longer split */
  stats = stats_of(caching);
  assert_int_equal(stats.inactive_split.current, 0);
  assert_int_equal(stats.inactive_split_bytes.current, 0);
  assert_int_equal(stats.reserved_bytes.current, 2 * MIB);
  assert_int_equal(stats.allocated_bytes.peak, 3 * 1024);
  tn_caching_free(caching);
}

/* A large segment is cut only if more than 1 MiB would be left over. */
static void test_large_remainder(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  alloc(caching, 11 * MIB); /* of 12 MiB */
  assert_int_equal(stats_of(caching).allocated_bytes.current, 12 * MIB);
  alloc(caching, 11 * MIB - 512);
  assert_int_equal(stats_of(caching).allocated_bytes.current, 23 * MIB - 512);
  tn_caching_free(caching);
}

/* The smallest block that fits; of equals the lowest address. */
static void test_best_fit(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  tn_addr a = alloc(caching, 4096), wall_a = alloc(caching, 512);
  tn_addr b = alloc(caching, 2048), wall_b = alloc(caching, 512);
  tn_addr c = alloc(caching, 2048), wall_c = alloc(caching, 512);
  (void)wall_a, (void)wall_b, (void)wall_c;
  dealloc(caching, a);
  dealloc(caching, c);
  dealloc(caching, b);
  assert_int_equal(alloc(caching, 1537), b);
  assert_int_equal(alloc(caching, 1537), c);
  assert_int_equal(alloc(caching, 1537), a);
  tn_caching_free(caching);
}

static void test_streams_do_not_share(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  tn_addr other;
  dealloc(caching, alloc(caching, 512));
  assert_int_equal(tn_caching_alloc(caching, 512, 7, &other), TN_OK);
  assert_int_equal(stats_of(caching).segment.current, 2);
  tn_caching_free(caching);
}

static void test_dealloc_unknown(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  tn_addr a = alloc(caching, 512);
  assert_int_equal(tn_caching_dealloc(caching, a + 512), TN_ENOENT);
  dealloc(caching, a);
  assert_int_equal(tn_caching_dealloc(caching, a), TN_ENOENT);
  tn_caching_free(caching);
}

static void test_empty_cache(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  tn_addr whole = alloc(caching, 30 * MIB), part = alloc(caching, 3 * MIB);
  dealloc(caching, whole);
  assert_int_equal(tn_caching_empty_cache(caching), TN_OK);
  tn_caching_stats stats = stats_of(caching);
  assert_int_equal(stats.reserved_bytes.current, 20 * MIB); /* the segment of part stays */
  assert_int_equal(stats.reserved_bytes.peak, 50 * MIB);
  assert_int_equal(stats.num_device_free, 1);
  assert_int_equal(stats.num_sync_all_streams, 1);
  dealloc(caching, part);
  tn_caching_reset_peaks(caching);
  assert_int_equal(stats_of(caching).allocated_bytes.peak, 0);
  assert_int_equal(stats_of(caching).reserved_bytes.peak, 20 * MIB);
  tn_caching_free(caching);
}

/* Over the limit: cached segments are given back, then the driver is asked again. */
static void test_limit_retry(void **state) {
  (void)state;
  tn_caching *caching = model(40 * MIB);
  dealloc(caching, alloc(caching, 20 * MIB));
  alloc(caching, 30 * MIB);
  tn_caching_stats stats = stats_of(caching);
  assert_int_equal(stats.num_alloc_retries, 1);
  assert_int_equal(stats.num_ooms, 0);
  assert_int_equal(stats.reserved_bytes.current, 30 * MIB);
  tn_caching_free(caching);
}

static void test_limit_exceeded(void **state) {
  (void)state;
  tn_caching *caching = model(40 * MIB);
  tn_addr out = 7;
  alloc(caching, 20 * MIB);
  assert_int_equal(tn_caching_alloc(caching, 20 * MIB + 1, 0, &out), TN_ELIMIT);
  assert_int_equal(out, 7);
  assert_int_equal(tn_caching_alloc(caching, UINT64_MAX, 0, &out), TN_ELIMIT);
  assert_int_equal(stats_of(caching).num_ooms, 2);
  alloc(caching, 20 * MIB); /* and goes on */
  tn_caching_free(caching);
}

/* #1: sizes near 2^64 must not wrap into something that fits. */
static void test_no_device_is_that_large(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  tn_addr out;
  assert_int_equal(tn_caching_alloc(caching, UINT64_MAX, 0, &out), TN_ELIMIT);
  assert_int_equal(tn_caching_alloc(caching, (uint64_t)1 << 60, 0, &out), TN_ELIMIT);
  assert_int_equal(tn_caching_new(&(tn_caching_config){.total_bytes = UINT64_MAX}, &caching), TN_EINVAL);
  tn_caching_free(caching);
}

typedef struct driver {
  tn_addr next;
  char log[128]; /* kinds of the events, "a" alloc "f" free */
} driver;

static tn_addr driver_addr(void *user, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream) {
  (void)kind, (void)bytes, (void)stream;
  return ((driver *)user)->next;
}

static void driver_event(void *user, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream) {
  (void)addr, (void)bytes, (void)stream;
  driver *d = user;
  d->log[strlen(d->log)] = "?afmu"[kind];
}

static void test_driver(void **state) {
  (void)state;
  driver d = {.next = 64 * MIB};
  tn_caching_config config = {.segment_addr = driver_addr, .segment_event = driver_event, .user = &d};
  tn_caching *caching;
  tn_addr out;
  assert_int_equal(tn_caching_new(&config, &caching), TN_OK);
  assert_int_equal(alloc(caching, 20 * MIB), 64 * MIB);
  /* An address that is taken already is the caller's mistake. */
  assert_int_equal(tn_caching_alloc(caching, 20 * MIB, 0, &out), TN_EINVAL);
  d.next = 84 * MIB - 512;
  assert_int_equal(tn_caching_alloc(caching, 20 * MIB, 0, &out), TN_EINVAL);
  d.next = 44 * MIB + 512;
  assert_int_equal(tn_caching_alloc(caching, 20 * MIB, 0, &out), TN_EINVAL);
  d.next = UINT64_MAX - MIB;
  assert_int_equal(tn_caching_alloc(caching, 20 * MIB, 0, &out), TN_EINVAL);
  d.next = 44 * MIB;
  assert_int_equal(alloc(caching, 20 * MIB), 44 * MIB);
  dealloc(caching, 44 * MIB);
  d.next = 0; /* the driver has no more: what is cached goes back, in vain */
  assert_int_equal(tn_caching_alloc(caching, 30 * MIB, 0, &out), TN_ELIMIT);
  assert_string_equal(d.log, "aaf");
  assert_int_equal(stats_of(caching).num_ooms, 1);
  tn_caching_free(caching);
}

/* Segments lie one below the other, from 2^63 down: how far below in MiB, and where in it the block is in steps of 512. */
static void describe(void *user, tn_addr segment, tn_addr addr, uint64_t bytes, uint64_t requested, int state) {
  char *text = user;
  size_t len = strlen(text);
  (void)snprintf(text + len, 200 - len, "-%d/%d+%d:%d%c ", (int)((((tn_addr)1 << 63) - segment) / MIB),
                 (int)((addr - segment) / 512), (int)(bytes / 512), (int)requested, ".*w"[state]);
}

static void test_walk(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  char text[200] = "";
  tn_addr a = alloc(caching, 1000);
  alloc(caching, 600);
  alloc(caching, 20 * MIB);
  dealloc(caching, a);
  tn_caching_walk(caching, describe, text);
  assert_string_equal(text, "-26/0+40960:20971520* -4/0+2:0. -4/2+2:600* -4/4+4092:0. ");
  tn_caching_free(caching);
}

/* The checker must be able to fail. */
static void test_check_finds_damage(void **state) {
  (void)state;
  tn_caching *caching = model(0);
  const char *broken = NULL;
  tn_addr a = alloc(caching, 1000);
  tn__block *block = tn__block_by_id(&caching->store, tn__map_get(&caching->held, a));
  assert_true(tn__caching_check(caching, &broken));
  assert_null(broken);
  block->bytes += 512;
  assert_false(tn__caching_check(caching, &broken));
  assert_string_equal(broken, "blocks do not tile their segment");
  block->bytes -= 512;
  block->next->state = TN__BLOCK_UNMAPPED;
  assert_false(tn__caching_check(caching, &broken));
  assert_string_equal(broken, "an unmapped block in a segment that is not expandable");
  block->next->state = TN__BLOCK_FREE;
  caching->stats.reserved_bytes.current--;
  assert_false(tn__caching_check(caching, &broken));
  assert_string_equal(broken, "reserved_bytes");
  tn_caching_free(caching);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round),
      cmocka_unit_test(test_segment_bytes),
      cmocka_unit_test(test_nothing_asked),
      cmocka_unit_test(test_split_and_merge),
      cmocka_unit_test(test_large_remainder),
      cmocka_unit_test(test_best_fit),
      cmocka_unit_test(test_streams_do_not_share),
      cmocka_unit_test(test_dealloc_unknown),
      cmocka_unit_test(test_empty_cache),
      cmocka_unit_test(test_limit_retry),
      cmocka_unit_test(test_limit_exceeded),
      cmocka_unit_test(test_no_device_is_that_large),
      cmocka_unit_test(test_driver),
      cmocka_unit_test(test_walk),
      cmocka_unit_test(test_check_finds_damage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

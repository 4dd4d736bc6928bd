/* helper.h -- what every unit test includes: cmocka, and the out-of-memory sweep. */
#ifndef TN_TESTS_HELPER_H
#define TN_TESTS_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka must come after the four above */
#include <cmocka.h>

#include "base/mem.h"
#include "tonnage.h"

/* cmocka's own compares as float. */
#define assert_double_near(a, b, tolerance) assert_true((a) - (b) <= (tolerance) && (b) - (a) <= (tolerance))

/* Fails allocation 1, 2, 3 ... of scenario(user) until it succeeds.  The scenario makes its objects, works, and frees them: it
 * returns TN_ENOMEM when an allocation failed and TN_OK otherwise, and leaks nothing either way.  Returns the number of
 * allocations that were failed.  SQLite's and jansson's own allocations are not among them. */
static inline uint64_t tn_test_sweep(int (*scenario)(void *user), void *user) {
  for (uint64_t n = 1;; n++) {
    int64_t live = tn__mem_live();
    tn__mem_fail_at(n);
    int rc = scenario(user);
    int fired = tn__mem_fail_fired();
    tn__mem_fail_at(0);
    if (tn__mem_live() != live) fail_msg("%d allocations leaked when number %d failed", (int)(tn__mem_live() - live), (int)n);
    if (!fired) {
      assert_int_equal(rc, TN_OK);
      return n - 1;
    }
    if (rc != TN_ENOMEM) fail_msg("returned %d (%s) when allocation %d failed", rc, tn_error_name(rc), (int)n);
  }
}

/* Random numbers for tests that compare with a naive model.  The seed comes from TONNAGE_SEED or is 1; print it. */
static inline uint64_t tn_test_seed(void) {
  const char *text = getenv("TONNAGE_SEED");
  uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
  print_message("seed %llu\n", (unsigned long long)seed);
  return seed;
}

static inline uint64_t tn_test_random(uint64_t *state) { /* splitmix64 */
  uint64_t x = (*state += 0x9e3779b97f4a7c15u);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

#endif

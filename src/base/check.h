/* check.h -- assertions at three levels of cost.  Why: invariants are stated everywhere, and paid for only where it is wanted.
 *
 * Callers: every module.  TN_CHECK_LEVEL: 0 release, 1 debug builds, 2 sanitizer builds (loops over small things),
 * 3 the walkers tn_<type>_check() after every mutation.  Input is checked by code, never by these. */
#ifndef TN_BASE_CHECK_H
#define TN_BASE_CHECK_H

#ifndef TN_CHECK_LEVEL
#define TN_CHECK_LEVEL 0
#endif

#define TN_CHECK_AT(level, what) ((void)(TN_CHECK_LEVEL < (level) || ((what) ? 1 : (tn__check_failed(#what, __FILE__, __LINE__), 0))))
#define tn_assert(what) TN_CHECK_AT(1, what)
#define tn_assert_slow(what) TN_CHECK_AT(2, what)
#define tn_assert_walk(what) TN_CHECK_AT(3, what)

#ifdef __cplusplus
extern "C" {
#endif

/* Prints the broken invariant and aborts: the program is wrong, not its input. */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void tn__check_failed(const char *what, const char *file, int line);

#ifdef __cplusplus
}
#endif
#endif

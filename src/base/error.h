/* error.h -- filling tn_error, and passing codes on.
 *
 * Callers: every module.  A function that can fail returns a code and, when it was given a tn_error, leaves one line in it.
 * Thread-safe: no state. */
#ifndef TN_BASE_ERROR_H
#define TN_BASE_ERROR_H

#include <stdarg.h>

#include "tonnage.h"

#if defined(__GNUC__)
#define TN_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#else
#define TN_PRINTF(format_at, args_at)
#endif

/* Returns from the calling function when call fails.  Only where there is nothing to release. */
#define TN_TRY(call)                    \
  do {                                  \
    int tn_try_code = (call);           \
    if (tn_try_code) return tn_try_code; \
  } while (0)

#ifdef __cplusplus
extern "C" {
#endif

/* Fills *err (may be NULL) and returns code, so that it can end a function: return tn__error_set(err, TN_EINVAL, "...", ...).
 * format NULL = the list's own text.  Control characters become '?', so the message is one line whatever the input held. */
int tn__error_set(tn_error *err, int code, const char *format, ...) TN_PRINTF(3, 4);
int tn__error_set_v(tn_error *err, int code, const char *format, va_list args);
/* The same with a place in the input. */
int tn__error_set_at(tn_error *err, int code, uint64_t offset, uint32_t record, const char *format, ...) TN_PRINTF(5, 6);

#ifdef __cplusplus
}
#endif
#endif

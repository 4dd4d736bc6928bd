/* mem.h -- the only way to host memory.  Why: tests make the n-th allocation fail, and count what was not given back.
 *
 * Callers: every module.  Plain malloc() and friends in the shipped library; built with TN_TESTING, each thread counts its
 * allocations and can be told which one fails (tests/unit/helper.h has the sweep).  Thread-safe. */
#ifndef TN_BASE_MEM_H
#define TN_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each returns NULL when memory is out or the size overflows.  A size of 0 gives a pointer that may be freed. */
void *tn__mem_alloc(size_t bytes);
void *tn__mem_zalloc(size_t count, size_t item_bytes); /* zeroed */
void *tn__mem_realloc(void *old, size_t bytes);        /* old may be NULL; on failure old stays valid */
void *tn__mem_realloc_array(void *old, size_t count, size_t item_bytes);
char *tn__mem_strdup(const char *text);
char *tn__mem_strndup(const char *text, size_t len); /* copies len bytes and adds a NUL */
void tn__mem_free(void *mem);                        /* NULL is legal */

#ifdef TN_TESTING
void tn__mem_fail_at(uint64_t n);  /* the n-th allocation of this thread from now on fails, once; 0 = none */
int tn__mem_fail_fired(void);      /* 1 when that failure has happened */
int64_t tn__mem_live(void);        /* allocations minus frees of this thread */
#endif

#ifdef __cplusplus
}
#endif
#endif

/* mem.c -- the only file that calls malloc().  See mem.h. */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

#ifdef TN_TESTING

static _Thread_local uint64_t fail_countdown;
static _Thread_local int fail_fired;
static _Thread_local int64_t live;

void tn__mem_fail_at(uint64_t n) {
  fail_countdown = n;
  fail_fired = 0;
}

int tn__mem_fail_fired(void) { return fail_fired; }
int64_t tn__mem_live(void) { return live; }

static int fault(void) {
  if (fail_countdown == 0 || --fail_countdown > 0) return 0;
  fail_fired = 1;
  return 1;
}

static void *counted(void *mem) {
  if (mem) live++;
  return mem;
}

#else

static int fault(void) { return 0; }
static void *counted(void *mem) { return mem; }

#endif

/* Large arrays on large pages: half the page faults of reading a million records, a twentieth of the time.  Whole mappings, since one
 * in parts could not be moved when the array grows.  Advice only: where the system does not take it nothing changes. */
static void *on_large_pages(void *mem, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (mem && bytes >= (size_t)8 << 20) {
    uintptr_t begin = (uintptr_t)mem & ~(uintptr_t)4095, end = ((uintptr_t)mem + bytes + 4095) & ~(uintptr_t)4095;
    (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
  }
#else
  (void)bytes;
#endif
  return mem;
}

void *tn__mem_alloc(size_t bytes) { return fault() ? NULL : on_large_pages(counted(malloc(bytes ? bytes : 1)), bytes); }

void *tn__mem_zalloc(size_t count, size_t item_bytes) {
  if (fault()) return NULL;
  return counted(count && item_bytes ? calloc(count, item_bytes) : calloc(1, 1));
}

void *tn__mem_realloc(void *old, size_t bytes) {
  if (!old) return tn__mem_alloc(bytes);
  return fault() ? NULL : on_large_pages(realloc(old, bytes ? bytes : 1), bytes);
}

void *tn__mem_realloc_array(void *old, size_t count, size_t item_bytes) {
  if (item_bytes && count > SIZE_MAX / item_bytes) return NULL;
  return tn__mem_realloc(old, count * item_bytes);
}

char *tn__mem_strndup(const char *text, size_t len) {
  if (len == SIZE_MAX) return NULL;
  char *copy = tn__mem_alloc(len + 1);
  if (!copy) return NULL;
  if (len) memcpy(copy, text, len);
  copy[len] = '\0';
  return copy;
}

char *tn__mem_strdup(const char *text) { return tn__mem_strndup(text, strlen(text)); }

void tn__mem_free(void *mem) {
#ifdef TN_TESTING
  if (mem) live--;
#endif
  free(mem);
}

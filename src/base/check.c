/* check.c -- where a broken invariant ends.  See check.h. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void tn__check_failed(const char *what, const char *file, int line) {
  fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, what);
  abort();
}

/* A size parser must take any bytes: no crash, and what it accepts must survive printing and parsing again. */
#include <stdlib.h>
#include <string.h>

#include "tonnage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text) return 0;
  if (size) memcpy(text, data, size);
  text[size] = '\0';
  uint64_t bytes = 0, back = 0;
  tn_error err = {0};
  if (tn_size_parse(text, &bytes, &err) == TN_OK) {
    char buf[32];
    /* The largest sizes round up to 2^64, which is no size. */
    if (bytes < UINT64_MAX - (1ull << 40) && tn_size_parse(tn_size_format(bytes, buf, sizeof buf), &back, &err)) abort();
  } else if (err.code != TN_EINVAL || !err.msg[0] || strchr(err.msg, '\n')) {
    abort();
  }
  free(text);
  return 0;
}

/* A profile reader must take any bytes: no crash, one line of error, and whatever it accepts must be usable. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tonnage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const tn_profile *profile) {
  tn_op op = {.rate = TN_RATE_FP32, .flops = 1e9, .bytes_moved = 1e6, .seconds = -1};
  double seconds = tn_profile_op_seconds(profile, &op);
  if (!(seconds > 0) || profile->context_bytes >= profile->total_bytes) abort();
  if (!profile->name[0] || !memchr(profile->name, 0, sizeof profile->name)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text) return 0;
  if (size) memcpy(text, data, size);
  text[size] = '\0';
  tn_profile profile;
  tn_error err = {0};
  if (tn_profile_parse(text, &profile, &err) == TN_OK)
    check_accepted(&profile);
  else if (err.code != TN_EFORMAT || !err.msg[0] || strchr(err.msg, '\n'))
    abort();
  free(text);
  return 0;
}

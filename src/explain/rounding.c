/* rounding.c -- see rounding.h.  The rules are those of c10/core/AllocatorConfig.h and CUDACachingAllocator.cpp. */
#include "explain/rounding.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t BYTES_MIN = 512, REST_MAX = (uint64_t)1 << 20;

static int log2_floor(uint64_t value) { return 63 - __builtin_clzll(value); }

/* The next run of digits in *text; 0 when there is none. */
static int number_next(const char **text, uint64_t *out) {
  while (**text && !isdigit((unsigned char)**text)) (*text)++;
  if (!**text) return 0;
  char *end = NULL;
  *out = strtoull(*text, &end, 10);
  *text = end;
  return 1;
}

/* {"1": 0, "2": 4, ...}, keys in MiB. */
static void divisions_read(tn__rounding *rounding, const char *text) {
  uint64_t key = 0, value = 0;
  while (number_next(&text, &key) && number_next(&text, &value)) {
    int interval = key ? log2_floor(key) : 0;
    if (interval < TN__ROUNDING_INTERVALS && value <= UINT32_MAX) rounding->divisions[interval] = (uint32_t)value;
  }
}

static int is_true(const char *text) { return text && (*text == 'T' || *text == 't' || *text == '1'); }

tn__rounding tn__rounding_of(const tn_trace *trace) {
  tn__rounding rounding = {.max_split_bytes = UINT64_MAX};
  const char *divisions = tn_trace_meta(trace, "allocator.roundup_power2_divisions");
  const char *split = tn_trace_meta(trace, "allocator.max_split_size");
  if (divisions) divisions_read(&rounding, divisions);
  if (split && isdigit((unsigned char)*split)) rounding.max_split_bytes = strtoull(split, NULL, 10);
  rounding.expandable = (uint32_t)is_true(tn_trace_meta(trace, "allocator.expandable_segments"));
  rounding.known = divisions || split;
  return rounding;
}

static uint64_t up_to_multiple(uint64_t bytes, uint64_t step) {
  uint64_t over = bytes % step;
  if (!over) return bytes;
  return bytes > UINT64_MAX - step ? UINT64_MAX : bytes - over + step;
}

/* Up to the next of `divisions` equal steps between two powers of two. */
static uint64_t up_to_division(uint64_t bytes, uint64_t divisions) {
  uint64_t floor = (uint64_t)1 << log2_floor(bytes);
  if (bytes == floor) return bytes;
  uint64_t step = floor >> log2_floor(divisions);
  if (step == 0) return floor > UINT64_MAX / 2 ? UINT64_MAX : 2 * floor;
  return up_to_multiple(bytes, step);
}

uint64_t tn__rounded(const tn__rounding *rounding, uint64_t requested_bytes) {
  if (requested_bytes < BYTES_MIN) return BYTES_MIN;
  int interval = log2_floor(requested_bytes) - 20;
  if (interval < 0) interval = 0;
  if (interval >= TN__ROUNDING_INTERVALS) interval = TN__ROUNDING_INTERVALS - 1;
  uint64_t divisions = rounding->divisions[interval];
  if (divisions > 1 && requested_bytes > BYTES_MIN * divisions) return up_to_division(requested_bytes, divisions);
  return up_to_multiple(requested_bytes, BYTES_MIN);
}

int tn__rounding_keeps_rest(const tn__rounding *rounding, uint64_t rounded_bytes, uint64_t rest_bytes) {
  return rounded_bytes >= rounding->max_split_bytes || rest_bytes <= REST_MAX;
}

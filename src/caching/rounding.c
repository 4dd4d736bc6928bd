/* rounding.c -- what a request becomes: the size of its block, and of the segment that is asked for when no block is free. */
#include "caching/caching.h"

static uint32_t log2_floor(uint64_t value) {
  uint32_t log = 0;
  while (value >>= 1) log++;
  return log;
}

/* The setting for sizes from 2^(20 + k) on is at k; smaller sizes share the first. */
static uint32_t divisions_of(const tn_conf *conf, uint64_t bytes) {
  uint32_t log = log2_floor(bytes), first = 20;
  uint32_t interval = log < first ? 0 : log - first;
  return conf->roundup_divisions[interval < TN_CONF_INTERVALS ? interval : TN_CONF_INTERVALS - 1];
}

/* Up to the next of the marks that cut the octave from 2^n to 2^(n + 1) in equal parts. */
static uint64_t round_in_octave(uint64_t bytes, uint32_t divisions) {
  uint64_t octave = (uint64_t)1 << log2_floor(bytes), step = octave >> log2_floor(divisions);
  if (step == 0) return bytes == octave ? bytes : 2 * octave;
  return tn__round_up(bytes, step);
}

uint64_t tn__round(const tn_conf *conf, uint64_t bytes) {
  if (bytes > TN__BYTES_MAX) bytes = 2 * TN__BYTES_MAX; /* over any limit */
  uint32_t divisions = divisions_of(conf, bytes);
  if (divisions > 1 && bytes > TN__BLOCK_BYTES_MIN * divisions) return round_in_octave(bytes, divisions);
  return tn__round_up(bytes, TN__BLOCK_BYTES_MIN);
}

/* A request of 0 bytes never reaches PyTorch's allocator: it gets no memory. */
uint64_t tn_caching_round(uint64_t bytes) {
  if (bytes > UINT64_MAX - TN__BLOCK_BYTES_MIN) return UINT64_MAX / TN__BLOCK_BYTES_MIN * TN__BLOCK_BYTES_MIN;
  return tn__round_up(bytes, TN__BLOCK_BYTES_MIN);
}

uint64_t tn__segment_bytes(const tn_caching *caching, uint64_t rounded) {
  if (rounded <= TN__SMALL_BYTES_MAX) return TN__SMALL_SEGMENT_BYTES;
  if (rounded < TN__LARGE_EXACT_MIN) return caching->large_segment_bytes;
  return tn__round_up(rounded, TN__LARGE_EXACT_STEP);
}

/* conf_recorded.c -- the allocator settings that a snapshot was recorded under. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caching/caching.h"
#include "caching/conf.h"

static const char *setting(const tn_trace *trace, const char *name) {
  char key[80];
  (void)snprintf(key, sizeof key, "allocator.%s", name);
  return tn_trace_meta(trace, key);
}

static int is_true(const char *text) {
  return strcmp(text, "True") == 0 || strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
}

/* The file says "2.N+". */
uint32_t tn__conf_version(const tn_trace *trace) {
  const char *schema = tn_trace_meta(trace, "schema"), *dot = schema ? strchr(schema, '.') : NULL;
  unsigned long minor = dot ? strtoul(dot + 1, NULL, 10) : TN__VERSION_NEWEST;
  return minor < TN__VERSION_NEWEST ? (uint32_t)minor : TN__VERSION_NEWEST;
}

/* Pairs of whole numbers, lower bound in MB and divisions, whatever stands between them. */
static void read_table(const char *text, tn_conf *out) {
  while (*text) {
    unsigned long long pair[2];
    for (int i = 0; i < 2; i++) {
      char *end;
      while (*text && !isdigit((unsigned char)*text)) text++;
      if (!*text) return;
      pair[i] = strtoull(text, &end, 10);
      text = end;
    }
    int is_valid = pair[1] <= UINT32_MAX && (pair[1] & (pair[1] - 1)) == 0; /* 0 or a power of 2 */
    for (size_t i = 0; i < TN_CONF_INTERVALS && is_valid; i++)
      if (pair[0] == 1ull << i) out->roundup_divisions[i] = (uint32_t)pair[1];
  }
}

/* -1 and numbers that no card reaches mean that there is no bound. */
static uint64_t read_bound(const char *text) {
  uint64_t bytes = strtoull(text, NULL, 10);
  return *text == '-' || bytes > TN__BYTES_MAX || bytes < TN__LARGE_EXACT_MIN ? 0 : bytes;
}

/* The string has keys that the list of settings lacks; the list has what was really used, also when the program set it. */
int tn_conf_recorded(const tn_trace *trace, tn_conf *out, tn_error *err) {
  if (!trace || !out) return tn__error_set(err, TN_EINVAL, NULL);
  const char *text = setting(trace, "PYTORCH_CUDA_ALLOC_CONF"), *value;
  tn_conf conf;
  TN_TRY(tn__conf_parse(text ? text : "", tn__conf_version(trace), &conf, err));
  if ((value = setting(trace, "max_split_size"))) conf.max_split_bytes = read_bound(value);
  if ((value = setting(trace, "garbage_collection_threshold"))) {
    double threshold = strtod(value, NULL);
    conf.garbage_collection_threshold = threshold > 0 && threshold < 1 ? threshold : 0;
  }
  if ((value = setting(trace, "expandable_segments"))) conf.expandable_segments = is_true(value) != 0;
  if ((value = setting(trace, "roundup_power2_divisions"))) read_table(value, &conf);
  *out = conf;
  return TN_OK;
}

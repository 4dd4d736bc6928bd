/* settings.c -- the settings that tune tries.  See settings.h.
 *
 * Every axis has a few values that people use; where axes work on the same thing (splitting and rounding decide which blocks fit where)
 * all pairs are tried, the others alone and with the best. */
#include "caching/settings.h"

#include "base/error.h"
#include "caching/caching.h"
#include "caching/conf.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Lists name the last interval twice, so that all versions read them in the same way. */
static const char *const roundups[] = {
    "",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "roundup_power2_divisions:[256:1,512:2,1024:4,2048:8,>:8]", /* the example of PyTorch's notes */
    "roundup_power2_divisions:[8:8,16:0,>:0]",                  /* only what shares segments */
    "roundup_power2_divisions:[8:0,16:8,>:8]",                  /* only what has segments of its own */
};
static const char *const more_roundups[] = {"roundup_power2_divisions:32", "roundup_power2_divisions:64"};
static const uint64_t splits_mb[] = {0, 32, 64, 96, 128, 256, 512};
static const uint64_t more_splits_mb[] = {20, 24, 48, 192, 1024};
static const uint64_t roundings_mb[] = {64, 256};
static const uint64_t large_segments_mb[] = {32, 64, 128};
static const double thresholds[] = {0.6, 0.8, 0.9};

/* ---- the list without doubles -------------------------------------------------------------------------------------------- */

static int add(tn_vec *out, tn_conf conf) {
  for (size_t i = 0; i < out->count; i++)
    if (tn__conf_equal(tn__vec_at(out, i), &conf)) return TN_OK;
  return tn__vec_push(out, &conf);
}

static int with_roundup(const tn_conf *base, const char *text, uint32_t version, tn_conf *out) {
  tn_conf parsed;
  TN_TRY(tn__conf_parse(text, version, &parsed, NULL));
  *out = *base;
  for (size_t i = 0; i < TN_CONF_INTERVALS; i++) out->roundup_divisions[i] = parsed.roundup_divisions[i];
  return TN_OK;
}

static int add_roundups(tn_vec *out, const tn_conf *base, uint32_t version, const char *const *texts, size_t count) {
  for (size_t i = 0; i < count; i++) {
    tn_conf conf;
    TN_TRY(with_roundup(base, texts[i], version, &conf));
    TN_TRY(add(out, conf));
  }
  return TN_OK;
}

/* ---- axes ---------------------------------------------------------------------------------------------------------------- */

/* A bound on splitting means nothing to expandable segments, and must not lie below a large segment. */
static int can_split_at(const tn_conf *conf, uint64_t bytes) {
  uint64_t large = conf->large_segment_bytes ? conf->large_segment_bytes : TN__LARGE_SEGMENT_BYTES;
  return bytes == 0 || (!conf->expandable_segments && bytes >= large);
}

static int add_splits(tn_vec *out, const tn_conf *base, const uint64_t *mb, size_t count) {
  for (size_t i = 0; i < count; i++) {
    tn_conf conf = *base;
    if (!can_split_at(base, mb[i] * TN__MIB)) continue;
    conf.max_split_bytes = mb[i] * TN__MIB;
    TN_TRY(add(out, conf));
  }
  return TN_OK;
}

static int add_roundings(tn_vec *out, const tn_conf *base, uint32_t version) {
  for (size_t i = 0; i < COUNT_OF(roundings_mb) && version >= TN__SINCE_MAX_ROUNDING && base->max_split_bytes; i++) {
    tn_conf conf = *base;
    conf.max_non_split_rounding_bytes = roundings_mb[i] * TN__MIB;
    TN_TRY(add(out, conf));
  }
  return TN_OK;
}

static int add_large_segments(tn_vec *out, const tn_conf *base, uint32_t version) {
  for (size_t i = 0; i < COUNT_OF(large_segments_mb) && version >= TN__SINCE_LARGE_SEGMENT; i++) {
    tn_conf conf = *base;
    conf.large_segment_bytes = large_segments_mb[i] * TN__MIB;
    if (can_split_at(&conf, conf.max_split_bytes)) TN_TRY(add(out, conf));
  }
  return TN_OK;
}

/* It works against a limit, and on segments that are not expandable. */
static int add_thresholds(tn_vec *out, const tn_conf *base, int is_limited) {
  for (size_t i = 0; i < COUNT_OF(thresholds) && is_limited && !base->expandable_segments; i++) {
    tn_conf conf = *base;
    conf.garbage_collection_threshold = thresholds[i];
    TN_TRY(add(out, conf));
  }
  return TN_OK;
}

int tn__settings_list(const tn_conf *recorded, uint32_t version, int is_limited, tn_vec *out) {
  tn_conf base = {.private_expandable = recorded->private_expandable,
                  .memory_fraction = recorded->memory_fraction,
                  .throw_on_cudamalloc_oom = recorded->throw_on_cudamalloc_oom};
  TN_TRY(add_splits(out, &base, splits_mb, COUNT_OF(splits_mb)));
  for (size_t i = 0, count = out->count; i < count; i++) {
    tn_conf conf = *(tn_conf *)tn__vec_at(out, i);
    TN_TRY(add_roundups(out, &conf, version, roundups, COUNT_OF(roundups)));
    TN_TRY(add_roundings(out, &conf, version));
    TN_TRY(add_thresholds(out, &conf, is_limited));
  }
  TN_TRY(add_large_segments(out, &base, version));
  if (version < TN__SINCE_EXPANDABLE) return TN_OK;
  base.expandable_segments = 1;
  TN_TRY(add_roundups(out, &base, version, roundups, COUNT_OF(roundups)));
  return add_large_segments(out, &base, version);
}

int tn__settings_vary(const tn_conf *around, uint32_t version, int is_limited, tn_vec *out) {
  tn_conf base = *around; /* out may move it */
  TN_TRY(add_splits(out, &base, splits_mb, COUNT_OF(splits_mb)));
  TN_TRY(add_splits(out, &base, more_splits_mb, COUNT_OF(more_splits_mb)));
  TN_TRY(add_roundups(out, &base, version, roundups, COUNT_OF(roundups)));
  TN_TRY(add_roundups(out, &base, version, more_roundups, COUNT_OF(more_roundups)));
  TN_TRY(add_roundings(out, &base, version));
  TN_TRY(add_large_segments(out, &base, version));
  return add_thresholds(out, &base, is_limited);
}

/* conf.c -- reading and writing allocator settings.  See conf.h. */
#include "caching/conf.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "caching/caching.h"

/* ---- keys ---------------------------------------------------------------------------------------------------------------- */

enum value_kind { VALUE_MB, VALUE_FRACTION, VALUE_BOOL, VALUE_COUNT, VALUE_POWER, VALUE_BACKEND, VALUE_ROUNDUP, VALUE_ANY };

/* key, kind, what it does to the caching model: a member of tn_conf, or IGNORED */
#define CONF_KEYS(X)                                                                                          \
  X("max_split_size_mb", MB, MAX_SPLIT)                                                                       \
  X("max_non_split_rounding_mb", MB, MAX_ROUNDING)                                                            \
  X("large_segment_size_mb", MB, LARGE_SEGMENT)                                                               \
  X("garbage_collection_threshold", FRACTION, GC)                                                             \
  X("per_process_memory_fraction", FRACTION, MEMORY_FRACTION)                                                 \
  X("roundup_power2_divisions", ROUNDUP, ROUNDUP)                                                             \
  X("expandable_segments", BOOL, EXPANDABLE)                                                                  \
  X("throw_on_cudamalloc_oom", BOOL, THROW)                                                                   \
  X("backend", BACKEND, BACKEND)                                                                              \
  X("release_lock_on_cudamalloc", BOOL, IGNORED) X("release_lock_on_hipmalloc", BOOL, IGNORED)                \
  X("pinned_use_cuda_host_register", BOOL, IGNORED) X("pinned_use_hip_host_register", BOOL, IGNORED)          \
  X("pinned_num_register_threads", POWER, IGNORED) X("pinned_use_background_threads", BOOL, IGNORED)          \
  X("pinned_reserve_segment_size_mb", COUNT, IGNORED) X("pinned_max_round_threshold_mb", COUNT, IGNORED)      \
  X("pinned_max_cached_size_mb", COUNT, IGNORED) X("pinned_free_catch_all", BOOL, IGNORED)                    \
  X("graph_capture_record_stream_reuse", BOOL, IGNORED)                                                       \
  X("expandable_segments_reserve", ANY, IGNORED) X("expandable_segments_reserve_by_class", ANY, IGNORED)

enum effect { MAX_SPLIT, MAX_ROUNDING, LARGE_SEGMENT, GC, MEMORY_FRACTION, ROUNDUP, EXPANDABLE, THROW, BACKEND, IGNORED };

typedef struct key_info {
  const char *name;
  enum value_kind kind;
  enum effect effect;
} key_info;

static const key_info keys[] = {
#define KEY_ROW(name, kind, effect) {name, VALUE_##kind, effect},
    CONF_KEYS(KEY_ROW)
#undef KEY_ROW
};

enum { KEYS_COUNT = sizeof keys / sizeof *keys, TOKEN_MAX = 80 };

/* ---- words --------------------------------------------------------------------------------------------------------------- */

/* One of , : [ ] or a word without the spaces around and in it, as torch takes it. */
typedef struct reader {
  const char *text, *at;
  char token[TOKEN_MAX];
  size_t token_at; /* offset of the token */
  uint32_t version;
  tn_conf *conf;
  tn_error *err;
} reader;

static int is_mark(char c) { return c == ',' || c == ':' || c == '[' || c == ']'; }

static int fail(reader *r, const char *format, ...) TN_PRINTF(2, 3);

static int fail(reader *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)tn__error_set_v(r->err, TN_EINVAL, format, args);
  va_end(args);
  if (r->err) r->err->offset = r->token_at;
  return TN_EINVAL;
}

/* The next token, "" at the end. */
static int next(reader *r) {
  size_t len = 0;
  while (isspace((unsigned char)*r->at)) r->at++;
  r->token_at = (size_t)(r->at - r->text);
  int is_word = !is_mark(*r->at);
  if (!is_word) r->token[len++] = *r->at++;
  for (; is_word && len < TOKEN_MAX - 1 && *r->at && !is_mark(*r->at); r->at++)
    if (!isspace((unsigned char)*r->at)) r->token[len++] = *r->at;
  r->token[len] = '\0';
  if (len == TOKEN_MAX - 1) return fail(r, "allocator setting \"%.40s...\" is too long", r->token);
  return TN_OK;
}

static int peek_is(const reader *r, char mark) {
  const char *at = r->at;
  while (isspace((unsigned char)*at)) at++;
  return *at == mark;
}

static int expect(reader *r, const char *mark, const char *key) {
  TN_TRY(next(r));
  if (strcmp(r->token, mark) == 0) return TN_OK;
  if (!*r->token) return fail(r, "allocator setting %s ends where \"%s\" should come", key, mark);
  return fail(r, "allocator setting %s: expected \"%s\", not \"%.40s\"", key, mark, r->token);
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

/* As torch's std::stoull() takes it: what follows the digits does not count (128MB is 128), and -1 is the largest number. */
static int read_whole(reader *r, const char *key, uint64_t *out) {
  TN_TRY(next(r));
  int sign = r->token[0] == '-' || r->token[0] == '+';
  if (!isdigit((unsigned char)r->token[sign])) return fail(r, "allocator setting %s: \"%.40s\" is not a whole number", key, r->token);
  errno = 0;
  *out = strtoull(r->token, NULL, 10);
  return errno ? fail(r, "allocator setting %s: %.40s is too large", key, r->token) : TN_OK;
}

static int read_mb(reader *r, const char *key, uint64_t least, uint64_t *out_bytes) {
  uint64_t mb;
  TN_TRY(read_whole(r, key, &mb));
  if (mb < least) return fail(r, "allocator setting %s: %.20s is too small, it must be at least %d", key, r->token, (int)least);
  *out_bytes = mb < TN__BYTES_MAX / TN__MIB ? mb * TN__MIB : TN__BYTES_MAX;
  return TN_OK;
}

/* No block is ever that large. */
static int read_max_split(reader *r, const char *key, uint64_t least) {
  TN_TRY(read_mb(r, key, least, &r->conf->max_split_bytes));
  if (r->conf->max_split_bytes == TN__BYTES_MAX) r->conf->max_split_bytes = 0;
  return TN_OK;
}

static int read_fraction(reader *r, const char *key, int ends_too, double *out) {
  TN_TRY(next(r));
  char *end;
  double value = strtod(r->token, &end);
  if (end == r->token) return fail(r, "allocator setting %s: \"%.40s\" is not a number", key, r->token);
  if (!((value > 0 && value < 1) || (ends_too && value >= 0 && value <= 1)))
    return fail(r, "allocator setting %s: %.20s is not between 0 and 1", key, r->token);
  *out = value;
  return TN_OK;
}

static int read_bool(reader *r, const char *key, uint8_t *out) {
  TN_TRY(next(r));
  int is_true = strcmp(r->token, "True") == 0;
  if (!is_true && strcmp(r->token, "False") != 0)
    return fail(r, "allocator setting %s: expected True or False, not \"%.40s\"", key, r->token);
  *out = is_true != 0;
  return TN_OK;
}

static int read_backend(reader *r, const char *key) {
  TN_TRY(next(r));
  int is_async = strcmp(r->token, "cudaMallocAsync") == 0 || strcmp(r->token, "hipMallocAsync") == 0;
  if (!is_async && strcmp(r->token, "native") != 0)
    return fail(r, "allocator setting %s: expected native or cudaMallocAsync, not \"%.40s\"", key, r->token);
  r->conf->malloc_async = is_async != 0;
  return TN_OK;
}

static int skip_value(reader *r, const char *key) {
  TN_TRY(next(r));
  if (!*r->token || strcmp(r->token, ",") == 0) return fail(r, "allocator setting %s has no value", key);
  if (r->token[0] == '[')
    while (r->token[0] != ']' && *r->token) TN_TRY(next(r));
  if (!*r->token) return fail(r, "allocator setting %s ends where \"]\" should come", key);
  return TN_OK;
}

/* ---- the round-up table -------------------------------------------------------------------------------------------------- */

static int is_power_of_2(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

static void fill(tn_conf *conf, size_t from, size_t to, uint64_t divisions) {
  for (size_t i = from; i < to; i++) conf->roundup_divisions[i] = (uint32_t)divisions;
}

static int read_divisions(reader *r, const char *key, int zero_too, uint64_t *out) {
  TN_TRY(read_whole(r, key, out));
  int is_valid = (is_power_of_2(*out) || (zero_too && *out == 0)) && *out <= UINT32_MAX;
  return is_valid ? TN_OK : fail(r, "allocator setting %s: %.20s is not a power of 2", key, r->token);
}

/* The place of an interval by its lower bound in MB. */
static int read_interval(reader *r, const char *key, size_t *out) {
  uint64_t mb;
  TN_TRY(read_whole(r, key, &mb));
  if (!is_power_of_2(mb)) return fail(r, "allocator setting %s: interval %.20s is not a power of 2", key, r->token);
  size_t interval = 0;
  while (interval < TN_CONF_INTERVALS - 1 && (mb >>= 1)) interval++;
  *out = interval;
  return TN_OK;
}

/* [256:1,512:2,>:4]: the first interval speaks for those below it too, ">" for those above the last. */
static int read_list(reader *r, const char *key) {
  size_t last = 0;
  int has_interval = 0;
  while (!peek_is(r, ']')) {
    uint64_t divisions;
    int is_rest = peek_is(r, '>');
    if (is_rest)
      TN_TRY(expect(r, ">", key));
    else
      TN_TRY(read_interval(r, key, &last));
    TN_TRY(expect(r, ":", key));
    TN_TRY(read_divisions(r, key, 1, &divisions));
    if (is_rest)
      fill(r->conf, r->version < TN__SINCE_LIST_AFTER_LAST ? last : last + 1, TN_CONF_INTERVALS, divisions);
    else
      fill(r->conf, has_interval ? last : 0, last + 1, divisions);
    has_interval |= !is_rest;
    if (!peek_is(r, ']')) TN_TRY(expect(r, ",", key));
  }
  return expect(r, "]", key);
}

static int read_roundup(reader *r, const char *key) {
  if (peek_is(r, '[')) {
    TN_TRY(expect(r, "[", key));
    return read_list(r, key);
  }
  uint64_t divisions;
  TN_TRY(read_divisions(r, key, 0, &divisions));
  fill(r->conf, 0, TN_CONF_INTERVALS, divisions);
  return TN_OK;
}

/* ---- the whole string ---------------------------------------------------------------------------------------------------- */

static int read_ignored(reader *r, const key_info *key) {
  uint8_t flag;
  uint64_t count;
  if (key->kind == VALUE_BOOL) return read_bool(r, key->name, &flag);
  if (key->kind == VALUE_POWER) return read_divisions(r, key->name, 0, &count);
  return key->kind == VALUE_COUNT ? read_whole(r, key->name, &count) : skip_value(r, key->name);
}

static int read_value(reader *r, const key_info *key) {
  tn_conf *conf = r->conf;
  uint64_t large_mb = (conf->large_segment_bytes ? conf->large_segment_bytes : TN__LARGE_SEGMENT_BYTES) / TN__MIB;
  switch (key->effect) {
    case MAX_SPLIT: return read_max_split(r, key->name, large_mb);
    case MAX_ROUNDING: return read_mb(r, key->name, large_mb, &conf->max_non_split_rounding_bytes);
    case LARGE_SEGMENT: return read_mb(r, key->name, TN__LARGE_EXACT_MIN / TN__MIB + 1, &conf->large_segment_bytes);
    case GC: return read_fraction(r, key->name, 0, &conf->garbage_collection_threshold);
    case MEMORY_FRACTION: return read_fraction(r, key->name, 1, &conf->memory_fraction);
    case ROUNDUP: return read_roundup(r, key->name);
    case EXPANDABLE: return read_bool(r, key->name, &conf->expandable_segments);
    case THROW: return read_bool(r, key->name, &conf->throw_on_cudamalloc_oom);
    case BACKEND: return read_backend(r, key->name);
    default: return read_ignored(r, key);
  }
}

static int unknown_key(reader *r) {
  const char *nearest = NULL;
  int best = 4; /* at most 3 edits */
  for (size_t i = 0; i < KEYS_COUNT; i++) {
    int distance = tn__text_distance(r->token, keys[i].name, 3);
    if (distance < best) best = distance, nearest = keys[i].name;
  }
  if (nearest) return fail(r, "unknown allocator setting \"%.60s\"; did you mean %s?", r->token, nearest);
  return fail(r, "unknown allocator setting \"%.60s\"", r->token);
}

static int find_key(reader *r, const key_info **out) {
  for (size_t i = 0; i < KEYS_COUNT; i++) {
    *out = &keys[i];
    if (strcmp(r->token, keys[i].name) == 0) return TN_OK;
  }
  if (strchr(r->token, '=')) return fail(r, "allocator setting \"%.60s\": key and value are joined by \":\"", r->token);
  return unknown_key(r);
}

/* large_segment_size_mb bounds others, and is read before them wherever it stands; that round skips what it does not want. */
static int read_all(reader *r, int only_large_segment) {
  for (r->at = r->text; !peek_is(r, '\0');) {
    const key_info *key;
    TN_TRY(next(r));
    TN_TRY(find_key(r, &key));
    TN_TRY(expect(r, ":", key->name));
    TN_TRY(only_large_segment && key->effect != LARGE_SEGMENT ? skip_value(r, key->name) : read_value(r, key));
    if (!peek_is(r, '\0')) TN_TRY(expect(r, ",", key->name));
  }
  return TN_OK;
}

int tn__conf_parse(const char *text, uint32_t version, tn_conf *out, tn_error *err) {
  tn_conf conf = {.private_expandable = version >= TN__SINCE_PRIVATE_EXPANDABLE};
  reader r = {.text = text, .version = version, .conf = &conf, .err = err};
  TN_TRY(read_all(&r, 1));
  TN_TRY(read_all(&r, 0));
  *out = conf;
  return TN_OK;
}

int tn_conf_parse(const char *text, const tn_trace *trace, tn_conf *out, tn_error *err) {
  if (!text || !out) return tn__error_set(err, TN_EINVAL, NULL);
  return tn__conf_parse(text, trace ? tn__conf_version(trace) : TN__VERSION_NEWEST, out, err);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

static void key_start(tn_text *out, const char *key) {
  if (out->len) tn__text_add(out, ",");
  tn__text_printf(out, "%s:", key);
}

static void write_mb(tn_text *out, const char *key, uint64_t bytes) {
  if (!bytes) return;
  key_start(out, key);
  tn__text_printf(out, "%llu", (unsigned long long)(bytes / TN__MIB));
}

static void write_fraction(tn_text *out, const char *key, double value) {
  if (!(value > 0)) return;
  char buf[40]; /* the shortest text that reads back as the same number */
  for (int digits = 6; digits <= 17; digits++) {
    (void)snprintf(buf, sizeof buf, "%.*g", digits, value);
    if (!(strtod(buf, NULL) < value || strtod(buf, NULL) > value)) break;
  }
  key_start(out, key);
  tn__text_add(out, buf);
}

/* The first interval that differs from the one before; TN_CONF_INTERVALS: none does. */
static size_t first_change(const uint32_t *divisions) {
  size_t at = 1;
  while (at < TN_CONF_INTERVALS && divisions[at] == divisions[0]) at++;
  return at;
}

static size_t last_change(const uint32_t *divisions) {
  size_t at = TN_CONF_INTERVALS - 1;
  while (at > 0 && divisions[at] == divisions[at - 1]) at--;
  return at;
}

/* The interval before ">" has its value already, so that all versions read the list in the same way. */
static void write_roundup(tn_text *out, const uint32_t *divisions) {
  size_t first = first_change(divisions), last = last_change(divisions);
  if (first == TN_CONF_INTERVALS && divisions[0] == 0) return;
  key_start(out, "roundup_power2_divisions");
  if (first == TN_CONF_INTERVALS) {
    tn__text_printf(out, "%u", divisions[0]);
    return;
  }
  for (size_t i = first - 1; i <= last; i++) tn__text_printf(out, "%c%u:%u", i < first ? '[' : ',', 1u << i, divisions[i]);
  tn__text_printf(out, ",>:%u]", divisions[last]);
}

void tn__conf_write(const tn_conf *conf, tn_text *out) {
  if (conf->malloc_async) {
    key_start(out, "backend");
    tn__text_add(out, "cudaMallocAsync");
  }
  if (conf->expandable_segments) {
    key_start(out, "expandable_segments");
    tn__text_add(out, "True");
  }
  write_mb(out, "large_segment_size_mb", conf->large_segment_bytes);
  write_mb(out, "max_split_size_mb", conf->max_split_bytes);
  write_mb(out, "max_non_split_rounding_mb", conf->max_non_split_rounding_bytes);
  write_roundup(out, conf->roundup_divisions);
  write_fraction(out, "garbage_collection_threshold", conf->garbage_collection_threshold);
  write_fraction(out, "per_process_memory_fraction", conf->memory_fraction);
  if (conf->throw_on_cudamalloc_oom) {
    key_start(out, "throw_on_cudamalloc_oom");
    tn__text_add(out, "True");
  }
}

void tn__conf_rest(const char *text, tn_text *out) {
  tn_conf conf;
  reader r = {.text = text, .at = text, .conf = &conf};
  const key_info *key;
  while (!peek_is(&r, '\0')) {
    if (next(&r) || find_key(&r, &key)) return;
    size_t at = r.token_at;
    if (expect(&r, ":", key->name) || skip_value(&r, key->name)) return;
    if (key->effect == IGNORED && out->len) tn__text_add(out, ",");
    if (key->effect == IGNORED) tn__text_add_n(out, text + at, (size_t)(r.at - text) - at);
    if (!peek_is(&r, '\0') && expect(&r, ",", key->name)) return;
  }
}

int tn_conf_format(const tn_conf *conf, char **out) {
  tn_text text;
  tn__text_init(&text);
  tn__conf_write(conf, &text);
  int rc = tn__text_take(&text, out);
  tn__text_deinit(&text);
  return rc;
}

int tn__conf_equal(const tn_conf *a, const tn_conf *b) {
  return a->max_split_bytes == b->max_split_bytes && a->max_non_split_rounding_bytes == b->max_non_split_rounding_bytes &&
         a->large_segment_bytes == b->large_segment_bytes &&
         memcmp(&a->garbage_collection_threshold, &b->garbage_collection_threshold, sizeof(double)) == 0 &&
         memcmp(&a->memory_fraction, &b->memory_fraction, sizeof(double)) == 0 &&
         memcmp(a->roundup_divisions, b->roundup_divisions, sizeof a->roundup_divisions) == 0 &&
         a->expandable_segments == b->expandable_segments && a->throw_on_cudamalloc_oom == b->throw_on_cudamalloc_oom &&
         a->malloc_async == b->malloc_async;
}

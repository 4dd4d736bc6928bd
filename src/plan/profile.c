/* profile.c -- device profiles.  Why: a trace says what is allocated and run, only the device says what that costs in
 * seconds and how much of the card is left for it. */
#include "plan/profile.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/error.h"

static const char *const rate_names[TN_RATE_COUNT] = {
#define TN_RATE_NAME(name, text) text,
    TN_RATES(TN_RATE_NAME)
#undef TN_RATE_NAME
};

/* A number >= least at key, in *out. */
static int number_get(const json_t *object, const char *key, double least, double *out, tn_error *err) {
  const json_t *value = json_object_get(object, key);
  if (!value) return tn__error_set(err, TN_EFORMAT, "device profile: key \"%s\" is missing", key);
  if (!json_is_number(value)) return tn__error_set(err, TN_EFORMAT, "device profile: \"%s\" is not a number", key);
  double number = json_number_value(value);
  if (!isfinite(number) || number < least)
    return tn__error_set(err, TN_EFORMAT, "device profile: \"%s\" is %g, expected at least %g", key, number, least);
  *out = number;
  return TN_OK;
}

/* A byte count: an integer, or a number like 8.0e10 as people write them. */
static int bytes_get(const json_t *object, const char *key, double least, uint64_t *out, tn_error *err) {
  double number = 0;
  TN_TRY(number_get(object, key, least, &number, err));
  if (number >= 0x1p63) return tn__error_set(err, TN_EFORMAT, "device profile: \"%s\" is %g, too many bytes", key, number);
  const json_t *value = json_object_get(object, key);
  *out = json_is_integer(value) ? (uint64_t)json_integer_value(value) : (uint64_t)number;
  return TN_OK;
}

static int positive_get(const json_t *object, const char *key, double *out, tn_error *err) {
  TN_TRY(number_get(object, key, 0, out, err));
  if (*out > 0) return TN_OK;
  return tn__error_set(err, TN_EFORMAT, "device profile: \"%s\" is 0, expected a rate above 0", key);
}

static int rates_get(const json_t *root, double *out, tn_error *err) {
  const json_t *rates = json_object_get(root, "flops_per_s");
  if (!rates) return tn__error_set(err, TN_EFORMAT, "device profile: key \"flops_per_s\" is missing");
  if (!json_is_object(rates)) return tn__error_set(err, TN_EFORMAT, "device profile: \"flops_per_s\" is not an object");
  for (int rate = TN_RATE_NONE + 1; rate < TN_RATE_COUNT; rate++) TN_TRY(positive_get(rates, rate_names[rate], &out[rate], err));
  return TN_OK;
}

static int name_get(const json_t *root, char *out, size_t size, tn_error *err) {
  const json_t *value = json_object_get(root, "name");
  if (!value) return tn__error_set(err, TN_EFORMAT, "device profile: key \"name\" is missing");
  size_t length = json_string_length(value); /* 0 when it is not a string */
  if (length == 0 || length >= size)
    return tn__error_set(err, TN_EFORMAT, "device profile: \"name\" is not a text of 1 to %zu bytes", size - 1);
  memcpy(out, json_string_value(value), length + 1);
  return TN_OK;
}

static int fields_get(const json_t *root, tn_profile *out, tn_error *err) {
  if (!json_is_object(root)) return tn__error_set(err, TN_EFORMAT, "device profile: not a JSON object");
  TN_TRY(name_get(root, out->name, sizeof out->name, err));
  TN_TRY(bytes_get(root, "total_bytes", 1, &out->total_bytes, err));
  TN_TRY(bytes_get(root, "context_bytes", 0, &out->context_bytes, err));
  if (out->context_bytes >= out->total_bytes)
    return tn__error_set(err, TN_EFORMAT, "device profile: \"context_bytes\" is not below \"total_bytes\"");
  TN_TRY(rates_get(root, out->flops_per_s, err));
  TN_TRY(positive_get(root, "bytes_per_s", &out->bytes_per_s, err));
  TN_TRY(positive_get(root, "host_copy_bytes_per_s", &out->host_copy_bytes_per_s, err));
  TN_TRY(number_get(root, "launch_s", 0, &out->launch_s, err));
  TN_TRY(number_get(root, "host_op_s", 0, &out->host_op_s, err));
  return number_get(root, "host_rebuild_s", 0, &out->host_rebuild_s, err);
}

static int parse_failed(const json_error_t *reason, tn_error *err) {
  if (json_error_code(reason) == json_error_out_of_memory) return tn__error_set(err, TN_ENOMEM, NULL);
  uint64_t at = reason->position > 0 ? (uint64_t)reason->position : 0;
  uint32_t line = reason->line > 0 ? (uint32_t)reason->line : 0;
  return tn__error_set_at(err, TN_EFORMAT, at, line, "device profile: line %u: %s", line, reason->text);
}

int tn_profile_parse(const char *json, tn_profile *out, tn_error *err) {
  if (!json || !out) return tn__error_set(err, TN_EINVAL, "device profile: no text or no place for the result");
  json_error_t reason;
  json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &reason);
  if (!root) return parse_failed(&reason, err);
  tn_profile profile = {0};
  int rc = fields_get(root, &profile, err);
  json_decref(root);
  if (rc == TN_OK) *out = profile;
  return rc;
}

double tn_profile_op_seconds(const tn_profile *profile, const tn_op *op) {
  if (op->flags & TN_OP_VIEW) return 0;
  if (op->seconds >= 0) return op->seconds;
  double rate = op->rate < TN_RATE_COUNT ? profile->flops_per_s[op->rate] : 0;
  if (op->efficiency) rate *= op->efficiency / 1000.0;
  double arithmetic = rate > 0 ? op->flops / rate : 0;
  double memory = profile->bytes_per_s > 0 ? op->bytes_moved / profile->bytes_per_s : 0;
  return fmax(arithmetic, memory) + profile->launch_s;
}

int tn__profile_is_host(const tn_profile *profile) { return strcmp(profile->name, "cpu") == 0; }

/* trace.c -- the trace as tables in memory.  See trace.h; the rules that tie the tables together are in check.c. */
#include "trace/trace.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

static const size_t record_bytes[TN_TABLE_COUNT] = {
#define RECORD_BYTES(name, type) sizeof(type),
    TN_TABLES(RECORD_BYTES)
#undef RECORD_BYTES
};

static const char *const category_names[TN_CATEGORY_COUNT] = {
#define CATEGORY_NAME(name, text) text,
    TN_CATEGORIES(CATEGORY_NAME)
#undef CATEGORY_NAME
};

static const char *const phase_names[TN_PHASE_COUNT] = {
#define PHASE_NAME(name, text) text,
    TN_PHASES(PHASE_NAME)
#undef PHASE_NAME
};

static const char *const action_names[TN_ACTION_COUNT] = {
#define ACTION_NAME(name, text) text,
    TN_ACTIONS(ACTION_NAME)
#undef ACTION_NAME
};

static const char *const block_state_names[TN_BLOCK_STATE_COUNT] = {
#define BLOCK_STATE_NAME(name, text) text,
    TN_BLOCK_STATES(BLOCK_STATE_NAME)
#undef BLOCK_STATE_NAME
};

const char *tn_category_name(int category) {
  return category >= 0 && category < TN_CATEGORY_COUNT ? category_names[category] : "?";
}

const char *tn_phase_name(int phase) { return phase >= 0 && phase < TN_PHASE_COUNT ? phase_names[phase] : "?"; }

const char *tn_action_name(int action) { return action >= 0 && action < TN_ACTION_COUNT ? action_names[action] : "?"; }

const char *tn_block_state_name(int state) {
  return state >= 0 && state < TN_BLOCK_STATE_COUNT ? block_state_names[state] : "?";
}

/* ---- life ---------------------------------------------------------------------------------------------------------------- */

int tn_trace_new(tn_trace **out) {
  tn_trace *trace = tn__mem_zalloc(1, sizeof *trace);
  if (!trace) return TN_ENOMEM;
  int rc = tn__strings_init(&trace->strings);
  if (rc) {
    tn__mem_free(trace);
    return rc;
  }
  for (int i = 0; i < TN_TABLE_COUNT; i++) tn__vec_init(&trace->tables[i], record_bytes[i]);
  tn__vec_init(&trace->meta, sizeof(tn__meta));
  *out = trace;
  return TN_OK;
}

void tn_trace_free(tn_trace *trace) {
  if (!trace) return;
  for (size_t i = 0; i < trace->meta.count; i++) {
    tn__meta *meta = tn__vec_at(&trace->meta, i);
    tn__mem_free(meta->key);
    tn__mem_free(meta->value);
  }
  tn__vec_deinit(&trace->meta);
  for (int i = 0; i < TN_TABLE_COUNT; i++) tn__vec_deinit(&trace->tables[i]);
  tn__strings_deinit(&trace->strings);
  tn__mem_free(trace);
}

/* ---- strings ------------------------------------------------------------------------------------------------------------- */

int tn_trace_add_string(tn_trace *trace, const char *text, uint32_t *out_id) {
  return tn__strings_intern(&trace->strings, text, strlen(text), out_id);
}

int tn_trace_add_strings(tn_trace *trace, const char *text, size_t text_bytes, size_t count) {
  const char *end = text + text_bytes;
  for (; count > 0; count--) {
    const char *nul = text < end ? memchr(text, '\0', (size_t)(end - text)) : NULL;
    if (!nul) return TN_EINVAL;
    uint32_t id;
    TN_TRY(tn__strings_append(&trace->strings, text, (size_t)(nul - text), &id));
    text = nul + 1;
  }
  return text == end ? TN_OK : TN_EINVAL;
}

const char *tn_trace_string(const tn_trace *trace, uint32_t id) { return tn__strings_get(&trace->strings, id); }

size_t tn_trace_string_count(const tn_trace *trace) { return tn__strings_count(&trace->strings); }

/* ---- tables -------------------------------------------------------------------------------------------------------------- */

int tn_trace_add(tn_trace *trace, enum tn_table table, const void *records, size_t count) {
  if ((unsigned)table >= TN_TABLE_COUNT) return TN_EINVAL;
  if (count >= TN_NONE - trace->tables[table].count) return TN_EINVAL;
  return tn__vec_append(&trace->tables[table], records, count);
}

const void *tn_trace_table(const tn_trace *trace, enum tn_table table, size_t *out_count) {
  int known = (unsigned)table < TN_TABLE_COUNT;
  if (out_count) *out_count = known ? trace->tables[table].count : 0;
  return known ? trace->tables[table].data : NULL;
}

/* ---- meta ---------------------------------------------------------------------------------------------------------------- */

static tn__meta *meta_find(const tn_trace *trace, const char *key) {
  for (size_t i = 0; i < trace->meta.count; i++) {
    tn__meta *meta = tn__vec_at(&trace->meta, i);
    if (strcmp(meta->key, key) == 0) return meta;
  }
  return NULL;
}

int tn_trace_set_meta(tn_trace *trace, const char *key, const char *value) {
  tn__meta fresh = {NULL, tn__mem_strdup(value)}, *old = meta_find(trace, key);
  int rc = TN_ENOMEM;
  if (!fresh.value) goto out;
  if (old) {
    tn__mem_free(old->value);
    old->value = fresh.value;
    return TN_OK;
  }
  fresh.key = tn__mem_strdup(key);
  if (!fresh.key) goto out;
  rc = tn__vec_push(&trace->meta, &fresh);
  if (rc) goto out;
  return TN_OK;
out:
  tn__mem_free(fresh.key);
  tn__mem_free(fresh.value);
  return rc;
}

const char *tn_trace_meta(const tn_trace *trace, const char *key) {
  const tn__meta *meta = meta_find(trace, key);
  return meta ? meta->value : NULL;
}

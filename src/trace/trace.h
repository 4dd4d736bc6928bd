/* trace.h -- the trace inside: what tonnage.h keeps opaque.
 *
 * Callers: src/trace only; the other modules read tables through tn_trace_table().  Not locked: one thread at a time per trace. */
#ifndef TN_TRACE_TRACE_H
#define TN_TRACE_TRACE_H

#include "base/strings.h"
#include "base/vec.h"
#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__meta {
  char *key, *value; /* owned */
} tn__meta;

/* A table has fewer than TN_NONE records, so that every index fits and TN_NONE is none. */
struct tn_trace {
  tn_strings strings;
  tn_vec tables[TN_TABLE_COUNT];
  tn_vec meta; /* tn__meta, keys distinct, in the order of their first setting */
};

static inline size_t tn__trace_count(const tn_trace *trace, enum tn_table table) { return trace->tables[table].count; }

#ifdef __cplusplus
}
#endif
#endif

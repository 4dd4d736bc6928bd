/* records.h -- a trace out of any bytes, for fuzz targets: one byte per table, its number of records, then their bytes one table after the
 * other.  Strings are a fixed list, id 1 on. */
#ifndef TN_TESTS_RECORDS_H
#define TN_TESTS_RECORDS_H

#include <stdlib.h>

#include "tonnage.h"

static const size_t record_bytes[TN_TABLE_COUNT] = {
#define RECORD_BYTES(name, type) sizeof(type),
    TN_TABLES(RECORD_BYTES)
#undef RECORD_BYTES
};

/* Takes the records from data; TN_EINVAL when it is too short. */
static inline int records_fill(tn_trace *trace, const uint8_t *data, size_t size) {
  const uint8_t *counts = data;
  if (size < TN_TABLE_COUNT) return TN_EINVAL;
  data += TN_TABLE_COUNT;
  size -= TN_TABLE_COUNT;
  for (int i = 0; i < TN_TABLE_COUNT; i++) {
    size_t bytes = counts[i] * record_bytes[i];
    if (bytes > size) return TN_EINVAL;
    int rc = tn_trace_add(trace, (enum tn_table)i, data, counts[i]);
    if (rc) return rc;
    data += bytes;
    size -= bytes;
  }
  return TN_OK;
}

#endif

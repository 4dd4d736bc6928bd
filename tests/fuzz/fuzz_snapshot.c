/* A snapshot may hold anything: no crash, one line of error with a place in the file, and what is accepted is a trace that holds
 * together and can be saved and read again. */
#include <stdlib.h>
#include <string.h>

#include "trace/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As a consumer walks it: every index is followed, nothing is asked. */
static uint64_t walk_devices(const tn_trace *trace) {
  size_t count = 0;
  const tn_device *devices = tn_trace_table(trace, TN_TABLE_DEVICE, &count);
  const tn_segment *segments = tn_trace_table(trace, TN_TABLE_SEGMENT, NULL);
  const tn_segment_block *blocks = tn_trace_table(trace, TN_TABLE_SEGMENT_BLOCK, NULL);
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    if (devices[i].segments_count == 0 && devices[i].entries_count == 0) abort();
    for (uint32_t k = 0; k < devices[i].segments_count; k++) {
      const tn_segment *segment = &segments[devices[i].segments_at + k];
      if (k && segment[-1].addr > segment->addr) abort();
      for (uint32_t b = 0; b < segment->blocks_count; b++) sum += blocks[segment->blocks_at + b].bytes;
      if ((segment->flags & TN_SEGMENT_UNTILED) && segment->blocks_count) abort();
    }
  }
  return sum;
}

static void check_streams(const tn_trace *trace) {
  size_t count = 0;
  const tn_stream *streams = tn_trace_table(trace, TN_TABLE_STREAM, &count);
  for (size_t i = 1; i < count; i++)
    if (streams[i - 1].handle >= streams[i].handle) abort();
  const tn_pool *pools = tn_trace_table(trace, TN_TABLE_POOL, &count);
  if (count == 0 || pools[0].first || pools[0].second) abort();
}

static void check_accepted(const tn_trace *trace) {
  unsigned char *again = NULL;
  size_t again_size = 0;
  tn_trace *copy = NULL;
  if (tn_trace_check(trace, NULL)) abort();
  (void)walk_devices(trace);
  check_streams(trace);
  if (!tn_trace_meta(trace, "schema")) return; /* a trace file */
  if (tn__store_write(trace, &again, &again_size, NULL)) abort();
  if (tn__store_read(again, again_size, &copy, NULL)) abort();
  tn_trace_free(copy);
  tn__store_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tn_trace *trace = NULL;
  tn_error err = {0};
  int rc = tn_snapshot_parse(data, size, &trace, &err);
  if (rc == TN_OK)
    check_accepted(trace);
  else if (err.code != rc || !err.msg[0] || strchr(err.msg, '\n') || trace)
    abort();
  tn_trace_free(trace);
  return 0;
}

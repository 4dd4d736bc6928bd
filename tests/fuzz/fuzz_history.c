/* Entries and segments are what some file says: whatever they are, a replay ends, and the model stays whole (this library walks it
 * after every step).
 *
 * Input: a byte of settings, then four bytes for each record: kind, place, size, stream and pool.  Kinds below 16 are entries, the
 * others segments of the end. */
#include <stdlib.h>

#include "tonnage.h"

#define MIB ((uint64_t)1 << 20)

enum { RECORDS_MAX = 400 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add(tn_trace *trace, enum tn_table table, const void *record) {
  if (tn_trace_add(trace, table, record, 1)) abort();
}

/* Few places and sizes, so that records meet: multiples of 512, and the sizes of segments and pages. */
static uint64_t bytes_of(uint8_t code) {
  static const uint64_t sizes[] = {0, 512, 1 << 20, 2 * MIB, 20 * MIB, 22 * MIB, 40 * MIB, UINT64_MAX};
  return code & 8 ? (uint64_t)(code >> 4) * 3 * MIB + 1 : sizes[code & 7];
}

static tn_addr addr_of(uint8_t code) { return 1024 * MIB + (code & 15) * 2 * MIB + (uint64_t)(code >> 6) * 512 + (code & 48) * 20 * MIB; }

static void add_entry(tn_trace *trace, const uint8_t *r) {
  tn_entry entry = {.action = (uint8_t)(r[0] % TN_ACTION_COUNT), .addr = addr_of(r[1]), .bytes = bytes_of(r[2]), .stream = r[3] & 1,
                    .pool = (r[3] >> 1) & 1, .stack = r[3] & 4 ? TN_NONE : 0, .forward = TN_NONE};
  add(trace, TN_TABLE_ENTRY, &entry);
}

/* Cut into blocks of a quarter each; returns how many. */
static uint32_t add_segment(tn_trace *trace, const uint8_t *r, uint32_t blocks_at) {
  uint64_t bytes = bytes_of(r[2]) / 4 * 4;
  tn_segment segment = {.addr = addr_of(r[1]), .bytes = bytes, .stream = r[3] & 1, .pool = (r[3] >> 1) & 1, .stack = TN_NONE,
                        .flags = (r[0] >> 4) & 3, .blocks_at = blocks_at, .blocks_count = bytes ? 4 : 0};
  add(trace, TN_TABLE_SEGMENT, &segment);
  for (uint32_t i = 0; i < segment.blocks_count; i++) {
    uint8_t state = (uint8_t)((r[3] >> (2 * i)) % 3);
    tn_segment_block block = {.addr = segment.addr + i * (bytes / 4), .bytes = bytes / 4, .stack = TN_NONE, .state = state,
                              .requested_bytes = state ? bytes / 4 : 0, .category = TN_CATEGORY_UNKNOWN};
    add(trace, TN_TABLE_SEGMENT_BLOCK, &block);
  }
  return segment.blocks_count;
}

static tn_trace *trace_of(const uint8_t *data, size_t count) {
  tn_trace *trace;
  uint32_t segments = 0, entries = 0, blocks = 0;
  if (tn_trace_new(&trace)) abort();
  add(trace, TN_TABLE_STACK, &(tn_stack){0});
  add(trace, TN_TABLE_STREAM, &(tn_stream){77});
  add(trace, TN_TABLE_STREAM, &(tn_stream){5});
  add(trace, TN_TABLE_POOL, &(tn_pool){0, 0});
  add(trace, TN_TABLE_POOL, &(tn_pool){0, 1});
  for (size_t i = 0; i < count; i++) {
    const uint8_t *r = data + 4 * i;
    if (r[0] & 128 && segments < 8) {
      blocks += add_segment(trace, r, blocks);
      segments++;
    } else {
      add_entry(trace, r);
      entries++;
    }
  }
  add(trace, TN_TABLE_DEVICE, &(tn_device){.segments_count = segments, .entries_count = entries});
  return trace;
}

static void replay(const tn_trace *trace, uint8_t settings) {
  static const char *const confs[] = {"expandable_segments:True", "max_split_size_mb:20,garbage_collection_threshold:0.5",
                                      "roundup_power2_divisions:4", ""};
  tn_conf conf;
  tn_replay_options options = {.device = TN_NONE, .limit_bytes = settings & 4 ? 64 * MIB : 0};
  tn_replay_result result;
  (void)tn_replay(trace, &options, &result, NULL);
  if (tn_conf_parse(confs[settings & 3], trace, &conf, NULL)) abort();
  options.conf = &conf;
  (void)tn_replay(trace, &options, &result, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  size_t count = (size - 1) / 4;
  tn_trace *trace = trace_of(data + 1, count < RECORDS_MAX ? count : RECORDS_MAX);
  tn_trace_set_meta(trace, "allocator.expandable_segments", data[0] & 16 ? "True" : "False");
  tn_trace_set_meta(trace, "allocator.max_split_size", data[0] & 32 ? "20971520" : "-1");
  if (tn_trace_check(trace, NULL) == TN_OK) replay(trace, data[0]);
  tn_trace_free(trace);
  return 0;
}

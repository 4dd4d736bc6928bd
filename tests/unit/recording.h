/* recording.h -- a program run on the caching model and recorded as PyTorch records it: a trace with entries and final segments. */
#ifndef TN_TESTS_RECORDING_H
#define TN_TESTS_RECORDING_H

#include "caching/caching.h"
#include "helper.h"

#define MIB ((uint64_t)1 << 20)

enum { REC_ENTRIES_MAX = 20000, REC_BLOCKS_MAX = 4000, REC_STACKS = 100, REC_STREAMS = 3 };

typedef struct recording {
  tn_caching *caching;
  tn_caching_config config;
  uint64_t device_bytes;     /* what the driver has; 0 = any */
  tn_entry entries[REC_ENTRIES_MAX];
  uint32_t entries_count;
  uint32_t stack;            /* of the call that runs */
  uint32_t pool;
  tn_addr waiting[REC_BLOCKS_MAX]; /* freed, and used by another stream */
  uint64_t waiting_requested[REC_BLOCKS_MAX];
  size_t waiting_count;
  uint64_t syncs;
  int has_stacks, names_pools; /* what the file will say */
  uint32_t segments_made;
} recording;

static inline void rec_entry(recording *r, int action, tn_addr addr, uint64_t bytes, uint32_t stream) {
  assert_true(r->entries_count < REC_ENTRIES_MAX);
  r->entries[r->entries_count++] = (tn_entry){.action = (uint8_t)action, .addr = addr, .bytes = bytes, .stream = stream,
                                              .pool = r->names_pools ? r->pool : 0, .forward = TN_NONE,
                                              .stack = r->has_stacks ? r->stack : TN_NONE};
}

/* What waits is complete once the allocator has waited for all streams. */
static inline void rec_syncs(recording *r) {
  if (r->caching->stats.num_sync_all_streams == r->syncs && !r->caching->pending && r->waiting_count == 0) return;
  if (r->caching->pending) return;
  for (size_t i = 0; i < r->waiting_count; i++)
    rec_entry(r, TN_ACTION_FREE_COMPLETED, r->waiting[i], r->waiting_requested[i], 0);
  r->waiting_count = 0;
  r->syncs = r->caching->stats.num_sync_all_streams;
}

static inline tn_addr rec_addr(void *user, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream) {
  recording *r = user;
  (void)stream;
  if (kind == TN_SEGMENT_ALLOC && r->device_bytes && r->caching->stats.reserved_bytes.current + bytes > r->device_bytes) return 0;
  return (tn_addr)(r->segments_made++ * 40503u % 65536u + 1) << 40; /* far apart and in no order */
}

static inline int rec_map(void *user, tn_addr addr, uint64_t bytes, uint32_t stream) {
  recording *r = user;
  (void)addr, (void)stream;
  return !r->device_bytes || r->caching->stats.reserved_bytes.current + bytes <= r->device_bytes;
}

static inline void rec_event(void *user, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream) {
  static const int actions[] = {[TN_SEGMENT_ALLOC] = TN_ACTION_SEGMENT_ALLOC, [TN_SEGMENT_FREE] = TN_ACTION_SEGMENT_FREE,
                                [TN_SEGMENT_MAP] = TN_ACTION_SEGMENT_MAP, [TN_SEGMENT_UNMAP] = TN_ACTION_SEGMENT_UNMAP};
  recording *r = user;
  rec_syncs(r);
  rec_entry(r, actions[kind], addr, bytes, stream);
  if (r->names_pools) r->entries[r->entries_count - 1].pool = tn__segment_at(r->caching, addr)->first->pool / 2;
}

static inline recording *rec_new(tn_conf conf, uint64_t limit_bytes, uint64_t device_bytes) {
  recording *r = calloc(1, sizeof *r);
  assert_non_null(r);
  r->device_bytes = device_bytes;
  r->has_stacks = 1;
  r->config = (tn_caching_config){.conf = conf, .limit_bytes = limit_bytes, .event_delay = UINT32_MAX, .segment_addr = rec_addr,
                                  .segment_map = rec_map, .segment_event = rec_event, .user = r, .total_bytes = 1024 * MIB};
  assert_int_equal(tn_caching_new(&r->config, &r->caching), TN_OK);
  return r;
}

static inline void rec_free(recording *r) {
  tn_caching_free(r->caching);
  free(r);
}

/* 0: out of memory. */
static inline tn_addr rec_alloc_from(recording *r, uint32_t pool, uint64_t bytes, uint32_t stream, uint32_t line) {
  tn_addr addr = 0;
  r->stack = line;
  r->pool = pool;
  int rc = tn_caching_alloc_from(r->caching, pool, bytes, stream, &addr);
  assert_true(rc == TN_OK || rc == TN_ELIMIT);
  rec_syncs(r);
  if (rc)
    rec_entry(r, TN_ACTION_OOM, 0, tn__round(&r->config.conf, bytes), stream);
  else
    rec_entry(r, TN_ACTION_ALLOC, addr, bytes, stream);
  return rc ? 0 : addr;
}

static inline tn_addr rec_alloc(recording *r, uint64_t bytes) { return rec_alloc_from(r, 0, bytes, 0, 1); }

static inline tn__block *rec_block(recording *r, tn_addr addr) {
  return tn__block_by_id(&r->caching->store, tn__map_get(&r->caching->held, addr));
}

/* shared: another stream still uses it. */
static inline void rec_dealloc(recording *r, tn_addr addr, int shared) {
  const tn__block *block = rec_block(r, addr);
  uint64_t requested = block->requested;
  r->stack = 2;
  r->pool = block->pool / 2;
  rec_entry(r, TN_ACTION_FREE_REQUESTED, addr, requested, block->stream);
  if (shared) {
    assert_int_equal(tn_caching_record_stream(r->caching, addr, 99), TN_OK);
    assert_true(r->waiting_count < REC_BLOCKS_MAX);
    r->waiting_requested[r->waiting_count] = requested;
    r->waiting[r->waiting_count++] = addr;
  } else {
    rec_entry(r, TN_ACTION_FREE_COMPLETED, addr, requested, block->stream);
  }
  assert_int_equal(tn_caching_dealloc(r->caching, addr), TN_OK);
}

/* The oldest of what waits. */
static inline void rec_complete(recording *r) {
  if (r->waiting_count == 0) return;
  rec_entry(r, TN_ACTION_FREE_COMPLETED, r->waiting[0], r->waiting_requested[0], 0);
  assert_int_equal(tn_caching_complete(r->caching, r->waiting[0]), TN_OK);
  r->waiting_count--;
  memmove(r->waiting, r->waiting + 1, r->waiting_count * sizeof *r->waiting);
  memmove(r->waiting_requested, r->waiting_requested + 1, r->waiting_count * sizeof *r->waiting_requested);
}

static inline void rec_empty_cache(recording *r) {
  r->stack = 3;
  r->pool = 0;
  assert_int_equal(tn_caching_empty_cache(r->caching), TN_OK);
  rec_syncs(r);
}

/* ---- the trace ----------------------------------------------------------------------------------------------------------- */

typedef struct rec_map_state {
  recording *r;
  tn_trace *trace;
  tn_segment segment; /* the one that is being filled; bytes 0: none */
  uint32_t blocks, segments;
} rec_map_state;

static inline void rec_segment_end(rec_map_state *m) {
  if (m->segment.bytes) assert_int_equal(tn_trace_add(m->trace, TN_TABLE_SEGMENT, &m->segment, 1), TN_OK), m->segments++;
  m->segment.bytes = 0;
}

static inline void rec_visit(void *user, tn_addr segment, tn_addr addr, uint64_t bytes, uint64_t requested, int state) {
  rec_map_state *m = user;
  if (m->segment.bytes == 0 || m->segment.addr != segment) {
    rec_segment_end(m);
    const tn__block *block = tn__segment_at(m->r->caching, segment)->first;
    while (block->addr != addr) block = block->next;
    m->segment = (tn_segment){.addr = segment, .blocks_at = m->blocks, .stream = block->stream, .pool = block->pool / 2,
                              .stack = TN_NONE, .flags = (block->pool & 1 ? TN_SEGMENT_SMALL : 0) |
                                                         (block->is_expandable ? TN_SEGMENT_EXPANDABLE : 0)};
  }
  tn_segment_block b = {.addr = addr, .bytes = bytes, .requested_bytes = requested, .stack = TN_NONE, .state = (uint8_t)state,
                        .category = TN_CATEGORY_UNKNOWN};
  assert_int_equal(tn_trace_add(m->trace, TN_TABLE_SEGMENT_BLOCK, &b, 1), TN_OK);
  m->segment.bytes += bytes;
  m->segment.blocks_count++;
  m->blocks++;
}

static inline void rec_settings(const tn_conf *conf, tn_trace *trace) {
  char number[40], table[400] = "";
  (void)snprintf(number, sizeof number, "%llu", (unsigned long long)conf->max_split_bytes);
  tn_trace_set_meta(trace, "schema", "2.10+");
  tn_trace_set_meta(trace, "allocator.max_split_size", conf->max_split_bytes ? number : "-1");
  tn_trace_set_meta(trace, "allocator.expandable_segments", conf->expandable_segments ? "True" : "False");
  (void)snprintf(number, sizeof number, "%.17g", conf->garbage_collection_threshold);
  tn_trace_set_meta(trace, "allocator.garbage_collection_threshold", number);
  for (size_t i = 0; i < TN_CONF_INTERVALS; i++)
    (void)snprintf(table + strlen(table), sizeof table - strlen(table), "%u:%u ", 1u << i, conf->roundup_divisions[i]);
  tn_trace_set_meta(trace, "allocator.roundup_power2_divisions", table);
}

/* The trace of all but the first skip entries; checked. */
static inline tn_trace *rec_trace(recording *r, uint32_t skip) {
  tn_trace *trace;
  tn_error err = {0};
  assert_int_equal(tn_trace_new(&trace), TN_OK);
  for (int i = 0; i < REC_STACKS; i++) assert_int_equal(tn_trace_add(trace, TN_TABLE_STACK, &(tn_stack){0}, 1), TN_OK);
  for (uint64_t i = 0; i < REC_STREAMS; i++) assert_int_equal(tn_trace_add(trace, TN_TABLE_STREAM, &(tn_stream){i * 7}, 1), TN_OK);
  for (uint64_t i = 0; i < 4; i++) assert_int_equal(tn_trace_add(trace, TN_TABLE_POOL, &(tn_pool){0, i}, 1), TN_OK);
  assert_int_equal(tn_trace_add(trace, TN_TABLE_ENTRY, r->entries + skip, r->entries_count - skip), TN_OK);
  rec_map_state m = {.r = r, .trace = trace};
  tn_caching_walk(r->caching, rec_visit, &m);
  rec_segment_end(&m);
  tn_device device = {.segments_count = m.segments, .entries_count = r->entries_count - skip};
  assert_int_equal(tn_trace_add(trace, TN_TABLE_DEVICE, &device, 1), TN_OK);
  rec_settings(&r->config.conf, trace);
  if (tn_trace_check(trace, &err)) fail_msg("the recording is no trace: %s", err.msg);
  return trace;
}

#endif

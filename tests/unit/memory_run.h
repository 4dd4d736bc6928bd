/* memory_run.h -- a small allocator whose random history becomes a trace, beside what was true after every entry.
 *
 * Segments have 16 places of 128 KiB; a block begins at a place.  Expandable memory is one reservation of pages that are such
 * segments.  Some frees complete late.  The first entries can be left out of the trace, as when recording began late. */
#ifndef TN_TESTS_MEMORY_RUN_H
#define TN_TESTS_MEMORY_RUN_H

#include "base/vec.h"
#include "helper.h"

enum { RUN_PLACES = 16, RUN_SEGMENTS = 12, RUN_STACKS = 6 };
#define RUN_PLACE_BYTES (UINT64_C(128) << 10)
#define RUN_SEGMENT_BYTES (RUN_PLACES * RUN_PLACE_BYTES)
#define RUN_BASE UINT64_C(0x7f0000000000)

enum { RUN_FREE, RUN_ALLOCATED, RUN_PENDING };

typedef struct run_state { /* after an entry; place k of segment s is index s * RUN_PLACES + k */
  uint8_t is_held[RUN_SEGMENTS];
  uint8_t block[RUN_SEGMENTS * RUN_PLACES];
  uint8_t stack[RUN_SEGMENTS * RUN_PLACES];
  uint64_t bytes[RUN_SEGMENTS * RUN_PLACES];
} run_state;

typedef struct memory_run {
  uint64_t seed;
  int is_expandable;
  run_state now;
  tn_vec entries; /* tn_entry */
  tn_vec states;  /* run_state: states[m] is moment m of the whole run */
} memory_run;

static inline tn_addr run_segment_addr(const memory_run *run, size_t segment) {
  return RUN_BASE + segment * (run->is_expandable ? RUN_SEGMENT_BYTES : 4 * RUN_SEGMENT_BYTES);
}

static inline tn_addr run_block_addr(const memory_run *run, size_t place) {
  return run_segment_addr(run, place / RUN_PLACES) + place % RUN_PLACES * RUN_PLACE_BYTES;
}

static inline void run_entry(memory_run *run, int action, tn_addr addr, uint64_t bytes, uint32_t stack) {
  tn_entry entry = {.addr = addr, .bytes = bytes, .time_us = 1000 + 7 * run->entries.count, .stack = stack, .forward = TN_NONE,
                    .action = (uint8_t)action, .category = TN_CATEGORY_UNKNOWN};
  assert_int_equal(tn__vec_push(&run->entries, &entry), TN_OK);
  assert_int_equal(tn__vec_push(&run->states, &run->now), TN_OK);
}

static inline void run_segment(memory_run *run, size_t segment, int is_held) {
  run->now.is_held[segment] = (uint8_t)is_held;
  int action = is_held ? run->is_expandable ? TN_ACTION_SEGMENT_MAP : TN_ACTION_SEGMENT_ALLOC
                       : run->is_expandable ? TN_ACTION_SEGMENT_UNMAP : TN_ACTION_SEGMENT_FREE;
  run_entry(run, action, run_segment_addr(run, segment), RUN_SEGMENT_BYTES, 0);
}

static inline void run_block(memory_run *run, size_t place, int action) {
  run->now.block[place] = action == TN_ACTION_ALLOC ? RUN_ALLOCATED : action == TN_ACTION_FREE_REQUESTED ? RUN_PENDING : RUN_FREE;
  run_entry(run, action, run_block_addr(run, place), run->now.bytes[place], run->now.stack[place]);
}

static inline int run_segment_is_empty(const memory_run *run, size_t segment) {
  for (size_t k = 0; k < RUN_PLACES; k++)
    if (run->now.block[segment * RUN_PLACES + k] != RUN_FREE) return 0;
  return 1;
}

static inline void run_step(memory_run *run) {
  size_t place = tn_test_random(&run->seed) % (RUN_SEGMENTS * RUN_PLACES), segment = place / RUN_PLACES;
  uint64_t dice = tn_test_random(&run->seed) % 16;
  if (dice == 0 && run->now.is_held[segment] && run_segment_is_empty(run, segment)) {
    run_segment(run, segment, 0);
  } else if (run->now.block[place] == RUN_FREE) {
    if (!run->now.is_held[segment]) run_segment(run, segment, 1);
    run->now.bytes[place] = 512 * (1 + tn_test_random(&run->seed) % 200);
    run->now.stack[place] = (uint8_t)(tn_test_random(&run->seed) % RUN_STACKS);
    run_block(run, place, TN_ACTION_ALLOC);
  } else {
    if (run->now.block[place] == RUN_ALLOCATED) run_block(run, place, TN_ACTION_FREE_REQUESTED);
    if (dice > 4) run_block(run, place, TN_ACTION_FREE_COMPLETED);
  }
}

static inline memory_run run_make(uint64_t seed, size_t steps, int is_expandable) {
  memory_run run = {.seed = seed, .is_expandable = is_expandable};
  tn__vec_init(&run.entries, sizeof(tn_entry));
  tn__vec_init(&run.states, sizeof(run_state));
  assert_int_equal(tn__vec_push(&run.states, &run.now), TN_OK);
  for (size_t i = 0; i < steps; i++) run_step(&run);
  return run;
}

static inline void run_deinit(memory_run *run) {
  tn__vec_deinit(&run->states);
  tn__vec_deinit(&run->entries);
}

/* ---- as a trace ---------------------------------------------------------------------------------------------------------- */

static inline int run_stacks_add(tn_trace *trace) {
  static const char names[] = "inner\0outer\0train.py\0a\0b\0c\0d\0e\0f";
  tn_frame frames[RUN_STACKS + 1] = {{.function = 2, .file = 3, .line = 10}};
  uint32_t list[2 * RUN_STACKS];
  tn_stack stacks[RUN_STACKS];
  for (uint32_t i = 0; i < RUN_STACKS; i++) {
    frames[i + 1] = (tn_frame){.function = 4 + i, .file = 3, .line = 100 + i};
    list[2 * i] = i + 1;
    list[2 * i + 1] = 0;
    stacks[i] = (tn_stack){2 * i, 2};
  }
  int rc = tn_trace_add_strings(trace, names, sizeof names, 9);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_FRAME, frames, RUN_STACKS + 1);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_STACK_FRAME, list, (size_t)2 * RUN_STACKS);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_STACK, stacks, RUN_STACKS);
  return rc;
}

static inline int run_segment_add(tn_trace *trace, const memory_run *run, size_t segment, uint32_t *blocks) {
  tn_segment_block list[2 * RUN_PLACES];
  uint32_t count = 0;
  tn_segment record = {.addr = run_segment_addr(run, segment), .bytes = RUN_SEGMENT_BYTES, .blocks_at = *blocks, .stack = TN_NONE,
                       .flags = run->is_expandable ? TN_SEGMENT_EXPANDABLE : TN_SEGMENT_SMALL};
  for (size_t k = 0; k < RUN_PLACES; k++) {
    size_t place = segment * RUN_PLACES + k;
    uint64_t held = run->now.block[place] == RUN_FREE ? 0 : run->now.bytes[place];
    tn_addr addr = run_block_addr(run, place);
    if (held)
      list[count++] = (tn_segment_block){.addr = addr, .bytes = held, .requested_bytes = held, .stack = run->now.stack[place],
                                         .state = run->now.block[place] == RUN_PENDING ? TN_BLOCK_PENDING_FREE : TN_BLOCK_ALLOCATED,
                                         .category = TN_CATEGORY_UNKNOWN};
    list[count++] = (tn_segment_block){.addr = addr + held, .bytes = RUN_PLACE_BYTES - held, .stack = TN_NONE,
                                       .state = TN_BLOCK_INACTIVE, .category = TN_CATEGORY_UNKNOWN};
    if (run->now.block[place] == RUN_ALLOCATED) record.allocated_bytes += held;
    record.active_bytes += held;
    record.requested_bytes += held;
  }
  record.blocks_count = count;
  *blocks += count;
  int rc = tn_trace_add(trace, TN_TABLE_SEGMENT_BLOCK, list, count);
  return rc ? rc : tn_trace_add(trace, TN_TABLE_SEGMENT, &record, 1);
}

/* Without the first `from` entries. */
static inline int run_trace(const memory_run *run, size_t from, tn_trace **out) {
  static const tn_stream stream = {0};
  static const tn_pool pool = {0, 0};
  tn_trace *trace;
  int rc = tn_trace_new(&trace);
  if (rc) return rc;
  tn_device device = {.entries_count = (uint32_t)(run->entries.count - from)};
  uint32_t blocks = 0;
  rc = run_stacks_add(trace);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_STREAM, &stream, 1);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_POOL, &pool, 1);
  for (size_t i = 0; i < RUN_SEGMENTS && !rc; i++) {
    if (!run->now.is_held[i]) continue;
    rc = run_segment_add(trace, run, i, &blocks);
    device.segments_count++;
  }
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_ENTRY, TN_VEC(&run->entries, tn_entry) + from, device.entries_count);
  if (!rc) rc = tn_trace_add(trace, TN_TABLE_DEVICE, &device, 1);
  if (rc) {
    tn_trace_free(trace);
    return rc;
  }
  *out = trace;
  return TN_OK;
}

#endif

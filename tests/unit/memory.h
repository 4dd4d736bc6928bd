/* memory.h -- a snapshot as a test tells it: allocations and frees go through the caching model, which gives addresses, segments and
 * the final map, and what PyTorch would have recorded is written down.
 *
 *   memory m; memory_open(&m, NULL);
 *   uint32_t line = memory_stack(&m, "train.py:3 step", NULL);
 *   uint32_t block = memory_alloc(&m, 1 << 20, line);
 *   memory_free(&m, block, line);
 *   memory_close(&m);            m.trace has passed tn_trace_check()
 *   use(m.trace);  memory_end(&m);
 *
 * Every function fails the test when the library refuses. */
#ifndef TN_TESTS_MEMORY_H
#define TN_TESTS_MEMORY_H

#include "base/vec.h"
#include "helper.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

typedef struct memory_block {
  tn_addr addr;
  uint64_t bytes; /* requested */
  uint32_t stream, pool, stack;
  int live; /* 1: allocated, 2: waits for a stream */
} memory_block;

typedef struct memory_segment { /* as the segment event said */
  tn_addr addr;
  uint64_t bytes;
  uint32_t stream, pool;
} memory_segment;

typedef struct memory {
  tn_trace *trace;
  tn_caching *caching;
  tn_vec entries;  /* tn_entry */
  tn_vec blocks;   /* memory_block, by number */
  tn_vec segments; /* memory_segment, live ones, of cudaMalloc */
  tn_vec ranges;   /* memory_segment, whatever was mapped once */
  tn_vec levels;   /* tn_caching_stats after each entry that is not of a segment, as the model counts */
  uint32_t stack;  /* of the call that runs */
  uint32_t stream, pool;
  uint32_t skip;   /* entries that were overwritten: memory_close() leaves out that many */
  uint64_t time_us;
} memory;

static inline void memory_must(int rc, const char *what) {
  if (rc) fail_msg("%s: %s", what, tn_error_name(rc));
}

static inline uint32_t memory_string(memory *m, const char *text) {
  uint32_t id = 0;
  memory_must(tn_trace_add_string(m->trace, text, &id), "string");
  return id;
}

/* Innermost frame first, each "file:line function"; NULL ends.  No frame at all: what a thread without Python records. */
static inline uint32_t memory_stack(memory *m, ...) {
  size_t frames = 0, stacks = 0, refs = 0;
  va_list args;
  va_start(args, m);
  (void)tn_trace_table(m->trace, TN_TABLE_STACK, &stacks);
  (void)tn_trace_table(m->trace, TN_TABLE_STACK_FRAME, &refs);
  tn_stack stack = {(uint32_t)refs, 0};
  for (const char *text; (text = va_arg(args, const char *)); stack.frames_count++) {
    char file[200], function[200];
    unsigned line = 0;
    if (sscanf(text, "%199[^:]:%u %199[^\n]", file, &line, function) != 3) fail_msg("frame %s", text);
    (void)tn_trace_table(m->trace, TN_TABLE_FRAME, &frames);
    tn_frame frame = {memory_string(m, function), memory_string(m, file), line, 0};
    uint32_t ref = (uint32_t)frames;
    memory_must(tn_trace_add(m->trace, TN_TABLE_FRAME, &frame, 1), "frame");
    memory_must(tn_trace_add(m->trace, TN_TABLE_STACK_FRAME, &ref, 1), "frame");
  }
  va_end(args);
  memory_must(tn_trace_add(m->trace, TN_TABLE_STACK, &stack, 1), "stack");
  return (uint32_t)stacks;
}

static inline void memory_entry(memory *m, int action, tn_addr addr, uint64_t bytes) {
  tn_entry entry = {.addr = addr, .bytes = bytes, .time_us = m->time_us += 10, .stream = m->stream, .pool = m->pool, .stack = m->stack,
                    .forward = TN_NONE, .action = (uint8_t)action, .category = TN_CATEGORY_UNKNOWN};
  memory_must(tn__vec_push(&m->entries, &entry), "entry");
}

static inline const memory_segment *memory_segment_at(const tn_vec *segments, tn_addr addr) {
  for (size_t i = 0; i < segments->count; i++) {
    const memory_segment *segment = &TN_VEC(segments, memory_segment)[i];
    if (addr >= segment->addr && addr - segment->addr < segment->bytes) return segment;
  }
  return NULL;
}

static inline void memory_segment_event(void *user, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream) {
  static const int actions[] = {0, TN_ACTION_SEGMENT_ALLOC, TN_ACTION_SEGMENT_FREE, TN_ACTION_SEGMENT_MAP, TN_ACTION_SEGMENT_UNMAP};
  memory *m = user;
  uint32_t stream_asking = m->stream, pool_asking = m->pool;
  const memory_segment *known = memory_segment_at(kind == TN_SEGMENT_FREE ? &m->segments : &m->ranges, addr);
  m->stream = stream;
  if (kind == TN_SEGMENT_FREE || kind == TN_SEGMENT_UNMAP) m->pool = known ? known->pool : 0;
  memory_entry(m, actions[kind], addr, bytes);
  m->stream = stream_asking, m->pool = pool_asking;
  memory_segment segment = {addr, bytes, stream, m->pool};
  if (kind == TN_SEGMENT_ALLOC) memory_must(tn__vec_push(&m->segments, &segment), "segment");
  if (kind == TN_SEGMENT_MAP) memory_must(tn__vec_push(&m->ranges, &segment), "range");
  for (size_t i = 0; i < m->segments.count && kind == TN_SEGMENT_FREE; i++) {
    if (TN_VEC(&m->segments, memory_segment)[i].addr != addr) continue;
    tn__vec_pop(&m->segments, &segment);
    if (i < m->segments.count) TN_VEC(&m->segments, memory_segment)[i] = segment;
    return;
  }
}

/* conf as in PYTORCH_CUDA_ALLOC_CONF, NULL: PyTorch's own; limit of reserved memory, 0: none. */
static inline void memory_open_limited(memory *m, const char *conf, uint64_t limit_bytes) {
  *m = (memory){.stack = TN_NONE, .time_us = 1000000};
  memory_must(tn_trace_new(&m->trace), "trace");
  tn__vec_init(&m->entries, sizeof(tn_entry));
  tn__vec_init(&m->blocks, sizeof(memory_block));
  tn__vec_init(&m->segments, sizeof(memory_segment));
  tn__vec_init(&m->ranges, sizeof(memory_segment));
  tn__vec_init(&m->levels, sizeof(tn_caching_stats));
  tn_caching_config config = {.limit_bytes = limit_bytes, .event_delay = UINT32_MAX, .segment_event = memory_segment_event, .user = m};
  memory_must(tn_conf_parse(conf ? conf : "", NULL, &config.conf, NULL), "conf");
  memory_must(tn_caching_new(&config, &m->caching), "caching");
  if (conf) memory_must(tn_trace_set_meta(m->trace, "allocator.PYTORCH_CUDA_ALLOC_CONF", conf), "conf");
  char text[64];
  snprintf(text, sizeof text, "%lld", config.conf.max_split_bytes ? (long long)config.conf.max_split_bytes : -1LL);
  memory_must(tn_trace_set_meta(m->trace, "allocator.max_split_size", text), "conf");
  memory_must(tn_trace_set_meta(m->trace, "allocator.expandable_segments", config.conf.expandable_segments ? "true" : "false"), "conf");
}

static inline void memory_open(memory *m, const char *conf) { memory_open_limited(m, conf, 0); }

static inline memory_block *memory_at(memory *m, uint32_t block) { return &TN_VEC(&m->blocks, memory_block)[block]; }

static inline void memory_level(memory *m) {
  tn_caching_stats stats;
  tn_caching_get_stats(m->caching, &stats);
  while (m->levels.count < m->entries.count) memory_must(tn__vec_push(&m->levels, &stats), "level");
}

/* The block's number; TN_NONE when memory is out, which is recorded with free_bytes of the device. */
static inline uint32_t memory_alloc_on(memory *m, uint64_t bytes, uint32_t stack, uint32_t stream, uint32_t pool) {
  tn_addr addr = 0;
  m->stack = stack, m->stream = stream, m->pool = pool;
  int rc = pool ? tn_caching_alloc_from(m->caching, pool, bytes, stream, &addr) : tn_caching_alloc(m->caching, bytes, stream, &addr);
  if (rc == TN_ELIMIT) {
    memory_entry(m, TN_ACTION_OOM, 3 * MIB, tn_caching_round(bytes));
    memory_level(m);
    return TN_NONE;
  }
  memory_must(rc, "alloc");
  memory_entry(m, TN_ACTION_ALLOC, addr, bytes);
  memory_level(m);
  memory_block block = {addr, bytes, stream, pool, stack, 1};
  memory_must(tn__vec_push(&m->blocks, &block), "block");
  return (uint32_t)m->blocks.count - 1;
}

static inline uint32_t memory_alloc(memory *m, uint64_t bytes, uint32_t stack) { return memory_alloc_on(m, bytes, stack, 0, 0); }

static inline void memory_complete(memory *m, uint32_t block) {
  memory_block *b = memory_at(m, block);
  if (b->live == 2) memory_must(tn_caching_complete(m->caching, b->addr), "complete");
  m->stream = b->stream, m->pool = b->pool;
  memory_entry(m, TN_ACTION_FREE_COMPLETED, b->addr, b->bytes);
  memory_level(m);
  b->live = 0;
}

/* stack: where it is freed.  A block that another stream used waits for memory_complete(). */
static inline void memory_free_on(memory *m, uint32_t block, uint32_t stack, int waits) {
  memory_block *b = memory_at(m, block);
  m->stack = stack, m->stream = b->stream, m->pool = b->pool;
  if (waits) memory_must(tn_caching_record_stream(m->caching, b->addr, b->stream + 1), "record_stream");
  memory_must(tn_caching_dealloc(m->caching, b->addr), "dealloc");
  memory_entry(m, TN_ACTION_FREE_REQUESTED, b->addr, b->bytes);
  if (waits) {
    b->live = 2;
    memory_level(m);
  } else {
    memory_complete(m, block);
  }
}

static inline void memory_free(memory *m, uint32_t block, uint32_t stack) { memory_free_on(m, block, stack, 0); }

/* Waits for all streams first, as PyTorch does. */
static inline void memory_empty_cache(memory *m, uint32_t stack) {
  for (uint32_t i = 0; i < m->blocks.count; i++)
    if (memory_at(m, i)->live == 2) memory_complete(m, i);
  m->stack = stack;
  memory_must(tn_caching_empty_cache(m->caching), "empty_cache");
  memory_level(m);
}

static inline void memory_annotate(memory *m, const char *name, int is_end) {
  tn_annotation annotation = {.time_us = m->time_us += 10, .name = memory_string(m, name), .flags = is_end ? TN_ANNOTATION_END : 0};
  memory_must(tn_trace_add(m->trace, TN_TABLE_ANNOTATION, &annotation, 1), "annotation");
}

/* ---- the final map ------------------------------------------------------------------------------------------------------- */

static inline memory_block *memory_live_at(memory *m, tn_addr addr) {
  for (size_t i = m->blocks.count; i-- > 0;)
    if (memory_at(m, (uint32_t)i)->live && memory_at(m, (uint32_t)i)->addr == addr) return memory_at(m, (uint32_t)i);
  return NULL;
}

typedef struct memory_map {
  memory *m;
  tn_vec segments, blocks;
  tn_addr segment, end;
} memory_map;

static inline void memory_visit(void *user, tn_addr segment, tn_addr addr, uint64_t bytes, uint64_t requested, int state) {
  memory_map *map = user;
  const memory_segment *fixed = memory_segment_at(&map->m->segments, addr);
  const memory_segment *from = fixed ? fixed : memory_segment_at(&map->m->ranges, addr);
  memory_block *live = state == TN_BLOCK_INACTIVE ? NULL : memory_live_at(map->m, addr);
  int begins = !map->segments.count || segment != map->segment || addr != map->end; /* mapped ranges of one reservation are several */
  map->segment = segment;
  if (begins) {
    uint32_t small = from->bytes % (20 * MIB) && from->bytes <= 2 * MIB ? TN_SEGMENT_SMALL : 0;
    tn_segment added = {.addr = addr, .blocks_at = (uint32_t)map->blocks.count, .stack = TN_NONE, .stream = from->stream, .pool = from->pool,
                        .flags = small | (fixed ? 0 : TN_SEGMENT_EXPANDABLE)};
    memory_must(tn__vec_push(&map->segments, &added), "segment");
  }
  tn_segment *in = tn__vec_at(&map->segments, map->segments.count - 1);
  tn_segment_block block = {.addr = addr, .bytes = bytes, .requested_bytes = requested, .stack = live ? live->stack : TN_NONE,
                            .state = (uint8_t)state, .category = TN_CATEGORY_UNKNOWN};
  memory_must(tn__vec_push(&map->blocks, &block), "block");
  in->bytes += bytes;
  in->blocks_count++;
  in->allocated_bytes += state == TN_BLOCK_ALLOCATED ? bytes : 0;
  in->active_bytes += state != TN_BLOCK_INACTIVE ? bytes : 0;
  in->requested_bytes += requested;
  map->end = addr + bytes;
}

static inline void memory_close(memory *m) {
  memory_map map = {.m = m};
  tn__vec_init(&map.segments, sizeof(tn_segment));
  tn__vec_init(&map.blocks, sizeof(tn_segment_block));
  tn_caching_walk(m->caching, memory_visit, &map);
  tn_pool pools[4] = {{0, 0}, {1, 0}, {0, 1}, {2, 0}};
  tn_stream streams[4] = {{0}, {0x100}, {0x200}, {0x300}};
  size_t skip = m->skip < m->entries.count ? m->skip : m->entries.count;
  const tn_entry *entries = m->entries.data;
  tn_device device = {.segments_count = (uint32_t)map.segments.count, .entries_count = (uint32_t)(m->entries.count - skip)};
  memory_must(tn_trace_add(m->trace, TN_TABLE_STREAM, streams, 4), "streams");
  memory_must(tn_trace_add(m->trace, TN_TABLE_POOL, pools, 4), "pools");
  memory_must(tn_trace_add(m->trace, TN_TABLE_SEGMENT, map.segments.data, map.segments.count), "segments");
  memory_must(tn_trace_add(m->trace, TN_TABLE_SEGMENT_BLOCK, map.blocks.data, map.blocks.count), "blocks");
  memory_must(tn_trace_add(m->trace, TN_TABLE_ENTRY, entries ? entries + skip : NULL, device.entries_count), "entries");
  memory_must(tn_trace_add(m->trace, TN_TABLE_DEVICE, &device, 1), "device");
  tn_error err = {0};
  if (tn_trace_check(m->trace, &err)) fail_msg("the test's own trace is wrong: %s", err.msg);
  tn__vec_deinit(&map.segments);
  tn__vec_deinit(&map.blocks);
}

static inline void memory_end(memory *m) {
  tn__vec_deinit(&m->levels);
  tn__vec_deinit(&m->ranges);
  tn__vec_deinit(&m->segments);
  tn__vec_deinit(&m->blocks);
  tn__vec_deinit(&m->entries);
  tn_caching_free(m->caching);
  tn_trace_free(m->trace);
}

#endif

/* finish.c -- the end of a snapshot: what was collected becomes the tables of a trace, in their order.  See build.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "snapshot/build.h"
#include "trace/trace.h"

enum { SETTINGS_MAX = 500 };

/* ---- what the file is ---------------------------------------------------------------------------------------------------- */

static int find_top(tn__build *build, tn__top *out) {
  const tn__item *item = tn__vec_at(&build->stack, 0);
  if (item->tag == TN__ITEM_OBJECT) {
    TN_TRY(tn__build_close_last(build));
    const tn__object *object = tn__build_object_at(build, item->bits);
    if (object->kind == TN__OBJECT_TOP) {
      *out = TN_VEC(&build->tops, tn__top)[object->at];
      return TN_OK;
    }
    if (object->kind == TN__OBJECT_BAD) return tn__build_bad(build, object);
    if (object->kind == TN__OBJECT_SEGMENTS || object->kind == TN__OBJECT_EMPTY) { /* torch.cuda.memory_snapshot() */
      *out = (tn__top){.segments = {object->at, object->count}};
      return TN_OK;
    }
  }
  return tn__build_fault(
      build, item, "is no memory snapshot: expected a dictionary with \"segments\" or \"device_traces\", or a list of segments");
}

/* ---- entries ------------------------------------------------------------------------------------------------------------- */

/* The entries lie as they must, device after device and nothing else, and each is one of ours. */
static int entries_lie_well(const tn__build *build, const tn__run *runs, size_t run_count) {
  uint64_t next = 0;
  if (build->odd_actions) return 0;
  for (size_t i = 0; i < run_count; i++) {
    if (runs[i].count == 0) continue;
    if (runs[i].at != next) return 0;
    next = (uint64_t)runs[i].at + runs[i].count;
  }
  return next == build->trace->tables[TN_TABLE_ENTRY].count;
}

/* torch 2.0 has one action where later versions have two. */
static int entry_copy(tn__build *build, tn_vec *to, const tn_entry *entry) {
  tn_entry copy = *entry;
  if (entry->action == TN__ACTION_UNKNOWN) {
    build->unknown_actions++;
    return TN_OK;
  }
  if (entry->action == TN__ACTION_FREE) {
    copy.action = TN_ACTION_FREE_REQUESTED;
    TN_TRY(tn__vec_push(to, &copy));
    copy.action = TN_ACTION_FREE_COMPLETED;
  }
  return tn__vec_push(to, &copy);
}

/* A list that stands in many places makes many entries of few bytes. */
static int entries_check(tn__build *build, const tn__run *runs, size_t run_count) {
  uint64_t count = 0;
  for (size_t i = 0; i < run_count; i++) count += runs[i].count;
  return tn__build_check_memory(build, count * sizeof(tn_entry));
}

static int entries_copy(tn__build *build, tn__run *runs, size_t run_count) {
  tn_vec *table = &build->trace->tables[TN_TABLE_ENTRY], to;
  TN_TRY(entries_check(build, runs, run_count));
  tn__vec_init(&to, sizeof(tn_entry));
  int rc = TN_OK;
  for (size_t i = 0; i < run_count && !rc; i++) {
    size_t at = to.count;
    for (uint32_t k = 0; k < runs[i].count && !rc; k++) rc = entry_copy(build, &to, tn__vec_at(table, (size_t)runs[i].at + k));
    runs[i] = (tn__run){(uint32_t)at, (uint32_t)(to.count - at)};
  }
  if (!rc && to.count >= TN_NONE) rc = TN_ENOMEM;
  tn__vec_deinit(rc ? &to : table);
  if (rc) return tn__build_no_memory(build);
  *table = to;
  return TN_OK;
}

/* ---- segments ------------------------------------------------------------------------------------------------------------ */

static int compare_u64(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static int compare_segments(const void *a, const void *b) {
  const tn__raw_segment *x = a, *y = b;
  int order = compare_u64(x->is_host, y->is_host);
  if (!order) order = compare_u64(x->device, y->device);
  if (!order) order = compare_u64(x->segment.addr, y->segment.addr);
  return order ? order : compare_u64(x->segment.blocks_at, y->segment.blocks_at);
}

/* The segments of the two lists, sorted, in *out. */
static int segments_choose(tn__build *build, const tn__top *top, tn_vec *out) {
  for (int is_host = 0; is_host < 2; is_host++) {
    tn__run run = is_host ? top->host_segments : top->segments;
    if (run.count == 0) continue;
    size_t at = out->count;
    if (tn__vec_append(out, tn__vec_at(&build->raw_segments, run.at), run.count)) return tn__build_no_memory(build);
    for (; at < out->count; at++) TN_VEC(out, tn__raw_segment)[at].is_host = (uint32_t)is_host;
  }
  if (out->count > 1) qsort(out->data, out->count, sizeof(tn__raw_segment), compare_segments);
  return TN_OK;
}

typedef struct sums {
  uint64_t bytes, allocated, active, requested;
} sums;

/* Gives each block its address and says whether they tile the segment; sizes are below 2^62, so a sum stops in time. */
static int blocks_tile(const tn__raw_segment *raw, tn_segment_block *blocks, sums *out) {
  const tn_segment *segment = &raw->segment;
  int tiled = 1;
  for (uint32_t i = 0; i < segment->blocks_count; i++) {
    tn_segment_block *block = &blocks[i];
    tn_addr at = segment->addr + out->bytes;
    if (!(block->reserved & TN__BLOCK_HAS_ADDR)) block->addr = at;
    if (!(block->reserved & TN__BLOCK_HAS_REQUESTED) && block->state != TN_BLOCK_INACTIVE) block->requested_bytes = block->bytes;
    block->reserved = 0;
    tiled = tiled && block->addr == at;
    out->bytes += block->bytes;
    out->allocated += block->state == TN_BLOCK_ALLOCATED ? block->bytes : 0;
    out->active += block->state != TN_BLOCK_INACTIVE ? block->bytes : 0;
    out->requested += block->requested_bytes;
    if (out->bytes >> 62) return 0;
  }
  return tiled;
}

/* What the file does not say is what its blocks say. */
static void segment_complete(tn_segment *segment, uint64_t keys, const sums *of_blocks) {
  if (!(keys & TN__KEY_BIT(TOTAL_SIZE))) segment->bytes = of_blocks->bytes;
  if (!(keys & TN__KEY_BIT(ALLOCATED_SIZE))) segment->allocated_bytes = of_blocks->allocated;
  if (!(keys & TN__KEY_BIT(ACTIVE_SIZE))) segment->active_bytes = of_blocks->active;
  if (!(keys & TN__KEY_BIT(REQUESTED_SIZE))) segment->requested_bytes = of_blocks->requested;
}

/* Copies the blocks to the end of their new table, where the segment finds them; or leaves them out when they make no sense. */
static int segment_blocks(tn__build *build, tn__raw_segment *raw, tn_vec *to) {
  tn_segment *segment = &raw->segment;
  size_t at = to->count;
  sums of_blocks = {0};
  const tn_segment_block *from = TN_VEC(&build->trace->tables[TN_TABLE_SEGMENT_BLOCK], tn_segment_block);
  if (tn__vec_append(to, segment->blocks_count ? from + segment->blocks_at : NULL, segment->blocks_count))
    return tn__build_no_memory(build);
  if (to->count >= TN_NONE) return tn__build_fault(build, NULL, "has more than 4 billion blocks");
  int tiled = blocks_tile(raw, segment->blocks_count ? tn__vec_at(to, at) : NULL, &of_blocks);
  segment_complete(segment, raw->keys, &of_blocks);
  segment->blocks_at = (uint32_t)at;
  if (segment->blocks_count > 0 && (!tiled || of_blocks.bytes != segment->bytes)) {
    to->count = at;
    segment->blocks_count = 0;
    segment->flags |= TN_SEGMENT_UNTILED;
  }
  return TN_OK;
}

/* What tn_trace_check() would say, with the place in the file. */
static int segment_check(tn__build *build, const tn__raw_segment *raw, uint64_t *bytes_left) {
  const tn__item place = {.offset = raw->offset};
  const tn_segment *segment = &raw->segment;
  if (segment->bytes > *bytes_left) return tn__build_fault(build, &place, "the sizes of segments add up to more than any memory");
  if (segment->addr + segment->bytes < segment->addr)
    return tn__build_fault(build, &place, "a segment of %llu bytes ends beyond the address space",
                           (unsigned long long)segment->bytes);
  *bytes_left -= segment->bytes;
  return TN_OK;
}

static int blocks_check(tn__build *build, const tn_vec *chosen) {
  uint64_t count = 0;
  for (size_t i = 0; i < chosen->count; i++) count += TN_VEC(chosen, tn__raw_segment)[i].segment.blocks_count;
  return tn__build_check_memory(build, count * sizeof(tn_segment_block));
}

static int segments_place(tn__build *build, tn_vec *chosen, tn_vec *blocks) {
  TN_TRY(blocks_check(build, chosen));
  uint64_t bytes_left = (uint64_t)1 << 62; /* as in trace/check.c */
  for (size_t i = 0; i < chosen->count; i++) {
    tn__raw_segment *raw = tn__vec_at(chosen, i);
    TN_TRY(segment_blocks(build, raw, blocks));
    TN_TRY(segment_check(build, raw, &bytes_left));
    if (tn_trace_add(build->trace, TN_TABLE_SEGMENT, &raw->segment, 1)) return tn__build_no_memory(build);
  }
  return TN_OK;
}

/* ---- devices ------------------------------------------------------------------------------------------------------------- */

static int device_new(tn__build *build, uint32_t index, int is_host, tn_device **out) {
  tn_vec *devices = &build->trace->tables[TN_TABLE_DEVICE];
  tn_device device = {.index = index, .flags = is_host ? TN_DEVICE_HOST : 0};
  if (tn__vec_push(devices, &device)) return tn__build_no_memory(build);
  *out = tn__vec_at(devices, devices->count - 1);
  return TN_OK;
}

/* The devices of one kind: those that have segments (from *at on) or entries, in order of their number. */
static int devices_place(tn__build *build, const tn_vec *chosen, size_t *at, const tn__run *runs, uint32_t run_count, int is_host) {
  const tn__raw_segment *raw = TN_VEC(chosen, tn__raw_segment);
  uint32_t run = 0;
  for (;;) {
    while (run < run_count && runs[run].count == 0) run++;
    int has_segment = *at < chosen->count && raw[*at].is_host == (uint32_t)is_host;
    if (run == run_count && !has_segment) return TN_OK;
    uint32_t index = has_segment && (run == run_count || raw[*at].device < run) ? raw[*at].device : run;
    tn_device *device = NULL;
    TN_TRY(device_new(build, index, is_host, &device));
    device->segments_at = (uint32_t)*at;
    while (*at < chosen->count && raw[*at].is_host == (uint32_t)is_host && raw[*at].device == index) (*at)++;
    device->segments_count = (uint32_t)*at - device->segments_at;
    if (run < run_count && run == index) {
      device->entries_at = runs[run].at;
      device->entries_count = runs[run].count;
      run++;
    }
  }
}

/* ---- streams ------------------------------------------------------------------------------------------------------------- */

typedef struct ranked {
  uint64_t handle;
  uint32_t old;
} ranked;

static int compare_handles(const void *a, const void *b) {
  return compare_u64(((const ranked *)a)->handle, ((const ranked *)b)->handle);
}

/* new_ids[old id] = new id, by handle. */
static int streams_rank(tn_vec *streams, uint32_t *new_ids) {
  ranked *order = tn__mem_zalloc(streams->count, sizeof *order);
  if (!order) return TN_ENOMEM;
  tn_stream *stream = TN_VEC(streams, tn_stream);
  for (uint32_t i = 0; i < streams->count; i++) order[i] = (ranked){stream[i].handle, i};
  if (streams->count > 1) qsort(order, streams->count, sizeof *order, compare_handles);
  for (uint32_t i = 0; i < streams->count; i++) {
    stream[i].handle = order[i].handle;
    new_ids[order[i].old] = i;
  }
  tn__mem_free(order);
  return TN_OK;
}

/* An entry or segment that does not say is on the default stream. */
static int streams_default(tn__build *build) {
  tn_vec *entries = &build->trace->tables[TN_TABLE_ENTRY], *segments = &build->trace->tables[TN_TABLE_SEGMENT];
  for (size_t i = 0; i < entries->count && build->streams_missing; i++) {
    tn_entry *entry = tn__vec_at(entries, i);
    if (entry->stream == TN_NONE) TN_TRY(tn__build_stream(build, 0, &entry->stream));
  }
  for (size_t i = 0; i < segments->count; i++) {
    tn_segment *segment = tn__vec_at(segments, i);
    if (segment->stream == TN_NONE) TN_TRY(tn__build_stream(build, 0, &segment->stream));
  }
  return TN_OK;
}

static int streams_are_sorted(const tn_vec *streams) {
  for (size_t i = 1; i < streams->count; i++)
    if (TN_VEC(streams, tn_stream)[i - 1].handle > TN_VEC(streams, tn_stream)[i].handle) return 0;
  return 1;
}

static int streams_sort(tn__build *build) {
  TN_TRY(streams_default(build));
  tn_vec *streams = &build->trace->tables[TN_TABLE_STREAM];
  if (streams_are_sorted(streams)) return TN_OK;
  tn_vec *entries = &build->trace->tables[TN_TABLE_ENTRY], *segments = &build->trace->tables[TN_TABLE_SEGMENT];
  uint32_t *new_ids = tn__mem_zalloc(streams->count, sizeof *new_ids);
  if (!new_ids || streams_rank(streams, new_ids)) {
    tn__mem_free(new_ids);
    return tn__build_no_memory(build);
  }
  for (size_t i = 0; i < entries->count; i++) TN_VEC(entries, tn_entry)[i].stream = new_ids[TN_VEC(entries, tn_entry)[i].stream];
  for (size_t i = 0; i < segments->count; i++)
    TN_VEC(segments, tn_segment)[i].stream = new_ids[TN_VEC(segments, tn_segment)[i].stream];
  tn__mem_free(new_ids);
  return TN_OK;
}

/* ---- meta ---------------------------------------------------------------------------------------------------------------- */

/* The first version that writes what the file has.  Each key once was new. */
static const char *schema_guess(const tn__build *build) {
  uint64_t entries = build->entry_keys, any = entries | build->other_keys;
  if (any & (TN__KEY_BIT(POOL_ID) | TN__KEY_BIT(FORWARD_FRAMES) | TN__KEY_BIT(HOST_SEGMENTS) | TN__KEY_BIT(HOST_TRACES)))
    return "2.12+";
  if (entries & TN__KEY_BIT(USER_METADATA)) return "2.10+";
  if (any & TN__KEY_BIT(REUSE)) return "2.9+";
  if (entries & TN__KEY_BIT(COMPILE_CONTEXT)) return "2.8+";
  if (any & TN__KEY_BIT(EXTERNAL_ANNOTATIONS)) return "2.6+";
  if ((entries & TN__KEY_BIT(TIME_US)) || (any & TN__KEY_BIT(ALLOCATOR_SETTINGS))) return "2.3+";
  if (any & TN__KEY_BIT(HISTORY)) return "2.0";
  return "2.1+";
}

static int meta_set(tn__build *build, const char *prefix, const char *key, const char *value) {
  char name[128];
  if (strlen(prefix) + strlen(key) >= sizeof name) return TN_OK; /* no setting has such a name */
  strcpy(name, prefix);
  strcat(name, key);
  return tn_trace_set_meta(build->trace, name, value) ? tn__build_no_memory(build) : TN_OK;
}

static int meta_settings(tn__build *build, const tn__top *top) {
  if (top->settings.count > SETTINGS_MAX) return tn__build_fault(build, NULL, "has more than %d allocator settings", SETTINGS_MAX);
  for (uint32_t i = 0; i < top->settings.count; i++) {
    tn__setting setting = TN_VEC(&build->settings, tn__setting)[top->settings.at + i];
    TN_TRY(meta_set(build, "allocator.", tn_trace_string(build->trace, setting.key), tn_trace_string(build->trace, setting.value)));
  }
  return TN_OK;
}

static int meta_place(tn__build *build, const tn__top *top) {
  char number[32];
  TN_TRY(meta_set(build, "", "source", "torch memory snapshot"));
  TN_TRY(meta_set(build, "", "schema", schema_guess(build)));
  TN_TRY(meta_settings(build, top));
  if (build->unknown_actions == 0) return TN_OK;
  (void)snprintf(number, sizeof number, "%llu", (unsigned long long)build->unknown_actions);
  return meta_set(build, "", "entries_skipped", number);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static int segments_finish(tn__build *build, const tn__top *top, tn_vec *chosen, tn_vec *blocks) {
  TN_TRY(segments_choose(build, top, chosen));
  TN_TRY(segments_place(build, chosen, blocks));
  tn__vec_deinit(&build->trace->tables[TN_TABLE_SEGMENT_BLOCK]);
  build->trace->tables[TN_TABLE_SEGMENT_BLOCK] = *blocks;
  tn__vec_init(blocks, sizeof(tn_segment_block));
  tn__run *runs = TN_VEC(&build->runs, tn__run);
  size_t at = 0;
  TN_TRY(devices_place(build, chosen, &at, top->traces.count ? runs + top->traces.at : NULL, top->traces.count, 0));
  return devices_place(build, chosen, &at, top->host_traces.count ? runs + top->host_traces.at : NULL, top->host_traces.count, 1);
}

/* The runs that the file speaks of become the only ones, those of devices first. */
static int entries_finish(tn__build *build, tn__top *top) {
  tn_vec runs;
  tn__vec_init(&runs, sizeof(tn__run));
  const tn__run *old = TN_VEC(&build->runs, tn__run);
  int rc = top->traces.count ? tn__vec_append(&runs, old + top->traces.at, top->traces.count) : TN_OK;
  if (!rc && top->host_traces.count) rc = tn__vec_append(&runs, old + top->host_traces.at, top->host_traces.count);
  if (rc) {
    tn__vec_deinit(&runs);
    return tn__build_no_memory(build);
  }
  tn__vec_deinit(&build->runs);
  build->runs = runs;
  top->traces.at = 0;
  top->host_traces.at = top->traces.count;
  if (entries_lie_well(build, TN_VEC(&runs, tn__run), runs.count)) return TN_OK;
  return entries_copy(build, TN_VEC(&build->runs, tn__run), runs.count);
}

static void annotations_finish(tn__build *build, const tn__top *top) {
  tn_vec *table = &build->trace->tables[TN_TABLE_ANNOTATION];
  tn_annotation *all = TN_VEC(table, tn_annotation);
  if (top->annotations.count) memmove(all, all + top->annotations.at, top->annotations.count * sizeof *all);
  table->count = top->annotations.count;
}

int tn__build_finish(tn__build *build) {
  tn__top top = {0};
  TN_TRY(find_top(build, &top));
  tn__vec_deinit(&build->stack);
  tn__vec_deinit(&build->objects);
  TN_TRY(entries_finish(build, &top));
  tn_vec chosen, blocks;
  tn__vec_init(&chosen, sizeof(tn__raw_segment));
  tn__vec_init(&blocks, sizeof(tn_segment_block));
  int rc = segments_finish(build, &top, &chosen, &blocks);
  tn__vec_deinit(&blocks);
  tn__vec_deinit(&chosen);
  if (rc) return rc;
  annotations_finish(build, &top);
  TN_TRY(streams_sort(build));
  TN_TRY(meta_place(build, &top));
  return tn_trace_check(build->trace, &build->error);
}

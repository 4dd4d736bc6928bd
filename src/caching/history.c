/* history.c -- a device's entries as steps of the program.  See history.h for what is inferred. */
#include "caching/history.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/map.h"
#include "base/mem.h"
#include "caching/caching.h"
#include "caching/conf.h"

/* ---- which device, and whether it can be read ---------------------------------------------------------------------------- */

static const tn_device *device_find(const tn_trace *trace, uint32_t index) {
  size_t count = 0;
  const tn_device *devices = tn_trace_table(trace, TN_TABLE_DEVICE, &count), *found = NULL;
  for (size_t i = 0; i < count; i++) {
    if (devices[i].flags & TN_DEVICE_HOST) continue;
    if (index != TN_NONE ? devices[i].index == index : !found || devices[i].entries_count > found->entries_count)
      found = &devices[i];
  }
  return found;
}

static int is_segment_action(uint32_t action) {
  return action == TN_ACTION_SEGMENT_ALLOC || action == TN_ACTION_SEGMENT_FREE || action == TN_ACTION_SEGMENT_MAP ||
         action == TN_ACTION_SEGMENT_UNMAP;
}

static int is_ask(uint32_t action) { return action == TN_ACTION_ALLOC || action == TN_ACTION_OOM; }

static int entries_check(const tn__history *history, tn_error *err) {
  for (uint32_t i = 0; i < history->entries_count; i++) {
    const tn_entry *e = &history->entries[i];
    int has_range = e->action != TN_ACTION_OOM && (is_segment_action(e->action) || is_ask(e->action));
    if (e->bytes > TN__BYTES_MAX || (has_range && e->addr > UINT64_MAX - 2 * TN__BYTES_MAX))
      return tn__error_set_at(err, TN_EFORMAT, 0, i, "entry %u of device %u has a size or address that no device has", i,
                              history->device->index);
  }
  return TN_OK;
}

static int device_choose(tn__history *history, uint32_t device, tn_error *err) {
  history->device = device_find(history->trace, device);
  if (!history->device && device != TN_NONE) return tn__error_set(err, TN_ENOENT, "there is nothing of device %u in it", device);
  if (!history->device || history->device->entries_count == 0)
    return tn__error_set(err, TN_EPARTIAL,
                         "it has no allocator history, only what was held at its end; record one with "
                         "torch.cuda.memory._record_memory_history()");
  const tn_entry *entries = tn_trace_table(history->trace, TN_TABLE_ENTRY, NULL);
  history->entries = entries + history->device->entries_at;
  history->entries_count = history->device->entries_count;
  return entries_check(history, err);
}

/* ---- streams in the order of their handles ------------------------------------------------------------------------------- */

typedef struct ranked {
  uint64_t handle;
  uint32_t stream;
} ranked;

static int by_handle(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  return x->handle < y->handle ? -1 : x->handle > y->handle;
}

static int streams_rank(tn__history *history) {
  size_t count = 0;
  const tn_stream *streams = tn_trace_table(history->trace, TN_TABLE_STREAM, &count);
  history->streams = tn__mem_zalloc(count + 1, sizeof *history->streams);
  ranked *order = tn__mem_zalloc(count + 1, sizeof *order);
  if (!history->streams || !order) {
    tn__mem_free(order);
    return TN_ENOMEM;
  }
  for (size_t i = 0; i < count; i++) order[i] = (ranked){streams[i].handle, (uint32_t)i};
  if (count > 1) qsort(order, count, sizeof *order, by_handle);
  for (size_t i = 0; i < count; i++) history->streams[order[i].stream] = (uint32_t)i;
  tn__mem_free(order);
  return TN_OK;
}

/* ---- the walk ------------------------------------------------------------------------------------------------------------ */

typedef struct walk {
  tn__history *history;
  uint32_t *pools; /* by entry, of those that ask */
  tn_map lives;    /* address -> life that is live or pending there */
  tn_vec late;     /* tn__step: completions that the coming allocation waits for */
  uint64_t reserved, active;
  /* Of entries that may be one call of the allocator: segments, completed frees, and the allocation that they are for. */
  uint32_t group_end; /* they have been judged up to here */
  uint32_t ask;       /* that allocation; TN_NONE: something else comes first */
  uint32_t grown_at;  /* the last entry of new memory */
  uint64_t group_reserved; /* when they began */
  uint32_t is_short;  /* the allocation gives memory back before it gets some */
  uint32_t is_emptied; /* empty_cache() has been seen in them */
} walk;

/* What the driver is asked for; close enough under any setting. */
static uint64_t ask_bytes(const tn__history *history, uint32_t ask) {
  tn_caching sizes = {.large_segment_bytes = TN__LARGE_SEGMENT_BYTES};
  uint64_t bytes = history->entries[ask].bytes;
  if (history->conf.large_segment_bytes) sizes.large_segment_bytes = history->conf.large_segment_bytes;
  return bytes ? tn__segment_bytes(&sizes, tn__round(&history->conf, bytes)) : 0;
}

/* Whether the memory that entry at gives back is given back by the allocation that follows it. */
static int is_own(const walk *w, uint32_t at) {
  const tn__history *history = w->history;
  if (w->ask == TN_NONE) return 0;
  const tn_entry *entry = &history->entries[at], *asks = &history->entries[w->ask];
  /* A retry is served with new memory, or where segments expand, with what has become free beside pages that were given back. */
  int is_retried = asks->action == TN_ACTION_OOM || w->grown_at > at || history->conf.expandable_segments;
  if (!is_retried) return 0;
  if (entry->stack != TN_NONE && asks->stack != TN_NONE) return entry->stack == asks->stack;
  return asks->action == TN_ACTION_OOM || w->group_reserved + ask_bytes(history, w->ask) > history->peak_bytes ||
         history->conf.garbage_collection_threshold > 0;
}

static int step_add(walk *w, tn__step step) { return tn__vec_push(&w->history->steps, &step); }

static int gives_back(const tn_entry *e) { return e->action == TN_ACTION_SEGMENT_FREE || e->action == TN_ACTION_SEGMENT_UNMAP; }

static int pool_release(walk *w, uint32_t at) {
  uint32_t pool = w->history->entries[at].pool;
  const tn__step *last = w->history->steps.count ? tn__vec_at(&w->history->steps, w->history->steps.count - 1) : NULL;
  if (pool == 0 || (last && last->kind == TN__STEP_RELEASE_POOL && last->pool == pool)) return TN_OK;
  return step_add(w, (tn__step){.kind = TN__STEP_RELEASE_POOL, .pool = pool, .entry = at});
}

/* empty_cache() gives all back in one call; memory of graphs and MemPools only when those are gone, so that is said first. */
static int give_back(walk *w, uint32_t at) {
  if (is_own(w, at)) return pool_release(w, at);
  if (w->is_emptied) return TN_OK;
  w->is_emptied = 1;
  for (uint32_t i = at; i < w->group_end && i < w->history->entries_count; i++)
    if (gives_back(&w->history->entries[i]) && !is_own(w, i)) TN_TRY(pool_release(w, i));
  return step_add(w, (tn__step){.kind = TN__STEP_EMPTY_CACHE, .entry = at});
}

/* ---- what was refused ---------------------------------------------------------------------------------------------------- */

static void refused(walk *w, uint64_t reserved, uint64_t bytes, uint64_t free_bytes) {
  tn__history *history = w->history;
  if (bytes == 0) return;
  uint64_t capacity = reserved + (free_bytes < bytes ? free_bytes : bytes - 1);
  history->refusals++;
  if (history->capacity_bytes == 0 || capacity < history->capacity_bytes) history->capacity_bytes = capacity;
}

/* From entry at on, up to the allocation that the entries may be for, or to what is something else. */
static void group_find(walk *w, uint32_t at) {
  const tn__history *history = w->history;
  w->ask = TN_NONE;
  w->grown_at = 0;
  w->is_emptied = 0;
  w->group_reserved = w->reserved;
  for (; at < history->entries_count; at++) {
    uint32_t action = history->entries[at].action;
    if (is_ask(action)) w->ask = at;
    if (!is_segment_action(action) && action != TN_ACTION_FREE_COMPLETED) break;
    if (action == TN_ACTION_SEGMENT_ALLOC || action == TN_ACTION_SEGMENT_MAP) w->grown_at = at;
  }
  w->group_end = at + 1;
}

static void shortage_find(walk *w, uint32_t at) {
  const tn__history *history = w->history;
  w->is_short = 0;
  if (w->ask == TN_NONE || history->conf.garbage_collection_threshold > 0) return; /* it may be the garbage collection's doing */
  for (uint32_t i = at; i < w->ask && !w->is_short; i++) {
    if (!gives_back(&history->entries[i]) || !is_own(w, i)) continue;
    w->is_short = 1;
    refused(w, w->reserved, ask_bytes(history, w->ask), UINT64_MAX);
  }
  if (history->entries[w->ask].action == TN_ACTION_OOM) w->is_short = 1;
}

static void group_judge(walk *w, uint32_t at) {
  group_find(w, at);
  shortage_find(w, at);
}

/* ---- one entry ----------------------------------------------------------------------------------------------------------- */

static void active_add(walk *w, uint64_t bytes) {
  w->active += tn_caching_round(bytes);
  if (w->active > w->history->ideal_bytes) w->history->ideal_bytes = w->active;
}

/* The last block of the start that lies before addr, if it lives still. */
static tn__start_block *start_block_before(const walk *w, tn_addr addr) {
  const tn_vec *blocks = &w->history->blocks;
  size_t low = 0, high = blocks->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (TN_VEC(blocks, tn__start_block)[middle].addr < addr)
      low = middle + 1;
    else
      high = middle;
  }
  tn__start_block *found = low ? tn__vec_at(blocks, low - 1) : NULL;
  return found && tn__map_get(&w->lives, found->addr) == found->life ? found : NULL;
}

/* Blocks are handed out from the front of free ones, so the block before ends here, or earlier.  What is left over behind a block is
 * 1 MiB at most; another that begins later says nothing. */
static void room_note(walk *w, tn_addr addr) {
  tn__start_block *before = start_block_before(w, addr);
  if (!before || before->bytes || !before->requested) return;
  uint64_t room = addr - before->addr;
  if (room > tn__round(&w->history->conf, before->requested) + TN__SMALL_BYTES_MAX) return;
  if (before->room == 0 || room < before->room) before->room = room;
}

static int alloc_entry(walk *w, uint32_t at) {
  tn__history *history = w->history;
  const tn_entry *e = &history->entries[at];
  uint32_t life = history->lives_count++;
  history->asks++;
  active_add(w, e->bytes);
  room_note(w, e->addr);
  TN_TRY(tn__map_set(&w->lives, e->addr, life));
  return step_add(w, (tn__step){.kind = TN__STEP_ALLOC, .bytes = e->bytes, .life = life, .entry = at,
                                .stream = history->streams[e->stream], .pool = w->pools[at]});
}

static int oom_entry(walk *w, uint32_t at) {
  const tn_entry *e = &w->history->entries[at];
  w->history->asks++;
  active_add(w, e->bytes); /* what it would have taken */
  w->active -= tn_caching_round(e->bytes);
  refused(w, w->reserved, ask_bytes(w->history, at), e->addr);
  return step_add(w, (tn__step){.kind = TN__STEP_OOM, .bytes = e->bytes, .entry = at, .pool = w->pools[at],
                                .stream = w->history->streams[e->stream]});
}

/* What waits for a stream while memory is short is completed by the allocation itself. */
static int late_flush(walk *w) {
  TN_TRY(tn__vec_append(&w->history->steps, w->late.data, w->late.count));
  tn__vec_clear(&w->late);
  return TN_OK;
}

static int free_entry(walk *w, uint32_t at) {
  const tn__history *history = w->history;
  const tn_entry *e = &history->entries[at], *next = at + 1 < history->entries_count ? e + 1 : NULL;
  /* Completed by another line of the program, it had to wait, if not for long. */
  int completes = next && next->action == TN_ACTION_FREE_COMPLETED && next->addr == e->addr && next->stack == e->stack;
  uint32_t life = tn__map_get(&w->lives, e->addr);
  if (life == TN_NONE) return TN_OK; /* contradicts what came before: a replay finds out */
  return step_add(w, (tn__step){.kind = completes ? TN__STEP_FREE : TN__STEP_FREE_SHARED, .life = life, .entry = at});
}

static int complete_entry(walk *w, uint32_t at) {
  const tn_entry *e = &w->history->entries[at];
  const tn__step *last = w->history->steps.count ? tn__vec_at(&w->history->steps, w->history->steps.count - 1) : NULL;
  uint32_t life = tn__map_remove(&w->lives, e->addr);
  if (life == TN_NONE) return TN_OK;
  w->active -= tn_caching_round(e->bytes);
  if (last && last->kind == TN__STEP_FREE && last->life == life) return TN_OK; /* it was complete at once */
  tn__step step = {.kind = TN__STEP_COMPLETE, .life = life, .entry = at};
  return w->is_short ? tn__vec_push(&w->late, &step) : step_add(w, step);
}

static int entry_take(walk *w, uint32_t at) {
  const tn_entry *e = &w->history->entries[at];
  if (at >= w->group_end) group_judge(w, at);
  switch (e->action) {
    case TN_ACTION_ALLOC: TN_TRY(alloc_entry(w, at)); return late_flush(w);
    case TN_ACTION_OOM: TN_TRY(oom_entry(w, at)); return late_flush(w);
    case TN_ACTION_FREE_REQUESTED: return free_entry(w, at);
    case TN_ACTION_FREE_COMPLETED: return complete_entry(w, at);
    case TN_ACTION_SEGMENT_ALLOC:
    case TN_ACTION_SEGMENT_MAP: w->reserved += e->bytes; return TN_OK;
    case TN_ACTION_SEGMENT_FREE:
    case TN_ACTION_SEGMENT_UNMAP: TN_TRY(give_back(w, at)); w->reserved -= e->bytes; return TN_OK;
    default: return TN_OK;
  }
}

static void peak_find(tn__history *history) {
  uint64_t reserved = history->start_bytes;
  history->peak_bytes = reserved;
  for (uint32_t i = history->first; i < history->entries_count; i++) {
    const tn_entry *e = &history->entries[i];
    if (e->action == TN_ACTION_SEGMENT_ALLOC || e->action == TN_ACTION_SEGMENT_MAP) reserved += e->bytes;
    if (e->action == TN_ACTION_SEGMENT_FREE || e->action == TN_ACTION_SEGMENT_UNMAP) reserved -= e->bytes;
    if (reserved > history->peak_bytes) history->peak_bytes = reserved;
  }
}

static int lives_start(walk *w) {
  const tn__history *history = w->history;
  for (size_t i = 0; i < history->blocks.count; i++) {
    const tn__start_block *block = tn__vec_at(&history->blocks, i);
    active_add(w, block->requested);
    TN_TRY(tn__map_set(&w->lives, block->addr, block->life));
  }
  return TN_OK;
}

/* A history that starts late may start in the middle of a call, with its end only: that call is left out. */
static int find_start(walk *w) {
  tn__history *history = w->history;
  TN_TRY(tn__history_rewind(history, w->pools));
  if (history->segments.count == 0) return TN_OK;
  group_find(w, 0);
  if (w->ask == TN_NONE) return TN_OK;
  history->first = w->ask + 1;
  return tn__history_rewind(history, w->pools);
}

static int walk_run(walk *w) {
  tn__history *history = w->history;
  TN_TRY(find_start(w));
  w->group_end = history->first;
  peak_find(history);
  history->lives_count = (uint32_t)history->blocks.count;
  w->reserved = history->start_bytes;
  TN_TRY(lives_start(w));
  TN_TRY(tn__vec_reserve(&history->steps, history->entries_count));
  for (uint32_t i = history->first; i < history->entries_count; i++) TN_TRY(entry_take(w, i));
  TN_TRY(late_flush(w));
  /* What it once had it could have again: what was refused then went to others meanwhile. */
  if (history->capacity_bytes && history->capacity_bytes < history->peak_bytes) history->capacity_bytes = history->peak_bytes;
  return TN_OK;
}

/* ---- life ---------------------------------------------------------------------------------------------------------------- */

static int history_make(tn__history *history, uint32_t device, tn_error *err) {
  TN_TRY(device_choose(history, device, err));
  TN_TRY(tn_conf_recorded(history->trace, &history->conf, err));
  if (history->conf.malloc_async)
    return tn__error_set(err, TN_EINVAL, "it was recorded with backend:cudaMallocAsync, the driver's allocator, which is not modelled");
  history->version = tn__conf_version(history->trace);
  walk w = {.history = history};
  tn__map_init(&w.lives);
  tn__vec_init(&w.late, sizeof(tn__step));
  w.pools = tn__mem_zalloc((size_t)history->entries_count + 1, sizeof *w.pools);
  int rc = w.pools ? streams_rank(history) : TN_ENOMEM;
  if (!rc) rc = walk_run(&w);
  tn__mem_free(w.pools);
  tn__vec_deinit(&w.late);
  tn__map_deinit(&w.lives);
  return rc ? tn__error_set(err, rc, NULL) : TN_OK;
}

int tn__history_init(tn__history *history, const tn_trace *trace, uint32_t device, tn_error *err) {
  *history = (tn__history){.trace = trace};
  tn__vec_init(&history->steps, sizeof(tn__step));
  tn__vec_init(&history->segments, sizeof(tn__start_segment));
  tn__vec_init(&history->blocks, sizeof(tn__start_block));
  tn__vec_init(&history->reservations, sizeof(tn__reservation));
  int rc = history_make(history, device, err);
  if (rc) tn__history_deinit(history);
  return rc;
}

void tn__history_deinit(tn__history *history) {
  tn__vec_deinit(&history->steps);
  tn__vec_deinit(&history->segments);
  tn__vec_deinit(&history->blocks);
  tn__vec_deinit(&history->reservations);
  tn__mem_free(history->streams);
  history->streams = NULL;
}

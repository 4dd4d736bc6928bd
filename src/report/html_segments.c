/* html_segments.c -- which address ranges a device's allocator held.  See html_segments.h. */
#include "report/html_segments.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/map.h"
#include "base/mem.h"

static const tn_segment *segments_of(const tn__chronicle *history) {
  const tn_segment *all = tn_trace_table(history->trace, TN_TABLE_SEGMENT, NULL);
  return all ? all + history->device->segments_at : NULL; /* NULL: no device has any */
}

static int change_add(tn__segments *segments, uint32_t entry, uint32_t piece, int is_held) {
  tn__segment_change change = {entry, piece, (uint32_t)is_held};
  return tn__vec_push(&segments->changes, &change);
}

static tn__piece piece_of_segment(const tn_segment *segment) {
  return (tn__piece){.addr = segment->addr, .bytes = segment->bytes, .stack = TN_NONE, .stream = segment->stream,
                     .pool = segment->pool, .kind = TN__PIECE_SEGMENT};
}

static tn__piece piece_of_entry(const tn_entry *entry) {
  return (tn__piece){.addr = entry->addr, .bytes = entry->bytes, .stack = TN_NONE, .stream = entry->stream,
                     .pool = entry->pool, .kind = TN__PIECE_SEGMENT};
}

/* ---- segments that come and go whole ------------------------------------------------------------------------------------- */

/* Adds the piece and makes it the one at its address. */
static int held_set(tn__segments *segments, tn_map *held, tn__piece piece) {
  uint32_t id = (uint32_t)segments->pieces.count;
  TN_TRY(tn__vec_push(&segments->pieces, &piece));
  return tn__map_set(held, piece.addr, id);
}

/* What was held at moment 0: the end, and the entries taken back. */
static int whole_rewind(tn__segments *segments, const tn__chronicle *history, tn_map *held) {
  const tn_segment *list = segments_of(history);
  for (uint32_t i = 0; i < history->device->segments_count; i++)
    if (!(list[i].flags & TN_SEGMENT_EXPANDABLE)) TN_TRY(held_set(segments, held, piece_of_segment(&list[i])));
  for (uint32_t e = history->entry_count; e-- > 0;) {
    const tn_entry *entry = &history->entries[e];
    if (entry->action == TN_ACTION_SEGMENT_ALLOC) tn__map_remove(held, entry->addr);
    if (entry->action == TN_ACTION_SEGMENT_FREE) TN_TRY(held_set(segments, held, piece_of_entry(entry)));
  }
  return TN_OK;
}

static int whole_step(tn__segments *segments, tn_map *held, const tn_entry *entry, uint32_t e) {
  uint32_t old = tn__map_remove(held, entry->addr); /* of an ALLOC: only where the file contradicts itself */
  if (old != TN_NONE) TN_TRY(change_add(segments, e, old, 0));
  if (entry->action == TN_ACTION_SEGMENT_FREE) return TN_OK;
  TN_TRY(held_set(segments, held, piece_of_entry(entry)));
  return change_add(segments, e, (uint32_t)segments->pieces.count - 1, 1);
}

static int whole_walk(tn__segments *segments, const tn__chronicle *history, tn_map *held) {
  TN_TRY(whole_rewind(segments, history, held));
  uint64_t addr;
  uint32_t piece;
  for (size_t pos = 0; tn__map_next(held, &pos, &addr, &piece);) TN_TRY(tn__vec_push(&segments->before, &piece));
  for (uint32_t e = 0; e < history->entry_count; e++) {
    const tn_entry *entry = &history->entries[e];
    if (entry->action == TN_ACTION_SEGMENT_ALLOC || entry->action == TN_ACTION_SEGMENT_FREE)
      TN_TRY(whole_step(segments, held, entry, e));
  }
  return TN_OK;
}

/* ---- expandable segments: ranges that grow and shrink -------------------------------------------------------------------- */

/* The ranges' ends cut the address space into cells; cell i is [edges[i], edges[i + 1]), mapped or not as a whole. */
typedef struct cells {
  tn_vec edges;    /* uint64_t, ascending */
  uint8_t *mapped; /* by cell */
  uint32_t *piece; /* by cell: TN_NONE until it is first used */
  uint64_t visits; /* left; nested ranges in a file that is built to hurt would touch every cell with every entry */
} cells;

static int is_mapping(const tn_entry *entry) {
  return entry->action == TN_ACTION_SEGMENT_MAP || entry->action == TN_ACTION_SEGMENT_UNMAP;
}

static uint64_t end_of(tn_addr addr, uint64_t bytes) { return bytes > UINT64_MAX - addr ? UINT64_MAX : addr + bytes; }

static int edges_add(cells *c, tn_addr addr, uint64_t bytes) {
  uint64_t ends[2] = {addr, end_of(addr, bytes)};
  return tn__vec_append(&c->edges, ends, 2);
}

static int edge_compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static int cells_init(cells *c, const tn__chronicle *history) {
  const tn_segment *list = segments_of(history);
  for (uint32_t i = 0; i < history->device->segments_count; i++)
    if (list[i].flags & TN_SEGMENT_EXPANDABLE) TN_TRY(edges_add(c, list[i].addr, list[i].bytes));
  for (uint32_t e = 0; e < history->entry_count; e++)
    if (is_mapping(&history->entries[e])) TN_TRY(edges_add(c, history->entries[e].addr, history->entries[e].bytes));
  if (c->edges.count == 0) return TN_OK;
  uint64_t *edges = TN_VEC(&c->edges, uint64_t);
  qsort(edges, c->edges.count, sizeof *edges, edge_compare);
  size_t count = 0;
  for (size_t i = 0; i < c->edges.count; i++)
    if (i == 0 || edges[i] != edges[count - 1]) edges[count++] = edges[i];
  c->edges.count = count;
  c->visits = 16 * (uint64_t)count + 1000000;
  c->mapped = tn__mem_zalloc(count, 1);
  c->piece = tn__mem_realloc_array(NULL, count, sizeof *c->piece);
  if (!c->mapped || !c->piece) return TN_ENOMEM;
  for (size_t i = 0; i < count; i++) c->piece[i] = TN_NONE;
  return TN_OK;
}

static void cells_deinit(cells *c) {
  tn__mem_free(c->piece);
  tn__mem_free(c->mapped);
  tn__vec_deinit(&c->edges);
}

/* Cell that begins at the edge. */
static size_t cell_at(const cells *c, uint64_t edge) {
  const uint64_t *edges = TN_VEC(&c->edges, uint64_t);
  size_t low = 0, high = c->edges.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (edges[middle] < edge)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static int cell_piece(tn__segments *segments, cells *c, size_t cell, tn__piece whole) {
  if (c->piece[cell] != TN_NONE) return TN_OK;
  const uint64_t *edges = TN_VEC(&c->edges, uint64_t);
  whole.addr = edges[cell];
  whole.bytes = edges[cell + 1] - edges[cell];
  whole.kind = TN__PIECE_MAPPED;
  c->piece[cell] = (uint32_t)segments->pieces.count;
  return tn__vec_push(&segments->pieces, &whole);
}

/* Maps or unmaps a range; entry TN_NONE: without a trace of it in the changes. */
static int cells_set(tn__segments *segments, cells *c, tn__piece range, int is_mapped, uint32_t entry) {
  size_t first = cell_at(c, range.addr), last = cell_at(c, end_of(range.addr, range.bytes));
  if (last - first > c->visits) {
    segments->is_cut = 1;
    return TN_OK;
  }
  c->visits -= last - first;
  for (size_t cell = first; cell < last; cell++) {
    if (c->mapped[cell] == is_mapped) continue;
    c->mapped[cell] = (uint8_t)is_mapped;
    if (is_mapped) TN_TRY(cell_piece(segments, c, cell, range));
    if (entry != TN_NONE) TN_TRY(change_add(segments, entry, c->piece[cell], is_mapped));
  }
  return TN_OK;
}

static int cells_rewind(tn__segments *segments, cells *c, const tn__chronicle *history) {
  const tn_segment *list = segments_of(history);
  for (uint32_t i = 0; i < history->device->segments_count; i++)
    if (list[i].flags & TN_SEGMENT_EXPANDABLE) TN_TRY(cells_set(segments, c, piece_of_segment(&list[i]), 1, TN_NONE));
  for (uint32_t e = history->entry_count; e-- > 0 && !segments->is_cut;) {
    const tn_entry *entry = &history->entries[e];
    if (is_mapping(entry))
      TN_TRY(cells_set(segments, c, piece_of_entry(entry), entry->action == TN_ACTION_SEGMENT_UNMAP, TN_NONE));
  }
  for (size_t cell = 0; cell < c->edges.count; cell++)
    if (c->mapped[cell]) TN_TRY(tn__vec_push(&segments->before, &c->piece[cell]));
  return TN_OK;
}

static int cells_walk(tn__segments *segments, cells *c, const tn__chronicle *history) {
  size_t before = segments->before.count, changes = segments->changes.count;
  TN_TRY(cells_rewind(segments, c, history));
  for (uint32_t e = 0; e < history->entry_count && !segments->is_cut; e++) {
    const tn_entry *entry = &history->entries[e];
    if (is_mapping(entry))
      TN_TRY(cells_set(segments, c, piece_of_entry(entry), entry->action == TN_ACTION_SEGMENT_MAP, e));
  }
  if (segments->is_cut) { /* half a picture would mislead */
    segments->before.count = before;
    segments->changes.count = changes;
  }
  return TN_OK;
}

/* ---- both ---------------------------------------------------------------------------------------------------------------- */

static int change_compare(const void *a, const void *b) {
  const tn__segment_change *x = a, *y = b;
  if (x->entry != y->entry) return x->entry < y->entry ? -1 : 1;
  if (x->is_held != y->is_held) return x->is_held < y->is_held ? -1 : 1;
  return (x->piece > y->piece) - (x->piece < y->piece);
}

int tn__segments_init(tn__segments *segments, const tn__chronicle *history) {
  *segments = (tn__segments){0};
  tn__vec_init(&segments->pieces, sizeof(tn__piece));
  tn__vec_init(&segments->before, sizeof(uint32_t));
  tn__vec_init(&segments->changes, sizeof(tn__segment_change));
  tn_map held;
  tn__map_init(&held);
  cells c = {0};
  tn__vec_init(&c.edges, sizeof(uint64_t));
  int rc = whole_walk(segments, history, &held);
  if (!rc) rc = cells_init(&c, history);
  if (!rc && c.edges.count > 0) rc = cells_walk(segments, &c, history);
  if (!rc && segments->changes.count > 0)
    qsort(segments->changes.data, segments->changes.count, sizeof(tn__segment_change), change_compare);
  cells_deinit(&c);
  tn__map_deinit(&held);
  return rc;
}

void tn__segments_deinit(tn__segments *segments) {
  tn__vec_deinit(&segments->changes);
  tn__vec_deinit(&segments->before);
  tn__vec_deinit(&segments->pieces);
}

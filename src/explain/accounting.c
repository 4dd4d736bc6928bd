/* accounting.c -- see accounting.h. */
#include "explain/accounting.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/map.h"

#define LARGE_PAGE ((uint64_t)20 << 20) /* of expandable segments */
#define SMALL_PAGE ((uint64_t)2 << 20)

static const tn__layout_segment *segment_at(const tn__layout *layout, uint32_t segment) {
  return &TN_VEC(&layout->segments, tn__layout_segment)[segment];
}

static uint64_t up_to_multiple(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

/* Bytes of the hole that are whole pages of an expandable segment: those can be unmapped. */
static uint64_t whole_pages(const tn__layout_segment *segment, const tn__hole *hole) {
  uint64_t page = segment->flags & TN_SEGMENT_SMALL ? SMALL_PAGE : LARGE_PAGE;
  uint64_t begin = up_to_multiple(hole->addr - segment->addr, page), end = (hole->addr - segment->addr + hole->bytes) / page * page;
  return end > begin ? end - begin : 0;
}

enum tn__part tn__hole_part(const tn__layout *layout, const tn__hole *hole, uint32_t stream, uint64_t *out_idle) {
  const tn__layout_segment *segment = segment_at(layout, hole->segment);
  *out_idle = 0;
  if (segment->flags & TN_SEGMENT_UNTILED) return TN__PART_UNKNOWN;
  if (segment->pool != 0) return TN__PART_PRIVATE_POOLS;
  if (segment->live_bytes == 0) return TN__PART_IDLE;
  if (segment->flags & TN_SEGMENT_EXPANDABLE) *out_idle = whole_pages(segment, hole);
  return segment->stream == stream ? TN__PART_HOLES : TN__PART_OTHER_STREAMS;
}

static void account_hole(tn__accounting *a, const tn__layout *layout, const tn__hole *hole, uint32_t stream) {
  const tn__layout_segment *segment = segment_at(layout, hole->segment);
  uint64_t idle = 0;
  enum tn__part part = tn__hole_part(layout, hole, stream, &idle);
  a->part[part] += hole->bytes - idle;
  a->part[TN__PART_IDLE] += idle;
  if (segment->pool != 0 || segment->stream != stream || part == TN__PART_UNKNOWN) return;
  uint64_t *largest = segment->flags & TN_SEGMENT_SMALL ? &a->largest_hole_small_bytes : &a->largest_hole_bytes;
  if (hole->bytes > *largest) *largest = hole->bytes;
}

static void account_block(tn__accounting *a, const tn__span *span, uint32_t moment) {
  if (!tn__span_is_allocated(span, moment)) {
    a->part[TN__PART_PENDING] += span->bytes;
    return;
  }
  a->part[TN__PART_REQUESTED] += span->requested_bytes;
  a->part[TN__PART_ROUNDING] += span->bytes - span->requested_bytes;
}

void tn__account(tn__accounting *accounting, const tn__layout *layout, tn__level level, uint32_t stream) {
  *accounting = (tn__accounting){.moment = layout->moment, .segments = (uint32_t)layout->segments.count, .level = level};
  const uint32_t *blocks = layout->blocks.data;
  for (size_t i = 0; i < layout->blocks.count; i++)
    account_block(accounting, &TN__SPANS(layout->history)[blocks[i]], layout->moment);
  for (size_t i = 0; i < layout->holes.count; i++) account_hole(accounting, layout, tn__vec_at(&layout->holes, i), stream);
  for (size_t i = 0; i < layout->segments.count; i++) accounting->idle_segments += segment_at(layout, (uint32_t)i)->live_bytes == 0;
  uint64_t sum = 0;
  for (int part = 0; part < TN__PART_COUNT; part++) sum += accounting->part[part];
  if (level.reserved_bytes > sum) accounting->part[TN__PART_UNKNOWN] += level.reserved_bytes - sum;
  if (level.reserved_bytes < sum) accounting->level.reserved_bytes = sum;
}

/* ---- pins ---------------------------------------------------------------------------------------------------------------- */

static int pin_compare(const void *a, const void *b) {
  const tn__pin *left = a, *right = b;
  if (left->free_bytes != right->free_bytes) return left->free_bytes < right->free_bytes ? 1 : -1;
  return left->stack < right->stack ? -1 : left->stack > right->stack;
}

typedef struct pins {
  tn_vec *rows;
  tn_map by_stack; /* group -> row */
  tn_map seen;     /* spans counted as blocks */
  const tn__chronicle *history;
  const tn__stacks *stacks;
} pins;

static int pin_add(pins *p, uint32_t number, uint64_t free_bytes) {
  const tn__span *span = &TN__SPANS(p->history)[number];
  uint32_t group = tn__span_group(p->stacks, span);
  uint32_t at = tn__map_get(&p->by_stack, group);
  if (at == TN_NONE) {
    at = (uint32_t)p->rows->count;
    tn__pin added = {.stack = group};
    TN_TRY(tn__map_set(&p->by_stack, group, at));
    TN_TRY(tn__vec_push(p->rows, &added));
  }
  tn__pin *pin = tn__vec_at(p->rows, at);
  pin->free_bytes += free_bytes;
  if (tn__map_get(&p->seen, number) != TN_NONE) return TN_OK;
  pin->blocks++;
  pin->block_bytes += span->bytes;
  return tn__map_set(&p->seen, number, 0);
}

static int pins_of_hole(pins *p, const tn__hole *hole, uint64_t bytes) {
  if (hole->left != TN_NONE && hole->right != TN_NONE) {
    TN_TRY(pin_add(p, hole->left, bytes / 2));
    return pin_add(p, hole->right, bytes - bytes / 2);
  }
  uint32_t only = hole->left != TN_NONE ? hole->left : hole->right;
  return only == TN_NONE ? TN_OK : pin_add(p, only, bytes);
}

int tn__pins_gather(tn_vec *rows, const tn__layout *layout, const tn__stacks *stacks, uint32_t stream) {
  pins p = {.rows = rows, .history = layout->history, .stacks = stacks};
  tn__map_init(&p.by_stack);
  tn__map_init(&p.seen);
  int rc = TN_OK;
  for (size_t i = 0; i < layout->holes.count && !rc; i++) {
    const tn__hole *hole = tn__vec_at(&layout->holes, i);
    uint64_t idle = 0;
    enum tn__part part = tn__hole_part(layout, hole, stream, &idle);
    if (part == TN__PART_HOLES || part == TN__PART_OTHER_STREAMS) rc = pins_of_hole(&p, hole, hole->bytes - idle);
  }
  tn__map_deinit(&p.seen);
  tn__map_deinit(&p.by_stack);
  if (!rc && rows->count) qsort(rows->data, rows->count, sizeof(tn__pin), pin_compare);
  return rc;
}

/* layout.h -- where memory was at a moment: segments, the live blocks in them, and the free pieces between.
 *
 * Callers: src/explain, the HTML viewer.  Not locked: one thread at a time per layout. */
#ifndef TN_EXPLAIN_LAYOUT_H
#define TN_EXPLAIN_LAYOUT_H

#include "explain/chronicle.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__layout_segment {
  tn_addr addr;
  uint64_t bytes;
  uint64_t live_bytes;   /* of its active blocks */
  uint32_t stream, pool; /* pool: 0 as well when the file does not say it */
  uint32_t flags;        /* TN_SEGMENT_... */
  uint32_t record;       /* of the device's final segments; TN_NONE: it is not among them */
} tn__layout_segment;

/* A free piece of a segment.  Neighbours are spans of the same segment; TN_NONE: its border. */
typedef struct tn__hole {
  tn_addr addr;
  uint64_t bytes;
  uint32_t segment; /* of the layout */
  uint32_t left, right;
  uint32_t reserved;
} tn__hole;

/* Segments, blocks and holes by address; blocks and holes of a segment tile it. */
typedef struct tn__layout {
  const tn__chronicle *history;
  uint32_t moment;
  uint32_t stray_blocks; /* active blocks that lie in no segment, or in another block: the file contradicts itself */
  tn_vec segments;       /* tn__layout_segment */
  tn_vec blocks;         /* uint32_t: spans, active at the moment */
  tn_vec holes;          /* tn__hole */
} tn__layout;

int tn__layout_init(tn__layout *layout, const tn__chronicle *history, uint32_t moment); /* deinit in any case */
void tn__layout_deinit(tn__layout *layout);

#ifdef __cplusplus
}
#endif
#endif

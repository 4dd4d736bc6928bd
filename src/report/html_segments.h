/* html_segments.h -- which address ranges a device's allocator held, at any moment of its history.
 *
 * Why: the entries say what was taken and given back, the file's segments what was held at the end; what was held at the
 * beginning follows by taking the entries back.
 * Callers: src/report/html_changes.c.  Not locked: one thread at a time. */
#ifndef TN_REPORT_HTML_SEGMENTS_H
#define TN_REPORT_HTML_SEGMENTS_H

#include "explain/chronicle.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tn__piece_kind { TN__PIECE_BLOCK, TN__PIECE_SEGMENT, TN__PIECE_MAPPED };

/* A place in memory and what is there: two blocks of one size at one address by one stack are the same piece.  No padding, so
 * that pieces can be compared as bytes. */
typedef struct tn__piece {
  tn_addr addr;
  uint64_t bytes, requested_bytes; /* requested: of blocks */
  uint32_t stack;                  /* as tn__span_group() */
  uint32_t stream, pool;
  uint8_t kind;     /* tn__piece_kind; MAPPED: a part of an expandable segment, which goes on in the next piece by address */
  uint8_t category; /* of blocks */
  uint16_t reserved;
} tn__piece;

typedef struct tn__segment_change {
  uint32_t entry; /* of the device */
  uint32_t piece;
  uint32_t is_held; /* from then on */
} tn__segment_change;

typedef struct tn__segments {
  tn_vec pieces;  /* tn__piece */
  tn_vec before;  /* uint32_t: pieces held at moment 0 */
  tn_vec changes; /* tn__segment_change, by entry */
  int is_cut;     /* 1: the expandable segments were too many to follow, and are left out */
} tn__segments;

/* Deinit in any case. */
int tn__segments_init(tn__segments *segments, const tn__chronicle *history);
void tn__segments_deinit(tn__segments *segments);

#ifdef __cplusplus
}
#endif
#endif

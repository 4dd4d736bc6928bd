/* html_changes.h -- a device's history as pieces of memory that come and go, packed for a page.
 *
 * Why: with it the viewer can say who holds what at any moment, and draw the segments.  Training repeats itself, so a piece that
 * comes back at the same address is named by number, and a change that follows the same two changes as last time costs nothing.
 * What is still too large is thinned out: away from the moments that matter only net changes over some entries are kept.
 * Callers: src/report/html.c; viewer/changes.js reads it.  Not locked: one thread at a time.
 *
 * The packed form.  Entries lie in chunks of TN__CHUNK_ENTRIES.  grids[chunk] = 0: exact, the changes stand at their entries;
 * k > 0: the net changes of each 2^k entries stand before them, and hold when they are over.  A symbol is number * 4 + kind:
 *   kind 0  piece `number` comes if it was away, else goes; takes one entry
 *   kind 1  piece `number` is asked to be given back: pending; takes one entry
 *   kind 2  as 0, takes two entries (asked for and given back at once)
 *   kind 3  `number` entries without a change; 0: the next symbol takes no entry
 * In a thinned chunk, and in the `initial` symbols before the first chunk, kinds 0 to 2 take no entry.
 * In the stream a varint 0 is followed by the number of symbols, one varint, that are as predicted: the predicted symbol is the
 * one that last followed the same two symbols (by their hash, see html_changes.c).  Any other varint is 1 + the symbol, where
 * kinds 0 to 2 have in place of `number` the zigzag difference from the number of the last symbol of these kinds.  Numbers of
 * pieces are given in the order of their first appearance. */
#ifndef TN_REPORT_HTML_CHANGES_H
#define TN_REPORT_HTML_CHANGES_H

#include "base/text.h"
#include "explain/analysis.h"
#include "report/html_segments.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TN__CHUNK_ENTRIES = 4096, TN__CHUNK_LOG2 = 12 };

typedef struct tn__changes {
  tn_vec pieces;    /* tn__piece, by number */
  tn_text symbols;  /* packed */
  tn_vec grids;     /* uint8_t by chunk */
  uint32_t initial; /* symbols before the first chunk */
  uint32_t count;   /* of symbols, those included */
  uint32_t grid;    /* of the thinned chunks; 0: everything is exact */
} tn__changes;

/* Stays within bytes_max when that can be had by thinning; moments (count of them) lie in chunks that stay exact.
 * Deinit in any case. */
int tn__changes_init(tn__changes *changes, const tn__analysis *analysis, const tn__segments *segments, const uint32_t *moments,
                     size_t moment_count, uint64_t bytes_max);
void tn__changes_deinit(tn__changes *changes);

#ifdef __cplusplus
}
#endif
#endif

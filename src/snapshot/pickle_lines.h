/* pickle_lines.h -- the opcodes of protocol 0 whose operand is a line of text.
 *
 * Callers: pickle.c.  Not locked: see build.h. */
#ifndef TN_SNAPSHOT_PICKLE_LINES_H
#define TN_SNAPSHOT_PICKLE_LINES_H

#include "snapshot/pickle_memo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* pickle->opcode, whose line comes next in the input. */
int tn__pickle_line(tn__pickle *pickle);

#ifdef __cplusplus
}
#endif
#endif

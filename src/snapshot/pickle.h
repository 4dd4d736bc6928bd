/* pickle.h -- reads a pickle into a build, data only.
 *
 * Callers: snapshot.c.  Not locked: see build.h. */
#ifndef TN_SNAPSHOT_PICKLE_H
#define TN_SNAPSHOT_PICKLE_H

#include "snapshot/build.h"
#include "snapshot/input.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Up to STOP, which leaves one item in the build.  TN_EFORMAT: an opcode that can name or call something, or a malformed pickle. */
int tn__pickle_read(tn__build *build, tn__input *input);

#ifdef __cplusplus
}
#endif
#endif

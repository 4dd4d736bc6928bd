/* json.h -- reads a JSON text into a build, token by token.
 *
 * Why not jansson: it would hold the whole text as objects, some thirty times what is kept of it.
 * Callers: snapshot.c.  Not locked: see build.h. */
#ifndef TN_SNAPSHOT_JSON_H
#define TN_SNAPSHOT_JSON_H

#include "snapshot/build.h"
#include "snapshot/input.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One value and nothing after it; it is left in the build.  NaN and Infinity are read as Python writes them. */
int tn__json_read(tn__build *build, tn__input *input);

#ifdef __cplusplus
}
#endif
#endif

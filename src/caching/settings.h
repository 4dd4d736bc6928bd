/* settings.h -- the settings that tune tries.
 *
 * Callers: tune.c.  Thread-safe: no state. */
#ifndef TN_CACHING_SETTINGS_H
#define TN_CACHING_SETTINGS_H

#include "base/vec.h"
#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends tn_conf to out, none of them twice: at least 60, PyTorch's own among them.  What is no matter of tuning (limits) is as in
 * recorded. */
int tn__settings_list(const tn_conf *recorded, uint32_t version, int is_limited, tn_vec *out);
/* Appends what lies around one of them and is not there yet. */
int tn__settings_vary(const tn_conf *around, uint32_t version, int is_limited, tn_vec *out);

#ifdef __cplusplus
}
#endif
#endif

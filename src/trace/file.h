/* file.h -- whole files in and out.  Why: nothing is ever half-written, and readers get bytes, not streams.
 *
 * Callers: trace/store.c and other readers and writers of small files.  Thread-safe: no state. */
#ifndef TN_TRACE_FILE_H
#define TN_TRACE_FILE_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The file's bytes in *out_data, to be given back by tn__mem_free(); NULL only together with an error.
 * TN_ENOENT, TN_EIO, TN_ENOMEM; TN_EFORMAT: longer than bytes_max. */
int tn__file_read(const char *path, size_t bytes_max, void **out_data, size_t *out_size, tn_error *err);
/* Replaces the file at once: a temporary one beside it, fsync, rename.  TN_EIO or TN_ENOMEM: path is as it was. */
int tn__file_write(const char *path, const void *data, size_t size, tn_error *err);

/* Puts the file's name before the message in *err (may be NULL) and returns rc; of a long path its end, so that the message stays whole. */
int tn__file_error(tn_error *err, const char *path, int rc);

#ifdef __cplusplus
}
#endif
#endif

/* store.h -- the trace as a SQLite database, docs/formats.md.
 *
 * SQLite works on a buffer in memory; files are read and written whole (file.h).  So a stray journal beside a file means nothing,
 * nothing is locked, and a fuzzer can hand over bytes.  Callers: src/trace, tests.  Thread-safe: no state. */
#ifndef TN_TRACE_STORE_H
#define TN_TRACE_STORE_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TN__STORE_APPLICATION = 0x746f6e6e, TN__STORE_SCHEMA = 2 };
/* Schema 1 ends with the event table: a capture's records; 2 has a snapshot's as well. */

/* The database in *out_data, to be given back by tn__store_free().  The same trace gives the same bytes. */
int tn__store_write(const tn_trace *trace, unsigned char **out_data, size_t *out_size, tn_error *err);
void tn__store_free(unsigned char *data);
/* A trace that passed tn_trace_check().  TN_EFORMAT, TN_EVERSION, TN_ENOMEM.  data is only read. */
int tn__store_read(const void *data, size_t size, tn_trace **out, tn_error *err);

#ifdef __cplusplus
}
#endif
#endif

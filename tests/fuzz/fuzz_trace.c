/* A trace file may hold anything: no crash, one line of error, and what is accepted can be walked, saved and read again. */
#include <stdlib.h>
#include <string.h>

#include "trace/lives.h"
#include "trace/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct balance {
  const tn_block *blocks;
  uint64_t live_bytes;
} balance;

static int count_life(void *user, tn__life_event life) {
  balance *b = user;
  uint64_t bytes = b->blocks[life.block].bytes;
  if (!life.is_alloc && bytes > b->live_bytes) abort();
  b->live_bytes += life.is_alloc ? bytes : 0 - bytes;
  return 0;
}

static int drops_odd(void *user, uint32_t block) {
  (void)user;
  return block & 1;
}

static void check_accepted(const tn_trace *trace) {
  balance b = {tn_trace_table(trace, TN_TABLE_BLOCK, NULL), 0};
  unsigned char *again = NULL;
  size_t again_size = 0;
  tn_trace *copy = NULL;
  if (tn__lives(trace, NULL, count_life, &b)) abort();
  b.live_bytes = 0;
  if (tn__lives(trace, drops_odd, count_life, &b)) abort();
  if (tn__store_write(trace, &again, &again_size, NULL)) abort();
  if (tn__store_read(again, again_size, &copy, NULL)) abort();
  tn_trace_free(copy);
  tn__store_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tn_trace *trace = NULL;
  tn_error err = {0};
  int rc = tn__store_read(data, size, &trace, &err);
  if (rc == TN_OK)
    check_accepted(trace);
  else if (err.code != rc || !err.msg[0] || strchr(err.msg, '\n'))
    abort();
  tn_trace_free(trace);
  return 0;
}

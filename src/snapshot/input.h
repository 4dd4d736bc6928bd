/* input.h -- bytes of a snapshot, block by block: a file, standard input or memory, packed by gzip or not.
 *
 * Why: a snapshot can be larger than the memory that there is for it, so no reader may hold it whole.
 * Callers: the readers of this layer.  Not locked: one thread at a time per input. */
#ifndef TN_SNAPSHOT_INPUT_H
#define TN_SNAPSHOT_INPUT_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__unpack tn__unpack; /* the state of gzip */

/* What has been read and not used lies in at ... end, inside the buffer; base is the offset of the buffer's first byte in the
 * input, after unpacking. */
typedef struct tn__input {
  const uint8_t *at, *end;
  const uint8_t *start; /* of the buffer, or of the caller's memory */
  uint64_t base;
  uint8_t *buffer; /* owned; NULL when the caller's memory is read in place */
  size_t capacity;
  const uint8_t *memory; /* what is left of the caller's memory */
  size_t memory_size;
  int fd;             /* -1: memory */
  int ended;          /* nothing follows after end */
  uint64_t raw_bytes; /* read so far, before unpacking */
  tn__unpack *unpack; /* NULL: not packed */
} tn__input;

/* path "-" is standard input.  TN_ENOENT, TN_EPERM, TN_EIO (also for a directory), TN_ENOMEM; the message names the reason, not the
 * path.  Finds out about gzip, so that the first bytes can be looked at after it. */
int tn__input_open(tn__input *input, const char *path, tn_error *err);
/* The data must stay as long as the input.  Fails as above. */
int tn__input_memory(tn__input *input, const void *data, size_t size, tn_error *err);
void tn__input_close(tn__input *input);
/* Reads on until need bytes lie in at ... end; fewer only when the input ends.  What at points to moves.  TN_EFORMAT: gzip data is
 * damaged, cut short, or grows beyond the limit. */
int tn__input_fill(tn__input *input, size_t need, tn_error *err);

static inline uint64_t tn__input_offset(const tn__input *input) { return input->base + (uint64_t)(input->at - input->start); }
static inline size_t tn__input_left(const tn__input *input) { return (size_t)(input->end - input->at); }

#ifdef __cplusplus
}
#endif
#endif

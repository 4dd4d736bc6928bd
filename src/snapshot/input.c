/* input.c -- bytes of a snapshot, block by block.  See input.h. */
#include "snapshot/input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/error.h"
#include "base/mem.h"

enum { BLOCK_BYTES = 256 * 1024 };
/* Snapshots shrink to a tenth or less, seldom to a fiftieth.  What grows more than this is made to fill memory. */
#define UNPACKED_FREE ((uint64_t)64 << 20)
enum { UNPACKED_RATIO = 200 };

struct tn__unpack {
  z_stream stream;
  uint64_t unpacked_bytes;
  int at_member; /* between two members, where the input may end */
  uint8_t packed[BLOCK_BYTES];
};

/* ---- raw bytes ----------------------------------------------------------------------------------------------------------- */

static int io_error(tn_error *err) {
  int code = errno == ENOENT ? TN_ENOENT : errno == EACCES || errno == EPERM ? TN_EPERM : TN_EIO;
  return tn__error_set(err, code, "%s", strerror(errno));
}

static int read_memory(tn__input *input, uint8_t *to, size_t room, size_t *out_got) {
  size_t got = input->memory_size < room ? input->memory_size : room;
  if (got) memcpy(to, input->memory, got);
  input->memory += got;
  input->memory_size -= got;
  *out_got = got;
  return TN_OK;
}

/* Up to room bytes; 0 only at the end. */
static int read_raw(tn__input *input, uint8_t *to, size_t room, size_t *out_got, tn_error *err) {
  if (input->fd < 0) return read_memory(input, to, room, out_got);
  ssize_t got;
  do got = read(input->fd, to, room);
  while (got < 0 && errno == EINTR);
  if (got < 0) return io_error(err);
  *out_got = (size_t)got;
  return TN_OK;
}

/* ---- gzip ---------------------------------------------------------------------------------------------------------------- */

static voidpf unpack_alloc(voidpf user, uInt count, uInt bytes) {
  (void)user;
  return tn__mem_zalloc(count, bytes);
}

static void unpack_free(voidpf user, voidpf mem) {
  (void)user;
  tn__mem_free(mem);
}

/* Takes what has been read, one block at most, as the beginning of the packed data. */
static int unpack_begin(tn__input *input, tn_error *err) {
  tn__unpack *unpack = tn__mem_zalloc(1, sizeof *unpack);
  if (!unpack) return tn__error_set(err, TN_ENOMEM, NULL);
  unpack->stream.zalloc = unpack_alloc;
  unpack->stream.zfree = unpack_free;
  if (inflateInit2(&unpack->stream, 15 + 16) != Z_OK) { /* the largest window, and gzip's header */
    tn__mem_free(unpack);
    return tn__error_set(err, TN_ENOMEM, NULL);
  }
  size_t got = tn__input_left(input);
  memcpy(unpack->packed, input->at, got);
  unpack->stream.next_in = unpack->packed;
  unpack->stream.avail_in = (uInt)got;
  input->raw_bytes = got;
  input->end = input->at = input->start;
  input->ended = 0;
  input->unpack = unpack;
  return TN_OK;
}

static int unpack_more(tn__input *input, tn_error *err) {
  tn__unpack *unpack = input->unpack;
  size_t got = 0;
  TN_TRY(read_raw(input, unpack->packed, sizeof unpack->packed, &got, err));
  unpack->stream.next_in = unpack->packed;
  unpack->stream.avail_in = (uInt)got;
  input->raw_bytes += got;
  return TN_OK;
}

static int unpack_fault(const tn__input *input, int zlib_code, tn_error *err) {
  if (zlib_code == Z_MEM_ERROR) return tn__error_set(err, TN_ENOMEM, NULL);
  const char *reason = input->unpack->stream.msg;
  uint64_t at = input->raw_bytes - input->unpack->stream.avail_in;
  return tn__error_set_at(err, TN_EFORMAT, at, 0, "byte %llu: gzip data is damaged: %s", (unsigned long long)at,
                          reason ? reason : "needs a dictionary");
}

static int unpack_check_limit(const tn__input *input, tn_error *err) {
  uint64_t limit = UNPACKED_FREE + UNPACKED_RATIO * input->raw_bytes;
  if (input->unpack->unpacked_bytes <= limit) return TN_OK;
  return tn__error_set_at(err, TN_EFORMAT, input->raw_bytes, 0,
                          "gzip data grows to more than 64 MiB and %d times its size; unpack it yourself if you trust it",
                          UNPACKED_RATIO);
}

/* A member has ended; another one may follow, and anything else is left alone as gzip leaves it. */
static int unpack_next_member(tn__input *input, tn_error *err) {
  tn__unpack *unpack = input->unpack;
  if (unpack->stream.avail_in == 0) TN_TRY(unpack_more(input, err));
  if (unpack->stream.avail_in == 0 || unpack->stream.next_in[0] != 0x1f) {
    input->ended = 1;
    return TN_OK;
  }
  unpack->at_member = 0;
  return inflateReset(&unpack->stream) == Z_OK ? TN_OK : unpack_fault(input, Z_MEM_ERROR, err);
}

static int read_unpacked(tn__input *input, uint8_t *to, size_t room, size_t *out_got, tn_error *err) {
  tn__unpack *unpack = input->unpack;
  *out_got = 0;
  while (*out_got == 0 && !input->ended) {
    if (unpack->at_member) {
      TN_TRY(unpack_next_member(input, err));
      continue;
    }
    if (unpack->stream.avail_in == 0) TN_TRY(unpack_more(input, err));
    if (unpack->stream.avail_in == 0)
      return tn__error_set_at(err, TN_EFORMAT, input->raw_bytes, 0, "byte %llu: gzip data is cut short",
                              (unsigned long long)input->raw_bytes);
    unpack->stream.next_out = to;
    unpack->stream.avail_out = (uInt)room;
    int code = inflate(&unpack->stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) return unpack_fault(input, code, err);
    *out_got = room - unpack->stream.avail_out;
    unpack->at_member = code == Z_STREAM_END;
    unpack->unpacked_bytes += *out_got;
    TN_TRY(unpack_check_limit(input, err));
  }
  return TN_OK;
}

/* ---- the buffer ---------------------------------------------------------------------------------------------------------- */

static int buffer_grow(tn__input *input, tn_error *err) {
  size_t capacity = input->capacity ? input->capacity * 2 : BLOCK_BYTES, used = (size_t)(input->end - input->start);
  uint8_t *buffer = tn__mem_realloc(input->buffer, capacity);
  if (!buffer) return tn__error_set(err, TN_ENOMEM, NULL);
  input->at = buffer + (input->at - input->start);
  input->end = buffer + used;
  input->start = input->buffer = buffer;
  input->capacity = capacity;
  return TN_OK;
}

static void buffer_compact(tn__input *input) {
  size_t left = tn__input_left(input);
  input->base = tn__input_offset(input);
  if (left) memmove(input->buffer, input->at, left);
  input->at = input->start = input->buffer;
  input->end = input->start + left;
}

/* Memory that is not packed needs no copy, but comes in blocks as well: limits are looked after block by block. */
static int extend_in_place(tn__input *input, size_t need) {
  size_t left = tn__input_left(input), more = need > left ? need - left : 0;
  if (more > 0 && more < BLOCK_BYTES) more = BLOCK_BYTES;
  if (more > input->memory_size) more = input->memory_size;
  input->end += more;
  input->memory += more;
  input->memory_size -= more;
  input->ended = input->memory_size == 0;
  return TN_OK;
}

int tn__input_fill(tn__input *input, size_t need, tn_error *err) {
  if (input->fd < 0 && !input->unpack && !input->buffer && input->start) return extend_in_place(input, need);
  if (input->buffer) buffer_compact(input);
  while (tn__input_left(input) < need && !input->ended) {
    size_t used = (size_t)(input->end - input->start), got = 0;
    if (used == input->capacity) {
      TN_TRY(buffer_grow(input, err));
      continue;
    }
    uint8_t *to = input->buffer + used;
    size_t room = input->capacity - used;
    TN_TRY(input->unpack ? read_unpacked(input, to, room, &got, err) : read_raw(input, to, room, &got, err));
    if (!input->unpack) input->raw_bytes += got;
    if (got == 0) input->ended = 1;
    input->end += got;
  }
  return TN_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

static int is_gzip(const tn__input *input) { return tn__input_left(input) >= 2 && input->at[0] == 0x1f && input->at[1] == 0x8b; }

/* The first bytes, and gzip when they say so. */
static int begin(tn__input *input, tn_error *err) {
  int rc = tn__input_fill(input, 16, err);
  if (!rc && is_gzip(input)) {
    rc = unpack_begin(input, err);
    if (!rc) rc = tn__input_fill(input, 16, err);
  }
  return rc;
}

static int open_fd(const char *path, int *out, tn_error *err) {
  int is_stdin = strcmp(path, "-") == 0;
  int fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return io_error(err);
  struct stat st;
  if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
    (void)close(fd);
    return tn__error_set(err, TN_EIO, "is a directory, not a memory snapshot");
  }
  *out = fd;
  return TN_OK;
}

int tn__input_open(tn__input *input, const char *path, tn_error *err) {
  *input = (tn__input){.fd = -1};
  TN_TRY(open_fd(path, &input->fd, err));
  int rc = begin(input, err);
  if (rc) tn__input_close(input);
  return rc;
}

int tn__input_memory(tn__input *input, const void *data, size_t size, tn_error *err) {
  const uint8_t *bytes = data;
  *input = (tn__input){.fd = -1, .memory = bytes, .memory_size = size};
  if (size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) {
    int rc = begin(input, err);
    if (rc) tn__input_close(input);
    return rc;
  }
  input->start = input->at = input->end = bytes;
  return extend_in_place(input, size < BLOCK_BYTES ? size : BLOCK_BYTES);
}

void tn__input_close(tn__input *input) {
  if (input->unpack) (void)inflateEnd(&input->unpack->stream);
  tn__mem_free(input->unpack);
  tn__mem_free(input->buffer);
  if (input->fd >= 0) (void)close(input->fd);
  *input = (tn__input){.fd = -1};
}

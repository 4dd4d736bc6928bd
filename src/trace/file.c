/* file.c -- whole files in and out.  See file.h. */
#include "trace/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/vec.h"

enum { READ_BYTES = 64 * 1024 };

static int io_error(tn_error *err, const char *path, int code) {
  return tn__error_set(err, code, "%s: %s", path, strerror(errno));
}

int tn__file_error(tn_error *err, const char *path, int rc) {
  enum { PATH_MAX_SHOWN = 100 };
  if (!err) return rc;
  tn_error inner = *err;
  size_t len = strlen(path);
  const char *shown = len > PATH_MAX_SHOWN ? path + len - PATH_MAX_SHOWN : path;
  return tn__error_set_at(err, rc, inner.offset, inner.record, "%s%s: %s", shown == path ? "" : "...", shown, inner.msg);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

static int read_all(int fd, const char *path, size_t bytes_max, tn_vec *bytes, tn_error *err) {
  for (;;) {
    if (bytes->count > bytes_max) return tn__error_set(err, TN_EFORMAT, "%s: is longer than %zu bytes", path, bytes_max);
    if (tn__vec_reserve(bytes, READ_BYTES)) return tn__error_set(err, TN_ENOMEM, NULL);
    ssize_t got = read(fd, (char *)bytes->data + bytes->count, READ_BYTES);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(err, path, TN_EIO);
    if (got == 0) return TN_OK;
    bytes->count += (size_t)got;
  }
}

int tn__file_read(const char *path, size_t bytes_max, void **out_data, size_t *out_size, tn_error *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return io_error(err, path, errno == ENOENT ? TN_ENOENT : TN_EIO);
  tn_vec bytes;
  tn__vec_init(&bytes, 1);
  int rc = read_all(fd, path, bytes_max, &bytes, err);
  (void)close(fd);
  if (rc) {
    tn__vec_deinit(&bytes);
    return rc;
  }
  *out_data = bytes.data;
  *out_size = bytes.count;
  return TN_OK;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

static int write_all(int fd, const char *data, size_t size) {
  while (size > 0) {
    ssize_t put = write(fd, data, size);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return -1;
    data += put;
    size -= (size_t)put;
  }
  return 0;
}

/* A file that a crash of this very process id left behind is in the way only once. */
static int open_new(const char *path) {
  int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  int fd = open(path, flags, 0666);
  if (fd < 0 && errno == EEXIST && unlink(path) == 0) fd = open(path, flags, 0666);
  return fd;
}

/* So that the name survives a power cut as well as the bytes; not every file system can.  Cuts path down to its directory. */
static void sync_directory(char *path) {
  char *slash = strrchr(path, '/');
  if (slash) slash[1] = '\0';
  int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  (void)close(fd);
}

static int write_via(const char *temporary, const char *path, const void *data, size_t size) {
  int fd = open_new(temporary);
  if (fd < 0) return -1;
  int failed = write_all(fd, data, size) || fsync(fd);
  int saved_errno = errno;
  if (close(fd) && !failed) {
    failed = 1;
    saved_errno = errno;
  }
  if (!failed && rename(temporary, path)) {
    failed = 1;
    saved_errno = errno;
  }
  if (failed) (void)unlink(temporary);
  errno = saved_errno;
  return failed ? -1 : 0;
}

int tn__file_write(const char *path, const void *data, size_t size, tn_error *err) {
  struct stat st;
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) return tn__error_set(err, TN_EIO, "%s: is not a regular file", path);
  size_t name_bytes = strlen(path) + 32;
  char *temporary = tn__mem_alloc(name_bytes);
  if (!temporary) return tn__error_set(err, TN_ENOMEM, NULL);
  (void)snprintf(temporary, name_bytes, "%s.tmp-%ld", path, (long)getpid());
  int rc = write_via(temporary, path, data, size) ? io_error(err, path, TN_EIO) : TN_OK;
  if (!rc) sync_directory(temporary);
  tn__mem_free(temporary);
  return rc;
}

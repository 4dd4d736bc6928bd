/* test_snapshot_input.c -- bytes from files, standard input and memory, packed and not. */
#include "helper.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "snapshot/input.h"

static char directory[] = "snapshot_input_XXXXXX";
static char path[64];

static int make_directory(void **state) {
  (void)state;
  if (!mkdtemp(directory)) return -1;
  (void)snprintf(path, sizeof path, "%s/a", directory);
  return 0;
}

static int remove_directory(void **state) {
  (void)state;
  (void)unlink(path);
  return rmdir(directory);
}

static void write_file(const void *data, size_t size) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

/* size bytes that no compressor shortens much. */
static uint8_t *noise(size_t size) {
  uint64_t random = 7;
  uint8_t *data = malloc(size);
  assert_non_null(data);
  for (size_t i = 0; i < size; i++) data[i] = (uint8_t)tn_test_random(&random);
  return data;
}

/* A member of gzip; comment (may be NULL) makes its header longer. */
static uint8_t *pack_with(const uint8_t *data, size_t size, const char *comment, size_t *out_size) {
  z_stream stream = {0};
  gz_header header = {.comment = (Bytef *)(uintptr_t)comment, .os = 3};
  assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
  assert_int_equal(deflateSetHeader(&stream, &header), Z_OK);
  size_t room = deflateBound(&stream, size);
  uint8_t *out = malloc(room);
  assert_non_null(out);
  stream.next_in = (Bytef *)(uintptr_t)data;
  stream.avail_in = (uInt)size;
  stream.next_out = out;
  stream.avail_out = (uInt)room;
  assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
  *out_size = room - stream.avail_out;
  (void)deflateEnd(&stream);
  return out;
}

static uint8_t *pack(const uint8_t *data, size_t size, size_t *out_size) { return pack_with(data, size, NULL, out_size); }

/* Reads to the end in steps of 1 ... 1000 bytes, asking for that much each time. */
static void expect_bytes(tn__input *input, const uint8_t *data, size_t size) {
  uint64_t random = 3;
  for (size_t at = 0; at < size;) {
    size_t step = 1 + tn_test_random(&random) % 1000;
    if (step > size - at) step = size - at;
    assert_int_equal(tn__input_fill(input, step, NULL), TN_OK);
    assert_true(tn__input_left(input) >= step);
    assert_int_equal(tn__input_offset(input), at);
    assert_memory_equal(input->at, data + at, step);
    input->at += step;
    at += step;
  }
  assert_int_equal(tn__input_fill(input, 1, NULL), TN_OK);
  assert_int_equal(tn__input_left(input), 0);
}

enum { SIZE = 700 * 1000 };

static void a_file_block_by_block(void **state) {
  (void)state;
  uint8_t *data = noise(SIZE);
  tn__input input;
  write_file(data, SIZE);
  assert_int_equal(tn__input_open(&input, path, NULL), TN_OK);
  expect_bytes(&input, data, SIZE);
  assert_true(input.capacity < SIZE); /* not whole */
  tn__input_close(&input);
  free(data);
}

static void more_than_a_block_at_once(void **state) {
  (void)state;
  uint8_t *data = noise(SIZE);
  tn__input input;
  write_file(data, SIZE);
  assert_int_equal(tn__input_open(&input, path, NULL), TN_OK);
  input.at += 5;
  assert_int_equal(tn__input_fill(&input, SIZE, NULL), TN_OK);
  assert_int_equal(tn__input_left(&input), SIZE - 5);
  assert_memory_equal(input.at, data + 5, SIZE - 5);
  tn__input_close(&input);
  free(data);
}

static void memory_in_place(void **state) {
  (void)state;
  tn__input input;
  assert_int_equal(tn__input_memory(&input, "abc", 3, NULL), TN_OK);
  expect_bytes(&input, (const uint8_t *)"abc", 3);
  tn__input_close(&input);
  assert_int_equal(tn__input_memory(&input, "", 0, NULL), TN_OK);
  expect_bytes(&input, NULL, 0);
  tn__input_close(&input);
}

/* Several members, as pigz and cat make them, and what follows them is left alone as gzip does. */
static void packed_in_members(void **state) {
  (void)state;
  uint8_t *data = noise(SIZE), *all = malloc(2 * SIZE);
  size_t used = 0;
  for (size_t at = 0; at < SIZE; at += SIZE / 4) {
    size_t size = 0;
    uint8_t *packed = pack(data + at, SIZE / 4, &size);
    memcpy(all + used, packed, size);
    used += size;
    free(packed);
  }
  memcpy(all + used, "garbage", 7);
  for (int garbage = 0; garbage < 2; garbage++) {
    tn__input input;
    write_file(all, used + (garbage ? 7 : 0));
    assert_int_equal(tn__input_open(&input, path, NULL), TN_OK);
    expect_bytes(&input, data, SIZE);
    tn__input_close(&input);
    assert_int_equal(tn__input_memory(&input, all, used + (garbage ? 7 : 0), NULL), TN_OK);
    expect_bytes(&input, data, SIZE);
    tn__input_close(&input);
  }
  free(all);
  free(data);
}

/* The first member ends where a block of the input ends: what follows is not at hand yet. */
static void a_member_as_long_as_a_block(void **state) {
  (void)state;
  enum { BLOCK = 256 * 1024, DATA = 200 * 1000 };
  uint8_t *data = noise(2 * DATA), *all = malloc(2 * BLOCK);
  assert_non_null(all);
  size_t first_size = 0, second_size = 0;
  free(pack_with(data, DATA, "", &first_size));
  char *comment = calloc(1, BLOCK);
  assert_non_null(comment);
  memset(comment, 'c', BLOCK - first_size);
  uint8_t *first = pack_with(data, DATA, comment, &first_size), *second = pack(data + DATA, DATA, &second_size);
  assert_int_equal(first_size, BLOCK);
  memcpy(all, first, first_size);
  memcpy(all + first_size, second, second_size);
  tn__input input;
  assert_int_equal(tn__input_memory(&input, all, first_size + second_size, NULL), TN_OK);
  expect_bytes(&input, data, 2 * DATA);
  tn__input_close(&input);
  assert_int_equal(tn__input_memory(&input, all, first_size, NULL), TN_OK);
  expect_bytes(&input, data, DATA);
  tn__input_close(&input);
  free(second);
  free(first);
  free(comment);
  free(all);
  free(data);
}

static int read_all(const uint8_t *packed, size_t size, tn_error *err) {
  tn__input input;
  int rc = tn__input_memory(&input, packed, size, err);
  if (rc) return rc;
  do {
    input.at = input.end;
    rc = tn__input_fill(&input, 1, err);
  } while (!rc && tn__input_left(&input));
  tn__input_close(&input);
  return rc;
}

static void gzip_cut_short_anywhere(void **state) {
  (void)state;
  size_t size = 0;
  uint8_t *packed = pack((const uint8_t *)"some bytes, some bytes, some bytes", 34, &size);
  for (size_t cut = 2; cut < size; cut++) {
    tn_error err = {0};
    assert_int_equal(read_all(packed, cut, &err), TN_EFORMAT);
    assert_non_null(strstr(err.msg, "gzip data is cut short"));
    assert_int_equal(err.offset, cut);
  }
  free(packed);
}

static void gzip_damaged_anywhere(void **state) {
  (void)state;
  size_t size = 0;
  uint8_t *packed = pack((const uint8_t *)"some bytes, some bytes, some bytes", 34, &size);
  int refused = 0;
  for (size_t at = 2; at < size; at++) {
    tn_error err = {0};
    packed[at] ^= 0x55;
    int rc = read_all(packed, size, &err);
    packed[at] ^= 0x55;
    assert_true(rc == TN_OK || rc == TN_EFORMAT);
    refused += rc == TN_EFORMAT;
  }
  assert_true(refused > (int)size - 10); /* all but the time and the like in the header */
  free(packed);
}

/* 300 MiB of one byte is what no snapshot looks like. */
static void gzip_bomb(void **state) {
  (void)state;
  size_t unpacked = (size_t)300 << 20, size = 0;
  uint8_t *data = calloc(1, unpacked);
  assert_non_null(data);
  uint8_t *packed = pack(data, unpacked, &size);
  free(data);
  tn_error err = {0};
  assert_int_equal(read_all(packed, size, &err), TN_EFORMAT);
  assert_non_null(strstr(err.msg, "grows to more than 64 MiB and 200 times its size"));
  free(packed);
}

static void standard_input(void **state) {
  (void)state;
  int pipes[2], saved = dup(STDIN_FILENO);
  assert_int_equal(pipe(pipes), 0);
  assert_int_equal(write(pipes[1], "through a pipe", 14), 14);
  close(pipes[1]);
  dup2(pipes[0], STDIN_FILENO);
  close(pipes[0]);
  tn__input input;
  assert_int_equal(tn__input_open(&input, "-", NULL), TN_OK);
  expect_bytes(&input, (const uint8_t *)"through a pipe", 14);
  tn__input_close(&input);
  dup2(saved, STDIN_FILENO);
  close(saved);
}

static void what_cannot_be_opened(void **state) {
  (void)state;
  tn__input input;
  tn_error err = {0};
  assert_int_equal(tn__input_open(&input, "no/such/file", &err), TN_ENOENT);
  assert_string_equal(err.msg, "No such file or directory");
  assert_int_equal(tn__input_open(&input, directory, &err), TN_EIO);
  assert_non_null(strstr(err.msg, "is a directory"));
  write_file("x", 1);
  assert_int_equal(chmod(path, 0), 0);
  int fd = open(path, O_RDONLY);
  if (fd >= 0) { /* the superuser may read anything */
    close(fd);
    return;
  }
  assert_int_equal(tn__input_open(&input, path, &err), TN_EPERM);
  assert_int_equal(tn_error_status(TN_EPERM), 4);
}

static int scenario(void *user) {
  size_t *size = user;
  tn__input input;
  int rc = tn__input_open(&input, path, NULL);
  if (rc) return rc;
  rc = tn__input_fill(&input, *size, NULL);
  tn__input_close(&input);
  return rc;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  uint8_t *data = noise(SIZE);
  size_t size = 0;
  uint8_t *packed = pack(data, SIZE, &size);
  (void)chmod(path, 0600);
  write_file(packed, size);
  size = SIZE;
  assert_true(tn_test_sweep(scenario, &size) >= 4);
  free(packed);
  free(data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_block_by_block),
      cmocka_unit_test(more_than_a_block_at_once),
      cmocka_unit_test(memory_in_place),
      cmocka_unit_test(packed_in_members),
      cmocka_unit_test(a_member_as_long_as_a_block),
      cmocka_unit_test(gzip_cut_short_anywhere),
      cmocka_unit_test(gzip_damaged_anywhere),
      cmocka_unit_test(gzip_bomb),
      cmocka_unit_test(standard_input),
      cmocka_unit_test(what_cannot_be_opened),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

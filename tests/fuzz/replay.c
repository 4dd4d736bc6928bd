/* replay.c -- runs a fuzz target over the files of a directory, without libFuzzer.  Part of `make check`.
 *
 * replay_fuzz_NAME DIRECTORY: every file as it is, every prefix of the small ones, and each byte of the small ones flipped. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SMALL_BYTES = 256 };

/* An exact copy per run, so that a sanitizer sees a read one byte past the end. */
static void run(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size ? size : 1);
  if (!copy) exit(1);
  if (size) memcpy(copy, data, size);
  LLVMFuzzerTestOneInput(copy, size);
  free(copy);
}

static void run_variants(uint8_t *data, size_t size) {
  run(data, size);
  if (size > SMALL_BYTES) return;
  for (size_t len = 0; len < size; len++) run(data, len);
  for (size_t at = 0; at < size; at++) {
    for (int bit = 0; bit < 8; bit++) {
      data[at] ^= (uint8_t)(1 << bit);
      run(data, size);
      data[at] ^= (uint8_t)(1 << bit);
    }
  }
}

static int run_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return perror(path), 0;
  uint8_t *data = NULL;
  size_t size = 0, got = 0;
  do {
    data = realloc(data, size + 65536);
    if (!data) exit(1);
    got = fread(data + size, 1, 65536, file);
    size += got;
  } while (got);
  fclose(file);
  run_variants(data, size);
  free(data);
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]), 2;
  DIR *dir = opendir(argv[1]);
  if (!dir) return perror(argv[1]), 2;
  int files = 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (entry->d_name[0] == '.') continue;
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name) < sizeof path) files += run_file(path);
  }
  closedir(dir);
  printf("%d files\n", files);
  return files == 0; /* an empty corpus tests nothing */
}

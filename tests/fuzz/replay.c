/* replay.c -- runs a fuzz target over the files of a directory, without libFuzzer.  Part of `make check`.
 *
 * replay_fuzz_NAME DIRECTORY: every file as it is, every prefix of the small ones, and each byte of the small ones flipped.
 * replay_fuzz_NAME DIRECTORY SECONDS: then also files changed at random, for that long, where there is no libFuzzer.  What is being run
 * lies in the file `changed` of the current folder when it ends badly.  TONNAGE_SEED as in the unit tests. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SMALL_BYTES = 256, FILES_MAX = 256, CHANGES_MAX = 4 };

typedef struct input { uint8_t *data; size_t size; } input;

static input inputs[FILES_MAX];
static size_t input_count;

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
  if (input_count < FILES_MAX) inputs[input_count++] = (input){data, size};
  else free(data);
  return 1;
}

/* ---- random changes ------------------------------------------------------------------------------------------------------ */

static uint64_t seed = 1;

static uint64_t draw(uint64_t below) { /* splitmix64 */
  uint64_t x = (seed += 0x9e3779b97f4a7c15u);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) % below;
}

/* A byte, or a little-endian number of four such as an index; or eight bytes moved, such as an event. */
static void change(uint8_t *data, size_t size) {
  size_t at = draw(size - 8);
  uint8_t moved[8];
  switch (draw(4)) {
    case 0: data[at] = (uint8_t)draw(256); break;
    case 1: memset(data + at, draw(4) ? 0 : 255, 4); data[at] = data[at] ? 255 : (uint8_t)draw(64); break;
    case 2: data[at] = (uint8_t)(data[at] + (draw(2) ? 1 : 255)); break;
    default: {
      size_t to = size > 8 * 64 && draw(2) ? at + 8 * draw(16) : draw(size - 8);
      if (to > size - 8) to = size - 8;
      memcpy(moved, data + at, 8);
      memmove(data + at, data + to, 8);
      memcpy(data + to, moved, 8);
    }
  }
}

static unsigned long run_changed(double seconds) {
  unsigned long runs = 0;
  for (clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC); clock() < end; runs++) {
    const input *from = &inputs[draw(input_count)];
    if (from->size < 16) continue;
    uint8_t *data = malloc(from->size);
    if (!data) exit(1);
    memcpy(data, from->data, from->size);
    for (uint64_t n = 1 + draw(CHANGES_MAX); n; n--) change(data, from->size);
    FILE *file = fopen("changed", "wb");
    if (file) fwrite(data, 1, from->size, file), fclose(file);
    run(data, from->size);
    free(data);
  }
  remove("changed");
  return runs;
}

int main(int argc, char **argv) {
  if (argc != 2 && argc != 3) return fprintf(stderr, "usage: %s DIRECTORY [SECONDS]\n", argv[0]), 2;
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
  if (argc == 3 && input_count) {
    if (getenv("TONNAGE_SEED")) seed = strtoull(getenv("TONNAGE_SEED"), NULL, 10);
    printf("seed %llu, ", (unsigned long long)seed);
    printf("%lu changed\n", run_changed(atof(argv[2])));
  }
  for (size_t i = 0; i < input_count; i++) free(inputs[i].data);
  return files == 0; /* an empty corpus tests nothing */
}

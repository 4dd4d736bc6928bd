/* oom_sizes.c -- sizes as messages print them.  See oom_sizes.h. */
#include "explain/oom_sizes.h"

#include <string.h>

typedef unsigned __int128 wide;

static int is_digit(char c) { return c >= '0' && c <= '9'; }

/* ---- sizes --------------------------------------------------------------------------------------------------------------- */

/* Powers of 1024 under either spelling: that is what PyTorch's "MB" are, on Metal and elsewhere.  Longer names first. */
static const struct {
  const char *name;
  unsigned shift;
} units[] = {
    {"bytes", 0}, {"byte", 0}, {"kib", 10}, {"mib", 20}, {"gib", 30}, {"tib", 40}, {"pib", 50},
    {"eib", 60},  {"kb", 10},  {"mb", 20},  {"gb", 30},  {"tb", 40},  {"pb", 50},  {"eb", 60},
};

typedef struct number {
  uint64_t digits;
  unsigned decimals;
  int is_too_long;
} number;

static void digit_add(number *out, char digit) {
  if (out->digits > UINT64_MAX / 10 - 1)
    out->is_too_long = 1;
  else
    out->digits = out->digits * 10 + (uint64_t)(digit - '0');
}

/* "1,234": a comma before three digits */
static int is_group(const char *text) {
  return text[0] == ',' && is_digit(text[1]) && is_digit(text[2]) && is_digit(text[3]) && !is_digit(text[4]);
}

/* The end of the number at text. */
static const char *number_read(const char *text, number *out) {
  enum { DECIMALS_MAX = 6 };
  for (;; text++) {
    if (is_digit(*text))
      digit_add(out, *text);
    else if (!is_group(text))
      break;
  }
  if (*text != '.' || !is_digit(text[1])) return text;
  for (text++; is_digit(*text); text++) {
    if (out->decimals == DECIMALS_MAX) continue;
    digit_add(out, *text);
    out->decimals++;
  }
  return text;
}

static wide power10(unsigned n) {
  wide out = 1;
  while (n--) out *= 10;
  return out;
}

/* Printed with decimals: rounded to the nearest.  Printed without: rounded or cut, so it may be off by a whole unit. */
static void size_make(const number *from, unsigned shift, tn__oom_token *out) {
  wide scale = power10(from->decimals), bytes = (((wide)from->digits << shift) + scale / 2) / scale;
  if (from->is_too_long || bytes >> 60) {
    out->is_untold = 1;
    return;
  }
  out->size.bytes = (uint64_t)bytes;
  if (shift)
    out->size.slack = from->decimals ? (uint64_t)((((wide)1 << shift) + 2 * scale - 1) / (2 * scale)) : UINT64_C(1) << shift;
}

static int token_at(const tn__squeezed *text, size_t at, tn__oom_token *out) {
  number from = {0};
  const char *end = number_read(text->text + at, &from);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    size_t len = strlen(units[i].name);
    if (strncmp(end, units[i].name, len) != 0) continue;
    *out = (tn__oom_token){.at = at, .end = (size_t)(end - text->text) + len};
    size_make(&from, units[i].shift, out);
    return 1;
  }
  return 0;
}

int tn__oom_token_next(const tn__squeezed *text, size_t from, size_t end, tn__oom_token *out) {
  for (size_t at = from; at < end && at < text->len; at++) {
    if (!is_digit(text->text[at])) continue;
    if (at && is_digit(text->text[at - 1])) continue;
    if (at > 1 && text->text[at - 1] == '.' && is_digit(text->text[at - 2])) continue;
    if (token_at(text, at, out)) return out->end <= text->len;
  }
  return 0;
}

/* ---- the words around ---------------------------------------------------------------------------------------------------- */

typedef struct phrase {
  const char *before, *after; /* squeezed; NULL: anything */
  uint8_t reading;
  uint8_t is_loose; /* everyday words: only beside what else was read, and whole */
} phrase;

#define BEFORE(reading, words) {words, NULL, reading, 0}
#define AFTER(reading, words) {NULL, words, reading, 0}
#define LOOSE(reading, words) {NULL, words, reading, 1}

static const phrase phrases[] = {
    {"thisprocesshas", "memoryinuse", TN_OOM_PROCESS, 0},
    AFTER(TN__OOM_READ_PROCESS, "memoryinuse"),
    BEFORE(TN_OOM_ASKED, "triedtoallocate"),
    BEFORE(TN_OOM_ASKED, "tryingtoallocate"),
    BEFORE(TN_OOM_ASKED, "triedtommap"),
    BEFORE(TN_OOM_ASKED, "unabletommap"),
    BEFORE(TN_OOM_ASKED, "unabletoallocate"),
    BEFORE(TN_OOM_ASKED, "failedtoallocate"),
    BEFORE(TN_OOM_ASKED, "couldnotallocatetensorwith"),
    BEFORE(TN_OOM_ASKED, "failedtocudacalloc"),
    BEFORE(TN_OOM_ASKED, "failedtocudacallocasync"),
    BEFORE(TN_OOM_ASKED, "failedtocudamalloc"),
    BEFORE(TN_OOM_ASKED, "failedtocudahostalloc"),
    BEFORE(TN_OOM_ASKED, "outofmemoryallocating"),
    BEFORE(TN_OOM_ASKED, "invalidbuffersize:"),
    BEFORE(TN_OOM_ASKED, "requested:"),
    BEFORE(TN_OOM_TOTAL, "totalcapacityof"),
    BEFORE(TN_OOM_TOTAL, "totalcapactyof"),
    BEFORE(TN_OOM_TOTAL, "devicelimit:"),
    AFTER(TN_OOM_TOTAL, "totalcapacity"),
    BEFORE(TN_OOM_TOTAL, "freeof"),
    BEFORE(TN_OOM_FREE, "free(accordingtocuda):"),
    AFTER(TN_OOM_FREE, "isfree"),
    AFTER(TN_OOM_FREE, "free;"),
    AFTER(TN_OOM_FREE, "free)"),
    AFTER(TN_OOM_ALLOCATED, "alreadyallocated"),
    AFTER(TN_OOM_ALLOCATED, "isallocatedbypytorch"),
    BEFORE(TN_OOM_ALLOCATED, "mpsallocated:"),
    BEFORE(TN_OOM_ALLOCATED, "currentlyallocated:"),
    BEFORE(TN_OOM_ALLOCATED, "allocatedsofar:"),
    BEFORE(TN_OOM_ALLOCATED, "anon-rss:"),
    BEFORE(TN__OOM_READ_IGNORED, "total-vm:"),
    BEFORE(TN__OOM_READ_IGNORED, "file-rss:"),
    BEFORE(TN__OOM_READ_IGNORED, "shmem-rss:"),
    BEFORE(TN__OOM_READ_IGNORED, "pgtables:"),
    AFTER(TN_OOM_ACTIVE, "currentactive"),
    AFTER(TN_OOM_RESERVED, "reservedintotal"),
    AFTER(TN_OOM_UNALLOCATED, "isreservedbypytorchbutunallocated"),
    AFTER(TN_OOM_UNALLOCATED, "cached)"),
    AFTER(TN_OOM_POOLS, "allocatedinprivatepools"),
    AFTER(TN_OOM_ALLOWED, "allowed;"),
    BEFORE(TN_OOM_ALLOWED, "allowed:"),
    BEFORE(TN_OOM_ALLOWED, "memoryfraction):"),
    BEFORE(TN_OOM_ALLOWED, "memoryfraction)"),
    BEFORE(TN_OOM_OTHERS, "otherallocations:"),
    AFTER(TN__OOM_READ_IGNORED, "memory."), /* "more than 1EB memory." */
    LOOSE(TN_OOM_TOTAL, "total"),
    LOOSE(TN_OOM_FREE, "free"),
    LOOSE(TN_OOM_ALLOWED, "allowed"),
};

#undef BEFORE
#undef AFTER
#undef LOOSE

static int ends_with(const tn__squeezed *text, size_t at, const char *words) {
  size_t len = strlen(words);
  return at >= len && memcmp(text->text + at - len, words, len) == 0;
}

static int begins_with(const tn__squeezed *text, size_t at, const char *words) {
  return strncmp(text->text + at, words, strlen(words)) == 0;
}

static int phrase_fits(const phrase *words, const tn__squeezed *text, const tn__oom_token *token, int is_near) {
  if (words->before && !ends_with(text, token->at, words->before)) return 0;
  if (words->after && !begins_with(text, token->end, words->after)) return 0;
  if (!words->is_loose) return 1;
  return is_near && tn__squeezed_is_edge(text, token->end + strlen(words->after));
}

/* "process101553has" before the size */
static int pid_read(const tn__squeezed *text, size_t at, uint64_t *out) {
  if (!ends_with(text, at, "has")) return 0;
  size_t end = at - 3, begin = end;
  while (begin > 0 && is_digit(text->text[begin - 1])) begin--;
  if (begin == end || end - begin > 18 || !ends_with(text, begin, "process")) return 0;
  *out = 0;
  for (; begin < end; begin++) *out = *out * 10 + (uint64_t)(text->text[begin] - '0');
  return 1;
}

int tn__oom_token_reading(const tn__squeezed *text, const tn__oom_token *token, int is_near, uint64_t *out_pid, size_t *out_end) {
  for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
    if (!phrase_fits(&phrases[i], text, token, is_near)) continue;
    if (phrases[i].reading == TN__OOM_READ_PROCESS && !pid_read(text, token->at, out_pid)) continue;
    *out_end = token->end + (phrases[i].after ? strlen(phrases[i].after) : 0);
    return phrases[i].reading;
  }
  return TN__OOM_READ_NOTHING;
}

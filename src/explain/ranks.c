/* ranks.c -- the tree of words.  See ranks.h. */
#include "explain/ranks.h"

#include "base/check.h"
#include "base/mem.h"
#include "tonnage.h"

static size_t words_for(size_t bits) { return (bits + 63) / 64; }

int tn__ranks_init(tn__ranks *ranks, uint32_t limit) {
  *ranks = (tn__ranks){.limit = limit};
  size_t total = 0, bits = limit ? limit : 1;
  do {
    ranks->level_at[ranks->levels++] = total;
    bits = words_for(bits);
    total += bits;
  } while (bits > 1);
  ranks->words = tn__mem_zalloc(total, sizeof *ranks->words);
  return ranks->words ? TN_OK : TN_ENOMEM;
}

void tn__ranks_deinit(tn__ranks *ranks) {
  tn__mem_free(ranks->words);
  *ranks = (tn__ranks){0};
}

static uint64_t *word_at(const tn__ranks *ranks, int level, uint32_t at) { return &ranks->words[ranks->level_at[level] + at]; }

void tn__ranks_add(tn__ranks *ranks, uint32_t number) {
  tn_assert(number < ranks->limit);
  for (int level = 0; level < ranks->levels; level++, number /= 64)
    *word_at(ranks, level, number / 64) |= (uint64_t)1 << number % 64;
}

void tn__ranks_remove(tn__ranks *ranks, uint32_t number) {
  tn_assert(number < ranks->limit);
  for (int level = 0; level < ranks->levels; level++, number /= 64) {
    uint64_t *word = word_at(ranks, level, number / 64);
    *word &= ~((uint64_t)1 << number % 64);
    if (*word) break;
  }
}

int tn__ranks_has(const tn__ranks *ranks, uint32_t number) {
  return number < ranks->limit && *word_at(ranks, 0, number / 64) >> number % 64 & 1;
}

/* The lowest number under bit `number` of a level. */
static uint32_t lowest(const tn__ranks *ranks, int level, uint32_t number) {
  while (level-- > 0) number = number * 64 + (uint32_t)__builtin_ctzll(*word_at(ranks, level, number));
  return number;
}

static uint32_t highest(const tn__ranks *ranks, int level, uint32_t number) {
  while (level-- > 0) number = number * 64 + 63 - (uint32_t)__builtin_clzll(*word_at(ranks, level, number));
  return number;
}

uint32_t tn__ranks_from(const tn__ranks *ranks, uint32_t number) {
  if (number >= ranks->limit) return TN_NONE;
  for (int level = 0; level < ranks->levels; level++) {
    uint64_t rest = *word_at(ranks, level, number / 64) & ~(uint64_t)0 << number % 64;
    if (rest) return lowest(ranks, level, number / 64 * 64 + (uint32_t)__builtin_ctzll(rest));
    number = number / 64 + 1;
    if (level + 1 < ranks->levels && ranks->level_at[level] + number >= ranks->level_at[level + 1]) return TN_NONE;
  }
  return TN_NONE;
}

uint32_t tn__ranks_up_to(const tn__ranks *ranks, uint32_t number) {
  if (!ranks->limit) return TN_NONE;
  if (number >= ranks->limit) number = ranks->limit - 1;
  for (int level = 0; level < ranks->levels; level++) {
    uint64_t rest = *word_at(ranks, level, number / 64) & ~(uint64_t)0 >> (63 - number % 64);
    if (rest) return highest(ranks, level, number / 64 * 64 + 63 - (uint32_t)__builtin_clzll(rest));
    if (number < 64) return TN_NONE;
    number = number / 64 - 1;
  }
  return TN_NONE;
}

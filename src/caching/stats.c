/* stats.c -- counters as torch.cuda.memory_stats() has them. */
#include "caching/caching.h"

void tn__stat_add(tn_stat *stat, uint64_t amount) {
  stat->current += amount;
  stat->allocated += amount;
  if (stat->current > stat->peak) stat->peak = stat->current;
}

void tn__stat_sub(tn_stat *stat, uint64_t amount) {
  tn_assert(stat->current >= amount);
  stat->current -= amount;
  stat->freed += amount;
}

void tn__stat_change(tn_stat *stat, int64_t amount) {
  if (amount > 0)
    tn__stat_add(stat, (uint64_t)amount);
  else if (amount < 0)
    tn__stat_sub(stat, (uint64_t)-amount);
}

void tn__count_alloc(tn_caching *caching, const tn__block *block) {
  tn_caching_stats *stats = &caching->stats;
  tn__stat_add(&stats->allocation, 1);
  tn__stat_add(&stats->allocated_bytes, block->bytes);
  tn__stat_add(&stats->active, 1);
  tn__stat_add(&stats->active_bytes, block->bytes);
  tn__stat_add(&stats->requested_bytes, block->requested);
  if (block->bytes >= caching->max_split_bytes) tn__stat_add(&stats->oversize_allocations, 1);
}

void tn__count_free(tn_caching *caching, const tn__block *block) {
  tn_caching_stats *stats = &caching->stats;
  tn__stat_sub(&stats->allocation, 1);
  tn__stat_sub(&stats->allocated_bytes, block->bytes);
  if (block->bytes >= caching->max_split_bytes) tn__stat_sub(&stats->oversize_allocations, 1);
}

void tn__count_complete(tn_caching *caching, const tn__block *block) {
  tn_caching_stats *stats = &caching->stats;
  tn__stat_sub(&stats->active, 1);
  tn__stat_sub(&stats->active_bytes, block->bytes);
  tn__stat_sub(&stats->requested_bytes, block->requested);
}

void tn_caching_get_stats(const tn_caching *caching, tn_caching_stats *out) { *out = caching->stats; }

void tn__reserved_add(tn_caching *caching, uint64_t bytes) {
  tn_stat *reserved = &caching->stats.reserved_bytes;
  tn__stat_add(reserved, bytes);
  if (reserved->current > caching->limit_needed) caching->limit_needed = reserved->current;
}

void tn_caching_reset_peaks(tn_caching *caching) {
  tn_caching_stats *stats = &caching->stats;
  tn_stat *all[] = {&stats->allocation,      &stats->segment,        &stats->active,
                    &stats->inactive_split,  &stats->allocated_bytes, &stats->reserved_bytes,
                    &stats->active_bytes,    &stats->inactive_split_bytes, &stats->requested_bytes,
                    &stats->oversize_allocations, &stats->oversize_segments};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) all[i]->peak = all[i]->current;
}

uint64_t tn_caching_limit_needed(tn_caching *caching) {
  uint64_t needed = caching->limit_needed;
  caching->limit_needed = caching->stats.reserved_bytes.current;
  return needed;
}

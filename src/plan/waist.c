/* waist.c -- see waist.h. */
#include "plan/waist.h"

#include <string.h>

#include "base/mem.h"

enum { SMALL_BYTES = 4096 }; /* what has no slot and is no larger does not spoil a waist: it is made again on the way */

typedef struct crossing {
  uint32_t *made_at, *read_at; /* per block: position in forward order where it is made and last read */
  uint64_t *bytes;             /* per op: what crosses after it; UINT64_MAX when it cannot be kept */
} crossing;

static void read_positions(const tn__graph *g, crossing *c) {
  for (uint32_t n = 0; n < g->forward_count; n++) {
    const tn_op *op = &g->ops[g->forward_ops[n]];
    if (op->pass != g->pass) continue;
    for (uint32_t i = 0; i < op->inputs_count; i++)
      if (g->refs[op->inputs_at + i] != TN_NONE) c->read_at[g->values[g->refs[op->inputs_at + i]].block] = n;
    for (uint32_t i = 0; i < op->outputs_count; i++) {
      uint32_t v = g->refs[op->outputs_at + i];
      if (v != TN_NONE && c->made_at[g->values[v].block] == TN_NONE) c->made_at[g->values[v].block] = n;
    }
  }
}

static int has_life(const tn__graph *g, const crossing *c, uint32_t block) {
  return g->block[block].in_pass && c->made_at[block] != TN_NONE;
}

static void weigh(const tn__graph *g, crossing *c) {
  for (uint32_t b = 0; b < g->block_count; b++) {
    if (!has_life(g, c, b)) continue;
    int spoils = g->block[b].source_slot == TN_NONE && g->block[b].bytes > SMALL_BYTES;
    for (uint32_t n = c->made_at[b]; n < c->read_at[b]; n++) {
      if (spoils) c->bytes[n] = UINT64_MAX;
      else if (c->bytes[n] != UINT64_MAX) c->bytes[n] += g->block[b].bytes;
    }
  }
}

static int is_waist(const tn__graph *g, const crossing *c, uint32_t n) {
  if (g->ops[g->forward_ops[n]].pass != g->pass || !c->bytes[n] || c->bytes[n] == UINT64_MAX) return 0;
  return c->bytes[n] <= c->bytes[n - 1] && c->bytes[n] < c->bytes[n + 1];
}

static uint32_t number(const tn__graph *g, const crossing *c, uint32_t *waist) {
  uint32_t count = 0;
  for (uint32_t n = 1; n + 1 < g->forward_count; n++) {
    if (!is_waist(g, c, n)) continue;
    for (uint32_t b = 0; b < g->block_count; b++)
      if (has_life(g, c, b) && c->made_at[b] <= n && c->read_at[b] > n) waist[b] = count;
    count++;
  }
  return count;
}

int tn__waists_find(const tn__graph *g, uint32_t *waist, uint32_t *out_count) {
  size_t blocks = g->block_count + 1;
  crossing c = {.made_at = tn__mem_alloc(blocks * sizeof *c.made_at), .read_at = tn__mem_zalloc(blocks, sizeof *c.read_at),
                .bytes = tn__mem_zalloc(g->forward_count + 1, sizeof *c.bytes)};
  int rc = c.made_at && c.read_at && c.bytes ? TN_OK : TN_ENOMEM;
  if (rc == TN_OK) {
    memset(c.made_at, 0xff, blocks * sizeof *c.made_at);
    memset(waist, 0xff, g->block_count * sizeof *waist);
    read_positions(g, &c);
    weigh(g, &c);
    *out_count = number(g, &c, waist);
  }
  tn__mem_free(c.made_at);
  tn__mem_free(c.read_at);
  tn__mem_free(c.bytes);
  return rc;
}

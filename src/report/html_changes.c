/* html_changes.c -- a device's history as pieces that come and go.  See html_changes.h. */
#include "report/html_changes.h"

#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "base/mem.h"
#include "report/html_pack.h"

enum { PREDICTED_LOG2 = 18, PIECE_BYTES = 12 /* packed, about */, EXACT_CHUNKS_MAX = 64 };
enum { AWAY, THERE, PENDING };
enum { KIND_TOGGLE, KIND_PENDING, KIND_TOGGLE_TWO, KIND_SKIP };

/* What is known of a piece while packing. */
typedef struct entered {
  uint32_t next; /* piece with the same hash, TN_NONE */
  uint8_t state; /* AWAY, THERE, PENDING */
  uint8_t reserved[3];
} entered;

typedef struct packer {
  const tn__analysis *analysis;
  const tn__chronicle *history;
  const tn__segments *segments;
  tn__changes *out;
  tn_map by_hash;  /* of the piece: the first with it */
  tn_vec entered;  /* by piece */
  uint32_t *predicted; /* symbol by the hash of the two before it, TN_NONE */
  uint32_t before[2];  /* those two */
  uint32_t number;     /* of the last symbol that named a piece */
  uint32_t hits;       /* symbols as predicted, not yet written */
  uint32_t skipped;    /* entries without a change, not yet written */
  size_t segment_at;   /* next of segments->changes */
  uint64_t bytes_max;
} packer;

/* ---- symbols ------------------------------------------------------------------------------------------------------------- */

static uint32_t predicted_slot(const packer *p) {
  uint32_t hash = p->before[0] * 0x9e3779b1u ^ p->before[1] * 0x85ebca77u;
  hash ^= hash >> 15;
  return hash * 0x2c1b3c6du >> (32 - PREDICTED_LOG2);
}

static void hits_write(packer *p) {
  if (p->hits == 0) return;
  tn__pack_varint(&p->out->symbols, 0);
  tn__pack_varint(&p->out->symbols, p->hits);
  p->hits = 0;
}

static void symbol_put(packer *p, uint32_t number, uint32_t kind) {
  uint32_t symbol = number << 2 | kind, slot = predicted_slot(p);
  if (p->predicted[slot] == symbol) {
    p->hits++;
  } else {
    hits_write(p);
    uint64_t said = kind == KIND_SKIP ? number : tn__pack_zigzag((uint64_t)number - p->number);
    tn__pack_varint(&p->out->symbols, 1 + (said << 2 | kind));
    p->predicted[slot] = symbol;
  }
  if (kind != KIND_SKIP) p->number = number;
  p->before[0] = p->before[1];
  p->before[1] = symbol;
  p->out->count++;
}

static void skip_put(packer *p) {
  if (p->skipped > 0) symbol_put(p, p->skipped, KIND_SKIP);
  p->skipped = 0;
}

/* ---- pieces -------------------------------------------------------------------------------------------------------------- */

static uint64_t piece_hash(const tn__piece *piece) {
  const uint64_t words[] = {piece->addr, piece->bytes, piece->requested_bytes, (uint64_t)piece->stack << 32 | piece->stream,
                            (uint64_t)piece->pool << 16 | (uint64_t)piece->kind << 8 | piece->category};
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u ^ hash >> 29;
  return hash;
}

/* The number of the piece, a new one when it was not seen before. */
static int piece_enter(packer *p, const tn__piece *piece, uint32_t *out_number) {
  uint64_t hash = piece_hash(piece);
  uint32_t first = tn__map_get(&p->by_hash, hash);
  for (uint32_t i = first; i != TN_NONE; i = TN_VEC(&p->entered, entered)[i].next)
    if (memcmp(&TN_VEC(&p->out->pieces, tn__piece)[i], piece, sizeof *piece) == 0) {
      *out_number = i;
      return TN_OK;
    }
  uint32_t number = (uint32_t)p->out->pieces.count;
  entered fresh = {.next = first};
  TN_TRY(tn__vec_push(&p->out->pieces, piece));
  TN_TRY(tn__vec_push(&p->entered, &fresh));
  TN_TRY(tn__map_set(&p->by_hash, hash, number));
  *out_number = number;
  return TN_OK;
}

static tn__piece piece_of_span(const packer *p, const tn__span *span) {
  return (tn__piece){
      .addr = span->addr,
      .bytes = span->bytes,
      .requested_bytes = span->requested_bytes,
      .stack = tn__span_group(&p->analysis->stacks, span),
      .stream = span->stream,
      .pool = span->pool,
      .kind = TN__PIECE_BLOCK,
      .category = span->category,
  };
}

/* What a change takes: entries (0, 1 or 2) in an exact chunk.  Returns through *took whether a symbol was written; none is when
 * the piece is in that state already, as when a file contradicts itself. */
static int piece_set(packer *p, const tn__piece *piece, uint8_t state, uint32_t entries, int is_exact, int *took) {
  uint32_t number;
  TN_TRY(piece_enter(p, piece, &number));
  uint8_t *was = &TN_VEC(&p->entered, entered)[number].state;
  *took = *was != state && !(*was == PENDING && state == THERE);
  if (!*took) return TN_OK;
  skip_put(p);
  if (*was == AWAY && state == PENDING) { /* only where it was pending from the start, or is thinned */
    if (is_exact) symbol_put(p, 0, KIND_SKIP);
    symbol_put(p, number, KIND_TOGGLE);
    *was = THERE;
  }
  if (is_exact && entries == 0) symbol_put(p, 0, KIND_SKIP);
  symbol_put(p, number, state == PENDING ? KIND_PENDING : entries == 2 ? KIND_TOGGLE_TWO : KIND_TOGGLE);
  *was = state;
  return TN_OK;
}

/* ---- entries ------------------------------------------------------------------------------------------------------------- */

static uint8_t span_state(const tn__span *span, uint32_t moment) {
  return tn__span_is_allocated(span, moment) ? THERE : tn__span_is_active(span, moment) ? PENDING : AWAY;
}

static const tn__span *span_at(const packer *p, uint32_t entry) {
  uint32_t span = p->history->span_of[entry];
  return span == TN_NONE ? NULL : &TN__SPANS(p->history)[span];
}

/* The segments that the entry takes or gives back, any number of them: they do not count as the entry. */
static int segments_put(packer *p, uint32_t entry, int is_exact) {
  const tn__segment_change *changes = TN_VEC(&p->segments->changes, tn__segment_change);
  const tn__piece *pieces = TN_VEC(&p->segments->pieces, tn__piece);
  for (; p->segment_at < p->segments->changes.count && changes[p->segment_at].entry == entry; p->segment_at++) {
    const tn__segment_change *change = &changes[p->segment_at];
    int wrote;
    TN_TRY(piece_set(p, &pieces[change->piece], change->is_held ? THERE : AWAY, 0, is_exact, &wrote));
  }
  return TN_OK;
}

static int is_freed_at_once(const packer *p, uint32_t entry, uint32_t end) {
  const tn__span *span = span_at(p, entry);
  return span && span->asked == entry && span->done == entry + 1 && entry + 1 < end;
}

static int exact_put(packer *p, uint32_t begin, uint32_t end) {
  for (uint32_t e = begin; e < end;) {
    int took = 0;
    TN_TRY(segments_put(p, e, 1));
    const tn__span *span = span_at(p, e);
    uint32_t entries = is_freed_at_once(p, e, end) ? 2 : 1;
    if (span) {
      tn__piece piece = piece_of_span(p, span);
      TN_TRY(piece_set(p, &piece, span_state(span, e + entries), entries, 1, &took));
    }
    if (!took) p->skipped += entries;
    e += entries;
  }
  skip_put(p);
  return TN_OK;
}

/* Only the last entry of a span in the cell speaks, and only when something is different behind the cell. */
static int cell_span_put(packer *p, uint32_t entry, uint32_t begin, uint32_t end) {
  const tn__span *span = span_at(p, entry);
  if (!span) return TN_OK;
  uint32_t last = span->done < end ? span->done : span->asked < end ? span->asked : entry; /* TN_NONE lies beyond any end */
  uint8_t state = span_state(span, end);
  if (entry != last || state == span_state(span, begin)) return TN_OK;
  tn__piece piece = piece_of_span(p, span);
  int took;
  return piece_set(p, &piece, state, 1, 0, &took);
}

static int thinned_put(packer *p, uint32_t begin, uint32_t end, uint32_t grid) {
  for (uint32_t cell = begin; cell < end;) {
    uint32_t cell_end = end - cell > 1u << grid ? cell + (1u << grid) : end;
    for (uint32_t e = cell; e < cell_end; e++) {
      TN_TRY(segments_put(p, e, 0));
      TN_TRY(cell_span_put(p, e, cell, cell_end));
    }
    p->skipped += cell_end - cell;
    cell = cell_end;
  }
  skip_put(p);
  return TN_OK;
}

static int initial_put(packer *p) {
  const tn__piece *pieces = TN_VEC(&p->segments->pieces, tn__piece);
  const uint32_t *before = TN_VEC(&p->segments->before, uint32_t);
  const tn__span *spans = TN__SPANS(p->history);
  int took;
  for (size_t i = 0; i < p->segments->before.count; i++) TN_TRY(piece_set(p, &pieces[before[i]], THERE, 1, 0, &took));
  for (uint32_t i = 0; i < p->history->before_count; i++) {
    tn__piece piece = piece_of_span(p, &spans[i]);
    TN_TRY(piece_set(p, &piece, span_state(&spans[i], 0), 1, 0, &took));
  }
  p->out->initial = p->out->count;
  return TN_OK;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static int is_too_long(const packer *p) {
  return p->out->symbols.len + (uint64_t)p->out->pieces.count * PIECE_BYTES > p->bytes_max;
}

static int chunks_put(packer *p) {
  const uint8_t *grids = TN_VEC(&p->out->grids, uint8_t);
  for (size_t chunk = 0; chunk < p->out->grids.count && !is_too_long(p); chunk++) {
    uint32_t begin = (uint32_t)chunk * TN__CHUNK_ENTRIES, left = p->history->entry_count - begin;
    uint32_t end = begin + (left < TN__CHUNK_ENTRIES ? left : TN__CHUNK_ENTRIES);
    TN_TRY(grids[chunk] ? thinned_put(p, begin, end, grids[chunk]) : exact_put(p, begin, end));
  }
  hits_write(p);
  return p->out->symbols.failed;
}

static void out_clear(tn__changes *out) {
  tn__vec_clear(&out->pieces);
  tn__text_deinit(&out->symbols);
  out->initial = out->count = 0;
}

/* Packs with the grids as they are; *fits 0: longer than bytes_max, and not complete. */
static int pack(tn__changes *out, const tn__analysis *analysis, const tn__segments *segments, uint64_t bytes_max, int *fits) {
  out_clear(out);
  packer p = {.analysis = analysis, .history = &analysis->history, .segments = segments, .out = out, .bytes_max = bytes_max};
  p.before[0] = p.before[1] = TN_NONE;
  tn__map_init(&p.by_hash);
  tn__vec_init(&p.entered, sizeof(entered));
  size_t slots = (size_t)1 << PREDICTED_LOG2;
  p.predicted = tn__mem_alloc(slots * sizeof *p.predicted);
  int rc = p.predicted ? TN_OK : TN_ENOMEM;
  for (size_t i = 0; i < slots && !rc; i++) p.predicted[i] = TN_NONE;
  if (!rc) rc = initial_put(&p);
  if (!rc) rc = chunks_put(&p);
  *fits = !is_too_long(&p);
  tn__mem_free(p.predicted);
  tn__vec_deinit(&p.entered);
  tn__map_deinit(&p.by_hash);
  return rc;
}

/* grid for every chunk but those of the moments, the first of them first. */
static void grids_set(tn__changes *changes, uint32_t grid, const uint32_t *moments, size_t moment_count) {
  uint8_t *grids = TN_VEC(&changes->grids, uint8_t);
  changes->grid = grid;
  for (size_t i = 0; i < changes->grids.count; i++) grids[i] = (uint8_t)grid;
  uint32_t exact = 0;
  for (size_t i = 0; i < moment_count && exact < EXACT_CHUNKS_MAX && grid > 0; i++) {
    size_t chunk = moments[i] == 0 ? 0 : (moments[i] - 1) / TN__CHUNK_ENTRIES; /* of the entry that led there */
    if (chunk >= changes->grids.count || grids[chunk] == 0) continue;
    grids[chunk] = 0;
    exact++;
  }
}

int tn__changes_init(tn__changes *changes, const tn__analysis *analysis, const tn__segments *segments, const uint32_t *moments,
                     size_t moment_count, uint64_t bytes_max) {
  static const uint32_t grids[] = {0, 4, 6, 8, 10, TN__CHUNK_LOG2};
  *changes = (tn__changes){0};
  tn__vec_init(&changes->pieces, sizeof(tn__piece));
  tn__vec_init(&changes->grids, 1);
  tn__text_init(&changes->symbols);
  size_t chunks = ((size_t)analysis->history.entry_count + TN__CHUNK_ENTRIES - 1) / TN__CHUNK_ENTRIES;
  TN_TRY(tn__vec_resize(&changes->grids, chunks));
  int fits = 0;
  for (size_t i = 0; i < sizeof grids / sizeof *grids && !fits; i++) {
    int is_last = i + 1 == sizeof grids / sizeof *grids;
    grids_set(changes, grids[i], moments, moment_count);
    TN_TRY(pack(changes, analysis, segments, is_last ? UINT64_MAX : bytes_max, &fits));
  }
  return TN_OK;
}

void tn__changes_deinit(tn__changes *changes) {
  tn__text_deinit(&changes->symbols);
  tn__vec_deinit(&changes->grids);
  tn__vec_deinit(&changes->pieces);
}

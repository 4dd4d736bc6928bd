/* html_changes: unpacked again, as the viewer does it, they give who held what at every moment; thinned out, at every moment kept. */
#include "report/html_changes.h"

#include "memory_run.h"

enum { STEPS = 6000, FROM = 500 };

/* ---- the viewer's side --------------------------------------------------------------------------------------------------- */

typedef struct unpacker {
  const unsigned char *at;
  uint32_t *predicted;
  uint32_t before[2], number, hits;
} unpacker;

static uint64_t varint_take(unpacker *u) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    unsigned char byte = *u->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

static uint32_t symbol_take(unpacker *u) {
  uint32_t hash = u->before[0] * 0x9e3779b1u ^ u->before[1] * 0x85ebca77u, symbol;
  hash ^= hash >> 15;
  hash = hash * 0x2c1b3c6du >> 14;
  uint64_t said = u->hits ? 0 : varint_take(u);
  if (!u->hits && said == 0) u->hits = (uint32_t)varint_take(u);
  if (u->hits) {
    u->hits--;
    symbol = u->predicted[hash];
  } else {
    uint64_t rest = (said - 1) >> 2;
    uint32_t kind = (uint32_t)(said - 1) & 3;
    symbol = (kind == 3 ? (uint32_t)rest : u->number + (uint32_t)(rest & 1 ? ~(rest >> 1) : rest >> 1)) << 2 | kind;
    u->predicted[hash] = symbol;
  }
  if ((symbol & 3) != 3) u->number = symbol >> 2;
  u->before[0] = u->before[1];
  u->before[1] = symbol;
  return symbol;
}

/* ---- against what was true ----------------------------------------------------------------------------------------------- */

typedef struct follower {
  const memory_run *run;
  const tn__changes *changes;
  size_t from;
  uint8_t *state; /* by piece: 0 away, 1 there, 2 pending */
  uint32_t checked;
} follower;

static void piece_change(follower *f, uint32_t symbol) {
  uint8_t *state = &f->state[symbol >> 2];
  assert_true(symbol >> 2 < f->changes->pieces.count);
  *state = (symbol & 3) == 1 ? RUN_PENDING : *state ? 0 : 1;
}

/* The pieces that are there are exactly the blocks and segments of that moment. */
static void expect_moment(follower *f, uint32_t moment) {
  const run_state *want = &TN_VEC(&f->run->states, run_state)[f->from + moment];
  run_state got = {0};
  const tn__piece *pieces = TN_VEC(&f->changes->pieces, tn__piece);
  for (size_t i = 0; i < f->changes->pieces.count; i++) {
    if (!f->state[i]) continue;
    for (size_t s = 0; s < RUN_SEGMENTS && pieces[i].kind != TN__PIECE_BLOCK; s++)
      if (run_segment_addr(f->run, s) >= pieces[i].addr && run_segment_addr(f->run, s) < pieces[i].addr + pieces[i].bytes) got.is_held[s]++;
    for (size_t p = 0; p < sizeof got.block && pieces[i].kind == TN__PIECE_BLOCK; p++) {
      if (run_block_addr(f->run, p) != pieces[i].addr) continue;
      assert_int_equal(got.block[p], RUN_FREE);
      got.block[p] = f->state[i];
      assert_true(pieces[i].bytes == want->bytes[p]);
      if (f->from == 0 || pieces[i].stack < RUN_STACKS) assert_int_equal(pieces[i].stack, want->stack[p]); /* else allocated before */
    }
  }
  assert_memory_equal(got.is_held, want->is_held, sizeof got.is_held);
  assert_memory_equal(got.block, want->block, sizeof got.block);
  f->checked++;
}

static void chunk_follow(follower *f, unpacker *u, uint32_t *now, uint32_t end, uint32_t grid, uint32_t *left) {
  int is_free = 0;
  uint32_t cell_begin = *now;
  while (*now < end) {
    uint32_t symbol = symbol_take(u), kind = symbol & 3;
    --*left;
    if (kind == 3) {
      is_free = symbol == 3;
      for (uint32_t i = 0; i < symbol >> 2; i++) {
        ++*now;
        int is_kept = grid == 0 || *now == end || (*now - cell_begin) % (1u << grid) == 0;
        if (is_kept) expect_moment(f, *now);
      }
      continue;
    }
    piece_change(f, symbol);
    if (grid > 0) continue;
    if (!is_free) expect_moment(f, *now + 1 + (kind == 2));
    *now += is_free ? 0 : kind == 2 ? 2 : 1;
    is_free = 0;
  }
}

static void changes_follow(const memory_run *run, size_t from, const tn__changes *changes, uint32_t entries) {
  unpacker u = {.at = (const unsigned char *)changes->symbols.data, .before = {TN_NONE, TN_NONE}};
  u.predicted = malloc(sizeof(uint32_t) << 18);
  memset(u.predicted, 0xff, sizeof(uint32_t) << 18);
  follower f = {.run = run, .changes = changes, .from = from, .state = calloc(changes->pieces.count, 1)};
  uint32_t now = 0, left = changes->count;
  for (uint32_t i = 0; i < changes->initial; i++, left--) piece_change(&f, symbol_take(&u));
  expect_moment(&f, 0);
  for (size_t chunk = 0; chunk < changes->grids.count; chunk++) {
    uint32_t end = entries - now < TN__CHUNK_ENTRIES ? entries : now + TN__CHUNK_ENTRIES;
    chunk_follow(&f, &u, &now, end, TN_VEC(&changes->grids, uint8_t)[chunk], &left);
    assert_int_equal(now, end);
  }
  assert_int_equal(left, 0);
  assert_int_equal(u.hits, 0);
  assert_ptr_equal(u.at, changes->symbols.data + changes->symbols.len);
  assert_true(f.checked > entries / 1000);
  free(f.state);
  free(u.predicted);
}

typedef struct fixture {
  memory_run run;
  tn_trace *trace;
  tn__analysis analysis;
  tn__segments segments;
} fixture;

static fixture fixture_make(uint64_t seed, size_t steps, size_t from, int is_expandable) {
  fixture f = {.run = run_make(seed, steps, is_expandable)};
  tn__analysis_options options = {0};
  assert_int_equal(run_trace(&f.run, from, &f.trace), TN_OK);
  assert_int_equal(tn__analysis_init(&f.analysis, f.trace, 0, &options), TN_OK);
  assert_int_equal(tn__segments_init(&f.segments, &f.analysis.history), TN_OK);
  return f;
}

static void fixture_deinit(fixture *f) {
  tn__segments_deinit(&f->segments);
  tn__analysis_deinit(&f->analysis);
  tn_trace_free(f->trace);
  run_deinit(&f->run);
}

static void every_moment_of_random_runs(void **state) {
  (void)state;
  uint64_t seed = tn_test_seed();
  for (int round = 0; round < 6; round++) {
    size_t from = round % 3 ? FROM : 0;
    fixture f = fixture_make(seed + (uint64_t)round, STEPS, from, round % 2);
    tn__changes changes;
    assert_int_equal(tn__changes_init(&changes, &f.analysis, &f.segments, NULL, 0, UINT64_MAX), TN_OK);
    assert_int_equal(changes.grid, 0);
    changes_follow(&f.run, from, &changes, f.analysis.history.entry_count);
    tn__changes_deinit(&changes);
    fixture_deinit(&f);
  }
}

/* A bound that a third of the exact form would meet: the chunk of the moment asked for stays exact, and what is kept is true. */
static void thinned_out_within_a_bound(void **state) {
  (void)state;
  fixture f = fixture_make(tn_test_seed(), 4 * STEPS, FROM, 1);
  tn__changes changes;
  assert_int_equal(tn__changes_init(&changes, &f.analysis, &f.segments, NULL, 0, UINT64_MAX), TN_OK);
  uint64_t exact_bytes = changes.symbols.len + 12 * changes.pieces.count;
  tn__changes_deinit(&changes);
  const uint32_t moment = 2 * TN__CHUNK_ENTRIES;
  uint32_t grids = 0;
  for (uint64_t divisor = 1; divisor < 60; divisor += 4) {
    assert_int_equal(tn__changes_init(&changes, &f.analysis, &f.segments, &moment, 1, exact_bytes / divisor), TN_OK);
    changes_follow(&f.run, FROM, &changes, f.analysis.history.entry_count);
    assert_int_equal(TN_VEC(&changes.grids, uint8_t)[1], 0); /* the entry that leads there is the chunk's last */
    if (changes.grid < TN__CHUNK_LOG2) assert_true(changes.symbols.len + 12 * changes.pieces.count <= exact_bytes / divisor);
    grids |= 1u << changes.grid;
    tn__changes_deinit(&changes);
  }
  assert_true(grids & 1 && grids >> TN__CHUNK_LOG2);
  fixture_deinit(&f);
}

/* A step that repeats is nearly free: 50 of them take less than twice the bytes of one. */
static void what_repeats_costs_nothing(void **state) {
  (void)state;
  size_t bytes[2];
  for (int i = 0; i < 2; i++) {
    memory_run run = run_make(1, 0, 0);
    run_segment(&run, 0, 1);
    for (int step = 0; step < (i ? 50 : 1); step++) {
      for (size_t place = 0; place < RUN_PLACES; place++) {
        run.now.bytes[place] = 512 * (place + 1);
        run_block(&run, place, TN_ACTION_ALLOC);
      }
      for (size_t place = RUN_PLACES; place-- > 0;) {
        run_block(&run, place, TN_ACTION_FREE_REQUESTED);
        run_block(&run, place, TN_ACTION_FREE_COMPLETED);
      }
    }
    tn_trace *trace;
    tn__analysis analysis;
    tn__segments segments;
    tn__changes changes;
    tn__analysis_options options = {0};
    assert_int_equal(run_trace(&run, 0, &trace), TN_OK);
    assert_int_equal(tn__analysis_init(&analysis, trace, 0, &options), TN_OK);
    assert_int_equal(tn__segments_init(&segments, &analysis.history), TN_OK);
    assert_int_equal(tn__changes_init(&changes, &analysis, &segments, NULL, 0, UINT64_MAX), TN_OK);
    changes_follow(&run, 0, &changes, analysis.history.entry_count);
    bytes[i] = changes.symbols.len;
    tn__changes_deinit(&changes);
    tn__segments_deinit(&segments);
    tn__analysis_deinit(&analysis);
    tn_trace_free(trace);
    run_deinit(&run);
  }
  assert_true(bytes[1] < 2 * bytes[0]);
}

static int sweep(void *user) {
  fixture *f = user;
  tn__changes changes;
  int rc = tn__changes_init(&changes, &f->analysis, &f->segments, NULL, 0, 500);
  tn__changes_deinit(&changes);
  return rc;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  fixture f = fixture_make(5, 200, 20, 0);
  assert_true(tn_test_sweep(sweep, &f) > 10);
  fixture_deinit(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_moment_of_random_runs),
      cmocka_unit_test(thinned_out_within_a_bound),
      cmocka_unit_test(what_repeats_costs_nothing),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

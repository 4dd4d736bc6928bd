/* diff: what changed most comes first, rows and categories add up, and a line number that an edit moved is no change. */
#include "explain/diff.h"

#include "training.h"

typedef struct sides {
  training t[2];
  tn__analysis a[2];
  tn__diff diff;
} sides;

static void compare(sides *s, training_faults before, training_faults after) {
  const training_faults faults[2] = {before, after};
  memory_must(tn__diff_init(&s->diff), "diff");
  for (int side = 0; side < 2; side++) {
    training_run(&s->t[side], faults[side], 4);
    memory_must(tn__analysis_init(&s->a[side], s->t[side].m.trace, 0, NULL), "analysis");
    memory_must(tn__diff_add_analysis(&s->diff, side, &s->a[side]), "add");
  }
  memory_must(tn__diff_finish(&s->diff), "finish");
}

static void sides_end(sides *s) {
  tn__diff_deinit(&s->diff);
  for (int side = 0; side < 2; side++) {
    tn__analysis_deinit(&s->a[side]);
    training_end(&s->t[side]);
  }
}

static const tn__diff_row *row_at(const tn__diff *diff, size_t at) { return tn__vec_at(&diff->rows, at); }

static void assert_adds_up(const tn__diff *diff) {
  for (int side = 0; side < 2; side++) {
    uint64_t rows = 0, categories = 0;
    for (size_t i = 0; i < diff->rows.count; i++) rows += row_at(diff, i)->bytes[side];
    for (int i = 0; i < TN_CATEGORY_COUNT; i++) categories += diff->by_category[side][i];
    assert_int_equal(rows, diff->level[side].allocated_bytes);
    assert_int_equal(categories, diff->level[side].allocated_bytes);
  }
}

static void what_changed_most_is_first(void **state) {
  (void)state;
  sides s;
  compare(&s, (training_faults){0}, (training_faults){.logits_bytes = 44 * MIB});
  assert_adds_up(&s.diff);
  for (size_t i = 1; i < s.diff.rows.count; i++)
    assert_true(llabs(tn__diff_change(row_at(&s.diff, i))) <= llabs(tn__diff_change(row_at(&s.diff, i - 1))));
  assert_int_equal(tn__diff_change(row_at(&s.diff, 0)), 40 * MIB);
  sides_end(&s);
}

static void nothing_changed(void **state) {
  (void)state;
  sides s;
  compare(&s, (training_faults){0}, (training_faults){0});
  assert_adds_up(&s.diff);
  assert_true(s.diff.rows.count > 3);
  for (size_t i = 0; i < s.diff.rows.count; i++) assert_int_equal(tn__diff_change(row_at(&s.diff, i)), 0);
  sides_end(&s);
}

/* ---- lines that moved ---------------------------------------------------------------------------------------------------- */

static void add(tn__diff *diff, int side, const char *label, const char *loose, uint64_t bytes) {
  memory_must(tn__diff_add(diff, side, label, loose, TN_CATEGORY_ACTIVATION, bytes, 1), "add");
}

static void a_line_that_moved_is_the_same(void **state) {
  (void)state;
  tn__diff diff;
  memory_must(tn__diff_init(&diff), "diff");
  add(&diff, 0, "a.py:10 f", "a.py f", 100);
  add(&diff, 1, "a.py:12 f", "a.py f", 130);
  memory_must(tn__diff_finish(&diff), "finish");
  assert_int_equal(diff.rows.count, 1);
  assert_int_equal(tn__diff_change(row_at(&diff, 0)), 30);
  assert_string_equal(tn__strings_get(&diff.texts, row_at(&diff, 0)->label), "a.py:12 f");
  tn__diff_deinit(&diff);
}

/* Two lines of one function on one side: which of them moved cannot be told. */
static void lines_that_cannot_be_told_apart_stay_apart(void **state) {
  (void)state;
  tn__diff diff;
  memory_must(tn__diff_init(&diff), "diff");
  add(&diff, 0, "a.py:10 f", "a.py f", 100);
  add(&diff, 0, "a.py:11 f", "a.py f", 100);
  add(&diff, 1, "a.py:12 f", "a.py f", 130);
  memory_must(tn__diff_finish(&diff), "finish");
  assert_int_equal(diff.rows.count, 3);
  tn__diff_deinit(&diff);
}

/* The same line in both is itself, whatever else is new in its function. */
static void the_same_line_comes_first(void **state) {
  (void)state;
  tn__diff diff;
  memory_must(tn__diff_init(&diff), "diff");
  add(&diff, 0, "a.py:10 f", "a.py f", 100);
  add(&diff, 1, "a.py:10 f", "a.py f", 100);
  add(&diff, 1, "a.py:12 f", "a.py f", 50);
  memory_must(tn__diff_finish(&diff), "finish");
  assert_int_equal(diff.rows.count, 2);
  assert_int_equal(tn__diff_change(row_at(&diff, 0)), 50);
  assert_int_equal(tn__diff_change(row_at(&diff, 1)), 0);
  tn__diff_deinit(&diff);
}

static int scenario(void *user) {
  const tn__analysis *a = user;
  tn__diff diff;
  int rc = tn__diff_init(&diff);
  for (int side = 0; side < 2 && !rc; side++) rc = tn__diff_add_analysis(&diff, side, a);
  if (!rc) rc = tn__diff_finish(&diff);
  tn__diff_deinit(&diff);
  return rc;
}

static void survives_running_out_of_memory(void **state) {
  (void)state;
  training t;
  tn__analysis a;
  training_run(&t, (training_faults){0}, 3);
  memory_must(tn__analysis_init(&a, t.m.trace, 0, NULL), "analysis");
  assert_true(tn_test_sweep(scenario, &a) > 10);
  tn__analysis_deinit(&a);
  training_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_changed_most_is_first),
      cmocka_unit_test(nothing_changed),
      cmocka_unit_test(a_line_that_moved_is_the_same),
      cmocka_unit_test(lines_that_cannot_be_told_apart_stay_apart),
      cmocka_unit_test(the_same_line_comes_first),
      cmocka_unit_test(survives_running_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tune.c -- many settings, one history: replayed in threads, ranked.
 *
 * The first round is a list of settings, the second varies the best three of it.  Each replay has a model of its own; the history is
 * shared and only read. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "caching/conf.h"
#include "caching/replay.h"
#include "caching/settings.h"

enum { THREADS_MAX = 256, VARIED = 3 };

struct tn_tune {
  tn_vec rows;  /* tn_tune_row; the text of each is owned */
  tn_replay_result exact;
  size_t recorded; /* place of the recorded settings among the rows */
};

/* ---- replaying in threads ------------------------------------------------------------------------------------------------ */

typedef struct work {
  const tn__history *history;
  tn_tune_row *rows;
  size_t count, offset, total; /* rows to do; how many were done before, and will be in all */
  uint64_t limit_bytes;
  const tn_tune_options *options;
  atomic_size_t next, done;
  atomic_int rc;
} work;

static int row_replay(work *w, tn_tune_row *row) {
  tn_conf conf = row->result.conf;
  tn__replay_describe(w->history, &row->result);
  row->result.conf = conf;
  row->result.exactness = TN_EXACT_NOT_COMPARED;
  row->result.limit_bytes = w->limit_bytes;
  row->result.limit_inferred = w->limit_bytes != 0 && w->options->limit_bytes == 0;
  return tn__replay_predict(w->history, &conf, w->limit_bytes, &row->result);
}

static void rows_take(work *w, int reports) {
  for (size_t at; (at = atomic_fetch_add(&w->next, 1)) < w->count && !atomic_load(&w->rc);) {
    int rc = row_replay(w, &w->rows[at]), none = TN_OK;
    if (rc) (void)atomic_compare_exchange_strong(&w->rc, &none, rc);
    size_t done = atomic_fetch_add(&w->done, 1) + 1;
    if (reports && w->options->progress) w->options->progress(w->options->user, w->offset + done, w->total);
  }
}

static void *thread_main(void *user) {
  rows_take(user, 0);
  return NULL;
}

static size_t threads_wanted(const work *w) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  size_t threads = w->options->threads ? w->options->threads : cores > 0 ? (size_t)cores : 1;
  if (threads > THREADS_MAX) threads = THREADS_MAX;
  return threads < w->count ? threads : w->count;
}

/* The calling thread works too; when no other can be started it does all of it. */
static int rows_replay(work *w) {
  pthread_t threads[THREADS_MAX];
  size_t started = 0, wanted = threads_wanted(w);
  while (started + 1 < wanted && pthread_create(&threads[started], NULL, thread_main, w) == 0) started++;
  rows_take(w, 1);
  for (size_t i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
  return atomic_load(&w->rc);
}

/* ---- ranking ------------------------------------------------------------------------------------------------------------- */

static int compare_u64(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static uint64_t driver_calls(const tn_tune_row *row) {
  return row->result.stats.num_device_alloc + row->result.stats.num_device_free;
}

/* Negative when a serves the run better: it goes on for longer, what failed is served, fewer allocations wait for the device. */
static int compare_service(const tn_tune_row *a, const tn_tune_row *b) {
  const tn_replay_result *x = &a->result, *y = &b->result;
  int order = compare_u64(y->oom_entry, x->oom_entry); /* TN_NONE, the largest: not at all */
  if (!order) order = compare_u64(y->ooms_served, x->ooms_served);
  return order ? order : compare_u64(x->stalls, y->stalls);
}

/* Negative when a is less trouble. */
static int compare_trouble(const tn_tune_row *a, const tn_tune_row *b) {
  int order = compare_u64(b->is_recorded, a->is_recorded);
  if (!order) order = compare_u64(a->changes, b->changes);
  return order ? order : compare_u64(driver_calls(a), driver_calls(b));
}

static int compare_rows(const void *a, const void *b) {
  const tn_tune_row *x = a, *y = b;
  int order = compare_service(x, y);
  if (!order) order = compare_u64(x->result.stats.reserved_bytes.peak, y->result.stats.reserved_bytes.peak);
  if (!order) order = compare_trouble(x, y);
  return order ? order : strcmp(x->setting, y->setting);
}

/* Nobody should set three keys for two percent: of the rows that are as good, the one of least trouble comes first. */
static void simplest_first(tn_tune_row *rows, size_t count) {
  size_t best = 0;
  uint64_t enough = rows[0].result.stats.reserved_bytes.peak / 50 * 51;
  for (size_t i = 1; i < count; i++) {
    if (compare_service(&rows[0], &rows[i]) || rows[i].result.stats.reserved_bytes.peak > enough) continue;
    if (compare_trouble(&rows[i], &rows[best]) < 0) best = i;
  }
  tn_tune_row row = rows[best];
  memmove(&rows[1], &rows[0], best * sizeof row);
  rows[0] = row;
}

static void rows_rank(tn_tune *tune) {
  tn_tune_row *rows = TN_VEC(&tune->rows, tn_tune_row);
  qsort(rows, tune->rows.count, sizeof *rows, compare_rows);
  simplest_first(rows, tune->rows.count);
  for (size_t i = 0; i < tune->rows.count; i++)
    if (rows[i].is_recorded) tune->recorded = i;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

/* Keys are joined by commas; those within a list are not counted. */
static uint32_t keys_count(const char *setting) {
  uint32_t count = *setting != '\0', depth = 0;
  for (; *setting; setting++) {
    depth += *setting == '[';
    depth -= *setting == ']';
    count += *setting == ',' && depth == 0;
  }
  return count;
}

/* Settings of other things that the run had are kept in the string. */
static int setting_text(const tn_conf *conf, const tn_trace *trace, char **out) {
  const char *recorded = tn_trace_meta(trace, "allocator.PYTORCH_CUDA_ALLOC_CONF");
  tn_text text;
  tn__text_init(&text);
  tn__conf_write(conf, &text);
  if (recorded) tn__conf_rest(recorded, &text);
  int rc = tn__text_take(&text, out);
  tn__text_deinit(&text);
  return rc;
}

static int row_add(tn_tune *tune, const tn_conf *conf, const tn__history *history) {
  char *setting = NULL;
  TN_TRY(setting_text(conf, history->trace, &setting));
  tn_tune_row row = {.result.conf = *conf, .setting = setting, .changes = keys_count(setting),
                     .is_recorded = (uint32_t)tn__conf_equal(conf, &history->conf)};
  int rc = tn__vec_push(&tune->rows, &row);
  if (rc) tn_text_free(setting);
  return rc;
}

static int confs_of_rows(const tn_tune *tune, tn_vec *out) {
  for (size_t i = 0; i < tune->rows.count; i++) TN_TRY(tn__vec_push(out, &TN_VEC(&tune->rows, tn_tune_row)[i].result.conf));
  return TN_OK;
}

/* Rows for the settings from the given one on, replayed. */
static int round_run(tn_tune *tune, const tn_vec *confs, size_t from, const tn__history *history, const tn_tune_options *options) {
  for (size_t i = from; i < confs->count; i++) TN_TRY(row_add(tune, tn__vec_at(confs, i), history));
  work w = {.history = history, .options = options, .count = confs->count - from, .offset = from, .total = confs->count};
  if (w.count == 0) return TN_OK;
  w.rows = tn__vec_at(&tune->rows, tune->rows.count - w.count);
  w.limit_bytes = options->limit_bytes ? options->limit_bytes : history->capacity_bytes;
  TN_TRY(rows_replay(&w));
  rows_rank(tune);
  return TN_OK;
}

static int rounds_run(tn_tune *tune, const tn__history *history, const tn_tune_options *options, tn_vec *confs) {
  int is_limited = options->limit_bytes || history->capacity_bytes;
  TN_TRY(tn__settings_list(&history->conf, history->version, is_limited, confs));
  TN_TRY(tn__vec_push(confs, &history->conf));
  for (size_t i = 0; i + 1 < confs->count; i++) {
    if (!tn__conf_equal(tn__vec_at(confs, i), &history->conf)) continue;
    tn__vec_pop(confs, NULL); /* it is in the list already */
  }
  TN_TRY(round_run(tune, confs, 0, history, options));
  tn__vec_clear(confs);
  TN_TRY(confs_of_rows(tune, confs));
  size_t first = confs->count;
  for (size_t i = 0; i < VARIED && i < first; i++)
    TN_TRY(tn__settings_vary(tn__vec_at(confs, i), history->version, is_limited, confs));
  return round_run(tune, confs, first, history, options);
}

/* ---- life ---------------------------------------------------------------------------------------------------------------- */

void tn_tune_free(tn_tune *tune) {
  if (!tune) return;
  for (size_t i = 0; i < tune->rows.count; i++) tn_text_free((char *)TN_VEC(&tune->rows, tn_tune_row)[i].setting);
  tn__vec_deinit(&tune->rows);
  tn__mem_free(tune);
}

static int tune_run(tn_tune *tune, const tn__history *history, const tn_tune_options *options) {
  tn_vec confs;
  tn__vec_init(&confs, sizeof(tn_conf));
  tn__replay_describe(history, &tune->exact);
  tune->exact.conf = history->conf;
  tune->exact.limit_bytes = options->limit_bytes;
  int rc = tn__replay_own(history, options->limit_bytes, &tune->exact);
  if (tune->exact.exactness == TN_EXACT_NOT_COMPARED) tune->exact.exactness = TN_EXACT_YES; /* but for the limit */
  if (!rc) rc = rounds_run(tune, history, options, &confs);
  tn__vec_deinit(&confs);
  return rc;
}

static int tune_make(const tn__history *history, const tn_tune_options *options, tn_tune **out) {
  tn_tune *tune = tn__mem_zalloc(1, sizeof *tune);
  if (!tune) return TN_ENOMEM;
  tn__vec_init(&tune->rows, sizeof(tn_tune_row));
  int rc = tune_run(tune, history, options);
  if (rc)
    tn_tune_free(tune);
  else
    *out = tune;
  return rc;
}

int tn_tune_new(const tn_trace *trace, const tn_tune_options *options, tn_tune **out, tn_error *err) {
  static const tn_tune_options defaults = {.device = TN_NONE};
  tn__history history;
  if (!trace || !out) return tn__error_set(err, TN_EINVAL, NULL);
  if (!options) options = &defaults;
  TN_TRY(tn__history_init(&history, trace, options->device, err));
  int rc = tune_make(&history, options, out);
  tn__history_deinit(&history);
  return rc ? tn__error_set(err, rc, NULL) : TN_OK;
}

const tn_tune_row *tn_tune_rows(const tn_tune *tune, size_t *out_count) {
  if (out_count) *out_count = tune->rows.count;
  return TN_VEC(&tune->rows, tn_tune_row);
}

const tn_tune_row *tn_tune_recorded(const tn_tune *tune) { return tn__vec_at(&tune->rows, tune->recorded); }

const tn_replay_result *tn_tune_exact(const tn_tune *tune) { return &tune->exact; }

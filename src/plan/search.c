/* search.c -- the outer loop over micro-batches and precision.
 *
 * Smaller micro-batches need less memory and cost launches, reads of the weights and, when they are very small, an idle card;
 * rebuilding costs the ops run again.  Both costs are known only after a capture, so captures are asked for one at a time, from
 * the whole batch down, and the search ends when cutting further has twice not paid. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"
#include "plan/profile.h"
#include "plan/span.h"
#include "tonnage.h"

enum { NOT_PAID_MAX = 2 };

struct tn_search {
  tn_profile profile;
  tn_search_options options;
  uint64_t limit_bytes;
  tn_candidate asked;     /* what next() gave last */
  uint32_t is_open;       /* 1: an offer for it is awaited */
  uint32_t started, done;
  uint32_t not_paid;      /* offers in a row that were no better than the best */
  double ratio_needed;    /* smallest allocated bytes over the limit, of the last offer */
  tn_search_best best;
  int has_best;
  double whole_s[2];       /* step of the whole batch, everything kept; by bf16 */
  uint64_t whole_bytes[2]; /* its allocated peak */
  char *pass, *rebuilt;
};

/* What a plan leaves free on a card: the driver chooses where segments lie, which moves what the allocator reserves by a page
 * or two, and a run that misses its limit by one byte is lost.  Measured against plans on an H200: up to 0.1 %. */
static uint64_t spare_bytes(uint64_t limit) {
  uint64_t spare = (limit >> 8) + ((uint64_t)20 << 20);
  return spare < limit ? spare : limit;
}

int tn_search_new(const tn_profile *profile, const tn_search_options *options, tn_search **out) {
  if (!options->batch) return TN_EINVAL;
  tn_search *s = tn__mem_zalloc(1, sizeof *s);
  if (!s) return TN_ENOMEM;
  s->profile = *profile;
  s->options = *options;
  s->limit_bytes = options->budget_bytes > profile->context_bytes ? options->budget_bytes - profile->context_bytes : 0;
  if (!tn__profile_is_host(profile)) s->limit_bytes -= spare_bytes(s->limit_bytes);
  *out = s;
  return TN_OK;
}

void tn_search_free(tn_search *search) {
  if (!search) return;
  tn_text_free(search->pass);
  tn_text_free(search->rebuilt);
  tn__mem_free(search);
}

static tn_candidate candidate_of(const tn_search *s, uint32_t micro_batch, uint32_t bf16) {
  tn_candidate c = {.micro_batch = micro_batch, .count = s->options.batch / micro_batch, .rest = s->options.batch % micro_batch};
  c.bf16 = bf16;
  return c;
}

/* The next smaller micro-batch worth a capture: the largest for the next number of passes, or further down at once when even the
 * smallest plan was far over the limit. */
static uint32_t next_micro_batch(const tn_search *s) {
  uint32_t batch = s->options.batch, micro = s->asked.micro_batch, passes = (batch + micro - 1) / micro;
  uint32_t wanted = passes < 4 ? passes + 1 : passes + passes / 2;
  if (s->ratio_needed > 1.5) {
    double jump = (double)passes * s->ratio_needed;
    uint32_t far = jump < (double)batch ? (uint32_t)jump : batch;
    if (far > wanted) wanted = far;
  }
  uint32_t next = (batch + wanted - 1) / (wanted ? wanted : 1);
  return next < micro ? next : micro - 1;
}

int tn_search_next(tn_search *s, tn_candidate *out) {
  int may_cut = (s->options.levers & TN_LEVER_MICRO_BATCH) != 0, bf16 = (s->options.levers & TN_LEVER_PRECISION) != 0;
  if (s->done) return 0;
  if (!s->started) {
    s->asked = candidate_of(s, s->options.batch, 0);
    s->started = 1;
  } else if (bf16 && !s->asked.bf16) {
    s->asked = candidate_of(s, s->options.batch, 1);
  } else {
    if (!may_cut || s->asked.micro_batch == 1 || s->not_paid >= NOT_PAID_MAX) {
      s->done = 1;
      return 0;
    }
    s->asked = candidate_of(s, next_micro_batch(s), s->asked.bf16);
  }
  s->is_open = 1;
  *out = s->asked;
  return 1;
}

static double step_seconds(const tn_candidate *c, const tn_plan_result *r, int rebuilds) {
  tn_span first = rebuilds ? r->first_pass : r->kept_first_pass, pass = rebuilds ? r->last_pass : r->kept_last_pass;
  tn_span step = tn__span_then(first, tn__span_repeat(pass, c->count - 1));
  if (c->rest) step = tn__span_then(step, tn__span_scaled(pass, (double)c->rest / c->micro_batch));
  return tn__span_then(step, r->optimizer).length_s;
}

static int plan_candidate(const tn_search *s, const tn_trace *trace, uint32_t expandable, tn_plan **out, tn_error *err) {
  tn_plan_options options = {.limit_bytes = s->limit_bytes, .expandable_segments = expandable,
                             .keep_all = !(s->options.levers & TN_LEVER_REBUILD)};
  return tn_plan_new(trace, &s->profile, &options, out, err);
}

/* Is the new result better: fitting before not, then faster, then smaller? */
static int is_better(const tn_search *s, const tn_plan_result *r, double step_s) {
  if (!s->has_best) return 1;
  if (r->fits != s->best.fits) return r->fits;
  if (r->fits) return step_s < s->best.step_s;
  return r->smallest_bytes < s->best.result.smallest_bytes;
}

static int take_best(tn_search *s, const tn_plan *plan, const tn_plan_result *r, double step_s, uint32_t expandable) {
  char *pass = NULL, *rebuilt = NULL;
  int rc = tn_plan_pass_json(plan, &pass);
  if (rc == TN_OK) rc = tn_plan_rebuilt_json(plan, &rebuilt);
  if (rc != TN_OK) {
    tn_text_free(pass);
    return rc;
  }
  tn_text_free(s->pass);
  tn_text_free(s->rebuilt);
  s->pass = pass;
  s->rebuilt = rebuilt;
  s->best = (tn_search_best){.candidate = s->asked, .result = *r, .step_s = step_s, .limit_bytes = s->limit_bytes,
                             .expandable_segments = expandable, .fits = r->fits};
  s->has_best = 1;
  return TN_OK;
}

static int is_baseline(const tn_search *s) { return s->asked.micro_batch == s->options.batch && !s->asked.bf16; }

int tn_search_offer(tn_search *s, const tn_trace *trace, tn_error *err) {
  uint32_t expandable = (s->options.levers & TN_LEVER_ALLOCATOR) && !tn__profile_is_host(&s->profile);
  tn_plan *plan = NULL;
  tn_plan_result r;
  if (!s->is_open) return tn__error_set(err, TN_EINVAL, "no candidate is awaited");
  TN_TRY(plan_candidate(s, trace, expandable, &plan, err));
  tn_plan_get_result(plan, &r);
  double step_s = step_seconds(&s->asked, &r, 1);
  s->is_open = 0;
  s->ratio_needed = s->limit_bytes ? (double)r.smallest_bytes / (double)s->limit_bytes : (double)s->options.batch;
  if (s->asked.micro_batch == s->options.batch) {
    s->whole_s[s->asked.bf16] = step_seconds(&s->asked, &r, 0);
    s->whole_bytes[s->asked.bf16] = r.kept_bytes;
  }
  int rc = TN_OK;
  int better = is_better(s, &r, step_s);
  s->not_paid = better || !(s->has_best && s->best.fits) ? 0 : s->not_paid + 1;
  if (better) rc = take_best(s, plan, &r, step_s, expandable);
  if (r.fits && !r.slots_rebuilt) s->not_paid = NOT_PAID_MAX; /* nothing is rebuilt: cutting further only costs */
  if (is_baseline(s) && (s->options.levers & TN_LEVER_PRECISION)) s->not_paid = 0;
  tn_plan_free(plan);
  return rc == TN_OK ? rc : tn__error_set(err, rc, NULL);
}

int tn_search_get_best(const tn_search *s, tn_search_best *out) {
  if (!s->has_best) return TN_ENOENT;
  *out = s->best;
  out->unconstrained_step_s = s->whole_s[0];
  out->unconstrained_allocated_bytes = s->whole_bytes[0];
  out->whole_step_s = s->whole_s[s->best.candidate.bf16];
  out->whole_allocated_bytes = s->whole_bytes[s->best.candidate.bf16];
  return TN_OK;
}

int tn_search_best_json(const tn_search *s, char **out_pass, char **out_rebuilt) {
  tn_text text;
  char *pass = NULL;
  if (!s->has_best) return TN_ENOENT;
  tn__text_init(&text);
  tn__text_add(&text, s->pass);
  TN_TRY(tn__text_take(&text, &pass));
  tn__text_add(&text, s->rebuilt);
  int rc = tn__text_take(&text, out_rebuilt);
  if (rc == TN_OK) *out_pass = pass;
  else tn_text_free(pass);
  tn__text_deinit(&text);
  return rc;
}

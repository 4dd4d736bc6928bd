/* tune.c -- tn_report_tune(): which settings to use, for people and for scripts.  Verdict first, then the line to paste. */
#include <stdio.h>

#include "report/replay.h"

enum { SHOWN = 6 };

static const char variable[] = "PYTORCH_CUDA_ALLOC_CONF";

static uint64_t reserved(const tn_tune_row *row) { return row->result.stats.reserved_bytes.peak; }
static int runs(const tn_tune_row *row) { return row->result.oom_entry == TN_NONE; }

/* Whether it goes through, and serves what was not served when recorded. */
static int serves_all(const tn_tune_row *row) { return runs(row) && row->result.ooms_served == row->result.ooms_recorded; }

static uint64_t driver_calls(const tn_tune_row *row) {
  return row->result.stats.num_device_alloc + row->result.stats.num_device_free;
}

/* ---- verdict ------------------------------------------------------------------------------------------------------------- */

static void with_limit(tn_text *out, const tn_replay_result *r) {
  if (!r->limit_bytes) return;
  tn__text_add(out, " with ");
  tn__text_size(out, r->limit_bytes);
}

static void verdict_nothing(tn_text *out, const tn_tune_row *best, size_t count) {
  const tn_replay_result *r = &best->result;
  if (r->limit_bytes && r->ideal_bytes > r->limit_bytes) {
    tn__text_add(out, "NO SETTING HELPS: the run uses ");
    tn__text_size(out, r->ideal_bytes);
    tn__text_add(out, " at once and may have ");
    tn__text_size(out, r->limit_bytes);
    tn__text_add(out, ".\n");
    return;
  }
  tn__text_printf(out, "NO SETTING FOUND: the run is out of memory under all %zu that were tried", count);
  with_limit(out, r);
  tn__text_add(out, ".\n");
}

static void verdict_keep(tn_text *out, const tn_tune_row *best, size_t count) {
  tn__text_add(out, "KEEP ");
  tn__replay_setting(out, best->setting);
  tn__text_printf(out, ": of %zu settings none does clearly better than the recorded ones, which reserve ", count);
  tn__text_size(out, reserved(best));
  tn__text_add(out, ".\n");
}

/* What the best setting is better at than the recorded ones. */
static void verdict_gain(tn_text *out, const tn_tune_row *best, const tn_tune_row *recorded) {
  const tn_replay_result *b = &best->result, *r = &recorded->result;
  if (!serves_all(recorded)) {
    tn__text_add(out, "the run does not run out of memory");
    with_limit(out, b);
  } else if (b->stalls < r->stalls) {
    tn__text_printf(out, "it has %llu stall%s", (unsigned long long)b->stalls, b->stalls == 1 ? "" : "s");
    with_limit(out, b);
    tn__text_printf(out, ", the recorded settings %llu", (unsigned long long)r->stalls);
  } else {
    tn__text_add(out, "it reserves ");
    tn__replay_share(out, reserved(recorded) - reserved(best), reserved(recorded));
    tn__text_add(out, " less than under the recorded settings");
  }
}

static void line_add(tn_text *out, const tn_tune_row *best) {
  tn__text_printf(out, "\n  export %s=%s\n", variable, best->setting);
}

static void verdict_add(tn_text *out, const tn_tune_row *best, const tn_tune_row *recorded, size_t count) {
  if (!serves_all(best)) {
    verdict_nothing(out, best, count);
  } else if (best->is_recorded) {
    verdict_keep(out, best, count);
  } else {
    tn__text_add(out, "USE ");
    tn__replay_setting(out, best->setting);
    tn__text_add(out, ": ");
    verdict_gain(out, best, recorded);
    tn__text_add(out, ".\n");
    line_add(out, best);
  }
}

/* ---- table --------------------------------------------------------------------------------------------------------------- */

static int looks_same(const tn_tune_row *a, const tn_tune_row *b) {
  return reserved(a) == reserved(b) && a->result.stalls == b->result.stalls && driver_calls(a) == driver_calls(b) &&
         a->result.oom_entry == b->result.oom_entry;
}

/* Rows that differ in what they come to; of equals the first. */
static size_t rows_choose(const tn_tune_row *rows, size_t count, const tn_tune_row **out) {
  size_t chosen = 0;
  for (size_t i = 0; i < count && chosen < SHOWN; i++) {
    size_t k = 0;
    while (k < chosen && !looks_same(out[k], &rows[i])) k++;
    if (k == chosen) out[chosen++] = &rows[i];
  }
  return chosen;
}

static void row_add(tn_text *out, const tn_tune_row *row) {
  char size[32];
  const tn_replay_result *r = &row->result;
  tn__text_printf(out, "%12s  ", tn_size_format(reserved(row), size, sizeof size));
  if (serves_all(row) && r->ideal_bytes)
    tn__text_printf(out, "%9.1f %%", 100.0 * ((double)reserved(row) / (double)r->ideal_bytes - 1));
  else
    tn__text_printf(out, "%11s", "-");
  tn__text_printf(out, "  %6llu  %12llu  ", (unsigned long long)r->stalls, (unsigned long long)driver_calls(row));
  tn__replay_setting(out, row->setting);
  if (row->is_recorded) tn__text_add(out, " (recorded)");
  if (!runs(row))
    tn__text_printf(out, " (out of memory at entry %u)", r->oom_entry);
  else if (!serves_all(row))
    tn__text_add(out, " (out of memory, as recorded)");
  tn__text_add(out, "\n");
}

static void table_add(tn_text *out, const tn_tune_row *rows, size_t count, const tn_tune_row *recorded) {
  const tn_tune_row *chosen[SHOWN];
  size_t shown = rows_choose(rows, count, chosen);
  int has_recorded = 0, has_stalls = recorded->result.stalls > 0;
  tn__text_printf(out, "\n%12s  %11s  %6s  %12s  %s\n", "reserved", "over ideal", "stalls", "driver calls", "setting");
  for (size_t i = 0; i < shown; i++) {
    row_add(out, chosen[i]);
    has_recorded |= chosen[i] == recorded;
    has_stalls |= chosen[i]->result.stalls > 0;
  }
  if (!has_recorded) row_add(out, recorded);
  char size[32];
  tn__text_printf(out, "%12s  the ideal: most that is in use at once\n",
                  tn_size_format(recorded->result.ideal_bytes, size, sizeof size));
  if (has_stalls) tn__replay_remark(out, "A stall is an allocation that waits for the device while memory is given back.");
}

/* ---- remarks ------------------------------------------------------------------------------------------------------------- */

static void trust_add(tn_text *out, const tn_replay_result *exact) {
  char text[480];
  if (exact->exactness == TN_EXACT_YES)
    (void)snprintf(text, sizeof text, "The model does all %u recorded entries of device %u exactly as the allocator did; under other "
                   "settings it assumes that the program does the same.", exact->entries, exact->device);
  else
    (void)snprintf(text, sizeof text, "The model differs from the recorded run at entry %u of %u (%s), so these are estimates.",
                   exact->difference_entry == TN_NONE ? exact->entries : exact->difference_entry, exact->entries, exact->difference);
  tn__replay_remark(out, text);
}

static void remarks_add(tn_text *out, const tn_tune *tune, const tn_tune_row *best) {
  trust_add(out, tn_tune_exact(tune));
  tn__replay_caveats(out, &best->result);
  if (serves_all(best) && best->result.conf.garbage_collection_threshold > 0)
    tn__replay_remark(out, "garbage_collection_threshold works against a limit: call torch.cuda.set_per_process_memory_fraction() too.");
}

static void report_text(tn_text *out, const tn_tune *tune) {
  size_t count = 0;
  const tn_tune_row *rows = tn_tune_rows(tune, &count), *recorded = tn_tune_recorded(tune);
  verdict_add(out, &rows[0], recorded, count);
  table_add(out, rows, count, recorded);
  remarks_add(out, tune, &rows[0]);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

static void json_row(tn_text *out, const tn_tune_row *row) {
  const tn_replay_result *r = &row->result;
  tn__text_add(out, "  {");
  tn__json_string(out, "setting", row->setting);
  tn__text_add(out, ", ");
  tn__json_number(out, "reserved_bytes", reserved(row));
  tn__text_add(out, ", ");
  tn__json_number(out, "allocated_bytes", r->stats.allocated_bytes.peak);
  tn__text_add(out, ", ");
  tn__json_number(out, "stalls", r->stalls);
  tn__text_add(out, ", ");
  tn__json_number(out, "retries", r->stats.num_alloc_retries);
  tn__text_add(out, ", ");
  tn__json_number(out, "driver_calls", driver_calls(row));
  tn__text_add(out, ", ");
  tn__json_number(out, "ooms_served", r->ooms_served);
  tn__text_add(out, ", ");
  if (runs(row))
    tn__text_add(out, "\"out_of_memory_entry\": null");
  else
    tn__json_number(out, "out_of_memory_entry", r->oom_entry);
  tn__text_add(out, ", ");
  tn__json_bool(out, "recorded", (int)row->is_recorded);
  tn__text_add(out, "}");
}

static const char *verdict_name(const tn_tune_row *best) {
  if (!serves_all(best)) return "no setting found";
  return best->is_recorded ? "keep" : "use";
}

static void report_json(tn_text *out, const tn_tune *tune) {
  size_t count = 0;
  const tn_tune_row *rows = tn_tune_rows(tune, &count);
  tn_replay_result head = *tn_tune_exact(tune);
  head.limit_bytes = rows[0].result.limit_bytes;
  head.limit_inferred = rows[0].result.limit_inferred;
  tn__text_add(out, "{\"tonnage_tune\": 1, ");
  tn__json_string(out, "verdict", verdict_name(&rows[0]));
  tn__text_add(out, ", ");
  tn__json_string(out, variable, rows[0].setting);
  tn__text_add(out, ",\n ");
  tn__json_replay_head(out, &head);
  tn__text_add(out, ",\n \"settings\": [\n");
  for (size_t i = 0; i < count; i++) {
    if (i) tn__text_add(out, ",\n");
    json_row(out, &rows[i]);
  }
  tn__text_add(out, "]}\n");
}

int tn_report_tune(const tn_tune *tune, int json, char **out) {
  if (!tune || !out) return TN_EINVAL;
  tn_text text;
  tn__text_init(&text);
  if (json)
    report_json(&text, tune);
  else
    report_text(&text, tune);
  int rc = tn__text_take(&text, out);
  tn__text_deinit(&text);
  return rc;
}

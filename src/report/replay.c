/* replay.c -- tn_report_replay(): one replay, for people and for scripts.  Verdict first. */
#include "report/replay.h"

#include <stdio.h>

/* ---- words --------------------------------------------------------------------------------------------------------------- */

void tn__replay_setting(tn_text *out, const char *setting) {
  tn__text_add(out, *setting ? setting : "PyTorch's own settings");
}

void tn__replay_share(tn_text *out, uint64_t bytes, uint64_t whole) {
  tn__text_size(out, bytes);
  tn__text_printf(out, " (%.1f %%)", whole ? 100.0 * (double)bytes / (double)whole : 0);
}

void tn__replay_remark(tn_text *out, const char *text) {
  tn__text_add(out, "\n");
  tn__text_wrap(out, text, 0, TN__REPLAY_WIDTH);
  tn__text_add(out, "\n");
}

static void remark_limit(tn_text *out, const tn_replay_result *result) {
  char size[32], text[200];
  (void)snprintf(text, sizeof text, "%s is what the process could have, by what the recorded run was refused; --limit SIZE says otherwise.",
                 tn_size_format(result->limit_bytes, size, sizeof size));
  tn__replay_remark(out, text);
}

void tn__replay_caveats(tn_text *out, const tn_replay_result *result) {
  if (result->limit_inferred) remark_limit(out, result);
  if (!result->is_complete)
    tn__replay_remark(out, result->exactness == TN_EXACT_YES
                               ? "The history starts late: peaks count from its first entry on."
                               : "The history starts late: what lived then is allocated anew, and peaks count from there. Record from "
                                 "the first allocation on for figures of the whole run.");
  if (result->conf.garbage_collection_threshold > 0 && result->limit_bytes == 0)
    tn__replay_remark(out, "garbage_collection_threshold works against a limit, of which nothing is known: --limit SIZE.");
}

/* ---- text ---------------------------------------------------------------------------------------------------------------- */

static void verdict_exact(tn_text *out, const tn_replay_result *r) {
  tn__text_printf(out, "EXACT: the model does all %u entries of device %u as recorded, to the last block.\n", r->entries, r->device);
}

static void verdict_not_exact(tn_text *out, const tn_replay_result *r) {
  if (r->difference_entry == TN_NONE)
    tn__text_add(out, "NOT EXACT: all entries are as recorded, the end is not.\n");
  else
    tn__text_printf(out, "NOT EXACT: from entry %u of %u on the model differs.\n", r->difference_entry, r->entries);
  tn__text_add(out, "  ");
  tn__text_wrap(out, r->difference, 2, TN__REPLAY_WIDTH);
  tn__text_add(out, "\nThe figures below are a prediction.\n");
}

static void verdict_out_of_memory(tn_text *out, const tn_replay_result *r, const char *setting) {
  tn__text_add(out, "OUT OF MEMORY under ");
  tn__replay_setting(out, setting);
  if (r->limit_bytes) {
    tn__text_add(out, ", with ");
    tn__text_size(out, r->limit_bytes);
  }
  if (r->oom_bytes == 0) {
    tn__text_add(out, ": what lives when the history starts does not fit.\n");
    return;
  }
  tn__text_printf(out, ": at entry %u of %u there is no room for ", r->oom_entry, r->entries);
  tn__text_size(out, r->oom_bytes);
  tn__text_add(out, ".\n");
}

static void compare_recorded(tn_text *out, const tn_replay_result *r) {
  uint64_t now = r->stats.reserved_bytes.peak, then = r->recorded_bytes;
  if (now == then) {
    tn__text_add(out, ", as recorded.\n");
    return;
  }
  tn__text_add(out, ", ");
  tn__replay_share(out, now < then ? then - now : now - then, then);
  tn__text_add(out, now < then ? " less than recorded.\n" : " more than recorded.\n");
}

static void verdict_predicted(tn_text *out, const tn_replay_result *r, const char *setting) {
  if (r->limit_bytes) {
    tn__text_add(out, "FITS ");
    tn__text_size(out, r->limit_bytes);
    tn__text_add(out, " under ");
  } else {
    tn__text_add(out, "PREDICTED under ");
  }
  tn__replay_setting(out, setting);
  tn__text_add(out, ": reserves ");
  tn__text_size(out, r->stats.reserved_bytes.peak);
  tn__text_add(out, " at its peak");
  compare_recorded(out, r);
}

static void verdict_add(tn_text *out, const tn_replay_result *r, const char *setting) {
  if (r->exactness == TN_EXACT_YES) {
    verdict_exact(out, r);
    return;
  }
  if (r->exactness == TN_EXACT_NO) verdict_not_exact(out, r);
  if (r->oom_entry != TN_NONE)
    verdict_out_of_memory(out, r, setting);
  else
    verdict_predicted(out, r, setting);
}

static void size_row(tn_text *out, const char *name, uint64_t bytes, const char *note) {
  char buf[32];
  tn__text_printf(out, "  %-10s %12s  %s\n", name, tn_size_format(bytes, buf, sizeof buf), note);
}

static void peaks_add(tn_text *out, const tn_replay_result *r) {
  const tn_caching_stats *s = &r->stats;
  uint64_t reserved = s->reserved_bytes.peak, active = s->active_bytes.peak;
  char buf[32];
  tn__text_add(out, "\nPeaks\n");
  size_row(out, "requested", s->requested_bytes.peak, "what was asked for");
  size_row(out, "allocated", s->allocated_bytes.peak, "rounded up, as the allocator does");
  size_row(out, "active", active, "and what is freed but still used by another stream");
  tn__text_printf(out, "  %-10s %12s  segments; ", "reserved", tn_size_format(reserved, buf, sizeof buf));
  tn__replay_share(out, reserved > active ? reserved - active : 0, reserved);
  tn__text_add(out, " more than active\n");
  tn__text_add(out, "At the end ");
  tn__text_size(out, s->allocated_bytes.current);
  tn__text_add(out, " are allocated and ");
  tn__text_size(out, s->reserved_bytes.current);
  tn__text_add(out, " reserved.\n");
}

static void count_row(tn_text *out, const char *name, uint64_t count) {
  tn__text_printf(out, "  %-14s %8llu", name, (unsigned long long)count);
}

static void counts_add(tn_text *out, const tn_replay_result *r) {
  const tn_caching_stats *s = &r->stats;
  tn__text_add(out, "\nCounts\n");
  count_row(out, "allocations", r->allocs);
  tn__text_add(out, "  of the whole history\n");
  count_row(out, "driver calls", s->num_device_alloc + s->num_device_free);
  tn__text_printf(out, "  %llu to get memory, %llu to give it back\n", (unsigned long long)s->num_device_alloc,
                  (unsigned long long)s->num_device_free);
  count_row(out, "stalls", r->stalls);
  tn__text_printf(out, "  allocations that waited while memory was given back; %llu gave back all (num_alloc_retries)\n",
                  (unsigned long long)s->num_alloc_retries);
  count_row(out, "out of memory", s->num_ooms);
  if (r->ooms_recorded)
    tn__text_printf(out, "  %u when recorded, %u of them served here\n", r->ooms_recorded, r->ooms_served);
  else
    tn__text_add(out, "  allocations that failed\n");
}

static void report_text(tn_text *out, const tn_replay_result *r, const char *setting) {
  verdict_add(out, r, setting);
  peaks_add(out, r);
  counts_add(out, r);
  tn__replay_caveats(out, r);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

void tn__json_bool(tn_text *out, const char *key, int value) { tn__text_printf(out, "\"%s\": %s", key, value ? "true" : "false"); }

void tn__json_limit(tn_text *out, const char *key, uint64_t value) {
  if (value)
    tn__json_number(out, key, value);
  else
    tn__text_printf(out, "\"%s\": null", key);
}

static void json_difference(tn_text *out, const tn_replay_result *r) {
  if (r->exactness != TN_EXACT_NO) {
    tn__text_add(out, "\"difference\": null");
    return;
  }
  tn__text_add(out, "\"difference\": {");
  if (r->difference_entry == TN_NONE)
    tn__text_add(out, "\"entry\": null");
  else
    tn__json_number(out, "entry", r->difference_entry);
  tn__text_add(out, ", ");
  tn__json_string(out, "text", r->difference);
  tn__text_add(out, "}");
}

void tn__json_replay_head(tn_text *out, const tn_replay_result *r) {
  static const char *const exactness[] = {"false", "true", "null"};
  tn__json_number(out, "device", r->device);
  tn__text_printf(out, ", \"exact\": %s, ", exactness[r->exactness]);
  json_difference(out, r);
  tn__text_add(out, ",\n ");
  tn__json_bool(out, "complete", (int)r->is_complete);
  tn__text_add(out, ", ");
  tn__json_number(out, "entries", r->entries);
  tn__text_add(out, ", ");
  tn__json_number(out, "allocations", r->allocs);
  tn__text_add(out, ",\n ");
  tn__json_limit(out, "limit_bytes", r->limit_bytes);
  tn__text_add(out, ", ");
  tn__json_bool(out, "limit_inferred", (int)r->limit_inferred);
  tn__text_add(out, ", ");
  tn__json_number(out, "ideal_bytes", r->ideal_bytes);
  tn__text_add(out, ", ");
  tn__json_number(out, "recorded_reserved_bytes", r->recorded_bytes);
  tn__text_add(out, ", ");
  tn__json_number(out, "recorded_ooms", r->ooms_recorded);
}

static void json_stat(tn_text *out, const char *key, const tn_stat *stat) {
  tn__text_printf(out, "  \"%s\": {", key);
  tn__json_number(out, "current", stat->current);
  tn__text_add(out, ", ");
  tn__json_number(out, "peak", stat->peak);
  tn__text_add(out, ", ");
  tn__json_number(out, "allocated", stat->allocated);
  tn__text_add(out, ", ");
  tn__json_number(out, "freed", stat->freed);
  tn__text_add(out, "},\n");
}

static void json_stats(tn_text *out, const tn_caching_stats *s) {
  tn__text_add(out, " \"stats\": {\n");
#define STAT(name) json_stat(out, #name, &s->name)
  STAT(allocation), STAT(segment), STAT(active), STAT(inactive_split), STAT(allocated_bytes), STAT(reserved_bytes);
  STAT(active_bytes), STAT(inactive_split_bytes), STAT(requested_bytes), STAT(oversize_allocations), STAT(oversize_segments);
#undef STAT
  tn__text_add(out, "  ");
  tn__json_number(out, "num_alloc_retries", s->num_alloc_retries);
  tn__text_add(out, ", ");
  tn__json_number(out, "num_ooms", s->num_ooms);
  tn__text_add(out, ", ");
  tn__json_number(out, "num_device_alloc", s->num_device_alloc);
  tn__text_add(out, ", ");
  tn__json_number(out, "num_device_free", s->num_device_free);
  tn__text_add(out, "}}\n");
}

static void json_oom(tn_text *out, const tn_replay_result *r) {
  if (r->oom_entry == TN_NONE) {
    tn__text_add(out, "\"out_of_memory\": null");
    return;
  }
  tn__text_add(out, "\"out_of_memory\": {");
  tn__json_number(out, "entry", r->oom_entry);
  tn__text_add(out, ", ");
  tn__json_number(out, "bytes", r->oom_bytes);
  tn__text_add(out, "}");
}

static void report_json(tn_text *out, const tn_replay_result *r, const char *setting) {
  tn__text_add(out, "{\"tonnage_replay\": 1, ");
  tn__json_string(out, "setting", setting);
  tn__text_add(out, ", ");
  tn__json_replay_head(out, r);
  tn__text_add(out, ",\n ");
  json_oom(out, r);
  tn__text_add(out, ", ");
  tn__json_number(out, "stalls", r->stalls);
  tn__text_add(out, ", ");
  tn__json_number(out, "ooms_served", r->ooms_served);
  tn__text_add(out, ",\n");
  json_stats(out, &r->stats);
}

/* ---- the report ---------------------------------------------------------------------------------------------------------- */

int tn_report_replay(const tn_replay_result *result, int json, char **out) {
  char *setting = NULL;
  if (!result || !out) return TN_EINVAL;
  TN_TRY(tn_conf_format(&result->conf, &setting));
  tn_text text;
  tn__text_init(&text);
  if (json)
    report_json(&text, result, setting);
  else
    report_text(&text, result, setting);
  int rc = tn__text_take(&text, out);
  tn__text_deinit(&text);
  tn_text_free(setting);
  return rc;
}

/* oom_text.c -- the report of an out-of-memory message for people.  The verdict first, in three lines.  At most 100 columns. */
#include <stdio.h>
#include <string.h>

#include "report/oom.h"

enum { BAR = 20, ROWS = 12 };

static void wrapped_add(tn_text *out, const tn_text *line, size_t indent) {
  if (line->failed) out->failed = line->failed;
  tn__text_wrap(out, tn__text_view(line), indent, TN__OOM_WIDTH);
  tn__text_add(out, "\n");
}

static void verdict_add(const tn__oom_report *report, tn_text *out) {
  static void (*const lines[])(tn_text *, const tn__oom_verdict *) = {tn__oom_words_asked, tn__oom_words_held, tn__oom_words_do};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    tn_text line;
    tn__text_init(&line);
    lines[i](&line, &report->verdict);
    if (i) tn__text_add(out, "  ");
    wrapped_add(out, &line, 4);
    tn__text_deinit(&line);
  }
}

static void size_add(tn_text *out, int64_t bytes, int width) {
  char buf[32];
  tn__text_printf(out, "%*s", width, tn_size_format(bytes > 0 ? (uint64_t)bytes : 0, buf, sizeof buf));
}

/* ---- where it was -------------------------------------------------------------------------------------------------------- */

static void part_add(tn_text *out, const tn_oom *oom, const tn__oom_account *a, int part) {
  const char *note = tn__oom_words_part_note(oom, part);
  int64_t bytes = a->parts[part].mid;
  tn__text_printf(out, "  %-17s", tn__oom_words_part(oom, part));
  size_add(out, bytes, 12);
  if (a->has_capacity) {
    double share = a->capacity.mid > 0 ? 100.0 * (double)bytes / (double)a->capacity.mid : 0;
    size_t bar = share > 0 ? (size_t)(share / 100 * BAR + 0.5) : 0;
    tn__text_printf(out, "   %5.1f %%  ", share);
    tn__text_fill(out, '#', bar < BAR ? bar : BAR);
    if (*note) tn__text_tab(out, 45 + BAR);
  } else {
    tn__text_add(out, "  ");
  }
  tn__text_add(out, note);
  while (out->len && out->data[out->len - 1] == ' ') out->data[--out->len] = '\0';
  tn__text_add(out, "\n");
}

static void account_add(const tn__oom_report *report, tn_text *out) {
  const tn__oom_account *a = &report->verdict.account;
  if (!(a->known & ~(1u << TN__OOM_PART_FREE))) return;
  tn__text_add(out, "\nWhere ");
  if (a->has_capacity) {
    tn__text_add(out, report->verdict.oom->form == TN_OOM_FORM_MPS ? "the allowed " : "the ");
    tn__text_size(out, a->capacity.mid > 0 ? (uint64_t)a->capacity.mid : 0);
  } else {
    tn__text_add(out, "the memory");
  }
  tn__text_add(out, " of ");
  tn__oom_words_device(out, report->verdict.oom);
  tn__text_add(out, a->has_capacity ? " was" : " was, as far as it is told");
  tn__text_add(out, "\n");
  for (int i = 0; i < TN__OOM_PART_COUNT; i++)
    if (a->known >> i & 1 && (a->parts[i].mid || i == TN__OOM_PART_FREE || i == TN__OOM_PART_LIVE))
      part_add(out, report->verdict.oom, a, i);
}

static void processes_add(const tn__oom_report *report, tn_text *out) {
  const tn_oom *oom = report->verdict.oom;
  uint32_t kept = oom->process_count < TN_OOM_PROCESSES_MAX ? oom->process_count : TN_OOM_PROCESSES_MAX, shown = 0;
  for (uint32_t i = 0; i < kept; i++) {
    const tn_oom_process *process = &oom->processes[i];
    if (process->is_self || !process->known) continue;
    if (!shown) tn__text_add(out, "\nOther processes on it\n");
    if (shown++ == ROWS) break;
    tn__text_printf(out, "  %-16llu", (unsigned long long)process->pid);
    size_add(out, (int64_t)process->used.bytes, 12);
    tn__text_add(out, "\n");
  }
  if (shown > ROWS) tn__text_printf(out, "  ... of %u listed\n", (unsigned)oom->process_count);
}

/* ---- what would have helped ---------------------------------------------------------------------------------------------- */

static void gives_add(tn_text *out, const tn__oom_action *action) {
  static const char *const before[] = {"", "up to ", "part of "};
  char buf[32], cell[48];
  if (!action->has_gives) return;
  tn_size_format(action->gives.mid > 0 ? (uint64_t)action->gives.mid : 0, buf, sizeof buf);
  (void)snprintf(cell, sizeof cell, "%s%s", before[action->is_upto < 2 ? action->is_upto : 2], buf);
  tn__text_printf(out, "%19s", cell);
}

/* "enough", or how much of it the request needs */
static void enough_add(tn_text *out, const tn__oom_account *a, const tn__oom_action *action) {
  if (action->enough == TN__OOM_ENOUGH_YES) tn__text_add(out, "enough");
  if (action->enough != TN__OOM_ENOUGH_MAYBE) return;
  if (action->has_gives && a->short_by.mid > 0 && action->gives.mid > 0)
    tn__text_printf(out, "%.1f %% needed", 100.0 * (double)a->short_by.mid / (double)action->gives.mid);
  else
    tn__text_add(out, "perhaps");
}

static void help_row_add(tn_text *out, const tn__oom_report *report, const tn__oom_action *action) {
  tn__text_add(out, "  ");
  tn__oom_words_action(out, &report->verdict, action);
  tn__text_tab(out, 36);
  gives_add(out, action);
  tn__text_tab(out, 57);
  enough_add(out, &report->verdict.account, action);
  tn__text_tab(out, 72);
  tn__text_add(out, tn__oom_words_exactness(action->id));
  tn__text_add(out, "\n");
  tn_text line;
  tn__text_init(&line);
  tn__oom_words_command(&line, &report->verdict, action);
  if (line.len || line.failed) {
    tn__text_add(out, "      ");
    wrapped_add(out, &line, 6);
  }
  tn__text_deinit(&line);
}

static void help_add(const tn__oom_report *report, tn_text *out) {
  const tn__oom_verdict *v = &report->verdict;
  int shown = 0;
  for (size_t i = 0; i < v->action_count; i++) {
    if (v->actions[i].enough == TN__OOM_ENOUGH_NO) continue;
    if (!shown++) tn__text_add(out, "\nWhat would help                         gives here    this request   results\n");
    help_row_add(out, report, &v->actions[i]);
  }
}

static void no_help_add(const tn__oom_report *report, tn_text *out) {
  const tn__oom_verdict *v = &report->verdict;
  int shown = 0;
  for (size_t i = 0; i < v->action_count; i++) {
    if (v->actions[i].enough != TN__OOM_ENOUGH_NO) continue;
    if (!shown++) tn__text_add(out, "\nWhat would not, alone\n");
    tn_text line;
    tn__text_init(&line);
    tn__oom_words_action(&line, v, &v->actions[i]);
    tn__text_add(&line, ": ");
    tn__oom_words_why_not(&line, v, &v->actions[i]);
    tn__text_add(&line, ".");
    tn__text_add(out, "  ");
    wrapped_add(out, &line, 4);
    tn__text_deinit(&line);
  }
}

/* ---- the rest ------------------------------------------------------------------------------------------------------------ */

static void remarks_add(const tn__oom_report *report, tn_text *out) {
  int shown = 0;
  for (int i = 0;; i++) {
    tn_text line;
    tn__text_init(&line);
    int more = tn__oom_words_remark(&line, report, i);
    if (line.len || line.failed) {
      if (!shown++) tn__text_add(out, "\nRemarks\n");
      tn__text_add(out, "  ");
      wrapped_add(out, &line, 4);
    }
    tn__text_deinit(&line);
    if (!more) return;
  }
}

static void cell_add(tn_text *out, const tn_oom *oom, enum tn_oom_reading reading) {
  if (tn__oom_knows(oom, reading))
    size_add(out, (int64_t)oom->sizes[reading].bytes, 12);
  else
    tn__text_printf(out, "%12s", "-");
}

static void message_row_add(tn_text *out, const tn_oom *oom, int is_chosen) {
  char rank[16] = "-", device[16] = "-";
  if (oom->rank >= 0) (void)snprintf(rank, sizeof rank, "%d", (int)oom->rank);
  if (oom->device >= 0) (void)snprintf(device, sizeof device, "%d", (int)oom->device);
  tn__text_printf(out, "%s%8llu %5u %5s %6s", is_chosen ? "> " : "  ", (unsigned long long)oom->line, (unsigned)oom->repeats, rank,
                  device);
  cell_add(out, oom, TN_OOM_ASKED);
  cell_add(out, oom, TN_OOM_FREE);
  cell_add(out, oom, TN_OOM_ALLOCATED);
  tn__text_printf(out, "  %s\n", oom->form == TN_OOM_FORM_BARE ? "-" : tn_oom_cause_name(tn_oom_cause(oom)));
}

/* All messages of the log, or those around the chosen one. */
static void messages_add(const tn__oom_report *report, tn_text *out) {
  if (report->count < 2) return;
  tn__text_printf(
      out,
      "\nThe log's %zu messages; > is the one above\n      line times  rank device       asked        free        live  cause\n",
      report->count);
  size_t from = report->count > ROWS && report->chosen > ROWS / 2 ? report->chosen - ROWS / 2 : 0;
  if (from + ROWS > report->count) from = report->count > ROWS ? report->count - ROWS : 0;
  size_t end = from + ROWS < report->count ? from + ROWS : report->count;
  for (size_t i = from; i < end; i++) message_row_add(out, &report->messages[i], i == report->chosen);
  if (end - from < report->count) tn__text_printf(out, "  ... %zu more\n", report->count - (end - from));
}

void tn__oom_text(const tn__oom_report *report, tn_text *out) {
  verdict_add(report, out);
  account_add(report, out);
  processes_add(report, out);
  help_add(report, out);
  no_help_add(report, out);
  remarks_add(report, out);
  messages_add(report, out);
}

/* explain_text.c -- a snapshot explained to people.  Three lines first: what is held, why it is so much, what to do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "explain/stacks.h"
#include "report/columns.h"
#include "report/explain.h"

enum { WIDTH_STANDARD = 100, WIDTH_MIN = 60, WIDTH_MAX = 160, BAR = 24, ROWS = 10 };

typedef struct page {
  const tn_explain *explain;
  const tn__analysis *a; /* the device that is written about */
  tn_text *out;
  size_t width;
} page;

static size_t width_of(const tn_explain *explain) {
  size_t width = explain->options.width ? explain->options.width : WIDTH_STANDARD;
  return width < WIDTH_MIN ? WIDTH_MIN : width > WIDTH_MAX ? WIDTH_MAX : width;
}

static void wrapped_add(const page *p, const char *text, size_t indent) { tn__text_wrap(p->out, text, indent, p->width); }

/* A line that was put together, wrapped and ended; frees it. */
static void line_add_wrapped(const page *p, tn_text *words, size_t indent) {
  if (words->failed) p->out->failed = words->failed;
  wrapped_add(p, tn__text_view(words), indent);
  tn__text_add(p->out, "\n");
  tn__text_deinit(words);
}

static void title_add(const page *p, const char *title) {
  const tn__chronicle *history = &p->a->history;
  tn_text words;
  tn__text_init(&words);
  tn__column_name(&words, title, p->width / 2);
  tn__text_printf(&words, "%s%s %u", *title ? ", " : "", history->device->flags & TN_DEVICE_HOST ? "host memory of device" : "device",
                  history->device->index);
  if (history->entry_count) {
    uint64_t from = history->entries[0].time_us, to = history->entries[history->entry_count - 1].time_us;
    tn__text_printf(&words, ", %u entries", history->entry_count);
    if (to > from) tn__text_printf(&words, " in %.3g s", (double)(to - from) / 1e6);
  } else {
    tn__text_add(&words, ", no history");
  }
  line_add_wrapped(p, &words, 2);
  tn__text_add(p->out, "\n");
}

static void verdict_add(const page *p) {
  static const char *const heads[] = {"Held  ", "Why   ", "Do    "};
  for (int line = 0; line < 3; line++) {
    tn__text_add(p->out, heads[line]);
    wrapped_add(p, tn__explain_string(p->a, p->a->verdict[line]), 6);
    tn__text_add(p->out, "\n");
  }
}

/* ---- where reserved memory is -------------------------------------------------------------------------------------------- */

static void part_row(const page *p, const char *name, uint64_t peak, uint64_t end, const char *note) {
  tn__text_printf(p->out, "  %-14s", name);
  if (p->a->history.entry_count) tn__column_size(p->out, peak, 13);
  tn__column_size(p->out, end, 13);
  if (*note) tn__text_add(p->out, "  ");
  wrapped_add(p, note, p->a->history.entry_count ? 44 : 31);
  tn__text_add(p->out, "\n");
}

static void accounting_add(const page *p) {
  const tn__accounting *peak = &p->a->account_peak, *end = &p->a->account_end;
  tn__text_add(p->out, p->a->history.entry_count ? "\nReserved memory    at its peak   at the end\n" : "\nReserved memory    at the end\n");
  for (int part = 0; part < TN__PART_COUNT; part++)
    if (peak->part[part] || end->part[part]) part_row(p, tn__part_name(part), peak->part[part], end->part[part], tn__part_note(part));
  part_row(p, "in all", peak->level.reserved_bytes, end->level.reserved_bytes, "");
}

/* ---- what is allocated --------------------------------------------------------------------------------------------------- */

static const tn__composition *shown_composition(const page *p) { return p->a->history.entry_count ? &p->a->peak : &p->a->end; }

static enum tn_phase peak_phase(const page *p) {
  const tn__run *runs = p->a->phases.runs.data;
  enum tn_phase phase = TN_PHASE_OTHER;
  for (size_t i = 0; i < p->a->phases.runs.count && runs[i].begin < p->a->peak.moment; i++) phase = (enum tn_phase)runs[i].phase;
  return phase;
}

static void composition_title(const page *p, const tn__composition *at) {
  tn_text words;
  tn__text_init(&words);
  tn__text_printf(&words, "Allocated at the %s: ", p->a->history.entry_count ? "peak" : "end");
  tn__text_size(&words, at->level.allocated_bytes);
  if (p->a->history.entry_count && at->moment) {
    tn__text_printf(&words, ", after entry %u", at->moment - 1);
    if (peak_phase(p) != TN_PHASE_OTHER) tn__text_printf(&words, ", in %s", tn_phase_name((int)peak_phase(p)));
  }
  if (p->a->phases.has_stacks) tn__text_add(&words, " (categories are inferred)");
  tn__text_add(p->out, "\n");
  line_add_wrapped(p, &words, 2);
}

static void category_row(const page *p, const tn__composition *at, int category) {
  uint64_t bytes = at->by_category[category];
  double percent = tn__column_share(bytes, at->level.allocated_bytes);
  tn__text_printf(p->out, "  %-14s", tn_category_name(category));
  tn__column_size(p->out, bytes, 13);
  tn__text_printf(p->out, "   %5.1f %%  ", percent);
  tn__text_fill(p->out, '#', (size_t)(percent / 100 * BAR + 0.5));
  tn__text_add(p->out, "\n");
}

static void categories_add(const page *p, const tn__composition *at) {
  int shown[TN_CATEGORY_COUNT] = {0};
  for (;;) {
    int largest = -1;
    for (int i = 0; i < TN_CATEGORY_COUNT; i++)
      if (!shown[i] && at->by_category[i] && (largest < 0 || at->by_category[i] > at->by_category[largest])) largest = i;
    if (largest < 0) break;
    shown[largest] = 1;
    category_row(p, at, largest);
  }
}

/* ---- who allocated it ---------------------------------------------------------------------------------------------------- */

/* Rows that read the same are one: stacks may differ in frames that are not shown. */
typedef struct line {
  char *text; /* owned */
  uint64_t bytes;
  uint32_t blocks, stack;
  uint8_t category;
} line;

typedef struct lines {
  line *rows;
  size_t count;
  int failed;
} lines;

static void line_add(lines *all, const page *p, const tn__stack_row *row) {
  tn_text text;
  tn__text_init(&text);
  tn__explain_place(p->a, row->stack, &text);
  int merge = !p->explain->options.stack_depth;
  for (size_t i = 0; i < all->count && merge && !text.failed; i++) {
    line *known = &all->rows[i];
    if (known->category != row->category || strcmp(known->text, tn__text_view(&text)) != 0) continue;
    known->bytes += row->bytes;
    known->blocks += row->blocks;
    tn__text_deinit(&text);
    return;
  }
  line added = {.bytes = row->bytes, .blocks = row->blocks, .stack = row->stack, .category = row->category};
  if (tn__text_take(&text, &added.text))
    all->failed = TN_ENOMEM;
  else
    all->rows[all->count++] = added;
  tn__text_deinit(&text);
}

static int line_compare(const void *a, const void *b) {
  const line *left = a, *right = b;
  if (left->bytes != right->bytes) return left->bytes < right->bytes ? 1 : -1;
  int order = strcmp(left->text, right->text);
  return order ? order : (int)left->stack - (int)right->stack;
}

static void frames_add(const page *p, uint32_t stack) {
  enum { FRAMES_AT = 33 };
  const tn_trace *trace = p->a->history.trace;
  size_t count = 0;
  const tn_stack *stacks = tn_trace_table(trace, TN_TABLE_STACK, &count);
  const uint32_t *refs = tn_trace_table(trace, TN_TABLE_STACK_FRAME, NULL);
  const tn_frame *frames = tn_trace_table(trace, TN_TABLE_FRAME, NULL);
  if (stack >= count) return;
  for (uint32_t k = 0; k < stacks[stack].frames_count && k < p->explain->options.stack_depth; k++) {
    const tn_frame *frame = &frames[refs[stacks[stack].frames_at + k]];
    tn_text text;
    tn__text_init(&text);
    tn__text_printf(&text, "%s:%u %s", tn_trace_string(trace, frame->file), frame->line, tn_trace_string(trace, frame->function));
    if (text.failed) p->out->failed = text.failed;
    tn__text_fill(p->out, ' ', FRAMES_AT);
    tn__column_name(p->out, tn__text_view(&text), p->width - FRAMES_AT);
    tn__text_add(p->out, "\n");
    tn__text_deinit(&text);
  }
}

static void line_write(const page *p, const line *row, uint64_t whole) {
  enum { PLACE_AT = 46 };
  tn__text_add(p->out, "  ");
  tn__column_size(p->out, row->bytes, 11);
  tn__text_printf(p->out, "  %5.1f %%  %6u  %-13s ", tn__column_share(row->bytes, whole), row->blocks, tn_category_name(row->category));
  tn__column_place(p->out, row->text, p->width - PLACE_AT);
  tn__text_add(p->out, "\n");
  frames_add(p, row->stack);
}

static void lines_write(const page *p, const lines *all, uint64_t whole) {
  uint64_t rest = 0;
  size_t shown = all->count <= ROWS + 1 ? all->count : ROWS;
  if (!all->count) return;
  tn__text_add(p->out, "\n        bytes    share  blocks  category      allocated at\n");
  for (size_t i = 0; i < shown; i++) line_write(p, &all->rows[i], whole);
  for (size_t i = shown; i < all->count; i++) rest += all->rows[i].bytes;
  if (shown == all->count) return;
  tn__text_add(p->out, "  ");
  tn__column_size(p->out, rest, 11);
  tn__text_printf(p->out, "  %5.1f %%  in %zu other places\n", tn__column_share(rest, whole), all->count - shown);
}

/* Of very many rows, the small ones are not looked at: they cannot be among the first. */
static void places_add(const page *p, const tn__composition *at) {
  enum { ROWS_READ = 2000 };
  size_t count = at->rows.count < ROWS_READ ? at->rows.count : ROWS_READ;
  lines all = {.rows = tn__mem_zalloc(count + 1, sizeof(line))};
  if (!all.rows) {
    p->out->failed = TN_ENOMEM;
    return;
  }
  for (size_t i = 0; i < count && !all.failed; i++) line_add(&all, p, tn__vec_at(&at->rows, i));
  if (all.failed) p->out->failed = all.failed;
  if (all.count) qsort(all.rows, all.count, sizeof *all.rows, line_compare);
  lines_write(p, &all, at->level.allocated_bytes);
  for (size_t i = 0; i < all.count; i++) tn_text_free(all.rows[i].text);
  tn__mem_free(all.rows);
}

/* ---- findings, steps, what was not checked ------------------------------------------------------------------------------- */

/* Lines of a text, each wrapped. */
static void evidence_add(const page *p, const char *text, size_t indent) {
  while (*text) {
    size_t length = strcspn(text, "\n");
    char *copy = tn__mem_strndup(text, length);
    if (!copy) {
      p->out->failed = TN_ENOMEM;
      return;
    }
    tn__text_fill(p->out, ' ', indent);
    wrapped_add(p, copy, indent + 2);
    tn__text_add(p->out, "\n");
    tn__mem_free(copy);
    text += length + (text[length] == '\n');
  }
}

static void finding_add(const page *p, const tn__finding *finding) {
  tn__text_printf(p->out, "  %s\n    ", tn__finding_name(finding->code));
  wrapped_add(p, tn__explain_string(p->a, finding->what), 4);
  tn__text_add(p->out, "\n");
  evidence_add(p, tn__explain_string(p->a, finding->evidence), 6);
  const char *fix = tn__explain_string(p->a, finding->fix);
  if (!*fix) return;
  tn__text_add(p->out, "    > ");
  wrapped_add(p, fix, 6);
  tn__text_add(p->out, "\n");
  if (!finding->frees_bytes && finding->exactness == TN__EXACT_NONE) return;
  tn__text_add(p->out, "      ");
  if (finding->frees_bytes) {
    tn__text_add(p->out, "saves ");
    tn__text_size(p->out, finding->frees_bytes);
  }
  if (finding->exactness != TN__EXACT_NONE)
    tn__text_printf(p->out, "%sresults: %s", finding->frees_bytes ? "; " : "", tn__exactness_name(finding->exactness));
  tn__text_add(p->out, "\n");
}

static void findings_add(const page *p) {
  if (p->a->findings.count) tn__text_add(p->out, "\nFindings\n");
  for (size_t i = 0; i < p->a->findings.count; i++) finding_add(p, tn__vec_at(&p->a->findings, i));
}

static void steps_add(const page *p) {
  const tn__steps *steps = &p->a->steps;
  const tn__step *list = steps->list.data;
  if (!steps->list.count) return;
  uint64_t low = UINT64_MAX, high = 0;
  for (size_t i = steps->warmup; i < steps->list.count; i++) {
    if (list[i].peak_bytes < low) low = list[i].peak_bytes;
    if (list[i].peak_bytes > high) high = list[i].peak_bytes;
  }
  tn_text words;
  tn__text_init(&words);
  tn__text_printf(&words, "Steps: %zu, by %s", steps->list.count, tn__explain_steps_from(p->a));
  if (steps->marker) tn__text_printf(&words, " (%s)", tn_trace_string(p->a->history.trace, steps->marker));
  tn__text_add(&words, "; peaks ");
  tn__text_size(&words, low);
  tn__text_add(&words, " to ");
  tn__text_size(&words, high);
  if (steps->warmup) tn__text_add(&words, " without the first");
  tn__text_add(&words, "; at the end of the last ");
  tn__text_size(&words, list[steps->list.count - 1].end_bytes);
  tn__text_add(p->out, "\n");
  line_add_wrapped(p, &words, 2);
}

static void unchecked_add(const page *p) {
  if (p->a->unchecked.count) tn__text_add(p->out, "\nNot checked\n");
  for (size_t i = 0; i < p->a->unchecked.count; i++) {
    const tn__unchecked *row = tn__vec_at(&p->a->unchecked, i);
    tn_text text;
    tn__text_init(&text);
    tn__text_printf(&text, "%s: %s", tn__explain_string(p->a, row->what), tn__explain_string(p->a, row->why));
    tn__text_add(p->out, "  ");
    line_add_wrapped(p, &text, 4);
  }
}

void tn__explain_text(const tn_explain *explain, const char *title, tn_text *out) {
  page p = {.explain = explain, .out = out, .width = width_of(explain)};
  if (!explain->count) tn__text_printf(out, "%s: nothing was allocated on any device.\n", title);
  for (size_t i = 0; i < explain->count; i++) {
    p.a = &explain->devices[i];
    if (i) tn__text_add(out, "\n");
    title_add(&p, title);
    verdict_add(&p);
    accounting_add(&p);
    const tn__composition *at = shown_composition(&p);
    composition_title(&p, at);
    categories_add(&p, at);
    places_add(&p, at);
    findings_add(&p);
    steps_add(&p);
    unchecked_add(&p);
  }
}

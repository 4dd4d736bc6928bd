/* diff_text.c -- two peaks compared, for people: the sum first, then what changed most. */
#include <stdio.h>

#include "report/columns.h"
#include "report/diff.h"

enum { ROWS = 20 };

static void change_add(tn_text *out, uint64_t from, uint64_t to, int width) {
  char buf[32], text[40];
  (void)tn_size_format(to > from ? to - from : from - to, buf, sizeof buf);
  (void)snprintf(text, sizeof text, "%s%s", to == from ? "" : to > from ? "+" : "-", to == from ? "=" : buf);
  tn__text_printf(out, "%*s", width, text);
}

static void side_add(const tn__diff_report *report, int side, tn_text *out) {
  tn__text_printf(out, "%c  ", 'A' + side);
  tn__column_name(out, report->side[side].title, report->width / 2);
  if (report->device[side] != TN_NONE) tn__text_printf(out, ", device %u", report->device[side]);
  tn__text_add(out, report->is_capture[side] ? ", captured" : ", recorded");
  tn__text_add(out, "\n");
}

static void sentence_add(const tn__diff_report *report, tn_text *out) {
  uint64_t a = report->diff.level[0].allocated_bytes, b = report->diff.level[1].allocated_bytes;
  if (a == b) {
    tn__text_add(out, "\nB peaks as high as A: ");
    tn__text_size(out, a);
    tn__text_add(out, " allocated.\n");
    return;
  }
  tn__text_add(out, "\nB peaks ");
  tn__text_size(out, b > a ? b - a : a - b);
  tn__text_printf(out, " %s than A", b > a ? "higher" : "lower");
  if (a) tn__text_printf(out, " (%+.1f %%)", 100.0 * ((double)b - (double)a) / (double)a);
  tn__text_add(out, ": ");
  tn__text_size(out, b);
  tn__text_add(out, " allocated instead of ");
  tn__text_size(out, a);
  tn__text_add(out, ".\n");
}

static void row_add(tn_text *out, uint64_t a, uint64_t b) {
  tn__column_size(out, a, 12);
  tn__column_size(out, b, 13);
  change_add(out, a, b, 13);
  tn__text_add(out, "  ");
}

/* Categories, largest change first. */
static void categories_add(const tn__diff_report *report, tn_text *out) {
  int shown[TN_CATEGORY_COUNT] = {0};
  tn__text_add(out, "\n           A            B        B - A  at the peak\n");
  row_add(out, report->diff.level[0].reserved_bytes, report->diff.level[1].reserved_bytes);
  tn__text_add(out, "reserved, at most\n");
  row_add(out, report->diff.level[0].allocated_bytes, report->diff.level[1].allocated_bytes);
  tn__text_add(out, "allocated\n");
  for (;;) {
    int next = -1;
    uint64_t most = 0;
    for (int i = 0; i < TN_CATEGORY_COUNT; i++) {
      uint64_t a = report->diff.by_category[0][i], b = report->diff.by_category[1][i], change = a > b ? a - b : b - a;
      if (shown[i] || (!a && !b) || (next >= 0 && change <= most)) continue;
      next = i;
      most = change;
    }
    if (next < 0) break;
    shown[next] = 1;
    row_add(out, report->diff.by_category[0][next], report->diff.by_category[1][next]);
    tn__text_printf(out, "  %s\n", tn_category_name(next));
  }
}

/* Narrow pages do without the numbers of blocks. */
static int has_blocks(const tn__diff_report *report) { return report->width >= 100; }

static void place_add(const tn__diff_report *report, const tn__diff_row *row, tn_text *out) {
  enum { PLACE_AT = 54, BLOCKS = 11, ROOM_MIN = 15 };
  size_t at = PLACE_AT + (has_blocks(report) ? BLOCKS : 0);
  row_add(out, row->bytes[0], row->bytes[1]);
  char blocks[32];
  (void)snprintf(blocks, sizeof blocks, "%u>%u", row->blocks[0], row->blocks[1]);
  if (has_blocks(report)) tn__text_printf(out, "%9s  ", blocks);
  tn__text_printf(out, "%-13s ", tn_category_name((int)row->category));
  tn__column_place(out, tn__strings_get(&report->diff.texts, row->label), report->width > at + ROOM_MIN ? report->width - at : ROOM_MIN);
  tn__text_add(out, "\n");
}

static void places_head(const tn__diff_report *report, tn_text *out) {
  tn__text_add(out, "\n           A            B        B - A  ");
  if (has_blocks(report)) tn__text_add(out, "   blocks  ");
  tn__text_printf(out, "category      %s\n", report->is_capture[0] ? "made by" : "allocated at");
}

static void places_add(const tn__diff_report *report, tn_text *out) {
  size_t shown = 0, same = 0;
  for (size_t i = 0; i < report->diff.rows.count; i++) same += tn__diff_change(tn__vec_at(&report->diff.rows, i)) == 0;
  size_t changed = report->diff.rows.count - same;
  if (!changed) {
    tn__text_printf(out, "\nEach of %zu places holds the same in both.\n", same);
    return;
  }
  places_head(report, out);
  int64_t rest = 0;
  for (size_t i = 0; i < changed; i++) {
    const tn__diff_row *row = tn__vec_at(&report->diff.rows, i);
    if (shown < ROWS)
      place_add(report, row, out), shown++;
    else
      rest += tn__diff_change(row);
  }
  if (changed > shown) {
    tn__text_printf(out, "%25s", "");
    change_add(out, rest < 0 ? (uint64_t)-rest : 0, rest > 0 ? (uint64_t)rest : 0, 13);
    tn__text_printf(out, "  in %zu other places\n", changed - shown);
  }
  if (same) tn__text_printf(out, "  %zu places hold the same in both.\n", same);
}

void tn__diff_text(const tn__diff_report *report, tn_text *out) {
  for (int side = 0; side < TN__DIFF_SIDES; side++) side_add(report, side, out);
  sentence_add(report, out);
  categories_add(report, out);
  if (report->has_rows)
    places_add(report, out);
  else
    tn__text_add(out, "\nOne is a capture and the other a recording, so only categories can be compared.\n");
}

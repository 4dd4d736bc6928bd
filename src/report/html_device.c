/* html_device.c -- one device of a snapshot as the viewer's data.  See html.h. */
#include "base/error.h"
#include "base/mem.h"
#include "report/html.h"
#include "report/html_changes.h"
#include "report/html_pack.h"
#include "report/html_timeline.h"

enum { OOMS_MAX = 1000, STEPS_MAX = 5000, BLOCK_UNIT = 512 };

static unsigned long long ull(uint64_t value) { return value; }

static void comma(tn_text *out, size_t at) {
  if (at) tn__text_add(out, ",");
}

static void packed_write(tn_text *out, const tn_text *packed) {
  tn__text_add(out, "\"data\":\"");
  tn__pack_base64(out, packed->data, packed->len);
  tn__text_add(out, "\"");
  if (packed->failed) out->failed = packed->failed;
}

/* ---- levels, accounts, steps --------------------------------------------------------------------------------------------- */

static void level_write(tn_text *out, const char *name, uint32_t moment, const tn__level *level) {
  tn__text_printf(out, "\"%s\":{\"moment\":%u,\"requested\":%llu,\"allocated\":%llu,\"active\":%llu", name, moment,
                  ull(level->requested_bytes), ull(level->allocated_bytes), ull(level->active_bytes));
}

static void levels_write(tn_text *out, const tn__analysis *analysis) {
  tn__text_add(out, "\"levels\":{");
  level_write(out, "peak", analysis->peak_allocated_moment, &analysis->peak.level);
  tn__text_add(out, "},"); /* what the analysis has as reserved there is the most of all times */
  level_write(out, "peak_reserved", analysis->peak_reserved_moment, &analysis->account_peak.level);
  tn__text_printf(out, ",\"reserved\":%llu},", ull(analysis->account_peak.level.reserved_bytes));
  level_write(out, "end", analysis->history.entry_count, &analysis->history.last);
  tn__text_printf(out, ",\"reserved\":%llu}}", ull(analysis->history.last.reserved_bytes));
}

static void account_write(tn_text *out, const tn__accounting *account) {
  tn__text_printf(out, "{\"moment\":%u,\"segments\":%u,\"reserved\":%llu,\"largest_hole\":%llu,\"idle_segments\":%llu,\"parts\":[",
                  account->moment, account->segments, ull(account->level.reserved_bytes), ull(account->largest_hole_bytes),
                  ull(account->idle_segments));
  for (size_t i = 0; i < TN__PART_COUNT; i++) {
    comma(out, i);
    tn__text_printf(out, "%llu", ull(account->part[i]));
  }
  tn__text_add(out, "]}");
}

static void accounts_write(tn_text *out, const tn__analysis *analysis) {
  tn__text_add(out, "\"accounts\":[");
  account_write(out, &analysis->account_peak);
  tn__text_add(out, ",");
  account_write(out, &analysis->account_end);
  tn__text_add(out, "]");
}

static void steps_write(tn_text *out, const tn__steps *steps) {
  const tn__step *list = TN_VEC(&steps->list, tn__step);
  tn__text_printf(out, "\"steps_annotated\":%s,\"steps\":[", steps->from == TN__STEPS_ANNOTATED ? "true" : "false");
  for (size_t i = 0; i < steps->list.count && i < STEPS_MAX; i++) {
    comma(out, i);
    tn__text_printf(out, "[%u,%u]", list[i].begin, list[i].end);
  }
  tn__text_add(out, "]");
}

static void ooms_write(tn_text *out, const tn__chronicle *history) {
  size_t count = 0;
  tn__text_add(out, "\"ooms\":[");
  for (uint32_t e = 0; e < history->entry_count && count < OOMS_MAX; e++) {
    const tn_entry *entry = &history->entries[e];
    if (entry->action != TN_ACTION_OOM) continue;
    comma(out, count++);
    tn__text_printf(out, "{\"moment\":%u,\"bytes\":%llu,\"free\":%llu}", e, ull(entry->bytes), ull(entry->addr));
  }
  tn__text_add(out, "]");
}

/* ---- findings ------------------------------------------------------------------------------------------------------------ */

static void text_write(tn_text *out, const tn__analysis *analysis, const char *name, uint32_t text) {
  tn__text_printf(out, "\"%s\":", name);
  tn__pack_string(out, tn__strings_get(&analysis->texts, text));
}

/* Where the finding is to be seen: a moment and an address, each null when it has none. */
static void place_write(tn_text *out, const tn__chronicle *history, const tn__finding *finding) {
  const tn__span *span = finding->span == TN_NONE ? NULL : &TN__SPANS(history)[finding->span];
  const tn_segment *segments = tn_trace_table(history->trace, TN_TABLE_SEGMENT, NULL);
  if (finding->entry != TN_NONE)
    tn__text_printf(out, "\"moment\":%u,", finding->entry + 1);
  else if (span)
    tn__text_printf(out, "\"moment\":%u,", span->alloc == TN_NONE ? 0 : span->alloc + 1);
  else if (finding->segment != TN_NONE)
    tn__text_printf(out, "\"moment\":%u,", history->entry_count);
  else
    tn__text_add(out, "\"moment\":null,");
  if (span)
    tn__text_printf(out, "\"addr\":\"%llx\"", ull(span->addr));
  else if (finding->segment != TN_NONE)
    tn__text_printf(out, "\"addr\":\"%llx\"", ull(segments[history->device->segments_at + finding->segment].addr));
  else
    tn__text_add(out, "\"addr\":null");
}

static int finding_write(tn_text *out, tn__page_stacks *stacks, const tn__analysis *analysis, const tn__finding *finding) {
  static const char *const severities[] = {"fault", "waste", "note"};
  uint32_t stack = 0;
  tn__text_printf(out, "{\"code\":\"%s\",\"severity\":\"%s\",\"inferred\":%s,", tn__finding_name(finding->code),
                  severities[finding->severity], finding->inferred ? "true" : "false");
  text_write(out, analysis, "what", finding->what);
  tn__text_add(out, ",");
  text_write(out, analysis, "evidence", finding->evidence);
  tn__text_add(out, ",");
  text_write(out, analysis, "fix", finding->fix);
  tn__text_printf(out, ",\"bytes\":%llu,\"frees\":%llu,", ull(finding->bytes), ull(finding->frees_bytes));
  place_write(out, &analysis->history, finding);
  if (finding->stack >= analysis->stacks.count) {
    tn__text_add(out, ",\"stack\":null}");
    return TN_OK;
  }
  TN_TRY(tn__page_stacks_number(stacks, finding->stack, &stack));
  tn__text_printf(out, ",\"stack\":%u}", stack);
  return TN_OK;
}

static int findings_write(tn_text *out, tn__page_stacks *stacks, const tn__analysis *analysis) {
  const tn__finding *list = TN_VEC(&analysis->findings, tn__finding);
  tn__text_add(out, "\"findings\":[");
  for (size_t i = 0; i < analysis->findings.count; i++) {
    comma(out, i);
    TN_TRY(finding_write(out, stacks, analysis, &list[i]));
  }
  tn__text_add(out, "],\"unchecked\":[");
  const tn__unchecked *unchecked = TN_VEC(&analysis->unchecked, tn__unchecked);
  for (size_t i = 0; i < analysis->unchecked.count; i++) {
    comma(out, i);
    tn__text_add(out, "{");
    text_write(out, analysis, "what", unchecked[i].what);
    tn__text_add(out, ",");
    text_write(out, analysis, "why", unchecked[i].why);
    tn__text_add(out, "}");
  }
  tn__text_add(out, "]");
  return TN_OK;
}

static void verdict_write(tn_text *out, const tn__analysis *analysis) {
  tn__text_add(out, "\"verdict\":[");
  for (size_t i = 0; i < 3; i++) {
    comma(out, i);
    tn__pack_string(out, tn__strings_get(&analysis->texts, analysis->verdict[i]));
  }
  tn__text_add(out, "]");
}

/* ---- the timeline -------------------------------------------------------------------------------------------------------- */

/* Every block's size is a multiple of it: 512, or less where the file is not PyTorch's. */
static uint64_t unit_of(const tn__analysis *analysis, const tn__segments *segments) {
  uint64_t all = BLOCK_UNIT;
  const tn__span *spans = TN__SPANS(&analysis->history);
  const tn__piece *pieces = TN_VEC(&segments->pieces, tn__piece);
  for (size_t i = 0; i < analysis->history.spans.count; i++) all |= spans[i].addr | spans[i].bytes;
  for (size_t i = 0; i < segments->pieces.count; i++) all |= pieces[i].addr | pieces[i].bytes;
  return all & (0 - all);
}

static int is_used(const uint64_t *column, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (column[i]) return 1;
  return 0;
}

/* Columns that are 0 throughout are left out; "categories" names those that are there. */
static int timeline_write(tn_text *out, tn__page_stacks *stacks, const tn__timeline *timeline, uint64_t unit) {
  tn_text packed;
  tn__text_init(&packed);
  tn__text_printf(out, "\"timeline\":{\"moments\":%u,\"count\":%u,\"categories\":[", timeline->moments, timeline->count);
  for (int i = TN__COLUMN_TIME; i < TN__COLUMN_CATEGORY; i++)
    tn__pack_column(&packed, tn__timeline_column(timeline, i), timeline->count, i < TN__COLUMN_LOW ? 1 : unit);
  size_t used = 0;
  for (int i = 0; i < TN_CATEGORY_COUNT; i++) {
    const uint64_t *column = tn__timeline_column(timeline, TN__COLUMN_CATEGORY + i);
    if (!is_used(column, timeline->count)) continue;
    comma(out, used++);
    tn__text_printf(out, "%d", i);
    tn__pack_column(&packed, column, timeline->count, unit);
  }
  tn__text_add(out, "],\"stacks\":[");
  int rc = TN_OK;
  for (uint32_t i = 0; i < timeline->stack_count && !rc; i++) {
    uint32_t number = 0;
    rc = tn__page_stacks_number(stacks, timeline->stacks[i], &number);
    comma(out, i);
    tn__text_printf(out, "%u", number);
    tn__pack_column(&packed, tn__timeline_column(timeline, TN__COLUMN_STACK + (int)i), timeline->count, unit);
  }
  tn__text_add(out, "],");
  packed_write(out, &packed);
  tn__text_add(out, "}");
  tn__text_deinit(&packed);
  return rc;
}

/* ---- pieces and changes -------------------------------------------------------------------------------------------------- */

/* A piece: kind and category, address from that of the one before, bytes, what the bytes exceed the requested ones by, stack (0:
 * none, 1: older than the history, else 2 + the page's number), stream and pool of the trace's tables. */
static int piece_pack(tn_text *packed, tn__page_stacks *stacks, const tn__piece *piece, tn_addr before, uint64_t unit) {
  uint32_t number = 0;
  int has_stack = piece->stack < stacks->stacks->count;
  if (has_stack) TN_TRY(tn__page_stacks_number(stacks, piece->stack, &number));
  tn__pack_varint(packed, (uint64_t)piece->category << 2 | piece->kind);
  tn__pack_varint(packed, tn__pack_zigzag(piece->addr / unit - before / unit));
  tn__pack_varint(packed, piece->bytes / unit);
  tn__pack_varint(packed, tn__pack_zigzag(piece->bytes - piece->requested_bytes));
  tn__pack_varint(packed, has_stack ? number + 2 : piece->stack == TN__GROUP_BEFORE);
  tn__pack_varint(packed, piece->stream);
  tn__pack_varint(packed, piece->pool);
  return TN_OK;
}

static int pieces_write(tn_text *out, tn__page_stacks *stacks, const tn_vec *pieces, uint64_t unit) {
  const tn__piece *list = TN_VEC(pieces, tn__piece);
  tn_text packed;
  tn__text_init(&packed);
  int rc = TN_OK;
  for (size_t i = 0; i < pieces->count && !rc; i++) rc = piece_pack(&packed, stacks, &list[i], i ? list[i - 1].addr : 0, unit);
  tn__text_printf(out, "\"pieces\":{\"count\":%zu,", pieces->count);
  packed_write(out, &packed);
  tn__text_add(out, "}");
  tn__text_deinit(&packed);
  return rc;
}

static void changes_write(tn_text *out, const tn__changes *changes) {
  tn__text_printf(out, "\"changes\":{\"chunk\":%d,\"grid\":%u,\"initial\":%u,\"count\":%u,\"grids\":[", TN__CHUNK_ENTRIES,
                  changes->grid, changes->initial, changes->count);
  for (size_t i = 0; i < changes->grids.count; i++) {
    comma(out, i);
    tn__text_printf(out, "%u", TN_VEC(&changes->grids, uint8_t)[i]);
  }
  tn__text_add(out, "],");
  packed_write(out, &changes->symbols);
  tn__text_add(out, "}");
}

/* The moments that a reader will want to look into first: the changes around them stay exact. */
static int moments_gather(tn_vec *moments, const tn__analysis *analysis) {
  const tn__chronicle *history = &analysis->history;
  const tn__finding *findings = TN_VEC(&analysis->findings, tn__finding);
  const uint32_t first[] = {analysis->peak_allocated_moment, analysis->peak_reserved_moment, history->entry_count};
  TN_TRY(tn__vec_append(moments, first, sizeof first / sizeof *first));
  for (size_t i = 0; i < analysis->findings.count; i++) {
    uint32_t moment = findings[i].entry + 1;
    if (findings[i].entry != TN_NONE) TN_TRY(tn__vec_push(moments, &moment));
  }
  for (uint32_t e = 0; e < history->entry_count; e++)
    if (history->entries[e].action == TN_ACTION_OOM) TN_TRY(tn__vec_push(moments, &e));
  return TN_OK;
}

static int history_write(tn_text *out, tn__page_stacks *stacks, const tn__analysis *analysis, const tn__segments *segments,
                         uint64_t unit, uint64_t bytes_max) {
  tn_vec moments;
  tn__vec_init(&moments, sizeof(uint32_t));
  tn__changes changes = {0};
  int rc = moments_gather(&moments, analysis);
  if (!rc) rc = tn__changes_init(&changes, analysis, segments, TN_VEC(&moments, uint32_t), moments.count, bytes_max);
  if (!rc) rc = pieces_write(out, stacks, &changes.pieces, unit);
  if (!rc) {
    tn__text_add(out, ",");
    changes_write(out, &changes);
  }
  tn__changes_deinit(&changes);
  tn__vec_deinit(&moments);
  return rc;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static int packed_parts_write(tn_text *out, tn__page_stacks *stacks, const tn__analysis *analysis, uint64_t bytes_max) {
  tn__segments segments = {0};
  tn__timeline timeline = {0};
  int rc = tn__segments_init(&segments, &analysis->history);
  if (!rc) rc = tn__timeline_init(&timeline, analysis, TN__TIMELINE_BUCKETS);
  if (!rc) {
    uint64_t unit = unit_of(analysis, &segments);
    tn__text_printf(out, "\"unit\":%llu,\"segments_cut\":%s,\"time_end\":%llu,", ull(unit), segments.is_cut ? "true" : "false",
                    ull(timeline.time_end));
    rc = timeline_write(out, stacks, &timeline, unit);
    tn__text_add(out, ",");
    if (!rc) rc = history_write(out, stacks, analysis, &segments, unit, bytes_max);
  }
  tn__timeline_deinit(&timeline);
  tn__segments_deinit(&segments);
  return rc;
}

int tn__page_device(tn_text *out, tn__page_stacks *stacks, const tn__analysis *analysis, uint64_t bytes_max) {
  const tn__chronicle *history = &analysis->history;
  tn__text_printf(out, "{\"index\":%u,\"host\":%s,\"entries\":%u,\"odd\":%u,\"total\":%llu,", history->device->index,
                  (history->device->flags & TN_DEVICE_HOST) ? "true" : "false", history->entry_count, history->odd_count,
                  ull(analysis->total_bytes));
  levels_write(out, analysis);
  tn__text_add(out, ",");
  accounts_write(out, analysis);
  tn__text_add(out, ",");
  steps_write(out, &analysis->steps);
  tn__text_add(out, ",");
  ooms_write(out, history);
  tn__text_add(out, ",");
  verdict_write(out, analysis);
  tn__text_add(out, ",\"annotations\":");
  TN_TRY(tn__page_annotations(out, history));
  tn__text_add(out, ",");
  TN_TRY(findings_write(out, stacks, analysis));
  tn__text_add(out, ",");
  TN_TRY(packed_parts_write(out, stacks, analysis, bytes_max));
  tn__text_add(out, "}");
  return out->failed;
}

/* html_annotations.c -- the named stretches of time of a snapshot, as moments of one device's history.  See html.h. */
#include "base/error.h"
#include "base/map.h"
#include "base/mem.h"
#include "report/html.h"
#include "report/html_pack.h"

enum { STRETCHES_MAX = 5000 };

typedef struct stretch {
  uint32_t begin, end; /* moments; end TN_NONE: never ended */
  uint32_t name, depth;
  uint32_t outer; /* the open stretch of the same name around it, TN_NONE */
} stretch;

typedef struct stretches {
  tn_vec list; /* stretch */
  tn_map open; /* by name: the innermost open one */
  uint32_t depth;
} stretches;

/* The latest time up to each entry: threads may note their entries slightly out of order. */
static uint64_t *times_new(const tn__chronicle *history) {
  uint64_t *times = tn__mem_zalloc(history->entry_count, sizeof *times), latest = 0;
  for (uint32_t e = 0; e < history->entry_count && times; e++) {
    if (history->entries[e].time_us > latest) latest = history->entries[e].time_us;
    times[e] = latest;
  }
  return times;
}

/* Entries before the time. */
static uint32_t moment_at(const uint64_t *times, uint32_t count, uint64_t time_us) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (times[middle] < time_us)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static int stretch_begin(stretches *s, uint32_t name, uint32_t moment) {
  stretch fresh = {.begin = moment, .end = TN_NONE, .name = name, .depth = s->depth, .outer = tn__map_get(&s->open, name)};
  TN_TRY(tn__map_set(&s->open, name, (uint32_t)s->list.count));
  s->depth++;
  return tn__vec_push(&s->list, &fresh);
}

static int stretch_end(stretches *s, uint32_t name, uint32_t moment) {
  uint32_t at = tn__map_remove(&s->open, name);
  if (at == TN_NONE) return TN_OK; /* it began before the history */
  stretch *ended = &TN_VEC(&s->list, stretch)[at];
  ended->end = moment;
  if (s->depth > 0) s->depth--;
  return ended->outer == TN_NONE ? TN_OK : tn__map_set(&s->open, name, ended->outer);
}

static int stretches_fill(stretches *s, const tn__chronicle *history, const uint64_t *times) {
  size_t count;
  const tn_annotation *list = tn_trace_table(history->trace, TN_TABLE_ANNOTATION, &count);
  for (size_t i = 0; i < count && s->list.count < STRETCHES_MAX; i++) {
    if (list[i].device != history->device->index) continue;
    uint32_t moment = moment_at(times, history->entry_count, list[i].time_us);
    TN_TRY((list[i].flags & TN_ANNOTATION_END) ? stretch_end(s, list[i].name, moment) : stretch_begin(s, list[i].name, moment));
  }
  return TN_OK;
}

static void stretches_write(const stretches *s, const tn_trace *trace, tn_text *out) {
  const stretch *list = TN_VEC(&s->list, stretch);
  for (size_t i = 0; i < s->list.count; i++) {
    tn__text_printf(out, "%s[%u,", i ? "," : "", list[i].begin);
    if (list[i].end == TN_NONE)
      tn__text_add(out, "null,");
    else
      tn__text_printf(out, "%u,", list[i].end);
    tn__pack_string(out, tn_trace_string(trace, list[i].name));
    tn__text_printf(out, ",%u]", list[i].depth);
  }
}

int tn__page_annotations(tn_text *out, const tn__chronicle *history) {
  stretches s = {0};
  tn__vec_init(&s.list, sizeof(stretch));
  tn__map_init(&s.open);
  uint64_t *times = times_new(history);
  int rc = times ? TN_OK : TN_ENOMEM;
  /* Without times there is no telling where they belong. */
  if (!rc && history->entry_count > 0 && times[history->entry_count - 1] > 0) rc = stretches_fill(&s, history, times);
  tn__text_add(out, "[");
  stretches_write(&s, history->trace, out);
  tn__text_add(out, "]");
  tn__mem_free(times);
  tn__map_deinit(&s.open);
  tn__vec_deinit(&s.list);
  return rc;
}

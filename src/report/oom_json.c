/* oom_json.c -- the report of an out-of-memory message for scripts: bytes under stable keys; what is not known is not there. */
#include "report/oom.h"
#include "report/json.h"

static const char *name_of(const char *const *names, uint32_t at, uint32_t count) { return at < count ? names[at] : "?"; }

static const char *form_name(uint32_t form) {
  static const char *const names[TN_OOM_FORM_COUNT] = {
#define FORM_NAME(name, text) text,
      TN_OOM_FORMS(FORM_NAME)
#undef FORM_NAME
  };
  return name_of(names, form, TN_OOM_FORM_COUNT);
}

static const char *reading_name(uint32_t reading) {
  static const char *const names[TN_OOM_READING_COUNT] = {
#define READING_NAME(name, text) text,
      TN_OOM_READINGS(READING_NAME)
#undef READING_NAME
  };
  return name_of(names, reading, TN_OOM_READING_COUNT);
}

static const char *moment_name(uint32_t moment) {
  static const char *const names[TN_OOM_MOMENT_COUNT] = {
#define MOMENT_NAME(name, text) text,
      TN_OOM_MOMENTS(MOMENT_NAME)
#undef MOMENT_NAME
  };
  return name_of(names, moment, TN_OOM_MOMENT_COUNT);
}

static void span_add(tn_text *out, const char *key, tn__oom_span size) {
  tn__text_printf(out, "\"%s\": {\"bytes\": %lld, \"slack_bytes\": %lld}", key, (long long)size.mid, (long long)size.slack);
}

static void readings_add(tn_text *out, const tn_oom *oom) {
  int shown = 0;
  tn__text_add(out, "\"readings\": {");
  for (uint32_t i = 0; i < TN_OOM_READING_COUNT; i++) {
    if (!(oom->known >> i & 1)) continue;
    tn__text_printf(out, "%s\"%s\": {\"bytes\": %llu, \"slack_bytes\": %llu, \"derived\": %s}", shown++ ? ", " : "",
                    reading_name(i), (unsigned long long)oom->sizes[i].bytes, (unsigned long long)oom->sizes[i].slack,
                    oom->derived >> i & 1 ? "true" : "false");
  }
  tn__text_add(out, "}");
}

static void processes_add(tn_text *out, const tn_oom *oom) {
  tn__text_add(out, "\"processes\": [");
  for (uint32_t i = 0; i < oom->process_count && i < TN_OOM_PROCESSES_MAX; i++) {
    const tn_oom_process *process = &oom->processes[i];
    tn__text_printf(out, "%s{\"pid\": %llu", i ? ", " : "", (unsigned long long)process->pid);
    if (process->known) tn__text_printf(out, ", \"bytes\": %llu", (unsigned long long)process->used.bytes);
    tn__text_printf(out, ", \"is_self\": %s}", process->is_self ? "true" : "false");
  }
  tn__text_add(out, "]");
}

static void flags_add(tn_text *out, const tn_oom *oom) {
  static const struct {
    uint32_t flag;
    const char *name;
  } flags[] = {
      {TN_OOM_SOFT, "soft"},
      {TN_OOM_UNTOLD, "untold"},
      {TN_OOM_CUT, "cut"},
      {TN_OOM_EXPANDABLE, "expandable_segments"},
  };
  int shown = 0;
  tn__text_add(out, "\"flags\": [");
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (oom->flags & flags[i].flag) tn__text_printf(out, "%s\"%s\"", shown++ ? ", " : "", flags[i].name);
  tn__text_add(out, "], \"moments\": [");
  shown = 0;
  for (uint32_t i = 0; i < TN_OOM_MOMENT_COUNT; i++)
    if (oom->moments >> i & 1) tn__text_printf(out, "%s\"%s\"", shown++ ? ", " : "", moment_name(i));
  tn__text_add(out, "]");
}

static void message_add(tn_text *out, const tn_oom *oom) {
  tn__text_printf(out, "{\"line\": %llu, \"offset\": %llu, \"times\": %u, ", (unsigned long long)oom->line,
                  (unsigned long long)oom->offset, (unsigned)oom->repeats);
  tn__json_string(out, "form", form_name(oom->form));
  tn__text_add(out, ", ");
  tn__json_string(out, "name", oom->name);
  tn__text_add(out, ", ");
  tn__json_string(out, "cause", tn_oom_cause_name(tn_oom_cause(oom)));
  if (oom->backend[0]) tn__text_add(out, ", "), tn__json_string(out, "backend", oom->backend);
  if (oom->device >= 0) tn__text_printf(out, ", \"device\": %d", (int)oom->device);
  if (oom->rank >= 0) tn__text_printf(out, ", \"rank\": %d", (int)oom->rank);
  if (oom->place[0]) tn__text_add(out, ", "), tn__json_string(out, "place", oom->place);
  tn__text_printf(out, ", \"unread\": %u,\n   ", (unsigned)oom->unread);
  readings_add(out, oom);
  tn__text_add(out, ",\n   ");
  processes_add(out, oom);
  tn__text_add(out, ", ");
  flags_add(out, oom);
  tn__text_add(out, "}");
}

static void parts_add(tn_text *out, const tn__oom_account *a) {
  int shown = 0;
  tn__text_add(out, "\"parts\": {");
  for (int i = 0; i < TN__OOM_PART_COUNT; i++) {
    if (!(a->known >> i & 1)) continue;
    if (shown++) tn__text_add(out, ", ");
    span_add(out, tn__oom_part_name(i), a->parts[i]);
  }
  tn__text_add(out, "}");
}

static void account_add(tn_text *out, const tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  tn__text_add(out, " \"account\": {");
  if (a->has_capacity) span_add(out, "capacity", a->capacity), tn__text_add(out, ", ");
  if (a->has_room) span_add(out, "room", a->room), tn__text_add(out, ", ");
  if (a->has_short) span_add(out, "short_by", a->short_by), tn__text_add(out, ", ");
  if (a->is_over) span_add(out, "over", a->over), tn__text_add(out, ", ");
  tn__text_printf(out, "\"room_is_bound\": %s, \"room_is_limit\": %s,\n  ", a->room_is_bound ? "true" : "false",
                  a->room_is_limit ? "true" : "false");
  parts_add(out, a);
  tn__text_add(out, "},\n");
}

static void action_add(tn_text *out, const tn__oom_verdict *v, const tn__oom_action *action) {
  static const char *const enough[] = {"\"no\"", "\"perhaps\"", "\"yes\"", "null"};
  static const char *const exactness[] = {"identical", "same maths", "changes numerics"};
  tn_text words;
  tn__text_printf(out, "{\"action\": \"%s\", \"enough\": %s, \"exactness\": \"%s\"", tn__oom_action_name(action->id),
                  enough[action->enough], exactness[tn__oom_action_exactness(action->id)]);
  if (action->has_gives)
    tn__text_printf(out, ", \"gives_bytes\": %lld, \"slack_bytes\": %lld, \"is_upto\": %s", (long long)action->gives.mid,
                    (long long)action->gives.slack, action->is_upto ? "true" : "false");
  tn__text_init(&words);
  if (action->enough == TN__OOM_ENOUGH_NO)
    tn__oom_words_why_not(&words, v, action);
  else
    tn__oom_words_command(&words, v, action);
  if (words.failed) out->failed = words.failed;
  if (words.len)
    tn__text_add(out, ", "), tn__json_string(out, action->enough == TN__OOM_ENOUGH_NO ? "why" : "how", tn__text_view(&words));
  tn__text_deinit(&words);
  tn__text_add(out, "}");
}

static void line_add(tn_text *out, const char *key, const tn__oom_verdict *v, void (*words)(tn_text *, const tn__oom_verdict *)) {
  tn_text line;
  tn__text_init(&line);
  words(&line, v);
  if (line.failed) out->failed = line.failed;
  tn__json_string(out, key, tn__text_view(&line));
  tn__text_deinit(&line);
}

static void verdict_add(tn_text *out, const tn__oom_verdict *v) {
  tn__text_add(out, " \"verdict\": {");
  tn__json_string(out, "cause", tn_oom_cause_name((int)v->cause));
  tn__text_printf(out, ", \"inferred\": %s,\n  ", v->is_inferred ? "true" : "false");
  line_add(out, "asked", v, tn__oom_words_asked);
  tn__text_add(out, ",\n  ");
  line_add(out, "held", v, tn__oom_words_held);
  tn__text_add(out, ",\n  ");
  line_add(out, "do", v, tn__oom_words_do);
  if (tn__oom_budget(v)) tn__text_printf(out, ", \"budget_bytes\": %llu", (unsigned long long)tn__oom_budget(v));
  tn__text_add(out, "},\n");
}

void tn__oom_json(const tn__oom_report *report, tn_text *out) {
  const tn__oom_verdict *v = &report->verdict;
  tn__text_printf(out, "{\"tonnage_oom\": 1, \"chosen\": %zu,\n", report->chosen);
  verdict_add(out, v);
  account_add(out, v);
  tn__text_add(out, " \"actions\": [");
  for (size_t i = 0; i < v->action_count; i++) {
    tn__text_add(out, i ? ",\n  " : "\n  ");
    action_add(out, v, &v->actions[i]);
  }
  tn__text_add(out, "],\n \"messages\": [");
  for (size_t i = 0; i < report->count; i++) {
    tn__text_add(out, i ? ",\n  " : "\n  ");
    message_add(out, &report->messages[i]);
  }
  tn__text_add(out, "]}\n");
}

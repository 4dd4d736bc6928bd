/* test_oom_reference.c -- the reference messages: how many are read whole, and whether our cause is the one that the thread states.
 *
 * What a thread states is prose.  The table below is a reader's judgement of that prose, made without our verdicts: which causes
 * would be the same thing.  Skipped when the reference inputs are not there. */
#include "helper.h"

#include <jansson.h>

#define CAUSE(name) (1u << TN_OOM_CAUSE_##name)

typedef struct judged {
  const char *id;
  uint32_t causes; /* any of these is what the thread, or its reader, says */
} judged;

static const judged judgements[] = {
    {"oom007", CAUSE(TENSORS)}, /* a loss that keeps its graph */
    {"oom011", CAUSE(HOST)},    /* WSL's limit on host memory */
    {"oom013", CAUSE(TOO_LARGE)},
    {"oom015", CAUSE(OUTSIDE) | CAUSE(OTHERS)}, /* the user's own reading */
    {"oom017", CAUSE(TENSORS)},                 /* a small card */
    {"oom019", CAUSE(TENSORS)},
    {"oom021", CAUSE(FRAGMENTED)},
    {"oom025", CAUSE(SPILLED)},
    {"oom027", CAUSE(TENSORS)},
    {"oom029", CAUSE(TENSORS)},
    {"oom031", CAUSE(TENSORS)},
    {"oom033", CAUSE(OUTSIDE)},
    {"oom035", CAUSE(LIMIT)},
    {"oom037", CAUSE(TOO_LARGE)},
    {"oom039", CAUSE(FRAGMENTED)},
    {"oom041", CAUSE(FRAGMENTED)},
    {"oom043", CAUSE(OTHERS)}, /* contexts of other ranks */
    {"oom045", CAUSE(TENSORS)},
    {"oom047", CAUSE(LIMIT)},
    {"oom049", CAUSE(TOO_LARGE)},
    {"oom051", CAUSE(TENSORS)},
    {"oom053", CAUSE(TENSORS)},
    {"oom055", CAUSE(TOO_LARGE)}, /* for what the runtime says that there is */
    {"oom057", CAUSE(REFUSED)},
    {"oom059", CAUSE(TENSORS)},
    {"oom061", CAUSE(REFUSED)},
    {"oom063", CAUSE(OTHERS) | CAUSE(OUTSIDE)}, /* "other allocations": Metal does not say whose */
    {"oom065", CAUSE(TENSORS)},
    {"oom067", CAUSE(OUTSIDE) | CAUSE(OTHERS)},
    {"oom071", CAUSE(OUTSIDE) | CAUSE(OTHERS)},
    {"oom073", CAUSE(TENSORS)}, /* a MIG slice filled by the model */
    {"oom075", CAUSE(TENSORS)},
    {"oom077", CAUSE(NO_ROOM)},
    {"oom079", CAUSE(NO_ROOM)},
    {"oom081", CAUSE(DEFECT)},
    {"oom083", CAUSE(DEFECT)},
    {"oom085", CAUSE(HOST)},
    {"oom087", CAUSE(HOST)},
    {"oom089", CAUSE(FRAGMENTED)},
    {"oom091", CAUSE(TENSORS)},
    {"oom093", CAUSE(TENSORS)},
    {"oom095", CAUSE(TENSORS)},
    {"oom097", CAUSE(TENSORS)},
    {"oom099", CAUSE(TENSORS)},
    {"oom101", CAUSE(TENSORS)},
    {"oom103", CAUSE(OTHERS)},
    {"oom105", CAUSE(FRAGMENTED)},
    {"oom111", CAUSE(OTHERS)},
    {"oom113", CAUSE(NO_ROOM)},
};

static uint32_t judged_causes(const char *id) {
  for (size_t i = 0; i < sizeof judgements / sizeof *judgements; i++)
    if (strcmp(judgements[i].id, id) == 0) return judgements[i].causes;
  return 0;
}

/* ---- is it read whole?  Counted here by other means than the parser's ---------------------------------------------------- */

static int is_digit(char c) { return c >= '0' && c <= '9'; }

/* Numbers with a unit behind them. */
static int sizes_in(const char *text) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "kB"};
  int count = 0;
  for (const char *at = text; *at; at++) {
    if (!is_digit(*at) || is_digit(at[1]) || at[1] == '.') continue;
    const char *unit = at + 1 + (at[1] == ' ');
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
      if (strncmp(unit, units[i], strlen(units[i])) == 0) {
        count++;
        break;
      }
  }
  return count;
}

static int sizes_read(const tn_oom *oom) {
  int count = (int)oom->process_count + ((oom->flags & TN_OOM_UNTOLD) && oom->form == TN_OOM_FORM_ASYNC);
  for (int i = 0; i < TN_OOM_READING_COUNT; i++) {
    int is_sum = i == TN_OOM_OTHERS && oom->process_count;
    int is_own = !(oom->derived >> i & 1) || (i == TN_OOM_ALLOCATED && oom->known >> TN_OOM_POOLS & 1);
    if (oom->known >> i & 1 && is_own && !is_sum) count++;
  }
  return count;
}

/* ---- the file ------------------------------------------------------------------------------------------------------------ */

typedef struct tally {
  int lines, cases, messages, whole, fragments, recognised_cases;
  int stated, agree, silent, disagree;                      /* where the thread states a cause */
  int others, others_agree, others_silent, others_disagree; /* where its reader gave one */
} tally;

static const char *text_of(const json_t *line, const char *key) {
  const char *text = json_string_value(json_object_get(line, key));
  return text ? text : "";
}

static void cause_tally(tally *t, const json_t *line, int is_found, const tn_oom *oom) {
  uint32_t want = judged_causes(text_of(line, "id"));
  if (!want) return;
  int is_stated = strncmp(text_of(line, "cause_basis"), "stated", 6) == 0;
  int cause = is_found ? tn_oom_cause(oom) : TN_OOM_CAUSE_UNKNOWN;
  int is_same = (int)(want >> cause & 1), is_silent = cause == TN_OOM_CAUSE_UNKNOWN;
  *(is_stated ? &t->stated : &t->others) += 1;
  if (is_same)
    *(is_stated ? &t->agree : &t->others_agree) += 1;
  else if (is_silent)
    *(is_stated ? &t->silent : &t->others_silent) += 1;
  else
    *(is_stated ? &t->disagree : &t->others_disagree) += 1;
  if (!is_same)
    print_message("  %s %s: %s; we say %s\n", text_of(line, "id"), is_stated ? "states" : "reader", text_of(line, "cause_if_known"),
                  is_found ? tn_oom_cause_name(cause) : "no message in it");
}

static void line_tally(tally *t, const json_t *line) {
  const char *text = text_of(line, "message");
  int is_case = strcmp(text_of(line, "form"), "case_without_numbers") == 0;
  tn_oom oom = {0};
  int is_found = tn_oom_parse(text, strlen(text), &oom, NULL) == TN_OK;
  t->lines++;
  if (is_case) {
    t->cases++;
    t->recognised_cases += is_found;
  } else {
    t->messages++;
    int is_whole = is_found && !oom.unread && sizes_read(&oom) == sizes_in(text);
    t->whole += is_whole;
    t->fragments += is_whole && oom.flags & TN_OOM_CUT;
    if (!is_whole)
      print_message("  not read whole: %s, %d of %d sizes\n", text_of(line, "id"), is_found ? sizes_read(&oom) : 0, sizes_in(text));
  }
  cause_tally(t, line, is_found, &oom);
}

static void reference_messages(void **state) {
  (void)state;
  FILE *file = fopen(TN_TEST_DATA "/../../../shared/data/oom_messages.jsonl", "rb");
  if (!file) {
    print_message("skipped: the reference inputs are not there\n");
    skip();
  }
  tally t = {0};
  static char buf[1 << 20];
  while (fgets(buf, sizeof buf, file)) {
    json_error_t reason;
    json_t *line = json_loads(buf, 0, &reason);
    if (!line) fail_msg("line %d: %s", t.lines + 1, reason.text);
    line_tally(&t, line);
    json_decref(line);
  }
  fclose(file);
  print_message("%d messages, %d read whole (%d of them are fragments); %d cases told without a message, %d recognised\n",
                t.messages, t.whole, t.fragments, t.cases, t.recognised_cases);
  print_message(
      "cause stated: %d, same %d, not told by the text %d, other %d; cause by a reader: %d, same %d, not told %d, other %d\n",
      t.stated, t.agree, t.silent, t.disagree, t.others, t.others_agree, t.others_silent, t.others_disagree);
  assert_int_equal(t.whole, t.messages);
  assert_int_equal(t.disagree, 0);
  assert_true(t.others_disagree <= 1); /* a user who took a context and the desktop for the cause */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reference_messages)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

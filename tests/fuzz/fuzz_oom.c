/* Out-of-memory messages: any bytes, in pieces of any size.  No crash, the same messages however they arrive, a report of at most
 * 100 columns, JSON that is JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "tonnage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tn_oom_log *read_pieces(const char *text, size_t len, size_t piece) {
  tn_oom_log *log = NULL;
  if (tn_oom_log_new(&log)) abort();
  for (size_t at = 0; at < len; at += piece)
    if (tn_oom_log_add(log, text + at, len - at < piece ? len - at : piece)) abort();
  if (tn_oom_log_end(log)) abort();
  return log;
}

static void check_message(const tn_oom *oom, size_t size) {
  if (oom->form >= TN_OOM_FORM_COUNT || oom->offset >= size || !oom->line || !oom->repeats) abort();
  if (!memchr(oom->backend, 0, sizeof oom->backend) || !memchr(oom->name, 0, sizeof oom->name) ||
      !memchr(oom->place, 0, sizeof oom->place))
    abort();
  if (oom->derived & ~oom->known) abort();
  int cause = tn_oom_cause(oom);
  if (cause < 0 || cause >= TN_OOM_CAUSE_COUNT) abort();
}

static void check_text(const char *text) {
  for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
    if (strcspn(line, "\n") > 100) abort();
}

static void check_json(const char *text) {
  json_error_t reason;
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &reason);
  if (!root) abort();
  json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *bytes = (const char *)data;
  size_t count = 0, chosen = 0, again = 0;
  tn_oom_log *log = read_pieces(bytes, size, size ? size : 1), *pieces = read_pieces(bytes, size, 7);
  const tn_oom *messages = tn_oom_log_messages(log, &count, &chosen), *others = tn_oom_log_messages(pieces, &again, NULL);
  if (again != count || (count && memcmp(messages, others, count * sizeof *messages) != 0)) abort();
  for (size_t i = 0; i < count; i++) check_message(&messages[i], size);
  for (int json = 0; json < 2 && count; json++) {
    char *text = NULL;
    if (tn_report_oom(messages, count, chosen, json, &text)) abort();
    if (json)
      check_json(text);
    else
      check_text(text);
    tn_text_free(text);
  }
  tn_oom_log_free(log);
  tn_oom_log_free(pieces);
  return 0;
}

/* oom.c -- tn_report_oom(). */
#include "report/oom.h"

int tn_report_oom(const tn_oom *messages, size_t count, size_t chosen, int json, char **out) {
  if (!messages || chosen >= count || !out) return TN_EINVAL;
  tn__oom_report report = {.messages = messages, .count = count, .chosen = chosen};
  tn__oom_verdict_make(&messages[chosen], &report.verdict);
  tn_text text;
  tn__text_init(&text);
  if (json)
    tn__oom_json(&report, &text);
  else
    tn__oom_text(&report, &text);
  int rc = tn__text_take(&text, out);
  tn__text_deinit(&text);
  return rc;
}

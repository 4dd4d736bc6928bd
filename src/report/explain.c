/* explain.c -- tn_report_explain(), and what both writers share. */
#include "report/explain.h"

#include "explain/findings.h"

const char *tn__explain_string(const tn__analysis *analysis, uint32_t id) { return tn__strings_get(&analysis->texts, id); }

void tn__explain_place(const tn__analysis *analysis, uint32_t stack, tn_text *out) { tn__say_place_op(out, analysis, stack); }

const char *tn__explain_steps_from(const tn__analysis *analysis) {
  switch (analysis->steps.from) {
    case TN__STEPS_ANNOTATED: return "annotations";
    case TN__STEPS_PHASES: return "phases";
    case TN__STEPS_PERIODIC: return "repetition";
    default: return "";
  }
}

int tn_report_explain(const tn_explain *explain, const char *title, int json, char **out) {
  if (!explain || !out) return TN_EINVAL;
  tn_text text;
  tn__text_init(&text);
  (json ? tn__explain_json : tn__explain_text)(explain, title ? title : "", &text);
  int rc = tn__text_take(&text, out);
  tn__text_deinit(&text);
  return rc;
}

/* help.h -- the option table as help, manual pages and JSON.
 *
 * Callers: the command's help verb and --help.  Thread-safe: no state but the text. */
#ifndef TN_BASE_HELP_H
#define TN_BASE_HELP_H

#include "base/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/* color 1: headings in bold. */
void tn__help_overview(tn_text *text, int color);
void tn__help_verb(tn_text *text, enum tn_verb verb, int color);
/* Manual pages for man(1): tonnage.1 and tonnage-VERB.1. */
void tn__help_man(tn_text *text);
void tn__help_man_verb(tn_text *text, enum tn_verb verb);
/* {"version", "verbs": [{"name", "home", "args", "options": [NAME, ...]}], "options": [{"name", "letter", "kind", ...}]} */
void tn__help_table(tn_text *text);

#ifdef __cplusplus
}
#endif
#endif

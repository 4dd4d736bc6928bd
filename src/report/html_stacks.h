/* html_stacks.h -- the stacks that a page speaks of, as one tree of frames.
 *
 * Why: stacks share most of their frames, and a file may hold more of them than a page can carry.
 * Callers: src/report/html*.c.  Not locked: one thread at a time. */
#ifndef TN_REPORT_HTML_STACKS_H
#define TN_REPORT_HTML_STACKS_H

#include "base/map.h"
#include "base/text.h"
#include "base/vec.h"
#include "explain/analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn__page_stacks {
  const tn_trace *trace;
  const tn__stacks *stacks;
  tn_map numbers; /* by group */
  tn_vec groups;  /* uint32_t, by number */
} tn__page_stacks;

void tn__page_stacks_init(tn__page_stacks *page, const tn_trace *trace, const tn__stacks *stacks);
void tn__page_stacks_deinit(tn__page_stacks *page);
/* The page's number of a group, a new one at its first mention: those mentioned first have their frames kept first. */
int tn__page_stacks_number(tn__page_stacks *page, uint32_t group, uint32_t *out_number);
/* The members "strings", "ops", "frames", "nodes" and "stacks" of the page's data, without braces; see viewer/data.js.  *left_out:
 * stacks whose frames found no room. */
int tn__page_stacks_write(const tn__page_stacks *page, tn_text *out, uint32_t *left_out);

#ifdef __cplusplus
}
#endif
#endif

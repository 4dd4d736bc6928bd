/* html.h -- the parts of a page, for those who write it.
 *
 * A page is viewer/viewer.html with the viewer's style and script and one JSON object, the data.  The data is made here, summed so
 * far that a browser stays quick (html_timeline.h, html_changes.h); viewer/data.js unpacks it.
 * Callers: src/report/html*.c.  One thread at a time per page. */
#ifndef TN_REPORT_HTML_H
#define TN_REPORT_HTML_H

#include "base/text.h"
#include "explain/analysis.h"
#include "report/html_stacks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The files of viewer/, put into the library by viewer/embed.cmake.  sha256: of the bytes, in hexadecimal. */
typedef struct tn__page_file {
  const unsigned char *data;
  size_t bytes;
  const char *sha256;
} tn__page_file;

extern const tn__page_file tn__page_html, tn__page_style, tn__page_script;

/* One device as an object of the list "devices".  bytes_max bounds its packed changes.  TN_ENOMEM. */
int tn__page_device(tn_text *out, tn__page_stacks *stacks, const tn__analysis *analysis, uint64_t bytes_max);
/* Its list "annotations", with "[" and "]": stretches [begin, end, name, depth] of moments; end null: never ended. */
int tn__page_annotations(tn_text *out, const tn__chronicle *history);

#ifdef __cplusplus
}
#endif
#endif

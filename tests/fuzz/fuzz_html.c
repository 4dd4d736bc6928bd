/* fuzz_html.c -- the page of any snapshot: it may contradict itself, it must not do harm. */
#include <stdlib.h>
#include <string.h>

#include "tonnage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tn_trace *trace = NULL;
  if (tn_snapshot_parse(data, size, &trace, NULL)) return 0;
  for (uint64_t bytes_max = 0; bytes_max < 2; bytes_max++) { /* as it is, and thinned out as far as can be */
    char *page = NULL;
    tn_html_options options = {.name = "fuzz", .history_bytes_max = bytes_max};
    int rc = tn_report_html(trace, &options, &page, NULL);
    if (rc != TN_OK && rc != TN_EINVAL && rc != TN_ENOMEM) abort();
    if (rc == TN_OK && !strstr(page, "</html>")) abort();
    tn_text_free(page);
  }
  tn_trace_free(trace);
  return 0;
}

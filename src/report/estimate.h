/* estimate.h -- what the estimate report says, gathered before it is written as text or JSON.
 *
 * Callers: estimate.c gathers, estimate_text.c and estimate_json.c write.  One thread at a time per report. */
#ifndef TN_REPORT_ESTIMATE_H
#define TN_REPORT_ESTIMATE_H

#include "base/strings.h"
#include "base/text.h"
#include "base/vec.h"
#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks that are live at the peak, summed over modules that are copies of one another ("layers.*", 24 of them). */
typedef struct tn__module_row {
  uint32_t path;       /* in names: "layers.*"; "" for what belongs to no module */
  uint32_t class_name; /* in names */
  uint32_t count;      /* modules summed here */
  uint32_t reserved;
  uint64_t bytes;       /* state + saved + other */
  uint64_t state_bytes; /* parameter, gradient, optimizer */
  uint64_t saved_bytes; /* activation */
} tn__module_row;

/* Activations live at the peak, summed by the op and the module that made them. */
typedef struct tn__saved_row {
  uint32_t op, path; /* in names */
  uint64_t count, bytes;
} tn__saved_row;

enum tn__verdict { TN__FITS, TN__FITS_TIGHTLY, TN__FITS_NOT }; /* tightly: the allocator must give its cache back now and then */

/* The module rows add up to peak.allocated_bytes, the saved rows to its activation bytes.  Both largest first. */
typedef struct tn__report {
  const tn_trace *trace;
  const tn_profile *profile;
  int is_host;
  uint32_t step_count;
  tn_peak peak;  /* of the steady step, or of the first where that is higher */
  tn_peak first; /* of the first step, when step_count > 1 */
  uint64_t requested_by_category[TN_CATEGORY_COUNT]; /* at the peak, before rounding */
  uint64_t need_bytes;  /* device-used over all steps */
  uint64_t limit_bytes; /* budget or card */
  int has_budget;
  enum tn__verdict verdict;
  uint64_t retries; /* when tightly */
  tn_strings names;
  tn_vec modules; /* tn__module_row */
  tn_vec saved;   /* tn__saved_row */
} tn__report;

/* budget_bytes 0 = the card.  Deinit in any case. */
int tn__report_gather(tn__report *report, const tn_trace *trace, const tn_profile *profile, uint64_t budget_bytes);
void tn__report_deinit(tn__report *report);
void tn__report_text(const tn__report *report, tn_text *out);
void tn__report_json(const tn__report *report, tn_text *out);

/* For both writers. */
const char *tn__report_meta(const tn__report *report, const char *key);  /* "" when unset */
const char *tn__report_op(const tn__report *report, uint32_t op);        /* "aten.addmm.default"; "" for TN_NONE */
const char *tn__report_module(const tn__report *report, uint32_t op);    /* dotted path of the op's module; "" */
const char *tn__report_class(const tn__report *report, uint32_t op);     /* its class; "" */
const char *tn__report_phase(const tn__report *report, uint32_t op);     /* "backward"; "" */

#ifdef __cplusplus
}
#endif
#endif

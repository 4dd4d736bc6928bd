/* pass_json.h -- a schedule as the object PASS of docs/formats.md, which Python carries out.
 *
 * Callers: plan. */
#ifndef TN_PLAN_PASS_JSON_H
#define TN_PLAN_PASS_JSON_H

#include "base/text.h"
#include "plan/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends the members of PASS from "slots" on, without the braces.  TN_ENOMEM. */
int tn__pass_json(const tn__schedule *schedule, tn_text *text);
/* Appends the list "rebuilt": dropped bytes and the time of the ops run again, by op and by module with indices as '*'. */
int tn__rebuilt_json(const tn__schedule *schedule, tn_text *text);

#ifdef __cplusplus
}
#endif
#endif

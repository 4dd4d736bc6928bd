/* steptime.c -- how long the parts of a step take.  See steptime.h. */
#include "plan/steptime.h"

#include "plan/span.h"

/* Host time of eager PyTorch, as shares of a forward op's: a view launches nothing, backward is dispatched from C++.  A
 * saved-tensor hook was measured at 4 to 8 us where an op took 42. */
static const double VIEW_SHARE = 0.3, BACKWARD_SHARE = 0.6, HOOK_SHARE = 0.15;

typedef struct walk {
  const tn__graph *graph;
  const tn__schedule *schedule; /* or NULL */
  size_t program;               /* next one */
  tn__steptime time;
} walk;

static int is_in_pass(const tn_op *op) {
  return op->phase != TN_PHASE_OPTIMIZER && op->phase != TN_PHASE_OTHER && op->phase != TN_PHASE_SETUP;
}

static void pass_add(walk *w, uint32_t pass, double host_s, double device_s) {
  if (pass == 0) tn__span_add(&w->time.first_pass, host_s, device_s);
  if (pass == w->graph->pass) tn__span_add(&w->time.last_pass, host_s, device_s);
}

static void op_add(walk *w, const tn_op *op) {
  const tn_profile *profile = w->graph->profile;
  double share = op->flags & TN_OP_VIEW ? VIEW_SHARE : 1;
  if (op->phase == TN_PHASE_BACKWARD) share *= BACKWARD_SHARE;
  double host_s = share * profile->host_op_s, device_s = tn_profile_op_seconds(profile, op);
  if (is_in_pass(op)) pass_add(w, op->pass, host_s, device_s);
  else tn__span_add(&w->time.optimizer, host_s, device_s);
}

/* What the slot's UNPACK at event e sets going. */
static void rebuild_add(walk *w, uint32_t e) {
  const tn__schedule *s = w->schedule;
  if (w->program == s->program_count || s->programs[w->program].event != e) return;
  const tn__program *program = &s->programs[w->program++];
  for (uint32_t i = 0; i < program->run_count; i++) {
    const tn_op *op = &w->graph->ops[s->runs[program->run_at + i].op];
    pass_add(w, w->graph->slots[program->slot].pass, w->graph->profile->host_rebuild_s, tn_profile_op_seconds(w->graph->profile, op));
  }
}

static void slot_add(walk *w, uint32_t e) {
  const tn_event *event = &w->graph->events[e];
  if (!w->schedule || !w->schedule->program_count || w->graph->slots[event->id].step != w->graph->step) return;
  pass_add(w, w->graph->slots[event->id].pass, HOOK_SHARE * w->graph->profile->host_op_s, 0);
  if (event->kind == TN_EVENT_UNPACK) rebuild_add(w, e);
}

tn__steptime tn__steptime_of(const tn__graph *graph, const tn__schedule *schedule) {
  walk w = {.graph = graph, .schedule = schedule};
  for (uint32_t e = graph->event_first; e < graph->event_end; e++) {
    const tn_event *event = &graph->events[e];
    if (event->kind == TN_EVENT_OP) op_add(&w, &graph->ops[event->id]);
    else if (event->kind == TN_EVENT_PACK || event->kind == TN_EVENT_UNPACK) slot_add(&w, e);
  }
  return w.time;
}

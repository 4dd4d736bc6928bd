/* lives.c -- when each block of a trace is live. */
#include "trace/lives.h"

#include "base/mem.h"

uint32_t tn__event_block(const tn_event *event, const tn_slot *slots) {
  switch (event->kind) {
    case TN_EVENT_ALLOC:
    case TN_EVENT_DROP: return event->id;
    case TN_EVENT_PACK:
    case TN_EVENT_UNPACK:
    case TN_EVENT_RELEASE: return slots[event->id].block;
    default: return TN_NONE;
  }
}

void tn__life_step(tn__life *life, uint32_t kind) {
  switch (kind) {
    case TN_EVENT_ALLOC:
    case TN_EVENT_UNPACK: life->referenced = 1; break;
    case TN_EVENT_DROP: life->referenced = 0; break;
    case TN_EVENT_PACK: life->held++; break;
    case TN_EVENT_RELEASE: life->held--; break;
    default: break;
  }
}

static int visit_events(const tn_trace *trace, tn__life *lives, tn__life_visit *visit, void *user) {
  size_t count;
  const tn_event *events = tn_trace_table(trace, TN_TABLE_EVENT, &count);
  const tn_slot *slots = tn_trace_table(trace, TN_TABLE_SLOT, NULL);
  for (size_t i = 0; i < count; i++) {
    uint32_t block = tn__event_block(&events[i], slots);
    if (block == TN_NONE) continue;
    tn__life *life = &lives[block];
    int was_live = tn__life_is_live(life);
    tn__life_step(life, events[i].kind);
    int is_live = tn__life_is_live(life);
    if (is_live == was_live) continue;
    int stop = visit(user, (tn__life_event){.event = (uint32_t)i, .block = block, .is_alloc = is_live});
    if (stop) return stop;
  }
  return TN_OK;
}

int tn__lives(const tn_trace *trace, tn__is_dropped *is_dropped, tn__life_visit *visit, void *user) {
  size_t count;
  tn_trace_table(trace, TN_TABLE_BLOCK, &count);
  tn__life *lives = tn__mem_zalloc(count, sizeof *lives);
  if (!lives) return TN_ENOMEM;
  if (is_dropped)
    for (size_t i = 0; i < count; i++) lives[i].dropped = is_dropped(user, (uint32_t)i) != 0;
  int rc = visit_events(trace, lives, visit, user);
  tn__mem_free(lives);
  return rc;
}

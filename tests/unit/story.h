/* story.h -- writes a trace event by event, as a test tells it.
 *
 *   story s = story_begin();
 *   uint32_t weight = story_alloc(&s, 1000, TN_CATEGORY_PARAMETER, module);
 *   story_mark(&s, "step:0"); ... story_mark(&s, "end");
 *   use(s.trace); story_end(&s);
 *
 * Every function fails the test when the library refuses. */
#ifndef TN_TESTS_STORY_H
#define TN_TESTS_STORY_H

#include "helper.h"

typedef struct story {
  tn_trace *trace;
  uint32_t ops, blocks, slots, modules;
  uint32_t slots_of_step[8];
} story;

static inline void story_must(int rc) {
  if (rc) fail_msg("the trace refused: %s", tn_error_name(rc));
}

static inline story story_begin(void) {
  story s = {0};
  story_must(tn_trace_new(&s.trace));
  return s;
}

static inline void story_end(story *s) { tn_trace_free(s->trace); }

static inline uint32_t story_string(story *s, const char *text) {
  uint32_t id = 0;
  story_must(tn_trace_add_string(s->trace, text, &id));
  return id;
}

static inline void story_event(story *s, uint32_t kind, uint32_t id) {
  tn_event event = {kind, id};
  story_must(tn_trace_add(s->trace, TN_TABLE_EVENT, &event, 1));
}

static inline void story_mark(story *s, const char *text) { story_event(s, TN_EVENT_MARK, story_string(s, text)); }

static inline uint32_t story_module(story *s, const char *path, const char *class_name, uint32_t parent) {
  tn_module module = {story_string(s, path), story_string(s, class_name), parent, 0};
  story_must(tn_trace_add(s->trace, TN_TABLE_MODULE, &module, 1));
  return s->modules++;
}

/* The next op to run makes the block, unless it is state or input. */
static inline uint32_t story_alloc(story *s, uint64_t bytes, int category, uint32_t module) {
  int before = category == TN_CATEGORY_PARAMETER || category == TN_CATEGORY_INPUT;
  tn_block block = {bytes, before ? TN_NONE : s->ops, 0, module, (uint8_t)category, 0, 0};
  story_must(tn_trace_add(s->trace, TN_TABLE_BLOCK, &block, 1));
  story_event(s, TN_EVENT_ALLOC, s->blocks);
  return s->blocks++;
}

static inline void story_drop(story *s, uint32_t block) { story_event(s, TN_EVENT_DROP, block); }

static inline uint32_t story_op(story *s, const char *name, uint32_t module, int phase, int step) {
  tn_op op = {.name = story_string(s, name), .module = module, .phase = (uint8_t)phase, .step = (uint8_t)step, .seconds = -1};
  story_must(tn_trace_add(s->trace, TN_TABLE_OP, &op, 1));
  story_event(s, TN_EVENT_OP, s->ops);
  return s->ops++;
}

/* Autograd saves the block: it lives on after its DROP until the slot is released. */
static inline uint32_t story_pack(story *s, uint32_t block, int step) {
  tn_slot slot = {.value = TN_NONE, .block = block, .module = TN_NONE, .step = (uint8_t)step, .index = s->slots_of_step[step]++};
  story_must(tn_trace_add(s->trace, TN_TABLE_SLOT, &slot, 1));
  story_event(s, TN_EVENT_PACK, s->slots);
  return s->slots++;
}

#endif

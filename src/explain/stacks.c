/* stacks.c -- groups, places and cues of stacks.  See stacks.h. */
#include "explain/stacks.h"

#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "base/mem.h"

/* What is known of each frame. */
typedef struct frame_info {
  uint32_t cues;
  uint8_t kind; /* tn__frame_kind */
  uint8_t reserved[3];
} frame_info;

typedef struct tables {
  const tn_frame *frames;
  const uint32_t *refs; /* the stack_frame table */
  const tn_stack *stacks;
  size_t frame_count, stack_count;
} tables;

static tables tables_of(const tn_trace *trace) {
  tables t = {0};
  t.frames = tn_trace_table(trace, TN_TABLE_FRAME, &t.frame_count);
  t.refs = tn_trace_table(trace, TN_TABLE_STACK_FRAME, NULL);
  t.stacks = tn_trace_table(trace, TN_TABLE_STACK, &t.stack_count);
  return t;
}

static void frames_look(const tn_trace *trace, const tables *t, frame_info *info) {
  for (size_t i = 0; i < t->frame_count; i++) {
    const char *file = tn_trace_string(trace, t->frames[i].file), *function = tn_trace_string(trace, t->frames[i].function);
    info[i] = (frame_info){.cues = tn__frame_cues(file, function), .kind = (uint8_t)tn__frame_kind(file, function)};
  }
}

/* ---- groups -------------------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

static uint64_t stack_hash(const tables *t, const tn_stack *stack) {
  uint64_t hash = stack->frames_count;
  for (uint32_t k = 0; k < stack->frames_count; k++) {
    const tn_frame *frame = &t->frames[t->refs[stack->frames_at + k]];
    hash = mix(mix(hash, (uint64_t)frame->file << 32 | frame->function), frame->line);
  }
  return hash;
}

static int groups_find(const tables *t, uint32_t *group) {
  tn_map first;
  tn__map_init(&first);
  int rc = TN_OK;
  for (uint32_t i = 0; i < t->stack_count && !rc; i++) {
    uint64_t hash = stack_hash(t, &t->stacks[i]);
    uint32_t known = tn__map_get(&first, hash);
    group[i] = known == TN_NONE ? i : known;
    if (known == TN_NONE) rc = tn__map_set(&first, hash, i);
  }
  tn__map_deinit(&first);
  return rc;
}

/* ---- cues and places ----------------------------------------------------------------------------------------------------- */

/* Innermost first.  A loss function that calls the model is no loss inside the model; an optimizer whose step() runs a closure does
 * not optimize inside it. */
static uint32_t cues_join(uint32_t inner, uint32_t frame) {
  if (inner & TN__CUE_MODULE) frame &= ~(uint32_t)(TN__CUE_LOSS | TN__CUE_OPTIMIZER);
  if (inner & (TN__CUE_BACKWARD | TN__CUE_RECOMPUTE)) frame &= ~(uint32_t)TN__CUE_OPTIMIZER;
  if (inner & TN__CUE_OPTIMIZER) frame &= ~(uint32_t)(TN__CUE_BACKWARD | TN__CUE_LOSS);
  return inner | frame;
}

static uint32_t stack_cues(const tables *t, const frame_info *info, const tn_stack *stack) {
  uint32_t cues = 0;
  for (uint32_t k = 0; k < stack->frames_count; k++) cues = cues_join(cues, info[t->refs[stack->frames_at + k]].cues);
  return cues;
}

/* The innermost frame of the program, if it is part of a model; else the innermost frame of a package that is (a model of a library);
 * else the innermost of either, of the program first; else of any Python. */
static uint32_t stack_place(const tables *t, const frame_info *info, const tn_stack *stack) {
  uint32_t program = TN_NONE, library = TN_NONE, python = TN_NONE, model = TN_NONE;
  for (uint32_t k = 0; k < stack->frames_count; k++) {
    const frame_info *frame = &info[t->refs[stack->frames_at + k]];
    if (frame->kind == TN__FRAME_CPP) continue;
    if (python == TN_NONE) python = k;
    if (frame->kind == TN__FRAME_PROGRAM && program == TN_NONE) program = k;
    if (frame->kind == TN__FRAME_LIBRARY && library == TN_NONE) library = k;
    if (frame->cues & TN__CUE_MODULE) model = k; /* the outermost call of a module */
  }
  if (model != TN_NONE && program != TN_NONE && program < model) return program;
  if (model != TN_NONE && library != TN_NONE && library < model) return library;
  if (program != TN_NONE) return program;
  return library != TN_NONE ? library : python;
}

static int stacks_fill(tn__stacks *stacks, const tn_trace *trace, const tables *t) {
  frame_info *info = tn__mem_alloc((t->frame_count + 1) * sizeof *info);
  if (!info) return TN_ENOMEM;
  frames_look(trace, t, info);
  for (size_t i = 0; i < t->stack_count; i++) {
    int is_first = stacks->group[i] == i;
    stacks->cues[i] = is_first ? stack_cues(t, info, &t->stacks[i]) : stacks->cues[stacks->group[i]];
    stacks->place[i] = is_first ? stack_place(t, info, &t->stacks[i]) : stacks->place[stacks->group[i]];
  }
  tn__mem_free(info);
  return TN_OK;
}

int tn__stacks_init(tn__stacks *stacks, const tn_trace *trace) {
  tables t = tables_of(trace);
  *stacks = (tn__stacks){.count = t.stack_count};
  stacks->group = tn__mem_alloc((t.stack_count + 1) * sizeof *stacks->group);
  stacks->place = tn__mem_alloc((t.stack_count + 1) * sizeof *stacks->place);
  stacks->cues = tn__mem_alloc((t.stack_count + 1) * sizeof *stacks->cues);
  if (!stacks->group || !stacks->place || !stacks->cues) return TN_ENOMEM;
  TN_TRY(groups_find(&t, stacks->group));
  return stacks_fill(stacks, trace, &t);
}

void tn__stacks_deinit(tn__stacks *stacks) {
  tn__mem_free(stacks->cues);
  tn__mem_free(stacks->place);
  tn__mem_free(stacks->group);
  *stacks = (tn__stacks){0};
}

uint32_t tn__span_group(const tn__stacks *stacks, const tn__span *span) {
  if (span->alloc == TN_NONE && !tn__stacks_cues(stacks, span->stack)) return TN__GROUP_BEFORE;
  return tn__stacks_group(stacks, span->stack);
}

/* ---- as text ------------------------------------------------------------------------------------------------------------- */

static const tn_frame *frame_at(const tables *t, uint32_t stack, uint32_t k) {
  if (stack >= t->stack_count || k >= t->stacks[stack].frames_count) return NULL;
  return &t->frames[t->refs[t->stacks[stack].frames_at + k]];
}

static const char *last_part(const char *path) {
  const char *last = path;
  for (const char *at = path; *at; at++)
    if ((*at == '/' || *at == '\\') && at[1]) last = at + 1;
  return last;
}

int tn__stack_place(const tn_trace *trace, const tn__stacks *stacks, uint32_t stack, tn_text *text) {
  tables t = tables_of(trace);
  const tn_frame *frame = stack < stacks->count ? frame_at(&t, stack, stacks->place[stack]) : NULL;
  if (!frame) return 0;
  tn__text_printf(text, "%s:%u %s", last_part(tn_trace_string(trace, frame->file)), frame->line,
                  tn_trace_string(trace, frame->function));
  return 1;
}

/* The name in "at::_ops::NAME::call(...)", "torch::autograd::generated::NAME::apply(...)": 0 when the function is neither. */
static int op_name(const char *function, const char **out, size_t *out_length) {
  static const char *const scopes[] = {"at::_ops::", "torch::autograd::generated::"};
  for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++) {
    const char *at = strstr(function, scopes[i]);
    if (!at) continue;
    *out = at + strlen(scopes[i]);
    *out_length = strcspn(*out, ":<(");
    return *out_length > 0;
  }
  return 0;
}

/* Outermost of the C++ frames inside the place; the innermost Python frame inside it when there is none. */
void tn__stack_op(const tn_trace *trace, const tn__stacks *stacks, uint32_t stack, tn_text *text) {
  tables t = tables_of(trace);
  if (stack >= stacks->count) return;
  uint32_t end = stacks->place[stack] == TN_NONE ? t.stacks[stack].frames_count : stacks->place[stack];
  const char *name = NULL, *found = NULL;
  size_t length = 0, found_length = 0;
  for (uint32_t k = 0; k < end; k++) {
    const tn_frame *frame = frame_at(&t, stack, k);
    const char *file = tn_trace_string(trace, frame->file), *function = tn_trace_string(trace, frame->function);
    if (tn__frame_kind(file, function) == TN__FRAME_CPP) {
      if (op_name(function, &found, &found_length)) name = found, length = found_length;
    } else if (!name) {
      name = strcmp(function, "forward") == 0 ? last_part(file) : function; /* torch/nn/modules/linear.py: linear */
      length = strcspn(name, ".");
    }
  }
  if (name) tn__text_add_n(text, name, length);
}

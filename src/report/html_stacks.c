/* html_stacks.c -- the stacks that a page speaks of, as one tree of frames.  See html_stacks.h. */
#include "report/html_stacks.h"

#include <string.h>

#include "base/error.h"
#include "base/strings.h"
#include "explain/stacks.h"
#include "report/html_pack.h"

/* Room for frames: of a deep recursion the innermost are kept; a real program's stacks need a tenth of the rest. */
enum { FRAMES_MAX = 96, NODES_MAX = 100000, STRING_BYTES_MAX = 2 << 20, STRING_MAX = 1000 };

void tn__page_stacks_init(tn__page_stacks *page, const tn_trace *trace, const tn__stacks *stacks) {
  *page = (tn__page_stacks){.trace = trace, .stacks = stacks};
  tn__map_init(&page->numbers);
  tn__vec_init(&page->groups, sizeof(uint32_t));
}

void tn__page_stacks_deinit(tn__page_stacks *page) {
  tn__vec_deinit(&page->groups);
  tn__map_deinit(&page->numbers);
}

int tn__page_stacks_number(tn__page_stacks *page, uint32_t group, uint32_t *out_number) {
  uint32_t number = tn__map_get(&page->numbers, group);
  if (number == TN_NONE) {
    number = (uint32_t)page->groups.count;
    TN_TRY(tn__vec_push(&page->groups, &group));
    TN_TRY(tn__map_set(&page->numbers, group, number));
  }
  *out_number = number;
  return TN_OK;
}

/* ---- the tree ------------------------------------------------------------------------------------------------------------ */

/* Columns as tn__pack_column() takes them.  Numbers from 1: 0 is no string, frame or node. */
typedef struct tree {
  const tn__page_stacks *page;
  tn_map strings, frames, nodes; /* page's number by the trace's id; nodes by parent and frame */
  tn_text texts;                 /* JSON, with commas */
  uint64_t string_bytes;
  tn_vec function, file, line;   /* uint64_t by frame */
  tn_vec parent, frame;          /* by node */
  tn_vec node, place, op;        /* by stack; place: of its frames the one that stands for it, + 1; op: in ops */
  tn_strings ops;                /* through which the places allocate */
} tree;

#define TREE_VECS(X) X(function) X(file) X(line) X(parent) X(frame) X(node) X(place) X(op)

static int tree_init(tree *t, const tn__page_stacks *page) {
  *t = (tree){.page = page};
  tn__map_init(&t->strings);
  tn__map_init(&t->frames);
  tn__map_init(&t->nodes);
  tn__text_init(&t->texts);
#define TREE_INIT(name) tn__vec_init(&t->name, sizeof(uint64_t));
  TREE_VECS(TREE_INIT)
#undef TREE_INIT
  return tn__strings_init(&t->ops);
}

static void tree_deinit(tree *t) {
#define TREE_DEINIT(name) tn__vec_deinit(&t->name);
  TREE_VECS(TREE_DEINIT)
#undef TREE_DEINIT
  tn__strings_deinit(&t->ops);
  tn__text_deinit(&t->texts);
  tn__map_deinit(&t->nodes);
  tn__map_deinit(&t->frames);
  tn__map_deinit(&t->strings);
}

static int column_push(tn_vec *column, uint64_t value) { return tn__vec_push(column, &value); }

static int is_full(const tree *t) { return t->parent.count >= NODES_MAX || t->string_bytes >= STRING_BYTES_MAX; }

static int string_number(tree *t, uint32_t id, uint64_t *out) {
  uint32_t number = tn__map_get(&t->strings, id);
  if (number == TN_NONE) {
    const char *text = tn_trace_string(t->page->trace, id);
    size_t len = strnlen(text, STRING_MAX);
    char cut[STRING_MAX + 1];
    memcpy(cut, text, len);
    cut[len] = '\0';
    t->string_bytes += len;
    if (t->strings.count > 0) tn__text_add(&t->texts, ",");
    tn__pack_string(&t->texts, cut);
    number = (uint32_t)t->strings.count + 1;
    TN_TRY(tn__map_set(&t->strings, id, number));
  }
  *out = number;
  return TN_OK;
}

static int frame_number(tree *t, uint32_t id, uint32_t *out) {
  uint32_t number = tn__map_get(&t->frames, id);
  if (number == TN_NONE) {
    const tn_frame *frame = &((const tn_frame *)tn_trace_table(t->page->trace, TN_TABLE_FRAME, NULL))[id];
    uint64_t function = 0, file = 0;
    TN_TRY(string_number(t, frame->function, &function));
    TN_TRY(string_number(t, frame->file, &file));
    TN_TRY(column_push(&t->function, function));
    TN_TRY(column_push(&t->file, file));
    TN_TRY(column_push(&t->line, frame->line));
    number = (uint32_t)t->frames.count + 1;
    TN_TRY(tn__map_set(&t->frames, id, number));
  }
  *out = number;
  return TN_OK;
}

static int node_number(tree *t, uint32_t parent, uint32_t frame, uint32_t *out) {
  uint64_t key = (uint64_t)parent << 32 | frame;
  uint32_t number = tn__map_get(&t->nodes, key);
  if (number == TN_NONE) {
    TN_TRY(column_push(&t->parent, parent));
    TN_TRY(column_push(&t->frame, frame));
    number = (uint32_t)t->nodes.count + 1;
    TN_TRY(tn__map_set(&t->nodes, key, number));
  }
  *out = number;
  return TN_OK;
}

static int op_number(tree *t, uint32_t group, uint32_t *out) {
  tn_text op;
  tn__text_init(&op);
  tn__stack_op(t->page->trace, t->page->stacks, group, &op);
  size_t len = op.len < STRING_MAX ? op.len : STRING_MAX;
  int rc = op.failed ? op.failed : tn__strings_intern(&t->ops, tn__text_view(&op), len, out);
  tn__text_deinit(&op);
  return rc;
}

static int stack_add(tree *t, uint32_t group) {
  const tn_stack *stack = &((const tn_stack *)tn_trace_table(t->page->trace, TN_TABLE_STACK, NULL))[group];
  const uint32_t *frames = tn_trace_table(t->page->trace, TN_TABLE_STACK_FRAME, NULL);
  uint32_t node = 0;
  for (uint32_t i = stack->frames_count < FRAMES_MAX ? stack->frames_count : FRAMES_MAX; i-- > 0;) {
    uint32_t frame;
    TN_TRY(frame_number(t, frames[stack->frames_at + i], &frame));
    TN_TRY(node_number(t, node, frame, &node));
  }
  uint32_t place = t->page->stacks->place[group], op;
  TN_TRY(op_number(t, group, &op));
  TN_TRY(column_push(&t->op, op));
  TN_TRY(column_push(&t->node, node));
  return column_push(&t->place, place < FRAMES_MAX && place < stack->frames_count ? place + 1 : 0);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

static void columns_write(tn_text *out, const char *name, const tn_vec *const *columns, size_t count) {
  tn_text packed;
  tn__text_init(&packed);
  for (size_t i = 0; i < count; i++) tn__pack_column(&packed, TN_VEC(columns[i], uint64_t), columns[i]->count, 1);
  tn__text_printf(out, "\"%s\":{\"count\":%zu,\"data\":\"", name, columns[0]->count);
  tn__pack_base64(out, packed.data, packed.len);
  tn__text_add(out, "\"}");
  if (packed.failed) out->failed = packed.failed;
  tn__text_deinit(&packed);
}

static int tree_fill(tree *t, uint32_t *left_out) {
  const uint32_t *groups = TN_VEC(&t->page->groups, uint32_t);
  *left_out = 0;
  for (size_t i = 0; i < t->page->groups.count; i++) {
    if (!is_full(t)) {
      TN_TRY(stack_add(t, groups[i]));
      continue;
    }
    ++*left_out;
    TN_TRY(column_push(&t->op, 0));
    TN_TRY(column_push(&t->node, 0));
    TN_TRY(column_push(&t->place, 1)); /* 0 for a stack that has no frames */
  }
  return t->texts.failed;
}

int tn__page_stacks_write(const tn__page_stacks *page, tn_text *out, uint32_t *left_out) {
  tree t;
  int rc = tree_init(&t, page);
  if (!rc) rc = tree_fill(&t, left_out);
  if (!rc) {
    tn__text_add(out, "\"strings\":[");
    tn__text_add_n(out, tn__text_view(&t.texts), t.texts.len);
    tn__text_add(out, "],\"ops\":[");
    for (uint32_t i = 0; i < tn__strings_count(&t.ops); i++) {
      if (i) tn__text_add(out, ",");
      tn__pack_string(out, tn__strings_get(&t.ops, i));
    }
    tn__text_add(out, "],");
    columns_write(out, "frames", (const tn_vec *[]){&t.function, &t.file, &t.line}, 3);
    tn__text_add(out, ",");
    columns_write(out, "nodes", (const tn_vec *[]){&t.parent, &t.frame}, 2);
    tn__text_add(out, ",");
    columns_write(out, "stacks", (const tn_vec *[]){&t.node, &t.place, &t.op}, 3);
    rc = out->failed;
  }
  tree_deinit(&t);
  return rc;
}

/* pass_json.c -- see pass_json.h.
 *
 * The schedule speaks of blocks, the run of tensors.  A run op's input is found in one of four ways: a run op made exactly that
 * tensor; it is a parameter, buffer or leaf of the batch; it is a kept slot; or it is a window on one of these, made with
 * as_strided (any view of a storage is one, which saves repeating chains of view ops). */
#include "plan/pass_json.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

typedef struct writer {
  const tn__schedule *schedule;
  const tn__graph *graph;
  tn_text *text;
  tn_text ops, sources, rebuild, hold, random; /* members under construction */
  uint32_t *root_of;    /* per value: the tensor its block held, whole, when it was made; TN_NONE */
  uint8_t *op_done, *source_done, *window_done, *random_done; /* emitted; per op, value, value, random ordinal */
} writer;

static void comma(tn_text *text) {
  if (text->len && text->data[text->len - 1] != '[' && text->data[text->len - 1] != '{') tn__text_add(text, ", ");
}

/* ---- windows ------------------------------------------------------------------------------------------------------------- */

/* From "float32[2,3]/3,1+6" to "[2,3], [3,1], 6"; strides of a contiguous tensor are worked out.  0 when it does not parse. */
static int add_geometry(tn_text *text, const char *meta) {
  const char *shape = strchr(meta, '['), *end = shape ? strchr(shape, ']') : NULL, *strides = end ? strchr(end, '/') : NULL;
  if (!end) return 0;
  tn__text_add_n(text, shape, (size_t)(end - shape) + 1);
  tn__text_add(text, ", [");
  if (strides) {
    const char *plus = strchr(strides, '+');
    size_t n = plus ? (size_t)(plus - strides) : strlen(strides);
    tn__text_add_n(text, strides + 1, n - 1);
    tn__text_printf(text, "], %s", plus ? plus + 1 : "0");
    return 1;
  }
  uint64_t dims[64], stride = 1;
  size_t count = 0;
  for (const char *p = shape + 1; p < end && count < 64;) {
    uint64_t dim = 0;
    while (p < end && *p >= '0' && *p <= '9') dim = dim * 10 + (uint64_t)(*p++ - '0');
    dims[count++] = dim;
    if (p < end) p++;
  }
  for (size_t i = count; i-- > 0;) {
    uint64_t dim = dims[i];
    dims[i] = stride;
    stride *= dim ? dim : 1;
  }
  for (size_t i = 0; i < count; i++) tn__text_printf(text, i ? ",%llu" : "%llu", (unsigned long long)dims[i]);
  tn__text_add(text, "], 0");
  return 1;
}

/* The number of the op that makes value v as a window on value base; emitted once. */
static unsigned long window_op(writer *w, uint32_t v, uint32_t base) {
  unsigned long id = (unsigned long)w->graph->op_count + v;
  if (w->window_done[v]) return id;
  w->window_done[v] = 1;
  comma(&w->ops);
  tn__text_printf(&w->ops, "\"%lu\": {\"op\": \"aten.as_strided.default\", \"call\": {\"args\": [{\"v\": %u}, ", id, base);
  add_geometry(&w->ops, tn_trace_string(w->graph->trace, w->graph->values[v].meta));
  tn__text_printf(&w->ops, "], \"kwargs\": {}}, \"out\": [%u]}", v);
  return id;
}

/* ---- where a tensor comes from ------------------------------------------------------------------------------------------- */

static void add_source(writer *w, uint32_t v, uint32_t slot) {
  if (w->source_done[v]) return;
  w->source_done[v] = 1;
  comma(&w->sources);
  tn__text_printf(&w->sources, "\"%u\": ", v);
  if (slot == TN_NONE) tn__text_json(&w->sources, tn_trace_string(w->graph->trace, w->graph->values[v].source));
  else tn__text_printf(&w->sources, "\"slot:%u\"", w->graph->slots[slot].index);
}

/* The whole tensor from which v, read by a run op (TN_NONE: given back as a slot), can be had as a window: itself when v is at
 * hand already.  Notes the source it needs. */
static uint32_t base_of(writer *w, uint32_t v, uint32_t op) {
  const tn__graph *g = w->graph;
  uint32_t block = g->values[v].block;
  if (!g->block[block].in_pass) {
    uint32_t named = g->values[v].source ? v : g->source[block];
    add_source(w, named, TN_NONE);
    return named;
  }
  if (op == TN_NONE || tn__schedule_reads_made(w->schedule, op, v)) return w->root_of[v] == TN_NONE ? v : w->root_of[v];
  uint32_t slot = g->block[block].source_slot;
  add_source(w, g->slots[slot].value, slot);
  return g->slots[slot].value;
}

/* ---- programs ------------------------------------------------------------------------------------------------------------ */

static void add_number(tn_text *text, unsigned long number) {
  comma(text);
  tn__text_printf(text, "%lu", number);
}

/* Is output, one of the op's, a tensor that running it again makes?  Not a view: windows are made where they are read.  Nor what a kept
 * slot gives: it may be read, and the op that makes it beside another output must not take its place. */
static int is_made(const writer *w, uint32_t op, uint32_t output) {
  const tn__graph *g = w->graph;
  if (!tn__graph_is_written(g, op, output)) return 0;
  uint32_t block = g->values[output].block, source_slot = g->block[block].source_slot;
  return w->schedule->dropped[block] || source_slot == TN_NONE || g->slots[source_slot].value != output;
}

/* Every tensor that run ops have made on the block. */
static void add_block_values(writer *w, tn_text *list, uint32_t block) {
  const tn__graph *g = w->graph;
  const tn__graph_task *task = &g->tasks[g->block[block].task];
  for (uint32_t i = 0; i < task->ops_count; i++) {
    uint32_t op = g->task_ops[task->ops_at + i];
    for (uint32_t o = 0; o < g->ops[op].outputs_count; o++) {
      uint32_t v = g->refs[g->ops[op].outputs_at + o];
      if (is_made(w, op, v) && g->values[v].block == block) add_number(list, v);
    }
  }
}

static void add_op(writer *w, uint32_t op) {
  const tn__graph *g = w->graph;
  const tn_op *o = &g->ops[op];
  if (w->op_done[op]) return;
  w->op_done[op] = 1;
  comma(&w->ops);
  tn__text_printf(&w->ops, "\"%u\": {\"op\": ", op);
  tn__text_json(&w->ops, tn_trace_string(g->trace, o->name));
  tn__text_printf(&w->ops, ", \"call\": %s, \"out\": [", tn_trace_string(g->trace, o->args));
  for (uint32_t i = 0; i < o->outputs_count; i++) {
    uint32_t v = g->refs[o->outputs_at + i];
    if (is_made(w, op, v)) add_number(&w->ops, v);
    else tn__text_add(&w->ops, i ? ", null" : "null");
  }
  tn__text_add(&w->ops, "]");
  int32_t random = g->op_random[op];
  if (random >= 0) tn__text_printf(&w->ops, ", \"rng\": %d", random);
  tn__text_add(&w->ops, "}");
  if (random < 0 || w->random_done[random]) return;
  w->random_done[random] = 1;
  uint32_t probe = g->random_probe[random];
  comma(&w->random);
  if (probe == TN_NONE) tn__text_printf(&w->random, "[-1, %d]", random);
  else tn__text_printf(&w->random, "[%u, %d]", g->slots[probe].index, random);
}

/* The windows an op reads, before it; then the op; then what it was the last to need. */
static void add_run(writer *w, const tn__run *run) {
  const tn__graph *g = w->graph;
  const tn_op *op = &g->ops[run->op];
  tn_text forget;
  tn__text_init(&forget);
  for (uint32_t i = 0; i < op->inputs_count; i++) {
    uint32_t v = g->refs[op->inputs_at + i], base = base_of(w, v, run->op);
    int again = 0;
    for (uint32_t j = 0; j < i; j++) again |= g->refs[op->inputs_at + j] == v;
    if (base == v || again) continue;
    comma(&w->rebuild);
    tn__text_printf(&w->rebuild, "[%lu, []]", window_op(w, v, base));
    add_number(&forget, v);
  }
  for (uint32_t i = 0; i < run->forget_count; i++) add_block_values(w, &forget, w->schedule->forgets[run->forget_at + i]);
  add_op(w, run->op);
  comma(&w->rebuild);
  tn__text_printf(&w->rebuild, "[%u, [%s]]", run->op, tn__text_view(&forget));
  w->rebuild.failed |= forget.failed;
  tn__text_deinit(&forget);
}

static void add_program(writer *w, const tn__program *program) {
  const tn__graph *g = w->graph;
  const tn_slot *slot = &g->slots[program->slot];
  tn_text forget;
  tn__text_init(&forget);
  comma(&w->rebuild);
  tn__text_printf(&w->rebuild, "\"%u\": {\"run\": [", slot->index);
  for (uint32_t r = program->run_at; r < program->run_at + program->run_count; r++) add_run(w, &w->schedule->runs[r]);
  uint32_t base = base_of(w, slot->value, TN_NONE);
  if (base != slot->value) {
    comma(&w->rebuild);
    tn__text_printf(&w->rebuild, "[%lu, []]", window_op(w, slot->value, base));
    add_number(&forget, slot->value);
  }
  for (uint32_t i = 0; i < program->forget_count; i++)
    add_block_values(w, &forget, w->schedule->forgets[program->forget_at + i]);
  tn__text_printf(&w->rebuild, "], \"value\": %u, \"forget\": [%s]}", slot->value, tn__text_view(&forget));
  w->rebuild.failed |= forget.failed;
  tn__text_deinit(&forget);
}

static void add_holds(writer *w) {
  const tn__graph *g = w->graph;
  for (size_t h = 0; h < w->schedule->hold_count; h++) {
    const tn__hold *hold = &w->schedule->holds[h];
    uint32_t slot = g->block[hold->block].source_slot, until = w->schedule->programs[hold->program].slot;
    if (g->slots[slot].pass != g->pass) continue;
    comma(&w->hold);
    tn__text_printf(&w->hold, "\"%u\": [[%u, %u]]", g->slots[slot].index, g->slots[slot].value, g->slots[until].index);
  }
}

static void add_slots(const writer *w) {
  const tn__graph *g = w->graph;
  for (uint32_t k = 0, n = 0; k < g->slot_count; k++) {
    if (g->slots[k].step != g->step || g->slots[k].pass != g->pass) continue;
    if (n++) tn__text_add(w->text, ", ");
    tn__text_add(w->text, "[");
    tn__text_json(w->text, tn_trace_string(g->trace, g->slots[k].signature));
    tn__text_printf(w->text, ", %d]", !w->schedule->dropped[g->slots[k].block]);
  }
}

/* ---- the whole ----------------------------------------------------------------------------------------------------------- */

static void read_roots(writer *w, uint32_t *last) {
  const tn__graph *g = w->graph;
  memset(last, 0xff, (g->block_count + 1) * sizeof *last);
  for (uint32_t v = 0; v < g->value_count; v++) {
    if (!(g->values[v].flags & TN_VALUE_VIEW) && g->values[v].op != TN_NONE) last[g->values[v].block] = v;
    w->root_of[v] = last[g->values[v].block];
  }
}

static int writer_init(writer *w, const tn__schedule *schedule, tn_text *text) {
  const tn__graph *g = schedule->graph;
  *w = (writer){.schedule = schedule, .graph = g, .text = text};
  uint32_t *last = tn__mem_alloc((g->block_count + 1) * sizeof *last);
  w->root_of = tn__mem_alloc((g->value_count + 1) * sizeof *w->root_of);
  w->op_done = tn__mem_zalloc(g->op_count + 1, 1);
  w->source_done = tn__mem_zalloc(g->value_count + 1, 1);
  w->window_done = tn__mem_zalloc(g->value_count + 1, 1);
  w->random_done = tn__mem_zalloc(g->random_count + 1, 1);
  int ok = last && w->root_of && w->op_done && w->source_done && w->window_done && w->random_done;
  if (ok) read_roots(w, last);
  tn__mem_free(last);
  return ok ? TN_OK : TN_ENOMEM;
}

static void writer_deinit(writer *w) {
  tn__mem_free(w->root_of);
  tn__mem_free(w->op_done);
  tn__mem_free(w->source_done);
  tn__mem_free(w->window_done);
  tn__mem_free(w->random_done);
  tn__text_deinit(&w->ops);
  tn__text_deinit(&w->sources);
  tn__text_deinit(&w->rebuild);
  tn__text_deinit(&w->hold);
  tn__text_deinit(&w->random);
}

static void add_member(writer *w, const char *name, char open, const tn_text *member, char close) {
  tn__text_printf(w->text, ",\n \"%s\": %c%s%c", name, open, tn__text_view(member), close);
  w->text->failed |= member->failed;
}

int tn__pass_json(const tn__schedule *schedule, tn_text *text) {
  writer w;
  int rc = writer_init(&w, schedule, text);
  if (rc == TN_OK) {
    for (size_t p = 0; p < schedule->program_count; p++)
      if (w.graph->slots[schedule->programs[p].slot].pass == w.graph->pass) add_program(&w, &schedule->programs[p]);
    add_holds(&w);
    tn__text_add(text, "\"slots\": [");
    add_slots(&w);
    tn__text_add(text, "]");
    add_member(&w, "ops", '{', &w.ops, '}');
    add_member(&w, "sources", '{', &w.sources, '}');
    add_member(&w, "rebuild", '{', &w.rebuild, '}');
    add_member(&w, "hold", '{', &w.hold, '}');
    add_member(&w, "random", '[', &w.random, ']');
    rc = text->failed ? TN_ENOMEM : TN_OK;
  }
  writer_deinit(&w);
  return rc;
}

/* ---- the summary --------------------------------------------------------------------------------------------------------- */

enum { NAME_MAX_BYTES = 200, ROWS_MAX = 256 };

typedef struct row {
  char module[NAME_MAX_BYTES];
  const char *op;
  uint32_t count;
  uint64_t bytes;
  double seconds;
} row;

/* "encoder.layer.7.norm" -> "encoder.layer.*.norm" */
static void star_indices(const char *name, char *out, size_t size) {
  size_t n = 0;
  while (*name && n + 2 < size) {
    size_t part = strcspn(name, ".");
    int is_index = part && strspn(name, "0123456789") == part;
    if (is_index) out[n++] = '*';
    for (size_t i = 0; !is_index && i < part && n + 2 < size; i++) out[n++] = name[i];
    name += part;
    if (*name == '.') out[n++] = *name++;
  }
  out[n] = 0;
}

/* The row of an op; the last row takes what does not fit. */
static row *find_row(const tn__graph *g, row *rows, size_t *count, uint32_t op) {
  char module[NAME_MAX_BYTES] = "";
  const char *name = tn_trace_string(g->trace, g->ops[op].name);
  if (g->ops[op].module != TN_NONE) {
    const tn_module *modules = tn_trace_table(g->trace, TN_TABLE_MODULE, NULL);
    star_indices(tn_trace_string(g->trace, modules[g->ops[op].module].name), module, sizeof module);
  }
  for (size_t i = 0; i < *count; i++)
    if (!strcmp(rows[i].module, module) && !strcmp(rows[i].op, name)) return &rows[i];
  if (*count == ROWS_MAX) return &rows[ROWS_MAX - 1];
  row *made = &rows[(*count)++];
  *made = (row){.op = name};
  memcpy(made->module, module, sizeof module);
  return made;
}

int tn__rebuilt_json(const tn__schedule *schedule, tn_text *text) {
  const tn__graph *g = schedule->graph;
  size_t count = 0;
  row *rows = tn__mem_zalloc(ROWS_MAX, sizeof *rows);
  if (!rows) return TN_ENOMEM;
  for (uint32_t b = 0; b < g->block_count; b++) {
    if (!schedule->dropped[b] || g->slots[g->block[b].slot].pass != g->pass) continue;
    row *r = find_row(g, rows, &count, g->values[g->block[b].root].op);
    r->count++;
    r->bytes += g->block[b].bytes;
  }
  for (size_t i = 0; i < schedule->run_count; i++)
    if (g->ops[schedule->runs[i].op].pass == g->pass)
      find_row(g, rows, &count, schedule->runs[i].op)->seconds += tn__graph_op_seconds(g, schedule->runs[i].op);
  tn__text_add(text, "[");
  for (size_t i = 0; i < count; i++) {
    tn__text_add(text, i ? ",\n  {\"module\": " : "\n  {\"module\": ");
    tn__text_json(text, rows[i].module);
    tn__text_add(text, ", \"op\": ");
    tn__text_json(text, rows[i].op);
    tn__text_printf(text, ", \"count\": %u, \"bytes\": %llu, \"extra_ms\": %.3f}", rows[i].count, (unsigned long long)rows[i].bytes,
                    rows[i].seconds * 1e3);
  }
  tn__text_add(text, "]");
  tn__mem_free(rows);
  return text->failed ? TN_ENOMEM : TN_OK;
}

/* estimate_text.c -- the estimate report for people.  Verdict first: someone reads only that at 3 a.m.  At most 100 columns. */
#include "report/estimate.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 100, BAR = 28, ROWS = 8, NAME_MAX_COLUMNS = 60 };

static const char *const category_notes[TN_CATEGORY_COUNT] = {
    [TN_CATEGORY_PARAMETER] = "weights and buffers",
    [TN_CATEGORY_GRADIENT] = "gradients of the parameters",
    [TN_CATEGORY_OPTIMIZER] = "optimizer state",
    [TN_CATEGORY_ACTIVATION] = "saved in forward for backward",
    [TN_CATEGORY_INPUT] = "the batch",
    [TN_CATEGORY_TEMPORARY] = "in use at this moment only",
    [TN_CATEGORY_WORKSPACE] = "scratch memory of libraries",
    [TN_CATEGORY_COMMUNICATION] = "buffers of collectives",
    [TN_CATEGORY_UNKNOWN] = "not attributed",
};

static double share(uint64_t part, uint64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

/* Right-aligned in width columns. */
static void size_add(tn_text *out, uint64_t bytes, int width) {
  char buf[32];
  tn__text_printf(out, "%*s", width, tn_size_format(bytes, buf, sizeof buf));
}

/* As the command line takes it: "12GiB". */
static void budget_add(tn_text *out, uint64_t bytes) {
  static const char *const units[] = {"GiB", "MiB", "KiB"};
  for (int i = 0; i < 3; i++) {
    uint64_t unit = UINT64_C(1) << (30 - 10 * i);
    if (bytes % unit) continue;
    tn__text_printf(out, "%llu%s", (unsigned long long)(bytes / unit), units[i]);
    return;
  }
  tn__text_printf(out, "%llu", (unsigned long long)bytes);
}

/* The end of a long name says more than its beginning. */
static void clipped_add(tn_text *out, const char *name, size_t width) {
  size_t length = strlen(name);
  if (length <= width) {
    tn__text_add(out, name);
    return;
  }
  tn__text_add(out, "...");
  tn__text_add(out, name + length - (width - 3));
}

/* "aten.addmm" for "aten.addmm.default": only other overloads are worth the room. */
static void op_add(tn_text *out, const char *name, size_t width) {
  static const char tail[] = ".default";
  size_t length = strlen(name), tail_length = sizeof tail - 1;
  char short_name[128];
  if (length > tail_length && length < sizeof short_name && strcmp(name + length - tail_length, tail) == 0) {
    memcpy(short_name, name, length - tail_length);
    short_name[length - tail_length] = '\0';
    name = short_name;
  }
  clipped_add(out, name, width);
}

static void title_add(const tn__report *report, tn_text *out) {
  const char *recipe = tn__report_meta(report, "recipe"), *batch = tn__report_meta(report, "batch_size");
  tn_text line;
  tn__text_init(&line);
  tn__text_printf(&line, "%s on %s", *recipe ? recipe : "training", report->profile->name);
  if (*batch) tn__text_printf(&line, ", batch %s", batch);
  const char *precision = tn__report_meta(report, "precision");
  if (*precision && strcmp(precision, "as is") != 0) tn__text_printf(&line, ", precision %s", precision);
  if (line.failed) out->failed = line.failed;
  tn__text_wrap(out, tn__text_view(&line), 2, WIDTH);
  tn__text_deinit(&line);
  tn__text_add(out, "\n\n");
}

/* "the h200 (139.80 GiB)" or "the budget of 12.00 GiB" */
static void limit_add(const tn__report *report, tn_text *out) {
  if (report->has_budget) {
    tn__text_add(out, "the budget of ");
    tn__text_size(out, report->limit_bytes);
    return;
  }
  if (report->is_host)
    tn__text_add(out, "this machine's memory (");
  else
    tn__text_printf(out, "the %s (", report->profile->name);
  tn__text_size(out, report->limit_bytes);
  tn__text_add(out, ")");
}

static void remedy_add(const tn__report *report, tn_text *out) {
  const char *recipe = tn__report_meta(report, "recipe");
  tn__text_printf(out, "  To make it fit: tonnage fit %s", *recipe ? recipe : "RECIPE");
  if (report->has_budget) {
    tn__text_add(out, " --budget ");
    budget_add(out, report->limit_bytes);
  }
  tn__text_add(out, "\n");
}

static void verdict_add(const tn__report *report, tn_text *out) {
  tn__text_add(out, report->verdict == TN__FITS ? "FITS " : report->verdict == TN__FITS_TIGHTLY ? "FITS TIGHTLY " : "DOES NOT FIT ");
  limit_add(report, out);
  tn__text_add(out, ": needs ");
  tn__text_size(out, report->need_bytes);
  if (report->verdict == TN__FITS) {
    tn__text_add(out, ", ");
    tn__text_size(out, report->limit_bytes - report->need_bytes);
    tn__text_add(out, " to spare.\n");
    return;
  }
  tn__text_add(out, ", ");
  tn__text_size(out, report->need_bytes - report->limit_bytes);
  if (report->verdict == TN__FITS_NOT) {
    tn__text_add(out, " too much.\n");
  } else {
    tn__text_printf(out, " over, so the allocator has\n  to give memory back and ask again (%llu times in %u steps), which is slow.\n",
                    (unsigned long long)report->retries, report->step_count);
  }
  remedy_add(report, out);
}

static void levels_add(const tn__report *report, tn_text *out) {
  const tn_peak *peak = &report->peak;
  tn__text_printf(out, "\nPeak of %s step\n", report->step_count > 1 && peak->step == 0 ? "the first" : "a training");
  tn__text_add(out, "  allocated   ");
  size_add(out, peak->allocated_bytes, 12);
  if (report->is_host) {
    tn__text_add(out, "  live tensors\n");
    return;
  }
  tn__text_add(out, "  live tensors, rounded up as the allocator does\n  reserved    ");
  size_add(out, peak->reserved_bytes, 12);
  uint64_t cached = peak->reserved_bytes - peak->allocated_bytes;
  tn__text_add(out, "  segments it holds for them; ");
  tn__text_size(out, cached);
  tn__text_printf(out, " (%.1f %%) more than allocated\n  device-used ", share(cached, peak->reserved_bytes));
  size_add(out, peak->device_used_bytes, 12);
  tn__text_add(out, "  reserved + ");
  tn__text_size(out, report->profile->context_bytes);
  tn__text_add(out, " of CUDA context: what nvidia-smi shows\n");
}

static void place_add(const tn__report *report, tn_text *out) {
  uint32_t op = report->peak.op;
  if (op == TN_NONE) return;
  const char *module = tn__report_module(report, op), *class_name = tn__report_class(report, op);
  tn_text line;
  tn__text_init(&line);
  tn__text_printf(&line, "It is reached in %s, at ", tn__report_phase(report, op));
  op_add(&line, tn__report_op(report, op), NAME_MAX_COLUMNS);
  if (*module) {
    tn__text_add(&line, " of ");
    clipped_add(&line, module, NAME_MAX_COLUMNS);
  }
  if (*class_name) {
    tn__text_add(&line, " (");
    clipped_add(&line, class_name, NAME_MAX_COLUMNS);
    tn__text_add(&line, ")");
  }
  tn__text_add(&line, ".");
  if (line.failed) out->failed = line.failed;
  tn__text_add(out, "  ");
  tn__text_wrap(out, tn__text_view(&line), 4, WIDTH);
  tn__text_add(out, "\n");
  tn__text_deinit(&line);
}

/* Categories in order of size; only those that hold something. */
static void categories_add(const tn__report *report, tn_text *out) {
  const tn_peak *peak = &report->peak;
  tn__text_add(out, "\nWhat is allocated at the peak         share\n");
  int shown[TN_CATEGORY_COUNT] = {0};
  for (;;) {
    int largest = -1;
    for (int i = 0; i < TN_CATEGORY_COUNT; i++) {
      if (shown[i] || !peak->by_category[i]) continue;
      if (largest < 0 || peak->by_category[i] > peak->by_category[largest]) largest = i;
    }
    if (largest < 0) break;
    shown[largest] = 1;
    uint64_t bytes = peak->by_category[largest];
    size_t bar = (size_t)(share(bytes, peak->allocated_bytes) / 100 * BAR + 0.5);
    tn__text_printf(out, "  %-14s", tn_category_name(largest));
    size_add(out, bytes, 12);
    tn__text_printf(out, "   %5.1f %%  ", share(bytes, peak->allocated_bytes));
    tn__text_fill(out, '#', bar);
    tn__text_tab(out, 41 + BAR);
    tn__text_printf(out, "%s\n", category_notes[largest]);
  }
}

static const char *name_of(const tn__report *report, uint32_t id) { return tn__strings_get(&report->names, id); }

static void module_row_write(tn_text *out, const tn__module_row *row, uint64_t whole, const char *path, const char *class_name) {
  enum { ROOM = WIDTH - 61 };
  tn__text_add(out, "  ");
  size_add(out, row->bytes, 12);
  tn__text_printf(out, " %6.1f %%", share(row->bytes, whole));
  size_add(out, row->state_bytes, 12);
  size_add(out, row->saved_bytes, 12);
  size_add(out, row->bytes - row->state_bytes - row->saved_bytes, 12);
  tn__text_add(out, "  ");
  char like[64] = "";
  if (row->count > 1)
    (void)snprintf(like, sizeof like, " (%u x %s)", row->count, class_name);
  else if (*class_name)
    (void)snprintf(like, sizeof like, " (%s)", class_name);
  size_t length = strlen(like) <= ROOM / 2 ? strlen(like) : 0; /* a class too long to show is left out */
  clipped_add(out, path, ROOM - length);
  tn__text_printf(out, "%.*s\n", (int)length, like);
}

static void modules_add(const tn__report *report, tn_text *out) {
  const tn__module_row *rows = TN_VEC(&report->modules, tn__module_row);
  if (!report->modules.count) return;
  tn__text_add(out, "\nModules that hold it     share       state       saved       other  module\n");
  tn__module_row rest = {0};
  for (size_t i = 0; i < report->modules.count; i++) {
    if (i < ROWS || report->modules.count == ROWS + 1) {
      const char *path = name_of(report, rows[i].path), *class_name = name_of(report, rows[i].class_name);
      if (!*path) path = *class_name ? "the model itself" : "outside any module";
      module_row_write(out, &rows[i], report->peak.allocated_bytes, path, class_name);
      continue;
    }
    rest.bytes += rows[i].bytes;
    rest.state_bytes += rows[i].state_bytes;
    rest.saved_bytes += rows[i].saved_bytes;
  }
  if (!rest.bytes) return;
  char label[48];
  (void)snprintf(label, sizeof label, "%zu others", report->modules.count - ROWS);
  module_row_write(out, &rest, report->peak.allocated_bytes, label, "");
}

static void saved_row_write(tn_text *out, const tn__saved_row *row, uint64_t whole, const char *op, const char *path) {
  enum { ROOM = WIDTH - 32, OP_ROOM = 44 };
  tn__text_add(out, "  ");
  size_add(out, row->bytes, 12);
  tn__text_printf(out, " %6.1f %% %6llu  ", share(row->bytes, whole), (unsigned long long)row->count);
  size_t before = out->len;
  op_add(out, op, OP_ROOM);
  if (*path) {
    size_t used = out->len - before + 4;
    tn__text_add(out, " of ");
    clipped_add(out, path, ROOM - (used < ROOM ? used : ROOM));
  }
  tn__text_add(out, "\n");
}

static void saved_add(const tn__report *report, tn_text *out) {
  const tn__saved_row *rows = TN_VEC(&report->saved, tn__saved_row);
  uint64_t whole = report->peak.by_category[TN_CATEGORY_ACTIVATION];
  if (!report->saved.count) return;
  tn__text_add(out, "\nSaved for backward       share  count  made by\n");
  tn__saved_row rest = {0};
  for (size_t i = 0; i < report->saved.count; i++) {
    if (i < ROWS || report->saved.count == ROWS + 1) {
      saved_row_write(out, &rows[i], whole, name_of(report, rows[i].op), name_of(report, rows[i].path));
      continue;
    }
    rest.bytes += rows[i].bytes;
    rest.count += rows[i].count;
  }
  if (!rest.bytes) return;
  char label[48];
  (void)snprintf(label, sizeof label, "%zu others", report->saved.count - ROWS);
  saved_row_write(out, &rest, whole, label, "");
}

/* "The first step peaks at 1.81 GiB, in forward, 643.29 MiB lower: optimizer state (835.53 MiB) is made at its end." */
static void first_step_add(const tn__report *report, tn_text *out) {
  uint64_t first = report->first.allocated_bytes, peak = report->peak.allocated_bytes;
  tn__text_add(out, "The first step peaks at ");
  tn__text_size(out, first);
  const char *phase = tn__report_phase(report, report->first.op);
  if (*phase) tn__text_printf(out, ", in %s", phase);
  if (report->peak.step == 0) {
    tn__text_add(out, ", higher than the later ones.\n");
    return;
  }
  if (first == peak) {
    tn__text_add(out, ", as high as the others.\n");
    return;
  }
  tn__text_add(out, ", ");
  tn__text_size(out, peak - first);
  tn__text_add(out, " lower");
  uint64_t optimizer = report->peak.by_category[TN_CATEGORY_OPTIMIZER];
  if (optimizer) {
    tn__text_add(out, ": optimizer state (");
    tn__text_size(out, optimizer);
    tn__text_add(out, ") is made at its end");
  }
  tn__text_add(out, ".\n");
}

static void steps_add(const tn__report *report, tn_text *out) {
  tn__text_add(out, "\nBetween steps ");
  tn__text_size(out, report->peak.persistent_bytes);
  tn__text_add(out, " stay allocated.\n");
  if (report->step_count > 1) first_step_add(report, out);
}

void tn__report_text(const tn__report *report, tn_text *out) {
  title_add(report, out);
  verdict_add(report, out);
  levels_add(report, out);
  place_add(report, out);
  categories_add(report, out);
  modules_add(report, out);
  saved_add(report, out);
  steps_add(report, out);
}

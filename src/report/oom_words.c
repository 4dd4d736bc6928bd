/* oom_words.c -- the verdict on an out-of-memory message, in words.  Every sentence is about these numbers; what they do not show
 * is not said. */
#include <stdio.h>
#include <string.h>

#include "report/oom.h"

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

static int knows(const tn_oom *oom, enum tn_oom_reading reading) { return tn__oom_knows(oom, reading); }

/* ---- small things -------------------------------------------------------------------------------------------------------- */

static void bytes_add(tn_text *out, int64_t bytes) { tn__text_size(out, bytes > 0 ? (uint64_t)bytes : 0); }

void tn__oom_words_span(tn_text *out, tn__oom_span size) {
  bytes_add(out, size.mid);
  if (size.slack <= MIB || size.slack <= size.mid / 50) return;
  tn__text_add(out, " (+-");
  bytes_add(out, size.slack);
  tn__text_add(out, ")");
}

static double percent(int64_t part, int64_t whole) { return whole > 0 && part > 0 ? 100.0 * (double)part / (double)whole : 0; }

void tn__oom_words_device(tn_text *out, const tn_oom *oom) {
  static const char *const gpus[] = {"cuda", "hip", "xpu", "musa", "", "gpu"};
  if (oom->form == TN_OOM_FORM_MPS || strcmp(oom->backend, "mps") == 0) {
    tn__text_add(out, "Metal");
    return;
  }
  char name[sizeof oom->backend] = "GPU";
  int is_gpu = 0;
  for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) is_gpu |= strcmp(oom->backend, gpus[i]) == 0;
  for (size_t i = 0; !is_gpu && i < sizeof name; i++)
    name[i] = (char)(oom->backend[i] >= 'a' && oom->backend[i] <= 'z' ? oom->backend[i] - 'a' + 'A' : oom->backend[i]);
  if (oom->device < 0)
    tn__text_add(out, "the device");
  else
    tn__text_printf(out, "%s %d", name, (int)oom->device);
}

uint64_t tn__oom_budget(const tn__oom_verdict *verdict) {
  const tn_oom *oom = verdict->oom;
  const tn__oom_account *a = &verdict->account;
  if (oom->form == TN_OOM_FORM_MPS || verdict->cause == TN_OOM_CAUSE_SPILLED || verdict->cause == TN_OOM_CAUSE_LIMIT) return 0;
  if (knows(oom, TN_OOM_PROCESS) && knows(oom, TN_OOM_FREE))
    return oom->sizes[TN_OOM_PROCESS].bytes + oom->sizes[TN_OOM_FREE].bytes;
  if (!a->has_capacity) return 0;
  int64_t beyond = tn__oom_held(a, TN__OOM_PART_UNSEEN) - GIB; /* of what is unseen, a context of ours is part */
  int64_t left = a->capacity.mid - tn__oom_held(a, TN__OOM_PART_OTHERS) - (beyond > 0 ? beyond : 0);
  return left > 0 ? (uint64_t)left : 0;
}

/* ---- line 1: what was asked ---------------------------------------------------------------------------------------------- */

static void tag_add(tn_text *out, const char *name) {
  for (; *name; name++) {
    char c = (char)(*name >= 'a' && *name <= 'z' ? *name - 'a' + 'A' : *name);
    tn__text_add_n(out, &c, 1);
  }
  tn__text_add(out, ": ");
}

static void shortage_add(tn_text *out, const tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  if (!a->has_room) {
    tn__text_add(out, ".");
    return;
  }
  tn__text_add(out, a->room_is_limit ? "; the limit left " : a->room_is_bound ? "; at most " : "; ");
  bytes_add(out, a->room.mid);
  tn__text_add(out, a->room_is_limit ? "" : " was free");
  if (a->has_short && a->short_by.mid > 0 && v->cause != TN_OOM_CAUSE_TOO_LARGE) {
    tn__text_add(out, ", ");
    bytes_add(out, a->short_by.mid);
    tn__text_add(out, " short");
  } else if (a->has_short && a->short_by.mid <= 0 && !a->room_is_bound) {
    tn__text_add(out, ", enough");
  }
  tn__text_add(out, ".");
}

void tn__oom_words_asked(tn_text *out, const tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  int is_host = v->cause == TN_OOM_CAUSE_HOST;
  tag_add(out, tn_oom_cause_name((int)v->cause));
  if (!a->has_asked) {
    tn__text_printf(out, "%s", v->oom->name);
    if (v->oom->device >= 0) {
      tn__text_add(out, " on ");
      tn__oom_words_device(out, v->oom);
    }
    tn__text_add(out, v->oom->form == TN_OOM_FORM_SIZE ? "." : "; the message does not say what was asked for.");
    return;
  }
  tn__oom_words_span(out, a->asked);
  tn__text_add(out, is_host ? " was asked of the host's memory" : " was asked of ");
  if (!is_host) tn__oom_words_device(out, v->oom);
  if (a->has_capacity) tn__text_add(out, " ("), bytes_add(out, a->capacity.mid), tn__text_add(out, ")");
  if (v->oom->form != TN_OOM_FORM_CACHING && v->oom->form != TN_OOM_FORM_ASYNC && v->oom->form != TN_OOM_FORM_MPS)
    tn__text_printf(out, " (%s)", v->oom->name);
  shortage_add(out, v);
}

/* ---- line 2: who holds it ------------------------------------------------------------------------------------------------ */

const char *tn__oom_words_part(const tn_oom *oom, int part) {
  static const char *const words[TN__OOM_PART_COUNT] = {
      [TN__OOM_PART_LIVE] = "live tensors",
      [TN__OOM_PART_PIECES] = "unused pieces",
      [TN__OOM_PART_POOLS] = "private pools",
      [TN__OOM_PART_OUTSIDE] = "outside PyTorch",
      [TN__OOM_PART_OTHERS] = "other processes",
      [TN__OOM_PART_UNSEEN] = "unseen",
      [TN__OOM_PART_FREE] = "free",
  };
  return part == TN__OOM_PART_OTHERS && oom->form == TN_OOM_FORM_MPS ? "other allocations" : words[part];
}

const char *tn__oom_words_part_note(const tn_oom *oom, int part) {
  static const char *const notes[TN__OOM_PART_COUNT] = {
      [TN__OOM_PART_LIVE] = "allocated, rounded up",
      [TN__OOM_PART_PIECES] = "unallocated, between live blocks",
      [TN__OOM_PART_POOLS] = "unused, kept for CUDA graphs",
      [TN__OOM_PART_OUTSIDE] = "context, NCCL, other libraries",
      [TN__OOM_PART_OTHERS] = "as the driver lists them",
      [TN__OOM_PART_UNSEEN] = "in no reading of the message",
      [TN__OOM_PART_FREE] = "",
  };
  return part == TN__OOM_PART_OTHERS && oom->form == TN_OOM_FORM_MPS ? "on Metal, but not PyTorch's" : notes[part];
}

static int largest_part(const tn__oom_account *a, uint32_t among) {
  int largest = -1;
  for (int i = 0; i < TN__OOM_PART_COUNT; i++)
    if (among >> i & 1 && (largest < 0 || a->parts[i].mid > a->parts[largest].mid)) largest = i;
  return largest;
}

/* The parts that matter, the largest first, as many as a line has room for. */
static void parts_add(tn_text *out, const tn__oom_verdict *v) {
  enum { ROOM = TN__OOM_WIDTH - 4 };
  const tn__oom_account *a = &v->account;
  uint32_t left = a->known & ~(1u << TN__OOM_PART_FREE);
  size_t begin = out->len;
  for (int part; (part = largest_part(a, left)) >= 0; left &= ~(1u << part)) {
    char size[32], cell[80];
    int is_first = out->len == begin;
    if (!is_first && percent(a->parts[part].mid, a->capacity.mid) < 0.5) break;
    tn_size_format(a->parts[part].mid > 0 ? (uint64_t)a->parts[part].mid : 0, size, sizeof size);
    (void)snprintf(cell, sizeof cell, "%s%s %s", is_first ? "Held by " : ", ", tn__oom_words_part(v->oom, part), size);
    if (out->len - begin + strlen(cell) > ROOM) break;
    tn__text_add(out, cell);
    if (is_first && a->has_capacity) tn__text_printf(out, " (%.0f %%)", percent(a->parts[part].mid, a->capacity.mid));
  }
  tn__text_add(out, ".");
}

/* "A limit on this process of 352.00 to 450.00 MiB (8.6 to 11.0 %) ..." */
static void hidden_limit_add(tn_text *out, const tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  int64_t low = (int64_t)v->oom->sizes[TN_OOM_RESERVED].bytes, high = low + a->asked.mid;
  tn__text_add(out, "A limit of ");
  bytes_add(out, low);
  tn__text_add(out, " to ");
  bytes_add(out, high);
  if (a->has_capacity) tn__text_printf(out, " (%.1f to %.1f %%)", percent(low, a->capacity.mid), percent(high, a->capacity.mid));
  tn__text_add(out, " on this process would explain it.");
}

static void printed_limit_add(tn_text *out, const tn__oom_verdict *v) {
  const tn_oom *oom = v->oom;
  tn__text_add(out, "This process may reserve ");
  tn__text_size(out, oom->sizes[TN_OOM_ALLOWED].bytes);
  if (knows(oom, TN_OOM_RESERVED)) {
    tn__text_add(out, " and has ");
    tn__text_size(out, oom->sizes[TN_OOM_RESERVED].bytes);
  }
  if (knows(oom, TN_OOM_FREE)) {
    tn__text_add(out, "; the device has ");
    tn__text_size(out, oom->sizes[TN_OOM_FREE].bytes);
    tn__text_add(out, " free");
  }
  tn__text_add(out, ".");
}

/* Where there are no numbers to show: what kind of failure it is. */
static const char *kind_words(const tn__oom_verdict *v) {
  const tn_oom *oom = v->oom;
  int is_start = (int)(oom->moments >> TN_OOM_MOMENT_START & 1);
  switch ((enum tn_oom_form)oom->form) {
    case TN_OOM_FORM_LIBRARY:
      return oom->flags & TN_OOM_SOFT ? "Often a library that found no room beside PyTorch's memory; it has other causes too."
                                      : "The library allocates beside PyTorch, whose reserved memory left it no room.";
    case TN_OOM_FORM_COLLECTIVE:
      return "Its buffers are allocated beside PyTorch, whose reserved memory left them no room.";
    case TN_OOM_FORM_DRIVER:
      if (v->cause == TN_OOM_CAUSE_HOST) return "Page-locking a batch failed: that is host memory, whatever the error calls it.";
      if (strncmp(oom->name, "cuda runtime", 12) == 0)
        return "torch before 1.0 says no more: the device was full, or the page-locked host memory.";
      return is_start ? "It failed at the first use of the device: what fills it was there before."
                      : "Not PyTorch's allocator asked, but a context, a library, or page-locked host memory.";
    case TN_OOM_FORM_PINNED:
      return "Page-locked host memory ran out, not the device's.";
    case TN_OOM_FORM_HOST:
      return "The machine's own memory ran out, not a device's.";
    case TN_OOM_FORM_SHARED:
      return "The host's shared memory (/dev/shm) ran out; the data loader's workers pass batches there.";
    case TN_OOM_FORM_KILLED:
      return oom->flags & TN_OOM_SOFT ? "A process was ended by SIGKILL, as the system does when the machine's memory runs out."
                                      : "The system ended a process because the machine's memory ran out, not a device's.";
    case TN_OOM_FORM_ASSERT:
      return v->cause == TN_OOM_CAUSE_DEFECT
                 ? "A check inside PyTorch's allocator failed: a fault there, often met when memory is short."
                 : "Memory ran out, and so did the report: no process list from the driver (MIG slice, Jetson).";
    case TN_OOM_FORM_SIZE:
      return "No machine has that: the size was computed wrongly, or came broken from another rank.";
    case TN_OOM_FORM_BARE:
      return "The text says that memory ran out, and no more.";
    default:
      return "The message has no numbers on who holds the memory.";
  }
}

void tn__oom_words_held(tn_text *out, const tn__oom_verdict *v) {
  if (v->cause == TN_OOM_CAUSE_LIMIT && v->is_inferred)
    hidden_limit_add(out, v);
  else if (v->cause == TN_OOM_CAUSE_LIMIT)
    printed_limit_add(out, v);
  else if (strcmp(v->oom->name, "Invalid buffer size") == 0)
    tn__text_add(out, "One buffer may not be as large as that, however much is free.");
  else if (v->account.known & ~(1u << TN__OOM_PART_FREE))
    parts_add(out, v);
  else
    tn__text_add(out, kind_words(v));
}

/* ---- line 3: what to do -------------------------------------------------------------------------------------------------- */

static const tn_oom_process *largest_other(const tn_oom *oom) {
  const tn_oom_process *largest = NULL;
  uint32_t count = oom->process_count < TN_OOM_PROCESSES_MAX ? oom->process_count : TN_OOM_PROCESSES_MAX;
  for (uint32_t i = 0; i < count; i++) {
    const tn_oom_process *process = &oom->processes[i];
    if (!process->known || process->is_self) continue;
    if (!largest || process->used.bytes > largest->used.bytes) largest = process;
  }
  return largest;
}

static void do_limit(tn_text *out, const tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  int64_t need = (int64_t)v->oom->sizes[TN_OOM_RESERVED].bytes + a->asked.mid;
  tn__text_add(out, "raise the limit");
  if (!a->has_asked || (!v->is_inferred && !knows(v->oom, TN_OOM_RESERVED)))
    tn__text_printf(out, ": torch.%s.set_per_process_memory_fraction(1.0)", tn__oom_words_module(v->oom));
  else if (v->is_inferred)
    tn__text_add(out, " (set_per_process_memory_fraction, or what calls it)");
  else {
    tn__text_add(out, " to ");
    bytes_add(out, need);
    tn__text_add(out, " or more");
    if (a->has_capacity)
      tn__text_printf(out, " (a fraction of %.3f)", (double)need / (double)(a->capacity.mid ? a->capacity.mid : 1) + 0.0005);
  }
  tn__text_add(out, ".");
}

static void do_others(tn_text *out, const tn__oom_verdict *v) {
  const tn_oom_process *largest = largest_other(v->oom);
  if (!largest) {
    tn__text_add(out, v->oom->form == TN_OOM_FORM_MPS
                          ? "close the programs that use the GPU, or free what this one keeps there outside PyTorch."
                          : "see nvidia-smi for who fills the device, and use another or end them.");
    return;
  }
  tn__text_printf(out, "end or move process %llu, which holds ", (unsigned long long)largest->pid);
  tn__text_size(out, largest->used.bytes);
  tn__text_add(out, (int64_t)largest->used.bytes >= v->account.short_by.mid ? "; without it the request fits." : ", and others.");
}

static void do_expandable(tn_text *out, const tn__oom_verdict *v, const tn__oom_action *action) {
  if (action->enough == TN__OOM_ENOUGH_NO) {
    tn__text_add(out, "record a memory snapshot: expandable segments are on, and yet so much lies in pieces.");
    return;
  }
  tn__oom_words_command(out, v, action);
  if (v->account.has_short && v->account.short_by.mid > 0)
    tn__text_printf(out, "; needs %.0f %% of the pieces.", percent(v->account.short_by.mid, action->gives.mid));
}

/* What the pieces cannot give has to come from the tensors, or from the request itself. */
static int do_pieces(tn_text *out, const tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  for (size_t i = 0; i < v->action_count; i++) {
    const tn__oom_action *action = &v->actions[i];
    if (action->id != TN__OOM_ACTION_EXPANDABLE || v->oom->flags & TN_OOM_EXPANDABLE) continue;
    if (action->gives.mid >= a->short_by.mid || action->gives.mid < a->short_by.mid / 2) continue;
    tn__oom_words_command(out, v, action);
    tn__text_add(out, ", and ");
    bytes_add(out, a->short_by.mid - action->gives.mid);
    tn__text_add(out, " less asked or live.");
    return 1;
  }
  return 0;
}

static void do_tensors(tn_text *out, const tn__oom_verdict *v) {
  const tn__oom_account *a = &v->account;
  int64_t live = tn__oom_held(a, TN__OOM_PART_LIVE);
  double share = percent(a->short_by.mid, live);
  if (a->has_short && a->short_by.mid > 0 && do_pieces(out, v)) return;
  if (!a->has_short || a->short_by.mid <= 0) {
    tn__text_add(out, "shrink live tensors: ");
  } else if (share < 1) {
    tn__text_add(out, "the device is full; make room for more than this request: ");
  } else if (share < 100) {
    tn__text_add(out, "shrink live tensors by ");
    bytes_add(out, a->short_by.mid);
    tn__text_printf(out, " (%.1f %%) or more: ", share);
  } else {
    tn__text_add(out, "make this request smaller by ");
    bytes_add(out, a->short_by.mid - live);
    tn__text_add(out, " at least, even with nothing else live.");
    return;
  }
  tn__oom_words_fit(out, v);
}

static void do_first(tn_text *out, const tn__oom_verdict *v, const tn__oom_action *action) {
  switch ((enum tn__oom_action_id)action->id) {
    case TN__OOM_ACTION_LIMIT:
      do_limit(out, v);
      break;
    case TN__OOM_ACTION_OTHERS:
      do_others(out, v);
      break;
    case TN__OOM_ACTION_REBUILD:
      do_tensors(out, v);
      break;
    case TN__OOM_ACTION_SPLIT:
      tn__text_add(out, "make this one allocation smaller; no setting makes it fit.");
      break;
    case TN__OOM_ACTION_EXPANDABLE:
      do_expandable(out, v, action);
      break;
    default:
      tn__oom_words_command(out, v, action);
      break;
  }
}

void tn__oom_words_do(tn_text *out, const tn__oom_verdict *v) {
  tn__text_add(out, "Do: ");
  if (v->first >= 0) {
    do_first(out, v, &v->actions[v->first]);
    return;
  }
  switch (v->cause) {
    case TN_OOM_CAUSE_REFUSED:
      if (v->oom->flags & TN_OOM_UNTOLD) {
        tn__text_add(out, "raise what Windows or WSL allows: a larger page file, or memory= in .wslconfig.");
        break;
      }
      tn__text_add(out, v->account.room_is_bound || strcmp(v->oom->backend, "xpu") == 0
                            ? "ask for less at once: a device may bound one allocation, and others hold the rest."
                            : "run it again alone on the device: the memory was taken, or given back, at that moment.");
      break;
    default:
      if (v->oom->form == TN_OOM_FORM_BARE)
        tn__text_add(out, "find the whole message; it has the numbers that tell.");
      else if (v->oom->form == TN_OOM_FORM_ASSERT)
        tn__text_add(out, "need less than the slice has: tonnage fit RECIPE --budget SIZE");
      else
        tn__text_add(out, "see who is on the device when it fails; then: tonnage fit RECIPE --budget SIZE");
  }
}

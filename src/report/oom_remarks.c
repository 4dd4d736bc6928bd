/* oom_remarks.c -- actions in words, and what the reader should know of how the numbers came about. */
#include <string.h>

#include "report/oom.h"

#define MIB (INT64_C(1) << 20)

static int knows(const tn_oom *oom, enum tn_oom_reading reading) { return tn__oom_knows(oom, reading); }
static void bytes_add(tn_text *out, int64_t bytes) { tn__text_size(out, bytes > 0 ? (uint64_t)bytes : 0); }

/* ---- actions ------------------------------------------------------------------------------------------------------------- */

static const char *const titles[TN__OOM_ACTION_COUNT] = {
    [TN__OOM_ACTION_LIMIT] = "Raise this process's limit",
    [TN__OOM_ACTION_STRAYS] = "Keep other ranks off this device",
    [TN__OOM_ACTION_OTHERS] = "End or move the other processes",
    [TN__OOM_ACTION_UNSEEN] = "Find who holds what is unseen",
    [TN__OOM_ACTION_EXPANDABLE] = "Expandable segments",
    [TN__OOM_ACTION_EMPTY_CACHE] = "empty_cache()",
    [TN__OOM_ACTION_POOLS] = "Release private pools",
    [TN__OOM_ACTION_OUTSIDE] = "Shrink what is outside PyTorch",
    [TN__OOM_ACTION_HEADROOM] = "Leave room beside PyTorch",
    [TN__OOM_ACTION_NO_GRAD] = "Evaluate without autograd",
    [TN__OOM_ACTION_FOREACH] = "Step the optimizer without copies",
    [TN__OOM_ACTION_MAP_LOCATION] = "Load checkpoints to the host",
    [TN__OOM_ACTION_HOST_STATE] = "Save from the host",
    [TN__OOM_ACTION_HOST_SHARE] = "Need less host memory",
    [TN__OOM_ACTION_SHARED] = "More shared memory",
    [TN__OOM_ACTION_DEFECT] = "Work around it",
    [TN__OOM_ACTION_SPLIT] = "Make this one allocation smaller",
    [TN__OOM_ACTION_REBUILD] = "Rebuild activations in backward",
    [TN__OOM_ACTION_MICRO_BATCH] = "Smaller micro-batches",
    [TN__OOM_ACTION_SHARD] = "Shard or offload model state",
    [TN__OOM_ACTION_PRECISION] = "bf16 autocast, 8-bit optimizer",
};

void tn__oom_words_action(tn_text *out, const tn__oom_verdict *verdict, const tn__oom_action *action) {
  (void)verdict;
  tn__text_add(out, titles[action->id]);
}

static void missing_add(tn_text *out, const tn__oom_verdict *v) {
  if (!v->account.has_short) return;
  tn__text_add(out, "; ");
  tn__oom_words_span(out, v->account.short_by);
  tn__text_add(out, " is missing");
}

static void expandable_why_not(tn_text *out, const tn__oom_verdict *v, const tn__oom_action *action) {
  if (v->oom->flags & TN_OOM_EXPANDABLE) {
    tn__text_add(out, "already on; what is in pieces belongs to other streams or pools, or is less than a page");
  } else if (v->cause == TN_OOM_CAUSE_REFUSED) {
    tn__text_add(out, "enough was free outside the segments already");
  } else if (v->cause == TN_OOM_CAUSE_TOO_LARGE) {
    tn__text_add(out, "the request is larger than the device, however its memory is cut");
  } else {
    tn__text_add(out, "only ");
    tn__oom_words_span(out, action->gives);
    tn__text_add(out, " is in pieces");
    missing_add(out, v);
  }
}

static void others_why_not(tn_text *out, const tn__oom_verdict *v, const tn__oom_action *action) {
  if (v->account.room_is_limit || v->cause == TN_OOM_CAUSE_LIMIT) {
    tn__text_add(out, "the limit counts only this process");
  } else if (action->gives.mid <= 0) {
    tn__text_add(out, "none is listed on the device");
  } else {
    tn__text_add(out, "they hold ");
    tn__oom_words_span(out, action->gives);
    tn__text_add(out, " in all");
    missing_add(out, v);
  }
}

void tn__oom_words_why_not(tn_text *out, const tn__oom_verdict *v, const tn__oom_action *action) {
  switch ((enum tn__oom_action_id)action->id) {
    case TN__OOM_ACTION_EMPTY_CACHE:
      tn__text_add(out, "the allocator had given back every unused segment before it failed");
      break;
    case TN__OOM_ACTION_EXPANDABLE:
      expandable_why_not(out, v, action);
      break;
    case TN__OOM_ACTION_OTHERS:
      others_why_not(out, v, action);
      break;
    case TN__OOM_ACTION_LIMIT:
      tn__text_add(out, "the limit was not reached; the device itself was full");
      break;
    default:
      tn__text_add(out, "gives ");
      if (action->is_upto) tn__text_add(out, "at most ");
      tn__oom_words_span(out, action->gives);
      missing_add(out, v);
  }
}

/* ---- remarks; each writes nothing when it does not apply ----------------------------------------------------------------- */

static void place_remark(tn_text *out, const tn__oom_report *report) {
  static const char *const moments[TN_OOM_MOMENT_COUNT] = {
#define MOMENT_WORD(name, text) text,
      TN_OOM_MOMENTS(MOMENT_WORD)
#undef MOMENT_WORD
  };
  const tn_oom *oom = report->verdict.oom;
  if (!oom->place[0] && !oom->moments) return;
  tn__text_add(out, "Asked for");
  if (oom->place[0]) tn__text_printf(out, " at %s", oom->place);
  int shown = 0;
  for (int i = 0; i < TN_OOM_MOMENT_COUNT; i++)
    if (oom->moments >> i & 1)
      tn__text_printf(out, "%s%s", shown++ ? ", " : oom->place[0] ? "; around it: " : ", by the words around it, in: ", moments[i]);
  tn__text_add(out, ".");
}

static void found_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  uint32_t times = oom->repeats;
  if (oom->line <= 1 && times <= 1 && oom->rank < 0) return;
  tn__text_printf(out, "Found on line %llu", (unsigned long long)oom->line);
  if (oom->rank >= 0) tn__text_printf(out, ", rank %d", (int)oom->rank);
  if (times > 1) tn__text_printf(out, ", %u times in all", (unsigned)times);
  tn__text_add(out, ".");
}

/* The allocator prints the segment that it wanted, not the tensor. */
static void rounding_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  if (oom->form != TN_OOM_FORM_CACHING || !knows(oom, TN_OOM_ASKED)) return;
  uint64_t asked = oom->sizes[TN_OOM_ASKED].bytes;
  if (asked == 2 * MIB)
    tn__text_add(out, "2.00 MiB is what the allocator takes for any tensor of up to 1 MiB.");
  else if (asked == 20 * MIB)
    tn__text_add(out, "20.00 MiB may be a tensor of 1 to 10 MiB: the allocator takes 20 MiB for those.");
}

static void shortage_remark(tn_text *out, const tn__oom_report *report) {
  const tn__oom_account *a = &report->verdict.account;
  if (!a->has_short || a->short_by.mid <= 0 || tn__oom_span_low(a->short_by) > 0) return;
  tn__text_add(out, "The shortage is no larger than what printing rounds off.");
}

static void self_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  for (uint32_t i = 0; i < oom->process_count && i < TN_OOM_PROCESSES_MAX; i++) {
    const tn_oom_process *process = &oom->processes[i];
    if (!process->is_self) continue;
    tn__text_printf(out, "No process is named as this one, as in a container; %llu is taken for it, by its ",
                    (unsigned long long)process->pid);
    tn__text_size(out, process->used.bytes);
    tn__text_add(out, ".");
  }
}

static void untold_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  if (!(oom->flags & TN_OOM_UNTOLD)) return;
  if (oom->form == TN_OOM_FORM_ASYNC)
    tn__text_add(out, "17179869184.00 GiB is 2^64 bytes: no limit was set.");
  else
    tn__text_add(out, "17179869184.00 GiB is 2^64 bytes: the driver does not tell what a process holds (Windows, WSL).");
}

static void over_remark(tn_text *out, const tn__oom_report *report) {
  const tn__oom_account *a = &report->verdict.account;
  if (!a->is_over) return;
  tn__text_add(out, "It does not add up: the parts are ");
  tn__oom_words_span(out, a->over);
  tn__text_add(out, " more than there is. ");
  tn__text_add(out, report->verdict.cause == TN_OOM_CAUSE_SPILLED
                        ? "The driver lends host memory, which is slow."
                        : "They were read one after the other, while others took and gave back.");
}

static void process_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  if (!knows(oom, TN_OOM_PROCESS) || !knows(oom, TN_OOM_RESERVED)) return;
  tn__oom_span gap = tn__oom_span_sub(tn__oom_span_of(oom, TN_OOM_RESERVED), tn__oom_span_of(oom, TN_OOM_PROCESS));
  if (tn__oom_span_low(gap) <= 0) return;
  tn__text_add(out, "The driver counts ");
  tn__text_size(out, oom->sizes[TN_OOM_PROCESS].bytes);
  tn__text_add(out, " for this process, less than the ");
  tn__text_size(out, oom->sizes[TN_OOM_RESERVED].bytes);
  tn__text_add(out, " that PyTorch has reserved.");
}

static void pools_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  if (!knows(oom, TN_OOM_POOLS) || !knows(oom, TN_OOM_ALLOCATED)) return;
  tn__text_add(out, "PyTorch prints unused blocks of private pools as allocated: ");
  tn__text_size(out, oom->sizes[TN_OOM_POOLS].bytes);
  tn__text_add(out, " of its ");
  tn__text_size(out, oom->sizes[TN_OOM_POOLS].bytes + oom->sizes[TN_OOM_ALLOCATED].bytes);
  tn__text_add(out, " are in no tensor.");
}

static void unseen_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  const tn__oom_account *a = &report->verdict.account;
  if (tn__oom_held(a, TN__OOM_PART_UNSEEN) < 64 * MIB) return;
  if (knows(oom, TN_OOM_PROCESS))
    tn__text_add(out, "Unseen is what the driver keeps for itself, and processes that it does not list.");
  else if (oom->form == TN_OOM_FORM_ASYNC)
    tn__text_add(out, "Unseen is the pool's own cache, this process's context, other libraries and other processes.");
  else
    tn__text_add(out, "Unseen is this process's context (0.3 to 1 GiB), its other libraries, the driver, and all other processes.");
}

static void refused_remark(tn_text *out, const tn__oom_report *report) {
  const tn__oom_verdict *v = &report->verdict;
  if (v->cause != TN_OOM_CAUSE_REFUSED) return;
  if (v->account.room_is_bound)
    tn__text_add(out, "The message does not say what was free; a device may also bound the size of one allocation.");
  else
    tn__text_add(out,
                 "What is free was read after the refusal: another process or stream may have given memory back in between; a "
                 "driver may also "
                 "keep the last of it, or bound the size of one allocation.");
}

static void runtime_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  const tn__oom_account *a = &report->verdict.account;
  int is_shared = strcmp(oom->backend, "hip") == 0 || strcmp(oom->backend, "xpu") == 0;
  if (report->verdict.cause != TN_OOM_CAUSE_TOO_LARGE || !is_shared || !a->has_capacity) return;
  tn__text_add(out, "If the machine has more than ");
  bytes_add(out, a->capacity.mid);
  tn__text_add(out, " for the GPU, the runtime shows PyTorch only a part of it, as on an integrated GPU.");
}

/* Of a process that the kernel ended. */
static void killed_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  if (oom->form != TN_OOM_FORM_KILLED || !knows(oom, TN_OOM_ALLOCATED)) return;
  tn__text_add(out, "The process that was ended held ");
  tn__text_size(out, oom->sizes[TN_OOM_ALLOCATED].bytes);
  tn__text_add(out, " of the machine's memory (anon-rss).");
}

static void hint_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  if (!(oom->flags & (TN_OOM_HINT_SPLIT | TN_OOM_HINT_EXPANDABLE)) || report->verdict.cause == TN_OOM_CAUSE_FRAGMENTED) return;
  tn__text_printf(out, "The message's own advice (%s) is printed whatever the numbers are.",
                  oom->flags & TN_OOM_HINT_EXPANDABLE ? "expandable_segments" : "max_split_size_mb");
}

static void driver_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  if (oom->form == TN_OOM_FORM_DRIVER && report->verdict.cause == TN_OOM_CAUSE_UNKNOWN)
    tn__text_add(out, "CUDA reports errors late: the line that raised it may not be the one that asked.");
  if (oom->flags & TN_OOM_SOFT)
    tn__text_add(out, "This error has other causes than memory; CUDA_LAUNCH_BLOCKING=1 shows the call that fails.");
}

static void whole_remark(tn_text *out, const tn__oom_report *report) {
  const tn_oom *oom = report->verdict.oom;
  if (oom->flags & TN_OOM_CUT) tn__text_add(out, "The message is not whole: some of what its form has is missing.");
  if (oom->unread)
    tn__text_printf(out, "%s%u size%s in it stayed unread.", oom->flags & TN_OOM_CUT ? " " : "", (unsigned)oom->unread,
                    oom->unread > 1 ? "s" : "");
}

int tn__oom_words_remark(tn_text *out, const tn__oom_report *report, int number) {
  static void (*const remarks[])(tn_text *, const tn__oom_report *) = {
      place_remark, found_remark,  rounding_remark, shortage_remark, self_remark,   untold_remark, over_remark, process_remark,
      pools_remark, unseen_remark, refused_remark,  runtime_remark,  driver_remark, killed_remark, hint_remark, whole_remark,
  };
  if (number < 0 || (size_t)number >= sizeof remarks / sizeof *remarks) return 0;
  remarks[number](out, report);
  return 1;
}

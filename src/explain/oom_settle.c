/* oom_settle.c -- what follows from a message's readings, and from the tags before it. */
#include <string.h>

#include "explain/oom_text.h"

static int knows(const tn_oom *oom, enum tn_oom_reading reading) { return tn__oom_knows(oom, reading); }

static void derive(tn_oom *oom, enum tn_oom_reading reading, uint64_t bytes, uint64_t slack) {
  oom->known |= 1u << reading;
  oom->derived |= 1u << reading;
  oom->sizes[reading] = (tn_oom_size){bytes, slack};
}

/* ---- the allocator's own ------------------------------------------------------------------------------------------------- */

/* PyTorch adds the free blocks of private pools to "allocated", and prints them as "allocated in private pools". */
static void pools_part(tn_oom *oom) {
  if (!knows(oom, TN_OOM_POOLS) || !knows(oom, TN_OOM_ALLOCATED)) return;
  tn_oom_size both = oom->sizes[TN_OOM_ALLOCATED], pools = oom->sizes[TN_OOM_POOLS];
  derive(oom, TN_OOM_ALLOCATED, both.bytes > pools.bytes ? both.bytes - pools.bytes : 0, both.slack + pools.slack);
}

static void reserved_derive(tn_oom *oom) {
  const tn_oom_size *allocated = &oom->sizes[TN_OOM_ALLOCATED], *unallocated = &oom->sizes[TN_OOM_UNALLOCATED];
  const tn_oom_size *pools = &oom->sizes[TN_OOM_POOLS], *reserved = &oom->sizes[TN_OOM_RESERVED];
  if (!knows(oom, TN_OOM_ALLOCATED)) return;
  if (knows(oom, TN_OOM_UNALLOCATED) && !knows(oom, TN_OOM_RESERVED)) {
    uint64_t slack = allocated->slack + unallocated->slack;
    if (oom->derived >> TN_OOM_ALLOCATED & 1) slack -= pools->slack; /* printed as one sum */
    derive(oom, TN_OOM_RESERVED, allocated->bytes + pools->bytes + unallocated->bytes, slack);
  } else if (knows(oom, TN_OOM_RESERVED) && !knows(oom, TN_OOM_UNALLOCATED) &&
             reserved->bytes + reserved->slack + allocated->slack >= allocated->bytes) {
    derive(oom, TN_OOM_UNALLOCATED, reserved->bytes > allocated->bytes ? reserved->bytes - allocated->bytes : 0,
           reserved->slack + allocated->slack);
  }
}

/* ---- which of the processes is this one ---------------------------------------------------------------------------------- */

/* It holds at least what the allocator has reserved; of several, the one whose surplus is the least. */
static tn_oom_process *self_find(tn_oom *oom) {
  const tn_oom_size *reserved = &oom->sizes[TN_OOM_RESERVED];
  uint32_t count = oom->process_count < TN_OOM_PROCESSES_MAX ? oom->process_count : TN_OOM_PROCESSES_MAX;
  tn_oom_process *best = NULL;
  for (uint32_t i = 0; i < count; i++) {
    tn_oom_process *process = &oom->processes[i];
    if (!process->known || process->used.bytes + process->used.slack + reserved->slack < reserved->bytes) continue;
    if (!best || process->used.bytes < best->used.bytes) best = process;
  }
  return best;
}

/* The driver lists every process of the device, this one too.  In a container it counts pids otherwise, so none is called "this
 * process", and our own memory would be taken for somebody else's. */
static void self_derive(tn_oom *oom) {
  if (oom->form != TN_OOM_FORM_CACHING || knows(oom, TN_OOM_PROCESS) || !knows(oom, TN_OOM_RESERVED) || !knows(oom, TN_OOM_OTHERS))
    return;
  if (!oom->sizes[TN_OOM_RESERVED].bytes) return;
  tn_oom_process *self = self_find(oom);
  if (!self) return;
  tn_oom_size *others = &oom->sizes[TN_OOM_OTHERS];
  self->is_self = 1;
  derive(oom, TN_OOM_PROCESS, self->used.bytes, self->used.slack);
  others->bytes -= self->used.bytes;
  others->slack -= self->used.slack;
  oom->derived |= 1u << TN_OOM_OTHERS;
}

/* Nobody else: the driver's list, of which this process is part, is printed whole. */
static void others_derive(tn_oom *oom) {
  if (oom->form == TN_OOM_FORM_CACHING && knows(oom, TN_OOM_PROCESS) && !oom->process_count) derive(oom, TN_OOM_OTHERS, 0, 0);
}

void tn__oom_settle(tn_oom *oom) {
  pools_part(oom);
  reserved_derive(oom);
  self_derive(oom);
  others_derive(oom);
}

/* ---- ranks --------------------------------------------------------------------------------------------------------------- */

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int32_t number_at(const char *text, size_t len) {
  int32_t out = 0;
  size_t at = 0;
  for (; at < len && is_digit(text[at]) && out < 1000000; at++) out = out * 10 + (text[at] - '0');
  return at ? out : -1;
}

/* The number behind the last of the words, with what may stand between: "rank3" "rank=3" "Rank 3" "rank: 3" "rank:[3]" */
static int32_t number_behind(const char *line, size_t len, const char *word) {
  size_t word_len = strlen(word);
  int32_t out = -1;
  for (size_t i = 0; i + word_len < len; i++) {
    size_t same = 0;
    while (same < word_len && (line[i + same] == word[same] || (line[i + same] | 0x20) == word[same])) same++;
    if (same < word_len) continue;
    size_t at = i + word_len;
    for (int skipped = 0; at < len && skipped < 3 && strchr("=: _[", line[at]); skipped++) at++;
    int32_t number = number_at(line + at, len - at);
    if (number >= 0) out = number;
  }
  return out;
}

/* "[1,3]<stderr>:" of mpirun: job, rank */
static int32_t mpirun_rank(const char *line, size_t len) {
  if (len < 5 || line[0] != '[') return -1;
  size_t at = 1;
  while (at < len && is_digit(line[at])) at++;
  return at > 1 && at + 1 < len && line[at] == ',' ? number_at(line + at + 1, len - at - 1) : -1;
}

/* "3: " of srun --label */
static int32_t label_rank(const char *line, size_t len) {
  size_t at = 0;
  while (at < len && line[at] == ' ') at++;
  int32_t number = number_at(line + at, len - at);
  while (at < len && is_digit(line[at])) at++;
  return number >= 0 && at + 1 < len && line[at] == ':' && line[at + 1] == ' ' ? number : -1;
}

int32_t tn__oom_rank(const char *line, size_t len) {
  int32_t rank = number_behind(line, len, "rank");
  if (rank < 0) rank = number_behind(line, len, "[default"); /* torchrun */
  if (rank < 0) rank = mpirun_rank(line, len);
  return rank < 0 ? label_rank(line, len) : rank;
}

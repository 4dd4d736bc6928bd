/* oom_text.c -- one out-of-memory message, read.  See oom_text.h. */
#include "explain/oom_text.h"

#include <stdio.h>
#include <string.h>

#include "explain/oom_heads.h"
#include "explain/oom_sizes.h"

enum {
  LONGEST = 64 << 10, /* of a message: a thousand processes */
  GAP = 160,          /* squeezed letters between two readings of one message */
  GAP_NEAR = 60,
  HINT = 400 /* and to the end of the advice after them */
};

static int is_digit(char c) { return c >= '0' && c <= '9'; }

/* ---- lines --------------------------------------------------------------------------------------------------------------- */

/* The first squeezed character of the line that at is on, not before from. */
static size_t line_begin(const tn__squeezed *text, size_t at, size_t from) {
  while (at > from && !tn__squeezed_breaks(text, at - 1, at)) at--;
  return at;
}

static size_t line_end(const tn__squeezed *text, size_t at) {
  size_t end = at + 1;
  while (end < text->len && end < at + LONGEST && !tn__squeezed_breaks(text, end - 1, end)) end++;
  return end < text->len ? end : text->len;
}

/* The place of words in [from, end), or end. */
static size_t words_find(const tn__squeezed *text, const char *words, size_t from, size_t end) {
  size_t len = strlen(words);
  if (end > text->len) end = text->len;
  for (size_t at = from; at + len <= end; at++)
    if (memcmp(text->text + at, words, len) == 0) return at;
  return end;
}

/* ---- readings ------------------------------------------------------------------------------------------------------------ */

typedef struct reader {
  const tn__squeezed *text;
  size_t head, head_end;
  size_t last;      /* end of what was read last */
  uint32_t pending; /* sizes passed over since */
  int any;
  tn_oom *out;
} reader;

static void size_take(reader *r, enum tn_oom_reading reading, const tn__oom_token *token) {
  if (token->is_untold) {
    r->out->flags |= TN_OOM_UNTOLD;
    return;
  }
  r->out->known |= 1u << reading;
  r->out->sizes[reading] = token->size;
}

static void process_take(reader *r, uint64_t pid, const tn__oom_token *token) {
  tn_oom *oom = r->out;
  tn_oom_process process = {.pid = pid, .used = token->size, .known = !token->is_untold};
  if (oom->process_count < TN_OOM_PROCESSES_MAX) oom->processes[oom->process_count] = process;
  oom->process_count++;
  if (token->is_untold) {
    oom->processes_untold++;
    oom->flags |= TN_OOM_UNTOLD;
    return;
  }
  tn_oom_size *others = &oom->sizes[TN_OOM_OTHERS];
  oom->known |= 1u << TN_OOM_OTHERS;
  if (others->bytes < UINT64_C(1) << 61) others->bytes += token->size.bytes, others->slack += token->size.slack;
}

/* 0: the token belongs to something else, and the message has ended. */
static int token_take(reader *r, const tn__oom_token *token) {
  int is_after = token->at >= r->head_end;
  int is_near = is_after && token->at <= r->last + GAP_NEAR && !tn__squeezed_breaks(r->text, r->last ? r->last - 1 : 0, token->at);
  uint64_t pid = 0;
  size_t end = token->end;
  int reading = tn__oom_token_reading(r->text, token, is_near, &pid, &end);
  if (reading == TN__OOM_READ_NOTHING) {
    if (is_after) r->pending++;
    return 1;
  }
  if (reading < TN_OOM_READING_COUNT && tn__oom_knows(r->out, (enum tn_oom_reading)reading)) return 0;
  if (reading == TN__OOM_READ_PROCESS)
    process_take(r, pid, token);
  else if (reading < TN_OOM_READING_COUNT)
    size_take(r, (enum tn_oom_reading)reading, token);
  r->out->unread += r->pending;
  r->pending = 0;
  r->any = 1;
  if (end > r->last) r->last = end;
  return 1;
}

/* The words again mean another message: after readings, or on a later line.  But "torch.OutOfMemoryError: CUDA out of memory" is
 * one. */
static int other_begins(const reader *r, size_t end) {
  size_t again = words_find(r->text, "outofmemory", r->last, end);
  if (r->out->known)
    return again < end || words_find(r->text, "triedtoallocate", r->last, end) + sizeof "triedtoallocate" - 1 < end;
  int is_error = strncmp(r->text->text + r->head, "outofmemoryerror", sizeof "outofmemoryerror" - 1) == 0;
  return again < end && !is_error && tn__squeezed_breaks(r->text, r->head_end - 1, again);
}

static void readings_take(reader *r, size_t from) {
  tn__oom_token token;
  for (size_t at = from; tn__oom_token_next(r->text, at, r->last + GAP + 1, &token); at = token.end) {
    if (token.at >= r->head_end && other_begins(r, token.at)) return;
    if (!token_take(r, &token)) return;
    /* Right behind a reading, a size still belongs to the message. */
    if (r->pending == 1 && r->any && token.at < r->last + GAP_NEAR && !tn__squeezed_breaks(r->text, r->last - 1, token.at)) {
      r->pending = 0;
      r->out->unread++;
    }
  }
}

/* ---- device, hints ------------------------------------------------------------------------------------------------------- */

static int is_device_word(const tn__squeezed *text, size_t at, const char *backend) {
  const char *const words[] = {"gpu", "device", "cuda:", backend};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t len = strlen(words[i]);
    if (len && at >= len && memcmp(text->text + at - len, words[i], len) == 0) return 1;
  }
  return 0;
}

/* "(GPU 0; " "GPU 0 has" "on device 0 would" */
static int32_t device_find(const tn__squeezed *text, size_t from, size_t end, const char *backend) {
  static const char *const behind[] = {"has", ";", "would"};
  for (size_t at = from; at < end; at++) {
    if (!is_digit(text->text[at]) || (at && is_digit(text->text[at - 1])) || !is_device_word(text, at, backend)) continue;
    int32_t number = 0;
    size_t stop = at;
    for (; is_digit(text->text[stop]) && number < 10000; stop++) number = number * 10 + (text->text[stop] - '0');
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
      if (strncmp(text->text + stop, behind[i], strlen(behind[i])) == 0) return number;
  }
  return -1;
}

/* The advice at a message's end; gives where it ends. */
static size_t hints_take(const tn__squeezed *text, size_t end, tn_oom *out) {
  size_t stop = end + HINT < text->len ? end + HINT : text->len;
  size_t next = words_find(text, "outofmemory", end, stop), split = words_find(text, "trysettingmax_split_size_mb", end, next);
  size_t expandable = words_find(text, "expandable_segments:truetoavoid", end, next);
  if (split < next) out->flags |= TN_OOM_HINT_SPLIT, end = split;
  if (expandable < next) out->flags |= TN_OOM_HINT_EXPANDABLE, end = expandable;
  return end;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------------- */

static int is_cut(const tn_oom *oom) {
  switch (oom->form) {
    case TN_OOM_FORM_CACHING:
      return !tn__oom_knows(oom, TN_OOM_ASKED) || !tn__oom_knows(oom, TN_OOM_RESERVED);
    case TN_OOM_FORM_ASYNC:
      return !tn__oom_knows(oom, TN_OOM_ASKED) || !tn__oom_knows(oom, TN_OOM_FREE);
    case TN_OOM_FORM_MPS:
      return !tn__oom_knows(oom, TN_OOM_ASKED);
    default:
      return 0;
  }
}

static void name_make(tn_oom *oom, const tn__oom_head *head) {
  char device[sizeof oom->backend];
  size_t i = 0;
  for (; oom->backend[i]; i++)
    device[i] = (char)(oom->backend[i] >= 'a' && oom->backend[i] <= 'z' ? oom->backend[i] - 'a' + 'A' : oom->backend[i]);
  device[i] = '\0';
  if (head->name)
    (void)snprintf(oom->name, sizeof oom->name, "%s", head->name);
  else if (oom->form == TN_OOM_FORM_ASYNC)
    (void)snprintf(oom->name, sizeof oom->name, "cudaMallocAsync: out of memory");
  else if (oom->form == TN_OOM_FORM_MPS)
    (void)snprintf(oom->name, sizeof oom->name, "MPS backend out of memory");
  else if (oom->form == TN_OOM_FORM_SIZE)
    (void)snprintf(oom->name, sizeof oom->name, "Tried to allocate more than 1EB memory");
  else
    (void)snprintf(oom->name, sizeof oom->name, "%s%sout of memory", device, *device ? " " : "");
}

/* "torch.OutOfMemoryError: CUDA out of memory": the second tells. */
static void backend_find(const tn__squeezed *text, size_t from, size_t end, char *out, size_t out_size) {
  out[0] = '\0';
  for (size_t at = from; !out[0]; at++) {
    at = words_find(text, "outofmemory", at, end);
    if (at >= end) return;
    tn__oom_head_backend(text, at, out, out_size);
  }
}

/* The kind of the message, from all its heads. */
static void kind_make(const tn__squeezed *text, size_t from, size_t end, tn_oom *out) {
  size_t at = from;
  const tn__oom_head *head = tn__oom_head_best(text, from, end, &at);
  out->form = head->form;
  if (head->is_soft) out->flags |= TN_OOM_SOFT;
  if (head->backend)
    (void)snprintf(out->backend, sizeof out->backend, "%s", head->backend);
  else
    backend_find(text, from, end, out->backend, sizeof out->backend);
  int is_cudas = out->form == TN_OOM_FORM_ASYNC || out->form == TN_OOM_FORM_COLLECTIVE || out->form == TN_OOM_FORM_PINNED;
  if (!out->backend[0] && is_cudas) strcpy(out->backend, "cuda");
  if (out->form == TN_OOM_FORM_CACHING && (strcmp(out->backend, "cpu") == 0 || strcmp(out->backend, "ram") == 0))
    out->form = TN_OOM_FORM_HOST;
  if (out->form == TN_OOM_FORM_CACHING && !out->known && !out->process_count && !out->backend[0]) out->form = TN_OOM_FORM_BARE;
  name_make(out, head);
}

static void tags_read(const tn__squeezed *text, size_t at, tn_oom *out) {
  size_t here = text->at[at], begin = here;
  while (begin > 0 && here - begin < LONGEST && text->from[begin - 1] != '\n') begin--;
  out->offset = here;
  out->rank = tn__oom_rank(text->from + begin, here - begin);
}

int tn__oom_read(const tn__squeezed *text, size_t from, size_t end, tn_oom *out, size_t *out_end) {
  size_t at = from;
  const tn__oom_head *head = tn__oom_head_next(text, from, end, &at);
  if (!head) return 0;
  *out = (tn_oom){.device = -1, .rank = -1, .repeats = 1};
  size_t head_end = at + strlen(head->words), begin = line_begin(text, at, from), stop = line_end(text, at);
  reader r = {.text = text, .head = at, .head_end = head_end, .last = head_end, .out = out};
  readings_take(&r, begin);
  size_t last = r.any ? r.last : head_end;
  if (r.any && words_find(text, "cached)", last - 7, last) < last) out->flags |= TN_OOM_CACHED;
  kind_make(text, begin, last > stop ? last : stop, out);
  out->device = device_find(text, begin, last, out->backend);
  last = hints_take(text, last, out);
  tn__oom_settle(out);
  if (is_cut(out)) out->flags |= TN_OOM_CUT;
  tags_read(text, at, out);
  *out_end = last > stop ? last : stop;
  return 1;
}

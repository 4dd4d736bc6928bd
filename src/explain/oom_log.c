/* oom_log.c -- the messages of a log of any length.  Why: a job's log has the same error once for each rank, again for each handler
 * that prints it, and earlier ones that the program survived.
 *
 * The log comes in pieces.  The buffer keeps what a message may still need: BACK bytes before it for its traceback, AHEAD after its
 * head for its end.  Equal messages of a rank are counted, not kept. */
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/vec.h"
#include "explain/oom_text.h"
#include "explain/oom_where.h"

enum {
  BACK = 32 << 10,
  AHEAD = 128 << 10,
  FULL = 1 << 20,
  MESSAGES_MAX = 4096 /* distinct ones that are kept */
};

/* base is the offset of the buffer's first byte in the log; messages that begin before done have been read. */
struct tn_oom_log {
  tn_vec buffer;   /* char */
  tn_vec messages; /* tn_oom, by place */
  uint64_t base, done;
  uint64_t line; /* of the buffer's first byte, from 1 */
};

int tn_oom_log_new(tn_oom_log **out) {
  tn_oom_log *log = tn__mem_zalloc(1, sizeof *log);
  if (!log) return TN_ENOMEM;
  tn__vec_init(&log->buffer, 1);
  tn__vec_init(&log->messages, sizeof(tn_oom));
  log->line = 1;
  *out = log;
  return TN_OK;
}

void tn_oom_log_free(tn_oom_log *log) {
  if (!log) return;
  tn__vec_deinit(&log->buffer);
  tn__vec_deinit(&log->messages);
  tn__mem_free(log);
}

/* ---- equal messages ------------------------------------------------------------------------------------------------------ */

static int size_equal(const tn_oom_size *a, const tn_oom_size *b) { return a->bytes == b->bytes && a->slack == b->slack; }

/* Everything that both say is the same. */
static int readings_agree(const tn_oom *a, const tn_oom *b) {
  for (int i = 0; i < TN_OOM_READING_COUNT; i++)
    if ((a->known & b->known) >> i & 1 && !size_equal(&a->sizes[i], &b->sizes[i])) return 0;
  return 1;
}

/* A library prints several lines for one failure, each with a part of it. */
static int is_lines_of_one(const tn_oom *a, const tn_oom *b) {
  enum { NEAR = 4096 };
  int is_library = a->form == TN_OOM_FORM_COLLECTIVE || a->form == TN_OOM_FORM_KILLED || a->form == TN_OOM_FORM_SHARED;
  return is_library && b->offset - a->offset < NEAR;
}

/* The same error again: printed without numbers, or with the same ones; perhaps without its rank. */
static int is_again(const tn_oom *a, const tn_oom *b) {
  if (a->form != b->form || strcmp(a->backend, b->backend) != 0) return 0;
  if (a->device >= 0 && b->device >= 0 && a->device != b->device) return 0;
  if (!readings_agree(a, b)) return 0;
  if (a->rank != b->rank) return (a->rank < 0 || b->rank < 0) && a->known && a->known == b->known;
  return a->known == b->known || is_lines_of_one(a, b);
}

static void merge(tn_oom *into, const tn_oom *from) {
  into->repeats++;
  for (int i = 0; i < TN_OOM_READING_COUNT; i++)
    if (!(into->known >> i & 1) && from->known >> i & 1) into->sizes[i] = from->sizes[i];
  into->derived |= from->derived & ~into->known;
  into->known |= from->known;
  into->flags |= from->flags & TN_OOM_EXPANDABLE;
  into->moments |= from->moments;
  if (into->rank < 0) into->rank = from->rank;
  if (into->device < 0) into->device = from->device;
  if (!into->place[0]) memcpy(into->place, from->place, sizeof into->place);
}

static tn_oom *find_again(const tn_oom_log *log, const tn_oom *oom) {
  tn_oom *messages = TN_VEC(&log->messages, tn_oom);
  for (size_t i = log->messages.count; i-- > 0;)
    if (is_again(&messages[i], oom)) return &messages[i];
  return NULL;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

static const char *bytes_of(const tn_oom_log *log) { return TN_VEC(&log->buffer, char); }

/* The lines of the message's rank before it, and the message; ranks write in turns. */
static int context_make(const tn_oom_log *log, const tn_oom *oom, size_t end, tn_text *out, size_t *out_begin) {
  enum { TAGS = 48 };
  const char *text = bytes_of(log);
  size_t here = (size_t)(oom->offset - log->base), at = here > BACK ? here - BACK : 0;
  while (at < here) {
    const char *stop = memchr(text + at, '\n', here - at);
    size_t len = stop ? (size_t)(stop - text) + 1 - at : here - at;
    if (oom->rank < 0 || tn__oom_rank(text + at, len < TAGS ? len : TAGS) == oom->rank) tn__text_add_n(out, text + at, len);
    at += len;
  }
  *out_begin = out->len;
  tn__text_add_n(out, text + here, end - here);
  return out->failed;
}

static int where_add(const tn_oom_log *log, size_t end, tn_oom *oom) {
  tn_text context;
  size_t begin = 0;
  tn__text_init(&context);
  int rc = context_make(log, oom, end, &context, &begin);
  if (!rc) tn__oom_where(tn__text_view(&context), begin, context.len, oom);
  tn__text_deinit(&context);
  return rc;
}

/* end: in the buffer, where the message does. */
static int message_add(tn_oom_log *log, tn_oom *oom, size_t end) {
  tn_oom *again = find_again(log, oom);
  if (again) {
    merge(again, oom);
    return TN_OK;
  }
  if (log->messages.count == MESSAGES_MAX) return TN_OK;
  TN_TRY(where_add(log, end, oom));
  return tn__vec_push(&log->messages, oom);
}

static uint64_t count_lines(const char *text, size_t len) {
  uint64_t lines = 0;
  for (const char *at = text; (at = memchr(at, '\n', len - (size_t)(at - text))); at++) lines++;
  return lines;
}

/* The offset in the buffer of the squeezed character at. */
static size_t raw_at(const tn__squeezed *text, size_t at) { return at < text->len ? text->at[at] : text->from_len; }

/* The first squeezed character at or after an offset of the buffer. */
static size_t squeezed_at(const tn__squeezed *text, size_t offset) {
  size_t low = 0, high = text->len;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (text->at[middle] < offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Reads the messages that begin before the buffer's offset stop. */
static int messages_read(tn_oom_log *log, const tn__squeezed *text, size_t stop) {
  size_t at = squeezed_at(text, (size_t)(log->done - log->base)), end = squeezed_at(text, stop), next = at, counted = 0;
  uint64_t line = log->line;
  tn_oom oom;
  while (tn__oom_read(text, at, end, &oom, &next)) {
    size_t here = (size_t)oom.offset;
    line += count_lines(text->from + counted, here - counted);
    counted = here;
    oom.line = line;
    oom.offset += log->base;
    TN_TRY(message_add(log, &oom, raw_at(text, next)));
    at = next;
    log->done = log->base + raw_at(text, at);
  }
  if (log->done < log->base + stop) log->done = log->base + stop;
  return TN_OK;
}

static int buffer_read(tn_oom_log *log, size_t stop) {
  tn__squeezed text;
  int rc = tn__squeeze(bytes_of(log), log->buffer.count, &text);
  if (!rc) rc = messages_read(log, &text, stop);
  tn__squeezed_deinit(&text);
  return rc;
}

static void buffer_drop(tn_oom_log *log, size_t count) {
  char *text = TN_VEC(&log->buffer, char);
  log->line += count_lines(text, count);
  log->base += count;
  memmove(text, text + count, log->buffer.count - count);
  log->buffer.count -= count;
}

static int buffer_work(tn_oom_log *log) {
  size_t stop = log->buffer.count - AHEAD;
  TN_TRY(buffer_read(log, stop));
  size_t done = (size_t)(log->done - log->base);
  size_t keep_from = done < stop ? done : stop;
  buffer_drop(log, keep_from > BACK ? keep_from - BACK : 0);
  return TN_OK;
}

int tn_oom_log_add(tn_oom_log *log, const char *bytes, size_t len) {
  while (len) {
    size_t room = FULL - log->buffer.count, part = len < room ? len : room;
    TN_TRY(tn__vec_append(&log->buffer, bytes, part));
    bytes += part;
    len -= part;
    if (log->buffer.count == FULL) TN_TRY(buffer_work(log));
  }
  return TN_OK;
}

int tn_oom_log_end(tn_oom_log *log) {
  if (!log->buffer.count) return TN_OK;
  TN_TRY(buffer_read(log, log->buffer.count));
  buffer_drop(log, log->buffer.count);
  return TN_OK;
}

/* ---- which one to explain ------------------------------------------------------------------------------------------------ */

/* Numbers of an allocator tell most, a mere mention least. */
static int kind_rank(const tn_oom *oom) {
  if (oom->form == TN_OOM_FORM_BARE) return 0;
  if (oom->flags & TN_OOM_SOFT) return 1;
  if (!oom->known) return 2;
  return oom->known >> TN_OOM_ALLOCATED & 1 ? 4 : 3;
}

static size_t choose(const tn_oom *messages, size_t count) {
  int best = 0;
  size_t chosen = count - 1;
  for (size_t i = 0; i < count; i++)
    if (kind_rank(&messages[i]) > best) best = kind_rank(&messages[i]);
  for (size_t i = count; i-- > 0;) { /* the last of each rank; the first of these stays */
    int is_last = kind_rank(&messages[i]) == best;
    for (size_t later = i + 1; is_last && later < count; later++)
      if (kind_rank(&messages[later]) == best && messages[later].rank == messages[i].rank) is_last = 0;
    if (is_last) chosen = i;
  }
  return chosen;
}

const tn_oom *tn_oom_log_messages(const tn_oom_log *log, size_t *out_count, size_t *out_chosen) {
  const tn_oom *messages = TN_VEC(&log->messages, tn_oom);
  *out_count = log->messages.count;
  if (out_chosen) *out_chosen = log->messages.count ? choose(messages, log->messages.count) : 0;
  return log->messages.count ? messages : NULL;
}

int tn_oom_parse(const char *text, size_t len, tn_oom *out, tn_error *err) {
  tn_oom_log *log = NULL;
  size_t count = 0, chosen = 0;
  int rc = tn_oom_log_new(&log);
  if (!rc) rc = tn_oom_log_add(log, text, len);
  if (!rc) rc = tn_oom_log_end(log);
  const tn_oom *messages = rc ? NULL : tn_oom_log_messages(log, &count, &chosen);
  if (!rc && !messages) rc = TN_ENOENT;
  if (messages) *out = messages[chosen];
  tn_oom_log_free(log);
  return rc == TN_ENOENT ? tn__error_set(err, rc, "no out-of-memory message in it") : rc ? tn__error_set(err, rc, NULL) : TN_OK;
}

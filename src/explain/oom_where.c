/* oom_where.c -- what the program was doing when memory ran out.  See oom_where.h. */
#include "explain/oom_where.h"

#include <stdio.h>
#include <string.h>

#include "explain/oom_text.h"

enum {
  BEFORE = 24 << 10, /* how far back a traceback begins */
  BARE = 400         /* and how far the words matter when there is none */
};

typedef struct span {
  const char *text;
  size_t len;
} span;

static int starts(span in, size_t at, const char *words) {
  size_t len = strlen(words);
  return len <= in.len - at && memcmp(in.text + at, words, len) == 0;
}

/* The last place of words, or len. */
static size_t find_last(span in, const char *words) {
  for (size_t at = in.len; at-- > 0;)
    if (starts(in, at, words)) return at;
  return in.len;
}

static int holds(span in, const char *words) { return in.len && find_last(in, words) < in.len; }

/* ---- moments ------------------------------------------------------------------------------------------------------------- */

static const struct {
  const char *words;
  uint8_t moment;
} moments[] = {
    {"cross_entropy", TN_OOM_MOMENT_LOSS},
    {"nll_loss", TN_OOM_MOMENT_LOSS},
    {"log_softmax", TN_OOM_MOMENT_LOSS},
    {"ForCausalLMLoss", TN_OOM_MOMENT_LOSS},
    {"logits.float()", TN_OOM_MOMENT_LOSS},
    {"scaled_dot_product", TN_OOM_MOMENT_ATTENTION},
    {"attn_weights", TN_OOM_MOMENT_ATTENTION},
    {"attention_scores", TN_OOM_MOMENT_ATTENTION},
    {"eager_attention_forward", TN_OOM_MOMENT_ATTENTION},
    {".backward(", TN_OOM_MOMENT_BACKWARD},
    {"in backward", TN_OOM_MOMENT_BACKWARD},
    {"_engine_run_backward", TN_OOM_MOMENT_BACKWARD},
    {"optimizer.step(", TN_OOM_MOMENT_OPTIMIZER},
    {"optim.step(", TN_OOM_MOMENT_OPTIMIZER},
    {"/torch/optim/", TN_OOM_MOMENT_OPTIMIZER},
    {"exp_avg", TN_OOM_MOMENT_OPTIMIZER},
    {"evaluate(", TN_OOM_MOMENT_EVALUATION},
    {"in evaluate", TN_OOM_MOMENT_EVALUATION},
    {"evaluation_loop", TN_OOM_MOMENT_EVALUATION},
    {"validation_step", TN_OOM_MOMENT_EVALUATION},
    {"validate(", TN_OOM_MOMENT_EVALUATION},
    {"in validate", TN_OOM_MOMENT_EVALUATION},
    {"prediction_step", TN_OOM_MOMENT_EVALUATION},
    {"torch.load(", TN_OOM_MOMENT_LOADING},
    {"load_state_dict", TN_OOM_MOMENT_LOADING},
    {"load_checkpoint", TN_OOM_MOMENT_LOADING},
    {"from_pretrained", TN_OOM_MOMENT_LOADING},
    {" resum", TN_OOM_MOMENT_LOADING},
    {"param_applied = fn(param)", TN_OOM_MOMENT_LOADING},
    {"save_checkpoint", TN_OOM_MOMENT_SAVING},
    {"save_pretrained", TN_OOM_MOMENT_SAVING},
    {"save_model", TN_OOM_MOMENT_SAVING},
    {"torch.save(", TN_OOM_MOMENT_SAVING},
    {"full_state_dict", TN_OOM_MOMENT_SAVING},
    {"while saving", TN_OOM_MOMENT_SAVING},
    {"all_gather", TN_OOM_MOMENT_GATHERING},
    {"allgather", TN_OOM_MOMENT_GATHERING},
    {"unshard", TN_OOM_MOMENT_GATHERING},
    {"reduce_scatter", TN_OOM_MOMENT_GATHERING},
    {"_flat_param", TN_OOM_MOMENT_GATHERING},
    {"capture_model", TN_OOM_MOMENT_CAPTURE},
    {"capture_begin", TN_OOM_MOMENT_CAPTURE},
    {"torch.cuda.graph(", TN_OOM_MOMENT_CAPTURE},
    {"cudagraph", TN_OOM_MOMENT_CAPTURE},
    {"pin_memory", TN_OOM_MOMENT_PINNING},
    {"pin memory thread", TN_OOM_MOMENT_PINNING},
    {"_lazy_init", TN_OOM_MOMENT_START},
    {"_cuda_init", TN_OOM_MOMENT_START},
    {"set_device(", TN_OOM_MOMENT_START},
    {"cuDevicePrimaryCtxRetain", TN_OOM_MOMENT_START},
};

static uint32_t moments_find(span in) {
  uint32_t found = 0;
  for (size_t i = 0; i < sizeof moments / sizeof *moments; i++)
    if (!(found >> moments[i].moment & 1) && holds(in, moments[i].words)) found |= 1u << moments[i].moment;
  return found;
}

/* ---- places -------------------------------------------------------------------------------------------------------------- */

typedef struct frame {
  span file, function;
  unsigned line;
} frame;

/* File "train.py", line 41, in training_step */
static int frame_read(span in, frame *out) {
  const char quote = '"', *end = in.text + in.len;
  const char *file = in.text + sizeof "File \"" - 1, *stop = memchr(file, quote, (size_t)(end - file));
  if (!stop || stop == file || memchr(file, '\n', (size_t)(stop - file))) return 0;
  span rest = {stop, (size_t)(end - stop)};
  if (rest.len < 9 || memcmp(rest.text, "\", line ", 8) != 0) return 0;
  unsigned line = 0;
  const char *at = rest.text + 8;
  for (; at < end && *at >= '0' && *at <= '9' && line < 100000000; at++) line = line * 10 + (unsigned)(*at - '0');
  *out = (frame){.file = {file, (size_t)(stop - file)}, .line = line};
  if (end - at < 6 || memcmp(at, ", in ", 5) != 0) return 1;
  out->function.text = at += 5;
  while (at < end && *at != '\n' && *at != '\r' && *at != '(') at++;
  out->function.len = (size_t)(at - out->function.text);
  return 1;
}

/* Installed packages and Python itself are not the user's. */
static int is_library(span file) {
  static const char *const parts[] = {"site-packages", "dist-packages", "/lib/python3", "\\lib\\",
                                      "<frozen",       "<string>",      "/torch/"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (holds(file, parts[i])) return 1;
  return 0;
}

static span base_name(span file) {
  size_t at = file.len;
  while (at > 0 && file.text[at - 1] != '/' && file.text[at - 1] != '\\') at--;
  return (span){file.text + at, file.len - at};
}

/* The length of the UTF-8 character at text, 0 when it is none. */
static size_t utf8_len(const unsigned char *text) {
  size_t len = text[0] < 0x80                      ? 1
               : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
               : text[0] >= 0xe0 && text[0] < 0xf0 ? 3
               : text[0] >= 0xf0 && text[0] < 0xf5 ? 4
                                                   : 0;
  for (size_t i = 1; i < len; i++)
    if ((text[i] & 0xc0) != 0x80) return 0; /* the NUL at the end too */
  int is_overlong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
  int is_beyond = (text[0] == 0xed && text[1] > 0x9f) || (text[0] == 0xf4 && text[1] > 0x8f);
  return is_overlong || is_beyond ? 0 : len;
}

/* A log may have any bytes in a name; reports and JSON have characters. */
static void clean(char *text) {
  for (unsigned char *at = (unsigned char *)text; *at;) {
    size_t len = utf8_len(at);
    if (!len || *at < ' ' || *at == 0x7f) *at = '?', len = 1;
    at += len;
  }
}

/* The innermost frame of the user's own code. */
static void place_find(span in, char *out, size_t out_size) {
  static const char words[] = "File \"";
  frame found;
  for (size_t at = in.len; at-- > 0;) {
    if (!starts(in, at, words) || !frame_read((span){in.text + at, in.len - at}, &found) || is_library(found.file)) continue;
    span file = base_name(found.file);
    (void)snprintf(out, out_size, "%.*s:%u%s%.*s", (int)(file.len < 60 ? file.len : 60), file.text, found.line,
                   found.function.len ? " in " : "", (int)(found.function.len < 48 ? found.function.len : 48),
                   found.function.len ? found.function.text : "");
    break;
  }
  clean(out);
}

/* ---- the setting --------------------------------------------------------------------------------------------------------- */

/* "expandable_segments:True" other than as advice */
static int is_expandable(span in) {
  static const char words[] = "expandable_segments:True", advice[] = " to avoid";
  for (size_t at = 0; at < in.len; at++) {
    if (!starts(in, at, words)) continue;
    size_t end = at + sizeof words - 1;
    while (end < in.len && (in.text[end] == '`' || in.text[end] == '\n')) end++;
    if (!starts(in, end, advice)) return 1;
  }
  return 0;
}

void tn__oom_where(const char *text, size_t begin, size_t end, tn_oom *oom) {
  size_t from = begin > BEFORE ? begin - BEFORE : 0;
  span before = {text + from, begin - from};
  size_t trace = find_last(before, "Traceback (most recent call last)");
  if (trace == before.len) trace = before.len > BARE ? before.len - BARE : 0;
  span in = {before.text + trace, end - from - trace};
  oom->moments = moments_find(in);
  place_find(in, oom->place, sizeof oom->place);
  if (is_expandable((span){text + from, end - from})) oom->flags |= TN_OOM_EXPANDABLE;
}

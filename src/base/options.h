/* options.h -- every verb and every option, once.  Why: parsing, --help, the man pages and the JSON table that the Python side is
 * tested against must not disagree.
 *
 * Callers: the command.  Pure: the environment comes in as a function.  Thread-safe: the table is constant.
 *
 * To add an option, add a row to TN_OPTIONS; to add a verb, a row to TN_VERBS and its description in verbs.c. */
#ifndef TN_BASE_OPTIONS_H
#define TN_BASE_OPTIONS_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- verbs --------------------------------------------------------------------------------------------------------------- */

enum tn_verb_home { TN_HOME_NATIVE, TN_HOME_PYTHON }; /* who runs it: this program, or python3 -m tonnage */
enum tn_verb_group { TN_GROUP_BEFORE, TN_GROUP_RUN, TN_GROUP_AFTER, TN_GROUP_TOOLS, TN_GROUP_COUNT };

/* id, name, home, group, least positional arguments, most (-1: any number), their names, summary */
#define TN_VERBS(X)                                                                                                     \
  X(ESTIMATE, "estimate", PYTHON, BEFORE, 1, -1, "RECIPE [KEY=VALUE ...]", "Will it fit, and where do the bytes go?")   \
  X(PLAN, "plan", PYTHON, BEFORE, 1, -1, "RECIPE [KEY=VALUE ...]", "The cheapest change that makes it fit")             \
  X(FIT, "fit", PYTHON, RUN, 1, -1, "RECIPE [KEY=VALUE ...]", "Make it fit, and train")                                 \
  X(EXPLAIN, "explain", NATIVE, AFTER, 0, 1, "[FILE]", "Why it ran out of memory, and what would have helped")       \
  X(TUNE, "tune", NATIVE, AFTER, 1, 1, "FILE", "The allocator settings that would serve a recorded run best")             \
  X(REPLAY, "replay", NATIVE, AFTER, 1, 1, "FILE", "A recorded run under the settings it had, or others")                 \
  X(DIFF, "diff", NATIVE, AFTER, 2, 2, "A B", "What changed between two snapshots, or two captured traces")            \
  X(CAPTURE, "capture", PYTHON, TOOLS, 1, -1, "RECIPE [KEY=VALUE ...]", "Write the trace of a training step to a file") \
  X(REPORT, "report", NATIVE, TOOLS, 1, 1, "TRACE", "The estimate of a captured trace")                                 \
  X(PROFILE, "profile", PYTHON, TOOLS, 0, 0, "", "Measure this machine's device into a small file")                     \
  X(HELP, "help", NATIVE, TOOLS, 0, 1, "[VERB]", "This text, or all about one verb")                                    \
  X(VERSION, "version", NATIVE, TOOLS, 0, 0, "", "Print the version")

enum tn_verb {
#define TN_VERB_ENUM(id, ...) TN_VERB_##id,
  TN_VERBS(TN_VERB_ENUM)
#undef TN_VERB_ENUM
      TN_VERB_COUNT
};

#define TN_VERB_BIT(verb) (1u << (verb))
#define TN_VERBS_ALL (TN_VERB_BIT(TN_VERB_COUNT) - 1)
#define TN_VERBS_PYTHON                                                                                          \
  (TN_VERB_BIT(TN_VERB_ESTIMATE) | TN_VERB_BIT(TN_VERB_PLAN) | TN_VERB_BIT(TN_VERB_FIT) | TN_VERB_BIT(TN_VERB_CAPTURE) | \
   TN_VERB_BIT(TN_VERB_PROFILE))
#define TN_VERBS_RECIPE (TN_VERBS_PYTHON & ~TN_VERB_BIT(TN_VERB_PROFILE))
#define TN_VERBS_REPLAY (TN_VERB_BIT(TN_VERB_TUNE) | TN_VERB_BIT(TN_VERB_REPLAY))
#define TN_VERBS_SNAPSHOT (TN_VERB_BIT(TN_VERB_EXPLAIN) | TN_VERB_BIT(TN_VERB_DIFF))
#define TN_VERBS_PLANNING (TN_VERB_BIT(TN_VERB_PLAN) | TN_VERB_BIT(TN_VERB_FIT))

typedef struct tn_verb_info {
  const char *name;
  enum tn_verb_home home;
  enum tn_verb_group group;
  int args_min, args_max;
  const char *args, *summary;
} tn_verb_info;

const tn_verb_info *tn__verb_info(enum tn_verb verb);
const char *tn__verb_description(enum tn_verb verb); /* paragraphs, one a line */
const char *tn__verb_examples(enum tn_verb verb);    /* commands, one a line; "" */
enum tn_verb tn__verb_find(const char *name);     /* TN_VERB_COUNT when unknown */
const char *tn__verb_nearest(const char *name);   /* NULL when nothing is near */
const char *tn__verb_group_title(enum tn_verb_group group);

/* ---- options ------------------------------------------------------------------------------------------------------------- */

enum tn_option_kind {
  TN_KIND_FLAG,   /* no argument */
  TN_KIND_TEXT,
  TN_KIND_FILE,
  TN_KIND_SIZE,   /* as tn_size_parse(), above 0 */
  TN_KIND_NUMBER, /* a whole number above 0 */
  TN_KIND_CHOICE, /* one of the option's choices */
  TN_KIND_LIST    /* some of the option's choices, with commas; may be given again to add more */
};

/* id, long name, short name or 0, kind, argument name, choices, default, environment, verbs, help */
#define TN_OPTIONS(X)                                                                                                        \
  X(ORDINAL, "device", 'd', TEXT, "N", NULL, NULL, NULL, TN_VERBS_REPLAY | TN_VERB_BIT(TN_VERB_DIFF),                        \
    "CUDA's number of the device; without it, the one with most entries")                                                    \
  X(DEVICE, "device", 'd', TEXT, "NAME", NULL, NULL, "TONNAGE_DEVICE",                                                       \
    TN_VERBS_PYTHON | TN_VERB_BIT(TN_VERB_REPORT) | TN_VERB_BIT(TN_VERB_EXPLAIN),                                            \
    "the card to train on: a profile's name (h200, a100-80, rtx4090, cpu) or its file; without it, the card at hand, or the trace's; " \
    "of a snapshot also the number of one of its devices")                                                                   \
  X(CONF, "conf", 'c', TEXT, "STRING", NULL, NULL, NULL, TN_VERB_BIT(TN_VERB_REPLAY),                                        \
    "settings to replay under, as in PYTORCH_CUDA_ALLOC_CONF; without it, the recorded ones")                                \
  X(LIMIT, "limit", 'l', SIZE, "SIZE", NULL, NULL, NULL, TN_VERBS_REPLAY,                                                    \
    "memory that the allocator may reserve (set_per_process_memory_fraction): 22GiB; without it, as far as the file tells")  \
  X(BUDGET, "budget", 'b', SIZE, "SIZE", NULL, NULL, "TONNAGE_BUDGET",                                                       \
    TN_VERBS_PLANNING | TN_VERB_BIT(TN_VERB_ESTIMATE) | TN_VERB_BIT(TN_VERB_REPORT) | TN_VERB_BIT(TN_VERB_EXPLAIN),          \
    "device memory that the process may use, context included: 12GiB, 8GB, 0.5g; without it, what the card has")             \
  X(STEPS, "steps", 'n', NUMBER, "N", NULL, "20", NULL, TN_VERB_BIT(TN_VERB_FIT), "training steps to run")                   \
  X(PLAN, "plan", 0, FILE, "FILE", NULL, NULL, NULL, TN_VERB_BIT(TN_VERB_FIT), "run this plan instead of making one")        \
  X(ALLOW, "allow", 0, LIST, "LEVER", "precision,batchnorm", NULL, NULL, TN_VERBS_PLANNING,                                  \
    "also allow what changes numerics: precision (bf16 autocast), batchnorm (its statistics under micro-batches)")           \
  X(LEVERS, "levers", 0, LIST, "LIST", "rebuild,micro-batch,allocator", "rebuild,micro-batch,allocator", NULL,               \
    TN_VERBS_PLANNING, "use only these levers")                                                                              \
  X(OUTPUT, "output", 'o', FILE, "FILE", NULL, NULL, NULL,                                                                   \
    TN_VERBS_PLANNING | TN_VERB_BIT(TN_VERB_CAPTURE) | TN_VERB_BIT(TN_VERB_PROFILE),                                         \
    "write the result to FILE: the plan, the trace or the profile")                                                          \
  X(TRACE, "trace", 0, FILE, "FILE", NULL, NULL, NULL, TN_VERBS_PLANNING | TN_VERB_BIT(TN_VERB_ESTIMATE),                    \
    "also write the captured trace to FILE")                                                                                 \
  X(MESSAGE, "message", 'm', TEXT, "TEXT", NULL, NULL, NULL, TN_VERB_BIT(TN_VERB_EXPLAIN),                                   \
    "explain this out-of-memory message")                                                                                    \
  X(HTML, "html", 0, FILE, "PAGE", NULL, NULL, NULL, TN_VERB_BIT(TN_VERB_EXPLAIN),                                            \
    "also write the report of a snapshot to PAGE: one HTML file with memory over time and the segments at any moment")       \
  X(STACK_DEPTH, "stack-depth", 0, NUMBER, "N", NULL, NULL, NULL, TN_VERB_BIT(TN_VERB_EXPLAIN),                              \
    "show N frames of each stack, innermost first")                                                                          \
  X(FAIL_ABOVE, "fail-above", 0, SIZE, "SIZE", NULL, NULL, NULL, TN_VERB_BIT(TN_VERB_EXPLAIN),                               \
    "end with status 1 when more than SIZE is reserved at the peak")                                                         \
  X(FAIL_LEAK, "fail-leak", 0, TEXT, "SIZE/step", NULL, NULL, NULL, TN_VERB_BIT(TN_VERB_EXPLAIN),                            \
    "end with status 1 when memory grows by more than SIZE a step, with 5 when the steps do not show it")                    \
  X(FAIL_WASTE, "fail-waste", 0, TEXT, "PERCENT", NULL, NULL, NULL, TN_VERB_BIT(TN_VERB_EXPLAIN),                            \
    "end with status 1 when more than PERCENT of what is reserved at most is never allocated at once")                       \
  X(JSON, "json", 0, FLAG, NULL, NULL, NULL, NULL,                                                                           \
    TN_VERBS_PYTHON | TN_VERBS_REPLAY | TN_VERBS_SNAPSHOT | TN_VERB_BIT(TN_VERB_REPORT),                                     \
    "print JSON, sizes in bytes, instead of text")                                                                           \
  X(QUIET, "quiet", 'q', FLAG, NULL, NULL, NULL, NULL, TN_VERBS_PYTHON, "no progress and no remarks on stderr")              \
  X(COLOR, "color", 0, CHOICE, "WHEN", "auto,always,never", "auto", "TONNAGE_COLOR",                                         \
    TN_VERBS_PYTHON | TN_VERB_BIT(TN_VERB_HELP),                                                                             \
    "colour: auto, always, never; auto is a terminal without NO_COLOR set")                                                  \
  X(MAN, "man", 0, FLAG, NULL, NULL, NULL, NULL, TN_VERB_BIT(TN_VERB_HELP), "print the manual page's source")                \
  X(TABLE, "table", 0, FLAG, NULL, NULL, NULL, NULL, TN_VERB_BIT(TN_VERB_HELP), "print all verbs and options as JSON")       \
  X(HELP, "help", 'h', FLAG, NULL, NULL, NULL, NULL, TN_VERBS_ALL, "show this help")

enum tn_option {
#define TN_OPTION_ENUM(id, ...) TN_OPTION_##id,
  TN_OPTIONS(TN_OPTION_ENUM)
#undef TN_OPTION_ENUM
      TN_OPTION_COUNT
};

typedef struct tn_option_info {
  const char *name;
  char letter; /* 0: none */
  enum tn_option_kind kind;
  const char *arg, *choices, *standard, *env; /* NULL: none */
  uint32_t verbs;                             /* TN_VERB_BIT of each that takes it */
  const char *help;
} tn_option_info;

const tn_option_info *tn__option_info(enum tn_option option);
const char *tn__option_kind_name(enum tn_option_kind kind);
/* The option's name as the verb's help shows it: "-o, --output FILE". */
void tn__option_usage(tn_text *text, const tn_option_info *info);

/* ---- parsing ------------------------------------------------------------------------------------------------------------- */

/* Texts belong to argv and the environment, except those of lists. */
typedef struct tn_options {
  const char *value[TN_OPTION_COUNT]; /* NULL: not given and no default; a given flag is "1" */
  uint8_t given[TN_OPTION_COUNT];     /* 1: on the command line; 2: in the environment */
  const char **args;                  /* positional */
  int args_count;
  char *lists[TN_OPTION_COUNT];       /* owned: the joined values of a list */
} tn_options;

typedef const char *(*tn_env)(void *user, const char *name); /* getenv(), or a test's */

/* Reads argv[0 ... argc) for a verb, the verb itself not among them.  Options and positional arguments may mix; "--" ends the
 * options.  With --help the rest is not judged.  TN_EINVAL with one line in *err; nothing to deinit then. */
int tn__options_parse(tn_options *options, enum tn_verb verb, int argc, const char *const *argv, tn_env env, void *env_user,
                      tn_error *err);
void tn__options_deinit(tn_options *options);
uint64_t tn__options_size(const tn_options *options, enum tn_option option); /* of a size, a count or a flag; 0 when not given */

/* Edits (insert, delete, replace, swap of neighbours) that turn a into b, up to limit; limit + 1 for more. */
int tn__text_distance(const char *a, const char *b, int limit);

#ifdef __cplusplus
}
#endif
#endif

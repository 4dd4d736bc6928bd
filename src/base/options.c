/* options.c -- the option table and its parser.  See options.h. */
#include "base/options.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

static const tn_option_info option_table[TN_OPTION_COUNT] = {
#define OPTION_ROW(id, name, letter, kind, arg, choices, standard, env, verbs, help) \
  [TN_OPTION_##id] = {name, letter, TN_KIND_##kind, arg, choices, standard, env, verbs, help},
    TN_OPTIONS(OPTION_ROW)
#undef OPTION_ROW
};

const tn_option_info *tn__option_info(enum tn_option option) {
  tn_assert(option < TN_OPTION_COUNT);
  return &option_table[option];
}

const char *tn__option_kind_name(enum tn_option_kind kind) {
  static const char *const names[] = {"flag", "text", "file", "size", "number", "choice", "list"};
  return names[kind];
}

void tn__option_usage(tn_text *text, const tn_option_info *info) {
  if (info->letter)
    tn__text_printf(text, "-%c, ", info->letter);
  else
    tn__text_add(text, "    ");
  tn__text_printf(text, "--%s", info->name);
  if (info->arg) tn__text_printf(text, " %s", info->arg);
}

/* ---- finding ------------------------------------------------------------------------------------------------------------- */

static enum tn_option option_by_name(enum tn_verb verb, const char *name, size_t len) {
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++)
    if ((option_table[i].verbs & TN_VERB_BIT(verb)) && strlen(option_table[i].name) == len &&
        memcmp(option_table[i].name, name, len) == 0)
      return (enum tn_option)i;
  return TN_OPTION_COUNT;
}

static enum tn_option option_by_letter(enum tn_verb verb, char letter) {
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++)
    if ((option_table[i].verbs & TN_VERB_BIT(verb)) && option_table[i].letter == letter && letter) return (enum tn_option)i;
  return TN_OPTION_COUNT;
}

static int min3(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }

/* Optimal string alignment, three rows.  Names are short; longer ones are simply far away. */
int tn__text_distance(const char *a, const char *b, int limit) {
  enum { LONGEST = 32 };
  size_t rows = strlen(a), columns = strlen(b);
  if (rows > LONGEST || columns > LONGEST) return limit + 1;
  int before[LONGEST + 1] = {0}, above[LONGEST + 1], row[LONGEST + 1];
  for (size_t k = 0; k <= columns; k++) above[k] = (int)k;
  for (size_t i = 1; i <= rows; i++) {
    row[0] = (int)i;
    for (size_t k = 1; k <= columns; k++) {
      row[k] = min3(above[k] + 1, row[k - 1] + 1, above[k - 1] + (a[i - 1] != b[k - 1]));
      if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] && before[k - 2] + 1 < row[k]) row[k] = before[k - 2] + 1;
    }
    memcpy(before, above, sizeof before);
    memcpy(above, row, sizeof above);
  }
  return above[columns] > limit ? limit + 1 : above[columns];
}

static const char *option_nearest(enum tn_verb verb, const char *name, size_t len) {
  char text[33];
  if (len >= sizeof text) return NULL;
  memcpy(text, name, len);
  text[len] = '\0';
  const char *nearest = NULL;
  int best = len < 4 ? 2 : 3; /* at most 1 or 2 edits */
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++) {
    if (!(option_table[i].verbs & TN_VERB_BIT(verb))) continue;
    int distance = tn__text_distance(text, option_table[i].name, 3);
    if (distance < best) best = distance, nearest = option_table[i].name;
  }
  return nearest;
}

/* ---- judging ------------------------------------------------------------------------------------------------------------- */

/* Is the word of len bytes one of the choices "a,b,c"? */
static int is_choice(const char *choices, const char *word, size_t len) {
  for (const char *at = choices; at; at = strchr(at, ','), at += at != NULL)
    if (len && strncmp(at, word, len) == 0 && (at[len] == ',' || at[len] == '\0')) return 1;
  return 0;
}

static int number_parse(const char *text, uint64_t *out) {
  uint64_t number = 0;
  for (const char *at = text; *at; at++) {
    if (*at < '0' || *at > '9' || number > 100000000) return TN_EINVAL;
    number = number * 10 + (uint64_t)(*at - '0');
  }
  *out = number;
  return number ? TN_OK : TN_EINVAL;
}

/* Says where the value came from: "--budget" or "TONNAGE_BUDGET". */
static int value_check(const tn_option_info *info, const char *value, const char *dashes, const char *from, tn_error *err) {
  uint64_t number = 0;
  tn_error why = {0};
  switch (info->kind) {
    case TN_KIND_SIZE:
      if (tn_size_parse(value, &number, &why)) return tn__error_set(err, TN_EINVAL, "%s%s: %s", dashes, from, why.msg);
      if (number == 0) return tn__error_set(err, TN_EINVAL, "%s%s: a size above 0 is wanted", dashes, from);
      break;
    case TN_KIND_NUMBER:
      if (number_parse(value, &number))
        return tn__error_set(err, TN_EINVAL, "%s%s: \"%.40s\" is not a whole number above 0", dashes, from, value);
      break;
    case TN_KIND_CHOICE:
    case TN_KIND_LIST:
      for (const char *word = value;;) {
        size_t len = info->kind == TN_KIND_LIST ? strcspn(word, ",") : strlen(word);
        if (!is_choice(info->choices, word, len))
          return tn__error_set(err, TN_EINVAL, "%s%s: \"%.*s\" is none of %s", dashes, from, (int)(len < 40 ? len : 40), word,
                               info->choices);
        if (!word[len]) break;
        word += len + 1;
      }
      break;
    case TN_KIND_FILE:
    case TN_KIND_TEXT:
      if (!*value) return tn__error_set(err, TN_EINVAL, "%s%s: %s is empty", dashes, from, info->arg);
      break;
    case TN_KIND_FLAG: break;
  }
  return TN_OK;
}

/* ---- parsing ------------------------------------------------------------------------------------------------------------- */

typedef struct parse {
  tn_options *options;
  enum tn_verb verb;
  int argc, at;
  const char *const *argv;
  tn_error *err;
} parse;

static int list_extend(tn_options *options, enum tn_option option, const char *value) {
  tn_text text;
  tn__text_init(&text);
  if (options->lists[option]) tn__text_printf(&text, "%s,", options->lists[option]);
  tn__text_add(&text, value);
  char *joined = NULL;
  int rc = tn__text_take(&text, &joined);
  tn__text_deinit(&text);
  if (rc) return rc;
  tn__mem_free(options->lists[option]);
  options->value[option] = options->lists[option] = joined;
  return TN_OK;
}

static int value_set(parse *p, enum tn_option option, const char *value) {
  const tn_option_info *info = &option_table[option];
  TN_TRY(value_check(info, value, "--", info->name, p->err));
  p->options->given[option] = 1;
  if (info->kind == TN_KIND_LIST && list_extend(p->options, option, value)) return tn__error_set(p->err, TN_ENOMEM, NULL);
  if (info->kind != TN_KIND_LIST) p->options->value[option] = value;
  return TN_OK;
}

static int unknown_option(parse *p, const char *word, size_t len) {
  const char *verb = tn__verb_info(p->verb)->name, *nearest = option_nearest(p->verb, word + 2, len > 2 ? len - 2 : 0);
  int shown = (int)(len < 40 ? len : 40);
  if (nearest)
    return tn__error_set(p->err, TN_EINVAL, "%s has no option %.*s; did you mean --%s?", verb, shown, word, nearest);
  return tn__error_set(p->err, TN_EINVAL, "%s has no option %.*s; see tonnage help %s", verb, shown, word, verb);
}

/* Takes the next word as the value of an option whose word did not carry it. */
static int value_next(parse *p, enum tn_option option) {
  const tn_option_info *info = &option_table[option];
  if (p->at >= p->argc) return tn__error_set(p->err, TN_EINVAL, "--%s needs %s", info->name, info->arg);
  return value_set(p, option, p->argv[p->at++]);
}

static int parse_long(parse *p, const char *word) {
  size_t len = strcspn(word, "=");
  enum tn_option option = option_by_name(p->verb, word + 2, len - 2);
  if (option == TN_OPTION_COUNT) return unknown_option(p, word, len);
  int flag = option_table[option].kind == TN_KIND_FLAG;
  if (word[len] && flag) return tn__error_set(p->err, TN_EINVAL, "--%s takes no value", option_table[option].name);
  if (word[len]) return value_set(p, option, word + len + 1);
  return flag ? value_set(p, option, "1") : value_next(p, option);
}

/* "-q", "-oFILE", "-o FILE", "-qo FILE" */
static int parse_letters(parse *p, const char *word) {
  for (const char *letter = word + 1; *letter; letter++) {
    enum tn_option option = option_by_letter(p->verb, *letter);
    if (option == TN_OPTION_COUNT) {
      char unknown[3] = {'-', *letter, '\0'};
      return unknown_option(p, unknown, 2);
    }
    if (option_table[option].kind == TN_KIND_FLAG)
      TN_TRY(value_set(p, option, "1"));
    else
      return letter[1] ? value_set(p, option, letter + 1) : value_next(p, option);
  }
  return TN_OK;
}

static int parse_words(parse *p) {
  int only_args = 0;
  while (p->at < p->argc) {
    const char *word = p->argv[p->at++];
    if (only_args || word[0] != '-' || word[1] == '\0')
      p->options->args[p->options->args_count++] = word;
    else if (strcmp(word, "--") == 0)
      only_args = 1;
    else if (word[1] == '-')
      TN_TRY(parse_long(p, word));
    else
      TN_TRY(parse_letters(p, word));
    if (p->options->given[TN_OPTION_HELP]) break;
  }
  return TN_OK;
}

/* What the command line left open: first the environment, then the default. */
static int fill_in(parse *p, tn_env env, void *env_user) {
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++) {
    const tn_option_info *info = &option_table[i];
    if (p->options->given[i] || !(info->verbs & TN_VERB_BIT(p->verb))) continue;
    const char *value = info->env && env ? env(env_user, info->env) : NULL;
    if (value && *value) {
      TN_TRY(value_check(info, value, "", info->env, p->err));
      p->options->given[i] = 2;
      p->options->value[i] = value;
    } else {
      p->options->value[i] = info->standard;
    }
  }
  return TN_OK;
}

static int args_check(const parse *p) {
  const tn_verb_info *verb = tn__verb_info(p->verb);
  int count = p->options->args_count;
  if (count < verb->args_min) return tn__error_set(p->err, TN_EINVAL, "%s needs %s", verb->name, verb->args);
  if (verb->args_max >= 0 && count > verb->args_max)
    return tn__error_set(p->err, TN_EINVAL, "%s does not know what to do with \"%.60s\"", verb->name,
                         p->options->args[verb->args_max]);
  return TN_OK;
}

int tn__options_parse(tn_options *options, enum tn_verb verb, int argc, const char *const *argv, tn_env env, void *env_user,
                      tn_error *err) {
  tn_options made = {0};
  parse p = {.options = &made, .verb = verb, .argc = argc, .argv = argv, .err = err};
  int rc = TN_OK;
  made.args = tn__mem_zalloc((size_t)argc + 1, sizeof *made.args);
  if (!made.args) {
    rc = tn__error_set(err, TN_ENOMEM, NULL);
    goto out;
  }
  rc = parse_words(&p);
  if (rc) goto out;
  if (!made.given[TN_OPTION_HELP]) {
    rc = args_check(&p);
    if (!rc) rc = fill_in(&p, env, env_user);
    if (rc) goto out;
  }
  *options = made;
  return TN_OK;
out:
  tn__options_deinit(&made);
  return rc;
}

void tn__options_deinit(tn_options *options) {
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++) tn__mem_free(options->lists[i]);
  tn__mem_free(options->args);
  *options = (tn_options){0};
}

uint64_t tn__options_size(const tn_options *options, enum tn_option option) {
  uint64_t number = 0;
  const char *value = options->value[option];
  if (!value) return 0;
  if (option_table[option].kind == TN_KIND_SIZE) (void)tn_size_parse(value, &number, NULL); /* was checked when it was set */
  else (void)number_parse(value, &number);
  return number;
}

/* main.c -- the command table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/help.h"
#include "cmd.h"

static int (*const commands[TN_VERB_COUNT])(const tn_cmd *cmd) = {
    [TN_VERB_ESTIMATE] = cmd_python, [TN_VERB_PLAN] = cmd_python,    [TN_VERB_FIT] = cmd_python, [TN_VERB_CAPTURE] = cmd_python,
    [TN_VERB_EXPLAIN] = cmd_explain, [TN_VERB_TUNE] = cmd_tune,      [TN_VERB_REPLAY] = cmd_replay, [TN_VERB_DIFF] = cmd_diff,
    [TN_VERB_REPORT] = cmd_report,   [TN_VERB_PROFILE] = cmd_python, [TN_VERB_HELP] = cmd_help,  [TN_VERB_VERSION] = cmd_version,
};

static const char *env_get(void *user, const char *name) {
  (void)user;
  return getenv(name);
}

static int unknown_verb(const char *word) {
  const char *nearest = tn__verb_nearest(word);
  const char *what = word[0] == '-' ? "option" : "verb";
  if (nearest && word[0] != '-')
    return cmd_fail(TN_EINVAL, "there is no verb \"%.40s\"; did you mean %s?", word, nearest);
  return cmd_fail(TN_EINVAL, "there is no %s \"%.40s\"; see tonnage help", what, word);
}

static int run(enum tn_verb verb, int argc, const char *const *argv) {
  tn_cmd cmd = {.verb = verb, .argc = argc, .argv = argv};
  tn_error err = {0};
  int rc = tn__options_parse(&cmd.options, verb, argc, argv, env_get, NULL, &err);
  if (rc) return cmd_fail(rc, "%s", err.msg);
  int status;
  if (cmd.options.given[TN_OPTION_HELP]) {
    tn_text text;
    tn__text_init(&text);
    tn__help_verb(&text, verb, cmd_color(&cmd));
    status = cmd_print(&text);
  } else {
    status = commands[verb](&cmd);
  }
  tn__options_deinit(&cmd.options);
  return status;
}

int main(int argc, char **argv) {
  const char *const *words = (const char *const *)argv;
  if (argc < 2) {
    tn_text text;
    tn__text_init(&text);
    tn__help_overview(&text, 0);
    fputs(tn__text_view(&text), stderr);
    tn__text_deinit(&text);
    return tn_error_status(TN_EINVAL);
  }
  if (strcmp(argv[1], "--version") == 0) return run(TN_VERB_VERSION, argc - 2, words + 2);
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return run(TN_VERB_HELP, argc - 2, words + 2);
  enum tn_verb verb = tn__verb_find(argv[1]);
  return verb == TN_VERB_COUNT ? unknown_verb(argv[1]) : run(verb, argc - 2, words + 2);
}

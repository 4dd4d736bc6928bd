/* options: the table's own consistency, and parsing for a verb. */
#include "base/options.h"

#include "helper.h"

typedef struct pair {
  const char *name, *value;
} pair;

/* A NULL-terminated list of pairs stands in for the environment. */
static const char *env_fake(void *user, const char *name) {
  for (const pair *p = user; p && p->name; p++)
    if (strcmp(p->name, name) == 0) return p->value;
  return NULL;
}

#define PARSE(options, verb, env, err, ...) \
  tn__options_parse(options, verb, COUNT(__VA_ARGS__), (const char *const[]){__VA_ARGS__, NULL}, env_fake, env, err)
#define COUNT(...) (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void refuse(enum tn_verb verb, pair *env, const char *reason, int argc, const char *const *argv) {
  tn_options options;
  tn_error err = {0};
  int64_t live = tn__mem_live();
  assert_int_equal(tn__options_parse(&options, verb, argc, argv, env_fake, env, &err), TN_EINVAL);
  assert_int_equal(tn__mem_live(), live);
  assert_string_equal(err.msg, reason);
}
#define REFUSE(verb, env, reason, ...) refuse(verb, env, reason, COUNT(__VA_ARGS__), (const char *const[]){__VA_ARGS__})

/* Each argument that is an option's must be judged by a kind, each letter must be one option's. */
static void the_table_is_consistent(void **state) {
  (void)state;
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++) {
    const tn_option_info *info = tn__option_info((enum tn_option)i);
    assert_true(strlen(info->name) > 1);
    assert_true(info->verbs != 0 && (info->verbs & ~TN_VERBS_ALL) == 0);
    assert_int_equal(info->kind == TN_KIND_FLAG, info->arg == NULL);
    assert_int_equal(info->kind == TN_KIND_CHOICE || info->kind == TN_KIND_LIST, info->choices != NULL);
    assert_non_null(info->help);
    for (unsigned k = 0; k < i; k++) {
      const tn_option_info *other = tn__option_info((enum tn_option)k);
      if (!(info->verbs & other->verbs)) continue; /* a name may mean one thing to some verbs and another to others */
      assert_string_not_equal(info->name, other->name);
      if (info->letter) assert_int_not_equal(info->letter, other->letter);
    }
  }
  for (unsigned verb = 0; verb < TN_VERB_COUNT; verb++) {
    assert_non_null(tn__verb_description((enum tn_verb)verb));
    assert_int_equal(tn__verb_find(tn__verb_info((enum tn_verb)verb)->name), verb);
  }
  assert_int_equal(tn__verb_find("nothing"), TN_VERB_COUNT);
}

static void options_and_arguments_mix(void **state) {
  (void)state;
  tn_options options;
  tn_error err = {0};
  int rc = PARSE(&options, TN_VERB_FIT, NULL, &err, "bert.py", "--budget", "12GiB", "size=large", "--steps=7", "-qd", "h200", "--",
                 "--odd", "-");
  if (rc) fail_msg("%s", err.msg);
  assert_int_equal(options.args_count, 4);
  assert_string_equal(options.args[0], "bert.py");
  assert_string_equal(options.args[1], "size=large");
  assert_string_equal(options.args[2], "--odd");
  assert_string_equal(options.args[3], "-");
  assert_int_equal(tn__options_size(&options, TN_OPTION_BUDGET), 12884901888u);
  assert_int_equal(tn__options_size(&options, TN_OPTION_STEPS), 7);
  assert_int_equal(tn__options_size(&options, TN_OPTION_QUIET), 1);
  assert_int_equal(tn__options_size(&options, TN_OPTION_JSON), 0);
  assert_string_equal(options.value[TN_OPTION_DEVICE], "h200");
  assert_null(options.value[TN_OPTION_OUTPUT]);
  tn__options_deinit(&options);
}

static void letters_take_their_value_joined_or_apart(void **state) {
  (void)state;
  tn_options options;
  assert_int_equal(PARSE(&options, TN_VERB_CAPTURE, NULL, NULL, "r.py", "-oa.trace"), TN_OK);
  assert_string_equal(options.value[TN_OPTION_OUTPUT], "a.trace");
  tn__options_deinit(&options);
  assert_int_equal(PARSE(&options, TN_VERB_CAPTURE, NULL, NULL, "-o", "-q", "r.py"), TN_OK); /* a file named -q */
  assert_string_equal(options.value[TN_OPTION_OUTPUT], "-q");
  assert_int_equal(options.given[TN_OPTION_QUIET], 0);
  tn__options_deinit(&options);
}

static void the_command_line_beats_the_environment_beats_the_default(void **state) {
  (void)state;
  pair env[] = {{"TONNAGE_BUDGET", "8GiB"}, {"TONNAGE_COLOR", ""}, {NULL, NULL}};
  tn_options options;
  assert_int_equal(PARSE(&options, TN_VERB_FIT, env, NULL, "r.py", "--budget", "4GiB"), TN_OK);
  assert_string_equal(options.value[TN_OPTION_BUDGET], "4GiB");
  assert_int_equal(options.given[TN_OPTION_BUDGET], 1);
  tn__options_deinit(&options);
  assert_int_equal(PARSE(&options, TN_VERB_FIT, env, NULL, "r.py"), TN_OK);
  assert_string_equal(options.value[TN_OPTION_BUDGET], "8GiB");
  assert_int_equal(options.given[TN_OPTION_BUDGET], 2);
  assert_string_equal(options.value[TN_OPTION_COLOR], "auto"); /* an empty variable is an unset one */
  assert_string_equal(options.value[TN_OPTION_STEPS], "20");
  assert_int_equal(options.given[TN_OPTION_STEPS], 0);
  tn__options_deinit(&options);
}

static void lists_add_up(void **state) {
  (void)state;
  tn_options options;
  assert_int_equal(PARSE(&options, TN_VERB_PLAN, NULL, NULL, "r.py", "--allow", "precision", "--allow=batchnorm,precision"), TN_OK);
  assert_string_equal(options.value[TN_OPTION_ALLOW], "precision,batchnorm,precision");
  assert_string_equal(options.value[TN_OPTION_LEVERS], "rebuild,micro-batch,allocator");
  tn__options_deinit(&options);
}

static void help_ends_the_judging(void **state) {
  (void)state;
  tn_options options;
  assert_int_equal(PARSE(&options, TN_VERB_FIT, NULL, NULL, "--help", "--nonsense"), TN_OK);
  assert_int_equal(options.given[TN_OPTION_HELP], 1);
  tn__options_deinit(&options);
  assert_int_equal(PARSE(&options, TN_VERB_FIT, NULL, NULL, "-h"), TN_OK); /* without the RECIPE that fit needs */
  tn__options_deinit(&options);
}

static void each_mistake_gets_its_own_line(void **state) {
  (void)state;
  pair bad_env[] = {{"TONNAGE_BUDGET", "lots"}, {NULL, NULL}};
  REFUSE(TN_VERB_FIT, NULL, "fit has no option --bugdet; did you mean --budget?", "r.py", "--bugdet", "1");
  REFUSE(TN_VERB_FIT, NULL, "fit has no option --stepz; did you mean --steps?", "r.py", "--stepz=3");
  REFUSE(TN_VERB_FIT, NULL, "fit has no option --frobnicate; see tonnage help fit", "r.py", "--frobnicate");
  REFUSE(TN_VERB_FIT, NULL, "fit has no option -x; see tonnage help fit", "r.py", "-x");
  REFUSE(TN_VERB_ESTIMATE, NULL, "estimate has no option --steps; see tonnage help estimate", "r.py", "--steps", "3");
  REFUSE(TN_VERB_FIT, NULL, "--budget needs SIZE", "r.py", "--budget");
  REFUSE(TN_VERB_FIT, NULL, "--quiet takes no value", "r.py", "--quiet=1");
  REFUSE(TN_VERB_FIT, NULL, "--plan: FILE is empty", "r.py", "--plan=");
  REFUSE(TN_VERB_FIT, NULL, "--steps: \"0\" is not a whole number above 0", "r.py", "--steps", "0");
  REFUSE(TN_VERB_FIT, NULL, "--steps: \"1e3\" is not a whole number above 0", "r.py", "--steps", "1e3");
  REFUSE(TN_VERB_FIT, NULL, "--steps: \"99999999999\" is not a whole number above 0", "r.py", "--steps", "99999999999");
  REFUSE(TN_VERB_FIT, NULL, "--allow: \"magic\" is none of precision,batchnorm", "r.py", "--allow", "precision,magic");
  REFUSE(TN_VERB_FIT, NULL, "--allow: \"\" is none of precision,batchnorm", "r.py", "--allow", "precision,");
  REFUSE(TN_VERB_FIT, NULL, "--color: \"auto,never\" is none of auto,always,never", "r.py", "--color", "auto,never");
  REFUSE(TN_VERB_FIT, NULL, "--budget: a size above 0 is wanted", "r.py", "--budget", "0");
  REFUSE(TN_VERB_FIT, NULL, "--budget: \"12 apples\" is not a size: unknown unit \"apples\" (KiB MiB GiB TiB, KB MB GB TB)", "r.py",
         "--budget", "12 apples");
  REFUSE(TN_VERB_FIT, bad_env, "TONNAGE_BUDGET: \"lots\" is not a size: write 12GiB, 800MB or bytes", "r.py");
  REFUSE(TN_VERB_FIT, NULL, "fit needs RECIPE [KEY=VALUE ...]", "--json");
  REFUSE(TN_VERB_REPORT, NULL, "report does not know what to do with \"b.trace\"", "a.trace", "b.trace");
}

static void distances(void **state) {
  (void)state;
  assert_int_equal(tn__text_distance("plan", "plan", 3), 0);
  assert_int_equal(tn__text_distance("paln", "plan", 3), 1);
  assert_int_equal(tn__text_distance("pln", "plan", 3), 1);
  assert_int_equal(tn__text_distance("plane", "plan", 3), 1);
  assert_int_equal(tn__text_distance("", "plan", 9), 4);
  assert_int_equal(tn__text_distance("plan", "", 9), 4);
  assert_int_equal(tn__text_distance("kitten", "sitting", 9), 3);
  assert_int_equal(tn__text_distance("kitten", "sitting", 2), 3); /* limit + 1 */
  assert_int_equal(tn__text_distance("a very long word, longer than any name here", "plan", 3), 4);
  assert_string_equal(tn__verb_nearest("estimte"), "estimate");
  assert_string_equal(tn__verb_nearest("fti"), "fit");
  assert_null(tn__verb_nearest("train"));
  assert_null(tn__verb_nearest(""));
}

static int parse_lists(void *user) {
  (void)user;
  tn_options options;
  int rc = PARSE(&options, TN_VERB_PLAN, NULL, NULL, "r.py", "--allow", "precision", "--allow", "batchnorm", "--levers", "rebuild");
  if (!rc) tn__options_deinit(&options);
  return rc;
}

static void out_of_memory_leaks_nothing(void **state) {
  (void)state;
  assert_true(tn_test_sweep(parse_lists, NULL) >= 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table_is_consistent),
      cmocka_unit_test(options_and_arguments_mix),
      cmocka_unit_test(letters_take_their_value_joined_or_apart),
      cmocka_unit_test(the_command_line_beats_the_environment_beats_the_default),
      cmocka_unit_test(lists_add_up),
      cmocka_unit_test(help_ends_the_judging),
      cmocka_unit_test(each_mistake_gets_its_own_line),
      cmocka_unit_test(distances),
      cmocka_unit_test(out_of_memory_leaks_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* help: every option is in the help and the manual of its verbs and nowhere else, and lines stay within the width. */
#include "base/help.h"

#include <jansson.h>

#include "helper.h"

static void lines_fit_80_columns(const char *text) {
  while (*text) {
    size_t len = strcspn(text, "\n");
    /* Examples are commands, and stay in one piece. */
    if (len > 80 && strncmp(text, "  tonnage ", 10) != 0) fail_msg("%d columns: %.*s", (int)len, (int)len, text);
    text += len + (text[len] == '\n');
  }
}

/* Hyphens of a name as a manual page writes them. */
static void man_name(const char *name, char *out, size_t size) {
  size_t n = 0;
  for (; *name && n + 2 < size; name++) {
    if (*name == '-') out[n++] = '\\';
    out[n++] = *name;
  }
  out[n] = 0;
}

static void each_option_is_shown_by_its_verbs_only(void **state) {
  (void)state;
  for (unsigned verb = 0; verb < TN_VERB_COUNT; verb++) {
    tn_text help, man;
    tn__text_init(&help);
    tn__text_init(&man);
    tn__help_verb(&help, (enum tn_verb)verb, 0);
    tn__help_man_verb(&man, (enum tn_verb)verb);
    lines_fit_80_columns(tn__text_view(&help));
    const char *options = strstr(tn__text_view(&help), "\nOptions\n");
    assert_non_null(options);
    for (unsigned i = 0; i < TN_OPTION_COUNT; i++) {
      const tn_option_info *info = tn__option_info((enum tn_option)i);
      char in_help[64], in_man[96], name[48];
      snprintf(in_help, sizeof in_help, "  --%s ", info->name);
      if (info->letter) memcpy(in_help, ", ", 2);
      man_name(info->name, name, sizeof name);
      snprintf(in_man, sizeof in_man, "\n\\fB\\-\\-%s\\fR", name);
      if (info->letter) snprintf(in_man, sizeof in_man, "\n\\fB\\-%c\\fR, \\fB\\-\\-%s\\fR", info->letter, name);
      int takes = 0;
      for (unsigned k = 0; k < TN_OPTION_COUNT; k++) {
        const tn_option_info *same = tn__option_info((enum tn_option)k);
        takes |= strcmp(same->name, info->name) == 0 && same->verbs & TN_VERB_BIT(verb);
      }
      /* An example can hold an option's name, but not behind two spaces or a comma. */
      assert_int_equal(strstr(options, in_help) != NULL, takes);
      assert_int_equal(strstr(tn__text_view(&man), in_man) != NULL, takes);
    }
    tn__text_deinit(&help);
    tn__text_deinit(&man);
  }
}

static void the_overview_names_every_verb(void **state) {
  (void)state;
  tn_text text;
  tn__text_init(&text);
  tn__help_overview(&text, 0);
  lines_fit_80_columns(tn__text_view(&text));
  assert_null(strchr(tn__text_view(&text), '\x1b'));
  for (unsigned verb = 0; verb < TN_VERB_COUNT; verb++) {
    char line[32];
    snprintf(line, sizeof line, "\n  %s ", tn__verb_info((enum tn_verb)verb)->name);
    assert_non_null(strstr(tn__text_view(&text), line));
  }
  tn__text_deinit(&text);
  tn__help_overview(&text, 1);
  assert_non_null(strstr(tn__text_view(&text), "\x1b[1mThe run\x1b[0m"));
  tn__text_deinit(&text);
}

static void the_table_is_json(void **state) {
  (void)state;
  tn_text text;
  tn__text_init(&text);
  tn__help_table(&text);
  json_t *table = json_loads(tn__text_view(&text), JSON_REJECT_DUPLICATES, NULL);
  tn__text_deinit(&text);
  assert_non_null(table);
  assert_string_equal(json_string_value(json_object_get(table, "version")), TN_VERSION);
  assert_int_equal(json_array_size(json_object_get(table, "verbs")), TN_VERB_COUNT);
  assert_int_equal(json_array_size(json_object_get(table, "options")), TN_OPTION_COUNT);
  json_decref(table);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_option_is_shown_by_its_verbs_only),
      cmocka_unit_test(the_overview_names_every_verb),
      cmocka_unit_test(the_table_is_json),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

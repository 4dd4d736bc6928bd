/* log: silent unless asked. */
#include "base/log.h"

#include "helper.h"

static void remember(void *user, enum tn_log_level level, const char *line) {
  snprintf(user, 64, "%d:%s", level, line);
}

static void only_the_levels_asked_for_are_passed_on(void **state) {
  (void)state;
  char heard[64] = "";
  tn__log(NULL, TN_LOG_WARNING, "nobody listens");
  tn__log(&(tn_log){.level = TN_LOG_DEBUG}, TN_LOG_WARNING, "nobody listens");
  tn_log log = {.write = remember, .user = heard};
  tn__log(&log, TN_LOG_WARNING, "level 0 is silent");
  assert_string_equal(heard, "");
  log.level = TN_LOG_INFO;
  tn__log(&log, TN_LOG_DEBUG, "too talkative");
  assert_string_equal(heard, "");
  tn__log(&log, TN_LOG_INFO, "%d blocks", 3);
  assert_string_equal(heard, "2:3 blocks");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(only_the_levels_asked_for_are_passed_on)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

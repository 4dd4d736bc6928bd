/* cmd_python.c -- the verbs that need PyTorch: python3 -m tonnage VERB ..., found the way git finds its own.
 *
 * The words have been judged against the option table by now, so a typing error costs no start of Python. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/vec.h"
#include "cmd.h"

extern char **environ;

enum { PATH_BYTES = 4096 };

/* The interpreter in path of PATH_BYTES: $TONNAGE_PYTHON, the one beside this program, the source tree's, the one on PATH. */
static void python_find(char *path) {
  static const char *const beside[] = {"python3", "../.venv/bin/python3"};
  const char *own = getenv("TONNAGE_PYTHON");
  char dir[PATH_BYTES / 2];
  if (own && *own) {
    (void)snprintf(path, PATH_BYTES, "%s", own);
    return;
  }
  cmd_own_dir(dir, sizeof dir);
  for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
    (void)snprintf(path, PATH_BYTES, "%s/%s", dir, beside[i]);
    if (access(path, X_OK) == 0) return;
  }
  (void)snprintf(path, PATH_BYTES, "python3");
}

/* Exit status of a short program: 0 when the package is there, 3 when it is not; negative when the interpreter cannot be run. */
static int python_ask(char *python) {
  static char code[] =
      "import importlib.util, sys\n"
      "spec = importlib.util.find_spec('tonnage')\n"
      "sys.exit(0 if spec and spec.origin else 3)\n";
  char flag[] = "-c", *words[] = {python, flag, code, NULL};
  pid_t pid = 0;
  int status = 0;
  if (posix_spawnp(&pid, python, NULL, NULL, words, environ)) return -1;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) && WEXITSTATUS(status) != 127 ? WEXITSTATUS(status) : -1;
}

static int python_check(char *python) {
  int answer = python_ask(python);
  if (answer == 0) return 0;
  if (answer < 0 && getenv("TONNAGE_PYTHON"))
    return cmd_fail(TN_EINVAL, "TONNAGE_PYTHON=%.150s cannot be run", python);
  if (answer < 0) return cmd_fail(TN_EINVAL, "this verb needs Python; install python3, or set TONNAGE_PYTHON to an interpreter");
  return cmd_fail(TN_EINVAL, "%.100s has no tonnage package; run: %.100s -m pip install tonnage", python, python);
}

static int word_add(tn_vec *words, const char *word) { return tn__vec_push(words, &word); }

/* --name=value of each option that came from the environment, so that the Python side need not look there. */
static int words_from_env(const tn_cmd *cmd, tn_vec *words, tn_vec *owned) {
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++) {
    if (cmd->options.given[i] != 2) continue;
    tn_text text;
    char *word = NULL;
    tn__text_init(&text);
    tn__text_printf(&text, "--%s=%s", tn__option_info((enum tn_option)i)->name, cmd->options.value[i]);
    int rc = tn__text_take(&text, &word);
    tn__text_deinit(&text);
    if (!rc && (rc = word_add(owned, word))) tn_text_free(word);
    if (!rc) rc = word_add(words, word);
    if (rc) return rc;
  }
  return TN_OK;
}

static int words_make(const tn_cmd *cmd, const char *python, tn_vec *words, tn_vec *owned) {
  TN_TRY(word_add(words, python));
  TN_TRY(word_add(words, "-m"));
  TN_TRY(word_add(words, "tonnage"));
  TN_TRY(word_add(words, tn__verb_info(cmd->verb)->name));
  TN_TRY(words_from_env(cmd, words, owned));
  for (int i = 0; i < cmd->argc; i++) TN_TRY(word_add(words, cmd->argv[i]));
  return word_add(words, NULL);
}

int cmd_python(const tn_cmd *cmd) {
  char python[PATH_BYTES];
  python_find(python);
  int status = python_check(python);
  if (status) return status;
  tn_vec words, owned;
  tn__vec_init(&words, sizeof(char *));
  tn__vec_init(&owned, sizeof(char *));
  int rc = words_make(cmd, python, &words, &owned);
  if (!rc) {
    execvp(python, TN_VEC(&words, char *));
    status = cmd_fail(TN_EINVAL, "%.150s cannot be run: %s", python, strerror(errno));
  } else {
    status = cmd_fail(rc, NULL);
  }
  for (size_t i = 0; i < owned.count; i++) tn_text_free(TN_VEC(&owned, char *)[i]);
  tn__vec_deinit(&owned);
  tn__vec_deinit(&words);
  return status;
}

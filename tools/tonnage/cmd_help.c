/* cmd_help.c -- tonnage help [VERB] [--man] [--table] */
#include "base/help.h"
#include "cmd.h"

int cmd_help(const tn_cmd *cmd) {
  const char *name = cmd->options.args_count ? cmd->options.args[0] : NULL;
  enum tn_verb verb = name ? tn__verb_find(name) : TN_VERB_COUNT;
  if (name && verb == TN_VERB_COUNT) {
    const char *nearest = tn__verb_nearest(name);
    if (nearest) return cmd_fail(TN_EINVAL, "there is no verb \"%.40s\"; did you mean %s?", name, nearest);
    return cmd_fail(TN_EINVAL, "there is no verb \"%.40s\"; see tonnage help", name);
  }
  int man = cmd->options.given[TN_OPTION_MAN];
  tn_text text;
  tn__text_init(&text);
  if (cmd->options.given[TN_OPTION_TABLE])
    tn__help_table(&text);
  else if (name && man)
    tn__help_man_verb(&text, verb);
  else if (name)
    tn__help_verb(&text, verb, cmd_color(cmd));
  else if (man)
    tn__help_man(&text);
  else
    tn__help_overview(&text, cmd_color(cmd));
  return cmd_print(&text);
}

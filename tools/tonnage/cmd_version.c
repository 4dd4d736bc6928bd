/* cmd_version.c -- tonnage version */
#include "cmd.h"

int cmd_version(const tn_cmd *cmd) {
  (void)cmd;
  tn_text text;
  tn__text_init(&text);
  tn__text_printf(&text, "tonnage %s\n", tn_version());
  return cmd_print(&text);
}

/* help.c -- the option table, made readable.  See help.h. */
#include "base/help.h"

#include <string.h>

enum { WIDTH = 80, VERB_COLUMN = 13, OPTION_COLUMN = 23 };

static const char exit_status[] =
    "0 ok; 1 a check failed, or no plan fits; 2 usage or bad input; 3 no GPU or driver; 4 permission; 5 partial data.";

static void heading(tn_text *text, const char *title, int color) {
  tn__text_printf(text, color ? "\x1b[1m%s\x1b[0m\n" : "%s\n", title);
}

/* Calls add for each line of lines. */
static void each_line(tn_text *text, const char *lines, void (*add)(tn_text *text, const char *line, size_t len)) {
  while (*lines) {
    size_t len = strcspn(lines, "\n");
    add(text, lines, len);
    lines += len + (lines[len] == '\n');
  }
}

/* ---- help ---------------------------------------------------------------------------------------------------------------- */

static void add_paragraph(tn_text *text, const char *line, size_t len) {
  tn_text one;
  tn__text_init(&one);
  tn__text_add_n(&one, line, len);
  if (one.failed) text->failed = one.failed;
  tn__text_wrap(text, tn__text_view(&one), 0, WIDTH);
  tn__text_add(text, "\n\n");
  tn__text_deinit(&one);
}

static void add_example(tn_text *text, const char *line, size_t len) { tn__text_printf(text, "  %.*s\n", (int)len, line); }

void tn__help_overview(tn_text *text, int color) {
  tn__text_add(text, "Tonnage knows, predicts and plans the GPU memory of PyTorch training.\n\n");
  tn__text_add(text, "Usage: tonnage VERB [options]\n");
  for (unsigned group = 0; group < TN_GROUP_COUNT; group++) {
    tn__text_add(text, "\n");
    heading(text, tn__verb_group_title((enum tn_verb_group)group), color);
    for (unsigned verb = 0; verb < TN_VERB_COUNT; verb++) {
      const tn_verb_info *info = tn__verb_info((enum tn_verb)verb);
      if (info->group != (enum tn_verb_group)group) continue;
      tn__text_printf(text, "  %s", info->name);
      tn__text_tab(text, VERB_COLUMN);
      tn__text_printf(text, "%s\n", info->summary);
    }
  }
  tn__text_add(text, "\n");
  heading(text, "Try", color);
  tn__text_add(text,
               "  tonnage estimate examples/bert.py size=large batch=32 --device h200\n"
               "  tonnage fit      examples/bert.py size=large batch=32 --budget 12GiB\n\n");
  tn__text_add(text, "tonnage help VERB has the options of a verb, and examples.\n");
  tn__text_wrap(text, "Exit status:", 0, WIDTH);
  tn__text_add(text, " ");
  tn__text_wrap(text, exit_status, 0, WIDTH);
  tn__text_add(text, "\n");
}

static void add_option(tn_text *text, const tn_option_info *info) {
  tn_text about;
  tn__text_init(&about);
  tn__text_add(&about, info->help);
  if (info->standard) tn__text_printf(&about, " [default %s]", info->standard);
  if (info->env) tn__text_printf(&about, " [$%s]", info->env);
  if (about.failed) text->failed = about.failed;
  tn__text_add(text, "  ");
  size_t before = text->len;
  tn__option_usage(text, info);
  if (text->len - before + 2 >= OPTION_COLUMN) tn__text_add(text, "\n"); /* a long one has a line of its own */
  tn__text_tab(text, OPTION_COLUMN);
  tn__text_wrap(text, tn__text_view(&about), OPTION_COLUMN, WIDTH);
  tn__text_add(text, "\n");
  tn__text_deinit(&about);
}

static int takes(enum tn_verb verb, unsigned option) {
  return (tn__option_info((enum tn_option)option)->verbs & TN_VERB_BIT(verb)) != 0;
}

static void usage_line(tn_text *text, enum tn_verb verb) {
  const tn_verb_info *info = tn__verb_info(verb);
  tn__text_printf(text, "tonnage %s [options]%s%s", info->name, *info->args ? " " : "", info->args);
}

void tn__help_verb(tn_text *text, enum tn_verb verb, int color) {
  const tn_verb_info *info = tn__verb_info(verb);
  tn__text_printf(text, "tonnage %s: %s\n\nUsage: ", info->name, info->summary);
  usage_line(text, verb);
  tn__text_add(text, "\n\n");
  each_line(text, tn__verb_description(verb), add_paragraph);
  heading(text, "Options", color);
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++)
    if (takes(verb, i)) add_option(text, tn__option_info((enum tn_option)i));
  if (!*tn__verb_examples(verb)) return;
  tn__text_add(text, "\n");
  heading(text, "Examples", color);
  each_line(text, tn__verb_examples(verb), add_example);
}

/* ---- manual pages -------------------------------------------------------------------------------------------------------- */

/* roff reads a leading . or ' as a request, \ as an escape, and - as a hyphen that cannot be copied into a shell. */
static void add_roff_n(tn_text *text, const char *add, size_t len) {
  for (size_t i = 0; i < len; i++) {
    if (i == 0 && (add[i] == '.' || add[i] == '\'')) tn__text_add(text, "\\&");
    if (add[i] == '\\')
      tn__text_add(text, "\\e");
    else if (add[i] == '-')
      tn__text_add(text, "\\-");
    else
      tn__text_add_n(text, add + i, 1);
  }
}

static void add_roff(tn_text *text, const char *add) { add_roff_n(text, add, strlen(add)); }

static void add_roff_paragraph(tn_text *text, const char *line, size_t len) {
  tn__text_add(text, ".PP\n");
  add_roff_n(text, line, len);
  tn__text_add(text, "\n");
}

static void add_roff_example(tn_text *text, const char *line, size_t len) {
  add_roff_n(text, line, len);
  tn__text_add(text, "\n");
}

static void man_title(tn_text *text, const char *name, const char *summary) {
  tn__text_add(text, ".\\\" Generated from the option table by make golden.\n");
  tn__text_printf(text, ".TH %s 1 \"\" \"tonnage %s\" \"Tonnage\"\n.SH NAME\n", name, tn_version());
  add_roff(text, name);
  tn__text_add(text, " \\- ");
  add_roff(text, summary);
  tn__text_add(text, "\n");
}

static void man_exit_status(tn_text *text) {
  tn__text_add(text, ".SH EXIT STATUS\n");
  add_roff(text, exit_status);
  tn__text_add(text, "\n");
}

static void man_option(tn_text *text, const tn_option_info *info) {
  tn__text_add(text, ".TP\n");
  if (info->letter) tn__text_printf(text, "\\fB\\-%c\\fR, ", info->letter);
  tn__text_add(text, "\\fB\\-\\-");
  add_roff(text, info->name);
  tn__text_add(text, "\\fR");
  if (info->arg) tn__text_printf(text, " \\fI%s\\fR", info->arg);
  tn__text_add(text, "\n");
  add_roff(text, info->help);
  tn__text_add(text, ".\n");
  if (info->standard) {
    tn__text_add(text, "Default: ");
    add_roff(text, info->standard);
    tn__text_add(text, ".\n");
  }
  if (info->env) tn__text_printf(text, "Environment: \\fB%s\\fR.\n", info->env);
}

void tn__help_man(tn_text *text) {
  man_title(text, "tonnage", "the GPU memory of PyTorch training, known, predicted and planned");
  tn__text_add(text, ".SH SYNOPSIS\n\\fBtonnage\\fR \\fIVERB\\fR [options]\n.SH VERBS\n");
  for (unsigned verb = 0; verb < TN_VERB_COUNT; verb++) {
    const tn_verb_info *info = tn__verb_info((enum tn_verb)verb);
    tn__text_printf(text, ".TP\n\\fBtonnage\\-%s\\fR(1)\n", info->name);
    add_roff(text, info->summary);
    tn__text_add(text, "\n");
  }
  tn__text_add(text, ".SH ENVIRONMENT\n");
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++) {
    const tn_option_info *info = tn__option_info((enum tn_option)i);
    if (info->env) tn__text_printf(text, ".TP\n\\fB%s\\fR\nStands in for \\fB\\-\\-%s\\fR.\n", info->env, info->name);
  }
  tn__text_add(text, ".TP\n\\fBTONNAGE_PYTHON\\fR\nThe Python interpreter that has PyTorch and the tonnage package.\n");
  tn__text_add(text, ".TP\n\\fBTONNAGE_PROFILES\\fR\nA folder of device profiles, searched first.\n");
  tn__text_add(text, ".TP\n\\fBNO_COLOR\\fR\nNo colour, whatever the terminal can do.\n");
  man_exit_status(text);
}

void tn__help_man_verb(tn_text *text, enum tn_verb verb) {
  const tn_verb_info *info = tn__verb_info(verb);
  tn_text name;
  tn__text_init(&name);
  tn__text_printf(&name, "tonnage-%s", info->name);
  man_title(text, tn__text_view(&name), info->summary);
  if (name.failed) text->failed = name.failed;
  tn__text_deinit(&name);
  tn__text_printf(text, ".SH SYNOPSIS\n\\fBtonnage %s\\fR [options] \\fI%s\\fR\n.SH DESCRIPTION\n", info->name, info->args);
  each_line(text, tn__verb_description(verb), add_roff_paragraph);
  tn__text_add(text, ".SH OPTIONS\n");
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++)
    if (takes(verb, i)) man_option(text, tn__option_info((enum tn_option)i));
  if (*tn__verb_examples(verb)) {
    tn__text_add(text, ".SH EXAMPLES\n.nf\n");
    each_line(text, tn__verb_examples(verb), add_roff_example);
    tn__text_add(text, ".fi\n");
  }
  man_exit_status(text);
  tn__text_add(text, ".SH SEE ALSO\n\\fBtonnage\\fR(1)\n");
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

static void json_member(tn_text *text, const char *key, const char *value) {
  tn__text_printf(text, ", \"%s\": ", key);
  if (value)
    tn__text_json(text, value);
  else
    tn__text_add(text, "null");
}

static void json_verb(tn_text *text, enum tn_verb verb) {
  const tn_verb_info *info = tn__verb_info(verb);
  tn__text_add(text, "    {\"name\": ");
  tn__text_json(text, info->name);
  json_member(text, "home", info->home == TN_HOME_PYTHON ? "python" : "native");
  json_member(text, "args", info->args);
  tn__text_printf(text, ", \"args_min\": %d, \"args_max\": %d", info->args_min, info->args_max);
  json_member(text, "summary", info->summary);
  tn__text_add(text, ",\n     \"options\": [");
  for (unsigned i = 0, first = 1; i < TN_OPTION_COUNT; i++) {
    if (!takes(verb, i)) continue;
    tn__text_add(text, first ? "" : ", ");
    tn__text_json(text, tn__option_info((enum tn_option)i)->name);
    first = 0;
  }
  tn__text_add(text, "]}");
}

static void json_option(tn_text *text, const tn_option_info *info) {
  char letter[2] = {info->letter, '\0'};
  tn__text_add(text, "    {\"name\": ");
  tn__text_json(text, info->name);
  json_member(text, "letter", info->letter ? letter : NULL);
  json_member(text, "kind", tn__option_kind_name(info->kind));
  json_member(text, "arg", info->arg);
  json_member(text, "choices", info->choices);
  json_member(text, "default", info->standard);
  json_member(text, "env", info->env);
  tn__text_add(text, ",\n     \"help\": ");
  tn__text_json(text, info->help);
  tn__text_add(text, "}");
}

void tn__help_table(tn_text *text) {
  tn__text_printf(text, "{\n  \"version\": \"%s\",\n  \"verbs\": [\n", tn_version());
  for (unsigned verb = 0; verb < TN_VERB_COUNT; verb++) {
    json_verb(text, (enum tn_verb)verb);
    tn__text_add(text, verb + 1 < TN_VERB_COUNT ? ",\n" : "\n");
  }
  tn__text_add(text, "  ],\n  \"options\": [\n");
  for (unsigned i = 0; i < TN_OPTION_COUNT; i++) {
    json_option(text, tn__option_info((enum tn_option)i));
    tn__text_add(text, i + 1 < TN_OPTION_COUNT ? ",\n" : "\n");
  }
  tn__text_add(text, "  ]\n}\n");
}

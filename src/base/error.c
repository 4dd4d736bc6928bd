/* error.c -- the error list as text, and the filling of tn_error. */
#include "base/error.h"

#include <stdio.h>
#include <string.h>

typedef struct error_row {
  int code, status;
  const char *name, *text;
} error_row;

static const error_row error_rows[] = {
#define ERROR_ROW(name, value, status, text) {value, status, #name, text},
    TN_ERRORS(ERROR_ROW)
#undef ERROR_ROW
        {TN_OK, 0, "TN_OK", "ok"},
};

static const error_row *error_find(int code) {
  for (size_t i = 0; i < sizeof error_rows / sizeof *error_rows; i++)
    if (error_rows[i].code == code) return &error_rows[i];
  return NULL;
}

const char *tn_error_name(int code) {
  const error_row *row = error_find(code);
  return row ? row->name : "?";
}

const char *tn_error_text(int code) {
  const error_row *row = error_find(code);
  return row ? row->text : "unknown error";
}

int tn_error_status(int code) {
  const error_row *row = error_find(code);
  return row ? row->status : 2;
}

const char *tn_version(void) { return TN_VERSION; }

static void one_line(char *text) {
  for (unsigned char *c = (unsigned char *)text; *c; c++)
    if (*c < 0x20 || *c == 0x7f) *c = '?';
}

int tn__error_set_v(tn_error *err, int code, const char *format, va_list args) {
  if (!err) return code;
  memset(err, 0, sizeof *err);
  err->code = code;
  if (format)
    (void)vsnprintf(err->msg, sizeof err->msg, format, args);
  else
    (void)snprintf(err->msg, sizeof err->msg, "%s", tn_error_text(code));
  one_line(err->msg);
  return code;
}

int tn__error_set(tn_error *err, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tn__error_set_v(err, code, format, args);
  va_end(args);
  return code;
}

int tn__error_set_at(tn_error *err, int code, uint64_t offset, uint32_t record, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tn__error_set_v(err, code, format, args);
  va_end(args);
  if (err) {
    err->offset = offset;
    err->record = record;
  }
  return code;
}

/* columns.c -- see columns.h. */
#include "report/columns.h"

#include <string.h>

double tn__column_share(uint64_t part, uint64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

void tn__column_size(tn_text *out, uint64_t bytes, int width) {
  char buf[32];
  tn__text_printf(out, "%*s", width, tn_size_format(bytes, buf, sizeof buf));
}

void tn__column_name(tn_text *out, const char *name, size_t width) {
  size_t length = strlen(name);
  if (length <= width || width < 4)
    tn__text_add_n(out, name, length < width ? length : width);
  else
    tn__text_printf(out, "...%s", name + length - (width - 3));
}

void tn__column_place(tn_text *out, const char *place, size_t width) {
  const char *op = strstr(place, " (");
  size_t front = op ? (size_t)(op - place) : 0;
  if (strlen(place) > width && front && front <= width)
    tn__text_add_n(out, place, front);
  else
    tn__column_name(out, place, width);
}

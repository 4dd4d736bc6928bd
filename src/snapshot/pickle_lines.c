/* pickle_lines.c -- the opcodes of protocol 0 whose operand is a line of text.  See pickle_lines.h. */
#include "snapshot/pickle_lines.h"

#include "base/error.h"

int tn__pickle_line(tn__pickle *pickle) {
  return tn__build_fault(pickle->build, NULL, "pickle protocol 0, expected 2 ... 5");
}

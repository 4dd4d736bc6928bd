/* size.h -- byte sizes as text: tn_size_parse() and tn_size_format() of tonnage.h.
 *
 * Callers: the options, the reports.  Thread-safe: no state. */
#ifndef TN_BASE_SIZE_H
#define TN_BASE_SIZE_H

#include "tonnage.h"

#endif

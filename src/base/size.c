/* size.c -- byte sizes as people write them.  Integer arithmetic throughout: the locale must not change what "0.5g" means, and
 * "12GiB" must be exact. */
#include "base/size.h"

#include <string.h>

#include "base/error.h"

typedef unsigned __int128 wide; /* 2^64 * 2^40 fits */

typedef struct size_unit {
  const char *name;
  uint64_t bytes;
} size_unit;

static const size_unit units[] = {
    {"", 1},           {"b", 1},          {"k", 1ull << 10},   {"kib", 1ull << 10}, {"kb", 1000ull},
    {"m", 1ull << 20}, {"mib", 1ull << 20}, {"mb", 1000000ull},  {"g", 1ull << 30},   {"gib", 1ull << 30},
    {"gb", 1000000000ull}, {"t", 1ull << 40}, {"tib", 1ull << 40}, {"tb", 1000000000000ull},
};

/* digits * 10^exponent */
typedef struct decimal {
  uint64_t digits;
  int exponent;
  int full;    /* a digit behind the point did not fit: no later one counts */
  int too_big;
} decimal;

static int is_digit(char c) { return c >= '0' && c <= '9'; }
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static const char *skip_spaces(const char *at) {
  while (*at == ' ' || *at == '\t') at++;
  return at;
}

/* Digits beyond what 64 bits hold are dropped behind the point and too big before it. */
static const char *read_digits(const char *at, decimal *number, int behind_point) {
  for (; is_digit(*at); at++) {
    uint64_t digit = (uint64_t)(*at - '0');
    if (number->full || number->digits > (UINT64_MAX - digit) / 10) {
      number->full = 1;
      number->too_big |= !behind_point;
      continue;
    }
    number->digits = number->digits * 10 + digit;
    if (behind_point) number->exponent--;
  }
  return at;
}

/* "e9", "E-3"; the text is left alone when no digit follows. */
static const char *read_exponent(const char *at, decimal *number) {
  if (lower(*at) != 'e') return at;
  const char *from = at + 1;
  int negative = *from == '-', exponent = 0;
  if (*from == '-' || *from == '+') from++;
  if (!is_digit(*from)) return at;
  for (; is_digit(*from); from++)
    if (exponent < 1000) exponent = exponent * 10 + (*from - '0');
  number->exponent += negative ? -exponent : exponent;
  return from;
}

/* The end of the number, or NULL when there is none. */
static const char *read_number(const char *at, decimal *number) {
  const char *from = at;
  at = read_digits(at, number, 0);
  int any = at > from;
  if (*at == '.') {
    const char *point = at++;
    at = read_digits(at, number, 1);
    any |= at > point + 1;
  }
  return any ? read_exponent(at, number) : NULL;
}

/* Rounded to the nearest byte.  0 or TN_EINVAL when it does not fit. */
static int decimal_bytes(decimal number, uint64_t unit_bytes, uint64_t *out) {
  wide bytes = (wide)number.digits * unit_bytes;
  if (number.too_big) return TN_EINVAL;
  for (; number.exponent > 0 && bytes && bytes <= UINT64_MAX; number.exponent--) bytes *= 10;
  if (number.exponent < 0) {
    wide divisor = 1;
    for (; number.exponent < 0 && divisor <= bytes * 2; number.exponent++) divisor *= 10;
    bytes = divisor > bytes * 2 ? 0 : (bytes + divisor / 2) / divisor;
  }
  if (bytes > UINT64_MAX) return TN_EINVAL;
  *out = (uint64_t)bytes;
  return TN_OK;
}

static const size_unit *unit_find(const char *text, size_t len) {
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    if (strlen(units[i].name) != len) continue;
    size_t same = 0;
    while (same < len && lower(text[same]) == units[i].name[same]) same++;
    if (same == len) return &units[i];
  }
  return NULL;
}

int tn_size_parse(const char *text, uint64_t *out_bytes, tn_error *err) {
  if (!text || !out_bytes) return tn__error_set(err, TN_EINVAL, NULL);
  const char *at = skip_spaces(text);
  if (*at == '\0') return tn__error_set(err, TN_EINVAL, "a size is missing (write 12GiB, 800MB or bytes)");
  if (*at == '-') return tn__error_set(err, TN_EINVAL, "\"%.40s\" is not a size: it is negative", text);
  if (*at == '+') at++;
  decimal number = {0};
  const char *end = read_number(at, &number);
  if (!end) return tn__error_set(err, TN_EINVAL, "\"%.40s\" is not a size: write 12GiB, 800MB or bytes", text);
  const char *name = skip_spaces(end);
  size_t len = strlen(name);
  while (len && (name[len - 1] == ' ' || name[len - 1] == '\t')) len--;
  const size_unit *unit = unit_find(name, len);
  if (!unit && *name == ',')
    return tn__error_set(err, TN_EINVAL, "\"%.40s\" is not a size: write a point, not a comma", text);
  if (!unit)
    return tn__error_set(err, TN_EINVAL, "\"%.40s\" is not a size: unknown unit \"%.*s\" (KiB MiB GiB TiB, KB MB GB TB)", text,
                         (int)(len < 20 ? len : 20), name);
  uint64_t bytes = 0;
  if (decimal_bytes(number, unit->bytes, &bytes))
    return tn__error_set(err, TN_EINVAL, "\"%.40s\" is not a size: more than 64 bits can count", text);
  *out_bytes = bytes;
  return TN_OK;
}

/* Writes the digits of n backwards, ending before end; returns where they begin. */
static char *write_digits(char *end, uint64_t n) {
  do *--end = (char)('0' + n % 10);
  while (n /= 10);
  return end;
}

static const char *copy_out(const char *from, char *buf, size_t buf_size) {
  size_t len = strlen(from);
  if (buf_size == 0) return buf;
  if (len >= buf_size) len = buf_size - 1;
  memcpy(buf, from, len);
  buf[len] = '\0';
  return buf;
}

const char *tn_size_format(uint64_t bytes, char *buf, size_t buf_size) {
  static const char *const names[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  char text[40];
  size_t name = 0;
  uint64_t unit = 1, hundredths = 0;
  if (bytes >= 1024) do {
      unit <<= 10;
      name++;
      hundredths = (uint64_t)(((wide)bytes * 100 + unit / 2) / unit);
      /* 1048575 bytes round to 1024.00 KiB, which is 1.00 MiB. */
    } while (name < 4 && hundredths >= 102400);
  size_t name_len = strlen(names[name]);
  char *at = text + sizeof text - 1 - name_len;
  memcpy(at, names[name], name_len + 1);
  if (name == 0) return copy_out(write_digits(at, bytes), buf, buf_size);
  *--at = (char)('0' + hundredths % 10);
  *--at = (char)('0' + hundredths / 10 % 10);
  *--at = '.';
  return copy_out(write_digits(at, hundredths / 100), buf, buf_size);
}

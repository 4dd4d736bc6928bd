/* test_snapshot_pickle.c -- pickles, opcode by opcode. */
#include "snapshot_text.h"

#include "snapshot/opcodes.h"

/* A pickle from string literals, which may hold NUL. */
#define PICKLE(text) (text), sizeof(text) - 1

/* {"device_traces": [[{"action": "alloc", "addr": VALUE}]]}, VALUE by the opcodes in between. */
#define BEFORE               \
  "\x80\x04}\x8c\x0d"        \
  "device_traces]]}\x8c\x06" \
  "action\x8c\x05"           \
  "allocs\x8c\x04"           \
  "addr"
#define AFTER "saas."

static uint64_t value_of(const char *data, size_t size) {
  tn_trace *trace = snapshot_read(data, size);
  const tn_entry *entry = snapshot_table(trace, TN_TABLE_ENTRY, 1);
  uint64_t addr = entry->addr;
  tn_trace_free(trace);
  return addr;
}

#define VALUE(opcodes) value_of(PICKLE(BEFORE opcodes AFTER))

static void numbers(void **state) {
  (void)state;
  assert_int_equal(VALUE("K\xff"), 255);
  assert_int_equal(VALUE("M\x01\x02"), 0x201);
  assert_int_equal(VALUE("J\xfe\xff\xff\xff"), (uint64_t)-2);
  assert_int_equal(VALUE("\x8a\x00"), 0);
  assert_int_equal(VALUE("\x8a\x01\xff"), (uint64_t)-1);
  assert_int_equal(VALUE("\x8a\x06\x00\x00\x00\x00\x40\x7f"), 0x7f4000000000);
  assert_int_equal(VALUE("\x8a\x08\x00\x02\x00\x00\x00\x00\x00\x80"), 0x8000000000000200);
  assert_int_equal(VALUE("\x8a\x09\x00\x02\x00\x00\x00\x00\x00\x80\x00"), 0x8000000000000200); /* above 2^63, pytorch#115234 */
  assert_int_equal(VALUE("\x8b\x02\x00\x00\x00\x34\x12"), 0x1234);
  assert_int_equal(VALUE("I77\n"), 77);
  assert_int_equal(VALUE("I01\n"), 1);
  assert_int_equal(VALUE("I-5\n"), (uint64_t)-5);
  assert_int_equal(VALUE("L18446744073709551104L\n"), 18446744073709551104u);
  assert_int_equal(VALUE("L-9223372036854775808L\n"), 0x8000000000000000);
  assert_int_equal(VALUE("\x88"), 1);
  assert_int_equal(VALUE("N"), 0); /* None is as if the key were not there */
}

static void numbers_that_are_too_long(void **state) {
  (void)state;
  static const char *const longer[] = {BEFORE "L18446744073709551616L\n" AFTER, BEFORE "L-9223372036854775809\n" AFTER};
  for (int i = 0; i < 2; i++)
    (void)snapshot_refused(longer[i], strlen(longer[i]), "\"addr\" is bytes or a number of more than 64 bits");
  (void)snapshot_refused(PICKLE(BEFORE "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01" AFTER), "more than 64 bits");
  (void)snapshot_refused(PICKLE(BEFORE "\x8a\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" AFTER), "more than 64 bits");
  (void)snapshot_refused(PICKLE(BEFORE "G\x3f\xf0\x00\x00\x00\x00\x00\x00" AFTER),
                         "\"addr\" is a fraction, expected a number of 64 bits");
}

/* Memo, marks and what moves values about. */
static void the_machine(void **state) {
  (void)state;
  assert_int_equal(VALUE("K\x05\x94K\x06h\x00"
                         "00"),
                   5); /* MEMOIZE BINGET POP POP */
  assert_int_equal(VALUE("K\x05q\x07K\x06"
                         "0j\x07\x00\x00\x00"
                         "0"),
                   5); /* BINPUT LONG_BINGET */
  assert_int_equal(VALUE("K\x05r\x09\x00\x00\x00(h\x09h\x09"
                         "1"),
                   5);                          /* LONG_BINPUT POP_MARK */
  assert_int_equal(VALUE("K\x05p3\n0g3\n"), 5); /* PUT GET */
  assert_int_equal(VALUE("\x8a\x08\x00\x02\x00\x00\x00\x00\x00\x80\x94"
                         "0h\x00"),
                   0x8000000000000200); /* a wide one */
  assert_int_equal(VALUE("K\x07"
                         "2"
                         "0"),
                   7); /* DUP POP */
  assert_int_equal(VALUE("\x8c\x01xr\x09\x00\x00\x00"
                         "0j\x09\x00\x00\x00"
                         "0K\x08"
                         "N0N0N0N0N0"),
                   8);                                                     /* not at the end */
  assert_int_equal(VALUE("K\x07\x95\x01\x00\x00\x00\x00\x00\x00\x00"), 7); /* FRAME */
}

static void text_of(const char *data, size_t size, const char *expected) {
  tn_trace *trace = snapshot_read(data, size);
  const tn_entry *entry = snapshot_table(trace, TN_TABLE_ENTRY, 1);
  assert_string_equal(tn_trace_string(trace, entry->label), expected);
  tn_trace_free(trace);
}

#define TEXT(opcodes, expected)                         \
  text_of(PICKLE(BEFORE "K\x01s\x8c\x0d"                \
                        "user_metadata" opcodes AFTER), \
          expected)

static void texts(void **state) {
  (void)state;
  TEXT(
      "\x8c\x03"
      "abc",
      "abc");
  TEXT(
      "X\x03\x00\x00\x00"
      "abc",
      "abc");
  TEXT(
      "\x8d\x03\x00\x00\x00\x00\x00\x00\x00"
      "abc",
      "abc");
  TEXT(
      "U\x03"
      "abc",
      "abc");
  TEXT(
      "T\x03\x00\x00\x00"
      "abc",
      "abc");
  TEXT("S'it\\'s \\x41\\n'\n", "it's A\n");
  TEXT("S\"a\\\\b\"\n", "a\\b");
  TEXT("V\\u00e4\xe4\\U0001f6a2\\u005c\n", "\xc3\xa4\xc3\xa4\xf0\x9f\x9a\xa2\\");
  TEXT(
      "\x8c\x02"
      "a\0",
      "a?");
  TEXT(
      "\x8c\x08"
      "12345678",
      "12345678"); /* where short texts end */
  TEXT(
      "\x8c\x09"
      "123456789",
      "123456789");
}

static void texts_that_are_none(void **state) {
  (void)state;
  (void)snapshot_refused(PICKLE(BEFORE "\x8c\x02\xc3(" AFTER), "text is not UTF-8, 0 bytes into it");
  (void)snapshot_refused(PICKLE(BEFORE "S'a\\q'\n" AFTER), "a text has an escape that is none, 1 bytes into it");
  (void)snapshot_refused(PICKLE(BEFORE "V\\u12\n" AFTER), "a text has an escape that is none");
  (void)snapshot_refused(PICKLE(BEFORE "V\\U00110000\n" AFTER), "a text has an escape that is none");
  (void)snapshot_refused(PICKLE(BEFORE "Sabc\n" AFTER), "expected a text in quotes");
  (void)snapshot_refused(PICKLE(BEFORE "S'abc"), "the file ends inside STRING");
  (void)snapshot_refused(PICKLE(BEFORE "Ixyz\n" AFTER), "expected a number on a line of its own");
  (void)snapshot_refused(PICKLE(BEFORE "F1.5x\n" AFTER), "expected a number on a line of its own");
  (void)snapshot_refused(PICKLE(BEFORE "\x8d\xff\xff\xff\xff\xff\xff\xff\xff" AFTER), "expected 16 MiB at most");
}

/* Lists, tuples, dictionaries and sets in each way that there is; what is of no use goes under "odd". */
static void containers(void **state) {
  (void)state;
  static const char *const odd[] = {"(K\1K\2l",
                                    "(K\1K\2d",
                                    "(t",
                                    ")",
                                    "K\1\x85",
                                    "K\1K\2\x86",
                                    "K\1K\2K\3\x87",
                                    "](K\1K\2e",
                                    "]K\1a",
                                    "\x8f(K\1\x90",
                                    "(K\1\x91",
                                    "C\1x",
                                    "B\1\0\0\0x",
                                    "\x8e\1\0\0\0\0\0\0\0x",
                                    "\x96\1\0\0\0\0\0\0\0x",
                                    "F1e3\n",
                                    "}(K\1K\2K\3K\4u"};
  static const size_t sizes[] = {6, 6, 2, 1, 3, 5, 7, 7, 4, 5, 4, 3, 6, 10, 10, 5, 11};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    char data[256];
    size_t used = 0;
    memcpy(data, BEFORE "K\x01s\x8c\x03odd", used = sizeof BEFORE - 1 + 8);
    memcpy(data + used, odd[i], sizes[i]);
    used += sizes[i];
    memcpy(data + used, AFTER, sizeof AFTER - 1);
    tn_trace_free(snapshot_read(data, used + sizeof AFTER - 1));
  }
}

/* ---- what is refused ----------------------------------------------------------------------------------------------------- */

/* Each of them could name, import or call something: the message says which one, where, and that it may be an attack. */
static void every_opcode_that_runs_code(void **state) {
  (void)state;
  static const struct {
    const char *name;
    uint8_t code;
  } refused[] = {
#define REFUSED(name, code, bytes) {#name, code},
      TN__OPCODES_REFUSED(REFUSED)
#undef REFUSED
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char data[] = "\x80\x04]\x94N_posix\nsystem\n\x85R.", expected[64];
    data[5] = (char)refused[i].code;
    tn_error err = snapshot_refused(data, sizeof data - 1, "this may be an attack");
    (void)snprintf(expected, sizeof expected, "byte 5: opcode %s is refused", refused[i].name);
    if (strncmp(err.msg, expected, strlen(expected)) != 0) fail_msg("says \"%s\", expected \"%s\"", err.msg, expected);
    assert_int_equal(err.offset, 5);
  }
}

static void every_other_byte(void **state) {
  (void)state;
  uint8_t known[256] = {0};
#define KNOWN(name, code, bytes) known[code] = 1;
  TN__OPCODES_DATA(KNOWN)
  TN__OPCODES_REFUSED(KNOWN)
#undef KNOWN
  for (int code = 0; code < 256; code++) {
    uint8_t data[] = {0x80, 4, ']', (uint8_t)code, '.'};
    char expected[80];
    (void)snprintf(expected, sizeof expected, "byte 3: expected an opcode of pickle, found 0x%02x", (unsigned)code);
    if (!known[code]) (void)snapshot_refused(data, sizeof data, expected);
  }
}

static void broken_machines(void **state) {
  (void)state;
  (void)snapshot_refused(PICKLE("\x80\x06]."), "pickle protocol 6, expected 0 ... 5");
  (void)snapshot_refused(PICKLE("\x80\x04h\x03."), "byte 2: memo number 3 was not put before");
  (void)snapshot_refused(PICKLE("\x80\x04]r\xff\xff\xff\x7f."), "memo number 2147483647 is too large for its place");
  (void)snapshot_refused(PICKLE("\x80\x04\x94."), "there is nothing on the stack to put into the memo");
  (void)snapshot_refused(PICKLE("\x80\x04"
                                "2."),
                         "there is nothing on the stack to repeat");
  (void)snapshot_refused(PICKLE("\x80\x04"
                                "0."),
                         "there is nothing to take off the stack");
  (void)snapshot_refused(PICKLE("\x80\x04](0."), "there is nothing to take off the stack");
  (void)snapshot_refused(PICKLE("\x80\x04](a."), "expected more values on the stack");
  (void)snapshot_refused(PICKLE("\x80\x04]e."), "there is no MARK before it");
  (void)snapshot_refused(PICKLE("\x80\x04(e."), "expected a list and items on the stack");
  (void)snapshot_refused(PICKLE("\x80\x04K\1(K\2e."), "expected a list and items on the stack");
  (void)snapshot_refused(PICKLE("\x80\x04}(K\2e."), "expected a list, found a dictionary");
  (void)snapshot_refused(PICKLE("\x80\x04](K\2K\2u."), "expected a dictionary, found a list");
  (void)snapshot_refused(PICKLE("\x80\x04K\1(K\2K\2u."), "expected a dictionary, keys and values on the stack");
  (void)snapshot_refused(PICKLE("\x80\x04}(K\2u."), "expected as many values as keys");
  (void)snapshot_refused(PICKLE("\x80\x04."), "STOP with 0 values on the stack, expected one");
  (void)snapshot_refused(PICKLE("\x80\x04]]."), "STOP with 2 values on the stack, expected one");
  (void)snapshot_refused(PICKLE("\x80\x04](."), "STOP with 1 values on the stack");
}

static void nested_too_deep(void **state) {
  (void)state;
  char data[1200] = "\x80\x04]";
  memset(data + 3, '(', sizeof data - 3);
  tn_error err = snapshot_refused(data, sizeof data, "is nested more than 1000 deep");
  assert_int_equal(err.offset, 1003);
}

/* A list in itself, by way of another one, and a dictionary in itself. */
static void what_contains_itself(void **state) {
  (void)state;
  (void)snapshot_refused(PICKLE("\x80\x04]\x94h\x00"
                                "a."),
                         "does it contain itself?");
  (void)snapshot_refused(PICKLE("\x80\x04]\x94]\x94h\x00"
                                "aa."),
                         "does it contain itself?");
  (void)snapshot_refused(PICKLE("\x80\x04]\x94}\x94K\1h\x00"
                                "sa."),
                         "does it contain itself?");
  (void)snapshot_refused(PICKLE("\x80\x04}\x94\x8c\x08segmentsh\x00s."), "is no memory snapshot");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers),
      cmocka_unit_test(numbers_that_are_too_long),
      cmocka_unit_test(the_machine),
      cmocka_unit_test(texts),
      cmocka_unit_test(texts_that_are_none),
      cmocka_unit_test(containers),
      cmocka_unit_test(every_opcode_that_runs_code),
      cmocka_unit_test(every_other_byte),
      cmocka_unit_test(broken_machines),
      cmocka_unit_test(nested_too_deep),
      cmocka_unit_test(what_contains_itself),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* opcodes.h -- the opcodes of pickle, protocols 0 to 5.
 *
 * Callers: pickle.c, and tests that go through all of them.  Constant data. */
#ifndef TN_SNAPSHOT_OPCODES_H
#define TN_SNAPSHOT_OPCODES_H

/* X(name, code, bytes of the operand that every one of them has): what builds data ... */
#define TN__OPCODES_DATA(X)                                                                                                     \
  X(MARK, '(', 0) X(STOP, '.', 0) X(POP, '0', 0) X(POP_MARK, '1', 0) X(DUP, '2', 0) X(FLOAT, 'F', 0) X(INT, 'I', 0)              \
  X(BININT, 'J', 4) X(BININT1, 'K', 1) X(LONG, 'L', 0) X(BININT2, 'M', 2) X(NONE, 'N', 0) X(STRING, 'S', 0)                      \
  X(BINSTRING, 'T', 4) X(SHORT_BINSTRING, 'U', 1) X(UNICODE, 'V', 0) X(BINUNICODE, 'X', 4) X(APPEND, 'a', 0) X(DICT, 'd', 0)     \
  X(EMPTY_DICT, '}', 0) X(APPENDS, 'e', 0) X(GET, 'g', 0) X(BINGET, 'h', 1) X(LONG_BINGET, 'j', 4) X(LIST, 'l', 0)               \
  X(EMPTY_LIST, ']', 0) X(PUT, 'p', 0) X(BINPUT, 'q', 1) X(LONG_BINPUT, 'r', 4) X(SETITEM, 's', 0) X(TUPLE, 't', 0)              \
  X(EMPTY_TUPLE, ')', 0) X(SETITEMS, 'u', 0) X(BINFLOAT, 'G', 8) X(PROTO, 0x80, 1) X(TUPLE1, 0x85, 0) X(TUPLE2, 0x86, 0)         \
  X(TUPLE3, 0x87, 0) X(NEWTRUE, 0x88, 0) X(NEWFALSE, 0x89, 0) X(LONG1, 0x8a, 1) X(LONG4, 0x8b, 4) X(BINBYTES, 'B', 4)            \
  X(SHORT_BINBYTES, 'C', 1) X(SHORT_BINUNICODE, 0x8c, 1) X(BINUNICODE8, 0x8d, 8) X(BINBYTES8, 0x8e, 8) X(EMPTY_SET, 0x8f, 0)     \
  X(ADDITEMS, 0x90, 0) X(FROZENSET, 0x91, 0) X(MEMOIZE, 0x94, 0) X(FRAME, 0x95, 8) X(BYTEARRAY8, 0x96, 8)
/* ... and what can name, import or call something, or reach outside the file. */
#define TN__OPCODES_REFUSED(X)                                                                                             \
  X(PERSID, 'P', 0) X(BINPERSID, 'Q', 0) X(REDUCE, 'R', 0) X(BUILD, 'b', 0) X(GLOBAL, 'c', 0) X(INST, 'i', 0)               \
  X(OBJ, 'o', 0) X(NEWOBJ, 0x81, 0) X(EXT1, 0x82, 0) X(EXT2, 0x83, 0) X(EXT4, 0x84, 0) X(NEWOBJ_EX, 0x92, 0)                \
  X(STACK_GLOBAL, 0x93, 0) X(NEXT_BUFFER, 0x97, 0) X(READONLY_BUFFER, 0x98, 0)

enum tn__opcode {
#define TN__OPCODE_ENUM(name, code, bytes) TN__OP_##name = (code),
  TN__OPCODES_DATA(TN__OPCODE_ENUM) TN__OPCODES_REFUSED(TN__OPCODE_ENUM)
#undef TN__OPCODE_ENUM
};

#endif

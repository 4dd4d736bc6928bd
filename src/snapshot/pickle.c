/* pickle.c -- reads a pickle into a build, data only.  See pickle.h.
 *
 * The memo holds eight bytes for each thing that the file may come back to; containers are what they have become by then. */
#include "snapshot/pickle.h"

#include <string.h>

#include "base/error.h"
#include "snapshot/opcodes.h"
#include "snapshot/pickle_lines.h"
#include "snapshot/pickle_memo.h"

enum { PROTOCOL_MAX = 5 };
#define TEXT_BYTES_MAX ((uint64_t)16 << 20)
/* An opcode and what it takes at most, LONG1 of 8 bytes included: one look at the end of the buffer for all of it. */
enum { OPCODE_BYTES = 10 };

static const char *const names[256] = {
#define OPCODE_NAME(name, code, bytes) [code] = #name,
    TN__OPCODES_DATA(OPCODE_NAME) TN__OPCODES_REFUSED(OPCODE_NAME)
#undef OPCODE_NAME
};

static const uint8_t operand_bytes[256] = {
#define OPCODE_BYTES_OF(name, code, bytes) [code] = (bytes),
    TN__OPCODES_DATA(OPCODE_BYTES_OF) TN__OPCODES_REFUSED(OPCODE_BYTES_OF)
#undef OPCODE_BYTES_OF
};

/* ---- operands ------------------------------------------------------------------------------------------------------------ */

static uint64_t little_endian(const uint8_t *at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | at[i];
  return value;
}

static uint32_t little_u16(const uint8_t *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8; }

static uint32_t little_u32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t little_u64(const uint8_t *at) { return little_u32(at) | (uint64_t)little_u32(at + 4) << 32; }

static uint64_t big_u64(const uint8_t *at) {
  uint64_t value = 0;
  for (int i = 0; i < 8; i++) value = value << 8 | at[i];
  return value;
}

int tn__pickle_cut_short(tn__pickle *pickle) {
  tn__build *build = pickle->build;
  uint64_t opcode = build->offset;
  build->offset = tn__input_offset(pickle->input) + tn__input_left(pickle->input);
  return tn__build_fault(build, NULL, "the file ends inside %s, which begins at byte %llu", names[pickle->opcode],
                         (unsigned long long)opcode);
}

/* bytes of the input, at hand. */
static int want(tn__pickle *pickle, size_t bytes) {
  if (tn__input_left(pickle->input) >= bytes) return TN_OK;
  TN_TRY(tn__pickle_fill(pickle, bytes));
  return tn__input_left(pickle->input) >= bytes ? TN_OK : tn__pickle_cut_short(pickle);
}

static int skip(tn__pickle *pickle, uint64_t bytes) {
  while (bytes > 0) {
    size_t left = tn__input_left(pickle->input);
    size_t step = left < bytes ? left : (size_t)bytes;
    if (step == 0) TN_TRY(want(pickle, 1));
    pickle->input->at += step;
    bytes -= step;
  }
  return TN_OK;
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

static int push_text(tn__pickle *pickle, uint64_t bytes) {
  if (bytes > TEXT_BYTES_MAX)
    return tn__build_fault(pickle->build, NULL, "a text of %llu bytes, expected 16 MiB at most", (unsigned long long)bytes);
  TN_TRY(want(pickle, (size_t)bytes));
  const char *text = (const char *)pickle->input->at;
  pickle->input->at += bytes;
  return tn__build_text(pickle->build, text, (size_t)bytes);
}

static int push_other(tn__pickle *pickle, uint64_t bytes) {
  TN_TRY(skip(pickle, bytes));
  return tn__build_push(pickle->build, TN__ITEM_OTHER, 0);
}

/* Two's complement, as long as it likes. */
static int push_long(tn__pickle *pickle, size_t bytes) {
  if (bytes > 9) return push_other(pickle, bytes);
  TN_TRY(want(pickle, bytes));
  const uint8_t *at = pickle->input->at;
  pickle->input->at += bytes;
  if (bytes == 9) {
    if (at[8] == 0 && at[7] >= 0x80) return tn__build_push(pickle->build, TN__ITEM_BIG, little_u64(at));
    return tn__build_push(pickle->build, TN__ITEM_OTHER, 0);
  }
  uint64_t value = little_endian(at, bytes);
  if (bytes > 0 && bytes < 8 && at[bytes - 1] >= 0x80) value |= UINT64_MAX << 8 * bytes;
  return tn__build_push(pickle->build, TN__ITEM_INT, value);
}

static int push_copy(tn__build *build) {
  if (build->stack.count == 0) return tn__build_fault(build, NULL, "there is nothing on the stack to repeat");
  tn__item item = TN_VEC(&build->stack, tn__item)[build->stack.count - 1];
  return tn__build_push(build, item.tag, item.bits);
}

/* ---- containers ---------------------------------------------------------------------------------------------------------- */

/* Where the last count items begin; they must lie above the last mark. */
static int last_items(tn__build *build, size_t count, size_t *out_at) {
  size_t floor = build->marks.count ? TN_VEC(&build->marks, uint32_t)[build->marks.count - 1] : 0;
  if (build->stack.count - floor < count) return tn__build_fault(build, NULL, "expected more values on the stack");
  *out_at = build->stack.count - count;
  return TN_OK;
}

static int with_last(tn__build *build, size_t count, int (*take)(tn__build *build, size_t at)) {
  size_t at = 0;
  TN_TRY(last_items(build, count, &at));
  return take(build, at);
}

static int with_marked(tn__build *build, int (*take)(tn__build *build, size_t at)) {
  size_t at = 0;
  TN_TRY(tn__build_unmark(build, &at));
  return take(build, at);
}

static int drop(tn__build *build, size_t at) {
  while (build->stack.count > at) TN_TRY(tn__build_pop(build));
  return TN_OK;
}

/* Items of a set: of no use. */
static int add_items(tn__build *build, size_t at) { return tn__build_append(build, at); }

static int frozen_set(tn__build *build, size_t at) {
  TN_TRY(tn__build_list(build, at));
  tn__build_object_at(build, TN_VEC(&build->stack, tn__item)[at].bits)->kind = TN__OBJECT_OTHER;
  return TN_OK;
}

/* ---- the machine --------------------------------------------------------------------------------------------------------- */

static int refused(tn__pickle *pickle) {
  const char *name = names[pickle->opcode];
  if (!name)
    return tn__build_fault(pickle->build, NULL, "expected an opcode of pickle, found 0x%02x: this is no pickle, or a damaged one",
                           pickle->opcode);
  return tn__build_fault(
      pickle->build, NULL,
      "opcode %s is refused: it can run code when a file is unpickled, no memory snapshot needs it, and this may be an attack",
      name);
}

static int protocol(tn__pickle *pickle, uint32_t version) {
  if (version <= PROTOCOL_MAX) return TN_OK;
  return tn__build_fault(pickle->build, NULL, "pickle protocol %u, expected 0 ... %d", version, PROTOCOL_MAX);
}

static int finish(tn__build *build) {
  if (build->stack.count != 1 || build->marks.count != 0)
    return tn__build_fault(build, NULL, "STOP with %zu values on the stack, expected one", build->stack.count);
  return TN_OK;
}

/* One opcode, its operand at hand. */
static int step(tn__pickle *pickle, const uint8_t *operand) {
  tn__build *build = pickle->build;
  switch (pickle->opcode) {
    case TN__OP_BINGET: return tn__memo_get(pickle, operand[0]);
    case TN__OP_LONG_BINGET: return tn__memo_get(pickle, little_u32(operand));
    case TN__OP_MEMOIZE: return tn__memo_put(pickle, pickle->memo.count);
    case TN__OP_BINPUT: return tn__memo_put(pickle, operand[0]);
    case TN__OP_LONG_BINPUT: return tn__memo_put(pickle, little_u32(operand));
    case TN__OP_MARK: return tn__build_mark(build);
    case TN__OP_EMPTY_DICT: return tn__build_object(build, TN__OBJECT_DICT);
    case TN__OP_EMPTY_LIST:
    case TN__OP_EMPTY_TUPLE: return tn__build_object(build, TN__OBJECT_LIST);
    case TN__OP_EMPTY_SET: return tn__build_object(build, TN__OBJECT_OTHER);
    case TN__OP_BININT1: return tn__build_push(build, TN__ITEM_INT, operand[0]);
    case TN__OP_BININT2: return tn__build_push(build, TN__ITEM_INT, little_u16(operand));
    case TN__OP_BININT: return tn__build_push(build, TN__ITEM_INT, (uint64_t)(int32_t)little_u32(operand));
    case TN__OP_LONG1: return push_long(pickle, operand[0]);
    case TN__OP_LONG4: return push_long(pickle, little_u32(operand));
    case TN__OP_BINFLOAT: return tn__build_push(build, TN__ITEM_REAL, big_u64(operand));
    case TN__OP_NONE: return tn__build_push(build, TN__ITEM_NULL, 0);
    case TN__OP_NEWTRUE: return tn__build_push(build, TN__ITEM_BOOL, 1);
    case TN__OP_NEWFALSE: return tn__build_push(build, TN__ITEM_BOOL, 0);
    case TN__OP_SHORT_BINUNICODE:
    case TN__OP_SHORT_BINSTRING: return push_text(pickle, operand[0]);
    case TN__OP_BINUNICODE:
    case TN__OP_BINSTRING: return push_text(pickle, little_u32(operand));
    case TN__OP_BINUNICODE8: return push_text(pickle, little_u64(operand));
    case TN__OP_SHORT_BINBYTES: return push_other(pickle, operand[0]);
    case TN__OP_BINBYTES: return push_other(pickle, little_u32(operand));
    case TN__OP_BINBYTES8:
    case TN__OP_BYTEARRAY8: return push_other(pickle, little_u64(operand));
    case TN__OP_SETITEM: return with_last(build, 2, tn__build_set_items);
    case TN__OP_SETITEMS: return with_marked(build, tn__build_set_items);
    case TN__OP_APPEND: return with_last(build, 1, tn__build_append);
    case TN__OP_APPENDS: return with_marked(build, tn__build_append);
    case TN__OP_ADDITEMS: return with_marked(build, add_items);
    case TN__OP_LIST:
    case TN__OP_TUPLE: return with_marked(build, tn__build_list);
    case TN__OP_DICT: return with_marked(build, tn__build_dict);
    case TN__OP_FROZENSET: return with_marked(build, frozen_set);
    case TN__OP_TUPLE1: return with_last(build, 1, tn__build_list);
    case TN__OP_TUPLE2: return with_last(build, 2, tn__build_list);
    case TN__OP_TUPLE3: return with_last(build, 3, tn__build_list);
    case TN__OP_POP: return tn__build_pop(build);
    case TN__OP_POP_MARK: return with_marked(build, drop);
    case TN__OP_DUP: return push_copy(build);
    case TN__OP_PROTO: return protocol(pickle, operand[0]);
    case TN__OP_FRAME: return TN_OK; /* how Python reads ahead */
    case TN__OP_STOP: return finish(build);
    case TN__OP_INT:
    case TN__OP_LONG:
    case TN__OP_FLOAT:
    case TN__OP_STRING:
    case TN__OP_UNICODE:
    case TN__OP_GET:
    case TN__OP_PUT: return tn__pickle_line(pickle);
    default: return refused(pickle);
  }
}

int tn__pickle_fill(tn__pickle *pickle, size_t need) {
  TN_TRY(tn__input_fill(pickle->input, need, &pickle->build->error));
  pickle->build->bytes_read = tn__input_offset(pickle->input) + tn__input_left(pickle->input);
  return tn__build_check_memory(pickle->build, 0);
}

static inline const uint8_t *hot_int(tn_vec *stack, tn__item *top, uint64_t bits, const uint8_t *next) {
  top->bits = bits;
  top->tag = TN__ITEM_INT;
  stack->count++;
  return next;
}

/* The opcodes that nearly all of a snapshot is made of, straight through: where the next one is, or NULL to leave this one to
 * step(), which looks at everything again.  at: OPCODE_BYTES of input. */
static inline const uint8_t *hot_step(tn__pickle *pickle, const uint8_t *at) {
  tn__build *build = pickle->build;
  tn_vec *stack = &build->stack;
  if (stack->count == stack->capacity || stack->count == 0) return NULL;
  tn__item *top = TN_VEC(stack, tn__item) + stack->count;
  top->offset = (uint32_t)build->offset;
  switch (*at) {
    case TN__OP_BINGET:
      if (!tn__memo_peek(pickle, at[1], top)) return NULL;
      stack->count++;
      return at + 2;
    case TN__OP_LONG_BINGET:
      if (!tn__memo_peek(pickle, little_u32(at + 1), top)) return NULL;
      stack->count++;
      return at + 5;
    case TN__OP_MEMOIZE: {
      uint32_t word = tn__memo_word(top - 1);
      if (word == TN__MEMO_NOTHING || pickle->memo.count == pickle->memo.capacity) return NULL;
      TN_VEC(&pickle->memo, uint32_t)[pickle->memo.count++] = word;
      return at + 1;
    }
    case TN__OP_MARK:
      if (build->marks.count >= build->marks.capacity || build->marks.count >= TN__MARKS_MAX || stack->count >= TN_NONE)
        return NULL;
      TN_VEC(&build->marks, uint32_t)[build->marks.count++] = (uint32_t)stack->count;
      return at + 1;
    case TN__OP_EMPTY_DICT:
    case TN__OP_EMPTY_LIST: {
      if (build->objects.count == build->objects.capacity || build->objects.count >= TN_NONE) return NULL;
      top->tag = TN__ITEM_OBJECT;
      top->bits = build->objects.count;
      tn__object *object = TN_VEC(&build->objects, tn__object) + build->objects.count++;
      *object = (tn__object){.kind = *at == TN__OP_EMPTY_DICT ? TN__OBJECT_DICT : TN__OBJECT_LIST};
      stack->count++;
      return at + 1;
    }
    case TN__OP_BININT1: return hot_int(stack, top, at[1], at + 2);
    case TN__OP_BININT2: return hot_int(stack, top, little_u16(at + 1), at + 3);
    case TN__OP_BININT: return hot_int(stack, top, (uint64_t)(int32_t)little_u32(at + 1), at + 5);
    case TN__OP_LONG1: {
      unsigned unused = 64 - 8 * (unsigned)at[1];
      if (at[1] == 0 || at[1] > 8) return NULL;
      return hot_int(stack, top, (uint64_t)((int64_t)(little_u64(at + 2) << unused) >> unused), at + 2 + at[1]);
    }
    default: return NULL;
  }
}

/* One opcode with every check. */
static int next_step(tn__pickle *pickle, size_t left) {
  tn__input *input = pickle->input;
  if (left == 0) return tn__build_fault(pickle->build, NULL, "the file ends before STOP: it is cut short");
  pickle->opcode = *input->at;
  const uint8_t *operand = input->at + 1;
  size_t bytes = operand_bytes[pickle->opcode];
  if (left <= bytes) return tn__pickle_cut_short(pickle);
  input->at = operand + bytes;
  return step(pickle, operand);
}

static int run(tn__pickle *pickle) {
  tn__input *input = pickle->input;
  while (pickle->opcode != TN__OP_STOP) {
    if (tn__input_left(input) < OPCODE_BYTES) TN_TRY(tn__pickle_fill(pickle, OPCODE_BYTES));
    size_t left = tn__input_left(input);
    pickle->build->offset = tn__input_offset(input);
    const uint8_t *next = left < OPCODE_BYTES ? NULL : hot_step(pickle, input->at);
    if (next)
      input->at = next;
    else
      TN_TRY(next_step(pickle, left));
  }
  return TN_OK;
}

int tn__pickle_read(tn__build *build, tn__input *input) {
  tn__pickle pickle = {.build = build, .input = input};
  tn__memo_init(&pickle);
  build->bytes_read = tn__input_offset(input) + tn__input_left(input);
  int rc = run(&pickle);
  tn__memo_deinit(&pickle);
  return rc;
}

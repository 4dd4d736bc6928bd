/* build.h -- the machine that a pickle or a JSON text drives, and the trace that it leaves.
 *
 * Why: a snapshot of a million entries would be some ten million Python objects.  Nothing of the kind is made here: a container
 * becomes records of the trace (schema.c) as soon as something else takes it in, and what remains of it is eight bytes that say
 * which records.
 *
 * How.  The stack holds items of 16 bytes.  Containers are objects; the items of one that is still open lie in a stretch of the
 * arena. When a container is taken in by another one it is closed: close.c reads its items, and its stretch is free.  A closed
 * container cannot change any more, so nothing can contain itself.  The one exception is a trace entry: it becomes a record with
 * its first keys, because there may be millions before their list is made.
 *
 * Callers: pickle.c and json.c drive it, schema.c and finish.c give it meaning.  Not locked: one thread at a time per build. */
#ifndef TN_SNAPSHOT_BUILD_H
#define TN_SNAPSHOT_BUILD_H

#include "base/map.h"
#include "base/vec.h"
#include "snapshot/keys.h"
#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tn__item_tag {
  TN__ITEM_NULL,
  TN__ITEM_BOOL,
  TN__ITEM_INT,    /* bits is an int64_t */
  TN__ITEM_BIG,    /* bits is a uint64_t of 2^63 or more */
  TN__ITEM_REAL,   /* bits is a double's */
  TN__ITEM_TEXT,   /* bits is a string id of the trace */
  TN__ITEM_OBJECT, /* bits is an index of objects */
  TN__ITEM_OTHER   /* bytes, longer integers: what no snapshot needs */
};

typedef struct tn__item {
  uint64_t bits;
  uint32_t tag;    /* tn__item_tag */
  uint32_t offset; /* low bits of where it stands in the input */
} tn__item;

/* What an object is.  at and count mean: items of the arena (DICT: keys and values in turn), or records of a table. */
enum tn__object_kind {
  TN__OBJECT_DICT,  /* open */
  TN__OBJECT_LIST,  /* open; tuples too */
  TN__OBJECT_OTHER, /* from here on closed; this one is of no use */
  TN__OBJECT_BAD,   /* would be something, but for a fault: at is one of faults, which counts where the object is needed */
  TN__OBJECT_EMPTY, /* a list without items */
  TN__OBJECT_ENTRY,
  TN__OBJECT_FRAME,
  TN__OBJECT_BLOCK,
  TN__OBJECT_SEGMENT,
  TN__OBJECT_ANNOTATION,
  TN__OBJECT_HISTORY,
  TN__OBJECT_SETTINGS,
  TN__OBJECT_TOP,
  TN__OBJECT_TEXT,   /* at is a string: JSON, of what may be a container where others are texts */
  TN__OBJECT_STACK,  /* a list of frames, or of texts */
  TN__OBJECT_POOL,   /* two integers */
  TN__OBJECT_TRACES, /* a list of lists of entries */
  /* lists that grow record by record; they are never closed, and grow only while theirs is the last record */
  TN__OBJECT_ENTRIES,
  TN__OBJECT_BLOCKS,
  TN__OBJECT_SEGMENTS,
  TN__OBJECT_ANNOTATIONS
};

enum { TN__OBJECT_COUNT_MAX = (1 << 27) - 1 };

typedef struct tn__object {
  uint32_t at;
  uint32_t kind : 5, count : 27;
} tn__object;

/* Items of an open container; those of one that has closed or moved on are dead.  In order of at. */
typedef struct tn__stretch {
  uint32_t object, at;
} tn__stretch;

/* A segment before its device's others are known. */
typedef struct tn__raw_segment {
  tn_segment segment;
  uint32_t device;
  uint32_t is_host;
  uint64_t keys;   /* those that it had */
  uint32_t offset; /* as in tn__item */
  uint32_t reserved;
} tn__raw_segment;

enum { TN__BLOCK_HAS_ADDR = 1 << 0, TN__BLOCK_HAS_REQUESTED = 1 << 1 }; /* in tn_segment_block.reserved until finish.c */
enum { TN__ACTION_FREE = TN_ACTION_COUNT, TN__ACTION_UNKNOWN };         /* of entries until finish.c */

typedef struct tn__history { /* torch 2.0: who allocated the block before it was merged */
  uint64_t real_size;
  uint32_t stack;
  uint32_t reserved;
} tn__history;

typedef struct tn__run { /* of records, one after the other */
  uint32_t at, count;
} tn__run;

typedef struct tn__setting { /* strings */
  uint32_t key, value;
} tn__setting;

/* What the file was found to be made of. */
typedef struct tn__top {
  tn__run segments, host_segments; /* of raw_segments */
  tn__run traces, host_traces;     /* of runs */
  tn__run settings, annotations;   /* of settings; of the annotation table */
  uint64_t keys;                   /* those that it had */
} tn__top;

enum { TN__MARKS_MAX = 1000 }; /* how deep a file may nest */
enum { TN__WORDS_MAX = 128 };  /* strings that stand for something: the first ones */

/* Texts of up to eight bytes that were met last: each entry may have its own "N/A". */
enum { TN__SHORT_TEXTS = 64 };
typedef struct tn__short_text {
  uint64_t bytes;
  uint32_t len; /* 0: nothing here */
  uint32_t id;
} tn__short_text;

typedef struct tn__build {
  tn_trace *trace;
  tn_error error;  /* of the call that failed */
  tn_vec faults;   /* tn_error: what BAD objects suffer from, the first few */
  uint64_t offset; /* of the opcode or token at work, for messages */
  uint64_t bytes_read;

  tn_vec stack;     /* tn__item */
  tn_vec marks;     /* uint32_t: heights of the stack */
  tn_vec arena;     /* tn__item */
  tn_vec stretches; /* tn__stretch: of the arena */
  tn_vec objects;   /* tn__object */

  tn_vec raw_segments, histories, runs, settings, tops;
  tn_map frame_index, stack_index, stream_index, pool_index;
  uint64_t last_handle; /* stream_index's last answer */
  uint32_t last_stream;
  uint32_t empty_stack;                  /* TN_NONE: not there yet */
  uint32_t odd_actions, streams_missing; /* whether finish.c must look at every entry */
  tn__short_text short_texts[TN__SHORT_TEXTS];
  uint64_t entry_keys, other_keys; /* that there were, of entries and of anything else */
  uint64_t unknown_actions;
  uint8_t actions[TN__WORDS_MAX], states[TN__WORDS_MAX], categories[TN__WORDS_MAX]; /* by string id; UINT8_MAX = none */
  uint32_t word_small, word_end, word_none; /* string ids */
} tn__build;

/* ---- driving it (build.c) ------------------------------------------------------------------------------------------------ */

int tn__build_init(tn__build *build); /* on failure nothing is left to deinit */
void tn__build_deinit(tn__build *build);

int tn__build_push_slow(tn__build *build, tn__item item);
static inline int tn__build_push(tn__build *build, uint32_t tag, uint64_t bits) {
  tn__item item = {bits, tag, (uint32_t)build->offset};
  if (build->stack.count == build->stack.capacity) return tn__build_push_slow(build, item);
  TN_VEC(&build->stack, tn__item)[build->stack.count++] = item;
  return 0;
}
int tn__build_object(tn__build *build, enum tn__object_kind kind);  /* pushes an empty DICT or LIST, or OTHER */
int tn__build_text(tn__build *build, const char *text, size_t len); /* pushes; TN_EFORMAT: not UTF-8 */
int tn__build_mark(tn__build *build);
/* Where the items above the last mark begin; takes the mark off. */
int tn__build_unmark(tn__build *build, size_t *out_at);
/* The items from at on are keys and values of the dictionary below them; or items of the list below them; or of a new list that
 * takes their place.  at comes from tn__build_unmark() or counts back from the top, and lies in the stack. */
int tn__build_set_items(tn__build *build, size_t at);
int tn__build_append(tn__build *build, size_t at);
int tn__build_list(tn__build *build, size_t at);
int tn__build_dict(tn__build *build, size_t at);
int tn__build_close_last(tn__build *build); /* nothing more will come into the last item */
int tn__build_pop(tn__build *build);        /* the last item, above the last mark */
/* Asked whenever another block has been read, and before records are copied, more_bytes of them: a file that needs more than some times
 * its size was made to fill memory. */
int tn__build_check_memory(tn__build *build, uint64_t more_bytes);
/* When rc is a fault of the file, the object becomes BAD with it and all is well for now; rc otherwise. */
int tn__build_set_bad(tn__build *build, tn__object *object, int rc);
/* Fails with the fault of a BAD object. */
int tn__build_bad(tn__build *build, const tn__object *object);
/* TN_EFORMAT and "byte 17: ...", the place of the item or, when that is NULL, of the opcode at work. */
int tn__build_fault(tn__build *build, const tn__item *item, const char *format, ...) __attribute__((format(printf, 3, 4)));
int tn__build_no_memory(tn__build *build);

static inline tn__object *tn__build_object_at(const tn__build *build, uint64_t id) {
  return &TN_VEC(&build->objects, tn__object)[id];
}

/* ---- meaning (schema.c, close.c) ----------------------------------------------------------------------------------------- */

int tn__schema_init(tn__build *build);
/* A dictionary with "action" among its keys becomes a trace entry; and gets more keys. */
int tn__schema_entry_new(tn__build *build, tn__object *object, const tn__item *pairs, size_t pair_count);
int tn__schema_entry_set(tn__build *build, tn__object *object, const tn__item *pairs, size_t pair_count);
/* A DICT or LIST that will get no more items.  key: under which it is put, or 0. */
int tn__close_dict(tn__build *build, tn__object *object, uint32_t key);
int tn__close_list(tn__build *build, tn__object *object, uint32_t key);

/* ---- tables (stacks.c) --------------------------------------------------------------------------------------------------- */

int tn__build_frame(tn__build *build, const tn_frame *frame, uint32_t *out_id);
/* The last frame_count items of the stack_frame table become a stack; they are taken back when that stack is there already. */
int tn__build_stack(tn__build *build, uint32_t frame_count, uint32_t *out_id);
/* The frame that a line of a formatted traceback speaks of. */
int tn__build_text_frame(tn__build *build, uint32_t text_id, tn_frame *out);
int tn__build_stream(tn__build *build, uint64_t handle, uint32_t *out_id);
int tn__build_pool(tn__build *build, uint64_t first, uint64_t second, uint32_t *out_id);

/* ---- the end (finish.c) -------------------------------------------------------------------------------------------------- */

/* The one item that is left becomes the trace's tables; they passed tn_trace_check(). */
int tn__build_finish(tn__build *build);

#ifdef __cplusplus
}
#endif
#endif

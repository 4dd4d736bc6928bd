/* analysis.h -- what is known of one device of a snapshot: who held its memory, how high it went, what was wrong.
 *
 * Callers: src/report writes it as text, JSON or HTML; diff compares two.  Every number is computed from the trace; what could
 * not be checked is in the list `unchecked`, with the reason.  Not locked: one thread at a time per analysis. */
#ifndef TN_EXPLAIN_ANALYSIS_H
#define TN_EXPLAIN_ANALYSIS_H

#include "base/strings.h"
#include "base/text.h"
#include "explain/chronicle.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- where reserved memory is -------------------------------------------------------------------------------------------- */

/* At one moment.  reserved = requested + rounding + pending + idle + holes + other_streams + private_pools + unknown, always. */
#define TN__PARTS(X)                                                                                                        \
  X(REQUESTED, "requested", "what the program asked for and holds")                                                         \
  X(ROUNDING, "rounding", "added to it by rounding up, and by remainders too small to be split off")                        \
  X(PENDING, "pending_free", "freed by the program, not yet reusable: another stream may still use it")                     \
  X(IDLE, "idle_cache", "segments that are wholly free; empty_cache() gives them back")                                     \
  X(HOLES, "holes", "free pieces between live blocks; only what fits into one can use it")                                  \
  X(OTHER_STREAMS, "other_streams", "free, but only for the stream that it was allocated on")                               \
  X(PRIVATE_POOLS, "private_pools", "free inside the pools of CUDA graphs and MemPools; nothing else may use it")           \
  X(UNKNOWN, "unknown", "what the file does not account for")
enum tn__part {
#define TN__PART_ENUM(name, text, note) TN__PART_##name,
  TN__PARTS(TN__PART_ENUM)
#undef TN__PART_ENUM
      TN__PART_COUNT
};

typedef struct tn__accounting {
  uint32_t moment;
  uint32_t segments;
  tn__level level;
  uint64_t part[TN__PART_COUNT]; /* adds up to level.reserved_bytes */
  uint64_t largest_hole_bytes;   /* the largest piece that the main stream's default pool could still give out */
  uint64_t largest_hole_small_bytes; /* the same for requests up to 1 MiB */
  uint64_t idle_segments;
} tn__accounting;

/* A live block that keeps a segment from being given back, summed by stack: free bytes in segments where it is a neighbour. */
typedef struct tn__pin {
  uint32_t stack;        /* group, see tn__span_group() */
  uint32_t blocks;       /* live blocks */
  uint64_t block_bytes;  /* their sizes */
  uint64_t free_bytes;   /* of the holes beside them; a hole with two neighbours counts half for each */
} tn__pin;

/* ---- what it is ---------------------------------------------------------------------------------------------------------- */

typedef struct tn__stack_row { /* allocated bytes of one group of equal stacks and one category at a moment */
  uint32_t stack;    /* see tn__span_group() */
  uint32_t blocks;
  uint64_t bytes;
  uint8_t category;
  uint8_t reserved[7];
} tn__stack_row;

/* by_category and the rows add up to level.allocated_bytes each. */
typedef struct tn__composition {
  uint32_t moment;
  tn__level level;
  uint64_t by_category[TN_CATEGORY_COUNT];
  uint32_t blocks;
  tn_vec rows; /* tn__stack_row, largest first */
} tn__composition;

/* ---- phases -------------------------------------------------------------------------------------------------------------- */

/* A run: entries of one phase in a row. */
typedef struct tn__run {
  uint32_t begin; /* its first entry */
  uint32_t phase; /* tn_phase */
} tn__run;

typedef struct tn__phases {
  tn_vec runs; /* tn__run; the first begins at entry 0; empty when there are no entries */
  uint32_t has_stacks; /* 0: no entry has frames, and every phase is OTHER */
  uint32_t has_backward, has_optimizer;
  uint32_t bare_is_backward; /* 1: entries without frames are taken to be autograd's thread */
} tn__phases;

/* ---- steps --------------------------------------------------------------------------------------------------------------- */

/* annotations; runs of the optimizer or of backward; an allocation that comes again and again */
enum tn__steps_from { TN__STEPS_NONE, TN__STEPS_ANNOTATED, TN__STEPS_PHASES, TN__STEPS_PERIODIC };

typedef struct tn__step {
  uint32_t begin, end;       /* moments; steps do not overlap, and lie in order */
  uint64_t floor_bytes;      /* lowest allocated from its begin to its end */
  uint64_t end_bytes;        /* allocated at its end */
  uint64_t peak_bytes;       /* highest allocated */
  uint32_t peak_moment;
  uint32_t allocs;
} tn__step;

typedef struct tn__steps {
  enum tn__steps_from from;
  uint32_t marker;  /* string: the annotation they come from; 0 */
  uint32_t warmup;  /* leading steps unlike the others; not used for slopes */
  tn_vec list;      /* tn__step */
} tn__steps;

/* ---- findings ------------------------------------------------------------------------------------------------------------ */

/* code, name in output, in words.  In the order of advice: what ended the run, free fixes, what changes the maths last. */
#define TN__FINDINGS(X)                                                          \
  X(OOM, "OOM", "out of memory")                                                 \
  X(CAP, "CAP", "a limit below the card's size")                                 \
  X(LEAK, "LEAK", "memory grows every step")                                     \
  X(GRAPH_KEPT, "GRAPH_KEPT", "autograd graphs are kept")                        \
  X(EVAL_GRAPH, "EVAL_GRAPH", "a forward pass without backward keeps its graph") \
  X(HELD_OVER, "HELD_OVER", "results of the step before are still held")         \
  X(GRADS_KEPT, "GRADS_KEPT", "gradients stay through the next forward pass")    \
  X(RETRIES, "RETRIES", "the allocator gave its cache back to go on")            \
  X(FRAGMENTATION, "FRAGMENTATION", "free memory in pieces")                     \
  X(STREAM_CACHE, "STREAM_CACHE", "memory cached for other streams")             \
  X(STREAM_DELAY, "STREAM_DELAY", "frees that wait for another stream")          \
  X(GRAPH_POOL, "GRAPH_POOL", "private pools")                                   \
  X(CACHE_IDLE, "CACHE_IDLE", "cached and unused")                               \
  X(ROUNDING, "ROUNDING", "lost to rounding")                                    \
  X(NEAR_OOM, "NEAR_OOM", "close to the limit")                                  \
  X(OPT_TEMP, "OPT_TEMP", "temporaries of the optimizer")                        \
  X(LOGITS_PEAK, "LOGITS_PEAK", "the loss makes the peak")                       \
  X(GRADS_PEAK, "GRADS_PEAK", "all gradients at once")                           \
  X(COPIES, "COPIES", "parameters twice")                                        \
  X(ATTENTION, "ATTENTION", "attention matrices")                                \
  X(VARIABLE, "VARIABLE", "some steps are much larger")                          \
  X(ACTIVATIONS, "ACTIVATIONS", "activations")                                   \
  X(OPTIMIZER_STATE, "OPTIMIZER_STATE", "optimizer state")                       \
  X(PARAMETERS, "PARAMETERS", "parameters")
enum tn__finding_code {
#define TN__FINDING_ENUM(name, text, words) TN__FINDING_##name,
  TN__FINDINGS(TN__FINDING_ENUM)
#undef TN__FINDING_ENUM
      TN__FINDING_COUNT
};

/* fault: it ended the run or will; waste: bytes for nothing; note: what the bytes are, and what could make them fewer */
enum tn__severity { TN__SEVERITY_FAULT, TN__SEVERITY_WASTE, TN__SEVERITY_NOTE };

/* What the fix does to the results of training. */
#define TN__EXACTNESS(X) X(NONE, "") X(IDENTICAL, "identical") X(SAME_MATHS, "same maths") X(NUMERICS, "changes numerics")
enum tn__exactness {
#define TN__EXACTNESS_ENUM(name, text) TN__EXACT_##name,
  TN__EXACTNESS(TN__EXACTNESS_ENUM)
#undef TN__EXACTNESS_ENUM
      TN__EXACTNESS_COUNT
};

/* Texts are strings of the analysis (tn__strings_get(&analysis->texts, id)). */
typedef struct tn__finding {
  uint8_t code;       /* tn__finding_code */
  uint8_t severity;   /* tn__severity */
  uint8_t inferred;   /* 1: rests on inferred phases and categories */
  uint8_t exactness;  /* tn__exactness of the fix */
  uint32_t what;      /* one sentence with its bytes */
  uint32_t evidence;  /* what it was computed from; lines */
  uint32_t fix;       /* what to do, with the line to paste; "" */
  uint64_t bytes;     /* that it speaks of */
  uint64_t frees_bytes; /* what the fix takes off the allocated peak, of waste of the allocator off the reserved one; 0: nothing, or not known */
  uint64_t missing_bytes; /* OOM: what was missing, at the least */
  double slope_bytes; /* LEAK, GRAPH_KEPT: per step */
  uint32_t entry;     /* entry, stack group, segment (of the device), span that it speaks of; TN_NONE */
  uint32_t stack, segment, span;
} tn__finding;

typedef struct tn__unchecked {
  uint32_t what, why; /* texts */
} tn__unchecked;

/* ---- stacks -------------------------------------------------------------------------------------------------------------- */

/* Stacks with the same frames are one group; its number is that of its first member. */
#define TN__GROUP_BEFORE (TN_NONE - 1) /* no stack, because the block is older than the history */

typedef struct tn__stacks {
  uint32_t *group;  /* by stack */
  uint32_t *place;  /* by stack: the frame (position in the stack) that a user would call the place; TN_NONE: none */
  uint32_t *cues;   /* by stack: TN__CUE_... of cues.h */
  size_t count;
} tn__stacks;

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

typedef struct tn__analysis_options {
  uint64_t total_bytes; /* of the card, or the limit of the process; 0 = not known */
} tn__analysis_options;

typedef struct tn__analysis {
  tn__chronicle history;
  tn__stacks stacks;
  tn__phases phases;
  tn__steps steps;
  tn_strings texts;
  uint64_t total_bytes;           /* 0: not known */
  uint32_t stream;                /* the one that asks for most: that of the OOM, or with the most bytes at the peak */
  uint32_t peak_allocated_moment; /* first moment with the most allocated bytes */
  uint32_t peak_reserved_moment;  /* likewise of reserved bytes, after the allocation that they were reserved for */
  uint64_t waste_bytes;           /* most reserved less most allocated: what perfect packing would have saved */
  tn__composition peak, end;      /* at peak_allocated_moment, at the snapshot */
  tn__accounting account_end;     /* at the snapshot */
  tn__accounting account_peak;    /* at peak_reserved_moment */
  tn_vec pins;      /* tn__pin at the snapshot, most free bytes first */
  tn_vec findings;  /* tn__finding, worst first */
  tn_vec unchecked; /* tn__unchecked */
  uint32_t verdict[3]; /* texts: what is held, why it is high, what to do */
} tn__analysis;

/* TN_EINVAL: no such device record.  Deinit in any case. */
int tn__analysis_init(tn__analysis *analysis, const tn_trace *trace, size_t device_record, const tn__analysis_options *options);
void tn__analysis_deinit(tn__analysis *analysis);

/* Who held allocated memory at any moment.  Deinit in any case. */
int tn__composition_init(tn__composition *composition, const tn__chronicle *history, const tn__stacks *stacks, uint32_t moment);
void tn__composition_deinit(tn__composition *composition);

/* The group that a block's bytes are summed under: TN__GROUP_BEFORE, or TN_NONE: there is no stack. */
uint32_t tn__span_group(const tn__stacks *stacks, const tn__span *span);
/* The frame that stands for a stack in one line: "train.py:22 forward".  0 when there is none: then text is not changed. */
int tn__stack_place(const tn_trace *trace, const tn__stacks *stacks, uint32_t stack, tn_text *text);

const char *tn__finding_name(int code);  /* "LEAK" */
const char *tn__finding_words(int code); /* "memory grows every step" */
const char *tn__exactness_name(int exactness);
const char *tn__part_name(int part);     /* "holes" */
const char *tn__part_note(int part);     /* what that is */

#ifdef __cplusplus
}
#endif
#endif

/* tonnage.h -- GPU memory for PyTorch training: known, predicted, planned.
 *
 * The only public header.  Callers: the tonnage command, the Python package (ctypes), and C programs.
 *
 * Errors.  Whatever can fail returns 0 or a negative TN_E... code; results come back through out parameters, last, untouched on
 * failure.  Functions that read input also fill an optional tn_error (pass NULL to ignore it).  Nothing here prints or exits.
 * Threads.  Objects are not locked: one thread at a time per object, any number of objects at once.  There is no global state.
 * Words.  requested = bytes asked for; allocated = live blocks, rounded; reserved = segments held by the caching allocator;
 * device-used = reserved + context.  Sizes are bytes, times are seconds unless the name says otherwise. */
#ifndef TONNAGE_H
#define TONNAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TN_API __attribute__((visibility("default")))
#else
#define TN_API
#endif

#define TN_VERSION "0.1.0"
#define TN_NONE UINT32_MAX /* no such record */

typedef uint64_t tn_addr; /* an address on a device, never dereferenced */

/* ---- errors -------------------------------------------------------------------------------------------------------------- */

/* code, value, exit status of the command, message */
#define TN_ERRORS(X)                                                                       \
  X(TN_EINVAL, -1, 2, "invalid argument")                                                  \
  X(TN_ENOMEM, -2, 1, "out of host memory")                                                \
  X(TN_EIO, -3, 2, "cannot read or write file")                                            \
  X(TN_EFORMAT, -4, 2, "malformed input")                                                  \
  X(TN_EVERSION, -5, 2, "written by a newer version of tonnage")                           \
  X(TN_ELIMIT, -6, 1, "device memory limit exceeded")                                      \
  X(TN_EINFEASIBLE, -7, 1, "no plan fits the budget")                                      \
  X(TN_EMISMATCH, -8, 2, "plan was made for another model or batch")                       \
  X(TN_EDEVICE, -9, 3, "no GPU or driver")                                                 \
  X(TN_EPERM, -10, 4, "permission denied")                                                 \
  X(TN_EPARTIAL, -11, 5, "only part of the data is available")                             \
  X(TN_ENOENT, -12, 2, "no such file or record")

enum {
#define TN_ERROR_ENUM(name, value, status, text) name = value,
  TN_ERRORS(TN_ERROR_ENUM)
#undef TN_ERROR_ENUM
      TN_OK = 0
};

typedef struct tn_error {
  int32_t code;     /* TN_E... */
  uint32_t record;  /* record or line, when it applies */
  uint64_t offset;  /* byte offset in the input, when it applies */
  char msg[240];    /* one line, no trailing newline */
} tn_error;

TN_API const char *tn_version(void);
TN_API const char *tn_error_name(int code); /* "TN_EINVAL"; "TN_OK"; "?" for an unknown code */
TN_API const char *tn_error_text(int code); /* the list's message */
TN_API int tn_error_status(int code);       /* exit status of the command for this code, 0 ... 5 */

/* ---- sizes --------------------------------------------------------------------------------------------------------------- */

/* "12GiB", "12 GB", "0.5g", "1.5e9", "4096".  k m g t and kib mib gib tib are powers of 1024, kb mb gb tb powers of 1000;
 * letter case is ignored.  A single letter means the binary unit.  TN_EINVAL with the reason in *err. */
TN_API int tn_size_parse(const char *text, uint64_t *out_bytes, tn_error *err);
/* Three significant digits or more in binary units ("11.98 GiB", "512 B") into buf; returns buf. */
TN_API const char *tn_size_format(uint64_t bytes, char *buf, size_t buf_size);

/* ---- the trace ----------------------------------------------------------------------------------------------------------- */

typedef struct tn_trace tn_trace;

/* Disjoint; they add up to the allocated bytes. */
#define TN_CATEGORIES(X)                                                                                                   \
  X(PARAMETER, "parameter") X(GRADIENT, "gradient") X(OPTIMIZER, "optimizer") X(ACTIVATION, "activation") X(INPUT, "input") \
  X(TEMPORARY, "temporary") X(WORKSPACE, "workspace") X(COMMUNICATION, "communication") X(UNKNOWN, "unknown")
enum tn_category {
#define TN_CATEGORY_ENUM(name, text) TN_CATEGORY_##name,
  TN_CATEGORIES(TN_CATEGORY_ENUM)
#undef TN_CATEGORY_ENUM
      TN_CATEGORY_COUNT
};

#define TN_PHASES(X) \
  X(SETUP, "setup") X(FORWARD, "forward") X(LOSS, "loss") X(BACKWARD, "backward") X(OPTIMIZER, "optimizer") X(OTHER, "other")
enum tn_phase {
#define TN_PHASE_ENUM(name, text) TN_PHASE_##name,
  TN_PHASES(TN_PHASE_ENUM)
#undef TN_PHASE_ENUM
      TN_PHASE_COUNT
};

/* Which arithmetic rate of the device bounds an op. */
#define TN_RATES(X) X(NONE, "none") X(FP32, "fp32") X(TF32, "tf32") X(BF16, "bf16") X(FP16, "fp16") X(FP64, "fp64")
enum tn_rate {
#define TN_RATE_ENUM(name, text) TN_RATE_##name,
  TN_RATES(TN_RATE_ENUM)
#undef TN_RATE_ENUM
      TN_RATE_COUNT
};

/* Record types.  Strings are ids into the string table, id 0 being "".  Layouts are fixed: Python fills arrays of them. */

typedef struct tn_module {
  uint32_t name;       /* dotted path, "" for the root */
  uint32_t class_name; /* "Linear" */
  uint32_t parent;     /* module, TN_NONE for the root */
  uint32_t reserved;
} tn_module;

enum {
  TN_OP_VIEW = 1 << 0,       /* every output aliases an input; nothing is allocated */
  TN_OP_RANDOM = 1 << 1,     /* draws from the device's generator: rebuilding needs the generator's offset of that moment */
  TN_OP_REBUILDABLE = 1 << 2 /* running it again on the same inputs gives the same bits and has no other effect */
};

typedef struct tn_op {
  uint32_t name;   /* "aten.addmm.default" */
  uint32_t args;   /* the arguments as JSON, see docs/formats.md; 0 when not recorded */
  uint32_t module; /* module that made it, in backward the module of the forward op it belongs to; TN_NONE outside any */
  uint8_t phase;   /* tn_phase */
  uint8_t step;    /* 0 = first, 1 = steady state */
  uint8_t pass;    /* micro-batch within the step */
  uint8_t rate;    /* tn_rate */
  uint32_t flags;  /* TN_OP_... */
  uint32_t inputs_at, inputs_count;   /* range of the ref table: values read */
  uint32_t outputs_at, outputs_count; /* range of the ref table: values made, in output order; TN_NONE for a non-tensor output */
  uint32_t efficiency; /* of the rate, what its shape lets it reach, in 1/1000; 0 = not known, taken as all of it */
  double flops;       /* multiply and add count as two */
  double bytes_moved; /* inputs read once + outputs written once */
  double seconds;     /* measured; negative = unknown */
} tn_op;

enum { TN_BLOCK_HOST = 1 << 0 /* not on the device: not counted */ };

typedef struct tn_block { /* the memory of one storage */
  uint64_t bytes;   /* requested */
  uint32_t op;      /* op that allocated it, TN_NONE when it existed before */
  uint32_t name;    /* parameter, buffer or state name, or 0 */
  uint32_t module;  /* owner or maker, TN_NONE */
  uint8_t category; /* tn_category */
  uint8_t flags;    /* TN_BLOCK_... */
  uint16_t reserved;
} tn_block;

enum { TN_VALUE_VIEW = 1 << 0 /* aliases an input without writing it */ };

typedef struct tn_value { /* a tensor: a window on a block, at a version of the block's contents */
  uint32_t block;
  uint32_t op;      /* op that made it, TN_NONE: existed before or came from outside */
  uint32_t output;  /* position among that op's outputs */
  uint32_t version; /* of the block; each op that writes the block adds one */
  uint32_t meta;    /* "float32[32,512,1024]" and, when not contiguous from offset 0, "/strides+offset" */
  uint32_t source;  /* "parameter:NAME", "buffer:NAME", "input:K", or 0 */
  uint32_t flags;   /* TN_VALUE_... */
  uint32_t reserved;
} tn_value;

typedef struct tn_slot { /* the k-th tensor autograd saves in a pass */
  uint32_t value;     /* value saved; TN_NONE when it is not one that was traced (it can only be kept) */
  uint32_t block;     /* its memory */
  uint32_t signature; /* meta and producer, the text that the run is checked against */
  uint32_t module;    /* module running when it was saved, TN_NONE */
  uint8_t step, pass;
  uint16_t reserved;
  uint32_t index;     /* k within its pass */
} tn_slot;

enum tn_event_kind {
  TN_EVENT_ALLOC = 1, /* block: allocated */
  TN_EVENT_DROP,      /* block: the last reference other than slots has gone (again, after an UNPACK revived it) */
  TN_EVENT_PACK,      /* slot: autograd saves it */
  TN_EVENT_UNPACK,    /* slot: backward asks for it; its block is referenced again until the next DROP */
  TN_EVENT_RELEASE,   /* slot: autograd lets go of it */
  TN_EVENT_OP,        /* op: runs here; its allocations precede this event, what dies with it follows */
  TN_EVENT_MARK,      /* string id: see docs/formats.md ("step:0", "phase:backward", "pass:1") */
  TN_EVENT_KIND_END
};
/* A block is live while it is referenced or a slot on it is held.  Blocks with ALLOC before "step:0" are persistent or input. */

typedef struct tn_event {
  uint32_t kind; /* tn_event_kind */
  uint32_t id;   /* of the record that the kind names */
} tn_event;

/* What a device's caching allocator did, entry by entry, as torch.cuda.memory records it: the tables of a snapshot.  A trace has
 * these, or the tables above (a capture), or both. */

typedef struct tn_frame { /* one line of a Python or C++ stack */
  uint32_t function, file;
  uint32_t line;
  uint32_t reserved;
} tn_frame;

typedef struct tn_stack { /* frames, innermost first */
  uint32_t frames_at, frames_count; /* range of the stack_frame table: frames */
} tn_stack;

typedef struct tn_stream {
  uint64_t handle; /* 0 = the default stream */
} tn_stream;

typedef struct tn_pool { /* whose memory is kept apart: a CUDA graph's or a MemPool's; id 0 is the default pool (0, 0) */
  uint64_t first, second;
} tn_pool;

enum { TN_DEVICE_HOST = 1 << 0 /* pinned host memory, recorded beside the devices */ };

typedef struct tn_device {
  uint32_t index; /* CUDA's ordinal */
  uint32_t flags; /* TN_DEVICE_... */
  uint32_t segments_at, segments_count; /* range of the segment table, by address: what was held at the end */
  uint32_t entries_at, entries_count;   /* range of the entry table: what led there, or its last part */
} tn_device;

enum {
  TN_SEGMENT_SMALL = 1 << 0, /* of the pool for requests up to 1 MiB */
  TN_SEGMENT_EXPANDABLE = 1 << 1,
  TN_SEGMENT_UNTILED = 1 << 2 /* the file's blocks did not tile it and were left out */
};

typedef struct tn_segment {
  tn_addr addr;
  uint64_t bytes;
  uint64_t allocated_bytes, active_bytes, requested_bytes; /* as the file says */
  uint32_t blocks_at, blocks_count; /* range of the segment_block table; they tile the segment */
  uint32_t stream, pool, stack;     /* stack: TN_NONE = not recorded */
  uint32_t flags;                   /* TN_SEGMENT_... */
} tn_segment;

#define TN_BLOCK_STATES(X) X(INACTIVE, "inactive") X(ALLOCATED, "active_allocated") X(PENDING_FREE, "active_pending_free")
enum tn_block_state {
#define TN_BLOCK_STATE_ENUM(name, text) TN_BLOCK_##name,
  TN_BLOCK_STATES(TN_BLOCK_STATE_ENUM)
#undef TN_BLOCK_STATE_ENUM
      TN_BLOCK_STATE_COUNT
};

typedef struct tn_segment_block {
  tn_addr addr;
  uint64_t bytes, requested_bytes; /* requested: 0 for inactive blocks */
  uint32_t stack;                  /* of the last allocation; TN_NONE = not recorded */
  uint8_t state;                   /* tn_block_state */
  uint8_t category;                /* tn_category, when the file has one; else UNKNOWN */
  uint16_t reserved;
} tn_segment_block;

#define TN_ACTIONS(X)                                                                                                    \
  X(ALLOC, "alloc") X(FREE_REQUESTED, "free_requested") X(FREE_COMPLETED, "free_completed") X(SEGMENT_ALLOC, "segment_alloc") \
  X(SEGMENT_FREE, "segment_free") X(SEGMENT_MAP, "segment_map") X(SEGMENT_UNMAP, "segment_unmap") X(OOM, "oom")            \
  X(SNAPSHOT, "snapshot") X(ANNOTATE, "annotate")
enum tn_action {
#define TN_ACTION_ENUM(name, text) TN_ACTION_##name,
  TN_ACTIONS(TN_ACTION_ENUM)
#undef TN_ACTION_ENUM
      TN_ACTION_COUNT
};

typedef struct tn_entry { /* PyTorch's TraceEntry */
  tn_addr addr;      /* OOM: bytes that the device had free */
  uint64_t bytes;    /* alloc, free: requested; segment: of the segment; OOM: rounded; SNAPSHOT: active bytes in all */
  uint64_t time_us;  /* 0 = not recorded */
  uint32_t stream, pool;
  uint32_t stack;    /* TN_NONE = not recorded */
  uint32_t forward;  /* stack of the forward op that a backward op belongs to; TN_NONE */
  uint32_t label;    /* user_metadata, or the annotation's name */
  uint32_t compile_context;
  uint8_t action;    /* tn_action */
  uint8_t category;  /* tn_category, when the file has one; else UNKNOWN */
  uint16_t reserved;
  uint32_t reserved2;
} tn_entry;

enum { TN_ANNOTATION_END = 1 << 0 /* else it starts */ };

typedef struct tn_annotation { /* external_annotations: a named stretch of time, in order */
  uint64_t time_us;
  uint32_t name;
  uint32_t device; /* CUDA's ordinal */
  uint32_t flags;  /* TN_ANNOTATION_... */
  uint32_t reserved;
} tn_annotation;

#define TN_TABLES(X)                                                                                                           \
  X(MODULE, tn_module) X(OP, tn_op) X(REF, uint32_t) X(BLOCK, tn_block) X(VALUE, tn_value) X(SLOT, tn_slot) X(EVENT, tn_event) \
  X(FRAME, tn_frame) X(STACK_FRAME, uint32_t) X(STACK, tn_stack) X(STREAM, tn_stream) X(POOL, tn_pool) X(DEVICE, tn_device)    \
  X(SEGMENT, tn_segment) X(SEGMENT_BLOCK, tn_segment_block) X(ENTRY, tn_entry) X(ANNOTATION, tn_annotation)
enum tn_table {
#define TN_TABLE_ENUM(name, type) TN_TABLE_##name,
  TN_TABLES(TN_TABLE_ENUM)
#undef TN_TABLE_ENUM
      TN_TABLE_COUNT
};

TN_API int tn_trace_new(tn_trace **out);
TN_API void tn_trace_free(tn_trace *trace); /* NULL is legal */
/* Adds one string, NUL-terminated, and gives its id (an existing id when the text is already there). */
TN_API int tn_trace_add_string(tn_trace *trace, const char *text, uint32_t *out_id);
/* Adds count strings that lie one after the other, each NUL-terminated, in text_bytes bytes; they get the next ids in order,
 * duplicates included.  For bulk: the caller interns. */
TN_API int tn_trace_add_strings(tn_trace *trace, const char *text, size_t text_bytes, size_t count);
TN_API const char *tn_trace_string(const tn_trace *trace, uint32_t id); /* "" for an unknown id */
TN_API size_t tn_trace_string_count(const tn_trace *trace);
/* Appends records, copied.  They are checked by tn_trace_check(), not here. */
TN_API int tn_trace_add(tn_trace *trace, enum tn_table table, const void *records, size_t count);
/* The records of a table, count in *out_count (may be NULL).  Valid until the next add. */
TN_API const void *tn_trace_table(const tn_trace *trace, enum tn_table table, size_t *out_count);
TN_API int tn_trace_set_meta(tn_trace *trace, const char *key, const char *value);
TN_API const char *tn_trace_meta(const tn_trace *trace, const char *key); /* NULL when unset */
/* Every index in range, every event legal in its place (no DROP before ALLOC ...).  The functions below that read a trace
 * require a trace that passed; loading checks.  TN_EFORMAT with the table and record in *err. */
TN_API int tn_trace_check(const tn_trace *trace, tn_error *err);
TN_API int tn_trace_save(const tn_trace *trace, const char *path, tn_error *err);
TN_API int tn_trace_load(const char *path, tn_trace **out, tn_error *err);
TN_API const char *tn_category_name(int category);
TN_API const char *tn_phase_name(int phase);
TN_API const char *tn_action_name(int action);
TN_API const char *tn_block_state_name(int state);

/* ---- snapshots ----------------------------------------------------------------------------------------------------------- */

/* A memory snapshot of PyTorch 2.0 or later as a trace that passed tn_trace_check(): what torch.cuda.memory._dump_snapshot() wrote, a
 * pickle of torch.cuda.memory_snapshot(), the same as JSON, any of these packed by gzip, or a trace file that holds one.  "-" is
 * standard input.  A pickle is data here: an opcode that could run code is refused.  Entries and segments that name no stream are on
 * the default one; ids of streams are in the order of their handles.  A history of torch 2.0, which knows only "free", gets both of
 * the later actions.  Meta keys: "schema", the first version that writes such a file ("2.9+"); "allocator.NAME" for each setting, as
 * text or JSON; "entries_skipped", how many entries had an action that is not known.
 * TN_EFORMAT: one line with the byte offset (also in err->offset) and what was expected.  TN_ENOENT, TN_EPERM, TN_EIO, TN_ENOMEM.
 * Memory: less than twice the file's size, and never more than 128 MiB and eight times what was read of it. */
TN_API int tn_snapshot_load(const char *path, tn_trace **out, tn_error *err);
TN_API int tn_snapshot_parse(const void *data, size_t size, tn_trace **out, tn_error *err);
/* 1 when the file begins like a pickle or JSON of a snapshot, packed or not; 0 for a trace file, or when it cannot be opened. */
TN_API int tn_snapshot_is_one(const char *path);

/* ---- the caching model --------------------------------------------------------------------------------------------------- */

typedef struct tn_caching tn_caching; /* PyTorch's CUDA caching allocator, one device, as a pure model */

enum tn_segment_kind { TN_SEGMENT_ALLOC = 1, TN_SEGMENT_FREE, TN_SEGMENT_MAP, TN_SEGMENT_UNMAP };

typedef struct tn_caching_config {
  uint64_t total_bytes; /* of the device; sizes the reservation of expandable segments; 0 = 1 TiB */
  uint64_t limit_bytes; /* set_per_process_memory_fraction as bytes of reserved memory; 0 = none */
  uint32_t expandable_segments;
  uint32_t reserved;
  /* Where segments come from; NULL = ascending addresses 2 MiB apart, never reused.  Returns 0 to say the driver is out of memory.
   * kind is ALLOC for cudaMalloc'ed segments and MAP for the reservation of an expandable segment. */
  tn_addr (*segment_addr)(void *user, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream);
  /* Called for each segment event, in order; may be NULL. */
  void (*segment_event)(void *user, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream);
  void *user;
} tn_caching_config;

typedef struct tn_stat { uint64_t current, peak, allocated, freed; } tn_stat; /* the last two are running totals */

typedef struct tn_caching_stats { /* names as in torch.cuda.memory_stats() */
  tn_stat allocation, segment, active, inactive_split;
  tn_stat allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  uint64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
} tn_caching_stats;

TN_API int tn_caching_new(const tn_caching_config *config, tn_caching **out);
TN_API void tn_caching_free(tn_caching *caching);
/* TN_ELIMIT: out of memory, after the retry chain; the stats have counted it and the model goes on. */
TN_API int tn_caching_alloc(tn_caching *caching, uint64_t bytes, uint32_t stream, tn_addr *out);
/* TN_ENOENT: no live block at addr. */
TN_API int tn_caching_dealloc(tn_caching *caching, tn_addr addr);
TN_API int tn_caching_empty_cache(tn_caching *caching);
TN_API void tn_caching_get_stats(const tn_caching *caching, tn_caching_stats *out);
/* The smallest limit_bytes under which no allocation since the last call would have gone through the retry chain.  With expandable
 * segments it can be above what was reserved: the limit is tested as if a request never grew a free block. */
TN_API uint64_t tn_caching_limit_needed(tn_caching *caching);
TN_API void tn_caching_reset_peaks(tn_caching *caching);
TN_API uint64_t tn_caching_round(uint64_t bytes); /* requested -> allocated, default settings */
/* Visits free and live blocks in address order; live is 0 or 1, requested is 0 for free blocks. */
TN_API void tn_caching_walk(const tn_caching *caching, void (*visit)(void *user, tn_addr segment, tn_addr addr, uint64_t bytes,
                                                                     uint64_t requested, int live), void *user);

/* ---- device profiles ----------------------------------------------------------------------------------------------------- */

typedef struct tn_profile {
  char name[64];                   /* "h200" */
  uint64_t total_bytes;            /* what the card has for processes */
  uint64_t context_bytes;          /* device-used beyond reserved, for one process */
  double flops_per_s[TN_RATE_COUNT]; /* per rate, achieved by large matmuls; NONE is unused */
  double bytes_per_s;              /* achieved, read + write */
  double host_copy_bytes_per_s;    /* pinned, one way */
  double launch_s;                 /* device time that any kernel costs at least */
  double host_op_s;                /* host time of one forward op in eager PyTorch */
  double host_rebuild_s;           /* host time of one op run again, its share of the hooks included; adds to a step's host time, which
                                    * passes unnoticed while it stays below the device's */
} tn_profile;

TN_API int tn_profile_parse(const char *json, tn_profile *out, tn_error *err);
/* Device seconds of an op: its measured time, or the roofline max(flops / rate, bytes / bandwidth) + launch; 0 for views. */
TN_API double tn_profile_op_seconds(const tn_profile *profile, const tn_op *op);

/* ---- estimate ------------------------------------------------------------------------------------------------------------ */

typedef struct tn_peak { /* what a trace needs, replayed through the caching model */
  uint64_t allocated_bytes, reserved_bytes, requested_bytes, device_used_bytes;
  uint64_t by_category[TN_CATEGORY_COUNT]; /* allocated (rounded) bytes at the allocated peak */
  uint64_t persistent_bytes;               /* live at the start of the last step */
  uint32_t op;                             /* op running at the allocated peak */
  uint32_t event;                          /* and its place in the event table */
  uint32_t step;                           /* step of the peak */
  uint32_t oom;                            /* 1: a limit was given and exceeded */
  uint64_t limit_needed_bytes;             /* smallest limit under which the last step, repeated, has no retries; 0 for other steps */
  uint64_t retries;                        /* under the limit given: in that repetition.  Each costs more than most plans save */
} tn_peak;

typedef struct tn_estimate_options {
  uint32_t step;                /* step whose peak is asked for; TN_NONE = all */
  uint32_t expandable_segments;
  uint64_t limit_bytes;         /* reserved; 0 = none */
  uint32_t state_placed;        /* 1: room for the optimizer's state is taken before the first step, and given back just before the state is
                                 * made: so it does not lie scattered in what the first backward left free */
  uint32_t reserved;
} tn_estimate_options;

TN_API int tn_estimate(const tn_trace *trace, const tn_profile *profile, const tn_estimate_options *options, tn_peak *out);
/* The whole report as text or JSON, malloc'ed, to be given back by tn_text_free().  budget_bytes 0 = the card's size. */
TN_API int tn_report_estimate(const tn_trace *trace, const tn_profile *profile, uint64_t budget_bytes, int json, char **out);
TN_API void tn_text_free(char *text);

/* ---- the planner --------------------------------------------------------------------------------------------------------- */

/* A plan for one trace: which slots of its last pass to keep and which to rebuild, so that its last step fits a limit. */
typedef struct tn_plan tn_plan;

typedef struct tn_plan_options {
  uint64_t limit_bytes;         /* of allocated memory and, on a card, of reserved memory; UINT64_MAX = keep everything */
  uint32_t expandable_segments; /* the allocator setting that the run will have */
  uint32_t keep_all;            /* 1: rebuild nothing, only say what it takes */
} tn_plan_options;

/* How long a row of ops takes: started by the host one after the other, run by the device as they come. */
typedef struct tn_span {
  double host_s;   /* of the host, for starting them */
  double device_s; /* of the device, for running them */
  double length_s; /* from the first one's start on the host to the last one's end on the device, from an idle start */
} tn_span;

typedef struct tn_plan_result {
  int32_t fits;             /* 0: not even dropping what can be dropped; the other members describe the smallest plan found */
  uint32_t passes;          /* passes in the trace's step: 1, or 2 standing for any number */
  uint64_t allocated_bytes; /* peak of the step under the plan */
  uint64_t reserved_bytes;  /* the same, from the caching model on the repeated step; allocated_bytes on the host */
  uint64_t limit_needed_bytes; /* smallest limit under which the repeated step has no retries */
  uint64_t kept_bytes;      /* allocated peak when everything is kept */
  uint64_t smallest_bytes;  /* smallest allocated peak found */
  double extra_s;           /* device seconds that rebuilding adds to a pass */
  double lower_bound_s;     /* no plan within the limit adds less to a pass, by the same cost model */
  tn_span kept_first_pass, kept_last_pass; /* the first and the last pass when everything is kept, without hooks */
  tn_span first_pass, last_pass; /* under the plan */
  tn_span optimizer;        /* the rest of the step */
  uint32_t slots, slots_rebuilt, ops_run;
  uint32_t peak_op;         /* op running at the peak, TN_NONE when it is a rebuild or no op */
  uint32_t peak_phase;      /* tn_phase */
  uint32_t reserved;
} tn_plan_result;

TN_API int tn_plan_new(const tn_trace *trace, const tn_profile *profile, const tn_plan_options *options, tn_plan **out,
                       tn_error *err);
TN_API void tn_plan_free(tn_plan *plan);
TN_API void tn_plan_get_result(const tn_plan *plan, tn_plan_result *out);
/* The object PASS of docs/formats.md, without micro_batch and count; and the list "rebuilt".  malloc'ed: tn_text_free(). */
TN_API int tn_plan_pass_json(const tn_plan *plan, char **out);
TN_API int tn_plan_rebuilt_json(const tn_plan *plan, char **out);

/* The outer loop: which micro-batch and precision to capture next, and which of the plans is best. */
typedef struct tn_search tn_search;

enum { TN_LEVER_REBUILD = 1 << 0, TN_LEVER_MICRO_BATCH = 1 << 1, TN_LEVER_ALLOCATOR = 1 << 2, TN_LEVER_PRECISION = 1 << 3 };

typedef struct tn_search_options {
  uint64_t budget_bytes; /* device-used */
  uint32_t batch;        /* size of dimension 0 */
  uint32_t levers;       /* TN_LEVER_... */
} tn_search_options;

typedef struct tn_candidate {
  uint32_t micro_batch; /* samples in a pass */
  uint32_t count;       /* passes of that size in a step; a smaller last pass, if batch is no multiple, is not counted */
  uint32_t rest;        /* samples of the last pass when it is smaller, else 0 */
  uint32_t bf16;        /* 1: under bf16 autocast */
} tn_candidate;

TN_API int tn_search_new(const tn_profile *profile, const tn_search_options *options, tn_search **out);
TN_API void tn_search_free(tn_search *search);
/* 1 and the candidate to capture next, or 0 when the search is over. */
TN_API int tn_search_next(tn_search *search, tn_candidate *out);
/* Plans the candidate that tn_search_next() gave. */
TN_API int tn_search_offer(tn_search *search, const tn_trace *trace, tn_error *err);
typedef struct tn_search_best {
  tn_candidate candidate;
  tn_plan_result result;
  double step_s, unconstrained_step_s;    /* of the whole step; the second with everything kept, as the user wrote it */
  uint64_t unconstrained_allocated_bytes; /* likewise */
  double whole_step_s;                    /* the whole batch in the best candidate's precision, everything kept */
  uint64_t whole_allocated_bytes;         /* likewise */
  uint64_t limit_bytes;                   /* for tn_plan_options, when the rest or a repetition is planned */
  uint32_t expandable_segments;
  int32_t fits;
} tn_search_best;
TN_API int tn_search_get_best(const tn_search *search, tn_search_best *out);
/* PASS and "rebuilt" of the best plan so far, to be given back by tn_text_free().  TN_ENOENT when nothing was offered. */
TN_API int tn_search_best_json(const tn_search *search, char **out_pass, char **out_rebuilt);

#ifdef __cplusplus
}
#endif
#endif

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

enum { TN_CONF_INTERVALS = 16 };

/* PyTorch's allocator settings, as in PYTORCH_CUDA_ALLOC_CONF.  All zero = PyTorch's own. */
typedef struct tn_conf {
  uint64_t max_split_bytes;              /* blocks from this size on are not split; 0 = all are */
  uint64_t max_non_split_rounding_bytes; /* what an unsplit block may be too large by; 0 = a large segment */
  uint64_t large_segment_bytes;          /* for requests above 1 and below 10 MiB; 0 = 20 MiB */
  double garbage_collection_threshold;   /* of the limit; 0 = off */
  double memory_fraction;                /* per_process_memory_fraction; 0 = not given */
  uint32_t roundup_divisions[TN_CONF_INTERVALS]; /* of sizes below 2 MiB, 4 MiB ... 32 GiB, and above; up to 1 = 512-byte steps */
  uint8_t expandable_segments;
  uint8_t private_expandable;      /* graphs' and MemPools' segments are expandable too, as since 2.9 or so */
  uint8_t throw_on_cudamalloc_oom; /* over the limit: out of memory at once, nothing is given back first */
  uint8_t malloc_async;            /* backend:cudaMallocAsync, which is not this allocator */
  uint8_t reserved[4];
} tn_conf;

enum tn_segment_kind { TN_SEGMENT_ALLOC = 1, TN_SEGMENT_FREE, TN_SEGMENT_MAP, TN_SEGMENT_UNMAP };

typedef struct tn_caching_config {
  uint64_t total_bytes; /* of the device; sizes the reservation of expandable segments; 0 = 1 TiB */
  uint64_t limit_bytes; /* set_per_process_memory_fraction as bytes of reserved memory; 0 = none */
  tn_conf conf;
  /* Later allocations until a freed block that another stream used is free: PyTorch asks when it allocates.  UINT32_MAX: not
   * before tn_caching_complete(). */
  uint32_t event_delay;
  uint32_t reserved;
  /* Where segments come from; NULL = each below the one before, as CUDA goes about it, 2 MiB apart and never reused.  It matters, for
   * of free blocks of one size the lowest is taken.  Returns 0 to say the driver is out of memory.  kind is ALLOC for cudaMalloc'ed
   * segments and MAP for the reservation of an expandable segment. */
  tn_addr (*segment_addr)(void *user, enum tn_segment_kind kind, uint64_t bytes, uint32_t stream);
  /* Whether the driver has memory for pages of an expandable segment; NULL = always. */
  int (*segment_map)(void *user, tn_addr addr, uint64_t bytes, uint32_t stream);
  /* Called for each segment event, in order; may be NULL. */
  void (*segment_event)(void *user, enum tn_segment_kind kind, tn_addr addr, uint64_t bytes, uint32_t stream);
  void *user;
} tn_caching_config;

typedef struct tn_stat { uint64_t current, peak, allocated, freed; } tn_stat; /* the last two are running totals */

typedef struct tn_caching_stats { /* names as in torch.cuda.memory_stats() */
  tn_stat allocation, segment, active, inactive_split;
  tn_stat allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  tn_stat oversize_allocations, oversize_segments; /* of at least max_split_bytes; none without it */
  uint64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
} tn_caching_stats;

TN_API int tn_caching_new(const tn_caching_config *config, tn_caching **out);
TN_API void tn_caching_free(tn_caching *caching);
/* Streams are numbered in the order of their handles: the allocator's searches go by it.  TN_ELIMIT: out of memory, after the retry
 * chain; the stats have counted it and the model goes on. */
TN_API int tn_caching_alloc(tn_caching *caching, uint64_t bytes, uint32_t stream, tn_addr *out);
/* The same from a CUDA graph's or a MemPool's memory, while that is being captured or in use.  Pools are numbered from 1, without
 * large gaps; 0 is PyTorch's own. */
TN_API int tn_caching_alloc_from(tn_caching *caching, uint32_t pool, uint64_t bytes, uint32_t stream, tn_addr *out);
/* TN_ENOENT: no live block at addr. */
TN_API int tn_caching_dealloc(tn_caching *caching, tn_addr addr);
/* Tensor.record_stream(): the block's end waits for that stream too.  TN_ENOENT: no live block at addr. */
TN_API int tn_caching_record_stream(tn_caching *caching, tn_addr addr, uint32_t stream);
/* The streams that a freed block waited for have reached its end.  TN_ENOENT: no block waits at addr. */
TN_API int tn_caching_complete(tn_caching *caching, tn_addr addr);
/* The graph or MemPool is gone: what is free of its memory can be given back, after that of pools released before.  Allocating from it
 * again takes it back into use. */
TN_API int tn_caching_release_pool(tn_caching *caching, uint32_t pool);
TN_API int tn_caching_empty_cache(tn_caching *caching);
TN_API void tn_caching_get_stats(const tn_caching *caching, tn_caching_stats *out);
/* The smallest limit_bytes under which no allocation since the last call would have gone through the retry chain.  With expandable
 * segments it can be above what was reserved: the limit is tested as if a request never grew a free block. */
TN_API uint64_t tn_caching_limit_needed(tn_caching *caching);
TN_API void tn_caching_reset_peaks(tn_caching *caching);
TN_API uint64_t tn_caching_round(uint64_t bytes); /* requested -> allocated, default settings */
/* Visits blocks in address order, those without memory left out; state is tn_block_state, requested is 0 for free blocks. */
TN_API void tn_caching_walk(const tn_caching *caching, void (*visit)(void *user, tn_addr segment, tn_addr addr, uint64_t bytes,
                                                                     uint64_t requested, int state), void *user);

/* ---- replay -------------------------------------------------------------------------------------------------------------- */

/* The settings in a PYTORCH_CUDA_ALLOC_CONF string, by the rules of the PyTorch that wrote the trace; NULL = the newest.  TN_EINVAL names
 * the key that is unknown or wrong. */
TN_API int tn_conf_parse(const char *text, const tn_trace *trace, tn_conf *out, tn_error *err);
/* The settings that a snapshot was recorded under; PyTorch's own where it does not say. */
TN_API int tn_conf_recorded(const tn_trace *trace, tn_conf *out, tn_error *err);
/* The string that gives these settings, "" for PyTorch's own; malloc'ed: tn_text_free(). */
TN_API int tn_conf_format(const tn_conf *conf, char **out);

typedef struct tn_replay_options {
  const tn_conf *conf;  /* NULL: the settings that it was recorded under */
  uint64_t limit_bytes; /* of reserved memory; 0 = as far as the recording tells */
  uint32_t device;      /* CUDA's ordinal; TN_NONE = the one with most entries */
  uint32_t reserved;
} tn_replay_options;

enum tn_exactness {
  TN_EXACT_NO,  /* the model came out otherwise: see difference */
  TN_EXACT_YES, /* every segment event in order, and at the end every segment and block, were as recorded */
  TN_EXACT_NOT_COMPARED /* other settings than the recorded ones, so a prediction */
};

typedef struct tn_replay_result {
  tn_conf conf;            /* that it was replayed under */
  uint64_t limit_bytes;    /* likewise; 0 = none */
  uint32_t device;         /* CUDA's ordinal */
  uint32_t exactness;      /* tn_exactness */
  uint32_t is_complete;    /* 0: blocks lived already when the history begins, and peaks count from there */
  uint32_t limit_inferred; /* from what the recorded run was refused */
  uint32_t entries, allocs; /* of the device; among them allocations, the failed ones too */
  uint32_t ooms_recorded;   /* allocations that failed when it was recorded */
  uint32_t ooms_served;     /* of these, how many the replay served */
  uint32_t oom_entry;       /* first entry that the replay found no memory for though the recorded run did; TN_NONE */
  uint64_t oom_bytes;       /* what it asked for */
  uint64_t stalls;          /* allocations for which memory had to be given back first: each waits for the device */
  uint64_t recorded_bytes;  /* most that was reserved in the recorded run */
  uint64_t ideal_bytes;     /* most that was in use at once, or would have been when an allocation failed: no setting needs less */
  tn_caching_stats stats;   /* current = at the end */
  uint32_t difference_entry; /* TN_NONE: at the end */
  uint32_t reserved;
  char difference[240];      /* "" when exact or not compared */
} tn_replay_result;

/* Replays a snapshot's history of one device.  Under the recorded settings segments lie where they were recorded, so the outcome can be
 * compared; when that differs, and under other settings, segments are placed as predict.h says and the result is a prediction.
 * TN_EPARTIAL: there is no history.  TN_ENOENT: no such device. */
TN_API int tn_replay(const tn_trace *trace, const tn_replay_options *options, tn_replay_result *out, tn_error *err);

/* Which settings would serve this history best. */
typedef struct tn_tune tn_tune;

typedef struct tn_tune_options {
  uint64_t limit_bytes; /* as in tn_replay_options */
  uint32_t device;
  uint32_t threads;     /* 0 = one for each core */
  void (*progress)(void *user, size_t done, size_t total); /* from one thread at a time; NULL = none */
  void *user;
} tn_tune_options;

typedef struct tn_tune_row {
  tn_replay_result result;
  const char *setting;  /* for PYTORCH_CUDA_ALLOC_CONF; belongs to the tn_tune */
  uint32_t changes;     /* keys in it */
  uint32_t is_recorded; /* the settings that it was recorded under, predicted like the others */
} tn_tune_row;

/* Replays the history under every setting of a list that its PyTorch has, then under variations of the best ones, on all cores. */
TN_API int tn_tune_new(const tn_trace *trace, const tn_tune_options *options, tn_tune **out, tn_error *err);
TN_API void tn_tune_free(tn_tune *tune);
/* All of them.  The first is the one to use: of those that serve the run best and need least, within 2 %, the simplest. */
TN_API const tn_tune_row *tn_tune_rows(const tn_tune *tune, size_t *out_count);
TN_API const tn_tune_row *tn_tune_recorded(const tn_tune *tune);
/* How the recorded run itself came out under tn_replay(). */
TN_API const tn_replay_result *tn_tune_exact(const tn_tune *tune);

/* Reports as text or JSON, malloc'ed: tn_text_free(). */
TN_API int tn_report_replay(const tn_replay_result *result, int json, char **out);
TN_API int tn_report_tune(const tn_tune *tune, int json, char **out);

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

/* ---- explain ------------------------------------------------------------------------------------------------------------- */

/* What a snapshot says of each device: who held memory, how high it went, what was wrong. */
typedef struct tn_explain tn_explain;

typedef struct tn_explain_options {
  uint32_t device;      /* CUDA's ordinal; TN_NONE = all that hold or did something */
  uint32_t stack_depth; /* frames shown of each stack; 0 = one line for the place and its op */
  uint32_t width;       /* columns of the text; 0 = 100 */
  uint32_t reserved;
  uint64_t total_bytes; /* of the card, or what the process may use; 0 = not known */
} tn_explain_options;

/* options NULL = all devices.  The trace must have passed tn_trace_check() and outlive the result.  TN_ENOENT: no such device. */
TN_API int tn_explain_new(const tn_trace *trace, const tn_explain_options *options, tn_explain **out, tn_error *err);
TN_API void tn_explain_free(tn_explain *explain); /* NULL is legal */
TN_API size_t tn_explain_count(const tn_explain *explain); /* devices */

typedef struct tn_explain_result { /* of one device */
  uint32_t device, steps, entries, findings;
  uint64_t allocated_bytes, reserved_bytes; /* at the snapshot */
  uint64_t peak_allocated_bytes, peak_reserved_bytes;
  uint64_t waste_bytes;         /* peak_reserved - peak_allocated: what perfect packing would have saved */
  double leak_bytes_per_step;   /* 0: none was found */
  uint32_t growth_is_known;     /* 0: too few steps to say */
  uint32_t is_host;             /* 1: pinned host memory */
  uint64_t by_category[TN_CATEGORY_COUNT]; /* at the allocated peak; inferred unless the file says it */
} tn_explain_result;

TN_API int tn_explain_get_result(const tn_explain *explain, size_t at, tn_explain_result *out); /* TN_ENOENT: at is too large */

typedef struct tn_explain_limits {
  uint64_t reserved_bytes;      /* at the peak; 0 = no limit */
  uint64_t leak_bytes_per_step; /* when leak_is_given */
  double waste_percent;         /* of reserved at its peak, when waste_is_given */
  uint32_t leak_is_given, waste_is_given;
} tn_explain_limits;

/* TN_ELIMIT: a limit is exceeded; which and by how much is in *err.  TN_EPARTIAL: it cannot be checked, and why. */
TN_API int tn_explain_check(const tn_explain *explain, const tn_explain_limits *limits, tn_error *err);
/* The report as text or JSON, malloc'ed, to be given back by tn_text_free().  title: what the text calls the file. */
TN_API int tn_report_explain(const tn_explain *explain, const char *title, int json, char **out);

typedef struct tn_diff_side {
  const tn_trace *trace;     /* a snapshot or a capture; passed tn_trace_check() */
  const char *title;         /* what the text calls it */
  const tn_profile *profile; /* of the card; needed for a capture, else NULL */
} tn_diff_side;

typedef struct tn_diff_options {
  uint32_t device; /* of snapshots; TN_NONE = in each the one with the highest peak */
  uint32_t width;  /* columns of the text; 0 = 100 */
} tn_diff_options;

/* What changed from a to b at their allocated peaks, by category, and by who allocated (module and op of captures); a snapshot and a
 * capture can only be compared by category.  malloc'ed: tn_text_free().  TN_ENOENT: no such device, or nothing in the trace. */
TN_API int tn_report_diff(const tn_diff_side *a, const tn_diff_side *b, const tn_diff_options *options, int json, char **out,
                          tn_error *err);

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

/* ---- out-of-memory messages ---------------------------------------------------------------------------------------------- */

/* Who gave up. */
#define TN_OOM_FORMS(X)                                                                                                       \
  X(CACHING, "caching")       /* PyTorch's caching allocator, of any device */                                                \
  X(ASYNC, "async")           /* PyTorch's cudaMallocAsync backend */                                                         \
  X(MPS, "mps")               /* PyTorch on Metal */                                                                          \
  X(DRIVER, "driver")         /* the driver, asked by something other than PyTorch's allocator */                             \
  X(LIBRARY, "library")       /* cuBLAS, cuDNN and their like */                                                              \
  X(COLLECTIVE, "collective") /* NCCL and its like */                                                                         \
  X(PINNED, "pinned")         /* page-locked host memory */                                                                   \
  X(HOST, "host")             /* ordinary host memory */                                                                      \
  X(SHARED, "shared")         /* the host's shared memory, /dev/shm */                                                        \
  X(KILLED, "killed")         /* the system ended a process to get memory back */                                             \
  X(ASSERT, "assert")         /* a check inside PyTorch's allocator failed */                                                 \
  X(SIZE, "size")             /* a size that no machine has */                                                                \
  X(BARE, "bare")             /* only the words "out of memory" */
enum tn_oom_form {
#define TN_OOM_FORM_ENUM(name, text) TN_OOM_FORM_##name,
  TN_OOM_FORMS(TN_OOM_FORM_ENUM)
#undef TN_OOM_FORM_ENUM
      TN_OOM_FORM_COUNT
};

/* What a message may say, in our words. */
#define TN_OOM_READINGS(X)                                                                                                    \
  X(ASKED, "asked")             /* the allocation that failed; a caching allocator prints the segment it wanted for it */      \
  X(TOTAL, "total")             /* what the device has */                                                                     \
  X(FREE, "free")               /* what the device has free */                                                                \
  X(ALLOWED, "allowed")         /* a limit on this process: of reserved memory */                                             \
  X(ALLOCATED, "allocated")     /* live blocks */                                                                             \
  X(ACTIVE, "active")           /* allocated, and freed but still used by a stream */                                         \
  X(POOLS, "pools")             /* free blocks of private pools, as of CUDA graphs */                                         \
  X(UNALLOCATED, "unallocated") /* reserved, in no live block and in no private pool */                                       \
  X(RESERVED, "reserved")       /* allocated + pools + unallocated */                                                         \
  X(PROCESS, "process")         /* device-used of this process */                                                             \
  X(OTHERS, "others")           /* device-used of the other processes listed; Metal: all but PyTorch's own */
enum tn_oom_reading {
#define TN_OOM_READING_ENUM(name, text) TN_OOM_##name,
  TN_OOM_READINGS(TN_OOM_READING_ENUM)
#undef TN_OOM_READING_ENUM
      TN_OOM_READING_COUNT
};

/* What the program was doing, by the traceback or the text around the message. */
#define TN_OOM_MOMENTS(X)                                                                                                     \
  X(LOSS, "loss") X(ATTENTION, "attention") X(BACKWARD, "backward") X(OPTIMIZER, "optimizer") X(EVALUATION, "evaluation")      \
  X(LOADING, "loading") X(SAVING, "saving") X(GATHERING, "gathering") X(CAPTURE, "capture") X(PINNING, "pinning") X(START, "start")
enum tn_oom_moment {
#define TN_OOM_MOMENT_ENUM(name, text) TN_OOM_MOMENT_##name,
  TN_OOM_MOMENTS(TN_OOM_MOMENT_ENUM)
#undef TN_OOM_MOMENT_ENUM
      TN_OOM_MOMENT_COUNT
};

/* Why, as far as the numbers tell. */
#define TN_OOM_CAUSES(X)                                                                                                      \
  X(UNKNOWN, "unknown")          /* the text has too few numbers */                                                           \
  X(LIMIT, "limit")              /* a limit on this process, below what the device had */                                     \
  X(TOO_LARGE, "too large")      /* one request larger than the device */                                                     \
  X(OTHERS, "other processes")   /* other processes hold it */                                                                \
  X(FRAGMENTED, "fragmented")    /* enough was unused, in pieces between live blocks */                                       \
  X(POOLS, "private pools")      /* private pools hold it, unused */                                                          \
  X(OUTSIDE, "outside PyTorch")  /* memory that PyTorch does not manage: this process's libraries, or processes not listed */  \
  X(TENSORS, "live tensors")     /* this process's tensors fill it */                                                         \
  X(SPILLED, "spilled")          /* more is allocated than the device has: the driver pages to host memory */                  \
  X(REFUSED, "refused")          /* enough was free, and yet */                                                               \
  X(NO_ROOM, "no room outside")  /* a library found no room beside PyTorch's reserved memory */                                \
  X(HOST, "host memory")         /* the machine's memory, not the device's */                                                 \
  X(DEFECT, "defect")            /* not a lack of memory: a wrong size, or a known fault */
enum tn_oom_cause {
#define TN_OOM_CAUSE_ENUM(name, text) TN_OOM_CAUSE_##name,
  TN_OOM_CAUSES(TN_OOM_CAUSE_ENUM)
#undef TN_OOM_CAUSE_ENUM
      TN_OOM_CAUSE_COUNT
};

typedef struct tn_oom_size { uint64_t bytes, slack; } tn_oom_size; /* printing rounds: the true size is within bytes +- slack */

typedef struct tn_oom_process {
  uint64_t pid; /* as the driver counts: in a container not what the container sees */
  tn_oom_size used;
  uint32_t known;   /* 1: used was printed; 0: the driver does not tell */
  uint32_t is_self; /* 1: this process, by its memory: none of those listed was named as such */
} tn_oom_process;

enum { TN_OOM_PROCESSES_MAX = 32 };

enum {
  TN_OOM_SOFT = 1 << 0,       /* an error that lack of memory often causes, among others */
  TN_OOM_UNTOLD = 1 << 1,     /* a size was printed as 2^64 bytes: the driver does not tell it, or there is no limit */
  TN_OOM_CUT = 1 << 2,        /* the message ends before what its form always has */
  TN_OOM_EXPANDABLE = 1 << 3, /* the text around it says that expandable segments are on */
  TN_OOM_HINT_SPLIT = 1 << 4, /* the message's own advice is max_split_size_mb */
  TN_OOM_HINT_EXPANDABLE = 1 << 5, /* and this one expandable_segments */
  TN_OOM_CACHED = 1 << 6      /* "cached" as torch 1.0 to 1.3 printed it */
};

typedef struct tn_oom {
  uint32_t known;   /* bit 1 << TN_OOM_...: the text has it, or it follows from what the text has */
  uint32_t derived; /* of those, the ones that follow */
  tn_oom_size sizes[TN_OOM_READING_COUNT]; /* by reading; only where known */
  uint32_t process_count;    /* listed by number; the first TN_OOM_PROCESSES_MAX are kept, OTHERS sums all but this one */
  uint32_t processes_untold; /* of those, how many without a size */
  tn_oom_process processes[TN_OOM_PROCESSES_MAX];
  int32_t device, rank; /* negative = not said */
  uint32_t flags;       /* TN_OOM_SOFT ... */
  uint32_t moments;     /* bit 1 << TN_OOM_MOMENT_... */
  uint32_t unread;      /* sizes within the message that no reading was found for */
  uint32_t repeats;     /* how often a log has it */
  uint32_t form;        /* tn_oom_form */
  uint32_t reserved;
  uint64_t line, offset; /* where it begins, from 1 and from 0 */
  char backend[16];      /* "cuda", "hip", "xpu", "mps", "npu" ...; "" when not said */
  char name[64];         /* the words it was known by: "CUBLAS_STATUS_ALLOC_FAILED" */
  char place[128];       /* the user's innermost line: "train.py:41 in training_step"; "" */
} tn_oom;

/* The message to explain in a text of any kind: one message, or a log.  NULs and other binary bytes are passed over.
 * TN_ENOENT: there is none. */
TN_API int tn_oom_parse(const char *text, size_t len, tn_oom *out, tn_error *err);

/* A log of any length, in pieces.  Memory is bounded: it keeps the distinct messages, and counts how often each comes. */
typedef struct tn_oom_log tn_oom_log;

TN_API int tn_oom_log_new(tn_oom_log **out);
TN_API void tn_oom_log_free(tn_oom_log *log); /* NULL is legal */
TN_API int tn_oom_log_add(tn_oom_log *log, const char *bytes, size_t len);
TN_API int tn_oom_log_end(tn_oom_log *log); /* no more pieces; needed before the messages are read */
/* The distinct messages in order, count in *out_count; in *out_chosen (may be NULL) the place of the one to explain: of the best
 * kind there is, the last of each rank, and of those the first.  NULL when there are none.  Valid until the next add. */
TN_API const tn_oom *tn_oom_log_messages(const tn_oom_log *log, size_t *out_count, size_t *out_chosen);

TN_API int tn_oom_cause(const tn_oom *oom); /* tn_oom_cause */
TN_API const char *tn_oom_cause_name(int cause);
/* Verdict, account, and what would have helped, as text or JSON; malloc'ed: tn_text_free(). */
TN_API int tn_report_oom(const tn_oom *messages, size_t count, size_t chosen, int json, char **out);

/* ---- html ---------------------------------------------------------------------------------------------------------------- */

typedef struct tn_html_options {
  const char *name;           /* of the snapshot, shown as the page's title; NULL = none */
  uint64_t total_bytes;       /* of the card, or the limit of the process; 0 = not known */
  uint64_t history_bytes_max; /* of the file for who held what at which moment; larger histories are thinned out; 0 = 3 MiB */
} tn_html_options;

/* What explain says of a snapshot as one HTML file that needs no network: memory over time, the segments at any moment, findings.
 * options may be NULL.  The page in *out, to be given back by tn_text_free().  TN_EINVAL: the trace has no device's history. */
TN_API int tn_report_html(const tn_trace *trace, const tn_html_options *options, char **out, tn_error *err);
/* The same into a file, replaced at once: TN_EIO, path is as it was. */
TN_API int tn_report_html_save(const tn_trace *trace, const tn_html_options *options, const char *path, tn_error *err);

#ifdef __cplusplus
}
#endif
#endif

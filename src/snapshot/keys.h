/* keys.h -- the keys of a snapshot's dictionaries.
 *
 * Why: they are interned first, so that a key's string id is its number here and a switch decides what it means.
 * Callers: this layer.  Constant data. */
#ifndef TN_SNAPSHOT_KEYS_H
#define TN_SNAPSHOT_KEYS_H

#include "tonnage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* At most 63, so that a set of keys is one word of bits. */
#define TN__KEYS(X)                                                                                                           \
  /* trace entry */                                                                                                           \
  X(ACTION, "action") X(ADDR, "addr") X(DEVICE_FREE, "device_free") X(SIZE, "size") X(STREAM, "stream") X(TIME_US, "time_us")  \
  X(POOL_ID, "pool_id") X(FRAMES, "frames") X(FORWARD_FRAMES, "forward_frames") X(USER_METADATA, "user_metadata")              \
  X(COMPILE_CONTEXT, "compile_context") X(CATEGORY, "category")                                                                \
  /* frame */                                                                                                                 \
  X(FILENAME, "filename") X(LINE, "line") X(NAME, "name")                                                                      \
  /* segment and block */                                                                                                     \
  X(ADDRESS, "address") X(TOTAL_SIZE, "total_size") X(ALLOCATED_SIZE, "allocated_size") X(ACTIVE_SIZE, "active_size")          \
  X(REQUESTED_SIZE, "requested_size") X(SEGMENT_TYPE, "segment_type") X(SEGMENT_POOL_ID, "segment_pool_id")                    \
  X(IS_EXPANDABLE, "is_expandable") X(BLOCKS, "blocks") X(DEVICE, "device") X(STATE, "state") X(HISTORY, "history")            \
  X(REAL_SIZE, "real_size")                                                                                                   \
  /* annotation */                                                                                                            \
  X(STAGE, "stage")                                                                                                           \
  /* the whole */                                                                                                             \
  X(SEGMENTS, "segments") X(DEVICE_TRACES, "device_traces") X(HOST_SEGMENTS, "host_segments") X(HOST_TRACES, "host_traces")    \
  X(ALLOCATOR_SETTINGS, "allocator_settings") X(EXTERNAL_ANNOTATIONS, "external_annotations")                                 \
  /* settings that only some versions have */                                                                                 \
  X(ROUNDUP, "roundup_power2_divisions") X(REUSE, "graph_capture_record_stream_reuse") X(OVERFLOWED, "trace_alloc_overflowed")

enum tn__key {
  TN__KEY_EMPTY, /* string 0 is "" */
#define TN__KEY_ENUM(name, text) TN__KEY_##name,
  TN__KEYS(TN__KEY_ENUM)
#undef TN__KEY_ENUM
      TN__KEY_COUNT
};

extern const char *const tn__keys[TN__KEY_COUNT]; /* schema.c */

#define TN__KEY_BIT(key) ((uint64_t)1 << TN__KEY_##key)

#ifdef __cplusplus
}
#endif
#endif

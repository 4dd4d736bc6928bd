/* stacks.h -- what stacks say: which are the same, which frame is the place in the user's program, what kind of work it is.
 *
 * Callers: src/explain, src/report.  Not locked: one thread at a time. */
#ifndef TN_EXPLAIN_STACKS_H
#define TN_EXPLAIN_STACKS_H

#include "explain/analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bit, name: what a stack's frames show.  See cues.c for the frames. */
#define TN__CUES(X)                                                                                                    \
  X(MODULE) X(LOSS) X(BACKWARD) X(OPTIMIZER) X(STATE) X(PARAMETER) X(INPUT) X(WORKSPACE) X(COMMUNICATION) X(GRAPH)      \
  X(RECOMPUTE) X(EVAL) X(NO_GRAD) X(ATTENTION) X(ACCUMULATE) X(CLIP) X(ZERO_GRAD) X(INIT) X(EMPTY_CACHE) X(COPY) X(PYTHON) X(CPP)
enum {
#define TN__CUE_AT(name) TN__CUE_AT_##name,
  TN__CUES(TN__CUE_AT)
#undef TN__CUE_AT
      TN__CUE_AT_COUNT
};
enum {
#define TN__CUE(name) TN__CUE_##name = 1 << TN__CUE_AT_##name,
  TN__CUES(TN__CUE)
#undef TN__CUE
      TN__CUE_NONE = 0
};

/* What one frame shows: TN__CUE_... */
uint32_t tn__frame_cues(const char *file, const char *function);
/* Whose frame: C++; Python's or PyTorch's own; of another installed package; of the program. */
enum tn__frame_kind { TN__FRAME_CPP, TN__FRAME_PLUMBING, TN__FRAME_LIBRARY, TN__FRAME_PROGRAM };
enum tn__frame_kind tn__frame_kind(const char *file, const char *function);

int tn__stacks_init(tn__stacks *stacks, const tn_trace *trace); /* deinit in any case */
void tn__stacks_deinit(tn__stacks *stacks);
/* The op or library function through which the place allocates: "cross_entropy", "aten::bmm", "MulBackward0"; "" into text: none. */
void tn__stack_op(const tn_trace *trace, const tn__stacks *stacks, uint32_t stack, tn_text *text);
static inline uint32_t tn__stacks_group(const tn__stacks *stacks, uint32_t stack) {
  return stack < stacks->count ? stacks->group[stack] : TN_NONE;
}
static inline uint32_t tn__stacks_cues(const tn__stacks *stacks, uint32_t stack) {
  return stack < stacks->count ? stacks->cues[stack] : 0;
}

#ifdef __cplusplus
}
#endif
#endif

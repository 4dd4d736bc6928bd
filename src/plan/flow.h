/* flow.h -- maximum flow, for the planner's minimum cuts.
 *
 * Callers: choose.  Dinic's algorithm: level graph by breadth-first search, then blocking flows along it; the graphs here are
 * thousands of nodes in many small components.  One thread at a time per object. */
#ifndef TN_PLAN_FLOW_H
#define TN_PLAN_FLOW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_FLOW_INFINITE (INT64_MAX / 4)

typedef struct tn__flow_edge { /* stored in pairs: edge ^ 1 is its reverse */
  uint32_t to;
  uint32_t next; /* next edge out of the same node, TN_NONE */
  int64_t capacity, left;
} tn__flow_edge;

typedef struct tn__flow {
  size_t node_count, edge_count, edge_capacity;
  tn__flow_edge *edges;
  uint32_t *first, *arc, *level, *queue, *path;
} tn__flow;

int tn__flow_init(tn__flow *flow, size_t nodes, size_t max_edges);
void tn__flow_deinit(tn__flow *flow);
/* Adds an edge and returns its number, which tn__flow_set() takes.  At most max_edges. */
uint32_t tn__flow_add(tn__flow *flow, uint32_t from, uint32_t to, int64_t capacity);
void tn__flow_set(tn__flow *flow, uint32_t edge, int64_t capacity);
/* Maximum flow from scratch; afterwards tn__flow_reaches() says which side of the minimum cut a node is on (source: 1). */
int64_t tn__flow_run(tn__flow *flow, uint32_t source, uint32_t sink);
int tn__flow_reaches(const tn__flow *flow, uint32_t node);

#ifdef __cplusplus
}
#endif
#endif

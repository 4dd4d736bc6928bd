/* flow.c -- see flow.h. */
#include "plan/flow.h"

#include <string.h>

#include "base/mem.h"
#include "tonnage.h"

int tn__flow_init(tn__flow *flow, size_t nodes, size_t max_edges) {
  *flow = (tn__flow){.node_count = nodes, .edge_capacity = 2 * max_edges};
  flow->edges = tn__mem_zalloc(2 * max_edges + 1, sizeof *flow->edges);
  flow->first = tn__mem_zalloc(nodes + 1, sizeof *flow->first);
  flow->arc = tn__mem_zalloc(nodes + 1, sizeof *flow->arc);
  flow->level = tn__mem_zalloc(nodes + 1, sizeof *flow->level);
  flow->queue = tn__mem_zalloc(nodes + 1, sizeof *flow->queue);
  flow->path = tn__mem_zalloc(nodes + 1, sizeof *flow->path);
  if (!flow->edges || !flow->first || !flow->arc || !flow->level || !flow->queue || !flow->path) {
    tn__flow_deinit(flow);
    return TN_ENOMEM;
  }
  memset(flow->first, 0xff, (nodes + 1) * sizeof *flow->first);
  return TN_OK;
}

void tn__flow_deinit(tn__flow *flow) {
  tn__mem_free(flow->edges);
  tn__mem_free(flow->first);
  tn__mem_free(flow->arc);
  tn__mem_free(flow->level);
  tn__mem_free(flow->queue);
  tn__mem_free(flow->path);
  *flow = (tn__flow){0};
}

static void add_half(tn__flow *flow, uint32_t from, uint32_t to, int64_t capacity) {
  uint32_t edge = (uint32_t)flow->edge_count++;
  flow->edges[edge] = (tn__flow_edge){.to = to, .next = flow->first[from], .capacity = capacity};
  flow->first[from] = edge;
}

uint32_t tn__flow_add(tn__flow *flow, uint32_t from, uint32_t to, int64_t capacity) {
  uint32_t edge = (uint32_t)flow->edge_count;
  add_half(flow, from, to, capacity);
  add_half(flow, to, from, 0);
  return edge;
}

void tn__flow_set(tn__flow *flow, uint32_t edge, int64_t capacity) { flow->edges[edge].capacity = capacity; }

/* Distance of every node from source over edges with capacity left; 0 = not reached, source is 1. */
static int find_levels(tn__flow *flow, uint32_t source, uint32_t sink) {
  size_t head = 0, tail = 0;
  memset(flow->level, 0, flow->node_count * sizeof *flow->level);
  flow->level[source] = 1;
  flow->queue[tail++] = source;
  while (head < tail) {
    uint32_t node = flow->queue[head++];
    for (uint32_t e = flow->first[node]; e != TN_NONE; e = flow->edges[e].next) {
      uint32_t to = flow->edges[e].to;
      if (!flow->edges[e].left || flow->level[to]) continue;
      flow->level[to] = flow->level[node] + 1;
      flow->queue[tail++] = to;
    }
  }
  return flow->level[sink] != 0;
}

/* Pushes what fits along the path of edges, and returns it with the depth of the first edge that is now full in *cut. */
static int64_t push_path(tn__flow *flow, size_t depth, size_t *cut) {
  int64_t amount = TN_FLOW_INFINITE;
  for (size_t i = 0; i < depth; i++)
    if (flow->edges[flow->path[i]].left < amount) amount = flow->edges[flow->path[i]].left;
  for (size_t i = depth; i-- > 0;) {
    flow->edges[flow->path[i]].left -= amount;
    flow->edges[flow->path[i] ^ 1].left += amount;
    if (!flow->edges[flow->path[i]].left) *cut = i;
  }
  return amount;
}

/* One blocking flow: depth-first along rising levels, without recursion; arc[] remembers which edges are spent. */
static int64_t blocking_flow(tn__flow *flow, uint32_t source, uint32_t sink) {
  int64_t total = 0;
  size_t depth = 0;
  memcpy(flow->arc, flow->first, flow->node_count * sizeof *flow->arc);
  for (uint32_t node = source;;) {
    if (node == sink) {
      size_t cut = 0;
      total += push_path(flow, depth, &cut);
      depth = cut;
      node = flow->edges[flow->path[cut] ^ 1].to;
      continue;
    }
    uint32_t e = flow->arc[node];
    while (e != TN_NONE && !(flow->edges[e].left && flow->level[flow->edges[e].to] == flow->level[node] + 1)) e = flow->edges[e].next;
    flow->arc[node] = e;
    if (e != TN_NONE) {
      flow->path[depth++] = e;
      node = flow->edges[e].to;
    } else if (depth) { /* dead end: step back and spend the edge that led here */
      uint32_t back = flow->path[--depth];
      node = flow->edges[back ^ 1].to;
      flow->arc[node] = flow->edges[back].next;
    } else {
      return total;
    }
  }
}

int64_t tn__flow_run(tn__flow *flow, uint32_t source, uint32_t sink) {
  int64_t total = 0;
  for (size_t e = 0; e < flow->edge_count; e++) flow->edges[e].left = flow->edges[e].capacity;
  while (find_levels(flow, source, sink)) total += blocking_flow(flow, source, sink);
  return total;
}

int tn__flow_reaches(const tn__flow *flow, uint32_t node) { return flow->level[node] != 0; }

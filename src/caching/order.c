/* order.c -- blocks in order.  See order.h. */
#include "caching/order.h"

static tn__order_key key_of(const tn__order *order, const tn__block *block) {
  return (tn__order_key){block->stream, order->by_bytes ? block->bytes : 0, block->addr};
}

static int key_before(tn__order_key a, tn__order_key b) {
  if (a.stream != b.stream) return a.stream < b.stream;
  if (a.bytes != b.bytes) return a.bytes < b.bytes;
  return a.addr < b.addr;
}

void tn__order_init(tn__order *order, int by_bytes) { *order = (tn__order){.random = 1, .by_bytes = by_bytes}; }

/* Cuts a tree in two: *low gets what is before key, *high the rest. */
static void tree_cut(const tn__order *order, tn__block *tree, tn__order_key key, tn__block **low, tn__block **high) {
  while (tree) {
    if (key_before(key_of(order, tree), key)) {
      *low = tree;
      low = &tree->right;
      tree = tree->right;
    } else {
      *high = tree;
      high = &tree->left;
      tree = tree->left;
    }
  }
  *low = *high = NULL;
}

/* Joins two trees, all of low before all of high. */
static tn__block *tree_join(tn__block *low, tn__block *high) {
  tn__block *root = NULL, **link = &root;
  while (low && high) {
    if (low->rank >= high->rank) {
      *link = low;
      link = &low->right;
      low = low->right;
    } else {
      *link = high;
      link = &high->left;
      high = high->left;
    }
  }
  *link = low ? low : high;
  return root;
}

void tn__order_insert(tn__order *order, tn__block *block) {
  tn__order_key key = key_of(order, block);
  order->random = order->random * 1664525u + 1013904223u; /* Numerical Recipes' generator; the comparison sees its high bits */
  block->rank = order->random;
  tn__block **link = &order->root;
  while (*link && (*link)->rank >= block->rank) link = key_before(key_of(order, *link), key) ? &(*link)->right : &(*link)->left;
  tree_cut(order, *link, key, &block->left, &block->right);
  *link = block;
  order->count++;
}

void tn__order_remove(tn__order *order, tn__block *block) {
  tn__order_key key = key_of(order, block);
  tn__block **link = &order->root;
  while (*link != block) {
    tn_assert(*link != NULL);
    link = key_before(key_of(order, *link), key) ? &(*link)->right : &(*link)->left;
  }
  *link = tree_join(block->left, block->right);
  block->left = block->right = NULL;
  order->count--;
}

tn__block *tn__order_from(const tn__order *order, tn__order_key key) {
  tn__block *found = NULL;
  for (tn__block *at = order->root; at;) {
    if (key_before(key_of(order, at), key)) {
      at = at->right;
    } else {
      found = at;
      at = at->left;
    }
  }
  return found;
}

tn__block *tn__order_before(const tn__order *order, tn__order_key key) {
  tn__block *found = NULL;
  for (tn__block *at = order->root; at;) {
    if (key_before(key_of(order, at), key)) {
      found = at;
      at = at->right;
    } else {
      at = at->left;
    }
  }
  return found;
}

tn__block *tn__order_first(const tn__order *order) { return tn__order_from(order, (tn__order_key){0, 0, 0}); }

tn__block *tn__order_after(const tn__order *order, const tn__block *block) {
  tn__order_key key = key_of(order, block);
  key.addr++; /* addresses are whole: nothing lies between */
  return tn__order_from(order, key);
}

int tn__order_has(const tn__order *order, const tn__block *block) {
  return tn__order_from(order, key_of(order, block)) == block;
}

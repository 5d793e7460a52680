/* Ensembles of decision trees: rows go down all trees, and the weights of the leaves they reach are added up. */
#ifndef PTIR_TREES_H
#define PTIR_TREES_H
#include "isa.h"
#include "kernels.h"

/* A node is [split, feature, next of yes, next of no]; the answer is yes if the feature of the row is at most the split. A leaf
 * comes after itself. The high bits of the feature change the question. */
enum { PTIR_TREE_EQUAL = 1 << 30, PTIR_TREE_NAN = 1 << 29, PTIR_TREE_FEATURE = PTIR_TREE_NAN - 1 }; /* equal to it; or not a number */

/* All arrays are dense, but rows of x are `row` elements apart. Node i has the entries leaves[2 * i] to leaves[2 * i + 1] of
 * `targets` and `weights`: none if it is no leaf. */
typedef struct {
    const void *x, *nodes, *weights;
    void *out;
    const int32_t *roots, *leaves, *targets;
    size_t rows, trees, features, outputs;
    ptrdiff_t row;
    int kind;  /* PTIR_SUM, PTIR_MAX or PTIR_MIN of the weights of a target; without any it is 0 */
    int asks;  /* some question is changed */
    int whole; /* each leaf has a weight for each target, in order */
} ptir_forest;

void ptir_trees_f32(const ptir_forest *f, ptir_watch *watch);
void ptir_trees_f64(const ptir_forest *f, ptir_watch *watch);
#endif

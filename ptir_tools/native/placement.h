/* Buffer placement for the planner (ptir_tools/plan). `ptir_place` (placement.c) is the exact search of plan/exact.py, step for
 * step; that file explains it. The other functions (fit.c) are heuristics and live ranges. None calls Python. */
#ifndef PTIR_PLACEMENT_H
#define PTIR_PLACEMENT_H
#include <stddef.h>
#include <stdint.h>

/* Buffer i is live in the sections lower[i] .. upper[i] - 1. Buffers are sorted by lower. `rank` is the order in which the search
 * tries them. */
typedef struct {
    size_t count;
    const int64_t *lower, *upper, *size, *rank;
    int64_t capacity;
} ptir_buffers;

enum { PTIR_PLACED = 1, PTIR_IMPOSSIBLE = 0, PTIR_GAVE_UP = -1, PTIR_NO_MEMORY = -2 };

/* Sort live ranges by start, end, size and number, into `order`. Divide time into sections: a section begins where a range starts
 * after another has ended. `first` and `last` are the sections of each sorted range. *bound is the most bytes live at once, *pairs
 * the number of pairs live at once. Returns PTIR_PLACED or PTIR_NO_MEMORY. */
int ptir_sections(const ptir_buffers *ranges, int64_t *order, int64_t *first, int64_t *last, int64_t *bound, int64_t *pairs);

/* Find offsets[i] >= 0 with offsets[i] + size[i] <= capacity, so that buffers that share a section do not overlap. Gives up after
 * `steps` steps, or if the search gets too deep for the stack. *used is the number of steps taken. */
int ptir_place(const ptir_buffers *buffers, int64_t steps, int64_t *offsets, int64_t *used);

/* Place buffers order[done] .. order[until - 1] one by one, each in the lowest gap between the placed buffers that are live with
 * it, or with `tightest` in the smallest gap. The first `done` already have offsets. Returns PTIR_PLACED or PTIR_NO_MEMORY. */
int ptir_fit(const ptir_buffers *buffers, const int64_t *order, size_t done, size_t until, int tightest, int64_t *offsets);

/* Place all buffers in the order of their births, each in the lowest gap. */
int ptir_fit_births(const ptir_buffers *buffers, int64_t *offsets);

/* Fill the lowest valley of the skyline, again and again. The value of a buffer that fits is its `weight`, plus `touch` per side
 * that touches, plus `urgency` times the mean load of its sections. The best buffer is placed; if none fits, the valley is raised.
 * Gives up after `limit` looks. *used is the number of looks. */
int ptir_stack(const ptir_buffers *buffers, const double *weight, double touch, double urgency, int64_t limit, int64_t *offsets,
               int64_t *used);

#endif

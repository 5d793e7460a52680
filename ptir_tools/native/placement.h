/* The search of plan/exact.py, step for step; that file explains it. Never sees Python. */
#ifndef PTIR_PLACEMENT_H
#define PTIR_PLACEMENT_H
#include <stddef.h>
#include <stdint.h>

/* Buffer i lives in the sections lower[i] .. upper[i] - 1; buffers are sorted by lower. `rank` orders what is tried. */
typedef struct {
    size_t count;
    const int64_t *lower, *upper, *size, *rank;
    int64_t capacity;
} ptir_buffers;

enum { PTIR_PLACED = 1, PTIR_IMPOSSIBLE = 0, PTIR_GAVE_UP = -1, PTIR_NO_MEMORY = -2 };

/* The order of ranges of time, by start, end, size and number, and in that order the sections that they cover: one begins where a
 * range starts after another has ended. *bound is the most that lives at once, *pairs how many of two
 * do. Returns PTIR_PLACED or PTIR_NO_MEMORY. */
int ptir_sections(const ptir_buffers *ranges, int64_t *order, int64_t *first, int64_t *last, int64_t *bound, int64_t *pairs);

/* Find offsets[i] >= 0 with offsets[i] + size[i] <= capacity, no two buffers that share a section overlapping. Gives up after
 * so many `steps`, and where the search is too deep for the stack; *used are those taken. */
int ptir_place(const ptir_buffers *buffers, int64_t steps, int64_t *offsets, int64_t *used);

/* Buffers order[done] .. order[until - 1] in turn, each in the lowest gap between those before it that are alive with it, or in
 * the tightest; the first `done` of the order have their offsets. Returns PTIR_PLACED or PTIR_NO_MEMORY. */
int ptir_fit(const ptir_buffers *buffers, const int64_t *order, size_t done, size_t until, int tightest, int64_t *offsets);

/* All buffers in the order in which they begin, each in the lowest gap. */
int ptir_fit_births(const ptir_buffers *buffers, int64_t *offsets);

/* The lowest valley of the skyline again and again: what fits into it has `weight`, `touch` for each side that it touches, and
 * `urgency` for what is alive and lost in its sections; the best is put down, and where none fits the valley is raised. Gives up
 * after so many looks; *used are those taken. */
int ptir_stack(const ptir_buffers *buffers, const double *weight, double touch, double urgency, int64_t limit, int64_t *offsets,
               int64_t *used);

#endif

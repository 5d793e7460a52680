/* Some instructions flush subnormal numbers to 0. These functions decide whether a product of bf16 operands can have any. */
#ifndef PTIR_MAGNITUDES_H
#define PTIR_MAGNITUDES_H
#include "common.h"

/* The least nonzero magnitude of `count` rows of `n` bf16, as bits; `least` if it is smaller. MAGNITUDES if all are 0. */
enum { MAGNITUDES = 0x7fff };
static inline uint16_t least_of(const uint16_t *x, ptrdiff_t step, ptrdiff_t next, size_t count, size_t n, uint16_t least)
{
    if (next != 1 && step == 1) {
        size_t rows = count;
        ptrdiff_t along = step;
        count = n, n = rows, step = next, next = along;
    }
    for (size_t i = 0; i < count; i++, x += step) {
        uint16_t found = UINT16_MAX; /* magnitude - 1: so 0 becomes the largest */
        for (size_t j = 0; next == 1 && j < n; j++) {
            uint16_t below = (uint16_t)((x[j] & MAGNITUDES) - 1);
            found = below < found ? below : found;
        }
        for (size_t j = 0; next != 1 && j < n; j++) {
            uint16_t below = (uint16_t)((x[(ptrdiff_t)j * next] & MAGNITUDES) - 1);
            found = below < found ? below : found;
        }
        least = found < least ? found + 1 : least;
    }
    return least;
}

/* Whether no product of two numbers of at least these magnitudes has a bit below the smallest normal number. */
static inline int is_normal_product(uint16_t a, uint16_t b)
{
    enum { FIRST_BIT = 7, BIAS = 127, LOWEST = -126 };
    int x = a >> FIRST_BIT, y = b >> FIRST_BIT;
    return x && y && x + y - 2 * (BIAS + FIRST_BIT) >= LOWEST;
}
#endif

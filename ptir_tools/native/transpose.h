/* Transposes of small blocks in registers. */
#ifndef PTIR_TRANSPOSE_H
#define PTIR_TRANSPOSE_H
#include "common.h"

enum { SIDE = 8 };

typedef uint32_t words __attribute__((vector_size(32), aligned(1), may_alias)); /* an item is four bytes, or two halves */

/* Transpose 8 x 8 items of four bytes: out[j * stride + i] = from[i][at + j]. */
PTIR_INLINE void transpose8_from(void *to, ptrdiff_t stride, const void *const *from, size_t at)
{
    uint32_t *out = to;
    words a[SIDE], b[SIDE];
    for (int i = 0; i < SIDE; i++)
        a[i] = *(const words *)((const char *)from[i] + 4 * at);
    for (int i = 0; i < SIDE; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < SIDE; i += 4)
        for (int k = 0; k < 2; k++) {
            a[i + 2 * k] = __builtin_shufflevector(b[i + k], b[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[i + 2 * k + 1] = __builtin_shufflevector(b[i + k], b[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        *(words *)(out + i * stride) = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(words *)(out + (i + 4) * stride) = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* The same for rows that are `step` apart. */
PTIR_INLINE void transpose8(void *to, ptrdiff_t stride, const void *data, ptrdiff_t step)
{
    const void *from[SIDE];
    for (int i = 0; i < SIDE; i++)
        from[i] = (const uint32_t *)data + i * step;
    transpose8_from(to, stride, from, 0);
}

/* Transpose four rows of eight items; the result is dense. */
PTIR_INLINE void transpose4(void *to, const void *data, ptrdiff_t step)
{
    uint32_t *out = to;
    words a[4], b[4];
    for (int i = 0; i < 4; i++)
        a[i] = *(const words *)((const uint32_t *)data + i * step);
    for (int i = 0; i < 4; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int k = 0; k < 2; k++) {
        a[2 * k] = __builtin_shufflevector(b[k], b[k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        a[2 * k + 1] = __builtin_shufflevector(b[k], b[k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 2; i++) {
        *(words *)(out + 8 * i) = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11);
        *(words *)(out + 8 * i + 16) = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
#endif

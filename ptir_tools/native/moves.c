#include "common.h"

enum { SIDE = 8, BLOCK = 64 };

typedef uint32_t v8 __attribute__((vector_size(32), aligned(4)));

/* Eight rows of eight, turned. */
PTIR_INLINE void turn8(uint32_t *out, ptrdiff_t stride, const uint32_t *from, ptrdiff_t step)
{
    v8 a[SIDE], b[SIDE];
    for (int i = 0; i < SIDE; i++)
        a[i] = *(const v8 *)(from + i * step);
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
        *(v8 *)(out + i * stride) = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(v8 *)(out + (i + 4) * stride) = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* Blocks that fit the nearest cache on both sides. */
CLONES static void turn(uint32_t *out, ptrdiff_t stride, const uint32_t *from, ptrdiff_t step, size_t m, size_t n)
{
    for (size_t top = 0; top < m; top += BLOCK)
        for (size_t left = 0; left < n; left += SIDE) {
            size_t bottom = smallest(m, top + BLOCK), right = smallest(n, left + SIDE), i = top;
            for (; i + SIDE <= bottom && left + SIDE <= n; i += SIDE)
                turn8(out + (ptrdiff_t)i * stride + left, stride, from + i + (ptrdiff_t)left * step, step);
            for (; i < bottom; i++)
                for (size_t j = left; j < right; j++)
                    out[(ptrdiff_t)i * stride + (ptrdiff_t)j] = from[(ptrdiff_t)i + (ptrdiff_t)j * step];
        }
}

void ptir_turn(ptir_turned to, ptir_turned from, size_t batch, size_t m, size_t n)
{
    for (size_t b = 0; b < batch; b++)
        turn(to.data + (ptrdiff_t)b * to.batch, to.step, from.data + (ptrdiff_t)b * from.batch, from.step, m, n);
}

#include "turn.h"

enum { BLOCK = 64 };

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

/* Copies: stacks of matrices that are turned, and elements of a tile, which are floats while they are in work. */

enum { BLOCK = 64 };

/* Blocks that fit the nearest cache on both sides. */
static void turn(uint32_t *out, ptrdiff_t stride, const uint32_t *from, ptrdiff_t step, size_t m, size_t n)
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

static void turn_stack(ptir_turned to, ptir_turned from, size_t batch, size_t m, size_t n)
{
    for (size_t b = 0; b < batch; b++)
        turn(to.data + (ptrdiff_t)b * to.batch, to.step, from.data + (ptrdiff_t)b * from.batch, from.step, m, n);
}

/* Copies of `n` elements between an array, `step` apart there, and a register. */
#define COPIES(kind, type, widened, narrowed)                                                                          \
    static void load_##kind(float *restrict to, const type *from, ptrdiff_t step, size_t n)                     \
    {                                                                                                                  \
        for (size_t i = 0; step == 1 && i < n; i++)                                                                    \
            to[i] = widened(from[i]);                                                                                  \
        for (size_t i = 0; step != 1 && i < n; i++)                                                                    \
            to[i] = widened(from[(ptrdiff_t)i * step]);                                                                \
    }                                                                                                                  \
    static void store_##kind(type *restrict to, const float *from, size_t n)                                    \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            to[i] = narrowed(from[i]);                                                                                 \
    }
#define SAME(x) (x)
#define IS_SET(x) ((x) != 0.0f)

COPIES(float, float, SAME, SAME)
COPIES(bool, uint8_t, SAME, IS_SET)
COPIES(f16, uint16_t, from_f16, to_f16)
COPIES(bf16, uint16_t, from_bf16, to_bf16)

static void load(float *to, const void *from, ptrdiff_t step, size_t n, int kind)
{
    switch (kind) {
    case PTIR_FLOAT: load_float(to, from, step, n); break;
    case PTIR_BOOL: load_bool(to, from, step, n); break;
    case PTIR_F16: load_f16(to, from, step, n); break;
    case PTIR_BF16: load_bf16(to, from, step, n); break;
    }
}

static void store(void *to, const float *from, size_t n, int kind)
{
    switch (kind) {
    case PTIR_FLOAT: store_float(to, from, n); break;
    case PTIR_BOOL: store_bool(to, from, n); break;
    case PTIR_F16: store_f16(to, from, n); break;
    case PTIR_BF16: store_bf16(to, from, n); break;
    }
}

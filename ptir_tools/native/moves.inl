/* Transposing copies of matrices (`transpose_stack`), and conversions between elements and floats (`load`, `store`). */

enum { BLOCK = 64, TILE = 16 }; /* items per side of a cache block, and of a register tile, whose rows are one cache line */

#if W == 16
typedef uint32_t line __attribute__((vector_size(64), aligned(4), may_alias));

/* Transpose a tile in registers: out[i * stride + j] = from[i + j * step]. */
PTIR_INLINE void transpose_tile(uint32_t *out, ptrdiff_t stride, const uint32_t *from, ptrdiff_t step, int streams)
{
#define MIX __builtin_shufflevector
    line a[TILE], b[TILE];
    for (int i = 0; i < TILE; i++)
        a[i] = *(const line *)(from + i * step);
    for (int i = 0; i < TILE; i += 2) {
        b[i] = MIX(a[i], a[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
        b[i + 1] = MIX(a[i], a[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
    for (int i = 0; i < TILE; i += 4)
        for (int k = 0; k < 2; k++) {
            a[i + 2 * k] = MIX(b[i + k], b[i + k + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
            a[i + 2 * k + 1] = MIX(b[i + k], b[i + k + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
        }
#define EVEN_QUARTERS(a, b) MIX(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define ODD_QUARTERS(a, b) MIX(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
    for (int k = 0; k < 4; k++) {
        line even = EVEN_QUARTERS(a[k], a[k + 4]), other_even = EVEN_QUARTERS(a[k + 8], a[k + 12]);
        line odd = ODD_QUARTERS(a[k], a[k + 4]), other_odd = ODD_QUARTERS(a[k + 8], a[k + 12]);
        b[k] = EVEN_QUARTERS(even, other_even), b[k + 8] = ODD_QUARTERS(even, other_even);
        b[k + 4] = EVEN_QUARTERS(odd, other_odd), b[k + 12] = ODD_QUARTERS(odd, other_odd);
    }
    for (int i = 0; i < TILE; i++)
        if (streams)
            stream((float *)(out + i * stride), (floats)b[i]);
        else
            *(line *)(out + i * stride) = b[i];
#undef MIX
}
#else
PTIR_INLINE void transpose_tile(uint32_t *out, ptrdiff_t stride, const uint32_t *from, ptrdiff_t step, int streams)
{
    uint32_t transposed[TILE * TILE];
    for (int i = 0; i < TILE; i += SIDE)
        for (int j = 0; j < TILE; j += SIDE)
            if (streams)
                transpose8(transposed + i * TILE + j, TILE, from + i + j * step, step);
            else
                transpose8(out + i * stride + j, stride, from + i + j * step, step);
    for (int i = 0; streams && i < TILE; i++)
        for (int j = 0; j < TILE; j += W)
            stream((float *)(out + i * stride + j), *(const floats *)(transposed + i * TILE + j));
}
#endif

/* The rows and columns that are not a whole tile. */
static void transpose_edge(uint32_t *out, ptrdiff_t stride, const uint32_t *from, ptrdiff_t step, size_t m, size_t n)
{
    for (size_t j = 0, across; j < n; j += across) {
        size_t i = 0;
        across = smallest(SIDE, n - j);
        for (; across == SIDE && i + SIDE <= m; i += SIDE)
            transpose8(out + (ptrdiff_t)i * stride + j, stride, from + i + (ptrdiff_t)j * step, step);
        for (; i < m; i++)
            for (size_t k = j; k < j + across; k++)
                out[(ptrdiff_t)i * stride + (ptrdiff_t)k] = from[(ptrdiff_t)i + (ptrdiff_t)k * step];
    }
}

/* Blocks that fit in the level-1 cache on both sides, read sequentially. */
PTIR_INLINE void transpose_blocks(uint32_t *out, ptrdiff_t stride, const uint32_t *from, ptrdiff_t step, size_t m, size_t n, int streams)
{
    size_t tall = m / TILE * TILE, wide = n / TILE * TILE;
    for (size_t left = 0; left < wide; left += BLOCK)
        for (size_t top = 0; top < tall; top += BLOCK)
            for (size_t j = left; j < smallest(wide, left + BLOCK); j += TILE)
                for (size_t i = top; i < smallest(tall, top + BLOCK); i += TILE)
                    transpose_tile(out + (ptrdiff_t)i * stride + j, stride, from + i + (ptrdiff_t)j * step, step, streams);
    transpose_edge(out + wide, stride, from + (ptrdiff_t)wide * step, step, tall, n - wide);
    transpose_edge(out + (ptrdiff_t)tall * stride, stride, from + tall, step, m - tall, n);
}

/* Fewer than SIDE dense columns, as the channels of an image: whole vectors are stored, of which the next store overwrites the
 * rest. Returns the rows that are done. */
static size_t transpose_few(uint32_t *out, const uint32_t *from, ptrdiff_t step, size_t m, size_t n)
{
    size_t i = 0;
    const void *columns[SIDE];
    uint32_t rows[SIDE * SIDE];
    for (; (i + SIDE - 1) * n + SIDE <= m * n; i += SIDE) {
        for (size_t k = 0; k < SIDE; k++)
            columns[k] = from + i + (ptrdiff_t)smallest(k, n - 1) * step;
        transpose8_from(rows, SIDE, columns, 0);
        for (size_t k = 0; k < SIDE; k++) /* in this order */
            *(words *)(out + (i + k) * n) = *(const words *)(rows + k * SIDE);
    }
    return i;
}

static void transpose(uint32_t *out, ptrdiff_t stride, const uint32_t *from, ptrdiff_t step, size_t m, size_t n, int streams)
{
    if (streams && (uintptr_t)out % 64 == 0 && stride % 16 == 0)
        transpose_blocks(out, stride, from, step, m, n, 1);
    else
        transpose_blocks(out, stride, from, step, m, n, 0);
}

static void transpose_stack(ptir_transposed to, ptir_transposed from, size_t batch, size_t m, size_t n, int streams)
{
    for (size_t b = 0; b < batch; b++) {
        uint32_t *out = to.data + (ptrdiff_t)b * to.batch;
        const uint32_t *x = from.data + (ptrdiff_t)b * from.batch;
        const size_t done = n < SIDE && to.step == (ptrdiff_t)n ? transpose_few(out, x, from.step, m, n) : 0;
        transpose(out + done * n, to.step, x + done, from.step, m - done, n, streams);
    }
    store_fence();
}

/* Convert `n` elements: from an array with stride `step` to floats, and back to contiguous elements. */
#define COPIES(kind, type, widened, narrowed)                                                                          \
    static void load_##kind(float *restrict to, const type *from, ptrdiff_t step, size_t n)                            \
    {                                                                                                                  \
        for (size_t i = 0; step == 1 && i < n; i++)                                                                    \
            to[i] = widened(from[i]);                                                                                  \
        for (size_t i = 0; step != 1 && i < n; i++)                                                                    \
            to[i] = widened(from[(ptrdiff_t)i * step]);                                                                \
    }                                                                                                                  \
    static void store_##kind(type *restrict to, const float *from, size_t n)                                           \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            to[i] = narrowed(from[i]);                                                                                 \
    }
#define SAME(x) (x)
#define IS_SET(x) ((x) != 0.0f)

COPIES(float, float, SAME, SAME)
COPIES(bool, uint8_t, SAME, IS_SET)
COPIES(bf16, uint16_t, from_bf16, to_bf16)
COPIES(si8, int8_t, SAME, (int8_t)(int32_t))
COPIES(ui8, uint8_t, SAME, (uint8_t)(int32_t))
COPIES(si32, int32_t, (float), (int32_t))

static void load_f16(float *to, const uint16_t *from, ptrdiff_t step, size_t n)
{
    size_t i = 0;
    for (; step == 1 && i + W <= n; i += W)
        put(to + i, read_f16(from + i));
    for (; i < n; i++)
        to[i] = from_f16(from[(ptrdiff_t)i * step]);
}

static void store_f16(uint16_t *to, const float *from, size_t n)
{
    size_t i = 0;
    for (; i + W <= n; i += W)
        write_f16(to + i, VECTOR(from + i, 0));
    for (; i < n; i++)
        to[i] = to_f16(from[i]);
}

static void load(float *to, const void *from, ptrdiff_t step, size_t n, int kind)
{
    switch (kind) {
    case PTIR_FLOAT: load_float(to, from, step, n); break;
    case PTIR_BOOL: load_bool(to, from, step, n); break;
    case PTIR_F16: load_f16(to, from, step, n); break;
    case PTIR_BF16: load_bf16(to, from, step, n); break;
    case PTIR_SI8: load_si8(to, from, step, n); break;
    case PTIR_UI8: load_ui8(to, from, step, n); break;
    case PTIR_SI32: load_si32(to, from, step, n); break;
    }
}

static void store(void *to, const float *from, size_t n, int kind)
{
    switch (kind) {
    case PTIR_FLOAT: store_float(to, from, n); break;
    case PTIR_BOOL: store_bool(to, from, n); break;
    case PTIR_F16: store_f16(to, from, n); break;
    case PTIR_BF16: store_bf16(to, from, n); break;
    case PTIR_SI8: store_si8(to, from, n); break;
    case PTIR_UI8: store_ui8(to, from, n); break;
    case PTIR_SI32: store_si32(to, from, n); break;
    }
}

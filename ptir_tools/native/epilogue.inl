/* Epilogues: elementwise steps on a block of a result, done while the block is in registers or in the level-1 cache. Used by the
 * f32 products, convolutions and depthwise windows. */

/* Load and store the first `some` floats of a vector, 0 < some < W. Memory beyond them is not accessed. */
#if PTIR_X86 && W == 16
PTIR_INLINE floats load_tail(const float *from, size_t some)
{
    return (floats)_mm512_maskz_loadu_ps((__mmask16)((1u << some) - 1), from);
}
PTIR_INLINE void store_tail(float *to, floats v, size_t some) { _mm512_mask_storeu_ps(to, (__mmask16)((1u << some) - 1), (__m512)v); }
#elif PTIR_X86 && W == 8
PTIR_INLINE __m256i first_ones(size_t some)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)some), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
PTIR_INLINE floats load_tail(const float *from, size_t some) { return (floats)_mm256_maskload_ps(from, first_ones(some)); }
PTIR_INLINE void store_tail(float *to, floats v, size_t some) { _mm256_maskstore_ps(to, first_ones(some), (__m256)v); }
#else
PTIR_INLINE floats load_tail(const float *from, size_t some)
{
    floats v = {0};
    memcpy(&v, from, some * sizeof *from);
    return v;
}
PTIR_INLINE void store_tail(float *to, floats v, size_t some) { memcpy(to, &v, some * sizeof *to); }
#endif

/* Copy `rows` rows of up to NR columns; the rows are `stride` apart in `to` and `step` apart in `from`. */
PTIR_INLINE void copy_rows(float *to, size_t stride, const float *from, size_t step, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++, to += stride, from += step) {
        size_t j = 0;
        for (; j + W <= columns; j += W)
            put(to + j, VECTOR(from + j, 0));
        if (j < columns)
            store_tail(to + j, load_tail(from + j, columns - j), columns - j);
    }
}

/* One step on one row: the operand has an element per column, or one element for the row. */
#define ALONG(value, operand, last_operand)                                                                            \
    {                                                                                                                  \
        size_t j = 0;                                                                                                  \
        for (; j + W <= columns; j += W) {                                                                             \
            floats x = VECTOR(to + j, 0), y = operand;                                                                 \
            put(to + j, value);                                                                                        \
        }                                                                                                              \
        if (j < columns) {                                                                                             \
            floats x = load_tail(to + j, columns - j), y = last_operand;                                               \
            store_tail(to + j, value, columns - j);                                                                    \
        }                                                                                                              \
    }
#define STEP(name, value)                                                                                              \
    case PTIR_##name:                                                                                                  \
        for (size_t i = 0; i < rows; i++) {                                                                            \
            float *to = out + i * stride;                                                                              \
            const float *at = from + (ptrdiff_t)i * e->steps[s].rows;                                                  \
            if (e->steps[s].columns)                                                                                   \
                ALONG(value, VECTOR(at + j, 0), load_tail(at + j, columns - j))                                        \
            else                                                                                                       \
                ALONG(value, all(*at), all(*at))                                                                       \
        }                                                                                                              \
        break;

/* A fused pass does the steps that are most frequent at once: one or two sums with rows, then a maximum and a minimum with one
 * number. Missing steps are sums with -0 and bounds at infinity, which change nothing. */
typedef struct {
    const float *from[2];
    ptrdiff_t rows[2];
    size_t moves[2]; /* mask of the column index: all ones, or 0 if this sum is missing */
    float low, high; /* neither NaN nor -0.0 */
    int is_bounded;
} fused_pass;

/* Whether the operand of step s is one number that is neither NaN nor -0.0. */
PTIR_INLINE int is_bound(const ptir_epilogue *e, size_t s)
{
    const float bound = *e->steps[s].data;
    return !e->steps[s].rows && !e->steps[s].columns && bound == bound && !(bound == 0.0f && signbit(bound));
}

/* Build the fused pass that begins at step s of `e`. Returns how many steps it covers. */
PTIR_INLINE size_t fused_steps(fused_pass *p, const ptir_epilogue *e, size_t s, size_t row, size_t column)
{
    static const float nothing[W] = {[0 ... W - 1] = -0.0f};
    size_t first = s;
    *p = (fused_pass){{nothing, nothing}, {0, 0}, {0, 0}, -INFINITY, INFINITY, 0};
    for (int k = 0; k < 2 && s < e->count && e->steps[s].op == PTIR_add && e->steps[s].columns; k++, s++) {
        p->from[k] = e->steps[s].data + (ptrdiff_t)row * e->steps[s].rows + (ptrdiff_t)column;
        p->rows[k] = e->steps[s].rows, p->moves[k] = ~(size_t)0;
    }
    if (s < e->count && e->steps[s].op == PTIR_maximum && is_bound(e, s))
        p->low = *e->steps[s++].data, p->is_bounded = 1;
    if (s < e->count && e->steps[s].op == PTIR_minimum && is_bound(e, s))
        p->high = *e->steps[s++].data, p->is_bounded = 1;
    return s - first;
}

PTIR_INLINE void run_fused(float *out, size_t stride, const fused_pass *p, size_t rows, size_t columns)
{
    const floats low = all(p->low), high = all(p->high);
#define FUSED(x, y, z) clamped((x) + (y) + (z), low, high)
    for (size_t i = 0; i < rows; i++, out += stride) {
        const float *one = p->from[0] + (ptrdiff_t)i * p->rows[0], *other = p->from[1] + (ptrdiff_t)i * p->rows[1];
        size_t j = 0;
        for (; j + W <= columns; j += W)
            put(out + j, FUSED(VECTOR(out + j, 0), VECTOR(one + (j & p->moves[0]), 0), VECTOR(other + (j & p->moves[1]), 0)));
        if (j < columns) {
            size_t n = columns - j;
            store_tail(out + j, FUSED(load_tail(out + j, n), load_tail(one + (j & p->moves[0]), n), load_tail(other + (j & p->moves[1]), n)), n);
        }
    }
#undef FUSED
}

/* Whether one fused pass covers the whole epilogue. Then it is applied before a block leaves the registers. The pass is for row 0
 * and column 0. */
PTIR_INLINE int is_fused(fused_pass *p, const ptir_epilogue *e) { return e && e->count && fused_steps(p, e, 0, 0, 0) == e->count; }

/* The same pass, for the block at (row, column). */
PTIR_INLINE fused_pass fused_from(const fused_pass *p, size_t row, size_t column)
{
    fused_pass made = *p;
    for (int k = 0; k < 2; k++)
        made.from[k] += (ptrdiff_t)row * p->rows[k] + (ptrdiff_t)(column & p->moves[k]);
    return made;
}

/* Apply the pass to one vector: row i, columns from j on. */
PTIR_INLINE floats apply_fused(floats x, const fused_pass *p, size_t i, size_t j)
{
    UNROLLED
    for (int k = 0; k < 2; k++)
        if (p->moves[k])
            x += VECTOR(p->from[k] + (ptrdiff_t)i * p->rows[k] + j, 0);
    return p->is_bounded ? clamped(x, all(p->low), all(p->high)) : x;
}

/* Apply the pass to a register block of `rows` x `vectors` vectors that begins at row 0 and column j. Rows of `sum` are `across`
 * vectors apart. */
PTIR_INLINE void finish_sums(floats *sum, int across, int rows, int vectors, const fused_pass *p, size_t j)
{
    UNROLLED
    for (int k = 0; k < 2; k++) {
        const float *from = p->from[k] + j;
        const ptrdiff_t step = p->rows[k];
        if (p->moves[k])
            UNROLLED_WIDE
            for (int i = 0; i < rows; i++)
                UNROLLED
                for (int v = 0; v < vectors; v++)
                    sum[i * across + v] += VECTOR(from + i * step + v * W, 0);
    }
    if (p->is_bounded) {
        const floats low = all(p->low), high = all(p->high);
        UNROLLED_WIDE
        for (int i = 0; i < rows; i++)
            UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[i * across + v] = clamped(sum[i * across + v], low, high);
    }
}

/* Apply `e` to a block in memory, whose first element is (row, column) of the result. Rows of `out` are `stride` apart. */
static void finish_block(float *out, size_t stride, const ptir_epilogue *e, size_t row, size_t column, size_t rows, size_t columns)
{
    for (size_t s = 0, done; s < e->count; s += done) {
        const float *from = e->steps[s].data + (ptrdiff_t)row * e->steps[s].rows + (ptrdiff_t)column * e->steps[s].columns;
        fused_pass pass;
        if ((done = fused_steps(&pass, e, s, row, column))) {
            run_fused(out, stride, &pass, rows, columns);
            continue;
        }
        done = 1;
        switch (e->steps[s].op) {
            STEP(add, x + y)
            STEP(sub, x - y)
            STEP(mul, x * y)
            STEP(div, x / y)
            STEP(maximum, larger(x, y))
            STEP(minimum, smaller(x, y))
        }
    }
}
#undef STEP
#undef ALONG

/* Prefetch the block that will be written, and the rows of the epilogue's operands for it. */
PTIR_INLINE void prefetch_block(const float *out, size_t stride, const ptir_epilogue *e, size_t row, size_t column, size_t rows,
                             size_t columns)
{
    prefetch_lines(out, stride, rows, columns);
    for (size_t s = 0; e && s < e->count; s++) {
        const float *from = e->steps[s].data + (ptrdiff_t)row * e->steps[s].rows + (ptrdiff_t)column;
        for (size_t i = 0; e->steps[s].columns && e->steps[s].rows && i < rows; i++, from += e->steps[s].rows)
            for (size_t j = 0; j < columns; j += LINE)
                ptir_prefetch(from + j);
    }
}

/* The epilogue for a result that begins at column `first`. */
static ptir_epilogue epilogue_from(const ptir_epilogue *e, size_t first)
{
    ptir_epilogue made = *e;
    for (size_t s = 0; s < made.count; s++)
        made.steps[s].data += (ptrdiff_t)first * made.steps[s].columns;
    return made;
}

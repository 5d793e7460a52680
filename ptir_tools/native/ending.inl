/* What is done to a result while it is in the nearest cache. */

/* The first `some` elements of a vector, at least one and not all; what is beyond is not touched. */
#if PTIR_X86 && W == 16
PTIR_INLINE floats some_of(const float *from, size_t some)
{
    return (floats)_mm512_maskz_loadu_ps((__mmask16)((1u << some) - 1), from);
}
PTIR_INLINE void put_some(float *to, floats v, size_t some) { _mm512_mask_storeu_ps(to, (__mmask16)((1u << some) - 1), (__m512)v); }
#elif PTIR_X86 && W == 8
PTIR_INLINE __m256i first_ones(size_t some)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)some), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
PTIR_INLINE floats some_of(const float *from, size_t some) { return (floats)_mm256_maskload_ps(from, first_ones(some)); }
PTIR_INLINE void put_some(float *to, floats v, size_t some) { _mm256_maskstore_ps(to, first_ones(some), (__m256)v); }
#else
PTIR_INLINE floats some_of(const float *from, size_t some)
{
    floats v = {0};
    memcpy(&v, from, some * sizeof *from);
    return v;
}
PTIR_INLINE void put_some(float *to, floats v, size_t some) { memcpy(to, &v, some * sizeof *to); }
#endif

/* Copy rows of up to NR columns, which are `stride` and `step` apart. */
PTIR_INLINE void copy_rows(float *to, size_t stride, const float *from, size_t step, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++, to += stride, from += step) {
        size_t j = 0;
        for (; j + W <= columns; j += W)
            put(to + j, VECTOR(from + j, 0));
        if (j < columns)
            put_some(to + j, some_of(from + j, columns - j), columns - j);
    }
}

/* One step on a row: with an operand that goes along, or with one element of it. */
#define ALONG(value, operand, last_operand)                                                                            \
    {                                                                                                                  \
        size_t j = 0;                                                                                                  \
        for (; j + W <= columns; j += W) {                                                                             \
            floats x = VECTOR(to + j, 0), y = operand;                                                                 \
            put(to + j, value);                                                                                        \
        }                                                                                                              \
        if (j < columns) {                                                                                             \
            floats x = some_of(to + j, columns - j), y = last_operand;                                                 \
            put_some(to + j, value, columns - j);                                                                      \
        }                                                                                                              \
    }
#define STEP(name, value)                                                                                              \
    case PTIR_##name:                                                                                                  \
        for (size_t i = 0; i < rows; i++) {                                                                            \
            float *to = out + i * stride;                                                                              \
            const float *at = from + (ptrdiff_t)i * e->steps[s].rows;                                                  \
            if (e->steps[s].columns)                                                                                   \
                ALONG(value, VECTOR(at + j, 0), some_of(at + j, columns - j))                                          \
            else                                                                                                       \
                ALONG(value, all(*at), all(*at))                                                                       \
        }                                                                                                              \
        break;

/* Steps that come often, in one pass: sums with one or two rows, then a maximum and a minimum with one element. Sums with -0 and
 * extremes with infinities change nothing. */
typedef struct {
    const float *from[2];
    ptrdiff_t rows[2];
    size_t moves[2]; /* all bits set, or none: the operand is nothing */
    float low, high; /* neither NaN nor -0.0 */
    int is_bounded;
} usual_pass;

/* Whether step s has one element for all, neither NaN nor -0.0. */
PTIR_INLINE int is_bound(const ptir_ending *e, size_t s)
{
    const float bound = *e->steps[s].data;
    return !e->steps[s].rows && !e->steps[s].columns && bound == bound && !(bound == 0.0f && signbit(bound));
}

/* The pass that begins at step s of `e`; how many steps it does. */
PTIR_INLINE size_t usual_steps(usual_pass *p, const ptir_ending *e, size_t s, size_t row, size_t column)
{
    static const float nothing[W] = {[0 ... W - 1] = -0.0f};
    size_t first = s;
    *p = (usual_pass){{nothing, nothing}, {0, 0}, {0, 0}, -INFINITY, INFINITY, 0};
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

PTIR_INLINE void run_usual(float *out, size_t stride, const usual_pass *p, size_t rows, size_t columns)
{
    const floats low = all(p->low), high = all(p->high);
#define USUAL(x, y, z) clamped((x) + (y) + (z), low, high)
    for (size_t i = 0; i < rows; i++, out += stride) {
        const float *one = p->from[0] + (ptrdiff_t)i * p->rows[0], *other = p->from[1] + (ptrdiff_t)i * p->rows[1];
        size_t j = 0;
        for (; j + W <= columns; j += W)
            put(out + j, USUAL(VECTOR(out + j, 0), VECTOR(one + (j & p->moves[0]), 0), VECTOR(other + (j & p->moves[1]), 0)));
        if (j < columns) {
            size_t n = columns - j;
            put_some(out + j, USUAL(some_of(out + j, n), some_of(one + (j & p->moves[0]), n), some_of(other + (j & p->moves[1]), n)), n);
        }
    }
#undef USUAL
}

/* Whether all of an ending is one such pass, which begins at row 0 and column 0. Such a one is done before a block leaves the registers. */
PTIR_INLINE int is_usual(usual_pass *p, const ptir_ending *e) { return e && e->count && usual_steps(p, e, 0, 0, 0) == e->count; }

/* That pass from (row, column) on. */
PTIR_INLINE usual_pass usual_from(const usual_pass *p, size_t row, size_t column)
{
    usual_pass made = *p;
    for (int k = 0; k < 2; k++)
        made.from[k] += (ptrdiff_t)row * p->rows[k] + (ptrdiff_t)(column & p->moves[k]);
    return made;
}

/* It, on a vector of row i and of the columns from j on. */
PTIR_INLINE floats done_usual(floats x, const usual_pass *p, size_t i, size_t j)
{
    UNROLLED
    for (int k = 0; k < 2; k++)
        if (p->moves[k])
            x += VECTOR(p->from[k] + (ptrdiff_t)i * p->rows[k] + j, 0);
    return p->is_bounded ? clamped(x, all(p->low), all(p->high)) : x;
}

/* It, on a block of `rows` times `vectors` vectors, of which the first is at row 0 and column j; in memory rows are `across` vectors
 * apart. */
PTIR_INLINE void finish_sums(floats *sum, int across, int rows, int vectors, const usual_pass *p, size_t j)
{
    UNROLLED
    for (int k = 0; k < 2; k++) {
        const float *from = p->from[k] + j;
        const ptrdiff_t step = p->rows[k];
        if (p->moves[k])
            UNROLLED
            for (int i = 0; i < rows; i++)
                UNROLLED
                for (int v = 0; v < vectors; v++)
                    sum[i * across + v] += VECTOR(from + i * step + v * W, 0);
    }
    if (p->is_bounded) {
        const floats low = all(p->low), high = all(p->high);
        UNROLLED
        for (int i = 0; i < rows; i++)
            UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[i * across + v] = clamped(sum[i * across + v], low, high);
    }
}

/* Do `e` to rows and columns of a result, from (row, column) of it on; its rows are `stride` apart. */
static void finish_block(float *out, size_t stride, const ptir_ending *e, size_t row, size_t column, size_t rows, size_t columns)
{
    for (size_t s = 0, done; s < e->count; s += done) {
        const float *from = e->steps[s].data + (ptrdiff_t)row * e->steps[s].rows + (ptrdiff_t)column * e->steps[s].columns;
        usual_pass pass;
        if ((done = usual_steps(&pass, e, s, row, column))) {
            run_usual(out, stride, &pass, rows, columns);
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

/* Fetch what a block will be written to, and the operands of `ending` for it. */
PTIR_INLINE void fetch_block(const float *out, size_t stride, const ptir_ending *e, size_t row, size_t column, size_t rows,
                             size_t columns)
{
    fetch_lines(out, stride, rows, columns);
    for (size_t s = 0; e && s < e->count; s++) {
        const float *from = e->steps[s].data + (ptrdiff_t)row * e->steps[s].rows + (ptrdiff_t)column;
        for (size_t i = 0; e->steps[s].columns && e->steps[s].rows && i < rows; i++, from += e->steps[s].rows)
            for (size_t j = 0; j < columns; j += LINE)
                ptir_fetch(from + j);
    }
}

/* What `e` does to the columns from `first` on. */
static ptir_ending ending_from(const ptir_ending *e, size_t first)
{
    ptir_ending made = *e;
    for (size_t s = 0; s < made.count; s++)
        made.steps[s].data += (ptrdiff_t)first * made.steps[s].columns;
    return made;
}

/* Loops for the frequent phases of phases.h. They give the same bits as the interpreter (chain.inl), for whole blocks of LANES
 * columns. */

#define VECTOR(p, k) (*(const floats *)((p) + W * (k)))

PTIR_INLINE float identity(unsigned op) { return op == PTIR_reduce_sum ? 0.0f : op == PTIR_reduce_max ? -INFINITY : INFINITY; }

PTIR_INLINE floats combine(unsigned op, floats a, floats b)
{
    if (op == PTIR_reduce_sum)
        return a + b;
    return op == PTIR_reduce_max ? larger(a, b) : smaller(a, b);
}

/* For every block of `columns`: evaluate `value` at each column i; with `op`, reduce it. */
#define BLOCKS(op, sums, value)                                                                                        \
    {                                                                                                                  \
        floats *to = (floats *)(sums), s[SUMS / W];                                                                    \
        for (int k = 0; k < SUMS / W; k++)                                                                             \
            s[k] = to[k];                                                                                              \
        for (size_t at = 0; at < columns; at += LANES)                                                                 \
            for (int k = 0; k < SUMS / W; k++)                                                                         \
                HALVES(op, s[k], at + k * W, value)                                                                    \
        for (int k = 0; k < SUMS / W; k++)                                                                             \
            to[k] = s[k];                                                                                              \
    }
#define HALVES(op, s, first, value)                                                                                    \
    {                                                                                                                  \
        size_t i = first;                                                                                              \
        floats low = (value);                                                                                          \
        i += SUMS;                                                                                                     \
        floats high = (value);                                                                                         \
        s = combine(op, s, combine(op, low, high));                                                                    \
    }

/* Load a vector and prefetch the one `ahead`. */
PTIR_INLINE floats load_prefetching(const float *x, ptrdiff_t ahead)
{
    ptir_prefetch(x + ahead);
    return VECTOR(x, 0);
}

/* Whether software prefetch of sequential rows costs time on this processor. It does on AMD: a product of one row reads 41 GB/s
 * without and 35 GB/s with it, for every size of matrix. */
PTIR_INLINE int prefetch_slows(void)
{
#if PTIR_X86 && defined(__GNUC__)
    return __builtin_cpu_is("amd") != 0;
#else
    return 0;
#endif
}

/* Prefetch distance of reductions: a page, which reaches into the next rows, because a reduction waits at the end of each row. */
PTIR_INLINE ptrdiff_t page_ahead(void)
{
    enum { PAGE = 1024 }; /* floats */
    return prefetch_slows() ? 0 : PAGE;
}

PTIR_INLINE void quick_reduce(unsigned op, float *sums, const float *x, ptrdiff_t ahead, size_t columns)
{
    if (ahead)
        BLOCKS(op, sums, load_prefetching(x + i, ahead))
    else
        BLOCKS(op, sums, VECTOR(x + i, 0))
}

/* Without prefetch: softmax begins with this, and its exp has prefetched the row (`quick_exp`). */
PTIR_INLINE void quick_largest(float *sums, const float *x, size_t columns) BLOCKS(PTIR_reduce_max, sums, VECTOR(x + i, 0))

PTIR_INLINE floats square(floats x) { return rounded(x * x); }
PTIR_INLINE floats put(float *to, floats x) { return *(floats *)to = x; }

/* Non-temporal store of a vector; `to` has to be aligned. */
#if PTIR_X86 && W == 16
PTIR_INLINE void stream(float *to, floats x) { _mm512_stream_ps(to, (__m512)x); }
#elif PTIR_X86 && W == 8
PTIR_INLINE void stream(float *to, floats x) { _mm256_stream_ps(to, (__m256)x); }
#elif PTIR_X86
PTIR_INLINE void stream(float *to, floats x) { _mm_stream_ps(to, (__m128)x); }
#else
PTIR_INLINE void stream(float *to, floats x) { put(to, x); }
#endif
PTIR_INLINE int is_streamed(const ptir_operand *x) { return x->streams && (uintptr_t)x->at % (4 * W) == 0; }

PTIR_INLINE void quick_squares(float *sums, const float *x, size_t columns)
    BLOCKS(PTIR_reduce_sum, sums, square(VECTOR(x + i, 0)))

PTIR_INLINE void quick_deviation(float *sums, float *out, const float *x, float y, size_t columns)
    BLOCKS(PTIR_reduce_sum, sums, square(put(out + i, VECTOR(x + i, 0) - y)))

/* exp of x - y and its sum. The elements `ahead`, in the next rows, are prefetched. */
#if HAS_SCALING
PTIR_INLINE void quick_exp(float *sums, float *out, const float *x, float y, ptrdiff_t ahead, size_t columns)
    BLOCKS(PTIR_reduce_sum, sums, put(out + i, any_exp(load_prefetching(x + i, ahead) - y)))
#else
/* Per block: if all arguments are near 0 use the fast exp, else the one for any argument. */
PTIR_INLINE void quick_exp(float *sums, float *out, const float *x, float y, ptrdiff_t ahead, size_t all_columns)
{
    const size_t columns = LANES;
    for (size_t done = 0; done < all_columns; done += LANES, x += LANES, out += LANES) {
        ints near = is_near(VECTOR(x, 0) - y);
        for (size_t i = 0; i < LANES; i += LINE)
            ptir_prefetch(x + ahead + i);
        for (size_t i = W; i < LANES; i += W)
            near &= is_near(VECTOR(x + i, 0) - y);
        if (is_any(~near))
            BLOCKS(PTIR_reduce_sum, sums, put(out + i, any_exp(VECTOR(x + i, 0) - y)))
        else
            BLOCKS(PTIR_reduce_sum, sums, put(out + i, near_exp(VECTOR(x + i, 0) - y)))
    }
}

#endif

/* Load W floats. A loop with non-temporal stores takes half as long again if its loads cross cache lines. So they are loaded in
 * halves, of which only every other one crosses. */
PTIR_INLINE floats in_halves(const float *p, int streams)
{
#if PTIR_X86 && W == 16
    if (streams)
        return (floats)_mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(p + 8), 1);
#else
    (void)streams;
#endif
    return VECTOR(p, 0);
}

/* Elementwise: `value` of x for every vector. */
#define EVERY(name, value, ...)                                                                                        \
    PTIR_INLINE void name(const ptir_operand *to, const float *from, size_t columns, __VA_ARGS__)                      \
    {                                                                                                                  \
        float *out = to->at;                                                                                           \
        if (is_streamed(to)) {                                                                                         \
            enum { STREAMS = 1 };                                                                                      \
            for (size_t i = 0; i < columns; i += W) {                                                                  \
                floats x = in_halves(from + i, STREAMS), y = (value);                                                  \
                stream(out + i, y);                                                                                    \
            }                                                                                                          \
        } else {                                                                                                       \
            enum { STREAMS = 0 };                                                                                      \
            for (size_t i = 0; i < columns; i += W) {                                                                  \
                floats x = in_halves(from + i, STREAMS), y = (value);                                                  \
                put(out + i, y);                                                                                       \
            }                                                                                                          \
        }                                                                                                              \
    }

EVERY(quick_added, x + in_halves(other + i, STREAMS), const float *other)
EVERY(quick_less, x - in_halves(other + i, STREAMS), const float *other)
EVERY(quick_times, x * in_halves(other + i, STREAMS), const float *other)
EVERY(divided, x / r, float r)
#if HAS_SCALING
/* Whether `quotient` divides a block. */
PTIR_INLINE int are_safe_dividends(const float *x)
{
    const __m512i least = _mm512_set1_epi32(0x21800000); /* 2^-60; the largest is 2^60 */
    __m512i far = _mm512_setzero_si512();
    for (int i = 0; i < LANES; i += W)
        far = _mm512_max_epu32(far, _mm512_sub_epi32((__m512i)VECTOR(x + i, 0), least));
    return !_mm512_cmpgt_epu32_mask(far, _mm512_set1_epi32(120 << EXPONENT));
}

PTIR_INLINE void quick_divided(const ptir_operand *to, const float *from, size_t columns, float r)
{
    const float inverse = 1.0f / r, rest = (float)(1.0 / (double)r - (double)inverse);
    const int streams = is_streamed(to);
    ptir_operand block = *to;
    if (!has_safe_inverse(r)) {
        divided(to, from, columns, r);
        return;
    }
    for (size_t at = 0; at < columns; at += LANES) {
        float *out = to->at + at;
        const float *x = from + at;
        if (__builtin_expect(!are_safe_dividends(x), 0)) {
            block.at = out;
            divided(&block, x, LANES, r);
        } else {
            for (int i = 0; i < LANES; i += W) {
                floats y = quotient(VECTOR(x + i, 0), r, inverse, rest);
                if (streams)
                    stream(out + i, y);
                else
                    put(out + i, y);
            }
        }
    }
}
#else
#define quick_divided divided
#endif
EVERY(quick_at_least, larger(x, all(r)), float r)
EVERY(quick_scaled, rounded(x * r) * VECTOR(g + i, 0), float r, const float *g)
EVERY(quick_scaled_shifted, rounded(rounded(x * r) * VECTOR(g + i, 0)) + VECTOR(c + i, 0), float r, const float *g, const float *c)
EVERY(quick_erf_gelu, rounded(x * half) * (quick_erf(rounded(x * k)) + one), float k, float one, float half)
EVERY(quick_tanh_gelu,
      rounded(x * half) * (quick_tanh(rounded((rounded(rounded(square(x) * x) * c) + x) * k)) + one),
      float c, float k, float one, float half)

#define GATE(x) smaller(larger(x, all(low)), all(high))
EVERY(quick_sigmoid, 1.0f / (any_exp(-x) + one), float one)
EVERY(quick_silu, 1.0f / (any_exp(-x) + one) * x, float one)
EVERY(quick_hard_swish, rounded(GATE(x + more) * x) / whole, float more, float low, float high, float whole)
EVERY(quick_hard_swish_shifted, rounded(rounded(GATE(x + more) * x) / whole * scale) + shift,
      float more, float low, float high, float whole, float scale, float shift)
EVERY(quick_hard_gate, GATE(x / whole + more) * x, float whole, float more, float low, float high)
EVERY(quick_hard_gate_shifted, rounded(rounded(GATE(x / whole + more) * x) * scale) + shift,
      float whole, float more, float low, float high, float scale, float shift)
#undef GATE

/* Run a known phase on columns [0, columns) of a row, a multiple of LANES. The phase processes `rows` rows. */
PTIR_INLINE void run_known(int known, const ptir_ready *in, size_t rows, size_t columns)
{
#define ROW_OF(k) in[k].first.at
#define FLOAT_OF(k) *in[k].first.at
#define SUMS_OF(k) in[k].second.at
    switch (known) {
    case ADDED: quick_added(&in[2].first, ROW_OF(0), columns, ROW_OF(1)); break;
    case LESS: quick_less(&in[2].first, ROW_OF(0), columns, ROW_OF(1)); break;
    case TIMES: quick_times(&in[2].first, ROW_OF(0), columns, ROW_OF(1)); break;
    case SUM: quick_reduce(PTIR_reduce_sum, SUMS_OF(1), ROW_OF(0), page_ahead(), columns); break;
    case MAX: quick_largest(SUMS_OF(1), ROW_OF(0), columns); break;
    case MIN: quick_reduce(PTIR_reduce_min, SUMS_OF(1), ROW_OF(0), page_ahead(), columns); break;
    case SQUARES: quick_squares(SUMS_OF(2), ROW_OF(0), columns); break;
    case DEVIATION: quick_deviation(SUMS_OF(4), ROW_OF(2), ROW_OF(0), FLOAT_OF(1), columns); break;
    case EXP: quick_exp(SUMS_OF(4), ROW_OF(3), ROW_OF(0), FLOAT_OF(1), (ptrdiff_t)rows * in->first.next, columns); break;
    case DIVIDED: quick_divided(&in[2].first, ROW_OF(0), columns, FLOAT_OF(1)); break;
    case AT_LEAST: quick_at_least(&in[2].first, ROW_OF(0), columns, FLOAT_OF(1)); break;
    case SCALED: quick_scaled(&in[3].first, ROW_OF(0), columns, FLOAT_OF(1), ROW_OF(2)); break;
    case SHIFTED: quick_scaled_shifted(&in[4].first, ROW_OF(0), columns, FLOAT_OF(1), ROW_OF(2), ROW_OF(3)); break;
    case ERF_GELU: quick_erf_gelu(&in[8].first, ROW_OF(0), columns, FLOAT_OF(1), FLOAT_OF(3), FLOAT_OF(6)); break;
    case TANH_GELU:
        quick_tanh_gelu(&in[12].first, ROW_OF(0), columns, FLOAT_OF(3), FLOAT_OF(5), FLOAT_OF(7), FLOAT_OF(10));
        break;
    case SIGMOID: quick_sigmoid(&in[5].first, ROW_OF(0), columns, FLOAT_OF(3)); break;
    case SILU: quick_silu(&in[6].first, ROW_OF(0), columns, FLOAT_OF(3)); break;
    case HARD_SWISH: quick_hard_swish(&in[6].first, ROW_OF(0), columns, FLOAT_OF(1), FLOAT_OF(2), FLOAT_OF(3), FLOAT_OF(5)); break;
    case HARD_SWISH_SHIFTED:
        quick_hard_swish_shifted(&in[8].first, ROW_OF(0), columns, FLOAT_OF(1), FLOAT_OF(2), FLOAT_OF(3), FLOAT_OF(5), FLOAT_OF(6),
                                 FLOAT_OF(7));
        break;
    case HARD_GATE: quick_hard_gate(&in[6].first, ROW_OF(0), columns, FLOAT_OF(1), FLOAT_OF(2), FLOAT_OF(3), FLOAT_OF(4)); break;
    case HARD_GATE_SHIFTED:
        quick_hard_gate_shifted(&in[8].first, ROW_OF(0), columns, FLOAT_OF(1), FLOAT_OF(2), FLOAT_OF(3), FLOAT_OF(4), FLOAT_OF(6),
                                FLOAT_OF(7));
        break;
    }
}

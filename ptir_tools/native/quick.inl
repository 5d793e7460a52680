/* Phases that come often, as loops: what their instructions give one by one, to the bit, for whole blocks of a row. */

#define VECTOR(p, k) (*(const floats *)((p) + W * (k)))

/* A product that no sum takes in: it is rounded. */
PTIR_INLINE floats rounded(floats x)
{
#if PTIR_X86
    __asm__("" : "+v"(x));
#elif defined(__aarch64__) && defined(__GNUC__)
    __asm__("" : "+w"(x));
#endif
    return x;
}

PTIR_INLINE float nothing(unsigned op) { return op == PTIR_reduce_sum ? 0.0f : op == PTIR_reduce_max ? -INFINITY : INFINITY; }

PTIR_INLINE floats joined(unsigned op, floats a, floats b)
{
    if (op == PTIR_reduce_sum)
        return a + b;
    return op == PTIR_reduce_max ? larger(a, b) : smaller(a, b);
}

/* For every block of `columns`: `value` of a vector at column i, and with `op` its reduction. */
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
        s = joined(op, s, joined(op, low, high));                                                                      \
    }

/* An element, while the one `ahead` is fetched, so that reading that one does not wait for memory. */
PTIR_INLINE floats and_fetched(const float *x, ptrdiff_t ahead)
{
    ptir_fetch(x + ahead);
    return VECTOR(x, 0);
}

/* Whether the processor is faster when it alone chooses what to fetch of rows that are read in order. AMD's are: a product of one row
 * read 41 GB a second so, and 35 when it asked for the next rows. No size of a cache tells. */
PTIR_INLINE int fetches_itself(void)
{
#if PTIR_X86 && defined(__GNUC__)
    return __builtin_cpu_is("amd") != 0;
#else
    return 0;
#endif
}

/* How far ahead a reduction fetches: a page, which is in the next rows, since it waits at the end of each. */
PTIR_INLINE ptrdiff_t page_ahead(void)
{
    enum { PAGE = 1024 }; /* floats */
    return fetches_itself() ? 0 : PAGE;
}

PTIR_INLINE void quick_reduce(unsigned op, float *sums, const float *x, ptrdiff_t ahead, size_t columns)
{
    if (ahead)
        BLOCKS(op, sums, and_fetched(x + i, ahead))
    else
        BLOCKS(op, sums, VECTOR(x + i, 0))
}

/* Nothing is fetched here: it is where softmax begins, which has done so in the row before. */
PTIR_INLINE void quick_largest(float *sums, const float *x, size_t columns) BLOCKS(PTIR_reduce_max, sums, VECTOR(x + i, 0))

PTIR_INLINE floats square(floats x) { return rounded(x * x); }
PTIR_INLINE floats put(float *to, floats x) { return *(floats *)to = x; }

/* To memory, past the cache, where `to` is the start of a vector there. */
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

/* Meanwhile the elements `ahead` are fetched: those of the next rows, so that reading them does not wait for memory. */
#if HAS_SCALING
PTIR_INLINE void quick_exp(float *sums, float *out, const float *x, float y, ptrdiff_t ahead, size_t columns)
    BLOCKS(PTIR_reduce_sum, sums, put(out + i, any_exp(and_fetched(x + i, ahead) - y)))
#else
/* Block by block: quick where all arguments are near 0, whole where one is not. */
PTIR_INLINE void quick_exp(float *sums, float *out, const float *x, float y, ptrdiff_t ahead, size_t all_columns)
{
    const size_t columns = LANES;
    for (size_t done = 0; done < all_columns; done += LANES, x += LANES, out += LANES) {
        ints near = is_near(VECTOR(x, 0) - y);
        for (size_t i = 0; i < LANES; i += LINE)
            ptir_fetch(x + ahead + i);
        for (size_t i = W; i < LANES; i += W)
            near &= is_near(VECTOR(x + i, 0) - y);
        if (is_any(~near))
            BLOCKS(PTIR_reduce_sum, sums, put(out + i, any_exp(VECTOR(x + i, 0) - y)))
        else
            BLOCKS(PTIR_reduce_sum, sums, put(out + i, near_exp(VECTOR(x + i, 0) - y)))
    }
}

#endif

/* W floats. Where past the cache is written, vectors that cross lines of it take half as long again: they are read in halves, of which
 * every other one crosses none. */
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
EVERY(plainly_divided, x / r, float r)
#if HAS_SCALING
/* x / r, correctly rounded, without the unit that divides, which takes five times as long. q is x * (1 / r) with 1 / r in two pieces:
 * off by little more than half a unit in the last place. So x - q r is exact, and a quotient of two floats is never so near to the
 * middle between two others that the last sum is rounded wrongly. Nothing on the way may be subnormal or infinite: blocks with
 * elements that are not usual are divided. */
PTIR_INLINE int has_usual_inverse(float r) { return r >= 0x1p-30f && r <= 0x1p30f; }
PTIR_INLINE int are_usual_dividends(const float *x)
{
    const __m512i least = _mm512_set1_epi32(0x21800000); /* 2^-60, the most is 2^60 */
    __m512i far = _mm512_setzero_si512();
    for (int i = 0; i < LANES; i += W)
        far = _mm512_max_epu32(far, _mm512_sub_epi32((__m512i)VECTOR(x + i, 0), least));
    return !_mm512_cmpgt_epu32_mask(far, _mm512_set1_epi32(120 << EXPONENT));
}

PTIR_INLINE floats quotient(floats x, float r, float inverse, float rest)
{
    __m512 a = (__m512)x, b = _mm512_set1_ps(r), high = _mm512_set1_ps(inverse);
    __m512 q = _mm512_fmadd_ps(a, high, _mm512_mul_ps(a, _mm512_set1_ps(rest)));
    return (floats)_mm512_fmadd_ps(_mm512_fnmadd_ps(q, b, a), high, q);
}

PTIR_INLINE void quick_divided(const ptir_operand *to, const float *from, size_t columns, float r)
{
    const float inverse = 1.0f / r, rest = (float)(1.0 / (double)r - (double)inverse);
    const int streams = is_streamed(to);
    ptir_operand block = *to;
    if (!has_usual_inverse(r)) {
        plainly_divided(to, from, columns, r);
        return;
    }
    for (size_t at = 0; at < columns; at += LANES) {
        float *out = to->at + at;
        const float *x = from + at;
        if (__builtin_expect(!are_usual_dividends(x), 0)) {
            block.at = out;
            plainly_divided(&block, x, LANES, r);
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
#define quick_divided plainly_divided
#endif
EVERY(quick_at_least, larger(x, all(r)), float r)
EVERY(quick_scaled, rounded(x * r) * VECTOR(g + i, 0), float r, const float *g)
EVERY(quick_scaled_shifted, rounded(rounded(x * r) * VECTOR(g + i, 0)) + VECTOR(c + i, 0), float r, const float *g, const float *c)
EVERY(quick_erf_gelu, rounded(x * half) * (quick_erf(rounded(x * k)) + one), float k, float one, float half)
EVERY(quick_tanh_gelu,
      rounded(x * half) * (quick_tanh(rounded((rounded(rounded(square(x) * x) * c) + x) * k)) + one),
      float c, float k, float one, float half)

/* Columns [0, columns) of a row, a multiple of LANES; `rows` rows are done in one phase. */
PTIR_INLINE void quickly(int known, const ptir_ready *in, size_t rows, size_t columns)
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
    }
}

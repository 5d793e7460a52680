/* Epilogue of 8-bit products (`ptir_quantizing`, isa.h): scales and rounds 32-bit sums while they are in the level-1 cache. */

typedef int8_t vector_of_bytes __attribute__((vector_size(W), aligned(1), may_alias));

/* Quantize sums of a row in float64, as defined in isa.h. */
static PTIR_NOINLINE void quantize_exactly(int8_t *to, const int32_t *sums, const int32_t *added, const ptir_quantizing *q, size_t column,
                                        size_t columns)
{
    const ptir_scaling *s = &q->scaling;
    for (size_t j = 0; j < columns; j++) {
        const size_t k = q->along ? column + j : 0;
        const double x = (int32_t)((uint32_t)sums[j] + (added ? (uint32_t)added[j] : 0u));
        double found = rint((x - s->zero[k]) * s->scale[k] / s->output_scale[k]) + s->output_zero[k];
        found = found == found ? found : 0.0;
        found = found > q->low ? found : q->low;
        to[j] = (int8_t)(int32_t)(found < q->high ? found : q->high);
    }
}

/* Load a vector of sums, or the tail of a row padded with zeros; NULL gives zeros. */
PTIR_INLINE ints some_sums(const int32_t *from, size_t count)
{
    ints x = {0};
    if (!from)
        return x;
    if (count >= W)
        return *(const ints *)from;
#if HAS_SCALING
    return (ints)_mm512_maskz_loadu_epi32((__mmask16)((1u << count) - 1), from);
#else
    memcpy(&x, from, count * sizeof *from);
    return x;
#endif
}

/* Round small numbers to integers. `*far` becomes the largest distance to the rounded integer seen so far. */
#if PTIR_X86 && W == 16
PTIR_INLINE ints nearest_integers(floats x, floats *far)
{
    enum { TO_NEAREST = 0, MOST_WITHOUT_SIGN = 0xb };
    *far = (floats)_mm512_range_ps((__m512)*far, _mm512_reduce_ps((__m512)x, TO_NEAREST), MOST_WITHOUT_SIGN);
    return (ints)_mm512_cvtps_epi32((__m512)x);
}
PTIR_INLINE floats between(floats x, floats low, floats high)
{
    return (floats)_mm512_min_ps(_mm512_max_ps((__m512)x, (__m512)low), (__m512)high);
}
#else
PTIR_INLINE ints nearest_integers(floats x, floats *far)
{
    const ints near = (ints)(x + SHIFT) - SHIFT_BITS;
    *far = larger_value(*far, absolute(x - __builtin_convertvector(near, floats)));
    return near;
}
PTIR_INLINE floats between(floats x, floats low, floats high) { return smaller(larger_value(x, low), high); }
#endif

/* Quantize a vector in f32. The quotient has three rounding errors, less than 2^-14 together in the range of bytes. So only near
 * the middle between two integers can the result differ from the definition. */
PTIR_INLINE floats quantize_vector(int8_t *to, const int32_t *sums, const int32_t *added, const ptir_quantizing *q, size_t column,
                                   size_t count, floats far)
{
    const int32_t zero = (int32_t)q->scaling.output_zero[0];
    const floats low = all(q->low - (float)zero), high = all(q->high - (float)zero);
    const ints x = some_sums(sums, count) + some_sums(added, count);
    const floats factor = q->along ? (floats)some_sums((const int32_t *)q->factor + column, count) : all(q->factor[0]);
    const ints near = nearest_integers(between(__builtin_convertvector(x, floats) * factor, low, high), &far) + zero;
    const vector_of_bytes made = __builtin_convertvector(near, vector_of_bytes);
    if (count >= W)
        *(vector_of_bytes *)to = made;
    else
        memcpy(to, &made, count);
    return far;
}

/* Quantize in groups of a few vectors: if one number is near the middle, only its group is computed again in float64. */
static PTIR_NOINLINE void quantize_row(int8_t *to, const int32_t *sums, const int32_t *added, const ptir_quantizing *q, size_t column,
                                    size_t columns)
{
    enum { SOME = 64 };
    for (size_t start = 0, count; start < columns; start += SOME) {
        floats far = {0};
        const int32_t *also = added ? added + start : NULL;
        count = smallest(SOME, columns - start);
        if (count == SOME)
            for (size_t j = 0; j < SOME; j += W)
                far = quantize_vector(to + start + j, sums + start + j, also ? also + j : NULL, q, column + start + j, W, far);
        else
            for (size_t j = 0; j < count; j += W)
                far = quantize_vector(to + start + j, sums + start + j, also ? also + j : NULL, q, column + start + j, count - j, far);
        if (is_any(far > 0.5f - 0x1p-14f))
            quantize_exactly(to + start, sums + start, also, q, column + start, count);
    }
}

typedef double doubles __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t half_ints __attribute__((vector_size(2 * W), aligned(4), may_alias));
typedef float half_floats __attribute__((vector_size(2 * W), aligned(4), may_alias));

static PTIR_NOINLINE void scale_row(float *to, const int32_t *sums, const int32_t *added, const ptir_quantizing *q, size_t column,
                                 size_t columns)
{
    const double *scale = q->scaling.scale, *zero = q->scaling.zero;
    const doubles one = (doubles){0} + *scale, none = (doubles){0} + *zero;
    for (size_t j = 0; j < columns; j += W) {
        const size_t count = smallest(W, columns - j);
        const ints x = some_sums(sums + j, count) + some_sums(added ? added + j : NULL, count);
        half_ints half[2];
        memcpy(half, &x, sizeof x);
        if (count == W && !q->along)
            for (size_t h = 0; h < 2; h++)
                *(half_floats *)(to + j + h * W / 2) = __builtin_convertvector((__builtin_convertvector(half[h], doubles) - none) * one, half_floats);
        else
            for (size_t i = 0, k; i < count; i++)
                k = q->along ? column + j + i : 0, to[j + i] = (float)(((double)x[i] - zero[k]) * scale[k]);
    }
}

typedef uint8_t vector_of_naturals __attribute__((vector_size(W), aligned(1), may_alias));

/* Elements [column, column + count) of row `row` of a step's operand of one kind; 0 from the first one on that is not there. */
PTIR_INLINE floats operand_of(const ptir_sum_step *s, size_t row, size_t column, size_t count, int kind)
{
    const ptrdiff_t at = (ptrdiff_t)row * s->rows + (ptrdiff_t)column * s->columns;
    if (kind == PTIR_FLOAT)
        return (floats)some_sums((const int32_t *)s->data + at, count);
    vector_of_bytes x = {0};
    if (count >= W)
        x = *(const vector_of_bytes *)((const int8_t *)s->data + at);
    else
#if HAS_SCALING
        x = (vector_of_bytes)_mm_maskz_loadu_epi8((__mmask16)((1u << count) - 1), (const int8_t *)s->data + at);
    const ints n = (ints)(kind == PTIR_SI8 ? _mm512_cvtepi8_epi32((__m128i)x) : _mm512_cvtepu8_epi32((__m128i)x));
#else
        memcpy(&x, (const int8_t *)s->data + at, count);
    ints n;
    if (kind == PTIR_SI8)
        n = __builtin_convertvector(x, ints);
    else
        n = __builtin_convertvector((vector_of_naturals)x, ints);
#endif
    return rounded((__builtin_convertvector(n, floats) - all(s->zero)) * all(s->scale));
}

enum { SOME_VECTORS = 8, SOME_SUMS = SOME_VECTORS * W };

#if HAS_SCALING
/* x / y, correctly rounded, if no intermediate can be subnormal or infinite. Returns 0 without a result otherwise. */
PTIR_INLINE int divide_quickly(floats *x, int vectors, float y)
{
    const float inverse = 1.0f / y, rest = (float)(1.0 / (double)y - (double)inverse);
    const __m512i least = _mm512_set1_epi32(0x21800000); /* 2^-60; the largest is 2^60 */
    __m512i far = _mm512_setzero_si512();
    for (int v = 0; v < vectors; v++) {
        const __m512i size = (__m512i)absolute(x[v]);
        far = _mm512_max_epu32(far, _mm512_maskz_sub_epi32(_mm512_test_epi32_mask(size, size), size, least));
    }
    if (_mm512_cmpgt_epu32_mask(far, _mm512_set1_epi32(120 << EXPONENT)))
        return 0;
    for (int v = 0; v < vectors; v++) /* -0 stays */
        x[v] = (floats)((ints)quotient(x[v], y, inverse, rest) | ((ints)x[v] & ~MAGNITUDE));
    return 1;
}

/* The nearest integer to x / y. With x times 1 / y the quotient is less than 2^-12 wrong up to 1024; closer to the middle between two
 * integers, and further out, it is computed exactly. Returns 0 without a result then. */
PTIR_INLINE int round_quotients(floats *x, int vectors, float y)
{
    const floats inverse = all(1.0f / y);
    floats far = {0}, most = {0}, near[SOME_VECTORS];
    for (int v = 0; v < vectors; v++) {
        const floats q = x[v] * inverse;
        near[v] = round_even(q);
        far = (floats)_mm512_max_ps((__m512)absolute(q - near[v]), (__m512)far); /* a NaN in the first operand counts as nothing */
        most = (floats)_mm512_max_ps((__m512)absolute(q), (__m512)most);
    }
    if (_mm512_cmp_ps_mask((__m512)far, _mm512_set1_ps(0.5f - 0x1p-12f), _CMP_GT_OQ) |
        _mm512_cmp_ps_mask((__m512)most, _mm512_set1_ps(1024.0f), _CMP_GT_OQ))
        return 0;
    for (int v = 0; v < vectors; v++)
        x[v] = near[v];
    return 1;
}
#endif

/* Divide by one number; with `rounds` round to integers, too. */
PTIR_INLINE void divide_some(floats *x, int vectors, float y, int rounds)
{
#if HAS_SCALING
    if (has_safe_inverse(y)) {
        if (rounds && round_quotients(x, vectors, y))
            return;
        if (divide_quickly(x, vectors, y)) {
            for (int v = 0; rounds && v < vectors; v++)
                x[v] = round_even(x[v]);
            return;
        }
    }
#endif
    for (int v = 0; v < vectors; v++) {
        x[v] /= all(y);
        if (rounds)
            x[v] = round_even(x[v]);
    }
}

/* Store the first `count` elements of a vector: as f32, or as bytes between `low` and `high`; NaN is 0. */
PTIR_INLINE void store_some(void *to, floats x, size_t count, char kind, float low, float high)
{
    const floats number = between(pick(x == x, x, all(0.0f)), all(low), all(high));
    const ints whole = __builtin_convertvector(number, ints);
#if HAS_SCALING
    const __mmask16 some = (__mmask16)(count >= W ? 0xffff : (1u << count) - 1);
    if (kind == 'f')
        _mm512_mask_storeu_ps(to, some, (__m512)x);
    else
        _mm512_mask_cvtepi32_storeu_epi8(to, some, (__m512i)whole);
#else
    const vector_of_bytes made = __builtin_convertvector(whole, vector_of_bytes);
    const size_t here = smallest(W, count);
    if (kind == 'f')
        memcpy(to, &x, here * sizeof(float));
    else
        memcpy(to, &made, here);
#endif
}

/* The steps in f32 on up to SOME_SUMS sums of a row. */
PTIR_INLINE void step_sums(void *out, const int32_t *sums, const int32_t *added, const ptir_quantizing *q, size_t row, size_t column,
                           size_t count, int vectors)
{
    floats x[SOME_VECTORS];
#define LEFT(v) (count > (size_t)(v) * W ? count - (size_t)(v) * W : 0)
#define EVERY_SUM(value)                                                                                               \
    for (int v = 0; v < vectors; v++)                                                                                  \
        x[v] = value;                                                                                                  \
    break;
#define EACH(value)                                                                                                    \
    if (!s->columns) {                                                                                                 \
        const floats y = all(((const float *)s->data)[(ptrdiff_t)row * s->rows]);                                      \
        EVERY_SUM(value)                                                                                               \
    }                                                                                                                  \
    switch (s->kind) {                                                                                                 \
    case PTIR_SI8: OF_KIND(value, PTIR_SI8)                                                                            \
    case PTIR_UI8: OF_KIND(value, PTIR_UI8)                                                                            \
    default: OF_KIND(value, PTIR_FLOAT)                                                                                \
    }                                                                                                                  \
    break;
#define OF_KIND(value, kind)                                                                                           \
    for (int v = 0; v < vectors; v++) {                                                                                \
        const floats y = operand_of(s, row, column + (size_t)v * W, LEFT(v), kind);                                    \
        x[v] = value;                                                                                                  \
    }                                                                                                                  \
    break;
    for (int v = 0; v < vectors; v++)
        x[v] = __builtin_convertvector(some_sums(sums + v * W, LEFT(v)) + some_sums(added ? added + v * W : NULL, LEFT(v)), floats);
    for (const ptir_sum_step *s = q->steps, *end = s + q->count; s < end; s++)
        switch (s->op) {
        case PTIR_add: EACH(x[v] + y)
        case PTIR_sub: EACH(x[v] - y)
        case PTIR_mul: EACH(x[v] * y)
        case PTIR_maximum: EACH(larger(x[v], y))
        case PTIR_minimum: EACH(smaller(x[v], y))
        case PTIR_div:
            if (s->columns) {
                EACH(x[v] / y)
            }
            const int rounds = s + 1 < end && s[1].op == PTIR_round_even;
            divide_some(x, vectors, ((const float *)s->data)[(ptrdiff_t)row * s->rows], rounds);
            s += rounds;
            break;
        case PTIR_round_even: EVERY_SUM(round_even(x[v]))
        case PTIR_nearest_si8: EVERY_SUM(truncated_between(x[v], -128.0f, 127.0f))
        case PTIR_nearest_ui8: EVERY_SUM(truncated_between(x[v], 0.0f, 255.0f))
        }
#undef EVERY_SUM
#undef OF_KIND
#undef EACH
    for (int v = 0; v < vectors; v++)
        store_some((char *)out + (size_t)v * W * (q->to == 'f' ? sizeof(float) : 1), x[v], LEFT(v), q->to, q->low, q->high);
#undef LEFT
}

static PTIR_NOINLINE void step_row(char *out, size_t size, const int32_t *sums, const int32_t *added, const ptir_quantizing *q, size_t row,
                                   size_t column, size_t columns)
{
    size_t j = 0;
    for (; j + SOME_SUMS <= columns; j += SOME_SUMS)
        step_sums(out + j * size, sums + j, added ? added + j : NULL, q, row, column + j, SOME_SUMS, SOME_VECTORS);
    for (; j + 2 * W <= columns; j += 2 * W)
        step_sums(out + j * size, sums + j, added ? added + j : NULL, q, row, column + j, 2 * W, 2);
    for (; j + W <= columns; j += W)
        step_sums(out + j * size, sums + j, added ? added + j : NULL, q, row, column + j, W, 1);
    if (j < columns)
        step_sums(out + j * size, sums + j, added ? added + j : NULL, q, row, column + j, columns - j, 1);
}

/* Quantize a block. Rows of `sums` are `step` apart, rows of `out` `stride`; (row, column) is the block's position in the
 * result. */
static PTIR_NOINLINE void quantize_block(void *out, size_t stride, const int32_t *sums, size_t step, const ptir_quantizing *q, size_t row,
                                      size_t column, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++, sums += step) {
        const int32_t *added = q->added ? q->added + (ptrdiff_t)(row + i) * q->rows + (ptrdiff_t)column : NULL;
        if (q->in_f32)
            step_row((char *)out + i * stride * (q->to == 'f' ? sizeof(float) : 1), q->to == 'f' ? sizeof(float) : 1, sums, added, q, row + i,
                     column, columns);
        else if (q->to == 'f')
            scale_row((float *)out + i * stride, sums, added, q, column, columns);
        else if (q->is_near)
            quantize_row((int8_t *)out + i * stride, sums, added, q, column, columns);
        else
            quantize_exactly((int8_t *)out + i * stride, sums, added, q, column, columns);
    }
}

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
    memcpy(&x, from, count * sizeof *from);
    return x;
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

/* Quantize a block. Rows of `sums` are `step` apart, rows of `out` `stride`; (row, column) is the block's position in the
 * result. */
static PTIR_NOINLINE void quantize_block(void *out, size_t stride, const int32_t *sums, size_t step, const ptir_quantizing *q, size_t row,
                                      size_t column, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++, sums += step) {
        const int32_t *added = q->added ? q->added + (ptrdiff_t)(row + i) * q->rows + (ptrdiff_t)column : NULL;
        if (q->to == 'f')
            scale_row((float *)out + i * stride, sums, added, q, column, columns);
        else if (q->is_near)
            quantize_row((int8_t *)out + i * stride, sums, added, q, column, columns);
        else
            quantize_exactly((int8_t *)out + i * stride, sums, added, q, column, columns);
    }
}

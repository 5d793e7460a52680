/* Kernels on rows: layer norm, quantization, reductions over rows of a matrix (`fold`), argmax (`largest`), sums of bytes. */

/* One row in float64, because its squares leave the range of f32. */
static void normalized_exactly(float *out, const float *x, const float *gamma, const float *beta, size_t n, double epsilon)
{
    double mean = 0.0, variance = 0.0;
    for (size_t i = 0; i < n; i++)
        mean += x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean);
    double root = sqrt(variance / (double)n + epsilon);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)((x[i] - mean) / root * gamma[i] + beta[i]);
}

/* out = (x - mean) / sqrt(variance + epsilon) * gamma + beta for dense rows of n elements. */
static void layer_norm(float *out, const float *from, const float *gamma, const float *beta, size_t rows, size_t n, double epsilon,
                       ptir_watch *watch)
{
    const float share = 1.0f / (float)n;
    const size_t columns = n / LANES * LANES;
    for (size_t row = 0; row < rows; row++, from += n, out += n) {
        float sums[SUMS], squares[SUMS], total = 0.0f, rest = 0.0f, square_sum = 0.0f;
        if (is_stopped(watch, 4 * n))
            return;
        fill(sums, SUMS, 0.0f);
        quick_reduce(PTIR_reduce_sum, sums, from, page_ahead(), columns);
        for (size_t i = columns; i < n; i++)
            total += from[i];
        const float mean = (reduce_partials(PTIR_reduce_sum, sums) + total) * share;
        fill(sums, SUMS, 0.0f);
        fill(squares, SUMS, 0.0f);
        for (size_t i = 0; i < columns; i += SUMS)
            for (size_t k = 0; k < SUMS; k += W) {
                floats d = VECTOR(from + i + k, 0) - mean;
                *(floats *)(sums + k) += d;
                *(floats *)(squares + k) += d * d;
            }
        for (size_t i = columns; i < n; i++) {
            float d = from[i] - mean;
            rest += d;
            square_sum += d * d;
        }
        /* `off` is the rounding error of the mean; the variance is corrected by its square. */
        const float off = (reduce_partials(PTIR_reduce_sum, sums) + rest) * share;
        const float variance = (reduce_partials(PTIR_reduce_sum, squares) + square_sum) * share - off * off + (float)epsilon;
        if (!(variance >= 0x1p-100f && variance < INFINITY)) {
            normalized_exactly(out, from, gamma, beta, n, epsilon);
            continue;
        }
        const float scale = 1.0f / sqrtf(variance);
        for (size_t i = 0; i < columns; i += W)
            *(floats *)(out + i) = ((VECTOR(from + i, 0) - mean) - off) * scale * VECTOR(gamma + i, 0) + VECTOR(beta + i, 0);
        for (size_t i = columns; i < n; i++)
            out[i] = ((from[i] - mean) - off) * scale * gamma[i] + beta[i];
    }
}

/* Convert a kind to float64 and back. Integers saturate, and NaN becomes 0. */
#define NUMBERS(name, type, whole, low, high)                                                                          \
    static void from_##name(double *restrict to, const type *restrict from, size_t n)                                  \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            to[i] = (double)from[i];                                                                                   \
    }                                                                                                                  \
    static void to_##name(type *restrict to, const double *restrict from, size_t n)                                    \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++) {                                                                               \
            double x = from[i] > low ? from[i] : low;                                                                  \
            to[i] = (type)(whole)(from[i] == from[i] ? (x < high ? x : high) : 0.0);                                   \
        }                                                                                                              \
    }

NUMBERS(i8, int8_t, int32_t, -0x1p7, 0x1p7 - 1)
NUMBERS(u8, uint8_t, int32_t, 0.0, 0x1p8 - 1)
NUMBERS(i16, int16_t, int32_t, -0x1p15, 0x1p15 - 1)
NUMBERS(u16, uint16_t, int32_t, 0.0, 0x1p16 - 1)
NUMBERS(i32, int32_t, int32_t, -0x1p31, 0x1p31 - 1)
NUMBERS(u32, uint32_t, int64_t, 0.0, 0x1p32 - 1)

enum { PIECE = 256 }; /* numbers converted at a time */

static int is_power_of_two(double x)
{
    int exponent;
    return frexp(x, &exponent) == 0.5;
}

/* Rescale `n` numbers. With `along` = 1 each has its own entry in the arrays of `s`, with 0 all share one. */
static void rescaled_row(char *out, char to, const char *x, char from, size_t n, ptir_scaling s, size_t along)
{
    double wide[PIECE];
    switch (from) {
    case 'b': from_i8(wide, (const int8_t *)x, n); break;
    case 'B': from_u8(wide, (const uint8_t *)x, n); break;
    case 'h': from_i16(wide, (const int16_t *)x, n); break;
    case 'H': from_u16(wide, (const uint16_t *)x, n); break;
    case 'i': from_i32(wide, (const int32_t *)x, n); break;
    case 'I': from_u32(wide, (const uint32_t *)x, n); break;
    default:
        for (size_t i = 0; i < n; i++)
            wide[i] = (double)((const float *)x)[i];
    }
    if (along)
        for (size_t i = 0; i < n; i++)
            wide[i] = (wide[i] - s.zero[i]) * s.scale[i];
    else
        for (size_t i = 0; i < n; i++)
            wide[i] = (wide[i] - *s.zero) * *s.scale;
    if (to == 'f') {
        for (size_t i = 0; i < n; i++)
            ((float *)out)[i] = (float)wide[i];
        return;
    }
    const double inverse = 1.0 / *s.output_scale;
    if (!along && is_power_of_two(*s.output_scale) && inverse < INFINITY && inverse > 0.0) /* multiplying gives the same quotient faster */
        for (size_t i = 0; i < n; i++)
            wide[i] = rint(wide[i] * inverse) + *s.output_zero;
    else
        for (size_t i = 0; i < n; i++)
            wide[i] = rint(wide[i] / s.output_scale[i * along]) + s.output_zero[i * along];
    switch (to) {
    case 'b': to_i8((int8_t *)out, wide, n); break;
    case 'B': to_u8((uint8_t *)out, wide, n); break;
    case 'h': to_i16((int16_t *)out, wide, n); break;
    case 'H': to_u16((uint16_t *)out, wide, n); break;
    case 'i': to_i32((int32_t *)out, wide, n); break;
    case 'I': to_u32((uint32_t *)out, wide, n); break;
    }
}

static size_t bytes_of(char kind) { return kind == 'b' || kind == 'B' ? 1 : kind == 'h' || kind == 'H' ? 2 : 4; }

static void rescaled(void *out, char to, const void *x, char from, size_t rows, size_t n, size_t channels, int along, ptir_scaling s,
                     ptir_watch *watch)
{
    for (size_t row = 0; row < rows; row++) {
        size_t own = along ? 0 : row % channels;
        if (is_stopped(watch, 4 * n))
            return;
        for (size_t i = 0; i < n; i += PIECE) {
            size_t at = row * n + i, k = along ? i : own;
            ptir_scaling here = {s.scale + k, s.zero + k, s.output_scale + k, s.output_zero + k};
            rescaled_row((char *)out + at * bytes_of(to), to, (const char *)x + at * bytes_of(from), from, smallest(PIECE, n - i), here,
                         (size_t)along);
        }
    }
}

/* Combine four rows at once, so that `out` is loaded and stored less often. */
PTIR_INLINE void fold_rows(unsigned op, float *out, const float *x, ptrdiff_t step, size_t m, size_t n)
{
    const float *row[4];
    for (size_t i = 0, count; i < m; i += count) {
        size_t j = 0;
        count = m - i < 4 ? 1 : 4;
        for (size_t r = 0; r < 4; r++)
            row[r] = x + (ptrdiff_t)(i + r % count) * step;
        for (; count == 4 && j + W <= n; j += W) {
            floats low = combine(op, VECTOR(row[0] + j, 0), VECTOR(row[1] + j, 0));
            floats high = combine(op, VECTOR(row[2] + j, 0), VECTOR(row[3] + j, 0));
            put(out + j, combine(op, VECTOR(out + j, 0), combine(op, low, high)));
        }
        for (; j + W <= n; j += W)
            put(out + j, combine(op, VECTOR(out + j, 0), VECTOR(row[0] + j, 0)));
        for (; j < n; j++) {
            floats v = all(row[0][j]);
            if (count == 4)
                v = combine(op, combine(op, v, all(row[1][j])), combine(op, all(row[2][j]), all(row[3][j])));
            out[j] = combine(op, all(out[j]), v)[0];
        }
    }
}

static void fold(float *out, ptir_matrix x, int kind, size_t batch, size_t m, size_t n, ptir_watch *watch)
{
    const size_t strip = 4096; /* columns whose results stay in the level-1 cache */
    const float none = kind == PTIR_SUM ? 0.0f : kind == PTIR_MAX ? -INFINITY : INFINITY;
    for (size_t b = 0; b < batch; b++, out += n)
        for (size_t j = 0; j < n; j += strip) {
            size_t width = smallest(strip, n - j);
            const float *from = x.data + (ptrdiff_t)b * x.batch + j;
            for (size_t i = 0; i < width; i++)
                out[j + i] = none;
            if (is_stopped(watch, m * width))
                return;
            switch (kind) {
            case PTIR_SUM: fold_rows(PTIR_reduce_sum, out + j, from, x.rows, m, width); break;
            case PTIR_MAX: fold_rows(PTIR_reduce_max, out + j, from, x.rows, m, width); break;
            case PTIR_MIN: fold_rows(PTIR_reduce_min, out + j, from, x.rows, m, width); break;
            }
        }
}

/* The first index of `top` in a row, or of a NaN if `top` is NaN. */
PTIR_INLINE size_t place_of(float top, const float *x, size_t n)
{
    const ints any_nan = all(top) != all(top);
    size_t i = 0;
    for (; i + W <= n; i += W) {
        floats v = VECTOR(x + i, 0);
        if (is_any((v == all(top)) | ((v != v) & any_nan)))
            break;
    }
    for (; i < n; i++)
        if (x[i] == top || (x[i] != x[i] && top != top))
            break;
    return i;
}

static void largest(void *out, int wide, const float *x, ptrdiff_t step, size_t rows, size_t n, ptir_watch *watch)
{
    for (size_t row = 0; row < rows; row++, x += step) {
        float sums[SUMS];
        const size_t columns = n / LANES * LANES;
        if (is_stopped(watch, n))
            return;
        fill(sums, SUMS, -INFINITY);
        quick_reduce(PTIR_reduce_max, sums, x, page_ahead(), columns);
        float top = reduce_partials(PTIR_reduce_max, sums);
        for (size_t i = columns; i < n; i++)
            top = larger(all(top), all(x[i]))[0];
        size_t place = place_of(top, x, n);
        if (wide)
            ((int64_t *)out)[row] = (int64_t)place;
        else
            ((int32_t *)out)[row] = (int32_t)place;
    }
}

PTIR_INLINE uint32_t sum_of_bytes(const uint8_t *x, int is_signed, size_t n)
{
    uint32_t sum = 0;
    if (is_signed)
        for (size_t i = 0; i < n; i++)
            sum += (uint32_t)(int8_t)x[i];
    else
        for (size_t i = 0; i < n; i++)
            sum += x[i];
    return sum;
}

static void byte_sums(uint32_t *out, const uint8_t *x, int is_signed, ptrdiff_t step, size_t rows, size_t n, ptir_watch *watch)
{
    for (size_t row = 0; row < rows; row++, x += step) {
        if (is_stopped(watch, n))
            return;
        out[row] = sum_of_bytes(x, is_signed, n);
    }
}

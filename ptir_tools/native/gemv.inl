/* Product of a row vector and a matrix. The matrix is streamed once, in place and in its own dtype. Entry: `gemv`. */

/* Columns processed at a time; rows of the matrix per pass; columns per pass if the matrix is transposed. */
enum { STRIP = 4096, DEPTH = 8, COLUMNS = 4 };

typedef uint16_t halves __attribute__((vector_size(2 * W), aligned(2), may_alias));

/* Elements [i, i + W) at `p`, converted to f32. */
PTIR_INLINE floats widened(const char *p, size_t i, int kind)
{
    if (kind == PTIR_FLOAT)
        return *(const floats *)(p + 4 * i);
    if (kind == PTIR_F16)
        return read_f16(p + 2 * i);
    return (floats)(__builtin_convertvector(*(const halves *)(p + 2 * i), ints) << 16);
}

PTIR_INLINE size_t bytes(int kind) { return kind == PTIR_FLOAT ? 4 : 2; }

/* Element i, converted to f32. */
PTIR_INLINE float single(const char *p, size_t i, int kind)
{
    char alone[4 * W] = {0};
    __builtin_memcpy(alone, p + bytes(kind) * i, bytes(kind));
    return widened(alone, 0, kind)[0];
}

/* out[j] += sum over `depth` rows of x[p] * b[p][j], where b has stride 1 along j. `ahead` bytes further are prefetched,
 * unless 0. */
PTIR_INLINE void add_rows(float *out, const float *x, const char *b, ptrdiff_t step, size_t depth, size_t n, int kind, ptrdiff_t ahead)
{
    floats factor[DEPTH];
    size_t j = 0;
    for (size_t p = 0; p < depth; p++)
        factor[p] = all(x[p]);
    for (; j + W <= n; j += W) {
        floats sum = *(floats *)(out + j);
        for (size_t p = 0; p < depth; p++) {
            const char *row = b + (ptrdiff_t)p * step;
            if (ahead)
                ptir_prefetch(row + ahead + bytes(kind) * j);
            sum += factor[p] * widened(row, j, kind);
        }
        *(floats *)(out + j) = sum;
    }
    for (; j < n; j++)
        for (size_t p = 0; p < depth; p++)
            out[j] += x[p] * single(b + (ptrdiff_t)p * step, j, kind);
}

PTIR_INLINE float total(floats v)
{
    if (W > 8)
        v += FROM(v, 8);
    if (W > 4)
        v += FROM(v, 4);
    v += FROM(v, 2);
    return v[0] + v[1];
}

/* out[j] = sum over p of x[p] * b[j][p] for `count` <= COLUMNS columns, where b has stride 1 along p. If there are fewer than
 * COLUMNS, the last column is computed again and dropped. */
PTIR_INLINE void dots(float *out, const float *x, const char *b, ptrdiff_t step, size_t k, size_t count, int kind)
{
    const char *column[COLUMNS];
    floats low[COLUMNS], high[COLUMNS];
    size_t p = 0;
    for (size_t j = 0; j < COLUMNS; j++) {
        column[j] = b + (ptrdiff_t)smallest(j, count - 1) * step;
        low[j] = high[j] = (floats){0};
    }
    for (; p + 2 * W <= k; p += 2 * W)
        for (int j = 0; j < COLUMNS; j++) {
            low[j] += *(const floats *)(x + p) * widened(column[j], p, kind);
            high[j] += *(const floats *)(x + p + W) * widened(column[j], p + W, kind);
        }
    for (; p + W <= k; p += W)
        for (int j = 0; j < COLUMNS; j++)
            low[j] += *(const floats *)(x + p) * widened(column[j], p, kind);
    if (p < k) { /* the rest, padded with zeros */
        floats last = {0};
        __builtin_memcpy(&last, x + p, (k - p) * sizeof *x);
        for (int j = 0; j < COLUMNS; j++) {
            char padded[4 * W] = {0};
            __builtin_memcpy(padded, column[j] + bytes(kind) * p, bytes(kind) * (k - p));
            high[j] += last * widened(padded, 0, kind);
        }
    }
    for (size_t j = 0; j < count; j++)
        out[j] = total(low[j] + high[j]);
}

/* Multiply by n columns of one matrix. Element (p, j) is at data[p * rows + j * columns], and one of the two strides is 1. */
PTIR_INLINE void columns_of(float *out, const float *x, const ptir_narrow *b, const char *data, size_t n, size_t k, int transposed,
                            int kind)
{
    ptrdiff_t item = (ptrdiff_t)bytes(kind), down = b->rows * item, right = b->columns * item;
    if (!transposed) {
        __builtin_memset(out, 0, n * sizeof *out);
        size_t p = 0;
        /* The hardware prefetcher does not keep up with bf16. */
        for (; (kind != PTIR_FLOAT || !prefetch_slows()) && p + 2 * DEPTH <= k; p += DEPTH)
            add_rows(out, x + p, data + (ptrdiff_t)p * down, down, DEPTH, n, kind, DEPTH * down);
        for (; p + DEPTH <= k; p += DEPTH)
            add_rows(out, x + p, data + (ptrdiff_t)p * down, down, DEPTH, n, kind, 0);
        add_rows(out, x + p, data + (ptrdiff_t)p * down, down, k - p, n, kind, 0);
        return;
    }
    for (size_t j = 0; j < n; j += COLUMNS)
        dots(out + j, x, data + (ptrdiff_t)j * right, right, k, smallest(COLUMNS, n - j), kind);
}

#define KIND(kind)                                                                                                     \
    static void columns_##kind(float *out, const float *x, const ptir_narrow *b, const char *data, size_t n,           \
                                      size_t k, int transposed)                                                        \
    {                                                                                                                  \
        columns_of(out, x, b, data, n, k, transposed, PTIR_##kind);                                                    \
    }

KIND(FLOAT)
KIND(F16)
KIND(BF16)

static void gemv(float *out, const float *x, ptir_narrow c, size_t batch, size_t n, size_t k, ptir_watch *watch)
{
    int transposed = c.columns != 1 || (c.rows == 1 && n == 1); /* the stride of a single column is not defined, so the rows decide */
    for (size_t i = 0; i < batch; i++, out += n, x += k)
        for (size_t j = 0; j < n; j += STRIP) {
            size_t width = smallest(STRIP, n - j);
            ptrdiff_t at = (ptrdiff_t)i * c.batch + (ptrdiff_t)j * c.columns;
            const char *data = (const char *)c.data + at * (ptrdiff_t)bytes(c.kind);
            if (is_stopped(watch, k * width))
                return;
            switch (c.kind) {
            case PTIR_FLOAT: columns_FLOAT(out + j, x, &c, data, width, k, transposed); break;
            case PTIR_F16: columns_F16(out + j, x, &c, data, width, k, transposed); break;
            case PTIR_BF16: columns_BF16(out + j, x, &c, data, width, k, transposed); break;
            }
        }
}

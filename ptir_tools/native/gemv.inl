/* Product of a row vector and a matrix. The matrix is streamed once, in place and in its own dtype. Entry: `gemv`. */

/* Columns processed at a time; rows of the matrix per pass; columns per pass if the matrix is transposed; the longest row whose
 * subnormal elements are multiplied apart. */
enum { STRIP = 4096, DEPTH = 8, COLUMNS = 4, LONGEST = 4096, LEAST_NORMAL = 0x00800000 };

typedef uint16_t halves __attribute__((vector_size(2 * W), aligned(2), may_alias));
typedef int32_t bits_of_float __attribute__((may_alias));

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
 * unless 0. The last W columns are a vector of their own; those that it shares with the one before are computed twice, alike. */
PTIR_INLINE void add_rows(float *out, const float *x, const char *b, ptrdiff_t step, size_t depth, size_t n, int kind, ptrdiff_t ahead)
{
    floats factor[DEPTH], last = {0};
    size_t j = 0;
    const int has_rest = n >= W && n % W;
    for (size_t p = 0; p < depth; p++)
        factor[p] = all(x[p]);
    if (has_rest) {
        last = *(floats *)(out + n - W);
        for (size_t p = 0; p < depth; p++)
            last += factor[p] * widened(b + (ptrdiff_t)p * step, n - W, kind);
    }
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
    if (has_rest)
        *(floats *)(out + n - W) = last;
    for (; j < n && !has_rest; j++)
        for (size_t p = 0; p < depth; p++)
            out[j] += x[p] * single(b + (ptrdiff_t)p * step, j, kind);
}

/* Two vectors by halves, and by quarters: the lower ones (`n` 0) or the upper ones (`n` half, or a quarter, of W) side by side. */
#define RUN2(n) (n), (n) + 1
#define RUN4(n) RUN2(n), RUN2((n) + 2)
#define RUN8(n) RUN4(n), RUN4((n) + 4)
#if W == 4
#define BY_HALVES(v, w, n) __builtin_shufflevector(v, w, RUN2(n), RUN2(W + (n)))
#define BY_QUARTERS(v, w, n) __builtin_shufflevector(v, w, (n), (n) + 2, W + (n), W + (n) + 2)
#elif W == 8
#define BY_HALVES(v, w, n) __builtin_shufflevector(v, w, RUN4(n), RUN4(W + (n)))
#define BY_QUARTERS(v, w, n) __builtin_shufflevector(v, w, RUN2(n), RUN2((n) + 4), RUN2(W + (n)), RUN2(W + (n) + 4))
#else
#define BY_HALVES(v, w, n) __builtin_shufflevector(v, w, RUN8(n), RUN8(W + (n)))
#define BY_QUARTERS(v, w, n) __builtin_shufflevector(v, w, RUN4(n), RUN4((n) + 8), RUN4(W + (n)), RUN4(W + (n) + 8))
#endif

/* The sums of the elements of `count` <= 4 vectors. */
PTIR_INLINE void totals(float *out, const floats *v, size_t count)
{
    const floats left = BY_HALVES(v[0], v[1], 0) + BY_HALVES(v[0], v[1], W / 2);
    const floats right = BY_HALVES(v[2], v[3], 0) + BY_HALVES(v[2], v[3], W / 2);
    floats sum = BY_QUARTERS(left, right, 0) + BY_QUARTERS(left, right, W / 4);
    if (W > 8)
        sum += FROM(sum, 2);
    if (W > 4)
        sum += FROM(sum, 1);
    for (size_t j = 0; j < count; j++)
        out[j] = sum[j * (W / COLUMNS)];
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
    if (p < k && k >= W) { /* the last W elements; those that were added already become 0 */
        static const int32_t kept[2 * W] = {[W ... 2 * W - 1] = -1};
        const ints mask = *(const ints *)(kept + k - p);
        const floats last = (floats)((ints)*(const floats *)(x + k - W) & mask);
        for (int j = 0; j < COLUMNS; j++)
            high[j] += last * (floats)((ints)widened(column[j], k - W, kind) & mask);
    } else if (p < k) { /* the rest, padded with zeros */
        floats last = {0};
        __builtin_memcpy(&last, x + p, (k - p) * sizeof *x);
        for (int j = 0; j < COLUMNS; j++) {
            char padded[4 * W] = {0};
            __builtin_memcpy(padded, column[j] + bytes(kind) * p, bytes(kind) * (k - p));
            high[j] += last * widened(padded, 0, kind);
        }
    }
    for (size_t j = 0; j < COLUMNS; j++)
        low[j] += high[j];
    totals(out, low, count);
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

static void columns(float *out, const float *x, const ptir_narrow *b, const char *data, size_t n, size_t k, int transposed)
{
    switch (b->kind) {
    case PTIR_FLOAT: columns_FLOAT(out, x, b, data, n, k, transposed); break;
    case PTIR_F16: columns_F16(out, x, b, data, n, k, transposed); break;
    case PTIR_BF16: columns_BF16(out, x, b, data, n, k, transposed); break;
    }
}

/* Whether a row has subnormal elements. A processor takes some hundred cycles for a product with one. */
static int has_subnormals(const float *x, size_t k)
{
    const bits_of_float *bits = (const bits_of_float *)x;
    int found = 0;
    for (size_t p = 0; p < k; p++)
        found |= (uint32_t)((bits[p] & MAGNITUDE) - 1) < LEAST_NORMAL - 1;
    return found;
}

/* Write the subnormal elements of a row, times 2^64, to `small`, the others to `normal`; 0 elsewhere. */
static void part(float *normal, float *small, const float *x, size_t k)
{
    const bits_of_float *bits = (const bits_of_float *)x;
    for (size_t p = 0; p < k; p++) {
        const int32_t size = bits[p] & MAGNITUDE;
        const int is_small = size < LEAST_NORMAL;
        small[p] = is_small ? (float)(bits[p] < 0 ? -size : size) * 0x1p-85f : 0; /* exact: fewer than 24 bits */
        normal[p] = is_small ? 0 : x[p];
    }
}

/* The product where the row has subnormal elements. Columns with a result that is large or not finite are computed in one piece:
 * an element of the matrix may be infinite. */
static void columns_apart(float *out, const float *x, const float *normal, const float *small, const ptir_narrow *b, const char *data, size_t n,
                          size_t k, int transposed)
{
    float more[STRIP];
    columns(out, normal, b, data, n, k, transposed);
    columns(more, small, b, data, n, k, transposed);
    for (size_t j = 0; j < n; j++)
        if (out[j] < 0x1p60f && out[j] > -0x1p60f && more[j] < 0x1p120f && more[j] > -0x1p120f)
            out[j] = (out[j] * 0x1p64f + more[j]) * 0x1p-64f;
        else
            columns(out + j, x, b, data + (ptrdiff_t)j * b->columns * (ptrdiff_t)bytes(b->kind), 1, k, transposed);
}

static void gemv(float *out, const float *x, ptir_narrow c, size_t batch, size_t n, size_t k, ptir_watch *watch)
{
    int transposed = c.columns != 1 || (c.rows == 1 && n == 1); /* the stride of a single column is not defined, so the rows decide */
    float normal[LONGEST], small[LONGEST];
    for (size_t i = 0; i < batch; i++, out += n, x += k) {
        const int apart = k <= LONGEST && has_subnormals(x, k);
        if (apart)
            part(normal, small, x, k);
        for (size_t j = 0; j < n; j += STRIP) {
            size_t width = smallest(STRIP, n - j);
            ptrdiff_t at = (ptrdiff_t)i * c.batch + (ptrdiff_t)j * c.columns;
            const char *data = (const char *)c.data + at * (ptrdiff_t)bytes(c.kind);
            if (is_stopped(watch, k * width))
                return;
            if (apart)
                columns_apart(out + j, x, normal, small, &c, data, width, k, transposed);
            else
                columns(out + j, x, &c, data, width, k, transposed);
        }
    }
}

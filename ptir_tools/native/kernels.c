#include "kernels.h"
#include "functions.h"

/* One body, compiled for AVX2 with FMA and for any x86-64, chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

typedef float v8 __attribute__((vector_size(32), aligned(4)));

enum { PATIENCE = 1 << 29 };

/* Whether to stop, after so many more element operations. */
static int is_stopped(ptir_watch *w, size_t work)
{
    if ((w->done += work) >= PATIENCE) {
        w->done = 0;
        w->stopped = w->stopped || w->stop(w->data);
    }
    return w->stopped;
}

/* ---- Matrix product: panels of MR rows and NR columns, packed so that the micro-kernel reads both in order. ---- */

enum { MR = 6, NR = 16, KC = 256, MC = 96, NC = 1024 };

size_t ptir_gemm_scratch(void) { return (size_t)MC * KC + (size_t)NC * KC + MR * NR; }

static size_t smallest(size_t a, size_t b) { return a < b ? a : b; }

/* `to[panel][k][r]` = element (panel * width + r, k), 0 beyond `count`; steps between r and between k are given. */
PTIR_INLINE void pack(float *to, const float *from, ptrdiff_t step, ptrdiff_t depth_step, size_t count, size_t depth,
                      size_t width)
{
    for (size_t start = 0; start < count; start += width) {
        size_t here = smallest(width, count - start);
        const float *base = from + (ptrdiff_t)start * step;
        if (here == width && step == 1) {
            for (size_t k = 0; k < depth; k++, to += width)
                memcpy(to, base + (ptrdiff_t)k * depth_step, width * sizeof *to);
            continue;
        }
        for (size_t r = 0; r < width; r++)
            for (size_t k = 0; k < depth; k++)
                to[k * width + r] = r < here ? base[(ptrdiff_t)r * step + (ptrdiff_t)k * depth_step] : 0.0f;
        to += width * depth;
    }
}

/* Where MR rows of the left operand are: packed, or in place, one after the other along k. */
typedef struct {
    const float *row[MR];
    size_t step; /* from k to k + 1 */
} rows_of_a;

PTIR_INLINE rows_of_a packed_rows(const float *a)
{
    rows_of_a r = {.step = MR};
    for (int i = 0; i < MR; i++)
        r.row[i] = a + i;
    return r;
}

/* `count` rows; those that are missing are the last again. */
PTIR_INLINE rows_of_a rows_in_place(const float *a, ptrdiff_t stride, size_t count)
{
    rows_of_a r = {.step = 1};
    for (size_t i = 0; i < MR; i++)
        r.row[i] = a + (ptrdiff_t)smallest(i, count - 1) * stride;
    return r;
}

/* A block of MR x NR: all twelve accumulators stay in registers. */
PTIR_INLINE void micro(float *out, size_t stride, rows_of_a a, const float *b, size_t depth, int add)
{
    v8 sum[MR][2];
    for (int i = 0; i < MR; i++)
        sum[i][0] = sum[i][1] = (v8){0};
    for (size_t k = 0; k < depth; k++, b += NR) {
        v8 left = *(const v8 *)b, right = *(const v8 *)(b + 8);
#pragma GCC unroll 6
        for (int i = 0; i < MR; i++) {
            sum[i][0] += a.row[i][k * a.step] * left;
            sum[i][1] += a.row[i][k * a.step] * right;
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++) {
        v8 *left = (v8 *)(out + i * stride), *right = (v8 *)(out + i * stride + 8);
        *left = add ? *left + sum[i][0] : sum[i][0];
        *right = add ? *right + sum[i][1] : sum[i][1];
    }
}

/* A block at the edge goes through `spare`. */
PTIR_INLINE void edge(float *out, size_t stride, rows_of_a a, const float *b, size_t depth, int add, size_t rows,
                      size_t columns, float *spare)
{
    micro(spare, NR, a, b, depth, 0);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            out[i * stride + j] = (add ? out[i * stride + j] : 0.0f) + spare[i * NR + j];
}

/* `a` is packed when `step` is 0, else in place with rows `step` apart. */
PTIR_INLINE void macro_block(float *out, size_t stride, const float *a, ptrdiff_t step, const float *b, size_t m, size_t n,
                             size_t depth, int add, float *spare)
{
    for (size_t j = 0; j < n; j += NR)
        for (size_t i = 0; i < m; i += MR) {
            float *to = out + i * stride + j;
            rows_of_a rows = step ? rows_in_place(a + (ptrdiff_t)i * step, step, m - i) : packed_rows(a + i * depth);
            if (m - i >= MR && n - j >= NR)
                micro(to, stride, rows, b + j * depth, depth, add);
            else
                edge(to, stride, rows, b + j * depth, depth, add, smallest(MR, m - i), smallest(NR, n - j), spare);
        }
}

CLONES static void gemm(float *out, ptir_matrix a, ptir_matrix c, size_t m, size_t n, size_t k, float *scratch,
                        ptir_watch *watch)
{
    float *left = scratch, *right = scratch + (size_t)MC * KC, *spare = right + (size_t)NC * KC;
    if (k == 0)
        memset(out, 0, m * n * sizeof *out);
    for (size_t j = 0; j < n; j += NC)
        for (size_t p = 0; p < k; p += KC) {
            size_t columns = smallest(NC, n - j), depth = smallest(KC, k - p);
            if (is_stopped(watch, columns * depth * m))
                return;
            pack(right, c.data + (ptrdiff_t)p * c.rows + (ptrdiff_t)j * c.columns, c.columns, c.rows, columns, depth, NR);
            for (size_t i = 0; i < m; i += MC) {
                size_t rows = smallest(MC, m - i);
                const float *from = a.data + (ptrdiff_t)i * a.rows + (ptrdiff_t)p * a.columns;
                float *to = out + i * n + j;
                if (a.columns == 1 && a.rows)
                    macro_block(to, n, from, a.rows, right, rows, columns, depth, p > 0, spare);
                else {
                    pack(left, from, a.rows, a.columns, rows, depth, MR);
                    macro_block(to, n, left, 0, right, rows, columns, depth, p > 0, spare);
                }
            }
        }
}

void ptir_gemm(float *out, ptir_matrix a, ptir_matrix c, size_t batch, size_t m, size_t n, size_t k, float *scratch,
               ptir_watch *watch)
{
    for (size_t b = 0; b < batch && !watch->stopped; b++) {
        gemm(out + b * m * n, a, c, m, n, k, scratch, watch);
        a.data += a.batch;
        c.data += c.batch;
    }
}

/* ---- Tile programs. ---- */

void ptir_tile_shape(const ptir_program *p, size_t *rows, size_t *columns)
{
    *columns = p->whole_rows ? p->columns : smallest(p->columns, PTIR_TILE);
    *rows = *columns ? smallest(p->rows, *columns < PTIR_TILE ? PTIR_TILE / *columns : 1) : 1;
}

/* The registers of one tile of `rows` x `columns`. */
typedef struct {
    float *at[PTIR_REGISTERS];
    size_t rows, columns;
} tile;

#define UNARY(name, value)                                                                                             \
    CLONES static void do_##name(float *restrict d, const float *a, size_t count)                                      \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            float x = a[i];                                                                                            \
            d[i] = value;                                                                                              \
        }                                                                                                              \
    }

UNARY(neg, -x)
UNARY(abs, fabsf(x))
UNARY(exp, fast_exp(x))
UNARY(log, fast_log(x))
UNARY(tanh, fast_tanh(x))
UNARY(erf, fast_erf(x))
UNARY(rsqrt, 1.0f / sqrtf(x))
UNARY(reciprocal, 1.0f / x)

/* A binary op on equal registers, and with one float per row on the right or on the left. */
#define BINARY(name, value)                                                                                            \
    CLONES static void do_##name(float *restrict d, const float *a, const float *b, const tile *t, int left, int right) \
    {                                                                                                                  \
        size_t rows = left == right ? 1 : t->rows, n = left && right ? t->rows : t->columns;                           \
        if (!left && !right)                                                                                           \
            n *= t->rows;                                                                                              \
        for (size_t r = 0; r < rows; r++, d += n) {                                                                    \
            if (left == right)                                                                                         \
                for (size_t i = 0; i < n; i++) {                                                                       \
                    float x = a[i], y = b[i];                                                                          \
                    d[i] = value;                                                                                      \
                }                                                                                                      \
            else if (right) {                                                                                          \
                float y = b[r];                                                                                        \
                for (size_t i = 0; i < n; i++) {                                                                       \
                    float x = a[r * n + i];                                                                            \
                    d[i] = value;                                                                                      \
                }                                                                                                      \
            } else {                                                                                                   \
                float x = a[r];                                                                                        \
                for (size_t i = 0; i < n; i++) {                                                                       \
                    float y = b[r * n + i];                                                                            \
                    d[i] = value;                                                                                      \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x * y)
BINARY(div, x / y)
BINARY(maximum, larger(x, y))
BINARY(minimum, smaller(x, y))
BINARY(compare_lt, x < y ? 1.0f : 0.0f)
BINARY(compare_le, x <= y ? 1.0f : 0.0f)
BINARY(compare_eq, x == y ? 1.0f : 0.0f)
BINARY(compare_ge, x >= y ? 1.0f : 0.0f)
BINARY(compare_gt, x > y ? 1.0f : 0.0f)
BINARY(compare_ne, x != y ? 1.0f : 0.0f)

#define TERNARY(name, value)                                                                                           \
    CLONES static void do_##name(float *restrict d, const float *a, const float *b, const float *c, size_t count)      \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            float x = a[i], y = b[i], z = c[i];                                                                        \
            d[i] = value;                                                                                              \
        }                                                                                                              \
    }

TERNARY(select, x != 0.0f ? y : z)
TERNARY(clamp, smaller(larger(x, y), z))

static void do_splat(float *d, const float *a, const tile *t)
{
    for (size_t r = 0; r < t->rows; r++)
        for (size_t i = 0; i < t->columns; i++)
            *d++ = a[r];
}

/* A reduction of every row of the tile: eight lanes of four accumulators, then the rest. */
#define REDUCE(name, start, step)                                                                                      \
    CLONES static void do_##name(float *restrict d, const float *a, const tile *t)                                     \
    {                                                                                                                  \
        for (size_t r = 0; r < t->rows; r++, a += t->columns) {                                                        \
            float lane[32], x, y, n = start;                                                                           \
            size_t i = 0;                                                                                              \
            for (int l = 0; l < 32; l++)                                                                               \
                lane[l] = start;                                                                                       \
            for (; i + 32 <= t->columns; i += 32)                                                                      \
                for (int l = 0; l < 32; l++) {                                                                         \
                    x = lane[l], y = a[i + l];                                                                         \
                    lane[l] = step;                                                                                    \
                }                                                                                                      \
            for (; i < t->columns; i++) {                                                                              \
                x = n, y = a[i];                                                                                       \
                n = step;                                                                                              \
            }                                                                                                          \
            for (int half = 16; half; half /= 2)                                                                       \
                for (int l = 0; l < half; l++) {                                                                       \
                    x = lane[l], y = lane[l + half];                                                                   \
                    lane[l] = step;                                                                                    \
                }                                                                                                      \
            x = lane[0], y = n;                                                                                        \
            d[r] = step;                                                                                               \
        }                                                                                                              \
    }

REDUCE(reduce_sum, 0.0f, x + y)
REDUCE(reduce_max, -INFINITY, larger(x, y))
REDUCE(reduce_min, INFINITY, smaller(x, y))

static void step(const ptir_instruction *in, const tile *t)
{
    float *d = t->at[in->dst];
    const float *a = t->at[in->a], *b = t->at[in->b], *c = t->at[in->c];
    int left = in->scalars >> 1 & 1, right = in->scalars >> 2 & 1;
    size_t count = in->scalars & 1 ? t->rows : t->rows * t->columns;
    switch (in->op) {
#define ON_UNARY(name)                                                                                                 \
    case PTIR_##name:                                                                                                  \
        do_##name(d, a, count);                                                                                        \
        break;
#define ON_BINARY(name)                                                                                                \
    case PTIR_##name:                                                                                                  \
        do_##name(d, a, b, t, left, right);                                                                            \
        break;
#define ON_TERNARY(name)                                                                                               \
    case PTIR_##name:                                                                                                  \
        do_##name(d, a, b, c, count);                                                                                  \
        break;
#define ON_ROWS(name)                                                                                                  \
    case PTIR_##name:                                                                                                  \
        do_##name(d, a, t);                                                                                            \
        break;
        ON_UNARY(neg) ON_UNARY(abs) ON_UNARY(exp) ON_UNARY(log) ON_UNARY(tanh) ON_UNARY(erf) ON_UNARY(rsqrt)
        ON_UNARY(reciprocal) ON_BINARY(add) ON_BINARY(sub) ON_BINARY(mul) ON_BINARY(div) ON_BINARY(maximum)
        ON_BINARY(minimum) ON_BINARY(compare_lt) ON_BINARY(compare_le) ON_BINARY(compare_eq) ON_BINARY(compare_ge)
        ON_BINARY(compare_gt) ON_BINARY(compare_ne) ON_TERNARY(select) ON_TERNARY(clamp) ON_ROWS(splat)
        ON_ROWS(reduce_sum) ON_ROWS(reduce_max) ON_ROWS(reduce_min)
    }
}

/* Element (row, column) of an array, in bytes from its start. */
static size_t place(const ptir_array *x, size_t row, size_t column)
{
    ptrdiff_t at = (ptrdiff_t)row * x->rows + (ptrdiff_t)column * x->columns;
    return (size_t)(at * (ptrdiff_t)(x->kind == PTIR_BOOL ? 1 : sizeof(float)));
}

/* A tile of an array whose rows lie one after the other can be used where it is: its place, else NULL. */
static float *direct(const ptir_array *x, const tile *t, size_t row, size_t column)
{
    ptrdiff_t n = (ptrdiff_t)t->columns;
    int in_order = x->columns == 1 ? t->rows == 1 || x->rows == n : x->columns == 0 && x->rows == 1;
    return x->kind == PTIR_FLOAT && in_order ? (float *)((char *)x->data + place(x, row, column)) : NULL;
}

/* Copy a tile of an array into a register. */
static float *load(const ptir_array *x, float *own, const tile *t, size_t row, size_t column)
{
    const char *from = (const char *)x->data + place(x, row, column);
    size_t n = x->columns ? t->columns : 1;
    for (size_t r = 0; r < t->rows; r++, from += place(x, 1, 0))
        if (x->kind == PTIR_BOOL)
            for (size_t i = 0; i < n; i++)
                own[r * n + i] = ((const uint8_t *)from)[(ptrdiff_t)i * x->columns];
        else if (x->columns == 1)
            memcpy(own + r * n, from, n * sizeof *own);
        else
            for (size_t i = 0; i < n; i++)
                own[r * n + i] = ((const float *)from)[(ptrdiff_t)i * x->columns];
    return own;
}

static void store(const ptir_array *x, const float *from, const tile *t, size_t row, size_t column)
{
    char *to = (char *)x->data + place(x, row, column);
    size_t n = x->columns ? t->columns : 1;
    for (size_t r = 0; r < t->rows; r++, from += n, to += place(x, 1, 0))
        if (x->kind == PTIR_BOOL)
            for (size_t i = 0; i < n; i++)
                ((uint8_t *)to)[i] = from[i] != 0.0f;
        else
            memcpy(to, from, n * sizeof *from);
}

/* Where the register of an array is for this tile: in the array, or a copy; `again` when the tile before had the same columns,
 * so that a row repeated over all of them is there already. */
static float *enter(const ptir_array *x, float *own, const tile *t, size_t row, size_t column, int again)
{
    float *there = direct(x, t, row, column);
    if (x->is_output)
        return there && x->is_apart ? there : own;
    return there ? there : again && x->rows == 0 ? own : load(x, own, t, row, column);
}

void ptir_run(const ptir_program *p, size_t first, size_t last, float *scratch, ptir_watch *watch)
{
    size_t tall, wide;
    ptir_tile_shape(p, &tall, &wide);
    if (!p->columns)
        return;
    for (size_t row = first; row < last; row += tall)
        for (size_t column = 0; column < p->columns; column += wide) {
            tile t = {.rows = smallest(tall, last - row), .columns = smallest(wide, p->columns - column)};
            if (is_stopped(watch, t.rows * t.columns * p->length))
                return;
            for (size_t i = 0; i < p->register_count; i++) {
                float *own = scratch + i * tall * wide;
                t.at[i] = own;
                if (i < p->array_count)
                    t.at[i] = enter(&p->arrays[i], own, &t, row, column, row > first && wide == p->columns);
            }
            for (size_t i = 0; i < p->length; i++)
                step(&p->code[i], &t);
            for (size_t i = 0; i < p->array_count; i++)
                if (p->arrays[i].is_output && !(p->arrays[i].is_apart && direct(&p->arrays[i], &t, row, column)))
                    store(&p->arrays[i], t.at[i], &t, row, column);
        }
}

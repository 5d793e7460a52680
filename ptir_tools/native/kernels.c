/* Tile programs. */
#include "common.h"
#include "functions.h"

ptir_limits ptir_limit = {1.0f, 9.0f, 4.0f};

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
UNARY(tanh, fast_tanh(x))
UNARY(erf, fast_erf(x))
UNARY(rsqrt, 1.0f / sqrtf(x))
UNARY(reciprocal, 1.0f / x)

/* A function in blocks: quick where all arguments are `usual`, whole where one is not. */
#define IN_BLOCKS(name, usual, quick, whole)                                                                           \
    CLONES static void do_##name(float *restrict d, const float *a, size_t count)                                      \
    {                                                                                                                  \
        enum { BLOCK = 128 };                                                                                          \
        for (; count >= BLOCK; count -= BLOCK, d += BLOCK, a += BLOCK) {                                               \
            int rare = 0;                                                                                              \
            for (size_t i = 0; i < BLOCK; i++) {                                                                       \
                d[i] = quick(a[i]);                                                                                    \
                rare |= !usual(a[i]);                                                                                  \
            }                                                                                                          \
            for (size_t i = 0; rare && i < BLOCK; i++)                                                                 \
                d[i] = whole(a[i]);                                                                                    \
        }                                                                                                              \
        for (size_t i = 0; i < count; i++)                                                                             \
            d[i] = whole(a[i]);                                                                                        \
    }

IN_BLOCKS(exp, is_near, near_exp, fast_exp)
IN_BLOCKS(log, is_normal, near_log, fast_log)

/* Rounding in place. */
#define NEAREST(name)                                                                                                  \
    CLONES static void do_nearest_##name(float *d, size_t count)                                                       \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++)                                                                             \
            d[i] = nearest_##name(d[i]);                                                                               \
    }

NEAREST(f16)
NEAREST(bf16)

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
#define ON_PLACE(name)                                                                                                 \
    case PTIR_##name:                                                                                                  \
        do_##name(d, count);                                                                                           \
        break;
        ON_PLACE(nearest_f16) ON_PLACE(nearest_bf16) ON_UNARY(neg) ON_UNARY(abs) ON_UNARY(exp) ON_UNARY(log) ON_UNARY(tanh) ON_UNARY(erf) ON_UNARY(rsqrt)
        ON_UNARY(reciprocal) ON_BINARY(add) ON_BINARY(sub) ON_BINARY(mul) ON_BINARY(div) ON_BINARY(maximum)
        ON_BINARY(minimum) ON_BINARY(compare_lt) ON_BINARY(compare_le) ON_BINARY(compare_eq) ON_BINARY(compare_ge)
        ON_BINARY(compare_gt) ON_BINARY(compare_ne) ON_TERNARY(select) ON_TERNARY(clamp) ON_ROWS(splat)
        ON_ROWS(reduce_sum) ON_ROWS(reduce_max) ON_ROWS(reduce_min)
    }
}

/* Element (row, column) of an array, in bytes from its start. */
static ptrdiff_t place(const ptir_array *x, size_t row, size_t column)
{
    static const ptrdiff_t bytes[] = {[PTIR_FLOAT] = 4, [PTIR_BOOL] = 1, [PTIR_F16] = 2, [PTIR_BF16] = 2};
    return ((ptrdiff_t)row * x->rows + (ptrdiff_t)column * x->columns) * bytes[x->kind];
}

/* A tile of an array whose rows lie one after the other can be used where it is: its place, else NULL. */
static float *direct(const ptir_array *x, const tile *t, size_t row, size_t column)
{
    ptrdiff_t n = (ptrdiff_t)t->columns;
    int in_order = x->columns == 1 ? t->rows == 1 || x->rows == n : x->columns == 0 && x->rows == 1;
    return x->kind == PTIR_FLOAT && in_order ? (float *)((char *)x->data + place(x, row, column)) : NULL;
}

/* Copies of `n` elements between an array, `step` apart there, and a register. */
#define COPIES(kind, type, widened, narrowed)                                                                          \
    CLONES static void load_##kind(float *restrict to, const type *from, ptrdiff_t step, size_t n)                     \
    {                                                                                                                  \
        for (size_t i = 0; step == 1 && i < n; i++)                                                                    \
            to[i] = widened(from[i]);                                                                                  \
        for (size_t i = 0; step != 1 && i < n; i++)                                                                    \
            to[i] = widened(from[(ptrdiff_t)i * step]);                                                                \
    }                                                                                                                  \
    CLONES static void store_##kind(type *restrict to, const float *from, size_t n)                                    \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            to[i] = narrowed(from[i]);                                                                                 \
    }
#define SAME(x) (x)
#define IS_SET(x) ((x) != 0.0f)

COPIES(float, float, SAME, SAME)
COPIES(bool, uint8_t, SAME, IS_SET)
COPIES(f16, uint16_t, from_f16, to_f16)
COPIES(bf16, uint16_t, from_bf16, to_bf16)

/* Copy a tile of an array into a register. */
static float *load(const ptir_array *x, float *own, const tile *t, size_t row, size_t column)
{
    const char *from = (const char *)x->data + place(x, row, column);
    size_t n = x->columns ? t->columns : 1;
    float *to = own;
    for (size_t r = 0; r < t->rows; r++, from += place(x, 1, 0), to += n)
        switch (x->kind) {
        case PTIR_FLOAT: load_float(to, (const float *)from, x->columns, n); break;
        case PTIR_BOOL: load_bool(to, (const uint8_t *)from, x->columns, n); break;
        case PTIR_F16: load_f16(to, (const uint16_t *)from, x->columns, n); break;
        case PTIR_BF16: load_bf16(to, (const uint16_t *)from, x->columns, n); break;
        }
    return own;
}

static void store(const ptir_array *x, const float *from, const tile *t, size_t row, size_t column)
{
    char *to = (char *)x->data + place(x, row, column);
    size_t n = x->columns ? t->columns : 1;
    for (size_t r = 0; r < t->rows; r++, from += n, to += place(x, 1, 0))
        switch (x->kind) {
        case PTIR_FLOAT: store_float((float *)to, from, n); break;
        case PTIR_BOOL: store_bool((uint8_t *)to, from, n); break;
        case PTIR_F16: store_f16((uint16_t *)to, from, n); break;
        case PTIR_BF16: store_bf16((uint16_t *)to, from, n); break;
        }
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

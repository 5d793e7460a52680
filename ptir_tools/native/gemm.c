#include <string.h>
#include "turn.h"

typedef float v8 __attribute__((vector_size(32), aligned(4)));

/* Matrix product: panels of MR rows and NR columns, packed so that the micro-kernel reads both in order. */

enum { MR = 6, NR = 16, KC = 256, MC = 96, NC = 1024 };

size_t ptir_gemm_scratch(void) { return (size_t)MC * KC + (size_t)NC * KC + MR * NR; }

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
        size_t turned = 0;
        if (here == width && depth_step == 1 && width % SIDE == 0)
            for (; turned + SIDE <= depth; turned += SIDE)
                for (size_t r = 0; r < width; r += SIDE)
                    turn8(to + turned * width + r, (ptrdiff_t)width, base + (ptrdiff_t)r * step + turned, step);
        for (size_t r = 0; r < width; r++)
            for (size_t k = turned; k < depth; k++)
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

/* Where the panels of columns [j, …) and rows [p, …) begin in a right operand packed whole. */
static size_t packed_at(size_t j, size_t p, size_t n, size_t k)
{
    size_t columns = smallest(NC, n - j);
    return j * k + p * ((columns + NR - 1) / NR * NR);
}

size_t ptir_packed_floats(size_t k, size_t n) { return (n + NR - 1) / NR * NR * k; }

CLONES static void pack_whole(float *to, ptir_matrix c, size_t k, size_t n)
{
    for (size_t j = 0; j < n; j += NC)
        for (size_t p = 0; p < k; p += KC)
            pack(to + packed_at(j, p, n, k), c.data + (ptrdiff_t)p * c.rows + (ptrdiff_t)j * c.columns, c.columns, c.rows,
                 smallest(NC, n - j), smallest(KC, k - p), NR);
}

void ptir_pack(float *to, ptir_matrix c, size_t k, size_t n) { pack_whole(to, c, k, n); }

CLONES static void gemm(float *out, ptir_matrix a, ptir_matrix c, const float *packed, size_t m, size_t n, size_t k,
                        float *scratch, ptir_watch *watch)
{
    float *left = scratch, *own = scratch + (size_t)MC * KC, *spare = own + (size_t)NC * KC;
    if (k == 0)
        memset(out, 0, m * n * sizeof *out);
    for (size_t j = 0; j < n; j += NC)
        for (size_t p = 0; p < k; p += KC) {
            size_t columns = smallest(NC, n - j), depth = smallest(KC, k - p);
            if (is_stopped(watch, columns * depth * m))
                return;
            const float *right = packed ? packed + packed_at(j, p, n, k) : own;
            if (!packed)
                pack(own, c.data + (ptrdiff_t)p * c.rows + (ptrdiff_t)j * c.columns, c.columns, c.rows, columns, depth, NR);
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

void ptir_gemm(float *out, ptir_matrix a, ptir_matrix c, const float *packed, size_t batch, size_t m, size_t n, size_t k,
               float *scratch, ptir_watch *watch)
{
    for (size_t b = 0; b < batch && !watch->stopped; b++) {
        gemm(out + b * m * n, a, c, packed, m, n, k, scratch, watch);
        a.data += a.batch;
        c.data += packed ? 0 : c.batch;
    }
}

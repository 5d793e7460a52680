/* Matrix product. Both operands are packed: the left in panels of MR rows, the right in panels of NR columns, so that the
 * micro-kernel reads both in order. A block of KC x NC of the right operand stays in the cache of level 2 or 3, a block of MC x KC
 * of the left one in level 2, a panel of the right one in level 1. */

enum { KC = 256, MC = 96 / MR * MR, NC = 1024 / NR * NR };

static size_t packed_scratch(void) { return (size_t)MC * KC + MR * NR + 3 * LINE; }

static size_t gemm_scratch(void) { return packed_scratch() + (size_t)NC * KC; }

static size_t packed_floats(size_t k, size_t n) { return (n + NR - 1) / NR * NR * k; }

/* `to[panel][k][r]` = element (panel * width + r, k), 0 beyond `count`; steps between r and between k are given. */
PTIR_INLINE void pack(float *to, const float *from, ptrdiff_t step, ptrdiff_t depth_step, size_t count, size_t depth,
                      size_t width)
{
    for (size_t start = 0; start < count; start += width) {
        size_t here = smallest(width, count - start), turned = 0;
        const float *base = from + (ptrdiff_t)start * step;
        if (here == width && step == 1) {
            for (size_t k = 0; k < depth; k++, to += width)
                memcpy(to, base + (ptrdiff_t)k * depth_step, width * sizeof *to);
            continue;
        }
        if (here == width && depth_step == 1) {
            if (width % 8 == 0)
                for (; turned + 8 <= depth; turned += 8)
                    for (size_t r = 0; r < width; r += 8)
                        turn8(to + turned * width + r, (ptrdiff_t)width, base + (ptrdiff_t)r * step + turned, step);
            else if (width % 4 == 0)
                for (; turned + 4 <= depth; turned += 4)
                    for (size_t r = 0; r < width; r += 4)
                        turn4(to + turned * width + r, (ptrdiff_t)width, base + (ptrdiff_t)r * step + turned, step);
        }
        for (size_t k = turned; k < depth; k++)
            for (size_t r = 0; r < width; r++)
                to[k * width + r] = r < here ? base[(ptrdiff_t)r * step + (ptrdiff_t)k * depth_step] : 0.0f;
        to += width * depth;
    }
}

/* A block of `rows` x `vectors` vectors, both known when it is compiled: all sums stay in registers. */
PTIR_INLINE void micro(float *restrict out, size_t stride, const float *restrict a, const float *restrict b, size_t depth,
                       int add, int rows, int vectors)
{
    floats sum[MR][NRV];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (floats){0};
    for (size_t k = 0; k < depth; k++, a += MR, b += NR) {
        floats right[NRV];
        for (int v = 0; v < vectors; v++)
            right[v] = *(const floats *)(b + v * W);
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vectors; v++)
                sum[i][v] += a[i] * right[v];
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) {
            floats *to = (floats *)(out + i * stride + v * W);
            if (add)
                sum[i][v] += *to;
            *to = sum[i][v];
        }
}

/* The block at a corner of the result: no more rows and vectors than are there, written by way of `spare` when a vector is cut. */
PTIR_INLINE void corner(float *out, size_t stride, const float *a, const float *b, size_t depth, int add, size_t rows,
                        size_t columns, float *spare)
{
    int cut = columns % W != 0;
    float *to = cut ? spare : out;
    size_t step = cut ? NR : stride;
    int keep = add && !cut;
#define ROWS(r)                                                                                                        \
    case r:                                                                                                            \
        if (columns > 2 * W && NRV > 2)                                                                                \
            micro(to, step, a, b, depth, keep, r, NRV);                                                                \
        else if (columns > W)                                                                                          \
            micro(to, step, a, b, depth, keep, r, 2);                                                                  \
        else                                                                                                           \
            micro(to, step, a, b, depth, keep, r, 1);                                                                  \
        break;
    switch (rows) {
        ROWS(1)
        ROWS(2)
        ROWS(3)
        ROWS(4)
#if MR > 4
        ROWS(5)
        ROWS(6)
        ROWS(7)
        ROWS(8)
#endif
    }
#undef ROWS
    for (size_t i = 0; cut && i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            out[i * stride + j] = (add ? out[i * stride + j] : 0.0f) + spare[i * NR + j];
}

static void macro_block(float *out, size_t stride, const float *a, const float *b, size_t m, size_t n, size_t depth, int add,
                        float *spare)
{
    for (size_t j = 0; j < n; j += NR)
        for (size_t i = 0; i < m; i += MR) {
            float *to = out + i * stride + j;
            if (m - i >= MR && n - j >= NR)
                micro(to, stride, a + i * depth, b + j * depth, depth, add, MR, NRV);
            else
                corner(to, stride, a + i * depth, b + j * depth, depth, add, smallest(MR, m - i), smallest(NR, n - j), spare);
        }
}

/* Where the panels of columns [j, …) and rows [p, …) begin in a right operand packed whole. */
static size_t packed_at(size_t j, size_t p, size_t n, size_t k)
{
    size_t columns = smallest(NC, n - j);
    return j * k + p * ((columns + NR - 1) / NR * NR);
}

static void pack_whole(float *to, ptir_matrix c, size_t k, size_t n)
{
    for (size_t j = 0; j < n; j += NC)
        for (size_t p = 0; p < k; p += KC)
            pack(to + packed_at(j, p, n, k), c.data + (ptrdiff_t)p * c.rows + (ptrdiff_t)j * c.columns, c.columns, c.rows,
                 smallest(NC, n - j), smallest(KC, k - p), NR);
}

/* Rows of patches, packed as `pack` does a left operand: rows [first, first + count), columns [p, p + depth). Eight rows at a time
 * are turned, each from where its pixel is, or from zeros. */
static void pack_patches(float *to, const ptir_patches *x, size_t first, size_t count, size_t p, size_t depth)
{
    static const float zeros[KC];
    for (size_t start = 0; start < count; start += MR, to += MR * depth) {
        ptrdiff_t top[MR], left[MR];
        const float *image[MR], *from[MR];
        for (size_t r = 0; r < MR; r++) {
            size_t at = smallest(first + start + r, first + count - 1), line = at / x->places[1];
            image[r] = x->data + (ptrdiff_t)(line / x->places[0]) * x->batch;
            top[r] = (ptrdiff_t)(line % x->places[0] * x->stride[0]) - x->low[0];
            left[r] = (ptrdiff_t)(at % x->places[1] * x->stride[1]) - x->low[1];
        }
        for (size_t k = 0, here; k < depth; k += here) {
            size_t tap = (p + k) / x->channels, channel = (p + k) % x->channels, done = 0;
            here = smallest(x->channels - channel, depth - k);
            for (size_t r = 0; r < MR; r++) {
                ptrdiff_t i = top[r] + (ptrdiff_t)(tap / x->window[1] * x->dilation[0]);
                ptrdiff_t j = left[r] + (ptrdiff_t)(tap % x->window[1] * x->dilation[1]);
                int inside = i >= 0 && j >= 0 && i < (ptrdiff_t)x->extent[0] && j < (ptrdiff_t)x->extent[1];
                from[r] = inside ? image[r] + i * x->row + j * x->column + (ptrdiff_t)channel : zeros;
            }
            if (MR == 8)
                for (; done + 8 <= here; done += 8)
                    turn8_from(to + (k + done) * MR, MR, (const void *const *)from, done);
            for (; done < here; done++)
                for (size_t r = 0; r < MR; r++)
                    to[(k + done) * MR + r] = from[r][done];
        }
    }
}

/* Rows [first, first + m) of the product of `a`, or of `patches` where they are given; rows of the result are `step` apart. */
static void gemm(float *out, size_t step, ptir_matrix a, const ptir_patches *patches, size_t first, ptir_matrix c,
                 const float *packed, size_t m, size_t n, size_t k, float *scratch, ptir_watch *watch)
{
    float *left = at_line(scratch), *spare = at_line(left + (size_t)MC * KC), *own = at_line(spare + MR * NR);
    for (size_t i = 0; k == 0 && i < m; i++)
        memset(out + i * step, 0, n * sizeof *out);
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
                if (patches)
                    pack_patches(left, patches, first + i, rows, p, depth);
                else
                    pack(left, a.data + (ptrdiff_t)i * a.rows + (ptrdiff_t)p * a.columns, a.rows, a.columns, rows, depth, MR);
                macro_block(out + i * step + j, step, left, right, rows, columns, depth, p > 0, spare);
            }
        }
}

static void gemm_batch(float *out, ptir_matrix a, ptir_matrix c, const float *packed, size_t batch, size_t m, size_t n, size_t k,
                       float *scratch, ptir_watch *watch)
{
    for (size_t b = 0; b < batch && !watch->stopped; b++) {
        gemm(out + b * m * n, n, a, NULL, 0, c, packed, m, n, k, scratch, watch);
        a.data += a.batch;
        c.data += packed ? 0 : c.batch;
    }
}

static void conv(float *out, size_t step, size_t group_step, const ptir_patches *x, const float *packed, size_t first, size_t m,
                 size_t n, float *scratch, ptir_watch *watch)
{
    size_t k = x->window[0] * x->window[1] * x->channels;
    ptir_matrix none = {0};
    ptir_patches group = *x;
    for (size_t g = 0; g < x->groups && !watch->stopped; g++, group.data += x->channels)
        gemm(out + g * group_step, step, none, &group, first, none, packed + g * packed_floats(k, n), m, n, k, scratch, watch);
}

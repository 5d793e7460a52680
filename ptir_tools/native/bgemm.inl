/* Matrix product of bf16 with f32 sums, by the dot-product instruction for pairs (AVX-512 BF16). Operands are packed as in
 * gemm.inl; one 32-bit word holds two consecutive elements along k.
 *
 * The instruction flushes subnormal numbers to 0. It is used only where none can occur: if every product is a multiple of the
 * smallest normal number, so is every sum. Other row blocks use the same packed panels, but convert each element and multiply in
 * f32. */
#include "magnitudes.h"

enum { BKC = 512, BMC = 96 / MR * MR, BNC = 1008 / NR * NR }; /* in elements: BKC / 2 words */

typedef uint32_t words_of_pairs __attribute__((vector_size(4 * W), aligned(4), may_alias));

static size_t bgemm_scratch(void) { return ((size_t)BMC + BNC + NR) * (BKC / 2) + (size_t)MR * NR + 3 * LINE; }

static size_t paired_words(size_t k, size_t n) { return padded_columns(n) * ((k + 1) / 2); }

/* Pack: `to[panel][k / 2][r]` = elements (panel * width + r, k) and (…, k + 1). Padding beyond `count` and `depth` is 0. */
PTIR_INLINE void pack_pairs(uint32_t *to, const uint16_t *from, ptrdiff_t step, ptrdiff_t depth_step, size_t count, size_t depth,
                            size_t width)
{
    for (size_t start = 0; start < count; start += width) {
        size_t here = smallest(width, count - start), k = 0;
        const uint16_t *base = from + (ptrdiff_t)start * step;
        if (here == width && depth_step == 1 && width == SIDE)
            for (; k + 2 * SIDE <= depth; k += 2 * SIDE, to += SIDE * width) {
                const void *rows[SIDE];
                for (int r = 0; r < SIDE; r++)
                    rows[r] = base + r * step + k;
                transpose8_from(to, SIDE, rows, 0);
            }
        for (; k < depth; k += 2, to += width) {
            const uint16_t *low = base + (ptrdiff_t)k * depth_step, *high = low + depth_step;
            if (here == width && step == 1 && k + 1 < depth)
                for (size_t r = 0; r < width; r++)
                    to[r] = low[r] | (uint32_t)high[r] << 16;
            else
                for (size_t r = 0; r < width; r++) {
                    uint32_t first = r < here ? low[(ptrdiff_t)r * step] : 0;
                    to[r] = first | (r < here && k + 1 < depth ? (uint32_t)high[(ptrdiff_t)r * step] << 16 : 0);
                }
        }
    }
}

PTIR_INLINE floats pair_dot(floats sum, uint32_t a, words_of_pairs b, int no_subnormals)
{
    if (no_subnormals)
        return (floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
    sum += (floats)(b << 16) * from_bits(a << 16);
    return sum + (floats)(b & 0xffff0000u) * from_bits(a & 0xffff0000u);
}

PTIR_INLINE void bmicro(float *restrict out, size_t stride, const uint32_t *restrict a, const uint32_t *restrict b, size_t steps,
                        int add, int no_subnormals, int vectors)
{
    floats sum[MR][NRV];
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (floats){0};
    for (size_t k = 0; k < steps; k++, a += MR, b += vectors * W) {
        words_of_pairs right[NRV];
        for (int v = 0; v < vectors; v++)
            right[v] = *(const words_of_pairs *)(b + v * W);
        for (int i = 0; i < MR; i++)
            for (int v = 0; v < vectors; v++)
                sum[i][v] = pair_dot(sum[i][v], a[i], right[v], no_subnormals);
    }
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < vectors; v++) {
            floats *to = (floats *)(out + i * stride + v * W);
            if (add)
                sum[i][v] += *to;
            *to = sum[i][v];
        }
}

/* Multiply packed panels. `no_subnormals[i / MR]` says whether a block of MR rows may use the instruction. */
PTIR_INLINE void bblock(float *out, size_t stride, const uint32_t *a, const uint32_t *b, size_t m, size_t n, size_t steps, int add,
                        float *spare, const uint8_t *no_subnormals)
{
    for (size_t j = 0, width; j < n; j += width) {
        size_t columns = smallest(width = panel_width(n - j), n - j);
        for (size_t i = 0; i < m; i += MR) {
            float *to = out + i * stride + j;
            size_t rows = smallest(MR, m - i), is_whole = rows == MR && columns == width, step = is_whole ? stride : NR;
            prefetch_lines(to, stride, rows, columns);
#define MICRO(vectors) bmicro(is_whole ? to : spare, step, a + i * steps, b + j * steps, steps, is_whole && add, 1, vectors)
#define IN_F32(vectors) bmicro(is_whole ? to : spare, step, a + i * steps, b + j * steps, steps, is_whole && add, 0, vectors)
            if (no_subnormals[i / MR])
                BY_VECTORS(width, MICRO)
            else
                BY_VECTORS(width, IN_F32)
#undef IN_F32
#undef MICRO
            for (size_t r = 0; !is_whole && r < rows; r++)
                for (size_t c = 0; c < columns; c++)
                    to[r * stride + c] = (add ? to[r * stride + c] : 0.0f) + spare[r * NR + c];
        }
    }
}

/* Offset of the panels of columns [j, …) and rows [p, …) in a completely packed right operand. */
static size_t pairs_at(size_t j, size_t p, size_t n, size_t k) { return j * ((k + 1) / 2) + p / 2 * padded_columns(block_width(n - j, BNC)); }

/* Pack one block of `columns` columns: only the panels whose first column is in `wanted`. */
static PTIR_NOINLINE void pack_pair_panels(uint32_t *to, ptir_halves c, size_t p, size_t first, size_t columns, size_t depth,
                                        column_range wanted)
{
    const uint16_t *from = c.data + (ptrdiff_t)p * c.rows + (ptrdiff_t)first * c.columns;
    for (size_t j = 0, width; j < columns; j += width) {
        size_t here = smallest(width = panel_width(columns - j), columns - j);
        uint32_t *panel = to + j * ((depth + 1) / 2);
        if (first + j < wanted.first || first + j >= wanted.last)
            continue;
#define PACK(vectors) pack_pairs(panel, from + (ptrdiff_t)j * c.columns, c.columns, c.rows, here, depth, (vectors) * W)
        BY_VECTORS(width, PACK)
#undef PACK
    }
}

static void pack_pairs_range(uint32_t *to, ptir_halves c, size_t k, size_t n, size_t first, size_t last)
{
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, BNC);
        for (size_t p = 0; p < k; p += BKC)
            pack_pair_panels(to + pairs_at(j, p, n, k), c, p, j, columns, smallest(BKC, k - p), (column_range){first, last});
    }
}

/* Undo `pack_pairs_range`: write the right operand as dense rows. */
static void unpack_pairs(uint16_t *to, const uint32_t *from, size_t k, size_t n)
{
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, BNC);
        for (size_t p = 0; p < k; p += BKC) {
            const uint32_t *block = from + pairs_at(j, p, n, k);
            const size_t depth = smallest(BKC, k - p);
            for (size_t i = 0, width; i < columns; i += width) {
                width = panel_width(columns - i);
                const uint32_t *panel = block + i * ((depth + 1) / 2);
                for (size_t r = 0; r < depth; r++)
                    for (size_t c = 0; c < smallest(width, columns - i); c++)
                        to[(p + r) * n + j + i + c] = (uint16_t)(panel[r / 2 * width + c] >> 16 * (r % 2));
            }
        }
    }
}

static void bgemm(void *sums, int is_narrow, ptir_halves a, ptir_halves c, const uint32_t *packed, size_t batch, size_t m, size_t n,
                  size_t k, float *scratch, ptir_watch *watch)
{
    float *out = sums;
    (void)is_narrow; /* always 0, since `bgemm_rounds` is 0 */
    uint32_t *left = (uint32_t *)at_line(scratch), *own = (uint32_t *)at_line((float *)(left + BMC * (BKC / 2)));
    float *spare = at_line((float *)(own + (BNC + NR) * (BKC / 2)));
    uint8_t no_subnormals[BMC / MR];
    if (k == 0)
        memset(out, 0, batch * m * n * sizeof *out);
    for (size_t t = 0; t < batch; t++, out += m * n, a.data += a.batch, c.data += packed ? 0 : c.batch) {
        uint16_t least = packed ? least_of((const uint16_t *)packed, 0, 1, 1, 2 * paired_words(k, n), MAGNITUDES)
                                : least_of(c.data, c.rows, c.columns, k, n, MAGNITUDES);
        for (size_t j = 0, columns; j < n; j += columns) {
            columns = block_width(n - j, BNC);
            for (size_t p = 0; p < k; p += BKC) {
                size_t depth = smallest(BKC, k - p), steps = (depth + 1) / 2;
                const uint32_t *right = own;
                if (is_stopped(watch, columns * depth * m))
                    return;
                if (packed)
                    right = packed + pairs_at(j, p, n, k);
                else
                    pack_pair_panels(own, c, p, j, columns, depth, (column_range){0, n});
                for (size_t i = 0; i < m; i += BMC) {
                    size_t rows = smallest(BMC, m - i);
                    float *to = out + i * n + j;
                    pack_pairs(left, a.data + (ptrdiff_t)i * a.rows + (ptrdiff_t)p * a.columns, a.rows, a.columns, rows, depth, MR);
                    for (size_t r = 0; r < rows; r += MR) {
                        const uint16_t *block = a.data + (ptrdiff_t)(i + r) * a.rows;
                        size_t here = smallest(MR, rows - r);
                        no_subnormals[r / MR] =
                            (uint8_t)is_normal_product(least_of(block, a.rows, a.columns, here, k, MAGNITUDES), least);
                    }
                    bblock(to, n, left, right, rows, columns, steps, p > 0, spare, no_subnormals);
                }
            }
        }
    }
}

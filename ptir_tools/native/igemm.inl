/* Matrix product of 8-bit integers with 32-bit sums, which wrap. Entries: `igemm`, `pack_bytes`.
 *
 * Operands are packed as in gemm.inl; a 32-bit word holds IG consecutive elements along k: four bytes if the instruction set has a
 * dot product of bytes, else two 16-bit numbers.
 *
 * The dot product of bytes takes an unsigned left and a signed right operand. A signed left operand is shifted up by 128, an
 * unsigned right one down by 128. The error that this adds depends only on row sums and column sums; it is subtracted where the
 * accumulators are initialized. The column sums are part of the packed right operand. */

enum { IKC = 512, IMC = 192 / MR * MR, INC = 1024 / NR * NR };

typedef uint32_t words_of_pack __attribute__((vector_size(4 * W), aligned(4), may_alias));

static size_t igemm_scratch(void)
{
    return ((size_t)IMC + INC + NR) * (IKC / IG) + (size_t)MR * NR + (size_t)IMC + INC + NR + (size_t)IMC * (INC + NR) + 6 * LINE;
}

/* Build a word from IG elements, `apart` bytes apart. With IG = 4, each byte is XORed with `how`; else `how` says whether bytes are
 * signed. */
PTIR_INLINE uint32_t word_of(const uint8_t *at, ptrdiff_t apart, uint8_t how)
{
#if IG == 4
    return (at[0] | (uint32_t)at[apart] << 8 | (uint32_t)at[2 * apart] << 16 | (uint32_t)at[3 * apart] << 24) ^ how * 0x01010101u;
#else
    uint32_t low = how ? (uint16_t)(int8_t)at[0] : at[0], high = how ? (uint16_t)(int8_t)at[apart] : at[apart];
    return low | high << 16;
#endif
}

#if IG == 4
typedef uint8_t row_bytes __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint16_t row_pairs __attribute__((vector_size(16), aligned(1), may_alias));

/* Sixteen adjacent words, each with one byte from each of four rows. */
PTIR_INLINE void sixteen_words(uint32_t *to, const uint8_t *at, ptrdiff_t apart, uint8_t how)
{
    row_bytes row[4], pairs[4], *out = (row_bytes *)to;
    for (int g = 0; g < 4; g++)
        row[g] = *(const row_bytes *)(at + g * apart) ^ how;
    for (int g = 0; g < 4; g += 2) {
        pairs[g] = __builtin_shufflevector(row[g], row[g + 1], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        pairs[g + 1] = __builtin_shufflevector(row[g], row[g + 1], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    for (int g = 0; g < 2; g++) {
        row_pairs low = (row_pairs)pairs[g], high = (row_pairs)pairs[g + 2];
        out[2 * g] = (row_bytes)__builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11);
        out[2 * g + 1] = (row_bytes)__builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15);
    }
}
#endif

/* Pack: `to[panel][k / IG][r]` = the IG elements (panel * width + r, k …). Padding beyond `count` and `depth` is 0. */
PTIR_INLINE void pack_words(uint32_t *to, const uint8_t *from, ptrdiff_t step, ptrdiff_t depth_step, size_t count, size_t depth,
                            size_t width, uint8_t how)
{
    for (size_t start = 0; start < count; start += width) {
        size_t here = smallest(width, count - start);
        const uint8_t *base = from + (ptrdiff_t)start * step;
        size_t k = 0;
#if IG == 4
        if (here == width && depth_step == 1 && width == SIDE)
            for (; k + 4 * SIDE <= depth; k += 4 * SIDE, to += SIDE * width) {
                const void *rows[SIDE];
                for (int r = 0; r < SIDE; r++)
                    rows[r] = base + r * step + k;
                transpose8_from(to, SIDE, rows, 0);
                for (size_t r = 0; r < SIDE * width; r++)
                    to[r] ^= how * 0x01010101u;
            }
        if (here == width && step == 1 && width % 16 == 0)
            for (; k + 4 <= depth; k += 4, to += width)
                for (size_t r = 0; r < width; r += 16)
                    sixteen_words(to + r, base + (ptrdiff_t)k * depth_step + r, depth_step, how);
#endif
        for (; k < depth; k += IG, to += width) {
            size_t whole = smallest(IG, depth - k);
            const uint8_t *at = base + (ptrdiff_t)k * depth_step;
            if (here < width)
                memset(to, 0, width * sizeof *to);
            if (whole == IG && step == 1 && here == width)
                for (size_t r = 0; r < width; r++)
                    to[r] = word_of(at + r, depth_step, how);
            else if (whole == IG && depth_step == 1)
                for (size_t r = 0; r < here; r++)
                    to[r] = word_of(at + (ptrdiff_t)r * step, 1, how);
            else
                for (size_t r = 0; r < here; r++) {
                    uint8_t last[IG];
                    for (size_t g = 0; g < IG; g++) /* padding becomes 0 in the word */
                        last[g] = g < whole ? at[(ptrdiff_t)r * step + (ptrdiff_t)g * depth_step] : IG == 4 ? how : 0;
                    to[r] = word_of(last, 1, how);
                }
        }
    }
}

/* `sums[r]` = `first` + `factor` times the sum along k of packed row r, with signed or unsigned bytes. */
static void sum_words(int32_t *sums, const uint32_t *from, size_t count, size_t steps, size_t width, int is_signed,
                      int32_t factor, int32_t first)
{
    memset(sums, 0, (count + width - 1) / width * width * sizeof *sums);
    for (size_t start = 0; factor && start < count; start += width)
        for (size_t k = 0; k < steps; k++, from += width)
            for (size_t r = 0; r < width; r++)
                for (int g = 0; g < 32; g += 8) {
                    int32_t byte = (int32_t)(from[r] >> g & 0xff);
                    sums[start + r] += is_signed ? (int8_t)byte : byte;
                }
    for (size_t r = 0; r < count; r++)
        sums[r] = (int32_t)((uint32_t)sums[r] * (uint32_t)factor + (uint32_t)first);
}

/* Add the IG products of each pair of words. */
#ifndef IDOT
PTIR_INLINE ints idot(ints sum, uint32_t a, words_of_pack b)
{
    ints right = (ints)b;
    return sum + (int16_t)a * (right << 16 >> 16) + ((int32_t)a >> 16) * (right >> 16);
}
#define IDOT(sum, a, b) idot(sum, a, b)
#endif

/* The micro-kernel. The accumulators begin at rows_add + columns_add. `ahead` words further are prefetched, unless 0. */
PTIR_INLINE void imicro(int32_t *restrict out, size_t stride, const uint32_t *restrict a, const uint32_t *restrict b,
                        const int32_t *rows_add, const int32_t *columns_add, size_t steps, int add, int vectors, size_t ahead)
{
    ints sum[MR][NRV];
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = *(const ints *)(columns_add + v * W) + rows_add[i];
    for (size_t k = 0; k < steps; k++, a += MR, b += vectors * W) {
        words_of_pack right[NRV];
        for (int v = 0; v < vectors; v++) {
            right[v] = *(const words_of_pack *)(b + v * W);
            if (ahead)
                ptir_prefetch(b + ahead + v * W);
        }
        for (int i = 0; i < MR; i++)
            for (int v = 0; v < vectors; v++)
                sum[i][v] = IDOT(sum[i][v], a[i], right[v]);
    }
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < vectors; v++) {
            ints *to = (ints *)(out + i * stride + v * W);
            if (add)
                sum[i][v] += *to;
            *to = sum[i][v];
        }
}

typedef uint32_t word_anywhere __attribute__((aligned(1), may_alias));

#if IG == 4
/* As `imicro`, of unsigned bytes where they are: rows are `apart` bytes apart, and those beyond `rows` repeat the last one. */
PTIR_INLINE void imicro_in_place(int32_t *restrict out, size_t stride, const uint8_t *restrict a, ptrdiff_t apart, size_t rows,
                                 const uint32_t *restrict b, const int32_t *columns_add, size_t steps, int add, int vectors, size_t ahead)
{
    ints sum[MR][NRV];
    const word_anywhere *row[MR];
    for (int i = 0; i < MR; i++) {
        row[i] = (const word_anywhere *)(a + (ptrdiff_t)smallest((size_t)i, rows - 1) * apart);
        for (int v = 0; v < vectors; v++)
            sum[i][v] = *(const ints *)(columns_add + v * W);
    }
    for (size_t k = 0; k < steps; k++, b += vectors * W) {
        words_of_pack right[NRV];
        for (int v = 0; v < vectors; v++) {
            right[v] = *(const words_of_pack *)(b + v * W);
            if (ahead)
                ptir_prefetch(b + ahead + v * W);
        }
        for (int i = 0; i < MR; i++)
            for (int v = 0; v < vectors; v++)
                sum[i][v] = IDOT(sum[i][v], row[i][k], right[v]);
    }
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < vectors; v++) {
            ints *to = (ints *)(out + i * stride + v * W);
            if (add)
                sum[i][v] += *to;
            *to = sum[i][v];
        }
}
#endif

/* One row of the micro-kernel, in four sums that do not wait for each other. Words of the row are `apart`. */
PTIR_INLINE void irow(int32_t *restrict out, const word_anywhere *restrict a, size_t apart, const uint32_t *restrict b, int32_t row_add,
                      const int32_t *columns_add, size_t steps, int vectors)
{
    ints sum[4][NRV];
    size_t k = 0;
    UNROLLED
    for (int s = 0; s < 4; s++)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[s][v] = (ints){0};
    for (; k + 4 <= steps; k += 4, a += 4 * apart, b += 4 * vectors * W)
        UNROLLED
        for (int s = 0; s < 4; s++)
            UNROLLED
            for (int v = 0; v < vectors; v++)
                sum[s][v] = IDOT(sum[s][v], a[s * apart], *(const words_of_pack *)(b + (s * vectors + v) * W));
    for (; k < steps; k++, a += apart, b += vectors * W)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[0][v] = IDOT(sum[0][v], *a, *(const words_of_pack *)(b + v * W));
    for (int v = 0; v < vectors; v++)
        *(ints *)(out + v * W) = sum[0][v] + sum[1][v] + (sum[2][v] + sum[3][v]) + *(const ints *)(columns_add + v * W) + row_add;
}

/* Rows of a left operand: packed, or with IG == 4 unsigned bytes where they are, `apart` bytes from row to row. */
typedef struct {
    const uint32_t *packed; /* NULL if in place */
    size_t panel;           /* rows per packed panel */
    const uint8_t *rows;
    ptrdiff_t apart;
} left_words;

static void iblock(int32_t *out, size_t stride, const left_words *a, const uint32_t *b, const int32_t *rows_add,
                   const int32_t *columns_add, size_t m, size_t n, size_t steps, int add, int32_t *spare)
{
    for (size_t j = 0, width; j < n; j += width) {
        size_t columns = smallest(width = panel_width(n - j), n - j);
        for (size_t i = 0; i < m; i += MR) {
            int32_t *to = out + i * stride + j;
            size_t rows = smallest(MR, m - i), is_whole = rows == MR && columns == width, step = is_whole ? stride : NR;
            const int ahead = !i && j + 2 * NR <= n; /* prefetch the next panel, which is not in a near cache */
            prefetch_lines(to, stride, rows, columns);
#define PACKED(vectors, ahead)                                                                                         \
    imicro(is_whole ? to : spare, step, a->packed + i * steps, b + j * steps, rows_add + i, columns_add + j, steps, is_whole && add, vectors, ahead)
#if IG == 4
#define IN_PLACE(vectors, ahead)                                                                                       \
    imicro_in_place(is_whole ? to : spare, step, a->rows + (ptrdiff_t)i * a->apart, a->apart, rows, b + j * steps, columns_add + j, steps,  \
                    is_whole && add, vectors, ahead)
#define MICRO(vectors, ahead) (a->packed ? PACKED(vectors, ahead) : IN_PLACE(vectors, ahead))
#else
#define MICRO(vectors, ahead) PACKED(vectors, ahead)
#endif
#define PANEL(vectors) MICRO(vectors, 0)
#define ROW(vectors) irow(spare, row, apart, b + j * steps, rows_add[i], columns_add + j, steps, vectors)
            const word_anywhere *row = a->packed ? a->packed + i * steps : (const void *)(a->rows + (ptrdiff_t)i * a->apart);
            const size_t apart = a->packed ? a->panel : 1;
            if (rows == 1)
                BY_VECTORS(width, ROW)
            else if (ahead)
                MICRO(NRV, NR * steps);
            else
                BY_VECTORS(width, PANEL)
#undef ROW
#undef PANEL
#undef MICRO
#undef IN_PLACE
#undef PACKED
            for (size_t r = 0; !is_whole && r < rows; r++)
                for (size_t c = 0; c < columns; c++)
                    to[r * stride + c] = (int32_t)((add ? (uint32_t)to[r * stride + c] : 0) + (uint32_t)spare[r * NR + c]);
        }
    }
}

/* The column sums of one panel. */
PTIR_INLINE void sum_panel(int32_t *sums, const uint32_t *from, size_t steps, int vectors)
{
    ints found[NRV];
    memset(found, 0, sizeof found);
    for (size_t k = 0; k < steps; k++, from += vectors * W)
        for (int v = 0; v < vectors; v++)
            found[v] = IDOT(found[v], 0x01010101u, *(const words_of_pack *)(from + v * W));
    for (int v = 0; v < vectors; v++)
        *(ints *)(sums + v * W) = found[v];
}

/* Layout of a packed right operand: all words, then the column sums per block of IKC rows. `words_at` and `sums_at` give the
 * offsets for columns [j, …) and rows [p, …). */
static size_t whole_words(size_t k, size_t n) { return padded_columns(n) * ((k + IG - 1) / IG); }

static size_t packed_words(size_t k, size_t n) { return whole_words(k, n) + (IG == 4 ? padded_columns(n) * ((k + IKC - 1) / IKC) : 0); }

static size_t words_at(size_t j, size_t p, size_t n, size_t k)
{
    return j * ((k + IG - 1) / IG) + p / IG * padded_columns(block_width(n - j, INC));
}

static size_t sums_at(size_t j, size_t p, size_t n, size_t k) { return whole_words(k, n) + p / IKC * padded_columns(n) + j; }

static uint8_t right_how(ptir_bytes c) { return IG == 4 ? (c.is_signed ? 0 : 128) : (uint8_t)c.is_signed; }

/* Pack one block of `columns` columns: only the panels whose first column is in `wanted`. Column sums are written unless `sums` is
 * NULL. */
static PTIR_NOINLINE void pack_word_panels(uint32_t *to, int32_t *sums, ptir_bytes c, size_t p, size_t first, size_t columns, size_t depth,
                                        column_range wanted)
{
    const uint8_t *from = c.data + (ptrdiff_t)p * c.rows + (ptrdiff_t)first * c.columns, how = right_how(c);
    for (size_t j = 0, width; j < columns; j += width) {
        size_t here = smallest(width = panel_width(columns - j), columns - j);
        uint32_t *panel = to + j * ((depth + IG - 1) / IG);
        if (first + j < wanted.first || first + j >= wanted.last)
            continue;
#define PACK(vectors) pack_words(panel, from + (ptrdiff_t)j * c.columns, c.columns, c.rows, here, depth, (vectors) * W, how)
#define SUM(vectors) sum_panel(sums + j, panel, (depth + IG - 1) / IG, vectors)
        BY_VECTORS(width, PACK)
        if (IG == 4 && sums)
            BY_VECTORS(width, SUM)
#undef SUM
#undef PACK
    }
}

static void pack_bytes(uint32_t *to, ptir_bytes c, size_t k, size_t n, size_t first, size_t last)
{
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, INC);
        for (size_t p = 0; p < k; p += IKC)
            pack_word_panels(to + words_at(j, p, n, k), (int32_t *)to + sums_at(j, p, n, k), c, p, j, columns, smallest(IKC, k - p),
                             (column_range){first, last});
    }
}

/* Undo `pack_bytes`: write the right operand as dense rows. */
static void unpack_bytes(uint8_t *to, const uint32_t *from, size_t k, size_t n, int is_signed)
{
    const uint8_t how = IG == 4 ? right_how((ptir_bytes){.is_signed = is_signed}) : 0;
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, INC);
        for (size_t p = 0; p < k; p += IKC) {
            const uint32_t *block = from + words_at(j, p, n, k);
            const size_t depth = smallest(IKC, k - p);
            for (size_t i = 0, width; i < columns; i += width) {
                width = panel_width(columns - i);
                const uint32_t *panel = block + i * ((depth + IG - 1) / IG);
                for (size_t r = 0; r < depth; r++)
                    for (size_t c = 0; c < smallest(width, columns - i); c++)
                        to[(p + r) * n + j + i + c] = (uint8_t)(panel[r / IG * width + c] >> 32 / IG * (r % IG)) ^ how;
            }
        }
    }
}

/* Contiguous rows as they are, or with `up` a copy with all bytes XORed with it. */
static left_words unsigned_rows(uint32_t *own, const uint8_t *from, ptrdiff_t apart, size_t rows, size_t depth, uint8_t up)
{
    const left_words found = {NULL, 0, up ? (const uint8_t *)own : from, up ? (ptrdiff_t)depth : apart};
    for (uint8_t *to = (uint8_t *)own; up && rows; rows--, to += depth, from += apart)
        for (size_t k = 0; k < depth; k++)
            to[k] = from[k] ^ up;
    return found;
}

static void igemm(void *result, const ptir_quantizing *to, ptir_bytes a, ptir_bytes c, const uint32_t *packed, size_t batch, size_t m,
                  size_t n, size_t k, float *scratch, ptir_watch *watch)
{
    uint32_t *left = (uint32_t *)at_line(scratch), *own = (uint32_t *)at_line((float *)(left + IMC * (IKC / IG)));
    int32_t *rows_add = (int32_t *)at_line((float *)(own + (INC + NR) * (IKC / IG)));
    int32_t *columns_add = (int32_t *)at_line((float *)(rows_add + IMC)), *spare = (int32_t *)at_line((float *)(columns_add + INC + NR));
    int32_t *sums = (int32_t *)at_line((float *)(spare + MR * NR)), *out = result; /* 32-bit sums, if the result has another dtype */
    uint8_t up = IG == 4 && a.is_signed ? 128 : 0, down = IG == 4 && !c.is_signed ? 128 : 0;
    const size_t most = to ? IMC : m, size = to && to->to != 'f' ? 1 : sizeof *out;
    if (k == 0)
        memset(out, 0, batch * m * n * sizeof *out);
    for (size_t t = 0; t < batch; t++, out += m * n, a.data += a.batch, c.data += packed ? 0 : c.batch)
        for (size_t start = 0; start < m; start += most) {
            const size_t height = smallest(most, m - start);
            for (size_t j = 0, columns; j < n; j += columns) {
                columns = block_width(n - j, INC);
                for (size_t p = 0; p < k; p += IKC) {
                    size_t depth = smallest(IKC, k - p), steps = (depth + IG - 1) / IG;
                    if (is_stopped(watch, columns * depth * height))
                        return;
                    const uint32_t *right = packed ? packed + words_at(j, p, n, k) : own;
                    const int32_t *column_sums = packed && up ? (const int32_t *)packed + sums_at(j, p, n, k) : columns_add;
                    if (!packed)
                        pack_word_panels(own, up ? columns_add : NULL, c, p, j, columns, depth, (column_range){0, n});
                    for (size_t i = 0; i < padded_columns(columns); i++)
                        columns_add[i] = (up ? (int32_t)(-up * (uint32_t)column_sums[i]) : 0) - (int32_t)depth * up * down;
                    for (size_t i = start; i < start + height; i += IMC) {
                        const size_t rows = smallest(IMC, start + height - i), panel = rows == 1 ? 1 : MR;
                        const uint8_t *from = a.data + (ptrdiff_t)i * a.rows + (ptrdiff_t)p * a.columns;
                        left_words found = {left, panel, NULL, 0};
                        if (IG == 4 && !down && a.columns == 1 && (a.is_padded || depth % 4 == 0))
                            found = unsigned_rows(left, from, a.rows, rows, 4 * steps, up);
                        else
                            pack_words(left, from, a.rows, a.columns, rows, depth, panel, IG == 4 ? up : a.is_signed);
                        sum_words(rows_add, left, rows, steps, panel, 0, down, 0);
                        iblock(to ? sums : out + i * n + j, to ? INC + NR : n, &found, right, rows_add, columns_add, rows, columns, steps,
                               p > 0, spare);
                    }
                }
                if (to)
                    quantize_block((char *)result + (start * n + j) * size, n, sums, INC + NR, to, start, j, height, columns);
            }
        }
}

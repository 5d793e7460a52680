/* Matrix product and convolution of f32, with an epilogue. Entries: `gemm_batch`, `conv`, `pack_range`.
 *
 * Operands are packed: the left one in panels of MR rows, the right one in panels of NR columns, so that the micro-kernel reads
 * both sequentially. A KC x NC block of the right operand stays in the level-2 or level-3 cache, a MC x KC block of the left
 * operand in level 2, and one panel of the right operand in level 1. */

#if PTIR_X86 && W == 8
enum { MC = 192 / MR * MR, NC = 1032 / NR * NR, IN_ASSEMBLY = 1 };
#else
enum { MC = 96 / MR * MR, NC = 528 / NR * NR, IN_ASSEMBLY = 0 };
#endif

static size_t packed_scratch(void) { return (size_t)MC * KC + MR * NR + 3 * LINE; }

static size_t gemm_scratch(void) { return packed_scratch() + (size_t)(NC + NR) * KC; }

static size_t packed_floats(size_t k, size_t n) { return padded_columns(n) * k; }

enum { AHEAD = 12 }; /* prefetch distance while packing, in rows of the right operand */

/* Pack: `to[panel][k][r]` = element (panel * width + r, k), 0 beyond `count`. `step` is the stride of r, `depth_step` the stride of
 * k. */
PTIR_INLINE void pack(float *to, const float *from, ptrdiff_t step, ptrdiff_t depth_step, size_t count, size_t depth,
                      size_t width)
{
    for (size_t start = 0; start < count; start += width) {
        size_t here = smallest(width, count - start), transposed = 0;
        const float *base = from + (ptrdiff_t)start * step;
        if (here == width && step == 1) {
            for (size_t k = 0; k < depth; k++, to += width) {
                const float *at = base + (ptrdiff_t)k * depth_step;
                if (W <= 8) { /* the rows are too far apart for the hardware prefetcher */
                    ptir_prefetch(at + AHEAD * depth_step);
                    if (width > LINE)
                        ptir_prefetch(at + AHEAD * depth_step + width - 1);
                }
                memcpy(to, at, width * sizeof *to);
            }
            continue;
        }
        if (here == width && depth_step == 1) {
            if (width % 8 == 0)
                for (; transposed + 8 <= depth; transposed += 8)
                    for (size_t r = 0; r < width; r += 8)
                        transpose8(to + transposed * width + r, (ptrdiff_t)width, base + (ptrdiff_t)r * step + transposed, step);
            else if (width == 4)
                for (; transposed + 8 <= depth; transposed += 8) {
                    for (size_t r = width; r < 2 * width && transposed % LINE == 0; r++)
                        ptir_prefetch(base + (ptrdiff_t)r * step + transposed);
                    transpose4(to + transposed * width, base + transposed, step);
                }
        }
        for (size_t k = transposed; k < depth; k++)
            for (size_t r = 0; r < width; r++)
                to[k * width + r] = r < here ? base[(ptrdiff_t)r * step + (ptrdiff_t)k * depth_step] : 0.0f;
        to += width * depth;
    }
}

#if PTIR_X86 && W == 8
/* The micro-kernel of a full register block, in assembly: a compiler would copy accumulators between registers. Four steps of k per
 * iteration, so that few instructions are not products: a second thread on the core takes half of the issue slots. */
#define LOAD(at, to) "vmovups " #at "(%[b]), %%ymm" #to "\n\t"
#define MULTIPLY(from, to) "vfmadd231ps %%ymm" #from ", %%ymm15, %" #to "\n\t"
#define ROW(at, x, y, z) "vbroadcastss " #at "(%[a]), %%ymm15\n\t" MULTIPLY(12, x) MULTIPLY(13, y) MULTIPLY(14, z)
#define PRODUCTS(b0, b1, b2, a0, a1, a2, a3)                                                                           \
    LOAD(b0, 12) LOAD(b1, 13) LOAD(b2, 14) ROW(a0, 0, 1, 2) ROW(a1, 3, 4, 5) ROW(a2, 6, 7, 8) ROW(a3, 9, 10, 11)
#define SUMS(i) "+x"(sum[i][0]), "+x"(sum[i][1]), "+x"(sum[i][2])
#define OPERANDS SUMS(0), SUMS(1), SUMS(2), SUMS(3), [a] "+r"(a), [b] "+r"(b)
#define CHANGED "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory"
PTIR_INLINE void whole_block_in_assembly(floats (*sum)[NRV], const float *a, const float *b, size_t depth)
{
    const float *last = b + depth * NR, *end = b + depth / 4 * 4 * NR;
    if (b != end)
        __asm__ volatile("1:\n\t" PRODUCTS(0, 32, 64, 0, 4, 8, 12) PRODUCTS(96, 128, 160, 16, 20, 24, 28)
                             PRODUCTS(192, 224, 256, 32, 36, 40, 44) PRODUCTS(288, 320, 352, 48, 52, 56, 60)
                         "add $64, %[a]\n\tadd $384, %[b]\n\tcmp %[end], %[b]\n\tjne 1b"
                         : OPERANDS
                         : [end] "r"(end)
                         : CHANGED);
    while (b != last)
        __asm__ volatile(PRODUCTS(0, 32, 64, 0, 4, 8, 12) "add $16, %[a]\n\tadd $96, %[b]" : OPERANDS : : CHANGED);
}
#undef LOAD
#undef MULTIPLY
#undef ROW
#undef PRODUCTS
#undef SUMS
#undef OPERANDS
#undef CHANGED
#endif

/* Rows of a register block: MR, or a few less if lines of places are a multiple of that. Then no block is in two lines, and at the
 * edge of an image it is in the padding as a whole. */
enum { LESS_ROWS = MR == 8 ? 7 : MR };
PTIR_INLINE size_t rows_of_blocks(const left_rows *x, size_t m)
{
    const size_t line = x->patches ? x->patches->places[1] : m;
    return line % MR && line % LESS_ROWS == 0 && (x->patches || line == (size_t)LESS_ROWS * LESS_ROWS) ? LESS_ROWS : MR;
}

/* The micro-kernel: a register block of `rows` x `vectors` vectors. Both numbers are compile-time constants, so all sums stay in
 * registers. Rows of the right panel are `b_step` apart. Of each, the line `ahead` floats further is prefetched, unless `ahead`
 * is 0. `last` is applied to the block before it is stored, unless it is NULL. */
PTIR_INLINE void micro(float *restrict out, size_t stride, const float *restrict a, const float *restrict b, size_t depth,
                       size_t b_step, int add, int rows, int vectors, size_t ahead, const fused_pass *last)
{
    floats sum[MR][NRV];
    UNROLLED
    for (int i = 0; i < rows; i++)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (floats){0};
#if PTIR_X86 && W == 8
    if (rows == MR && vectors == NRV && b_step == NR) {
        whole_block_in_assembly(sum, a, b, depth);
        depth = 0;
    }
#endif
    for (size_t k = 0; k < depth; k++, a += MR, b += b_step) {
        floats right[NRV];
        if (ahead)
            ptir_prefetch_l2(b + ahead);
        for (int v = 0; v < vectors; v++)
            right[v] = *(const floats *)(b + v * W);
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vectors; v++)
                sum[i][v] += a[i] * right[v];
    }
    UNROLLED
    for (int i = 0; i < rows; i++)
        UNROLLED
        for (int v = 0; v < vectors; v++) {
            floats *to = (floats *)(out + i * stride + v * W);
            if (add)
                sum[i][v] += *to;
            *to = last ? apply_fused(sum[i][v], last, (size_t)i, (size_t)v * W) : sum[i][v];
        }
}

/* The micro-kernel at an edge: only as many rows and vectors as exist. */
PTIR_INLINE void corner(float *out, size_t stride, const float *a, const float *b, size_t depth, int add, size_t rows, size_t columns,
                        const fused_pass *last)
{
#define ROWS(r)                                                                                                        \
    case r:                                                                                                            \
        if (columns > 2 * W && NRV > 2)                                                                                \
            micro(out, stride, a, b, depth, NR, add, r, NRV, 0, last);                                                 \
        else if (columns > W)                                                                                          \
            micro(out, stride, a, b, depth, 2 * W, add, r, 2, 0, last);                                                \
        else                                                                                                           \
            micro(out, stride, a, b, depth, W, add, r, 1, 0, last);                                                    \
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
}

/* Multiply a packed block, whose panels have `high` rows each. `epilogue` may be NULL; for it, the block's first element is
 * (row, column) of the result. A register block is computed in `spare` if its last vector is partial, or if the epilogue reads the
 * memory of the result. Of panel i, only the range `used[i]` of the depth is not 0, unless `used` is NULL. */
static void macro_block(float *out, size_t stride, const float *a, const float *b, size_t m, size_t n, size_t depth, int add, size_t high,
                        const column_range *used, const ptir_epilogue *epilogue, size_t row, size_t column, float *spare)
{
    fused_pass fused, own;
    const int ends = is_fused(&fused, epilogue);
    for (size_t j = 0, width; j < n; j += width) {
        size_t columns = smallest(width = panel_width(n - j), n - j);
        int apart = columns % W != 0 || (epilogue && epilogue->takes_result && !ends);
        const fused_pass *last = ends && !apart ? &own : NULL;
        const float *next = b + (j + width) * depth;
        const size_t tiles = (m + high - 1) / high, coming = j + width < n ? panel_width(n - j - width) * depth : 0;
        const size_t share = IN_ASSEMBLY ? (coming + tiles * LINE - 1) / (tiles * LINE) * LINE : 0;
        for (size_t i = 0, tile = 0; i < m; i += high, tile++, next += share) {
            float *to = out + i * stride + j, *made = apart ? spare : to;
            const column_range own_range = used ? used[tile] : (column_range){0, depth};
            const size_t rows = smallest(high, m - i), step = apart ? NR : stride, there = own_range.last - own_range.first;
            const float *left = a + tile * MR * depth + own_range.first * MR, *right = b + j * depth + own_range.first * width;
            prefetch_block(to, stride, epilogue, row + i, column + j, rows, columns);
            for (size_t f = 0; f < share; f += LINE) /* each register block prefetches its share of the next panel */
                ptir_prefetch_l2(next + f);
            if (apart && add)
                copy_rows(spare, NR, to, stride, rows, columns);
            if (last)
                own = fused_from(&fused, row + i, column + j);
            /* The first blocks prefetch the next panel, which is not in a near cache: a line of each of its rows. */
            const size_t ahead = IN_ASSEMBLY || tile >= NRV || j + 2 * NR > n ? 0 : NR * depth + tile * W;
            if (rows < high || columns <= NR - W)
                corner(made, step, left, right, there, add, rows, columns, last);
            else if (high < MR)
                micro(made, step, left, right, there, NR, add, LESS_ROWS, NRV, ahead, last);
            else if (ahead)
                micro(made, step, left, right, there, NR, add, MR, NRV, ahead, last);
            else
                micro(made, step, left, right, there, NR, add, MR, NRV, 0, last);
            if (epilogue && !last)
                finish_block(made, step, epilogue, row + i, column + j, rows, columns);
            if (apart)
                copy_rows(to, stride, spare, NR, rows, columns);
        }
    }
}

/* Offset of the panels of columns [j, …) and rows [p, …) in a completely packed right operand. */
static size_t packed_at(size_t j, size_t p, size_t n, size_t k)
{
    return j * k + p * padded_columns(block_width(n - j, NC));
}

/* Pack one block of `columns` columns: only the panels whose first column is in `wanted`. */
static PTIR_NOINLINE void pack_panels(float *to, ptir_matrix c, size_t p, size_t first, size_t columns, size_t depth, column_range wanted)
{
    const float *from = c.data + (ptrdiff_t)p * c.rows + (ptrdiff_t)first * c.columns;
    for (size_t j = 0, width; j < columns; j += width) {
        size_t here = smallest(width = panel_width(columns - j), columns - j);
        if (first + j < wanted.first || first + j >= wanted.last)
            continue;
#define PACK(vectors) pack(to + j * depth, from + (ptrdiff_t)j * c.columns, c.columns, c.rows, here, depth, (vectors) * W)
        BY_VECTORS(width, PACK)
#undef PACK
    }
}

static void pack_range(float *to, ptir_matrix c, size_t k, size_t n, size_t first, size_t last)
{
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, NC);
        for (size_t p = 0; p < k; p += KC)
            pack_panels(to + packed_at(j, p, n, k), c, p, j, columns, smallest(KC, k - p), (column_range){first, last});
    }
}

/* Undo `pack_range`: write the right operand as dense rows. */
static void unpack_range(float *to, const float *from, size_t k, size_t n)
{
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, NC);
        for (size_t p = 0; p < k; p += KC) {
            const float *block = from + packed_at(j, p, n, k);
            const size_t depth = smallest(KC, k - p);
            for (size_t i = 0, width; i < columns; i += width) {
                width = panel_width(columns - i);
                for (size_t r = 0; r < depth; r++)
                    memcpy(to + (p + r) * n + j + i, block + i * depth + r * width, smallest(width, columns - i) * sizeof *to);
            }
        }
    }
}

/* Whether a column of a block is in the padding in every row. */
PTIR_INLINE int are_padding(const float *const *from)
{
    for (int r = 0; r < MR; r++)
        if (from[r] != zeros)
            return 0;
    return 1;
}

/* Pack rows [start, start + count) and columns [p, p + depth) of the patch matrix of a convolution (implicit im2col). Eight rows at
 * a time are transposed. Each row is read from its pixel, or from zeros where the window lies in the padding. A panel has `high`
 * rows of the matrix. What is all padding at the start and at the end of a panel is left out of its range in `used`, and is not
 * packed, if the right operand is finite. */
static void pack_patches(float *to, column_range *used, const left_rows *x, size_t start, size_t count, size_t p, size_t depth, size_t high)
{
    for (size_t i = 0; i < count; i += high, to += MR * depth, used++) {
        pixels found;
        const float *from[MR];
        find_pixels(&found, x, start + i, start + smallest(count, i + high));
        *used = x->patches->is_finite ? (column_range){depth, depth} : (column_range){0, depth};
        for (size_t k = 0, here; k < depth; k += here) {
            size_t done = 0;
            here = smallest(x->patches->channels - (p + k) % x->patches->channels, depth - k);
            find_column(from, &found, x, p + k);
            if (x->patches->is_finite && are_padding(from)) {
                if (used->first == depth) /* nothing before */
                    continue;
            } else {
                if (used->first == depth)
                    used->first = k;
                used->last = k + here;
            }
            if (MR == 8)
                for (; done + 8 <= here; done += 8)
                    transpose8_from(to + (k + done) * MR, MR, (const void *const *)from, done);
            for (; done < here; done++)
                for (size_t r = 0; r < MR; r++)
                    to[(k + done) * MR + r] = from[r][done];
        }
    }
}

/* Columns of a left operand that are contiguous in every row and lie in one block of KC. They are read in place, without
 * packing. */
typedef struct {
    const float *from[MR];
    const float *right; /* start of the right operand's panels for the rows from `first` - `row` on, `depth` of them */
    size_t first, length, used, row, depth; /* `used`: the length, or 0 where all rows are padding */
} column_run;

/* LONG: least mean length of runs. FIT: floats of the right operand that stay in the level-2 cache. DIRECT: with more columns than
 * this, packing the left operand pays. */
enum { LONG = 8, FIT = 96 * 1024, DIRECT = 6 * NR, MOST_RUNS = MC * KC / 2 * sizeof(float) / sizeof(column_run) };

/* Prefetch the first panel of a right operand, which others are prefetched behind. */
static void prefetch_first(const float *packed, size_t n, size_t k)
{
    const size_t floats = smallest(panel_width(n) * k, FIT);
    for (size_t f = 0; f < floats; f += LINE)
        ptir_prefetch_l2(packed + f);
}

/* Add the products of one run. Of each row of the right operand, the line `ahead` floats further is prefetched, unless `ahead` is
 * 0. */
PTIR_INLINE void add_run(floats (*sum)[NRV], const float *const *from, const float *restrict b, size_t length, int rows, int vectors,
                         size_t ahead)
{
    for (size_t k = 0; k < length; k++, b += vectors * W) {
        floats right[NRV];
        if (ahead)
            ptir_prefetch_l2(b + ahead);
        for (int v = 0; v < vectors; v++)
            right[v] = *(const floats *)(b + v * W);
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vectors; v++)
                sum[i][v] += from[i][k] * right[v];
    }
}

/* The micro-kernel on runs: a block of `rows` x `vectors` vectors, summed in registers over all runs. Lines of the panel `ahead`
 * columns further are prefetched, unless `ahead` is 0: number `part` of each row. */
PTIR_INLINE void micro_runs(float *restrict out, size_t stride, const column_run *runs, size_t count, size_t column, size_t ahead,
                            size_t part, int rows, int vectors, const fused_pass *last)
{
    floats sum[MR][NRV];
    UNROLLED
    for (int i = 0; i < rows; i++)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (floats){0};
    for (const column_run *run = runs; run < runs + count; run++) {
        const float *restrict b = run->right + column * run->depth + run->row * (size_t)(vectors * W), *from[MR];
        for (int i = 0; i < rows; i++)
            from[i] = run->from[i];
        if (ahead) /* a separate loop, so that the other one has no prefetch in it */
            add_run(sum, from, b, run->used, rows, vectors, ahead * run->depth + part * W);
        else
            add_run(sum, from, b, run->used, rows, vectors, 0);
    }
    if (last)
        finish_sums(&sum[0][0], NRV, rows, vectors, last, 0);
    UNROLLED
    for (int i = 0; i < rows; i++)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            *(floats *)(out + i * stride + v * W) = sum[i][v];
}

/* Functions of their own, so that all their pointers stay in registers. */
#define RUNS(kind, rows, vectors)                                                                                      \
    static PTIR_NOINLINE void kind##_##vectors(float *out, size_t stride, const column_run *runs, size_t count, size_t column, \
                                               size_t ahead, size_t part, const fused_pass *last)                      \
    {                                                                                                                  \
        micro_runs(out, stride, runs, count, column, ahead, part, rows, vectors, last);                                \
    }
RUNS(whole_runs, MR, 1)
RUNS(whole_runs, MR, 2)
#if NRV > 2
RUNS(whole_runs, MR, 3)
#else
#define whole_runs_3 whole_runs_2
#endif
#if MR == 8
RUNS(less_runs, LESS_ROWS, 1)
RUNS(less_runs, LESS_ROWS, 2)
RUNS(less_runs, LESS_ROWS, 3)
#else
#define less_runs_1 whole_runs_1
#define less_runs_2 whole_runs_2
#define less_runs_3 whole_runs_3
#endif
#undef RUNS

static void block_of_runs(float *out, size_t step, const column_run *runs, size_t count, size_t column, size_t columns, size_t ahead,
                          size_t part, size_t high, const fused_pass *last)
{
#define RUNS(vectors) (high < MR ? less_runs_##vectors : whole_runs_##vectors)(out, step, runs, count, column, ahead, part, last)
    if (columns > 2 * W)
        RUNS(3);
    else if (columns > W)
        RUNS(2);
    else
        RUNS(1);
#undef RUNS
}

/* Split k columns of a left operand into runs; the row pointers are filled in later. Returns 0 if there are too many runs or they
 * are too short. */
static size_t find_runs(column_run *runs, const left_rows *x, size_t k)
{
    size_t count = 0;
    for (size_t p = 0, here; p < k; p += here, count++) {
        here = KC - p % KC;
        if (x->patches) {
            size_t whole = x->patches->channels * (has_lines(x->patches) ? x->patches->window[1] : 1);
            here = smallest(here, whole - p % whole);
        }
        here = smallest(here, k - p);
        if (count == MOST_RUNS)
            return 0;
        runs[count] = (column_run){.first = p, .length = here};
    }
    return count * LONG <= k ? count : 0;
}

/* Multiply rows [first, m) by a packed right operand without packing the left one. Returns 0, with nothing done, if its runs are too short. */
static int gemm_of_runs(float *out, size_t step, const left_rows *x, const float *packed, size_t first, size_t m, size_t n, size_t k,
                        const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch)
{
    float *spare = at_line(scratch);
    column_run *runs = (column_run *)at_line(spare + MR * NR);
    float *edges = (float *)(runs + MOST_RUNS);
    const size_t high = rows_of_blocks(x, m);
    size_t count = find_runs(runs, x, k), wide = FIT / NR / k, tiles = (m + high - 1) / high;
    int lines = x->patches && has_lines(x->patches);
    fused_pass fused, own;
    const int ends = is_fused(&fused, epilogue);
    if (!count || (lines && k * MR > (size_t)MC * KC / 2))
        return 0;
    if (tiles > 1)
        prefetch_first(packed, n, k);
    for (size_t j = 0, columns, block = 0, end = block_width(n, NC); j < n; j += columns) {
        if (j == end)
            block = j, end = j + block_width(n - j, NC);
        for (columns = 0; j + columns < end && (!columns || columns + NR <= wide * NR);)
            columns += panel_width(end - j - columns);
        for (size_t c = 0; c < count; c++) {
            size_t p = runs[c].first / KC * KC;
            runs[c].right = packed + packed_at(block, p, n, k);
            runs[c].row = runs[c].first - p, runs[c].depth = smallest(KC, k - p);
        }
        for (size_t i = first; i < m; i += high) {
            pixels found;
            size_t rows = smallest(high, m - i);
            if (is_stopped(watch, columns * k * rows))
                return 1;
            find_pixels(&found, x, i, i + rows);
            for (size_t c = 0; c < count; c++) {
                if (lines)
                    find_line(runs[c].from, &found, x, runs[c].first, runs[c].length, edges + MR * runs[c].first);
                else
                    find_column(runs[c].from, &found, x, runs[c].first);
                runs[c].used = x->patches && x->patches->is_finite && are_padding(runs[c].from) ? 0 : runs[c].length;
            }
            for (size_t at = j, width; at < smallest(j + columns, end); at += width) {
                size_t here = smallest(width = panel_width(end - at), end - at);
                int apart = rows < high || here % W || (epilogue && epilogue->takes_result && !ends);
                const fused_pass *last = ends && !apart ? &own : NULL;
                float *to = out + i * step + at, *made = apart ? spare : to;
                size_t next = apart ? NR : step;
                prefetch_block(to, step, epilogue, i, at, rows, here);
                /* Row blocks take turns to prefetch one line of each row of a panel of the next columns. */
                const size_t part = (i / high + tiles - NRV * ((at - j) / NR) % tiles) % tiles;
                if (last)
                    own = fused_from(&fused, i, at);
                block_of_runs(made, next, runs, count, at - block, here, part < NRV && at + columns + NR <= end ? columns : 0, part, high,
                              last);
                if (epilogue && !last)
                    finish_block(made, next, epilogue, i, at, rows, here);
                if (apart)
                    copy_rows(to, step, spare, NR, rows, here);
            }
        }
    }
    return 1;
}

#include "lines.inl"

/* Multiply m rows by n columns. Rows of the result are `step` apart. */
static void gemm(float *out, size_t step, const left_rows *x, ptir_matrix c, const float *packed, size_t m, size_t n, size_t k,
                 const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch)
{
    float *left = at_line(scratch), *spare = at_line(left + (size_t)MC * KC), *own = at_line(spare + MR * NR);
    const size_t high = x->patches ? rows_of_blocks(x, m) : MR, most = MC / MR * high;
    column_range used[MC / MR];
    if (packed && k && x->patches && conv_of_lines(out, step, x, packed, m, n, k, epilogue, scratch, watch))
        return;
    size_t done = 0;
    if (packed && !x->patches && x->a.columns == 1)
        done = narrow_product(out, step, x, packed, m, n, k, epilogue, scratch, watch);
    if (done && (done == m || watch->stopped))
        return;
    if (packed && k && m && n <= DIRECT && (x->patches || x->a.columns == 1) &&
        gemm_of_runs(out, step, x, packed, done, m, n, k, epilogue, scratch, watch))
        return;
    if (packed && m > MR)
        prefetch_first(packed, n, smallest(k, KC));
    for (size_t i = 0; k == 0 && i < m; i++)
        memset(out + i * step, 0, n * sizeof *out);
    if (k == 0 && epilogue)
        finish_block(out, step, epilogue, 0, 0, m, n);
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, NC);
        for (size_t p = 0; p < k; p += KC) {
            size_t depth = smallest(KC, k - p);
            if (is_stopped(watch, columns * depth * m))
                return;
            const float *right = packed ? packed + packed_at(j, p, n, k) : own;
            if (!packed)
                pack_panels(own, c, p, j, columns, depth, (column_range){0, n});
            for (size_t i = 0; i < m; i += most) {
                size_t rows = smallest(most, m - i);
                if (x->patches)
                    pack_patches(left, used, x, i, rows, p, depth, high);
                else
                    pack(left, x->a.data + (ptrdiff_t)i * x->a.rows + (ptrdiff_t)p * x->a.columns, x->a.rows, x->a.columns, rows, depth,
                         MR);
                macro_block(out + i * step + j, step, left, right, rows, columns, depth, p > 0, high, x->patches ? used : NULL,
                            p + depth == k ? epilogue : NULL, i, j, spare);
            }
        }
    }
}

static void gemm_batch(float *out, ptir_matrix a, ptir_matrix c, const float *packed, size_t batch, size_t m, size_t n, size_t k,
                       const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch)
{
    left_rows x = {a, NULL, 0};
    for (size_t b = 0; b < batch && !watch->stopped; b++) {
        gemm(out + b * m * n, n, &x, c, packed, m, n, k, epilogue->count ? epilogue : NULL, scratch, watch);
        x.a.data += a.batch;
        c.data += packed ? 0 : c.batch;
    }
}

static void conv(float *out, size_t step, size_t group_step, const ptir_patches *patches, const float *packed, size_t first, size_t m,
                 size_t n, const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch)
{
    size_t k = patches->window[0] * patches->window[1] * patches->channels;
    ptir_patches group = *patches;
    for (size_t g = 0; g < patches->groups && !watch->stopped; g++, group.data += patches->channels) {
        left_rows x = {.patches = &group, .first = first};
        ptir_epilogue own = epilogue_from(epilogue, g * n);
        gemm(out + g * group_step, step, &x, (ptir_matrix){0}, packed + g * packed_floats(k, n), m, n, k, own.count ? &own : NULL, scratch,
             watch);
    }
}

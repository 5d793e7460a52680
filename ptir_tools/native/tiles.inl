/* Matrix product by AMX tiles: of bf16 with f32 sums (GROUP = 2), or of 8-bit integers with 32-bit sums that wrap (GROUP = 4).
 * Entries: `multiply_tiles`, `pack_tiles`.
 *
 * A 32-bit word holds GROUP elements along k. A tile has 16 rows of 16 words; the sums of 2 x 2 tiles stay in registers. The right
 * operand is packed as in gemm.inl, in panels of two tiles of columns; the left one in blocks of two tiles of rows. Tiles are
 * configured for the rows and columns that exist, so only the depth is padded with zeros.
 *
 * The products of bf16 flush subnormal numbers to 0 and are used where none can occur, as in bgemm.inl. Other rows are computed in
 * f32 from the same packed operands. */
#include "magnitudes.h"
#include "shapes.inl"

enum {
    PART = SIXTEEN * GROUP,      /* elements along k of a tile */
    TKC = 16 * PART, TMC = 256, TNC = 1024,
    TKW = TKC / GROUP,
    TNC_STEP = TNC + 2 * SIXTEEN, /* columns of the widest block */
    CHUNK = 1 << 13,             /* rows that are checked for subnormal products at a time */
};

typedef int32_t words16 __attribute__((vector_size(4 * W), aligned(4), may_alias));

#if GROUP == 2
enum { SIGNS = 1 };
#define DOT(sum, a, b) TILE_DOT("tdpbf16ps", sum, a, b)
#else
enum { SIGNS = 4 };
#define DOT(sum, a, b)                                                                                                 \
    do {                                                                                                               \
        if (signs == 3)                                                                                                \
            TILE_DOT("tdpbssd", sum, a, b);                                                                            \
        else if (signs == 2)                                                                                           \
            TILE_DOT("tdpbsud", sum, a, b);                                                                            \
        else if (signs == 1)                                                                                           \
            TILE_DOT("tdpbusd", sum, a, b);                                                                            \
        else                                                                                                           \
            TILE_DOT("tdpbuud", sum, a, b);                                                                            \
    } while (0)
#endif

/* Earlier sums; rows are `stride` numbers apart. */
typedef struct {
    const void *data;
    size_t stride;
} sums_before;

/* The sums of up to 2 x 2 tiles, added to `before` if there is one. `high` and `wide`: whether there are two. `signs`: 2 if the
 * left operand is signed, plus 1 if the right one is. All three are compile-time constants. */
PTIR_INLINE void sum_tiles(void *out, size_t stride, const uint32_t *a, const uint32_t *b, size_t parts, sums_before before, int high,
                           int wide, int signs)
{
    const size_t step = 4 * stride, across = wide ? 2 * 4 * SIXTEEN : 4 * SIXTEEN;
    char *to = out, *below = to + SIXTEEN * step;
    (void)signs;
    if (before.data) {
        const size_t apart = 4 * before.stride;
        const char *from = before.data, *from_below = from + SIXTEEN * apart;
        TILE_LOAD(0, from, apart);
        if (wide)
            TILE_LOAD(1, from + 4 * SIXTEEN, apart);
        if (high)
            TILE_LOAD(2, from_below, apart);
        if (high && wide)
            TILE_LOAD(3, from_below + 4 * SIXTEEN, apart);
    } else {
        TILE_ZERO(0);
        if (wide)
            TILE_ZERO(1);
        if (high)
            TILE_ZERO(2);
        if (high && wide)
            TILE_ZERO(3);
    }
    for (size_t k = 0; k < parts; k++, a += 2 * TILE, b += wide ? 2 * TILE : TILE) {
        TILE_STREAM(6, b, across);
        TILE_LOAD(4, a, 4 * SIXTEEN);
        DOT(0, 4, 6);
        if (wide) {
            TILE_STREAM(7, b + SIXTEEN, across);
            DOT(1, 4, 7);
        }
        if (high) {
            TILE_LOAD(5, a + TILE, 4 * SIXTEEN);
            DOT(2, 5, 6);
        }
        if (high && wide)
            DOT(3, 5, 7);
    }
    TILE_STORE(0, to, step);
    if (wide)
        TILE_STORE(1, to + 4 * SIXTEEN, step);
    if (high)
        TILE_STORE(2, below, step);
    if (high && wide)
        TILE_STORE(3, below + 4 * SIXTEEN, step);
}

static void sum_area(void *out, size_t stride, const uint32_t *a, const uint32_t *b, size_t parts, sums_before before,
                     tile_area area, int signs)
{
#define AREA(signs)                                                                                                    \
    if (area.rows > SIXTEEN && area.columns > SIXTEEN)                                                                 \
        sum_tiles(out, stride, a, b, parts, before, 1, 1, signs);                                                      \
    else if (area.columns > SIXTEEN)                                                                                   \
        sum_tiles(out, stride, a, b, parts, before, 0, 1, signs);                                                      \
    else if (area.rows > SIXTEEN)                                                                                      \
        sum_tiles(out, stride, a, b, parts, before, 1, 0, signs);                                                      \
    else                                                                                                               \
        sum_tiles(out, stride, a, b, parts, before, 0, 0, signs);
    if (signs % SIGNS == 0) {
        AREA(0)
    }
#if GROUP == 4
    else if (signs == 1) {
        AREA(1)
    } else if (signs == 2) {
        AREA(2)
    } else {
        AREA(3)
    }
#endif
#undef AREA
}

#if GROUP == 2
typedef uint16_t element;
typedef ptir_halves operand;
typedef float sum_type;

PTIR_INLINE __m512i load_tail(const element *from, size_t count)
{
    return _mm512_maskz_loadu_epi16(count < PART ? (1u << count) - 1 : ~0u, from);
}

/* Sixteen words from `count` adjacent elements of `depth` rows. */
PTIR_INLINE __m512i interleaved(const element *from, ptrdiff_t apart, size_t count, size_t depth)
{
    const __mmask16 some = (__mmask16)((1u << count) - 1);
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, from));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(depth > 1 ? some : 0, depth > 1 ? from + apart : from));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
#else
typedef uint8_t element;
typedef ptir_bytes operand;
typedef int32_t sum_type;

PTIR_INLINE __m512i load_tail(const element *from, size_t count)
{
    return _mm512_maskz_loadu_epi8(count < PART ? ((__mmask64)1 << count) - 1 : ~(__mmask64)0, from);
}

PTIR_INLINE __m512i interleaved(const element *from, ptrdiff_t apart, size_t count, size_t depth)
{
    const __mmask16 some = (__mmask16)((1u << count) - 1);
    __m512i all = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, from));
    for (size_t g = 1; g < GROUP; g++)
        if (g < depth)
            all = _mm512_or_si512(all, _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, from + (ptrdiff_t)g * apart)), 8 * (unsigned)g));
    return all;
}
#endif

/* Transpose 16 x 16 words. */
PTIR_INLINE void transpose_tile(uint32_t *to, size_t to_step, const uint32_t *from)
{
    for (size_t i = 0; i < SIXTEEN; i += SIDE)
        for (size_t j = 0; j < SIXTEEN; j += SIDE)
            transpose8(to + j * to_step + i, (ptrdiff_t)to_step, from + i * SIXTEEN + j, SIXTEEN);
}

/* Load words of up to sixteen rows and PART elements along k, with any strides. Elements beyond `depth` are 0, and with `all` also
 * rows beyond `count`. With `across` a word goes to to[word * to_step + row], else to to[row * to_step + word]. */
PTIR_INLINE void load_words(uint32_t *to, size_t to_step, const element *from, ptrdiff_t step, ptrdiff_t depth_step, size_t count,
                            size_t depth, int across, int all)
{
    uint32_t transposed[TILE] __attribute__((aligned(64)));
    int is_row_by_row = depth_step == 1 || (step != 1 && !across);
    uint32_t *made = is_row_by_row == !across ? to : transposed;
    size_t made_step = made == to ? to_step : SIXTEEN;
    if (is_row_by_row)
        for (size_t r = 0; r < (all || made == transposed ? SIXTEEN : count); r++) {
            if (depth_step == 1 || r >= count) {
                _mm512_storeu_si512(made + r * made_step, load_tail(from + (r < count ? (ptrdiff_t)r * step : 0), r < count ? depth : 0));
                continue;
            }
            element own[PART] = {0};
            for (size_t k = 0; k < depth; k++)
                own[k] = from[(ptrdiff_t)r * step + (ptrdiff_t)k * depth_step];
            memcpy(made + r * made_step, own, sizeof own);
        }
    else
        for (size_t w = 0; w < SIXTEEN; w++, made += made_step) {
            const element *at = from + (ptrdiff_t)(w * GROUP) * depth_step;
            size_t here = depth > w * GROUP ? depth - w * GROUP : 0;
            if (step == 1 || !here) {
                _mm512_storeu_si512(made, here ? interleaved(at, depth_step, count, here) : _mm512_setzero_si512());
                continue;
            }
            element own[SIXTEEN][GROUP] = {{0}};
            for (size_t r = 0; r < count; r++)
                for (size_t g = 0; g < smallest(GROUP, here); g++)
                    own[r][g] = at[(ptrdiff_t)r * step + (ptrdiff_t)g * depth_step];
            memcpy(made, own, sizeof own);
        }
    if (is_row_by_row == across)
        transpose_tile(to, to_step, transposed);
}

/* Pack rows in blocks of two tiles, part by part along k. */
static PTIR_NOINLINE void pack_left(uint32_t *to, const element *from, ptrdiff_t step, ptrdiff_t depth_step, size_t rows, size_t depth)
{
    const size_t parts = (depth + PART - 1) / PART;
    for (size_t i = 0; i < rows; i += SIXTEEN) {
        size_t here = smallest(SIXTEEN, rows - i);
        uint32_t *block = to + i / BLOCK * BLOCK * parts * SIXTEEN + i % BLOCK * SIXTEEN;
        const element *at = from + (ptrdiff_t)i * step;
        for (size_t r = 0; depth_step == 1 && r < here; r++, at += step) {
            uint32_t *row = block + r * SIXTEEN;
            const element *part = at;
            for (size_t p = 0; p < depth / PART; p++, row += 2 * TILE, part += PART)
                _mm512_storeu_si512(row, _mm512_loadu_si512(part));
            if (depth % PART)
                _mm512_storeu_si512(row, load_tail(part, depth % PART));
        }
        for (size_t p = 0; depth_step != 1 && p < parts; p++)
            load_words(block + 2 * TILE * p, SIXTEEN, at + (ptrdiff_t)(p * PART) * depth_step, step, depth_step, here,
                       smallest(PART, depth - p * PART), 0, 0);
    }
}

/* Rows of words for `depth` elements. */
static size_t tile_rows(size_t depth) { return (depth + PART - 1) / PART * SIXTEEN; }

/* Size of a packed right operand: its panels, then per vector of columns the least magnitude in the panel that begins there. */
static size_t tiled_words(size_t k, size_t n) { return padded_columns(n) * tile_rows(k) + (GROUP == 2 ? padded_columns(n) / W : 0); }

/* Offset of the panels of columns [j, …) and rows [p, …). */
static size_t tiles_at(size_t j, size_t p, size_t n, size_t k)
{
    return j * tile_rows(k) + p / GROUP * padded_columns(block_width(n - j, TNC));
}

/* The words of 32 adjacent elements in GROUP rows. */
#if GROUP == 2
PTIR_INLINE void interleave(uint32_t *to, const element *from, ptrdiff_t apart)
{
    const __m512i low = _mm512_loadu_si512(from), high = _mm512_loadu_si512(from + apart);
    const __m512i a = _mm512_unpacklo_epi16(low, high), b = _mm512_unpackhi_epi16(low, high);
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(a, first, b));
    _mm512_storeu_si512(to + SIXTEEN, _mm512_permutex2var_epi64(a, last, b));
}
#else
PTIR_INLINE void interleave(uint32_t *to, const element *from, ptrdiff_t apart)
{
    __m256i row[GROUP], pairs[GROUP], all[GROUP];
    for (int g = 0; g < GROUP; g++)
        row[g] = _mm256_loadu_si256((const __m256i *)(from + g * apart));
    for (int g = 0; g < GROUP; g += 2) {
        pairs[g] = _mm256_unpacklo_epi8(row[g], row[g + 1]);
        pairs[g + 1] = _mm256_unpackhi_epi8(row[g], row[g + 1]);
    }
    for (int g = 0; g < 2; g++) {
        all[2 * g] = _mm256_unpacklo_epi16(pairs[g], pairs[g + 2]);
        all[2 * g + 1] = _mm256_unpackhi_epi16(pairs[g], pairs[g + 2]);
    }
    for (int g = 0; g < GROUP; g += 2) {
        _mm256_storeu_si256((__m256i *)(to + 4 * g), _mm256_permute2x128_si256(all[g], all[g + 1], 0x20));
        _mm256_storeu_si256((__m256i *)(to + 4 * g + SIXTEEN), _mm256_permute2x128_si256(all[g], all[g + 1], 0x31));
    }
}
#endif

/* Pack one part along k of a panel of `columns` columns. */
static PTIR_NOINLINE void pack_part(uint32_t *to, const element *from, ptrdiff_t step, ptrdiff_t depth_step, size_t columns, size_t depth,
                                 size_t width)
{
    if (step == 1 && columns == BLOCK && depth == PART) {
        for (size_t w = 0; w < SIXTEEN; w++, from += GROUP * depth_step)
            interleave(to + w * BLOCK, from, depth_step);
        return;
    }
    for (size_t j = 0; j < width; j += SIXTEEN)
        load_words(to + j, width, from + (ptrdiff_t)j * step, step, depth_step, smallest(SIXTEEN, columns - j), depth, 1, 1);
}

/* Pack one block of `columns` columns: only the panels whose first column is in `wanted`. Their least magnitudes are written unless
 * `least` is NULL. One part of all panels is packed before the next part, so that rows are read sequentially. */
static void pack_tile_panels(uint32_t *to, operand c, size_t p, size_t first, size_t columns, size_t depth, column_range wanted,
                             uint32_t *least)
{
    const element *from = c.data + (ptrdiff_t)p * c.rows + (ptrdiff_t)first * c.columns;
    for (size_t k = 0; k < depth; k += PART, from += PART * c.rows)
        for (size_t j = 0, width; j < columns; j += width) {
            size_t here = smallest(width = panel_width(columns - j), columns - j);
            uint32_t *part = to + j * tile_rows(depth) + k / GROUP * width;
            if (first + j < wanted.first || first + j >= wanted.last)
                continue;
            pack_part(part, from + (ptrdiff_t)j * c.columns, c.columns, c.rows, here, smallest(PART, depth - k), width);
#if GROUP == 2
            if (least) {
                uint32_t *own = least + (first + j) / W;
                *own = least_of((const uint16_t *)part, 0, 1, 1, 2 * width * SIXTEEN, p + k ? (uint16_t)*own : MAGNITUDES);
            }
#else
            (void)least;
#endif
        }
}

static void pack_tiles(uint32_t *to, operand c, size_t k, size_t n, size_t first, size_t last)
{
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, TNC);
        for (size_t p = 0; p < k; p += TKC)
            pack_tile_panels(to + tiles_at(j, p, n, k), c, p, j, columns, smallest(TKC, k - p), (column_range){first, last},
                             to + padded_columns(n) * tile_rows(k));
    }
}

/* Undo `pack_tiles`: write the right operand as dense rows. */
static void unpack_panels(element *to, const uint32_t *from, size_t k, size_t n)
{
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, TNC);
        for (size_t p = 0; p < k; p += TKC) {
            const uint32_t *block = from + tiles_at(j, p, n, k);
            const size_t depth = smallest(TKC, k - p);
            for (size_t i = 0, width; i < columns; i += width) {
                width = panel_width(columns - i);
                const uint32_t *panel = block + i * tile_rows(depth);
                for (size_t r = 0; r < depth; r++)
                    for (size_t c = 0; c < smallest(width, columns - i); c++)
                        to[(p + r) * n + j + i + c] = (element)(panel[r / GROUP * width + c] >> 32 / GROUP * (r % GROUP));
            }
        }
    }
}

#if GROUP == 2
static void unpack_tiles(uint16_t *to, const uint32_t *from, size_t k, size_t n) { unpack_panels(to, from, k, n); }
#else
static void unpack_tiles(uint8_t *to, const uint32_t *from, size_t k, size_t n, int is_signed)
{
    (void)is_signed; /* the instruction takes both; nothing was shifted */
    unpack_panels(to, from, k, n);
}
#endif

#if GROUP == 2
/* Multiply MR rows of a block in f32, from the words packed for tiles. */
PTIR_INLINE void sum_in_f32(float *out, size_t stride, const uint32_t *a, const uint32_t *b, size_t parts, sums_before before,
                            tile_area area, int vectors)
{
    floats sum[MR][NRV];
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (floats){0};
    for (size_t p = 0; p < parts; p++, a += 2 * TILE)
        for (size_t w = 0; w < SIXTEEN; w++, b += vectors * W)
            for (int v = 0; v < vectors; v++) {
                const words16 right = *(const words16 *)(b + v * W);
                const floats low = (floats)(right << 16), high = (floats)(right & (int32_t)0xffff0000);
                for (int i = 0; i < MR; i++) {
                    uint32_t left = a[(size_t)i * SIXTEEN + w];
                    sum[i][v] += low * from_bits(left << 16);
                    sum[i][v] += high * from_bits(left & 0xffff0000u);
                }
            }
    for (size_t i = 0; i < area.rows; i++)
        for (int v = 0; v < vectors; v++)
            for (size_t j = (size_t)v * W; j < smallest(area.columns, (size_t)(v + 1) * W); j++)
                out[i * stride + j] = (before.data ? ((const float *)before.data)[i * before.stride + j] : 0.0f) + sum[i][v][j % W];
}

static PTIR_NOINLINE void f32_area(float *out, size_t stride, const uint32_t *a, const uint32_t *b, size_t parts, sums_before before,
                                 tile_area area)
{
    if (area.columns > W)
        sum_in_f32(out, stride, a, b, parts, before, area, 2);
    else
        sum_in_f32(out, stride, a, b, parts, before, area, 1);
}

/* The least magnitude in the right operand, packed or not. */
static uint16_t least_right(operand c, const uint32_t *packed, size_t k, size_t n)
{
    if (!packed)
        return least_of(c.data, c.rows, c.columns, k, n, MAGNITUDES);
    uint32_t least = MAGNITUDES;
    packed += padded_columns(n) * tile_rows(k);
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, TNC);
        for (size_t i = 0; i < columns; i += panel_width(columns - i))
            least = packed[(j + i) / W] < least ? packed[(j + i) / W] : least;
    }
    return (uint16_t)least;
}
#endif

/* For each MR rows: whether their products can be computed by tiles. */
static PTIR_NOINLINE void check_rows(uint8_t *no_subnormals, operand a, size_t rows, size_t k, uint16_t least)
{
#if GROUP == 2
    for (size_t i = 0; i < rows; i += MR, a.data += MR * a.rows)
        no_subnormals[i / MR] = (uint8_t)is_normal_product(least_of(a.data, a.rows, a.columns, smallest(MR, rows - i), k, MAGNITUDES), least);
#else
    (void)a, (void)k, (void)least;
    memset(no_subnormals, 1, (rows + MR - 1) / MR);
#endif
}

/* The destination of a matrix of results and the size of its elements. With `has_epilogue` the sums are rounded to bf16, or
 * quantized by `to`, whose operands begin at (row, column). `before` holds partial sums that are added first, in rows of TNC_STEP. */
typedef struct {
    void *data;
    size_t stride, size;
    int has_epilogue;
    const sum_type *before;
    const ptir_quantizing *to;
    size_t row, column;
} result;

PTIR_INLINE result part_of(result x, size_t i, size_t j)
{
    x.data = (char *)x.data + (i * x.stride + j) * x.size;
    x.row += i, x.column += j;
    x.before = x.before ? x.before + i * TNC_STEP + j : NULL;
    return x;
}

#if GROUP == 2
/* Round a block of sums to bf16. The instruction flushes subnormal numbers to 0. */
static PTIR_NOINLINE void narrow_area(result to, const float *from, tile_area area, int no_subnormals)
{
    const __mmask32 some = area.columns < BLOCK ? (1u << area.columns) - 1 : ~0u;
    uint16_t *out = to.data;
    for (size_t i = 0; i < area.rows; i++, from += BLOCK, out += to.stride) {
        if (no_subnormals)
            _mm512_mask_storeu_epi16(out, some, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + W), _mm512_loadu_ps(from)));
        for (size_t j = 0; !no_subnormals && j < area.columns; j++) {
            uint32_t x = to_bits(from[j]);
            out[j] = (uint16_t)(from[j] != from[j] ? x >> 16 | 0x40 : (x + 0x7fff + (x >> 16 & 1)) >> 16);
        }
    }
}
#endif

/* Convert the sums of a block to results. */
PTIR_INLINE void convert_block(result to, const sum_type *sums, tile_area area, int no_subnormals)
{
#if GROUP == 2
    narrow_area(to, sums, area, no_subnormals);
#else
    (void)no_subnormals;
    quantize_block(to.data, to.stride, sums, BLOCK, to.to, to.row, to.column, area.rows, area.columns);
#endif
}

/* Compute the sums of a block, whose rows are `step` apart. */
PTIR_INLINE void sum_block(sum_type *sums, size_t step, const uint32_t *a, const uint32_t *b, size_t parts, sums_before before,
                           tile_area area, int signs, int no_subnormals, tile_shape *now)
{
#if GROUP == 2
    if (!no_subnormals) {
        f32_area(sums, step, a, b, parts, before, area);
        return;
    }
#else
    (void)no_subnormals;
#endif
    shape_tiles(now, area);
    sum_area(sums, step, a, b, parts, before, area, signs);
}

/* Multiply rows of the left operand, a few at a time, by all panels of the right one. These rows stay in the level-1 cache, and
 * rows of the result are written sequentially. The sums of a block are converted one block later: what a tile has just stored is
 * slow to read. */
static PTIR_NOINLINE void tile_block(result out, const uint32_t *a, const uint32_t *b, size_t m, size_t n, size_t parts, int add, int signs,
                                  const uint8_t *no_subnormals, tile_shape *now)
{
    sum_type wide[2][BLOCK * BLOCK] __attribute__((aligned(64)));
    size_t row = 0, column = 0, high = 0, across = 0, turn = 0; /* the block that is not converted yet */
    for (size_t i = 0, rows; i < m; i += rows) {
        size_t most = smallest(m - i, BLOCK - i % BLOCK);
        const uint32_t *left = a + i / BLOCK * BLOCK * parts * SIXTEEN + i % BLOCK * SIXTEEN;
        for (rows = smallest(MR, most); rows < most && no_subnormals[i / MR] && no_subnormals[(i + rows) / MR];)
            rows = smallest(rows + MR, most);
        for (size_t j = 0, width; j < n; j += width) {
            size_t columns = smallest(width = panel_width(n - j), n - j);
            const uint32_t *right = b + j * parts * SIXTEEN;
            if (!out.has_epilogue) {
                sum_type *sums = (sum_type *)out.data + i * out.stride + j;
                sum_block(sums, out.stride, left, right, parts, (sums_before){add ? sums : NULL, out.stride}, (tile_area){rows, columns},
                          signs, no_subnormals[i / MR], now);
                continue;
            }
            sums_before before = {add ? out.before + i * TNC_STEP + j : NULL, TNC_STEP};
            sum_block(wide[turn], BLOCK, left, right, parts, before, (tile_area){rows, columns}, signs, no_subnormals[i / MR], now);
            turn ^= 1;
            if (high)
                convert_block(part_of(out, row, column), wide[turn], (tile_area){high, across}, no_subnormals[row / MR]);
            row = i, column = j, high = rows, across = columns;
        }
    }
    if (high)
        convert_block(part_of(out, row, column), wide[turn ^ 1], (tile_area){high, across}, no_subnormals[row / MR]);
}

static size_t tiles_scratch(void)
{
    return ((size_t)TMC + TNC + NR) * TKW + CHUNK / MR / sizeof(float) + (size_t)TMC * TNC_STEP + 4 * LINE;
}

PTIR_INLINE void multiply(result out, operand a, operand c, const uint32_t *packed, size_t batch, size_t m, size_t n, size_t k,
                          float *scratch, ptir_watch *watch)
{
    uint32_t *left = (uint32_t *)at_line(scratch), *own = left + TMC * TKW;
    uint8_t *no_subnormals = (uint8_t *)(own + (TNC + NR) * TKW);
    sum_type *sums = (sum_type *)at_line((float *)(no_subnormals + CHUNK / MR)); /* partial sums of a block of rows */
    const int is_long = out.has_epilogue && k > TKC;
    uint16_t least = MAGNITUDES;
    tile_shape now = NO_SHAPE;
    int signs = 0;
#if GROUP == 4
    signs = (a.is_signed ? 2 : 0) + (c.is_signed ? 1 : 0);
#endif
    if (k == 0)
        memset(out.data, 0, batch * m * n * out.size);
    for (size_t t = 0; t < batch; t++, a.data += a.batch, c.data += packed ? 0 : c.batch) {
        operand some = a;
#if GROUP == 2
        if (t == 0 || !packed)
            least = least_right(c, packed, k, n);
#endif
        for (size_t start = 0, height; start < m; start += height, some.data += (ptrdiff_t)height * a.rows, out = part_of(out, height, 0)) {
            height = smallest(is_long ? TMC : CHUNK, m - start);
            check_rows(no_subnormals, some, height, k, least);
            for (size_t j = 0, columns; j < n; j += columns) {
                columns = block_width(n - j, TNC);
                for (size_t p = 0; p < k; p += TKC) {
                    size_t depth = smallest(TKC, k - p), work = columns * depth * height;
                    const uint32_t *right = packed ? packed + tiles_at(j, p, n, k) : own;
                    if (watch->done + work >= CHECK_INTERVAL) { /* the interrupt check may run code that uses tiles */
                        release_tiles();
                        now = NO_SHAPE;
                    }
                    if (is_stopped(watch, work)) {
                        release_tiles();
                        return;
                    }
                    if (!packed)
                        pack_tile_panels(own, c, p, j, columns, depth, (column_range){0, n}, NULL);
                    for (size_t i = 0; i < height; i += TMC) {
                        size_t rows = smallest(TMC, height - i);
                        pack_left(left, some.data + (ptrdiff_t)i * a.rows + (ptrdiff_t)p * a.columns, a.rows, a.columns, rows, depth);
                        result to = part_of(out, i, j);
                        if (is_long && p + depth < k)
                            to = (result){.data = sums, .stride = TNC_STEP, .size = sizeof *sums};
                        else if (is_long)
                            to.before = sums;
                        tile_block(to, left, right, rows, columns, (depth + PART - 1) / PART, p > 0, signs,
                                   no_subnormals + i / MR, &now);
                    }
                }
            }
        }
    }
    release_tiles();
}

#if GROUP == 2
static void multiply_tiles(void *out, int is_narrow, ptir_halves a, ptir_halves c, const uint32_t *packed, size_t batch, size_t m,
                           size_t n, size_t k, float *scratch, ptir_watch *watch)
{
    size_t size = is_narrow ? sizeof(uint16_t) : sizeof(float);
    multiply((result){.data = out, .stride = n, .size = size, .has_epilogue = is_narrow}, a, c, packed, batch, m, n, k, scratch, watch);
}
#else
static void multiply_tiles(void *out, const ptir_quantizing *to, ptir_bytes a, ptir_bytes c, const uint32_t *packed, size_t batch, size_t m,
                           size_t n, size_t k, float *scratch, ptir_watch *watch)
{
    size_t size = to && to->to != 'f' ? 1 : sizeof(int32_t);
    multiply((result){.data = out, .stride = n, .size = size, .has_epilogue = to != NULL, .to = to}, a, c, packed, batch, m, n, k, scratch, watch);
}
#endif

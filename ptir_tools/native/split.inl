/* Matrix product and convolution of f32 by AMX tiles of bf16. Entries: `split_gemm`, `split_conv`, `pack_split`.
 *
 * A float is split into a sum of three bf16, its PIECES, each less than 2^-8 of the one before. Of the nine products of pieces, the
 * six largest are summed in f32; the others are together less than 2^-23 of the product. A sum of k products is rounded at most 14
 * + 13 k / 64 times for k >= LEAST. Together the two errors stay within the bound of k roundings.
 *
 * The tiles flush subnormal numbers to 0, and a piece of the largest floats may be infinite. So the ranges of both operands are
 * checked first, for MR rows of the left operand at a time. Rows with such numbers are computed in f32 from the same packed
 * operands.
 *
 * Packed operands: the right one in panels of two tiles of columns, in parts of PART elements along k. A part holds the words of
 * the first pieces, then those of the second and of the third. Word w of a column has elements w and w + 16. The left one is packed
 * likewise in blocks of two tiles of rows. */

enum {
    PIECES = 3,
    PART = 2 * SIXTEEN, /* elements along k of a tile */
    LEAST = 48,         /* least k for which the tiles are faster and accurate enough */
    NARROWEST = 48,     /* least number of columns for which they are faster */
    SMC = 256, SNC = 1024, /* rows and columns of a block */
    FEW_COLUMNS = 256,     /* up to so many columns, only BLOCK rows are split at a time */
    LINES = 64,      /* lines of an image that a convolution splits at a time, at most */
    SEGMENT = 64,    /* pixels of a line that have one range */
    KNOWN = 256,     /* segments whose ranges are remembered */
    ENOUGH_LINES = 2, /* lines of places for which a convolution splits the image */
};

/* Range of magnitudes, as bits: the least nonzero one minus 1; the largest; the OR of all. */
typedef struct {
    uint32_t least, most, all;
} range;

static const range no_range = {UINT32_MAX, 0, 0};

PTIR_INLINE range joined_range(range a, range b)
{
    return (range){a.least < b.least ? a.least : b.least, a.most > b.most ? a.most : b.most, a.all | b.all};
}

/* A range per lane of a vector. */
typedef struct {
    __m512i least, most, all;
} ranges;

PTIR_INLINE ranges no_ranges(void) { return (ranges){_mm512_set1_epi32(-1), _mm512_setzero_si512(), _mm512_setzero_si512()}; }

PTIR_INLINE void see(ranges *x, __m512 value)
{
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(value), _mm512_set1_epi32(MAGNITUDE));
    x->least = _mm512_min_epu32(x->least, _mm512_sub_epi32(bits, _mm512_set1_epi32(1)));
    x->most = _mm512_max_epu32(x->most, bits);
    x->all = _mm512_or_si512(x->all, bits);
}

/* Mask of the first `count` lanes, or of all. */
PTIR_INLINE __mmask16 first_of(size_t count) { return count < W ? (__mmask16)((1u << count) - 1) : (__mmask16)~0u; }

PTIR_INLINE void see_all(ranges *x, const float *from, size_t n)
{
    ranges own = *x;
    for (size_t i = 0; i < n; i += W)
        see(&own, _mm512_maskz_loadu_ps(first_of(n - i), from + i));
    *x = own;
}

PTIR_INLINE range range_of(ranges x)
{
    return (range){_mm512_reduce_min_epu32(x.least), _mm512_reduce_max_epu32(x.most), (uint32_t)_mm512_reduce_or_epi32(x.all)};
}

enum { BIAS = 127, LOWEST = -126, BITS = 23 };

/* Exponent of the least nonzero number, and of the largest; 0 for the least one if all are 0. */
PTIR_INLINE int least_exponent(range x) { return x.most ? (int)((x.least + 1) >> EXPONENT) - BIAS : 0; }
PTIR_INLINE int most_exponent(range x) { return (int)(x.most >> EXPONENT) - BIAS; }

/* Whether all numbers in a range can be split: their pieces are normal and finite. */
PTIR_INLINE int has_pieces(range x) { return most_exponent(x) < BIAS && least_exponent(x) - BITS >= LOWEST; }

/* Whether tiles are exact enough for products of numbers in these ranges: no bit of a product is subnormal, and no sum is near
 * infinity. */
PTIR_INLINE int is_exact_product(range a, range b)
{
    enum { LOST = 30, HIGHEST = 90 };
    return has_pieces(a) && has_pieces(b) && most_exponent(a) + most_exponent(b) <= HIGHEST &&
           least_exponent(a) + least_exponent(b) - LOST >= LOWEST;
}

/* How many pieces of the numbers in a range are nonzero. */
PTIR_INLINE int pieces_of(range x) { return x.all & 0xffff ? (x.all & 0x7f ? 3 : 2) : 1; }

/* Split sixteen floats; each piece is in the high half of a word. */
PTIR_INLINE void split(__m512i *to, __m512 x)
{
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32((int)0xffff0000);
    to[0] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), upper);
    const __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(to[0]));
    to[1] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(rest), half), upper);
    to[2] = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(to[1])));
}

/* Split two vectors of floats into words, `apart` words between pieces. With `whole`, floats that cannot be split are stored
 * unchanged: their high halves as the first pieces, their low halves as the second. */
PTIR_INLINE void split_words(uint32_t *to, size_t apart, __m512 low, __m512 high, int whole)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i a[PIECES], b[PIECES];
    if (whole) {
        a[0] = _mm512_castps_si512(low), a[1] = _mm512_slli_epi32(a[0], 16), a[2] = _mm512_setzero_si512();
        b[1] = _mm512_slli_epi32(_mm512_castps_si512(high), 16), b[0] = _mm512_and_si512(_mm512_castps_si512(high), upper), b[2] = a[2];
    } else {
        split(a, low), split(b, high);
    }
    UNROLLED
    for (int i = 0; i < PIECES; i++)
        _mm512_storeu_si512(to + i * apart, _mm512_or_si512(_mm512_srli_epi32(a[i], 16), b[i]));
}

/* Words per column for `depth` elements. */
static size_t split_rows(size_t depth) { return (depth + PART - 1) / PART * SIXTEEN * PIECES; }

PTIR_INLINE int is_worth_splitting(size_t k, size_t n) { return k >= LEAST && n >= NARROWEST; }

/* Size of a packed right operand: its panels, then a range per vector of columns for the panel that begins there. */
static size_t split_floats(size_t k, size_t n)
{
    if (!is_worth_splitting(k, n))
        return ptir_isa_avx512.packed_floats(k, n);
    return padded_columns(n) * split_rows(k) + padded_columns(n) / W * (sizeof(range) / sizeof(float));
}

/* Offset of the panels of columns [j, …) and rows [p, …). */
static size_t split_at(size_t j, size_t p, size_t n, size_t k)
{
    return j * split_rows(k) + p / PART * SIXTEEN * PIECES * padded_columns(block_width(n - j, SNC));
}

/* Copy PART rows of up to sixteen columns of a matrix, padded with zeros. */
static PTIR_NOINLINE void gather_columns(float (*to)[SIXTEEN], const float *from, ptrdiff_t row, ptrdiff_t column, size_t depth, size_t columns)
{
    memset(to, 0, PART * sizeof *to);
    if (row == 1 && depth == PART && columns == SIXTEEN)
        for (size_t k = 0; k < PART; k += SIDE)
            for (size_t j = 0; j < SIXTEEN; j += SIDE)
                transpose8(&to[k][j], SIXTEEN, from + k + (ptrdiff_t)j * column, column);
    else
        for (size_t k = 0; k < depth; k++)
            for (size_t j = 0; j < columns; j++)
                to[k][j] = from[(ptrdiff_t)k * row + (ptrdiff_t)j * column];
}

/* Pack one part along k of a panel. The range of its numbers is joined to `found`. */
static PTIR_NOINLINE void split_part(uint32_t *to, const float *from, ptrdiff_t row, ptrdiff_t column, size_t depth, size_t columns, size_t width,
                                  int whole, range *found)
{
    float gathered[PART][SIXTEEN] __attribute__((aligned(64)));
    ranges seen = no_ranges();
    for (size_t j = 0; j < width; j += SIXTEEN) {
        const size_t here = columns > j ? smallest(SIXTEEN, columns - j) : 0;
        const float *at = from + (ptrdiff_t)j * column;
        ptrdiff_t step = row;
        if (column != 1 || depth < PART || here < SIXTEEN) {
            gather_columns(gathered, at, row, column, depth, here);
            at = gathered[0], step = SIXTEEN;
        }
        for (size_t w = 0; w < SIXTEEN; w++) {
            const __m512 low = _mm512_loadu_ps(at + (ptrdiff_t)w * step), high = _mm512_loadu_ps(at + (ptrdiff_t)(w + SIXTEEN) * step);
            see(&seen, low), see(&seen, high);
            if (whole)
                split_words(to + w * width + j, SIXTEEN * width, low, high, 1);
            else
                split_words(to + w * width + j, SIXTEEN * width, low, high, 0);
        }
    }
    *found = joined_range(*found, range_of(seen));
}

/* Pack one part, rows [p, …), of a block of columns: only the panels whose first column is in `wanted`. */
static void split_parts(uint32_t *to, ptir_matrix c, size_t k, size_t n, size_t p, size_t j, size_t columns, column_range wanted, range *ranges,
                        int whole)
{
    const size_t depth = smallest(KC, k - p / KC * KC);
    uint32_t *block = to + split_at(j, p / KC * KC, n, k);
    for (size_t i = 0, width; i < columns; i += width) {
        width = panel_width(columns - i);
        if (j + i < wanted.first || j + i >= wanted.last)
            continue;
        range *own = &ranges[(j + i) / W];
        if (p == 0 && !whole)
            *own = no_range;
        split_part(block + i * split_rows(depth) + split_rows(p % KC) * width, c.data + (ptrdiff_t)p * c.rows + (ptrdiff_t)(j + i) * c.columns,
                   c.rows, c.columns, smallest(PART, k - p), smallest(width, columns - i), width, whole, own);
    }
}

static void pack_split(float *packed, ptir_matrix c, size_t k, size_t n, size_t first, size_t last)
{
    if (!is_worth_splitting(k, n)) {
        ptir_isa_avx512.pack(packed, c, k, n, first, last);
        return;
    }
    uint32_t *to = (uint32_t *)packed;
    range *ranges = (range *)(to + padded_columns(n) * split_rows(k));
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, SNC);
        for (size_t p = 0; p < k; p += PART)
            split_parts(to, c, k, n, p, j, columns, (column_range){first, last}, ranges, 0);
        for (size_t i = 0; i < columns; i += panel_width(columns - i))
            for (size_t p = 0; p < k && j + i >= first && j + i < last && !has_pieces(ranges[(j + i) / W]); p += PART)
                split_parts(to, c, k, n, p, j, columns, (column_range){j + i, j + i + 1}, ranges, 1);
    }
}

/* Join pieces to up to sixteen floats. Pieces are `apart` words apart; `half` says which half of the words. */
PTIR_INLINE void join_words(float *to, const uint32_t *from, size_t apart, size_t count, size_t half, int whole)
{
    for (size_t c = 0; c < count; c++) {
        uint32_t piece[PIECES], bits;
        float part[PIECES], sum;
        for (size_t i = 0; i < PIECES; i++) {
            piece[i] = half ? from[i * apart + c] & 0xffff0000u : from[i * apart + c] << 16;
            memcpy(&part[i], &piece[i], sizeof bits);
        }
        sum = (float)((double)part[0] + part[1] + part[2]); /* exact */
        memcpy(&bits, &sum, sizeof bits);
        if (whole)
            bits = piece[0] | piece[1] >> 16;
        else if (((piece[1] | piece[2]) & MAGNITUDE) == 0)
            bits = piece[0]; /* keeps the sign of zero */
        memcpy(to + c, &bits, sizeof bits);
    }
}

/* Undo `pack_split`: write the right operand as dense rows. */
static void unpack_split(float *to, const float *packed, size_t k, size_t n)
{
    if (!is_worth_splitting(k, n)) {
        ptir_isa_avx512.unpack(to, packed, k, n);
        return;
    }
    const uint32_t *from = (const uint32_t *)packed;
    const range *ranges = (const range *)(from + padded_columns(n) * split_rows(k));
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, SNC);
        for (size_t i = 0, width; i < columns; i += width) {
            width = panel_width(columns - i);
            const int whole = !has_pieces(ranges[(j + i) / W]);
            for (size_t p = 0; p < k; p++) {
                const size_t start = p / KC * KC, depth = smallest(KC, k - start), r = p % PART;
                const uint32_t *part = from + split_at(j, start, n, k) + i * split_rows(depth) + split_rows((p - start) / PART * PART) * width;
                for (size_t c = 0; c < smallest(width, columns - i); c += SIXTEEN)
                    join_words(to + p * n + j + i + c, part + r % SIXTEEN * width + c, SIXTEEN * width,
                               smallest(SIXTEEN, smallest(width, columns - i) - c), r / SIXTEEN, whole);
            }
        }
    }
}

/* The ranges of the panels of a packed right operand; their union. */
static const range *right_ranges(const uint32_t *packed, size_t k, size_t n) { return (const range *)(packed + padded_columns(n) * split_rows(k)); }

static range right_range(const uint32_t *packed, size_t k, size_t n)
{
    const range *ranges = right_ranges(packed, k, n);
    range found = no_range;
    for (size_t j = 0, columns; j < n; j += columns) {
        columns = block_width(n - j, SNC);
        for (size_t i = 0; i < columns; i += panel_width(columns - i))
            found = joined_range(found, ranges[(j + i) / W]);
    }
    return found;
}

/* The addresses of columns [p, p + depth) of MR rows of a left operand: in place, or a copy in `room`, [MR][KC]. Rows beyond `m`
 * repeat the last one. */
static PTIR_NOINLINE void find_rows(const float **from, const left_rows *x, const pixels *found, size_t start, size_t m, size_t p, size_t depth,
                                 float *room)
{
    if (!x->patches && x->a.columns == 1) {
        for (size_t r = 0; r < MR; r++)
            from[r] = found->image[r] + p;
        return;
    }
    for (size_t r = 0; r < MR; r++)
        from[r] = room + r * KC;
    if (x->patches) {
        const int lines = has_lines(x->patches);
        const size_t whole = x->patches->channels * (lines ? x->patches->window[1] : 1);
        for (size_t k = 0, here; k < depth; k += here) {
            const float *own[MR];
            here = smallest(whole - (p + k) % whole, depth - k);
            if (lines)
                find_line(own, found, x, p + k, here, room + MR * KC);
            else
                find_column(own, found, x, p + k);
            if (here == depth) {
                for (size_t r = 0; r < MR; r++)
                    if (own[r] < room + MR * KC || own[r] >= room + 2 * MR * KC)
                        from[r] = own[r];
                    else
                        memcpy(room + r * KC, own[r], depth * sizeof **own);
                return;
            }
            for (size_t r = 0; r < MR; r++)
                for (size_t i = 0; i < here; i += W)
                    _mm512_mask_storeu_ps(room + r * KC + k + i, first_of(here - i), _mm512_maskz_loadu_ps(first_of(here - i), own[r] + i));
        }
        return;
    }
    const size_t rows = smallest(MR, m - start);
    const float *at = x->a.data + (ptrdiff_t)start * x->a.rows + (ptrdiff_t)p * x->a.columns;
    size_t k = 0;
    if (x->a.rows == 1 && rows == MR && MR == SIDE)
        for (; k + SIDE <= depth; k += SIDE)
            transpose8(room + k, KC, at + (ptrdiff_t)k * x->a.columns, x->a.columns);
    for (; k < depth; k++)
        for (size_t r = 0; r < MR; r++)
            room[r * KC + k] = at[(ptrdiff_t)smallest(r, rows - 1) * x->a.rows + (ptrdiff_t)k * x->a.columns];
}

/* Of MR rows: whether tiles may be used; whether they are not split; the number of nonzero pieces. */
typedef struct {
    uint8_t no_subnormals, whole, pieces;
} row_kind;

/* Cache of the ranges of SEGMENT pixels of image lines. */
typedef struct {
    size_t key[KNOWN]; /* number of the segment, plus 1 */
    range found[KNOWN];
} known_ranges;

static range segment_range(known_ranges *known, const ptir_patches *p, const float *image, size_t i, size_t segment)
{
    const size_t segments = (p->extent[1] + SEGMENT - 1) / SEGMENT;
    const size_t line = (size_t)((image - p->data) / (p->batch ? p->batch : 1)) * p->extent[0] + i, key = line * segments + segment + 1;
    range *found = &known->found[key % KNOWN];
    if (known->key[key % KNOWN] == key)
        return *found;
    const size_t count = smallest(SEGMENT, p->extent[1] - segment * SEGMENT);
    const float *at = image + (ptrdiff_t)i * p->row + (ptrdiff_t)(segment * SEGMENT) * p->column;
    const int is_one = p->column == (ptrdiff_t)p->channels;
    ranges seen = no_ranges();
    for (size_t j = 0; j < (is_one ? 1 : count); j++)
        see_all(&seen, at + (ptrdiff_t)j * p->column, is_one ? count * p->channels : p->channels);
    *found = range_of(seen);
    known->key[key % KNOWN] = key;
    return *found;
}

/* Range of the segments that the patches of rows [first, last] of `found` read; they are in one line of places. */
static range patches_range(known_ranges *known, const ptir_patches *p, const pixels *found, size_t first, size_t last)
{
    range own = no_range;
    for (size_t s = 0; s < p->window[0]; s++) {
        const ptrdiff_t line = found->top[first] + (ptrdiff_t)(s * p->dilation[0]);
        ptrdiff_t next = 0; /* the first segment of the line that does not count yet */
        if (line < 0 || line >= (ptrdiff_t)p->extent[0])
            continue;
        for (size_t t = 0; t < p->window[1]; t++) {
            const ptrdiff_t across = (ptrdiff_t)(t * p->dilation[1]), low = found->left[first] + across, high = found->left[last] + across;
            if (high < 0 || low >= (ptrdiff_t)p->extent[1])
                continue;
            ptrdiff_t segment = low < 0 ? 0 : low / SEGMENT;
            for (segment = segment > next ? segment : next; segment * SEGMENT <= high && segment * SEGMENT < (ptrdiff_t)p->extent[1]; segment++)
                own = joined_range(own, segment_range(known, p, found->image[first], (size_t)line, (size_t)segment));
            next = segment > next ? segment : next;
        }
    }
    return own;
}

/* Classify rows [start, start + rows), MR at a time. For patches, the range of all segments that they read counts. */
static PTIR_NOINLINE void find_kinds(row_kind *kinds, const left_rows *x, size_t start, size_t rows, size_t k, range right, float *room,
                                  known_ranges *known)
{
    for (size_t i = 0; i < rows; i += MR, kinds++) {
        const float *from[MR];
        range own = no_range;
        pixels found;
        find_pixels(&found, x, start + i, start + rows);
        for (size_t r = 0, last; x->patches && r < MR; r = last + 1) {
            for (last = r; last + 1 < MR && found.image[last + 1] == found.image[r] && found.top[last + 1] == found.top[r];)
                last++;
            own = joined_range(own, patches_range(known, x->patches, &found, r, last));
        }
        ranges seen = no_ranges();
        for (size_t c = 0; !x->patches && c < k; c += KC) {
            find_rows(from, x, &found, start + i, start + rows, c, smallest(KC, k - c), room);
            for (size_t r = 0; r < smallest(MR, rows - i); r++)
                see_all(&seen, from[r], smallest(KC, k - c));
        }
        own = x->patches ? own : range_of(seen);
        *kinds = (row_kind){(uint8_t)is_exact_product(own, right), (uint8_t)!has_pieces(own), (uint8_t)pieces_of(own)};
    }
}

PTIR_INLINE void split_row(uint32_t *to, const float *from, size_t depth, int whole)
{
    size_t k = 0;
    for (; k + PART <= depth; k += PART, to += 2 * TILE * PIECES)
        split_words(to, 2 * TILE, _mm512_loadu_ps(from + k), _mm512_loadu_ps(from + k + SIXTEEN), whole);
    if (k == depth)
        return;
    const uint32_t some = (1u << (depth - k)) - 1;
    split_words(to, 2 * TILE, _mm512_maskz_loadu_ps((__mmask16)some, from + k), _mm512_maskz_loadu_ps((__mmask16)(some >> 16), from + k + SIXTEEN), whole);
}

/* Pack rows [start, start + rows) in blocks of two tiles, part by part along k. */
static PTIR_NOINLINE void split_left(uint32_t *to, const left_rows *x, size_t start, size_t rows, size_t end, size_t p, size_t depth,
                                  const row_kind *kinds, float *room)
{
    for (size_t i = 0; i < rows; i += MR, kinds++) {
        pixels found;
        const float *from[MR];
        find_pixels(&found, x, start + i, end);
        find_rows(from, x, &found, start + i, end, p, depth, room);
        uint32_t *block = to + i / BLOCK * BLOCK * split_rows(depth) + i % BLOCK * SIXTEEN;
        for (size_t r = 0; r < smallest(MR, rows - i); r++, block += SIXTEEN)
            if (kinds->whole)
                split_row(block, from[r], depth, 1);
            else
                split_row(block, from[r], depth, 0);
    }
}

#define DOTS(a0, a1, b0, b1)                                                                                           \
    do {                                                                                                               \
        TILE_DOT("tdpbf16ps", 0, a0, b0);                                                                              \
        if (wide)                                                                                                      \
            TILE_DOT("tdpbf16ps", 1, a0, b1);                                                                          \
        if (high)                                                                                                      \
            TILE_DOT("tdpbf16ps", 2, a1, b0);                                                                          \
        if (high && wide)                                                                                              \
            TILE_DOT("tdpbf16ps", 3, a1, b1);                                                                          \
    } while (0)
#define LOAD_LEFT(piece)                                                                                               \
    do {                                                                                                               \
        TILE_LOAD(4, a + (piece) * piece_step, 4 * row_step);                                                          \
        if (high)                                                                                                      \
            TILE_LOAD(5, a + (piece) * piece_step + below, 4 * row_step);                                              \
    } while (0)
#define LOAD_RIGHT(piece)                                                                                              \
    do {                                                                                                               \
        TILE_LOAD(6, b + (piece) * SIXTEEN * width, 4 * width);                                                        \
        if (wide)                                                                                                      \
            TILE_LOAD(7, b + (piece) * SIXTEEN * width + SIXTEEN, 4 * width);                                          \
    } while (0)

/* Prefetch one piece of a part to the level-2 cache, unless `part` is NULL. */
PTIR_INLINE void fetch_piece(const uint32_t *part, int piece, int wide)
{
    const size_t words = SIXTEEN * (wide ? BLOCK : SIXTEEN);
    for (size_t i = 0; part && i < words; i += LINE)
        __builtin_prefetch(part + (size_t)piece * words + i, 0, 2);
}

/* Add the products of one part, the smallest first. Pieces of the left operand are `piece_step` words apart, rows `row_step`, and
 * the second tile is at `below`. `next`, a part of the right operand, is prefetched unless it is NULL. */
PTIR_INLINE void add_part(const uint32_t *a, size_t piece_step, size_t row_step, size_t below, const uint32_t *b, int high, int wide, int left,
                          int right, const uint32_t *next)
{
    const size_t width = wide ? BLOCK : SIXTEEN;
    fetch_piece(next, 0, wide);
    if (left > 1) {
        LOAD_RIGHT(0);
        if (left > 2) {
            LOAD_LEFT(2);
            DOTS(4, 5, 6, 7);
        }
        LOAD_LEFT(1);
        DOTS(4, 5, 6, 7);
    }
    if (right > 1) {
        fetch_piece(next, 1, wide);
        LOAD_RIGHT(1);
        if (left > 1)
            DOTS(4, 5, 6, 7);
    }
    LOAD_LEFT(0);
    if (right > 1)
        DOTS(4, 5, 6, 7);
    if (right > 2) {
        fetch_piece(next, 2, wide);
        LOAD_RIGHT(2);
        DOTS(4, 5, 6, 7);
    }
    LOAD_RIGHT(0);
    DOTS(4, 5, 6, 7);
}
#undef DOTS
#undef LOAD_LEFT
#undef LOAD_RIGHT

/* Initialize the sums of up to 2 x 2 tiles, with 0 or with `out` (`begin_sums`); store them (`put_sums`). */
PTIR_INLINE void begin_sums(const float *out, size_t stride, int add, int high, int wide)
{
    const size_t step = 4 * stride;
    const char *to = (const char *)out, *below = to + SIXTEEN * step;
    if (add) {
        TILE_LOAD(0, to, step);
        if (wide)
            TILE_LOAD(1, to + 4 * SIXTEEN, step);
        if (high)
            TILE_LOAD(2, below, step);
        if (high && wide)
            TILE_LOAD(3, below + 4 * SIXTEEN, step);
        return;
    }
    TILE_ZERO(0);
    if (wide)
        TILE_ZERO(1);
    if (high)
        TILE_ZERO(2);
    if (high && wide)
        TILE_ZERO(3);
}

PTIR_INLINE void put_sums(float *out, size_t stride, int high, int wide)
{
    const size_t step = 4 * stride;
    char *to = (char *)out, *below = to + SIXTEEN * step;
    TILE_STORE(0, to, step);
    if (wide)
        TILE_STORE(1, to + 4 * SIXTEEN, step);
    if (high)
        TILE_STORE(2, below, step);
    if (high && wide)
        TILE_STORE(3, below + 4 * SIXTEEN, step);
}

/* Multiply up to 2 x 2 tiles of `left` and `right` pieces. `high` and `wide` (whether there are two) are compile-time constants.
 * With `fetches`, the panel after this one is prefetched. */
PTIR_INLINE void sum_split(float *out, size_t stride, const uint32_t *a, const uint32_t *b, size_t parts, int add, int high, int wide,
                           int left, int right, int fetches)
{
    const size_t part = PIECES * SIXTEEN * (wide ? BLOCK : SIXTEEN);
    begin_sums(out, stride, add, high, wide);
    for (size_t k = 0; k < parts; k++, a += 2 * PIECES * TILE, b += part)
        add_part(a, 2 * TILE, SIXTEEN, TILE, b, high, wide, left, right, fetches ? b + parts * part : NULL);
    put_sums(out, stride, high, wide);
}

/* Join the pieces of words, or read floats that are stored `whole`. */
PTIR_INLINE void from_pieces(floats *low, floats *high, const uint32_t *at, size_t apart, int whole)
{
    typedef uint32_t some_words __attribute__((vector_size(4 * W), aligned(4), may_alias));
    some_words x[PIECES];
    UNROLLED
    for (int i = 0; i < PIECES; i++)
        x[i] = *(const some_words *)(at + i * apart);
    if (whole) {
        *low = (floats)(x[0] << 16 | (x[1] & 0xffffu));
        *high = (floats)((x[0] & 0xffff0000u) | x[1] >> 16);
        return;
    }
    *low = ((floats)(x[0] << 16) + (floats)(x[1] << 16)) + (floats)(x[2] << 16);
    *high = ((floats)(x[0] & 0xffff0000u) + (floats)(x[1] & 0xffff0000u)) + (floats)(x[2] & 0xffff0000u);
}

/* Which operands of a product are not split: rows of the left one, a panel of the right one. */
typedef struct {
    int left, right;
} whole_parts;

/* Multiply MR rows of a block in f32, from the operands packed for tiles. */
PTIR_INLINE void sum_in_f32(float *out, size_t stride, const uint32_t *a, const uint32_t *b, size_t parts, int add, tile_area area, whole_parts whole,
                            int vectors)
{
    floats sum[MR][NRV];
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (floats){0};
    for (size_t p = 0; p < parts; p++, a += 2 * PIECES * TILE, b += PIECES * SIXTEEN * (size_t)(vectors * W)) {
        float left[MR][PART];
        for (int i = 0; i < MR; i++)
            from_pieces((floats *)left[i], (floats *)&left[i][SIXTEEN], a + i * SIXTEEN, 2 * TILE, whole.left);
        for (size_t w = 0; w < SIXTEEN; w++)
            for (int v = 0; v < vectors; v++) {
                floats low, high;
                from_pieces(&low, &high, b + w * (size_t)(vectors * W) + v * W, SIXTEEN * (size_t)(vectors * W), whole.right);
                for (int i = 0; i < MR; i++) {
                    sum[i][v] += left[i][w] * low;
                    sum[i][v] += left[i][w + SIXTEEN] * high;
                }
            }
    }
    for (size_t i = 0; i < area.rows; i++)
        for (int v = 0; v < vectors; v++)
            for (size_t j = (size_t)v * W; j < smallest(area.columns, (size_t)(v + 1) * W); j++)
                out[i * stride + j] = (add ? out[i * stride + j] : 0.0f) + sum[i][v][j % W];
}

static PTIR_NOINLINE void f32_area(float *out, size_t stride, const uint32_t *a, const uint32_t *b, size_t parts, int add, tile_area area,
                                whole_parts whole)
{
    if (area.columns > W)
        sum_in_f32(out, stride, a, b, parts, add, area, whole, 2);
    else
        sum_in_f32(out, stride, a, b, parts, add, area, whole, 1);
}

static void split_area(float *out, size_t stride, const uint32_t *a, const uint32_t *b, size_t parts, int add, tile_area area, int left,
                       int right, int fetches)
{
    if (area.rows > SIXTEEN && area.columns > SIXTEEN)
        sum_split(out, stride, a, b, parts, add, 1, 1, left, right, fetches);
    else if (area.columns > SIXTEEN)
        sum_split(out, stride, a, b, parts, add, 0, 1, left, right, fetches);
    else if (area.rows > SIXTEEN)
        sum_split(out, stride, a, b, parts, add, 1, 0, left, right, fetches);
    else
        sum_split(out, stride, a, b, parts, add, 0, 0, left, right, fetches);
}

/* Multiply rows of the left operand, which stay in the level-2 cache, by the panels of the right one. For the epilogue, the first
 * element is (row, column) of the result. A block is computed in `spare` if the epilogue reads the memory of the result. */
static PTIR_NOINLINE void split_block(float *out, size_t stride, const uint32_t *a, const uint32_t *b, size_t m, size_t n, size_t parts, int add,
                                   const row_kind *kinds, int right, const range *ranges, const ptir_epilogue *epilogue, size_t row, size_t column, float *spare,
                                   tile_shape *now)
{
    const int apart = epilogue && epilogue->takes_result;
    for (size_t j = 0, width; j < n; j += width) {
        const size_t columns = smallest(width = panel_width(n - j), n - j);
        const uint32_t *panel = b + j * parts * SIXTEEN * PIECES;
        for (size_t i = 0, rows; i < m; i += rows) {
            const size_t most = smallest(m - i, BLOCK - i % BLOCK), step = apart ? BLOCK : stride;
            const uint32_t *left = a + i / BLOCK * BLOCK * parts * SIXTEEN * PIECES + i % BLOCK * SIXTEEN;
            const int no_subnormals = kinds[i / MR].no_subnormals;
            float *to = out + i * stride + j, *made = apart ? spare : to;
            int pieces = 0;
            for (rows = 0; rows < most && kinds[(i + rows) / MR].no_subnormals == no_subnormals && (no_subnormals || !rows); rows = smallest(rows + MR, most))
                pieces = kinds[(i + rows) / MR].pieces > pieces ? kinds[(i + rows) / MR].pieces : pieces;
            const tile_area area = {rows, columns};
            prefetch_block(to, stride, epilogue, row + i, column + j, rows, columns);
            if (no_subnormals) {
                shape_tiles(now, area);
                split_area(made, step, left, panel, parts, add, area, pieces, right, row + i == 0);
            } else {
                f32_area(made, step, left, panel, parts, add, area,
                         (whole_parts){kinds[i / MR].whole, !has_pieces(ranges[(column + j) / W])});
            }
            if (epilogue)
                finish_block(made, step, epilogue, row + i, column + j, rows, columns);
            if (apart)
                copy_rows(to, stride, spare, BLOCK, rows, columns);
        }
    }
}

enum { LEFT_WORDS = SMC * KC / 2 * PIECES, ROOM = 2 * MR * KC, KIND_WORDS = SMC / MR * sizeof(row_kind) / sizeof(float) + 1 };

static size_t split_scratch(void) { return LEFT_WORDS + ROOM + BLOCK * BLOCK + KIND_WORDS + 2 * LINE; }

static size_t split_gemm_scratch(void)
{
    const size_t other = ptir_isa_avx512.gemm_scratch();
    return other > split_scratch() ? other : split_scratch();
}

static size_t split_packed_scratch(void)
{
    const size_t other = ptir_isa_avx512.packed_scratch();
    return other > split_scratch() ? other : split_scratch();
}

/* Multiply by a packed right operand. */
static void multiply_split(float *out, size_t step, const left_rows *x, const uint32_t *packed, size_t m, size_t n, size_t k,
                           const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch)
{
    uint32_t *left = (uint32_t *)at_line(scratch);
    float *room = (float *)(left + LEFT_WORDS), *spare = room + ROOM;
    row_kind *kinds = (row_kind *)(spare + BLOCK * BLOCK);
    const range right = right_range(packed, k, n);
    tile_shape now = NO_SHAPE;
    known_ranges known;
    memset(known.key, 0, sizeof known.key);
    for (size_t start = 0, height; start < m; start += height) {
        height = smallest(n <= FEW_COLUMNS ? BLOCK : SMC, m - start);
        find_kinds(kinds, x, start, height, k, right, room, &known);
        for (size_t j = 0, columns; j < n; j += columns) {
            columns = block_width(n - j, SNC);
            for (size_t p = 0; p < k; p += KC) {
                const size_t depth = smallest(KC, k - p), work = columns * depth * height;
                if (watch->done + work >= CHECK_INTERVAL) { /* the interrupt check may run code that uses tiles */
                    release_tiles();
                    now = NO_SHAPE;
                }
                if (is_stopped(watch, work)) {
                    release_tiles();
                    return;
                }
                split_left(left, x, start, height, start + height, p, depth, kinds, room);
                split_block(out + start * step + j, step, left, packed + split_at(j, p, n, k), height, columns, (depth + PART - 1) / PART,
                            p > 0, kinds, pieces_of(right), right_ranges(packed, k, n), p + depth == k ? epilogue : NULL, start, j, spare, &now);
            }
        }
    }
    release_tiles();
}

/* Image lines in pieces, with the padding on both sides. A pixel has `pixel` words: for each part of its channels the first pieces,
 * then the second and third ones. */
typedef struct {
    const uint32_t *data;
    size_t pixel, width;       /* words of a pixel; pixels of a line */
    const ptir_patches *patches;
    const uint32_t *right;     /* the packed right operand, k rows of n columns */
    size_t n, k;
    int left_pieces, right_pieces;
    range found[LINES]; /* of each line */
} split_lines;

/* First column of the last block. */
static size_t last_block(size_t n)
{
    size_t j = 0;
    while (block_width(n - j, SNC) < n - j)
        j += SNC;
    return j;
}

/* The packed parts of columns [j, …) of the right operand, in the block along k that begins with row p. */
PTIR_INLINE const uint32_t *right_parts(const split_lines *x, size_t j, size_t p)
{
    const size_t block = smallest(j / SNC * SNC, last_block(x->n));
    return x->right + split_at(block, p, x->n, x->k) + (j - block) * split_rows(smallest(KC, x->k - p));
}

/* The sums for consecutive pixels from `first` on. Those beyond the end of a line are computed, too, and dropped later. */
PTIR_INLINE void sum_places(float *out, const split_lines *x, size_t first, size_t j, int high, int wide)
{
    const ptir_patches *p = x->patches;
    const size_t parts = p->channels / PART, width = wide ? BLOCK : SIXTEEN;
    const uint32_t *b = NULL;
    size_t k = 0;
    begin_sums(out, BLOCK, 0, high, wide);
    for (size_t s = 0; s < p->window[0]; s++)
        for (size_t t = 0; t < p->window[1]; t++) {
            const uint32_t *a = x->data + (first + s * p->dilation[0] * x->width + t * p->dilation[1]) * x->pixel;
            for (size_t c = 0; c < parts; c++, k += PART, a += PIECES * SIXTEEN, b += PIECES * SIXTEEN * width) {
                if (k % KC == 0)
                    b = right_parts(x, j, k);
                add_part(a, SIXTEEN, x->pixel, SIXTEEN * x->pixel, b, high, wide, x->left_pieces, x->right_pieces, NULL);
            }
        }
    put_sums(out, BLOCK, high, wide);
}

static PTIR_NOINLINE void sum_area_of_places(float *out, const split_lines *x, size_t first, size_t j, tile_area area)
{
    if (area.rows > SIXTEEN && area.columns > SIXTEEN)
        sum_places(out, x, first, j, 1, 1);
    else if (area.columns > SIXTEEN)
        sum_places(out, x, first, j, 0, 1);
    else if (area.rows > SIXTEEN)
        sum_places(out, x, first, j, 1, 0);
    else
        sum_places(out, x, first, j, 0, 0);
}

/* The sums for one place, in f32. */
static PTIR_NOINLINE void sum_place_in_f32(float *out, const split_lines *x, size_t first, size_t j, size_t columns)
{
    const ptir_patches *p = x->patches;
    const size_t width = columns > W ? BLOCK : SIXTEEN;
    const uint32_t *b = NULL;
    floats sum[2] = {{0}};
    size_t k = 0;
    for (size_t tap = 0; tap < p->window[0] * p->window[1]; tap++) {
        const size_t s = tap / p->window[1], t = tap % p->window[1];
        const uint32_t *a = x->data + (first + s * p->dilation[0] * x->width + t * p->dilation[1]) * x->pixel;
        for (size_t c = 0; c < p->channels / PART; c++, k += PART, a += PIECES * SIXTEEN, b += PIECES * SIXTEEN * width) {
            float left[PART];
            if (k % KC == 0)
                b = right_parts(x, j, k);
            from_pieces((floats *)left, (floats *)(left + SIXTEEN), a, SIXTEEN, !has_pieces(x->found[first / x->width + s * p->dilation[0]]));
            for (size_t w = 0; w < SIXTEEN; w++)
                for (size_t v = 0; v < width / W; v++) {
                    floats low, high;
                    from_pieces(&low, &high, b + w * width + v * W, SIXTEEN * width, !has_pieces(right_ranges(x->right, x->k, x->n)[j / W]));
                    sum[v] += left[w] * low;
                    sum[v] += left[w + SIXTEEN] * high;
                }
        }
    }
    for (size_t v = 0; v < width / W; v++)
        put(out + v * W, sum[v]);
}

/* Split line i of an image, or store it `whole`. Returns its range. */
static PTIR_NOINLINE range split_line(uint32_t *to, const split_lines *x, const float *image, ptrdiff_t i, int whole)
{
    const ptir_patches *p = x->patches;
    ranges seen = no_ranges();
    for (size_t j = 0; j < x->width; j++, to += x->pixel) {
        const ptrdiff_t column = (ptrdiff_t)j - p->low[1];
        if (i < 0 || i >= (ptrdiff_t)p->extent[0] || column < 0 || column >= (ptrdiff_t)p->extent[1]) {
            memset(to, 0, x->pixel * sizeof *to);
            continue;
        }
        const float *at = image + i * p->row + column * p->column;
        for (size_t c = 0; c < p->channels; c += PART) {
            const __m512 low = _mm512_loadu_ps(at + c), high = _mm512_loadu_ps(at + c + SIXTEEN);
            see(&seen, low), see(&seen, high);
            split_words(to + c / PART * PIECES * SIXTEEN, SIXTEEN, low, high, whole);
        }
    }
    return range_of(seen);
}

/* Convolution that reads split image lines in place, without packing patches. Returns 0, with nothing done, if its geometry does
 * not allow that. A tile takes consecutive pixels, across the ends of lines; results that are not places are dropped. */
static int conv_of_lines(float *out, size_t step, const left_rows *x, const uint32_t *packed, size_t m, size_t n, size_t k,
                         const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch)
{
    const ptir_patches *p = x->patches;
    uint32_t *left = (uint32_t *)at_line(scratch);
    float *spare = (float *)(left + LEFT_WORDS);
    const size_t wide = p->places[1], reach = (p->window[0] - 1) * p->dilation[0] + 1;
    split_lines lines = {left, p->channels / 2 * PIECES, wide + (p->window[1] - 1) * p->dilation[1], p, packed, n, k, 1, 0, {{0}}};
    const size_t fit = smallest(LINES, LEFT_WORDS / (lines.width * lines.pixel + 1)); /* lines that fit in scratch */
    const range right = right_range(packed, k, n);
    tile_shape now = NO_SHAPE;
    if (p->channels % PART || p->stride[0] != 1 || p->stride[1] != 1 || fit < reach + ENOUGH_LINES)
        return 0;
    lines.right_pieces = pieces_of(right);
    for (size_t start = 0, rows; start < m; start += rows) {
        const size_t line = (x->first + start) / wide, column = (x->first + start) % wide, i = line % p->places[0];
        const size_t count = smallest(smallest(fit - reach + 1, p->places[0] - i), (column + m - start + wide - 1) / wide);
        const float *image = p->data + (ptrdiff_t)(line / p->places[0]) * p->batch;
        rows = smallest(count * wide - column, m - start);
        range all = no_range;
        for (size_t l = 0; l < count + reach - 1; l++) {
            uint32_t *to = left + l * lines.width * lines.pixel;
            lines.found[l] = split_line(to, &lines, image, (ptrdiff_t)(i + l) - p->low[0], 0);
            if (!has_pieces(lines.found[l]))
                split_line(to, &lines, image, (ptrdiff_t)(i + l) - p->low[0], 1);
            all = joined_range(all, lines.found[l]);
        }
        lines.left_pieces = pieces_of(all);
        uint8_t no_subnormals[LINES];
        for (size_t l = 0; l < count; l++) {
            range own = no_range;
            for (size_t t = 0; t < p->window[0]; t++)
                own = joined_range(own, lines.found[l + t * p->dilation[0]]);
            no_subnormals[l] = (uint8_t)is_exact_product(own, right);
        }
        const size_t last = (column + rows - 1) / wide * lines.width + (column + rows - 1) % wide;
        for (size_t j = 0, width; j < n; j += width) {
            const size_t end = j < last_block(n) ? (j / SNC + 1) * SNC : n, columns = smallest(width = panel_width(end - j), end - j);
            if (watch->done + rows * k * columns >= CHECK_INTERVAL) { /* the interrupt check may run code that uses tiles */
                release_tiles();
                now = NO_SHAPE;
            }
            if (is_stopped(watch, rows * k * columns)) {
                release_tiles();
                return 1;
            }
            for (size_t first = column, high; first <= last; first += high) {
                high = smallest(BLOCK, last + 1 - first);
                shape_tiles(&now, (tile_area){high, columns});
                sum_area_of_places(spare, &lines, first, j, (tile_area){high, columns});
                for (size_t r = 0, here; r < high; r += here) {
                    const size_t l = (first + r) / lines.width, at = (first + r) % lines.width;
                    here = smallest(high - r, (at < wide ? wide : lines.width) - at);
                    if (at >= wide)
                        continue;
                    const size_t row = start + l * wide + at - column;
                    float *made = spare + r * BLOCK;
                    for (size_t o = 0; !no_subnormals[l] && o < here; o++)
                        sum_place_in_f32(made + o * BLOCK, &lines, first + r + o, j, columns);
                    if (epilogue)
                        finish_block(made, BLOCK, epilogue, row, j, here, columns);
                    copy_rows(out + row * step + j, step, made, BLOCK, here, columns);
                }
            }
        }
    }
    release_tiles();
    return 1;
}

static void split_gemm(float *out, ptir_matrix a, ptir_matrix c, const float *packed, size_t batch, size_t m, size_t n, size_t k,
                       const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch)
{
    if (!packed || !is_worth_splitting(k, n)) {
        ptir_isa_avx512.gemm(out, a, c, packed, batch, m, n, k, epilogue, scratch, watch);
        return;
    }
    left_rows x = {a, NULL, 0};
    for (size_t b = 0; b < batch && !watch->stopped; b++, x.a.data += a.batch)
        multiply_split(out + b * m * n, n, &x, (const uint32_t *)packed, m, n, k, epilogue->count ? epilogue : NULL, scratch, watch);
}

static void split_conv(float *out, size_t step, size_t group_step, const ptir_patches *patches, const float *packed, size_t first, size_t m,
                       size_t n, const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch)
{
    const size_t k = patches->window[0] * patches->window[1] * patches->channels;
    if (!is_worth_splitting(k, n)) {
        ptir_isa_avx512.conv(out, step, group_step, patches, packed, first, m, n, epilogue, scratch, watch);
        return;
    }
    ptir_patches group = *patches;
    for (size_t g = 0; g < patches->groups && !watch->stopped; g++, group.data += patches->channels) {
        left_rows x = {.patches = &group, .first = first};
        ptir_epilogue own = epilogue_from(epilogue, g * n);
        const uint32_t *right = (const uint32_t *)packed + g * split_floats(k, n);
        const ptir_epilogue *done = own.count ? &own : NULL;
        if (!conv_of_lines(out + g * group_step, step, &x, right, m, n, k, done, scratch, watch))
            multiply_split(out + g * group_step, step, &x, right, m, n, k, done, scratch, watch);
    }
}

/* Flash attention of bf16 by AMX tiles. As in attention.inl, the scores are transposed: k is the left operand of the first product,
 * a panel of q the right one. Two columns of weights make the words of the right operand of the second product.
 *
 * Results are rounded exactly as in attention.inl. Most numbers allow a faster rounding or division; each function says which.
 * Other numbers take the path of attention.inl, and products that may be subnormal are computed in f32. */

/* A word holds two bf16; the first is in the low half. */
PTIR_INLINE floats low_of(__m512i x) { return (floats)_mm512_slli_epi32(x, 16); }
PTIR_INLINE floats high_of(__m512i x) { return (floats)_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000)); }
PTIR_INLINE __m512i pair_of(floats low, floats high)
{
    return _mm512_or_si512(_mm512_srli_epi32((__m512i)low, 16), (__m512i)high);
}

/* Round to bf16, for |x| < 2^110 that is not NaN: add and subtract 1.5 * 2^16 times the power of two of x. Subnormal numbers are
 * kept, and -0 becomes 0. */
PTIR_INLINE floats fast_bf16(floats x)
{
    const __m512 far = _mm512_set1_ps(0x1.8p16f);
    const __m512 power = (__m512)((ints)x & (int32_t)0x7f800000);
    return (floats)_mm512_fnmadd_ps(power, far, _mm512_fmadd_ps(power, far, (__m512)x));
}

/* e^x for x in [-87, 0], with an error of 2^-17, which is enough for bf16. x = n ln 2 + r with |r| <= ln 2 / 2. */
PTIR_INLINE floats weight_of(floats x)
{
    const __m512 shifted = _mm512_fmadd_ps((__m512)x, _mm512_set1_ps(1.44269504f), _mm512_set1_ps(SHIFT));
    const __m512 n = _mm512_sub_ps(shifted, _mm512_set1_ps(SHIFT));
    const __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693147181f), (__m512)x);
    __m512 p = _mm512_fmadd_ps(r, _mm512_set1_ps(4.150369996e-02f), _mm512_set1_ps(1.678780441e-01f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.000315128e-01f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.999666093e-01f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return (floats)_mm512_scalef_ps(p, n);
}

/* The least nonzero magnitude (MAGNITUDES if there is none) and the greatest, as bits. */
typedef struct {
    uint16_t least, greatest;
} magnitudes;

/* The magnitudes of `count` rows of `n` elements. */
static PTIR_NOINLINE magnitudes magnitudes_of(const uint16_t *x, ptrdiff_t step, ptrdiff_t next, size_t count, size_t n)
{
    const __m512i magnitude = _mm512_set1_epi16(MAGNITUDES), one = _mm512_set1_epi16(1);
    __m512i below = _mm512_set1_epi16(-1), most = _mm512_setzero_si512(); /* the least magnitude - 1: so 0 becomes the largest */
    uint16_t least[PART], greatest[PART];
    magnitudes found = {MAGNITUDES, 0};
    if (next != 1 && step == 1) {
        const size_t rows = count;
        count = n, n = rows, step = next, next = 1;
    }
    for (size_t i = 0; i < count; i++, x += step)
        for (size_t j = 0; j < n; j += PART) {
            const size_t here = smallest(PART, n - j);
            uint16_t own[PART];
            for (size_t e = 0; next != 1 && e < here; e++)
                own[e] = x[(ptrdiff_t)(j + e) * next];
            const __m512i all = _mm512_and_si512(load_tail(next == 1 ? x + j : own, here), magnitude);
            below = _mm512_min_epu16(below, _mm512_sub_epi16(all, one));
            most = _mm512_max_epu16(most, all);
        }
    _mm512_storeu_si512(least, below), _mm512_storeu_si512(greatest, most);
    for (size_t e = 0; e < PART; e++) {
        found.least = least[e] < found.least ? least[e] + 1 : found.least;
        found.greatest = greatest[e] > found.greatest ? greatest[e] : found.greatest;
    }
    return found;
}

/* State of one call. Keys and transposed values are packed row-wise in blocks of two tiles; queries are packed column-wise, one
 * tile of columns after the other. */
typedef struct {
    const ptir_attention *x;
    const uint32_t *keys, *values;
    uint32_t *queries, *weights; /* NRV areas of tile_rows(depth) rows, and of KEYS / 2 rows, of W words */
    float *scores, *out, *room;  /* NRV areas of KEYS rows, and of whole_blocks(width) rows, of W floats */
    magnitudes key, value;
    float scale; /* the scores are only scaled by this number and rounded; NaN if another program runs on them */
} attention_work;

PTIR_INLINE size_t whole_blocks(size_t n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }

static size_t pair_attention_scratch(size_t columns, size_t depth, size_t width)
{
    return whole_blocks(columns) * tile_rows(depth) + whole_blocks(width) * tile_rows(columns) + NR * tile_rows(depth) +
           (size_t)KEYS * NR / 2 + (size_t)KEYS * NR + whole_blocks(width) * NR + 8 * LINE;
}

/* Multiply a block of 2 x 1 or 2 x 2 tiles. `out` and `b` have one area per column of tiles. */
PTIR_INLINE void block_by_tiles(float *out, size_t apart, const uint32_t *a, const uint32_t *b, size_t b_apart, size_t parts, int wide)
{
    enum { ROW = 4 * SIXTEEN };
    float *other = out + apart;
    TILE_ZERO(0);
    TILE_ZERO(2);
    if (wide) {
        TILE_ZERO(1);
        TILE_ZERO(3);
    }
    for (size_t k = 0; k < parts; k++, a += 2 * TILE, b += TILE) {
        UNROLLED
        for (size_t i = 0; i < BLOCK; i++) /* prefetch the next part, which is in the level-2 cache */
            ptir_prefetch(a + 2 * TILE + i * SIXTEEN);
        TILE_LOAD(6, b, ROW);
        TILE_LOAD(4, a, ROW);
        DOT(0, 4, 6);
        TILE_LOAD(5, a + TILE, ROW);
        DOT(2, 5, 6);
        if (wide) {
            TILE_LOAD(7, b + b_apart, ROW);
            DOT(1, 4, 7);
            DOT(3, 5, 7);
        }
    }
    TILE_STORE(0, out, ROW);
    TILE_STORE(2, out + TILE, ROW);
    if (wide) {
        TILE_STORE(1, other, ROW);
        TILE_STORE(3, other + TILE, ROW);
    }
}

/* Multiply in f32, for one column of tiles. */
static PTIR_NOINLINE void block_in_f32(float *out, const uint32_t *a, const uint32_t *b, size_t parts, int add)
{
    for (size_t i = 0; i < BLOCK; i += MR) {
        const uint32_t *left = a + i / SIXTEEN * TILE + i % SIXTEEN * SIXTEEN;
        const uint32_t *right = b;
        floats sum[MR];
        for (int r = 0; r < MR; r++)
            sum[r] = add ? VECTOR(out + (i + (size_t)r) * W, 0) : (floats){0};
        for (size_t p = 0; p < parts; p++, left += 2 * TILE)
            for (size_t w = 0; w < SIXTEEN; w++, right += W) {
                const __m512i pairs = _mm512_loadu_si512(right);
                for (int r = 0; r < MR; r++) {
                    const uint32_t own = left[(size_t)r * SIXTEEN + w];
                    sum[r] += low_of(pairs) * from_bits(own << 16);
                    sum[r] += high_of(pairs) * from_bits(own & 0xffff0000u);
                }
            }
        for (int r = 0; r < MR; r++)
            put(out + (i + (size_t)r) * W, sum[r]);
    }
}

/* Multiply and add to `out`. The addition is not done by the tiles, which would flush a subnormal `out` to 0. */
static PTIR_NOINLINE void add_block_by_tiles(float *out, size_t apart, const uint32_t *a, const uint32_t *b, size_t b_apart, size_t parts,
                                          int vectors)
{
    float sums[NRV * BLOCK * W] __attribute__((aligned(64)));
    if (vectors > 1)
        block_by_tiles(sums, BLOCK * W, a, b, b_apart, parts, 1);
    else
        block_by_tiles(sums, BLOCK * W, a, b, b_apart, parts, 0);
    for (int v = 0; v < vectors; v++)
        for (size_t i = 0; i < BLOCK; i++) {
            float *to = out + (size_t)v * apart + i * W;
            put(to, VECTOR(to, 0) + VECTOR(sums + ((size_t)v * BLOCK + i) * W, 0));
        }
}

/* Multiply blocks of rows of the left operand, which are `apart` words apart, for each column of tiles. */
static PTIR_NOINLINE void multiply_blocks(float *out, size_t out_apart, size_t rows, const uint32_t *a, size_t apart, const uint32_t *b,
                                       size_t b_apart, size_t parts, int add, int vectors, int no_subnormals)
{
    tile_shape now = NO_SHAPE;
    if (no_subnormals)
        shape_tiles(&now, (tile_area){BLOCK, BLOCK});
    for (size_t i = 0; i < rows; i += BLOCK, a += apart, out += BLOCK * W)
        if (!no_subnormals)
            for (int v = 0; v < vectors; v++)
                block_in_f32(out + (size_t)v * out_apart, a, b + (size_t)v * b_apart, parts, add);
        else if (add)
            add_block_by_tiles(out, out_apart, a, b, b_apart, parts, vectors);
        else if (vectors > 1)
            block_by_tiles(out, out_apart, a, b, b_apart, parts, 1);
        else
            block_by_tiles(out, out_apart, a, b, b_apart, parts, 0);
    if (no_subnormals)
        release_tiles();
}

/* Prepare the scores of W rows: round; scale if `scales`; round again if `scales` is above 1; mask. Returns the maximum per row. */
PTIR_INLINE floats prepare_scores(float *s, size_t first, size_t last, size_t column, const row_state *r, float scale, float low, int scales,
                                int is_masked)
{
    floats most[2] = {all(-INFINITY), all(-INFINITY)};
    for (size_t j = first; j < last; j++) {
        floats x = fast_bf16(VECTOR(s + j * W, 0));
        if (scales)
            x = x * scale;
        if (scales > 1)
            x = fast_bf16(x);
        if (is_masked) {
            const ints at = (ints){0} + (int32_t)(column + j);
            x = pick((at >= r->first) & (at < r->last), x, all(low));
        }
        put(s + j * W, x);
        most[j % 2] = (floats)_mm512_max_ps((__m512)x, (__m512)most[j % 2]);
    }
    return (floats)_mm512_max_ps((__m512)most[0], (__m512)most[1]);
}

static PTIR_NOINLINE floats prepare(float *s, size_t first, size_t last, size_t column, const row_state *r, float scale, float low, int is_masked)
{
    int exponent;
    const int is_exact = fabsf(frexpf(scale, &exponent)) == 0.5f;
    if (is_masked)
        return prepare_scores(s, first, last, column, r, scale, low, 2, 1);
    if (scale == 1.0f)
        return prepare_scores(s, first, last, column, r, scale, low, 0, 0);
    return is_exact ? prepare_scores(s, first, last, column, r, scale, low, 1, 0) : prepare_scores(s, first, last, column, r, scale, low, 2, 0);
}

/* The maximum of the scores of W rows; NaN or infinity if there is any. */
static PTIR_NOINLINE floats largest_score(const float *s, size_t count)
{
    floats most = all(-INFINITY);
    for (size_t j = 0; j < count; j++)
        most = larger_value(VECTOR(s + j * W, 0), most);
    return most;
}

/* The weights of W scores, all of which are at most `shift`; they are added to `sum`. Weights that round to 0 in bf16 are not
 * computed, because subnormal numbers are slow. Weights between that and e^-87 become e^-87. */
PTIR_INLINE floats weight_at(const float *s, floats shift, floats *sum)
{
    const __m512 x = (__m512)(VECTOR(s, 0) - shift);
    const __mmask16 some = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-92.75f), _CMP_GE_OQ);
    const floats near = weight_of(fast_bf16((floats)_mm512_max_ps(x, _mm512_set1_ps(-87.0f))));
    const floats e = (floats)_mm512_maskz_mov_ps(some, (__m512)fast_bf16(near));
    *sum += e;
    return e;
}

/* Turn scores into packed weights, if no score is NaN or infinite. `most` is their maximum. The accumulated `out` is rescaled.
 *
 * A weight between 2^-125 and 1, or 0, allows fast rounding, and so does its quotient by the sum if that is not subnormal. The
 * product with the reciprocal has a relative error below 2^-22. A quotient of two bf16 is never so close to a rounding boundary, a
 * number with nine bits, so the rounded results agree.
 *
 * Returns 0, with only `to` changed, if another weight occurs. Else `*least` is the least nonzero weight, or MAGNITUDES. */
static PTIR_NOINLINE int weigh_fast(const float *s, uint32_t *to, size_t count, floats most, row_state *r, float *out, size_t width,
                                    uint16_t *least)
{
    enum { CHAINS = 4 };
    const floats before = r->most, top = (floats)_mm512_max_ps((__m512)before, (__m512)most);
    const floats shift = pick(top == -INFINITY, all(0.0f), top);
    floats sum[CHAINS];
    __m512i below[CHAINS / 2]; /* the least weight - 1: so 0 becomes the largest */
    size_t j;
    for (int c = 0; c < CHAINS; c++)
        sum[c] = all(0.0f), below[c / 2] = _mm512_set1_epi32(-1);
    for (j = 0; j + CHAINS <= count; j += CHAINS)
        for (size_t c = 0; c < CHAINS; c += 2) {
            const floats low = weight_at(s + (j + c) * W, shift, &sum[c]), high = weight_at(s + (j + c + 1) * W, shift, &sum[c + 1]);
            const __m512i both = pair_of(low, high);
            _mm512_storeu_si512(to + (j + c) / 2 * W, both);
            below[c / 2] = _mm512_min_epu16(below[c / 2], _mm512_add_epi16(both, _mm512_set1_epi16(-1)));
        }
    for (; j < count; j += 2) {
        const floats low = weight_at(s + j * W, shift, &sum[0]);
        const __m512i both = pair_of(low, j + 1 < count ? weight_at(s + (j + 1) * W, shift, &sum[1]) : all(0.0f));
        _mm512_storeu_si512(to + j / 2 * W, both);
        below[0] = _mm512_min_epu16(below[0], _mm512_add_epi16(both, _mm512_set1_epi16(-1)));
    }
    const __m512i found = _mm512_min_epu16(below[0], below[1]);
    const __m512i least_of_two = _mm512_min_epu16(found, _mm512_srli_epi32(found, 16)); /* in the low half */
    const floats weight = low_of(_mm512_add_epi16(least_of_two, _mm512_set1_epi16(1))); /* the least weight of each row, or 0 */
    const floats old = r->sum * any_exp(before - shift), total = old + ((sum[0] + sum[1]) + (sum[2] + sum[3]));
    const floats divisor = nearest_bf16(total);
    const floats inverse = pick(total == 0.0f, all(0.0f), 1.0f / total), factor = pick(total == 0.0f, all(0.0f), 1.0f / divisor);
    const floats quotient = weight * factor;
    if (is_any((weight != 0.0f) & ((weight < 2 * SMALLEST) | (quotient < 2 * SMALLEST))))
        return 0;
    for (j = 0; j < count; j += 2) {
        const __m512i both = _mm512_loadu_si512(to + j / 2 * W);
        const floats low = fast_bf16(low_of(both) * factor), high = fast_bf16(high_of(both) * factor);
        _mm512_storeu_si512(to + j / 2 * W, pair_of(low, high));
    }
    const uint32_t bits = _mm512_reduce_min_epu32(_mm512_sub_epi32((__m512i)fast_bf16(quotient), _mm512_set1_epi32(1)));
    *least = bits == UINT32_MAX ? MAGNITUDES : (uint16_t)((bits + 1) >> 16);
    for (size_t d = 0; out && d < width; d++)
        put(out + d * W, VECTOR(out + d * W, 0) * (old * inverse));
    r->most = top, r->sum = total;
    return 1;
}

/* The same for any scores, as in attention.inl. */
static PTIR_NOINLINE void weigh_any(float *s, uint32_t *to, size_t count, row_state *r, float *out, size_t width, uint16_t *least)
{
    weigh(s, W, count, r, out, width, PTIR_BF16);
    for (size_t j = 0; j < count; j += 2)
        _mm512_storeu_si512(to + j / 2 * W, pair_of(VECTOR(s + j * W, 0), j + 1 < count ? VECTOR(s + (j + 1) * W, 0) : all(0.0f)));
    *least = least_of((const uint16_t *)to, 0, 1, 1, (count + 1) / 2 * 2 * W, MAGNITUDES);
}

/* Turn the scores of one column of tiles into weights. Returns the least nonzero weight. */
static uint16_t weigh_rows(const attention_work *work, row_panel *p, int v, size_t j, size_t count, int is_small, ptir_watch *watch)
{
    const ptir_attention *x = work->x;
    float *s = work->scores + (size_t)v * KEYS * W, *out = p->is_begun ? work->out + (size_t)v * whole_blocks(x->width) * W : NULL;
    uint32_t *to = work->weights + (size_t)v * KEYS / 2 * W;
    row_state *r = &p->rows[v];
    const size_t padded = smallest(whole_blocks(count), KEYS);
    uint16_t least = MAGNITUDES;
    floats most;
    for (size_t i = (count + 1) / 2; i < padded / 2; i++)
        put((float *)to + i * W, all(0.0f));
    if (is_small && work->scale == work->scale) {
        const size_t end = j + count, first = x->kept && p->first > j ? smallest(p->first, end) - j : 0;
        const size_t last = x->kept && p->last < end ? (p->last > j + first ? p->last - j : first) : count;
        const floats a = prepare(s, 0, first, j, r, work->scale, x->low, 1), b = prepare(s, first, last, j, r, work->scale, x->low, 0);
        const floats c = prepare(s, last, count, j, r, work->scale, x->low, 1);
        most = larger_value(larger_value(a, b), c);
    } else {
        for (size_t i = 0; i < count; i++)
            put(s + i * W, nearest_bf16(VECTOR(s + i * W, 0)));
        if (x->scores)
            ptir_run_scores(x, s, W, p->head, p->row + (size_t)v * W, smallest(W, p->count - (size_t)v * W), j, count, work->room, watch);
        if (x->kept && (j < p->first || j + count > p->last))
            mask_scores(s, W, j, count, r, x->low);
        most = largest_score(s, count);
    }
    if (is_any(~(most < INFINITY)) || is_any(~(r->most < INFINITY)) || !weigh_fast(s, to, count, most, r, out, x->width, &least))
        weigh_any(s, to, count, r, out, x->width, &least);
    return least;
}

/* Process the score columns [from, to) of a panel; `from` is the first row of a block of keys. */
static void attend_pairs(const attention_work *work, row_panel *p, size_t from, size_t to, int no_subnormals, int is_small, ptir_watch *watch)
{
    const ptir_attention *x = work->x;
    const size_t rows = tile_rows(x->depth), columns = tile_rows(x->columns), width = whole_blocks(x->width);
    for (size_t j = from, count; j < to; j += count) {
        uint16_t least = MAGNITUDES;
        count = smallest(KEYS, to - j);
        multiply_blocks(work->scores, KEYS * W, count, work->keys + j * rows, BLOCK * rows, work->queries, rows * W, rows / SIXTEEN, 0,
                        p->vectors, no_subnormals);
        for (int v = 0; v < p->vectors; v++) {
            const uint16_t own = weigh_rows(work, p, v, j, count, is_small, watch);
            least = own < least ? own : least;
        }
        multiply_blocks(work->out, width * W, x->width, work->values + j / PART * 2 * TILE, BLOCK * columns, work->weights, KEYS / 2 * W,
                        (count + PART - 1) / PART, p->is_begun, p->vectors, is_normal_product(least, work->value.least));
        p->is_begun = 1;
    }
}

/* Transpose the result back into rows. A row whose weights are all 0 (all its scores are -inf) becomes NaN. */
static void write_pairs(const attention_work *work, const row_panel *p)
{
    const ptir_attention *x = work->x;
    uint16_t *out = (uint16_t *)x->out + (ptrdiff_t)p->head * x->out_head + (ptrdiff_t)p->row * x->out_row;
    float transposed[TILE] __attribute__((aligned(64)));
    for (int v = 0; v < p->vectors; v++) {
        const float *from = work->out + (size_t)v * whole_blocks(x->width) * W;
        const ints none = p->rows[v].sum == 0.0f;
        for (size_t d = 0; d < x->width; d += SIXTEEN) {
            const __mmask16 some = (__mmask16)((1u << smallest(SIXTEEN, x->width - d)) - 1);
            transpose_tile((uint32_t *)transposed, SIXTEEN, (const uint32_t *)from + d * W);
            for (size_t i = (size_t)v * W; i < smallest((size_t)(v + 1) * W, p->count); i++) {
                const floats row = none[i % W] ? all(NAN) : VECTOR(transposed + i % W * SIXTEEN, 0);
                _mm256_mask_storeu_epi16(out + (ptrdiff_t)i * x->out_row + (ptrdiff_t)d, some,
                                         _mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)nearest_bf16(row), 16)));
            }
        }
    }
}

/* The factor of the scores, if the program on them only scales and rounds, and the factor is not large; else NaN. Without a
 * program: 1. */
static float only_scale(const ptir_attention *x)
{
    const ptir_program *p = x->scores;
    if (!p)
        return 1.0f;
    if (p->length != 5 || p->array_count != 3 || x->own > 1 || p->code[0].op != PTIR_on_elements || p->code[1].op != PTIR_load ||
        p->code[1].a != x->own || p->code[2].op != PTIR_mul || p->code[2].a != 1 - x->own || p->code[3].op != PTIR_nearest_bf16 ||
        p->code[4].op != PTIR_store || p->code[4].a != 2)
        return NAN;
    const ptir_array *factor = &p->arrays[1 - x->own];
    if (factor->kind != PTIR_BF16 || factor->rows || factor->columns || factor->heads)
        return NAN;
    const float found = from_bf16(*(const uint16_t *)factor->data);
    return fabsf(found) <= 0x1p20f ? found : NAN;
}

enum { INFINITE = 0x7f80 };

/* Whether all sums of `depth` products of numbers up to these magnitudes stay below 2^80. */
static int are_small(uint16_t a, uint16_t b, size_t depth)
{
    enum { FIRST_BIT = 7, BIAS = 127, HIGHEST = 80, SLACK = 3 };
    int exponent = (a >> FIRST_BIT) + (b >> FIRST_BIT) - 2 * BIAS + SLACK;
    for (; depth; depth /= 2)
        exponent++;
    return a < INFINITE && b < INFINITE && exponent < HIGHEST;
}

static void pair_attention(const ptir_attention *x, float *scratch, ptir_watch *watch)
{
    const uint16_t *k = x->k.data, *v = x->v.data;
    const size_t rows = tile_rows(x->depth), columns = tile_rows(x->columns), width = whole_blocks(x->width);
    uint32_t *keys = (uint32_t *)at_line(scratch), *values = (uint32_t *)at_line((float *)keys + whole_blocks(x->columns) * rows);
    attention_work work = {.x = x, .keys = keys, .values = values};
    work.queries = (uint32_t *)at_line((float *)values + width * columns);
    work.weights = (uint32_t *)at_line((float *)work.queries + NR * rows);
    work.scores = at_line((float *)work.weights + KEYS / 2 * NR);
    work.out = at_line(work.scores + (size_t)KEYS * NR);
    work.room = at_line(work.out + width * NR);
    pack_left(keys, k, x->k.rows, x->k.columns, x->columns, x->depth);
    pack_left(values, v, x->v.columns, x->v.rows, x->width, x->columns);
    work.key = magnitudes_of(k, x->k.rows, x->k.columns, x->columns, x->depth);
    work.value = magnitudes_of(v, x->v.rows, x->v.columns, x->columns, x->width);
    work.scale = only_scale(x);
    for (size_t head = 0; head < x->heads; head++)
        for (size_t row = 0; row < x->rows; row += NR) {
            const uint16_t *q = (const uint16_t *)x->q.data + (ptrdiff_t)head * x->q.batch + (ptrdiff_t)row * x->q.rows;
            row_panel p = new_panel(x, head, row);
            size_t from = 0, to = x->columns;
            if (x->kept)
                find_kept(&p, &from, &to, BLOCK);
            for (size_t i = 0; i < p.count; i += W)
                for (size_t d = 0; d < x->depth; d += PART)
                    load_words(work.queries + i * rows + d / 2 * W, W, q + (ptrdiff_t)i * x->q.rows + (ptrdiff_t)d * x->q.columns, x->q.rows,
                               x->q.columns, smallest(W, p.count - i), smallest(PART, x->depth - d), 1, 1);
            const magnitudes query = magnitudes_of(q, x->q.rows, x->q.columns, p.count, x->depth);
            const int no_subnormals = is_normal_product(query.least, work.key.least);
            const int is_small = are_small(query.greatest, work.key.greatest, x->depth);
            attend_pairs(&work, &p, from, to, no_subnormals, is_small, watch);
            if (from < to && !(x->kept && work.value.greatest < INFINITE && is_far(&p))) {
                attend_pairs(&work, &p, 0, from, no_subnormals, is_small, watch);
                attend_pairs(&work, &p, to, x->columns, no_subnormals, is_small, watch);
            } else if (from >= to)
                attend_pairs(&work, &p, 0, x->columns, no_subnormals, is_small, watch);
            write_pairs(&work, &p);
            if (is_stopped(watch, p.count * (to - smallest(from, to)) * (x->depth + x->width)))
                return;
        }
}

/* Convolutions of few channels, or to few columns: in gemm.inl their windows would be packed element by element. Here the image lines
 * that a line of places sees are copied to scratch with their padding, each only once. Then element k of the window of every place
 * is at one offset from the place, without checks. Entry: `conv_of_lines`. */

enum {
    FEW = W / 2,                      /* columns, at most, for which vectors run along the places */
    SHORT_RUN = 24,                   /* contiguous elements of a window for which packing costs too much */
    ALONG_PLACES = W == 16 ? 8 : 4,   /* vectors of places of a block with one or two columns */
    SPARE = ALONG_PLACES * W * 2 > MR * NR ? ALONG_PLACES * W * 2 : MR * NR
};

/* Copies of image lines. `by_phase`: a line has its channels one after the other, of each every stride-th pixel from the first on,
 * then from the second on, …, so that adjacent places read adjacent elements. Else its pixels are as in the image. */
typedef struct {
    const ptir_patches *x;
    int by_phase;
    size_t first, pixels, run, length; /* of a line: its first padded pixel, their number, those of one phase, floats */
    ptrdiff_t *held;            /* the line of the image that each copy has */
    const float *image;         /* whose lines they are */
    float *lines;
    int32_t *offsets; /* of the elements of a window `by_phase`, else of its runs of elements */
    size_t together;  /* elements of such a run */
} copied_lines;

static void copy_line(const copied_lines *to, float *out, ptrdiff_t line)
{
    const ptir_patches *x = to->x;
    const size_t channels = x->channels, stride = x->stride[1], before = (size_t)x->low[1];
    const size_t low = before > to->first ? before - to->first : 0, seen = to->first > before ? to->first - before : 0;
    memset(out, 0, to->length * sizeof *out);
    if (line < 0 || line >= (ptrdiff_t)x->extent[0] || low >= to->pixels || seen >= x->extent[1])
        return;
    const float *from = to->image + line * x->row + (ptrdiff_t)seen * x->column;
    const size_t count = smallest(x->extent[1] - seen, to->pixels - low);
    if (!to->by_phase) {
        if (x->column == (ptrdiff_t)channels)
            memcpy(out + low * channels, from, count * channels * sizeof *out);
        else
            for (size_t q = 0; q < count; q++)
                memcpy(out + (low + q) * channels, from + (ptrdiff_t)q * x->column, channels * sizeof *out);
        return;
    }
    for (size_t first = 0; first < smallest(stride, count); first++) {
        float *phase = out + (low + first) % stride * to->run + (low + first) / stride;
        for (size_t q = first, at = 0; q < count; q += stride, at++)
            for (size_t c = 0; c < channels; c++)
                phase[c * stride * to->run + at] = from[(ptrdiff_t)q * x->column + (ptrdiff_t)c];
    }
}

/* Copy the lines that the windows at line `top` of the image see, from padded pixel `first_pixel` on, and find the offsets of their
 * elements. */
static void hold_lines(copied_lines *to, const float *image, ptrdiff_t top, size_t first_pixel)
{
    const ptir_patches *x = to->x;
    const ptrdiff_t window = (ptrdiff_t)x->window[0];
    int32_t *offset = to->offsets;
    if (image != to->image || first_pixel != to->first)
        for (ptrdiff_t s = 0; s < window; s++)
            to->held[s] = PTRDIFF_MIN;
    to->image = image, to->first = first_pixel;
    for (ptrdiff_t s = 0; s < window; s++) {
        const ptrdiff_t line = top + s * (ptrdiff_t)x->dilation[0], at = x->dilation[0] == 1 ? ((line % window) + window) % window : s;
        if (to->held[at] != line)
            copy_line(to, to->lines + (size_t)at * to->length, line);
        to->held[at] = line;
        for (size_t t = 0; t < x->window[1]; t++) {
            const size_t pixel = t * x->dilation[1], stride = x->stride[1], phase = pixel % stride;
            const size_t first = to->by_phase ? phase * to->run + pixel / stride : pixel * x->channels, start = (size_t)at * to->length + first;
            for (size_t c = 0; to->by_phase && c < x->channels; c++)
                *offset++ = (int32_t)(start + c * stride * to->run);
            if (!to->by_phase && t * x->channels % to->together == 0)
                *offset++ = (int32_t)start;
        }
    }
}

/* Places of a block of one or two vectors of columns: enough sums to hide the latency, and few loads for each. */
enum { TALL_1 = MR == 8 ? 16 : MR, TALL_2 = MR == 8 ? 12 : MR };

/* Where the elements of a window are, from its place on: runs of `run` adjacent elements at each offset. */
typedef struct {
    const int32_t *offsets;
    size_t run;
} window_runs;

/* A block of `rows` places and `vectors` vectors of columns from `column` on. Places are `apart`, in bytes. */
PTIR_INLINE void places_by_columns(float *restrict out, size_t stride, const float *from, ptrdiff_t apart, const window_runs *seen,
                                   const float *packed, size_t column, size_t n, size_t k, int rows, int vectors, const fused_pass *last)
{
    enum { GROUP = 4 }; /* rows for which one address is kept */
    const ptrdiff_t thrice = 3 * apart;
    floats sum[TALL_1 > MR ? TALL_1 : MR][NRV];
    UNROLLED_WIDE
    for (int i = 0; i < rows; i++)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (floats){0};
    size_t in_block = 0, p = 0;
    const float *restrict b = packed;
    for (size_t q = 0, r = 0, at = 0, length; q < k; q += length) {
        if (!in_block) { /* the packed operand is in blocks of the depth */
            p = q, in_block = smallest(KC, k - p);
            b = packed + packed_at(0, p, n, k) + column * in_block;
        }
        length = smallest(seen->run - at, in_block);
        const char *a[TALL_1 / GROUP];
        for (int g = 0; g < (rows + GROUP - 1) / GROUP; g++)
            a[g] = (const char *)(from + seen->offsets[r] + at) + GROUP * g * apart;
        for (const float *end = b + length * (size_t)(vectors * W); b < end; b += vectors * W) {
            floats right[NRV];
            for (int v = 0; v < vectors; v++)
                right[v] = *(const floats *)(b + v * W);
            UNROLLED_WIDE
            for (int i = 0; i < rows; i++) {
                const char *x = a[i / GROUP];
                const float element = *(const float *)(i % GROUP == 3 ? x + thrice : i % GROUP == 2 ? x + 2 * apart : i % GROUP ? x + apart : x);
                for (int v = 0; v < vectors; v++)
                    sum[i][v] += element * right[v];
            }
            for (int g = 0; g < (rows + GROUP - 1) / GROUP; g++)
                a[g] += sizeof(float);
        }
        in_block -= length, at += length;
        if (at == seen->run)
            at = 0, r++;
    }
    if (last)
        finish_sums(&sum[0][0], NRV, rows, vectors, last, 0);
    UNROLLED_WIDE
    for (int i = 0; i < rows; i++)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            *(floats *)(out + i * stride + v * W) = sum[i][v];
}

#define COLUMNS_OF(rows, vectors)                                                                                      \
    static PTIR_NOINLINE void columns_##vectors##_of_##rows(float *out, size_t stride, const float *from, ptrdiff_t apart,  \
                                                       const window_runs *seen, const float *packed, size_t column, size_t n,  \
                                                       size_t k, const fused_pass *last)                               \
    {                                                                                                                  \
        places_by_columns(out, stride, from, apart, seen, packed, column, n, k, rows, vectors, last);                  \
    }
COLUMNS_OF(MR, 1)
COLUMNS_OF(MR, 2)
#if NRV > 2
COLUMNS_OF(MR, 3)
#else
#define columns_3_of_MR columns_2_of_MR
#endif
COLUMNS_OF(TALL_1, 1)
COLUMNS_OF(TALL_2, 2)
#undef COLUMNS_OF

/* `here` places that are `apart` floats, the first one at `from`: their columns in the result, whose row of the first one is `row`.
 * The memory of as many places as a block has is read. */
static void line_by_columns(float *out, size_t step, const window_runs *seen, const float *from, ptrdiff_t apart, size_t here,
                            const float *packed, size_t n, size_t k, const ptir_epilogue *epilogue, size_t row, float *spare)
{
    fused_pass fused, own;
    const int ends = is_fused(&fused, epilogue);
    const size_t tall = n <= W ? TALL_1 : n <= 2 * W ? TALL_2 : MR;
    for (size_t i = 0, high; i < here; i += high, from += (ptrdiff_t)high * apart) {
        high = here - i > MR ? tall : MR;
        for (size_t at = 0, width; at < n; at += width) {
            const size_t columns = smallest(width = panel_width(n - at), n - at), rows = smallest(high, here - i);
            const int away = rows < high || columns % W || (epilogue && epilogue->takes_result && !ends);
            const fused_pass *last = ends && !away ? &own : NULL;
            float *to = out + i * step + at, *made = away ? spare : to;
            const size_t next = away ? width : step;
            if (last)
                own = fused_from(&fused, row + i, at);
#define COLUMNS_OF(rows, vectors) columns_##vectors##_of_##rows(made, next, from, apart * 4, seen, packed, at, n, k, last)
            if (columns > 2 * W)
                COLUMNS_OF(MR, 3);
            else if (columns > W) {
                if (high > MR)
                    COLUMNS_OF(TALL_2, 2);
                else
                    COLUMNS_OF(MR, 2);
            } else if (high > MR)
                COLUMNS_OF(TALL_1, 1);
            else
                COLUMNS_OF(MR, 1);
#undef COLUMNS_OF
            if (epilogue && !last)
                finish_block(made, next, epilogue, row + i, at, rows, columns);
            if (away)
                copy_rows(to, step, spare, width, rows, columns);
        }
    }
}

/* Multiply the first rows of a matrix by a packed right operand of one or two vectors of columns, whole blocks of them. Returns
 * their number. */
static size_t narrow_product(float *out, size_t step, const left_rows *x, const float *packed, size_t m, size_t n, size_t k,
                             const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch)
{
    static const int32_t start = 0;
    const size_t tall = n <= W ? TALL_1 : TALL_2, most = 64 * tall, rows = m / tall * tall;
    if (tall == MR || n <= FEW || n > 2 * W || k < LONG)
        return 0;
    for (size_t i = 0; i < rows && !is_stopped(watch, most * n * k); i += most)
        line_by_columns(out + i * step, step, &(window_runs){&start, k}, x->a.data + (ptrdiff_t)i * x->a.rows, x->a.rows,
                        smallest(most, rows - i), packed, n, k, epilogue, i, at_line(scratch));
    return rows;
}

/* `vectors` vectors of places and `columns` columns: `out` has the places of a column, then those of the next one. */
PTIR_INLINE void columns_by_places(float *restrict out, const float *from, const int32_t *offsets, const float *packed, size_t n, size_t k,
                                   int columns, int vectors)
{
    floats sum[FEW][ALONG_PLACES];
    UNROLLED
    for (int c = 0; c < columns; c++)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            sum[c][v] = (floats){0};
    for (size_t p = 0, depth; p < k; p += depth) {
        depth = smallest(KC, k - p);
        const float *restrict b = packed + packed_at(0, p, n, k);
        for (size_t q = p; q < p + depth; q++, b += W) {
            const float *a = from + offsets[q];
            floats seen[ALONG_PLACES];
            UNROLLED
            for (int v = 0; v < vectors; v++)
                seen[v] = *(const floats *)(a + v * W);
            UNROLLED
            for (int c = 0; c < columns; c++)
                UNROLLED
                for (int v = 0; v < vectors; v++)
                    sum[c][v] += b[c] * seen[v];
        }
    }
    UNROLLED
    for (int c = 0; c < columns; c++)
        UNROLLED
        for (int v = 0; v < vectors; v++)
            *(floats *)(out + (c * vectors + v) * W) = sum[c][v];
}

/* Compute a block of at most FEW columns in `out`; returns its vectors of places: as many as there are registers for, or one if
 * fewer than half of them are left. */
static PTIR_NOINLINE size_t few_columns(float *out, const float *from, const int32_t *offsets, const float *packed, size_t n, size_t k,
                                        size_t left)
{
#define VECTORS(columns, most)                                                                                         \
    if (2 * left > (most) * W) {                                                                                       \
        columns_by_places(out, from, offsets, packed, n, k, columns, most);                                            \
        return most;                                                                                                   \
    }                                                                                                                  \
    columns_by_places(out, from, offsets, packed, n, k, columns, 1);                                                   \
    return 1;
    if (n == 1) {
        VECTORS(1, ALONG_PLACES)
    }
#if W > 4
    if (n > 2 && n <= 4) {
        VECTORS(4, ALONG_PLACES / 2)
    }
#endif
#if W > 8
    if (n > 4) {
        VECTORS(8, 3)
    }
#endif
    VECTORS(2, ALONG_PLACES)
#undef VECTORS
}

static void line_by_places(float *out, size_t step, const copied_lines *lines, const float *from, size_t here, const float *packed,
                           size_t n, size_t k, const ptir_epilogue *epilogue, size_t row, float *made, float *spare)
{
    for (size_t i = 0, count; i < here; i += count, out += count * step) {
        const size_t wide = few_columns(made, from + i, lines->offsets, packed, n, k, here - i) * W;
        count = smallest(wide, here - i);
        if (n == 1 && step == 1 && !epilogue) {
            memcpy(out, made, count * sizeof *out);
            continue;
        }
        for (size_t c = 0; c < n; c++)
            for (size_t q = 0; q < count; q++)
                spare[q * n + c] = made[c * wide + q];
        if (epilogue)
            finish_block(spare, n, epilogue, row + i, 0, count, n);
        for (size_t q = 0; q < count; q++)
            for (size_t c = 0; c < n; c++)
                out[q * step + c] = spare[q * n + c];
    }
}

/* Multiply m patches by a packed right operand. Returns 0, with nothing done, if another way is faster or scratch is too small. */
static int conv_of_lines(float *out, size_t step, const left_rows *x, const float *packed, size_t m, size_t n, size_t k,
                         const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch)
{
    const ptir_patches *p = x->patches;
    const size_t wide = p->places[1], run = p->channels * (has_lines(p) ? p->window[1] : 1);
    const size_t reach = (p->window[1] - 1) * p->dilation[1] + 1, held = p->window[0] * sizeof(ptrdiff_t) / sizeof(float);
    copied_lines lines = {.x = p, .by_phase = n <= FEW && wide >= 2 * n && wide >= MR};
    const size_t more = lines.by_phase ? ALONG_PLACES * W : TALL_1;
    const int is_narrow = MR == 8 && n <= 2 * W && p->window[0] > 1 && has_lines(p);
    if ((!lines.by_phase && ((run >= SHORT_RUN && !is_narrow) || wide < MR)) || block_width(n, NC) != n || p->low[1] < 0)
        return 0;
    lines.together = p->dilation[1] == 1 ? p->window[1] * p->channels : p->channels;
    const size_t rest = held + k + 2 * SPARE + 4 * LINE, room = (size_t)MC * KC > rest ? (size_t)MC * KC - rest : 0;
    const size_t runs = room / (p->window[0] * p->channels * p->stride[1]), lost = more + reach / p->stride[1] + 2;
    if (runs < lost + (size_t)W || n == 0)
        return 0;
    const size_t places = smallest(wide, (runs - lost) / W * W); /* of a line at once */
    if (places < wide && p->window[0] > 1) /* lines would be copied again and again */
        return 0;
    lines.pixels = (places + more) * p->stride[1] + reach, lines.run = lines.pixels / p->stride[1] + 1;
    lines.length = p->channels * (lines.by_phase ? p->stride[1] * lines.run : lines.pixels);
    lines.held = (ptrdiff_t *)at_line(scratch);
    float *made = at_line(scratch + LINE + held), *spare = made + SPARE;
    lines.offsets = (int32_t *)(spare + SPARE);
    lines.lines = at_line((float *)(lines.offsets + k));
    for (size_t i = 0, here; i < m; i += here) {
        const size_t place = x->first + i, line = place / wide, j = place % wide, start = j / places * places;
        here = smallest(smallest(start + places, wide) - j, m - i);
        if (is_stopped(watch, here * k * n))
            return 1;
        hold_lines(&lines, p->data + (ptrdiff_t)(line / p->places[0]) * p->batch,
                   (ptrdiff_t)(line % p->places[0] * p->stride[0]) - p->low[0], start * p->stride[1]);
        const float *from = lines.lines + (j - start) * (lines.by_phase ? 1 : p->stride[1] * p->channels);
        if (lines.by_phase)
            line_by_places(out + i * step, step, &lines, from, here, packed, n, k, epilogue, i, made, spare);
        else
            line_by_columns(out + i * step, step, &(window_runs){lines.offsets, lines.together}, from, (ptrdiff_t)(p->stride[1] * p->channels),
                            here, packed, n, k, epilogue, i, spare);
    }
    return 1;
}

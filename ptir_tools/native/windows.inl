/* Depthwise convolution and pooling: windows over each channel separately. Vectors run along the channels. The results of BLOCK_X
 * adjacent places times SPAN vectors stay in registers. Entry: `windows`. */

enum { BLOCK_X = 6, SPAN = 2 };

/* Fast path for weighted windows of 3 or 5 taps per line, stride 1 or 2 and at most MOST_LINES lines: up to NEAR places at once. */
enum { NEAR = 8, MOST_TAPS = 5, MOST_LINES = 8 };
enum { LARGEST_VALUE = 16 }; /* the kind of a maximum in which the order of zeros does not matter */

/* Combine the accumulator with one more element. */
PTIR_INLINE floats combined(floats sum, floats x, floats weight, int kind)
{
    if (kind == LARGEST_VALUE)
        return larger_value(sum, x);
    if (kind == PTIR_WEIGHTED)
        return sum + x * weight;
    if (kind == PTIR_SUM)
        return sum + x;
    return kind == PTIR_MAX ? larger(sum, x) : smaller(sum, x);
}

typedef floats sums_of_places[BLOCK_X][SPAN];

/* Combine the windows of `count` places of one line from place j on, for `vectors` vectors of channels from `channel` on. The last
 * vector has `last` channels. With `inside`, no tap is outside the line, so taps are not checked. */
PTIR_INLINE void combine_places(sums_of_places sum, const ptir_patches *x, const float *image, ptrdiff_t top, size_t j, int inside,
                                size_t channel, const float *weights, size_t n, int kind, int count, int vectors, size_t last)
{
    static const float zeros[SPAN * W];
    const float identity = kind == PTIR_MAX || kind == LARGEST_VALUE ? -INFINITY : kind == PTIR_MIN ? INFINITY : 0.0f;
    ptrdiff_t left = (ptrdiff_t)(j * x->stride[1]) - x->low[1], apart = (ptrdiff_t)x->stride[1] * x->column;
    for (int i = 0; i < count; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (floats){0} + identity;
    for (size_t s = 0; s < x->window[0]; s++) {
        ptrdiff_t line = top + (ptrdiff_t)(s * x->dilation[0]);
        int is_there = line >= 0 && line < (ptrdiff_t)x->extent[0];
        for (size_t t = 0; t < x->window[1]; t++) {
            ptrdiff_t at = left + (ptrdiff_t)(t * x->dilation[1]), next = 0;
            const float *from = zeros, *weight = kind == PTIR_WEIGHTED ? weights + (s * x->window[1] + t) * n + channel : NULL;
            if (is_there && (inside || (at >= 0 && at < (ptrdiff_t)x->extent[1])))
                from = image + line * x->row + at * x->column + (ptrdiff_t)channel, next = apart;
            else if (kind != PTIR_WEIGHTED) /* padding is multiplied, too: 0 times infinity or NaN is NaN */
                continue;
            for (int v = 0; v < vectors; v++) {
                int whole = v < vectors - 1 || last == W;
                floats w = {0};
                if (kind == PTIR_WEIGHTED)
                    w = whole ? *(const floats *)(weight + v * W) : load_tail(weight + v * W, last);
                for (int i = 0; i < count; i++) {
                    const float *p = from + i * next + v * W;
                    sum[i][v] = combined(sum[i][v], whole ? *(const floats *)p : load_tail(p, last), w, kind);
                }
            }
        }
    }
}

/* The same for a maximum with 0.0 above -0.0. */
static PTIR_NOINLINE void order_zeros(sums_of_places sum, const ptir_patches *x, const float *image, ptrdiff_t top, size_t j, int inside,
                                   size_t channel, int count, int vectors, size_t last)
{
    combine_places(sum, x, image, top, j, inside, channel, NULL, 0, PTIR_MAX, count, vectors, last);
}

/* The same, stored to `out`. A maximum is computed without ordering zeros first; only -0.0 can be wrong and is computed again. */
PTIR_INLINE void places_of(float *out, size_t step, const ptir_patches *x, const float *image, ptrdiff_t top, size_t j, int inside,
                           size_t channel, const float *weights, size_t n, int kind, int count, int vectors, size_t last)
{
    sums_of_places sum;
    combine_places(sum, x, image, top, j, inside, channel, weights, n, kind == PTIR_MAX ? LARGEST_VALUE : kind, count, vectors, last);
    if (kind == PTIR_MAX) {
        ints lost = {0};
        for (int i = 0; i < count; i++)
            for (int v = 0; v < vectors; v++)
                lost |= (ints)sum[i][v] == ~MAGNITUDE;
        if (__builtin_expect(is_any(lost), 0)) {
            sums_of_places again; /* a copy, so that `sum` may stay in registers */
            order_zeros(again, x, image, top, j, inside, channel, count, vectors, last);
            for (int i = 0; i < count; i++)
                for (int v = 0; v < vectors; v++)
                    sum[i][v] = again[i][v];
        }
    }
    for (int i = 0; i < count; i++)
        for (int v = 0; v < vectors; v++) {
            float *to = out + (size_t)i * step + channel + v * W;
            if (v < vectors - 1 || last == W)
                *(floats *)to = sum[i][v];
            else
                store_tail(to, sum[i][v], last);
        }
}

/* One line of the windows of a block, one channel: its first element and the stride between elements. A line in the padding is
 * zeros with stride 0. */
typedef struct {
    const float *at;
    ptrdiff_t apart;
} window_line;

/* Whether the fast path applies: also, every window must contain at least one element that is not padding. */
static int are_near(const ptir_patches *x)
{
    const size_t taps = x->window[1], stride = x->stride[1];
    const ptrdiff_t left = (ptrdiff_t)((x->places[1] - 1) * stride) - x->low[1];
    return (taps == 3 || taps == 5) && (stride == 1 || stride == 2) && x->dilation[1] == 1 && x->window[0] <= MOST_LINES &&
           x->low[1] < (ptrdiff_t)taps && left < (ptrdiff_t)x->extent[1];
}

/* One vector of channels of `count` adjacent places, with `taps` taps per line. Each element is loaded once for all places.
 * Elements before `first` and from `last` on are padding. `ends` is applied to the results, unless it is NULL. */
PTIR_INLINE void neighbors_of(float *out, size_t step, const window_line *seen, size_t lines, int first, int last, const float *weights,
                              size_t n, size_t c, const fused_pass *ends, int count, int taps, int stride)
{
    const int elements = (count - 1) * stride + taps;
    floats sum[NEAR];
    UNROLLED
    for (int i = 0; i < count; i++)
        sum[i] = (floats){0};
    for (const window_line *line = seen; line < seen + lines; line++, weights += (size_t)taps * n) {
        const float *at = line->at + c;
        const ptrdiff_t apart = line->apart;
        floats weight[MOST_TAPS];
        UNROLLED
        for (int t = 0; t < taps; t++)
            weight[t] = *(const floats *)(weights + (size_t)t * n);
        UNROLLED_WIDE
        for (int i = 0; i < elements; i++) {
            /* Padding is multiplied, too: 0 times infinity or NaN is NaN. */
            const int is_there = (i >= taps - 1 || i >= first) && (i <= elements - taps || i < last);
            const floats element = *(const floats *)(is_there ? at + i * apart : zeros);
            UNROLLED
            for (int t = 0; t < taps; t++)
                if (i >= t && (i - t) % stride == 0 && (i - t) / stride < count)
                    sum[(i - t) / stride] = plus_product(sum[(i - t) / stride], element, weight[t]);
        }
    }
    if (ends)
        finish_sums(sum, 1, count, 1, ends, c);
    UNROLLED
    for (int i = 0; i < count; i++)
        *(floats *)(out + (size_t)i * step) = sum[i];
}

/* `width` channels, at least W, for `count` places, at most NEAR. The last vector may begin in the one before it. */
#define NEAR_PLACES(taps, stride)                                                                                      \
    static PTIR_NOINLINE void near_##taps##_##stride(float *out, size_t step, const window_line *seen, size_t lines, int first, int last, \
                                                  const float *weights, size_t n, size_t width, size_t count, const fused_pass *ends) \
    {                                                                                                                  \
        switch (count) {                                                                                               \
            COUNTED(1, taps, stride)                                                                                   \
            COUNTED(2, taps, stride)                                                                                   \
            COUNTED(3, taps, stride)                                                                                   \
            COUNTED(4, taps, stride)                                                                                   \
            COUNTED(5, taps, stride)                                                                                   \
            COUNTED(6, taps, stride)                                                                                   \
            COUNTED(7, taps, stride)                                                                                   \
            COUNTED(8, taps, stride)                                                                                   \
        }                                                                                                              \
    }
#define COUNTED(count, taps, stride)                                                                                   \
    case count:                                                                                                        \
        for (size_t c = 0, at; c < width; c += W) {                                                                    \
            at = smallest(c, width - W);                                                                               \
            neighbors_of(out + at, step, seen, lines, first, last, weights + at, n, at, ends, count, taps, stride);    \
        }                                                                                                              \
        break;
NEAR_PLACES(3, 1)
NEAR_PLACES(3, 2)
NEAR_PLACES(5, 1)
NEAR_PLACES(5, 2)
#undef COUNTED
#undef NEAR_PLACES

/* Channels [c, end) of `count` places. */
PTIR_INLINE void channels_of(float *out, size_t step, const ptir_patches *x, const float *image, ptrdiff_t top, size_t j, int inside,
                             const float *weights, size_t n, size_t c, size_t end, int kind, int count)
{
    for (; c + SPAN * W <= end; c += SPAN * W)
        places_of(out, step, x, image, top, j, inside, c, weights, n, kind, count, SPAN, W);
    for (; c + W <= end; c += W)
        places_of(out, step, x, image, top, j, inside, c, weights, n, kind, count, 1, W);
    if (c < end)
        places_of(out, step, x, image, top, j, inside, c, weights, n, kind, count, 1, end - c);
}

/* The fast path: channels [c, end), at most KC, of `here` places of one line from place j on. `row` is their row in the result. */
PTIR_INLINE void near_block(float *out, size_t step, const ptir_patches *x, const float *image, ptrdiff_t top, size_t j, size_t here,
                            const float *weights, size_t n, size_t c, size_t end, const ptir_epilogue *epilogue, const fused_pass *fused, size_t row)
{
    /* An epilogue that reads what it overwrites may be applied only once. */
    const size_t lines = x->window[0], rest = epilogue->takes_result ? end - (end - c) % W : end, width = rest - c;
    const ptrdiff_t stride = (ptrdiff_t)x->stride[1], left = (ptrdiff_t)j * stride - x->low[1], room = (ptrdiff_t)x->extent[1] - left;
    const int taps = (int)x->window[1], elements = ((int)here - 1) * (int)stride + taps;
    const int first = left < 0 ? (int)-left : 0, last = room < elements ? (int)room : elements;
    window_line seen[MOST_LINES];
    for (size_t s = 0; s < lines; s++) {
        const ptrdiff_t line = top + (ptrdiff_t)(s * x->dilation[0]);
        const int is_there = line >= 0 && line < (ptrdiff_t)x->extent[0];
        seen[s] = is_there ? (window_line){image + line * x->row + left * x->column + (ptrdiff_t)c, x->column} : (window_line){zeros, 0};
    }
    fused_pass own;
    if (fused)
        own = fused_from(fused, row, c);
#define NEAR_PLACES(taps, stride)                                                                                      \
    near_##taps##_##stride(out + c, step, seen, lines, first, last, weights + c, n, width, here, fused ? &own : NULL)
    if (taps == 3 && stride == 1)
        NEAR_PLACES(3, 1);
    else if (taps == 3)
        NEAR_PLACES(3, 2);
    else if (stride == 1)
        NEAR_PLACES(5, 1);
    else
        NEAR_PLACES(5, 2);
#undef NEAR_PLACES
    for (size_t q = 0; rest < end && q < here; q++)
        channels_of(out + q * step, step, x, image, top, j + q, 0, weights, n, rest, end, PTIR_WEIGHTED, 1);
    if (!fused)
        finish_block(out + c, step, epilogue, row, c, here, end - c);
    else if (rest < end)
        finish_block(out + rest, step, epilogue, row, rest, here, end - rest);
}

/* The fast path for channels [c, end) of places [i, last) of a call. Up to NEAR columns of places are processed line by line, so
 * that the input that two lines share stays in the level-1 cache. */
static void near_windows(float *out, size_t step, const ptir_patches *x, const float *weights, size_t first, size_t i, size_t last,
                         size_t n, size_t c, size_t end, const ptir_epilogue *epilogue)
{
    const size_t wide = x->places[1], blocks = (wide + NEAR - 1) / NEAR, start = (first + i) / wide, stop = (first + last - 1) / wide + 1;
    fused_pass fused;
    const int ends = is_fused(&fused, epilogue);
    for (size_t block = 0; block < blocks; block++) {
        const float *image = x->data + (ptrdiff_t)(start / x->places[0]) * x->batch;
        const size_t begin = wide * block / blocks, beyond = wide * (block + 1) / blocks;
        size_t high = start % x->places[0];
        for (size_t line = start; line < stop; line++) {
            size_t from = line * wide + begin, to = smallest(line * wide + beyond, first + last);
            from = from < first + i ? first + i : from;
            if (from < to)
                near_block(out + (from - first) * step, step, x, image, (ptrdiff_t)(high * x->stride[0]) - x->low[0], from - line * wide,
                           to - from, weights, n, c, end, epilogue, ends ? &fused : NULL, from - first);
            if (++high == x->places[0])
                high = 0, image += x->batch;
        }
    }
}

/* Channels [c, end) of places [i, last) of a call. */
PTIR_INLINE void windows_of(float *out, size_t step, const ptir_patches *x, int kind, const float *weights, size_t first, size_t i, size_t last,
                            size_t n, size_t c, size_t end, const ptir_epilogue *epilogue)
{
    /* The windows of places [from, to) of a line are inside it. */
    ptrdiff_t wide = (ptrdiff_t)((x->window[1] - 1) * x->dilation[1]) + 1, room = (ptrdiff_t)x->extent[1] - wide + x->low[1];
    size_t from = ((size_t)x->low[1] + x->stride[1] - 1) / x->stride[1], to = room < 0 ? 0 : (size_t)room / x->stride[1] + 1;
    if (kind == PTIR_WEIGHTED && end - c >= W && are_near(x)) {
        near_windows(out, step, x, weights, first, i, last, n, c, end, epilogue);
        return;
    }
    out += i * step;
    for (size_t here; i < last; i += here, out += here * step) {
        size_t at = first + i, j = at % x->places[1], line = at / x->places[1];
        const float *image = x->data + (ptrdiff_t)(line / x->places[0]) * x->batch;
        ptrdiff_t top = (ptrdiff_t)(line % x->places[0] * x->stride[0]) - x->low[0];
        int inside = j >= from && j < to;
        here = 1;
        if (inside && j + BLOCK_X <= to && i + BLOCK_X <= last) {
            here = BLOCK_X;
            channels_of(out, step, x, image, top, j, 1, weights, n, c, end, kind, BLOCK_X);
        } else
            channels_of(out, step, x, image, top, j, inside, weights, n, c, end, kind, 1);
        if (epilogue->count)
            finish_block(out + c, step, epilogue, i, c, here, end - c);
    }
}

/* Channels processed together in the fast path, so that the input, weights and results of a block of places fit in the level-1
 * cache. */
static size_t near_channels(const ptir_patches *x, size_t n)
{
    enum { NEAREST = 32 * 1024 / sizeof(float), FEWEST = 64 };
    const size_t elements = (NEAR - 1) * x->stride[1] + 2 * x->window[1], fit = NEAREST / (x->window[0] * elements + NEAR);
    const size_t parts = n / smallest(KC, fit < FEWEST ? FEWEST : fit) + 1;
    return ((n + parts - 1) / parts + LINE - 1) / LINE * LINE;
}

/* Strips of lines, with a part of the channels at a time. */
PTIR_INLINE void lines_of(float *out, size_t step, const ptir_patches *x, int kind, const float *weights, size_t first, size_t m, size_t n,
                          const ptir_epilogue *epilogue, ptir_watch *watch)
{
    enum { STRIP = 8 };
    const size_t some = kind == PTIR_WEIGHTED && are_near(x) ? near_channels(x, n) : n;
    for (size_t i = 0, last; i < m; i = last) {
        last = smallest(m, i + STRIP * x->places[1] - (first + i) % x->places[1]);
        for (size_t c = 0, end; c < n; c = end) {
            end = n - c <= some ? n : c + some;
            windows_of(out, step, x, kind, weights, first, i, last, n, c, end, epilogue);
        }
        if (is_stopped(watch, (last - i) * n * x->window[0] * x->window[1]))
            return;
    }
}

static void windows(float *out, size_t step, const ptir_patches *x, int kind, const float *weights, size_t first, size_t m, size_t n,
                    const ptir_epilogue *epilogue, ptir_watch *watch)
{
    switch (kind) {
    case PTIR_WEIGHTED: lines_of(out, step, x, PTIR_WEIGHTED, weights, first, m, n, epilogue, watch); break;
    case PTIR_SUM: lines_of(out, step, x, PTIR_SUM, weights, first, m, n, epilogue, watch); break;
    case PTIR_MAX: lines_of(out, step, x, PTIR_MAX, weights, first, m, n, epilogue, watch); break;
    case PTIR_MIN: lines_of(out, step, x, PTIR_MIN, weights, first, m, n, epilogue, watch); break;
    }
}

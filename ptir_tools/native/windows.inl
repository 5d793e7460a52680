/* Windows over each channel for itself: depthwise convolution and pooling. Vectors go along the channels; of BLOCK_X places next to
 * each other, and SPAN vectors of channels, the results stay in registers. */

enum { BLOCK_X = 6, SPAN = 2 };

/* Of windows with so many taps in a line, which are neighbors, this many places are done at once. */
enum { NEAR = 8, MOST_TAPS = 5 };
#if defined(__GNUC__)
#define UNROLLED_WIDE _Pragma("GCC unroll 12")
#else
#define UNROLLED_WIDE
#endif

/* What `so_far` is with one more element. */
PTIR_INLINE floats combined(floats so_far, floats x, floats weight, int kind)
{
    if (kind == PTIR_WEIGHTED)
        return so_far + x * weight;
    if (kind == PTIR_SUM)
        return so_far + x;
    return kind == PTIR_MAX ? larger(so_far, x) : smaller(so_far, x);
}

/* `vectors` vectors of channels from `channel` on, of `count` places of one line from place j on; of the last vector `last` channels
 * are there. Windows that are inside along the line, `inside`, are read without asking tap by tap. */
PTIR_INLINE void places_of(float *out, size_t step, const ptir_patches *x, const float *image, ptrdiff_t top, size_t j, int inside,
                           size_t channel, const float *weights, size_t n, int kind, int count, int vectors, size_t last)
{
    static const float zeros[SPAN * W];
    const float nothing = kind == PTIR_MAX ? -INFINITY : kind == PTIR_MIN ? INFINITY : 0.0f;
    ptrdiff_t left = (ptrdiff_t)(j * x->stride[1]) - x->low[1], apart = (ptrdiff_t)x->stride[1] * x->column;
    floats sum[BLOCK_X][SPAN];
    for (int i = 0; i < count; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (floats){0} + nothing;
    for (size_t s = 0; s < x->window[0]; s++) {
        ptrdiff_t line = top + (ptrdiff_t)(s * x->dilation[0]);
        int is_there = line >= 0 && line < (ptrdiff_t)x->extent[0];
        for (size_t t = 0; t < x->window[1]; t++) {
            ptrdiff_t at = left + (ptrdiff_t)(t * x->dilation[1]), next = 0;
            const float *from = zeros, *weight = kind == PTIR_WEIGHTED ? weights + (s * x->window[1] + t) * n + channel : NULL;
            if (is_there && (inside || (at >= 0 && at < (ptrdiff_t)x->extent[1])))
                from = image + line * x->row + at * x->column + (ptrdiff_t)channel, next = apart;
            else if (kind != PTIR_WEIGHTED) /* a weight that is not finite counts on padding, too */
                continue;
            for (int v = 0; v < vectors; v++) {
                int whole = v < vectors - 1 || last == W;
                floats w = {0};
                if (kind == PTIR_WEIGHTED)
                    w = whole ? *(const floats *)(weight + v * W) : some_of(weight + v * W, last);
                for (int i = 0; i < count; i++) {
                    const float *p = from + i * next + v * W;
                    sum[i][v] = combined(sum[i][v], whole ? *(const floats *)p : some_of(p, last), w, kind);
                }
            }
        }
    }
    for (int i = 0; i < count; i++)
        for (int v = 0; v < vectors; v++) {
            float *to = out + (size_t)i * step + channel + v * W;
            if (v < vectors - 1 || last == W)
                *(floats *)to = sum[i][v];
            else
                put_some(to, sum[i][v], last);
        }
}

/* A vector of channels of `count` places next to each other, whose windows have `taps` neighbors in a line: each element is loaded
 * once for all of them. The first of these elements is at column `left`; those before `first` and from `last` on are padding, which
 * none is where all are `inside`. `ends` is done to the results, unless it is NULL. */
PTIR_INLINE void neighbors_of(float *out, size_t step, const ptir_patches *x, const float *image, ptrdiff_t top, ptrdiff_t left, int first,
                              int last, const float *weights, size_t n, int count, int taps, int inside,
                              const usual_pass *ends, size_t c)
{
    floats sum[NEAR];
    UNROLLED
    for (int i = 0; i < count; i++)
        sum[i] = (floats){0};
    for (size_t s = 0; s < x->window[0]; s++, weights += (size_t)taps * n) {
        const ptrdiff_t line = top + (ptrdiff_t)(s * x->dilation[0]);
        const int is_there = line >= 0 && line < (ptrdiff_t)x->extent[0], from = is_there ? first : 0, to = is_there ? last : 0;
        const float *at = is_there ? image + line * x->row + left * x->column : image;
        floats weight[MOST_TAPS];
        for (int t = 0; t < taps; t++)
            weight[t] = *(const floats *)(weights + (size_t)t * n);
        if (inside && is_there)
            UNROLLED_WIDE
            for (int i = 0; i < count + taps - 1; i++) {
                const floats element = *(const floats *)(at + i * x->column);
                for (int t = 0; t < taps; t++)
                    if (i >= t && i - t < count)
                        sum[i - t] += element * weight[t];
            }
        else
            UNROLLED_WIDE
            for (int i = 0; i < count + taps - 1; i++) {
                floats element = {0}; /* a weight that is not finite counts on padding, too */
                if (i >= from && i < to)
                    element = *(const floats *)(at + i * x->column);
                for (int t = 0; t < taps; t++)
                    if (i >= t && i - t < count)
                        sum[i - t] += element * weight[t];
            }
    }
    UNROLLED
    for (int i = 0; i < count; i++)
        *(floats *)(out + (size_t)i * step) = ends ? done_usual(sum[i], ends, (size_t)i, c) : sum[i];
}

/* Whole vectors of channels from c to `end` of `count` places, up to NEAR; where the rest begins. */
static PTIR_APART size_t near_places(float *out, size_t step, const ptir_patches *x, const float *image, ptrdiff_t top, size_t j,
                                     const float *weights, size_t n, size_t c, size_t end, size_t count, const usual_pass *ends)
{
    const ptrdiff_t left = (ptrdiff_t)j - x->low[1], room = (ptrdiff_t)x->extent[1] - left;
    const int taps = (int)x->window[1], seen = (int)count + taps - 1;
    const int first = left < 0 ? (int)smallest((size_t)-left, (size_t)seen) : 0, last = room < 0 ? 0 : room < seen ? (int)room : seen;
#define PLACES(count, taps, inside)                                                                                    \
    for (; c + W <= end; c += W)                                                                                       \
    neighbors_of(out + c, step, x, image + c, top, left, first, last, weights + c, n, count, taps, inside, ends, c)
#define SOME(count)                                                                                                    \
    case count:                                                                                                        \
        if (taps == 3)                                                                                                 \
            PLACES(count, 3, 0);                                                                                       \
        else                                                                                                           \
            PLACES(count, 5, 0);                                                                                       \
        break;
    if (count == NEAR && first == 0 && last == seen) {
        if (taps == 3)
            PLACES(NEAR, 3, 1);
        else
            PLACES(NEAR, 5, 1);
        return c;
    }
    switch (count) {
        SOME(1)
        SOME(2)
        SOME(3)
        SOME(4)
        SOME(5)
        SOME(6)
        SOME(7)
        SOME(8)
    }
#undef SOME
#undef PLACES
    return c;
}

/* Channels from c to `end` of `count` places. */
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

/* Channels from c to `end` of places [i, last) of a call. */
PTIR_INLINE void windows_of(float *out, size_t step, const ptir_patches *x, int kind, const float *weights, size_t first, size_t i, size_t last,
                            size_t n, size_t c, size_t end, const ptir_ending *ending)
{
    /* Places [from, to) of a line see no padding along it. */
    ptrdiff_t wide = (ptrdiff_t)((x->window[1] - 1) * x->dilation[1]) + 1, room = (ptrdiff_t)x->extent[1] - wide + x->low[1];
    size_t from = ((size_t)x->low[1] + x->stride[1] - 1) / x->stride[1], to = room < 0 ? 0 : (size_t)room / x->stride[1] + 1;
    const int are_near = kind == PTIR_WEIGHTED && x->stride[1] == 1 && x->dilation[1] == 1 && (x->window[1] == 3 || x->window[1] == 5);
    usual_pass usual, own;
    const int ends = are_near && end - c >= W && is_usual(&usual, ending);
    out += i * step;
    for (size_t here; i < last; i += here, out += here * step) {
        size_t at = first + i, j = at % x->places[1], line = at / x->places[1];
        const float *image = x->data + (ptrdiff_t)(line / x->places[0]) * x->batch;
        ptrdiff_t top = (ptrdiff_t)(line % x->places[0] * x->stride[0]) - x->low[0];
        int inside = j >= from && j < to;
        here = 1;
        if (are_near && end - c >= W) {
            here = smallest(smallest(NEAR, x->places[1] - j), last - i);
            if (ends)
                own = usual_from(&usual, i, 0);
            const size_t rest = near_places(out, step, x, image, top, j, weights, n, c, end, here, ends ? &own : NULL);
            for (size_t q = 0; rest < end && q < here; q++)
                channels_of(out + q * step, step, x, image, top, j + q, j + q >= from && j + q < to, weights, n, rest, end, kind, 1);
            if (ends) {
                if (rest < end)
                    finish_block(out + rest, step, ending, i, rest, here, end - rest);
                continue;
            }
        } else if (inside && j + BLOCK_X <= to && i + BLOCK_X <= last) {
            here = BLOCK_X;
            channels_of(out, step, x, image, top, j, 1, weights, n, c, end, kind, BLOCK_X);
        } else
            channels_of(out, step, x, image, top, j, inside, weights, n, c, end, kind, 1);
        if (ending->count)
            finish_block(out + c, step, ending, i, c, here, end - c);
    }
}

/* Lines of places, some channels at a time, so few that the lines of the image that they see stay in the nearest cache. */
PTIR_INLINE void lines_of(float *out, size_t step, const ptir_patches *x, int kind, const float *weights, size_t first, size_t m, size_t n,
                          const ptir_ending *ending, ptir_watch *watch)
{
    enum { NEAREST = 32 * 1024 / sizeof(float), FEWEST = 64, STRIP = 8 };
    const size_t fit = NEAREST / (x->window[0] * x->extent[1] + 1) / W * W, some = kind != PTIR_WEIGHTED ? n : fit < FEWEST ? FEWEST : fit;
    for (size_t i = 0, last; i < m; i = last) {
        last = smallest(m, i + STRIP * x->places[1] - (first + i) % x->places[1]);
        for (size_t c = 0, end; c < n; c = end) {
            end = n - c <= some ? n : c + some;
            windows_of(out, step, x, kind, weights, first, i, last, n, c, end, ending);
        }
        if (is_stopped(watch, (last - i) * n * x->window[0] * x->window[1]))
            return;
    }
}

static void windows(float *out, size_t step, const ptir_patches *x, int kind, const float *weights, size_t first, size_t m, size_t n,
                    const ptir_ending *ending, ptir_watch *watch)
{
    switch (kind) {
    case PTIR_WEIGHTED: lines_of(out, step, x, PTIR_WEIGHTED, weights, first, m, n, ending, watch); break;
    case PTIR_SUM: lines_of(out, step, x, PTIR_SUM, weights, first, m, n, ending, watch); break;
    case PTIR_MAX: lines_of(out, step, x, PTIR_MAX, weights, first, m, n, ending, watch); break;
    case PTIR_MIN: lines_of(out, step, x, PTIR_MIN, weights, first, m, n, ending, watch); break;
    }
}

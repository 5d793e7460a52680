/* Windows over each channel for itself: depthwise convolution and pooling. Vectors go along the channels; of BLOCK_X places next to
 * each other, and SPAN vectors of channels, the results stay in registers. */

enum { BLOCK_X = 6, SPAN = 2 };

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

/* A vector of channels of `count` places next to each other that windows of `taps` neighbors in a line see without padding: each
 * element is loaded once for all of them. */
PTIR_INLINE void neighbors_of(float *out, size_t step, const ptir_patches *x, const float *image, ptrdiff_t top, size_t j,
                              const float *weights, size_t n, int count, int taps)
{
    static const float zeros[W];
    floats sum[BLOCK_X];
    for (int i = 0; i < count; i++)
        sum[i] = (floats){0};
    for (size_t s = 0; s < x->window[0]; s++, weights += (size_t)taps * n) {
        ptrdiff_t line = top + (ptrdiff_t)(s * x->dilation[0]), next = 0;
        const float *from = zeros;
        if (line >= 0 && line < (ptrdiff_t)x->extent[0])
            from = image + line * x->row + ((ptrdiff_t)j - x->low[1]) * x->column, next = x->column;
        floats weight[5];
        for (int t = 0; t < taps; t++)
            weight[t] = *(const floats *)(weights + (size_t)t * n);
        for (int i = 0; i < count + taps - 1; i++) {
            floats element = *(const floats *)(from + i * next);
            for (int t = 0; t < taps; t++)
                if (i >= t && i - t < count)
                    sum[i - t] += element * weight[t];
        }
    }
    for (int i = 0; i < count; i++)
        *(floats *)(out + (size_t)i * step) = sum[i];
}

/* All channels of `count` places. */
PTIR_INLINE void channels_of(float *out, size_t step, const ptir_patches *x, const float *image, ptrdiff_t top, size_t j, int inside,
                             const float *weights, size_t n, int kind, int count)
{
    size_t c = 0;
    if (kind == PTIR_WEIGHTED && count == BLOCK_X && inside && x->stride[1] == 1 && x->dilation[1] == 1) {
        for (; x->window[1] == 3 && c + W <= n; c += W)
            neighbors_of(out + c, step, x, image + c, top, j, weights + c, n, count, 3);
        for (; x->window[1] == 5 && c + W <= n; c += W)
            neighbors_of(out + c, step, x, image + c, top, j, weights + c, n, count, 5);
    }
    for (; c + SPAN * W <= n; c += SPAN * W)
        places_of(out, step, x, image, top, j, inside, c, weights, n, kind, count, SPAN, W);
    for (; c + W <= n; c += W)
        places_of(out, step, x, image, top, j, inside, c, weights, n, kind, count, 1, W);
    if (c < n)
        places_of(out, step, x, image, top, j, inside, c, weights, n, kind, count, 1, n - c);
}

PTIR_INLINE void windows_of(float *out, size_t step, const ptir_patches *x, int kind, const float *weights, size_t first, size_t m,
                            size_t n, const ptir_ending *ending, ptir_watch *watch)
{
    /* Places [from, to) of a line see no padding along it. */
    ptrdiff_t wide = (ptrdiff_t)((x->window[1] - 1) * x->dilation[1]) + 1, room = (ptrdiff_t)x->extent[1] - wide + x->low[1];
    size_t from = ((size_t)x->low[1] + x->stride[1] - 1) / x->stride[1], to = room < 0 ? 0 : (size_t)room / x->stride[1] + 1;
    for (size_t i = 0, here; i < m; i += here, out += here * step) {
        size_t at = first + i, j = at % x->places[1], line = at / x->places[1];
        const float *image = x->data + (ptrdiff_t)(line / x->places[0]) * x->batch;
        ptrdiff_t top = (ptrdiff_t)(line % x->places[0] * x->stride[0]) - x->low[0];
        int inside = j >= from && j < to;
        here = 1;
        if (inside && j + BLOCK_X <= to && i + BLOCK_X <= m) {
            here = BLOCK_X;
            channels_of(out, step, x, image, top, j, 1, weights, n, kind, BLOCK_X);
        } else
            channels_of(out, step, x, image, top, j, inside, weights, n, kind, 1);
        if (ending->count)
            finish_block(out, step, ending, i, 0, here, n);
        if (is_stopped(watch, here * n * x->window[0] * x->window[1]))
            return;
    }
}

static void windows(float *out, size_t step, const ptir_patches *x, int kind, const float *weights, size_t first, size_t m, size_t n,
                    const ptir_ending *ending, ptir_watch *watch)
{
    switch (kind) {
    case PTIR_WEIGHTED: windows_of(out, step, x, PTIR_WEIGHTED, weights, first, m, n, ending, watch); break;
    case PTIR_SUM: windows_of(out, step, x, PTIR_SUM, weights, first, m, n, ending, watch); break;
    case PTIR_MAX: windows_of(out, step, x, PTIR_MAX, weights, first, m, n, ending, watch); break;
    case PTIR_MIN: windows_of(out, step, x, PTIR_MIN, weights, first, m, n, ending, watch); break;
    }
}

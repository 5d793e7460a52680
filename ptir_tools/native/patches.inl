/* Left operands of products: rows of a matrix, or of the patch matrix of a convolution (implicit im2col). Finds where their
 * elements are in memory, for gemm.inl and split.inl. */

#ifdef ONLY_FLOATS
enum { KC = 512 }; /* depth of a block along k */
#elif PTIR_X86 && W == 8
enum { KC = 256 }; /* a panel of the right operand takes three quarters of a level-1 cache of 32 KiB */
#else
enum { KC = 384 };
#endif

/* A left operand: a matrix or patches. */
typedef struct {
    ptir_matrix a;
    const ptir_patches *patches; /* NULL: a matrix, `a` */
    size_t first;                /* row of the patch matrix that is row 0 */
} left_rows;

static const float zeros[KC];

/* Rows [start, start + MR) of a left operand: the pixel of the first tap of each. Rows beyond `m` repeat the last one. */
typedef struct {
    ptrdiff_t top[MR], left[MR];
    const float *image[MR];
} pixels;

PTIR_INLINE void find_pixels(pixels *found, const left_rows *x, size_t start, size_t m)
{
    const ptir_patches *p = x->patches;
    if (!p) {
        for (size_t r = 0; r < MR; r++) {
            found->image[r] = x->a.data + (ptrdiff_t)smallest(start + r, m - 1) * x->a.rows;
            found->top[r] = found->left[r] = 0;
        }
        return;
    }
    size_t line = (x->first + start) / p->places[1], j = (x->first + start) % p->places[1], i = line % p->places[0];
    const float *image = p->data + (ptrdiff_t)(line / p->places[0]) * p->batch;
    for (size_t r = 0; r < MR; r++) {
        found->image[r] = image;
        found->top[r] = (ptrdiff_t)(i * p->stride[0]) - p->low[0];
        found->left[r] = (ptrdiff_t)(j * p->stride[1]) - p->low[1];
        if (start + r + 1 >= m || ++j < p->places[1])
            continue;
        j = 0;
        if (++i == p->places[0])
            i = 0, image += p->batch;
    }
}

/* The address of column k in each of these rows; it is valid up to the next tap. In the padding it is zeros. */
PTIR_INLINE void find_column(const float **from, const pixels *found, const left_rows *x, size_t k)
{
    const ptir_patches *p = x->patches;
    if (!p) {
        for (size_t r = 0; r < MR; r++)
            from[r] = found->image[r] + k;
        return;
    }
    size_t tap = k / p->channels;
    ptrdiff_t channel = (ptrdiff_t)(k % p->channels), down = (ptrdiff_t)(tap / p->window[1] * p->dilation[0]);
    ptrdiff_t across = (ptrdiff_t)(tap % p->window[1] * p->dilation[1]);
    for (size_t r = 0; r < MR; r++) {
        ptrdiff_t i = found->top[r] + down, j = found->left[r] + across;
        int inside = i >= 0 && j >= 0 && i < (ptrdiff_t)p->extent[0] && j < (ptrdiff_t)p->extent[1];
        from[r] = inside ? found->image[r] + i * p->row + j * p->column + channel : zeros;
    }
}

/* Whether a line of a window is contiguous: its taps are adjacent, and a pixel has no other channels. */
PTIR_INLINE int has_lines(const ptir_patches *p) { return p->groups == 1 && p->dilation[1] == 1 && p->column == (ptrdiff_t)p->channels; }

/* As `find_column`, if lines are contiguous: `length` columns from k on, all in one line of the window. Lines that are partly in
 * the padding are copied to `edges`. */
PTIR_INLINE void find_line(const float **from, const pixels *found, const left_rows *x, size_t k, size_t length, float *edges)
{
    const ptir_patches *p = x->patches;
    const size_t line = p->window[1] * p->channels, at = k % line;
    const ptrdiff_t channels = (ptrdiff_t)p->channels, end = (ptrdiff_t)p->extent[1] * channels;
    for (size_t r = 0; r < MR; r++, edges += length) {
        ptrdiff_t i = found->top[r] + (ptrdiff_t)(k / line * p->dilation[0]), first = found->left[r] * channels + (ptrdiff_t)at;
        const float *row = found->image[r] + i * p->row;
        from[r] = zeros;
        if (i < 0 || i >= (ptrdiff_t)p->extent[0])
            continue;
        from[r] = row + first;
        if (first >= 0 && first + (ptrdiff_t)length <= end)
            continue;
        for (size_t q = 0; q < length; q++)
            edges[q] = first + (ptrdiff_t)q >= 0 && first + (ptrdiff_t)q < end ? row[first + (ptrdiff_t)q] : 0.0f;
        from[r] = edges;
    }
}

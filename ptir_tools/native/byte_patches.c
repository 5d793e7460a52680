/* Convolution of bytes: some rows of the patch matrix are copied, then multiplied as a matrix. */
#include <string.h>
#include "byte_patches.h"

enum { MOST_ROWS = 192, MOST_BYTES = 1 << 17, LEAST_ROWS = 16 };

/* The bytes from row to row: a multiple of four. */
static size_t width_of_row(size_t depth) { return (depth + 3) / 4 * 4; }

/* The rows that are copied at once. */
static size_t rows_at_once(size_t depth)
{
    const size_t rows = MOST_BYTES / width_of_row(depth) / LEAST_ROWS * LEAST_ROWS;
    return rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
}

size_t ptir_patch_floats(size_t depth) { return rows_at_once(depth) * width_of_row(depth) / sizeof(float); }

/* Copy a few bytes, without a call. */
static inline void copy_bytes(uint8_t *to, const uint8_t *from, size_t n)
{
#define ENDS(size)                                                                                                     \
    if (n >= size) {                                                                                                   \
        memcpy(to, from, size), memcpy(to + n - size, from + n - size, size);                                          \
        return;                                                                                                        \
    }
    for (; n > 64; n -= 32, to += 32, from += 32)
        memcpy(to, from, 32);
    ENDS(32)
    ENDS(16)
    ENDS(8)
    ENDS(4)
    ENDS(2)
    if (n)
        *to = *from;
#undef ENDS
}

/* Copy `m` rows of the patch matrix, from row `first` on. */
static void copy_patches(uint8_t *to, const ptir_patches *p, uint8_t padding, size_t first, size_t m)
{
    const size_t channels = p->channels, line = p->window[1] * channels;
    const int whole_lines = p->dilation[1] == 1 && p->column == (ptrdiff_t)channels;
    const ptrdiff_t width = (ptrdiff_t)p->extent[1], height = (ptrdiff_t)p->extent[0];
    size_t j = first % p->places[1], i = first / p->places[1] % p->places[0];
    const uint8_t *image = (const uint8_t *)p->data + (ptrdiff_t)(first / p->places[1] / p->places[0]) * p->batch;
    const size_t rest = width_of_row(p->window[0] * line) - p->window[0] * line;
    for (size_t r = 0; r < m; r++, memset(to, 0, rest), to += rest) {
        const ptrdiff_t top = (ptrdiff_t)(i * p->stride[0]) - p->low[0], left = (ptrdiff_t)(j * p->stride[1]) - p->low[1];
        const int inside = whole_lines && left >= 0 && left + (ptrdiff_t)p->window[1] <= width;
        for (size_t s = 0; s < p->window[0]; s++, to += line) {
            const ptrdiff_t y = top + (ptrdiff_t)(s * p->dilation[0]);
            const uint8_t *row = image + y * p->row;
            if (y < 0 || y >= height)
                memset(to, padding, line);
            else if (inside)
                copy_bytes(to, row + left * p->column, line);
            else
                for (size_t t = 0; t < p->window[1]; t++) {
                    const ptrdiff_t x = left + (ptrdiff_t)(t * p->dilation[1]);
                    if (x < 0 || x >= width)
                        memset(to + t * channels, padding, channels);
                    else
                        copy_bytes(to + t * channels, row + x * p->column, channels);
                }
        }
        if (++j == p->places[1]) {
            j = 0;
            if (++i == p->places[0])
                i = 0, image += p->batch;
        }
    }
}

/* The epilogue of the rows from `row` on. */
static ptir_quantizing rows_from(const ptir_quantizing *to, size_t row)
{
    ptir_quantizing made = *to;
    made.added = to->added ? to->added + (ptrdiff_t)row * to->rows : NULL;
    for (size_t s = 0; s < made.count; s++)
        if (made.steps[s].data)
            made.steps[s].data = (const char *)made.steps[s].data + (ptrdiff_t)row * made.steps[s].rows * ptir_bytes_of(made.steps[s].kind);
    return made;
}

void ptir_convolve_bytes(void *out, size_t size, const ptir_quantizing *to, const ptir_patches *x, int is_signed, uint8_t padding,
                         const uint32_t *packed, int packed_signed, size_t first, size_t m, size_t n, float *scratch, ptir_watch *watch)
{
    const ptir_isa *isa = ptir_isa_in_use();
    const size_t depth = x->window[0] * x->window[1] * x->channels, most = rows_at_once(depth);
    uint8_t *rows = (uint8_t *)(scratch + isa->igemm_scratch());
    const ptir_bytes right = {.is_signed = packed_signed};
    for (size_t row = 0, here; row < m && !watch->stopped; row += here) {
        here = m - row < most ? m - row : most;
        copy_patches(rows, x, padding, first + row, here);
        const ptir_bytes left = {rows, 0, (ptrdiff_t)width_of_row(depth), 1, is_signed, 1};
        const ptir_quantizing ending = rows_from(to, row);
        isa->igemm((char *)out + row * n * size, &ending, left, right, packed, 1, here, n, depth, scratch, watch);
    }
}

/* Tiles of AMX in C, for machines with AVX-512 that have none: `python -m tests.tiles` builds the extension with them. What a
 * processor refuses (no shape, shapes that do not multiply) ends the process. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

static __thread struct {
    tile_shapes of;
    unsigned char rows[8][16][64];
} in_c;

static int has_shape(int t) { return in_c.of.palette == 1 && in_c.of.rows[t] && in_c.of.bytes[t]; }

static void load_in_c(int t, const void *from, ptrdiff_t step)
{
    if (!has_shape(t))
        abort();
    memset(in_c.rows[t], 0, sizeof in_c.rows[t]);
    for (int r = 0; r < in_c.of.rows[t]; r++)
        memcpy(in_c.rows[t][r], (const char *)from + r * step, in_c.of.bytes[t]);
}

static void store_in_c(int t, void *to, ptrdiff_t step)
{
    if (!has_shape(t))
        abort();
    for (int r = 0; r < in_c.of.rows[t]; r++)
        memcpy((char *)to + r * step, in_c.rows[t][r], in_c.of.bytes[t]);
}

static float flushed_in_c(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

static float wide_in_c(const unsigned char *half)
{
    uint32_t bits = (uint32_t)half[0] << 16 | (uint32_t)half[1] << 24;
    float x;
    memcpy(&x, &bits, sizeof x);
    return flushed_in_c(x);
}

/* Even products are summed apart from odd ones, and both are added at the end; subnormal numbers are 0. */
static float pairs_in_c(float sum, int a, int b, int row, int column)
{
    float even = 0.0f, odd = 0.0f;
    for (int k = 0; k < in_c.of.bytes[a] / 4; k++) {
        const unsigned char *x = in_c.rows[a][row] + 4 * k, *y = in_c.rows[b][k] + 4 * column;
        even = flushed_in_c(fmaf(wide_in_c(x), wide_in_c(y), even));
        odd = flushed_in_c(fmaf(wide_in_c(x + 2), wide_in_c(y + 2), odd));
    }
    return flushed_in_c(flushed_in_c(sum) + flushed_in_c(even + odd));
}

static uint32_t bytes_in_c(uint32_t sum, int a, int b, int row, int column, int is_left_signed, int is_right_signed)
{
    for (int k = 0; k < in_c.of.bytes[a]; k++) {
        const unsigned char x = in_c.rows[a][row][k], y = in_c.rows[b][k / 4][4 * column + k % 4];
        sum += (uint32_t)((is_left_signed ? (int8_t)x : x) * (is_right_signed ? (int8_t)y : y));
    }
    return sum;
}

static void dot_in_c(const char *name, int sum, int a, int b)
{
    const int height = in_c.of.rows[sum], width = in_c.of.bytes[sum];
    if (!has_shape(sum) || !has_shape(a) || !has_shape(b) || in_c.of.rows[a] != height || in_c.of.bytes[b] != width ||
        in_c.of.bytes[a] != 4 * in_c.of.rows[b])
        abort();
    for (int r = 0; r < height; r++)
        for (int c = 0; c < width / 4; c++) {
            unsigned char *at = in_c.rows[sum][r] + 4 * c;
            if (!strcmp(name, "tdpbf16ps")) {
                float x;
                memcpy(&x, at, sizeof x);
                x = pairs_in_c(x, a, b, r, c);
                memcpy(at, &x, sizeof x);
            } else { /* tdpbssd, tdpbsud, tdpbusd, tdpbuud */
                uint32_t x;
                memcpy(&x, at, sizeof x);
                x = bytes_in_c(x, a, b, r, c, name[4] == 's', name[5] == 's');
                memcpy(at, &x, sizeof x);
            }
        }
}

#define TILE_SHAPE(made) (in_c.of = (made))
#define TILE_RELEASE() memset(&in_c, 0, sizeof in_c)
#define TILE_LOAD(t, from, step) load_in_c(t, from, (ptrdiff_t)(step))
#define TILE_STREAM(t, from, step) load_in_c(t, from, (ptrdiff_t)(step))
#define TILE_STORE(t, to, step) store_in_c(t, to, (ptrdiff_t)(step))
#define TILE_ZERO(t) memset(in_c.rows[t], 0, sizeof in_c.rows[t])
#define TILE_DOT(dot, sum, a, b) dot_in_c(dot, sum, a, b)

/* All kernels that are compiled per instruction set, and the table of them. ISA, W (floats of a vector), MR (rows of a block of the
 * matrix product), NRV (vectors of a row of it) and IG (8-bit integers of a word of it) are given. With ONLY_BYTES the table has the
 * product of 8-bit integers only, with ONLY_PAIRS that of bf16: the rest is that of another. With GROUP (elements of a word) that product
 * is made by tiles. With ONLY_FLOATS it has products of f32 by tiles of bf16. */
#include <math.h>
#include <string.h>
#include "chain.h"
#include "common.h"
#include "isa.h"
#include "narrow.h"
#include "phases.h"
#include "turn.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

typedef float floats __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * W), aligned(4), may_alias));

enum { NR = NRV * W, LINE = 16 };

/* What is packed begins at a line of the cache: a vector that crosses one is loaded twice. */
PTIR_INLINE float *at_line(float *p) { return (float *)(((uintptr_t)p + 63) & ~(uintptr_t)63); }

/* Right operands are packed in panels of up to NRV vectors of columns. This is how wide the next one is, of `n` columns that are left:
 * a single vector after a whole panel would wait for its sums, so that both are halved. */
PTIR_INLINE size_t panel_width(size_t n)
{
    size_t vectors = (n + W - 1) / W;
    return W * (NRV > 2 && vectors == NRV + 1 ? (NRV + 1) / 2 : smallest(vectors, NRV));
}

/* A range of columns: the panels of a right operand that begin there are to be packed. */
typedef struct {
    size_t first, last;
} column_range;

/* Columns that all panels have together. */
PTIR_INLINE size_t whole_vectors(size_t n) { return (n + W - 1) / W * W; }

/* Of `n` columns those of the next block: `most`, or all if these are little more. */
PTIR_INLINE size_t block_width(size_t n, size_t most) { return n <= most + NR ? n : most; }

/* Do something for a panel, with how many vectors it has known when it is compiled. */
#define BY_VECTORS(width, DO)                                                                                          \
    {                                                                                                                  \
        if ((width) == NR)                                                                                             \
            DO(NRV);                                                                                                   \
        else if ((width) == W)                                                                                         \
            DO(1);                                                                                                     \
        else                                                                                                           \
            DO(2);                                                                                                     \
    }

/* Fetch what rows of four-byte numbers will be written to. */
PTIR_INLINE void fetch_lines(const void *out, size_t stride, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j += LINE)
            ptir_fetch((const float *)out + i * stride + j);
}

#include "functions.inl"
#if defined(ONLY_FLOATS)
#include "quick.inl"
#include "ending.inl"
#include "patches.inl"
#include "shapes.inl"
#include "split.inl"
#elif defined(GROUP)
#if GROUP == 4
#include "quantizing.inl"
#endif
#include "tiles.inl"
#if GROUP == 2
#include "quick.inl"
#include "weights.inl"
#include "pair_attention.inl"
#endif
#elif defined(ONLY_PAIRS)
#include "bgemm.inl"
#else
#include "quantizing.inl"
#include "igemm.inl"
#endif
#if !defined(ONLY_BYTES) && !defined(ONLY_PAIRS) && !defined(ONLY_FLOATS)
#include "quick.inl"
#include "chain.inl"
#include "ending.inl"
#include "patches.inl"
#include "gemm.inl"
#include "weights.inl"
#include "attention.inl"
#include "gemv.inl"
#include "moves.inl"
#include "rows.inl"
#include "windows.inl"
#endif

const ptir_isa JOINED(ptir_isa_, ISA) = {
    .name = PTIR_TEXT(ISA),
    .vector = W,
    .panel = NR,
#if defined(ONLY_FLOATS)
    .gemm_scratch = split_gemm_scratch,
    .packed_scratch = split_packed_scratch,
    .gemm = split_gemm,
    .pack = pack_split,
    .unpack = unpack_split,
    .packed_floats = split_floats,
    .conv = split_conv,
#elif defined(GROUP) && defined(ONLY_PAIRS)
    .bgemm = multiply_tiles,
    .bgemm_rounds = 1,
    .bgemm_scratch = tiles_scratch,
    .pack_pairs = pack_tiles,
    .unpack_pairs = unpack_tiles,
    .paired_words = tiled_words,
    .pair_attention = pair_attention,
    .pair_attention_scratch = pair_attention_scratch,
    .pair_panel = NR,
#elif defined(GROUP)
    .igemm = multiply_tiles,
    .igemm_scratch = tiles_scratch,
    .pack_bytes = pack_tiles,
    .unpack_bytes = unpack_tiles,
    .packed_words = tiled_words,
#elif defined(ONLY_PAIRS)
    .bgemm = bgemm,
    .bgemm_scratch = bgemm_scratch,
    .pack_pairs = pack_pairs_range,
    .unpack_pairs = unpack_pairs,
    .paired_words = paired_words,
#else
    .igemm = igemm,
    .pack_bytes = pack_bytes,
    .unpack_bytes = unpack_bytes,
    .packed_words = packed_words,
    .igemm_scratch = igemm_scratch,
#endif
#if !defined(ONLY_BYTES) && !defined(ONLY_PAIRS) && !defined(ONLY_FLOATS)
    .depth = KC,
    .gemm_scratch = gemm_scratch,
    .packed_scratch = packed_scratch,
    .gemm = gemm_batch,
    .pack = pack_range,
    .unpack = unpack_range,
    .packed_floats = packed_floats,
    .conv = conv,
    .windows = windows,
    .attention = attention,
    .attention_scratch = attention_scratch,
    .gemv = gemv,
    .chain = chain,
    .layer_norm = layer_norm,
    .fold = fold,
    .largest = largest,
    .rescaled = rescaled,
    .turn = turn_stack,
    .load = load,
    .store = store,
#endif
};

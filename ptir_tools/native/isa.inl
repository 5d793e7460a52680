/* Compiles all kernels for one instruction set and defines their table. Given by the including file:
 *
 *  ISA          name of the table
 *  W            floats per vector
 *  MR, NRV      rows and vectors per row of the register block of the matrix product
 *  IG           8-bit integers per word of that product
 *  ONLY_BYTES   the table has only the 8-bit product
 *  ONLY_PAIRS   the table has only the bf16 product and attention
 *  ONLY_FLOATS  the table has only the f32 products, by AMX on bf16 parts
 *  GROUP        the product uses AMX tiles, with GROUP elements per word */
#include <math.h>
#include <string.h>
#include "chain.h"
#include "common.h"
#include "isa.h"
#include "narrow.h"
#include "phases.h"
#include "transpose.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

typedef float floats __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * W), aligned(4), may_alias));

enum { NR = NRV * W, LINE = 16 };

/* Align to a cache line: a vector that crosses two lines is loaded twice. */
PTIR_INLINE float *at_line(float *p) { return (float *)(((uintptr_t)p + 63) & ~(uintptr_t)63); }

/* Width of the next panel of a right operand of which `n` columns are left: up to NRV vectors. If one vector would remain after a
 * full panel, both panels get half: a single vector has too few independent sums to hide the latency. */
PTIR_INLINE size_t panel_width(size_t n)
{
    size_t vectors = (n + W - 1) / W;
    return W * (NRV > 2 && vectors == NRV + 1 ? (NRV + 1) / 2 : smallest(vectors, NRV));
}

/* A range of columns. Panels whose first column is in it are packed. */
typedef struct {
    size_t first, last;
} column_range;

/* Columns of all panels together: n, padded to whole vectors. */
PTIR_INLINE size_t padded_columns(size_t n) { return (n + W - 1) / W * W; }

/* Columns of the next block when `n` are left: `most`, or all if they are little more. */
PTIR_INLINE size_t block_width(size_t n, size_t most) { return n <= most + NR ? n : most; }

/* Expand DO with the panel's number of vectors as a compile-time constant. */
#define BY_VECTORS(width, DO)                                                                                          \
    {                                                                                                                  \
        if ((width) == NR)                                                                                             \
            DO(NRV);                                                                                                   \
        else if ((width) == W)                                                                                         \
            DO(1);                                                                                                     \
        else                                                                                                           \
            DO(2);                                                                                                     \
    }

/* Prefetch the memory of a block of four-byte numbers. */
PTIR_INLINE void prefetch_lines(const void *out, size_t stride, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j += LINE)
            ptir_prefetch((const float *)out + i * stride + j);
}

#include "functions.inl"
#if defined(ONLY_FLOATS)
#include "quick.inl"
#include "epilogue.inl"
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
#include "epilogue.inl"
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
    .byte_sums = byte_sums,
    .rescaled = rescaled,
    .transpose = transpose_stack,
    .load = load,
    .store = store,
#endif
};

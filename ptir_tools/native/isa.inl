/* All kernels that are compiled per instruction set, and the table of them. ISA, W (floats of a vector), MR (rows of a block of the
 * matrix product), NRV (vectors of a row of it) and IG (8-bit integers of a word of it) are given. */
#include <math.h>
#include <string.h>
#include "common.h"
#include "isa.h"
#include "turn.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

typedef float vec __attribute__((vector_size(4 * W), aligned(4), may_alias));

#include "gemm.inl"
#include "igemm.inl"
#include "windows.inl"

const ptir_isa JOINED(ptir_isa_, ISA) = {
    .name = PTIR_TEXT(ISA),
    .gemm_scratch = gemm_scratch,
    .gemm = gemm_batch,
    .pack = pack_whole,
    .packed_floats = packed_floats,
    .conv = conv,
    .packed_scratch = packed_scratch,
    .windows = windows,
    .igemm = igemm,
    .igemm_scratch = igemm_scratch,
};

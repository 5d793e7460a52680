/* Convolution of bytes (byte_patches.c), for any instruction set. */
#ifndef PTIR_BYTE_PATCHES_H
#define PTIR_BYTE_PATCHES_H
#include "isa.h"

/* Rows [first, first + m) of the patch matrix of `x`, whose data are bytes and whose padding is the byte `padding`, times a packed
 * right operand of n columns; `to` has steps in f32, and `size` is that of an element of the result. Scratch is that of `igemm` and
 * `ptir_patch_floats`. */
void ptir_convolve_bytes(void *out, size_t size, const ptir_quantizing *to, const ptir_patches *x, int is_signed, uint8_t padding,
                         const uint32_t *packed, int packed_signed, size_t first, size_t m, size_t n, float *scratch, ptir_watch *watch);
size_t ptir_patch_floats(size_t depth);
#endif

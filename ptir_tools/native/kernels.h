/* Tile kernels. They never allocate, never fail and never see Python: the caller has checked shapes, and what a kernel
 * writes overlaps nothing it reads. */
#ifndef PTIR_KERNELS_H
#define PTIR_KERNELS_H
#include <stddef.h>
#endif

/* All kernels, for any processor. */
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif
#define ISA baseline
#define W 4
#define MR 4
#define NRV 2
#define IG 2
#include "isa.inl"

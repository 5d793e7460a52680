/* All kernels, for x86-64 with AVX2 and FMA. */
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,bmi2")
#endif
#define ISA avx2
#define W 8
#define MR 4
#define NRV 3
#define IG 2
#define IDOT(sum, a, b) ((ints)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(_mm256_set1_epi32((int)(a)), (__m256i)b)))
#include "isa.inl"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif

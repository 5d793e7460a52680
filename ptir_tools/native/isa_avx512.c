/* All kernels, for x86-64 with AVX-512 (F, BW, DQ, VL). */
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,prefer-vector-width=512")
#endif
#define ISA avx512
#define W 16
#define MR 8
#define NRV 3
#define IG 2
#define IDOT(sum, a, b) ((ints)_mm512_add_epi32((__m512i)sum, _mm512_madd_epi16(_mm512_set1_epi32((int)(a)), (__m512i)b)))
#include "isa.inl"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif

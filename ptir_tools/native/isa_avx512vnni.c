/* Products of 8-bit integers by dot products of four, on x86-64 with AVX-512 VNNI. */
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi2,prefer-vector-width=512")
#endif
#define ISA avx512vnni
#define W 16
#define MR 8
#define NRV 3
#define IG 4
#define IDOT(sum, a, b) ((ints)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32((int)(a)), (__m512i)b))
#define ONLY_BYTES
#include "isa.inl"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif

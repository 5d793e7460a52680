/* Products of bf16 by dot products of pairs, on x86-64 with AVX-512 BF16. */
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,bmi2,prefer-vector-width=512")
#endif
#define ISA avx512bf16
#define W 16
#define MR 8
#define NRV 3
#define ONLY_PAIRS
#include "isa.inl"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif

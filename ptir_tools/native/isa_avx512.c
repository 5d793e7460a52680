/* The kernels for x86-64 with AVX-512 (F, BW, DQ, VL). */
#if defined(__x86_64__) && defined(__GNUC__)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,prefer-vector-width=512")
#endif
#define ISA avx512
#define W 16
#define MR 8
#define NRV 3
#include "isa.inl"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif

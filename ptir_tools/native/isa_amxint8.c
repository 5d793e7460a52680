/* Products of 8-bit integers by AMX tiles, on x86-64 with AVX-512. */
#include "isa.h"
#if PTIR_AMX
#include <immintrin.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-int8,avx2,fma,f16c,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-int8,avx2,fma,f16c,bmi2,prefer-vector-width=512")
#endif
#define ISA amxint8
#define W 16
#define MR 8
#define NRV 2
#define GROUP 4
#define ONLY_BYTES
#include "isa.inl"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif

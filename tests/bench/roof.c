/* What this machine can do in one thread, as JSON: the most operations a second in f32, bf16 and 8-bit integers by the widest units
 * that the kernels use, and the most bytes a second that a copy reads and writes. */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

enum { ROUNDS = 40, TURNS = 100000 };

/* The best of some rounds of 12 sums that do not wait for each other; `operations` in one instruction. */
#define FASTEST(name, features, vector, instruction, operations)                                                       \
    __attribute__((target(features))) static double name(void)                                                         \
    {                                                                                                                  \
        double best = 1e9;                                                                                             \
        vector x = {0}, a0 = x, a1 = x, a2 = x, a3 = x, a4 = x, a5 = x, a6 = x, a7 = x, a8 = x, a9 = x, a10 = x, a11 = x; \
        for (int round = 0; round < ROUNDS; round++) {                                                                 \
            double start = now();                                                                                      \
            for (int i = 0; i < TURNS; i++)                                                                            \
                __asm__ volatile(instruction " %12, %12, %0\n" instruction " %12, %12, %1\n" instruction              \
                                             " %12, %12, %2\n" instruction " %12, %12, %3\n" instruction              \
                                             " %12, %12, %4\n" instruction " %12, %12, %5\n" instruction              \
                                             " %12, %12, %6\n" instruction " %12, %12, %7\n" instruction              \
                                             " %12, %12, %8\n" instruction " %12, %12, %9\n" instruction              \
                                             " %12, %12, %10\n" instruction " %12, %12, %11"                          \
                                 : "+v"(a0), "+v"(a1), "+v"(a2), "+v"(a3), "+v"(a4), "+v"(a5), "+v"(a6), "+v"(a7),       \
                                   "+v"(a8), "+v"(a9), "+v"(a10), "+v"(a11)                                             \
                                 : "v"(x));                                                                            \
            double took = now() - start;                                                                               \
            best = took < best ? took : best;                                                                          \
        }                                                                                                              \
        return 12.0 * TURNS * (operations) / best;                                                                     \
    }

FASTEST(fma256, "avx2,fma", __m256, "vfmadd231ps", 16)
FASTEST(fma512, "avx512f", __m512, "vfmadd231ps", 32)
FASTEST(pairs512, "avx512bf16,avx512f", __m512, "vdpbf16ps", 64)
FASTEST(bytes512, "avx512vnni,avx512f", __m512i, "vpdpbusd", 128)

__attribute__((target("avx2"))) static double copy(void)
{
    enum { MIB = 64 };
    size_t n = (size_t)MIB << 20;
    char *from = aligned_alloc(64, n), *to = aligned_alloc(64, n);
    double best = 1e9;
    for (size_t i = 0; i < n; i++)
        from[i] = to[i] = 1;
    for (int round = 0; round < 8; round++) {
        double start = now();
        for (size_t i = 0; i < n; i += 32)
            _mm256_stream_si256((__m256i *)(to + i), _mm256_load_si256((const __m256i *)(from + i)));
        _mm_sfence();
        double took = now() - start;
        best = took < best ? took : best;
    }
    return 2.0 * n / best;
}

int main(void)
{
    int wide = __builtin_cpu_supports("avx512f");
    double f32 = wide ? fma512() : fma256();
    printf("{\"f32\": %.4g, \"bf16\": %.4g, \"int8\": %.4g, \"bytes\": %.4g}\n", f32,
           wide && __builtin_cpu_supports("avx512bf16") ? pairs512() : f32,
           wide && __builtin_cpu_supports("avx512vnni") ? bytes512() : f32, copy());
    return 0;
}

/* What this machine can do in one thread, as JSON: the most operations a second in f32, bf16 and 8-bit integers by the widest units
 * that the kernels use, and the most bytes a second that a copy reads and writes. */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#if defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

#if defined(__linux__) && defined(__x86_64__)
/* Whether there are tiles of bf16 and of bytes (AMX), and the kernel lets this process use them. */
static int has_tiles(void)
{
    unsigned a, b, c, d, wanted = 1u << 22 | 1u << 24 | 1u << 25;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & wanted) == wanted && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

/* Six sums of whole tiles, which do not wait for each other. */
#define TILES(name, instruction, operations)                                                                           \
    __attribute__((target("amx-tile,amx-bf16,amx-int8"))) static double name(void)                                     \
    {                                                                                                                  \
        struct { unsigned char palette, start, unused[14]; unsigned short bytes[16]; unsigned char rows[16]; } shapes = {.palette = 1}; \
        double best = 1e9;                                                                                             \
        for (int i = 0; i < 8; i++)                                                                                    \
            shapes.bytes[i] = 64, shapes.rows[i] = 16;                                                                 \
        __asm__ volatile("ldtilecfg %0" : : "m"(shapes));                                                              \
        for (int round = 0; round < ROUNDS; round++) {                                                                 \
            double start = now();                                                                                      \
            for (int i = 0; i < TURNS / 10; i++)                                                                       \
                __asm__ volatile(instruction " %tmm7, %tmm6, %tmm0\n" instruction " %tmm7, %tmm6, %tmm1\n" instruction \
                                             " %tmm7, %tmm6, %tmm2\n" instruction " %tmm7, %tmm6, %tmm3\n" instruction \
                                             " %tmm7, %tmm6, %tmm4\n" instruction " %tmm7, %tmm6, %tmm5");             \
            double took = now() - start;                                                                               \
            best = took < best ? took : best;                                                                          \
        }                                                                                                              \
        __asm__ volatile("tilerelease");                                                                               \
        return 6.0 * (TURNS / 10) * (operations) / best;                                                               \
    }

TILES(pair_tiles, "tdpbf16ps", 16384)
TILES(byte_tiles, "tdpbssd", 32768)
#else
static int has_tiles(void) { return 0; }
static double pair_tiles(void) { return 0; }
static double byte_tiles(void) { return 0; }
#endif

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
    int wide = __builtin_cpu_supports("avx512f"), tiles = has_tiles();
    double f32 = wide ? fma512() : fma256();
    double bf16 = wide && __builtin_cpu_supports("avx512bf16") ? pairs512() : f32;
    double int8 = wide && __builtin_cpu_supports("avx512vnni") ? bytes512() : f32;
    if (tiles) { /* a product of f32 is six of bf16 */
        bf16 = pair_tiles(), int8 = byte_tiles();
        f32 = bf16 / 6 > f32 ? bf16 / 6 : f32;
    }
    printf("{\"f32\": %.4g, \"bf16\": %.4g, \"int8\": %.4g, \"bytes\": %.4g}\n", f32, bf16, int8, copy());
    return 0;
}

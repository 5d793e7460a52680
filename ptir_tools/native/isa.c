/* Which instruction set the kernels use. */
#include "isa.h"
#include <string.h>

static const ptir_isa *available[6], *in_use;
#if PTIR_X86
static ptir_isa with_bytes, with_pairs; /* AVX-512 with the products of VNNI; with those of bf16, too */
#endif

const ptir_isa *const *ptir_isas(void)
{
    if (available[0])
        return available;
    size_t n = 0;
#if PTIR_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        with_bytes = ptir_isa_avx512;
        with_bytes.name = ptir_isa_avx512vnni.name;
        with_bytes.igemm = ptir_isa_avx512vnni.igemm;
        with_bytes.igemm_scratch = ptir_isa_avx512vnni.igemm_scratch;
        with_bytes.pack_bytes = ptir_isa_avx512vnni.pack_bytes;
        with_bytes.packed_words = ptir_isa_avx512vnni.packed_words;
        with_pairs = with_bytes;
        with_pairs.name = ptir_isa_avx512bf16.name;
        with_pairs.bgemm = ptir_isa_avx512bf16.bgemm;
        with_pairs.bgemm_scratch = ptir_isa_avx512bf16.bgemm_scratch;
        with_pairs.pack_pairs = ptir_isa_avx512bf16.pack_pairs;
        with_pairs.paired_words = ptir_isa_avx512bf16.paired_words;
        if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16"))
            available[n++] = &with_pairs;
        if (__builtin_cpu_supports("avx512vnni"))
            available[n++] = &with_bytes;
        available[n++] = &ptir_isa_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        available[n++] = &ptir_isa_avx2;
#endif
    available[n] = &ptir_isa_baseline;
    return available;
}

const ptir_isa *ptir_isa_in_use(void)
{
    if (!in_use)
        in_use = ptir_isas()[0];
    return in_use;
}

int ptir_use_isa(const char *name)
{
    for (const ptir_isa *const *isa = ptir_isas(); *isa; isa++)
        if (strcmp((*isa)->name, name) == 0) {
            in_use = *isa;
            return 1;
        }
    return 0;
}

/* Choice of the instruction set: tables that this machine supports, the fastest first. */
#include "isa.h"
#include <string.h>
#if PTIR_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const ptir_isa *available[9], *in_use;

#if PTIR_X86
static ptir_isa with_bytes, with_pairs; /* AVX-512 with VNNI; with VNNI and BF16 */

/* `base` with the 8-bit products (`bytes_by`) or the bf16 products (`pairs_by`) of another table. */
static ptir_isa bytes_by(ptir_isa base, const ptir_isa *other)
{
    base.name = other->name;
    base.igemm = other->igemm, base.igemm_scratch = other->igemm_scratch;
    base.pack_bytes = other->pack_bytes, base.unpack_bytes = other->unpack_bytes, base.packed_words = other->packed_words;
    return base;
}

static ptir_isa pairs_by(ptir_isa base, const ptir_isa *other)
{
    base.name = other->name;
    base.bgemm = other->bgemm, base.bgemm_rounds = other->bgemm_rounds, base.bgemm_scratch = other->bgemm_scratch;
    base.pack_pairs = other->pack_pairs, base.unpack_pairs = other->unpack_pairs, base.paired_words = other->paired_words;
    base.pair_attention = other->pair_attention, base.pair_attention_scratch = other->pair_attention_scratch;
    base.pair_panel = other->pair_panel;
    return base;
}
#endif

#if PTIR_AMX
static ptir_isa byte_tiles, pair_tiles, split_tiles; /* with AMX for bytes; also for bf16; also for f32, split into bf16 parts */

/* `base` with the f32 products of another table. */
static ptir_isa floats_by(ptir_isa base, const ptir_isa *other)
{
    base.name = other->name, base.few = &ptir_isa_avx512;
    base.gemm_scratch = other->gemm_scratch, base.packed_scratch = other->packed_scratch;
    base.gemm = other->gemm, base.pack = other->pack, base.unpack = other->unpack, base.packed_floats = other->packed_floats, base.conv = other->conv;
    return base;
}

/* Whether the processor has AMX for bf16 and bytes, and Linux lets this process use it. */
static int has_tiles(void)
{
#ifdef PTIR_TILES
    return 1;
#else
    enum { FEATURES = 7, PAIRS = 1 << 22, TILES = 1 << 24, BYTES = 1 << 25, ASK_FOR = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d, wanted = PAIRS | TILES | BYTES;
    return __get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) && (d & wanted) == wanted && syscall(SYS_arch_prctl, ASK_FOR, TILE_DATA) == 0;
#endif
}
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
        int has_bytes = __builtin_cpu_supports("avx512vnni") != 0, has_pairs = has_bytes && __builtin_cpu_supports("avx512bf16");
        with_bytes = bytes_by(ptir_isa_avx512, &ptir_isa_avx512vnni);
        with_pairs = pairs_by(with_bytes, &ptir_isa_avx512bf16);
        /* A dot product of pairs takes as long as two f32 products on AMD, but as four on other processors: there f32 products may
         * be faster. */
        int pairs_pay = has_pairs && __builtin_cpu_is("amd");
#if PTIR_AMX
        if (has_pairs && has_tiles()) {
            byte_tiles = bytes_by(pairs_pay ? with_pairs : with_bytes, &ptir_isa_amxint8);
            pair_tiles = pairs_by(byte_tiles, &ptir_isa_amxbf16);
            split_tiles = floats_by(pair_tiles, &ptir_isa_amxf32);
            available[n++] = &split_tiles;
            available[n++] = &pair_tiles;
            available[n++] = &byte_tiles;
        }
#endif
        if (pairs_pay)
            available[n++] = &with_pairs;
        if (has_bytes)
            available[n++] = &with_bytes;
        if (has_pairs && !pairs_pay)
            available[n++] = &with_pairs;
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

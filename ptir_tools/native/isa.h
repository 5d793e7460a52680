/* Kernels by instruction set. A kernel is written once, in an .inl file, for vectors of W floats; each isa_*.c compiles it for
 * one instruction set and names the results in a table. The table in use is chosen when the module is loaded. */
#ifndef PTIR_ISA_H
#define PTIR_ISA_H
#include "chain.h"
#include "kernels.h"

/* Scales and zero points of what is quantized, and of what it becomes. */
typedef struct {
    const double *scale, *zero, *output_scale, *output_zero;
} ptir_scaling;

/* What becomes of the sums of a product of bytes, row by row: `added` is added, in 32 bits that wrap (rows of it are `rows` apart; or
 * NULL). Then they are scaled, by one scaling or with `along` by one for each column, to f32 ('f') or to bytes ('b', 'B') between low
 * and high. `factor` is scale over output scale, in f32; where it is not near that (`is_near`), or zero is not 0, it is not used. */
typedef struct {
    const int32_t *added;
    ptrdiff_t rows;
    ptir_scaling scaling;
    const float *factor;
    int along, is_near;
    char to;
    float low, high;
} ptir_quantizing;

enum { PTIR_WEIGHTED, PTIR_SUM, PTIR_MAX, PTIR_MIN };

typedef struct ptir_isa ptir_isa;
struct ptir_isa {
    const char *name;
    const ptir_isa *few; /* NULL, or another table, whose `gemm` and `pack` of f32 are faster for a few rows */
    size_t vector, panel; /* floats of a vector; rows that attention does together */
    size_t depth;         /* products of a sum of `gemm` that are made at once */
    /* Floats of scratch that `gemm` needs; with a right operand that is packed. */
    size_t (*gemm_scratch)(void), (*packed_scratch)(void);
    /* out[b, i, j] = sum over k of a[b, i, k] * c[b, k, j]; out is m x n row-major per matrix, batch after batch. With `packed`,
     * one right operand for all of the stack, c is not read. `ending` is done to each matrix. */
    void (*gemm)(float *out, ptir_matrix a, ptir_matrix c, const float *packed, size_t batch, size_t m, size_t n, size_t k,
                 const ptir_ending *ending, float *scratch, ptir_watch *watch);
    /* The panels of a right operand of k rows and n columns that begin with columns [first, last), in the order in which `gemm`
     * reads it; the floats that all of them take. */
    void (*pack)(float *to, ptir_matrix c, size_t k, size_t n, size_t first, size_t last);
    size_t (*packed_floats)(size_t k, size_t n);
    /* What `pack` made of all panels as k dense rows of n columns, bit for bit. */
    void (*unpack)(float *to, const float *packed, size_t k, size_t n);
    /* Convolution: rows [first, first + m) of the product of patches, group by group, with n columns of `packed` each (one right
     * operand after the other). Rows of the result are `step` apart, groups `group_step`; `ending` sees the columns of all groups. */
    void (*conv)(float *out, size_t step, size_t group_step, const ptir_patches *x, const float *packed, size_t first, size_t m,
                 size_t n, const ptir_ending *ending, float *scratch, ptir_watch *watch);
    /* What the places [first, first + m) see of each channel for itself, n channels: the sum of products with weights[tap * n +
     * channel] (PTIR_WEIGHTED), or the sum, maximum or minimum of what is not padding. */
    void (*windows)(float *out, size_t step, const ptir_patches *x, int kind, const float *weights, size_t first, size_t m, size_t n,
                    const ptir_ending *ending, ptir_watch *watch);
    /* As `gemm`, of 8-bit integers, in 32 bits that wrap; floats of scratch that it needs. With `to`, which is not NULL for a stack of
     * one only, and k > 0, out is of what that says. */
    void (*igemm)(void *out, const ptir_quantizing *to, ptir_bytes a, ptir_bytes c, const uint32_t *packed, size_t batch, size_t m, size_t n, size_t k,
                  float *scratch, ptir_watch *watch);
    void (*pack_bytes)(uint32_t *to, ptir_bytes c, size_t k, size_t n, size_t first, size_t last);
    void (*unpack_bytes)(uint8_t *to, const uint32_t *packed, size_t k, size_t n, int is_signed);
    size_t (*igemm_scratch)(void), (*packed_words)(size_t k, size_t n);
    /* As `gemm`, of bf16, with what goes with it; NULL where there is no instruction for it. The right operand takes `paired_words`.
     * With `is_narrow` out is of bf16, too, where the kernel rounds. */
    void (*bgemm)(void *out, int is_narrow, ptir_halves a, ptir_halves c, const uint32_t *packed, size_t batch, size_t m, size_t n,
                  size_t k, float *scratch, ptir_watch *watch);
    int bgemm_rounds;
    void (*pack_pairs)(uint32_t *to, ptir_halves c, size_t k, size_t n, size_t first, size_t last);
    void (*unpack_pairs)(uint16_t *to, const uint32_t *packed, size_t k, size_t n);
    size_t (*bgemm_scratch)(void), (*paired_words)(size_t k, size_t n);
    /* out[b, j] = sum over p of x[b, p] * c[b, p, j], in f32; out is batch x n, x batch x k. An element is the same however n is
     * cut. */
    void (*gemv)(float *out, const float *x, ptir_narrow c, size_t batch, size_t n, size_t k, ptir_watch *watch);
    /* The scratch that `attention` needs is counted without that of its program, which comes last. */
    void (*attention)(const ptir_attention *x, float *scratch, ptir_watch *watch);
    size_t (*attention_scratch)(size_t columns, size_t depth, size_t width);
    /* As `attention`, where operands and result are of bf16; NULL where there is no instruction for it. Rows that it does together. */
    void (*pair_attention)(const ptir_attention *x, float *scratch, ptir_watch *watch);
    size_t (*pair_attention_scratch)(size_t columns, size_t depth, size_t width);
    size_t pair_panel;
    /* Run `code`, which may be a known phase, on rows of `columns` elements, one after the other; its operands go along. */
    void (*chain)(const ptir_phase *f);
    /* Layer norm of dense rows of n elements; those whose squares leave the range of f32 in float64. */
    void (*layer_norm)(float *out, const float *x, const float *gamma, const float *beta, size_t rows, size_t n, double epsilon,
                       ptir_watch *watch);
    /* out[b, j] = the sum, maximum or minimum over i of x[b, i, j]; rows of x are in order, and out is dense. */
    void (*fold)(float *out, ptir_matrix x, int kind, size_t batch, size_t m, size_t n, ptir_watch *watch);
    /* out[i] = the first place of a largest element of row i of n elements, `step` apart; of a NaN if there is one. out is of 32 bits
     * or, with `wide`, of 64. */
    void (*largest)(void *out, int wide, const float *x, ptrdiff_t step, size_t rows, size_t n, ptir_watch *watch);
    /* (x - zero) * scale of each x in float64; then as f32 (kind 'f'), or as integers, divided by the output's scale, rounded to the
     * nearest, and with its zero added. Kinds are formats of buffers. Row r has the scaling r % channels, or with `along` each
     * column its own. */
    void (*rescaled)(void *out, char to, const void *x, char from, size_t rows, size_t n, size_t channels, int along, ptir_scaling s,
                     ptir_watch *watch);
    /* to(b, i, j) = from(b, i, j), where `to` lies in order along j and `from` along i; past the cache where it `streams`. */
    void (*turn)(ptir_turned to, ptir_turned from, size_t batch, size_t m, size_t n, int streams);
    /* Copy `n` elements of a kind, `step` apart, to floats; floats to elements in order. */
    void (*load)(float *to, const void *from, ptrdiff_t step, size_t n, int kind);
    void (*store)(void *to, const float *from, size_t n, int kind);
};

#if defined(__x86_64__) && defined(__GNUC__)
#define PTIR_X86 1
extern const ptir_isa ptir_isa_avx2, ptir_isa_avx512, ptir_isa_avx512vnni, ptir_isa_avx512bf16;
#else
#define PTIR_X86 0
#endif

/* Tiles: a compiler that knows them, and a kernel that is asked for them in the way of Linux. */
#if PTIR_X86 && defined(__linux__) && defined(__has_include)
#if __has_include(<amxbf16intrin.h>)
#define PTIR_AMX 1
extern const ptir_isa ptir_isa_amxint8, ptir_isa_amxbf16, ptir_isa_amxf32;
#endif
#endif
#ifndef PTIR_AMX
#define PTIR_AMX 0
#endif
extern const ptir_isa ptir_isa_baseline;

/* The tables that this machine can run, the fastest first, NULL last. */
const ptir_isa *const *ptir_isas(void);

/* The table in use: the fastest, unless `ptir_use_isa` chose another. */
const ptir_isa *ptir_isa_in_use(void);

/* Use the table called `name`; 0 when this machine cannot run it. */
int ptir_use_isa(const char *name);
#endif

/* Table of kernels per instruction set. A kernel is written once, in an .inl file, for vectors of W floats. Each isa_*.c compiles
 * it for one instruction set and lists the results in a table. `ptir_isa_in_use` is chosen when the module is loaded. */
#ifndef PTIR_ISA_H
#define PTIR_ISA_H
#include "chain.h"
#include "kernels.h"

/* Scales and zero points of a quantized input and of the output. */
typedef struct {
    const double *scale, *zero, *output_scale, *output_zero;
} ptir_scaling;

/* A step of f32 on the sums of an 8-bit product. Element (i, j) of the operand is at data[i * rows + j * columns]; `columns` is 0 or
 * 1. Of bytes it is (element - zero) * scale. Unary steps have no operand. */
typedef struct {
    const void *data;
    ptrdiff_t rows, columns;
    float zero, scale;
    uint8_t op, kind;
} ptir_sum_step;

static inline int ptir_is_unary_step(int op) { return op == PTIR_round_even || op == PTIR_nearest_si8 || op == PTIR_nearest_ui8; }

/* Epilogue of an 8-bit product. First `added` (or NULL), whose rows are `rows` elements apart, is added in 32 bits that wrap.
 *
 * With `in_f32` the sum becomes f32, goes through the steps in order, each rounded, and is stored as f32 ('f'), or truncated to a byte
 * ('b', 'B') of [low, high]; NaN is 0. Otherwise it is scaled, with one scaling or with `along` one per column, to f32 or to bytes.
 * `factor` is scale / output scale in f32; it is used only if it is accurate enough (`is_near`) and the zero point is 0. */
enum { PTIR_LONGEST_SUM = 16 };
typedef struct {
    int in_f32;
    size_t count;
    ptir_sum_step steps[PTIR_LONGEST_SUM];
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
    const ptir_isa *few; /* NULL, or a table whose f32 `gemm` and `pack` are faster for few rows */
    size_t vector, panel; /* floats per vector; rows per panel of attention */
    size_t depth;         /* products that `gemm` sums before it adds to the result */
    /* Floats of scratch for `gemm`: in general; if the right operand is packed. */
    size_t (*gemm_scratch)(void), (*packed_scratch)(void);
    /* out[b, i, j] = sum over k of a[b, i, k] * c[b, k, j]; out is row-major and dense. If `packed` is not NULL, it is the right
     * operand of the whole batch, and c is not read. The epilogue is applied to each matrix. */
    void (*gemm)(float *out, ptir_matrix a, ptir_matrix c, const float *packed, size_t batch, size_t m, size_t n, size_t k,
                 const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch);
    /* Pack the panels of a k x n right operand whose first column is in [first, last), in the order in which `gemm` reads them.
     * `packed_floats` is the size of all panels. */
    void (*pack)(float *to, ptir_matrix c, size_t k, size_t n, size_t first, size_t last);
    size_t (*packed_floats)(size_t k, size_t n);
    /* Undo `pack`: k dense rows of n columns, bit for bit. */
    void (*unpack)(float *to, const float *packed, size_t k, size_t n);
    /* Convolution: rows [first, first + m) of the patch matrix times n columns, for each group. `packed` holds one right operand
     * per group. Rows of the result are `step` apart, groups `group_step`. The epilogue's operands have the columns of all groups. */
    void (*conv)(float *out, size_t step, size_t group_step, const ptir_patches *x, const float *packed, size_t first, size_t m,
                 size_t n, const ptir_epilogue *epilogue, float *scratch, ptir_watch *watch);
    /* Depthwise convolution and pooling over n channels, at places [first, first + m): the sum of products with weights[tap * n +
     * channel] (PTIR_WEIGHTED), or the sum, maximum or minimum of the pixels that are not padding. */
    void (*windows)(float *out, size_t step, const ptir_patches *x, int kind, const float *weights, size_t first, size_t m, size_t n,
                    const ptir_epilogue *epilogue, ptir_watch *watch);
    /* As `gemm`, for 8-bit integers with 32-bit sums that wrap. With `to` (only for a batch of one and k > 0), out has the dtype
     * that `to` says. */
    void (*igemm)(void *out, const ptir_quantizing *to, ptir_bytes a, ptir_bytes c, const uint32_t *packed, size_t batch, size_t m, size_t n, size_t k,
                  float *scratch, ptir_watch *watch);
    void (*pack_bytes)(uint32_t *to, ptir_bytes c, size_t k, size_t n, size_t first, size_t last);
    void (*unpack_bytes)(uint8_t *to, const uint32_t *packed, size_t k, size_t n, int is_signed);
    size_t (*igemm_scratch)(void), (*packed_words)(size_t k, size_t n);
    /* As `gemm`, for bf16; NULL if the instruction set has no instruction for it. With `is_narrow` (only if `bgemm_rounds`), out is
     * of bf16. */
    void (*bgemm)(void *out, int is_narrow, ptir_halves a, ptir_halves c, const uint32_t *packed, size_t batch, size_t m, size_t n,
                  size_t k, float *scratch, ptir_watch *watch);
    int bgemm_rounds;
    void (*pack_pairs)(uint32_t *to, ptir_halves c, size_t k, size_t n, size_t first, size_t last);
    void (*unpack_pairs)(uint16_t *to, const uint32_t *packed, size_t k, size_t n);
    size_t (*bgemm_scratch)(void), (*paired_words)(size_t k, size_t n);
    /* out[b, j] = sum over p of x[b, p] * c[b, p, j], in f32; out is batch x n, x is batch x k. An element does not depend on how n
     * is split. */
    void (*gemv)(float *out, const float *x, ptir_narrow c, size_t batch, size_t n, size_t k, ptir_watch *watch);
    /* Flash attention. `attention_scratch` does not count the scratch of the program on the scores, which comes last. */
    void (*attention)(const ptir_attention *x, float *scratch, ptir_watch *watch);
    size_t (*attention_scratch)(size_t columns, size_t depth, size_t width);
    /* As `attention`, for operands and results of bf16; NULL if the instruction set has no instruction for it. `pair_panel` is its
     * rows per panel. */
    void (*pair_attention)(const ptir_attention *x, float *scratch, ptir_watch *watch);
    size_t (*pair_attention_scratch)(size_t columns, size_t depth, size_t width);
    size_t pair_panel;
    /* Run a phase on all its rows, which have `columns` elements each. The phase may be one that `known` names. */
    void (*chain)(const ptir_phase *f);
    /* Layer norm of dense rows of n elements. Rows whose squares leave the range of f32 are computed in float64. */
    void (*layer_norm)(float *out, const float *x, const float *gamma, const float *beta, size_t rows, size_t n, double epsilon,
                       ptir_watch *watch);
    /* out[b, j] = the sum, maximum or minimum over i of x[b, i, j]. Rows of x are contiguous, and out is dense. */
    void (*fold)(float *out, ptir_matrix x, int kind, size_t batch, size_t m, size_t n, ptir_watch *watch);
    /* Argmax: out[i] = the first index of the largest element of row i, or of the first NaN. Rows have n elements and are `step`
     * apart. out is of 32 bits, or with `wide` of 64. */
    void (*largest)(void *out, int wide, const float *x, ptrdiff_t step, size_t rows, size_t n, ptir_watch *watch);
    /* out[i] = the sum of row i in 32 bits, which wrap. Rows have n bytes, signed or not, and are `step` apart. */
    void (*byte_sums)(uint32_t *out, const uint8_t *x, int is_signed, ptrdiff_t step, size_t rows, size_t n, ptir_watch *watch);
    /* (x - zero) * scale in float64, then converted to f32 ('f') or quantized: divided by the output scale, rounded to the nearest
     * integer, plus the output zero point. Kinds are buffer format characters. Row r uses scaling r % channels; with `along` each
     * column has its own. */
    void (*rescaled)(void *out, char to, const void *x, char from, size_t rows, size_t n, size_t channels, int along, ptir_scaling s,
                     ptir_watch *watch);
    /* Transpose: to(b, i, j) = from(b, i, j), where `to` is contiguous along j and `from` along i. With `streams`, by non-temporal
     * stores. */
    void (*transpose)(ptir_transposed to, ptir_transposed from, size_t batch, size_t m, size_t n, int streams);
    /* Convert `n` elements of a kind: `load` from stride `step` to floats, `store` from floats to contiguous elements. */
    void (*load)(float *to, const void *from, ptrdiff_t step, size_t n, int kind);
    void (*store)(void *to, const float *from, size_t n, int kind);
};

#if defined(__x86_64__) && defined(__GNUC__)
#define PTIR_X86 1
extern const ptir_isa ptir_isa_avx2, ptir_isa_avx512, ptir_isa_avx512vnni, ptir_isa_avx512bf16;
#else
#define PTIR_X86 0
#endif

/* AMX needs a compiler that knows it, and Linux, which grants its use on request. */
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

/* The tables that this machine supports, the fastest first, then NULL. */
const ptir_isa *const *ptir_isas(void);

/* The table in use: the fastest, unless `ptir_use_isa` chose another. */
const ptir_isa *ptir_isa_in_use(void);

/* Use the table called `name`. Returns 0 if this machine does not support it. */
int ptir_use_isa(const char *name);
#endif

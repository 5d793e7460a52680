/* Tile programs and the records that kernels take. Kernels never allocate, never fail and never call Python: module.c has checked
 * all shapes. What a kernel writes overlaps what it reads only where its comment says so. Strides are in elements. */
#ifndef PTIR_KERNELS_H
#define PTIR_KERNELS_H
#include <stddef.h>
#include <stdint.h>

/* Interrupt check of a kernel. Long kernels call `stop` now and then, and return early if it returns nonzero. */
typedef struct {
    int (*stop)(void *data);
    void *data;
    size_t done; /* element operations since the clock was last read */
    int stopped;
    const void *refused; /* a call that stopped because its arguments are refused */
    int64_t asked;       /* time of the last check in nanoseconds; 0 before the first */
} ptir_watch;

/* Whether enough time has passed to call `stop` again: `stop` takes the interpreter's lock, which another thread may hold. */
int ptir_is_due(ptir_watch *w);

/* Kinds of elements. bf16 and f16 are stored as their bits. Only tile programs have integers: si32 is an input, and what is stored
 * as a byte is a number of its range. */
enum { PTIR_FLOAT, PTIR_BOOL, PTIR_F16, PTIR_BF16, PTIR_SI8, PTIR_UI8, PTIR_SI32, PTIR_KINDS };
static inline ptrdiff_t ptir_bytes_of(int kind)
{
    return kind == PTIR_FLOAT || kind == PTIR_SI32 ? 4 : kind == PTIR_F16 || kind == PTIR_BF16 ? 2 : 1;
}

/* A batch of matrices: element (b, i, j) is at data[b * batch + i * rows + j * columns]. */
typedef struct {
    const float *data;
    ptrdiff_t batch, rows, columns;
} ptir_matrix;

/* The patch matrix of a convolution, which is never stored (implicit im2col). It has a row per place, in order of image and place,
 * and a column per tap and channel. Images have two spatial axes, contiguous channels and zero padding. Pixel (i, j) of image b is
 * at data[b * batch + i * row + j * column]. Tap (s, t) of place (i, j) reads pixel (i * stride - low + s * dilation, likewise for
 * j). */
typedef struct {
    const float *data;
    ptrdiff_t batch, row, column;
    size_t extent[2], places[2], window[2], stride[2], dilation[2];
    ptrdiff_t low[2];
    size_t groups, channels; /* channels of a group */
    int is_finite;           /* whether all weights are known to be: then padding need not be multiplied */
} ptir_patches;

/* An epilogue: elementwise operations on a result before it leaves the cache, in order, each with one operand. Element (i, j) of an
 * operand is at data[i * rows + j * columns]; `columns` is 0 or 1. With `takes_result`, an operand is the memory that the result
 * overwrites, element by element. Then k must not exceed `depth` (isa.h). */
enum { PTIR_LONGEST_EPILOGUE = 8 };
typedef struct {
    size_t count;
    int takes_result;
    struct {
        const float *data;
        ptrdiff_t rows, columns;
        uint8_t op; /* a binary operation; the operand is its second argument */
    } steps[PTIR_LONGEST_EPILOGUE];
} ptir_epilogue;

/* A batch of matrices of 8-bit integers. With `is_padded` each row may be read up to a multiple of four bytes. */
typedef struct {
    const uint8_t *data;
    ptrdiff_t batch, rows, columns;
    int is_signed, is_padded;
} ptir_bytes;

/* A batch of matrices of bf16, as their bits. */
typedef struct {
    const uint16_t *data;
    ptrdiff_t batch, rows, columns;
} ptir_halves;

/* A batch of matrices of f32, f16 or bf16. */
typedef struct {
    const void *data;
    ptrdiff_t batch, rows, columns;
    int kind;
} ptir_narrow;

/* A batch of matrices of four-byte items. They are contiguous along one axis and `step` apart along the other. */
typedef struct {
    uint32_t *data;
    ptrdiff_t batch, step;
} ptir_transposed;

/* A tile program, run for every tile of a rows x columns domain: instructions on an accumulator, and registers in memory.
 *
 * A register is FULL (one float per element of the tile), ROWS (one float per row) or LOCAL (only the elements in the accumulator).
 * Registers 0 .. array_count-1 are the arrays. Inputs are loaded before a tile and outputs stored after it, so an output may be the
 * memory of an input.
 *
 * A program is a list of phases. All instructions of a phase run on a few elements, then on the next ones. A phase on elements
 * processes the tile row by row; its reductions can be used in later phases. A phase on rows computes with values that exist once
 * per row. An instruction changes the accumulator, alone or with registers a and b. `store` copies it to register a. A reduction
 * reduces it over the row into register a; b is the number of the reduction. */
typedef struct {
    uint8_t op, a, b;
} ptir_instruction;

enum { PTIR_FULL, PTIR_ROWS, PTIR_LOCAL };

typedef struct {
    void *data;
    ptrdiff_t rows, columns; /* strides; 0 repeats one element */
    uint8_t kind, is_output;
    uint8_t per_row;   /* one element per row: its register is ROWS */
    uint8_t is_direct; /* output only: may be written while the program runs */
    uint8_t streams;   /* direct output only: written once, never read and larger than the cache, so non-temporal stores are used */
    ptrdiff_t heads;   /* stride between the heads of attention */
} ptir_array;

enum { PTIR_REGISTERS = 160, PTIR_REDUCTIONS = 128, PTIR_LONGEST = 640, PTIR_PHASES = 320, PTIR_TILE = 4096 };

typedef struct {
    const ptir_instruction *code;
    size_t length;
    const uint8_t *kinds; /* of the registers */
    const ptir_array *arrays;
    size_t array_count, register_count;
    size_t rows, columns;
    int whole_rows; /* some instruction reduces a row, so tiles are whole rows */
    int is_large;   /* the whole domain, of which this may be a part, exceeds the cache */
} ptir_program;

/* Check the kinds of the registers; check the code, in which the first `inputs` registers are read-only. Return 0 if they are
 * invalid. `ptir_find_direct` sets `is_direct` and `streams` when the arrays are known. */
int ptir_checks_kinds(const ptir_program *p);
int ptir_checks_code(const ptir_program *p, size_t inputs);
void ptir_find_direct(const ptir_program *p, ptir_array *arrays);

/* Floats of scratch for all registers of `p`. */
size_t ptir_scratch(const ptir_program *p);

/* Run rows [first, last) of `p`. */
void ptir_run(const ptir_program *p, size_t first, size_t last, float *scratch, ptir_watch *watch);

/* A program that fits in one tile, with resolved operands, to be run often with the same arrays and scratch. `ptir_prepared_size`
 * is in bytes, a multiple of a pointer's size, or 0 if the program needs several tiles. A run writes to it. */
typedef struct ptir_prepared ptir_prepared;
size_t ptir_prepared_size(const ptir_program *p);
void ptir_prepare(const ptir_program *p, float *scratch, ptir_prepared *made, size_t size);
void ptir_run_prepared(const ptir_program *p, const ptir_prepared *made, ptir_watch *watch);

/* softmax(scores(q k^T)) v for heads that share keys and values. Rows of the result are contiguous. */
typedef struct {
    ptir_narrow q, k, v; /* heads x rows x depth, columns x depth, columns x width; all f32, or all bf16 like the result */
    void *out;
    ptrdiff_t out_head, out_row;
    size_t heads, rows, columns, depth, width;
    const int32_t *kept; /* mask: per row the first column kept and the one after the last; NULL keeps all */
    float low;           /* the score of masked columns */
    int kind;            /* f16 or bf16: every step is rounded to it */
    /* NULL, or a tile program on the scores [columns, rows]. `own` is the number of the input that the scores are; the output is
     * the scores, too. */
    const ptir_program *scores;
    size_t own;
} ptir_attention;

/* Run the program of `x` on a block of scores, which begins at (row, column). In `scores` rows are contiguous, and columns `step`
 * floats apart. */
void ptir_run_scores(const ptir_attention *x, float *scores, size_t step, size_t head, size_t row, size_t rows, size_t column,
                     size_t columns, float *scratch, ptir_watch *watch);

/* Instructions by number. The module exports the names to the engine. */
#define PTIR_OPS(X)                                                                                                    \
    X(load) X(add) X(sub) X(mul) X(div) X(reverse_sub) X(reverse_div) X(maximum) X(minimum) X(compare_lt)              \
    X(compare_le) X(compare_eq) X(compare_ge) X(compare_gt) X(compare_ne) X(neg) X(abs) X(exp) X(log) X(tanh) X(erf)   \
    X(rsqrt) X(reciprocal) X(round_even) X(nearest_f16) X(nearest_bf16)             \
    X(nearest_si8) X(nearest_ui8) X(select) X(clamp) X(store) X(reduce_sum) X(reduce_max)      \
    X(reduce_min) X(on_elements) X(on_rows)
#define PTIR_ENUM(name) PTIR_##name,
enum { PTIR_OPS(PTIR_ENUM) PTIR_OP_COUNT };

static inline int ptir_is_reduction(unsigned op) { return op >= PTIR_reduce_sum && op <= PTIR_reduce_min; }

/* Whether an instruction may be a step of an epilogue. */
static inline int ptir_is_epilogue(int op)
{
    return op == PTIR_add || op == PTIR_sub || op == PTIR_mul || op == PTIR_div || op == PTIR_maximum || op == PTIR_minimum;
}

/* How many registers an instruction names. */
static inline int ptir_registers_of(unsigned op)
{
    return op == PTIR_select || op == PTIR_clamp ? 2 : op <= PTIR_compare_ne || op == PTIR_store || ptir_is_reduction(op);
}
#endif

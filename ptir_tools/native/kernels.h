/* Tile kernels. They never allocate, never fail and never see Python: the caller has checked shapes, and what a kernel
 * writes overlaps what it reads only where it says so. Strides are in elements. */
#ifndef PTIR_KERNELS_H
#define PTIR_KERNELS_H
#include <stddef.h>
#include <stdint.h>

/* Long kernels ask now and then whether to stop, and return early when `stop` says so. */
typedef struct {
    int (*stop)(void *data);
    void *data;
    size_t done; /* element operations since the clock was looked at */
    int stopped;
    const void *refused; /* the call that stopped, since it was asked for what cannot be */
    int64_t asked;       /* when, in nanoseconds of some clock; 0 at first */
} ptir_watch;

/* Whether it is time to ask again: to ask takes the interpreter's lock, which others may hold. */
int ptir_is_due(ptir_watch *w);

/* What elements are; bf16 are given as their bits. */
enum { PTIR_FLOAT, PTIR_BOOL, PTIR_F16, PTIR_BF16 };

/* A matrix, or a stack of them: element (b, i, j) is at data[b * batch + i * rows + j * columns]. */
typedef struct {
    const float *data;
    ptrdiff_t batch, rows, columns;
} ptir_matrix;

/* Windows over images with the channels of a pixel in order, two spatial axes, zeros around. Pixel (i, j) of image b is at
 * data[b * batch + i * row + j * column]; tap (s, t) of place (i, j) is pixel (i * stride - low + s * dilation, likewise j). As the
 * left operand of a product: a row for each place, in order of image and place, a column for each tap and channel. */
typedef struct {
    const float *data;
    ptrdiff_t batch, row, column;
    size_t extent[2], places[2], window[2], stride[2], dilation[2];
    ptrdiff_t low[2];
    size_t groups, channels; /* channels of a group */
} ptir_patches;

/* What is done to a result that has just been computed: an operation with an operand, one after the other. Element (i, j) of the
 * operand is at data[i * rows + j * columns]; the steps between columns are 0 or 1. Where it `takes_result`, an operand is what the
 * result is written over, element by element: then a sum has no more than `depth` products (isa.h). */
enum { PTIR_LONGEST_ENDING = 8 };
typedef struct {
    size_t count;
    int takes_result;
    struct {
        const float *data;
        ptrdiff_t rows, columns;
        uint8_t op; /* a binary one, its second operand */
    } steps[PTIR_LONGEST_ENDING];
} ptir_ending;

/* A stack of matrices of 8-bit integers. */
typedef struct {
    const uint8_t *data;
    ptrdiff_t batch, rows, columns;
    int is_signed;
} ptir_bytes;

/* A stack of matrices of bf16, as their bits. */
typedef struct {
    const uint16_t *data;
    ptrdiff_t batch, rows, columns;
} ptir_halves;

/* A stack of matrices of f32, f16 or bf16. */
typedef struct {
    const void *data;
    ptrdiff_t batch, rows, columns;
    int kind;
} ptir_narrow;

/* A stack of matrices of four-byte items, one after the other along one axis, `step` apart along the other. */
typedef struct {
    uint32_t *data;
    ptrdiff_t batch, step;
} ptir_turned;

/* A tile program, run for every tile of a rows x columns domain: instructions on an accumulator, and registers in memory.
 *
 * A register is FULL (a float for each element of the tile), has one float for each of its ROWS, or is LOCAL: it holds what the
 * next instructions need of the elements in work. Registers 0 .. array_count-1 are the arrays; inputs are loaded when a tile
 * begins, outputs stored when it ends, so that an output may be the very memory of an input.
 *
 * A program is in phases. A phase runs from its first to its last instruction for some elements, then for the next. One on
 * elements goes through the tile row by row; what it reduces can be used in the phases that follow. One on rows computes with
 * what there is once per row. An instruction changes the accumulator, by itself or by registers a and b; `store` sets register
 * a to it, a reduction reduces it over the row into register a, and has a number b of its own. */
typedef struct {
    uint8_t op, a, b;
} ptir_instruction;

enum { PTIR_FULL, PTIR_ROWS, PTIR_LOCAL };

typedef struct {
    void *data;
    ptrdiff_t rows, columns; /* strides; 0 where one element serves for all */
    uint8_t kind, is_output;
    uint8_t per_row;   /* one element per row: its register is ROWS */
    uint8_t is_direct; /* of an output: may be written while the program runs */
    uint8_t streams;   /* of such an output: is written once and never read, and too large for the cache */
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
    int whole_rows; /* some instruction reduces a row: tiles are whole rows */
    int is_large;   /* the whole of which this is a part does not stay in the cache */
} ptir_program;

/* Whether the kinds of the registers are such, and arrays not LOCAL; whether the code, with so many arrays that are only read,
 * keeps to them. Which outputs are direct is said by `ptir_find_direct`, once the arrays are there. */
int ptir_checks_kinds(const ptir_program *p);
int ptir_checks_code(const ptir_program *p, size_t inputs);
void ptir_find_direct(const ptir_program *p, ptir_array *arrays);

/* The floats of scratch that `p` needs: a place for every register. */
size_t ptir_scratch(const ptir_program *p);

/* Run rows [first, last) of `p`. */
void ptir_run(const ptir_program *p, size_t first, size_t last, float *scratch, ptir_watch *watch);

/* What is found out about a program that is one tile, to run it again and again with the same arrays and scratch. Its size in bytes,
 * a multiple of that of a pointer; 0 where the program is more than one tile. It is written to by a run. */
typedef struct ptir_prepared ptir_prepared;
size_t ptir_prepared_size(const ptir_program *p);
void ptir_prepare(const ptir_program *p, float *scratch, ptir_prepared *made, size_t size);
void ptir_run_prepared(const ptir_program *p, const ptir_prepared *made, ptir_watch *watch);

/* softmax(scores(q k^T)) v for heads with keys and values in common. Rows of the result are in order. */
typedef struct {
    ptir_narrow q, k, v; /* heads x rows x depth, columns x depth, columns x width; all of f32, or with the result of bf16 */
    void *out;
    ptrdiff_t out_head, out_row;
    size_t heads, rows, columns, depth, width;
    const int32_t *kept; /* of each row the first column that is kept, and the one after the last; NULL: all are */
    float low;           /* the score of the others */
    int kind;            /* f16 or bf16 where every step is rounded to that */
    /* What is done to the scores first, or NULL: a tile program on [columns, rows], and which of its inputs they are; so is its output. */
    const ptir_program *scores;
    size_t own;
} ptir_attention;

/* Run the program of `x` on the scores of rows and columns from those given on; at `scores` rows lie one after the other, columns
 * `step` floats apart. */
void ptir_run_scores(const ptir_attention *x, float *scores, size_t step, size_t head, size_t row, size_t rows, size_t column,
                     size_t columns, float *scratch, ptir_watch *watch);

/* Instructions by number; the names are the engine's and are given to it by the module. */
#define PTIR_OPS(X)                                                                                                    \
    X(load) X(add) X(sub) X(mul) X(div) X(reverse_sub) X(reverse_div) X(maximum) X(minimum) X(compare_lt)              \
    X(compare_le) X(compare_eq) X(compare_ge) X(compare_gt) X(compare_ne) X(neg) X(abs) X(exp) X(log) X(tanh) X(erf)   \
    X(rsqrt) X(reciprocal) X(nearest_f16) X(nearest_bf16) X(select) X(clamp) X(store) X(reduce_sum) X(reduce_max)      \
    X(reduce_min) X(on_elements) X(on_rows)
#define PTIR_ENUM(name) PTIR_##name,
enum { PTIR_OPS(PTIR_ENUM) PTIR_OP_COUNT };

static inline int ptir_is_reduction(unsigned op) { return op >= PTIR_reduce_sum && op <= PTIR_reduce_min; }

/* Whether an instruction may be a step of an ending. */
static inline int ptir_is_ending(int op)
{
    return op == PTIR_add || op == PTIR_sub || op == PTIR_mul || op == PTIR_div || op == PTIR_maximum || op == PTIR_minimum;
}

/* How many registers an instruction names. */
static inline int ptir_registers_of(unsigned op)
{
    return op == PTIR_select || op == PTIR_clamp ? 2 : op <= PTIR_compare_ne || op == PTIR_store || ptir_is_reduction(op);
}
#endif

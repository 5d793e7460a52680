/* Instructions of a tile program whose operands are resolved to addresses, ready to run on one row (chain.inl). */
#ifndef PTIR_CHAIN_H
#define PTIR_CHAIN_H
#include "common.h"

enum { LANES = 64, SUMS = 32 }; /* floats of the accumulator; partial results of a reduction */

typedef struct {
    float *at;      /* first element of the row */
    ptrdiff_t next; /* stride between rows */
    size_t moves;   /* mask of the column index: ~0 if there is an element per column, else 0 */
    uint8_t is_one;  /* one float for the whole row */
    uint8_t streams; /* written with non-temporal stores */
    uint8_t is_array; /* is the memory of an array: its address changes from tile to tile */
} ptir_operand;

/* One instruction. A binary operation whose operand is one float has its number plus REPEATED. A reduction keeps SUMS partial
 * results at `second` and stores its result at `first`. */
typedef struct {
    unsigned op;
    ptir_operand first, second;
} ptir_ready;

enum { REPEATED = PTIR_OP_COUNT };

/* A phase with resolved operands. */
typedef struct {
    ptir_ready *code;
    size_t length, rows, columns;
    size_t reduces; /* index of the first reduction */
    int known;
} ptir_phase;

#endif

/* Instructions of a tile program on one row, made ready: operands found. */
#ifndef PTIR_CHAIN_H
#define PTIR_CHAIN_H
#include "common.h"

enum { LANES = 64, SUMS = 32 }; /* floats of the accumulator; partial results of a reduction */

typedef struct {
    float *at;      /* where the row begins */
    ptrdiff_t next; /* from row to row */
    size_t moves;   /* all bits set when it goes along the row, none when the same floats serve all of it */
    uint8_t is_one;  /* it is one float for all of the row */
    uint8_t streams; /* it is written past the cache */
    uint8_t is_array; /* it is where an array is, so that the next tile has another place */
} ptir_operand;

/* One instruction. A binary operation on one float has the number of the operation and REPEATED. A reduction has SUMS floats
 * at `second` and puts its result at `first`. */
typedef struct {
    unsigned op;
    ptir_operand first, second;
} ptir_ready;

enum { REPEATED = PTIR_OP_COUNT };

/* A phase made ready. */
typedef struct {
    ptir_ready *code;
    size_t length, rows, columns;
    size_t reduces; /* where the first instruction is that reduces */
    int known;
} ptir_phase;

#endif

/* Recognizes frequent phases: single operations, reductions, the phases of softmax and layer norm, and activations. */
#include "phases.h"

/* An instruction and what its register must be: FULL; that of the phase's first instruction; that of the previous instruction; one
 * float per row; LOCAL; or not checked. */
enum { ROW, FIRST, AGAIN, FLOAT, STAYS, NONE, MOST = 13 };
typedef struct {
    uint8_t op, operand;
} step;
#define DO(name, operand) {PTIR_##name, operand}
#define END {PTIR_OP_COUNT, NONE}

static const step phases[UNKNOWN][MOST + 1] = {
    [ADDED] = {DO(load, ROW), DO(add, ROW), DO(store, ROW), END},
    [LESS] = {DO(load, ROW), DO(sub, ROW), DO(store, ROW), END},
    [TIMES] = {DO(load, ROW), DO(mul, ROW), DO(store, ROW), END},
    [SUM] = {DO(load, ROW), DO(reduce_sum, NONE), END},
    [MAX] = {DO(load, ROW), DO(reduce_max, NONE), END},
    [MIN] = {DO(load, ROW), DO(reduce_min, NONE), END},
    [SQUARES] = {DO(load, ROW), DO(mul, FIRST), DO(reduce_sum, NONE), END},
    [DEVIATION] = {DO(load, ROW), DO(sub, FLOAT), DO(store, ROW), DO(mul, AGAIN), DO(reduce_sum, NONE), END},
    [EXP] = {DO(load, ROW), DO(sub, FLOAT), DO(exp, NONE), DO(store, ROW), DO(reduce_sum, NONE), END},
    [DIVIDED] = {DO(load, ROW), DO(div, FLOAT), DO(store, ROW), END},
    [AT_LEAST] = {DO(load, ROW), DO(maximum, FLOAT), DO(store, ROW), END},
    [SCALED] = {DO(load, ROW), DO(mul, FLOAT), DO(mul, ROW), DO(store, ROW), END},
    [SHIFTED] = {DO(load, ROW), DO(mul, FLOAT), DO(mul, ROW), DO(add, ROW), DO(store, ROW), END},
    [ERF_GELU] = {DO(load, ROW), DO(mul, FLOAT), DO(erf, NONE), DO(add, FLOAT), DO(store, STAYS), DO(load, FIRST),
                  DO(mul, FLOAT), DO(mul, STAYS), DO(store, ROW), END},
    [TANH_GELU] = {DO(load, ROW), DO(mul, FIRST), DO(mul, FIRST), DO(mul, FLOAT), DO(add, FIRST), DO(mul, FLOAT), DO(tanh, NONE),
                   DO(add, FLOAT), DO(store, STAYS), DO(load, FIRST), DO(mul, FLOAT), DO(mul, STAYS), DO(store, ROW), END},
    [SIGMOID] = {DO(load, ROW), DO(neg, NONE), DO(exp, NONE), DO(add, FLOAT), DO(reciprocal, NONE), DO(store, ROW), END},
    [SILU] = {DO(load, ROW), DO(neg, NONE), DO(exp, NONE), DO(add, FLOAT), DO(reciprocal, NONE), DO(mul, FIRST), DO(store, ROW), END},
    [HARD_SWISH] = {DO(load, ROW), DO(add, FLOAT), DO(maximum, FLOAT), DO(minimum, FLOAT), DO(mul, FIRST), DO(div, FLOAT),
                    DO(store, ROW), END},
    [HARD_SWISH_SHIFTED] = {DO(load, ROW), DO(add, FLOAT), DO(maximum, FLOAT), DO(minimum, FLOAT), DO(mul, FIRST), DO(div, FLOAT),
                            DO(mul, FLOAT), DO(add, FLOAT), DO(store, ROW), END},
    [HARD_GATE] = {DO(load, ROW), DO(div, FLOAT), DO(add, FLOAT), DO(maximum, FLOAT), DO(minimum, FLOAT), DO(mul, FIRST),
                   DO(store, ROW), END},
    [HARD_GATE_SHIFTED] = {DO(load, ROW), DO(div, FLOAT), DO(add, FLOAT), DO(maximum, FLOAT), DO(minimum, FLOAT), DO(mul, FIRST),
                           DO(mul, FLOAT), DO(add, FLOAT), DO(store, ROW), END},
};

static int is_step(const step *s, const ptir_instruction *in, const ptir_instruction *first, const uint8_t *kinds)
{
    switch (in->op == s->op ? s->operand : PTIR_OP_COUNT) {
    case ROW: return kinds[in->a] == PTIR_FULL;
    case FIRST: return in->a == first->a;
    case AGAIN: return in->a == in[-1].a;
    case FLOAT: return kinds[in->a] == PTIR_ROWS;
    case STAYS: return kinds[in->a] == PTIR_LOCAL;
    case NONE: return 1;
    }
    return 0;
}

int ptir_known_phase(const ptir_instruction *code, size_t length, const uint8_t *kinds)
{
    int known = 0;
    for (; known < UNKNOWN && length <= MOST; known++) {
        size_t i = 0;
        while (i < length && is_step(&phases[known][i], &code[i], code, kinds))
            i++;
        if (i == length && phases[known][i].op == PTIR_OP_COUNT)
            return known;
    }
    return UNKNOWN;
}

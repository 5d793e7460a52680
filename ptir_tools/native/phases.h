/* Frequent phases, by name. `phases.c` recognizes them; `quick.inl` has a loop for each. */
#ifndef PTIR_PHASES_H
#define PTIR_PHASES_H
#include "common.h"

enum { ADDED, LESS, TIMES, SUM, MAX, MIN, SQUARES, DEVIATION, EXP, DIVIDED, AT_LEAST, SCALED, SHIFTED, ERF_GELU, TANH_GELU, SIGMOID, SILU, HARD_SWISH,
       HARD_SWISH_SHIFTED, HARD_GATE, HARD_GATE_SHIFTED, UNKNOWN };

/* The name of the phase on elements `code`, or UNKNOWN. */
int ptir_known_phase(const ptir_instruction *code, size_t length, const uint8_t *kinds);
#endif

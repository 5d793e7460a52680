/* Phases that come often, by name: `phases.c` tells which they are, `quick.inl` has a loop for each. */
#ifndef PTIR_PHASES_H
#define PTIR_PHASES_H
#include "common.h"

enum { ADDED, LESS, TIMES, SUM, MAX, MIN, SQUARES, DEVIATION, EXP, DIVIDED, AT_LEAST, SCALED, SHIFTED, ERF_GELU, TANH_GELU, UNKNOWN };

/* Which one the phase on elements `code` is. */
int ptir_known_phase(const ptir_instruction *code, size_t length, const uint8_t *kinds);
#endif

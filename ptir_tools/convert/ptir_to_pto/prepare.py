"""Preparation of a PTIR function for kernels: ops that tiles lack are expanded, parts are written to memory, loops get bounds."""

from __future__ import annotations

from collections.abc import Set

from ptir_tools.convert.legality import decomposed
from ptir_tools.convert.options import LOSSY
from ptir_tools.convert.ptir_to_pto import integers, loops, moves, ordering, quantized, reductions
from ptir_tools.convert.ptir_to_pto.approximations import APPROXIMATIONS, LOSSY_FORMULAS
from ptir_tools.convert.ptir_to_pto.expansion import Expand, expanded
from ptir_tools.convert.ptir_to_pto.kernel import POSITIONS, REDUCTIONS, TAKE
from ptir_tools.convert.ptir_to_pto.outline import Outline
from ptir_tools.convert.ptir_to_pto.preparation import Preparation, Rule
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.dialects.ptir.composites.express import FUNCTIONS, SPECIAL
from ptir_tools.dialects.pto.targets import Target


def prepared(
    program: Program, target: Target, options: Options, diagnostics: Diagnostics, others: Set[str] = frozenset()
) -> Outline:
    """The live ops of the entry. Constants that are not splats become parameters, whose values go to the option CONSTANTS, else a
    warning lists them. `others` are names that they must not have."""
    composites = {**FUNCTIONS, **SPECIAL, **APPROXIMATIONS, **(LOSSY_FORMULAS if options[LOSSY] else {})}
    program, ranges, refused = expanded(decomposed(program, composites), EXPANSIONS, target)
    return Preparation(program, options, diagnostics, RULES, ranges, refused, others).run()


# Ops that tiles lack, in ops that they have.
EXPANSIONS: dict[str, Expand] = {
    **dict.fromkeys(REDUCTIONS, reductions.reduction),
    "dot_general": reductions.product,
    "quantize": quantized.quantize,
    "dequantize": quantized.dequantize,
    "requantize": quantized.requantize,
    **dict.fromkeys(POSITIONS, reductions.extreme),
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor"), integers.every),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"), reductions.logical),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), ordering.running),
    "div": integers.quotient,
    **dict.fromkeys(("rem", "mod"), integers.remainder),
    "pow": integers.power,
    "shift_right_logical": integers.logical_shift,
    "shift_right_arithmetic": integers.arithmetic_shift,
    "popcount": integers.popcount,
    "count_leading_zeros": integers.leading_zeros,
    "bitcast": integers.bitcast,
    "nextafter": integers.next_after,
    "reduce_precision": integers.reduced_precision,
    "sign": reductions.sign,
    "is_finite": reductions.finite,
    "gather": ordering.gather,
    "top_k": ordering.top_k,
    "sort": ordering.sort,
}
# Ops that read and write parts of memory, and control flow.
RULES: dict[str, Rule] = {
    "slice": moves.slice,
    "dynamic_slice": moves.dynamic_slice,
    "dynamic_update_slice": moves.update,
    "concat": moves.concat,
    "pad": moves.pad,
    "extract_patches": moves.patches,
    "reduce_window": moves.windows,
    "reshape": moves.reshape,
    "tile": moves.tiled,
    TAKE: moves.take,
    "scan": loops.scan,
    "while": loops.while_,
    "cond": loops.cond,
}

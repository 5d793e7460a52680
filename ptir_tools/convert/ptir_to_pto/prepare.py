"""Preparation of a PTIR function for kernels. Ops that the tiles of a target lack are expanded, by a pattern of the greedy driver
per op, until all that is left is legal. Then parts are written to memory, and loops get bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from ptir_tools.convert.legality import decomposed
from ptir_tools.convert.options import LOSSY
from ptir_tools.convert.ptir_to_pto import integers, loops, moves, ordering, quantized, reductions
from ptir_tools.convert.ptir_to_pto.approximations import APPROXIMATIONS, LOSSY_FORMULAS
from ptir_tools.convert.ptir_to_pto.kernel import POSITIONS, REDUCTIONS, TAKE, unfit
from ptir_tools.convert.ptir_to_pto.operands import Place, parts_of
from ptir_tools.convert.ptir_to_pto.outline import Outline
from ptir_tools.convert.ptir_to_pto.preparation import Preparation, Rule
from ptir_tools.convert.ranges import Ranges
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.ir import Element, Function, Op, Operand, Value, operand_type, result_names
from ptir_tools.core.types import TensorType, TupleType
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites.express import EXACT, FUNCTIONS, SPECIAL
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.rewrite.driver import GreedyConfig, apply_patterns_and_fold_greedily
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import Effect, Pattern
from ptir_tools.rewrite.rewriter import Rewriter

# What replaces an op, per element where it makes a tuple; None where tiles have the op as it is.
Expand = Callable[..., Tensor | Sequence[Tensor] | None]


def prepared(
    program: Program, target: Target, options: Options, diagnostics: Diagnostics, others: Set[str] = frozenset()
) -> Outline:
    """The live ops of the entry. Constants that are not splats become parameters, whose values go to the option CONSTANTS, else a
    warning lists them. `others` are names that they must not have."""
    trees = {"custom_call": EXACT["custom_call"]}
    composites = {**trees, **FUNCTIONS, **SPECIAL, **APPROXIMATIONS, **(LOSSY_FORMULAS if options[LOSSY] else {})}
    program, ranges, refused = expanded(decomposed(program, composites), target, EXPANSIONS, LAST)
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
# As EXPANSIONS, when these are done: what it makes is in its final form.
LAST: dict[str, Expand] = {"shift_right_logical": integers.short_shift}
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


class Expansion(Pattern):
    """The rule of one op. What it refuses is kept in `refused`, for the final check to report."""

    depth = 1
    effect = Effect.RANGE

    def __init__(self, short: str, rule: Expand, target: Target, ranges: Ranges, refused: dict[Op, Violation]) -> None:
        self.name = f"expand-{short}"
        self.roots = (f"ptir.{short}",)
        self.rule = rule
        self.target = target
        self.ranges = ranges
        self.refused = refused

    def match_and_rewrite(self, root: Op, rw: Rewriter) -> bool:
        if not _held_by_tiles(root):
            return False
        try:
            site = Place(root, rw, self.target, self.ranges)
            made = self.rule(site, *site.operands)
        except Violation as violation:
            self.refused[root] = violation
            return False
        if made is None:
            return False
        results = [x.operand for x in ([made] if isinstance(made, Tensor) else made)]
        if not isinstance(root.result.type, TupleType):
            self.ranges.carry(root.result, results[0])
            rw.replace(root, results[0])
            return True
        if not rw.replace_elements(root.result, results):
            return False
        rw.erase(root)
        return True


def _held_by_tiles(op: Op) -> bool:
    """Whether tiles can hold all operands and results of an op."""
    types = [*map(operand_type, op.operands), *(t for v in op.results for t in parts_of(v.type))]
    return not any(unfit(t) or (isinstance(t, TensorType) and 0 in t.shape) for t in types)


def expanded(program: Program, target: Target, *steps: Mapping[str, Expand]) -> tuple[Program, Ranges, dict[Op, Violation]]:
    """A copy of `program` in ops that tiles have, as far as there are rules; the ranges of its integers, and the refused ops. The
    rules of a step are applied when those of the one before are done."""
    program = clone(program)
    ranges, refused = Ranges(program.main), dict[Op, Violation]()
    ranges.find()
    sets = [
        PatternSet([Expansion(short, rule, target, ranges, refused) for short, rule in rules.items()]).freeze() for rules in steps
    ]
    config = GreedyConfig(enable_constant_fold=False, effect=Effect.RANGE)
    for block in (program.main, *program.regions):
        rw = Rewriter(block, program.dialect)
        if isinstance(block, Function):
            _part_tuples(block, rw)
        for patterns in sets:
            apply_patterns_and_fold_greedily(rw, patterns, config)
        rw.finish(naming=False)
    return program, ranges, refused


def _part_tuples(function: Function, rw: Rewriter) -> None:
    """Return the elements of tuples instead of tuples, so that an expansion can give each of them."""
    results: list[Operand] = []
    names: list[str] = []
    for x, name in zip(function.results, result_names(function), strict=True):
        if isinstance(x, Value) and isinstance(x.type, TupleType) and x.op is not None and x.op.defn.short in EXPANSIONS:
            results += [Element(x, i) for i in range(len(x.type.elements))]
            names += [f"{name}.{i}" for i in range(len(x.type.elements))]
        else:
            results.append(x)
            names.append(name)
    if len(results) > len(function.results):
        rw.set_results(function, results)
        function.attrs = {**function.attrs, "output_names": names}

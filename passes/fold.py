"""Constant folding: an op on constants becomes a constant, by its own declared body.

Never folded: random ops, loops and branches, what fails at run time, what reads a payload that is missing, and what would make
the program bigger than `Limits.fold_bytes` allows.
"""

from __future__ import annotations

from functools import cache

from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.greedy import apply_patterns_and_fold_greedily
from ptir_tools.core.ir import Literal, Op, Operand, Program, Value
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.opdef import ELEMENTWISE, MOVEMENT, RANDOM, OpDef
from ptir_tools.core.patterns import PatternSet
from ptir_tools.core.rewriter import Rewriter
from ptir_tools.core.rules import literal_of
from ptir_tools.core.types import TensorType
from ptir_tools.passes import PassContext

_BARRIER = ELEMENTWISE | MOVEMENT  # an op that is both returns its operand; it is there to be seen (stop_gradient)


def run(program: Program, context: PassContext) -> None:
    """Compute what depends on constants alone."""
    nothing = PatternSet().freeze()
    for rw in context.rewriters(program):
        stats = apply_patterns_and_fold_greedily(rw, nothing, context.greedy(enable_dce=False), folder(context.limits))
        context.took(stats.folds)
        for op in reversed(list(rw.body())):
            if op.defn.is_constant and rw.unused(op):
                rw.erase(op)
        context.count("folds", stats.folds)


class folder:
    """What the greedy driver calls to fold: an operand that equals the op's result, a literal, or None."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def __call__(self, op: Op, rw: Rewriter) -> Operand | None:
        d = op.defn
        if d.fold is not None and (by := d.fold(op)) is not None:
            return by
        for x in op.operands:
            if not isinstance(x, Literal) and not (isinstance(x, Value) and x.op is not None and x.op.defn.is_constant):
                return None
        return self.constant(op, rw) if op.operands and len(op.results) == 1 and foldable(d) else None

    def constant(self, op: Op, rw: Rewriter) -> Literal | None:
        """The literal that `op` computes from constant operands."""
        t = op.results[0].type
        literals = [x for operand in op.operands if (x := literal_of(operand)) is not None and x.data is not None]
        if len(literals) < len(op.operands) or not (isinstance(t, TensorType) and t.is_static):
            return None
        if MOVEMENT in op.defn.traits and len(literals) == 1:
            if t.count > literals[0].type.count:
                return None  # a broadcast of a constant is the shortest way to say it
            if literals[0].splat and t.count > 1:
                return Literal(t, literals[0].data, splat=True)
        uniform = ELEMENTWISE in op.defn.traits and t.count > 1 and all(x.splat for x in literals)
        if not uniform and t.dtype.packed_bytes(t.count) > self.allowed(op, literals, rw):
            return None
        return _computed(op, literals, t, uniform)

    def allowed(self, op: Op, literals: list[Literal], rw: Rewriter) -> int:
        """How many bytes the result may have: those of the constants that it replaces, but at least the limit."""
        replaced = 0
        for x, literal in zip(op.operands, literals, strict=True):
            if isinstance(x, Literal) or (isinstance(x, Value) and rw.uses(x) == 1):
                replaced += len(literal.data or b"")
        return max(self.limits.fold_bytes, replaced)


@cache
def foldable(d: OpDef) -> bool:
    """Whether an op on constants may be computed: no effects, no regions, no random stream, and not there to be seen."""
    barrier = d.traits & _BARRIER == _BARRIER
    return d.is_pure and d.implemented and not (d.regions or d.is_constant or barrier or RANDOM in d.traits)


def _computed(op: Op, literals: list[Literal], t: TensorType, uniform: bool) -> Literal | None:
    """The value of `op`; `uniform`: all elements are the same, so one is computed."""
    try:
        operands = [arrays.from_literal(x) for x in literals]
        if uniform:
            operands = [x[(0,) * x.ndim] if x.ndim else x for x in operands]
            operands = [x.reshape(()) for x in operands]
        (result,) = evaluate(op, operands, Context())
    except (Violation, LimitExceeded):
        return None
    return Literal(t, arrays.pack(result, t.dtype), splat=True) if uniform else arrays.to_literal(result, t)

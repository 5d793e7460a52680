"""Expansion of ops that the tiles of a target lack: a pattern of the greedy driver per op, until all that is left is legal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import pack

from ptir_tools.convert.ptir_to_pto.kernel import unfit
from ptir_tools.convert.ptir_to_pto.operands import dtype_of, filled, parts_of, tensor_of
from ptir_tools.convert.ranges import Ranges
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Attribute, Element, Function, Literal, Op, Operand, Value, operand_type, result_names
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import TensorType, TupleType, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.rewrite.constants import element_of
from ptir_tools.rewrite.driver import GreedyConfig, apply_patterns_and_fold_greedily
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import Effect, Pattern
from ptir_tools.rewrite.rewriter import Rewriter

# What replaces an op, per element where it makes a tuple; None where tiles have the op as it is.
Expand = Callable[..., Operand | Sequence[Operand] | None]


@dataclass(slots=True, frozen=True)
class Place:
    """The place before an op that is expanded."""

    root: Op
    rw: Rewriter
    target: Target
    ranges: Ranges

    def op(self, short: str, *operands: Operand | float, **attrs: Attribute) -> Value:
        """A new op. A number among the operands has the type of the last other one."""
        like = next((x for x in reversed(operands) if not isinstance(x, (int, float))), None)
        given = [self.number(x, like) if isinstance(x, (int, float)) else x for x in operands]
        return self.rw.build(self.root, short, *given, **attrs)

    def number(self, n: float, like: Operand | None) -> Literal:
        """A number in the type of `like`."""
        assert like is not None
        return filled(n, tensor_of(like))

    def concat(self, parts: Sequence[Operand], axis: int) -> Value:
        """The parts one after the other along an axis."""
        return self.rw.build(self.root, "concat", parts, axis=axis)

    def cast(self, x: Operand, dtype: DType) -> Operand:
        """`x` converted to other elements."""
        return x if dtype_of(x) is dtype and not isinstance(x, Literal) else self.op("cast", x, dtype=dtype)

    def transposed(self, x: Operand, perm: Sequence[int]) -> Operand:
        """`x` with its axes reordered."""
        return x if list(perm) == sorted(perm) else self.op("transpose", x, perm=tuple(perm))

    def fill(self, t: TensorType, data: bytes) -> Literal:
        """A splat literal."""
        return Literal(t, data, True)

    def table(self, values: Sequence[object], dtype: DType, name: str) -> Operand:
        """Constants of f32 or si32; a literal where all are equal."""
        code = "<f" if dtype.is_float else "<i"
        literal = Literal(tensor(dtype, (len(values),)), b"".join(pack(code, v) for v in values))
        if element_of(literal) is not None:
            return literal
        result = self.rw.materialize_constant(self.root, literal)
        result.name = name
        return result


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
            result = self.rule(Place(root, rw, self.target, self.ranges), root, *root.operands)
        except Violation as violation:
            self.refused[root] = violation
            return False
        if result is None:
            return False
        if not isinstance(result, (Value, Element, Literal)) and not isinstance(root.result.type, TupleType):
            (result,) = result
        if isinstance(result, (Value, Element, Literal)):
            self.ranges.carry(root.result, result)
            rw.replace(root, result)
            return True
        if not rw.replace_elements(root.result, result):
            return False
        rw.erase(root)
        return True


def _held_by_tiles(op: Op) -> bool:
    """Whether tiles can hold all operands and results of an op."""
    types = [*map(operand_type, op.operands), *(t for v in op.results for t in parts_of(v.type))]
    return not any(unfit(t) or (isinstance(t, TensorType) and 0 in t.shape) for t in types)


def expanded(program: Program, rules: Mapping[str, Expand], target: Target) -> tuple[Program, Ranges, dict[Op, Violation]]:
    """A copy of `program` in ops that tiles have, as far as there are rules; the ranges of its integers, and the refused ops."""
    program = clone(program)
    ranges, refused = Ranges(program.main), dict[Op, Violation]()
    ranges.find()
    patterns = PatternSet([Expansion(short, rule, target, ranges, refused) for short, rule in rules.items()]).freeze()
    config = GreedyConfig(enable_constant_fold=False, effect=Effect.RANGE)
    for block in (program.main, *program.regions):
        rw = Rewriter(block, program.dialect)
        if len(block.results) == 1 and isinstance(x := block.results[0], Value) and isinstance(x.type, TupleType):
            (name,), n = result_names(block), len(x.type.elements)
            rw.set_results(block, [Element(x, i) for i in range(n)])
            if isinstance(block, Function):
                block.attrs = {**block.attrs, "output_names": [f"{name}.{i}" for i in range(n)]}
        apply_patterns_and_fold_greedily(rw, patterns, config)
        rw.finish(naming=False)
    return program, ranges, refused

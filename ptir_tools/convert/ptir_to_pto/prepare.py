"""A PTIR function as kernels take it: what tiles lack made of what they have, one axis to a reduction, products in order."""

from __future__ import annotations

from collections.abc import Callable, Container
from math import prod
from typing import Any

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.options import CONSTANTS
from ptir_tools.convert.ptir_to_pto.approximations import APPROXIMATIONS
from ptir_tools.convert.ptir_to_pto.kernel import COUNT, REDUCTIONS, unfit
from ptir_tools.core.builder import Builder
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.dtypes import F32, DType
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Value, operand_type
from ptir_tools.core.source import Loc
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.constants import element_of


def prepared(program: Program, target: Target, options: Options, diagnostics: Diagnostics) -> Function:
    """The entry, with what its results need. Constants that are not one number go to the option CONSTANTS, or are reported."""
    if any(op.defn.short == "layer_norm" for op in program.main.body):
        program = clone(program)
        run_pipeline(program, "decompose", PassContext())
    return _Preparation(program, target, options, diagnostics).run()


class _Preparation:
    def __init__(self, program: Program, target: Target, options: Options, diagnostics: Diagnostics) -> None:
        self.main = program.main
        self.target = target
        self.options = options
        self.diagnostics = diagnostics
        self.new = Function(self.main.name, loc=self.main.loc)
        self.new.attrs = dict(self.main.attrs)
        self.b = Builder(program.dialect, self.new)
        self.values: dict[Value, Value] = {}

    def run(self) -> Function:
        """The function, built op by op."""
        for p in self.main.params:
            self.values[p] = self.b.param(p.type, p.name)
        needed = _needed(self.main)
        for op in self.main.body:
            if op in needed:
                self.b.loc = op.loc
                self.op(op)
        self.b.loc = self.main.loc
        for x in self.main.results:
            self.new.results.append(self.result(x))
        return self.new

    def op(self, op: Op) -> None:
        """One op of the source."""
        operands = [self.operand(x) for x in op.operands]
        expand: dict[str, Callable[..., Value]] = dict.fromkeys(REDUCTIONS, self.reduction) | dict.fromkeys(
            APPROXIMATIONS, self.approximation
        )
        expand["dot_general"] = self.product
        if (rule := expand.get(op.defn.short)) is not None and _fits(op):
            made = rule(op, *operands)
        elif op.defn.is_constant and element_of(op.attr("value")) is None:
            made = self.constant(op.attr("value"), op.result.name, op.loc)
        else:
            made = self.copy(op, operands)
        self.values[op.result] = made

    def operand(self, x: Operand) -> Operand:
        if isinstance(x, Value):
            return self.values[x]
        if isinstance(x, Literal) and element_of(x) is None:
            return self.constant(x, "const", self.b.loc)
        return Element(self.values[x.value], x.index) if isinstance(x, Element) else x

    def copy(self, op: Op, operands: list[Operand]) -> Value:
        """The op itself."""
        new = Op(op.defn, tuple(operands), op.attrs, (), op.regions, op.loc)
        new.results = tuple(Value(v.type, self.b.name(v.name), new) for v in op.results)
        self.new.body.append(new)
        return new.results[0]

    def result(self, x: Operand) -> Operand:
        """A value that an op makes and that is returned once."""
        if not isinstance(x, Value):
            return x
        v = self.values[x]
        if not isinstance(v.type, TensorType):  # refused where it is made
            return v
        if v.op is None or v.op.defn.is_constant or v.op.defn.short == COUNT or v in self.new.results:
            return self.b.op("stop_gradient", v, name=v.name)
        return v

    def constant(self, x: Literal, name: str, loc: Loc) -> Value:
        """A parameter whose value goes to the caller's file; reported where there is none."""
        made = self.b.param(x.type, name)
        names = self.new.attrs.get("input_names") or [p.name for p in self.main.params]
        self.new.attrs["input_names"] = [*names, made.name]
        if x.data is None:
            self.diagnostics.error(NOT_TRANSLATABLE, "the payload of the constant is not in the file", loc)
        elif (constants := self.options[CONSTANTS]) is None:
            help = "`--constants FILE.npz` makes it a parameter and writes its value there"
            self.diagnostics.error(NOT_TRANSLATABLE, "PTO has no constant tiles", loc, help=help)
        else:
            constants[made.name] = x
        return made

    # Ops made of others

    def approximation(self, op: Op, x: Operand) -> Value:
        """A function of floats, in f32."""
        made = APPROXIMATIONS[op.defn.short](self.b, self.cast(x, F32))
        if _dtype(op.result) is not F32:
            return self.cast(made, _dtype(op.result), op.result.name)
        made.name = self.b.name(op.result.name)
        return made

    def cast(self, x: Operand, dtype: DType, name: str = "") -> Value:
        """`x` in other elements."""
        if _dtype(x) is dtype and isinstance(x, Value):
            return x
        return self.b.op("cast", x, dtype=dtype, name=name)

    def reduction(self, op: Op, x: Operand) -> Value:
        """One axis after the other, from the last; in the accumulator's elements where the result is not rounded alone."""
        t = _tensor(x)
        axes = sorted({a % t.rank for a in op.attr("axes")}, reverse=True)
        sums, to = op.defn.short == "reduce_sum", _dtype(op.result)
        accum = (op.attr("accum_dtype") or (F32 if t.dtype.is_float and t.dtype.bits < 64 else t.dtype)) if sums else t.dtype
        if accum is not t.dtype and (len(axes) > 1 or to is not t.dtype or accum is not F32):
            x = self.cast(x, accum)
        for a in axes:
            x = self.part_by_part(op.defn.short, x, a)
            x = self.b.op(op.defn.short, x, axes=(a,), keepdims=op.attr("keepdims"), name=op.result.name)
        return self.cast(x, to, op.result.name)

    def part_by_part(self, short: str, x: Operand, axis: int) -> Operand:
        """`x`, whose extent no block has all of, with that of its parts reduced."""
        shape = _tensor(x).static_shape
        longest = self.target.capacity["Vec"] // ALIGNMENT
        n = shape[axis]
        parts = next((k for k in range(min(n, longest), 0, -1) if n % k == 0 and n // k <= longest), n)
        if n <= longest or parts == n:
            return x
        split = self.b.op("reshape", x, new_shape=(*shape[:axis], n // parts, parts, *shape[axis + 1 :]))
        return self.b.op(short, split, axes=(axis + 1,), keepdims=False)

    def product(self, op: Op, a: Operand, b: Operand) -> Value:
        """Both operands with the inner extents where the matrix unit wants them: [batch, M, K] by [batch, K, N]."""
        batch_a, batch_b, inner_a, inner_b = (
            [x % _tensor(v).rank for x in op.attr(name)]
            for name, v in (("batch_lhs", a), ("batch_rhs", b), ("contract_lhs", a), ("contract_rhs", b))
        )
        rows = [d for d in range(_tensor(a).rank) if d not in (*batch_a, *inner_a)]
        columns = [d for d in range(_tensor(b).rank) if d not in (*batch_b, *inner_b)]
        left, right = self.transposed(a, [*batch_a, *rows, *inner_a]), self.transposed(b, [*batch_b, *inner_b, *columns])
        lead, n, rank = tuple(range(len(batch_a))), len(inner_a), _tensor(a).rank
        extents = [prod(_tensor(v).static_shape[d] for d in axes) for v, axes in ((a, rows), (b, columns), (a, inner_a))]
        if not rows or min(extents[1:]) == 1:
            right = self.transposed(b, [*batch_b, *columns, *inner_b])
            return self.sum_of_products(op, left, right, (len(lead), len(rows), len(columns)))
        left, right = self.without(left, range(rank - n, rank)), self.without(right, range(len(lead), _tensor(right).rank))
        rank, n = _tensor(left).rank, sum(_tensor(a).shape[d] != 1 for d in inner_a)
        attrs: dict[str, Any] = {"accum_dtype": op.attr("accum_dtype"), "out_dtype": op.attr("out_dtype")}
        attrs |= {"contract_lhs": tuple(range(rank - n, rank)), "contract_rhs": tuple(range(len(lead), len(lead) + n))}
        made = self.b.op("dot_general", left, right, batch_lhs=lead, batch_rhs=lead, **attrs, name=op.result.name)
        whole = _tensor(op.result).static_shape
        return made if _tensor(made).shape == whole else self.b.op("reshape", made, new_shape=whole, name=op.result.name)

    def without(self, x: Operand, axes: Container[int]) -> Operand:
        """`x` without those of `axes` that have an extent of 1: what a matrix unit loads ends in what it multiplies."""
        shape = _tensor(x).static_shape
        kept = tuple(n for d, n in enumerate(shape) if n != 1 or d not in axes)
        return x if kept == shape else self.b.op("reshape", x, new_shape=kept)

    def sum_of_products(self, op: Op, a: Operand, b: Operand, counts: tuple[int, int, int]) -> Value:
        """[batch, M, K] times [batch, N, K], element by element, summed over K: what has one row or column is no matrix."""
        batch, rows, columns = counts
        shape, other = _tensor(a).static_shape, _tensor(b).static_shape
        lead, m, n, k = shape[:batch], shape[batch : batch + rows], other[batch : batch + columns], shape[batch + rows :]
        accum = op.attr("accum_dtype") or (F32 if _dtype(a).is_float and _dtype(a).bits < 64 else _dtype(a))
        factors = []
        for x, own in ((a, (*lead, *m, *(1 for _ in n), *k)), (b, (*lead, *(1 for _ in m), *n, *k))):
            upright = self.b.op("reshape", self.cast(x, accum), new_shape=own)
            factors.append(self.b.op("broadcast_to", upright, result_shape=(*lead, *m, *n, *k)))
        total: Value = self.b.op("mul", *factors)
        for axis in range(total.type.rank - 1, len((*lead, *m, *n)) - 1, -1):  # type: ignore[attr-defined]
            total = self.b.op("reduce_sum", self.part_by_part("reduce_sum", total, axis), axes=(axis,), keepdims=False)
        total = self.cast(total, _dtype(op.result))
        total.name = self.b.name(op.result.name)
        return total

    def transposed(self, x: Operand, perm: list[int]) -> Operand:
        return x if perm == sorted(perm) else self.b.op("transpose", x, perm=tuple(perm))


def _needed(main: Function) -> set[Op]:
    """The ops that results come from."""
    found: set[Op] = set()
    todo = [x.value if isinstance(x, Element) else x for x in main.results]
    while todo:
        x = todo.pop()
        if isinstance(x, Value) and x.op is not None and x.op not in found:
            found.add(x.op)
            todo.extend(x.op.values())
    return found


def _fits(op: Op) -> bool:
    """Whether tiles hold all that an op reads and makes; what is not so is refused as it is, by its own name."""
    named = not any(isinstance(x, Element) for x in op.operands)
    return named and not any(unfit(operand_type(x)) for x in (*op.operands, *op.results))


def _tensor(x: Operand) -> TensorType:
    t = x.type  # type: ignore[union-attr]
    assert isinstance(t, TensorType)
    return t


def _dtype(x: Operand) -> DType:
    return _tensor(x).dtype

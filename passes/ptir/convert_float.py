"""Converts a program from one float dtype to another, such as f32 to f16 or bf16.

Constants are rounded; finite ones stay finite. Values that cannot have the new dtype stay, between casts: counters, random
numbers, parts of complex numbers. The signature stays, too, unless `signature` is true: inputs and results are cast.
"""

from __future__ import annotations

from enum import StrEnum

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, F16, F32, F64, DType
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Region, Value, create, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType, TupleType, Type, tensor, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops.scalars import FLOAT, Scalar
from ptir_tools.passes import PassContext


class To(StrEnum):
    """The new dtype."""

    BF16 = "bf16"
    F16 = "f16"
    F32 = "f32"
    F64 = "f64"


class From(StrEnum):
    """The dtype that changes."""

    F32 = "f32"
    F64 = "f64"
    BF16 = "bf16"
    F16 = "f16"


DTYPES: dict[str, DType] = {d.name: d for d in (BF16, F16, F32, F64)}
OPTIONS = {"to": To.BF16, "from": From.F32, "signature": False}
MEASURED = True  # `ptir opt` prints how far the outputs have moved


def run(program: Program, context: PassContext) -> None:
    """Compute floats of one dtype in another, such as f32 in bf16; rounds every value."""
    source, target = DTYPES[context.options["from"]], DTYPES[context.options["to"]]
    if source is target:
        return
    change = _Converter(source, target, context)
    for function in [] if context.options["signature"] else program.functions:
        types = [*((f"parameter %{p.name}", p.type) for p in function.params)]
        types += [(f"result {k}", t) for k, t in enumerate(function.result_types)]
        for what, t in types:
            if isinstance(t, TupleType) and change.type(t) is not t:
                message = f"{what} of @{function.name} is a tuple: its dtype cannot stay"
                context.diagnostics.error("NotTranslatable", message, function.loc, help="change it: signature=true")
    if context.diagnostics.errors:
        return
    context.kept.clear()  # the program is edited without a rewriter
    for function in program.functions:
        for hint in function.annotations:
            context.diagnostics.dropped(hint, "the dtype of its values changes")
        function.annotations.clear()
    blocks = list(program.blocks())
    kept = {} if context.options["signature"] else {f: (_types(f.params), list(f.result_types)) for f in program.functions}
    for block in blocks:
        block.result_types = [change.type(t) for t in block.result_types]
        for v in block.values():
            if (t := change.type(v.type)) is not v.type:
                v.type = t
                change.changed.add(v)
    for block in blocks:
        change.block(block)
    for function, (params, results) in kept.items():
        change.signature(function, params, results)


def _types(values: list[Value]) -> list[Type]:
    return [v.type for v in values]


class _Converter:
    """Converts from one dtype to another."""

    def __init__(self, source: DType, target: DType, context: PassContext) -> None:
        self.source, self.target, self.context = source, target, context
        self.literals: dict[Literal, Literal] = {}
        self.changed: set[Value] = set()
        self.taken: set[str] = set()  # names in the current block

    def type(self, t: Type) -> Type:
        """The converted type."""
        if isinstance(t, TupleType):
            return tuple_of(map(self.type, t.elements))
        return t.with_dtype(self.target) if isinstance(t, TensorType) and t.dtype is self.source else t

    def literal(self, x: Literal) -> Literal:
        """The converted constant: rounded, and finite if it was."""
        if x.type.dtype is not self.source:
            return x
        if (cached := self.literals.get(x)) is None:
            t = x.type.with_dtype(self.target)
            if x.data is None:
                cached = Literal(t, None, x.splat)
            else:
                one = Literal(tensor(self.source), x.data) if x.splat else x
                wide = self._in_range(arrays.widen(arrays.from_literal(one)))
                narrow = arrays.to_literal(arrays.narrow(wide, self.target), t if not x.splat else tensor(self.target))
                cached = Literal(t, narrow.data, True) if x.splat else narrow
            self.literals[x] = cached
        return cached

    def _in_range(self, wide: Array) -> Array:
        """Numbers, the finite ones at most the largest of the new dtype."""
        most = float(arrays.float_info(arrays.numpy_dtype(self.target)).max)
        return np.where(np.isfinite(wide), np.clip(wide, -most, most), wide)

    def scalar(self, x: Scalar, op: Op) -> Scalar:
        """The converted number of an attribute, such as a pad; only that of an op which changes is converted."""
        changes = x.kind == FLOAT and any(v in self.changed for v in op.results)
        return Scalar(FLOAT, float(self._in_range(np.asarray(x.value, np.float64)))) if changes else x

    def operand(self, x: Operand) -> Operand:
        """The converted operand; only constants change."""
        return self.literal(x) if isinstance(x, Literal) else x

    def attrs(self, op: Op) -> tuple[object, ...]:
        """The converted attributes; the dtype of an accumulator stays."""
        names = [a.name for a in op.defn.attrs]
        return tuple(self._attr(op, name, x) for name, x in zip(names, op.attrs, strict=True))

    def _attr(self, op: Op, name: str, x: object) -> object:
        if isinstance(x, Scalar):
            return self.scalar(x, op)
        if isinstance(x, Literal):
            return self.literal(x)
        return self.target if x is self.source and name != "accum_dtype" else x

    def block(self, block: Region) -> None:
        """Convert the ops of a block whose parameters are converted."""
        body: list[Op] = []
        self._enter(block)
        for op in block.body:
            body.extend(self.op(op))
        block.body = body
        block.results = [self.operand(x) for x in block.results]

    def op(self, op: Op) -> list[Op]:
        """Convert an op, or put it between casts if it cannot have the new dtype."""
        operands = tuple(map(self.operand, op.operands))
        own = tuple(v.type for v in op.results)
        if operands or op.defn.is_constant:
            attrs = self.attrs(op)
            try:
                result = op.defn.result_types(tuple(map(operand_type, operands)), attrs, op.regions)
            except Violation:
                result = ()
            if len(result) == len(own) and all(a.accepts(b) for a, b in zip(own, result, strict=True)):
                op.operands, op.attrs = operands, attrs
                self.context.count("converted", int(any(v in self.changed for v in op.results)))
                return [op]
        return self._between_casts(op)

    def _enter(self, block: Region) -> None:
        self.taken = {v.name for v in block.values()}

    def _named(self, stem: str, dtype: DType) -> str:
        """An unused name for `stem` in `dtype`."""
        name, n = f"{stem}_{dtype}", 0
        while name in self.taken:
            n += 1
            name = f"{stem}_{dtype}_{n}"
        self.taken.add(name)
        return name

    def _between_casts(self, op: Op) -> list[Op]:
        before: list[Op] = []
        operands: list[Operand] = []
        for x in op.operands:
            t = operand_type(x)
            value = x.value if isinstance(x, Element) else x
            if value in self.changed and isinstance(t, TensorType) and t.dtype is self.target:
                before.append(self._cast(x, t.with_dtype(self.source), op))
                operands.append(before[-1].result)
            else:
                operands.append(x)
        op.operands = tuple(operands)
        if len(op.results) != 1 or op.result not in self.changed or not isinstance(own := op.result.type, TensorType):
            return [*before, op]
        outer = op.result
        inner = Value(own.with_dtype(self.source), self._named(outer.name, self.source), op)
        op.results = (inner,)
        after = self._cast(inner, own, op)
        after.results = (outer,)
        outer.op = after
        self.context.count("between-casts")
        return [*before, op, after]

    def _cast(self, x: Operand, t: TensorType, rounded: Op | Function) -> Op:
        new = create(OPS["ptir.cast"], (x,), {"dtype": t.dtype}, types=(t,), loc=rounded.loc)
        new.result.name = self._named(x.name if isinstance(x, Value) else "element", t.dtype)
        return new

    def signature(self, function: Function, params: list[Type], results: list[Type]) -> None:
        """Restore the parameters and results of a function, with casts."""
        self._enter(function)
        inside: dict[Value, Value] = {}
        first: list[Op] = []
        for p, t in zip(function.params, params, strict=True):
            now, p.type = p.type, t
            if isinstance(t, TensorType) and isinstance(now, TensorType) and now is not t:
                first.append(self._cast(p, now, function))
                inside[p] = first[-1].result
        for op in function.body:
            op.operands = tuple(inside.get(x, x) if isinstance(x, Value) else x for x in op.operands)
        last: list[Op] = []
        for k, (x, t) in enumerate(zip(function.results, results, strict=True)):
            x = inside.get(x, x) if isinstance(x, Value) else x
            now = operand_type(x)
            if isinstance(t, TensorType) and isinstance(now, TensorType) and now is not t:
                last.append(self._cast(x, t, function))
                if isinstance(x, Value) and "output_names" not in function.attrs:
                    last[-1].result.name, x.name = x.name, self._named(x.name, self.target)
                x = last[-1].result
            function.results[k] = x
        function.result_types = list(results)
        function.body = [*first, *function.body, *last]

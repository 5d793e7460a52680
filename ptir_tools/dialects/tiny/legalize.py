"""Legalization: makes everything explicit that a graph leaves implicit, before verification.

Names of axes become numbers, `broadcast_dimensions` are completed by the *written* extents, and immediates get the dtype of
their sibling. The operands of an elementwise op may differ in the ways that the specification's examples show. In profile `seed`
they get the missing EXPAND, RESHAPE or CAST, each with a note (the binary normalizer). Profile `strict` reports them. Bindings
are applied last, so that they do not hide the written extents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import PROFILE, Options, Program, clone
from ptir_tools.core.dtypes import F32, I1, DType
from ptir_tools.core.expressions import names
from ptir_tools.core.ir import ELEMENTWISE, Function, Literal, Op, Operand, Value, create, operand_type
from ptir_tools.core.source import Loc
from ptir_tools.core.symbols import mentioned
from ptir_tools.core.types import POISON, UNTYPED, Shape, TensorType
from ptir_tools.core.violations import Violation, operand
from ptir_tools.dialects.tiny.immediates import typed
from ptir_tools.dialects.tiny.lints import lint
from ptir_tools.dialects.tiny.ops.movement import resolve_axes, result_axes
from ptir_tools.dialects.tiny.ops.rules import FLOATS, SPELLED, aligned, dim_text, mismatch, shape_text, type_text
from ptir_tools.dialects.tiny.piecewise import Pieces
from ptir_tools.dialects.tiny.symbols import bind_now


def legalize(program: Program, diagnostics: Diagnostics, options: Options) -> None:
    """Make `program` explicit, in place. Reports nodes that the profile refuses, and ExcessivePiecewise."""
    for function in program.functions:
        _Legalizer(function, diagnostics, options).run()
    bind_now(program, diagnostics)


def as_bound(program: Program) -> Program:
    """`program`, or a copy with its pending bindings applied. Nothing is reported."""
    if not program.attrs.get("bindings"):
        return program
    copy = clone(program)
    legalize(copy, Diagnostics(program.source), Options())
    return copy


class _Legalizer:
    def __init__(self, function: Function, diagnostics: Diagnostics, options: Options) -> None:
        self.function = function
        self.diagnostics = diagnostics
        self.strict = options[PROFILE] == "strict"
        self.body: list[Op] = []
        self.names = {v.name for v in function.params} | {v.name for op in function.body for v in op.results}
        self.pieces = Pieces(options.limits.pieces)
        self.given = {n for p in function.params for s in mentioned(p.type) for n in names(s.name)}

    def run(self) -> None:
        for op in self.function.body:
            try:
                self.op(op)
            except Violation as violation:
                self.reject(op, violation)
        self.function.body = self.body
        types = [operand_type(x) for x in self.function.results]
        if all(isinstance(t, TensorType) for t in types):
            self.function.result_types = types

    def reject(self, op: Op, violation: Violation) -> None:
        """Report the op and replace its result by poison, so that no error of its users is reported."""
        self.diagnostics.violation(violation, op.loc, op)
        op.result.type = POISON
        op.result.op = None
        self.function.params.append(op.result)

    def op(self, op: Op) -> None:
        if any(isinstance(x, Value) and x.type in (POISON, UNTYPED) for x in op.operands):
            self.body.append(op)
            op.result.type = POISON
            return
        if (resolver := _RESOLVERS.get(op.defn.short)) is not None:
            resolver(op)
        if op.defn.short == "EXPAND":
            self.refuse_other_symbols(op)
        if op.defn.traits & ELEMENTWISE:
            self.type_immediates(op)
            self.align(op)
        elif op.defn.short == "POOL":
            self.pool(op)
        if op.result.type is UNTYPED:
            (op.result.type,) = op.defn.result_types(tuple(map(operand_type, op.operands)), op.attrs)
        self.body.append(op)
        self.pieces.follow(op)
        lint(op, self.function, self.diagnostics)

    def refuse_other_symbols(self, op: Op) -> None:
        """Refuse an EXPAND from one symbol of an INPUT to another: different symbols are different extents."""
        x, shape = operand_type(op.operands[0]), op.attr("result_shape")
        if not isinstance(x, TensorType):
            return
        for d, axis in zip(x.shape, op.attr("broadcast_dimensions"), strict=True):
            if d != 1 and axis is not None and d != shape[axis] and self.given.issuperset(names(shape[axis].name)):
                message = f"{type_text(x)} does not expand to {shape_text(shape)}: {dim_text(d)} is not {dim_text(shape[axis])}"
                raise Violation("BroadcastMismatch", message, at="result_shape")

    def pool(self, op: Op) -> None:
        if self.strict:
            unknown = Violation("UnknownUop", "POOL is not in the vocabulary", help="write it as a VIEW")
            try:
                op.defn.result_types(tuple(map(operand_type, op.operands)), op.attrs)
            except Violation:  # only one report per node
                raise unknown from None
            self.diagnostics.violation(unknown, op.loc, op)
        elif op.result.type is UNTYPED:
            self.diagnostics.note("PoolMacro", "POOL is not in the vocabulary; it is read as a VIEW", op.loc)

    # Immediates

    def type_immediates(self, op: Op) -> None:
        """Give immediates their sibling's dtype. In WHERE the condition is bool, and `a` and `b` are siblings, bool when both
        are `true` or `false`."""
        if not any(isinstance(x, Literal) for x in op.operands):
            return
        head: list[Operand] = []
        rest = list(op.operands)
        if op.defn.short == "WHERE":
            head = [_typed(rest.pop(0), I1, 0)]
        dtypes = [x.type.dtype for x in rest if isinstance(x, Value) and isinstance(x.type, TensorType)]
        if not dtypes and any(isinstance(x, Value) for x in head):
            dtypes = [I1 for x in rest[:1] if all(isinstance(y, Literal) and y.type.dtype is I1 for y in rest)]
        if not dtypes:
            raise Violation("InvalidSource", f"no operand of {op.defn.short} gives the immediates a dtype", at="src")
        op.operands = (*head, *(_typed(x, dtypes[0], k) for k, x in enumerate(rest, len(head))))

    # Dtypes and shapes of elementwise ops

    def align(self, op: Op) -> None:
        """Equal dtypes and shapes, by inserted nodes (`seed`) or a report of each difference (`strict`)."""
        casts = self.needed_casts(op)
        shapes = [x.type.shape for x in op.operands if isinstance(x, Value) and isinstance(x.type, TensorType)]
        different = list(dict.fromkeys(shapes))
        if self.strict and (casts or len(different) > 1):
            return self.refuse(op, casts, different)
        target, steps = self.plan(op, different) if len(different) > 1 else ((), {})
        for k, x in enumerate(op.operands):
            if isinstance(x, Value):
                op.operands = (*op.operands[:k], self.insert(op, k, x, k in casts, target, steps.get(k)), *op.operands[k + 1 :])

    def needed_casts(self, op: Op) -> set[int]:
        """The operands that need an implicit CAST to fp32. Raises Violation("DtypeMismatch") for other mixes."""
        first = 1 if op.defn.short == "WHERE" else 0
        types = {k: t for k, x in enumerate(op.operands) if k >= first and isinstance(t := operand_type(x), TensorType)}
        dtypes = {k: t.dtype for k, t in types.items()}
        found = set(dtypes.values())
        if len(found) == 1:
            return set()
        if not found <= set(FLOATS) or F32 not in found:
            listed = " and ".join(SPELLED[d] for d in dtypes.values())
            message, at = f"the operands of {op.defn.short} are {listed}", operand(_other(dtypes))
            raise Violation("DtypeMismatch", message, help="CAST one of them first", at=at)
        return {k for k, d in dtypes.items() if d is not F32}

    def refuse(self, op: Op, casts: set[int], shapes: list[Shape]) -> None:
        faults = [mismatch(op.defn.short, shapes, _other(_shapes(op)))] if len(shapes) > 1 else []
        if casts:
            message = f"the operands of {op.defn.short} have different dtypes; there are no implicit casts"
            at = operand(min(casts))
            faults.insert(0, Violation("DtypeMismatch", message, help="CAST one of them first", at=at))
        for fault in faults[:-1]:
            self.diagnostics.violation(fault, op.loc, op)
        raise faults[-1]

    def plan(self, op: Op, shapes: list[Shape]) -> tuple[Shape, dict[int, tuple[int, ...] | None]]:
        """The common shape, and for each operand that needs it the reduced axes to insert, or None to align from the right."""
        target = aligned(shapes) or max(shapes, key=len)
        steps: dict[int, tuple[int, ...] | None] = {}
        for k, x in enumerate(op.operands):
            if not isinstance(x, Value) or not isinstance(x.type, TensorType) or x.type.shape == target:
                continue
            right = aligned([x.type.shape, target]) == target
            axes = _reduced_axes(x, target)
            if right and any(_elsewhere(x, x.type.shape, other) for other in shapes):
                message = f"{x.name} {shape_text(x.type.shape)} fits {shape_text(target)} aligned from the right and at the axes"
                message += " that its REDUCE removed: ambiguous"
                raise Violation("BroadcastMismatch", message, help="EXPAND it", at=operand(k))
            if not right and axes is None:
                raise mismatch(op.defn.short, shapes, _other(_shapes(op)))
            steps[k] = None if right else axes
        return target, steps

    def insert(self, op: Op, k: int, x: Value, cast: bool, target: Shape, axes: tuple[int, ...] | None) -> Value:
        """Insert nodes before `op` for operand `k`: a CAST to fp32 if `cast`, and the shape `target` if there is one."""
        shape = x.type.shape if isinstance(x.type, TensorType) else ()
        if cast:
            self.note(op, "ImplicitCast", f"{x.name} is cast to fp32")
            x = self.add("CAST", x, f"{op.result.name}_{k}c", op.loc, to=F32)
        if not target or shape == target:
            return x
        if axes is not None:
            self.note(op, "ReducedAxisAlignment", f"{x.name} gets back the axes {list(axes)} that its REDUCE removed")
            x = self.add("RESHAPE", x, f"{op.result.name}_{k}r", op.loc, result_shape=_with_ones(target, axes))
            shape = _with_ones(target, axes)
        else:
            self.note(op, "ImplicitExpand", f"{x.name} is expanded to {shape_text(target)}")
        to = result_axes(shape, target, None)
        return self.add("EXPAND", x, f"{op.result.name}_{k}e", op.loc, result_shape=target, broadcast_dimensions=to)

    def note(self, op: Op, code: str, message: str) -> None:
        self.diagnostics.note(code, f"{message} for {op.defn.short} {op.result.name}", op.loc)

    def add(self, uop: str, x: Value, wish: str, loc: Loc, **attrs: object) -> Value:
        name, n = wish, 0
        while name in self.names:
            n += 1
            name = f"{wish}_{n}"
        self.names.add(name)
        new = create(OPS[f"tiny.{uop}"], (x,), attrs, names=(name,), loc=loc)
        self.body.append(new)
        self.pieces.follow(new)
        return new.result


def _shapes(op: Op) -> dict[int, object]:
    """The shape of every operand that is a value."""
    return {k: x.type.shape for k, x in enumerate(op.operands) if isinstance(x, Value) and isinstance(x.type, TensorType)}


def _other(by_operand: Mapping[int, object]) -> int:
    """The first operand that differs from operand 0."""
    first = next(iter(by_operand.values()))
    return next((k for k, found in by_operand.items() if found != first), 0)


def _typed(x: Operand, dtype: DType, number: int) -> Operand:
    return typed(x, dtype, number) if isinstance(x, Literal) else x


def _with_ones(target: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(1 if i in axes else d for i, d in enumerate(target))


def _elsewhere(x: Value, shape: Shape, other: Shape) -> bool:
    """Whether `x`, of this shape, reduces a value of the shape `other`, so that its axes do not align from the right."""
    axes = _reduced_axes(x, other)
    return axes is not None and _with_ones(other, axes) != (1,) * (len(other) - len(shape)) + shape


def _reduced_axes(x: Value, target: Shape) -> tuple[int, ...] | None:
    """The axes that a REDUCE of a value of shape `target` removed to give `x`, found through unary ops, CAST and ops with
    immediates. None when `x` has no such REDUCE."""
    v = x
    while (op := v.op) is not None:
        values = list(op.values())
        if op.defn.short == "REDUCE":
            source = values[0].type
            axes: tuple[int, ...] = op.attr("axes")
            return tuple(sorted(axes)) if isinstance(source, TensorType) and source.shape == target else None
        if not op.defn.traits & ELEMENTWISE or len(values) != 1:
            return None
        v = values[0]
    return None


def _resolve_axes(op: Op) -> None:
    t = operand_type(op.operands[0])
    if isinstance(t, TensorType):
        _set(op, "axes", resolve_axes(op.defn.short, t, op.attr("axes")))


def _resolve_destination(op: Op) -> None:
    t, shape = operand_type(op.operands[0]), op.attr("result_shape")
    if isinstance(t, TensorType):
        op.defn.result_types((t,), op.attrs)  # an invalid REDUCE is reported as written
        _set(op, "broadcast_dimensions", result_axes(t.shape, shape, op.attr("broadcast_dimensions")))


def _set(op: Op, name: str, value: object) -> None:
    i = op.defn.attr_index[name]
    op.attrs = (*op.attrs[:i], value, *op.attrs[i + 1 :])


_RESOLVERS: dict[str, Callable[[Op], None]] = {
    "REDUCE": _resolve_axes,
    "FLIP": _resolve_axes,
    "EXPAND": _resolve_destination,
}

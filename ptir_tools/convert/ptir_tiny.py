"""PTIR to Tiny: what movement, elementwise ops and reductions can say, the rest refused at every op at once.

Tiny has no constants: a splat becomes an immediate of the ops that use it, any other constant is refused. Contractions are
written naively, in fp32 for narrow floats, since Tiny's `MUL` rounds and PTIR's products are exact. What nobody uses is not
translated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ptir_tools.convert.naming import between
from ptir_tools.core.arrays import pack
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.diagnostics import Diagnostics, Violation, require
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32, DType
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Program, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import Dim, Shape, TensorType, tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.ptir.scalars import Scalar
from ptir_tools.dialects.tiny.args import AXIS
from ptir_tools.dialects.tiny.immediates import as_array
from ptir_tools.dialects.tiny.ops.rules import SPELLED

NOT_TRANSLATABLE = "NotTranslatable"

# Why an op cannot be translated, where more can be said than that Tiny has nothing like it.
HELP = {
    "layer_norm": "`ptir opt -p decompose` makes it smaller ops",
    "constant": "Tiny has no constants: make it a parameter",
    "iota": "Tiny has no constants: make it a parameter",
    "tanh": "by way of EXP2 it would lose its digits near 0",
}


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The Tiny graph that computes what the entry of `program`, which verifies, does; None after reporting what cannot be."""
    before = diagnostics.errors
    new, builder = single_function(load_dialect("tiny"))
    function = program.main
    names = function.attrs.get("input_names") or [p.name for p in function.params]
    taken = {v.name for v in function.params} | {v.name for op in function.body for v in op.results}
    values: dict[Value, Operand] = {}
    for p, name in zip(function.params, names, strict=True):
        try:
            values[p] = builder.param(sayable(p.type), p.name)
        except Violation as violation:
            diagnostics.error(violation.code, f"parameter {name}: {violation.message}", function.loc)
            values[p] = Value(p.type, p.name)
    new.main.attrs["input_names"] = list(names)
    needed = _needed(function)
    for op in function.body:
        if op in needed:
            values[op.results[0]] = Emit(builder, op, values, taken, diagnostics).result()
    results = [values.get(x) if isinstance(x, Value) else None for x in function.results]
    if not all(isinstance(x, Value) for x in results):
        diagnostics.error(NOT_TRANSLATABLE, "a result is a constant or an element of a tuple", function.loc)
    if diagnostics.errors > before:
        return None
    builder.results(*(x for x in results if isinstance(x, Value)))
    new.attrs["outputs"] = True
    return new


def _needed(function: Function) -> set[Op]:
    """The ops that the results need, those that a RELU absorbs left out."""
    found: set[Op] = set()
    stack = [x.value if isinstance(x, Element) else x for x in function.results if not isinstance(x, Literal)]
    while stack:
        op = stack.pop().op
        if op is not None and op not in found:
            found.add(op)
            x = relu_operand(op)
            stack += [x] if x is not None else list(op.values())
    return found


def splat(x: Operand) -> Literal | None:
    """The rank-0 literal of which every element of `x` is a copy, or None."""
    while isinstance(x, Value) and x.op is not None and x.op.defn.short in ("broadcast_to", "reshape", "constant"):
        x = x.op.attr("value") if x.op.defn.short == "constant" else x.op.operands[0]
    if not isinstance(x, Literal) or x.data is None or not (x.splat or (x.type.is_static and x.type.count == 1)):
        return None
    return Literal(tensor(x.type.dtype), x.data)


def relu_operand(op: Op) -> Value | None:
    """`x` where the op is `select(compare_gt(x, 0), x, 0)`, which is RELU."""
    if op.defn.short != "select":
        return None
    pred, x, zero = op.operands
    test = pred.op if isinstance(pred, Value) else None
    if test is None or test.defn.short != "compare_gt" or not isinstance(x, Value) or test.operands[0] is not x:
        return None
    zeros = [splat(z) for z in (zero, test.operands[1])]
    return x if all(z is not None and z.data is not None and not any(z.data) for z in zeros) else None


def sayable(t: Any) -> TensorType:
    """`t`, a tensor whose dtype and symbols Tiny has. Raises Violation("NotTranslatable")."""
    require(isinstance(t, TensorType), NOT_TRANSLATABLE, f"Tiny has no {t}")
    require(t.dtype in SPELLED, NOT_TRANSLATABLE, f"Tiny has no {t.dtype}")
    for d in t.shape:
        require(isinstance(d, int) or AXIS.fullmatch(d.name), NOT_TRANSLATABLE, f"Tiny cannot spell the symbol {d}")
    return t  # type: ignore[no-any-return]


class Emit:
    """Builds what one op becomes. `last` makes its final node, which takes the value's name."""

    def __init__(self, builder: Builder, op: Op, values: dict[Value, Operand], taken: set[str], diagnostics: Diagnostics) -> None:
        self.builder = builder
        self.op = op
        self.values = values
        self.taken = taken
        self.diagnostics = diagnostics
        self.type: TensorType = op.results[0].type  # type: ignore[assignment]

    def result(self) -> Operand:
        """What the op becomes; after an error, a value of its type that nothing computes."""
        self.builder.loc = self.op.loc
        try:
            if (constant := splat(self.op.results[0])) is not None:
                return constant
            sayable(self.op.results[0].type)
            rule = RULES.get(self.op.defn.short)
            if rule is None:
                help = HELP.get(self.op.defn.short)
                raise Violation(NOT_TRANSLATABLE, f"Tiny has nothing like {self.op.defn.short}", help=help)
            return rule(self)
        except Violation as violation:
            self.diagnostics.error(NOT_TRANSLATABLE, violation.message, self.op.loc, help=violation.help)
            return Value(self.type, self.op.results[0].name)

    def operand(self, i: int) -> Operand:
        """Operand `i` of the op: a node, or an immediate."""
        x = self.op.operands[i]
        if isinstance(x, Element):
            raise Violation(NOT_TRANSLATABLE, "Tiny has no tuples")
        found = self.values[x] if isinstance(x, Value) and x in self.values else splat(x)
        if found is None:
            raise Violation(NOT_TRANSLATABLE, "Tiny has no constants but immediates", help="make it a parameter")
        return found

    def node(self, i: int) -> Value:
        """Operand `i`, which must be a node."""
        x = self.operand(i)
        if isinstance(x, Value):
            return x
        raise Violation(NOT_TRANSLATABLE, f"{self.op.defn.short} of a constant", help="`ptir opt -p fold` computes it")

    def __call__(self, uop: str, *operands: Operand, **attrs: Any) -> Value:
        """A node before the last."""
        name = between(self.op.results[0].name, self.taken)
        return self.builder.op(uop, *operands, name=name, **attrs)

    def last(self, uop: str, *operands: Operand, **attrs: Any) -> Value:
        """The node that gives the result."""
        return self.builder.op(uop, *operands, name=self.op.results[0].name, **attrs)

    def cast(self, x: Value, dtype: DType) -> Value:
        """`x` in `dtype`, itself when it is."""
        return x if isinstance(x.type, TensorType) and x.type.dtype is dtype else self("CAST", x, to=dtype)


def same(uop: str) -> Callable[[Emit], Value]:
    """One node on the same operands, of which one at least is no constant."""

    def rule(emit: Emit) -> Value:
        operands = [emit.operand(i) for i in range(len(emit.op.operands))]
        constant = not any(isinstance(x, Value) for x in operands[-2:])
        require(not constant, NOT_TRANSLATABLE, f"{emit.op.defn.short} of constants alone", help="`ptir opt -p fold` computes it")
        return emit.last(uop, *operands)

    return rule


def immediate(value: float, dtype: DType) -> Literal:
    """A number as an operand."""
    return Literal(tensor(dtype), pack(as_array(value, dtype), dtype))


def _cast(emit: Emit) -> Value:
    return emit.last("CAST", emit.node(0), to=emit.type.dtype)


def _abs(emit: Emit) -> Value:
    x = emit.node(0)
    return emit.last("MAX", x, emit("NEG", x))


def _exp(emit: Emit) -> Value:
    """EXP2(x * log2 e), in fp32 for narrower floats."""
    emit.diagnostics.note("ExpAsExp2", "exp becomes EXP2(x * log2 e)", emit.op.loc)
    x = emit.cast(emit.node(0), F32)
    scaled = emit("MUL", x, immediate(math.log2(math.e), F32))
    if emit.type.dtype is F32:
        return emit.last("EXP2", scaled)
    return emit.last("CAST", emit("EXP2", scaled), to=emit.type.dtype)


def _reciprocal(emit: Emit) -> Value:
    return emit.last("FDIV", immediate(1, emit.type.dtype), emit.node(0))


def _select(emit: Emit) -> Value:
    x = relu_operand(emit.op)
    found = emit.values[x] if x is not None else None
    return emit.last("RELU", found) if isinstance(found, Value) else same("WHERE")(emit)


def _clamp(emit: Emit) -> Value:
    return emit.last("MIN", emit("MAX", emit.node(0), emit.operand(1)), emit.operand(2))


def _stop_gradient(emit: Emit) -> Value:
    """A RESHAPE to the same shape, so that the value keeps its name."""
    return emit.last("RESHAPE", emit.node(0), result_shape=emit.type.shape)


def _reduce(op: str) -> Callable[[Emit], Value]:
    """REDUCE in the accumulator's dtype, RESHAPE to keep the axes, CAST to the result's dtype."""

    def rule(emit: Emit) -> Value:
        x = emit.node(0)
        source: TensorType = x.type  # type: ignore[assignment]
        accum = emit.op.attr("accum_dtype") or (F32 if source.dtype.is_float else source.dtype)
        require(accum in SPELLED, NOT_TRANSLATABLE, f"Tiny does not accumulate in {accum}")
        axes = tuple(a % source.rank for a in emit.op.attr("axes"))
        return _chain(emit, x, ("REDUCE", {"op": op, "axes": axes, "dtype": accum}))

    return rule


def _chain(emit: Emit, x: Value, *steps: tuple[str, dict[str, Any]]) -> Value:
    """`x` after `steps`, then in the dtype and the shape of the result; the last node takes the result's name."""
    todo = list(steps)
    uop, attrs = todo[-1]
    dtype = attrs.get("dtype", x.type.dtype if isinstance(x.type, TensorType) else None)
    if dtype is not emit.type.dtype:
        todo.append(("CAST", {"to": emit.type.dtype}))
    if uop != "REDUCE" or ("keepdims" in emit.op.defn.attr_index and emit.op.attr("keepdims")):
        todo.append(("RESHAPE", {"result_shape": emit.type.shape}))
    for uop, attrs in todo[:-1]:
        x = emit(uop, x, **attrs)
    uop, attrs = todo[-1]
    return emit.last(uop, x, **attrs)


def _dot_general(emit: Emit) -> Value:
    """Both sides as [batch, free of lhs, free of rhs, contracted], multiplied and summed."""
    names = ("batch_lhs", "batch_rhs", "contract_lhs", "contract_rhs")
    batch_l, batch_r, contract_l, contract_r = (emit.op.attr(n) for n in names)
    sides = [_side(emit, 0, batch_l, contract_l), _side(emit, 1, batch_r, contract_r)]
    accum = emit.op.attr("accum_dtype") or (F32 if emit.type.dtype.is_float else emit.type.dtype)
    require(accum in SPELLED and accum is not None, NOT_TRANSLATABLE, f"Tiny does not accumulate in {accum}")
    work = F32 if accum.is_float else accum
    (lhs, b, m, k), (rhs, _, n, _) = sides
    shape = (*emit.type.shape, *k)
    last = range(len(shape) - len(k), len(shape))
    axes_l = (*range(len(b) + len(m)), *last)
    axes_r = (*range(len(b)), *range(len(b) + len(m), len(b) + len(m) + len(n)), *last)
    x = emit("EXPAND", emit.cast(lhs, work), result_shape=shape, broadcast_dimensions=axes_l)
    y = emit("EXPAND", emit.cast(rhs, work), result_shape=shape, broadcast_dimensions=axes_r)
    return _chain(emit, emit("MUL", x, y), ("REDUCE", {"op": "SUM", "axes": tuple(last), "dtype": work}))


def _side(emit: Emit, i: int, batch: tuple[int, ...], contract: tuple[int, ...]) -> tuple[Value, Shape, Shape, Shape]:
    """Operand `i` with its axes in the order batch, free, contracted, and the extents of each."""
    x = emit.node(i)
    t: TensorType = x.type  # type: ignore[assignment]
    first, end = tuple(a % t.rank for a in batch), tuple(a % t.rank for a in contract)
    free = tuple(a for a in range(t.rank) if a not in (*first, *end))
    perm = (*first, *free, *end)
    moved = x if perm == tuple(range(t.rank)) else emit("PERMUTE", x, perm=perm)
    batches, frees, ends = (tuple(t.shape[a] for a in axes) for axes in (first, free, end))
    return moved, batches, frees, ends


def _reshape(emit: Emit) -> Value:
    return emit.last("RESHAPE", emit.node(0), result_shape=emit.type.shape)


def _transpose(emit: Emit) -> Value:
    rank = emit.type.rank
    return emit.last("PERMUTE", emit.node(0), perm=tuple(p % rank for p in emit.op.attr("perm")))


def _broadcast_to(emit: Emit) -> Value:
    x = emit.node(0)
    rank: int = operand_type(x).rank  # type: ignore[attr-defined]
    axes = tuple(range(emit.type.rank - rank, emit.type.rank))
    return emit.last("EXPAND", x, result_shape=emit.type.shape, broadcast_dimensions=axes)


def _slice(emit: Emit) -> Value:
    starts, sizes = emit.op.attr("starts"), emit.op.attr("sizes")
    ends = tuple(a + n for a, n in zip(starts, sizes, strict=True))
    return emit.last("SHRINK", emit.node(0), lo=starts, hi=ends)


def _pad(emit: Emit) -> Value:
    low, high, interior = (emit.op.attr(n) for n in ("low", "high", "interior"))
    value: Scalar = emit.op.attr("pad_value")
    require(not any(interior), NOT_TRANSLATABLE, "Tiny does not pad between elements")
    pairs = tuple(zip(low, high, strict=True))
    return emit.last("PAD", emit.node(0), pad=pairs, value=value.value)


def _tile(emit: Emit) -> Value:
    """An axis of repeats before each axis."""
    x, repeats = emit.node(0), emit.op.attr("repeats")
    source: TensorType = x.type  # type: ignore[assignment]
    wide: tuple[Dim, ...] = tuple(d for pair in zip(repeats, source.shape, strict=True) for d in pair)
    axes = tuple(range(1, 2 * source.rank, 2))
    return _chain(emit, x, ("EXPAND", {"result_shape": wide, "broadcast_dimensions": axes}))


def _float_div(emit: Emit) -> Value:
    require(emit.type.dtype.is_float, NOT_TRANSLATABLE, "Tiny divides floats only")
    return same("FDIV")(emit)


RULES: dict[str, Callable[[Emit], Value]] = {
    "neg": same("NEG"), "rsqrt": same("RSQRT"), "reciprocal": _reciprocal, "abs": _abs, "exp": _exp,
    "add": same("ADD"), "sub": same("SUB"), "mul": same("MUL"), "div": _float_div,
    "maximum": same("MAX"), "minimum": same("MIN"), "select": _select, "cast": _cast, "clamp": _clamp,
    "stop_gradient": _stop_gradient, "reduce_sum": _reduce("SUM"), "reduce_max": _reduce("MAX"), "reduce_min": _reduce("MIN"),
    "dot_general": _dot_general, "reshape": _reshape, "transpose": _transpose, "broadcast_to": _broadcast_to,
    "slice": _slice, "pad": _pad, "tile": _tile,
}  # fmt: skip

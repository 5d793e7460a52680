"""MIND to PTIR: every operation of Core v1, broadcasting made explicit, accumulation in the result's dtype.

Two things that MIND leaves to run time are known here, because shapes are static, and are refused with MIND's own codes:
an Index out of bounds (E6001) and a Mean of integers over no elements (E6006).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod
from typing import Any

from ptir_tools.convert.legality import rule_of
from ptir_tools.convert.naming import Names, in_ptir
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.diagnostics import Diagnostics, Violation, require
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Literal, Op, Operand, Program, Value
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.mind.ops.indexing import clamped, out_of_bounds
from ptir_tools.dialects.mind.ops.linear import pads
from ptir_tools.dialects.mind.ops.reduce import normalized


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The PTIR program that computes what `program` does; None after reporting what cannot run."""
    function = program.main
    new, builder = single_function(load_dialect("ptir"))
    new.main.loc = function.loc
    new.main.attrs["input_locs"] = function.attrs.get("input_locs", {})
    names = function.attrs.get("input_names") or [p.name for p in function.params]
    values: dict[Value, Value] = {}
    for p, name in zip(function.params, names, strict=True):
        values[p] = builder.param(p.type, in_ptir(name))
    if names != [p.name for p in new.main.params]:
        new.main.attrs["input_names"] = names
    fresh = Names([*(p.name for p in new.main.params), *(in_ptir(op.result.name) for op in function.body)])
    before = diagnostics.errors
    for op in function.body:
        builder.loc = op.loc
        emit = Emit(builder, op, [values[x] for x in op.values()], fresh)
        try:
            values[op.result] = rule_of(op, RULES, "PTIR")(emit, **op.defn.named(op.attrs))
        except Violation as violation:
            diagnostics.violation(violation, op.loc)
            values[op.result] = builder.op("constant", value=Literal(emit.type, None))
    builder.results(*(values[x] for x in function.results if isinstance(x, Value)))
    return new if diagnostics.errors == before else None


class Emit:
    """Builds what one operation becomes. `last` makes its final instruction, which takes its name."""

    def __init__(self, builder: Builder, op: Op, operands: list[Value], fresh: Names) -> None:
        self.builder = builder
        self.op = op
        self.operands = operands
        self.fresh = fresh
        self.name = in_ptir(op.result.name)
        self.type: TensorType = op.result.type  # type: ignore[assignment]

    @property
    def dtype(self) -> DType:
        """The element type of the result."""
        return self.type.dtype

    def __call__(self, name: str, *operands: Operand, **attrs: Any) -> Value:
        """An instruction before the last."""
        return self.builder.op(name, *operands, name=self.fresh.between(self.name), **attrs)

    def last(self, name: str, *operands: Operand, **attrs: Any) -> Value:
        """The instruction that gives the result."""
        return self.builder.op(name, *operands, name=self.name, **attrs)

    def shape(self, x: Operand) -> tuple[int, ...]:
        t: Any = x.type  # type: ignore[union-attr]
        return tuple(t.static_shape)

    def stretched(self, x: Value, shape: tuple[int, ...]) -> Value:
        """`x` broadcast to `shape`, itself when it has it."""
        return x if self.shape(x) == shape else self("broadcast_to", x, result_shape=shape)

    def filled(self, value: int, shape: tuple[int, ...]) -> Value:
        """A tensor of the result's dtype whose elements are all `value`."""
        data = struct.pack({"f32": "<f", "f64": "<d", "si32": "<i", "si64": "<q"}[self.dtype.name], value)
        return self("broadcast_to", Literal(tensor(self.dtype), data), result_shape=shape)


def constant(emit: Emit, value: Literal) -> Value:
    """The same literal."""
    return emit.last("constant", value=value)


def binary(name: str) -> Callable[..., Value]:
    """Both sides broadcast to the result's shape."""

    def rule(emit: Emit) -> Value:
        shape = emit.type.static_shape
        return emit.last(name, *(emit.stretched(x, shape) for x in emit.operands))

    return rule


def unary(name: str) -> Callable[..., Value]:
    """One instruction on the same operand."""
    return lambda emit: emit.last(name, emit.operands[0])


def reshaped(emit: Emit, **_: Any) -> Value:
    """Reshape, ExpandDims and Squeeze to the shape that they give."""
    return emit.last("reshape", emit.operands[0], new_shape=emit.type.static_shape)


def transpose(emit: Emit, permutation: tuple[int, ...]) -> Value:
    """The same permutation."""
    return emit.last("transpose", emit.operands[0], perm=permutation)


def relu(emit: Emit) -> Value:
    """Compare and select, which give 0 for a NaN as MIND does; `maximum` would keep it."""
    x, zero = emit.operands[0], emit.filled(0, emit.type.static_shape)
    return emit.last("select", emit("compare_gt", x, zero), x, zero)


def reduction(emit: Emit, axes: tuple[int, ...], keepdims: bool) -> tuple[Value, dict[str, Any]]:
    """The operand, and the attributes of its sum."""
    x = emit.operands[0]
    along = normalized(axes, len(emit.shape(x)))
    dtypes = {"accum_dtype": emit.dtype, "out_dtype": emit.dtype}
    return x, {"axes": along, "keepdims": keepdims and bool(axes), **dtypes}


def sum_(emit: Emit, axes: tuple[int, ...], keepdims: bool) -> Value:
    """A sum in the dtype of its operand; the empty list of axes means all of them."""
    x, attrs = reduction(emit, axes, keepdims)
    return emit.last("reduce_sum", x, **attrs)


def mean(emit: Emit, axes: tuple[int, ...], keepdims: bool) -> Value:
    """The sum divided by the count; PTIR's integer division truncates, as MIND's mean does."""
    x, attrs = reduction(emit, axes, keepdims)
    n = prod(emit.shape(x)[a] for a in attrs["axes"])
    require(n or emit.dtype.is_float, "E6006", f"Mean of integers over no elements: the shape is {list(emit.shape(x))}")
    total = emit("reduce_sum", x, **attrs)
    return emit.last("div", total, emit.filled(n, emit.type.static_shape))


def index(emit: Emit, indices: tuple[int, ...]) -> Value:
    """A window of one element, as a scalar. E6001 when it is out of bounds."""
    x = emit.operands[0]
    if (violation := out_of_bounds(emit.shape(x), indices)) is not None:
        raise violation
    element = emit("slice", x, starts=indices, sizes=(1,) * len(indices))
    return emit.last("reshape", element, new_shape=())


def slice_(emit: Emit, starts: tuple[int, ...], ends: tuple[int, ...], steps: tuple[int, ...]) -> Value:
    """With a stride: the window, padded so that each step is a row of its own, of which the first column stays."""
    x, counts = emit.operands[0], emit.type.static_shape
    low = tuple(lo for lo, _ in clamped(emit.shape(x), starts, ends))
    strides = tuple(s if n > 1 else 1 for s, n in zip(steps, counts, strict=True))
    sizes = tuple((n - 1) * s + 1 if n else 0 for n, s in zip(counts, strides, strict=True))
    if all(s == 1 for s in strides):
        return emit.last("slice", x, starts=low, sizes=sizes)
    window = emit("slice", x, starts=low, sizes=sizes)
    high = tuple(s - 1 if n else 0 for n, s in zip(counts, strides, strict=True))
    padded = emit("pad", window, low=(0,) * len(low), high=high)
    rows = emit("reshape", padded, new_shape=tuple(d for pair in zip(counts, strides, strict=True) for d in pair))
    firsts = emit("slice", rows, starts=(0,) * (2 * len(low)), sizes=tuple(d for n in counts for d in (n, 1)))
    return emit.last("reshape", firsts, new_shape=counts)


def gather(emit: Emit) -> Value:
    """Take; constant indices are checked here, as PTIR would on reading the translation."""
    x, indices = emit.operands
    literal = indices.op.attr("value") if indices.op is not None and indices.op.name == "ptir.constant" else None
    if literal is not None:
        extent, found = emit.shape(x)[0], from_literal(literal)
        bad = found[(found < 0) | (found >= extent)]
        require(not bad.size, "E6001", f"Gather index {bad[:1].tolist()} is out of bounds for shape {list(emit.shape(x))}")
    return emit.last("take", x, indices)


def dot(emit: Emit) -> Value:
    """The last axis of the left side with the first of the right."""
    lhs, rhs = emit.operands
    return contraction(emit, lhs, rhs, (len(emit.shape(lhs)) - 1,), (0,))


def matmul(emit: Emit) -> Value:
    """A right side of rank 2 needs no batch axes; else both sides are broadcast to the batch of the result."""
    lhs, rhs = emit.operands
    a, b = emit.shape(lhs), emit.shape(rhs)
    if len(b) == 2:
        return contraction(emit, lhs, rhs, (len(a) - 1,), (0,))
    batch = emit.type.static_shape[:-2]
    k = len(batch)
    lhs, rhs = emit.stretched(lhs, batch + a[-2:]), emit.stretched(rhs, batch + b[-2:])
    return contraction(emit, lhs, rhs, (k + 1,), (k,), tuple(range(k)))


def contraction(
    emit: Emit, lhs: Value, rhs: Value, left: tuple[int, ...], right: tuple[int, ...], batch: tuple[int, ...] = ()
) -> Value:
    """A dot_general accumulated in the result's dtype."""
    axes = {"batch_lhs": batch, "batch_rhs": batch, "contract_lhs": left, "contract_rhs": right}
    return emit.last("dot_general", lhs, rhs, **axes, accum_dtype=emit.dtype, out_dtype=emit.dtype)


def conv2d(emit: Emit, strides: tuple[int, ...], padding: Any) -> Value:
    """The patches times the filter as a matrix; patches run over (kh, kw, c), as the filter's leading axes do."""
    x, f = emit.operands
    window = emit.shape(f)
    padding = pads(emit.shape(x), window, strides, padding)
    patches = emit("extract_patches", x, window=window[:2], strides=strides, padding=padding)
    matrix = emit("reshape", f, new_shape=(prod(window[:3]), window[3]))
    return contraction(emit, patches, matrix, (3,), (0,))


RULES: dict[str, Callable[..., Value]] = {
    "ConstI64": constant,
    "ConstF32": constant,
    "ConstF64": constant,
    "ConstTensor": constant,
    "Add": binary("add"),
    "Sub": binary("sub"),
    "Mul": binary("mul"),
    "Neg": unary("neg"),
    "Exp": unary("exp"),
    "Log": unary("log"),
    "Relu": relu,
    "Sum": sum_,
    "Mean": mean,
    "Reshape": reshaped,
    "ExpandDims": reshaped,
    "Squeeze": reshaped,
    "Transpose": transpose,
    "Index": index,
    "Slice": slice_,
    "Gather": gather,
    "Dot": dot,
    "MatMul": matmul,
    "Conv2d": conv2d,
}

"""Tiny to PTIR: node by node and exact, but for EXP2 (docs/tiny.md, "Translation").

Symbols stay symbols, and an expression becomes the symbol of its text; "dims" and what follows from them are put in first.
Where PTIR needs a number (the bounds of a slice, a pad, an index map) the node is refused with UnboundSymbol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ptir_tools.convert.legality import rule_of
from ptir_tools.convert.naming import Names, in_ptir
from ptir_tools.convert.tiny_to_ptir.views import numbers, rounded, view
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.diagnostics import Diagnostics, Violation
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32, F64, DType
from ptir_tools.core.ir import Literal, Op, Operand, Program, Value, clone
from ptir_tools.core.types import Dim, Shape, TensorType
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.tiny.immediates import as_array, immediate
from ptir_tools.dialects.tiny.ops.view import pool_map
from ptir_tools.dialects.tiny.symbols import put_dims, symbols


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The PTIR program that computes what `program`, which verifies, does; None after reporting what it cannot."""
    before = diagnostics.errors
    program = _with_dims(program, diagnostics)
    new, builder = single_function(load_dialect("ptir"))
    function = program.main
    labels = function.attrs.get("input_names") or [p.name for p in function.params]
    fresh = Names([*map(in_ptir, labels), *(in_ptir(op.result.name) for op in function.body)])
    values: dict[Value, Value] = {}
    pool, given = _const_pool(program), options.constants or {}
    kept: list[str] = []
    for p, label in zip(function.params, labels, strict=True):
        if p.name in pool and label in given:
            values[p] = builder.op("constant", value=given[label], name=in_ptir(p.name))
        else:
            values[p] = builder.param(p.type, in_ptir(label))
            kept.append(label)
    new.main.attrs["input_locs"] = function.attrs.get("input_locs", {})
    if kept != [p.name for p in new.main.params]:
        new.main.attrs["input_names"] = kept
    for op in function.body:
        emit = Emit(builder, op, values, fresh, diagnostics)
        values[op.result] = emit.result()
    if diagnostics.errors > before:
        return None
    builder.results(*(values[x] for x in function.results if isinstance(x, Value)))
    return new


def _const_pool(program: Program) -> set[str]:
    """The ids of the INPUTs that stand for constants."""
    return {name for name, storage in program.main.attrs.get("storage", {}).items() if storage == "const_pool"}


def _with_dims(program: Program, diagnostics: Diagnostics) -> Program:
    """A copy with the numbers in that "dims" gives and the graph determines; the program itself when it has no symbols."""
    if not symbols(program):
        return program
    program = clone(program)
    try:
        put_dims(program, {})
    except Violation as violation:
        diagnostics.violation(violation, None)
    return program


class Emit:
    """Builds what one node becomes. `last` makes its final instruction, which takes the node's id."""

    def __init__(self, builder: Builder, op: Op, values: dict[Value, Value], fresh: Names, diagnostics: Diagnostics) -> None:
        self.builder = builder
        self.op = op
        self.values = values
        self.operands: list[Operand] = [values[x] if isinstance(x, Value) else x for x in op.operands]
        self.fresh = fresh
        self.diagnostics = diagnostics
        self.type: TensorType = op.result.type  # type: ignore[assignment]

    @property
    def shape(self) -> Shape:
        return self.type.shape

    def result(self) -> Value:
        """What the node becomes; after an error, a value of its type that nothing computes."""
        self.builder.loc = self.op.loc
        try:
            return rule_of(self.op, RULES, "PTIR")(self, **self.op.defn.named(self.op.attrs))
        except Violation as violation:
            self.diagnostics.violation(violation, self.op.loc)
            return Value(self.type, self.op.result.name)

    def __call__(self, short: str, *operands: Operand | Sequence[Operand], **attrs: Any) -> Value:
        """An instruction before the last, under a name that no node has."""
        name = self.fresh.between(in_ptir(self.op.result.name))
        return self.builder.op(short, *operands, name=name, **attrs)

    def last(self, short: str, *operands: Operand, **attrs: Any) -> Value:
        """The instruction that gives the node's value."""
        return self.builder.op(short, *operands, name=in_ptir(self.op.result.name), types=[self.type], **attrs)

    def note(self, message: str) -> None:
        """Say under which condition the node was translated."""
        self.diagnostics.note("ConditionalTranslation", message, self.op.loc)

    def full(self, x: Operand, shape: Shape | None = None) -> Value:
        """An operand in the node's shape: an immediate is broadcast."""
        if isinstance(x, Value):
            return x
        return self("broadcast_to", x, result_shape=self.shape if shape is None else shape)

    def filled(self, value: float, dtype: DType) -> Value:
        """A tensor of the node's shape whose elements are all `value`."""
        return self.full(immediate(value, dtype))


def same(short: str) -> Callable[..., Value]:
    """One instruction on the same operands."""
    return lambda emit: emit.last(short, *map(emit.full, emit.operands))


def relu(emit: Emit) -> Value:
    """Compare and select, which give 0 for a NaN; `maximum` would keep it."""
    x, zero = emit.full(emit.operands[0]), emit.filled(0, emit.type.dtype)
    return emit.last("select", emit("compare_gt", x, zero), x, zero)


def cast(emit: Emit, to: DType) -> Value:
    """PTIR has the same cast table."""
    return emit.last("cast", emit.operands[0], dtype=to)


def exp2(emit: Emit) -> Value:
    """exp(x * ln 2), computed in a wider float so that no range is lost; EXP2(x * log2 e), as softmax has it, is exp(x)."""
    x = emit.operands[0]
    if (exponent := _natural(emit.op)) is not None:
        emit.note(f"EXP2 of {exponent.name} times log2(e) becomes exp: the rounding of the product is saved")
        return emit.last("exp", emit.values[exponent])
    wide = F64 if emit.type.dtype is F32 else F32
    emit.note(f"EXP2 becomes exp(x * ln 2) in {wide}")
    scaled = emit("mul", emit("cast", x, dtype=wide), emit.filled(math.log(2), wide))
    return emit.last("cast", emit("exp", scaled), dtype=emit.type.dtype)


def _natural(op: Op) -> Value | None:
    """`v` where the operand of EXP2 is fp32 `v * log2(e)`, the constant rounded to fp32."""
    x = op.operands[0]
    if not isinstance(x, Value) or x.op is None or x.op.defn.short != "MUL":
        return None
    values = [v for v in x.op.operands if isinstance(v, Value)]
    constants = [v for v in x.op.operands if isinstance(v, Literal)]
    log2e = immediate(math.log2(math.e), F32)
    return values[0] if len(values) == len(constants) == 1 and constants[0].same(log2e) else None


def where(emit: Emit) -> Value:
    """Immediates are broadcast; the condition has the shape of the rest."""
    return emit.last("select", *map(emit.full, emit.operands))


def reduce(emit: Emit, op: str, axes: tuple[int, ...], dtype: DType, init: float | None) -> Value:
    """The source is cast first, unless a wider accumulator does it; `init` is one more op, and a float sum is kept wider
    until then, so that it is rounded once."""
    x = emit.operands[0]
    source: TensorType = x.type  # type: ignore[assignment,union-attr]
    if source.dtype is not dtype and not (axes and dtype is F32 and source.dtype.is_float):
        x = emit("cast", x, dtype=dtype)
    kind, combine = REDUCTIONS[op]
    if init is None:
        return emit.last(kind, x, axes=axes, accum_dtype=dtype, out_dtype=dtype)
    wide = dtype if op != "SUM" or not dtype.is_float else F64 if dtype is F32 else F32
    total = emit(kind, x, axes=axes, accum_dtype=wide, out_dtype=wide)
    if wide is dtype:
        return emit.last(combine, total, emit.filled(init, dtype))
    start = float(as_array(init, dtype).astype(float))
    return emit.last("cast", emit(combine, total, emit.filled(start, wide)), dtype=dtype)


REDUCTIONS = {"SUM": ("reduce_sum", "add"), "MAX": ("reduce_max", "maximum"), "MIN": ("reduce_min", "minimum")}


def reshape(emit: Emit, result_shape: Shape) -> Value:
    """The same reshape; symbols stay."""
    return emit.last("reshape", emit.operands[0], new_shape=result_shape)


def permute(emit: Emit, perm: tuple[int, ...]) -> Value:
    """A transpose."""
    return emit.last("transpose", emit.operands[0], perm=perm)


def expand(emit: Emit, result_shape: Shape, broadcast_dimensions: tuple[int | None, ...]) -> Value:
    """Axes of extent 1 where the result has new ones, then broadcast."""
    x = emit.operands[0]
    source: TensorType = x.type  # type: ignore[assignment,union-attr]
    inner: list[Dim] = [1] * len(result_shape)
    for d, axis in zip(source.shape, broadcast_dimensions, strict=True):
        if axis is not None:
            inner[axis] = d
    if tuple(inner) != (1,) * (len(inner) - source.rank) + source.shape:
        x = emit("reshape", x, new_shape=tuple(inner))
    return emit.last("broadcast_to", x, result_shape=result_shape)


def pad(emit: Emit, pad: tuple[tuple[Dim, Dim], ...], value: float) -> Value:
    """A pad without interior."""
    counts = numbers("PAD", [d for pair in pad for d in pair])
    low, high = counts[::2], counts[1::2]
    return emit.last("pad", emit.operands[0], low=low, high=high, pad_value=rounded(value, emit.type.dtype))


def shrink(emit: Emit, lo: Shape, hi: Shape, step: Shape | None) -> Value:
    """With a step: the window, padded so that each step is a row of its own, of which the first column stays."""
    x = emit.operands[0]
    source: TensorType = x.type  # type: ignore[assignment,union-attr]
    if not source.is_static:
        return _shrink_axes(emit, source.shape, lo, hi, step or (1,) * len(lo))
    starts, ends, given = (numbers("SHRINK", d) for d in (lo, hi, step or (1,) * len(lo)))
    counts = tuple(len(range(a, b, s)) for a, b, s in zip(starts, ends, given, strict=True))
    steps = tuple(s if n > 1 else 1 for n, s in zip(counts, given, strict=True))
    sizes = tuple((n - 1) * s + 1 if n else 0 for n, s in zip(counts, steps, strict=True))
    if all(s == 1 for s in steps):
        return emit.last("slice", x, starts=starts, sizes=sizes)
    zeros = (0,) * len(counts)
    window = emit("slice", x, starts=starts, sizes=sizes)
    high = tuple(n * s - size for n, s, size in zip(counts, steps, sizes, strict=True))
    padded = emit("pad", window, low=zeros, high=high)
    rows = emit("reshape", padded, new_shape=tuple(d for row in zip(counts, steps, strict=True) for d in row))
    firsts = emit("slice", rows, starts=zeros * 2, sizes=tuple(d for n in counts for d in (n, 1)))
    return emit.last("reshape", firsts, new_shape=counts)


def _shrink_axes(emit: Emit, shape: Shape, lo: Shape, hi: Shape, step: Shape) -> Value:
    """A VIEW that counts upward along the axes that are cut; the others, whose extents may be symbols, are passed on whole."""
    entries = [f"@{i}" for i in range(len(shape))]
    for i, (d, a, b, s) in enumerate(zip(shape, lo, hi, step, strict=True)):
        if (a, b, s) != (0, d, 1):
            start, _, stride = numbers("SHRINK", (a, b, s))
            entries[i] = f"{start}+{stride}*@{i}"
    return view(emit, tuple(entries), (), 0)


def flip(emit: Emit, axes: tuple[int, ...]) -> Value:
    """A VIEW that counts down along `axes`."""
    shape = dict(zip(axes, numbers("FLIP", [emit.shape[a] for a in axes]), strict=True))
    entries = tuple(f"{shape[i] - 1}-@{i}" if i in shape else f"@{i}" for i in range(len(emit.shape)))
    return view(emit, entries, (), 0)


def general_view(emit: Emit, result_shape: Shape, map: Shape, guard: Shape, fill: float) -> Value:
    """See `tiny_views`."""
    return view(emit, tuple(_text(d) for d in map), tuple(_text(d) for d in guard), fill)


def _text(d: Dim) -> str:
    return str(d) if isinstance(d, int) else d.name


def pool(emit: Emit, kernel: Shape, stride: Shape | None, dilation: Shape | None) -> Value:
    """The VIEW that it stands for."""
    ones = (1,) * len(kernel)
    entries = pool_map(len(emit.shape) - len(kernel), stride or ones, dilation or ones)
    return view(emit, tuple(map(_text, entries)), (), 0)


RULES: dict[str, Callable[..., Value]] = {
    "NEG": same("neg"), "RSQRT": same("rsqrt"), "ADD": same("add"), "SUB": same("sub"), "MUL": same("mul"),
    "FDIV": same("div"), "MAX": same("maximum"), "MIN": same("minimum"), "RELU": relu, "EXP2": exp2, "CAST": cast,
    "WHERE": where, "REDUCE": reduce, "RESHAPE": reshape, "PERMUTE": permute, "EXPAND": expand, "PAD": pad,
    "SHRINK": shrink, "FLIP": flip, "VIEW": general_view, "POOL": pool,
}  # fmt: skip

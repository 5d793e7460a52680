"""Random PTIR programs, written op by op for tests that keep to some ops; `ptir gen` makes its own from the declarations."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import cast

from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.choices import Choices
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, F16, F32, F64, FP8_E4M3, FP8_E5M2, I1, SI4, SI8, SI32, SI64, UI8, DType
from ptir_tools.core.ir import Element, Literal, Region, Value
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.ptir import DIALECT
from tests.growing import Grow, Growing

DTYPES = (F32, F32, F32, F64, F16, BF16, SI32, SI64, SI8, UI8, SI4, FP8_E4M3, FP8_E5M2)
SHAPES = ((), (1,), (3,), (2, 3), (4, 5), (1, 7), (3, 1, 4), (2, 0), (17, 33))
_ELEMENTS = 20_000  # no value has more


def generate(
    choices: Choices, *, dtypes: Sequence[DType] = DTYPES, size: int = 12, growers: Sequence[Grow] | None = None
) -> Program:
    """A program of one function and about `size` steps at most, whose results are some of its values."""
    g = Growing(choices, *single_function(DIALECT), dtypes)
    for i in range(choices.number(1, 3)):
        g.values.append(g.b.param(tensor(choices.one(dtypes), choices.one(SHAPES)), f"p{i}"))
    for _ in range(choices.number(1, size)):
        x = choices.one([v for v in g.values if isinstance(v.type, TensorType)])
        if _type(x).dtype is I1:
            g.values.append(x := g.b.op("cast", x, dtype=F32))
        made = choices.one(growers or GROWERS)(g, x)
        if made is not None and prod(_type(made).static_shape) <= _ELEMENTS:
            g.values.append(made)
    chosen = [choices.one(g.values) for _ in range(choices.number(1, 4))]
    g.b.results(*(v if isinstance(v.type, TensorType) else Element(v, choices.number(0, 1)) for v in chosen))
    return g.program


def _type(v: Value) -> TensorType:
    return cast(TensorType, v.type)


def _unary(g: Growing, x: Value) -> Value | None:
    floats = ("exp", "tanh", "erf", "neg", "abs", "rsqrt", "reciprocal", "log", "stop_gradient")
    names = (
        floats if _type(x).dtype.is_float else ("neg", "abs", "stop_gradient") if _type(x).dtype.is_signed else ("stop_gradient",)
    )
    return g.b.op(g.choices.one(names), x)


def _binary(g: Growing, x: Value) -> Value | None:
    name = g.choices.one(("add", "sub", "mul", "maximum", "minimum") + (("div",) if _type(x).dtype.is_float else ()))
    y = g.choices.one([v for v in g.values if v.type is x.type])
    return g.b.op(name, x, y)


def _select(g: Growing, x: Value) -> Value | None:
    same = [v for v in g.values if v.type is x.type]
    y, z = g.choices.one(same), g.choices.one(same)
    flag = g.b.op(g.choices.one(("compare_lt", "compare_le", "compare_eq", "compare_ne", "compare_gt")), x, y)
    return g.b.op("select", flag, g.choices.one((x, y)), z)


def _clamp(g: Growing, x: Value) -> Value | None:
    same = [v for v in g.values if v.type is x.type]
    return g.b.op("clamp", x, g.choices.one(same), g.choices.one(same))


def _cast(g: Growing, x: Value) -> Value | None:
    return g.b.op("cast", x, dtype=g.choices.one((*DTYPES, I1)))


def _reduce(g: Growing, x: Value) -> Value | None:
    axes = tuple(a for a in range(_type(x).rank) if g.choices.flag())
    name = g.choices.one(("reduce_sum", "reduce_max", "reduce_min"))
    out = g.choices.one((None, F32)) if _type(x).dtype.is_float and _type(x).dtype.bits <= 32 else None
    return g.b.op(name, x, axes=axes, keepdims=g.choices.flag(), out_dtype=out)


def _argmax(g: Growing, x: Value) -> Value | None:
    if not prod(_type(x).static_shape) or not _type(x).rank:
        return None
    axis = g.choices.number(-_type(x).rank, _type(x).rank - 1)
    return g.b.op("argmax", x, axis=axis, keepdims=g.choices.flag(), output_dtype=g.choices.one((SI32, SI64)))


def _movement(g: Growing, x: Value) -> Value | None:
    choice = g.choices.one(("reshape", "transpose", "broadcast_to", "slice", "concat", "tile", "pad"))
    n = _type(x).rank
    if choice == "reshape":
        return g.b.op("reshape", x, new_shape=tuple(g.choices.shuffled([*_type(x).static_shape, 1])))
    if choice == "transpose":
        return g.b.op("transpose", x, perm=tuple(g.choices.shuffled(range(n))))
    if choice == "broadcast_to":
        return g.b.op("broadcast_to", x, result_shape=(2, *(3 if d == 1 else d for d in _type(x).static_shape)))
    if choice == "slice":
        starts = tuple(g.choices.number(0, d) for d in _type(x).static_shape)
        return g.b.op(
            "slice",
            x,
            starts=starts,
            sizes=tuple(g.choices.number(0, d - s) for d, s in zip(_type(x).static_shape, starts, strict=True)),
        )
    if choice == "concat":
        return g.b.op("concat", [x, x, x], axis=g.choices.number(-n, n - 1)) if n else None
    if choice == "tile":
        return g.b.op("tile", x, repeats=tuple(g.choices.number(0, 2) for _ in range(n)))
    counts = [tuple(g.choices.number(0, 2) for _ in range(n)) for _ in range(3)]
    return g.b.op("pad", x, low=counts[0], high=counts[1], interior=counts[2])


def _dot(g: Growing, x: Value) -> Value | None:
    if _type(x).rank < 2:
        return None
    y = g.b.op("transpose", x, perm=(*range(_type(x).rank - 2), _type(x).rank - 1, _type(x).rank - 2)) if g.choices.flag() else x
    n, transposed = _type(x).rank, y is not x
    batch = tuple(range(n - 2))
    axis = g.choices.one((n - 2, n - 1))
    other = (n - 1 if axis == n - 2 else n - 2) if transposed else axis
    out = g.choices.one((None, F32)) if _type(x).dtype.is_float and _type(x).dtype.bits <= 32 else None
    return g.b.op(
        "dot_general", x, y, batch_lhs=batch, batch_rhs=batch, contract_lhs=(axis,), contract_rhs=(other,), out_dtype=out
    )


def _softmax(g: Growing, x: Value) -> Value | None:
    """The canonical form over the last axis."""
    if _type(x).dtype is not F32 or not _type(x).rank:
        return None
    last = (_type(x).rank - 1,)
    high = g.b.op("broadcast_to", g.b.op("reduce_max", x, axes=last, keepdims=True), result_shape=_type(x).static_shape)
    e = g.b.op("exp", g.b.op("sub", x, high))
    total = g.b.op("broadcast_to", g.b.op("reduce_sum", e, axes=last, keepdims=True), result_shape=_type(x).static_shape)
    return g.b.op("div", e, total)


def _normalize(g: Growing, x: Value) -> Value | None:
    """A layer norm over the last axis, in parts, with a reshape in place of keepdims."""
    if _type(x).dtype is not F32 or not _type(x).rank or not prod(_type(x).static_shape):
        return None
    n, last = _type(x).static_shape[-1], (_type(x).rank - 1,)
    rows = (*_type(x).static_shape[:-1], 1)
    inverse = g.b.op("broadcast_to", _literal(1.0 / n), result_shape=rows)
    mean = g.b.op("mul", g.b.op("reduce_sum", x, axes=last, keepdims=True), inverse)
    centered = g.b.op("sub", x, g.b.op("broadcast_to", mean, result_shape=_type(x).static_shape))
    squares = g.b.op("reshape", g.b.op("reduce_sum", g.b.op("mul", centered, centered), axes=last), new_shape=rows)
    epsilon = g.b.op("broadcast_to", _literal(1e-5), result_shape=rows)
    scale = g.b.op("rsqrt", g.b.op("add", g.b.op("mul", squares, inverse), epsilon))
    g.values.append(scale)
    return g.b.op("mul", centered, g.b.op("broadcast_to", scale, result_shape=_type(x).static_shape))


def _literal(number: float) -> Literal:
    return Literal(tensor(F32), struct.pack("<f", number))


def _scan(g: Growing, x: Value) -> Value | None:
    if _type(x).rank < 1:
        return None
    row = tensor(_type(x).dtype, _type(x).static_shape[1:])
    body = Region(f"r{len(g.program.regions)}")
    inner = Builder(g.b.dialect, body)
    carry, step = inner.param(row, "c"), inner.param(row, "s")
    total = inner.op("maximum", carry, step)
    inner.results(total, inner.op("stop_gradient", carry) if g.choices.flag() else total)
    g.program.regions.append(body)
    start = g.b.op("reduce_max", x, axes=(0,))
    g.values.append(g.b.op("scan", [start, x], regions=[body], carry_count=1, scan_output_count=1))
    return None


def _named(*names: str) -> Grow:
    """One of these ops, of one operand or of two alike."""

    def grow(g: Growing, x: Value) -> Value | None:
        name = g.choices.one(names)
        floats = name in ("exp", "tanh", "rsqrt", "reciprocal", "log", "div")
        if floats and not _type(x).dtype.is_float:
            return None
        alike = (g.choices.one([v for v in g.values if v.type is x.type]),) if name in _BINARY else ()
        return g.b.op(name, x, *alike)

    return grow


_BINARY = ("add", "sub", "mul", "maximum", "minimum", "div")


def _sum(g: Growing, x: Value) -> Value:
    axes = tuple(a for a in range(_type(x).rank) if g.choices.flag())
    return g.b.op("reduce_sum", x, axes=axes, keepdims=g.choices.flag(), accum_dtype=_type(x).dtype, out_dtype=_type(x).dtype)


def _shaped(g: Growing, x: Value) -> Value:
    """Movement that every IR has."""
    shape = _type(x).static_shape
    choice = g.choices.one(("reshape", "transpose", "slice", "tile", "broadcast_to"))
    if choice == "reshape":
        return g.b.op("reshape", x, new_shape=tuple(g.choices.shuffled([*shape, 1])))
    if choice == "transpose":
        return g.b.op("transpose", x, perm=tuple(g.choices.shuffled(range(len(shape)))))
    if choice == "slice":
        starts = tuple(g.choices.number(0, max(d - 1, 0)) for d in shape)
        sizes = tuple(g.choices.number(min(1, d), d - s) for d, s in zip(shape, starts, strict=True))
        return g.b.op("slice", x, starts=starts, sizes=sizes)
    if choice == "tile":
        return g.b.op("tile", x, repeats=tuple(g.choices.number(1, 2) for _ in shape))
    return g.b.op("broadcast_to", x, result_shape=(2, *(3 if d == 1 else d for d in shape)))


def _product(g: Growing, x: Value) -> Value | None:
    """With itself, over one axis, in its own dtype."""
    t = _type(x)
    if not t.rank or t.count * t.count > _ELEMENTS:
        return None
    axis = (g.choices.number(0, t.rank - 1),)
    return g.b.op(
        "dot_general", x, x, batch_lhs=(), batch_rhs=(), contract_lhs=axis, contract_rhs=axis, accum_dtype=t.dtype,
        out_dtype=t.dtype,
    )  # fmt: skip


def _window(g: Growing, x: Value) -> Value | None:
    """A pooling window over every axis, with padding, strides and holes."""
    t = _type(x)
    n = t.rank
    if not n or not prod(t.static_shape):
        return None
    sizes = [g.choices.number(1, min(3, d)) for d in t.static_shape]
    steps, holes, gaps = ([g.choices.number(1, 2) for _ in sizes] for _ in range(3))
    gaps = [w if (s - 1) * w < d else 1 for s, w, d in zip(sizes, gaps, t.static_shape, strict=True)]
    padding = tuple((g.choices.number(0, 1), g.choices.number(0, 2)) if i < 2 else (0, 0) for i in range(n))
    return g.b.op(
        "reduce_window", x, window_dims=tuple(sizes), strides=tuple(steps), padding=padding, base_dilation=tuple(holes),
        window_dilation=tuple(gaps), reduce=g.choices.one(("sum", "max", "min")),
    )  # fmt: skip


def _patches(g: Growing, x: Value) -> Value | None:
    t = _type(x)
    if t.rank < 3 or not prod(t.static_shape):
        return None
    window = tuple(g.choices.number(1, min(2, d)) for d in t.static_shape[1:-1])
    padding = tuple((g.choices.number(0, 1), 0) for _ in window)
    return g.b.op("extract_patches", x, window=window, strides=tuple(g.choices.number(1, 2) for _ in window), padding=padding)


def _cond(g: Growing, x: Value) -> Value:
    """One region negates, the other adds its operand to itself."""
    regions = []
    for name in ("neg", "add") if _type(x).dtype.is_float or _type(x).dtype.is_signed else ("stop_gradient", "add"):
        region = Region(f"r{len(g.program.regions)}")
        inner = Builder(g.b.dialect, region)
        p = inner.param(x.type, "x")
        inner.results(inner.op(name, p, *((p,) if name == "add" else ())))
        g.program.regions.append(region)
        regions.append(region)
    flag = g.b.op("cast", g.b.op("reduce_max", x, axes=tuple(range(_type(x).rank))), dtype=I1)
    return g.b.op("cond", flag, [x], regions=regions)


def _layer_norm(g: Growing, x: Value) -> Value | None:
    t = _type(x)
    if not t.dtype.is_float or t.dtype.bits < 16 or not t.rank or not prod(t.static_shape):
        return None
    row = g.b.op("reduce_max", x, axes=tuple(range(t.rank - 1)))
    return g.b.op("layer_norm", x, row, row, epsilon=1e-3)


def _iota(g: Growing, x: Value) -> Value | None:
    t = _type(x)
    return g.b.op("iota", shape=t.shape, dtype=t.dtype, axis=g.choices.number(0, t.rank - 1)) if t.rank else None


def _take(g: Growing, x: Value) -> Value | None:
    extent = _type(x).static_shape[0] if _type(x).rank else 0
    if not extent:
        return None
    rows = list(g.choices.shuffled(range(extent)))[: g.choices.number(1, 3)]
    literal = Literal(tensor(SI32, (len(rows),)), struct.pack(f"<{len(rows)}i", *rows))
    return g.b.op("take", x, g.b.op("constant", value=literal))


# What a step may be, as often as it is likely; ROWS keep to what fusion groups of the native engine are made of.
GROWERS: tuple[Grow, ...] = (
    _unary, _unary, _unary, _binary, _binary, _binary, _select, _clamp, _cast, _reduce, _reduce, _argmax, _movement, _movement,
    _dot, _scan, _softmax, _window, _patches, _cond, _layer_norm, _iota, _take,
)  # fmt: skip
ROWS: tuple[Grow, ...] = (_unary, _unary, _binary, _binary, _select, _clamp, _reduce, _softmax, _normalize, _movement)

# What MIND and what Tiny can mostly say.
MIND: tuple[Grow, ...] = (
    _named("neg", "exp"), _named("add", "sub", "mul"), _named("add", "sub", "mul"), _sum, _shaped, _shaped, _product, _iota,
    _take,
)  # fmt: skip
TINY: tuple[Grow, ...] = (
    _named("neg", "exp", "abs", "tanh"), _named(*_BINARY), _named(*_BINARY), _clamp, _reduce, _movement, _dot, _product,
    _softmax, _scan, _cond, _window, _patches, _layer_norm, _iota,
)  # fmt: skip

"""Random MIND modules, written op by op for tests that keep to some ops; `ptir gen` makes its own from the declarations."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any, cast

from growing import Grow, Growing, some

from ptir_tools.core.builder import single_function
from ptir_tools.core.choices import Choices
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32, F64, SI32, SI64, DType
from ptir_tools.core.ir import Literal, Value
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind.text.attributes import SCALARS

DTYPES = (F32, F32, F64, SI32, SI64)
_ELEMENTS = 4096  # no value has more
_FORMATS = {F32: "<f", F64: "<d", SI32: "<i", SI64: "<q"}
_SCALARS = {dtype: opcode for opcode, dtype in SCALARS.items()}


def generate(
    choices: Choices, *, dtypes: Sequence[DType] = DTYPES, size: int = 12, growers: Sequence[Grow] | None = None
) -> Program:
    """A module of about `size` steps at most, whose outputs are some of its values."""
    g = Growing(choices, *single_function(DIALECT), dtypes)
    for i in range(choices.number(1, 3)):
        g.values.append(g.b.param(tensor(choices.one(dtypes), _extents(choices, choices.number(0, 4))), f"in{i}"))
    g.program.main.attrs["input_names"] = [p.name for p in g.values]
    for _ in range(choices.number(1, size)):
        made = choices.one(growers or GROWERS)(g, choices.one(g.values))
        if made is not None and prod(_shape(made)) <= _ELEMENTS:
            g.values.append(made)
    g.b.results(*(choices.one(g.values) for _ in range(choices.number(1, 3))))
    return g.program


def _type(v: Value) -> TensorType:
    return cast(TensorType, v.type)


def _shape(v: Value) -> tuple[int, ...]:
    return _type(v).static_shape


def _extents(choices: Choices, rank: int) -> tuple[int, ...]:
    return tuple(choices.number(1, 4) for _ in range(rank))


def literal(choices: Choices, dtype: DType, shape: tuple[int, ...]) -> Literal:
    """Quarters and integers, small."""
    elements = [choices.number(-8, 8) for _ in range(prod(shape))]
    data = b"".join(struct.pack(_FORMATS[dtype], n / 4 if dtype.is_float else n) for n in elements)
    return Literal(tensor(dtype, shape), data)


def _constant(g: Growing, x: Value) -> Value:
    dtype = g.choices.one(g.dtypes)
    if dtype in _SCALARS and g.choices.flag():
        return g.b.op(_SCALARS[dtype], value=literal(g.choices, dtype, ()))
    return g.b.op("ConstTensor", value=literal(g.choices, dtype, _extents(g.choices, g.choices.number(0, 2))))


def _fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def _binary(g: Growing, x: Value) -> Value:
    y = g.choices.one([v for v in g.values if _type(v).dtype is _type(x).dtype and _fits(_shape(v), _shape(x))])
    return g.b.op(g.choices.one(("Add", "Sub", "Mul")), x, y)


def _unary(g: Growing, x: Value) -> Value:
    return g.b.op(g.choices.one(("Neg", "Relu", "Exp") if _type(x).dtype.is_float else ("Neg",)), x)


def _log(g: Growing, x: Value) -> Value | None:
    """Of what is positive: the logarithm of anything would be NaN half of the time."""
    return g.b.op("Log", g.b.op("Exp", x)) if _type(x).dtype.is_float else None


def _reduction(g: Growing, x: Value) -> Value | None:
    rank = len(_shape(x))
    axes = tuple(a - rank * g.choices.number(0, 1) for a in some(g.choices, range(rank)))
    if not prod(_shape(x)):
        return None
    return g.b.op(g.choices.one(("Sum", "Mean")), x, axes=axes, keepdims=g.choices.flag())


def _movement(g: Growing, x: Value) -> Value:
    shape, kind = _shape(x), g.choices.one(("Transpose", "ExpandDims", "Squeeze", "Reshape"))
    rank = len(shape)
    if kind == "Transpose":
        return g.b.op("Transpose", x, permutation=tuple(g.choices.shuffled(range(rank))))
    if kind == "ExpandDims":
        new = g.choices.number(0, 2 if rank < 4 else 0)
        return g.b.op("ExpandDims", x, axes=tuple(sorted(g.choices.shuffled(range(rank + new))[:new])))
    if kind == "Squeeze":
        return g.b.op("Squeeze", x, axes=tuple(some(g.choices, [i for i, d in enumerate(shape) if d == 1])))
    wanted = list(g.choices.shuffled(shape))
    if wanted and 0 not in wanted and g.choices.flag():
        wanted[g.choices.number(0, rank - 1)] = -1
    return g.b.op("Reshape", x, new_shape=tuple(wanted)) if 0 not in wanted else x


def _index(g: Growing, x: Value) -> Value | None:
    if not prod(_shape(x)):
        return None
    return g.b.op("Index", x, indices=tuple(g.choices.number(0, d - 1) for d in _shape(x)))


def _slice(g: Growing, x: Value) -> Value:
    bounds = [(g.choices.number(-1, d), g.choices.number(0, d + 2), g.choices.number(1, 3)) for d in _shape(x)]
    starts, ends, steps = (tuple(b[i] for b in bounds) for i in range(3))
    return g.b.op("Slice", x, starts=starts, ends=ends, steps=steps)


def _gather(g: Growing, x: Value) -> Value | None:
    if not _shape(x)[:1] or not _shape(x)[0]:
        return None
    dtype, shape = g.choices.one((SI32, SI64)), _extents(g.choices, g.choices.number(0, 2))
    rows = [g.choices.number(0, _shape(x)[0] - 1) for _ in range(prod(shape))]
    data = b"".join(struct.pack(_FORMATS[dtype], n) for n in rows)
    return g.b.op("Gather", x, g.b.op("ConstTensor", value=Literal(tensor(dtype, shape), data)))


def _product(g: Growing, x: Value) -> Value | None:
    """With its own transpose, or with a constant that fits."""
    shape = _shape(x)
    if not shape or 0 in shape:
        return None
    if len(shape) > 1 and g.choices.flag():
        y = g.b.op("Transpose", x, permutation=(*range(len(shape) - 2), len(shape) - 1, len(shape) - 2))
        return g.b.op("MatMul", x, y)
    if len(shape) > 2:
        return g.b.op("MatMul", x, _fresh(g, x, (shape[-1], g.choices.number(1, 3))))
    other = (shape[-1],) if g.choices.flag() else (shape[-1], g.choices.number(1, 3))
    return g.b.op("Dot", x, _fresh(g, x, other))


def _fresh(g: Growing, x: Value, shape: tuple[int, ...]) -> Value:
    return g.b.op("ConstTensor", value=literal(g.choices, _type(x).dtype, shape))


def _convolution(g: Growing, x: Value) -> Value | None:
    if len(_shape(x)) != 4:
        count = prod(_shape(x))
        if not count or count > _ELEMENTS // 8:
            return None
        x = g.b.op("Reshape", x, new_shape=(1, *g.choices.one(((1, -1), (-1, 1))), 1))
    n, height, width, channels = _shape(x)
    if not n * height * width * channels:
        return None
    window = (g.choices.number(1, 3), g.choices.number(1, 3))
    f = _fresh(g, x, (*window, channels, g.choices.number(1, 3)))
    pads = tuple((g.choices.number(0, 2), g.choices.number(0, 2)) for _ in window)
    kinds: list[Any] = ["Same"]
    if all(k <= d for k, d in zip(window, (height, width), strict=True)):
        kinds.append("Valid")
    if all(k <= d + sum(p) for k, d, p in zip(window, (height, width), pads, strict=True)):
        kinds.append(pads)
    strides = (g.choices.number(1, 3), g.choices.number(1, 3))
    return g.b.op("Conv2d", x, f, strides=strides, padding=g.choices.one(kinds))


# What a step may be, as often as it is likely; COMMON keeps to what Tiny can say, too.
COMMON: tuple[Grow, ...] = (
    _binary, _binary, _binary, _unary, _unary, _reduction, _reduction, _movement, _movement, _index, _slice, _product,
    _convolution, _constant,
)  # fmt: skip
GROWERS: tuple[Grow, ...] = (*COMMON, _log, _gather)

"""Random Tiny graphs, written op by op for tests that keep to some ops; `ptir gen` makes its own from the declarations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

from ptir_tools.core import expressions as ex
from ptir_tools.core.builder import single_function
from ptir_tools.core.choices import Choices
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, F16, F32, I1, SI32, DType
from ptir_tools.core.ir import Value
from ptir_tools.core.types import Dim, TensorType, tensor
from ptir_tools.dialects.tiny import DIALECT
from ptir_tools.dialects.tiny.immediates import immediate
from tests.growing import Grow, Growing, some

DTYPES = (F32, F32, F16, BF16, SI32, I1)
_ELEMENTS = 4096  # no value has more
_PIECES = 3  # PADs in a row


def generate(
    choices: Choices, *, dtypes: Sequence[DType] = DTYPES, size: int = 12, growers: Sequence[Grow] | None = None
) -> Program:
    """A graph of about `size` nodes at most; its outputs are the nodes that no other uses."""
    g = Growing(choices, *single_function(DIALECT), dtypes)
    for i in range(choices.number(1, 3)):
        shape = tuple(choices.number(1, 4) for _ in range(choices.number(0, 3)))
        g.values.append(g.b.param(tensor(choices.one(dtypes), shape), f"in{i}"))
    g.program.main.attrs["input_names"] = [p.name for p in g.values]
    for _ in range(choices.number(1, size)):
        made = choices.one(growers or GROWERS)(g, choices.one(g.values))
        if made is not None and prod(_shape(made)) <= _ELEMENTS:
            g.values.append(made)
    used = {v for op in g.program.main.body for v in op.values()}
    sinks = [op.result for op in g.program.main.body if op.result not in used]
    g.b.results(*(sinks or g.values[:1]))
    g.program.attrs["outputs"] = not sinks
    return g.program


def _type(v: Value) -> TensorType:
    return cast(TensorType, v.type)


def _shape(v: Value) -> tuple[int, ...]:
    return _type(v).static_shape


def _number(g: Growing, dtype: DType) -> Any:
    """An immediate, a pad or a fill of `dtype`."""
    if dtype is I1:
        return g.choices.flag()
    return g.choices.number(-4, 4) if dtype is SI32 or g.choices.flag() else g.choices.one((0.5, -1.25, -0.0, 0.1))


def _cast(g: Growing, x: Value) -> Value:
    return g.b.op("CAST", x, to=g.choices.one(g.dtypes))


def _unary(g: Growing, x: Value) -> Value | None:
    if _type(x).dtype is I1:
        return None
    return g.b.op(g.choices.one(("NEG", "RELU", "EXP2") if _type(x).dtype.is_float else ("NEG", "RELU")), x)


def _rsqrt(g: Growing, x: Value) -> Value | None:
    """Of what is positive: of anything it would be NaN half of the time."""
    return g.b.op("RSQRT", g.b.op("EXP2", x)) if _type(x).dtype.is_float else None


def exponential(g: Growing, x: Value) -> Value | None:
    """e to the power x, as softmax has it."""
    return g.b.op("EXP2", g.b.op("MUL", x, immediate(1.4426950408889634, F32))) if _type(x).dtype is F32 else None


def _binary(g: Growing, x: Value) -> Value | None:
    dtype = _type(x).dtype
    if dtype is I1:
        return None
    uop = g.choices.one(("ADD", "SUB", "MUL", "MAX", "MIN") + (("FDIV",) if dtype.is_float else ()))
    same = [v for v in g.values if v.type is x.type]
    y = g.choices.one(same) if g.choices.flag() else immediate(_number(g, dtype), dtype)
    return g.b.op(uop, x, y) if g.choices.flag() else g.b.op(uop, y, x)


def _where(g: Growing, x: Value) -> Value:
    flag = g.b.op("CAST", g.choices.one([v for v in g.values if _shape(v) == _shape(x)]), to=I1)
    y = immediate(_number(g, _type(x).dtype), _type(x).dtype)
    return g.b.op("WHERE", flag, x, y) if g.choices.flag() else g.b.op("WHERE", flag, y, x)


def _reduce(g: Growing, x: Value) -> Value | None:
    numbers = [d for d in g.dtypes if d is not I1]
    if not numbers:
        return None
    init = g.choices.one((None, None, None, 1, -2))
    axes = tuple(some(g.choices, range(len(_shape(x)))))
    return g.b.op("REDUCE", x, op=g.choices.one(("SUM", "SUM", "MAX", "MIN")), axes=axes, dtype=g.choices.one(numbers), init=init)


def _reshape(g: Growing, x: Value) -> Value:
    flat = [d for d in _shape(x) if d != 1]
    if len(flat) > 1 and g.choices.flag():
        i = g.choices.number(0, len(flat) - 2)
        flat[i : i + 2] = [flat[i] * flat[i + 1]]
    for _ in range(g.choices.number(0, 2)):
        flat.insert(g.choices.number(0, len(flat)), 1)
    return g.b.op("RESHAPE", x, result_shape=tuple(flat))


def _permute(g: Growing, x: Value) -> Value:
    return g.b.op("PERMUTE", x, perm=tuple(g.choices.shuffled(range(len(_shape(x))))))


def _expand(g: Growing, x: Value) -> Value | None:
    shape = _shape(x)
    if len(shape) > 3:
        return None
    axes = tuple(sorted(g.choices.shuffled(range(len(shape) + 1))[: len(shape)]))
    full = [2] * (len(shape) + 1)
    for a, d in zip(axes, shape, strict=True):
        full[a] = g.choices.number(2, 3) if d == 1 and g.choices.flag() else d
    return g.b.op("EXPAND", x, result_shape=tuple(full), broadcast_dimensions=axes)


def _in_pieces(x: Value) -> bool:
    """Whether one of the nodes before cuts a value into pieces."""
    v: Value | None = x
    for _ in range(_PIECES):
        op = v.op if isinstance(v, Value) else None
        v = op.operands[0] if op is not None and isinstance(op.operands[0], Value) else None
        if op is not None and op.defn.short in ("PAD", "VIEW"):
            return True
    return False


def _pad(g: Growing, x: Value) -> Value | None:
    """On two axes; not where PADs before it would cut the value into too many pieces."""
    if _in_pieces(x):
        return None
    pairs = tuple((g.choices.number(0, 1), g.choices.number(0, 2)) if i < 2 else (0, 0) for i in range(len(_shape(x))))
    return g.b.op("PAD", x, pad=pairs, value=_number(g, _type(x).dtype))


def _shrink(g: Growing, x: Value) -> Value:
    lo = tuple(g.choices.number(0, max(0, d - 1)) for d in _shape(x))
    hi = tuple(d if g.choices.number(0, 3) else g.choices.number(a, d) for a, d in zip(lo, _shape(x), strict=True))
    step = tuple(1 if _in_pieces(x) else g.choices.number(1, 3) for _ in lo)
    return g.b.op("SHRINK", x, lo=lo, hi=hi, step=step)


def _flip(g: Growing, x: Value) -> Value:
    return g.b.op("FLIP", x, axes=tuple(sorted(some(g.choices, range(len(_shape(x)))))))


def _view(g: Growing, x: Value) -> Value | None:
    """A transposition, a reversal, a diagonal, a reshape by `//` and `%`, a guarded shift, a triangle."""
    shape = _shape(x)
    if len(shape) != 2 or 0 in shape:
        return None
    a, b = shape
    choices: list[tuple[tuple[int, ...], list[str], list[str]]] = [
        ((b, a, 2), ["@1", "@0"], []),
        ((b,), ["0", f"{b - 1}-@0"], []),
        ((min(a, b),), ["@0", "@0"], []),
        ((a * b,), [f"@0//{b}", f"@0%{b}"], []),
        ((a + 2, b), ["@0-1", "@1"], ["@0-1", f"{a}-@0"]),
        ((a, b), ["@0", "@1"], ["@1-@0"]),
    ]
    result, entries, guards = g.choices.one(choices)
    maps, where = (tuple(ex.to_dim(ex.parse(e)) for e in part) for part in (entries, guards))
    fill = _number(g, _type(x).dtype) if guards else 0
    return g.b.op("VIEW", x, result_shape=result, map=maps, guard=where, fill=fill)


def _pool(g: Growing, x: Value) -> Value | None:
    if not _shape(x) or len(_shape(x)) > 3 or _shape(x)[-1] < 3:
        return None
    stride: tuple[Dim, ...] = (g.choices.number(1, 2),)
    return g.b.op("POOL", x, kernel=(2,), stride=stride, dilation=(g.choices.number(1, 2),))


def _product(g: Growing, x: Value) -> Value | None:
    """A matrix product with its own transpose, naively: PERMUTE, EXPAND, MUL, REDUCE(SUM)."""
    if len(_shape(x)) != 2 or _type(x).dtype is I1 or prod(_shape(x)) * _shape(x)[0] > _ELEMENTS:
        return None
    m, k = _shape(x)
    rows = g.b.op("EXPAND", x, result_shape=(m, m, k), broadcast_dimensions=(0, 2))
    columns = g.b.op("EXPAND", x, result_shape=(m, m, k), broadcast_dimensions=(1, 2))
    dtype = F32 if _type(x).dtype.is_float and F32 in g.dtypes else _type(x).dtype
    return g.b.op("REDUCE", g.b.op("MUL", rows, columns), op="SUM", axes=(2,), dtype=dtype)


def _linear(g: Growing, x: Value) -> Value | None:
    if _type(x).dtype is I1:
        return None
    if g.choices.flag():
        return g.b.op(g.choices.one(("NEG", "RELU") if _type(x).dtype.is_float else ("NEG",)), x)
    y = g.choices.one([v for v in g.values if v.type is x.type])
    return g.b.op(g.choices.one(("ADD", "SUB", "MUL")), x, y)


def _sum(g: Growing, x: Value) -> Value | None:
    if _type(x).dtype is I1:
        return None
    return g.b.op("REDUCE", x, op="SUM", axes=tuple(some(g.choices, range(len(_shape(x))))), dtype=_type(x).dtype)


# What a step may be, as often as it is likely; COMMON keeps to what MIND can say, too.
COMMON: tuple[Grow, ...] = (_linear, _linear, exponential, _sum, _reshape, _permute, _expand, _shrink, _flip, _product)
GROWERS: tuple[Grow, ...] = (
    _cast, _unary, _unary, _rsqrt, exponential, _binary, _binary, _binary, _where, _reduce, _reduce, _reshape, _permute,
    _expand, _pad, _shrink, _flip, _view, _pool, _product,
)  # fmt: skip

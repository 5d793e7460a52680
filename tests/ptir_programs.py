"""Random PTIR programs for property tests: typed by construction, over all families of ops that engines prepare."""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod

from hypothesis import strategies as st

from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import BF16, F16, F32, F64, FP8_E4M3, FP8_E5M2, I1, SI4, SI8, SI32, SI64, UI8, DType
from ptir_tools.core.ir import Element, Literal, Program, Region, Value
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects import load_dialect, load_format

DTYPES = (F32, F32, F32, F64, F16, BF16, SI32, SI64, SI8, UI8, SI4, FP8_E4M3, FP8_E5M2)
SHAPES = ((), (1,), (3,), (2, 3), (4, 5), (1, 7), (3, 1, 4), (2, 0), (17, 33))

Grow = Callable[["Draw", Builder, Value], Value | None]
Draw = Callable[[st.SearchStrategy], object]


def kind(v: Value) -> DType:
    return v.type.dtype


def shape(v: Value) -> tuple[int, ...]:
    return v.type.static_shape


def unary(draw, b, x):
    floats = ("exp", "tanh", "erf", "neg", "abs", "rsqrt", "reciprocal", "log", "stop_gradient")
    names = floats if kind(x).is_float else ("neg", "abs", "stop_gradient") if kind(x).is_signed else ("stop_gradient",)
    return b.op(draw(st.sampled_from(names)), x)


def binary(draw, b, x):
    name = draw(st.sampled_from(("add", "sub", "mul", "maximum", "minimum") + (("div",) if kind(x).is_float else ())))
    y = draw(st.sampled_from([v for v in b.values if v.type is x.type]))
    return b.op(name, x, y)


def select(draw, b, x):
    same = [v for v in b.values if v.type is x.type]
    y, z = draw(st.sampled_from(same)), draw(st.sampled_from(same))
    flag = b.op(draw(st.sampled_from(("compare_lt", "compare_le", "compare_eq", "compare_ne", "compare_gt"))), x, y)
    return b.op("select", flag, draw(st.sampled_from((x, y))), z)


def clamp(draw, b, x):
    same = [v for v in b.values if v.type is x.type]
    return b.op("clamp", x, draw(st.sampled_from(same)), draw(st.sampled_from(same)))


def cast(draw, b, x):
    return b.op("cast", x, dtype=draw(st.sampled_from((*DTYPES, I1))))


def reduce(draw, b, x):
    axes = tuple(a for a in range(x.type.rank) if draw(st.booleans()))
    name = draw(st.sampled_from(("reduce_sum", "reduce_max", "reduce_min")))
    out = draw(st.sampled_from((None, F32))) if kind(x).is_float and kind(x).bits <= 32 else None
    return b.op(name, x, axes=axes, keepdims=draw(st.booleans()), out_dtype=out)


def argmax(draw, b, x):
    if not prod(shape(x)) or not x.type.rank:
        return None
    axis = draw(st.integers(-x.type.rank, x.type.rank - 1))
    return b.op("argmax", x, axis=axis, keepdims=draw(st.booleans()), output_dtype=draw(st.sampled_from((SI32, SI64))))


def movement(draw, b, x):
    choice = draw(st.sampled_from(("reshape", "transpose", "broadcast_to", "slice", "concat", "tile", "pad")))
    n = x.type.rank
    if choice == "reshape":
        return b.op("reshape", x, new_shape=tuple(draw(st.permutations([*shape(x), 1]))))
    if choice == "transpose":
        return b.op("transpose", x, perm=tuple(draw(st.permutations(range(n)))))
    if choice == "broadcast_to":
        return b.op("broadcast_to", x, result_shape=(2, *(3 if d == 1 else d for d in shape(x))))
    if choice == "slice":
        starts = tuple(draw(st.integers(0, d)) for d in shape(x))
        return b.op(
            "slice", x, starts=starts, sizes=tuple(draw(st.integers(0, d - s)) for d, s in zip(shape(x), starts, strict=True))
        )
    if choice == "concat":
        return b.op("concat", [x, x, x], axis=draw(st.integers(-n, n - 1))) if n else None
    if choice == "tile":
        return b.op("tile", x, repeats=tuple(draw(st.integers(0, 2)) for _ in range(n)))
    counts = [tuple(draw(st.integers(0, 2)) for _ in range(n)) for _ in range(3)]
    return b.op("pad", x, low=counts[0], high=counts[1], interior=counts[2])


def dot(draw, b, x):
    if x.type.rank < 2:
        return None
    y = b.op("transpose", x, perm=(*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2)) if draw(st.booleans()) else x
    n, transposed = x.type.rank, y is not x
    batch = tuple(range(n - 2))
    axis = draw(st.sampled_from((n - 2, n - 1)))
    other = (n - 1 if axis == n - 2 else n - 2) if transposed else axis
    out = draw(st.sampled_from((None, F32))) if kind(x).is_float and kind(x).bits <= 32 else None
    return b.op("dot_general", x, y, batch_lhs=batch, batch_rhs=batch, contract_lhs=(axis,), contract_rhs=(other,), out_dtype=out)


def softmax(draw, b, x):
    """The canonical form over the last axis."""
    if kind(x) is not F32 or not x.type.rank:
        return None
    last = (x.type.rank - 1,)
    high = b.op("broadcast_to", b.op("reduce_max", x, axes=last, keepdims=True), result_shape=shape(x))
    e = b.op("exp", b.op("sub", x, high))
    total = b.op("broadcast_to", b.op("reduce_sum", e, axes=last, keepdims=True), result_shape=shape(x))
    return b.op("div", e, total)


def normalize(draw, b, x):
    """A layer norm over the last axis, in parts, with a reshape in place of keepdims."""
    if kind(x) is not F32 or not x.type.rank or not prod(shape(x)):
        return None
    n, last = shape(x)[-1], (x.type.rank - 1,)
    rows = (*shape(x)[:-1], 1)
    inverse = b.op("broadcast_to", literal(1.0 / n), result_shape=rows)
    mean = b.op("mul", b.op("reduce_sum", x, axes=last, keepdims=True), inverse)
    centered = b.op("sub", x, b.op("broadcast_to", mean, result_shape=shape(x)))
    squares = b.op("reshape", b.op("reduce_sum", b.op("mul", centered, centered), axes=last), new_shape=rows)
    epsilon = b.op("broadcast_to", literal(1e-5), result_shape=rows)
    scale = b.op("rsqrt", b.op("add", b.op("mul", squares, inverse), epsilon))
    b.values.append(scale)
    return b.op("mul", centered, b.op("broadcast_to", scale, result_shape=shape(x)))


def literal(number: float) -> Literal:
    return Literal(tensor(F32), struct.pack("<f", number))


def scan(draw, b, x):
    if x.type.rank < 1:
        return None
    row = tensor(kind(x), shape(x)[1:])
    body = Region(f"r{len(b.program.regions)}")
    inner = Builder(b.dialect, body)
    carry, step = inner.param(row, "c"), inner.param(row, "s")
    total = inner.op("maximum", carry, step)
    inner.results(total, inner.op("stop_gradient", carry) if draw(st.booleans()) else total)
    b.program.regions.append(body)
    start = b.op("reduce_max", x, axes=(0,))
    b.values.append(b.op("scan", [start, x], regions=[body], carry_count=1, scan_output_count=1))
    return None


GROWERS = (
    unary,
    unary,
    unary,
    binary,
    binary,
    binary,
    select,
    clamp,
    cast,
    reduce,
    reduce,
    argmax,
    movement,
    movement,
    dot,
    scan,
)
ROWS = (unary, unary, binary, binary, select, clamp, reduce, softmax, normalize, movement)


class Shown(Program):
    """A program that prints as text when a test fails."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n" + "".join(load_format("ptir").write(self, Diagnostics(), Options()))

    def _repr_pretty_(self, printer, cycle) -> None:
        printer.text(repr(self))


@st.composite
def programs(draw, dtypes=DTYPES, size=12, growers=GROWERS) -> Program:
    """A verified program of up to `size` ops whose results are some of its values."""
    program, b = single_function(load_dialect("ptir"))
    b.program, b.values = program, []
    for i in range(draw(st.integers(1, 3))):
        b.values.append(b.param(tensor(draw(st.sampled_from(dtypes)), draw(st.sampled_from(SHAPES))), f"p{i}"))
    for _ in range(draw(st.integers(1, size))):
        tensors = [v for v in b.values if isinstance(v.type, TensorType)]
        x = draw(st.sampled_from(tensors))
        if kind(x) is I1:
            b.values.append(x := b.op("cast", x, dtype=F32))
        made = draw(st.sampled_from(growers))(draw, b, x)
        if made is not None and prod(shape(made)) <= 20000:
            b.values.append(made)
    chosen = draw(st.lists(st.sampled_from(b.values), min_size=1, max_size=4))
    b.results(*(Element(v, draw(st.integers(0, 1))) if not isinstance(v.type, TensorType) else v for v in chosen))
    return Shown(program.dialect, program.functions, program.regions, program.entry)

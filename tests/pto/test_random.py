"""Random PTO programs against the second evaluator of `pto_oracle`, and what must hold of every program."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptir_tools.dialects.pto  # noqa: F401
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import clone
from ptir_tools.core.source import Source
from ptir_tools.dialects.pto.text.fmt import format_text
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.plan import plan
from tests.pto.oracle import (
    ANY,
    BINARY,
    COMPARISONS,
    DTYPES,
    EXPANDED,
    FLOAT,
    FLOATS,
    INTEGERS,
    PARTIAL,
    REDUCTIONS,
    SCALAR,
    SHIFTS,
    TERNARY,
    UNARY,
    rounded,
    wide,
)
from tests.pto.programs import check, good, module, printed, run

R, C = 6, 8


@dataclass
class Value:
    """A tile of the program: its elements (right where valid) and its valid region."""

    name: str
    dtype: str
    data: Any
    valid: tuple[int, int]

    @property
    def type(self) -> str:
        return f"tile<{'x'.join(map(str, self.data.shape))}x{self.dtype}>"

    @property
    def box(self) -> tuple[slice, slice]:
        return slice(0, self.valid[0]), slice(0, self.valid[1])


@dataclass
class Random:
    """A program in the making. Choices are `draw`'s; `step` appends one op of those named in `only`."""

    draw: Callable[..., Any]
    only: tuple[str, ...] = ()
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)

    def one(self, known):
        return self.draw(st.sampled_from(list(known)))

    def dtypes(self, kind):
        return {ANY: FLOATS + INTEGERS, FLOAT: FLOATS}.get(kind, INTEGERS)

    def elements(self, dtype, shape):
        drawn = np.random.default_rng(self.draw(st.integers(0, 99))).integers(-32, 32, shape)
        return (drawn / 8 if dtype in FLOATS else drawn).astype(DTYPES[dtype])

    def load(self, dtype, shape=(R, C), valid=None):
        data, n = self.elements(dtype, shape), len(self.inputs)
        valid = valid or tuple(self.draw(st.integers(1, d)) for d in shape)
        memory = f"pto.memref<{'x'.join(map(str, shape))}x{dtype}>"
        self.inputs[f"m{n}"] = data
        made = Value(f"x{n}", dtype, data, valid)
        part = f" {{valid = {list(valid)}}}" if valid != shape else ""
        self.lines.append(f"%x{n} = pto.tile.load %m{n}[0, 0]{part} : {memory}, {made.type}")
        self.values.append(made)
        return made

    def tile(self, dtype, shape=(R, C), fresh=True):
        """A tile of this type: one that is there, or a load."""
        known = [v for v in self.values if v.dtype == dtype and v.data.shape == shape]
        return self.one(known) if known and (not fresh or self.draw(st.booleans())) else self.load(dtype, shape)

    def scalar(self, dtype, low=-16, high=16):
        n = self.draw(st.integers(1 if dtype == "u8" else low, high).filter(bool))
        text = str(n / 4) if dtype in FLOATS else str(n)
        name = f"k{len(self.lines)}"
        self.lines.append(f"%{name} = pto.constant {text} : {dtype}")
        return name, DTYPES[dtype](float(text) if dtype in FLOATS else n)

    def make(self, short, operands, types, dtype, data, valid, attrs=""):
        """Append an op whose result has these elements."""
        made = Value(f"v{len(self.lines)}", dtype, np.broadcast_to(data, data.shape), valid)
        given = ", ".join(f"%{x}" for x in operands)
        self.lines.append(f"%{made.name} = pto.tile.{short} {given}{attrs} : {types.replace('RESULT', made.type)}")
        self.values.append(made)

    def compute(self, short, fn, operands, dtype, types):
        """An elementwise op of tiles and scalars `operands`, (name, array, valid or None)."""
        with np.errstate(all="ignore"):
            data = rounded(fn(*(wide(np.asarray(x)) for _, x, _ in operands)), dtype)
        regions = [v for _, _, v in operands if v is not None]
        self.make(short, [n for n, _, _ in operands], types, dtype, data, tuple(map(min, zip(*regions, strict=True))))


def part(v):
    return v.name, v.data, v.valid


def unary(p, name):
    kind, fn = UNARY[name]
    dtype = p.one(p.dtypes(kind))
    p.compute(name, fn, [part(p.tile(dtype))], dtype, "RESULT")


def binary(p, name):
    kind, fn = BINARY[name]
    dtype = p.one(p.dtypes(kind))
    p.compute(name, fn, [part(p.tile(dtype)), part(p.tile(dtype))], dtype, "RESULT")


def ternary(p, name):
    kind, fn = TERNARY[name]
    dtype = p.one(p.dtypes(kind))
    p.compute(name, fn, [part(p.tile(dtype)) for _ in range(3)], dtype, "RESULT")


def scalar(p, name):
    kind, fn = SCALAR[name]
    dtype = p.one(p.dtypes(kind))
    s, n = p.scalar(dtype, *((1, 7) if name.startswith("sh") else ()))
    x = p.tile(dtype)
    pair, types = [part(x), (s, n, None)], [x.type, dtype]
    if p.draw(st.booleans()) and not name.startswith("sh") and name != "lrelu":
        pair, types = pair[::-1], types[::-1]
    p.compute(name, fn, pair, dtype, ", ".join(types))


def shift(p, name):
    kind, fn = SHIFTS[name]
    dtype = p.one(p.dtypes(kind))
    by = p.load(dtype)
    by.data[:] = by.data % 7
    p.compute(name, fn, [part(p.tile(dtype)), part(by)], dtype, "RESULT")


def partial(p, name):
    kind, fn = PARTIAL[name]
    dtype = p.one(p.dtypes(kind))
    rows = p.draw(st.integers(1, R))
    a, b = (p.load(dtype, valid=(rows, p.draw(st.integers(1, C)))) for _ in range(2))
    both = rounded(fn(wide(a.data), wide(b.data)), dtype)
    columns = np.arange(C)
    data = np.where(columns >= b.valid[1], a.data, np.where(columns >= a.valid[1], b.data, both))
    p.make(name, [a.name, b.name], f"{a.type} -> RESULT", dtype, data, (rows, max(a.valid[1], b.valid[1])))


def reduction(p, name):
    axis, (kind, fn) = int(name.startswith("row")), REDUCTIONS[name[3:]]
    dtype = p.one(p.dtypes(kind))
    x = p.tile(dtype)
    with np.errstate(all="ignore"):
        part_of = rounded(fn(wide(x.data[x.box]), axis), dtype)
    data = np.zeros((R, 1) if axis else (1, C), DTYPES[dtype])
    data[tuple(map(slice, part_of.shape))] = part_of
    p.make(name, [x.name], f"{x.type} -> RESULT", dtype, data, part_of.shape)


def expansion(p, name):
    axis, how = int(name.startswith("row")), name[len("rowexpand") :]
    kind, fn = EXPANDED[how] if how else (ANY, None)
    dtype = p.one(p.dtypes(kind))
    v = p.tile(dtype, (R, 1) if axis else (1, C))
    whole = (v.valid[0], C) if axis else (R, v.valid[1])
    if fn is None:
        p.make(name, [v.name], f"{v.type} -> RESULT", dtype, np.broadcast_to(v.data, (R, C)), whole)
        return
    x = p.tile(dtype)
    p.compute(name, fn, [part(x), (v.name, v.data, whole)], dtype, f"{x.type}, {v.type} -> RESULT")


def compare(p, name):
    dtype, mode = p.one(FLOATS + INTEGERS), p.one(COMPARISONS)
    a, attrs = p.tile(dtype), f" {{cmpMode = #pto.cmp<{mode}>}}"
    other, data, valid = (*p.scalar(dtype), a.valid) if name == "cmps" else part(p.tile(dtype))
    mask = COMPARISONS[mode](wide(a.data), wide(np.asarray(data))).astype(np.int8)
    p.make(name, [a.name, other], f"{a.type} -> RESULT", "i8", mask, tuple(map(min, a.valid, valid)), attrs)


def select(p, name):
    compare(p, "cmp")
    mask, dtype = p.values[-1], p.one(FLOATS + INTEGERS)
    operands = [part(mask), part(p.tile(dtype)), part(p.tile(dtype))]
    p.compute(name, lambda m, a, b: np.where(m, a, b), operands, dtype, "RESULT")


def select_one(p, name):
    dtype = p.one(FLOATS + INTEGERS)
    a, b, (mode, n) = p.tile(dtype), p.tile(dtype), p.scalar("i32", 1, 2)
    p.compute(name, lambda x, y, m: x if n == 1 else y, [part(a), part(b), (mode, n, None)], dtype, a.type)


def convert(p, name):
    source, to = p.one(FLOATS + INTEGERS), p.one(FLOATS + INTEGERS)
    x = p.tile(source)
    data = wide(x.data)
    if source in FLOATS and to in INTEGERS:
        info = np.iinfo(DTYPES[to])
        data = np.clip(np.rint(np.nan_to_num(data, nan=0.0, posinf=info.max, neginf=info.min)), info.min, info.max).astype(
            np.int64
        )
    if source in INTEGERS and to in FLOATS:
        data = data.astype(np.float64)
    p.make(name, [x.name], f"{x.type} -> RESULT", to, rounded(data, to) if source != to else x.data, x.valid)


def move(p, name):
    dtype = p.one(FLOATS + INTEGERS)
    x = p.tile(dtype, fresh=False)
    if name == "trans":
        p.make(name, [x.name], f"{x.type} -> RESULT", dtype, x.data.T, x.valid[::-1])
    elif name == "reshape":
        x = p.load(dtype, valid=(R, C))
        p.make(name, [x.name], f"{x.type} -> RESULT", dtype, x.data.reshape(3, 2 * C), (3, 2 * C))
    elif name == "fillpad":
        pad = p.one(("Zero", "Max", "Min"))
        ends = (-np.inf, np.inf) if dtype in FLOATS else (np.iinfo(DTYPES[dtype]).min, np.iinfo(DTYPES[dtype]).max)
        data = np.full((R, C), {"Zero": 0, "Min": ends[0], "Max": ends[1]}[pad], DTYPES[dtype])
        data[x.box] = x.data[x.box]
        p.make(name, [x.name], f"{x.type} -> RESULT", dtype, data, (R, C), f" {{pad = #pto.pad<{pad}>}}")
    else:
        p.make(name, [x.name], f"{x.type} -> RESULT", dtype, x.data, x.valid)


def filled(p, name):
    dtype = p.one(FLOATS + INTEGERS if name == "expands" else INTEGERS)
    s, n = p.scalar(dtype)
    if name == "expands":
        p.make(name, [s], f"{dtype}, RESULT", dtype, np.full((R, C), n), (R, C))
    else:
        p.make(name, [s], "RESULT", dtype, rounded(int(n) + np.arange(C), dtype)[None], (1, C))


def gather(p, name):
    dtype = p.one(FLOATS)
    x, at = p.load(dtype, valid=(R, C)), p.load("i32")
    at.data[:] = at.data % (R * C)
    p.make(name, [x.name, at.name], f"{x.type} -> RESULT", dtype, x.data.reshape(-1)[at.data], at.valid)


FAMILIES: dict[Callable[[Random, str], None], tuple[str, ...]] = {
    unary: tuple(UNARY),
    binary: tuple(BINARY),
    ternary: tuple(TERNARY),
    scalar: tuple(SCALAR),
    shift: tuple(SHIFTS),
    partial: tuple(PARTIAL),
    reduction: tuple(f"{side}{name}" for side in ("row", "col") for name in REDUCTIONS),
    expansion: tuple(f"{side}expand{name}" for side in ("row", "col") for name in ("", *EXPANDED)),
    compare: ("cmp", "cmps"),
    select: ("sel",),
    select_one: ("sels",),
    convert: ("cvt",),
    move: ("trans", "reshape", "fillpad", "mov.v2v"),
    filled: ("expands", "ci"),
    gather: ("gather",),
}
RULES = {name: rule for rule, names in FAMILIES.items() for name in names}
# The others have tests of their own, with results by hand.
BY_HAND = (
    "load", "store", "store.fp", "assign", "extract", "extract.vec", "gatherb", "scatter", "sort32", "mrgsort", "matmul",
    "matmul.acc",
    "matmul.bias", "mov.m2l", "mov.m2r", "mov.m2b", "mov.m2s", "mov.a2v", "mov.fp", "mov.a2m", "mov.v2m", "prefetch", "print",
    "addsc", "subsc", "axpy", "muladddst", "fusedmuladd", "fusedmuladdrelu", "subrelu", "adddeqrelu", "rowargmax", "rowargmin",
    "colargmax", "colargmin", "partargmax", "partargmin", "concat", "insert", "insert.fp", "fillpad.inplace",
    "fillpad.expand", "tri", "undef", "push", "pop",
    *(f"{name}{more}" for name in ("gemv", "matmul.mx", "gemv.mx") for more in ("", ".acc", ".bias")),
)  # fmt: skip


def test_every_tile_op_has_an_oracle():
    names = {d.short.removeprefix("tile.") for d in OPS.values() if d.name.startswith("pto.tile.")}
    assert names == {*RULES, *BY_HAND}


def build(draw, *names):
    """A program of these ops whose every tile is stored: its text, its inputs and what they become."""
    p = Random(draw)
    for name in names:
        RULES[name](p, name)
    outputs = {}
    for i, v in enumerate(p.values):
        shape = "x".join(map(str, v.data.shape))
        memory = f"pto.memref<{shape}x{v.dtype}>"
        p.lines.append(f"pto.tile.store %{v.name}, %o{i}[0, 0] : {memory}, {v.type}")
        p.inputs[f"o{i}"] = np.zeros(v.data.shape, DTYPES[v.dtype])
        outputs[f"o{i}"] = memory
        want = np.zeros(v.data.shape, DTYPES[v.dtype])
        want[v.box] = v.data[v.box]
        p.expected[f"o{i}"] = want
    loads = {k: f"pto.memref<{'x'.join(map(str, x.shape))}x{_spelled(x)}>" for k, x in p.inputs.items() if k[0] == "m"}
    parameters = ", ".join(f"%{k}: {t}" for k, t in {**loads, **outputs}.items())
    return module(parameters, *p.lines), p.inputs, p.expected


def _spelled(x):
    return next(name for name, d in DTYPES.items() if np.dtype(d) == x.dtype)


def same(made, expected):
    for name, want in expected.items():
        np.testing.assert_array_equal(made[name].astype(np.float64), want.astype(np.float64), err_msg=name)


@pytest.mark.parametrize("name", RULES)
def test_op(name):
    """Every element type that the op takes, and partly valid operands."""

    @settings(max_examples=12, deadline=None, database=None)
    @given(st.data())
    def trial(data):
        source, inputs, expected = build(data.draw, name)
        same(run(source, inputs), expected)

    trial()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_programs(data):
    """A few ops in a row: the numbers; the text, read and printed again; with events in every order; the plan."""
    names = data.draw(st.lists(st.sampled_from(list(RULES)), min_size=1, max_size=6))
    source, inputs, expected = build(data.draw, *names)
    program = good(source)
    same(run(program, inputs), expected)
    text = printed(program)
    assert printed(good(text)) == text
    laid_out = format_text(Source("a.pto", source), Diagnostics())
    assert laid_out is not None and format_text(Source("b.pto", laid_out), Diagnostics()) == laid_out
    assert printed(good(laid_out)) == text
    assert not any(block.faults() for block in plan(program).functions.values())
    for pipeline in (program.dialect.pipeline, "pto-canonicalize,pto-bufferize,pto-insert-events,pto-allocate-event-ids"):
        after = clone(program)
        run_pipeline(after, pipeline, PassContext())
        _, found = check(printed(after))
        assert not found.errors, found.items
        for seed, order in enumerate(("sequential", "adversarial", "random")):
            same(run(after, inputs, order=order, seed=seed), expected)

"""Maximum, minimum, clamp and their reductions on special values: NaN propagates and 0.0 is above -0.0, in every dtype, on every
engine and instruction set, and after every translation. The expected values come from Python's `max` on pairs (number, sign)."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import ptir_tools
from ptir_tools.convert import translate
from ptir_tools.core.arrays import from_literal, to_literal
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Value
from ptir_tools.core.types import tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.engines import RunOptions, native, run
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.context import Floats
from tests.convert.translations import translated
from tests.ptir.oracle import DTYPES, NUMPY

ENGINES = ["reference", "numpy", *["native"] * native.available()]
FLOATS = ("f64", "f32", "f16", "bf16", "fp8_e5m2", "fp8_e4m3")
INTEGERS = ("si32", "ui8")
Make = Callable[..., Sequence[object]]


def special(dtype: str, subnormal: bool = True) -> np.ndarray:
    """Zeros, ones, NaN, infinities, subnormals and the largest numbers, of both signs; of an integer dtype its ends."""
    own = np.dtype(NUMPY[dtype])
    if dtype in INTEGERS:
        ends = np.iinfo(own)
        return np.array([0, 1, ends.min, ends.max, ends.max - 1], own)
    smallest = np.array([1], f"u{own.itemsize}").view(own).astype(np.float64)[0]
    top = {"f64": 1.7e308, "f32": 3.4e38, "f16": 65504, "bf16": 3.3e38, "fp8_e5m2": 57344, "fp8_e4m3": 448}[dtype]
    small = [smallest, 3 * smallest] if subnormal else [0.5, 2.0]
    some = [0.0, 1.0, *small, top, math.inf]
    with np.errstate(all="ignore"):
        return np.array([*some, *(-v for v in some), math.nan]).astype(own)


def key(value: float) -> tuple[float, float]:
    return (value, math.copysign(1, value))


def larger(*values: float) -> float:
    return math.nan if any(v != v for v in values) else max(values, key=key)


def smaller(*values: float) -> float:
    return math.nan if any(v != v for v in values) else min(values, key=key)


def clamped(x: float, low: float, high: float) -> float:
    return smaller(larger(x, low), high)


def each(function: Callable[..., float], *operands: np.ndarray) -> np.ndarray:
    """`function` of the elements, each as a Python number."""
    made = [function(*numbers) for numbers in zip(*(x.astype(np.float64).reshape(-1).tolist() for x in operands), strict=True)]
    return np.array(made, np.float64).reshape(operands[0].shape)


def assert_same(name: str, got: np.ndarray, want: np.ndarray) -> None:
    """The same numbers, zeros with the same sign, NaN in the same places."""
    found = np.asarray(got).astype(np.float64)
    same = (found == want) & (np.signbit(found) == np.signbit(want)) | (np.isnan(found) & np.isnan(want))
    where = np.flatnonzero(~same.reshape(-1))
    first = (found.reshape(-1)[where[:6]], want.reshape(-1)[where[:6]])
    assert not where.size, f"{name}: {where.size} of {same.size}: {first[0]}, not {first[1]}"


class Cases:
    """A program with an output per case, and what each must give."""

    def __init__(self, dtype: str, values: np.ndarray | None = None) -> None:
        self.program, self.b = single_function(DIALECT)
        self.dtype, self.type = dtype, DTYPES[dtype]
        self.values = special(dtype) if values is None else values
        self.inputs: list[np.ndarray] = []
        self.outputs: list[Value] = []
        self.wants: list[tuple[str, np.ndarray]] = []

    def given(self, x: np.ndarray) -> Value:
        """A parameter with the value `x`."""
        self.inputs.append(x)
        return self.b.param(tensor(DTYPES["si32"] if x.dtype == np.int32 and self.dtype != "si32" else self.type, x.shape))

    def constant(self, number: float, shape: tuple[int, ...]) -> Value:
        """A constant of equal elements."""
        t = tensor(self.type, shape)
        return self.b.op("constant", value=to_literal(np.full(shape, number).astype(self.values.dtype), t))

    def gives(self, name: str, made: Value, want: np.ndarray) -> None:
        """`made` must be `want`."""
        self.outputs.append(made)
        self.wants.append((name, want))

    def done(self) -> Program:
        """The finished program."""
        self.b.results(*self.outputs)
        diagnostics = Diagnostics()
        assert verify(self.program, diagnostics), [d.message for d in diagnostics]
        return self.program

    def check(self, program: Program, options: RunOptions) -> None:
        """Run `program` and compare."""
        for (name, want), got in zip(self.wants, run(program, self.inputs, options).values(), strict=True):
            assert_same(name, got, want)


def pairs(dtype: str, values: np.ndarray | None = None) -> Cases:
    """All pairs of special values, as operands and as constants; all triples of a few for clamp."""
    c = Cases(dtype, values)
    v, n = c.values, len(c.values)
    a, b = np.repeat(v, n), np.tile(v, n)
    x, y = c.given(a), c.given(b)
    c.gives("maximum", c.b.op("maximum", x, y), each(larger, a, b))
    c.gives("minimum", c.b.op("minimum", x, y), each(smaller, a, b))
    few = v if n < 8 else v[[0, 1, 5, 6, 7, -1]]
    p, q, r = (np.array(e).astype(v.dtype) for e in zip(*itertools.product(few.tolist(), repeat=3), strict=True))
    ps, qs, rs = c.given(p), c.given(q), c.given(r)
    c.gives("clamp", c.b.op("clamp", ps, qs, rs), each(clamped, p, q, r))
    zeros = few[:4] if dtype in INTEGERS else few[[0, 3]]
    for number in zeros.tolist():
        constant = c.constant(number, a.shape)
        c.gives(f"maximum with {number}", c.b.op("maximum", x, constant), each(lambda k, m=number: larger(k, m), a))
        c.gives(f"minimum of {number} and", c.b.op("minimum", constant, x), each(lambda k, m=number: smaller(m, k), a))
    for low, high in [(zeros[0], 1), (zeros[1], 1), (-1, zeros[0]), (-1, zeros[1])] if dtype not in INTEGERS else [(0, 1)]:
        ends = [c.constant(e, a.shape) for e in (low, high)]
        c.gives(
            f"clamp to {low}, {high}", c.b.op("clamp", x, *ends), each(lambda k, m=float(low), h=float(high): clamped(k, m, h), a)
        )
    if dtype not in ("ui8",):
        c.gives("larger of x and -x", c.b.op("maximum", x, c.b.op("neg", x)), each(lambda k: larger(k, own_neg(k, dtype)), a))
    return c


def own_neg(x: float, dtype: str) -> float:
    return x if dtype == "si32" and x == -(2**31) else -x


def windows(size: Sequence[int], strides: Sequence[int], padding: Sequence[tuple[int, int]]) -> dict[str, tuple[object, ...]]:
    """The attributes of `reduce_window`, without dilation."""
    ones = (1,) * len(size)
    lists = {"window_dims": tuple(size), "strides": tuple(strides), "padding": tuple(padding)}
    return {**lists, "base_dilation": ones, "window_dilation": ones}


def reductions(dtype: str, length: int = 2, values: np.ndarray | None = None) -> Cases:
    """All pairs of special values in a row of `length`, the rest of it the number that matters least."""
    c = Cases(dtype, values)
    v, n = c.values, len(c.values)
    for kind, function in (("max", larger), ("min", smaller)):
        edge = (-math.inf if kind == "max" else math.inf) if dtype not in INTEGERS else (v.min() if kind == "max" else v.max())
        edge = v[-1] * 0 + (-448 if kind == "max" else 448) if dtype == "fp8_e4m3" else edge
        rows = np.full((n * n, length), edge).astype(v.dtype)
        rows[np.arange(n * n), np.arange(n * n) % length] = np.repeat(v, n)
        rows[np.arange(n * n), (np.arange(n * n) + length // 2) % length] = np.tile(v, n)
        want = np.array([function(*row) for row in rows.astype(np.float64).tolist()])
        x = c.given(rows)
        c.gives(f"reduce_{kind} of rows", c.b.op(f"reduce_{kind}", x, axes=(1,)), want)
        columns = c.given(np.ascontiguousarray(rows.T))
        c.gives(f"reduce_{kind} of columns", c.b.op(f"reduce_{kind}", columns, axes=(0,)), want)
        running = np.array([[function(*row[: i + 1]) for i in range(length)] for row in rows.astype(np.float64).tolist()])
        c.gives(f"cum{kind}", c.b.op(f"cum{kind}", x, axis=1), running)
        window = windows((1, 2), (1, 1), ((0, 0), (0, 0)))
        seen = [[function(*row[i : i + 2]) for i in range(length - 1)] for row in rows.astype(np.float64).tolist()]
        c.gives(f"window {kind}", c.b.op("reduce_window", x, **window, reduce=kind), np.array(seen))
        index = c.given(np.zeros((n * n, length), np.int32))
        start = c.given(np.full((n * n, 1), edge).astype(v.dtype))
        scattered = c.b.op("scatter_reduce", start, index, x, axis=1, reduce=kind)
        c.gives(f"scatter {kind}", scattered, np.array([function(float(edge), w) for w in want])[:, None])
    ids = c.given((np.arange(length) * 0).astype(np.int32))
    columns = c.b.op("segment_reduce", c.given(np.ascontiguousarray(rows.T)), ids, kind="max", num_segments=1)
    c.gives("segment max", columns, np.array([larger(*row) for row in rows.astype(np.float64).tolist()])[None])
    return c


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_pairs(dtype: str, engine: str) -> None:
    cases = pairs(dtype)
    program = cases.done()
    for strict in (False, True):
        cases.check(program, RunOptions(engine=engine, strict_fp=strict))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_reductions(dtype: str, engine: str) -> None:
    for length in (2, 5, 131):
        cases = reductions(dtype, length)
        cases.check(cases.done(), RunOptions(engine=engine))


# On an instruction set of this machine: sizes at which kernels run, whole vectors and odd ends.
KERNELS = """
import sys
from tests.engines.test_extremes import hold_kernels
hold_kernels(sys.argv[1])
"""


def hold_kernels(isa: str) -> None:
    """Rows long enough for kernels, endings of products, pooling, column reductions."""
    from ptir_tools import _native

    assert isa == _native.ISA
    v = special("f32")
    for columns in (16, 64, 67, 200):
        for rows in (3, 700):
            rng = np.random.default_rng(columns + rows)
            drawn = [rng.choice(v[: 12 + (k > 0)], (rows, columns)) for k in range(3)]
            c = Cases("f32")
            x, y, z = map(c.given, drawn)
            a, b, d = drawn
            c.gives("maximum", c.b.op("maximum", x, y), each(larger, a, b))
            c.gives("minimum", c.b.op("minimum", x, y), each(smaller, a, b))
            c.gives("clamp", c.b.op("clamp", x, y, z), each(clamped, a, b, d))
            doubled = c.b.op("mul", c.b.op("maximum", x, y), c.b.op("minimum", x, y))
            with np.errstate(all="ignore"):
                both = each(larger, a, b).astype(np.float32) * each(smaller, a, b).astype(np.float32)
            c.gives("fused", doubled, both)
            sparse = np.where(rng.random((rows, columns)) < 0.02, np.float32(0.0), np.float32(-0.0))
            for kind, function in (("max", larger), ("min", smaller)):
                for given in (sparse, -sparse, a):
                    w = c.given(given)
                    by_row = [function(*row) for row in given.tolist()]
                    c.gives(f"reduce_{kind}", c.b.op(f"reduce_{kind}", w, axes=(1,)), np.array(by_row))
                    by_column = [function(*row) for row in given.T.tolist()]
                    c.gives(f"reduce_{kind} of columns", c.b.op(f"reduce_{kind}", w, axes=(0,)), np.array(by_column))
                image = rng.choice(np.float32([0.0, -0.0, -1, 1]), (1, 9, 9, columns))
                around = ((0, 0), (1, 0), (0, 1), (0, 0))
                window = windows((1, 3, 3, 1), (1, 2, 2, 1), around)
                made = c.b.op("reduce_window", c.given(image), **window, reduce=kind)
                edge = -math.inf if kind == "max" else math.inf
                padded = np.pad(image, around, constant_values=edge)
                want = np.empty((1, 4, 4, columns))
                for i, j, k in np.ndindex(4, 4, columns):
                    want[0, i, j, k] = function(*padded[0, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3, k].reshape(-1).tolist())
                c.gives(f"pool {kind}", made, want)
            # The ending of a product: an identity keeps the numbers; -0.0 comes of a bias.
            numbers = rng.choice(np.float32([-0.0, 1, -2, 5]), (rows, columns))
            product = c.b.op(
                "dot_general",
                c.given(np.zeros((rows, 8), np.float32)),
                c.given(np.zeros((8, columns), np.float32)),
                contract_lhs=(1,),
                contract_rhs=(0,),
                batch_lhs=(),
                batch_rhs=(),
            )
            moved = c.b.op("add", product, c.given(numbers))
            for low, high in ((0.0, 2.0), (-0.0, 2.0), (-1.0, -0.0), (-1.0, 0.0)):
                ends = [c.constant(e, (rows, columns)) for e in (low, high)]
                summed = 0.0 + numbers.astype(np.float64)
                want = each(lambda k, m=low, h=high: clamped(k, m, h), summed)
                c.gives(f"ending {low} {high}", c.b.op("clamp", moved, *ends), want)
            c.check(c.done(), RunOptions(engine="native"))


@pytest.mark.parametrize("isa", native.library.kernels().ISAS if native.available() else [])
def test_kernels_of_every_instruction_set(isa: str) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    environment = {**os.environ, "PTIR_ISA": isa, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", KERNELS, isa], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("pipeline", ["canonicalize,cse,dce", "decompose", "default"])
def test_passes(dtype: str, pipeline: str) -> None:
    for cases in (pairs(dtype), reductions(dtype)):
        program = cases.done()
        run_pipeline(program, pipeline if pipeline != "default" else DIALECT.pipeline, PassContext(floats=Floats.STRICT))
        cases.check(program, RunOptions(engine="reference"))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_xla(dtype: str) -> None:
    """XLA flushes subnormals, which are left out."""
    pytest.importorskip("jax")
    values = special(dtype, subnormal=False)
    for cases in (pairs(dtype, values), reductions(dtype, 5, values)):
        cases.check(cases.done(), RunOptions(engine="xla"))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "si32"])
def test_tiny(dtype: str) -> None:
    for cases in (pairs(dtype), reductions(dtype, 5)):
        there = translated(cases.done(), "tiny")
        assert there.program is not None, there.errors
        kept = [from_literal(v) for v in there.constants.values()]
        for engine in ENGINES:
            found = run(there.program, [*cases.inputs, *kept], RunOptions(engine=engine, strict_fp=True))
            for (name, want), got in zip(cases.wants, found.values(), strict=True):
                assert_same(name, got, want)


@pytest.mark.parametrize("dtype", ["f32", "f64", "si32"])
def test_mind(dtype: str) -> None:
    """Core v1 computes them from products with masks, in which zeros have no sign."""
    cases = pairs(dtype)
    there = translated(cases.done(), "mind")
    assert there.program is not None, there.errors
    found = run(there.program, cases.inputs, RunOptions(engine="reference"))
    for (name, want), got in zip(cases.wants, found.values(), strict=True):
        assert_same(name, got + 0.0, want + 0.0)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("form", ["stablehlo", "ptir-dump", "ptir-json"])
def test_formats(dtype: str, form: str) -> None:
    for cases in (pairs(dtype), reductions(dtype, 5)):
        cases.check(ptir_tools.read(ptir_tools.write(cases.done(), form)), RunOptions(engine="reference"))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("target", ["a3", "a5"])
def test_tiles(dtype: str, target: str) -> None:
    v = special(dtype)
    a, b = _square(v)
    c = Cases(dtype)
    x, y, zero = c.given(a), c.given(b), c.constant(-0.0, a.shape)
    c.gives("maximum", c.b.op("maximum", x, y), each(larger, a, b))
    c.gives("minimum", c.b.op("minimum", x, y), each(smaller, a, b))
    c.gives("larger of x and -x", c.b.op("maximum", x, c.b.op("neg", x)), each(lambda k: larger(k, -k), a))
    c.gives("maximum with -0.0", c.b.op("maximum", x, zero), each(lambda k: larger(k, -0.0), a))
    c.gives("minimum with -0.0", c.b.op("minimum", x, zero), each(lambda k: smaller(k, -0.0), a))
    zeros = np.random.default_rng(1).choice(np.array([0.0, -0.0, -0.0, -0.0], v.dtype), (16, 16))
    for kind, function in (("max", larger), ("min", smaller)):
        for axis, rows in ((1, zeros), (0, zeros.T)):
            w = c.given(zeros)
            want = np.array([function(*row) for row in rows.astype(np.float64).tolist()])
            c.gives(f"reduce_{kind} of axis {axis}", c.b.op(f"reduce_{kind}", w, axes=(axis,)), want)
    program, diagnostics = c.done(), Diagnostics()
    kernel = translate(program, "pto", diagnostics, Options(target=target))
    assert kernel is not None, [d.message for d in diagnostics]
    (function,) = program.functions
    given = {p.name: x for p, x in zip(function.params, c.inputs, strict=True)}
    given |= {o.name: np.zeros(want.shape, v.dtype) for (_, want), o in zip(c.wants, c.outputs, strict=True)}
    made = run(kernel, given, RunOptions(engine="reference"))
    for (name, want), out in zip(c.wants, c.outputs, strict=True):
        assert_same(name, made[out.name], want)


def _square(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of `v`, and the first ones again, as 16 x 16."""
    at = np.arange(256) % len(v) ** 2
    return v[at // len(v)].reshape(16, 16), v[at % len(v)].reshape(16, 16)


PARTS = [0.0, -0.0, 1.0, -3.0, 1e30, -1e30, math.inf, -math.inf, math.nan, 1e-30, 1e-42]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_complex_numbers_are_rounded_once(name: str, engine: str) -> None:
    """All pairs of numbers of special parts: computed in complex128, where no product of parts overflows, and rounded once."""
    z = np.array([complex(a, b) for a in PARTS for b in PARTS], np.complex64)
    x, y = np.repeat(z, len(z)), np.tile(z, len(z))
    c = Cases("cf32", z)
    out = c.b.op(name, c.given(x), c.given(y))
    c.gives(name, out, x)
    (got,) = run(c.done(), c.inputs, RunOptions(engine=engine)).values()
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name]
    with np.errstate(all="ignore"):
        want = function(x.astype(np.complex128), y.astype(np.complex128)).astype(np.complex64)
    for part in (np.real, np.imag):
        assert_same(name, part(got), part(want).astype(np.float64))

"""Constants are kept once: in the order in which steps read them, instead of their bytes, by all sessions of a program."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.arrays import from_literal, numpy_dtype
from ptir_tools.core.dtypes import PTIR_DTYPES
from ptir_tools.core.ir import Kept, Literal
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines.native.library import kernels
from tests.convert.translations import parse
from tests.engines.programs import FAST

MIB = 1 << 20
DTYPES = {str(d): d for d in PTIR_DTYPES}


def literals(program: ptir.Program) -> list[Literal]:
    return [op.attr("value") for op in program.main.body if op.defn.is_constant]


def strange(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Among the elements are NaN with bits of their own, infinities, subnormal numbers and both zeros."""
    rng = np.random.default_rng(1)
    made = rng.standard_normal(shape).astype(dtype)
    bits = made.reshape(-1).view(f"u{made.itemsize}")
    bits[::7] = rng.integers(0, 1 << 8 * made.itemsize, bits[::7].shape, np.uint64).astype(bits.dtype)
    bits[::5] &= 1 << (8 * made.itemsize - 1)
    return made


def product(x: np.ndarray, *ws: np.ndarray) -> ptir.Program:
    """The product of an input and constants, one after the other."""
    g = ptir.Graph()
    h = g.input("x", "f32", x.shape)
    for w in ws:
        h = h @ g.constant(w)
    return g.returns(h.named("y"))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes() and a.shape == b.shape and a.dtype == b.dtype


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "si8", "f64"])
def test_a_constant_comes_back_bit_for_bit(dtype: str, rows: int, turned: bool, engine: str) -> None:
    kind = numpy_dtype(DTYPES[dtype])
    w = np.arange(130 * 70).reshape(130, 70).astype(np.int8) if dtype == "si8" else strange((130, 70), kind)
    out = "si32" if dtype == "si8" else dtype
    types = "accum_dtype[si32] out_dtype[si32]" if dtype == "si8" else ""
    k, n = w.shape[::-1] if turned else w.shape
    program = parse(
        f"func @f(%x: tensor<{dtype}, {rows}x{k}>) -> tensor<{out}, {rows}x{n}> {{"
        f'  %c = constant() value[dense<"0x{w.tobytes().hex()}">] -> tensor<{dtype}, 130x70>'
        + (f"  %t = transpose(%c) perm[1, 0] -> tensor<{dtype}, 70x130>" if turned else "")
        + f"  %y = dot_general(%x, {'%t' if turned else '%c'}) contract_lhs[1] contract_rhs[0] {types}"
        f"    -> tensor<{out}, {rows}x{n}>  return %y }}", "ptir",
    )  # fmt: skip
    before = ptir.write(program)
    x = np.ones((rows, k), kind)
    session = ptir.compile(program, engine=engine)
    first = session({"x": x})["y"]
    assert same_bits(from_literal(literals(program)[0]), w)
    assert ptir.write(program) == before
    assert same_bits(session({"x": x})["y"], first)
    assert same_bits(ptir.compile(program, engine=engine)({"x": x})["y"], first)


@pytest.mark.parametrize("rows", [3, 64])
def test_what_is_packed_is_there_once(rows: int) -> None:
    x, w = np.ones((rows, 512), np.float32), np.random.default_rng(0).standard_normal((512, 512), np.float32)
    program = product(x, w)
    session = ptir.compile(program, engine="native")
    session({"x": x})
    (literal,) = literals(program)
    assert isinstance(literal.payload, Kept)
    assert literal.size == w.nbytes
    assert not literal.is_missing


def test_the_bytes_of_constants_go_one_after_the_other() -> None:
    """At the peak there is what is packed, and the bytes of one constant. A second session takes nothing more of it."""
    x = np.ones((64, 512), np.float32)
    ws = [np.random.default_rng(i).standard_normal((512, 512), np.float32) for i in range(12)]
    warm = product(x, ws[0] + 1, ws[1] + 1)
    ptir.compile(warm, engine="native")({"x": x})
    gc.collect()
    tracemalloc.start()
    try:
        program = product(x, *ws)
        session = ptir.compile(program, engine="native", reuse=True, threads=2)
        session({"x": x})
        gc.collect()
        packed = sum(a.nbytes for a in session.executable.kept.values())
        there, peak = tracemalloc.get_traced_memory()
        scratch = 4 * kernels().PACKED_SCRATCH * 2  # tiles split their operands in there: some MiB
        assert packed >= 12 * MIB
        assert there <= packed + scratch + 4 * MIB
        assert peak <= packed + scratch + 8 * MIB
        tracemalloc.reset_peak()
        other = ptir.compile(program, engine="native", reuse=True, threads=2)
        other({"x": x})
        assert tracemalloc.get_traced_memory()[1] <= there + 2 * scratch + 4 * MIB
        assert all(a is b for a, b in zip(session.executable.kept.values(), other.executable.kept.values(), strict=True))
    finally:
        tracemalloc.stop()


def test_no_memo_holds_the_elements_of_a_constant() -> None:
    x = np.ones((64, 512), np.float32)

    def used(seed: int) -> None:
        w = np.random.default_rng(seed).standard_normal((512, 512), np.float32)
        run(ptir.read(ptir.write(product(x, w))), {"x": x}, RunOptions(engine="native"))

    used(0)
    gc.collect()
    tracemalloc.start()
    try:
        for seed in range(1, 10):
            used(seed)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 5 * MIB  # the reader knows the last text
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("first", ["rows", "product"])
def test_who_else_reads_a_constant_has_it(first: str, engine: str) -> None:
    """Rows of a table that is a weight, too, in either order; and another layout of the same."""
    w = np.random.default_rng(0).standard_normal((256, 96), np.float32)
    x = np.random.default_rng(1).standard_normal((64, 96), np.float32)
    g = ptir.Graph()
    a, c = g.input("x", "f32", (64, 96)), g.constant(w)
    results = {"rows": lambda: c.take(g.constant(np.array([3, 200, 3], np.int32))), "product": lambda: a @ c.transpose([1, 0])}
    made = {name: results[name]() for name in sorted(results, key=lambda name: name != first)}
    made["other"] = (a @ c.transpose([1, 0])) @ c
    program = g.returns(*(v.named(name) for name, v in made.items()))
    session = ptir.compile(program, engine=engine)
    for found in (session({"x": x}), session({"x": x}), run(program, {"x": x}, RunOptions(engine="reference"))):
        np.testing.assert_array_equal(found["rows"], w[[3, 200, 3]])
        np.testing.assert_allclose(found["product"], x @ w.T, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(found["other"], x @ w.T @ w, rtol=1e-3, atol=1e-1)


@pytest.mark.parametrize("engine", FAST)
def test_a_constant_of_which_a_part_is_packed_stays(engine: str) -> None:
    w = np.random.default_rng(0).standard_normal((256, 96), np.float32)
    x = np.ones((64, 128), np.float32)
    g = ptir.Graph()
    a, c = g.input("x", "f32", x.shape), g.constant(w)
    program = g.returns((a @ c.slice([100, 0], [128, 96])).named("y"))
    (found,) = ptir.compile(program, engine=engine)({"x": x}).values()
    np.testing.assert_allclose(found, x @ w[100:228], rtol=1e-4, atol=1e-3)
    assert same_bits(from_literal(literals(program)[0]), w)


@pytest.mark.parametrize("engine", FAST)
def test_a_constant_that_is_an_output_and_a_weight(engine: str) -> None:
    w = strange((128, 96), np.dtype(np.float32))
    x = np.zeros((64, 128), np.float32)
    g = ptir.Graph()
    a, c = g.input("x", "f32", x.shape), g.constant(w)
    program = g.returns((a @ c).named("y"), c.named("w"))
    session = ptir.compile(program, engine=engine)
    for _ in range(2):
        assert same_bits(session({"x": x})["w"], w)


def test_equal_constants_are_one_though_one_is_packed() -> None:
    x, w = np.ones((64, 128), np.float32), np.random.default_rng(0).standard_normal((128, 96), np.float32)
    packed, other = product(x, w), product(x, w)
    ptir.compile(packed, engine="native")({"x": x})
    (a,), (b,) = literals(packed), literals(other)
    assert isinstance(a.payload, Kept)
    assert a.same(b)
    assert b.same(a)
    assert hash(a.key) == hash(b.key)
    (c,) = literals(product(x, w + 1))
    assert not a.same(c)


def test_a_program_whose_constants_are_packed_is_written_as_before() -> None:
    x, w = np.ones((64, 128), np.float32), strange((128, 96), np.dtype(np.float32))
    program = product(x, w)
    want = ptir.write(program)
    ptir.compile(program, engine="native")({"x": x})
    assert ptir.write(program) == want

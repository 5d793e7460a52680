"""What a run takes besides its inputs and outputs: the planned arena and one op's scratch. Movement takes nothing."""

from __future__ import annotations

import functools
import gc
import itertools
import mmap
import operator
import tracemalloc
from collections import Counter

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import BF16, F32, SI32
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import Literal
from ptir_tools.core.verify import verify
from ptir_tools.engines import RunOptions, native, run, specialized
from ptir_tools.engines.choose import prepare
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy import linalg
from ptir_tools.engines.numpy.constants import constant
from ptir_tools.engines.numpy.frame import LARGE, PAGE
from ptir_tools.engines.reference import widest
from ptir_tools.engines.thresholds import at
from tests import models
from tests.convert.translations import parse
from tests.engines.naive_graphs import attention, convolution, product
from tests.engines.programs import FAST, build
from tests.ptir.loop_programs import Carries
from tests.tiny.graphs import good, graph, node, source

pytestmark = pytest.mark.usefixtures("measured")

MIB = 1 << 20


def kernel_room():
    """Bytes of the packed panels that two threads work on: as large as the caches that they fill, whatever the operands are."""
    if not native.available():
        return 0
    return 2 * 4 * max(getattr(kernels(), f"{name}_SCRATCH") for name in ("GEMM", "IGEMM", "BGEMM", "PACKED"))


def traced(call):
    """(result, bytes at the peak) of a call."""
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def beside(program, engine):
    """The peak of a whole `run` without what it returns. The first run is for what is loaded once."""
    inputs = random_inputs(program, 0)
    options = RunOptions(engine=engine, threads=2)
    run(program, inputs, options)
    outputs, peak = traced(lambda: run(program, inputs, options))
    return peak - sum(a.nbytes for a in outputs.values())


# ---- The plan is what a run takes.


def softmax():
    program, b, (x,) = build((F32, (2048, 1024)))
    shape, row = (2048, 1024), {"axes": (1,), "keepdims": True}
    e = b.op("exp", b.op("sub", x, b.op("broadcast_to", b.op("reduce_max", x, **row), result_shape=shape)))
    y = b.op("div", e, b.op("broadcast_to", b.op("reduce_sum", e, **row), result_shape=shape))
    b.results(b.op("reduce_sum", b.op("mul", y, y), axes=(0,)))
    return program


def perceptron():
    program, b, (x, w, v) = build((F32, (1024, 512)), (F32, (512, 2048)), (F32, (2048, 512)))
    h = b.op("dot_general", x, w, contract_lhs=(1,), contract_rhs=(0,))
    h = b.op("mul", h, b.op("erf", h))
    b.results(b.op("dot_general", h, v, contract_lhs=(1,), contract_rhs=(0,)))
    return program


def narrow():
    program, b, (x, y) = build((BF16, (1024, 1024)), (BF16, (1024, 1024)))
    z = b.op("dot_general", b.op("tanh", x), b.op("exp", y), contract_lhs=(1,), contract_rhs=(0,))
    b.results(b.op("reduce_sum", z, axes=(0,)))
    return program


def indexed():
    program, b, (x, i, u) = build((F32, (1024, 1024)), (SI32, (1024, 1024)), (F32, (1024, 1024)))
    y = b.op("scatter_reduce", x, b.op("scatter_reduce", i, i, i, axis=1, reduce="replace"), u, axis=0)
    g = b.op("gather", y, i, axis=1)
    b.results(
        b.op("top_k", g, k=5),
        b.op("layer_norm", g, b.op("reduce_max", g, axes=(0,)), b.op("reduce_min", g, axes=(0,)), epsilon=1e-5),
    )
    return program


def windowed():
    program, b, (x, w) = build((F32, (1, 64, 64, 64)), (F32, (576, 64)))
    p = b.op("extract_patches", x, window=(3, 3), padding=((1, 1), (1, 1)))
    y = b.op("dot_general", p, w, contract_lhs=(3,), contract_rhs=(0,))
    two, ones = (1, 2, 2, 1), (1, 1, 1, 1)
    dims = {"window_dims": two, "strides": two, "padding": ((0, 0),) * 4, "base_dilation": ones, "window_dilation": ones}
    b.results(b.op("reduce_window", b.op("neg", y), reduce="max", **dims))
    return program


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("make", [softmax, perceptron, narrow, indexed, windowed])
def test_a_run_takes_the_arena_and_one_ops_scratch(make, engine):
    program = make()
    assert verify(program, Diagnostics())
    options = RunOptions(engine=engine, threads=2)
    executable = prepare(program, options, Diagnostics())
    inputs = list(random_inputs(program, 0).values())
    executable(inputs, Context())
    planned = executable.own.peak + executable.scratch
    assert executable.scratch <= 2 * widest([executable.function]) + kernel_room()
    assert beside(program, engine) <= planned + MIB / 4


def unpacked(executable):
    """The constants of products that have another form, unless they are small, and whether nobody else reads them."""
    uses = Counter(v for block in (executable.function, *executable.plan.regions) for op in block.body for v in op.values())
    for op, name in executable.kept:
        found = constant(op.operands[1]) if name == "packed" and op.defn.kernel.role == "product" else None
        if found is not None and found.is_whole and found.literal.type.nbytes >= at.freed_literal:
            yield found.literal, all(uses[v] == 1 for v in op.values() if v.op is not None)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", sorted(models.MODULES))
def test_a_run_of_a_model_allocates_nothing(name, engine):
    """Bound to its inputs, it has the planned arena, one step's scratch, its outputs and what is kept of constants, once."""
    options = RunOptions(engine=engine, threads=2)
    arrays = models.inputs(name)
    program = specialized(models.program(name), [arrays[p.name] for p in models.program(name).main.params], options)
    executable = prepare(program, options, Diagnostics())
    given = [arrays[p.name] for p in executable.function.params]
    only_arrays = [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]
    tracemalloc.start()
    try:
        bound = executable.bind(given)
        gc.collect()
        there = sum(t.size for t in tracemalloc.take_snapshot().filter_traces(only_arrays).traces)
        bound(Context())  # tasks are made
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        bound(Context())
        more = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    outputs = sum(a.nbytes for a in bound.results)
    kept = sum(a.nbytes for a in executable.kept.values())
    twice = [x.type for x, a in unpacked(executable) if isinstance(x.payload, bytes) and a]
    assert twice == []
    blocks = 3 + len(bound.results)  # each may begin anywhere in a page
    assert there <= executable.own.peak + executable.scratch + outputs + kept + blocks * PAGE
    assert more <= (1 << 12 if engine == "native" else 1 << 17)  # NumPy's functions take buffers


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "si8"])
@pytest.mark.parametrize("rows", [3, 64])
def test_the_limit_of_memory_counts_all_that_is_kept_of_a_constant(dtype, rows):
    """Packed, it may take more than its own bytes."""
    out = "si32" if dtype == "si8" else dtype
    one = "2" if dtype == "si8" else "2.0"
    types = f"accum_dtype[{out}] out_dtype[{out}]" if dtype == "si8" else ""
    program = parse(
        f"func @f(%x: tensor<{dtype}, {rows}x130>) -> tensor<{out}, {rows}x70> {{"
        f"  %c = constant() value[dense<{one}>] -> tensor<{dtype}, 130x70>"
        f"  %y = dot_general(%x, %c) contract_lhs[1] contract_rhs[0] {types} -> tensor<{out}, {rows}x70>"
        "  return %y }", "ptir",
    )  # fmt: skip
    executable = prepare(program, RunOptions(engine="native"), Diagnostics())
    executable.bind([np.zeros((rows, 130), numpy_dtype(program.main.params[0].type.dtype))])
    kept = sum(a.nbytes for (source, _), a in executable.kept.items() if isinstance(source, Literal))
    assert 0 < kept <= linalg.kept_bytes([executable.function], executable.target.packed)


# ---- Loops: what is carried has one storage.


@pytest.mark.parametrize("first", [0, pytest.param(200, marks=pytest.mark.slow)])
def test_loops_that_write_over_what_they_carry_are_right(first):
    """Held to NumPy; on the engine that defines, too."""
    for seed in range(first, first + (60 if first == 0 else 1000)):
        made = Carries(seed)
        assert verify(made.program, Diagnostics())
        for engine in ("reference", *FAST):
            found = run(made.program, made.inputs, RunOptions(engine=engine))
            for got, wanted in zip(found.values(), made.expected, strict=True):
                np.testing.assert_array_equal(got, wanted, f"seed {seed}, {engine}")


def scanned(rows, kept):
    """A state of 256 KiB that every row is added to; 64 stacked sums of it, for each column, are seen in another order."""
    g = ptir.Graph()
    state, x = g.input("state", "f32", (256, 256)), g.input("x", "f32", (64, 256))
    first = state.tanh() if rows else state

    def body(state, x):
        after = state + x.broadcast_to([256, 256])
        return after, (state if kept else after).reduce_sum([0], keepdims=True)

    last, stack = g.scan([first], [x], body)
    return g.returns(last.named("last"), stack.transpose([1, 0, 2]).named("sums"))


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("rows", [False, True])
def test_a_carry_is_there_once(rows, kept, engine):
    """Its first value, the parameter, its next value and the result; only a body that reads it after that needs another."""
    program = scanned(rows, kept)
    assert verify(program, Diagnostics())
    own = prepare(program, RunOptions(engine=engine), Diagnostics()).own
    state, sums = 256 * 256 * 4, 64 * 256 * 4
    assert own.nbytes("result") == state + sums
    assert own.peak <= 4096 + (state if kept else 0)


# ---- Where arrays are: loads wait for stores to addresses a little before theirs, modulo 1 MiB on huge pages.


@pytest.mark.parametrize("offset", [0, 16, 48, 64, 128, 2048])
def test_outputs_arena_and_scratch_are_apart_from_inputs(offset):
    """Whatever the place of an input in its page, nothing that is written is a little behind it."""
    n = 1 << 20
    program, b, (x, y) = build((F32, (n,)), (F32, (n,)))
    b.results(b.op("exp", b.op("add", x, y)), b.op("reduce_sum", b.op("tanh", b.op("mul", x, y)), axes=(0,)))
    assert verify(program, Diagnostics())
    room = mmap.mmap(-1, 4 * n * 4)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(room, np.uint8)
    given = [whole[start + offset :][: 4 * n].view(np.float32) for start in (0, 8 * n)]
    for engine in FAST:
        bound = prepare(program, RunOptions(engine=engine), Diagnostics()).bind(given)
        written = [bound.results[0], bound.frame.arena, bound.shared.scratch]
        starts = [a.ctypes.data for a in written if a.nbytes >= LARGE]
        assert starts
        for start, x in itertools.product(starts, given):
            distance = (start - x.ctypes.data) % MIB
            assert distance == 0 or distance >= 256, (engine, distance)


# ---- Movement on its own takes nothing.

WIDE = source((512, 1024))
MOVES = {
    "RESHAPE": [node("RESHAPE", id="v", result_shape=[2, 256, 1024])],
    "RESHAPE of a PERMUTE": [node("PERMUTE", id="t", perm=[1, 0]), node("RESHAPE", "t", id="v", result_shape=[4, 256, 512])],
    "PERMUTE": [node("PERMUTE", id="v", perm=[1, 0])],
    "EXPAND": [node("EXPAND", id="v", result_shape=[50, 512, 1024], broadcast_dimensions=[1, 2])],
    "SHRINK": [node("SHRINK", id="v", lo=[1, 2], hi=[511, 1000])],
    "SHRINK by steps": [node("SHRINK", id="v", lo=[1, 2], hi=[511, 1000], step=[2, 3])],
    "FLIP": [node("FLIP", id="v", axes=[0, 1])],
    "VIEW, shifted": [node("VIEW", id="v", result_shape=[500, 1000], index_map={"map": ["i0+3", "i1+7"]})],
    "VIEW, windows": [node("VIEW", id="v", result_shape=[512, 1000, 25], index_map={"map": ["i0", "i1+i2"]})],
    "POOL": [node("POOL", id="v", kernel=[3, 3], stride=[1, 2], dilation=[2, 1])],
    "all of them": [
        node("POOL", id="a", kernel=[3, 3], stride=[2, 1], dilation=[1, 1]),
        node("FLIP", "a", id="b", axes=[0, 3]),
        node("PERMUTE", "b", id="c", perm=[2, 0, 1, 3]),
        node("SHRINK", "c", id="d", lo=[0, 5, 6, 0], hi=[3, 205, 1000, 3], step=[1, 1, 2, 1]),
        node("EXPAND", "d", id="v", result_shape=[7, 3, 200, 497, 3], broadcast_dimensions=[1, 2, 3, 4]),
    ],
}


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_movement_does_not_materialize(moves, engine):
    """A sum over all axes but the last sees its elements where they are."""
    rank = len(good(graph(WIDE, *moves)).main.results[0].type.shape)
    program = good(graph(WIDE, *moves, node("REDUCE", "v", op="MAX", axes=list(range(rank)), dtype="fp32")))
    assert beside(program, engine) < MIB


@pytest.mark.parametrize("engine", FAST)
def test_padding_is_written_where_its_user_writes(engine):
    wide = source((515, 1031), id="z")
    program = good(graph(WIDE, wide, node("PAD", id="v", pad=[[1, 2], [3, 4]], value=0.5), node("SUB", "v", "z")))
    assert beside(program, engine) < MIB


# ---- Naive contractions.


PADDED = 64 * 34 * 34 * 4
WINDOWS = 9 * 64 * 32 * 32 * 4
NAIVE = {
    "product": (product(512, 256, 384), 0),
    "convolution": (convolution(64, 32, 48), PADDED + WINDOWS),
    "strided convolution": (convolution(64, 32, 48, stride=2), PADDED + WINDOWS // 4),
    "grouped convolution": (convolution(64, 32, 48, groups=4), PADDED + WINDOWS),
    "attention": (attention(4, 256, 64), 4 * 256 * 256 * 4),
}


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("text,room", NAIVE.values(), ids=NAIVE)
def test_a_naive_contraction_takes_what_its_dot_general_takes(text, room, engine):
    """The windows of a convolution are packed once; what is multiplied is never there as a whole."""
    assert beside(good(text), engine) <= 1.1 * room + (kernel_room() if engine == "native" else 0) + MIB / 2


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("text", [text for text, _ in NAIVE.values()], ids=NAIVE)
def test_naive_contractions_are_right(text, engine):
    program = good(text)
    inputs = list(random_inputs(program, 0).values())
    (found,) = run(program, inputs, RunOptions(engine=engine)).values()
    np.testing.assert_allclose(found, exact(inputs, found.shape), rtol=1e-4, atol=1e-3)


def exact(inputs, shape):
    """The same in float64."""
    wide = [a.astype(np.float64) for a in inputs]
    if len(wide) == 3:
        q, k, v = wide
        s = np.einsum("bhmd,bhnd->bhmn", q, k) * 0.125
        e = np.exp(s - s.max(-1, keepdims=True))
        return np.einsum("bhmn,bhnd->bhmd", e / e.sum(-1, keepdims=True), v)
    if wide[0].ndim == 2:
        return wide[0] @ wide[1]
    x, w = wide
    groups, stride = x.shape[1] // w.shape[1], (x.shape[2] - 1) // (shape[2] - 1) if shape[2] < x.shape[2] else 1
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))).reshape(1, groups, w.shape[1], *(n + 2 for n in x.shape[2:]))
    seen = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (3, 4))[:, :, :, ::stride, ::stride]
    return np.einsum("ngcyxij,grcij->ngryx", seen, w.reshape(groups, -1, *w.shape[1:])).reshape(shape)


@pytest.mark.parametrize("engine", FAST)
def test_a_run_leaves_nothing_behind(engine):
    """Without waiting for the collector of cycles."""
    program = windowed()
    assert verify(program, Diagnostics())
    inputs = random_inputs(program, 0)
    run(program, inputs, RunOptions(engine=engine))
    gc.disable()
    try:
        tracemalloc.start()
        for _ in range(3):
            run(program, inputs, RunOptions(engine=engine))
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("n", [3, 16, 64, 200])
@pytest.mark.parametrize("last", ["add(%y, %b)", "maximum(%b, %y)", "add(%y, %e)", "mul(%e, %y)"])
def test_a_product_and_what_follows_it_are_not_written_over_what_it_reads(last: str, n: int, engine: str) -> None:
    t = f"tensor<f32, {n}x{n}>"
    text = f"""func @f(%x: {t}, %b: {t}) -> {t} {{
  %e = exp(%x) -> {t}
  %y = dot_general(%e, %b) contract_lhs[1] contract_rhs[0] -> {t}
  %z = {last} -> {t}
  %r = neg(%z) -> {t}
  return %r
}}
"""
    rng = np.random.default_rng(n)
    x, b = (rng.normal(size=(n, n)).astype(np.float32) for _ in range(2))
    e = np.exp(x.astype(np.float64))
    y = e @ b
    want = -{"add(%y, %b)": y + b, "maximum(%b, %y)": np.maximum(b, y), "add(%y, %e)": y + e, "mul(%e, %y)": e * y}[last]
    (found,) = run(ptir.read(text), [x, b], RunOptions(engine=engine)).values()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("n", [3, 64, 128, 600])
@pytest.mark.parametrize("count", [2, 3])
def test_a_fusion_group_may_read_several_products(count: int, n: int, engine: str) -> None:
    x = np.random.default_rng(0).normal(size=(n, n)).astype(np.float32)
    g = ptir.Graph()
    a = g.input("x", "f32", (n, n))
    parts = [(a + float(i)) @ a for i in range(count)]
    program = g.returns(functools.reduce(operator.add, parts).named("y"))
    (found,) = run(program, {"x": x}, RunOptions(engine=engine)).values()
    want = sum((x.astype(np.float64) + i) @ x for i in range(count))
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-2)


def test_a_loop_may_begin_with_an_inline_constant() -> None:
    text = """program @f (spec_version = ptir.v0.4) {
func @f(%x: tensor<f32, 5x4>) -> tensor<f32, 4> {
  %e = exp(%x) -> tensor<f32, 5x4>
  %s = scan(dense<1.0> : tensor<f32, 4>, %e) body_region[^b] carry_count[1] scan_output_count[0] -> tensor<f32, 4>
  return %s
}
region ^b(%c: tensor<f32, 4>, %v: tensor<f32, 4>) -> (tensor<f32, 4>) {
  %n = add(%c, %v) -> tensor<f32, 4>
  return %n
}
}
"""
    program = ptir.read(text)
    assert not ptir.plan(program).functions["f"].faults()
    x = np.zeros((5, 4), np.float32)
    for engine in FAST:
        (found,) = run(program, [x], RunOptions(engine=engine)).values()
        assert found.tolist() == [6] * 4

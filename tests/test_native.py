"""The C kernels against NumPy, one by one: odd sizes, strides, NaN, infinities; and what the module refuses."""

from __future__ import annotations

import functools
import math
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dtypes import F32, SI32
from ptir_tools.core.ir import Literal
from ptir_tools.core.types import tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import RunOptions, native, run
from ptir_tools.engines.native import clusters, moves
from ptir_tools.engines.native.library import kernels

needs_kernels = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")
ERF = np.vectorize(math.erf, otypes=[float])


def product(a, b, packed=False):
    out = np.full((a.shape[0], a.shape[1], b.shape[2]), np.nan, np.float32)
    right = b
    if packed:
        panel = kernels().GEMM_PANEL
        right = np.full(-(-b.shape[2] // panel) * panel * b.shape[1], np.nan, np.float32)
        kernels().pack(right, b[0])
    kernels().gemm(out, a, right, np.empty(kernels().GEMM_SCRATCH, np.float32))
    return out


def tiles(name, arrays, out, whole_rows=False, scalars=0, repeat=1):
    """One instruction, or the same again and again, over arrays of [rows, columns] or [rows, 1]."""
    rows, columns = max(a.shape for a in (*arrays, out))
    n = len(arrays)
    code = bytes([kernels().OPS.index(name), n, *(*range(n), 0, 0, 0)[:3], scalars]) * repeat
    room = np.empty((n + 1) * kernels().tile_floats(rows, columns, whole_rows), np.float32)
    kernels().tiles(code, (*arrays, out), n, n + 1, rows, columns, whole_rows, room)
    return out


def units(actual, exact):
    """The largest error in units in the last place, where the exact value is a finite float."""
    near = exact.astype(np.float32)
    use = np.isfinite(near) & (np.abs(near) >= np.finfo(np.float32).tiny)
    return float(np.max(np.abs(actual[use] - exact[use]) / np.spacing(np.abs(near[use])).astype(float), initial=0))


@needs_kernels
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 300),
    st.booleans(),
    st.booleans(),
    st.integers(0, 9),
)
def test_products_of_all_sizes_and_strides(batch, m, n, k, left, right, seed):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((batch, k, m) if left else (batch, m, k)).astype(np.float32)
    b = rng.standard_normal((batch, n, k) if right else (batch, k, n)).astype(np.float32)
    a, b = a.swapaxes(1, 2) if left else a, b.swapaxes(1, 2) if right else b
    exact = a.astype(float) @ b.astype(float)
    scale = np.abs(a).astype(float) @ np.abs(b).astype(float)
    found = product(a, b)
    assert (np.abs(found - exact) <= (k + 1) * 2.0**-24 * scale).all()
    np.testing.assert_array_equal(product(a[:1], b[:1], packed=True), found[:1])


@needs_kernels
@pytest.mark.parametrize("m,n,k", [(6, 16, 256), (97, 1030, 257), (96, 1024, 512), (1, 2000, 3), (200, 1, 600)])
def test_products_across_block_boundaries(m, n, k):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((1, m, k), (1, k, n)))
    np.testing.assert_allclose(product(a, b), a.astype(float) @ b.astype(float), rtol=0, atol=k * 1e-6)
    np.testing.assert_array_equal(product(a, b, packed=True), product(a, b))


@needs_kernels
def test_products_with_shared_and_special_operands():
    a = np.array([[[1, np.inf], [np.nan, 1]]], np.float32)
    b = np.broadcast_to(np.array([[1, 2, 0], [1, 0, 1]], np.float32), (2, 2, 3))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(product(np.concatenate([a, a]), b), np.concatenate([a, a]) @ b)


@needs_kernels
@settings(max_examples=60, deadline=None)
@given(st.permutations(range(4)), st.lists(st.sampled_from([1, 2, 7, 8, 19, 65]), min_size=4, max_size=4), st.integers(1, 3))
def test_copies_turn_any_axes(perm, shape, workers):
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape).transpose(perm)
    out = np.empty(x.shape, x.dtype)
    for function, arguments in moves.copied(out, x, SimpleNamespace(threads=workers)):
        function(*arguments)
    np.testing.assert_array_equal(out, x)


@needs_kernels
def test_turning_refuses_what_is_not_turned():
    square = np.zeros((1, 4, 4), np.float32)
    with pytest.raises(ValueError, match="strides"):
        kernels().turn(square, square)
    with pytest.raises(ValueError, match="strides"):
        kernels().turn(np.zeros((1, 4, 5), np.float32), square.swapaxes(1, 2))
    with pytest.raises(ValueError, match="dtype"):
        kernels().turn(np.zeros((1, 4, 4)), square.swapaxes(1, 2))


@needs_kernels
def test_a_row_repeated_over_all_rows_is_read_once_and_outputs_may_be_inputs():
    rng = np.random.default_rng(0)
    x, row = rng.standard_normal((5000, 3)).astype(np.float32), rng.standard_normal(3).astype(np.float32)
    exact = x * row
    repeated = np.broadcast_to(row, x.shape)
    np.testing.assert_array_equal(tiles("mul", [x, repeated], np.empty_like(x)), exact)
    np.testing.assert_array_equal(tiles("mul", [x, repeated], x), exact)


class Alarm(Exception):
    pass


def ring(*_):
    raise Alarm


@needs_kernels
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that sends a signal")
@pytest.mark.parametrize("kernel", ["gemm", "tiles"])
def test_long_kernels_answer_signals(kernel):
    """Much work, left before its end: the last element is as it was."""
    n = 4096
    x = np.broadcast_to(np.float32(1), (60, n, n))
    tall = np.broadcast_to(np.float32(1), (1 << 20, 1))
    out = np.zeros(x.shape if kernel == "gemm" else tall.shape, np.float32)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Alarm):
            if kernel == "gemm":
                kernels().gemm(out, x, x, np.empty(kernels().GEMM_SCRATCH, np.float32))
            else:
                tiles("tanh", [tall], out, repeat=1 << 14)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert out.flat[-1] == 0


@needs_kernels
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shape", [(1, 2, 130, 200, 24, 40), (3, 1, 257, 129, 8, 7), (1, 1, 100, 2000, 33, 64)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_one_step_and_right(shape, masked, workers):
    """Two products with a softmax between: the scores are never there as a whole."""
    lead, heads, m, n, depth, width = shape
    program, b = single_function(load_dialect("ptir"))
    q, k, v = (
        b.param(tensor(F32, (lead, heads, *s)), name) for s, name in (((m, depth), "q"), ((n, depth), "k"), ((n, width), "v"))
    )
    square, batch = (lead, heads, m, n), {"batch_lhs": (0, 1), "batch_rhs": (0, 1)}
    spread = functools.partial(b.op, "broadcast_to", result_shape=square)
    s = b.op("dot_general", q, k, **batch, contract_lhs=(3,), contract_rhs=(3,))
    s = b.op("mul", s, spread(Literal(tensor(F32), np.float32(0.25).tobytes())))
    if masked:
        rows, columns = (b.op("iota", shape=(m, n), dtype=SI32, axis=a) for a in (0, 1))
        low = spread(Literal(tensor(F32), np.float32(-1e9).tobytes()))
        s = b.op("select", spread(b.op("compare_ge", rows, columns)), s, low)
    last = {"axes": (3,), "keepdims": True}
    e = b.op("exp", b.op("sub", s, spread(b.op("reduce_max", s, **last))))
    p = b.op("div", e, spread(b.op("reduce_sum", e, **last)))
    b.results(b.op("dot_general", p, v, **batch, contract_lhs=(3,), contract_rhs=(2,)))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(x.type.static_shape).astype(np.float32) for x in (q, k, v)]
    options = RunOptions(engine="native", threads=workers)
    executable = native.Executable(program, program.main, options)
    assert max(map(len, executable.target.partition(program.main))) >= 8
    assert masked or executable.own.peak == 0
    (found,) = run(program, inputs, options).values()
    wide = [a.astype(float) for a in inputs]
    s = np.einsum("lhmd,lhnd->lhmn", *wide[:2]) / 4
    s = np.where(np.arange(m)[:, None] >= np.arange(n), s, -1e9) if masked else s
    e = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(found, e / e.sum(-1, keepdims=True) @ wide[2], rtol=1e-4, atol=1e-5)


UNARY = {
    "neg": (np.negative, 0),
    "abs": (np.abs, 0),
    "exp": (np.exp, 2),
    "log": (np.log, 2),
    "tanh": (np.tanh, 7),
    "erf": (ERF, 7),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "reciprocal": (lambda x: 1 / x, 1),
}
SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1e-39,
    1.2e-38,
    3.4e38,
    -3.4e38,
    88.72,
    88.73,
    -87.4,
    -103.9,
    -104.1,
]


@needs_kernels
@pytest.mark.parametrize("name", UNARY)
def test_functions_are_within_their_error(name):
    exact, limit = UNARY[name]
    grid = [np.linspace(-110, 110, 20001), np.linspace(-1, 1, 20001), np.logspace(-38, 38, 5001), SPECIAL]
    x = np.concatenate(grid).astype(np.float32)[None]
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(float))
        actual = tiles(name, [x], np.empty_like(x))
        assert units(actual, wanted) <= limit
        rounded = wanted.astype(np.float32)
        extreme = ~np.isfinite(rounded)
        np.testing.assert_array_equal(actual[extreme], rounded[extreme])
        tiny = np.abs(rounded) < np.finfo(np.float32).tiny
        assert (np.abs(actual[tiny] - wanted[tiny]) <= 2**-148).all()


@needs_kernels
@pytest.mark.parametrize("name", UNARY)
def test_functions_give_the_same_bits_wherever_an_element_stands(name):
    """Between any neighbors, in any place of a tile, in the last elements."""
    x = np.concatenate([np.linspace(-12, 12, 1000), np.logspace(-38, 3, 1000)]).astype(np.float32)
    alone = np.concatenate([tiles(name, [v[None, None]], np.empty((1, 1), np.float32)) for v in x], axis=1)[0]
    rng = np.random.default_rng(0)
    for _ in range(20):
        order, some = rng.permutation(len(x)), x.copy()
        some[rng.integers(0, len(x), 5)] = SPECIAL[:5]
        found = tiles(name, [some[order][None]], np.empty((1, len(x)), np.float32))[0]
        same = some[order] == x[order]
        np.testing.assert_array_equal(found[same].view(np.int32), alone[order][same].view(np.int32))


BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "compare_lt": np.less,
    "compare_le": np.less_equal,
    "compare_eq": np.equal,
    "compare_ge": np.greater_equal,
    "compare_gt": np.greater,
    "compare_ne": np.not_equal,
}


@needs_kernels
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("left,right", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("rows,columns", [(16, 16), (3, 5000), (300, 7)])
def test_binary_instructions_with_values_per_row(name, left, right, rows, columns):
    rng = np.random.default_rng(1)
    x, y = (rng.choice(np.array([*SPECIAL, 1.5, -2.5], np.float32), (rows, 1 if one else columns)) for one in (left, right))
    out = np.empty((rows, 1 if left and right else columns), np.float32)
    with np.errstate(all="ignore"):
        wanted = np.broadcast_to(BINARY[name](x, y), out.shape).astype(np.float32)
    np.testing.assert_array_equal(tiles(name, [x, y], out, scalars=(left and right) | left << 1 | right << 2), wanted)


@needs_kernels
@pytest.mark.parametrize("rows,columns", [(1, 1), (5, 31), (7, 32), (3, 33), (40, 100), (2, 5000)])
def test_row_reductions(rows, columns):
    x = np.random.default_rng(2).standard_normal((rows, columns)).astype(np.float32)
    out = [tiles(f"reduce_{k}", [x], np.empty((rows, 1), np.float32), True, 1) for k in ("sum", "max", "min")]
    np.testing.assert_allclose(out[0], x.astype(float).sum(1, keepdims=True), rtol=0, atol=columns * 1e-7)
    np.testing.assert_array_equal(out[1], x.max(1, keepdims=True))
    np.testing.assert_array_equal(out[2], x.min(1, keepdims=True))
    x[0, -1] = np.nan
    for kind in ("sum", "max", "min"):
        found = tiles(f"reduce_{kind}", [x], np.empty((rows, 1), np.float32), True, 1)
        assert np.isnan(found[0, 0]) and not np.isnan(found[1:]).any()


@needs_kernels
def test_arrays_of_any_strides_and_flags():
    x = np.arange(60, dtype=np.float32).reshape(10, 6)
    np.testing.assert_array_equal(tiles("neg", [x.T[:, ::2]], np.empty((6, 5), np.float32)), -x.T[:, ::2])
    row = np.broadcast_to(x[0], (10, 6))
    np.testing.assert_array_equal(tiles("add", [x, row], np.empty_like(x)), x + row)
    flags = np.empty((10, 6), np.bool_)
    np.testing.assert_array_equal(tiles("compare_gt", [x, row], flags), x > row)
    np.testing.assert_array_equal(tiles("select", [flags, x, row], np.empty_like(x)), np.where(flags, x, row))


@needs_kernels
def test_the_module_refuses_what_does_not_fit():
    lib, x = kernels(), np.zeros((4, 4), np.float32)
    room = np.empty(lib.GEMM_SCRATCH, np.float32)
    stack = x[None]
    with pytest.raises(ValueError, match="do not multiply"):
        lib.gemm(stack, stack, np.zeros((1, 5, 4), np.float32), room)
    with pytest.raises(ValueError, match="do not multiply"):
        lib.gemm(stack, stack, np.zeros(63, np.float32), room)
    with pytest.raises(ValueError, match="do not multiply"):
        lib.gemm(stack, stack, x, room)
    with pytest.raises(ValueError, match="as long as needed"):
        lib.pack(np.zeros(63, np.float32), x)
    with pytest.raises(ValueError, match="wrong dtype"):
        lib.gemm(stack, stack, np.zeros((1, 4, 4)), room)
    with pytest.raises(ValueError, match="too small"):
        lib.gemm(stack, stack, stack, room[:10])
    with pytest.raises(ValueError, match="too small"):
        lib.tiles(bytes([0, 1, 0, 0, 0, 0]), (x, x.copy()), 1, 2, 4, 4, False, room[:8])
    with pytest.raises(ValueError, match="out of range"):
        lib.tiles(bytes([0, 9, 0, 0, 0, 0]), (x, x.copy()), 1, 2, 4, 4, False, room)
    with pytest.raises(ValueError, match="shape of the domain"):
        lib.tiles(bytes([0, 1, 0, 0, 0, 0]), (x[:, :2], x.copy()), 1, 2, 4, 4, False, room)
    frozen = x.copy()
    frozen.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match="read-only"):
        lib.tiles(bytes([0, 1, 0, 0, 0, 0]), (x, frozen), 1, 2, 4, 4, False, room)


def softmax():
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, (5, 40)), "x")
    high = b.op("broadcast_to", b.op("reduce_max", x, axes=(1,), keepdims=True), result_shape=(5, 40))
    e = b.op("exp", b.op("sub", x, high))
    b.results(b.op("div", e, b.op("broadcast_to", b.op("reduce_sum", e, axes=(1,), keepdims=True), result_shape=(5, 40))))
    return program


def test_a_softmax_is_one_cluster():
    assert [len(step) for step in clusters.partition(softmax().main)] == [7]


def test_a_cluster_ends_where_the_shape_changes():
    program, b = single_function(load_dialect("ptir"))
    x, y = b.param(tensor(F32, (4, 4)), "x"), b.param(tensor(F32, (8,)), "y")
    z = b.op("exp", b.op("add", x, x))
    w = b.op("transpose", z, perm=(1, 0))
    b.results(b.op("neg", w), b.op("tanh", b.op("neg", y)))
    assert [[op.defn.short for op in step] for step in clusters.partition(program.main)] == [
        ["add", "exp"],
        ["transpose"],
        ["neg"],
        ["neg", "tanh"],
    ]


def test_without_the_extension_the_engine_is_a_usage_error(monkeypatch):
    monkeypatch.setattr(native, "available", lambda: False)
    data = np.zeros((5, 40), np.float32)
    with pytest.raises(UsageError, match="was not built"):
        run(softmax(), [data], RunOptions(engine="native"))
    assert run(softmax(), [data])

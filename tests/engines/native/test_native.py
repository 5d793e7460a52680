"""The C kernels against NumPy, one by one: odd sizes, strides, NaN, infinities; and what the module refuses."""

from __future__ import annotations

import functools
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptir_tools as ptir
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dtypes import F32, SI32
from ptir_tools.core.ir import Literal
from ptir_tools.core.types import tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import RunOptions, native, run
from ptir_tools.engines.native import fusion, moves
from ptir_tools.engines.native.library import kernels

needs_kernels = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")


def product(a, b, packed=False):
    out = np.full((a.shape[0], a.shape[1], b.shape[2]), np.nan, np.float32)
    right = b
    if packed:
        right = np.full(kernels().packed_size(b[0]), np.nan, np.float32)
        kernels().pack(right, b[0])
    kernels().gemm(out, a, right, np.empty(kernels().GEMM_SCRATCH, np.float32))
    return out


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
    assert (np.abs(product(a, b) - exact) <= (k + 1) * 2.0**-24 * scale).all()
    assert (np.abs(product(a[:1], b[:1], packed=True) - exact[:1]) <= (k + 1) * 2.0**-24 * scale[:1]).all()


@needs_kernels
@pytest.mark.parametrize("m,n,k", [(6, 16, 256), (97, 1030, 257), (96, 1024, 512), (1, 2000, 3), (200, 1, 600)])
def test_products_across_block_boundaries(m, n, k):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((1, m, k), (1, k, n)))
    np.testing.assert_allclose(product(a, b), a.astype(float) @ b.astype(float), rtol=0, atol=k * 1e-6)
    np.testing.assert_allclose(product(a, b, packed=True), a.astype(float) @ b.astype(float), rtol=0, atol=k * 1e-6)


def ended(x, epilogue):
    """`x` after the steps of an epilogue, by NumPy."""
    functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    functions |= {"maximum": np.maximum, "minimum": np.minimum}
    with np.errstate(all="ignore"):
        for op, operand in epilogue:
            x = functions[kernels().OPS[op]](x, operand)
    return x


def random_epilogue(rng, rows, columns, names):
    """Steps with whole operands, rows, columns and single elements, some not finite."""
    made = []
    for name in names:
        shape = ((rows, columns), (1, columns), (rows, 1), (1, 1))[rng.integers(4)]
        x = rng.standard_normal(shape).astype(np.float32)
        x[rng.random(shape) < 0.05] = rng.choice(np.array([np.nan, np.inf, -np.inf, 0, -0.0], np.float32))
        made.append((kernels().OPS.index(name), np.broadcast_to(x, (rows, columns))))
    return tuple(made)


OPERATIONS = st.sampled_from(["add", "sub", "mul", "div", "maximum", "minimum"])


@needs_kernels
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 120),
    st.integers(1, 110),
    st.one_of(st.integers(0, 40), st.integers(240, 530)),
    st.lists(OPERATIONS, max_size=6),
    st.booleans(),
    st.integers(0, 9),
)
def test_epilogues_of_products_are_the_operations_one_by_one(m, n, k, names, packs, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((1, m, k)).astype(np.float32), rng.standard_normal((1, k, n)).astype(np.float32)
    right = b
    if packs:
        right = np.empty(kernels().packed_size(b[0]), np.float32)
        kernels().pack(right, b[0])
    epilogue, room = random_epilogue(rng, m, n, names), np.empty(kernels().GEMM_SCRATCH, np.float32)
    plain, out = np.empty((2, 1, m, n), np.float32)
    kernels().gemm(plain, a, right, room)
    kernels().gemm(out, a, right, room, epilogue)
    np.testing.assert_array_equal(out[0], ended(plain[0], epilogue))


@needs_kernels
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 40), st.integers(1, 60), st.lists(OPERATIONS, max_size=6), st.booleans(), st.integers(0, 9)
)
def test_epilogues_of_convolutions_are_the_operations_one_by_one(groups, channels, columns, names, by_channel, seed):
    rng = np.random.default_rng(seed)
    if by_channel:
        groups, channels, columns = groups * channels, 1, 1
    x = rng.standard_normal((2, 7, 9, groups * channels)).astype(np.float32)
    geometry, places = (4, 9, 3, 3, 2, 1, 1, 1, 1, 1, groups), 2 * 4 * 9
    epilogue = random_epilogue(rng, places, groups * columns, names)
    plain, out = np.empty((2, places, groups * columns), np.float32)
    if by_channel:
        weights = rng.standard_normal((9, groups)).astype(np.float32)
        for y, more in ((plain, ()), (out, (epilogue,))):
            kernels().windows(y, x, weights, geometry, 0, kernels().WEIGHTED, *more)
    else:
        weights = rng.standard_normal((groups, 9 * channels, columns)).astype(np.float32)
        right = np.empty((groups, kernels().packed_size(weights[0])), np.float32)
        for own, w in zip(right, weights, strict=True):
            kernels().pack(own, w)
        room = np.empty(kernels().PACKED_SCRATCH, np.float32)
        for y, more in ((plain, ()), (out, (epilogue,))):
            kernels().conv(y.reshape(places, groups, columns), x, right.ravel(), geometry, 0, room, *more)
    np.testing.assert_array_equal(out, ended(plain, epilogue))


@needs_kernels
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 50),
    st.integers(2, 340),
    st.integers(1, 500),
    st.lists(OPERATIONS, max_size=3),
    st.lists(OPERATIONS, max_size=3),
    st.booleans(),
    st.integers(0, 9),
)
def test_a_result_may_be_written_over_an_operand_of_its_epilogue(m, n, k, before, after, packs, seed):
    """A residual: the memory of the operand becomes that of the result, where a sum is made at once."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((1, m, k)).astype(np.float32), rng.standard_normal((1, k, n)).astype(np.float32)
    right = b
    if packs:
        right = np.empty(kernels().packed_size(b[0]), np.float32)
        kernels().pack(right, b[0])
    room, plain = np.empty(kernels().GEMM_SCRATCH, np.float32), np.empty((1, m, n), np.float32)
    residual = rng.standard_normal((m, n)).astype(np.float32)
    add = (kernels().OPS.index("add"), residual.copy())
    epilogue = (*random_epilogue(rng, m, n, before), add, *random_epilogue(rng, m, n, after))
    kernels().gemm(plain, a, right, room)
    over = residual.copy()[None]
    call = (over, a, right, room, tuple((op, over[0] if x is add[1] else x) for op, x in epilogue))
    if k > kernels().GEMM_DEPTH:
        with pytest.raises(ValueError, match="written over"):
            kernels().gemm(*call)
        return
    kernels().gemm(*call)
    np.testing.assert_array_equal(over[0], ended(plain[0], epilogue))


@needs_kernels
def test_a_result_is_not_written_over_part_of_an_operand():
    a, room, add = np.ones((1, 4, 4), np.float32), np.empty(kernels().GEMM_SCRATCH, np.float32), kernels().OPS.index("add")
    both = np.ones((5, 4), np.float32)
    with pytest.raises(ValueError, match="written over"):
        kernels().gemm(both[None, 1:], a, a, room, ((add, both[:4]),))


@needs_kernels
def test_epilogues_are_checked():
    a, room = np.ones((1, 3, 4), np.float32), np.empty(kernels().GEMM_SCRATCH, np.float32)
    out, good, add = np.empty((1, 3, 5), np.float32), np.ones((3, 5), np.float32), kernels().OPS.index("add")
    bad = [
        ((add, good[:2]),),
        ((add, good.T),),
        ((add, np.ones((3, 10), np.float32)[:, ::2]),),
        ((add, good.astype(float)),),
        ((kernels().OPS.index("exp"), good),),
        ((-1, good),),
        ((add, good),) * 9,
        [(add, good)],
        (add,),
    ]
    for epilogue in bad:
        with pytest.raises((ValueError, TypeError)):
            kernels().gemm(out, a, np.ones((1, 4, 5), np.float32), room, epilogue)


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
        kernels().transpose(square, square, False)
    with pytest.raises(ValueError, match="strides"):
        kernels().transpose(np.zeros((1, 4, 5), np.float32), square.swapaxes(1, 2), False)
    with pytest.raises(ValueError, match="dtype"):
        kernels().transpose(np.zeros((1, 4, 4)), square.swapaxes(1, 2), False)


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
    tall = np.broadcast_to(np.float32(1), (1 << 22, 1 << 14))
    out = np.zeros(x.shape if kernel == "gemm" else (1 << 22, 1), np.float32)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Alarm):
            if kernel == "gemm":
                kernels().gemm(out, x, x, np.empty(kernels().GEMM_SCRATCH, np.float32))
            else:
                lib = kernels()
                steps = [("on_elements", 0), ("load", 0), ("reduce_sum", 1)] * 64
                code, kinds = bytes(b for name, r in steps for b in (lib.OPS.index(name), r, 0)), bytes([lib.FULL, lib.ROWS])
                room = np.empty(lib.tile_floats(kinds, *tall.shape, True), np.float32)
                lib.tiles(code, kinds, (tall, out), 1, *tall.shape, True, room)
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


def softmax():
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, (5, 40)), "x")
    high = b.op("broadcast_to", b.op("reduce_max", x, axes=(1,), keepdims=True), result_shape=(5, 40))
    e = b.op("exp", b.op("sub", x, high))
    b.results(b.op("div", e, b.op("broadcast_to", b.op("reduce_sum", e, axes=(1,), keepdims=True), result_shape=(5, 40))))
    return program


def test_a_softmax_is_one_group():
    assert [len(step) for step in fusion.partition(softmax().main)] == [7]


def test_a_group_ends_where_the_shape_changes():
    program, b = single_function(load_dialect("ptir"))
    x, y = b.param(tensor(F32, (4, 4)), "x"), b.param(tensor(F32, (8,)), "y")
    z = b.op("exp", b.op("add", x, x))
    w = b.op("transpose", z, perm=(1, 0))
    b.results(b.op("neg", w), b.op("tanh", b.op("neg", y)))
    assert [[op.defn.short for op in step] for step in fusion.partition(program.main)] == [
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


@needs_kernels
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 17, 70]), max_size=4).filter(lambda s: np.prod(s, dtype=int) < 1 << 16),
    st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]),
    st.randoms(use_true_random=False),
)
def test_a_copy_is_one_whatever_the_strides(shape, dtype, random):
    perm = random.sample(range(len(shape)), len(shape))
    x = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape).transpose(perm)[(slice(None, None, -1),) * len(shape)]
    out = np.zeros(x.shape, dtype)
    task = kernels().task("copy", out, x)
    for _ in range(2):
        task()
        np.testing.assert_array_equal(out, x)
        out[...] = 0


@needs_kernels
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_tasks_run_once_each_time_on_any_number_of_threads(workers):
    rng = np.random.default_rng(0)
    pairs = [[rng.standard_normal((1, 3, 9, 9)).astype(np.float32)[:, i] for i in range(3)] for _ in range(40)]
    room = [np.empty(kernels().GEMM_SCRATCH, np.float32) for _ in pairs]
    parts = [kernels().task("gemm", out, a, b, r) for (out, a, b), r in zip(pairs, room, strict=True)]
    inner = kernels().task("several", tuple(parts[:20]), workers)
    whole = kernels().task("several", (inner, *parts[20:]), workers)
    for turn in range(50):
        for out, a, _ in pairs:
            out[...], a[...] = np.nan, a + turn
        whole()
        for out, a, b in pairs:
            np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-3)


@needs_kernels
def test_tasks_are_checked_when_they_are_made():
    x, room = np.zeros((1, 4, 4), np.float32), np.empty(kernels().GEMM_SCRATCH, np.float32)
    for name, arguments, message in (
        ("gemm", (x, x, x[:, :3], room), "multiply"),
        ("gemm", (x, x, x, room[:9]), "scratch"),
        ("gemm", (x, x, x), "takes 5 arguments"),
        ("copy", (x.view(np.uint32), x.view(np.uint32)[:, :3]), "differ"),
        ("nothing", (), "no such kernel"),
    ):
        with pytest.raises(ValueError, match=message):
            kernels().task(name, *arguments)
    with pytest.raises(ValueError, match="is not a task"):
        kernels().task("several", (len,), 1)
    with pytest.raises(TypeError):
        type(kernels().task("gemm", x, x, x, room))()


@needs_kernels
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that sends a signal")
@pytest.mark.parametrize("workers", [1, 2])
def test_long_tasks_answer_signals(workers):
    n = 4096
    x = np.broadcast_to(np.float32(1), (60, n, n))
    outs = [np.zeros((60, 96, n), np.float32) for _ in range(2)]
    parts = [kernels().task("gemm", o, x[:, :96], x, np.empty(kernels().GEMM_SCRATCH, np.float32)) for o in outs]
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Alarm):
            kernels().task("several", tuple(parts * 100), workers)()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@needs_kernels
def test_steps_linked_give_what_steps_one_by_one_give():
    """With a time limit the steps run one by one."""
    text = """func @f(%x: tensor<f32, 33x70>, %i: tensor<si32, 5>) -> tensor<f32, 70x5> {
  %e = exp(%x) -> tensor<f32, 33x70>
  %s = reduce_sum(%e) axes[0] -> tensor<f32, 70>
  %t = take(%e, %i) -> tensor<f32, 5x70>
  %b = broadcast_to(%s) shape[5, 70] -> tensor<f32, 5x70>
  %q = div(%t, %b) -> tensor<f32, 5x70>
  %r = transpose(%q) perm[1, 0] -> tensor<f32, 70x5>
  return %r
}"""
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((33, 70)).astype(np.float32), "i": np.int32([3, 0, 32, 3, 7])}
    found = [ptir.run(ptir.read(text), inputs, engine="native", threads=n, timeout=t) for n in (1, 2) for t in (None, 60)]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0]["r"], other["r"])
    e = np.exp(inputs["x"].astype(float))
    np.testing.assert_allclose(found[0]["r"], (e[inputs["i"]] / e.sum(0)).T, rtol=1e-6)


@pytest.mark.parametrize("channels", range(1, 9))
@pytest.mark.parametrize(("high", "wide"), [(3, 5), (33, 67), (1, 100), (64, 64)])
def test_images_with_few_channels_are_transposed(channels: int, high: int, wide: int) -> None:
    """Whole vectors are stored over the rows that come next, but never over what was written before."""
    g = ptir.Graph()
    x = g.input("x", "f32", [2, channels, high, wide])
    made = g.returns(x.transpose([0, 2, 3, 1]).reshape([2 * high * wide * channels]).named("y"))
    given = np.arange(2 * channels * high * wide, dtype=np.float32).reshape(2, channels, high, wide)
    found = ptir.run(made, {"x": given}, engine="native", threads=1)["y"]
    np.testing.assert_array_equal(found, given.transpose(0, 2, 3, 1).ravel())


def test_constant_operands_of_few_columns_are_not_for_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of BLAS would spin next to those of the engine after each call."""
    text = """func @f(%x: tensor<f32, 64x8>) -> tensor<f32, 64x2> {{
  %w = constant() value[dense<{}>] -> tensor<f32, 8x2>
  %y = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 64x2>
  return %y
}}
"""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((64, 8)).astype(np.float32), rng.standard_normal((8, 2)).astype(np.float32)
    monkeypatch.setattr(np, "matmul", None)
    (y,) = ptir.run(ptir.read(text.format(w.tolist())), {"x": x}, engine="native").values()
    np.testing.assert_allclose(y, (x[:, :, None] * w).sum(1), rtol=1e-5, atol=1e-6)

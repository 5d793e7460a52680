"""Values that a fused step would never store, and that something else uses, too: patches, inner values of pairs, scores.

Each program runs on the reference engine and on the native one, as a function and as the body of a scan, a while and a cond. What
the steps read is dead memory if the engine counts uses wrongly, so other values are computed between.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import clone
from ptir_tools.core.records import replace
from ptir_tools.engines import RunOptions, native, run
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.engines.choose import optimized
from ptir_tools.engines.native import _partition, fusion
from ptir_tools.engines.numpy.steps import Fused, fused
from ptir_tools.engines.thresholds import at, lowered

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")

UNIT = {"f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}


def weights(x, shape, seed=0, dtype="f32"):
    """A constant of small numbers next to `x`."""
    made = x.block.constant((np.random.default_rng(seed).standard_normal(shape) / 4).astype(np.float32))
    return made if dtype == "f32" else made.cast(dtype)


def patches(x, window=(3, 3), **attributes):
    """The patches of `x` that keep its size."""
    return x.extract_patches(list(window), padding=[[k // 2, k // 2] for k in window], **attributes)


def conv(p, columns=8, seed=1, dtype="f32"):
    """The contraction of patches with constant weights."""
    return p.dot_general(weights(p, (p.shape[-1], columns), seed, dtype), contract_lhs=[p.rank - 1], contract_rhs=[0])


def depthwise(p, seed=2, dtype="f32"):
    """Each channel with its own taps, by a product and a sum."""
    taps = 9
    t = p.reshape([*p.shape[:-1], taps, p.shape[-1] // taps])
    return (t * weights(p, t.shape[-2:], seed, dtype).broadcast_like(t)).reduce_sum([t.rank - 2])


def busy(*values):
    """Work that takes memory, and depends on `values`."""
    made = [(v.tanh().reduce_sum([v.rank - 1], keepdims=True).broadcast_like(v) * v).tanh() for v in values]
    return [m.exp() + m for m in made]


def an_output(x, dtype):
    p = patches(x)
    return p, *busy(conv(p, dtype=dtype))


def a_reduction(x, dtype):
    p = patches(x)
    y = conv(p, dtype=dtype)
    return *busy(y), p.reduce_max([3])


def a_product(x, dtype):
    p = patches(x)
    return *busy(conv(p, dtype=dtype)), (p * p).reduce_sum([3])


def a_view(x, dtype):
    p = patches(x)
    return *busy(conv(p, dtype=dtype)), p.reshape([x.shape[0], -1, 9, x.shape[-1]])


def two(x, dtype):
    p = patches(x)
    (y,) = busy(conv(p, seed=3, dtype=dtype))
    return y + conv(p, seed=4, dtype=dtype).clamp(-1, 1), conv(p, seed=5, dtype=dtype)


def a_gate(x, dtype):
    """GLU: both factors are convolutions of the same patches."""
    p = patches(x)
    return (conv(p, seed=3, dtype=dtype).tanh() * conv(p, seed=4, dtype=dtype),)


def other_columns(x, dtype):
    p = patches(x, strides=[2, 2])
    return conv(p, 8, 3, dtype=dtype).tanh(), conv(p, 5, 4, dtype=dtype), *busy(x)


def depthwise_too(x, dtype):
    p = patches(x)
    return conv(p, dtype=dtype).tanh(), depthwise(p, dtype=dtype), *busy(x)


def gram(x, dtype):
    """Both operands are the patches."""
    p = patches(x)
    axes = {"contract_lhs": [0, 1, 2], "contract_rhs": [0, 1, 2]}
    return *busy(conv(p, dtype=dtype)), p.dot_general(p, **axes)


def no_convolution(x, dtype):
    """Contracted along the places, too."""
    p = patches(x)
    w = weights(p, p.shape[1:], 3, dtype)
    return *busy(conv(p, dtype=dtype)), p.dot_general(w, contract_lhs=[1, 2, 3], contract_rhs=[0, 1, 2])


def a_view_of_two(x, dtype):
    """The views after the patches are shared, too."""
    p = patches(x).reshape([x.shape[0], -1, 9 * x.shape[-1]])
    return conv(p, 8, 3, dtype=dtype).tanh(), *busy(conv(p, 5, 4, dtype=dtype)), *busy(x)


def a_pair(after):
    """A product and a depthwise convolution of it, and `after(the product, its sum with a bias, the image, the convolution)`."""

    def made(x, dtype):
        y = x.dot_general(weights(x, (x.shape[-1], 16), 6, dtype), contract_lhs=[3], contract_rhs=[0])
        t = y + weights(x, (16,), 7, dtype).broadcast_like(y)
        e = t.clamp(0, 6)
        z = depthwise(patches(e), dtype=dtype)
        return after(y, t, e, z)

    return made


def bare_pair(x, dtype):
    """A product and a depthwise convolution of it."""
    y = x.dot_general(weights(x, (x.shape[-1], 16), 6, dtype), contract_lhs=[3], contract_rhs=[0])
    return depthwise(patches(y), dtype=dtype)


PROGRAMS = {
    f.__name__: f
    for f in (
        *(an_output, a_reduction, a_product, a_view, two, a_gate, other_columns, depthwise_too, gram, no_convolution),
        a_view_of_two,
    )
} | {
    "pair": a_pair(lambda y, t, e, z: [z.clamp(0, 6)]),
    "pair, product is an output": a_pair(lambda y, t, e, z: [z.clamp(0, 6), y]),
    "pair, sum is an output": a_pair(lambda y, t, e, z: [z.clamp(0, 6), t]),
    "pair, image is an output": a_pair(lambda y, t, e, z: [*busy(z), e]),
    "pair, product used later": a_pair(lambda y, t, e, z: [z.clamp(0, 6) * y]),
    "pair, sum used later": a_pair(lambda y, t, e, z: [z.clamp(0, 6) * t]),
    "pair, image used later": a_pair(lambda y, t, e, z: [z.clamp(0, 6) + e, *busy(z)]),
    "pair, second epilogue": a_pair(lambda y, t, e, z: [z.clamp(0, 6), (t * 0.5).clamp(-1, 1)]),
    "pair without epilogues": lambda x, dtype: [bare_pair(x, dtype)],
    "pair without epilogues, two results": lambda x, dtype: [z := bare_pair(x, dtype), z.tanh()],
    "pair without epilogues, with a bound": lambda x, dtype: [z := bare_pair(x, dtype).clamp(-1, 1), z * 0.5],
    "pair, two results": a_pair(lambda y, t, e, z: [z, z.tanh()]),
}


def image(x, dtype):
    """What the program sees: computed, so that its memory may be taken when it is dead."""
    return x.tanh()


def straight(f, dtype, shape):
    g = ptir.Graph()
    return g.returns(*(y.named(f"y{i}") for i, y in enumerate(f(image(g.input("x", dtype, shape), dtype), dtype))))


def in_scan(f, dtype, shape):
    """The total of the first result is carried, all results are stacked."""
    g = ptir.Graph()
    x = g.input("x", dtype, (3, *shape))
    start = g.input("c", dtype, shape)

    def body(c, row):
        made = f(image(row + c, dtype), dtype)
        return (c * 0.5 + row, *made)

    return g.returns(*(y.named(f"y{i}") for i, y in enumerate(g.scan([start], [x], body))))


def in_while(f, dtype, shape):
    """The image that is carried changes with the results."""
    g = ptir.Graph()
    x = g.input("x", dtype, shape)

    def body(i, v):
        total = None
        for y in f(image(v, dtype), dtype):
            mean = y.reduce_sum([*range(y.rank)]).tanh()
            total = mean if total is None else total + mean
        return i + 1, v * 0.5 + total.broadcast_like(v)

    loop = g.while_([g.constant(0, "si32"), x], lambda i, v: (i < 3, i, v), body)
    return g.returns(*(y.named(f"y{i}") for i, y in enumerate(loop)))


def in_cond(f, dtype, shape):
    g = ptir.Graph()
    x = g.input("x", dtype, shape)
    flag = x.reduce_max([0, 1, 2, 3]) > -9.0
    made = g.cond(flag, [x.exp()], lambda v: tuple(f(image(v, dtype), dtype)), lambda v: tuple(f(v, dtype)))
    made = made if isinstance(made, tuple) else (made,)
    return g.returns(*(y.named(f"y{i}") for i, y in enumerate(made)))


PLACES = {"function": straight, "scan": in_scan, "while": in_while, "cond": in_cond}


@pytest.fixture
def small(monkeypatch):
    """Every pair is large, and few lines are a band."""
    monkeypatch.setattr(at, "pair", 0)
    monkeypatch.setattr(at, "band", 6000)


def check(program, dtype, seed=0):
    """Both engines agree, with one thread and with two, on a session used with other inputs before, also with low thresholds."""
    rng = np.random.default_rng(seed)
    draws = [
        {p.name: rng.normal(scale=2, size=p.type.static_shape).astype(numpy_dtype(p.type.dtype)) for p in program.main.params}
        for _ in range(2)
    ]
    wanted = run(program, draws[1], RunOptions(engine="reference"))
    for threads, sizes in ((1, nullcontext), (2, nullcontext), (1, lowered), (2, lowered)):
        with sizes():
            session = ptir.compile(program, engine="native", threads=threads)
            session(draws[0])
            found = session(draws[1])
        for (name, a), b in zip(wanted.items(), found.values(), strict=True):
            a, b = (np.asarray(v, np.float64) for v in (a, b))
            scale = np.abs(a).max()
            assert np.abs(a - b).max() <= 40 * UNIT[dtype] * scale, f"{name}, {threads} threads, {sizes.__name__}"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, place):
    check(PLACES[place](PROGRAMS[name], "f32", (1, 8, 9, 8)), "f32")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_narrow_floats(name, dtype):
    check(straight(PROGRAMS[name], dtype, (1, 8, 9, 8)), dtype)


def steps_of(f):
    """The short names of the ops of each step, those that it computes again first."""
    program = straight(f, "f32", (1, 8, 9, 8))
    ready = optimized(clone(program), RunOptions(), Diagnostics(program.source))
    return [[op.defn.short for op in unit.computed] for unit in _partition(ready.main)]


@pytest.mark.parametrize("name", ["two", "a_gate", "other_columns", "depthwise_too", "a_view_of_two"])
def test_patches_that_only_convolutions_use_are_in_no_memory(name):
    steps = steps_of(PROGRAMS[name])
    assert ["extract_patches"] not in steps
    assert sum("extract_patches" in step for step in steps) == sum("dot_general" in step for step in steps)


@pytest.mark.parametrize("name", ["an_output", "a_reduction", "a_product", "a_view", "gram", "no_convolution"])
def test_patches_that_others_use_are_computed_once(name):
    assert [step for step in steps_of(PROGRAMS[name]) if "extract_patches" in step] == [["extract_patches"]]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n.startswith("pair")])
def test_only_what_stays_between_them_makes_a_pair(name):
    """A pair if nothing else uses what the first product computes."""
    found = any(step.count("dot_general") == 2 for step in steps_of(PROGRAMS[name]))
    assert found == (name in ("pair", "pair, two results") or name.startswith("pair without epilogues"))


def attention(after, kind="f32", lead=(2, 4), rows=64, depth=16):
    """softmax(after(q k^T)) v; what `after` returns next to the scores is returned, too."""
    g = ptir.Graph()
    q, k, v = (g.input(name, kind, (*lead, rows, depth)) for name in "qkv")
    axes = {"batch_lhs": [*range(len(lead))], "batch_rhs": [*range(len(lead))]}
    s, *more = after(q.dot_general(k, **axes, contract_lhs=[q.rank - 1], contract_rhs=[q.rank - 1]))
    e = (s - s.reduce_max([-1], keepdims=True).broadcast_like(s)).exp()
    p = e / e.reduce_sum([-1], keepdims=True).broadcast_like(e)
    y = p.dot_general(v, **axes, contract_lhs=[p.rank - 1], contract_rhs=[v.rank - 2])
    if "weights" in more:
        more = [p]
    return g.returns(*(t.named(f"y{i}") for i, t in enumerate([y, *more])))


def mean(s):
    return s.reduce_sum([-1], keepdims=True).broadcast_like(s) * (1 / s.shape[-1])


SCORES = {
    "scaled": lambda s: [s * 0.25],
    "minus the mean": lambda s: [s - mean(s)],
    "normed": lambda s: [s / ((s * s).reduce_sum([-1], keepdims=True).broadcast_like(s) + 1.0)],
    "minus the largest": lambda s: [(s - s.reduce_max([-1], keepdims=True).broadcast_like(s)) * 0.5],
    "returned": lambda s: [s * 0.25, s],
    "reduced": lambda s: [s * 0.25, s.reduce_max([-1])],
    "weights": lambda s: [s * 0.25, "weights"],
}


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", SCORES)
def test_scores(name, kind):
    check(attention(SCORES[name], kind), kind)


def test_one_constant_in_two_layouts():
    """The weights of a depthwise convolution, and of one in groups, whose matrices have the same shape."""
    g = ptir.Graph()
    x, y = g.input("x", "f32", (1, 10, 10, 4)), g.input("y", "f32", (1, 10, 10, 36))
    w = weights(x, (4, 9, 1))
    one = patches(x).reshape([1, 10, 10, 9, 4])
    other = patches(y, (1, 1)).reshape([1, 10, 10, 4, 9])
    a = one.dot_general(w, batch_lhs=[4], batch_rhs=[0], contract_lhs=[3], contract_rhs=[1])
    b = other.dot_general(w, batch_lhs=[3], batch_rhs=[0], contract_lhs=[4], contract_rhs=[1])
    check(g.returns(a.named("a"), b.named("b")), "f32")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_one_constant_in_all_products(dtype):
    """As the right and the left operand, transposed, of few rows and of many, of one row, of a stack, of a convolution."""
    g = ptir.Graph()
    x = g.input("x", dtype, (40, 36))
    w = weights(x, (36, 36), dtype=dtype)
    few, one = x.slice([0, 0], [5, 36]), x.slice([1, 0], [1, 36])
    made = [v.dot_general(w, contract_lhs=[1], contract_rhs=[axis]) for v in (x, few, one) for axis in (0, 1)]
    made += [w.dot_general(v, contract_lhs=[axis], contract_rhs=[1]) for v in (x, few, one) for axis in (0, 1)]
    stack = x.reshape([4, 10, 36])
    made.append(stack.dot_general(w.reshape([4, 9, 36]), batch_lhs=[0], batch_rhs=[0], contract_lhs=[2], contract_rhs=[2]))
    image = patches(x.reshape([1, 4, 90, 4])).tanh()
    made.append(image.dot_general(w, contract_lhs=[3], contract_rhs=[0]))
    made.append(patches(x.reshape([1, 4, 90, 4])).dot_general(w, contract_lhs=[3], contract_rhs=[1]))
    check(g.returns(*(y.named(f"y{i}") for i, y in enumerate(made))), dtype)


def test_one_constant_of_bytes_in_all_products():
    g = ptir.Graph()
    x = g.input("x", "si8", (40, 36))
    w = g.constant(np.random.default_rng(0).integers(-9, 9, (36, 36)).astype(np.int8))
    wide = {"accum_dtype": "si32", "out_dtype": "si32"}
    made = [x.dot_general(w, contract_lhs=[1], contract_rhs=[axis], **wide) for axis in (0, 1)]
    made += [w.dot_general(x, contract_lhs=[axis], contract_rhs=[1], **wide) for axis in (0, 1)]
    x_wide, w_wide = x.cast("f32"), w.cast("f32")
    made += [x_wide.dot_general(w_wide, contract_lhs=[1], contract_rhs=[axis]) for axis in (0, 1)]
    check(g.returns(*(y.named(f"y{i}") for i, y in enumerate(made))), "f32")


def test_a_step_reads_only_its_operands():
    """A builder that looks up a value whose memory the plan may have given away is stopped."""

    class Curious(fusion.Group):
        def steps(self, look, outs, shop):
            look(other)
            return super().steps(look, outs, shop)

    g = ptir.Graph()
    x = g.input("x", "f32", (4, 4))
    other = x.exp().operand
    program = g.returns(((x + x).tanh().dot_general(x, contract_lhs=[1], contract_rhs=[0]) + x).named("y"))

    def partition(block):
        units = fusion.partition(block)
        return [fused(changed(u.found), u) if isinstance(u, Fused) else u for u in units]

    def changed(group):
        made = Curious(group.domain)
        assert all(map(made.accepts, group.ops))
        return made

    executable = native.Executable(program, program.main, RunOptions())
    executable = numpy_engine.Executable(program, program.main, RunOptions(), replace(executable.target, partition=partition))
    with pytest.raises(AssertionError, match="none of its operands"):
        executable.bind([np.ones((4, 4), np.float32)])

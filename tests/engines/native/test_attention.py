"""Attention as one kernel: masks of all kinds, heads that share keys, narrow floats, what is done to the scores before."""

from __future__ import annotations

import numpy as np
import pytest

import ptir_tools
from ptir_tools.core.builder import single_function
from ptir_tools.core.dtypes import F32
from ptir_tools.core.types import tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import RunOptions, compare, native, run
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.native import attention as engine

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")

HEADS, ROWS, COLUMNS, DEPTH = 3, 250, 301, 16
MASKS = {
    "causal": np.tri(ROWS, COLUMNS, dtype=bool),
    "causal, aligned at the end": np.tri(ROWS, COLUMNS, COLUMNS - ROWS, dtype=bool),
    "band": np.tri(ROWS, COLUMNS, dtype=bool) & ~np.tri(ROWS, COLUMNS, -9, dtype=bool),
    "blocks": np.kron(np.eye(10, dtype=bool), np.ones((25, 31), bool))[:, :COLUMNS],
    "rows without any": np.tri(ROWS, COLUMNS, -3, dtype=bool),
    "nothing left": np.zeros((ROWS, COLUMNS), bool),
    "all left": np.ones((ROWS, COLUMNS), bool),
    "checkered": np.indices((ROWS, COLUMNS)).sum(0) % 3 > 0,
}


def masked(mask, low, after=lambda s: s):
    """softmax(q k^T, masked) v; `after` comes between mask and softmax."""
    g = ptir_tools.Graph()
    q, k, v = (g.input(name, "f32", (HEADS, n, DEPTH)) for name, n in (("q", ROWS), ("k", COLUMNS), ("v", COLUMNS)))
    s = q @ k.transpose([0, 2, 1])
    s = after(g.constant(mask).broadcast_to(s.shape).select(s, low))
    e = (s - s.reduce_max([2], keepdims=True).broadcast_like(s)).exp()
    return g.returns((e / e.reduce_sum([2], keepdims=True).broadcast_like(e)) @ v)


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((HEADS, n, DEPTH)).astype(np.float32) for n in (ROWS, COLUMNS, COLUMNS)]


def found(program, inputs, threads=1):
    (out,) = run(program, inputs, RunOptions(engine="native", threads=threads)).values()
    return out


def both(program, inputs, monkeypatch):
    """The outputs with and without leaving columns out; whether the kernel was told which."""
    told = []
    kept_columns = engine._kept_columns

    def noted(*arguments):
        told.append(kept_columns(*arguments))
        return told[-1]

    monkeypatch.setattr(engine, "_kept_columns", noted)
    short = found(program, inputs)
    monkeypatch.setattr(engine, "_kept_columns", lambda *arguments: (None, 0.0))
    return short, found(program, inputs), bool(told) and told[-1][0] is not None


def exact(inputs, mask, low):
    """softmax(q k^T, masked) v in float64, and how far a sum in f32 may be off."""
    q, k, v = (x.astype(np.float64) for x in inputs)
    with np.errstate(all="ignore"):
        s = np.where(mask, q @ k.swapaxes(1, 2), low)
        e = np.exp(s - s.max(2, keepdims=True))
        p = e / e.sum(2, keepdims=True)
        scale = np.nanmax(np.where(mask, np.abs(q) @ np.abs(k.swapaxes(1, 2)), 0.0))
        return p @ v, 2.0**-24 * (2 * COLUMNS + 4 * DEPTH * scale) * (p @ np.abs(v))


def assert_near(found, inputs, mask, low):
    wanted, bound = exact(inputs, mask, low)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    finite = np.isfinite(wanted)
    assert (np.abs(found[finite] - wanted[finite]) <= bound[finite]).all()
    np.testing.assert_array_equal(found[~finite], wanted[~finite].astype(np.float32))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("low", [-1e9, float("-inf"), -1000.0, -5.0, 0.0])
def test_masks_of_all_kinds(mask, low, monkeypatch):
    """What is left out weighs exactly 0; where it weighs something, it is not left out."""
    inputs = drawn()
    short, whole, told = both(masked(MASKS[mask], low), inputs, monkeypatch)
    for got in (short, whole):
        assert_near(got, inputs, MASKS[mask], low)
    if low <= -1000.0 and MASKS[mask].any(1).all():
        np.testing.assert_array_equal(short, whole)
    assert told == (mask not in ("checkered", "nothing left", "all left"))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("which", range(3))
def test_what_is_masked_may_still_be_seen(value, which, monkeypatch):
    """0 times infinity is NaN, and a NaN among the scores of a row that keeps it, too."""
    inputs = drawn()
    inputs[which][1, 200] = value
    short, whole, _ = both(masked(MASKS["causal"], -1e9), inputs, monkeypatch)
    for got in (short, whole):
        assert_near(got, inputs, MASKS["causal"], -1e9)
    assert not np.isfinite(short[1]).all() and np.isfinite(short[0]).all()


@pytest.mark.parametrize("scale", [1e6, -1e6, 1e30])
def test_scores_below_what_masks_them(scale, monkeypatch):
    """Then the masked columns weigh most."""
    inputs = drawn()
    inputs[0][:, 100:] *= scale
    short, whole, _ = both(masked(MASKS["causal"], -1e3), inputs, monkeypatch)
    np.testing.assert_array_equal(np.isnan(short), np.isnan(whole))
    top = np.abs(inputs[2]).max(1, keepdims=True)
    assert (np.abs(short) <= 1.001 * top).all() and (np.abs(short - whole) <= 1e-5 * top).all()


@pytest.mark.parametrize("value", [3e38, 1e-30])
def test_large_and_small_values(value):
    """No sum of weighted values is larger than the values."""
    inputs = drawn()
    inputs[2][:] = value
    np.testing.assert_allclose(found(masked(MASKS["causal"], -1e9), inputs), np.float32(value), rtol=1e-5, atol=3e-45)


def test_threads_change_no_bit():
    program, inputs = masked(MASKS["causal"], -1e9), drawn()
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(found(program, inputs), found(program, inputs, threads=threads))


def partition(program):
    return [
        [op.defn.name for op in ops]
        for ops in native.Executable(program, program.main, RunOptions()).target.partition(program.main)
    ]


def attention(kind, lead, rows, columns, depth, width, shared=1, after=lambda g, s: s * 0.125):
    """softmax(after(q k^T)) v; `shared` heads of q have keys and values in common."""
    g = ptir_tools.Graph()
    q, k, v = (
        g.input(name, kind, (*lead, *((shared,) if shared > 1 and name == "q" else ()), *shape))
        for name, shape in (("q", (rows, depth)), ("k", (columns, depth)), ("v", (columns, width)))
    )
    axes = {"batch_lhs": [*range(len(lead))], "batch_rhs": [*range(len(lead))]}
    s = after(g, q.dot_general(k, **axes, contract_lhs=[q.rank - 1], contract_rhs=[k.rank - 1]))
    e = (s - s.reduce_max([-1], keepdims=True).broadcast_like(s)).exp()
    p = e / e.reduce_sum([-1], keepdims=True).broadcast_like(e)
    return g.returns(p.dot_general(v, **axes, contract_lhs=[p.rank - 1], contract_rhs=[v.rank - 2]).named("y"))


def biased(g, s):
    """A bias of each head and column, which all rows share, and a soft limit."""
    bias = g.input("bias", "f32", (*s.shape[:-2], 1, s.shape[-1]))
    return ((s + bias.broadcast_like(s)) * 0.05).tanh() * 20.0


def causal(g, s):
    rows, columns = (s.block.iota(s.shape[-2:], "si32", a) for a in (0, 1))
    return (columns <= rows).broadcast_like(s).select(s * 0.125, float("-inf"))


CASES = {
    "long": ("f32", (2,), 70, 1300, 24, 40),
    "shared": ("f32", (3,), 60, 200, 16, 16, 4),
    "shared, causal": ("f32", (2, 2), 90, 90, 8, 12, 3, causal),
    "odd": ("f32", (5,), 49, 131, 1, 3),
    "wide heads": ("f32", (1,), 64, 300, 300, 257),
    "biased": ("f32", (2, 3), 40, 600, 16, 16, 1, biased),
    "shared, biased": ("f32", (2,), 33, 700, 16, 16, 2, biased),
    "bf16": ("bf16", (2,), 100, 200, 16, 16),
    "bf16, causal": ("bf16", (2,), 130, 130, 16, 16, 2, causal),
    "f16": ("f16", (2,), 100, 600, 16, 16),
}


@pytest.mark.parametrize("case", CASES)
def test_attention_of_all_kinds(case):
    """One step, within the bounds of the reference, and the same for any number of threads."""
    program = attention(*CASES[case])
    assert max(partition(program), key=len).count("ptir.dot_general") == 2
    inputs = random_inputs(program, 0)
    outputs = [run(program, inputs, RunOptions(engine="native", threads=n)) for n in (1, 3)]
    expected, bounds = compare.reference_outputs(program, inputs, RunOptions())
    assert compare.compare(expected, outputs[0], bounds) == []
    one, three = (next(iter(x.values())) for x in outputs)
    np.testing.assert_array_equal(one.view(f"u{one.itemsize}"), three.view(f"u{one.itemsize}"))


def test_a_mask_of_constants_is_never_there():
    """Its ops are part of the step, and the arena holds nothing."""
    program = masked(MASKS["causal"], -1e9)
    assert native.Executable(program, program.main, RunOptions()).own.peak == 0
    program = attention("f32", (2,), 200, 200, 16, 16, 1, causal)
    executable = native.Executable(program, program.main, RunOptions())
    assert executable.own.peak == 0
    assert not any("iota" in name for ops in partition(program) if len(ops) == 1 for name in ops)


def test_what_a_mask_is_made_of_is_computed_once():
    """Each op is used twice by the next one: forty of them are a number of ways that no one can follow."""

    def doubled(g, s):
        rows, columns = (s.block.iota(s.shape[-2:], "si32", a) for a in (0, 1))
        apart = rows - columns
        for _ in range(40):
            apart = apart.maximum(apart)
        return (apart >= 0).broadcast_like(s).select(s * 0.125, float("-inf"))

    program = attention("f32", (2,), 200, 200, 16, 16, 1, doubled)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((2, 200, 16)).astype(np.float32) for _ in "qkv"]
    s = np.where(np.tri(200, dtype=bool), np.einsum("hrd,hcd->hrc", *inputs[:2], dtype=np.float64) * 0.125, -np.inf)
    e = np.exp(s - s.max(2, keepdims=True))
    np.testing.assert_allclose(found(program, inputs), (e / e.sum(2, keepdims=True)) @ inputs[2].astype(np.float64), atol=1e-5)


def test_what_is_done_to_masked_scores_counts(monkeypatch):
    short, whole, told = both(masked(MASKS["causal"], -1e9, lambda s: s * 1e-9), drawn(), monkeypatch)
    np.testing.assert_array_equal(short, whole)
    assert not told


def test_a_mask_that_is_an_input_is_not_known(monkeypatch):
    program, b = single_function(load_dialect("ptir"))
    q, v = (b.param(tensor(F32, (200, 200)), name) for name in "qv")
    s = b.op("dot_general", q, q, contract_lhs=(1,), contract_rhs=(1,))
    low = b.op("mul", b.op("neg", v), b.op("abs", v))
    s = b.op("select", b.op("compare_ge", v, q), s, low)
    row = {"axes": (1,), "keepdims": True}
    e = b.op("exp", b.op("sub", s, b.op("broadcast_to", b.op("reduce_max", s, **row), result_shape=(200, 200))))
    total = b.op("broadcast_to", b.op("reduce_sum", e, **row), result_shape=(200, 200))
    b.results(b.op("dot_general", b.op("div", e, total), v, contract_lhs=(1,), contract_rhs=(0,)))
    rng = np.random.default_rng(0)
    short, whole, told = both(program, [rng.standard_normal((200, 200)).astype(np.float32) for _ in "qv"], monkeypatch)
    np.testing.assert_array_equal(short, whole)
    assert not told


@pytest.mark.parametrize("made", ["constant", "iota"])
def test_a_softmax_of_what_no_product_computes_is_no_attention(made):
    """A sum with a constant, or with a value that has no operands, before the softmax and a product."""
    g = ptir_tools.Graph()
    x, v = g.input("x", "f32", (2, 12, 12)), g.input("v", "f32", (2, 12, 5))
    c = (
        g.iota((2, 12, 12), "f32", 2)
        if made == "iota"
        else g.constant(np.linspace(-1, 1, 288, dtype=np.float32).reshape(2, 12, 12))
    )
    s = x + c
    e = (s - s.reduce_max([-1], keepdims=True).broadcast_like(s)).exp()
    program = g.returns((e / e.reduce_sum([-1], keepdims=True).broadcast_like(e)) @ v)
    inputs = random_inputs(program)
    wanted, found = (run(program, inputs, RunOptions(engine=engine)) for engine in ("reference", "native"))
    for name, x in wanted.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-5, atol=1e-6)


N = 130  # more than 2**14 scores of a head
PRODUCTS = {  # heads and axes of probabilities, axes and shape of the other operand
    "its rows are summed": ((2,), [], [1], [], [1], (2, N, 8)),
    "its rows are summed, head by head": ((2,), [0], [1], [0], [2], (2, N, N)),
    "its rows are kept, a head is not": ((2,), [], [0, 2], [], [0, 1], (2, N, 8)),
    "heads against all values": ((2,), [], [2], [], [1], (2, N, 8)),
    "its columns and rows are summed": ((2,), [0], [1, 2], [0], [1, 2], (2, N, N)),
    "its columns and rows are summed, a head is not": ((2, 2), [0], [2, 3], [0], [1, 2], (2, N, N, 3)),
    "two heads swapped": ((2, 2), [0, 1], [3], [1, 0], [2], (2, 2, N, 8)),
}


def probabilities(g, heads):
    """The softmax of a product of queries and keys."""
    q, k = (g.input(name, "f32", (*heads, N, 8)) for name in "qk")
    s = q @ k.transpose([*range(len(heads)), len(heads) + 1, len(heads)])
    e = (s - s.reduce_max([-1], keepdims=True).broadcast_like(s)).exp()
    return e / e.reduce_sum([-1], keepdims=True).broadcast_like(e)


def as_on_the_reference(program):
    inputs = random_inputs(program)
    wanted, found = (run(program, inputs, RunOptions(engine=engine)) for engine in ("reference", "native"))
    for name, x in wanted.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reads", ["left", "right"])
@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_of_probabilities_along_other_axes_is_right(case, reads):
    """A softmax of scores, which another product reads than that of attention, or as its right operand."""
    heads, batch, contract, other_batch, other_contract, shape = PRODUCTS[case]
    g = ptir_tools.Graph()
    p, v = probabilities(g, heads), g.input("v", "f32", shape)
    first, second = (p, v) if reads == "left" else (v, p)
    own, other = ("lhs", "rhs") if reads == "left" else ("rhs", "lhs")
    axes = {
        f"batch_{own}": batch,
        f"contract_{own}": contract,
        f"batch_{other}": other_batch,
        f"contract_{other}": other_contract,
    }
    as_on_the_reference(g.returns(first.dot_general(second, **axes)))


BETWEEN = {
    "turned": lambda p: -p,
    "rows for columns": lambda p: p.transpose([0, 2, 1]),
    "squared": lambda p: p * p,
    "summed up": lambda p: p.cumsum(2),
    "the second head": lambda p: p.slice([1, 0, 0], [1, N, N]),
}


@pytest.mark.parametrize("case", BETWEEN)
def test_what_is_done_to_probabilities_counts(case):
    """Only reshapes may come between softmax and product."""
    g = ptir_tools.Graph()
    p = BETWEEN[case](probabilities(g, (2,)))
    as_on_the_reference(g.returns(p @ g.input("v", "f32", (p.shape[0], N, 8))))

"""Engines agree with the reference, with float64 and with outputs of gpt.rs."""

from __future__ import annotations

import json
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.builder import Builder
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import BF16, F16, F32, F64, SI8, SI16, SI32, SI64, UI8, UI32
from ptir_tools.core.ir import Region
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from ptir_tools.dialects.ptir.builder.build import Graph
from ptir_tools.engines import ENGINES, RunOptions, bounds, compare, run
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.numpy import Executable
from tests.conftest import TESTDATA, run_ptir
from tests.engines.programs import FAST, agree, build
from tests.ptir.grown import ROWS
from tests.ptir.programs import programs


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 99))
def test_engines_agree_on_random_programs(program, seed):
    agree(program, seed)


@settings(max_examples=40, deadline=None)
@given(programs(dtypes=(F32, F16, BF16), size=25, growers=ROWS), st.integers(0, 99))
def test_engines_agree_on_long_chains_of_floats(program, seed):
    agree(program, seed)


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_a_gpt2_block_gives_the_outputs_of_its_c_backend(engine):
    path = TESTDATA / "ptir" / "d04_gpt2_block_prefill.json"
    expected = json.loads(path.with_suffix(".expected.json").read_text())
    program = load_format("ptir-json").read(Source(path.name, path.read_text()), Diagnostics(), Options())
    inputs = [
        np.array(x, np.int32 if t.dtype is SI32 else np.float32) for x, t in zip(expected["inputs"], types(program), strict=True)
    ]
    outputs = run(program, inputs, RunOptions(engine=engine))
    for actual, wanted in zip(outputs.values(), expected["outputs"], strict=True):
        np.testing.assert_allclose(actual.reshape(-1), np.array(wanted).reshape(-1), rtol=1e-4, atol=1e-5)


def types(program):
    return [p.type for p in program.main.params]


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_results_share_memory_with_nothing(engine):
    program, b, (x,) = build((F32, (2, 3)))
    turned = b.op("transpose", x, perm=(1, 0))
    e = b.op("exp", turned)
    b.results(x, x, turned, b.op("reshape", e, new_shape=(2, 3)), e, b.op("broadcast_to", e, result_shape=(2, 3, 2)))
    data = np.ones((2, 3), np.float32)
    outputs = list(run(program, [data], RunOptions(engine=engine)).values())
    arrays = [data, *outputs]
    assert not any(np.shares_memory(a, c) for i, a in enumerate(arrays) for c in arrays[:i])
    assert all(a.flags.writeable and a.flags.c_contiguous for a in outputs)


@pytest.mark.parametrize("engine", ["reference", *FAST])
@pytest.mark.parametrize("rows,columns", [(4, 3), (1, 5), (3, 5000)])
def test_a_sum_over_copies_counts_each(engine, rows, columns):
    program, b, (x,) = build((F32, (rows, 1)))
    b.results(b.op("reduce_sum", b.op("broadcast_to", x, result_shape=(rows, columns)), axes=(1,)))
    data = np.arange(1, rows + 1, dtype=np.float32).reshape(rows, 1)
    (out,) = run(program, [data], RunOptions(engine=engine)).values()
    assert out.tolist() == (data[:, 0] * columns).tolist()


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_a_product_of_floats_becomes_integers_by_the_cast_table(engine):
    program, b, (x, y) = build((F32, (3, 2)), (F32, (2, 1)))
    b.results(b.op("dot_general", x, y, contract_lhs=(1,), contract_rhs=(0,), out_dtype=SI8))
    data = [np.array([[100, 300], [-100, -300], [np.nan, 1]], np.float32), np.array([[3], [10]], np.float32)]
    (out,) = run(program, data, RunOptions(engine=engine)).values()
    assert out.tolist() == [[127], [-128], [0]]


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_sums_in_f64_are_rounded_once(engine):
    program, b, (x, ones) = build((F64, (3,)), (F64, (3,)))
    b.results(
        b.op("reduce_sum", x, axes=(0,), out_dtype=BF16),
        b.op("dot_general", x, ones, contract_lhs=(0,), contract_rhs=(0,), out_dtype=BF16),
    )
    above_half = np.array([1.0, 2.0**-8, 2.0**-40])  # f32 would drop the last term, and the tie go to 1
    outputs = run(program, [above_half, np.ones(3)], RunOptions(engine=engine)).values()
    assert [float(out) for out in outputs] == [1.0 + 2.0**-7] * 2


@pytest.mark.parametrize("engine", ["reference", *FAST])
@pytest.mark.parametrize("k", [1 << 15, 33100])
def test_long_products_of_bytes_wrap_in_the_accumulator(engine, k):
    program, b, (x, y) = build((UI8, (1, k)), (UI8, (k, 1)))
    b.results(b.op("dot_general", x, y, contract_lhs=(1,), contract_rhs=(0,), accum_dtype=SI32, out_dtype=SI32))
    (out,) = run(program, [np.full((1, k), 255, np.uint8), np.full((k, 1), 255, np.uint8)], RunOptions(engine=engine)).values()
    assert out.item() == (k * 255 * 255 + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("engine", ["reference", *FAST])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 33), (64, 129), (2, 3, 40)])
def test_softmax_is_right(engine, shape):
    program, b, (x,) = build((F32, shape))
    last = (len(shape) - 1,)
    high = b.op("broadcast_to", b.op("reduce_max", x, axes=last, keepdims=True), result_shape=shape)
    e = b.op("exp", b.op("sub", x, high))
    b.results(b.op("div", e, b.op("broadcast_to", b.op("reduce_sum", e, axes=last, keepdims=True), result_shape=shape)))
    data = 20 * np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (out,) = run(program, [data], RunOptions(engine=engine)).values()
    wide = np.exp(data.astype(float) - data.max(-1, keepdims=True))
    np.testing.assert_allclose(out, wide / wide.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("engine", ["reference", *FAST])
@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, SI8, UI8, SI32])
@pytest.mark.parametrize("m,k,n", [(1, 1, 1), (5, 7, 3), (17, 300, 33), (4, 0, 5), (0, 3, 2)])
def test_products_are_right(engine, dtype, m, k, n):
    program, b, (x, y) = build((dtype, (k, m)), (dtype, (n, k)))
    out = F32 if dtype in (F16, BF16) else SI32 if dtype is SI8 else None
    accum = SI32 if dtype is SI8 else None
    b.results(b.op("dot_general", x, y, contract_lhs=(0,), contract_rhs=(1,), accum_dtype=accum, out_dtype=out))
    inputs = random_inputs(program, 1)
    (found,) = run(program, inputs, RunOptions(engine=engine)).values()
    whole = dtype in (SI8, UI8, SI32)
    wide = [a.astype(np.int64 if whole else np.float64) for a in inputs.values()]
    exact = (wide[0].T @ wide[1].T).astype(found.dtype if whole else np.float64)
    bound = 0 if whole else (k + 2) * np.finfo(found.dtype).eps * max(1.0, sqrt(k))
    np.testing.assert_allclose(found, exact, rtol=0, atol=bound)


@pytest.mark.parametrize("engine", FAST)
def test_batches_pair_in_any_order(engine):
    program, b, (x, y) = build((F32, (2, 3, 4, 5)), (F32, (3, 6, 5, 2)))
    dims = {"batch_lhs": (0, 1), "batch_rhs": (3, 0), "contract_lhs": (3,), "contract_rhs": (2,)}
    b.results(b.op("dot_general", x, y, **dims))
    inputs = random_inputs(program, 3)
    (found,) = run(program, inputs, RunOptions(engine=engine)).values()
    wide = [a.astype(float) for a in inputs.values()]
    np.testing.assert_allclose(found, np.einsum("abij,bkja->abik", *wide), rtol=0, atol=1e-5)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, -3e38, 88.8, -104.0, 0.5], np.float32)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", ["neg", "abs", "exp", "log", "tanh", "erf", "rsqrt", "reciprocal"])
def test_special_values_of_unary_ops(engine, name):
    program, b, (x,) = build((F32, SPECIAL.shape))
    b.results(b.op(name, x))
    expected = run(program, [SPECIAL], RunOptions(engine="reference"))
    actual = run(program, [SPECIAL], RunOptions(engine=engine))
    assert compare.compare(expected, actual, {v: compare.Tolerance(0, 1e-6) for v in expected}) == []


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "compare_lt", "compare_ne", "compare_ge"])
def test_special_values_of_binary_ops(engine, name):
    n = len(SPECIAL)
    program, b, (x, y) = build((F32, (n, n)), (F32, (n, n)))
    b.results(b.op(name, x, y), b.op("neg", b.op("exp", x)))
    inputs = [np.repeat(SPECIAL, n).reshape(n, n), np.tile(SPECIAL, n).reshape(n, n)]
    expected = run(program, inputs, RunOptions(engine="reference"))
    actual = run(program, inputs, RunOptions(engine=engine))
    assert compare.compare(expected, actual, {v: compare.Tolerance(0, 1e-6) for v in expected}) == []


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max", "reduce_min"])
@pytest.mark.parametrize(
    "shape,axes", [((3, 0), (1,)), ((0, 3), (1,)), ((5, 37), (1,)), ((5, 37), (0,)), ((2, 3, 4), (0, 2)), ((4, 5), ())]
)
def test_reductions_of_odd_and_empty_tiles(engine, name, shape, axes):
    program, b, (x,) = build((F32, shape))
    b.results(b.op(name, x, axes=axes), b.op(name, x, axes=axes, keepdims=True))
    agree(program, engines=[engine])
    if shape == (5, 37):
        data = np.ones(shape, np.float32)
        data[2, 20] = np.nan
        out = run(program, [data], RunOptions(engine=engine))
        assert np.isnan(next(iter(out.values()))).sum() == 1


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("source", [SI8, UI8, SI16])
@pytest.mark.parametrize(
    "shape,axes", [((5, 300), (1,)), ((40, 3), (1,)), ((4, 5, 6), (1, 2)), ((4, 5, 6), (0, 2)), ((3, 0), (1,)), ((7,), ())]
)
def test_sums_of_small_integers_in_32_bits(engine, source, shape, axes):
    """With all elements the same extreme, and drawn."""
    program, b, (x,) = build((source, shape))
    b.results(*(b.op("reduce_sum", x, axes=axes, accum_dtype=SI32, out_dtype=SI32, keepdims=k) for k in (False, True)))
    dtype = np.dtype(source.numpy)
    ends = np.iinfo(dtype)
    drawn = np.random.default_rng(3).integers(ends.min, ends.max + 1, shape).astype(dtype)
    for data in (np.full(shape, ends.min, dtype), np.full(shape, ends.max, dtype), drawn):
        kept, whole = run(program, [data], RunOptions(engine=engine)).values()
        np.testing.assert_array_equal(kept, data.astype(np.int64).sum(axes))
        np.testing.assert_array_equal(whole, data.astype(np.int64).sum(axes, keepdims=True))


@pytest.mark.parametrize("engine", ["reference", *FAST])
@pytest.mark.parametrize("columns", [2, 3, 8, 9, 100])
@pytest.mark.parametrize("dtype", [F16, F32, F64])
def test_extremes_and_sums_of_zeros_in_rows_of_any_length(engine, columns, dtype):
    """A sum of negative zeros is 0.0; a NaN in any column is found."""
    g = Graph()
    x = g.input("x", dtype.name, (300, columns))
    program = g.returns(*(getattr(x, f"reduce_{kind}")([1]).named(kind) for kind in ("sum", "max", "min")))
    data = np.full((300, columns), -0.0, dtype.numpy)
    data[1, -1] = 0.0
    data[2, columns // 2] = np.nan
    out = run(program, [data], RunOptions(engine=engine))
    assert not np.signbit(out["sum"][[0, 1]]).any() and not out["sum"][[0, 1]].any()
    assert np.signbit(out["max"][0]) and not np.signbit(out["max"][1]) and np.signbit(out["min"][[0, 1]]).all()
    assert all(np.isnan(out[kind][2]) for kind in out)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("dtype", [SI8, SI16, SI32, SI64, UI8, UI32])
def test_quotients_by_a_number(engine, dtype):
    """Rounded toward 0, at both ends and around every multiple, in place and for one element."""
    ends = np.iinfo(dtype.numpy)
    near = [n + d for n in (ends.min, -14, -7, 0, 7, 14, ends.max) for d in (-1, 0, 1)]
    x = np.array([n for n in near if ends.min <= n <= ends.max], dtype.numpy)
    for divisor in (1, 2, 3, 7, ends.max):
        for data in (x, x[:1], x[0].reshape(()), x.reshape(1, -1)[:, ::-1].copy()):
            g = Graph()
            v = g.input("x", dtype.name, data.shape)
            by = g.constant(np.asarray(divisor, dtype.numpy)).broadcast_to(data.shape)
            program = g.returns(((v + v - v) / by).named("y"))
            quotient = run(program, [data], RunOptions(engine=engine))["y"]
            wanted = [abs(n) // divisor * (1 if n >= 0 else -1) for n in data.ravel().tolist()]
            assert quotient.ravel().tolist() == wanted


def test_a_value_written_in_place_is_not_read_later():
    program, b, (x, y) = build((F32, (40,)), (F32, (40,)))
    a = b.op("exp", x)
    c = b.op("select", b.op("compare_lt", a, y), a, y)
    d = b.op("clamp", b.op("sub", y, c), a, c)
    b.results(d, b.op("add", d, b.op("reshape", c, new_shape=(40,))), d, x)
    agree(program)


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_loops_carry_swapped_values(engine):
    program, b, (x, y, n) = build((F32, (3,)), (F32, (3,)), (SI32, ()))
    types_ = [x.type, y.type, n.type]
    test, body = Region("r0"), Region("r1")
    t, w = Builder(b.dialect, test), Builder(b.dialect, body)
    p, q, k = (t.param(v) for v in types_)
    t.results(t.op("compare_gt", k, t.op("sub", k, k)), p, q, k)
    p, q, k = (w.param(v) for v in types_)
    one = w.op("cast", w.op("compare_eq", k, k), dtype=SI32)
    w.results(q, p, w.op("sub", k, one))
    program.regions += [test, body]
    out = b.op("while", [x, y, n], regions=[test, body], name="out")
    b.results(out)
    assert verify(program, Diagnostics())
    arrays = [np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32), np.array(3, np.int32)]
    found = run(program, arrays, RunOptions(engine=engine))
    assert list(found) == ["out.0", "out.1", "out.2"]
    assert [a.tolist() for a in found.values()] == [[4, 5, 6], [1, 2, 3], 0]
    with pytest.raises(LimitExceeded):
        run(program, arrays, RunOptions(engine=engine, limits=Limits(iterations=2)))


ENDLESS = """program @main (spec_version = ptir.v0.4) {
  func @main(%x: tensor<f32, 4>) -> tensor<f32, 4> {
    %z = while(%x) cond_region[^r0] body_region[^r1] -> tensor<f32, 4>
    return %z
  }
  region ^r0(%a: tensor<f32, 4>) -> (tensor<i1>, tensor<f32, 4>) {
    %p = constant() value[dense<true>] -> tensor<i1>
    return %p, %a
  }
  region ^r1(%a: tensor<f32, 4>) -> tensor<f32, 4> {
    %e = tanh(%a) -> tensor<f32, 4>
    return %e
  }
}
"""


@pytest.mark.parametrize("command", [*(f"run --random 0 --engine {e}" for e in ENGINES if e != "xla"), "opt --check"])
def test_a_loop_that_never_ends_is_reported_at_its_line(command: str) -> None:
    ran = run_ptir(*command.split(), "--max-iterations", "100", stdin=ENDLESS.encode())
    assert ran.status == 3 and not ran.out
    assert "error[LimitExceeded]: a while loop ran 100 times\n --> <stdin>:3:" in ran.err


def test_a_check_comes_to_the_limit_of_a_loop_on_the_fastest_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*arguments: object) -> None:
        raise AssertionError("the reference, with a bound of the error of each step, takes minutes")

    monkeypatch.setattr(bounds.Executable, "__call__", slow)
    ran = run_ptir("opt", "--check", "--max-iterations", "1000", stdin=ENDLESS.encode())
    assert ran.status == 3, ran.err


def test_a_bound_program_runs_again():
    program, b, (x,) = build((F32, (4, 4)))
    b.results(b.op("exp", b.op("neg", x)), x)
    data = np.ones((4, 4), np.float32)
    bound = Executable(program, program.main, RunOptions()).bind([data])
    from_context = compare.Context()
    first = bound(from_context)[0].copy()
    data[0, 0] = 2
    second = bound(from_context)
    assert first[0, 0] == pytest.approx(np.exp(-1), rel=1e-6)
    assert second[0][0, 0] == pytest.approx(np.exp(-2), rel=1e-6)
    assert not np.may_share_memory(second[1], data)

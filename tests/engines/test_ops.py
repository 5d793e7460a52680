"""The steps of single ops held to their declared bodies: odd windows, repeated indices, NaN, infinities, zeros of both signs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptir_tools as ptir
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dtypes import BF16, CF32, CF64, F16, F32, F64, FP8_E4M3, I1, SI8, SI16, SI32, SI64, UI8, UI16, UI32, UI64
from ptir_tools.core.types import tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import RunOptions, compare, run
from ptir_tools.engines.choose import prepare
from ptir_tools.passes import run_pipeline
from tests.convert.translations import parse
from tests.engines.programs import FAST
from tests.ptir.oracle import DTYPES

ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, -3e38, 0.5, -0.5, 1.5, 127.5, -128.5, 1e10], np.float32)


def one(name, types, turned=(), **attributes):
    """(program, b) of one op; operands in `turned` are transposed inputs, so that they do not lie in order."""
    program, b = single_function(load_dialect("ptir"))
    operands = []
    for i, (dtype, shape) in enumerate(types):
        x = b.param(tensor(dtype, shape[::-1] if i in turned else shape), f"p{i}")
        operands.append(b.op("transpose", x, perm=tuple(reversed(range(len(shape))))) if i in turned else x)
    b.results(b.op(name, *operands, **attributes))
    assert verify(program, found := Diagnostics()), list(found)
    return program


def agree(program, inputs):
    """Hold every engine to the reference on these inputs; the reference's outputs."""
    expected, bounds = compare.reference_outputs(program, inputs, RunOptions())
    for engine in FAST:
        actual = run(program, inputs, RunOptions(engine=engine))
        assert compare.compare(expected, actual, bounds) == [], engine
    return list(expected.values())


def numbers(rng, dtype, shape):
    """Small numbers of any dtype, exact in all of them."""
    return rng.integers(0 if dtype.name.startswith("ui") else -4, 5, shape).astype(numpy_dtype(dtype))


def sprinkled(rng, shape):
    """f32 in which every fourth element is one of ODD."""
    x = rng.standard_normal(shape).astype(np.float32)
    return np.where(rng.random(shape) < 0.25, rng.choice(ODD, shape), x).astype(np.float32)


SHAPE = st.lists(st.integers(1, 5), min_size=1, max_size=3)
AXIS = st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3))


def fits(axis, base, dilation):
    """Whether a window fits there."""
    extent, window, _, low, high = axis
    if not extent:
        return not (low or high)
    return (extent - 1) * base + 1 + low + high >= (window - 1) * dilation + 1


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(AXIS, st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3),
    st.sampled_from([F32, F64, BF16, SI8, UI16]),
    st.sampled_from(["sum", "max", "min"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_windows_of_all_kinds(axes, dtype, kind, turned, seed):
    if not all(fits(axis, base, wide) for axis, base, wide in axes):
        return
    extents, window, strides, low, high = zip(*(a for a, _, _ in axes), strict=True)
    attributes = {"window_dims": window, "strides": strides, "padding": tuple(zip(low, high, strict=True)), "reduce": kind}
    attributes |= {"base_dilation": tuple(b for _, b, _ in axes), "window_dilation": tuple(w for _, _, w in axes)}
    program = one("reduce_window", [(dtype, extents)], (0,) if turned else (), **attributes)
    agree(program, [numbers(np.random.default_rng(seed), dtype, extents[::-1] if turned else extents)])


@settings(max_examples=60, deadline=None)
@given(st.lists(AXIS, min_size=1, max_size=2), st.integers(1, 3), st.integers(1, 2), st.booleans(), st.integers(0, 99))
def test_patches_of_all_kinds(axes, channels, dilation, turned, seed):
    if not all(fits(axis, 1, dilation) for axis in axes):
        return
    extents, window, strides, low, high = zip(*axes, strict=True)
    attributes = {"window": window, "strides": strides, "padding": tuple(zip(low, high, strict=True))}
    shape = (2, *extents, channels)
    program = one("extract_patches", [(F32, shape)], (0,) if turned else (), dilation=(dilation,) * len(axes), **attributes)
    agree(program, [sprinkled(np.random.default_rng(seed), shape[::-1] if turned else shape)])


def test_max_windows_see_nan_and_not_the_padding():
    dims = {"window_dims": (3,), "strides": (2,), "padding": ((2, 2),), "base_dilation": (1,), "window_dilation": (2,)}
    (found,) = agree(one("reduce_window", [(F32, (9,))], reduce="max", **dims), [np.r_[ODD[:5], ODD[:4]]])
    assert np.isnan(found).sum() == 3


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 5), st.integers(-3, 2), st.booleans(), st.integers(0, 99)
)
def test_gathers_along_every_axis(shape, count, axis, turned, seed):
    rng = np.random.default_rng(seed)
    axis = axis % len(shape)
    picked = (*shape[:axis], count, *shape[axis + 1 :])
    program = one("gather", [(F32, tuple(shape)), (SI32, picked)], (0, 1) if turned else (), axis=axis)
    inputs = [sprinkled(rng, tuple(shape)), rng.integers(0, shape[axis], picked, np.int32)]
    agree(program, [x.T for x in inputs] if turned else inputs)


@settings(max_examples=60, deadline=None)
@given(
    SHAPE,
    st.integers(0, 7),
    st.integers(-3, 2),
    st.sampled_from([F32, F64, F16, BF16, SI8, UI16, SI64]),
    st.sampled_from(["add", "max", "min", "replace"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_scatters_along_every_axis(shape, count, axis, dtype, kind, turned, seed):
    rng = np.random.default_rng(seed)
    axis = axis % len(shape)
    put = (*shape[:axis], count, *shape[axis + 1 :])
    types = [(dtype, tuple(shape)), (SI64, put), (dtype, put)]
    program = one("scatter_reduce", types, (0, 1, 2) if turned else (), axis=axis, reduce=kind)
    inputs = [numbers(rng, dtype, shape), rng.integers(0, shape[axis], put), numbers(rng, dtype, put)]
    agree(program, [x.T for x in inputs] if turned else inputs)


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, SI8, UI64, FP8_E4M3])
@pytest.mark.parametrize("width", [1, 5, 400])
def test_rows_are_added_at_their_starts(dtype, width):
    rng = np.random.default_rng(0)
    dims = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}
    program = one("scatter_add", [(dtype, (3, width)), (SI32, (9,)), (dtype, (9, width))], (2,), **dims)
    agree(program, [numbers(rng, dtype, (3, width)), rng.integers(0, 3, 9, np.int32), numbers(rng, dtype, (width, 9))])


def test_windows_are_added_where_an_index_vector_says():
    rng = np.random.default_rng(0)
    dims = {
        "update_window_dims": (0, 2),
        "inserted_window_dims": (1,),
        "scatter_dims_to_operand_dims": (2, 1),
        "index_vector_dim": 0,
    }
    program = one("scatter_add", [(F32, (4, 5, 6)), (SI64, (2, 3)), (F32, (2, 3, 4))], (0,), **dims)
    starts = np.array([[0, 2, 1], [4, 0, 4]])
    agree(program, [numbers(rng, F32, (6, 5, 4)), starts, numbers(rng, F32, (2, 3, 4))])
    for engine in FAST:
        with pytest.raises(Rejected) as caught:
            run(program, [numbers(rng, F32, (6, 5, 4)), starts + 1, numbers(rng, F32, (2, 3, 4))], RunOptions(engine=engine))
        assert caught.value.diagnostics[0].code == "ScatterIndexOutOfBounds"


def test_a_window_is_inside_on_every_engine_or_on_none():
    """At each start along each axis, some of them outside."""
    rng = np.random.default_rng(0)
    dims = {
        "update_window_dims": (1, 2),
        "inserted_window_dims": (),
        "scatter_dims_to_operand_dims": (0, 1),
        "index_vector_dim": 1,
    }
    program = one("scatter_add", [(F32, (4, 5)), (SI32, (2, 2)), (F32, (2, 2, 3))], **dims)
    given = numbers(rng, F32, (4, 5)), numbers(rng, F32, (2, 2, 3))

    def outcome(engine, starts):
        try:
            (found,) = run(program, [given[0], starts, given[1]], RunOptions(engine=engine)).values()
        except Rejected as error:
            return error.diagnostics[0].code
        return found.round(3).tolist()

    seen = set()
    for axis, start in itertools.product((0, 1), range(-1, 6)):
        starts = np.array([[0, 1], [1, 0]], np.int32)
        starts[1, axis] = start
        found = [outcome(engine, starts) for engine in ("reference", *FAST)]
        assert all(x == found[0] for x in found), (axis, start)
        seen.add(type(found[0]))
    assert seen == {str, list}


def test_updates_of_one_element_are_summed_in_f64():
    program = one("scatter_reduce", [(F32, (1,)), (SI32, (2,)), (F32, (2,))], axis=0)
    (found,) = agree(program, [np.float32([2**24]), np.zeros(2, np.int32), np.ones(2, np.float32)])
    assert found.item() == 2**24 + 2


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("dtype", [F32, F64, BF16, SI8, UI32])
@pytest.mark.parametrize("shape", [(9,), (9, 3), (7, 2, 150), (0, 4)])
def test_segments_are_reduced(kind, dtype, shape):
    rng = np.random.default_rng(0)
    program = one("segment_reduce", [(dtype, shape), (SI32, shape[:1])], num_segments=5, kind=kind)
    agree(program, [numbers(rng, dtype, shape), rng.integers(0, 4, shape[:1], np.int32)])
    for engine in FAST if shape[0] else ():
        with pytest.raises(Rejected) as caught:
            run(program, [numbers(rng, dtype, shape), np.full(shape[:1], -1, np.int32)], RunOptions(engine=engine))
        assert caught.value.diagnostics[0].code == "ScatterIndexOutOfBounds"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 40),
    st.sampled_from([F32, F16, BF16, F64, SI8, SI32, UI32, UI8, SI64]),
    st.booleans(),
    st.integers(0, 1),
    st.integers(0, 99),
)
def test_the_best_come_in_order_and_the_first_of_equals_first(n, k, dtype, largest, axis, seed):
    rng = np.random.default_rng(seed)
    shape = (n, 3) if axis == 0 else (3, n)
    program = one("top_k", [(dtype, shape)], k=min(k, n), axis=axis, largest=largest)
    odd = dtype.is_float and dtype is not F64
    with np.errstate(over="ignore"):
        x = sprinkled(rng, shape).astype(numpy_dtype(dtype)) if odd else numbers(rng, dtype, shape)
    values, indices = agree(program, [x])
    np.testing.assert_array_equal(values.astype(float), np.take_along_axis(x, indices, axis).astype(float))


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64])
@pytest.mark.parametrize(
    "shape,axis", [((4, 50), -1), ((3, 7, 5), 1), ((40_000, 2), 0), ((5,), 0), ((300, 300), -1), ((0, 5), 1)]
)
@pytest.mark.parametrize("offset", [0, 1000])
def test_layer_norm_of_rows_far_from_zero(dtype, shape, axis, offset):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) + offset).astype(numpy_dtype(dtype))
    n = shape[axis]
    program = one("layer_norm", [(dtype, shape), (dtype, (n,)), (dtype, (n,))], epsilon=1e-5, feature_axis=axis)
    agree(program, [x, *(rng.standard_normal(n).astype(x.dtype) for _ in range(2))])


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize(
    "dtype,row,epsilon",
    [
        (BF16, [1.0, -3.39e38], 1e-5),  # squares overflow
        (F32, [3.4e38, 3.4e38, -3.4e38], 0.0),  # the sum does, too
        (F32, [1e-30, 3e-30, -2e-30, 0.0], 0.0),  # squares underflow
        (F32, [1e-25, -1e-25, 1e-30], 1e-60),
        (BF16, [1e-38, 2e-38, -1e-38], 0.0),
        (F32, [1e-20, -1e-20, 3e-20], 1e-38),  # in between: some squares are subnormal
        (F32, [2.0, 2.0, 2.0], 0.0),  # 0 / 0
        (F32, [1.0, float("inf"), 2.0], 1e-5),
        (F32, [1.0, float("nan"), 2.0], 1e-5),
    ],
)
def test_layer_norm_of_extremes_is_that_of_float64(engine, dtype, row, epsilon):
    """Held to float64 by hand: the error rule of the op says nothing where its smaller ops overflow."""
    n, np_dtype = len(row), numpy_dtype(dtype)
    program = one("layer_norm", [(dtype, (2, n)), (dtype, (n,)), (dtype, (n,))], epsilon=epsilon)
    x = np.array([row, range(1, n + 1)], np_dtype)
    gamma, beta = (np.linspace(a, b, n).astype(np_dtype) for a, b in ((0.5, 2), (-1, 1)))
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        centered = wide - wide.mean(1, keepdims=True)
        normal = centered / np.sqrt((centered**2).mean(1, keepdims=True) + epsilon)
        want = normal * gamma.astype(np.float64) + beta.astype(np.float64)
    (got,) = run(program, [x, gamma, beta], RunOptions(engine=engine)).values()
    ulp = 2.0**-8 if dtype is BF16 else 2.0**-21
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=ulp, atol=ulp)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("target", [SI8, UI8, SI16, SI32])
def test_quantization_is_that_of_the_bodies_to_the_bit(axis, target):
    rng = np.random.default_rng(0)
    shape = (3, 700, 9)
    x = sprinkled(rng, shape)
    x[0, :5] = (np.arange(45).reshape(5, 9) - 20.5) * np.float32(0.1)
    count = 1 if axis is None else shape[axis]
    scale = {"axis": axis, "scales": tuple(rng.random(count) + 0.1), "zero_points": tuple(rng.integers(0, 20, count).tolist())}
    agree(one("quantize", [(F32, shape)], output_dtype=target, **scale), [x])
    agree(one("quantize", [(F32, shape)], output_dtype=F32, axis=axis, scales=scale["scales"]), [x])
    info = np.iinfo(numpy_dtype(target))
    q = rng.integers(info.min, info.max, shape, numpy_dtype(target))
    expected = run(one("dequantize", [(target, shape)], **scale), [q], RunOptions(engine="reference"))
    for engine in FAST:
        actual = run(one("dequantize", [(target, shape)], **scale), [q], RunOptions(engine=engine))
        assert compare.compare(expected, actual, {}) == []


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([SI8, UI8, SI16, UI16, SI32, UI32]),
    st.sampled_from([SI8, UI8, SI16, UI16, SI32, UI32]),
    st.lists(st.sampled_from([1, 2, 3, 7, 300]), min_size=1, max_size=3),
    st.integers(-3, 2),
    st.sampled_from(["", "in", "out", "both"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_requantization_is_its_body(source, target, shape, axis, sides, zeros, seed):
    """Bit for bit on every engine: any axis or none, scales on either side, steps that saturate."""
    rng = np.random.default_rng(seed)
    of = None if axis == 2 else axis % len(shape)
    count = 1 if of is None else shape[of]
    attributes = {"output_dtype": target, "axis": of}
    for prefix, dtype in (("", source), ("output_", target)):
        if sides in ("both", "in" if not prefix else "out"):
            attributes[f"{prefix}scales"] = tuple(np.exp2(rng.integers(-9, 3, count)) * rng.choice([1, 1.1, 3], count))
            if zeros:
                attributes[f"{prefix}zero_points"] = tuple(map(int, rng.integers(max(dtype.min, -99), min(dtype.max, 99), count)))
    program = one("requantize", [(source, tuple(shape))], **attributes)
    x = rng.integers(source.min, source.max, shape, endpoint=True).astype(numpy_dtype(source))
    x.flat[::2] = rng.integers(max(source.min, -99), min(source.max, 99), x.size)[::2]
    (expected,) = run(program, [x], RunOptions(engine="reference")).values()
    for engine in FAST:
        for threads in (1, 2) if engine == "native" else (0,):
            (found,) = run(program, [x], RunOptions(engine=engine, threads=threads)).values()
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("source", [F32, F64])
@pytest.mark.parametrize("target", [SI8, UI8, SI16, SI32, UI32, SI64, UI64, I1, F16, BF16])
@pytest.mark.parametrize("shape", [(40_000,), (3, 7)])
def test_floats_become_integers_by_the_cast_table(source, target, shape):
    rng = np.random.default_rng(0)
    edges = [*ODD, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64, 255.0, 255.9, -0.9, -1.0, 256.0]
    for x in (rng.standard_normal(shape), rng.choice(edges, shape)):
        agree(one("cast", [(source, shape)], dtype=target), [x.astype(numpy_dtype(source))])
    agree(one("cast", [(source, shape)], (0,), dtype=target), [x.astype(numpy_dtype(source)).T])


@pytest.mark.parametrize("dtype", [I1, SI8, UI16, F16, BF16, F32, SI32, F64, UI64])
@pytest.mark.parametrize("dying", [0, 1, 2])
def test_select_keeps_every_bit(dtype, dying):
    """Whichever branch the result is written over."""
    rng = np.random.default_rng(0)
    shape = (5, 37)
    program, b = single_function(load_dialect("ptir"))
    pred, x, y = (b.param(tensor(d, shape), n) for d, n in zip((I1, dtype, dtype), "pxy", strict=True))
    double = "compare_ne" if dtype is I1 else "add"
    if dying == 1:
        x = b.op(double, x, x)
    if dying == 2:
        y = b.op(double, y, y)
    b.results(b.op("select", pred, x, y))
    kind = numpy_dtype(dtype)
    bits = [rng.integers(0, 2 if dtype is I1 else 256, (5, 37 * kind.itemsize), np.uint8).view(kind) for _ in "xy"]
    inputs = [rng.random(shape) < 0.5, *([numbers(rng, dtype, shape) for _ in "xy"] if dying else bits)]
    expected = run(program, inputs, RunOptions(engine="reference"))
    for engine in FAST:
        (e,), (a,) = expected.values(), run(program, inputs, RunOptions(engine=engine)).values()
        assert np.array_equal(e.view(np.uint8), a.view(np.uint8))


@pytest.mark.parametrize("name", ["rng_uniform", "rng_normal"])
@pytest.mark.parametrize("dtype", [F32, F64, BF16])
@pytest.mark.parametrize("shape", [(), (7,), (20_001,), (0, 3)])
def test_draws_are_those_of_the_bodies_to_the_bit(name, dtype, shape):
    program = one(name, [], shape=shape, dtype=dtype)
    expected = run(program, [], RunOptions(engine="reference", seed=7))
    for engine in FAST:
        (a,), (e,) = run(program, [], RunOptions(engine=engine, seed=7)).values(), expected.values()
        assert np.array_equal(a.view(np.uint8) if shape else a, e.view(np.uint8) if shape else e)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "target,shapes,attrs",
    [
        ("ptir.softmax.v1", [(7, 33)], (("axis", ("I64", 1)),)),
        ("ptir.log_softmax.v1", [(7, 33)], (("axis", ("I64", 0)),)),
        ("ptir.gelu.v1", [(5, 40)], (("approximate", ("String", "sigmoid")),)),
        ("ptir.gelu.v1", [(5, 40)], (("approximate", ("String", "tanh")),)),
        ("gpt_rs.triton.fused_layer_norm.f32.v1", [(6, 50), (50,), (50,)], (("axis", ("I64", 1)), ("eps", ("F64", 1e-5)))),
    ],
)
def test_known_custom_calls_are_expanded_unless_floats_are_strict(target, shapes, attrs, strict):
    program, b = single_function(load_dialect("ptir"))
    b.results(b.op("custom_call", [b.param(tensor(F32, s), f"p{i}") for i, s in enumerate(shapes)], target=target, attrs=attrs))
    inputs = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in shapes]
    expected, bounds = compare.reference_outputs(program, inputs, RunOptions())
    seen = prepare(program, RunOptions(engine="numpy", strict_fp=strict), Diagnostics()).function.body
    assert any(op.name == "ptir.custom_call" for op in seen) == strict
    for engine in FAST:
        actual = run(program, inputs, RunOptions(engine=engine, strict_fp=strict))
        assert compare.compare(expected, actual, bounds) == []


@pytest.mark.parametrize("name,code", [("gather", "GatherIndexOutOfBounds"), ("scatter_reduce", "ScatterIndexOutOfBounds")])
@pytest.mark.parametrize("wrong", [-1, 4])
def test_an_index_outside_is_told(name, code, wrong):
    types = [(F32, (4, 2)), (SI32, (3, 2)), (F32, (3, 2))]
    program = one(name, types if name == "scatter_reduce" else types[:2], axis=0)
    indices = np.zeros((3, 2), np.int32)
    indices[2, 1] = wrong
    inputs = [np.zeros((4, 2), np.float32), indices, np.zeros((3, 2), np.float32)][: len(program.main.params)]
    for engine in FAST:
        with pytest.raises(Rejected) as caught:
            run(program, inputs, RunOptions(engine=engine))
        assert caught.value.diagnostics[0].code == code
        assert f"{wrong} at [2, 1]" in caught.value.diagnostics[0].message


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("side", ["lhs", "rhs"])
def test_rows_of_a_constant_that_are_chosen_at_run_time_are_no_constant(engine: str, side: str) -> None:
    """A table looked up by an input, moved and multiplied. Found: the product kept what the memory held before the run."""
    g = ptir.Graph()
    at = g.input("at", "si64", (2, 16))
    table, matrix = np.random.default_rng(0).random((100, 64), np.float32), np.random.default_rng(1).random((64, 32), np.float32)
    rows, weights = g.constant(table).take(at).transpose([1, 0, 2]), g.constant(matrix)
    y = (
        rows.dot_general(weights, contract_lhs=[2], contract_rhs=[0])
        if side == "lhs"
        else weights.dot_general(rows, contract_lhs=[0], contract_rhs=[2])
    )
    program = g.returns(y.named("y"))
    indices = np.random.default_rng(2).integers(0, 100, (2, 16))
    wanted = table[indices].transpose(1, 0, 2).astype(np.float64) @ matrix
    wanted = wanted if side == "lhs" else np.moveaxis(wanted, -1, 0)
    np.testing.assert_allclose(ptir.run(program, [indices], engine=engine)["y"], wanted, rtol=1e-5)


def outputs_of(text, *given, engine="reference"):
    """What an engine makes of a text of PTIR."""
    return list(run(parse(text, "ptir"), list(given), RunOptions(engine=engine)).values())


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_ties_of_quantization_go_to_the_even_number(engine):
    """Held to Python's `round`, around 0, at both ends of the dtype and off the zero point."""
    halves = np.array([k + 0.5 for k in (*range(-6, 6), 125, 126, 127, -129, -128)], np.float32)
    text = """func @f(%x: tensor<f32, 17>, %q: tensor<si32, 17>) -> (tensor<si8, 17>, tensor<si8, 17>, tensor<si8, 17>) {
  %a = quantize(%x) output_dtype[si8] scales[1.0] -> tensor<si8, 17>
  %b = quantize(%x) output_dtype[si8] scales[1.0] zero_points[3] -> tensor<si8, 17>
  %c = requantize(%q) output_dtype[si8] scales[0.5] output_scales[1.0] -> tensor<si8, 17>
  return %a, %b, %c
}
"""
    found = outputs_of(text, halves, (2 * halves).astype(np.int32), engine=engine)
    even = [round(float(x)) for x in halves]
    want = [[max(-128, min(127, n + point)) for n in even] for point in (0, 3, 0)]
    assert [x.tolist() for x in found] == want


@pytest.mark.parametrize("engine", ["reference", *FAST])
@pytest.mark.parametrize("kind", ["add", "max", "min", "replace"])
def test_the_last_place_of_a_scatter_is_inside_and_the_next_is_not(engine, kind):
    text = f"""func @f(%x: tensor<f32, 4>, %i: tensor<si32, 2>, %u: tensor<f32, 2>) -> tensor<f32, 4> {{
  %y = scatter_reduce(%x, %i, %u) axis[0] reduce[{kind}] -> tensor<f32, 4>
  return %y
}}
"""
    x, u = np.array([1, 2, 3, 4], np.float32), np.array([8, -8], np.float32)
    want = x.tolist()
    for at, value in ((3, 8.0), (0, -8.0)):
        want[at] = {"add": want[at] + value, "max": max(want[at], value), "min": min(want[at], value), "replace": value}[kind]
    assert outputs_of(text, x, np.array([3, 0], np.int32), u, engine=engine)[0].tolist() == want
    for bad in (4, -1, 2**31 - 1, -(2**31)):
        with pytest.raises(Rejected) as caught:
            outputs_of(text, x, np.array([0, bad], np.int32), u, engine=engine)
        assert caught.value.diagnostics[0].code == "ScatterIndexOutOfBounds"


@pytest.mark.parametrize("engine", ["reference", *FAST])
def test_a_slice_of_a_scalar_is_the_scalar(engine):
    text = """func @f(%x: tensor<f32>, %v: tensor<f32, 3>) -> (tensor<f32>, tensor<f32>, tensor<f32, 3>) {
  %a = slice(%x) starts[] sizes[] -> tensor<f32>
  %b = dynamic_slice(%x, %i) sizes[] -> tensor<f32>
  %c = broadcast_to(%a) result_shape[3] -> tensor<f32, 3>
  return %a, %b, %c
}
""".replace("%b = dynamic", "%i = constant() value[dense<[]>] -> tensor<si32, 0>\n  %b = dynamic")
    x, v = np.array(2.5, np.float32), np.zeros(3, np.float32)
    program = parse(text, "ptir")
    run_pipeline(program, "canonicalize")
    for ready in (parse(text, "ptir"), program):
        a, b, c = run(ready, [x, v], RunOptions(engine=engine)).values()
        assert a.shape == b.shape == () and float(a) == float(b) == 2.5 and c.tolist() == [2.5] * 3


@pytest.mark.parametrize("engine", ["reference", *FAST])
@pytest.mark.parametrize(
    "dtype, out, values, want",
    [
        ("f16", "f16", [2048, 1, 1], 2050),  # f16 would stay at 2048
        ("bf16", "bf16", [256, 1, 1], 258),
        ("bf16", "f32", [256, 0.5, 0.25], 256.75),
        ("f32", "f32", [1, 2, 3], 6),
        ("si8", "si8", [100, 100, 0], -56),  # in its own dtype, where it wraps
        ("si8", "si32", [100, 100, 0], -56),
        ("ui8", "si32", [200, 100, 0], 44),
        ("si32", "si64", [2**31 - 1, 1, 0], -(2**31)),
    ],
)
def test_sums_have_the_accumulator_of_the_contract(engine, dtype, out, values, want):
    """f32 for floats up to f32, the operand's dtype for all others; an explicit one is used."""
    t = f"tensor<{dtype}, 3>"
    text = f"""func @f(%x: {t}) -> (tensor<{out}>, tensor<{out}>) {{
  %one = constant() value[dense<1{".0" if dtype[0] in "fb" else ""}>] -> {t}
  %s = reduce_sum(%x) axes[0] out_dtype[{out}] -> tensor<{out}>
  %d = dot_general(%x, %one) contract_lhs[0] contract_rhs[0] out_dtype[{out}] -> tensor<{out}>
  return %s, %d
}}
"""
    x = np.array(values).astype(numpy_dtype(DTYPES[dtype]))
    assert [float(y) for y in outputs_of(text, x, engine=engine)] == [want, want]


def test_an_explicit_accumulator_saturates_in_the_result():
    text = """func @f(%x: tensor<si8, 3>) -> tensor<si8> {
  %s = reduce_sum(%x) axes[0] accum_dtype[si32] -> tensor<si8>
  return %s
}
"""
    for engine in ("reference", *FAST):
        assert outputs_of(text, np.array([100, 100, 0], np.int8), engine=engine)[0] == 127


@pytest.mark.parametrize("shapes", [[(4, 6), (24,), (2, 12)], [(3, 8), (24,), (4, 6), (24,)], [(24,), (1, 24, 1), (24,)]])
def test_a_chain_of_reshapes_is_one_reshape(shapes):
    """Also past one with two users; a transpose between two is kept."""
    lines, last = [], "x"
    for k, s in enumerate(shapes):
        lines.append(f"  %r{k} = reshape(%{last}) new_shape[{', '.join(map(str, s))}] -> tensor<f32, {'x'.join(map(str, s))}>\n")
        last = f"r{k}"
    end = "x".join(map(str, shapes[-1]))
    text = f"func @f(%x: tensor<f32, 24>) -> tensor<f32, {end}> {{\n{''.join(lines)}  return %{last}\n}}\n"
    program = parse(text, "ptir")
    run_pipeline(program, "canonicalize")
    assert len(program.main.body) == (0 if shapes[-1] == (24,) else 1)
    (y,) = run(program, [np.arange(24, dtype=np.float32)]).values()
    assert y.shape == shapes[-1] and y.ravel().tolist() == list(range(24))


def test_reshapes_around_a_transpose_are_two():
    text = """func @f(%x: tensor<f32, 24>) -> tensor<f32, 24> {
  %a = reshape(%x) new_shape[4, 6] -> tensor<f32, 4x6>
  %t = transpose(%a) perm[1, 0] -> tensor<f32, 6x4>
  %b = reshape(%t) new_shape[24] -> tensor<f32, 24>
  return %b
}
"""
    program = parse(text, "ptir")
    run_pipeline(program, "canonicalize")
    (y,) = run(program, [np.arange(24, dtype=np.float32)]).values()
    assert y.tolist() == np.arange(24).reshape(4, 6).T.ravel().tolist()


EXTREMES = [0.0, -0.0, 1.0, -2.0, 5e-324, -1e-40, 3e38, -1e308, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("dtype", [CF32, CF64], ids=str)
@pytest.mark.parametrize("name", ["neg", "exp", "log", "tanh", "rsqrt", "reciprocal"])
def test_complex_extremes_are_those_of_the_bodies(name, dtype, engine):
    """Which part is infinite and which NaN, and the sign of a zero."""
    with np.errstate(all="ignore"):
        x = np.array([complex(a, b) for a in EXTREMES for b in EXTREMES]).astype(numpy_dtype(dtype))
    program, b = single_function(load_dialect("ptir"))
    b.results(b.op(name, b.param(tensor(dtype, x.shape))))
    (given,), (wanted,) = (list(run(program, [x], RunOptions(engine=e)).values()) for e in (engine, "reference"))
    for part in ("real", "imag"):
        ours, theirs = getattr(given, part), getattr(wanted, part)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        zero = theirs == 0
        assert (np.signbit(ours[zero]) == np.signbit(theirs[zero])).all()


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("dtype", ["si8", "ui8", "si16", "si32", "si64", "f32", "f64", "f16"])
def test_the_larger_and_the_smaller_of_a_repeated_element(engine, dtype):
    """One element, or a row of them, against a matrix, on either side."""
    kind = np.dtype(dtype.replace("si", "int").replace("ui", "uint").replace("f", "float"))
    x = (np.arange(35).reshape(5, 7) % 11).astype(kind)
    g = ptir.Graph()
    a = g.input("x", dtype, (5, 7))
    one, row = np.array(4, kind), (np.arange(7) + 2).astype(kind)
    made, wanted = [], []
    for number in (one, row):
        b = g.constant(number).broadcast_like(a)
        made += [a.maximum(b), b.maximum(a), a.minimum(b), b.minimum(a)]
        wanted += [np.maximum(x, number)] * 2 + [np.minimum(x, number)] * 2
    program = g.returns(*(y.named(f"y{i}") for i, y in enumerate(made)))
    for got, want in zip(run(program, [x], RunOptions(engine=engine)).values(), wanted, strict=True):
        np.testing.assert_array_equal(got, want)

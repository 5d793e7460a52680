"""Regions, random numbers, top-k, segments and quantization of PTIR."""

import math

import numpy as np
import pytest

from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import Element, Literal
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.source import Source
from ptir_tools.core.types import tuple_of
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.gptrs import dump
from ptir_tools.dialects.ptir.text.format import FORMAT
from tests.ptir.oracle import DTYPES, FLOATS, INTEGERS, NUMPY, code, program, region, rounded, run, same, sample, ty, wrap

F = ty("f32", 3)
S = ty("f32")
I = ty("si32")  # noqa: E741
FLAG = ty("i1")


def test_cond_runs_one_branch():
    yes = region("r0", [F], lambda b, x: [b.op("exp", x)])
    no = region("r1", [F], lambda b, x: [x])
    x = np.array([0, 1, 2], np.float32)
    same(run("cond", np.array(True), [x], regions=[yes, no]), np.exp(x.astype(np.float64)).astype(np.float32))
    same(run("cond", np.array(False), [x], regions=[yes, no]), x)


def test_cond_with_several_results_and_with_none():
    pair = region("r0", [F], lambda b, x: [x, b.op("neg", x)])
    swapped = region("r1", [F], lambda b, x: [b.op("neg", x), x])
    x = np.array([0, 1, 2], np.float32)
    a, b = run("cond", np.array(False), [x], regions=[pair, swapped])
    same(a, -x)
    same(b, x)
    nothing = [region(n, [], lambda b: []) for n in ("r0", "r1")]
    assert run("cond", np.array(True), [], regions=nothing) == ()


def test_cond_does_not_run_the_other_branch():
    def divide(b, x):
        return [b.op("div", x, x)]

    yes, no = region("r0", [I], lambda b, x: [x]), region("r1", [I], divide)
    same(run("cond", np.array(True), [np.array(0, np.int32)], regions=[yes, no]), np.array(0, np.int32))
    with pytest.raises(Violation, match="zero"):
        run("cond", np.array(False), [np.array(0, np.int32)], regions=[yes, no])


def counting(limit, step=1):
    """cond_region: carry < limit, carry unchanged; body_region: carry + step."""

    def test(b, x):
        bound = b.op("constant", value=number(limit))
        return [b.op("compare_lt", x, bound), x]

    def add(b, x):
        return [b.op("add", x, b.op("constant", value=number(step)))]

    return [region("r0", [I], test), region("r1", [I], add)]


def number(n):

    return Literal(I, np.array(n, "<i4").tobytes())


def test_while_counts():
    same(run("while", [np.array(0, np.int32)], regions=counting(10, 3)), np.array(12, np.int32))
    same(run("while", [np.array(50, np.int32)], regions=counting(10)), np.array(50, np.int32))


def test_while_takes_the_carry_of_the_condition():
    stop = region("r0", [S], lambda b, x: [b.op("compare_lt", x, x), b.op("neg", x)])
    body = region("r1", [S], lambda b, x: [b.op("exp", x)])
    same(run("while", [np.array(3, np.float32)], regions=[stop, body]), np.array(-3, np.float32))


def test_while_with_two_carries_is_a_tuple():
    def test(b, i, x):
        return [b.op("compare_lt", i, b.op("constant", value=number(4))), i, x]

    def body(b, i, x):
        return [b.op("add", i, b.op("constant", value=number(1))), b.op("add", x, x)]

    regions = [region("r0", [I, S], test), region("r1", [I, S], body)]
    i, x = run("while", [np.array(0, np.int32), np.array(1, np.float32)], regions=regions)
    assert i == 4 and x == 16


def test_while_stops_at_the_limit():
    with pytest.raises(LimitExceeded) as info:
        run("while", [np.array(0, np.int32)], regions=counting(100), context=Context(limits=Limits(iterations=99)))
    assert info.value.flag == "--max-iterations"
    assert run("while", [np.array(0, np.int32)], regions=counting(100), context=Context(limits=Limits(iterations=100))) == 100


def test_scan_accumulates_and_stacks():
    def body(b, total, product, x, y):
        s = b.op("add", total, b.op("mul", x, y))
        return [s, b.op("mul", product, x), s, x, y]

    r = region("r0", [F, F, F, F], body)
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.ones((4, 3), np.float32) * 2
    zero, one = np.zeros(3, np.float32), np.ones(3, np.float32)
    total, product, sums, xs, ys = run("scan", [zero, one, x, y], regions=[r], carry_count=2, scan_output_count=3)
    same(sums, np.cumsum(x * y, 0, dtype=np.float32))
    same(total, (x * y).sum(0))
    same(product, x.prod(0))
    same(xs, x)
    same(ys, y)


@pytest.mark.parametrize(("carries", "outs"), [(c, o) for c in range(4) for o in range(4) if c + o])
def test_scan_gives_its_carries_and_then_its_stacks(carries, outs):
    def body(b, *values):
        carry, x = values[:-1], values[-1]
        return [*(b.op("add", c, x) for c in carry), *[b.op("neg", x), b.op("mul", x, x), x][:outs]]

    r = region("r0", [S] * (carries + 1), body)
    for x in (np.arange(1, 4, dtype=np.float32), np.zeros(0, np.float32)):
        start = [np.array(k, np.float32) for k in range(carries)]
        found = run("scan", [*start, x], regions=[r], carry_count=carries, scan_output_count=outs)
        found = found if carries + outs > 1 else (found,)
        for got, want in zip(found, [*(k + x.sum() for k in start), *[-x, x * x, x][:outs]], strict=True):
            same(np.asarray(got), np.asarray(want, np.float32))


def test_scan_of_zero_steps_and_of_scalars():
    r = region("r0", [S, S], lambda b, c, x: [b.op("add", c, x), b.op("mul", x, x)])
    counts = {"carry_count": 1, "scan_output_count": 1}
    carry, outs = run("scan", [np.array(5, np.float32), np.zeros(0, np.float32)], regions=[r], **counts)
    assert carry == 5 and outs.shape == (0,)
    carry, outs = run("scan", [np.array(5, np.float32), np.arange(3, dtype=np.float32)], regions=[r], **counts)
    assert carry == 8 and outs.tolist() == [0, 1, 4]


def test_scan_with_one_result_is_no_tuple():
    r = region("r0", [S], lambda b, x: [b.op("neg", x)])
    x = np.arange(3, dtype=np.float32)
    same(run("scan", [x], regions=[r], carry_count=0, scan_output_count=1), -x)


def test_nested_tuples_pass_through_regions():
    t = tuple_of((S, F))
    pair = region("r0", [S, F], lambda b, a, x: [a, x])
    first = region("r1", [t], lambda b, v: [Element(v, 1)])
    second = region("r2", [t], lambda b, v: [b.op("neg", Element(v, 1))])

    p, b = single_function(DIALECT)
    flag, a, x = b.param(FLAG), b.param(S), b.param(F)
    v = b.op("cond", flag, [a, x], regions=[pair, pair])
    b.results(b.op("cond", flag, [v], regions=[first, second]))
    p.regions.extend([pair, first, second])
    assert verify(p, Diagnostics())
    data = np.arange(3, dtype=np.float32)
    same(run_block(p.main, [np.array(False), np.array(1, np.float32), data], Context())[0], -data)


SIGNATURES = {
    "branch parameter": ("cond", [FLAG, [S]], [[F], [S]], [1, 1], {}),
    "branch results": ("cond", [FLAG, [S]], [[S], [S]], [1, 2], {}),
    "too few parameters": ("cond", [FLAG, [S]], [[], [S]], [0, 1], {}),
    "condition without flag": ("while", [[S]], [[S], [S]], [1, 1], {}),
    "body of another type": ("while", [[S]], [[S], [F]], [1, 1], {}),
    "body without slice": ("scan", [[S, F]], [[S]], [1], {"carry_count": 1, "scan_output_count": 0}),
    "body result count": ("scan", [[S, F]], [[S, S]], [2], {"carry_count": 1, "scan_output_count": 2}),
    "carry of another type": ("scan", [[S, F]], [[S, S]], [0], {"carry_count": 1, "scan_output_count": 0}),
}


@pytest.mark.parametrize("case", SIGNATURES)
def test_region_signatures(case):
    name, operands, params, results, attrs = SIGNATURES[case]
    regions = [
        region(f"r{i}", p, lambda b, *v, n=n: list(v[:1]) * n) for i, (p, n) in enumerate(zip(params, results, strict=True))
    ]
    assert code(name, *operands, regions=regions, **attrs) == "RegionSignatureMismatch"


def test_control_operands():
    same_branch = [region("r0", [S], lambda b, x: [x]), region("r1", [S], lambda b, x: [x])]
    assert code("cond", ty("f32"), [S], regions=same_branch) == "DTypeNotSupported"
    assert code("cond", ty("i1", 1), [S], regions=same_branch) == "OperandRankMismatch"
    body = [region("r0", [S], lambda b, x: [x])]
    assert code("scan", [S], regions=body, carry_count=0, scan_output_count=1) == "OperandRankMismatch"
    assert code("scan", [S], regions=body, carry_count=1, scan_output_count=0) == "OperandCountMismatch"
    assert code("scan", [S], regions=body, carry_count=2, scan_output_count=0) == "InvalidAttributeValue"
    assert code("scan", [F], regions=body, carry_count=0, scan_output_count=-1) == "InvalidAttributeValue"
    two = [region("r0", [S, S], lambda b, x, y: [x, y])]
    uneven = [F, ty("f32", 4)]
    assert code("scan", uneven, regions=two, carry_count=0, scan_output_count=2) == "OperandShapeMismatch"


@pytest.mark.parametrize("dtype", FLOATS)
def test_rng(dtype):
    u = run("rng_uniform", shape=(4000,), dtype=DTYPES[dtype], stream=3).astype(np.float64)
    assert (u >= 0).all() and (u < 1).all()
    step = 0.3 if dtype.startswith("fp8") else 0.02
    assert abs(u.mean() - 0.5) < 0.05 + step / 2 and abs(u.var() - 1 / 12) < 0.02
    n = run("rng_normal", shape=(4000,), dtype=DTYPES[dtype], stream=3).astype(np.float64)
    assert abs(n.mean()) < 0.06 and abs(n.var() - 1) < 0.08


def test_rng_is_keyed_by_seed_stream_and_loops():
    def draw(seed=0, stream=0, indices=()):
        context = Context(seed=seed, indices=indices)
        return tuple(run("rng_uniform", shape=(4,), dtype=DTYPES["f64"], stream=stream, context=context))

    assert draw() == draw()
    keys = [
        {"seed": 1},
        {"stream": 1},
        {"indices": (0,)},
        {"indices": (1,)},
        {"indices": (0, 0)},
        {"seed": 2**63},
        {"stream": 2**40},
    ]
    assert len({draw(), *(draw(**k) for k in keys)}) == len(keys) + 1
    assert run("rng_uniform", shape=(2, 0), dtype=DTYPES["f32"]).shape == (2, 0)
    assert run("rng_normal", shape=(), dtype=DTYPES["f32"]).shape == ()


def test_rng_without_a_stream_takes_its_ordinal():
    p = program("rng_uniform", [], {"shape": (4,), "dtype": DTYPES["f64"]})
    op = p.main.body[0]
    (second,) = run_block(p.main, [], Context(streams={op: 1}))
    same(second, run("rng_uniform", shape=(4,), dtype=DTYPES["f64"], stream=1))


def test_rng_in_a_scan_is_fresh_each_step():
    def body(b, x):
        return [b.op("rng_uniform", shape=(2,), dtype=DTYPES["f64"], stream=0)]

    r = region("r0", [S], body)
    context = Context()
    out = run("scan", [np.zeros(3, np.float32)], regions=[r], carry_count=0, scan_output_count=1, context=context)
    assert len({tuple(row) for row in out}) == 3 and context.indices == ()


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [0, -1])
def test_top_k(dtype, largest, axis):
    x = sample(dtype, (5, 6))
    values, indices = run("top_k", x, k=3, axis=axis, largest=largest, indices_dtype=DTYPES["si64"])
    assert indices.dtype == np.int64
    rows, got, at = (np.moveaxis(v, axis, -1) for v in (x, values, indices))
    for row, v, i in zip(rows, got, at, strict=True):
        keys = [int(e) if dtype in INTEGERS else float(e) for e in row]
        rank = [math.inf if isinstance(k, float) and math.isnan(k) else k for k in keys]
        nan = [isinstance(k, float) and math.isnan(k) for k in keys]
        order = sorted(range(len(row)), key=lambda j: ((-nan[j], -rank[j]) if largest else (nan[j], rank[j]), j))
        assert i.tolist() == order[:3]
        same(v, row[order[:3]])


def test_top_k_ties_infinities_and_edges():
    x = np.array([2, 3, 3, 1, 3], np.float32)
    assert run("top_k", x, k=4)[1].tolist() == [1, 2, 4, 0]
    assert run("top_k", np.full(3, -np.inf, np.float32), k=2)[1].tolist() == [0, 1]
    assert run("top_k", x, k=0)[0].shape == (0,)
    assert run("top_k", np.zeros((0, 3), np.float32), k=2)[0].shape == (0, 2)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_segment_reduce(dtype, kind):
    x = np.arange(10).reshape(5, 2).astype(NUMPY[dtype])
    ids = np.array([2, 0, 2, 2, 0], np.int32)
    got = run("segment_reduce", x, ids, kind=kind, num_segments=4)
    rows = x.astype(object)
    low = {"sum": 0, "max": -math.inf if dtype in FLOATS else int(DTYPES[dtype].min)}[kind]
    want = np.full((4, 2), low, object)
    for i, row in zip(ids, rows, strict=True):
        for j in range(2):
            want[i, j] = want[i, j] + row[j] if kind == "sum" else max(want[i, j], row[j])
    same(got, wrap(want, dtype) if dtype in INTEGERS else rounded(want.astype(np.float64), dtype))


def test_segment_reduce_accumulates_and_checks_ids():
    x = np.array([100, 100, 100], np.int8)
    ids = np.zeros(3, np.int64)
    d = DTYPES["si32"]
    assert run("segment_reduce", x, ids, num_segments=1).tolist() == [np.array(300).astype(np.int8)]
    assert run("segment_reduce", x, ids, num_segments=1, accum_dtype=d).tolist() == [127]
    with pytest.raises(Violation) as info:
        run("segment_reduce", x, ids + 1, num_segments=1)
    assert info.value.code == "ScatterIndexOutOfBounds"


def test_quantization_is_a_cast():
    x = np.array([1.9, -1.9, np.nan, 1e9, -np.inf], np.float32)
    same(run("quantize", x, output_dtype=DTYPES["si8"], axis=0), np.array([1, -1, 0, 127, -128], np.int8))
    same(run("quantize", x, output_dtype=DTYPES["ui4"]), wrap([1, 0, 0, 15, 0], "ui4"))
    same(run("requantize", np.array([300, -5], np.int32), output_dtype=DTYPES["ui8"]), np.array([255, 0], np.uint8))
    same(run("dequantize", np.array([3, -4], np.int8)), np.array([3, -4], np.float32))
    big = np.array([2**24 + 1], np.int32)
    same(run("dequantize", big, output_dtype=DTYPES["bf16"]), np.array([2**24]).astype(NUMPY["bf16"]))


X = np.array([[0.26, -1.0, 0.75], [100.0, np.nan, -np.inf]], np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("dtype", ["si8", "ui4", "si16", "fp8_e4m3"])
def test_quantization_with_scales(axis, dtype):
    count = 1 if axis is None else X.shape[axis]
    scales = (0.5, 0.1, 2.0)[:count]
    points = () if dtype == "fp8_e4m3" else (3, 0, 1)[:count]
    got = run("quantize", X, output_dtype=DTYPES[dtype], axis=axis, scales=scales, zero_points=points)
    back = run("dequantize", got, axis=axis, scales=scales, zero_points=points) if points else None
    for i, j in np.ndindex(X.shape):
        k = 0 if axis is None else (i, j)[axis]
        step = float(X[i, j]) / scales[k]
        if not points:
            same(got[i : i + 1, j], rounded(np.array([step]), dtype))
            continue
        low, high = DTYPES[dtype].min, DTYPES[dtype].max
        exact = 0 if math.isnan(step) else step if math.isinf(step) else round(step) + points[k]
        want = int(min(max(exact, low), high))
        assert int(got[i, j]) == want
        assert back[i, j] == np.float32((want - points[k]) * scales[k])


def test_requantization_with_scales():
    q = np.array([[10, -10], [127, 0]], np.int8)
    to = {"output_dtype": DTYPES["ui8"], "output_scales": (0.1,), "output_zero_points": (50,)}
    got = run("requantize", q, scales=(0.5,), zero_points=(2,), **to)
    same(got, np.array([[90, 0], [255, 40]], np.uint8))
    wide = run("requantize", q, output_dtype=DTYPES["si32"], axis=1, scales=(2.0, 3.0))
    same(wide, np.array([[20, -30], [254, 0]], np.int32))


Q = ty("si8", 2, 3)
WRONG_STEPS = [
    ("quantize", ty("f32", 2, 3), {"scales": (0.0,)}),
    ("quantize", ty("f32", 2, 3), {"scales": (float("nan"),)}),
    ("quantize", ty("f32", 2, 3), {"scales": (1.0, 2.0)}),
    ("quantize", ty("f32", 2, 3), {"scales": (1.0, 2.0), "axis": 1}),
    ("quantize", ty("f32", 2, 3), {"scales": (1.0,), "zero_points": (128,)}),
    ("quantize", ty("f32", 2, 3), {"zero_points": (1,)}),
    ("requantize", Q, {"output_scales": (-1.0,)}),
    ("requantize", Q, {"scales": (1.0,), "zero_points": (300,)}),
]


@pytest.mark.parametrize(("name", "t", "attrs"), WRONG_STEPS, ids=str)
def test_scales_and_zero_points_are_checked(name, t, attrs):
    assert code(name, t, output_dtype=DTYPES["si8"], **attrs) == "InvalidAttributeValue"
    assert code("dequantize", Q, scales=(1.0, 2.0), axis=0) is None


def test_scales_in_text_and_not_in_dumps():
    text = """func @main(%x: tensor<f32, 2x3>) -> tensor<f32, 2x3> {
  %q = quantize(%x) output_dtype[si8] axis[0] scales[0.5, 1e-5] zero_points[3, -1] -> tensor<si8, 2x3>
  %y = dequantize(%q) axis[0] scales[0.5, 1e-5] zero_points[3, -1] -> tensor<f32, 2x3>
  return %y
}
"""
    diagnostics = Diagnostics(Source("x.ptir", text))
    p = FORMAT.read(diagnostics.source, diagnostics, Options())
    assert verify(p, diagnostics) and "".join(FORMAT.write(p, diagnostics, Options())) == text
    list(dump.FORMAT.write(p, diagnostics, Options()))
    assert [d.code for d in diagnostics] == ["NotTranslatable"] * 2

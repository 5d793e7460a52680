"""The bound that two engines are compared within, near a pole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import inf, isinf

import numpy as np
import pytest

from ptir_tools import api
from ptir_tools.core import errors
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import PTIR_DTYPES
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import ELEMENTWISE
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.ptir.kernels.targets import TARGETS, Target
from ptir_tools.engines import bounds, compare, run
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.options import RunOptions
from tests import models
from tests.conftest import run_ptir
from tests.convert.translations import parse, prove
from tests.engines.programs import FAST

# The divisor x - y + z is small where terms cancel, and then has the error of two roundings of about 1.
PROGRAM = """func @f(%a: tensor<f32, 2>, %x: tensor<f32, 2>, %y: tensor<f32, 2>) -> tensor<f32, 2> {{
  %s = add(%x, %y) -> tensor<f32, 2>
  %d = sub(%s, %y) -> tensor<f32, 2>
  {body}
  return %q
}}
"""
BODIES = {
    "div": ("%q = div(%a, %d) -> tensor<f32, 2>", lambda a, d: a / d),
    "log": ("%q = log(%d) -> tensor<f32, 2>", lambda a, d: np.log(d)),
    "rsqrt": ("%q = rsqrt(%d) -> tensor<f32, 2>", lambda a, d: 1 / np.sqrt(d)),
    "sum": ("%r = div(%a, %d) -> tensor<f32, 2>\n  %q = add(%r, %y) -> tensor<f32, 2>", lambda a, d: a / d + np.float32(0.9)),
}


def bound(name: str, smallest: float) -> tuple[float, float]:
    """How far the reference is from the value without rounding, and how far it may be."""
    a, x, y = (np.array(v, np.float32) for v in ([0.7, 0.3], [0.5, smallest], [0.9, 0.9]))
    outputs, tolerances = compare.reference_outputs(parse(PROGRAM.format(body=BODIES[name][0]), "ptir"), [a, x, y], RunOptions())
    exact = BODIES[name][1](a.astype(np.float64), x.astype(np.float64))
    (given,), (tolerance,) = outputs.values(), tolerances.values()
    worst = np.argmax(tolerance.absolute)
    return float(np.abs(given - exact)[worst]), float(np.max(tolerance.absolute))


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("smallest", [3.1e-7, 1.1e-6, 1.7e-5, 3.3e-4])
def test_an_operand_near_its_pole_has_its_own_digits(name: str, smallest: float) -> None:
    error, allowed = bound(name, smallest)
    assert 0 < error <= allowed < inf
    assert allowed < 400 * error or error < 1e-6


@pytest.mark.parametrize("name", BODIES)
def test_an_operand_that_may_be_its_pole_bounds_nothing(name: str) -> None:
    assert isinf(bound(name, 6e-8)[1])


def test_a_small_divisor_without_error_costs_one_rounding() -> None:
    text = PROGRAM.format(body="%q = div(%a, %x) -> tensor<f32, 2>")
    given = [np.array(v, np.float32) for v in ([0.7, 0.3], [0.5, 1e-20], [0.9, 0.9])]
    _, tolerances = compare.reference_outputs(parse(text, "ptir"), given, RunOptions())
    assert tolerances["q"].absolute.max() == pytest.approx(3 * 2.0**-24 * 3e19)


def test_a_quotient_of_a_layer_norm_near_zero_is_proven() -> None:
    t = "tensor<f32, 17x33>"
    lines = (
        "%a = reduce_max(%x) axes[0] -> tensor<f32, 33>",
        f"%b = layer_norm(%x, %a, %a) epsilon[0.001] -> {t}",
        f"%y = div(%x, %b) -> {t}",
    )
    text = f"func @f(%x: {t}) -> {t} {{\n  " + "\n  ".join(lines) + "\n  return %y\n}\n"
    assert prove(parse(text, "ptir"), "tiny", 25593) == "there and back"


WIDENED = """func @f(%x: tensor<f32, 64>, %y: tensor<f32, 64>) -> tensor<f64, 64> {
  %a = add(%x, %y) -> tensor<f32, 64>
  %w = cast(%a) -> tensor<f64, 64>
  %q = maximum(%w, %w) -> tensor<f64, 64>
  return %q
}
"""


def test_a_wider_dtype_has_the_errors_of_what_it_was_made_of() -> None:
    """An f32 sum may be off by a unit of f32, in f64 as well."""
    x, y = (np.linspace(0.5, 1, 64, dtype=np.float32) * k for k in (np.float32(1), np.float32(0.3)))
    outputs, tolerances = compare.reference_outputs(parse(WIDENED, "ptir"), [x, y], RunOptions())
    assert 2.0**-24 < tolerances["q"].absolute.max() < 2.0**-20
    other = np.nextafter(outputs["q"].astype(np.float32), np.float32(2)).astype(np.float64)
    assert not compare.compare(outputs, {"q": other}, tolerances)


POLE = """func @f(%x: tensor<bf16, 64x64>, %y: tensor<bf16, 64x64>) -> (tensor<bf16, 64x64>, tensor<bf16, 64x64>) {
  %a = exp(%x) -> tensor<bf16, 64x64>
  %b = exp(%y) -> tensor<bf16, 64x64>
  %d = sub(%a, %b) -> tensor<bf16, 64x64>
  %q = reciprocal(%d) -> tensor<bf16, 64x64>
  return %q, %a
}
"""


def test_elements_that_nothing_bounds_are_not_compared_and_said() -> None:
    program = parse(POLE, "ptir")
    found = compare.check(program, parse(POLE, "ptir"))
    assert not found.diverged
    assert found.unbounded.keys() == {"q"}
    assert 0 < found.unbounded["q"] < 400 < found.elements["q"] == 3 * 64 * 64
    assert [d.name for d in compare.check(program, parse(POLE.replace("return %q, %a", "return %q, %d"), "ptir")).diverged] == [
        "a"
    ]
    ran = run_ptir("opt", "-p", "dce", "--check", stdin=POLE.encode())
    said = f"--check did not compare {found.unbounded['q']} of 12288 elements of q: {compare.UNBOUNDED}\n"
    assert ran.status == 0 and ran.err.startswith(said)
    vague = "--check compared 14 of 12288 elements of q within a bound that is as large as the largest of them\n"
    tested = "--check: 3 runs agree; it tested the passes, on the engine reference; no other engine ran\n"
    assert re.sub(r"\d+ of", "14 of", ran.err.removeprefix(said)) == vague + tested
    ran = run_ptir("run", "--random", "1", "--compare", "reference", stdin=POLE.encode())
    assert ran.status == 0
    said, *rest = ran.err.splitlines()
    assert re.fullmatch(rf"--compare did not compare \d+ of 4096 elements of q: {re.escape(compare.UNBOUNDED)}", said)
    assert rest[-1].startswith("PASS: ") and "of 8192 elements says nothing" in rest[-1]


def test_a_check_that_compares_nothing_fails() -> None:
    only = POLE.replace("sub(%a, %b)", "sub(%a, %a)").replace("return %q, %a", "return %q, %q").encode()
    ran = run_ptir("opt", "-p", "dce", "--check", stdin=only)
    assert ran.status == 1 and f"error[CheckFailed]: --check: {compare.NOTHING}" in ran.err
    ran = run_ptir("run", "--random", "1", "--compare", "reference", stdin=only)
    assert ran.status == 1 and f"error[CheckFailed]: --compare: {compare.NOTHING}" in ran.err
    ran = run_ptir("bisect", "-p", "dce", stdin=only)
    assert ran.status == 2 and compare.NOTHING in ran.err


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_an_element_without_a_bound_may_be_any_number_but_no_nan(wrong: float) -> None:
    tolerance = compare.Tolerance(np.array([np.inf, 0.5]))
    expected = np.array([1.0, 2.0])
    assert compare.diverging("q", expected, np.array([7e9, 2.5]), tolerance) is None
    assert compare.diverging("q", expected, np.array([7e9, 2.6]), tolerance).index == (1,)
    assert compare.diverging("q", expected, np.array([wrong, 2.5]), tolerance).index == (0,)
    assert compare.diverging("q", np.array([wrong, 2.0]), expected, tolerance).index == (0,)
    assert compare.diverging("q", expected.astype(np.float32), expected, tolerance) is not None
    wild = compare.Tolerance(tolerance.absolute, wild=np.array([True, False]))
    assert compare.diverging("q", expected, np.array([wrong, 2.5]), wild) is None
    assert compare.unbounded({"q": expected}, {"q": tolerance}) == {"q": 1}


@pytest.mark.parametrize("one, other", [(np.inf, 1.0), (1.0, np.inf), (np.inf, -np.inf), (np.nan, np.inf), (1.0, np.nan)])
def test_what_is_not_finite_on_one_side_is_within_no_tolerance(one: float, other: float) -> None:
    tolerance = compare.Tolerance(1e30, 0.5)
    assert compare.diverging("q", np.array([one]), np.array([other]), tolerance) is not None
    assert compare.diverging("q", np.array([one]), np.array([one]), tolerance) is None


DEEP = """func @f(%x: tensor<f32, 8>, %w: tensor<f32, 8x8>) -> tensor<f32, 8> {
  %v0 = reshape(%x) new_shape[8] -> tensor<f32, 8>
"""


def deep(layers: int) -> Program:
    """Products, each with a softmax and a root after it: what can be proven doubles from layer to layer."""
    lines = [DEEP]
    for i in range(layers):
        lines.append(f"""  %p{i} = dot_general(%v{i}, %w) contract_lhs[0] contract_rhs[0] -> tensor<f32, 8>
  %q{i} = mul(%p{i}, %p{i}) -> tensor<f32, 8>
  %s{i} = reduce_sum(%q{i}) axes[0] -> tensor<f32>
  %r{i} = rsqrt(%s{i}) -> tensor<f32>
  %b{i} = broadcast_to(%r{i}) result_shape[8] -> tensor<f32, 8>
  %v{i + 1} = mul(%p{i}, %b{i}) -> tensor<f32, 8>
""")
    return parse("".join([*lines, f"  return %v{layers}\n}}\n"]), "ptir")


def test_where_nothing_is_proven_the_bound_is_measured() -> None:
    """It is no less than what rounding does, by an oracle in float64, and small enough to see a thousandth."""
    program, rng = deep(12), np.random.default_rng(0)
    x, w = rng.normal(size=8).astype(np.float32), rng.normal(size=(8, 8)).astype(np.float32)
    static, options = program, RunOptions()
    proven = bounds.Executable(static, static.main, options)
    compare.execute(proven, static, [x, w], options, Diagnostics())
    outputs, tolerances = compare.reference_outputs(program, [x, w], options)
    (name,) = outputs
    assert not np.all(proven.errors[0] < 1e-3)
    exact = x.astype(np.float64)
    for _ in range(12):
        p = exact @ w.astype(np.float64)
        exact = p / np.sqrt(np.sum(p * p))
    assert np.all(np.abs(outputs[name] - exact) <= tolerances[name].absolute)
    assert np.all(tolerances[name].absolute < 1e-3)
    for engine in FAST:
        assert not compare.compare(outputs, run(program, [x, w], RunOptions(engine=engine)), tolerances)
    assert compare.compare(outputs, {name: outputs[name] * np.float32(1.002)}, tolerances)


@pytest.mark.parametrize("name", models.MODULES)
def test_every_output_of_every_model_is_compared(name: str) -> None:
    program, given = models.program(name), models.inputs(name)
    outputs, tolerances = compare.reference_outputs(program, given, RunOptions())
    assert compare.unbounded(outputs, tolerances) == {}
    for engine in FAST:
        assert not compare.compare(outputs, run(program, given, RunOptions(engine=engine)), tolerances)
    for output, x in outputs.items():
        if x.dtype.kind == "f":
            assert compare.compare(outputs, {**outputs, output: x * np.asarray(1.01, x.dtype)}, tolerances)
            assert compare.compare(outputs, {**outputs, output: np.where(np.arange(x.shape[-1]) == 0, np.nan, x)}, tolerances)
        else:
            assert compare.compare(outputs, {**outputs, output: ~x if x.dtype.kind == "b" else x + 1}, tolerances)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_the_same_ops_have_the_same_bits_under_strict_fp(op: str, dtype: str) -> None:
    t = f"tensor<{dtype}, 64>"
    program = parse(f"func @f(%x: {t}, %y: {t}) -> {t} {{\n  %q = {op}(%x, %y) -> {t}\n  return %q\n}}\n", "ptir")
    rng = np.random.default_rng(3)
    given = [rng.normal(size=64).astype(models.NUMPY[dtype]) for _ in range(2)]
    outputs, tolerances = compare.reference_outputs(program, given, RunOptions(strict_fp=True))
    assert not np.any(tolerances["q"].absolute)
    for engine in FAST:
        assert not compare.compare(outputs, run(program, given, RunOptions(engine=engine, strict_fp=True)), tolerances)
    assert np.all(compare.reference_outputs(program, given, RunOptions())[1]["q"].absolute > 0)


def test_inputs_that_bound_more_are_drawn() -> None:
    text = POLE.replace("exp(%x)", "add(%x, %y)").replace("exp(%y)", "stop_gradient(%y)")
    assert not compare.check(parse(text, "ptir"), parse(text, "ptir")).unbounded


@pytest.mark.parametrize("out", ["cf32", "cf64"])
def test_bounds_of_complex_products_are_real(out: str) -> None:
    text = f"""func @f(%x: tensor<cf32, 3>, %y: tensor<cf32, 3>) -> tensor<{out}> {{
  %z = dot_general(%x, %y) batch_lhs[] batch_rhs[] contract_lhs[0] contract_rhs[0] out_dtype[{out}] -> tensor<{out}>
  return %z
}}"""
    x = np.array([1 + 2j, -3j, 0.1], np.complex64)
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), [x, x], RunOptions())
    (name,) = outputs
    assert np.isrealobj(tolerances[name].absolute)
    assert compare.compare(outputs, outputs, tolerances) == []
    assert compare.compare(outputs, {name: outputs[name] * outputs[name].dtype.type(1.001j)}, tolerances)


BRANCH = """program @f (spec_version = ptir.v0.4) {
func @f(%x: tensor<f32, 1>, %y: tensor<f32, 1>) -> (tensor<f32>, tensor<i1, 1>, tensor<si32>) {
  %s = add(%x, %y) -> tensor<f32, 1>
  %d = sub(%s, %y) -> tensor<f32, 1>
  %c = compare_gt(%d, %x) -> tensor<i1, 1>
  %p = reshape(%c) new_shape[] -> tensor<i1>
  %a = reshape(%x) new_shape[] -> tensor<f32>
  %r = cond(%p, %a) true_region[^r0] false_region[^r1] -> tensor<f32>
  %two = concat(%d, %x) axis[0] -> tensor<f32, 2>
  %i = argmax(%two) axis[0] -> tensor<si32>
  return %r, %c, %i
}
region ^r0(%v: tensor<f32>) -> (tensor<f32>) {
  return %v
}
region ^r1(%v: tensor<f32>) -> (tensor<f32>) {
  %w = neg(%v) -> tensor<f32>
  return %w
}
}
"""


@pytest.mark.parametrize("y", [0.9, -0.25, 0.0])
def test_a_decision_within_the_error_may_be_either(y: float) -> None:
    given = [np.array([0.3], np.float32), np.array([y], np.float32)]
    outputs, tolerances = compare.reference_outputs(parse(BRANCH, "ptir"), given, RunOptions())
    other = {"r": -outputs["r"], "c": ~outputs["c"], "i": 1 - outputs["i"]}
    assert compare.compare(outputs, other, tolerances) == []
    assert compare.compare(outputs, {**other, "r": outputs["r"] * np.float32(np.nan)}, tolerances)


@pytest.mark.parametrize("largest", ["true", "false"])
@pytest.mark.parametrize("gap, free", [(0.0, True), (1e-9, True), (0.5, False)])
def test_places_of_top_k_are_compared_where_no_two_are_near(largest: str, gap: float, free: bool) -> None:
    text = f"""func @f(%x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<si32, 2>) {{
  %e = exp(%x) -> tensor<f32, 2>
  %t = top_k(%e) k[2] largest[{largest}] -> (tensor<f32, 2>, tensor<si32, 2>)
  return %t[0], %t[1]
}}"""
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), [np.array([1, 1 + gap], np.float32)], RunOptions())
    best, places = outputs
    near = np.nextafter(outputs[best], np.float32(9))
    assert compare.compare(outputs, {best: near, places: outputs[places]}, tolerances) == []
    assert compare.compare(outputs, {best: outputs[best] * np.float32(1.001), places: outputs[places]}, tolerances)
    assert bool(compare.compare(outputs, {best: near, places: outputs[places][::-1]}, tolerances)) is not free


def test_a_decision_beyond_the_error_is_compared() -> None:
    text = BRANCH.replace("compare_gt(%d, %x)", "compare_gt(%d, %y)").replace("concat(%d, %x)", "concat(%d, %y)")
    given = [np.array([0.3], np.float32), np.array([0.9], np.float32)]
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), given, RunOptions())
    for name, wrong in {"r": -outputs["r"], "c": ~outputs["c"], "i": 1 - outputs["i"]}.items():
        assert compare.compare(outputs, {**outputs, name: wrong}, tolerances)


@pytest.mark.parametrize("dialect", ["ptir", "mind", "tiny"])
def test_every_op_has_an_error_rule(dialect: str) -> None:
    load_dialect(dialect)
    ops = [d for d in OPS.values() if d.name.startswith(f"{dialect}.")]
    assert len(ops) > 15
    assert [d.name for d in ops if not d.regions and errors.rule_of(d) is errors.opaque] == []


def test_a_sum_that_may_overflow_in_another_order_is_not_compared() -> None:
    """2 * largest - 1.5 * largest: finite when the products meet in time, infinite when not."""
    text = """func @f(%x: tensor<f64, 2>, %y: tensor<f64, 2>) -> tensor<f64> {
  %d = dot_general(%x, %y) contract[0] -> tensor<f64>
  return %d
}
""".replace("contract[0]", "contract_lhs[0] contract_rhs[0]")
    given = [np.array([1.5, -1.4]), np.array([1e308, 1e308])]
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), given, RunOptions())
    (found,), (tolerance,) = outputs.values(), tolerances.values()
    assert np.isfinite(found) and np.isposinf(tolerance.absolute)


def test_parts_of_a_complex_result_that_is_not_finite_are_not_compared() -> None:
    """1 / 0 of complex numbers is NaN in one part or both, and what is computed of it anything."""
    text = """func @f(%x: tensor<cf32, 2>) -> tensor<cf32, 2> {
  %r = reciprocal(%x) -> tensor<cf32, 2>
  %t = tanh(%r) -> tensor<cf32, 2>
  return %t
}
"""
    program, given = parse(text, "ptir"), [np.array([0, 2], np.complex64)]
    outputs, tolerances = compare.reference_outputs(program, given, RunOptions())
    for engine in FAST:
        assert compare.compare(outputs, run(program, given, RunOptions(engine=engine)), tolerances) == []
    (tolerance,) = tolerances.values()
    assert np.isposinf(tolerance.absolute[0]) and tolerance.absolute[1] < 1e-5


def test_what_overflows_in_some_order_is_not_compared_nor_what_is_made_of_it() -> None:
    """The reference adds in float64; an engine that adds in f32 meets infinity, or infinity less infinity, on the way."""
    text = """func @f(%x: tensor<f32, 3>) -> (tensor<f32>, tensor<f32>, tensor<i1>, tensor<f32>) {
  %s = reduce_sum(%x) axes[0] -> tensor<f32>
  %d = mul(%s, dense<2.0> : tensor<f32>) -> tensor<f32>
  %i = is_finite(%d) -> tensor<i1>
  %e = exp(%d) -> tensor<f32>
  return %s, %d, %i, %e
}
"""
    most = np.finfo(np.float32).max
    outputs, tolerances = compare.reference_outputs(
        parse(text, "ptir"), [np.array([most, most, -most], np.float32)], RunOptions()
    )
    assert np.isfinite(outputs["s"])
    other = {"s": np.float32(np.inf), "d": np.float32(np.nan), "i": np.bool_(False), "e": np.float32(np.nan)}
    assert compare.compare(outputs, {name: np.asarray(x) for name, x in other.items()}, tolerances) == []
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), [np.array([1, most / 4, -1], np.float32)], RunOptions())
    assert compare.compare(outputs, {name: np.asarray(x) for name, x in other.items()}, tolerances)


@pytest.mark.parametrize(
    ("body", "bounded"),
    [
        ("%q = clamp(%s, %low, %high) -> tensor<f32, 2>", False),
        ("%q = minimum(%s, %high) -> tensor<f32, 2>", False),
        ("%q = tanh(%s) -> tensor<f32, 2>", False),
        ("%q = atan2(%high, %s) -> tensor<f32, 2>", False),
        ("%q = cummax(%s) axis[0] -> tensor<f32, 2>", False),
        ("%q = reduce_prod(%t) axes[1] -> tensor<f32, 2>", False),
        ("%q = dot_general(%t, %t) batch_lhs[0] batch_rhs[0] contract_lhs[1] contract_rhs[1] -> tensor<f32, 2>", False),
        ("%q = argmax(%t) axis[1] -> tensor<si32, 2>", False),
        ("%q = select(%no, %s, %high) -> tensor<f32, 2>", True),
    ],
)
def test_what_may_be_nan_stays_so(body: str, bounded: bool) -> None:
    """Element 0 is finite here. An engine that adds in f32 in another order may meet infinity less infinity: NaN."""
    of = "si32" if "si32" in body else "f32"
    text = f"""func @f(
  %x: tensor<f32, 2x5>, %low: tensor<f32, 2>, %high: tensor<f32, 2>, %inf: tensor<f32, 2x2>
) -> tensor<{of}, 2> {{
  %no = compare_lt(%high, %low) -> tensor<i1, 2>
  %s = reduce_sum(%x) axes[1] -> tensor<f32, 2>
  %c = reshape(%s) new_shape[2, 1] -> tensor<f32, 2x1>
  %t = concat(%c, %inf) axis[1] -> tensor<f32, 2x3>
  {body}
  return %q
}}
"""
    most = np.finfo(np.float32).max
    x = np.array([[most, most, -most, -most, 1], [1, 2, 3, 4, 5]], np.float32)
    given = [x, np.zeros(2, np.float32), np.full(2, 6, np.float32), np.array([[np.inf, 1], [2, 1]], np.float32)]
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), given, RunOptions())
    bound = np.broadcast_to(tolerances["q"].absolute, 2)
    assert np.isposinf(bound[0]) == (not bounded)
    assert np.isfinite(bound[1]) or "cummax" in body
    for engine in FAST:
        assert not compare.compare(outputs, run(parse(text, "ptir"), given, RunOptions(engine=engine)), tolerances)


@pytest.mark.parametrize("strict", [False, True])
def test_what_overflows_inside_is_open_where_that_matters(strict: bool) -> None:
    """Element 1 overflows in f16 as an output; in a kernel that computes in f32 it does not. Element 3 was infinite before."""
    text = """func @f(%x: tensor<f16, 4>) -> (tensor<f16, 4>, tensor<f16, 4>, tensor<f16, 4>, tensor<f16, 4>, tensor<f16, 4>) {
  %s = mul(%x, %x) -> tensor<f16, 4>
  %d = sub(%s, %s) -> tensor<f16, 4>
  %q = div(%x, %s) -> tensor<f16, 4>
  %i = is_finite(%s) -> tensor<i1, 4>
  %c = cast(%i) -> tensor<f16, 4>
  %n = neg(%s) -> tensor<f16, 4>
  return %s, %d, %q, %c, %n
}
"""
    x = np.array([1, 300, -3, np.inf], np.float16)
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), [x], RunOptions(strict_fp=strict))
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        square = wide * wide  # in one kernel
        other = [square, square - square, wide / square, np.isfinite(square), -square]
        made = {name: y.astype(np.float16) for name, y in zip(outputs, other, strict=True)}
    assert bool(compare.compare(outputs, made, tolerances)) is strict
    for name in ("s", "q", "n"):  # what the overflow does not change is compared as before
        for at in range(4):
            off = {**made, name: np.where(np.arange(4) == at, np.float16(7), made[name])}
            assert compare.compare(outputs, off, tolerances), (name, at)


@pytest.mark.parametrize("side", [0, 1])
def test_a_product_of_a_sum_that_overflowed_has_no_bound(side: int) -> None:
    """-inf here; in f32 an infinity on the way makes the sum a NaN, and so the product that reads it."""
    g = api.Graph()
    x = g.input("x", "f32", (2, 3))
    sums = x.dot_general(g.constant(np.ones((3, 2), np.float32)), contract_lhs=[1], contract_rhs=[0])
    w = g.constant(np.array([[0.5, -1], [2, 0.25]], np.float32))
    y = (
        sums.dot_general(w, contract_lhs=[1], contract_rhs=[0])
        if side == 0
        else w.dot_general(sums, contract_lhs=[1], contract_rhs=[0])
    )
    given = [np.array([[3e38, 3e38, -np.inf], [1, 2, 3]], np.float32)]
    outputs, tolerances = compare.reference_outputs(g.returns(y.named("y")), given, RunOptions())
    bound = np.broadcast_to(tolerances["y"].absolute, (2, 2))
    assert not np.isfinite(outputs["y"][0]).any() and np.isposinf(bound[0]).all()
    assert np.isposinf(bound[1]).all() == (side == 1)


@pytest.mark.parametrize("x, infinite", [([3e38, 3e38], True), ([1e38, 1e38], False)])
def test_a_mean_overflows_where_its_sum_does(x: list[float], infinite: bool) -> None:
    program = parse(
        "%x = Input {name=x} : tensor<f32[2]>\n%m = Mean (%x) {axes=[], keepdims=false} : tensor<f32[]>\noutputs: %m\n", "mind"
    )
    (_,), (tolerance,) = (v.values() for v in compare.reference_outputs(program, [np.array(x, np.float32)], RunOptions()))
    assert bool(np.isposinf(tolerance.absolute)) is infinite


def test_integers_summed_to_a_float_have_a_bound() -> None:
    """The accumulator wraps, and is rounded once."""
    text = """func @f(%x: tensor<si32, 2x3>, %y: tensor<si32, 3x2>) -> tensor<f16, 2x2> {
      %z = dot_general(%x, %y) contract_lhs[1] contract_rhs[0] accum_dtype[si32] out_dtype[f16] -> tensor<f16, 2x2>
      return %z
    }
    """
    x = np.array([[1, -2, 3], [2**31 - 1, 5, 6]], np.int32)
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), [x, x.T.copy()], RunOptions())
    whole = (x.astype(np.int64) @ x.astype(np.int64).T + 2**31) % 2**32 - 2**31
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(outputs["z"], whole.astype(np.float16))
    assert np.isfinite(tolerances["z"].absolute).any()


@pytest.mark.parametrize("dtype", ["f32", "f64", "cf32", "cf64"])
def test_next_to_the_smallest_number_a_product_may_be_off_by_one_of_those(dtype: str) -> None:
    """There the unit roundoff times the number is 0."""
    t = f"tensor<{dtype}, 2>"
    kind = {"cf32": np.complex64, "cf64": np.complex128}.get(dtype) or models.NUMPY[dtype]
    least = np.finfo(kind).smallest_subnormal
    program = parse(f"func @f(%x: {t}, %y: {t}) -> {t} {{\n  %q = mul(%x, %y) -> {t}\n  return %q\n}}\n", "ptir")
    given = [np.array([5, 0], kind) * least, np.array([1.5, 1.5], kind)]
    outputs, tolerances = compare.reference_outputs(program, given, RunOptions())
    assert outputs["q"][0] != 0
    assert compare.compare(outputs, {"q": outputs["q"] + np.array([least, 0], kind)}, tolerances) == []
    assert compare.compare(outputs, {"q": outputs["q"] + np.array([4 * least, 0], kind)}, tolerances)
    assert compare.compare(outputs, {"q": outputs["q"] + np.array([0, least], kind)}, tolerances)


@pytest.mark.parametrize("op", ["exp", "log", "tanh", "erf", "rsqrt", "sin", "pow"])
def test_functions_are_bounded_by_their_kernels_under_strict_fp(op: str) -> None:
    """One rounding of exact operands is the same everywhere for the four operations and no others."""
    t = "tensor<f32, 64>"
    operands = "%x, %y" if op == "pow" else "%x"
    program = parse(f"func @f(%x: {t}, %y: {t}) -> {t} {{\n  %q = {op}({operands}) -> {t}\n  return %q\n}}\n", "ptir")
    x, y = (np.random.default_rng(k).uniform(0.5, 2, 64).astype(np.float32) for k in (1, 2))
    outputs, tolerances = compare.reference_outputs(program, [x, y], RunOptions(strict_fp=True))
    assert np.all(tolerances["q"].absolute >= 2 * 2.0**-24 * np.abs(outputs["q"]))
    for engine in FAST:
        found = run(program, [x, y], RunOptions(engine=engine, strict_fp=True))
        assert not compare.compare(outputs, found, tolerances)


@pytest.mark.parametrize("op", ["reduce_prod(%x) axes[0]", "cumprod(%x) axis[0]"])
@pytest.mark.parametrize(
    ("x", "bounded"),
    [
        ([1.5, 2.25, -3.0, 0.3], True),
        ([1e10, 1e-10, 1e10, 1e-10], True),
        ([1e-30, 1e30, 1.0, 1.0], True),
        ([1e-30, 1e-30, 1e30, 1e30], False),  # its first product underflows, or its last overflows
        ([1e30, 1e30, 1e-30, 1e-30], False),
    ],
)
def test_products_are_bounded_where_no_order_leaves_the_normal_numbers(op: str, x: list[float], bounded: bool) -> None:
    shape = "" if "reduce" in op else ", 4"
    text = f"func @f(%x: tensor<f32, 4>) -> tensor<f32{shape}> {{\n  %q = {op} -> tensor<f32{shape}>\n  return %q\n}}\n"
    tolerances = compare.reference_outputs(parse(text, "ptir"), [np.array(x, np.float32)], RunOptions())[1]
    last = np.atleast_1d(tolerances["q"].absolute)[-1]
    assert bool(np.isfinite(last)) is bounded
    if bounded:
        assert 0 < last < 1e-5 * abs(float(np.prod(x)))


def filled(dialect: str) -> tuple[str, str]:
    """A program that moves what is not exact, with 5 around it."""
    if dialect == "tiny":
        return dialect, """{"uops": [
          {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [3]}},
          {"id": "e", "uop": "EXP2", "src": ["x"]},
          {"id": "p", "uop": "PAD", "src": ["e"], "arg": {"pad": [[0, 1]], "value": 5.0}},
          {"id": "v", "uop": "VIEW", "src": ["e"], "arg": {"result_shape": [4],
            "index_map": {"map": ["i0"], "guard": ["2-i0>=0"], "fill": 5.0}}}
        ], "outputs": ["p", "v"]}"""  # fmt: skip
    t = "tensor<f32, 4>"
    return (
        dialect,
        f"""func @f(%x: tensor<f32, 3>) -> ({t}, tensor<f32, 1x1x4>) {{
      %e = exp(%x) -> tensor<f32, 3>
      %p = pad(%e) low[0] high[1] interior[0] pad_value[5.0] -> {t}
      %r = reshape(%e) new_shape[1, 3, 1] -> tensor<f32, 1x3x1>
      %v = extract_patches(%r) window[4] strides[1] padding[[0, 1]] pad_value[5.0] -> tensor<f32, 1x1x4>
      return %p, %v
    }}""",
    )


@pytest.mark.parametrize("dialect", ["ptir", "tiny"])
def test_what_is_put_around_elements_has_no_error(dialect: str) -> None:
    """That is proven: nothing has to be measured for it."""
    name, text = filled(dialect)
    program, x = parse(text, name), np.array([0.3, 0.7, 0.9], np.float32)
    proven = bounds.Executable(program, program.main, RunOptions())
    compare.execute(proven, program, [x], RunOptions(), Diagnostics())
    outputs, _ = compare.reference_outputs(program, [x], RunOptions())
    for output, found in zip(outputs.values(), proven.errors, strict=True):
        error = np.broadcast_to(found, output.shape).reshape(-1)
        assert output.reshape(-1)[3] == 5 and error[3] == 0 and np.all(error[:3] > 0)


def relative(ir: str, text: str, given: list[float]) -> float:
    """The relative error that is allowed in the first element."""
    outputs, tolerances = compare.reference_outputs(parse(text, ir), [np.array([x], np.float32) for x in given], RunOptions())
    (x,), (tolerance,) = outputs.values(), tolerances.values()
    return float(np.max(tolerance.absolute) / np.abs(x[0]))


# The op of PTIR, what Tiny and MIND call it (or what comes closest), and how many operands it has.
ALIKE = [
    ("rsqrt", "RSQRT", None, 1), ("exp", "EXP2", "Exp", 1), ("div", "FDIV", None, 2), ("add", "ADD", "Add", 2),
    ("mul", "MUL", "Mul", 2), ("sub", "SUB", "Sub", 2), ("neg", "NEG", "Neg", 1), ("log", None, "Log", 1),
]  # fmt: skip


@pytest.mark.parametrize(("ptir", "tiny", "mind", "count"), ALIKE, ids=[row[0] for row in ALIKE])
def test_an_op_may_be_off_by_as_much_in_every_ir(ptir: str, tiny: str | None, mind: str | None, count: int) -> None:
    names, given = ["x", "y"][:count], [1.37, 0.61]
    t = "tensor<f32, 1>"
    params, operands = ", ".join(f"%{n}: {t}" for n in names), ", ".join(f"%{n}" for n in names)
    wanted = relative("ptir", f"func @f({params}) -> {t} {{\n  %q = {ptir}({operands}) -> {t}\n  return %q\n}}\n", given[:count])
    if tiny is not None:
        inputs = [{"id": n, "uop": "INPUT", "arg": {"tensor_id": n, "dtype": "fp32", "shape": [1]}} for n in names]
        graph = {"uops": [*inputs, {"id": "q", "uop": tiny, "src": names}], "outputs": ["q"]}
        assert relative("tiny", json.dumps(graph), given[:count]) == pytest.approx(wanted, rel=1e-3)
    if mind is not None:
        lines = [f"%{n} = Input {{name={n}}} : tensor<f32[1]>" for n in names]
        lines += [f"%q = {mind} ({operands}) : tensor<f32[1]>", "outputs: %q"]
        assert relative("mind", "\n".join(lines) + "\n", given[:count]) == pytest.approx(wanted, rel=1e-3)


CHOSEN = {
    "maximum": "%q = maximum(%x, %y) -> {t}",
    "minimum": "%q = minimum(%x, %y) -> {t}",
    "clamp": "%q = clamp(%x, %y, %z) -> {t}",
    "floor": "%q = floor(%x) -> {t}",
    "ceil": "%q = ceil(%x) -> {t}",
    "round_even": "%q = round_even(%x) -> {t}",
    "round_away": "%q = round_away(%x) -> {t}",
    "sign": "%q = sign(%x) -> {t}",
    "reduce_precision": "%q = reduce_precision(%x) exponent_bits[8] mantissa_bits[23] -> {t}",
}


def test_the_ops_that_give_what_is_there_are_all_known() -> None:
    algebras = {d.short: d.algebra for d in load_dialect("ptir").ops.values()}
    assert set(CHOSEN) == {name for name, a in algebras.items() if a.monotone == "increasing" and a.idempotent}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("op", CHOSEN)
def test_an_op_that_gives_what_is_there_does_not_round(op: str, dtype: str) -> None:
    """The result is as exact as its operands: it has no error, or, as one of them, no more than theirs."""
    t = f"tensor<{dtype}, 5>"
    head = f"func @f(%a: {t}, %y: {t}, %z: {t}) -> {t} {{\n  "
    given = [
        np.array(v, numpy_dtype({str(d): d for d in PTIR_DTYPES}[dtype]))
        for v in ([0.3, -1.5, 2.6, 0.5, -7], [-0.5] * 5, [3.0] * 5)
    ]
    texts = [head + CHOSEN[op].format(t=t).replace("%x", "%a") + "\n  return %q\n}\n"]
    texts += [
        head + f"%x = exp(%a) -> {t}\n  " + body + "\n  return %q\n}\n"
        for body in (CHOSEN[op].format(t=t), f"%q = neg(%x) -> {t}")
    ]
    alone, after, bare = (
        next(iter(compare.reference_outputs(parse(text, "ptir"), given, RunOptions())[1].values())).absolute for text in texts
    )
    assert not np.any(alone)
    if op in ("maximum", "minimum", "clamp"):
        assert np.all(after <= bare)


DECIDED = {
    "cast": "%q = cast(%c) -> tensor<f32, 3>",
    "select": "%q = select(%c, %x, %y) -> tensor<f32, 3>",
    "and": "%d = bitwise_and(%c, %c) -> tensor<i1, 3>\n  %q = cast(%d) -> tensor<f32, 3>",
    "or": "%d = bitwise_or(%c, %c) -> tensor<i1, 3>\n  %q = cast(%d) -> tensor<f32, 3>",
    "xor": "%d = bitwise_xor(%c, dense<true> : tensor<i1, 3>) -> tensor<i1, 3>\n  %q = cast(%d) -> tensor<f32, 3>",
    "not": "%d = bitwise_not(%c) -> tensor<i1, 3>\n  %q = cast(%d) -> tensor<f32, 3>",
}


@pytest.mark.parametrize("op", DECIDED)
def test_only_what_is_near_a_decision_depends_on_it(op: str) -> None:
    """exp x < y is certain where they are far apart, and what is made of it rounds there, no more."""
    t = "tensor<f32, 3>"
    lines = [f"%e = exp(%x) -> {t}", "%c = compare_lt(%e, %y) -> tensor<i1, 3>", DECIDED[op], "return %q"]
    text = f"func @f(%x: {t}, %y: {t}) -> {t} {{\n  " + "\n  ".join(lines) + "\n}\n"
    given = [np.array([0.0, 0.5, 2.0], np.float32), np.array([9.0, np.exp(0.5), 1.0], np.float32)]
    program = parse(text, "ptir")
    _, tolerances = compare.reference_outputs(program, given, RunOptions())
    bound = tolerances["q"].absolute
    assert max(bound[0], bound[2]) < 1e-5 < bound[1]
    if op in ("cast", "select"):  # of bits nothing is proven: they are measured
        proven = bounds.Executable(program, program.main, RunOptions())
        compare.execute(proven, program, given, RunOptions(), Diagnostics())
        assert max(proven.errors[0][0], proven.errors[0][2]) < 1e-5 < proven.errors[0][1]


# Passes may turn the sign of a zero that is computed, not of one that is given.
ZERO = {
    "computed": "%z = sub(%x, %x) -> tensor<f32, 2>\n  %n = neg(%z) -> tensor<f32, 2>",
    "given": "%n = broadcast_to(%x) result_shape[2] -> tensor<f32, 2>",
}
SHOWING = {
    "div": ("%r = div(%a, %n)", "f32, 2"),
    "reciprocal": ("%r = reciprocal(%n)", "f32, 2"),
    "rsqrt": ("%r = rsqrt(%n)", "f32, 2"),
    "pow": ("%r = pow(%n, %a)", "f32, 2"),
    "atan2": ("%r = atan2(%n, %a)", "f32, 2"),
    "bitcast": ("%r = bitcast(%n) dtype[si32]", "si32, 2"),
    "bitcast to bytes": ("%r = bitcast(%n) dtype[ui8]", "ui8, 2x4"),
}


def signs(body: str, t: str, zero: str, strict: bool = False) -> tuple[np.ndarray, compare.Tolerance]:
    """The result of `body` on -0.0, `%n`, and its tolerance."""
    head = f"func @f(%a: tensor<f32, 2>, %x: tensor<f32, 2>) -> tensor<{t}> {{"
    program = parse("\n  ".join((head, ZERO[zero], f"{body} -> tensor<{t}>", "return %r\n}")), "ptir")
    given = [np.full(2, -1, np.float32), np.full(2, -0.0, np.float32)]
    outputs, tolerances = compare.reference_outputs(program, given, RunOptions(strict_fp=strict))
    return outputs["r"], tolerances["r"]


@pytest.mark.parametrize("kind", SHOWING)
@pytest.mark.parametrize("zero", ZERO)
@pytest.mark.parametrize("strict", [False, True])
def test_where_the_sign_of_a_computed_zero_shows_nothing_is_compared(kind: str, zero: str, strict: bool) -> None:
    x, tolerance = signs(*SHOWING[kind], zero, strict)
    other = np.zeros_like(x) if "bitcast" in kind else -x
    same = compare.diverging("r", x, other, tolerance) is None
    assert same == (zero == "computed" and not strict)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("t", ["ui32, 2", "ui4, 2x8"])
@pytest.mark.parametrize("computed", [False, True])
def test_the_bits_of_a_computed_nan_are_not_compared(computed: bool, t: str, strict: bool) -> None:
    made = "sub(%x, %x)" if computed else "reshape(%x) new_shape[2]"
    body = f"%n = {made} -> tensor<f32, 2> %r = bitcast(%n) dtype[{t.split(',')[0]}] -> tensor<{t}> return %r"
    program = parse(f"func @f(%x: tensor<f32, 2>) -> tensor<{t}> {{ {body} }}", "ptir")
    given = [np.array([np.inf if computed else np.nan, 2], np.float32)]
    outputs, tolerances = compare.reference_outputs(program, given, RunOptions(strict_fp=strict))
    for at, same in ((0, computed), (1, computed and not strict)):  # the sign of the NaN, and of a number
        other = outputs["r"].copy()
        if t == "ui32, 2":
            other[at] ^= np.uint32(1 << 31)
        else:
            other[at, 7] = other[at, 7].astype(np.int8) ^ 8
        assert (compare.diverging("r", outputs["r"], other, tolerances["r"]) is None) == same


def test_the_sign_of_a_computed_zero_shows_in_complex_logarithms() -> None:
    body = "%c = complex(%a, %n) -> tensor<cf32, 2>\n  %r = log(%c)"
    x, tolerance = signs(body, "cf32, 2", "computed")
    assert compare.diverging("r", x, x.conj(), tolerance) is None
    x, tolerance = signs(body, "cf32, 2", "computed", strict=True)
    assert compare.diverging("r", x, x.conj(), tolerance) is not None


@pytest.mark.parametrize("name", sorted(n for n in OPS if n.startswith("ptir.") and OPS[n].traits & ELEMENTWISE))
def test_no_op_of_reals_shows_the_sign_of_a_zero_beyond_its_bound(name: str) -> None:
    """Each op is run on 0.0 and -0.0; both are within the bound of either, when it is computed."""
    for count, at, other in [(n, k, x) for n in (1, 2, 3) for k in range(n) for x in (-3.0, -1.0, 2.5)]:
        operands = ", ".join("%n" if k == at else "%a" for k in range(count))
        head = "func @f(%a: tensor<f32>, %n: tensor<f32>) -> tensor<f32> {"
        try:
            api.read(f"{head} %r = {name[5:]}({operands}) -> tensor<f32> return %r }}")
        except Rejected:
            continue  # it takes other operands
        results = []
        for turned in ("", "%n = neg(%m) -> tensor<f32>"):
            text = f"func @f(%a: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {{ %m = sub(%x, %x) -> tensor<f32> {turned} "
            body = f"%r = {name[5:]}({operands if turned else operands.replace('%n', '%m')}) -> tensor<f32> return %r }}"
            given = [np.float32(other), np.float32(1)]
            found, tolerances = compare.reference_outputs(parse(text + body, "ptir"), given, RunOptions())
            results.append((found["r"], tolerances["r"]))
        (plus, above), (minus, below) = results
        assert compare.diverging("r", plus, minus, above) is None, (operands, other)
        assert compare.diverging("r", minus, plus, below) is None, (operands, other)


def test_an_infinity_times_what_may_be_zero_is_not_compared() -> None:
    """The sum of subnormal products is -1.4e-45 when it is rounded once, and -0 when every product is."""
    text = """func @f(%a: tensor<f32, 1x3>, %b: tensor<f32, 3x1>, %c: tensor<f32, 1x2>) -> tensor<f32, 1x2> {
  %p = dot_general(%a, %b) contract_lhs[1] contract_rhs[0] -> tensor<f32, 1x1>
  %q = dot_general(%p, %c) contract_lhs[1] contract_rhs[0] -> tensor<f32, 1x2>
  return %q
}
"""
    least = np.float32(1.4e-45)
    a = np.array([[0.489, least, -least]], np.float32)
    b = np.array([[-least], [-1.2e-38], [0.306]], np.float32)
    given = [a, b, np.array([[np.inf, np.nan]], np.float32)]
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), given, RunOptions())
    assert np.isneginf(outputs["q"][0, 0])
    for x in (np.nan, np.inf):
        assert compare.compare(outputs, {"q": np.array([[x, np.nan]], np.float32)}, tolerances) == []
    assert compare.compare(outputs, {"q": np.array([[-np.inf, np.inf]], np.float32)}, tolerances)


@pytest.mark.parametrize(
    "body, seen", [(lambda xs, values, result: xs[0] + 1, False), (lambda xs, values, result: np.copysign(1, xs[0]), True)]
)
def test_an_opaque_op_is_exact_of_exact_operands_but_for_the_sign_of_a_zero(
    body: Callable[..., np.ndarray], seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TARGETS, "test.kernel.v1", Target((1, 1), lambda types, values: types[0], body, {}, {}))
    text = """func @f(%x: tensor<f32, 4>, %z: tensor<f32, 4>) -> tensor<f32, 4> {
  %r = maximum(%x, %z) -> tensor<f32, 4>
  %s = custom_call(%r) target["test.kernel.v1"] -> tensor<f32, 4>
  return %s
}
"""
    given = [np.array([-1, 0, 2, -0.0], np.float32), np.zeros(4, np.float32)]
    _, tolerances = compare.reference_outputs(parse(text, "ptir"), given, RunOptions())
    open_ = np.broadcast_to(tolerances["s"].absolute, 4) > 0
    assert open_.tolist() == [seen, seen, False, seen]


def test_a_product_that_underflows_where_sums_are_accumulated_is_within_the_bound() -> None:
    text = """func @f(%x: tensor<cf32, 64>, %y: tensor<cf32, 64>) -> tensor<cf64, 64> {
  %d = dot_general(%x, %y) batch_lhs[0] batch_rhs[0] contract_lhs[] contract_rhs[] out_dtype[cf64] -> tensor<cf64, 64>
  return %d
}
"""
    draw = np.random.default_rng(0)
    given = [(draw.uniform(1, 9, 64) * size * (1 - 0.7j)).astype(np.complex64) for size in (1e-20, 1e-21)]
    program = parse(text, "ptir")
    outputs, tolerances = compare.reference_outputs(program, given, RunOptions())
    for engine in FAST:
        assert not compare.compare(outputs, run(program, given, RunOptions(engine=engine)), tolerances)
    assert np.max(tolerances["d"].absolute) < 8 * np.finfo(np.float32).smallest_subnormal


def test_a_product_with_what_may_be_any_number_is_not_compared() -> None:
    """The sum is infinity, or infinity less infinity, as the products are rounded."""
    text = """func @f(%x: tensor<f64, 1x3>, %y: tensor<f64, 3x1>, %z: tensor<f64, 1x1>) -> tensor<f64, 1x1> {
  %p = dot_general(%x, %y) contract_lhs[1] contract_rhs[0] -> tensor<f64, 1x1>
  %q = dot_general(%p, %z) contract_lhs[1] contract_rhs[0] -> tensor<f64, 1x1>
  return %q
}
"""
    most = np.finfo(np.float64).max
    given = [np.array([[most, -most, 1]]), np.array([[2.0], [2.0], [1.0]]), np.ones((1, 1))]
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), given, RunOptions())
    for x in (np.inf, np.nan, -np.inf):
        assert compare.compare(outputs, {"q": np.array([[x]])}, tolerances) == []


def test_the_bits_of_a_scalar_zero_of_either_sign_are_not_compared() -> None:
    text = """func @f(%x: tensor<f32>) -> tensor<ui32> {
  %z = sub(%x, %x) -> tensor<f32>
  %b = bitcast(%z) dtype[ui32] -> tensor<ui32>
  return %b
}
"""
    outputs, tolerances = compare.reference_outputs(parse(text, "ptir"), [np.float32(1)], RunOptions())
    assert compare.compare(outputs, {"b": np.array(1 << 31, np.uint32)}, tolerances) == []


def test_an_op_that_does_not_round_keeps_the_errors_of_its_elements() -> None:
    t = "tensor<f32, 4x64x2>"
    text = f"""func @f(%x: {t}, %b: {t}) -> ({t}, {t}) {{
  %a = add(%x, %b) -> {t}
  %s = sub(%x, %a) -> {t}
  %p = extract_patches(%s) window[1] -> {t}
  return %s, %p
}}"""
    program = parse(text, "ptir")
    measured = bounds.Executable(program, program.main, RunOptions(), bounds.SAMPLES)
    measured(list(random_inputs(program, 5).values()), Context())
    before, after = measured.errors
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_products_just_above_a_power_of_two_may_be_off_by_a_whole_roundoff(dtype: str) -> None:
    """Floats are farthest apart there for their size, and in this difference of products no rounding hides another."""
    t = f"tensor<{dtype}, 40x500>"
    ops = f"%p = mul(%a, %b) -> {t}\n%q = mul(%b, %c) -> {t}\n%r = sub(%p, %q) -> {t}\nreturn %r"
    program = parse(f"func @f(%a: {t}, %b: {t}, %c: {t}) -> {t} {{\n{ops}\n}}\n", "ptir")
    d = next(d for d in PTIR_DTYPES if d.name == dtype)
    rng = np.random.default_rng(0)
    u = errors.unit(d)
    given = [rng.uniform(1, 1 + max(0.03, 16 * u), (40, 500)).astype(numpy_dtype(d)) for _ in range(3)]
    a, b, c = (x.astype(np.float64) for x in given)
    outputs, tolerances = compare.reference_outputs(program, given, RunOptions())
    (reference,), (tolerance,) = outputs.values(), tolerances.values()
    bound = np.asarray(tolerance.settled().absolute)
    off = np.abs(reference.astype(np.float64) - (a * b - b * c))
    assert np.all(off <= bound) and np.max(off) >= u
    assert np.max(bound) < 6 * u

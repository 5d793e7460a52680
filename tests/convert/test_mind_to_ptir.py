"""MIND to PTIR, proven by running both sides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools import engines
from ptir_tools.convert import translate
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.diagnostics import Diagnostics, Rejected, Severity
from ptir_tools.core.dialect import Program
from ptir_tools.core.verify import verify
from ptir_tools.engines import RunOptions, native
from ptir_tools.engines.inputs import random_inputs
from tests.conftest import run_ptir
from tests.mind.programs import SAMPLES, good, inputs_of, random_program, read, run


def to_ptir(program: Program) -> Program:
    diagnostics = Diagnostics()
    after = translate(program, "ptir", diagnostics)
    assert after is not None and not diagnostics.errors, [d.message for d in diagnostics]
    assert verify(after, diagnostics), [d.message for d in diagnostics]
    return after


def same(before: Program, inputs: list) -> None:
    """Both sides agree: integers bit for bit, floats within the roundings of the intermediate results."""
    after = to_ptir(before)
    with np.errstate(all="ignore"):
        for x, y in zip(run(before, inputs), run(after, inputs), strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape
            if x.dtype.kind == "i":
                np.testing.assert_array_equal(x, y)
                continue
            near = np.finfo(x.dtype).max / 64
            if any(np.any(np.abs(c) > near) for c in constants(before, x.dtype)):  # the order of a sum decides if it overflows
                beyond = ~(np.abs(x) < near)
                np.testing.assert_array_equal(~(np.abs(y) < near), beyond)
                x, y = x[~beyond], y[~beyond]
            finite = x[np.isfinite(x)]
            np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5 * np.max(np.abs(finite), initial=1.0))


def constants(program: Program, dtype: np.dtype) -> list:
    """The finite constants of a program that are of that dtype."""
    literals = [op.attr("value") for op in program.main.body if op.defn.is_constant]
    arrays = [x for x in map(from_literal, literals) if x.dtype == dtype]
    return [x[np.isfinite(x)] for x in arrays]


def test_a_sum_that_overflows_or_not_by_its_order() -> None:
    """A convolution by the largest of numbers."""
    same(program := random_program(1_899_270_907), inputs_of(program, 1_899_270_907))


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_random_programs_agree(seed: int) -> None:
    before = random_program(seed)
    same(before, inputs_of(before, seed))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_samples_agree(path) -> None:
    before, diagnostics = read(path.read_text())
    if not diagnostics.errors:
        same(before, inputs_of(before, 1))


ONE = "%0 = Input {{name=x}} : tensor<{0}>\n%1 = {1}\noutputs: %1\n"
PAIR = "%0 = Input {{name=x}} : tensor<{0}>\n%1 = Input {{name=y}} : tensor<{1}>\n%2 = {2}\noutputs: %2\n"
BINARY, REDUCTIONS, UNARY = ("Add", "Sub", "Mul"), ("Sum", "Mean"), ("Neg", "Exp", "Log", "Relu")
CASES = [
    *(PAIR.format(f"{d}[3, 1, 5]", f"{d}[4, 5]", f"{op} (%0, %1)") for op in BINARY for d in ("i32", "i64", "f32", "f64")),
    *(
        ONE.format(f"{d}[2, 3, 4]", f"{op}(%0, {a})")
        for op in REDUCTIONS
        for d in ("i32", "f32")
        for a in ("[], true", "[-1, 0], true", "[1], false")
    ),
    *(ONE.format("f64[7]", f"{op} (%0)") for op in UNARY),
    ONE.format("i32[7]", "Neg (%0)"),
    ONE.format("f32[2, 3]", "Reshape (%0) {new_shape=[3, -1]}"),
    ONE.format("f32[2, 3]", "Transpose (%0) {permutation=[1, 0]}"),
    ONE.format("f32[2, 3]", "ExpandDims (%0) {axes=[2, 0]}"),
    ONE.format("f32[1, 3, 1]", "Squeeze (%0) {axes=[2, 0]}"),
    ONE.format("f32[2, 3]", "Index (%0) {indices=[1, 2]}"),
    ONE.format("f32[7, 5]", "Slice(%0, [0:7:3, 4:99])"),
    ONE.format("f32[7, 5]", "Slice(%0, [-4:6:2, 0:5:4])"),
    ONE.format("f32[7, 5]", "Slice(%0, [5:2:2, 0:5:4])"),
    PAIR.format("f32[5]", "f32[5]", "Dot (%0, %1)"),
    PAIR.format("i32[3, 5]", "i32[5]", "Dot (%0, %1)"),
    PAIR.format("f32[5]", "f32[5, 2]", "Dot (%0, %1)"),
    PAIR.format("f32[3, 5]", "f32[5, 2]", "Dot (%0, %1)"),
    PAIR.format("f32[4, 1, 3, 5]", "f32[2, 5, 2]", "MatMul (%0, %1)"),
    PAIR.format("i64[3, 5]", "i64[2, 5, 2]", "MatMul (%0, %1)"),
    PAIR.format("f32[2, 3, 5]", "f32[5, 2]", "MatMul (%0, %1)"),
    *(
        PAIR.format(f"{d}[2, 5, 6, 3]", f"{d}[2, 3, 3, 4]", f"Conv2d(%0, %1, [2, 1], {p})")
        for d in ("f32", "i32")
        for p in ("Valid", "Same", "Custom([[1, 0], [0, 2]])")
    ),
]  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_each_operation_agrees(text: str) -> None:
    before = good(text)
    same(before, inputs_of(before, 7))


def test_gather_agrees() -> None:
    before = good(PAIR.format("f32[5, 2]", "i64[2, 3]", "Gather (%0, %1)"))
    same(before, [np.arange(10, dtype=np.float32).reshape(5, 2), np.array([[4, 0, 1], [2, 2, 3]])])


def test_relu_of_nan_and_negative_zero() -> None:
    x = np.array([np.nan, -0.0, np.inf, -np.inf, 1.0], np.float32)
    (y,) = run(to_ptir(good(ONE.format("f32[5]", "Relu (%0)"))), [x])
    assert y.tobytes() == np.array([0, 0, np.inf, 0, 1], np.float32).tobytes()


REFUSED = {
    "E6001": ONE.format("f32[2, 3]", "Index (%0) {indices=[0, 3]}"),
    "E6006": "%0 = Input {name=x} : tensor<i32[2]>\n%1 = Slice(%0, [1:1])\n%2 = Mean(%1, [], false)\noutputs: %2\n",
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_must_fail_at_run_time_is_refused(code: str) -> None:
    diagnostics = Diagnostics()
    assert translate(good(REFUSED[code]), "ptir", diagnostics) is None
    assert [d.code for d in diagnostics] == [code]


def test_constant_gather_out_of_bounds_is_refused() -> None:
    text = "%0 = Input {name=x} : tensor<f32[2]>\n%1 = ConstTensor([2]) : tensor<i32[1]>\n%2 = Gather (%0, %1)\noutputs: %2\n"
    diagnostics = Diagnostics()
    assert translate(good(text), "ptir", diagnostics) is None
    assert [d.code for d in diagnostics] == ["E6001"]


def test_names_and_places_are_kept() -> None:
    program = good('%0 = Input {name="w.é b"} : tensor<f32[2]>\n%7 = Neg (%0)\noutputs: %7\n')
    after = to_ptir(program).main
    assert [p.name for p in after.params] == ["w.é_b"]
    graph = translate(program, "tiny", Diagnostics())
    assert graph is not None and graph.main.attrs["input_names"] == ["w.é b"]
    assert after.results[0].name == "7"
    assert after.body[0].loc == program.main.body[0].loc


def test_what_tiles_cannot_say_is_refused_through_ptir() -> None:
    diagnostics = Diagnostics()
    assert translate(good(ONE.format("f32[2]", "Neg (%0)")), "pto", diagnostics) is not None
    assert translate(good(PAIR.format("f32[5]", "i32[1]", "Gather (%0, %1)")), "pto", diagnostics) is not None
    assert translate(good(ONE.format("f64[2]", "Neg (%0)")), "pto", diagnostics) is None
    assert [d.code for d in diagnostics] == ["NotTranslatable"]


@pytest.mark.parametrize("engine", ["reference", "numpy", "native", "auto"])
def test_a_run_time_error_has_the_code_of_the_program(engine: str) -> None:
    program = good(PAIR.format("f32[5]", "i32[1]", "Gather (%0, %1)"))
    if engine == "native" and not native.available():
        return
    with pytest.raises(Rejected) as raised:
        engines.run(program, {"x": np.zeros(5, np.float32), "y": np.array([5], np.int32)}, RunOptions(engine=engine))
    assert [d.code for d in raised.value.diagnostics if d.severity is Severity.ERROR] == ["E6001"]


def test_random_indices_are_in_range() -> None:
    program = good(PAIR.format("f32[2]", "i64[50]", "Gather (%0, %1)"))
    x, indices = random_inputs(program, 1).values()
    assert x.shape == (2,) and set(indices.tolist()) == {0, 1}


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
def test_what_fails_whenever_it_runs_fails_alike_on_every_engine(engine: str) -> None:
    text = "%0 = Input {name=x} : tensor<f32[2, 3]>\n%1 = Index (%0) {indices=[1, 3]}\noutputs: %1\n"
    ran = run_ptir("run", "--random", "1", "--engine", engine, "--diagnostics", "short", stdin=text.encode())
    assert ran.status == 1 and ran.err.splitlines()[-1].startswith("<stdin>:2:") and "error[E6001]" in ran.err


def test_names_that_mind_would_spell_alike_are_told_apart() -> None:
    text = """func @f(%x: tensor<f32, 4>) -> (tensor<f32, 4>, tensor<f32, 5>, tensor<f32, 4>) {
  %a.b = exp(%x) -> tensor<f32, 4>
  %a$b = pad(%x) low[1] high[0] interior[0] pad_value[0.0] -> tensor<f32, 5>
  %a_b = neg(%x) -> tensor<f32, 4>
  return %a.b, %a$b, %a_b
}
"""
    ran = run_ptir("translate", "--to", "mind", "--check", stdin=text.encode())
    assert ran.status == 0, ran.err
    out = ran.out.decode()
    outputs = out.rsplit("outputs: ", 1)[1].strip().split(", ")
    assert outputs[0] == "%a_b" and len(set(outputs)) == 3
    defined = [line.split(" = ")[0] for line in out.splitlines() if " = " in line]
    assert len(set(defined)) == len(defined) and set(outputs) <= set(defined)
    assert len([line for line in out.splitlines() if "Reshape" in line]) == 2, "a result has its name without a copy"

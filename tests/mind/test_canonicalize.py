"""MIND's canonical form: byte for byte, idempotent, equal by execution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.dialect import Program, clone
from ptir_tools.passes import run_pipeline
from tests.mind.programs import SAMPLES, good, inputs_of, random_program, read, run, show

X = "%0 = Input {name=x} : tensor<f32[2]>\n"


def canonical(program: Program, pipeline: str = "canonicalize") -> str:
    after = clone(program)
    run_pipeline(after, pipeline)
    return show(after)


PAIRS = [
    (p, p.with_name(p.name.split("_")[0] + "b_" + p.name.split("_")[1] + "_after.mind.ir"))
    for p in SAMPLES
    if "_before." in p.name
]


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda p: p.name)
def test_before_and_after(before, after) -> None:
    assert canonical(good(before.read_text())) == after.read_text().rstrip("\n") + "\n"


def test_both_spellings_have_one_canonical_form() -> None:
    first, second = (p for p in SAMPLES if p.name.startswith("03"))
    assert canonical(good(first.read_text())) == canonical(good(second.read_text())) == second.read_text()


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_idempotent_on_samples(path) -> None:
    program, diagnostics = read(path.read_text())
    if not diagnostics.errors:
        once = canonical(program)
        assert canonical(good(once)) == once


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_idempotent_and_equal_on_random_programs(seed) -> None:
    program = random_program(seed)
    once = canonical(program)
    after = good(once)
    assert canonical(after) == once
    inputs = inputs_of(program, seed)
    for x, y in zip(run(program, inputs), run(after, inputs), strict=True):
        assert x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f")


def test_late_inputs_come_first_and_change_the_order_of_operands() -> None:
    text = f"{X}%1 = Neg (%0)\n%2 = Input {{name=z}} : tensor<f32[2]>\n%3 = Mul (%1, %2)\noutputs: %3\n"
    want = (
        f"{X}%1 = Input {{name=z}} : tensor<f32[2]>\n%2 = Neg (%0) : tensor<f32[2]>\n%3 = Mul (%1, %2) : tensor<f32[2]>\n"
        "outputs: %3\n"
    )
    assert canonical(good(text)) == want


def test_attributes_are_normalized() -> None:
    text = "%0 = Input {name=x} : tensor<f32[2, 3]>\n%1 = Sum(%0, [-1, 0], true)\n%2 = Mean(%0, [], true)\n"
    text += "%3 = Reshape(%0, [-1])\n%4 = ExpandDims(%0, [3, 0])\noutputs: %1, %2, %3, %4\n"
    shown = canonical(good(text))
    for line in ("Sum (%0) {axes=[0, 1], keepdims=true}", "Mean (%0) {axes=[], keepdims=false}", "Reshape (%0) {new_shape=[6]}"):
        assert line in shown
    assert "ExpandDims (%0) {axes=[0, 3]}" in shown


def fold(*lines: str) -> str:
    return canonical(good("".join(f"%{i} = {x}\n" for i, x in enumerate(lines)) + f"outputs: %{len(lines) - 1}\n"))


def test_integers_fold_with_broadcasting() -> None:
    shown = fold("ConstTensor([[1], [2]]) : tensor<i32[2, 1]>", "ConstTensor([10, 20]) : tensor<i32[2]>", "Mul (%0, %1)")
    assert shown == "%0 = ConstTensor {dtype=i32, shape=(2, 2), value=[[10, 20], [20, 40]]} : tensor<i32[2, 2]>\noutputs: %0\n"


def test_scalar_i64_folds_to_const_i64() -> None:
    assert (
        fold("ConstI64(2)", "ConstTensor(3) : tensor<i64[]>", "Sub (%0, %1)")
        == "%0 = ConstI64 {value=-1} : tensor<i64[]>\noutputs: %0\n"
    )


@pytest.mark.parametrize("lines", [("ConstI64(9223372036854775807)", "ConstI64(-1)", "Sub (%0, %1)")])
def test_overflow_is_not_folded(lines) -> None:
    assert "Sub (%0, %1)" in fold(*lines)


def test_floats_fold_only_when_asked() -> None:
    program = good("%0 = ConstF32(0.1)\n%1 = ConstF32(0.2)\n%2 = Add (%0, %1)\noutputs: %2\n")
    assert "Add" in canonical(program)
    folded = canonical(program, "canonicalize{fold-floats=true}")
    assert (
        folded
        == f"%0 = ConstTensor {{dtype=f32, shape=(), value={np.float32(0.1) + np.float32(0.2)!s}}} : tensor<f32[]>\noutputs: %0\n"
    )


def test_nothing_clever_happens() -> None:
    text = f"{X}%1 = ConstF32 {{value=0.0}} : tensor<f32[]>\n%2 = Add (%0, %1) : tensor<f32[2]>\n"
    text += "%3 = Add (%0, %1) : tensor<f32[2]>\n%4 = Sub (%3, %2) : tensor<f32[2]>\noutputs: %4, %4\n"
    assert canonical(good(text)) == text


def test_unknown_attributes_follow_their_instruction() -> None:
    text = f"{X}%1 = Neg (%0)\n%2 = Neg (%0) {{speed=fast}}\noutputs: %2\n"
    assert "%1 = Neg (%0) {speed=fast}" in canonical(good(text))


LOW = -(2**63)
UNSAFE = [  # a program of constants whose exact result does not fit, or is a float
    ("ConstI64(9223372036854775807)", "ConstI64(1)", "Add (%0, %1)"),
    ("ConstTensor([2147483647, 0]) : tensor<i32[2]>", "ConstTensor([1, 1]) : tensor<i32[2]>", "Add (%0, %1)"),
    ("ConstI64(-9223372036854775808)", "ConstI64(1)", "Sub (%0, %1)"),
    ("ConstI64(4294967296)", "ConstI64(-2147483649)", "Mul (%0, %1)"),
    (f"ConstI64({LOW})", "Neg (%0)"),
    ("ConstTensor([9223372036854775807, 1]) : tensor<i64[2]>", "Sum (%0) {axes=[0], keepdims=false}"),
    ("ConstTensor([2147483647, 3]) : tensor<i32[2]>", "Mean (%0) {axes=[0], keepdims=false}"),
    ("ConstTensor([65536, 1]) : tensor<i32[2]>", "ConstTensor([65536, 1]) : tensor<i32[2]>", "Dot (%0, %1)"),
    ("ConstTensor([[65536]]) : tensor<i32[1, 1]>", "MatMul (%0, %0)"),
    ("ConstTensor([[[[65536]]]]) : tensor<i32[1, 1, 1, 1]>", "Conv2d (%0, %0) {strides=[1, 1], padding=Valid}"),
    (
        f"ConstTensor([[[[{2**62}]]]]) : tensor<i64[1, 1, 1, 1]>",
        "Conv2d (%0, %0) {strides=[1, 1], padding=Custom([[1, 0], [0, 0]])}",
    ),
    ("ConstTensor([1]) : tensor<i32[1]>", "Slice (%0) {starts=[0], ends=[0], steps=[1]}"),  # no constant is empty
    ("ConstF32(0.1)", "ConstF32(0.2)", "Add (%0, %1)"),
    ("ConstF32(0.1)", "Exp (%0)"),
    ("ConstF64(0.1)", "Relu (%0)"),
]
SAFE = [
    (("ConstI64(9223372036854775806)", "ConstI64(1)", "Add (%0, %1)"), 2**63 - 1),
    (("ConstI64(-9223372036854775807)", "ConstI64(1)", "Sub (%0, %1)"), LOW),
    (("ConstI64(4294967296)", "ConstI64(-2147483648)", "Mul (%0, %1)"), LOW),
    (("ConstI64(-9223372036854775807)", "Neg (%0)"), 2**63 - 1),
    (("ConstTensor([2147483646, 1]) : tensor<i32[2]>", "Sum (%0) {axes=[0], keepdims=false}"), 2**31 - 1),
    (("ConstTensor([-2147483646, 1]) : tensor<i32[2]>", "Mean (%0) {axes=[0], keepdims=false}"), -1073741822),
    (("ConstTensor([65536, 1]) : tensor<i32[2]>", "ConstTensor([32767, 65535]) : tensor<i32[2]>", "Dot (%0, %1)"), 2**31 - 1),
]


@pytest.mark.parametrize("pipeline", ["fold", "fold,cse,dce", "canonicalize"])
@pytest.mark.parametrize("lines", UNSAFE, ids=" ".join)
def test_no_pass_folds_what_wraps_or_rounds(lines: tuple[str, ...], pipeline: str) -> None:
    text = "".join(f"%{i} = {x}\n" for i, x in enumerate(lines)) + f"outputs: %{len(lines) - 1}\n"
    assert f" = {lines[-1].partition(' ')[0]} (" in canonical(good(text), pipeline)


@pytest.mark.parametrize(("lines", "value"), SAFE, ids=lambda x: " ".join(x) if isinstance(x, tuple) else None)
def test_what_fits_folds_to_the_exact_integer(lines: tuple[str, ...], value: int) -> None:
    text = "".join(f"%{i} = {x}\n" for i, x in enumerate(lines)) + f"outputs: %{len(lines) - 1}\n"
    assert f"value={value}}}" in canonical(good(text), "fold")

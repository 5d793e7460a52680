"""Gradients of MIND modules against finite differences, and what Core v1 cannot differentiate."""

import numpy as np
import pytest
from mind_programs import good, run, show

from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.ir import Program, clone
from ptir_tools.core.verify import verify
from ptir_tools.passes import PassContext, run_pipeline

RNG = np.random.default_rng(11)


def derived(program: Program, pipeline: str = "autodiff") -> tuple[Program, list[str]]:
    after, context = clone(program), PassContext()
    run_pipeline(after, pipeline, context)
    assert verify(after, context.diagnostics) or context.diagnostics.errors
    return after, [d.code for d in context.diagnostics]


def differences(program: Program, inputs: list[np.ndarray], k: int) -> np.ndarray:
    """The central difference quotient of the first output by every element of input `k`."""
    found = np.zeros_like(inputs[k])
    for at in np.ndindex(found.shape):
        ends = []
        for step in (1e-6, -1e-6):
            moved = [x.copy() for x in inputs]
            moved[k][at] += step
            ends.append(run(program, moved)[0])
        found[at] = (ends[0] - ends[1]) / 2e-6
    return found


def module(*lines: str, inputs: dict[str, list[int]]) -> str:
    text = "".join(f"%{i} = Input {{name={n}}} : tensor<f64{s}>\n" for i, (n, s) in enumerate(inputs.items()))
    text += "".join(f"%{i} = {line}\n" for i, line in enumerate(lines, len(inputs)))
    return f"{text}outputs: %{len(inputs) + len(lines) - 1}\n"


X, XY, CUBE = {"x": [2, 3]}, {"x": [2, 3], "y": [3]}, {"x": [3, 3, 4]}
CASES = {
    "add": module("Add(%0, %1)", "Mul(%2, %2)", "Sum(%3, [], false)", inputs=XY),
    "sub": module("Sub(%1, %0)", "Mul(%2, %2)", "Sum(%3, [], false)", inputs=XY),
    "mul": module("Mul(%0, %1)", "Sum(%2, [1], true)", "Mul(%3, %3)", "Sum(%4, [], false)", inputs=XY),
    "scalar": module("Mul(%0, %1)", "Sum(%2, [], false)", inputs={"x": [], "y": [2, 1, 3]}),
    "mean": module("Mean(%0, [-1], false)", "Mul(%1, %1)", "Mean(%2, [], false)", inputs=X),
    "exp": module("Neg(%0)", "Exp(%1)", "Sum(%2, [0, 1], false)", inputs=X),
    "reshape": module("Reshape(%0, [3, -1])", "Mul(%1, %1)", "Sum(%2, [1], false)", "Dot(%3, %3)", inputs=X),
    "transpose": module("Transpose(%0, [1, 2, 0])", "Sum(%1, [1], false)", "Dot(%2, %2)", "Sum(%3, [], true)", inputs=CUBE),
    "axes": module("ExpandDims(%0, [0, 2])", "Mul(%1, %1)", "Squeeze(%2, [0])", "Sum(%3, [], true)", inputs=X),
    "vectors": module("Dot(%0, %1)", inputs={"x": [4], "y": [4]}),
    "matrix vector": module("Dot(%0, %1)", "Dot(%2, %2)", inputs=XY),
    "vector matrix": module("Dot(%1, %0)", "Dot(%2, %2)", inputs={"x": [3, 4], "y": [3]}),
    "matrices": module("Dot(%0, %1)", "Mul(%2, %2)", "Sum(%3, [], false)", inputs={"x": [2, 3], "y": [3, 2]}),
    "batches": module("MatMul(%0, %1)", "Mul(%2, %2)", "Sum(%3, [], false)", inputs={"x": [4, 1, 2, 3], "y": [5, 3, 2]}),
    "used twice": module("Exp(%0)", "Mul(%1, %0)", "Add(%2, %1)", "Sum(%3, [], false)", inputs=X),
    "unused": module("Sum(%0, [], false)", inputs=XY),
    "the loss itself": "%0 = Input {name=x} : tensor<f64[]>\noutputs: %0\n",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients(name) -> None:
    program = good(CASES[name])
    after, codes = derived(program)
    assert codes == []
    inputs = [RNG.uniform(-1, 1, p.type.static_shape) for p in program.main.params]
    loss, *gradients = run(after, inputs)
    assert np.array_equal(loss, run(program, inputs)[0])
    assert len(gradients) == len(inputs)
    for k, g in enumerate(gradients):
        assert g.shape == inputs[k].shape
        np.testing.assert_allclose(g, differences(program, inputs, k), rtol=1e-6, atol=1e-8)


def test_the_public_example() -> None:
    """x * y + x: the gradients are 1 + y and x."""
    program = good(module("Mul(%0, %1)", "Add(%2, %0)", inputs={"x": [], "y": []}))
    after, _ = derived(program, "autodiff,canonicalize")
    assert [float(x) for x in run(after, [np.array(3.0), np.array(5.0)])] == [18.0, 6.0, 3.0]
    assert show(good(show(after))) == show(after)


def test_only_what_is_asked_for() -> None:
    after, _ = derived(good(CASES["mul"]), "autodiff{wrt=y}")
    assert [v.type.static_shape for v in after.main.results] == [(), (3,)]


ON_THE_WAY = {
    "Relu": "Relu(%0)",
    "Log": "Log(%0)",
    "Slice": "Slice(%0, [0:1, 0:3])",
    "Index": "Index(%0, [0, 0])",
}


@pytest.mark.parametrize("opcode", ON_THE_WAY)
def test_what_core_v1_cannot_express(opcode) -> None:
    program = good(module(ON_THE_WAY[opcode], "Sum(%1, [], false)", inputs=X))
    after, codes = derived(program)
    assert codes == ["E5001"] and show(after) == show(program)


def test_what_is_not_on_the_way_does_not_matter() -> None:
    text = module("Relu(%1)", "Mul(%0, %2)", "Sum(%3, [], false)", inputs=XY)
    assert derived(good(text), "autodiff{wrt=x}")[1] == []
    assert derived(good(text))[1] == ["E5001"]


def test_integers_have_no_gradient() -> None:
    text = "%0 = Input {name=n} : tensor<i64[]>\n%1 = Input {name=x} : tensor<f64[]>\n%2 = Neg(%1)\noutputs: %2, %0\n"
    assert derived(good(text))[1] == []
    assert derived(good(text), "autodiff{wrt=n}")[1] == ["E5005"]
    assert derived(good(text), "autodiff{loss=1}")[1] == ["E5003"]


def test_the_loss_is_a_scalar() -> None:
    assert derived(good(module("Neg(%0)", inputs=X)))[1] == ["E5003"]


@pytest.mark.parametrize("pipeline", ["autodiff{wrt=z}", "autodiff{loss=3}"])
def test_options(pipeline) -> None:
    with pytest.raises(UsageError):
        derived(good(CASES["mul"]), pipeline)

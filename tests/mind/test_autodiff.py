"""Gradients of MIND modules against finite differences and exact values."""

import numpy as np
import pytest

from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.passes import PassContext, run_pipeline
from tests.mind.programs import good, run, show

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
    **{f"a scale of {n}": module("Mul(%0, %1)", f"ConstF64({n}.0)", "Mul(%2, %3)", inputs={"x": [], "y": []})
       for n in (-1, 0, 2, 3)},
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
    "relu": module("Relu(%0)", "Mul(%1, %1)", "Mul(%2, %0)", "Sum(%3, [], false)", inputs=X),
    "relu of a broadcast": module("Sub(%0, %1)", "Relu(%2)", "Mean(%3, [0], true)", "Dot(%4, %1)", "Sum(%5, [], false)",
                                  inputs=XY),
    "log": module("Exp(%0)", "ConstF64(2.0)", "Add(%1, %2)", "Log(%3)", "Mul(%4, %1)", "Mean(%5, [], false)", inputs=X),
    "softplus": module("Exp(%0)", "ConstF64(1.0)", "Add(%1, %2)", "Log(%3)", "Sum(%4, [1], false)", "Dot(%5, %5)", inputs=X),
    "slice": module("Slice(%0, [0:3:2, 1:3, 0:4:3])", "Mul(%1, %1)", "Sum(%2, [], false)", inputs=CUBE),
    "slice of nothing": module("Slice(%0, [1:1, 0:3])", "Sum(%1, [], false)", "Index(%0, [1, 1])", "Add(%2, %3)", inputs=X),
    "slice beyond": module("Slice(%0, [-2:1, 1:9:2])", "Mul(%1, %1)", "Sum(%2, [], false)", inputs=X),
    "index": module("Index(%0, [1, 2])", "Index(%0, [0, 0])", "Mul(%1, %2)", inputs=X),
    "gather": module("ConstTensor {dtype=i32, shape=(2, 3), value=[[2, 0, 2], [2, 1, 0]]}", "Gather(%0, %1)", "Mul(%2, %2)",
                     "Sum(%3, [1], false)", "Mul(%4, %4)", "Sum(%5, [], false)", inputs=CUBE),
    "gather of one": module("ConstTensor {dtype=i64, shape=(), value=2}", "Gather(%0, %1)", "Mul(%2, %2)", "Sum(%3, [], false)",
                            inputs=CUBE),
    "gather of scalars": module("ConstTensor {dtype=i64, shape=(3,), value=[2, 2, 1]}", "Gather(%0, %1)", "Dot(%2, %2)",
                                inputs={"x": [4]}),
    "conv": module("Conv2d(%0, %1, [1, 1], Same)", "Mul(%2, %2)", "Sum(%3, [], false)",
                   inputs={"x": [2, 4, 5, 2], "w": [3, 2, 2, 3]}),
    "conv by strides": module("Conv2d(%0, %1, [2, 3], Custom([[1, 0], [0, 2]]))", "Mul(%2, %2)", "Sum(%3, [], false)",
                              inputs={"x": [1, 6, 7, 2], "w": [2, 3, 2, 2]}),
    "conv of rows that are not read": module("Conv2d(%0, %1, [3, 3], Valid)", "Mul(%2, %2)", "Sum(%3, [], false)",
                                             inputs={"x": [1, 7, 6, 1], "w": [2, 1, 1, 2]}),
    "conv padded beyond its window": module("Conv2d(%0, %1, [2, 1], Custom([[3, 4], [2, 0]]))", "Mul(%2, %2)",
                                            "Sum(%3, [], false)", inputs={"x": [1, 2, 3, 2], "w": [2, 2, 2, 1]}),
    "one in many places": module("Sum(%0, [], false)", "Mul(%1, %0)", "Add(%2, %1)", "Mean(%3, [0], true)", "Mul(%4, %3)",
                                 "Sum(%5, [], false)", inputs=X),
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


def test_the_gradient_of_the_loss_by_itself_is_no_factor() -> None:
    """The gradients of x * y are y and x."""
    after, _ = derived(good(module("Mul(%0, %1)", inputs={"x": [], "y": []})))
    x, y = after.main.params
    assert after.main.results[1:] == [y, x]


def test_the_public_example() -> None:
    """x * y + x: the gradients are 1 + y and x."""
    program = good(module("Mul(%0, %1)", "Add(%2, %0)", inputs={"x": [], "y": []}))
    after, _ = derived(program, "autodiff,canonicalize")
    assert [float(x) for x in run(after, [np.array(3.0), np.array(5.0)])] == [18.0, 6.0, 3.0]
    assert show(good(show(after))) == show(after)


def test_only_what_is_asked_for() -> None:
    after, _ = derived(good(CASES["mul"]), "autodiff{wrt=y}")
    assert [v.type.static_shape for v in after.main.results] == [(), (3,)]


@pytest.mark.parametrize(("name", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_the_step_of_relu(name, dtype) -> None:
    """1 above 0, from the smallest subnormal to infinity, and 0 elsewhere."""
    text = module("Relu(%0)", "Sum(%1, [], false)", inputs={"x": [11]}).replace("f64", name)
    info = np.finfo(dtype)
    small = [info.smallest_subnormal, info.tiny, 1e-3, 1.0, info.max, np.inf]
    x = np.array([*small, 0.0, -0.0, -info.smallest_subnormal, -np.inf, np.nan], dtype)
    with np.errstate(all="ignore"):
        _, found = run(derived(good(text))[0], [x])
    assert found.tolist() == [1.0] * 6 + [0.0] * 5


def test_infinities_stay_where_they_are() -> None:
    """Zeros are put around a gradient, not multiplied with it."""
    text = module("Slice(%0, [0:1, 0:2])", "Mul(%2, %1)", "Sum(%3, [], false)", inputs={"x": [2, 3], "y": [2]})
    found = run(derived(good(text), "autodiff{wrt=x}")[0], [np.ones((2, 3)), np.array([np.inf, 2.0])])[1]
    assert found.tolist() == [[np.inf, 2.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("rows", [5, 64, 65, 200])
def test_gather_by_data(rows) -> None:
    """Rows are counted by one-hot rows, which a Gather makes of the indices."""
    text = f"%0 = Input {{name=t}} : tensor<f64[{rows}, 2]>\n%1 = Input {{name=i}} : tensor<i32[2, 3]>\n"
    text += "%2 = Gather(%0, %1)\n%3 = Mul(%2, %2)\n%4 = Sum(%3, [], false)\noutputs: %4\n"
    table, indices = RNG.uniform(-1, 1, (rows, 2)), RNG.integers(0, rows, (2, 3)).astype(np.int32)
    indices[1, 1] = indices[0, 2]
    expected = np.zeros_like(table)
    np.add.at(expected, indices, 2 * table[indices])
    after, codes = derived(good(text))
    assert codes == []
    np.testing.assert_allclose(run(after, [table, indices])[1], expected, rtol=1e-14)


def test_gradients_have_gradients() -> None:
    """The second derivative of sum(x ** 3) along x is 6 x."""
    first, _ = derived(good(module("Mul(%0, %0)", "Mul(%1, %0)", "Sum(%2, [], false)", inputs=X)))
    text = show(first).rstrip()
    text = text[: text.index("outputs")] + f"%900 = Sum ({text.rsplit(' ', 1)[1]}) {{axes=[], keepdims=false}}\noutputs: %900\n"
    x = RNG.uniform(-1, 1, (2, 3))
    np.testing.assert_allclose(run(derived(good(text))[0], [x])[1], 6 * x, rtol=1e-12)


def test_nothing_is_left_over_or_computed_twice() -> None:
    after, _ = derived(good(module("Exp(%0)", "Mul(%1, %1)", "Sum(%2, [], false)", inputs=X)))
    text = show(after)
    again, _ = derived(good(text), "cse,dce,simplify")
    assert len(again.main.body) == len(after.main.body) <= 6, text


def test_a_step_of_gradient_descent() -> None:
    after, _ = derived(good(module("Mul(%0, %0)", "Sum(%1, [], false)", inputs=X)), "autodiff{rate=0.25}")
    x = RNG.uniform(-1, 1, (2, 3))
    np.testing.assert_allclose(run(after, [x])[1], x / 2, rtol=1e-15)


def test_integers_have_no_gradient() -> None:
    text = "%0 = Input {name=n} : tensor<i64[]>\n%1 = Input {name=x} : tensor<f64[]>\n%2 = Neg(%1)\noutputs: %2, %0\n"
    assert derived(good(text))[1] == []
    assert derived(good(text), "autodiff{wrt=n}")[1] == ["E5005"]
    assert derived(good(text), "autodiff{loss=1}")[1] == ["E5004"]
    alone = "%0 = Input {name=n} : tensor<i64[]>\n%1 = ConstF64 {value=2.0} : tensor<f64[]>\noutputs: %1, %0\n"
    assert derived(good(alone))[1] == ["E5005"]


def test_the_loss_is_a_scalar() -> None:
    assert derived(good(module("Neg(%0)", inputs=X)))[1] == ["E5004"]


@pytest.mark.parametrize("pipeline", ["autodiff{wrt=z}", "autodiff{loss=3}"])
def test_options(pipeline) -> None:
    with pytest.raises(UsageError):
        derived(good(CASES["mul"]), pipeline)


@pytest.mark.parametrize("indices", [[0, 7], [7, 7, 7, 0], [2, 1]])
def test_a_gradient_of_rows_that_are_not_there_fails_where_the_program_does(indices: list[int]) -> None:
    rows = len(indices)
    program = good(f"""%x = Input {{name=x}} : tensor<f32[3, 2]>
%i = ConstTensor {{dtype=i64, shape=({rows},), value={indices}}} : tensor<i64[{rows}]>
%g = Gather (%x, %i) : tensor<f32[{rows}, 2]>
%s = Sum (%g) {{axes=[], keepdims=false}} : tensor<f32[]>
outputs: %s
""")
    after = clone(program)
    run_pipeline(after, "autodiff", PassContext())
    assert verify(after, Diagnostics())
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    if max(indices) > 2:
        with pytest.raises(Violation, match="out of"):
            run(after, [x])
    else:
        assert run(after, [x])[-1].tolist() == [[indices.count(i)] * 2 for i in range(3)]

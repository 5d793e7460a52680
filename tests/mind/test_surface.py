"""Modules from Python: lowered as the specification says, validated before anything is emitted."""

import numpy as np
import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.mind.surface import Module
from tests.mind.programs import good, run, show

ADD = """%0 = Input {name=x} : tensor<f32[2, 2]>
%1 = Input {name=y} : tensor<f32[2, 2]>
%2 = Add (%0, %1) : tensor<f32[2, 2]>
outputs: %2
"""


def test_the_public_tools_first_example() -> None:
    m = Module()
    program = m.program(m.variable("x", "f32", [2, 2]) + m.variable("y", "f32", [2, 2]))
    assert show(program) == ADD == show(good(ADD))


def test_a_variable_is_one_input_and_inputs_come_first() -> None:
    m = Module()
    x = m.variable("x", "f32", [2])
    y = x + 1.5
    program = m.program(y * m.variable("z", "f32", [2]) - m.variable("x", "f32", [2]))
    assert show(program).splitlines() == [
        "%0 = Input {name=x} : tensor<f32[2]>",
        "%1 = Input {name=z} : tensor<f32[2]>",
        "%2 = ConstTensor {dtype=f32, shape=(), value=1.5} : tensor<f32[]>",
        "%3 = Add (%0, %2) : tensor<f32[2]>",
        "%4 = Mul (%3, %1) : tensor<f32[2]>",
        "%5 = Sub (%4, %0) : tensor<f32[2]>",
        "outputs: %5",
    ]
    assert verify(program, Diagnostics())


def test_every_operation_against_numpy() -> None:
    m = Module()
    x, w = m.variable("x", "f64", [3, 4]), m.variable("w", "f64", [4, 2])
    made = [
        -(x @ w),
        2 - x * [1, 2, 3, 4],
        (1 + 3 * x).relu().exp().log(),
        x.sum([1]).mean(),
        x.reshape(2, -1).transpose(1, 0),
        x.expand_dims(0).squeeze(0),
        x[1, 2],
        x[0:2, 1::2],
        x.dot(w),
        x.gather(m.constant([2, 0], "i64")),
        x.reshape(1, 3, 4, 1).conv2d(w.reshape(2, 2, 1, 2)),
    ]
    program = m.program(*made)
    rng = np.random.default_rng(2)
    a, b = rng.uniform(0, 1, (3, 4)), rng.uniform(0, 1, (4, 2))
    windows = np.lib.stride_tricks.sliding_window_view(a, (2, 2))
    wanted = [
        -(a @ b),
        2 - a * [1, 2, 3, 4],
        1 + 3 * a,
        a.sum(1).mean(),
        a.reshape(2, 6).T,
        a,
        a[1, 2],
        a[0:2, 1::2],
        a @ b,
        a[[2, 0]],
        np.einsum("ijhw,hwf->ijf", windows, b.reshape(2, 2, 2))[None],
    ]
    assert verify(program, Diagnostics())
    for got, want in zip(run(program, [a, b]), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


REFUSED = {
    "E2004": lambda m, x: x + m.variable("n", "i32", [2, 3]),
    "E3001": lambda m, x: x + m.variable("y", "f32", [2, 4]),
    "E3003": lambda m, x: x @ x,
    "E3006": lambda m, x: m.variable("y", "f32", [0]),
    "E4001": lambda m, x: x + Module().variable("x", "f32", [2, 3]),
    "E4003": lambda m, x: m.program(),
    "E4004": lambda m, x: m.variable("x", "f32", [2]),
    "E4005": lambda m, x: x * [[1, 2], [3]],
    "E4007": lambda m, x: x[0:1],
    "E4008": lambda m, x: x[0:1:-1, 0:1],
}


@pytest.mark.parametrize("code", REFUSED)
def test_refused_before_it_is_emitted(code) -> None:
    m = Module()
    x = m.variable("x", "f32", [2, 3])
    with pytest.raises(Violation) as raised:
        REFUSED[code](m, x)
    assert raised.value.code == code
    assert len(m.program(x).main.body) <= 1  # a literal, at most

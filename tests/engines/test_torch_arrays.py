"""Tensors of torch as inputs, floats that NumPy has not included. Skipped where torch is not installed."""

from __future__ import annotations

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import UsageError
from tests import peers

TEXT = "func @f(%x: tensor<{0}, 2x3>) -> tensor<{0}, 2x3> {{\n  %y = neg(%x) -> tensor<{0}, 2x3>\n  return %y\n}}\n"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("f32", "float32"), ("f16", "float16"), ("bf16", "bfloat16"), ("fp8_e4m3", "float8_e4m3fn"), ("fp8_e5m2", "float8_e5m2"),
    ],
)  # fmt: skip
def test_a_tensor_of_torch_goes_in(name: str, dtype: str) -> None:
    x = peers.torch.tensor([[1.0, -2.5], [0.5, 7.0], [-0.25, 3.0]]).T.to(getattr(peers.torch, dtype))  # no contiguous one
    (y,) = ptir.run(ptir.read(TEXT.format(name)), [x]).values()
    assert np.array_equal(arrays.widen(y), -x.float().numpy())


def test_what_numpy_makes_no_array_of_is_reported_with_the_reason() -> None:
    program = ptir.read(TEXT.format("f32"))
    with pytest.raises(UsageError, match=r"input `x` is tensor<f32, 2x3>.*requires grad"):
        ptir.run(program, [peers.torch.ones(2, 3, requires_grad=True)])
    with pytest.raises(UsageError, match=r"got an array of bfloat16"):
        ptir.run(program, [peers.torch.ones(2, 3, dtype=peers.torch.bfloat16)])

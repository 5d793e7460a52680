"""`--random` draws operands that a model takes: shapes, axes and lengths that are inputs, whose results the file declares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.engines.inputs import random_inputs
from tests.bridges.onnx.test_import import I64, F, evaluated, helper, model, node

# An operator of `x` and an operand `p` that decides the type of `y`: its inputs, and the shape of `y`.
DECIDED: dict[str, tuple[Any, dict[str, Any], list[int]]] = {
    "reshape": (node("Reshape", "x p", "y"), {"x": [2, 3, 4], "p": (I64, [2])}, [4, 6]),
    "expand": (node("Expand", "x p", "y"), {"x": [3, 1], "p": (I64, [3])}, [2, 3, 5]),
    "tile": (node("Tile", "x p", "y"), {"x": [2, 3], "p": (I64, [2])}, [4, 9]),
    "two axes": (node("ReduceSum", "x p", "y", keepdims=0), {"x": [2, 3, 4], "p": (I64, [2])}, [3]),
    "one of equal axes": (node("ReduceSum", "x p", "y", keepdims=0), {"x": [2, 3, 3], "p": (I64, [1])}, [2, 3]),
    "a scalar": (node("CumSum", "x p", "y"), {"x": [2, 3], "p": (I64, [])}, [2, 3]),
    "unsqueezed": (node("Unsqueeze", "x p", "y"), {"x": [2, 3], "p": (I64, [2])}, [1, 2, 3, 1]),
    "split": (node("Split", "x p", "y z", axis=0), {"x": [6], "p": (I64, [2])}, [4]),
    "reversed": (node("ReverseSequence", "x p", "y", batch_axis=1, time_axis=0), {"x": [4, 3], "p": (I64, [3])}, [4, 3]),
}


@pytest.mark.parametrize("name", DECIDED)
def test_operands_that_decide_a_type_are_drawn_to_fit(name: str) -> None:
    made, inputs, shape = DECIDED[name]
    m = model([made], inputs, [*made.output])
    for output, extents in zip(m.graph.output, (shape, [2]), strict=False):
        output.CopyFrom(helper.make_tensor_value_info(output.name, F, extents))
    program = ptir.from_onnx(m)
    drawn = set()
    for seed in range(8):
        given = random_inputs(program, seed)
        drawn.add(tuple(np.ravel(given["p"]).tolist()))
        for engine in ("reference", "numpy", "native"):
            for found, y in zip(ptir.run(program, given, engine=engine).values(), evaluated(m, given), strict=True):
                np.testing.assert_allclose(found, y, 1e-6, 1e-6)
    assert (len(drawn) > 1) == (name in ("one of equal axes", "a scalar"))  # several operands fit


def test_other_axes_than_those_that_fit_fail() -> None:
    made, inputs, shape = DECIDED["two axes"]
    m = model([made], inputs, ["y"])
    m.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", F, shape))
    program = ptir.from_onnx(m)
    x = np.ones((2, 3, 4), np.float32)
    for axes in ([0, 2], [2, 0], [-1, 0]):
        (found,) = ptir.run(program, [x, np.array(axes)]).values()
        np.testing.assert_array_equal(found, np.full(3, 8))
    for axes in ([0, 1], [2, 2], [0, 3]):
        with pytest.raises(ptir.Rejected):
            ptir.run(program, [x, np.array(axes)])

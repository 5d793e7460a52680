"""Programs that the pass `quantize` made, as models of ONNX: ONNX Runtime gives the same numbers, and computes in integers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.dialect import Program
from tests.passes.test_quantize import dense, images, quantized, samples

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

OPTIONS = ["", ",activations=si8", ",smooth=0.5", ",bias-correction", ",results", ",weights=ui8", ",weights=si4"]


def ran(program: Program, path: Path) -> tuple[np.ndarray, Counter[str], Counter[str]]:
    """The first output on the last sample; the operators of the model, and those that ONNX Runtime made of it."""
    model, optimized = ptir.to_onnx(program, lossy=True), path.with_suffix(".onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(optimized)
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    (x,) = np.load(path).values()
    (y, *_) = session.run(None, {session.get_inputs()[0].name: x[-1]})
    found = (Counter(node.op_type for node in m.graph.node) for m in (model, onnx.load(optimized)))
    return (np.asarray(y), *found)  # type: ignore[return-value]


@pytest.mark.parametrize("make", [dense, images])
@pytest.mark.parametrize(
    "options", ["", ",activations=si8", ",smooth=0.5", ",bias-correction", ",results", ",weights=ui8", ",weights=si4"]
)
def test_onnx_runtime_gives_the_numbers_of_the_program(tmp_path: Path, make: type[Program], options: str) -> None:
    program = make()
    path = samples(tmp_path, program, 8)
    made, _ = quantized(program, path, options)
    (want,) = ptir.run(made, [np.load(path)["x"][-1]]).values()
    got, _, _ = ran(made, path)
    assert np.linalg.norm(want - got) <= 1e-2 * np.linalg.norm(want)  # a sum at the middle of two steps may go to either


def test_convolutions_are_computed_in_integers(tmp_path: Path) -> None:
    program = images()
    path = samples(tmp_path, program, 8)
    made, _ = quantized(program, path, ",results")
    _, before, after = ran(made, path)
    assert before["Transpose"] <= 2 and before["Conv"] == after["QLinearConv"] == 3 and not after["Conv"]


@pytest.mark.parametrize("options", ["", ",results"])
def test_a_model_comes_back_with_its_steps(tmp_path: Path, options: str) -> None:
    program = images()
    path = samples(tmp_path, program, 8)
    made, _ = quantized(program, path, options)
    again = ptir.from_onnx(ptir.to_onnx(made))
    x = np.load(path)["x"][-1]
    want, got = (next(iter(ptir.run(p, [x]).values())) for p in (made, again))
    assert np.linalg.norm(want - got) <= 1e-2 * np.linalg.norm(want)
    counts = (Counter(op.defn.short for op in p.main.body) for p in (made, again))
    assert len({c["quantize"] for c in counts}) == 1

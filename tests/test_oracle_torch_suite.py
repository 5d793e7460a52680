"""Two models of `python -m tests.suites torch`. Skipped where torch or what it exports with is not installed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
from tests.suites import torch as suite


@pytest.mark.parametrize("name", ["whisper_step", "mobilenet_v3"])
def test_models_of_torch(name: str) -> None:
    assert suite.judged(name) == ""


def test_what_is_off_is_wrong() -> None:
    wanted = suite.bounds(*suite.built("lstm"))
    exact = {f"y{k}": x.astype(np.float32) for k, (x, _) in enumerate(wanted)}
    assert suite.off(exact, wanted) == ""
    exact["y0"] = exact["y0"] + np.float32(1e-4)
    assert suite.off(exact, wanted).startswith("y0 is off by")
    assert suite.off({"y0": exact["y0"]}, wanted) == "1 outputs, 2 are wanted"

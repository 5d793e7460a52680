"""Two models of `python -m tests.suites torch`. Skipped where torch or what it exports with is not installed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.lazy import lazy

torch, suite = lazy("torch"), lazy("tests.suites.torch")
NEEDED = ("onnx", "onnxscript", "onnxruntime")
if absent := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
    pytest.skip(f"{absent[0]} is not installed", allow_module_level=True)


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


def test_what_torch_does_not_export_is_reported() -> None:
    class Distances(torch.nn.Module):
        """What torch 2.13 has no translation for."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cdist(x, x)

    with pytest.raises(ptir.UsageError, match=r"torch does not export this module: .*_cdist_forward"):
        ptir.from_torch(Distances(), (torch.ones(2, 3),))

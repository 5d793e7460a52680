"""Two models of `python -m tests.suites torch`. Skipped where torch or what it exports with is not installed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from tests import peers

NEEDED = ("onnx", "onnxscript", "onnxruntime")
if absent := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
    pytest.skip(f"{absent[0]} is not installed", allow_module_level=True)


def _suite() -> Any:
    return importlib.import_module("tests.suites.torch")


@pytest.mark.parametrize("name", ["whisper_step", "mobilenet_v3"])
def test_models_of_torch(name: str) -> None:
    assert _suite().judged(name) == ""


def test_what_is_off_is_wrong() -> None:
    wanted = _suite().bounds(*_suite().built("lstm"))
    exact = {f"y{k}": x.astype(np.float32) for k, (x, _) in enumerate(wanted)}
    assert _suite().off(exact, wanted) == ""
    exact["y0"] = exact["y0"] + np.float32(1e-4)
    assert _suite().off(exact, wanted).startswith("y0 is off by")
    assert _suite().off({"y0": exact["y0"]}, wanted) == "1 outputs, 2 are wanted"


def test_what_torch_does_not_export_is_reported() -> None:
    class Distances(peers.torch.nn.Module):
        """What torch 2.13 has no translation for."""

        def forward(self, x: peers.torch.Tensor) -> peers.torch.Tensor:
            return peers.torch.cdist(x, x)

    with pytest.raises(ptir.UsageError, match=r"torch does not export this module: .*_cdist_forward"):
        ptir.from_torch(Distances(), (peers.torch.ones(2, 3),))

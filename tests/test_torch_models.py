"""The models in torch, computed now: what is stored is what torch gives. Skipped where torch is not installed."""

from __future__ import annotations

import pytest

import ptir_tools as ptir
from tests import peers
from tests.models import MODULES, hold, inputs, program
from tests.torch_models import outputs


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_stored_results_are_torch_s(name: str) -> None:
    hold(name, outputs(name, peers.torch.float64), "f64")
    hold(name, outputs(name, peers.torch.float32), "f32")


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", sorted(MODULES))
def test_engines_give_what_torch_gives_now(name: str, dtype: str, engine: str) -> None:
    hold(name, ptir.run(program(name, dtype), inputs(name, dtype), engine=engine), dtype, outputs(name, peers.torch.float64))

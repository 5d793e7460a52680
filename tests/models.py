"""The models of testdata/models: their programs, inputs, and what torch gives for them."""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

import ptir_tools as ptir
from tests.conftest import TESTDATA

FOLDER = TESTDATA / "models"
sys.path.insert(0, str(FOLDER))

import gpt2  # noqa: E402
import llama  # noqa: E402
import mobilenet  # noqa: E402
import quantized_mlp  # noqa: E402
import resnet  # noqa: E402

Arrays = dict[str, np.ndarray]
MODULES: dict[str, ModuleType] = {
    name: module for module in (gpt2, llama, resnet, mobilenet, quantized_mlp) for name in module.PROGRAMS
}
UNITS = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53}  # roundoff
NUMPY = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64}


@cache
def program(name: str, dtype: str = "f32") -> ptir.Program:
    """The program `name` as its module builds it; no one changes it."""
    return MODULES[name].PROGRAMS[name](dtype)


@cache
def inputs(name: str, dtype: str = "f32") -> Arrays:
    """The stored inputs, floats in `dtype`."""
    stored = load_file(FOLDER / f"{name}.inputs.safetensors")
    return {k: a.astype(NUMPY[dtype]) if a.dtype == np.float32 else a for k, a in stored.items()}


@cache
def torch(name: str, dtype: str = "f64") -> Arrays:
    """What torch gives in `dtype`."""
    return load_file(FOLDER / f"{name}.expect{'64' if dtype == 'f64' else ''}.safetensors")


def hold(name: str, found: Arrays, dtype: str, wanted: Arrays | None = None) -> None:
    """Hold what a program gave in `dtype` to torch's float64: integers alike, floats as close as torch's own float32 comes
    to it, within a factor of 4, at the roundoff of `dtype`."""
    exact, single = wanted or torch(name), torch(name, "f32")
    assert found.keys() == exact.keys()
    for key, want in exact.items():
        if want.dtype.kind == "f":
            own = np.abs(single[key].astype(np.float64) - want).max()
            bound = 4 * own * UNITS[dtype] / UNITS["f32"]
            assert found[key].dtype == NUMPY[dtype]
            assert np.abs(found[key].astype(np.float64) - want).max() <= bound, key
        else:
            np.testing.assert_array_equal(found[key], want)

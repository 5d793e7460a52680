"""The benchmarks can be asked for: every module is imported, so that none is left behind by a change of the package."""

import importlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from tests.bench._peer_work import WORKLOADS, Numpy, inputs, reference
from tests.conftest import ROOT

TABLES = sorted(path.stem for path in (ROOT / "tests" / "bench").glob("[!_]*.py"))


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tests.bench", *args], cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_benchmark_is_listed() -> None:
    said = bench("no-such-table").stderr
    assert "no table no-such-table (there are: " in said
    assert not [name for name in TABLES if name not in ("peers", "quantize", "world") and name not in said]
    assert bench("peers", "--help").returncode == 0


@pytest.mark.parametrize("name", TABLES)
def test_every_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"tests.bench.{name}")


def test_tables_are_listed_where_extras_are_missing() -> None:
    """Starting is measured in an environment that has the wheel and its peer alone."""
    script = "import sys; sys.modules.update(safetensors=None); from tests.bench.__main__ import names; print(names())"
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "'start'" in ran.stdout, ran.stderr


def test_a_peer_that_computes_f16_in_bf16_is_wrong() -> None:
    x, y = inputs("gemm_f16")
    narrow = [a.astype(ml_dtypes.bfloat16).astype(np.float32) for a in (x, y)]
    exact = reference("gemm_f16")
    allowed = WORKLOADS["gemm_f16"].tolerance * np.abs(exact).max()
    assert np.abs((narrow[0] @ narrow[1]).astype(np.float16) - exact).max() > 2 * allowed
    assert np.abs(Numpy().matmul(x, y) - exact).max() < allowed / 2

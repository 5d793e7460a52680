"""The benchmarks can be asked for: every module is imported, so that none is left behind by a change of the package."""

import subprocess
import sys

from conftest import ROOT


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tests.bench", *args], cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_benchmark_is_listed() -> None:
    said = bench("no-such-table").stderr
    tables = {path.stem for path in (ROOT / "tests" / "bench").glob("*.py") if not path.stem.startswith("_")}
    assert "no table no-such-table (there are: " in said
    assert not [name for name in tables - {"peers"} if name not in said]
    assert bench("peers", "--help").returncode == 0

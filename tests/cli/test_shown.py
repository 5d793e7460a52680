"""What commands show of what they found: names as they are, places, and what a note is about."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from ptir_tools.cli.run import _FUSED
from ptir_tools.core.dialect import Program
from ptir_tools.engines.compare import Divergence
from ptir_tools.tools import compare
from tests.conftest import run_ptir

NAMED = '%0 = Input {name="größe"} : tensor<f32[2]>\noutputs: %0\n'
FIRST = """func @f(%x: tensor<f32, 4>) -> tensor<f32, 4> {
  %a = neg(%x) -> tensor<f32, 4>

  %b = exp(%a) -> tensor<f32, 4>
  return %b
}
"""


def test_json_has_names_as_they_are() -> None:
    ran = run_ptir("info", "--json", "--from", "mind", stdin=NAMED.encode())
    assert ran.status == 0 and "größe" in ran.text and json.loads(ran.text)["functions"][0]["inputs"][0]["name"] == "größe"
    assert "größe" in run_ptir("info", "--from", "mind", stdin=NAMED.encode()).text


def test_values_that_differ_are_shown_with_the_lines_of_their_ops(tmp_path: Path) -> None:
    (tmp_path / "a.ptir").write_text(FIRST)
    (tmp_path / "b.ptir").write_text(FIRST.replace("exp(%a)", "log(%x)"))
    ran = run_ptir("diff", "--run", "--all-values", tmp_path / "a.ptir", tmp_path / "b.ptir")
    rows = {line.split()[0]: line.split()[1:3] for line in ran.text.splitlines() if line.startswith(("a ", "b "))}
    assert rows["a"] == ["neg", "2"] and rows["b"] == ["exp", "4"] and "by `exp` at 4:3" in ran.text
    assert ran.status == 1


def test_a_benchmark_says_what_it_ran_on() -> None:
    ran = run_ptir("bench", "--json", "--runs", "3", stdin=FIRST.encode())
    record = json.loads(ran.text)
    (row,) = record["benchmarks"]
    assert record["context"]["num_cpus"] == os.cpu_count() and record["context"]["library_version"].startswith("ptir ")
    assert (row["iterations"], row["repetitions"], row["time_unit"], row["name"]) == (3, 1, "us", "<stdin>")
    assert row["real_time"] == row["p50"] <= row["p90"] <= row["p99"] and row["FLOP/s"] > 0


@pytest.mark.parametrize("engine", ["numpy", "reference"])
@pytest.mark.parametrize("fused", [True, False])
def test_a_fault_of_fused_ops_alone_is_noted_where_ops_are_fused(
    engine: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def first(program: Program, *given: object) -> compare.Differing:
        return compare.Differing(Divergence("a", (0,), np.float32(1), np.float32(2), 1, 1.0, 1.0), program.main.body[0], "numpy")

    def only(program: Program, inputs: object, name: str, *given: object) -> bool:
        asked.append(name)
        return fused

    monkeypatch.setattr(compare, "first_diverging", first)
    monkeypatch.setattr(compare, "only_fused", only)
    words = ("run", "--random", "0", "--engine", engine, "--compare", "numpy", "--all-values")
    ran = run_ptir(*words, "--diagnostics", "short", stdin=FIRST.encode())
    assert ran.status == 1 and "2:3: error[OutputMismatch]: the first value that differs on the engine numpy" in ran.err
    assert asked == ["numpy"] * (engine != "reference")
    assert (_FUSED in run_ptir(*words, stdin=FIRST.encode()).err) is (fused and engine != "reference")

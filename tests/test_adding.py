"""docs/adding.md, done to the letter in a copy of the tree: an op, a rule, a pass and a command work with what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "adding.md").read_text("utf-8")
_BLOCK = re.compile(r"```(?:py|text)\n(.*?)```", re.DOTALL)
TEXT = """func @f(%x: tensor<f32, 4>) -> tensor<f32, 4> {
  %s = softsign(%x) -> tensor<f32, 4>
  %y = abs(%s) -> tensor<f32, 4>
  return %y
}
"""
Ptir = Callable[..., str]


def block(section: str, number: int = 0) -> str:
    """A block of code below the heading `section`."""
    return _BLOCK.findall(PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0])[number]


@pytest.fixture(scope="module")
def ptir(tmp_path_factory: pytest.TempPathFactory) -> Ptir:
    """Runs `ptir` of a copy that has what the page adds."""
    tree = tmp_path_factory.mktemp("copy")
    package = tree / "ptir_tools"
    unwanted = shutil.ignore_patterns("__pycache__", "*.c", "*.h", "*.inl")
    shutil.copytree(ROOT / "ptir_tools", package, ignore=unwanted)
    for room in ("grammars", "passes"):
        shutil.copytree(ROOT / room, package / room, ignore=unwanted)
    with open(package / "dialects/ptir/ops/functions.py", "a", encoding="utf-8") as file:
        file.write("\n\n" + block("An op"))
    rules = package / "dialects/ptir/rewrites/algebra.py"
    rules.write_text(
        re.sub(r"(?m)^ *abs-neg: .*\n", lambda m: m[0] + block("A rule"), rules.read_text("utf-8"), count=1), "utf-8"
    )
    (package / "passes/ptir/drop_repeated.py").write_text(block("A pass"), "utf-8")
    (package / "cli/count.py").write_text(block("A command"), "utf-8")
    commands = package / "cli/commands.py"
    commands.write_text(commands.read_text("utf-8").replace('"stats",', '"count", "stats",', 1), "utf-8")

    def run(*words: str | Path, text: str = TEXT) -> str:
        command = [sys.executable, "-m", "ptir_tools", *map(str, words)]
        env = os.environ | {"PYTHONPATH": str(tree)}
        ran = subprocess.run(command, input=text, capture_output=True, text=True, env=env, cwd=tree)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout + ran.stderr

    return run


def test_an_op(ptir: Ptir, tmp_path: Path) -> None:
    (tmp_path / "softsign.ptir").write_text(case := block("An op", 1), "utf-8")
    words = case.partition("RUN: ptir ")[2].partition("\n")[0].replace("%s", str(tmp_path / "softsign.ptir"))
    for engine in ("reference", "numpy", "native"):
        numbers = ptir(*words.split(), "--engine", engine).partition("[")[2].rstrip("]\n").split()
        assert [float(x) for x in numbers] == [-0.75, 0.75, 0.0, -0.5]
    assert "softsign(" in ptir("gen", "--seed", "1", "--only", "softsign", text="") and "|x|" in ptir("ops", "softsign", text="")


def test_a_rule(ptir: Ptir) -> None:
    assert re.findall(r"= (\w+)\(", ptir("opt", "-")) == ["abs", "softsign"]
    _, case = block("A rule", 0), block("A rule", 1)
    assert case.startswith("// rule abs-softsign\n") and case.endswith("// after\n")


def test_a_pass(ptir: Ptir) -> None:
    assert "drop-repeated" in (listed := ptir("opt", "--list-passes", text="")) and "Drop an idempotent op" in listed
    twice = TEXT.replace("softsign", "abs")
    shown = ptir("opt", "-p", "drop-repeated", "--check", "--stats", "-", text=twice)
    assert shown.count("abs(") == 1 and re.search(r"\b1  drop-repeated: dropped\n", shown)


def test_a_command(ptir: Ptir) -> None:
    assert ptir("count") == "2 ops\n" and ptir("count", "--pure", "-") == "2 ops\n"
    assert "Only ops without effects." in ptir("count", "--help", text="") and " count " in ptir("--help", text="")


def test_a_kernel() -> None:
    """The places of C that the page names are there."""
    said = PAGE.partition("\n## A kernel\n")[2]
    native = ROOT / "ptir_tools" / "native"
    ops = (native / "kernels.h").read_text("utf-8").partition("#define PTIR_OPS")[2].partition("\n#define")[0]
    assert "`X(tanh)`" in said and "X(tanh)" in ops and ops.index("X(neg)") < ops.index("X(tanh)") < ops.index("X(nearest_f16)")
    assert "UNARY(softsign, x / (1.0f + absolute(x)))" in said and "UNARY(tanh, " in (native / "chain.inl").read_text("utf-8")

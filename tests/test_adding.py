"""docs/adding.md, done to the letter in a copy of the tree: what the page adds works with what the page shows."""

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


def written_after(path: Path, line: str, text: str, start: str = "") -> None:
    """Write `text` after a line: the first one after `start`."""
    source = path.read_text("utf-8")
    at = source.index(line, source.index(start)) + len(line)
    path.write_text(source[:at] + text + source[at:], "utf-8")


@pytest.fixture(scope="module")
def ptir(tmp_path_factory: pytest.TempPathFactory) -> Ptir:
    """Runs `ptir` of a copy that has what the page adds."""
    tree = tmp_path_factory.mktemp("copy")
    package = tree / "ptir_tools"
    unwanted = shutil.ignore_patterns("__pycache__", "*.c", "*.h", "*.inl")
    shutil.copytree(ROOT / "ptir_tools", package, ignore=unwanted)
    for room in ("grammars", "passes"):
        shutil.copytree(ROOT / room, package / room, ignore=unwanted)
    functions = package / "dialects/ptir/ops/functions.py"
    imports = "from ptir_tools.core.violations import operand, require\n"
    op, few = block("An op").replace("infer=of_float", "infer=of_few_axes"), block("A diagnostic")
    functions.write_text(
        functions.read_text("utf-8").replace("from ptir_tools.dialects", f"{imports}from ptir_tools.dialects", 1)
        + f"\n\n{few}\n\n{op}",
        "utf-8",
    )
    written_after(package / "dialects/ptir/codes.py", "CONTRACT = (\n", block("A diagnostic", 1))
    written_after(package / "bridges/stablehlo/ops/elementwise.py", "SAME = {\n", block("An operator of StableHLO"))
    written_after(package / "dialects/pto/ops/elementwise.py", "] = {\n", block("A tile op of PTO"), "_UNARY: ")
    with open(package / "bridges/onnx/ops/elementwise.py", "a", encoding="utf-8") as file:
        file.write("\n\n" + block("An operator of ONNX"))
    rules = package / "dialects/ptir/rewrites/algebra.py"
    rules.write_text(
        re.sub(r"(?m)^ *abs-neg: .*\n", lambda m: m[0] + block("A rule"), rules.read_text("utf-8"), count=1), "utf-8"
    )
    (package / "passes/ptir/drop_repeated.py").write_text(block("A pass"), "utf-8")
    (package / "cli/count.py").write_text(block("A command"), "utf-8")
    commands = package / "cli/commands.py"
    commands.write_text(commands.read_text("utf-8").replace('"stats",', '"count", "stats",', 1), "utf-8")

    def run(*words: str | Path, text: str = TEXT, module: str = "ptir_tools", status: int = 0) -> str:
        command = [sys.executable, "-m", module, *map(str, words)]
        env = os.environ | {"PYTHONPATH": os.pathsep.join((str(tree), str(ROOT))), "PYTEST_ADDOPTS": ""}
        ran = subprocess.run(command, input=text, capture_output=True, text=True, env=env, cwd=tree)
        assert ran.returncode == status, ran.stdout + ran.stderr
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


def words_of(case: str, path: Path) -> list[str]:
    """The words of a golden case's command, where the case is `path`."""
    path.write_text(case, "utf-8")
    return re.findall(r"(?m)^// \S+: ptir (.*)$", case)[0].replace("%s", str(path)).split()


def test_an_operator_of_onnx(ptir: Ptir, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    shared = "from tests.bridges.onnx.test_import import helper, model, noise, np, ptir\n\n\n"
    (tmp_path / "test_it.py").write_text(shared + block("An operator of ONNX", 1), "utf-8")
    ptir("-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path / "test_it.py", module="pytest", text="")


def test_an_operator_of_stablehlo(ptir: Ptir, tmp_path: Path) -> None:
    words = words_of(block("An operator of StableHLO", 1), tmp_path / "softsign.mlir")
    assert "= softsign(%x) -> tensor<f32, 4>" in ptir(*words, text="")


def test_a_tile_op(ptir: Ptir, tmp_path: Path) -> None:
    words = words_of(block("A tile op of PTO", 1), tmp_path / "softsign.pto")
    at = words.index("|")
    placed = ptir(*words[:at], text="")
    assert re.search(r"\bTSOFTSIGN\(\w+, \w+\);", ptir(*words[at + 2 :], text=placed))
    shown = ptir("run", tmp_path / "softsign.pto", "--input", "a=-3", "--input", "b=0", text="")
    assert "-0.75" in shown


def test_a_diagnostic(ptir: Ptir, tmp_path: Path) -> None:
    words = words_of(case := block("A diagnostic", 2), tmp_path / "case.ptir")
    assert case.startswith("// FAIL[1]: ")
    said = ptir(*words, text="", status=1)
    assert "error[TooManyAxes]: tensor<f32, 1x1x1x1x4> has 5 axes, at most 4" in said and "reshape it" in said
    shown = ptir("explain", "TooManyAxes", text="")
    assert "at most four axes" in shown and "softsign(%x)" in shown and "reshape(%x)" in shown


def test_a_kernel() -> None:
    """The places of C that the page names are there."""
    said = PAGE.partition("\n## A kernel\n")[2]
    native = ROOT / "ptir_tools" / "native"
    ops = (native / "kernels.h").read_text("utf-8").partition("#define PTIR_OPS")[2].partition("\n#define")[0]
    assert "`X(tanh)`" in said and "X(tanh)" in ops and ops.index("X(neg)") < ops.index("X(tanh)") < ops.index("X(nearest_f16)")
    assert "UNARY(softsign, x / (1.0f + absolute(x)))" in said and "UNARY(tanh, " in (native / "chain.inl").read_text("utf-8")

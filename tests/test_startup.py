"""What starting costs, told by what is imported, not by the clock (tests/bench measures that)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PROGRAM = """func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {
  %y = add(%x, dense<2.0> : tensor<f32, 2>) -> tensor<f32, 2>
  return %y
}
"""
HEAVY = ("numpy", "ml_dtypes", "lark", "rich", "safetensors")
PARSING = ("click", "dataclasses", "inspect")  # what a command line of plain words does not need
RAN = """
import sys
before = set(sys.modules)  # those of an editable installation's finder
from ptir_tools.cli import invoke
status = invoke(sys.argv[1:])
print(status, *(set(sys.modules) - before))
"""


def imported(*args: str | Path) -> tuple[int, set[str]]:
    """(exit code, modules that a command line imported)."""
    ran = subprocess.run([sys.executable, "-c", RAN, *map(str, args)], capture_output=True, text=True, cwd=ROOT)
    status, *names = ran.stdout.splitlines()[-1].split()
    return int(status), set(names)


def test_version_imports_nothing_but_the_door() -> None:
    code = "import sys; from ptir_tools.__main__ import main; main(); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, cwd=ROOT)
    names = set(ran.stdout.splitlines()[-1].split())
    ours = {n for n in names if n.startswith("ptir_tools") and "editable" not in n}
    assert ours <= {
        "ptir_tools",
        "ptir_tools.__main__",
        "ptir_tools.core",
        "ptir_tools.core.cpython",
        "ptir_tools.core.lazy",
        "ptir_tools.core.typed",
    }
    assert not names & {*HEAVY, "click", "dataclasses", "json"}


@pytest.mark.parametrize("args", [("verify",), ("fmt",), ("fmt", "--check"), ("translate", "--to", "ptir"), ("opt",)])
def test_plain_text_needs_neither_numpy_nor_lark(args: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(PROGRAM)
    status, names = imported(*args, tmp_path / "p.ptir")
    assert status == 0
    assert not names & set(HEAVY)
    assert not names & set(PARSING)


CONSTANTS = {
    "p.pto": "func.func @f() {\n  %k = pto.constant 1.5 : f32\n  %h = pto.constant 0.1 : bf16\n  return\n}\n",
    "p.mind": "%0 = ConstF32 {value=1.5}\n%1 = ConstTensor {value=[0.1], dtype=f64, shape=[1]}\noutputs: %0, %1\n",
    "p.ptir": "func @f() -> tensor<bf16> {\n  %k = constant() value[dense<0.1>] -> tensor<bf16>\n  return %k\n}\n",
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_need_no_numpy(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(CONSTANTS[name])
    status, names = imported("verify", tmp_path / name)
    assert status == 0
    assert not names & set(HEAVY)


def test_verify_imports_no_engine_pass_or_conversion(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(PROGRAM)
    _, names = imported("verify", tmp_path / "p.ptir")
    rooms = ("engines", "passes", "convert", "plan", "dialects.mind.", "dialects.tiny.", "dialects.pto.")
    assert not [n for n in names if n.startswith(tuple(f"ptir_tools.{room}" for room in rooms))]


def test_optimizing_imports_no_engine_plan_or_conversion(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(PROGRAM)
    status, names = imported("opt", tmp_path / "p.ptir")
    assert status == 0
    assert not [n for n in names if n.startswith(("ptir_tools.engines", "ptir_tools.convert", "ptir_tools.plan"))]


def test_a_run_imports_neither_other_dialects_nor_what_compares(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(PROGRAM)
    status, names = imported("run", tmp_path / "p.ptir", "--random", "1")
    assert status == 0
    others = ("dialects.pto.", "dialects.mind.", "dialects.tiny.", "engines.compare", "engines.xla", "bridges.xla.")
    assert not [n for n in names if n.startswith(tuple(f"ptir_tools.{other}" for other in others))]
    assert not names & {"concurrent.futures", "difflib"}


GELU = """func @f(%x: tensor<f32, 64>) -> tensor<f32, 64> {
  %a = mul(%x, %x) -> tensor<f32, 64>
  %b = mul(%a, %x) -> tensor<f32, 64>
  %h = broadcast_to(dense<0.5> : tensor<f32>) result_shape[64] -> tensor<f32, 64>
  %c = broadcast_to(dense<0.044715> : tensor<f32>) result_shape[64] -> tensor<f32, 64>
  %d = mul(%b, %c) -> tensor<f32, 64>
  %e = add(%x, %d) -> tensor<f32, 64>
  %t = tanh(%e) -> tensor<f32, 64>
  %g = mul(%t, %h) -> tensor<f32, 64>
  %y = mul(%g, %x) -> tensor<f32, 64>
  return %y
}
"""
ROWS = """func @f(%x: tensor<f32, 4x64>, %g: tensor<f32, 64>) -> tensor<f32, 4x64> {
  %n = layer_norm(%x, %g, %g) epsilon[1e-5] -> tensor<f32, 4x64>
  %m = reduce_max(%n) axes[-1] keepdims[true] -> tensor<f32, 4x1>
  %b = broadcast_to(%m) result_shape[4, 64] -> tensor<f32, 4x64>
  %y = add(%n, %b) -> tensor<f32, 4x64>
  return %y
}
"""


@pytest.mark.parametrize("text", [GELU, ROWS])
def test_a_run_of_f32_imports_only_what_it_uses(text: str, tmp_path: Path) -> None:
    """Options given word by word need no click; no dtype is of ml_dtypes; nothing is searched, drawn, traced or timed."""
    (tmp_path / "p.ptir").write_text(text)
    status, names = imported("run", tmp_path / "p.ptir", "--random", "0")
    assert status == 0
    assert not names & {"click", "ml_dtypes", "json", "html", "signal", "lark", "rich", "decimal"}
    ours = (
        "plan.exact",
        "plan.mesh",
        "core.arrayfiles",
        "dialects.jsonc",
        "plan.skyline",
        "plan.svg",
        "plan.write",
        "plan.validate",
        "plan.spaces",
        "cli.parsing",
    )
    assert not names & {f"ptir_tools.{name}" for name in ours}
    kernels = ("attention", "bands", "byte_products", "convolution", "moves", "products", "quantize", "vectors", "windows")
    assert not names & {f"ptir_tools.engines.native.{name}" for name in kernels}


def test_reading_and_calling_by_the_api_imports_only_what_it_uses(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(GELU)
    path = str(tmp_path / "p.ptir")
    code = f"import numpy as np, sys; before = set(sys.modules); import ptir_tools; p = ptir_tools.read({path!r}); "
    code += "ptir_tools.compile(p)([np.ones(64, np.float32)]); print(*(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = set(ran.stdout.split())
    assert not names & {"click", "ml_dtypes", "json", "html", "signal", "lark", "rich"}
    others = (
        "cli",
        "bridges.xla",
        "bridges.onnx",
        "plan.exact",
        "engines.tracefolder",
        "dialects.ptir.gptrs",
        "dialects.ptir.builder",
    )
    assert not [n for n in names if n.startswith(tuple(f"ptir_tools.{other}" for other in others))]


def test_opt_imports_no_engine_plan_or_conversion(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(PROGRAM)
    _, names = imported("opt", tmp_path / "p.ptir")
    rooms = ("engines", "convert", "plan", "dialects.mind.", "dialects.tiny.", "dialects.pto.")
    assert not [n for n in names if n.startswith(tuple(f"ptir_tools.{room}" for room in rooms))]


def test_the_api_loads_when_it_is_used() -> None:
    code = "import sys, ptir_tools; assert 'read' in dir(ptir_tools); print(*sys.modules); "
    code += "ptir_tools.read; import ptir_tools.plan; print(callable(ptir_tools.plan))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = ran.stdout.splitlines()
    assert "ptir_tools.api" not in before.split()
    assert after == "True"


@pytest.mark.parametrize("first", ["ptir_tools.engines", "ptir_tools.plan", "ptir_tools.api", "ptir_tools"])
def test_plan_is_the_function_whatever_was_imported_before(first: str) -> None:
    imports = f"import {first}, ptir_tools.plan.order; from ptir_tools import plan"
    code = f"{imports}; assert plan is ptir_tools.plan; assert callable(plan)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    "statement", ["import numpy.linalg", "from numpy.linalg import norm", "import ml_dtypes", "import numpy.testing"]
)
def test_imports_after_ours_load_a_module_once(statement: str) -> None:
    """An import of a part imports the whole, which imports the part: it must not be loaded a second time."""
    code = f"""
import sys, ptir_tools.engines
{statement}
import numpy as np
np.testing.assert_array_equal(np.linalg.norm([3, 4]), 5)
for name in ("linalg", "testing", "_core"):
    module = getattr(np, name)
    assert module is sys.modules["numpy." + name] and module.__spec__.origin.endswith("__init__.py")
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize(
    "args", [("plan", "testdata/plan/softmax.ptir"), ("opt", "--list-passes"), ("stats", "testdata/plan/softmax.ptir")]
)
def test_a_pipe_does_not_pay_for_tables(args: tuple[str, ...]) -> None:
    status, names = imported(*args)
    assert status == 0 and not [n for n in names if n == "rich" or n.startswith("rich.")]


def test_verify_imports_no_writer(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(PROGRAM)
    _, names = imported("verify", tmp_path / "p.ptir")
    assert not names & {"ptir_tools.dialects.ptir.text.writer", "filecmp", "glob"}


def test_a_lazy_module_is_imported_when_touched_as_an_import_statement_does() -> None:
    """A part that its own package imports, too, is whole; what the module binds later is seen; what is not there is told."""
    code = """
import sys
from ptir_tools.core.lazy import lazy
part, missing = lazy("ptir_tools.dialects.pto.targets"), lazy("ptir_tools.missing")
assert "ptir_tools.dialects" not in sys.modules
assert part.TARGETS and part.TARGETS is sys.modules[part.__name__].TARGETS
sys.modules[part.__name__].bound_later = 1
assert part.bound_later == 1 and lazy(part.__name__) is sys.modules[part.__name__]
for module, error in ((part, AttributeError), (missing, ModuleNotFoundError)):
    try:
        module.anything
    except error:
        continue
    raise SystemExit(f"{error} was expected")
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=ROOT)


def test_methods_of_classes_are_made_when_they_are_used() -> None:
    """As `core.records` makes them; those of the standard library are compiled at import."""
    files = [
        p for folder in ("ptir_tools", "passes", "grammars") for p in (ROOT / folder).rglob("*.py") if p.name != "records.py"
    ]
    made = re.compile(r"^(?:from|import) dataclasses\b|^from typing import .*\bNamedTuple\b", re.MULTILINE)
    assert [str(p.relative_to(ROOT)) for p in files if made.search(p.read_text())] == []


def test_annotations_take_their_names_from_one_place() -> None:
    """`core.typed`; a command that reads and rewrites a program does not import `typing`."""
    files = [p for folder in ("ptir_tools", "passes", "grammars") for p in (ROOT / folder).rglob("*.py")]
    wrong = [p for p in files if re.search(r"^(?:from typing import|import typing)\b", p.read_text(), re.MULTILINE)]
    assert [p.name for p in wrong] == ["api.py"]  # whose keyword options are types of their own
    code = "import sys; from ptir_tools import cli; cli.main(); assert 'typing' not in sys.modules"
    program = ROOT / "testdata" / "plan" / "softmax.ptir"
    subprocess.run([sys.executable, "-c", code, "opt", str(program)], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)

"""An op is one declaration: in every dialect it is read, verified, run and printed from that alone, and refused elsewhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

DECLARED = {
    "ptir": """
from ptir_tools.dialects.ptir.ops.elementwise import MAP, compute, of_inexact

@op("ptir.sech", infer=of_inexact, traits=MAP)
def sech(x, *, result: "Result"):
    return compute(result, lambda v: 1 / np.cosh(v), x)
""",
    "mind": """
from ptir_tools.dialects.mind.ops.elementwise import exp_type, rounded

@op("mind.Sech", infer=exp_type, traits=PURE)
def sech(input, *, result: "Result"):
    return rounded(lambda v: 1 / np.cosh(v), result.dtype, input)
""",
    "tiny": """
from ptir_tools.dialects.tiny.ops.elementwise import FLOATS, unary_type

@op("tiny.SECH", infer=unary_type("SECH", FLOATS), traits=PURE)
def sech(x):
    return 1 / np.cosh(x)
""",
    "pto": """
from ptir_tools.dialects.pto import elements
from ptir_tools.dialects.pto.facts import Facts
from ptir_tools.dialects.pto.ops import kit

kit.unary("sech", lambda x: 1 / np.cosh(x), kit.floats, "The hyperbolic secant.", Facts(elements=elements.FLOATS))
""",
}
PROGRAMS = {
    "ptir": "func @f(%x: tensor<f32, 1x8>) -> tensor<f32, 1x8> {\n  %y = sech(%x) -> tensor<f32, 1x8>\n  return %y\n}\n",
    "mind": "%0 = Input {name=x} : tensor<f32[1, 8]>\n%1 = Sech (%0) : tensor<f32[1, 8]>\noutputs: %1\n",
    "tiny": """{"uops":[
  {"id":"n0","uop":"INPUT","arg":{"tensor_id":"x","dtype":"fp32","shape":[1, 8]}},
  {"id":"n1","uop":"SECH","src":["n0"]}
]}
""",
    "pto": """func.func @f(%x: pto.memref<1x8xf32>, %y: pto.memref<1x8xf32>) {
  %c0 = pto.constant 0 : index
  %a = pto.tile.load %x[%c0, %c0] : pto.memref<1x8xf32>, tile<1x8xf32>
  %b = pto.tile.sech %a : tile<1x8xf32>
  pto.tile.store %b, %y[%c0, %c0] : pto.memref<1x8xf32>, tile<1x8xf32>
  return
}
""",
}
USED = """
import sys
import numpy as np
import ptir_tools as ptir
from ptir_tools.core.declare import op
from ptir_tools.core.ir import PURE
from ptir_tools.dialects import load_dialect

dialect, declaration, text = sys.argv[1:]
load_dialect(dialect)
exec(declaration)
program = ptir.read(text)
written = ptir.write(program)
assert "sech" in written.lower() and ptir.write(ptir.read(written)) == written

inputs = {name: np.linspace(-2, 2, 8, dtype=np.float32).reshape(1, 8) for name in ("x", "y")[: 1 + (dialect == "pto")]}
*_, got = ptir.run(program, inputs).values()
np.testing.assert_allclose(got, 2 / (np.exp(inputs["x"]) + np.exp(-inputs["x"])), rtol=1e-6)
assert "sech" in ptir.write(ptir.optimize(program)).lower()

for form in ("ptir-dump", "ptir-json") if dialect == "ptir" else ():
    carried = ptir.write(program, form)
    assert "ptir.sech.v1" in carried and ptir.write(ptir.read(carried), form) == carried
    assert "= sech(" in ptir.write(ptir.read(carried), "ptir")
for other in ("ptir", "mind", "tiny"):
    if other == dialect:
        continue
    try:
        ptir.translate(program, other)
    except ptir.Rejected:
        continue
    raise AssertionError(f"{other} has no such op")
"""


@pytest.mark.parametrize("dialect", PROGRAMS)
def test_an_op_is_one_declaration(dialect: str) -> None:
    line = [sys.executable, "-c", USED, dialect, DECLARED[dialect], PROGRAMS[dialect]]
    ran = subprocess.run(line, capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr


# Three ops that PTIR does not have, each one declaration: all that follows asks nothing but that.
THREE = '''"""Ops of a user."""

from __future__ import annotations

import numpy as np

from ptir_tools.core import costs, errors
from ptir_tools.core.declare import op
from ptir_tools.core.ir import PURE, Algebra, InPlace
from ptir_tools.dialects.ptir.ops.elementwise import MAP, alike, compute, of_inexact
from ptir_tools.dialects.ptir.ops.typerules import FLOATS, NUMERIC, axis_of, rule, want


@op(
    "ptir.radians",
    infer=of_inexact,
    traits=MAP,
    family="elementwise_unary",
    error=errors.pointwise(ulp=2),
    algebra=Algebra(parity="odd", monotone="increasing"),
    inplace=InPlace("float-ufunc", "radians"),
)
def radians(x, *, result: Result):
    """An angle in degrees, in radians."""
    return compute(result, np.radians, x)


@rule
def of_floats(y, x):
    """Two operands of one float type."""
    want(x.dtype, FLOATS)
    return alike(y, x)


@op("ptir.hypot", infer=of_floats, traits=MAP, error=errors.pointwise(ulp=4))
def hypot(y, x, *, result: Result):
    """The distance of the point (x, y) from the origin."""
    return compute(result, np.hypot, y, x)


@rule
def of_axis(x, *, axis):
    """An axis of `x`."""
    want(x.dtype, NUMERIC)
    axis_of(axis, x.rank, "axis")
    return x


@op("ptir.prefix_sum", infer=of_axis, traits=PURE, error=errors.linear(), cost=costs.reads)
def prefix_sum(x, *, axis: int, result: Result):
    """The sum of the elements up to each, along `axis`."""
    return compute(result, lambda v: np.cumsum(v, axis, v.dtype), x)
'''
NUMBERS = """
import sys
import numpy as np
import declared
import ptir_tools as ptir
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.engines import bounds, compare
from ptir_tools.engines.options import RunOptions

X, Y = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4), np.linspace(3, -1, 12, dtype=np.float32).reshape(3, 4)
text = '''func @f(%x: tensor<f32, 3x4>, %y: tensor<f32, 3x4>) -> (tensor<f32, 3x4>, tensor<f32, 3x4>, tensor<f32, 3x4>) {
  %a = radians(%x) -> tensor<f32, 3x4>
  %m = mul(%a, %a) -> tensor<f32, 3x4>
  %b = hypot(%y, %x) -> tensor<f32, 3x4>
  %t = transpose(%m) perm[1, 0] -> tensor<f32, 4x3>
  %c = prefix_sum(%t) axis[-1] -> tensor<f32, 4x3>
  %d = transpose(%c) perm[1, 0] -> tensor<f32, 3x4>
  return %m, %b, %d
}
'''
program = ptir.read(text)
wide = np.radians(X.astype(np.float64)) ** 2
for engine in ("reference", "numpy", "native"):
    found = ptir.run(program, {"x": X, "y": Y}, engine=engine)
    for got, want in zip(found.values(), (wide, np.hypot(Y.astype(np.float64), X), np.cumsum(wide, 0)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)

proven = bounds.Executable(program, program.main, RunOptions())
compare.execute(proven, program, [X, Y], RunOptions(), Diagnostics())
assert all(np.all(e < 1e-4) for e in proven.errors), proven.errors

folded = ptir.write(ptir.optimize(ptir.read('''func @f() -> (tensor<f64, 2>, tensor<f64, 2>, tensor<si32, 3>) {
  %a = radians(dense<[0.5, 1.0]> : tensor<f64, 2>) -> tensor<f64, 2>
  %b = hypot(dense<1.0> : tensor<f64, 2>, dense<2.0> : tensor<f64, 2>) -> tensor<f64, 2>
  %c = prefix_sum(dense<[1, 2, 4]> : tensor<si32, 3>) axis[0] -> tensor<si32, 3>
  return %a, %b, %c
}
''')))
assert not any(op in folded for op in ("radians", "hypot", "prefix_sum")) and "[1, 3, 7]" in folded, folded

moved = ptir.write(ptir.optimize(ptir.read('''func @f(%x: tensor<f32, 4>) -> tensor<f32, 4> {
  %n = neg(%x) -> tensor<f32, 4>
  %a = radians(%n) -> tensor<f32, 4>
  %b = neg(%a) -> tensor<f32, 4>
  return %b
}
''')))
assert "radians" in moved and "neg" not in moved, moved
"""


@pytest.fixture
def declared(tmp_path, monkeypatch):
    """Runs a command, or a script, of a toolkit that has the three ops."""
    (tmp_path / "declared.py").write_text(THREE, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(*words: str, script: str = "import declared; from ptir_tools.__main__ import main; main()") -> str:
        ran = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, cwd=ROOT)
        assert ran.returncode == 0, ran.stderr + ran.stdout
        return ran.stdout

    return run


def test_three_ops_compute_fold_and_obey_their_laws(declared) -> None:
    """On every engine, next to ops with kernels, within bounds that are proven; an odd op needs no negation on both sides."""
    declared(script=NUMBERS)


@pytest.mark.parametrize(
    ("said", "unsaid"),
    [
        ("error=errors.linear(), ", ""),  # nothing bounds it
        ('parity="odd", ', ""),  # the negations stay
        ("v, axis, v.dtype", "v, 0, v.dtype"),  # another meaning
        ("traits=PURE, error", "error"),  # not folded
    ],
)
def test_what_an_op_does_not_say_is_missed(declared, tmp_path, said: str, unsaid: str) -> None:
    assert THREE.count(said) == 1
    (tmp_path / "declared.py").write_text(THREE.replace(said, unsaid), "utf-8")
    with pytest.raises(AssertionError):
        declared(script=NUMBERS)


@pytest.mark.parametrize("op", ["radians", "hypot", "prefix_sum"])
def test_an_op_that_is_new_has_everything(declared, tmp_path, op: str) -> None:
    file = tmp_path / "made.ptir"
    for seed in range(6):
        file.write_text(declared("gen", "--seed", str(seed), "--only", op, "--ops", "5", "--static"), "utf-8")
        if f" {op}(" in file.read_text("utf-8"):
            break
    assert f" {op}(" in file.read_text("utf-8")
    for engine in ("numpy", "native"):
        declared("run", "--engine", engine, "--random", "1", "--compare", "reference", str(file))
    declared("opt", "--check", str(file), "-o", str(tmp_path / "optimized.ptir"))
    assert op in declared("graph", str(file))
    assert "peak" in declared("plan", str(file))
    assert f"### `ptir.{op}(" in declared("ops", "--markdown")
    (row,) = [line.split() for line in declared("stats", str(file)).splitlines() if line.startswith(f"{op} ")]
    assert int(row[2]) > 0


def test_the_facts_of_a_tile_op_reach_its_targets() -> None:
    """Element types, cycles and the place of its result come from the declaration alone."""
    used = """
import sys
import numpy as np
import ptir_tools as ptir
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.targets import A3

load_dialect("pto")
exec(sys.argv[1])
text = sys.argv[2].replace("1x8", "1x16")
assert element_types(A3)["sech"] == {"f16", "f32"}
ptir.verify(ptir.read(text), target="a3")
try:
    ptir.verify(ptir.read(text.replace("f32", "bf16")), target="a3")
except ptir.Rejected as refused:
    assert "sech has no bf16 on a3 (it has f16, f32)" in str(refused), refused
else:
    raise AssertionError("sech of bf16 is legal on a3")
"""
    done = subprocess.run(
        [sys.executable, "-c", used, DECLARED["pto"], PROGRAMS["pto"]], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

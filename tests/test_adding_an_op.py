"""An op is one declaration: in every dialect it is read, verified, run and printed from that alone, and refused elsewhere."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import ROOT

DECLARED = {
    "ptir": """
from ptir_tools.dialects.ptir.ops.elementwise import MAP, compute, of_inexact

@op("ptir.cosh", infer=of_inexact, traits=MAP)
def cosh(x, *, result: "Result"):
    return compute(result, np.cosh, x)
""",
    "mind": """
from ptir_tools.dialects.mind.ops.elementwise import exp_type, rounded

@op("mind.Cosh", infer=exp_type, traits=PURE)
def cosh(input, *, result: "Result"):
    return rounded(np.cosh, result.dtype, input)
""",
    "tiny": """
from ptir_tools.dialects.tiny.ops.elementwise import FLOATS, unary

@op("tiny.COSH", infer=unary("COSH", FLOATS), traits=PURE)
def cosh(x):
    return np.cosh(x)
""",
    "pto": """
from ptir_tools.dialects.pto.ops import kit

kit.unary("cosh", lambda x: np.cosh(x), kit.floats, "The hyperbolic cosine.")
""",
}
PROGRAMS = {
    "ptir": "func @f(%x: tensor<f32, 1x8>) -> tensor<f32, 1x8> {\n  %y = cosh(%x) -> tensor<f32, 1x8>\n  return %y\n}\n",
    "mind": "%0 = Input {name=x} : tensor<f32[1, 8]>\n%1 = Cosh (%0) : tensor<f32[1, 8]>\noutputs: %1\n",
    "tiny": """{"uops":[
  {"id":"n0","uop":"INPUT","arg":{"tensor_id":"x","dtype":"fp32","shape":[1, 8]}},
  {"id":"n1","uop":"COSH","src":["n0"]}
]}
""",
    "pto": """func.func @f(%x: pto.memref<1x8xf32>, %y: pto.memref<1x8xf32>) {
  %c0 = pto.constant 0 : index
  %a = pto.tile.load %x[%c0, %c0] : pto.memref<1x8xf32>, tile<1x8xf32>
  %b = pto.tile.cosh %a : tile<1x8xf32>
  pto.tile.store %b, %y[%c0, %c0] : pto.memref<1x8xf32>, tile<1x8xf32>
  return
}
""",
}
USED = """
import sys
import numpy as np
import ptir_tools as ptir
from ptir_tools.core.opdef import PURE, op
from ptir_tools.dialects import load_dialect

dialect, declaration, text = sys.argv[1:]
load_dialect(dialect)
exec(declaration)
program = ptir.read(text)
written = ptir.write(program)
assert "cosh" in written.lower() and ptir.write(ptir.read(written)) == written

inputs = {name: np.linspace(-2, 2, 8, dtype=np.float32).reshape(1, 8) for name in ("x", "y")[: 1 + (dialect == "pto")]}
*_, got = ptir.run(program, inputs).values()
np.testing.assert_allclose(got, (np.exp(inputs["x"]) + np.exp(-inputs["x"])) / 2, rtol=1e-6)
assert "cosh" in ptir.write(ptir.optimize(program)).lower()

elsewhere = [(ptir.translate, other) for other in ("ptir", "mind", "tiny") if other != dialect]
for write, other in elsewhere + [(ptir.write, f"ptir-{form}") for form in ("dump", "json") if dialect == "ptir"]:
    try:
        write(program, other)
    except ptir.Rejected:
        continue
    raise AssertionError(f"{other} has no such op")
"""


@pytest.mark.parametrize("dialect", PROGRAMS)
def test_an_op_is_one_declaration(dialect: str) -> None:
    line = [sys.executable, "-c", USED, dialect, DECLARED[dialect], PROGRAMS[dialect]]
    ran = subprocess.run(line, capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr

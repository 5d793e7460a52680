"""Extension ops in gpt.rs's dump and JSON, what reading their calls refuses, and what their laws fold."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.bridges.xla import function
from ptir_tools.core.lazy import lazy
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.gptrs.custom_calls import carries

PROGRAM = """func @f(%x: tensor<f32, 3x4>, %i: tensor<si32, 3x4>) ->
    (tensor<f32, 3x4>, tensor<ui32, 3x4>, tensor<f32, 4>, tensor<si64, 3>) {
  %a = sin(%x) -> tensor<f32, 3x4>
  %b = bitcast(%x) dtype[ui32] -> tensor<ui32, 3x4>
  %c = reduce_prod(%x) axes[0] accum_dtype[f64] -> tensor<f32, 4>
  %s = sort(%x, %i) axis[1] descending[true] -> (tensor<f32, 3x4>, tensor<si32, 3x4>)
  %d = argmin(%s[1]) axis[1] output_dtype[si64] -> tensor<si64, 3>
  return %a, %b, %c, %d
}
"""


@pytest.mark.parametrize("form", ["ptir-dump", "ptir-json"])
def test_they_travel_as_custom_calls_and_come_back(form: str) -> None:
    program = ptir.read(PROGRAM)
    text = ptir.write(program, form)
    for op in ("sin", "bitcast", "reduce_prod", "sort", "argmin"):
        assert f"ptir.{op}.v1" in text
    again = ptir.read(text)
    assert [op.name for op in again.main.body] == [op.name for op in program.main.body]
    assert [op.attrs for op in again.main.body] == [op.attrs for op in program.main.body]
    assert ptir.write(again, form) == text


def test_every_extension_can_be_carried() -> None:
    """What gpt.rs has no kind for: all that docs/ptir.md calls an extension."""
    extensions = {d.short for d in DIALECT.ops.values() if "Extension." in d.doc}
    assert extensions == {d.short for d in DIALECT.ops.values() if carries(d)} and len(extensions) >= 50


FAULTS = {
    "has no attribute": {"axis": {"kind": "I64", "value": 1}, "what": {"kind": "I64", "value": 1}},
    "needs the attribute axis": {},
    "axis is F64, expected I64": {"axis": {"kind": "F64", "value": 1.0}},
    "which is not a dtype": {"axis": {"kind": "I64", "value": 1}, "output_dtype": {"kind": "String", "value": "f33"}},
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_call_that_is_no_such_op_is_refused(said: str) -> None:
    raw = json.loads(ptir.write(ptir.read(PROGRAM), "ptir-json"))
    call = next(i["op"]["CustomCall"] for i in raw["functions"][0]["body"] if "argmin" in str(i["op"]))
    call["attrs"] = FAULTS[said]
    with pytest.raises(ptir.Rejected, match=said) as refused:
        ptir.read(json.dumps(raw))
    assert {d.code for d in refused.value.diagnostics} == {"InvalidAttributeValue"}


def test_calls_of_other_targets_stay_calls() -> None:
    text = PROGRAM.replace("sin(%x)", 'custom_call(%x) target["ptir.nosuchop.v1"]')
    again = ptir.read(ptir.write(ptir.read(text), "ptir-json"))
    assert again.main.body[0].name == "ptir.custom_call"


def test_without_jax_the_line_that_installs_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {"jax", "jaxlib", *(name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib"))}:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(function, "jax", lazy("jax"))
    program, x = ptir.read(PROGRAM), np.ones((3, 4), np.float32)
    for use in (lambda: ptir.run(program, [x, x.astype(np.int32)], engine="xla"), lambda: ptir.to_jax(program)):
        with pytest.raises(ptir.UsageError, match=r"pip install 'ptir-tools\[xla\]'"):
            use()
    with pytest.raises(ptir.UsageError, match="needs JAX"):
        ptir.write(program, "stablehlo")


def test_a_scatter_that_drops_cannot_fail() -> None:
    """One that does not is kept, as what may end a run in an error."""
    for drop, kept in (("true", False), ("false", True)):
        program = ptir.read(f"""func @f(%x: tensor<f32, 4>, %i: tensor<si32, 2>, %u: tensor<f32, 2>) -> tensor<f32, 4> {{
  %y = scatter(%x, %i, %u) inserted_window_dims[0] scatter_dims_to_operand_dims[0] reduce[mul] drop[{drop}] -> tensor<f32, 4>
  return %y
}}
""")
        (op,) = program.main.body
        assert op.defn.fails is not None and op.defn.fails(op) is kept


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
def test_of_updates_that_overlap_the_last_in_row_major_order_wins(engine):
    """Also where the window comes first in the updates: element [1, 0] is behind [0, 1], and both belong to place 1."""
    program = ptir.read(
        "func @f(%x: tensor<f32, 4>, %u: tensor<f32, 2x2>) -> tensor<f32, 4> {"
        "  %y = scatter(%x, dense<[[0], [1]]> : tensor<si64, 2x1>, %u) update_window_dims[0] scatter_dims_to_operand_dims[0]"
        " index_vector_dim[1] -> tensor<f32, 4>"
        "  return %y }"
    )
    u = np.array([[10, 11], [20, 21]], np.float32)
    found = ptir.run(program, {"x": np.zeros(4, np.float32), "u": u}, engine=engine)["y"]
    assert found.tolist() == [10, 20, 21, 0]

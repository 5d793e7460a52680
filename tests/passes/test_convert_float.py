"""The pass convert-float: types, constants, signatures, and numbers held to NumPy with a rounding after each op."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.types import TensorType
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_dialect
from ptir_tools.passes import run_pipeline
from ptir_tools.tools import fuzz
from tests.conftest import run_ptir
from tests.models import FOLDER, MODULES, inputs, program, torch

TEXT = """func @f(%x: tensor<f32, 3x4>, %w: tensor<f32, 4x2>) -> (tensor<f32, 3x2>, tensor<f32, 3x4>) {
  %c = constant() value[dense<[1.0, -1.0e9, 0.1, 3.0]>] -> tensor<f32, 4>
  %b = broadcast_to(%c) result_shape[3, 4] -> tensor<f32, 3x4>
  %n = iota() axis[1] -> tensor<f32, 3x4>
  %m = mul(%n, %x) -> tensor<f32, 3x4>
  %a = maximum(%m, %b) -> tensor<f32, 3x4>
  %y = dot_general(%a, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 3x2>
  return %y, %a
}
"""
NUMPY = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


@pytest.mark.parametrize("engine", ["reference", "native"])
@pytest.mark.parametrize("to", ["bf16", "f16"])
def test_every_op_rounds_to_the_new_dtype(to: str, engine: str) -> None:
    p = ptir.optimize(ptir.read(TEXT), f"convert-float{{to={to}}}")
    ptir.verify(p)
    assert [str(v.type) for v in p.main.params] == ["tensor<f32, 3x4>", "tensor<f32, 4x2>"]
    kinds = {op.defn.short: op.result.type.dtype.name for op in p.main.body if isinstance(op.result.type, TensorType)}
    assert kinds["mul"] == kinds["dot_general"] == kinds["constant"] == to and kinds["iota"] == "f32"
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal((4, 2)).astype(np.float32)

    def narrow(v: np.ndarray) -> np.ndarray:
        return v.astype(NUMPY[to]).astype(np.float64)

    c = np.array([1.0, -65504.0 if to == "f16" else -1e9, 0.1, 3.0])
    a = np.maximum(narrow(narrow(np.arange(4.0)) * narrow(x)), narrow(c))
    found = ptir.run(p, {"x": x, "w": w}, engine=engine)
    np.testing.assert_array_equal(found["a"], a.astype(np.float32))
    np.testing.assert_array_equal(found["y"], narrow((a @ narrow(w)).astype(np.float32)))


def test_the_signature_changes_when_asked_and_names_stay() -> None:
    p = ptir.optimize(ptir.read(TEXT), "convert-float{to=bf16,signature=true}")
    ptir.verify(p)
    assert [str(t) for t in p.main.result_types] == ["tensor<bf16, 3x2>", "tensor<bf16, 3x4>"]
    assert {str(v.type.dtype) for v in p.main.params if isinstance(v.type, TensorType)} == {"bf16"}
    back = ptir.optimize(p, "convert-float{to=f32,from=bf16,signature=true}")
    assert [str(t) for t in back.main.result_types] == ["tensor<f32, 3x2>", "tensor<f32, 3x4>"]


@pytest.mark.parametrize("to", ["bf16", "f16"])
@pytest.mark.parametrize("name", sorted(n for n in MODULES if n != "quantized_mlp"))
def test_models_move_by_their_roundoff(name: str, to: str) -> None:
    p = ptir.optimize(program(name), f"convert-float{{to={to}}}")
    ptir.verify(p)
    for key, x in ptir.run(p, inputs(name)).items():
        want = torch(name)[key]
        if want.dtype.kind == "f":
            assert np.abs(x - want).max() <= (2.0**-4 if to == "bf16" else 2.0**-7) * np.abs(want).max()
            assert np.abs(x - want).max() > 1e-5  # it is not f32 that ran


def test_the_command_says_how_far_outputs_moved() -> None:
    found = run_ptir("opt", str(FOLDER / "resnet.ptir"), "-p", "convert-float{to=f16}")
    assert found.status == 0 and "scores: off by" in found.err and "largest value is" in found.err
    assert "tensor<f16" in found.text
    plain = run_ptir("opt", str(FOLDER / "resnet.ptir"))
    assert "off by" not in plain.err


def test_what_has_no_such_dtype_stays_between_casts() -> None:
    p = ptir.read(
        "func @f(%x: tensor<f32, 3>) -> (tensor<cf32, 3>, tensor<si32, 3>) {\n"
        "  %e = exp(%x) -> tensor<f32, 3>\n  %c = complex(%e, %x) -> tensor<cf32, 3>\n"
        "  %b = bitcast(%e) dtype[si32] -> tensor<si32, 3>\n  return %c, %b\n}\n"
    )
    made = ptir.optimize(p, "convert-float{to=f16}")
    ptir.verify(made)
    x = np.array([0.5, 1.0, -2.0], np.float32)
    found = ptir.run(made, {"x": x}, engine="reference")
    e = np.exp(x.astype(np.float64)).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(found["c"], e + 1j * x)
    np.testing.assert_array_equal(found["b"], e.view(np.int32))


@pytest.mark.parametrize("pipeline", ["convert-float", "convert-float{to=f16,signature=true}", "convert-float{from=f64,to=f32}"])
def test_random_programs_verify_after_it(pipeline: str) -> None:
    """Any op and dtype, regions and hints: what cannot change stays between casts. A program whose signature has tuples keeps
    them only when that may change."""
    refused = 0
    for seed in range(60):
        p = load_dialect("ptir").generate(Seeded(seed), size=12)  # type: ignore[misc]
        try:
            made = ptir.optimize(p, pipeline)
        except (ptir.Rejected, ptir.Violation):
            refused += 1
            continue
        ptir.verify(made)
    assert refused < 10


def test_a_tuple_in_a_signature_that_stays_is_refused() -> None:
    text = """program @main (spec_version = ptir.v0.4) {
  func @main(%x: tensor<f32, 4>) -> ((tensor<f32, 2>, tensor<si32, 2>)) {
    %t = top_k(%x) k[2] -> (tensor<f32, 2>, tensor<si32, 2>)
    return %t
  }
}
"""
    found = run_ptir("opt", "-p", "convert-float", stdin=text.encode())
    assert found.status == 1 and "result 0 of @main is a tuple" in found.err and not found.text
    assert run_ptir("opt", "-p", "convert-float{signature=true}", stdin=text.encode()).status == 0


def test_passes_go_on_after_it() -> None:
    """A pass that edits without a rewriter leaves none of an earlier pass behind."""
    for seed in range(20008, 20014):
        made = fuzz.generated("ptir", seed)
        run_pipeline(made, "canonicalize,convert-float,cse,decompose,dce")
        assert verify(made, Diagnostics())


FLOATS = {**NUMPY, "f32": np.float32, "f64": np.float64}


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("source", FLOATS)
def test_finite_constants_stay_finite_wherever_they_are(source: str, to: str) -> None:
    """The ends of one dtype, in a constant, in equal elements and in a pad, are at most the ends of the other one."""
    ends = [float(ml_dtypes.finfo(FLOATS[n]).max) for n in (source, to)]
    text = f"""func @f(%x: tensor<{source}, 2>) -> (tensor<{source}, 4>, tensor<{source}, 2>) {{
      %c = constant() value[dense<[{ends[0]!r}, -inf]>] -> tensor<{source}, 2>
      %s = constant() value[dense<{-ends[0]!r}>] -> tensor<{source}, 2>
      %y = maximum(%x, %c) -> tensor<{source}, 2>
      %z = pad(%y) low[1] high[1] pad_value[{-ends[0]!r}] -> tensor<{source}, 4>
      %w = maximum(%x, %s) -> tensor<{source}, 2>
      return %z, %w
    }}
    """
    p = ptir.optimize(ptir.read(text), f"convert-float{{to={to},from={source},signature=true}}")
    z, w = ptir.run(p, [np.full(2, -np.inf, FLOATS[to])], engine="reference").values()
    most = float(np.asarray(min(ends)).astype(FLOATS[to]))
    assert z.astype(float).tolist() == [-most, most, -np.inf, -most] and w.astype(float).tolist() == [-most, -most]

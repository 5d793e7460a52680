"""What every reader keeps of a text, in each format: the source, the place of each statement, and the names."""

from __future__ import annotations

import re

import pytest

import ptir_tools as ptir
from tests.conftest import TESTDATA

_PTIR = """func @f(%0: tensor<f32, 2x3>, %1: tensor<f32, 2x3>) -> tensor<f32, 3x2> {
  %2 = add(%0, %1) -> tensor<f32, 2x3>
  %3 = transpose(%2) perm[1, 0] -> tensor<f32, 3x2>  // turned
  %4 = mul(%3, %3) -> tensor<f32, 3x2>
  return %4
}
"""
_MIND = """%0 = Input {name=x} : tensor<f32[2, 3]>
%1 = ConstF32 {value=2.0} : tensor<f32[]>
  %2 = Mul (%0, %1) : tensor<f32[2, 3]>   # twice
%3 = Relu (%2) : tensor<f32[2, 3]>
outputs: %3
"""
_MIC = """mic@1
T0 [f32;2,3]
T1 [i64;2]
T2 i32
N0 const.tensor T0
N1 const.tensor T1
  N2 const.i64 3 T2   # used once
N3 mul N1 N2 T0
N4 relu N0 T0
O N4
O N3
"""
_PTO = (TESTDATA / "pto" / "01_vector_add_subview.pto").read_text("utf-8")
TEXTS = {
    "ptir": _PTIR,
    "ptir-dump": ptir.write(ptir.read(_PTIR), "ptir-dump"),
    "ptir-json": ptir.write(ptir.read(_PTIR), "ptir-json"),
    "mind": _MIND,
    "mic": _MIC,
    "tiny": (TESTDATA / "tiny" / "04_gemm_no_permute.json").read_text("utf-8"),
    "pto": _PTO,
    "ptoas": ptir.write(ptir.optimize(ptir.read(_PTO), "pto{target=a3}"), "ptoas"),
}


@pytest.mark.parametrize("form", [form for form in TEXTS if form != "ptoas"])  # where a function is one place
def test_a_program_knows_its_text_and_each_op_its_place_and_name(form: str) -> None:
    """A place has no blanks or comments at its ends, contains what is defined there, and follows the one before."""
    text = TEXTS[form]
    program = ptir.read(text)
    source = program.source
    assert source is not None and source.text == text and program.format == form
    before = 0
    for op in program.main.body:
        span = source.span(op.loc)
        assert span is not None and before <= span.start < span.end <= len(text)
        said = text[span.start : span.end]
        assert said == said.strip() and "//" not in said and "#" not in said.replace("#pto", "")
        for v in op.results:
            assert v.name and (form == "ptir-json" or re.search(rf"(?<!\w)[N%\"]?{re.escape(v.name)}(?!\w)", said)), said
        before = span.end


@pytest.mark.parametrize("form", TEXTS)
def test_a_text_that_is_written_has_the_same_names_when_it_is_read_again(form: str) -> None:
    program = ptir.read(TEXTS[form])
    again = ptir.read(ptir.write(program, form))
    assert [v.name for op in program.main.body for v in op.results] == [v.name for op in again.main.body for v in op.results]
    assert ptir.write(again, form) == ptir.write(program, form)

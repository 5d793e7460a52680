"""A result that is not what the header declares is shown where it is returned, in every format that has such a place."""

import json

import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format

VECTOR = {"Tensor": {"dtype": "F32", "shape": {"dims": [{"Static": 2}]}}}
LONGER = {"Tensor": {"dtype": "F32", "shape": {"dims": [{"Static": 3}]}}}
FUNCTION = {"name": "f", "parameters": [VECTOR], "parameter_ids": [0], "body": [], "hints": []}
JSON = {
    "spec_version": "ptir.v0.4",
    "entry": "f",
    "functions": [{**FUNCTION, "results": [VECTOR, LONGER], "result_ids": [0, 0]}],
    "regions": [],
}

TEXT = """func @f(%x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 3>) {
  %y = neg(%x) -> tensor<f32, 2>
  return %y, %x
}"""
ELEMENT = """func @f(%x: tensor<f32, 2>) -> (tensor<f32, 1>, tensor<f32, 1>) {
  %y = top_k(%x) k[1] -> (tensor<f32, 1>, tensor<si32, 1>)
  return %y[0], %y[1]
}"""
COUNT = """func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {
  return %x, %x
}"""
DUMP = """program @f (spec_version = ptir.v0.4) {
  func @f {
    params:
      %0 : tensor<F32 x 2>
    results:
      %0 : tensor<F32 x 3>
  }
}
"""
PTO = """module {
  func.func @f(%n: index) -> index {
    %c = pto.constant 1 : i32
    return %c : i32
  }
}"""


@pytest.mark.parametrize(
    ("format", "text", "code", "line", "shown"),
    [
        ("ptir", TEXT, "ResultTypeMismatch", 3, "%x"),
        ("ptir", ELEMENT, "ResultTypeMismatch", 3, "%y[1]"),
        ("ptir", COUNT, "ResultTypeMismatch", 2, "%x, %x"),
        ("ptir-dump", DUMP, "ResultTypeMismatch", 6, "%0"),
        ("ptir-json", json.dumps(JSON), "ResultTypeMismatch", 1, "[0, 0]"),
        ("pto", PTO, "TypeMismatch", 4, "%c"),
    ],
)
def test_where_a_wrong_result_is_shown(format: str, text: str, code: str, line: int, shown: str) -> None:
    source = Source("a", text)
    diagnostics = Diagnostics(source)
    program = load_format(format).read(source, diagnostics, Options())
    assert program is not None
    verify(program, diagnostics)
    [found] = diagnostics
    assert found.span is not None
    assert (found.code, source.position(found.span.start)[0], text[slice(*found.span)]) == (code, line, shown)

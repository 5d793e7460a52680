"""The diagnostics of StableHLO programs with one wrong edit: code, underlined text and message."""

from __future__ import annotations

import pytest

from ptir_tools.core.diagnostics import Diagnostic, Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.dialects import reading

PROGRAM = """module {
  func.func @main(%x: tensor<2x4xf32>, %w: tensor<4x3xf32>, %b: tensor<3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %2 = stablehlo.add %0, %1 : tensor<2x3xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %4 = stablehlo.slice %3 [0:3, 0:1] : (tensor<3x2xf32>) -> tensor<3x1xf32>
    %5 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    return %2 : tensor<2x3xf32>
  }
}
"""
# What is replaced, by what; the code, the underlined text, and a part of the message or the help.
EDITS = [
    ("= [1] x [0]", "= [2] x [0]", "InvalidAttributeValue", "2", "`contracting_dims`: 2 is not an axis of a tensor of rank 2"),
    ("= [1] x [0]", "= [1] x [3]", "InvalidAttributeValue", "3", "`contracting_dims`: 3 is not an axis"),
    ("[1] x [0]", "[1] x [0], batching_dims = [1] x [1]", "InvalidAttributeValue", "stablehlo.dot_general", "axis 1"),
    ("contracting_dims", "contracting_dim", "UnknownAttribute", "contracting_dim", "did you mean `contracting_dims`?"),
    ("dims = [1, 0]", "dim = [1, 0]", "UnknownAttribute", "dim", "did you mean `dims`?"),
    ("dims = [1, 0]", "dims = [1]", "InvalidAttributeValue", "[1]", "`dims` has 1 entries for 2 axes"),
    ("[0:3, 0:1]", "[0:3]", "InvalidAttributeValue", "[0:3]", "1 ranges for 2 axes"),
    ("applies stablehlo.add", "applies stablehlo.ad", "UnsupportedStableHLO", "stablehlo.ad", "did you mean `stablehlo.add`?"),
    ("return %2 : tensor<2x3xf32>", "return %2 : tensor<2x3xi1>", "OperandTypeMismatch", "tensor<2x3xi1>", "`%2` is"),
    ("return %2 : tensor<2x3xf32>", "return %2 : tensor<f32>, tensor<f32>", "OperandCountMismatch", "return", "1 operands, 2"),
    ("%x: tensor<2x4xf32>", "%x: tensor<2x4f32>", "UnsupportedStableHLO", "4f32", "`4xf32`"),
    ("-> tensor<2x3xf32> {", "-> tensor<2x3xf32>", "SyntaxError", ">", "after the header of @main"),
]  # fmt: skip


def told(text: str) -> list[Diagnostic]:
    diagnostics = Diagnostics(Source("case.mlir", text))
    assert diagnostics.source is not None
    reading.read(diagnostics.source, diagnostics, Options(), "stablehlo")
    return diagnostics.sorted()


def test_the_program_is_read() -> None:
    assert not told(PROGRAM)


@pytest.mark.parametrize(("old", "new", "code", "underlined", "words"), EDITS)
def test_an_edit_is_told_where_it_is(old: str, new: str, code: str, underlined: str, words: str) -> None:
    text = PROGRAM.replace(old, new, 1)
    first, *_ = told(text)
    assert first.span is not None
    assert (first.code, text[first.span.start : first.span.end]) == (code, underlined)
    assert words in f"{first.message} {first.help}"


def test_statements_with_syntax_errors_do_not_hide_each_other_nor_other_errors() -> None:
    lines = [
        "func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {",
        "  %0 = stablehlo.exponential %x : tensor<2x4xf32",
        "  %1 = stablehlo.add %0, %x : tensor<2x4xf32>",
        "  %2 = stablehlo.transpose %x, dims = [0, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>",
        "  %3 = stablehlo.add(%1, %x : tensor<2x4xf32>",
        "  %4 = stablehlo.multiply %3, %1 : tensor<2x4xf32>",
        "  return %4 : tensor<2x4xf32>",
        "}",
    ]
    found = [(d.code, d.where[1]) for d in told("\n".join(lines))]
    assert found == [("SyntaxError", 2), ("InvalidAttributeValue", 4), ("SyntaxError", 6)]


def test_a_header_with_a_syntax_error_is_told_alone() -> None:
    assert [d.code for d in told(PROGRAM.replace("%w: tensor<4x3xf32>", "%w tensor<4x3xf32>"))] == ["SyntaxError"]

"""What gpt.rs's parser lets through in silence is an error in text PTIR, each with its own help."""

from __future__ import annotations

import pytest

from ptir_tools.core.verify import verify
from tests.ptir.texts import clean, read, write

PAIR, F2 = "(tensor<f32>, tensor<f32>)", "tensor<f32, 2>"
NEG = f"%y = neg(%x) -> {F2}"


def function(*lines: str, params: str = f"%x: {F2}", result: str = F2, after: str = "") -> str:
    return f"func @f({params}) -> {result} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n" + after


QUIRKS = {
    "its name would lose its head": (function(NEG, "return %y").replace("func", "function"), "SyntaxError", "write func"),
    "an index without parentheses": (
        function("%y = neg %t[1] -> tensor<f32>", "return %y", params=f"%t: {PAIR}", result="tensor<f32>"),
        "SyntaxError",
        "write (%t[1])",
    ),
    "a value hides a value": (
        function(NEG, f"%y = exp(%y) -> {F2}", "return %y"),
        "RedefinedValue",
        "give it a name of its own: the first is not hidden",
    ),
    "a value hides a parameter": (
        function(NEG.replace("%y", "%x"), "return %x"),
        "RedefinedValue",
        "give it a name of its own: the first is not hidden",
    ),
    "too few operands": (function(NEG.replace("neg", "add"), "return %y"), "OperandCountMismatch", None),
    "too many operands": (function(f"%y = neg(%x, %x) -> {F2}", "return %y"), "OperandCountMismatch", None),
    "a misspelled attribute": (
        function("%y = reduce_sum(%x) axes[0] keepdim[true] -> tensor<f32, 1>", "return %y", result="tensor<f32, 1>"),
        "UnknownAttribute",
        "did you mean `keepdims`?",
    ),
    "an attribute of another op": (
        function(NEG.replace(" ->", " epsilon[1] ->"), "return %y"),
        "UnknownAttribute",
        "drop epsilon[…]",
    ),
    "the last of two attributes": (
        function("%y = reduce_sum(%x) axes[1] axes[0] -> tensor<f32>", "return %y", result="tensor<f32>"),
        "DuplicateAttribute",
        "keep one of the two",
    ),
    "a statement after return": (function("return %x", NEG), "SyntaxError", "drop it, or move it up"),
    "a second return": (function("return %x", "return %x"), "SyntaxError", "keep one"),
    "no return": (function(NEG), "SyntaxError", "write what it returns"),
    "words after the end": (function("return %x", after="the end\n"), "SyntaxError", "drop it; a comment begins with //"),
    "a statement after the end": (function("return %x", after=NEG), "SyntaxError", "move it above the `return` of one"),
    "a brace too many": (function("return %x", after="}"), "SyntaxError", "drop the brace"),
    "a shape that is not declared": (
        function("%y = broadcast_to(%x) shape[3, 2] -> tensor<f32, 2x2>", "return %y", result="tensor<f32, 2x2>"),
        "ResultTypeMismatch",
        "did you mean `tensor<f32, 3x2>`?",
    ),
    "no result type": (
        function("%y = neg(%x)", "return %y"),
        "SyntaxError",
        "write `-> tensor<f32, 2>`",
    ),
    "a second function": (
        function("return %x", after=function("return %x").replace("@f", "@g")),
        "SyntaxError",
        "wrap the file in program @name { … }",
    ),
    "a semicolon": (function(NEG + ";", "return %y"), "SyntaxError", "drop it"),
}


@pytest.mark.parametrize("name", QUIRKS)
def test_a_quirk_is_one_error_with_its_help(name: str) -> None:
    text, code, help = QUIRKS[name]
    program, diagnostics = read(text)
    if program is not None and not diagnostics.errors:
        verify(program, diagnostics)
    assert [(d.code, d.help) for d in diagnostics] == [(code, help)]


@pytest.mark.parametrize("version", ["0.4", "ptir.v0.4.1", "ptir.v0.3", "v0.4"])
def test_another_version_is_one_error(version: str) -> None:
    _, diagnostics = read(f"program @f (spec_version = {version}) {{\n{function('return %x')}}}\n")
    assert [d.code for d in diagnostics] == ["SyntaxError" if version == "0.4" else "SpecVersionMismatch"]


@pytest.mark.parametrize(
    "text",
    [
        function(NEG.replace("%y", "returned"), "return returned"),  # gpt.rs takes the first line for a return
        function("return %t", params=f"%t: {PAIR}", result=f"({PAIR})"),  # and cannot write a parameter of two elements
        function("return %t[1]", params=f"%t: {PAIR}", result="tensor<f32>"),  # nor return an element
    ],
)
def test_what_it_cannot_say_is_said(text: str) -> None:
    program = clean(text)
    assert clean(write(program)).main.result_types == program.main.result_types

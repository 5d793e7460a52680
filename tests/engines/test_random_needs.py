"""Random inputs that an index is computed from: whatever the arithmetic, the run succeeds."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.engines.inputs import random_inputs

V = "tensor<si64, 4>"
INDICES = {  # an operand that is a number is a constant
    "sum": ["%k = add(%i, 3)"],
    "constants": [f"%c = constant() value[dense<[1, 0, 2, 3]>] -> {V}", "%k = add(%c, %i)"],
    "two sums": ["%s = add(%i, %j)", "%k = add(%s, %j)"],
    "difference": ["%k = sub(%i, 2)"],
    "from the end": ["%k = sub(4, %i)"],
    "difference of inputs": ["%k = sub(%i, %j)"],
    "product": ["%m = mul(%i, 2)", "%k = add(%m, -1)"],
    "product of inputs": ["%k = mul(%i, %j)"],
    "quotient": ["%k = div(%i, 3)"],
    "negation": ["%n = neg(%i)", "%k = add(%n, 4)"],
    "larger": ["%m = maximum(%i, %j)", "%k = minimum(%m, 3)"],
    "clamp": ["%k = clamp(%i, 1, 3)"],
    "joined": [
        "%a = slice(%i) starts[0] sizes[2] -> tensor<si64, 2>", "%b = slice(%j) starts[1] sizes[2] -> tensor<si64, 2>",
        "%k = concat(%a, %b) axis[0]",
    ],
    "looked up": ["%t = take(%i, 1)", "%k = add(%t, 1)"],
    "from the end where negative": [
        "%e = add(%i, 5)", "%f = compare_lt(%i, 0) -> tensor<i1, 4>", "%k = select(%f, %e, %i)",
    ],
    "turned and repeated": [
        "%c = constant() value[dense<[3, 2]>] -> tensor<si64, 2>", f"%t = tile(%c) repeats[2] -> {V}",
        f"%p = stop_gradient(%t) -> {V}", "%k = sub(%i, %p)",
    ],
    "flat": [
        "%r = iota() axis[0] -> tensor<si64, 2>", "%b = mul(%j, 0)", "%in = take(%r, %b)", "%m = mul(%i, 2)", "%k = add(%m, %in)",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", INDICES)
def test_an_index_is_in_range_whatever_it_is_computed_from(name: str) -> None:
    number = re.compile(r"(?<=[(,])( ?)(-?\d+)(?=[,)])")
    lines = [line if "[" in line else number.sub(rf"\1dense<\2> : {V}", line) for line in INDICES[name]]
    lines = [line if "->" in line else f"{line} -> {V}" for line in lines]
    head = "func @f(%x: tensor<f32, 5>, %i: tensor<si64, 4>, %j: tensor<si64, 4>) -> tensor<f32, 4> {"
    tail = ["%y = take(%x, %k) -> tensor<f32, 4>", "return %y", "}", ""]
    program = ptir.read("\n".join([head, *lines, *tail]))
    drawn = set()
    for seed in range(40):
        inputs = random_inputs(program, seed)
        ptir.run(program, inputs, engine="reference")
        drawn |= {int(n) for n in inputs["i"]}
    assert len(drawn) > 1 or name == "product of inputs"  # a need leaves something to draw


def test_an_unsigned_index_is_not_below_zero() -> None:
    text = "func @f(%x: tensor<f32, 5>, %i: tensor<ui8, 4>) -> tensor<f32, 4> {\n  %w = cast(%i) -> tensor<si64, 4>\n"
    text += (
        "  %k = add(%w, dense<2> : tensor<si64, 4>) -> tensor<si64, 4>\n  %y = take(%x, %k) -> tensor<f32, 4>\n  return %y\n}\n"
    )
    program = ptir.read(text)
    for seed in range(20):
        inputs = random_inputs(program, seed)
        assert (inputs["i"] < 3).all() and inputs["i"].dtype == np.uint8

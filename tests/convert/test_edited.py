"""Programs near those that are translated, and near their translations: another number, dtype or operand. A translation of one op
as another one, under a condition that was forgotten, gives other numbers or a program that does not verify."""

from __future__ import annotations

import pytest

import ptir_tools
from ptir_tools.core.diagnostics import Rejected
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, F16, F32, F64, I1, SI32, SI64
from ptir_tools.core.types import TensorType
from ptir_tools.engines.inputs import random_inputs
from tests.convert.test_raised import MIND, TINY
from tests.convert.translations import agree, parse, prove, translated
from tests.rewrite.edited import near

SPELLED = {"tiny": {F16, BF16, F32, SI32, I1}, "mind": {F32, F64, SI32, SI64}}
CASES = {"tiny": TINY, "mind": MIND}
EACH = 2  # programs near each one


def _function(result: str, params: str, *lines: str) -> str:
    text = "".join(f"  {line}\n" for line in (*lines, "return %r"))
    return f"func @f({params}) -> tensor<{result}> {{\n{text}}}\n"


# Several ops that are one operation of MIND under conditions.
JOINED = {
    "mean": _function(
        "f32, 2",
        "%x: tensor<f32, 2x4>",
        "%s = reduce_sum(%x) axes[1] -> tensor<f32, 2>",
        "%r = mul(%s, dense<0.25> : tensor<f32, 2>) -> tensor<f32, 2>",
    ),
    "convolution": _function(
        "f32, 1x5x5x3",
        "%x: tensor<f32, 1x5x5x2>, %w: tensor<f32, 18x3>",
        "%c = extract_patches(%x) window[3, 3] padding[[1, 1], [1, 1]] -> tensor<f32, 1x5x5x18>",
        "%r = dot_general(%c, %w) contract_lhs[3] contract_rhs[0] -> tensor<f32, 1x5x5x3>",
    ),
    "slice with steps": _function(
        "f32, 4",
        "%x: tensor<f32, 7>",
        "%w = pad(%x) low[0] high[1] -> tensor<f32, 8>",
        "%v = reshape(%w) new_shape[4, 2] -> tensor<f32, 4x2>",
        "%k = slice(%v) starts[0, 0] sizes[4, 1] -> tensor<f32, 4x1>",
        "%r = reshape(%k) new_shape[4] -> tensor<f32, 4>",
    ),
}


def _is_spelled(program: Program, target: str) -> bool:
    """Whether an IR has the dtypes of all values."""
    return all(isinstance(v.type, TensorType) and v.type.dtype in SPELLED[target] for v in program.main.values())


def _runs(program: Program) -> bool:
    """Whether it does not fail: an index of an edited program may be out of bounds."""
    try:
        ptir_tools.run(program, random_inputs(program, 0), engine="reference")
    except Rejected:
        return False
    return True


@pytest.mark.parametrize(("target", "name"), [(target, name) for target, cases in CASES.items() for name in cases])
def test_programs_near_a_translated_one_keep_their_numbers(target: str, name: str) -> None:
    program = parse(CASES[target][name][0], "ptir")
    for edited in filter(_runs, near(program, EACH, name)):
        prove(edited, target)
    there = translated(program, target)
    for edited in near(there.program, EACH, name) if there.program is not None else ():
        constants = {p.name: there.constants[p.name].type for p in edited.main.params if p.name in there.constants}
        kept = all(p.type is constants.get(p.name, p.type) for p in edited.main.params)
        if kept and _is_spelled(edited, target) and _runs(edited):
            back = translated(edited, "ptir", constants=there.constants)
            if back.program is not None:
                agree(edited, back.program, there.constants)


@pytest.mark.parametrize("name", JOINED)
def test_programs_near_one_operation_of_mind_keep_their_numbers(name: str) -> None:
    came = [prove(edited, "mind") for edited in near(parse(JOINED[name], "ptir"), 40, name)]
    assert came.count("there and back") > 5

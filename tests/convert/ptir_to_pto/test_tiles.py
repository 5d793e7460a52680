"""PTIR to PTO, one property at a time: operands on either side, how often loops run, and refusals that are reported once."""

import numpy as np
import pytest

from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.engines import RunOptions, run
from ptir_tools.tools.inputs import Inputs
from tests.convert.ptir_to_pto.programs import agree, function, program, reread

SPREAD = {"a number": "", "a row": "64", "a column": "4x1"}


def translated(before: Program) -> Program:
    made = translate(before, "pto", found := Diagnostics(before.source), Options(target="a3"))
    assert made is not None, found.items
    return reread(made)


@pytest.mark.parametrize("kind", SPREAD)
@pytest.mark.parametrize("op", ["add", "mul", "maximum", "minimum"])
def test_what_commutes_takes_what_is_spread_on_either_side(op: str, kind: str) -> None:
    """The tile op that spreads is used on both sides, and the numbers are the same."""

    def tiles(operands: str) -> list[str]:
        small = f"tensor<f32{SPREAD[kind] and ', '}{SPREAD[kind]}>"
        before = function(
            f"%x: tensor<f32, 4x64>, %c: {small}", "tensor<f32, 4x64>",
            "%b = broadcast_to(%c) result_shape[4, 64] -> tensor<f32, 4x64>",
            f"%m = {op}({operands}) -> tensor<f32, 4x64>", returns="%m",
        )  # fmt: skip
        after = translated(before)
        agree(before, after)
        return sorted(o.defn.short for block in after.blocks() for o in block.body if o.defn.short.startswith("tile."))

    assert tiles("%b, %x") == tiles("%x, %b")


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize(("start", "limit"), [(0, 0), (0, 1), (0, 5), (3, 4), (3, 2), (3, 0), (3, -4), (-5, -1), (-1, -5)])
@pytest.mark.parametrize("mode", ["lt", "le", "gt", "ge"])
def test_a_loop_runs_as_often_as_its_numbers_say(mode: str, start: int, limit: int, step: int) -> None:
    """Also where it never runs, because its end is before its start."""
    number, row = "tensor<si32>", "tensor<f32, 1x16>"
    by = step if mode in ("lt", "le") else -step
    before = program(
        f"""func @main(%x: {row}) -> ({row}, {number}) {{
  %w = while(dense<{start}> : {number}, %x) cond_region[^r0] body_region[^r1] -> ({number}, {row})
  return %w[1], %w[0]
}}
region ^r0(%i: {number}, %x: {row}) -> (tensor<i1>, {number}, {row}) {{
  %go = compare_{mode}(%i, dense<{limit}> : {number}) -> tensor<i1>
  return %go, %i, %x
}}
region ^r1(%i: {number}, %x: {row}) -> ({number}, {row}) {{
  %j = add(%i, dense<{by}> : {number}) -> {number}
  %y = add(%x, dense<1.0> : {row}) -> {row}
  return %j, %y
}}
"""
    )
    left, i = 0, start
    while {"lt": i < limit, "le": i <= limit, "gt": i > limit, "ge": i >= limit}[mode]:
        left, i = left + 1, i + by
    after = translated(before)
    given = {**Inputs(random=0).arrays(after), "x": np.zeros((1, 16), np.float32)}
    found = list(run(after, given, RunOptions(engine="reference")).values())
    np.testing.assert_array_equal(found[-2], np.full((1, 16), left, np.float32))
    np.testing.assert_array_equal(found[-1].reshape(()), i)


def test_what_reads_a_refused_value_is_silent() -> None:
    """However far it is read on."""
    found = Diagnostics()
    text = """func @main(%x: tensor<f64, 4>) -> tensor<f64, 4> {
  %a = sort(%x) axis[0] -> tensor<f64, 4>
  %b = exp(%a) -> tensor<f64, 4>
  %c = add(%b, %a) -> tensor<f64, 4>
  return %c
}
"""
    assert translate(program(text), "pto", found, Options()) is None
    assert [d.message for d in found] == ["parameter %x: PTO has no elements of f64"]

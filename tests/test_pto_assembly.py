"""PTO assembly: one instruction a line, and what it cannot say."""

import re

import pytest
from pto_programs import SAMPLES, event, good, module

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto.text.assembly import write

M, T = "pto.memref<32x32xf32>", "tile<32x32xf32>"


def assembled(source):
    program = good(source)
    found = Diagnostics(program.source)
    return "".join(write(program, found, Options())).splitlines(), [d.code for d in found]


def test_instructions():
    source = module(
        f"%a: {M}, %out: {M}, %r: index",
        f"%t, %e = pto.tile.load %a[%c0, 0] {{valid = [%r, 32]}} : {M}, {T}, {event('TLOAD')}",
        "%two = pto.constant 2.0 : f32",
        f"%u = pto.tile.muls %t, %two wait(%e) : {T}, f32",
        f"%m = pto.tile.cmps %u, %two {{cmpMode = #pto.cmp<GT>}} : {T} -> tile<32x32xi8>",
        f"%f = pto.tile.store %u, %out[%c0, %c0] : {M}, {T}, {event('TSTORE_VEC')}",
        f"pto.sync wait(%f) : {event('TSTORE_VEC')}",
        "pto.sync.op #pto.op<TADD>",
    )
    assert assembled(source) == (
        [
            ".arg %a : !pto.memref<32x32xf32>;",
            ".arg %out : !pto.memref<32x32xf32>;",
            ".arg %r : index;",
            ".const %c0 = 0 : index;",
            "%t, %e = tload %a[%c0, 0] {valid = [%r, 32]}"
            " : (!pto.memref<32x32xf32>, index, index) -> (!pto.tile<32x32xf32>, !pto.event);",
            ".const %two = 2.0 : f32;",
            "%u = tmuls %t, %two wait(%e) : (!pto.tile<32x32xf32>, f32) -> !pto.tile<32x32xf32>;",
            "%m = tcmps %u, %two {cmpMode = #pto.cmp<GT>} : (!pto.tile<32x32xf32>, f32) -> !pto.tile<32x32xi8>;",
            "%f = tstore %u, %out[%c0, %c0] : (!pto.tile<32x32xf32>, !pto.memref<32x32xf32>, index, index) -> !pto.event;",
            "tsync wait(%f) : !pto.event;",
            "tsync.op #pto.op<TADD>;",
        ],
        [],
    )


STRAIGHT = ("01_vector_add_subview", "04_matmul_bias_a3", "08_async_pipeline", "09_dynamic_valid", "12_elementwise_chain")


@pytest.mark.parametrize("name", STRAIGHT)
def test_every_op_is_one_line_and_every_name_defined_before_it_is_used(name):
    source = (SAMPLES / f"{name}.pto").read_text()
    main = good(source).main
    lines, found = assembled(source)
    assert not found and len(lines) == len(main.params) + len(main.body)
    known = set()
    for line in lines:
        assert line.endswith(";") and "\n" not in line
        left, equals, right = line.partition(" = ") if not line.startswith(".arg") else (line.split(" : ")[0], "=", "")
        left, right = (left, right) if equals else ("", left)
        assert {*re.findall(r"%[\w.$-]+", right)} <= known, line
        known |= {*re.findall(r"%[\w.$-]+", left)}


def test_blocks_calls_and_results_are_refused_at_once():
    source = """module {
  func.func @g() {
    return
  }
  func.func @f(%n: index) -> index {
    scf.for %i = 0 to %n step 1 {
    }
    func.call @g() : () -> ()
    return %n : index
  }
}
"""
    assert assembled(source) == ([], ["NotTranslatable"] * 4)

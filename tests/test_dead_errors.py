"""Which errors at run time may vanish: those of dead ops, on every engine and after passes, and no other (docs/ptir.md)."""

from __future__ import annotations

import numpy as np
import pytest
from test_rules import read

from ptir_tools.core.diagnostics import Rejected
from ptir_tools.core.ir import clone
from ptir_tools.engines import RunOptions, compare, native, run
from ptir_tools.passes import run_pipeline

GIVEN = {"x": np.arange(4, dtype=np.int32), "i": np.array([0, 9], np.int32)}
HEAD = "func @f(%x: tensor<si32, 4>, %i: tensor<si32, 2>) -> tensor<si32, {}> {{\n"
DIV = "  %d = div(%x, %x) -> tensor<si32, 4>\n"
TAKE = "  %d = take(%x, %i) -> tensor<si32, 2>\n"
ZERO = "  %z = broadcast_to(dense<0> : tensor<si32>) result_shape[4] -> tensor<si32, 4>\n"
DEAD = {
    "div": HEAD.format(4) + DIV + "  return %x\n}\n",
    "take": HEAD.format(4) + TAKE + "  return %x\n}\n",
    "what a dead op reads": HEAD.format(4) + DIV + "  %n = neg(%d) -> tensor<si32, 4>\n  return %x\n}\n",
}
LIVE = {
    "div": HEAD.format(4) + DIV + "  return %d\n}\n",
    "slice of div": HEAD.format(1) + DIV + "  %s = slice(%d) starts[1] sizes[1] -> tensor<si32, 1>\n  return %s\n}\n",
    "slice of take": HEAD.format(1) + TAKE + "  %s = slice(%d) starts[0] sizes[1] -> tensor<si32, 1>\n  return %s\n}\n",
    "slice of a chain": HEAD.format(1)
    + DIV
    + "  %n = neg(%d) -> tensor<si32, 4>\n  %s = slice(%n) starts[1] sizes[1] -> tensor<si32, 1>\n  return %s\n}\n",
    "slice of reshape": HEAD.format("1x1")
    + DIV
    + "  %r = reshape(%d) new_shape[4, 1] -> tensor<si32, 4x1>\n"
    + "  %s = slice(%r) starts[1, 0] sizes[1, 1] -> tensor<si32, 1x1>\n  return %s\n}\n",
    "times zero": HEAD.format(4) + DIV + ZERO + "  %m = mul(%d, %z) -> tensor<si32, 4>\n  return %m\n}\n",
    "minus itself": HEAD.format(4) + DIV + "  %m = sub(%d, %d) -> tensor<si32, 4>\n  return %m\n}\n",
    "slice of concat": HEAD.format(4)
    + DIV
    + "  %c = concat(%d, %x) axis[0] -> tensor<si32, 8>\n"
    + "  %s = slice(%c) starts[4] sizes[4] -> tensor<si32, 4>\n  return %s\n}\n",
    "select of one": HEAD.format(4)
    + DIV
    + "  %t = broadcast_to(dense<true> : tensor<i1>) result_shape[4] -> tensor<i1, 4>\n"
    + "  %s = select(%t, %x, %d) -> tensor<si32, 4>\n  return %s\n}\n",
}
LIVE |= {
    "fold of select": HEAD.format(4)
    + DIV
    + "  %t = constant() value[dense<true>] -> tensor<i1, 4>\n"
    + "  %s = select(%t, %x, %d) -> tensor<si32, 4>\n  return %s\n}\n",
    "compared with itself": HEAD.format(4).replace("-> tensor<si32, 4>", "-> tensor<i1, 4>")
    + DIV
    + "  %n = neg(%d) -> tensor<si32, 4>\n  %c = compare_eq(%n, %n) -> tensor<i1, 4>\n  return %c\n}\n",
    "overwritten": HEAD.format(4)
    + DIV
    + "  %z = constant() value[dense<0>] -> tensor<si32, 1>\n"
    + "  %u = dynamic_update_slice(%d, %x, %z) sizes[4] -> tensor<si32, 4>\n  return %u\n}\n",
    "no elements of it": HEAD.format(0) + DIV + "  %s = slice(%d) starts[1] sizes[0] -> tensor<si32, 0>\n  return %s\n}\n",
    "what a branch that is known does not ask": "program @f (spec_version = ptir.v0.4) {\n"
    + HEAD.format(4)
    + DIV
    + "  %a = reduce_max(%d) axes[0] -> tensor<si32>\n  %p = compare_lt(%a, %a) -> tensor<i1>\n"
    + "  %c = cond(%p, %x) true_region[^r] false_region[^r] -> tensor<si32, 4>\n  return %c\n}\n"
    + "region ^r(%v: tensor<si32, 4>) -> tensor<si32, 4> {\n  %n = neg(%v) -> tensor<si32, 4>\n  return %n\n}\n}\n",
}
USED = [e for e in ("reference", "numpy", "native") if e != "native" or native.available()]


@pytest.mark.parametrize("engine", USED)
@pytest.mark.parametrize("title", DEAD)
def test_the_error_of_a_dead_op_vanishes(title: str, engine: str) -> None:
    for pipeline in ("dce", "canonicalize,cse,dce"):
        program = read(DEAD[title])
        after = clone(program)
        run_pipeline(after, pipeline)
        for p in (program, after):
            (found,) = run(p, GIVEN, RunOptions(engine=engine)).values()
            np.testing.assert_array_equal(found, GIVEN["x"])


@pytest.mark.parametrize("engine", USED)
@pytest.mark.parametrize("title", LIVE)
def test_the_error_of_a_live_op_stays(title: str, engine: str) -> None:
    program = read(LIVE[title])
    after = clone(program)
    run_pipeline(after, "canonicalize,cse,dce")
    for p in (program, after):
        with pytest.raises(Rejected):
            run(p, GIVEN, RunOptions(engine=engine))


@pytest.mark.parametrize("title", DEAD)
def test_a_comparison_leaves_dead_ops_out_as_a_run_does(title: str) -> None:
    program = read(DEAD[title])
    expected, _ = compare.reference_outputs(program, GIVEN, RunOptions())
    np.testing.assert_array_equal(*expected.values(), GIVEN["x"])

"""Rules on operands that are no values (inline literals of several elements, elements of tuples), and on users that refuse."""

from __future__ import annotations

import pytest

import ptir_tools
from ptir_tools.engines import compare
from ptir_tools.passes import PassContext, run_pipeline
from tests.rewrite.test_rules import read

LITERAL = "dense<[[1.0, 3.5], [0.25, -2.0]]> : tensor<f32, 2x2>"
MOVED = {
    "reshape": "%m = reshape(%x) new_shape[2, 2] -> tensor<f32, 2x2>",
    "transpose": "%y = reshape(%x) new_shape[2, 2] -> tensor<f32, 2x2>\n  %m = transpose(%y) perm[1, 0] -> tensor<f32, 2x2>",
    "broadcast_to": "%y = slice(%x) starts[1] sizes[2] -> tensor<f32, 2>\n  "
    "%m = broadcast_to(%y) result_shape[2, 2] -> tensor<f32, 2x2>",
}


@pytest.mark.parametrize("other", [LITERAL, "%t[0]"])
@pytest.mark.parametrize("moved", MOVED)
@pytest.mark.parametrize("op", ["sub({}, {})", "maximum({1}, {0})", "clamp({0}, {0}, {1})"])
def test_elementwise_ops_on_what_is_moved_and_what_is_not(op: str, moved: str, other: str) -> None:
    text = f"""func @main(%x: tensor<f32, 4>, %z: tensor<f32, 2x2>) -> tensor<f32, 2x2> {{
  {MOVED[moved]}
  %t = top_k(%z) k[2] -> (tensor<f32, 2x2>, tensor<si32, 2x2>)
  %r = {op.format("%m", other)} -> tensor<f32, 2x2>
  return %r
}}
"""
    before = ptir_tools.read(text)
    assert not compare.check(before, ptir_tools.optimize(before)).diverged


REFUSED = """program @main (spec_version = ptir.v0.4) {
  func @main(%x: tensor<si32>, %xs: tensor<f32, 1x3>, %e: tensor<f32, 0x3>, %p: tensor<i1>) -> (tensor<si32>, tensor<si32>) {
    %z = constant() value[dense<0>] -> tensor<si32>
    LINE
    %d = div(%x, DIVISOR) -> tensor<si32>
    return %d, %x
  }
  region ^no(%v0: tensor<si32>, %v1: tensor<si32>) -> (tensor<i1>, tensor<si32>, tensor<si32>) {
    %f = constant() value[dense<false>] -> tensor<i1>
    return %f, %v0, %v1
  }
  region ^body(%v0: tensor<si32>, %v1: tensor<si32>) -> (tensor<si32>, tensor<si32>) {
    %n = neg(%v1) -> tensor<si32>
    return %v0, %n
  }
  region ^same(%v0: tensor<si32>, %v1: tensor<si32>) -> (tensor<si32>, tensor<si32>) {
    return %v0, %v1
  }
  region ^zero(%v0: tensor<si32>) -> tensor<si32> {
    %k = constant() value[dense<0>] -> tensor<si32>
    return %k
  }
  region ^step(%v0: tensor<si32>, %v1: tensor<f32, 3>) -> (tensor<si32>, tensor<f32, 3>) {
    %k = constant() value[dense<0>] -> tensor<si32>
    return %k, %v1
  }
}
"""
PAIR = "(tensor<si32>, tensor<si32>)"
SCAN = "body_region[^step] carry_count[1] scan_output_count[1] -> (tensor<si32>, tensor<f32, {}x3>)"


@pytest.mark.parametrize(
    ("line", "divisor"),
    [
        ("%w = cond(%p, %x) true_region[^zero] false_region[^zero] -> tensor<si32>", "%w"),
        (f"%w = cond(%p, %z, %x) true_region[^same] false_region[^body] -> {PAIR}", "%w[0]"),
        (f"%w = cond(%p, %z, %x) true_region[^body] false_region[^body] -> {PAIR}", "%w[0]"),
        (f"%w = while(%z, %x) cond_region[^no] body_region[^body] -> {PAIR}", "%w[0]"),
        (f"%w = scan(%z, %xs) {SCAN.format(1)}", "%w[0]"),
        (f"%w = scan(%z, %e) {SCAN.format(0)}", "%w[0]"),
    ],
)
def test_what_fails_at_run_time_is_not_made_a_program_that_is_refused(line: str, divisor: str) -> None:
    program = read(REFUSED.replace("LINE", line.replace("; ", "\n")).replace("DIVISOR", divisor))
    run_pipeline(program, "canonicalize,cse,dce", PassContext(expensive_checks=True))
    assert "div" in [op.defn.short for op in program.main.body]


def test_a_row_of_one_is_no_zero_where_that_is_refused() -> None:
    program = read(
        """func @f(%x: tensor<si32, 1>) -> tensor<si32, 1> {
          %i = iota() axis[0] -> tensor<si32, 1>
          %d = div(%x, %i) -> tensor<si32, 1>
          return %d
        }"""
    )
    run_pipeline(program, "canonicalize", PassContext(expensive_checks=True))
    assert [op.defn.short for op in program.main.body] == ["iota", "div"]

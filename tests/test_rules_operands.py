"""Rules on operands that are no values: inline literals of several elements, elements of tuples."""

from __future__ import annotations

import pytest

import ptir_tools
from ptir_tools.engines import compare

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

"""What was translated comes back as itself: the ops of the canonical program, before and after."""

from __future__ import annotations

from collections import Counter

import pytest

from ptir_tools.core.dialect import Program
from ptir_tools.passes import run_pipeline
from tests.convert.translations import agree, parse, translated

CASES = {
    "matmul": ("mind", "MatMul", ("f32[2, 3, 4]", "f32[2, 4, 5]"), ""),
    "matmul of one batch": ("mind", "MatMul", ("f32[6, 3, 4]", "f32[4, 5]"), ""),
    "dot of vectors": ("mind", "Dot", ("f32[7]", "f32[7]"), ""),
    "dot of a row": ("mind", "Dot", ("f32[7]", "f32[7, 2]"), ""),
    "mean": ("mind", "Mean", ("f32[3, 4]",), "{axes=[1], keepdims=true}"),
    "index": ("mind", "Index", ("f32[3, 4]",), "{indices=[1, 2]}"),
    "exp": ("mind", "Exp", ("f32[3, 4]",), ""),
    "conv": ("mind", "Conv2d", ("f32[1, 5, 6, 2]", "f32[3, 2, 2, 4]"), "{padding=Same, strides=[2, 1]}"),
    "conv of integers": ("mind", "Conv2d", ("i32[2, 5, 6, 2]", "i32[3, 2, 2, 4]"),
                         "{padding=Custom([[1, 0], [0, 2]]), strides=[1, 1]}"),
}  # fmt: skip


def module(op: str, types: tuple[str, ...], attrs: str) -> str:
    """The module of one instruction on inputs of these types."""
    inputs = "".join(f"%{i} = Input {{name=x{i}}} : tensor<{t}>\n" for i, t in enumerate(types))
    return f"{inputs}%r = {op} ({', '.join(f'%{i}' for i in range(len(types)))}) {attrs}\noutputs: %r\n"


PTIR = {
    "softmax": """func @f(%x: tensor<f32, 2x3>) -> tensor<f32, 2x3> {
  %m = reduce_max(%x) axes[1] keepdims[true] -> tensor<f32, 2x1>
  %b = broadcast_to(%m) result_shape[2, 3] -> tensor<f32, 2x3>
  %s = sub(%x, %b) -> tensor<f32, 2x3>
  %e = exp(%s) -> tensor<f32, 2x3>
  %t = reduce_sum(%e) axes[1] keepdims[true] -> tensor<f32, 2x1>
  %u = broadcast_to(%t) result_shape[2, 3] -> tensor<f32, 2x3>
  %r = div(%e, %u) -> tensor<f32, 2x3>
  return %r
}
""",
    "narrow contraction": """func @f(%x: tensor<bf16, 3x4x2>, %y: tensor<bf16, 3x5x4>) -> tensor<bf16, 3x2x5> {
  %r = dot_general(%x, %y) batch_lhs[0] batch_rhs[0] contract_lhs[1] contract_rhs[2] -> tensor<bf16, 3x2x5>
  return %r
}
""",
    "pooling": """func @f(%x: tensor<f32, 1x6x6x2>) -> tensor<f32, 1x3x3x2> {
  %r = reduce_window(%x) window_dims[1, 3, 3, 1] strides[1, 2, 2, 1] padding[[0, 0], [1, 0], [0, 1], [0, 0]] \
base_dilation[1, 1, 1, 1] window_dilation[1, 1, 1, 1] reduce[max] -> tensor<f32, 1x3x3x2>
  return %r
}
""",
    "patches": """func @f(%x: tensor<f16, 2x5x6x3>) -> tensor<f16, 2x3x2x18> {
  %r = extract_patches(%x) window[3, 2] strides[2, 3] padding[[1, 1], [0, 1]] pad_value[2.0] -> tensor<f16, 2x3x2x18>
  return %r
}
""",
    "clamp": """func @f(%x: tensor<f32, 2x3>, %y: tensor<f32, 2x3>, %z: tensor<f32, 2x3>) -> tensor<f32, 2x3> {
  %r = clamp(%x, %y, %z) -> tensor<f32, 2x3>
  return %r
}
""",
    "concat": """func @f(%x: tensor<f32, 2x3>, %y: tensor<f32, 2x4>) -> tensor<f32, 2x10> {
  %r = concat(%x, %y, %x) axis[1] -> tensor<f32, 2x10>
  return %r
}
""",
}


def ops(program: Program) -> Counter[str]:
    """The ops of its canonical form. This changes `program`."""
    run_pipeline(program, "canonicalize")
    return Counter(op.defn.short for op in program.main.body)


def comes_back(source: str, ir: str, target: str) -> None:
    """The translation of a program and its translation back have equal results, and in the end it has its own ops."""
    before = parse(source, ir)
    there = translated(before, target)
    assert there.program is not None, there.errors
    agree(before, there.program, there.constants)
    run_pipeline(there.program, "canonicalize")
    agree(before, there.program, there.constants)
    back = translated(there.program, ir, constants=there.constants)
    assert back.program is not None, back.errors
    agree(before, back.program, back.constants)
    assert ops(back.program) == ops(before)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", ["tiny", "ptir"])
def test_mind(name: str, target: str) -> None:
    ir, *instruction = CASES[name]
    comes_back(module(*instruction), ir, target)


@pytest.mark.parametrize("name", PTIR)
def test_ptir(name: str) -> None:
    comes_back(PTIR[name], "ptir", "tiny")


@pytest.mark.parametrize("name", ["narrow contraction"])
def test_narrow_products_that_are_rounded_stay(name: str) -> None:
    """A product of fp16 in fp16 is rounded before it is summed: no contraction says that."""
    graph = """{"uops": [{"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp16", "shape": [3, 4]}},
      {"id": "e", "uop": "EXPAND", "src": ["x"], "arg": {"result_shape": [5, 3, 4]}},
      {"id": "y", "uop": "INPUT", "arg": {"tensor_id": "y", "dtype": "fp16", "shape": [5, 3, 4]}},
      {"id": "m", "uop": "MUL", "src": ["e", "y"]},
      {"id": "r", "uop": "REDUCE", "src": ["m"], "arg": {"op": "SUM", "axes": [2], "dtype": "fp32"}}]}"""
    after = translated(parse(graph, "tiny"), "ptir").program
    assert after is not None
    assert "dot_general" not in {op.defn.short for op in after.main.body}

"""Tiny to PTIR and PTIR to Tiny: each row of the legality tables, on both sides of its line (see `legality_rows`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptir_tools import run
from ptir_tools.core.arrays import from_literal
from tests.convert.legality_rows import CHOICES, COND, NOWHERE, SCAN, F, Row, check_row, ids, ptir
from tests.convert.translations import agree, parse, text, translated
from tests.tiny.graphs import graph, node, source

X, Y = source([3, 4]), source([3, 4], id="z")
B = source([3, 4], "bool", "b")
I = source([3, 4], "i32")  # noqa: E741
N = source(["N", 4])


def one(uop: str, *src: object, inputs: tuple = (X,), **arg: object) -> str:
    """A graph of these inputs and one node, y."""
    return graph(*inputs, node(uop, *src, **arg))


def view(*entries: object, shape: list, guard: list | None = None, x: dict = X) -> str:
    return one("VIEW", inputs=(x,), result_shape=shape, index_map={"map": list(entries)} | ({"guard": guard} if guard else {}))


def take(indices: Any, rows: int) -> str:
    """A function that takes rows by constant indices."""
    extents = [str(n) for n in np.shape(indices)]
    typed, result = ", ".join(["si32", *(["x".join(extents)] if extents else [])]), "x".join([*extents, "3"])
    more = f"%i = constant() value[dense<{indices}>] -> tensor<{typed}>\n  "
    return ptir("take(%x, %i)", f"f32, {result}", f"f32, {rows}x3", more=more)


SUMS = [("=", f"REDUCE {op}", one("REDUCE", op=op, axes=[1], dtype="fp32"), None) for op in ("SUM", "MAX", "MIN")]
TINY_TO_PTIR: list[Row] = [
    ("=", "INPUT", graph(source(["N"]), node("NEG")), None),
    ("=", "RESHAPE", one("RESHAPE", result_shape=[2, 6]), None),
    ("Y", "RESHAPE to an expression", one("RESHAPE", inputs=(N,), result_shape=["4*N"]), None),
    ("=", "PERMUTE", one("PERMUTE", perm=[1, 0]), None),
    ("=", "EXPAND", one("EXPAND", result_shape=[2, 3, 4], broadcast_dimensions=[1, 2]), None),
    ("Y", "EXPAND between axes", one("EXPAND", result_shape=[3, 2, 4], broadcast_dimensions=[0, 2]), None),
    ("=", "PAD", one("PAD", pad=[[1, 0], [0, 2]], value=-0.5), one("PAD", pad=[["p", 0], [0, 0]])),
    ("Y", "PAD of a symbol", one("PAD", inputs=(N,), pad=[[1, 1], [0, 0]]), None),
    ("=", "SHRINK", one("SHRINK", lo=[0, 1], hi=[3, 3]), one("SHRINK", inputs=(N,), lo=[0, 0], hi=["K", 4])),
    ("Y", "SHRINK by a step", one("SHRINK", lo=[0, 1], hi=[3, 4], step=[2, 2]), None),
    ("Y", "SHRINK of a whole symbol by a step", one("SHRINK", inputs=(N,), lo=[0, 0], hi=["N", 4], step=[3, 2]), None),
    ("Y", "SHRINK that keeps a symbol whole", one("SHRINK", inputs=(N,), lo=[0, 1], hi=["N", 3]), None),
    ("Y", "SHRINK of a symbol", one("SHRINK", inputs=(N,), lo=[1, 0], hi=["N", 4]), None),
    *(("=", uop, one(uop), None) for uop in ("NEG", "RSQRT")),
    ("=", "CAST", one("CAST", to="fp16"), None),
    *(("=", uop, one(uop, "x", "z", inputs=(X, Y)), None) for uop in ("ADD", "SUB", "MUL", "FDIV", "MAX", "MIN")),
    ("=", "WHERE", one("WHERE", "b", "x", "z", inputs=(X, Y, B)), None),
    *SUMS,
    ("Y", "REDUCE of narrower floats", one("REDUCE", inputs=(source([3, 4], "bf16"),), op="SUM", axes=[0], dtype="fp32"), None),
    ("Y", "REDUCE to narrower floats", one("REDUCE", op="MAX", axes=[0], dtype="fp16"), None),
    ("Y", "REDUCE to i32", one("REDUCE", op="SUM", axes=[0], dtype="i32"), None),
    ("Y", "REDUCE from init", one("REDUCE", op="SUM", axes=[0, 1], dtype="fp32", init=3), None),
    ("Y", "REDUCE over no axes", one("REDUCE", op="SUM", axes=[], dtype="fp16"), None),
    ("Y", "an immediate", one("MUL", "x", 0.5), None),
    ("Y", "RELU", one("RELU"), None),
    ("C", "EXP2", one("EXP2"), None),
    ("C", "EXP2 as e to the power", graph(X, node("MUL", "x", 1.4426950408889634, id="m"), node("EXP2", "m")), None),
    ("=", "FLIP of the first axis", one("FLIP", axes=[0]), None),
    ("Y", "FLIP", one("FLIP", axes=[-1]), None),
    ("Y", "FLIP of a symbol", one("FLIP", inputs=(N,), axes=[0]), None),
    ("Y", "FLIP of a whole symbol's neighbor", one("FLIP", inputs=(N,), axes=[1]), None),
    ("Y", "VIEW by axes", view("i1", "3-i0", shape=[4, 3]), view("i0", "s*i1", shape=[3, 4])),
    ("Y", "VIEW from the flat source", view("i0", "i0", shape=[3]), view("i0", "i0//2", shape=["K-1", 4], x=N)),
    ("Y", "VIEW of symbols", view("i0", "i1//2", shape=["N", 4], x=N), None),
    ("Y", "VIEW with a guard", view("i0-1", "i1", shape=[5, 4], guard=["i0>=1", "i0<4"]), None),
    ("Y", "POOL", one("POOL", kernel=[2], stride=[2]), one("POOL", kernel=["K"])),
    ("Y", "a symbol", one("NEG", inputs=(N,)), None),
    ("Y", "an expression", one("NEG", inputs=(source(["H*D", "Cout//G"]),)), None),
]  # fmt: skip


BACK = [
    one("EXP2"), one("EXP2", inputs=(source([3, 4], "fp16"),)), one("RELU"),
    *(one("REDUCE", op=op, axes=[0], dtype="fp32", init=2.5) for op in ("SUM", "MAX", "MIN")),
    one("REDUCE", inputs=(source([3, 4], "bf16"),), op="SUM", axes=[1], dtype="bf16", init=0.125),
    one("REDUCE", inputs=(source([3, 4], "bf16"),), op="SUM", axes=[1], dtype="fp32", init=0.125),
    one("REDUCE", inputs=(I,), op="SUM", axes=[0, 1], dtype="i32", init=-7),
]  # fmt: skip


@pytest.mark.parametrize("before", BACK)
def test_what_was_translated_comes_back(before: str) -> None:
    """Nodes that are several ops of PTIR are one node again."""
    there = translated(parse(before, "tiny"), "ptir")
    assert there.program is not None, there.errors
    back = translated(there.program, "tiny", pool=False)
    assert back.program is not None and text(back.program) == text(parse(before, "tiny"))


def test_a_table_of_equal_numbers_is_carried_whole() -> None:
    """Where the dtype is carried as another one, the table stays one number for all."""
    module = "%0 = ConstTensor {dtype=i64, shape=(2, 3), value=[[7, 7, 7], [7, 7, 7]]} : tensor<i64[2, 3]>\noutputs: %0\n"
    there = translated(parse(module, "mind"), "tiny")
    assert there.program is not None, there.errors
    agree(parse(module, "mind"), there.program, there.constants)


def test_ranges_are_known_behind_many_ops() -> None:
    chain = "".join(f"  %a{i + 1} = neg(%a{i}) -> tensor<si32, 4>\n" for i in range(3000))
    end = "  %c = cast(%a3000) -> tensor<si64, 4>\n  return %c\n}\n"
    module = f"func @main(%a0: tensor<si32, 4>) -> tensor<si64, 4> {{\n{chain}{end}"
    there = translated(parse(module, "ptir"), "tiny")
    assert there.program is not None, there.errors
    wide = "".join(f"  %i{i + 1} = reshape(%i{i}) new_shape[4] -> tensor<si64, 4>\n" for i in range(3000))
    end = "  %y = take(%x, %i3000) -> tensor<f32, 4>\n  return %y\n}\n"
    module = f"func @main(%x: tensor<f32, 5>, %i0: tensor<si64, 4>) -> tensor<f32, 4> {{\n{wide}{end}"
    there = translated(parse(module, "ptir"), "tiny")
    assert there.program is not None, there.errors


def test_the_op_that_alone_defines_a_symbol_is_kept() -> None:
    module = """func @main(%x: tensor<si32, 2x?B>) -> (tensor<si32, 2x?B>, tensor<si32, 2x?D>) {
      %v = pad(%x) low[0, 2] high[0, 0] -> tensor<si32, 2x?D>
      %y = broadcast_to(dense<7> : tensor<si32>) result_shape[2, ?D] -> tensor<si32, 2x?D>
      return %x, %y
    }"""
    there = translated(parse(module, "ptir"), "tiny")
    assert there.program is not None, there.errors
    agree(parse(module, "ptir"), there.program, there.constants)
    given = {"x": np.zeros((2, 3), np.int32), **{name: from_literal(c) for name, c in there.constants.items()}}
    assert [r.shape for r in run(there.program, given).values()] == [(2, 3), (2, 5)]


@pytest.mark.parametrize("row", TINY_TO_PTIR, ids=ids(TINY_TO_PTIR))
def test_tiny_to_ptir(row: Row) -> None:
    check_row(row, "tiny", "ptir")


BOUNDED = (
    "%k = iota() axis[0] -> tensor<si64, 3>\n  %b = broadcast_to(dense<{}> : tensor<si64>) result_shape[3] -> tensor<si64, 3>\n  "
)
# What si64 may be without being i32: indices that fail where they are out of bounds, and what its ops keep small.
WIDE: list[tuple[str, str, str, tuple[str, ...], str, str | None]] = [
    ("indices", "take(%x, %i)", "f32, 6x3", ("f32, 5x3", "si64, 2x3"), "%i = reshape(%y) new_shape[6] -> tensor<si64, 6>\n  ",
     ptir("take(%x, %i)", "f32, 6x3", "f32, 5x3", "si64, 6", more="%i = add(%y, %y) -> tensor<si64, 6>\n  ")),
    ("places to scatter to", "scatter_reduce(%x, %y, %z) axis[0] reduce[max]", "f32, 4x3",
     ("f32, 4x3", "si64, 2x3", "f32, 2x3"), "",
     ptir("dynamic_slice(%x, %y) sizes[2]", "f32, 2", "f32, 5", "si64, 1")),
    ("places", "argmax(%x) axis[1] output_dtype[si64]", "si64, 2", (F,), "", None),
    ("counted", "mul(%k, %b)", "si64, 3", (F,), BOUNDED.format((1 << 30) - 1),
     ptir("mul(%k, %b)", "si64, 3", F, more=BOUNDED.format(1 << 30))),
    ("remainders", "mod(%c, %b)", "si64, 3", ("ui8, 3",), "%c = cast(%x) -> tensor<si64, 3>\n  " + BOUNDED.format(-7), None),
    ("sums", "reduce_sum(%c) axes[0, 1]", "si64", ("ui8, 2x3",), "%c = cast(%x) -> tensor<si64, 2x3>\n  ",
     ptir("reduce_sum(%x) axes[0] accum_dtype[si64] out_dtype[si64]", "si64", "si32, 3")),
    ("of another function", "cast(%c)", "f32, 3", ("ui16, 3",), "%c = cast(%x) -> tensor<ui64, 3>\n  ",
     ptir("cast(%x)", "si64, 3", "f32, 3")),
]  # fmt: skip


TYPES = ("f32", "f16", "bf16", "si32")
OUT = "axes[1] accum_dtype[f32] out_dtype[f32]"
POOL = "window_dims[1, 2] strides[1, 2] padding[[0, 0], [1, 1]] base_dilation[1, 1] window_dilation[1, 2]"
CONSTANT = ptir("constant() value[dense<[1.0, 2.0]>]", "f32, 2")
TANH_2 = ptir("tanh(%k)", more="%k = constant() value[dense<2.0>] -> tensor<f32, 2x3>\n  ")
PTIR_TO_TINY: list[Row] = [
    *(("=", f"neg {d}", ptir("neg(%x)", f"{d}, 4", f"{d}, 4"), None) for d in TYPES),
    ("=", "rsqrt", ptir("rsqrt(%x)"), ptir("rsqrt(%x)", "f64, 2", "f64, 2")),
    ("Y", "reciprocal", ptir("reciprocal(%x)"), ptir("reciprocal(%x)", "f64, 2", "f64, 2")),
    *(("=", op, ptir(f"{op}(%x, %y)", F, F, F), ptir(f"{op}(%x, %y)", *["si64, 2"] * 3))
      for op in ("add", "sub", "mul", "maximum", "minimum")),
    ("=", "div", ptir("div(%x, %y)", F, F, F), ptir("div(%x, %y)", *["si64, 2"] * 3)),
    *(("C", f"{op} of {d}", ptir(f"{op}(%x, %y)", *[f"{d}, 2x3"] * 3), ptir(f"{op}(%x, %y)", *["f64, 2"] * 3))
      for op in ("div", "rem", "mod") for d in ("si32", "si8", "ui16")),
    *(("Y", f"{op} by {n}", ptir(f"{op}(%x, dense<{n}> : tensor<si32, 2x3>)", *["si32, 2x3"] * 2), None)
      for op in ("div", "rem", "mod") for n in (7, -1)),
    ("=", "select", ptir("select(%x, %y, %z)", F, "i1, 2x3", F, F),
     ptir("select(%x, %y, %z)", "si64, 2", "i1, 2", "si64, 2", "si64, 2")),
    *(("=", f"cast to {d}", ptir("cast(%x)", f"{d}, 2x3"), None) for d in ("f16", "bf16", "si32", "i1")),
    ("N", "cast to f64", None, ptir("cast(%x)", "f64, 2x3")),
    *(("=", f"reduce_{k}", ptir(f"reduce_{k}(%x) {OUT}", "f32, 2"),
       ptir(f"reduce_{k}(%x) axes[1] accum_dtype[f64]", "f32, 2")) for k in ("sum", "max", "min")),
    ("Y", "reduce_sum that keeps", ptir("reduce_sum(%x) axes[0] keepdims[true]", "f32, 1x3"), None),
    ("Y", "reduce_sum to another dtype", ptir("reduce_sum(%x) axes[0] out_dtype[f16]", "f16, 3"), None),
    ("Y", "dot_general", ptir("dot_general(%x, %y) contract_lhs[1] contract_rhs[0]", "f32, 2x4", F, "f32, 3x4"),
     ptir("dot_general(%x, %y) contract_lhs[1] contract_rhs[0] accum_dtype[f64]", "f32, 2x4", F, "f32, 3x4")),
    ("=", "reshape", ptir("reshape(%x) new_shape[3, 2]", "f32, 3x2"), None),
    ("=", "transpose", ptir("transpose(%x) perm[1, 0]", "f32, 3x2"), None),
    ("=", "broadcast_to", ptir("broadcast_to(%x) result_shape[4, 2, 3]", "f32, 4x2x3"), None),
    ("=", "slice", ptir("slice(%x) starts[0, 1] sizes[2, 2]", "f32, 2x2"), None),
    ("Y", "scatter_reduce of no updates",
     ptir("scatter_reduce(%x, %y, %z) axis[0] reduce[replace]", F, F, "si32, 0x3", "f32, 0x3"), None),
    ("=", "pad", ptir("pad(%x) low[1, 0] high[0, 2] pad_value[2.5]", "f32, 3x5"), None),
    ("Y", "pad between elements", ptir("pad(%x) low[0, 1] high[0, 0] interior[1, 2]", "f32, 3x8"), None),
    ("Y", "tile", ptir("tile(%x) repeats[2, 3]", "f32, 4x9"), None),
    ("Y", "clamp", ptir("clamp(%x, %y, %z)", F, F, F, F), ptir("clamp(%x, %y, %z)", *["f64, 2"] * 4)),
    *(("C", f"{op} of si8", ptir(f"{op}(%x, %y)", f"{d}, 5", "si8, 5", "si8, 5"), None)
      for op, d in (("maximum", "si8"), ("compare_lt", "i1"))),
    ("C", "reduce_min of si4 over nothing", ptir("reduce_min(%x) axes[1]", "si4, 2", "si4, 2x0"), None),
    *(("C", f"{op} of si8", ptir(f"{op}(%x, %y)", *["si8, 5"] * 3), None) for op in ("add", "sub", "mul")),
    *(("C", f"wide integers, {name}", ptir(op, result, *types, more=more), refused)
      for name, op, result, types, more, refused in WIDE),
    ("L", "wide integers that may wrap", ptir("add(%x, %x)", "si64, 3", "si64, 3"), None),
    *(("C", f"{op} of si16", ptir(f"{op}(%x)", *["si16, 5"] * 2), None) for op in ("neg", "abs")),
    *(("C", f"cast {a} to {b}", ptir("cast(%x)", f"{b}, 7", f"{a}, 7"), None)
      for a, b in (("f32", "si8"), ("si32", "ui8"), ("si8", "ui8"), ("ui8", "f32"), ("si8", "si32"), ("si4", "si16"))),
    ("C", "dot_general of si8", ptir("dot_general(%x, %y) contract_lhs[1] contract_rhs[0] accum_dtype[si32] out_dtype[si32]",
                                     "si32, 2x4", "si8, 2x3", "si8, 3x4"),
     ptir("dot_general(%x, %y) contract_lhs[1] contract_rhs[0]", "si8, 2x4", "si8, 2x3", "si8, 3x4")),
    ("C", "quantize", ptir("quantize(%x) output_dtype[si8] scales[0.03]", "si8, 2x3"),
     ptir("quantize(%x) output_dtype[si16] scales[0.03]", "si16, 2x3")),
    ("C", "requantize", ptir("requantize(%x) output_dtype[ui8] axis[1] scales[1e-8, 2e-8, 3.0]", "ui8, 2x3", "si32, 2x3"), None),
    ("C", "dequantize", ptir("dequantize(%x) axis[1] scales[0.1, 0.2, 0.3] zero_points[1, 2, 3]", "f32, 2x3", "si8, 2x3"), None),
    ("Y", "abs", ptir("abs(%x)"), None),
    ("Y", "stop_gradient", ptir("neg(%s)", more="%s = stop_gradient(%x) -> tensor<f32, 2x3>\n  "), None),
    ("Y", "layer_norm", ptir("layer_norm(%x, %y, %y) epsilon[1e-05]", F, F, "f32, 3"),
     ptir("layer_norm(%x, %y, %y) epsilon[1e-05]", "f64, 2x3", "f64, 2x3", "f64, 3")),
    *(("Y", f"reduce_window {k}", ptir(f"reduce_window(%x) {POOL} reduce[{k}]", "f32, 2x2"),
       ptir(f"reduce_window(%x) {POOL} reduce[{k}] accum_dtype[f64]", "f32, 2x2")) for k in ("sum", "max", "min")),
    ("Y", "extract_patches", ptir("extract_patches(%x) window[2, 2] strides[1, 2] padding[[1, 0], [0, 0]] pad_value[7.0]",
                                  "f32, 1x3x1x4", "f32, 1x3x3x1"), None),
    ("Y", "constant of equal elements", ptir("add(%x, dense<2.0> : tensor<f32, 2x3>)"), None),
    ("C", "constant", CONSTANT, CONSTANT),
    ("C", "iota", ptir("iota() axis[1]"), ptir("iota() axis[1]")),
    ("C", "iota of a symbol", ptir("iota() axis[0]", "f32, ?Nx2", "f32, ?N"), None),
    ("C", "an op of constants", TANH_2, TANH_2),
    ("C", "exp", ptir("exp(%x)"), ptir("exp(%x)", "f64, 2", "f64, 2")),
    ("C", "tanh", ptir("tanh(%x)"), ptir("tanh(%x)", "f64, 2", "f64, 2")),
    ("Y", "concat", ptir("concat(%x, %y, %x) axis[0]", "f32, 8x3", F, "f32, 4x3"),
     ptir("concat(%x, %x) axis[0]", "f64, 4", "f64, 2")),
    ("C", "cond", COND("exp"), None),
    ("C", "scan", SCAN(4, "mul"), SCAN(2000, "mul")),
    ("C", "scan of known trips", SCAN(3, "maximum"), SCAN("?N", "mul")),
    *(("C", op, ptir(f"{op}(%x)"), ptir(f"{op}(%x)", "f64, 2", "f64, 2")) for op in ("log", "erf")),
    ("C", "take of rows without order", take([0, 3, 1, 1, 2, 0], 5), None),
    *CHOICES,
    ("Y", "take of every other row", take([1, 3], 5), take([0, 3, 1, 1, 2, 0], 5)),
    ("Y", "take of all rows backwards", take([3, 2, 1, 0], 4), None),
    ("Y", "take of windows", take([[0, 1, 2], [2, 3, 4]], 5), take([[0, 1], [2, 4]], 5)),
    ("Y", "take of repeated rows", take([1, 1, 1, 3, 3, 3], 4), None),
    ("Y", "take of rows of rows", take([0, 1, 4, 5, 0, 1, 4, 5], 6), None),
    ("Y", "take of one row", take(2, 4), None),
    *(("Y", f"compare_{k}", ptir(f"compare_{k}(%x, %y)", "i1, 2x3", F, F), None) for k in ("lt", "le", "gt", "ge", "eq", "ne")),
    *NOWHERE,
]  # fmt: skip


@pytest.mark.parametrize("row", PTIR_TO_TINY, ids=ids(PTIR_TO_TINY))
def test_ptir_to_tiny(row: Row) -> None:
    check_row(row, "ptir", "tiny")

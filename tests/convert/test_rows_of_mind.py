"""MIND to PTIR and PTIR to MIND: each row of the legality tables, on both sides of its line (see `legality_rows`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptir_tools import api
from ptir_tools.core.diagnostics import Severity
from tests.convert.legality_rows import CHOICES, COND, NOWHERE, SCAN, SUM, F, Row, check_row, ids, mind, ptir
from tests.convert.translations import agree, parse, text, translated

X4 = "f32[2, 5, 6, 3]"
MIND_TO_PTIR: list[Row] = [
    ("=", "Input, outputs", "%x = Input {name=x} : tensor<f32[2]>\noutputs: %x\n", None),
    ("=", "ConstI64", mind("ConstI64 {value=-3}"), None),
    ("=", "ConstF32", mind("ConstF32 {value=2.5}"), None),
    ("=", "ConstF64", mind("ConstF64 {value=0.1}"), None),
    ("=", "ConstTensor", mind("ConstTensor {dtype=i32, shape=(2,), value=[1, 2]}"), None),
    ("=", "Add", mind("Add (%x, %y)", "f32[2, 3]", "f32[2, 3]"), None),
    ("=", "Sub", mind("Sub (%x, %y)", "i32[2, 3]", "i32[2, 3]"), None),
    ("=", "Mul", mind("Mul (%x, %y)", "f64[2, 3]", "f64[2, 3]"), None),
    ("=", "Mul that broadcasts", mind("Mul (%x, %y)", "f64[2, 1, 3]", "f64[4, 1]"), None),
    ("=", "Sum", mind("Sum (%x) {axes=[1], keepdims=true}"), None),
    ("Y", "Sum over []", mind("Sum (%x) {axes=[], keepdims=true}"), None),
    ("Y", "Mean", mind("Mean (%x) {axes=[0], keepdims=false}"), None),
    ("Y", "Mean of integers", mind("Mean (%x) {axes=[0], keepdims=false}", "i32[2, 3]"),
     mind("Mean (%y) {axes=[], keepdims=false}", "i32[2]", more="%y = Slice (%x) {ends=[1], starts=[1], steps=[1]}\n")),
    ("=", "Reshape", mind("Reshape (%x) {new_shape=[3, 2]}"), None),
    ("Y", "ExpandDims", mind("ExpandDims (%x) {axes=[0, 3]}"), None),
    ("Y", "Squeeze", mind("Squeeze (%x) {axes=[1]}", "f32[2, 1]"), None),
    ("=", "Transpose", mind("Transpose (%x) {permutation=[1, 0]}"), None),
    ("Y", "Index", mind("Index (%x) {indices=[1, 2]}"), mind("Index (%x) {indices=[1, 3]}")),
    ("=", "Slice, step 1", mind("Slice (%x) {ends=[2, 3], starts=[0, 1], steps=[1, 1]}"), None),
    ("Y", "Slice, step s", mind("Slice (%x) {ends=[2, 3], starts=[0, 0], steps=[1, 2]}"), None),
    ("Y", "Slice to nothing", mind("Slice (%x) {ends=[0, 3], starts=[0, 0], steps=[1, 2]}"), None),
    ("=", "Gather", mind("Gather (%x, %y)", "f32[5, 2]", "i64[2, 3]"),
     mind("Gather (%x, %y)", "f32[5, 2]", more="%y = ConstTensor {dtype=i32, shape=(1,), value=[5]}\n")),
    ("=", "Dot", mind("Dot (%x, %y)", "f32[3, 5]", "f32[5]"), None),
    ("=", "MatMul", mind("MatMul (%x, %y)", "f32[2, 3, 5]", "f32[5, 4]"), None),
    ("Y", "MatMul that broadcasts", mind("MatMul (%x, %y)", "f32[3, 1, 2, 5]", "f32[4, 5, 2]"), None),
    ("=", "Conv2d, Valid", mind("Conv2d (%x, %y) {padding=Valid, strides=[1, 2]}", X4, "f32[3, 3, 3, 4]"), None),
    ("=", "Conv2d, Same", mind("Conv2d (%x, %y) {padding=Same, strides=[2, 1]}", X4, "f32[2, 3, 3, 4]"), None),
    ("=", "Conv2d, Custom", mind("Conv2d (%x, %y) {padding=Custom([[2, 0], [0, 1]]), strides=[1, 1]}", X4, "f32[2, 3, 3, 4]"),
     None),
    ("=", "Relu", mind("Relu (%x)"), None),
    ("=", "Neg", mind("Neg (%x)", "i64[3]"), None),
    ("=", "Exp", mind("Exp (%x)"), None),
    ("=", "Log", mind("Log (%x)"), None),
]  # fmt: skip


@pytest.mark.parametrize("row", MIND_TO_PTIR, ids=ids(MIND_TO_PTIR))
def test_mind_to_ptir(row: Row) -> None:
    check_row(row, "mind", "ptir")


DIV3 = ptir("div(%x, dense<3.0> : tensor<f32, 2x3>)")
HALF = ptir("div(%x, dense<-0.5> : tensor<f32, 2x3>)")
TINY_DOT = "dot_general(%x, %y) contract_lhs[1] contract_rhs[0]"
ZERO = "%k = broadcast_to(dense<0.0> : tensor<f32>) result_shape[2, 3] -> tensor<f32, 2x3>\n  "
RELU = ZERO + "%c = compare_gt(%x, %k) -> tensor<i1, 2x3>\n  "
ONES = "%w = broadcast_to(%y) result_shape[2, 3] -> tensor<f32, 2x3>\n  "

SUMS = """%e = exp(%y) -> tensor<f32, 2x3>
  %s = reduce_sum(%e) axes[1] keepdims[true] -> tensor<f32, 2x1>
  %b = broadcast_to(%s) result_shape[2, 3] -> tensor<f32, 2x3>
  """
POOLED = """window_dims[1, 3, 2, 1] strides[1, 2, 1, 1] padding[[0, 0], [1, 1], [0, 1], [0, 0]] base_dilation[1, 1, 1, 1] \
window_dilation[1, 1, 2, 1]"""


def compared(kind: str) -> str:
    return f"%c = compare_{kind}(%x, %y) -> tensor<i1, 2x3>\n  "


def compared_twice(kind: str, more: str) -> str:
    """Two comparisons of which one chooses, where the other says so."""
    return (
        f"%a = compare_{kind}(%x, %y) -> tensor<i1, 2x3>\n  %b = compare_{more}(%y, %z) -> tensor<i1, 2x3>\n  "
        "%d = compare_ne(%a, %b) -> tensor<i1, 2x3>\n  %c = select(%a, %b, %d) -> tensor<i1, 2x3>\n  "
    )


PLACED = ("gather", "dynamic_")
PTIR_TO_MIND: list[Row] = [
    *(("=", f"constant {d}", ptir(f"constant() value[dense<[1{z}, 2{z}]>]", f"{d}, 2"), None)
      for d, z in (("f32", ".0"), ("f64", ".5"), ("si32", ""), ("si64", ""))),
    ("N", "constant f16", None, ptir("constant() value[dense<[1.0, 2.0]>]", "f16, 2")),
    *(("=", op, ptir(f"{op}(%x, %y)", F, F, F), ptir(f"{op}(%x, %y)", *["f16, 2"] * 3)) for op in ("add", "sub", "mul")),
    *(("=", op, ptir(f"{op}(%x)"), ptir(f"{op}(%x)", "bf16, 2", "bf16, 2")) for op in ("neg", "exp", "log")),
    ("Y", "an inline literal", ptir("add(%x, dense<2.0> : tensor<f32, 2x3>)"), None),
    ("=", "reduce_sum", ptir("reduce_sum(%x) axes[1] " + SUM("f32"), "f32, 2"),
     ptir("reduce_sum(%x) axes[1] accum_dtype[f64] out_dtype[f32]", "f32, 2")),
    ("Y", "reduce_sum over no axes", ptir("neg(%s)", more="%s = reduce_sum(%x) axes[] -> tensor<f32, 2x3>\n  "), None),
    ("=", "reshape", ptir("reshape(%x) new_shape[3, 2]", "f32, 3x2"), ptir("reshape(%x) new_shape[?N]", "f32, ?N", "f32, ?Nx1")),
    ("Y", "reshape, one extent inferred", ptir("reshape(%x) new_shape[3, -1]", "f32, 3x2"), None),
    ("=", "transpose", ptir("transpose(%x) perm[1, 0]", "f32, 3x2"), ptir("transpose(%x) perm[1, 0]", "i1, 3x2", "i1, 2x3")),
    ("=", "slice", ptir("slice(%x) starts[0, 1] sizes[2, 2]", "f32, 2x2"), None),
    ("=", "take", ptir("take(%x, %y)", "f32, 4x3", F, "si32, 4"), None),
    ("=", "dot_general, a product", ptir(TINY_DOT + " " + SUM("f32"), "f32, 2x4", F, "f32, 3x4"),
     ptir(TINY_DOT + " accum_dtype[f64]", "f32, 2x4", F, "f32, 3x4")),
    ("Y", "dot_general, any axes", ptir("dot_general(%x, %y) batch_lhs[1] batch_rhs[0] contract_lhs[0] contract_rhs[2]",
                                        "f32, 3x4", F, "f32, 3x4x2"), None),
    ("C", "stop_gradient", ptir("neg(%s)", more="%s = stop_gradient(%x) -> tensor<f32, 2x3>\n  "), None),
    ("Y", "iota", ptir("iota() axis[1]"), ptir("iota() axis[1]", "f16, 2x3")),
    ("Y", "broadcast_to of an operand of add", ptir("add(%x, %w)", F, F, "f32, 3", more=ONES), None),
    ("C", "broadcast_to elsewhere", ptir("broadcast_to(%x) result_shape[4, 2, 3]", "f32, 4x2x3"),
     ptir("broadcast_to(%x) result_shape[4, 2, 3]", "f16, 4x2x3", "f16, 2x3")),
    ("C", "tile", ptir("tile(%x) repeats[2, 1]", "f32, 4x3"), None),
    ("Y", "tile to nothing", ptir("tile(%x) repeats[0, 1]", "f32, 0x3"), None),
    ("C", "div by a power of two", HALF, None),
    ("C", "div by a constant", DIV3, None),
    ("Y", "div by a count", ptir("div(%s, dense<3.0> : tensor<f32, 2>)", "f32, 2",
                                 more="%s = reduce_sum(%x) axes[1] -> tensor<f32, 2>\n  "), None),
    *(("Y", f"{op} of integers by {n}", ptir(f"{op}(%x, dense<{n}> : tensor<{d}, 2>)", *[f"{d}, 2"] * 2),
       ptir(f"{op}(%x, %y)", *[f"{d}, 2"] * 3))
      for op in ("div", "rem", "mod") for d, n in (("si32", 2), ("si64", -77), ("si32", -(2**31)), ("si64", 1))),
    *(("N", f"{op} of floats", None, ptir(f"{op}(%x, dense<3.0> : tensor<f32, 2x3>)")) for op in ("rem", "mod")),
    ("Y", "maximum with 0", ptir("maximum(%x, dense<0.0> : tensor<f32, 2x3>)"), None),
    ("Y", "minimum", ptir("minimum(%x, %y)", F, F, F), None),
    ("Y", "abs", ptir("abs(%x)"), None),
    *(("Y", f"{op} of integers", ptir(f"{op}(%x, %y)", *[f"{d}, 2x3"] * 3), None)
      for op, d in (("maximum", "si32"), ("minimum", "si64"))),
    ("Y", "abs of integers", ptir("abs(%x)", "si32, 3", "si32, 3"), None),
    ("Y", "clamp of integers", ptir("clamp(%x, %y, %z)", *["si64, 3"] * 4), None),
    *(("Y", f"cast of {a} to {b}", ptir("cast(%x)", f"{b}, 3", f"{a}, 3"), None)
      for a, b in (("si32", "f32"), ("si32", "f64"), ("si64", "f64"), ("si32", "si64"), ("si64", "si32"))),
    ("C", "reciprocal", ptir("reciprocal(%e)", more="%e = exp(%x) -> tensor<f32, 2x3>\n  "), None),
    ("C", "rsqrt", ptir("rsqrt(%e)", more="%e = exp(%x) -> tensor<f32, 2x3>\n  "), None),
    ("Y", "select(x > 0, x, 0)", ptir("select(%c, %x, %k)", more=RELU), None),
    ("Y", "cast to the same", ptir("neg(%s)", more="%s = cast(%x) -> tensor<f32, 2x3>\n  "), ptir("cast(%x)", "f64, 2x3")),
    ("Y", "extract_patches in a convolution",
     mind("Conv2d (%x, %y) {padding=Valid, strides=[1, 1]}", X4, "f32[3, 3, 3, 4]"),
     ptir("extract_patches(%x) window[2, 2]", "f16, 1x2x2x4", "f16, 1x3x3x1")),
    ("Y", "extract_patches", ptir("extract_patches(%x) window[2, 2] dilation[1, 2] padding[[1, 0], [0, 0]] pad_value[2.5]",
                                  "f32, 1x3x1x4", "f32, 1x3x3x1"), None),
    ("Y", "pad in a slice with steps", mind("Slice (%x) {ends=[2, 3], starts=[0, 0], steps=[1, 2]}"), None),
    ("Y", "pad", ptir("pad(%x) low[1, 0] high[0, 2] interior[1, 2] pad_value[-inf]", "f32, 4x9"),
     ptir("pad(%x) low[1, 0] high[0, 0]", "f16, 3x3", "f16, 2x3")),
    ("Y", "pad of integers", ptir("pad(%x) low[1, 0] high[0, 2] pad_value[7]", "si64, 3x5", "si64, 2x3"), None),
    ("L", "tanh", ptir("tanh(%x)"), None),
    ("Y", "reduce_max", ptir("reduce_max(%x) axes[1]", "f32, 2"), None),
    ("Y", "reduce_min", ptir("reduce_min(%x) axes[1]", "f32, 2"), None),
    ("Y", "concat", ptir("concat(%x, %x) axis[-1]", "f32, 2x6"), ptir("concat(%x, %x) axis[0]", "f16, 4x3", "f16, 2x3")),
    ("Y", "clamp", ptir("clamp(%x, %y, %z)", F, F, F, F), None),
    ("N", "layer_norm", None, ptir("layer_norm(%x, %y, %y) epsilon[1e-05]", F, F, "f32, 3")),
    ("C", "cond", COND("neg"), COND("rsqrt")),
    ("C", "scan", SCAN(4, "mul"), SCAN(2000, "mul")),
    ("C", "scan of known trips", SCAN(3, "maximum"), SCAN("?N", "mul")),
    ("Y", "reduce_window of sums",
     ptir("reduce_window(%x) window_dims[2, 2] strides[1, 2] padding[[0, 1], [1, 0]] base_dilation[2, 1] window_dilation[1, 2] "
          "reduce[sum]", "f32, 3x1"),
     ptir("reduce_window(%x) window_dims[1, 2] strides[1, 1] padding[[0, 0], [0, 0]] base_dilation[1, 1] window_dilation[1, 1] "
          "reduce[sum]", "f16, 2x2", "f16, 2x3")),
    ("Y", "reduce_window of integers",
     ptir("reduce_window(%x) window_dims[1, 2] strides[1, 1] padding[[0, 0], [0, 1]] base_dilation[1, 1] window_dilation[1, 1] "
          "reduce[max]", "si32, 2x3", "si32, 2x3"), None),
    ("N", "quantize", None, ptir("quantize(%x) output_dtype[si8]", "si8, 2x3")),
    ("L", "erf", ptir("erf(%x)"), ptir("erf(%x)", "f64, 2", "f64, 2")),
    ("L", "div", ptir("div(%x, %y)", F, F, F), ptir("div(%x, %y)", *["si32, 2"] * 3)),
    ("L", "div in f64", ptir("div(%x, %y)", *["f64, 2x3"] * 3), None),
    ("Y", "maximum", ptir("maximum(%x, %y)", F, F, F), ptir("maximum(%x, %y)", *["f16, 2"] * 3)),
    ("L", "reciprocal of both signs", ptir("reciprocal(%x)"), None),
    ("C", "div by a sum of exponentials", ptir("div(%x, %b)", F, F, F, more=SUMS), None),
    *(("Y", f"select by compare_{k}", ptir("select(%c, %x, %z)", *[F] * 4, more=compared(k)),
       ptir(f"compare_{k}(%x, %y)", "i1, 2x3", F, F)) for k in ("lt", "le", "gt", "ge", "eq", "ne")),
    *(("Y", f"select of integers by compare_{k}", ptir("select(%c, %x, %z)", *["si32, 2x3"] * 4, more=compared(k)), None)
      for k in ("lt", "le", "gt", "ge", "eq", "ne")),
    *(("Y", f"logic of {k} and {m}", ptir("select(%c, %x, %z)", *["si64, 2x3"] * 4, more=compared_twice(k, m)), None)
      for k, m in (("lt", "eq"), ("ge", "ne"))),
    ("Y", "select of floats by integers", ptir("select(%c, %z, %w)", F, "si32, 2x3", "si32, 2x3", F, more=compared("lt") +
                                               "%w = neg(%z) -> tensor<f32, 2x3>\n  "), None),
    ("N", "select of integers by floats", None, ptir("select(%c, %z, %z)", "si32, 2x3", F, F, "si32, 2x3", more=compared("lt"))),
    ("Y", "a mask of integers as integers", ptir("cast(%c)", "si64, 2x3", *["si32, 2x3"] * 2, more=compared("le")), None),
    ("Y", "integers to a mask", ptir("cast(%c)", "f64, 2x3", "si32, 2x3", more="%c = cast(%x) -> tensor<i1, 2x3>\n  "), None),
    *(("Y", f"{op} of integers", ptir(f"{op}(%x) axes[1]", "si32, 2", "si32, 2x3"), None) for op in ("reduce_max", "reduce_min")),
    ("Y", "reduce_window max", ptir(f"reduce_window(%x) {POOLED} reduce[max]", "f32, 2x3x5x2", "f32, 2x5x6x2"), None),
    *(("Y", name, accepted, None) for _, name, accepted, _ in CHOICES if name.startswith(PLACED) and "bf16" not in str(accepted)),
    *(("N", name, None, accepted) for _, name, accepted, _ in CHOICES if not name.startswith(("take", *PLACED))),
    *NOWHERE,
]  # fmt: skip


@pytest.mark.parametrize("row", PTIR_TO_MIND, ids=ids(PTIR_TO_MIND))
def test_ptir_to_mind(row: Row) -> None:
    kind, _, accepted, refused = row
    if accepted is not None and accepted.startswith("%"):  # what PTIR makes of a module
        there = translated(parse(accepted, "mind"), "ptir")
        assert there.program is not None
        row = (kind, "", text(there.program), refused)
    check_row(row, "ptir", "mind")


HINTED = """func @main(%x: tensor<f32, 2>) -> tensor<f32, 2> {{
  %y = neg(%x) -> tensor<f32, 2>
  return %y
  hint 0 ElementwiseDag {} inputs[%x] exports[%y] {{
    %y = neg(%x) -> tensor<f32, 2>
  }}
}}
""".format


@pytest.mark.parametrize("target", ["mind", "tiny"])
def test_hints_are_dropped_and_told(target: str) -> None:
    for policy, severity in (("Preferred", Severity.NOTE), ("Required", Severity.WARNING)):
        there = translated(parse(HINTED(policy), "ptir"), target)
        assert there.program is not None
        assert [(d.code, d.severity) for d in there.diagnostics] == [("HintDropped", severity)]


@pytest.mark.parametrize("target", ["mind", "tiny"])
def test_results_keep_their_names(target: str) -> None:
    body = (
        "%y = stop_gradient(%x) -> tensor<f32, 2>\n  %z = reshape(%x) new_shape[2] -> tensor<f32, 2>\n  return %z, %y, %x, %y\n"
    )
    before = parse(
        "func @main(%x: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 2>, tensor<f32, 2>, tensor<f32, 2>) {\n  " + body + "}\n",
        "ptir",
    )
    there = translated(before, target)
    assert there.program is not None and [v.name for v in there.program.main.results] == ["z", "y", "x", "y"]


@pytest.mark.parametrize(
    ("op", "meaning"),
    [("reciprocal(%x)", lambda x, y: 1 / x), ("rsqrt(%x)", lambda x, y: 1 / np.sqrt(x)), ("div(%x, %y)", lambda x, y: x / y)],
)
def test_quotients_and_roots_are_within_three_units(op: str, meaning: Any) -> None:
    """Of the last place, held to float64: what docs/translation.md says of the lossy rows."""
    n, rng = 20_000, np.random.default_rng(5)
    x, y = ((rng.uniform(1, 2, n) * 2.0 ** rng.integers(-60, 60, n)).astype(np.float32) for _ in "xy")
    t = f"tensor<f32, {n}>"
    source = f"func @f(%x: {t}, %y: {t}) -> ({t}, {t}) {{\n  %r = {op} -> {t}\n  %k = add(%x, %y) -> {t}\n  return %r, %k\n}}\n"
    there = api.translate(api.read(source), "mind", lossy=True)
    found = next(iter(api.run(there, [x, y]).values())).astype(np.float64)
    want = meaning(x.astype(np.float64), y.astype(np.float64))
    assert np.max(np.abs(found - want) / np.spacing(np.abs(want).astype(np.float32))) <= 3


E, F = "%e = exp(%x) -> tensor<f32, 3>", "%f = exp(%y) -> tensor<f32, 3>"
DIVISORS = {
    "%d = add(%e, %f) -> tensor<f32, 3>": True,
    "%d = add(%e, %y) -> tensor<f32, 3>": False,
    "%d = add(%y, %e) -> tensor<f32, 3>": False,
    "%d = mul(%e, %y) -> tensor<f32, 3>": False,
    "%d = mul(%y, %y) -> tensor<f32, 3>": True,
    "%d = mul(%x, %y) -> tensor<f32, 3>": False,
    "%d = take(%e, dense<[2, 0, 1]> : tensor<si32, 3>) -> tensor<f32, 3>": True,
    "%d = take(%y, dense<[2, 0, 1]> : tensor<si32, 3>) -> tensor<f32, 3>": False,
    "%d = sub(%e, %f) -> tensor<f32, 3>": False,
    "%d = neg(%e) -> tensor<f32, 3>": False,
}


@pytest.mark.parametrize("line", DIVISORS)
def test_a_divisor_that_may_be_below_zero_is_refused(line: str) -> None:
    """Core v1 cannot tell -0.0 from 0.0: what is divided by must be clear of both, in all of its parts."""
    t = "tensor<f32, 3>"
    lines = "\n  ".join((E, F, line, f"%z = reciprocal(%d) -> {t}"))
    made = translated(parse(f"func @f(%x: {t}, %y: {t}) -> {t} {{\n  {lines}\n  return %z\n}}\n", "ptir"), "mind")
    assert (made.program is not None) is DIVISORS[line], made.errors
    if made.program is None:
        assert any("divisor -0.0" in message for _, message in made.errors), made.errors


def test_names_that_mind_reads_as_the_same_value_id() -> None:
    """`01` is the id 1 there."""
    text = """func @f(%1: tensor<f32, 3>, %0: tensor<f32, 3>) -> (tensor<f32, 3>, tensor<f32, 3>) {
  %01 = sub(%0, %1) -> tensor<f32, 3>
  %00 = mul(%01, %1) -> tensor<f32, 3>
  return %01, %00
}
"""
    before = parse(text, "ptir")
    there = translated(before, "mind")
    assert there.program is not None, there.errors
    agree(before, there.program, {})

"""PTIR to PTO: programs of several kernels, views, reductions and products of every kind, functions that tiles lack."""

import json
import math

import numpy as np
import pytest

from ptir_tools.convert import translate
from ptir_tools.core.arrays import from_literal, numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F16, F32
from ptir_tools.core.source import Source
from ptir_tools.dialects import load_format
from ptir_tools.engines import run
from ptir_tools.engines.compare import check
from ptir_tools.engines.options import RunOptions
from tests.convert.ptir_to_pto.programs import TARGETS, agree, program, reread, single


def square(*lines, t="f32"):
    return single(f"%x: tensor<{t}, 4x4>", f"tensor<{t}, 4x4>", *lines)


def product(left, right, out, **attrs):
    shown = " ".join(f"{name}[{', '.join(map(str, axes))}]" for name, axes in attrs.items())
    t = f"tensor<f32, {'x'.join(map(str, out))}>"
    a, b = ("x".join(map(str, shape)) for shape in (left, right))
    return single(f"%x: tensor<f32, {a}>, %w: tensor<f32, {b}>", t, f"%y = dot_general(%x, %w) {shown} -> {t}")


def reduced(short, t, shape, axes, out):
    shown = "x".join(map(str, shape))
    line = f"%y = {short}(%x) axes{list(axes)} -> tensor<{t}, {out}>"
    return single(f"%x: tensor<{t}, {shown}>", f"tensor<{t}, {out}>", line)


ATTENTION = program("""func @main(%n: tensor<f32, 20x24>, %wq: tensor<f32, 24x32>, %wk: tensor<f32, 24x32>,
    %wv: tensor<f32, 24x32>, %wo: tensor<f32, 32x24>) -> tensor<f32, 20x24> {
  %q = dot_general(%n, %wq) contract_lhs[1] contract_rhs[0] -> tensor<f32, 20x32>
  %k = dot_general(%n, %wk) contract_lhs[1] contract_rhs[0] -> tensor<f32, 20x32>
  %v = dot_general(%n, %wv) contract_lhs[1] contract_rhs[0] -> tensor<f32, 20x32>
  %q3 = reshape(%q) new_shape[20, 2, 16] -> tensor<f32, 20x2x16>
  %k3 = reshape(%k) new_shape[20, 2, 16] -> tensor<f32, 20x2x16>
  %v3 = reshape(%v) new_shape[20, 2, 16] -> tensor<f32, 20x2x16>
  %s = dot_general(%q3, %k3) batch[1] contract_lhs[2] contract_rhs[2] -> tensor<f32, 2x20x20>
  %sc = mul(%s, dense<0.25> : tensor<f32, 2x20x20>) -> tensor<f32, 2x20x20>
  %m = reduce_max(%sc) axes[2] keepdims[true] -> tensor<f32, 2x20x1>
  %mb = broadcast_to(%m) result_shape[2, 20, 20] -> tensor<f32, 2x20x20>
  %d = sub(%sc, %mb) -> tensor<f32, 2x20x20>
  %e = exp(%d) -> tensor<f32, 2x20x20>
  %t = reduce_sum(%e) axes[2] keepdims[true] -> tensor<f32, 2x20x1>
  %tb = broadcast_to(%t) result_shape[2, 20, 20] -> tensor<f32, 2x20x20>
  %p = div(%e, %tb) -> tensor<f32, 2x20x20>
  %o = dot_general(%p, %v3) batch_lhs[0] batch_rhs[1] contract_lhs[2] contract_rhs[0] -> tensor<f32, 2x20x16>
  %ot = transpose(%o) perm[1, 0, 2] -> tensor<f32, 20x2x16>
  %of = reshape(%ot) new_shape[20, 32] -> tensor<f32, 20x32>
  %y = dot_general(%of, %wo) contract_lhs[1] contract_rhs[0] -> tensor<f32, 20x24>
  %r = add(%n, %y) -> tensor<f32, 20x24>
  return %r
}""")

TURNED = single(
    "%x: tensor<f32, 3x7x3>", "tensor<f32, 3x7x3x7>",
    "%t = transpose(%x) perm[2, 0, 1] -> tensor<f32, 3x3x7>",
    "%y = dot_general(%t, %t) contract_lhs[1] contract_rhs[0] -> tensor<f32, 3x7x3x7>",
)  # fmt: skip
LONG = (
    "%m = reduce_max(%x) axes[1] keepdims[true] -> tensor<f32, 2x1>",
    "%b = broadcast_to(%m) result_shape[2, 9000] -> tensor<f32, 2x9000>",
    "%d = sub(%x, %b) -> tensor<f32, 2x9000>",
    "%y = reduce_sum(%d) axes[1] -> tensor<f32, 2>",
)
NORM = (
    "%w = constant() value[dense<0.5>] -> tensor<f32, 24>",
    "%y = layer_norm(%x, %w, %w) epsilon[0.001] -> tensor<f32, 5x24>",
)
MEAN = (
    "%s = reduce_sum(%x) axes[0, 1] -> tensor<f32>",
    "%m = mul(%s, dense<0.0625> : tensor<f32>) -> tensor<f32>",
    "%b = broadcast_to(%m) result_shape[4, 4] -> tensor<f32, 4x4>",
    "%y = sub(%x, %b) -> tensor<f32, 4x4>",
)
OUTER = (
    "%c = reshape(%x) new_shape[5, 1] -> tensor<f32, 5x1>",
    "%cb = broadcast_to(%c) result_shape[5, 5] -> tensor<f32, 5x5>",
    "%rb = broadcast_to(%x) result_shape[5, 5] -> tensor<f32, 5x5>",
    "%y = sub(%cb, %rb) -> tensor<f32, 5x5>",
)
SYMMETRIC = (
    "%e = exp(%x) -> tensor<f32, 4x4>",
    "%t = transpose(%e) perm[1, 0] -> tensor<f32, 4x4>",
    "%y = sub(%e, %t) -> tensor<f32, 4x4>",
)
MASKED = (
    "%m = compare_lt(%x, dense<0.0> : tensor<f32, 4x4>) -> tensor<i1, 4x4>",
    "%t = transpose(%m) perm[1, 0] -> tensor<i1, 4x4>",
    "%y = select(%t, %x, dense<2.0> : tensor<f32, 4x4>) -> tensor<f32, 4x4>",
)
PARTS = (
    "%a = slice(%x) starts[0, 10] sizes[8, 10] -> tensor<f32, 8x10>",
    "%b = slice(%x) starts[0, 0] sizes[8, 10] -> tensor<f32, 8x10>",
    "%n = sub(%a, %b) -> tensor<f32, 8x10>",
    "%t = transpose(%n) perm[1, 0] -> tensor<f32, 10x8>",
    "%y = slice(%t) starts[2, 5] sizes[3, 2] -> tensor<f32, 3x2>",
)
NUMBERS = (
    "%i = iota() axis[1] -> tensor<f32, 9x10>",
    "%j = iota() axis[0] -> tensor<si32, 9x10>",
    "%k = cast(%j) -> tensor<f32, 9x10>",
    "%m = compare_ge(%k, %i) -> tensor<i1, 9x10>",
    "%y = select(%m, %x, dense<-1.0> : tensor<f32, 9x10>) -> tensor<f32, 9x10>",
)
FOLDED = (
    "%t = transpose(%x) perm[2, 0, 1, 3] -> tensor<f32, 4x2x3x5>",
    "%y = reshape(%t) new_shape[4, 2, 15] -> tensor<f32, 4x2x15>",
)
NARROW = (
    "%a = add(%x, %x) -> tensor<si8, 6x5>",
    "%b = maximum(%a, %x) -> tensor<si8, 6x5>",
    "%y = neg(%b) -> tensor<si8, 6x5>",
)


def biased(shape):
    line = "%b = broadcast_to(%m) result_shape[2, 3, 4, 5] -> tensor<f32, 2x3x4x5>"
    t = "tensor<f32, 2x3x4x5>"
    return single(f"%x: {t}, %m: tensor<f32, {shape}>", t, line, f"%y = add(%x, %b) -> {t}")


WIDER = {
    "attention": ATTENTION,
    "rows longer than a block": single("%x: tensor<f32, 2x9000>", "tensor<f32, 2>", *LONG),
    "layer norm": single("%x: tensor<f32, 5x24>", "tensor<f32, 5x24>", *NORM),
    "a mean": square(*MEAN),
    "rows and columns of one value": single("%x: tensor<f32, 5>", "tensor<f32, 5x5>", *OUTER),
    "a value and its transposition": square(*SYMMETRIC),
    "a mask in memory": square(*MASKED),
    "extents put together": single("%x: tensor<f32, 2x3x4x5>", "tensor<f32, 4x2x15>", *FOLDED),
    "elements that the target widens": single("%x: tensor<si8, 6x5>", "tensor<si8, 6x5>", *NARROW),
    "bf16": square("%y = exp(%x) -> tensor<bf16, 4x4>", t="bf16"),
    "a scalar alone": single(
        "%x: tensor<f32>",
        "tensor<f32, 4>",
        "%z = exp(%x) -> tensor<f32>",
        "%y = broadcast_to(%z) result_shape[4] -> tensor<f32, 4>",
    ),
    "parts": single("%x: tensor<f32, 8x20>", "tensor<f32, 3x2>", *PARTS),
    "numbers": single("%x: tensor<f32, 9x10>", "tensor<f32, 9x10>", *NUMBERS),
    "a part of numbers": single(
        "%x: tensor<f32, 3>",
        "tensor<f32, 3>",
        "%i = iota() axis[0] -> tensor<f32, 8>",
        "%s = slice(%i) starts[4] sizes[3] -> tensor<f32, 3>",
        "%y = add(%x, %s) -> tensor<f32, 3>",
    ),
    "a part, and a part of it": single(
        "%x: tensor<f32, 8x8>",
        "tensor<f32, 1x3>",
        "%s = slice(%x) starts[2, 4] sizes[5, 3] -> tensor<f32, 5x3>",
        "%m = reduce_max(%s) axes[0] keepdims[true] -> tensor<f32, 1x3>",
        "%t = slice(%s) starts[1, 0] sizes[1, 3] -> tensor<f32, 1x3>",
        "%y = sub(%m, %t) -> tensor<f32, 1x3>",
    ),
    "no result": program("func @main(%x: tensor<f32, 4x8>) -> () {\n return\n}"),
    "a parameter as it is": program("func @main(%x: tensor<f32, 4x8>) -> tensor<f32, 4x8> {\n return %x\n}"),
    "a result of rank 0": single("%x: tensor<f32, 6x5>", "tensor<f32>", "%y = reduce_max(%x) axes[0, 1] -> tensor<f32>"),
    "another shape": single("%x: tensor<f32, 4x8>", "tensor<f32, 8x4>", "%y = reshape(%x) new_shape[8, 4] -> tensor<f32, 8x4>"),
    **{f"broadcast of {shape}": biased(shape) for shape in ("4x5", "3x1x5", "2x1x1x5", "2x3x1x1", "2x3x4x1", "1x1x1x1")},
    "columns": reduced("reduce_sum", "f32", (70, 9), [0], 9),
    "integers": reduced("reduce_max", "si32", (5, 7), [1], 5),
    "integers alone": single(
        "%x: tensor<si32, 37>", "tensor<si32, 1>", "%y = reduce_sum(%x) axes[0] keepdims[true] -> tensor<si32, 1>"
    ),
    "magnitudes of integers": single("%x: tensor<si32, 5x7>", "tensor<si32, 5x7>", "%y = abs(%x) -> tensor<si32, 5x7>"),
    "a product of a value with itself, turned": TURNED,
    "axes apart": reduced("reduce_sum", "f16", (5, 7, 9), [0, 2], 7),
    "three axes": reduced("reduce_min", "f32", (3, 5, 7, 9), [0, 2, 3], 5),
    "transposed left": product((20, 5), (20, 6), (5, 6), contract_lhs=[0], contract_rhs=[0]),
    "transposed right": product((5, 20), (6, 20), (5, 6), contract_lhs=[1], contract_rhs=[1]),
    "batches": product((2, 5, 20), (2, 20, 6), (2, 5, 6), batch=[0], contract_lhs=[2], contract_rhs=[1]),
    "two inner extents": product((5, 4, 20), (4, 20, 6), (5, 6), contract_lhs=[1, 2], contract_rhs=[0, 1]),
    "rows of two extents": product((2, 5, 20), (20, 6), (2, 5, 6), contract_lhs=[2], contract_rhs=[0]),
    "one row": product((1, 40), (40, 6), (1, 6), contract_lhs=[1], contract_rhs=[0]),
    "one column": product((5, 40), (40, 1), (5, 1), contract_lhs=[1], contract_rhs=[0]),
    "a vector": product((40,), (40, 6), (6,), contract_lhs=[0], contract_rhs=[0]),
    "extents of 1 behind": product((5, 7, 1), (7, 6, 1), (5, 1, 6, 1), contract_lhs=[1], contract_rhs=[0]),
    "extents of 1 between": product((5, 7, 1), (7, 1, 6), (5, 6), contract_lhs=[1, 2], contract_rhs=[0, 1]),
    "an outer product": product((5, 1), (1, 6), (5, 6), contract_lhs=[1], contract_rhs=[0]),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", WIDER)
def test_programs_of_several_kernels(name, target):
    before = WIDER[name]
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    agree(before, reread(after))


@pytest.mark.parametrize("t, bits", [(F32, 24), (F16, 11)])
@pytest.mark.parametrize("short", ["tanh", "erf"])
def test_curves_to_a_few_units(short, t, bits):
    """Against math, over small arguments and large."""
    n = 512
    before = single(f"%x: tensor<{t}, {n}>", f"tensor<{t}, {n}>", f"%y = {short}(%x) -> tensor<{t}, {n}>")
    after = translate(before, "pto", Diagnostics(before.source), Options())
    size = np.geomspace(2.0 ** (2 - bits), 20, n // 2)
    x = np.concatenate([-size, size]).astype(numpy_dtype(t))
    got = run(after, [x, np.zeros_like(x)], RunOptions())["y"].astype(np.float64)
    want = np.array([getattr(math, short)(float(v)) for v in x])
    assert np.all(np.abs(got - want) <= 8 * 2.0**-bits * np.abs(want))
    edge = np.array([0.0, -0.0, np.inf, -np.inf, np.nan] + [1.0] * (n - 5)).astype(x.dtype)
    made = run(after, [edge, np.zeros_like(x)], RunOptions())["y"][:5]
    assert np.array_equal(made, np.array([0, 0, 1, -1, np.nan], x.dtype), equal_nan=True)


FUNCTIONS = {
    "expm1": np.expm1, "log1p": np.log1p, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos, "cbrt": np.cbrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
}  # fmt: skip


@pytest.mark.parametrize("t", [F32, F16])
@pytest.mark.parametrize("short", FUNCTIONS)
def test_functions_that_no_tile_op_has_are_formulas(short, t):
    """Within 8 units of the last place of NumPy in float64; as NumPy has it at the edges."""
    n = 512
    before = single(f"%x: tensor<{t}, {n}>", f"tensor<{t}, {n}>", f"%y = {short}(%x) -> tensor<{t}, {n}>")
    periodic = short in ("sin", "cos", "tan")
    refused = translate(before, "pto", found := Diagnostics(before.source), Options())
    assert (refused is None) is periodic is any("--lossy" in (d.help or "") for d in found)
    after = translate(before, "pto", Diagnostics(before.source), Options(lossy=periodic))
    size = np.geomspace(2.0**-10, 60, n // 2 - 4)
    x = np.concatenate([-size, [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5], size]).astype(numpy_dtype(t))
    spare = [np.zeros(n, numpy_dtype(p.type.dtype)) for p in after.main.params[1:]]  # between kernels, and the result
    got = run(after, [x, *spare], RunOptions())["y"]
    with np.errstate(all="ignore"):
        want = FUNCTIONS[short](x.astype(np.float64)).astype(x.dtype)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(all="ignore"):
        near = np.abs(got.astype(float) - want.astype(float)) <= 8 * np.spacing(np.abs(want)).astype(float)
    assert np.all(same | near), x[~(same | near)]


def test_powers_of_2_need_no_f64():
    """EXP2 of Tiny, in f32: within 6 units of the last place, the least and largest numbers included, and
    what is no number."""
    node = {"id": "y", "uop": "EXP2", "src": ["x"]}
    x_node = {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [1024]}}
    graph = load_format("tiny").read(Source("t", json.dumps({"uops": [x_node, node]})), Diagnostics(), Options())
    after = translate(graph, "pto", found := Diagnostics(graph.source), Options())
    assert after is not None, found.items
    edge = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30, 128, 127.99999, 127.5, -126, -126.5, -148.9, -149, -151, 1e-30]
    x = np.concatenate([edge, np.linspace(-150, 128, 1008)]).astype(np.float32)
    got = run(after, [x, np.zeros_like(x)], RunOptions())["y"]
    with np.errstate(all="ignore"):
        want = np.exp2(x.astype(np.float64)).astype(np.float32)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(all="ignore"):
        near = np.abs(got.astype(float) - want.astype(float)) <= 6 * np.spacing(np.abs(want)).astype(float)
    assert np.all(same | (near & np.isfinite(want))), x[~(same | near)]
    assert got[0] == np.inf and got[1] == 0 and np.isnan(got[2]) and got[3] == got[4] == 1


TABLE = "%c = constant() value[dense<[1.0, 2.0, 3.0, 4.0]>] -> tensor<f32, 4>"


def test_constants_become_parameters_where_the_caller_takes_their_values():
    before = square(TABLE, "%b = broadcast_to(%c) result_shape[4, 4] -> tensor<f32, 4x4>", "%y = mul(%x, %b) -> tensor<f32, 4x4>")
    constants = {}
    after = translate(before, "pto", Diagnostics(before.source), Options(constants=constants))
    assert [p.name for p in after.main.params] == ["x", "c", "y"]
    arrays = {name: from_literal(x) for name, x in constants.items()}
    assert arrays["c"].tolist() == [1, 2, 3, 4]
    assert not check(before, after, runs=1, constants=arrays).diverged

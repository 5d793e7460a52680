"""What translation lowers is raised again: the same ops come back, and special values are those of the op."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest

import ptir_tools
from ptir_tools.convert import ranges
from ptir_tools.convert.mind_to_ptir import formulas
from ptir_tools.core.arrays import from_literal, numpy_dtype, to_literal
from ptir_tools.core.dtypes import F32, F64, PTIR_DTYPES, SI32, DType
from ptir_tools.core.expressions import to_dim
from ptir_tools.core.extents import parse as parse_extent
from ptir_tools.core.ir import Literal
from tests.convert.translations import parse, prove, text, translated


def ops(text: str, target: str, lossy: bool = False) -> list[str]:
    """The ops of a program that was translated to `target` and back, without constants and broadcasts."""
    there = translated(parse(text, "ptir"), target, lossy=lossy)
    assert there.program is not None, there.errors
    back = translated(there.program, "ptir", constants=there.constants)
    assert back.program is not None, back.errors
    return [op.defn.short for op in back.program.main.body if op.defn.short not in ("constant", "broadcast_to")]


def function(line: str, result: str, *params: str) -> str:
    """A function of one op, of which `%p0`, `%p1`, … are the parameters."""
    listed = ", ".join(f"%p{i}: tensor<{t}>" for i, t in enumerate(params))
    return f"func @f({listed}) -> tensor<{result}> {{\n  %r = {line} -> tensor<{result}>\n  return %r\n}}\n"


F, N = "f32, 2x3", "si32, 2x3"
TINY = {
    "take by data": (
        function("take(%p0, %p1)", "f32, 4x2x3", "f32, 5x2x3", "si32, 4"),
        ["clamp", "take", "compare_eq", "select"],
    ),
    "take by a constant": (
        function("take(%p0, dense<[4, 0, 0, 3]> : tensor<si32, 4>)", "f32, 4x2", "f32, 5x2"),
        ["take"],
    ),
    "rows written at a constant place": (
        function(
            "dynamic_update_slice(%p0, %p1, dense<[0, 2, 0]> : tensor<si32, 3>) sizes[2, 1, 3]",
            "f32, 2x7x3",
            "f32, 2x7x3",
            "f32, 2x1x3",
        ),
        ["slice", "dynamic_update_slice"],
    ),
    "argmax": (function("argmax(%p0) axis[1] output_dtype[si32]", "si32, 2", F), ["argmax"]),
    "argmax of integers": (function("argmax(%p0) axis[0] keepdims[true] output_dtype[si32]", "si32, 1x3", N), ["argmax"]),
    "quantize": (
        function("cast(%q)", N, F).replace(
            "%r =", "%q = quantize(%p0) output_dtype[si8] scales[0.02] zero_points[5] -> tensor<si8, 2x3>\n  %r ="
        ),
        ["quantize", "cast"],
    ),
    "requantize per channel": (
        function("cast(%q)", N, N).replace(
            "%r =",
            "%q = requantize(%p0) output_dtype[ui8] axis[1] scales[0.001, 0.02, 3.0] zero_points[5, -7, 0] "
            "output_scales[0.5, 0.25, 4.0] output_zero_points[100, 0, 255] -> tensor<ui8, 2x3>\n  %r =",
        ),
        ["requantize", "cast"],
    ),
    **{
        f"compare_{k} of {t[:4]}": (
            function("cast(%c)", "si32, 2x3", t, t).replace("%r =", f"%c = compare_{k}(%p0, %p1) -> tensor<i1, 2x3>\n  %r ="),
            None,
        )
        for k in ("gt", "lt", "ge", "le", "eq", "ne")
        for t in (F, N)
    },
}


@pytest.mark.parametrize("name", TINY)
def test_raised_from_tiny(name: str) -> None:
    text, wanted = TINY[name]
    found = [short for short in ops(text, "tiny") if short != "reshape"]
    if wanted is not None:
        assert found == wanted
    else:  # one comparison, or its mirror image, perhaps negated
        assert len(found) <= 3 and sum(short.startswith("compare_") for short in found) in (1, 2), found


POOL = "window_dims[1, 2, 2, 1] strides[1, 2, 1, 1] padding[[0, 0], [1, 1], [0, 0], [0, 0]] base_dilation[1, 1, 1, 1]"
MIND = {
    "maximum": (function("maximum(%p0, %p1)", F, F, F), ["maximum"]),
    "minimum with a number": (function("minimum(%p0, dense<6.0> : tensor<f32, 2x3>)", F, F), ["minimum"]),
    "clamp": (
        function("clamp(%p0, dense<-1.0> : tensor<f32, 2x3>, dense<6.0> : tensor<f32, 2x3>)", F, F),
        ["maximum", "minimum"],
    ),
    "abs": (function("abs(%p0)", F, F), ["abs"]),
    "div": (function("div(%p0, %p1)", F, F, F), ["div"]),
    "reciprocal": (function("reciprocal(%p0)", F, F), ["reciprocal"]),
    "rsqrt": (function("rsqrt(%p0)", F, F), ["rsqrt"]),
    "tanh": (function("tanh(%p0)", F, F), ["tanh"]),
    "erf": (function("erf(%p0)", F, F), ["erf"]),
    "reduce_max": (function("reduce_max(%p0) axes[1] keepdims[true]", "f32, 2x1", "f32, 2x7"), ["reduce_max"]),
    "reduce_min of f64": (function("reduce_min(%p0) axes[0] keepdims[true]", "f64, 1x7", "f64, 5x7"), ["reduce_min"]),
    "pad": (function("pad(%p0) low[0, 1, 2] high[0, 0, 1]", "f32, 2x4x7", "f32, 2x3x4"), ["pad"]),
    "extract_patches": (
        function(
            "extract_patches(%p0) window[2, 3] strides[2, 1] dilation[1, 2] padding[[1, 0], [2, 2]]",
            "f32, 2x3x7x18",
            "f32, 2x5x7x3",
        ),
        ["extract_patches"],
    ),
    "reduce_window max": (
        function(f"reduce_window(%p0) {POOL} window_dilation[1, 1, 2, 1] reduce[max]", "f32, 2x3x3x3", "f32, 2x4x5x3"),
        ["reduce_window"],
    ),
    "select": (
        function("select(%c, %p0, %p1)", F, F, F).replace("%r =", "%c = compare_le(%p0, %p1) -> tensor<i1, 2x3>\n  %r ="),
        ["compare_ge", "select"],
    ),
}


@pytest.mark.parametrize("name", MIND)
def test_raised_from_mind(name: str) -> None:
    text, wanted = MIND[name]
    assert [short for short in ops(text, "mind", lossy=True) if short not in ("reshape", "transpose")] == wanted


@pytest.mark.parametrize("dtype", [F32, F64])
def test_formulas_end_as_listed(dtype: DType) -> None:
    """The tables say by which instruction each formula is looked for."""
    for table in (formulas._FORMS_BY_LAST, formulas._MASKS):
        for last, forms in table.items():
            for function, kinds in forms:
                if (function, dtype) != ("erf", F64):
                    assert formulas.formula(function, dtype, kinds).last.defn.short == last


def specials(kind: type) -> Any:
    """Numbers that formulas are wrong on first."""
    f = np.finfo(kind)
    ends = [
        f.max,
        f.max / 2,
        f.tiny,
        f.tiny / 4,
        f.smallest_subnormal,
        np.inf,
        1e30,
        1e-30,
        1e-3,
        0.5,
        1.0,
        3.7,
        17.0,
        88.9,
        103.0,
    ]
    return np.array([0.0, -0.0, np.nan, *ends, *(-x for x in ends)], kind)


UNARY = {
    "abs": np.abs, "reciprocal": np.reciprocal, "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x.astype(np.longdouble)), "erf": np.vectorize(math.erf),
}  # fmt: skip
BINARY = {"maximum": np.maximum, "minimum": np.minimum, "div": np.divide}
COMPARED = {"gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal}
OFF = {"div": 3, "reciprocal": 3, "rsqrt": 3}  # units of the last place


@pytest.mark.parametrize("engine", ["reference", "numpy"])
@pytest.mark.parametrize(  # MIND has erf of f32 alone
    ("name", "spelled", "kind"),
    [
        (name, spelled, kind)
        for name in (*UNARY, *BINARY, *COMPARED)
        for spelled, kind in (("f32", np.float32), ("f64", np.float64))
        if (name, spelled) != ("erf", "f64")
    ],
)
def test_special_values_in_mind(name: str, spelled: str, kind: type, engine: str) -> None:
    """Infinities, NaNs, subnormals and the ends of the range, against NumPy; a zero divisor has no sign."""
    values = specials(kind)
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    t = f"{spelled}, {len(x)}"
    with np.errstate(all="ignore"):
        if name in UNARY:
            given, want = [x], UNARY[name](x).astype(kind)
            text, zero = function(f"{name}(%p0)", t, t), x == 0
        elif name in BINARY:
            given, want = [x, y], BINARY[name](x, y)
            text, zero = function(f"{name}(%p0, %p1)", t, t, t), y == 0
        else:
            given, want, zero = [x, y], np.where(COMPARED[name](x, y), x, y), np.zeros(len(x), bool)
            text = function("select(%c, %p0, %p1)", t, t, t)
            text = text.replace("%r =", f"%c = compare_{name}(%p0, %p1) -> tensor<i1, {len(x)}>\n  %r =")
    module = ptir_tools.translate(ptir_tools.read(text), "mind", lossy=True)
    (got,) = ptir_tools.run(module, given, engine=engine).values()
    if name in OFF:  # 1 / -0.0 is taken for 1 / 0.0
        got, want = (np.where(zero, np.abs(a), a) for a in (got, want))
    with np.errstate(all="ignore"):
        gap = np.abs(got.astype(np.longdouble) - want)
        least = OFF.get(name, 0) * np.spacing(np.abs(want))
    least = np.full(len(x), 5 * np.finfo(kind).eps) if name in ("tanh", "erf") else least
    near = np.isfinite(got) & np.isfinite(want) & (gap <= least)
    nearly_infinite = (np.abs(got) == np.finfo(kind).max) & np.isinf(want)  # rounding decides overflow
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | near | (nearly_infinite & (name in OFF))
    assert same.all(), [(a[~same][:3], got[~same][:3], want[~same][:3]) for a in given]


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
def test_an_index_out_of_bounds_chooses_nothing(engine: str) -> None:
    """Tiny's one-hot product gives zeros there, also where it is raised to `take`."""
    text = function("take(%p0, %p1)", "f32, 5x2", "f32, 3x2", "si32, 5")
    there = translated(parse(text, "ptir"), "tiny")
    assert there.program is not None
    x, index = np.array([[1, np.inf], [np.nan, 4], [5, 6]], np.float32), np.array([2, -1, 0, 3, -(2**31)], np.int32)
    constants = {p.name: np.arange(3, dtype=np.int32) for p in there.program.main.params if p.name.startswith("const")}
    (got,) = ptir_tools.run(there.program, {"p0": x, "p1": index, **constants}, engine=engine).values()
    np.testing.assert_array_equal(got, np.array([[5, 6], [0, 0], [1, np.inf], [0, 0], [0, 0]], np.float32))


DTYPES_OF_TINY = ("f32", "f16", "bf16", "si32", "si8", "ui16", "i1")
MOVED = {
    "concat": ("concat(%p0, %p1, %p0) axis[1]", "2x7", "2x2", "2x3"),
    "concat of rows": ("concat(%p0, %p1) axis[0]", "5x3", "2x3", "3x3"),
    "pad": ("pad(%p0) low[0, 1] high[2, 0]", "4x3", "2x2", "2x3"),
    "transpose": ("transpose(%p0) perm[1, 0]", "2x3", "3x2", "2x3"),
    "slice": ("slice(%p0) starts[1, 0] sizes[1, 2]", "1x2", "2x3", "2x3"),
    "broadcast": ("broadcast_to(%p0) result_shape[3, 2, 2]", "3x2x2", "2x1", "2x3"),
}


MOVED_CONSTANTS = {
    "reshape": ("reshape(%c) new_shape[3, 2]", "3x2"),
    "transpose": ("transpose(%c) perm[1, 0]", "3x2"),
    "broadcast": ("broadcast_to(%c) result_shape[4, 2, 3]", "4x2x3"),
    "slice": ("slice(%c) starts[0, 1] sizes[2, 2]", "2x2"),
    "tile": ("tile(%c) repeats[2, 1]", "4x3"),
    "concat": ("concat(%c, %c) axis[0]", "4x3"),
    "pad": ("pad(%c) low[0, 1] high[2, 0]", "4x4"),
}


@pytest.mark.parametrize("number", ["1", "[[0, 1, 1], [1, 0, 1]]"])
@pytest.mark.parametrize("dtype", DTYPES_OF_TINY)
@pytest.mark.parametrize("name", MOVED_CONSTANTS)
def test_moved_constants_have_the_same_numbers(name: str, dtype: str, number: str) -> None:
    """One number for all elements, or one for each."""
    line, result = MOVED_CONSTANTS[name]
    literal = number if dtype.startswith(("s", "u")) else re.sub(r"\d", lambda m: f"{m[0]}.0", number)
    literal = literal if dtype != "i1" else re.sub(r"\d", lambda m: "true" if m[0] == "1" else "false", number)
    c = f"%c = constant() value[dense<{literal}>] -> tensor<{dtype}, 2x3>\n  "
    text = function(line, f"{dtype}, {result}", f"{dtype}, 2").replace("%r =", f"{c}%r =")
    assert prove(parse(text, "ptir"), "tiny", seed=3) in ("there", "there and back")


@pytest.mark.parametrize("dtype", DTYPES_OF_TINY)
@pytest.mark.parametrize("name", MOVED)
def test_movement_keeps_every_element_in_every_dtype(name: str, dtype: str) -> None:
    """Two random inputs: what is put between elements is nothing."""
    line, result, x, y = MOVED[name]
    text = function(line, f"{dtype}, {result}", f"{dtype}, {x}", f"{dtype}, {y}")
    assert prove(parse(text, "ptir"), "tiny", seed=3) in ("there", "there and back")


def test_padded_windows_come_back_with_their_padding() -> None:
    line = "extract_patches(%p0) window[2, 3] strides[1, 2] dilation[1, 1] padding[[1, 0], [2, 1]]"
    there = translated(parse(function(line, "f32, 1x4x4x12", "f32, 1x4x6x2"), "ptir"), "tiny")
    assert there.program is not None, there.errors
    back = translated(there.program, "ptir")
    assert back.program is not None
    (op,) = [op for op in back.program.main.body if op.defn.short == "extract_patches"]
    assert op.attr("padding") == ((1, 0), (2, 1)) and op.attr("strides") == (1, 2)
    line = line.replace(" dilation[1, 1] padding[[1, 0], [2, 1]]", "")
    (alone,) = [s for s in ops(function(line, "f32, 1x3x2x12", "f32, 1x4x6x2"), "tiny") if s == "extract_patches"]
    assert alone


@pytest.mark.parametrize(
    "line",
    [
        f"{op}(%p0, {y})"
        for op in ("div", "rem", "mod")
        for y in ("%p1", "dense<7> : tensor<si32, 2x3>", "dense<-3> : tensor<si32, 2x3>")
    ],
)
def test_quotients_of_integers_are_raised(line: str) -> None:
    text = function(line, N, *[N] * (1 + line.count("%p1")))
    assert [s for s in ops(text, "tiny") if s not in ("cast", "clamp")] == [line[:3]]


@pytest.mark.parametrize("line", ["div(%p0, dense<7> : tensor<si32, 2x3>)", "log(%p0)", "tanh(%p0)", "erf(%p0)"])
def test_a_formula_with_another_number_is_no_function(line: str) -> None:
    """Each of its numbers in turn is changed: the program in PTIR is the changed one."""
    of = N if "si32" in line else F
    there = translated(parse(function(line, of, of), "ptir"), "tiny")
    assert there.program is not None
    short = line.partition("(")[0]
    count = 0
    for op in there.program.main.body:
        for i, x in enumerate(op.operands):
            if not isinstance(x, Literal) or x.data is None or x.type.dtype not in (F32, SI32):
                continue
            number = from_literal(x).reshape(-1)[0]
            if not np.isfinite(number) or number == 0:
                continue
            other = np.full(x.type.static_shape, number * 3, numpy_dtype(x.type.dtype))
            kept, op.operands = op.operands, tuple(to_literal(other, x.type) if k == i else y for k, y in enumerate(op.operands))
            back = translated(parse(text(there.program), "tiny"), "ptir")
            op.operands = kept
            if back.program is not None:
                count += 1
                shorts = [o.defn.short for o in back.program.main.body]
                assert short not in shorts or short == "div", f"{op.defn.short} with {other.reshape(-1)[0]} for {number}"
    assert count >= 3


@pytest.mark.parametrize("step", [1, 2, 6])
@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (1, 3), (4, 3), (1, 8), (8, 1)])
@pytest.mark.parametrize("offset", [0, 1])
def test_a_map_with_an_offset_is_no_window_from_the_start(shape: tuple[int, int], offset: int, step: int) -> None:
    """Also where one axis has one place, so that how far it steps shows in nothing."""
    n, k = shape
    if step * (n - 1) + k - 1 + offset >= 8:
        return
    at = {"map": ["i0", f"{step}*i1+i2+{offset}", "i3"]}
    graph = json.dumps({"uops": [
        {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [2, 8, 2]}},
        {"id": "v", "uop": "VIEW", "src": ["x"], "arg": {"result_shape": [2, n, k, 2], "index_map": at}},
        {"id": "r", "uop": "RESHAPE", "src": ["v"], "arg": {"result_shape": [2, n, 2 * k]}},
    ], "outputs": ["r"]})  # fmt: skip
    assert prove(parse(graph, "tiny"), "ptir", seed=1) in ("there", "there and back")


@pytest.mark.parametrize("names", [["A"], ["A", 6], ["A", "B"], ["A", "B", "C"]])
def test_an_extent_that_is_called_otherwise_is_the_same_expression(names: list[str | int]) -> None:
    """Which one it is follows from the number of elements; of several, from the order."""
    n = len(names)
    shape = [f"{name}0" if isinstance(name, str) else name - 3 for name in names]
    graph = json.dumps({"uops": [
        {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": shape}},
        {"id": "e", "uop": "NEG", "src": ["x"]},
        {"id": "p", "uop": "PAD", "src": ["e"], "arg": {"pad": [[1, 2]] * n}},
        {"id": "r", "uop": "RESHAPE", "src": ["p"], "arg": {"result_shape": names}},
    ], "outputs": ["r"]})  # fmt: skip
    there = translated(parse(graph, "tiny"), "ptir")
    assert there.program is not None, there.errors
    assert [op.defn.short for op in there.program.main.body] == ["neg", "pad", "reshape"]
    padded = tuple(to_dim(parse_extent(f"?{d}0 + 3")) if isinstance(d, str) else d for d in names)
    assert there.program.main.result_types[0].shape == padded


GRID = np.array(
    [
        -30.0,
        -2.5,
        -2.0,
        -1.0,
        -0.99,
        -0.75,
        -0.5,
        -0.3,
        -1e-3,
        0.0,
        1e-3,
        0.2,
        0.41,
        0.42,
        0.7,
        0.98,
        1.0,
        1.5,
        2.4,
        2.5,
        9.0,
        40.0,
    ]
)
REAL = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "log1p": np.log1p, "expm1": np.expm1,
    "cbrt": np.cbrt, "tanh": np.tanh, "erf": np.vectorize(math.erf),
}  # fmt: skip


@pytest.mark.parametrize("target", ["mind", "tiny"])
@pytest.mark.parametrize("name", REAL)
def test_functions_made_of_other_ops_have_their_numbers(name: str, target: str) -> None:
    text = function(f"{name}(%p0)", f"f32, {len(GRID)}", f"f32, {len(GRID)}")
    there = translated(parse(text, "ptir"), target, lossy=True)
    assert there.program is not None, there.errors
    x = GRID.astype(np.float32)
    given = {p.name: from_literal(there.constants[p.name]) if p.name in there.constants else x for p in there.program.main.params}
    (found,) = ptir_tools.run(there.program, given, engine="reference").values()
    with np.errstate(all="ignore"):
        want = REAL[name](x.astype(np.float64))
        near = np.abs(found - want) <= 1e-5 * np.abs(want) + 3e-6
    assert np.all(near | (np.isnan(found) & np.isnan(want)) | (found == want)), (found, want)


BITS = {"bitwise_and": 2, "bitwise_or": 2, "bitwise_xor": 2, "bitwise_not": 1, "popcount": 1, "count_leading_zeros": 1,
        "shift_left": 2, "shift_right_logical": 2, "shift_right_arithmetic": 2}  # fmt: skip


@pytest.mark.parametrize("target", ["mind", "tiny"])
@pytest.mark.parametrize("dtype", ["si8", "ui8", "si16", "ui16", "si32", "si64"])
@pytest.mark.parametrize("name", BITS)
def test_bits_made_of_other_ops_are_those_of_the_op(name: str, dtype: str, target: str) -> None:
    """Negative and largest numbers among them, where the target has or carries the dtype."""
    of = {str(d): d for d in PTIR_DTYPES}[dtype]
    low, high = max(of.min, -(2**31)), min(of.max, 2**31 - 1)
    x = np.array([0, 1, high, low, high // 3, low // 2, 5, high - 1], numpy_dtype(of))
    y = np.array([0, 1, 2, 3, 7, 4, 5, 6] if name.startswith("shift") else x[[3, 2, 4, 1, 6, 0, 2, 5]], numpy_dtype(of))
    given = [x, y][: BITS[name]]
    program = parse(
        function(f"{name}({', '.join(f'%p{i}' for i in range(len(given)))})", f"{dtype}, 8", *[f"{dtype}, 8"] * len(given)),
        "ptir",
    )
    there = translated(program, target, lossy=True)
    if there.program is None:
        assert target == "mind" and dtype not in ("si32", "si64"), there.errors
        return
    (want,) = ptir_tools.run(program, given, engine="reference").values()
    carried = iter(given)
    inputs = {
        p.name: from_literal(there.constants[p.name])
        if p.name in there.constants
        else next(carried).astype(numpy_dtype(p.type.dtype))
        for p in there.program.main.params
    }
    (found,) = ptir_tools.run(there.program, inputs, engine="reference").values()
    told = np.ones(8, np.bool_) if target == "mind" else want == want.astype(np.int32)  # Tiny carries si32
    np.testing.assert_array_equal(found.astype(want.dtype)[told], want[told])


def test_a_view_that_turns_axes_has_its_name() -> None:
    graph = json.dumps({"uops": [
        {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [2, 3]}},
        {"id": "turned", "uop": "VIEW", "src": ["x"], "arg": {"result_shape": [3, 2], "index_map": {"map": ["i1", "i0"]}}},
        {"id": "taken", "uop": "VIEW", "src": ["x"], "arg": {"result_shape": [2, 3], "index_map": {"map": ["1-i0", "2-i1"]}}},
        {"id": "spread", "uop": "VIEW", "src": ["x"], "arg": {"result_shape": [3, 4, 2], "index_map": {"map": ["i2", "i0"]}}},
        {"id": "mixed", "uop": "VIEW", "src": ["x"], "arg": {"result_shape": [3, 2], "index_map": {"map": ["1-i1", "i0"]}}},
    ], "outputs": ["turned", "taken", "spread", "mixed"]})  # fmt: skip
    made = translated(parse(graph, "tiny"), "ptir").program
    assert made is not None
    assert [x.name for x in made.main.results] == ["turned", "taken", "spread", "mixed"]


def test_a_quotient_is_bounded_by_both_of_its_ends() -> None:
    """By every number from -9 to 9 and the quotients themselves."""
    for n in (*range(-9, 0), *range(1, 10)):
        program = parse(function(f"div(%p0, dense<{n}> : tensor<si32, 2x3>)", N, N), "ptir")
        (op,) = [op for op in program.main.body if op.defn.short == "div"]
        for low, high in ((-7, 20), (3, 11), (-20, -4), (0, 0), (-1, 0)):
            whole = [abs(v) // abs(n) * (1 if (v < 0) == (n < 0) else -1) for v in range(low, high + 1)]
            assert ranges._divided(op, [(low, high), (n, n)]) == (min(whole), max(whole))

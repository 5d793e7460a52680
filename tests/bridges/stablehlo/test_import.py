"""StableHLO text is read as PTIR that computes the same; what cannot be expressed is refused with its place and reason."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.bridges.stablehlo.literals import dense
from ptir_tools.bridges.stablehlo.syntax import parse
from ptir_tools.bridges.stablehlo.table import HANDLERS, REFUSED
from ptir_tools.bridges.stablehlo.types import DTYPES, SPELLING, type_of, type_text
from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import PTIR_DTYPES
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.source import Source
from ptir_tools.core.types import tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.sniff import sniff
from ptir_tools.engines import native
from tests.conftest import ROOT, run_ptir

ENGINES = ("reference", "numpy", "native")
MLIR = {
    "bool": "i1", "int4": "i4", "uint4": "ui4", "int8": "i8", "uint8": "ui8", "int16": "i16", "uint16": "ui16", "int32": "i32",
    "uint32": "ui32", "int64": "i64", "uint64": "ui64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "complex64": "complex<f32>", "complex128": "complex<f64>",
}  # fmt: skip


def mlir(x: Any) -> str:
    """The type of an array."""
    return f"tensor<{''.join(f'{n}x' for n in x.shape)}{MLIR[str(x.dtype)]}>"


def function(body: str, *inputs: Any, results: str) -> str:
    """A function of %a, %b, … with a body and the types of its results."""
    params = ", ".join(f"%{name}: {mlir(x)}" for name, x in zip("abcdefgh", inputs, strict=False))
    return f"func.func @main({params}) -> ({results}) {{\n{body}\n}}\n"


def compute(text: str, *inputs: Any, engine: str = "reference") -> list[Any]:
    """What a text computes."""
    return list(ptir.run(ptir.read(text), list(inputs), engine=engine).values())


def check(text: str, inputs: list[Any], wanted: list[Any], tolerance: float = 1e-6) -> None:
    """Every engine gives what is wanted: equal integers, floats near by."""
    program, (known, others) = ptir.read(text), with_constants(text, inputs)
    runs = [(program, inputs, engine) for engine in ENGINES]
    runs += [(ptir.read(known), others, "reference")] if len(others) < len(inputs) else []
    for each, given, engine in runs:
        for found, y in zip(ptir.run(each, given, engine=engine).values(), wanted, strict=True):
            y = np.asarray(y)
            assert found.dtype == y.dtype and found.shape == y.shape
            if y.dtype.kind in "iub":
                assert np.array_equal(found, y), engine
            else:
                np.testing.assert_allclose(arrays.widen(found), arrays.widen(y), tolerance, tolerance, err_msg=engine)


def with_constants(text: str, inputs: list[Any]) -> tuple[str, list[Any]]:
    """A text whose integers behind the first input are constants, which readers handle apart, and its other inputs."""
    for i, x in [*enumerate(inputs)][:0:-1]:
        name, x = "abcdefgh"[i], np.asarray(x)
        if x.dtype.kind in "iu" and (found := re.search(rf", %{name}: ([^,()]*?)(?=[,)])", text)) is not None:
            line = f"{{\n  %{name} = stablehlo.constant dense<{x.tolist()}> : {found[1]}\n"
            text = text[: found.start()] + text[found.end() :].replace("{\n", line, 1)
            inputs = [*inputs[:i], *inputs[i + 1 :]]
    return text, inputs


def values(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole(*shape: int, low: int = -9, high: int = 9, seed: int = 0, dtype: Any = np.int32) -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


X, Y, N = values(3, 4), values(3, 4, seed=1), whole(3, 4)
SCALAR = "tensor<f32>"
ADD = """{
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }"""


# Both forms


@pytest.mark.parametrize(
    "body",
    [
        "  %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>\n  return %0 : tensor<4x3xf32>",
        '  %0 = "stablehlo.transpose"(%a) <{permutation = array<i64: 1, 0>}> : (tensor<3x4xf32>) -> tensor<4x3xf32>\n'
        '  "func.return"(%0) : (tensor<4x3xf32>) -> ()',
        '  %0 = "stablehlo.transpose"(%a) {permutation = dense<[1, 0]> : tensor<2xi64>} : (tensor<3x4xf32>) -> tensor<4x3xf32>\n'
        "  func.return %0 : tensor<4x3xf32> loc(#loc3)",
    ],
)
def test_pretty_and_generic_forms_are_the_same(body: str) -> None:
    check(function(body, X, results="tensor<4x3xf32>"), [X], [X.T])


def test_modules_locations_and_attributes_are_no_obstacle() -> None:
    text = (
        '#loc = loc("f.py":1:1)\nmodule @jit_f attributes '
        "{mhlo.num_partitions = 1 : i32, jax.uses_shape_polymorphism = false} {\n"
        '  func.func public @main(%arg0: tensor<2xf32> {jax.buffer_donor = true} loc("x")) -> (tensor<2xf32> '
        '{jax.result_info = ""})'
        " {\n"
        '    %0 = stablehlo.negate %arg0 {mhlo.sharding = "{replicated}"} : tensor<2xf32> loc(#loc1)\n'
        '    return %0 : tensor<2xf32> loc(#loc)\n  } loc(#loc)\n} loc(#loc)\n#loc1 = loc("jit(f)/neg"(#loc))\n'
    )
    check(text, [values(2)], [-values(2)])


def test_the_generic_form_of_everything() -> None:
    text = (
        '"builtin.module"() <{sym_name = "m"}> ({\n'
        '  "func.func"() <{function_type = (tensor<2xf32>) -> tensor<2xf32>, sym_name = "main"}> ({\n'
        "  ^bb0(%arg0: tensor<2xf32>):\n"
        '    %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>\n'
        '    "func.return"(%0) : (tensor<2xf32>) -> ()\n  }) : () -> ()\n}) : () -> ()\n'
    )
    check(text, [values(2)], [2 * values(2)])


# Literals

LITERALS: dict[str, tuple[str, str, Any]] = {
    "splat": ("dense<3>", "tensor<2x2xi32>", np.full((2, 2), 3, np.int32)),
    "nested": ("dense<[[1, 2], [-3, 4]]>", "tensor<2x2xi8>", np.array([[1, 2], [-3, 4]], np.int8)),
    "empty": ("dense<>", "tensor<0x2xf32>", np.zeros((0, 2), np.float32)),
    "blob": ('dense<"0x0000803F000000C0">', "tensor<2xf32>", np.array([1, -2], np.float32)),
    "blob of bytes": ('dense<"0x01FF">', "tensor<2xi8>", np.array([1, -1], np.int8)),
    "blob of nibbles": ('dense<"0x010F">', "tensor<2xi4>", np.array([1, -1], ml_dtypes.int4)),
    "blob of flags": ('dense<"0x0100">', "tensor<2xi1>", np.array([True, False])),
    "packed flags": ('dense<"0x0501">', "tensor<10xi1>", np.array([1, 0, 1, 0, 0, 0, 0, 0, 1, 0], bool)),
    "flags": ("dense<[true, false]>", "tensor<2xi1>", np.array([True, False])),
    "bits of a float": ("dense<0xFF800000>", "tensor<f32>", np.float32(-np.inf)),
    "bits among numbers": ("dense<[0x7FC0, 1.5]>", "tensor<2xbf16>", np.array([np.nan, 1.5], ml_dtypes.bfloat16)),
    "fp8": ("dense<[0x7E, 1.0]>", "tensor<2xf8E4M3FN>", np.array([448, 1], ml_dtypes.float8_e4m3fn)),
    "unsigned": ("dense<[18446744073709551615, 0]>", "tensor<2xui64>", np.array([2**64 - 1, 0], np.uint64)),
    "complex": (
        "dense<[(1.0, -0.0), (0x7F800000, 2.0)]>",
        "tensor<2xcomplex<f32>>",
        np.array([1 - 0j, complex(np.inf, 2)], np.complex64),
    ),
    "complex splat": ("dense<(1.0, 2.0)>", "tensor<2xcomplex<f64>>", np.array([1 + 2j] * 2)),
}


@pytest.mark.parametrize("name", LITERALS)
def test_a_literal(name: str) -> None:
    text, t, wanted = LITERALS[name]
    wanted = np.asarray(wanted)
    found = arrays.from_literal(dense(text, type_of(t)))  # type: ignore[arg-type]
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert np.array_equal(found, wanted, equal_nan=True) if found.dtype.kind in "fc" else found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("text", "t"),
    [
        ("dense<[1, 2]>", "tensor<3xi32>"),
        ("dense<[1, 2]>", "tensor<1x2xi32>"),
        ("dense<300>", "tensor<i8>"),
        ("dense<x>", "tensor<f32>"),
        ('dense<"0x00">', "tensor<2xf32>"),
        ('dense<"zz">', "tensor<2xf32>"),
        ("dense<2>", "tensor<i1>"),
        ("dense_resource<w>", "tensor<f32>"),
    ],
)
def test_a_wrong_literal_is_refused(text: str, t: str) -> None:
    with pytest.raises(Violation) as error:
        dense(text, type_of(t))  # type: ignore[arg-type]
    assert error.value.code in ("InvalidLiteral", "LiteralSizeMismatch")


def test_types_have_one_spelling_each() -> None:
    assert set(SPELLING) == set(PTIR_DTYPES)
    for dtype in PTIR_DTYPES:
        t = tensor(dtype, (2, 3))
        assert type_of(type_text(t)) is t and DTYPES[SPELLING[dtype]] is dtype


# Elementwise

UNARY: dict[str, Any] = {
    "abs": np.abs, "ceil": np.ceil, "cosine": np.cos, "exponential": np.exp, "exponential_minus_one": np.expm1, "floor": np.floor,
    "negate": np.negative, "round_nearest_even": np.rint, "sine": np.sin, "tan": np.tan, "tanh": np.tanh, "cbrt": np.cbrt,
    "logistic": lambda x: 1 / (1 + np.exp(-x)), "sign": np.sign, "round_nearest_afz": lambda x: np.trunc(x + np.copysign(0.5, x)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_a_unary_op(name: str) -> None:
    x = 3 * values(3, 4, dtype=np.float64)
    body = f"  %0 = stablehlo.{name} %a : tensor<3x4xf64>\n  return %0 : tensor<3x4xf64>"
    check(function(body, x, results="tensor<3x4xf64>"), [x], [UNARY[name](x)], 1e-12)


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "log", "log_plus_one"])
def test_a_unary_op_of_what_is_positive(name: str) -> None:
    x = np.array([0.0, 1e-30, 0.5, 2.0, np.inf], np.float32)
    meaning: Any = {"sqrt": np.sqrt, "rsqrt": lambda v: 1 / np.sqrt(v), "log": np.log, "log_plus_one": np.log1p}[name]
    with np.errstate(divide="ignore"):
        check(
            function(f"  %0 = stablehlo.{name} %a : tensor<5xf32>\n  return %0 : tensor<5xf32>", x, results="tensor<5xf32>"),
            [x],
            [meaning(x)],
        )


BINARY: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize(  # flags have no difference
    ("name", "dtype"), [(n, t) for n in BINARY for t in ("int8", "uint16", "bool") if (n, t) != ("subtract", "bool")]
)
def test_a_binary_op(name: str, dtype: str) -> None:
    x, y = (whole(3, 40, low=-120, high=120, seed=s).astype(dtype) for s in (0, 1))
    of_flags = {"add": np.logical_or, "multiply": np.logical_and, "maximum": np.logical_or, "minimum": np.logical_and}
    meaning = of_flags.get(name, BINARY[name]) if dtype == "bool" else BINARY[name]
    text = function(f"  %0 = stablehlo.{name} %a, %b : {mlir(x)}\n  return %0 : {mlir(x)}", x, y, results=mlir(x))
    check(text, [x, y], [meaning(x, y)])


def test_division_truncates_and_remainders_have_the_sign_of_the_dividend() -> None:
    x, y = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    body = (
        "  %0 = stablehlo.divide %a, %b : tensor<4xi32>\n  %1 = stablehlo.remainder %a, %b : tensor<4xi32>\n"
        "  return %0, %1 : tensor<4xi32>, tensor<4xi32>"
    )
    text = function(body, x, y, results="tensor<4xi32>, tensor<4xi32>")
    check(text, [x, y], [np.array([3, -3, -3, 3], np.int32), np.array([1, -1, 1, -1], np.int32)])


@pytest.mark.parametrize("source", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "int16"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool", "float32"])
def test_integers_wrap_when_they_are_converted(source: str, target: str) -> None:
    info = np.iinfo(source)
    x = np.array([info.min, info.max, info.min // 2, info.max // 3, 0, 1, 200 % info.max], source)
    t = f"tensor<7x{MLIR[target]}>"
    text = function(f"  %0 = stablehlo.convert %a : ({mlir(x)}) -> {t}\n  return %0 : {t}", x, results=t)
    check(text, [x], [x.astype(target)])


def test_four_bit_integers_wrap() -> None:
    x = np.array([7, 8, -9, 31], np.int32)
    text = function(
        "  %0 = stablehlo.convert %a : (tensor<4xi32>) -> tensor<4xi4>\n  return %0 : tensor<4xi4>", x, results="tensor<4xi4>"
    )
    assert compute(text, x)[0].astype(int).tolist() == [7, -8, 7, -1]


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
@pytest.mark.parametrize(("part", "dtype"), [("f32", np.complex64), ("f64", np.complex128)])
def test_complex_roots(part: str, dtype: Any, engine: str) -> None:
    """Against NumPy in extended precision: parts that are infinite, NaN, nearly infinite, subnormal, and zeros of either sign."""
    if engine == "native" and not native.available():
        pytest.skip("there is no compiler")
    info, draw = np.finfo(dtype), np.random.default_rng(0)
    edges = [1.0, -2.0, 0.0, -0.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.smallest_subnormal, -info.tiny]
    drawn = (draw.standard_normal((2, 1000)) * np.exp2(draw.integers(-100, 100, (2, 1000)))).tolist()
    z = np.array([complex(a, b) for a in edges for b in edges] + list(map(complex, *drawn))).astype(dtype)
    t = f"tensor<{len(z)}xcomplex<{part}>>"
    program = ptir.read(f"func.func @main(%a: {t}) -> {t} {{\n  %0 = stablehlo.sqrt %a : {t}\n  return %0 : {t}\n}}\n")
    (found,) = ptir.run(program, {"a": z}, engine=engine).values()
    with np.errstate(all="ignore"):
        wanted = np.sqrt(z.astype(np.clongdouble)).astype(dtype)
    for ours, theirs in ((found.real, wanted.real), (found.imag, wanted.imag)):
        np.testing.assert_allclose(ours, theirs, rtol=4 * float(info.eps), atol=4 * float(info.smallest_subnormal))
        known = ~np.isnan(theirs)
        assert (np.signbit(ours[known]) == np.signbit(theirs[known])).all()


def test_complex_numbers_lose_their_imaginary_part() -> None:
    z = (X + 1j * Y).astype(np.complex64)
    body = "  %0 = stablehlo.convert %a : (tensor<3x4xcomplex<f32>>) -> tensor<3x4xf32>\n  return %0 : tensor<3x4xf32>"
    check(function(body, z, results="tensor<3x4xf32>"), [z], [X])


@pytest.mark.parametrize(("word", "meaning"), [("EQ", np.equal), ("NE", np.not_equal), ("LT", np.less), ("GE", np.greater_equal)])
def test_comparisons(word: str, meaning: Any) -> None:
    x, y = np.array([1, 2, np.nan], np.float32), np.array([2, 2, np.nan], np.float32)
    pretty = f"stablehlo.compare {word}, %a, %b, FLOAT : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>"
    generic = (
        f'"stablehlo.compare"(%a, %b) <{{comparison_direction = #stablehlo<comparison_direction {word}>}}> '
        ": (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>"
    )
    for op in (pretty, generic):
        check(function(f"  %0 = {op}\n  return %0 : tensor<3xi1>", x, y, results="tensor<3xi1>"), [x, y], [meaning(x, y)])


def test_the_total_order_of_floats() -> None:
    x = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], np.float32)
    x[0] = np.copysign(np.nan, -1)
    y = np.roll(x, -1)
    op = "stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>"
    check(
        function(f"  %0 = {op}\n  return %0 : tensor<8xi1>", x, y, results="tensor<8xi1>"),
        [x, y],
        [np.array([True] * 7 + [False])],
    )


def test_scalars_of_select_and_clamp_are_spread() -> None:
    body = (
        "  %p = stablehlo.constant dense<false> : tensor<i1>\n  %l = stablehlo.constant dense<-0.5> : tensor<f32>\n"
        "  %h = stablehlo.constant dense<0.25> : tensor<f32>\n"
        "  %0 = stablehlo.clamp %l, %a, %h : (tensor<f32>, tensor<3x4xf32>, tensor<f32>) -> tensor<3x4xf32>\n"
        "  %1 = stablehlo.select %p, %a, %0 : tensor<i1>, tensor<3x4xf32>\n  return %1 : tensor<3x4xf32>"
    )
    check(function(body, X, results="tensor<3x4xf32>"), [X], [np.clip(X, -0.5, 0.25)])


def test_bits_of_another_width() -> None:
    x = np.array([0x01020304, -1], np.int32)
    body = (
        "  %0 = stablehlo.bitcast_convert %a : (tensor<2xi32>) -> tensor<2x4xi8>\n"
        "  %1 = stablehlo.bitcast_convert %0 : (tensor<2x4xi8>) -> tensor<2xi32>\n"
        "  %2 = stablehlo.bitcast_convert %a : (tensor<2xi32>) -> tensor<2x32xi1>\n"
        "  %3 = stablehlo.bitcast_convert %2 : (tensor<2x32xi1>) -> tensor<2xui32>\n"
        "  return %0, %1, %3 : tensor<2x4xi8>, tensor<2xi32>, tensor<2xui32>"
    )
    text = function(body, x, results="tensor<2x4xi8>, tensor<2xi32>, tensor<2xui32>")
    check(text, [x], [x.view(np.int8).reshape(2, 4), x, x.view(np.uint32)])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "int32"])
def test_the_high_half_of_a_product(dtype: str) -> None:
    info, bits = np.iinfo(dtype), np.iinfo(dtype).bits
    x = np.array([info.max, info.min, info.max, 3, info.max // 3], dtype)
    y = np.array([info.max, info.min, info.min, info.max, 7], dtype)
    wanted = [(int(a) * int(b)) >> bits for a, b in zip(x, y, strict=True)]
    text = function(
        f'  %0 = "chlo.mulhi"(%a, %b) : ({mlir(x)}, {mlir(x)}) -> {mlir(x)}\n  return %0 : {mlir(x)}', x, y, results=mlir(x)
    )
    assert [int(v) for v in compute(text, x, y)[0]] == wanted


# Movement

MOVED: dict[str, tuple[str, str, Any]] = {
    "slice": ("stablehlo.slice %a [0:3:2, 1:4] : (tensor<3x4xf32>) -> tensor<2x3xf32>", "tensor<2x3xf32>", X[0:3:2, 1:4]),
    "steps": ("stablehlo.slice %a [1:3, 0:4:3] : (tensor<3x4xf32>) -> tensor<2x2xf32>", "tensor<2x2xf32>", X[1:3, 0:4:3]),
    "reverse": ("stablehlo.reverse %a, dims = [0, 1] : tensor<3x4xf32>", "tensor<3x4xf32>", X[::-1, ::-1]),
    "broadcast": (
        "stablehlo.broadcast_in_dim %a, dims = [2, 0] : (tensor<3x4xf32>) -> tensor<4x2x3xf32>", "tensor<4x2x3xf32>",
        np.broadcast_to(X.T[:, None, :], (4, 2, 3)),
    ),
    "reshape": ("stablehlo.reshape %a : (tensor<3x4xf32>) -> tensor<2x6xf32>", "tensor<2x6xf32>", X.reshape(2, 6)),
    "concatenate": (
        "stablehlo.concatenate %a, %a, dim = 1 : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x8xf32>", "tensor<3x8xf32>",
        np.concatenate([X, X], 1),
    ),
    "iota": ("stablehlo.iota dim = 1 : "
        "tensor<2x3xi32>", "tensor<2x3xi32>", np.broadcast_to(np.arange(3, dtype=np.int32), (2, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_movement(name: str) -> None:
    op, t, wanted = MOVED[name]
    check(function(f"  %0 = {op}\n  return %0 : {t}", X, results=t), [X], [wanted])


@pytest.mark.parametrize(
    ("low", "high", "interior"), [([1, 0], [0, 2], [1, 0]), ([-1, 2], [1, -1], [0, 2]), ([-2, 0], [-1, 0], [3, 0])]
)
@pytest.mark.parametrize("known", [True, False])
def test_padding(low: list[int], high: list[int], interior: list[int], known: bool) -> None:
    full = np.full([(n - 1) * (k + 1) + 1 for n, k in zip(X.shape, interior, strict=True)], 7, np.float32)
    full[:: interior[0] + 1, :: interior[1] + 1] = X
    full = np.pad(full, [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)], constant_values=7)
    wanted = full[tuple(slice(max(-a, 0), n - max(-b, 0)) for a, b, n in zip(low, high, full.shape, strict=True))]
    value = "  %v = stablehlo.constant dense<7.0> : tensor<f32>\n" if known else "  %v = stablehlo.negate %b : tensor<f32>\n"
    op = (
        f"stablehlo.pad %a, %v, low = {low}, high = {high}, interior = {interior} : (tensor<3x4xf32>, "
        f"tensor<f32>) -> {mlir(wanted)}"
    )
    seven = np.float32(-7)
    check(function(f"{value}  %0 = {op}\n  return %0 : {mlir(wanted)}", X, seven, results=mlir(wanted)), [X, seven], [wanted])


def test_slices_and_pads_by_data() -> None:
    x, i64 = np.arange(12, dtype=np.float32).reshape(3, 4), np.int64
    starts, limits, strides = np.array([1, 0], i64), np.array([3, 4], i64), np.array([1, 2], i64)
    body = f"%0 = stablehlo.real_dynamic_slice %a, %b, %c, %d : ({', '.join(map(mlir, (x, starts, limits, strides)))}) -> "
    body += "tensor<2x2xf32>\nreturn %0 : tensor<2x2xf32>"
    text = function(body, x, starts, limits, strides, results="tensor<2x2xf32>")
    check(text, [x, starts, limits, strides], [x[1:3, 0:4:2]])
    low, high, inner = np.array([1, -1], i64), np.array([0, 2], i64), np.array([1, 0], i64)
    value = np.array(9, np.float32)
    types = ", ".join(map(mlir, (x, value, low, high, inner)))
    body = f"%0 = stablehlo.dynamic_pad %a, %b, %c, %d, %e : ({types}) -> tensor<6x5xf32>\nreturn %0 : tensor<6x5xf32>"
    wanted = np.full((6, 5), 9, np.float32)
    wanted[1::2, :3] = x[:, 1:]
    check(function(body, x, value, low, high, inner, results="tensor<6x5xf32>"), [x, value, low, high, inner], [wanted])


def test_a_size_that_is_set_to_a_constant_cuts() -> None:
    x, t = np.arange(5, dtype=np.float32), "tensor<?xf32, #stablehlo.bounds<5>>"
    body = f"%n = stablehlo.constant dense<3> : tensor<i32>\n%0 = stablehlo.set_dimension_size %a, %n, dim = 0 : ({mlir(x)}, "
    check(function(f"{body}tensor<i32>) -> {t}\nreturn %0 : {t}", x, results=t), [x], [x[:3]])


def test_a_function_has_attributes_and_a_private_main_is_one() -> None:
    t = "tensor<f32>"
    text = f'func.func private @main(%a: {t}) -> {t} attributes {{a.b = "c"}} {{\n  return %a : {t}\n}}\n'
    assert compute(text, np.float32(3)) == [3]


def test_dynamic_slices_are_moved_inside() -> None:
    i, j = np.int32(9), np.uint64(1)
    body = (
        "  %z = stablehlo.constant dense<[[5.0, 6.0]]> : tensor<1x2xf32>\n"
        "  %k = stablehlo.convert %c : (tensor<ui64>) -> tensor<i32>\n"
        "  %0 = stablehlo.dynamic_slice %a, %b, %k, sizes = [2, 2] : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) "
        "-> tensor<2x2xf32>\n"
        "  %1 = stablehlo.dynamic_update_slice %a, %z, %b, %k : (tensor<3x4xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> "
        "tensor<3x4xf32>\n  return %0, %1 : tensor<2x2xf32>, tensor<3x4xf32>"
    )
    changed = X.copy()
    changed[2, 1:3] = [5, 6]
    text = function(body, X, i, j, results="tensor<2x2xf32>, tensor<3x4xf32>")
    check(text, [X, i, j], [X[1:3, 1:3], changed])


# Contractions


def test_dot_general_in_both_forms() -> None:
    a, b = values(2, 3, 4), values(2, 4, 5, seed=1)
    types = "(tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>"
    pretty = (
        f"stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = "
        f"[HIGHEST, HIGHEST] : {types}"
    )
    numbers = (
        "lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], "
        "rhs_contracting_dimensions = [1]"
    )
    generic = f'"stablehlo.dot_general"(%a, %b) <{{dot_dimension_numbers = #stablehlo.dot<{numbers}>}}> : {types}'
    for op in (pretty, generic):
        check(function(f"  %0 = {op}\n  return %0 : tensor<2x3x5xf32>", a, b, results="tensor<2x3x5xf32>"), [a, b], [a @ b], 1e-5)


def test_products_of_narrow_integers_are_summed_in_the_dtype_of_the_result() -> None:
    a, b = np.full((2, 9), 100, np.int8), np.full((9, 2), 101, np.int8)
    op = "stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x9xi8>, tensor<9x2xi8>) -> tensor<2x2xi32>"
    text = function(f"  %0 = {op}\n  return %0 : tensor<2x2xi32>", a, b, results="tensor<2x2xi32>")
    check(text, [a, b], [a.astype(np.int32) @ b.astype(np.int32)])


def convolution(x: Any, w: Any, strides: Any, pads: Any, base: Any, dilation: Any, groups: int, batches: int, turned: Any) -> Any:
    """A convolution of [N, H, W, C] by [KH, KW, I, O], element by element."""
    spread = np.zeros((x.shape[0], *((n - 1) * b + 1 for n, b in zip(x.shape[1:3], base, strict=True)), x.shape[3]))
    spread[:, :: base[0], :: base[1]] = x
    x = np.pad(spread, [(0, 0), *((max(a, 0), max(b, 0)) for a, b in pads), (0, 0)])
    x = x[:, max(-pads[0][0], 0) : x.shape[1] - max(-pads[0][1], 0), max(-pads[1][0], 0) : x.shape[2] - max(-pads[1][1], 0)]
    w = w[:: -1 if turned[0] else 1, :: -1 if turned[1] else 1]
    n, out = x.shape[0] // batches, w.shape[3]
    sizes = [(x.shape[1 + k] - (w.shape[k] - 1) * dilation[k] - 1) // strides[k] + 1 for k in (0, 1)]
    y = np.zeros((n, *sizes, out))
    for o in range(out):
        group, part = o // (out // groups), o // (out // batches)
        inputs = slice(group * w.shape[2], (group + 1) * w.shape[2])
        for i, j in np.ndindex(*sizes):
            for p, q in np.ndindex(*w.shape[:2]):
                at = i * strides[0] + p * dilation[0], j * strides[1] + q * dilation[1]
                y[:, i, j, o] += x[part * n : (part + 1) * n, at[0], at[1], inputs] @ w[p, q, :, o]
    return y


GEOMETRIES = [
    ((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1, 1, (False, False)),
    ((2, 1), ((1, 0), (2, 1)), (1, 1), (1, 2), 1, 1, (True, False)),
    ((1, 2), ((-1, 2), (1, -1)), (2, 1), (1, 1), 1, 1, (False, False)),
    ((1, 1), ((1, 1), (1, 1)), (1, 2), (2, 1), 2, 1, (False, True)),
    ((1, 1), ((1, 1), (0, 0)), (1, 1), (1, 1), 4, 1, (False, False)),
    ((1, 1), ((0, 0), (1, 0)), (1, 1), (1, 1), 1, 2, (False, False)),
    ((1, 1), ((0, -4), (0, 0)), (1, 1), (1, 1), 1, 1, (False, False)),  # the kernel fits nowhere
    ((1, 1), ((0, 0), (0, 0)), (1, 1), (3, 1), 2, 1, (False, False)),
]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolutions(geometry: Any) -> None:
    strides, pads, base, dilation, groups, batches, turned = geometry
    x, w = values(2, 6, 7, 4, dtype=np.float64), values(3, 2, 4 // groups, 8, seed=1, dtype=np.float64)
    wanted = np.transpose(convolution(x, w, *geometry), (0, 3, 1, 2))
    window = (
        f"stride = {list(strides)}, pad = {[list(p) for p in pads]}, lhs_dilate = {list(base)}, rhs_dilate = {list(dilation)}"
    )
    flags = ", ".join(str(t).lower() for t in turned)
    attrs = f"{{batch_group_count = {batches} : i64, feature_group_count = {groups} : i64}}"
    op = (
        f"stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, f, 0, 1], window = "
        f"{{{window}, reverse = [{flags}]}} "
        f"{attrs} : ({mlir(x)}, {mlir(w)}) -> {mlir(wanted)}"
    )
    check(function(f"  %0 = {op}\n  return %0 : {mlir(wanted)}", x, w, results=mlir(wanted)), [x, w], [wanted], 1e-10)


# Regions


@pytest.mark.parametrize(
    ("op", "start", "meaning"),
    [("add", "0.0", np.sum), ("multiply", "1.0", np.prod), ("maximum", "0xFF800000", np.max), ("minimum", "0.5", None)],
)
def test_reductions_that_ptir_has(op: str, start: str, meaning: Any) -> None:
    wanted = np.minimum(X.min(1), np.float32(0.5)) if meaning is None else meaning(X, axis=1)
    init = f"  %i = stablehlo.constant dense<{start}> : tensor<f32>\n"
    types = ": (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>"
    pretty = f"stablehlo.reduce(%a init: %i) applies stablehlo.{op} across dimensions = [1] {types}"
    generic = (
        f'"stablehlo.reduce"(%a, %i) <{{dimensions = array<i64: 1>}}> ({ADD.replace("stablehlo.add", f"stablehlo.{op}")}) {types}'
    )
    for form in (pretty, generic):
        check(function(f"{init}  %0 = {form}\n  return %0 : tensor<3xf32>", X, results="tensor<3xf32>"), [X], [wanted])


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13])
def test_a_reduction_of_pairs_by_its_region(n: int) -> None:
    """The largest element and its place, in one reduction."""
    x, places = whole(n, 3, high=4), np.broadcast_to(np.arange(n, dtype=np.int32)[:, None], (n, 3))
    body = (
        "  %i = stablehlo.constant dense<-2147483648> : tensor<i32>\n  %z = stablehlo.constant dense<0> : tensor<i32>\n"
        "  %0:2 = stablehlo.reduce(%a init: %i), (%b init: %z) across dimensions = [0] : "
        f"({mlir(x)}, {mlir(x)}, tensor<i32>, tensor<i32>) -> (tensor<3xi32>, tensor<3xi32>)\n"
        "   reducer(%p: tensor<i32>, %q: tensor<i32>) (%r: tensor<i32>, %s: tensor<i32>) {\n"
        "    %1 = stablehlo.compare GE, %p, %q, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "    %2 = stablehlo.select %1, %p, %q : tensor<i1>, tensor<i32>\n    %3 = stablehlo.select %1, %r, %s : "
        "tensor<i1>, tensor<i32>\n"
        "    stablehlo.return %2, %3 : tensor<i32>, tensor<i32>\n  }\n  return %0#0, %0#1 : tensor<3xi32>, tensor<3xi32>"
    )
    text = function(body, x, places, results="tensor<3xi32>, tensor<3xi32>")
    check(text, [x, places], [x.max(0), x.argmax(0).astype(np.int32)])


WINDOW = '"stablehlo.reduce_window"(%a, %i) <{{window_dimensions = array<i64: {}>{}}}> ({}) : (tensor<9xf32>, tensor<f32>) -> {}'


@pytest.mark.parametrize("op", ["add", "multiply", "maximum"])
def test_windows(op: str) -> None:
    x, meaning = values(9), {"add": np.sum, "multiply": np.prod, "maximum": np.max}[op]
    start = {"add": 0.0, "multiply": 1.0, "maximum": -10.0}[op]
    full = np.concatenate([[np.float32(start)] * 2, x, [np.float32(start)]])
    wanted = np.array([meaning(full[k : k + 5 : 2]) for k in range(0, 8, 3)], np.float32)
    more = ", window_strides = array<i64: 3>, window_dilations = array<i64: 2>, padding = dense<[[2, 1]]> : tensor<1x2xi64>"
    form = WINDOW.format(3, more, ADD.replace("stablehlo.add", f"stablehlo.{op}"), "tensor<3xf32>")
    init = f"  %i = stablehlo.constant dense<{start}> : tensor<f32>\n"
    check(function(f"{init}  %0 = {form}\n  return %0 : tensor<3xf32>", x, results="tensor<3xf32>"), [x], [wanted])


@pytest.mark.parametrize("op", ["add", "subtract"])
def test_a_window_that_fits_nowhere_gives_nothing(op: str) -> None:
    form = WINDOW.format(12, "", ADD.replace("stablehlo.add", f"stablehlo.{op}"), "tensor<0xf32>")
    body = f"  %i = stablehlo.constant dense<0.0> : tensor<f32>\n  %0 = {form}\n  return %0 : tensor<0xf32>"
    check(function(body, values(9), results="tensor<0xf32>"), [values(9)], [np.zeros(0, np.float32)])


@pytest.mark.parametrize(
    ("op", "start", "backward"), [("add", "0.0", False), ("maximum", "0xFF800000", True), ("multiply", "1.0", False)]
)
def test_running_combinations(op: str, start: str, backward: bool) -> None:
    x = values(9)
    ufunc: Any = {"add": np.add, "maximum": np.maximum, "multiply": np.multiply}[op]
    wanted = ufunc.accumulate(x[::-1])[::-1] if backward else ufunc.accumulate(x)
    more = f", padding = dense<[[{'0, 8' if backward else '8, 0'}]]> : tensor<1x2xi64>"
    form = WINDOW.format(9, more, ADD.replace("stablehlo.add", f"stablehlo.{op}"), "tensor<9xf32>")
    init = f"  %i = stablehlo.constant dense<{start}> : tensor<f32>\n"
    check(function(f"{init}  %0 = {form}\n  return %0 : tensor<9xf32>", x, results="tensor<9xf32>"), [x], [wanted], 1e-5)


@pytest.mark.parametrize("start", [0.0, 2.5])
@pytest.mark.parametrize("above", [0, 1])
def test_running_sums_of_rows_from_a_start_beside_padding(above: int, start: float) -> None:
    """The start is the padding, too."""
    x, t = values(3, 5), f"tensor<{3 + above}x5xf32>"
    full = np.full((3 + above, 9), start, np.float32)
    full[above:, 4:] = x
    wanted = np.stack([start + full[:, k : k + 5].sum(1) for k in range(5)], 1)
    op = f'"stablehlo.reduce_window"(%a, %i) <{{window_dimensions = array<i64: 1, 5>, padding = dense<[[{above}, 0], [4, 0]]> : '
    op += f"tensor<2x2xi64>}}> ({ADD}) : (tensor<3x5xf32>, tensor<f32>) -> {t}"
    init = f"  %i = stablehlo.constant dense<{start}> : tensor<f32>\n"
    check(function(f"{init}  %0 = {op}\n  return %0 : {t}", x, results=t), [x], [wanted], 1e-5)


def test_a_map_reads_scalars_from_outside() -> None:
    body = (
        '  %0 = "stablehlo.map"(%a) <{dimensions = array<i64: 0, 1>}> ({\n  ^bb0(%p: tensor<f32>):\n'
        "    %1 = stablehlo.multiply %p, %b : tensor<f32>\n    stablehlo.return %1 : tensor<f32>\n"
        "  }) : (tensor<3x4xf32>) -> tensor<3x4xf32>\n  return %0 : tensor<3x4xf32>"
    )
    three = np.float32(3)
    check(function(body, X, three, results="tensor<3x4xf32>"), [X, three], [3 * X])


def test_a_loop_reads_values_and_constants_from_outside() -> None:
    body = (
        "  %n = stablehlo.constant dense<5> : tensor<i32>\n  %z = stablehlo.constant dense<0> : tensor<i32>\n"
        "  %s = stablehlo.add %b, %b : tensor<3x4xf32>\n"
        "  %0:2 = stablehlo.while(%i = %z, %x = %a) : tensor<i32>, tensor<3x4xf32>\n  cond {\n"
        "    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n    stablehlo.return %c : tensor<i1>\n"
        "  } do {\n    %one = stablehlo.constant dense<1> : tensor<i32>\n    %j = stablehlo.add %i, %one : tensor<i32>\n"
        "    %y = stablehlo.add %x, %s : tensor<3x4xf32>\n    stablehlo.return %j, %y : tensor<i32>, tensor<3x4xf32>\n  }\n"
        "  return %0#0, %0#1 : tensor<i32>, tensor<3x4xf32>"
    )
    text = function(body, X, Y, results="tensor<i32>, tensor<3x4xf32>")
    check(text, [X, Y], [np.int32(5), X + 10 * Y], 1e-5)


@pytest.mark.parametrize(("index", "factor"), [(0, 1), (1, 2), (2, 3), (-1, 3), (9, 3)])
def test_the_last_branch_is_that_of_every_other_index(index: int, factor: int) -> None:
    branches = ", ".join(
        f"{{\n    %c{k} = stablehlo.constant dense<{k + 1}.0> : tensor<f32>\n"
        f"    %m{k} = stablehlo.multiply %b, %c{k} : tensor<f32>\n"
        f"    stablehlo.return %m{k} : tensor<f32>\n  }}"
        for k in range(3)
    )
    text = function(
        f'  %0 = "stablehlo.case"(%a) ({branches}) : (tensor<i32>) -> tensor<f32>\n  return %0 : tensor<f32>',
        np.int32(0),
        np.float32(0),
        results=SCALAR,
    )
    check(text, [np.int32(index), np.float32(1.5)], [np.float32(1.5 * factor)])


def test_calls_and_composites_are_inlined() -> None:
    text = (
        "func.func @main(%a: tensor<f32>) -> tensor<f32> "
        "{\n  %0:2 = call @two(%a) : (tensor<f32>) -> (tensor<f32>, tensor<f32>)\n"
        '  %1 = stablehlo.composite "my.op" %0#1 {decomposition = @inc, version = 1 : i32} : (tensor<f32>) -> tensor<f32>\n'
        "  %2 = stablehlo.add %0#0, %1 : tensor<f32>\n  return %2 : tensor<f32>\n}\n"
        "func.func private @two(%a: tensor<f32>) -> (tensor<f32>, tensor<f32>) "
        "{\n  %0 = func.call @inc(%a) : (tensor<f32>) -> tensor<f32>\n"
        "  return %a, %0 : tensor<f32>, tensor<f32>\n}\n"
        "func.func private @inc(%a: tensor<f32>) -> tensor<f32> {\n  %c = stablehlo.constant dense<1.0> : tensor<f32>\n"
        "  %0 = stablehlo.add %a, %c : tensor<f32>\n  return %0 : tensor<f32>\n}\n"
    )
    assert len(ptir.read(text).functions) == 1
    check(text, [np.float32(3)], [np.float32(8)])


# Gather, scatter, sort


def gathered(x: Any, indices: Any, f: dict[str, Any], sizes: list[int]) -> Any:
    """The specification of gather, element by element."""
    vector = f["index_vector_dim"]
    batch = [n for a, n in enumerate(indices.shape) if a != vector]
    dropped = [*f["collapsed_slice_dims"], *f["operand_batching_dims"]]
    windows = [d for d in range(x.ndim) if d not in dropped]
    rank = len(batch) + len(windows)
    outer = [a for a in range(rank) if a not in f["offset_dims"]]
    shape = [0] * rank
    for a, n in zip(outer, batch, strict=True):
        shape[a] = n
    for a, d in zip(f["offset_dims"], windows, strict=True):
        shape[a] = sizes[d]
    out = np.zeros(shape, x.dtype)
    for at in np.ndindex(*shape):
        place = [at[a] for a in outer]
        full = [0] * x.ndim
        row = indices[(*place[:vector], slice(None), *place[vector:])] if vector < indices.ndim else [indices[tuple(place)]]
        for k, d in enumerate(f["start_index_map"]):
            full[d] = min(max(int(row[k]), 0), x.shape[d] - sizes[d])
        for d, a in zip(f["operand_batching_dims"], f["start_indices_batching_dims"], strict=True):
            full[d] = place[a - (a > vector)]
        for a, d in zip(f["offset_dims"], windows, strict=True):
            full[d] += at[a]
        out[at] = x[tuple(full)]
    return out


GATHERS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], list[int]]] = [
    ((5, 4), (3, 1), {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1}, [1, 4]),
    ((5, 4), (2, 3), {"offset_dims": [0], "collapsed_slice_dims": [1], "start_index_map": [1], "index_vector_dim": 2}, [5, 1]),
    (
        (5, 4, 3),
        (2, 2),
        {"offset_dims": [1, 2], "collapsed_slice_dims": [1], "start_index_map": [2, 0], "index_vector_dim": 0},
        [2, 1, 2],
    ),
    (
        (5, 4),
        (6, 2),
        {"offset_dims": [], "collapsed_slice_dims": [0, 1], "start_index_map": [0, 1], "index_vector_dim": 1},
        [1, 1],
    ),
    (
        (2, 5, 4),
        (3, 2, 1),
        {
            "offset_dims": [2],
            "collapsed_slice_dims": [1],
            "operand_batching_dims": [0],
            "start_indices_batching_dims": [1],
            "start_index_map": [1],
            "index_vector_dim": 2,
        },
        [1, 1, 4],
    ),
    (
        (2, 5, 4),
        (2, 3, 1),
        {
            "offset_dims": [1, 3],
            "operand_batching_dims": [0],
            "start_indices_batching_dims": [0],
            "start_index_map": [2],
            "index_vector_dim": 2,
        },
        [1, 5, 2],
    ),
    (
        (2, 5, 4),
        (1, 3, 2),
        {
            "offset_dims": [2],
            "collapsed_slice_dims": [1],
            "operand_batching_dims": [0],
            "start_indices_batching_dims": [2],
            "start_index_map": [1],
            "index_vector_dim": 0,
        },
        [1, 1, 4],
    ),
]
LISTS = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map")


@pytest.mark.parametrize("case", GATHERS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_gather(case: Any, dtype: Any) -> None:
    shape, of_indices, given, sizes = case
    f = {**{name: [] for name in LISTS}, **given}
    x, indices = values(*shape), whole(*of_indices, low=0 if dtype is np.uint8 else -3, high=8, dtype=dtype)
    wanted = gathered(x, indices, f, sizes)
    numbers = ", ".join(f"{k} = {v}" for k, v in f.items())
    op = (
        f'"stablehlo.gather"(%a, %b) <{{dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false, '
        f"slice_sizes = array<i64: {', '.join(map(str, sizes))}>}}> : ({mlir(x)}, {mlir(indices)}) -> {mlir(wanted)}"
    )
    check(function(f"  %0 = {op}\n  return %0 : {mlir(wanted)}", x, indices, results=mlir(wanted)), [x, indices], [wanted])


def scattered(x: Any, indices: Any, updates: Any, f: dict[str, Any], combine: Any) -> Any:
    """The specification of scatter, element by element."""
    out, vector = x.copy(), f["index_vector_dim"]
    windows = [d for d in range(x.ndim) if d not in (*f["inserted_window_dims"], *f["input_batching_dims"])]
    outer = [a for a in range(updates.ndim) if a not in f["update_window_dims"]]
    for at in np.ndindex(*updates.shape):
        place = [at[a] for a in outer]
        full = [0] * x.ndim
        row = indices[(*place[:vector], slice(None), *place[vector:])] if vector < indices.ndim else [indices[tuple(place)]]
        for k, d in enumerate(f["scatter_dims_to_operand_dims"]):
            full[d] += int(row[k])
        for d, a in zip(f["input_batching_dims"], f["scatter_indices_batching_dims"], strict=True):
            full[d] += place[a - (a > vector)]
        for a, d in zip(f["update_window_dims"], windows, strict=True):
            full[d] += at[a]
        if all(0 <= i < n for i, n in zip(full, x.shape, strict=True)):
            out[tuple(full)] = combine(out[tuple(full)], updates[at])
    return out


SCATTERS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    (
        (5, 4),
        (6, 1),
        (6, 4),
        {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1},
    ),
    ((5, 4), (3, 2), (3, 2, 2), {"update_window_dims": [1, 2], "scatter_dims_to_operand_dims": [1, 0], "index_vector_dim": 1}),
    ((5, 4), (7, 2), (7,), {"inserted_window_dims": [0, 1], "scatter_dims_to_operand_dims": [0, 1], "index_vector_dim": 1}),
    (
        (2, 5, 4),
        (3, 2, 1),
        (3, 2, 4),
        {
            "update_window_dims": [2],
            "inserted_window_dims": [1],
            "input_batching_dims": [0],
            "scatter_indices_batching_dims": [1],
            "scatter_dims_to_operand_dims": [1],
            "index_vector_dim": 2,
        },
    ),
    (
        (2, 5, 4),
        (2, 3, 1),
        (2, 3, 2, 4),
        {
            "update_window_dims": [2, 3],
            "input_batching_dims": [0],
            "scatter_indices_batching_dims": [0],
            "scatter_dims_to_operand_dims": [1],
            "index_vector_dim": 2,
        },
    ),
    (
        (2, 5, 4),
        (1, 3, 2),
        (3, 2, 4),
        {
            "update_window_dims": [2],
            "inserted_window_dims": [1],
            "input_batching_dims": [0],
            "scatter_indices_batching_dims": [2],
            "scatter_dims_to_operand_dims": [1],
            "index_vector_dim": 0,
        },
    ),
]
UPDATES: dict[str, tuple[str, Any]] = {
    "add": ("%s = stablehlo.add %p, %q : tensor<i32>", lambda a, b: a + b),
    "multiply": ("%s = stablehlo.multiply %q, %p : tensor<i32>", lambda a, b: a * b),
    "minimum": ("%s = stablehlo.minimum %p, %q : tensor<i32>", min),
    "xor": ("%s = stablehlo.xor %p, %q : tensor<i32>", lambda a, b: a ^ b),
    "replace": ("", lambda a, b: b),
    "twice": (
        "%t = stablehlo.add %q, %q : tensor<i32>\n    %s = stablehlo.subtract %p, %t : tensor<i32>",
        lambda a, b: a - 2 * b,
    ),
}


@pytest.mark.parametrize("case", SCATTERS)
@pytest.mark.parametrize("kind", UPDATES)
def test_scatter(case: Any, kind: str) -> None:
    """Indices outside leave their elements out; a region that is none of PTIR's runs in a loop."""
    shape, of_indices, of_updates, given = case
    names = (
        "update_window_dims",
        "inserted_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
        "scatter_dims_to_operand_dims",
    )
    f = {**{name: [] for name in names}, **given}
    x, indices, updates = whole(*shape), whole(*of_indices, low=-2, high=6, seed=3), whole(*of_updates, seed=4)
    text, combine = UPDATES[kind]
    numbers = ", ".join(f"{k} = {v}" for k, v in f.items())
    given = "%s" if text else "%q"
    region = f"{{\n  ^bb0(%p: tensor<i32>, %q: tensor<i32>):\n    {text}\n    stablehlo.return {given} : tensor<i32>\n  }}"
    op = (
        f'"stablehlo.scatter"(%a, %b, %c) '
        f"<{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, unique_indices = false}}> "
        f"({region}) : ({mlir(x)}, {mlir(indices)}, {mlir(updates)}) -> {mlir(x)}"
    )
    wanted = scattered(x, indices, updates, f, combine)
    check(
        function(f"  %0 = {op}\n  return %0 : {mlir(x)}", x, indices, updates, results=mlir(x)), [x, indices, updates], [wanted]
    )


def sort_text(x: Any, comparator: str, result: str, operands: int = 1, axis: int = 1) -> str:
    t = mlir(x)
    element = f"tensor<{MLIR[str(x.dtype)]}>"
    params = ", ".join(f"%{n}: {element}" for n in ("p", "q", "r", "s")[: 2 * operands])
    names = ", ".join(f"%{n}" for n in "ab"[:operands])
    types = ", ".join([t] * operands)
    body = (
        f'  %0{":2" if operands == 2 else ""} = "stablehlo.sort"({names}) '
        f"<{{dimension = {axis} : i64, is_stable = true}}> ({{\n  ^bb0({params}):\n"
        f"    {comparator}\n    stablehlo.return {result} : tensor<i1>\n  }}) : ({types}) -> ({types})\n"
        f"  return {', '.join(f'%0#{k}' for k in range(operands))} : {types}"
    )
    return function(body, *[x] * operands, results=types)


LESS = "%1 = stablehlo.compare {}, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>"


@pytest.mark.parametrize("word", ["LT", "GT"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sort_by_one_key_is_stable(word: str, axis: int) -> None:
    x, y = whole(4, 7, low=0, high=3), np.arange(28, dtype=np.int32).reshape(4, 7)
    order = np.argsort(x if word == "LT" else -x, axis=axis, kind="stable")
    wanted = [np.take_along_axis(v, order, axis) for v in (x, y)]
    check(sort_text(x, LESS.format(word), "%1", 2, axis), [x, y], wanted)


def test_sort_by_two_keys() -> None:
    x, y = whole(3, 9, low=0, high=3), whole(3, 9, low=0, high=4, seed=1)
    comparator = (
        LESS.format("LT") + "\n    %2 = stablehlo.compare EQ, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "    %3 = stablehlo.compare LT, %r, %s : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "    %4 = stablehlo.and %2, %3 : tensor<i1>\n    %5 = stablehlo.or %1, %4 : tensor<i1>"
    )
    order = np.lexsort((y, x), axis=1)
    check(sort_text(x, comparator, "%5", 2), [x, y], [np.take_along_axis(v, order, 1) for v in (x, y)])


@pytest.mark.parametrize(
    ("comparator", "key"),
    [
        ("%2 = stablehlo.abs %p : tensor<i32>\n    %3 = stablehlo.abs %q : tensor<i32>\n    "
         "%1 = stablehlo.compare LT, %2, %3 : (tensor<i32>, tensor<i32>) -> tensor<i1>", np.abs),
        ("%1 = stablehlo.compare GT, %q, %p : (tensor<i32>, tensor<i32>) -> tensor<i1>", lambda x: x),
        ("%2 = stablehlo.subtract %q, %p : tensor<i32>\n    %z = stablehlo.constant dense<0> : tensor<i32>\n    "
         "%1 = stablehlo.compare GT, %2, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>", lambda x: x),
    ],
)  # fmt: skip
def test_sort_by_any_comparator(comparator: str, key: Any) -> None:
    """A function of each element is the key; a comparator of another form compares each element with each."""
    x = whole(3, 8)
    wanted = np.take_along_axis(x, np.argsort(key(x), axis=1, kind="stable"), 1)
    check(sort_text(x, comparator, "%1"), [x], [wanted])


def test_select_and_scatter() -> None:
    x, source = whole(6, 6, high=40), whole(3, 3, seed=1)
    wanted = np.full((6, 6), 1, np.int32)
    for i, j in np.ndindex(3, 3):
        window = x[2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        p, q = np.unravel_index(np.argmax(window), (2, 2))
        wanted[2 * i + p, 2 * j + q] += source[i, j]
    region = "{{\n  ^bb0(%p: tensor<i32>, %q: tensor<i32>):\n    {}\n    stablehlo.return %s : {}\n  }}"
    chosen = region.format("%s = stablehlo.compare GE, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>", "tensor<i1>")
    added = region.format("%s = stablehlo.add %p, %q : tensor<i32>", "tensor<i32>")
    body = (
        "  %i = stablehlo.constant dense<1> : tensor<i32>\n"
        f'  %0 = "stablehlo.select_and_scatter"(%a, %b, %i) '
        f"<{{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>}}> "
        f"({chosen}, {added}) : (tensor<6x6xi32>, tensor<3x3xi32>, tensor<i32>) -> tensor<6x6xi32>\n  return %0 : tensor<6x6xi32>"
    )
    check(function(body, x, source, results="tensor<6x6xi32>"), [x, source], [wanted])


# Linear systems and transforms


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("how", ["NO_TRANSPOSE", "TRANSPOSE"])
def test_triangular_systems_read_one_triangle(left: bool, lower: bool, how: str) -> None:
    a = values(2, 4, 4, dtype=np.float64) + 3 * np.eye(4)
    b = values(2, 4, 3, seed=1, dtype=np.float64) if left else values(2, 3, 4, seed=1, dtype=np.float64)
    a[:, 0 if lower else 3, 3 if lower else 0] = np.nan  # is not read
    half = np.tril(a) if lower else np.triu(a)
    matrix = np.swapaxes(half, 1, 2) if how == "TRANSPOSE" else half
    wanted = (
        np.linalg.solve(matrix, b)
        if left
        else np.swapaxes(np.linalg.solve(np.swapaxes(matrix, 1, 2), np.swapaxes(b, 1, 2)), 1, 2)
    )
    flags = f"left_side = {str(left).lower()}, lower = {str(lower).lower()}, unit_diagonal = false"
    op = (
        f'"stablehlo.triangular_solve"(%a, %b) <{{{flags}, transpose_a = #stablehlo<transpose {how}>}}> : '
        f"({mlir(a)}, {mlir(b)}) -> {mlir(b)}"
    )
    check(function(f"  %0 = {op}\n  return %0 : {mlir(b)}", a, b, results=mlir(b)), [a, b], [wanted], 1e-9)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(lower: bool) -> None:
    x = values(2, 5, 5, dtype=np.float64)
    a = x @ np.swapaxes(x, 1, 2) + np.eye(5)
    found = np.linalg.cholesky(a)
    op = f"stablehlo.cholesky %a, lower = {str(lower).lower()} : {mlir(a)}"
    check(
        function(f"  %0 = {op}\n  return %0 : {mlir(a)}", a, results=mlir(a)),
        [a],
        [found if lower else np.swapaxes(found, 1, 2)],
        1e-9,
    )


@pytest.mark.parametrize("n", [1, 2, 7, 12, 67, 96, 130])
def test_fourier_transforms(n: int) -> None:
    z = values(2, n, dtype=np.float64) + 1j * values(2, n, seed=1, dtype=np.float64)
    t = mlir(z)
    for kind, meaning in (("FFT", np.fft.fft), ("IFFT", np.fft.ifft)):
        body = f"  %0 = stablehlo.fft %a, type = {kind}, length = [{n}] : ({t}) -> {t}\n  return %0 : {t}"
        check(function(body, z, results=t), [z], [meaning(z)], 1e-9)


def test_fourier_transforms_of_real_numbers() -> None:
    x = values(3, 4, 10, dtype=np.float64)
    z = np.fft.rfft2(x)
    body = (
        f"  %0 = stablehlo.fft %a, type = RFFT, length = [4, 10] : ({mlir(x)}) -> {mlir(z)}\n"
        f"  %1 = stablehlo.fft %0, type = IRFFT, length = [4, 10] : ({mlir(z)}) -> {mlir(x)}\n  return %0, %1 : "
        f"{mlir(z)}, {mlir(x)}"
    )
    check(function(body, x, results=f"{mlir(z)}, {mlir(x)}"), [x], [z, x], 1e-9)


# Quantized values and random numbers


def test_quantized_values_stand_for_numbers() -> None:
    x, y = np.array([1.0, 2.04, -9.0], np.float32), np.array([3.0, 4.0, 100.0], np.float32)
    a, b, c = (
        "!quant.uniform<i8:f32, 0.1:-30>",
        "!quant.uniform<i8:f32, 0.5:-20>",
        "!quant.uniform<u8<0:200>:f32:0, {0.25:10, 0.5, 1.0:7}>",
    )
    body = (
        f"  %0 = stablehlo.uniform_quantize %a : (tensor<3xf32>) -> tensor<3x{a}>\n"
        f"  %1 = stablehlo.uniform_quantize %b : (tensor<3xf32>) -> tensor<3x{b}>\n"
        f"  %2 = stablehlo.add %0, %1 : (tensor<3x{a}>, tensor<3x{b}>) -> tensor<3x{b}>\n"
        f"  %3 = stablehlo.bitcast_convert %2 : (tensor<3x{b}>) -> tensor<3xi8>\n"
        f"  %4 = stablehlo.uniform_quantize %2 : (tensor<3x{b}>) -> tensor<3x{c}>\n"
        f"  %5 = stablehlo.bitcast_convert %4 : (tensor<3x{c}>) -> tensor<3xui8>\n"
        f"  %6 = stablehlo.uniform_dequantize %4 : (tensor<3x{c}>) -> tensor<3xf32>\n"
        "  return %3, %5, %6 : tensor<3xi8>, tensor<3xui8>, tensor<3xf32>"
    )
    text = function(body, x, y, results="tensor<3xi8>, tensor<3xui8>, tensor<3xf32>")
    numbers = [1.0 + 3.0, 2.0 + 4.0, -9.0 + 73.5]  # 2.04 is 2.0 in steps of 0.1, 100 is the largest, (127 + 20) / 2
    steps = [round(n / 0.5 - 20) for n in numbers]
    others = [round(n / s + z) for n, s, z in zip(numbers, (0.25, 0.5, 1.0), (10, 0, 7), strict=True)]
    wanted = [(q - z) * s for q, s, z in zip(others, (0.25, 0.5, 1.0), (10, 0, 7), strict=True)]
    check(text, [x, y], [np.array(steps, np.int8), np.array(others, np.uint8), np.array(wanted, np.float32)])


def test_products_of_quantized_values_are_exact() -> None:
    p, q = whole(4, 300, low=-128, high=128, dtype=np.int8), whole(300, 3, low=-128, high=128, seed=1, dtype=np.int8)
    a, b, c = "!quant.uniform<i8:f32, 0.003:-5>", "!quant.uniform<i8:f32, 0.02:3>", "!quant.uniform<i32:f32, 0.00006>"
    body = (
        f"  %0 = stablehlo.bitcast_convert %a : (tensor<4x300xi8>) -> tensor<4x300x{a}>\n"
        f"  %1 = stablehlo.bitcast_convert %b : (tensor<300x3xi8>) -> tensor<300x3x{b}>\n"
        f"  %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (tensor<4x300x{a}>, "
        f"tensor<300x3x{b}>) -> tensor<4x3x{c}>\n"
        f"  %3 = stablehlo.bitcast_convert %2 : (tensor<4x3x{c}>) -> tensor<4x3xi32>\n  return %3 : tensor<4x3xi32>"
    )
    wanted = (p.astype(np.int32) + 5) @ (q.astype(np.int32) - 3)
    check(function(body, p, q, results="tensor<4x3xi32>"), [p, q], [wanted])


@pytest.mark.parametrize(("kind", "mean", "deviation"), [("UNIFORM", 3.0, 2 / 12**0.5), ("NORMAL", 2.0, 4.0)])
def test_random_numbers_have_their_distribution(kind: str, mean: float, deviation: float) -> None:
    body = (
        "  %a = stablehlo.constant dense<2.0> : tensor<f32>\n  %b = stablehlo.constant dense<4.0> : tensor<f32>\n"
        "  %s = stablehlo.constant dense<[100, 100]> : tensor<2xi64>\n"
        f"  %0 = stablehlo.rng %a, %b, %s, distribution = {kind} : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> "
        f"tensor<100x100xf32>\n"
        "  return %0 : tensor<100x100xf32>"
    )
    found = compute(function(body, results="tensor<100x100xf32>"))[0]
    assert abs(found.mean() - mean) < 0.1 and abs(found.std() - deviation) < 0.1


# What is wrong or cannot be expressed


def findings(text: str, **options: Any) -> list[tuple[str, int, str]]:
    """(code, line, message) of what is found."""
    with pytest.raises(ptir.Rejected) as error:
        ptir.read(text, **options)
    return [(d.code, d.where[1], d.message) for d in error.value.diagnostics]


def test_everything_that_cannot_be_expressed_is_refused_at_once() -> None:
    text = (
        "func.func @main(%a: tensor<2xf32>, %t: tensor<2xf8E8M0FNU>) -> tensor<2xf32> {\n"
        '  %0 = "stablehlo.all_reduce"(%a) : (tensor<2xf32>) -> tensor<2xf32>\n'
        "  %1 = stablehlo.negate %0 : tensor<2xf32>\n"
        "  %2 = stablehlo.custom_call @mystery(%a) : (tensor<2xf32>) -> tensor<2xf32>\n"
        "  %3 = stablehlo.frobnicate %a : tensor<2xf32>\n  %4 = linalg.add %a : tensor<2xf32>\n  return %a : tensor<2xf32>\n}\n"
    )
    found = findings(text)
    assert [(code, line) for code, line, _ in found] == [("UnsupportedStableHLO", n) for n in (1, 2, 4, 5, 6)]
    assert "one device" in found[1][2] and "`mystery`" in found[2][2] and "f8E8M0FNU" in found[0][2]


WRONG: dict[str, tuple[str, str]] = {
    "undefined": ("%0 = stablehlo.negate %z : tensor<3x4xf32>", "UndefinedValue"),
    "result index": ("%0 = stablehlo.negate %a#1 : tensor<3x4xf32>", "UndefinedValue"),
    "defined twice": ("%a = stablehlo.negate %a : tensor<3x4xf32>", "RedefinedValue"),
    "result type": ("%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<3x4xf32>", "ResultTypeMismatch"),
    "operand type": ("%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>", "OperandTypeMismatch"),
    "axes": ("%0 = stablehlo.transpose %a, dims = [0, 0] : (tensor<3x4xf32>) -> tensor<3x4xf32>", "InvalidAttributeValue"),
    "missing": ('%0 = "stablehlo.transpose"(%a) : (tensor<3x4xf32>) -> tensor<4x3xf32>', "MissingAttribute"),
    "shapes": ("%0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<3x4xf32>, "
        "tensor<3x4xf32>) -> tensor<3x4xf32>",
               "OperandShapeMismatch"),
    "count": ('%0 = "stablehlo.add"(%a) : (tensor<3x4xf32>) -> tensor<3x4xf32>', "OperandCountMismatch"),
    "syntax": ("%0 = stablehlo.add %a, %a : tensor<3x4xf32", "SyntaxError"),
    "no function": ("%0 = call @no one(%a) : (tensor<3x4xf32>) -> tensor<3x4xf32>", "UndefinedValue"),
    "no end": ("%0 = stablehlo.negate %a : tensor<3x4xf32>\n  return %0 : tensor<3x4xf32>\n  %1 = "
        "stablehlo.negate %a : tensor<3x4xf32>", "SyntaxError"),
    "region": ('%0 = "stablehlo.reduce"(%a, %b) <{dimensions = array<i64: 1>}> : (tensor<3x4xf32>, tensor<f32>) '
        '-> tensor<3xf32>', "OperandCountMismatch"),
    "slice": ("%0 = stablehlo.slice %a [0:9, 0:1] : (tensor<3x4xf32>) -> tensor<9x1xf32>", "InvalidAttributeValue"),
    "stride 0": ("%0 = stablehlo.slice %a [0:3:0, 0:4] : (tensor<3x4xf32>) -> tensor<1x4xf32>", "InvalidAttributeValue"),
    "negative stride": ('%0 = "stablehlo.slice"(%a) <{start_indices = array<i64: 0, 0>, limit_indices = array<i64: 3, 4>, '
        'strides = array<i64: 1, -1>}> : (tensor<3x4xf32>) -> tensor<3x4xf32>', "InvalidAttributeValue"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_reported_at_its_line(name: str) -> None:
    op, code = WRONG[name]
    text = function(f"  {op}\n  return %a : tensor<3x4xf32>", X, np.float32(0), results="tensor<3x4xf32>")
    found = findings(text)
    assert found[0][:2] in [(code, 2), (code, 3), (code, 4)]


@pytest.mark.parametrize("extent", ["4", "?"])
@pytest.mark.parametrize("stride", [0, -1])
def test_a_stride_that_is_not_positive_is_refused(stride: int, extent: str) -> None:
    x, v = f"tensor<{extent}xf32>", "tensor<1xi64>"
    text = (
        f"func.func @main(%x: {x}) -> {x} {{\n"
        f"  %low = stablehlo.constant dense<0> : {v}\n  %high = stablehlo.constant dense<3> : {v}\n"
        f"  %by = stablehlo.constant dense<{stride}> : {v}\n"
        f"  %y = stablehlo.real_dynamic_slice %x, %low, %high, %by : ({x}, {v}, {v}, {v}) -> {x}\n  return %y : {x}\n}}\n"
    )
    assert [(code, line) for code, line, _ in findings(text)] == [("InvalidAttributeValue", 5)]


def test_functions_that_call_themselves_are_refused() -> None:
    text = (
        "func.func @main(%a: tensor<f32>) -> tensor<f32> "
        "{\n  %0 = call @f(%a) : (tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32>\n}\n"
    )
    text += (
        "func.func private @f(%a: tensor<f32>) -> tensor<f32> "
        "{\n  %0 = call @f(%a) : (tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32>\n}\n"
    )
    assert [code for code, *_ in findings(text)] == ["UnsupportedStableHLO"]


def test_calls_that_multiply_hit_the_limit() -> None:
    text = (
        "func.func @main(%a: tensor<f32>) -> tensor<f32> "
        "{\n  %0 = call @f0(%a) : (tensor<f32>) -> tensor<f32>\n  return %0 : tensor<f32>\n}\n"
    )
    for k in range(30):
        call = f"call @f{k + 1}(%{{}}) : (tensor<f32>) -> tensor<f32>"
        text += (
            f"func.func private @f{k}(%a: tensor<f32>) -> tensor<f32> "
            f"{{\n  %0 = {call.format('a')}\n  %1 = {call.format('0')}\n  return %1 : tensor<f32>\n}}\n"
        )
    text += (
        "func.func private @f30(%a: tensor<f32>) -> tensor<f32> "
        "{\n  %0 = stablehlo.negate %a : tensor<f32>\n  return %0 : tensor<f32>\n}\n"
    )
    with pytest.raises(LimitExceeded, match="put in line"):
        ptir.read(text, limits=Limits(ops=1000))


def test_extents_that_are_open_are_symbols() -> None:
    text = (
        "func.func @main(%a: tensor<?x4xf32>) -> tensor<?x4xf32> "
        "{\n  %0 = stablehlo.add %a, %a : tensor<?x4xf32>\n  return %0 : tensor<?x4xf32>\n}\n"
    )
    check(text, [X], [2 * X])


# Recognition and commands

TEXT = function("  %0 = stablehlo.add %a, %a : tensor<3x4xf32>\n  return %0 : tensor<3x4xf32>", X, results="tensor<3x4xf32>")


@pytest.mark.parametrize("before", ["", "// RUN: x\n", "#loc = loc(unknown)\n", "module {\n"])
def test_the_text_is_recognized(before: str) -> None:
    assert sniff(before + TEXT + ("}\n" if "module" in before else "")) == "stablehlo"


def test_other_mlir_is_not() -> None:
    assert sniff(TEXT.replace("stablehlo.add", "tosa.add")) != "stablehlo"
    for path in sorted((ROOT / "testdata" / "pto").glob("*.pto")):
        assert sniff(path.read_text()) == "pto"


def test_commands_take_it(tmp_path: Path) -> None:
    path = tmp_path / "f.mlir"
    path.write_text(TEXT)
    assert run_ptir("verify", str(path)).status == 0
    assert b"add" in run_ptir("opt", str(path)).out and b"func @main" in run_ptir("opt", str(path)).out
    assert run_ptir("run", str(path), "--random", "0").status == 0
    assert run_ptir("translate", str(path), "--to", "mind").status == 0
    assert run_ptir("info", str(path)).status == 0 and run_ptir("plan", str(path)).status == 0


def test_broken_texts_are_refused_without_a_fault() -> None:
    """Pieces removed, doubled, swapped and changed."""
    texts = [TEXT]
    for op, t, _ in MOVED.values():
        texts.append(function(f"  %0 = {op}\n  return %0 : {t}", X, results=t))
    texts.append(sort_text(whole(3, 8), LESS.format("LT"), "%1"))
    rng = random.Random(0)
    for _ in range(300):
        text = rng.choice(texts)
        pieces = fuzz_pieces(text)
        for _ in range(rng.randint(1, 3)):
            i, j = rng.randrange(len(pieces)), rng.randrange(len(pieces))
            pieces[i] = rng.choice(["", pieces[j], pieces[i] * 2, "-1", "9", "[]", "%a", "tensor<?xf32>", "dense<1>", "i1"])
        try:
            ptir.read("".join(pieces), format="stablehlo")
        except ptir.Rejected:
            pass


def fuzz_pieces(text: str) -> list[str]:
    """Words, numbers, signs and blanks."""
    return re.findall(r"\w+|\s+|.", text)


def test_the_table_says_of_each_op_what_becomes_of_it() -> None:
    assert not set(HANDLERS) & set(REFUSED)
    assert all(name.startswith(("stablehlo.", "chlo.", "sdy.")) for name in HANDLERS)


SIZES = """
func.func @main(%x: tensor<?x4xf32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?xf32>) {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %row = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %eight = stablehlo.constant dense<[8]> : tensor<1xi32>
  %shape = stablehlo.concatenate %row, %eight, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %i = stablehlo.dynamic_iota %shape, dim = 1 : (tensor<2xi32>) -> tensor<?x8xf32>
  %same = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<?x4xf32>, tensor<i32>) -> tensor<?x4xf32>
  %four = stablehlo.constant dense<[4]> : tensor<1xi32>
  %count = stablehlo.multiply %row, %four : tensor<1xi32>
  %flat = stablehlo.dynamic_reshape %x, %count : (tensor<?x4xf32>, tensor<1xi32>) -> tensor<?xf32>
  return %i, %same, %flat : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?xf32>
}
"""


def test_shapes_are_computed_of_extents() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    i, same, flat = ptir.run(ptir.read(SIZES), [x]).values()
    np.testing.assert_array_equal(i, np.broadcast_to(np.arange(8, dtype=np.float32), (3, 8)))
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(flat, x.reshape(-1))


def test_an_extent_that_depends_on_data_is_refused() -> None:
    text = (
        "func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<?xf32> {\n"
        "  %y = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32>\n"
        "  return %y : tensor<?xf32>\n}\n"
    )
    with pytest.raises(ptir.Rejected, match="the extents of its result depend on data"):
        ptir.read(text)


CALLED = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @g(tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.constant dense<0.0> : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


@pytest.mark.parametrize("text", [CALLED, CALLED.partition("}\n")[2].replace("private @g", "@main")])
def test_a_function_with_a_body_names_its_parameters(text: str) -> None:
    """Without names it is a declaration, which has no body."""
    with pytest.raises(ptir.Rejected, match="has no name"):
        ptir.read(text, "stablehlo")


ALIASED = """!t = tensor<4xf32>
!q = !quant.uniform<i8:f32, 0.5:1>
!pair = tuple<!t, tensor<4xi32>>
#map = affine_map<(d0)[s0] -> (d0 + s0)>
#loc = loc("a.py":1:2)
#where = loc("f"(#loc))
#numbers = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
#axes = array<i64: 0>
module @m attributes {a.map = #map} {
  func.func @main(%a: !t loc("a"), %b: tensor<4xi32>) -> (!t, tensor<f32>) {
    %0 = stablehlo.tuple %a, %b : !pair
    %1 = stablehlo.get_tuple_element %0[0] : (!pair) -> !t
    %2 = "stablehlo.constant"() {value = #numbers} : () -> !t loc(#where)
    %3 = stablehlo.uniform_quantize %1 : (!t) -> tensor<4x!q>
    %4 = stablehlo.uniform_dequantize %3 : (tensor<4x!q>) -> !t
    %5 = stablehlo.multiply %4, %2 : !t
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %6 = "stablehlo.reduce"(%5, %z) <{dimensions = #axes}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %7 = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %7 : tensor<f32>
    }) : (!t, tensor<f32>) -> tensor<f32>
    return %5, %6 : !t, tensor<f32>
  }
}
#last = loc("b.py":3:4)
"""


def test_values_replace_aliases() -> None:
    assert sniff(ALIASED) == "stablehlo" == sniff("// -----// dump //----- //\n" + ALIASED)
    a = np.array([0.6, -1.2, 2.0, 90.0], np.float32)
    steps = np.clip(np.rint(a / 0.5) + 1, -128, 127)
    wanted = ((steps - 1) * 0.5 * [1, 2, 3, 4]).astype(np.float32)
    check(ALIASED, [a, np.zeros(4, np.int32)], [wanted, wanted.sum()])


@pytest.mark.parametrize(
    ("lines", "code", "message"),
    [
        ("!t = tensor<2xf32>\n!t = tensor<3xf32>", "RedefinedValue", "!t is defined twice"),
        ("!u = tensor<2xf32>", "UnsupportedStableHLO", "PTIR has no type !t"),
        ("!t = tensor<2xf33>", "UnsupportedStableHLO", "PTIR has no type f33"),
        ("!t = !t\n!u = tensor<f32>", "UnsupportedStableHLO", "PTIR has no type !t"),
        ("!t =\n!u = tensor<f32>", "SyntaxError", ""),
    ],
)
def test_aliases_without_a_value(lines: str, code: str, message: str) -> None:
    with pytest.raises(ptir.Rejected) as found:
        ptir.read(f"{lines}\nfunc.func @main(%a: !t) -> !t {{\n  return %a : !t\n}}\n")
    assert found.value.diagnostics[0].code == code
    assert message in found.value.diagnostics[0].message


def test_aliases_of_aliases_stay_within_the_limits() -> None:
    """Thirty lines would mean a thousand million types; a thousand, for a type that is as deep."""
    wide = "".join(f"!t{n + 1} = tuple<!t{n}, !t{n}>\n" for n in range(30))
    deep = "".join(f"!t{n + 1} = tuple<!t{n}>\n" for n in range(1000))
    for lines in (wide, deep):
        text = f"!t0 = tensor<f32>\n{lines}func.func @main(%a: !t1) -> !t0 {{\n  return %a : !t0\n}}\n"
        with pytest.raises(LimitExceeded):
            ptir.read(text)


# Integer division


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32])
def test_integers_divided_by_zero_are_what_xla_makes_of_them(dtype: Any) -> None:
    x, y = np.array([7, 0, 100, 5], dtype), np.array([0, 0, 7, 3], dtype)
    t = mlir(x)
    body = f"  %q = stablehlo.divide %a, %b : {t}\n  %r = stablehlo.remainder %a, %b : {t}\n  return %q, %r : {t}, {t}"
    ones = np.array(-1).astype(dtype)
    check(
        function(body, x, y, results=f"{t}, {t}"), [x, y], [np.array([ones, ones, 14, 1], dtype), np.array([7, 0, 2, 2], dtype)]
    )


def test_a_divisor_without_zeros_is_divided_by_as_it_is() -> None:
    t = mlir(N)
    body = (
        f"  %c = stablehlo.constant dense<3> : {t}\n  %q = stablehlo.divide %a, %c : {t}\n"
        f"  %r = stablehlo.remainder %a, %c : {t}\n  return %q, %r : {t}, {t}"
    )
    text = function(body, N, results=f"{t}, {t}")
    check(text, [N], [np.trunc(N / 3).astype(np.int32), np.fmod(N, 3)])
    assert "select" not in ptir.write(ptir.read(text))


# Functions without an op of their own


def test_a_bessel_function_and_zeta_are_composed() -> None:
    x, q = np.array([-3.0, 0.5, 8.5, 50.0], np.float32), np.array([2.0, 0.5, 1.0, 3.0], np.float32)
    s = np.array([2.0, 4.0, 1.5, 3.0], np.float32)
    t = mlir(x)
    body = (
        f"  %i = chlo.bessel_i1e %a : {t} -> {t}\n  %z = chlo.zeta %b, %c : {t}, {t} -> {t}\n"
        f"  %p = chlo.polygamma %d, %c : {t}, {t} -> {t}\n  return %i, %z, %p : {t}, {t}, {t}"
    )
    angle = (np.arange(20000) + 0.5) * np.pi / 20000  # the integral over a period
    i1e = [np.sign(v) * np.mean(np.exp(abs(v) * (np.cos(angle) - 1)) * np.cos(angle)) for v in x.astype(np.float64)]
    k, n = np.arange(4_000_000.0), np.ones(4, np.float32)
    pairs = zip(s.astype(float), q.astype(float), strict=True)
    zeta = [np.sum((b + k) ** -a) + (b + k[-1] + 0.5) ** (1 - a) / (a - 1) for a, b in pairs]
    trigamma = [np.sum((b + k) ** -2.0) + 1 / (b + k[-1] + 0.5) for b in q.astype(float)]
    wanted = [np.array(v, np.float32) for v in (i1e, zeta, trigamma)]
    check(function(body, x, s, q, n, results=f"{t}, {t}, {t}"), [x, s, q, n], wanted, 4e-6)


def test_a_shape_that_is_made_of_itself_many_times_is_computed_once() -> None:
    """Sixty sums of zeros: a walk of every path would not end."""
    sums = "".join(f"  %s{i + 1} = stablehlo.add %s{i}, %s{i} : tensor<1xi32>\n" for i in range(60))
    body = (
        "  %s0 = stablehlo.constant dense<0> : tensor<1xi32>\n  %n = stablehlo.constant dense<3> : tensor<1xi32>\n"
        f"{sums}  %t = stablehlo.add %s60, %n : tensor<1xi32>\n"
        "  %r = stablehlo.dynamic_broadcast_in_dim %a, %t, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>\n"
        "  return %r : tensor<?xf32>"
    )
    check(function(body, np.float32(2), results="tensor<?xf32>"), [np.float32(2)], [np.full(3, 2, np.float32)])


CHECKED = """func.func @near() {
  %0 = stablehlo.constant dense<[0.0, 1.0]> : tensor<2xf32>
  %1 = stablehlo.exponential %0 : tensor<2xf32>
  check.expect_almost_eq_const %1, dense<[1.0, 2.7182818]> : tensor<2xf32>
  func.return
}
// -----
func.func @equal() {
  %0 = stablehlo.constant dense<[3, -2]> : tensor<2xi8>
  %1 = stablehlo.multiply %0, %0 : tensor<2xi8>
  check.expect_eq_const %1, dense<[9, WANTED]> : tensor<2xi8>
  func.return
}
// -----
func.func @refused() {
  %0 = stablehlo.constant dense<1> : tensor<2xi2>
  check.expect_eq_const %0, dense<1> : tensor<2xi2>
  func.return
}
"""


def test_the_suite_counts_what_is_right_wrong_and_refused(tmp_path: Path) -> None:
    from tests.suites import stablehlo as suite

    for wanted, right in (("4", ["c/0/near", "c/1/equal"]), ("5", ["c/0/near"])):
        (tmp_path / "c.mlir").write_text(CHECKED.replace("WANTED", wanted))
        report = suite.run(folder=str(tmp_path))
        assert report.right == right and not report.errors and list(report.refused) == ["c/2/refused"]
        assert report.wrong == (
            {} if wanted == "4" else {"c/1/equal": "reference: 1 of 2 elements, the first at [1]: 4 is not 5"}
        )


def test_the_bessel_function_of_an_f64_is_near_to_what_it_is() -> None:
    x = np.array([-0.8923117072166038, 0.5, 3.0, 7.9, 8.1, 50.0])
    # by mpmath with 50 digits
    wanted = np.array([
        -0.20160006947374076, 0.1564208031848717, 0.19682671329730086, 0.13489649943989376, 0.13340068832583662,
        0.0559931238928954,
    ])  # fmt: skip
    body = f"  %0 = chlo.bessel_i1e %a : {mlir(x)} -> {mlir(x)}\n  return %0 : {mlir(x)}"
    check(function(body, x, results=mlir(x)), [x], [wanted], 1e-15)


PICK = """  %0 = stablehlo.iota dim = {along} : {indices}
  %1 = stablehlo.constant dense<{start}> : tensor<{dtype}>
  %2 = stablehlo.constant dense<0> : tensor<i32>
  %3:2 = stablehlo.reduce(%a init: %1), (%0 init: %2) across dimensions = [1] : ({given}, {indices}, tensor<{dtype}>, tensor<i32>)
      -> ({values}, {places})
   reducer(%p: tensor<{dtype}>, %q: tensor<{dtype}>) (%i: tensor<i32>, %j: tensor<i32>) {{
    %4 = stablehlo.compare {better}, %p, %q : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>
    %5 = stablehlo.compare NE, %p, %p : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>
    %6 = stablehlo.or %5, %4 : tensor<i1>
    %7 = stablehlo.compare EQ, %p, %q : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>
    %8 = stablehlo.compare {first}, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %9 = stablehlo.and %7, %8 : tensor<i1>
    %10 = stablehlo.or %6, %9 : tensor<i1>
    %11 = stablehlo.select %6, %p, %q : tensor<i1>, tensor<{dtype}>
    %12 = stablehlo.select %10, %i, %j : tensor<i1>, tensor<i32>
    stablehlo.return %11, %12 : tensor<{dtype}>, tensor<i32>
  }}
  return %3#0, %3#1 : {values}, {places}"""


@pytest.mark.parametrize("first", ["LT", "GT"])
@pytest.mark.parametrize("better", ["GT", "LT"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize(("along", "other"), [(1, None), (0, None), (1, 2)])
def test_a_region_that_picks_the_largest_and_its_place_is_argmax(
    along: int, other: int | None, dtype: Any, better: str, first: str
) -> None:
    """The first of equal elements. A region that picks the last is none, nor places along another axis, nor another start: these
    compute the same."""
    x = np.array([[1, 3, 2, 3], [0, 0, 0, 0], [7, -2, 7, -2]], dtype)
    if dtype is np.float32:
        x = np.concatenate([x, np.array([[1, np.nan, 2, np.nan], [-np.inf] * 4, [np.inf] * 4], dtype)])
    least = {"GT": -np.inf, "LT": np.inf} if dtype is np.float32 else {"GT": -(2**31), "LT": 2**31 - 1}
    begin = least[better] if other is None else dtype(other)
    start = {-np.inf: "0xFF800000", np.inf: "0x7F800000"}.get(begin, begin)
    rows, name = len(x), MLIR[np.dtype(dtype).name]
    body = PICK.format(
        along=along, indices=f"tensor<{rows}x4xi32>", start=start, dtype=name, given=mlir(x), better=better, first=first,
        values=f"tensor<{rows}x{name}>", places=f"tensor<{rows}xi32>",
    )  # fmt: skip
    text = function(body, x, results=f"tensor<{rows}x{name}>, tensor<{rows}xi32>")
    values, places = [], []
    for i, row in enumerate(x):
        value, place = begin, 0
        for j, q in zip((range(4) if along else [i] * 4), row, strict=True):
            ahead = (value > q if better == "GT" else value < q) or value != value
            earlier = value == q and (place < j if first == "LT" else place > j)
            value, place = (value if ahead else q), (place if ahead or earlier else j)
        values.append(value)
        places.append(place)
    check(text, [x], [np.array(values, dtype), np.array(places, np.int32)])
    kinds = [op.defn.short for op in ptir.read(text).main.ops()]
    assert ("argmax" in kinds or "argmin" in kinds) is (first == "LT" and along == 1 and other is None)


SYMBOLIC = """func.func @main(%x: tensor<?x3xf32>, %i: tensor<{indices}xi32>) -> tensor<{shape}xf32> {{
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
  %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<
    offset_dims = [{offset}], collapsed_slice_dims = [{left}], start_index_map = [0],
    index_vector_dim = {vector}>, slice_sizes = array<i64: 1, 3>}}> :
    (tensor<?x3xf32>, tensor<{indices}xi32>) -> tensor<{shape}xf32>
  return %0 : tensor<{shape}xf32>
}}"""


@pytest.mark.parametrize(
    ("indices", "shape", "offset", "left", "vector", "order"),
    [
        ("1", "3", "0", "0", 0, (0,)),
        ("4x1", "4x3", "1", "0", 1, (0, 1)),
        ("4", "3x4", "0", "0", 1, (1, 0)),
        ("1x4", "4x1x3", "1, 2", "", 0, (0, 1, 2)),
    ],
)
def test_rows_are_gathered_along_an_extent_that_is_open(
    indices: str, shape: str, offset: str, left: str, vector: int, order: tuple[int, ...]
) -> None:
    """Indices outside are moved inside."""
    text = SYMBOLIC.format(indices=indices, shape=shape, offset=offset, left=left, vector=vector)
    x, count = values(5, 3), 1 if indices == "1" else 4
    at = np.array([3, -2, 9, 0][:count], np.int32)
    found = x[np.clip(at, 0, 4)].reshape([3] if count == 1 else [4, 1, 3] if left == "" else [4, 3])
    check(text, [x, at.reshape([int(n) for n in indices.split("x")])], [found.transpose(order)])


@pytest.mark.parametrize("start", [0, 2, 3, 9, -2])
def test_a_part_of_an_extent_that_is_open_is_moved_inside(start: int) -> None:
    numbers = "offset_dims = [0, 1], start_index_map = [0], index_vector_dim = 0"
    text = f"""func.func @main(%a: tensor<?x3xf32>, %b: tensor<1xi32>) -> tensor<2x3xf32> {{
  %0 = "stablehlo.gather"(%a, %b) <{{dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = array<i64: 2, 3>}}>
    : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}}"""
    x, at = values(5, 3), min(max(start, 0), 3)
    check(text, [x, np.array([start], np.int32)], [x[at : at + 2]])


def test_bounds_of_a_clamp_may_be_scalars() -> None:
    """Of small integers, too, whose meaning is followed."""
    text = """func.func @main(%x: tensor<3xi64>) -> tensor<3xi64> {
      %low = stablehlo.constant dense<1> : tensor<i64>
      %high = stablehlo.constant dense<[3, 5, 7]> : tensor<3xi64>
      %c = stablehlo.constant dense<[9, -9, 6]> : tensor<3xi64>
      %k = stablehlo.clamp %low, %c, %high : (tensor<i64>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
      %y = stablehlo.add %x, %k : tensor<3xi64>
      return %y : tensor<3xi64>
    }"""
    program = ptir.read(text, "stablehlo")
    (found,) = ptir.run(program, [np.zeros(3, np.int64)]).values()
    assert found.tolist() == [3, 1, 6]


ASSERTION = """  stablehlo.custom_call @shape_assertion({flag}, %n)
    {{error_message = "there are {{0}} rows", has_side_effect = true}} : (tensor<i1>, tensor<i32>) -> ()"""
ASSERTING = """func.func @main(%x: tensor<?x2xf32>, %a: tensor<i1>) -> (tensor<?x2xf32>, tensor<i32>) {{
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>
  %c = stablehlo.constant dense<{least}> : tensor<i32>
  %p = stablehlo.compare GE, %n, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
{body}
  %y = stablehlo.add %x, %x : tensor<?x2xf32>
  return %y, %{result} : tensor<?x2xf32>, tensor<i32>
}}
"""
BRANCH = """  %r = "stablehlo.if"(%a) ({{
{body}
    stablehlo.return %c : tensor<i32>
  }}, {{
    stablehlo.return %n : tensor<i32>
  }}) : (tensor<i1>) -> tensor<i32>"""


def asserting(flag: str = "%p", least: int = 3, branch: bool = False) -> str:
    """A function that asserts, outermost or in a branch."""
    body = ASSERTION.format(flag=flag)
    return ASSERTING.format(least=least, body=BRANCH.format(body=body) if branch else body, result="r" if branch else "n")


def outcomes(text: str, n: int, flag: bool) -> set[str]:
    """How each engine ends, before and after `optimize`: the results, or the code of an error and its line."""
    program = ptir.read(text)
    found = set()
    for p in (program, ptir.optimize(program)):
        for engine in ENGINES:
            try:
                made = ptir.run(p, [values(n, 2), np.array(flag)], engine=engine).values()
                found.add(str([np.asarray(y).tolist() for y in made]))
            except ptir.Rejected as rejected:
                found.update(f"{d.code}, line {d.where[1]}" for d in rejected.diagnostics)
    return found


def test_what_is_asserted_of_extents_is_checked_at_its_line() -> None:
    x = values(3, 2)
    assert outcomes(asserting(), 3, True) == {str([(x + x).tolist(), 3])}
    assert outcomes(asserting(), 2, True) == {"GatherIndexOutOfBounds, line 5"}
    assert outcomes(asserting("%a"), 3, True) == {str([(x + x).tolist(), 3])}
    assert outcomes(asserting("%a"), 3, False) == {"GatherIndexOutOfBounds, line 5"}


def test_an_extent_that_is_asserted_to_be_a_number_is_one() -> None:
    program = ptir.read(asserting().replace("compare GE", "compare EQ"))
    assert "tensor<f32, 3x2>" in str(ptir.write(program)) and "take" not in str(ptir.write(program))
    with pytest.raises(ptir.UsageError):
        ptir.run(program, [values(2, 2), np.array(True)])


def test_what_a_branch_asserts_is_checked_where_it_is_taken() -> None:
    x = values(2, 2)
    assert outcomes(asserting(branch=True), 2, False) == {str([(x + x).tolist(), 2])}
    assert outcomes(asserting(branch=True), 2, True) == {"GatherIndexOutOfBounds, line 6"}


def test_what_always_holds_is_not_checked_and_what_never_does_is_refused() -> None:
    assert "take" not in str(ptir.write(ptir.read(asserting(least=0))))
    with pytest.raises(ptir.Rejected, match=r"an assertion does not hold: there are \{0\} rows"):
        ptir.read(asserting().replace("compare GE", "compare LT").replace("dense<3>", "dense<0>"))


def test_an_assertion_inside_a_computation_on_scalars_is_refused() -> None:
    region = ASSERTION.format(flag="%q").replace("%n", "%k").replace("tensor<i32>", "tensor<f32>")
    body = f"""  %r = "stablehlo.map"(%x) <{{dimensions = array<i64: 0, 1>}}> ({{
  ^bb0(%k: tensor<f32>):
    %q = stablehlo.compare GE, %k, %k, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
  {region}
    stablehlo.return %k : tensor<f32>
  }}) : (tensor<?x2xf32>) -> tensor<?x2xf32>"""
    with pytest.raises(ptir.Rejected, match=r"inside a computation on scalars: there are \{0\} rows"):
        ptir.read(ASSERTING.format(least=3, body=body, result="n"))


def test_an_extent_that_is_given_leaves_nothing_to_check(tmp_path: Path) -> None:
    (tmp_path / "f.mlir").write_text(asserting())
    (tmp_path / "f.ptir").write_text(run_ptir("opt", str(tmp_path / "f.mlir"), "--bind", "d0=3").text)
    assert "take" not in (tmp_path / "f.ptir").read_text()
    (tmp_path / "f.ptir").write_text(run_ptir("opt", str(tmp_path / "f.mlir"), "--bind", "d0=2").text)
    found = run_ptir("run", str(tmp_path / "f.ptir"), "--random", "0")
    assert found.status == 1 and "GatherIndexOutOfBounds" in found.err


def test_a_bound_of_too_many_digits_exceeds_a_limit() -> None:
    text = "func.func @main(%a: tensor<8xf32>) -> tensor<1xf32> {{\n  %b = stablehlo.slice %a [0:{}]\
 : (tensor<8xf32>) -> tensor<1xf32>\n  return %b : tensor<1xf32>\n}}\n"
    assert ptir.read(text.format(1)).main.body
    with pytest.raises(LimitExceeded, match="5000 digits"):
        ptir.read(text.format("1" * 5000))


TYPES = """module {
  func.func public @main(%x: tensor<2x4xf32> {a.b = "c"}, %y: tensor<?x4xf32, #stablehlo.bounds<4, ?>>) -> (tensor<f32>) {
    %0 = stablehlo.exponential %x : tensor<2x4xf32>
    %1 = "stablehlo.add"(%0, %0) {a = tensor<4xf32>, b = 1} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %2 = stablehlo.uniform_quantize %x : (tensor<2x4xf32>) -> tensor<2x4x!quant.uniform<i8:f32, 0.1>> loc("a > b")
    %3 = stablehlo.custom_call @f(%0) : (tuple<tensor<2xcomplex<f32>>, tuple<tensor<i32>>>) -> tuple<tensor<f32>>
    %4 = stablehlo.slice %x [0:1, 0:2] : (tensor<2x4xf32>) -> tensor<1x2xf32>
    %5:2 = stablehlo.while(%i = %x, %j = %3) : tensor<2x4xf32>, tensor<i32> cond {
      stablehlo.return %i : tensor<i1>
    } do {
      stablehlo.return %i, %j : tensor<2x4xf32>, !stablehlo.token
    }
    return %1 : tensor<f32>
  }
}
"""


@pytest.mark.parametrize("at", [m.start() for m in re.finditer(r"(?<![- ])>", TYPES)])
def test_a_type_without_its_end_is_shown_where_it_ends(at: int) -> None:
    broken = TYPES[:at] + TYPES[at + 1 :]
    found = Diagnostics(Source("case", broken))
    assert parse(found.source, found, "SyntaxError") is None  # type: ignore[arg-type]
    (error,) = found
    assert error.message.startswith("`>` is missing after") and error.fix is not None and error.span is not None
    assert error.fix.span.start == error.span.start  # where several `>` follow each other, any of them may be missing
    assert broken[: error.span.start] + ">" + broken[error.span.start :] == TYPES


GROUPS = "replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"
SUM = """({
^bb0(%p: tensor<f32>, %q: tensor<f32>):
  %r = stablehlo.add %p, %q : tensor<f32>
  stablehlo.return %r : tensor<f32>
})"""
PAIRS, TWICE = "{source_target_pairs = dense<[[0, 1], [3, 0]]> : tensor<2x2xi64>}", GROUPS.replace("3", "2")
COLLECTIVES = {  # an op, and what the four devices have after it
    "all_reduce": (f"<{{{GROUPS}}}> {SUM}", lambda a, b, c, d: [a + b, a + b, c + d, c + d]),
    "all_gather": (
        f"<{{all_gather_dim = 1 : i64, {GROUPS}}}>",
        lambda a, b, c, d: [*[np.concatenate([a, b], 1)] * 2, *[np.concatenate([c, d], 1)] * 2],
    ),
    "reduce_scatter": (
        f"<{{scatter_dimension = 1 : i64, {GROUPS}}}> {SUM}",
        lambda a, b, c, d: [(a + b)[:, :2], (a + b)[:, 2:], (c + d)[:, :2], (c + d)[:, 2:]],
    ),
    "all_to_all": (
        f"<{{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, {GROUPS}}}>",
        lambda a, b, c, d: [np.concatenate([x[:, k : k + 2], y[:, k : k + 2]]) for x, y in ((a, b), (c, d)) for k in (0, 2)],
    ),
    "collective_permute": (
        f"<{PAIRS}>",
        lambda a, b, c, d: [d, a, 0 * a, 0 * a],
    ),
}


def on_devices(op: str, shape: str, whole: str, cuts: str = '{"x"}, {}', axes: str = '{"x"}') -> str:
    """A module that does an op on four devices, each with two rows of %a."""
    placed = f'in_shardings=[<@mesh, [{cuts}]>] out_shardings=[<@mesh, [{{"x"}}, {{}}]>] manual_axes={axes}'
    return f"""module {{
  sdy.mesh @mesh = <["x"=4]>
  func.func @main(%a: tensor<8x4xf32>) -> tensor<{whole}xf32> {{
    %0 = sdy.manual_computation(%a) {placed} (%b: tensor<2x4xf32>) {{
      %1 = {op} : (tensor<2x4xf32>) -> tensor<{shape}xf32>
      sdy.return %1 : tensor<{shape}xf32>
    }} : (tensor<8x4xf32>) -> tensor<{whole}xf32>
    return %0 : tensor<{whole}xf32>
  }}
}}"""


@pytest.mark.parametrize("name", COLLECTIVES)
def test_devices_exchange_values(name: str) -> None:
    text, meaning = COLLECTIVES[name]
    x = values(8, 4)
    wanted = meaning(*(x[2 * k : 2 * k + 2] for k in range(4)))
    shape, whole = wanted[0].shape, np.concatenate(wanted)
    check(
        on_devices(f'"stablehlo.{name}"(%b) {text}', f"{shape[0]}x{shape[1]}", f"{whole.shape[0]}x{whole.shape[1]}"), [x], [whole]
    )


def test_a_device_knows_its_number_and_copies_are_one() -> None:
    text = (
        on_devices("stablehlo.negate %b", "2x4", "8x4")
        .replace(
            "%1 = stablehlo.negate %b",
            (
                "%i = stablehlo.partition_id : tensor<ui32>\n %f = stablehlo.convert %i : (tensor<ui32>) -> tensor<f32>\n"
                "%g = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<2x4xf32>\n %1 = stablehlo.add %b, %g"
            ),
        )
        .replace(": (tensor<2x4xf32>) -> tensor<2x4xf32>\n      sdy", ": tensor<2x4xf32>\n      sdy")
    )
    x = values(8, 4)
    check(text, [x], [x + np.arange(4, dtype=np.float32).repeat(2)[:, None]])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (on_devices("stablehlo.negate %b", "2x4", "8x4", axes="{}"), "leaves the axis `x` of the mesh to the compiler"),
        (on_devices("stablehlo.negate %b", "2x4", "8x4", cuts='{"z"}, {}'), "the mesh has no axis `z`"),
        (on_devices("stablehlo.negate %b", "2x4", "8x4", cuts="{}, {}"), "is declared tensor<2x4xf32>, and gets"),
        (on_devices("stablehlo.negate %b", "2x4", "8x4").replace('sdy.mesh @mesh', 'sdy.mesh @other'), "there is no mesh @mesh"),
        (on_devices('"stablehlo.all_gather"(%b) <{all_gather_dim = 2 : i64}>', "2x4", "8x4"), "`all_gather_dim`"),
        (on_devices(f'"stablehlo.collective_permute"(%b) <{PAIRS.replace("3", "4")}>', "2x4", "8x4"), "are not pairs of 4"),
        (on_devices(f'"stablehlo.all_reduce"(%b) <{{{TWICE}}}> {SUM}', "2x4", "8x4"), "are not all of 4 devices"),
    ],
)  # fmt: skip
def test_what_devices_cannot_do(text: str, reason: str) -> None:
    with pytest.raises(ptir.Rejected) as caught:
        ptir.read(text)
    assert reason in str(caught.value)


def test_an_unknown_op_is_near_a_known_one() -> None:
    with pytest.raises(ptir.Rejected) as caught:
        ptir.read(
            function(
                "%0 = stablehlo.exponentiel %a : tensor<2xf32>\nreturn %0 : tensor<2xf32>", values(2), results="tensor<2xf32>"
            )
        )
    assert caught.value.diagnostics[0].help == "did you mean `stablehlo.exponential`?"

"""Quantized networks: products of bytes with the ops between them in one step. The same bits as the NumPy engine."""

from __future__ import annotations

import numpy as np
import pytest

from ptir_tools import compile as compiled
from ptir_tools import read
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.engines import choose
from ptir_tools.engines.options import RunOptions

pytest.importorskip("ptir_tools._native")

from ptir_tools.engines.native import byte_chains, fusion


class Network:
    """A random quantized network of convolutions and products with residuals, as text. Images are [N, H, W, C]."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.lines: list[str] = []
        self.dtype = str(self.rng.choice(["si8", "ui8"]))

    def tensor(self, dtype: str, shape: tuple[int, ...]) -> str:
        """A type."""
        return f"tensor<{dtype}, {'x'.join(map(str, shape))}>"

    def emit(self, op: str, shape: tuple[int, ...], dtype: str = "f32") -> str:
        """One op; its value."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {op} -> {self.tensor(dtype, shape)}")
        return name

    def number(self, x: float, shape: tuple[int, ...]) -> str:
        """A number in every element."""
        return self.emit(f"broadcast_to(dense<{np.float32(x)}> : tensor<f32>) result_shape[{', '.join(map(str, shape))}]", shape)

    def quantized(self, x: str, shape: tuple[int, ...]) -> tuple[str, str, float, int]:
        """Bytes of `x`, their floats, the scale and the zero point."""
        scale = float(np.float32(self.rng.uniform(0.01, 0.05)))
        zero = int(self.rng.integers(-20, 20)) + (128 if self.dtype == "ui8" else 0)
        quotient = self.emit(f"div({x}, {self.number(scale, shape)})", shape)
        q = self.emit(f"quantize({quotient}) output_dtype[{self.dtype}] scales[1.0] zero_points[{zero}]", shape, self.dtype)
        return q, self.dequantized(q, shape, scale, zero), scale, zero

    def dequantized(self, q: str, shape: tuple[int, ...], scale: float, zero: int) -> str:
        return self.emit(f"dequantize({q}) output_dtype[f32] scales[{scale!r}] zero_points[{zero}]", shape)

    def weights(self, depth: int, columns: int) -> str:
        """Dequantized constant bytes, with a scale per column."""
        w = self.rng.integers(-127, 128, (depth, columns))
        q = self.emit(f"constant() value[dense<{w.tolist()}>]", (depth, columns), "si8")
        scales = ", ".join(repr(float(np.float32(x))) for x in self.rng.uniform(1e-3, 1e-2, columns))
        return self.emit(f"dequantize({q}) axis[1] output_dtype[f32] scales[{scales}]", (depth, columns))

    def layer(self, x: str, shape: tuple[int, ...], columns: int) -> tuple[str, tuple[int, ...]]:
        """A convolution, or a product along the last axis, of `x`, with a bias and perhaps a clamp."""
        rng, depth = self.rng, shape[-1]
        if rng.integers(3):
            k, stride = int(rng.choice([1, 3, 5])), 1 + (shape[1] > 7 and not rng.integers(3))
            pad = k // 2
            extents = [(n + 2 * pad - k) // stride + 1 for n in shape[1:3]]
            depth = k * k * shape[-1]
            op = f"extract_patches({x}) window[{k}, {k}] strides[{stride}, {stride}] padding[[{pad}, {pad}], [{pad}, {pad}]]"
            shape = (shape[0], *extents, shape[-1])
            x = self.emit(op, (*shape[:3], depth))
        w = self.weights(depth, columns)
        shape = (*shape[:3], columns)
        y = self.emit(f"dot_general({x}, {w}) contract_lhs[3] contract_rhs[0]", shape)
        if rng.integers(2):
            b = self.emit(f"constant() value[dense<{rng.standard_normal(columns).astype(np.float32).tolist()}>]", (columns,))
            spread = self.emit(f"broadcast_to({b}) result_shape[{', '.join(map(str, shape))}]", shape)
            y = self.emit(f"add({y}, {spread})", shape)
        return (self.relu(y, shape) if rng.integers(2) else y), shape

    def relu(self, x: str, shape: tuple[int, ...]) -> str:
        return self.emit(f"maximum({x}, {self.number(0, shape)})", shape)

    def text(self) -> str:
        """The program."""
        shape = (int(self.rng.integers(1, 3)), 13, 12, int(self.rng.choice([8, 11])))  # all products are large enough for bytes
        x, given = "%x", shape
        values: list[tuple[str, str, tuple[int, ...], float, int]] = []
        results: list[tuple[str, str]] = []
        for _ in range(int(self.rng.integers(2, 6))):
            q, x, scale, zero = self.quantized(x, shape)
            values.append((q, x, shape, scale, zero))
            x, shape = self.layer(x, shape, int(self.rng.choice([24, 33, 48])))
            same = [v for v in values if v[2] == shape]
            if same and self.rng.integers(2):  # a residual: what was dequantized, or is again
                q, other, _, scale, zero = same[-1]
                _, x, _, _ = self.quantized(x, shape)
                other = self.dequantized(q, shape, scale, zero) if self.rng.integers(2) else other
                x = self.emit(f"add({', '.join([x, other][:: self.rng.choice([1, -1])])})", shape)
                x = self.relu(x, shape) if self.rng.integers(2) else x
            if not self.rng.integers(4):
                results.append((values[-1][0], self.tensor(self.dtype, values[-1][2])))
        results = [*dict.fromkeys(results), (x, self.tensor("f32", shape))]
        returned, types = (", ".join(part) for part in zip(*results, strict=True))
        head = f"func @f(%x: {self.tensor('f32', given)}) -> {types if len(results) == 1 else f'({types})'} {{"
        return "\n".join([head, *self.lines, f"  return {returned}", "}\n"])


def outputs(text: str, x: np.ndarray, engine: str, threads: int = 1) -> list[np.ndarray]:
    return [np.asarray(y) for y in compiled(read(text), engine=engine, threads=threads)([x]).values()]


@pytest.mark.parametrize("seed", range(60))
def test_the_bits_are_those_of_the_numpy_engine(seed: int) -> None:
    text = Network(seed).text()
    shape = read(text).main.params[0].type.static_shape  # type: ignore[attr-defined]
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    if seed % 3 == 0:
        x.reshape(-1)[:5] = np.nan, np.inf, -np.inf, 1e30, -0.0
    wanted = outputs(text, x, "numpy")
    for threads in (1, 2):
        for found, other in zip(outputs(text, x, "native", threads), wanted, strict=True):
            assert np.array_equal(found, other, equal_nan=found.dtype.kind == "f")


def test_a_residual_block_is_one_step_for_each_product() -> None:
    """The second product reads the first one's bytes; the residual, its clamp and its quantization are part of it."""
    net = Network(0)
    net.dtype, shape = "ui8", (1, 8, 8, 16)
    q, x, scale, zero = net.quantized("%x", shape)
    y = net.relu(net.emit(f"dot_general({x}, {net.weights(16, 16)}) contract_lhs[3] contract_rhs[0]", shape), shape)
    _, y, _, _ = net.quantized(y, shape)
    y = net.emit(f"dot_general({y}, {net.weights(16, 16)}) contract_lhs[3] contract_rhs[0]", shape)
    _, y, _, _ = net.quantized(y, shape)
    y = net.relu(net.emit(f"add({y}, {net.dequantized(q, shape, scale, zero)})", shape), shape)
    q, _, _, _ = net.quantized(y, shape)
    head = "func @f(%x: tensor<f32, 1x8x8x16>) -> tensor<ui8, 1x8x8x16> {"
    program = read("\n".join([head, *net.lines[:-1], f"  return {q}", "}\n"]))
    program = choose.optimized(program, RunOptions(), Diagnostics(program.source))
    units = byte_chains.found(program.main, fusion.Uses(program.main))
    assert [sum(op.defn.short == "dot_general" for op in unit) for unit in units] == [1, 1]
    assert units[1][-1].result in program.main.results


PRODUCT = """func @f(%x: tensor<si8, 32x32>, %b: tensor<ui8, 32>) -> {result} {{
  %w = constant() value[dense<{weights}>] -> tensor<si8, {shape}>
{ops}
}}
"""


@pytest.mark.parametrize(
    ("shape", "result", "ops"),
    [
        (  # numbers of rows, as many as there are columns
            (32, 32),
            "tensor<f32, 32x32>",
            """  %p = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] {si32} -> tensor<si32, 32x32>
  %r = constant() value[dense<{rows}>] -> tensor<si32, 32x1>
  %s = broadcast_to(%r) result_shape[32, 32] -> tensor<si32, 32x32>
  %a = add(%p, %s) -> tensor<si32, 32x32>
  %y = cast(%a) -> tensor<f32, 32x32>
  return %y""",
        ),
        (  # two axes of columns, and numbers of the last one
            (32, 4, 32),
            "tensor<f32, 32x4x32>",
            """  %p = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] {si32} -> tensor<si32, 32x4x32>
  %r = constant() value[dense<{row}>] -> tensor<si32, 32>
  %s = broadcast_to(%r) result_shape[32, 4, 32] -> tensor<si32, 32x4x32>
  %a = add(%p, %s) -> tensor<si32, 32x4x32>
  %y = cast(%a) -> tensor<f32, 32x4x32>
  return %y""",
        ),
        (  # bytes that are repeated along the columns
            (32, 32),
            "tensor<f32, 32x32>",
            """  %p = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] {si32} -> tensor<si32, 32x32>
  %c = cast(%p) -> tensor<f32, 32x32>
  %l = reshape(%b) new_shape[32, 1] -> tensor<ui8, 32x1>
  %s = broadcast_to(%l) result_shape[32, 32] -> tensor<ui8, 32x32>
  %d = cast(%s) -> tensor<f32, 32x32>
  %y = add(%c, %d) -> tensor<f32, 32x32>
  return %y""",
        ),
        (  # unsigned bytes minus 128, which two products read, one of them transposed
            (32, 32),
            "(tensor<f32, 32x32>, tensor<f32, 32x32>)",
            """  %u = bitcast(%x) dtype[ui8] -> tensor<ui8, 32x32>
  %h = broadcast_to(dense<128> : tensor<ui8>) result_shape[32, 32] -> tensor<ui8, 32x32>
  %t = bitwise_xor(%u, %h) -> tensor<ui8, 32x32>
  %i = bitcast(%t) dtype[si8] -> tensor<si8, 32x32>
  %v = transpose(%t) perm[1, 0] -> tensor<ui8, 32x32>
  %j = bitcast(%v) dtype[si8] -> tensor<si8, 32x32>
  %p = dot_general(%i, %w) contract_lhs[1] contract_rhs[0] {si32} -> tensor<si32, 32x32>
  %q = dot_general(%j, %w) contract_lhs[1] contract_rhs[0] {si32} -> tensor<si32, 32x32>
  %y = cast(%p) -> tensor<f32, 32x32>
  %z = cast(%q) -> tensor<f32, 32x32>
  return %y, %z""",
        ),
        (  # one number
            (32,),
            "tensor<f32>",
            """  %r = slice(%x) starts[0, 0] sizes[1, 32] -> tensor<si8, 1x32>
  %v = reshape(%r) new_shape[32] -> tensor<si8, 32>
  %p = dot_general(%v, %w) contract_lhs[0] contract_rhs[0] {si32} -> tensor<si32>
  %a = add(%p, dense<7> : tensor<si32>) -> tensor<si32>
  %y = cast(%a) -> tensor<f32>
  return %y""",
        ),
    ],
    ids=["rows", "two axes of columns", "repeated bytes", "shared bytes", "a number"],
)
def test_what_is_no_row_and_no_dense_operand(shape: tuple[int, ...], result: str, ops: str) -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(-9999, 9999, (32, 1))
    weights = rng.integers(-128, 128, shape).tolist()
    given = ops.format(si32="accum_dtype[si32] out_dtype[si32]", rows=rows.tolist(), row=rows.reshape(-1).tolist())
    text = PRODUCT.format(result=result, weights=weights, shape="x".join(map(str, shape)), ops=given)
    x, b = rng.integers(-128, 128, (32, 32)).astype(np.int8), rng.integers(0, 256, 32).astype(np.uint8)
    both = [compiled(read(text), engine=engine, threads=1)([x, b]).values() for engine in ("native", "reference")]
    assert all(np.array_equal(y, z) for y, z in zip(*both, strict=True))


@pytest.mark.parametrize("engine", ["native", "numpy"])
@pytest.mark.parametrize("dtype", ["si8", "ui8"])
@pytest.mark.parametrize("zero", [-7, 0, 9])
def test_a_padded_convolution_is_that_of_the_numbers(dtype: str, zero: int, engine: str) -> None:
    """Next to float64: padding is 0, whatever the zero point is."""
    net = Network(5)
    net.dtype, shape, zero = dtype, (1, 9, 8, 11), zero + (128 if dtype == "ui8" else 0)
    weights = net.rng.integers(-127, 128, (99, 24))
    scales = net.rng.uniform(1e-3, 1e-2, 24).astype(np.float32)
    quotient = net.emit(f"div(%x, {net.number(0.03, shape)})", shape)
    q = net.emit(f"quantize({quotient}) output_dtype[{dtype}] scales[1.0] zero_points[{zero}]", shape, dtype)
    y = net.dequantized(q, shape, float(np.float32(0.03)), zero)
    y = net.emit(f"extract_patches({y}) window[3, 3] padding[[1, 1], [1, 1]]", (*shape[:3], 99))
    w = net.emit(f"constant() value[dense<{weights.tolist()}>]", (99, 24), "si8")
    listed = ", ".join(repr(float(x)) for x in scales)
    w = net.emit(f"dequantize({w}) axis[1] output_dtype[f32] scales[{listed}]", (99, 24))
    y = net.emit(f"dot_general({y}, {w}) contract_lhs[3] contract_rhs[0]", (*shape[:3], 24))
    head = f"func @f(%x: {net.tensor('f32', shape)}) -> {net.tensor('f32', (*shape[:3], 24))} {{"
    x = net.rng.standard_normal(shape).astype(np.float32)
    (found,) = outputs("\n".join([head, *net.lines, f"  return {y}", "}\n"]), x, engine)
    ends = np.iinfo(np.int8 if dtype == "si8" else np.uint8)
    steps = np.clip(np.rint(x / np.float32(0.03)) + zero, ends.min, ends.max) - zero
    image = np.pad(steps * np.float64(np.float32(0.03)), [(0, 0), (1, 1), (1, 1), (0, 0)])
    patches = np.concatenate([image[:, i : i + 9, j : j + 8] for i in range(3) for j in range(3)], -1)
    np.testing.assert_allclose(found, patches @ (weights * scales.astype(np.float64)), rtol=1e-6, atol=1e-5)

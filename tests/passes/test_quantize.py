"""The pass `quantize`: its integers and scales against formulas written here, its errors, its options and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import SI4, UI4
from ptir_tools.core.ir import Op, Value
from ptir_tools.dialects.ptir.builder.build import Graph
from ptir_tools.dialects.ptir.quantization.steps import Method, Spread, of_weight
from ptir_tools.engines import run
from ptir_tools.engines.compiled import Compiled
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.constants import literal_of
from tests.rewrite.test_rules import read, write

Arrays = Mapping[str, np.ndarray]


def dense(width: int = 16, outputs: int = 8, layers: int = 1, seed: int = 0) -> Program:
    """Products of rows with matrices, the positive part between them. Columns differ in size."""
    rng, graph = np.random.default_rng(seed), Graph("main")
    x = graph.input("x", "f32", (4, width))
    for k in range(layers):
        n = outputs if k == layers - 1 else width
        weight = (rng.normal(size=(x.shape[1], n)) * 2.0 ** np.arange(n)[None, :] / 2.0 ** (n / 2)).astype(np.float32)
        x = x.dot_general(graph.constant(weight), contract_lhs=[1], contract_rhs=[0])
        x = x + graph.constant(rng.normal(size=n).astype(np.float32)).broadcast_like(x)
        x = x.maximum(0.0) if k < layers - 1 else x
    return graph.returns(x)


def images(channels: int = 8, seed: int = 0, size: int = 9) -> Program:
    """Three convolutions, padded and not, one of each channel alone; a sum with an earlier value; a product at the end."""
    rng = np.random.default_rng(seed)
    c = channels
    taps = "dilation = [1, 1], padding = [1, 1, 1, 1], strides = [{0}, {0}], window = [3, 3]"
    call, alone = "gpt_rs.c.conv2d.nhwc.f32.v1", "gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1"
    image, row = f"tensor<f32, 2x{size}x{size}x{c}>", f"tensor<f32, 2x{c}>"

    def constant(name: str, *shape: int) -> str:
        x = (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        return f"  %{name} = constant() value[dense<{x.tolist()}>] -> tensor<f32, {'x'.join(map(str, shape))}>\n"

    return read(
        f"func @main(%x: tensor<f32, 2x{size}x{size}x3>) -> {row} {{\n"
        + constant("w0", 27, c)
        + constant("b0", c)
        + constant("w1", c, 9)
        + constant("w2", 9 * c, c)
        + constant("b2", c)
        + constant("w3", c, c)
        + f'  %a = custom_call(%x, %w0, %b0) target["{call}"] attrs[{{{taps.format(1)}}}] -> {image}\n'
        f"  %z = broadcast_to(dense<0.0> : tensor<f32>) result_shape[2, {size}, {size}, {c}] -> {image}\n"
        f"  %r = maximum(%a, %z) -> {image}\n"
        f'  %d = custom_call(%r, %w1) target["{alone}"] attrs[{{{taps.format(1)}}}] -> {image}\n'
        f'  %e = custom_call(%d, %w2, %b2) target["{call}"] attrs[{{{taps.format(1)}}}] -> {image}\n'
        f"  %s = add(%e, %r) -> {image}\n"
        f"  %m = reduce_sum(%s) axes[1, 2] -> {row}\n"
        f"  %y = dot_general(%m, %w3) contract_lhs[1] contract_rhs[0] -> {row}\n  return %y\n}}\n"
    )


def samples(folder: Path, program: Program, count: int = 16, scale: float = 1.0, shift: float = 0.2) -> Path:
    """A file of samples for all inputs of `program`."""
    rng, path = np.random.default_rng(1), folder / "samples.npz"
    made = {p.name: rng.normal(size=(count, *p.type.static_shape)) * scale + shift for p in program.main.params}
    np.savez(path, **{name: x.astype(np.float32) for name, x in made.items()})  # type: ignore[arg-type]
    return path


def quantized(program: Program, path: Path | str, options: str = "") -> tuple[Program, list[str]]:
    """A quantized copy, and what the pass tells. What `options` do not name is off."""
    made, context = clone(program), PassContext(ready=Compiled)
    off = ",smooth=0" * ("smooth" not in options) + ",bias-correction=false" * ("bias-correction" not in options)
    run_pipeline(made, f'quantize{{calibration="{path}"{options}{off}}}', context)
    return made, context.measures


def error(lines: list[str]) -> float:
    """The largest error that is reported."""
    return max(float(line.split(" off by ")[1].split()[0]) for line in lines if " off by " in line)


def ops(program: Program, name: str) -> list[Op]:
    return [op for op in program.main.body if op.defn.short == name]


def constant(op: Op, k: int = 0) -> np.ndarray:
    literal = literal_of(op.operands[k])
    assert literal is not None
    return np.asarray(arrays.from_literal(literal))


def matrix(program: Program) -> np.ndarray:
    """The constant of the first product."""
    return constant(ops(program, "dot_general")[0], 1).astype(np.float64)


def by_integers(op: Op) -> bool:
    return any(isinstance(x, Value) and x.op is not None and x.op.defn.short == "dequantize" for x in op.operands)


# The oracle


def steps_of(low: float, high: float, signed: bool, most: int) -> tuple[np.float32, int]:
    low, high = min(low, 0.0), max(high, 0.0)
    if signed:
        return np.float32(max(-low, high) / most), 0
    scale = np.float32((high - low) / most)
    return scale, round(-low / float(scale))


@pytest.mark.parametrize("activations", ["ui8", "si8"])
@pytest.mark.parametrize("weights", ["si8", "ui8", "si4", "ui4"])
@pytest.mark.parametrize("each", [True, False])
def test_numbers_are_those_of_the_formulas(tmp_path: Path, weights: str, activations: str, each: bool) -> None:
    program = dense()
    path = samples(tmp_path, program)
    made, _ = quantized(program, path, f",weights={weights},activations={activations},per-channel={str(each).lower()}")
    given = np.load(path)["x"]
    seen = given[:12]  # the last quarter is held out
    signed = activations == "si8"
    scale, zero = steps_of(float(seen.min()), float(seen.max()), signed, 127 if signed else 255)
    (quantize,) = ops(made, "quantize")
    value, weight = sorted(ops(made, "dequantize"), key=lambda op: op.operands[0] is not quantize.result)
    assert value.attr("scales") == (float(scale),) and (value.attr("zero_points") or (0,)) == (zero,)
    assert quantize.attr("zero_points") == (zero,)

    w = matrix(program)
    most = {"si8": 127, "ui8": 255, "si4": 7, "ui4": 15}[weights]
    columns = [w[:, k] for k in range(w.shape[1])] if each else [w]
    pairs = [steps_of(float(c.min()), float(c.max()), weights[0] == "s", most) for c in columns]
    scales, zeros = (np.array([p[k] for p in pairs], np.float64) for k in (0, 1))
    want = np.clip(np.rint(w / scales) + zeros, -most if weights[0] == "s" else 0, most)
    assert np.array_equal(constant(weight).astype(int), want) and weight.attr("scales") == tuple(scales)
    assert weight.attr("axis") == (1 if each else None)

    x = given[13]
    q = np.clip(np.rint(x / scale) + zero, -128 if signed else 0, 127 if signed else 255)
    held = (q - zero) * float(scale)
    bias = constant(ops(program, "broadcast_to")[0])
    np.testing.assert_allclose(*run(made, {"x": x}, None).values(), held @ ((want - zeros) * scales) + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [dense, images])
@pytest.mark.parametrize("activations", ["ui8", "si8"])
def test_zero_stays_zero(tmp_path: Path, make: Callable[[], Program], activations: str) -> None:
    """Also where no number of a sample is near it; so padding is exact."""
    program = make()
    path = samples(tmp_path, program, scale=0.01, shift=5.0)
    made, _ = quantized(program, path, f",activations={activations}")
    by_value = {op.result: op for op in ops(made, "quantize")}
    for op in ops(made, "dequantize"):
        zeros = op.attr("zero_points") or (0,)
        if op.operands[0] in by_value:
            assert by_value[op.operands[0]].attr("zero_points") == zeros  # type: ignore[index]
        assert all(op.operands[0].type.dtype.min <= z <= op.operands[0].type.dtype.max for z in zeros)  # type: ignore[union-attr]


# Laws


@pytest.mark.parametrize("options", ["", ",smooth=0.5", ",results", ",bias-correction", ",method=mse", ",activations=none"])
@pytest.mark.parametrize("make", [dense, images])
def test_a_second_time_nothing_changes(tmp_path: Path, make: Callable[[], Program], options: str) -> None:
    program = make()
    made, _ = quantized(program, samples(tmp_path, program), options)
    assert ops(made, "dequantize") and write(made) != write(program)
    assert write(quantized(made, tmp_path / "samples.npz", options)[0]) == write(made)


@pytest.mark.parametrize("activations", ["ui8", "none"])
@pytest.mark.parametrize("make", [dense, images])
def test_the_error_falls_with_bits_and_scales(tmp_path: Path, make: Callable[[], Program], activations: str) -> None:
    program = make()
    path = samples(tmp_path, program)

    def off(more: str) -> float:
        return error(quantized(program, path, f",activations={activations}{more}")[1])

    four, eight, one = off(",weights=si4"), off(",weights=si8"), off(",weights=si4,per-channel=false")
    assert 0 < eight < four / (4 if activations == "none" else 2) and four < one


def test_what_is_told_is_the_error_on_samples_held_out(tmp_path: Path) -> None:
    program = images()
    path = samples(tmp_path, program, count=9)
    made, lines = quantized(program, path)
    rest = np.load(path)["x"][7:]
    want, got = (np.stack([run(p, {"x": x})["y"] for x in rest]).astype(np.float64) for p in (program, made))
    off = float(np.linalg.norm(want - got) / np.linalg.norm(want))
    (line,) = lines
    assert line == f"y: off by {off:.3g} of its norm ({-20 * np.log10(off):.1f} dB), on 2 held-out samples"


def test_outliers_do_not_decide_the_range(tmp_path: Path) -> None:
    program = dense()
    path = samples(tmp_path, program, count=40)
    x = np.load(path)["x"]
    x[3, 0, 0] = 1000.0
    np.savez(path, x=x)
    assert error(quantized(program, path, ",method=percentile,percentile=99")[1]) < error(quantized(program, path)[1]) / 5


def test_the_squared_error_decides_the_range() -> None:
    """Of constants and of values: 4 bits are used best by the numbers that occur most."""
    w = np.random.default_rng(0).normal(size=(64, 16))
    for dtype in (SI4, UI4):
        least, best = (of_weight(w, dtype, 1, method, 100.0).rounded(w, 1) for method in (Method.MIN_MAX, Method.MSE))
        assert (np.square(best - w).sum(0) <= np.square(least - w).sum(0)).all()
        assert np.square(best - w).sum() < np.square(least - w).sum() * 0.98
    seen = Spread(None)
    x = np.append(np.random.default_rng(0).normal(size=10**5), 50.0)
    seen.see(x)
    seen.count(x)
    all_of_it, part = (seen.steps(SI4, method, 100.0) for method in (Method.MIN_MAX, Method.MSE))
    assert np.square(part.rounded(x) - x).mean() < np.square(all_of_it.rounded(x) - x).mean() / 2


def test_channels_of_different_sizes_are_balanced(tmp_path: Path) -> None:
    for program in (dense(), images()):
        path = samples(tmp_path, program)
        x = np.load(path)["x"]
        x[..., 1] *= 100.0
        np.savez(path, x=x)
        made, lines = quantized(program, path, ",smooth=0.5")
        assert error(lines) < error(quantized(program, path)[1])
        assert len(ops(made, "div")) > len(ops(made, "quantize"))


def test_a_bias_keeps_the_mean(tmp_path: Path) -> None:
    shorter = images()
    shorter.main.results = list(ops(shorter, "custom_call")[2].results)
    shorter.main.result_types = [v.type for v in ops(shorter, "custom_call")[2].results]
    for program in (dense(), shorter):
        path = samples(tmp_path, program, shift=3.0, count=32)
        rest = np.load(path)["x"][24:]
        name = program.main.results[0].name  # type: ignore[union-attr]

        def mean(program: Program, name: str = name, rest: np.ndarray = rest) -> np.ndarray:
            return np.asarray(np.mean([run(program, {"x": x})[name].reshape(-1, 8) for x in rest], (0, 1)))

        plain, corrected = (mean(quantized(program, path, f",weights=si4{more}")[0]) for more in ("", ",bias-correction"))
        want = mean(program)
        assert np.linalg.norm(corrected - want) < np.linalg.norm(plain - want) / 2


@pytest.mark.parametrize("budget", [0.1, 0.01, 0.003, 0.0001])
def test_products_are_left_out_until_the_error_is_within_the_budget(tmp_path: Path, budget: float) -> None:
    program = images()
    path = samples(tmp_path, program)
    made, lines = quantized(program, path, f",max-error={budget}")
    left = [line for line in lines if "stays in floats" in line]
    assert not any(" off by " in line for line in lines) or error(lines) <= budget
    assert len(left) == (0 if budget == 0.1 else 4 if budget == 0.0001 else len(left))
    assert len(left) + sum(map(by_integers, (*ops(made, "custom_call"), *ops(made, "dot_general")))) == 4


def test_skipped_products_stay(tmp_path: Path) -> None:
    program = images()
    made, _ = quantized(program, samples(tmp_path, program), ",skip=e;y")
    assert [by_integers(op) for op in ops(made, "custom_call")] == [True, True, False]
    assert not by_integers(ops(made, "dot_general")[0])


def test_groups_have_scales_of_their_own(tmp_path: Path) -> None:
    program = dense(64)
    path = samples(tmp_path, program)
    found = [
        error(quantized(program, path, f",activations=none,weights={w},group={g}")[1]) for w in ("si4", "ui4") for g in (0, 8)
    ]
    assert found[1] < found[0] and found[3] < found[2]
    made, _ = quantized(program, path, ",activations=none,weights=ui4,group=8")
    (weight,) = (op for op in ops(made, "constant") if op.result.type.dtype.name == "ui4")  # type: ignore[union-attr]
    w = matrix(program).reshape(8, 8, 8)
    low, high = np.minimum(w.min(1, keepdims=True), 0), np.maximum(w.max(1, keepdims=True), 0)
    scale = ((high - low) / 15).astype(np.float32).astype(np.float64)
    want = np.clip(np.rint(w / scale) + np.rint(-low / scale), 0, 15)
    assert np.array_equal(np.asarray(arrays.from_literal(weight.attr("value"))).astype(int), want)


def test_values_are_rounded_once_and_moved_as_integers(tmp_path: Path) -> None:
    program = read(
        "func @f(%x: tensor<f32, 4x6>) -> (tensor<f32, 6x2>, tensor<f32, 4x2>) {\n"
        f"  %w = constant() value[dense<{np.arange(8).reshape(4, 2).tolist()}>] -> tensor<f32, 4x2>\n"
        f"  %v = constant() value[dense<{np.arange(12).reshape(6, 2).tolist()}>] -> tensor<f32, 6x2>\n"
        "  %t = transpose(%x) perm[1, 0] -> tensor<f32, 6x4>\n"
        "  %a = dot_general(%t, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 6x2>\n"
        "  %b = dot_general(%x, %v) contract_lhs[1] contract_rhs[0] -> tensor<f32, 4x2>\n  return %a, %b\n}\n"
    )
    made, lines = quantized(program, samples(tmp_path, program))
    assert len(ops(made, "quantize")) == 1 and len(lines) == 2
    (move,) = ops(made, "transpose")
    assert by_integers(move)


def test_symbols_stay(tmp_path: Path) -> None:
    program = read(
        "func @f(%x: tensor<f32, ?nx3>) -> tensor<f32, ?nx2> {\n"
        "  %w = constant() value[dense<[[1, 2], [3, 4], [5, -6]]>] -> tensor<f32, 3x2>\n"
        "  %y = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, ?nx2>\n  return %y\n}\n"
    )
    np.savez(tmp_path / "s.npz", x=np.random.default_rng(0).normal(size=(8, 5, 3)).astype(np.float32))
    made, lines = quantized(program, tmp_path / "s.npz", ",max-error=0.5")
    assert error(lines) < 0.02 and run(made, {"x": np.ones((7, 3), np.float32)})["y"].shape == (7, 2)


def test_what_is_not_finite_stays(tmp_path: Path) -> None:
    program = dense()
    path = samples(tmp_path, program)
    x = np.load(path)["x"]
    x[2, 1, 1] = np.inf
    np.savez(path, x=x)
    made, lines = quantized(program, path)
    assert write(made) == write(program) and "not finite" in lines[0]


# Files and options


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "has no samples of `x`"),
        ({"x": np.zeros((4, 4, 16), np.float32), "z": np.zeros(3)}, "no input `z`"),
        ({"x": np.zeros((1, 4, 16), np.float32)}, "has 1 samples"),
        ({"x": np.zeros((4, 16), np.float32)}, "its samples in .* have the shape"),
        ({"x": np.zeros((4, 5, 16), np.float32)}, "its samples in .* have the shape"),
        ({"x": np.zeros((4, 4, 16), np.int32)}, "its samples in .* are of int32"),
    ],
)
def test_samples_that_do_not_fit_are_wrong_usage(tmp_path: Path, arrays: Arrays, message: str) -> None:
    np.savez(tmp_path / "s.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message):
        quantized(dense(), tmp_path / "s.npz")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (",percentile=40", "above 50"),
        (",smooth=1.5", "from 0 to 1"),
        (",group=8", "for weights alone"),
        (",skip=nothing", "no product is named `nothing`"),
    ],
)
def test_options_without_sense_are_wrong_usage(tmp_path: Path, options: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        quantized(dense(), samples(tmp_path, dense()), options)


def test_samples_and_an_engine_are_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs samples"):
        run_pipeline(dense(), "quantize", PassContext(ready=Compiled))
    with pytest.raises(UsageError, match="has no engine"):
        run_pipeline(dense(), f'quantize{{calibration="{samples(tmp_path, dense())}"}}')
    run_pipeline(made := dense(), "quantize{activations=none}")
    assert len(ops(made, "dequantize")) == 1 and not ops(made, "quantize")


def test_a_second_input_needs_as_many_samples(tmp_path: Path) -> None:
    row = "tensor<f32, 2>"
    program = read(f"func @f(%x: {row}, %z: tensor<si32>) -> {row} {{\n  %y = neg(%x) -> {row}\n  return %y\n}}\n")
    np.savez(tmp_path / "s.npz", x=np.zeros((4, 2), np.float32), z=np.zeros(3, np.int32))
    with pytest.raises(UsageError, match="4 samples of `x`, 3 samples of `z`"):
        quantized(program, tmp_path / "s.npz")
    np.savez(tmp_path / "s.npz", x=np.zeros((4, 2), np.float32), z=np.zeros(4, np.int32))
    made, lines = quantized(program, tmp_path / "s.npz")
    assert write(made) == write(program) and not lines


def layouts() -> dict[str, Program]:
    """Products of every layout: the constant first, summed along another axis, several free axes, a convolution of groups."""
    rng, made = np.random.default_rng(0), {}

    def constant(*shape: int) -> str:
        x = (rng.normal(size=shape) + 0.3).astype(np.float32)
        return f"constant() value[dense<{x.tolist()}>] -> tensor<f32, {'x'.join(map(str, shape))}>"

    taps = "dilation = [1, 1], groups = 2, padding = [1, 1, 1, 1], strides = [2, 1], window = [3, 3]"
    for name, x, w, call, y in (
        ("first", "8x5", (6, 8), "dot_general(%w, %x) contract_lhs[1] contract_rhs[0]", "6x5"),
        ("turned", "5x8", (6, 8), "dot_general(%x, %w) contract_lhs[1] contract_rhs[1]", "5x6"),
        ("before", "8x5", (8, 6), "dot_general(%x, %w) contract_lhs[0] contract_rhs[0]", "5x6"),
        ("wide", "5x8", (3, 8, 2), "dot_general(%x, %w) contract_lhs[1] contract_rhs[1]", "5x3x2"),
        ("both", "5x4x2", (4, 2, 6), "dot_general(%x, %w) contract_lhs[1, 2] contract_rhs[0, 1]", "5x6"),
        ("groups", "1x5x5x8", (36, 6), f'custom_call(%x, %w) target["ptir.conv2d.nhwc.v1"] attrs[{{{taps}}}]', "1x3x5x6"),
    ):
        result = f"tensor<f32, {y}>"
        text = f"func @main(%x: tensor<f32, {x}>) -> {result} {{\n  %w = {constant(*w)}\n  %p = {call} -> {result}\n"
        last = y.rpartition("x")[2]
        text += f"  %b = {constant(int(last))}\n  %s = broadcast_to(%b) result_shape[{y.replace('x', ', ')}] -> {result}\n"
        made[name] = read(text + f"  %y = add(%p, %s) -> {result}\n  return %y\n}}\n")
    return made


@pytest.mark.parametrize("name", layouts())
@pytest.mark.parametrize("weights", ["si8", "ui8"])
def test_products_of_every_layout(tmp_path: Path, name: str, weights: str) -> None:
    program = layouts()[name]
    path = samples(tmp_path, program, 48, shift=1.0)
    plain, balanced, whole = (
        error(quantized(program, path, f",weights={weights}{more}")[1])
        for more in ("", ",smooth=0.5,bias-correction", ",smooth=0.5,per-channel=false")
    )
    assert plain < 0.02 and balanced < 0.02 and whole < 0.03


@pytest.mark.parametrize("name", ["first", "turned", "before", "wide", "groups"])
def test_each_channel_meets_its_own_weights(tmp_path: Path, name: str) -> None:
    """A channel of large numbers is balanced; with the numbers of another channel nothing would fit."""
    program = layouts()[name]
    path = samples(tmp_path, program, 48)
    x = np.load(path)["x"]
    rows = np.moveaxis(x, 1 if name in ("first", "before") else -1, 0)  # a view
    rows[2] *= 300.0
    rows[5] /= 300.0
    np.savez(path, x=x)
    made, lines = quantized(program, path, ",smooth=0.7")
    by = [op.operands[1] for op in ops(made, "div")]
    (divisors,) = (x for v in by if isinstance(v, Value) and v.op is not None and (x := constant(v.op)).size > 1)
    assert divisors.argmax() == 2 and divisors.argmin() == 5
    assert error(lines) < 0.04

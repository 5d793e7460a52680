"""Integers and bits on tiles: what targets lack in some dtype is made of what they have, and gives the same bits."""

import ml_dtypes
import numpy as np
import pytest

from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.engines.compare import check
from ptir_tools.engines.options import RunOptions
from tests.convert.ptir_to_pto.programs import TARGETS, program, reread, single, written

INTEGERS = {f"{u}i{n}": np.dtype(f"{'u' * (u == 'u')}int{n}") for u in "su" for n in (8, 16, 32)}
FLOATS = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def edges(dtype):
    """Integers at and around what matters: 0, 1, powers of two, both ends; and some between."""
    info = np.iinfo(dtype)
    near = {
        int(info.min),
        int(info.max),
        0,
        1,
        2,
        3,
        7,
        *(s * (1 << k) + d for k in range(info.bits) for s in (1, -1) for d in (-1, 0, 1)),
    }
    kept = sorted(n for n in near if info.min <= n <= info.max)
    more = np.random.default_rng(0).integers(info.min, info.max, 96 - len(kept) % 96, dtype, endpoint=True)
    return np.concatenate([np.array(kept, dtype), more])


def translated(before, target):
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target, lossy=True))
    assert after is not None, found.items
    return reread(after)


def alike(before, target, **inputs):
    """Both compute the same of these inputs."""
    found = check(before, translated(before, target), runs=1, constants=inputs, options=RunOptions(order="adversarial"))
    assert not found.diverged, list(map(str, found.diverged))


def pairs(dtype, divisor):
    """Every kind of left next to every kind of right, which is not 0 where it divides."""
    x = edges(dtype)
    y = np.roll(x, 17)
    return x, np.where(y == 0, 1, y).astype(dtype) if divisor else y


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", INTEGERS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rem", "mod", "maximum", "minimum", "pow"])
def test_arithmetic(name, t, target):
    x, y = pairs(INTEGERS[t], name in ("div", "rem", "mod"))
    if name == "pow":
        y = (y % 40).astype(y.dtype) if t[0] == "u" else (y % 40 - 5).astype(y.dtype)
    full = f"tensor<{t}, {len(x)}>"
    alike(single(f"%x: {full}, %z: {full}", full, f"%y = {name}(%x, %z) -> {full}"), target, x=x, z=y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", INTEGERS)
@pytest.mark.parametrize("name", ["compare_lt", "compare_le", "compare_eq", "compare_ge", "compare_gt", "compare_ne"])
def test_order(name, t, target):
    x, y = pairs(INTEGERS[t], False)
    y[::3] = x[::3]
    full, flags = f"tensor<{t}, {len(x)}>", f"tensor<i1, {len(x)}>"
    alike(single(f"%x: {full}, %z: {full}", flags, f"%y = {name}(%x, %z) -> {flags}"), target, x=x, z=y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", INTEGERS)
@pytest.mark.parametrize("name", ["shift_left", "shift_right_logical", "shift_right_arithmetic"])
def test_shifts(name, t, target):
    x = edges(INTEGERS[t])
    y = (np.arange(len(x)) % (INTEGERS[t].itemsize * 8 + 3)).astype(x.dtype)
    full = f"tensor<{t}, {len(x)}>"
    alike(single(f"%x: {full}, %z: {full}", full, f"%y = {name}(%x, %z) -> {full}"), target, x=x, z=y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", INTEGERS)
@pytest.mark.parametrize("name", ["popcount", "count_leading_zeros", "bitwise_not"])
def test_bits(name, t, target):
    x = edges(INTEGERS[t])
    full = f"tensor<{t}, {len(x)}>"
    alike(single(f"%x: {full}", full, f"%y = {name}(%x) -> {full}"), target, x=x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", [*INTEGERS, "i1"])
@pytest.mark.parametrize("name", ["reduce_and", "reduce_or", "reduce_xor"])
@pytest.mark.parametrize("axes, left", [("0", "12"), ("1", "8"), ("0, 1", "")])
def test_reductions_of_bits(name, t, axes, left, target):
    x = edges(INTEGERS[t])[:96].reshape(8, 12) if t != "i1" else np.arange(96).reshape(8, 12) % 5 > 0
    small = f"tensor<{t}, {left}>" if left else f"tensor<{t}>"
    alike(single(f"%x: tensor<{t}, 8x12>", small, f"%y = {name}(%x) axes[{axes}] -> {small}"), target, x=x)


@pytest.mark.parametrize("short", ["rem", "mod"])
def test_remainders_of_a3_do_not_go_through_the_op_that_is_exact_to_2_to_the_24th(short):
    """Only where both operands are known to be smaller."""
    full = "tensor<si32, 96>"
    large = single(f"%x: {full}, %z: {full}", full, f"%y = {short}(%x, %z) -> {full}")
    count = f"%i = iota() axis[0] -> {full}"
    small = single(f"%x: {full}", full, count, f"%k = {short}(%i, dense<7> : {full}) -> {full}", f"%y = add(%x, %k) -> {full}")
    assert "tile.rem" not in written(translated(large, "a3")) and "tile.rem" in written(translated(small, "a3"))
    alike(small, "a3", x=edges(INTEGERS["si32"])[:96])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["reduce_and", "reduce_or", "reduce_xor"])
def test_reductions_of_bits_are_short(name, target):
    """Bits are an axis, not copies: rows of a number, and of a symbol."""
    for extent in (64, "?N"):
        before = single(f"%x: tensor<ui32, 8x{extent}>", "tensor<ui32, 8>", f"%y = {name}(%x) axes[1] -> tensor<ui32, 8>")
        assert written(after := translated(before, target)).count("\n") < 200
        assert not check(before, after, runs=1, options=RunOptions(order="adversarial")).diverged


@pytest.mark.parametrize("target", TARGETS)
def test_reductions_of_bits_along_a_symbol(target):
    before = single("%x: tensor<si32, 3x?N>", "tensor<si32, 3>", "%y = reduce_xor(%x) axes[1] -> tensor<si32, 3>")
    assert not check(before, translated(before, target), runs=1).diverged


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", INTEGERS)
def test_numbers_that_are_written(t, target):
    """Constants, at both ends, next to a tensor."""
    x, (low, high) = edges(INTEGERS[t]), (np.iinfo(INTEGERS[t]).min, np.iinfo(INTEGERS[t]).max)
    full = f"tensor<{t}, {len(x)}>"
    lines = (
        f"%a = add(%x, dense<{high}> : {full}) -> {full}",
        f"%b = maximum(%a, dense<{low + 5}> : {full}) -> {full}",
        f"%c = clamp(%b, dense<{low + 9}> : {full}, dense<{high - 9}> : {full}) -> {full}",
        f"%f = broadcast_to(dense<{high}> : tensor<{t}>) result_shape[{len(x)}] -> {full}",
        f"%y = sub(%f, %c) -> {full}",
    )
    alike(single(f"%x: {full}", full, *lines), target, x=x)


WIDTHS = {**INTEGERS, **FLOATS}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", WIDTHS)
@pytest.mark.parametrize("to", WIDTHS)
def test_bits_as_others(source, to, target):
    a, b = WIDTHS[source].itemsize, WIDTHS[to].itemsize
    shape = (6, 8 if a >= b else b // a)
    result = "6x8" if a == b else f"6x8x{a // b}" if a > b else "6"
    x = np.random.default_rng(1).integers(0, 256, (*shape, a), np.uint8)
    x[..., -1] &= 0x3B  # floats that are numbers
    x[..., a - 1 if a < 4 else 2] &= 0x7B
    dims = "x".join(map(str, shape))
    y = f"tensor<{to}, {result}>"
    before = single(f"%x: tensor<{source}, {dims}>", y, f"%y = bitcast(%x) dtype[{to}] -> {y}")
    alike(before, target, x=x.view(WIDTHS[source]).reshape(shape))


SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan, 1.5, -1.00001, 65504.0, 3e38, -6e-8, 1e-40, 3.14159, -7.7)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", FLOATS)
def test_the_next_number(t, target):
    with np.errstate(all="ignore"):
        x = np.repeat(np.array(SPECIAL), len(SPECIAL)).astype(FLOATS[t])
        y = np.tile(np.array(SPECIAL), len(SPECIAL)).astype(FLOATS[t])
    full = f"tensor<{t}, {len(x)}>"
    alike(single(f"%x: {full}, %z: {full}", full, f"%y = nextafter(%x, %z) -> {full}"), target, x=x, z=y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize("exponent, mantissa", [(8, 7), (5, 10), (4, 3), (8, 0), (11, 52), (2, 23)])
def test_fewer_bits(t, exponent, mantissa, target):
    with np.errstate(all="ignore"):
        more = np.random.default_rng(2).normal(size=80) * 10.0 ** np.random.default_rng(3).integers(-9, 9, 80)
        x = np.array([*SPECIAL, *more]).astype(FLOATS[t])
    full = f"tensor<{t}, {len(x)}>"
    line = f"%y = reduce_precision(%x) exponent_bits[{exponent}] mantissa_bits[{mantissa}] -> {full}"
    alike(single(f"%x: {full}", full, line), target, x=x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", ["f32", "bf16", "si32", "ui32", "si8"])
@pytest.mark.parametrize("how", ["", "exclusive[true]", "reverse[true]", "exclusive[true] reverse[true]"])
def test_running_products(t, how, target):
    full = f"tensor<{t}, 5x?N>"
    before = single(f"%x: {full}", full, f"%y = cumprod(%x) axis[1] {how} -> {full}")
    assert not check(before, translated(before, target), runs=1).diverged


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", INTEGERS)
@pytest.mark.parametrize("own", [True, False])
def test_products(t, own, target):
    """The matrix unit multiplies i8 to i32; all others are products and sums of the vector unit."""
    sums = t if own or t == "ui32" else "si32"
    x = np.resize(edges(INTEGERS[t]), (6, 20))
    y = np.resize(edges(INTEGERS[t])[::-1], (20, 9))
    if not own:
        x, y = (x % 50).astype(x.dtype), (y % 50).astype(y.dtype)
    line = (
        f"%y = dot_general(%x, %z) contract_lhs[1] contract_rhs[0] accum_dtype[{sums}] out_dtype[{sums}] -> tensor<{sums}, 6x9>"
    )
    alike(single(f"%x: tensor<{t}, 6x20>, %z: tensor<{t}, 20x9>", f"tensor<{sums}, 6x9>", line), target, x=x, z=y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["reduce_max", "reduce_min", "reduce_sum", "reduce_prod", "argmax"])
@pytest.mark.parametrize("axis, left", [(0, 12), (1, 8)])
def test_reductions_of_what_has_no_sign(name, axis, left, target):
    x = edges(INTEGERS["ui32"])[:96].reshape(8, 12)
    small = f"tensor<{'si32' if name == 'argmax' else 'ui32'}, {left}>"
    line = f"%y = {name}(%x) {'axis' if name == 'argmax' else 'axes'}[{axis}] -> {small}"
    alike(single("%x: tensor<ui32, 8x12>", small, line), target, x=x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["si64", "ui64"])
@pytest.mark.parametrize(
    "op", ["popcount(%x)", "count_leading_zeros(%x)", "shift_right_arithmetic(%x, %x)", "reduce_xor(%x) axes[0]"]
)
def test_what_is_wider_than_tiles_compute_in_is_refused(op, dtype, target):
    result = dtype if "axes" in op else f"{dtype}, 8"
    source = single(f"%x: tensor<{dtype}, 8>", f"tensor<{result}>", f"%y = {op} -> tensor<{result}>")
    assert translate(source, "pto", found := Diagnostics(source.source), Options(target=target)) is None
    assert {d.code for d in found} == {"NotTranslatable"}


def test_a_tile_of_other_extents_than_the_block_is_refused():
    """a3 has no f8e5m2. Trying `%p` next to it once ended in a StopIteration."""
    t, x = "tensor<ui32, 1>", "tensor<fp8_e5m2, 2x2>"
    source = program(f"func @main(%x: {x}, %p: {t}) -> ({t}, {x}) {{ return %p, %x }}")
    assert translate(source, "pto", found := Diagnostics(source.source), Options(target="a3")) is None
    assert {d.code for d in found} == {"NotTranslatable"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("out", ["si8", "si16", "si32", "f32"])
def test_products_that_saturate(out, target):
    """The sums are of si32; a narrower result is bounded."""
    x = np.random.default_rng(4).integers(-128, 127, (2, 6, 20), np.int8, endpoint=True)
    w, y = x[:, :5].reshape(10, 20).T.copy(), f"tensor<{out}, 6x10>"
    line = f"%y = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] accum_dtype[si32] out_dtype[{out}] -> {y}"
    before = single("%x: tensor<si8, 6x20>, %w: tensor<si8, 20x10>", y, line)
    alike(before, target, x=x[0], w=w)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", INTEGERS)
@pytest.mark.parametrize("zero", [0, 3, 100])
def test_steps_of_integers_of_all_sizes(t, zero, target):
    """Both ends of a dtype, less a zero point, which is more than its bits hold."""
    x = edges(INTEGERS[t])
    full, real = f"tensor<{t}, {len(x)}>", f"tensor<f32, {len(x)}>"
    alike(single(f"%x: {full}", real, f"%y = dequantize(%x) scales[0.3] zero_points[{zero}] -> {real}"), target, x=x)
    scale = 2.0 ** (np.iinfo(x.dtype).bits - 8) * 1.7
    attrs = f"scales[1.0] zero_points[{zero}] output_scales[{scale}] output_zero_points[-3] output_dtype[si8]"
    y = f"tensor<si8, {len(x)}>"
    alike(single(f"%x: {full}", y, f"%y = requantize(%x) {attrs} -> {y}"), target, x=x)

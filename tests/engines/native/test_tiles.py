"""Tile programs against NumPy, one instruction by one, and the phases that have a loop of their own."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ptir_tools
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.evaluate import Context
from ptir_tools.engines import native, run
from ptir_tools.engines.choose import prepare
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.threads import in_turn
from ptir_tools.engines.options import RunOptions

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")
ERF = np.vectorize(math.erf, otypes=[float])


def tiles(name, arrays, out, whole_rows=False):
    """One instruction over arrays of [rows, columns] or [rows, 1]."""
    lib, n = kernels(), len(arrays)
    rows, columns = (max(sizes) for sizes in zip(*(a.shape for a in (*arrays, out)), strict=True))
    kinds = bytes(lib.ROWS if a.shape[1] == 1 and columns > 1 else lib.FULL for a in (*arrays, out))
    number = lib.OPS.index
    on_rows = columns > 1 and out.shape[1] == 1 and not name.startswith("reduce")
    begin = [number("on_rows" if on_rows else "on_elements"), 0, 0, number("load"), 0, 0]
    if name.startswith("reduce"):
        kinds = kinds[:-1] + bytes([lib.ROWS])
        code = bytes([*begin, number(name), n, 0])
    else:
        code = bytes([*begin, number(name), *([*range(1, n), 0, 0][:2]), number("store"), n, 0])
    room = np.empty(lib.tile_floats(kinds, rows, columns, whole_rows), np.float32)
    lib.tiles(code, kinds, (*arrays, out), n, rows, columns, whole_rows, room)
    return out


def units(actual, exact):
    """The largest error in units in the last place, where the exact value is a finite float."""
    near = exact.astype(np.float32)
    use = np.isfinite(near) & (np.abs(near) >= np.finfo(np.float32).tiny)
    return float(np.max(np.abs(actual[use] - exact[use]) / np.spacing(np.abs(near[use])).astype(float), initial=0))


def test_a_row_repeated_over_all_rows_is_read_once_and_outputs_may_be_inputs():
    rng = np.random.default_rng(0)
    x, row = rng.standard_normal((5000, 3)).astype(np.float32), rng.standard_normal(3).astype(np.float32)
    exact = x * row
    repeated = np.broadcast_to(row, x.shape)
    np.testing.assert_array_equal(tiles("mul", [x, repeated], np.empty_like(x)), exact)
    np.testing.assert_array_equal(tiles("mul", [x, repeated], x), exact)


def test_an_input_is_read_before_an_output_in_its_place_is_written():
    lib, x = kernels(), np.arange(600, dtype=np.float32).reshape(3, 200)
    before, other = x.copy(), np.empty_like(x)
    steps = [("on_elements", 0), ("load", 0), ("neg", 0), ("store", 1), ("load", 0), ("store", 2)]
    code, kinds = bytes(b for name, r in steps for b in (lib.OPS.index(name), r, 0)), bytes([lib.FULL] * 3)
    room = np.empty(lib.tile_floats(kinds, 3, 200, False), np.float32)
    lib.tiles(code, kinds, (x, x, other), 1, 3, 200, False, room)
    np.testing.assert_array_equal(x, -before)
    np.testing.assert_array_equal(other, before)


UNARY = {
    "neg": (np.negative, 0),
    "abs": (np.abs, 0),
    "exp": (np.exp, 2),
    "log": (np.log, 2),
    "tanh": (np.tanh, 7),
    "erf": (ERF, 7),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "reciprocal": (lambda x: 1 / x, 1),
    "round_even": (np.rint, 0),
}


SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1e-39,
    1.2e-38,
    3.4e38,
    -3.4e38,
    88.72,
    88.73,
    -87.4,
    -103.9,
    -104.1,
]


def test_an_input_is_read_before_a_reduction_in_its_place_is_written():
    lib, x = kernels(), np.arange(600, dtype=np.float32).reshape(3, 200)
    one = np.array([[1], [2], [3]], np.float32)
    top, total = one, np.empty_like(one)
    steps = ["on_elements", "load 0", "reduce_max 2", "on_rows", "load 2", "add 1", "store 3"]
    code = bytes(b for s in steps for name, *r in [s.split()] for b in (lib.OPS.index(name), int(r[0]) if r else 0, 0))
    kinds = bytes([lib.FULL, lib.ROWS, lib.ROWS, lib.ROWS])
    room = np.empty(lib.tile_floats(kinds, 3, 200, True), np.float32)
    lib.tiles(code, kinds, (x, one, top, total), 2, 3, 200, True, room)
    np.testing.assert_array_equal(top, [[199], [399], [599]])
    np.testing.assert_array_equal(total, [[200], [401], [602]])


@pytest.mark.parametrize("name", UNARY)
def test_functions_are_within_their_error(name):
    exact, limit = UNARY[name]
    grid = [np.linspace(-110, 110, 20001), np.linspace(-1, 1, 20001), np.logspace(-38, 38, 5001), SPECIAL]
    x = np.concatenate(grid).astype(np.float32)[None]
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(float))
        actual = tiles(name, [x], np.empty_like(x))
        assert units(actual, wanted) <= limit
        rounded = wanted.astype(np.float32)
        extreme = ~np.isfinite(rounded)
        np.testing.assert_array_equal(actual[extreme], rounded[extreme])
        tiny = np.abs(rounded) < np.finfo(np.float32).tiny
        assert (np.abs(actual[tiny] - wanted[tiny]) <= 2**-148).all()


@pytest.mark.parametrize("name", UNARY)
def test_functions_give_the_same_bits_wherever_an_element_stands(name):
    """Between any neighbors, in any place of a tile, in the last elements."""
    x = np.concatenate([np.linspace(-12, 12, 1000), np.logspace(-38, 3, 1000)]).astype(np.float32)
    alone = np.concatenate([tiles(name, [v[None, None]], np.empty((1, 1), np.float32)) for v in x], axis=1)[0]
    rng = np.random.default_rng(0)
    for _ in range(20):
        order, some = rng.permutation(len(x)), x.copy()
        some[rng.integers(0, len(x), 5)] = SPECIAL[:5]
        found = tiles(name, [some[order][None]], np.empty((1, len(x)), np.float32))[0]
        same = some[order] == x[order]
        np.testing.assert_array_equal(found[same].view(np.int32), alone[order][same].view(np.int32))


BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "compare_lt": np.less,
    "compare_le": np.less_equal,
    "compare_eq": np.equal,
    "compare_ge": np.greater_equal,
    "compare_gt": np.greater,
    "compare_ne": np.not_equal,
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("left,right", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("rows,columns", [(16, 16), (3, 5000), (300, 7)])
def test_binary_instructions_with_values_per_row(name, left, right, rows, columns):
    rng = np.random.default_rng(1)
    x, y = (rng.choice(np.array([*SPECIAL, 1.5, -2.5], np.float32), (rows, 1 if one else columns)) for one in (left, right))
    out = np.empty((rows, 1 if left and right else columns), np.float32)
    with np.errstate(all="ignore"):
        wanted = np.broadcast_to(BINARY[name](x, y), out.shape).astype(np.float32)
    np.testing.assert_array_equal(tiles(name, [x, y], out), wanted)


KNOWN = {
    "squares": "load 0; mul 0; reduce_sum 5 0",
    "deviation": "load 0; sub 2; store 6; mul 6; reduce_sum 5 0",
    "softmax": "load 0; sub 2; exp; store 6; reduce_sum 5 0",
    "divided": "load 0; div 2; store 6",
    "at least": "load 0; maximum 2; store 6",
    "scaled": "load 0; mul 2; mul 1; store 6",
    "shifted": "load 0; mul 2; mul 1; add 0; store 6",
    "erf gelu": "load 0; mul 2; erf; add 3; store 7; load 0; mul 4; mul 7; store 6",
    "tanh gelu": "load 0; mul 0; mul 0; mul 2; add 0; mul 3; tanh; add 3; store 7; load 0; mul 4; mul 7; store 6",
    "sigmoid": "load 0; neg; exp; add 2; reciprocal; store 6",
    "silu": "load 0; neg; exp; add 2; reciprocal; mul 0; store 6",
    "hard swish": "load 0; add 2; maximum 3; minimum 4; mul 0; div 2; store 6",
    "hard swish shifted": "load 0; add 2; maximum 3; minimum 4; mul 0; div 2; mul 3; add 4; store 6",
    "hard gate": "load 0; div 2; add 3; maximum 4; minimum 2; mul 0; store 6",
    "hard gate shifted": "load 0; div 2; add 3; maximum 4; minimum 2; mul 0; mul 3; add 4; store 6",
}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("rows,columns", [(1, 64), (3, 63), (40, 65), (7, 1000), (2, 5000)])
def test_known_phases_give_the_bits_of_their_instructions(name, rows, columns):
    """A phase that is a loop of its own, and the same with an instruction more, which is not."""
    lib, rng = kernels(), np.random.default_rng(3)
    x, y = (rng.standard_normal((rows, columns)).astype(np.float32) * 3 for _ in range(2))
    x[rng.random(x.shape) < 0.01] = 200
    x[rng.random(x.shape) < 0.01] = rng.choice(np.array(SPECIAL, np.float32))
    scalars = [rng.standard_normal((rows, 1)).astype(np.float32) for _ in range(3)]
    kinds = bytes([lib.FULL] * 2 + [lib.ROWS] * 4 + [lib.FULL, lib.LOCAL])
    found = []
    for more in ("", "; load 0"):
        steps = [["on_elements"], *(s.split() for s in (KNOWN[name] + more).split("; "))]
        code = bytes(b for s, *r in steps for b in (lib.OPS.index(s), *(*map(int, r), 0, 0)[:2]))
        outs = np.zeros((rows, 1), np.float32), np.zeros((rows, columns), np.float32)
        room = np.empty(lib.tile_floats(kinds, rows, columns, True), np.float32)
        lib.tiles(code, kinds, (x, y, *scalars, *outs), 5, rows, columns, True, room)
        found.append(outs)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one.view(np.int32), other.view(np.int32))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("rows,columns", [(1, 1), (3, 63), (7, 1000), (2, 5000)])
def test_bytes_are_loaded_and_truncated(dtype, rows, columns):
    """Floats to bytes by the cast table, and back; also from 32 bits, which are rounded."""
    rng, ends = np.random.default_rng(columns), np.iinfo(dtype)
    x = (rng.standard_normal((rows, columns)) * 150).astype(np.float32)
    special = [np.nan, np.inf, -np.inf, ends.min - 0.5, ends.max + 0.5, -0.0, 0.99, -0.99, 1e30, -1e30]
    at = rng.random(x.shape) < 0.1
    x[at] = rng.choice(np.array(special, np.float32), at.sum())
    with np.errstate(invalid="ignore"):
        wanted = np.trunc(np.clip(np.where(np.isnan(x), 0, x), ends.min, ends.max)).astype(dtype)
    found = tiles("nearest_si8" if dtype is np.int8 else "nearest_ui8", [x], np.empty(x.shape, dtype))
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(tiles("neg", [found], np.empty_like(x)), -wanted.astype(np.float32))
    wide = rng.integers(-(2**31), 2**31, x.shape).astype(np.int32)
    np.testing.assert_array_equal(tiles("neg", [wide[:, ::-1]], np.empty_like(x)), -wide[:, ::-1].astype(np.float32))


@pytest.mark.parametrize("rows,columns", [(1, 1), (5, 31), (7, 32), (3, 33), (40, 100), (2, 5000), (16, 4099), (35, 5001)])
def test_row_reductions(rows, columns):
    x = np.random.default_rng(2).standard_normal((rows, columns)).astype(np.float32)
    out = [tiles(f"reduce_{k}", [x], np.empty((rows, 1), np.float32), True) for k in ("sum", "max", "min")]
    np.testing.assert_allclose(out[0], x.astype(float).sum(1, keepdims=True), rtol=0, atol=columns * 1e-7)
    np.testing.assert_array_equal(out[1], x.max(1, keepdims=True))
    np.testing.assert_array_equal(out[2], x.min(1, keepdims=True))
    x[0, -1] = np.nan
    for kind in ("sum", "max", "min"):
        found = tiles(f"reduce_{kind}", [x], np.empty((rows, 1), np.float32), True)
        assert np.isnan(found[0, 0]) and not np.isnan(found[1:]).any()


@pytest.mark.parametrize("columns", [1, 5, 31, 32, 33, 100, 1030])
@pytest.mark.parametrize("offset", [0.0, 1e3, -1e7, 3e30])
def test_rows_are_normalized_as_in_float64(columns, offset):
    """However far from zero they are: what the mean is rounded by is taken off."""
    rng = np.random.default_rng(columns)
    x = (offset + rng.standard_normal((3, columns)) * max(1.0, abs(offset) * 1e-6)).astype(np.float32)
    gamma, beta = (rng.standard_normal(columns).astype(np.float32) for _ in range(2))
    out = np.empty_like(x)
    kernels().layer_norm(out, x, gamma, beta, 1e-5)
    wide = x.astype(np.float64)
    apart = wide - wide.mean(1, keepdims=True)
    exact = apart / np.sqrt((apart**2).mean(1, keepdims=True) + 1e-5)
    assert (abs(out - (exact * gamma + beta)) <= 2.0**-20 * (abs(exact * gamma) + abs(beta) + abs(gamma))).all()


@pytest.mark.parametrize("rows", [1, 16, 35])
def test_broad_rows_are_summed_next_to_values_per_row_and_per_column(rows):
    rng, lib, columns = np.random.default_rng(5), kernels(), 4101
    x, row, column = (rng.standard_normal(s).astype(np.float32) for s in ((rows, columns), (1, columns), (rows, 1)))
    steps = (("on_elements", 0, 0), ("load", 0, 0), ("add", 1, 0), ("mul", 2, 0), ("reduce_sum", 3, 0))
    code = bytes(b for name, *r in steps for b in (lib.OPS.index(name), *r))
    kinds, out = bytes([lib.FULL, lib.FULL, lib.ROWS, lib.ROWS]), np.empty((rows, 1), np.float32)
    room = np.empty(lib.tile_floats(kinds, rows, columns, True), np.float32)
    lib.tiles(code, kinds, (x, np.broadcast_to(row, x.shape), column, out), 3, rows, columns, True, room)
    terms = (x.astype(float) + row) * column
    np.testing.assert_allclose(out, terms.sum(1, keepdims=True), rtol=0, atol=1e-6 * abs(terms).sum(1).max())


def test_arrays_of_any_strides_and_flags():
    x = np.arange(60, dtype=np.float32).reshape(10, 6)
    np.testing.assert_array_equal(tiles("neg", [x.T[:, ::2]], np.empty((6, 5), np.float32)), -x.T[:, ::2])
    row = np.broadcast_to(x[0], (10, 6))
    np.testing.assert_array_equal(tiles("add", [x, row], np.empty_like(x)), x + row)
    flags = np.empty((10, 6), np.bool_)
    np.testing.assert_array_equal(tiles("compare_gt", [x, row], flags), x > row)
    np.testing.assert_array_equal(tiles("select", [flags, x, row], np.empty_like(x)), np.where(flags, x, row))


@pytest.mark.parametrize("start", [0, 1, 4, 8, 15])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_results_past_the_cache_are_those_of_operands_anywhere(name, start):
    graph, n = ptir_tools.Graph(), (1 << 21) + 37  # 8 MiB, which go past the cache, and a rest
    x, y = (graph.input(k, "f32", [n]) for k in "xy")
    program = graph.returns(getattr(x, name)(y).named("z"))
    a, b = np.random.default_rng(0).standard_normal((2, n + 16), np.float32)[:, start : start + n]
    a[::1001], b[::999], b[5] = np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        want = getattr(np, {"sub": "subtract", "mul": "multiply"}.get(name, name))(a, b)
    found = run(program, {"x": a, "y": b}, RunOptions(engine="native", threads=1))["z"]
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    "steps,kinds,arrays,match",
    [
        ([("on_elements", 0), ("load", 0), ("store", 1)], "FF", "xo", "too small"),
        ([("on_elements", 0), ("load", 9), ("store", 1)], "FF", "xo", "out of range"),
        ([("load", 0), ("store", 1)], "FF", "xo", "out of range"),
        ([("on_elements", 0), ("load", 0), ("store", 0)], "FF", "xo", "out of range"),
        ([("on_rows", 0), ("load", 0), ("store", 2)], "FRR", "xoo", "out of range"),
        ([("on_elements", 0), ("load", 0), ("store", 1)], "FR", "xo", "out of range"),
        ([("on_elements", 0), ("load", 0), ("reduce_sum", 1)], "FR", "xr", "out of range"),
        ([("on_elements", 0)] * 321, "FF", "xo", "out of range"),
        ([("on_elements", 0), *[("load", 0)] * 641], "FF", "xo", "out of range"),
        ([("on_elements", 0), ("load", 0), ("store", 1)], "FF", "no", "shape of the domain"),
        ([("on_elements", 0), ("load", 0), ("store", 1)], "FF", "xn", "shape of the domain"),
        ([("on_elements", 0), ("load", 0), ("store", 1)], "LF", "xo", "too many"),
        ([("on_elements", 0), ("load", 0), ("store", 1)], "F", "xo", "too many"),
        ([("on_elements", 0), ("load", 0), ("store", 1)], "F" * 161, "xo", "too many"),
        ([("on_elements", 0), ("load", 0), ("store", 1)], "FF", "xf", "read-only"),
    ],
)
def test_tile_programs_that_do_not_fit_are_refused(steps, kinds, arrays, match):
    lib, x = kernels(), np.zeros((4, 4), np.float32)
    frozen = x.copy()
    frozen.flags.writeable = False
    given = {"x": x, "o": x.copy(), "r": x[:, :1].copy(), "n": x[:, :2].copy(), "f": frozen}
    code = bytes(b for name, register in steps for b in (lib.OPS.index(name), register, 0))
    numbers = bytes({"F": lib.FULL, "R": lib.ROWS, "L": lib.LOCAL}[k] for k in kinds)
    room = np.empty(8 if match == "too small" else 4096, np.float32)
    with pytest.raises((ValueError, BufferError), match=match):
        lib.tiles(code, numbers, tuple(given[a] for a in arrays), 1, 4, 4, False, room)


@pytest.mark.parametrize("seed", range(4))
def test_the_longest_groups_fit(seed):
    """Some hundred ops whose values live long, with reductions between: against the same in float64."""
    rng = np.random.default_rng(seed)
    g = ptir_tools.Graph()
    inputs = {f"x{i}": rng.standard_normal((5, 70)).astype(np.float32) for i in range(3)}
    values = [(g.input(name, "f32", x.shape), x.astype(np.float64)) for name, x in inputs.items()]
    for _ in range(150):
        (a, x), (b, y) = (values[i] for i in rng.integers(max(0, len(values) - 60), len(values), 2))
        made = [
            lambda a=a, b=b, x=x, y=y: (a + b, x + y),
            lambda a=a, x=x: (a * 0.5, x * 0.5),
            lambda a=a, b=b, x=x, y=y: (a.maximum(b), np.maximum(x, y)),
            lambda a=a, x=x: (a.tanh(), np.tanh(x)),
            lambda a=a, x=x: (a - a.reduce_max([-1], keepdims=True).broadcast_like(a), x - x.max(-1, keepdims=True)),
        ]
        values.append(made[rng.integers(len(made))]())
    total, exact = values[3]
    for v, x in values[4:]:
        total, exact = total + v, exact + x
    found = ptir_tools.run(g.returns(total.named("y")), inputs, engine="native")["y"]
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * abs(exact).max())


SCALED = {
    "quantize": ("f32", "f16", "bf16", "f64"), "requantize": ("si8", "ui8", "si16", "ui16", "si32", "ui32"),
    "dequantize": ("si8", "ui8", "si16", "ui16", "si32", "ui32"),
}  # fmt: skip


@pytest.mark.parametrize("along", [False, True])
@pytest.mark.parametrize("shape", ["1", "7", "3x5", "2x257", "5x1"])
@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op, ds in SCALED.items() for d in ds])
def test_scaled_numbers_are_those_of_the_reference(op, dtype, shape, along):
    """Every element of every source, alone and in rows, with one scale and with one for each index of an axis."""
    count = int(shape.split("x")[-1]) if along else 1
    scales = ", ".join(str(0.25 + 0.5 * (i % 5)) for i in range(count))
    zeros = ", ".join(str(i % 3) for i in range(count))
    axis = f" axis[{shape.count('x')}]" if along else ""
    target = {"quantize": "si8", "requantize": "ui8", "dequantize": "f32"}[op]
    more = " output_scales[0.75] output_zero_points[3]" if op == "requantize" and not along else ""
    if op == "requantize" and along:
        more = f" output_scales[{scales}] output_zero_points[{zeros}]"
    of, to = f"tensor<{dtype}, {shape}>", f"tensor<{target}, {shape}>"
    line = f"{op}(%x) output_dtype[{target}]{axis} scales[{scales}] zero_points[{zeros}]{more} -> {to}"
    program = ptir_tools.read(f"func @f(%x: {of}) -> {to} {{\n  %y = {line}\n  return %y\n}}\n")
    given = random_inputs(program, 5)
    want, got = (next(iter(run(program, given, RunOptions(engine=e)).values())) for e in ("reference", "native"))
    np.testing.assert_array_equal(got, want)


def _after_a_product_of_bytes(kind, g, s, bias):
    """What may be made of the sums s, [rows, columns]."""
    steps = {"scales": [0.01], "output_scales": [0.7], "output_zero_points": [-3]}
    row, columns = bias.broadcast_like(s), s.shape[1]
    if kind == "bias, steps, bounds":
        return (row + s).requantize("si8", **steps).maximum(-5).minimum(100)
    if kind == "steps by column":
        return s.dequantize(axis=1, scales=[0.1 + i % 7 for i in range(columns)], zero_points=[i % 2 for i in range(columns)])
    if kind == "another order":
        return g.constant(np.int8(3)).broadcast_to(s.shape).maximum((s + row).requantize("si8", scales=[0.25])).clamp(-1, 90)
    if kind == "steps by row":
        rows = s.shape[0]
        return s.requantize("ui8", axis=0, scales=[0.1 + i for i in range(rows)], zero_points=[0] * rows)
    if kind == "sums that are used":
        return (s + row) + (s + row).requantize("si8", scales=[0.1]).cast("si32")
    if kind == "numbers that are not bounds":
        return s.requantize("si8", scales=[0.1]).maximum(bias.requantize("si8", scales=[0.1]).broadcast_to(s.shape))
    return (s + s).requantize("ui8", scales=[0.125], zero_points=[4], output_scales=[1.0], output_zero_points=[200])


KINDS = (
    "bias, steps, bounds",
    "steps by column",
    "another order",
    "steps by row",
    "sums that are used",
    "numbers that are not bounds",
    "twice",
)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("shape", [(1, 5, 3), (33, 70, 65), (130, 1100, 40), (300, 64, 33)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_of_sums_of_bytes_is_that_of_the_reference(kind, shape, constant):
    m, k, n = shape
    rng = np.random.default_rng(7)
    given = {"x": rng.integers(-128, 128, (m, k), np.int8), "bias": rng.integers(-9999, 9999, n, np.int32)}
    w = rng.integers(-128, 128, (k, n), np.int8)
    g = ptir_tools.Graph()
    x, bias = g.input("x", "si8", (m, k)), g.input("bias", "si32", (n,))
    right = g.constant(w) if constant else g.input("w", "si8", (k, n))
    s = x.dot_general(right, contract_lhs=[1], contract_rhs=[0], accum_dtype="si32", out_dtype="si32")
    program = g.returns(_after_a_product_of_bytes(kind, g, s, bias).named("y"))
    given |= {} if constant else {"w": w}
    want, *got = (
        run(program, given, RunOptions(engine=e, threads=t))["y"] for e, t in (("reference", 1), ("native", 1), ("native", 2))
    )
    for found in got:
        np.testing.assert_array_equal(found, want)


def _several_phases(g, x, y, flags):
    """Reductions, values per row, and what is used only in between."""
    e = (x - x.reduce_max([-1], keepdims=True).broadcast_like(x)).exp()
    p = e / e.reduce_sum([-1], keepdims=True).broadcast_like(e)
    return flags.select(p * y.broadcast_like(p) + x, -p)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 16), (3, 5), (40, 63), (7, 64), (12, 200), (16, 3000), (17, 3000), (2, 5000)])
def test_a_task_gives_the_bits_of_its_kernels_whenever_it_runs(dtype, shape):
    """A program of one tile is prepared once; the kernels called one by one find their operands anew."""
    g = ptir_tools.Graph()
    given = [g.input("x", dtype, shape), g.input("y", dtype, shape[1:]), g.input("flags", "i1", shape)]
    program = g.returns(_several_phases(g, *given).named("z"))
    rng = np.random.default_rng(3)
    x, y, flags = (np.zeros(v.shape, numpy_dtype(v.dtype)) for v in given)
    bound = prepare(program, RunOptions(engine="native", threads=1), Diagnostics()).bind([x, y, flags])
    for _ in range(3):
        x[...], y[...] = rng.standard_normal(x.shape) * 3, rng.standard_normal(y.shape)
        flags[...] = rng.integers(0, 2, flags.shape)
        with np.errstate(all="ignore"):
            in_turn(bound.frame.steps)
        expected = [a.copy() for a in bound.results]
        for a in bound.results:
            a[...] = 0
        (found,), (wanted,) = bound(Context()), expected
        assert np.array_equal(found.view(np.uint8), wanted.view(np.uint8))


def test_a_chain_of_small_ops_is_prepared_once():
    """Each call adds 1,000 times; the sum in NumPy has the same bits."""
    g = ptir_tools.Graph()
    x, y = g.input("x", "f32", [16]), g.input("y", "f32", [16])
    z = x
    for _ in range(1000):
        z = z + y
    call = ptir_tools.compile(g.returns(z.named("z")), engine="native", reuse=True)
    rng = np.random.default_rng(4)
    for _ in range(3):
        a, b = rng.standard_normal((2, 16)).astype(np.float32)
        exact = a
        for _ in range(1000):
            exact = exact + b
        np.testing.assert_array_equal(call({"x": a, "y": b})["z"], exact)

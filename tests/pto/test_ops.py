"""Numbers of PTO ops by hand: what is special about one; `pto/test_random.py` runs the families on every element type."""

import ml_dtypes
import numpy as np
import pytest

from ptir_tools.core.violations import Violation
from tests.pto.programs import check, codes, good, module, printed, run

DTYPES = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "u8": np.uint8, "u32": np.uint32, "i1": np.bool_, "u64": np.uint64, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
}  # fmt: skip
FLOATS = ("f32", "f16", "bf16")
R, C = 5, 7


def tile(dtype, rows=R, columns=C, loc=""):
    return f"tile<{rows}x{columns}x{dtype}{f', #pto.tile_info<loc={loc}>' if loc else ''}>"


def memref(dtype, rows=R, columns=C):
    return f"pto.memref<{rows}x{columns}x{dtype}>"


def evaluate(statement, arguments, out, *lines, scalars=()):
    """Run `%r = …` on loaded tiles %x0, %x1, …; `arguments` are (dtype, array), `out` is (dtype, rows, columns)."""
    shapes = [(d, *np.shape(a)) for d, a in arguments]
    parameters = [f"%m{i}: {memref(*s)}" for i, s in enumerate(shapes)] + [f"%out: {memref(*out)}"]
    parameters += [f"%s{i}: {d}" for i, (d, _) in enumerate(scalars)]
    loads = [f"%x{i} = pto.tile.load %m{i}[0, 0] : {memref(*s)}, {tile(*s)}" for i, s in enumerate(shapes)]
    store = f"pto.tile.store %r, %out[0, 0] : {memref(*out)}, {tile(*out)}"
    source = module(", ".join(parameters), *loads, *lines, statement, store)
    inputs = {f"m{i}": np.asarray(a).astype(DTYPES[d]) for i, (d, a) in enumerate(arguments)}
    inputs |= {f"s{i}": np.asarray(v, DTYPES[d]) for i, (d, v) in enumerate(scalars)}
    inputs["out"] = np.zeros(out[1:], DTYPES[out[0]])
    return run(source, inputs)["out"]


def data(dtype, seed=0, shape=(R, C)):
    rng = np.random.default_rng(seed)
    if dtype in FLOATS:
        return rng.uniform(-4, 4, shape).astype(DTYPES[dtype])
    info = np.iinfo(DTYPES[dtype])
    return rng.integers(max(info.min, -(2**40)), min(info.max, 2**40), shape, dtype=np.int64, endpoint=True).astype(DTYPES[dtype])


def same(got, want):
    want = np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype
    assert got.tobytes() == want.tobytes() or np.array_equal(got.astype(np.float64), want.astype(np.float64), equal_nan=True)


def once(wide, dtype):
    """float64 rounded to a dtype whose exact values need no second rounding here: checked for bf16 through float32 only
    where float32 holds the result of the op exactly or the op is one of + - * / sqrt."""
    with np.errstate(all="ignore"):
        return (
            np.asarray(wide).astype(np.float32).astype(DTYPES[dtype])
            if dtype == "bf16"
            else np.asarray(wide).astype(DTYPES[dtype])
        )


@pytest.mark.parametrize("dtype", FLOATS)
def test_division_of_floats_is_ieee(dtype):
    a, b = data(dtype, 1), data(dtype, 2)
    b[0, :3], a[0, 0] = 0, 0
    got = evaluate(f"%r = pto.tile.div %x0, %x1 : {tile(dtype)}", [(dtype, a), (dtype, b)], (dtype, R, C))
    with np.errstate(all="ignore"):
        same(got, once(a.astype(np.float64) / b.astype(np.float64), dtype))


def test_division_of_integers_truncates_and_wraps():
    a, b = np.array([[7, -7, 7, -7, -(2**31)]]), np.array([[2, 2, -2, -2, -1]])
    got = evaluate("%r = pto.tile.div %x0, %x1 : tile<1x5xi32>", [("i32", a), ("i32", b)], ("i32", 1, 5))
    assert got.tolist() == [[3, -3, -3, 3, -(2**31)]]


def test_integer_division_by_zero_is_an_error():
    with pytest.raises(Violation) as error:
        evaluate("%r = pto.tile.div %x0, %x0 : tile<1x2xi32>", [("i32", np.array([[1, 0]]))], ("i32", 1, 2))
    assert error.value.code == "IntegerDivideByZero"


def test_shifts():
    a, b = np.array([[-8, 5, 1, -1]]), np.array([[1, 2, 40, 40]])
    left = evaluate("%r = pto.tile.shl %x0, %x1 : tile<1x4xi32>", [("i32", a), ("i32", b)], ("i32", 1, 4))
    right = evaluate("%r = pto.tile.shr %x0, %x1 : tile<1x4xi32>", [("i32", a), ("i32", b)], ("i32", 1, 4))
    assert left.tolist() == [[-16, 20, 0, 0]] and right.tolist() == [[-4, 1, 0, -1]]


def test_remainders():
    a, b = np.array([[7, -7, 7, -7]]), np.array([[3, 3, -3, -3]])
    arguments = [("i32", a), ("i32", b)]
    assert evaluate("%r = pto.tile.rem %x0, %x1 : tile<1x4xi32>", arguments, ("i32", 1, 4)).tolist() == [[1, 2, -2, -1]]
    assert evaluate("%r = pto.tile.fmod %x0, %x1 : tile<1x4xi32>", arguments, ("i32", 1, 4)).tolist() == [[1, -1, 1, -1]]


def test_powers_with_a_scalar():
    x = np.array([[0.5, 1.0, 2.0, 4.0]], np.float32)
    by, of = (
        evaluate(f"%r = pto.tile.pows {operands} : {types}", [("f32", x)], ("f32", 1, 4), scalars=[("f32", 3)])
        for operands, types in (("%x0, %s0", "tile<1x4xf32>, f32"), ("%s0, %x0", "f32, tile<1x4xf32>"))
    )
    assert by.tolist() == [[0.125, 1, 8, 64]]
    assert np.allclose(of, np.float32(3) ** x)


def test_division_by_and_of_a_scalar():
    x = data("f32", 1)
    by = evaluate(f"%r = pto.tile.divs %x0, %s0 : {tile('f32')}, f32", [("f32", x)], ("f32", R, C), scalars=[("f32", 3)])
    of = evaluate(f"%r = pto.tile.divs %s0, %x0 : f32, {tile('f32')}", [("f32", x)], ("f32", R, C), scalars=[("f32", 3)])
    same(by, (x.astype(np.float64) / 3).astype(np.float32))
    same(of, (3 / x.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("name", ["colmax", "colmin"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_what_is_not_a_number_is_no_warning(name, dtype):
    x = np.array([[16.125, np.nan, 1], [np.nan, 2, 3]])
    got = evaluate(f"%r = pto.tile.{name} %x0 : {tile(dtype, 2, 3)} -> {tile(dtype, 1, 3)}", [(dtype, x)], (dtype, 1, 3))
    same(got, np.array([[np.nan, np.nan, 3 if name == "colmax" else 1]]).astype(DTYPES[dtype]))


def test_maximum_propagates_nan():
    a, b = np.array([[np.nan, 1]]), np.array([[1, np.nan]])
    got = evaluate("%r = pto.tile.max %x0, %x1 : tile<1x2xf32>", [("f32", a), ("f32", b)], ("f32", 1, 2))
    assert np.isnan(got).all()


MODES = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}


@pytest.mark.parametrize("mode", MODES)
def test_compare_and_select(mode):
    a, b = data("f32", 1), data("f32", 2)
    a[0], b[1, 2] = b[0], np.nan
    mask = f"%m = pto.tile.cmp %x0, %x1 {{cmpMode = #pto.cmp<{mode}>}} : {tile('f32')} -> {tile('i8')}"
    select = f"%r = pto.tile.sel %m, %x0, %x1 : {tile('f32')}"
    got = evaluate(select, [("f32", a), ("f32", b)], ("f32", R, C), mask)
    same(got, np.where(MODES[mode](a, b), a, b))
    scalar = f"%r = pto.tile.cmps %x0, %s0 {{cmpMode = #pto.cmp<{mode}>}} : {tile('f32')} -> {tile('i8')}"
    same(evaluate(scalar, [("f32", a)], ("i8", R, C), scalars=[("f32", a[0, 0])]), MODES[mode](a, a[0, 0]).astype(np.int8))


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_select_by_scalar(mode):
    a, b = data("f32", 1), data("f32", 2)
    got = evaluate(
        f"%r = pto.tile.sels %x0, %x1, %s0 : {tile('f32')}", [("f32", a), ("f32", b)], ("f32", R, C), scalars=[("i8", mode)]
    )
    same(got, a if mode == 1 else b)


VALUES = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4, -2.6, np.nan, np.inf, -np.inf, 3e9]
LIMIT = 2**31 - 1
ROUNDED = {
    "RINT": [-2, -2, 0, 0, 2, 2, 2, -3],
    "ROUND": [-3, -2, -1, 1, 2, 3, 2, -3],
    "FLOOR": [-3, -2, -1, 0, 1, 2, 2, -3],
    "CEIL": [-2, -1, 0, 1, 2, 3, 3, -2],
    "TRUNC": [-2, -1, 0, 0, 1, 2, 2, -2],
    "ODD": [-3, -1, -1, 1, 1, 3, 3, -3],
}


@pytest.mark.parametrize("mode", ROUNDED)
def test_convert_floats_to_integers(mode):
    x = np.array([VALUES])
    statement = f"%r = pto.tile.cvt %x0 {{rmode = #pto.round_mode<CAST_{mode}>}} : tile<1x12xf32> -> tile<1x12xi32>"
    got = evaluate(statement, [("f32", x)], ("i32", 1, 12))
    assert got.tolist() == [[*ROUNDED[mode], 0, LIMIT, -LIMIT - 1, LIMIT]]


def test_convert_between_integers_wraps_and_between_floats_rounds_to_even():
    got = evaluate("%r = pto.tile.cvt %x0 : tile<1x3xi32> -> tile<1x3xi8>", [("i32", np.array([[300, -129, 5]]))], ("i8", 1, 3))
    assert got.tolist() == [[44, 127, 5]]
    x = data("f32", 5)
    same(
        evaluate(f"%r = pto.tile.cvt %x0 : {tile('f32')} -> {tile('bf16')}", [("f32", x)], ("bf16", R, C)),
        x.astype(DTYPES["bf16"]),
    )


def test_row_sums_go_left_to_right_in_f32():
    x = np.array([[2.0**24, 1, 1, 1]], np.float32)
    got = evaluate("%r = pto.tile.rowsum %x0 : tile<1x4xf32> -> tile<1x1xf32>", [("f32", x)], ("f32", 1, 1))
    assert got[0, 0] == 2.0**24


PRODUCTS = [("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("i8", "i32"), ("f8e4m3fn", "f32")]


@pytest.mark.parametrize("dtype, out", PRODUCTS)
@pytest.mark.parametrize("form", ["matmul", "matmul.acc", "matmul.bias"])
def test_matmul(form, dtype, out):
    m, k, n = 5, 6, 3
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 8, s).astype(DTYPES[dtype]) for s in ((m, k), (k, n)))
    more = rng.integers(-8, 8, (m, n) if form == "matmul.acc" else (1, n)).astype(DTYPES[out])
    parameters = f"%a: {tile(dtype, m, k, 'Left')}, %b: {tile(dtype, k, n, 'Right')}, %out: {memref(out, m, n)}"
    types = f"{tile(dtype, m, k, 'Left')}, {tile(dtype, k, n, 'Right')}"
    acc, inputs, operands = tile(out, m, n, "Acc"), {"a": a, "b": b}, "%a, %b"
    want = a.astype(np.float64) @ b.astype(np.float64)
    if form != "matmul":
        loc = "Acc" if form == "matmul.acc" else "Bias"
        parameters += f", %c: {tile(out, *more.shape, loc)}"
        extra = tile(out, *more.shape, loc)
        operands, types = (f"%c, {operands}", f"{extra}, {types}") if loc == "Acc" else (f"{operands}, %c", f"{types}, {extra}")
        inputs["c"], want = more, want + more
    statement = f"%r = pto.tile.{form} {operands} : {types} -> {acc}"
    source = module(parameters, statement, f"pto.tile.store %r, %out[0, 0] : {memref(out, m, n)}, {acc}")
    same(run(source, inputs | {"out": np.zeros((m, n), DTYPES[out])})["out"], want.astype(DTYPES[out]))


def test_moves_between_locations():
    x = data("f32", 3, (16, 16))
    lines = []
    for i, (op, source, target) in enumerate((("m2l", "Mat", "Left"), ("m2r", "Mat", "Right"))):
        lines.append(f"%y{i} = pto.tile.mov.{op} %x : {tile('f32', 16, 16, source)} -> {tile('f32', 16, 16, target)}")
    mat = tile("f32", 16, 16, "Mat")
    acc, vec = tile("f32", 16, 16, "Acc"), tile("f16", 16, 16, "Vec")
    source = module(
        f"%m: {memref('f32', 16, 16)}, %out: {memref('f16', 16, 16)}",
        f"%x = pto.tile.load %m[0, 0] : {memref('f32', 16, 16)}, {mat}",
        *lines,
        f"%p = pto.tile.matmul %y0, %y1 : {tile('f32', 16, 16, 'Left')}, {tile('f32', 16, 16, 'Right')} -> {acc}",
        f"%v = pto.tile.mov.a2v %p {{relu = true}} : {acc} -> {vec}",
        f"%w = pto.tile.mov.v2v %v : {vec} -> {vec}",
        f"pto.tile.store %w, %out[0, 0] : {memref('f16', 16, 16)}, {vec}",
    )
    x = np.round(x)
    got = run(source, {"m": x, "out": np.zeros((16, 16), np.float16)})["out"]
    same(got, np.maximum(x.astype(np.float64) @ x, 0).astype(np.float16))


@pytest.mark.parametrize("scale", ["f32", "u64"])
def test_quantized_moves_and_stores(scale):
    x, s = np.array([[3, -5, 1000]]), np.array([[0.5, 2.0, 1.0]], np.float32)
    bits = s.view(np.uint32).astype(np.uint64) if scale == "u64" else s
    acc, factors = tile("i32", 1, 3, "Acc"), tile(scale, 1, 3, "Scale")
    source = module(
        f"%x: {acc}, %s: {factors}, %out: {memref('i8', 1, 3)}, %more: {memref('i8', 1, 3)}",
        f"%q = pto.tile.mov.fp %x, %s : {acc}, {factors} -> {tile('i8', 1, 3, 'Vec')}",
        f"pto.tile.store %q, %out[0, 0] : {memref('i8', 1, 3)}, {tile('i8', 1, 3, 'Vec')}",
        f"pto.tile.store.fp %x, %s, %more[0, 0] : {acc}, {factors}, {memref('i8', 1, 3)}",
    )
    zeros = np.zeros((1, 3), np.int8)
    made = run(source, {"x": x.astype(np.int32), "s": bits, "out": zeros, "more": zeros})
    assert made["out"].tolist() == made["more"].tolist() == [[2, -10, 127]]


def test_bias_and_factors_come_from_mat():
    a, bias, factors = np.array([[1, 2], [3, 4]], np.float16), np.array([[0.5, -1]], np.float16), np.array([[2, 3]], np.float32)
    left, right, acc = tile("f16", 2, 2, "Left"), tile("f16", 2, 2, "Right"), tile("f32", 2, 2, "Acc")
    rows = {"Bias": tile("f32", 1, 2, "Bias"), "Scale": tile("f32", 1, 2, "Scale")}
    halves, wholes = tile("f16", 1, 2, "Mat"), tile("f32", 1, 2, "Mat")
    source = module(
        f"%l: {left}, %r: {right}, %b: {memref('f16', 1, 2)}, %s: {memref('f32', 1, 2)}, %out: {memref('f32', 2, 2)}",
        f"%x = pto.tile.load %b[0, 0] : {memref('f16', 1, 2)}, {halves}",
        f"%y = pto.tile.load %s[0, 0] : {memref('f32', 1, 2)}, {wholes}",
        f"%bias = pto.tile.mov.m2b %x : {halves} -> {rows['Bias']}",
        f"%factors = pto.tile.mov.m2s %y : {wholes} -> {rows['Scale']}",
        f"%p = pto.tile.matmul.bias %l, %r, %bias : {left}, {right}, {rows['Bias']} -> {acc}",
        "%at = pto.constant 64 : index",
        f"pto.tile.assign %p, %at : {acc}, index",
        f"pto.tile.store.fp %p, %factors, %out[0, 0] : {acc}, {rows['Scale']}, {memref('f32', 2, 2)}",
    )
    made = run(source, {"l": a, "r": a, "b": bias, "s": factors, "out": np.zeros((2, 2), np.float32)})["out"]
    same(made, ((a.astype(np.float64) @ a + bias) * factors).astype(np.float32))


@pytest.mark.parametrize("exhausted, want", [("false", [9, 8, 7, 5, 3, 1]), ("true", [9, 8, 7])])
def test_merging_may_stop_when_a_list_is_used_up(exhausted, want):
    a, b = np.array([[8, 5, 3, 1]], np.float32), np.array([[9, 7]], np.float32)
    long, short, made = (tile("f32", 1, n) for n in (4, 2, 6))
    source = module(
        f"%x: {long}, %y: {short}, %out: {memref('f32', 1, 6)}",
        f"%r, %n = pto.tile.mrgsort %x, %y {{exhausted = {exhausted}}} : {long}, {short} -> ({made}, vector<4xi16>)",
        f"pto.tile.store %r, %out[0, 0] {{valid = [1, {len(want)}]}} : {memref('f32', 1, 6)}, {made}",
    )
    got = run(source, {"x": a, "y": b, "out": np.zeros((1, 6), np.float32)})["out"]
    assert got[0].tolist() == want + [0] * (6 - len(want))


def test_store_from_acc_converts_and_may_add():
    acc = tile("f32", 2, 2, "Acc")
    source = module(
        f"%x: {acc}, %out: {memref('f16', 2, 2)}",
        f"pto.tile.store %x, %out[0, 0] {{atomic = #pto.atomic<AtomicAdd>, relu = true}} : {memref('f16', 2, 2)}, {acc}",
    )
    x = np.array([[1.5, -2], [1 / 3, 4]], np.float32)
    got = run(source, {"x": x, "out": np.ones((2, 2), np.float16)})["out"]
    same(got, (np.maximum(x, 0).astype(np.float16).astype(np.float64) + 1).astype(np.float16))


def test_extract_transpose_reshape_fillpad():
    x = data("f32", 4, (8, 8))
    mat, left = tile("f32", 8, 8, "Mat"), tile("f32", 4, 4, "Left")
    load = f"%y = pto.tile.load %m0[0, 0] : {memref('f32', 8, 8)}, {mat}"
    extract = f"%r = pto.tile.extract %y[%s0, 4] : {mat} -> {left}"
    trans = f"%e = pto.tile.trans %r : {left} -> {tile('f32', 4, 4)}"
    store = f"pto.tile.store %e, %out[0, 0] : {memref('f32', 4, 4)}, {tile('f32', 4, 4)}"
    parameters = f"%m0: {memref('f32', 8, 8)}, %s0: index, %out: {memref('f32', 4, 4)}"
    source = module(parameters, load, extract, trans, store)
    same(run(source, {"m0": x, "s0": np.int64(2), "out": np.zeros((4, 4), np.float32)})["out"], x[2:6, 4:].T.copy())
    got = evaluate(f"%r = pto.tile.reshape %x0 : {tile('f32', 8, 8)} -> {tile('f32', 4, 16)}", [("f32", x)], ("f32", 4, 16))
    same(got, x.reshape(4, 16))
    as_halves = f"%r = pto.tile.reshape %x0 : {tile('f32', 8, 8)} -> {tile('f16', 8, 16)}"  # the same bytes
    same(evaluate(as_halves, [("f32", x)], ("f16", 8, 16)), x.view(np.float16))
    pad = f"%r = pto.tile.fillpad %p {{pad = #pto.pad<Min>}} : {tile('f32', 8, 8)} -> {tile('f32', 8, 8)}"
    part = f"%p = pto.tile.abs %x0 {{valid = [3, 2]}} : {tile('f32', 8, 8)} -> {tile('f32', 8, 8)}"
    want = np.full((8, 8), -np.inf, np.float32)
    want[:3, :2] = np.abs(x[:3, :2])
    same(evaluate(pad, [("f32", x)], ("f32", 8, 8), part), want)


def test_gather_scatter_and_sequences():
    x = data("f32", 4)
    at = np.random.default_rng(0).integers(0, R * C, (R, C))
    statement = f"%r = pto.tile.gather %x0, %x1 : {tile('f32')} -> {tile('f32')}"
    same(evaluate(statement, [("f32", x), ("i32", at)], ("f32", R, C)), x.reshape(-1)[at])
    with pytest.raises(Violation) as error:
        evaluate(statement, [("f32", x), ("i32", at + R * C)], ("f32", R, C))
    assert error.value.code == "OutOfBounds"
    masked = "%r = pto.tile.gather %x0 {maskPattern = #pto.mask_pattern<P0101>} : tile<5x8xf32> -> tile<5x4xf32>"
    x = data("f32", 4, (5, 8))
    same(evaluate(masked, [("f32", x)], ("f32", 5, 4)), x[:, ::2].copy())
    blocks = "%r = pto.tile.gatherb %x0, %x1 : tile<5x8xf32> -> tile<2x16xf32>"
    got = evaluate(blocks, [("f32", x), ("i32", np.array([[32, 0], [64, 128]]))], ("f32", 2, 16))
    same(got, x[[1, 0, 2, 4]].reshape(2, 16))
    rows = np.array([[2, 0], [0, 2], [1, 1]])
    scatter = "%r = pto.tile.scatter %x0, %x1 : tile<3x2xf32>, tile<3x2xi32> -> tile<3x2xf32>"
    x = data("f32", 4, (3, 2))
    got = evaluate(scatter, [("f32", x), ("i32", rows)], ("f32", 3, 2))
    same(got, np.array([[x[1, 0], x[0, 1]], [x[2, 0], x[2, 1]], [x[0, 0], x[1, 1]]]))
    for descending, want in ((False, np.arange(5, 13)), (True, np.arange(5, -3, -1))):
        ci = f"%r = pto.tile.ci %s0 {{descending = {str(descending).lower()}}} : tile<1x8xi32>"
        assert evaluate(ci, [], ("i32", 1, 8), scalars=[("i32", 5)]).tolist() == [want.tolist()]


def test_sort_and_merge():
    x = np.random.default_rng(2).integers(0, 9, (2, 64)).astype(np.float32)
    sort = "%r, %i = pto.tile.sort32 %x0 : tile<2x64xf32> -> (tile<2x64xf32>, tile<2x64xi32>)"
    want = -np.sort(-x.reshape(2, 2, 32)).reshape(2, 64)
    same(evaluate(sort, [("f32", x)], ("f32", 2, 64)), want)
    order = evaluate(sort.replace("%r, %i", "%s, %r"), [("f32", x)], ("i32", 2, 64))
    same(np.take_along_axis(x, order.astype(np.int64), 1), want)
    stable = np.argsort(-x.reshape(2, 2, 32), kind="stable") + np.array([0, 32])[:, None]
    assert order.tolist() == stable.reshape(2, 64).tolist()
    a, b = (-np.sort(-data("f32", s, (1, n))) for s, n in ((1, 8), (2, 4)))
    merge = "%r, %n = pto.tile.mrgsort %x0, %x1 : tile<1x8xf32>, tile<1x4xf32> -> (tile<1x12xf32>, vector<4xi16>)"
    same(evaluate(merge, [("f32", a), ("f32", b)], ("f32", 1, 12)), -np.sort(-np.concatenate([a, b], 1)))
    blocks = -np.sort(-data("f32", 3, (4, 64))).reshape(1, 256)
    single = "%r = pto.tile.mrgsort %x0 {blockLen = 64} : tile<1x256xf32> -> tile<1x256xf32>"
    same(evaluate(single, [("f32", blocks)], ("f32", 1, 256)), -np.sort(-blocks))


# Ops on random tiles with random valid regions, against NumPy

K = 64


def framed(statement, arguments, out, valid, *lines, scalars=(), moves=None):
    """As `evaluate`, each tile loaded with its valid region of `valid`; what the op leaves undefined comes out as 0.

    `moves` gives, per tile, the ops that take it to where the op wants it: (op, location).
    """
    shapes = [(d, *np.shape(a)) for d, a in arguments]
    parameters = [f"%m{i}: {memref(*s)}" for i, s in enumerate(shapes)] + [f"%out: {memref(*out)}"]
    parameters += [f"%s{i}: {d}" for i, (d, _) in enumerate(scalars)]
    body = []
    for i, (s, v, way) in enumerate(zip(shapes, valid, moves or [()] * len(shapes), strict=True)):
        body.append(f"%{'y' if way else 'x'}{i} = pto.tile.load %m{i}[0, 0] {{valid = {list(v)}}} : {memref(*s)}, {tile(*s)}")
        if way:
            body.append(f"%x{i} = pto.tile.{way} %y{i} : {tile(*s)} -> {tile(*s)}")
    whole = f"{{valid = [{out[1]}, {out[2]}]}} "
    store = f"pto.tile.store %r, %out[0, 0] {whole}: {memref(*out)}, {tile(*out)}"
    source = module(", ".join(parameters), *body, *lines, statement, store)
    inputs = {f"m{i}": np.asarray(a).astype(DTYPES[d]) for i, (d, a) in enumerate(arguments)}
    inputs |= {f"s{i}": np.asarray(v, DTYPES[d]) for i, (d, v) in enumerate(scalars)}
    inputs["out"] = np.zeros(out[1:], DTYPES[out[0]])
    return run(source, inputs, undef="zero")["out"]


def region(rng, rows=R, columns=C):
    return int(rng.integers(1, rows + 1)), int(rng.integers(1, columns + 1))


def kept(values, valid, dtype, rows=R, columns=C):
    """`values` where they are valid, else 0."""
    made = np.zeros((rows, columns), DTYPES[dtype])
    made[: valid[0], : valid[1]] = values[: valid[0], : valid[1]]
    return made


def relu(x):
    return np.where(x < 0, 0, x)


WITH_SCALAR = {
    "addsc": ("%x0, %s0, %x1", lambda a, b, s: a + s + b),
    "subsc": ("%x0, %s0, %x1", lambda a, b, s: a - s + b),
    "axpy": ("%x0, %x1, %s0", lambda a, b, s: a + b * s),
}
OF_THREE = {
    "muladddst": lambda a, b, c: a + b * c,
    "fusedmuladd": lambda a, b, c: a * b + c,
    "fusedmuladdrelu": lambda a, b, c: relu(a * b + c),
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", [*WITH_SCALAR, *OF_THREE, "subrelu", "adddeqrelu"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
def test_fused_arithmetic(name, dtype, seed):
    rng = np.random.default_rng(seed)
    kind = "i32" if name == "adddeqrelu" else dtype
    xs = [data(kind, 3 * seed + i) for i in range(3)]
    valid = [region(rng) for _ in xs]
    count = 3 if name in OF_THREE else 2
    both = tuple(map(min, zip(*valid[:count], strict=True)))
    wide = [x if kind == "i32" else x.astype(np.float64) for x in xs]  # integers wrap in every step
    out, scalar, types = dtype, data(dtype, seed + 50)[0, 0], tile(dtype)
    with np.errstate(all="ignore"):
        if name in WITH_SCALAR:
            operands, fn = WITH_SCALAR[name]
            want, types = fn(*wide[:2], wide[0].dtype.type(scalar)), f"{tile(dtype)}, {dtype}"
        elif name in OF_THREE:
            operands, want = "%x0, %x1, %x2", OF_THREE[name](*wide)
        elif name == "subrelu":
            operands, want = "%x0, %x1", relu(wide[0] - wide[1])
        else:
            out = "f32" if dtype == "i32" else dtype
            operands, scalar, dtype = "%x0, %x1, %s0", np.float32(0.25), "f32"
            want = relu((xs[0] + xs[1]).astype(np.float64) * 0.25)
            types = f"{tile('i32')}, f32 -> {tile(out)}"
        want = want.astype(DTYPES[out])
    given, regions = [(kind, x) for x in xs[:count]], valid[:count]
    got = framed(f"%r = pto.tile.{name} {operands} : {types}", given, (out, R, C), regions, scalars=[(dtype, scalar)])
    same(got, kept(want, both, out))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["rowargmax", "rowargmin", "colargmax", "colargmin"])
def test_where_the_extreme_is(name, seed):
    rng = np.random.default_rng(seed)
    x, valid = rng.integers(-3, 3, (R, C)).astype(np.float32), region(rng)
    if seed == 0:
        x[0, 1] = np.nan
    rows = name.startswith("row")
    part = x[: valid[0], : valid[1]]
    want = (np.argmax if name.endswith("max") else np.argmin)(part, 1 if rows else 0)
    shape = (R, 1) if rows else (1, C)
    statement = f"%r = pto.tile.{name} %x0 : {tile('f32')} -> {tile('i32', *shape)}"
    got = framed(statement, [("f32", x)], ("i32", *shape), [valid])
    assert got.reshape(-1)[: want.size].tolist() == want.tolist() and not got.reshape(-1)[want.size :].any()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["partargmax", "partargmin"])
def test_partial_extremes_bring_their_index(name, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 3, (R, C)).astype(np.float32) for _ in range(2))
    i, j = (rng.integers(0, 100, (R, C)).astype(np.int32) for _ in range(2))
    va, vb = region(rng), region(rng)
    types = f"{tile('f32')}, {tile('i32')} -> ({tile('f32')}, {tile('i32')})"
    given = [("f32", a), ("i32", i), ("f32", b), ("i32", j)]
    in_a, in_b = (kept(np.ones((R, C)), v, "i32").astype(bool) for v in (va, vb))
    second = in_b & (~in_a | ((b > a) if name.endswith("max") else (b < a)))
    for letter, dtype, mine, theirs in (("r, %q", "f32", a, b), ("q, %r", "i32", i, j)):
        statement = f"%{letter} = pto.tile.{name} %x0, %x1, %x2, %x3 : {types}"
        got = framed(statement, given, (dtype, R, C), [va, va, vb, vb])
        same(got, np.where(in_a | in_b, np.where(second, theirs, mine), 0).astype(DTYPES[dtype]))


@pytest.mark.parametrize("seed", range(6))
def test_concatenation(seed):
    rng = np.random.default_rng(seed)
    a, b = data("f16", seed), data("f16", seed + 9)
    va, vb = region(rng), region(rng)
    statement = f"%r = pto.tile.concat %x0, %x1 : {tile('f16')}, {tile('f16')} -> {tile('f16', R, 2 * C)}"
    got = framed(statement, [("f16", a), ("f16", b)], ("f16", R, 2 * C), [va, vb])
    rows = min(va[0], vb[0])
    want = np.zeros((R, 2 * C), np.float16)
    want[:rows, : va[1]] = a[:rows, : va[1]]
    want[:rows, va[1] : va[1] + vb[1]] = b[:rows, : vb[1]]
    same(got, want)


def test_what_does_not_fit_is_not_concatenated():
    """It is an error of the program where what is valid is known, and of the run where it is not."""
    t, m = tile("f32"), memref("f32")
    lines = f"%x = pto.tile.load %a[0, 0] {{valid = [{R}, VALID]}} : {m}, {t}", f"%r = pto.tile.concat %x, %x : {t}, {t} -> {t}"
    found = {
        columns: check(module(f"%a: {m}, %n: index", *lines).replace("VALID", columns))[1].sorted()
        for columns in ("4", "3", "%n")
    }
    assert [d.code for d in found["4"]] == ["OutOfBounds"] and "4 and 4 columns do not fit into 7" in found["4"][0].message
    assert not found["3"] and not found["%n"]
    source = module(f"%a: {m}, %n: index", *lines).replace("VALID", "%n")
    run(source, {"a": data("f32"), "n": np.int64(3)})
    with pytest.raises(Violation) as error:
        run(source, {"a": data("f32"), "n": np.int64(4)})
    assert error.value.code == "OutOfBounds"


@pytest.mark.parametrize("seed", range(6))
def test_insertion(seed):
    rng = np.random.default_rng(seed)
    small, large = data("f32", seed, (2, 3)), data("f32", seed + 9)
    vs, vl = region(rng, 2, 3), region(rng)
    at = int(rng.integers(0, R - 1)), int(rng.integers(0, C - 2))
    types = f"{tile('f32', 2, 3)}, {tile('f32')} -> {tile('f32')}"
    statement = f"%r = pto.tile.insert %x0[{at[0]}, {at[1]}], %x1 : {types}"
    got = framed(statement, [("f32", small), ("f32", large)], ("f32", R, C), [vs, vl])
    want = kept(large, vl, "f32")
    want[at[0] : at[0] + vs[0], at[1] : at[1] + vs[1]] = small[: vs[0], : vs[1]]
    same(got, want)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("source, to", [("i32", "i8"), ("f32", "f16"), ("f32", "i8")])
def test_insertion_with_scales(source, to, seed):
    """Rounded to nearest even and saturated, as NumPy says in f64; the rest is what was there."""
    rng = np.random.default_rng(seed)
    half = "i8" if source == "i32" else "f16"
    small, one = rng.integers(-120, 120, (2, 3)).astype(DTYPES[half]), np.eye(2, dtype=DTYPES[half])
    large, factors = rng.integers(-9, 9, (R, C)).astype(DTYPES[to]), rng.choice([0.25, 0.5, 1, 2], (1, 3)).astype(np.float32)
    at = int(rng.integers(0, R - 1)), int(rng.integers(0, C - 2))
    vs = region(rng, 2, 3)
    acc, row, mat = tile(source, 2, 3, "Acc"), tile("f32", 1, 3, "Scale"), tile(to, R, C, "Mat")
    left, right = tile(half, 2, 2, "Left"), tile(half, 2, 3, "Right")
    lines = [
        f"%x = pto.tile.matmul %l, %q {{valid = [{vs[0]}, {vs[1]}]}} : {left}, {right} -> {acc}",
        f"%m = pto.tile.load %d[0, 0] : {memref(to)}, {mat}",
        f"%r = pto.tile.insert.fp %x[%i, {at[1]}], %s, %m {{valid = [{R}, {C}]}} : {acc}, {row}, {mat} -> {mat}",
        f"pto.tile.store %r, %out[0, 0] : {memref(to)}, {mat}",
    ]
    scalars = f"%s: {row}, %d: {memref(to)}, %i: index, %out: {memref(to)}"
    program = module(f"%l: {left}, %q: {right}, {scalars}", *lines)
    given = {"l": one, "q": small, "s": factors, "d": large, "i": np.int64(at[0]), "out": np.zeros((R, C), DTYPES[to])}
    want, exact = large.copy(), small.astype(np.float64) * factors
    exact = np.clip(np.rint(exact), -128, 127) if to == "i8" else exact
    want[at[0] : at[0] + vs[0], at[1] : at[1] + vs[1]] = exact[: vs[0], : vs[1]]
    same(run(program, given)["out"], want)
    assert printed(good(printed(good(program)))) == printed(good(program))


@pytest.mark.parametrize("at", ["4, 0", "0, 5"])
def test_what_leaves_the_tile_is_not_inserted(at):
    types = f"{tile('f32', 2, 3)}, {tile('f32')} -> {tile('f32')}"
    source = module(f"%a: {tile('f32', 2, 3)}, %b: {tile('f32')}", f"%r = pto.tile.insert %a[{at}], %b : {types}")
    assert [d.code for d in check(source)[1] if d.severity == "error"] == ["OutOfBounds"]


@pytest.mark.parametrize("pad", ["Zero", "Max", "Min"])
@pytest.mark.parametrize("name", ["fillpad.inplace", "fillpad.expand"])
@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_padding_forms(name, dtype, pad):
    x, valid = data(dtype, 3), (3, 4)
    shape = (R, C) if name == "fillpad.inplace" else (R + 3, C + 1)
    statement = f"%r = pto.tile.{name} %x0 {{pad = #pto.pad<{pad}>}} : {tile(dtype)} -> {tile(dtype, *shape)}"
    got = framed(statement, [(dtype, x)], (dtype, *shape), [valid])
    limit = np.inf if dtype == "f32" else 127
    want = np.full(shape, {"Zero": 0, "Max": limit, "Min": -limit - (dtype == "i8")}[pad], DTYPES[dtype])
    want[:3, :4] = x[:3, :4]
    same(got, want)


@pytest.mark.parametrize("diagonal", [-3, 0, 2, 99])
@pytest.mark.parametrize("upper", [True, False])
def test_triangles(diagonal, upper):
    words = " {upper = true}" if upper else ""
    got = evaluate(f"%r = pto.tile.tri %s0{words} : i32, {tile('f32')}", [], ("f32", R, C), scalars=[("i32", diagonal)])
    rows, columns = np.indices((R, C))
    same(got, (columns >= rows + diagonal if upper else columns <= rows + diagonal).astype(np.float32))


def in_steps(a, b, scale_a=1.0, scale_b=1.0):
    """A product of exact terms that are added in f32, one after the other."""
    left, right = a.astype(np.float64) * scale_a, b.astype(np.float64) * scale_b
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = (total + np.outer(left[:, k], right[k])).astype(np.float32)
    return total


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("more", ["", ".acc", ".bias"])
@pytest.mark.parametrize("name", ["gemv", "matmul.mx", "gemv.mx"])
def test_products(name, more, seed):
    rng = np.random.default_rng(seed)
    blocks = name.endswith("mx")
    m, n, dtype = 1 if name.startswith("gemv") else 5, 6, "f8e4m3fn" if blocks else "f16"
    a, b = (rng.uniform(-4, 4, s).astype(DTYPES[dtype]) for s in ((m, K), (K, n)))
    vm, vn, vk = (int(rng.integers(1, x + 1)) for x in (m, n, K))
    bias = rng.uniform(-4, 4, (1, n)).astype(np.float32)
    sa, sb = (rng.integers(118, 134, s).astype(np.uint8) for s in ((m, K // 32), (K // 32, n)))
    parts = {"a": (dtype, a, (vm, vk), "mov.m2l"), "b": (dtype, b, (vk, vn), "mov.m2r")}
    order = "ab"
    if blocks:
        parts |= {"p": ("u8", sa, sa.shape, "mov.m2s"), "q": ("u8", sb, sb.shape, "mov.m2s")}
        order = "apbq"
    given = [parts[x] for x in order]
    types = [tile(d, *x.shape) for d, x, _, _ in given]
    names, scale = [f"%x{i}" for i in range(len(given))], [1.0, 1.0]
    if blocks:
        scale = [np.repeat(2.0 ** (s.astype(np.float64) - 127), 32, axis) for s, axis in ((sa, 1), (sb, 0))]
        scale = [scale[0][:vm, :vk], scale[1][:vk, :vn]]
    want = in_steps(a[:vm, :vk], b[:vk, :vn], *scale)
    if more == ".bias":
        given.append(("f32", bias, bias.shape, "mov.m2b"))
        names.append(f"%x{len(names)}")
        types.append(tile("f32", 1, n))
        want = want + bias[:, :vn]
    lines = []
    if more == ".acc":  # an accumulator comes from a product of a column and a row
        lines = [f"%acc = pto.tile.{name} {', '.join(names)} : {', '.join(types)} -> {tile('f32', m, n)}"]
        names, types, want = ["%acc", *names], [tile("f32", m, n), *types], want + want
    statement = f"%r = pto.tile.{name}{more} {', '.join(names)} : {', '.join(types)} -> {tile('f32', m, n)}"
    moves = [way for *_, way in given]
    got = framed(statement, [g[:2] for g in given], ("f32", m, n), [g[2] for g in given], *lines, moves=moves)
    same(got, kept(want, (vm, vn), "f32", m, n))


def test_an_exponent_of_all_ones_is_nan():
    a, s = np.ones((1, K)), np.full((1, K // 32), 255)
    types = [tile("f8e4m3fn", 1, K), tile("u8", 1, 2), tile("f8e4m3fn", K, 1), tile("u8", 2, 1)]
    given = [("f8e4m3fn", a), ("u8", s), ("f8e4m3fn", a.T), ("u8", np.full((2, 1), 127))]
    moves = ["mov.m2l", "mov.m2s", "mov.m2r", "mov.m2s"]
    statement = f"%r = pto.tile.gemv.mx %x0, %x1, %x2, %x3 : {', '.join(types)} -> {tile('f32', 1, 1)}"
    got = framed(statement, given, ("f32", 1, 1), [x.shape for _, x in given], moves=moves)
    assert np.isnan(got).all()


def test_moves_to_mat():
    x = data("f32", 1)
    lines = [f"%v = pto.tile.mov.v2m %x0 : {tile('f32')} -> {tile('f32')}"]
    statement = f"%r = pto.tile.mov.m2l %v : {tile('f32')} -> {tile('f32')}"
    same(framed(statement, [("f32", x)], ("f32", R, C), [(3, 2)], *lines), kept(x, (3, 2), "f32"))


def test_from_acc_to_mat_elements_are_converted_and_clipped():
    a, b = data("f16", 1, (4, 3)), data("f16", 2, (3, 5))
    types = f"{tile('f16', 4, 3)}, {tile('f16', 3, 5)} -> {tile('f32', 4, 5)}"
    lines = [f"%c = pto.tile.matmul %x0, %x1 : {types}"]
    statement = f"%r = pto.tile.mov.a2m %c {{relu = true}} : {tile('f32', 4, 5)} -> {tile('f16', 4, 5)}"
    given = [("f16", a), ("f16", b)]
    got = framed(statement, given, ("f16", 4, 5), [(4, 3), (3, 5)], *lines, moves=["mov.m2l", "mov.m2r"])
    same(got, relu(in_steps(a, b)).astype(np.float16))


def test_a_prefetch_changes_nothing_and_stays_in_memory():
    m = memref("f32", 8, 8)
    lines = [f"pto.tile.prefetch %a[%i, 0] {{valid = [4, 8]}} : {m}", f"%t = pto.tile.load %a[0, 0] : {m}, tile<8x8xf32>"]
    source = module(f"%a: {m}, %out: {m}, %i: index", *lines, f"pto.tile.store %t, %out[0, 0] : {m}, tile<8x8xf32>")
    x = data("f32", 1, (8, 8))
    same(run(source, {"a": x, "out": np.zeros_like(x), "i": np.int64(4)})["out"], x)
    with pytest.raises(Violation) as error:
        run(source, {"a": x, "out": np.zeros_like(x), "i": np.int64(5)})
    assert error.value.code == "OutOfBounds"


def test_print(capsys):
    m = memref("f32", 2, 3)
    lines = [
        f"%t = pto.tile.load %a[0, 0] {{valid = [2, 2]}} : {m}, {tile('f32', 2, 3)}",
        f"pto.tile.print %t : {tile('f32', 2, 3)}",
    ]
    run(module(f"%a: {m}", *lines), {"a": np.array([[1, -2.5, 9], [1e3, 0, 9]], np.float32)})
    assert capsys.readouterr().err == "TPRINT 2x3\n  1.0000 -2.5000\n1000.0000  0.0000\n"


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
def test_a_window_of_a_tile_in_vec(dtype):
    """At a start that is a value; behind the tile is an error; the source stays."""
    x = data(dtype, 5, (8, 64))
    whole, part = tile(dtype, 8, 64, "Vec"), tile(dtype, 3, 32, "Vec")
    lines = [
        f"%y = pto.tile.load %m0[0, 0] : {memref(dtype, 8, 64)}, {whole}",
        f"%w = pto.tile.extract.vec %y[%s0, 32] : {whole} -> {part}",
        f"pto.tile.store %w, %out[0, 0] : {memref(dtype, 3, 32)}, {part}",
    ]
    source = module(f"%m0: {memref(dtype, 8, 64)}, %s0: index, %out: {memref(dtype, 3, 32)}", *lines)
    given = {"m0": x, "out": np.zeros_like(x[:3, :32])}
    for start in range(6):
        same(run(source, {**given, "s0": np.int64(start)})["out"], x[start : start + 3, 32:].copy())
    for start in (-1, 6):
        with pytest.raises(Violation, match="extract"):
            run(source, {**given, "s0": np.int64(start)})
    assert codes(source.replace("extract.vec %y[%s0, 32]", "extract.vec %y[%s0, 33]")) == ["OutOfBounds"]
    assert codes(source.replace("loc=Vec", "loc=Mat")) == ["InvalidLocation"]

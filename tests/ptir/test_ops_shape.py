"""Constants, movement, indexing and scatter of PTIR, every dtype, against loops over positions."""

import numpy as np
import pytest

from ptir_tools import api
from ptir_tools.core.diagnostics import Rejected
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import Literal
from ptir_tools.core.types import sym
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from tests.ptir.oracle import (
    ALL,
    BITS,
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    NUMERIC,
    NUMPY,
    code,
    program,
    run,
    same,
    sample,
    ty,
    wrap,
)

N, M = sym("N"), sym("M")


def fails(name, *arrays, **attrs):
    with pytest.raises(Violation) as info:
        run(name, *arrays, **attrs)
    return info.value.code


@pytest.mark.parametrize("dtype", ALL)
def test_transpose_reshape_broadcast_slice(dtype):
    x = sample(dtype, (2, 3, 4))
    same(
        run("transpose", x, perm=(2, 0, -2)),
        np.array([[[x[j, k, i] for k in range(3)] for j in range(2)] for i in range(4)], x.dtype),
    )
    same(run("reshape", x, new_shape=(4, -1)), np.array(list(x.flat), x.dtype).reshape(4, 6))
    same(run("reshape", x, new_shape=(24,)), np.array(list(x.flat), x.dtype))
    y = sample(dtype, (3, 1))
    same(run("broadcast_to", y, result_shape=(2, 3, 5)), np.array([[[y[i, 0]] * 5 for i in range(3)]] * 2, x.dtype))
    same(run("slice", x, starts=(0, 1, 3), sizes=(2, 2, 1)), x[0:2, 1:3, 3:4])
    same(run("slice", x, starts=(2, 3, 4), sizes=(0, 0, 0)), x[:0, :0, :0])


def test_movement_of_scalars_and_empty_tensors():
    s = np.array(5, np.int32)
    same(run("transpose", s, perm=()), s)
    same(run("reshape", s, new_shape=(1, 1)), np.array([[5]], np.int32))
    same(run("reshape", s, new_shape=(-1,)), np.array([5], np.int32))
    same(run("broadcast_to", s, result_shape=(2, 0)), np.zeros((2, 0), np.int32))
    same(run("broadcast_to", np.ones((1, 3), np.int8), result_shape=(0, 3)), np.zeros((0, 3), np.int8))
    same(run("reshape", np.zeros((0, 4), np.int8), new_shape=(-1, 2)), np.zeros((0, 2), np.int8))
    same(run("slice", s, starts=(), sizes=()), s)
    same(run("tile", s, repeats=()), s)
    same(run("pad", s, low=(), high=()), s)


@pytest.mark.parametrize("dtype", ALL)
def test_concat_and_tile(dtype):
    a, b, c = sample(dtype, (2, 3)), sample(dtype, (2, 0), 1), sample(dtype, (2, 2), 2)
    want = np.array([[*a[i], *c[i]] for i in range(2)], a.dtype)
    same(run("concat", [a, b, c], axis=-1), want)
    same(run("concat", [a], axis=0), a)
    same(run("tile", c, repeats=(2, 3)), np.array([[c[i % 2, j % 2] for j in range(6)] for i in range(4)], c.dtype))
    same(run("tile", c, repeats=(0, 3)), np.zeros((0, 6), c.dtype))


PADS = {"i1": Scalar("I1", True), "ui": Scalar("Unsigned", 3), "si": Scalar("Signed", -2), "c": Scalar("Complex", 1 + 2j)}


@pytest.mark.parametrize("dtype", ALL)
def test_pad(dtype):
    x = sample(dtype, (2, 3))
    value = PADS.get("c" if dtype in COMPLEX else dtype[:2], Scalar("Float", -1.5))
    got = run("pad", x, low=(1, 0), high=(0, 2), interior=(2, 1), pad_value=value)
    want = np.full((5 + 0, 7), value.value).astype(NUMPY[dtype])
    assert got.shape == (1 + 2 + 2, 0 + 3 + 2 + 2)
    for i in range(2):
        for j in range(3):
            want[1 + 3 * i, 2 * j] = x[i, j]
    same(got, want)
    zero = run("pad", x, low=(0, 0), high=(1, 0))
    assert zero.shape == (3, 3) and not zero[2].astype(object if dtype in INTEGERS else np.complex128).any()


def test_pad_of_nothing_and_rounding_of_the_value():
    same(run("pad", np.zeros((0,), np.float32), low=(1,), high=(1,), interior=(3,)), np.zeros(2, np.float32))
    got = run("pad", np.zeros(1, NUMPY["bf16"]), low=(1,), high=(0,), pad_value=Scalar("Float", 1 + 2**-8 + 2**-20))
    assert got[0] == np.array(1 + 2**-7).astype(NUMPY["bf16"])
    assert np.isneginf(run("pad", np.zeros(1, np.float32), low=(1,), high=(0,), pad_value=Scalar("Float", -np.inf))[0])
    assert run("pad", np.zeros(1, np.uint64), low=(1,), high=(0,), pad_value=Scalar("Unsigned", 2**64 - 1))[0] == 2**64 - 1
    assert run("pad", np.zeros(1, np.float32), low=(1,), high=(0,), pad_value=Scalar("Signed", 3))[0] == 3


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((2, 20), 1), ((2, 3), -2), ((3, 0), 0), ((0, 3), 0)], ids=str)
def test_iota(dtype, shape, axis):
    got = run("iota", shape=shape, dtype=DTYPES[dtype], axis=axis)
    counted = np.array([i[axis] for i in np.ndindex(shape)], np.int64).reshape(shape)
    same(got, wrap(counted, dtype) if dtype in INTEGERS else counted.astype(NUMPY[dtype]))


@pytest.mark.parametrize("dtype", ALL)
def test_constant(dtype):
    bits = BITS[dtype]
    data = bytes(range(1, 7)) if dtype != "i1" else b"\1\0\1\0\0\1"
    count = {4: 12, 8: 6, 1: 6}.get(bits, 6 * 8 // bits)
    if bits > 16:
        data, count = bytes(range(bits // 8)), 1
    got = run("constant", value=Literal(ty(dtype, count), data))
    if bits == 4:
        nibbles = [b >> s & 15 for b in data for s in (0, 4)]
        same(got, wrap(nibbles, dtype))
    elif bits == 1:
        same(got, np.array([True, False, True, False, False, True]))
    else:
        same(got, np.frombuffer(data, NUMPY[dtype]))
    splat = Literal(ty(dtype, 2, 3), data[: max(1, bits // 8)], splat=True)
    assert len({bytes(v.tobytes()) for v in run("constant", value=splat).flat}) == 1


@pytest.mark.parametrize("index", ["si32", "si64"])
@pytest.mark.parametrize("dtype", ALL)
def test_take_and_gather(dtype, index):
    x = sample(dtype, (4, 3))
    i = np.array([[3, 0], [1, 1], [2, 3]]).astype(NUMPY[index])
    same(run("take", x, i), np.array([[x[k] for k in row] for row in i], x.dtype))
    same(run("take", x[:, 0].copy(), np.array(2).astype(NUMPY[index])), np.asarray(x[2, 0]))
    j = np.array([[3, 0, 2], [1, 1, 0]]).astype(NUMPY[index])
    same(run("gather", x, j, axis=-2), np.array([[x[j[a, b], b] for b in range(3)] for a in range(2)], x.dtype))
    k = np.array([[2], [0], [1], [1]]).astype(NUMPY[index])
    same(run("gather", x, k, axis=1), np.array([[x[a, k[a, 0]]] for a in range(4)], x.dtype))
    empty = np.zeros((0, 2), NUMPY[index])
    assert run("take", x, empty).shape == (0, 2, 3)


@pytest.mark.parametrize("bad", [-1, 4])
def test_reading_out_of_range_is_an_error(bad):
    x = np.zeros((4, 4), np.float32)
    assert fails("take", x, np.array([0, bad], np.int32)) == "GatherIndexOutOfBounds"
    assert fails("gather", x, np.array([[0, bad, 0, 0]], np.int64), axis=0) == "GatherIndexOutOfBounds"
    assert fails("take", np.zeros((0, 2), np.float32), np.array([0], np.int32)) == "GatherIndexOutOfBounds"


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("index", ["si32", "si64"])
def test_dynamic_slices_clamp_their_starts(dtype, index):
    x, u = sample(dtype, (4, 5)), sample(dtype, (2, 3), 1)
    for start in ([0, 0], [1, 1], [-7, 9], [3, 4], [2**31 - 1, -(2**31)]):
        s = np.array(start).astype(NUMPY[index])
        a, b = (min(max(v, 0), n) for v, n in zip(start, (2, 2), strict=True))
        same(run("dynamic_slice", x, s, sizes=(2, 3)), x[a : a + 2, b : b + 3])
        want = x.copy()
        want[a : a + 2, b : b + 3] = u
        before = x.copy()
        same(run("dynamic_update_slice", x, u, s, sizes=(2, 3)), want)
        same(x, before)
    scalar = sample(dtype, ())
    same(run("dynamic_slice", scalar, np.zeros(0, NUMPY[index]), sizes=()), scalar)


STEP = {"add": lambda a, b: a + b, "max": max, "min": min, "replace": lambda a, b: b}


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("kind", STEP)
def test_scatter_reduce(dtype, kind):
    if dtype not in {"add": NUMERIC, "replace": ALL}.get(kind, INTEGERS + FLOATS):
        t = ty(dtype, 3)
        assert code("scatter_reduce", t, ty("si32", 3), t, axis=0, reduce=kind) == "DTypeNotSupported"
        return
    x, u = sample(dtype, (3, 2)), sample(dtype, (4, 2), 1)
    if dtype in FLOATS:
        x, u = (np.arange(v.size).reshape(v.shape).astype(NUMPY[dtype]) for v in (x, u))
    i = np.array([[0, 2], [1, 1], [0, 2], [2, 2]], np.int32)
    exact = x.astype(object)
    for a, b in np.ndindex(4, 2):
        exact[i[a, b], b] = STEP[kind](exact[i[a, b], b], u.astype(object)[a, b])
    got = run("scatter_reduce", x, i, u, axis=0, reduce=kind)
    if dtype in INTEGERS:
        same(got, wrap(exact, dtype))
    elif dtype in COMPLEX:
        np.testing.assert_allclose(got, exact.astype(got.dtype), rtol=1e-6)
    else:
        same(got, exact.astype(NUMPY[dtype]))
    assert fails("scatter_reduce", x, i + 1, u, axis=0, reduce=kind) == "ScatterIndexOutOfBounds"


def test_scatter_of_floats_rounds_once_and_keeps_nan():
    x, i = np.array([0.0], np.float16), np.zeros(4, np.int32)
    u = np.array([2048, 1, 1, 1], np.float16)
    assert run("scatter_reduce", x, i, u, axis=0) == 2052  # 2051 rounded once; one by one it would stay 2048
    n = np.array([np.nan, 1, 1, 1], np.float16)
    assert np.isnan(run("scatter_reduce", x, i, n, axis=0, reduce="max")[0])


ROWS = {"inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}


@pytest.mark.parametrize("dtype", NUMERIC)
def test_scatter_add_in_rows(dtype):
    x, u = (np.arange(n).reshape(s).astype(NUMPY[dtype]) for n, s in ((6, (3, 2)), (4, (2, 2))))
    numbers = {
        "update_window_dims": (1,),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
    }
    got = run("scatter_add", x, np.array([[2], [2]], np.int32), u, **numbers)
    same(got, np.array([[0, 1], [2, 3], [4 + 0 + 2, 5 + 1 + 3]]).astype(NUMPY[dtype]))
    assert fails("scatter_add", x, np.array([[3], [0]], np.int32), u, **numbers) == "ScatterIndexOutOfBounds"
    assert fails("scatter_add", x, np.array([[-1], [0]], np.int64), u, **numbers) == "ScatterIndexOutOfBounds"


def test_scatter_add_windows_and_scalar_indices():
    x = np.zeros((4, 5), np.float32)
    u = np.arange(1, 13, dtype=np.float32).reshape(2, 2, 3)
    i = np.array([[0, 1], [2, 2]], np.int32)
    window = {"update_window_dims": (1, 2), "index_vector_dim": -1}
    want = x.copy()
    want[0:2, 1:4] += u[0]
    want[2:4, 2:5] += u[1]
    same(run("scatter_add", x, i, u, scatter_dims_to_operand_dims=(0, 1), **window), want)
    same(run("scatter_add", x, i[:, ::-1].copy(), u, scatter_dims_to_operand_dims=(1, 0), **window), want)
    added = run("scatter_add", np.zeros(4, np.float32), np.array([1, 1, 3], np.int32), np.array([1, 2, 3], np.float32), **ROWS)
    same(added, np.array([0, 3, 0, 3], np.float32))
    last = {"update_window_dims": (0,), "inserted_window_dims": (1,), "scatter_dims_to_operand_dims": (1,)}
    columns = run("scatter_add", x, np.array([4], np.int32), np.ones((4, 1), np.float32), **last)
    assert columns[:, 4].tolist() == [1, 1, 1, 1] and columns.sum() == 4


def test_constant_operands_are_judged_before_the_run():
    x = ty("f32", 3, 2)
    bad = Literal(ty("si32", 2), np.array([0, 3], "<i4").tobytes())
    good = Literal(ty("si32", 2), np.array([0, 2], "<i4").tobytes())
    assert code("take", x, bad) == "GatherIndexOutOfBounds" and code("take", x, good) is None
    assert code("take", ty("f32", N, 2), bad) is None
    wide = Literal(ty("si64", 1, 2), np.array([0, -1], "<i8").tobytes())
    assert code("gather", x, wide, axis=0) == "GatherIndexOutOfBounds"
    assert code("scatter_reduce", x, wide, ty("f32", 1, 2), axis=0) == "ScatterIndexOutOfBounds"
    assert code("segment_reduce", ty("f32", 2), bad, num_segments=3) == "ScatterIndexOutOfBounds"
    splat = Literal(ty("si32", 0), np.array([9], "<i4").tobytes(), splat=True)
    assert code("take", x, splat) is None
    for dtype, data, splat in (("si32", b"\0\0\0\1\0\0\0\0", False), ("si4", b"\x10", False), ("ui8", b"\0", True)):
        assert code("div", ty(dtype, 2), Literal(ty(dtype, 2), data, splat)) == "IntegerDivideByZero"
    assert code("div", ty("si4", 3), Literal(ty("si4", 3), b"\x11\x01")) is None
    assert code("div", ty("si16", 2), Literal(ty("si16", 2), b"\1\0\0\1")) is None
    assert code("div", ty("f32", 1), Literal(ty("f32", 1), b"\0\0\0\0")) is None


def test_a_missing_payload_is_an_error_at_run_time_only():
    p = program("constant", [], {"value": Literal(ty("f32", 2), None)})
    with pytest.raises(Violation) as info:
        run_block(p.main, [], Context())
    assert info.value.code == "MissingPayload"


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
def test_the_result_type_decides_an_inferred_extent_of_nothing(engine):
    """`[-1, ?N]` says `1x?N`, and does so where N is 0."""
    text = """func @f(%a: tensor<f32, ?N>) -> (tensor<f32, 1x?N>, tensor<f32, 5x?N>) {
      %y = reshape(%a) new_shape[-1, ?N] -> tensor<f32, 1x?N>
      %z = broadcast_to(%y) result_shape[5, ?N] -> tensor<f32, 5x?N>
      return %y, %z
    }"""
    program = api.read(text)
    for n in (0, 3):
        y, z = api.run(program, {"a": np.arange(n, dtype=np.float32)}, engine=engine).values()
        assert y.shape == (1, n) and z.shape == (5, n)
    shaped = "func @f(%a: tensor<f32, {}>) -> tensor<f32, {}> {{ %y = reshape(%a) new_shape[{}] -> tensor<f32, {}> return %y }}"
    for new_shape, t in (("-1, 0", "5x0"), ("0, -1", "0x7")):
        api.read(shaped.format("0x3", t, new_shape, t))
    with pytest.raises(Rejected, match="holds no element"):
        api.read(shaped.format("2", "5x0", "-1, 0", "5x0"))

"""What MIND's operations compute, against NumPy in float64 and Python's integers; what their type rules refuse."""

from itertools import product

import numpy as np
import pytest

from ptir_tools.core.violations import Violation
from tests.mind.programs import codes, evaluate, good, read, run

RNG = np.random.default_rng(5)
DTYPES = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}


def one(t: str, op: str) -> str:
    return f"%0 = Input {{name=x}} : tensor<{t}>\n%1 = {op}\noutputs: %1\n"


def two(t: str, u: str, op: str) -> str:
    return f"%0 = Input {{name=x}} : tensor<{t}>\n%1 = Input {{name=y}} : tensor<{u}>\n%2 = {op}\noutputs: %2\n"


def floats(*shape: int, dtype=np.float32):
    return RNG.uniform(-3, 3, shape).astype(dtype)


def wrapped(x: int, bits: int) -> int:
    return (x + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


@pytest.mark.parametrize(("op", "fn"), [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)])
@pytest.mark.parametrize(("a", "b"), [((), (3, 4, 5)), ((1, 5), (3, 5)), ((3, 1, 5), (1, 4, 5)), ((5,), (3, 4, 5)), ((2,), (2,))])
def test_binary_broadcasts(op, fn, a, b) -> None:
    x, y = floats(*a), floats(*b)
    got = evaluate(two(f"f32{list(a)}", f"f32{list(b)}", f"{op} (%0, %1)"), x, y)
    want = fn(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    assert got.dtype == np.float32 and np.array_equal(got, want)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("op", "fn"), [("Add", int.__add__), ("Sub", int.__sub__), ("Mul", int.__mul__)])
def test_integers_wrap(op, fn, bits) -> None:
    edge = [-(1 << bits - 1), (1 << bits - 1) - 1, -1, 0, 1, 3, 123456789]
    pairs = list(product(edge, edge))
    x, y = (np.array(v, f"i{bits // 8}") for v in zip(*pairs, strict=True))
    got = evaluate(two(f"i{bits}[{len(pairs)}]", f"i{bits}[{len(pairs)}]", f"{op} (%0, %1)"), x, y)
    assert got.tolist() == [wrapped(fn(a, b), bits) for a, b in pairs]


@pytest.mark.parametrize("axes", [(), (0,), (1,), (-1,), (0, 2), (2, -3), (0, 1, 2)])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("op", ["Sum", "Mean"])
@pytest.mark.parametrize("dtype", ["i32", "f32"])
def test_reductions(op, axes, keep, dtype) -> None:
    x = (floats(3, 4, 5) * 10).astype(DTYPES[dtype])
    got = evaluate(one(f"{dtype}[3, 4, 5]", f"{op} (%0) {{axes={list(axes)}, keepdims={str(keep).lower()}}}"), x)
    along = tuple(a % 3 for a in axes) or (0, 1, 2)
    total = x.astype(np.float64).sum(along, keepdims=keep and bool(axes))
    if op == "Mean":
        total = total / np.prod([x.shape[a] for a in along])
        total = np.trunc(total) if dtype == "i32" else total
    assert got.shape == total.shape and got.dtype == x.dtype
    assert np.allclose(got, total, rtol=1e-6, atol=0)


def test_mean_divides_by_the_elements_and_not_by_the_axes() -> None:
    assert evaluate(one("f32[2, 3, 4]", "Mean(%0, [1, 2], false)"), np.ones((2, 3, 4), np.float32)).tolist() == [1.0, 1.0]


def test_integer_mean_truncates_toward_zero_and_its_sum_wraps() -> None:
    x = np.array([[-7, 0], [7, 0], [2**31 - 1, 1]], np.int32)
    assert evaluate(one("i32[3, 2]", "Mean(%0, [1], false)"), x).tolist() == [-3, 3, -(2**30)]


def test_mean_over_nothing() -> None:
    text = "%0 = Input {{name=x}} : tensor<{0}[2]>\n%1 = Slice(%0, [1:1])\n%2 = Mean(%1, [], false)\noutputs: %2\n"
    assert np.isnan(evaluate(text.format("f32"), np.ones(2, np.float32)))
    with pytest.raises(Violation) as raised:
        evaluate(text.format("i64"), np.ones(2, np.int64))
    assert raised.value.code == "E6006"


@pytest.mark.parametrize(
    ("op", "want"),
    [
        ("Reshape (%0) {new_shape=[4, -1]}", lambda x: x.reshape(4, 6)),
        ("Transpose (%0) {permutation=[2, 0, 1]}", lambda x: x.transpose(2, 0, 1)),
        ("ExpandDims (%0) {axes=[4, 0]}", lambda x: x[None, :, :, :, None]),
        ("Slice(%0, [0:2, 1:3:2, -5:99:3])", lambda x: x[0:2, 1:3:2, 0:4:3]),
        ("Slice(%0, [1:1, 0:3, 3:1])", lambda x: x[1:1, :, 3:1]),
        ("Index (%0) {indices=[1, 2, 3]}", lambda x: x[1, 2, 3]),
    ],
)
def test_movement(op, want) -> None:
    x = floats(2, 3, 4)
    got = evaluate(one("f32[2, 3, 4]", op), x)
    assert np.array_equal(got, want(x)) and got.shape == np.shape(want(x))


def test_expand_dims_example_of_the_specification() -> None:
    assert evaluate(one("f32[3, 4]", "ExpandDims (%0) {axes=[0, 2]}"), floats(3, 4)).shape == (1, 3, 1, 4)


def test_squeeze() -> None:
    x = floats(1, 3, 1, 4)
    assert np.array_equal(evaluate(one("f32[1, 3, 1, 4]", "Squeeze (%0) {axes=[0, 2]}"), x), x[0, :, 0])
    assert np.array_equal(evaluate(one("f32[1, 3, 1, 4]", "Squeeze (%0) {axes=[]}"), x), x)


def test_gather() -> None:
    x, i = floats(5, 2, 3), np.array([[4, 0], [2, 2]], np.int32)
    assert np.array_equal(evaluate(two("f32[5, 2, 3]", "i32[2, 2]", "Gather (%0, %1)"), x, i), x[i])
    scalar = evaluate(two("f32[5, 2, 3]", "i64[]", "Gather (%0, %1)"), x, np.array(3))
    assert np.array_equal(scalar, x[3])


@pytest.mark.parametrize("i", [5, -1])
def test_gather_out_of_bounds(i) -> None:
    with pytest.raises(Violation, match="out of bounds") as raised:
        evaluate(two("f32[5]", "i32[1]", "Gather (%0, %1)"), floats(5), np.array([i], np.int32))
    assert raised.value.code == "E6001"


@pytest.mark.parametrize("indices", [[0, 3], [-1, 0]])
def test_index_out_of_bounds_is_a_warning_and_then_an_error(indices) -> None:
    program, diagnostics = read(one("f32[2, 3]", f"Index (%0) {{indices={indices}}}"))
    assert [(d.severity, d.code) for d in diagnostics] == [("warning", "E6001")]
    with pytest.raises(Violation) as raised:
        run(program, [floats(2, 3)])
    assert raised.value.code == "E6001"


@pytest.mark.parametrize(("a", "b"), [((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((3, 4), (4, 5))])
def test_dot(a, b) -> None:
    x, y = floats(*a), floats(*b)
    got = evaluate(two(f"f32{list(a)}", f"f32{list(b)}", "Dot (%0, %1)"), x, y)
    assert np.array_equal(got, np.dot(x.astype(np.float64), y.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize(("a", "b"), [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (6, 3, 4)), ((2, 3), (5, 3, 4))])
def test_matmul(a, b) -> None:
    x, y = floats(*a), floats(*b)
    got = evaluate(two(f"f32{list(a)}", f"f32{list(b)}", "MatMul (%0, %1)"), x, y)
    want = np.einsum("...ik,...kj->...ij", x.astype(np.float64), y.astype(np.float64))
    assert got.shape == want.shape and np.allclose(got, want, rtol=1e-6, atol=1e-6)


def test_integer_matmul_wraps() -> None:
    x = np.array([[2**31 - 1, 2**31 - 1]], np.int32)
    assert evaluate(two("i32[1, 2]", "i32[2, 1]", "MatMul (%0, %1)"), x, x.T).tolist() == [[wrapped(2 * (2**31 - 1) ** 2, 32)]]


def convolution(x, f, strides, pads):
    """Cross-correlation by its definition."""
    x = np.pad(x.astype(np.float64), [(0, 0), *pads, (0, 0)])
    high, wide = ((x.shape[i + 1] - f.shape[i]) // strides[i] + 1 for i in range(2))
    out = np.zeros((x.shape[0], high, wide, f.shape[3]))
    for i, j in product(range(high), range(wide)):
        window = x[:, i * strides[0] : i * strides[0] + f.shape[0], j * strides[1] : j * strides[1] + f.shape[1]]
        out[:, i, j] = np.einsum("nhwc,hwcf->nf", window, f.astype(np.float64))
    return out


@pytest.mark.parametrize(
    ("padding", "strides", "kernel", "pads"),
    [
        ("Valid", (1, 1), (3, 3), ((0, 0), (0, 0))),
        ("Valid", (2, 3), (2, 3), ((0, 0), (0, 0))),
        ("Same", (1, 1), (2, 3), ((0, 1), (1, 1))),
        ("Same", (2, 2), (3, 3), ((1, 1), (0, 1))),
        ("Custom([[1, 0], [0, 2]])", (1, 2), (3, 3), ((1, 0), (0, 2))),
    ],
)
def test_convolution(padding, strides, kernel, pads) -> None:
    x, f = floats(2, 5, 6, 3), floats(*kernel, 3, 4)
    text = two("f32[2, 5, 6, 3]", f"f32{list(f.shape)}", f"Conv2d(%0, %1, {list(strides)}, {padding})")
    want = convolution(x, f, strides, pads)
    assert np.allclose(evaluate(text, x, f), want, rtol=1e-5, atol=1e-5)
    if padding == "Same":
        assert want.shape[1:3] == tuple(-(-n // s) for n, s in zip((5, 6), strides, strict=True))


def test_convolution_padding_sees_zeros_not_the_integer_minimum() -> None:
    x, f = np.full((1, 1, 1, 1), 3, np.int32), np.ones((3, 3, 1, 1), np.int32)
    got = evaluate(two("i32[1, 1, 1, 1]", "i32[3, 3, 1, 1]", "Conv2d(%0, %1, [1, 1], Same)"), x, f)
    assert got.tolist() == [[[[3]]]]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_unary(dtype) -> None:
    x = np.array([np.nan, -np.inf, np.inf, -0.0, 0.0, -1.5, 2.5, 1e30], DTYPES[dtype])
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        wants = {"Neg": -wide, "Exp": np.exp(wide), "Log": np.log(wide), "Relu": np.where(wide > 0, wide, 0.0)}
        for op, want in wants.items():
            got = evaluate(one(f"{dtype}[8]", f"{op} (%0)"), x)
            assert np.array_equal(got, want.astype(x.dtype), equal_nan=True), op


def test_relu_gives_positive_zero() -> None:
    got = evaluate(one("f32[2]", "Relu (%0)"), np.array([-0.0, np.nan], np.float32))
    assert got.tobytes() == bytes(8)


def test_neg_of_the_smallest_integer() -> None:
    assert evaluate(one("i32[1]", "Neg (%0)"), np.array([-(2**31)], np.int32)).tolist() == [-(2**31)]


def test_constants() -> None:
    text = "%0 = ConstI64(3)\n%1 = ConstF32(0.1)\n%2 = ConstF64 {value=-inf}\n%3 = ConstTensor([1, -2]) : tensor<i32[2]>\n"
    got = run(good(text + "outputs: %0, %1, %2, %3\n"), [])
    assert [x.tolist() for x in got] == [3, float(np.float32(0.1)), -np.inf, [1, -2]]
    assert [x.dtype for x in got] == [np.int64, np.float32, np.float64, np.int32]


REFUSED = [
    ("E3001", two("f32[3, 4]", "f32[3, 5]", "Add (%0, %1)"), "Broadcasting failed at dimension 1"),
    ("E3001", two("f32[3, 4]", "f32[7, 2, 4]", "Add (%0, %1)"), "Broadcasting failed at dimension 1"),
    ("E3001", two("f32[2, 3, 4]", "f32[3, 4, 5]", "MatMul (%0, %1)"), "Broadcasting failed at dimension 0"),
    ("E2004", two("f32[2]", "f64[2]", "Dot (%0, %1)"), "Dtype mismatch"),
    ("E2004", two("f32[2, 2]", "i32[2, 2]", "MatMul (%0, %1)"), "Dtype mismatch"),
    ("E2004", two("f32[1, 4, 4, 1]", "f64[1, 1, 1, 1]", "Conv2d(%0, %1, [1, 1], Valid)"), "Dtype mismatch"),
    ("E2005", one("i64[2]", "Exp (%0)"), "Exp"),
    ("E2005", one("i64[2]", "Log (%0)"), "Log"),
    ("E2007", one("f32[2]", "Add (%0)"), "2 operands"),
    ("E2007", one("f32[2]", "ConstI64 (%0) {value=1}"), "0 operands"),
    ("E3002", one("f32[]", "Dot (%0, %0)"), "rank 1 or 2"),
    ("E3002", one("f32[2, 2, 2]", "Dot (%0, %0)"), "rank 1 or 2"),
    ("E3002", two("f32[]", "i32[]", "Gather (%0, %1)"), "first axis"),
    ("E3002", one("f32[2]", "Conv2d(%0, %0, [1, 1], Valid)"), "rank 4"),
    ("E3003", two("f32[2]", "f32[3]", "Dot (%0, %1)"), "2 and 3"),
    ("E3004", one("f32[2]", "Sum(%0, [-2], false)"), "-2"),
    ("E3004", one("f32[2]", "Squeeze (%0) {axes=[-1]}"), "-1"),
    ("E3004", one("f32[2]", "ExpandDims (%0) {axes=[-1]}"), "-1"),
    ("E3004", one("f32[2]", "ExpandDims (%0) {axes=[0, 4]}"), "4"),
    ("E3005", one("f32[2]", "ExpandDims (%0) {axes=[1, 1]}"), "twice"),
    ("E3005", one("f32[1, 1]", "Squeeze (%0) {axes=[1, 1]}"), "twice"),
    ("E3006", one("f32[4]", "Reshape (%0) {new_shape=[0, 4]}"), "0"),
    ("E3006", one("f32[4]", "Reshape (%0) {new_shape=[-2, 2]}"), "-2"),
    ("E3007", one("f32[4]", "Reshape (%0) {new_shape=[3, -1]}"), "Element count mismatch"),
    ("E3008", one("f32[4]", "Transpose (%0) {permutation=[0, 1]}"), "permutation"),
    ("E3008", one("f32[4]", "Transpose (%0) {permutation=[-1]}"), "permutation"),
    ("E4006", one("f32[]", "Index (%0) {indices=[0]}"), "0 indices"),
    ("E4012", one("f32[1, 2, 2, 2]", "Conv2d(%0, %0, [1, 1], Full)"), "padding"),
    ("E4012", one("f32[1, 2, 2, 2]", "Conv2d(%0, %0, [1, 1], Custom([[1, -1], [0, 0]]))"), "padding"),
]


@pytest.mark.parametrize(("code", "text", "words"), REFUSED)
def test_refused(code, text, words) -> None:
    found = [d for d in read(text)[1] if d.code == code]
    assert codes(text) == [code]
    assert words in found[0].message


def test_kernel_larger_than_the_padded_input() -> None:
    assert codes(two("f32[1, 2, 2, 1]", "f32[3, 1, 1, 1]", "Conv2d(%0, %1, [1, 1], Valid)")) == ["E3006"]
    assert codes(two("f32[1, 2, 2, 1]", "f32[3, 1, 1, 1]", "Conv2d(%0, %1, [1, 1], Same)")) == []

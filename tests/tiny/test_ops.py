"""The meaning of every UOp against oracles written by hand in float64, and its type rule."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.rewrite.fold import ReplacedBy, declared_fold
from tests.tiny.graphs import codes, good, graph, inputs_of, node, read, run, source

FLOATS = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
ODD = [0.0, -0.0, 1.0, -1.5, 3.25, np.inf, -np.inf, np.nan, 1e-8, 60000.0, -3.0, 2.0]


def one(n: dict, x: np.ndarray, dtype: str = "fp32", *more: np.ndarray) -> np.ndarray:
    """The result of a node on x, and on y, z of the same dtype."""
    names = ["x", "w", "v"]
    inputs = [source(a.shape, dtype if a.dtype != np.bool_ else "bool", names[i]) for i, a in enumerate((x, *more))]
    return run(good(graph(*inputs, n)), [x, *more])[0]


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


UNARY = {
    "NEG": lambda v: -v,
    "RELU": lambda v: np.where(v > 0, v, 0.0),
    "EXP2": lambda v: np.float64(2.0) ** v,
    "RSQRT": lambda v: 1 / np.sqrt(v),
}
BINARY = {
    "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b, "FDIV": lambda a, b: a / b,
    "MAX": np.maximum, "MIN": np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("uop", UNARY)
def test_unary(uop: str, dtype: str) -> None:
    x = np.array(ODD).astype(FLOATS[dtype])
    with np.errstate(all="ignore"):
        same(one(node(uop), x, dtype), UNARY[uop](x.astype(np.float64)).astype(FLOATS[dtype]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("uop", BINARY)
def test_binary(uop: str, dtype: str) -> None:
    x, w = (m.reshape(-1).astype(FLOATS[dtype]) for m in np.meshgrid(ODD, ODD))
    with np.errstate(all="ignore"):
        expected = BINARY[uop](x.astype(np.float64), w.astype(np.float64))
        same(one(node(uop, "x", "w"), x, dtype, w), expected.astype(FLOATS[dtype]))


def test_i32_wraps() -> None:
    x = np.array([2**31 - 1, -(2**31), 7], np.int32)
    same(one(node("ADD", "x", 1), x, "i32"), np.array([-(2**31), -(2**31) + 1, 8], np.int32))
    same(one(node("NEG"), x, "i32"), np.array([-(2**31) + 1, -(2**31), -7], np.int32))
    same(one(node("MUL", "x", 2), x, "i32"), np.array([-2, 0, 14], np.int32))
    same(one(node("REDUCE", op="SUM", axes=[0], dtype="i32", init=3), x, "i32"), np.array(9, np.int32))


def test_relu_of_negative_zero_and_nan_is_zero() -> None:
    found = one(node("RELU"), np.array([-0.0, np.nan], np.float32))
    assert not np.signbit(found).any() and (found == 0).all()


def test_where() -> None:
    c, a = np.array([True, False, True]), np.array([1, 2, 3], np.float32)
    program = good(graph(source([3], "bool", "c"), source([3]), node("WHERE", "c", "x", "-inf")))
    same(run(program, [c, a])[0], np.array([1, -np.inf, 3], np.float32))


CASTS = [
    ("fp32", [1.5, -1.5, 3e9, -3e9, np.nan, np.inf], "i32", [1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1]),
    ("fp32", [1 + 2**-11, 1 + 3 * 2**-11, 65520.0, 65519.9], "fp16", [1, 1 + 2**-9, np.inf, 65504]),
    ("fp32", [0.0, -0.0, np.nan, 1e-30], "bool", [0, 0, 1, 1]),
    ("i32", [2**24 + 1, 2**24 + 3], "fp32", [2**24, 2**24 + 4]),
    ("bool", [0, 1], "bf16", [0, 1]),
    ("i32", [0, -5], "bool", [0, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "values", "to", "expected"), CASTS)
def test_cast(dtype: str, values: list, to: str, expected: list) -> None:
    kinds = FLOATS | {"i32": np.int32, "bool": np.bool_}
    same(one(node("CAST", to=to), np.array(values).astype(kinds[dtype]), dtype), np.array(expected).astype(kinds[to]))


@pytest.mark.parametrize("op", ["SUM", "MAX", "MIN"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axes", [[], [0], [-1], [0, 2], [2, 1, 0]])
def test_reduce(op: str, dtype: str, axes: list[int]) -> None:
    x = np.random.default_rng(0).uniform(-2, 2, (3, 4, 5)).astype(FLOATS[dtype])
    wide, along = x.astype(np.float32).astype(np.float64), tuple(axes)
    expected = {"SUM": np.sum, "MAX": np.max, "MIN": np.min}[op](wide, axis=along)
    same(one(node("REDUCE", op=op, axes=axes, dtype="fp32"), x, dtype), expected.astype(np.float32))


def test_reduce_casts_before_it_adds() -> None:
    x = np.array([1.9, 1.9, np.nan], np.float32)
    same(one(node("REDUCE", op="SUM", axes=[0], dtype="i32"), x), np.array(2, np.int32))
    ones = np.full(4096, 1 + 2**-11, np.float32)
    same(one(node("REDUCE", op="SUM", axes=[0], dtype="fp16"), ones), np.array(4096, np.float16))


@pytest.mark.parametrize(("op", "dtype", "neutral"), [
    ("SUM", "fp32", 0), ("MAX", "fp32", -np.inf), ("MIN", "fp32", np.inf), ("SUM", "i32", 0),
    ("MAX", "i32", -(2**31)), ("MIN", "i32", 2**31 - 1),
])  # fmt: skip
def test_reduce_over_nothing_gives_the_neutral(op: str, dtype: str, neutral: float) -> None:
    x = np.zeros((0, 2), np.float32)
    kind = np.float32 if dtype == "fp32" else np.int32
    same(one(node("REDUCE", op=op, axes=[0], dtype=dtype), x), np.full(2, neutral, kind))


def test_reduce_starts_at_init_and_keeps_nan() -> None:
    x = np.array([[1, 2], [np.nan, 0]], np.float32)
    same(one(node("REDUCE", op="MAX", axes=[1], dtype="fp32", init=5), x), np.array([5, np.nan], np.float32))
    same(one(node("REDUCE", op="SUM", axes=[1], dtype="fp32", init=0.5), x), np.array([3.5, np.nan], np.float32))
    same(one(node("REDUCE", op="MIN", axes=[1], dtype="fp32", init="inf"), x), np.array([1, np.nan], np.float32))


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
MOVED = [
    (node("RESHAPE", result_shape=[4, 1, 6]), X.reshape(4, 1, 6)),
    (node("PERMUTE", perm=[2, 0, 1]), X.transpose(2, 0, 1)),
    (node("EXPAND", result_shape=[5, 2, 3, 4]), np.broadcast_to(X, (5, 2, 3, 4))),
    (node("EXPAND", result_shape=[2, 5, 3, 4], broadcast_dimensions=[0, 2, 3]), np.stack([X] * 5, 1)),
    (node("PAD", pad=[[0, 0], [1, 2], [0, 1]], value=-1), np.pad(X, [(0, 0), (1, 2), (0, 1)], constant_values=-1)),
    (node("PAD", pad=[[1, 0], [0, 0], [0, 0]]), np.pad(X, [(1, 0), (0, 0), (0, 0)])),
    (node("SHRINK", lo=[1, 0, 1], hi=[2, 3, 4]), X[1:2, 0:3, 1:4]),
    (node("SHRINK", lo=[0, 0, 1], hi=[2, 3, 4], step=[1, 2, 2]), X[0:2, 0:3:2, 1:4:2]),
    (node("SHRINK", lo=[1, 0, 0], hi=[1, 3, 4]), X[1:1]),
    (node("FLIP", axes=[0, -1]), X[::-1, :, ::-1]),
    (node("POOL", kernel=[2]), np.stack([X[..., :-1], X[..., 1:]], -1)),
    (node("POOL", kernel=[2, 2], stride=[1, 2], dilation=[2, 1]),
     np.array([[[[[[X[n, o + 2 * i, 2 * p + j] for j in range(2)] for i in range(2)] for p in range(2)] for o in range(1)]]
               for n in range(2)], np.float32).reshape(2, 1, 2, 2, 2)),
    (node("VIEW", result_shape=[4, 3], index_map={"map": [1, "i1", "3-i0"]}), X[1].T[::-1]),
    (node("VIEW", result_shape=[6, 4], index_map={"map": ["i0//3", "i0%3", "i1"]}), X.reshape(6, 4)),
    (node("VIEW", result_shape=[2], index_map={"map": ["i0", "i0", "i0"]}), X[[0, 1], [0, 1], [0, 1]]),
    (node("VIEW", result_shape=[2, 3, 6], index_map={"map": ["i0", "i1", "i2-1"], "guard": ["i2>=1", "5>i2"], "fill": 7}),
     np.pad(X, [(0, 0), (0, 0), (1, 1)], constant_values=7)),
    (node("VIEW", result_shape=[2, 2], index_map={"axes": ["r", "k"], "map": ["r", {"add": ["k", 1]}, {"mul": [2, "k"]}]}),
     X[:, [1, 2], [0, 2]]),
    (node("VIEW", result_shape=[3], index_map={"map": [0, "mod(i0,3)", "floordiv(i0,2)"]}), X[0, [0, 1, 2], [0, 0, 1]]),
    (node("VIEW", result_shape=[2], index_map={"map": [5, 5, 5], "guard": ["-1>=0"], "fill": 3}), np.full(2, 3, np.float32)),
]  # fmt: skip


@pytest.mark.parametrize(("n", "expected"), MOVED, ids=[f"{i}_{n['uop']}" for i, (n, _) in enumerate(MOVED)])
def test_movement(n: dict, expected: np.ndarray) -> None:
    same(one(n, X), expected.astype(np.float32))


def test_view_of_nothing_is_the_fill() -> None:
    n = node("VIEW", result_shape=[2], index_map={"map": ["i0"], "guard": ["i0<0"], "fill": 4})
    same(one(n, np.zeros(0, np.float32)), np.full(2, 4, np.float32))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_view_is_refused_where_a_point_that_no_guard_excludes_reads_outside(data: st.DataObject) -> None:
    """All points are tried here, in Python's integers; a view without points reads nothing."""
    extents = data.draw(st.tuples(st.integers(0, 5), st.integers(0, 3)))
    source_extents = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=2))
    numbers = st.integers(-2, 3)

    def line() -> tuple[str, list[int]]:
        a, b, c = data.draw(st.tuples(numbers, numbers, numbers))
        by = data.draw(st.sampled_from([1, 1, 2]))
        text = f"{a}*i0+{b}*i1+{c}"
        return (f"({text})//{by}" if by > 1 else text), [
            (a * i + b * j + c) // by for i in range(extents[0]) for j in range(extents[1])
        ]

    entries, guards = [line() for _ in source_extents], [line() for _ in range(data.draw(st.integers(0, 2)))]
    held = [all(values[k] >= 0 for _, values in guards) for k in range(math.prod(extents))]
    reads_outside = any(
        not 0 <= values[k] < n
        for (_, values), n in zip(entries, source_extents, strict=True)
        for k in range(len(held))
        if held[k]
    )
    index_map = {"map": [text for text, _ in entries], "guard": [f"{text}>=0" for text, _ in guards]}
    n = node("VIEW", result_shape=list(extents), index_map=index_map)
    assert codes(graph(source(source_extents), n)) == ["UnguardedAccess"] * reads_outside


@pytest.mark.parametrize(
    ("lo", "hi", "step", "goes"),
    [
        (0, "N", None, True), (0, "N", 1, True), (0, "2*N", 2, False), (0, "3*N", 3, False), ("M", "M+N", 1, False),
        ("N", "2*N", None, False), (0, "N-1", None, False),
    ],
)  # fmt: skip
def test_a_slice_goes_where_it_certainly_is_all_of_its_source(lo: object, hi: object, step: object, goes: bool) -> None:
    """One of as many elements stays where it may leave its source: that is an error when N is known."""
    slice_ = node("SHRINK", lo=[lo], hi=[hi], **({} if step is None else {"step": [step]}))
    program = good(graph(source(["N"]), source(["M"], id="m"), slice_))
    (op,) = (op for op in program.main.body if op.defn.short == "SHRINK")
    assert isinstance(declared_fold(op), ReplacedBy) is goes


REFUSED = [
    (node("RESHAPE", result_shape=[5, 5]), "AxisSizeMismatch"),
    (node("RESHAPE", result_shape=[-1]), "InvalidArg"),
    (node("PERMUTE", perm=[0, 1]), "InvalidPermutation"),
    (node("PERMUTE", perm=[0, 1, -1]), "InvalidPermutation"),
    (node("EXPAND", result_shape=[2, 3, 5]), "BroadcastMismatch"),
    (node("EXPAND", result_shape=[3, 4]), "BroadcastMismatch"),
    (node("EXPAND", result_shape=[2, 3, 4, 5], broadcast_dimensions=[0, 1]), "BroadcastMismatch"),
    (node("EXPAND", result_shape=[2, 3, 4], broadcast_dimensions=[0, 2, 1]), "BroadcastMismatch"),
    (node("EXPAND", result_shape=[2, 3, 4], broadcast_dimensions=[0, 1, 3]), "BroadcastMismatch"),
    (node("PAD", pad=[[0, 0]]), "InvalidArg"),
    (node("PAD", pad=[[0, -1], [0, 0], [0, 0]]), "InvalidArg"),
    (node("PAD", pad=[[0, 0], [0, 0], [0]]), "InvalidArg"),
    (node("PAD", pad=[[0, 0], [0, 0], [0, 1]], value="zero"), "InvalidArg"),
    (node("PAD", pad=[[0, 0], [0, 0], [0, 1]], value=True), "DtypeMismatch"),
    (node("PAD", pad=[[0, 0], [0, 0], [0, 1]], value=1e39), "NeutralInvalid"),
    (node("SHRINK", lo=[0, 0, 2], hi=[2, 3, 1]), "InvalidArg"),
    (node("SHRINK", lo=[0, 0], hi=[2, 3]), "InvalidArg"),
    (node("SHRINK", lo=[0, 0, 0], hi=[2, 3, 4], step=[1, 1, 0]), "InvalidArg"),
    (node("FLIP", axes=[0, -3]), "InvalidArg"),
    (node("FLIP", axes=[3]), "AxisOutOfRange"),
    (node("FLIP", axes=["Q"]), "UnknownAxis"),
    (node("POOL", kernel=[5]), "InvalidArg"),
    (node("POOL", kernel=[2], stride=[0]), "InvalidArg"),
    (node("POOL", kernel=[2, 2], stride=[1]), "InvalidArg"),
    (node("REDUCE", op="MEAN", axes=[0], dtype="fp32"), "InvalidArg"),
    (node("REDUCE", op="SUM", axes=[0, -3], dtype="fp32"), "InvalidArg"),
    (node("REDUCE", op="SUM", dtype="fp32"), "InvalidArg"),
    (node("REDUCE", op="SUM", axes=[3], dtype="fp32"), "AxisOutOfRange"),
    (node("REDUCE", op="SUM", axes=[0], dtype="bool"), "DtypeMismatch"),
    (node("REDUCE", op="SUM", axes=[0], acc_dtype="fp32"), "AccDtypeMissing"),
    (node("REDUCE", op="SUM", axes=[0], dtype="i32", init=0.5), "NeutralInvalid"),
    (node("REDUCE", op="SUM", axes=[0], dtype="fp16", init=1e6), "NeutralInvalid"),
    (node("NEG", axis=1), "InvalidArg"),
    (node("CAST"), "InvalidArg"),
    (node("VIEW", result_shape=[2], index_map={"map": ["i0", 0]}), "InvalidArg"),
    (node("VIEW", result_shape=[2], index_map={"map": ["i0", 0, 0], "guard": ["i0"]}), "InvalidArg"),
    (node("VIEW", result_shape=[2], index_map={"axes": ["a", "b"], "map": ["a", 0, 0]}), "InvalidArg"),
    (node("VIEW", result_shape=[2], index_map={"map": ["i0*i0", 0, 0]}), "NonAffineIndexMap"),
    (node("VIEW", result_shape=[2], index_map={"map": ["2//(i0+1)", 0, 0]}), "NonAffineIndexMap"),
    (node("VIEW", result_shape=[2], index_map={"map": ["i0//0", 0, 0]}), "NonAffineIndexMap"),
    (node("VIEW", result_shape=[2], index_map={"map": ["i0", 0, 0], "guard": ["i0%-2==0"]}), "NonAffineIndexMap"),
    (node("VIEW", result_shape=[2], index_map={"map": [{"pow": ["i0", 2]}, 0, 0]}), "InvalidArg"),
    (node("VIEW", result_shape=[2], index_map=["i0", 0, 0]), "InvalidArg"),
    (node("VIEW", result_shape=[2], map=["i0", 0, 0]), "InvalidArg"),
    (node("VIEW", result_shape=[2], index_map={"map": [0, 0, "i0*4000000000000000000"]}), "UnguardedAccess"),
    (node("ADD", "x", 1e39), "DtypeMismatch"),
    (node("ADD", "x", True), "DtypeMismatch"),
]  # fmt: skip


@pytest.mark.parametrize(("n", "code"), REFUSED, ids=[f"{i}_{n['uop']}_{c}" for i, (n, c) in enumerate(REFUSED)])
def test_refused(n: dict, code: str) -> None:
    assert codes(graph(source([2, 3, 4]), n)) == [code]


def test_messages_name_axes_as_programs_do() -> None:
    _, diagnostics = read(graph(source([8]), node("VIEW", result_shape=[4, 3], index_map={"map": ["2*i0+i1+1"]})))
    assert "`2*i0+i1+1` reaches 9" in diagnostics.items[0].message


@pytest.mark.parametrize(("n", "dtype"), [
    (node("NEG"), "bool"), (node("EXP2"), "i32"), (node("FDIV", "x", 2), "i32"), (node("ADD", "x", True), "bool"),
    (node("ADD", "x", 0.5), "i32"), (node("ADD", "x", 2**31), "i32"), (node("ADD", "x", "inf"), "i32"),
    (node("WHERE", "x", 1, "x"), "fp32"), (node("PAD", pad=[[0, 1]], value=2), "bool"),
])  # fmt: skip
def test_dtypes_that_do_not_fit(n: dict, dtype: str) -> None:
    assert codes(graph(source([2], dtype), n)) == ["DtypeMismatch"]


def test_integral_numbers_fit_every_number_dtype() -> None:
    for dtype in (*FLOATS, "i32"):
        assert codes(graph(source([2], dtype), node("ADD", "x", 2), node("MUL", "x", 2.0, id="z"))) == []


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_pool_is_a_sliding_window(extent: int, kernel: int, stride: int, dilation: int) -> None:
    text = graph(source([extent]), node("POOL", kernel=[kernel], stride=[stride], dilation=[dilation]))
    span = dilation * (kernel - 1) + 1
    if span > extent:
        assert codes(text) == ["InvalidArg"]
        return
    x = np.arange(extent, dtype=np.float32)
    count = math.floor((extent - span) / stride) + 1
    expected = np.array([[x[o * stride + k * dilation] for k in range(kernel)] for o in range(count)], np.float32)
    same(run(good(text), [x])[0], expected)


def test_gemm_is_a_matrix_product() -> None:
    text = graph(
        source([4, 6], id="a"), source([6, 5], id="b"),
        node("RESHAPE", "a", id="a1", result_shape=[4, 6, 1]), node("EXPAND", "a1", id="a2", result_shape=[4, 6, 5]),
        node("EXPAND", "b", id="b2", result_shape=[4, 6, 5]), node("MUL", "a2", "b2", id="p"),
        node("REDUCE", "p", op="SUM", axes=[1], dtype="fp32"),
    )  # fmt: skip
    program = good(text)
    a, b = inputs_of(program)
    np.testing.assert_allclose(run(program, [a, b])[0], a.astype(float) @ b.astype(float), rtol=1e-6, atol=1e-6)


def test_a_read_outside_is_told_with_its_place_where_that_can_be_told() -> None:
    """Without a guard the ends of the map are its ends; with one all points are tried, unless they are too many."""
    big = 1 << 40

    def message(at: str, **guard: list[str]) -> str:
        view = node("VIEW", result_shape=[big], index_map={"map": [at], **guard})
        return read(graph(source([8]), view))[1].items[0].message

    assert f"`i0` reaches {big - 1}, outside" in message("i0")
    assert "`i0-3` reaches -3, outside" in message("i0-3")
    assert "cannot tell whether `i0` stays inside" in message("i0", guard=["i0<9"])

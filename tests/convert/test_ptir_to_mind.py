"""PTIR to MIND: what Core v1 can say, proven by running both sides; the rest refused at every op."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.convert import translate
from ptir_tools.core.arrays import numpy_dtype, to_literal
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import BF16, F32, F64, SI32, SI64, DType
from ptir_tools.core.ir import Literal
from ptir_tools.core.types import sym, tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_dialect
from ptir_tools.passes import run_pipeline
from tests.mind.programs import array, good, inputs_of, random_program, run, show

Body = Callable[[Builder, Any], Any]


def program(body: Body, dtype: DType = F32, shape: Any = (2, 3)) -> Program:
    """A PTIR function of one parameter `x`."""
    made, b = single_function(load_dialect("ptir"))
    found = body(b, b.param(tensor(dtype, shape), "x"))
    b.results(*(found if isinstance(found, tuple) else (found,)))
    diagnostics = Diagnostics()
    assert verify(made, diagnostics), [d.message for d in diagnostics]
    return made


def constant(value: Any, dtype: DType = F32) -> Literal:
    value = np.asarray(value, numpy_dtype(dtype))
    return to_literal(value, tensor(dtype, value.shape))


def to_mind(before: Program, lossy: bool = False) -> tuple[Program | None, Diagnostics]:
    diagnostics = Diagnostics(before.source)
    after = translate(before, "mind", diagnostics, Options(lossy=lossy))
    if after is not None:
        assert verify(after, diagnostics), [d.message for d in diagnostics]
    return after, diagnostics


def agree(before: Program, lossy: bool = False) -> str:
    """Run both sides on the same positive inputs; the MIND text."""
    after, diagnostics = to_mind(before, lossy)
    assert after is not None, [d.message for d in diagnostics]
    rng = np.random.default_rng(3)
    inputs = [np.abs(array(rng, p.type.dtype, p.type.static_shape, 9)) for p in before.main.params]
    for x, y in zip(run(before, inputs), run(after, inputs), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=1e-5 if x.dtype.kind == "f" else 0)
    return show(after)


def relu(b: Builder, x: Any) -> Any:
    zero = b.op("broadcast_to", constant(0.0), result_shape=x.type.shape)
    return b.op("select", b.op("compare_gt", x, zero), x, zero)


def mean(b: Builder, x: Any) -> Any:
    total = b.op("reduce_sum", x, axes=(0, 1))
    return b.op("div", total, b.op("broadcast_to", constant(6.0), result_shape=()))


def twice_broadcast(b: Builder, x: Any) -> Any:
    wide = b.op("broadcast_to", x, result_shape=(4, 2, 3))
    return b.op("add", wide, wide)


def dot(b: Builder, x: Any, y: Any, left: Any, right: Any, batch: Any = ()) -> Any:
    return b.op("dot_general", x, y, batch_lhs=batch, batch_rhs=batch, contract_lhs=left, contract_rhs=right)


GOOD: dict[str, tuple[Body, str]] = {
    "add": (lambda b, x: b.op("add", x, x), "Add (%x, %x)"),
    "sub mul": (lambda b, x: b.op("mul", b.op("sub", x, x), x), "Mul"),
    "exp": (lambda b, x: b.op("exp", b.op("neg", x)), "Exp"),
    "log": (lambda b, x: b.op("log", x), "Log"),
    "literal": (lambda b, x: b.op("add", x, constant(np.full((2, 3), 2.0))), "ConstF32 {value=2.0}"),
    "constant": (lambda b, x: b.op("constant", value=constant([1.0, 2.0])), "shape=(2,)"),
    "broadcast left to Add": (lambda b, x: b.op("add", x, b.op("broadcast_to", constant([1, 2, 3]), result_shape=(2, 3))), "Add"),
    "broadcast of both": (twice_broadcast, "Mul"),
    "broadcast returned": (lambda b, x: b.op("broadcast_to", x, result_shape=(4, 2, 3)), "shape=(4, 2, 3)"),
    "sum": (lambda b, x: b.op("reduce_sum", x, axes=(-1,), keepdims=True), "Sum (%x) {axes=[-1], keepdims=true}"),
    "sum of nothing": (lambda b, x: b.op("neg", b.op("reduce_sum", x, axes=())), "Neg (%x)"),
    "mean": (mean, "Mean (%x) {axes=[0, 1], keepdims=false}"),
    "relu": (relu, "= Relu (%x)"),
    "halves": (lambda b, x: b.op("div", x, constant([[-2.0, 4.0, 0.5]] * 2)), "[-0.5, 0.25, 2.0]"),
    "quarter": (lambda b, x: b.op("div", x, b.op("broadcast_to", constant(4.0), result_shape=(2, 3))), "ConstF32 {value=0.25}"),
    "reshape": (lambda b, x: b.op("reshape", x, new_shape=(3, -1)), "new_shape=[3, -1]"),
    "transpose": (lambda b, x: b.op("transpose", x, perm=(-1, 0)), "permutation=[1, 0]"),
    "slice": (lambda b, x: b.op("slice", x, starts=(0, 1), sizes=(2, 2)), "{ends=[2, 3], starts=[0, 1], steps=[1, 1]}"),
    "tile": (lambda b, x: b.op("tile", x, repeats=(2, 3)), "ExpandDims"),
    "take": (lambda b, x: b.op("take", x, b.op("constant", value=constant([1, 0, 1], SI32))), "Gather"),
    "cast to itself": (lambda b, x: b.op("neg", b.op("cast", x, dtype=F32)), "Neg (%x)"),
    "stop_gradient": (lambda b, x: b.op("neg", b.op("stop_gradient", x)), "Neg (%x)"),
    "iota": (lambda b, x: b.op("iota", shape=(2, 3), dtype=F32, axis=1), "[[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]"),
    "matmul": (lambda b, x: dot(b, x, b.op("transpose", x, perm=(1, 0)), (1,), (0,)), "MatMul (%x"),
    "gram": (lambda b, x: dot(b, x, x, (1,), (1,)), "Transpose"),
    "inner": (lambda b, x: dot(b, x, x, (1, 0), (1, 0)), "Reshape"),
    "outer": (lambda b, x: dot(b, x, x, (), ()), "MatMul"),
    "batched": (lambda b, x: dot(b, x, x, (), (), (1,)), "MatMul"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_translated(name: str) -> None:
    body, words = GOOD[name]
    assert words in agree(program(body))


def test_dot_of_vectors() -> None:
    assert "Dot (%x, %x)" in agree(program(lambda b, x: dot(b, x, x, (0,), (0,)), F64, (4,)))


def test_integers_wrap_alike() -> None:
    assert "Sum" in agree(program(lambda b, x: b.op("reduce_sum", b.op("mul", x, x), axes=(0,)), SI64))


LOSSY: dict[str, Body] = {"tanh": lambda b, x: b.op("tanh", x), "erf": lambda b, x: b.op("erf", x)}


@pytest.mark.parametrize("name", LOSSY)
def test_only_with_lossy(name: str) -> None:
    before = program(LOSSY[name])
    after, diagnostics = to_mind(before)
    assert after is None and [d.code for d in diagnostics] == ["NotTranslatable"]
    agree(before, lossy=True)
    assert [d.severity for d in to_mind(before, lossy=True)[1]] == [Severity.NOTE]


def test_division_by_a_subnormal_reciprocal_is_not_a_product() -> None:
    assert "Log" in agree(program(lambda b, x: b.op("div", x, constant(np.full((2, 3), 2.0**127)))))


def integers(dtype: DType = SI32, first: int = 0) -> Literal:
    """Six integers."""
    return to_literal(np.arange(first, first + 6, dtype=numpy_dtype(dtype)).reshape(2, 3), tensor(dtype, (2, 3)))


EMPTY: dict[str, Body] = {
    "constant": lambda b, x: b.op("constant", value=constant(np.zeros((0, 2)))),
    "broadcast": lambda b, x: b.op("broadcast_to", b.op("slice", x, starts=(0, 0), sizes=(1, 3)), result_shape=(0, 3)),
    "result": lambda b, x: Literal(tensor(F32, (0,)), b""),
    "reshape": lambda b, x: b.op("reshape", b.op("slice", x, starts=(0, 0), sizes=(0, 3)), new_shape=(0, 7, 0)),
    "tile": lambda b, x: b.op("tile", x, repeats=(0, 1)),
}
FROM_NOTHING: dict[str, Body] = {
    "sum": lambda b, x: b.op("reduce_sum", b.op("slice", x, starts=(0, 0), sizes=(2, 0)), axes=(1,)),
    "largest": lambda b, x: b.op("reduce_max", b.op("slice", x, starts=(0, 0), sizes=(2, 0)), axes=(1,)),
    "pad": lambda b, x: b.op("pad", b.op("slice", x, starts=(0, 0), sizes=(2, 0)), low=(0, 1), high=(1, 1)),
    "product": lambda b, x: b.op("dot_general", *[b.op("slice", x, starts=(0, 0), sizes=(0, 3))] * 2, batch_lhs=(), batch_rhs=(),
                                 contract_lhs=(0,), contract_rhs=(0,)),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_what_is_empty_is_a_part_of_what_is_not(name: str) -> None:
    assert "Slice" in agree(program(EMPTY[name]))


@pytest.mark.parametrize("name", FROM_NOTHING)
def test_what_is_made_of_nothing_is_a_constant(name: str) -> None:
    assert "ConstTensor" in agree(program(FROM_NOTHING[name]))


REFUSED: dict[str, tuple[Body, str]] = {
    "no such op": (lambda b, x: b.op("tanh", x), "no `tanh`"),
    "cast": (lambda b, x: b.op("cast", x, dtype=F64), "`cast`: MIND does not convert floats, and so not f32 to f64"),
    "digits": (lambda b, x: b.op("cast", b.param(tensor(SI64, (3,)), "i"), dtype=F32), "no digits of si64 in f32"),
    "divisor": (
        lambda b, x: b.op("div", b.op("constant", value=integers()), b.op("constant", value=integers(first=1))),
        "divides integers by one number",
    ),
    "tuple": (lambda b, x: b.op("top_k", x, k=1), "no `top_k`"),
    "accumulation": (lambda b, x: b.op("reduce_sum", x, axes=(0,), accum_dtype=F64), "accum_dtype f64"),
    "payload": (lambda b, x: b.op("constant", value=Literal(tensor(F32, (2,)), None)), "payload"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, words = REFUSED[name]
    after, diagnostics = to_mind(program(body))
    assert after is None and {d.code for d in diagnostics} == {"NotTranslatable"}
    assert words in diagnostics.items[0].message


def test_refused_at_every_op_and_once() -> None:
    """What MIND has no word for is reported wherever it is; what only follows from an error is not."""

    def body(b: Builder, x: Any) -> Any:
        narrow = b.op("cast", x, dtype=BF16)
        return b.op("tanh", b.op("neg", b.op("erf", x))), b.op("argmax", x, axis=0), b.op("neg", narrow)

    diagnostics = to_mind(program(body))[1]
    found = [d.message for d in diagnostics]
    assert found[1:] == ["MIND has no `erf`", "MIND has no `tanh`", "MIND has no `argmax`"] and "bf16" in found[0]


def test_what_no_result_needs_is_not_translated() -> None:
    def body(b: Builder, x: Any) -> Any:
        b.op("erf", b.op("exp", x))
        return b.op("neg", x)

    after, diagnostics = to_mind(program(body))
    assert after is not None and not diagnostics.items
    assert [op.defn.short for op in after.main.body] == ["Neg"]


def test_parameters_that_mind_does_not_have() -> None:
    assert "bf16" in to_mind(program(lambda b, x: x, BF16))[1].items[0].message
    assert "--bind" in to_mind(program(lambda b, x: x, F32, (sym("N"), 2)))[1].items[0].message
    assert "extent is 0" in to_mind(program(lambda b, x: x, F32, (0, 2)))[1].items[0].message


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_there_and_back(seed: int) -> None:
    """MIND to PTIR and back computes the same, and no op is refused on the way back."""
    before = random_program(seed)
    there = translate(before, "ptir", Diagnostics())
    assert there is not None
    back, diagnostics = to_mind(there)
    assert back is not None, [d.message for d in diagnostics]
    inputs = inputs_of(before, seed)
    with np.errstate(all="ignore"):
        for x, y in zip(run(before, inputs), run(back, inputs), strict=True):
            if x.dtype.kind == "i":
                np.testing.assert_array_equal(x, y)
            else:
                np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5 * np.max(np.abs(x[np.isfinite(x)]), initial=1.0))


EXACT = """%0 = Input {name=x} : tensor<f32[2, 3]>
%1 = Input {name=w} : tensor<f32[3, 4]>
%2 = ConstTensor {dtype=f32, shape=(2,), value=[1.0, 2.5]} : tensor<f32[2]>
%3 = MatMul (%0, %1) : tensor<f32[2, 4]>
%4 = Transpose (%3) {permutation=[1, 0]} : tensor<f32[4, 2]>
%5 = Add (%2, %4) : tensor<f32[4, 2]>
%6 = Relu (%5) : tensor<f32[4, 2]>
%7 = Mean (%6) {axes=[1], keepdims=true} : tensor<f32[4, 1]>
%8 = Neg (%7) : tensor<f32[4, 1]>
%9 = Exp (%8) : tensor<f32[4, 1]>
%10 = Reshape (%9) {new_shape=[2, 2]} : tensor<f32[2, 2]>
%11 = Sum (%10) {axes=[0], keepdims=false} : tensor<f32[2]>
%12 = Slice (%11) {ends=[2], starts=[1], steps=[1]} : tensor<f32[1]>
outputs: %12
"""


def test_exact_rows_come_back_as_they_were() -> None:

    there = translate(good(EXACT), "ptir", Diagnostics())
    assert there is not None
    back, _ = to_mind(there)
    assert back is not None
    run_pipeline(back, "canonicalize")
    assert show(back) == EXACT


COMPARED = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
FOUND: dict[str, tuple[Callable[[Builder, Any, Any], Any], Any]] = {
    "maximum": (lambda b, x, y: b.op("maximum", x, y), np.maximum),
    "minimum": (lambda b, x, y: b.op("minimum", x, y), np.minimum),
    "abs": (lambda b, x, y: b.op("abs", x), lambda x, y: np.abs(x)),
    "float": (lambda b, x, y: b.op("cast", x, dtype=F64), lambda x, y: x.astype(np.float64)),
    "other integers": (lambda b, x, y: b.op("cast", x, dtype=SI64 if x.type.dtype is SI32 else SI32),
                       lambda x, y: x.astype(np.int64) if x.itemsize == 4 else np.clip(x, -(2**31), 2**31 - 1).astype(np.int32)),
    "div by 3": (lambda b, x, y: b.op("div", x, b.op("broadcast_to", like(x, 3), result_shape=x.type.shape)),
                 lambda x, y: np.array([int(abs(int(v)) // 3) * (-1 if v < 0 else 1) for v in x], x.dtype)),
    **{k: (lambda b, x, y, k=k: b.op("select", b.op(f"compare_{k}", x, y), x, y), lambda x, y, f=f: np.where(f(x, y), x, y))
       for k, f in COMPARED.items()},
}  # fmt: skip


def like(x: Any, n: int) -> Literal:
    """A number of the dtype of `x`."""
    return to_literal(np.array(n, numpy_dtype(x.type.dtype)), tensor(x.type.dtype))


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("dtype", [SI32, SI64])
def test_integers_at_the_ends_of_their_range(name: str, dtype: DType) -> None:
    build, want = FOUND[name]
    ends = [0, 1, -1, 2, -2, 3, 7, -8, dtype.max, dtype.min, dtype.max - 1, dtype.min + 1, dtype.max // 2, dtype.min // 2 - 1]
    x, y = (a.reshape(-1) for a in np.meshgrid(*[np.array(ends, numpy_dtype(dtype))] * 2))
    made, b = single_function(load_dialect("ptir"))
    b.results(build(b, b.param(tensor(dtype, x.shape), "x"), b.param(tensor(dtype, x.shape), "y")))
    after, diagnostics = to_mind(made)
    assert after is not None, [d.message for d in diagnostics]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(after, [x, y])[0], want(x, y))


@pytest.mark.parametrize("start", [(0, 0), (4, 2), (-3, 1), (2**31 - 1, -(2**31)), (1, 1)])
@pytest.mark.parametrize("index", [SI32, SI64])
@pytest.mark.parametrize("dtype", [F32, SI32])
def test_windows_at_places_that_data_gives(dtype: DType, index: DType, start: tuple[int, int]) -> None:
    """A start that is out of bounds is moved inside; infinities and NaNs stay what they are."""
    made, b = single_function(load_dialect("ptir"))
    shape = (5, 3)
    x, u, s = (
        b.param(tensor(d, dims), name) for d, dims, name in ((dtype, shape, "x"), (dtype, (2, 2), "u"), (index, (2,), "s"))
    )
    b.results(b.op("dynamic_slice", x, s, sizes=(2, 2)), b.op("dynamic_update_slice", x, u, s, sizes=(2, 2)))
    after, diagnostics = to_mind(made)
    assert after is not None, [d.message for d in diagnostics]
    data = np.arange(15).reshape(shape).astype(numpy_dtype(dtype))
    if dtype is F32:
        data[0, 0], data[1, 1], data[4, 2] = np.inf, np.nan, -np.inf
    row, column = min(max(start[0], 0), 3), min(max(start[1], 0), 1)
    new = (data[3:, :2] + 100).astype(data.dtype)
    written = data.copy()
    written[row : row + 2, column : column + 2] = new
    with np.errstate(all="ignore"):
        found = run(after, [data, new, np.array(start, numpy_dtype(index))])
    np.testing.assert_array_equal(found[0], data[row : row + 2, column : column + 2])
    np.testing.assert_array_equal(found[1], written)

"""What kernels take at the edges: odd and empty sizes, NaN and infinities, operands that are not aligned or not contiguous."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import bfloat16

import ptir_tools as ptir
from ptir_tools.engines import native

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")

SIZES = (0, 1, 3, 7, 8, 15, 17, 31, 33, 63, 65, 127, 129, 257)
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": bfloat16}
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, 3.0e38, -65504.0)


def ways(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same array: as it is, one byte off its alignment, with gaps between elements, and transposed in memory."""
    raw = np.zeros(x.nbytes + 1, np.uint8)
    unaligned = raw[1 : 1 + x.nbytes].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    reversed_ = np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    return {"plain": x, "unaligned": unaligned, "strided": wide[..., ::2], "reversed": reversed_, "turned": np.asfortranarray(x)}


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: type, special: bool) -> np.ndarray:
    """Small numbers, some of them special."""
    x = rng.standard_normal(shape)
    if special and x.size:
        x.reshape(-1)[rng.integers(0, x.size, max(x.size // 5, 1))] = rng.choice(SPECIAL)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def outputs(text: str, *inputs: np.ndarray) -> np.ndarray:
    """What the native engine makes of them, in float64."""
    (made,) = ptir.run(ptir.read(text), list(inputs), engine="native").values()
    return made.astype(np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("special", [False, True])
def test_a_chain_and_a_reduction(dtype: str, n: int, special: bool) -> None:
    """`max(max(x, -x) - x)` along rows: exact in every dtype, NaN comes through."""
    t, r = f"tensor<{dtype}, 3x{n}>", f"tensor<{dtype}, 3>"
    text = (
        f"func @f(%x: {t}) -> {r} {{\n  %a = neg(%x) -> {t}\n  %b = maximum(%x, %a) -> {t}\n"
        f"  %c = minimum(%b, %x) -> {t}\n  %d = reduce_max(%c) axes[1] -> {r}\n  return %d\n}}\n"
    )
    x = drawn(np.random.default_rng(n), (3, n), DTYPES[dtype], special)
    wide = x.astype(np.float64)
    want = np.minimum(np.maximum(wide, -wide), wide).max(axis=1, initial=-np.inf)
    for name, given in ways(x).items():
        np.testing.assert_array_equal(outputs(text, given), want, err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 5), (3, 0, 5), (1, 1, 1), (1, 17, 33), (33, 65, 1), (7, 13, 19), (65, 129, 33)])
def test_a_product(dtype: str, m: int, k: int, n: int) -> None:
    """Small whole numbers, whose sums of products every accumulator holds exactly."""
    a, b, c = (f"tensor<{dtype}, {s}>" for s in (f"{m}x{k}", f"{k}x{n}", f"{m}x{n}"))
    dot = f"%c = dot_general(%a, %b) contract_lhs[1] contract_rhs[0] -> {c}"
    text = f"func @f(%a: {a}, %b: {b}) -> {c} {{\n  {dot}\n  return %c\n}}\n"
    rng = np.random.default_rng(k)
    x, y = (rng.integers(-1, 2, s).astype(DTYPES[dtype]) for s in ((m, k), (k, n)))
    want = (x.astype(np.float64) @ y.astype(np.float64)).astype(DTYPES[dtype]).astype(np.float64)
    for (name, left), right in zip(ways(x).items(), reversed(ways(y).values()), strict=True):
        np.testing.assert_array_equal(outputs(text, left, right), want, err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("row", "contracted", "shape"),
    [("3x16", "contract_lhs[1] contract_rhs[0]", "3x1"), ("3x1", "contract_lhs[1] contract_rhs[2]", "3x16")],
)
def test_rows_by_matrices_with_an_axis_of_one_element(dtype: str, row: str, contracted: str, shape: str) -> None:
    """The stack is the axis that varies fastest, and the stride of an axis of one element says nothing."""
    x, m, c = (f"tensor<{dtype}, {s}>" for s in (row, "16x3x1", shape))
    dot = f"dot_general(%x, %m) batch_lhs[0] batch_rhs[1] {contracted}"
    text = f"func @f(%x: {x}, %m: {m}) -> {c} {{\n  %c = {dot} -> {c}\n  return %c\n}}\n"
    rng = np.random.default_rng(0)
    given = [rng.integers(-2, 3, [int(n) for n in s.split("x")]).astype(DTYPES[dtype]) for s in (row, "16x3x1")]
    want = ptir.run(ptir.read(text), given, engine="reference")["c"].astype(np.float64)
    np.testing.assert_array_equal(outputs(text, *given), want)


EMPTY = [(0, 1, 3, 1), (0, 1, 3, 2), (0, 2, 3, 1), (0, 1, 0, 400), (0, 40, 64, 64), (2, 64, 0, 64), (3, 0, 4, 64), (2, 1, 4, 0)]


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "m", "k", "n"), EMPTY)
def test_a_stack_of_products_of_nothing(engine: str, dtype: str, batch: int, m: int, k: int, n: int) -> None:
    """An operand that may fail is computed even where no element of the result depends on it."""
    a, b, c = (f"tensor<{dtype}, {batch}x{s}>" for s in (f"{m}x{k}", f"{k}x{n}", f"{m}x{n}"))
    scatter = "scatter_add(%a, %i, %a) update_window_dims[0, 1, 2] scatter_dims_to_operand_dims[0] index_vector_dim[0]"
    text = (
        f"func @f(%a: {a}, %b: {b}, %i: tensor<si32, 1>) -> {c} {{\n  %s = {scatter} -> {a}\n"
        f"  %c = dot_general(%s, %b) batch[0] contract_lhs[2] contract_rhs[1] -> {c}\n  return %c\n}}\n"
    )
    x, y = (np.ones(s, DTYPES[dtype]) for s in ((batch, m, k), (batch, k, n)))
    made = ptir.run(ptir.read(text), [x, y, np.zeros(1, np.int32)], engine=engine)["c"]
    np.testing.assert_array_equal(made.astype(np.float64), np.full((batch, m, n), 2.0 * k))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_transpose_of_odd_sizes(dtype: str, n: int) -> None:
    t, r = f"tensor<{dtype}, 5x{n}x3>", f"tensor<{dtype}, 3x5x{n}>"
    text = f"func @f(%x: {t}) -> {r} {{\n  %y = transpose(%x) perm[2, 0, 1] -> {r}\n  return %y\n}}\n"
    x = drawn(np.random.default_rng(n), (5, n, 3), DTYPES[dtype], True)
    for name, given in ways(x).items():
        np.testing.assert_array_equal(outputs(text, given), x.astype(np.float64).transpose(2, 0, 1), err_msg=name)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("columns", [1, 63, 64, 130, 5000])
def test_a_tile_program_on_an_operand_that_is_repeated(rows: int, columns: int) -> None:
    """Strides of 0 along rows, columns or both: no element is read that is not there."""
    lib = native.kernels()
    code = bytes(b for name, r in (("on_elements", 0), ("load", 0), ("reduce_sum", 1)) for b in (lib.OPS.index(name), r, 0))
    kinds = bytes([lib.FULL, lib.ROWS])
    room = np.empty(lib.tile_floats(kinds, rows, columns, True), np.float32)
    for x in (np.float32(2), np.arange(rows, dtype=np.float32)[:, None], np.arange(columns, dtype=np.float32)):
        given, out = np.broadcast_to(x, (rows, columns)), np.full((rows, 1), np.nan, np.float32)
        lib.tiles(code, kinds, (given, out), 1, rows, columns, True, room)
        np.testing.assert_array_equal(out[:, 0], given.astype(np.float64).sum(axis=1))


@pytest.mark.parametrize("indices", [(), (0,), (1,), (2, 3)])
@pytest.mark.parametrize("rest", [(), (1,), (9,)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_by_number(dtype: str, rest: tuple[int, ...], indices: tuple[int, ...]) -> None:
    """One number of rank 0 out of a vector gives an array of rank 0."""
    x = drawn(np.random.default_rng(1), (5, *rest), DTYPES[dtype], True)
    where = np.random.default_rng(2).integers(0, 5, indices).astype(np.int32)

    def tensor(t: str, shape: tuple[int, ...]) -> str:
        return f"tensor<{t}, {'x'.join(map(str, shape))}>" if shape else f"tensor<{t}>"

    table, numbers, rows = tensor(dtype, x.shape), tensor("si32", indices), tensor(dtype, (*indices, *rest))
    text = f"func @f(%x: {table}, %i: {numbers}) -> {rows} {{\n  %y = take(%x, %i) -> {rows}\n  return %y\n}}\n"
    np.testing.assert_array_equal(outputs(text, x, where), x.astype(np.float64)[where])

"""`ptir.trace`: the program of a function of NumPy gives NumPy's numbers, shapes and dtypes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.bridges.numpy_array import FORMULAS, FUNCTIONS, OPS, results_of

RNG = np.random.default_rng(5)
F = RNG.uniform(-2, 2, (3, 4)).astype(np.float32)
G = RNG.uniform(-2, 2, (4, 5)).astype(np.float32)
V = RNG.uniform(0.5, 2, 4).astype(np.float32)
D = RNG.uniform(-2, 2, (3, 4))
I = RNG.integers(-9, 9, (3, 4)).astype(np.int32)  # noqa: E741
T = RNG.uniform(-1, 1, (2, 3, 4)).astype(np.float32)

CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "operators": (lambda x, v: (2 * x + v - x / v, -x, abs(x) ** 2), (F, V)),
    "promotion": (lambda x, i, d: (x + i, i / 2, i * 2, d + x, i // 4, i % 4), (F, I, D)),
    "compared": (lambda x, v: (x < v, x >= 0, (x > 0) & (x < 1), ~(x == v), np.isnan(x)), (F, V)),
    "unary": (lambda x: (np.exp(x), np.sqrt(np.abs(x)), np.sin(x), np.floor(x), np.sign(x), np.log1p(np.abs(x))), (F,)),
    "of_integers": (lambda i: (np.sqrt(abs(i)), np.exp(i), i.sum(), np.mean(i, axis=0), np.maximum(i, 0)), (I,)),
    "reduced": (
        lambda x: (x.sum(), x.sum(axis=1), x.mean(axis=-1, keepdims=True), np.max(x, axis=0), np.var(x, axis=1), np.std(x)),
        (F,),
    ),
    "truths": (lambda x: (np.any(x > 1, axis=0), np.all(x > -3), np.argmax(x, axis=1), np.argmin(x)), (F,)),
    "shapes": (
        lambda x, t: (x.T, t.transpose(2, 0, 1), np.reshape(x, (2, 6)), x.reshape(-1), np.swapaxes(t, 0, 2), np.squeeze(x[:1])),
        (F, T),
    ),
    "indexed": (lambda t: (t[0], t[:, 1:], t[..., ::2], t[-1, :, None], t[:, ::-1], t[1, 2, 3], t[[1, 0, -1]]), (T,)),
    "products": (lambda x, g, v, t: (x @ g, x @ v, v @ g, v @ v, t @ g, np.dot(x, g)), (F, G, V, T)),
    "einsum": (lambda x, g, t: (np.einsum("ij,jk->ki", x, g), np.einsum("bij,ij->b", t, x), np.einsum("ij,jk", x, g)), (F, G, T)),
    "einsum_of_stacks": (
        lambda x, g, t: (np.einsum("bij,jk->kbi", t, g), np.einsum("bij,bij->b", t, t), np.einsum("bij,ij->", t, x)),
        (F, G, T),
    ),
    "taken": (
        lambda x, t: (np.take(t, [0, -1], axis=1), np.take(t, np.array([[0, -1], [2, 3]]), axis=2), np.take(x, [3, 5])),
        (F, T),
    ),
    "norms": (
        lambda x, t: (np.linalg.norm(x), np.linalg.norm(t, axis=1, keepdims=True), np.linalg.norm(x, "fro"), np.outer(x, x[0])),
        (F, T),
    ),
    "running": (lambda x, i: (np.cumsum(x), np.cumsum(i, axis=1), np.cumprod(x, axis=-1), np.cumsum(x > 0)), (F, I)),
    "sorted": (lambda x, t: (np.sort(x), np.sort(t, axis=0), np.sort(x, axis=None), np.tril(t, 1), np.triu(x)), (F, T)),
    "joined": (lambda x, i: (np.concatenate([x, x * 2], axis=1), np.stack([x, x]), np.concatenate([x, i])), (F, I)),
    "chosen": (lambda x, v: (np.where(x > 0, x, v), np.where(x > 0, x, 0.0), np.clip(x, -1, 1)), (F, V)),
    "constants": (lambda x: (x + np.arange(4), x * np.float64(2), np.ones_like(x) + x, x + np.linspace(0, 1, 4)), (F,)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_traced_function_is_that_of_numpy(name: str) -> None:
    function, given = CASES[name]
    program = ptir.trace(function, *given)
    expected = [np.asarray(x) for x in function(*given)]
    found = list(ptir.run(program, list(given)).values())
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5 if b.dtype != np.float64 else 1e-12, atol=1e-6)


KINDS = ("float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool", "complex64")
DIVIDING = ("floor_divide", "remainder", "fmod", "divide", "divmod")
UNIVERSAL = sorted({*OPS, *FORMULAS})


def _drawn(name: str, kind: str, seed: int) -> np.ndarray:
    """Elements of a dtype, extremes among them, that the function takes."""
    rng, dtype = np.random.default_rng(seed), np.dtype(kind)
    if kind == "bool":
        divides = seed == 1 and name in DIVIDING  # an integer divided by 0 is an error in PTIR
        return np.ones((3, 5), bool) if divides else rng.integers(0, 2, (3, 5)).astype(bool)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        x = rng.integers(ends.min, ends.max, (3, 5), dtype, endpoint=True)
        x[0, :3] = ends.min, ends.max, 0
        second = seed == 1
        if second and ("shift" in name or name == "power"):
            return (x.view(f"u{dtype.itemsize}") % 6).astype(dtype)
        return np.where(x == 0, dtype.type(3), x) if second and name in DIVIDING else x
    x = (rng.standard_normal((3, 5)) * 3).astype(dtype)
    if dtype.kind == "f":
        x[0, :4] = 0.0, -0.0, np.inf, np.nan
    return x


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", UNIVERSAL)
def test_a_universal_function_is_that_of_numpy_or_refused(name: str, kind: str) -> None:
    function = getattr(np, name)
    given = [_drawn(name, kind, seed) for seed in range(function.nin)]
    try:
        expected = function(*given)
    except TypeError:
        return  # NumPy has none
    try:
        program = ptir.trace(lambda *xs: function(*xs), *given)
    except (ptir.UsageError, ptir.Violation):
        assert kind not in ("float32", "float64", "int32") or (kind, name) in REFUSED
        return
    for found, wanted in zip(ptir.run(program, given).values(), results_of(expected), strict=True):
        assert found.dtype == wanted.dtype
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64 if wanted.dtype.kind == "f" else wanted.dtype
        close = {"float16": 2e-3, "float32": 1e-5, "complex64": 1e-4}.get(str(wanted.dtype), 1e-12)
        np.testing.assert_allclose(found.astype(wide), wanted.astype(wide), rtol=close, atol=1e-6)


REFUSED = {("int32", "reciprocal"), ("int32", "floor"), ("int32", "ceil"), ("int32", "isfinite")}


def test_what_numpy_means_by_dot_and_by_an_index() -> None:
    (scaled,) = ptir.run(ptir.trace(np.dot, F, np.float32(2)), [F, np.float32(2)]).values()
    np.testing.assert_array_equal(scaled, 2 * F)
    with pytest.raises(ptir.UsageError, match="stack of matrices"):
        ptir.trace(np.dot, T, np.swapaxes(T, 1, 2))
    with pytest.raises(IndexError):
        ptir.trace(lambda x: x[3], F)


def test_a_contraction_is_one_product() -> None:
    program = ptir.trace(lambda x, g: np.einsum("ij,jk->ik", x, g), F, G)
    assert [op.defn.short for op in program.main.body] == ["dot_general"]


def test_a_function_that_is_not_recorded_has_its_full_name() -> None:
    with pytest.raises(ptir.UsageError, match=r"np\.linalg\.lstsq is not recorded here: the shape of its residuals") as error:
        ptir.trace(lambda x: np.linalg.lstsq(x, x), F[:3, :3])
    assert error.value.help == "np.linalg.pinv(a) @ b"


def test_inputs_have_the_names_of_parameters() -> None:
    def layer(x: Any, weight: Any) -> Any:
        return np.tanh(x @ weight)

    program = ptir.trace(layer, F, G)
    assert program.entry == "layer" and [p.name for p in program.main.params] == ["x", "weight"]
    assert "tanh" in ptir.write(program)
    assert [p.name for p in ptir.trace(lambda *xs: xs[0] + xs[1], F, F).main.params] == ["arg0", "arg1"]


def test_what_is_not_recorded_is_refused() -> None:
    with pytest.raises(TypeError, match=r"choose with np\.where"):
        ptir.trace(lambda x: x if x.sum() > 0 else -x, F)
    for function in (np.unique, np.nonzero, lambda x: np.subtract.reduce(x), lambda x: x[x > 0], lambda x: x.item(), np.asarray):
        with pytest.raises(ptir.UsageError, match="not recorded"):
            ptir.trace(lambda x, f=function: f(x), F)


# ---- Every function that is recorded

SQUARE = RNG.uniform(-1, 1, (3, 3)).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)
GIVEN = {
    "f": F, "g": F[::-1] + 1, "s": SQUARE, "p": SQUARE @ SQUARE.T, "v": V, "i": I, "c": (F + 1j * F[::-1]).astype(np.complex64),
    "t": T, "n": np.where(F > 1, np.float32(np.nan), F), "st": np.stack([SQUARE, SQUARE.T + 1]),
    "cs": (SQUARE + 1j * SQUARE.T).astype(np.complex128), "k": np.abs(I) % 3, "b": F > 0, "o": np.float32(2),
}  # fmt: skip
EXPRESSIONS = Path(__file__).with_name("numpy_expressions.txt").read_text("utf-8").splitlines()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_that_of_numpy(text: str) -> None:
    code = compile(text, "<expression>", "eval")
    names = sorted(set(code.co_names) & {*GIVEN})

    def function(*xs: Any) -> Any:
        made = eval(code, {"np": np, **dict(zip(names, xs, strict=True))})
        return made if isinstance(made, (tuple, list)) else (made,)

    given = [GIVEN[n] for n in names]
    found = ptir.run(ptir.trace(function, *given), given).values()
    for x, y in zip(found, map(np.asarray, function(*given)), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(
            x, y, rtol={"float16": 2e-3, "float32": 1e-4, "complex64": 1e-4}.get(str(y.dtype), 1e-9), atol=1e-5
        )


def test_every_function_is_in_an_expression() -> None:
    text = "\n".join([*EXPRESSIONS, Path(__file__).read_text("utf-8")])
    assert not [n for n in FUNCTIONS if f"np.{n}(" not in text and f".{n}(" not in text]


@pytest.mark.parametrize("a", [SQUARE, F, F.T, np.stack([F, F + 1]), SQUARE.astype(np.complex128) * (1 + 1j)], ids=str)
def test_factors_are_those_of_the_matrix(a: np.ndarray) -> None:
    def factors(x: Any) -> Any:
        return (*np.linalg.qr(x), *np.linalg.svd(x), *np.linalg.svd(x, full_matrices=False), np.linalg.qr(x, "r"))

    q, r, u, s, vt, u1, s1, vt1, r1 = ptir.run(ptir.trace(factors, a), [a]).values()
    expected = factors(a)
    assert [x.shape for x in (q, r, u, s, vt, u1, s1, vt1)] == [x.shape for x in expected[:8]]
    np.testing.assert_allclose(s, expected[3], rtol=1e-4)
    np.testing.assert_allclose(r, expected[1], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(r1, r, atol=1e-5)
    for made in (q @ r, (u1 * s1[..., None, :]) @ vt1, u[..., :, : s.shape[-1]] * s[..., None, :] @ vt[..., : s.shape[-1], :]):
        np.testing.assert_allclose(made, a, rtol=1e-3, atol=1e-4)
    for x in (q, u, np.conjugate(np.swapaxes(vt, -1, -2))):
        unit = np.conjugate(np.swapaxes(x, -1, -2)) @ x
        np.testing.assert_allclose(unit, np.broadcast_to(np.eye(unit.shape[-1]), unit.shape), atol=1e-4)


def test_eigenvalues_of_a_complex_matrix() -> None:
    a = GIVEN["cs"]
    (found,) = ptir.run(ptir.trace(lambda x: np.linalg.eigvals(x), a), [a]).values()
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(np.linalg.eigvals(a)), rtol=1e-9)


def test_the_manual_lists_what_is_recorded() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "builder.md").read_text("utf-8")
    table = manual.partition("| of NumPy |")[2].partition("\n\n")[0]
    listed = {w for cell in re.findall("`([^`]*)`", table) for w in cell.split()}
    assert listed == {*FUNCTIONS, *OPS, *FORMULAS}


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigenvectors_are_those_of_the_matrix(uplo: str) -> None:
    a = GIVEN["p"] @ np.diag(np.float32([1, 2, 5])) @ GIVEN["p"].T
    values, vectors = ptir.run(ptir.trace(lambda x: np.linalg.eigh(x, uplo), a), [a]).values()
    np.testing.assert_allclose(values, np.linalg.eigh(a, uplo)[0], rtol=1e-4)
    np.testing.assert_allclose(a @ vectors, vectors * values, rtol=1e-3, atol=1e-1)


def test_axes_are_moved_as_by_numpy() -> None:
    """All axes and places of an array of three axes."""

    def moved(t: Any) -> Any:
        pairs = [*permutations(range(3), 2)]
        made = [np.moveaxis(t, source, target) for source in pairs for target in pairs]
        made += [np.rollaxis(t, axis, start) for axis in range(-3, 3) for start in range(-3, 4)]
        made += [f for axes in pairs for f in (np.swapaxes(t, *axes), *(np.rot90(t, k, axes) for k in range(-2, 4)))]
        made += [f for axis in (*range(-3, 3), *pairs) for f in (np.flip(t, axis), np.roll(t, 5, axis), np.expand_dims(t, axis))]
        return (*made, np.roll(t, (1, -2), (0, 2)), np.roll(t, (3, 1), (1, 1)), *(np.rollaxis(t, 1, -k) for k in range(3)))

    for found, wanted in zip(ptir.run(ptir.trace(moved, T), [T]).values(), moved(T), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("seed", range(30))
def test_an_index_of_any_parts_is_that_of_numpy(seed: int) -> None:
    """Numbers, slices, None, ... and arrays, some of them traced, in any places; an index outside of any axis is an error."""
    rng, shape = np.random.default_rng(seed), (3, 4, 2, 5)
    x = rng.standard_normal(shape).astype(np.float32)
    index, given = list[Any](), list[np.ndarray]()
    left, right = rng.integers(1, 3), rng.integers(3)  # of the axes, before and after `...`
    for k, n in enumerate(shape):
        if left <= k < 4 - right:
            index += [...] if k == left else []
            continue
        row, column = rng.integers(-n, n, 3), rng.integers(-n, n, (2, 1))
        part = [int(row[0]), np.s_[::-1], row, column, *[f"traced {len(given)}"] * 3][rng.integers(7)]
        given += [np.append(row, n)] if isinstance(part, str) else []
        index += [part, None][: 1 + (rng.integers(6) == 0)]

    def part_of(x: Any, *rows: Any) -> Any:
        return (x[tuple(rows[int(i[-1])] if isinstance(i, str) else i for i in index)],)

    rows = [row[:3] for row in given]
    program = ptir.trace(part_of, x, *rows)
    (found,) = ptir.run(program, [x, *rows]).values()
    np.testing.assert_array_equal(found, part_of(x, *rows)[0])
    for k, row in enumerate(given):
        with pytest.raises(ptir.Rejected, match="outside"):
            ptir.run(program, [x, *rows[:k], row[1:], *rows[k + 1 :]])


# ---- In place


def test_what_changes_in_place_is_that_of_numpy() -> None:
    def changed(x: Any, i: Any, m: Any) -> Any:
        y = np.zeros_like(x)
        y[1:] = x[:-1]
        y[0, ::2] = 7
        y += x
        same = y
        y *= 2
        z = x.copy()
        z[m] = 0
        z[i, 1] = [5, 6]
        z[..., -1] -= 1
        w = x.astype(np.float32)
        w /= 2
        np.add(w, 1, out=w)
        return same, y, z, x, w

    given = (F, np.array([2, -3]), F > 1)
    found = ptir.run(ptir.trace(changed, *given), list(given)).values()
    for a, b in zip(found, changed(*(x.copy() for x in given)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_view_that_changes_changes_the_array() -> None:
    def changed(x: Any, t: Any) -> Any:
        row, turned = x[0], t.T
        row += 1
        turned[2, :, 0] = 3
        np.ravel(turned)
        x.reshape(2, 6)[1] *= 2
        x[1:][:, ::2] -= 5
        last = x[:, -1]
        last /= 2
        number = x[0, 0]
        number += 100
        return x, t, last, number

    given = (F, T)
    found = ptir.run(ptir.trace(changed, *given), list(given)).values()
    for a, b in zip(found, changed(*(x.copy() for x in given)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


PARTS = [
    0,
    -1,
    np.s_[1:],
    np.s_[:-1],
    np.s_[:, 1],
    np.s_[:, ::-1],
    np.s_[::2, :2],
    np.s_[1:, 2:],
    np.s_[..., None, 0],
    np.s_[:, -2],
]


@pytest.mark.parametrize("seed", range(12))
def test_parts_of_an_array_are_assigned_to_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in PARTS for j in PARTS if np.shape(F[j]) == np.shape(F[i])]
    steps = [(*pairs[rng.integers(len(pairs))], rng.integers(3)) for _ in range(5)]

    def changed(x: Any) -> Any:
        for i, j, how in steps:
            if how == 0:
                x[i] = x[j]
            elif how == 1:
                x[i] += x[j]
            else:
                part = x[i]
                part *= 2 - x[j]
        return (x,)

    (found,) = ptir.run(ptir.trace(changed, F), [F]).values()
    np.testing.assert_allclose(found, changed(F.copy())[0], rtol=1e-4)


def test_what_is_broadcast_is_not_changed() -> None:
    with pytest.raises(ptir.UsageError, match="broadcast is changed"):
        ptir.trace(lambda x: _added(np.broadcast_to(x, (2, 3, 4))), F)


def test_a_view_of_a_changed_array_is_not_read() -> None:
    def stale(x: Any) -> Any:
        row = x[0]
        x += 1
        return row

    with pytest.raises(ptir.UsageError, match="changed in place after"):
        ptir.trace(stale, F)


def _added(x: Any) -> Any:
    x += 1
    return x


@pytest.mark.parametrize(("function", "said"), [
    (lambda x: x[3], "index"), (lambda x: x[[3]], "outside of axis 0"), (lambda x: x[0, 0, 0], "indices for 2 axes"),
    (lambda x: x[[0], [0], [0]], "3 indices"), (lambda x: np.linalg.inv(x), "square"),
    (lambda x: np.sum(x, axis=2), "out of bounds"),
])  # fmt: skip
def test_what_numpy_refuses_is_refused(function: Callable[..., Any], said: str) -> None:
    with pytest.raises((IndexError, ValueError), match=said):
        ptir.trace(function, F)


@pytest.mark.parametrize(("function", "said", "instead"), [
    (lambda x: np.sum(x, out=np.zeros(4)), "`out` of np.sum is not", None),
    (lambda x: np.exp(x, where=x > 0), "`where` of np.exp is not", "np.where"),
    (lambda x: np.lexsort((x,)), "np.lexsort is not", "docs/builder.md"),
    (lambda x: np.isreal(x), "np.isreal is not", "np.real"),
    (lambda x: x.sort(), "attribute `sort`", "np.sort"),
    (lambda x: np.repeat(x, x), "by a traced array", None),
    (lambda x: np.linalg.eigvals(x @ x.T), "depends on values", "astype"),
])  # fmt: skip
def test_a_refusal_says_what_to_write(function: Callable[..., Any], said: str, instead: str | None) -> None:
    with pytest.raises(ptir.UsageError, match=said) as error:
        ptir.trace(function, F)
    assert instead is None or instead in str(error.value.help)


def test_an_example_of_text_is_refused() -> None:
    with pytest.raises(ptir.UsageError, match="dtype <U1"):
        ptir.trace(lambda x: x, np.array(["a"]))


def test_a_run_that_fails_names_the_line_of_the_function() -> None:
    def divided(x: Any, i: Any) -> Any:
        return x // i

    program = ptir.trace(divided, I, I)
    with pytest.raises(ptir.Rejected, match=rf"test_numpy_trace\.py:{divided.__code__.co_firstlineno + 1}:"):
        ptir.run(program, [I, I * 0])


# ---- Branches and loops

NEAR, NO = np.array([0.5, 2, 9], np.float32), np.array(False)
CONTROLLED: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "while": (lambda x: ptir.while_([0, x], lambda i, y: (y.max() > 0.1) & (i < 40), lambda i, y: (i + 1, y / 2)), (NEAR,)),
    "while_of_one": (lambda x: ptir.while_([x], lambda y: y.max() < 100, lambda y: y * y + 1), (NEAR,)),
    "never": (lambda x: ptir.while_([x], lambda y: y.max() < 0, lambda y: y + 1), (NEAR,)),
    "scan": (lambda x: ptir.scan([np.zeros(4, np.float32)], [x], lambda t, row: (t + row, t * 2, row.sum())), (F,)),
    "scan_of_two": (lambda x, i: ptir.scan([1, x[0]], [x, i], lambda n, t, a, b: (n + 1, t + a, b * n)), (F, I)),
    "outputs_only": (lambda x: ptir.scan([], [x], lambda row: (row.max(),)), (F,)),
    "cond": (lambda x: ptir.cond(x.sum() > 0, [x], lambda v: v * 2, lambda v: -v), (F,)),
    "cond_of_an_input": (lambda b, x: ptir.cond(b, [x, 3], lambda v, n: (v, v + n), lambda v, n: (-v, v * n)), (NO, F)),
    "nested": (
        lambda x: ptir.scan([np.float32(0)], [x],
            lambda t, row: ptir.cond(row.sum() > t, [t, row], lambda t, r: (t + r.sum(),), lambda t, r: (t,))),
        (F,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTROLLED)
def test_branches_and_loops_give_the_numbers_of_the_function_itself(name: str) -> None:
    function, given = CONTROLLED[name]
    forms: list[bool] = []

    @wraps(function)
    def called(*xs: Any) -> Any:
        made = function(*xs)
        forms.append(isinstance(made, tuple))
        return made

    program = ptir.trace(called, *given)
    assert {"ptir.while", "ptir.scan", "ptir.cond"} & {op.name for op in program.main.body}
    made = called(*given)
    expected = made if isinstance(made, tuple) else (made,)
    assert forms[0] is forms[1]  # one value, or a tuple of values
    found = ptir.run(program, list(given)).values()
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == np.asarray(y).dtype and x.shape == np.shape(y)
        np.testing.assert_allclose(x, y, rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            lambda x: ptir.while_([x], lambda y: y.max() > 1, lambda y: y.astype(np.float64)),
            r"carry 0 is float32\[3\], and float64",
        ),
        (lambda x: ptir.while_([x], lambda y: y.max() > 1, lambda y: (y, y)), "gives 2 values for a carry of 1"),
        (lambda x: ptir.while_([x], lambda y: y > 1, lambda y: y / 2), r"an array of shape \(3,\)"),
        (lambda x: ptir.cond(x[0] > 1, [x], lambda y: y, lambda y: y[:2]), r"`on_true` gives float32\[3\], and `on_false`"),
        (lambda x: ptir.cond(x[0] > 1, [], lambda: 1, lambda: 2), "needs an argument"),
        (lambda x: ptir.scan([x], [np.zeros((2, 3)), np.zeros((3, 3))], lambda t, a, b: (t,)), "one length"),
        (lambda x: ptir.scan([x], [np.float32(1)], lambda t, a: (t,)), "leading axis"),
    ],
)
def test_a_loop_that_cannot_be_traced_is_refused_in_words(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(ptir.UsageError, match=said):
        ptir.trace(function, NEAR)


def test_a_region_sees_its_arguments_only() -> None:
    with pytest.raises(ptir.Violation, match="pass the value in"):
        ptir.trace(lambda x, y: ptir.while_([x], lambda a: a.max() > 1, lambda a: a / y), NEAR, NEAR)

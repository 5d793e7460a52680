"""`ptir.trace`: the program of a function of NumPy gives NumPy's numbers, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.bridges import numpy_trace

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
DIVIDING = ("floor_divide", "remainder", "fmod", "divide")
UNIVERSAL = sorted({*numpy_trace._OPS, *numpy_trace._FORMULAS})


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
    (found,) = ptir.run(program, given).values()
    assert found.dtype == expected.dtype
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64 if expected.dtype.kind == "f" else expected.dtype
    close = {"float16": 2e-3, "float32": 1e-5, "complex64": 1e-4}.get(str(expected.dtype), 1e-12)
    np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=close, atol=1e-6)


REFUSED = {("int32", "reciprocal"), ("int32", "floor"), ("int32", "ceil"), ("int32", "isfinite")}


def test_what_numpy_means_by_dot_and_by_an_index() -> None:
    (scaled,) = ptir.run(ptir.trace(np.dot, F, np.float32(2)), [F, np.float32(2)]).values()
    np.testing.assert_array_equal(scaled, 2 * F)
    with pytest.raises(ptir.UsageError, match="stack of matrices"):
        ptir.trace(np.dot, T, np.swapaxes(T, 1, 2))
    with pytest.raises(IndexError):
        ptir.trace(lambda x: x[3], F)
    with pytest.raises(ptir.UsageError, match="complex"):
        ptir.trace(np.var, F.astype(np.complex64))


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
    for function in (np.linalg.svd, np.sort, lambda x: np.add.reduce(x), lambda x: np.einsum("ii", x)):
        with pytest.raises(ptir.UsageError, match="not recorded"):
            ptir.trace(function, F)
    with pytest.raises(TypeError, match="not recorded"):
        ptir.trace(lambda x: np.asarray(x), F)

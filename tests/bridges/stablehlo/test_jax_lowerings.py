"""Functions of JAX, read from their lowerings, compute what JAX computes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ptir_tools as ptir
from tests.suites.jax import CASES, X, Y, difference

QUICK = [
    "matmul",
    "attention",
    "sort",
    "at_multiply",
    "rope",
    "integers",
    "convolution",
    "max_pool_grad",
    "scan",
    "normal",
    "fft",
]


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES])
def test_a_function_computes_what_jax_computes(name: str) -> None:
    function, examples = CASES[name]
    wanted = [np.asarray(x) for x in jax.tree_util.tree_leaves(jax.jit(function)(*examples))]
    program = ptir.from_jax(function, *examples)
    for engine in ("numpy", "native"):
        found = ptir.run(program, [np.asarray(x) for x in examples], engine=engine).values()
        for x, y in zip(found, wanted, strict=True):
            assert difference(x, y) is None, engine


def test_inputs_are_called_as_parameters_and_leaves() -> None:
    def layer(params: dict[str, Any], x: Any) -> Any:
        return jnp.tanh(x @ params["dense"]["w"])

    program = ptir.from_jax(layer, {"dense": {"w": Y}}, jax.ShapeDtypeStruct(X.shape, X.dtype))
    assert [p.name for p in program.main.params] == ["params.dense.w", "x"]
    (found,) = ptir.run(program, {"x": X, "params.dense.w": Y}).values()
    assert difference(found, np.tanh(X @ Y)) is None


def test_a_jitted_function_keeps_its_options() -> None:
    function = jax.jit(lambda x, n: x * n, static_argnums=1)
    (found,) = ptir.run(ptir.from_jax(function, X, 3), [X]).values()
    assert difference(found, 3 * X) is None


def test_what_ptir_cannot_express_is_refused() -> None:
    with pytest.raises(ptir.Rejected, match="lapack_sgees_ffi"):
        ptir.from_jax(jax.scipy.linalg.schur, X @ X.T)
    with pytest.raises(ptir.Rejected, match="callback` calls a function of the process"):
        ptir.from_jax(lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x), X)


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_eigenvalues_and_singular_values(n: int, kind: type) -> None:
    """Against NumPy: graded, equal and zero values among them."""
    rng = np.random.default_rng(n)
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    for values in (10.0 ** -np.arange(n), np.where(np.arange(n) < n // 2, 2.0, 0.0), rng.standard_normal(n)):
        a = ((q * values) @ q.T).astype(kind)
        near = 20 * n * np.finfo(kind).eps * max(1e-30, np.abs(values).max())
        with jax.enable_x64(kind is np.float64):
            w, v = ptir.run(ptir.from_jax(lambda x: tuple(jnp.linalg.eigh(x)), a), [a]).values()
            u, s, vt = ptir.run(ptir.from_jax(lambda x: tuple(jnp.linalg.svd(x)), a), [a]).values()
        np.testing.assert_allclose(w, np.sort(values), atol=near)
        np.testing.assert_allclose(s, np.sort(np.abs(values))[::-1], atol=near)
        np.testing.assert_allclose(v * w @ v.T, a, atol=near)
        np.testing.assert_allclose(u * s @ vt, a, atol=near)
        for x in (u, v, vt):
            np.testing.assert_allclose(x @ x.T, np.eye(n), atol=20 * n * np.finfo(kind).eps)

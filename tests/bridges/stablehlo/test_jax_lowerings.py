"""Functions of JAX, read from their lowerings, compute what JAX computes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

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
    with pytest.raises(ptir.Rejected, match="lapack_sgeqp3_ffi"):
        ptir.from_jax(lambda x: jax.scipy.linalg.qr(x, pivoting=True), X)
    with pytest.raises(ptir.Rejected, match="real matrix in real blocks"):
        ptir.from_jax(jax.scipy.linalg.schur, X @ X.T)
    with pytest.raises(ptir.Rejected, match="callback` calls a function of the process"):
        ptir.from_jax(lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x), X)


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.complex64, np.complex128])
def test_eigenvalues_and_singular_values(n: int, kind: type) -> None:
    """Against NumPy: graded, equal and zero values among them."""
    rng = np.random.default_rng(n)
    noise = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    q = np.linalg.qr(noise if np.iscomplexobj(kind()) else noise.real)[0]
    for values in (10.0 ** -np.arange(n), np.where(np.arange(n) < n // 2, 2.0, 0.0), rng.standard_normal(n)):
        a = ((q * values) @ q.conj().T).astype(kind)
        near = 20 * n * np.finfo(kind).eps * max(1e-30, np.abs(values).max())
        with jax.enable_x64(kind in (np.float64, np.complex128)):
            w, v = ptir.run(ptir.from_jax(lambda x: tuple(jnp.linalg.eigh(x)), a), [a]).values()
            u, s, vt = ptir.run(ptir.from_jax(lambda x: tuple(jnp.linalg.svd(x)), a), [a]).values()
        np.testing.assert_allclose(w, np.sort(values), atol=near)
        np.testing.assert_allclose(s, np.sort(np.abs(values))[::-1], atol=near)
        np.testing.assert_allclose(v * w @ v.conj().T, a, atol=near)
        np.testing.assert_allclose(u * s @ vt, a, atol=near)
        for x in (u, v, vt):
            np.testing.assert_allclose(x @ x.conj().T, np.eye(n), atol=20 * n * np.finfo(kind).eps)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], kind: type) -> Any:
    """Normal numbers, also complex ones."""
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.iscomplexobj(kind()) else x).astype(kind)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.complex64])
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5), (1, 4), (4, 1)])
def test_singular_values_and_reflections_of_any_shape(shape: tuple[int, ...], kind: type, full: bool) -> None:
    rng = np.random.default_rng(len(shape))
    a = drawn(rng, shape, kind)
    k = min(shape[-2:])
    near = {"rtol": 0.0, "atol": 2e-5}
    u, s, vt = ptir.run(ptir.from_jax(lambda x: tuple(jnp.linalg.svd(x, full_matrices=full)), a), [a]).values()
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), **near)
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vt[..., :k, :], a, **near)
    mode = "complete" if full else "reduced"
    program = ptir.from_jax(lambda x: tuple(jnp.linalg.qr(x, mode=mode)), a)
    for engine in ("numpy", "native"):
        q, r = ptir.run(program, [a], engine=engine).values()
        np.testing.assert_allclose(q @ r, a, **near)
        np.testing.assert_allclose(r, np.asarray(jnp.linalg.qr(a, mode=mode)[1]), **near)
    for x in (u, vt.conj().swapaxes(-1, -2), q):
        np.testing.assert_allclose(x.conj().swapaxes(-1, -2) @ x, np.eye(x.shape[-1]) + 0 * x[..., :1, :1], **near)


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
@pytest.mark.parametrize("n", [1, 2, 6])
def test_hessenberg_forms(n: int, kind: type) -> None:
    """Of a matrix that is one already, too."""
    rng = np.random.default_rng(n)
    noise = drawn(rng, (n, n), kind)
    for a in (noise, np.triu(noise)):
        program = ptir.from_jax(lambda x: tuple(jax.scipy.linalg.hessenberg(x, calc_q=True)), a)
        for engine in ("numpy", "native"):
            h, q = ptir.run(program, [a], engine=engine).values()
            np.testing.assert_allclose(h, np.asarray(jax.scipy.linalg.hessenberg(a)), atol=1e-5)
            np.testing.assert_allclose(q @ h @ q.conj().T, a, atol=1e-5)
            assert not np.tril(h, -2).any()


@pytest.mark.parametrize("kind", [np.float32, np.complex64, np.float64])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_eigenvalues_of_any_matrix(n: int, kind: type) -> None:
    """By what the eigenvectors mean: cycles, nilpotent matrices and equal eigenvalues among them."""
    rng = np.random.default_rng(n)
    noise = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n)) * np.iscomplexobj(kind())
    for exact in (noise, np.roll(np.eye(n), 1, 0), np.triu(np.ones((n, n)), 1), np.diag(np.arange(n) // 2), np.zeros((n, n))):
        a = (exact if np.iscomplexobj(kind()) else exact.real).astype(kind)
        with jax.enable_x64(kind is np.float64):
            program = ptir.from_jax(lambda x: tuple(jnp.linalg.eig(x)), a)
        near = 20 * n * np.finfo(kind).eps * max(1.0, float(np.abs(a).max()))
        for engine in ("numpy", "native"):
            w, v = ptir.run(program, [a], engine=engine).values()
            assert w.dtype == v.dtype == np.result_type(kind, np.complex64)
            np.testing.assert_allclose(a @ v, v * w, atol=near)
            np.testing.assert_allclose(np.linalg.norm(v, axis=0), 1, atol=near)
            np.testing.assert_allclose([w.sum(), (w**2).sum()], [np.trace(a), np.trace(a @ a)], atol=20 * near)


@pytest.mark.parametrize("size", [1e25, 1e-25])
def test_no_square_of_an_element_leaves_the_range(size: float) -> None:
    a = (np.random.default_rng(4).standard_normal((6, 6)) * size).astype(np.float32)
    w, v = ptir.run(ptir.from_jax(lambda x: tuple(jnp.linalg.eig(x)), a), [a]).values()
    np.testing.assert_allclose(a / size @ v, v * (w / size), atol=1e-5)
    q, r = ptir.run(ptir.from_jax(lambda x: tuple(jnp.linalg.qr(x)), a), [a]).values()
    np.testing.assert_allclose(q @ (r / size), a / size, atol=1e-5)


def test_left_eigenvectors_and_schur_forms() -> None:
    a = (np.random.default_rng(3).standard_normal((2, 5, 5))).astype(np.float32)
    program = ptir.from_jax(lambda x: tuple(jax.lax.linalg.eig(x, compute_left_eigenvectors=True)), a)
    w, left, right = ptir.run(program, [a]).values()
    np.testing.assert_allclose(a @ right, right * w[:, None], atol=1e-5)
    np.testing.assert_allclose(left.conj().transpose(0, 2, 1) @ a, w[..., None] * left.conj().transpose(0, 2, 1), atol=1e-5)
    t, z = ptir.run(
        ptir.from_jax(lambda x: jax.scipy.linalg.schur(x, output="complex"), a[0] + 1j * a[1]), [a[0] + 1j * a[1]]
    ).values()
    np.testing.assert_allclose(z @ t @ z.conj().T, a[0] + 1j * a[1], atol=1e-5)
    assert not np.tril(t, -1).any()
    x = a[0] @ a[0].T + np.eye(5, dtype=np.float32)
    (root,) = ptir.run(ptir.from_jax(jax.scipy.linalg.sqrtm, x), [x]).values()
    np.testing.assert_allclose(root @ root, x, atol=1e-4)


@pytest.mark.parametrize("algorithm", [lax.RandomAlgorithm.RNG_PHILOX, lax.RandomAlgorithm.RNG_THREE_FRY])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (3, 4, 2), (0,)])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_random_bits_are_those_of_xla(algorithm: Any, shape: tuple[int, ...], kind: type) -> None:
    """With a counter that carries into its next word, too."""

    def bits(state: Any) -> Any:
        return lax.rng_bit_generator(state, shape, dtype=kind, algorithm=algorithm)

    with jax.enable_x64(kind is np.uint64):
        for state in (np.array([1, 2, 3, 4], np.uint32), np.array([5, 0, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)):
            wanted = jax.jit(bits)(state)
            found = ptir.run(ptir.from_jax(bits, state), [state]).values()
            for x, y in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(x, np.asarray(y))


def test_keys_of_the_generator_of_the_hardware() -> None:
    def draw(seed: Any) -> Any:
        return jax.random.normal(jax.random.split(jax.random.key(seed, impl="rbg"))[1], (5,))

    (found,) = ptir.run(ptir.from_jax(draw, np.int32(7)), [np.int32(7)]).values()
    np.testing.assert_allclose(found, jax.jit(draw)(np.int32(7)), rtol=1e-5)


@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float8_e4m3", "float8_e3m4"])
def test_floats_of_8_bits_that_ptir_has_not(kind: str, source: str) -> None:
    """Ties, subnormal numbers, zeros of both signs, and numbers around the largest one."""
    ends = [0, 1e-9, 2**-18, 3 * 2**-18, 2**-11, 3 * 2**-11, 1.0625, 1.1875, 15.5, 15.75, 30, 31, 31.5, 240, 247, 248, 249]
    x = np.array([*ends, 57344, 61439, 61440, 65000, 1e9, np.inf, np.nan, *np.logspace(-6, 5, 60)], np.float32)
    x = np.concatenate([x, -x])

    def there_and_back(v: Any) -> Any:
        return v.astype(source).astype(kind).astype(jnp.float32)

    for engine in ("numpy", "native"):
        (found,) = ptir.run(ptir.from_jax(there_and_back, x), [x], engine=engine).values()
        wanted = np.asarray(jax.jit(there_and_back)(x))
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(wanted[wanted == 0]))


def test_arithmetic_and_constants_of_floats_of_8_bits() -> None:
    kind = "float8_e4m3fnuz"

    def function(x: Any, y: Any) -> Any:
        a, b = x.astype(kind), y.astype(kind)
        product = jax.lax.dot(a, b.T, preferred_element_type=jnp.float32)
        return ((a + b) * jnp.array([1.5, 0.25, np.nan, 2, 3, 4], kind)).astype(jnp.float32), product

    x, y = X[:, :6], X[::-1, :6]
    for found, wanted in zip(ptir.run(ptir.from_jax(function, x, y), [x, y]).values(), jax.jit(function)(x, y), strict=True):
        np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-6)
    with pytest.raises(ptir.Rejected, match="bits as a float of 8 bits"):
        ptir.from_jax(lambda v: jax.lax.bitcast_convert_type(v, kind), np.zeros(3, np.uint8))

"""What jax.export writes for shapes that are not known: extents as symbols, and arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import ptir_tools as ptir

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x, w: jax.nn.softmax(x @ w),
    "mean": lambda x, w: x - x.mean(0, keepdims=True),
    "columns": lambda x, w: x[:, :2],
    "a column": lambda x, w: x[:, 1],
    "flat": lambda x, w: (x * 2).reshape(-1),
    "in parts": lambda x, w: x.reshape(-1, 2, 2).sum(1),
    "one after the other": lambda x, w: jnp.concatenate([x, x + 1]),
    "arange": lambda x, w: jnp.arange(x.shape[0]) * 2,
    "zeros": lambda x, w: jnp.zeros((x.shape[0], 3)) + x.shape[0],
    "outer": lambda x, w: x[:, None, :] - x[None],
    "mask": lambda x, w: jnp.where(jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool)), x @ x.T, -1e9),
    "layer norm": lambda x, w: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_any_batch(name: str, tmp_path: Path) -> None:
    (b,) = jax.export.symbolic_shape("b")
    given = jax.ShapeDtypeStruct((b, 4), "float32"), jax.ShapeDtypeStruct((4, 3), "float32")
    exported = jax.export.export(jax.jit(FUNCTIONS[name]))(*given)
    (tmp_path / "f.mlir").write_text(exported.mlir_module())
    program = ptir.read(tmp_path / "f.mlir")
    assert "?d0" in str(program.main.params[0].type)
    for n in (1, 5):
        rng = np.random.default_rng(n)
        x, w = rng.standard_normal((n, 4), np.float32), rng.standard_normal((4, 3), np.float32)
        want = np.asarray(FUNCTIONS[name](x, w))
        for engine in ("reference", "native"):
            (found,) = ptir.run(program, [x, w], engine=engine).values()
            assert found.dtype == want.dtype
            np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-6)


def _attention(x: Any, w: Any) -> Any:
    n, q = x.shape[1], x @ w
    scores = jnp.where(jnp.arange(n)[:, None] >= jnp.arange(n)[None], q @ q.swapaxes(1, 2), -1e9)
    y = (jax.nn.softmax(scores) @ q).reshape(x.shape[0], n, 2, 2).swapaxes(1, 2)
    return y[:, :, -1], jnp.mean(y[:, :, 1:] - y[:, :, :-1], (0, 2))


def _convolved(x: Any, strides: int, padding: str) -> Any:
    kernel = jnp.linspace(-1, 1, 36).reshape(3, 4, 3)
    return jax.lax.conv_general_dilated(x, kernel, (strides,), padding, dimension_numbers=("NCH", "OIH", "NCH"))


# Functions of open extents, with the shapes of their arguments as JAX spells them.
OPEN: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "cumsum": (lambda x: jnp.cumsum(x, 1), ("b, n",)),
    "cumprod": (lambda x: jnp.cumprod(x, 0), ("b, n",)),
    "cumlogsumexp backwards": (lambda x: jax.lax.cumlogsumexp(x, 1, reverse=True), ("b, n",)),
    "flip": (lambda x: jnp.flip(x, 1), ("b, n",)),
    "without the first": (lambda x: x[:, 1:], ("b, n",)),
    "without the last": (lambda x: x[:, :-1], ("b, n",)),
    "without both": (lambda x: x[:, 1:-1], ("b, n",)),
    "every third": (lambda x: x[:, 1::3], ("b, n",)),
    "backwards by two": (lambda x: x[:, ::-2], ("b, n",)),
    "halves": (lambda x: jnp.split(x, 2, axis=1)[1], ("b, 2*n",)),
    "a half": (lambda x: x[:, : x.shape[1] // 2], ("b, n",)),
    "set first": (lambda x: x.at[:, 0].set(1.0), ("b, n",)),
    "set last": (lambda x: x.at[:, -1].add(1.0), ("b, n",)),
    "set rest": (lambda x: x.at[:, 1:].set(0.0), ("b, n",)),
    "scale every second": (lambda x: x.at[:, ::2].multiply(2.0), ("b, n",)),
    "set largest": (lambda x: x.at[jnp.arange(x.shape[0]), jnp.argmax(x, 1)].set(0.0), ("b, n",)),
    "write a slice": (lambda x, y: jax.lax.dynamic_update_slice(y, x, (0, 0, 1)), ("b, n, 2", "b, n, 5")),
    "roll": (lambda x: jnp.roll(x, 1, axis=1), ("b, n",)),
    "roll back": (lambda x: jnp.roll(x, -2, axis=0), ("b, n",)),
    "append": (lambda x, y: jnp.concatenate([x, y], 1).sum(1), ("b, n, 4", "b, m, 4")),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (1, 2))), ("b, n",)),
    "shift": (lambda x: jnp.concatenate([jnp.zeros((x.shape[0], 1)), x[:, :-1]], 1), ("b, n",)),
    "scan": (lambda x: jax.lax.scan(lambda c, y: (c + y, c * y), jnp.zeros(x.shape[1:]), x), ("n, b",)),
    "scan back": (lambda x: jax.lax.scan(lambda c, y: (c + y, c * y), jnp.zeros(4), x, reverse=True), ("n, 4",)),
    "map": (lambda x: jax.lax.map(lambda r: jnp.tanh(r) * r.sum(), x), ("b, n",)),
    "loop": (lambda x: jax.lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], jnp.zeros(x.shape[1])), ("b, n",)),
    "take along": (lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1), ("b, n",)),
    "segments": (lambda x: jax.ops.segment_sum(x, jnp.arange(x.shape[0]) % 2, 2), ("b, n",)),
    "tril": (lambda x: jnp.tril(x), ("n, n",)),
    "ones twice": (lambda x: jnp.ones((x.shape[0], 2 * x.shape[1])), ("b, n",)),
    "one more": (lambda x: jnp.arange(2 * x.shape[0] + 1), ("b, n",)),
    "other rows": (lambda x: x.reshape(x.shape[0] // 2, 2 * x.shape[1]), ("2*b, n",)),
    "in fours": (lambda x: x.reshape(x.shape[0], -1, 4), ("b, 4*n",)),
    "product": (lambda x, y: jnp.einsum("bnd,bmd->bnm", x, y), ("b, n, 4", "b, m, 4")),
    "attention": (_attention, ("b, n, 4", "4, 4")),
    "convolution": (lambda x: _convolved(x, 1, "SAME"), ("b, 4, n+2",)),
    "convolution by two": (lambda x: _convolved(x, 2, "VALID"), ("b, 4, n+2",)),
    "gradient of neighbors": (lambda x: jax.grad(lambda y: jnp.sum(jnp.tanh(y[:, 1:] * y[:, :-1])))(x), ("b, n",)),
    "gradient of cumsum": (lambda x: jax.grad(lambda y: jnp.sum(jnp.cumsum(y, 1) ** 2))(x), ("b, n",)),
    "gradient of every second": (lambda x: jax.grad(lambda y: jnp.sum(y[:, ::2] ** 2))(x), ("b, n",)),
    "gradient of a scan": (
        lambda x: jax.grad(lambda y: jnp.sum(jax.lax.scan(lambda c, v: (jnp.tanh(c + v), c), jnp.zeros(4), y)[0]))(x),
        ("n, 4",),
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_a_function_of_open_extents(name: str, tmp_path: Path) -> None:
    function, shapes = OPEN[name]
    scope = jax.export.SymbolicScope()
    given = [jax.ShapeDtypeStruct(jax.export.symbolic_shape(s, scope=scope), "float32") for s in shapes]
    (tmp_path / "f.mlir").write_text(jax.export.export(jax.jit(function))(*given).mlir_module())
    program = ptir.read(tmp_path / "f.mlir")
    (tmp_path / "f.ptir").write_text(str(ptir.write(program)))
    again = ptir.optimize(ptir.read(tmp_path / "f.ptir"))
    for sizes in ({"b": 5, "n": 6, "m": 2}, {"b": 2, "n": 3, "m": 7}):
        rng = np.random.default_rng(sizes["n"])
        xs = [rng.standard_normal([eval(d, {}, sizes) for d in s.split(",")], np.float32) for s in shapes]
        want = jax.tree_util.tree_leaves(function(*map(jnp.asarray, xs)))
        for p, engine in ((program, "reference"), (program, "native"), (again, "native")):
            for found, wanted in zip(ptir.run(p, xs, engine=engine).values(), want, strict=True):
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_an_extent_that_no_op_has_is_refused_where_it_is_made(tmp_path: Path) -> None:
    given = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, n"), "float32")
    function = jax.jit(jax.grad(lambda x: jnp.sum(jnp.roll(x, 2, 1) * x)))
    exported = jax.export.export(function)(given)
    (tmp_path / "f.mlir").write_text(exported.mlir_module())
    with pytest.raises(ptir.Rejected, match=r"dynamic_pad`: the extents of its result depend on data"):
        ptir.read(tmp_path / "f.mlir")


def _sums(x: Any, y: Any) -> Any:
    return x.sum(keepdims=True) + 2 * y.sum()


def _exported(shape: str, *constraints: str) -> Any:
    given = jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape, constraints=constraints), "float32")
    return jax.export.export(jax.jit(lambda x: x.sum()))(given)


def _called(shape: str, *constraints: str) -> Callable[..., Any]:
    return lambda x: _exported(shape, *constraints).call(x)


# What JAX asserts of extents: a function, shapes, constraints, extents for which it holds, and extents for which it does not.
ASSERTED: dict[str, tuple[Callable[..., Any], str, tuple[str, ...], list[str], list[str]]] = {
    "at least 1": (lambda x: x * 2, "n", (), ["1", "3"], ["0"]),
    "a least extent": (lambda x: x * 2, "n", ("n>=3",), ["3", "5"], ["0", "1", "2"]),
    "a largest extent": (lambda x: x * 2, "n", ("n<=7",), ["1", "7"], ["0", "8"]),
    "no data is used": (lambda x: jnp.arange(3.0), "n", ("n>=3",), ["3"], ["2"]),
    "every result": (lambda x: (x.sum(), jnp.arange(3.0), x), "n", ("n>=3",), ["3"], ["2"]),
    "a multiple": (lambda x: x * 2, "4*n", (), ["4", "8"], ["0", "1", "3", "6", "9"]),
    "a multiple that is reshaped": (lambda x: x.reshape(-1, 4).sum(0), "4*n", (), ["4", "8"], ["0", "3", "6", "9"]),
    "a multiple and a least extent": (lambda x: x * 2, "4*n", ("n>=2",), ["8", "12"], ["4", "9"]),
    "a remainder": (lambda x: x * 2, "n", ("mod(n, 4) == 0",), ["4", "8"], ["0", "2", "5"]),
    "a quotient": (lambda x: x * 2, "n", ("4*floordiv(n, 4) == n",), ["4", "8"], ["0", "2", "5"]),
    "less": (lambda x: x * 2, "n-2", (), ["1", "4"], []),
    "equal": (_sums, "n; n", (), ["1; 1", "4; 4"], ["0; 0", "1; 4", "4; 1"]),
    "equal axes": (lambda x: x * 2, "n, n", (), ["1, 1", "3, 3"], ["0, 0", "1, 3", "3, 1"]),
    "one more": (_sums, "n; n+1", (), ["1; 2", "4; 5"], ["0; 1", "4; 4", "5; 4", "1; 1"]),
    "twice": (_sums, "n; m", ("n == 2*m",), ["2; 1", "6; 3"], ["0; 0", "3; 1", "1; 2", "7; 3"]),
    "half": (_sums, "n; m", ("m == floordiv(n, 2)",), ["2; 1", "7; 3"], ["0; 0", "3; 2", "2; 2"]),
    "a remainder and more": (_sums, "n; mod(n, 4)+1", (), ["1; 2", "6; 3"], ["0; 1", "6; 2", "6; 7"]),
    "a sum": (_sums, "n+m; n", (), ["3; 1", "5; 4"], ["2; 2", "1; 4", "3; 0"]),
    "not less than another": (_sums, "n; m", ("n >= m",), ["3; 3", "5; 1"], ["3; 4", "0; 0", "3; 0"]),
    "the larger": (_sums, "n; m", ("max(n, m) == n",), ["3; 3", "5; 1"], ["3; 4", "0; 0", "3; 0"]),
    "a product": (_sums, "n; m", ("n*m <= 20",), ["4; 5", "1; 20"], ["3; 7", "0; 5"]),
    "in a function": (lambda x: _called("4*k")(jnp.concatenate([x] * 4)), "n", (), ["1", "3"], ["0"]),
    "in a scan": (lambda x: jax.lax.map(_called("4*k"), x), "n, 8*m", (), ["1, 8", "3, 16"], ["0, 8", "2, 4", "2, 0"]),
    "in each step": (
        lambda x: jax.lax.map(_called("k", "k>=3"), x),
        "n, m",
        ("m>=3",),
        ["2, 3", "1, 5"],
        ["2, 2", "0, 3", "2, 0"],
    ),
    "in a branch": (
        lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: _called("k", "k>=3")(y[0]), lambda y: 0.0, x),
        "n, m",
        ("m>=3",),
        ["2, 3", "1, 5"],
        ["2, 2", "0, 3"],
    ),
    "in a loop": (
        lambda x: jax.lax.while_loop(lambda c: c < _called("k", "k>=3")(x), lambda c: c + _called("k", "k>=3")(x), 0.0),
        "m",
        ("m>=3",),
        ["3", "5"],
        ["2", "0"],
    ),
}


@pytest.mark.parametrize("name", ASSERTED)
def test_what_does_not_hold_is_an_error(name: str, tmp_path: Path) -> None:
    function, shapes, constraints, holding, breaking = ASSERTED[name]
    scope = jax.export.SymbolicScope(constraints)
    given = [jax.ShapeDtypeStruct(jax.export.symbolic_shape(s, scope=scope), "float32") for s in shapes.split(";")]
    exported = jax.export.export(jax.jit(function))(*given)
    assert "shape_assertion" in exported.mlir_module()
    (tmp_path / "f.mlir").write_text(exported.mlir_module())
    program = ptir.read(tmp_path / "f.mlir")
    (tmp_path / "f.ptir").write_text(str(ptir.write(ptir.optimize(program))))
    programs = program, ptir.read(tmp_path / "f.ptir")
    for extents in (*holding, *breaking):
        sizes = [[int(n) for n in part.split(",")] for part in extents.split(";")]
        xs = [np.random.default_rng(k).random(size, np.float32) + 1 for k, size in enumerate(sizes)]
        want = None
        if extents in breaking:
            with pytest.raises(Exception, match=r"polymorphic shapes specification|symbolic shape constraint"):
                exported.call(*xs)
        else:
            want = jax.tree_util.tree_leaves(exported.call(*xs))
        for p in programs:
            for engine in ("reference", "numpy", "native"):
                if want is None:
                    with pytest.raises((ptir.Rejected, ptir.UsageError)):
                        ptir.run(p, xs, engine=engine)
                    continue
                for found, wanted in zip(ptir.run(p, xs, engine=engine).values(), want, strict=True):
                    assert found.shape == wanted.shape
                    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)

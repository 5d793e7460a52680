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

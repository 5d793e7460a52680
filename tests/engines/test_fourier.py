"""Products with the matrix of a Fourier transform: fast, and the numbers of the product, also for special frames."""

from __future__ import annotations

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.transforms import window_of
from tests.engines.programs import FAST


def matrix(length: int, window: np.ndarray | float = 1.0) -> np.ndarray:
    """Real and imaginary parts in turn, [length, 2 * (length // 2 + 1)]."""
    angle = np.outer(np.arange(length), np.arange(length // 2 + 1)) % length * (2 * np.pi / length)
    parts = np.stack([np.cos(angle), -np.sin(angle)], 2).reshape(length, -1)
    return np.asarray(parts * np.broadcast_to(window, length)[:, None])


def session(m: np.ndarray, out: str, rows: int, engine: str, turned: bool) -> ptir.Session:
    g = ptir.Graph()
    x = g.input("x", "f64", (2, rows, len(m)))
    weights = g.constant(m.T if turned else m)
    y = x.dot_general(weights, contract_lhs=[2], contract_rhs=[int(turned)], out_dtype=out)
    return ptir.compile(g.returns(y.named("y")), engine=engine)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("out", ["f64", "f32"])
@pytest.mark.parametrize(
    ("length", "windowed", "turned"), [(400, True, False), (257, False, True), (16, True, False), (64, False, False)]
)
def test_frames_give_what_the_product_gives(engine: str, out: str, length: int, windowed: bool, turned: bool) -> None:
    rng = np.random.default_rng(length)
    m = matrix(length, np.hanning(length) if windowed else 1.0)
    assert window_of(m) is not None
    x = rng.standard_normal((2, 9, length))
    x[0, 1] = 0.0
    x[0, 2, 5:] = 0.0  # few numbers: what the zeros of the matrix leave is exact
    x[0, 3], x[0, 3, length // 4] = 0.0, 3.0
    x[1, 0, 3], x[1, 1, 2], x[1, 2, 1] = np.nan, np.inf, 1e300
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = x @ m
        found = session(m, out, 9, engine, turned)({"x": x})["y"]
        error = np.abs(found - wanted) / (
            np.finfo(out.replace("f", "float")).eps * 16 * np.abs(np.nan_to_num(x)).max(2, keepdims=True) * length
        )
        exact = wanted.astype(found.dtype)
    assert (np.isnan(found) == np.isnan(exact)).all() and (np.isinf(found) == np.isinf(exact)).all()
    assert np.nanmax(np.where(np.isfinite(exact), error, 0)) <= 1
    bound = np.abs(x[0, 1:4]) @ np.abs(m) * (8 * np.finfo(found.dtype).eps)
    assert (np.abs(found[0, 1:4] - wanted[0, 1:4]) <= bound).all()


def test_other_matrices_are_no_transforms() -> None:
    m = matrix(32)
    other = m.copy()
    other[3, 8] += 1e-12
    for x in (other, m[:, :-2], m[:16], matrix(8), np.random.default_rng(1).standard_normal((32, 34))):
        assert window_of(x) is None
    assert np.array_equal(window_of(matrix(32, 0.5)), np.full(32, 0.5))  # type: ignore[arg-type]

"""The matrices of Fourier transforms."""

from __future__ import annotations

from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import np

LEAST = 16  # elements of a frame from which a fast transform is faster
_ULPS = 4  # by which the numbers of a matrix may differ from those computed here, in units of the window's largest number


def roots(numbers: Array, n: int, sign: int) -> Array:
    """exp(sign 2 pi i k / n) for integers k; the angle is reduced exactly."""
    result: Array = np.exp(1j * (numbers % n * (2 * np.pi / n) * sign))
    return result


def twiddles(rows: int, n: int, sign: int) -> tuple[Array, Array]:
    """Cosines and sines of the angles of a transform of length `n`, [rows, n] each."""
    found = roots(np.outer(np.arange(rows), np.arange(n)), n, sign)
    return found.real, found.imag


def in_turn(real: Array, imaginary: Array) -> Array:
    """Rows of real and of imaginary parts in turn, as the matrix of a transform of real frames has them, [2 * rows, n]."""
    return np.stack([real, imaginary], 1).reshape(-1, real.shape[1])


def window_of(matrix: Array) -> Array | None:
    """The window of the transform of real frames that `matrix`, [n, 2 * rows] of f64, is: with the first half of the spectrum,
    forward. None for other matrices."""
    n, columns = matrix.shape
    if n < LEAST or columns != 2 * (n // 2 + 1) or matrix[:, 1].any():
        return None
    window: Array = matrix[:, 0].copy()
    wanted = in_turn(*twiddles(columns // 2, n, -1)) * window
    far = np.abs(matrix.T - wanted).max()
    return window if far <= _ULPS * np.finfo(np.float64).eps * np.abs(window).max() else None

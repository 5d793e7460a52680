"""Steps of a quantization: the scale and the zero point of a range of numbers, and how a range is chosen.

An integer q is the number (q - zero) * scale. Signed integers are symmetric: their zero point is 0, and the lowest one is
not used. Unsigned integers have a zero point. So 0 is always exact, and padding with zeros, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.types import tensor

BINS = 2048  # of a histogram
_SHARES = tuple(k / 40 for k in range(8, 41))  # of the whole range, that are tried for the smallest squared error


class Method(StrEnum):
    """How a range is chosen: all numbers, all but a few, or the range with the smallest squared error."""

    MIN_MAX = "min-max"
    PERCENTILE = "percentile"
    MSE = "mse"


class Steps(NamedTuple):
    """Scales, which f32 has, and zero points of `dtype`: one of each, or one for each index of an axis."""

    scales: Array
    zeros: Array
    dtype: DType

    def integers(self, x: Array, axis: int | None = None) -> Array:
        """`x` rounded to steps, to nearest even, saturated; there is a scale for each index of `axis`."""
        s, z = (_along(v, x.ndim, axis) for v in (self.scales, self.zeros))
        q = np.rint(np.asarray(x, np.float64) / s) + z
        return np.asarray(np.clip(q, _least(self.dtype), self.dtype.max))

    def numbers(self, q: Array, axis: int | None = None) -> Array:
        """The numbers that integers are, in f64."""
        s, z = (_along(v, q.ndim, axis) for v in (self.scales, self.zeros))
        return np.asarray((q - z) * s)

    def rounded(self, x: Array, axis: int | None = None) -> Array:
        """`x`, rounded to steps."""
        return self.numbers(self.integers(x, axis), axis)

    def constant(self, x: Array, axis: int | None = None) -> Literal:
        """The integers of `x` as a constant."""
        q = self.integers(x, axis).astype(arrays.numpy_dtype(self.dtype))
        return arrays.to_literal(q, tensor(self.dtype, q.shape))


def _least(dtype: DType) -> int:
    return -dtype.max if dtype.is_signed else 0


def _along(v: Array, rank: int, axis: int | None) -> Array:
    return v if axis is None else v.reshape([-1 if a == axis % rank else 1 for a in range(rank)])


def of_range(low: Array, high: Array, dtype: DType) -> Steps:
    """The steps of ranges, widened to have 0. A range without another number has the scale 1."""
    low, high = np.minimum(low, 0.0).reshape(-1).astype(np.float64), np.maximum(high, 0.0).reshape(-1).astype(np.float64)
    width = np.maximum(-low, high) if dtype.is_signed else high - low
    scales = (width / dtype.max).astype(np.float32).astype(np.float64)
    tiny = float(np.finfo(np.float32).tiny)
    scales = np.where(np.isfinite(scales) & (scales >= tiny), scales, 1.0)
    zeros = np.zeros_like(scales) if dtype.is_signed else np.clip(np.rint(-low / scales), 0, dtype.max)
    return Steps(scales, zeros.astype(np.int64), dtype)


def of_weight(x: Array, dtype: DType, axis: int | None, method: Method, share: float) -> Steps:
    """The steps of a constant, one pair or one for each index of `axis`."""
    rows = x.reshape(1, -1) if axis is None else np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    low, high = rows.min(1, initial=0.0), rows.max(1, initial=0.0)
    if method is Method.PERCENTILE and rows.size:
        rest = (100.0 - share) / 2
        low, high = np.minimum(np.percentile(rows, rest, axis=1), 0), np.maximum(np.percentile(rows, 100.0 - rest, axis=1), 0)
    if method is Method.MSE:
        best, least = np.ones(len(rows)), np.full(len(rows), np.inf)
        for share in _SHARES:
            steps = of_range(low * share, high * share, dtype)
            error = np.square(steps.rounded(rows, 0) - rows).sum(1)
            best, least = np.where(error < least, share, best), np.minimum(error, least)
        low, high = low * best, high * best
    return of_range(low, high, dtype)


class Spread:
    """How often numbers occur, in `BINS` equal parts of their range, and what is known of each channel, an index of `axis`.

    `divisors`, one for each channel, are what numbers are divided by before they are rounded to steps.
    """

    def __init__(self, axis: int | None) -> None:
        self.axis = axis
        self.lows, self.highs = np.full(1, np.inf), np.full(1, -np.inf)  # of each channel
        self.total = np.zeros(1)  # the sum of each channel
        self.rows = 0  # numbers of each channel
        self.counts = np.zeros(BINS)
        self.divisors: Array | None = None

    def see(self, x: Array) -> None:
        """Widen the ranges."""
        if not x.size:
            return
        kept = None if self.axis is None or not x.ndim else self.axis % x.ndim
        others = tuple(a for a in range(x.ndim) if a != kept)
        self.lows = np.minimum(self.lows, x.min(others).astype(np.float64))
        self.highs = np.maximum(self.highs, x.max(others).astype(np.float64))
        self.total = self.total + x.sum(others, np.float64)
        self.rows += x.size // self.lows.size

    def count(self, x: Array) -> None:
        """Count numbers, once the ranges are known."""
        low, high = self.range
        if self.bounded and high > low:
            if self.divisors is not None:
                x = x / _along(self.divisors, x.ndim, self.axis)
            self.counts += np.histogram(x, BINS, (low, high))[0]

    @property
    def bounded(self) -> bool:
        """Whether there were numbers, all finite."""
        return bool(np.isfinite(self.lows).all() and np.isfinite(self.highs).all())

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest number, divided."""
        by = 1.0 if self.divisors is None else self.divisors
        return float((self.lows / by).min()), float((self.highs / by).max())

    @property
    def sizes(self) -> Array:
        """The largest magnitude in each channel."""
        return np.asarray(np.maximum(-self.lows, self.highs))

    @property
    def mean(self) -> Array:
        """The mean of each channel."""
        return np.asarray(self.total / max(self.rows, 1))

    def steps(self, dtype: DType, method: Method, share: float) -> Steps:
        """The steps for integers of `dtype`. `share`: the percentage of numbers that are inside the range."""
        least, most = self.range
        low, high = min(least, 0.0), max(most, 0.0)
        if method is Method.PERCENTILE and self.counts.any():
            below = np.cumsum(self.counts) / self.counts.sum()
            edges = np.linspace(least, most, BINS + 1)
            rest = (100.0 - share) / 200
            low = max(low, min(0.0, float(edges[np.searchsorted(below, rest, "right")])))
            high = min(high, max(0.0, float(edges[np.searchsorted(below, 1 - rest) + 1])))
        if method is Method.MSE and self.counts.any():
            low, high = self._best(low, high, dtype)
        return of_range(np.asarray(low), np.asarray(high), dtype)

    def _best(self, low: float, high: float, dtype: DType) -> tuple[float, float]:
        """The part of the range with the smallest squared error."""
        edges = np.linspace(*self.range, BINS + 1)
        middle = (edges[1:] + edges[:-1]) / 2

        def error(a: float, b: float) -> float:
            return float(self.counts @ np.square(of_range(np.asarray(a), np.asarray(b), dtype).rounded(middle) - middle))

        def tried() -> Iterator[tuple[float, float, float]]:
            for share in _SHARES:
                yield error(low * share, high * share), low * share, high * share
                if low and high and not dtype.is_signed:
                    yield error(low, high * share), low, high * share
                    yield error(low * share, high), low * share, high

        return min(tried())[1:]

"""The larger and the smaller of two numbers, as IEEE 754-2019 defines `maximum` and `minimum`: NaN propagates, 0.0 is above -0.0.

NumPy returns either of two zeros. Only these are corrected here: everything else is NumPy's result.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

_KINDS_WITHOUT_SIGNED_ZERO = "biuO"


class Extreme:
    """`np.maximum` or `np.minimum` with ordered zeros; called and used like the universal function itself."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.is_maximum = name == "maximum"

    @property
    def ufunc(self) -> np.ufunc:
        """NumPy's function."""
        found: np.ufunc = getattr(np, self.__name__)
        return found

    def __call__(self, x: ArrayLike, y: ArrayLike, out: Array | None = None) -> Array:
        """The extreme of each pair of elements, NaN if one is NaN; `out` may be one of the operands."""
        x, y = np.asarray(x), np.asarray(y)
        if x.dtype.kind in _KINDS_WITHOUT_SIGNED_ZERO:
            return np.asarray(self.ufunc(x, y, out=out))
        equal = np.equal(x, y)
        if not np.any(equal):
            return np.asarray(self.ufunc(x, y, out=out))
        combine = np.bitwise_and if self.is_maximum else np.bitwise_or  # of equal numbers only zeros have different bits
        bits = combine(_bits(x), _bits(y))
        result = np.asarray(self.ufunc(x, y, out=out))
        np.copyto(_bits(result), bits, where=equal)
        return result

    def with_number(self, x: Array, y: Array, number: Array, out: Array) -> None:
        """The same into `out`, where all elements of `y` are `number`, an array of rank 0."""
        if number.dtype.kind in _KINDS_WITHOUT_SIGNED_ZERO or number != 0:
            self.ufunc(x, y, out=out)
        elif _bits(number) == self._zero(number):
            self.ufunc(x, y, out=out)
            np.abs(out, out=out)  # all elements are on one side of zero
            if not self.is_maximum:
                np.negative(out, out=out)
        else:
            self(x, y, out)

    def reduce(
        self,
        x: ArrayLike,
        axis: int | Sequence[int] | None = 0,
        dtype: DTypeLike | None = None,
        out: Array | None = None,
        keepdims: bool = False,
        initial: object = None,
    ) -> Array:
        """The extreme over `axis`, and of `initial` if given, as `ufunc.reduce`."""
        x, axes = np.asarray(x), tuple(axis) if isinstance(axis, Sequence) else axis
        start = {} if initial is None else {"initial": initial}
        result = np.asarray(self.ufunc.reduce(x, axis=axes, dtype=dtype, out=out, keepdims=keepdims, **start))
        if np.any(lost := self._lost(result)):
            won = np.any(self._won(x), axis=axes, keepdims=keepdims)
            if initial is not None:
                won = won | self._won(np.asarray(initial, x.dtype))
            self._correct(result, lost & won)
        return result

    def accumulate(self, x: Array, axis: int = 0, dtype: DTypeLike | None = None) -> Array:
        """The extreme of all elements up to each along `axis`."""
        result = np.asarray(self.ufunc.accumulate(x, axis, dtype))
        if np.any(lost := self._lost(result)):
            self._correct(result, lost & np.logical_or.accumulate(self._won(x), axis))
        return result

    def at(self, out: Array, index: Array | tuple[Array, ...], values: Array) -> None:
        """Combine `values` with the elements of `out` at `index`, in place."""
        won = self._won(out)
        self.ufunc.at(out, index, values)
        if np.any(lost := self._lost(out)):
            np.logical_or.at(won, index, self._won(values))
            self._correct(out, lost & won)

    def _zero(self, x: Array) -> Array:
        """The bits of the zero that wins: 0.0 in a maximum, -0.0 in a minimum."""
        return np.array(0 if self.is_maximum else 1 << (8 * x.dtype.itemsize - 1), f"u{x.dtype.itemsize}")

    def _won(self, x: Array) -> Array:
        """Where `x` is the zero that wins."""
        return np.asarray(_bits(x) == self._zero(x)) if x.dtype.kind not in _KINDS_WITHOUT_SIGNED_ZERO else _nowhere(x)

    def _lost(self, x: Array) -> Array:
        """Where `x` is the other zero."""
        return (MINIMUM if self.is_maximum else MAXIMUM)._won(x)

    def _correct(self, result: Array, where: Array) -> None:
        np.copyto(_bits(result), self._zero(result), where=where)


def _bits(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")


def _nowhere(x: Array) -> Array:
    return np.broadcast_to(np.False_, x.shape)


MAXIMUM, MINIMUM = Extreme("maximum"), Extreme("minimum")

"""Products with the matrix of a Fourier transform, as NumPy's fast transform."""

from __future__ import annotations

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F64
from ptir_tools.core.lazy import np
from ptir_tools.core.transforms import LEAST
from ptir_tools.engines.numpy.steps import Step, Workshop

_SMALL = 2.0**-20  # of the largest number of a frame: smaller ones do not hide what the zeros of the matrix leave


def transform(frames: Array, matrix: Array, window: Array, out: Array, shop: Workshop) -> list[Step]:
    """The steps that multiply `frames`, […, length], by `matrix`, whose window is given, into `out` of the same dtype or f32."""
    windowed = shop.scratch(frames.shape, F64)
    product = out if out.dtype == np.float64 else shop.scratch(out.shape, F64)
    return [(_transform, (frames, matrix, window, windowed, product)), *([] if product is out else shop.copied(out, product))]


def _transform(frames: Array, matrix: Array, window: Array, windowed: Array, out: Array) -> None:
    """Zeros of the matrix, which are not quite 0, matter in its last column, in frames with few large numbers, and for NaN and
    infinities: there the product is taken."""
    np.multiply(frames, window, windowed)
    np.fft.rfft(windowed, out=out.view(np.complex128))
    np.copyto(out[..., -1], frames @ matrix[:, -1])
    size = np.abs(windowed, windowed)
    top = size.max(axis=-1, keepdims=True)
    count = np.count_nonzero(size > top * _SMALL, axis=-1)
    apart = ((count > 0) & (count < LEAST)) | ~np.isfinite(top[..., 0])
    if apart.any():
        out[apart] = frames[apart] @ matrix

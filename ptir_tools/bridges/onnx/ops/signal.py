"""Fourier transforms as products with constant matrices."""

from __future__ import annotations

from ptir_tools.bridges.onnx.ops.shape import axis_product, cut, pad
from ptir_tools.bridges.onnx.ops.window import weighed
from ptir_tools.bridges.onnx.table import Node, axis, dtype_of, fixed, handles
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F64
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import LimitExceeded, current
from ptir_tools.core.transforms import in_turn, twiddles
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor


def _twiddles(rows: int, n: int, sign: int) -> tuple[Array, Array]:
    """`twiddles`, if constants may be so large. Raises LimitExceeded."""
    if rows * n * 8 > current().literal_bytes:
        raise LimitExceeded(f"a transform of length {n} takes a matrix of {rows * n * 8} bytes", "--max-literal-bytes")
    return twiddles(rows, n, sign)


def transformed(x: Tensor, a: int, n: int, inverse: bool, onesided: bool) -> Tensor:
    """The transform of length `n` along axis `a` of x […, 1 or 2], in f64. The last axis has real and imaginary parts."""
    if x.dtype is not F64:
        return transformed(x.cast(F64), a, n, inverse, onesided).cast(x.dtype)
    if n < 1:
        raise Violation("InvalidModel", f"a transform of length {n}")
    complex_ = x.shape[-1] == 2
    extent = fixed(x.shape[a])
    if inverse and onesided:  # the half of a spectrum that mirrors the other
        x = cut(x, a, 0, min(extent, n // 2 + 1))
        x = pad(x, a, 0, n // 2 + 1 - fixed(x.shape[a]))
        cosines, sines = _twiddles(n, n, 1)
        weight = np.array([1.0 if k == 0 or 2 * k == n else 2.0 for k in range(n // 2 + 1)]) / n
        cosines, sines = (m[:, : n // 2 + 1] * weight for m in (cosines, sines))
        real, imaginary = _sides(x, complex_)
        y = axis_product(real, a, cosines)
        y = y - axis_product(imaginary, a, sines) if imaginary is not None else y
        return y.reshape([*y.shape, 1])
    x = cut(x, a, 0, min(extent, n))
    x = pad(x, a, 0, n - fixed(x.shape[a]))
    rows = n // 2 + 1 if onesided else n
    cosines, sines = _twiddles(rows, n, 1 if inverse else -1)
    if inverse:
        cosines, sines = cosines / n, sines / n
    real, imaginary = _sides(x, complex_)
    if imaginary is None and a == real.rank - 1:  # both parts by one product
        y = axis_product(real, a, in_turn(cosines, sines))
        return y.reshape([*y.shape[:-1], rows, 2])
    re, im = axis_product(real, a, cosines), axis_product(real, a, sines)
    if imaginary is not None:
        re, im = re - axis_product(imaginary, a, sines), im + axis_product(imaginary, a, cosines)
    return x.block.op("concat", [v.reshape([*v.shape, 1]) for v in (re, im)], re.rank)


def _sides(x: Tensor, complex_: bool) -> tuple[Tensor, Tensor | None]:
    last = x.rank - 1
    return cut(x, last, 0, 1).reshape(x.shape[:-1]), cut(x, last, 1, 1).reshape(x.shape[:-1]) if complex_ else None


@handles("DFT")
def dft(node: Node) -> Tensor:
    """DFT along an axis."""
    x = node[0]
    a = node.attr("axis", 1) if node.opset < 20 else node.integer(2) if node.has(2) else -2
    a = axis(a, x.rank)
    inverse, onesided = bool(node.attr("inverse")), bool(node.attr("onesided"))
    n = fixed(x.shape[a])
    n = node.integer(1) if node.has(1) else 2 * (n - 1) if inverse and onesided else n
    return transformed(x, a, n, inverse, onesided)


@handles("STFT")
def stft(node: Node) -> Tensor:
    """STFT: transforms of frames of a signal: one product of all frames with the window times the angles, in f64."""
    x, step, window = node[0], node.integer(1), node.get(2)
    x = x if x.rank == 3 else x.reshape([*x.shape, 1])
    length = node.integer(3) if node.has(3) else fixed(window.shape[0] if window is not None else x.shape[1])
    channels = fixed(x.shape[2])  # 1, or a real and an imaginary part
    frames = x.cast(F64).extract_patches([length], strides=[step])
    factors = np.ones(length)
    if window is not None and (known := node.array(2)) is not None:
        factors = known.astype(np.float64)
    elif window is not None:
        frames = frames * window.cast(F64).reshape([length, 1]).broadcast_to([length, channels]).reshape([length * channels])
    rows = length // 2 + 1 if node.attr("onesided") else length
    cosines, sines = (m * factors for m in _twiddles(rows, length, -1))
    parts = np.stack([np.stack([cosines, -sines], 1), np.stack([sines, cosines], 1)], 1)  # [rows, result, operand, length]
    y = weighed(frames, node.constant(parts[:, :, :channels].reshape([2 * rows, channels, length])), 1, channels)
    return y.reshape([*y.shape[:2], rows, 2]).cast(x.dtype)


@handles("MelWeightMatrix")
def mel_weights(node: Node) -> Array:
    """MelWeightMatrix: the matrix from a spectrum to bins of the mel scale."""
    bins, length, rate = (node.ints(i)[0] for i in range(3))
    low, high = (node.floats(i)[0] for i in (3, 4))
    mels = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = np.arange(bins + 2) * ((mels[1] - mels[0]) / (bins + 2)) + mels[0]
    at = np.floor((length + 1) * (700 * (10 ** (edges / 2595) - 1)) / rate).astype(np.int64)
    out = np.zeros((length // 2 + 1, bins))
    for i in range(bins):
        left, middle, right = at[i : i + 3]
        if middle == left:
            out[middle, i] = 1
        else:
            out[left : middle + 1, i] = (np.arange(left, middle + 1) - left) / (middle - left)
        if right > middle:
            out[middle:right, i] = (right - np.arange(middle, right)) / (right - middle)
    return out.astype(arrays.numpy_dtype(dtype_of(node.attr("output_datatype", 1))))

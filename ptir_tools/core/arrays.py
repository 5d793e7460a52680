"""Bytes to arrays and back, and the one place where elements are converted between dtypes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache

from ptir_tools.core.dtypes import F16, F32, F64, DType, Kind
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import ml_dtypes, np
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype]
else:
    Array = object


@cache
def numpy_dtype(dtype: DType) -> np.dtype:
    """The NumPy dtype that holds `dtype` in memory: one element per array item, 4-bit ones too."""
    result: np.dtype = np.dtype(getattr(np, dtype.numpy, None) or getattr(ml_dtypes, dtype.numpy))
    return result


def float_info(kind: np.dtype) -> np.finfo:
    """What `np.finfo` gives, of NumPy's floats and of those of ml_dtypes."""
    untyped: Any = ml_dtypes.finfo
    found: np.finfo = untyped(kind)
    return found


def holds(array: Array, *dtypes: DType) -> bool:
    """Whether `array` has one of these dtypes, without importing ml_dtypes."""
    name = array.dtype.name
    return any(dtype.numpy == name for dtype in dtypes)


def unpack(data: bytes, dtype: DType, count: int) -> Array:
    """`count` elements from little-endian bytes. Raises Violation("LiteralSizeMismatch") when the size is wrong."""
    want = dtype.packed_bytes(count)
    if len(data) != want:
        raise Violation("LiteralSizeMismatch", f"{count} elements of {dtype} are {want} bytes, got {len(data)}")
    if dtype.bits == 4:
        raw = np.frombuffer(data, np.uint8)
        nibbles = np.stack([raw & 15, raw >> 4], -1).reshape(-1)[:count]
        if dtype.kind is Kind.INT:
            return ((nibbles ^ 8).astype(np.int8) - np.int8(8)).astype(numpy_dtype(dtype))
        return nibbles.astype(numpy_dtype(dtype))
    if dtype.kind is Kind.BOOL:
        return np.asarray(np.frombuffer(data, np.uint8) != 0)
    native = numpy_dtype(dtype)
    if sys.byteorder == "little":
        return np.frombuffer(data, native)
    return np.frombuffer(data, native.newbyteorder("<")).astype(native)


def is_as_stored(dtype: DType) -> bool:
    """Whether an array of `dtype` has the bytes of its literal in memory."""
    return dtype.bits != 4 and dtype.kind is not Kind.BOOL and sys.byteorder == "little"


def pack(array: Array, dtype: DType) -> bytes:
    """Little-endian bytes of `array`, row-major; 4-bit values two to a byte, low nibble first."""
    if dtype.bits == 4:
        nibbles = array.reshape(-1).astype(np.int8).view(np.uint8) & 15
        if nibbles.size % 2:
            nibbles = np.append(nibbles, np.uint8(0))
        return bytes(nibbles[0::2] | nibbles[1::2] << 4)
    return np.ascontiguousarray(array, numpy_dtype(dtype)).tobytes()


def from_literal(literal: Literal) -> Array:
    """The read-only array of a literal with a static type; a splat takes no memory of its own.

    Raises Violation("MissingPayload") if the payload is missing.
    """
    t = literal.type
    if literal.data is None:
        raise Violation("MissingPayload", f"the payload of this {t} constant is not in the file")
    if literal.splat:
        return np.broadcast_to(unpack(literal.data, t.dtype, 1).reshape(()), t.static_shape)
    return unpack(literal.data, t.dtype, t.count).reshape(t.static_shape)


def to_literal(array: Array, t: TensorType) -> Literal:
    """The literal of type `t` with the elements of `array`; one whose elements all have the same bits becomes a splat."""
    array = np.asarray(array, numpy_dtype(t.dtype)).reshape(t.static_shape)
    if array.size > 1 and _is_even(array):
        return Literal(t, pack(array[(slice(1),) * array.ndim], t.dtype), splat=True)
    return Literal(t, pack(array, t.dtype))


def _is_even(array: Array) -> bool:
    """Whether all elements have the same bits. Most arrays differ in the first and the last one, and are not copied."""
    first, last = (array[(k,) * array.ndim] for k in (0, -1))
    return same_bits(first, last) and same_bits(array, np.broadcast_to(first, array.shape))


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays of one dtype and shape have the same bits: -0.0 is not 0.0, a NaN equals itself."""
    bits = np.dtype(f"u{min(a.dtype.itemsize, 8)}")
    return bool(np.array_equal(np.ascontiguousarray(a).view(bits), np.ascontiguousarray(b).view(bits)))


def zeros(t: TensorType) -> Array:
    """A fresh array of zeros of the static type `t`."""
    return np.zeros(t.static_shape, numpy_dtype(t.dtype))


PIECE = 1 << 24  # bytes that are copied at once


def fill(to: Array, array: Array) -> None:
    """Copy an array in pieces, so that a signal is handled between them. One large copy would delay it by a second."""
    step = max(1, PIECE // max(1, array.itemsize))
    if array.nbytes <= PIECE or not (array.flags.c_contiguous and to.flags.c_contiguous):
        to[...] = array
        return
    flat, source = to.reshape(-1), array.reshape(-1)
    for i in range(0, array.size, step):
        flat[i : i + step] = source[i : i + step]


def copied(array: Array) -> Array:
    """A copy of an array, by `fill`."""
    to = np.empty_like(array, subok=False)
    fill(to, array)
    return to


def strided(array: Array, shape: tuple[int, ...], strides: Sequence[int], start: int = 0) -> Array:
    """A read-only view of the memory of `array`, strides in bytes, from `start` elements after its first on.

    A dtype of another package is viewed as bits: `as_strided` looks dtypes up by name, which fails for float8_e5m2."""
    own = array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
    view = np.lib.stride_tricks.as_strided
    if start:
        size = own.itemsize if start > 0 else -own.itemsize
        own = view(own, (abs(start) + 1,), (size,), writeable=False)[abs(start) :]
    return view(own, shape, strides, writeable=False).view(array.dtype)


def widen(array: Array) -> Array:
    """`array` in the precision of the reference: floats in float64, complex in complex128, integers unchanged (they wrap in
    their own dtype), 4-bit integers in int8 or uint8."""
    with np.errstate(invalid="ignore"):  # a signaling NaN
        return widened(array)


def widened(array: Array) -> Array:
    """`widen` in a context that already ignores floating-point errors."""
    wide = _wide_dtype(array.dtype)
    return array if wide is None else array.astype(wide, copy=False)


@cache
def _wide_dtype(dtype: np.dtype) -> np.dtype | None:
    """The dtype to which `dtype` is widened; None if it is wide enough."""
    kind, name = dtype.kind, dtype.name
    if kind == "c":
        return np.dtype(np.complex128)
    if kind == "f" or name.startswith(("float8", "bfloat16")):
        return np.dtype(np.float64)
    if name in ("int4", "uint4"):
        return np.dtype(np.int8 if name == "int4" else np.uint8)
    return None


def narrow(array: Array, dtype: DType) -> Array:
    """`array`, computed in the precision of `widen`, as `dtype`: floats rounded once to nearest even, integers wrapped."""
    target = numpy_dtype(dtype)
    if array.dtype == target:
        return array
    if dtype.is_float:
        return round_float(array, dtype)
    if dtype.bits == 4:
        low = array.astype(np.int8).view(np.uint8) & 15
        wrapped = (low ^ 8).astype(np.int8) - np.int8(8) if dtype.is_signed else low
        return np.asarray(wrapped).astype(target)
    with np.errstate(all="ignore"):
        return array.astype(target)


def round_float(array: Array, dtype: DType) -> Array:
    """Floats or integers to the float `dtype`, rounded once, to nearest even; numbers beyond fp8_e4m3 become NaN.

    ml_dtypes goes through float32, which would round float64 twice: the first step rounds to odd instead.
    """
    target = numpy_dtype(dtype)
    with np.errstate(all="ignore"):
        if dtype in (F32, F64):
            return array.astype(target)
        if array.dtype.kind in "iu":
            array = _integer_to_f64_odd(array)
        if array.dtype == np.float64 and dtype is not F16:
            array = _f64_to_f32_odd(array)
        return array.astype(target)


def _integer_to_f64_odd(array: Array) -> Array:
    """Integers to float64; those that do not fit are rounded to odd in steps of 2048."""
    if array.dtype.itemsize < 8:
        return array.astype(np.float64)
    coarse = (array >> 11 | (array & 2047 != 0)) << 11
    return np.where(array.astype(np.float64).__abs__() < 2.0**53, array, coarse).astype(np.float64)


def _f64_to_f32_odd(array: Array) -> Array:
    """float64 to float32; inexact numbers get their last bit set, so that rounding again equals rounding once."""
    rounded = array.astype(np.float32)
    back = rounded.astype(np.float64)
    inexact = (back != array) & ~np.isnan(array)
    toward_zero = np.where(inexact & (np.abs(back) > np.abs(array)), np.nextafter(rounded, np.float32(0)), rounded)
    odd = (toward_zero.view(np.uint32) | np.uint32(1)).view(np.float32)
    return np.where(inexact, odd, rounded)


def cast(array: Array, source: DType, target: DType) -> Array:
    """Elementwise conversion by the contract's cast table ("DTypes and casting").

    Float to float rounds to nearest even; float to integer truncates, saturates, NaN gives 0; integer to integer
    saturates; anything to i1 is `x != 0` (NaN is 1); i1 gives 0 or 1. Complex to real raises
    Violation("DTypeNotSupported").
    """
    if source is target:
        return array
    want = numpy_dtype(target)
    if target.kind is Kind.BOOL:
        return np.asarray(widen(array) != 0)
    if source.is_complex and not target.is_complex:
        raise Violation("DTypeNotSupported", f"cast of {source} to {target} would drop the imaginary part")
    if target.is_complex:
        with np.errstate(all="ignore"):
            return widen(array).astype(want)
    if target.is_float:
        return round_float(array.astype(np.float32) if source.kind is Kind.BOOL else widen(array), target)
    if source.is_float:
        return saturate_float(widen(array), target)
    if source.kind is Kind.BOOL:
        return array.astype(np.int8).astype(want)
    return saturate_integer(widen(array), target)


def saturate_integer(array: Array, target: DType) -> Array:
    """Integers clamped into the range of the integer dtype `target`."""
    info = np.iinfo(array.dtype)
    low, high = max(target.min, int(info.min)), min(target.max, int(info.max))
    return np.asarray(np.clip(array, np.array(low, array.dtype), np.array(high, array.dtype))).astype(numpy_dtype(target))


def saturate_float(array: Array, target: DType) -> Array:
    """float64 truncated toward zero and clamped into the range of the integer dtype `target`; NaN gives 0."""
    low, high = float(target.min), float(target.max)
    with np.errstate(all="ignore"):
        whole = np.trunc(np.where(np.isnan(array), 0.0, array))
        work = np.dtype(np.uint64 if target.max > 2**63 - 1 else np.int64)
        inside = np.clip(whole, low, np.nextafter(high, 0) if target.bits == 64 else high).astype(work)
        exact = np.where(whole >= high, np.array(target.max, work), inside)
        exact = np.where(whole <= low, np.array(target.min, work), exact)
        return np.asarray(exact).astype(numpy_dtype(target))

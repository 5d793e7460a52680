"""Top-k of rows: an element and its index form one integer key, so no two keys are equal."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, I1, SI32, SI64
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.engines.numpy.steps import NARROW, Builder, Step, Workshop, declared, tensor_of

_INDEX = 32  # bits of a key that hold the index


def _top_k(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    x, dtype, axis = ins[0], tensor_of(op).dtype, op.attr("axis")
    narrow = dtype is F32 or dtype in NARROW
    fits = narrow or (dtype.is_integer and dtype.bits in (8, 16)) or dtype is SI32
    if not fits or x.size == 0 or op.attr("k") == 0 or x.shape[axis] >= 1 << 31:
        return declared(op, ins, outs, shop)
    rows = np.moveaxis(x, axis, -1)
    keys = shop.scratch(rows.shape, SI64)
    floats = shop.scratch(rows.shape, F32) if narrow else None
    flags = shop.scratch(rows.shape, I1) if narrow else None
    values, indices = (np.moveaxis(out, axis, -1) for out in outs)
    return [(_best, (rows, op.attr("largest"), keys, floats, flags, values, indices))]


def _best(
    rows: Array, largest: bool, keys: Array, floats: Array | None, flags: Array | None, values: Array, indices: Array
) -> None:
    """Write the first elements of each row in order, and their indices."""
    if floats is None or flags is None:
        np.copyto(keys, rows)
    else:
        _ordered(rows, floats, flags, keys)
    if largest:
        np.invert(keys, keys)
    np.left_shift(keys, _INDEX, keys)
    np.bitwise_or(keys, np.arange(keys.shape[-1]), keys)
    k = values.shape[-1]
    if k < keys.shape[-1]:
        keys.partition(k - 1, axis=-1)
    best = np.sort(keys[..., :k], axis=-1) & ((1 << _INDEX) - 1)
    np.copyto(indices, best, "unsafe")
    np.copyto(values, np.take_along_axis(rows, best, -1))


def _ordered(x: Array, floats: Array, flags: Array, keys: Array) -> None:
    """Integers in the order of the floats: zeros are equal, and so are NaNs, which come last."""
    np.copyto(floats, x, "unsafe")
    np.add(floats, np.float32(0), floats)
    np.isnan(floats, flags)
    bits = floats.view(np.int32)
    np.copyto(keys, bits)
    np.right_shift(bits, 31, bits)
    np.bitwise_and(bits, 0x7FFFFFFF, bits)
    np.bitwise_xor(keys, bits, keys)
    np.copyto(keys, 0x7FFFFFFF, where=flags)


BUILDERS: dict[str, Builder] = {"top-k": _top_k}

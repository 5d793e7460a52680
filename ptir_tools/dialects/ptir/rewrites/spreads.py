"""A transposed convolution whose windows do not overlap, as one product: each place sees one element of an image that was spread
with zeros between its elements, so all products but those of one tap are with zeros."""

from __future__ import annotations

from itertools import chain
from math import prod

from ptir_tools.core import arrays
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.patterns import Effect, OpView, rewrites


@rewrites("ptir.dot_general", depth=3, effect=Effect.ROUNDING)
def product_of_spread(op: OpView) -> bool:
    """Patches of a spread image times finite weights are the image times the weights of every tap, in another order."""
    patches = op.defined_by(op.lhs, "extract_patches")
    spread = op.defined_by(patches.x, "pad") if patches is not None else None
    weights = literal_of(op.rhs)
    if patches is None or spread is None or weights is None or weights.data is None or not helpers.static(spread.x, op.root):
        return False
    window, shape = patches.window, helpers.tensor_type(spread.x).static_shape
    n = len(window)
    spreads = spread.interior == (0, *(k - 1 for k in window), 0) and not any(chain(spread.low, spread.high))
    sees = patches.strides == patches.dilation == (1,) * n and patches.padding == tuple((k - 1, k - 1) for k in window)
    plain = not op.batch_lhs and op.contract_lhs == (n + 1,) and op.contract_rhs == (0,) and len(weights.type.shape) == 2
    zero = spread.pad_value.value == patches.pad_value.value == 0
    values = arrays.from_literal(weights)
    dtype = helpers.dtype(op.lhs)
    if not (spreads and sees and plain and zero and prod(window) > 1 and dtype.is_float and np.isfinite(values).all()):
        return False
    channels, columns = shape[-1], values.shape[1]
    taps = np.flip(values.reshape(*window, channels, columns), tuple(range(n)))
    taps = np.moveaxis(taps, n, 0).reshape(channels, -1)
    matrix = op.rw.build(op.root, "constant", value=arrays.to_literal(np.ascontiguousarray(taps), tensor(dtype, taps.shape)))
    attrs = op.root.defn.named(op.root.attrs)
    made = op.rw.build(op.root, "dot_general", spread.x, matrix, **attrs)
    made = op.rw.build(op.root, "reshape", made, new_shape=(*shape[:-1], *window, columns))
    pairs = chain.from_iterable((1 + i, 1 + n + i) for i in range(n))
    made = op.rw.build(op.root, "transpose", made, perm=(0, *pairs, 1 + 2 * n))
    return op.replace(op.rw.build(op.root, "reshape", made, new_shape=helpers.shape(op.root)))

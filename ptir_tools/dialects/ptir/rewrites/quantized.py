"""Quantized networks as engines run them. Products of dequantized bytes become products of bytes. Other quantizations of floats
to bytes and back become casts and arithmetic, so that they are fused with the ops around them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, SI8, SI32, UI8
from ptir_tools.core.evaluate import Context, computed
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.ops.scalars import SIGNED, Scalar
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.bytes import HALF, LEAST, MOVES, PATCHES, product_of_bytes, signed_bytes
from ptir_tools.dialects.ptir.rewrites.weights import Computed
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import Effect, OpView, rewrites

_BYTES = (SI8, UI8)
_MOST = 1 << 15  # products that are summed: their sum stays in 32 bits


@rewrites("ptir.dot_general", depth=6, effect=Effect.ROUNDING)
def product_of_quantized(op: OpView) -> bool:
    """A product of dequantized bytes and constant ones is their product in 32 bits, times their scales. It is more exact."""
    root = op.root
    if helpers.dtype(root) is not F32 or op.accum_dtype not in (None, F32) or not helpers.static(root, *root.operands):
        return False
    left, right = (_dequantized(op, x) for x in root.operands)
    depth = prod(helpers.tensor_type(op.lhs).static_shape[a] for a in op.contract_lhs)
    work = depth * prod(helpers.tensor_type(root).static_shape)
    if left is None or right is None or op.batch_lhs or work < LEAST or depth > _MOST:
        return False
    scale, zero = _numbers(left[0])
    known = Computed(op.rw, right[0].operands[0]).elements()
    if len(scale) > 1 or known is None or any(move.defn.name == PATCHES for move in right[1]):
        return False
    scales, zeros = (_moved(right, x) for x in _numbers(right[0]))
    if scales is None or zeros is None or (zeros != zeros.flat[0]).any():
        return False
    columns = scales[tuple(slice(1) if a in op.contract_rhs else slice(None) for a in range(scales.ndim))]
    if (scales != columns).any():
        return False
    attrs = root.defn.named(root.attrs) | {"accum_dtype": SI32, "out_dtype": SI32}
    if (signed := _signed(right, known, int(zeros.flat[0]))) is not None:
        made = _product_of_signed(op, left, zero[0], signed)
    else:
        shifted = [_shifted(op, *left, zero[0]), _shifted(op, *right, int(zeros.flat[0]))]
        made = op.rw.build(root, "dot_general", *shifted, **attrs)
    made = op.rw.build(root, "cast", made, dtype=F32)
    factors = (columns.astype(np.float64) * scale[0]).astype(np.float32).reshape(_free(op, columns))
    row = op.rw.build(root, "constant", value=arrays.to_literal(factors, tensor(F32, factors.shape)))
    return op.replace(op.rw.build(root, "mul", made, op.rw.build(root, "broadcast_to", row, result_shape=helpers.shape(root))))


def _signed(side: tuple[Op, list[Op]], known: Array, zero: int) -> Array | None:
    """A constant operand minus its zero point, moved, as signed bytes; None if a number does not fit."""
    shifted = known.astype(np.int32) - zero
    if not shifted.size or shifted.min() < SI8.min or shifted.max() > SI8.max:
        return None
    made: Array | None = shifted.astype(np.int8)
    for move in side[1]:
        made = None if made is None else computed(move, [made], Context())
    return made


def _product_of_signed(op: OpView, left: tuple[Op, list[Op]], zero: int, right: Array) -> Operand:
    """The product in 32 bits of bytes minus `zero`, moved, and signed bytes. Padding is `zero`, so one row corrects all sums."""
    root, (made, moves) = op.root, left
    x = made.operands[0]
    if helpers.dtype(x) is UI8:
        x, zero = signed_bytes(op, x), zero - HALF
    for move in moves:
        attrs = move.defn.named(move.attrs)
        if move.defn.name == PATCHES:
            attrs["pad_value"] = Scalar(SIGNED, zero)
        x = op.rw.build(root, move.defn, x, **attrs)
    weights = op.rw.build(root, "constant", value=arrays.to_literal(right, tensor(SI8, right.shape)))
    attrs = root.defn.named(root.attrs) | {"accum_dtype": SI32, "out_dtype": SI32}
    result = op.rw.build(root, "dot_general", x, weights, **attrs)
    if not zero:
        return result
    row = (-zero * right.sum(axis=op.contract_rhs, dtype=np.int64)).astype(np.int32)
    added = op.rw.build(root, "constant", value=arrays.to_literal(row, tensor(SI32, row.shape)))
    return op.rw.build(root, "add", result, op.rw.build(root, "broadcast_to", added, result_shape=helpers.shape(root)))


def _free(op: OpView, columns: Array) -> tuple[int, ...]:
    """The extents of the right operand's free axes."""
    return tuple(n for a, n in enumerate(columns.shape) if a not in op.contract_rhs)


def _dequantized(op: OpView, x: Operand) -> tuple[Op, list[Op]] | None:
    """The op that dequantizes bytes to f32, and the moves between it and `x`."""
    moves: list[Op] = []
    while isinstance(x, Value) and (made := op.rw.inst_of(x)) is not None:
        if made.defn.name == "ptir.dequantize":
            suits = helpers.dtype(made.operands[0]) in _BYTES and helpers.dtype(made) is F32 and made.attr("scales")
            return (made, moves[::-1]) if suits else None
        if made.defn.name not in MOVES or (made.defn.name == PATCHES and made.attr("pad_value").value != 0):
            return None
        moves.append(made)
        x = made.operands[0]
    return None


def _numbers(op: Op) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The scales and zero points of a quantization."""
    return op.attr("scales"), op.attr("zero_points") or (0,)


def _moved(side: tuple[Op, list[Op]], numbers: Sequence[float]) -> Array | None:
    """The number of each element of an operand, whose scales or zero points are given."""
    op, moves = side
    shape, axis = helpers.tensor_type(op.operands[0]).static_shape, op.attr("axis")
    given = np.asarray(numbers, np.float64)
    if len(given) > 1:
        given = given.reshape([-1 if a == axis % len(shape) else 1 for a in range(len(shape))])
    made: Array | None = np.broadcast_to(given, shape)
    for move in moves:
        made = None if made is None else computed(move, [made], Context())
    return made


def _shifted(op: OpView, made: Op, moves: Sequence[Op], zero: int) -> Operand:
    """The bytes minus their zero point, moved, in 32 bits."""
    source = made.operands[0]
    x: Operand = op.rw.build(op.root, "cast", source, dtype=SI32)
    if zero:
        one = arrays.to_literal(np.asarray(zero, np.int32), tensor(SI32))
        x = op.rw.build(op.root, "sub", x, op.rw.build(op.root, "broadcast_to", one, result_shape=helpers.shape(source)))
    for move in moves:
        attrs = move.defn.named(move.attrs)
        attrs.pop("pad_value", None)
        x = op.rw.build(op.root, move.defn, x, **attrs)
    return x


def _one(op: OpView, x: float) -> Operand:
    """A number in the shape of the result, in f32."""
    literal = arrays.to_literal(np.asarray(x, np.float32), tensor(F32))
    return op.rw.build(op.root, "broadcast_to", literal, result_shape=helpers.shape(op.root))


@rewrites("ptir.dequantize")
def parts_of_dequantize(op: OpView) -> bool:
    """Bytes to f32, by one scale that f32 has: a cast, minus the zero point, times the scale. The same bits."""
    scales, zeros = _numbers(op.root)
    suits = helpers.dtype(op.x) in _BYTES and helpers.dtype(op.root) is F32 and len(scales) == 1
    if not suits or float(np.float32(scales[0])) != scales[0] or literal_of(op.x) is not None:
        return False
    made = op.rw.build(op.root, "cast", op.x, dtype=F32)
    if zeros[0]:
        made = op.rw.build(op.root, "sub", made, _one(op, zeros[0]))
    return op.replace(op.rw.build(op.root, "mul", made, _one(op, scales[0])))


@rewrites("ptir.quantize")
def parts_of_quantize(op: OpView) -> bool:
    """f32 to bytes, by a scale of 1: rounded, plus the zero point, cast. The same bits."""
    scales, zeros = _numbers(op.root)
    if helpers.dtype(op.x) is not F32 or helpers.dtype(op.root) not in _BYTES or tuple(scales) != (1.0,):
        return False
    made = op.rw.build(op.root, "round_even", op.x)
    if zeros[0]:
        made = op.rw.build(op.root, "add", made, _one(op, zeros[0]))
    return op.replace(op.rw.build(op.root, "cast", made, dtype=helpers.dtype(op.root)))


PRODUCTS = PatternSet([product_of_quantized, product_of_bytes]).freeze()
PARTS = PatternSet([parts_of_dequantize, parts_of_quantize]).freeze()

"""Raise a product of 8-bit integers minus zero points to a product of bytes, with sums of bytes as corrections.

`(x - p) @ (w - q)` is `x @ w - p * sums(w) - sums(x) * q + k * p * q` in arithmetic that wraps. Where patches of `x - p` are
padded with 0, the sums and the count `k` are of elements that are there, one for every place. A constant `w - q` that does not
fit in signed bytes is shifted until it does. Engines have kernels for bytes; in the canonical form the ops are fewer, so this is
no canonicalization: engines run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import SI8, SI32, UI8
from ptir_tools.core.evaluate import Context, computed
from ptir_tools.core.ir import Op, Operand, Value, create
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.uniform import element_of
from ptir_tools.dialects.ptir.rewrites.weights import Computed
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.patterns import OpView, rewrites

PATCHES = "ptir.extract_patches"
MOVES = ("ptir.reshape", "ptir.transpose", "ptir.slice", PATCHES)
LEAST = 1 << 14  # products: with fewer the corrections cost more than they save
HALF = 128  # from unsigned to signed bytes


class _Shifted(NamedTuple):
    """An operand of a product: bytes, the moves of them, and the zero point that is subtracted (None: 0)."""

    source: Operand
    moves: Sequence[Op]
    zero: Operand | None

    @property
    def is_padded(self) -> bool:
        """Whether elements are added that are equal to the zero point."""
        return any(move.defn.name == PATCHES and any(map(any, move.attr("padding"))) for move in self.moves)


@rewrites("ptir.dot_general", depth=6)
def product_of_bytes(op: OpView) -> bool:
    """A product of 8-bit integers in 32 bits, with a zero point for all elements of an operand, is a product of bytes."""
    root, batch = op.root, tuple(range(len(op.batch_lhs)))
    if {helpers.dtype(x) for x in (op.lhs, op.rhs, root)} != {SI32} or op.accum_dtype not in (None, SI32):
        return False
    if not helpers.static(*root.operands) or (op.batch_lhs, op.batch_rhs) != (batch, batch) or _work(op) < LEAST:
        return False
    found = [_shifted(op, x) for x in root.operands]
    if not all(found):
        return False
    left, right = (f for f in found if f is not None)
    sums = None
    if left.is_padded or right.is_padded:
        known = Computed(op.rw, op.rhs).elements()
        is_shifted = right.zero is not None and not _ends_in_patches(op, left)
        if right.is_padded or is_shifted or batch or known is None or (sums := _sums_there(op, left, known)) is None:
            return False
    kinds = {helpers.dtype(f.source) for f in (left, right)}
    (x, p), (w, q) = (_bytes(op, f, len(kinds) > 1) for f in (left, right))
    attrs = root.defn.named(root.attrs) | {"accum_dtype": SI32, "out_dtype": SI32}
    result = op.rw.build(root, "dot_general", x, w, **attrs)
    if sums is not None:
        if p is not None:
            result = op.rw.build(root, "sub", result, _padded_term(op, p, sums))
        if q is not None:
            term = _spread(op, q, _sums_of_patches(op, x), 0)
            assert term is not None
            result = op.rw.build(root, "sub", result, term)
        return op.replace(result)
    terms = [_spread(op, p, _sums(op, 1, w), 1), _spread(op, q, _sums(op, 0, x), 0)]
    for term in terms:
        if term is not None:
            result = op.rw.build(root, "sub", result, term)
    if p is not None and q is not None:
        count = _number(op, prod(helpers.shape(op.lhs)[a] for a in op.contract_lhs))
        both = op.rw.build(root, "mul", op.rw.build(root, "mul", p, q), count)
        result = op.rw.build(root, "add", result, op.rw.build(root, "broadcast_to", both, result_shape=helpers.shape(root)))
    return op.replace(result)


def _work(op: OpView) -> int:
    """The products of a contraction."""
    depth = helpers.tensor_type(op.lhs).static_shape
    result: int = prod(helpers.tensor_type(op.root).static_shape) * prod(depth[a] for a in op.contract_lhs)
    return result


def _shifted(op: OpView, x: Operand) -> _Shifted | None:
    """`x` as moved bytes minus a zero point for all elements; None if it is something else."""
    if (literal := literal_of(x)) is not None:
        return _of_constant(op, arrays.from_literal(literal)) if literal.data is not None else None
    moves: list[Op] = []
    zero: Operand | None = None
    while isinstance(x, Value) and (made := op.rw.inst_of(x)) is not None:
        if made.defn.name in MOVES:
            if made.defn.name == PATCHES and (zero is not None or made.attr("pad_value").value != 0):
                return None
            moves.append(made)
        elif made.defn.name == "ptir.cast" and helpers.dtype(made.operands[0]) in (SI8, UI8):
            return _Shifted(made.operands[0], moves[::-1], zero)
        elif made.defn.name != "ptir.sub" or zero is not None or (zero := _one(op, made.operands[1])) is None:
            return None
        x = made.operands[0]
    return None


def _of_constant(op: OpView, x: Array) -> _Shifted | None:
    """A constant as signed bytes and a zero point; None if its numbers are too far apart."""
    if not x.size or (least := int(x.min())) + 2 * HALF <= (most := int(x.max())):
        return None
    shift = min(0, least + HALF) or max(0, most - HALF + 1)
    literal = arrays.to_literal((x - shift).astype(np.int8), tensor(SI8, x.shape))
    return _Shifted(op.rw.build(op.root, "constant", value=literal), (), _number(op, -shift) if shift else None)


def _ends_in_patches(op: OpView, left: _Shifted) -> bool:
    """Whether an operand is patches of bytes, and each is contracted as a whole."""
    return bool(left.moves) and left.moves[-1].defn.name == PATCHES and op.contract_lhs == (helpers.rank(op.lhs) - 1,)


def _sums_of_patches(op: OpView, patches: Operand) -> Operand:
    """The sums of the elements of each patch of bytes, as patches of the sums over channels."""
    made = op.rw.inst_of(patches) if isinstance(patches, Value) else None
    assert made is not None
    image, attrs = made.operands[0], made.defn.named(made.attrs)
    attrs.pop("pad_value", None)
    last = (helpers.rank(image) - 1,)
    sums = op.rw.build(op.root, "reduce_sum", image, axes=last, keepdims=True, accum_dtype=SI32, out_dtype=SI32)
    windows = op.rw.build(op.root, made.defn, sums, **attrs)
    return op.rw.build(op.root, "reduce_sum", windows, axes=last, keepdims=False)


def _sums_there(op: OpView, left: _Shifted, right: Array) -> Array | None:
    """For each place of padded patches, the sums of those elements of the constant `right` that meet no padding."""
    there: Array = np.ones(helpers.tensor_type(left.source).static_shape, np.int8)
    for move in left.moves:
        if (moved := computed(move, [there], Context())) is None:
            return None
        there = moved
    # All sums are exact in f64.
    sums = np.tensordot(there.astype(np.float64), right.astype(np.float64), (op.contract_lhs, op.contract_rhs))
    return sums.astype(np.int32)


def _padded_term(op: OpView, zero: Operand, sums: Array) -> Operand:
    """A zero point times `sums`."""
    literal = arrays.to_literal(sums, tensor(SI32, sums.shape))
    spread = op.rw.build(op.root, "broadcast_to", zero, result_shape=sums.shape)
    return op.rw.build(op.root, "mul", op.rw.build(op.root, "constant", value=literal), spread)


def _one(op: OpView, x: Operand) -> Operand | None:
    """The tensor of one element that all elements of `x` are; None if they differ, or it is not known that they do not."""
    if (element := element_of(x)) is not None:
        return element
    while (spread := op.defined_by(x, "broadcast_to") or op.defined_by(x, "reshape")) is not None:
        x = spread.x
    return x if all(n == 1 for n in helpers.shape(x)) else None


def _bytes(op: OpView, found: _Shifted, signed: bool) -> tuple[Operand, Operand | None]:
    """The moved bytes of an operand and their zero point. `signed`: unsigned bytes become signed ones, 128 less."""
    x = found.source
    zero = None if found.zero is None else op.rw.build(op.root, "reshape", found.zero, new_shape=())
    if signed and helpers.dtype(x) is UI8:
        x = signed_bytes(op, x)
        zero = op.rw.build(op.root, "sub", _number(op, 0) if zero is None else zero, _number(op, HALF))
    for move in found.moves:
        attrs = move.defn.named(move.attrs)
        attrs.pop("pad_value", None)  # the default is a zero of any dtype
        x = op.rw.build(op.root, move.defn, x, **attrs)
    return x, zero


def signed_bytes(op: OpView, x: Operand) -> Operand:
    """Unsigned bytes minus 128, as signed ones."""
    literal = arrays.to_literal(np.asarray(HALF, np.uint8), tensor(UI8))
    half = op.rw.build(op.root, "broadcast_to", literal, result_shape=helpers.shape(x))
    return op.rw.build(op.root, "bitcast", op.rw.build(op.root, "bitwise_xor", x, half), dtype=SI8)


def _number(op: OpView, n: int) -> Operand:
    return op.rw.build(op.root, "constant", value=arrays.to_literal(np.asarray(n, np.int32), tensor(SI32)))


def _sums(op: OpView, side: int, x: Operand) -> Operand:
    """The sums of an operand's bytes over the contracted axes; those of a constant of any size are computed here."""
    attrs = {"axes": (op.contract_lhs, op.contract_rhs)[side], "keepdims": False, "accum_dtype": SI32, "out_dtype": SI32}
    total = create(OPS["ptir.reduce_sum"], (x,), attrs)
    if (known := Computed(op.rw, x).elements()) is not None and (sums := computed(total, [known], Context())) is not None:
        return op.rw.build(op.root, "constant", value=arrays.to_literal(sums, helpers.tensor_type(total.results[0])))
    return op.rw.insert_before(op.root, total)


def _spread(op: OpView, factor: Operand | None, sums: Operand, side: int) -> Operand | None:
    """`factor * sums` of one operand in the shape of the product, whose free axes of the other operand are repeated."""
    if factor is None:
        return None
    shape, batch = helpers.shape(op.root), len(op.batch_lhs)
    free = helpers.rank(op.lhs) - batch - len(op.contract_lhs)
    there = [*range(batch), *(range(batch, batch + free) if side == 0 else range(batch + free, len(shape)))]
    scaled = op.rw.build(op.root, "mul", sums, op.rw.build(op.root, "broadcast_to", factor, result_shape=helpers.shape(sums)))
    units = tuple(n if i in there else 1 for i, n in enumerate(shape))
    return op.rw.build(op.root, "broadcast_to", op.rw.build(op.root, "reshape", scaled, new_shape=units), result_shape=shape)

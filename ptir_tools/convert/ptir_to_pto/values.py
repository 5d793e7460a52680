"""Values in a block, and the element types in which a target computes."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ptir_tools.convert.ptir_to_pto.kernel import element
from ptir_tools.core.dtypes import BF16, F16, F32, FP8_E4M3, FP8_E5M2, INDEX, SI8, SI16, SI32, UI8, UI16, UI32, DType
from ptir_tools.core.ir import Literal, Operand, Value, operand_type
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import UNKNOWN, Dim, TensorType, Type, tensor
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.structure import tile_type
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import MemRefType, ScalarType, TileType, memref, scalar

# Wider element types, which have every value of the narrower ones and round or wrap to the same results.
_WIDER = {
    **dict.fromkeys((F16, BF16, FP8_E4M3, FP8_E5M2), (F32,)),
    **dict.fromkeys((SI8, UI8), (SI16, SI32)),
    **dict.fromkeys((SI16, UI16), (SI32,)),
}


@dataclass(slots=True, frozen=True)
class BlockValue:
    """A value in the current block: a tile of the block's rows and columns, of one of them, or a scalar."""

    kind: str
    value: Value

    @property
    def dtype(self) -> DType:
        """The element type."""
        return dtype_of(self.value)


def dtype_of(x: Operand) -> DType:
    """The element type of a tile, memref, scalar or literal."""
    t = operand_type(x)
    assert isinstance(t, (TileType, MemRefType, ScalarType, TensorType))
    return t.dtype


def tile_of(x: Operand) -> TileType:
    """The type of a tile."""
    return tile_type(x)


def elements_of(x: Operand) -> int:
    """The number of elements of a tile."""
    return prod(n for n in tile_of(x).shape if isinstance(n, int))


def number(n: int) -> Literal:
    """A literal index."""
    return integer(n, INDEX)


def one(x: Literal) -> Literal:
    """A splat as the literal of rank 0."""
    return Literal(tensor(x.type.dtype, ()), (x.data or b"")[: x.type.dtype.size])


def memory_type(v: Value, number: bool) -> Type:
    """The type of a value outside of kernels: a memref, or a scalar for a number. A memref has one element at least."""
    t = v.type
    assert isinstance(t, TensorType)
    return scalar(t.dtype) if number else memref(element(t), opened(t.shape) if t.shape and 0 not in t.shape else (1,))


def opened(shape: Iterable[Dim]) -> tuple[Dim, ...]:
    """A shape as memory states it: `?` for a symbol."""
    return tuple(n if isinstance(n, int) else UNKNOWN for n in shape)


def wider(target: Target, short: str, dtype: DType) -> DType:
    """The element type in which a target has a tile op for `dtype`: a wider one if needed, else `dtype`."""
    allowed = element_types(target).get(short)
    if allowed is None or short == "cvt" or DTYPE_TEXT[dtype] in allowed:
        return dtype
    return next((w for w in _WIDER.get(dtype, ()) if DTYPE_TEXT[w] in allowed), dtype)


# Integers without a sign as those with one, of the same bits: ops that make the same bits of both, and those that compare, for
# which the highest bit is turned over.
SIGNED = {UI8: SI8, UI16: SI16, UI32: SI32}
_OF_BITS = frozenset(
    (
        *("add", "adds", "sub", "subs", "mul", "muls", "expands", "and", "ands", "or", "ors", "xor", "xors", "not", "shl"),
        *("shls", "colsum", "colprod"),
    )
)
ORDERED = frozenset(("max", "maxs", "min", "mins", "colmax", "colmin", "cmp", "cmps"))


def signed(target: Target, short: str, dtype: DType) -> DType | None:
    """The signed elements in which a target computes an op that it lacks for unsigned `dtype`; None where it has it."""
    allowed, other = element_types(target).get(short), SIGNED.get(dtype)
    if allowed is None or other is None or DTYPE_TEXT[dtype] in allowed or short not in _OF_BITS | ORDERED:
        return None
    return other if DTYPE_TEXT[wider(target, short, other)] in allowed else None

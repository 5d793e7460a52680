"""What a value is in a block, and the element types that a target computes in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptir_tools.convert.ptir_pto_kernel import element
from ptir_tools.core.dtypes import BF16, F16, F32, INDEX, SI8, SI16, SI32, UI8, UI16, DType
from ptir_tools.core.ir import Literal, Operand, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import TensorType, TileType, Type, memref, scalar, tensor, tile
from ptir_tools.dialects.pto.literals import integer
from ptir_tools.dialects.pto.names import DTYPE_TEXT

if TYPE_CHECKING:
    from ptir_tools.convert.ptir_pto_emit import Emit

# Where a target does not compute in elements of one type: those that hold every value of it, and round or wrap to the same.
_WIDER = {F16: (F32,), BF16: (F32,), SI8: (SI16, SI32), UI8: (SI16, SI32), SI16: (SI32,), UI16: (SI32,)}


@dataclass(slots=True, frozen=True)
class Piece:
    """A value in the block at hand: a tile of the frame's rows and columns, of one of them, or a scalar."""

    kind: str
    value: Value

    @property
    def dtype(self) -> DType:
        """The element type."""
        found: DType = self.value.type.dtype  # type: ignore[attr-defined]
        return found


def number(n: int) -> Literal:
    """A literal index."""
    return integer(n, INDEX)


def one(x: Literal) -> Literal:
    """A splat as the literal of rank 0."""
    return Literal(tensor(x.type.dtype, ()), (x.data or b"")[: x.type.dtype.size])


def memory_type(v: Value) -> Type:
    """What stands for a value outside of kernels: a memref, for a parameter of rank 0 a scalar."""
    t = v.type
    assert isinstance(t, TensorType)
    return scalar(t.dtype) if v.op is None and not t.shape else memref(element(t), t.shape or (1,))


def widened(emit: Emit, short: str, dtype: DType, operands: Sequence[Operand]) -> tuple[list[Operand], DType]:
    """The operands of a tile op and its result's element type: converted where the target has the op in wider ones alone."""
    tiles = [x.type for x in operands if isinstance(x, Value) and isinstance(x.type, TileType)]
    computed = tiles[short == "sel"].dtype if tiles else dtype
    allowed = emit.target.dtypes.get(short)
    if allowed is None or short == "cvt" or DTYPE_TEXT[computed] in allowed:
        return list(operands), dtype
    wide = next((w for w in _WIDER.get(computed, ()) if DTYPE_TEXT[w] in allowed), None)
    if wide is None:
        return list(operands), dtype
    made: list[Operand] = [_as(emit, x, wide) if operand_type(x).dtype is computed else x for x in operands]  # type: ignore[attr-defined]
    if short == "sel":
        made[0] = operands[0]
    return made, wide if dtype is computed else dtype


def _as(emit: Emit, x: Operand, wide: DType) -> Value:
    """A tile or scalar in wider elements."""
    t = operand_type(x)
    if isinstance(t, TileType):
        return emit.builder.op("tile.cvt", x, [], [], to=tile(wide, t.shape), name=emit.name)
    return emit.builder.op("extf" if wide.is_float else "extsi", x, to=scalar(wide), name=emit.name)

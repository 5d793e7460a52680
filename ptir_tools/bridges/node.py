"""The op of another format that is translated, as its handler sees it. Formats add the reading of attributes and types."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import np
from ptir_tools.core.source import Loc, Source
from ptir_tools.core.types import Dim, Shape, TensorType, tensor
from ptir_tools.dialects.ptir.builder.build import Block, Tensor
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.rewrite.expression import Number


def results_of(x: Tensor) -> list[Tensor]:
    """The results of an op: the elements of a tuple, or the one tensor."""
    return [x] if isinstance(x.type, TensorType) else [*x]


class Place:
    """The source location that appended ops get: that of the op at work."""

    def __init__(self, source: Source | None = None) -> None:
        self.source = source
        self.loc: Loc = 0

    def place(self, _: object, /) -> Loc:
        """The location of the op at work."""
        return self.loc


class Node:
    """An op called `name` in its format, and the block of PTIR that gets the ops of its translation."""

    def __init__(self, name: str, block: Block) -> None:
        self.name, self.block = name, block

    def op(self, name: str, *operands: object, **attrs: object) -> Tensor:
        """Append an op of PTIR. Raises Violation."""
        return self.block.op(name, *operands, **attrs)  # type: ignore[arg-type]

    def constant(self, values: object, dtype: DType | None = None) -> Tensor:
        """A constant of the elements of an array, number or list, of the array's dtype by default."""
        return self.block.constant(np.asarray(values), dtype)

    def full(self, number: Number | np.generic | Array, t: TensorType) -> Tensor:
        """A tensor of type `t`, all elements `number`, wrapped or rounded to the dtype."""
        one = np.asarray(number)
        if one.dtype != arrays.numpy_dtype(t.dtype):
            one = scalars.element(scalars.Scalar(scalars.natural_kind(t.dtype), one.item()), t.dtype)
        return self.splat(arrays.to_literal(one, tensor(t.dtype)), t.shape)

    def splat(self, one: Literal, shape: Shape) -> Tensor:
        """The scalar literal `one` in `shape`."""
        return self.op("broadcast_to", Tensor(self.block, one), result_shape=shape) if shape else self.op("constant", value=one)

    def iota(self, shape: Sequence[Dim], dtype: DType, axis: int) -> Tensor:
        """0, 1, 2, … along an axis."""
        return self.op("iota", shape=tuple(shape), dtype=dtype, axis=axis)

    def concat(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors joined along an axis."""
        return self.op("concat", xs, axis=axis)

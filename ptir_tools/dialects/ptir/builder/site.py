"""Formulas before an op of a program that is rewritten: the rewriter as a sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import F32, F64, SI64, DType
from ptir_tools.core.ir import Argument, Attribute, Op, OpDef, Operand, Region, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType, Type, tensor
from ptir_tools.dialects.ptir.builder.build import Block, Tensor
from ptir_tools.rewrite.expression import Number
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.vocabulary import tensor_type


class Site(Block):
    """Builds ops without regions before `root`, which they replace. Formulas compute integers in no wider dtype than `widest`."""

    def __init__(self, root: Op, rw: Rewriter, widest: DType = SI64) -> None:
        self.root, self.rw, self.widest = root, rw, widest

    def __call__(self, x: Operand) -> Tensor:
        """An operand of the program as a value of formulas."""
        return Tensor(self, x)

    @property
    def operands(self) -> list[Tensor]:
        """The operands of the root."""
        return [self(x) for x in self.root.operands]

    @property
    def result(self) -> TensorType:
        """The type of the root's result, which is a tensor."""
        return tensor_type(self.root)

    def replace(self, made: Tensor) -> None:
        """Replace the root by `made`."""
        self.rw.replace_all_uses(self.root.result, made.operand)
        self.rw.erase(self.root)

    def built(
        self,
        defn: OpDef,
        operands: Sequence[Argument],
        attrs: Mapping[str, Attribute],
        regions: Sequence[Region],
        types: Sequence[Type] | None,
    ) -> Value:
        """The result of a new op before the root."""
        return self.rw.build(self.root, defn, *operands, types=types, regions=regions, **attrs)

    def whole(self) -> AbstractContextManager[None]:
        """No context: an op that is not well typed is not inserted."""
        return nullcontext()

    def fitted(self, operands: list[Tensor]) -> list[Tensor]:
        """The operands as they are: nothing is broadcast."""
        return operands

    def filled(self, value: Number, t: TensorType) -> Tensor:
        """A constant of type `t`, all of whose elements are `value`, rounded to its dtype."""
        with np.errstate(all="ignore"):  # a format may have no infinity
            one = np.asarray(value).astype(arrays.numpy_dtype(t.dtype))
        return self(self.rw.materialize_constant(self.root, arrays.to_literal(one, tensor(t.dtype)))).broadcast_to(t.shape)


def wide(dtype: DType) -> DType:
    """The dtype in which formulas of floats are computed: f32 for narrower ones."""
    return F64 if dtype is F64 else F32


def cast(x: Tensor, dtype: DType) -> Tensor:
    """`x` in another dtype."""
    return x if x.dtype is dtype else x.cast(dtype)

"""Typed views of PTIR's ops, for patterns in Python. Specification: PTIR rewrite system, "Typed trait", "Optional mini prelude".

A view gives the operands and attributes of an op as typed fields. `OpRef` is the view of any op.
"""

from __future__ import annotations

from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.typed import TypeVar
from ptir_tools.core.types import Shape
from ptir_tools.rewrite.patterns import OpView

V = TypeVar("V", bound=OpView)


class OpRef(OpView):
    """Any op."""

    __slots__ = ()

    def as_view(self, view: type[V]) -> V | None:
        """The op as that view; None when it is another op."""
        return view(self.root, self.rw) if view.covers(self.root) else None

    def definition(self, x: Operand) -> OpRef | None:
        """The op that defines `x`; None for a parameter, a literal or an element of a tuple."""
        op = x.op if isinstance(x, Value) else None
        return None if op is None else OpRef(op, self.rw)

    def as_broadcast(self) -> BroadcastView | None:
        """The op as a `broadcast_to`."""
        return self.as_view(BroadcastView)

    def as_unary(self) -> UnaryView | None:
        """The op as one of the elementwise ops on one operand."""
        return self.as_view(UnaryView)


class CastView(OpRef):
    """`cast(x, dtype)`."""

    __slots__ = ()
    of = ("ptir.cast",)
    x: Operand
    dtype: DType


class TransposeView(OpRef):
    """`transpose(x, perm)`."""

    __slots__ = ()
    of = ("ptir.transpose",)
    x: Operand
    perm: tuple[int, ...]


class ReshapeView(OpRef):
    """`reshape(x, new_shape)`."""

    __slots__ = ()
    of = ("ptir.reshape",)
    x: Operand
    new_shape: Shape


class BroadcastView(OpRef):
    """`broadcast_to(x, result_shape)`."""

    __slots__ = ()
    of = ("ptir.broadcast_to",)
    x: Operand
    result_shape: Shape


class UnaryView(OpRef):
    """An elementwise op on one operand; `kind` is its name."""

    __slots__ = ()
    of = ("ptir.elementwise_unary",)
    x: Operand


class BinaryView(OpRef):
    """An elementwise op on two operands; `kind` is its name."""

    __slots__ = ()
    of = ("ptir.elementwise_binary",)
    x: Operand
    y: Operand

"""Constants in the layout and dtype that steps read: converted once, and stored instead of the literal's bytes.

All sessions of a program share a converted constant. If it has all bits of the elements, the literal frees its bytes and
recomputes them on demand.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.dtypes import DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.strides import dense_strides
from ptir_tools.core.typed import Any, Protocol
from ptir_tools.core.types import TensorType
from ptir_tools.engines.numpy.steps import Workshop
from ptir_tools.engines.thresholds import at
from ptir_tools.plan.search import kernel
from ptir_tools.rewrite.vocabulary import tensor_type


class Conversion(Protocol):
    """How a constant operand is converted: a named tuple of everything that the result depends on, besides the elements. So it
    is the key of the result."""

    @property
    def dtype(self) -> DType:
        """The dtype of the result's elements."""

    def converted(self, x: Array) -> Array:
        """The elements of the operand, converted."""

    def restored(self, x: Array) -> Array:
        """The operand's elements, from the converted ones."""


class Constant(NamedTuple):
    """A literal as an operand: shape, strides in elements, and the offset of the first element."""

    literal: Literal
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int

    @property
    def like(self) -> Array:
        """An array of its dtype, shape and strides without memory, only for inspection."""
        one = np.empty(1, numpy_dtype(self.literal.type.dtype))
        return arrays.strided(one, self.shape, [n * one.itemsize for n in self.strides])

    @property
    def is_whole(self) -> bool:
        """Whether the operand has every element of the literal once."""
        axes = sorted((stride, n) for n, stride in zip(self.shape, self.strides, strict=True) if n != 1)
        expected = 1
        for stride, n in axes:
            if stride != expected:
                return False
            expected *= n
        return self.start == 0 and expected == self.literal.type.count

    def once(self, how: Conversion, look: Callable[[], Data], shop: Workshop) -> Array:
        """The converted constant, made once and kept by the program of `shop`; `look` gives the elements."""
        key = (self.shape, self.strides, self.start, type(how), how)
        return shop.kept((self.literal, key), lambda: self.shared(key, how, look))

    def shared(self, key: Hashable, how: Conversion, look: Callable[[], Data]) -> Array:
        """The converted constant, which all programs share."""
        literal, dtype = self.literal, how.dtype
        forms = literal.forms
        if forms is None:
            forms = literal.forms = weakref.WeakValueDictionary()
        result: Array | None = forms.get(key)
        if result is None:
            settle()  # see `_Freed`
            forms[key] = result = how.converted(look())
        if isinstance(literal.payload, bytes) and self.is_whole and _is_worth(literal) and _is_kept(literal, dtype):
            order = sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis])
            _freed.pending += literal.type.nbytes
            literal.keep(partial(_bytes, result, how, order, literal.type))
        return result


class _Freed:
    """Freed literals leave free pages in the heap. The C library returns them to the system only on request."""

    def __init__(self) -> None:
        self.pending = 0

    def now(self) -> None:
        """Return free memory to the system."""
        self.pending = 0
        if (extension := kernel()) is not None:
            extension.trim()


_freed = _Freed()


def settle() -> None:
    """Return the freed memory of literals to the system if it is large. Literals that are being packed still have their bytes."""
    if _freed.pending >= at.trimmed:
        _freed.now()


def _is_worth(literal: Literal) -> bool:
    return not literal.splat and literal.type.nbytes >= at.freed_literal


def _is_kept(literal: Literal, dtype: DType) -> bool:
    """Whether another dtype keeps all bits; there the bits of a NaN may change."""
    own = literal.type.dtype
    if dtype is own or own.bits > dtype.bits:
        return dtype is own
    with np.errstate(invalid="ignore"):  # a signaling NaN
        return not np.isnan(arrays.from_literal(literal)).any()


def _bytes(result: Array, how: Conversion, order: Sequence[int], t: TensorType) -> bytes:
    return arrays.pack(how.restored(result).astype(numpy_dtype(t.dtype), copy=False).transpose(order), t.dtype)


def constant(x: Operand) -> Constant | None:
    """The constant of an operand, also through views; None for any other operand, and for a view that needs a copy."""
    chain: list[Op] = []
    while isinstance(x, Value) and x.op is not None and x.op.defn.view is not None:
        chain.append(x.op)
        x = x.op.operands[0]
    if isinstance(x, Value) and x.op is not None and x.op.defn.is_constant:
        x = x.op.attr("value")
    if not isinstance(x, Literal):
        return None
    shape = tensor_type(x).static_shape
    strides, start = dense_strides(shape), 0
    for op in reversed(chain):
        out = tensor_type(op.result).static_shape
        assert op.defn.view is not None
        if (result := op.defn.view.seen(op, shape, strides, out)) is None:
            return None
        start, shape, strides = start + result[0], out, tuple(result[1])
    return Constant(x, shape, strides, start)


class Operands(Sequence[Data]):
    """The operands of an op, each looked up on first use, since the bytes of a constant may not be needed."""

    def __init__(self, op: Op, data: Callable[[Operand], Data]) -> None:
        self.op, self.look_up = op, data
        self.sources: dict[int, Data] = {}

    def __len__(self) -> int:
        return len(self.op.operands)

    def __getitem__(self, i: Any) -> Data:
        operand = self.op.operands[i]
        if i not in self.sources:
            self.sources[i] = self.look_up(operand)
        return self.sources[i]

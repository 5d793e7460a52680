"""Types of PTO and their text (PTO IR, section 2). `text.types` reads them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ptir_tools.core.dtypes import I1, INDEX, DType
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import (
    UNKNOWN,
    Dim,
    NumericType,
    Shape,
    ShapedType,
    TensorType,
    Type,
    agree,
    dims_text,
    interned,
    same_extents,
)
from ptir_tools.dialects.pto import names


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class ScalarType(NumericType):
    """One number: `index` or an element type."""

    def __str__(self) -> str:
        return str(self.dtype)


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class TileType(ShapedType):
    """An on-chip tile. `loc`, `layout` and `valid` are None where they are left to inference."""

    loc: str | None = None
    layout: str | None = None
    valid: Shape | None = None

    def __str__(self) -> str:
        info = [f"loc={self.loc}"] * bool(self.loc) + [f"layout={self.layout}"] * bool(self.layout)
        if self.valid is not None:
            info.append(f"valid=[{', '.join(map(str, self.valid))}]")
        return f"tile<{dims_text(self.shape)}x{self.dtype}{', ' * bool(info)}{', '.join(info)}>"

    def with_shape(self, shape: Iterable[Dim]) -> TileType:
        return tile(self.dtype, shape, self.loc, self.layout, self.valid)

    def agrees(self, other: Type) -> bool:
        if not isinstance(other, TileType) or not ShapedType.agrees(self, other):
            return False
        return all(agree(getattr(self, part), getattr(other, part)) for part in ("loc", "layout", "valid"))


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class MemRefType(ShapedType):
    """A view of memory. `strides` None is row-major; an UNKNOWN stride or offset is `?`."""

    space: str | None = None
    layout: str | None = None
    strides: Shape | None = None
    offset: Dim | None = None

    def __str__(self) -> str:
        strided = "" if self.strides is None else f", strided<{list(self.strides)}, offset: {self.offset}>"
        return f"memref<{dims_text(self.shape)}x{self.dtype}{strided}>"

    @property
    def is_memory(self) -> bool:
        return True

    def with_shape(self, shape: Iterable[Dim]) -> MemRefType:
        return memref(self.dtype, shape, self.space, self.layout, self.strides, self.offset)

    def agrees(self, other: Type) -> bool:
        if not isinstance(other, MemRefType) or not ShapedType.agrees(self, other):
            return False
        return agree(self.space, other.space) and same_strides(self, other)


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class EventType(Type):
    """A token of the completion of its producer."""

    producer: str | None = None
    scope: str | None = None
    eid: int | None = None

    def __str__(self) -> str:
        return f"event<{self.producer}>"

    def agrees(self, other: Type) -> bool:
        return isinstance(other, EventType) and agree(self.producer, other.producer)


def same_strides(a: MemRefType, b: MemRefType) -> bool:
    """Whether two views have the same strides and offset, where both state them."""
    strides = a.strides is None or b.strides is None or same_extents(a.strides, b.strides)
    return strides and (agree(a.offset, b.offset) or UNKNOWN in (a.offset, b.offset))


def scalar(dtype: DType) -> ScalarType:
    """The scalar type of `dtype`."""
    return interned(ScalarType, dtype)


def tile(
    dtype: DType,
    shape: Iterable[Dim],
    loc: str | None = None,
    layout: str | None = None,
    valid: Iterable[Dim] | None = None,
) -> TileType:
    """The tile type with these parts."""
    return interned(TileType, dtype, tuple(shape), loc, layout, None if valid is None else tuple(valid))


def memref(
    dtype: DType,
    shape: Iterable[Dim],
    space: str | None = None,
    layout: str | None = None,
    strides: Iterable[Dim] | None = None,
    offset: Dim | None = None,
) -> MemRefType:
    """The memref type with these parts."""
    return interned(MemRefType, dtype, tuple(shape), space, layout, None if strides is None else tuple(strides), offset)


def event(producer: str | None = None, scope: str | None = None, eid: int | None = None) -> EventType:
    """The event type with these parts."""
    return interned(EventType, producer, scope, eid)


INDEX_TYPE = scalar(INDEX)


@cache
def scalar_dtype(t: Type) -> DType | None:
    """The element type of a scalar, else None."""
    return t.dtype if isinstance(t, ScalarType) or (isinstance(t, TensorType) and not t.shape) else None


@cache
def is_integer(t: Type) -> bool:
    """Whether a type is that of integers, `index` too; i1 is none."""
    dtype = scalar_dtype(t)
    return dtype is not None and dtype.is_integer and dtype is not I1


# To text


def _dims(shape: Iterable[Dim]) -> str:
    return "x".join(str(d) if isinstance(d, int) else "?" for d in shape)


def _list(shape: Iterable[Dim]) -> str:
    return f"[{', '.join(str(d) if isinstance(d, int) else '?' for d in shape)}]"


@cache
def type_text(t: Type) -> str:
    """The type as PTO IR spells it."""
    if isinstance(t, ScalarType):
        return names.DTYPE_TEXT.get(t.dtype, t.dtype.name)
    if isinstance(t, TileType):
        info = [f"{k}={v}" for k, v in (("loc", t.loc), ("layout", t.layout)) if v]
        info += [] if t.valid is None else [f"valid={_list(t.valid)}"]
        more = f", #pto.tile_info<{', '.join(info)}>" if info else ""
        return f"tile<{_dims(t.shape)}x{names.DTYPE_TEXT[t.dtype]}{more}>"
    if isinstance(t, MemRefType):
        return _memref_text(t)
    if isinstance(t, EventType):
        parts = [f"producer = #pto.op<{t.producer}>"] if t.producer else []
        parts += [f"scope = #pto.scope<{t.scope}>"] if t.scope else []
        parts += [] if t.eid is None else [f"eid = {t.eid}"]
        return f"!pto.event<{', '.join(parts)}>" if parts else "!pto.event"
    if isinstance(t, TensorType):  # the vector of mrgsort's counts, and literal operands
        element = names.DTYPE_TEXT.get(t.dtype, t.dtype.name)
        return f"vector<{_dims(t.shape)}x{element}>" if t.shape else element
    return str(t)


def _memref_text(t: MemRefType) -> str:
    info = [f"space = #pto.space<{t.space}>"] if t.space else []
    info += [f"layout = #pto.layout<{t.layout}>"] if t.layout else []
    more = f", {{{', '.join(info)}}}" if info else ""
    if t.strides is not None:
        offset = "" if t.offset == 0 else f", offset: {'?' if t.offset is UNKNOWN else t.offset}"
        more += f", strided<{_list(t.strides)}{offset}>"
    return f"pto.memref<{_dims(t.shape)}x{names.DTYPE_TEXT[t.dtype]}{more}>"


def is_event(t: Type) -> bool:
    """Whether values of the type are events."""
    return isinstance(t, EventType)

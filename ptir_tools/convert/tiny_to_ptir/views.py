"""Index maps of Tiny in PTIR: `take` with constant indices, one source axis at a time where the map lets it.

A map in which every result axis serves at most one source axis (windows, strides, reversal, repetition) is split: each
entry becomes a `take` along its own axis with an index constant as small as its own axes. Any other (a diagonal, a reshape
by `//` and `%`) becomes one `take` from the flattened source. Guards that say no more than that a read lies inside the source
become a `pad` of it; others select between what is taken and the fill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ptir_tools.convert.emitter import tensor_type
from ptir_tools.convert.to_ptir import PtirEmit
from ptir_tools.core.arrays import Array, to_literal
from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.dtypes import I1, SI32, SI64, DType
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.types import Dim, Shape, TensorType, tensor
from ptir_tools.dialects.ptir.ops.scalars import Scalar, natural_kind
from ptir_tools.dialects.tiny.expressions import Poly, constant, names, parse
from ptir_tools.dialects.tiny.immediates import as_array, immediate
from ptir_tools.dialects.tiny.ops.view import axes_of, axis_name

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")


def view(emit: PtirEmit, x: Operand, entries: Sequence[str], guards: Sequence[str] = (), fill: float = 0) -> Value:
    """The instructions for a VIEW of `x` with these expressions over the result's axes `@k`.

    Raises Violation("UnboundSymbol") where a number is needed: everywhere but on axes that are passed on whole.
    """
    source = tensor_type(x)
    maps, conditions = [parse(e) for e in entries], [parse(g) for g in guards]
    for p in (*maps, *conditions):
        if missing := names(str(p)):
            raise unbound(missing, "the index map")
    if 0 in source.shape and 0 not in emit.shape:
        return emit.last("broadcast_to", immediate(fill, emit.type.dtype), result_shape=emit.shape)
    used = [a for p in maps for a in axes_of(p)]
    read = _by_axis if len(used) == len(set(used)) else _flat
    if conditions and read is _by_axis and (widths := _widths(source, emit.type, maps, conditions)) is not None:
        low, high = zip(*widths, strict=True)
        x = emit("pad", x, low=low, high=high, pad_value=rounded(fill, emit.type.dtype))
        maps, conditions = [p + constant(n) for p, n in zip(maps, low, strict=True)], []
    if not conditions:
        return read(emit, x, maps, emit.last)
    inside = read(emit, x, maps, emit)
    outside = emit("broadcast_to", immediate(fill, emit.type.dtype), result_shape=emit.shape)
    return emit.last("select", _mask(emit, conditions), inside, outside)


def rounded(value: float, dtype: DType) -> Scalar:
    """The value of a pad, rounded to the dtype here, as Tiny rounds it."""
    if not (dtype.is_integer or dtype.is_float):
        return Scalar(natural_kind(dtype), bool(value))
    return Scalar(natural_kind(dtype), as_array(value, dtype).astype(object if dtype.is_integer else float).item())


def unbound(missing: Sequence[str], what: str) -> Violation:
    """The refusal of a node whose translation needs a number."""
    help = f"give it with {' '.join(f'--bind {n}=INT' for n in missing)}"
    return Violation("UnboundSymbol", f"{what} needs a value for {', '.join(missing)}", help=help)


def numbers(what: str, dims: Sequence[Dim]) -> tuple[int, ...]:
    """`dims`, which are numbers. Raises Violation("UnboundSymbol")."""
    missing = [n for d in dims if not isinstance(d, int) for n in names(d.name)]
    if missing:
        raise unbound(list(dict.fromkeys(missing)), what)
    return tuple(d for d in dims if isinstance(d, int))


def _extents(shape: Shape, axes: Sequence[int]) -> tuple[int, ...]:
    return numbers("the index map", [shape[a] for a in axes])


def _values(p: Poly, axes: Sequence[int], extents: tuple[int, ...]) -> Array:
    """The values of `p` at every point of a box over `axes`."""
    grid = np.ogrid[tuple(slice(n) for n in extents)] if axes else ()
    found = p.evaluate({axis_name(a): g for a, g in zip(axes, grid, strict=True)})
    return np.broadcast_to(np.asarray(found, np.int64), extents)


def _indices(emit: PtirEmit, array: Array, extent: int) -> Value:
    """A constant of indices below `extent`; those that a guard excludes are moved inside."""
    dtype = SI32 if extent <= 1 << 31 else SI64
    inside = np.clip(array, 0, max(extent - 1, 0))
    return emit("constant", value=to_literal(inside, tensor(dtype, array.shape)))


def _widths(x: TensorType, result: TensorType, maps: list[Poly], guards: list[Poly]) -> list[tuple[int, int]] | None:
    """By how much the source is padded before and after on each axis so that no guard is needed. None when the guards
    exclude more or less than what lies outside, and when the padded source would be larger than source and result."""
    shape = result.shape
    source = [n for n in x.shape if isinstance(n, int)]
    extents = [n for n in shape if isinstance(n, int)]
    if len(source) < len(maps) or len(extents) < len(shape) or 0 in extents:
        return None
    widths, seen = [], 0
    for n, p in zip(source, maps, strict=True):
        axes = axes_of(p)
        own = [g for g in guards if axes_of(g) and set(axes_of(g)) <= set(axes)]
        reads = _values(p, axes, _extents(shape, axes))
        if own and not np.array_equal((reads >= 0) & (reads < n), _holds(own, axes, reads.shape)):
            return None
        widths.append((max(0, -int(reads.min())), max(0, int(reads.max()) - n + 1)))
        seen += len(own)
    size = prod(n + low + high for n, (low, high) in zip(source, widths, strict=True))
    return widths if seen == len(guards) and size <= prod(source) + prod(extents) else None


def _by_axis(emit: PtirEmit, x: Any, maps: list[Poly], last: Callable[..., Value]) -> Value:
    """Take along one source axis after another; `order` lists the result axes that the axes so far are."""
    shape, source = emit.shape, x.type.shape
    whole = [n for n, p in enumerate(maps) if any(str(p) == axis_name(a) and source[n] == shape[a] for a in axes_of(p))]
    order: list[int] = []
    indexed = [n for n in range(len(maps)) if n not in whole]
    in_place = [a for p in maps for a in axes_of(p)] == list(range(len(shape)))
    for n, p in enumerate(maps):
        axes, at = axes_of(p), len(order)
        if n not in whole:
            make = last if in_place and n == indexed[-1] else emit
            x = _gathered(emit, x, at, _values(p, axes, _extents(shape, axes)), _extents(source, [n])[0], make)
        order.extend(axes)
    return x if in_place and indexed else _arranged(emit, x, order, last)


def _gathered(emit: PtirEmit, x: Any, at: int, indices: Array, extent: int, make: Callable[..., Value]) -> Value:
    """`x` with axis `at` replaced by the axes of `indices`; `make` makes the last instruction."""
    rank, k = x.type.rank, indices.ndim
    if at == 0:
        return make("take", x, _indices(emit, indices, extent))
    front = emit("transpose", x, perm=(at, *(i for i in range(rank) if i != at)))
    rows = emit("take", front, _indices(emit, indices, extent))
    return make("transpose", rows, perm=(*range(k, k + at), *range(k), *range(k + at, k + rank - 1)))


def _arranged(emit: PtirEmit, x: Any, order: list[int], last: Callable[..., Value]) -> Value:
    """Axes in the order of the result, and those of the result that no entry mentions repeated."""
    shape = emit.shape
    wanted = sorted(order)
    whole = len(order) == len(shape)
    if order != wanted:
        make = last if whole else emit
        x = make("transpose", x, perm=tuple(order.index(a) for a in wanted))
    elif whole:
        return last("reshape", x, new_shape=shape)
    if whole:
        return x  # type: ignore[no-any-return]
    thin = emit("reshape", x, new_shape=tuple(d if i in wanted else 1 for i, d in enumerate(shape)))
    return last("broadcast_to", thin, result_shape=shape)


def _flat(emit: PtirEmit, x: Any, maps: list[Poly], last: Callable[..., Value]) -> Value:
    """One take from the flattened source."""
    extents = _extents(x.type.shape, range(x.type.rank))
    shape = _extents(emit.shape, range(emit.type.rank))
    axes = range(len(shape))
    linear = np.zeros(shape, np.int64)
    for n, p in zip(extents, maps, strict=True):
        linear = linear * n + np.clip(_values(p, axes, shape), 0, max(n - 1, 0))
    count = int(np.prod(extents, dtype=object))
    flat = emit("reshape", x, new_shape=(count,))
    return last("take", flat, _indices(emit, linear, count))


def _mask(emit: PtirEmit, guards: list[Poly]) -> Value:
    """Whether every guard holds, in the result's shape: a constant over the axes that guards mention, broadcast."""
    shape = emit.shape
    axes = sorted({a for g in guards for a in axes_of(g)})
    extents = _extents(shape, axes)
    holds = _holds(guards, axes, extents)
    thin = tuple(n if i in axes else 1 for i, n in enumerate(shape))
    constant = emit("constant", value=to_literal(holds.reshape(thin), tensor(I1, thin)))
    return emit("broadcast_to", constant, result_shape=shape)


def _holds(guards: list[Poly], axes: Sequence[int], extents: tuple[int, ...]) -> Array:
    """At which points of a box over `axes` every guard holds."""
    holds = np.ones(extents, np.bool_)
    for g in guards:
        holds = holds & (_values(g, axes, extents) >= 0)
    return holds

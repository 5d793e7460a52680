"""Raise lowered padding and windows to `pad`, `extract_patches` and `reduce_window`, and a maximum by halves to `reduce_max`."""

from __future__ import annotations

from math import prod

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.ir import Attribute, Literal, Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.patterns import Effect, OpView, Pattern, rewrites

Ints = tuple[int, ...]


@rewrites("ptir.reshape", operands=["ptir.pad"], depth=3)
def raise_pad(op: OpView) -> bool:
    """A pad between a reshape that joins axes and one that splits them is a pad of the first of each."""
    pad = op.defined_by(op.x, "pad")
    view = op.defined_by(pad.x, "reshape") if pad is not None else None
    if pad is None or view is None or any(pad.interior) or not helpers.static(view.x, pad.x, op.root):
        return False
    groups = _joined(helpers.extents(view.x), helpers.extents(pad.x))
    if groups is None:
        return False
    shape = helpers.extents(view.x)
    low, high = [0] * len(shape), [0] * len(shape)
    for axes, before, after in zip(groups, pad.low, pad.high, strict=True):
        behind = prod(shape[a] for a in axes[1:])
        if (before or after) and (not axes or not behind or before % behind or after % behind):
            return False
        if axes:
            low[axes[0]], high[axes[0]] = before // max(behind, 1), after // max(behind, 1)
    if tuple(a + d + b for a, d, b in zip(low, shape, high, strict=True)) != helpers.extents(op.root):
        return False
    return op.replace(op.rw.build(op.root, "pad", view.x, low=tuple(low), high=tuple(high), pad_value=pad.pad_value))


@rewrites("ptir.add", operands=["ptir.pad"], effect=Effect.ZERO_SIGN)
def raise_filled_pad(op: OpView) -> bool:
    """A pad by zeros plus a number outside of what was padded is a pad by that number."""
    for x, other in (op.root.operands, op.root.operands[::-1]):
        pad, literal = op.defined_by(x, "pad"), literal_of(other)
        if pad is None or literal is None or literal.data is None or literal.splat or any(pad.interior) or pad.pad_value.value:
            continue
        values = from_literal(literal)
        shape = helpers.extents(pad.x)
        inside = np.zeros(values.shape, np.bool_)
        inside[tuple(slice(low, low + d) for low, d in zip(pad.low, shape, strict=True))] = True
        around = values[~inside]
        if values[inside].any() or not around.size or (around != around.flat[0]).any():
            continue
        fill = Scalar(pad.pad_value.kind, around.flat[0].item())
        return op.replace(op.rw.build(op.root, "pad", pad.x, low=pad.low, high=pad.high, pad_value=fill))
    return False


def _joined(before: Ints, after: Ints) -> list[list[int]] | None:
    """For each extent of `after` the axes of `before` that it joins; None where it does not only join neighbors."""
    groups: list[list[int]] = []
    at = 0
    for d in after:
        own: list[int] = []
        size = 1
        while at < len(before) and (
            size < d or (size == d and before[at] == 1 and len(before) - at > len(after) - len(groups) - 1)
        ):
            size *= before[at]
            own.append(at)
            at += 1
        if size != d:
            return None
        groups.append(own)
    return groups if at == len(before) and 0 not in before else None


@dataclass(slots=True)
class WindowTake:
    """The windows that a `take` by constant indices reads: from `source` along `axes`, `places` windows along each."""

    source: Operand
    axes: Ints
    places: Ints
    taps: Ints
    strides: Ints
    dilation: Ints

    @property
    def rest(self) -> Ints:
        """The other axes of the source."""
        return tuple(i for i in range(helpers.rank(self.source)) if i not in self.axes)

    def attrs(self, **names: str) -> dict[str, Attribute]:
        """Taps, strides and dilation for every axis of the source, as attributes with these names."""
        rank = range(helpers.rank(self.source))
        return {
            names[kind]: tuple(found[self.axes.index(i)] if i in self.axes else 1 for i in rank)
            for kind, found in (("taps", self.taps), ("strides", self.strides), ("dilation", self.dilation))
        }


def window_take(op: OpView, take: OpView) -> WindowTake | None:
    """The windows that `take` reads of a value whose axes were arranged and joined: [places, taps, rest]; None for any other."""
    literal, view = literal_of(take.indices), op.defined_by(take.x, "reshape")
    if literal is None or view is None or not helpers.static(view.x) or len(literal.type.shape) % 2:
        return None
    k = len(literal.type.shape) // 2
    turned = op.defined_by(view.x, "transpose")
    shape = helpers.extents(view.x)
    if not k or shape[k:] != helpers.extents(take.x)[1:] or prod(shape[:k]) != helpers.extents(take.x)[0]:
        return None
    steps = _strides_and_dilations(literal, shape[:k])
    if steps is None:
        return None
    source = turned.x if turned is not None else view.x
    perm = helpers.axes(turned.perm, len(shape)) if turned is not None else tuple(range(len(shape)))
    if list(perm[:k]) != sorted(perm[:k]) or list(perm[k:]) != sorted(perm[k:]):
        return None
    return WindowTake(source, perm[:k], literal.type.static_shape[:k], literal.type.static_shape[k:], *steps)


def _strides_and_dilations(literal: Literal, extents: Ints) -> tuple[Ints, Ints] | None:
    """Strides and dilations of the windows of constant indices into joined axes of these extents. None when they are no windows,
    or when another window would fit."""
    if literal.data is None or 0 in literal.type.static_shape:
        return None
    k, index = len(extents), from_literal(literal).astype(np.int64)
    strides, dilation = list[int](), list[int]()
    expected = np.zeros((1,) * (2 * k), np.int64)
    for i, d in enumerate(extents):
        behind = prod(extents[i + 1 :])
        places, taps = index.shape[i], index.shape[k + i]
        found = []
        for axis, count in ((i, places), (k + i, taps)):
            second = tuple(1 if a == axis else 0 for a in range(2 * k))
            step, left = divmod(int(index[second]) - int(index.flat[0]), behind) if count > 1 else (1, 0)
            if left or step < 1:
                return None
            found.append(step)
        stride, gap = found
        reach = (taps - 1) * gap + 1
        stride = max(stride, d - reach + 1) if places == 1 else stride
        if reach > d or (d - reach) // stride + 1 != places:
            return None
        strides.append(stride)
        dilation.append(gap)
        at = np.arange(places)[:, None] * stride + np.arange(taps)[None, :] * gap
        expected = expected * d + at.reshape([places if a == i else taps if a == k + i else 1 for a in range(2 * k)])
    return (tuple(strides), tuple(dilation)) if np.array_equal(expected, index) else None


@rewrites("ptir.reshape", operands=["ptir.transpose"], depth=6)
def raise_patches(op: OpView) -> bool:
    """A `take` of windows that is then arranged as [batch, places, taps and channels] is `extract_patches`."""
    turned = op.defined_by(op.x, "transpose")
    take = op.defined_by(turned.x, "take") if turned is not None else None
    found = window_take(op, take) if take is not None else None
    if turned is None or found is None:
        return False
    k, shape = len(found.axes), helpers.extents(found.source)
    order = (2 * k, *range(2 * k), 2 * k + 1)
    if found.axes != tuple(range(1, len(shape) - 1)) or helpers.axes(turned.perm, 2 * k + 2) != order:
        return False
    if helpers.shape(op.root) != (shape[0], *found.places, prod(found.taps) * shape[-1]):
        return False
    attrs: dict[str, Attribute] = {"window": found.taps, "strides": found.strides, "dilation": found.dilation}
    return op.replace(op.rw.build(op.root, "extract_patches", found.source, **attrs, padding=((0, 0),) * k))


@rewrites("ptir.extract_patches", operands=["ptir.pad"])
def padded_patches(op: OpView) -> bool:
    """A pad of the window axes by the same value is padding of `extract_patches`."""
    pad = op.defined_by(op.x, "pad")
    if pad is None or any(pad.interior) or any((pad.low[0], pad.high[0], pad.low[-1], pad.high[-1])):
        return False
    if any(map(any, op.padding)) and op.pad_value.value != pad.pad_value.value:
        return False
    own = zip(op.padding, pad.low[1:-1], pad.high[1:-1], strict=True)
    padding = tuple((a + low, b + high) for (a, b), low, high in own)
    attrs = op.root.defn.named(op.root.attrs) | {"padding": padding, "pad_value": pad.pad_value}
    return op.replace(op.rw.build(op.root, "extract_patches", pad.x, **attrs))


@rewrites(
    "ptir.reduce_sum", "ptir.reduce_max", "ptir.reduce_min", operands=["ptir.take", "ptir.reshape"], depth=6, effect=Effect.ORDER
)
def raise_window(op: OpView) -> bool:
    """A reduction of windows over their taps, joined into one axis or not, is `reduce_window`."""
    view = op.defined_by(op.x, "reshape")
    take = op.defined_by(view.x if view is not None else op.x, "take")
    found = window_take(op, take) if take is not None else None
    if found is None or take is None or helpers.dtype(op.root) is not helpers.dtype(op.x) or not helpers.static(op.x):
        return False
    k, shape, source = len(found.axes), helpers.extents(op.x), helpers.extents(found.source)
    rest = tuple(source[i] for i in found.rest)
    taps = (prod(found.taps),) if view is not None else found.taps
    over = tuple(range(k, k + len(taps)))
    if shape != (*found.places, *taps, *rest) or helpers.axes(op.axes, len(shape)) != over:
        return False
    rank = len(source)
    attrs = found.attrs(taps="window_dims", strides="strides", dilation="window_dilation")
    kind = op.root.defn.short.removeprefix("reduce_")
    attrs |= {"padding": ((0, 0),) * rank, "base_dilation": (1,) * rank, "reduce": kind}
    accum = {} if op.accum_dtype is None else {"accum_dtype": op.accum_dtype}
    made = op.rw.build(op.root, "reduce_window", found.source, **attrs, **accum)
    order = (*found.axes, *found.rest)
    made = op.rw.build(op.root, "transpose", made, perm=order) if order != tuple(range(rank)) else made
    if helpers.shape(made) != helpers.shape(op.root):
        made = op.rw.build(op.root, "reshape", made, new_shape=helpers.shape(op.root))
    return op.replace(made)


@rewrites("ptir.reduce_window", operands=["ptir.pad"])
def padded_window(op: OpView) -> bool:
    """A pad by the identity of the reduction is padding of `reduce_window`."""
    pad = op.defined_by(op.x, "pad")
    if pad is None or any(pad.interior) or any(map(any, op.padding)) or any(d != 1 for d in op.base_dilation):
        return False
    t = helpers.tensor_type(op.x)
    floats = t.dtype.is_float
    nothing = {"sum": 0, "max": -np.inf if floats else t.dtype.min, "min": np.inf if floats else t.dtype.max}[
        op.root.attr("reduce")
    ]
    if pad.pad_value.value != nothing:
        return False
    attrs = op.root.defn.named(op.root.attrs) | {"padding": tuple(zip(pad.low, pad.high, strict=True))}
    return op.replace(op.rw.build(op.root, "reduce_window", pad.x, **attrs))


@rewrites("ptir.maximum", "ptir.minimum", operands=["ptir.slice"], every=True)
def raise_halves(op: OpView) -> bool:
    """The larger of the two elements along an axis is a reduction over it."""
    x = _halves(op)
    if x is None or helpers.extents(x[0])[x[1]] != 2:
        return False
    kind = op.root.defn.short.removesuffix("imum")
    return op.replace(op.rw.build(op.root, f"reduce_{kind}", x[0], axes=(x[1],), keepdims=True))


@rewrites("ptir.reduce_max", "ptir.reduce_min", operands=["ptir.maximum", "ptir.minimum"], depth=3)
def raise_halves_reduced(op: OpView) -> bool:
    """A reduction of the larger ones of two halves, which may share elements, is one of the whole."""
    inner = op.defined_by(op.x, op.root.defn.short.removeprefix("reduce_") + "imum")
    x = _halves(inner) if inner is not None else None
    if x is None or helpers.axes(op.axes, helpers.rank(op.x)) != (x[1],):
        return False
    attrs = op.root.defn.named(op.root.attrs)
    return op.replace(op.rw.build(op.root, op.root.defn.short, x[0], **attrs))


def _halves(op: OpView) -> tuple[Operand, int] | None:
    """The operand whose first and last part are compared, and the axis, where the parts cover it; else None."""
    first, last = (op.defined_by(x, "slice") for x in op.root.operands)
    if first is None or last is None or first.x is not last.x or not helpers.static(first.x):
        return None
    shape = helpers.extents(first.x)
    own = [i for i, (d, n) in enumerate(zip(shape, first.sizes, strict=True)) if d != n]
    if len(own) != 1 or first.sizes != last.sizes or any(first.starts):
        return None
    (axis,) = own
    wanted = tuple(shape[axis] - first.sizes[axis] if i == axis else 0 for i in range(len(shape)))
    return (first.x, axis) if last.starts == wanted and 2 * first.sizes[axis] >= shape[axis] else None


WINDOWS: tuple[Pattern, ...] = (
    raise_pad, raise_filled_pad, raise_patches, padded_patches, raise_window, padded_window, raise_halves, raise_halves_reduced,
)  # fmt: skip

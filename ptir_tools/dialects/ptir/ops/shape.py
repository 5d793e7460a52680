"""Ops that rearrange one tensor (contract: "Shape and layout ops"). Ops that join and enlarge are in `join`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op, same
from ptir_tools.core.extents import combined, floordiv, product
from ptir_tools.core.ir import MEASURES, MOVEMENT, PURE, REPEATS, Asks, Extents, Kernel, Op, Operand, Strides, View, operand_type
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.strides import restrided
from ptir_tools.core.symbols import mentioned
from ptir_tools.core.types import UNKNOWN, Dim, Shape, Sym, TensorType, Type, dims_text
from ptir_tools.core.violations import Violation, require
from ptir_tools.core.violations import attribute as place
from ptir_tools.dialects.ptir.ops.kinds import NewShape, Result
from ptir_tools.dialects.ptir.ops.typerules import agree, attribute, axis_of, counts, elements, extents, rule
from ptir_tools.rewrite.vocabulary import axes, compose, made_by, of_same_type, tensor_type

drawing = Later("ptir_tools.dialects.ptir.drawing")


@rule
def transpose_type(x: TensorType, *, perm: tuple[int, ...]) -> TensorType:
    """`perm` is a permutation of the axes of `x`."""
    axes = tuple(axis_of(p, x.rank, "perm", i, perm) for i, p in enumerate(perm))
    whole = sorted(axes) == list(range(x.rank))
    attribute(whole, f"perm {list(perm)} is not a permutation of the {x.rank} axes of {x}", "perm")
    return x.with_shape(x.shape[a] for a in axes)


def keeps_row_major(perm: Sequence[int], extents: Shape) -> bool:
    """Whether `perm` keeps the order of the axes longer than 1, so that no element moves in row-major order."""
    longer = [a for a in axes(perm, len(perm)) if extents[a] != 1]
    return longer == sorted(longer)


def relabeled(shape: Shape, target: Shape) -> tuple[int, ...] | None:
    """The permutation by which a reshape only moves extents of 1; None for any other."""
    longer = [[a for a, d in enumerate(s) if d != 1] for s in (shape, target)]
    if len(shape) != len(target) or [shape[a] for a in longer[0]] != [target[a] for a in longer[1]]:
        return None
    kept, ones = iter(longer[0]), iter([a for a, d in enumerate(shape) if d == 1])
    return tuple(next(ones) if d == 1 else next(kept) for d in target)


def fold_transpose(op: Op) -> Operand | None:
    """`x`, when no axis longer than 1 moves; `y`, when `x` is `transpose(y)` and the two cancel."""
    x, perm = op.operands[0], op.attr("perm")
    if keeps_row_major(perm, tensor_type(x).shape):
        return x
    if (inner := made_by(x, "transpose")) is None:
        return None
    source = inner.operands[0]
    return source if keeps_row_major(compose(inner.attr("perm"), perm), tensor_type(source).shape) else None


def permuted_strides(op: Op, shape: Extents, strides: Strides, out: Extents) -> tuple[int, Strides]:
    """The offset and strides of `transpose` as a view."""
    return 0, tuple(strides[axis] for axis in op.attr("perm"))


@op("ptir.transpose", infer=transpose_type, fold=fold_transpose, traits=PURE | MOVEMENT, view=View(permuted_strides))
def transpose(x: Array, *, perm: tuple[int, ...]) -> Array:
    """Reorder axes: axis `i` of the result is axis `perm[i]` of `x`. Contract: Transpose.

    InvalidAttributeValue: `perm` is not a permutation of the axes.
    """
    return np.transpose(x, perm)


def _inferred_extent(x: TensorType, new_shape: NewShape) -> Dim:
    """The extent of the entry -1. UNKNOWN when there are no elements."""
    (have, symbols), others = elements(x.shape), tuple(d for d in new_shape if d != -1)
    given, named = elements(others)
    if UNKNOWN in (*symbols, *named) or (not given and not have):
        return UNKNOWN
    attribute(given, f"new_shape {_text(new_shape)} holds no element, and {x} holds some", "new_shape")
    if not symbols and not named:
        attribute(have % given == 0, f"{x} has {have} elements, which {given} does not divide", "new_shape")
        return have // given
    return combined(floordiv, product(x.shape), product(others))


def _text(shape: NewShape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _check_element_count(x: TensorType, new_shape: Shape) -> None:
    (have, symbols), (given, named) = elements(x.shape), elements(new_shape)
    if symbols == named and have != given:
        code = "DynamicDimensionMismatch" if symbols else "InvalidAttributeValue"
        message = f"reshape of {x} to {_text(new_shape)} would change the number of elements from {have} to {given}"
        raise Violation(code, f"{message} per {dims_text(tuple(symbols))}" if symbols else message, at="new_shape")


@rule
def reshape_type(x: TensorType, *, new_shape: NewShape) -> TensorType:
    """The new shape has as many elements as `x`; at most one extent is inferred."""
    free = [i for i, d in enumerate(new_shape) if d == -1]
    attribute(len(free) <= 1, f"new_shape {_text(new_shape)} has more than one entry -1", "new_shape")
    extents(tuple(d for d in new_shape if d != -1), "new_shape")
    if free:
        return x.with_shape(_inferred_extent(x, new_shape) if d == -1 else d for d in new_shape)
    _check_element_count(x, new_shape)
    return x.with_shape(new_shape)


def solve_reshape(types: tuple[Type, ...], attrs: dict[str, Shape], given_names: Collection[Sym] = ()) -> Mapping[str, Dim]:
    """The one symbol of `new_shape` that neither is given nor is in the operand's shape, when no entry is -1."""
    x, new_shape = types[0], attrs["new_shape"]
    if not isinstance(x, TensorType) or -1 in new_shape:
        return {}
    known = {*mentioned(x.shape), *given_names}
    names = [s for s in mentioned(new_shape) if s not in known]
    given, _ = elements(new_shape)
    if len(set(names)) != 1 or given == 0 or names[0] not in new_shape:
        return {}
    if len(names) == 1 and not x.is_static:
        return {names[0].name: combined(floordiv, product(x.shape), product(tuple(d for d in new_shape if d is not names[0])))}
    if not x.is_static or any(isinstance(d, Sym) and d is not names[0] for d in new_shape):
        return {}
    power, rest = len(names), divmod(x.count, given)
    value = round(rest[0] ** (1 / power))
    found = rest[1] == 0 and value**power == rest[0]
    require(found, "DynamicDimensionMismatch", f"no {names[0]} makes {_text(new_shape)} hold the {x.count} elements of {x}")
    return {names[0].name: value}


def fold_reshape(op: Op) -> Operand | None:
    """`x`, when the result has its type; `y`, when `x` is `reshape(y)`, unless its shape names an extent that `y` does not."""
    x = op.operands[0]
    inner = made_by(x, "reshape")
    if operand_type(x) is op.results[0].type or inner is None:
        return x
    source = inner.operands[0]
    named = (d for d in tensor_type(x).shape if isinstance(d, Sym))
    return source if all(d in tensor_type(source).shape for d in named) else None


def reshaped_strides(op: Op, shape: Extents, strides: Strides, out: Extents) -> tuple[int, Strides] | None:
    """The offset and strides of `reshape` as a view; None where joined axes are not contiguous."""
    found = restrided(shape, strides, out)
    return None if found is None else (0, found)


@op(
    "ptir.reshape",
    infer=reshape_type,
    fold=fold_reshape,
    solve=solve_reshape,
    traits=PURE | MOVEMENT | MEASURES,
    view=View(reshaped_strides, in_order=True),
    kernel=Kernel("reshape"),
    asks=Asks(passed=same),
)
def reshape(x: Array, *, new_shape: NewShape, result: Result) -> Array:
    """The same elements in the same (row-major) order in another shape. Contract: Reshape.

    One entry of `new_shape` may be -1, which is inferred; next to an extent 0 the result type gives it. `?N` is symbolic. A count
    that depends on symbols is checked before the op runs.
    InvalidAttributeValue: the number of elements changes, or two entries are -1. NegativeDimension: another negative entry.
    DynamicDimensionMismatch: no value of the symbols makes the counts equal.
    """
    return x.reshape(result.static_shape)


@rule
def broadcast_type(x: TensorType, *, result_shape: Shape) -> TensorType:
    """Right-aligned, every extent of `x` is 1 or that of the result."""
    extents(result_shape, "result_shape")
    lead = len(result_shape) - x.rank
    target = x.with_shape(result_shape)
    require(lead >= 0, "BroadcastRankMismatch", f"{x} has more axes than the result {target}", at="result_shape")
    for axis, (have, extent) in enumerate(zip(x.shape, result_shape[lead:], strict=True)):
        if have != 1:
            message = f"axis {axis} of {x} cannot become axis {axis + lead} of {target}"
            agree(have, extent, "BroadcastDimsInvalid", message, place("result_shape", axis + lead))
    return target


def repeated_strides(op: Op, shape: Extents, strides: Strides, out: Extents) -> tuple[int, Strides]:
    """The offset and strides of `broadcast_to` as a view: repeated axes have the stride 0."""
    repeated = (s if n == m else 0 for n, m, s in zip(shape, out[len(out) - len(shape) :], strides, strict=True))
    return 0, (*(0 for _ in out[len(shape) :]), *repeated)


@op(
    "ptir.broadcast_to",
    infer=broadcast_type,
    fold=of_same_type,
    traits=PURE | MOVEMENT | REPEATS,
    view=View(repeated_strides),
    kernel=Kernel("repeat"),
)
def broadcast_to(x: Array, *, result_shape: Shape, result: Result) -> Array:
    """Repeat `x` along new leading axes and along its axes of extent 1, to `result_shape`. Contract: BroadcastTo.

    Only this op broadcasts. Each extent of `x`, aligned at the right, is 1 or equals the result's (1 to 0 gives none).
    BroadcastRankMismatch: the result has fewer axes. BroadcastDimsInvalid: an extent is neither 1 nor the result's.
    DynamicDimensionMismatch: a symbol against another extent. NegativeDimension: an extent is negative.
    """
    return np.broadcast_to(x, result.static_shape)


@rule
def slice_type(x: TensorType, *, starts: tuple[int, ...], sizes: tuple[int, ...]) -> TensorType:
    """A start and a size per axis, within `x`."""
    counts(starts, x.rank, "starts")
    counts(sizes, x.rank, "sizes")
    for axis, (start, size, extent) in enumerate(zip(starts, sizes, x.shape, strict=True)):
        inside = not isinstance(extent, int) or start + size <= extent
        message = f"slice [{start}, {start + size}) is outside axis {axis} of {x}, extent {extent}"
        attribute(inside, message, place("sizes" if isinstance(extent, int) and size > extent else "starts", axis))
    return x.with_shape(extents(sizes, "sizes"))


def sliced_strides(op: Op, shape: Extents, strides: Strides, out: Extents) -> tuple[int, Strides]:
    """The offset and strides of `slice` as a view."""
    return sum(start * stride for start, stride in zip(op.attr("starts"), strides, strict=True)), strides


@op(
    "ptir.slice",
    infer=slice_type,
    generate=drawing.draw_slice,
    fold=of_same_type,
    traits=PURE | MOVEMENT,
    view=View(sliced_strides),
)
def slice_(x: Array, *, starts: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """The window of `sizes` elements from `starts`, with unit stride. Contract: Slice.

    InvalidAttributeValue: a list is not as long as the rank, has a negative entry, or the window leaves `x` (with symbolic
    extents, before the op runs).
    """
    window = tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
    return np.asarray(x[window])

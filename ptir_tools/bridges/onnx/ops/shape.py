"""Operators that move elements and change shapes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod

from ptir_tools.bridges import extent_ops, extents
from ptir_tools.bridges.extent_ops import picked_at, reversed_along
from ptir_tools.bridges.extents import Extent, Size, dim, divided_up, larger, least, most, of, smaller
from ptir_tools.bridges.onnx.protocols import Datum
from ptir_tools.bridges.onnx.table import Node, axis, dtype_of, fixed, handles, one_shape, refused, stretched
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import I1, SI32, SI64
from ptir_tools.core.extents import may_be_equal, product
from ptir_tools.core.ir import Literal, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Dim, Sym
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.expression import Number
from ptir_tools.rewrite.vocabulary import tensor_type

_FAR = 10**8  # bounds of a slice from this on mean its end, as exporters write it
_FIELDS = ("value", "value_float", "value_floats", "value_int", "value_ints", "sparse_value")


@handles("Constant")
def constant(node: Node) -> Array:
    """Constant: the value of its attribute."""
    name = next((f for f in _FIELDS if node.given(f) is not None), "")
    if not name:
        raise refused("Constant holds strings; PTIR has none")
    value = node.attr(name)
    if name == "value":
        return node.scope.importer.stored.array(value)
    if name == "sparse_value":
        return node.scope.importer.stored.dense(value)
    return np.array(value, np.float32 if "float" in name else np.int64)


@handles("Identity")
def identity(node: Node) -> Datum:
    """Identity."""
    return node.datum(0)


def _shape(node: Node) -> tuple[Dim, ...]:
    known = node.array(0)
    return node[0].shape if known is None else tuple(known.shape)


@handles("Shape")
def shape(node: Node) -> Array:
    """Shape: the extents from `start` to `end`."""
    result = _shape(node)
    start, end = node.attr("start", 0), node.attr("end")
    return extents.of_shape(result[start:] if end is None else result[start:end])


@handles("Size")
def size(node: Node) -> Array:
    """Size: the number of elements."""
    return extents.settled(np.asarray(prod(extents.as_dims(extents.of_shape(_shape(node))), start=1), object))


@handles("Reshape")
def reshape(node: Node) -> Tensor:
    """Reshape: 0 copies an extent, -1 is inferred."""
    x = node[0]
    target = node.dims(1) if node.opset >= 5 else list(node.given("shape", []))
    if not node.attr("allowzero"):
        target = [extents.as_dims(extents.of_shape(x.shape))[i] if _is(d, 0) else d for i, d in enumerate(target)]
    return reshaped(x, target)


def _is(d: object, n: int) -> bool:
    return not isinstance(d, Extent) and d == n


def reshaped(x: Tensor, target: list[Size]) -> Tensor:
    """`x` reshaped to integers and extents; one may be -1."""
    return x.reshape([dim(d) for d in target])


@handles("Flatten")
def flatten(node: Node) -> Tensor:
    """Flatten to a matrix: the axes before `axis`, and the others."""
    x = node[0]
    a = node.attr("axis")
    if a != x.rank:
        a = axis(a, x.rank)
    return x.reshape([product(x.shape[:a]), product(x.shape[a:])])


@handles("Squeeze")
def squeeze(node: Node) -> Tensor:
    """Squeeze: without axes of extent 1."""
    x = node[0]
    axes = node.axes(1, x.rank)
    if axes is None:
        importer = node.scope.importer
        importer.squeezed.update((d, importer.place.loc) for d in x.shape if isinstance(d, Sym) and may_be_equal(d, 1))
    gone = [i for i, d in enumerate(x.shape) if d == 1] if axes is None else axes
    return x.reshape([d for i, d in enumerate(x.shape) if i not in gone])


@handles("Unsqueeze")
def unsqueeze(node: Node) -> Tensor:
    """Unsqueeze: with new axes of extent 1."""
    x = node[0]
    given = node.given("axes")
    given = node.ints(1) if given is None else given
    return expanded(x, given)


def expanded(x: Tensor, axes: list[int]) -> Tensor:
    """`x` with new axes of extent 1, counted in the result."""
    rank = x.rank + len(axes)
    new = {axis(a, rank) for a in axes}
    if len(new) != len(axes):
        raise Violation("InvalidModel", f"the axes {axes} are not all different")
    rest = iter(x.shape)
    return x.reshape([1 if i in new else next(rest) for i in range(rank)])


@handles("Transpose")
def transpose(node: Node) -> Tensor:
    """Transpose."""
    x = node[0]
    return x.transpose(node.attr("perm") or list(reversed(range(x.rank))))


@handles("Expand")
def expand(node: Node) -> Tensor:
    """Expand: broadcast in both directions."""
    x = node[0]
    return stretched(x, one_shape(x.shape, tuple(dim(d) for d in node.dims(1))))


@handles("Tile")
def tile(node: Node) -> Tensor:
    """Tile. In operator set 1 the operands are a number of copies and an axis."""
    x = node[0]
    if node.opset >= 6:
        counts = node.dims(1)
        if len(counts) != x.rank:
            raise Violation("InvalidModel", f"Tile has {len(counts)} repeats for {x.rank} axes")
        x = x.tile([n if isinstance(n, int) else 1 for n in counts])
        for a, n in enumerate(counts):
            x = x if isinstance(n, int) else _repeated(x, a, n)
        return x
    (copies,), (a,) = node.ints(1), node.ints(2)
    return x.tile([copies if i == axis(a, x.rank) else 1 for i in range(x.rank)])


def _repeated(x: Tensor, a: int, count: Extent) -> Tensor:
    """As many copies of `x` along axis `a` as an extent says."""
    whole = (*x.shape[:a], count.dim, *x.shape[a:])
    copies = expanded(x, [a]).broadcast_to(whole)
    return copies.reshape([*x.shape[:a], dim(of(x.shape[a]) * count), *x.shape[a + 1 :]])


@handles("Concat")
def concat(node: Node) -> Tensor:
    """Concat."""
    xs = node.all()
    a = axis(node.attr("axis", 1), xs[0].rank)
    return node.concat(equal_off(xs, a), a)


def equal_off(xs: Sequence[Tensor], a: int) -> list[Tensor]:
    """Tensors whose extents are made equal, except along axis `a`, where symbols leave it open. The run checks them."""
    if len({x.rank for x in xs}) > 1:
        return list(xs)
    shape = [min(ds, key=lambda d: (not isinstance(d, int), len(str(d)))) for ds in zip(*(x.shape for x in xs), strict=True)]
    targets = [[x.shape[i] if i == a or isinstance(x.shape[i], int) else d for i, d in enumerate(shape)] for x in xs]
    return [x if tuple(t) == x.shape else x.reshape(t) for x, t in zip(xs, targets, strict=True)]


@handles("Split")
def split(node: Node) -> list[Tensor]:
    """Split along an axis."""
    x = node[0]
    a = axis(node.attr("axis", 0), x.rank)
    n = x.shape[a]
    sizes: Sequence[Size] | None = node.given("split") or (node.dims(1) if node.has(1) else None)
    count = node.attr("num_outputs") or node.outputs if sizes is None else len(sizes)
    if count != node.outputs or node.given("num_outputs", count) != count:
        raise Violation("InvalidModel", f"Split in {count} parts has {node.outputs} outputs")
    if sizes is None:
        whole = of(n)
        each = divided_up(whole, count) if node.opset >= 18 or isinstance(whole, int) else whole // count
        sizes = [smaller(each, larger(whole - i * each, 0)) if node.opset >= 18 else each for i in range(count)]
    starts = list(accumulate(sizes, initial=0))
    if isinstance(n, int) and isinstance(starts[-1], int) and starts[-1] != n and node.given("num_outputs") is None:
        shown = ", ".join(map(str, sizes))
        name = node.proto.input[1] if node.has(1) else "split"
        raise Violation("InvalidModel", f"`{name}`: parts of {shown} of axis {a}, which has {n} elements")
    return [cut(x, a, s, k) for s, k in zip(starts, sizes, strict=False)]


def cut(x: Tensor, a: int, start: Size, count: Size) -> Tensor:
    """`count` elements from `start` along axis `a`. PTIR's slice needs static extents; other axes use a take."""
    if _is(start, 0) and dim(count) == x.shape[a]:
        return x
    if not x.tensor_type.is_static or isinstance(count, Extent) or isinstance(start, Extent):
        return extent_ops.along(x, a, start, count, 1)
    each = [fixed(d) for d in x.shape]
    return x.slice([start if i == a else 0 for i in range(x.rank)], [count if i == a else d for i, d in enumerate(each)])


@handles("Slice")
def slice_(node: Node) -> Tensor:
    """Slice from `starts` to `ends` by `steps`, which may be negative."""
    x = node[0]
    if node.given("starts") is not None:
        starts, ends, axes = node.attr("starts"), node.attr("ends"), node.given("axes")
        steps = None
    else:
        axes, steps = (node.ints(i) if node.has(i) else None for i in (3, 4))
        if isinstance(node.datum(1), Tensor) and (window := _moving(node, axes, steps)) is not None:
            return window
        starts, ends = node.dims(1), node.dims(2)
    if steps is not None and 0 in steps:
        raise Violation("InvalidModel", "Slice has a step of 0")
    places = [axis(a, x.rank) for a in axes] if axes is not None else list(range(len(starts)))
    for k, a in enumerate(places):
        for bound in (starts[k], ends[k]):  # `-n` counts from the end, unless `n` is 0
            if isinstance(bound, Extent) and most(bound) == 0 and bound + of(x.shape[a]) != 0:
                node.scope.importer.not_zero(bound)
        x = sliced(x, a, starts[k], ends[k], 1 if steps is None else steps[k])
    return x


def _moving(node: Node, axes: list[int] | None, steps: list[int] | None) -> Tensor | None:
    """A Slice from a computed start to an end that is a constant number of elements after it, as `dynamic_slice`; None for any
    other. The run finds the window inside the axis, or fails: ONNX would give fewer elements."""
    x, start, end = node[0], _offset(node[1]), _offset(node[2])
    if start[0] is None or start[0] is not end[0] or any(step != 1 for step in steps or ()):
        return None
    if node[1].rank != 1 or not (x.tensor_type.is_static and node[1].tensor_type.is_static):
        return None
    counts = np.broadcast_to(end[1] - start[1], (fixed(node[1].shape[0]),)).tolist()
    places = list(range(len(counts))) if axes is None else [axis(a, x.rank) for a in axes]
    shape = [fixed(d) for d in x.shape]
    if any(not 0 <= n <= shape[a] for n, a in zip(counts, places, strict=True)) or len(set(places)) < len(places):
        return None
    sizes, first, bounded = list(shape), node[1].cast(SI64) if node[1].dtype is not SI64 else node[1], _clamped(node[1])
    parts = [node.constant(np.zeros(1, np.int64))] * x.rank
    for k, (n, a) in enumerate(zip(counts, places, strict=True)):
        sizes[a] = n
        at = cut(first, 0, k, 1)
        room = shape[a] - n
        if bounded is None or not 0 <= int(bounded[0][k]) <= int(bounded[1][k]) <= room:
            wrapped = (at < -n).select(at + shape[a], at)  # from the end, but not around it
            at = node.iota([room + 1], SI64, 0).take(wrapped)
        parts[a] = at
    whole = parts[0] if x.rank == 1 else node.concat(parts, 0)
    return x.dynamic_slice(whole, sizes=sizes)


def _offset(x: Tensor) -> tuple[Operand | None, Array]:
    """The value that a tensor is the sum of, elements in order, and what is added to it."""
    added: Array = np.zeros((), np.int64)
    operand: Operand = x.operand
    while isinstance(operand, Value) and operand.op is not None:
        kind, operands = operand.op.defn.short, operand.op.operands
        if kind == "add" and (known := [k for k in (0, 1) if _number(operands[k]) is not None]):
            number = _number(operands[known[-1]])
            added, operand = added + number, operands[1 - known[-1]]
        elif kind == "reshape" or (kind == "cast" and tensor_type(operands[0]).dtype in (SI32, SI64)):
            operand = operands[0]
        else:
            break
    return (operand if isinstance(operand, Value) else None), added


def _number(x: Operand) -> Array | None:
    """The flat array of a constant, or its one element where it is broadcast; None for any other value."""
    if isinstance(x, Value) and x.op is not None and x.op.defn.short in ("broadcast_to", "reshape"):
        inner = _number(x.op.operands[0])
        return inner if inner is None or inner.size == 1 or x.op.defn.short == "reshape" else None
    literal = x if isinstance(x, Literal) else literal_of(x)
    return None if literal is None or literal.data is None else arrays.from_literal(literal).reshape(-1).astype(np.int64)


def _clamped(x: Tensor) -> tuple[Array, Array] | None:
    """The bounds of a value that is the maximum of a constant and the lesser of another constant; None for any other."""
    op = x.operand.op if isinstance(x.operand, Value) else None
    if op is None or op.defn.short != "maximum" or (low := _number(op.operands[1])) is None:
        return None
    least = op.operands[0].op if isinstance(op.operands[0], Value) else None
    if least is None or least.defn.short not in ("minimum", "select") or (high := _number(least.operands[-1])) is None:
        return None
    if least.defn.short == "select":
        flag = least.operands[0].op if isinstance(least.operands[0], Value) else None
        pair = least.operands[1:]
        if flag is None or flag.defn.short != "compare_lt" or flag.operands[0] is not pair[0]:
            return None
        if (other := _number(flag.operands[1])) is None or not (other == high).all():
            return None
    low, high = (np.broadcast_to(v, (fixed(x.shape[0]),)) for v in (low, high))
    return low, np.maximum(low, high)


def sliced(x: Tensor, a: int, start: Size, end: Size, step: int) -> Tensor:
    """A slice as in NumPy along one axis. Of symbolic extents, the run checks that the slice is inside."""
    n = x.shape[a]
    if isinstance(n, int) and not isinstance(start, Extent) and not isinstance(end, Extent):
        places = range(n)[slice(max(start + n, 0) if start < 0 else start, _end(end, n, step), step)]
        return picked(x, a, places)
    whole = of(n)
    before = -1 if step < 0 else 0
    first = smaller_if_known(_place(start, whole, before), whole - (step < 0))
    last = smaller_if_known(_place(end, whole, before), whole)
    count = divided_up(last - first, step) if step > 0 else divided_up(first - last, -step)
    if most(count) <= 0:
        return cut(x, a, 0, 0)
    if step == 1:
        return cut(x, a, first, count)
    return extent_ops.along(x, a, first, count, step)


def _place(x: Size, whole: Size, before: int) -> Size:
    """The place that a bound of a slice names; `before` the first element when it is far below 0."""
    if isinstance(x, Extent):
        return x + whole if most(x) <= 0 else x
    if abs(x) >= _FAR:
        return whole if x > 0 else before
    return whole + x if x < 0 else x


def smaller_if_known(x: Size, limit: Size) -> Size:
    """`limit` where `x` is certainly not below it, else `x`."""
    return limit if least(x - limit) >= 0 else x


def _end(end: int, n: int, step: int) -> int | None:
    if end >= 0:
        return end
    return end + n if end + n >= 0 else None if step < 0 else 0


def picked(x: Tensor, a: int, places: range) -> Tensor:
    """The elements at `places` along axis `a`."""
    if places.step < 0:
        return reversed_along(picked(x, a, places[::-1]), a)
    if not len(places):
        return cut(x, a, 0, 0)
    span = places[-1] + 1 - places.start
    part = cut(x, a, places.start, span)
    step = places.step
    if step == 1 or len(places) == 1:
        return part
    n = len(places)
    full = pad(part, a, 0, n * step - span)
    split_ = [d for i, d in enumerate(full.shape) for d in ([n, step] if i == a else [d])]
    kept = cut(full.reshape(split_), a + 1, 0, 1)
    return kept.reshape([n if i == a else d for i, d in enumerate(x.shape)])


def axis_product(x: Tensor, a: int, matrix: object) -> Tensor:
    """The product of axis `a` and a constant matrix."""
    out = x.dot_general(x.block.constant(matrix, x.dtype), contract_lhs=[a], contract_rhs=[1])
    return out if a == x.rank - 1 else out.transpose([*range(a), x.rank - 1, *range(a, x.rank - 1)])


def pad(x: Tensor, a: int, low: int, high: int, value: Number = 0) -> Tensor:
    """`x` padded along axis `a`."""
    if not low and not high:
        return x
    return x.pad([low * (i == a) for i in range(x.rank)], [high * (i == a) for i in range(x.rank)], pad_value=_scalar(x, value))


def _scalar(x: Tensor, value: Number) -> Number:
    return bool(value) if x.dtype is I1 else value


@handles("Pad")
def padded(node: Node) -> Tensor:
    """Pad: with a constant, edges, reflections, or the opposite side. Negative padding crops."""
    x, mode = node[0], node.attr("mode", "constant")
    given = node.given("pads") or node.given("paddings")
    pads: list[Size] = given or (node.dims(1) if mode == "constant" else [*node.ints(1)])
    axes = node.axes(3, x.rank) or list(range(x.rank))
    if len(pads) != 2 * len(axes):
        raise Violation("InvalidModel", f"Pad has {len(pads)} counts for {len(axes)} axes")
    sides = list(zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True))
    if mode != "constant":
        for a, low, high in sides:
            x = _mirrored(x, a, int(low), int(high), mode)
        node.idle("value", 2)
        return x
    datum, known = node.datum(2), node.array(2)
    if isinstance(datum, (Tensor, np.ndarray)) and set(datum.shape) - {1}:
        raise Violation("InvalidModel", f"Pad fills with one value, not with {list(datum.shape)}")
    value = node.given("value", 0) if known is None else known.reshape(()).item() if known.dtype.kind != "V" else float(known)
    fill = datum.reshape([]) if isinstance(datum, Tensor) else None
    lows, highs = ([0] * x.rank for _ in range(2))
    for a, low, high in sides:
        if isinstance(low, int) and isinstance(high, int):
            x = cut(x, a, max(-low, 0), of(x.shape[a]) - max(-low, 0) - max(-high, 0)) if low < 0 or high < 0 else x
            lows[a], highs[a] = max(low, 0), max(high, 0)
        else:
            x = _padded_by(x, a, low, high, node.constant(_scalar(x, value), x.dtype) if fill is None else fill)
    if fill is not None:
        mask = node.constant(True).broadcast_to(x.shape).pad(lows, highs, pad_value=False)
        return mask.select(x.pad(lows, highs, pad_value=_scalar(x, 0)), fill)
    return x.pad(lows, highs, pad_value=_scalar(x, value))


def _padded_by(x: Tensor, a: int, low: Size, high: Size, fill: Tensor) -> Tensor:
    """`x` padded along axis `a` by extents, which are negative where it is cropped."""
    whole = of(x.shape[a]) + low + high
    sides = [[dim(larger(n, 0)) if i == a else d for i, d in enumerate(x.shape)] for n in (low, high)]
    parts = [fill.broadcast_to(sides[0]), x, fill.broadcast_to(sides[1])]
    y = x.block.op("concat", [p for p in parts if p.shape[a] != 0], axis=a)
    return y if least(low) >= 0 and least(high) >= 0 else cut(y, a, larger(-low, 0), whole)


def bordered(mode: str, n: int, low: int, high: int) -> Array:
    """The elements of an axis of `n` that are there when it is padded by itself. Raises Violation for an unknown mode."""
    at = np.arange(-low, n + high)
    if mode == "edge":
        return np.clip(at, 0, n - 1)
    if mode == "wrap":
        return at % n
    if mode == "reflect":  # of a single element there is only that
        return np.abs((at + (n - 1)) % max(2 * (n - 1), 1) - (n - 1))
    raise Violation("InvalidModel", f"Pad has no mode `{mode}`")


def _mirrored(x: Tensor, a: int, low: int, high: int, mode: str) -> Tensor:
    n = x.shape[a]
    if not low and not high:
        return x
    if not isinstance(n, int):
        return _mirrored_symbolic(x, a, low, high, mode)
    at = bordered(mode, n, low, high)
    if len(at) == n and (at == np.arange(n)).all():
        return x
    return picked_at(x, a, at)


def _mirrored_symbolic(x: Tensor, a: int, low: int, high: int, mode: str) -> Tensor:
    """The same along a symbolic extent, which the run finds to be long enough for its padding."""
    n = of(x.shape[a])
    if mode == "edge":
        ends = [(0, 0), (n - 1, 0)]
    elif mode == "wrap":
        ends = [(n - max(low, 0), 1), (0, 1)]
    elif mode == "reflect":
        ends = [(max(low, 0), -1), (n - 2, -1)]
    else:
        raise Violation("InvalidModel", f"Pad has no mode `{mode}`")
    (first, step), (last, back_) = ends
    middle = cut(x, a, max(-low, 0), n - max(-low, 0) - max(-high, 0))
    parts = [extent_ops.along(x, a, first, low, step)] if low > 0 else []
    parts = [*parts, middle, *([extent_ops.along(x, a, last, high, back_)] if high > 0 else [])]
    return x.block.op("concat", parts, axis=a)


@handles("ConstantOfShape")
def constant_of_shape(node: Node) -> Tensor:
    """ConstantOfShape."""
    value = node.attr("value")
    one = np.zeros(1, np.float32) if value is None else node.scope.importer.stored.array(value)
    if one.size != 1:
        raise Violation("InvalidModel", f"the value of ConstantOfShape has {one.size} elements, not one")
    return node.constant(one.reshape(())).broadcast_to([dim(d) for d in node.dims(0)])


@handles("Range")
def range_(node: Node) -> Tensor:
    """Range: numbers from `start`, by `delta`, before `limit`."""
    operands = [node.scope.importer.counted(node.datum(i)) for i in range(3)]
    dtype = next((x.dtype for x in map(node.datum, range(3)) if isinstance(x, Tensor)), SI64)
    start, limit, delta = (x[0] if x is not None else node.dims(i)[0] for i, x in enumerate(operands))
    if isinstance(delta, Extent) or delta == 0:
        raise refused(f"Range from {start} to {limit} by {delta}")
    count = divided_up(limit - start, delta) if delta > 0 else divided_up(start - limit, -delta)
    result = node.iota([dim(count if isinstance(count, Extent) else max(count, 0))], dtype, 0)
    if delta != 1:
        result = result * delta
    if _is(start, 0):
        return result
    first = node.scope.measured(start)
    return result + (first if dtype is SI64 else first.cast(dtype))


@handles("EyeLike")
def eye_like(node: Node) -> Tensor:
    """EyeLike: ones on a diagonal."""
    rows, columns = node[0].shape
    dtype = dtype_of(node.attr("dtype"), "dtype") if node.attr("dtype") else node[0].dtype
    down, across = (node.iota([rows, columns], SI64, a) for a in (0, 1))
    return (across - down).compare_eq(int(node.attr("k", 0))).cast(dtype)


@handles("Trilu")
def trilu(node: Node) -> Tensor:
    """Trilu: the upper or lower triangle; the rest is zero."""
    x = node[0]
    down, across = (node.iota(x.shape[-2:], SI64, a) for a in (0, 1))
    offset: Tensor | int = node[1].reshape([]) if node.has(1) else 0
    kept = across - down >= offset if node.attr("upper") else across - down <= offset
    return kept.select(x, _scalar(x, 0))


@handles("DepthToSpace")
def depth_to_space(node: Node) -> Tensor:
    """DepthToSpace: channels as pixels."""
    x, b = node[0], node.attr("blocksize")
    n, c, h, w = map(of, x.shape)
    if node.attr("mode", "DCR") == "DCR":
        y = reshaped(x, [n, b, b, c // b**2, h, w]).transpose([0, 3, 4, 1, 5, 2])
    else:
        y = reshaped(x, [n, c // b**2, b, b, h, w]).transpose([0, 1, 4, 2, 5, 3])
    return reshaped(y, [n, c // b**2, h * b, w * b])


@handles("SpaceToDepth")
def space_to_depth(node: Node) -> Tensor:
    """SpaceToDepth: pixels as channels."""
    x, b = node[0], node.attr("blocksize")
    n, c, h, w = map(of, x.shape)
    order = [0, 1, 3, 5, 2, 4] if node.attr("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    y = reshaped(x, [n, c, h // b, b, w // b, b]).transpose(order)
    return reshaped(y, [n, c * b**2, h // b, w // b])


@handles("CenterCropPad")
def center_crop_pad(node: Node) -> Tensor:
    """CenterCropPad: cropped or padded to a shape, around the center."""
    x = node[0]
    axes = [axis(a, x.rank) for a in node.attr("axes") or range(x.rank)]
    for a, wanted in zip(axes, node.ints(1), strict=True):
        n = fixed(x.shape[a])
        low, high = (wanted - n) // 2, wanted - n - (wanted - n) // 2
        x = cut(x, a, (n - wanted) // 2, wanted) if n > wanted else pad(x, a, low, high)
    return x


@handles("Dropout")
def dropout(node: Node) -> list[Tensor]:
    """Dropout in inference: the operand, and a mask that keeps all."""
    x = node[0]
    if node.given("is_test") == 0:
        raise refused("Dropout in training mode draws random numbers of its own")
    node.idle("ratio", "seed", 1)
    if node.has(2) and bool(node.known(2).reshape(())) and (not node.has(1) or float(node.known(1).reshape(())) != 0):
        raise refused("Dropout in training mode draws random numbers of its own")
    return [x, node.constant(True).broadcast_to(x.shape)] if node.wants(1) else [x]

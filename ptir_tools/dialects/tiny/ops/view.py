"""VIEW and POOL: general affine re-indexing (Tiny IR 2.1; map syntax in docs/tiny.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ptir_tools.core import errors
from ptir_tools.core import expressions as ex
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op, same
from ptir_tools.core.dtypes import DType
from ptir_tools.core.expressions import Poly, Quotient
from ptir_tools.core.ir import MOVEMENT, PURE, Asks, Op, Operand
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim, Shape, TensorType
from ptir_tools.core.violations import Violation, attribute, require
from ptir_tools.dialects.tiny import immediates
from ptir_tools.dialects.tiny.ops.rules import Map, Scalar, shape_text, type_text

if TYPE_CHECKING:
    from ptir_tools.dialects.tiny.ops.rules import Result

drawing = Later("ptir_tools.dialects.tiny.drawing")

ENUMERATED = 1 << 22  # so many points are checked one by one if intervals do not decide


def axis_name(i: int) -> str:
    """The name of result axis `i` inside a map."""
    return f"@{i}"


def shown(p: Poly) -> str:
    """An expression of a map for messages, with axes as i0, i1, …"""
    return str(p).replace("@", "i")


def axes_of(p: Poly) -> list[int]:
    """The result axes that an expression of a map mentions."""
    return sorted({int(n[1:]) for n in p.names() if n.startswith("@")})


def require_affine(p: Poly, text: str) -> None:
    """Raise NonAffineIndexMap unless at most one factor of every product depends on an axis, and no divisor does."""
    for monomial, _ in p.monomials:
        bearing = [a for a in monomial if axes_of(ex.term((a,)))]
        require(len(bearing) <= 1, "NonAffineIndexMap", f"`{text}` multiplies axes", at="index_map")
        for a in bearing:
            if isinstance(a, Quotient):
                require(not axes_of(a.right), "NonAffineIndexMap", f"`{text}` divides by an axis", at="index_map")
                require_affine(a.left, text)


def view_type(x: TensorType, *, result_shape: Shape, map: Map, guard: Map = (), fill: Scalar = 0) -> TensorType:
    """An affine entry per axis of `x`; every point that no guard excludes reads inside `x`; `fill` is representable in its
    dtype."""
    require(len(map) == x.rank, "InvalidArg", f"the map has {len(map)} entries for {type_text(x)}", at="map")
    entries, guards = [ex.of_dim(e) for e in map], [ex.of_dim(e) for e in guard]
    for p in (*entries, *guards):
        require_affine(p, shown(p))
        outside = [a for a in axes_of(p) if a >= len(result_shape)]
        require(not outside, "InvalidArg", f"`{shown(p)}` names an axis that {shape_text(result_shape)} has not", at="index_map")
    immediates.require_fits(fill, x.dtype, "the fill of VIEW", "NeutralInvalid", at="fill")
    result = x.with_shape(result_shape)
    if x.is_static and result.is_static and not any(ex.names(str(p)) for p in (*entries, *guards)):
        _require_inside(x, result.static_shape, entries, guards)
    return result


def _require_inside(x: TensorType, shape: tuple[int, ...], entries: list[Poly], guards: list[Poly]) -> None:
    least = {axis_name(i): (0, max(n - 1, 1)) for i, n in enumerate(shape)}  # a factor counts even if its axis has only one index
    for p in (*entries, *guards):
        require(p.magnitude(least) < 1 << 62, "UnguardedAccess", f"`{shown(p)}` does not fit 64 bits", at="index_map")
    if 0 in shape:
        return
    box = {axis_name(i): (0, n - 1) for i, n in enumerate(shape)}
    for axis, (p, n) in enumerate(zip(entries, x.static_shape, strict=True)):
        low, high = p.interval(box)
        if low >= 0 and high < n:
            continue
        found = _enumerate(p, guards, shape) or ((low, high) if not guards else None)
        help = 'bound the reads with "guard", or PAD the source'
        if found is None:
            message = f"cannot tell whether `{shown(p)}` stays inside axis {axis} of {type_text(x)}: too many points"
            raise Violation("UnguardedAccess", message, help=help, at=attribute("map", axis))
        low, high = found
        message = f"`{shown(p)}` reaches {low if low < 0 else high}, outside axis {axis} of {type_text(x)}"
        require(low >= 0 and high < n, "UnguardedAccess", message, help=help, at=attribute("map", axis))


def _enumerate(p: Poly, guards: list[Poly], shape: tuple[int, ...]) -> ex.Interval | None:
    """The smallest and largest value of `p` at points where all guards hold; (0, -1) if there are no such points, None if there
    are too many points to check."""
    axes = sorted({a for q in (p, *guards) for a in axes_of(q)})
    if prod(shape[a] for a in axes) > ENUMERATED:
        return None
    values = _grid(axes, shape)
    index = np.asarray(p.evaluate(values), np.int64)
    where = _all_hold(guards, values, tuple(shape[a] for a in axes))
    index = np.broadcast_to(index, where.shape)[where]
    return (int(index.min()), int(index.max())) if index.size else (0, -1)


def _grid(axes: Sequence[int], shape: tuple[int, ...]) -> dict[str, Array]:
    """Open arrays of the indices along `axes` of `shape`, by the names that maps use."""
    open_grid = np.ogrid[tuple(slice(shape[a]) for a in axes)] if axes else ()
    return {axis_name(a): g for a, g in zip(axes, open_grid, strict=True)}


def _all_hold(guards: Iterable[Poly], values: dict[str, Array], shape: tuple[int, ...]) -> Array:
    where = np.ones(shape, np.bool_)
    for g in guards:
        where = where & (np.asarray(g.evaluate(values)) >= 0)
    return where


def linear_index(source: tuple[int, ...], shape: tuple[int, ...], map: Map, guard: Map) -> tuple[Array, Array]:
    """For every point of the result: the row-major index of the source element that it reads (0 where a guard fails), and
    whether all guards hold."""
    values = _grid(range(len(shape)), shape)
    where = _all_hold([ex.of_dim(g) for g in guard], values, shape)
    flat = np.zeros(shape, np.int64)
    for n, entry in zip(source, map, strict=True):
        flat = flat * n + np.asarray(ex.of_dim(entry).evaluate(values), np.int64)
    return np.where(where, flat, 0), where


def fold_view(op: Op) -> Operand | None:
    """`x`, when the map is the identity and there is no guard."""
    is_identity = all(ex.of_dim(d) == ex.name(axis_name(i)) for i, d in enumerate(op.attr("map")))
    return op.operands[0] if is_identity and not op.attr("guard") else None


@op(
    "tiny.VIEW",
    infer=view_type,
    fold=fold_view,
    traits=PURE | MOVEMENT,
    error=errors.moved(fill=0),
    generate=drawing.draw_view,
    asks=Asks(passed=same),
)
def view(
    x: Array,
    *,
    result_shape: Shape,
    map: Map,
    guard: Map = (),
    fill: Scalar = 0,
    result: Result,
) -> Array:
    """Element (i0, i1, …) of the result is the element of `x` at the indices that `map` gives, affine expressions with `//`
    and `%`. Where an expression of `guard` is negative it is `fill`. Tiny IR 2.1."""
    index, where = linear_index(x.shape, result.static_shape, map, guard)
    dtype: DType = result.dtype
    outside = immediates.as_array(fill, dtype)
    if not x.size:
        return np.full(result.static_shape, outside)
    return np.where(where, x.reshape(-1)[index], outside)


def pool_type(x: TensorType, *, kernel: Shape, stride: Shape | None = None, dilation: Shape | None = None) -> TensorType:
    """One entry per windowed axis, the last ones of `x`; the kernel fits."""
    k = len(kernel)
    strides, dilations = stride or (1,) * k, dilation or (1,) * k
    other = "stride" if len(strides) != k else "dilation"
    require(k == len(strides) == len(dilations), "InvalidArg", "kernel, stride and dilation of POOL differ in length", at=other)
    require(0 < k <= x.rank, "InvalidArg", f"a POOL over {k} axes of {type_text(x)}", at="kernel")
    for name, dims in (("kernel", kernel), ("stride", strides), ("dilation", dilations)):
        for i, d in enumerate(dims):
            require(not isinstance(d, int) or d >= 1, "InvalidArg", f"POOL: {d} is not positive", at=attribute(name, i))
    lead = x.rank - k
    out = [_windows(*row) for row in zip(x.shape[lead:], kernel, strides, dilations, strict=True)]
    return x.with_shape((*x.shape[:lead], *out, *kernel))


def _windows(extent: Dim, kernel: Dim, stride: Dim, dilation: Dim) -> Dim:
    """`ceil((extent - dilation * (kernel - 1)) / stride)`."""
    i, k, s, d = map(ex.of_dim, (extent, kernel, stride, dilation))
    one = ex.constant(1)
    room = i - d * (k - one)
    message = f"a kernel of {kernel} with dilation {dilation} is larger than its axis of {extent}"
    require(room.value is None or room.value > 0, "InvalidArg", message, at="kernel")
    return ex.to_dim((room + s - one) // s)


def pool_map(rank: int, stride: Shape, dilation: Shape) -> Map:
    """The index map of a POOL of a source of `rank` axes: leading axes, windows, kernel offsets."""
    k = len(stride)
    lead = rank - k

    def entry(i: int) -> Poly:
        here = ex.name(axis_name(i))
        if i < lead:
            return here
        return ex.of_dim(stride[i - lead]) * here + ex.of_dim(dilation[i - lead]) * ex.name(axis_name(i + k))

    return tuple(ex.to_dim(entry(i)) for i in range(rank))


@op("tiny.POOL", infer=pool_type, traits=PURE | MOVEMENT, generate=drawing.draw_pool)
def pool(x: Array, *, kernel: Shape, stride: Shape | None = None, dilation: Shape | None = None, result: Result) -> Array:
    """Sliding windows over the last axes of `x`: element (…, o, …, k, …) is `x[…, o * stride + k * dilation, …]`. Only the
    specification's example 5.2 uses it. `canonicalize` replaces it by a VIEW."""
    ones = (1,) * len(kernel)
    maps = pool_map(x.ndim, stride or ones, dilation or ones)
    index, _ = linear_index(x.shape, result.static_shape, maps, ())
    return x.reshape(-1)[index]

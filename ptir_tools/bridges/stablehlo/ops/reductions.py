"""Reductions, windows and maps, whose regions compute on scalars. A known reduction becomes an op of PTIR; any other region is
inlined on tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

from ptir_tools.bridges.constants import known
from ptir_tools.bridges.extent_ops import every, reversed_along
from ptir_tools.bridges.extents import Extent, Size
from ptir_tools.bridges.node import results_of
from ptir_tools.bridges.numbers import converted, square_root
from ptir_tools.bridges.stablehlo.ops.movement import elements, filled, padded, strided
from ptir_tools.bridges.stablehlo.scopes import RETURNS, Scope, read_names
from ptir_tools.bridges.stablehlo.syntax import Binding, Block, Parameter, Statement
from ptir_tools.bridges.stablehlo.table import CUSTOM, HANDLERS, Site, Tensor, handles, refused, sizes_of, unknown_op
from ptir_tools.bridges.stablehlo.terms import Terms
from ptir_tools.core.dtypes import I1, SI32, SI64, DType
from ptir_tools.core.ir import Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Shape, TensorType
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.grammars.parser import Token, token

MONOIDS = {
    "stablehlo.add": "add", "stablehlo.multiply": "mul", "stablehlo.maximum": "max", "stablehlo.minimum": "min",
    "stablehlo.and": "and", "stablehlo.or": "or", "stablehlo.xor": "xor",
}  # fmt: skip
_OPS = {kind: name for name, kind in MONOIDS.items()}
_REDUCED = {
    "add": "reduce_sum", "mul": "reduce_prod", "max": "reduce_max", "min": "reduce_min", "and": "reduce_and", "or": "reduce_or",
    "xor": "reduce_xor",
}  # fmt: skip
_WINDOWS = {"add": "sum", "max": "max", "min": "min"}
_RUNNING = {"add": "cumsum", "mul": "cumprod", "max": "cummax", "min": "cummin"}
_OF_FLAGS = {"add": "or", "mul": "and", "max": "or", "min": "and"}  # the same ops on i1
MOST_TAPS = 4096
Combine = Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]]


def monoid(kind: str, dtype: DType) -> str:
    """The kind of combination for a dtype."""
    return _OF_FLAGS.get(kind, kind) if dtype is I1 else kind


def kinds(site: Site, region: Block, count: int) -> list[str] | None:
    """The kinds by which a region combines parameters k and k + count, or None if it does anything else. `replace` returns the
    second, `keep` the first."""
    if not region.body or region.body[-1].name not in RETURNS or len(region.params) != 2 * count:
        return None
    terms, names = Terms(site, region), []
    for k, name in enumerate(read_names(region.body[-1].pieces)):
        a, b = terms.parameter(k), terms.parameter(k + count)
        forms = {terms.both(op, a, b): kind for op, kind in MONOIDS.items()} | {a: "keep", b: "replace"}
        names.append(forms.get(terms.of(name), ""))
    return names if len(names) == count and all(names) else None


def computation(site: Site, count: int) -> Block:
    """The region that combines `count` pairs: in braces, as a reducer, or as the op that `applies` names."""
    if isinstance(named := site.attrs.get("applies"), Token):
        return _applied(named)
    if not site.regions:
        help = "`applies stablehlo.add` after the operands, or a region" if site.statement.at.type == "NAME" else None
        raise Violation("OperandCountMismatch", f"`{site.name}` has no region that combines elements", help=help)
    region = site.regions[0]
    groups = site.parameters
    if groups and not region.params:
        require(all(len(g) == 2 for g in groups), "InvalidAttributeValue", "a reducer takes pairs")
        return Block([g[0] for g in groups] + [g[1] for g in groups], region.body)
    return region


def _applied(name: Token) -> Block:
    """A region of one op on two scalars of any type."""

    def result(kind: str, text: str) -> Token:
        return token(kind, text, name.start_pos, name.end_pos)

    a, b, c = (result("SSA", f"%{n}") for n in ("a", "b", "c"))
    op = Statement(str(name), name, [("c", 1)], [a, b], None, None, start=name.start_pos, end=name.end_pos)
    end = Statement("stablehlo.return", name, [], [c], start=name.start_pos, end=name.end_pos)
    return Block([Parameter(a, result("TYPE", ""), {}), Parameter(b, result("TYPE", ""), {})], [op, end])


def scalars_of(site: Site, region: Block, count: int) -> list[DType | None]:
    """The dtypes of the first `count` parameters of a region, if they are declared."""
    dtypes = []
    for p in region.params[:count]:
        t = site.scope.type(p.type) if p.type else None
        dtypes.append(t.dtype if isinstance(t, TensorType) else None)
    return dtypes


def promoted(site: Site, region: Block, xs: Sequence[Tensor]) -> list[Tensor]:
    """Operands converted to the dtypes of the region's parameters."""
    dtypes = scalars_of(site, region, len(xs))
    require(len(dtypes) == len(xs), "OperandCountMismatch", f"a region on {2 * len(xs)} scalars is expected")
    return [x if d is None else converted(x, d) for x, d in zip(xs, dtypes, strict=True)]


def combined(site: Site, region: Block, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> list[Tensor]:
    """The results of a region on scalars, applied elementwise to tensors."""
    shape = xs[0].shape
    if region.params and not region.params[0].type:  # one op of any type
        name = region.body[0].name
        if name not in HANDLERS:
            raise unknown_op(name)
        return list(site.each([HANDLERS[name].handler(site, xs[0], ys[0])]))
    result = site.scope.inline(region, [*xs, *ys], lift=shape, count=len(xs))
    return list(site.each(result))


def apply(site: Site, kind: str, x: Tensor, y: Tensor) -> Tensor:
    """Two tensors combined by the op of a kind."""
    if kind in ("keep", "replace"):
        return x if kind == "keep" else y
    return next(site.each([HANDLERS[_OPS[kind]].handler(site, x, y)]))


def identity(kind: str, dtype: DType) -> float | None:
    """The identity element of the reduction, or None."""
    if kind in ("max", "min"):
        if dtype.is_float:
            return -math.inf if kind == "max" else math.inf
        return None if dtype.is_complex else dtype.min if kind == "max" else dtype.max
    whole = True if dtype is I1 else -1 if dtype.is_signed else dtype.max if dtype.is_integer else None
    return {"add": 0, "mul": 1, "or": 0, "xor": 0, "and": whole}.get(kind)


def is_identity(kind: str, init: Tensor) -> bool:
    """Whether an initial value is known to be the identity."""
    number, neutral = known(init), identity(kind, init.dtype)
    return number is not None and neutral is not None and bool(number.reshape(-1)[0] == neutral)


def spread(site: Site, x: Tensor, shape: Shape) -> Tensor:
    """A scalar broadcast to a shape."""
    return x if x.shape == tuple(shape) else x.broadcast_to(result_shape=shape)


def halves(operands: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The operands as inputs and as many initial values."""
    count = len(operands) // 2
    require(count and len(operands) == 2 * count, "OperandCountMismatch", "inputs and as many initial values are expected")
    return list(operands[:count]), list(operands[count:])


def initial(site: Site, inits: Sequence[Tensor]) -> None:
    """Check the initial values of a reduction, and that the pretty form marks them. Raises Violation."""
    count = len(inits)
    for i, x in enumerate(inits):
        if x.rank and site.scope.lift is None:
            raise Violation("OperandRankMismatch", f"the initial value is {x.type}, expected a scalar", at=operand(count + i))
    marked = any(isinstance(x, Binding) for piece in site.statement.pieces if isinstance(piece, list) for x in piece)
    if site.statement.at.type == "NAME" and not marked:
        first, second = site.names[0], site.names[count]
        message = f"`init:` is missing before the initial value `{second}`"
        raise Violation("SyntaxError", message, help=f"write `{first} init: {second}`", loc=second.loc)


@handles("stablehlo.reduce")
def reduce(site: Site, *operands: Tensor) -> list[Tensor]:
    """The combination of the elements along axes with an initial value."""
    xs, inits = halves(operands)
    initial(site, inits)
    region = computation(site, len(xs))
    axes = site.axes("dimensions", xs[0].rank)
    xs, inits = promoted(site, region, xs), promoted(site, region, inits)
    if (combiners := kinds(site, region, len(xs))) is not None and not set(combiners) & {"keep", "replace"}:
        return [_reduced(site, monoid(k, x.dtype), x, i, axes) for k, x, i in zip(combiners, xs, inits, strict=True)]
    if (place := _placed(site, region, xs, inits, axes)) is not None:
        return place
    rest = [a for a in range(xs[0].rank) if a not in axes]
    shape = tuple(xs[0].shape[a] for a in rest)
    starts = [spread(site, i, shape) for i in inits]
    counts = [xs[0].shape[a] for a in axes]
    if not all(isinstance(n, int) for n in counts):
        raise refused("a region that is not one of PTIR's reductions, over a symbolic extent")
    number = math.prod(n for n in counts if isinstance(n, int))
    if not number:
        return starts
    rows = [x.transpose([*axes, *rest]).reshape([number, *shape]) for x in xs]
    folded = [x.reshape(shape) for x in tree(rows, lambda a, b: combined(site, region, a, b))]
    return combined(site, region, starts, folded)


_EXTREME = {"GT": ("max", "argmax"), "LT": ("min", "argmin")}


def _placed(site: Site, region: Block, xs: list[Tensor], inits: list[Tensor], axes: Sequence[int]) -> list[Tensor] | None:
    """The largest or smallest elements and their first indices, if a region on pairs computes these; a NaN comes first."""
    if len(xs) != 2 or len(axes) != 1 or len(region.params) != 4 or known(inits[1]) is None or np.any(known(inits[1])):
        return None
    place = xs[1].operand.op if isinstance(xs[1].operand, Value) else None
    x = xs[0]
    if place is None or place.defn.name != "ptir.iota" or place.attr("axis") != axes[0] or xs[1].shape != x.shape:
        return None
    if x.dtype.is_complex or x.dtype is I1 or x.shape[axes[0]] == 0:
        return None
    terms = Terms(site, region)
    picked = [terms.of(name) for name in read_names(region.body[-1].pieces)]
    for direction, (kind, op) in _EXTREME.items():
        forms = [_picking(terms, direction, nans=True)]
        forms += [] if x.dtype.is_float else [_picking(terms, direction, nans=False)]
        if picked not in forms or not is_identity(kind, inits[0]):
            continue
        result = site.op(op, x, axis=axes[0], output_dtype=SI32 if xs[1].dtype is SI32 else SI64)
        return [site.op(_REDUCED[kind], x, axes=axes), converted(result, xs[1].dtype)]
    return None


def _picking(terms: Terms, direction: str, *, nans: bool) -> list[int]:
    """The results of a region that picks from (a, i) and (b, j)."""
    a, i, b, j = map(terms.parameter, range(4))
    better = terms.number(("compare", direction, False), (a, b))
    if nans:
        better = terms.both("stablehlo.or", better, terms.both(("compare", "NE", False), a, a))
    before = terms.number(("compare", "LT", False), (i, j))
    tied = terms.both("stablehlo.and", terms.both(("compare", "EQ", False), a, b), before)
    first = terms.both("stablehlo.or", better, tied)
    return [terms.number("stablehlo.select", (better, a, b)), terms.number("stablehlo.select", (first, i, j))]


def tree(rows: list[Tensor], combine: Combine) -> list[Tensor]:
    """Rows combined pairwise, in order, to one."""
    while (number := rows[0].shape[0]) != 1:
        assert isinstance(number, int)
        rest = sizes_of(rows[0])[1:]
        pairs = [_first(x, number // 2 * 2).reshape([number // 2, 2, *rest]) for x in rows]
        sides = [
            [x.slice([0, k, *(0 for _ in rest)], [number // 2, 1, *rest]).reshape([number // 2, *rest]) for x in pairs]
            for k in (0, 1)
        ]
        result = combine(*sides)
        if number % 2:
            last = [x.slice([number - 1, *(0 for _ in rest)], [1, *rest]) for x in rows]
            result = [x.block.concat([x, y], axis=0) for x, y in zip(result, last, strict=True)]
        rows = result
    return rows


def _first(x: Tensor, count: int) -> Tensor:
    return x if x.shape[0] == count else x.slice([0] * x.rank, [count, *sizes_of(x)[1:]])


def _reduced(site: Site, kind: str, x: Tensor, init: Tensor, axes: Sequence[int]) -> Tensor:
    if kind in ("max", "min") and x.dtype.is_complex:
        raise refused("the largest of complex numbers")
    result = site.op(_REDUCED[kind], x, axes=axes)
    return result if is_identity(kind, init) else apply(site, kind, spread(site, init, result.shape), result)


# Windows


@handles("stablehlo.reduce_window")
def reduce_window(site: Site, *operands: Tensor) -> list[Tensor]:
    """The combination of each window with an initial value, which is also the padding."""
    xs, inits = halves(operands)
    region, rank = computation(site, len(xs)), xs[0].rank
    xs, inits = promoted(site, region, xs), promoted(site, region, inits)
    window = site.counts("window_dimensions", rank, 1)
    strides, base, dilation = (site.counts(n, rank, 1, 1) for n in ("window_strides", "base_dilations", "window_dilations"))
    return windows(site, region, xs, inits, window, strides, base, dilation, site.pairs("padding", rank))


def dynamic_window(site: Site, *operands: Tensor) -> list[Tensor]:
    """A window reduction with operands as attributes, as a call; JAX writes it for symbolic extents."""
    *given, window, strides, base, dilation, padding = operands
    xs, inits = halves(given)
    region = site.scope.reader.functions[str(site.value("called_computations")[0]).lstrip("@").strip('"')]
    numbers = [elements(site, v, "a window") for v in (window, strides, base, dilation, padding)]
    lists = [[n for n in v if isinstance(n, int)] for v in numbers[1:4]]
    if any(len(v) < len(numbers[0]) for v in lists):
        raise refused("a window whose strides or dilations are extents")
    sides = list(zip(numbers[4][0::2], numbers[4][1::2], strict=True))
    if region.body is None:
        raise Violation("UndefinedValue", "the function of a window has no body")
    block = Block(region.params or region.body.params, region.body.body)
    return windows(site, block, xs, inits, numbers[0], lists[0], lists[1], lists[2], sides)


def windows(
    site: Site,
    region: Block,
    xs: list[Tensor],
    inits: list[Tensor],
    window: Sequence[Size],
    strides: Sequence[int],
    base: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[tuple[Size, Size]],
) -> list[Tensor]:
    """A window reduction: PTIR's op for known kinds, a running reduction by doubling, otherwise one slice per tap."""
    combiners = kinds(site, region, len(xs))
    names = [monoid(k, x.dtype) for k, x in zip(combiners, xs, strict=True)] if combiners else []
    single = [k for k, n in enumerate(window) if isinstance(n, Extent) or n > 1]
    ones = all(n == 1 for n in (*strides, *base, *dilation))
    extents = [site.symbolic.extent(n) for n in xs[0].shape]
    open_ = any(isinstance(n, Extent) for n in window)
    n = window[single[0]] if len(single) == 1 else None
    if n is not None and ones and n == extents[single[0]] and (isinstance(n, Extent) or n > 4):
        sides = padding[single[0]]
        plain = all(p == (0, 0) for a, p in enumerate(padding) if a != single[0])
        if plain and sides in ((n - 1, 0), (0, n - 1)) and (not names or all(map(is_identity, names, inits))):
            if names and all(
                k in _RUNNING and x.dtype is not I1 and not x.dtype.is_complex for k, x in zip(names, xs, strict=True)
            ):
                return [site.op(_RUNNING[k], x, axis=single[0], reverse=sides[0] == 0) for k, x in zip(names, xs, strict=True)]
            if open_:
                return stepwise(site, region, xs, inits, single[0], backward=sides[0] == 0)
            return running(site, region, xs, inits, single[0], backward=sides[0] == 0)
    if open_ or not every([n for pair in padding for n in pair]) or any(isinstance(n, Extent) for pair in padding for n in pair):
        raise refused("a window over a symbolic extent that is not a running reduction")
    kernel = [n for n in window if not isinstance(n, Extent)]
    pads = [(p, q) for p, q in padding if not isinstance(p, Extent) and not isinstance(q, Extent)]
    counts = [placements(*axis) for axis in zip(extents, kernel, strides, base, dilation, pads, strict=True)]
    if 0 in counts and xs[0].tensor_type.is_static:
        return [site.full(0, x.tensor_type.with_shape(map(site.symbolic.dim, counts))) for x in xs]
    least = min((n for pair in pads for n in pair), default=0)
    direct = (
        [
            k in _WINDOWS and x.dtype is not I1 and not x.dtype.is_complex and least >= 0 and is_identity(k, i)
            for k, x, i in zip(names, xs, inits, strict=True)
        ]
        if names
        else [False]
    )
    if all(direct):
        lists = kernel, strides, pads, base, dilation
        types = [x.tensor_type.with_shape(map(site.symbolic.dim, counts)) for x in xs]
        made = zip(names, xs, types, strict=True)
        return [site.op("reduce_window", x, *lists, reduce=_WINDOWS[k], types=[t]) for k, x, t in made]
    low, high = [p[0] for p in pads], [p[1] for p in pads]
    full = [padded(site, x, i, low, high, [b - 1 for b in base]) for x, i in zip(xs, inits, strict=True)]
    taps = _taps(full, kernel, strides, dilation)
    shape = taps[0][0].shape
    starts = [spread(site, i, shape) for i in inits]
    return combined(site, region, starts, in_order(taps, lambda a, b: combined(site, region, a, b)))


def placements(n: Size, window: int, stride: int, base: int, dilation: int, padding: tuple[int, int]) -> Size:
    """The number of positions of a window along an integer or extent."""
    if not isinstance(n, int):
        return ((n - 1) * base + 1 + sum(padding) - (window - 1) * dilation - 1) // stride + 1
    wide = max(0, (n - 1) * base + 1) + sum(padding)
    return max(0, (wide - (window - 1) * dilation - 1) // stride + 1)


def in_order(taps: list[list[Tensor]], combine: Combine) -> list[Tensor]:
    """Tensors combined pairwise, in order, to one."""
    while len(taps) > 1:
        pairs = [combine(taps[i], taps[i + 1]) for i in range(0, len(taps) - 1, 2)]
        taps = [*pairs, *([taps[-1]] if len(taps) % 2 else [])]
    return taps[0]


def _taps(xs: Sequence[Tensor], window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> list[list[Tensor]]:
    """For each tap of a window, its elements at every position."""
    if math.prod(window) > MOST_TAPS:
        raise refused(f"a window of {math.prod(window)} elements, whose region is not one of PTIR's reductions")
    counts = []
    for n, w, s, d in zip(xs[0].shape, window, strides, dilation, strict=True):
        if not isinstance(n, int):
            raise refused("a window over a symbolic extent")
        counts.append((n - (w - 1) * d - 1) // s + 1)
    taps = []
    for offsets in product(*map(range, window)):
        bounds = [(o * d, o * d + (c - 1) * s + 1, s) for o, d, c, s in zip(offsets, dilation, counts, strides, strict=True)]
        taps.append([strided(x, bounds) for x in xs])
    return taps


def running(site: Site, region: Block, xs: list[Tensor], inits: list[Tensor], axis: int, *, backward: bool) -> list[Tensor]:
    """A running combination of all elements up to (or from) each one, by doubling steps."""
    n = xs[0].shape[axis]
    assert isinstance(n, int)
    by = 1
    while by < n:
        shifted = []
        for x, init in zip(xs, inits, strict=True):
            low, high = ([by if a == axis and side != backward else 0 for a in range(x.rank)] for side in (True, False))
            start = [by if a == axis and backward else 0 for a in range(x.rank)]
            kept = x.slice(start, [n - by if a == axis else d for a, d in enumerate(sizes_of(x))])
            shifted.append(filled(site, kept, init, low, high, [0] * x.rank))
        xs = combined(site, region, *((xs, shifted) if backward else (shifted, xs)))
        by *= 2
    return xs


def stepwise(site: Site, region: Block, xs: list[Tensor], inits: list[Tensor], axis: int, *, backward: bool) -> list[Tensor]:
    """A running combination of all elements up to (or from) each one, by a scan along a symbolic axis."""
    scope, order = site.scope, [axis, *(a for a in range(xs[0].rank) if a != axis)]
    if scope.lift is not None:
        raise refused("a window inside a computation on scalars")
    rows = [(reversed_along(x, axis) if backward else x).transpose(order) for x in xs]
    shape = rows[0].shape[1:]
    starts = [site.broadcast(i, shape, []) for i in inits]
    capture = scope.capture([region])
    carried = [*starts, *capture.arguments]

    def body(inner: Scope, params: list[Tensor]) -> Sequence[object]:
        capture.bind(inner, params[len(starts) : len(carried)])
        result = inner.inline(region, [*params[: len(starts)], *params[len(carried) :]], lift=shape, count=len(starts))
        return [*result, *params[len(starts) : len(carried)], *result]

    inner_region = scope.region([*(x.type for x in carried), *(x.tensor_type.with_shape(shape) for x in rows)], body)
    results = results_of(scope.block.op("scan", [*carried, *rows], len(carried), len(starts), regions=[inner_region]))[
        len(carried) :
    ]
    ways = [y.transpose([order.index(a) for a in range(y.rank)]) for y in results]
    return [reversed_along(y, axis) if backward else y for y in ways]


CUSTOM["stablehlo.dynamic_reduce_window"] = dynamic_window


@handles("stablehlo.map")
def map_(site: Site, *operands: Tensor) -> list[Tensor]:
    """A region on scalars, element by element."""
    require(len(site.regions) == 1 and operands, "OperandCountMismatch", "operands and a region are expected")
    return list(site.each(site.scope.inline(site.regions[0], operands, lift=operands[0].shape)))


# Batch normalization


def _along(site: Site, v: Tensor, x: Tensor, axis: int) -> Tensor:
    return site.broadcast(v, x.shape, [axis])


@handles("stablehlo.batch_norm_inference")
def batch_norm_inference(site: Site, x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """`(x - mean) / sqrt(variance + epsilon) * scale + offset` along the feature axis."""
    axis = site.axis("feature_index", x.rank)
    normal, _ = _normalized(site, x, mean, variance, axis)
    return _along(site, scale, x, axis) * normal + _along(site, offset, x, axis)


def _normalized(site: Site, x: Tensor, mean: Tensor, variance: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """`x` with mean 0 and variance 1, and its deviation."""
    deviation = square_root(variance + float(site.value("epsilon")))
    return (x - _along(site, mean, x, axis)) / _along(site, deviation, x, axis), deviation


def _moments(site: Site, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    axes = [a for a in range(x.rank) if a != axis]
    mean = x.mean(axes)
    centered = x - _along(site, mean, x, axis)
    return mean, (centered * centered).mean(axes)


@handles("stablehlo.batch_norm_training")
def batch_norm_training(site: Site, x: Tensor, scale: Tensor, offset: Tensor) -> list[Tensor]:
    """Normalization by the batch's mean and variance, which are results, too."""
    mean, variance = _moments(site, x, site.axis("feature_index", x.rank))
    return [batch_norm_inference(site, x, scale, offset, mean, variance), mean, variance]


@handles("stablehlo.batch_norm_grad")
def batch_norm_grad(site: Site, x: Tensor, scale: Tensor, mean: Tensor, variance: Tensor, grad: Tensor) -> list[Tensor]:
    """The gradients of a batch normalization with respect to its input, scale and offset."""
    axis = site.axis("feature_index", x.rank)
    axes = [a for a in range(x.rank) if a != axis]
    count = math.prod(sizes_of(x)[a] for a in axes)
    normal, deviation = _normalized(site, x, mean, variance, axis)
    of_offset = grad.reduce_sum(axes=axes)
    of_scale = (grad * normal).reduce_sum(axes=axes)
    inner = count * grad - _along(site, of_offset, x, axis) - normal * _along(site, of_scale, x, axis)
    factor = _along(site, scale / deviation, x, axis) / count
    return [factor * inner, of_scale, of_offset]

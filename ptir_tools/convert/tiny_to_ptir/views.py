"""Index maps of Tiny in PTIR: `take` with constant indices, one source axis at a time where the map lets it.

A map in which every result axis serves at most one source axis (windows, strides, reversal, repetition) is split: each
entry becomes a `take` along its own axis with an index constant as small as its own axes. Any other (a diagonal, a reshape
by `//` and `%`) becomes one `take` from the flattened source. Guards that only check bounds become a `pad` of the source; others
select between the taken elements and the fill.

Where an extent is a symbol, the indices are computed from `iota` and the symbol's value, a sum of ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from ptir_tools.convert.to_ptir import PtirEmit
from ptir_tools.core.arrays import Array, to_literal
from ptir_tools.core.dtypes import I1, SI32, SI64, DType
from ptir_tools.core.expressions import Poly, Quotient, constant, linear, name, names, of_dim, parse, product, symbols_in, to_dim
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Dim, Shape, Sym, TensorType, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops.scalars import Scalar, natural_kind
from ptir_tools.dialects.tiny.immediates import as_array, immediate
from ptir_tools.dialects.tiny.ops.view import axes_of, axis_name
from ptir_tools.dialects.tiny.symbols import given
from ptir_tools.rewrite.vocabulary import tensor_type


def view(emit: PtirEmit, x: Operand, entries: Sequence[str], guards: Sequence[str] = (), fill: float = 0) -> Value:
    """The instructions for a VIEW of `x` with these expressions over the result's axes `@k`.

    Raises Violation("UnboundSymbol") where a number is needed that no extent of an input is.
    """
    source = tensor_type(x)
    maps, conditions = [parse(e) for e in entries], [parse(g) for g in guards]
    if _is_open(source, emit.type, maps, conditions):
        return _counted(emit, x, maps, conditions, fill)
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
    """The Violation for a node whose translation needs a number."""
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
    result = p.evaluate({axis_name(a): g for a, g in zip(axes, grid, strict=True)})
    return np.broadcast_to(np.asarray(result, np.int64), extents)


def _indices(emit: PtirEmit, array: Array, extent: int) -> Value:
    """A constant of indices below `extent`; those that a guard excludes are clamped."""
    dtype = SI32 if extent <= 1 << 31 else SI64
    inside = np.clip(array, 0, max(extent - 1, 0))
    return emit("constant", value=to_literal(inside, tensor(dtype, array.shape)))


def _widths(x: TensorType, result: TensorType, maps: list[Poly], guards: list[Poly]) -> list[tuple[int, int]] | None:
    """The padding of the source, before and after on each axis, that makes guards redundant. None when the guards are not exactly
    the bounds, and when the padded source would be larger than source and result."""
    shape = result.shape
    source = [n for n in x.shape if isinstance(n, int)]
    extents = [n for n in shape if isinstance(n, int)]
    if len(source) < len(maps) or 0 in extents:
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


def _is_open(source: TensorType, result: TensorType, maps: Sequence[Poly], guards: Sequence[Poly]) -> bool:
    """Whether indices depend on a symbol. Axes that are kept whole need no indices."""
    used = [a for p in maps for a in axes_of(p)]
    read = [n for n, p in enumerate(maps) if len(used) > len(set(used)) or not _whole(source, result, n, p)]
    extents = [source.shape[n] for n in read] + [result.shape[a] for p in (*(maps[n] for n in read), *guards) for a in axes_of(p)]
    return any(names(str(p)) for p in (*maps, *guards)) or not all(isinstance(d, int) for d in extents)


def _whole(source: TensorType, result: TensorType, n: int, p: Poly) -> bool:
    """Whether axis `n` of the source is an axis of the result as it is."""
    return any(str(p) == axis_name(a) and source.shape[n] == result.shape[a] for a in axes_of(p))


def _counted(emit: PtirEmit, x: Operand, maps: Sequence[Poly], guards: Sequence[Poly], fill: float) -> Value:
    """A read at computed indices, with computed guards."""
    known = given([p.type for p in emit.source.params]) | {*_symbols(tensor_type(x).shape)}
    if missing := [s.name for s in _symbols(emit.shape) if s not in known]:
        raise unbound(list(dict.fromkeys(missing)), "the index map")  # no op made here would determine it
    if not guards:
        return _read(emit, x, maps, False, emit.last)
    inside, *others = (emit("compare_ge", _number(emit, g, emit.shape), _number(emit, constant(0), emit.shape)) for g in guards)
    for more in others:
        inside = emit("select", inside, more, inside)
    outside = emit("broadcast_to", immediate(fill, emit.type.dtype), result_shape=emit.shape)
    return emit.last("select", inside, _read(emit, x, maps, True, emit), outside)


def _symbols(shape: Shape) -> Iterator[Sym]:
    return (n for s in shape if isinstance(s, Sym) for n in symbols_in(s))


def _read(emit: PtirEmit, x: Operand, maps: Sequence[Poly], moved: bool, last: Callable[..., Value]) -> Value:
    """`x` at computed indices, which are clamped if it is `moved`; `last` makes the last instruction. Last axes that stay as they
    are have no indices."""
    shape = tensor_type(x).shape
    if all(d == 1 for d in shape):
        one = x if len(shape) <= len(emit.shape) else emit("reshape", x, new_shape=())
        return last("broadcast_to", one, result_shape=emit.shape)
    count = len(shape) - _kept(tensor_type(x), emit.type, maps)
    outer = emit.shape[: len(emit.shape) - len(shape) + count]
    linear: Value | None = None
    for d, p in zip(shape[:count], maps, strict=False):
        at = _number(emit, p, outer)
        if moved:
            most, least = _number(emit, of_dim(d) - constant(1), outer), _number(emit, constant(0), outer)
            at = emit("maximum", emit("minimum", at, most), least)
        linear = at if linear is None else emit("add", emit("mul", linear, _number(emit, of_dim(d), outer)), at)
    flat = x if count == 1 else emit("reshape", x, new_shape=(to_dim(product(shape[:count])), *shape[count:]))
    return last("take", flat, linear)


def _kept(source: TensorType, result: TensorType, maps: Sequence[Poly]) -> int:
    """How many of the last axes are those of the result as they are, and of no other entry; not all of them."""
    kept = 0
    while kept + 1 < min(source.rank, result.rank):
        axis, n = result.rank - 1 - kept, source.rank - 1 - kept
        same = str(maps[n]) == axis_name(axis) and source.shape[n] == result.shape[axis]
        if not same or any(axis in axes_of(p) for p in maps[:n]):
            break
        kept += 1
    return kept


def _number(emit: PtirEmit, p: Poly, shape: Shape) -> Value:
    """`p` at every index of `shape`, the first axes of the result, in si32. Raises Violation("UnboundSymbol")."""
    total: Value | None = None
    for monomial, coefficient in _of_extents(emit, p).monomials:
        factors = [_atom(emit, atom, shape) for atom in monomial]
        if (coefficient != 1 and (coefficient != -1 or total is None)) or not factors:
            factors.append(emit.full(immediate(coefficient, SI32), shape))
        term = factors[0]
        for factor in factors[1:]:
            term = emit("mul", term, factor)
        total = term if total is None else emit("sub" if coefficient == -1 and monomial else "add", total, term)
    return emit.full(immediate(0, SI32), shape) if total is None else total


def _of_extents(emit: PtirEmit, p: Poly) -> Poly:
    """`p` with derived symbols replaced by the input extents, such as `2*N`, that determine them."""
    given = [d.name for x in emit.source.params for d in tensor_type(x).shape if isinstance(d, Sym)]
    for n in dict.fromkeys(p.names()):
        if n.startswith("@") or n in given:
            continue
        for text in given:
            given_terms, terms = linear(parse(text), n), linear(p, n)
            if given_terms is None or (scale := given_terms[0].value) is None or not {*given_terms[1].names()} <= {*given}:
                continue
            rest, by = (name(text) - given_terms[1]) * constant(1 if scale > 0 else -1), constant(abs(scale))
            whole = terms is not None and (times := terms[0] // by) * by == terms[0]
            p = times * rest + terms[1] if whole and terms is not None else p.put({n: rest // by})
            break
    return p


def _atom(emit: PtirEmit, atom: str | Quotient[str], shape: Shape) -> Value:
    """An axis index, the value of a symbol, or a floor quotient of these."""
    if isinstance(atom, Quotient):
        x, y = _number(emit, atom.left, shape), _number(emit, atom.right, shape)
        rest = emit("mod", x, y)
        return rest if atom.op == "%" else emit("div", emit("sub", x, rest), y)
    if atom.startswith("@"):
        return emit("iota", shape=shape, dtype=SI32, axis=int(atom[1:]))
    known = {d.name: d for p in emit.source.params for d in tensor_type(p).shape if isinstance(d, Sym)}
    if atom not in known:
        raise unbound([atom], "the index map")
    ones = emit("broadcast_to", immediate(1, SI32), result_shape=(known[atom],))
    return emit.full(emit("reduce_sum", ones, axes=(0,), accum_dtype=SI32, out_dtype=SI32), shape)


def _by_axis(emit: PtirEmit, x: Operand, maps: list[Poly], last: Callable[..., Value]) -> Value:
    """A take along one source axis after another; `order` lists the result axes so far."""
    shape, source = emit.shape, tensor_type(x).shape
    whole = [n for n, p in enumerate(maps) if _whole(tensor_type(x), emit.type, n, p)]
    order: list[int] = []
    indexed = [n for n in range(len(maps)) if n not in whole]
    in_place = [a for p in maps for a in axes_of(p)] == list(range(len(shape)))
    for n, p in enumerate(maps):
        axes, at = axes_of(p), len(order)
        if n not in whole:
            make = last if in_place and n == indexed[-1] else emit
            x = _gathered(emit, x, at, _values(p, axes, _extents(shape, axes)), _extents(source, [n])[0], make)
        order.extend(axes)
    return x if in_place and indexed and isinstance(x, Value) else _arranged(emit, x, order, last)


def _gathered(emit: PtirEmit, x: Operand, at: int, indices: Array, extent: int, make: Callable[..., Value]) -> Value:
    """`x` with axis `at` replaced by the axes of `indices`; `make` makes the last instruction."""
    rank, k = tensor_type(x).rank, indices.ndim
    if at == 0:
        return make("take", x, _indices(emit, indices, extent))
    front = emit("transpose", x, perm=(at, *(i for i in range(rank) if i != at)))
    rows = emit("take", front, _indices(emit, indices, extent))
    return make("transpose", rows, perm=(*range(k, k + at), *range(k), *range(k + at, k + rank - 1)))


def _arranged(emit: PtirEmit, x: Operand, order: list[int], last: Callable[..., Value]) -> Value:
    """A transpose to the result's axes, broadcast along those that no entry mentions."""
    shape = emit.shape
    wanted = sorted(order)
    whole = len(order) == len(shape)
    if order != wanted:
        make = last if whole else emit
        x = make("transpose", x, perm=tuple(order.index(a) for a in wanted))
    elif whole:
        return last("reshape", x, new_shape=shape)
    if whole:
        assert isinstance(x, Value)
        return x
    thin = emit("reshape", x, new_shape=tuple(d if i in wanted else 1 for i, d in enumerate(shape)))
    return last("broadcast_to", thin, result_shape=shape)


def _flat(emit: PtirEmit, x: Operand, maps: list[Poly], last: Callable[..., Value]) -> Value:
    """One take from the flattened source."""
    extents = _extents(tensor_type(x).shape, range(tensor_type(x).rank))
    shape = _extents(emit.shape, range(emit.type.rank))
    axes = range(len(shape))
    linear = np.zeros(shape, np.int64)
    for n, p in zip(extents, maps, strict=True):
        linear = linear * n + np.clip(_values(p, axes, shape), 0, max(n - 1, 0))
    count = int(np.prod(extents, dtype=object))
    flat = emit("reshape", x, new_shape=(count,))
    return last("take", flat, _indices(emit, linear, count))


def _mask(emit: PtirEmit, guards: list[Poly]) -> Value:
    """The mask of all guards in the result's shape: a constant over the axes that guards mention, broadcast."""
    shape = emit.shape
    axes = sorted({a for g in guards for a in axes_of(g)})
    extents = _extents(shape, axes)
    holds = _holds(guards, axes, extents)
    thin = tuple(n if i in axes else 1 for i, n in enumerate(shape))
    constant = emit("constant", value=to_literal(holds.reshape(thin), tensor(I1, thin)))
    return emit("broadcast_to", constant, result_shape=shape)


def _holds(guards: list[Poly], axes: Sequence[int], extents: tuple[int, ...]) -> Array:
    """The points of a box over `axes` at which every guard holds."""
    holds = np.ones(extents, np.bool_)
    for g in guards:
        holds = holds & (_values(g, axes, extents) >= 0)
    return holds

"""The loops of each value in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.bridges.c.fusion import is_splat
from ptir_tools.bridges.c.nest import Nest, groups, place
from ptir_tools.bridges.c.random import drawing
from ptir_tools.bridges.c.scalars import NARROW, NIBBLES, computed, memory, number, product
from ptir_tools.core.dtypes import F32, FP8_E4M3, SI64, DType
from ptir_tools.core.ir import Attribute, Element, Literal, Op, Operand, Value
from ptir_tools.core.types import Dim, Shape
from ptir_tools.dialects.ptir.ops.scatter import index_vector_axis, window_extents
from ptir_tools.rewrite.vocabulary import tensor_type

LANES = 16  # partial results of a reduction, which compilers keep in vectors


def refined(n: Nest, x: Operand, shape: Shape) -> list[tuple[Dim, ...]]:
    """The loops of each axis of `x`: an axis of windows has one per axis of the window."""
    alone: list[tuple[Dim, ...]] = [(d,) for d in shape]
    if not isinstance(x, Value) or x in n.buffers or x.op is None:
        return alone
    short = x.op.defn.short
    if short == "extract_patches":
        return [*alone[:-1], (*x.op.attr("window"), tensor_type(x.op.operands[0]).shape[-1])]
    if short == "reshape":
        y = x.op.operands[0]
        source = tensor_type(y).shape
        inner = refined(n, y, source)
        result: list[tuple[Dim, ...]] = [()] * len(shape)
        for here, there in groups(shape, source):
            if len(here) == 1:
                result[here[0]] = tuple(d for a in there for d in inner[a])
            else:
                for a in here:
                    result[a] = (shape[a],)
        return [r or (d,) for r, d in zip(result, shape, strict=True)]
    return alone


def fill(n: Nest, x: Operand, to: str, dtype: DType, order: Sequence[int] | None = None) -> None:
    """Write the elements of `x`, with its axes in `order`, to the buffer `to`, in `dtype`."""
    shape = tensor_type(x).shape
    order = range(len(shape)) if order is None else order
    parts = refined(n, x, shape)
    with n.within([d for a in order for d in parts[a]], each=True) as flat:
        rest, index = list(flat), [""] * len(shape)
        for a in order:
            own, rest = rest[: len(parts[a])], rest[len(parts[a]) :]
            index[a] = n.joined(tuple(own), parts[a]) if len(own) != 1 else own[0]
        index = [i or "0" for i in index]
        value = n.element(x, tuple(index))
        if tensor_type(x).dtype is not dtype:
            value = n.helpers.cast(tensor_type(x).dtype, dtype, value)
        at = n.slot(to, tuple(flat), tuple(d for a in order for d in parts[a]))
        n.put(f"{at} = {n.helpers.store(dtype, value)};")


def _identity(kind: str, dtype: DType) -> str:
    if kind in ("sum", "or", "xor"):
        return number(0, dtype)
    if kind == "prod":
        return number(1, dtype)
    if kind == "and":
        return number((-1 if dtype.is_signed else dtype.max) if dtype.is_integer else 1, dtype)
    low = kind == "max"
    if dtype.is_float:
        return "(-INFINITY)" if low else "INFINITY"
    return number((dtype.min if low else dtype.max) if dtype.is_integer else (0 if low else 1), dtype)


def combined(n: Nest, kind: str, dtype: DType, x: str, y: str) -> str:
    """Two partial results of a reduction as one."""
    if kind in ("max", "min"):
        return n.helpers.extreme(dtype, kind, x, y)
    signs = {"sum": "+", "prod": "*", "and": "&", "or": "|", "xor": "^"}
    if kind in ("sum", "prod"):
        return n.helpers.wrapped(dtype, signs[kind], x, y)
    return f"({computed(dtype)})({x} {signs[kind]} {y})"


def _attr(op: Op, name: str) -> Attribute:
    """An attribute, or None where the op has none of that name."""
    return next((v for a, v in zip(op.defn.attrs, op.attrs, strict=True) if a.name == name), None)


def reduction(n: Nest, op: Op, to: str) -> None:
    """Loops over the result and in them over `axes`; partial results where the last axis is reduced. Without a buffer `to`, the
    result is a local constant of the loops around."""
    x, kind = op.operands[0], op.defn.short.removeprefix("reduce_")
    t, axes = tensor_type(x), [a % max(tensor_type(x).rank, 1) for a in op.attr("axes")]
    out = tensor_type(op.result).dtype
    dtype = _attr(op, "accum_dtype") or (_default(t.dtype) if kind in ("sum", "prod") else t.dtype)
    kept = [a for a in range(t.rank) if a not in axes]
    sums, total = computed(dtype), n.name("t")
    with n.within([t.shape[a] for a in kept]) as outer:
        n.put(f"{sums} {total} = {_identity(kind, dtype)};")
        where = dict(zip(kept, outer, strict=True))
        last = t.shape[-1] if t.rank else 1
        if t.rank - 1 in axes and dtype.is_float and (not isinstance(last, int) or last >= LANES):
            _in_lanes(n, op, kind, dtype, total, where, axes)
        else:
            with n.loops([t.shape[a] for a in axes]) as inner:
                at = where | dict(zip(axes, inner, strict=True))
                value = n.helpers.cast(t.dtype, dtype, n.element(x, tuple(at[a] for a in range(t.rank))))
                n.put(f"{total} = {combined(n, kind, dtype, total, value)};")
        total = n.helpers.wrapping(dtype, total)
        value = n.helpers.cast(dtype, out, total) if dtype is not out else total
        if to:
            n.put(f"{n.slot(to, outer, tuple(t.shape[a] for a in kept))} = {n.helpers.store(out, value)};")
        else:
            n.locals[op.result] = n.let(computed(out), n.helpers.rounded(out, value))


def _default(dtype: DType) -> DType:
    """The accumulator's dtype where none is written."""
    return F32 if dtype.is_float and dtype.bits < 32 else dtype


def _in_lanes(n: Nest, op: Op, kind: str, dtype: DType, total: str, where: dict[int, str], axes: Sequence[int]) -> None:
    """A reduction along the last axis, several elements at a time."""
    x = op.operands[0]
    t = tensor_type(x)
    last, lanes, k = n.extent(t.shape[-1]), n.name("lanes"), n.name("i")

    def add(to: str, at: dict[int, str]) -> None:
        value = n.helpers.cast(t.dtype, dtype, n.element(x, tuple(at[a] for a in range(t.rank))))
        n.put(f"{to} = {combined(n, kind, dtype, to, value)};")

    n.put(f"{computed(dtype)} {lanes}[{LANES}];")
    with n.block(f"for (int l = 0; l < {LANES}; l++)"):
        n.put(f"{lanes}[l] = {_identity(kind, dtype)};")
    rest, each = [a for a in axes if a != t.rank - 1], f"PTIR_LANES for (int l = 0; l < {LANES}; l++)"
    with n.loops([t.shape[a] for a in rest]) as inner:
        at = where | dict(zip(rest, inner, strict=True))
        n.put(f"int64_t {k} = 0;")
        with (
            n.block(f"for (; {k} + {LANES} <= {last}; {k} += {LANES})"),
            n.block(each),
        ):
            add(f"{lanes}[l]", at | {t.rank - 1: f"{k} + l"})
        with n.block(f"for (; {k} < {last}; {k}++)"):
            add(total, at | {t.rank - 1: k})
    with n.block(f"for (int l = 0; l < {LANES}; l++)"):
        n.put(f"{total} = {combined(n, kind, dtype, total, f'{lanes}[l]')};")


def window_reduction(n: Nest, op: Op, to: str) -> None:
    """Loops over places, and in them over the window; what lies outside is left out."""
    x, kind = op.operands[0], str(op.attr("reduce")).rpartition(".")[2].lower()
    t, out = tensor_type(x), tensor_type(op.result)
    dtype = op.attr("accum_dtype") or (_default(t.dtype) if kind == "sum" else t.dtype)
    total = n.name("t")
    with n.loops(out.shape) as places:
        n.put(f"{computed(dtype)} {total} = {_identity(kind, dtype)};")
        with n.loops(op.attr("window_dims")) as taps:
            conditions, index = list[str](), list[str]()
            names = ("strides", "window_dilation", "base_dilation", "padding")
            for i, k, d, s, f, base, (low, high) in zip(places, taps, t.shape, *map(op.attr, names), strict=True):
                at = " + ".join(v if c == 1 else f"({v})*{c}" for v, c in ((i, s), (k, f)) if v != "0") or "0"
                if low or high or base != 1:
                    some, at = place(n, n.let("int64_t", at), low, base, d)
                    conditions += some
                index.append(at)
            with n.block(f"if ({' && '.join(conditions)})" if conditions else ""):
                value = n.helpers.cast(t.dtype, dtype, n.element(x, tuple(index)))
                n.put(f"{total} = {combined(n, kind, dtype, total, value)};")
        total = n.helpers.wrapping(dtype, total)
        value = n.helpers.cast(dtype, out.dtype, total) if dtype is not out.dtype else total
        n.put(f"{to}[{n.linear(places, out.shape)}] = {n.helpers.store(out.dtype, value)};")


def extreme_index(n: Nest, op: Op, to: str) -> None:
    """The first index of the largest or smallest element; a NaN is above, or below, all."""
    x, sign = op.operands[0], ">" if op.defn.short == "argmax" else "<"
    t, axis = tensor_type(x), op.attr("axis") % tensor_type(x).rank
    kept, c = [a for a in range(t.rank) if a != axis], computed(t.dtype)
    with n.loops([t.shape[a] for a in kept]) as outer:
        best, at, k = n.name("t"), n.name("t"), n.name("i")
        n.put(f"{c} {best} = 0;")
        n.put(f"int64_t {at} = 0;")
        with n.block(f"for (int64_t {k} = 0; {k} < {n.extent(t.shape[axis])}; {k}++)"):
            where = {**dict(zip(kept, outer, strict=True)), axis: k}
            value = n.let(c, n.element(x, tuple(where[a] for a in range(t.rank))))
            nan = f" || ({value} != {value} && {best} == {best})" if t.dtype.is_float else ""
            with n.block(f"if ({k} == 0 || {value} {sign} {best}{nan})"):
                n.put(f"{best} = {value};")
                n.put(f"{at} = {k};")
        n.put(f"{to}[{n.linear(outer, tuple(t.shape[a] for a in kept))}] = ({memory(tensor_type(op.result).dtype)}){at};")


def cumulation(n: Nest, op: Op, to: str) -> None:
    """A running result along an axis."""
    x, kind = op.operands[0], op.defn.short.removeprefix("cum")
    t, axis = tensor_type(x), op.attr("axis") % tensor_type(x).rank
    dtype = _default(t.dtype) if kind in ("sum", "prod") else t.dtype
    kept, total, k = [a for a in range(t.rank) if a != axis], n.name("t"), n.name("i")
    with n.loops([t.shape[a] for a in kept]) as outer:
        n.put(f"{computed(dtype)} {total} = {_identity(kind, dtype)};")
        with n.block(f"for (int64_t {k} = 0; {k} < {n.extent(t.shape[axis])}; {k}++)"):
            i = n.let("int64_t", f"{n.extent(t.shape[axis])} - 1 - {k}") if op.attr("reverse") else k
            where = {**dict(zip(kept, outer, strict=True)), axis: i}
            index = tuple(where[a] for a in range(t.rank))
            value = n.let(computed(dtype), n.helpers.cast(t.dtype, dtype, n.element(x, index)))
            write = f"{to}[{n.linear(index, t.shape)}] = {n.helpers.store(t.dtype, total)};"
            step = f"{total} = {combined(n, kind, dtype, total, value)};"
            for line in (write, step) if op.attr("exclusive") else (step, write):
                n.put(line)


def contraction(n: Nest, op: Op, to: Sequence[str], scratch: Callable[[DType, Shape], str]) -> None:
    """A product of matrices per index of the batch axes. Operands in another order or dtype are written in order first."""
    x, y = op.operands
    out = tensor_type(op.result)
    accum = _attr(op, "accum_dtype") or _default(tensor_type(x).dtype)
    dtype = F32 if accum in NARROW else accum
    batches, contracts = [op.attr(f"batch_{s}") for s in ("lhs", "rhs")], [op.attr(f"contract_{s}") for s in ("lhs", "rhs")]
    free = [
        [a for a in range(tensor_type(v).rank) if a not in (*b, *c)] for v, b, c in zip((x, y), batches, contracts, strict=True)
    ]
    left = _ordered(n, x, [*batches[0], *free[0], *contracts[0]], dtype, scratch)
    right = _ordered(n, y, [*batches[1], *contracts[1], *free[1]], dtype, scratch)
    shapes = [tensor_type(v).shape for v in (x, y)]
    b = [shapes[0][a] for a in batches[0]]
    m, k, c = ([shapes[0][a] for a in free[0]], [shapes[0][a] for a in contracts[0]], [shapes[1][a] for a in free[1]])
    sizes = [" * ".join(map(n.extent, v)) or "1" for v in (m, c, k)]
    name = n.helpers.use(*product(n.helpers, dtype))
    into = to[0] if accum is dtype is out.dtype and dtype not in NIBBLES else scratch(dtype, out.shape)
    with n.loops(b) as index:
        at = n.joined(index, tuple(b)) if b else "0"
        starts = [f"{p} + ({at}) * ({r}) * ({s})" if b else p for p, r, s in
                  ((left, sizes[0], sizes[2]), (right, sizes[2], sizes[1]), (into, sizes[0], sizes[1]))]  # fmt: skip
        n.put(f"{name}({', '.join(sizes)}, {', '.join(starts)});")
    if into != to[0]:
        with n.loops(out.shape) as index:
            at = n.linear(index, out.shape)
            total = n.helpers.rounded(accum, f"{into}[{at}]")
            value = n.helpers.cast(accum, out.dtype, total) if accum is not out.dtype else total
            n.put(f"{to[0]}[{at}] = {n.helpers.store(out.dtype, value)};")


def _ordered(n: Nest, x: Operand, order: Sequence[int], dtype: DType, scratch: Callable[[DType, Shape], str]) -> str:
    """The name of a buffer with the elements of `x` in `dtype`, its axes in `order`."""
    t = tensor_type(x)
    moved = [a for a in order if t.shape[a] != 1]
    if t.dtype is dtype and moved == sorted(moved) and (buffer := n.buffer(x)) is not None:
        n.read[buffer] = memory(t.dtype)
        return buffer
    if t.dtype is dtype and moved == sorted(moved) and (table := _table(x)) is not None:
        n.constant(table, ("0",) * t.rank)
        return n.tables[table]
    to = scratch(dtype, tuple(t.shape[a] for a in order))
    fill(n, x, to, dtype, order)
    return to


def _table(x: Operand) -> Literal | None:
    """The constant with several numbers that `x` is."""
    if isinstance(x, Value) and x.op is not None and x.op.defn.short == "constant":
        x = x.op.attr("value")
    return x if isinstance(x, Literal) and not is_splat(x) else None


def ranking(n: Nest, op: Op, to: Sequence[str], scratch: Callable[[DType, Shape], str]) -> None:
    """`sort` and `top_k`: a merge sort of the indices along the axis, then the elements in that order."""
    t = tensor_type(op.operands[0])
    axis, ranked = op.attr("axis") % t.rank, op.defn.short == "top_k"
    d, falling = n.extent(t.shape[axis]), op.attr("largest" if ranked else "descending")
    keys = op.operands[: 1 if ranked else op.attr("keys")]
    row = t.shape[axis : axis + 1]
    order, other = scratch(SI64, row), scratch(SI64, row)
    with n.loops([e for a, e in enumerate(t.shape) if a != axis]) as outer:

        def at(i: str) -> tuple[str, ...]:
            return (*outer[:axis], i, *outer[axis:])

        with n.block(f"for (int64_t l = 0; l < {d}; l++)"):
            n.put(f"{order}[l] = l;")
        n.put(f"int64_t *from = {order}, *into = {other};")
        with (
            n.block(f"for (int64_t width = 1; width < {d}; width *= 2)"),
            n.block(f"for (int64_t low = 0; low < {d}; low += 2 * width)"),
        ):
            n.put(f"const int64_t middle = low + width < {d} ? low + width : {d};")
            n.put(f"const int64_t high = low + 2 * width < {d} ? low + 2 * width : {d};")
            n.put("int64_t a = low, b = middle;")
            with n.block("for (int64_t l = low; l < high; l++)"):
                n.put("int later = a >= middle;")
                with n.block("if (a < middle && b < high)"):
                    tests = [_before(n, x, at("from[b]"), at("from[a]"), falling) for x in keys]
                    for k, (less, more) in enumerate(tests):
                        n.put(f"later = {less};" if k == 0 else f"later = equal{k} ? {less} : later;")
                        if k + 1 < len(tests):
                            so_far = f"equal{k} && " if k else ""
                            n.put(f"const int equal{k + 1} = {so_far}!({less}) && !({more});")
                n.put("into[l] = later ? from[b++] : from[a++];")
            with n.block(f"if (high == {d})"):
                n.put("int64_t *const swapped = from;")
                n.put("from = into;")
                n.put("into = swapped;")
        out = tensor_type(Element(op.result, 0)) if len(to) > 1 else tensor_type(op.result)
        with n.block(f"for (int64_t l = 0; l < {n.extent(out.shape[axis])}; l++)"):
            place = n.linear(at("l"), out.shape)
            n.put("const int64_t best = from[l];")
            for x, name in zip(op.operands, to, strict=False):
                dtype = tensor_type(x).dtype
                n.put(f"{name}[{place}] = {n.helpers.store(dtype, n.element(x, at('best')))};")
            if ranked:
                n.put(f"{to[1]}[{place}] = ({memory(op.attr('indices_dtype'))})best;")


def _before(n: Nest, x: Operand, here: Sequence[str], there: Sequence[str], falling: bool) -> tuple[str, str]:
    """Whether an element comes before another one, and whether it comes after. A NaN is larger than all numbers."""
    dtype = tensor_type(x).dtype
    a, b = (n.let(computed(dtype), n.element(x, tuple(i))) for i in (here, there))
    less, more = (f"{p} < {q}" + (f" || ({q} != {q} && {p} == {p})" if dtype.is_float else "") for p, q in ((a, b), (b, a)))
    return (more, less) if falling else (less, more)


def gathering(n: Nest, op: Op, to: Sequence[str], scratch: Callable[[DType, Shape], str]) -> None:
    """Scatters and `segment_reduce`: the first operand, or what a sum begins with, into which updates are combined in order."""
    short, out = op.defn.short, tensor_type(op.result)
    kind = (
        str(_attr(op, "kind") or _attr(op, "reduce") or "add")
        .rpartition(".")[2]
        .lower()
        .replace("add", "sum")
        .replace("mul", "prod")
    )
    dtype = _attr(op, "accum_dtype") or (_default(out.dtype) if kind in ("sum", "prod") else out.dtype)
    dtype = F32 if dtype is FP8_E4M3 else dtype  # which has no infinity to begin with
    into = to[0] if dtype is out.dtype else scratch(dtype, out.shape)
    if short == "segment_reduce":
        with n.loops(out.shape) as index:
            n.put(f"{into}[{n.linear(index, out.shape)}] = {n.helpers.store(dtype, _identity(kind, dtype))};")
    else:
        fill(n, op.operands[0], into, dtype)
    updates = op.operands[0 if short == "segment_reduce" else 2]
    u = tensor_type(updates)
    with n.loops(u.shape) as index:
        place, conditions = _places[short](n, op, index)
        with n.block(f"if ({' && '.join(conditions)})" if conditions else ""):
            at = f"{into}[{n.linear(tuple(place), out.shape)}]"
            value = n.helpers.cast(u.dtype, dtype, n.element(updates, index))
            value = value if kind == "replace" else combined(n, kind, dtype, n.helpers.load(dtype, at), value)
            n.put(f"{at} = {n.helpers.store(dtype, value)};")
    if into != to[0]:
        with n.loops(out.shape) as index:
            at = n.linear(index, out.shape)
            value = n.helpers.cast(dtype, out.dtype, n.helpers.load(dtype, f"{into}[{at}]"))
            n.put(f"{to[0]}[{at}] = {n.helpers.store(out.dtype, value)};")


Place = tuple[list[str], list[str]]  # the indices of an update, and the conditions under which it is combined


def _segment(n: Nest, op: Op, index: Sequence[str]) -> Place:
    i = n.let("int64_t", f"(int64_t){n.element(op.operands[1], (index[0],))}")
    return [i, *index[1:]], [n.helpers.inside(i, n.extent(tensor_type(op.result).shape[0]))]


def _along(n: Nest, op: Op, index: Sequence[str]) -> Place:
    axis = op.attr("axis") % len(index)
    i = n.let("int64_t", f"(int64_t){n.element(op.operands[1], tuple(index))}")
    return [*index[:axis], i, *index[axis + 1 :]], [n.helpers.inside(i, n.extent(tensor_type(op.result).shape[axis]))]


def _windowed(n: Nest, op: Op, index: Sequence[str]) -> Place:
    """The start of the window and the place in it. A window that leaves the operand is an error, unless it is dropped."""
    x, starts, updates = (tensor_type(v) for v in op.operands)
    window = sorted(a % updates.rank for a in op.attr("update_window_dims"))
    inserted = [a % x.rank for a in op.attr("inserted_window_dims")]
    sizes = window_extents(x.shape, updates.shape, op.attr("update_window_dims"), op.attr("inserted_window_dims"))
    vector = index_vector_axis(op.attr("index_vector_dim"), starts.rank)
    batch, inner = [i for a, i in enumerate(index) if a not in window], iter([index[a] for a in window])
    place, conditions = ["0" if a in inserted else next(inner) for a in range(x.rank)], list[str]()
    drop = bool(_attr(op, "drop"))
    for k, axis in enumerate(a % x.rank for a in op.attr("scatter_dims_to_operand_dims")):
        where = (*batch[:vector], str(k), *batch[vector:]) if vector < starts.rank else tuple(batch)
        i = n.let("int64_t", f"(int64_t){n.element(op.operands[1], where)}")
        last = f"{n.extent(x.shape[axis])} - {n.extent(sizes[axis])} + 1"
        if not drop:
            conditions.append(n.helpers.inside(i, last))
        place[axis] = i if place[axis] == "0" else n.let("int64_t", f"{i} + {place[axis]}")
    if drop:
        conditions = [f"{i} >= 0 && {i} < {n.extent(d)}" for i, d in zip(place, x.shape, strict=True) if i != "0"]
    return place, conditions


_places: dict[str, Callable[[Nest, Op, Sequence[str]], Place]] = {
    "segment_reduce": _segment, "scatter_reduce": _along, "scatter_add": _windowed, "scatter": _windowed,
}  # fmt: skip

# Steps with several results, or with scratch memory.
SEVERAL: dict[str, Callable[..., None]] = {
    "dot_general": contraction, "sort": ranking, "top_k": ranking, **dict.fromkeys(_places, gathering),
}  # fmt: skip
STEPS: dict[str, Callable[..., None]] = {
    **{f"reduce_{k}": reduction for k in ("sum", "max", "min", "prod", "and", "or", "xor")},
    **{f"cum{k}": cumulation for k in ("sum", "max", "min", "prod")},
    "rng_uniform": drawing, "rng_normal": drawing,
    "reduce_window": window_reduction, "argmax": extreme_index, "argmin": extreme_index,
}  # fmt: skip

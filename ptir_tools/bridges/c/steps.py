"""The loops of each value in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.bridges.c.fusion import is_splat
from ptir_tools.bridges.c.nest import Nest, groups, place
from ptir_tools.bridges.c.scalars import computed, memory, number, product, wrapping
from ptir_tools.core.dtypes import F32, DType
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.types import Dim, Shape
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
    with n.loops([d for a in order for d in parts[a]]) as flat:
        rest, index = list(flat), [""] * len(shape)
        for a in order:
            own, rest = rest[: len(parts[a])], rest[len(parts[a]) :]
            index[a] = n.joined(tuple(own), parts[a]) if len(own) != 1 else own[0]
        index = [i or "0" for i in index]
        value = n.element(x, tuple(index))
        if tensor_type(x).dtype is not dtype:
            value = n.helpers.cast(tensor_type(x).dtype, dtype, value)
        at = n.linear(tuple(flat), tuple(d for a in order for d in parts[a]))
        n.put(f"{to}[{at}] = {n.helpers.store(dtype, value)};")


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


def _attr(op: Op, name: str) -> DType | None:
    return next((v for a, v in zip(op.defn.attrs, op.attrs, strict=True) if a.name == name), None)


def reduction(n: Nest, op: Op, to: str) -> None:
    """Loops over the result and in them over `axes`; partial results where the last axis is reduced."""
    x, kind = op.operands[0], op.defn.short.removeprefix("reduce_")
    t, axes = tensor_type(x), [a % max(tensor_type(x).rank, 1) for a in op.attr("axes")]
    out = tensor_type(op.result).dtype
    dtype = _attr(op, "accum_dtype") or (_default(t.dtype) if kind in ("sum", "prod") else t.dtype)
    kept = [a for a in range(t.rank) if a not in axes]
    sums, total = computed(dtype), n.name("t")
    with n.loops([t.shape[a] for a in kept]) as outer:
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
        value = n.helpers.store(out, n.helpers.cast(dtype, out, total) if dtype is not out else total)
        n.put(f"{to}[{n.linear(outer, tuple(t.shape[a] for a in kept))}] = {value};")


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


def contraction(n: Nest, op: Op, to: str, scratch: Callable[[DType, Shape], str]) -> None:
    """A product of matrices per index of the batch axes. Operands in another order or dtype are written in order first."""
    x, y = op.operands
    out = tensor_type(op.result)
    dtype = _attr(op, "accum_dtype") or _default(tensor_type(x).dtype)
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
    t, total = computed(dtype), wrapping(dtype)
    name = n.helpers.use(*product(t, total))
    into = to if dtype is out.dtype else scratch(dtype, out.shape)
    with n.loops(b) as index:
        at = n.joined(index, tuple(b)) if b else "0"
        starts = [f"{p} + ({at}) * ({r}) * ({s})" if b else p for p, r, s in
                  ((left, sizes[0], sizes[2]), (right, sizes[2], sizes[1]), (into, sizes[0], sizes[1]))]  # fmt: skip
        n.put(f"{name}({', '.join(sizes)}, {', '.join(starts)});")
    if into != to:
        with n.loops(out.shape) as index:
            at = n.linear(index, out.shape)
            n.put(f"{to}[{at}] = {n.helpers.store(out.dtype, n.helpers.cast(dtype, out.dtype, f'{into}[{at}]'))};")


def _ordered(n: Nest, x: Operand, order: Sequence[int], dtype: DType, scratch: Callable[[DType, Shape], str]) -> str:
    """The name of a buffer with the elements of `x` in `dtype`, its axes in `order`."""
    t = tensor_type(x)
    moved = [a for a in order if t.shape[a] != 1]
    if t.dtype is dtype and moved == sorted(moved) and isinstance(x, Value) and x in n.buffers:
        n.read[n.buffers[x]] = memory(t.dtype)
        return n.buffers[x]
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


STEPS: dict[str, Callable[..., None]] = {
    **{f"reduce_{k}": reduction for k in ("sum", "max", "min", "prod", "and", "or", "xor")},
    **{f"cum{k}": cumulation for k in ("sum", "max", "min", "prod")},
    "reduce_window": window_reduction, "argmax": extreme_index, "argmin": extreme_index,
}  # fmt: skip

"""Loops, and the C of one element of a value at an index.

An index is a C expression per axis. `Joined` is one that was made from indices of several axes, and can be taken apart again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from ptir_tools.bridges.c.fusion import MAPS, is_splat
from ptir_tools.bridges.c.scalars import ELEMENTS, Helpers, computed, memory, number
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.expressions import Poly, of_dim, product
from ptir_tools.core.ir import Element, Literal, Op, Operand, Value
from ptir_tools.core.types import Dim, Shape
from ptir_tools.core.violations import Violation
from ptir_tools.rewrite.vocabulary import tensor_type

Index = tuple[str, ...]
Key = Value | tuple[Value, int]  # a value, or an element of one


class Joined(str):
    """The index of an axis that joins `axes`, pairs of an index and an extent."""

    axes: tuple[tuple[str, Dim], ...] = ()


def key(x: Value | Element) -> Key:
    """The value, or the element of a value, that is an operand."""
    return (x.value, x.index) if isinstance(x, Element) else x


class Nest:
    """Writes the body of the function. `buffers` are the C names of values in memory. `aliases` are the operands that parameters
    of regions and results of loops are, with the first indices where they are slices of them."""

    def __init__(self, helpers: Helpers) -> None:
        self.helpers = helpers
        self.lines: list[str] = []
        self.depth = 1
        self.fresh = 0
        self.known: list[dict[tuple[Value, Index], str]] = [{}]
        self.buffers: dict[Key, str] = {}
        self.aliases: dict[Key, tuple[Operand, Index]] = {}
        self.tables: dict[Literal, str] = {}  # constants with several numbers
        self.read: dict[str, str] = {}  # the buffers that the current step reads, with their types
        self.symbols: dict[str, str] = {}
        self.outer: Index = ()  # the indices of the loops that several steps share
        self.locals: dict[Value, str] = {}  # of those loops: the values that are a number in each turn
        self.rowed: dict[str, int] = {}  # buffers that have a row alone: the number of axes that they lack
        self.turns: tuple[str, ...] = ()  # the numbers of the iterations of the loops around

    def put(self, line: str) -> None:
        """One line."""
        self.lines.append("    " * self.depth + line)

    def name(self, letter: str) -> str:
        """A new name."""
        self.fresh += 1
        return f"{letter}{self.fresh}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines in braces; what they compute is not known after them."""
        self.put(f"{head} {{".lstrip())
        self.depth += 1
        self.known.append(dict(self.known[-1]))
        yield
        self.known.pop()
        self.depth -= 1
        self.put("}")

    @contextmanager
    def loops(self, shape: Sequence[Dim], each: bool = False) -> Iterator[Index]:
        """A loop per extent that is not 1. `each`: the elements do not depend on each other. The innermost loop is then marked so
        for compilers, unless something in it may fail."""
        if not shape:
            yield ()
            return
        n, *rest = shape
        if n == 1:
            with self.loops(rest, each) as inner:
                yield ("0", *inner)
            return
        i = self.name("i")
        head, at, checks = f"for (int64_t {i} = 0; {i} < {self.extent(n)}; {i}++)", len(self.lines), self.helpers.checks
        with self.block(head), self.loops(rest, each) as inner:
            yield (i, *inner)
        if each and checks == self.helpers.checks and all(d == 1 for d in rest):
            self.lines[at] = self.lines[at].replace(head, f"PTIR_EACH {head}")

    @contextmanager
    def within(self, shape: Sequence[Dim], each: bool = False) -> Iterator[Index]:
        """A loop per extent that the shared loops do not have, see `loops`."""
        with self.loops(shape[len(self.outer) :], each) as inner:
            yield (*self.outer, *inner)

    def slot(self, buffer: str, index: Index, shape: Shape) -> str:
        """The place of an element in a buffer, as C that can be assigned to."""
        lacks = self.rowed.get(buffer, 0)
        return f"{buffer}[{self.linear(index[lacks:], shape[lacks:])}]"

    def let(self, t: str, value: str) -> str:
        """A local constant."""
        name = self.name("t")
        self.put(f"const {t} {name} = {value};")
        return name

    def put_in(self, x: Key, buffer: str) -> None:
        """The buffer in which a value is from now on."""
        self.aliases.pop(x, None)
        self.buffers[x] = buffer

    def alias(self, x: Key, operand: Operand, index: Index = ()) -> None:
        """What a value is from now on: an operand, or a slice of it."""
        self.buffers.pop(x, None)
        self.aliases[x] = (operand, index)

    def buffer(self, x: Operand) -> str | None:
        """The buffer in which an operand is, if it is in memory as a whole."""
        if isinstance(x, Literal):
            return None
        operand, index = self.aliases.get(key(x), (None, ()))
        return self.buffers.get(key(x)) if operand is None else None if index else self.buffer(operand)

    # Extents and indices

    def extent(self, d: Dim) -> str:
        """An extent in C."""
        return str(d) if isinstance(d, int) else self.poly(of_dim(d))

    def poly(self, p: Poly) -> str:
        """An expression of symbols in C."""
        return _grouped(p.built(self.symbols.__getitem__, str, self._combined))

    def _combined(self, op: str, x: str, y: str | int) -> str:
        """Two texts combined as `Sum.built` asks."""
        if op == "*":
            return f"{y}*{x}" if isinstance(y, int) else f"{x}*{y}"
        if op == "+":
            return f"{x} + {y}"
        a, b = _grouped(x), _grouped(str(y))
        return f"({a} > {b} ? {a} : {b})" if op == "max" else f"{self.helpers.named(_ROUNDED[op])}({a}, {b})"

    def linear(self, index: Index, shape: Shape) -> str:
        """The place of an element in memory."""
        terms: list[str] = []
        for axis, i in enumerate(index):
            if i == "0":
                continue
            rest = [d for d in shape[axis + 1 :] if d != 1]
            whole = prod(d for d in rest if isinstance(d, int))
            factors = [self.extent(d) for d in rest if not isinstance(d, int)] + [str(whole)] * (whole != 1)
            terms.append("*".join([i if i.isidentifier() else f"({i})", *factors]))
        return " + ".join(terms) or "0"

    def joined(self, index: Index, shape: Shape) -> str:
        """One index for several axes."""
        kept = tuple((i, d) for i, d in zip(index, shape, strict=True) if d != 1)
        if len(kept) == 1:
            return kept[0][0]
        result = Joined(self.linear(index, shape))
        result.axes = kept
        return result

    def apart(self, i: str, shape: Shape) -> Index:
        """The indices of several axes from that of the axis that joins them."""
        wanted = [d for d in shape if d != 1]
        if len(wanted) <= 1:
            parts = iter([i] * len(wanted))
        elif isinstance(i, Joined) and [d for _, d in i.axes] == wanted:
            parts = iter(x for x, _ in i.axes)
        else:
            found, rest = list[str](), i if i.isidentifier() else self.let("int64_t", i)
            for d in reversed(wanted[1:]):
                found.append(self.let("int64_t", f"{rest} % {self.extent(d)}"))
                rest = self.let("int64_t", f"{rest} / {self.extent(d)}")
            parts = iter([rest, *reversed(found)])
        return tuple("0" if d == 1 else next(parts) for d in shape)

    def regrouped(self, index: Index, shape: Shape, source: Shape) -> Index:
        """The index in `source` of an element of its reshape to `shape`."""
        result: list[str] = []
        for here, there in groups(shape, source):
            i = self.joined(tuple(index[a] for a in here), tuple(shape[a] for a in here)) if here else "0"
            result += self.apart(i, tuple(source[a] for a in there))
        return tuple(result)

    # Elements

    def element(self, x: Operand, index: Index) -> str:
        """The computed element of `x` at `index`, a C expression."""
        t = tensor_type(x)
        if isinstance(x, Literal):
            return self.constant(x, index)
        if (buffer := self.buffers.get(key(x))) is not None:
            self.read[buffer] = memory(t.dtype)
            return self.helpers.load(t.dtype, self.slot(buffer, index, t.shape))
        if (alias := self.aliases.get(key(x))) is not None:
            return self.element(alias[0], (*alias[1], *index))
        assert isinstance(x, Value)
        if (name := self.locals.get(x) or self.known[-1].get((x, index))) is not None:
            return name
        op = x.op
        assert op is not None
        if op.defn.short in MAPS:
            operands = [self.element(y, index) for y in op.operands]
            name = self.let(computed(t.dtype), self.helpers.rounded(t.dtype, self.scalar(op, operands)))
        else:
            name = MOVED[op.defn.short](self, op, index)
        self.known[-1][x, index] = name
        return name

    def scalar(self, op: Op, operands: Sequence[str]) -> str:
        """An elementwise op on C expressions."""
        source = tensor_type(op.operands[-1]).dtype
        if op.defn.short == "cast":
            return self.helpers.cast(source, tensor_type(op.result).dtype, *operands)
        if op.defn.short == "reduce_precision":
            return self.helpers.reduced(source, op.attr("exponent_bits"), op.attr("mantissa_bits"), *operands)
        return ELEMENTS[op.defn.short](self.helpers, source, *operands)

    def constant(self, x: Literal, index: Index) -> str:
        """An element of a constant."""
        if x.data is None:
            raise Violation("NotTranslatable", "the payload of a constant is missing")
        dtype = x.type.dtype
        if is_splat(x):
            return number(from_literal(x).reshape(-1)[0].item() if x.type.count else 0, dtype)
        table = self.tables.setdefault(x, f"table{len(self.tables)}")
        return self.helpers.load(dtype, f"{table}[{self.linear(index, x.type.shape)}]")

    def guarded(self, x: Operand, index: Index, condition: str, otherwise: str) -> str:
        """The element where `condition` holds, else another expression. It is not read outside."""
        if condition == "1":
            return self.element(x, index)
        name, t = self.name("t"), computed(tensor_type(x).dtype)
        self.put(f"{t} {name} = {otherwise};")
        with self.block(f"if ({condition})"):
            self.put(f"{name} = {self.element(x, index)};")
        return name


_ROUNDED = {"//": "floordiv", "%": "mod"}


def _grouped(x: str) -> str:
    """A sum as an operand."""
    return x if x.lstrip("-").isdigit() else f"({x})"


def groups(a: Shape, b: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """The smallest groups of axes of two shapes of a reshape that have as many elements."""
    i = j = 0
    while i < len(a) or j < len(b):
        if j == len(b) or (i < len(a) and a[i] == 1 and b[j] != 1):
            here, there = [i], list[int]()
        elif i == len(a) or (b[j] == 1 and a[i] != 1):
            here, there = list[int](), [j]
        else:
            here, there = [i], [j]
            while (order := _compared(a[i : here[-1] + 1], b[j : there[-1] + 1])) != 0:
                if (order < 0 or there[-1] + 1 == len(b)) and here[-1] + 1 < len(a):
                    here.append(here[-1] + 1)
                elif there[-1] + 1 < len(b):
                    there.append(there[-1] + 1)
                else:
                    break
        yield here, there
        i, j = i + len(here), j + len(there)


def _compared(x: Shape, y: Shape) -> int:
    """Whether two groups have as many elements (0), or the first has fewer (-1) or perhaps more (1)."""
    p, q = product(x), product(y)
    if p == q:
        return 0
    return -1 if (d := (p - q).value) is not None and d < 0 else 1


# Moves and lookups


def _broadcast(n: Nest, op: Op, index: Index) -> str:
    x = op.operands[0]
    shape = tensor_type(x).shape
    own = index[len(index) - len(shape) :]
    return n.element(x, tuple("0" if d == 1 else i for d, i in zip(shape, own, strict=True)))


def _transpose(n: Nest, op: Op, index: Index) -> str:
    perm = op.attr("perm")
    return n.element(op.operands[0], tuple(index[perm.index(a)] for a in range(len(perm))))


def _reshape(n: Nest, op: Op, index: Index) -> str:
    x = op.operands[0]
    return n.element(x, n.regrouped(index, tensor_type(op.result).shape, tensor_type(x).shape))


def plus(i: str, k: int) -> str:
    """An index plus a number."""
    return i if k == 0 else str(int(i) + k) if i.isdigit() else f"{i} + {k}" if k > 0 else f"{i} - {-k}"


def _slice(n: Nest, op: Op, index: Index) -> str:
    return n.element(op.operands[0], tuple(plus(i, k) for i, k in zip(index, op.attr("starts"), strict=True)))


def place(n: Nest, i: str, low: int, step: int, d: Dim) -> tuple[list[str], str]:
    """The conditions under which the place `i`, less `low` and divided by `step`, is in an axis of `d`, and that place."""
    at = i if low == 0 and step == 1 else n.let("int64_t", f"{i} - {low}")
    conditions = [f"{at} >= 0"] * (low > 0)
    if step != 1:
        conditions.append(f"{at} % {step} == 0")
        at = n.let("int64_t", f"{at} / {step}")
    return [*conditions, f"{at} < {n.extent(d)}"], at


def _pad(n: Nest, op: Op, index: Index) -> str:
    x = op.operands[0]
    conditions, inner = list[str](), list[str]()
    widths = (op.attr("low"), op.attr("high"), op.attr("interior") or (0,) * len(index))
    for i, low, high, interior, d in zip(index, *widths, tensor_type(x).shape, strict=True):
        if not (low or high or interior):
            inner.append(i)
            continue
        some, at = place(n, i, low, interior + 1, d)
        conditions += some
        inner.append(at)
    value = number(getattr(op.attr("pad_value"), "value", op.attr("pad_value")), tensor_type(x).dtype)
    return n.guarded(x, tuple(inner), " && ".join(conditions) or "1", value)


def _concat(n: Nest, op: Op, index: Index) -> str:
    axis, dtype = op.attr("axis") % len(index), tensor_type(op.result).dtype
    if len(op.operands) == 1:
        return n.element(op.operands[0], index)
    name, start = n.name("t"), "0"
    n.put(f"{computed(dtype)} {name} = {number(0, dtype)};")
    for x in op.operands:
        end = n.let("int64_t", f"{start} + {n.extent(tensor_type(x).shape[axis])}")
        with n.block(f"if ({index[axis]} >= {start} && {index[axis]} < {end})"):
            at = index[axis] if start == "0" else n.let("int64_t", f"{index[axis]} - {start}")
            n.put(f"{name} = {n.element(x, (*index[:axis], at, *index[axis + 1 :]))};")
        start = end
    return name


def _tile(n: Nest, op: Op, index: Index) -> str:
    x = op.operands[0]
    where = zip(index, op.attr("repeats"), tensor_type(x).shape, strict=True)
    return n.element(
        x, tuple(i if r == 1 else "0" if d == 1 else n.let("int64_t", f"({i}) % {n.extent(d)}") for i, r, d in where)
    )


def _iota(n: Nest, op: Op, index: Index) -> str:
    dtype = tensor_type(op.result).dtype
    i = index[op.attr("axis")]
    if dtype.is_float and dtype.bits < 32:
        return n.helpers.rounded(dtype, f"(float)({i})")
    return n.helpers.wrapping(dtype, f"({computed(dtype)})({i})")


def _constant(n: Nest, op: Op, index: Index) -> str:
    return n.constant(op.attr("value"), index)


def _take(n: Nest, op: Op, index: Index) -> str:
    x, at = op.operands
    rank, shape = tensor_type(at).rank, tensor_type(x).shape
    i = n.let("int64_t", f"(int64_t){n.element(at, index[:rank])}")
    return n.guarded(x, (i, *index[rank:]), n.helpers.inside(i, n.extent(shape[0])), number(0, tensor_type(x).dtype))


def _gather(n: Nest, op: Op, index: Index) -> str:
    x, at = op.operands
    axis = op.attr("axis") % len(index)
    i = n.let("int64_t", f"(int64_t){n.element(at, index)}")
    inside = n.helpers.inside(i, n.extent(tensor_type(x).shape[axis]))
    return n.guarded(x, (*index[:axis], i, *index[axis + 1 :]), inside, number(0, tensor_type(x).dtype))


def _starts(n: Nest, at: Operand, shape: Shape, sizes: Shape) -> list[str]:
    """The clamped starts of a window."""
    found = []
    for axis, (d, size) in enumerate(zip(shape, sizes, strict=True)):
        i = n.let("int64_t", f"(int64_t){n.element(at, (str(axis),))}")
        last = n.let("int64_t", f"{n.extent(d)} - {n.extent(size)}")
        found.append(n.let("int64_t", f"{i} < 0 ? 0 : {i} > {last} ? {last} : {i}"))
    return found


def _dynamic_slice(n: Nest, op: Op, index: Index) -> str:
    x, at = op.operands
    starts = _starts(n, at, tensor_type(x).shape, tensor_type(op.result).shape)
    return n.element(x, tuple(f"{s} + {i}" for s, i in zip(starts, index, strict=True)))


def _dynamic_update_slice(n: Nest, op: Op, index: Index) -> str:
    x, update, at = op.operands
    sizes = tensor_type(update).shape
    starts = _starts(n, at, tensor_type(x).shape, sizes)
    inner = tuple(n.let("int64_t", f"{i} - {s}") for s, i in zip(starts, index, strict=True))
    tests = [f"{i} >= 0 && {i} < {n.extent(d)}" for i, d in zip(inner, sizes, strict=True)]
    name = n.name("t")
    n.put(f"{computed(tensor_type(x).dtype)} {name};")
    with n.block(f"if ({' && '.join(tests) or '1'})"):
        n.put(f"{name} = {n.element(update, inner)};")
    with n.block("else"):
        n.put(f"{name} = {n.element(x, index)};")
    return name


def _patches(n: Nest, op: Op, index: Index) -> str:
    x = op.operands[0]
    shape, window = tensor_type(x).shape, op.attr("window")
    first, *places, last = index
    *taps, channel = n.apart(last, (*window, shape[-1]))
    conditions, inner = list[str](), list[str]()
    strides, dilations = op.attr("strides") or (1,) * len(window), op.attr("dilation") or (1,) * len(window)
    pads = op.attr("padding") or ((0, 0),) * len(window)
    for i, k, s, f, (low, high), d in zip(places, taps, strides, dilations, pads, shape[1:-1], strict=True):
        at = " + ".join(v if c == 1 else f"({v})*{c}" for v, c in ((i, s), (k, f)) if v != "0") or "0"
        if low or high:
            some, at = place(n, n.let("int64_t", at), low, 1, d)
            conditions += some
        inner.append(at)
    value = op.attr("pad_value")
    value = 0 if value is None else getattr(value, "value", value)
    return n.guarded(x, (first, *inner, channel), " && ".join(conditions) or "1", number(value, tensor_type(x).dtype))


def _bitcast(n: Nest, op: Op, index: Index) -> str:
    x = op.operands[0]
    source, to = tensor_type(x).dtype, tensor_type(op.result).dtype
    h = n.helpers
    if to.bits == source.bits:
        return n.let(computed(to), h.of_bits(to, h.bits(source, n.element(x, index))))
    if to.bits < source.bits:
        *outer, part = index
        bits = n.let(f"uint{source.bits}_t", h.bits(source, n.element(x, tuple(outer))))
        return n.let(computed(to), h.of_bits(to, f"{bits} >> {to.bits} * {part}"))
    parts = [h.bits(source, n.element(x, (*index, str(k)))) for k in range(to.bits // source.bits)]
    u = f"uint{to.bits}_t"
    joined = " | ".join(f"({u})(({u}){part} << {k * source.bits})" for k, part in enumerate(parts))
    return n.let(computed(to), h.of_bits(to, f"({u})({joined})"))


MOVED = {
    "broadcast_to": _broadcast, "transpose": _transpose, "reshape": _reshape, "slice": _slice, "pad": _pad, "concat": _concat,
    "tile": _tile, "iota": _iota, "constant": _constant, "take": _take, "gather": _gather, "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice, "extract_patches": _patches, "bitcast": _bitcast,
}  # fmt: skip

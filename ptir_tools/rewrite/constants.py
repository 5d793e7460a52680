"""Constant operands: the literal, its number if all elements are equal, and whether two constants are the same."""

from __future__ import annotations

from functools import lru_cache
from struct import unpack

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import DType, struct_code
from ptir_tools.core.evaluate import Context, Data, computed
from ptir_tools.core.ir import Element, Literal, Op, Operand, Value, exact
from ptir_tools.core.limits import current
from ptir_tools.core.typed import Any
from ptir_tools.core.types import TensorType
from ptir_tools.core.walks import post_order


def literal_of(x: Operand) -> Literal | None:
    """The literal of a constant `x`, inline or made by a constant op."""
    if isinstance(x, Literal):
        return x
    if isinstance(x, Value) and x.op is not None and (d := x.op.defn).is_constant:
        value = x.op.attrs[d.attr_index["value"]]
        return value if isinstance(value, Literal) else None
    return None


def known(x: Operand, cache: dict[Value, Data | None], most: int | None = None) -> Data | None:
    """The array of an operand that follows from constants alone; None for others, and where a value on the way has more than
    `most` bytes, fails or must not be computed. `cache` has the array of each value."""

    def maker(v: Value) -> Op | None:
        op, t = v.op, v.type
        if op is None or len(op.results) != 1 or op.regions or not isinstance(t, TensorType) or not t.is_static:
            return None
        able = op.defn.is_pure and not op.defn.is_random and op.defn.implemented
        return op if able and (most is None or t.nbytes <= most) else None

    def array(y: Operand) -> Data | None:
        if (literal := literal_of(y)) is not None:
            small = literal.type.is_static and (most is None or literal.type.nbytes <= most)
            return arrays.from_literal(literal) if small and literal.data is not None else None
        return cache[y] if isinstance(y, Value) else None

    def before(v: Value) -> list[Value]:
        op = None if v in cache or literal_of(v) is not None else maker(v)
        return [] if op is None else [y for y in op.operands if isinstance(y, Value)]

    for v in post_order([x] if isinstance(x, Value) else [], before):
        if v not in cache and literal_of(v) is None:
            op = maker(v)
            given = [None] if op is None else [array(y) for y in op.operands]
            cache[v] = None if op is None or any(y is None for y in given) else computed(op, given, Context())
    return array(x)


def element_of(literal: Literal | None) -> bytes | None:
    """The bytes of one element when all elements of a constant are equal to it; None otherwise."""
    if literal is None or literal.data is None:
        return None
    t, data = literal.type, literal.data
    if literal.splat or not t.shape or (t.is_static and t.count == 1):
        return data
    size = t.dtype.bits // 8
    first = data[:size]
    same = size and data.startswith(first, size) and len(data) <= current().fold_bytes and data == first * (len(data) // size)
    return first if same else None


def source(x: Operand) -> Operand:
    """The operand whose elements `x` repeats (trait REPEATS), through all such ops."""
    while isinstance(x, Value) and x.op is not None and x.op.defn.repeats:
        x = x.op.operands[0]
    return x


def scalar_of(x: Operand) -> Any:
    """The splat value of a constant as a Python number; None for everything else.

    Looks through broadcasts, as captured programs write their scalars.
    """
    literal = literal_of(source(x))
    data = element_of(literal)
    return None if literal is None or data is None else number(literal.type.dtype, data)


@lru_cache(1 << 16)
def number(dtype: DType, data: bytes) -> Any:
    """The number that the bytes of one element are."""
    if (code := struct_code(dtype)) is not None:
        return unpack(f"<{code}", data)[0]
    return arrays.unpack(data, dtype, 1).astype(object)[0]


def is_number(result: object, wanted: object) -> bool:
    """Whether the constant `result` is the number of a rule: an integer matches any kind, a float its own sign of zero too."""
    if result is None or isinstance(result, bool) is not isinstance(wanted, bool):
        return False
    if isinstance(wanted, float):
        return isinstance(result, float) and bool(exact(result) == exact(wanted))
    return bool(result == wanted)


def same_operand(a: object, b: Operand, depth: int = 1) -> bool:
    """Whether two operands are certainly equal: one value, constants of equal bits, elements of equal tuples, or results of
    equal ops, as far down as `depth` levels. Random ops equal no other.

    A pattern that compares what is k levels below its root looks k + `depth` + 1 levels deep.
    """
    if a is b:
        return True
    if a.__class__ is Value is b.__class__:
        p, q = a.op, b.op
        if p is None or q is None or p.defn is not q.defn:
            return False  # the usual case
        return (depth > 0 or p.defn.is_constant) and len(p.results) == 1 and same_op(p, q, depth)
    if isinstance(a, Literal) or isinstance(b, Literal):
        return isinstance(a, Literal) and a.same(b)
    return isinstance(a, Element) and isinstance(b, Element) and a.index == b.index and same_operand(a.value, b.value, depth)


def same_op(a: Op, b: Op, depth: int = 1) -> bool:
    """Whether two ops certainly compute the same: equal declarations, attributes to the bit and operands, and few of those."""
    d, xs, ys = a.defn, a.operands, b.operands
    if a is b or d is not b.defn or d.is_random or not d.is_pure or a.regions:
        return a is b
    apart: list[tuple[Operand, Operand]] = []
    if xs != ys:
        if not len(xs) == len(ys) <= 4:
            return False
        for i, x in enumerate(xs):
            if x is not (y := ys[i]):
                if x.__class__ is Value is y.__class__ and (x.op is None or y.op is None or x.op.defn is not y.op.defn):
                    return False  # most ops differ here already
                apart.append((x, y))
    if a.attrs and d.key(a.attrs) != d.key(b.attrs):
        return False
    for x, y in apart:
        if not same_operand(x, y, depth - 1):
            return False
    return all(v.type is w.type for v, w in zip(a.results, b.results, strict=True)) and not _misses_payload(a)


def _misses_payload(op: Op) -> bool:
    return any(isinstance(x, Literal) and x.data is None for x in op.attrs)

"""Loops and branches of kernels: carried values are in memory, and bounds are scalars outside of kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.axes import AffineExpr
from ptir_tools.convert.ptir_to_pto.kernel import unfit
from ptir_tools.convert.ptir_to_pto.operands import (
    integer,
    integer_of,
    parts_of,
    shape_of,
    tensor_of,
)
from ptir_tools.convert.ptir_to_pto.outline import values_of
from ptir_tools.convert.ptir_to_pto.parts import COMPARISONS
from ptir_tools.convert.ptir_to_pto.preparation import Lost, Preparation
from ptir_tools.convert.ptir_to_pto.values import number
from ptir_tools.core.dtypes import SI32
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.types import TensorType, TupleType, Type, tensor
from ptir_tools.core.types import leaves as types_of
from ptir_tools.core.violations import require
from ptir_tools.rewrite.constants import literal_of

_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}


def scan(work: Preparation, op: Op, *operands: Operand) -> list[Operand]:
    """A scan as a loop over the leading extent, whose outputs are parts of memory."""
    body, count = op.regions[0], op.attr("carry_count")
    steps = shape_of(operands[count])[0]
    outputs = []
    for t in map(tensor_of, body.results[count:]):
        outputs.append(work.memory(t.with_shape((steps, *t.shape)), "stack"))
    if steps == 0:
        return [*operands[:count], *outputs]
    counter = Value(tensor(SI32, ()), work.b.name("step"))
    work.outline.scalars.add(counter)
    if isinstance(steps, int):
        work.bounded[counter] = steps - 1
    block = Region("body", params=[counter], isolated=False)
    with looped(work, body, block, operands[:count]) as results:
        for p, x in zip(body.params[count:], operands[count:], strict=True):
            shape = shape_of(x)
            one = work.part(x, [AffineExpr((), 0, ((counter, 1),)), *(AffineExpr(),) * (len(shape) - 1)], (1, *shape[1:]), p.name)
            work.values[p] = work.b.op("reshape", one, new_shape=shape[1:], name=p.name)
        work.block(body)
        for memory, x in zip(outputs, body.results[count:], strict=True):
            result = work.operand(x)
            one = work.b.op("reshape", result, new_shape=(1, *shape_of(result)))
            work.write(memory, one, [AffineExpr((), 0, ((counter, 1),)), *(AffineExpr(),) * len(shape_of(result))])
    work.b.loc = op.loc
    work.control("for", integer(0, SI32), work.extent(steps, SI32), number(1), (), regions=[block])
    return [*results, *outputs]


@contextmanager
def looped(work: Preparation, body: Region, block: Region, inits: Sequence[Operand]) -> Iterator[list[Operand]]:
    """Context manager that builds the body of a loop into `block`. The first parameters and results of `body` are the carried
    values; those that change are in memory. Yields the results of the loop."""
    results: list[Operand] = []
    changing: list[tuple[Value, Operand]] = []
    for p, x, new in zip(body.params, inits, body.results, strict=False):
        if new is p or p in work.counters:
            results.append(work.counters.get(p, x))
            if new is p:
                work.values[p] = x
            continue
        memory = held(work, p.type, p.name)
        for own, leaf in zip(work.leaves(memory), work.leaves(x), strict=True):
            assert isinstance(own, Value)
            work.write(own, leaf)
        work.values[p] = memory
        results.append(memory)
        changing.append((memory, new))
    with work.b.inside(block):
        yield results
        pairs = [pair for memory, x in changing for pair in zip(work.leaves(memory), leaves(work, x), strict=True)]
        memories = {m for m, _ in pairs}
        kept = []
        for own, entry in pairs:
            assert isinstance(own, Value)
            base, path = work.outline.base(entry, ())
            if base in memories and (base is not own or path):  # another carried value, which may be overwritten earlier
                entry = work.copied(entry, own.name)
            kept.append((own, entry))
        for own, entry in kept:
            if entry is not own:
                work.write(own, entry)


def while_(work: Preparation, op: Op, *operands: Operand) -> list[Operand]:
    """A while loop with a counter."""
    condition, body = op.regions
    result = counts(work, condition, body, operands)
    message = "the trip count of the loop is data: PTO has no loop with a condition in memory"
    require(result is not None, NOT_TRANSLATABLE, message)
    assert result is not None
    k, mode, bound, step = result
    lower = work.number(operands[k])
    limit = work.number(operands[bound] if isinstance(bound, int) else bound)
    require(lower is not None and limit is not None, NOT_TRANSLATABLE, message)
    assert lower is not None and limit is not None
    t = operand_type(lower)
    assert isinstance(t, TensorType)
    if mode in ("le", "ge"):
        limit = work.arithmetic("add", limit, integer(1 if mode == "le" else -1, t.dtype))
    low, high = (lower, limit) if step > 0 else (limit, lower)
    more = work.arithmetic("add", work.arithmetic("sub", high, low), integer(abs(step) - 1, t.dtype))
    trips = work.arithmetic("maximum", work.arithmetic("div", more, integer(abs(step), t.dtype)), integer(0, t.dtype))
    last = work.arithmetic("add", lower, work.arithmetic("mul", trips, integer(step, t.dtype)))
    counter = Value(t, work.b.name(body.params[k].name))
    work.outline.scalars.add(counter)
    work.counters[body.params[k]] = last
    block = Region("body", params=[counter], isolated=False)
    with looped(work, body, block, operands) as results:
        at: Operand = counter
        if step < 0:
            at = work.arithmetic("add", lower, work.arithmetic("mul", counter, integer(step, t.dtype)))
        work.values[body.params[k]] = at
        work.block(body)
    first, end = (lower, limit) if step > 0 else (integer(0, t.dtype), trips)
    if (n := integer_of(limit)) is not None and step > 0:
        work.bounded[counter] = n - 1
    work.b.loc = op.loc
    work.control("for", first, end, number(max(step, 1)), (), regions=[block])
    return results


def counts(
    work: Preparation, condition: Region, body: Region, operands: Sequence[Operand]
) -> tuple[int, str, int | Literal, int] | None:
    """The counter of a loop, its comparison, bound and step; None where there is no counter. The bound is a literal, or a
    loop-invariant carried value."""
    flag, params = condition.results[0], condition.params
    if list(condition.results[1:]) != params or not isinstance(flag, Value) or flag.op is None:
        return None
    mode = COMPARISONS.get(flag.op.defn.short)
    if mode is None:
        return None
    a, b = flag.op.operands
    for x, y, turned in ((a, b, False), (b, a, True)):
        if not isinstance(x, Value) or x not in params:
            continue
        k = params.index(x)
        mode = _TURNED[mode] if turned else mode
        bound: int | Literal | None = literal_of(y)
        if isinstance(y, Value) and y in params and body.results[params.index(y)] is body.params[params.index(y)]:
            bound = params.index(y)
        step = _step(body.params[k], body.results[k])
        good = {"lt": 1, "le": 1, "gt": -1, "ge": -1}.get(mode, step)
        if bound is not None and step and (step > 0) == (good > 0) and (mode != "ne" or abs(step) == 1):
            return k, mode, bound, step
    return None


def cond(work: Preparation, op: Op, flag: Operand, *operands: Operand) -> list[Operand]:
    """A branch by a scalar; a predicate that is data computes both sides and selects."""
    known = work.number(op.operands[0])
    if known is None:
        results = list[list[Operand]]()
        for region in op.regions:
            work.values.update(zip(region.params, operands, strict=True))
            work.block(region)
            results.append(work.results(region))
        return [chosen(work, flag, a, b) for a, b in zip(*results, strict=True)]
    if isinstance(known, Literal):
        region = op.regions[0 if known.data and known.data[0] else 1]
        work.values.update(zip(region.params, operands, strict=True))
        work.block(region)
        return work.results(region)
    types = [operand_type(x) for x in op.regions[0].results]
    memories = [held(work, t, "either") for t in (parts_of(types[0]) if len(types) == 1 else types)]
    blocks = [Region(name, isolated=False) for name in ("then", "else")]
    for region, block in zip(op.regions, blocks, strict=True):
        work.values.update(zip(region.params, operands, strict=True))
        with work.b.inside(block):
            work.block(region)
            for memory, x in zip(memories, work.results(region), strict=True):
                for own, leaf in zip(work.leaves(memory), leaves(work, x), strict=True):
                    assert isinstance(own, Value)
                    work.write(own, leaf)
    work.b.loc = op.loc
    work.control("if", known, regions=blocks)
    return list(memories)


def held(work: Preparation, t: Type, name: str) -> Value:
    """Memory for a carried value or a branch result. Raises Violation for a type that no tile holds."""
    require(not (reason := next(filter(None, map(unfit, types_of(t))), "")), NOT_TRANSLATABLE, reason)
    return work.held(t, name)


def leaves(work: Preparation, x: Operand) -> list[Operand]:
    """The tensors of a block's results. Raises Lost where one was refused."""
    result = work.leaves(work.operand(x))
    if work.outline.lost.intersection(values_of(result)):
        raise Lost
    return result


def chosen(work: Preparation, flag: Operand, a: Operand, b: Operand) -> Operand:
    """One of two values by a mask of rank 0."""
    if a is b:
        return a
    if isinstance(t := operand_type(a), TupleType):
        whole = Value(t, "either")
        for i in range(len(t.elements)):
            work.elements[whole, i] = chosen(work, flag, *(work.operand(Element(v, i)) for v in (a, b)))  # type: ignore[arg-type]
        return whole
    if work.outline.lost.intersection(values_of([a, b])):
        raise Lost
    if 0 in tensor_of(a).shape:
        return a
    return work.b.op("select", work.b.op("broadcast_to", flag, result_shape=tensor_of(a).shape), a, b)


def _step(before: Value, after: Operand) -> int:
    """The step of a counter, 0 where it is not known."""
    if not isinstance(after, Value) or after.op is None or after.op.defn.short not in ("add", "sub"):
        return 0
    a, b = after.op.operands
    if after.op.defn.short == "add" and b is before:
        a, b = b, a
    n = integer_of(literal) if a is before and (literal := literal_of(b)) is not None else None
    return 0 if n is None else n if after.op.defn.short == "add" else -n

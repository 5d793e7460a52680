"""PTIR to Tiny: control flow whose trips are known. A cond computes both regions and chooses, a scan is unrolled."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.convert.ptir_to_tiny.emit import NOT_TRANSLATABLE, Data, Emit, Rule
from ptir_tools.convert.ptir_to_tiny.movement import concatenated
from ptir_tools.core.diagnostics import Violation, require
from ptir_tools.core.ir import Literal, Operand, Value
from ptir_tools.core.types import Shape, TensorType, TupleType, Type
from ptir_tools.dialects.ptir.ops.control import pack, result_types

UNROLLED = 1024  # steps of a scan at most


def _cond(emit: Emit) -> Data:
    """WHERE between the results of both regions."""
    emit.note("both regions of the cond are computed, and WHERE chooses")
    pred, arguments = emit.operand(0), [emit.data(i) for i in range(1, len(emit.op.operands))]
    chosen, other = (emit.to.block(r, arguments) for r in emit.op.regions)
    triples = zip(chosen, other, result_types(emit.op), strict=True)
    return _packed(emit, [_choice(emit, pred, a, b, t) for a, b, t in triples])


def _choice(emit: Emit, pred: Operand, a: Data, b: Data, t: Type) -> Data:
    """WHERE between two results, element by element of tuples."""
    if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(t, TupleType):
        return tuple(_choice(emit, pred, *parts) for parts in zip(a, b, t.elements, strict=True))
    assert isinstance(t, TensorType) and not isinstance(a, tuple) and not isinstance(b, tuple)
    return _where(emit, pred, a, b, t)


def _where(emit: Emit, pred: Operand, a: Operand, b: Operand, t: TensorType) -> Operand:
    if a is b:
        return a
    if isinstance(pred, Value) and t.shape:
        pred = emit("EXPAND", pred, result_shape=t.shape, broadcast_dimensions=())
    if isinstance(a, Literal) and isinstance(b, Literal):
        a = emit.whole(a, t.shape)
    return emit("WHERE", pred, a, b)


def _scan(emit: Emit) -> Data:
    """One copy of the body per step, on slices of the inputs; the outputs are put together."""
    count = emit.op.attr("carry_count")
    steps = emit.shape_of(count)[0]
    help = "give the extent with --bind"
    if not isinstance(steps, int):
        raise Violation(NOT_TRANSLATABLE, f"a scan of {steps} steps cannot be unrolled", help=help)
    require(steps <= UNROLLED, NOT_TRANSLATABLE, f"a scan of {steps} steps: no more than {UNROLLED} are unrolled")
    emit.note(f"the scan is unrolled: {steps} steps")
    carry, inputs = [emit.data(i) for i in range(count)], range(count, len(emit.op.operands))
    rows: list[list[Data]] = []
    (body,) = emit.op.regions
    for step in range(steps):
        returned = emit.to.block(body, [*carry, *(_slice(emit, i, step) for i in inputs)])
        carry = returned[:count]
        rows.append(returned[count:])
    stacks = [_stack(emit, [row[i] for row in rows], t) for i, t in enumerate(result_types(emit.op)[count:])]
    return _packed(emit, [*carry, *stacks])


def _slice(emit: Emit, i: int, step: int) -> Operand:
    """Row `step` of operand `i`."""
    x, shape = emit.operand(i), emit.shape_of(i)
    if isinstance(x, Literal):
        return x
    row = emit("SHRINK", x, lo=(step, *(0 for _ in shape[1:])), hi=(step + 1, *shape[1:]))
    return emit("RESHAPE", row, result_shape=shape[1:])


def _stack(emit: Emit, rows: list[Data], t: Type) -> Operand:
    """`rows` along a new first axis."""
    assert isinstance(t, TensorType)
    if not rows:
        return emit.to.pooled(Literal(t, b""), emit.name)
    shape: Shape = t.shape[1:]
    parts = [emit("RESHAPE", emit.whole(x, shape), result_shape=(1, *shape)) for x in rows if not isinstance(x, tuple)]
    return concatenated(emit, parts, 0)


def _packed(emit: Emit, results: list[Data]) -> Data:
    """The results as the op's value. Nodes made for it take its name, or `t.0`, `t.1`, … as results of a tuple are called."""
    whole: Data = pack(results)
    new = emit.made() if emit.outer else set()
    for x, name in _named(whole, emit.name):
        if isinstance(x, Value) and x in new:
            x.name = name
            new.remove(x)
    return whole


def _named(data: Data, name: str) -> Iterator[tuple[Operand, str]]:
    """The leaves of a value called `name`, and what they are called."""
    if isinstance(data, tuple):
        for i, part in enumerate(data):
            yield from _named(part, f"{name}.{i}")
    else:
        yield data, name


CONTROL: dict[str, Rule] = {"cond": _cond, "scan": _scan}

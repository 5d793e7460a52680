"""PTIR to Tiny: control flow with known trip counts. A cond computes both regions and selects, a scan is unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, InError, Rule
from ptir_tools.convert.inlining import UNROLLED, require_few
from ptir_tools.convert.ptir_to_tiny.elementwise import one_of_two
from ptir_tools.convert.ptir_to_tiny.emit import Data, TinyEmit, named_leaves
from ptir_tools.convert.ptir_to_tiny.movement import concatenated
from ptir_tools.core.arrays import from_literal, to_literal
from ptir_tools.core.ir import Literal, Op, Operand, Region, Value
from ptir_tools.core.types import Shape, TensorType, TupleType, Type, tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.ptir.ops.control import pack, result_types
from ptir_tools.rewrite.vocabulary import tensor_type


def _cond(emit: TinyEmit, op: Op, pred: Data, *arguments: Data) -> Data:
    """WHERE between the results of both regions."""
    if not emit.inline:  # else it was reported for the enclosing op
        require_few(op)
    emit.note("both regions of the cond are computed, and WHERE chooses")
    start = len(emit.builder.block.body)
    chosen, other = _blocks(emit, op.regions, arguments)
    require_read(pred)
    test = emit.operand(pred)
    triples = zip(chosen, other, result_types(op), strict=True)
    return _packed(emit, [_choice(emit, test, a, b, t) for a, b, t in triples], start)


def _blocks(emit: TinyEmit, regions: Sequence[Region], arguments: Sequence[Data | None]) -> list[list[Data]]:
    """The converted results of each region; errors in all regions are reported first. Raises InError."""
    results: list[list[Data]] = []
    for region in regions:
        with suppress(InError):
            results.append(emit.block(region, arguments))
    if len(results) < len(regions):
        raise InError
    return results


def require_read(*data: Data | None) -> None:
    """Raise InError where an operand is in error."""
    if None in data:
        raise InError


def _choice(emit: TinyEmit, pred: Operand, a: Data, b: Data, t: Type) -> Data:
    """WHERE between two results, element by element of tuples."""
    if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(t, TupleType):
        return tuple(_choice(emit, pred, *parts) for parts in zip(a, b, t.elements, strict=True))
    assert isinstance(t, TensorType) and not isinstance(a, tuple) and not isinstance(b, tuple)
    if a is b:
        return a
    if isinstance(pred, Literal):
        return a if any(pred.data or b"") else b
    if t.shape:
        pred = emit("EXPAND", pred, result_shape=t.shape, broadcast_dimensions=())
    return emit("WHERE", *one_of_two(emit, pred, a, b))


def _scan(emit: TinyEmit, op: Op, *operands: Data) -> Data:
    """One copy of the body per step, on slices of the inputs; the outputs are put together."""
    count, start = op.attr("carry_count"), len(emit.builder.block.body)
    steps = tensor_type(op.operands[count]).shape[0]
    help = "give the extent with --bind"
    if not isinstance(steps, int):
        raise Violation(NOT_TRANSLATABLE, f"a scan of {steps} steps cannot be unrolled", help=help)
    require(steps <= UNROLLED, NOT_TRANSLATABLE, f"a scan of {steps} steps: no more than {UNROLLED} are unrolled")
    if not emit.inline:  # else it was reported for the enclosing op
        require_few(op)
    emit.note(f"the scan is unrolled: {steps} steps")
    carry, inputs = list(operands[:count]), operands[count:]
    rows: list[list[Data]] = []
    (body,) = op.regions
    for step in range(steps):
        returned = emit.block(body, [*carry, *(None if x is None else _row(emit, x, step) for x in inputs)])
        carry = returned[:count]
        rows.append(returned[count:])
    stacks = [_stack(emit, [row[i] for row in rows], t) for i, t in enumerate(result_types(op)[count:])]
    require_read(*carry)
    return _packed(emit, [*carry, *stacks], start)


def _row(emit: TinyEmit, x: Data, step: int) -> Operand:
    """Row `step` of an input."""
    if isinstance(x, Literal) and x.data is not None:
        t = tensor(x.type.dtype, x.type.shape[1:])
        return Literal(t, x.data, splat=True) if x.splat else to_literal(from_literal(x)[step], t)
    v = emit.node(x)
    shape = tensor_type(v).shape
    row = emit("SHRINK", v, lo=(step, *(0 for _ in shape[1:])), hi=(step + 1, *shape[1:]))
    return emit("RESHAPE", row, result_shape=shape[1:])


def _stack(emit: TinyEmit, rows: list[Data], t: Type) -> Operand:
    """`rows` along a new first axis."""
    assert isinstance(t, TensorType)
    if not rows:
        return Literal(t, b"")
    shape: Shape = t.shape[1:]
    parts = [emit("RESHAPE", emit.node(x), result_shape=(1, *shape)) for x in rows]
    return concatenated(emit, parts, 0)


def _packed(emit: TinyEmit, results: list[Data], start: int) -> Data:
    """The results as the op's value. Nodes from `start` on get its name, or `t.0`, `t.1`, … for a tuple."""
    whole: Data = pack(results)
    new = set() if emit.inline else {op.results[0] for op in emit.builder.block.body[start:]}
    for x, name in named_leaves(whole, emit.name):
        if isinstance(x, Value) and x in new:
            x.name = name
            new.remove(x)
    return whole


CONTROL: dict[str, Rule] = {"cond": _cond, "scan": _scan}

"""Patterns of loops of zero or one trip, and of unchanged carries."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.declare import OPS
from ptir_tools.core.evaluate import Context, Data, computed
from ptir_tools.core.ir import Literal, Op, Operand, Region, Value, create, operand_type
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops.control import result_types
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.control import (
    inlinable,
    inline,
    is_spread,
    read_by,
    replaced,
    results_of,
    results_replaced,
    used_as_tuple,
    users_accept,
    users_accept_each,
)
from ptir_tools.dialects.ptir.rewrites.pruning import results_read, unchanged
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.patterns import OpView, Pattern, rewrites

_SMALL, _SHORT = 64, 512  # elements of a value, ops of a region, that are computed to know a trip count


def _constant(x: Operand) -> Data | None:
    """The array of a small constant; None for anything else."""
    literal = literal_of(x)
    small = literal is not None and literal.data is not None and literal.type.is_static and literal.type.count <= _SMALL
    return arrays.from_literal(literal) if literal is not None and small else None


def _computed(block: Region, arguments: Sequence[object]) -> list[object]:
    """The results of `block` that can be computed from constant arguments; None for the others."""
    env = {p: a for p, a in zip(block.params, arguments, strict=True) if a is not None}

    def read(x: Operand) -> Data | None:
        return env.get(x) if isinstance(x, Value) else _constant(x) if isinstance(x, Literal) else None

    for op in block.body[:_SHORT]:
        operands = [read(x) for x in op.operands]
        known = _computable(op) and all(a is not None for a in operands)
        if known and (result := computed(op, operands, Context())) is not None:
            env[op.results[0]] = result
    return [read(x) for x in block.results]


def _computable(op: Op) -> bool:
    t = op.results[0].type
    small = isinstance(t, TensorType) and t.is_static and t.count <= _SMALL
    return small and op.defn.implemented and not (op.regions or op.defn.is_random)


@rewrites("ptir.while")
def while_few(op: OpView) -> bool:
    """A loop whose condition fails at once, or after one trip, is inlined."""
    condition, body = op.root.regions
    if any(is_spread(op.rw, op.root, r) for r in op.root.regions):
        return False
    flag, *kept = _computed(condition, [_constant(x) for x in op.root.operands])
    if flag is None or used_as_tuple(op) or not inlinable(condition, op.root.operands):
        return False
    left = results_of(condition, op.root.operands)[1:]
    if bool(flag):
        again, *_ = _computed(condition, _computed(body, kept))
        if again is None or bool(again) or not inlinable(body, left) or not inlinable(condition, left := results_of(body, left)):
            return False
        left = results_of(condition, left)[1:]
    read = [*read_by(condition, op.root.operands), *(read_by(body, op.root.operands) if bool(flag) else ())]
    if not users_accept(op, left, read):
        return False
    carried = inline(op.rw, op.root, condition, op.root.operands)[1:]
    if bool(flag):
        carried = inline(op.rw, op.root, condition, inline(op.rw, op.root, body, carried))[1:]
    return replaced(op, carried)


@rewrites("ptir.scan", depth=1)
def scan_never(op: OpView) -> bool:
    """A scan over no step is its carries and empty stacks."""
    carries, inputs = op.root.operands[: op.carry_count], op.root.operands[op.carry_count :]
    stacks = result_types(op.root)[len(carries) :]
    if (
        helpers.shape(inputs[0])[0] != 0
        or used_as_tuple(op)
        or not all(isinstance(t, TensorType) and t.is_static for t in stacks)
    ):
        return False
    if not users_accept(op, carries):
        return False
    empty = [op.rw.materialize_constant(op.root, Literal(t, b"")) for t in stacks if isinstance(t, TensorType)]
    return replaced(op, [*carries, *empty])


@rewrites("ptir.scan", depth=1)
def scan_once(op: OpView) -> bool:
    """A scan over one step is its body."""
    n = op.carry_count
    carries, inputs = op.root.operands[:n], op.root.operands[n:]
    block = op.root.regions[0]
    if any(helpers.shape(x)[0] != 1 or not helpers.static(x) for x in inputs) or used_as_tuple(op):
        return False
    slices = [create(OPS["ptir.reshape"], (x,), {"new_shape": helpers.shape(x)[1:]}) for x in inputs]
    given = (*carries, *(op.results[0] for op in slices))
    if (
        is_spread(op.rw, op.root, block)
        or not inlinable(block, given)
        or any(not isinstance(operand_type(x), TensorType) for x in block.results[n:])
    ):
        return False
    found = results_of(block, given)
    stacks = [create(OPS["ptir.reshape"], (x,), {"new_shape": (1, *helpers.shape(x))}).results[0] for x in found[n:]]
    if not users_accept(op, [*found[:n], *stacks], read_by(block, op.root.operands)):
        return False
    rw = op.rw
    helpers.insert(rw, op.root, slices)
    results = inline(rw, op.root, block, given)
    stacked = [rw.build(op.root, "reshape", x, new_shape=(1, *helpers.shape(x))) for x in results[n:]]
    return replaced(op, [*results[:n], *stacked])


@rewrites("ptir.while", "ptir.scan", depth=1)
def unchanged_carries(op: OpView) -> bool:
    """A carry that the loop never changes is, after it, the initial value."""
    root, same = op.root, unchanged(op.root)
    return results_replaced(op, {k: root.operands[k] for k in same})


@rewrites("ptir.scan", depth=1)
def scan_passed(op: OpView) -> bool:
    """A scan output that is the slice of an input is that input."""
    (block,), n = op.root.regions, op.carry_count
    given = dict(zip(block.params[n:], op.root.operands[n:], strict=True))
    results = list(zip(block.results, result_types(op.root), strict=True))
    stacked = [(i, t, given[x]) for i, (x, t) in enumerate(results) if i >= n and isinstance(x, Value) and x in given]
    return results_replaced(op, {i: x for i, t, x in stacked if operand_type(x) is t})


@rewrites("ptir.scan", depth=1)
def scan_repeats(op: OpView) -> bool:
    """A scan output that is a constant or an unchanged carry is a broadcast."""
    (block,), n = op.root.regions, op.carry_count
    same: dict[Operand, Operand] = {block.params[k]: op.root.operands[k] for k in unchanged(op.root)}
    types, read = result_types(op.root), results_read(op.rw, op.root)
    again = {i: same.get(x) or literal_of(x) for i, x in enumerate(block.results) if i >= n and i in read}
    stacked = {
        i: create(OPS["ptir.broadcast_to"], (x,), {"result_shape": t.shape})
        for i, x in again.items()
        if x is not None and isinstance(t := types[i], TensorType)
    }
    by: dict[int, Operand] = {i: made.results[0] for i, made in stacked.items()}
    if not by or not users_accept_each(op, by):
        return False
    helpers.insert(op.rw, op.root, list(stacked.values()))
    return results_replaced(op, by)


LOOPS: list[Pattern] = [while_few, scan_never, scan_once, unchanged_carries, scan_passed, scan_repeats]

"""Patterns of control flow that the program already decides: known predicates, loops of zero and one trip."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.constants import scalar_of
from ptir_tools.core.ir import Element, Operand, Region, Value, clone_blocks
from ptir_tools.core.opdef import RANDOM, operand_type
from ptir_tools.core.patterns import OpView, Pattern, rewrites
from ptir_tools.core.rewriter import Rewriter
from ptir_tools.core.types import TensorType, TupleType
from ptir_tools.dialects.ptir.rules import helpers


def inline(rw: Rewriter, op: OpView, block: Region, arguments: Sequence[Operand]) -> list[Operand]:
    """The ops of `block` before the root, parameters replaced by `arguments`; returns what stands for its results."""
    (copy,) = clone_blocks([block])
    given: dict[Value, Operand] = dict(zip(copy.params, arguments, strict=True))

    def read(x: Operand) -> Operand:
        if isinstance(x, Element):
            whole = given.get(x.value, x.value)
            return Element(whole, x.index) if isinstance(whole, Value) else x
        return given.get(x, x) if isinstance(x, Value) else x

    for inner in copy.body:
        inner.operands = tuple(map(read, inner.operands))
        inner.loc = inner.loc or op.root.loc
        for v in inner.results:
            v.name = ""
        rw.insert_before(op.root, inner)
    return [read(x) for x in copy.results]


def inlinable(block: Region, arguments: Sequence[Operand]) -> bool:
    """Whether the body can stand outside its region: nothing random or nested in it, no tuple that is an element of another."""
    if any(RANDOM in op.defn.traits or op.regions for op in block.body):
        return False
    return all(isinstance(x, Value) or isinstance(operand_type(x), TensorType) for x in arguments)


def replaced(op: OpView, results: Sequence[Operand]) -> bool:
    """Let the users of the root use `results`: of its elements when its value is a tuple of them."""
    if isinstance(op.result.type, TupleType) and len(results) == len(op.result.type.elements) and len(results) != 1:
        if not op.rw.replace_elements(op.result, results):
            return False
        op.rw.erase(op.root)
        return True
    return op.replace(results[0])


def whole(op: OpView) -> bool:
    """Whether the root's value is a tuple that is used as one."""
    return isinstance(op.result.type, TupleType) and op.rw.used_whole(op.result)


@rewrites("ptir.cond")
def cond_of_constant(op: OpView) -> bool:
    """A branch on a known predicate is the branch taken."""
    known = scalar_of(op.pred)
    block = op.root.regions[0 if known else 1]
    arguments = op.root.operands[1:]
    if known is None or whole(op) or not inlinable(block, arguments):
        return False
    return replaced(op, inline(op.rw, op, block, arguments))


@rewrites("ptir.cond", depth=1)
def cond_of_same(op: OpView) -> bool:
    """A branch to one region either way is that region."""
    block, other = op.root.regions
    arguments = op.root.operands[1:]
    if block is not other or whole(op) or not inlinable(block, arguments):
        return False
    return replaced(op, inline(op.rw, op, block, arguments))


@rewrites("ptir.while", depth=1)
def while_never(op: OpView) -> bool:
    """A loop whose condition is known to fail runs its condition once."""
    block = op.root.regions[0]
    flag = block.results[0]
    if scalar_of(flag) is not False or whole(op) or not inlinable(block, op.root.operands):
        return False
    return replaced(op, inline(op.rw, op, block, op.root.operands)[1:])


@rewrites("ptir.scan", depth=1)
def scan_once(op: OpView) -> bool:
    """A scan over one step is its body."""
    n = op.carry_count
    carries, inputs = op.root.operands[:n], op.root.operands[n:]
    block = op.root.regions[0]
    if any(helpers.shape(x)[0] != 1 or not helpers.static(x) for x in inputs) or whole(op):
        return False
    if not inlinable(block, carries) or any(not isinstance(operand_type(x), TensorType) for x in block.results[n:]):
        return False
    rw = op.rw
    slices = [rw.build(op.root, "reshape", x, new_shape=helpers.shape(x)[1:]) for x in inputs]
    results = inline(rw, op, block, (*carries, *slices))
    stacked = [rw.build(op.root, "reshape", x, new_shape=(1, *helpers.shape(x))) for x in results[n:]]
    return replaced(op, [*results[:n], *stacked])


CONTROL: list[Pattern] = [cond_of_constant, cond_of_same, while_never, scan_once]

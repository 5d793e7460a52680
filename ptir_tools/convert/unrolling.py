"""Loops of a known number of steps, and branches, as straight code: for targets without regions whose rules see single ops.

A branch whose predicate is data computes both regions, and `select` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.convert.inlining import require_few
from ptir_tools.convert.naming import Names
from ptir_tools.core.ir import Attribute, Element, Function, Literal, Op, Operand, Value, create, result_names
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.ops.control import result_count, result_types
from ptir_tools.dialects.ptir.rewrites.control import copy_ops
from ptir_tools.rewrite.vocabulary import tensor_type

UNROLLED = 1024  # the most steps of a loop


Made = dict[Value | tuple[Value, int], Operand]  # what results are now


def unroll(function: Function) -> None:
    """Replace each `scan` of known length and each `cond` of `function` by the ops that it runs, in place. What has too many ops,
    or no tensors as results, stays."""
    function.attrs["output_names"] = result_names(function)
    names = Names(v.name for op in function.body for v in op.results)
    while any(map(_unrolls, function.body)):
        made: Made = {}
        body: list[Op] = []
        for op in function.body:
            op.operands = tuple(_read(x, made) for x in op.operands)
            if not _unrolls(op):
                body.append(op)
                continue
            results = _Steps(body, op, names).results()
            made |= {op.result: results[0]} if len(results) == 1 else {(op.result, i): x for i, x in enumerate(results)}
        function.body = body
        function.results = [_read(x, made) for x in function.results]


def _read(x: Operand, made: Made) -> Operand:
    key = (x.value, x.index) if isinstance(x, Element) else x
    return x if isinstance(key, Literal) else made.get(key, x)


def _unrolls(op: Op) -> bool:
    """Whether an op with regions becomes straight code."""
    if op.defn.short not in ("scan", "cond") or not result_count(op):
        return False
    if not all(isinstance(t, TensorType) for t in result_types(op)):
        return False
    if op.defn.short == "scan":
        steps = tensor_type(op.operands[-1]).shape[0]
        if not isinstance(steps, int) or not 0 < steps <= UNROLLED:
            return False
    try:
        require_few(op)
    except Violation:
        return False
    return True


class _Steps:
    """Appends the ops of one op with regions to a body."""

    def __init__(self, body: list[Op], root: Op, names: Names) -> None:
        self.body, self.root, self.names = body, root, names

    def op(self, short: str, *groups: Operand | Sequence[Operand], **attrs: Attribute) -> Value:
        """A new op."""
        made = create(DIALECT.ops[short], groups, attrs, names=[self.fresh()], loc=self.root.loc)
        self.body.append(made)
        return made.result

    def fresh(self) -> str:
        """A new name."""
        return self.names.between(self.root.result.name)

    def run(self, region: int, arguments: Sequence[Operand]) -> list[Operand]:
        """A copy of a region."""
        copies, results = copy_ops(self.root.regions[region], arguments)
        for op in copies:
            op.loc = op.loc or self.root.loc
            for v in op.results:
                v.name = self.fresh()
        self.body += copies
        return results

    def results(self) -> list[Operand]:
        """The results of the op."""
        return self.branch() if self.root.defn.short == "cond" else self.loop()

    def branch(self) -> list[Operand]:
        """Both regions, and a choice for each result."""
        pred, *arguments = self.root.operands
        pairs = zip(self.run(0, arguments), self.run(1, arguments), strict=True)
        found: list[Operand] = []
        for x, y in pairs:
            shape = tensor_type(x).shape
            wide = pred if not shape else self.op("broadcast_to", pred, result_shape=shape)
            found.append(x if x is y else self.op("select", wide, x, y))
        return found

    def loop(self) -> list[Operand]:
        """A copy of the body for each step; its outputs are put together."""
        count = self.root.attr("carry_count")
        carry, inputs = list(self.root.operands[:count]), self.root.operands[count:]
        steps = tensor_type(inputs[0]).static_shape[0]
        rows: list[list[Operand]] = []
        for step in range(steps):
            returned = self.run(0, [*carry, *(self.row(x, step) for x in inputs)])
            carry = returned[:count]
            rows.append([self.op("reshape", x, new_shape=(1, *tensor_type(x).shape)) for x in returned[count:]])
        stacks = [self.op("concat", list(parts), axis=0) if steps > 1 else parts[0] for parts in zip(*rows, strict=True)]
        return [*carry, *stacks]

    def row(self, x: Operand, step: int) -> Operand:
        """Row `step` of an input."""
        shape = tensor_type(x).shape
        part = self.op("slice", x, starts=(step, *(0 for _ in shape[1:])), sizes=(1, *shape[1:]))
        return self.op("reshape", part, new_shape=shape[1:])

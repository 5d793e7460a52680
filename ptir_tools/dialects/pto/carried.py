"""What ops with blocks carry from one block to the next: one value under several names."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.ir import Op, Operand, Region, Value
from ptir_tools.core.records import dataclass

LOOPS = ("scf.for", "scf.while")  # ops whose blocks may run again


@dataclass(slots=True, frozen=True)
class Carried:
    """One value that an op with blocks carries: `homes` are the names under which it goes on; `sources` what they are given,
    as places among the results of a block, or (None) among the operands of the op."""

    op: Op
    homes: tuple[Value, ...]
    sources: tuple[tuple[Region | None, int], ...]

    def given(self, block: Region | None, at: int) -> Operand:
        """What is at a place of `sources`."""
        return self.op.operands[at] if block is None else block.results[at]


def carried(op: Op) -> Iterator[Carried]:
    """What an op carries from operands to blocks, from block to block, and to its results."""
    if op.defn.short == "scf.for":
        (body,) = op.regions
        for k, v in enumerate(op.results):
            yield Carried(op, (body.params[k + 1], v), ((None, 3 + k), (body, k)))
    elif op.defn.short == "scf.while":
        before, body = op.regions
        for k, p in enumerate(before.params):
            yield Carried(op, (p,), ((None, k), (body, k)))
        for k, v in enumerate(op.results):
            yield Carried(op, (body.params[k], v), ((before, 1 + k),))
    elif op.defn.short == "scf.if":
        for k, v in enumerate(op.results):
            yield Carried(op, (v,), tuple((r, k) for r in op.regions))

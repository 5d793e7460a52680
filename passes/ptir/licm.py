"""Loop-invariant code motion out of `while` and `scan`.

PTIR's regions see only their parameters. So a value that is moved out becomes one more carried value, which the region returns
unchanged. Constants and broadcasts are not carried, because to compute them again is cheaper; other ops that depend only on
them and on unchanged carries are moved. An op that could fail is moved only out of a region that certainly runs: the condition
of a `while`, or the body of a `scan` of one step or more. Ops that draw random numbers or define a symbol stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.definers import defines
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Element, Literal, Loop, Op, Operand, Region, Value, create, is_legal, operand_type
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops.control import result_count
from ptir_tools.dialects.ptir.rewrites.sharing import Sharing, insert_params
from ptir_tools.dialects.ptir.rewrites.speculation import draws, never_fails
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """Move loop-invariant ops out of loops."""
    sharing = Sharing(program, context.expanding(program))
    for rw in context.rewriters(program):
        for op in rw.body():
            if isinstance(op.defn.control, Loop) and _by_results(rw, op):
                context.count("hoisted", _Loop(op, rw, sharing).hoist(context))


def _by_results(rw: Rewriter, op: Op) -> bool:
    """Whether the users of `op`'s value can use the results of a larger loop: an element of an element does not exist."""
    return rw.accepts(op.result, Element(op.result, 0)) if result_count(op) == 1 else not rw.used_whole(op.result)


def _is_cheap(op: Op) -> bool:
    """Whether `op` is cheaper to compute again than to keep: a constant, a counter, a broadcast."""
    return not op.operands or op.defn.repeats


@dataclass(slots=True)
class _Part:
    """A region of a loop. `skip` results are before the carried ones; `sure`: it runs at least once."""

    region: Region
    skip: int
    sure: bool

    def leaving(self, invariant: Sequence[int]) -> list[Op]:
        """The loop-invariant ops, in order."""
        fixed: set[Value] = {self.region.params[k] for k in invariant}
        gone = []
        for op in self.region.body:
            tensors = all(isinstance(v.type, TensorType) for v in op.results)
            if tensors and self._may_leave(op) and all(isinstance(x, Literal) or x in fixed for x in op.operands):
                fixed.update(op.results)
                gone.append(op)
        return gone

    def _may_leave(self, op: Op) -> bool:
        return op.defn.is_pure and not (draws(op) or defines(op)) and (self.sure or never_fails(op))

    def results_still_used(self, leaving: Sequence[Op]) -> list[Value]:
        """The results of `leaving` that the remaining ops use."""
        gone = set(leaving)
        needed = {v for x in self.region.results if (v := _named(x)) is not None}
        carries = []
        for op in reversed(self.region.body):
            stays = op not in gone or (_is_cheap(op) and op.result in needed)
            if stays:
                needed.update(op.values())
            else:
                carries += [v for v in op.results if v in needed]
        return carries[::-1]


class _Loop:
    """A loop: its first `count` operands are carried."""

    def __init__(self, op: Op, rw: Rewriter, sharing: Sharing) -> None:
        self.op = op
        self.rw = rw
        self.sharing = sharing
        assert isinstance(op.defn.control, Loop)
        self.count = op.defn.control.carries(op)
        self.parts = [_Part(*part) for part in op.defn.control.parts(op)]

    def invariant(self) -> list[int]:
        """The carries that every region returns unchanged."""
        return [
            k
            for k in range(self.count)
            if isinstance(operand_type(self.op.operands[k]), TensorType)
            and all(p.region.results[p.skip + k] is p.region.params[k] for p in self.parts)
        ]

    def hoist(self, context: PassContext) -> int:
        """Move invariant ops out. The number of them."""
        invariant = self.invariant()
        leaving = [part.leaving(invariant) for part in self.parts]
        carried = [part.results_still_used(ops) for part, ops in zip(self.parts, leaving, strict=True)]
        kept = [v for values in carried for v in values]
        outside: dict[Value, Operand] = {p.region.params[k]: self.op.operands[k] for p in self.parts for k in invariant}
        copies = [_copy_out(op, outside) for op in _needed([op for ops in leaving for op in ops], kept)]
        if not kept or not all(map(is_legal, copies)):  # outside, an operand may be a constant that the op refuses
            return 0
        if not context.step("hoist", self.op, *(v.op for v in kept if v.op is not None)):
            return 0
        for copy in copies:
            self.rw.insert_before(self.op, copy)
        parts = zip(self.parts, leaving, carried, strict=True)
        regions = [self._region(part, ops, own, kept) for part, ops, own in parts]
        self._replace([outside[v] for v in kept], regions)
        return len(kept)

    def _region(self, part: _Part, leaving: Sequence[Op], own: Sequence[Value], kept: Sequence[Value]) -> Region:
        """The region of `part` with `kept` as further carries, and without the ops of `own`."""
        copy, values = self.sharing.own(part.region)
        params = {v: Value(v.type, v.name) for v in kept}
        with Rewriter(copy, self.rw.dialect) as rw:
            for v in own:
                rw.replace_all_uses(values[v], params[v])
            for op in reversed(leaving):
                mine = values[op.result].op
                if mine is not None and rw.unused(mine):
                    rw.erase(mine)
            at = part.skip + self.count
            rw.set_results(copy, [*copy.results[:at], *params.values(), *copy.results[at:]])
        insert_params(copy, self.count, list(params.values()))
        return copy

    def _replace(self, kept: Sequence[Operand], regions: Sequence[Region]) -> None:
        """Replace this loop by one with `kept` as further carries."""
        rw, op, n = self.rw, self.op, self.count
        attrs = op.defn.named(op.attrs)
        if "carry_count" in attrs:
            attrs["carry_count"] += len(kept)
        operands = (*op.operands[:n], *kept, *op.operands[n:])
        loop = rw.insert_before(op, create(op.defn, [operands], attrs, regions=regions, names=[op.result.name], loc=op.loc))
        before = result_count(op)
        results = [Element(loop, i if i < n else i + len(kept)) for i in range(before)]
        if before == 1:
            rw.replace_all_uses(op.result, results[0])
        else:
            rw.replace_elements(op.result, results)
        rw.erase(op)


def _named(x: Operand) -> Value | None:
    return x.value if isinstance(x, Element) else x if isinstance(x, Value) else None


def _needed(ops: Sequence[Op], values: Sequence[Value]) -> list[Op]:
    """The ops of `ops` on which `values` depend, in order."""
    wanted = set(values)
    needed = []
    for op in reversed(ops):
        if not wanted.isdisjoint(op.results):
            wanted.update(op.values())
            needed.append(op)
    return needed[::-1]


def _copy_out(op: Op, outside: dict[Value, Operand]) -> Op:
    """A copy of `op` before the loop. `outside` maps values to their copies there, and gets its results."""
    operands = tuple(outside[x] if isinstance(x, Value) else x for x in op.operands)
    copy = Op(op.defn, operands, op.attrs, (), op.regions, op.loc)
    copy.results = tuple(Value(v.type, "", copy) for v in op.results)
    outside.update(zip(op.results, copy.results, strict=True))
    return copy

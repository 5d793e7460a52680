"""Sinking: an op that only one branch needs is moved into it, and an op with a result larger than its operands is moved to its
first use.

An op moves into a branch of a `cond` if only that branch reads it, a constant into every branch that reads it. Unused
arguments are dropped. In its own block an op moves down to its first use, if its result takes more memory than its operands
together: constants, iotas, broadcasts, widening casts. Ops that draw random numbers do not move into a branch, and nothing
moves into a branch nested deeper than eight levels.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Branch, Element, Literal, Op, Operand, Region, Value, create, may_fail, operand_type
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.rewrites.sharing import Sharing, insert_constant, region_accepts, unused
from ptir_tools.dialects.ptir.rewrites.speculation import draws
from ptir_tools.passes import PassContext, innermost_first
from ptir_tools.rewrite.rewriter import Rewriter

_DEEPEST = 8  # nesting levels of regions into which ops move: in a chain of branches, each would end one level deeper


def run(program: Program, context: PassContext) -> None:
    """Move ops into the only branch that needs them, and ops with big results to their first use."""
    sharing = Sharing(program, context.expanding(program))
    edits = -1
    while program.regions and edits != context.edits:  # a value with several users may now have one
        edits = context.edits
        for rw in _outermost_first(program, context):
            while _into_branches(rw, sharing, context):
                pass
    for rw in context.rewriters(program):
        context.count("moved to first use", _to_first_use(rw, context))


def _into_branches(rw: Rewriter, sharing: Sharing, context: PassContext) -> bool:
    """Sink into the branches of every `cond` of the block, last first. Whether anything changed."""
    changed = False
    for op in reversed(rw.body()):
        if isinstance(op.defn.control, Branch) and rw.alive(op):  # the branch may have moved into a later one
            changed |= _Branch(rw, op, sharing).sink(context)
    return changed


def _outermost_first(program: Program, context: PassContext) -> Iterator[Rewriter]:
    """A rewriter for each block that is not nested too deep. Those of its ops' regions, some of them new, follow it."""
    done: set[Region] = set()
    depth: dict[Region, int] = {}
    todo = innermost_first(program)
    while todo:
        block = todo.pop()
        if block in done or depth.get(block, 0) >= _DEEPEST:
            continue
        done.add(block)
        with context.rewriter(program, block) as rw:
            yield rw
        context.edits += rw.edits
        for region in {r for op in block.body for r in op.regions}:
            depth[region] = max(depth.get(region, 0), depth.get(block, 0) + 1)
        if rw.edits:
            todo = innermost_first(program)


class _Branch:
    """A `cond` and the ops that move into its branches: `sunk` maps each op to its branches (0: true)."""

    def __init__(self, rw: Rewriter, op: Op, sharing: Sharing) -> None:
        self.rw = rw
        self.op = op
        self.sharing = sharing
        assert isinstance(op.defn.control, Branch)
        self.arguments = op.operands[op.defn.control.arguments :]
        reads = [_read(r) for r in op.regions]
        self.needs = [{b for b, r in enumerate(op.regions) if r.params[j] in reads[b]} for j in range(len(self.arguments))]
        self.sunk: dict[Op, set[int]] = {}
        self.reads = len(op.operands)  # the number of uses by the `cond` and the moved ops

    def sink(self, context: PassContext) -> bool:
        """Move ops into the branches, and drop unused arguments. Whether anything changed."""
        self._choose()
        kept = [j for j, x in enumerate(self.arguments) if self.needs[j] and not self._sinks(j)]
        if len(kept) == len(self.arguments) or not context.step("sink", self.op, *self.sunk):
            return False
        ops = list(self.sunk)[::-1]
        given = {self.arguments[j] for j in kept}
        fresh = [v for v in dict.fromkeys(v for op in ops for v in op.values()) if v.op not in self.sunk and v not in given]
        regions = [self._region(b, ops, kept, fresh) for b in range(2)]
        arguments = [self.arguments[j] for j in kept] + fresh
        new = create(self.op.defn, [self.op.operands[0], arguments], regions=regions, loc=self.op.loc)
        self.rw.replace_all_uses(self.op.result, self.rw.insert_before(self.op, new))
        for op in (self.op, *self.sunk):
            if self.rw.unused(op):
                self.rw.erase(op)
        context.count("sunk into branches", len(ops))
        return True

    def _sinks(self, j: int) -> bool:
        """Whether the branches compute the argument `j`."""
        x = self.arguments[j]
        if isinstance(x, Literal):
            return x.data is not None and self._suits(j)
        return isinstance(x, Value) and x.op in self.sunk

    def _suits(self, j: int) -> bool:
        """Whether the branches accept a constant as argument `j`."""
        return all(region_accepts(r, r.params[j], self.arguments[j]) for b, r in enumerate(self.op.regions) if b in self.needs[j])

    def _choose(self) -> None:
        """Choose the ops to move, last to first, so that the users of an op are decided before it."""
        queue: list[tuple[int, int, Op]] = []
        seen: set[Op] = set()

        def consider(operands: Sequence[Operand]) -> None:
            for x in operands:
                if isinstance(x, Value) and x.op is not None and x.op not in seen:
                    seen.add(x.op)
                    heapq.heappush(queue, (-self.rw.order.place(x.op), len(seen), x.op))

        consider(self.arguments)
        while queue:
            op = heapq.heappop(queue)[2]
            branches = self._branches(op)
            if branches and (len(branches) == 1 or op.defn.is_constant):
                self.sunk[op] = branches
                self.reads += len(op.operands)
                consider(op.operands)

    def _branches(self, op: Op) -> set[int]:
        """The branches that need `op`. Empty if anything else needs it, or if it cannot move, for example because it may fail."""
        v = op.results[0]
        if self.rw.uses(v) > self.reads:
            return set()  # a value with many uses is not searched for every branch
        if not op.defn.is_pure or draws(op) or self.rw.is_result(v) or not isinstance(v.type, TensorType):
            return set()
        if may_fail(op) or not all(self._suits(j) for j, x in enumerate(self.arguments) if x is v):
            return set()
        users = self.rw.users_of(v)
        if any(u is not self.op and u not in self.sunk for u in users) or v is self.op.operands[0]:
            return set()
        wanted = {b for u in users for b in self.sunk.get(u, ())}
        return wanted.union(*(self.needs[j] for j, x in enumerate(self.arguments) if x is v))

    def _region(self, branch: int, ops: Sequence[Op], kept: Sequence[int], fresh: Sequence[Value]) -> Region:
        """The region of a branch: its parameters are the `kept` arguments and `fresh`, and it begins with its ops of `ops`."""
        copy, _ = self.sharing.own(self.op.regions[branch])
        names = {v.name for v in copy.values()}
        inside = {x: copy.params[j] for j in kept if isinstance(x := self.arguments[j], Value)}
        for v in fresh:
            inside[v] = Value(v.type, unused(v.name, names))
            names.add(inside[v].name)
        with Rewriter(copy, self.rw.dialect) as rw:
            start = next(iter(rw.body()), None)
            for op in ops:
                if branch in self.sunk[op]:
                    mine = Op(op.defn, tuple(_mapped(x, inside) for x in op.operands), op.attrs, (), op.regions, op.loc)
                    mine.results = (Value(op.result.type, "", mine),)
                    inside[op.result] = mine.result
                    rw.append(copy, mine) if start is None else rw.insert_before(start, mine)
            for j, x in enumerate(self.arguments):
                if j not in kept and isinstance(x, Literal) and branch in self.needs[j]:
                    rw.replace_all_uses(copy.params[j], insert_constant(rw, x))
                elif j not in kept and isinstance(x, Value) and x in inside:
                    rw.replace_all_uses(copy.params[j], inside[x])
            copy.params[:] = [copy.params[j] for j in kept] + [inside[v] for v in fresh]
        return copy


def _read(region: Region) -> set[Value]:
    """The values that `region` uses."""
    results = (x.value if isinstance(x, Element) else x for x in region.results if not isinstance(x, Literal))
    return {*results, *(v for op in region.body for v in op.values())}


def _mapped(x: Operand, values: dict[Value, Value]) -> Operand:
    if isinstance(x, Element):
        return Element(values.get(x.value, x.value), x.index)
    return values.get(x, x) if isinstance(x, Value) else x


def _to_first_use(rw: Rewriter, context: PassContext) -> int:
    """Move ops with results larger than their operands down to their first use. The number of them. Ops that are moved before
    the same op are one group; the next one goes to its front."""
    home: dict[Op, Op] = {}
    front: dict[Op, Op] = {}
    moved = 0
    for op in reversed(rw.body()):
        users = rw.users_of(op.results[0]) if len(op.results) == 1 and op.defn.is_pure else []
        if not users or not _grows(op):
            continue
        first = min(users, key=rw.order.place)
        last = home.get(first, first)
        place = front.get(last, last)
        if rw.order.following(op) is not place:
            if not context.step("move", op, op):
                break
            rw.move_before(place, op)
            moved += 1
        home[op], front[last] = last, op
    return moved


def _grows(op: Op) -> bool:
    """Whether the result takes more memory than the operands together."""
    sizes = [_bytes(operand_type(x)) for x in dict.fromkeys(x for x in op.operands if not isinstance(x, Literal))]
    result = _bytes(op.result.type)
    return not op.operands or (result is not None and None not in sizes and result > sum(s or 0 for s in sizes))


def _bytes(t: object) -> int | None:
    return t.dtype.packed_bytes(t.count) if isinstance(t, TensorType) and t.is_static else None

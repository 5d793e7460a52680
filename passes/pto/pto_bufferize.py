"""Addresses for tiles, written as `pto.tile.assign` behind every tile (seed 8, step 6; facts 2.1, 5).

Tiles lie next to each other where the target has room, for what shares no bytes need not wait; else as in `ptir plan`.

What a loop carries, or a branch gives, lies in one place. A tile of Vec that cannot be made there, because the place is still
needed, is copied there (`pto.tile.mov.v2v`) before the loop or at the end of the block; in other spaces nothing copies, and it
is reported (`TileMoved`). What does not fit the target's spaces is `CapacityExceeded`, with the tiles that are live at once.

Events are kept. Where asynchronous ops would meet in memory that their tiles now share, the later one waits for the earlier,
or for its pipe (`pto.sync.op`) where the event is not in sight, or has an id. A function that binds tiles itself is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, count

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import ASYNC, SEGMENTS, Function, Op, Region, Value, create, operand_type
from ptir_tools.core.source import Source, pack
from ptir_tools.dialects.pto import capacity, hazards
from ptir_tools.dialects.pto.carried import Carried, carried
from ptir_tools.dialects.pto.pipes import opcodes
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target, scratches, target_of
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import EventType
from ptir_tools.passes import PassContext
from ptir_tools.plan import Plan, plan
from ptir_tools.plan.liveness import Buffer as Place
from ptir_tools.plan.liveness import Liveness
from ptir_tools.plan.record import plan_intervals
from ptir_tools.rewrite.rewriter import Rewriter

ASSIGN = "tile.assign"
LONGER = (64, 16, 4)  # ops for which tiles keep their bytes, as far as there is room
MANY = 2000  # tiles of a space, beyond which they lie as planned
ROUNDS = 4  # of copies: two exchange what is carried crosswise


def run(program: Program, context: PassContext) -> None:
    """Bind every tile to an address of its memory space."""
    target = target_of(program, Options())
    free = {f for f in program.functions if not any(op.defn.short == ASSIGN for op in f.ops())}
    for last in (*[False] * ROUNDS, True):
        made = [_copies(rw, target, context, last=last) for rw in context.rewriters(program) if rw.block in free]
        context.count("copies", sum(made))
        if not any(made) or context.diagnostics.errors:
            break
    planned = plan(program, align=ALIGNMENT)
    for rw in context.rewriters(program):
        if isinstance(function := rw.block, Function) and function in free:
            places = _places(function, target, planned, context)
            if not context.diagnostics.errors:
                context.count("tiles", _bind(rw, places))
    for _ in range(ROUNDS * 16):
        made = [_order(rw, program) for rw in context.rewriters(program) if rw.block in free and not context.diagnostics.errors]
        context.count("waits", sum(made))
        if not any(made):
            break


# Copies


def _copies(rw: Rewriter, target: Target | None, context: PassContext, *, last: bool) -> int:
    """Copy what must lie in another place than it does; how many copies. What nothing copies is reported."""
    function = rw.block
    assert isinstance(function, Function)
    buffers = {b.value: b for b in capacity.buffers(function, target)}
    names = {v.name for op in function.ops() for v in op.results} | {p.name for b in rw.blocks() for p in b.params}
    copies = 0
    for c, place in [(one, place) for op in function.ops() for one in carried(op) for place in one.sources]:
        x, home = c.given(*place), c.homes[0]
        if not isinstance(x, Value) or x not in buffers or _owner(buffers[x]) is _owner(buffers[home]):
            continue
        if last or buffers[home].space != "Vec":
            where = buffers[home].space
            message = f"%{x.name} is needed while %{home.name} is, which it becomes, and nothing copies within {where}"
            at = c.op.loc if x.op is None else x.op.loc
            context.diagnostics.error("TileMoved", message, at, labels=[(c.op.loc, f"carries %{home.name}")], help=_FINISH)
            continue
        names.add(name := next(n for k in count() if (n := f"{x.name}_{k}") not in names))
        _copy(rw, c, place, name)
        copies += 1
    return copies


def _owner(b: capacity.Buffer) -> capacity.Buffer:
    return b.parent or b


_FINISH = "finish with what is carried before it is made anew, or carry it in Vec"


def _copy(rw: Rewriter, c: Carried, place: tuple[Region | None, int], name: str) -> None:
    """Copy what is at a place of what is carried: before the op, or at the end of the block."""
    block, at = place
    x = c.given(block, at)
    made = create(OPS["pto.tile.mov.v2v"], [[x], [], []], {"to": operand_type(x)}, names=[name], loc=c.op.loc)
    if block is None:
        rw.insert_before(c.op, made)
        rw.set_operands(c.op, [*c.op.operands[:at], made.result, *c.op.operands[at + 1 :]])
    else:
        rw.append(block, made)
        rw.set_results(block, [*block.results[:at], made.result, *block.results[at + 1 :]])


# Addresses


def _places(function: Function, target: Target | None, made: Plan, context: PassContext) -> dict[Value, int]:
    """The address of every tile; what does not fit is reported."""
    found: dict[Value, int] = {}
    for space in capacity.spaces(function, target):
        block = made.functions[f"{function.name} {space.name}"]
        places = {b: p.offset or 0 for b, p in zip(space.buffers, block.buffers, strict=True)}
        if target is not None:
            places = _apart(space, _room(function, space, target), places)
        if block.capacity is not None and block.peak > block.capacity:
            capacity.report(
                space, f"the tiles of {space.name} need {block.peak} bytes, there are {block.capacity}", context.diagnostics
            )
        if target is not None and target.scratch is not None and space.name == "Vec":
            start, size = target.scratch
            for op, live in capacity.scratching(function, space):
                if inside := [b for b in live if places[b] + b.size > start and places[b] < start + size]:
                    names = ", ".join(f"%{b.value.name}" for b in inside)
                    message = f"bytes {start} to {start + size - 1} of Vec are scratch of this op, and hold {names}"
                    context.diagnostics.error("CapacityExceeded", message, op.loc, help="use smaller tiles, or fewer at once")
        found |= {b.value: at for b, at in places.items()}
    return found


def _room(function: Function, space: capacity.Space, target: Target) -> int:
    """The bytes of a space that tiles may take whatever op runs."""
    scratched = space.name == "Vec" and any(scratches(op.defn.short) for op in function.ops())
    return target.scratch[0] if scratched and target.scratch is not None else target.capacity[space.name]


def _apart(space: capacity.Space, room: int, planned: dict[capacity.Buffer, int]) -> dict[capacity.Buffer, int]:
    """Places at which a tile takes the bytes of another as late as the room allows: what shares no bytes need not wait.

    Where not all tiles fit next to each other, each keeps its bytes for some ops longer than it lives; else they are `planned`.
    """
    owners = [b for b in space.buffers if b.parent is None]
    if sum(b.size for b in owners) <= room:
        at = dict(zip(owners, accumulate((b.size for b in owners), initial=0), strict=False))
        return {b: at[b.parent or b] for b in space.buffers}
    if len(owners) > MANY:
        return planned
    for longer in LONGER:
        live = Liveness([Place(b.value.name, None, b.size, b.start, b.end - 1 + longer) for b in owners])
        (found,) = plan_intervals(live, align=ALIGNMENT).functions.values()
        if found.peak <= room:
            at = {b: p.offset or 0 for b, p in zip(owners, found.buffers, strict=True)}
            return {b: at[b.parent or b] for b in space.buffers}
    return planned


def _bind(rw: Rewriter, places: dict[Value, int]) -> int:
    """Put the assignments in, each behind its tile; how many."""
    for block in list(rw.blocks()):
        ops = list(rw.body(block))
        waiting = [p for p in block.params if p in places]
        for op in [*ops, None]:
            for v in waiting:
                _assign(rw, block, op, v, places[v])
            waiting = [v for v in op.results if v in places] if op is not None else []
    return len(places)


def _assign(rw: Rewriter, block: Region, before: Op | None, v: Value, address: int) -> None:
    constant = create(OPS["pto.constant"], (), {"value": integer(address, INDEX)})
    for op in (constant, create(OPS[f"pto.{ASSIGN}"], (v, constant.result))):
        _insert(rw, block, before, op)


def _insert(rw: Rewriter, block: Region, before: Op | None, op: Op) -> None:
    if before is None:
        rw.append(block, op)
    else:
        rw.insert_before(before, op)


# Order


def _order(rw: Rewriter, program: Program) -> int:
    """Let asynchronous ops that meet in memory wait for each other, where nothing orders them yet; how many had to."""
    function = rw.block
    assert isinstance(function, Function)
    if not any(isinstance(v.type, EventType) for op in function.ops() for v in op.results):
        return 0
    scopes = _Scopes(function)
    latest: dict[Op, Op] = {}  # the wait for a late one may say that others are complete
    for second, first in _unordered(function, program):
        latest[second] = max(latest.get(second, first), first, key=lambda op: scopes.place[op])
    for second, first in latest.items():
        event = scopes.event(first, second)
        free = event is not None and getattr(event.type, "eid", None) is None  # an id is good for the waits it was given for
        if event is not None and free and event not in second.operands and second.defn.traits & ASYNC:
            _wait(rw, second, event)
        else:
            rw.insert_before(second, create(OPS["pto.sync.op"], (), {"opcode": opcodes(first)[0]}, loc=second.loc))
    return len(latest)


def _unordered(function: Function, program: Program) -> Iterator[tuple[Op, Op]]:
    """(later, earlier) ops that the order check finds: of a copy, in which every op says by its place which it is."""
    numbered = clone(program)
    twin = numbered.functions[program.functions.index(function)]
    ops = list(function.ops())
    for k, op in enumerate(twin.ops()):
        op.loc = pack(k, k + 1)
    found = Diagnostics(Source("", " " * (len(ops) + 1)))
    hazards.check(numbered, found, functions=[twin])
    for d in found:
        if d.code in ("MemoryHazard", "MissingWait") and d.span is not None and d.labels:
            yield ops[d.span.start], ops[d.labels[0].span.start]


class _Scopes:
    """Which events are in sight where."""

    def __init__(self, function: Function) -> None:
        self.blocks: dict[Op, Region] = {}
        self.place: dict[Op, int] = {}
        self.around: dict[Region, Op] = {}
        self.names: dict[Value, list[Value]] = {}  # of an event that is carried on: what it is then called
        for k, op in enumerate(function.ops()):
            self.place[op] = k
            self.around |= dict.fromkeys(op.regions, op)
            for c in carried(op):
                for place in c.sources:
                    if isinstance(x := c.given(*place), Value):
                        self.names.setdefault(x, []).extend(c.homes)
        for block in (function, *self.around):
            self.blocks |= dict.fromkeys(block.body, block)

    def event(self, first: Op, second: Op) -> Value | None:
        """The event of `first`, under a name that is in sight before `second`."""
        own = first.results[-1] if first.results else None
        if own is None or not isinstance(own.type, EventType):
            return None
        inside = set[Region | None]()
        block: Region | None = self.blocks[second]
        outer = [second]
        while block is not None and block in self.around:
            inside.add(block)
            outer.append(self.around[block])
            block = self.blocks[self.around[block]]
        inside.add(block)
        before = {self.blocks[op]: self.place[op] for op in outer}
        known: list[Value] = [own, *self.names.get(own, ())]
        return next((v for v in known if self._seen(v, inside, before)), None)

    def _seen(self, v: Value, inside: set[Region | None], before: dict[Region, int]) -> bool:
        """Whether `v` is defined in one of the blocks `inside`, before the op that follows there."""
        if v.op is None:
            return any(v in b.params for b in inside if b is not None)
        return self.place[v.op] < before.get(self.blocks[v.op], -1)


def _wait(rw: Rewriter, op: Op, event: Value) -> None:
    """Let `op` wait for `event`, too."""
    groups = op.defn.split(op.attrs, op.operands)
    k = [g.name for g in op.defn.groups].index("wait")
    lengths = list(op.attr(SEGMENTS))
    lengths[k] += 1
    at = len(op.operands) - sum(lengths[k + 1 :])
    assert len(groups) == len(lengths)
    rw.set_attrs(op, segments=tuple(lengths))
    rw.set_operands(op, [*op.operands[:at], event, *op.operands[at:]])

"""Addresses for tiles, written as a `pto.tile.assign` after every tile.

If the target has room, bytes are reused as late as possible (`spacing`). Otherwise tiles are placed as in `ptir plan`. The
tiles that a loop carries or a branch gives have one place. A tile of Vec that cannot be made there, because the place is still
in use, is copied (`pto.tile.mov.v2v`) before the loop or at the end of the block. Other spaces have no copies: it is reported
(`TileMoved`). `CapacityExceeded` reports tiles that do not fit, with those that are live at the same time.

The tiles of a called function are placed above those that are live in its callers at the call. Calls that pass tiles or events
are inlined first.

Events are kept. If asynchronous ops are no longer ordered because their tiles now share memory, the later one waits for the
earlier one. If that has an id, or its event is not visible, it waits for the whole pipe (`pto.sync.op`). Where the hazard check
is incomplete, everything is complete before bytes are reused.

A function with addresses does not change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import count

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import ASYNC, Function, Op, Region, Value, clone_blocks, create, operand_type
from ptir_tools.core.source import Source, pack
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.carried import Carried, carried
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.memory import capacity
from ptir_tools.dialects.pto.memory.info import infer
from ptir_tools.dialects.pto.memory.spacing import spaced
from ptir_tools.dialects.pto.memory.spare import spare_bytes
from ptir_tools.dialects.pto.memory.windows import overlap, placed
from ptir_tools.dialects.pto.order import hazards
from ptir_tools.dialects.pto.pipes import opcodes
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.structure import callees, has_addresses, has_events, is_call, set_waits
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target, target_of
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import EventType, TileType
from ptir_tools.passes import PassContext
from ptir_tools.plan import Plan, plan
from ptir_tools.rewrite.rewriter import Rewriter

COPY = "tile.mov.v2v"
ROUNDS = 4  # of copies: a second one for values that change places


def run(program: Program, context: PassContext) -> None:
    """Bind every tile to an address of its memory space."""
    target = target_of(program, Options())
    context.count("inlined", _inline(program, context))
    free = {f for f in program.functions if not has_addresses(f)}
    for last in (*[False] * ROUNDS, True):
        counts = [_copies(rw, target, context, last=last) for rw in context.rewriters(program) if rw.block in free]
        context.count("copies", sum(counts))
        if not any(counts) or context.diagnostics.errors:
            break
    places = _Placing(program, target, free, context).places
    for rw in context.rewriters(program):
        if rw.block in free and not context.diagnostics.errors:
            context.count("tiles", _bind(rw, places[rw.block]))
    for _ in range(ROUNDS * 16):
        if not (unordered := list(_unordered(program, free))):
            break
        context.count("waits", sum(_order(rw, unordered) for rw in context.rewriters(program) if rw.block in free))
    for rw in context.rewriters(program):
        f = rw.block
        checked = isinstance(f, Function) and f in free and not context.diagnostics.errors and has_events(f)
        if checked and isinstance(f, Function) and hazards.is_truncated(program, f):
            context.count("waits", _apart(rw, program))


# Calls


def _inline(program: Program, context: PassContext) -> int:
    """Inline calls that pass tiles or events, because their tiles must be where the callee wants them; the number of calls."""
    count = 0
    passing = {f.name: f for f in program.functions if any(isinstance(t, (TileType, EventType)) for t in _signature(f))}
    again = bool(passing)
    while again:
        again = False
        for rw in context.rewriters(program):
            for call in [op for op in rw.block.ops() if is_call(op) and op.attr("callee") in passing]:
                _put_in_line(rw, call, passing[call.attr("callee")])
                count += 1
                again = True
    called = {g for f in program.functions for g in callees(f.ops(), program)}
    if count:
        unused = [f for f in passing.values() if f not in called and f.name != program.entry]
        program.functions[:] = [f for f in program.functions if f not in unused]
    return count


def _signature(f: Function) -> list[Type]:
    return [*[p.type for p in f.params], *f.result_types]


def _put_in_line(rw: Rewriter, call: Op, callee: Function) -> None:
    """Replace a call by the ops of the function."""
    given: dict[Value, Any] = dict(zip(callee.params, call.operands, strict=True))
    (copy,) = clone_blocks([Region(callee.name, body=callee.body, results=callee.results)], given)
    names = _names(rw)
    for v in (v for op in copy.ops() for v in (*op.results, *(p for r in op.regions for p in r.params))):
        v.name = _unused(v.name, names)
        names.add(v.name)
    for op in copy.body:
        rw.insert_before(call, op)
    for v, x in zip(call.results, copy.results, strict=True):
        rw.retype(v, operand_type(x))
        rw.replace_all_uses(v, x)
    rw.erase(call)


def _names(rw: Rewriter) -> set[str]:
    blocks = list(rw.blocks())
    return {v.name for b in blocks for v in (*b.params, *(v for op in rw.body(b) for v in op.results))}


def _unused(stem: str, names: Collection[str]) -> str:
    return stem if stem not in names else next(n for k in count() if (n := f"{stem}_{k}") not in names)


# Copies


def _copies(rw: Rewriter, target: Target | None, context: PassContext, *, last: bool) -> int:
    """Copy tiles that must have another place; the number of copies. Tiles that no op copies are reported."""
    function = rw.block
    assert isinstance(function, Function)
    buffers = {b.value: b for b in capacity.buffers(function, target)}
    names = _names(rw)
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
        names.add(name := _unused(x.name, names))
        _copy(rw, c, place, name)
        copies += 1
    return copies


def _owner(b: capacity.Buffer) -> capacity.Buffer:
    return b.parent or b


_FINISH = "finish with what is carried before it is made anew, or carry it in Vec"


def _copy(rw: Rewriter, c: Carried, place: tuple[Region | None, int], name: str) -> None:
    """Copy a carried tile: before the op, or at the end of the block."""
    block, at = place
    x = c.given(block, at)
    result = create(OPS[f"pto.{COPY}"], [[x], [], []], {"to": operand_type(x)}, names=[name], loc=c.op.loc)
    if block is None:
        rw.insert_before(c.op, result)
        rw.set_operands(c.op, [*c.op.operands[:at], result.result, *c.op.operands[at + 1 :]])
    else:
        rw.append(block, result)
        rw.set_results(block, [*block.results[:at], result.result, *block.results[at + 1 :]], block.result_types)


# Addresses


class _Placing:
    """The address of every tile, callers first. The tiles of a called function are above those that are live in its callers."""

    def __init__(self, program: Program, target: Target | None, free: Collection[Region], context: PassContext) -> None:
        self.program = program
        self.target = target
        self.planned: Plan | None = None  # where tiles cannot be spaced
        self.diagnostics = context.diagnostics
        self.calls = {f: callees(f.ops(), program) for f in program.functions}
        self.scratched = {f for f in program.functions if any(facts(op).scratch for g in self.all(f) for op in g.ops())}
        self.base: dict[Function, dict[str, int]] = {f: {} for f in program.functions}  # the bytes per space that are taken
        self.places: dict[Region, dict[Value, int]] = {}
        for function in self.callers_first():
            if function in free:
                self.places[function] = self.function(function)

    def all(self, function: Function) -> list[Function]:
        """A function and all functions that it calls, directly or not."""
        functions = [function]
        for f in functions:
            functions += [g for g in self.calls[f] if g not in functions]
        return functions

    def callers_first(self) -> list[Function]:
        """The functions, each after its callers."""
        return sorted(self.program.functions, key=lambda f: sum(f in self.all(g) for g in self.program.functions))

    def function(self, function: Function) -> dict[Value, int]:
        """Place the tiles of a function; those that do not fit are reported."""
        addresses: dict[Value, int] = {}
        tiles = infer(function, self.target)
        for space in capacity.spaces(function, self.target, tiles):
            base = self.base[function].get(space.name, 0)
            held = [(c, live) for c, live in capacity.live_at(function, space, is_call) if live]
            places = None
            if self.target is not None and not held:  # otherwise called functions need the room
                spare = spare_bytes(function, tiles, self.target) if space.name == "Vec" else 0
                places = spaced(function, space, self.room(function, space) - base, spare)
            if places is None:
                places = self.packed(function, space, base)
            places = {b: base + at for b, at in places.items()}
            self.keep_off_scratch(function, space, places)
            addresses |= {b.value: at for b, at in places.items()}
            for call, live in held:
                callee = self.program.function(call.attr("callee"))
                for f in self.all(callee) if callee is not None else ():
                    top = max([self.base[f].get(space.name, 0), *(places[b] + b.size for b in live)])
                    self.base[f][space.name] = top
        return addresses

    def packed(self, function: Function, space: capacity.Space, base: int) -> dict[capacity.Buffer, int]:
        """The places of `ptir plan`; tiles that do not fit above `base` are reported."""
        self.planned = self.planned or plan(self.program, align=ALIGNMENT)
        block = self.planned.functions[f"{function.name} {space.name}"]
        if block.capacity is not None and base + block.peak > block.capacity:
            message = f"the tiles of {space.name} need {block.peak} bytes, there are {block.capacity}"
            message += f", and {base} are taken in @{function.name}'s callers" if base else ""
            capacity.report(space, message, self.diagnostics)
        return {b: p.offset or 0 for b, p in zip(space.buffers, block.buffers, strict=True)}

    def room(self, function: Function, space: capacity.Space) -> int:
        """The bytes of a space that tiles may use at any op."""
        assert self.target is not None
        scratched = self.target.scratch is not None and space.name == "Vec" and function in self.scratched
        return self.target.scratch[0] if scratched and self.target.scratch is not None else self.target.capacity[space.name]

    def keep_off_scratch(self, function: Function, space: capacity.Space, places: dict[capacity.Buffer, int]) -> None:
        """Report tiles that are live in the scratch of an op, or of a called function."""
        if self.target is None or self.target.scratch is None or space.name != "Vec":
            return
        start, size = self.target.scratch
        for op, live in capacity.live_at(function, space, self.uses_scratch):
            if inside := [b for b in live if places[b] + b.size > start and places[b] < start + size]:
                names = ", ".join(f"%{b.value.name}" for b in inside)
                message = f"bytes {start} to {start + size - 1} of Vec are scratch of this op, and hold {names}"
                self.diagnostics.error("CapacityExceeded", message, op.loc, help="use smaller tiles, or fewer at once")

    def uses_scratch(self, op: Op) -> bool:
        """Whether an op, or a function that it calls, uses the target's scratch."""
        return facts(op).scratch or not self.scratched.isdisjoint(callees([op], self.program))


def _bind(rw: Rewriter, places: dict[Value, int]) -> int:
    """Insert the assignments, each after its tile; the number."""
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
    for op in (constant, create(OPS["pto.tile.assign"], (v, constant.result))):
        if before is None:
            rw.append(block, op)
        else:
            rw.insert_before(before, op)


# Order


def _order(rw: Rewriter, unordered: Sequence[tuple[Op, Op]]) -> int:
    """Make asynchronous ops wait for each other where they share memory and are not ordered yet; the number of such ops."""
    function = rw.block
    assert isinstance(function, Function)
    scopes = _Scopes(function)
    latest: dict[Op, Op] = {}  # waiting for a later one may complete the others
    for second, first in unordered:
        if second in scopes.place:
            latest[second] = max(latest.get(second, first), first, key=lambda op: scopes.place.get(op, -1))
    for second, first in latest.items():
        event = scopes.event(first, second)
        free = event is not None and getattr(event.type, "eid", None) is None  # an id is only valid for its present waits
        if event is not None and free and event not in second.operands and second.defn.traits & ASYNC:
            set_waits(rw, second, [*group(second, "wait"), event])
        else:
            rw.insert_before(second, create(OPS["pto.sync.op"], (), {"opcode": opcodes(first)[0]}, loc=second.loc))
    return len(latest)


def _apart(rw: Rewriter, program: Program) -> int:
    """Complete everything before copies, and before a tile gets bytes of another; the number of barriers."""
    tiles, count = placed(program.functions), 0
    for op in [op for op in rw.block.ops() if op.defn.traits & ASYNC]:
        own = [v for v in op.results if v in tiles]
        shared = any(v is not w and overlap(tiles[v], tiles[w]) is not None for v in own for w in tiles)
        if shared or op.defn.short == COPY:
            rw.insert_before(op, create(OPS["pto.sync.op"], (), {"opcode": "ALL"}, loc=op.loc))
            count += 1
    return count


def _unordered(program: Program, free: Collection[Region]) -> Iterator[tuple[Op, Op]]:
    """The (later, earlier) ops that the hazard check reports. It checks a copy, in which each op has its position as its
    location."""
    if not any(map(has_events, program.functions)):
        return
    ops = [op for f in program.functions for op in f.ops()]
    numbered = clone(program)
    for k, op in enumerate(op for f in numbered.functions for op in f.ops()):
        op.loc = pack(k, k + 1)
    diagnostics = Diagnostics(Source("", " " * (len(ops) + 1)))
    hazards.check(numbered, diagnostics)
    mine = {op for f in program.functions if f in free for op in f.ops()}
    for d in diagnostics:
        if d.code in ("MemoryHazard", "MissingWait") and d.span is not None and d.labels and ops[d.span.start] in mine:
            yield ops[d.span.start], ops[d.labels[0].span.start]


class _Scopes:
    """The events that are visible at each op."""

    def __init__(self, function: Function) -> None:
        self.blocks: dict[Op, Region] = {}
        self.place: dict[Op, int] = {}
        self.around: dict[Region, Op] = {}
        self.names: dict[Value, list[Value]] = {}  # the other names of carried events
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
        """The event of `first`, by a name that is visible before `second`."""
        own = first.results[-1] if first.results and first in self.place else None
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
        """Whether `v` is defined in one of the blocks `inside`, before the op there."""
        if v.op is None:
            return any(v in b.params for b in inside if b is not None)
        return self.place[v.op] < before.get(self.blocks[v.op], -1)

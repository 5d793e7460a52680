"""Events as flags: where each flag is set and waited for, once for every waiting pipe, and its id.

A flag goes from one pipe to another. It is set after its producer, waited for before its first user in the other pipe, and set
again only after that. A flag that is set on only one path is waited for where the paths meet. A flag that a loop carries is set
before the loop. So it is statically known whether a flag is set, and every set has one wait.

An op without an event is complete before later ops are issued: the next op of each other pipe waits for it. Dependent ops of
one pipe have a barrier between them if the target needs one. Flags between the cube core and the vector core are of another
kind (`scope = inter`). If more flags of two pipes are set at one time than there are ids, some are waited for immediately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Op, Region, Value
from ptir_tools.core.records import NamedTuple, dataclass, field
from ptir_tools.core.typed import TypeVar
from ptir_tools.dialects.pto.carried import classes
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.fifos import CUBE, VECTOR, users
from ptir_tools.dialects.pto.memory.info import infer
from ptir_tools.dialects.pto.memory.windows import Access, overlap, placed
from ptir_tools.dialects.pto.pipes import EVERY_PIPE, PIPES, asynchronous, is_tile_op, pipe_of, pipes_of_barrier
from ptir_tools.dialects.pto.rules import EVENT_IDS
from ptir_tools.dialects.pto.structure import is_assign, is_barrier, is_call, is_loop, is_while
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.types import EventType, TileType

K = TypeVar("K")
SET, WAIT, BARRIER = "set_flag", "wait_flag", "pipe_barrier"
INTER_IDS = 14  # of 16, two are for barriers of all cores
ALL = "ALL"


class Unit(NamedTuple):
    """A pipe of one of the two cores."""

    core: str
    pipe: str


class Signal(NamedTuple):
    """One instruction: a flag is set or waited for, or a barrier of a pipe (`ALL`: of every pipe)."""

    kind: str
    source: Unit
    target: Unit
    eid: int = 0

    @property
    def core(self) -> str:
        """The core that executes it."""
        return self.target.core if self.kind == WAIT else self.source.core

    @property
    def inter(self) -> bool:
        """Whether it goes from one core to the other."""
        return self.source.core != self.target.core


@dataclass(slots=True)
class Signals:
    """The instructions of a function on these `cores`: before and after its ops, and at the end of its blocks."""

    cores: tuple[str, ...] = (VECTOR,)
    units: dict[Op, Unit] = field(default_factory=dict)  # of every tile op
    before: dict[Op, list[Signal]] = field(default_factory=lambda: defaultdict(list))
    behind: dict[Op, list[Signal]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[Region, list[Signal]] = field(default_factory=lambda: defaultdict(list))

    def along(self, block: Region, ops: Iterable[Op]) -> Iterator[Op | Signal]:
        """The ops of a block, in the order of output, with the instructions between them."""
        for op in ops:
            yield from self.before.get(op, ())
            yield op
            yield from self.behind.get(op, ())
        yield from self.ends.get(block, ())


class _FlagKey(NamedTuple):
    """A flag without its id: its event, source and target. A flag for one place only has a negative event number."""

    event: int
    source: Unit
    target: Unit


def cores_of(program: Program, function: Function) -> tuple[str, ...]:
    """The cores that execute a function: those of the program, which run every function with their own ops. Where functions pass
    tiles to each other, each of them is for one core."""
    if (own := users(program).get(function.name)) is not None:
        return (own,)
    found = {core for f in program.functions for op in f.ops() if is_tile_op(op.defn) and (core := _core(op, {})) is not None}
    return tuple(sorted(found)) or (VECTOR,)


def _core(op: Op, tiles: Mapping[Value, TileType]) -> str | None:
    """The core of a tile op; None where it may be either."""
    pipe = pipe_of(op)
    if pipe in ("M", "MTE1", "FIX"):
        return CUBE
    if pipe == "V":
        return VECTOR
    values = [v for v in (*op.results, *op.operands) if isinstance(v, Value)]
    types = (tiles.get(v, v.type) for v in values)
    loc = next((t.loc for t in types if isinstance(t, TileType)), None)
    return None if loc is None else CUBE if loc == "Mat" else VECTOR


def signals_of(function: Function, program: Program, target: Target | None, cores: tuple[str, ...]) -> Signals:
    """The instructions that order the ops of `function` as its events and synchronous ops require. `cores` are those that
    execute it (`cores_of`)."""
    plan = _Plan(function, program, target, cores)
    eager: set[_FlagKey] = set()
    while True:
        made = _Placement(plan, eager)
        made.function()
        if not plan.coarse and _too_many_pairs({(k.source, k.target) for k in made.spans}):
            plan.coarsen()
            continue
        ids, without = _assign_ids(made.spans, plan.stated_ids)
        if not without - eager:
            return made.signals(ids)
        eager |= without


class _Plan:
    """Facts before placement: the unit of each op, the values that are one event, the units that set it and that wait."""

    def __init__(self, function: Function, program: Program, target: Target | None, cores: tuple[str, ...]) -> None:
        self.main = function
        self.called = len(program.functions) > 1
        self.target = target
        self.tiles = infer(function, target)
        self.placed = placed([function])
        self.bound = {op.operands[0] for op in function.ops() if is_assign(op)}
        self.cores = cores
        self.units = dict.fromkeys(self.unit(op) for op in function.ops() if is_tile_op(op.defn))
        self.coarse = False
        self.names: dict[Value, int] = {}  # per event, the number of all its names
        self.stated_ids: dict[int, int] = {}  # the id that an event states
        self._number(function)
        self.sources: dict[int, list[Unit]] = defaultdict(list)
        self.targets: dict[int, list[Unit]] = defaultdict(list)
        for op in function.ops():
            if (v := self.event(op)) is not None:
                _add_unit(self.sources[self.names[v]], self.unit(op))
            for e in self.awaited(op):
                for unit in self.waiting_units(op):
                    _add_unit(self.targets[e], unit)
        self.all_flags = [k for e in self.sources for k in self.flags(e)]

    def _number(self, function: Function) -> None:
        numbers: dict[int, int] = {}  # by class
        for v, names in classes(function, EventType).items():
            self.names[v] = numbers.setdefault(id(names), len(numbers))
        for v, n in self.names.items():
            assert isinstance(v.type, EventType)
            if v.type.eid is not None:
                self.stated_ids.setdefault(n, v.type.eid)

    def unit(self, op: Op) -> Unit:
        """The pipe that executes a tile op."""
        return Unit(_core(op, self.tiles) or self.cores[0], pipe_of(op))

    def scalars(self) -> list[Unit]:
        """The scalar units: their waits block all later ops."""
        return [Unit(core, "S") for core in self.cores]

    def event(self, op: Op) -> Value | None:
        """The event that a tile op signals."""
        return op.results[-1] if asynchronous(op) else None

    def awaited(self, op: Op) -> list[int]:
        """The events that an op waits for."""
        if op.regions or is_call(op):
            return []
        return [self.names[x] for x in op.operands if isinstance(x, Value) and x in self.names]

    def waiting_units(self, op: Op) -> list[Unit]:
        """The units in which an op waits."""
        return [self.unit(op)] if is_tile_op(op.defn) else self.scalars()

    def flags(self, event: int, targets: Iterable[Unit] | None = None) -> list[_FlagKey]:
        """The flags of an event to these units, or to all that wait for it."""
        chosen = self.targets.get(event, ()) if targets is None else targets
        found = [_FlagKey(event, p, self.waiting_unit(p, q)) for p in self.sources.get(event, ()) for q in chosen if p != q]
        return list(dict.fromkeys(found))

    def waiting_unit(self, source: Unit, target: Unit) -> Unit:
        """The unit that waits where `target` needs `source`: itself, or the scalar unit of its core."""
        return Unit(target.core, "S") if self.coarse and source.core != target.core else target

    def coarsen(self) -> None:
        """Make the scalar unit of a core wait for the other core, to need fewer pairs of units."""
        self.coarse = True
        self.all_flags = [k for e in self.sources for k in self.flags(e)]


def _filled(table: dict[K, list[Signal]]) -> dict[K, list[Signal]]:
    return {place: found for place, found in table.items() if found}


def _join(a: Clock, b: Clock) -> Clock:
    return a | {unit: at for unit, at in b.items() if at > a.get(unit, 0)}


def _add_unit(units: list[Unit], unit: Unit) -> None:
    if unit not in units:
        units.append(unit)


Clock = dict[Unit, int]
Effect = dict[_FlagKey, bool]  # the flags that are certainly set (True) or not set (False) afterwards; the others do not change


class _Placement:
    """Follows a function with the set of flags, and places instructions."""

    def __init__(self, plan: _Plan, eager: set[_FlagKey]) -> None:
        self.plan = plan
        self.eager = eager
        self.position = 0
        self.spans: dict[_FlagKey, tuple[int, int]] = {}  # the first and last position at which each flag is used
        self.emitted: list[tuple[list[tuple[str, _FlagKey]], list[Signal]]] = []
        self.result = Signals(plan.cores, {op: plan.unit(op) for op in plan.main.ops() if is_tile_op(op.defn)})
        self.effects: dict[Region, Effect] = {}
        self.latest: dict[Unit, int] = {}  # the position of the last op of each unit whose pipe both cores have
        self.pending: dict[Unit, int] = {}  # by unit, the position of its last synchronous op, if not all units wait for it
        self.known: dict[Unit, Clock] = defaultdict(
            dict
        )  # by unit, the positions up to which others are complete when its next op starts
        self.issued: dict[str, Clock] = defaultdict(dict)  # the same for everything that is issued to a core from here on
        self.set: dict[_FlagKey, Clock] = {}  # the same when a flag was set
        self.next_key = 0
        self.accessed: dict[Unit, list[tuple[Value, Access | None, bool]]] = {}  # since the last barrier of a pipe
        self.accesses_unknown = False  # whether other blocks accessed tiles since then

    def function(self) -> None:
        """Place the instructions of the function. At its end no flag is set, and all pipes are complete. A called function ends
        when both cores are complete, because one core may read what the other has stored."""
        end = self.block(self.plan.main, set())
        self.wait(self.plan.main, sorted(end))
        for unit in self.plan.units if self.plan.called else ():
            for core in self.plan.cores:
                if core != unit.core and self.issued[core].get(unit, 0) < self.known[unit].get(unit, 0):
                    self.set_and_wait(self.plan.main, unit, Unit(core, "S"))
        if any(is_tile_op(op.defn) for op in self.plan.main.ops()):
            for core in self.plan.cores:
                self.instructions(self.plan.main).append((BARRIER, _FlagKey(0, Unit(core, ALL), Unit(core, ALL))))

    def signals(self, ids: dict[_FlagKey, int]) -> Signals:
        """The placed instructions, with the ids of the flags."""
        for placed_, into in self.emitted:
            into += [Signal(kind, k.source, k.target, ids.get(k, 0)) for kind, k in placed_]
        made = self.result
        return Signals(made.cores, made.units, _filled(made.before), _filled(made.behind), _filled(made.ends))

    # What a block does to flags

    def effect(self, block: Region) -> Effect:
        """The effect of a block on flags, whatever is set before it."""
        if (found := self.effects.get(block)) is None:
            found = {}
            for op in block.body:
                found |= self.op_effect(op)
            self.effects[block] = found
        return found

    def op_effect(self, op: Op) -> Effect:
        """The effect of an op on flags."""
        if is_call(op):
            return dict.fromkeys(self.plan.all_flags, False)
        if op.regions:
            effects = [self.effect(r) for r in op.regions]
            if is_loop(op):
                round_ = {k: v for e in effects for k, v in e.items()}
                head = {k: False for k, v in round_.items() if not v}
                return head | effects[0] if is_while(op) else head
            made: Effect = {}
            for k in {k for e in effects for k in e}:
                ways = [e.get(k) for e in effects]
                if False in ways or None not in ways:
                    made[k] = False not in ways
            return made
        made = {k: False for e in self.plan.awaited(op) for k in self.plan.flags(e, self.plan.waiting_units(op))}
        if (v := self.plan.event(op)) is not None:
            event, unit = self.plan.names[v], self.plan.unit(op)
            made |= {k: k not in self.eager for k in self.plan.flags(event) if k.source == unit}
        return made

    # The walk

    def block(self, block: Region, flags: set[_FlagKey]) -> set[_FlagKey]:
        """Follow a block; the flags that are set after it."""
        for op in block.body:
            self.position += 1
            if op.regions:
                self.synchronize(op)
                flags = self.loop(op, flags) if is_loop(op) else self.branch(op, flags)
                self.accesses_unknown = True
            elif is_call(op):
                self.synchronize(op)
                self.wait(op, sorted(flags))
                flags = set()
                self.accesses_unknown = True
            elif is_barrier(op):
                self.barrier(op)
            else:
                flags = self.step(op, flags)
        self.position += 1
        if block is self.plan.main:
            self.latest = {}
        if block is not self.plan.main or len(self.plan.cores) > 1:  # otherwise the barrier at the end does it
            self.synchronize(block)
        return flags

    def loop(self, op: Op, flags: set[_FlagKey]) -> set[_FlagKey]:
        opened = self.position
        round_ = {k: v for r in op.regions for k, v in self.effect(r).items()}
        gone = {k for k in flags if round_.get(k) is False}
        self.wait(op, sorted(gone))
        head = flags - gone
        self.accesses_unknown = True
        state = set(head)
        behind = state
        for r in op.regions:
            state = self.block(r, state)
            behind = state if r is op.regions[0] else behind
        assert head <= state
        self.wait(op.regions[-1], sorted(state - head))
        self.position += 1
        for k in head:
            self.extend(k, opened)
            self.extend(k, self.position)
        return set(behind) if is_while(op) else set(head)

    def branch(self, op: Op, flags: set[_FlagKey]) -> set[_FlagKey]:
        ends = []
        for r in op.regions:
            self.accesses_unknown = True  # what the other block has a barrier for, this one has not
            ends.append(self.block(r, set(flags)))
        common = set.intersection(*ends)
        for r, end in zip(op.regions, ends, strict=True):
            self.wait(r, sorted(end - common))
        return common

    def step(self, op: Op, flags: set[_FlagKey]) -> set[_FlagKey]:
        plan, flags = self.plan, set(flags)
        for e in dict.fromkeys(plan.awaited(op)):
            ready = [k for k in plan.flags(e, plan.waiting_units(op)) if k in flags]
            self.wait(op, ready)
            flags -= set(ready)
        if not is_tile_op(op.defn):
            return flags
        unit = plan.unit(op)
        for other, at in sorted(self.pending.items(), key=lambda item: -item[1]):  # a later one implies earlier ones
            if other != unit and max(self.known[unit].get(other, 0), self.issued[unit.core].get(other, 0)) < at:
                self.set_and_wait(op, other, unit)
        self.dependents(op, unit)
        self.in_order(op, unit)
        if (v := plan.event(op)) is None:
            self.pending[unit] = self.known[unit][unit] = self.position
            return flags
        self.known[unit][unit] = self.position
        for k in plan.flags(plan.names[v]):
            if k.source != unit:
                continue
            if k in flags:
                self.wait(op, [k])
            self.emit(op, SET, k, behind=True)
            flags.add(k)
            if k in self.eager:
                self.emit(op, WAIT, k, behind=True)
                flags.discard(k)
        return flags

    def in_order(self, op: Op, unit: Unit) -> None:
        """Keep the order of one pipe where both cores have it: one core waits for the other."""
        for other in [u for u in self.latest if u.pipe == unit.pipe and u != unit]:
            self.wait_for_core(op, other, unit)
        if any(u.pipe == unit.pipe and u != unit for u in self.plan.units):
            self.latest[unit] = self.position

    def wait_for_core(self, at: Op | Region, other: Unit, unit: Unit) -> None:
        """Make a pipe of one core wait for the same pipe of the other core."""
        if max(self.known[unit].get(other, 0), self.issued[unit.core].get(other, 0)) < self.latest[other]:
            self.set_and_wait(at, other, unit)

    def synchronize(self, at: Op | Region) -> None:
        """Make all later ops wait for the synchronous ops, and a pipe that both cores have for its counterpart."""
        for unit in list(self.latest):
            for other in [u for u in self.plan.units if u.pipe == unit.pipe and u != unit]:
                self.wait_for_core(at, unit, other)
        self.latest = {}
        for unit, place in self.pending.items():
            if any(self.issued[core].get(unit, 0) < place for core in self.plan.cores):
                self.scalars(at, unit)
        self.pending = {}

    def barrier(self, op: Op) -> None:
        """Make all later ops wait for one pipe, or for every pipe."""
        opcode = op.attr("opcode")
        if opcode in EVERY_PIPE and len(self.plan.cores) == 1:
            whole = Unit(self.plan.cores[0], ALL)
            self.instructions(op).append((BARRIER, _FlagKey(0, whole, whole)))
            self.issued[whole.core] = dict.fromkeys(self.known, self.position)
            self.accessed, self.accesses_unknown = {}, False
            return
        pipes = [PIPES[i] for i in pipes_of_barrier(opcode)]
        used = dict.fromkeys(self.plan.unit(o) for o in self.plan.main.ops() if is_tile_op(o.defn))
        for unit in [u for u in used if u.pipe in pipes]:
            self.scalars(op, unit)

    def scalars(self, at: Op | Region, unit: Unit) -> None:
        """Make all later ops wait for a unit."""
        for scalar in self.plan.scalars():
            self.set_and_wait(at, unit, scalar)

    def set_and_wait(self, at: Op | Region, source: Unit, target: Unit) -> None:
        """A flag that is set and waited for at once."""
        if source == target:
            return
        self.next_key -= 1
        key = _FlagKey(self.next_key, source, self.plan.waiting_unit(source, target))
        self.emit(at, SET, key)
        self.emit(at, WAIT, key)

    def wait(self, at: Op | Region, keys: Sequence[_FlagKey]) -> None:
        """Wait for flags, before an op or at the end of a block."""
        for k in keys:
            self.emit(at, WAIT, k)

    def emit(self, at: Op | Region, kind: str, k: _FlagKey, *, behind: bool = False) -> None:
        """Place an instruction, and update the clock of its target."""
        self.position += 1
        self.instructions(at, behind=behind).append((kind, k))
        self.extend(k, self.position)
        if kind == SET:
            known = _join(self.known[k.source], self.issued[k.source.core])
            self.set[k] = _join(known, {k.source: self.position})
        elif k.target.pipe == "S":
            self.issued[k.target.core] = _join(self.issued[k.target.core], self.set[k])
        else:
            self.known[k.target] = _join(self.known[k.target], self.set[k])

    def extend(self, k: _FlagKey, at: int) -> None:
        start, end = self.spans.get(k, (at, at))
        self.spans[k] = min(start, at), max(end, at)

    def instructions(self, at: Op | Region, *, behind: bool = False) -> list[tuple[str, _FlagKey]]:
        into = self.result.ends[at] if isinstance(at, Region) else (self.result.behind if behind else self.result.before)[at]
        made: list[tuple[str, _FlagKey]] = []
        self.emitted.append((made, into))
        return made

    # Dependents on one pipe

    def dependents(self, op: Op, unit: Unit) -> None:
        """Place a barrier before an op that conflicts with an earlier one of its pipe, where the target needs it."""
        if self.plan.target is None or unit.pipe not in self.plan.target.barriers:
            return
        if facts(op).renames:
            return
        values = [(v, False) for v in op.operands] + [(v, True) for v in op.results]
        tiles = [(self.root(v), writes) for v, writes in values if isinstance(v, Value) and isinstance(v.type, TileType)]
        mine = [(v, self.plan.placed.get(v), writes) for v, writes in tiles]
        before = self.accessed.setdefault(unit, [])
        if self.accesses_unknown or any((a[2] or b[2]) and self.may_overlap(a, b) for a in mine for b in before):
            self.instructions(op).append((BARRIER, _FlagKey(0, unit, unit)))
            before.clear()
            self.accesses_unknown = False
        before += mine

    def root(self, v: Value) -> Value:
        """The tile whose bytes `v` has."""
        while v.op is not None and facts(v.op).renames and isinstance(v.op.operands[0], Value):
            v = v.op.operands[0]
        return v

    def may_overlap(self, a: tuple[Value, Access | None, bool], b: tuple[Value, Access | None, bool]) -> bool:
        """Whether two tiles may share bytes. Both are in Vec, where only V works: no other pipe needs barriers."""
        if a[0] is b[0]:
            return True
        if a[1] is None or b[1] is None:
            return a[0] in self.plan.bound or b[0] in self.plan.bound
        return overlap(a[1], b[1]) is not None


def _assign_ids(spans: dict[_FlagKey, tuple[int, int]], wanted: dict[int, int]) -> tuple[dict[_FlagKey, int], set[_FlagKey]]:
    """An id for every flag: different from those of its pool with overlapping live ranges, the stated one where it is free.

    Also the flags for which there is no id: those with the longest live ranges.
    """
    ids: dict[_FlagKey, int] = {}
    without: set[_FlagKey] = set()
    pairs = {(k.source, k.target) for k in spans}
    active: dict[object, list[_FlagKey]] = defaultdict(list)
    for key, (start, _) in sorted(spans.items(), key=lambda item: item[1]):
        pair = key.source, key.target
        most, first = _id_range(pair, pairs)
        rivals = active[pair] = [k for k in active[pair] if spans[k][1] > start]
        rivals.append(key)
        if len(rivals) > most:
            longest = max((k for k in rivals if k.event >= 0), key=lambda k: spans[k][1] - spans[k][0])
            without.add(longest)
            rivals.remove(longest)
            if longest is not key:
                ids[key] = ids[longest]
            continue
        taken = {ids[k] for k in rivals[:-1]}
        stated = wanted.get(key.event)
        free = [i for i in range(first, first + most) if i not in taken]
        ids[key] = stated if stated in free else free[0]
    return ids, without


def _too_many_pairs(pairs: set[tuple[Unit, Unit]]) -> bool:
    """Whether more pairs of units of the two cores have flags than there are ids."""
    return any(sum(p.core == core != q.core for p, q in pairs) > INTER_IDS for core in (CUBE, VECTOR))


def _id_range(pair: tuple[Unit, Unit], pairs: set[tuple[Unit, Unit]]) -> tuple[int, int]:
    """The number of ids of two units, and the first. Flags between the cores differ only by their ids, so that all pairs of
    one direction share them."""
    source, target = pair
    if source.core == target.core:
        return EVENT_IDS, 0
    others = sorted(p for p in pairs if p[0].core == source.core and p[1].core == target.core)
    share = max(INTER_IDS // len(others), 1)
    return share, share * others.index(pair)

"""Ids for events: hardware has 0 to 7 for each ordered pair of pipes, and a flag is waited for before it is set again.

An event is under way from the op that signals it to the last op that waits for it; what a loop carries, or the ways of a branch
give, is one event all along. Events that pass between the same two pipes at one time get different ids, the least that are free;
ids of before are replaced. An event for which no other pipe waits needs none. (Seed 5.1; facts 4.1.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ptir_tools.core.ir import Op, Program, Region, Value
from ptir_tools.core.opdef import ASYNC
from ptir_tools.core.rewriter import Rewriter
from ptir_tools.core.types import EventType, event
from ptir_tools.dialects.pto.pipes import pipe_of
from ptir_tools.dialects.pto.rules import EVENT_IDS
from ptir_tools.passes import PassContext
from ptir_tools.passes.pto.pto_infer_tile_info import block_types

Pair = tuple[str, str]


def run(program: Program, context: PassContext) -> None:
    """Give every event that one pipe awaits of another an id that is free between the two."""
    for rw in context.rewriters(program):
        flags = _Flags()
        flags.block(rw.block)
        if not flags.double(context) and flags.allocate(context):
            context.count("ids", _write(rw, flags))
            block_types(rw)


@dataclass(slots=True, eq=False)
class _Flag:
    """One event, under all its names: who signals it and who waits, and from where to where it is under way."""

    values: list[Value] = field(default_factory=list)
    sources: dict[str, Op] = field(default_factory=dict)  # by pipe
    targets: set[str] = field(default_factory=set)
    start: int = 1 << 62
    end: int = 0
    eid: int | None = None

    @property
    def pairs(self) -> set[Pair]:
        """The pipes that it goes between."""
        return {(a, b) for a in self.sources for b in self.targets if a != b}


@dataclass(slots=True)
class _Flags:
    """The events of a function. An op has one place, what has blocks a second one behind them."""

    at: int = 0
    of: dict[Value, _Flag] = field(default_factory=dict)
    awaited: list[Value] = field(default_factory=list)  # as the waits stand
    waits: dict[Value, int] = field(default_factory=dict)  # the last one
    signals: dict[Value, int] = field(default_factory=dict)
    carried: list[tuple[Value, Value]] = field(default_factory=list)  # a loop's parameter, and what takes its place

    def block(self, block: Region) -> None:
        for op in block.body:
            self.at += 1
            opened, before = self.at, len(self.awaited)
            for x in op.operands:
                if isinstance(x, Value) and isinstance(x.type, EventType) and not op.regions:
                    self.wait(x, op)
            for r in op.regions:
                self.block(r)
            if op.regions:
                self.at += 1
                self.join(op, opened)
                if op.defn.short == "scf.for":
                    self.again(opened, self.awaited[before:])
            elif op.defn.traits & ASYNC and op.results and isinstance(op.results[-1].type, EventType):
                self.signal(op.results[-1], op)

    def wait(self, v: Value, op: Op) -> None:
        flag = self.flag(v)
        flag.targets.add(pipe_of(op) if op.defn.traits & ASYNC else "S")
        flag.end = max(flag.end, self.at)
        self.waits[v] = self.at
        self.awaited.append(v)

    def again(self, opened: int, awaited: list[Value]) -> None:
        """What a loop waits for and does not signal it may wait for as long as it runs."""
        for v in awaited:
            if self.signals.get(v, opened) < opened:
                self.of[v].end = max(self.of[v].end, self.at)

    def signal(self, v: Value, op: Op) -> None:
        flag = self.flag(v)
        flag.sources.setdefault(pipe_of(op), op)
        flag.start = min(flag.start, self.at)
        self.signals[v] = self.at

    def join(self, op: Op, opened: int) -> None:
        """What goes through the blocks of `op` is one event with what comes out of it."""
        inits = op.operands[3:] if op.defn.short == "scf.for" else ()
        for k, v in enumerate(op.results):
            if not isinstance(v.type, EventType):
                continue
            names = [v, *(r.results[k] for r in op.regions)]
            if inits:
                names += [inits[k], op.regions[0].params[k + 1]]
                self.carried.append((op.regions[0].params[k + 1], op.regions[0].results[k]))  # type: ignore[arg-type]
            whole = self.flag(v)
            for x in names:
                assert isinstance(x, Value)
                self.merge(whole, self.flag(x))
            whole.start, whole.end = min(whole.start, opened), max(whole.end, self.at)

    def flag(self, v: Value) -> _Flag:
        if (found := self.of.get(v)) is None:
            self.of[v] = found = _Flag([v])
        return found

    def merge(self, into: _Flag, other: _Flag) -> None:
        if into is other:
            return
        into.values += other.values
        into.sources = other.sources | into.sources
        into.targets |= other.targets
        into.start, into.end = min(into.start, other.start), max(into.end, other.end)
        self.of.update(dict.fromkeys(other.values, into))

    def double(self, context: PassContext) -> bool:
        """Report events that a loop signals again before the last one was waited for: one id cannot tell them apart."""
        found = [(p, v) for p, v in self.carried if v is not p and self.waits.get(p, 1 << 62) > self.signals.get(v, 1 << 62)]
        for p, v in found:
            message = f"%{v.name} is signaled before %{p.name}, which it follows, was waited for"
            at = v.op.loc if v.op is not None else 0
            hint = "carry an event for every step that is under way"
            context.diagnostics.error("EventIdsExhausted", message, at, help=hint)
        return bool(found)

    def allocate(self, context: PassContext) -> bool:
        """Choose the ids; False after reporting a pair of pipes that has too few."""
        active: list[_Flag] = []
        flags = [f for f in dict.fromkeys(self.of.values()) if f.pairs]
        for flag in sorted(flags, key=lambda f: f.start):
            active = [f for f in active if f.end > flag.start]
            rivals = [f for f in active if f.pairs & flag.pairs]
            taken = {f.eid for f in rivals}
            flag.eid = next((i for i in range(EVENT_IDS) if i not in taken), None)
            active.append(flag)
            if flag.eid is None:
                _exhausted(flag, rivals, context)
                return False
        return True


def _exhausted(flag: _Flag, rivals: list[_Flag], context: PassContext) -> None:
    source, target = min(flag.pairs & {pair for f in rivals for pair in f.pairs})
    message = f"{len(rivals) + 1} events from {source} to {target} are under way at once, there are {EVENT_IDS} ids"
    labels = [(op.loc, "still under way") for f in rivals for op in f.sources.values()]
    hint = "wait for some of them earlier, or for a whole pipe with pto.sync.op"
    context.diagnostics.error("EventIdsExhausted", message, next(iter(flag.sources.values())).loc, labels=labels, help=hint)


def _write(rw: Rewriter, flags: _Flags) -> int:
    """State the ids in the types; how many changed."""
    count = 0
    for v, flag in flags.of.items():
        assert isinstance(v.type, EventType)
        t = event(v.type.producer, v.type.scope, flag.eid)
        if t is v.type:
            continue
        count += 1
        if v.op is not None and v.op.defn.traits & ASYNC:
            rw.set_attrs(v.op, event=t)
        rw.retype(v, t)
    return count

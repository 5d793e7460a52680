"""Ids for events as hardware flags: one flag between two pipes, set by the producer, cleared by the waiting pipe.

An event is live from the op that signals it to the last op that waits for it. Events that a loop carries or a branch passes on
are one event. Each ordered pair of pipes has ids 0 to 7, and a flag must be waited for before it is set again. So events between
the same two pipes that are live at once get different ids, the lowest free ones. The walk of the hazard check shows which are.
Earlier ids are replaced. An event needs no id if no other pipe waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import ASYNC, Function, Op, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.pto.carried import classes
from ptir_tools.dialects.pto.order.decisions import NEVER, TooManyConditions
from ptir_tools.dialects.pto.order.dependences import RecordingWalk, Span, recorded_walks
from ptir_tools.dialects.pto.pipes import PIPES
from ptir_tools.dialects.pto.rules import EVENT_IDS
from ptir_tools.dialects.pto.types import EventType, event
from ptir_tools.passes import PassContext
from ptir_tools.passes.pto.pto_infer_tile_info import block_types
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """Give every event between two pipes an id that is free between them."""
    for rw in context.rewriters(program):
        function = rw.block
        assert isinstance(function, Function)
        with collector_paused():
            flags = _Flags(program, function)
        if flags.truncated:
            message = "which events are live at once is not known, as the order of ops is not proved"
            context.diagnostics.error("EventIdsExhausted", message, function.loc)
        elif not _double(flags, context) and _allocate(flags, context):
            context.count("ids", _write(rw, flags))
            block_types(rw)


@dataclass(slots=True, eq=False)
class _Flag:
    """One event, under all its names: the ops that signal it, its pairs of pipes, and the earlier events of these pairs that are
    live when it is signaled."""

    names: list[Value]
    sources: dict[int, Op] = field(default_factory=dict)  # by pipe
    pairs: set[tuple[int, int]] = field(default_factory=set)
    rivals: dict[_Flag, None] = field(default_factory=dict)
    eid: int | None = None


class _Flags:
    """The events of a function in the order of their first signals. `double` are pairs of events with one flag: the second is
    signaled while a pipe that waits for it still waits for the first."""

    def __init__(self, program: Program, function: Function) -> None:
        self.all: list[_Flag] = []
        self.double: dict[tuple[Value, Value], None] = {}
        self.of: dict[Value, _Flag] = {}
        by_class: dict[int, _Flag] = {}
        for v, names in classes(function, EventType).items():
            self.of[v] = by_class.setdefault(id(names), _Flag(names))
        walks = list(recorded_walks(program, function))
        self.truncated = any(walk.truncated or any(map(_carries_several, walk.unproved)) for walk in walks)
        try:
            found = [(walk, [s for s in walk.spans() if any(q != s.task.pipe for q, *_ in s.waits)]) for walk in walks]
            for _, spans in found:
                for s in spans:
                    flag = self.flag(s)
                    flag.sources.setdefault(s.task.pipe, s.task.op)
                    flag.pairs |= {(s.task.pipe, q) for q, *_ in s.waits if q != s.task.pipe}
            self.all = list(dict.fromkeys(self.flag(s) for _, spans in found for s in spans))
            for walk, spans in found:
                self.compare(walk, spans)
        except TooManyConditions:
            self.truncated = True

    def flag(self, span: Span) -> _Flag:
        return self.of[span.task.op.results[-1]]

    def compare(self, walk: RecordingWalk, spans: list[Span]) -> None:
        """Find the events that are live when another is signaled."""
        active: list[Span] = []
        for span in spans:
            active = [s for s in active if s.waits[-1][1] > span.start]
            mine = self.flag(span)
            for earlier in active:
                other = self.flag(earlier)
                if other is mine:
                    self.double |= dict.fromkeys((name, span.task.op.results[-1]) for name in _late(walk, earlier, span))
                elif other.pairs & mine.pairs and other not in mine.rivals and any(_waits_after(walk, earlier, span)):
                    mine.rivals[other] = other.rivals[mine] = None
            active.append(span)


def _carries_several(loop: Op) -> bool:
    """Whether a loop may carry an event for more iterations than are followed where its order is not proved."""
    return sum(isinstance(v.type, EventType) for v in loop.results) > 2


def _waits_after(walk: RecordingWalk, earlier: Span, span: Span) -> Iterator[tuple[int, Value]]:
    """The waits for an event, as pipe and operand, after another one was signaled."""
    for pipe, at, when, name in earlier.waits:
        if at > span.start and pipe != earlier.task.pipe and walk.both(when, span.task.when) != NEVER:
            yield pipe, name


def _late(walk: RecordingWalk, earlier: Span, span: Span) -> Iterator[Value]:
    """The operands by which a pipe still waits for an event when the same flag is set for this pipe again."""
    if earlier.task.pipe == span.task.pipe:
        targets = {pipe for pipe, *_ in span.waits}
        yield from (name for pipe, name in _waits_after(walk, earlier, span) if pipe in targets)


def _double(flags: _Flags, context: PassContext) -> bool:
    """Report events that are signaled again before the last one was waited for. One id cannot distinguish them."""
    for p, v in flags.double:
        message = f"%{v.name} is signaled before %{p.name}, which it follows, was waited for"
        at = v.op.loc if v.op is not None else 0
        hint = "carry one event for each step that may be running"
        context.diagnostics.error("EventIdsExhausted", message, at, help=hint)
    return bool(flags.double)


def _allocate(flags: _Flags, context: PassContext) -> bool:
    """Choose the ids; False after reporting a pair of pipes that has too few."""
    for flag in flags.all:
        used = {f.eid for f in flag.rivals}
        flag.eid = next((i for i in range(EVENT_IDS) if i not in used), None)
        if flag.eid is None:
            _exhausted(flag, [f for f in flag.rivals if f.eid is not None], context)
            return False
    return True


def _exhausted(flag: _Flag, rivals: list[_Flag], context: PassContext) -> None:
    source, target = (PIPES[p] for p in min(flag.pairs & {pair for f in rivals for pair in f.pairs}))
    message = f"{len(rivals) + 1} events from {source} to {target} are live at once, there are {EVENT_IDS} ids"
    labels = [(op.loc, "still live") for f in rivals for op in f.sources.values()]
    hint = "wait for some of them earlier, or for a whole pipe with pto.sync.op"
    context.diagnostics.error("EventIdsExhausted", message, next(iter(flag.sources.values())).loc, labels=labels, help=hint)


def _write(rw: Rewriter, flags: _Flags) -> int:
    """Write the ids into the types; the number of changed types."""
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

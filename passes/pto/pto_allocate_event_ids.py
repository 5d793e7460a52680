"""Ids for events. Events between the same two pipes whose live ranges overlap (`pto.order.flags`) get different ids, the lowest
free ones. Earlier ids are replaced. An event needs no id if no other pipe waits for it."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import ASYNC
from ptir_tools.dialects.pto.order.flags import Flag, Flags, flags_of
from ptir_tools.dialects.pto.rules import EVENT_IDS
from ptir_tools.dialects.pto.types import EventType, event
from ptir_tools.passes import PassContext
from ptir_tools.passes.pto.pto_infer_tile_info import block_types
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """Give every event between two pipes an id that is free between them."""
    for rw in context.rewriters(program):
        flags = flags_of(rw.block)
        if not _double(flags, context) and _allocate(flags, context):
            context.count("ids", _write(rw, flags))
            block_types(rw)


def _double(flags: Flags, context: PassContext) -> bool:
    """Report events that are signaled again before the last one was waited for. One id cannot distinguish them."""
    never = 1 << 62
    repeated = [(p, v) for p, v in flags.carried if v is not p and flags.waits.get(p, never) > flags.signals.get(v, never)]
    repeated += dict.fromkeys((*flags.replaced_and_awaited(), *flags.overtaken))
    for p, v in repeated:
        message = f"%{v.name} is signaled before %{p.name}, which it follows, was waited for"
        at = v.op.loc if v.op is not None else 0
        hint = "carry one event for each step that may be running"
        context.diagnostics.error("EventIdsExhausted", message, at, help=hint)
    return bool(repeated)


def _allocate(flags: Flags, context: PassContext) -> bool:
    """Choose the ids; False after reporting a pair of pipes that has too few."""
    for flag, rivals in flags.interferences():
        used = {f.eid for f in rivals}
        flag.eid = next((i for i in range(EVENT_IDS) if i not in used), None)
        if flag.eid is None:
            _exhausted(flag, rivals, context)
            return False
    return True


def _exhausted(flag: Flag, rivals: list[Flag], context: PassContext) -> None:
    source, target = min(flag.pairs & {pair for f in rivals for pair in f.pairs})
    message = f"{len(rivals) + 1} events from {source} to {target} are live at once, there are {EVENT_IDS} ids"
    labels = [(op.loc, "still live") for f in rivals for op in f.sources.values()]
    hint = "wait for some of them earlier, or for a whole pipe with pto.sync.op"
    context.diagnostics.error("EventIdsExhausted", message, next(iter(flag.sources.values())).loc, labels=labels, help=hint)


def _write(rw: Rewriter, flags: Flags) -> int:
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

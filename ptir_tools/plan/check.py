"""Checks a plan from JSON against a program, independently of the placement algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptir_tools.core.ir import Op
from ptir_tools.core.typed import Any
from ptir_tools.plan.liveness import Buffer, workspace
from ptir_tools.plan.placement import Interval
from ptir_tools.plan.record import BlockPlan, Plan
from ptir_tools.plan.validate import conflicts
from ptir_tools.plan.write import Json, as_dict, shown

_FIXED = ("value", "usage", "alias", "alias_of")  # fields of a buffer that the program determines


def faults(given: object, needed: Plan) -> list[str]:
    """The errors of `given`, a plan in the layout of `to_json`, for the program of the plan `needed`, from which only sizes, live
    ranges and aliases are used. Empty when there are none.
    """
    align = _get(given, "align")
    if not _whole(align) or align < 1:
        return ["`align` is not a positive integer"]
    return list(_Check(given, align).program(needed))


def _get(x: object, key: str) -> Any:
    return x.get(key) if isinstance(x, dict) else None


def _whole(x: object) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


class _Check:
    def __init__(self, given: object, align: int) -> None:
        self.given, self.align = given, align

    def program(self, needed: Plan) -> Iterator[str]:
        wanted = as_dict(needed)
        blocks = [("functions", "@", name, b) for name, b in needed.functions.items()]
        blocks += [("regions", "^", r.name, b) for r, b in needed.regions.items()]
        for kind, sigil, name, block in blocks:
            title = f"{sigil}{name}: " if name else ""
            yield from (title + text for text in self.block(_get(_get(self.given, kind), name), wanted[kind][name], block))

    def block(self, given: object, wanted: Json, block: BlockPlan) -> Iterator[str]:
        rows, need = _get(given, "buffers"), wanted["buffers"]
        if not isinstance(rows, list):
            yield "there is no list of buffers"
            return
        if len(rows) != len(need):
            yield f"{len(rows)} buffers, the program needs {len(need)}"
            return
        ops = {b: op for op, b in block.live.workspaces.items()}
        wrong = [f for pair in zip(rows, need, block.buffers, strict=True) for f in self.row(*pair, ops)]
        yield from wrong or self.placement(rows, given, block)

    def row(self, row: object, need: Json, b: Buffer, ops: dict[Buffer, Op]) -> Iterator[str]:
        """Compare a buffer with its value."""
        for key in _FIXED:
            if _get(row, key) != need.get(key):
                yield f"{shown(b)}: {key} is {_get(row, key)}, the program has {need.get(key)}"
        nbytes, start, end = (_get(row, key) for key in ("bytes", "start", "end"))
        least = self.workspace(ops[b]) if b in ops else b.nbytes
        if not _whole(nbytes) or nbytes < least:
            yield f"{shown(b)}: {nbytes} bytes, the program needs {least}"
        if not (isinstance(start, int) and isinstance(end, int) and start <= b.start and end >= b.end):
            yield f"{shown(b)}: lives {start}-{end}, the program needs {b.start}-{b.end}"

    def workspace(self, op: Op) -> int:
        """The bytes that the regions of `op` need by the plan."""
        peaks = {r: _get(_get(_get(self.given, "regions"), r.name), "peak") for r in op.regions}
        return workspace(op, {r: p for r, p in peaks.items() if _whole(p)}, self.align)

    def placement(self, rows: Sequence[Json], given: object, block: BlockPlan) -> Iterator[str]:
        """The errors of the offsets."""
        peak = _get(given, "peak")
        if not _whole(peak):
            yield "`peak` is not an integer"
            return
        if block.capacity is not None and peak > block.capacity:
            yield f"the peak {peak} is above the capacity {block.capacity}"
        own = {b: row for b, row in zip(block.buffers, rows, strict=True) if b.parent is None}
        placed = {b: own[b] for b in block.placed()}
        for b, row in zip(block.buffers, rows, strict=True):
            offset, root = row.get("offset"), own[b.root].get("offset")
            if offset != root:
                yield f"{shown(b)}: offset {offset}, but it shares the storage of {shown(b.root)} at {root}"
            elif b.root in placed and not _whole(offset):
                yield f"{shown(b)}: it has no offset"
        if all(_whole(row.get("offset")) for row in placed.values()):
            names = [shown(b) for b in placed]
            spans = [Interval(row["start"], row["end"] + 1, row["bytes"]) for row in placed.values()]
            offsets = [row["offset"] for row in placed.values()]
            yield from conflicts(spans, offsets, align=self.align, limit=peak, names=names)

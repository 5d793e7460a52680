"""Plans as text, JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ptir_tools.plan.liveness import Buffer
from ptir_tools.plan.record import BlockPlan, Plan


def to_text(plan: Plan) -> Iterator[str]:
    """A table per function and region."""
    for title, block in _blocks(plan):
        capacity = f", capacity {block.capacity}" if block.capacity is not None else ""
        yield f"{title}: peak {block.peak} bytes, lower bound {block.lower_bound}, ratio {block.ratio:.4f}{capacity}\n"
        yield "  " + ", ".join(f"{u} {block.nbytes(u)}" for u in ("parameter", "constant", "result")) + " bytes\n"
        rows = [("value", "bytes", "live", "offset", "usage", "alias"), *map(_row, block.buffers)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  " + "  ".join(map(str.ljust, row, widths)).rstrip() + "\n"


def _row(b: Buffer) -> tuple[str, ...]:
    offset = "-" if b.offset is None else str(b.offset)
    alias = f"{b.alias} of {_shown(b.parent)}" if b.parent else ""
    return _shown(b), str(b.nbytes), f"{b.start}-{b.end}", offset, b.root.usage, alias


def _shown(b: Buffer) -> str:
    return b.name if b.type is None else f"%{b.name}"


def to_json(plan: Plan) -> Iterator[str]:
    """One object: `functions` and `regions` by name, each with its buffers; numbers are bytes, live ranges inclusive."""
    yield json.dumps(as_dict(plan), indent=2) + "\n"


def as_dict(plan: Plan) -> dict[str, Any]:
    """What `to_json` writes."""
    functions = {name: _block(b) for name, b in plan.functions.items()}
    return {"align": plan.align, "functions": functions, "regions": {r.name: _block(b) for r, b in plan.regions.items()}}


def _block(block: BlockPlan) -> dict[str, Any]:
    sums = {f"{u}_bytes": block.nbytes(u) for u in ("parameter", "constant", "result")}
    numbers = {b: i for i, b in enumerate(block.buffers)}
    head = {"peak": block.peak, "lower_bound": block.lower_bound, "ratio": round(block.ratio, 6), "total": block.total}
    space = {"capacity": block.capacity} if block.capacity is not None else {}
    return head | space | sums | {"buffers": [_buffer(b, numbers) for b in block.buffers]}


def _buffer(b: Buffer, numbers: dict[Buffer, int]) -> dict[str, Any]:
    shape = {"dtype": str(b.type.dtype), "shape": list(b.type.shape)} if b.type else {}
    alias = {"alias": b.alias, "alias_of": numbers[b.parent]} if b.parent else {}
    row: dict[str, Any] = {"id": numbers[b], "value": b.name, **shape, "bytes": b.nbytes, "start": b.start, "end": b.end}
    return row | {"usage": b.root.usage, "offset": b.offset} | alias


def to_csv(plan: Plan) -> Iterator[str]:
    """The storage in arenas as intervals `id,lower,upper,size,offset`, half-open; ids are `block:value`."""
    yield "id,lower,upper,size,offset\n"
    for title, block in _blocks(plan):
        for b in block.placed():
            yield f"{title}:{b.name},{b.start},{b.end + 1},{b.nbytes},{b.offset}\n"


def _blocks(plan: Plan) -> Iterator[tuple[str, BlockPlan]]:
    yield from ((f"@{name}", b) for name, b in plan.functions.items())
    yield from ((f"^{r.name}", b) for r, b in plan.regions.items())

"""Plans as text, JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ptir_tools.core.typed import Any, TypeAlias
from ptir_tools.plan.liveness import Buffer
from ptir_tools.plan.mesh import Spec, spec_text
from ptir_tools.plan.record import BlockPlan, Plan

Json: TypeAlias = dict[str, Any]  # JSON values in Python
COLUMNS = ("value", "bytes", "live", "offset", "usage", "alias")


def to_text(plan: Plan) -> Iterator[str]:
    """A table per function and region."""
    for title, block in blocks(plan):
        yield "\n  ".join(heading(title, block)) + "\n"
        lines = [columns(block), *rows(block)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        line = "".join(f"  %-{width}s" for width in widths)
        yield "".join(f"{(line % cells).rstrip()}\n" for cells in lines)


def heading(title: str, block: BlockPlan) -> list[str]:
    """The lines above the table of a block: the quality of its plan, the bytes outside the arena, and its owner."""
    used = f" ({100 * block.peak / block.capacity:.1f} % used)" if block.capacity else ""
    capacity = f", capacity {block.capacity}{used}" if block.capacity is not None else ""
    least = " (no placement is lower)" if block.proved and block.peak > block.lower_bound else ""
    summary = f"peak {block.peak} bytes{least}, lower bound {block.lower_bound}, ratio {block.ratio:.4f}{capacity}"
    outside = ", ".join(f"{u} {block.nbytes(u)}" for u in ("parameter", "constant", "result")) + " bytes"
    lines = [f"{title}: {summary}" if title else summary, outside]
    if block.mesh is not None:
        lines.append(f"each of the {block.mesh.devices} devices of {block.mesh} takes {block.total} bytes")
    return lines


def columns(block: BlockPlan) -> tuple[str, ...]:
    """The titles of the columns of a block's table."""
    return COLUMNS if block.mesh is None else (*COLUMNS, "sharding")


def rows(block: BlockPlan) -> Iterator[tuple[str, ...]]:
    """The cells of every buffer under `columns`."""
    for b in block.buffers:
        offset = "-" if b.offset is None else str(b.offset)
        alias = f"{b.alias} of {shown(b.parent)}" if b.parent else ""
        cells = shown(b), str(b.nbytes), f"{b.start}-{b.end}", offset, b.root.usage, alias
        yield cells if block.mesh is None else (*cells, spec_text(block.cuts[b]) if b in block.cuts else "whole")


def shown(b: Buffer) -> str:
    """A buffer's name: a value with its sigil, or the name of a workspace or raw interval."""
    return b.name if b.type is None else f"%{b.name}"


def to_json(plan: Plan) -> Iterator[str]:
    """One object: `functions` and `regions` by name, each with its buffers; numbers are bytes, live ranges inclusive."""
    yield json.dumps(as_dict(plan), indent=2) + "\n"


def as_dict(plan: Plan) -> Json:
    """What `to_json` writes."""
    functions = {name: _block(b) for name, b in plan.functions.items()}
    mesh = {"mesh": dict(plan.mesh.axes)} if plan.mesh is not None else {}
    return {"align": plan.align, **mesh, "functions": functions, "regions": {r.name: _block(b) for r, b in plan.regions.items()}}


def _block(block: BlockPlan) -> Json:
    sums = {f"{u}_bytes": block.nbytes(u) for u in ("parameter", "constant", "result")}
    numbers = {b: i for i, b in enumerate(block.buffers)}
    head = {"peak": block.peak, "lower_bound": block.lower_bound, "ratio": round(block.ratio, 6), "total": block.total}
    space = {"capacity": block.capacity} if block.capacity is not None else {}
    return head | space | sums | {"buffers": [_buffer(b, numbers, block.cuts.get(b)) for b in block.buffers]}


def _buffer(b: Buffer, numbers: dict[Buffer, int], cut: Spec | None) -> dict[str, object]:
    shape = {"dtype": str(b.type.dtype), "shape": list(b.type.shape)} if b.type else {}
    alias = {"alias": b.alias, "alias_of": numbers[b.parent]} if b.parent else {}
    about: dict[str, object] = {"id": numbers[b], "value": b.name, **shape, "bytes": b.nbytes, "start": b.start, "end": b.end}
    sharding = {"sharding": [list(axes) for axes in cut]} if cut else {}
    return about | {"usage": b.root.usage, "offset": b.offset} | alias | sharding


def to_csv(plan: Plan) -> Iterator[str]:
    """The buffers in arenas as intervals `id,lower,upper,size,offset`, half-open. Ids are `block:value`; raw intervals keep
    theirs."""
    yield "id,lower,upper,size,offset\n"
    for title, block in blocks(plan):
        prefix = f"{title}:" if title else ""
        for b in block.placed():
            yield f"{prefix}{b.name},{b.start},{b.end + 1},{b.nbytes},{b.offset}\n"


def blocks(plan: Plan) -> Iterator[tuple[str, BlockPlan]]:
    """(title, plan) of every function and region; raw intervals have no title."""
    yield from ((f"@{name}" if name else "", b) for name, b in plan.functions.items())
    yield from ((f"^{r.name}", b) for r, b in plan.regions.items())
